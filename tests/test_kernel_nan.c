/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_kernel_nan.c - the one NaN, on every level: whatever NaN or infinity an absmax, a
 * map, a scale or a bias is, what is stored has the bits that a GPU's arithmetic gives.
 *
 * They are written down here, since plain loops and kernels that are run by the host share
 * its arithmetic: held against each other they agree on whatever that makes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/int8_output.h"
#include "kernels/kernel.h"
#include "tests/t.h"

#define ONE_NAN 0x7FFFFFFFu
#define PLUS_INFINITY 0x7F800000u
#define MINUS_INFINITY 0xFF800000u
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* Of both signs, quiet and signaling, with payloads in all places. */
static const uint32_t nans[] = { 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FBFFFFF,
                                 0xFFBFFFFF, 0x7FC12345, 0xFFD54321, 0x7FFFFFFF, 0xFFFFFFFF };

static berthi_operations level;

/* ------------------------------------------------------------------ what is stored */

static uint32_t
stored_bits(const void *values, int32_t dtype, uint64_t i)
{
    return dtype == BERTH_F32 ? ((const uint32_t *)values)[i] : ((const uint16_t *)values)[i];
}

/* As `dtype` has it: a NaN, or an infinity. */
static uint32_t
bits_of(uint32_t wide, int32_t dtype)
{
    if (dtype == BERTH_F32)
        return wide;
    if (wide == ONE_NAN)
        return 0x7FFF;
    return (wide >> 16 & 0x8000u) | (dtype == BERTH_BF16 ? 0x7F80u : 0x7C00u);
}

/* Of a number that is none, or infinite, and another one. */
static uint32_t
product_bits(uint32_t a, uint32_t b)
{
    const uint32_t infinity = 0x7F800000u;
    const uint32_t largest =
        (a & 0x7FFFFFFFu) > (b & 0x7FFFFFFFu) ? a & 0x7FFFFFFFu : b & 0x7FFFFFFFu;
    const bool has_zero = (a & 0x7FFFFFFFu) == 0 || (b & 0x7FFFFFFFu) == 0;

    return largest > infinity || has_zero ? ONE_NAN : infinity | ((a ^ b) & 0x80000000u);
}

static bool
is_special(uint32_t bits)
{
    return (bits & 0x7F800000u) == 0x7F800000u;
}

/* ----------------------------------------------------------------------- primitives */

static void
test_arithmetic(void)
{
    const float infinite = berthi_core_float(PLUS_INFINITY);

    CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(0.0f, infinite)), ONE_NAN);
    CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(infinite, -0.0f)), ONE_NAN);
    CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(0x1p-140f, infinite)), ONE_NAN);
    CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(-2.0f, infinite)), MINUS_INFINITY);
    for (size_t i = 0; i < COUNT(nans); i++) {
        const float nan = berthi_core_float(nans[i]);

        CHECK_EQ(berthi_core_bits(berthi_core_one_nan(nan)), ONE_NAN);
        CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(nan, 1.0f)), ONE_NAN);
        CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(0.0f, nan)), ONE_NAN);
        CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(nan)), ONE_NAN);
        CHECK_EQ(berthi_core_to_bf16(nan), 0x7FFF);
        CHECK_EQ(berthi_core_to_fp16(nan), 0x7FFF);
        CHECK_EQ(berthi_core_int8_code(nan, 1.0f), 0);
        CHECK_EQ(berthi_core_bits(berthi_core_int8_value(0, nan)), ONE_NAN);
    }
    CHECK_EQ(berthi_core_bits(berthi_core_int8_value(0, infinite)), ONE_NAN);
    for (uint32_t h = 0x7C01; h <= 0x7FFF; h++) {
        CHECK_EQ(berthi_core_bits(berthi_core_from_fp16((uint16_t)h)), ONE_NAN);
        CHECK_EQ(berthi_core_bits(berthi_core_from_fp16((uint16_t)(h | 0x8000u))), ONE_NAN);
    }
    CHECK_EQ(berthi_core_bits(berthi_core_from_fp16(0x7C00)), PLUS_INFINITY);
    CHECK_EQ(berthi_core_bits(berthi_core_from_fp16(0xFC00)), MINUS_INFINITY);
}

