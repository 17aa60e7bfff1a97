/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLM.int8() on the GPU's kernels, run on the host: byte for byte what the
 * reference loops and the published library make of rows of each length, outlier
 * columns with a list that has room and one that has none, odd addresses, counts
 * beyond 32 bits; lanes ascending, descending and in a random order.
 */
#define _DEFAULT_SOURCE /* MAP_NORESERVE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "kernels/kernel_arguments.h"
#include "tests/fenced.h"
#include "tests/simt_level.h"
#include "tests/random.h"
#include "tests/t.h"
#include "tests/vectors.h"

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0x9E3779B97F4A7C15u;

static uint64_t
element_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* A matrix, and how the launches on it are run. */
typedef struct matrix_case {
    int32_t dtype;
    uint64_t rows;
    uint64_t columns;
    size_t odd; /* bytes by which input and output miss an even address */
    float threshold;
    uint32_t capacity;
} matrix_case;

static void
describe(const matrix_case *c, char *what, size_t size)
{
    snprintf(what, size, "dtype %d, %llu x %llu, odd %zu, threshold %g, room for %u", c->dtype,
             (unsigned long long)c->rows, (unsigned long long)c->columns, c->odd,
             (double)c->threshold, c->capacity);
}

/* --------------------------------------------------------------------- inputs */

typedef enum filling { ANY_BITS, ORDINARY, WITH_ZEROS_AND_NAN, WITH_OUTLIERS } filling;

/* Ordinary ones are around 0.02, of both signs; outliers reach 6 in some columns. */
static float
draw_value(const matrix_case *c, filling kind, uint64_t i)
{
    const float ordinary = random_signed(&state) * 0x1p-5f;

    if (kind == WITH_OUTLIERS && i % c->columns % 37 == 5 && random_next(&state) % 4 == 0)
        return (random_next(&state) % 2 == 0 ? 1.0f : -1.0f)
               * (5.9f + (float)(random_next(&state) % 64) * 0x1p-8f);
    if (kind == WITH_ZEROS_AND_NAN && i / c->columns % 3 == 0)
        return i % 5 == 0 ? -0.0f : 0.0f;
    if (kind == WITH_ZEROS_AND_NAN && random_next(&state) % 16 == 0)
        return random_next(&state) % 2 == 0 ? NAN : 1e-7f;
    return ordinary;
}

static uint8_t *
draw_values(const matrix_case *c, filling kind)
{
    const uint64_t count = c->rows * c->columns;
    uint8_t *const values = malloc(count * 4);

    if (values == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits = random_next(&state);

        if (kind == ANY_BITS)
            memcpy(values + i * element_bytes(c->dtype), &bits, element_bytes(c->dtype));
        else
            berthi_core_store(values, c->dtype, i, draw_value(c, kind, i));
    }
    return values;
}

/* ------------------------------------------------------------ one comparison each */

static void
check_encoding(const matrix_case *c, const void *values)
{
    const uint64_t count = c->rows * c->columns;
    const bool has_outliers = c->threshold > 0.0f;
    fenced_output codes = fenced_begin(count, c->odd);
    fenced_output maximum = fenced_begin(c->rows * sizeof(float), 0);
    fenced_output outliers = fenced_begin(c->columns, 0);
    fenced_output expected_codes = fenced_begin(count, 0);
    fenced_output expected_maximum = fenced_begin(c->rows * sizeof(float), 0);
    fenced_output expected_outliers = fenced_begin(c->columns, 0);
    char what[120];
    uint8_t *memory;
    const uint8_t *const exact = fenced_copy(
        values, count * element_bytes(c->dtype), c->odd * element_bytes(c->dtype), &memory);

    describe(c, what, sizeof what);
    simt_encode_activations(
        &(berthi_activation_arguments){ exact, c->dtype, c->rows, c->columns, c->threshold,
                                        (int8_t *)codes.bytes, (float *)(void *)maximum.bytes,
                                        has_outliers ? outliers.bytes : NULL, NULL },
        c->capacity);
    berthi_encode_activations(&(berthi_activation_arguments){
        values, c->dtype, c->rows, c->columns, c->threshold, (int8_t *)expected_codes.bytes,
        (float *)(void *)expected_maximum.bytes,
        has_outliers ? expected_outliers.bytes : NULL, NULL });
    fenced_end(&codes, &expected_codes, what);
    fenced_end(&maximum, &expected_maximum, what);
    fenced_end(&outliers, &expected_outliers, what);
    free(memory);
}

