/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_values_product.c - products with weights in the caller's memory: against naive sums
 * and the reference loops, whole and by rows.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/t.h"
#include "tests/values_case.h"
#include "tests/weights.h"

static const int32_t numbers[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* ----------------------------------------------------------------------- sums */

/* Against sums in double: the error of float sums, and one rounding at the end. */
static void
check_sums(const values_weight *w, const values_factors *f, const float *values)
{
    const int32_t dtype = f->product.dtype;
    const double rounding = dtype == BERTH_F32 ? 0x1p-24 : dtype == BERTH_F16 ? 0x1p-11
                                                                              : 0x1p-8;
    /* With BF16 inputs the values of the codes are rounded, too. */
    const double each = dtype == BERTH_BF16 ? 0x1p-8 : 0x1p-18;

    for (uint32_t i = 0; i < f->product.count; i++)
        for (uint64_t row = 0; row < w->shape[0]; row++) {
            const double got =
                (double)berthi_core_load(f->outputs, dtype, i * w->shape[0] + row);
            double sum = 0;
            double magnitude = 0;

            for (uint64_t k = 0; k < w->shape[1]; k++) {
                const double term =
                    (double)values[row * w->shape[1] + k]
                    * (double)berthi_core_load(f->inputs, dtype, i * w->shape[1] + k);

                sum += term;
                magnitude += fabs(term);
            }
            if (!CHECK(fabs(got - sum) <= magnitude * each + fabs(sum) * rounding
                                              + 0x1p-24)) {
                T_NOTE("input %u row %llu: %.9g is not %.9g", i, (unsigned long long)row,
                       got, sum);
                return;
            }
        }
}

static void
check_product(int32_t encoding, int32_t dtype, uint64_t rows, uint64_t columns,
              uint32_t count, bool is_double)
{
    float *values;
    values_factors f;
    values_weight w;
    uint8_t *first;

    values_begin(&w, encoding, BERTH_F32, rows, columns);
    w.options.double_quant = is_double;
    values_allocate(&w, rows * 3 + columns, false);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    values = weights_alloc(w.elements * sizeof *values);
    CHECK_EQ(berth_values_dequantize(w.context, &w.options, &w.buffers, w.values,
                                     w.values_bytes, &w.error),
             BERTH_OK);
    memcpy(values, w.values, w.values_bytes);
    values_begin_product(&f, &w, count, dtype);
    w.options.threads = 1;
    CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
    check_sums(&w, &f, values);
    first = weights_alloc(f.product.outputs_bytes);
    memcpy(first, f.outputs, f.product.outputs_bytes);
    for (uint32_t threads = 0; threads < 8; threads += 3) {
        memset(f.outputs, VALUES_GUARD, f.product.outputs_bytes);
        w.options.threads = threads;
        CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
        CHECK_MEM(f.outputs, first, f.product.outputs_bytes);
    }
    /* The last input alone. */
    f.product.inputs = f.inputs + f.product.inputs_bytes / count * (count - 1);
    f.product.inputs_bytes /= count;
    f.product.outputs_bytes /= count;
    f.product.count = 1;
    CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
    CHECK_MEM(f.outputs, first + f.product.outputs_bytes * (count - 1),
              f.product.outputs_bytes);
    f.product.inputs_bytes *= count;
    f.product.outputs_bytes *= count;
    free(first);
    free(values);
    values_end_product(&f);
    values_end(&w);
}

static void
test_products(void)
{
    for (uint32_t count = 1; count <= 32; count += count < 5 ? 1 : 9)
        for (size_t d = 0; d < 3; d++)
            check_product(d == 1 ? BERTH_ENCODING_FP4 : BERTH_ENCODING_NF4, numbers[d], 37,
                          192, count, d == 2);
    check_product(BERTH_ENCODING_NF4, BERTH_BF16, 32, 128, 32, true);
    check_product(BERTH_ENCODING_NF4, BERTH_BF16, 7, 65, 3, false);   /* cut rows */
    check_product(BERTH_ENCODING_FP4, BERTH_F32, 1500, 512, 2, true); /* several shares */
    check_product(BERTH_ENCODING_NF4, BERTH_F16, 1, 1, 1, false);
}

/* The same operations on the whole weight, by the reference. */
static void
check_int8(uint32_t count, int32_t dtype, float threshold, bool has_bias, uint32_t threads)
{
    const uint64_t rows = 1500;
    const uint64_t columns = 301;
    uint16_t bias[1500];
    int8_t *const codes = weights_alloc(columns * count);
    float *const maximum = weights_alloc(count * sizeof(float));
    uint8_t *const is_outlier = weights_alloc(columns);
    int64_t *const sums = weights_alloc(rows * count * sizeof(int64_t));
    uint8_t *outputs;
    values_factors f;
    values_weight w;
    berthi_dot_arguments dot = { .rows = rows, .columns = columns, .end_row = rows };

    for (uint32_t i = 0; i < rows; i++)
        bias[i] = berthi_core_to_fp16((float)i * 0.25f - 100);
    values_begin(&w, BERTH_ENCODING_INT8, BERTH_F16, rows, columns);
    w.options.threads = threads;
    values_allocate(&w, 5, false);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    values_begin_product(&f, &w, count, dtype);
    for (uint32_t i = 0; i < count; i++)
        berthi_core_store(f.inputs, dtype, i * columns + 7 * i + 3, -60.0f);
    f.product.threshold = threshold;
    f.product.bias = has_bias ? bias : NULL;
    f.product.bias_bytes = has_bias ? rows * 2 : 0;
    CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
    berthi_encode_activations(&(berthi_activation_arguments){
        f.inputs, dtype, count, columns, threshold, codes, maximum, is_outlier,
        NULL });
    dot.weights = w.buffers.codes;
    dot.inputs = codes;
    dot.count = count;
    dot.sums = sums;
    berthi_scalar_operations.dot_int8(&dot);
    outputs = weights_alloc(f.product.outputs_bytes);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot, .weight_maximum = w.buffers.absmax, .input_maximum = maximum,
        .bias = f.product.bias, .inputs = f.inputs,
        .is_outlier = threshold > 0 ? is_outlier : NULL, .dtype = dtype,
        .outputs = outputs });
    CHECK_MEM(f.outputs, outputs, f.product.outputs_bytes);
    if (threshold > 0)
        CHECK_EQ(is_outlier[3], 1);
    free(outputs);
    free(codes);
    free(maximum);
    free(is_outlier);
    free(sums);
    values_end_product(&f);
    values_end(&w);
}

