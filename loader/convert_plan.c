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

/* "a/b/" lies in "a/", "b" in ".". NULL: out of memory. */
static const char *
folder_above(const char *path, berthi_arena *texts)
{
    uint64_t length = strlen(path);

    while (length > 0 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length > 0 ? berthi_arena_text(texts, path, length) : ".";
}

/*
 * Opens the output's folder, or the one in which it will be made. *out_folder
 * is -1 when it cannot be: the writer will say why.
 */
static berth_status
open_nearest(const char *output, berthi_arena *texts, int *out_folder, bool *out_exists,
             berth_error *error)
{
    const char *above;

    *out_folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, output);
    *out_exists = *out_folder >= 0;
    if (*out_exists || errno != ENOENT)
        return BERTH_OK;
    above = folder_above(output, texts);
    if (above == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    *out_folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, above);
    return BERTH_OK;
}

static berth_status
check_overlap(int folder, bool exists, const char *output, const berthi_location *source,
              berth_error *error)
{
    const berthi_about about = { .file = output };
    berthi_sys_stat source_state;
    berthi_sys_stat output_state;
    const char *problem = NULL;

    if (berthi_sys_fstat(source->folder, &source_state) != 0
        || berthi_sys_fstat(folder, &output_state) != 0)
        return berthi_fail_system(error, errno, output, "looking at the folder");
    if (exists && is_same(&source_state, &output_state))
        problem = "is the folder of the model that is read";
    /* Beside a file that was named there may be anything. */
    else if (source->file == NULL && is_within(folder, &source_state))
        problem = "lies in the folder of the model that is read";
    else if (exists && is_within(source->folder, &output_state))
        problem = "holds the folder of the model that is read";
    if (problem == NULL)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about, "%s", problem);
}

berth_status
berthi_convert_check_output(berthi_convert *convert, berth_error *error)
{
    const char *const output = convert->options.output;
    bool exists;
    int folder;
    berth_status status =
        open_nearest(output, &convert->texts, &folder, &exists, error);

    if (status != BERTH_OK || folder < 0)
        return status;
    status = check_overlap(folder, exists, output, &convert->recipe.location, error);
    berthi_sys_close(folder);
    return status;
}
