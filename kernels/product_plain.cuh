/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_plain.cuh - products with weights that are not of 4 bits: multiply_plain.h on a
 * GPU, for few inputs, and for any number where cuBLASLt does not do it.
 *
 * A warp has one row and some inputs. Of numbers a lane has 8 neighbours of each 256 columns
 * and a sum for each of them, which is what the description says; of codes it has 16 of each
 * 512, four of which meet four in one instruction. One input alone leaves registers for the
 * loads of several such turns, all of which come before the first use.
 *
 *   traffic   PLAIN_INPUTS or INT8_SUM_INPUTS inputs with each pass over the weights; CTAs of
 *             the same rows are one after the other
 *   launch    berthi_product_ctas() CTAs of PRODUCT_THREADS lanes
 *   bits      those of the description; sums of codes are exact in any order
 *   bounds    writes exactly count x rows outputs; reads nothing behind the last weight and
 *             input
 */
#ifndef BERTH_KERNELS_PRODUCT_PLAIN_CUH
#define BERTH_KERNELS_PRODUCT_PLAIN_CUH

#include "kernels/core.h"
#include "kernels/eights.cuh"
#include "kernels/product_arguments.h"
#include "kernels/simt.h"

/* ------------------------------------------------------------------- numbers */

/* Eight columns from `column` on, for so many inputs from `first` on. */
SIMT_INLINE void
plain_add_eight(const berthi_plain_kernel *a, int32_t dtype, uint64_t row, uint32_t first,
                uint32_t inputs, uint64_t column, float *sums)
{
    const uint32_t there = eight_there(column, a->columns);
    const bool is_aligned = a->is_aligned != 0;
    float weights[EIGHT];

    eight_load_any(a->weight, a->weight_dtype, row * a->columns + column, there, is_aligned,
                   weights);
    SIMT_UNROLL
    for (uint32_t i = 0; i < inputs; i++) {
        float x[EIGHT];

        if (first + i >= a->count)
            continue;
        eight_load(a->inputs, dtype, (uint64_t)(first + i) * a->columns + column, there,
                   is_aligned, x);
        SIMT_UNROLL
        for (uint32_t k = 0; k < EIGHT; k++)
            sums[i * EIGHT + k] = berthi_core_add(sums[i * EIGHT + k],
                                                  berthi_core_multiply(weights[k], x[k]));
    }
}

/* Whose loads are on their way at once: eight of f32 are two loads. */
SIMT_INLINE uint32_t
plain_turns(int32_t weight_dtype)
{
    return weight_dtype == BERTH_F32 ? PLAIN_LOADS / 2 : PLAIN_LOADS;
}

SIMT_INLINE void
plain_add_words(const eight_words *weights, int32_t weight_dtype, const eight_words *inputs,
                int32_t dtype, float *sums)
{
    float w[EIGHT];
    float x[EIGHT];

    eight_widen(weights, weight_dtype, w);
    eight_widen(inputs, dtype, x);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        sums[k] = berthi_core_add(sums[k], berthi_core_multiply(w[k], x[k]));
}

/*
 * Of one input. Wider inputs than weights would take twice the registers: they are near, since
 * all rows have them, and come as they are used.
 */
SIMT_INLINE void
plain_add_turns(const berthi_plain_kernel *a, int32_t weight_dtype, int32_t dtype, uint64_t row,
                uint64_t column, float *sums)
{
    const bool is_wide = dtype == BERTH_F32 && weight_dtype != BERTH_F32;
    eight_words weights[PLAIN_LOADS];
    eight_words inputs[PLAIN_LOADS];

    SIMT_UNROLL
    for (uint32_t t = 0; t < plain_turns(weight_dtype); t++)
        weights[t] = eight_fetch_words(a->weight, weight_dtype,
                                       row * a->columns + column + t * SIMT_WARP * EIGHT, false);
    SIMT_UNROLL
    for (uint32_t t = 0; t < plain_turns(weight_dtype) && !is_wide; t++)
        inputs[t] = eight_fetch_words(a->inputs, dtype, column + t * SIMT_WARP * EIGHT, true);
    SIMT_UNROLL
    for (uint32_t t = 0; t < plain_turns(weight_dtype); t++) {
        if (is_wide)
            inputs[t] = eight_fetch_words(a->inputs, dtype, column + t * SIMT_WARP * EIGHT, true);
        plain_add_words(&weights[t], weight_dtype, &inputs[t], dtype, sums);
    }
}

