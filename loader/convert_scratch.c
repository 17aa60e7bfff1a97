/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_scratch.c - what a worker needs for a unit, used again and again: memory, and a
 * line of work where a device encodes.
 *
 * A line that hangs when everything else is over still copies from host memory and to it.
 * So all of that scratch stays allocated: the context looks for it (stranded.h).
 */
#include "loader/convert_batch.h"
#include "loader/stage.h"

#define ALIGNMENT BERTHI_STAGE_ALIGNMENT /* what is pinned is whole pages */

uint64_t
berthi_scratch_bytes(const berthi_scratch_sizes *sizes)
{
    const uint64_t bytes = sizes->values + sizes->packed;

    return sizes->device == 0 ? bytes : berthi_round_up(bytes, ALIGNMENT);
}

void
berthi_scratch_widen(berthi_scratch_sizes *sizes, const berthi_run_plan *plan)
{
    sizes->values = berthi_max_u64(sizes->values, plan->scratch.values);
    sizes->packed = berthi_max_u64(sizes->packed, plan->scratch.packed);
    sizes->device = berthi_max_u64(sizes->device, plan->scratch.device);
}

static void
free_scratch(berthi_unit_scratch *scratch)
{
    berth_context *const context = scratch->context;

    berthi_line_close(scratch);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, scratch->values,
                               scratch->bytes, ALIGNMENT);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, scratch, sizeof *scratch);
}

static bool
try_end(berthi_kept *kept)
{
    berthi_unit_scratch *const scratch = (berthi_unit_scratch *)kept;

    if (!berthi_stream_is_over(&scratch->line.end))
        return false;
    free_scratch(scratch);
    return true;
}

static void
leave(berthi_unit_scratch *scratch)
{
    berthi_log(scratch->context, BERTH_LOG_WARNING,
               "work of a device has not ended: what it uses stays with it");
    scratch->kept.try_end = try_end;
    berthi_context_keep(scratch->context, &scratch->kept);
}

void
berthi_batch_free_scratch(berthi_batch *batch)
{
    while (batch->scratch != NULL) {
        berthi_unit_scratch *const scratch = batch->scratch;

        batch->scratch = scratch->next;
        if (berthi_line_hangs(&scratch->line, batch->convert->patience_ns))
            leave(scratch);
        else
            free_scratch(scratch);
    }
}

static berth_status
fill(berthi_unit_scratch *scratch, const berthi_convert *convert,
     const berthi_scratch_sizes *sizes, berth_error *error)
{
    scratch->values = berthi_memory_aligned(scratch->context, BERTHI_PURPOSE_SCRATCH,
                                            scratch->bytes, ALIGNMENT);
    if (scratch->values == NULL)
        return berthi_fail_memory(error, "converting a weight");
    scratch->packed = scratch->values + sizes->values;
    return sizes->device == 0
               ? BERTH_OK
               : berthi_line_open(convert->device, sizes->device, scratch, error);
}

static berth_status
create(const berthi_batch *batch, berthi_unit_scratch **out, berth_error *error)
{
    const berthi_scratch_sizes *const sizes = &batch->scratch_sizes;
    berth_context *const context = batch->convert->context;
    berthi_unit_scratch *const scratch =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, sizeof *scratch);
    berth_status status;

    *out = NULL;
    if (scratch == NULL)
        return berthi_fail_memory(error, "converting a weight");
    scratch->context = context;
    scratch->bytes = berthi_scratch_bytes(sizes);
    status = fill(scratch, batch->convert, sizes, error);
    if (status == BERTH_OK)
        *out = scratch;
    else
        free_scratch(scratch);
    return status;
}

berth_status
berthi_scratch_take(berthi_batch *batch, berthi_unit_scratch **out, berth_error *error)
{
    pthread_mutex_lock(&batch->lock);
    *out = batch->scratch;
    if (*out != NULL)
        batch->scratch = (*out)->next;
    pthread_mutex_unlock(&batch->lock);
    return *out != NULL ? BERTH_OK : create(batch, out, error);
}

void
berthi_scratch_give(berthi_batch *batch, berthi_unit_scratch *scratch)
{
    pthread_mutex_lock(&batch->lock);
    scratch->next = batch->scratch;
    batch->scratch = scratch;
    pthread_mutex_unlock(&batch->lock);
}
