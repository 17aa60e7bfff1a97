/* SPDX-License-Identifier: Apache-2.0 */
/* test_output.c - files that appear complete or not at all. */
#define _GNU_SOURCE

#include "loader/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "loader/journal.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

static berth_context *context;

/*
 * These stand before the C library's: what a disk, a network file system or
 * another process can do, and no test can bring about.
 */
static struct {
    size_t write_bytes;      /* a pwrite takes at most so many; 0: all        */
    uint64_t write_end;      /* where the last pwrite would have ended        */
    int empty_writes;        /* so many of the next ones take nothing         */
    int flush_error;         /* of fsync on a folder                          */
    int file_flush_error;    /* of fsync on a file                            */
    int file_flushes;        /* files that were flushed                       */
    int flushed_at_rename;   /* so many of them before the last renameat2     */
    int lock_failures;       /* so many of the next flocks fail               */
    int lock_error;          /* with this                                     */
    const char *lock_unlink; /* a folder to be emptied before the next flock  */
    const char *lock_relink; /* whose one file is a link behind the next one  */
    bool has_server_locks;   /* as NFS: an exclusive one is for who may write */
    bool lock_frees_0;       /* the next flock closes the standard input      */
    bool random_frees_0;     /* so does the next random number                */
    int rename_error;        /* of renameat2                                  */
    int mode_error;          /* of fchmod                                     */
    int allocate_error;      /* of fallocate                                  */
    uint64_t random_calls;   /* random numbers asked for: names tried         */
    uint64_t wrong_closes;   /* of what was not open, or a standard stream    */
} world;