/* As many turns of a row of whole eights as there are; the column behind them, of a lane. */
SIMT_INLINE uint64_t
plain_add_row(const berthi_plain_kernel *a, int32_t weight_dtype, int32_t dtype, uint64_t row,
              float *sums)
{
    const uint64_t turns = plain_turns(weight_dtype);
    const uint64_t turn = SIMT_WARP * EIGHT;
    uint64_t k = simt_thread() % SIMT_WARP * EIGHT;

    SIMT_NO_UNROLL
    for (; k + (turns - 1) * turn < a->columns; k += turns * turn)
        plain_add_turns(a, weight_dtype, dtype, row, k, sums);
    return k;
}

/* The same of a weight whose dtype only the argument tells: of the inputs' or a shorter one. */
SIMT_INLINE uint64_t
plain_add_row_any(const berthi_plain_kernel *a, int32_t dtype, uint64_t row, float *sums)
{
    if (a->weight_dtype == dtype)
        return plain_add_row(a, dtype, dtype, row, sums);
    if (dtype == BERTH_F32 && a->weight_dtype == BERTH_BF16)
        return plain_add_row(a, BERTH_BF16, dtype, row, sums);
    if (dtype == BERTH_F32)
        return plain_add_row(a, BERTH_F16, dtype, row, sums);
    return simt_thread() % SIMT_WARP * EIGHT;
}

/* Within a lane, then over the warp; one lane stores. */
SIMT_INLINE void
plain_join(const berthi_plain_kernel *a, int32_t dtype, uint64_t row, uint32_t input,
           float *sums)
{
    float sum;

    SIMT_UNROLL
    for (uint32_t step = EIGHT / 2; step > 0; step /= 2)
        SIMT_UNROLL
        for (uint32_t k = 0; k < step; k++)
            sums[k] = berthi_core_add(sums[k], sums[k + step]);
    sum = sums[0];
    SIMT_UNROLL
    for (uint32_t step = SIMT_WARP / 2; step > 0; step /= 2)
        sum = berthi_core_add(sum, simt_shuffle_xor(sum, step));
    if (simt_thread() % SIMT_WARP != 0 || input >= a->count)
        return;
    if (a->bias != NULL)
        sum = berthi_core_add(sum, berthi_core_load(a->bias, dtype, row));
    berthi_core_store(a->outputs, dtype, input * a->rows + row, sum);
}

/* `inputs` is a constant: of a CTA. */
SIMT_INLINE void
plain_multiply_inputs(const berthi_plain_kernel *a, int32_t dtype, uint32_t inputs)
{
    const uint64_t row = simt_cta() / a->groups * PRODUCT_WARPS + simt_warp();
    const uint32_t first = (uint32_t)(simt_cta() % a->groups) * inputs;
    uint64_t k = simt_thread() % SIMT_WARP * EIGHT;
    float sums[PLAIN_INPUTS * EIGHT];

    if (row >= a->rows) /* the whole warp */
        return;
    SIMT_UNROLL
    for (uint32_t i = 0; i < inputs * EIGHT; i++)
        sums[i] = 0.0f;
    if (inputs == 1 && a->is_aligned != 0)
        k = plain_add_row_any(a, dtype, row, sums);
    SIMT_NO_UNROLL
    for (; k < a->columns; k += SIMT_WARP * EIGHT)
        plain_add_eight(a, dtype, row, first, inputs, k, sums);
    SIMT_UNROLL
    for (uint32_t i = 0; i < inputs; i++)
        plain_join(a, dtype, row, first + i, sums + i * EIGHT);
}

SIMT_INLINE void
plain_multiply(const berthi_plain_kernel *a, int32_t dtype)
{
    if (a->count == 1)
        plain_multiply_inputs(a, dtype, 1);
    else
        plain_multiply_inputs(a, dtype, PLAIN_INPUTS);
}

/* --------------------------------------------------------------------- codes */

/* Sixteen of a row that ends before `end`; those behind are 0. */
SIMT_INLINE simt_four
int8_sum_load(const int8_t *codes, uint64_t at, uint64_t there, bool is_aligned)
{
    simt_four four = { { 0, 0, 0, 0 } };

    if (is_aligned)
        return simt_read16(codes + at);
    SIMT_UNROLL
    for (uint32_t k = 0; k < INT8_SUM_LANE; k++)
        if (k < there)
            four.word[k / 4] |= (uint32_t)(uint8_t)codes[at + k] << k % 4 * 8;
    return four;
}

