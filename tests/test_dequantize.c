/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequantize.c - random pieces of every encoding against the arithmetic
 * of core.h, value by value; statistics in all their forms; recorded sources.
 */
#include "quant/dequantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

static const int32_t numbers[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* A stored weight made up here. */
typedef struct made {
    berthi_quantized record;
    uint64_t shape[4];
    uint8_t *bytes; /* of the weight */
    berthi_companion companions[3];
    void *memory;   /* of the prepared statistics */
} made;

/* What value i is before it is rounded to the wanted dtype. */
typedef float oracle_function(const made *m, uint64_t i);

static uint64_t
divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static uint8_t *
random_bytes(uint64_t count, uint64_t seed)
{
    uint8_t *const bytes = weights_alloc(count);
    uint64_t state = seed + 77;

    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)weights_random(&state);
    return bytes;
}

static void
begin(made *m, int32_t encoding, uint32_t rank, const uint64_t *shape)
{
    memset(m, 0, sizeof *m);
    m->record.encoding = (int16_t)encoding;
    m->record.rank = (uint8_t)rank;
    m->record.shape = m->shape;
    m->record.elements = 1;
    for (uint32_t i = 0; i < rank; i++) {
        m->shape[i] = shape[i];
        m->record.elements *= shape[i];
    }
}

/* `count` random values of a dtype, as companion i. */
static void
add_companion(made *m, uint32_t i, int32_t dtype, uint64_t count)
{
    const bool is_number = berthi_stored_is_number(dtype);

    m->companions[i].dtype = dtype;
    m->companions[i].size = count * (berth_dtype_bits(dtype) / 8);
    m->companions[i].bytes = is_number ? weights_values(dtype, count, i + 5, false)
                                       : random_bytes(count, i + 5);
}

static void
end(made *m)
{
    free(m->bytes);
    free(m->memory);
    for (int i = 0; i < 3; i++)
        free((void *)(uintptr_t)m->companions[i].bytes);
}

static berthi_decoder
decoder_of(made *m, const berthi_operations *operations)
{
    berthi_decoder d;

    CHECK(berthi_decoder_can_init(&d, operations, &m->record));
    free(m->memory);
    m->memory = weights_alloc(berthi_decoder_statistics_bytes(&d));
    CHECK(berthi_decoder_can_prepare(&d, m->companions, m->memory));
    return d;
}

/* All levels, dtypes, some divisions: the oracle's values. */
static void
check_decoded(made *m, oracle_function *oracle)
{
    const uint64_t count = m->record.elements;

    for (uint32_t i = 0; weights_level(i) != NULL; i++)
        for (int k = 0; k < 3; k++) {
            const berthi_decoder d = decoder_of(m, weights_level(i));
            const uint64_t bytes = count * (berth_dtype_bits(numbers[k]) / 8);
            void *const expected = weights_alloc(bytes);

            for (uint64_t at = 0; at < count; at++)
                berthi_core_store(expected, numbers[k], at, oracle(m, at));
            for (uint64_t seed = 0; seed < 4; seed++) {
                void *const got = weights_decode(&d, m->bytes, numbers[k], seed + i);

                if (!CHECK(vectors_are_same(got, expected, count, numbers[k])))
                    T_NOTE("%s, encoding %d, shape %llux%llu", weights_level(i)->level,
                           m->record.encoding, (unsigned long long)m->shape[0],
                           (unsigned long long)m->shape[1]);
                free(got);
            }
            free(expected);
        }
}

/* ----------------------------------------------------------------------- 4-bit */

static uint32_t
nibble(const uint8_t *bytes, uint64_t i)
{
    return i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15u;
}

static float
number_of(const berthi_companion *companion, uint64_t i)
{
    return berthi_core_load(companion->bytes, companion->dtype, i);
}