/* --------------------------------------------------------------------------- blocks */

typedef void decode_function(const berthi_decode_arguments *arguments);

#define BLOCKS 5u /* the second and the fourth are ordinary; the last is short */
#define LARGEST_BLOCK 4096u

static uint32_t
code_at(const berthi_decode_arguments *a, uint64_t i)
{
    if (a->map != NULL)
        return a->codes[i];
    return i % 2 == 0 ? a->codes[i / 2] >> 4 : a->codes[i / 2] & 15u;
}

/* What is not finite has these bits, and nothing else is not. */
static bool
is_decoded(const berthi_decode_arguments *a, const uint32_t *values)
{
    for (uint64_t i = 0; i < a->count; i++) {
        const uint32_t absmax = berthi_core_bits(a->absmax[i / a->block_size]);
        const uint32_t value = values[code_at(a, i)];
        const uint32_t found = stored_bits(a->values, a->dtype, i);
        const uint32_t infinity = bits_of(PLUS_INFINITY, a->dtype);
        const bool is_one = is_special(absmax) || is_special(value);

        if (is_one ? found != bits_of(product_bits(value, absmax), a->dtype)
                   : (found & infinity) == infinity)
            return false;
    }
    return true;
}

static void
check_blocks(decode_function *decode, const uint32_t *values, bool is_map, int32_t dtype,
             uint32_t block_size, uint32_t special)
{
    static uint8_t codes[BLOCKS * LARGEST_BLOCK];
    static uint32_t out[BLOCKS * LARGEST_BLOCK];
    float absmax[BLOCKS];
    berthi_decode_arguments a = { .codes = codes, .absmax = absmax,
                                  .block_size = block_size, .dtype = dtype,
                                  .map = is_map ? values : NULL, .values = out };

    for (uint32_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i * 37 + i / 256);
    for (uint32_t b = 0; b < BLOCKS; b++)
        absmax[b] = berthi_core_float(b % 2 == 0 ? special : 0x3F800000u);
    for (uint32_t end = 1; end <= block_size; end += block_size / 2 - 1) {
        a.count = (BLOCKS - 1) * block_size + end;
        memset(out, 0, sizeof out);
        decode(&a);
        if (!CHECK(is_decoded(&a, values)))
            T_NOTE("absmax %08x, blocks of %u, %u in the last, dtype %d", special, block_size,
                   end, dtype);
    }
}

static void
check_all_blocks(decode_function *decode, const uint32_t *values, bool is_map)
{
    static const uint32_t sizes[] = { 32, 64, 128, 256, 512, 1024, 2048, 4096 };

    for (size_t d = 0; d < COUNT(dtypes); d++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            for (size_t i = 0; i < COUNT(nans); i++)
                check_blocks(decode, values, is_map, dtypes[d], sizes[s], nans[i]);
            check_blocks(decode, values, is_map, dtypes[d], sizes[s], PLUS_INFINITY);
            check_blocks(decode, values, is_map, dtypes[d], sizes[s], MINUS_INFINITY);
        }
}

static void
test_blocks(void)
{
    check_all_blocks(level.decode_nf4, berthi_nf4_values, false);
    check_all_blocks(level.decode_fp4, berthi_fp4_values, false);
}

/* Maps are read from files, too: anything may be in them. */
static void
test_maps(void)
{
    uint32_t map[256];

    check_all_blocks(level.decode_map, berthi_signed_map, true);
    memcpy(map, berthi_signed_map, sizeof map);
    for (uint32_t i = 0; i < COUNT(nans); i++)
        map[3 + 11 * i] = nans[i];
    map[200] = PLUS_INFINITY;
    map[201] = MINUS_INFINITY;
    check_all_blocks(level.decode_map, map, true);
    for (size_t d = 0; d < COUNT(dtypes); d++)
        check_blocks(level.decode_map, map, true, dtypes[d], 64, 0x00000000);
}

