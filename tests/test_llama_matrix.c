/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_llama_matrix.c - products with weights where they lie, against sums in double of
 * the same weight dequantized; shares of rows, bias, batches.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"
#include "tools/llama_math.h"
#include "tools/llama_matrix.h"

#define PARTS_MAX 4

/* A weight in memory, and the values that it stands for. */
typedef struct weight {
    berth_model_tensor tensor;
    uint64_t shape[2];
    void *memory[PARTS_MAX];
    float *values;
} weight;

static uint32_t
next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float *
make_floats(uint64_t count, uint32_t seed)
{
    float *const values = malloc(count * sizeof *values + 1);

    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)next_random(&seed) / 16777216.0f - 0.5f;
    return values;
}

static void
add_part(weight *w, int32_t role, uint64_t bytes)
{
    berth_model_part *const part = &w->tensor.parts[w->tensor.part_count];

    w->memory[w->tensor.part_count] = malloc(bytes + 1);
    part->memory = w->memory[w->tensor.part_count++];
    CHECK(w->tensor.part_count <= PARTS_MAX);
    part->bytes = bytes;
    part->role = role;
}

static void *
part_of(const weight *w, int32_t role, uint64_t *bytes)
{
    for (uint32_t i = 0; i < w->tensor.part_count; i++)
        if (w->tensor.parts[i].role == role) {
            *bytes = w->tensor.parts[i].bytes;
            return w->memory[i];
        }
    *bytes = 0;
    return NULL;
}

static void
begin(weight *w, int32_t encoding, int32_t dtype, uint64_t rows, uint64_t columns)
{
    memset(w, 0, sizeof *w);
    w->shape[0] = rows;
    w->shape[1] = columns;
    w->tensor = (berth_model_tensor){ .name = "w", .name_length = 1, .encoding = encoding,
                                      .dtype = dtype, .rank = 2, .elements = rows * columns };
    memcpy(w->tensor.shape, w->shape, sizeof w->shape);
    w->values = make_floats(rows * columns, (uint32_t)(rows * 31 + columns));
}

static void
finish(weight *w)
{
    for (uint32_t i = 0; i < w->tensor.part_count; i++)
        free(w->memory[i]);
    free(w->values);
}

static void
make_plain(weight *w, int32_t dtype, uint64_t rows, uint64_t columns)
{
    begin(w, BERTH_ENCODING_NATIVE, dtype, rows, columns);
    add_part(w, BERTH_ROLE_VALUES, rows * columns * berth_dtype_bits(dtype) / 8);
    llama_math_narrow(dtype, w->values, rows * columns, w->memory[0]);
    llama_math_widen(dtype, w->memory[0], rows * columns, w->values);
}

/* Quantized, and dequantized again into `values`. */
static void
make_encoded(berth_context *context, weight *w, int32_t encoding, bool is_double,
             uint32_t block_size, uint64_t rows, uint64_t columns)
{
    berth_values_part parts[BERTH_VALUES_PARTS];
    berth_values_options options;
    berth_values_buffers buffers;
    uint32_t count;

    begin(w, encoding, BERTH_F32, rows, columns);
    w->tensor.is_double = is_double;
    w->tensor.block_size = encoding == BERTH_ENCODING_INT8 ? 0 : block_size;
    berth_values_options_init(&options);
    options.encoding = encoding;
    options.dtype = BERTH_F32;
    options.shape = w->shape;
    options.rank = 2;
    options.double_quant = is_double;
    options.block_size = w->tensor.block_size;
    CHECK_EQ(berth_values_list(&options, parts, &count, NULL), BERTH_OK);
    for (uint32_t i = 0; i < count; i++)
        if (parts[i].role == BERTH_ROLE_CODES || parts[i].role == BERTH_ROLE_ABSMAX
            || parts[i].role == BERTH_ROLE_ABSMAX2
            || parts[i].role == BERTH_ROLE_ROW_MAXIMUM)
            add_part(w, parts[i].role, parts[i].bytes);
    berth_values_buffers_init(&buffers);
    buffers.codes = part_of(w, BERTH_ROLE_CODES, &buffers.codes_bytes);
    buffers.absmax = part_of(w, encoding == BERTH_ENCODING_INT8 ? BERTH_ROLE_ROW_MAXIMUM
                                                                : BERTH_ROLE_ABSMAX,
                             &buffers.absmax_bytes);
    buffers.absmax2 = part_of(w, BERTH_ROLE_ABSMAX2, &buffers.absmax2_bytes);
    CHECK_EQ(berth_values_quantize(context, &options, w->values, rows * columns * 4,
                                   &buffers, NULL),
             BERTH_OK);
    CHECK_EQ(berth_values_dequantize(context, &options, &buffers, w->values,
                                     rows * columns * 4, NULL),
             BERTH_OK);
    w->tensor.offset = buffers.offset;
}

