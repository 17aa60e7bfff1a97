/* SPDX-License-Identifier: Apache-2.0 */
/* convert_scratch.c - memory that a worker needs for a unit, used again and again. */
#include "loader/convert_batch.h"

#define ALIGNMENT 64u

uint64_t
berthi_scratch_bytes(const berthi_scratch_sizes *sizes)
{
    return sizes->values + sizes->packed;
}

void
berthi_scratch_widen(berthi_scratch_sizes *sizes, const berthi_run_plan *plan)
{
    sizes->values = berthi_max_u64(sizes->values, plan->scratch.values);
    sizes->packed = berthi_max_u64(sizes->packed, plan->scratch.packed);
}

static void
free_scratch(const berthi_batch *batch, berthi_unit_scratch *scratch)
{
    berth_context *const context = batch->convert->context;

    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, scratch->values,
                               berthi_scratch_bytes(&batch->scratch_sizes), ALIGNMENT);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, scratch, sizeof *scratch);
}

void
berthi_batch_free_scratch(berthi_batch *batch)
{
    while (batch->scratch != NULL) {
        berthi_unit_scratch *const scratch = batch->scratch;

        batch->scratch = scratch->next;
        free_scratch(batch, scratch);
    }
}

static berth_status
create(const berthi_batch *batch, berthi_unit_scratch **out, berth_error *error)
{
    berth_context *const context = batch->convert->context;
    berthi_unit_scratch *const scratch =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, sizeof *scratch);

    *out = NULL;
    if (scratch == NULL)
        return berthi_fail_memory(error, "converting a weight");
    scratch->values =
        berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH,
                              berthi_scratch_bytes(&batch->scratch_sizes), ALIGNMENT);
    if (scratch->values == NULL) {
        free_scratch(batch, scratch);
        return berthi_fail_memory(error, "converting a weight");
    }
    scratch->packed = scratch->values + batch->scratch_sizes.values;
    *out = scratch;
    return BERTH_OK;
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