/* -------------------------------------------------------------- double quantization */

/* All of one code; every absmax has the bits `expected`. */
static void
check_recovered(uint8_t code, const uint32_t *map, uint32_t absmax2, uint32_t offset,
                uint32_t expected)
{
    enum { MOST = 2 * BERTHI_DOUBLE_BLOCK + 29 };
    static uint8_t codes[MOST];
    const float second[3] = { berthi_core_float(absmax2), berthi_core_float(absmax2),
                              berthi_core_float(absmax2) };
    uint32_t out[MOST];

    memset(codes, code, sizeof codes);
    level.decode_double(&(berthi_double_arguments){ .codes = codes,
                                                    .absmax2 = (float *)(uintptr_t)second,
                                                    .count = MOST,
                                                    .offset = berthi_core_float(offset),
                                                    .map = map },
                        (float *)out);
    for (uint32_t i = 0; i < MOST; i++)
        if (!CHECK_EQ(out[i], expected)) {
            T_NOTE("value %u of code %u, %08x and %08x", i, code, absmax2, offset);
            break;
        }
}

static void
test_recovered_absmax(void)
{
    static uint32_t map[256]; /* its code 127 is 0, its last 1, its first negative */

    memcpy(map, berthi_signed_map, sizeof map);
    check_recovered(255, map, PLUS_INFINITY, 0x3F800000, PLUS_INFINITY);
    check_recovered(127, map, PLUS_INFINITY, 0x3F800000, ONE_NAN);
    check_recovered(255, map, PLUS_INFINITY, MINUS_INFINITY, ONE_NAN);
    check_recovered(0, map, PLUS_INFINITY, PLUS_INFINITY, ONE_NAN);
    for (size_t i = 0; i < COUNT(nans); i++) {
        check_recovered(255, map, nans[i], 0x3F800000, ONE_NAN);
        check_recovered(127, map, nans[i], 0, ONE_NAN);
        check_recovered(255, map, 0x3F800000, nans[i], ONE_NAN);
        check_recovered(255, map, nans[i], nans[COUNT(nans) - 1 - i], ONE_NAN);
        map[9] = nans[i];
        check_recovered(9, map, 0, 0x3F800000, ONE_NAN);
    }
}

/* The offset is stored: of blocks without numbers, whose absmax are negative, and infinite. */
static void
test_mean(void)
{
    enum { MOST = 40000 };
    static const uint64_t counts[] = { 2, 3, 700, 2048, 5000, MOST };
    float *const values = calloc(MOST, sizeof *values);
    float *const partial = calloc(berthi_mean_scratch(MOST, 0, 0), sizeof *partial);

    for (size_t c = 0; c < COUNT(counts); c++) {
        berthi_mean_arguments a = { .values = values, .count = counts[c],
                                    .partial = partial, .add_rows = level.add_mean_rows };

        for (size_t i = 0; i < COUNT(nans); i++) {
            values[counts[c] / 2] = berthi_core_float(nans[i]);
            CHECK_EQ(berthi_core_bits(berthi_mean(&a)), ONE_NAN);
        }
        values[counts[c] / 2] = berthi_core_float(PLUS_INFINITY);
        CHECK_EQ(berthi_core_bits(berthi_mean(&a)), PLUS_INFINITY);
        values[0] = berthi_core_float(MINUS_INFINITY);
        CHECK_EQ(berthi_core_bits(berthi_mean(&a)), ONE_NAN);
        values[0] = values[counts[c] / 2] = 0.0f;
    }
    free(values);
    free(partial);
}

/* ----------------------------------------------------------------------- LLM.int8() */

