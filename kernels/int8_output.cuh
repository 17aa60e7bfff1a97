/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8_output.cuh - LLM.int8(): sums of products of codes -> outputs, scaled by both
 * maxima, with the bias, through fp16; and what outlier columns add.
 *
 * A lane has four neighbours among an input's outputs, the same for each of the CTA's
 * inputs: maxima and bias of its rows are read once. Outliers are few, and added one
 * output at a time, in the order of the columns.
 *
 *   traffic   4 B read and 2 B (f32: 4 B) written an output, and 6 B a row for all the
 *             CTA's inputs; each outlier column 3 B more an output
 *   launch    berthi_int8_output_ctas() CTAs of INT8_OUTPUT_THREADS lanes
 *   bits      core.h; no output depends on another
 *   bounds    writes exactly count x rows outputs
 */
#ifndef BERTH_KERNELS_INT8_OUTPUT_CUH
#define BERTH_KERNELS_INT8_OUTPUT_CUH

#include "kernels/core.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/* ---------------------------------------------------------- four outputs of a lane */

/* Of a lane's rows. */
typedef struct int8_output_scales {
    float maximum[INT8_OUTPUT_LANE];
    float bias[INT8_OUTPUT_LANE];
} int8_output_scales;

SIMT_INLINE int8_output_scales
int8_output_load_scales(const berthi_int8_output_kernel *a, uint64_t row)
{
    const simt_four maxima = simt_read16(a->weight_maximum + row);
    simt_two bias = { { 0, 0 } };
    int8_output_scales scales;

    if (a->bias != NULL)
        bias = simt_load8(a->bias + row);
    SIMT_UNROLL
    for (uint32_t k = 0; k < INT8_OUTPUT_LANE; k++) {
        scales.maximum[k] = berthi_core_float(maxima.word[k]);
        scales.bias[k] =
            berthi_core_from_fp16((uint16_t)(bias.word[k / 2] >> 16 * (k % 2)));
    }
    return scales;
}

SIMT_INLINE void
int8_output_store_four(void *to, int32_t dtype, const uint16_t *halves)
{
    simt_four four = { { 0, 0, 0, 0 } };
    simt_two two = { { 0, 0 } };

    SIMT_UNROLL
    for (uint32_t k = 0; k < INT8_OUTPUT_LANE; k++) {
        const float value = berthi_core_from_fp16(halves[k]);
        const uint32_t stored = dtype == BERTH_BF16 ? berthi_core_to_bf16(value) : halves[k];

        four.word[k] = berthi_core_bits(value);
        two.word[k / 2] |= stored << 16 * (k % 2);
    }
    if (dtype == BERTH_F32)
        simt_store16(to, four);
    else
        simt_store8(to, two);
}

/* All turns' loads come before the first use. */
SIMT_INLINE void
int8_output_fours(const berthi_int8_output_kernel *a, int32_t dtype, uint64_t first,
                  uint64_t row)
{
    const int8_output_scales scales = int8_output_load_scales(a, row);
    const uint32_t width = dtype == BERTH_F32 ? 4 : 2;
    const int32_t *const sums = a->sums + first * a->rows + row;
    uint8_t *const to = (uint8_t *)a->outputs + (first * a->rows + row) * width;
    simt_four found[INT8_OUTPUT_TURNS];

    SIMT_UNROLL
    for (uint32_t t = 0; t < INT8_OUTPUT_TURNS; t++)
        if (first + t < a->count)
            found[t] = simt_load16(sums + t * a->rows);
    SIMT_UNROLL
    for (uint32_t t = 0; t < INT8_OUTPUT_TURNS; t++) {
        uint16_t halves[INT8_OUTPUT_LANE];

        if (first + t >= a->count)
            return;
        SIMT_UNROLL
        for (uint32_t k = 0; k < INT8_OUTPUT_LANE; k++)
            halves[k] = berthi_core_int8_output((int32_t)found[t].word[k],
                                                a->input_maximum[first + t],
                                                scales.maximum[k], scales.bias[k]);
        int8_output_store_four(to + t * a->rows * width, dtype, halves);
    }
}

