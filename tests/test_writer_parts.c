/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_writer_parts.c - what the processes of one set share: names, locks, files and
 * records; who may begin, go on, or join.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "loader/writer_parts.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define JOB "job\n"
#define JOURNAL ".berth-journal.json"

static berth_context *context;
static berth_error error;

/* These stand before the C library's: what no test can bring about, and no waiting. */
static struct {
    int lock_error;    /* of each flock                                  */
    bool closes_input; /* the next flock closes descriptor 0             */
    int reserve_error; /* of each fallocate                              */
    int flush_error;   /* of the next fsync of a file                    */
    int flushed_files;
    int flushed_folders;
    uint32_t sleeps;
    uint32_t release_at; /* the sleep after which `held` is closed       */
    int held;
} world;

int
flock(int fd, int operation)
{
    if (world.closes_input) {
        world.closes_input = false;
        close(0);
    }
    if (world.lock_error != 0) {
        errno = world.lock_error;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (world.reserve_error != 0) {
        errno = world.reserve_error;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int
fsync(int fd)
{
    struct stat state;

    if (fstat(fd, &state) != 0)
        return -1;
    world.flushed_files += S_ISREG(state.st_mode);
    world.flushed_folders += S_ISDIR(state.st_mode);
    if (world.flush_error != 0 && S_ISREG(state.st_mode)) {
        errno = world.flush_error;
        world.flush_error = 0;
        return -1;
    }
    return 0;
}

/* What succeeds may leave anything in errno. */
int
unlinkat(int folder, const char *name, int flags)
{
    const int result = (int)syscall(SYS_unlinkat, folder, name, flags);

    if (result == 0)
        errno = EXDEV;
    return result;
}

int
nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    CHECK_EQ(time->tv_sec, 0);
    if (++world.sleeps == world.release_at)
        close(world.held);
    return 0;
}

/* ---------------------------------------------------------------------- helpers */

typedef struct way {
    const char *job;
    uint32_t count;
    uint32_t part; /* 0: the join, or all where `count` is 0, too */
    bool overwrite;
    bool resume;
} way;

static berth_status
open_in(berth_context *with, const char *folder, way w, berthi_writer **out,
        berth_error *details)
{
    const berthi_writer_options options = { .job = w.job != NULL ? w.job : JOB,
                                            .part_count = w.count,
                                            .part = w.part,
                                            .overwrite = w.overwrite,
                                            .resume = w.resume };
    const berth_status status =
        berthi_writer_open(with, folder, &options, out, details);

    CHECK_EQ(*out != NULL, status == BERTH_OK);
    return status;
}

static berthi_writer *
open_way(const char *folder, way w)
{
    berthi_writer *writer;

    if (!CHECK_EQ(open_in(context, folder, w, &writer, &error), BERTH_OK)) {
        T_NOTE("%s", error.message);
        exit(1);
    }
    return writer;
}

static void
refuse(const char *folder, way w, berth_reason reason, const char *message)
{
    const int fds = fixture_open_fds();
    berthi_writer *writer;

    CHECK_EQ(open_in(context, folder, w, &writer, &error),
             berthi_reason_status((int32_t)reason));
    CHECK_EQ(error.reason, reason);
    CHECK_CONTAINS(error.message, message);
    CHECK_EQ(fixture_open_fds(), fds);
}

/* What this job's files in the folder are called: with what before their ends. */
static const char *
name_of(const char *folder, const char *job, uint32_t count, const char *end)
{
    const char *const text = fixture_format("%u", count);
    uint32_t crc = berthi_digest_crc32(0, job, strlen(job));

    crc = berthi_digest_crc32(crc, text, strlen(text));
    return fixture_format("%s/.berth-part-%08" PRIx32 "-%s", folder, crc, end);
}

static bool
is_there(const char *path)
{
    struct stat state;

    return lstat(path, &state) == 0;
}

/* A part's share of a file of 8 bytes: the 4 that are its own; finished, with a note. */
static void
write_share(berthi_writer *writer, uint32_t part)
{
    const uint32_t note = 70 + part;
    berthi_writer_file *file;

    CHECK_EQ(berthi_writer_share(writer, "m", 8, &file, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_write(writer, file, part == 1 ? "abcd" : "efgh", 4,
                                 part == 1 ? 0 : 4, &error),
             BERTH_OK);
    CHECK_EQ(berthi_writer_finish(writer, file, 8, &note, 1, &error), BERTH_OK);
}

static void
run_part(const char *folder, uint32_t part, bool resume)
{
    berthi_writer *const writer =
        open_way(folder, (way){ .count = 2, .part = part, .resume = resume });

    write_share(writer, part);
    berthi_writer_close(writer);
}

/* ------------------------------------------------------------------------ names */

static void
test_names(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    char *text;

    run_part(folder, 1, false);
    CHECK(is_there(name_of(folder, JOB, 2, "00001-of-00002.json")));
    CHECK(is_there(name_of(folder, JOB, 2, "00001-of-00002.json.lock")));
    CHECK_EQ(fixture_size(name_of(folder, JOB, 2, "m")), 8);
    text = fixture_read(name_of(folder, JOB, 2, "00001-of-00002.json"), NULL);
    CHECK_CONTAINS(text, "\"job\": \"job\\npart 1 of 2\\n\"");
    CHECK_CONTAINS(text, "\"notes\": [71]");
    free(text);
}

static uint32_t
found_in(const char *folder, const char *job)
{
    uint32_t count = 99;

    CHECK_EQ(berthi_writer_find_parts(folder, job, &count, &error), BERTH_OK);
    return count;
}

static void
test_find_parts(void)
{
    const char *const folder = fixture_folder();
    const char *const file = fixture_format("%s/file", folder);
    uint32_t count;
    pid_t child;
    int how = -1;

    CHECK_EQ(found_in(folder, JOB), 0);
    CHECK_EQ(found_in(fixture_format("%s/none", folder), JOB), 0);
    fixture_text(file, "x");
    CHECK_EQ(berthi_writer_find_parts(file, JOB, &count, &error), BERTH_ENOENT);
    CHECK_CONTAINS(error.message, "opening the folder");
    CHECK_STR(error.file, file);
    /* None of these is the record of a part of this job. */
    fixture_text(name_of(folder, "other\n", 4, "00001-of-00004.json"), "");
    fixture_text(name_of(folder, JOB, 4, "00001-of-00005.json"), "");
    fixture_text(name_of(folder, JOB, 4, "00001-of-00004.json.lock"), "");
    fixture_text(name_of(folder, JOB, 4, "table"), "");
    fixture_text(name_of(folder, JOB, 99990, "00001-of-99999999990.json"), "");
    fixture_text(fixture_format("%s/a-of-00004.json", folder), "");
    CHECK_EQ(found_in(folder, JOB), 0);
    fixture_text(name_of(folder, JOB, 10000, "00007-of-10000.json"), "");
    CHECK_EQ(found_in(folder, JOB), 10000);
    CHECK_EQ(found_in(folder, "other\n"), 4);
    child = fork(); /* without a standard input */
    if (child == 0) {
        close(0);
        errno = ENOENT;
        _exit(berthi_writer_find_parts(folder, JOB, &count, &error) == BERTH_OK
                      && count == 10000 && open("/dev/null", O_RDONLY) == 0
                  ? 0
                  : 1);
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK_EQ(how, 0);
    for (uint64_t nth = 0; nth < 2; nth++) {
        const int fds = fixture_open_fds();

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK_NE(berthi_writer_find_parts(folder, JOB, &count, &error), BERTH_OK);
        berthi_fault_disarm();
        CHECK_EQ(count, 0);
        CHECK_CONTAINS(error.message, nth == 0 ? "opening the folder" : "listing");
        CHECK_EQ(fixture_open_fds(), fds);
    }
}

/* ------------------------------------------------------------------------ locks */

static void
test_one_process_a_part(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const first = open_way(folder, (way){ .count = 2, .part = 1 });
    berthi_writer *second;

    memset(&world, 0, sizeof world);
    refuse(folder, (way){ .count = 2, .part = 1 }, BERTH_REASON_BUSY,
           "another process is part 1 of 2");
    CHECK_EQ(world.sleeps, 99);
    refuse(folder, (way){ .count = 2 }, BERTH_REASON_BUSY,
           "another process is writing to it");
    refuse(folder, (way){ .count = 0 }, BERTH_REASON_BUSY,
           "another process is writing to it");
    second = open_way(folder, (way){ .count = 2, .part = 2 });
    berthi_writer_close(second);
    /* Where locks mean nothing everybody comes in. */
    world.lock_error = ENOLCK;
    world.sleeps = 0;
    second = open_way(folder, (way){ .count = 2, .part = 1 });
    world.lock_error = 0;
    CHECK_EQ(world.sleeps, 0);
    CHECK(!berthi_writer_let_go(second));
    berthi_writer_close(second);
    /* Who has let go is no hindrance for who joins, but is still that part. */
    CHECK(berthi_writer_let_go(first));
    second = open_way(folder, (way){ .count = 2 });
    refuse(folder, (way){ .count = 2, .part = 2 }, BERTH_REASON_BUSY, "writing to it");
    berthi_writer_close(second);
    refuse(folder, (way){ .count = 2, .part = 1 }, BERTH_REASON_BUSY, "is part 1 of 2");
    berthi_writer_close(first);
}

/* Who looks whether a part is there has its lock for a moment. */
static void
test_lock_comes_free(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());

    for (uint32_t at = 1; at <= 99; at += 49) {
        berthi_writer *writer = open_way(folder, (way){ .count = 2, .part = 1 });

        berthi_writer_close(writer);
        memset(&world, 0, sizeof world);
        world.held =
            open(name_of(folder, JOB, 2, "00001-of-00002.json.lock"), O_RDONLY | O_CLOEXEC);
        T_REQUIRE(world.held >= 0 && syscall(SYS_flock, world.held, LOCK_SH) == 0);
        world.release_at = at;
        writer = open_way(folder, (way){ .count = 2, .part = 1 });
        CHECK_EQ(world.sleeps, at);
        berthi_writer_close(writer);
    }
    memset(&world, 0, sizeof world);
}

/* An input that another thread closes meanwhile leaves descriptor 0 to the lock. */
static void
test_lock_is_descriptor_zero(void)
{
    const char *const folder = fixture_folder();
    const pid_t child = fork();
    int how = -1;

    T_REQUIRE(child >= 0);
    if (child == 0) {
        berthi_writer *writer;
        int fds;

        if (fcntl(0, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != 0)
            _exit(77);
        fds = fixture_open_fds();
        world.closes_input = true;
        writer = open_way(folder, (way){ .count = 2, .part = 1 });
        if (fcntl(0, F_GETFD) < 0)
            _exit(1);
        berthi_writer_close(writer);
        _exit(fixture_open_fds() == fds - 1 ? 0 : 2);
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK_EQ(how, 0);
}

/* ----------------------------------------------------------------- shared files */

static void
test_share(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const path = name_of(folder, JOB, 2, "m");
    berthi_writer *const a = open_way(folder, (way){ .count = 2, .part = 1 });
    berthi_writer *const b = open_way(folder, (way){ .count = 2, .part = 2 });
    berthi_writer_file *file;
    berthi_writer_file *other;
    bool has;

    memset(&world, 0, sizeof world);
    CHECK_EQ(berthi_writer_has_shared(a, "m", 8, &has, &error), BERTH_OK);
    CHECK(!has);
    for (int can_reserve = 0; can_reserve < 2; can_reserve++) {
        world.reserve_error = can_reserve ? 0 : EOPNOTSUPP;
        CHECK_EQ(berthi_writer_share(a, "m", 8, &file, &error), BERTH_OK);
        CHECK_EQ(fixture_size(path), 8);
        CHECK_EQ(file->bytes, 8);
        CHECK_STR(file->name, "m");
        CHECK_EQ(berthi_writer_write(a, file, "ab", 2, 6, &error), BERTH_OK);
        CHECK_EQ(berthi_writer_write(a, file, "ab", 2, 7, &error), BERTH_EINTERNAL);
        CHECK_EQ(berthi_writer_share(b, "m", 8, &other, &error), BERTH_OK);
        CHECK_EQ(berthi_writer_write(b, other, "cd", 2, 0, &error), BERTH_OK);
        CHECK_EQ(berthi_writer_release(a, file, &error), BERTH_OK);
        berthi_writer_drop(b, other);
        CHECK_EQ(fixture_size(path), 8); /* it stays */
        CHECK_EQ(world.flushed_files, 1);
        CHECK_EQ(berthi_writer_has_shared(b, "m", 8, &has, &error), BERTH_OK);
        CHECK(has);
        CHECK_EQ(berthi_writer_has_shared(b, "m", 9, &has, &error), BERTH_OK);
        CHECK(!has);
        CHECK_EQ(unlink(path), 0);
        memset(&world, 0, sizeof world);
    }
    /* What has been begun is made longer, and never shorter. */
    fixture_text(path, "12345");
    CHECK_EQ(berthi_writer_share(a, "m", 8, &file, &error), BERTH_OK);
    CHECK_EQ(fixture_size(path), 8);
    berthi_writer_drop(a, file);
    CHECK_EQ(berthi_writer_share(a, "m", 7, &file, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_JOURNAL);
    CHECK_CONTAINS(error.message, "is longer than this command makes it");
    CHECK(file == NULL);
    CHECK_EQ(fixture_size(path), 8);
    berthi_writer_close(a);
    berthi_writer_close(b);
}

static void
test_cannot_share(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer = open_way(folder, (way){ .count = 2, .part = 1 });
    const int fds = fixture_open_fds();
    berthi_writer_file *file;

    memset(&world, 0, sizeof world);
    CHECK_EQ(berthi_writer_share(writer, "a/m", 8, &file, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "cannot share");
    CHECK_STR(error.file, folder);
    CHECK(file == NULL);
    CHECK_EQ(berthi_writer_share(writer, "", 8, &file, &error), BERTH_EINTERNAL);
    CHECK_EQ(mkfifo(name_of(folder, JOB, 2, "pipe"), 0600), 0);
    CHECK_EQ(berthi_writer_share(writer, "pipe", 8, &file, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    CHECK_CONTAINS(error.message, "is no regular file");
    CHECK_EQ(unlink(name_of(folder, JOB, 2, "pipe")), 0);
    fixture_make_folder(name_of(folder, JOB, 2, "folder"));
    CHECK_NE(berthi_writer_share(writer, "folder", 8, &file, &error), BERTH_OK);
    CHECK_CONTAINS(error.message, "opening its shared file");
    CHECK_EQ(rmdir(name_of(folder, JOB, 2, "folder")), 0);
    world.reserve_error = ENOSPC;
    CHECK_EQ(berthi_writer_share(writer, "m", 8, &file, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK(file == NULL);
    world.reserve_error = 0;
    CHECK_EQ(fixture_open_fds(), fds);
    berthi_writer_close(writer);
    /* Without parts there is nothing to share. */
    writer = open_way(folder, (way){ .overwrite = true });
    CHECK_EQ(berthi_writer_share(writer, "m", 8, &file, &error), BERTH_EINTERNAL);
    berthi_writer_close(writer);
}

/* What was not written, or not flushed, is not let go of as if it were. */
static void
test_release_fails(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *const writer = open_way(folder, (way){ .count = 2, .part = 1 });
    const int fds = fixture_open_fds();
    berthi_writer_file *file;

    memset(&world, 0, sizeof world);
    CHECK_EQ(berthi_writer_share(writer, "m", 8, &file, &error), BERTH_OK);
    world.flush_error = EIO;
    CHECK_EQ(berthi_writer_release(writer, file, &error), BERTH_EIO);
    CHECK_STR(error.message, "flushing failed");
    CHECK_EQ(berthi_writer_share(writer, "m", 8, &file, &error), BERTH_OK);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_NE(berthi_writer_write(writer, file, "a", 1, 0, &error), BERTH_OK);
    berthi_fault_disarm();
    CHECK_EQ(berthi_writer_release(writer, file, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "something of it could not be written before");
    CHECK_EQ(fixture_open_fds(), fds);
    berthi_writer_close(writer);
}

/* ---------------------------------------------------------------------- records */

static void
test_records(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const journal = name_of(folder, JOB, 2, "00001-of-00002.json");
    berthi_writer *writer = open_way(folder, (way){ .count = 2, .part = 1 });
    berthi_writer_part part;

    memset(&world, 0, sizeof world);
    CHECK_EQ(berthi_writer_read_part(writer, 1, &part, &error), BERTH_OK);
    CHECK(!part.is_there);
    CHECK_EQ(part.file_count, 0);
    berthi_writer_close(writer);
    CHECK(!is_there(journal)); /* nothing was done */
    writer = open_way(folder, (way){ .count = 2, .part = 1 });
    CHECK_EQ(berthi_writer_record(writer, &error), BERTH_OK);
    berthi_writer_close(writer);
    CHECK(is_there(journal));
    writer = open_way(folder, (way){ .count = 2, .part = 2 });
    CHECK_EQ(berthi_writer_read_part(writer, 1, &part, &error), BERTH_OK);
    CHECK(part.is_there);
    CHECK_EQ(part.file_count, 0);
    world.flushed_files = 0;
    world.flushed_folders = 0;
    write_share(writer, 2);
    CHECK_GE(world.flushed_files, 2);   /* the shared file and the journal */
    CHECK_GE(world.flushed_folders, 2); /* the file's name, then the journal's */
    CHECK_EQ(berthi_writer_read_part(writer, 2, &part, &error), BERTH_OK);
    CHECK(part.is_there);
    CHECK_EQ(part.file_count, 1);
    CHECK_STR(part.files[0].name, "m");
    CHECK_EQ(part.files[0].bytes, 8);
    CHECK_EQ(part.files[0].note_count, 1);
    CHECK_EQ(part.files[0].notes[0], 72);
    fixture_copy(name_of(folder, JOB, 2, "00002-of-00002.json"), journal);
    CHECK_EQ(berthi_writer_read_part(writer, 1, &part, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_JOURNAL);
    CHECK_CONTAINS(error.message, "is of another job than its name says");
    CHECK_STR(error.file, journal);
    CHECK(!part.is_there);
    fixture_text(journal, "{");
    CHECK_EQ(berthi_writer_read_part(writer, 1, &part, &error), BERTH_EFORMAT);
    CHECK_EQ(berthi_writer_read_part(writer, 1, &part, NULL), BERTH_EFORMAT);
    berthi_writer_close(writer);
}

/* ---------------------------------------------------------- who may begin, go on */

static void
test_who_may_begin(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer *writer;

    memset(&world, 0, sizeof world);
    run_part(folder, 1, false);
    refuse(folder, (way){ .count = 2, .part = 1 }, BERTH_REASON_EXISTS,
           "this part has been begun before: --resume goes on with it, --force begins it "
           "anew");
    refuse(folder, (way){ .count = 3, .part = 1 }, BERTH_REASON_EXISTS,
           "holds parts that another command has made: --force begins anew");
    refuse(folder, (way){ .count = 2, .part = 2, .job = "another\n" }, BERTH_REASON_EXISTS,
           "holds parts that another command has made");
    refuse(folder, (way){ .count = 0 }, BERTH_REASON_EXISTS,
           "holds parts of a model: --join puts them together, --force begins anew");
    writer = open_way(folder, (way){ .count = 2, .part = 1, .resume = true });
    CHECK(berthi_writer_find(writer, "m")->is_finished);
    CHECK(berthi_writer_find(writer, "m")->is_shared);
    CHECK(!berthi_writer_is_joining(writer));
    berthi_writer_close(writer);
    writer = open_way(folder, (way){ .count = 2, .part = 1, .overwrite = true });
    CHECK(berthi_writer_find(writer, "m") == NULL);
    CHECK(!is_there(name_of(folder, JOB, 2, "00001-of-00002.json")));
    CHECK_EQ(fixture_size(name_of(folder, JOB, 2, "m")), 8); /* others write there, too */
    berthi_writer_close(writer);
    fixture_text(fixture_format("%s/notes.txt", folder), "mine");
    refuse(folder, (way){ .count = 2, .part = 1 }, BERTH_REASON_EXISTS, "not empty");
    writer = open_way(folder, (way){ .count = 0, .overwrite = true });
    CHECK(!is_there(name_of(folder, JOB, 2, "m"))); /* all parts are gone */
    berthi_writer_close(writer);
}

/* A lock alone is nothing that anybody has made. */
static void
test_locks_are_nothing(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer;

    fixture_text(name_of(folder, "other\n", 2, "00001-of-00002.json.lock"), "");
    writer = open_way(folder, (way){ .count = 2, .part = 1 });
    berthi_writer_close(writer);
    writer = open_way(folder, (way){ .count = 0 });
    berthi_writer_close(writer);
    fixture_text(name_of(folder, "other\n", 2, "table"), "");
    refuse(folder, (way){ .count = 2, .part = 1 }, BERTH_REASON_EXISTS, "another command");
}

/* ---------------------------------------------------------------------- joining */

static void
check_content(const char *path, const char *expected)
{
    char *const text = fixture_read(path, NULL);

    CHECK_STR(text, expected);
    free(text);
}

static void
test_join(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const others = name_of(folder, "other\n", 2, "table");
    berthi_writer_file *file;
    berthi_writer *writer;
    char bytes[9] = "";

    memset(&world, 0, sizeof world);
    run_part(folder, 1, false);
    run_part(folder, 2, false);
    fixture_text(others, "");
    writer = open_way(folder, (way){ .count = 2, .overwrite = true });
    CHECK_EQ(berthi_writer_take(writer, "m", 8, &file, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_read(writer, file, bytes, 8, 0, &error), BERTH_OK);
    CHECK_STR(bytes, "abcdefgh");
    CHECK_EQ(berthi_writer_write(writer, file, "H", 1, 0, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_finish(writer, file, 6, NULL, 0, &error), BERTH_OK);
    berthi_writer_close(writer);
    /* Broken off here: parts go on with the join, and nobody else begins. */
    refuse(folder, (way){ .count = 2, .part = 1 }, BERTH_REASON_EXISTS,
           "holds an interrupted run: --join goes on where parts were put together, "
           "--force begins anew");
    writer = open_way(folder, (way){ .count = 2, .part = 1, .resume = true });
    CHECK(berthi_writer_is_joining(writer));
    berthi_writer_close(writer);
    writer = open_way(folder, (way){ .count = 2 });
    CHECK(berthi_writer_find(writer, "m")->is_finished);
    CHECK_EQ(berthi_writer_find(writer, "m")->bytes, 6);
    /* More than are looked for at a time; those of others stay, unless asked for. */
    for (int i = 0; i < 150; i++)
        fixture_text(name_of(folder, JOB, 2, fixture_format("left-%d", i)), "");
    CHECK_EQ(berthi_writer_publish(writer, "m", &error), BERTH_OK);
    berthi_writer_close(writer);
    check_content(fixture_format("%s/m", folder), "Hbcdef");
    CHECK(!is_there(name_of(folder, JOB, 2, "left-0")));
    CHECK(!is_there(name_of(folder, JOB, 2, "left-149")));
    CHECK(!is_there(name_of(folder, JOB, 2, "00001-of-00002.json")));
    CHECK(!is_there(name_of(folder, JOB, 2, "00002-of-00002.json.lock")));
    CHECK(!is_there(fixture_format("%s/" JOURNAL, folder)));
    CHECK(!is_there(others)); /* the journal said --force */
}

/* Without --force what other commands have left is nobody's to remove. */
static void
test_join_leaves_others(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const others = name_of(folder, "other\n", 2, "table");
    berthi_writer_file *file;
    berthi_writer *writer;

    memset(&world, 0, sizeof world);
    run_part(folder, 1, false);
    writer = open_way(folder, (way){ .count = 2 });
    CHECK_EQ(berthi_writer_take(writer, "m", 8, &file, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_finish(writer, file, 8, NULL, 0, &error), BERTH_OK);
    fixture_text(others, "");
    CHECK_EQ(berthi_writer_publish(writer, "m", &error), BERTH_OK);
    berthi_writer_close(writer);
    CHECK(is_there(others));
    CHECK(!is_there(name_of(folder, JOB, 2, "00001-of-00002.json")));
}

/* A join of another command is begun anew where that is allowed, and no other way. */
static void
test_join_of_another_command(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    berthi_writer_file *file;
    berthi_writer *writer;

    memset(&world, 0, sizeof world);
    run_part(folder, 1, false);
    writer = open_way(folder, (way){ .count = 2 });
    CHECK_EQ(berthi_writer_take(writer, "m", 8, &file, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_finish(writer, file, 8, NULL, 0, &error), BERTH_OK);
    berthi_writer_close(writer);
    refuse(folder, (way){ .count = 3 }, BERTH_REASON_ARGUMENT,
           "there \"joined from 2 parts\", now \"joined from 3 parts\"");
    writer = open_way(folder, (way){ .count = 3, .overwrite = true });
    CHECK(berthi_writer_find(writer, "m") == NULL);
    berthi_writer_close(writer);
    fixture_text(fixture_format("%s/" JOURNAL, folder), "{");
    refuse(folder, (way){ .count = 2 }, BERTH_REASON_JOURNAL, "");
    writer = open_way(folder, (way){ .count = 2, .overwrite = true });
    berthi_writer_close(writer);
}

/* ----------------------------------------------------------------------- faults */

/* A part, with a file that it notes, one that it does not, and a look at the others. */
static berth_status
do_part(const char *folder, berth_context *with, berth_error *details)
{
    berthi_writer_file *file;
    berthi_writer_part part;
    berthi_writer *writer;
    berth_status status =
        open_in(with, folder, (way){ .count = 2, .part = 1, .overwrite = true }, &writer,
                details);

    if (status != BERTH_OK)
        return status;
    status = berthi_writer_share(writer, "n", 8, &file, details);
    if (status == BERTH_OK)
        status = berthi_writer_release(writer, file, details);
    if (status == BERTH_OK)
        status = berthi_writer_share(writer, "m", 8, &file, details);
    if (status == BERTH_OK) {
        status = berthi_writer_finish(writer, file, 8, NULL, 0, details);
        if (status != BERTH_OK)
            berthi_writer_drop(writer, file);
    }
    if (status == BERTH_OK)
        status = berthi_writer_record(writer, details);
    if (status == BERTH_OK)
        status = berthi_writer_read_part(writer, 1, &part, details);
    if (status == BERTH_OK)
        CHECK_EQ(part.file_count, 1);
    berthi_writer_close(writer);
    return status;
}

static berth_status
do_join(const char *folder, berth_context *with, berth_error *details)
{
    berthi_writer_file *file;
    berthi_writer *writer;
    berth_status status =
        open_in(with, folder, (way){ .count = 2, .overwrite = true }, &writer, details);

    if (status != BERTH_OK)
        return status;
    status = berthi_writer_take(writer, "m", 8, &file, details);
    if (status == BERTH_OK) {
        status = berthi_writer_finish(writer, file, 8, NULL, 0, details);
        if (status != BERTH_OK)
            berthi_writer_drop(writer, file);
    }
    if (status == BERTH_OK)
        status = berthi_writer_publish(writer, "m", details);
    berthi_writer_close(writer);
    return status;
}

static berth_status
do_both(void *user, berth_context *with, berth_error *details)
{
    const char *const folder = fixture_format("%s/out", (const char *)user);
    berth_status status;

    fixture_make_folder(folder);
    fixture_text(name_of(folder, JOB, 2, "m"), "before");
    status = do_part(folder, with, details);
    if (status == BERTH_OK)
        status = do_join(folder, with, details);
    berthi_fault_disarm();
    if (status == BERTH_OK)
        CHECK_EQ(fixture_size(fixture_format("%s/m", folder)), 8);
    fixture_remove(folder);
    return status;
}

static void
test_faults(void)
{
    const char *const above = fixture_folder();
    fault_counts counts;

    memset(&world, 0, sizeof world);
    counts = fault_loop("a part and its join", do_both, (void *)(uintptr_t)above);
    CHECK_GE(counts.memory, 25);
    CHECK_GE(counts.system, 150);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_names);
    T_RUN(test_find_parts);
    T_RUN(test_one_process_a_part);
    T_RUN(test_lock_comes_free);
    T_RUN(test_lock_is_descriptor_zero);
    T_RUN(test_share);
    T_RUN(test_cannot_share);
    T_RUN(test_release_fails);
    T_RUN(test_records);
    T_RUN(test_who_may_begin);
    T_RUN(test_locks_are_nothing);
    T_RUN(test_join);
    T_RUN(test_join_leaves_others);
    T_RUN(test_join_of_another_command);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