int
close(int fd)
{
    const int result = (int)syscall(SYS_close, fd);

    world.wrong_closes += fd < 3 || (result != 0 && errno == EBADF);
    return result;
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (world.allocate_error != 0) {
        errno = world.allocate_error;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int
fchmod(int fd, mode_t mode)
{
    if (world.mode_error != 0) {
        errno = world.mode_error;
        return -1;
    }
    return (int)syscall(SYS_fchmod, fd, mode);
}

int
fsync(int fd)
{
    struct stat state;
    int failure;

    if (fstat(fd, &state) != 0)
        return -1;
    failure = S_ISDIR(state.st_mode) ? world.flush_error : world.file_flush_error;
    world.file_flushes += !S_ISDIR(state.st_mode);
    if (failure == 0)
        return (int)syscall(SYS_fsync, fd);
    errno = failure;
    return -1;
}

ssize_t
getrandom(void *buffer, size_t size, unsigned flags)
{
    world.random_calls++;
    if (world.random_frees_0)
        syscall(SYS_close, 0);
    world.random_frees_0 = false;
    return syscall(SYS_getrandom, buffer, size, flags);
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    if (world.empty_writes > 0) {
        world.empty_writes--;
        return 0;
    }
    world.write_end = (uint64_t)offset + size;
    if (world.write_bytes > 0 && size > world.write_bytes)
        size = world.write_bytes;
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int
renameat2(int from_folder, const char *from, int to_folder, const char *to,
          unsigned flags)
{
    world.flushed_at_rename = world.file_flushes;
    if (world.rename_error != 0) {
        errno = world.rename_error;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

/* Entries of a folder; the last one's name goes into `name` (256 bytes) if set. */
static int
count_entries(const char *folder, char *name)
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

static void
remove_entries(const char *folder)
{
    char name[256];

    while (count_entries(folder, name) > 0)
        unlink(fixture_format("%s/%s", folder, name));
}

/* The one file of the folder gets another name, and a link to it the old one. */
static void
replace_by_link(const char *folder)
{
    const char *const moved = fixture_format("%s/moved", folder);
    char name[256];

    if (count_entries(folder, name) != 1
        || rename(fixture_format("%s/%s", folder, name), moved) != 0)
        exit(1);
    fixture_link("moved", fixture_format("%s/%s", folder, name));
}

static bool
is_file_to_read(int fd)
{
    struct stat state;

    return fstat(fd, &state) == 0 && S_ISREG(state.st_mode)
           && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

int
flock(int fd, int operation)
{
    if (world.lock_unlink != NULL)
        remove_entries(world.lock_unlink);
    world.lock_unlink = NULL;
    if (world.lock_relink != NULL)
        replace_by_link(world.lock_relink);
    world.lock_relink = NULL;
    if (world.lock_frees_0)
        syscall(SYS_close, 0);
    world.lock_frees_0 = false;
    if (world.lock_failures > 0) {
        world.lock_failures--;
        errno = world.lock_error;
        return -1;
    }
    if (world.has_server_locks && (operation & LOCK_EX) != 0 && is_file_to_read(fd)) {
        errno = EBADF;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void
check_content(const char *path, const char *expected)
{
    char *const text = fixture_read(path, NULL);

    CHECK_STR(text, expected);
    free(text);
}

/* Opens, writes and commits `text`; returns the first failure. */
static berth_status
write_text(berth_context *with, const char *path, const char *text, bool overwrite,
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

static void
test_writes(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out.json", folder);
    const mode_t mask = umask(0027);
    struct stat state;
    berth_error error;

    CHECK_EQ(write_text(context, path, "hello", false, &error), BERTH_OK);
    umask(mask);
    check_content(path, "hello");
    CHECK_EQ(count_entries(folder, NULL), 1);
    CHECK_EQ(stat(path, &state), 0);
    CHECK_EQ(state.st_mode & 07777, 0640);
}

static void
test_nothing_to_write(void)
{
    const char *const path = fixture_format("%s/empty", fixture_folder());

    CHECK_EQ(write_text(context, path, "", false, NULL), BERTH_OK);
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
    CHECK_EQ(count_entries(folder, name), 1);
    CHECK_EQ(strncmp(name, start, strlen(start)), 0);
    CHECK_EQ(strspn(name + strlen(start), "0123456789abcdef"), 8);
    CHECK_STR(name + strlen(start) + 8, ".tmp");
    CHECK_EQ(stat(fixture_format("%s/%s", folder, name), &state), 0);
    CHECK_EQ(state.st_size, 100000);
    CHECK_GE(state.st_blocks * 512, 100000);
    CHECK(fcntl(output.fd, F_GETFD) & FD_CLOEXEC);
    berthi_output_discard(&output);
    CHECK_EQ(count_entries(folder, NULL), 0);
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
    CHECK_EQ(write_text(context, path, "long", false, NULL), BERTH_OK);
    check_content(path, "long");
    T_REQUIRE(berthi_output_open(context, path, 1, true, &output, NULL) == BERTH_OK);
    fixture_remove(path);
    CHECK_EQ(count_entries(folder, entry), 1);
    CHECK_EQ(strspn(entry + 1, "n"), 199);
    CHECK(berthi_temporary_is_name(entry, name));
    CHECK(!berthi_temporary_is_name(entry, "n"));
    berthi_output_discard(&output);
    name[255] = 'n';
    name[256] = '\0';
    CHECK_EQ(write_text(context, fixture_format("%s/%s", folder, name), "x", false, NULL),
             BERTH_ENOENT);
    CHECK_EQ(count_entries(folder, NULL), 0);
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
    check_content(path, "abcdef");
}

/* A write may take less than it was given, and go on. */
static void
test_short_writes(void)
{
    const char *const folder = fixture_folder();
    berth_error error;

    world.write_bytes = 3;
    CHECK_EQ(write_text(context, fixture_format("%s/a", folder), "0123456789", false,
                        &error), BERTH_OK);
    world.write_bytes = 0;
    CHECK_EQ(world.write_end, 10);
    check_content(fixture_format("%s/a", folder), "0123456789");
    world.empty_writes = 1;
    CHECK_EQ(write_text(context, fixture_format("%s/b", folder), "0123456789", false,
                        &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, "writing");
    CHECK_EQ(count_entries(folder, NULL), 1);
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
    CHECK_EQ(write_text(context, path, "gone, made anew", false, NULL), BERTH_OK);
    CHECK(world.lock_unlink == NULL);
    check_content(path, "gone, made anew");
    fixture_remove(path);
    world.lock_error = EWOULDBLOCK;
    world.lock_failures = 1;
    CHECK_EQ(write_text(context, path, "locked by it", false, NULL), BERTH_OK);
    CHECK_EQ(world.random_calls, names + 4); /* two attempts each time */
    check_content(path, "locked by it");
    CHECK_EQ(count_entries(folder, NULL), 1);
    fixture_remove(path);
    /* Whoever does that again and again is no reason to try for ever. */
    world.lock_failures = 100;
    CHECK_EQ(write_text(context, path, "x", false, &error), BERTH_EIO);
    CHECK_EQ(world.lock_failures, 92);
    CHECK_CONTAINS(error.message, "created and kept");
    world.lock_failures = 0;
    CHECK_EQ(count_entries(folder, NULL), 0);
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
    CHECK_EQ(write_text(context, path, "a file", false, NULL), BERTH_OK);
    CHECK(world.lock_relink == NULL);
    CHECK_EQ(world.random_calls, names + 2);
    CHECK_EQ(lstat(path, &state), 0);
    CHECK(S_ISREG(state.st_mode));
    check_content(path, "a file");
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
        if (write_text(context, path, "x", true, NULL) != BERTH_OK)
            _exit(1);
        if (count_entries(folder, NULL) != 1)
            _exit(2);
        if (where == 1 && open("/dev/null", O_RDONLY | O_CLOEXEC) != 0)
            _exit(5); /* in the way of the folder */
        world.random_frees_0 = where == 1;
        if (berthi_output_open(context, path, 1, true, &output, NULL) != BERTH_OK)
            _exit(3);
        berthi_output_discard(&output);
        _exit(count_entries(folder, NULL) == 1 ? 0 : 4);
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
    CHECK_EQ(write_text(context, path, "kept", false, NULL), BERTH_OK);
    CHECK_EQ(world.random_calls, names + 1); /* one attempt was enough */
    fixture_remove(path);

    world.allocate_error = EOPNOTSUPP;
    CHECK_EQ(write_text(context, path, "not reserved", false, NULL), BERTH_OK);
    check_content(path, "not reserved");
    fixture_remove(path);
    world.allocate_error = ENOSPC;
    CHECK_EQ(write_text(context, path, "x", false, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, "reserving space");
    world.allocate_error = 0;
    CHECK_EQ(count_entries(folder, NULL), 0);

    world.rename_error = EINVAL;
    CHECK_EQ(write_text(context, path, "new", false, &error), BERTH_OK);
    check_content(path, "new");
    CHECK_EQ(write_text(context, path, "newer", false, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    world.rename_error = EACCES;
    fixture_remove(path);
    CHECK_EQ(write_text(context, path, "new", false, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_CONTAINS(error.message, "renaming");
    world.rename_error = 0;
    CHECK_EQ(count_entries(folder, NULL), 0);
}

/* What appears under the name is on the disk by then. */
static void
test_flushed_before_it_appears(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const int before = world.file_flushes;
    berth_error error;

    CHECK_EQ(write_text(context, path, "safe", false, &error), BERTH_OK);
    CHECK_EQ(world.flushed_at_rename, before + 1);
    CHECK_EQ(world.file_flushes, before + 1);
    fixture_remove(path);
    world.file_flush_error = EIO;
    CHECK_EQ(write_text(context, path, "lost", false, &error), BERTH_EIO);
    CHECK_STR(error.message, "flushing failed");
    CHECK_EQ(count_entries(folder, NULL), 0);
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
    CHECK_EQ(write_text(context, path, "never flushed", false, &error), BERTH_OK);
    check_content(path, "never flushed");
    world.flush_error = EIO;
    CHECK_EQ(write_text(context, path, "replaced", true, &error), BERTH_EIO);
    CHECK_STR(error.message, "flushing the folder failed");
    check_content(path, "replaced"); /* which was the old file's end */
    fixture_remove(path);
    CHECK_EQ(write_text(context, path, "new", false, &error), BERTH_EIO);
    CHECK_EQ(count_entries(folder, NULL), 0);
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
    CHECK_EQ(write_text(context, path, "unseen", false, NULL), BERTH_OK);
    CHECK_EQ(write_text(context, path, "replaced", true, NULL), BERTH_OK);
    CHECK_EQ(seteuid(0), 0);
    check_content(path, "replaced");
    CHECK_EQ(count_entries(folder, NULL), 1);
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
    CHECK_EQ(count_entries(folder, NULL), 0);
}

static void
test_refuses_existing(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berth_error error;

    fixture_text(path, "old");
    CHECK_EQ(write_text(context, path, "new", false, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(error.file, path);
    check_content(path, "old");
    /* A link is something, too, even one that points nowhere. */
    fixture_link("nowhere", fixture_format("%s/link", folder));
    CHECK_EQ(write_text(context, fixture_format("%s/link", folder), "new", false, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_EQ(count_entries(folder, NULL), 2);
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
    check_content(path, "old");
    CHECK_EQ(count_entries(folder, NULL), 1);
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
    CHECK_EQ(write_text(context, path, "new", true, NULL), BERTH_OK);
    check_content(path, "new");
    CHECK_EQ(stat(path, &after), 0);
    CHECK_EQ(after.st_mode, before.st_mode);
    CHECK_EQ(after.st_uid, before.st_uid);
    CHECK_EQ(after.st_gid, before.st_gid);
    CHECK_NE(after.st_ino, before.st_ino); /* never in place */
    CHECK_EQ(count_entries(folder, NULL), 1);
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
        _exit(write_text(context, path, "new", true, NULL) == BERTH_OK ? 0 : 1);
    }
    T_REQUIRE(waitpid(child, &ended, 0) == child && WIFEXITED(ended));
    if (WEXITSTATUS(ended) == 77)
        T_SKIP("cannot become another user");
    CHECK_EQ(WEXITSTATUS(ended), 0);
    check_content(path, "new");
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

    CHECK_EQ(write_text(context, path, "old", false, NULL), BERTH_OK);
    world.mode_error = EPERM;
    CHECK_EQ(write_text(context, path, "new", true, NULL), BERTH_OK);
    check_content(path, "new");
    CHECK_EQ(chmod(path, 0604), 0);
    CHECK_EQ(write_text(context, path, "newer", true, &error), BERTH_ENOENT);
    world.mode_error = 0;
    CHECK_EQ(error.reason, BERTH_REASON_PERMISSION);
    CHECK_CONTAINS(error.message, "taking over the permissions");
    check_content(path, "new");
}

/* Bits that make a program dangerous are not handed on. */
static void
test_mode_without_special_bits(void)
{
    const char *const path = fixture_format("%s/out", fixture_folder());
    struct stat state;

    fixture_text(path, "old");
    CHECK_EQ(chmod(path, 06755), 0);
    CHECK_EQ(write_text(context, path, "new", true, NULL), BERTH_OK);
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
    CHECK_EQ(write_text(context, path, "new", true, NULL), BERTH_OK);
    CHECK_EQ(lstat(path, &state), 0);
    CHECK(S_ISREG(state.st_mode));
    check_content(path, "new");
    check_content(fixture_format("%s/target", folder), "target");
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
    CHECK_EQ(write_text(context, pipe, "x", true, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    CHECK_CONTAINS(error.message, "pipe");
    CHECK_EQ(write_text(context, inner, "x", true, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    CHECK_CONTAINS(error.message, "directory");
    CHECK_EQ(count_entries(folder, NULL), 2);
}

/* Not the machine's own /dev/null, which a defect would replace for everybody. */
static void
test_refuses_a_device(void)
{
    const char *const device = fixture_format("%s/null", fixture_folder());
    berth_error error;

    if (mknod(device, S_IFCHR | 0600, makedev(1, 3)) != 0)
        T_SKIP("only root makes devices");
    CHECK_EQ(write_text(context, device, "x", true, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
}

static void
test_refuses_bad_names(void)
{
    static const char *const names[] = { "", "/", "a/", ".", "..", "/tmp/..", "/tmp/." };
    berth_error error;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK_EQ(write_text(context, names[i], "x", true, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, "name of a file");
    }
    CHECK_EQ(write_text(context, "/nowhere/at/all", "x", false, &error), BERTH_ENOENT);
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
    CHECK_EQ(write_text(context, "plain", "1", false, NULL), BERTH_OK);
    CHECK_EQ(write_text(context, "./dotted", "2", false, NULL), BERTH_OK);
    CHECK_EQ(chdir(before), 0);
    check_content(fixture_format("%s/plain", folder), "1");
    check_content(fixture_format("%s/dotted", folder), "2");
    if (geteuid() == 0 && access("/", W_OK) == 0) {
        const char *const path = fixture_format("/berth-test-%d", (int)getpid());

        CHECK_EQ(write_text(context, path, "3", false, NULL), BERTH_OK);
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
        CHECK_EQ(write_text(context, fixture_format("%s/out", inner), "x", true, &error),
                 BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, "hub cache");
        CHECK_EQ(access(fixture_format("%s/out", inner), F_OK), -1);
    }
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        const char *const inner = fixture_format("%s/%s", other, outside[i]);

        fixture_make_folder(inner);
        CHECK_EQ(write_text(context, fixture_format("%s/out", inner), "x", true, &error),
                 BERTH_OK);
    }
    /* Through a link it is still the cache. */
    fixture_link(fixture_format("%s/%s", folder, inside[0]),
                 fixture_format("%s/way", folder));
    CHECK_EQ(write_text(context, fixture_format("%s/way/out", folder), "x", true, &error),
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
    CHECK_EQ(count_entries(folder, NULL), 0);
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
            || count_entries(folder, NULL) != 1)
            _exit(1);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
        T_SKIP("this process may not mount");
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* Left behind by a killed process: gone. Held by a live one, or other: stays. */
static void
test_removes_what_the_dead_left(void)
{
    static const char *const others[] = {
        ".out.berth-12-0123456.tmp",  ".out.berth-12-012345678.tmp",
        ".out.berth-x-01234567.tmp",  ".out.berth-12-0123456g.tmp",
        "out.berth-12-01234567.tmp",  ".other.berth-12-01234567.tmp",
        ".out.berth-12-01234567.tmp2", ".out.north-12-01234567.tmp",
        ".out.berth-12_01234567.tmp",
    };
    const char *const folder = fixture_folder();
    const char *const held = fixture_format("%s/.out.berth-1-aaaaaaaa.tmp", folder);
    const size_t count = sizeof others / sizeof others[0];
    const int fds = fixture_open_fds();
    int fd;

    for (size_t i = 0; i < count; i++)
        fixture_text(fixture_format("%s/%s", folder, others[i]), "x");
    fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
    fixture_text(fixture_format("%s/.out.berth-99999-89abcdef.tmp", folder), "x");
    fixture_text(held, "x");
    fixture_make_folder(fixture_format("%s/.out.berth-1-bbbbbbbb.tmp", folder));
    fd = open(held, O_RDWR | O_CLOEXEC);
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(write_text(context, fixture_format("%s/out", folder), "x", false, NULL),
             BERTH_OK);
    close(fd);
    CHECK_EQ(fixture_open_fds(), fds);
    CHECK_EQ(access(held, F_OK), 0);
    /* The others, the held one, the folder, and the output itself. */
    CHECK_EQ(count_entries(folder, NULL), count + 3);
    CHECK_EQ(access(fixture_format("%s/.out.berth-12-01234567.tmp", folder), F_OK), -1);
}

/* Where locks are those of a server. */
static void
test_removes_what_the_dead_left_on_nfs(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const char *const held = fixture_format("%s/.out.berth-1-aaaaaaaa.tmp", folder);
    int fd;

    fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
    fixture_text(held, "x");
    fd = open(held, O_RDWR | O_CLOEXEC);
    world.has_server_locks = true;
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(write_text(context, path, "x", false, NULL), BERTH_OK);
    CHECK_EQ(access(held, F_OK), 0);
    CHECK_EQ(count_entries(folder, NULL), 2);
    close(fd);
    CHECK_EQ(write_text(context, path, "x", true, NULL), BERTH_OK);
    world.has_server_locks = false;
    CHECK_EQ(count_entries(folder, NULL), 1);
}

/* What cannot be looked at stays, and only that: stat, open and lock of each. */
static void
test_removes_the_other_dead(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    int kept_one = 0;
    int kept_all = 0;

    for (uint64_t nth = 0; nth < 60; nth++) {
        berth_status status;
        int kept = -1; /* the output itself */

        for (int i = 0; i < 3; i++)
            fixture_text(fixture_format("%s/.out.berth-1-0123456%d.tmp", folder, i), "x");
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        status = write_text(context, path, "x", true, NULL);
        berthi_fault_disarm();
        kept += count_entries(folder, NULL);
        kept_one += status == BERTH_OK && kept == 1;
        kept_all += status == BERTH_OK && kept == 3;
    }
    CHECK_EQ(kept_one, 3 * 3);
    /* Nobody knows of a journal; the folder was not opened, or not read. */
    CHECK_EQ(kept_all, 3);
}

/* In a folder that the caller holds, which stays open. */
static void
test_in_a_folder_that_is_held(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    berthi_target target = { .folder = at, .name = "out", .path = "shown/out" };
    const int fds = fixture_open_fds();
    berth_error error;
    berthi_output output;

    CHECK_EQ(berthi_output_open_at(context, &target, 3, &output, &error), BERTH_OK);
    CHECK_EQ(count_entries(folder, NULL), 1);
    CHECK_EQ(berthi_output_write(&output, "new", 3, 0, &error), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&output, &error), BERTH_OK);
    CHECK(output.context == NULL);
    check_content(fixture_format("%s/out", folder), "new");
    CHECK_EQ(berthi_output_open_at(context, &target, 3, &output, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(error.file, "shown/out");
    CHECK(output.context == NULL);
    target.overwrite = true;
    CHECK_EQ(berthi_output_open_at(context, &target, UINT64_C(1) << 60, &output, &error),
             BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(count_entries(folder, NULL), 1);
    CHECK_EQ(fixture_open_fds(), fds);
    berthi_sys_close(at);
}

/* A resumed run comes back for what stands beside a journal. */
static void
test_keeps_what_a_journal_lists(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);

    fixture_text(fixture_format("%s/.out.berth-12-01234567.tmp", folder), "x");
    fixture_text(fixture_format("%s/" BERTHI_JOURNAL_NAME, folder), "{}");
    CHECK_EQ(write_text(context, path, "x", true, NULL), BERTH_OK);
    CHECK_EQ(count_entries(folder, NULL), 3);
    fixture_link("nowhere", fixture_format("%s/" BERTHI_JOURNAL_NAME, folder));
    CHECK_EQ(write_text(context, path, "x", true, NULL), BERTH_OK);
    CHECK_EQ(count_entries(folder, NULL), 3); /* a link in its place is one, too */
    fixture_remove(fixture_format("%s/" BERTHI_JOURNAL_NAME, folder));
    CHECK_EQ(write_text(context, path, "x", true, NULL), BERTH_OK);
    CHECK_EQ(count_entries(folder, NULL), 1);
}

/* Two at once for one name: neither takes the other's file for a dead one's. */
static void
test_two_writers(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    berthi_output first;
    berthi_output second;
    berth_error error;

    T_REQUIRE(berthi_output_open(context, path, 1, false, &first, NULL) == BERTH_OK);
    T_REQUIRE(berthi_output_open(context, path, 1, false, &second, NULL) == BERTH_OK);
    CHECK_EQ(count_entries(folder, NULL), 2);
    CHECK_EQ(berthi_output_write(&first, "1", 1, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_write(&second, "2", 1, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&second, NULL), BERTH_OK);
    CHECK_EQ(berthi_output_commit(&first, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    check_content(path, "2");
    CHECK_EQ(count_entries(folder, NULL), 1);
}

/* Killed at any moment: the old file or the new one, never a part. */
static void
test_kill(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/out", folder);
    const size_t bytes = 20000;
    char *const text = malloc(bytes + 1);
    int written = 0;

    T_REQUIRE(text != NULL);
    for (int round = 0; round < 40; round++) {
        const pid_t child = fork();
        char *found;

        memset(text, 'a' + round % 26, bytes);
        text[bytes] = '\0';
        T_REQUIRE(child >= 0); /* kill(-1) would be everybody's end */
        if (child == 0) {
            for (;;)
                if (write_text(context, path, text, true, NULL) != BERTH_OK)
                    _exit(1);
        }
        usleep((useconds_t)(round * 211 % 4000));
        CHECK_EQ(kill(child, SIGKILL), 0);
        CHECK_EQ(waitpid(child, NULL, 0), child);
        if (access(path, F_OK) != 0)
            continue;
        written++;
        found = fixture_read(path, NULL);
        CHECK_EQ(strspn(found, (char[]){ found[0], '\0' }), bytes);
        CHECK_EQ(strlen(found), bytes);
        free(found);
    }
    CHECK_EQ(write_text(context, path, "end", true, NULL), BERTH_OK);
    CHECK_EQ(count_entries(folder, NULL), 1);
    T_NOTE("killed 40 times, a file was there %d times", written);
    free(text);
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
    status = write_text(with, path, "new", c->overwrite, error);
    if (status == BERTH_OK) {
        check_content(path, "new");
        CHECK_EQ(count_entries(c->folder, NULL), 1);
    } else if (c->overwrite) {
        CHECK_EQ(count_entries(c->folder, NULL), 1);
        if (strcmp(error->message, "flushing the folder failed") != 0)
            check_content(path, "old");
        else
            check_content(path, "new");
    } else {
        CHECK_EQ(count_entries(c->folder, NULL), 0);
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
    T_RUN(test_removes_what_the_dead_left);
    T_RUN(test_removes_what_the_dead_left_on_nfs);
    T_RUN(test_removes_the_other_dead);
    T_RUN(test_in_a_folder_that_is_held);
    T_RUN(test_keeps_what_a_journal_lists);
    T_RUN(test_two_writers);
    T_RUN(test_kill);
    T_RUN(test_faults);
    T_RUN(test_closes);
    berth_context_destroy(context);
    T_MAIN_END;
}