SIMT_INLINE int32_t
int8_sum_four(simt_four w, simt_four x, int32_t sum)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        sum = simt_add_signed_bytes(w.word[k], x.word[k], sum);
    return sum;
}

SIMT_INLINE void
int8_sum_add(const berthi_int8_sum_kernel *a, uint64_t row, uint32_t first, uint32_t inputs,
             uint64_t column, int32_t *sums)
{
    const uint64_t there = a->columns - column;
    const bool is_aligned = a->is_aligned != 0;
    const simt_four w = int8_sum_load(a->weights, row * a->columns + column, there, is_aligned);

    SIMT_UNROLL
    for (uint32_t i = 0; i < inputs; i++)
        if (first + i < a->count)
            sums[i] = int8_sum_four(
                w,
                int8_sum_load(a->inputs, (uint64_t)(first + i) * a->columns + column, there,
                              is_aligned),
                sums[i]);
}

/* Of one input. */
SIMT_INLINE int32_t
int8_sum_turns(const berthi_int8_sum_kernel *a, uint64_t row, uint64_t column, int32_t sum)
{
    const int8_t *const from = a->weights + row * a->columns + column;
    simt_four weights[PLAIN_LOADS];
    simt_four inputs[PLAIN_LOADS];

    SIMT_UNROLL
    for (uint32_t t = 0; t < PLAIN_LOADS; t++)
        weights[t] = simt_load16(from + t * SIMT_WARP * INT8_SUM_LANE);
    SIMT_UNROLL
    for (uint32_t t = 0; t < PLAIN_LOADS; t++)
        inputs[t] = simt_read16(a->inputs + column + t * SIMT_WARP * INT8_SUM_LANE);
    SIMT_UNROLL
    for (uint32_t t = 0; t < PLAIN_LOADS; t++)
        sum = int8_sum_four(weights[t], inputs[t], sum);
    return sum;
}

/* `inputs` is a constant: of a CTA. */
SIMT_INLINE void
int8_sum_inputs(const berthi_int8_sum_kernel *a, uint32_t inputs)
{
    const uint64_t row = simt_cta() / a->groups * PRODUCT_WARPS + simt_warp();
    const uint32_t first = (uint32_t)(simt_cta() % a->groups) * inputs;
    const uint64_t turn = SIMT_WARP * INT8_SUM_LANE;
    uint64_t k = simt_thread() % SIMT_WARP * INT8_SUM_LANE;
    int32_t sums[INT8_SUM_INPUTS];

    if (row >= a->rows) /* the whole warp */
        return;
    SIMT_UNROLL
    for (uint32_t i = 0; i < inputs; i++)
        sums[i] = 0;
    if (inputs == 1 && a->is_aligned != 0)
        SIMT_NO_UNROLL
        for (; k + (PLAIN_LOADS - 1) * turn < a->columns; k += PLAIN_LOADS * turn)
            sums[0] = int8_sum_turns(a, row, k, sums[0]);
    SIMT_NO_UNROLL
    for (; k < a->columns; k += turn)
        int8_sum_add(a, row, first, inputs, k, sums);
    SIMT_UNROLL
    for (uint32_t i = 0; i < inputs; i++) {
        int32_t sum = sums[i];

        SIMT_UNROLL
        for (uint32_t step = SIMT_WARP / 2; step > 0; step /= 2)
            sum += simt_shuffle_xor_int(sum, step);
        if (simt_thread() % SIMT_WARP == 0 && first + i < a->count)
            a->sums[(uint64_t)(first + i) * a->rows + row] = sum;
    }
}

SIMT_INLINE void
int8_sum(const berthi_int8_sum_kernel *a)
{
    if (a->count == 1)
        int8_sum_inputs(a, 1);
    else
        int8_sum_inputs(a, INT8_SUM_INPUTS);
}

/* ------------------------------------------------------------------- kernels */

SIMT_KERNEL(berthi_product_plain_bf16, PRODUCT_THREADS, berthi_plain_kernel,
            plain_multiply(a, BERTH_BF16))
SIMT_KERNEL(berthi_product_plain_f16, PRODUCT_THREADS, berthi_plain_kernel,
            plain_multiply(a, BERTH_F16))
SIMT_KERNEL(berthi_product_plain_f32, PRODUCT_THREADS, berthi_plain_kernel,
            plain_multiply(a, BERTH_F32))
SIMT_KERNEL(berthi_product_int8, PRODUCT_THREADS, berthi_int8_sum_kernel, int8_sum(a))

#endif
