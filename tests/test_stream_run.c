/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stream_run.c - how long passes take: against figures of a simulation that shares no
 * code with this one, and against sums that hold for any passes.
 */
#include "placement/stream.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/t.h"

#define LAYERS 80u
#define RATE UINT64_C(1000000000)

/* Milliseconds of a link of RATE. */
static uint64_t
bytes_of(double milliseconds)
{
    return (uint64_t)(milliseconds * 1e6 + 0.5);
}

static berth_context *
context_of_test(void)
{
    static berth_context *context;

    if (context == NULL)
        CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    return context;
}

static bool
is_near(double actual, double expected, double part)
{
    const bool held = fabs(actual - expected) <= part * fabs(expected);

    if (!held)
        T_NOTE("%.9g, expected %.9g", actual, expected);
    return held;
}

static berthi_stream_time
run(const berthi_stream_passes *passes)
{
    berthi_stream_time time;

    CHECK_EQ(berthi_stream_run(context_of_test(), passes, &time, NULL), BERTH_OK);
    return time;
}

static berthi_stream_time
run_steps(const berthi_stream_step *steps, uint32_t count, uint32_t slots)
{
    const berthi_stream_line line = { RATE, slots };
    const berthi_stream_passes passes = { steps, count, &line, 1, 0, 0 };

    return run(&passes);
}

/* 80 layers, `streamed` of them evenly spread. */
static berthi_stream_time
run_even(uint32_t streamed, double copy, double compute, uint32_t slots)
{
    berthi_stream_step steps[LAYERS] = { { 0 } };
    uint32_t due = LAYERS / 2;

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].compute = compute / 1000;
        due += streamed;
        if (due >= LAYERS) {
            due -= LAYERS;
            steps[i].host_bytes = bytes_of(copy);
        }
    }
    return run_steps(steps, LAYERS, slots);
}

/* How much longer than its bound, the largest of three: computing, a link, the disk. */
static double
ratio(const berthi_stream_time *time)
{
    const double bound = fmax(fmax(time->compute_seconds, time->link_seconds),
                              time->disk_seconds);

    return time->seconds / bound;
}

static void
test_even(void)
{
    for (uint32_t streamed = 1; streamed <= LAYERS; streamed++) {
        const berthi_stream_time decode = run_even(streamed, 8.03, 0.2, 2);
        const berthi_stream_time two = run_even(streamed, 10, 8, 2);
        const berthi_stream_time three = run_even(streamed, 10, 8, 3);
        const berthi_stream_time prefill = run_even(streamed, 10, 12, 2);

        CHECK(is_near(ratio(&decode), 1, 1e-3));
        CHECK(is_near(decode.link_seconds, streamed * 8.03e-3, 1e-9));
        CHECK(is_near(decode.compute_seconds, 0.016, 1e-9));
        CHECK_EQ(decode.bound, streamed * 8.03 > 16.0);
        CHECK(is_near(ratio(&three), 1, 1e-3));
        CHECK(is_near(ratio(&prefill), 1, 1e-3));
        /* The worst is where both take as long: four of five, and a bubble of c/2. */
        CHECK(ratio(&two) <= 1.1 + 1e-9);
        if (streamed * 10 <= LAYERS * 6)
            CHECK(is_near(ratio(&two), 1, 1e-3));
    }
}

static double
residents_first(double copy, double compute)
{
    berthi_stream_step steps[LAYERS] = { { 0 } };
    berthi_stream_time time;

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].compute = compute / 1000;
        steps[i].host_bytes = i < LAYERS / 2 ? 0 : bytes_of(copy);
    }
    time = run_steps(steps, LAYERS, 2);
    return ratio(&time);
}

static void
test_residents_first(void)
{
    double worst = 0;

    CHECK(is_near(residents_first(8.03, 0.02), 1.00, 0.005));
    CHECK(is_near(residents_first(18, 2), 1.07, 0.01));
    CHECK(is_near(residents_first(8.2, 2), 1.21, 0.01));
    CHECK(is_near(residents_first(18, 9), 1.48, 0.01));
    for (uint32_t i = 1; i < 100; i++)
        worst = fmax(worst, residents_first(10, i / 5.0));
    CHECK(is_near(worst, 1.475, 1e-9));
}

