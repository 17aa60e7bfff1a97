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

            CHECK_EQ(look(&r, bytes, idle_ns[i]), idle_ns[i] > 5 * MS ? 16 : 8);
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

    for (uint32_t i = 0; i < 5; i++) {
        const bool has_gained = rates[i] > 1030;
        run r = begin(8, 64);

        CHECK_EQ(look(&r, 1000, PERIOD), 16);
        CHECK_EQ(look(&r, rates[i], PERIOD), has_gained ? 32 : 8);
        CHECK_EQ(r.tune.is_settled, !has_gained);
        CHECK_EQ(berthi_tune_is_due(&r.tune, UINT64_MAX), has_gained);
    }
}

/* Where consumers had enough, the rate is theirs: it is no gain, and no lack of one. */
static void
test_periods_that_say_nothing(void)
{
    run r = begin(8, 64);

    CHECK_EQ(look(&r, 1000, PERIOD), 16);
    for (uint64_t bytes = 0; bytes <= 2000; bytes += 500) {
        CHECK_EQ(look(&r, bytes, 5 * MS), 16);
        CHECK(!r.tune.is_settled);
    }
    CHECK_EQ(look(&r, 1200, PERIOD), 32);
}

static void
test_gain_is_since_the_last_step(void)
{
    run r = begin(8, 64);

    CHECK_EQ(look(&r, 1000, PERIOD), 16);
    CHECK_EQ(look(&r, 1200, PERIOD), 32);
    CHECK_EQ(look(&r, 1230, PERIOD), 16);
    CHECK(r.tune.is_settled);
}

static void
test_ends_where_the_ring_does(void)
{
    for (uint64_t has_gained = 0; has_gained < 2; has_gained++) {
        run r = begin(8, 18);

        CHECK_EQ(look(&r, 1000, PERIOD), 16);
        CHECK_EQ(look(&r, 2000, PERIOD), 18);
        CHECK(!r.tune.is_settled); /* the last step, too, is one that may gain nothing */
        CHECK_EQ(look(&r, 2000 + 100 * has_gained, PERIOD), has_gained ? 18 : 16);
        CHECK(r.tune.is_settled);
    }
}

static void
test_many(void)
{
    run r = begin(UINT32_MAX - 1, UINT32_MAX);

    CHECK_EQ(look(&r, 1, PERIOD), UINT32_MAX);
}

/* As long as nothing is read there is no rate to compare with: it goes on to the end. */
static void
test_nothing_read(void)
{
    run r = begin(8, 17);

    CHECK_EQ(look(&r, 0, PERIOD), 16);
    CHECK_EQ(look(&r, 0, PERIOD), 17);
    CHECK_EQ(look(&r, 0, PERIOD), 17);
    CHECK(r.tune.is_settled);
}

/* ---------------------------------------------------------------------------- runs */

/* Of a ring of pages. */
typedef struct wish {
    uint32_t stages;
    bool is_tuned;
    uint32_t workers;
    uint64_t pages;
    haul_tricks trick;
} wish;

/* Stages at the end of a run of `chunk_count` chunks; `*out_most`: that were used at once. */
static uint32_t
stages_of(wish asked, uint64_t chunk_count, uint32_t *out_most)
{
    const uint64_t size = chunk_count * 4096;
    berth_memory memory;
    uint32_t stages;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.ring_bytes = asked.pages * 4096;
    h.options.stages = asked.stages;
    h.options.is_tuned = asked.is_tuned;
    h.options.workers = asked.workers;
    haul_trick = asked.trick;
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    stages = h.stats.stages;
    CHECK_EQ(berth_memory_get(h.context, 0, BERTH_MEMORY_STAGING, &memory), BERTH_OK);
    *out_most = (uint32_t)(memory.peak_bytes / 4096);
    haul_trick = (haul_tricks){ .delay_ns = 0 };
    haul_end(&h);
    return stages;
}

static void
test_what_is_asked_for(void)
{
    static const struct {
        wish asked;
        uint32_t used;
    } cases[] = {
        { { 3, true, 2, 16, { 0 } }, 3 },
        { { 3, true, 2, 16, { .delay_ns = 3 * MS } }, 3 }, /* where more would be tried */
        { { 3, false, 2, 16, { 0 } }, 3 },
        { { 1, true, 2, 16, { 0 } }, 1 },
        { { 17, true, 2, 16, { 0 } }, 16 }, /* what the ring has room for */
        { { 0, false, 2, 16, { 0 } }, 16 },
    };

    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t most;

        CHECK_EQ(stages_of(cases[i].asked, 200, &most), cases[i].used);
        CHECK_LE(most, cases[i].used);
    }
}

/*
 * Two for each worker: one that it has, one that is on its way; in bounds. On a busy machine
 * a run is now and then long enough to try more, and there are more tries.
 */
static void
test_what_a_ring_begins_with(void)
{
    static const uint32_t workers[] = { 1, 2, 3, 4, 5, 64 };
    static const uint32_t stages[] = { 4, 4, 6, 8, 8, 8 };
    uint32_t most;

    for (uint32_t i = 0; i < 6; i++) {
        const wish asked = { 0, true, workers[i], 64, { 0 } };
        uint32_t first = stages_of(asked, 100, &most);

        for (int tries = 1; tries < T_CANCEL_TRIES && (first != stages[i] || most > first);
             tries++)
            first = stages_of(asked, 100, &most);
        CHECK_EQ(first, stages[i]);
        CHECK_LE(most, stages[i]);
    }
    CHECK_EQ(stages_of((wish){ 0, true, 2, 3, { 0 } }, 100, &most), 3);
}

/*
 * Reads that come back one by one are no faster for more of them. On a busy machine a period is
 * now and then faster by itself, one more is kept for it, and there are more tries.
 */
static void
test_more_is_given_back(void)
{
    const wish asked = { 0, true, 2, 64, { .delay_ns = 5 * MS } };
    uint32_t most;
    uint32_t stages = stages_of(asked, 200, &most);

    for (int tries = 1; tries < T_CANCEL_TRIES && (stages > 8 || most < 2 * stages); tries++)
        stages = stages_of(asked, 200, &most);
    CHECK_GE(stages, 4);
    CHECK_LE(stages, 8);
    CHECK_GE(most, 2 * stages); /* tried, and left alone since */
}

/*
 * And those that all take the same time, however many they are, are. A busy machine has periods
 * that are slower by themselves, and gets more tries.
 */
static void
test_more_is_kept(void)
{
    const wish asked = { 0, true, 2, 32, { .latency_ns = 20 * MS } };
    uint32_t stages = 0;
    uint32_t most;

    for (int tries = 0; tries < T_CANCEL_TRIES && stages != 32; tries++)
        stages = stages_of(asked, 1200, &most);
    CHECK_EQ(stages, 32);
    CHECK_EQ(most, 32);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_begins);
    T_RUN(test_first_period);
    T_RUN(test_gain);
    T_RUN(test_periods_that_say_nothing);
    T_RUN(test_gain_is_since_the_last_step);
    T_RUN(test_ends_where_the_ring_does);
    T_RUN(test_many);
    T_RUN(test_nothing_read);
    T_RUN(test_what_is_asked_for);
    T_RUN(test_what_a_ring_begins_with);
    T_RUN(test_more_is_given_back);
    T_RUN(test_more_is_kept);
    T_MAIN_END;
}