static float
value_4bit(const made *m, uint64_t i, float absmax)
{
    const uint32_t code = nibble(m->bytes, i);

    return m->record.encoding == BERTH_ENCODING_NF4 ? berthi_core_nf4_value(code, absmax)
                                                    : berthi_core_fp4_value(code, absmax);
}

static float
oracle_4bit(const made *m, uint64_t i)
{
    return value_4bit(m, i, number_of(&m->companions[0], i / m->record.block_size));
}

static float
rounded(int32_t dtype, float value)
{
    uint32_t cell;

    berthi_core_store(&cell, dtype, 0, value);
    return berthi_core_load(&cell, dtype, 0);
}

static float
oracle_double(const made *m, uint64_t i)
{
    const uint64_t block = i / m->record.block_size;
    const uint8_t *const codes = m->companions[0].bytes;
    const uint32_t *const map = m->companions[2].bytes;
    const float product = berthi_core_flush(
        berthi_core_float(map[codes[block]]) * number_of(&m->companions[1], block / 256));
    const int32_t dtype = m->record.nested_dtype;
    const float sum = rounded(dtype, product) + (float)m->record.offset;

    return value_4bit(m, i, rounded(dtype, sum));
}

static float
oracle_transposed(const made *m, uint64_t i)
{
    const uint64_t row = i / m->shape[1];
    const uint64_t k = i % m->shape[1] / m->record.block_size;

    return value_4bit(m, i, number_of(&m->companions[0], k * m->shape[0] + row));
}

static const uint64_t shapes[][3] = { { 1, 1, 1 },   { 1, 1, 33 }, { 1, 3, 7 },
                                      { 1, 91, 45 }, { 3, 5, 41 }, { 1, 2, 4096 },
                                      { 1, 64, 64 } };

#define SHAPES (sizeof shapes / sizeof *shapes)

static void
make_4bit(made *m, int32_t encoding, uint64_t shape, uint32_t block)
{
    begin(m, encoding, 3, shapes[shape]);
    m->record.block_size = block;
    m->bytes = random_bytes(divide_up(m->record.elements, 2), shape);
}

static void
check_4bit(int32_t encoding)
{
    for (uint64_t i = 0; i < SHAPES; i++)
        for (uint32_t block = 32; block <= 4096; block *= block < 128 ? 2 : 8) {
            made m;

            make_4bit(&m, encoding, i, block);
            add_companion(&m, 0, BERTH_F32, divide_up(m.record.elements, block));
            check_decoded(&m, oracle_4bit);
            end(&m);
        }
}

static void
test_nf4(void)
{
    check_4bit(BERTH_ENCODING_NF4);
}

static void
test_fp4(void)
{
    check_4bit(BERTH_ENCODING_FP4);
}

static void
make_double(made *m, uint64_t shape, int32_t nested_dtype)
{
    uint32_t map[256];
    uint64_t blocks;

    make_4bit(m, BERTH_ENCODING_NF4, shape, 32);
    blocks = divide_up(m->record.elements, 32);
    m->record.is_double = true;
    m->record.nested_dtype = (int16_t)nested_dtype;
    m->record.offset = (double)0.0123456f;
    add_companion(m, 0, BERTH_U8, blocks);
    add_companion(m, 1, BERTH_F32, divide_up(blocks, 256));
    memcpy(map, berthi_signed_map, sizeof map);
    map[0] = 0xBF800000; /* -1, as some files have it: the stored table counts */
    m->companions[2] = (berthi_companion){ weights_alloc(sizeof map), sizeof map,
                                           BERTH_F32 };
    memcpy((void *)(uintptr_t)m->companions[2].bytes, map, sizeof map);
}

static void
test_double(void)
{
    for (uint64_t i = 0; i < SHAPES; i++)
        for (int k = 0; k < 3; k++) {
            berthi_decoder d;
            made m;

            make_double(&m, i, numbers[k]);
            check_decoded(&m, oracle_double);
            d = decoder_of(&m, weights_level(0));
            CHECK_EQ(berthi_decoder_companions(&d), 3);
            CHECK_EQ(berthi_decoder_statistics_bytes(&d),
                     divide_up(m.record.elements, 32) * 4);
            end(&m);
        }
}

