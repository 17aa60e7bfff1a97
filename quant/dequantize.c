/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize.c - pieces of a stored weight to values; see dequantize.h.
 *
 * A piece may begin and end anywhere. It is cut where an absmax or a scale
 * begins, because that is where the operations count from, and at the ends of
 * rows and matrices.
 */
#include "quant/dequantize.h"

#include "kernels/base.h"
#include "kernels/kernel.h"
#include "quant/format.h"
#include "quant/quantize.h"

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
    const uint64_t first = d->is_single_scale ? 0 : matrix * d->scale_count;

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
        .scale_columns = d->scale_columns,
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
