/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tune.c - when a ring gets more buffers: every side of every limit of the rule, and
 * what runs make of it.
 */
#include "loader/tune.h"

#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define MS UINT64_C(1000000)
#define PERIOD (250 * MS)

/* Periods of 250 ms, one behind the other. */
typedef struct run {
    berthi_tune tune;
    berthi_tune_sample now;
} run;

static run
begin(uint32_t stages, uint32_t most)
{
    run r = { .now.now_ns = 7 * MS };

    berthi_tune_begin(&r.tune, stages, most, r.now.now_ns);
    return r;
}

static uint32_t
look(run *r, uint64_t bytes, uint64_t idle_ns)
{
    r->now.now_ns += PERIOD;
    r->now.bytes += bytes;
    r->now.idle_ns += idle_ns;
    return berthi_tune_look(&r->tune, &r->now);
}

static void
test_begins(void)
{
    run r = begin(8, 32);

    CHECK_EQ(r.tune.stages, 8);
    CHECK(!r.tune.is_settled);
    CHECK(!berthi_tune_is_due(&r.tune, 7 * MS));
    CHECK(!berthi_tune_is_due(&r.tune, 7 * MS + PERIOD - 1));
    CHECK(berthi_tune_is_due(&r.tune, 7 * MS + PERIOD));
    for (uint32_t most = 1; most <= 8; most++) { /* nothing to find out */
        r = begin(8, most);
        CHECK_EQ(r.tune.stages, most);
        CHECK(!berthi_tune_is_due(&r.tune, UINT64_MAX));
    }
}

/* All that one period can be, before any step. */
static void
test_first_period(void)
{
    static const uint64_t idle_ns[] = { 0, 5 * MS, 5 * MS + 1, PERIOD };

    for (uint32_t i = 0; i < 4; i++)
        for (uint64_t bytes = 0; bytes <= 1000; bytes += 500) {
            run r = begin(8, 32);

            CHECK_EQ(look(&r, bytes, idle_ns[i]), idle_ns[i] > 5 * MS ? 12 : 8);
            CHECK(!r.tune.is_settled);
            CHECK(!berthi_tune_is_due(&r.tune, r.now.now_ns + PERIOD - 1));
            CHECK(berthi_tune_is_due(&r.tune, r.now.now_ns + PERIOD));
        }
}

/* And of the one behind a step: rates in thousandths of that before it. */
static void
test_gain(void)
{
    static const uint64_t rates[] = { 0, 1000, 1029, 1031, 2000 };

    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t is_idle = 0; is_idle < 2; is_idle++) {
            const bool has_gained = rates[i] > 1030;
            run r = begin(8, 32);

            CHECK_EQ(look(&r, 1000, PERIOD), 12);
            CHECK_EQ(look(&r, rates[i], is_idle * PERIOD), has_gained && is_idle ? 16 : 12);
            CHECK_EQ(r.tune.is_settled, !has_gained);
        }
}

/* A period that is neither ends nothing: what comes behind it is held against the same. */
static void
test_gain_is_since_the_last_step(void)
{
    run r = begin(8, 32);

    CHECK_EQ(look(&r, 1000, PERIOD), 12);
    CHECK_EQ(look(&r, 1500, 0), 12);
    CHECK_EQ(look(&r, 1200, PERIOD), 16);
    CHECK_EQ(look(&r, 1230, PERIOD), 16);
    CHECK(r.tune.is_settled);
    CHECK(!berthi_tune_is_due(&r.tune, UINT64_MAX));
}

static void
test_ends_where_the_ring_does(void)
{
    run r = begin(8, 18);
    uint64_t bytes = 1000;

    CHECK_EQ(look(&r, bytes, PERIOD), 12);
    CHECK_EQ(look(&r, bytes *= 2, PERIOD), 16);
    CHECK(!r.tune.is_settled);
    CHECK_EQ(look(&r, bytes *= 2, PERIOD), 18);
    CHECK(r.tune.is_settled);
    r = begin(8, UINT32_MAX);
    r.tune.stages = UINT32_MAX - 1;
    CHECK_EQ(look(&r, 1, PERIOD), UINT32_MAX);
}

/* As long as nothing is read there is no rate to compare with: it goes on to the end. */
static void
test_nothing_read(void)
{
    run r = begin(8, 17);

    CHECK_EQ(look(&r, 0, PERIOD), 12);
    CHECK_EQ(look(&r, 0, PERIOD), 16);
    CHECK_EQ(look(&r, 0, PERIOD), 17);
    CHECK(r.tune.is_settled);
}

/* ---------------------------------------------------------------------------- runs */

/* 200 chunks of a page, one read of each at a time; stages at the end, and at most. */
static uint32_t
stages_of(uint32_t asked, bool is_tuned, uint64_t ring_chunks, uint64_t delay_ns)
{
    const uint64_t size = 200 * 4096;
    berth_memory memory;
    uint32_t stages;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.ring_bytes = ring_chunks * 4096;
    h.options.stages = asked;
    h.options.is_tuned = is_tuned;
    haul_trick = (haul_tricks){ .delay_ns = delay_ns };
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    stages = h.stats.stages;
    CHECK_EQ(berth_memory_get(h.context, 0, BERTH_MEMORY_STAGING, &memory), BERTH_OK);
    CHECK_LE(memory.peak_bytes, stages * UINT64_C(4096));
    haul_trick = (haul_tricks){ .delay_ns = 0 };
    haul_end(&h);
    return stages;
}

static void
test_what_is_asked_for(void)
{
    CHECK_EQ(stages_of(3, true, 16, 0), 3);
    CHECK_EQ(stages_of(3, true, 16, 3 * MS), 3); /* also where more would be tried */
    CHECK_EQ(stages_of(3, false, 16, 0), 3);
    CHECK_EQ(stages_of(1, true, 16, 0), 1);
    CHECK_EQ(stages_of(17, true, 16, 0), 16); /* what the ring has room for */
    CHECK_EQ(stages_of(0, false, 16, 0), 16);
    CHECK_EQ(stages_of(0, true, 5, 3 * MS), 5);
}

/* Reads that come back one by one are no faster for more of them: four are tried. */
static void
test_what_is_found(void)
{
    const uint32_t stages = stages_of(0, true, 64, 5 * MS);

    CHECK_GE(stages, 12);
    CHECK_LT(stages, 24); /* on a busy machine a period is now and then faster by itself */
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_begins);
    T_RUN(test_first_period);
    T_RUN(test_gain);
    T_RUN(test_gain_is_since_the_last_step);
    T_RUN(test_ends_where_the_ring_does);
    T_RUN(test_nothing_read);
    T_RUN(test_what_is_asked_for);
    T_RUN(test_what_is_found);
    T_MAIN_END;
}
