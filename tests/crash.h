/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash.h - processes that die, disks that are full and power that fails, at a
 * chosen moment.
 *
 * The calls that change a file system stand in crash_calls.h before the C
 * library's: they count, kill the process at a given one and keep a log for
 * power.h.
 */
#ifndef BERTH_TESTS_CRASH_H
#define BERTH_TESTS_CRASH_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tests/power.h"

/* What the disk does from now on. */
typedef struct crash_disk {
    bool has_no_fsync; /* flushes cost nothing: nobody pulls this plug */
    bool is_lying;     /* nothing is reserved, and there is always room */
    uint64_t room;     /* bytes that seem to be free; 0: those that are */
    bool has_failing_fsync; /* of a file, once: whoever is told resets it */
} crash_disk;

extern crash_disk crash;

/* What may be broken off: everything from begin to end; false: it has failed. */
typedef bool (*crash_function)(void *user);

/*
 * Runs the function in a child that is killed with SIGKILL. By crash_is_killed():
 * at its `at`-th point. Each call has two, before it and in the middle of it, or
 * behind it where it has none. By crash_is_killed_after(): after so many
 * microseconds. False: it came to its end, which is checked to be a good one.
 */
bool crash_is_killed(crash_function function, void *user, uint64_t at);
bool crash_is_killed_after(crash_function function, void *user, uint32_t us);

/* 1 where T_THOROUGH is set: then loops leave no point out. Else `step`. */
uint64_t crash_step(uint64_t step);

/* A run that loses its power. The functions get `user`. */
typedef struct crash_power {
    void *user;
    const char *folder; /* what the run works on; it may hold something before */
    crash_function run; /* checked to succeed */
    /* What is in a folder, `disk`, is allowed, and the command goes on from there. */
    bool (*is_right)(void *user, power_disk *disk, const char *folder);
    bool (*is_whole)(void *user, const char *folder); /* what the run has returned with */
    int rounds;         /* states of each moment */
    uint64_t operations, states, distinct; /* counted here */
} crash_power;

/* Looks at states of all moments, and at what is left when it has returned. */
void crash_lose_power(crash_power *power);

/* A command on disks of many sizes. Its functions get `user`. */
typedef struct crash_command {
    void *user;
    const char *folder;               /* where disks are mounted */
    void (*prepare)(void *user);      /* what stands on the disk before; NULL: nothing */
    berth_status (*run)(void *user, bool resume, berth_error *error);
    bool (*is_unharmed)(void *user);  /* what a failure leaves */
    bool (*is_right)(void *user);     /* what a success gives */
    /* In the end, on a disk of the smallest size that has sufficed; NULL: nothing. */
    bool (*is_resumed)(void *user);
} crash_command;

/*
 * The command on disks of `first`, `first` + `step`, ... kilobytes: it fails with
 * DISK_FULL, or succeeds; `resume` with more room then succeeds, too. Returns how
 * many were too small; -1: this process may not mount.
 */
int crash_fill_disks(const crash_command *command, int first, int step, int count);

/* ------------------------------------------------------- for crash_calls.h */

/* Before a call: true when the process is to die halfway through it. */
bool crash_is_last_call(void);
void crash_die_if(bool is_last);
/* Of what has been done, where a log is kept. */
void crash_note_name(power_kind kind, int fd, const char *name, const char *to);
void crash_note_bytes(power_kind kind, int fd, int64_t offset, const void *bytes,
                      int64_t length);
void crash_note_flush(int fd);

#endif
