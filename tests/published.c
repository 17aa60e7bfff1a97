/* SPDX-License-Identifier: Apache-2.0 */
/* published.c - see published.h. */
#define _GNU_SOURCE
#include "tests/published.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/written.h"

berth_context *published_context;

berth_status
published_open(const char *folder, const char *job, bool overwrite, bool is_resume,
               berthi_writer **out, berth_error *error)
{
    const berthi_writer_options options = { .job = job,
                                            .overwrite = overwrite,
                                            .resume = is_resume };
    const berth_status status =
        berthi_writer_open(published_context, folder, &options, out, error);

    CHECK_EQ(*out != NULL, status == BERTH_OK);
    return status;
}

void
published_refuse(const char *folder, bool overwrite, bool is_resume, berth_reason reason,
                 const char *message)
{
    berthi_writer *writer;
    berth_error error;
    const int fds = fixture_open_fds();

    CHECK_EQ(published_open(folder, "job", overwrite, is_resume, &writer, &error),
             berthi_reason_status((int32_t)reason));
    CHECK_EQ(error.reason, reason);
    CHECK_CONTAINS(error.message, message);
    CHECK_EQ(fixture_open_fds(), fds);
    berthi_writer_close(writer);
}

bool
published_has(const char *folder, const char *name)
{
    struct stat state;

    return lstat(fixture_format("%s/%s", folder, name), &state) == 0;
}

void
published_check(const char *folder, const char *name, const char *expected)
{
    char *text;

    if (!CHECK(published_has(folder, name)))
        return;
    text = fixture_read(fixture_format("%s/%s", folder, name), NULL);
    CHECK_STR(text, expected);
    free(text);
}

void
published_interrupt(const char *folder, const char *job, bool overwrite)
{
    berthi_writer *writer;

    if (!CHECK_EQ(published_open(folder, job, overwrite, false, &writer, NULL), BERTH_OK))
        return;
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "b", "22", NULL), BERTH_OK);
    berthi_writer_close(writer);
}

const char *
published_temporary(berthi_writer *writer, const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, berthi_writer_find(writer, name)->temporary);
}

void
published_over(const char *folder, const char *shard, const char *commit)
{
    berthi_writer *writer;

    if (!CHECK_EQ(published_open(folder, "job", true, false, &writer, NULL), BERTH_OK))
        return;
    CHECK_EQ(written_text(writer, shard, "new", NULL), BERTH_OK);
    if (strcmp(shard, commit) != 0)
        CHECK_EQ(written_text(writer, commit, "{}", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, commit, NULL), BERTH_OK);
    berthi_writer_close(writer);
    CHECK(!published_has(folder, PUBLISHED_JOURNAL));
    published_check(folder, shard, "new");
}
