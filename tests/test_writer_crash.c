/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_writer_crash.c - a set of files whose writer is killed, runs out of disk
 * or loses power, at every point: afterwards there is the old model, or the new
 * one, or none and a journal, and the same command with `resume` gives the same
 * files.
 *
 * The calls that change a file system stand here before the C library's. They
 * count, kill the process at a given one, and keep a log of a run. A power loss
 * is a state that a file system may show after it: of what no flush has made
 * durable any part may be there, writes cut anywhere.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/power.h"
#include "tests/t.h"
#include "tests/written.h"

static berth_context *context;

/* What the disk and the outer world do. */
static struct {
    power_log *log;     /* NULL: nothing is noted */
    char folder[4096];  /* of which the log is: its real path */
    bool is_counting;
    uint64_t calls;     /* of all kinds below, since counting began */
    uint64_t kill_at;   /* dies before this call; odd: in the middle, or after it */
    bool has_no_fsync;  /* flushes cost nothing: nobody pulls this plug */
    bool is_lying;      /* nothing is reserved, and there is always room */
} world = { .kill_at = UINT64_MAX };

static uint64_t
inode_of(int fd)
{
    struct stat state;

    return fstat(fd, &state) == 0 ? (uint64_t)state.st_ino : 0;
}

static void
note_name(power_kind kind, int fd, const char *name, const char *to)
{
    if (world.log != NULL)
        power_note(world.log, kind, inode_of(fd), name, to);
}

/* The open folder's name below the one that is logged; "..": it lies elsewhere. */
static void
note_flush(int fd)
{
    const size_t length = strlen(world.folder);
    char path[4096] = "";
    const char *name = "..";

    if (readlink(fixture_format("/proc/self/fd/%d", fd), path, sizeof path - 1) > 0
        && strncmp(path, world.folder, length) == 0
        && (path[length] == '/' || path[length] == '\0'))
        name = path + length + (path[length] == '/');
    note_name(POWER_FLUSH_FOLDER, fd, name, "");
}

static void
note_bytes(power_kind kind, int fd, off_t offset, const void *bytes, off_t length)
{
    if (world.log != NULL && length >= 0)
        power_note_bytes(world.log, kind, inode_of(fd), (uint64_t)offset, bytes,
                         (uint64_t)length);
}

/* Before a call: true when the process is to die halfway through it. */
static bool
is_last_call(void)
{
    if (!world.is_counting)
        return false;
    if (2 * world.calls == world.kill_at)
        raise(SIGKILL);
    return 2 * world.calls++ + 1 == world.kill_at;
}

static void
die_if(bool is_last)
{
    if (is_last)
        raise(SIGKILL);
}

int
openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;
    bool is_last = false;
    int fd;

    va_start(arguments, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if ((flags & O_CREAT) != 0)
        is_last = is_last_call();
    fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    die_if(is_last);
    if (fd >= 0 && (flags & O_CREAT) != 0)
        note_name(POWER_CREATE, fd, path, "");
    return fd;
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    const bool is_last = is_last_call();
    const ssize_t done =
        syscall(SYS_pwrite64, fd, bytes, is_last ? size / 2 : size, offset);

    die_if(is_last);
    note_bytes(POWER_WRITE, fd, offset, bytes, done);
    return done;
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    const bool is_last = is_last_call();
    int result;

    if (world.is_lying) {
        errno = EOPNOTSUPP;
        return -1;
    }
    result = (int)syscall(SYS_fallocate, fd, mode, offset, size);
    die_if(is_last);
    note_bytes(POWER_RESIZE, fd, 0, NULL, size);
    return result;
}

int
ftruncate(int fd, off_t size)
{
    const bool is_last = is_last_call();
    const int result = (int)syscall(SYS_ftruncate, fd, size);

    die_if(is_last);
    note_bytes(POWER_RESIZE, fd, 0, NULL, size);
    return result;
}

int
fsync(int fd)
{
    const bool is_last = is_last_call();
    struct stat state;
    int result = 0;

    if (!world.has_no_fsync)
        result = (int)syscall(SYS_fsync, fd);
    die_if(is_last);
    if (world.log != NULL && fstat(fd, &state) == 0) {
        if (S_ISDIR(state.st_mode))
            note_flush(fd);
        else
            note_name(POWER_FLUSH_FILE, fd, "", "");
    }
    return result;
}

int
sync_file_range(int fd, off_t offset, off_t size, unsigned flags)
{
    const bool is_last = is_last_call();

    if (!world.has_no_fsync)
        syscall(SYS_sync_file_range, fd, offset, size, flags);
    die_if(is_last);
    return 0;
}

static int
rename_with(int folder, const char *from, const char *to, unsigned flags)
{
    const bool is_last = is_last_call();
    const int result = (int)syscall(SYS_renameat2, folder, from, folder, to, flags);

    die_if(is_last);
    if (result == 0)
        note_name(POWER_RENAME, folder, from, to);
    return result;
}

