/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_end.c - the end of a run: what is known only when all its values have
 * been seen, and what is the same for all weights.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/convert_batch.h"
#include "loader/recipe_weight.h"
#include "kernels/kernel.h"
#include "quant/format.h"
#include "quant/state.h"

/* ---------------------------------------------------------- NaN and infinities */

/* What the numbers are of, where it is not the values as they are stored. */
static const char *
nonfinite_place(const berthi_convert *convert, const berthi_recipe_weight *weight)
{
    const berthi_storage *const storage = &weight->storage;
    /* INT8 is made of F16, whatever the values are before. */
    const int32_t dtype =
        storage->encoding == BERTH_ENCODING_INT8 ? BERTH_F16 : storage->dtype;

    if (berthi_recipe_is_kept(weight))
        return " among its statistics";
    if (storage->dtype == dtype
        && berthi_recipe_values_dtype(&convert->recipe, weight) == dtype)
        return "";
    return dtype == BERTH_F16    ? " when it is cast to F16"
           : dtype == BERTH_BF16 ? " when it is cast to BF16"
                                 : "";
}

static berth_status
fail_nonfinite(const berthi_convert *convert, const berthi_recipe_weight *weight,
               uint64_t nan, uint64_t infinite, berth_error *error)
{
    const berth_checkpoint *const c = convert->checkpoint;
    const berthi_about about = {
        .file = c->shards[c->table.entries[weight->tensor].shard].file.path,
        .tensor = weight->name,
        .tensor_length = weight->name_length,
    };

    return berthi_fail(error, BERTH_REASON_NONFINITE, &about,
                       "has %" PRIu64 " NaN and %" PRIu64 " infinite values%s", nan,
                       infinite, nonfinite_place(convert, weight));
}

berth_status
berthi_convert_note_nonfinite(berthi_convert *convert, uint32_t number, uint64_t nan,
                              uint64_t infinite, berth_error *error)
{
    const berthi_recipe_weight *const weight = &convert->recipe.weights[number];
    berthi_convert_nonfinite *found;
    berth_error details;

    if (convert->is_nonfinite[number])
        return BERTH_OK;
    if (convert->options.reject_nonfinite)
        return fail_nonfinite(convert, weight, nan, infinite, error);
    found = berthi_memory_alloc(convert->context, BERTHI_PURPOSE_OBJECT, sizeof *found);
    if (found == NULL)
        return berthi_fail_memory(error, "the list of non-finite weights");
    *found = (berthi_convert_nonfinite){ convert->nonfinite, number, nan, infinite };
    convert->nonfinite = found;
    convert->is_nonfinite[number] = true;
    convert->report.nonfinite_tensors++;
    convert->report.nonfinite_values += nan + infinite;
    (void)fail_nonfinite(convert, weight, nan, infinite, &details);
    if (convert->options.finding != NULL)
        convert->options.finding(convert->options.finding_user,
                                 &(berth_finding){ .severity = BERTH_SEVERITY_WARNING,
                                                   .details = &details,
                                                   .name = weight->name,
                                                   .name_length = weight->name_length });
    return BERTH_OK;
}

static berth_status
note_nonfinite(berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const uint64_t nan = atomic_load(&run->nan);
    const uint64_t infinite = atomic_load(&run->infinite);
    berth_status status;

    if (nan + infinite == 0 || batch->is_measuring)
        return BERTH_OK;
    pthread_mutex_lock(&batch->lock);
    status = berthi_convert_note_nonfinite(
        convert, (uint32_t)(run->weight - convert->recipe.weights), nan, infinite, error);
    pthread_mutex_unlock(&batch->lock);
    return status;
}

/* ----------------------------------------------------------------- statistics */

static berth_status
print_state(const berthi_run *run, float offset, char text[BERTHI_STATE_TEXT_MAX],
            size_t *out_length, berth_error *error)
{
    const berthi_recipe_weight *const weight = run->weight;
    uint64_t turned[2];
    const uint64_t *const shape = berthi_recipe_stored_shape(weight, turned);
    berthi_state state;

    berthi_stored_state(&weight->storage, shape, weight->rank, offset, &state);
    *out_length = berthi_state_print(&state, text, BERTHI_STATE_TEXT_MAX);
    if (*out_length < BERTHI_STATE_TEXT_MAX)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_INTERNAL, NULL, "a state of %zu characters",
                       *out_length);
}

static berth_status
put_double(berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    const uint64_t blocks = run->quantizer.blocks;
    const uint64_t outer = berthi_divide_up(blocks, BERTHI_DOUBLE_BLOCK);
    berth_status status = berthi_batch_put(batch, run, BERTHI_ROLE_ABSMAX2, 0,
                                           run->absmax2, outer * sizeof(float), error);

    if (status == BERTH_OK)
        status = berthi_batch_put(batch, run, BERTHI_ROLE_ABSMAX, 0, run->codes, blocks,
                                  error);
    return status;
}

static berth_status
put_constants(berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    static const berthi_role roles[] = { BERTHI_ROLE_MAP, BERTHI_ROLE_MAP2,
                                         BERTHI_ROLE_ROW_FORMAT };
    uint8_t bytes[BERTHI_STORED_CONSTANT_MAX];
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < sizeof roles / sizeof roles[0] && status == BERTH_OK; i++) {
        const uint32_t size = berthi_stored_constant(
            roles[i], run->weight->storage.encoding, bytes);

        status = berthi_batch_put(batch, run, roles[i], 0, bytes, size, error);
    }
    return status;
}

/* Lengths are announced before anything is written: others may wait for them. */
static berth_status
put_statistics(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    char text[BERTHI_STATE_TEXT_MAX];
    size_t length = 0;
    float offset = 0;
    berth_status status = BERTH_OK;

    if (berthi_recipe_is_kept(run->weight))
        offset = (float)run->record->offset;
    else if (run->absmax != NULL)
        offset = berthi_quantizer_finish(&run->quantizer, run->absmax, run->codes,
                                         run->absmax2, run->scratch);
    if (berthi_format_is_4bit(run->weight->storage.encoding))
        status = print_state(run, offset, text, &length, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_batch_announce(batch, run, length, error);
    if (status == BERTH_OK && run->absmax != NULL)
        status = put_double(batch, run, error);
    if (status == BERTH_OK)
        status = berthi_batch_put(batch, run, BERTHI_ROLE_STATE, 0, text, length, error);
    if (status == BERTH_OK)
        status = put_constants(batch, run, error);
    return status;
}

void
berthi_run_free(berthi_batch *batch, berthi_run *run)
{
    berthi_memory_free_aligned(batch->convert->context, BERTHI_PURPOSE_SCRATCH,
                               run->memory, run->plan.memory, BERTHI_RUN_ALIGNMENT);
    run->memory = NULL;
}

berth_status
berthi_run_end(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (berthi_recipe_is_kept(run->weight))
        status = berthi_run_keep(batch, run, error);
    if (status == BERTH_OK)
        status = berthi_run_hold_sources(batch, run, error);
    if (status == BERTH_OK)
        status = note_nonfinite(batch, run, error);
    if (status == BERTH_OK)
        status = put_statistics(batch, run, error);
    if (run->memory == NULL)
        return status;
    berthi_run_free(batch, run);
    pthread_mutex_lock(&batch->lock);
    batch->pool_used -= run->plan.memory;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
    return status;
}