/* Product and sum are rounded each, the published example: fused it ends in e. */
static void
test_double_rounds_twice(void)
{
    const uint8_t code = 47;
    const float absmax2 = 3.0f;
    const uint64_t shape[] = { 1, 2 };
    const uint8_t packed = 0xF0;
    float values[2];
    berthi_decoder d;
    float absmax;
    made m;

    begin(&m, BERTH_ENCODING_NF4, 2, shape);
    m.record.block_size = 64;
    m.record.is_double = true;
    m.record.nested_dtype = BERTH_F32;
    m.record.offset = 3.0;
    CHECK(berthi_decoder_can_init(&d, weights_level(0), &m.record));
    CHECK(berthi_decoder_can_prepare(
        &d,
        (const berthi_companion[]){ { &(const uint8_t){ 23 }, 1, BERTH_U8 },
                                    { &absmax2, 4, BERTH_F32 },
                                    { berthi_signed_map, 1024, BERTH_F32 } },
        &absmax));
    CHECK_EQ(berthi_core_bits(absmax), 0x3f7dccd0);
    berthi_decoder_decode(&d, 0, 2, &packed, BERTH_F32, values);
    CHECK(values[0] == absmax && values[1] == -absmax);
    CHECK(berthi_decoder_can_prepare(
        &d,
        (const berthi_companion[]){ { &code, 1, BERTH_U8 },
                                    { &absmax2, 4, BERTH_F32 },
                                    { berthi_signed_map, 1024, BERTH_F32 } },
        &absmax));
    CHECK_EQ(berthi_core_bits(absmax), 0x40004000);
}

static void
test_transposed_absmax(void)
{
    static const uint64_t dims[][2] = { { 3, 64 }, { 5, 192 }, { 1, 32 }, { 33, 320 } };

    for (int i = 0; i < 4; i++) {
        berthi_decoder d;
        made m;

        begin(&m, BERTH_ENCODING_FP4, 2, dims[i]);
        m.record.block_size = 32;
        m.record.is_transposed_absmax = true;
        m.bytes = random_bytes(m.record.elements / 2, 3);
        add_companion(&m, 0, BERTH_BF16, m.record.elements / 32);
        check_decoded(&m, oracle_transposed);
        d = decoder_of(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_companions(&d), 1);
        CHECK_EQ(berthi_decoder_statistics_bytes(&d), m.record.elements / 32 * 4);
        end(&m);
    }
}

/* ------------------------------------------------------------------------ int8 */

static float
oracle_int8(const made *m, uint64_t i)
{
    return berthi_core_int8_value((int8_t)m->bytes[i],
                                  number_of(&m->companions[0], i / m->shape[1]));
}

static void
test_int8(void)
{
    for (uint64_t i = 0; i < SHAPES; i++) {
        berthi_decoder d;
        made m;

        begin(&m, BERTH_ENCODING_INT8, 2, shapes[i] + 1);
        m.bytes = random_bytes(m.record.elements, i);
        add_companion(&m, 0, BERTH_F32, m.shape[0]);
        check_decoded(&m, oracle_int8);
        d = decoder_of(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_companions(&d), 1);
        CHECK_EQ(berthi_decoder_statistics_bytes(&d), 0);
        CHECK_EQ(berthi_decoder_lead_max(&d), 0);
        end(&m);
    }
}

/* ------------------------------------------------------------- small floats */

static float
scale_of(const made *m, uint64_t i)
{
    const berthi_companion *const c = &m->companions[0];

    if (c->dtype == BERTH_F8_E8M0 || c->dtype == BERTH_U8)
        return berthi_core_from_e8m0(((const uint8_t *)c->bytes)[i], c->dtype == BERTH_U8);
    return number_of(c, i);
}