static void
check_rows(uint64_t columns, int32_t dtype, uint32_t special)
{
    enum { ROWS = 3, MOST = 200 };
    static int8_t codes[ROWS * MOST];
    static uint32_t out[ROWS * MOST];
    const float maxima[ROWS] = { 1.0f, berthi_core_float(special), 2.0f };

    for (uint64_t i = 0; i < ROWS * columns; i++)
        codes[i] = (int8_t)(i % 5 == 0 ? 0 : i * 7 % 255 - 127);
    level.decode_rows(&(berthi_rows_decode_arguments){ codes, maxima, ROWS, columns, dtype,
                                                       out });
    for (uint64_t i = 0; i < columns; i++) {
        const uint32_t code = berthi_core_bits((float)codes[columns + i]);

        if (!CHECK_EQ(stored_bits(out, dtype, columns + i),
                      bits_of(product_bits(code, special), dtype))) {
            T_NOTE("column %u of %u, maximum %08x, dtype %d", (unsigned)i, (unsigned)columns,
                   special, dtype);
            break;
        }
    }
}

static void
test_rows(void)
{
    static const uint64_t columns[] = { 1, 31, 32, 100, 200 };

    for (size_t d = 0; d < COUNT(dtypes); d++)
        for (size_t c = 0; c < COUNT(columns); c++) {
            for (size_t i = 0; i < COUNT(nans); i++)
                check_rows(columns[c], dtypes[d], nans[i]);
            check_rows(columns[c], dtypes[d], PLUS_INFINITY);
        }
}

/* Four outputs, of which the first is 0 times the maxima, with outlier columns or without. */
static void
check_outputs(float input_maximum, float weight_maximum, uint16_t bias, bool has_outliers,
              int32_t dtype, uint32_t first, uint32_t others)
{
    static const int32_t sums[4] = { 0, 1, 77, INT32_MAX };
    static const int8_t weights[8] = { 0, 1, 0, 1, 0, 1, 0, 1 };
    const float maxima[4] = { weight_maximum, weight_maximum, weight_maximum, weight_maximum };
    const uint16_t biases[4] = { bias, bias, bias, bias };
    uint32_t inputs[2] = { 0, 0 };
    uint32_t mask = 1;
    uint32_t out[4];

    berthi_int8_output_run(&(berthi_int8_output_task){
        .sums = sums, .input_maximum = &input_maximum, .weight_maximum = maxima,
        .bias = biases, .outputs = out, .dtype = dtype, .count = 1, .rows = 4,
        .outliers = { .mask = has_outliers ? &mask : NULL }, .weights = weights,
        .inputs = inputs, .columns = 2 });
    for (uint32_t i = 0; i < 4; i++)
        if (!CHECK_EQ(stored_bits(out, dtype, i), bits_of(i == 0 ? first : others, dtype)))
            T_NOTE("output %u, dtype %d, outliers %d", i, dtype, has_outliers);
}

static void
test_outputs(void)
{
    const float infinite = berthi_core_float(PLUS_INFINITY);

    for (size_t d = 0; d < COUNT(dtypes); d++) {
        check_outputs(infinite, 1.0f, 0, false, dtypes[d], ONE_NAN, PLUS_INFINITY);
        check_outputs(1.0f, infinite, 0, false, dtypes[d], ONE_NAN, PLUS_INFINITY);
        check_outputs(1.0f, infinite, 0xFC00, false, dtypes[d], ONE_NAN, ONE_NAN);
        /* The weights' own maximum is that of what the outlier columns add, too. */
        check_outputs(1.0f, infinite, 0, true, dtypes[d], ONE_NAN, ONE_NAN);
        check_outputs(infinite, 1.0f, 0, true, dtypes[d], ONE_NAN, PLUS_INFINITY);
        for (uint32_t i = 0; i < 2 * COUNT(nans); i++) {
            const float nan = berthi_core_float(nans[i / 2]);
            const bool has_outliers = i % 2 == 1;

            check_outputs(nan, 1.0f, 0, has_outliers, dtypes[d], ONE_NAN, ONE_NAN);
            check_outputs(1.0f, nan, 0, has_outliers, dtypes[d], ONE_NAN, ONE_NAN);
            check_outputs(1.0f, 1.0f, (uint16_t)(0x7C01u + i * 0x33u), has_outliers,
                          dtypes[d], ONE_NAN, ONE_NAN);
            check_outputs(1.0f, 1.0f, (uint16_t)(0xFC01u + i * 0x33u), has_outliers,
                          dtypes[d], ONE_NAN, ONE_NAN);
        }
    }
}

