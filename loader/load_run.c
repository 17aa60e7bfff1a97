/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_run.c - weights that are encoded while they are loaded: how they are cut, how
 * they begin and how they end.
 */
#include <string.h>

#include "kernels/sys.h"
#include "loader/load_job.h"
#include "loader/statistics.h"
#include "quant/format.h"

/* The most bytes that are decoded at a time, where a weight has no smaller pieces. */
#define VALUES_MAX (UINT64_C(64) << 20)
/* The largest weight that is turned, in bytes: all its values lie in host memory for a while. */
#define TURNED_MAX (UINT64_C(1) << 30)

/* ---------------------------------------------------------------------------- cut */

/* What is read of a weight that is turned: whole rows, as they lie in the file. */
static bool
can_cut_turned(berthi_load_run *run, uint64_t step)
{
    const uint64_t width = berthi_format_element_bytes(run->dtype);

    if (!berthi_can_multiple(step, run->turning.columns, VALUES_MAX / width, &step))
        return false;
    run->unit = berthi_max_u64(BERTHI_SLAB_PIECE / width / step, 1) * step;
    return berthi_can_mul(run->elements, width, &run->turned_bytes)
           && run->turned_bytes <= TURNED_MAX;
}

/*
 * Smaller units for a slice of columns, because what lies between them is read, too. What lies
 * together and is more than a unit has units of its own. The cut is in bytes as they are stored,
 * of which a value may have more or fewer than what it is decoded to.
 */
static void
cut_columns(berthi_load_run *run, uint64_t step)
{
    const uint64_t most = run->unit * berthi_format_element_bytes(run->dtype);
    const uint64_t fit = berthi_cut_fit(&run->cut, 0, most, most)
                         / berthi_format_element_bytes(run->decoder.stored_dtype);
    const uint64_t width = run->elements / run->cut.rows;

    run->unit = berthi_max_u64(berthi_min_u64(fit, run->unit) / step, 1) * step;
    if (run->unit < width && width % step == 0)
        run->together = width;
}

/*
 * Elements that are encoded at a time, and those of a unit: whole blocks or rows, and
 * where values cannot be decoded from anywhere on, whole steps of that.
 */
static bool
can_cut(berthi_load_run *run)
{
    const uint64_t fit = BERTHI_SLAB_PIECE / berthi_format_element_bytes(run->dtype);
    const uint64_t step = berthi_quantizer_step(&run->quantizer);
    const uint64_t decoded = berthi_decoder_step(&run->decoder);

    if (step > fit)
        return false;
    run->unit = fit / step * step;
    run->piece = berthi_max_u64(fit / BERTHI_LOAD_PLACES / step, 1) * step;
    if (run->cut.rows != 1 && run->elements > 0)
        cut_columns(run, step);
    if (run->turning.rows > 0)
        return can_cut_turned(
            run, decoded > 1 ? decoded : 1 + berthi_decoder_lead_max(&run->decoder));
    if (decoded == 1)
        return true;
    run->unit = decoded;
    return (decoded % step == 0 || decoded == run->elements)
           && decoded <= VALUES_MAX / berthi_format_element_bytes(run->dtype);
}

static berth_status
fail_cut(const berthi_load *load, const berthi_load_run *run, berth_error *error)
{
    const berthi_about where = berthi_load_about(load, run->berth);

    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &where,
                       "cannot be brought into its encoding piece by piece: quantize the "
                       "checkpoint with `berth quantize` first");
}

static void
find_places(const berthi_load *load, berthi_load_run *run, const berthi_cargo *cargo)
{
    uint8_t *const berth = berthi_model_place(load->model, run->berth);

    for (uint32_t i = 0; berth != NULL && i < cargo->part_count; i++) {
        const berthi_cargo_part *const part = &cargo->parts[i];
        uint8_t *const memory = berth + part->offset;

        if (i == 0)
            run->codes = memory;
        else if (part->role == BERTH_ROLE_ABSMAX2)
            run->absmax2 = (float *)(void *)memory;
        else if (run->is_double)
            run->absmax_codes = memory;
        else
            run->absmax = (float *)(void *)memory;
    }
}

