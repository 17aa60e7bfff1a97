/* SPDX-License-Identifier: Apache-2.0 */
/* test_output.c - files that appear complete or not at all. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/output.h"
#include "tests/emitted.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/output_calls.h"
#include "tests/t.h"

static berth_context *context;

static void
test_writes(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out.json", folder);
    const mode_t mask = umask(0027);
    struct stat state;
    berth_error error;

    CHECK_EQ(emitted_text(context, path, "hello", false, &error), BERTH_OK);
    umask(mask);
    emitted_check(path, "hello");
    CHECK_EQ(emitted_entries(folder, NULL), 1);
    CHECK_EQ(stat(path, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0640);
}

static void
test_nothing_to_write(void)
{
    const char *const path = fixture_format("%s/empty", fixture_folder());

    CHECK_EQ(emitted_text(context, path, "", false, NULL), BERTH_OK);
    CHECK_EQ(fixture_size(path), 0);
}

/* While it is written only the temporary name is there, with its whole size. */
static void
test_temporary_name(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const char *const start = fixture_format(".out.berth-%d-", (int)getpid());
    char name[256] = "";
    struct stat state;
    berthi_output output;

    T_REQUIRE(berthi_output_open(context, path, 100000, false, &output, NULL)
              == BERTH_OK);
    CHECK_EQ(emitted_entries(folder, name), 1);
    CHECK_EQ(strncmp(name, start, strlen(start)), 0);
    CHECK_EQ(strspn(name + strlen(start), "0123456789abcdef"), 8);
    CHECK_STR(name + strlen(start) + 8, ".tmp");
    CHECK_EQ(stat(fixture_format("%s/%s", folder, name), &state), 0);
    CHECK_EQ(state.st_size, 100000);
    CHECK_GE(state.st_blocks * 512, 100000);
    CHECK(fcntl(output.fd, F_GETFD) & FD_CLOEXEC);
    berthi_output_discard(&output);
    CHECK_EQ(emitted_entries(folder, NULL), 0);
    berthi_output_discard(&output); /* twice is allowed */
}

/* A name may have as many bytes as the file system takes; the temporary one has more. */
static void
test_long_names(void)
{
    const char *const folder = fixture_folder();
    char name[256 + 1];
    char entry[256] = "";
    const char *path;
    berthi_output output;

    memset(name, 'n', sizeof name);
    name[255] = '\0';
    memcpy(name + 255 - 201, "\xC3\xA4", 2); /* across the place where it is cut */
    path = fixture_format("%s/%s", folder, name);
    CHECK_EQ(emitted_text(context, path, "long", false, NULL), BERTH_OK);
    emitted_check(path, "long");
    T_REQUIRE(berthi_output_open(context, path, 1, true, &output, NULL) == BERTH_OK);
    fixture_remove(path);
    CHECK_EQ(emitted_entries(folder, entry), 1);
    CHECK_EQ(strspn(entry + 1, "n"), 199);
    CHECK(berthi_temporary_is_name(entry, name));
    CHECK(!berthi_temporary_is_name(entry, "n"));
    berthi_output_discard(&output);
    name[255] = 'n';
    name[256] = '\0';
    CHECK_EQ(emitted_text(context, fixture_format("%s/%s", folder, name), "x", false, NULL),
             BERTH_ENOENT);
    CHECK_EQ(emitted_entries(folder, NULL), 0);
}