int
renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    (void)to_folder;
    return rename_with(from_folder, from, to, 0);
}

int
renameat2(int from_folder, const char *from, int to_folder, const char *to,
          unsigned flags)
{
    (void)to_folder;
    return rename_with(from_folder, from, to, flags);
}

int
unlinkat(int folder, const char *name, int flags)
{
    const bool is_last = is_last_call();
    const int result = (int)syscall(SYS_unlinkat, folder, name, flags);

    die_if(is_last);
    if (result == 0)
        note_name((flags & AT_REMOVEDIR) != 0 ? POWER_REMOVE_FOLDER : POWER_UNLINK, folder,
                  name, "");
    return result;
}

int
mkdirat(int folder, const char *name, mode_t mode)
{
    const bool is_last = is_last_call();
    const int result = (int)syscall(SYS_mkdirat, folder, name, mode);

    die_if(is_last);
    if (result == 0 && name[0] != '/') /* the output itself is made before it is logged */
        note_name(POWER_MAKE_FOLDER, folder, name, "");
    return result;
}

int
fchmod(int fd, mode_t mode)
{
    const bool is_last = is_last_call();
    const int result = (int)syscall(SYS_fchmod, fd, mode);

    die_if(is_last);
    return result;
}

int
fstatvfs(int fd, struct statvfs *out)
{
    struct stat state;

    if (fstat(fd, &state) != 0)
        return -1;
    memset(out, 0, sizeof *out);
    if (!world.is_lying)
        return statvfs(fixture_format("/proc/self/fd/%d", fd), out);
    out->f_blocks = out->f_bavail = 1 << 30;
    out->f_frsize = 4096;
    return 0;
}

/* -------------------------------------------------------------------- checking */

/* What a crash may leave, and that the same command then gives the new model. */
static bool
is_recovered(const char *folder, bool had_old)
{
    const written_view view = written_look(folder);
    written_run run = { .folder = folder, .overwrite = had_old, .resume = true };
    berth_error error;

    if (!CHECK_NE(view, WRITTEN_BROKEN))
        return false;
    /* A whole new model without a journal needs nothing any more. */
    if (view == WRITTEN_NEW
        && access(fixture_format("%s/.berth-journal.json", folder), F_OK) != 0)
        run.overwrite = true;
    return CHECK_EQ(written_do(&run, context, &error), BERTH_OK)
           && CHECK(written_is_clean(folder, had_old));
}

/* ---------------------------------------------------------------------- killed */

/* A run in a child that dies at `kill_at`; false: it came to its end. */
static bool
is_killed(const char *folder, bool overwrite, uint64_t kill_at)
{
    const pid_t child = fork();
    int how = 0;

    if (child == 0) {
        written_run run = { .folder = folder, .overwrite = overwrite };

        world.kill_at = kill_at;
        world.is_counting = true;
        _exit(written_do(&run, context, NULL) == BERTH_OK ? 0 : 1);
    }
    if (!CHECK_GT(child, 0) || !CHECK_EQ(waitpid(child, &how, 0), child))
        return false;
    if (WIFEXITED(how))
        CHECK_EQ(WEXITSTATUS(how), 0);
    return WIFSIGNALED(how);
}

static uint64_t
kill_everywhere(bool had_old)
{
    const char *const above = fixture_folder();
    uint64_t points = 0;
    bool was_killed = true;

    world.has_no_fsync = true;
    for (uint64_t at = 0; was_killed; at++) {
        char folder[4096];

        snprintf(folder, sizeof folder, "%s/%d", above, (int)at);
        if (had_old)
            written_make_old(folder);
        was_killed = is_killed(folder, had_old, at);
        points += was_killed;
        if (!is_recovered(folder, had_old)) {
            T_NOTE("killed at point %d", (int)at);
            break;
        }
        fixture_remove(folder);
    }
    world.has_no_fsync = false;
    return points;
}

static void
test_killed_at_every_call(void)
{
    const uint64_t fresh = kill_everywhere(false);
    const uint64_t replacing = kill_everywhere(true);

    CHECK_GE(fresh + replacing, 300);
    T_NOTE("killed at %d points of a new output, %d of one that replaces", (int)fresh,
           (int)replacing);
}

