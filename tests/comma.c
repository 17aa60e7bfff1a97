/* SPDX-License-Identifier: Apache-2.0 */
/* comma.c - a locale with a decimal comma; see comma.h. */
#define _POSIX_C_SOURCE 200809L

#include "tests/comma.h"

#include <locale.h>
#include <stdlib.h>

#include "tests/fixture.h"

static bool
has_comma(const char *name)
{
    return setlocale(LC_ALL, name) != NULL && localeconv()->decimal_point[0] == ',';
}

bool
comma_is_set(void)
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8" };
    const char *folder;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_comma(names[i]))
            return true;
    folder = fixture_folder();
    if (system(fixture_format("localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
                              folder)) == 0
        && setenv("LOCPATH", folder, 1) == 0 && has_comma("de_DE.UTF-8"))
        return true;
    setlocale(LC_ALL, "C");
    return false;
}