static void
test_writes_in_any_order(void)
{
    const char *const path = fixture_format("%s/out", fixture_folder());
    berthi_output output;

    T_REQUIRE(berthi_output_open(context, path, 6, false, &output, NULL) == BERTH_OK);
    CHECK_EQ(berthi_output_write(&output, "def", 3, 3, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_write(&output, "", 0, 6, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_write(&output, "abc", 3, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&output, NULL), BERTH_OK);
    emitted_check(path, "abcdef");
}

/* A write may take less than it was given, and go on. */
static void
test_short_writes(void)
{
    const char *const folder = fixture_folder();
    berth_error error;

    world.write_bytes = 3;
    CHECK_EQ(emitted_text(context, fixture_format("%s/a", folder), "0123456789", false,
                          &error), BERTH_OK);
    world.write_bytes = 0;
    CHECK_EQ(world.write_end, 10);
    emitted_check(fixture_format("%s/a", folder), "0123456789");
    world.empty_writes = 1;
    CHECK_EQ(emitted_text(context, fixture_format("%s/b", folder), "0123456789", false,
                          &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, "writing");
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

/* The next writer takes our new file for a dead one's before we could lock it. */
static void
test_temporary_taken_away(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);

    const uint64_t names = world.random_calls;
    berth_error error;

    world.lock_unlink = folder;
    CHECK_EQ(emitted_text(context, path, "gone, made anew", false, NULL), BERTH_OK);
    CHECK(world.lock_unlink == NULL);
    emitted_check(path, "gone, made anew");
    fixture_remove(path);
    world.lock_error = EWOULDBLOCK;
    world.lock_failures = 1;
    CHECK_EQ(emitted_text(context, path, "locked by it", false, NULL), BERTH_OK);
    CHECK_EQ(world.random_calls, names + 4); /* two attempts each time */
    emitted_check(path, "locked by it");
    CHECK_EQ(emitted_entries(folder, NULL), 1);
    fixture_remove(path);
    /* Whoever does that again and again is no reason to try for ever. */
    world.lock_failures = 100;
    CHECK_EQ(emitted_text(context, path, "x", false, &error), BERTH_EIO);
    CHECK_EQ(world.lock_failures, 92);
    CHECK_CONTAINS(error.message, "created and kept");
    world.lock_failures = 0;
    CHECK_EQ(emitted_entries(folder, NULL), 0);
}

/* A link in the place of our file is not our file. */
static void
test_temporary_became_a_link(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const uint64_t names = world.random_calls;
    struct stat state;

    world.lock_relink = folder;
    CHECK_EQ(emitted_text(context, path, "a file", false, NULL), BERTH_OK);
    CHECK(world.lock_relink == NULL);
    CHECK_EQ(world.random_calls, names + 2);
    CHECK_EQ(lstat(path, &state), 0);
    CHECK(S_ISREG(state.st_mode));
    emitted_check(path, "a file");
}

/* Writes in a process of its own; 0, or what went wrong first. */
static int
write_without_input(const char *folder, int where)
{
    const char *const path = fixture_format("%s/out", folder);
    const pid_t child = fork();
    berthi_output output;
    int how = -1;

    if (child == 0) {
        if (where == 0)
            syscall(SYS_close, 0);
        world.random_frees_0 = where == 1;
        world.lock_frees_0 = where == 2;
        if (emitted_text(context, path, "x", true, NULL) != BERTH_OK)
            _exit(1);
        if (emitted_entries(folder, NULL) != 1)
            _exit(2);
        if (where == 1 && open("/dev/null", O_RDONLY | O_CLOEXEC) != 0)
            _exit(5); /* in the way of the folder */
        world.random_frees_0 = where == 1;
        if (berthi_output_open(context, path, 1, true, &output, NULL) != BERTH_OK)
            _exit(3);
        berthi_output_discard(&output);
        _exit(emitted_entries(folder, NULL) == 1 ? 0 : 4);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how))
        return -1;
    return WEXITSTATUS(how);
}

/* Without a standard input 0 is the folder, our file, or what the dead left. */
static void
test_descriptor_zero(void)
{
    const char *const folder = fixture_folder();

    for (int where = 0; where < 3; where++) {
        fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
        fixture_text(fixture_format("%s/.out.berth-12-89abcdef.tmp", folder), "x");
        CHECK_EQ(write_without_input(folder, where), 0);
    }
}

/*
 * File systems without locks, that reserve nothing or are full, or that lack the
 * rename that refuses to replace.
 */
static void
test_poor_file_systems(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const uint64_t names = world.random_calls;
    berth_error error;

    world.lock_error = ENOLCK;
    world.lock_failures = 1;
    CHECK_EQ(emitted_text(context, path, "kept", false, NULL), BERTH_OK);
    CHECK_EQ(world.random_calls, names + 1); /* one attempt was enough */
    fixture_remove(path);

    world.allocate_error = EOPNOTSUPP;
    CHECK_EQ(emitted_text(context, path, "not reserved", false, NULL), BERTH_OK);
    emitted_check(path, "not reserved");
    fixture_remove(path);
    world.allocate_error = ENOSPC;
    CHECK_EQ(emitted_text(context, path, "x", false, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, "reserving space");
    world.allocate_error = 0;
    CHECK_EQ(emitted_entries(folder, NULL), 0);

    world.rename_error = EINVAL;
    CHECK_EQ(emitted_text(context, path, "new", false, &error), BERTH_OK);
    emitted_check(path, "new");
    CHECK_EQ(emitted_text(context, path, "newer", false, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    world.rename_error = EACCES;
    fixture_remove(path);
    CHECK_EQ(emitted_text(context, path, "new", false, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_CONTAINS(error.message, "renaming");
    world.rename_error = 0;
    CHECK_EQ(emitted_entries(folder, NULL), 0);
}

/* What appears under the name is on the disk by then. */
static void
test_flushed_before_it_appears(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const int before = world.file_flushes;
    berth_error error;

    CHECK_EQ(emitted_text(context, path, "safe", false, &error), BERTH_OK);
    CHECK_EQ(world.flushed_at_rename, before + 1);
    CHECK_EQ(world.file_flushes, before + 1);
    fixture_remove(path);
    world.file_flush_error = EIO;
    CHECK_EQ(emitted_text(context, path, "lost", false, &error), BERTH_EIO);
    CHECK_STR(error.message, "flushing failed");
    CHECK_EQ(emitted_entries(folder, NULL), 0);
    world.file_flush_error = 0;
}

/* Not every file system flushes folders; one that fails to is another matter. */
static void
test_folders_that_cannot_be_flushed(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berth_error error;

    world.flush_error = EINVAL;
    CHECK_EQ(emitted_text(context, path, "never flushed", false, &error), BERTH_OK);
    emitted_check(path, "never flushed");
    world.flush_error = EIO;
    CHECK_EQ(emitted_text(context, path, "replaced", true, &error), BERTH_EIO);
    CHECK_STR(error.message, "flushing the folder failed");
    emitted_check(path, "replaced"); /* which was the old file's end */
    fixture_remove(path);
    CHECK_EQ(emitted_text(context, path, "new", false, &error), BERTH_EIO);
    CHECK_EQ(emitted_entries(folder, NULL), 0);
    world.flush_error = 0;
}

/* Who may put files there need not see what others have put there. */
static void
test_folder_that_cannot_be_listed(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);

    if (geteuid() != 0)
        T_SKIP("cannot become another user"); /* and an owner may list it */
    CHECK_EQ(chmod(fixture_format("%s/..", folder), 0711), 0);
    CHECK_EQ(chmod(folder, 01733), 0);
    CHECK_EQ(seteuid(65534), 0);
    CHECK_EQ(emitted_text(context, path, "unseen", false, NULL), BERTH_OK);
    CHECK_EQ(emitted_text(context, path, "replaced", true, NULL), BERTH_OK);
    CHECK_EQ(seteuid(0), 0);
    emitted_check(path, "replaced");
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

static void
test_our_own_mistakes(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berth_error error;
    berthi_output output;

    T_REQUIRE(berthi_output_open(context, path, 6, false, &output, NULL) == BERTH_OK);
    CHECK_EQ(berthi_output_write(&output, "abc", 3, 4, &error), BERTH_EINTERNAL);
    CHECK_EQ(berthi_output_write(&output, "abc", 3, 7, &error), BERTH_EINTERNAL);
    CHECK_EQ(berthi_output_write(&output, "abc", 3, UINT64_MAX, &error),
             BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "beyond the end");
    CHECK_EQ(berthi_output_write(&output, "abcde", 5, 0, &error), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&output, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "not written completely");
    CHECK_EQ(emitted_entries(folder, NULL), 0);
}

/* ------------------------------------------------------------------- faults */

typedef struct fault_case {
    const char *folder;
    bool overwrite;
} fault_case;

static berth_status
write_once(void *user, berth_context *with, berth_error *error)
{
    const fault_case *const c = user;
    const char *const path = fixture_format("%s/out", c->folder);
    berth_status status;

    if (c->overwrite) {
        fixture_text(path, "old");
        CHECK_EQ(chmod(path, 0604), 0); /* one that has to be set */
    } else {
        fixture_remove(path);
    }
    status = emitted_text(with, path, "new", c->overwrite, error);
    if (status == BERTH_OK) {
        emitted_check(path, "new");
        CHECK_EQ(emitted_entries(c->folder, NULL), 1);
    } else if (c->overwrite) {
        CHECK_EQ(emitted_entries(c->folder, NULL), 1);
        if (strcmp(error->message, "flushing the folder failed") != 0)
            emitted_check(path, "old");
        else
            emitted_check(path, "new");
    } else {
        CHECK_EQ(emitted_entries(c->folder, NULL), 0);
    }
    return status;
}

static void
test_faults(void)
{
    fault_case c = { fixture_folder(), false };
    const uint64_t depth = fixture_depth(c.folder);
    const fault_counts counts = fault_loop("new file", write_once, &c);

    /*
     * Once failing each of these is no harm: the folder's real path, the limit,
     * free space, the looks for leftovers, the lock, and in each folder on the way
     * that for snapshots; and twice a temporary file that cannot be looked at is
     * replaced by another.
     */
    CHECK_GE(counts.survived, 8 + depth);
    CHECK_LE(counts.survived, 12 + depth);
    c.overwrite = true;
    /* One more: the owner that could not be kept. */
    CHECK_EQ(fault_loop("existing file", write_once, &c).survived, counts.survived + 1);
}

/* Over all tests above: nobody else's descriptor was closed. */
static void
test_closes(void)
{
    CHECK_EQ(world.wrong_closes, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_writes);
    T_RUN(test_nothing_to_write);
    T_RUN(test_temporary_name);
    T_RUN(test_long_names);
    T_RUN(test_writes_in_any_order);
    T_RUN(test_short_writes);
    T_RUN(test_temporary_taken_away);
    T_RUN(test_temporary_became_a_link);
    T_RUN(test_descriptor_zero);
    T_RUN(test_poor_file_systems);
    T_RUN(test_flushed_before_it_appears);
    T_RUN(test_folders_that_cannot_be_flushed);
    T_RUN(test_folder_that_cannot_be_listed);
    T_RUN(test_our_own_mistakes);
    T_RUN(test_faults);
    T_RUN(test_closes);
    berth_context_destroy(context);
    T_MAIN_END;
}