/* The second run dies, too, wherever it is, and the third comes to the end. */
static void
test_killed_twice(void)
{
    const char *const above = fixture_folder();
    uint64_t points = 0;

    world.has_no_fsync = true;
    for (uint64_t first = 5; first < 400; first += 31) {
        for (uint64_t second = 3; second < 300; second += 41) {
            char folder[4096];
            pid_t child;

            snprintf(folder, sizeof folder, "%s/out", above);
            written_make_old(folder);
            if (!is_killed(folder, true, first))
                break;
            child = fork();
            if (child == 0) {
                written_run run = { .folder = folder, .resume = true, .overwrite = true };

                world.kill_at = second;
                world.is_counting = true;
                _exit(written_do(&run, context, NULL) == BERTH_OK ? 0 : 1);
            }
            T_REQUIRE(child > 0 && waitpid(child, NULL, 0) == child);
            points++;
            if (!is_recovered(folder, true)) {
                T_NOTE("killed at %d, then at %d", (int)first, (int)second);
                return;
            }
            fixture_remove(folder);
        }
    }
    world.has_no_fsync = false;
    T_NOTE("killed twice at %d pairs of points", (int)points);
}

static void
test_killed_at_random(void)
{
    const char *const above = fixture_folder();
    int killed = 0;

    for (int round = 0; round < 200; round++) {
        char folder[4096];
        pid_t child;
        int how;

        snprintf(folder, sizeof folder, "%s/%d", above, round);
        if (round % 2 == 0)
            written_make_old(folder);
        child = fork();
        T_REQUIRE(child >= 0);
        if (child == 0) {
            written_run run = { .folder = folder, .overwrite = round % 2 == 0 };

            world.has_no_fsync = round % 4 < 2;
            _exit(written_do(&run, context, NULL) == BERTH_OK ? 0 : 1);
        }
        usleep((useconds_t)(round * 37 % 3000));
        CHECK_EQ(kill(child, SIGKILL), 0);
        T_REQUIRE(waitpid(child, &how, 0) == child);
        killed += WIFSIGNALED(how);
        world.has_no_fsync = true;
        if (!is_recovered(folder, round % 2 == 0))
            break;
        world.has_no_fsync = false;
        fixture_remove(folder);
    }
    T_NOTE("killed %d times of 200 before the end", killed);
}

/* ------------------------------------------------------------------ power loss */

