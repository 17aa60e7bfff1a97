/* SPDX-License-Identifier: Apache-2.0 */
/* part_divide.c - which weights are whose, and how much room that takes. */
#include "loader/part.h"
#include "loader/writer_parts.h"

/* What a weight costs: bytes that are read and bytes that are written. */
static uint64_t
cost_of(const berthi_convert *convert, const berthi_recipe_weight *weight)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_entry *const entry =
        &convert->checkpoint->table.entries[weight->tensor];
    uint64_t cost = entry->end - entry->begin;

    for (uint32_t i = 0; i < weight->output_count; i++)
        cost += recipe->tensors[weight->first_output + i].bytes;
    return cost;
}

static uint32_t
first_shard_of(const berthi_convert *convert, const berthi_recipe_weight *weight)
{
    uint32_t first;
    uint32_t last;

    berthi_convert_find_shards(convert, weight, &first, &last);
    return first;
}

/*
 * Whole shards, the largest first, each to whoever has the least: `owners[shard]`.
 * `costs` is used up.
 */
static void
give_shards(uint64_t *costs, uint32_t *owners, uint32_t shard_count, uint64_t *loads,
            uint32_t part_count)
{
    for (uint32_t given = 0; given < shard_count; given++) {
        uint32_t largest = 0;
        uint32_t part;

        while (owners[largest] != 0)
            largest++;
        for (uint32_t i = largest + 1; i < shard_count; i++)
            if (owners[i] == 0 && costs[i] > costs[largest])
                largest = i;
        part = berthi_least_at(loads, part_count);
        loads[part] += costs[largest] + 1; /* a shard without bytes is one, too */
        owners[largest] = part + 1;
    }
}

static berth_status
assign_shards(berthi_convert *convert, berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const uint32_t shard_count = berthi_layout_shard_count(convert->layout);
    const uint32_t part_count = convert->options.part_count;
    const uint64_t bytes = shard_count * (sizeof(uint64_t) + sizeof(uint32_t))
                           + part_count * sizeof(uint64_t);
    uint64_t *const costs =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_DOCUMENT, bytes);
    uint64_t *loads;
    uint32_t *owners;

    if (costs == NULL)
        return berthi_fail_memory(error, "dividing the work");
    loads = costs + shard_count;
    owners = (uint32_t *)(loads + part_count);
    for (uint32_t i = 0; i < recipe->weight_count; i++)
        costs[first_shard_of(convert, &recipe->weights[i])] +=
            cost_of(convert, &recipe->weights[i]);
    give_shards(costs, owners, shard_count, loads, part_count);
    for (uint32_t i = 0; i < recipe->weight_count; i++)
        convert->part_of[i] = owners[first_shard_of(convert, &recipe->weights[i])];
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, costs, bytes);
    return BERTH_OK;
}

/* Stretches of the order in which shards are filled; a weight goes where its middle is. */
static void
assign_stretches(berthi_convert *convert)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const uint32_t *const order = berthi_layout_fill_order(convert->layout);
    uint64_t total = 0;
    uint64_t before = 0;
    uint64_t stretch; /* all of this is doubled, for the middles */

    for (uint32_t i = 0; i < recipe->weight_count; i++)
        total += cost_of(convert, &recipe->weights[i]);
    stretch = 2 * total / convert->options.part_count + 1;
    for (uint32_t i = 0; i < recipe->output_count; i++) {
        const uint32_t weight = recipe->outputs[order[i]].weight;
        const uint64_t cost = cost_of(convert, &recipe->weights[weight]);

        if (convert->part_of[weight] != 0)
            continue;
        convert->part_of[weight] = (uint32_t)((2 * before + cost) / stretch) + 1;
        before += cost;
    }
}

/*
 * The weights of a shard in the order of their places, each to whoever has the least:
 * parts come forward side by side, and hear of each other's lengths soon.
 */
