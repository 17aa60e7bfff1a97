/* SPDX-License-Identifier: Apache-2.0 */
/* int8.c - LLM.int8() around the integer product: activations, outliers, output. */
#include "kernels/int8_output.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/number.h"

/* -------------------------------------------------------- columns that are apart */

/* From `k` on; none: `columns` or more. */
static uint64_t
find_bit(const uint32_t *bits, uint64_t k, uint64_t columns)
{
    while (k < columns && (bits[k / 32] >> k % 32 & 1) == 0)
        k = bits[k / 32] >> k % 32 == 0 ? (k / 32 + 1) * 32 : k + 1;
    return k;
}

/* The first of them from `k` on, or `columns` or more: there are few, or none. */
static uint64_t
find_outlier(const uint32_t *outliers, const uint8_t *is_outlier, uint64_t k,
             uint64_t columns)
{
    const uint8_t *found;

    if (outliers != NULL)
        return find_bit(outliers, k, columns);
    found = k < columns ? memchr(is_outlier + k, 1, columns - k) : NULL;
    return found != NULL ? (uint64_t)(found - is_outlier) : columns;
}

/* ------------------------------------------------------------- activations */

/* The maximum compares in fp16, where the threshold itself may have moved. */
static float
find_row_maximum(const berthi_activation_arguments *a, uint64_t first)
{
    const float threshold = berthi_core_from_fp16(berthi_core_to_fp16(a->threshold));
    float maximum = BERTHI_CORE_ROW_SEED;

    for (uint64_t i = first; i < first + a->columns; i++) {
        const float value = berthi_core_load_fp16(a->values, a->dtype, i);

        if (!(a->threshold > 0.0f && fabsf(value) >= threshold))
            maximum = berthi_core_absmax_step(maximum, value);
    }
    return maximum;
}

static void
encode_row(const berthi_activation_arguments *a, uint64_t row)
{
    const uint64_t first = row * a->columns;
    const float maximum = find_row_maximum(a, first);
    const float scale = berthi_core_int8_scale(maximum);

    a->row_maximum[row] = maximum;
    for (uint64_t k = 0; k < a->columns; k++) {
        const float value = berthi_core_load_fp16(a->values, a->dtype, first + k);

        if (a->threshold > 0.0f && fabsf(value) >= a->threshold)
            berthi_note_outlier(a, k); /* its code is that of its column, later */
        else
            a->codes[first + k] = berthi_core_int8_code(value, scale);
    }
}

void
berthi_encode_activations_by(const berthi_activation_arguments *a,
                             void (*encode)(const berthi_activation_arguments *own,
                                            uint64_t row))
{
    const uint64_t columns = a->threshold > 0.0f ? a->columns : 0;

    if (a->is_outlier != NULL)
        memset(a->is_outlier, 0, a->columns);
    for (uint64_t row = 0; row < a->rows; row++)
        encode(a, row);
    for (uint64_t k = 0; (k = find_outlier(a->outliers, a->is_outlier, k, columns)) < columns;
         k++)
        for (uint64_t row = 0; row < a->rows; row++)
            a->codes[row * a->columns + k] = 0;
}

void
berthi_encode_activations(const berthi_activation_arguments *a)
{
    berthi_encode_activations_by(a, encode_row);
}

/* ------------------------------------------------------------------- output */

/* What the outlier columns add to one output: weights rounded to the dtype. */
static float
sum_outliers(const berthi_int8_output_arguments *a, uint32_t i, uint64_t row)
{
    const uint64_t columns = a->dot->columns;
    float sum = 0.0f;

    for (uint64_t k = 0;
         (k = find_outlier(a->outliers, a->is_outlier, k, columns)) < columns; k++) {
        const float weight = berthi_core_int8_value(a->dot->weights[row * columns + k],
                                                    a->weight_maximum[row]);

        sum = berthi_core_add(
            sum, berthi_core_multiply(berthi_core_load(a->inputs, a->dtype, i * columns + k),
                                      berthi_core_rounded(weight, a->dtype)));
    }
    return berthi_core_rounded(sum, a->dtype);
}

