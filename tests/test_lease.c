/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease.c - the protocol of slots: every state, order, misuse; see lease.h. */
#include "loader/lease.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/t.h"

/* Eight layers, all but two of them in host memory. */
#define LAYERS 8u

static leased_options
in_host(uint32_t slots)
{
    return (leased_options){ .memory = "0=64MiB,cpu=64MiB",
                             .pins = { "model.layers.0-2=cpu", "model.layers.4-6=cpu" },
                             .slots = slots };
}

static void
begin(leased *l, leased_options options)
{
    berth_error error;

    leased_begin(l, leased_llama(LAYERS, 1), &options);
    if (!CHECK_EQ(leased_start(l, &error), BERTH_OK))
        T_NOTE("%s", error.message);
}

static uint32_t
layer_of(const leased *l, uint32_t number)
{
    return planned_layer(&l->planned, fixture_format("model.layers.%u", number));
}

static berth_lease_summary
summary(const leased *l)
{
    berth_lease_summary out;

    berthi_leases_summary(l->leases, &out);
    return out;
}

static berth_status
acquire(leased *l, uint32_t number)
{
    return berthi_leases_acquire(l->leases, layer_of(l, number), NULL, NULL);
}

static berth_status
release(leased *l, uint32_t number)
{
    return berthi_leases_release(l->leases, layer_of(l, number), NULL, NULL);
}

/* Which decoder layer lies in each slot; -1: none, or not leased. */
static int
leased_in(const leased *l, uint32_t slot)
{
    const berthi_lease_slot *const s = &l->leases->lines[0].slots[slot];

    return s->leases == 0 ? -1 : (int)l->leases->units[s->unit].layer - 1;
}

static int
filled_in(const leased *l, uint32_t slot)
{
    const berthi_lease_slot *const s = &l->leases->lines[0].slots[slot];

    return s->fill == BERTHI_LEASE_FULL ? (int)l->leases->units[s->unit].layer - 1 : -1;
}

/* ------------------------------------------------------------------------- units */

static void
test_units_are_what_is_away(void)
{
    leased l;
    uint32_t streamed = 0;

    begin(&l, in_host(2));
    for (uint32_t i = 0; i < leased_layers(&l); i++) {
        const berth_plan_layer *const layer = &l.planned.plan->layers[i].out;
        const berthi_lease_unit *const unit = berthi_lease_unit_of(l.leases, i);

        CHECK_EQ(unit != NULL, layer->link_bytes > 0);
        if (unit == NULL)
            continue;
        streamed++;
        CHECK_EQ(unit->bytes, layer->link_bytes);
        CHECK_EQ(unit->move_count, 1); /* they lie together */
        CHECK_EQ(unit->moves[0].bytes, unit->bytes);
        CHECK_EQ(unit->moves[0].offset, 0);
        CHECK(unit->moves[0].is_pinned);
        CHECK_EQ(unit->chunk_count, 0);
        CHECK_EQ(unit->item_count, 9);
        for (uint32_t k = 1; k < unit->item_count; k++)
            CHECK_EQ(unit->items[k].offset,
                     unit->items[k - 1].offset
                         + l.planned.plan->berths[unit->items[k - 1].berth].bytes);
    }
    CHECK_EQ(streamed, 6);
    CHECK_EQ(l.leases->line_count, 1);
    CHECK(l.leases->feeder == NULL);
    CHECK_EQ(leased_disk_bytes(&l), 0);
    leased_end(&l);
}

static void
test_nothing_is_streamed(void)
{
    const leased_options options = { .memory = "0=64MiB,cpu=64MiB" };
    leased l;
    berth_error error;

    leased_begin(&l, leased_llama(2, 1), &options);
    l.leases = (berthi_leases *)(void *)&l;
    CHECK_EQ(leased_start(&l, &error), BERTH_OK);
    CHECK(l.leases == NULL);
    leased_end(&l);
}