static void
deal_out(berthi_convert *convert, uint32_t shard, uint64_t *loads)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);

    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const uint32_t weight = recipe->outputs[what.tensors[i]].weight;
        const uint32_t part = berthi_least_at(loads, convert->options.part_count);

        if (recipe->weights[weight].first_output != what.tensors[i])
            continue;
        loads[part] += cost_of(convert, &recipe->weights[weight]) + 1;
        convert->part_of[weight] = part + 1;
    }
}

static berth_status
assign_by_turns(berthi_convert *convert, berth_error *error)
{
    const uint64_t bytes = convert->options.part_count * sizeof(uint64_t);
    uint64_t *const loads =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_DOCUMENT, bytes);

    if (loads == NULL)
        return berthi_fail_memory(error, "dividing the work");
    for (uint32_t i = 0; i < berthi_layout_shard_count(convert->layout); i++)
        deal_out(convert, i, loads);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, loads, bytes);
    return BERTH_OK;
}

/*
 * True when no part can know all lengths of a shard while it writes there: several
 * have tensors in it, or the one that has comes there with what is left of others.
 */
static bool
is_mixed(const berthi_convert *convert, uint32_t shard)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    bool has_begun = false;

    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const uint32_t weight = recipe->outputs[what.tensors[i]].weight;

        if (convert->part_of[weight]
            != convert->part_of[recipe->outputs[what.tensors[0]].weight])
            return true;
        has_begun = has_begun || first_shard_of(convert, &recipe->weights[weight]) == shard;
    }
    return !has_begun;
}

bool
berthi_part_has_shard(const berthi_convert *convert, uint32_t part, uint32_t shard)
{
    for (uint32_t i = 0; i < convert->share_count; i++)
        if (convert->shares[i].part == part && convert->shares[i].shard == shard)
            return true;
    return false;
}

/* Adds, or only counts, the parts that begin weights in a shard. */
static void
list_shares_of(berthi_convert *convert, uint32_t shard, uint32_t *marks)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);

    for (uint32_t i = 0; i < what.tensor_count; i++) {
        const uint32_t weight = recipe->outputs[what.tensors[i]].weight;
        const uint32_t part = convert->part_of[weight];

        if (marks[part] == shard + 1
            || first_shard_of(convert, &recipe->weights[weight]) != shard)
            continue;
        marks[part] = shard + 1;
        if (convert->shares != NULL)
            convert->shares[convert->share_count] =
                (berthi_part_share){ .shard = shard, .part = part };
        convert->share_count++;
    }
}

static berth_status
list_shares(berthi_convert *convert, berth_error *error)
{
    const uint32_t shard_count = berthi_layout_shard_count(convert->layout);
    const uint32_t part_count = convert->options.part_count;
    /* By part: the last shard that it was noted for, plus 1; twice, for two ways. */
    uint32_t *const marks =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_DOCUMENT,
                             (part_count + UINT64_C(1)) * 2 * sizeof *marks);

    if (marks == NULL)
        return berthi_fail_memory(error, "dividing the work");
    for (uint32_t i = 0; i < shard_count; i++) {
        list_shares_of(convert, i, marks);
        convert->is_mixed[i] = !convert->is_exchanging && is_mixed(convert, i);
    }
    convert->share_capacity = convert->share_count;
    convert->share_count = 0;
    convert->shares = berthi_memory_array(convert->context, BERTHI_PURPOSE_TENSORS,
                                          convert->share_capacity, sizeof *convert->shares);
    for (uint32_t i = 0; i < shard_count && convert->shares != NULL; i++)
        list_shares_of(convert, i, marks + part_count + 1);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, marks,
                       (part_count + UINT64_C(1)) * 2 * sizeof *marks);
    return convert->shares != NULL ? BERTH_OK
                                   : berthi_fail_memory(error, "dividing the work");
}

