/* SPDX-License-Identifier: Apache-2.0 */
/* convert_plan.c - what a conversion will need, and that its output is no source. */
#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/convert_batch.h"

#define RING_CHUNKS_MIN 3u   /* of the conveyor */
#define PAGE_BYTES 4096u     /* a buffer begins and ends with whole ones */
#define MAX_DEPTH 4096       /* of folders above a folder */
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
        const uint64_t bytes =
            tensor->bytes + (run->units_left + 1) * sizeof(berthi_convert_parcel);

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
    const uint64_t unit =
        plan->values_max + plan->codes_max + plan->maxima_max * sizeof(float);

    convert->total += run->stored_bytes * plan->strip_count;
    convert->unit_memory = berthi_max_u64(convert->unit_memory, unit);
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
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, needs, bytes);
    return status;
}

/* --------------------------------------------------------------------- folders */

static bool
is_same(const berthi_sys_stat *a, const berthi_sys_stat *b)
{
    return a->device == b->device && a->inode == b->inode;
}

/*
 * Whether `folder` is `wanted` or lies in it. What may not be looked at on the
 * way up lies in nothing.
 */
static bool
is_within(int folder, const berthi_sys_stat *wanted)
{
    berthi_sys_stat state;
    berthi_sys_stat below = { .inode = 0 };
    int at = berthi_sys_open_folder(folder, ".");
    bool is_found = false;

    for (int depth = 0; at >= 0 && depth < MAX_DEPTH && !is_found; depth++) {
        int above;

        if (berthi_sys_fstat(at, &state) != 0)
            break;
        is_found = is_same(&state, wanted);
        if (depth > 0 && is_same(&state, &below))
            break; /* the root */
        below = state;
        above = berthi_sys_open_folder(at, "..");
        berthi_sys_close(at);
        at = above;
    }
    if (at >= 0)
        berthi_sys_close(at);
    return is_found;
}

/* The output's folder, or the one in which it will be made; -1: neither is there. */
static int
open_nearest(const char *output, berthi_arena *texts, bool *out_exists)
{
    const int folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, output);
    uint64_t length = strlen(output);
    char *above;

    *out_exists = folder >= 0;
    if (folder >= 0 || errno != ENOENT)
        return folder;
    while (length > 0 && output[length - 1] == '/')
        length--;
    while (length > 0 && output[length - 1] != '/')
        length--;
    above = berthi_arena_text(texts, output, length);
    if (above == NULL)
        return -1;
    return berthi_sys_open_folder(BERTHI_SYS_AT_CWD, length > 0 ? above : ".");
}

static const char *
find_overlap(int output, bool exists, const berthi_location *source)
{
    berthi_sys_stat source_state;
    berthi_sys_stat output_state;

    if (berthi_sys_fstat(source->folder, &source_state) != 0
        || berthi_sys_fstat(output, &output_state) != 0)
        return NULL;
    if (exists && is_same(&source_state, &output_state))
        return "is the folder of the model that is read";
    /* Beside a file that was named there may be anything. */
    if (source->file == NULL && is_within(output, &source_state))
        return "lies in the folder of the model that is read";
    if (exists && is_within(source->folder, &output_state))
        return "holds the folder of the model that is read";
    return NULL;
}

berth_status
berthi_convert_check_output(berthi_convert *convert, berth_error *error)
{
    const char *const output = convert->options.output;
    const berthi_about about = { .file = output };
    const char *problem;
    bool exists;
    const int folder = open_nearest(output, &convert->texts, &exists);

    if (folder < 0)
        return BERTH_OK; /* the writer says what is wrong */
    problem = find_overlap(folder, exists, &convert->recipe.location);
    berthi_sys_close(folder);
    if (problem == NULL)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about, "%s", problem);
}
