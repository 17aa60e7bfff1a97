/* SPDX-License-Identifier: Apache-2.0 */
/* comma.c - a locale with a decimal comma; see comma.h. */
#define _POSIX_C_SOURCE 200809L

#include "tests/comma.h"

#include <locale.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/fixture.h"

static bool
has_comma(const char *name)
{
    return setlocale(LC_NUMERIC, name) != NULL && localeconv()->decimal_point[0] == ',';
}

/* Numbers only, and the smallest character set: a hundredth of a whole locale's time. */
static bool
is_compiled(const char *folder)
{
    fixture_text(fixture_format("%s/comma.src", folder),
                 "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\n"
                 "END LC_NUMERIC\n");
    /* It fails because of what is missing, and writes what is there all the same. */
    return system(fixture_format("localedef -c -i %s/comma.src -f ANSI_X3.4-1968 "
                                 "%s/comma >/dev/null 2>&1", folder, folder)) != -1
           && setenv("LOCPATH", folder, 1) == 0 && has_comma("comma");
}

bool
comma_is_set(void)
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_comma(names[i]))
            return true;
    if (is_compiled(fixture_folder()))
        return true;
    setlocale(LC_NUMERIC, "C");
    return false;
}
