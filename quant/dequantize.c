/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize.c - pieces of a stored weight to values; see dequantize.h.
 *
 * A piece may begin and end anywhere. It is cut where an absmax or a scale
 * begins, because that is where the operations count from, and at the ends of
 * rows and matrices.
 */
#include "quant/dequantize.h"

#include <string.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/kernel.h"
#include "kernels/number.h"
#include "quant/format.h"
#include "quant/quantize.h"

#define MAP2_BYTES 1024u

/* ------------------------------------------------------------- initializing */

/* The last two dims are a matrix, those before count matrices. */
static void
set_matrices(berthi_decoder *d, const uint64_t *shape, uint32_t rank)
{
    d->matrices = 1;
    d->rows = rank >= 2 ? shape[rank - 2] : 1;
    d->columns = rank >= 1 ? shape[rank - 1] : 1;
    for (uint32_t i = 0; i + 2 < rank; i++)
        d->matrices *= shape[i];
}

/* A block in 32 bits of the record; the largest number stands for all there are. */
static uint64_t
block_of(uint32_t block, uint64_t dim)
{
    if (block == UINT32_MAX)
        return dim;
    return block > 0 ? block : 1;
}

static bool
can_init_4bit(berthi_decoder *d, const berthi_quantized *record)
{
    if (!berthi_format_is_block_size(record->block_size))
        return false;
    set_matrices(d, record->shape, record->rank);
    d->block_columns = record->block_size;
    d->blocks = berthi_divide_up(d->elements, record->block_size);
    d->offset = (float)record->offset;
    d->nested_dtype = record->nested_dtype;
    d->is_double = record->is_double;
    d->is_transposed_absmax = record->is_transposed_absmax;
    return true;
}

static bool
can_init_fp4_packed(berthi_decoder *d, const berthi_quantized *record)
{
    set_matrices(d, record->shape, record->rank);
    if (d->columns % 2 != 0)
        return false;
    d->rows *= d->matrices; /* every row has its own scales: one tall matrix */
    d->matrices = 1;
    d->block_rows = 1;
    d->block_columns = block_of(record->block_size, d->columns);
    return true;
}

/* [E, 32 G, N] of values are E times N rows of 32 G as stored. */
static bool
can_init_mxfp4(berthi_decoder *d, const berthi_quantized *record)
{
    if (record->rank != 3 || record->block_size == 0
        || record->shape[1] % record->block_size != 0 || record->block_size % 2 != 0)
        return false;
    d->matrices = record->shape[0];
    d->rows = record->shape[2];
    d->columns = record->shape[1];
    d->block_rows = 1;
    d->block_columns = record->block_size;
    return true;
}

bool
berthi_decoder_can_init(berthi_decoder *d, const berthi_operations *operations,
                        const berthi_quantized *record)
{
    memset(d, 0, sizeof *d);
    d->operations = operations;
    d->encoding = record->encoding;
    d->elements = record->elements;
    switch (record->encoding) {
    case BERTH_ENCODING_NF4:
    case BERTH_ENCODING_FP4: return can_init_4bit(d, record);
    case BERTH_ENCODING_INT8:
        set_matrices(d, record->shape, record->rank);
        d->block_columns = d->columns; /* one maximum a row */
        return record->rank == 2;
    case BERTH_ENCODING_FP8_BLOCK:
        set_matrices(d, record->shape, record->rank);
        d->block_rows = block_of(record->block_size, d->rows);
        d->block_columns = block_of(record->block_columns, d->columns);
        return true;
    case BERTH_ENCODING_FP4_PACKED: return can_init_fp4_packed(d, record);
    case BERTH_ENCODING_MXFP4: return can_init_mxfp4(d, record);
    default: return false;
    }
}

bool
berthi_decoder_is_there(const berthi_quantized *record)
{
    berthi_decoder decoder;

    /* Nearly all of the largest models, and whatever their shape. */
    return record->encoding == BERTH_ENCODING_FP8_BLOCK
           || berthi_decoder_can_init(&decoder, NULL, record);
}

bool
berthi_decoder_can_init_native(berthi_decoder *d, int32_t dtype, uint64_t elements)
{
    memset(d, 0, sizeof *d);
    d->encoding = BERTH_ENCODING_NATIVE;
    d->stored_dtype = dtype;
    d->elements = elements;
    return berthi_is_number(dtype) || dtype == BERTH_F8_E4M3;
}

/* ---------------------------------------------------------------- statistics */

uint32_t
berthi_decoder_companions(const berthi_decoder *d)
{
    if (d->encoding == BERTH_ENCODING_NATIVE)
        return 0;
    return d->is_double ? 3 : 1;
}

