/* SPDX-License-Identifier: Apache-2.0 */
/* test_writer_publish.c - sets of files that take the place of others. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/writer.h"
#include "tests/fixture.h"
#include "tests/published.h"
#include "tests/t.h"
#include "tests/writer_calls.h"
#include "tests/written.h"

static bool
was_flushed(const char *folder)
{
    struct stat state;
    bool was = false;

    CHECK_EQ(stat(folder, &state), 0);
    for (uint32_t i = 0; i < 16 && i < forced.flushed_count; i++)
        was = was || forced.flushed[i] == state.st_ino;
    return was;
}

/* ---------------------------------------------------------------- publishing */

static void
test_publish_refuses(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer_file *file;
    berthi_writer *writer;
    berth_error error;

    T_REQUIRE(published_open(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "a", &error), BERTH_EINVAL);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_create(writer, "b", 1, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "a", &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "not finished");
    berthi_writer_drop(writer, file);
    CHECK_EQ(berthi_writer_publish(writer, "b", &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "no file of the output");
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(written_text(writer, "c", "1", NULL), BERTH_OK);
    /* Somebody else puts a file there: not one of ours gets its name. */
    fixture_text(fixture_format("%s/c", folder), "theirs");
    CHECK_EQ(berthi_writer_publish(writer, "c", &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(error.file, fixture_format("%s/c", folder));
    CHECK(!published_has(folder, "a"));
    CHECK(!berthi_writer_is_complete(writer));
    fixture_remove(fixture_format("%s/c", folder));
    forced.has_no_noreplace = true;
    CHECK_EQ(berthi_writer_publish(writer, "c", &error), BERTH_OK);
    forced.has_no_noreplace = false;
    berthi_writer_close(writer);
    published_check(folder, "c", "1");
}

/* What cannot be replaced or removed is found before anything is. */
static void
test_publish_finds_a_folder(void)
{
    static const char *const names[] = { PUBLISHED_INDEX, "model.safetensors", "a" };

    for (size_t i = 0; i < 3; i++) {
        const char *const folder = fixture_folder();
        berthi_writer *writer;
        berth_error error;

        fixture_text(fixture_format("%s/%s", folder, names[i == 0]), "old");
        T_REQUIRE(published_open(folder, "job", true, false, &writer, NULL) == BERTH_OK);
        CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
        fixture_make_folder(fixture_format("%s/%s", folder, names[i]));
        CHECK_EQ(berthi_writer_publish(writer, "a", &error), BERTH_ENOENT);
        CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
        CHECK_EQ(strncmp(error.file, folder, strlen(folder)), 0);
        CHECK(!berthi_writer_is_complete(writer));
        berthi_writer_close(writer);
        published_check(folder, names[i == 0], "old");
    }
}

/* Of stale shards in folders: nothing behind a link, and no folder that is in use. */
static void
test_stale_folders(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();

    fixture_text(fixture_format("%s/x.safetensors", other), "theirs");
    fixture_link(other, fixture_format("%s/away", folder));
    fixture_text(fixture_format("%s/a/b/y.safetensors", folder), "old");
    fixture_text(fixture_format("%s/a/readme", folder), "kept");
    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_INDEX),
                 PUBLISHED_MAP("away/x.safetensors", "a/b/y.safetensors"));
    published_over(folder, "s.safetensors", PUBLISHED_INDEX);
    published_check(other, "x.safetensors", "theirs");
    CHECK(published_has(folder, "away"));
    CHECK(!published_has(folder, "a/b"));
    published_check(folder, "a/readme", "kept");
}

/* ------------------------------------------------------------------- folders */

/* Made when their files get their names, or used as they are. */
static void
test_folders(void)
{
    const char *const folder = fixture_folder();
    const char *const old = fixture_format("%s/a/b/old.txt", folder);
    struct stat state;
    berthi_writer *writer;
    char bytes[8] = "";

    fixture_text(old, "old");
    CHECK_EQ(chmod(old, 0604), 0);
    fixture_text(fixture_format("%s/a/theirs", folder), "theirs");
    T_REQUIRE(published_open(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a/b/old.txt", "new", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "c/d/e/new.txt", "deep", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "model.safetensors", "m", NULL), BERTH_OK);
    CHECK(!published_has(folder, "c"));
    published_check(folder, "a/b/old.txt", "old");
    CHECK(strchr(berthi_writer_find(writer, "c/d/e/new.txt")->temporary, '/') == NULL);
    berthi_writer_close(writer);

    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "c/d/e/new.txt", NULL), BERTH_EINVAL);
    forced.flushed_count = 0;
    CHECK_EQ(berthi_writer_publish(writer, "model.safetensors", NULL), BERTH_OK);
    CHECK(was_flushed(folder) && was_flushed(fixture_format("%s/c", folder)));
    CHECK(was_flushed(fixture_format("%s/c/d", folder)));
    CHECK(was_flushed(fixture_format("%s/c/d/e", folder)));
    CHECK(was_flushed(fixture_format("%s/a/b", folder)));
    CHECK_EQ(berthi_writer_read(writer, berthi_writer_find(writer, "c/d/e/new.txt"), bytes,
                                4, 0, NULL), BERTH_OK);
    CHECK_STR(bytes, "deep");
    berthi_writer_close(writer);
    published_check(folder, "a/b/old.txt", "new");
    CHECK_EQ(stat(old, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0604);
    published_check(folder, "a/theirs", "theirs");
    published_check(folder, "c/d/e/new.txt", "deep");
}

/* Nothing is written through a link, nor where a file stands. */
static void
test_folders_in_the_way(void)
{
    const char *const other = fixture_folder();

    for (int is_link = 0; is_link < 2; is_link++) {
        const char *const folder = fixture_folder();
        const char *const place = fixture_format("%s/a", folder);
        berthi_writer_file *file;
        berthi_writer *writer;
        berth_error error;

        T_REQUIRE(published_open(folder, "job", true, false, &writer, NULL) == BERTH_OK);
        CHECK_EQ(written_text(writer, "a/x.txt", "x", NULL), BERTH_OK);
        CHECK_EQ(written_text(writer, "z", "z", NULL), BERTH_OK);
        if (is_link)
            fixture_link(other, place);
        else
            fixture_text(place, "file");
        CHECK_EQ(berthi_writer_create(writer, "a/y.txt", 1, &file, &error), BERTH_ENOENT);
        CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
        CHECK_EQ(berthi_writer_publish(writer, "z", &error), BERTH_ENOENT);
        CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
        CHECK_STR(error.file, fixture_format("%s/a/x.txt", folder));
        CHECK_STR(error.message, "lies in something that is no directory");
        CHECK(!berthi_writer_is_complete(writer));
        CHECK_EQ(unlink(place), 0);
        CHECK_EQ(berthi_writer_publish(writer, "z", &error), BERTH_OK);
        berthi_writer_close(writer);
        published_check(folder, "a/x.txt", "x");
        CHECK(!published_has(other, "x.txt"));
    }
}

/* Put in the way while publishing: found again by the run that goes on. */
static void
test_folders_in_the_way_late(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();
    berthi_writer *writer;
    berth_error error;

    T_REQUIRE(published_open(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "b/x.txt", "x", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "z", "z", NULL), BERTH_OK);
    forced.rename_refuses = "a";
    CHECK_EQ(berthi_writer_publish(writer, "z", &error), BERTH_ENOENT);
    forced.rename_refuses = NULL;
    berthi_writer_close(writer);
    fixture_link(other, fixture_format("%s/b", folder));
    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    berthi_writer_close(writer);
    CHECK(!published_has(other, "x.txt"));
    CHECK(!published_has(folder, "z"));
    CHECK_EQ(unlink(fixture_format("%s/b", folder)), 0);
    /* A file there: what should be in it is in none, and not yet published. */
    fixture_text(fixture_format("%s/b", folder), "file");
    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_ENOENT);
    berthi_writer_close(writer);
    fixture_remove(fixture_format("%s/b", folder));
    T_REQUIRE(published_open(folder, "job", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_OK);
    berthi_writer_close(writer);
    published_check(folder, "b/x.txt", "x");
}

/*
 * Broken off among the renames: what has its name keeps it, even one that looks
 * like an old commit point, and the next run needs nothing but to go on.
 */
static void
test_interrupted_publishing(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;
    berth_error error;

    fixture_text(fixture_format("%s/model.safetensors", folder), "old");
    T_REQUIRE(published_open(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "model.safetensors", "new", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "z.json", "{}", NULL), BERTH_OK);
    forced.rename_refuses = "z.json";
    CHECK_EQ(berthi_writer_publish(writer, "z.json", &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_STR(error.file, fixture_format("%s/z.json", folder));
    forced.rename_refuses = NULL;
    CHECK(berthi_writer_is_complete(writer));
    berthi_writer_close(writer);
    published_check(folder, "model.safetensors", "new");

    CHECK_EQ(published_open(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_is_complete(writer));
    CHECK(berthi_writer_find(writer, "model.safetensors")->is_finished);
    CHECK_EQ(berthi_writer_publish(writer, NULL, NULL), BERTH_OK);
    berthi_writer_close(writer);
    published_check(folder, "model.safetensors", "new");
    published_check(folder, "z.json", "{}");
    CHECK(!published_has(folder, PUBLISHED_JOURNAL));
}

/* An old index or the journal that cannot be removed: told, and done the next time. */
static void
test_publish_cannot_remove(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;
    berth_error error;

    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_INDEX), "old");
    T_REQUIRE(published_open(folder, "job", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, PUBLISHED_INDEX, "new", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    forced.unlink_refuses = PUBLISHED_INDEX;
    CHECK_EQ(berthi_writer_publish(writer, PUBLISHED_INDEX, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_CONTAINS(error.message, "removing the old index");
    published_check(folder, PUBLISHED_INDEX, "old");
    CHECK(!published_has(folder, "a"));
    forced.unlink_refuses = PUBLISHED_JOURNAL;
    CHECK_EQ(berthi_writer_publish(writer, NULL, &error), BERTH_ENOENT);
    CHECK_CONTAINS(error.message, "removing the journal");
    forced.unlink_refuses = NULL;
    berthi_writer_close(writer);
    published_check(folder, PUBLISHED_INDEX, "new");
    CHECK_EQ(published_open(folder, "job", false, true, &writer, NULL), BERTH_OK);
    CHECK(berthi_writer_is_complete(writer));
    CHECK_EQ(berthi_writer_publish(writer, NULL, NULL), BERTH_OK);
    berthi_writer_close(writer);
    published_check(folder, PUBLISHED_INDEX, "new");
    CHECK(!published_has(folder, PUBLISHED_JOURNAL));
}

/* Begun anew after that, shards which have their names are in nobody's way. */
static void
test_anew_after_publishing(void)
{
    const char *const folder = fixture_folder();
    const char *lost;
    berthi_writer *writer;

    T_REQUIRE(published_open(folder, "job", false, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "a/b/c.txt", "c", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "s1.safetensors", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "t.json", "{}", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "u.json", "{}", NULL), BERTH_OK);
    forced.rename_refuses = "u.json";
    CHECK_EQ(berthi_writer_publish(writer, "u.json", NULL), BERTH_ENOENT);
    forced.rename_refuses = NULL;
    lost = published_temporary(writer, folder, "u.json");
    berthi_writer_close(writer);
    CHECK(published_has(folder, "s1.safetensors"));
    CHECK_EQ(unlink(fixture_format("%s/a/b/c.txt", folder)), 0); /* not there yet */

    CHECK_EQ(published_open(folder, "other", true, false, &writer, NULL), BERTH_OK);
    CHECK(!published_has(folder, "a"));
    berthi_writer_close(writer); /* nothing done: the journal is not its own */
    CHECK(published_has(folder, PUBLISHED_JOURNAL));
    CHECK_EQ(access(lost, F_OK), -1);
    published_refuse(folder, false, true, BERTH_REASON_JOURNAL, "has been lost");
    /* Both the journal and an index name it; the new journal names it once. */
    fixture_text(fixture_format("%s/%s", folder, PUBLISHED_INDEX),
                 PUBLISHED_MAP("s1.safetensors", "s3.safetensors"));
    fixture_text(fixture_format("%s/s3.safetensors", folder), "old");
    T_REQUIRE(published_open(folder, "other", true, false, &writer, NULL) == BERTH_OK);
    CHECK_EQ(written_text(writer, "s2.safetensors", "2", NULL), BERTH_OK);
    forced.rename_refuses = "s2.safetensors";
    CHECK_EQ(berthi_writer_publish(writer, "s2.safetensors", NULL), BERTH_ENOENT);
    forced.rename_refuses = NULL;
    berthi_writer_close(writer);
    CHECK(published_has(folder, "s1.safetensors"));
    T_REQUIRE(published_open(folder, "other", false, true, &writer, NULL) == BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, NULL, NULL), BERTH_OK);
    berthi_writer_close(writer);
    CHECK(!published_has(folder, "s1.safetensors"));
    CHECK(!published_has(folder, "s3.safetensors"));
    published_check(folder, "s2.safetensors", "2");
    published_check(folder, "t.json", "{}");
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
    T_RUN(test_publish_refuses);
    T_RUN(test_publish_finds_a_folder);
    T_RUN(test_stale_folders);
    T_RUN(test_folders);
    T_RUN(test_folders_in_the_way);
    T_RUN(test_folders_in_the_way_late);
    T_RUN(test_interrupted_publishing);
    T_RUN(test_publish_cannot_remove);
    T_RUN(test_anew_after_publishing);
    berth_context_destroy(published_context);
    T_MAIN_END;
}