/* -------------------------------------------------------------------------- sources */

typedef void source_function(const berthi_source_arguments *arguments);

#define SOURCE_ROWS 40u
#define SOURCE_COLUMNS 64u

/* All codes are the same, and under the same scale. */
static void
check_source(source_function *decode, uint8_t code, uint32_t block_columns, uint32_t scale,
             int32_t dtype, uint32_t expected)
{
    static uint8_t codes[SOURCE_ROWS * SOURCE_COLUMNS];
    static uint32_t out[SOURCE_ROWS * SOURCE_COLUMNS];
    float scales[SOURCE_ROWS * SOURCE_COLUMNS / 32];

    memset(codes, code, sizeof codes);
    for (uint32_t i = 0; i < COUNT(scales); i++)
        scales[i] = berthi_core_float(scale);
    decode(&(berthi_source_arguments){
        .codes = codes, .scales = scales, .scale_dtype = BERTH_F32, .rows = SOURCE_ROWS,
        .columns = SOURCE_COLUMNS, .block_rows = block_columns == 32 ? 1 : 100,
        .block_columns = block_columns, .scale_columns = SOURCE_COLUMNS / block_columns,
        .dtype = dtype, .values = out });
    for (uint32_t i = 0; i < SOURCE_ROWS * SOURCE_COLUMNS; i++)
        if (!CHECK_EQ(stored_bits(out, dtype, i), bits_of(expected, dtype))) {
            T_NOTE("value %u of code %02x, scale %08x, dtype %d", i, code, scale, dtype);
            break;
        }
}

/* Blocks of 32 columns and one row, or of 64 and all rows: by the table. */
static void
check_sources(source_function *decode, uint8_t zero, uint8_t two, uint8_t minus_two)
{
    for (size_t d = 0; d < COUNT(dtypes); d++)
        for (uint32_t wide = 32; wide <= 64; wide *= 2) {
            check_source(decode, zero, wide, PLUS_INFINITY, dtypes[d], ONE_NAN);
            check_source(decode, two, wide, PLUS_INFINITY, dtypes[d], PLUS_INFINITY);
            check_source(decode, minus_two, wide, PLUS_INFINITY, dtypes[d], MINUS_INFINITY);
            for (size_t i = 0; i < COUNT(nans); i++) {
                check_source(decode, zero, wide, nans[i], dtypes[d], ONE_NAN);
                check_source(decode, two, wide, nans[i], dtypes[d], ONE_NAN);
                check_source(decode, minus_two, wide, nans[i], dtypes[d], ONE_NAN);
            }
        }
}

static void
test_sources(void)
{
    check_sources(berthi_decode_e4m3, 0x00, 0x40, 0xC0);
    for (size_t d = 0; d < COUNT(dtypes); d++)
        for (uint32_t wide = 32; wide <= 64; wide *= 2) {
            check_source(berthi_decode_e4m3, 0x7F, wide, 0x3F800000, dtypes[d], ONE_NAN);
            check_source(berthi_decode_e4m3, 0xFF, wide, 0x3F800000, dtypes[d], ONE_NAN);
            check_source(berthi_decode_e4m3, 0xFF, wide, 0x00000000, dtypes[d], ONE_NAN);
        }
    check_sources(level.decode_e2m1, 0x00, 0x44, 0xCC);
    check_sources(level.decode_mxfp4, 0x00, 0x44, 0xCC);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_arithmetic);
    T_RUN(test_outputs);
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        if (!berthi_cpu_has_level((berthi_cpu_level)i))
            continue;
        level = berthi_level_operations((berthi_cpu_level)i);
        T_NOTE("level %s", level.level);
        T_RUN(test_blocks);
        T_RUN(test_maps);
        T_RUN(test_recovered_absmax);
        T_RUN(test_mean);
        T_RUN(test_rows);
        T_RUN(test_sources);
    }
    T_MAIN_END;
}