/* A staging buffer begins at a page of the file: values lie there as they do here. */
static bool
is_aligned(const berthi_load *load, uint32_t number, uint64_t width)
{
    const berthi_entry *const entry = &load->checkpoint->table.entries[number];

    return berthi_checkpoint_offset(load->checkpoint, entry) % width == 0;
}

uint64_t
berthi_load_run_fit(const berthi_load_run *run, uint64_t at)
{
    const uint64_t left = run->together > 0 ? run->together - at % run->together
                                            : run->elements - at;

    return berthi_min_u64(run->unit, left);
}

berth_status
berthi_load_run_init(const berthi_load *load, berthi_load_run *run, uint64_t berth,
                     const berthi_cargo *cargo, berth_error *error)
{
    const berthi_berth *const b = &load->plan->berths[berth];
    const int32_t stored = load->checkpoint->table.entries[b->number].dtype;
    const berthi_storage *const storage = &cargo->storage;
    bool can_decode;

    memset(run, 0, sizeof *run);
    run->berth = berth;
    run->tier = b->tier;
    run->dtype = storage->dtype;
    run->record = cargo->record;
    run->elements = cargo->elements;
    run->cut = cargo->cut;
    run->is_double = berthi_stored_is_double(storage);
    if (cargo->is_turned && run->elements > 0)
        run->turning = (berthi_turning){
            .rows = cargo->shape[1],
            .columns = cargo->shape[0],
            .element_bytes = berthi_format_element_bytes(run->dtype),
        };
    can_decode =
        cargo->record != NULL
            ? berthi_decoder_can_init(&run->decoder, &load->operations, cargo->record)
            : berthi_decoder_can_init_native(&run->decoder, stored, cargo->elements);
    if (!can_decode
        || !berthi_quantizer_can_init(&run->quantizer, &load->operations, storage,
                                   cargo->shape, cargo->rank)
        || !can_cut(run))
        return fail_cut(load, run, error);
    if (run->elements == 0)
        return BERTH_OK;
    run->unit = berthi_min_u64(run->unit, run->elements);
    run->units_left = run->together > 0
                          ? run->cut.rows * berthi_divide_up(run->together, run->unit)
                          : berthi_divide_up(run->elements, run->unit);
    run->is_direct = cargo->record == NULL && stored == run->dtype
                     && is_aligned(load, b->number, berthi_format_element_bytes(run->dtype));
    if (!run->is_direct)
        run->values_bytes = (run->unit + berthi_decoder_lead_max(&run->decoder)) *
                            berthi_format_element_bytes(run->dtype);
    if (run->is_double)
        run->absmax_bytes = berthi_slab_round(run->quantizer.blocks * sizeof(float));
    run->statistics_bytes =
        berthi_statistics_bytes(load->checkpoint, run->record, &run->decoder);
    find_places(load, run, cargo);
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- begin */

static berth_status
verify_statistics(berthi_load *load, const berthi_load_run *run, berth_error *error)
{
    const berthi_entry *const entries = load->checkpoint->table.entries;
    const uint8_t *bytes;
    uint64_t number;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0;
         status == BERTH_OK && load->verify.promises.is_on
         && berthi_statistics_has(load->checkpoint, run->record, &run->decoder,
                               run->statistics, i, &number, &bytes);
         i++)
        status = berthi_load_verify_add(load, number, 0, bytes,
                                        entries[number].end - entries[number].begin,
                                        error);
    return status;
}

static berth_status
read_statistics(berthi_load *load, berthi_load_run *run, berth_error *error)
{
    berth_status status;

    if (run->record == NULL)
        return BERTH_OK;
    run->statistics = berthi_memory_aligned(load->context, BERTHI_PURPOSE_SCRATCH,
                                            run->statistics_bytes, 64);
    if (run->statistics == NULL)
        return berthi_fail_memory(error, "the statistics of a weight");
    status = berthi_statistics_read(load->checkpoint, run->record, &run->decoder,
                                    run->statistics, NULL, error);
    return status == BERTH_OK ? verify_statistics(load, run, error) : status;
}