/* Rows of an embedding are fetched one by one: no slot, though it is not on its home. */
static void
test_rows_are_no_unit(void)
{
    const leased_options options = {
        .memory = "0=64MiB,cpu=64MiB",
        .pins = { "model.embed_tokens=cpu", "model.layers.1=cpu" },
        .slots = 1,
    };
    leased l;

    begin(&l, options);
    CHECK_EQ(l.leases->unit_count, 1);
    CHECK(!leased_is_streamed(&l, planned_layer(&l.planned, "model.embed_tokens")));
    CHECK(leased_is_streamed(&l, layer_of(&l, 1)));
    leased_end(&l);
}

/* Experts are brought when they are chosen: they are in no layer's unit. */
static void
test_experts_are_in_no_unit(void)
{
    const leased_options options = { .memory = "0=40MiB,cpu=1GiB", .is_empty = true };
    leased l;
    uint32_t experts = 0;

    leased_begin(&l, planned_moe(3, 4), &options);
    CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    for (uint64_t i = 0; i < l.planned.summary.berth_count; i++) {
        const berthi_berth *const berth = &l.planned.plan->berths[i];

        experts += berth->is_expert && !berth->is_resident;
        if (l.leases == NULL || !berth->is_expert)
            continue;
        CHECK(berthi_leases_find(l.leases, i) == NULL);
        for (uint32_t u = 0; u < l.leases->unit_count; u++)
            for (uint32_t k = 0; k < l.leases->units[u].item_count; k++)
                CHECK(l.leases->units[u].items[k].berth != i
                      || l.leases->units[u].expert != BERTHI_NO_EXPERT);
    }
    CHECK_GT(experts, 0);
    leased_end(&l);
}

/* A plan whose slots are too small, or too many, is refused by layer. */
static void
test_slots_that_do_not_hold_a_unit(void)
{
    leased l;
    berth_error error;
    berthi_model_tier *tier;

    begin(&l, in_host(2));
    leased_stop(&l);
    tier = &l.tiers[0];
    tier->slot_bytes -= 256;
    CHECK_EQ(leased_start(&l, &error), BERTH_ENOFIT);
    CHECK(l.leases == NULL);
    CHECK_EQ(error.reason, BERTH_REASON_SLOTS);
    CHECK_STR(error.tensor, "model.layers.0");
    l.planned.plan->layers[1].out.name = "a\\\\b"; /* as plans have it */
    CHECK_EQ(leased_start(&l, &error), BERTH_ENOFIT);
    CHECK_STR(error.tensor, "a\\\\b");
    CHECK_EQ(error.expected, tier->slot_bytes + 256);
    CHECK_EQ(error.actual, tier->slot_bytes);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    tier->slot_bytes += 256;
    tier->slot_count = 0;
    CHECK_EQ(leased_start(&l, &error), BERTH_ENOFIT);
    CHECK_EQ(error.actual, 0);
    tier->slot_count = BERTHI_STREAM_SLOTS_MAX + 1;
    CHECK_EQ(leased_start(&l, &error), BERTH_ENOFIT);
    CHECK_EQ(error.reason, BERTH_REASON_SLOTS);
    tier->slot_count = 2;
    CHECK_EQ(leased_start(&l, &error), BERTH_OK);
    leased_end(&l);
}

/* ------------------------------------------------------------------------- order */

static void
test_passes_in_order(void)
{
    for (uint32_t slots = 1; slots <= 8; slots++) {
        leased l;
        berth_error error;

        begin(&l, in_host(slots));
        CHECK_EQ(l.leases->lines[0].slot_count, slots);
        for (uint32_t pass = 1; pass <= 5; pass++) {
            CHECK_EQ(leased_pass(&l, NULL, &error), BERTH_OK);
            CHECK_EQ(summary(&l).acquired, pass * 6);
        }
        CHECK_EQ(l.compared, 5 * 6 * 2);
        CHECK_EQ(l.wrong, 0);
        CHECK_EQ(summary(&l).order_misses, 0);
        CHECK_EQ(summary(&l).host_waits, 0);
        CHECK_EQ(summary(&l).disk_bytes, 0);
        /* What was used, and what is brought ahead. */
        CHECK_EQ(summary(&l).filled, 5 * 6 + (slots < 6 ? slots : 6));
        CHECK_EQ(summary(&l).copied_bytes,
                 summary(&l).filled * (leased_unit_bytes(&l) / 6));
        leased_end(&l);
    }
}

