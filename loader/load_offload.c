/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_offload.c - weights on their way to a file, in the encoding of the plan.
 *
 * A piece is encoded into memory of the hand and written at once. Only first levels of
 * a weight that is doubly quantized stay in memory until its last piece has come.
 */
#include <string.h>

#include "kernels/trace.h"
#include "loader/load_job.h"
#include "loader/offload.h"
#include "quant/format.h"

/* Parts of a berth, in their order. */
enum { CODES, ABSMAX, ABSMAX2 };

berth_status
berthi_load_offload_open(berthi_load *load, berth_error *error)
{
    berth_status status;

    if (load->offload_dir == NULL)
        return BERTH_OK;
    status = berthi_offload_create(load->model, load->plan, load->offload_dir,
                                   &load->offload, error);
    load->report.offloaded_bytes = load->offload != NULL ? load->offload->bytes : 0;
    return status;
}

/* Bytes of the statistics that stay in memory as long as the weight is under way. */
static uint64_t
second_bytes(const berthi_load_run *run)
{
    return berthi_slab_round(run->part_behind[ABSMAX2]);
}

void
berthi_load_offload_cut(berthi_load *load, berthi_load_run *run,
                        const berthi_cargo *cargo)
{
    const berthi_quantizer *const q = &run->quantizer;
    uint64_t behind = 0;
    berthi_quantized_part part;

    run->is_offloaded = true;
    for (uint32_t i = cargo->part_count; i-- > 0;) {
        behind += cargo->parts[i].bytes;
        run->part_offset[i] = cargo->parts[i].offset;
        run->part_behind[i] = behind;
    }
    if (q->storage.encoding == BERTH_ENCODING_NATIVE || run->elements == 0)
        return;
    part = berthi_quantizer_part(q, 0, berthi_min_u64(run->piece, run->elements));
    load->packed_max = berthi_max_u64(load->packed_max,
                                      berthi_slab_round(part.bytes)
                                          + part.maxima * sizeof(float));
    if (run->is_double)
        run->statistics_out_bytes = run->absmax_bytes + berthi_slab_round(q->blocks)
                                    + second_bytes(run)
                                    + berthi_quantizer_scratch(q) * sizeof(float);
}

static berth_status
write_part(berthi_load *load, const berthi_load_run *run, uint32_t part, uint64_t at,
           const void *bytes, uint64_t size, berth_error *error)
{
    const berthi_offload_bytes written = { .berth = run->berth,
                                           .offset = run->part_offset[part] + at,
                                           .behind = run->part_behind[part] - at - size,
                                           .bytes = bytes,
                                           .size = size };

    return berthi_offload_write(load->offload, &written, error);
}

berth_status
berthi_load_offload_values(berthi_load *load, const berthi_load_run *run,
                           const uint8_t *values, uint64_t first, uint64_t count,
                           berth_error *error)
{
    const uint64_t width = berthi_format_element_bytes(run->dtype);

    return write_part(load, run, CODES, first * width, values, count * width, error);
}

berth_status
berthi_load_offload_piece(berthi_load *load, berthi_load_hand *hand,
                          const berthi_load_run *run, const uint8_t *values,
                          uint64_t first, uint64_t count, berth_error *error)
{
    const berthi_berth *const b = &load->plan->berths[run->berth];
    const berthi_trace_of about = { b->number, b->layer,
                                    load->checkpoint->table.entries[b->number].shard };
    const berthi_quantized_part part =
        berthi_quantizer_part(&run->quantizer, first, count);
    const uint64_t begin_ns = berthi_trace_begin(load->context);
    float *const maxima =
        run->is_double
            ? run->absmax + part.first_maximum
            : (float *)(void *)(hand->packed + berthi_slab_round(part.bytes));
    berth_status status;

    berthi_quantizer_encode(&run->quantizer, values, count, hand->packed, maxima);
    berthi_trace_end(load->context, BERTH_TRACE_ENCODE, "worker", begin_ns,
                     count * berthi_format_element_bytes(run->dtype), about);
    status = write_part(load, run, CODES, part.begin, hand->packed, part.bytes, error);
    if (status != BERTH_OK || run->is_double)
        return status;
    return write_part(load, run, ABSMAX, part.first_maximum * sizeof(float), maxima,
                      part.maxima * sizeof(float), error);
}

/* First levels, their codes, second levels, scratch: one behind the other. */
berth_status
berthi_load_offload_begin(berthi_load *load, berthi_load_run *run, berth_error *error)
{
    run->statistics_out = berthi_memory_aligned(load->context, BERTHI_PURPOSE_SCRATCH,
                                                run->statistics_out_bytes, 64);
    if (run->statistics_out == NULL)
        return berthi_fail_memory(error, "the statistics of a weight");
    run->absmax = (float *)(void *)run->statistics_out;
    run->absmax_codes = run->statistics_out + run->absmax_bytes;
    run->absmax2 = (float *)(void *)(run->absmax_codes
                                     + berthi_slab_round(run->quantizer.blocks));
    return BERTH_OK;
}

berth_status
berthi_load_offload_finish(berthi_load *load, const berthi_load_run *run,
                           berth_error *error)
{
    uint8_t *const scratch = (uint8_t *)(void *)run->absmax2 + second_bytes(run);
    berth_status status;

    load->model->offsets[run->berth] =
        berthi_quantizer_finish(&run->quantizer, run->absmax, run->absmax_codes,
                                run->absmax2, (float *)(void *)scratch);
    status = write_part(load, run, ABSMAX, 0, run->absmax_codes,
                        run->part_behind[ABSMAX] - run->part_behind[ABSMAX2], error);
    return status == BERTH_OK ? write_part(load, run, ABSMAX2, 0, run->absmax2,
                                           run->part_behind[ABSMAX2], error)
                              : status;
}