/* Every output within `tolerance` of the sum of magnitudes. */
static void
check_outputs(const weight *w, const float *bias, const float *inputs, const float *outputs,
              uint32_t count, double tolerance)
{
    const uint64_t rows = w->shape[0];
    const uint64_t columns = w->shape[1];
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < count; i++)
        for (uint64_t row = 0; row < rows; row++) {
            double sum = bias != NULL ? (double)bias[row] : 0;
            double magnitude = fabs(sum);

            for (uint64_t k = 0; k < columns; k++) {
                const double term =
                    (double)inputs[i * columns + k] * (double)w->values[row * columns + k];

                sum += term;
                magnitude += fabs(term);
            }
            wrong += !(fabs((double)outputs[i * rows + row] - sum)
                       <= tolerance * magnitude + 1e-12);
        }
    if (!CHECK_EQ(wrong, 0))
        t_note("%s, %llu x %llu, %u inputs", berth_encoding_name(w->tensor.encoding),
               (unsigned long long)rows, (unsigned long long)columns, (unsigned)count);
}

/* Alone, in batches, by one thread and by three: near, and the same bits. */
static void
check_weight(berth_context *context, const weight *w, bool has_int8_inputs,
             double tolerance)
{
    static const uint32_t counts[] = { 1, 2, 33 };
    const uint64_t rows = w->shape[0];
    const uint64_t columns = w->shape[1];
    const llama_multiplier_options options = { .has_int8_inputs = has_int8_inputs };
    float *const inputs = make_floats(33 * columns, 7);
    float *const bias = make_floats(rows, 9);
    float *const first = malloc(33 * rows * sizeof *first);
    float *const outputs = malloc(33 * rows * sizeof *outputs);
    llama_matrix matrix;

    CHECK_EQ(llama_matrix_take(&w->tensor, &matrix, NULL), BERTH_OK);
    CHECK_EQ(matrix.rows, rows);
    CHECK_EQ(matrix.columns, columns);
    matrix.bias = bias;
    matrix.bias_dtype = BERTH_F32;
    for (uint32_t threads = 1; threads <= 3; threads += 2)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            const llama_product product = { &matrix, inputs, outputs, counts[i] };
            llama_multiplier *multiplier;
            llama_pool *pool;

            CHECK_EQ(llama_pool_create(threads, 1, &pool, NULL), BERTH_OK);
            CHECK_EQ(llama_multiplier_create(context, pool, &options, &multiplier, NULL),
                     BERTH_OK);
            memset(outputs, 0xFF, 33 * rows * sizeof *outputs);
            CHECK_EQ(llama_matrix_multiply(multiplier, &product, 1, NULL), BERTH_OK);
            check_outputs(w, bias, inputs, outputs, counts[i], tolerance);
            if (threads == 1 && i == 0)
                memcpy(first, outputs, rows * sizeof *first);
            if (!has_int8_inputs)
                CHECK_MEM(outputs, first, rows * sizeof *first);
            llama_multiplier_destroy(multiplier);
            llama_pool_destroy(pool);
        }
    free(inputs);
    free(bias);
    free(first);
    free(outputs);
}

/* Several shares; rows that blocks straddle; one share with a short last block. */
static const uint64_t shapes[][2] = { { 1300, 256 }, { 130, 4096 }, { 75, 100 }, { 3, 7 },
                                      { 700, 96 },   { 1, 64 } };

#define EACH_SHAPE(i) for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)

static void
test_plain(void)
{
    const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F16 };
    berth_context *context;
    weight w;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (size_t d = 0; d < 3; d++)
        EACH_SHAPE(i)
        {
            make_plain(&w, dtypes[d], shapes[i][0], shapes[i][1]);
            check_weight(context, &w, false, 1e-6);
            finish(&w);
        }
    berth_context_destroy(context);
}

static void
check_encoding(int32_t encoding, bool is_double, bool has_int8_inputs, double tolerance)
{
    berth_context *context;
    weight w;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    EACH_SHAPE(i)
    {
        make_encoded(context, &w, encoding, is_double, 64, shapes[i][0], shapes[i][1]);
        check_weight(context, &w, has_int8_inputs, tolerance);
        finish(&w);
    }
    berth_context_destroy(context);
}

