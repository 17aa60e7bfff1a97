/* SPDX-License-Identifier: Apache-2.0 */
/* load_refuse.c - see load_refuse.h. */
#include "tools/load_refuse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define LIST_CAPACITY 2048

void
load_print_memory(output *out, const berth_context *context)
{
    const size_t length = berth_memory_print(context, BERTH_MEMORY_TEXT, NULL, 0);
    char *const text = malloc(length + 1);

    if (text == NULL)
        return;
    (void)berth_memory_print(context, BERTH_MEMORY_TEXT, text, length + 1);
    output_text(out, text);
    free(text);
}

/* What there is for a tier: its device's memory, or its budget. */
static uint64_t
room_of(const load_facts *facts, uint32_t number, const berth_plan_tier *tier)
{
    berth_device device;

    return load_has_device(facts, number, &device) ? device.memory_bytes : tier->budget;
}

static void
print_tiers(output *out, const load_facts *facts, uint32_t count)
{
    char sizes[2][BERTH_SIZE_CAPACITY];
    berth_device device;
    berth_plan_tier tier;

    for (uint32_t i = 0; i < count; i++) {
        (void)berth_plan_get_tier(facts->plan, i, &tier);
        if (tier.kind == BERTH_TIER_DISK)
            continue;
        output_format(out, "  %s takes %s", tier.name,
                      berth_size_format(load_slab_bytes(&tier), sizes[0]));
        if (load_has_device(facts, i, &device))
            output_format(out, ", %s has %s%s", device.name,
                          berth_size_format(device.memory_bytes, sizes[1]),
                          device.is_simulated ? " (simulated)" : "");
        output_text(out, "\n");
    }
}

static void
print_shortage(output *out, const load_facts *facts, uint32_t count)
{
    char size[BERTH_SIZE_CAPACITY];
    berth_plan_tier tier;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t room;

        (void)berth_plan_get_tier(facts->plan, i, &tier);
        room = room_of(facts, i, &tier);
        if (tier.kind == BERTH_TIER_GPU && load_slab_bytes(&tier) > room)
            output_format(out, "  %s more for %s\n",
                          berth_size_format(load_slab_bytes(&tier) - room, size),
                          tier.name);
    }
}

/* "0=2MiB,cpu=1GiB,disk=inf": what there is. */
static void
list_rooms(const load_facts *facts, uint32_t count, char list[LIST_CAPACITY])
{
    size_t used = 0;

    list[0] = '\0';
    for (uint32_t i = 0; i < count && used < LIST_CAPACITY; i++) {
        berth_plan_tier tier;
        uint64_t room;

        (void)berth_plan_get_tier(facts->plan, i, &tier);
        room = room_of(facts, i, &tier);
        used += (size_t)snprintf(list + used, LIST_CAPACITY - used, "%s%s=",
                                 i > 0 ? "," : "", tier.name);
        if (used >= LIST_CAPACITY)
            break;
        if (room == UINT64_MAX)
            used += (size_t)snprintf(list + used, LIST_CAPACITY - used, "inf");
        else
            used += (size_t)snprintf(list + used, LIST_CAPACITY - used, "%" PRIu64 "%s",
                                     room % MIB == 0 ? room / MIB : room,
                                     room % MIB == 0 ? "MiB" : "");
    }
}

static bool
keeps_reserve(const load_facts *facts, uint32_t count)
{
    berth_plan_tier tier;
    uint64_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        (void)berth_plan_get_tier(facts->plan, i, &tier);
        kept += tier.reserve;
    }
    return kept > 0;
}

/* What else the plan was asked for, as far as it says so. */
static berth_plan_options
options_like(const load_facts *facts, const char *list)
{
    berth_plan_options options;
    berth_plan_summary old;

    berth_plan_get(facts->plan, &old);
    berth_plan_options_init(&options);
    options.type = old.type;
    options.dtype = old.dtype;
    options.double_quant = old.double_quant;
    options.block_size = old.block_size;
    options.context = old.context;
    options.batch = old.batch;
    options.cache_dtype = old.cache_dtype;
    options.rank = old.rank;
    options.ranks = old.ranks;
    options.stacks = old.ranks > 1 ? BERTH_STACKS_AUTO : old.stacks;
    if (!keeps_reserve(facts, old.tier_count))
        options.reserve_share = BERTH_RESERVE_NONE;
    options.max_memory = list;
    return options;
}

/* The words that make `berth plan` plan so. */
static void
print_options(output *out, const berth_plan_options *options)
{
    output_format(out, "--max-memory %s", options->max_memory);
    if (options->ranks > 1)
        output_format(out, " --tensor-parallel %" PRIu32 "/%" PRIu32, options->rank,
                      options->ranks);
    if (options->stacks == BERTH_STACKS_APART)
        output_text(out, " --stacks apart");
    if (options->reserve_share == BERTH_RESERVE_NONE)
        output_text(out, " --reserve-percent 0");
    output_text(out, "\n");
}

/* Whether there is a plan for what there is; if not, what its refusal says. */
static void
print_other_plan(session *s, output *out, const load_facts *facts, uint32_t count,
                 berth_checkpoint *checkpoint)
{
    char list[LIST_CAPACITY];
    char line[sizeof(berth_error) + 512];
    berth_plan_options options;
    berth_plan *plan = NULL;
    berth_error error;

    list_rooms(facts, count, list);
    options = options_like(facts, list);
    if (berth_plan_create(s->context, checkpoint, &options, &plan, &error) == BERTH_OK) {
        output_text(out, "  a plan for what there is: ");
        print_options(out, &options);
    } else {
        berth_error_format(&error, line, sizeof line);
        output_format(out, "  for what there is, %s, there is no plan: %s\n", list, line);
    }
    berth_plan_destroy(plan);
}

void
load_refuse(session *s, const load_facts *facts, berth_checkpoint *checkpoint)
{
    berth_plan_summary summary;
    output out;

    output_init(&out, STDERR_FILENO);
    if (facts->plan != NULL) {
        berth_plan_get(facts->plan, &summary);
        output_text(&out, "what the plan takes:\n");
        print_tiers(&out, facts, summary.tier_count);
        output_text(&out, "what would help, one of:\n");
        print_shortage(&out, facts, summary.tier_count);
        print_other_plan(s, &out, facts, summary.tier_count, checkpoint);
    }
    output_text(&out, "what berth held, and let go:\n");
    load_print_memory(&out, s->context);
    output_flush(&out);
}
