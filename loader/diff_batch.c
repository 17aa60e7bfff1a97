/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_batch.c - as many units as the tables hold, compared, and what was found
 * added up in the order of units. A weight may go on in the next batch.
 */
#include <string.h>

#include "loader/diff_batch.h"

/* The weight that is cut next. */
typedef struct position {
    berthi_diff_pair pair;
    uint64_t unit; /* the next one */
    bool is_open;  /* there is one, not all of it in batches */
} position;

/* -------------------------------------------------------------------- filling */

static void
add_unit(berthi_diff_batch *batch, const berthi_diff_run *run, uint64_t number)
{
    const uint64_t at = batch->unit_count++;
    berthi_diff_unit *const unit = &batch->units[at];

    *unit = (berthi_diff_unit){ .run = (uint32_t)(run - batch->runs),
                                .first = number * run->pair.unit,
                                .count = berthi_diff_unit_elements(&run->pair, number) };
    for (uint32_t side = 0; side < 2; side++) {
        const berthi_diff_side *const it = &run->pair.sides[side];
        berthi_decoder_span span;

        if (!berthi_diff_is_carried(&run->pair, side))
            continue;
        span = berthi_diff_extent(&run->pair, side, unit->first, unit->count);
        batch->pieces[batch->piece_count++] = (berthi_piece){ .offset = it->offset + span.begin,
                                                              .bytes = span.bytes,
                                                              .tag = at * 2 + side,
                                                              .file = it->file };
    }
}

static void
add_run(berthi_diff_batch *batch, position *next)
{
    berthi_diff_run *const run = &batch->runs[batch->run_count++];
    const uint64_t count = berthi_min_u64(next->pair.unit_count - next->unit,
                                          batch->unit_capacity - batch->unit_count);

    *run = (berthi_diff_run){ .pair = next->pair,
                              .first_unit = next->unit,
                              .unit_count = count,
                              .units_left = count };
    for (uint64_t i = 0; i < count; i++)
        add_unit(batch, run, next->unit + i);
    next->unit += count;
    next->is_open = next->unit < next->pair.unit_count;
}