static void
test_slots(void)
{
    static const double expected[] = { 8.0 / 6, 7.0 / 6, 1 };
    berthi_stream_step steps[LAYERS] = { { 0 } };
    berthi_stream_time time;

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].compute = i % 4 == 3 ? 0.03 : 0.01;
        steps[i].host_bytes = bytes_of(i % 4 == 3 ? 30 : 10);
    }
    for (uint32_t slots = 2; slots <= 4; slots++) {
        time = run_steps(steps, LAYERS, slots);
        CHECK(is_near(ratio(&time), expected[slots - 2], 0.01));
    }
    for (uint32_t streamed = 1; streamed <= LAYERS; streamed++) {
        time = run_even(streamed, 8, 3, 1);
        CHECK(is_near(time.seconds, fmax(0.24, streamed * 0.011),
                      LAYERS % streamed == 0 ? 1e-9 : 0.06));
        CHECK(time.seconds == run_even(streamed, 8, 3, 0).seconds);
    }
}

/* --------------------------------------------------------------------- disk */

#define DISK_RATE (RATE / 4)

/* Every `every`-th of 80 layers comes from the disk, others from host memory or not. */
static berthi_stream_time
run_disk(uint32_t every, uint64_t host, uint64_t disk, double compute, uint64_t ring)
{
    berthi_stream_step steps[LAYERS] = { { 0 } };
    const berthi_stream_line line = { RATE, 2 };
    const berthi_stream_passes passes = { steps, LAYERS, &line, 1, DISK_RATE, ring };

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].compute = compute;
        if (i % every == every - 1)
            steps[i].disk_bytes = disk;
        else
            steps[i].host_bytes = host;
    }
    return run(&passes);
}

static void
test_disk(void)
{
    const uint64_t unit = 1000000; /* 1 ms of the link, 4 of the disk */
    berthi_stream_time time = run_disk(1, 0, unit, 0.0001, 0);

    CHECK(is_near(time.seconds, LAYERS * 0.004, 1e-9));
    CHECK(is_near(time.disk_seconds, LAYERS * 0.004, 1e-9));
    CHECK(is_near(time.link_seconds, LAYERS * 0.001, 1e-9));
    CHECK_EQ(time.bound, 2);
    /* Every fifth: 4 ms of reading behind 5 of copies, if as much fits ahead. */
    time = run_disk(5, unit, unit, 0.0001, unit);
    CHECK(is_near(time.seconds, LAYERS * 0.001, 1e-9));
    CHECK_EQ(time.bound, 1);
    CHECK(is_near(time.disk_seconds, 16 * 0.004, 1e-9));
    /* Half of it: the rest of a unit is read once its copy has begun. */
    time = run_disk(5, unit, unit, 0.0001, unit / 2);
    CHECK(is_near(time.seconds, 16 * (0.004 + 0.002), 1e-9));
    /* Nearly nothing: 4 ms each. */
    time = run_disk(5, unit, unit, 0.0001, 1);
    CHECK(is_near(time.seconds, 16 * (0.004 + 0.004), 1e-4));
    /* A ring larger than a pass is as good as one of a pass. */
    time = run_disk(5, unit, unit, 0.0001, 1000 * unit);
    CHECK(is_near(time.seconds, LAYERS * 0.001, 1e-9));
    time = run_disk(5, unit, unit, 0.005, 1000 * unit);
    CHECK(is_near(time.seconds, LAYERS * 0.005, 1e-9));
    CHECK_EQ(time.bound, 0);
    /* The first pass begins with empty slots and an empty ring. */
    CHECK(is_near(time.first_seconds, LAYERS * 0.005 + 0.001, 1e-9));
    time = run_disk(1, 0, unit, 0.005, 0);
    CHECK(is_near(time.first_seconds, LAYERS * 0.005 + 0.004, 1e-9));
    CHECK(is_near(time.seconds, LAYERS * 0.005, 1e-9));
}

/* All units of the disk at the end of the pass: the ring bridges the others. */
static void
test_disk_ring(void)
{
    const uint64_t unit = 1000000;
    berthi_stream_step steps[LAYERS] = { { 0 } };
    const berthi_stream_line line = { RATE, 2 };
    double before = INFINITY;

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].compute = 0.0001;
        steps[i].host_bytes = i < 64 ? unit : 0;
        steps[i].disk_bytes = i < 64 ? 0 : unit;
    }
    for (uint32_t units = 1; units <= 17; units++) {
        const berthi_stream_passes passes = { steps, LAYERS, &line, 1, DISK_RATE,
                                              units * unit };
        const berthi_stream_time time = run(&passes);
        /* The others take 64 ms, which is reading of 16 units; 16 copies take 16. */
        const double waits = units < 13 ? (16 - units) * 0.004 - 0.016 + 0.004 : 0;

        CHECK(time.seconds <= before + 1e-12);
        CHECK(time.seconds >= 0.08 - 1e-12);
        CHECK(is_near(time.seconds, 0.08 + (waits > 0 ? waits : 0), 0.06));
        before = time.seconds;
    }
    CHECK(is_near(before, 0.08, 1e-9));
}