static void
test_nf4(void)
{
    check_encoding(BERTH_ENCODING_NF4, false, false, 1e-6);
}

static void
test_nf4_double(void)
{
    check_encoding(BERTH_ENCODING_NF4, true, false, 1e-6);
}

/* Blocks so large that a share has more rows than any other weight's. */
static void
test_large_blocks(void)
{
    static const uint64_t columns[] = { 100, 99, 96 };
    berth_context *context;
    weight w;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        make_encoded(context, &w, BERTH_ENCODING_NF4, i == 1, 4096, 5000, columns[i]);
        check_weight(context, &w, false, 1e-6);
        finish(&w);
    }
    berth_context_destroy(context);
}

static void
test_fp4(void)
{
    check_encoding(BERTH_ENCODING_FP4, true, false, 1e-6);
}

static void
test_int8(void)
{
    check_encoding(BERTH_ENCODING_INT8, false, false, 1e-6);
}

/* Inputs as codes: half a step of 127, and outputs through fp16. */
static void
test_int8_inputs(void)
{
    check_encoding(BERTH_ENCODING_INT8, false, true, 2e-2);
}

/* Several products at once, of several kinds. */
static void
test_together(void)
{
    const uint32_t counts[3] = { 1, 4, 2 };
    berth_context *context;
    llama_multiplier *multiplier;
    llama_pool *pool;
    llama_matrix matrices[3];
    llama_product products[3];
    float *inputs[3];
    float *outputs[3];
    weight w[3];

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    make_encoded(context, &w[0], BERTH_ENCODING_NF4, true, 64, 1300, 256);
    make_plain(&w[1], BERTH_BF16, 600, 128);
    make_encoded(context, &w[2], BERTH_ENCODING_INT8, false, 64, 40, 192);
    CHECK_EQ(llama_pool_create(2, 1, &pool, NULL), BERTH_OK);
    CHECK_EQ(llama_multiplier_create(context, pool, &(llama_multiplier_options){ 0 },
                                     &multiplier, NULL),
             BERTH_OK);
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(llama_matrix_take(&w[i].tensor, &matrices[i], NULL), BERTH_OK);
        inputs[i] = make_floats(counts[i] * w[i].shape[1], (uint32_t)i);
        outputs[i] = calloc(counts[i] * w[i].shape[0], sizeof(float));
        products[i] = (llama_product){ &matrices[i], inputs[i], outputs[i], counts[i] };
    }
    CHECK_EQ(llama_matrix_multiply(multiplier, products, 3, NULL), BERTH_OK);
    for (size_t i = 0; i < 3; i++) {
        check_outputs(&w[i], NULL, inputs[i], outputs[i], counts[i], 1e-6);
        free(inputs[i]);
        free(outputs[i]);
        finish(&w[i]);
    }
    llama_multiplier_destroy(multiplier);
    llama_multiplier_destroy(NULL);
    llama_pool_destroy(pool);
    berth_context_destroy(context);
}

static void
test_refuses(void)
{
    llama_matrix m;
    berth_error error;
    weight w;

    make_plain(&w, BERTH_F32, 4, 8);
    w.tensor.parts[0].bytes--;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_EINTERNAL);
    CHECK_STR(error.tensor, "w");
    w.tensor.parts[0].bytes++;
    w.tensor.parts[0].memory = NULL;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_EINTERNAL);
    w.tensor.parts[0].memory = w.memory[0];
    w.tensor.dtype = BERTH_F64;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_EUNSUPPORTED);
    CHECK_STR(error.message, "is stored as F64 native, which the decoder does not "
                             "multiply by");
    w.tensor.dtype = BERTH_F32;
    w.tensor.encoding = BERTH_ENCODING_MXFP4;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_EUNSUPPORTED);
    w.tensor.encoding = BERTH_ENCODING_NF4;
    w.tensor.block_size = 16;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_EUNSUPPORTED);
    w.tensor.encoding = BERTH_ENCODING_NATIVE;
    w.tensor.rank = 3;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_EUNSUPPORTED);
    w.tensor.rank = 2;
    CHECK_EQ(llama_matrix_take(&w.tensor, &m, &error), BERTH_OK);
    finish(&w);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_plain);
    T_RUN(test_nf4);
    T_RUN(test_nf4_double);
    T_RUN(test_large_blocks);
    T_RUN(test_fp4);
    T_RUN(test_int8);
    T_RUN(test_int8_inputs);
    T_RUN(test_together);
    T_RUN(test_refuses);
    T_MAIN_END;
}