/* Nothing in the batch means that nothing is left. */
static berth_status
fill(berthi_diff_batch *batch, position *next, berth_error *error)
{
    berthi_diff *const diff = batch->diff;

    batch->run_count = 0;
    batch->unit_count = 0;
    batch->piece_count = 0;
    while (batch->run_count < batch->run_capacity
           && (batch->unit_count < batch->unit_capacity || batch->unit_capacity == 0)) {
        if (!next->is_open) {
            const berth_status status = berthi_diff_next(diff, &diff->cursor, &next->pair,
                                                         &next->is_open, error);

            if (status != BERTH_OK || !next->is_open)
                return status;
            next->unit = 0;
        }
        add_run(batch, next);
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------- running */

static void
note_stats(berthi_diff *diff, const berthi_conveyor_stats *stats)
{
    diff->report.bytes_read += stats->bytes_read;
    if (stats->bytes_read < diff->path_bytes)
        return;
    diff->path_bytes = stats->bytes_read;
    memcpy(diff->report.io_path, stats->path, sizeof diff->report.io_path);
}

static berth_status
convey(berthi_diff_batch *batch, berth_error *error)
{
    berthi_diff *const diff = batch->diff;
    const berthi_conveyor_options options = {
        .io = diff->options.io,
        .no_uring = diff->options.no_uring != 0,
        .readers = diff->options.readers,
        .workers = diff->workers,
        .ring_bytes = diff->ring_bytes,
    };
    const berthi_consumer consumer = { .user = batch,
                                       .consume = berthi_diff_unit_consume,
                                       .stop = berthi_diff_unit_stop };
    berthi_conveyor_stats stats;
    berthi_chunks chunks;
    berth_status status = berthi_chunks_list(diff->context, batch->pieces,
                                             batch->piece_count, &chunks, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_conveyor_run(&(berthi_freight){ .context = diff->context,
                                                    .job = diff->job,
                                                    .files = diff->files,
                                                    .file_count = diff->file_count,
                                                    .chunks = &chunks },
                                 &options, &consumer, &stats, error);
    note_stats(diff, &stats);
    berthi_chunks_fini(&chunks);
    return status;
}

/* Weights without values have statistics, perhaps. */
static berth_status
compare_empty(berthi_diff_batch *batch, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < batch->run_count && status == BERTH_OK; i++) {
        berthi_diff_run *const run = &batch->runs[i];

        if (run->pair.kind == BERTH_DIFF_COMPARED && run->pair.unit_count == 0)
            status = berthi_diff_begin_run(batch, run, error);
        berthi_diff_end_run(batch, run);
    }
    return status;
}

/* ------------------------------------------------------------------- folding */

/* Units in their order, and the weight is told behind its last one. */
static void
fold(berthi_diff_batch *batch, berthi_diff_tell tell)
{
    berthi_diff *const diff = batch->diff;
    uint64_t unit = 0;

    for (uint64_t i = 0; i < batch->run_count; i++) {
        const berthi_diff_run *const run = &batch->runs[i];

        if (run->first_unit == 0) {
            memset(&diff->current, 0, sizeof diff->current);
            diff->is_current_same = run->pair.has_codes;
        }
        for (uint64_t k = 0; k < run->unit_count; k++, unit++) {
            berthi_diff_found_add(&diff->current, &batch->found[unit]);
            diff->is_current_same = diff->is_current_same && batch->units[unit].is_same;
        }
        if (run->first_unit + run->unit_count == run->pair.unit_count)
            tell(diff, &(berthi_diff_verdict){
                           .pair = &run->pair,
                           .found = &diff->current,
                           .is_same = diff->is_current_same && run->is_same,
                           .has_same_statistics = run->has_same_statistics });
    }
}

/* --------------------------------------------------------------------- tables */

static uint64_t
capacity_of(uint64_t total)
{
    return berthi_min_u64(total, BERTHI_DIFF_BATCH);
}

uint64_t
berthi_diff_table_bytes(const berthi_diff *diff)
{
    const uint64_t units = capacity_of(diff->unit_total);

    return capacity_of(diff->pair_total) * sizeof(berthi_diff_run)
           + units * (sizeof(berthi_diff_unit) + sizeof(berthi_diff_found)
                      + 2 * (sizeof(berthi_piece) + sizeof(berthi_chunk)
                             + sizeof(berthi_span)));
}

static void
free_batch(berthi_diff_batch *batch)
{
    berth_context *const context = batch->diff->context;

    for (uint64_t i = 0; batch->runs != NULL && i < batch->run_count; i++)
        berthi_diff_end_run(batch, &batch->runs[i]);
    berthi_diff_free_scratch(batch);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->runs,
                       batch->run_capacity * sizeof *batch->runs);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->units,
                       batch->unit_capacity * sizeof *batch->units);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->found,
                       batch->unit_capacity * sizeof *batch->found);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->pieces,
                       2 * batch->unit_capacity * sizeof *batch->pieces);
    pthread_cond_destroy(&batch->has_changed);
    pthread_mutex_destroy(&batch->lock);
}

static berth_status
create_batch(berthi_diff *diff, berthi_diff_batch *batch, berth_error *error)
{
    berth_context *const context = diff->context;

    memset(batch, 0, sizeof *batch);
    batch->diff = diff;
    batch->run_capacity = capacity_of(diff->pair_total);
    batch->unit_capacity = capacity_of(diff->unit_total);
    pthread_mutex_init(&batch->lock, NULL); /* cannot fail without attributes */
    pthread_cond_init(&batch->has_changed, NULL);
    batch->runs = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, batch->run_capacity,
                                      sizeof *batch->runs);
    batch->units = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS,
                                       batch->unit_capacity, sizeof *batch->units);
    batch->found = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS,
                                       batch->unit_capacity, sizeof *batch->found);
    batch->pieces = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS,
                                        2 * batch->unit_capacity, sizeof *batch->pieces);
    if (batch->runs != NULL && batch->units != NULL && batch->found != NULL
        && batch->pieces != NULL)
        return BERTH_OK;
    free_batch(batch);
    return berthi_fail_memory(error, "the units of a comparison");
}

berth_status
berthi_diff_compare(berthi_diff *diff, berthi_diff_tell tell, berth_error *error)
{
    berthi_diff_batch batch;
    position next;
    berth_status status = create_batch(diff, &batch, error);

    if (status != BERTH_OK)
        return status;
    memset(&next, 0, sizeof next);
    do {
        status = fill(&batch, &next, error);
        if (status == BERTH_OK && batch.unit_count > 0)
            status = convey(&batch, error);
        if (status == BERTH_OK)
            status = compare_empty(&batch, error);
        if (status == BERTH_OK)
            fold(&batch, tell);
    } while (status == BERTH_OK && batch.run_count > 0);
    free_batch(&batch);
    return status;
}
