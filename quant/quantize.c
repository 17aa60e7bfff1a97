/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c - pieces of a weight to their stored bytes; see quantize.h. */
#include "quant/quantize.h"

#include <string.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "quant/format.h"

bool
berthi_quantizer_can_init(berthi_quantizer *q, const berthi_operations *operations,
                          const berthi_storage *storage, const uint64_t *shape,
                          uint32_t rank)
{
    if (berthi_stored_refusal(storage, shape, rank) != NULL)
        return false;
    memset(q, 0, sizeof *q);
    q->operations = operations;
    q->storage = *storage;
    (void)berthi_format_can_count(shape, rank, &q->elements);
    if (storage->encoding == BERTH_ENCODING_INT8) {
        q->rows = shape[0];
        q->columns = shape[1];
    } else if (storage->encoding != BERTH_ENCODING_NATIVE) {
        q->blocks = berthi_divide_up(q->elements, storage->block_size);
    }
    return true;
}

/* -------------------------------------------------------------------- pieces */

uint64_t
berthi_quantizer_step(const berthi_quantizer *q)
{
    switch (q->storage.encoding) {
    case BERTH_ENCODING_INT8: return q->columns;
    case BERTH_ENCODING_NATIVE:
        switch (berth_dtype_bits(q->storage.dtype) % 8) {
        case 4: return 2; /* two in a byte */
        case 6: return 4; /* four in three */
        default: return 1;
        }
    default: return q->storage.block_size;
    }
}

berthi_quantized_part
berthi_quantizer_part(const berthi_quantizer *q, uint64_t first, uint64_t count)
{
    const uint64_t bits = berth_dtype_bits(q->storage.dtype);
    const uint64_t block = q->storage.block_size;

    switch (q->storage.encoding) {
    case BERTH_ENCODING_INT8:
        return (berthi_quantized_part){ first, count, first / q->columns,
                                        count / q->columns };
    case BERTH_ENCODING_NATIVE: /* its bits were counted when it was stored first */
        return (berthi_quantized_part){ first * bits / 8, count * bits / 8, 0, 0 };
    default:
        return (berthi_quantized_part){ first / 2, berthi_divide_up(count, 2), first / block,
                                        berthi_divide_up(count, block) };
    }
}

void
berthi_quantizer_request(const berthi_quantizer *q, const void *values, uint64_t count,
                         void *codes, float *absmax, berthi_request *out)
{
    if (q->storage.encoding == BERTH_ENCODING_INT8) {
        *out = (berthi_request){ .operation = BERTHI_OPERATION_ENCODE_ROWS,
                                 .arguments.rows = { .values = values,
                                                     .dtype = q->storage.dtype,
                                                     .rows = count / q->columns,
                                                     .columns = q->columns,
                                                     .codes = codes,
                                                     .row_maximum = absmax } };
        return;
    }
    *out = (berthi_request){ .operation = q->storage.encoding == BERTH_ENCODING_NF4
                                              ? BERTHI_OPERATION_ENCODE_NF4
                                              : BERTHI_OPERATION_ENCODE_FP4,
                             .arguments.encode = { .values = values,
                                                   .dtype = q->storage.dtype,
                                                   .block_size = q->storage.block_size,
                                                   .count = count,
                                                   .codes = codes,
                                                   .absmax = absmax } };
}

void
berthi_quantizer_encode(const berthi_quantizer *q, const void *values, uint64_t count,
                        void *codes, float *absmax)
{
    berthi_request request;

    if (q->storage.encoding == BERTH_ENCODING_NATIVE) {
        memcpy(codes, values, berthi_quantizer_part(q, 0, count).bytes);
        return;
    }
    berthi_quantizer_request(q, values, count, codes, absmax, &request);
    berthi_operation_run(q->operations, &request);
}

/* ------------------------------------------------------ double quantization */

uint64_t
berthi_quantizer_scratch(const berthi_quantizer *q)
{
    return berthi_offset_scratch(q->blocks);
}

