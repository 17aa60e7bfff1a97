/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_crash.c - parts and joins that are killed, run out of memory or disk,
 * lose power, or whose system calls fail, at every point: afterwards there is the
 * old model, the new one, or none, and what died, run again alone with `resume`,
 * makes the files of one process.
 */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "tests/crash_calls.h"
#include "tests/fixture.h"
#include "tests/parted.h"
#include "tests/t.h"

/* That the scenes are what they are called. */
static void
test_undisturbed(void)
{
    for (size_t i = 0; i < PARTED_SCENES; i++) {
        parted_work w = parted_prepare(
            &parted_scenes[i], fixture_format("%s/out", fixture_folder()), i % 2 > 0);

        CHECK(parted_do(&w));
        CHECK(converted_is_same(parted_scenes[i].whole, w.folder));
        if (!CHECK_EQ(w.copies, parted_scenes[i].copies))
            T_NOTE("%s", parted_scenes[i].name);
    }
}

/* ---------------------------------------------------------------------- killed */

static uint64_t
kill_everywhere(const parted_scene *s, bool has_old, uint64_t step)
{
    const char *const above = fixture_folder();
    uint64_t points = 0;
    bool was_killed = true;

    for (uint64_t at = parted_first(s, step); was_killed; at += crash_step(step)) {
        parted_work w =
            parted_prepare(s, fixture_format("%s/%d", above, (int)at), has_old);

        was_killed = crash_is_killed(parted_do, &w, at);
        points += was_killed;
        if (!parted_is_recovered(&w)) {
            T_NOTE("%s, killed at point %d in part %u: %s", s->name, (int)at, w.resumed,
                   w.folder);
            break;
        }
        fixture_remove(w.folder);
    }
    return points;
}

static void
test_killed_at_every_call(void)
{
    for (size_t i = 0; i < PARTED_SCENES; i++) {
        const uint64_t fresh = kill_everywhere(&parted_scenes[i], false, 17);
        const uint64_t replacing = kill_everywhere(&parted_scenes[i], true, 29);

        CHECK_GE(fresh, 8);
        CHECK_GE(replacing, 5);
        T_NOTE("%s: killed at %d points of a new output, %d of one that replaces",
               parted_scenes[i].name, (int)fresh, (int)replacing);
    }
}

/* What goes on dies, too, and so does what goes on with that. */
static void
test_killed_again(void)
{
    const char *const above = fixture_folder();
    int points = 0;

    for (uint64_t first = 20; first < 400; first += crash_step(61)) {
        for (uint64_t second = 9; second < 300; second += 53 * crash_step(2) / 2) {
            const parted_scene *const s =
                &parted_scenes[(first + second) % PARTED_SCENES];
            parted_work w = parted_prepare(
                s, fixture_format("%s/%d-%d", above, (int)first, (int)second),
                second % 2 > 0);

            points += crash_is_killed(parted_do, &w, first);
            w.resumed = *w.at;
            points += crash_is_killed(parted_do, &w, second);
            w.resumed = *w.at;
            points += crash_is_killed(parted_do, &w, second + 17);
            if (!parted_is_recovered(&w)) {
                T_NOTE("%s, killed at %d and %d: %s", s->name, (int)first, (int)second,
                       w.folder);
                return;
            }
            fixture_remove(w.folder);
        }
    }
    T_NOTE("killed %d times", points);
}

static void
check_refused(const parted_scene *s, const char *folder, uint32_t part,
              uint32_t part_count, const char *words)
{
    converted c;

    parted_begin(s, &c, folder);
    c.options.part = part;
    c.options.part_count = part_count;
    c.options.join = part == 0 && part_count > 0;
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, parted_model), BERTH_EINVAL);
    CHECK_EQ(c.error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(c.error.message, words);
}

/* A join is no run of one process, and neither goes on with the other. */
static void
test_what_is_not_resumed(void)
{
    const parted_scene *const s = &parted_scenes[0];
    const char *const above = fixture_folder();
    parted_work w = { .scene = s };
    bool has_journal = false;
    converted c;

    for (uint64_t at = 200; !has_journal && at < 1000; at += 3) {
        w = parted_prepare(s, fixture_format("%s/%d", above, (int)at), false);
        CHECK(crash_is_killed(parted_do, &w, at));
        has_journal =
            access(fixture_format("%s/.berth-journal.json", w.folder), F_OK) == 0;
    }
    T_REQUIRE(has_journal);
    check_refused(s, w.folder, 0, 0, "there \"joined from 2 parts\", now \"\"");
    check_refused(s, w.folder, 0, 3,
                  "there \"joined from 2 parts\", now \"joined from 3");
    check_refused(s, w.folder, 1, 3, "joined from 2 parts");
    parted_begin(s, &c, w.folder);
    c.options.overwrite = 1;
    CHECK_EQ(converted_run(&c, parted_model), BERTH_OK);
    CHECK(converted_is_same(s->whole, w.folder));
}

