/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_expert.c - leases of experts: what stays in slots, misuse, places. */
#include <string.h>

#include "tests/experts.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)

/* ------------------------------------------------------------------------- one expert */

/* One expert on the host's stream, and at once. */
static bool
take(leased *l, uint32_t layer, uint32_t number)
{
    return CHECK_EQ(experts_acquire(l, layer, &number, 1, NULL, NULL), BERTH_OK);
}

static void
give(leased *l, uint32_t layer, uint32_t number)
{
    CHECK_EQ(experts_release(l, layer, &number, 1, NULL, NULL), BERTH_OK);
}

static bool
is_cached(const leased *l, uint32_t layer, uint32_t number)
{
    const berthi_lease_expert *const expert =
        berthi_lease_expert_of(l->leases, layer, number);

    return berthi_lease_cache_find(&l->leases->lines[l->leases->experts[layer].line],
                                   expert->unit)
           != NULL;
}

/* ------------------------------------------------------------------------- units */

static void
test_units_are_experts(void)
{
    uint64_t bytes = 0;
    uint32_t units = 0;
    leased l;

    experts_begin(&l, 8);
    for (uint64_t i = 0; i < l.planned.summary.berth_count; i++) {
        const berthi_berth *const berth = &l.planned.plan->berths[i];

        if (berth->is_expert && !berth->is_resident)
            bytes += berth->bytes;
    }
    CHECK_GT(bytes, 0);
    for (uint32_t n = 0; n < EXPERTS_LAYERS; n++) {
        const uint32_t layer = experts_layer(&l, n);

        CHECK_EQ(l.leases->experts[layer].count, EXPERTS_COUNT);
        for (uint32_t e = 0; e < EXPERTS_COUNT; e++) {
            const berthi_lease_expert *const expert =
                berthi_lease_expert_of(l.leases, layer, e);
            const berthi_lease_unit *unit;

            CHECK_EQ(expert->number, e);
            if (expert->unit == BERTHI_NO_UNIT)
                continue;
            unit = &l.leases->units[expert->unit];
            units++;
            bytes -= unit->bytes;
            CHECK_EQ(unit->layer, layer);
            CHECK_EQ(unit->expert, e);
            CHECK_EQ(unit->item_count, 3);
            CHECK_EQ(unit->move_count, 1); /* they lie together */
            CHECK_EQ(unit->moves[0].bytes, unit->bytes);
            CHECK(unit->moves[0].is_pinned);
            for (uint32_t k = 0; k < 3; k++) {
                char name[256];

                (void)berthi_plan_name(l.planned.plan, unit->items[k].berth, name,
                                       sizeof name);
                CHECK_STR(name, fixture_format("model.layers.%u.block_sparse_moe.experts."
                                               "%u.w%u.weight",
                                               n, e, k + 1));
                CHECK_EQ(unit->items[k].offset, k * KIB);
            }
        }
        CHECK(berthi_lease_expert_of(l.leases, layer, EXPERTS_COUNT) == NULL);
        CHECK_EQ(berthi_experts_slots(l.leases, layer), 8);
    }
    CHECK_EQ(units, l.leases->unit_count);
    CHECK_EQ(bytes, 0);
    CHECK_EQ(l.leases->lines[0].slot_bytes, 3 * KIB);
    CHECK_EQ(l.planned.plan->tiers[0].experts_away, units);
    CHECK_EQ(l.planned.plan->tiers[0].expert_slots,
             l.planned.plan->tiers[0].expert_slot_count * 3 * KIB);
    CHECK_LT(l.planned.plan->tiers[0].free, 3 * KIB);
    leased_end(&l);
}

