/* SPDX-License-Identifier: Apache-2.0 */
/* emitted.c - see emitted.h. */
#define _GNU_SOURCE
#include "tests/emitted.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "loader/output.h"
#include "tests/fixture.h"
#include "tests/t.h"

int
emitted_entries(const char *folder, char *name)
{
    DIR *const stream = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    while (stream != NULL && (entry = readdir(stream)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (name != NULL)
                strcpy(name, entry->d_name);
        }
    if (stream != NULL)
        closedir(stream);
    return count;
}

void
emitted_check(const char *path, const char *expected)
{
    char *const text = fixture_read(path, NULL);

    CHECK_STR(text, expected);
    free(text);
}

berth_status
emitted_text(berth_context *with, const char *path, const char *text, bool overwrite,
             berth_error *error)
{
    berthi_output output;
    berth_status status =
        berthi_output_open(with, path, strlen(text), overwrite, &output, error);

    if (status == BERTH_OK)
        status = berthi_output_write(&output, text, strlen(text), 0, error);
    if (status == BERTH_OK)
        status = berthi_output_commit(&output, error);
    else
        berthi_output_discard(&output);
    CHECK(output.context == NULL);
    return status;
}