/* ------------------------------------------------------------------- power loss */

/* All parts lose their power, and all are told to go on. */
static bool
is_state_right(void *user, power_disk *disk, const char *folder)
{
    const parted_work *const before = user;
    const bool has_old = before->overwrite;
    parted_work w = { .scene = before->scene,
                      .folder = folder,
                      .overwrite = has_old,
                      .resume = true,
                      .at = before->at };
    const converted_view seen = parted_look(&w);
    const bool has_journal = power_text(disk, ".berth-journal.json")[0] != '\0';

    *w.at = 0;
    if (!CHECK_NE(seen, CONVERTED_BROKEN)
        || !CHECK(!has_old || seen != CONVERTED_NOTHING || has_journal))
        return false;
    if (CHECK_EQ(parted_run_all(&w), BERTH_OK))
        return converted_is_same(w.scene->whole, folder);
    T_NOTE("part %u: %s %s", *w.at, w.error.file, w.error.message);
    return false;
}

static bool
is_whole(void *user, const char *folder)
{
    return converted_is_same(((const parted_work *)user)->scene->whole, folder);
}

static void
test_power_loss(void)
{
    for (size_t i = 0; i < PARTED_SCENES; i++) {
        parted_work w = parted_prepare(&parted_scenes[i], fixture_folder(), i % 2 > 0);
        crash_power power = {
            .user = &w,
            .folder = w.folder,
            .run = parted_do,
            .is_right = is_state_right,
            .is_whole = is_whole,
            .rounds = crash_step(2) == 1 ? 56 : 1,
        };

        T_NOTE("%s", parted_scenes[i].name);
        crash_lose_power(&power);
        CHECK_GE(power.distinct, power.operations / 3);
    }
}

/* ----------------------------------------------------------------------- faults */

/* One failure; false behind the last. */
static bool
is_failed(parted_work *w, berthi_fault_kind kind, uint64_t nth, bool is_persistent)
{
    berth_status status;
    bool was_armed;

    berthi_fault_arm(kind, nth, is_persistent);
    status = parted_run_all(w);
    was_armed = berthi_fault_failures(kind) > 0;
    berthi_fault_disarm();
    if (kind == BERTHI_FAULT_MEMORY)
        CHECK(status == BERTH_OK || status == BERTH_ENOMEM);
    CHECK_NE(status, BERTH_EINTERNAL);
    if (status != BERTH_OK) {
        CHECK_EQ(berthi_reason_status(w->error.reason), status);
        CHECK_NE(w->error.message[0], '\0');
    }
    CHECK(was_armed || status == BERTH_OK);
    return was_armed;
}

static uint64_t
fail_everywhere(const parted_scene *s, berthi_fault_kind kind, bool is_persistent,
                uint64_t step)
{
    const char *const above = fixture_folder();
    uint64_t failures = 0;
    bool was_armed = true;

    for (uint64_t nth = parted_first(s, step); was_armed; nth += crash_step(step)) {
        parted_work w =
            parted_prepare(s, fixture_format("%s/%d", above, (int)nth), nth % 3 == 0);

        was_armed = is_failed(&w, kind, nth, is_persistent);
        failures += was_armed;
        if (!parted_is_recovered(&w)) {
            T_NOTE("%s, failure %d in part %u: %s", s->name, (int)nth, w.resumed,
                   w.folder);
            break;
        }
        fixture_remove(w.folder);
    }
    return failures;
}

static void
fail_in_all_scenes(const char *what, berthi_fault_kind kind, uint64_t step)
{
    uint64_t failures = 0;

    for (size_t i = 0; i < PARTED_SCENES; i++)
        failures += fail_everywhere(&parted_scenes[i], kind, false, step)
                    + fail_everywhere(&parted_scenes[i], kind, true, 2 * step + 1);
    CHECK_GT(failures, 30);
    T_NOTE("%d %s failed", (int)failures, what);
}

static void
test_failing_allocations(void)
{
    CHECK_GT(fail_everywhere(&parted_scenes[2], BERTHI_FAULT_MEMORY, false, 1), 200);
    fail_in_all_scenes("allocations", BERTHI_FAULT_MEMORY, 61);
}