berth_status
berthi_part_fail_none(const berthi_convert *convert, berth_error *error)
{
    const berthi_about about = { .file = convert->options.output };

    return berthi_fail(error, BERTH_REASON_PARTS, &about,
                       "no part of this command has finished anything there");
}

/* None where everything has been joined before: there is nothing to divide. */
static berth_status
count_parts(berthi_convert *convert, berth_error *error)
{
    bool is_joined = false;
    berth_status status = BERTH_OK;

    if (convert->options.part_count > 0)
        return BERTH_OK;
    status = berthi_writer_find_parts(convert->options.output, convert->identity,
                                      &convert->options.part_count, error);
    if (status == BERTH_OK && convert->options.part_count == 0)
        status = berthi_convert_find_result(convert, &is_joined, error);
    if (status == BERTH_OK && convert->options.part_count == 0 && !is_joined)
        return berthi_part_fail_none(convert, error);
    return status;
}

static berth_status
divide_work(berthi_convert *convert, berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const uint32_t shard_count = berthi_layout_shard_count(convert->layout);
    const uint32_t part_count = convert->options.part_count;
    berth_status status = BERTH_OK;

    convert->guesses =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             recipe->output_count * sizeof *convert->guesses);
    convert->part_of =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             recipe->weight_count * sizeof *convert->part_of);
    convert->lengths =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             recipe->output_count * sizeof *convert->lengths);
    convert->mixed_capacity = shard_count;
    convert->is_mixed =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             shard_count * sizeof *convert->is_mixed);
    if (convert->guesses == NULL || convert->lengths == NULL || convert->part_of == NULL
        || convert->is_mixed == NULL)
        return berthi_fail_memory(error, "dividing the work");
    for (uint32_t i = 0; i < recipe->output_count; i++)
        if (recipe->tensors[i].is_late) {
            convert->guesses[i] = (uint32_t)recipe->tensors[i].bytes;
            convert->is_exchanging = shard_count < part_count;
        }
    if (convert->is_exchanging)
        convert->sizes.ring /= 4; /* what waits for its place has as much */
    if (shard_count >= part_count)
        status = assign_shards(convert, error);
    else if (convert->is_exchanging)
        status = assign_by_turns(convert, error);
    else
        assign_stretches(convert);
    if (status != BERTH_OK)
        return status;
    return list_shares(convert, error);
}

berth_status
berthi_part_assign(berthi_convert *convert, berth_error *error)
{
    const berth_status status = count_parts(convert, error);

    return status == BERTH_OK && convert->options.part_count > 0
               ? divide_work(convert, error)
               : status;
}

void
berthi_part_free(berthi_convert *convert)
{
    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, convert->guesses,
                       convert->recipe.output_count * sizeof *convert->guesses);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, convert->lengths,
                       convert->recipe.output_count * sizeof *convert->lengths);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, convert->is_mixed,
                       convert->mixed_capacity * sizeof *convert->is_mixed);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, convert->part_of,
                       convert->recipe.weight_count * sizeof *convert->part_of);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, convert->shares,
                       convert->share_capacity * sizeof *convert->shares);
}

uint64_t
berthi_part_most_bytes(const berthi_convert *convert, uint32_t output)
{
    const uint32_t guess = convert->guesses[output];

    return guess > 0 ? guess + UINT64_C(1) * BERTHI_CONVERT_LATE_SLACK
                     : convert->recipe.tensors[output].bytes;
}

uint64_t
berthi_part_file_bytes(const berthi_convert *convert, uint32_t shard)
{
    const berthi_layout_shard what = berthi_layout_shard_at(convert->layout, shard);
    uint64_t bytes = BERTHI_HEADER_PREFIX + what.header_bytes + what.payload_bytes;

    for (uint32_t i = 0; i < what.tensor_count; i++)
        if (convert->guesses[what.tensors[i]] > 0)
            bytes += BERTHI_CONVERT_LATE_SLACK;
    return bytes;
}