/* The first place in the scratch that is free for so long; false: none is. Lock held. */
static bool
take_region(berthi_load_tier *tier, uint64_t capacity, uint64_t bytes, uint64_t *out)
{
    uint64_t at = 0;
    uint32_t free = BERTHI_LOAD_REGIONS;

    for (uint32_t i = 0; i < BERTHI_LOAD_REGIONS; i++) {
        const berthi_load_region *const region = &tier->regions[i];

        if (region->bytes == 0)
            free = i;
        if (region->bytes == 0 || region->begin >= at + bytes
            || region->begin + region->bytes <= at)
            continue;
        at = region->begin + region->bytes;
        i = UINT32_MAX; /* the others may be in the way of this place */
    }
    if (free == BERTHI_LOAD_REGIONS || at + bytes > capacity)
        return false;
    tier->regions[free] = (berthi_load_region){at, bytes};
    *out = at;
    return true;
}

/* Where values of a piece lie on the device, and behind them first levels. */
static berth_status
take_scratch(berthi_load *load, berthi_load_run *run, berth_error *error)
{
    const berthi_model_tier *const tier = &load->model->tiers[run->tier];
    berthi_load_tier *const lane = &load->tiers[run->tier];
    const uint64_t bytes =
        run->absmax_bytes + berthi_slab_second_scratch(run->quantizer.blocks);
    const uint64_t capacity = tier->scratch_bytes > BERTHI_SLAB_PIECE
                                  ? tier->scratch_bytes - BERTHI_SLAB_PIECE
                                  : 0;
    uint64_t at = 0;
    bool has_room = false;

    if (bytes > capacity)
        return berthi_fail(error, BERTH_REASON_PLAN_JSON, NULL,
                           "the plan has no room for what quantizing takes on %s",
                           load->plan->tiers[run->tier].name);
    pthread_mutex_lock(&load->lock);
    while (!load->is_stopped && !has_room) {
        has_room = lane->turn == run->turn && take_region(lane, capacity, bytes, &at);
        if (!has_room)
            pthread_cond_wait(&load->has_changed, &load->lock);
    }
    lane->turn += has_room;
    pthread_cond_broadcast(&load->has_changed);
    pthread_mutex_unlock(&load->lock);
    if (!has_room)
        return berthi_job_fail_cancelled(error);
    run->absmax = (float *)(void *)(tier->slab + tier->scratch + BERTHI_SLAB_PIECE + at);
    return BERTH_OK;
}

static void
give_scratch(berthi_load *load, const berthi_load_run *run)
{
    const berthi_model_tier *const tier = &load->model->tiers[run->tier];
    const uint64_t at = (uint64_t)((const uint8_t *)run->absmax - tier->slab)
                        - tier->scratch - BERTHI_SLAB_PIECE;
    berthi_load_region *const regions = load->tiers[run->tier].regions;

    pthread_mutex_lock(&load->lock);
    for (uint32_t i = 0; i < BERTHI_LOAD_REGIONS; i++)
        if (regions[i].bytes > 0 && regions[i].begin == at)
            regions[i].bytes = 0;
    pthread_cond_broadcast(&load->has_changed);
    pthread_mutex_unlock(&load->lock);
}

uint64_t
berthi_load_turned_room(const berthi_load *load)
{
    return berthi_slab_turned(load->turned_max, load->turned_sum);
}

static void
give_turned(berthi_load *load, berthi_load_run *run)
{
    if (run->turned.at == NULL)
        return;
    berthi_load_memory_give(load, &run->turned);
    pthread_mutex_lock(&load->lock);
    load->turned_used -= run->turned_bytes;
    pthread_cond_broadcast(&load->has_changed);
    pthread_mutex_unlock(&load->lock);
}

/* In the order of the files, as scratch; then memory for all of its values. */
static berth_status
take_turned(berthi_load *load, berthi_load_run *run, berth_error *error)
{
    const uint64_t room = berthi_load_turned_room(load) - run->turned_bytes;
    bool is_stopped;

    pthread_mutex_lock(&load->lock);
    while (!load->is_stopped
           && (load->turned_turn != run->turned_turn || load->turned_used > room))
        pthread_cond_wait(&load->has_changed, &load->lock);
    is_stopped = load->is_stopped;
    if (!is_stopped) {
        load->turned_turn++;
        load->turned_used += run->turned_bytes;
    }
    pthread_cond_broadcast(&load->has_changed);
    pthread_mutex_unlock(&load->lock);
    if (is_stopped)
        return berthi_job_fail_cancelled(error);
    return berthi_load_memory_take(load, run->turned_bytes,
                                   load->tiers[run->tier].stream != NULL, &run->turned)
               ? BERTH_OK
               : berthi_fail_memory(error, "turning a weight");
}