/* Slots take turns: the fill of number f is in slot f mod their number. */
static void
test_slots_take_turns(void)
{
    static const uint32_t order[] = { 0, 1, 2, 4, 5, 6 };
    leased l;

    begin(&l, in_host(3));
    for (uint32_t f = 0; f < 20; f++) {
        CHECK_EQ(acquire(&l, order[f % 6]), BERTH_OK);
        CHECK_EQ(leased_in(&l, f % 3), (int)order[f % 6]);
        CHECK_EQ(filled_in(&l, (f + 1) % 3), (int)order[(f + 1) % 6]);
        CHECK_EQ(filled_in(&l, (f + 2) % 3), (int)order[(f + 2) % 6]);
        CHECK_EQ(release(&l, order[f % 6]), BERTH_OK);
        CHECK_EQ(filled_in(&l, f % 3), (int)order[(f + 3) % 6]);
    }
    CHECK_EQ(summary(&l).filled, 3 + 20);
    leased_end(&l);
}

/* Skipped: what was brought for the layers in between is given up. */
static void
test_layers_that_are_skipped(void)
{
    leased l;

    begin(&l, in_host(3));
    CHECK_EQ(acquire(&l, 1), BERTH_OK); /* 0 is given up, 4 comes into its slot */
    CHECK_EQ(summary(&l).order_misses, 1);
    CHECK_EQ(leased_in(&l, 1), 1);
    CHECK_EQ(filled_in(&l, 2), 2);
    CHECK_EQ(filled_in(&l, 0), 4);
    CHECK_EQ(release(&l, 1), BERTH_OK);
    CHECK_EQ(filled_in(&l, 1), 5);
    CHECK_EQ(acquire(&l, 6), BERTH_OK); /* in no slot: 2, 4, 5 are behind it */
    CHECK_EQ(summary(&l).order_misses, 2);
    CHECK_EQ(summary(&l).filled, 5 + 3);
    CHECK_EQ(leased_in(&l, 0), 6); /* what was emptied first is filled first */
    CHECK_EQ(filled_in(&l, 1), 0);
    CHECK_EQ(filled_in(&l, 2), 1);
    CHECK_EQ(release(&l, 6), BERTH_OK);
    /* On from there, over the end. */
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(acquire(&l, i), BERTH_OK);
        CHECK_EQ(release(&l, i), BERTH_OK);
    }
    CHECK_EQ(summary(&l).order_misses, 2);
    CHECK_EQ(summary(&l).filled, 5 + 3 + 4);
    leased_end(&l);
}

/* A layer again: one more copy, and the one behind it stays where it is. */
static void
test_layers_that_are_repeated(void)
{
    leased l;

    begin(&l, in_host(3));
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(release(&l, 0), BERTH_OK); /* 1, 2, 4 */
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 1);
    CHECK_EQ(summary(&l).filled, 4 + 1);
    CHECK_EQ(leased_in(&l, 0), 0); /* where 4 was */
    CHECK_EQ(filled_in(&l, 1), 1);
    CHECK_EQ(filled_in(&l, 2), 2);
    CHECK_EQ(release(&l, 0), BERTH_OK);
    CHECK_EQ(filled_in(&l, 0), 4);
    CHECK_EQ(acquire(&l, 1), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 1);
    CHECK_EQ(release(&l, 1), BERTH_OK);
    leased_end(&l);
}

static berth_status
prefetch(leased *l, uint32_t number)
{
    return berthi_leases_prefetch(l->leases, layer_of(l, number), NULL);
}