float
berthi_quantizer_finish(const berthi_quantizer *q, const float *absmax, uint8_t *codes,
                        float *absmax2, float *scratch)
{
    float offset;

    berthi_encode_offset(q->operations, &(berthi_offset_arguments){ .absmax = absmax,
                                                                    .count = q->blocks,
                                                                    .codes = codes,
                                                                    .absmax2 = absmax2,
                                                                    .offset = &offset,
                                                                    .scratch = scratch });
    return offset;
}

/* ------------------------------------------------------------ other numbers */

/* Values a turn: a known count, so that compilers make vectors of the loops. */
#define TURN 4096u

/* Inlined with constant dtypes: loads and stores carry no branch. */
static inline __attribute__((always_inline)) void
cast_turn(const void *restrict from, int32_t from_dtype, void *restrict to,
          int32_t to_dtype, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        berthi_core_store(to, to_dtype, i, berthi_core_load(from, from_dtype, i));
}

#define CAST(FROM, TO)                                                                   \
    static void cast_##FROM##_##TO(const void *restrict from, void *restrict to,         \
                                   uint32_t count)                                       \
    {                                                                                    \
        if (count == TURN)                                                               \
            cast_turn(from, BERTH_##FROM, to, BERTH_##TO, TURN);                         \
        else                                                                             \
            cast_turn(from, BERTH_##FROM, to, BERTH_##TO, count);                        \
    }

CAST(BF16, F16)
CAST(BF16, F32)
CAST(F16, BF16)
CAST(F16, F32)
CAST(F32, BF16)
CAST(F32, F16)

typedef void cast_function(const void *restrict from, void *restrict to, uint32_t count);

static cast_function *
cast_of(int32_t from_dtype, int32_t to_dtype)
{
    if (from_dtype == BERTH_BF16)
        return to_dtype == BERTH_F16 ? cast_BF16_F16 : cast_BF16_F32;
    if (from_dtype == BERTH_F16)
        return to_dtype == BERTH_BF16 ? cast_F16_BF16 : cast_F16_F32;
    return to_dtype == BERTH_BF16 ? cast_F32_BF16 : cast_F32_F16;
}

void
berthi_quantize_cast(const void *from, int32_t from_dtype, void *to, int32_t to_dtype,
                     uint64_t count)
{
    const uint32_t from_size = berthi_format_element_bytes(from_dtype);
    const uint32_t to_size = berthi_format_element_bytes(to_dtype);
    const bool is_aligned = (uintptr_t)from % from_size == 0;
    cast_function *const cast = cast_of(from_dtype, to_dtype);
    uint32_t aligned[TURN];

    if (from_dtype == to_dtype) { /* a NaN keeps its bits */
        if (count > 0)
            memcpy(to, from, count * to_size);
        return;
    }
    for (uint64_t first = 0; first < count; first += TURN) {
        const uint32_t turn = (uint32_t)berthi_min_u64(count - first, TURN);
        const uint8_t *const values = (const uint8_t *)from + first * from_size;

        if (!is_aligned)
            memcpy(aligned, values, turn * from_size);
        cast(is_aligned ? values : (const void *)aligned,
             (uint8_t *)to + first * to_size, turn);
    }
}

/* ---------------------------------------------------------------- non-finite */

/* Signed, because that is how the oldest vector instructions compare. */
static uint32_t
count_above_16(const int16_t *values, uint32_t count, int16_t limit)
{
    uint32_t above = 0;

    for (uint32_t i = 0; i < count; i++)
        above += (values[i] & INT16_MAX) > limit ? 1u : 0u;
    return above;
}

static uint32_t
count_above_32(const int32_t *values, uint32_t count, int32_t limit)
{
    uint32_t above = 0;

    for (uint32_t i = 0; i < count; i++)
        above += (values[i] & INT32_MAX) > limit ? 1u : 0u;
    return above;
}

/* Infinite are magnitudes from `least` on, up to `infinity`; behind it there are NaN. */
static void
count_turn_16(const int16_t *values, uint32_t count, int16_t least, int16_t infinity,
              berthi_nonfinite *out)
{
    const uint32_t all = count == TURN
                             ? count_above_16(values, TURN, (int16_t)(least - 1))
                             : count_above_16(values, count, (int16_t)(least - 1));

    if (all > 0) {
        const uint32_t nan = count_above_16(values, count, infinity);

        out->nan += nan;
        out->infinite += all - nan;
    }
}

static void
count_turn_32(const int32_t *values, uint32_t count, int32_t least, berthi_nonfinite *out)
{
    const int32_t infinity = 0x7F800000;
    const uint32_t all = count == TURN ? count_above_32(values, TURN, least - 1)
                                       : count_above_32(values, count, least - 1);

    if (all > 0) {
        const uint32_t nan = count_above_32(values, count, infinity);

        out->nan += nan;
        out->infinite += all - nan;
    }
}

/* `least`: the bits of the first f32 that counts as infinite. */
static berthi_nonfinite
count_nonfinite(const void *values, int32_t dtype, uint64_t count, uint32_t least)
{
    const int16_t least_bf16 = (int16_t)((least + 0xFFFFu) >> 16);
    berthi_nonfinite found = { 0, 0 };

    for (uint64_t first = 0; first < count; first += TURN) {
        const uint32_t turn = (uint32_t)berthi_min_u64(count - first, TURN);

        switch (dtype) {
        case BERTH_BF16:
            count_turn_16((const int16_t *)values + first, turn, least_bf16, 0x7F80, &found);
            break;
        case BERTH_F16:
            count_turn_16((const int16_t *)values + first, turn, 0x7C00, 0x7C00, &found);
            break;
        case BERTH_F32:
            count_turn_32((const int32_t *)values + first, turn, (int32_t)least, &found);
            break;
        default: return found;
        }
    }
    return found;
}

berthi_nonfinite
berthi_quantize_nonfinite(const void *values, int32_t dtype, uint64_t count)
{
    return count_nonfinite(values, dtype, count, 0x7F800000u);
}

berthi_nonfinite
berthi_quantize_nonfinite_as_fp16(const void *values, int32_t dtype, uint64_t count)
{
    return count_nonfinite(values, dtype, count, BERTHI_CORE_FP16_OVERFLOW);
}

/* ----------------------------------------------------------------- transpose */

/*
 * Square by square through a buffer: a row of it fills a cache line or two, and
 * lines of both matrices are touched once, even where all rows of one fall into
 * the same set of the cache.
 */
#define SQUARE 32u

static inline __attribute__((always_inline)) void
transpose_square(const berthi_matrix *m, uint64_t row, uint64_t column, uint32_t size)
{
    const uint32_t rows = (uint32_t)berthi_min_u64(m->rows - row, SQUARE);
    const uint32_t columns = (uint32_t)berthi_min_u64(m->columns - column, SQUARE);
    uint8_t square[SQUARE][SQUARE * sizeof(uint32_t)];

    for (uint32_t r = 0; r < rows; r++) {
        const uint8_t *const from =
            (const uint8_t *)m->from + ((row + r) * m->from_stride + column) * size;

        for (uint32_t c = 0; c < columns; c++)
            memcpy(square[c] + r * size, from + c * size, size);
    }
    for (uint32_t c = 0; c < columns; c++)
        memcpy((uint8_t *)m->to + ((column + c) * m->to_stride + row) * size, square[c],
               rows * size);
}

static inline __attribute__((always_inline)) void
transpose_all(const berthi_matrix *m, uint32_t size)
{
    for (uint64_t row = 0; row < m->rows; row += SQUARE)
        for (uint64_t column = 0; column < m->columns; column += SQUARE)
            transpose_square(m, row, column, size);
}

void
berthi_quantize_transpose(const berthi_matrix *m)
{
    if (m->element_bytes == 2)
        transpose_all(m, 2);
    else
        transpose_all(m, 4);
}

void
berthi_quantize_turn(const berthi_turning *turning, const void *values,
                     uint64_t first_row, uint64_t row_count, uint64_t first_column,
                     uint64_t column_count, void *strip)
{
    const uint32_t width = turning->element_bytes;
    const berthi_matrix matrix = {
        .from = (const uint8_t *)values + first_column * width,
        .from_stride = turning->columns,
        .to = (uint8_t *)strip + first_row * width,
        .to_stride = turning->rows,
        .rows = row_count,
        .columns = column_count,
        .element_bytes = width,
    };

    berthi_quantize_transpose(&matrix);
}