berth_status
berthi_load_run_begin(berthi_load *load, berthi_load_run *run, berth_error *error)
{
    berth_status status = berthi_once_enter(&run->once, &load->lock, &load->has_changed,
                                            &load->is_stopped, error);

    if (status != BERTH_PENDING)
        return status;
    status = !run->is_double     ? BERTH_OK
             : run->is_offloaded ? berthi_load_offload_begin(load, run, error)
                                 : take_scratch(load, run, error);
    if (status == BERTH_OK)
        status = read_statistics(load, run, error);
    if (status == BERTH_OK && run->turned_bytes > 0)
        status = take_turned(load, run, error);
    if (status == BERTH_OK)
        berthi_once_leave(&run->once, &load->lock, &load->has_changed);
    return status;
}

/* ---------------------------------------------------------------------------- end */

/* Scratch of the second level: in the piece's place, or behind the first level. */
static float *
second_scratch(const berthi_load_run *run, uint8_t *piece)
{
    const bool is_large = berthi_slab_second_scratch(run->quantizer.blocks) > 0;

    return (float *)(void *)(is_large ? (uint8_t *)run->absmax + run->absmax_bytes
                                      : piece + BERTHI_SLAB_RESULT);
}

/* Second level and offset; on a device the offset is brought back. */
static berth_status
finish_double(berthi_load *load, const berthi_load_run *run, berthi_load_hand *hand,
              berth_error *error)
{
    berthi_load_tier *const lane = &load->tiers[run->tier];
    const berthi_model_tier *const tier = &load->model->tiers[run->tier];
    const berthi_device_table *const table = tier->device->table;
    float *const offset = &load->model->offsets[run->berth];
    float *const scratch = (float *)(void *)(tier->slab + tier->scratch);
    float *const result = lane->stream == NULL ? offset : scratch;
    const berthi_request request = {
        .operation = BERTHI_OPERATION_ENCODE_DOUBLE,
        .arguments.offset = {.absmax = run->absmax,
                             .count = run->quantizer.blocks,
                             .codes = run->absmax_codes,
                             .absmax2 = run->absmax2,
                             .offset = result,
                             .scratch =
                                 second_scratch(run, tier->slab + tier->scratch)},
    };
    const berthi_copy copy = {.kind = BERTHI_COPY_TO_HOST,
                              .is_pinned = load->model->has_pinned_offsets,
                              .to = offset,
                              .from = scratch,
                              .bytes = sizeof *offset};
    berth_status status;

    pthread_mutex_lock(&lane->lock);
    status = table->launch(tier->device, &request, lane->stream, error);
    if (status == BERTH_OK && lane->stream != NULL)
        status = table->copy(tier->device, &copy, lane->stream, error);
    if (status == BERTH_OK && lane->stream != NULL)
        status = berthi_load_values_clear(load, run->tier, error);
    pthread_mutex_unlock(&lane->lock);
    hand->is_used[run->tier] = true;
    return status;
}

berth_status
berthi_load_run_end(berthi_load *load, berthi_load_run *run, berthi_load_hand *hand,
                    berth_error *error)
{
    berth_status status = BERTH_OK;

    if (run->is_double && run->is_offloaded) {
        status = berthi_load_offload_finish(load, run, error);
    } else if (run->is_double) {
        status = finish_double(load, run, hand, error);
        if (status == BERTH_OK)
            give_scratch(load, run);
    }
    berthi_load_run_fini(load, run);
    if (status == BERTH_OK)
        atomic_fetch_add(&load->quantized, run->quantized_bytes);
    return status;
}

void
berthi_load_run_fini(berthi_load *load, berthi_load_run *run)
{
    berthi_memory_free_aligned(load->context, BERTHI_PURPOSE_SCRATCH, run->statistics,
                               run->statistics_bytes, 64);
    run->statistics = NULL;
    give_turned(load, run);
    berthi_memory_free_aligned(load->context, BERTHI_PURPOSE_SCRATCH, run->statistics_out,
                               run->statistics_out_bytes, 64);
    run->statistics_out = NULL;
}