/* -------------------------------------------------------------------- experts */

static void
test_experts(void)
{
    berthi_stream_step steps[LAYERS] = { { 0 } };
    berthi_stream_time time;

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].compute = 0.001;
        steps[i].demand_host = 500000;
    }
    time = run_steps(steps, LAYERS, 2);
    CHECK(is_near(time.seconds, LAYERS * 0.0015, 1e-9));
    CHECK(is_near(time.link_seconds, LAYERS * 0.0005, 1e-9));
    CHECK_EQ(time.bound, 0);
    /* Units that need what experts and computing leave of the link. */
    for (uint32_t i = 0; i < LAYERS; i++)
        steps[i].host_bytes = 1000000;
    time = run_steps(steps, LAYERS, 2);
    CHECK(is_near(time.seconds, LAYERS * 0.0015, 1e-9));
    CHECK_EQ(time.bound, 1);
    for (uint32_t i = 0; i < LAYERS; i++)
        steps[i].host_bytes = 1200000;
    time = run_steps(steps, LAYERS, 2);
    CHECK(is_near(time.seconds, LAYERS * 0.0017, 1e-9)); /* the link never rests */
    time = run_steps(steps, LAYERS, 1);
    CHECK(is_near(time.seconds, LAYERS * 0.0027, 1e-9)); /* the slot is taken until then */
}

static void
test_experts_of_disk(void)
{
    berthi_stream_step steps[4] = { { 0 } };
    const berthi_stream_line line = { RATE, 2 };
    const berthi_stream_passes passes = { steps, 4, &line, 1, DISK_RATE, 0 };
    berthi_stream_time time;

    for (uint32_t i = 0; i < 4; i++) {
        steps[i].compute = 0.001;
        steps[i].demand_disk = 1000000;
    }
    time = run(&passes);
    CHECK(is_near(time.seconds, 4 * 0.005, 1e-9));
    CHECK(is_near(time.disk_seconds, 4 * 0.004, 1e-9));
    CHECK(is_near(time.link_seconds, 4 * 0.001, 1e-9));
    CHECK_EQ(time.bound, 2);
    steps[1].demand_host = 2000000; /* copied first */
    time = run(&passes);
    CHECK(is_near(time.seconds, 4 * 0.005 + 0.002, 1e-9));
    steps[1].demand_host = 0;
    steps[3].disk_bytes = 2000000; /* 8 ms of reading have to wait for 16 */
    time = run(&passes);
    CHECK(time.seconds >= 0.024 - 1e-12);
    CHECK(time.seconds <= 0.028);
    steps[3].disk_bytes = 0;
    for (uint32_t i = 0; i < 4; i++) /* a disk faster than the link: that counts */
        steps[i].demand_disk = 100000;
    time = run(&(berthi_stream_passes){ steps, 4, &line, 1, 10 * RATE, 0 });
    CHECK(is_near(time.seconds, 4 * 0.0011, 1e-9));
}

/* ------------------------------------------------------------- several devices */

/* Two devices with half of the layers each: both links work all the time. */
static void
test_devices(void)
{
    berthi_stream_step steps[LAYERS] = { { 0 } };
    berthi_stream_line lines[] = { { RATE, 2 }, { 2 * RATE, 2 }, { RATE, 4 } };
    const berthi_stream_passes passes = { steps, LAYERS, lines, 3, 0, 0 };
    berthi_stream_time time;

    for (uint32_t i = 0; i < LAYERS; i++) {
        steps[i].device = i % 2;
        steps[i].host_bytes = bytes_of(8);
        steps[i].compute = 0.0001;
    }
    time = run(&passes);
    CHECK(is_near(time.seconds, 40 * 0.008, 1e-9));
    CHECK(is_near(time.link_seconds, 40 * 0.008, 1e-9));
    CHECK_EQ(time.busiest_line, 0);
    CHECK_EQ(time.bound, 1);
    for (uint32_t i = 0; i < LAYERS; i++)
        steps[i].device = i < 10 ? 0 : 1;
    time = run(&passes);
    CHECK(is_near(time.link_seconds, 70 * 0.004, 1e-9));
    CHECK_EQ(time.busiest_line, 1);
    CHECK(time.seconds >= 70 * 0.004 - 1e-12);
    CHECK(time.seconds <= 70 * 0.004 + 10 * 0.008);
    lines[1].slots = 8; /* ahead of its layers while the other device computes */
    CHECK(run(&passes).seconds < time.seconds);
    lines[1].slots = 800; /* no more than the maximum */
    CHECK(run(&passes).seconds > 70 * 0.004);
}