static void
check_decoding(const matrix_case *c, const int8_t *codes, const float *maximum)
{
    const uint64_t count = c->rows * c->columns;
    fenced_output values = fenced_begin(count * element_bytes(c->dtype),
                                        c->odd * element_bytes(c->dtype));
    fenced_output expected = fenced_begin(count * element_bytes(c->dtype), 0);
    char what[120];
    uint8_t *memory;
    const uint8_t *const exact = fenced_copy(codes, count, c->odd, &memory);

    describe(c, what, sizeof what);
    simt_decode_rows(&(berthi_rows_decode_arguments){ (const int8_t *)exact, maximum, c->rows,
                                                      c->columns, c->dtype, values.bytes });
    berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
        codes, maximum, c->rows, c->columns, c->dtype, expected.bytes });
    fenced_end(&values, &expected, what);
    free(memory);
}

/* ----------------------------------------------------------------------- rows */

/* Around the borders between the ways to keep a row, and between turns. */
static const uint64_t columns[] = {
    1,    8,    31,   40,   64,   248,  256,   264,   1000,  1024,  1032,  2040,
    2048, 2049, 2056, 4088, 4096, 4104, 9001, 16384, 16392, 28672, 32768, 32776,
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void
test_rows_of_each_length(void)
{
    for (unsigned i = 0; i < COLUMNS * 3; i++) {
        const matrix_case c = { .dtype = dtypes[i % 3],
                                .columns = columns[i / 3],
                                .rows = columns[i / 3] > 3000 ? 1 + i % 2 : 3 + i % 7,
                                .odd = i % 11 == 10 ? 1 : 0 };
        uint8_t *const values = draw_values(&c, (filling)(i % 4));

        simt_level_set_order((simt_order)(i % SIMT_ORDER_COUNT), i);
        check_encoding(&c, values);
        free(values);
    }
}

/* One input through every kernel, in every order: the same bytes. */
static void
test_every_kernel_in_every_order(void)
{
    static const uint64_t lengths[] = { 296, 2056, 299 };

    for (unsigned i = 0; i < 3 * 3 * 2; i++) {
        const matrix_case c = { .dtype = dtypes[i % 3],
                                .columns = lengths[i / 3 % 3],
                                .rows = 5,
                                .threshold = i < 9 ? 0.0f : 6.0f,
                                .capacity = 100 };
        uint8_t *const values = draw_values(&c, WITH_OUTLIERS);

        for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
            simt_level_set_order((simt_order)order, 5);
            check_encoding(&c, values);
        }
        free(values);
    }
}

/* Each ratio of a row's element to its maximum that fp16 has in a binade: halves, too. */
static void
test_ties(void)
{
    const matrix_case c = { .dtype = BERTH_F16, .rows = 64, .columns = 1032 };
    uint16_t *const x = malloc(c.rows * c.columns * sizeof *x);

    T_REQUIRE(x != NULL);
    for (uint64_t i = 0; i < c.rows * c.columns; i++)
        x[i] = (uint16_t)(0x3800 + i % c.columns % 1024);
    for (uint64_t row = 0; row < c.rows; row++)
        x[row * c.columns] = (uint16_t)(0x3C00 + 16 * row);
    simt_level_set_order(SIMT_RANDOM, 1);
    check_encoding(&c, x);
    free(x);
}