uint64_t
berthi_decoder_statistics_bytes(const berthi_decoder *d)
{
    return d->is_double || d->is_transposed_absmax ? d->blocks * sizeof(float) : 0;
}

static bool
is_companion(const berthi_companion *companion, int32_t dtype, uint64_t count)
{
    return companion->dtype == dtype
           && companion->size == count * berthi_format_element_bytes(dtype);
}

/* Both levels -> absmax; product and sum are rounded each, to the nested dtype too. */
static void
recover_rounded(const berthi_decoder *d, const berthi_double_arguments *a, float *absmax)
{
    for (uint64_t i = 0; i < a->count; i++) {
        const float absmax2 = a->absmax2[i / BERTHI_DOUBLE_BLOCK];
        const float product = berthi_core_rounded(
            berthi_core_map_decode(a->map, a->codes[i], absmax2), d->nested_dtype);

        absmax[i] = berthi_core_rounded(berthi_core_add(product, a->offset),
                                        d->nested_dtype);
    }
}

/* The stored table decodes: published ones differ in their first entry. */
static bool
can_prepare_double(berthi_decoder *d, const berthi_companion *companions, float *absmax)
{
    const uint8_t *const codes = companions[0].bytes;
    const float *const absmax2 = companions[1].bytes;
    const uint32_t *const map = companions[2].bytes;
    const berthi_double_arguments a = { .codes = (uint8_t *)(uintptr_t)codes,
                                        .absmax2 = (float *)(uintptr_t)absmax2,
                                        .count = d->blocks,
                                        .offset = d->offset,
                                        .map = map };

    if (!is_companion(&companions[0], BERTH_U8, d->blocks)
        || !is_companion(&companions[1], BERTH_F32,
                         berthi_divide_up(d->blocks, BERTHI_DOUBLE_BLOCK))
        || !is_companion(&companions[2], BERTH_F32, MAP2_BYTES / sizeof *map))
        return false;
    if (d->nested_dtype == BERTH_F32) /* nearly always: nothing more to round */
        d->operations->decode_double(&a, absmax);
    else
        recover_rounded(d, &a, absmax);
    d->absmax = absmax;
    return true;
}

/* BF16 [columns / block, rows] -> absmax in the order of the values. */
static bool
can_prepare_transposed(berthi_decoder *d, const berthi_companion *companion,
                       float *absmax)
{
    const uint16_t *const stored = companion->bytes;
    const uint64_t row_blocks = d->columns / d->block_columns;

    if (!is_companion(companion, BERTH_BF16, d->blocks))
        return false;
    for (uint64_t k = 0; k < row_blocks; k++)
        for (uint64_t row = 0; row < d->rows; row++)
            absmax[row * row_blocks + k] =
                berthi_core_from_bf16(stored[k * d->rows + row]);
    d->absmax = absmax;
    return true;
}

static bool
can_prepare_absmax(berthi_decoder *d, const berthi_companion *companion, uint64_t count)
{
    d->absmax = companion->bytes;
    return is_companion(companion, BERTH_F32, count);
}

static uint64_t
scale_columns(const berthi_decoder *d)
{
    return berthi_divide_up(d->columns, d->block_columns);
}

/* Scales of one matrix. */
static uint64_t
scale_count(const berthi_decoder *d)
{
    return berthi_divide_up(d->rows, d->block_rows) * scale_columns(d);
}

static bool
can_prepare_scales(berthi_decoder *d, const berthi_companion *companion)
{
    switch (companion->dtype) {
    case BERTH_F32:
    case BERTH_BF16:
    case BERTH_F8_E8M0:
    case BERTH_U8: break;
    default: return false;
    }
    d->scales = companion->bytes;
    d->scale_dtype = companion->dtype;
    if (d->encoding == BERTH_ENCODING_FP8_BLOCK
        && is_companion(companion, companion->dtype, 1)) {
        d->is_single_scale = true;
        d->block_rows = berthi_max_u64(d->rows, 1);
        d->block_columns = berthi_max_u64(d->columns, 1);
        return true;
    }
    /* Rows may have scales without having values. */
    return d->elements == 0
           || is_companion(companion, companion->dtype, d->matrices * scale_count(d));
}

bool
berthi_decoder_can_prepare(berthi_decoder *d, const berthi_companion *companions,
                           void *memory)
{
    switch (d->encoding) {
    case BERTH_ENCODING_NATIVE: return true;
    case BERTH_ENCODING_NF4:
    case BERTH_ENCODING_FP4:
        if (d->is_double)
            return can_prepare_double(d, companions, memory);
        if (d->is_transposed_absmax)
            return can_prepare_transposed(d, companions, memory);
        return can_prepare_absmax(d, companions, d->blocks);
    case BERTH_ENCODING_INT8: return can_prepare_absmax(d, companions, d->rows);
    default: return can_prepare_scales(d, companions);
    }
}