/* Weights of several parts, of another encoding. */
static void
test_experts_in_nf4(void)
{
    const leased_options options = { .memory = "0=300KiB,cpu=64MiB", .batch = 4 };
    uint32_t numbers[EXPERTS_COUNT];
    uint32_t count;
    leased l;

    leased_begin(&l, leased_moe(EXPERTS_LAYERS, EXPERTS_COUNT, true), &options);
    experts_start(&l);
    count = experts_list_away(&l, experts_layer(&l, 2), numbers);
    CHECK_GE(count, 8);
    for (uint32_t i = 0; i + 8 <= count; i++)
        CHECK_EQ(experts_use(&l, experts_layer(&l, 2), numbers + i, 8, NULL, 0, NULL),
                 BERTH_OK);
    CHECK_EQ(l.compared, (count - 7) * 16);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

static void
test_all_are_resident(void)
{
    const leased_options options = { .memory = "0=64MiB,cpu=64MiB" };
    const uint32_t all[] = { 0, 15, 7 };
    const uint32_t other = EXPERTS_COUNT;
    berth_error error;
    uint32_t layer;
    leased l;

    leased_begin(&l, leased_moe(EXPERTS_LAYERS, EXPERTS_COUNT, false), &options);
    experts_start(&l);
    CHECK_EQ(l.leases->unit_count, 0);
    layer = experts_layer(&l, 1);
    CHECK_EQ(experts_acquire(&l, layer, all, 3, NULL, &error), BERTH_OK);
    CHECK_EQ(experts_prefetch(&l, layer, all, 3), BERTH_OK);
    CHECK_EQ(experts_release(&l, layer, all, 3, NULL, &error), BERTH_OK);
    CHECK_EQ(experts_acquire(&l, layer, &other, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berthi_experts_slots(l.leases, layer), UINT32_MAX);
    CHECK_EQ(experts_summary(&l).experts_acquired, 0);
    CHECK(berthi_leases_find(l.leases, l.planned.plan->layers[layer].out.first_berth)
          == NULL);
    leased_end(&l);
}

/* Experts that somebody has put into host memory, and no room for slots. */
static void
test_no_slots(void)
{
    const leased_options options = { .memory = "0=64MiB,cpu=64MiB",
                                     .pins = { "model.layers.1.block_sparse_moe=cpu" } };
    const uint32_t number = 3;
    berth_error error;
    uint32_t layer;
    leased l;

    leased_begin(&l, leased_moe(EXPERTS_LAYERS, EXPERTS_COUNT, false), &options);
    CHECK_EQ(l.planned.plan->tiers[0].expert_slot_count, EXPERTS_COUNT);
    experts_limit_slots(&l, 0);
    experts_start(&l);
    layer = experts_layer(&l, 1);
    CHECK_EQ(berthi_experts_slots(l.leases, layer), 0);
    CHECK_EQ(berthi_experts_slots(l.leases, experts_layer(&l, 0)), UINT32_MAX);
    CHECK_EQ(experts_acquire(&l, layer, &number, 1, NULL, &error), BERTH_ENOFIT);
    CHECK_EQ(experts_prefetch(&l, layer, &number, 1), BERTH_OK);
    CHECK_EQ(experts_release(&l, layer, &number, 1, NULL, &error), BERTH_EINVAL);
    leased_end(&l);
}

/* ------------------------------------------------------------------------- policy */

static void
test_hits_cost_no_copy(void)
{
    uint32_t numbers[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 3);
    CHECK_GE(experts_list_away(&l, layer, numbers), 5);
    CHECK_EQ(experts_use(&l, layer, numbers, 4, NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(experts_summary(&l).experts_filled, 4);
    CHECK_EQ(experts_summary(&l).expert_bytes, 4 * 3 * KIB);
    for (uint32_t i = 0; i < 10; i++)
        CHECK_EQ(experts_use(&l, layer, numbers, 4, NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(experts_summary(&l).experts_filled, 4);
    CHECK_EQ(experts_summary(&l).expert_bytes, 4 * 3 * KIB);
    CHECK_EQ(experts_summary(&l).expert_hits, 40);
    CHECK_EQ(experts_summary(&l).experts_acquired, 44);
    CHECK_EQ(experts_summary(&l).expert_disk_bytes, 0);
    CHECK_EQ(experts_summary(&l).acquired + experts_summary(&l).filled
                 + experts_summary(&l).copied_bytes,
             0);
    CHECK_EQ(experts_use(&l, layer, numbers + 4, 1, NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(experts_summary(&l).experts_filled, 5);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* The same number of another layer is another expert. */
static void
test_layers_share_slots(void)
{
    uint32_t mine[EXPERTS_COUNT];
    uint32_t others[EXPERTS_COUNT];
    leased l;

    experts_begin(&l, 2);
    (void)experts_list_away(&l, experts_layer(&l, 0), mine);
    (void)experts_list_away(&l, experts_layer(&l, 1), others);
    CHECK_EQ(mine[0], others[0]);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(experts_use(&l, experts_layer(&l, 0), mine, 1, NULL, 0, NULL), BERTH_OK);
        CHECK_EQ(experts_use(&l, experts_layer(&l, 1), others, 1, NULL, 0, NULL),
                 BERTH_OK);
    }
    CHECK_EQ(experts_summary(&l).experts_filled, 2);
    CHECK_EQ(experts_summary(&l).expert_hits, 4);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* What was used least recently goes; what is leased does not. */
static void
test_least_recent_goes(void)
{
    uint32_t n[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin(&l, 3);
    layer = experts_layer(&l, 3);
    (void)experts_list_away(&l, layer, n);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(take(&l, layer, n[i]));
        give(&l, layer, n[i]);
    }
    CHECK(take(&l, layer, n[0])); /* now 1 is the oldest */
    give(&l, layer, n[0]);
    CHECK(take(&l, layer, n[3]));
    CHECK(!is_cached(&l, layer, n[1]));
    CHECK(is_cached(&l, layer, n[0]) && is_cached(&l, layer, n[2]));
    CHECK(take(&l, layer, n[4])); /* 2 is */
    CHECK(!is_cached(&l, layer, n[2]));
    CHECK(take(&l, layer, n[5])); /* 0, though 3 is older: that is leased */
    CHECK(!is_cached(&l, layer, n[0]));
    CHECK(is_cached(&l, layer, n[3]) && is_cached(&l, layer, n[4]));
    leased_end(&l);
}

/* Of eight slots six are protected: those used twice, most recently. */
static void
test_used_twice_is_protected(void)
{
    uint32_t n[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin_with(&l, "0=190KiB,cpu=64MiB", 8, NULL);
    experts_start(&l);
    CHECK_EQ(l.leases->lines[0].slot_count, 8);
    layer = experts_layer(&l, 3);
    CHECK_GE(experts_list_away(&l, layer, n), 12);
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(take(&l, layer, n[i]));
        give(&l, layer, n[i]);
    }
    for (uint32_t i = 0; i < 7; i++) { /* 0 makes place for 6 */
        CHECK(take(&l, layer, n[i]));
        give(&l, layer, n[i]);
    }
    for (uint32_t i = 8; i < 12; i++) { /* 7, 0, 8 and 9 go */
        CHECK(take(&l, layer, n[i]));
        give(&l, layer, n[i]);
    }
    for (uint32_t i = 0; i < 12; i++)
        CHECK_EQ(is_cached(&l, layer, n[i]), (i > 0 && i < 7) || i > 9);
    CHECK(take(&l, layer, n[3])); /* it is there, and was used least recently then */
    give(&l, layer, n[3]);
    for (uint32_t i = 10; i < 12; i++) /* protected in the place of 1 and 2 */
        CHECK(take(&l, layer, n[i]));
    CHECK(take(&l, layer, n[7]));
    CHECK(!is_cached(&l, layer, n[1]));
    CHECK(take(&l, layer, n[8]));
    CHECK(!is_cached(&l, layer, n[2]));
    CHECK(take(&l, layer, n[9])); /* all others are leased: of protected ones 4, not 3 */
    CHECK(!is_cached(&l, layer, n[4]));
    CHECK(is_cached(&l, layer, n[3]) && is_cached(&l, layer, n[5]));
    leased_end(&l);
}

/* ------------------------------------------------- against a model of the cache */

#define UNITS (EXPERTS_LAYERS * EXPERTS_COUNT)

/* Two lists a layer, what goes first in front. No clock, no slots. */
typedef struct model_cache {
    uint32_t slots;
    const berthi_lease_unit *about; /* units */
    uint32_t units[EXPERTS_LAYERS][2][UNITS]; /* [1]: protected */
    uint32_t count[EXPERTS_LAYERS][2];
    uint32_t leases[UNITS];
    uint64_t hits;
    uint64_t fills;
    uint64_t refusals;
} model_cache;

static int
model_find(const model_cache *c, uint32_t unit, uint32_t *out_at)
{
    const uint32_t share = c->about[unit].share;

    for (int list = 0; list < 2; list++)
        for (*out_at = 0; *out_at < c->count[share][list]; ++*out_at)
            if (c->units[share][list][*out_at] == unit)
                return list;
    return -1;
}

static uint32_t
model_remove(model_cache *c, uint32_t share, int list, uint32_t at)
{
    uint32_t *const units = c->units[share][list];
    const uint32_t unit = units[at];

    c->count[share][list]--;
    memmove(&units[at], &units[at + 1], (c->count[share][list] - at) * sizeof unit);
    return unit;
}

static void
model_append(model_cache *c, int list, uint32_t unit)
{
    const uint32_t share = c->about[unit].share;

    c->units[share][list][c->count[share][list]++] = unit;
}

static uint32_t
model_held(const model_cache *c, uint32_t share)
{
    return c->count[share][0] + c->count[share][1];
}

static void
model_hit(model_cache *c, uint32_t unit, int list, uint32_t at)
{
    const uint32_t share = c->about[unit].share;
    const uint32_t most = model_held(c, share) * 3 / 4;

    c->hits++;
    (void)model_remove(c, share, list, at);
    if (list == 0 && c->count[share][1] == 0 && most == 0) {
        model_append(c, 0, unit);
        return;
    }
    if (list == 0 && c->count[share][1] >= most)
        model_append(c, 0, model_remove(c, share, 1, 0));
    model_append(c, 1, unit);
}

/* The first of those that can go; false: there is none. */
static bool
model_has_idle(const model_cache *c, uint32_t share, const bool *is_kept, int *out_list,
               uint32_t *out_at)
{
    for (*out_list = 0; *out_list < 2; ++*out_list)
        for (*out_at = 0; *out_at < c->count[share][*out_list]; ++*out_at) {
            const uint32_t unit = c->units[share][*out_list][*out_at];

            if (!is_kept[unit] && c->leases[unit] == 0)
                return true;
        }
    return false;
}

static void
model_fill(model_cache *c, uint32_t unit, const bool *is_kept)
{
    const uint32_t mine = c->about[unit].share;
    uint32_t all = 0;
    uint32_t giver = EXPERTS_LAYERS;
    int list;
    uint32_t at;

    c->fills++;
    for (uint32_t share = 0; share < EXPERTS_LAYERS; share++) {
        all += model_held(c, share);
        if (model_has_idle(c, share, is_kept, &list, &at)
            && (giver == EXPERTS_LAYERS || model_held(c, share) > model_held(c, giver)))
            giver = share;
    }
    if (all == c->slots) {
        if (model_has_idle(c, mine, is_kept, &list, &at)
            && model_held(c, giver) < model_held(c, mine) + 2)
            giver = mine;
        (void)model_has_idle(c, giver, is_kept, &list, &at);
        (void)model_remove(c, giver, list, at);
    }
    model_append(c, 0, unit);
}

/* False: refused. */
static bool
model_acquire(model_cache *c, const uint32_t *units, uint32_t count)
{
    bool is_kept[UNITS] = { false };
    uint32_t wanted = 0; /* slots: those in use, and those for the request */
    uint32_t at;

    for (uint32_t u = 0; u < UNITS; u++) {
        bool is_named = false;

        for (uint32_t i = 0; i < count; i++)
            is_named |= units[i] == u;
        is_kept[u] = is_named;
        wanted += is_named || c->leases[u] > 0;
    }
    if (wanted > c->slots) {
        c->refusals++;
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const int list = model_find(c, units[i], &at);

        if (list >= 0)
            model_hit(c, units[i], list, at);
        else
            model_fill(c, units[i], is_kept);
    }
    for (uint32_t i = 0; i < count; i++)
        c->leases[units[i]]++;
    return true;
}

typedef struct held_request {
    uint32_t layer;
    uint32_t count;
    uint32_t numbers[EXPERTS_MOST];
    uint32_t units[EXPERTS_MOST];
} held_request;

static void
draw_request(const leased *l, uint64_t *random, uint32_t most, held_request *r)
{
    uint32_t away[EXPERTS_COUNT];
    uint32_t count;

    r->layer = experts_layer(l, (uint32_t)experts_draw(random) % EXPERTS_LAYERS);
    count = experts_list_away(l, r->layer, away);
    r->count = 1 + (uint32_t)experts_draw(random) % most;
    for (uint32_t i = 0; i < r->count; i++) { /* low numbers more often; some twice */
        const uint32_t bound = 1 + (uint32_t)experts_draw(random) % count;

        r->numbers[i] = away[experts_draw(random) % bound];
        r->units[i] = berthi_lease_expert_of(l->leases, r->layer, r->numbers[i])->unit;
    }
}

static void
check_cache(const leased *l, const model_cache *c)
{
    const berthi_lease_line *const line = &l->leases->lines[0];
    uint32_t at;

    CHECK_EQ(experts_summary(l).expert_hits, c->hits);
    CHECK_EQ(experts_summary(l).experts_filled, c->fills);
    for (uint32_t i = 0; i < line->slot_count; i++)
        if (line->slots[i].unit != BERTHI_NO_UNIT
            && !CHECK_EQ(model_find(c, line->slots[i].unit, &at),
                         line->slots[i].is_protected))
            return;
}

static void
follow_model(uint32_t slots, uint32_t requests)
{
    model_cache c = { .slots = slots };
    uint64_t random = slots;
    held_request held[3];
    uint32_t held_count = 0;
    leased l;

    experts_begin(&l, slots);
    c.about = l.leases->units;
    for (uint32_t i = 0; i < requests; i++) {
        held_request r;
        berth_error error;
        bool is_accepted;

        draw_request(&l, &random, slots < 4 ? slots : slots / 2 + 1, &r);
        if (held_count == 3 || (held_count > 0 && experts_draw(&random) % 2 == 0)) {
            const uint32_t which = (uint32_t)experts_draw(&random) % held_count;
            const held_request *const h = &held[which];

            CHECK_EQ(experts_release(&l, h->layer, h->numbers, h->count, NULL, &error),
                     BERTH_OK);
            for (uint32_t k = 0; k < h->count; k++)
                c.leases[h->units[k]]--;
            held[which] = held[--held_count];
        }
        is_accepted = model_acquire(&c, r.units, r.count);
        if (!CHECK_EQ(experts_acquire(&l, r.layer, r.numbers, r.count, NULL, &error),
                      is_accepted ? BERTH_OK : BERTH_ENOFIT))
            break;
        check_cache(&l, &c);
        if (is_accepted)
            held[held_count++] = r;
        for (uint32_t k = 0; k < r.count && is_accepted; k++)
            CHECK_EQ(experts_look_at(&l, r.layer, r.numbers[k], NULL, 0, &error),
                     BERTH_OK);
    }
    CHECK_EQ(l.wrong, 0);
    CHECK_GT(c.hits, requests / 40);
    CHECK_GT(c.fills, requests / 10);
    CHECK_GT(c.refusals, 10);
    leased_end(&l);
}

static void
test_as_a_model_has_it(void)
{
    for (uint32_t slots = 1; slots <= 9; slots++)
        follow_model(slots, 600);
}

/* ------------------------------------------------------------------------- shares */

#define USED 2u /* experts of a token in each layer */

/* The routing of one token: each as likely, or low numbers of `skew` of a hundred. */
static void
route(uint64_t *random, uint32_t skew, uint32_t numbers[USED])
{
    for (uint32_t i = 0; i < USED; i++)
        do
            numbers[i] = (uint32_t)(experts_draw(random) % 100 < skew
                                        ? experts_draw(random) % (EXPERTS_COUNT / 4)
                                        : experts_draw(random) % EXPERTS_COUNT);
        while (i > 0 && numbers[i] == numbers[0]);
}

/* The part of what 600 tokens want that lies in slots; the bytes that are copied. */
static double
decode(uint32_t slots, uint32_t skew, uint32_t without, uint64_t *out_bytes)
{
    const uint32_t warm = 100;
    uint64_t random = slots + skew;
    berth_lease_summary before = { .acquired = 0 };
    berth_lease_summary after;
    leased l;

    experts_begin_with(&l, "0=230KiB,cpu=64MiB", slots,
                       "sim:64MiB,h2d=1GB/s,clock=virtual");
    atomic_store(&berthi_lease_without, without);
    experts_start(&l);
    for (uint32_t token = 0; token < 700; token++) {
        if (token == warm)
            before = experts_summary(&l);
        for (uint32_t n = 0; n < EXPERTS_LAYERS; n++) {
            uint32_t numbers[USED];

            route(&random, skew, numbers);
            CHECK_EQ(experts_acquire(&l, experts_layer(&l, n), numbers, USED, NULL, NULL),
                     BERTH_OK);
            CHECK_EQ(experts_release(&l, experts_layer(&l, n), numbers, USED, NULL, NULL),
                     BERTH_OK);
        }
    }
    after = experts_summary(&l);
    leased_stop(&l);
    atomic_store(&berthi_lease_without, 0);
    leased_end(&l);
    *out_bytes = after.expert_bytes - before.expert_bytes;
    return (double)(after.expert_hits - before.expert_hits)
           / (double)(after.experts_acquired - before.experts_acquired);
}

/* As the plan expects it where all are as likely; better where some are not. */
static void
test_hits_are_as_planned(void)
{
    static const uint32_t slots[] = { 2, 5, 7, 8, 16, 28 };

    for (uint32_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        const double expected = berthi_plan_expert_hits(
            slots[i], EXPERTS_LAYERS * EXPERTS_COUNT, EXPERTS_LAYERS, USED);
        uint64_t bytes;
        const double uniform = decode(slots[i], 0, 0, &bytes);
        const double skewed = decode(slots[i], 60, 0, &bytes);

        T_NOTE("%u slots: %.3f planned, %.3f uniform, %.3f skewed", slots[i], expected,
               uniform, skewed);
        CHECK(uniform > expected - 0.02 && uniform < expected + 0.02);
        CHECK(slots[i] == 2 || skewed > expected + 0.02);
    }
}

/*
 * One row of slots for all layers hits nothing where a token needs more of them, and less
 * where they are few; with many slots and much skew it is as good.
 */
static void
test_shares_hit_more(void)
{
    for (uint32_t slots = 6; slots <= 24; slots += 6)
        for (uint32_t skew = 0; skew <= 60; skew += 30) {
            uint64_t shared_bytes;
            uint64_t bytes;
            const double shared = decode(slots, skew, BERTHI_LEASE_NO_SHARES,
                                         &shared_bytes);
            const double hits = decode(slots, skew, 0, &bytes);

            T_NOTE("%u slots, %u of 100 skewed: %.3f hits, %.3f in one row", slots, skew,
                   hits, shared);
            CHECK(hits > shared - 0.02);
            if (slots < EXPERTS_LAYERS * USED) {
                CHECK(shared < 0.01);
                CHECK(hits > 0.05);
            }
            if (slots <= 12 || skew == 0)
                CHECK_LT(bytes, shared_bytes);
        }
}

static void
test_counts_of_layers(void)
{
    const uint32_t two[] = { 3, 4 };
    berth_expert_counts counts;
    leased l;

    experts_begin(&l, 4);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(experts_use(&l, experts_layer(&l, 1), two, 2, NULL, 0, NULL), BERTH_OK);
        CHECK_EQ(experts_use(&l, experts_layer(&l, 2), two, 1, NULL, 0, NULL), BERTH_OK);
    }
    berthi_experts_count(l.leases, experts_layer(&l, 1), &counts);
    CHECK_EQ(counts.acquired, 6);
    CHECK_EQ(counts.hits, 4);
    CHECK_EQ(counts.slots, 2);
    CHECK_EQ(counts.away, EXPERTS_COUNT);
    berthi_experts_count(l.leases, experts_layer(&l, 2), &counts);
    CHECK_EQ(counts.acquired, 3);
    CHECK_EQ(counts.hits, 2);
    CHECK_EQ(counts.slots, 1);
    berthi_experts_count(l.leases, experts_layer(&l, 3), &counts);
    CHECK_EQ(counts.acquired + counts.hits + counts.slots, 0);
    CHECK_EQ(counts.away, EXPERTS_COUNT);
    berthi_experts_count(l.leases, planned_layer(&l.planned, "lm_head"), &counts);
    CHECK_EQ(counts.away, 0);
    leased_end(&l);
}

/* ----------------------------------------------------------------------- prefetch */

static void
test_prefetch(void)
{
    uint32_t n[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 3);
    (void)experts_list_away(&l, layer, n);
    CHECK_EQ(experts_prefetch(&l, layer, n, 2), BERTH_OK);
    CHECK_EQ(experts_summary(&l).experts_filled, 2);
    CHECK_EQ(experts_summary(&l).experts_acquired, 0);
    CHECK_EQ(experts_prefetch(&l, layer, n, 2), BERTH_OK); /* they are there */
    CHECK_EQ(experts_summary(&l).experts_filled, 2);
    CHECK_EQ(experts_use(&l, layer, n, 2, NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(experts_summary(&l).expert_hits, 2);
    CHECK_EQ(experts_summary(&l).experts_filled, 2);
    for (uint32_t i = 0; i < 4; i++) /* a first use protects nothing */
        CHECK(!l.leases->lines[0].slots[i].is_protected);
    CHECK_EQ(experts_use(&l, layer, n, 1, NULL, 0, NULL), BERTH_OK);
    CHECK(l.leases->lines[0].slots[0].is_protected
          || l.leases->lines[0].slots[1].is_protected);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* What is leased stays, what is wanted is not given away for what is wanted, too. */
static void
test_prefetch_has_little_room(void)
{
    uint32_t n[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 3);
    CHECK_GE(experts_list_away(&l, layer, n), 8);
    CHECK(take(&l, layer, n[0]));
    CHECK(take(&l, layer, n[1]));
    CHECK(take(&l, layer, n[2]));
    give(&l, layer, n[2]);
    CHECK(take(&l, layer, n[2])); /* it is protected */
    give(&l, layer, n[2]);
    CHECK_EQ(experts_prefetch(&l, layer, n + 3, 5), BERTH_OK); /* room for two */
    CHECK(is_cached(&l, layer, n[0]) && is_cached(&l, layer, n[1]));
    CHECK(is_cached(&l, layer, n[3]) && is_cached(&l, layer, n[4]));
    CHECK(!is_cached(&l, layer, n[2]) && !is_cached(&l, layer, n[5]));
    /* 4 is there: room for one. */
    CHECK_EQ(experts_prefetch(&l, layer, n + 4, 4), BERTH_OK);
    CHECK(is_cached(&l, layer, n[4]) && is_cached(&l, layer, n[5]));
    CHECK_EQ(experts_summary(&l).experts_filled, 6);
    CHECK(take(&l, layer, n[4]));
    CHECK(take(&l, layer, n[5]));
    CHECK_EQ(experts_prefetch(&l, layer, n + 6, 2), BERTH_OK); /* none */
    CHECK_EQ(experts_summary(&l).experts_filled, 6);
    leased_end(&l);
}

/* What a prefetch names and has there is not given away, though it is the oldest. */
static void
test_prefetch_keeps_what_it_names(void)
{
    uint32_t wanted[2];
    uint32_t n[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin(&l, 3);
    layer = experts_layer(&l, 3);
    CHECK_GE(experts_list_away(&l, layer, n), 4);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(take(&l, layer, n[i]));
        give(&l, layer, n[i]);
    }
    wanted[0] = n[3];
    wanted[1] = n[0];
    CHECK_EQ(experts_prefetch(&l, layer, wanted, 2), BERTH_OK);
    CHECK(is_cached(&l, layer, n[3]) && is_cached(&l, layer, n[0]));
    CHECK(!is_cached(&l, layer, n[1]) && is_cached(&l, layer, n[2]));
    leased_end(&l);
}

/* ------------------------------------------------------------------------- misuse */

static void
test_numbers_that_are_none(void)
{
    uint32_t numbers[] = { 0, 1, 16 };
    berth_error error;
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 1);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t wrong[] = { EXPERTS_COUNT, UINT32_MAX, 17 };

        numbers[2] = wrong[i];
        CHECK_EQ(experts_acquire(&l, layer, numbers, 3, NULL, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_STR(error.tensor, "model.layers.1");
        CHECK_CONTAINS(error.message, fixture_format("%u", wrong[i]));
        CHECK_EQ(experts_release(&l, layer, numbers, 3, NULL, &error), BERTH_EINVAL);
        CHECK_EQ(experts_prefetch(&l, layer, numbers, 3), BERTH_EINVAL);
    }
    /* A layer without experts. */
    CHECK_EQ(experts_acquire(&l, planned_layer(&l.planned, "lm_head"), numbers, 1, NULL,
                             &error),
             BERTH_EINVAL);
    CHECK_EQ(experts_summary(&l).experts_filled, 0);
    CHECK_EQ(experts_acquire(&l, layer, numbers, 0, NULL, &error), BERTH_OK);
    leased_end(&l);
}

static void
test_release_without_acquire(void)
{
    uint32_t n[EXPERTS_COUNT];
    uint32_t twice[2];
    berth_error error;
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 3);
    (void)experts_list_away(&l, layer, n);
    twice[0] = twice[1] = n[0];
    CHECK_EQ(experts_release(&l, layer, n, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASE);
    CHECK_CONTAINS(error.message, fixture_format("expert %u ", n[0]));
    CHECK(take(&l, layer, n[0]));
    CHECK_EQ(experts_release(&l, layer, n, 2, NULL, &error), BERTH_EINVAL); /* 1 is not */
    CHECK_CONTAINS(error.message, fixture_format("expert %u ", n[1]));
    /* Only once. */
    CHECK_EQ(experts_release(&l, layer, twice, 2, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(l.leases->lines[0].slots[0].leases, 1);
    give(&l, layer, n[0]);
    CHECK_EQ(experts_release(&l, layer, n, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(experts_acquire(&l, layer, twice, 2, NULL, &error), BERTH_OK); /* counted */
    give(&l, layer, n[0]);
    CHECK_EQ(l.leases->lines[0].slots[0].leases, 1);
    give(&l, layer, n[0]);
    CHECK_EQ(l.leases->lines[0].slots[0].leases, 0);
    CHECK_EQ(experts_prefetch(&l, layer, n + 1, 1), BERTH_OK);
    CHECK_EQ(experts_release(&l, layer, n + 1, 1, NULL, &error), BERTH_EINVAL);
    leased_end(&l);
}

/* Refused before anything has been given away, for the caller may hold the others. */
static void
test_more_than_there_are_slots(void)
{
    berth_lease_summary before;
    uint32_t n[EXPERTS_COUNT];
    berth_error error;
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 3);
    CHECK_GE(experts_list_away(&l, layer, n), 6);
    CHECK_EQ(experts_acquire(&l, layer, n, 5, NULL, &error), BERTH_ENOFIT);
    CHECK_EQ(error.reason, BERTH_REASON_SLOTS);
    CHECK_STR(error.tensor, "model.layers.3");
    CHECK_CONTAINS(error.message, "cuda:0");
    CHECK_EQ(error.expected, 5);
    CHECK_EQ(error.actual, 4);
    CHECK_EQ(experts_acquire(&l, layer, n, 3, NULL, &error), BERTH_OK);
    before = experts_summary(&l);
    CHECK_EQ(experts_acquire(&l, layer, n + 3, 2, NULL, &error), BERTH_ENOFIT);
    CHECK_EQ(error.expected, 2);
    CHECK_EQ(error.actual, 1);
    /* 2 is there. */
    CHECK_EQ(experts_acquire(&l, layer, n + 2, 3, NULL, &error), BERTH_ENOFIT);
    CHECK_EQ(error.expected, 2);
    CHECK_MEM(&before, &(berth_lease_summary[1]){ experts_summary(&l) }, sizeof before);
    CHECK_EQ(experts_acquire(&l, layer, n + 1, 3, NULL, &error), BERTH_OK); /* all four */
    CHECK_EQ(experts_acquire(&l, layer, n + 4, 1, NULL, &error), BERTH_ENOFIT);
    CHECK_EQ(experts_release(&l, layer, n, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(experts_acquire(&l, layer, n + 4, 1, NULL, &error), BERTH_OK);
    CHECK(!is_cached(&l, layer, n[0]));
    leased_end(&l);
}

static void
test_places(void)
{
    const berthi_lease_unit *unit;
    uint32_t n[EXPERTS_COUNT];
    uint32_t layer;
    leased l;

    experts_begin(&l, 4);
    layer = experts_layer(&l, 3);
    (void)experts_list_away(&l, layer, n);
    unit = &l.leases->units[berthi_lease_expert_of(l.leases, layer, n[1])->unit];
    CHECK(berthi_leases_find(l.leases, unit->items[0].berth) == NULL);
    CHECK(take(&l, layer, n[0]));
    CHECK(berthi_leases_find(l.leases, unit->items[0].berth) == NULL);
    CHECK(take(&l, layer, n[1]));
    for (uint32_t i = 0; i < 3; i++)
        CHECK(berthi_leases_find(l.leases, unit->items[i].berth)
              == l.tiers[0].slab + l.tiers[0].expert_slots + 3 * KIB + i * KIB);
    give(&l, layer, n[1]);
    CHECK(berthi_leases_find(l.leases, unit->items[0].berth) == NULL);
    leased_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_units_are_experts);
    T_RUN(test_experts_in_nf4);
    T_RUN(test_all_are_resident);
    T_RUN(test_no_slots);
    T_RUN(test_hits_cost_no_copy);
    T_RUN(test_layers_share_slots);
    T_RUN(test_least_recent_goes);
    T_RUN(test_used_twice_is_protected);
    T_RUN(test_as_a_model_has_it);
    T_RUN(test_hits_are_as_planned);
    T_RUN(test_shares_hit_more);
    T_RUN(test_counts_of_layers);
    T_RUN(test_prefetch);
    T_RUN(test_prefetch_has_little_room);
    T_RUN(test_prefetch_keeps_what_it_names);
    T_RUN(test_numbers_that_are_none);
    T_RUN(test_release_without_acquire);
    T_RUN(test_more_than_there_are_slots);
    T_RUN(test_places);
    T_MAIN_END;
}
