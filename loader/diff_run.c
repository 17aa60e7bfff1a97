/* SPDX-License-Identifier: Apache-2.0 */
/* diff_run.c - the statistics of both sides of a weight: read, compared, ready. */
#include <string.h>

#include "loader/diff_batch.h"
#include "loader/safetensors.h"

#define ALIGNMENT 64u
#define COMPANIONS 8u
#define PAGE_BYTES 4096u

berth_status
berthi_diff_read(berthi_diff_batch *batch, uint32_t file, void *buffer, uint64_t bytes,
                 uint64_t offset, berth_error *error)
{
    atomic_fetch_add(&batch->diff->read, bytes);
    return berthi_file_read(&batch->diff->files[file], buffer, bytes, offset,
                            "reading a weight", error);
}

/* ---------------------------------------------------------------- companions */

typedef struct companion {
    const char *name; /* borrowed, ends at name_length */
    uint64_t name_length;
    uint32_t file;
    uint64_t offset;
    uint64_t bytes;
    int32_t dtype;
} companion;

static companion
companion_of(const berthi_diff *diff, const berthi_diff_run *run, uint32_t side,
             uint32_t number)
{
    const berth_checkpoint *const c = diff->checkpoints[side];
    const uint32_t position = run->pair.sides[side].record->companions[number];
    const berthi_entry *const entry = &c->table.entries[c->table.by_name[position]];

    return (companion){
        .name = berthi_entry_name(c->table.text, entry),
        .name_length = entry->name_length,
        .file = entry->shard + (side == 0 ? 0 : diff->checkpoints[0]->shard_count),
        .offset = berthi_checkpoint_offset(c, entry),
        .bytes = entry->end - entry->begin,
        .dtype = entry->dtype,
    };
}

/* How many companions the side is decoded with. */
static uint32_t
decoding_count(const berthi_diff_run *run, uint32_t side)
{
    if (run->pair.sides[side].record == NULL || run->pair.mode == BERTHI_DIFF_BYTES)
        return 0;
    return berthi_decoder_companions(&run->pair.sides[side].decoder);
}

static uint32_t
companion_count(const berthi_diff_run *run, uint32_t side)
{
    const berthi_quantized *const record = run->pair.sides[side].record;

    return record != NULL ? record->companion_count : 0;
}

/* What a side's companions take, and what they are prepared to. */
static uint64_t
statistics_bytes(const berthi_diff *diff, const berthi_diff_run *run, uint32_t side)
{
    const uint32_t count = decoding_count(run, side);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += berthi_round_up(companion_of(diff, run, side, i).bytes, ALIGNMENT);
    if (count > 0)
        bytes += berthi_round_up(
            berthi_decoder_statistics_bytes(&run->pair.sides[side].decoder), ALIGNMENT);
    return bytes;
}

static berth_status
prepare_side(berthi_diff_batch *batch, berthi_diff_run *run, uint32_t side,
             uint8_t **next, berthi_companion *companions, berth_error *error)
{
    const berthi_diff *const diff = batch->diff;
    berthi_diff_side *const it = &run->pair.sides[side];
    const uint32_t count = decoding_count(run, side);

    for (uint32_t i = 0; i < count; i++) {
        const companion from = companion_of(diff, run, side, i);
        const berth_status status =
            berthi_diff_read(batch, from.file, *next, from.bytes, from.offset, error);

        if (status != BERTH_OK)
            return status;
        companions[i] = (berthi_companion){ *next, from.bytes, from.dtype };
        *next += berthi_round_up(from.bytes, ALIGNMENT);
    }
    if (count > 0) {
        uint8_t *const memory = *next;

        *next += berthi_round_up(berthi_decoder_statistics_bytes(&it->decoder), ALIGNMENT);
        if (!berthi_decoder_can_prepare(&it->decoder, companions, memory))
            return berthi_fail(error, BERTH_REASON_COMPANION_MISMATCH,
                               &(berthi_about){ .file = diff->files[it->file].path,
                                                .tensor = it->weight->name,
                                                .tensor_length = it->weight->name_length },
                               "its statistics are not those of such a weight");
    }
    return BERTH_OK;
}

