/* SPDX-License-Identifier: Apache-2.0 */
/* simt_race.c - see simt_race.h. The sanitizer's runtime has these functions, or nobody has. */
#include "tests/simt_race.h"

#include <stddef.h>
#include <stdio.h>

#include "tests/simt_machine.h"

#define UNORDERED 1u /* a fiber knows nothing of the one before it */

void *__tsan_get_current_fiber(void) __attribute__((weak));
void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void *fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));
void __tsan_set_fiber_name(void *fiber, const char *name) __attribute__((weak));
void __tsan_acquire(void *address) __attribute__((weak));
void __tsan_release(void *address) __attribute__((weak));
void __tsan_write_range(void *address, unsigned long bytes) __attribute__((weak));

static struct {
    void *caller; /* NULL: no launch goes on, or nobody watches */
    bool has_any;
    bool is_told; /* no more are */
    void *lanes[SIMT_MOST_THREADS];
} race;

bool
simt_sees_races(void)
{
    return __tsan_create_fiber != NULL;
}

/* Each launch is told of its own races, whichever the one before had. */
const char *__tsan_default_options(void) __attribute__((visibility("default")));

const char *
__tsan_default_options(void)
{
    return "suppress_equal_stacks=0:suppress_equal_addresses=0";
}

/* The sanitizer asks it of every report: true, nothing is printed. Of a launch one is enough. */
bool on_report(const void *report, bool is_suppressed)
    __asm__("_ZN6__tsan8OnReportEPKNS_10ReportDescEb") __attribute__((visibility("default")));

bool
on_report(const void *report, bool is_suppressed)
{
    (void)report;
    if (race.caller == NULL || is_suppressed)
        return is_suppressed;
    simt_complain(SIMT_RACE);
    race.has_any = true;
    is_suppressed = race.is_told;
    race.is_told = true;
    return is_suppressed;
}

void
simt_race_begin(bool is_racy)
{
    race.is_told = is_racy;
    race.has_any = false;
    race.caller = simt_sees_races() ? __tsan_get_current_fiber() : NULL;
}

bool
simt_race_end(void)
{
    race.caller = NULL;
    return race.has_any;
}

static void *
new_lane(uint32_t number)
{
    void *const lane = __tsan_create_fiber(0);
    char name[16];

    snprintf(name, sizeof name, "lane %u", (unsigned)number);
    __tsan_set_fiber_name(lane, name);
    return lane;
}

/* The caller knows what all of them have done before, and they what it has. */
void
simt_race_begin_lane(uint32_t lane)
{
    if (race.caller == NULL)
        return;
    if (race.lanes[lane] == NULL)
        race.lanes[lane] = new_lane(lane);
    __tsan_switch_to_fiber(race.lanes[lane], 0);
    __tsan_switch_to_fiber(race.caller, UNORDERED);
}

/* One that hangs is within functions for good: the next one is another. */
void
simt_race_end_lane(uint32_t lane, bool has_ended)
{
    if (race.caller == NULL)
        return;
    __tsan_switch_to_fiber(race.lanes[lane], UNORDERED);
    __tsan_switch_to_fiber(race.caller, 0);
    if (has_ended)
        return;
    __tsan_destroy_fiber(race.lanes[lane]);
    race.lanes[lane] = NULL;
}

void
simt_race_enter_lane(uint32_t lane)
{
    if (race.caller != NULL)
        __tsan_switch_to_fiber(race.lanes[lane], UNORDERED);
}

void
simt_race_leave_lane(void)
{
    if (race.caller != NULL)
        __tsan_switch_to_fiber(race.caller, UNORDERED);
}

void
simt_race_tell(simt_told *told)
{
    if (race.caller != NULL)
        __tsan_release(told);
}

void
simt_race_learn(simt_told *told)
{
    if (race.caller != NULL)
        __tsan_acquire(told);
}

void
simt_race_write(void *memory, uint32_t bytes)
{
    if (race.caller != NULL)
        __tsan_write_range(memory, bytes);
}