/* -------------------------------------------------------------------- extents */

uint64_t
berthi_decoder_step(const berthi_decoder *d)
{
    return d->encoding == BERTH_ENCODING_MXFP4 ? d->rows * d->columns : 1;
}

/*
 * Values between two places where decoding can begin: whole bytes, and where
 * scales begin inside a byte also a scale.
 */
static uint64_t
unit_of(const berthi_decoder *d)
{
    if (berthi_format_is_4bit(d->encoding))
        return 2;
    if (d->encoding == BERTH_ENCODING_FP4_PACKED)
        return d->block_columns % 2 == 0 ? 2 : 2 * d->block_columns;
    return 1;
}

uint64_t
berthi_decoder_lead_max(const berthi_decoder *d)
{
    return unit_of(d) - 1;
}

berthi_decoder_span
berthi_decoder_extent(const berthi_decoder *d, uint64_t first, uint64_t count)
{
    berthi_decoder_span span = { 0, 0, 0 };
    uint64_t size;

    if (count == 0)
        return span;
    switch (d->encoding) {
    case BERTH_ENCODING_NF4:
    case BERTH_ENCODING_FP4:
    case BERTH_ENCODING_FP4_PACKED:
    case BERTH_ENCODING_MXFP4:
        /* The flat number will do where units are bytes; rows are whole bytes. */
        span.lead = (berthi_format_is_4bit(d->encoding) ? first : first % d->columns) % unit_of(d);
        span.begin = (first - span.lead) / 2;
        span.bytes = berthi_divide_up(first + count, 2) - span.begin;
        break;
    default:
        size = d->encoding == BERTH_ENCODING_NATIVE
                   ? berthi_format_element_bytes(d->stored_dtype)
                   : 1;
        span.begin = first * size;
        span.bytes = count * size;
        break;
    }
    return span;
}

/* -------------------------------------------------------------------- devices */

bool
berthi_decoder_has_request(const berthi_decoder *d)
{
    return berthi_format_is_4bit(d->encoding) || d->encoding == BERTH_ENCODING_INT8;
}

berthi_quantized_part
berthi_decoder_part(const berthi_decoder *d, uint64_t first, uint64_t count)
{
    const berthi_decoder_span span = berthi_decoder_extent(d, first, count);
    berthi_quantized_part part = { .begin = span.begin, .bytes = span.bytes };

    if (count == 0)
        return part;
    part.first_maximum = (first - span.lead) / d->block_columns;
    part.maxima = (first + count - 1) / d->block_columns - part.first_maximum + 1;
    return part;
}

berthi_quantized_part
berthi_decoder_most(const berthi_decoder *d, uint64_t count)
{
    const uint64_t values = count + berthi_decoder_lead_max(d);

    return (berthi_quantized_part){ .bytes = berthi_decoder_extent(d, 0, values).bytes,
                                    .maxima = berthi_divide_up(values, d->block_columns) + 1 };
}

void
berthi_decoder_request(const berthi_decoder *d, uint64_t first, uint64_t count,
                       const void *codes, const float *absmax, int32_t dtype, void *values,
                       berthi_request *out)
{
    const uint64_t lead = berthi_decoder_extent(d, first, count).lead;

    if (d->encoding == BERTH_ENCODING_INT8) {
        *out = (berthi_request){ .operation = BERTHI_OPERATION_DECODE_ROWS,
                                 .arguments.decode_rows = { .codes = codes,
                                                            .row_maximum = absmax,
                                                            .columns = d->columns,
                                                            .first = first,
                                                            .count = count,
                                                            .values = values,
                                                            .dtype = dtype } };
        return;
    }
    *out = (berthi_request){ .operation = d->encoding == BERTH_ENCODING_NF4
                                              ? BERTHI_OPERATION_DECODE_NF4
                                              : BERTHI_OPERATION_DECODE_FP4,
                             .arguments.decode = { .codes = codes,
                                                   .absmax = absmax,
                                                   .block_size = (uint32_t)d->block_columns,
                                                   .first = first - lead,
                                                   .count = count + lead,
                                                   .values = values,
                                                   .dtype = dtype } };
}

/* ------------------------------------------------------------------- decoding */

/* What is left of a piece. */
typedef struct piece {
    uint64_t first;
    uint64_t count;
    const uint8_t *bytes;
    int32_t dtype;
    uint8_t *values;
} piece;

/* `count` values are done; `code_bits` is what each takes as stored. */
static void
advance(piece *p, uint64_t count, uint64_t code_bits)
{
    p->first += count;
    p->count -= count;
    p->bytes += count * code_bits / 8;
    p->values += count * berthi_format_element_bytes(p->dtype);
}