static void
test_int8_products(void)
{
    check_int8(1, BERTH_F16, 6, true, 1);
    check_int8(1, BERTH_BF16, 0, false, 2);
    check_int8(5, BERTH_BF16, 6, true, 3);
    check_int8(32, BERTH_F32, 6, false, 0);
}

/* ----------------------------------------------------------------------- rows */

/* As they are in the product of all rows, and outputs of other rows left alone. */
static void
check_rows(values_weight *w, values_factors *f, const uint8_t *all, uint64_t first,
           uint64_t count)
{
    const uint64_t rows = w->shape[0];
    const uint64_t end = count > 0 ? first + count : rows;
    const uint64_t width = berth_dtype_bits(f->product.dtype) / 8;

    memset(f->outputs, VALUES_GUARD, f->product.outputs_bytes);
    f->product.first_row = first;
    f->product.row_count = count;
    CHECK_EQ(values_multiply(w, f), BERTH_OK);
    for (uint64_t at = 0; at < f->product.outputs_bytes; at++) {
        const uint64_t row = at / width % rows;
        const bool is_asked = row >= first && row < end;

        if (!CHECK_EQ(f->outputs[at], is_asked ? all[at] : VALUES_GUARD)) {
            T_NOTE("byte %llu, row %llu of [%llu, %llu)", (unsigned long long)at,
                   (unsigned long long)row, (unsigned long long)first,
                   (unsigned long long)end);
            return;
        }
    }
}

typedef struct rows_case {
    int32_t encoding;
    bool is_double;
    uint32_t block_size;
    uint64_t rows;
    uint64_t columns;
    int32_t dtype; /* of inputs */
    uint32_t count;
} rows_case;

