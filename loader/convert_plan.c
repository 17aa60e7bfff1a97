/* SPDX-License-Identifier: Apache-2.0 */
/* convert_plan.c - the memory that a conversion will need. */
#include "loader/convert_batch.h"

#define RING_CHUNKS_MIN 3u   /* of the conveyor */
#define PAGE_BYTES 4096u     /* a buffer begins and ends with whole ones */
/* Texts of journal, index and manifest; the conveyor's and the writer's tables. */
#define OTHER_MEMORY (UINT64_C(8) << 20)

/* --------------------------------------------------------------------- memory */

void
berthi_convert_find_shards(const berthi_convert *convert,
                           const berthi_recipe_weight *weight, uint32_t *first,
                           uint32_t *last)
{
    *first = UINT32_MAX;
    *last = 0;
    for (uint32_t i = 0; i < weight->output_count; i++) {
        const uint32_t shard = convert->recipe.tensors[weight->first_output + i].shard;

        *first = shard < *first ? shard : *first;
        *last = shard > *last ? shard : *last;
    }
}

/* Bytes that a shard's conversion needs beside ring, scratch and pool. */
typedef struct shard_needs {
    uint64_t tables;
    uint64_t parcels_begin; /* kept from this shard on */
    uint64_t parcels_end;   /* gone before this shard */
} shard_needs;

/* Parcels of a weight, which were sent from `first` on. Returns their bytes. */
static uint64_t
add_parcels(const berthi_convert *convert, const berthi_run *run, uint32_t first,
            shard_needs *needs)
{
    const berthi_recipe_weight *const weight = run->weight;
    uint64_t all = 0;

    for (uint32_t i = 0; i < weight->output_count; i++) {
        const berthi_layout_tensor *const tensor =
            &convert->recipe.tensors[weight->first_output + i];
        const uint64_t pieces = run->weight->is_copied
                                    ? tensor->bytes / run->plan.unit
                                    : run->units_left;
        const uint64_t bytes =
            tensor->bytes + (pieces + 1) * sizeof(berthi_convert_parcel);

        if (i > 0) /* the weight's own tensor stays where its weight is */
            all += bytes;
        if (tensor->shard == first)
            continue;
        needs[first].parcels_begin += bytes;
        needs[tensor->shard + 1].parcels_end += bytes;
    }
    return all;
}

static uint64_t
table_bytes(const berthi_run *run)
{
    return sizeof *run
           + run->units_left
                 * (sizeof(berthi_unit) + sizeof(berthi_piece) + sizeof(berthi_chunk)
                    + sizeof(berthi_span) + 1);
}

static uint64_t
largest_tables(const shard_needs *needs, uint32_t shard_count)
{
    uint64_t parcels = 0;
    uint64_t most = 0;

    for (uint32_t i = 0; i < shard_count; i++) {
        parcels = parcels + needs[i].parcels_begin - needs[i].parcels_end;
        most = berthi_max_u64(most, needs[i].tables + parcels);
    }
    return most;
}

/* The largest unit of any weight, and the largest weight under way. */
static void
add_run(berthi_convert *convert, const berthi_run *run)
{
    const berthi_run_plan *const plan = &run->plan;

    if (berthi_convert_is_mine(convert, (uint32_t)(run->weight - convert->recipe.weights)))
        convert->total += run->stored_bytes * plan->strip_count;
    berthi_scratch_widen(&convert->scratch, plan);
    convert->run_memory = berthi_max_u64(convert->run_memory, plan->memory);
    convert->ring_memory = berthi_max_u64(
        convert->ring_memory, RING_CHUNKS_MIN * (plan->read_max + 2 * PAGE_BYTES));
}

static berth_status
measure_weights(berthi_convert *convert, shard_needs *needs, berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    uint64_t extra = 0; /* a weight that turns out to cross the end of its shard */
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < recipe->weight_count && status == BERTH_OK; i++) {
        berthi_run run;
        uint32_t first;
        uint32_t last;

        status = berthi_run_init(convert, &run, &recipe->weights[i], error);
        if (status != BERTH_OK)
            break;
        berthi_convert_find_shards(convert, run.weight, &first, &last);
        add_run(convert, &run);
        needs[first].tables += table_bytes(&run);
        extra = berthi_max_u64(extra, table_bytes(&run)
                                          + add_parcels(convert, &run, first, needs));
    }
    convert->table_memory = OTHER_MEMORY;
    if (berthi_layout_shard_count(convert->layout) > 1)
        convert->table_memory += extra;
    if (convert->is_exchanging)
        convert->table_memory += convert->sizes.parcels + BERTHI_CONVERT_SPARE_BYTES;
    return status;
}

berth_status
berthi_convert_measure(berthi_convert *convert, berth_error *error)
{
    const uint32_t shard_count = berthi_layout_shard_count(convert->layout);
    const uint64_t ring = convert->options.ring_bytes > 0 ? convert->options.ring_bytes
                                                          : convert->sizes.ring;
    const uint64_t bytes = (shard_count + UINT64_C(1)) * sizeof(shard_needs);
    shard_needs *const needs =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_DOCUMENT, bytes);
    berth_status status;

    if (needs == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    convert->ring_memory = ring;
    convert->run_memory = convert->sizes.pool;
    status = measure_weights(convert, needs, error);
    if (status == BERTH_OK)
        convert->table_memory += largest_tables(needs, shard_count);
    convert->unit_memory = berthi_scratch_bytes(&convert->scratch);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, needs, bytes);
    return status;
}