/* Three dims: experts, rows, columns. */
static float
oracle_fp8(const made *m, uint64_t i)
{
    const uint64_t rows = m->shape[1];
    const uint64_t columns = m->shape[2];
    const uint64_t grid_rows = divide_up(rows, m->record.block_size);
    const uint64_t grid_columns = divide_up(columns, m->record.block_columns);
    const uint64_t row = i / columns % rows / m->record.block_size;
    const uint64_t column = i % columns / m->record.block_columns;
    const uint64_t expert = i / columns / rows;
    const bool is_single = m->companions[0].size
                           == berth_dtype_bits(m->companions[0].dtype) / 8;

    return berthi_core_from_e4m3(m->bytes[i])
           * scale_of(m, is_single ? 0
                                   : (expert * grid_rows + row) * grid_columns + column);
}

static void
check_fp8(const uint64_t *shape, uint32_t block_rows, uint32_t block_columns,
          int32_t scale_dtype, bool is_single)
{
    made m;

    begin(&m, BERTH_ENCODING_FP8_BLOCK, 3, shape);
    m.record.block_size = block_rows;
    m.record.block_columns = block_columns;
    m.bytes = random_bytes(m.record.elements, 2);
    add_companion(&m, 0, scale_dtype,
                  is_single ? 1
                            : shape[0] * divide_up(shape[1], block_rows)
                                  * divide_up(shape[2], block_columns));
    check_decoded(&m, oracle_fp8);
    end(&m);
}

static void
test_fp8(void)
{
    static const int32_t scales[] = { BERTH_F32, BERTH_BF16, BERTH_F8_E8M0, BERTH_U8 };

    for (uint64_t i = 0; i < SHAPES; i++)
        for (int k = 0; k < 4; k++) {
            const uint64_t *const shape = shapes[i];

            check_fp8(shape, 4, 3, scales[k], false);
            check_fp8(shape, 128, 128, scales[k], false);
            check_fp8(shape, (uint32_t)shape[1], (uint32_t)shape[2], scales[k], true);
            check_fp8(shape, 1, (uint32_t)shape[2], scales[k], false);
        }
}

/* One number for all experts, and one number each. */
static void
test_fp8_experts(void)
{
    const uint64_t shape[] = { 4, 6, 10 };

    check_fp8(shape, 6, 10, BERTH_F32, true);
    check_fp8(shape, 6, 10, BERTH_F32, false);
    check_fp8(shape, 4, 8, BERTH_BF16, false);
}

/* Scalars and vectors with one scale; a block of more than 32 bits is all there is. */
static void
test_fp8_of_low_rank(void)
{
    const float scale = 2.0f;
    const uint8_t bytes[] = { 0x38, 0x40, 0xB8 };
    const uint64_t shape[] = { 3 };

    for (uint32_t rank = 0; rank < 2; rank++) {
        const berthi_companion companion = { &scale, 4, BERTH_F32 };
        float values[3];
        berthi_decoder d;
        made m;

        begin(&m, BERTH_ENCODING_FP8_BLOCK, rank, shape);
        m.record.block_size = 1;
        m.record.block_columns = UINT32_MAX;
        CHECK(berthi_decoder_can_init(&d, NULL, &m.record));
        CHECK_EQ(d.block_columns, rank == 0 ? 1 : 3);
        CHECK(berthi_decoder_can_prepare(&d, &companion, NULL));
        berthi_decoder_decode(&d, 0, d.elements, bytes, BERTH_F32, values);
        CHECK(values[0] == 2.0f);
        CHECK(rank == 0 || (values[1] == 4.0f && values[2] == -2.0f));
    }
}

static uint32_t
low_nibble_first(const uint8_t *bytes, uint64_t i)
{
    return (uint32_t)bytes[i / 2] >> (i % 2 * 4) & 15u;
}

