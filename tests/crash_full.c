/* SPDX-License-Identifier: Apache-2.0 */
/* crash_full.c - disks that are full, in a process with mounts of its own. */
#define _GNU_SOURCE

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base.h"
#include "tests/crash.h"
#include "tests/t.h"

/* What comes back from the process that mounts. */
typedef struct fill_result {
    bool may_mount;
    int too_small;
    int wrong_size; /* kilobytes of a disk on which something went wrong; 0: none */
    int what;       /* line that found it */
} fill_result;

#define HOLDS(condition)                \
    do {                                \
        if (!(condition)) {             \
            result->what = __LINE__;    \
            return;                     \
        }                               \
    } while (0)

static bool
can_mount(const crash_command *command, unsigned long flags, int kilobytes)
{
    char size[64];

    snprintf(size, sizeof size, "size=%dk", kilobytes);
    return mount("none", command->folder, "tmpfs", flags, size) == 0;
}

/* One size; `what` is 0 when all was right. */
static void
fill_disk(const crash_command *command, int kilobytes, fill_result *result)
{
    berth_error error;

    HOLDS(can_mount(command, 0, kilobytes));
    if (command->prepare != NULL)
        command->prepare(command->user);
    if (command->run(command->user, false, &error) != BERTH_OK) {
        result->too_small++;
        HOLDS(error.reason == BERTH_REASON_DISK_FULL && error.file[0] != '\0');
        HOLDS(command->is_unharmed(command->user));
        HOLDS(can_mount(command, MS_REMOUNT, 1024));
        HOLDS(command->run(command->user, true, &error) == BERTH_OK);
    }
    HOLDS(command->is_right(command->user));
    HOLDS(umount(command->folder) == 0);
}

/* What is finished needs no room twice. */
static void
resume_on_full_disk(const crash_command *command, int kilobytes, fill_result *result)
{
    HOLDS(can_mount(command, 0, kilobytes));
    HOLDS(command->is_resumed(command->user));
    HOLDS(command->is_right(command->user));
    HOLDS(umount(command->folder) == 0);
}

static void
fill_disks(const crash_command *command, int first, int step, int count,
           fill_result *result)
{
    int enough = 0;

    if (unshare(CLONE_NEWNS) != 0
        || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || !can_mount(command, 0, first) || umount(command->folder) != 0)
        return;
    result->may_mount = true;
    for (int i = 0; i < count && result->what == 0; i++) {
        const int before = result->too_small;

        result->wrong_size = first + i * step;
        fill_disk(command, result->wrong_size, result);
        if (enough == 0 && result->too_small == before)
            enough = result->wrong_size;
    }
    if (result->what == 0 && command->is_resumed != NULL) {
        result->wrong_size = enough;
        resume_on_full_disk(command, enough, result);
    }
}

int
crash_fill_disks(const crash_command *command, int first, int step, int count)
{
    fill_result result = { .may_mount = false };
    int pipes[2];
    int how = -1;
    pid_t child;

    if (!CHECK_EQ(pipe(pipes), 0))
        return 0;
    child = fork();
    if (child == 0) {
        crash.has_no_fsync = true;
        fill_disks(command, first, step, count, &result);
        _exit(write(pipes[1], &result, sizeof result) == sizeof result ? 0 : 1);
    }
    close(pipes[1]);
    CHECK_EQ(read(pipes[0], &result, sizeof result), sizeof result);
    close(pipes[0]);
    CHECK(child > 0 && waitpid(child, &how, 0) == child);
    CHECK_EQ(how, 0);
    if (!result.may_mount)
        return -1;
    if (!CHECK_EQ(result.what, 0))
        T_NOTE("on a disk of %d KiB", result.wrong_size);
    return result.too_small;
}