void
berthi_int8_output(const berthi_int8_output_arguments *a)
{
    const berthi_dot_arguments *const dot = a->dot;
    const uint64_t stride = a->stride > 0 ? a->stride : dot->rows;

    for (uint32_t i = 0; i < dot->count; i++)
        for (uint64_t row = dot->first_row; row < dot->end_row; row++) {
            const uint64_t at = i * dot->rows + row;
            const float bias = a->bias != NULL ? berthi_core_from_fp16(a->bias[row]) : 0.0f;
            const int64_t sum = a->sums != NULL ? a->sums[at] : dot->sums[at];
            float value = berthi_core_from_fp16(berthi_core_int8_output(
                sum, a->input_maximum[i], a->weight_maximum[row], bias));

            if (a->is_outlier != NULL || a->outliers != NULL)
                value = berthi_core_settle(berthi_core_add(berthi_core_rounded(value, a->dtype),
                                                           sum_outliers(a, i, row)));
            berthi_core_store(a->outputs, a->dtype, i * stride + row, value);
        }
}

/* ------------------------------------------------------------ as devices are asked for it */

berth_status
berthi_int8_input_check(const berthi_int8_input_task *t, berth_error *error)
{
    uint64_t bytes;

    if (!berthi_is_number(t->dtype))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no inputs of dtype %" PRId32 " become codes", t->dtype);
    if (!(t->threshold >= 0.0f))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no inputs are apart by a threshold that is below 0, or no number");
    if (t->columns > INT32_MAX || !berthi_can_mul(t->count, t->columns * 4, &bytes)
        || !berthi_can_mul(t->count, sizeof *t->input_maximum, &bytes))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no codes are those of %" PRIu64 " inputs of %" PRIu64 " columns",
                           t->count, t->columns);
    return BERTH_OK;
}

static void
list_outliers(const berthi_outlier_room *room, uint64_t columns)
{
    uint32_t count = 0;

    for (uint64_t k = 0; (k = find_bit(room->mask, k, columns)) < columns; k++, count++)
        if (count < room->capacity)
            room->list[count] = (uint32_t)k;
    *room->count = count;
}

void
berthi_int8_input_run(const berthi_operations *operations, const berthi_int8_input_task *t)
{
    operations->encode_activations(&(berthi_activation_arguments){
        .values = t->inputs, .dtype = t->dtype, .rows = t->count, .columns = t->columns,
        .threshold = t->threshold, .codes = t->codes, .row_maximum = t->input_maximum,
        .outliers = t->threshold > 0.0f ? t->outliers.mask : NULL });
    if (t->threshold > 0.0f && t->count > 0)
        list_outliers(&t->outliers, t->columns);
}

berth_status
berthi_int8_output_check(const berthi_int8_output_task *t, berth_error *error)
{
    uint64_t bytes;
    const bool can_be =
        t->count <= UINT32_MAX && berthi_can_mul(t->count, t->rows, &bytes)
        && berthi_can_mul(bytes, 4, &bytes)
        && (t->outliers.mask == NULL
            || (t->columns <= UINT32_MAX && berthi_can_mul(t->rows, t->columns, &bytes)
                && berthi_can_mul(t->count, t->columns * 4, &bytes)));

    if (t->dtype != BERTH_BF16 && t->dtype != BERTH_F16 && t->dtype != BERTH_F32)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no sums become outputs of dtype %" PRId32, t->dtype);
    if (!can_be)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "no sums are those of %" PRIu64 " inputs and a weight of %" PRIu64
                           " x %" PRIu64,
                           t->count, t->rows, t->columns);
    return BERTH_OK;
}

void
berthi_int8_output_run(const berthi_int8_output_task *t)
{
    const berthi_dot_arguments dot = { .weights = t->weights, .rows = t->rows,
                                       .columns = t->columns, .end_row = t->rows,
                                       .count = (uint32_t)t->count };

    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot, .weight_maximum = t->weight_maximum,
        .input_maximum = t->input_maximum, .bias = t->bias, .inputs = t->inputs,
        .outliers = t->outliers.mask, .sums = t->sums, .dtype = t->dtype,
        .outputs = t->outputs });
}