static float
oracle_fp4_packed(const made *m, uint64_t i)
{
    const uint64_t columns = m->shape[m->record.rank - 1];
    const uint64_t groups = columns / m->record.block_size;
    const uint32_t code = low_nibble_first(m->bytes, i);

    return berthi_core_float(berthi_e2m1_values[code])
           * scale_of(m, i / columns * groups + i % columns / m->record.block_size);
}

/* Blocks of any size, odd ones too: there scales begin inside a byte. */
static void
test_fp4_packed(void)
{
    static const struct {
        uint64_t shape[3];
        uint32_t block;
        uint64_t lead_max;
    } cases[] = { { { 1, 5, 64 }, 32, 1 }, { { 2, 3, 6 }, 2, 1 },  { { 2, 3, 6 }, 3, 5 },
                  { { 1, 7, 30 }, 5, 9 },  { { 1, 1, 2 }, 1, 1 },  { { 2, 2, 40 }, 8, 1 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_decoder d;
        made m;

        begin(&m, BERTH_ENCODING_FP4_PACKED, 3, cases[i].shape);
        m.record.block_size = cases[i].block;
        m.bytes = random_bytes(m.record.elements / 2, i);
        add_companion(&m, 0, BERTH_F8_E8M0, m.record.elements / cases[i].block);
        check_decoded(&m, oracle_fp4_packed);
        d = decoder_of(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_lead_max(&d), cases[i].lead_max);
        CHECK_EQ(berthi_decoder_step(&d), 1);
        end(&m);
    }
}

/* Values [E, 32 G, N] of stored rows [E, N, 32 G]. */
static float
oracle_mxfp4(const made *m, uint64_t i)
{
    const uint64_t rows = m->shape[2];
    const uint64_t columns = m->shape[1];
    const uint64_t expert = i / (rows * columns);
    const uint64_t at = (expert * rows + i % rows) * columns + i / rows % columns;

    return berthi_core_float(berthi_e2m1_values[low_nibble_first(m->bytes, at)])
           * scale_of(m, at / 32);
}

static void
test_mxfp4(void)
{
    static const uint64_t dims[][3] = { { 1, 32, 1 }, { 3, 64, 5 }, { 7, 96, 4 } };

    for (int i = 0; i < 3; i++) {
        berthi_decoder d;
        made m;

        begin(&m, BERTH_ENCODING_MXFP4, 3, dims[i]);
        m.record.block_size = 32;
        m.bytes = random_bytes(m.record.elements / 2, 1);
        add_companion(&m, 0, BERTH_U8, m.record.elements / 32);
        check_decoded(&m, oracle_mxfp4);
        d = decoder_of(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_step(&d), dims[i][1] * dims[i][2]);
        CHECK_EQ(berthi_decoder_lead_max(&d), 0);
        end(&m);
    }
}

/* ---------------------------------------------------------------------- native */

static void
check_native(int32_t stored, uint64_t count)
{
    uint8_t *const bytes = random_bytes(count * 4, 8);

    for (int k = 0; k < 3; k++) {
        void *const expected = weights_alloc(count * 4);
        berthi_decoder d;
        void *got;

        CHECK(berthi_decoder_can_init_native(&d, stored, count));
        CHECK_EQ(berthi_decoder_companions(&d), 0);
        CHECK_EQ(berthi_decoder_statistics_bytes(&d), 0);
        CHECK(berthi_decoder_can_prepare(&d, NULL, NULL));
        for (uint64_t i = 0; i < count; i++)
            berthi_core_store(expected, numbers[k], i,
                              stored == BERTH_F8_E4M3
                                  ? berthi_core_from_e4m3(bytes[i])
                                  : berthi_core_load(bytes, stored, i));
        got = weights_decode(&d, bytes, numbers[k], 3);
        CHECK(vectors_are_same(got, expected, count, numbers[k]));
        free(got);
        free(expected);
    }
    free(bytes);
}

static void
test_native(void)
{
    berthi_decoder d;

    check_native(BERTH_BF16, 1000);
    check_native(BERTH_F16, 1000);
    check_native(BERTH_F32, 1000);
    check_native(BERTH_F8_E4M3, 1000);
    CHECK(!berthi_decoder_can_init_native(&d, BERTH_F8_E5M2, 8));
    CHECK(!berthi_decoder_can_init_native(&d, BERTH_F64, 8));
    CHECK(!berthi_decoder_can_init_native(&d, BERTH_I8, 8));
    CHECK(!berthi_decoder_can_init_native(&d, -1, 8));
}

/* --------------------------------------------------------------- what is refused */

static bool
can_init(int32_t encoding, uint32_t rank, const uint64_t *shape, uint32_t block)
{
    berthi_decoder d;
    made m;

    begin(&m, encoding, rank, shape);
    m.record.block_size = block;
    m.record.block_columns = block;
    return berthi_decoder_can_init(&d, NULL, &m.record);
}

static void
test_encodings_without_arithmetic(void)
{
    const uint64_t shape[] = { 2, 64, 4 };
    const uint64_t odd[] = { 2, 33 };

    CHECK(!can_init(BERTH_ENCODING_FOREIGN, 2, shape, 64));
    CHECK(!can_init(BERTH_ENCODING_STATISTICS, 2, shape, 64));
    CHECK(!can_init(BERTH_ENCODING_NATIVE, 2, shape, 64));
    CHECK(can_init(BERTH_ENCODING_NF4, 2, shape, 64));
    CHECK(!can_init(BERTH_ENCODING_NF4, 2, shape, 63));
    CHECK(!can_init(BERTH_ENCODING_FP4, 2, shape, 0));
    CHECK(can_init(BERTH_ENCODING_INT8, 2, shape, 0));
    CHECK(!can_init(BERTH_ENCODING_INT8, 3, shape, 0));
    CHECK(can_init(BERTH_ENCODING_FP8_BLOCK, 2, shape, 0));
    CHECK(can_init(BERTH_ENCODING_FP4_PACKED, 2, shape, 32));
    CHECK(!can_init(BERTH_ENCODING_FP4_PACKED, 2, odd, 3));
    CHECK(can_init(BERTH_ENCODING_MXFP4, 3, shape, 32));
    CHECK(!can_init(BERTH_ENCODING_MXFP4, 2, shape, 32));
    CHECK(!can_init(BERTH_ENCODING_MXFP4, 3, shape, 48));
    CHECK(!can_init(BERTH_ENCODING_MXFP4, 3, shape, 1));
    CHECK(!can_init(BERTH_ENCODING_MXFP4, 3, shape, 0));
}

/* Each companion in turn of another size or dtype. */
static void
check_misfits(made *m, uint32_t count, int32_t other_dtype)
{
    for (uint32_t i = 0; i < count; i++) {
        berthi_companion *const c = &m->companions[i];
        const berthi_companion right = *c;
        berthi_decoder d = decoder_of(m, weights_level(0));

        c->size += berth_dtype_bits(c->dtype) / 8;
        CHECK(!berthi_decoder_can_prepare(&d, m->companions, m->memory));
        *c = right;
        c->size -= berth_dtype_bits(c->dtype) / 8;
        CHECK(!berthi_decoder_can_prepare(&d, m->companions, m->memory));
        *c = right;
        c->dtype = other_dtype;
        CHECK(!berthi_decoder_can_prepare(&d, m->companions, m->memory));
        *c = right;
        CHECK(berthi_decoder_can_prepare(&d, m->companions, m->memory));
    }
    end(m);
}

static void
test_companions_that_do_not_fit(void)
{
    const uint64_t shape[] = { 4, 64, 3 };
    made m;

    make_double(&m, 3, BERTH_F32);
    check_misfits(&m, 3, BERTH_I32);
    make_4bit(&m, BERTH_ENCODING_FP4, 3, 32);
    add_companion(&m, 0, BERTH_F32, 128);
    check_misfits(&m, 1, BERTH_I32);
    begin(&m, BERTH_ENCODING_NF4, 2, shape);
    m.record.block_size = 32;
    m.record.is_transposed_absmax = true;
    add_companion(&m, 0, BERTH_BF16, 8);
    check_misfits(&m, 1, BERTH_F16);
    begin(&m, BERTH_ENCODING_INT8, 2, shape);
    add_companion(&m, 0, BERTH_F32, 4);
    check_misfits(&m, 1, BERTH_I32);
    begin(&m, BERTH_ENCODING_FP8_BLOCK, 3, shape);
    m.record.block_size = 32;
    m.record.block_columns = 2;
    add_companion(&m, 0, BERTH_F32, 4 * 2 * 2);
    check_misfits(&m, 1, BERTH_I32);
    begin(&m, BERTH_ENCODING_MXFP4, 3, shape);
    m.record.block_size = 32;
    add_companion(&m, 0, BERTH_U8, 24);
    check_misfits(&m, 1, BERTH_I8);
    /* One scale for all is a thing of 8-bit floats only. */
    begin(&m, BERTH_ENCODING_FP4_PACKED, 2, shape);
    m.record.block_size = 32;
    add_companion(&m, 0, BERTH_F8_E8M0, 8);
    m.companions[0].size = 1;
    CHECK(berthi_decoder_can_init(&(berthi_decoder){ .elements = 0 }, NULL, &m.record));
    {
        berthi_decoder d;

        berthi_decoder_can_init(&d, NULL, &m.record);
        CHECK(!berthi_decoder_can_prepare(&d, m.companions, NULL));
    }
    end(&m);
}

/* Nothing wanted, nothing read; a weight without values can be asked everything. */
static void
test_nothing(void)
{
    static const int32_t encodings[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8,
                                         BERTH_ENCODING_FP8_BLOCK,
                                         BERTH_ENCODING_FP4_PACKED };
    const uint64_t shape[] = { 4, 0 };

    for (int i = 0; i < 4; i++) {
        berthi_decoder_span span;
        berthi_decoder d;
        made m;

        begin(&m, encodings[i], 2, shape);
        m.record.block_size = 64;
        CHECK(berthi_decoder_can_init(&d, weights_level(0), &m.record));
        span = berthi_decoder_extent(&d, 0, 0);
        CHECK_EQ(span.bytes + span.lead + span.begin, 0);
        berthi_decoder_decode(&d, 0, 0, NULL, BERTH_F32, NULL);
    }
}

static void
check_span(const berthi_decoder *d, uint64_t first, uint64_t count,
           berthi_decoder_span expected)
{
    const berthi_decoder_span span = berthi_decoder_extent(d, first, count);

    CHECK_EQ(span.begin, expected.begin);
    CHECK_EQ(span.bytes, expected.bytes);
    CHECK_EQ(span.lead, expected.lead);
}

static void
test_extents(void)
{
    const uint64_t shape[] = { 5, 6 };
    berthi_decoder d;
    made m;

    begin(&m, BERTH_ENCODING_NF4, 2, shape);
    m.record.block_size = 64;
    CHECK(berthi_decoder_can_init(&d, NULL, &m.record));
    check_span(&d, 0, 1, (berthi_decoder_span){ 0, 1, 0 });
    check_span(&d, 1, 1, (berthi_decoder_span){ 0, 1, 1 });
    check_span(&d, 7, 6, (berthi_decoder_span){ 3, 4, 1 });
    check_span(&d, 8, 5, (berthi_decoder_span){ 4, 3, 0 });
    begin(&m, BERTH_ENCODING_FP4_PACKED, 2, shape);
    m.record.block_size = 3;
    CHECK(berthi_decoder_can_init(&d, NULL, &m.record));
    check_span(&d, 6, 6, (berthi_decoder_span){ 3, 3, 0 });
    check_span(&d, 11, 2, (berthi_decoder_span){ 3, 4, 5 });
    CHECK(berthi_decoder_can_init_native(&d, BERTH_F32, 30));
    check_span(&d, 7, 6, (berthi_decoder_span){ 28, 24, 0 });
}

/* ------------------------------------------------------------ recorded sources */

#define TRIMMED "tests/data/sources.safetensors"
#define FULL "../shared/golden/quant/vectors_sources.safetensors"

static int32_t source_encoding;

/* A recorded weight with its scales against its recorded values. */
static void
check_source(const vectors *v, const char *prefix, const char *weight, const char *scales,
             const char *values, int32_t dtype)
{
    const berthi_entry *const w = vectors_find(v, prefix, weight);
    const berthi_entry *const s = vectors_find(v, prefix, scales);
    const berthi_entry *const x = vectors_find(v, prefix, values);
    uint64_t shape[BERTH_MAX_RANK];
    berthi_companion companion;
    berthi_decoder d;
    void *got;
    made m;

    if (x == NULL)
        return;
    T_REQUIRE(w != NULL && s != NULL);
    berthi_entry_shape(v->header.text, x, shape);
    begin(&m, source_encoding, x->rank, shape);
    m.record.block_size = source_encoding == BERTH_ENCODING_FP8_BLOCK ? 128 : 32;
    if (shape[0] == 16) /* trimmed to eight rows on either side of a border */
        m.record.block_size = 8;
    m.record.block_columns = 128;
    companion = (berthi_companion){ vectors_data(v, s), s->end - s->begin, s->dtype };
    CHECK(berthi_decoder_can_init(&d, weights_level(0), &m.record));
    T_REQUIRE(berthi_decoder_can_prepare(&d, &companion, NULL));
    for (uint64_t seed = 0; seed < 6; seed++) {
        got = weights_decode(&d, vectors_data(v, w), dtype, seed);
        if (!CHECK(vectors_are_same(got, vectors_data(v, x), d.elements, dtype)))
            T_NOTE("%s.%s", prefix, values);
        free(got);
    }
}

static void
check_weight(const vectors *v, const char *prefix)
{
    source_encoding = strncmp(prefix, "fp8", 3) == 0 ? BERTH_ENCODING_FP8_BLOCK
                                                     : BERTH_ENCODING_FP4_PACKED;
    check_source(v, prefix, "weight", "weight_scale_inv", "bf16", BERTH_BF16);
    check_source(v, prefix, "weight", "weight_scale_inv", "f32", BERTH_F32);
}

static void
check_sources(const char *path)
{
    vectors v;

    if (!vectors_has_opened(&v, path))
        T_SKIP("the recorded checkpoints are not beside this tree");
    CHECK_EQ(vectors_each(&v, "", "weight", check_weight), 5);
    source_encoding = BERTH_ENCODING_MXFP4;
    check_source(&v, "mxfp4", "gate_up_proj_blocks", "gate_up_proj_scales",
                 "gate_up_proj.bf16", BERTH_BF16);
    vectors_close(&v);
}

static void
test_sources(void)
{
    check_sources(TRIMMED);
}

static void
test_recorded_sources(void)
{
    check_sources(FULL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_nf4);
    T_RUN(test_fp4);
    T_RUN(test_double);
    T_RUN(test_double_rounds_twice);
    T_RUN(test_transposed_absmax);
    T_RUN(test_int8);
    T_RUN(test_fp8);
    T_RUN(test_fp8_experts);
    T_RUN(test_fp8_of_low_rank);
    T_RUN(test_fp4_packed);
    T_RUN(test_mxfp4);
    T_RUN(test_native);
    T_RUN(test_encodings_without_arithmetic);
    T_RUN(test_companions_that_do_not_fit);
    T_RUN(test_nothing);
    T_RUN(test_extents);
    T_RUN(test_sources);
    T_RUN(test_recorded_sources);
    T_MAIN_END;
}