/* ---------------------------------------------------------------------- outliers */

/* Plus one column's product: of the input as it was, and the weight in its dtype. */
SIMT_INLINE float
int8_output_add_outlier(const berthi_int8_output_kernel *a, int32_t dtype, uint64_t input,
                        uint64_t row, uint64_t column, float sum)
{
    const float weight = berthi_core_int8_value(a->weights[row * a->columns + column],
                                                a->weight_maximum[row]);

    return berthi_core_add(
        sum, berthi_core_multiply(
                 berthi_core_load(a->inputs, dtype, input * a->columns + column),
                 berthi_core_rounded(weight, dtype)));
}

/* By the list; where that is too short, by the mask. */
SIMT_INLINE float
int8_output_sum_outliers(const berthi_int8_output_kernel *a, int32_t dtype, uint64_t input,
                         uint64_t row)
{
    const uint32_t count = *a->outlier_count;
    float sum = 0.0f;

    if (count <= a->capacity)
        SIMT_NO_UNROLL
        for (uint32_t i = 0; i < count; i++)
            sum = int8_output_add_outlier(a, dtype, input, row, a->list[i], sum);
    else
        SIMT_NO_UNROLL
        for (uint64_t k = 0; k < a->columns; k++)
            if ((a->outliers[k / 32] >> k % 32 & 1u) != 0)
                sum = int8_output_add_outlier(a, dtype, input, row, k, sum);
    return berthi_core_rounded(sum, dtype);
}

/* --------------------------------------------------------------------------- CTAs */

SIMT_INLINE void
int8_output_one(const berthi_int8_output_kernel *a, int32_t dtype, bool has_outliers,
                uint64_t input, uint64_t row)
{
    const uint64_t at = input * a->rows + row;
    const float bias = a->bias != NULL ? berthi_core_from_fp16(a->bias[row]) : 0.0f;
    float value = berthi_core_from_fp16(berthi_core_int8_output(
        a->sums[at], a->input_maximum[input], a->weight_maximum[row], bias));

    if (has_outliers)
        value = berthi_core_settle(
            berthi_core_add(berthi_core_rounded(value, dtype),
                            int8_output_sum_outliers(a, dtype, input, row)));
    berthi_core_store(a->outputs, dtype, at, value);
}

SIMT_INLINE void
int8_output(const berthi_int8_output_kernel *a, int32_t dtype, bool has_outliers)
{
    const uint64_t in_input = berthi_int8_output_ctas_of_input(a->rows);
    const uint64_t first = simt_cta() / in_input * INT8_OUTPUT_TURNS;
    const uint64_t begin = simt_cta() % in_input * INT8_OUTPUT_ROWS;
    const uint64_t own = begin + simt_thread() * INT8_OUTPUT_LANE;

    if (!has_outliers && a->is_aligned != 0) {
        if (own < a->rows)
            int8_output_fours(a, dtype, first, own);
        return;
    }
    SIMT_NO_UNROLL
    for (uint64_t input = first; input < first + INT8_OUTPUT_TURNS && input < a->count; input++)
        SIMT_NO_UNROLL
        for (uint64_t row = begin + simt_thread(); row < begin + INT8_OUTPUT_ROWS && row < a->rows;
             row += INT8_OUTPUT_THREADS)
            int8_output_one(a, dtype, has_outliers, input, row);
}

/* ------------------------------------------------------------------------ kernels */

#define INT8_OUTPUT_KERNELS(name, dtype)                                              \
    SIMT_KERNEL(name, INT8_OUTPUT_THREADS, berthi_int8_output_kernel,                 \
                int8_output(a, dtype, false))                                         \
    SIMT_KERNEL(name##_outliers, INT8_OUTPUT_THREADS, berthi_int8_output_kernel,      \
                int8_output(a, dtype, true))

INT8_OUTPUT_KERNELS(berthi_int8_output_bf16, BERTH_BF16)
INT8_OUTPUT_KERNELS(berthi_int8_output_f16, BERTH_F16)
INT8_OUTPUT_KERNELS(berthi_int8_output_f32, BERTH_F32)

#endif