/* ------------------------------------------------------------------- outliers */

/* 6.001 is 6 in fp16, so a 6 is in no maximum and yet has a code. */
static void
test_outlier_columns(void)
{
    static const float thresholds[] = { 6.0f, 6.001f, 0.015f, 5.999f };
    static const uint32_t capacities[] = { 0, 1, 5, 2000, 40000 };

    for (unsigned i = 0; i < 120; i++) {
        const uint64_t length = columns[random_next(&state) % COLUMNS];
        const matrix_case c = { .dtype = dtypes[i % 3],
                                .columns = length,
                                .rows = length > 3000 ? 1 : i % 5 == 0 ? 35 : 1 + i % 7,
                                .odd = i % 10 == 9 ? 1 : 0,
                                .threshold = thresholds[i % 4],
                                .capacity = capacities[i % 5] };
        uint8_t *const values =
            draw_values(&c, i % 6 == 5 ? ANY_BITS : i % 6 == 4 ? WITH_ZEROS_AND_NAN
                                                               : WITH_OUTLIERS);

        simt_level_set_order((simt_order)(random_next(&state) % SIMT_ORDER_COUNT), i);
        check_encoding(&c, values);
        free(values);
    }
}

/*
 * Below the threshold, yet not below its fp16: the code is the low byte of the
 * integer that the scaled value is nearest to, and of the largest one beyond.
 */
static void
test_elements_between_a_threshold_and_its_fp16(void)
{
    static float x[4][3] = {
        { 6.0f, 0.25f, 0.0f },    /* 3048 = 0xBE8 */
        { -6.0f, 0.25f, 0.0f },
        { 6.0f, 0.0f, 0.0f },     /* infinite */
        { 6.0f, 0x1p-24f, -6.0f } /* more than an integer holds */
    };
    static const int8_t expected[4][3] =
        { { -24, 127, 0 }, { 24, 127, 0 }, { -1, 0, 0 }, { -1, 127, 0 } };
    int8_t codes[4][3];
    float maximum[4];
    uint8_t is_outlier[3];
    const matrix_case c = { .dtype = BERTH_F32, .rows = 4, .columns = 3, .threshold = 6.001f };

    berthi_encode_activations(&(berthi_activation_arguments){
        x, BERTH_F32, 4, 3, c.threshold, codes[0], maximum, is_outlier, NULL });
    CHECK_MEM(codes, expected, sizeof expected);
    CHECK_EQ(is_outlier[0] + is_outlier[1] + is_outlier[2], 0);
    check_encoding(&c, x);
}

/* ------------------------------------------------------------------- decoding */

static void
test_decoding_of_any_codes(void)
{
    for (unsigned i = 0; i < COLUMNS * 3; i++) {
        const matrix_case c = { .dtype = dtypes[i % 3],
                                .columns = columns[i / 3],
                                .rows = 1 + i % 4,
                                .odd = i % 11 == 10 ? 1 : 0 };
        int8_t *const codes = malloc(c.rows * c.columns);
        float maximum[4];

        T_REQUIRE(codes != NULL);
        for (uint64_t k = 0; k < c.rows * c.columns; k++)
            codes[k] = (int8_t)(random_next(&state) >> 20);
        for (unsigned k = 0; k < 4; k++)
            maximum[k] = i % 5 == 0 ? berthi_core_float((uint32_t)random_next(&state))
                                    : (float)(random_next(&state) % 1000) * 0x1p-12f;
        simt_level_set_order((simt_order)(i % SIMT_ORDER_COUNT), i);
        check_decoding(&c, codes, maximum);
        free(codes);
    }
}

/* -------------------------------------------------------------- golden inputs */

