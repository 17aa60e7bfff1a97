/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_writer_crash.c - a set of files whose writer is killed, runs out of disk
 * or loses power, at every point: afterwards there is the old model, or the new
 * one, or none and a journal, and the same command with `resume` gives the same
 * files.
 *
 * A power loss is a state that a file system may show after it: of what no flush
 * has made durable any part may be there, writes cut anywhere.
 */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/crash_calls.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/written.h"

static berth_context *context;

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

/* A run, as crash.h wants it. */
static bool
do_run(void *user)
{
    return written_do(user, context, NULL) == BERTH_OK;
}

static uint64_t
kill_everywhere(bool had_old)
{
    const char *const above = fixture_folder();
    uint64_t points = 0;
    bool was_killed = true;

    for (uint64_t at = 0; was_killed; at++) {
        const char *const folder = fixture_format("%s/%d", above, (int)at);
        written_run run = { .folder = folder, .overwrite = had_old };

        if (had_old)
            written_make_old(folder);
        was_killed = crash_is_killed(do_run, &run, at);
        points += was_killed;
        if (!is_recovered(folder, had_old)) {
            T_NOTE("killed at point %d", (int)at);
            break;
        }
        fixture_remove(folder);
    }
    return points;
}

static void
test_killed_at_every_call(void)
{
    uint64_t fresh;
    uint64_t replacing;

    crash.has_no_fsync = true;
    fresh = kill_everywhere(false);
    replacing = kill_everywhere(true);
    crash.has_no_fsync = false;
    CHECK_GE(fresh + replacing, 300);
    T_NOTE("killed at %d points of a new output, %d of one that replaces", (int)fresh,
           (int)replacing);
}

/* The second run dies, too, wherever it is, and the third comes to the end. */
static void
test_killed_twice(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    written_run run = { .folder = folder, .overwrite = true };
    written_run again = { .folder = folder, .overwrite = true, .resume = true };
    uint64_t points = 0;

    crash.has_no_fsync = true;
    for (uint64_t first = 5; first < 400; first += 31) {
        for (uint64_t second = 3; second < 300; second += 41) {
            written_make_old(folder);
            if (!crash_is_killed(do_run, &run, first))
                break;
            (void)crash_is_killed(do_run, &again, second);
            points++;
            if (!is_recovered(folder, true)) {
                T_NOTE("killed at %d, then at %d", (int)first, (int)second);
                return;
            }
            fixture_remove(folder);
        }
    }
    crash.has_no_fsync = false;
    T_NOTE("killed twice at %d pairs of points", (int)points);
}

static void
test_killed_at_random(void)
{
    const char *const above = fixture_folder();
    int killed = 0;

    for (uint32_t round = 0; round < 200; round++) {
        const char *const folder = fixture_format("%s/%u", above, round);
        written_run run = { .folder = folder, .overwrite = round % 2 == 0 };

        if (run.overwrite)
            written_make_old(folder);
        crash.has_no_fsync = round % 4 < 2;
        killed += crash_is_killed_after(do_run, &run, round * 37 % 3000);
        crash.has_no_fsync = true;
        if (!is_recovered(folder, run.overwrite))
            break;
        fixture_remove(folder);
    }
    crash.has_no_fsync = false;
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
is_state_right(void *user, power_disk *disk, const char *folder)
{
    const bool had_old = ((const written_run *)user)->overwrite;
    const char *const journal = power_text(disk, ".berth-journal.json");
    const uint64_t listed = count_words(journal, "\"temporary\"");
    const bool is_publishing = strstr(journal, "\"publishing\"") != NULL;
    written_run run = { .folder = folder, .overwrite = had_old, .resume = true };
    const written_view view = written_look(folder);
    berth_error error;

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

static bool
is_whole(void *user, const char *folder)
{
    return written_is_clean(folder, ((const written_run *)user)->overwrite);
}

static void
lose_power(bool had_old)
{
    written_run run = { .folder = fixture_folder(), .overwrite = had_old };
    crash_power power = {
        .user = &run,
        .folder = run.folder,
        .run = do_run,
        .is_right = is_state_right,
        .is_whole = is_whole,
        .rounds = 56,
    };

    if (had_old)
        written_make_old(run.folder);
    crash_lose_power(&power);
    CHECK_GE(power.distinct, 2500);
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

static void
prepare_disk(void *user)
{
    written_make_old(((const written_run *)user)->folder);
}

static berth_status
run_on_disk(void *user, bool resume, berth_error *error)
{
    written_run *const run = user;

    run->resume = resume;
    return written_do(run, context, error);
}

static bool
is_old(void *user)
{
    return written_look(((const written_run *)user)->folder) == WRITTEN_OLD;
}

static bool
is_new(void *user)
{
    return written_is_clean(((const written_run *)user)->folder, true);
}

static void
check_full(bool is_lying)
{
    written_run run = { .folder = fixture_folder(), .overwrite = true };
    const crash_command command = {
        .user = &run,
        .folder = run.folder,
        .prepare = prepare_disk,
        .run = run_on_disk,
        .is_unharmed = is_old,
        .is_right = is_new,
    };
    int too_small;

    crash.is_lying = is_lying;
    too_small = crash_fill_disks(&command, 24, 1, 72);
    crash.is_lying = false;
    if (too_small < 0)
        T_SKIP("this process may not mount");
    CHECK_GE(too_small, 4);
    CHECK_LT(too_small, 72);
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