static void
check_ranges(const rows_case *c)
{
    static const uint32_t threads[] = { 1, 3, 0, 2 };
    uint16_t *const bias = weights_alloc(c->rows * 2);
    uint8_t *all;
    values_factors f;
    values_weight w;

    values_begin(&w, c->encoding, BERTH_F16, c->rows, c->columns);
    w.options.double_quant = c->is_double;
    if (c->encoding != BERTH_ENCODING_INT8)
        w.options.block_size = c->block_size;
    values_allocate(&w, c->rows + c->columns, false);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    values_begin_product(&f, &w, c->count, c->dtype);
    for (uint64_t row = 0; row < c->rows; row++)
        bias[row] = berthi_core_to_fp16((float)row);
    if (c->encoding == BERTH_ENCODING_INT8) {
        berthi_core_store(f.inputs, c->dtype, c->columns - 1, 60.0f);
        f.product.threshold = 6;
        f.product.bias = bias;
        f.product.bias_bytes = c->rows * 2;
    }
    CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
    all = weights_alloc(f.product.outputs_bytes);
    memcpy(all, f.outputs, f.product.outputs_bytes);
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t first = c->rows * i / 4 + (i == 2);

        w.options.threads = threads[i];
        check_rows(&w, &f, all, first, 1);
        check_rows(&w, &f, all, first, c->rows / 4);
        check_rows(&w, &f, all, first, 0);
    }
    check_rows(&w, &f, all, c->rows - 1, 1);
    check_rows(&w, &f, all, 0, c->rows);
    free(all);
    free(bias);
    values_end_product(&f);
    values_end(&w);
}