static uint64_t random_state = 7;

static uint64_t
random_below(uint64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

/* Whatever the passes: no resource does more than it can; more of it never harms. */
static void
test_bounds(void)
{
    for (uint32_t turn = 0; turn < 2000; turn++) {
        berthi_stream_step steps[24] = { { 0 } };
        berthi_stream_line lines[3];
        berthi_stream_passes passes = { steps, 1 + (uint32_t)random_below(24), lines, 3,
                                        1 + random_below(300), random_below(200) };
        double demand = 0;
        double bytes = 0;
        berthi_stream_time time;
        berthi_stream_time again;
        const uint64_t kinds = random_below(4);

        for (uint32_t i = 0; i < 3; i++)
            lines[i] = (berthi_stream_line){ 1 + random_below(1000),
                                             (uint32_t)random_below(5) };
        for (uint32_t i = 0; i < passes.step_count; i++) {
            steps[i].device = (uint32_t)random_below(3);
            steps[i].compute = (double)random_below(100) / 100;
            if (random_below(3) > 0)
                steps[i].host_bytes = random_below(100);
            if ((kinds & 1) != 0 && random_below(3) == 0)
                steps[i].disk_bytes = random_below(100);
            if ((kinds & 2) != 0 && random_below(3) == 0)
                steps[i].demand_host = random_below(100);
            if (kinds == 3 && random_below(3) == 0)
                steps[i].demand_disk = random_below(100);
            demand += (double)(steps[i].demand_host + steps[i].demand_disk)
                      / (double)lines[steps[i].device].rate;
            bytes += (double)(steps[i].host_bytes + steps[i].disk_bytes)
                     / (double)lines[steps[i].device].rate;
        }
        time = run(&passes);
        CHECK(ratio(&time) >= 1 - 1e-9 || time.seconds == 0);
        CHECK(time.seconds >= (time.compute_seconds + demand) * (1 - 1e-9));
        CHECK(time.first_seconds >= time.compute_seconds * (1 - 1e-9));
        /* Never longer than one after the other. */
        CHECK(time.seconds <= (time.compute_seconds + demand + bytes
                               + 2 * time.disk_seconds) * (1 + 1e-9));
        again = run(&passes);
        CHECK_MEM(&again, &time, sizeof again);
        if (kinds == 0) {
            lines[0].slots += 2;
            CHECK(run(&passes).seconds <= time.seconds * (1 + 1e-9));
            CHECK(run(&passes).first_seconds <= time.first_seconds * (1 + 1e-9));
        }
    }
}

/* ------------------------------------------------------------------- failures */

static berth_status
run_once(void *user, berth_context *context, berth_error *error)
{
    const berthi_stream_passes *const passes = user;
    berthi_stream_time none;
    berthi_stream_time time;
    berth_status status;

    memset(&none, 0, sizeof none);
    status = berthi_stream_run(context, passes, &time, error);
    if (status != BERTH_OK)
        CHECK_MEM(&time, &none, sizeof time);
    return status;
}

static void
test_faults(void)
{
    berthi_stream_step steps[2] = { { .host_bytes = 1 }, { .disk_bytes = 1 } };
    const berthi_stream_line line = { RATE, 2 };
    berthi_stream_passes passes = { steps, 2, &line, 1, RATE, 0 };
    const fault_counts counts = fault_loop("run", run_once, &passes);

    CHECK_GE(counts.memory, 2);
    CHECK_EQ(counts.survived, 0);
}

static void
test_nothing(void)
{
    const berthi_stream_line line = { 0, 0 };
    const berthi_stream_passes none = { NULL, 0, NULL, 0, 0, 0 };
    const berthi_stream_step step = { .host_bytes = 3 };
    berthi_stream_time time = run(&none);

    CHECK(time.seconds == 0 && time.first_seconds == 0);
    CHECK_EQ(time.bound, 0);
    time = run(&(berthi_stream_passes){ &step, 1, &line, 1, 0, 0 });
    CHECK(is_near(time.seconds, 3, 1e-9)); /* no rate is a byte a second */
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_even);
    T_RUN(test_residents_first);
    T_RUN(test_slots);
    T_RUN(test_disk);
    T_RUN(test_disk_ring);
    T_RUN(test_experts);
    T_RUN(test_experts_of_disk);
    T_RUN(test_devices);
    T_RUN(test_bounds);
    T_RUN(test_faults);
    T_RUN(test_nothing);
    T_MAIN_END;
}