/* An exit after layer 0: 6 and what follows it take the slots that nobody has leased. */
static void
test_layers_that_are_prefetched(void)
{
    leased l;

    begin(&l, in_host(3));
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(prefetch(&l, 6), BERTH_OK);
    CHECK_EQ(leased_in(&l, 0), 0);
    CHECK_EQ(filled_in(&l, 1), 6);
    CHECK_EQ(filled_in(&l, 2), 1); /* behind 6 and 0, which is there */
    CHECK_EQ(summary(&l).filled, 3 + 2);
    CHECK_EQ(prefetch(&l, 6), BERTH_OK); /* it is there */
    CHECK_EQ(prefetch(&l, 3), BERTH_OK); /* resident */
    CHECK_EQ(summary(&l).filled, 3 + 2);
    CHECK_EQ(leased_compare(&l, layer_of(&l, 0), NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(release(&l, 0), BERTH_OK);
    CHECK_EQ(leased_use(&l, layer_of(&l, 6), NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 0);
    /* On from there, over the end. */
    for (uint32_t i = 0; i < 3; i++)
        CHECK_EQ(leased_use(&l, layer_of(&l, i), NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 0);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* All slots are leased: none is taken, and the first release brings it. */
static void
test_prefetch_waits_for_a_slot(void)
{
    leased l;

    begin(&l, in_host(2));
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(acquire(&l, 1), BERTH_OK);
    CHECK_EQ(prefetch(&l, 5), BERTH_OK);
    CHECK_EQ(prefetch(&l, 1), BERTH_OK); /* leased: nothing is asked for */
    CHECK_EQ(summary(&l).filled, 2);
    CHECK_EQ(leased_in(&l, 0), 0);
    CHECK_EQ(leased_in(&l, 1), 1);
    CHECK_EQ(release(&l, 1), BERTH_OK);
    CHECK_EQ(filled_in(&l, 1), 5);
    CHECK_EQ(release(&l, 0), BERTH_OK);
    CHECK_EQ(filled_in(&l, 0), 6);
    CHECK_EQ(acquire(&l, 5), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 0);
    leased_end(&l);
}

/* A hint is no promise: whoever asks for another layer gets it. */
static void
test_prefetch_of_what_is_not_acquired(void)
{
    leased l;

    begin(&l, in_host(2));
    CHECK_EQ(prefetch(&l, 4), BERTH_OK);
    CHECK_EQ(filled_in(&l, 0), 4);
    CHECK_EQ(filled_in(&l, 1), 5);
    CHECK_EQ(leased_use(&l, layer_of(&l, 1), NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 1);
    CHECK_EQ(leased_use(&l, layer_of(&l, 2), NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(summary(&l).order_misses, 1);
    CHECK_EQ(l.wrong, 0);
    CHECK_EQ(berthi_leases_prefetch(l.leases, 1000, NULL), BERTH_EINVAL);
    leased_end(&l);
}

/* Orders of all kinds, with several leases at once: right bytes whatever they are. */
static void
test_any_order(void)
{
    uint64_t random = 7;

    for (uint32_t slots = 1; slots <= 4; slots++) {
        const uint32_t few = slots > 1 ? slots - 1 : 1;
        uint32_t held[4];
        uint32_t held_count = 0;
        leased l;

        begin(&l, in_host(slots));
        for (uint32_t i = 0; i < 400; i++) {
            uint32_t layer;

            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            layer = (uint32_t)(random >> 33) % leased_layers(&l);
            if ((random >> 62) == 0) /* often of another one than is acquired next */
                CHECK_EQ(berthi_leases_prefetch(l.leases, (layer + i % 3) % leased_layers(&l),
                                                NULL),
                         BERTH_OK);
            if (held_count == few || (held_count > 0 && (random >> 60) == 0)) {
                CHECK_EQ(leased_compare(&l, held[0], NULL, 0, NULL), BERTH_OK);
                CHECK_EQ(berthi_leases_release(l.leases, held[0], NULL, NULL), BERTH_OK);
                held_count--;
                memmove(held, held + 1, held_count * sizeof held[0]);
            }
            if (!CHECK_EQ(berthi_leases_acquire(l.leases, layer, NULL, NULL), BERTH_OK))
                break;
            CHECK_EQ(leased_compare(&l, layer, NULL, 0, NULL), BERTH_OK);
            held[held_count++] = layer;
        }
        CHECK_EQ(l.wrong, 0);
        CHECK_GT(summary(&l).order_misses, 100);
        leased_end(&l);
    }
}

/* ------------------------------------------------------------------------ misuse */

static void
test_release_without_acquire(void)
{
    leased l;
    berth_error error;
    const berth_lease_summary before = { .filled = 2 };

    begin(&l, in_host(2));
    for (uint32_t i = 0; i < LAYERS; i++) {
        const berth_status status =
            berthi_leases_release(l.leases, layer_of(&l, i), NULL, &error);

        if (i == 3 || i == 7) { /* resident: nothing to lease */
            CHECK_EQ(status, BERTH_OK);
            continue;
        }
        CHECK_EQ(status, BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_LEASE);
        CHECK_STR(error.tensor, fixture_format("model.layers.%u", i));
    }
    CHECK_EQ(summary(&l).filled, before.filled);
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(release(&l, 0), BERTH_OK);
    CHECK_EQ(release(&l, 0), BERTH_EINVAL); /* twice */
    CHECK_EQ(release(&l, 1), BERTH_EINVAL); /* in a slot, not leased */
    leased_end(&l);
}

static void
test_layers_that_are_none(void)
{
    leased l;
    berth_error error;
    uint32_t count;

    begin(&l, in_host(1));
    count = leased_layers(&l);
    CHECK_EQ(berthi_leases_acquire(l.leases, count, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_EQ(berthi_leases_release(l.leases, count, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berthi_leases_acquire(l.leases, UINT32_MAX, NULL, &error), BERTH_EINVAL);
    for (uint32_t i = 0; i < count; i++)
        if (!leased_is_streamed(&l, i))
            CHECK_EQ(berthi_leases_acquire(l.leases, i, NULL, &error), BERTH_OK);
    CHECK_EQ(summary(&l).acquired, 0);
    leased_end(&l);
}

/* As many layers at once as there are slots; one more is refused, and nothing changes. */
static void
test_several_leases(void)
{
    leased l;
    berth_error error;
    berth_lease_summary held;

    begin(&l, in_host(3));
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(acquire(&l, 1), BERTH_OK);
    CHECK_EQ(acquire(&l, 2), BERTH_OK);
    CHECK_EQ(acquire(&l, 1), BERTH_OK); /* counted */
    held = summary(&l);
    for (uint32_t i = 4; i < 7; i++) {
        CHECK_EQ(berthi_leases_acquire(l.leases, layer_of(&l, i), NULL, &error),
                 BERTH_ENOFIT);
        CHECK_EQ(error.reason, BERTH_REASON_SLOTS);
        CHECK_STR(error.tensor, fixture_format("model.layers.%u", i));
        CHECK_CONTAINS(error.message, "3 slots");
        CHECK_CONTAINS(error.message, "cuda:0");
    }
    CHECK_MEM(&held, &(berth_lease_summary[1]){ summary(&l) }, sizeof held);
    CHECK_EQ(release(&l, 1), BERTH_OK);
    CHECK_EQ(acquire(&l, 4), BERTH_ENOFIT); /* 1 is leased once more */
    CHECK_EQ(release(&l, 1), BERTH_OK);
    CHECK_EQ(filled_in(&l, 1), 4);
    CHECK_EQ(acquire(&l, 4), BERTH_OK); /* the slot that came free, whichever it is */
    CHECK_EQ(summary(&l).order_misses, 0);
    CHECK_EQ(release(&l, 0), BERTH_OK);
    CHECK_EQ(release(&l, 2), BERTH_OK);
    CHECK_EQ(release(&l, 4), BERTH_OK);
    CHECK_EQ(summary(&l).acquired, 5);
    leased_end(&l);
}

/* Only what is leased has a place. */
static void
test_places(void)
{
    leased l;
    uint64_t first;
    const uint8_t *memory;

    begin(&l, in_host(2));
    first = l.planned.plan->layers[layer_of(&l, 1)].out.first_berth;
    for (uint64_t i = 0; i < l.planned.summary.berth_count; i++)
        CHECK(berthi_leases_find(l.leases, i) == NULL);
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(acquire(&l, 1), BERTH_OK);
    memory = l.leases->lines[0].slots[1].memory;
    CHECK(memory == l.tiers[0].slab + l.tiers[0].slots + l.tiers[0].slot_bytes);
    for (uint64_t i = 0; i < 9; i++) {
        CHECK(berthi_leases_find(l.leases, first + i) == memory);
        memory += l.planned.plan->berths[first + i].bytes;
    }
    CHECK(berthi_leases_find(l.leases, first + 9) == NULL);
    CHECK_EQ(release(&l, 1), BERTH_OK);
    CHECK(berthi_leases_find(l.leases, first) == NULL);
    leased_end(&l);
}

/* More streams than a slot keeps places of. */
static void
test_many_streams(void)
{
    leased l;
    berthi_stream *streams[7];

    begin(&l, in_host(2));
    for (uint32_t i = 0; i < 7; i++)
        CHECK_EQ(l.model.host->table->stream_create(l.model.host, &streams[i], NULL),
                 BERTH_OK);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < 14; i++)
            CHECK_EQ(berthi_leases_acquire(l.leases, layer_of(&l, 0), streams[i % 7], NULL),
                     BERTH_OK);
        for (uint32_t i = 0; i < 14; i++) {
            CHECK_EQ(leased_in(&l, 0), 0);
            CHECK_EQ(berthi_leases_release(l.leases, layer_of(&l, 0), streams[i % 7], NULL),
                     BERTH_OK);
            CHECK_EQ(l.leases->lines[0].slots[0].released_count,
                     i == 13 ? 0 : i < 4 ? i + 1 : 4);
        }
        CHECK_EQ(filled_in(&l, 0), 2);
        CHECK_EQ(acquire(&l, 0), BERTH_OK);
        CHECK_EQ(release(&l, 0), BERTH_OK);
        CHECK_EQ(leased_in(&l, 0), -1);
        leased_stop(&l);
        CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    }
    for (uint32_t i = 0; i < 7; i++)
        l.model.host->table->stream_destroy(l.model.host, streams[i]);
    leased_end(&l);
}

/* ------------------------------------------------------------------------ pieces */

/* A device that notes what it is to copy. */
typedef struct noting {
    berthi_device device;
    berthi_copy copies[4];
    uint32_t count;
} noting;

static berth_status
note_copy(berthi_device *device, const berthi_copy *copy, berthi_stream *stream,
          berth_error *error)
{
    noting *const n = (noting *)(void *)device;

    (void)stream;
    if (n->count == 4)
        return berthi_fail(error, BERTH_REASON_DEVICE_LOST, NULL, "too many");
    n->copies[n->count++] = *copy;
    return BERTH_OK;
}

/* What is large goes in pieces, one behind the other, none twice. */
static void
test_copies_in_pieces(void)
{
    const uint64_t piece = UINT64_C(64) << 20;
    const berthi_device_table table = { .copy = note_copy };
    /* Places that nobody looks at. */
    uint8_t *const to = (uint8_t *)(uintptr_t)(UINT64_C(1) << 40);
    const uint8_t *const from = (const uint8_t *)(uintptr_t)(UINT64_C(1) << 41);
    noting n = { .device = { .table = &table } };
    const berthi_lease_line line = { .device = &n.device };
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE,
                         .is_pinned = true,
                         .to = to,
                         .from = from,
                         .bytes = 2 * piece + 5,
                         .layer = 7 };

    CHECK_EQ(berthi_lease_copy(&line, &copy, NULL), BERTH_OK);
    CHECK_EQ(n.count, 3);
    for (uint32_t i = 0; i < n.count; i++) {
        CHECK_EQ(n.copies[i].kind, BERTHI_COPY_TO_DEVICE);
        CHECK(n.copies[i].to == to + i * piece);
        CHECK(n.copies[i].from == from + i * piece);
        CHECK_EQ(n.copies[i].bytes, i < 2 ? piece : 5);
        CHECK_EQ(n.copies[i].layer, 7);
        CHECK(n.copies[i].is_pinned);
    }
    n.count = 0;
    copy.is_pinned = false;
    copy.bytes = piece;
    CHECK_EQ(berthi_lease_copy(&line, &copy, NULL), BERTH_OK);
    CHECK_EQ(n.count, 1);
    CHECK(!n.copies[0].is_pinned);
    copy.bytes = 0;
    CHECK_EQ(berthi_lease_copy(&line, &copy, NULL), BERTH_OK);
    CHECK_EQ(n.count, 1);
    copy.bytes = 9 * piece;
    CHECK_EQ(berthi_lease_copy(&line, &copy, NULL), BERTH_ENODEV);
}

/* ------------------------------------------------------------------------- costs */

/* Nanoseconds of one acquire of a layer; the best of many. */
static uint64_t
cost_of(leased *l, uint32_t layer)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t count = 16; /* leases are counted */
        const uint64_t begin_ns = berthi_sys_now_ns();
        uint64_t ns;

        for (uint32_t k = 0; k < count; k++)
            (void)berthi_leases_acquire(l->leases, layer, NULL, NULL);
        ns = (berthi_sys_now_ns() - begin_ns) / count;
        best = ns < best ? ns : best;
        for (uint32_t k = 0; k < count; k++)
            (void)berthi_leases_release(l->leases, layer, NULL, NULL);
    }
    return best;
}

/* A resident layer costs next to nothing, one that is there little; nothing allocates. */
static void
test_costs(void)
{
    berth_memory_summary before;
    berth_memory_summary after;
    uint64_t resident;
    uint64_t streamed;
    berth_error error;
    leased l;

    begin(&l, in_host(2));
    berth_context_memory(l.planned.context, &before);
    for (uint32_t pass = 0; pass < 20; pass++)
        CHECK_EQ(leased_pass(&l, NULL, &error), BERTH_OK);
    resident = cost_of(&l, layer_of(&l, 3));
    streamed = cost_of(&l, layer_of(&l, 0));
    berth_context_memory(l.planned.context, &after);
    CHECK_EQ(after.allocations, before.allocations);
    T_NOTE("acquire: %llu ns resident, %llu ns streamed", (unsigned long long)resident,
           (unsigned long long)streamed);
    if (!T_IS_SANITIZED) {
        CHECK_LT(resident, 200);
        CHECK_LT(streamed, 10000);
    }
    leased_end(&l);
}

/* ------------------------------------------------------------------------ faults */

static void
test_faults(void)
{
    const leased_options options = in_host(2);
    fault_counts counts;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    counts = fault_loop("leases", leased_use_all, &l);
    CHECK_GT(counts.memory, 5);
    CHECK_EQ(counts.survived, 0);
    l.model.context = l.planned.context;
    leased_end(&l);
}

/*
 * Any call of the device fails: acquire or release say so and nothing is leased that
 * was not, so the same can be asked for again, and the bytes are right.
 */
static void
test_device_faults(void)
{
    const leased_options options = in_host(2);
    uint64_t failed = 0;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    for (uint64_t nth = 0;; nth++) {
        berth_error error;
        berth_status status;
        uint64_t failures;

        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        status = leased_start(&l, &error);
        /* A fill that fails while there is no lease yet is nobody else's to tell. */
        if (berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0)
            CHECK_EQ(status, BERTH_ENODEV);
        for (uint32_t i = 0; i < leased_layers(&l) && status == BERTH_OK; i++) {
            berth_status again =
                berthi_leases_acquire(l.leases, i, NULL, &error);

            if (again != BERTH_OK) {
                CHECK_EQ(again, BERTH_ENODEV);
                CHECK_EQ(again, error.status);
                again = berthi_leases_acquire(l.leases, i, NULL, &error);
            }
            CHECK_EQ(again, BERTH_OK);
            again = berthi_leases_release(l.leases, i, NULL, &error);
            if (again != BERTH_OK) {
                CHECK_EQ(again, BERTH_ENODEV);
                again = berthi_leases_release(l.leases, i, NULL, &error);
            }
            CHECK_EQ(again, BERTH_OK);
        }
        failures = berthi_fault_failures(BERTHI_FAULT_DEVICE);
        berthi_fault_disarm();
        failed += failures;
        if (status == BERTH_OK) {
            l.compared = 0;
            CHECK_EQ(leased_pass(&l, NULL, &error), BERTH_OK);
            CHECK_EQ(l.compared, 12);
            CHECK_EQ(l.wrong, 0);
        } else {
            CHECK_EQ(status, BERTH_ENODEV);
            CHECK_EQ(failures, 1);
        }
        leased_stop(&l);
        if (failures == 0)
            break;
    }
    CHECK_GE(failed, 46);
    T_NOTE("leases: %llu device calls failed", (unsigned long long)failed);
    leased_end(&l);
}

/* What could not be brought ahead is brought for who asks, not tried by others before. */
static void
test_a_fill_that_fails_is_the_next_acquire(void)
{
    leased l;

    begin(&l, in_host(3));
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, 1, false); /* behind the record of the release */
    CHECK_EQ(release(&l, 0), BERTH_OK);
    CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_DEVICE), 1);
    berthi_fault_disarm();
    CHECK_EQ(filled_in(&l, 0), -1);
    for (uint32_t i = 1; i < 3; i++) {
        CHECK_EQ(acquire(&l, i), BERTH_OK);
        CHECK_EQ(release(&l, i), BERTH_OK);
        CHECK_EQ(filled_in(&l, i), -1);
    }
    CHECK_EQ(summary(&l).filled, 3);
    CHECK_EQ(acquire(&l, 4), BERTH_OK);
    CHECK_EQ(summary(&l).filled, 6);
    CHECK_EQ(summary(&l).order_misses, 0);
    CHECK_EQ(release(&l, 4), BERTH_OK);
    CHECK_EQ(leased_pass(&l, NULL, NULL), BERTH_OK);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

static void
test_destroy_leased(void)
{
    leased l;

    begin(&l, in_host(2));
    CHECK_EQ(acquire(&l, 0), BERTH_OK);
    CHECK_EQ(acquire(&l, 1), BERTH_OK);
    berthi_leases_destroy(NULL);
    leased_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_units_are_what_is_away);
    T_RUN(test_nothing_is_streamed);
    T_RUN(test_rows_are_no_unit);
    T_RUN(test_experts_are_in_no_unit);
    T_RUN(test_slots_that_do_not_hold_a_unit);
    T_RUN(test_passes_in_order);
    T_RUN(test_slots_take_turns);
    T_RUN(test_layers_that_are_skipped);
    T_RUN(test_layers_that_are_repeated);
    T_RUN(test_layers_that_are_prefetched);
    T_RUN(test_prefetch_waits_for_a_slot);
    T_RUN(test_prefetch_of_what_is_not_acquired);
    T_RUN(test_any_order);
    T_RUN(test_release_without_acquire);
    T_RUN(test_layers_that_are_none);
    T_RUN(test_several_leases);
    T_RUN(test_places);
    T_RUN(test_many_streams);
    T_RUN(test_copies_in_pieces);
    T_RUN(test_costs);
    T_RUN(test_faults);
    T_RUN(test_device_faults);
    T_RUN(test_a_fill_that_fails_is_the_next_acquire);
    T_RUN(test_destroy_leased);
    T_MAIN_END;
}