/* The library's own codes: no oracle of ours between. */
static void
check_golden(const vectors *v, const char *prefix)
{
    const berthi_entry *const input = vectors_find(v, prefix, "input");
    const bool has_outliers = vectors_find(v, prefix, "columns") != NULL;
    uint64_t shape[BERTH_MAX_RANK];
    uint8_t is_outlier[1024];
    int8_t *codes;
    float *maximum;

    if (vectors_find(v, prefix, "scb") == NULL)
        return;
    berthi_entry_shape(v->header.text, input, shape);
    T_REQUIRE(shape[1] <= sizeof is_outlier);
    codes = malloc(shape[0] * shape[1]);
    maximum = malloc(shape[0] * sizeof(float));
    T_REQUIRE(codes != NULL && maximum != NULL);
    simt_level_set_order(SIMT_RANDOM, shape[1]);
    simt_encode_activations(
        &(berthi_activation_arguments){ vectors_data(v, input), input->dtype, shape[0], shape[1],
                                        has_outliers ? 6.0f : 0.0f, codes, maximum,
                                        is_outlier, NULL },
        1024);
    CHECK_MEM(codes, vectors_either(v, prefix, "codes", "codes"), shape[0] * shape[1]);
    CHECK_MEM(maximum, vectors_either(v, prefix, "scb", "scb"), shape[0] * sizeof(float));
    free(codes);
    free(maximum);
}

static void
test_golden_inputs(void)
{
    vectors v;

    T_REQUIRE(vectors_has_opened(&v, "tests/data/vectors.safetensors"));
    CHECK_GE(vectors_each(&v, "int8/", "scb", check_golden), 4);
    vectors_close(&v);
}

/* ------------------------------------------------------------ beyond 32 bits */

/* Memory that costs nothing until it is touched; NULL where there is none. */
static void *
reserve(size_t bytes)
{
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* The last rows of a matrix of more than 2^32 elements. */
static void
check_counts_beyond_32_bits(void)
{
    enum { WIDE = 32768, LAST = 2 };
    const uint64_t rows = (UINT64_C(1) << 32) / WIDE + 5;
    const uint64_t first = (rows - LAST) * WIDE;
    const matrix_case c = { .dtype = BERTH_BF16, .rows = LAST, .columns = WIDE };
    uint8_t *const drawn = draw_values(&c, ORDINARY);
    uint16_t *const values = reserve(rows * WIDE * 2);
    int8_t *const codes = reserve(rows * WIDE);
    float *const maximum = reserve(rows * sizeof(float));
    int8_t *const expected = malloc(LAST * WIDE);
    float expected_maximum[LAST];

    if (values == NULL || codes == NULL || maximum == NULL)
        T_SKIP("no 13 GB of addresses");
    T_REQUIRE(expected != NULL);
    memcpy(values + first, drawn, LAST * WIDE * 2);
    simt_level_set_order(SIMT_ASCENDING, 0);
    simt_level_set_first(rows - LAST);
    simt_encode_rows(
        &(berthi_rows_arguments){ values, BERTH_BF16, rows, WIDE, codes, maximum });
    berthi_scalar_operations.encode_rows(&(berthi_rows_arguments){
        drawn, BERTH_BF16, LAST, WIDE, expected, expected_maximum });
    CHECK_MEM(codes + first, expected, LAST * WIDE);
    CHECK_MEM(maximum + rows - LAST, expected_maximum, sizeof expected_maximum);
    simt_level_set_first(berthi_int8_decode_ctas(rows - LAST, WIDE));
    simt_decode_rows(
        &(berthi_rows_decode_arguments){ codes, maximum, rows, WIDE, BERTH_BF16, values });
    berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
        expected, expected_maximum, LAST, WIDE, BERTH_BF16, drawn });
    CHECK_MEM(values + first, drawn, LAST * WIDE * 2);
    simt_level_set_first(0);
    munmap(values, rows * WIDE * 2);
    munmap(codes, rows * WIDE);
    munmap(maximum, rows * sizeof(float));
    free(drawn);
    free(expected);
}