static uint64_t
count_words(const char *text, const char *word)
{
    uint64_t count = 0;

    while ((text = strstr(text, word)) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* One state: what is seen, what a resumed run has to do, what it makes. */
static bool
is_state_right(power_disk *disk, const char *folder, bool had_old)
{
    const char *const journal = power_text(disk, ".berth-journal.json");
    const uint64_t listed = count_words(journal, "\"temporary\"");
    const bool is_publishing = strstr(journal, "\"publishing\"") != NULL;
    written_run run = { .folder = folder, .overwrite = had_old, .resume = true };
    written_view view;
    berth_error error;

    power_store(disk, folder);
    view = written_look(folder);
    if (!CHECK_NE(view, WRITTEN_BROKEN))
        return false;
    /* Where there was an old model there is one, or a journal to go on with. */
    if (had_old && !CHECK(view != WRITTEN_NOTHING || is_publishing))
        return false;
    if (view == WRITTEN_NEW && journal[0] == '\0')
        return CHECK(written_is_clean(folder, had_old));
    if (!CHECK_EQ(written_do(&run, context, &error), BERTH_OK)
        || !CHECK(written_is_clean(folder, had_old)))
        return false;
    if (is_publishing)
        return CHECK_EQ(run.created, 0);
    /* The last file's name may be younger than the last flush of the folder. */
    return CHECK_EQ(run.created + run.found, WRITTEN_FILES)
           && CHECK_GE(run.found + 1, listed) && CHECK_LE(run.found, listed);
}

#define MAX_SEEN 65536u
#define ROUNDS 56 /* states of each moment */

static bool
is_seen(uint64_t *seen, uint64_t digest)
{
    uint64_t at = digest % MAX_SEEN;

    while (seen[at] != 0 && seen[at] != digest)
        at = (at + 1) % MAX_SEEN;
    if (seen[at] == digest)
        return true;
    seen[at] = digest;
    return false;
}

/* What is done to a folder from open to close; `before`: what it held. */
static power_log *
record_run(const char *folder, bool had_old, power_disk *before)
{
    written_run run = { .folder = folder, .overwrite = had_old };
    power_log *const log = power_log_create();

    if (had_old)
        written_make_old(folder);
    power_load(before, folder);
    CHECK(realpath(folder, world.folder) != NULL);
    world.log = log;
    CHECK_EQ(written_do(&run, context, NULL), BERTH_OK);
    world.log = NULL;
    CHECK(written_is_clean(folder, had_old));
    return log;
}

typedef struct outage {
    power_log *log;
    power_disk *before;
    power_disk *disk;
    uint64_t *seen;
    const char *above; /* folders of states lie here */
    bool had_old;
    uint64_t states;
    uint64_t distinct;
} outage;

/* States of one moment; false: one was wrong. */
static bool
are_states_right(outage *o, uint64_t end)
{
    for (int round = 0; round < ROUNDS; round++) {
        /* Each pair of chances once; after that everything is left to chance. */
        const bool is_pair = round < POWER_CHANCES * POWER_CHANCES;
        const int names = is_pair ? round % POWER_CHANCES : POWER_SOME;
        const int files = is_pair ? round / POWER_CHANCES : POWER_SOME;
        char folder[8192];

        power_lose(o->disk, o->before, o->log, end, (power_chance)names,
                   (power_chance)files);
        o->states++;
        if (is_seen(o->seen, power_digest(o->disk)))
            continue;
        snprintf(folder, sizeof folder, "%s/%d", o->above, (int)o->distinct++);
        if (!CHECK_EQ(mkdir(folder, 0777), 0)
            || !is_state_right(o->disk, folder, o->had_old)) {
            T_NOTE("power lost before operation %d of %d, round %d", (int)end,
                   (int)power_log_count(o->log), round);
            return false;
        }
        fixture_remove(folder);
    }
    return true;
}

/* Once publish has returned there is nothing left to lose. */
static void
check_end(outage *o)
{
    power_lose(o->disk, o->before, o->log, power_log_count(o->log), POWER_NONE,
               POWER_NONE);
    power_store(o->disk, o->above);
    CHECK(written_is_clean(o->above, o->had_old));
}

static void
lose_power(bool had_old)
{
    outage o = {
        .before = power_disk_create(),
        .disk = power_disk_create(),
        .seen = calloc(MAX_SEEN, sizeof *o.seen),
        .above = fixture_folder(),
        .had_old = had_old,
    };
    uint64_t end = 0;

    T_REQUIRE(o.seen != NULL);
    world.has_no_fsync = true;
    o.log = record_run(fixture_folder(), had_old, o.before);
    while (end <= power_log_count(o.log) && are_states_right(&o, end))
        end++;
    check_end(&o);
    world.has_no_fsync = false;
    CHECK_GE(o.distinct, 2500);
    T_NOTE("%d operations, %d states, %d of them different",
           (int)power_log_count(o.log), (int)o.states, (int)o.distinct);
    free(o.seen);
    power_disk_destroy(o.disk);
    power_disk_destroy(o.before);
    power_log_destroy(o.log);
}

static void
test_power_loss_of_a_new_output(void)
{
    lose_power(false);
}

static void
test_power_loss_while_replacing(void)
{
    lose_power(true);
}

/* -------------------------------------------------------------------- full disk */

/* In a child with a mount of its own: 0, 77 (may not mount), or what went wrong. */
static int
fill_disks(const char *folder, bool is_lying, int *full)
{
    char size[64];

    if (unshare(CLONE_NEWNS) != 0
        || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 77;
    world.has_no_fsync = true;
    for (int step = 0; step < 72; step++) {
        written_run run = { .folder = folder, .overwrite = true };
        berth_error error;
        berth_status status;

        snprintf(size, sizeof size, "size=%dk", 24 + step);
        if (mount("none", folder, "tmpfs", 0, size) != 0)
            return 77;
        written_make_old(folder);
        world.is_lying = is_lying;
        status = written_do(&run, context, &error);
        if (status != BERTH_OK) {
            ++*full;
            if (error.reason != BERTH_REASON_DISK_FULL || error.file[0] == '\0')
                return 2;
            if (written_look(folder) != WRITTEN_OLD)
                return 3;
            if (mount("none", folder, "tmpfs", MS_REMOUNT, "size=1m") != 0)
                return 4;
            run.resume = true;
            if (written_do(&run, context, &error) != BERTH_OK)
                return 5;
        }
        if (!written_is_clean(folder, true))
            return 6;
        world.is_lying = false;
        if (umount(folder) != 0)
            return 7;
    }
    return *full >= 4 && *full < 72 ? 0 : 8;
}

static void
check_full(bool is_lying)
{
    const char *const folder = fixture_folder();
    const pid_t child = fork();
    int how;

    T_REQUIRE(child >= 0);
    if (child == 0) {
        int full = 0;

        _exit(fill_disks(folder, is_lying, &full));
    }
    CHECK_EQ(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
        T_SKIP("this process may not mount");
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
}

static void
test_full_disk(void)
{
    check_full(false);
}

/* It says there is room until a write fails. */
static void
test_disk_that_is_full_late(void)
{
    check_full(true);
}

int
main(int argc, char **argv)
{
    /* Renames that replace wait for the disk on some file systems. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_killed_at_every_call);
    T_RUN(test_killed_twice);
    T_RUN(test_killed_at_random);
    T_RUN(test_power_loss_of_a_new_output);
    T_RUN(test_power_loss_while_replacing);
    T_RUN(test_full_disk);
    T_RUN(test_disk_that_is_full_late);
    berth_context_destroy(context);
    T_MAIN_END;
}