/* Rows that begin within a byte, a block, a block of the second level; several shares. */
static void
test_rows(void)
{
    static const rows_case cases[] = {
        { BERTH_ENCODING_NF4, false, 64, 44, 128, BERTH_F32, 1 },
        { BERTH_ENCODING_NF4, false, 64, 41, 85, BERTH_BF16, 2 },
        { BERTH_ENCODING_NF4, true, 64, 57, 192, BERTH_F16, 1 },
        { BERTH_ENCODING_FP4, true, 64, 90, 85, BERTH_F32, 3 },
        { BERTH_ENCODING_NF4, true, 4096, 150, 96, BERTH_BF16, 1 },
        { BERTH_ENCODING_NF4, true, 128, 1500, 520, BERTH_F32, 2 },
        { BERTH_ENCODING_NF4, true, 32, 1100, 512, BERTH_F16, 1 },
        { BERTH_ENCODING_NF4, false, 4096, 1100, 520, BERTH_BF16, 2 },
        { BERTH_ENCODING_FP4, true, 32, 200, 4160, BERTH_BF16, 32 },
        { BERTH_ENCODING_INT8, false, 0, 43, 77, BERTH_BF16, 3 },
        { BERTH_ENCODING_INT8, false, 0, 1400, 512, BERTH_F32, 1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_ranges(&cases[i]);
}

/* Of a few rows not so much is taken as all of them would need. */
static void
check_memory(int32_t encoding, int32_t dtype)
{
    berth_memory_summary memory;
    berth_context *other;
    values_factors f;
    values_weight w;

    values_begin(&w, encoding, BERTH_F16, 4096, 64);
    values_allocate(&w, 4, false);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    values_begin_product(&f, &w, 32, dtype);
    f.product.first_row = 4000;
    f.product.row_count = 3;
    w.options.threads = 1;
    CHECK_EQ(berth_context_create(NULL, &other, NULL), BERTH_OK);
    CHECK_EQ(berth_values_multiply(other, &w.options, &w.buffers, &f.product, &w.error),
             BERTH_OK);
    berth_context_memory(other, &memory);
    CHECK_LT(memory.peak_bytes, 64 << 10);
    berth_context_destroy(other);
    values_end_product(&f);
    values_end(&w);
}

static void
test_memory_of_rows(void)
{
    check_memory(BERTH_ENCODING_NF4, BERTH_BF16);
    check_memory(BERTH_ENCODING_INT8, BERTH_F32);
}

/* Whose struct ends where it did before there were ranges. */
static void
test_an_older_struct(void)
{
    uint8_t *all;
    values_factors f;
    values_weight w;

    values_begin(&w, BERTH_ENCODING_NF4, BERTH_BF16, 9, 64);
    values_allocate(&w, 4, false);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    values_begin_product(&f, &w, 2, BERTH_F32);
    CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
    all = weights_alloc(f.product.outputs_bytes);
    memcpy(all, f.outputs, f.product.outputs_bytes);
    memset(f.outputs, VALUES_GUARD, f.product.outputs_bytes);
    f.product.struct_size = offsetof(berth_values_product, first_row);
    f.product.first_row = 3;
    CHECK_EQ(values_multiply(&w, &f), BERTH_OK);
    CHECK_MEM(f.outputs, all, f.product.outputs_bytes);
    free(all);
    values_end_product(&f);
    values_end(&w);
}

/* -------------------------------------------------------------------- refused */

static void
refuse_product(values_weight *w, const values_factors *f, const char *words)
{
    CHECK_EQ(values_multiply(w, f), BERTH_EINVAL);
    CHECK_EQ(w->error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(w->error.message, words);
    CHECK_EQ(f->outputs[0], VALUES_GUARD);
}

static void
test_refused_products(void)
{
    const uint16_t bias[8] = { 0 };
    values_factors f;
    values_factors good;
    values_weight w;

    values_begin(&w, BERTH_ENCODING_NF4, BERTH_BF16, 8, 64);
    values_allocate(&w, 3, false);
    CHECK_EQ(values_quantize(&w), BERTH_OK);
    values_begin_product(&good, &w, 2, BERTH_BF16);
    f = good;
    f.product.count = 0;
    refuse_product(&w, &f, "from 1 to 32");
    f.product.count = 33;
    refuse_product(&w, &f, "from 1 to 32");
    f = good;
    f.product.dtype = BERTH_I32;
    refuse_product(&w, &f, "none of BF16");
    f = good;
    f.product.threshold = 6;
    refuse_product(&w, &f, "only INT8");
    f = good;
    f.product.bias = bias;
    f.product.bias_bytes = sizeof bias;
    refuse_product(&w, &f, "only INT8");
    f.product.bias = NULL;
    refuse_product(&w, &f, "only INT8");
    f = good;
    f.product.first_row = 8;
    refuse_product(&w, &f, "rows that the weight does not have");
    f.product.first_row = UINT64_MAX;
    f.product.row_count = 2;
    refuse_product(&w, &f, "rows that the weight does not have");
    f.product.first_row = 3;
    f.product.row_count = 6;
    refuse_product(&w, &f, "rows that the weight does not have");
    f = good;
    f.product.inputs_bytes--;
    refuse_product(&w, &f, "another size");
    f = good;
    f.product.outputs_bytes++;
    refuse_product(&w, &f, "another size");
    f = good;
    f.product.inputs = NULL;
    refuse_product(&w, &f, "NULL");
    f = good;
    f.product.inputs = good.inputs + 1;
    refuse_product(&w, &f, "aligned");
    f = good;
    f.product.outputs = (void *)(uintptr_t)f.product.inputs;
    refuse_product(&w, &f, "overlaps");
    f = good;
    f.product.struct_size = 1;
    refuse_product(&w, &f, "struct_size");
    CHECK_EQ(berth_values_multiply(w.context, &w.options, &w.buffers, NULL, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_multiply(NULL, &w.options, &w.buffers, &good.product, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_values_multiply(w.context, &w.options, NULL, &good.product, NULL),
             BERTH_EINVAL);
    w.options.rank = 1;
    w.shape[0] = 512;
    refuse_product(&w, &good, "no matrix");
    w.shape[0] = 8;
    w.options.rank = 2;
    CHECK_EQ(values_multiply(&w, &good), BERTH_OK);
    values_end_product(&good);
    values_end(&w);
    values_begin(&w, BERTH_ENCODING_INT8, BERTH_BF16, 8, 64);
    values_allocate(&w, 3, false);
    values_begin_product(&good, &w, 2, BERTH_BF16);
    f = good;
    f.product.threshold = -1;
    refuse_product(&w, &f, "below 0");
    f.product.threshold = NAN;
    refuse_product(&w, &f, "below 0");
    f = good;
    f.product.bias = bias;
    f.product.bias_bytes = sizeof bias - 2;
    refuse_product(&w, &f, "another size");
    f.product.bias = NULL;
    refuse_product(&w, &f, "another size");
    f.product.bias_bytes = sizeof bias;
    refuse_product(&w, &f, "NULL");
    values_end_product(&good);
    values_end(&w);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_products);
    T_RUN(test_int8_products);
    T_RUN(test_rows);
    T_RUN(test_memory_of_rows);
    T_RUN(test_an_older_struct);
    T_RUN(test_refused_products);
    T_MAIN_END;
}
