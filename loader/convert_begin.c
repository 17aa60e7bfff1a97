/* SPDX-License-Identifier: Apache-2.0 */
/* convert_begin.c - the beginning of a run: its memory, companions, statistics. */
#include "kernels/digest.h"
#include "loader/convert_batch.h"
#include "quant/format.h"

#define PAGE_BYTES 4096u

berthi_about
berthi_run_about(const berthi_batch *batch, const berthi_run *run)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;

    return (berthi_about){
        .file = c->shards[c->table.entries[run->weight->tensor].shard].file.path,
        .tensor = run->weight->name,
        .tensor_length = run->weight->name_length,
    };
}

uint32_t
berthi_run_output(const berthi_batch *batch, const berthi_run *run, berthi_role role)
{
    const berthi_recipe_output *const outputs = batch->convert->recipe.outputs;

    for (uint32_t i = 0; i < run->weight->output_count; i++)
        if (outputs[run->weight->first_output + i].role == (int32_t)role)
            return run->weight->first_output + i;
    return UINT32_MAX;
}

/* True when all runs before this one have their memory, or need none. */
static bool
is_turn(berthi_batch *batch, uint64_t number)
{
    while (batch->next_to_begin < number
           && batch->runs[batch->next_to_begin].plan.strip_units == 0)
        batch->next_to_begin++;
    return batch->next_to_begin == number;
}

/*
 * Waits for the run's turn, and until its memory fits, which it then has; a larger one
 * comes alone. Lock held; false: stopped.
 */
static bool
await_memory(berthi_batch *batch, const berthi_run *run)
{
    const uint64_t number = (uint64_t)(run - batch->runs);
    const uint64_t pool = batch->convert->sizes.pool;
    const uint64_t bytes = run->plan.memory;

    while (!batch->is_stopped
           && (!is_turn(batch, number)
               || (batch->pool_used > 0
                   && bytes > pool - berthi_min_u64(batch->pool_used, pool))))
        pthread_cond_wait(&batch->has_changed, &batch->lock);
    if (batch->is_stopped)
        return false;
    batch->pool_used += bytes;
    batch->next_to_begin = number + 1;
    pthread_cond_broadcast(&batch->has_changed);
    return true;
}

static uint8_t *
take(uint8_t **next, uint64_t bytes)
{
    uint8_t *const memory = *next;

    if (bytes > 0) /* else there may be no memory at all */
        *next += berthi_round_up(bytes, BERTHI_RUN_ALIGNMENT);
    return memory;
}

const berthi_entry *
berthi_run_companion(const berthi_batch *batch, const berthi_run *run, uint32_t number)
{
    const berthi_table *const table = &batch->convert->checkpoint->table;

    return &table->entries[table->by_name[run->record->companions[number]]];
}

berth_status
berthi_companion_read(berthi_batch *batch, const berthi_entry *entry, uint64_t offset,
                      void *memory, uint64_t bytes, berth_error *error)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;
    const berth_status status = berthi_checkpoint_read(
        c, (uint64_t)(entry - c->table.entries), offset, memory, bytes,
        "reading the statistics of a weight", error);

    atomic_fetch_add(&batch->convert->companions_read, bytes);
    return status;
}

static berth_status
read_companions(berthi_batch *batch, const berthi_run *run, uint8_t **next,
                berthi_companion *companions, berth_error *error)
{
    const uint32_t count = berthi_decoder_companions(&run->decoder);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        const berthi_entry *const entry = berthi_run_companion(batch, run, i);
        const uint64_t bytes = entry->end - entry->begin;
        uint8_t *const memory = take(next, bytes);

        companions[i] = (berthi_companion){ memory, bytes, entry->dtype };
        status = berthi_companion_read(batch, entry, 0, memory, bytes, error);
        if (status == BERTH_OK)
            berthi_companion_digest(batch, entry, berthi_digest_crc32(0, memory, bytes));
    }
    return status;
}

/* Companions that only other readers decode with: tables, states. */
static berth_status
digest_rest(berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    const uint32_t count = run->record != NULL ? run->record->companion_count : 0;
    uint8_t page[PAGE_BYTES];
    berth_status status;

    for (uint32_t i = berthi_decoder_companions(&run->decoder); i < count; i++) {
        const berthi_entry *const entry = berthi_run_companion(batch, run, i);
        const uint64_t bytes = entry->end - entry->begin;
        uint32_t crc = 0;

        for (uint64_t at = 0; at < bytes; at += sizeof page) {
            const uint64_t part = berthi_min_u64(bytes - at, sizeof page);

            status = berthi_companion_read(batch, entry, at, page, part, error);
            if (status != BERTH_OK)
                return status;
            crc = berthi_digest_crc32(crc, page, part);
        }
        berthi_companion_digest(batch, entry, crc);
    }
    return BERTH_OK;
}

/* Divides the run's memory; companions and statistics are filled. */
static berth_status
prepare(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    const berthi_run_plan *const plan = &run->plan;
    const uint64_t blocks = run->quantizer.blocks;
    berthi_companion companions[8];
    uint8_t *next = run->memory;
    uint8_t *statistics;
    berth_status status = read_companions(batch, run, &next, companions, error);

    if (status == BERTH_OK)
        status = digest_rest(batch, run, error);
    if (status != BERTH_OK)
        return status;
    statistics = take(&next, plan->statistics_bytes);
    if (run->record != NULL
        && !berthi_decoder_can_prepare(&run->decoder, companions, statistics)) {
        const berthi_about about = berthi_run_about(batch, run);

        return berthi_fail(error, BERTH_REASON_COMPANION_MISMATCH, &about,
                           "its statistics are not those of such a weight");
    }
    if (run->weight->is_turned)
        run->strip = take(&next, plan->strip * run->weight->shape[0]
                                     * berthi_format_element_bytes(run->weight->storage.dtype));
    if (plan->double_bytes > 0) {
        run->codes = take(&next, blocks);
        run->absmax2 = (float *)(void *)take(&next, (blocks / 256 + 1) * sizeof(float));
        run->scratch = (float *)(void *)take(
            &next, berthi_quantizer_scratch(&run->quantizer) * sizeof(float));
        run->absmax = (float *)(void *)take(&next, blocks * sizeof(float));
    }
    return BERTH_OK;
}

static berth_status
allocate(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    bool has_room;
    berth_status status = BERTH_OK;

    pthread_mutex_lock(&batch->lock);
    has_room = await_memory(batch, run);
    pthread_mutex_unlock(&batch->lock);
    if (!has_room)
        return berthi_job_fail_cancelled(error);
    if (run->plan.memory > 0) {
        run->memory = berthi_memory_aligned(batch->convert->context, BERTHI_PURPOSE_SCRATCH,
                                            run->plan.memory, BERTHI_RUN_ALIGNMENT);
        if (run->memory == NULL)
            status = berthi_fail_memory(error, "converting a weight");
    }
    if (status == BERTH_OK && !run->weight->is_copied)
        status = prepare(batch, run, error);
    return status;
}

/* The first unit of a run begins it, the others wait for that. */
berth_status
berthi_run_begin(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    berth_status status = berthi_once_enter(&run->once, &batch->lock, &batch->has_changed,
                                            &batch->is_stopped, error);

    if (status != BERTH_PENDING)
        return status;
    status = allocate(batch, run, error);
    if (status == BERTH_OK)
        berthi_once_leave(&run->once, &batch->lock, &batch->has_changed);
    return status;
}
