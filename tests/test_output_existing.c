/* SPDX-License-Identifier: Apache-2.0 */
/* test_output_existing.c - files that take the place of others, or may not; too large ones. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader/journal.h"
#include "loader/output.h"
#include "tests/emitted.h"
#include "tests/fixture.h"
#include "tests/output_calls.h"
#include "tests/t.h"

static berth_context *context;

static void
test_refuses_existing(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berth_error error;

    fixture_text(path, "old");
    CHECK_EQ(emitted_text(context, path, "new", false, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(error.file, path);
    emitted_check(path, "old");
    /* A link is something, too, even one that points nowhere. */
    fixture_link("nowhere", fixture_format("%s/link", folder));
    CHECK_EQ(emitted_text(context, fixture_format("%s/link", folder), "new", false, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_EQ(emitted_entries(folder, NULL), 2);
}

/* The file comes into being while ours is being written. */
static void
test_refuses_existing_at_the_last_moment(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berth_error error;
    berthi_output output;

    T_REQUIRE(berthi_output_open(context, path, 3, false, &output, NULL) == BERTH_OK);
    CHECK_EQ(berthi_output_write(&output, "new", 3, 0, NULL), BERTH_OK);
    fixture_text(path, "old");
    CHECK_EQ(berthi_output_commit(&output, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    emitted_check(path, "old");
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

static void
test_overwrites(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    struct stat before;
    struct stat after;

    fixture_text(path, "old and longer");
    CHECK_EQ(chmod(path, 0604), 0);
    if (geteuid() == 0)
        CHECK_EQ(chown(path, 12345, 54321), 0);
    CHECK_EQ(stat(path, &before), 0);
    CHECK_EQ(emitted_text(context, path, "new", true, NULL), BERTH_OK);
    emitted_check(path, "new");
    CHECK_EQ(stat(path, &after), 0);
    CHECK_EQ(after.st_mode, before.st_mode);
    CHECK_EQ(after.st_uid, before.st_uid);
    CHECK_EQ(after.st_gid, before.st_gid);
    CHECK_NE(after.st_ino, before.st_ino); /* never in place */
    CHECK_EQ(emitted_entries(folder, NULL), 1);
}

/* A file of another user's that a group shares: its members keep it theirs. */
static void
test_group_of_another_users_file(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const gid_t shared = 54321;
    struct stat state;
    pid_t child;
    int ended;

    if (geteuid() != 0)
        T_SKIP("cannot become another user");
    fixture_text(path, "old");
    T_REQUIRE(chown(path, 12345, shared) == 0 && chmod(path, 0660) == 0);
    T_REQUIRE(chown(folder, 12345, shared) == 0 && chmod(folder, 0775) == 0);
    T_REQUIRE(chmod(fixture_format("%s/..", folder), 0755) == 0);
    child = fork();
    if (child == 0) {
        if (setgroups(1, &shared) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
            _exit(77);
        _exit(emitted_text(context, path, "new", true, NULL) == BERTH_OK ? 0 : 1);
    }
    T_REQUIRE(waitpid(child, &ended, 0) == child && WIFEXITED(ended));
    if (WEXITSTATUS(ended) == 77)
        T_SKIP("cannot become another user");
    CHECK_EQ(WEXITSTATUS(ended), 0);
    emitted_check(path, "new");
    CHECK_EQ(stat(path, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0660);
    CHECK_EQ(state.st_uid, 65534);
    CHECK_EQ(state.st_gid, shared);
}

/* As on mounts of Windows disks and shares: every file has the mode of the mount. */
static void
test_modes_that_cannot_be_set(void)
{
    const char *const path = fixture_format("%s/out", fixture_folder());
    berth_error error;

    CHECK_EQ(emitted_text(context, path, "old", false, NULL), BERTH_OK);
    world.mode_error = EPERM;
    CHECK_EQ(emitted_text(context, path, "new", true, NULL), BERTH_OK);
    emitted_check(path, "new");
    CHECK_EQ(chmod(path, 0604), 0);
    CHECK_EQ(emitted_text(context, path, "newer", true, &error), BERTH_ENOENT);
    world.mode_error = 0;
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_CONTAINS(error.message, "taking over the permissions");
    emitted_check(path, "new");
}

/* Bits that make a program dangerous are not handed on. */
static void
test_mode_without_special_bits(void)
{
    const char *const path = fixture_format("%s/out", fixture_folder());
    struct stat state;

    fixture_text(path, "old");
    CHECK_EQ(chmod(path, 06755), 0);
    CHECK_EQ(emitted_text(context, path, "new", true, NULL), BERTH_OK);
    CHECK_EQ(stat(path, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0755);
}

static void
test_replaces_a_link_not_its_target(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/link", folder);
    struct stat state;

    fixture_text(fixture_format("%s/target", folder), "target");
    fixture_link("target", path);
    CHECK_EQ(emitted_text(context, path, "new", true, NULL), BERTH_OK);
    CHECK_EQ(lstat(path, &state), 0);
    CHECK(S_ISREG(state.st_mode));
    emitted_check(path, "new");
    emitted_check(fixture_format("%s/target", folder), "target");
}

static void
test_refuses_what_is_no_file(void)
{
    const char *const folder = fixture_folder();
    const char *const pipe = fixture_format("%s/pipe", folder);
    const char *const inner = fixture_format("%s/inner", folder);
    berth_error error;

    CHECK_EQ(mkfifo(pipe, 0600), 0);
    fixture_make_folder(inner);
    CHECK_EQ(emitted_text(context, pipe, "x", true, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    CHECK_CONTAINS(error.message, "pipe");
    CHECK_EQ(emitted_text(context, inner, "x", true, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    CHECK_CONTAINS(error.message, "directory");
    CHECK_EQ(emitted_entries(folder, NULL), 2);
}

/* Not the machine's own /dev/null, which a defect would replace for everybody. */
static void
test_refuses_a_device(void)
{
    const char *const device = fixture_format("%s/null", fixture_folder());
    berth_error error;

    if (mknod(device, S_IFCHR | 0600, makedev(1, 3)) != 0)
        T_SKIP("only root makes devices");
    CHECK_EQ(emitted_text(context, device, "x", true, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
}

static void
test_refuses_bad_names(void)
{
    static const char *const names[] = { "", "/", "a/", ".", "..", "/tmp/..", "/tmp/." };
    berth_error error;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK_EQ(emitted_text(context, names[i], "x", true, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, "name of a file");
    }
    CHECK_EQ(emitted_text(context, "/nowhere/at/all", "x", false, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_FOUND);
    CHECK_CONTAINS(error.message, "folder");
}

/* "name", "./name" and "/name" have their folder in the right place. */
static void
test_relative_paths(void)
{
    const char *const folder = fixture_folder();
    char before[4096];

    T_REQUIRE(getcwd(before, sizeof before) != NULL);
    T_REQUIRE(chdir(folder) == 0);
    CHECK_EQ(emitted_text(context, "plain", "1", false, NULL), BERTH_OK);
    CHECK_EQ(emitted_text(context, "./dotted", "2", false, NULL), BERTH_OK);
    CHECK_EQ(chdir(before), 0);
    emitted_check(fixture_format("%s/plain", folder), "1");
    emitted_check(fixture_format("%s/dotted", folder), "2");
    if (geteuid() == 0 && access("/", W_OK) == 0) {
        const char *const path = fixture_format("/berth-test-%d", (int)getpid());

        CHECK_EQ(emitted_text(context, path, "3", false, NULL), BERTH_OK);
        CHECK_EQ(unlink(path), 0);
    }
}

static void
test_refuses_the_hub_cache(void)
{
    static const char *const inside[] = {
        "models--org--name/snapshots/0123", "models--org--name/snapshots/0123/sub",
        "models--org--name/blobs",          "models--name/refs",
        "models--name/trees",               "datasets--org--name/snapshots/0",
        "models--name/.no_exist/0",         "spaces--org--name/blobs",
        "models--org--name",                "models--name/other",
    };
    static const char *const outside[] = {
        "models--org--name", "blobs", "snapshots/0123", "models/snapshots", "models--n/blob",
        "models--n/blobs2", "x/models-/refs", "blobs/models--n", "xmodels--n/blobs",
        "spaces-/blobs", "datasets-/blobs",
    };
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();
    berth_error error;

    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        const char *const inner = fixture_format("%s/%s", folder, inside[i]);

        fixture_make_folder(inner);
        CHECK_EQ(emitted_text(context, fixture_format("%s/out", inner), "x", true, &error),
                 BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, "hub cache");
        CHECK_EQ(access(fixture_format("%s/out", inner), F_OK), -1);
    }
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        const char *const inner = fixture_format("%s/%s", other, outside[i]);

        fixture_make_folder(inner);
        CHECK_EQ(emitted_text(context, fixture_format("%s/out", inner), "x", true, &error),
                 BERTH_OK);
    }
    /* Through a link it is still the cache. */
    fixture_link(fixture_format("%s/%s", folder, inside[0]),
                 fixture_format("%s/way", folder));
    CHECK_EQ(emitted_text(context, fixture_format("%s/way/out", folder), "x", true, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "hub cache");
}

static void
test_too_large_for_the_disk(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const uint64_t bytes = UINT64_C(1) << 60;
    berth_error error;
    berthi_output output;

    CHECK_EQ(berthi_output_open(context, path, bytes, false, &output, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, bytes);
    CHECK_LT(error.actual, bytes);
    CHECK_EQ(emitted_entries(folder, NULL), 0);
}

/* Beyond RLIMIT_FSIZE is a signal: it has to be asked for, not met. */
static void
test_too_large_for_the_process(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    struct rlimit before;
    struct rlimit limit;
    berth_error error;
    berthi_output output;

    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(berthi_output_open(context, path, 4097, false, &output, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(error.actual, 4096);
    CHECK_EQ(berthi_output_open(context, path, 4096, false, &output, &error), BERTH_OK);
    berthi_output_discard(&output);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* A file system of 64 KiB, in a namespace of its own. */
static void
test_full_disk(void)
{
    const char *const folder = fixture_folder();
    const pid_t child = fork();
    int how;

    T_REQUIRE(child >= 0);
    if (child == 0) {
        berthi_output output;
        berth_error error;

        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
            || mount("none", folder, "tmpfs", 0, "size=64k") != 0)
            _exit(77);
        fixture_text(fixture_format("%s/filler", folder), "x");
        if (berthi_output_open(context, fixture_format("%s/out", folder), 65536, false,
                               &output, &error) != BERTH_EIO
            || error.reason != BERTH_REASON_DISK_FULL || error.actual >= 65536
            || emitted_entries(folder, NULL) != 1)
            _exit(1);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
        T_SKIP("this process may not mount");
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_refuses_existing);
    T_RUN(test_refuses_existing_at_the_last_moment);
    T_RUN(test_overwrites);
    T_RUN(test_group_of_another_users_file);
    T_RUN(test_modes_that_cannot_be_set);
    T_RUN(test_mode_without_special_bits);
    T_RUN(test_replaces_a_link_not_its_target);
    T_RUN(test_refuses_what_is_no_file);
    T_RUN(test_refuses_a_device);
    T_RUN(test_refuses_bad_names);
    T_RUN(test_relative_paths);
    T_RUN(test_refuses_the_hub_cache);
    T_RUN(test_too_large_for_the_disk);
    T_RUN(test_too_large_for_the_process);
    T_RUN(test_full_disk);
    berth_context_destroy(context);
    T_MAIN_END;
}