/* What a device is asked for, done here. */
static void
decode_asked(const berthi_decoder *d, const piece *p)
{
    berthi_request request;

    berthi_decoder_request(d, p->first, p->count, p->bytes,
                           d->absmax + berthi_decoder_part(d, p->first, p->count).first_maximum,
                           p->dtype, p->values, &request);
    berthi_operation_run(d->operations, &request);
}

/* Values of one row, or whole rows of one matrix. */
typedef struct run {
    uint64_t matrix;
    uint64_t row;    /* of the matrix */
    uint64_t column; /* the first; not 0 only for a part of a row */
    uint64_t rows;
    uint64_t columns;
} run;

/* What can be decoded at once: part of a row begins with a scale or ends with one. */
static run
next_run(const berthi_decoder *d, const piece *p)
{
    const uint64_t row = p->first / d->columns;
    run r = { .matrix = row / d->rows, .row = row % d->rows,
              .column = p->first % d->columns, .rows = 1, .columns = d->columns };
    const uint64_t inside = r.column % d->block_columns;

    if (r.column == 0 && p->count >= d->columns) {
        r.rows = berthi_min_u64(p->count / d->columns, d->rows - r.row);
        return r;
    }
    r.columns = berthi_min_u64(d->columns - r.column, p->count);
    if (inside > 0)
        r.columns = berthi_min_u64(r.columns, d->block_columns - inside);
    return r;
}

static const void *
scales_at(const berthi_decoder *d, uint64_t matrix, uint64_t column)
{
    const uint64_t first = d->is_single_scale ? 0 : matrix * scale_count(d);

    return (const uint8_t *)d->scales
           + (first + column / d->block_columns) * berthi_format_element_bytes(d->scale_dtype);
}

static berthi_source_arguments
source_arguments(const berthi_decoder *d, const piece *p, const run *r)
{
    return (berthi_source_arguments){
        .codes = p->bytes,
        .scales = scales_at(d, r->matrix, r->column),
        .scale_dtype = d->scale_dtype,
        .rows = r->rows,
        .columns = r->columns,
        .first_row = r->row,
        .block_rows = d->block_rows,
        .block_columns = d->block_columns,
        .scale_columns = scale_columns(d),
        .dtype = p->dtype,
        .values = p->values,
    };
}

static void
decode_scaled(const berthi_decoder *d, piece *p)
{
    while (p->count > 0) {
        const run r = next_run(d, p);
        const berthi_source_arguments a = source_arguments(d, p, &r);

        if (d->encoding == BERTH_ENCODING_FP8_BLOCK)
            berthi_decode_e4m3(&a);
        else
            d->operations->decode_e2m1(&a);
        advance(p, r.rows * r.columns, d->encoding == BERTH_ENCODING_FP8_BLOCK ? 8 : 4);
    }
}

/* Expert by expert. */
static void
decode_mxfp4(const berthi_decoder *d, piece *p)
{
    const uint64_t expert = d->rows * d->columns;

    while (p->count >= expert) {
        const run r = { .matrix = p->first / expert, .rows = d->rows,
                        .columns = d->columns };
        const berthi_source_arguments a = source_arguments(d, p, &r);

        d->operations->decode_mxfp4(&a);
        advance(p, expert, 4);
    }
}

static void
decode_native(const berthi_decoder *d, const piece *p)
{
    const float one = 1.0f;
    const berthi_source_arguments a = { .codes = p->bytes,
                                        .scales = &one,
                                        .scale_dtype = BERTH_F32,
                                        .rows = 1,
                                        .columns = p->count,
                                        .block_rows = 1,
                                        .block_columns = p->count,
                                        .scale_columns = 1,
                                        .dtype = p->dtype,
                                        .values = p->values };

    if (d->stored_dtype == BERTH_F8_E4M3)
        berthi_decode_e4m3(&a);
    else
        berthi_quantize_cast(p->bytes, d->stored_dtype, p->values, p->dtype, p->count);
}

void
berthi_decoder_decode(const berthi_decoder *d, uint64_t first, uint64_t count,
                      const void *bytes, int32_t dtype, void *values)
{
    const uint64_t lead = berthi_decoder_extent(d, first, count).lead;
    piece p = { first - lead, count + lead, bytes, dtype, values };

    if (count == 0)
        return;
    switch (d->encoding) {
    case BERTH_ENCODING_NATIVE: decode_native(d, &p); break;
    case BERTH_ENCODING_NF4:
    case BERTH_ENCODING_FP4:
    case BERTH_ENCODING_INT8: decode_asked(d, &p); break;
    case BERTH_ENCODING_MXFP4: decode_mxfp4(d, &p); break;
    default: decode_scaled(d, &p); break;
    }
}
