/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - what the 4-bit products of all levels agree on. */
#ifndef BERTH_KERNELS_PRODUCT_H
#define BERTH_KERNELS_PRODUCT_H

#include "kernels/core.h"
#include "kernels/kernel.h"

#define BERTHI_PRODUCT_AHEAD 4096u /* bytes of a row, at least */

/*
 * The 16 values as inputs of this dtype meet them: rounded to bf16 for bf16
 * inputs, on every level, so that the fastest one may multiply in that type.
 */
static inline void
berthi_product_values(const uint32_t *values, int32_t dtype, float *out)
{
    for (uint32_t code = 0; code < 16; code++) {
        const float value = berthi_core_float(values[code]);

        out[code] = dtype == BERTH_BF16 ? berthi_core_from_bf16(berthi_core_to_bf16(value))
                                        : value;
    }
}

/* Rows that do not begin on a block border are for the reference. */
static inline bool
berthi_product_has_whole_rows(const berthi_product_arguments *a)
{
    return a->columns % a->block_size == 0;
}

/* Of the scratch, the first place that a load of 64 bytes need not straddle. */
static inline void *
berthi_product_aligned(const berthi_product_arguments *a)
{
    return (void *)(((uintptr_t)a->scratch + 63) / 64 * 64);
}

/*
 * How far ahead codes are asked for: the same place of a later turn, so that the ends of rows
 * are no surprise. One turn of short rows takes less time than memory.
 */
static inline uint64_t
berthi_product_ahead(uint64_t row_bytes, uint64_t rows)
{
    return (BERTHI_PRODUCT_AHEAD + row_bytes - 1) / row_bytes * row_bytes * rows;
}

/*
 * Absmax of the turn of `rows` behind the one at `row`, as far as column k has come. Rows of it
 * are too short for what processors foresee; one turn is enough, as it is an eighth of the codes.
 */
static inline const float *
berthi_product_later_absmax(const berthi_product_arguments *a, uint64_t row, uint64_t rows,
                            uint64_t k)
{
    const int shift = __builtin_ctz(a->block_size);

    return a->absmax + row * (a->columns >> shift) + ((a->columns + k) * rows >> shift);
}

/* ------------------------------------------------------------- 8-bit weights */

/* Products of 128 * 128: sums of so many fit 32 bits. */
#define BERTHI_DOT_COLUMNS (UINT64_C(1) << 16)

/* Of up to BERTHI_DOT_COLUMNS columns. */
typedef int64_t berthi_dot_function(const int8_t *x, const int8_t *w, uint64_t columns);

static inline __attribute__((always_inline)) void
berthi_product_dot_rows(const berthi_dot_arguments *a, berthi_dot_function *dot)
{
    for (uint64_t row = a->first_row; row < a->end_row; row++)
        for (uint32_t i = 0; i < a->count; i++) {
            const int8_t *const x = a->inputs + i * a->columns;
            const int8_t *const w = a->weights + row * a->columns;
            int64_t sum = 0;

            for (uint64_t k = 0; k < a->columns; k += BERTHI_DOT_COLUMNS)
                sum += dot(x + k, w + k,
                           a->columns - k < BERTHI_DOT_COLUMNS ? a->columns - k
                                                               : BERTHI_DOT_COLUMNS);
            a->sums[i * a->rows + row] = sum;
        }
}

#endif
