/* SPDX-License-Identifier: Apache-2.0 */
/* test_writer_resume.c - sets of files that an earlier run has left. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/output.h"
#include "loader/writer.h"
#include "tests/fixture.h"
#include "tests/published.h"
#include "tests/t.h"
#include "tests/written.h"

/* ------------------------------------------------------------------ resuming */

static void
test_resumes(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;

    published_interrupt(folder, "job", false);
    published_refuse(folder, false, false, BERTH_REASON_EXISTS, "--resume");
    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK(!berthi_writer_is_complete(writer));
    CHECK(berthi_writer_find(writer, "a") != NULL);
    CHECK_EQ(berthi_writer_find(writer, "b")->bytes, 2);
    CHECK_EQ(written_text(writer, "c", "333", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "b", NULL), BERTH_OK);
    berthi_writer_close(writer);
    published_check(folder, "a", "1");
    published_check(folder, "b", "22");
    published_check(folder, "c", "333");
    CHECK(!published_has(folder, PUBLISHED_JOURNAL));
}

/* Only what is there with its size counts as finished. */
static void
test_resumes_what_is_left(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *a;
    const char *b;
    berthi_writer *writer;

    published_interrupt(folder, "job", false);
    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    a = published_temporary(writer, folder, "a");
    b = published_temporary(writer, folder, "b");
    berthi_writer_close(writer);
    fixture_text(a, "12"); /* another size */
    fixture_remove(b);
    fixture_link("/dev/null", b);
    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") == NULL);
    CHECK(berthi_writer_find(writer, "b") == NULL);
    CHECK_EQ(access(a, F_OK), -1);
    berthi_writer_close(writer);
    CHECK(!published_has(folder, PUBLISHED_JOURNAL));
}

/* Of files that are read the line that differs says nothing to anybody, their name does. */
static void
test_another_source(void)
{
    static const char *const others[][2] = {
        { "source a\nbytes 1\nmodified 2\nsource b\nbytes 1\nmodified 3", "and \"b\" of the" },
        { "source a\nbytes 1\nmodified 1\nsource b\nbytes 1\nmodified 2", "and \"a\" of the" },
        { "source a\nbytes 1\nmodified 2\nsource b\nbytes 2\nmodified 2", "and \"b\" of the" },
        { "source a\nbytes 1\nmodified 2\nsource c\nbytes 1\nmodified 2",
          "there \"source b\", now \"source c\"" },
        { "source a\nbytes 1\nmodified 2\ndecisions 1",
          "there \"source b\", now \"decisions 1\"" },
        { "bytes of a shard 7", "there \"source a\", now \"bytes of a shard 7\"" },
    };
    const char *folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;
    berth_error error;

    published_interrupt(
        folder, "source a\nbytes 1\nmodified 2\nsource b\nbytes 1\nmodified 2", false);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK_EQ(published_open(folder, others[i][0], false, true, &writer, &error),
                 BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, others[i][1]);
    }
    /* An option that begins with the same word, and no file before it. */
    folder = fixture_format("%s/out", fixture_folder());
    published_interrupt(folder, "bytes of a shard 7", false);
    CHECK_EQ(published_open(folder, "bytes of a shard 8", false, true, &writer, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "now \"bytes of a shard 8\"");
}