static void
test_counts_beyond_32_bits(void)
{
    if (!simt_level_runs_parts())
        T_SKIP("a device runs grids whole");
    check_counts_beyond_32_bits();
}

/* ------------------------------------------------------------------- launches */

static void
test_launches(void)
{
    uint32_t mask[2] = { 0, 0 };
    berthi_int8_input_task t = { .dtype = BERTH_BF16, .threshold = 6.0f, .count = 33,
                                 .columns = 64, .outliers = { mask, NULL, NULL, 0 } };
    berthi_launch l[3];

    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_int8_encode_bf16_warp);
    CHECK(l[0].argument.int8.outliers == mask);
    CHECK_EQ(l[1].kernel, KERNEL_outlier_collect);
    CHECK_EQ(l[1].ctas, 1);
    CHECK_EQ(l[2].kernel, KERNEL_outlier_clear);
    CHECK_EQ(l[2].ctas, 3);
    t.count = 1;
    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_OK);
    CHECK_EQ(l[1].kernel, KERNEL_outlier_collect);
    CHECK_EQ(l[2].kernel, KERNEL_NONE);
    t.threshold = 0.0f;
    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_OK);
    CHECK(l[0].argument.int8.outliers == NULL);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
    CHECK_EQ(l[2].kernel, KERNEL_NONE);
    t.threshold = 6.0f;
    t.count = 0;
    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
    t.count = 1;
    t.columns = UINT64_C(1) << 31;
    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
    t.columns = 64;
    t.dtype = BERTH_I8;
    CHECK_EQ(berthi_launch_int8_input(&t, l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
}

/* As few as keep a row in their registers: 64 elements each, of f32 32, and whole warps. */
static void
test_lanes_of_rows(void)
{
    static const struct {
        int32_t dtype;
        uint64_t columns;
        berthi_kernel_id kernel;
        uint32_t threads;
    } rows[] = {
        { BERTH_BF16, 2048, KERNEL_int8_encode_bf16_warp, 128 },
        { BERTH_BF16, 2056, KERNEL_int8_encode_bf16_cta, 64 },
        { BERTH_F16, 5120, KERNEL_int8_encode_f16_cta, 96 },
        { BERTH_BF16, 8192, KERNEL_int8_encode_bf16_cta, 128 },
        { BERTH_BF16, 8200, KERNEL_int8_encode_bf16_cta, 160 },
        { BERTH_BF16, 28672, KERNEL_int8_encode_bf16_cta, 448 },
        { BERTH_BF16, 32768, KERNEL_int8_encode_bf16_cta, 512 },
        { BERTH_BF16, 32776, KERNEL_int8_encode_bf16_any, 512 },
        { BERTH_F32, 1024, KERNEL_int8_encode_f32_warp, 128 },
        { BERTH_F32, 8192, KERNEL_int8_encode_f32_cta, 256 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const berthi_rows_arguments a = { .dtype = rows[i].dtype, .rows = 3,
                                          .columns = rows[i].columns };
        berthi_launch l;

        CHECK_EQ(berthi_launch_encode_rows(&a, &l, NULL), BERTH_OK);
        CHECK_EQ(l.kernel, rows[i].kernel);
        CHECK_EQ(l.threads, rows[i].threads);
        CHECK_EQ(l.argument.int8.lanes, rows[i].threads);
    }
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_launches);
    T_RUN(test_lanes_of_rows);
    if (simt_level_is_there(&why)) {
        T_RUN(test_rows_of_each_length);
        T_RUN(test_every_kernel_in_every_order);
        T_RUN(test_ties);
        T_RUN(test_outlier_columns);
        T_RUN(test_elements_between_a_threshold_and_its_fp16);
        T_RUN(test_decoding_of_any_codes);
        T_RUN(test_golden_inputs);
        T_RUN(test_counts_beyond_32_bits);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
