/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_prepare.c - a decoder from a record and its companions; see dequantize.h. */
#include "quant/dequantize.h"

#include <string.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/kernel.h"
#include "kernels/number.h"
#include "kernels/tables.h"
#include "quant/format.h"

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
    return berthi_is_number(dtype) || berthi_is_small_number(dtype);
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

void
berthi_decoder_recover(const berthi_operations *operations, float offset, uint64_t first,
                       uint64_t count, const uint8_t *codes, const float *absmax2, float *absmax)
{
    /* Up to the next block that is the first of its second level; and all behind that one. */
    const uint64_t lead =
        berthi_min_u64(count, BERTHI_DOUBLE_BLOCK - first % BERTHI_DOUBLE_BLOCK);
    const berthi_double_arguments a = { .codes = (uint8_t *)(uintptr_t)codes,
                                        .absmax2 = (float *)(uintptr_t)absmax2,
                                        .count = lead,
                                        .offset = offset,
                                        .map = berthi_signed_map };
    const berthi_double_arguments b = { .codes = a.codes + lead,
                                        .absmax2 = a.absmax2 + 1,
                                        .count = count - lead,
                                        .offset = offset,
                                        .map = berthi_signed_map };

    operations->decode_double(&a, absmax);
    operations->decode_double(&b, absmax + lead);
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
    }
    if (d->elements == 0) /* rows may have scales without having values, and no blocks */
        return true;
    d->scale_columns = berthi_divide_up(d->columns, d->block_columns);
    d->scale_count = berthi_divide_up(d->rows, d->block_rows) * d->scale_columns;
    return d->is_single_scale
           || is_companion(companion, companion->dtype, d->matrices * d->scale_count);
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