static void
test_another_job(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;
    berth_error error;

    published_interrupt(folder, "quantize\nsource: m\ntype: nf4", false);
    CHECK_EQ(published_open(folder, "quantize\nsource: m\ntype: fp4\nx", false, true, &writer,
                            &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.message,
              "holds an interrupted run of another command: there \"type: nf4\", now "
              "\"type: fp4\"; give what was given then, or --force to begin anew");
    CHECK_STR(error.file, folder);
    CHECK_EQ(published_open(folder, "quantize\nsource: m", true, true, &writer, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "there \"source: m\", now \"source: m\"");
    CHECK_EQ(published_open(folder, "quantize\nsource: m\ntype: nf4", false, true, &writer,
                            &error),
             BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    berthi_writer_close(writer);
    /* Begun anew nothing of it is left, and not before. */
    CHECK_EQ(published_open(folder, "other", true, false, &writer, &error), BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") == NULL);
    berthi_writer_close(writer);
    CHECK(!published_has(folder, PUBLISHED_JOURNAL));
    CHECK_EQ(rmdir(folder), 0);
}

static void
test_broken_journal(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;

    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL), "{");
    published_refuse(folder, false, true, BERTH_REASON_JOURNAL, "");
    published_refuse(folder, false, false, BERTH_REASON_EXISTS, "--force");
    CHECK_EQ(published_open(folder, "job", true, false, &writer, NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    berthi_writer_close(writer);
    CHECK_EQ(published_open(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    berthi_writer_close(writer);
    fixture_remove(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL));
    fixture_make_folder(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL));
    published_refuse(folder, true, true, BERTH_REASON_NOT_REGULAR, "directory");
    fixture_remove(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL));
    fixture_link("nowhere", fixture_format("%s/%s", folder, PUBLISHED_JOURNAL));
    published_refuse(folder, false, false, BERTH_REASON_EXISTS, "--resume");
    /* What nobody can read must not be removed file by file. */
    fixture_remove(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL));
    fixture_write(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL), "", 0);
    CHECK_EQ(truncate(fixture_format("%s/%s", folder, PUBLISHED_JOURNAL), 1000000001), 0);
    published_refuse(folder, false, true, BERTH_REASON_JOURNAL, "too large");
}

/* A single output of another command leaves alone what a journal lists. */
static void
test_output_beside_a_journal(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_output output;
    berthi_writer *writer;

    published_interrupt(folder, "job", false);
    T_REQUIRE(berthi_output_open(published_context, fixture_format("%s/a", folder), 0, true,
                                 &output, NULL) == BERTH_OK);
    berthi_output_discard(&output);
    CHECK_EQ(published_open(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    berthi_writer_close(writer);
}

/* ---------------------------------------------------------------- publishing */

/* Mode and owner of what is replaced; links are replaced, not followed. */
static void
test_takes_over(void)
{
    const char *const folder = fixture_folder();
    const char *const a = fixture_format("%s/a", folder);
    struct stat state;
    berthi_writer *writer;

    fixture_text(a, "old");
    CHECK_EQ(chmod(a, 0604), 0);
    fixture_text(fixture_format("%s/target", folder), "target");
    fixture_link("target", fixture_format("%s/b", folder));
    published_interrupt(folder, "job", true);
    CHECK_EQ(published_open(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "b", NULL), BERTH_OK); /* as it began */
    berthi_writer_close(writer);
    CHECK_EQ(stat(a, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0604);
    published_check(folder, "a", "1");
    CHECK_EQ(lstat(fixture_format("%s/b", folder), &state), 0);
    CHECK(S_ISREG(state.st_mode));
    published_check(folder, "b", "22");
    published_check(folder, "target", "target");
}

/* What only the old index names goes, and the folder that is empty without it. */
static void
test_stale_shards(void)
{
    const char *const folder = fixture_folder();

    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_INDEX),
                 PUBLISHED_MAP("s1.safetensors", "s2.safetensors"));
    fixture_text(fixture_format("%s/s1.safetensors", folder), "old");
    fixture_text(fixture_format("%s/s2.safetensors", folder), "old");
    fixture_text(fixture_format("%s/s3.safetensors", folder), "not named");
    published_over(folder, "s2.safetensors", PUBLISHED_INDEX);
    CHECK(!published_has(folder, "s1.safetensors"));
    published_check(folder, "s3.safetensors", "not named");

    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_INDEX),
                 PUBLISHED_MAP("s2.safetensors", "sub/s4.safetensors"));
    fixture_text(fixture_format("%s/sub/s4.safetensors", folder), "nested");
    published_over(folder, "model.safetensors", "model.safetensors");
    CHECK(!published_has(folder, PUBLISHED_INDEX));
    CHECK(!published_has(folder, "s2.safetensors"));
    CHECK(!published_has(folder, "sub"));

    published_over(folder, "s1.safetensors", PUBLISHED_INDEX);
    CHECK(!published_has(folder, "model.safetensors"));

    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_INDEX), "no index");
    published_over(folder, "s5.safetensors", PUBLISHED_INDEX);
    published_check(folder, "s1.safetensors", "new"); /* nobody knows whose it is */
}

int
main(int argc, char **argv)
{
    /* Renames that replace wait for the disk on some file systems. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &published_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_resumes);
    T_RUN(test_resumes_what_is_left);
    T_RUN(test_another_job);
    T_RUN(test_another_source);
    T_RUN(test_broken_journal);
    T_RUN(test_output_beside_a_journal);
    T_RUN(test_takes_over);
    T_RUN(test_stale_shards);
    berth_context_destroy(published_context);
    T_MAIN_END;
}