/* The same absmax, scales and ways to use them. */
static bool
is_same_statistics(const berthi_diff_run *run,
                   const berthi_companion companions[2][COMPANIONS])
{
    const berthi_quantized *const a = run->pair.sides[0].record;
    const berthi_quantized *const b = run->pair.sides[1].record;
    const uint32_t count = decoding_count(run, 0);

    if (a == NULL || b == NULL)
        return a == b;
    if (a->block_size != b->block_size || a->block_columns != b->block_columns
        || a->is_double != b->is_double
        || a->is_transposed_absmax != b->is_transposed_absmax
        || count != decoding_count(run, 1)
        || (a->is_double && a->nested_dtype != b->nested_dtype)
        || (a->is_double && memcmp(&a->offset, &b->offset, sizeof a->offset) != 0))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (companions[0][i].dtype != companions[1][i].dtype
            || companions[0][i].size != companions[1][i].size
            || memcmp(companions[0][i].bytes, companions[1][i].bytes,
                      companions[0][i].size) != 0)
            return false;
    return true;
}

static berth_status
compare_companions(berthi_diff_batch *batch, const companion *a, const companion *b,
                   bool *out_are_same, berth_error *error)
{
    uint8_t pages[2][PAGE_BYTES];

    *out_are_same = a->bytes == b->bytes && a->dtype == b->dtype;
    for (uint64_t at = 0; *out_are_same && at < a->bytes; at += PAGE_BYTES) {
        const uint64_t part = berthi_min_u64(a->bytes - at, PAGE_BYTES);
        berth_status status =
            berthi_diff_read(batch, a->file, pages[0], part, a->offset + at, error);

        if (status == BERTH_OK)
            status = berthi_diff_read(batch, b->file, pages[1], part, b->offset + at, error);
        if (status != BERTH_OK)
            return status;
        *out_are_same = memcmp(pages[0], pages[1], part) == 0;
    }
    return BERTH_OK;
}

/* What berth does not decode it knows by names alone: a scale is not the inverse of one. */
static bool
is_named_alike(const berthi_diff_run *run, const companion *a, const companion *b)
{
    return run->pair.mode != BERTHI_DIFF_BYTES
           || berthi_name_compare(a->name, a->name_length, b->name, b->name_length) == 0;
}

/* Companions that only other readers decode with: tables, states; of bytes alone, all. */
static berth_status
compare_rest(berthi_diff_batch *batch, berthi_diff_run *run, berth_error *error)
{
    const uint32_t count = companion_count(run, 0);
    berth_status status = BERTH_OK;

    run->is_same = run->has_same_statistics && count == companion_count(run, 1)
                   && run->pair.sides[0].entry->dtype == run->pair.sides[1].entry->dtype;
    for (uint32_t i = decoding_count(run, 0);
         status == BERTH_OK && run->is_same && i < count; i++) {
        const companion a = companion_of(batch->diff, run, 0, i);
        const companion b = companion_of(batch->diff, run, 1, i);

        run->is_same = is_named_alike(run, &a, &b);
        if (run->is_same)
            status = compare_companions(batch, &a, &b, &run->is_same, error);
    }
    if (run->pair.mode == BERTHI_DIFF_BYTES)
        run->has_same_statistics = run->is_same;
    return status;
}

berth_status
berthi_diff_begin_run(berthi_diff_batch *batch, berthi_diff_run *run, berth_error *error)
{
    berthi_companion companions[2][COMPANIONS];
    uint8_t *next;
    berth_status status = BERTH_OK;

    run->memory_bytes = statistics_bytes(batch->diff, run, 0)
                        + statistics_bytes(batch->diff, run, 1);
    if (run->memory_bytes > 0) {
        run->memory = berthi_memory_aligned(batch->diff->context, BERTHI_PURPOSE_SCRATCH,
                                            run->memory_bytes, ALIGNMENT);
        if (run->memory == NULL)
            return berthi_fail_memory(error, "the statistics of a weight");
    }
    next = run->memory;
    for (uint32_t side = 0; side < 2 && status == BERTH_OK; side++)
        status = prepare_side(batch, run, side, &next, companions[side], error);
    if (status != BERTH_OK)
        return status;
    run->has_same_statistics = run->pair.has_codes && is_same_statistics(run, companions);
    return compare_rest(batch, run, error);
}

void
berthi_diff_end_run(berthi_diff_batch *batch, berthi_diff_run *run)
{
    berthi_memory_free_aligned(batch->diff->context, BERTHI_PURPOSE_SCRATCH, run->memory,
                               run->memory_bytes, ALIGNMENT);
    run->memory = NULL;
}

/* The first unit of a run begins it, the others wait for that. */
berth_status
berthi_diff_enter_run(berthi_diff_batch *batch, berthi_diff_run *run, berth_error *error)
{
    berth_status status = berthi_once_enter(&run->once, &batch->lock, &batch->has_changed,
                                            &batch->is_stopped, error);

    if (status != BERTH_PENDING)
        return status;
    status = berthi_diff_begin_run(batch, run, error);
    if (status == BERTH_OK)
        berthi_once_leave(&run->once, &batch->lock, &batch->has_changed);
    return status;
}