static void
test_failing_system_calls(void)
{
    fail_in_all_scenes("system calls", BERTHI_FAULT_SYSTEM, 41);
}

/* -------------------------------------------------------------------- full disk */

static void
prepare_disk(void *user)
{
    const parted_work *const w = user;

    *w->at = 0;
    if (w->overwrite)
        fixture_copy_folder(parted_old_model, w->folder);
}

static berth_status
run_on_disk(void *user, bool resume, berth_error *error)
{
    parted_work *const w = user;
    berth_status status;

    w->resumed = *w->at;
    if (!resume)
        w->resumed = 0;
    status = parted_run_all(w);
    *error = w->error;
    return status;
}

static bool
is_unharmed(void *user)
{
    const parted_work *const w = user;

    return parted_look(w) == (w->overwrite ? CONVERTED_OLD : CONVERTED_NOTHING);
}

static bool
is_new(void *user)
{
    const parted_work *const w = user;

    return converted_is_same(w->scene->whole, w->folder);
}

static void
check_full(bool is_lying)
{
    const int step = (int)crash_step(2);

    for (size_t i = 0; i < PARTED_SCENES; i++) {
        parted_work w = parted_prepare(&parted_scenes[i], fixture_folder(), false);
        const crash_command command = {
            .user = &w,
            .folder = w.folder,
            .prepare = prepare_disk,
            .run = run_on_disk,
            .is_unharmed = is_unharmed,
            .is_right = is_new,
        };
        int too_small;

        w.overwrite = i % 2 > 0; /* the old model is laid on each disk */
        crash.is_lying = is_lying;
        too_small = crash_fill_disks(&command, w.overwrite ? 56 : 8, 4 * step, 24 / step);
        crash.is_lying = false;
        if (too_small < 0)
            T_SKIP("this process may not mount");
        CHECK_GE(too_small, 1);
        CHECK_LT(too_small, 24 / step);
        T_NOTE("%s: %d sizes of a disk, too small %d times", w.scene->name, 24 / step,
               too_small);
    }
}

/* What is not flushed is not noted. */
static void
test_flush_that_fails(void)
{
    const parted_scene *const s = &parted_scenes[3];
    parted_work w =
        parted_prepare(s, fixture_format("%s/out", fixture_folder()), false);
    uint32_t missing;

    crash.has_failing_fsync = true;
    CHECK_EQ(parted_run(&w, 1, false, &missing), BERTH_EIO);
    CHECK(!crash.has_failing_fsync);
    CHECK_CONTAINS(w.error.message, "flushing");
    CHECK_EQ(parted_run(&w, 2, false, &missing), BERTH_OK);
    CHECK_EQ(missing, 1);
    CHECK_EQ(parted_run(&w, 1, true, &missing), BERTH_OK);
    CHECK(converted_is_same(s->whole, w.folder));
}

/* A file that is there has its room: whoever comes second needs no more. */
static void
test_room_is_needed_once(void)
{
    const parted_scene *const s = &parted_scenes[3];
    parted_work w = parted_prepare(s, fixture_format("%s/out", fixture_folder()), false);
    uint32_t missing;

    crash.room = 6000;
    CHECK_EQ(parted_run(&w, 1, false, &missing), BERTH_EIO);
    CHECK_EQ(w.error.reason, BERTH_REASON_DISK_FULL);
    CHECK_GT(w.error.expected, crash.room);
    CHECK_EQ(w.error.actual, crash.room);
    crash.room = w.error.expected;
    CHECK_EQ(parted_run(&w, 1, false, &missing), BERTH_OK);
    crash.room = 6000;
    CHECK_EQ(parted_run(&w, 2, false, &missing), BERTH_OK);
    crash.room = 0;
    CHECK(converted_is_same(s->whole, w.folder));
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
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    crash.has_no_fsync = true;
    parted_make_models();
    T_RUN(test_undisturbed);
    T_RUN(test_killed_at_every_call);
    T_RUN(test_killed_again);
    T_RUN(test_what_is_not_resumed);
    T_RUN(test_power_loss);
    T_RUN(test_failing_allocations);
    T_RUN(test_failing_system_calls);
    T_RUN(test_flush_that_fails);
    T_RUN(test_room_is_needed_once);
    T_RUN(test_full_disk);
    T_RUN(test_disk_that_is_full_late);
    T_MAIN_END;
}
