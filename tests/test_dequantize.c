/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequantize.c - random pieces of bitsandbytes' encodings and of plain
 * numbers against the arithmetic of core.h, value by value; statistics in all
 * their forms; what cannot be decoded.
 */
#include "quant/dequantize.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/made.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

static uint64_t
divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

/* ----------------------------------------------------------------------- 4-bit */

static uint32_t
nibble(const uint8_t *bytes, uint64_t i)
{
    return i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15u;
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
    return value_4bit(m, i, made_number(&m->companions[0], i / m->record.block_size));
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
    const float absmax2 = made_number(&m->companions[1], block / 256);
    const float product =
        berthi_core_flush(berthi_core_float(map[codes[block]]) * absmax2);
    const int32_t dtype = m->record.nested_dtype;
    const float sum = rounded(dtype, product) + (float)m->record.offset;

    return value_4bit(m, i, rounded(dtype, sum));
}

static float
oracle_transposed(const made *m, uint64_t i)
{
    const uint64_t row = i / m->shape[1];
    const uint64_t k = i % m->shape[1] / m->record.block_size;

    return value_4bit(m, i, made_number(&m->companions[0], k * m->shape[0] + row));
}

static void
make_4bit(made *m, int32_t encoding, uint64_t shape, uint32_t block)
{
    made_begin(m, encoding, 3, made_shapes[shape]);
    m->record.block_size = block;
    m->bytes = made_bytes(divide_up(m->record.elements, 2), shape);
}

static void
check_4bit(int32_t encoding)
{
    for (uint64_t i = 0; i < MADE_SHAPES; i++)
        for (uint32_t block = 32; block <= 4096; block *= block < 128 ? 2 : 8) {
            made m;

            make_4bit(&m, encoding, i, block);
            made_companion(&m, 0, BERTH_F32, divide_up(m.record.elements, block));
            made_check(&m, oracle_4bit);
            made_end(&m);
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
    made_companion(m, 0, BERTH_U8, blocks);
    made_companion(m, 1, BERTH_F32, divide_up(blocks, 256));
    memcpy(map, berthi_signed_map, sizeof map);
    map[0] = 0xBF800000; /* -1, as some files have it: the stored table counts */
    m->companions[2] = (berthi_companion){ weights_alloc(sizeof map), sizeof map,
                                           BERTH_F32 };
    memcpy((void *)(uintptr_t)m->companions[2].bytes, map, sizeof map);
}

static void
test_double(void)
{
    for (uint64_t i = 0; i < MADE_SHAPES; i++)
        for (int k = 0; k < 3; k++) {
            berthi_decoder d;
            made m;

            make_double(&m, i, made_dtypes[k]);
            made_check(&m, oracle_double);
            d = made_decoder(&m, weights_level(0));
            CHECK_EQ(berthi_decoder_companions(&d), 3);
            CHECK_EQ(berthi_decoder_statistics_bytes(&d),
                     divide_up(m.record.elements, 32) * 4);
            made_end(&m);
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

    made_begin(&m, BERTH_ENCODING_NF4, 2, shape);
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

        made_begin(&m, BERTH_ENCODING_FP4, 2, dims[i]);
        m.record.block_size = 32;
        m.record.is_transposed_absmax = true;
        m.bytes = made_bytes(m.record.elements / 2, 3);
        made_companion(&m, 0, BERTH_BF16, m.record.elements / 32);
        made_check(&m, oracle_transposed);
        d = made_decoder(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_companions(&d), 1);
        CHECK_EQ(berthi_decoder_statistics_bytes(&d), m.record.elements / 32 * 4);
        made_end(&m);
    }
}

/* ------------------------------------------------------------------------ int8 */

static float
oracle_int8(const made *m, uint64_t i)
{
    return berthi_core_int8_value((int8_t)m->bytes[i],
                                  made_number(&m->companions[0], i / m->shape[1]));
}

static void
test_int8(void)
{
    for (uint64_t i = 0; i < MADE_SHAPES; i++) {
        berthi_decoder d;
        made m;

        made_begin(&m, BERTH_ENCODING_INT8, 2, made_shapes[i] + 1);
        m.bytes = made_bytes(m.record.elements, i);
        made_companion(&m, 0, BERTH_F32, m.shape[0]);
        made_check(&m, oracle_int8);
        d = made_decoder(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_companions(&d), 1);
        CHECK_EQ(berthi_decoder_statistics_bytes(&d), 0);
        CHECK_EQ(berthi_decoder_lead_max(&d), 0);
        made_end(&m);
    }
}

/* ---------------------------------------------------------------------- native */

static void
check_native(int32_t stored, uint64_t count)
{
    uint8_t *const bytes = made_bytes(count * 4, 8);

    for (int k = 0; k < 3; k++) {
        void *const expected = weights_alloc(count * 4);
        berthi_decoder d;
        void *got;

        CHECK(berthi_decoder_can_init_native(&d, stored, count));
        CHECK_EQ(berthi_decoder_companions(&d), 0);
        CHECK_EQ(berthi_decoder_statistics_bytes(&d), 0);
        CHECK(berthi_decoder_can_prepare(&d, NULL, NULL));
        for (uint64_t i = 0; i < count; i++)
            berthi_core_store(expected, made_dtypes[k], i,
                              stored == BERTH_F8_E4M3
                                  ? berthi_core_from_e4m3(bytes[i])
                                  : berthi_core_load(bytes, stored, i));
        got = weights_decode(&d, bytes, made_dtypes[k], 3);
        CHECK(vectors_are_same(got, expected, count, made_dtypes[k]));
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

    made_begin(&m, encoding, rank, shape);
    m.record.block_size = block;
    m.record.block_columns = block;
    CHECK_EQ(berthi_decoder_is_there(&m.record), berthi_decoder_can_init(&d, NULL, &m.record));
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
        berthi_decoder d = made_decoder(m, weights_level(0));

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
    made_end(m);
}

static void
test_companions_that_do_not_fit(void)
{
    const uint64_t shape[] = { 4, 64, 3 };
    made m;

    make_double(&m, 3, BERTH_F32);
    check_misfits(&m, 3, BERTH_I32);
    make_4bit(&m, BERTH_ENCODING_FP4, 3, 32);
    made_companion(&m, 0, BERTH_F32, 128);
    check_misfits(&m, 1, BERTH_I32);
    made_begin(&m, BERTH_ENCODING_NF4, 2, shape);
    m.record.block_size = 32;
    m.record.is_transposed_absmax = true;
    made_companion(&m, 0, BERTH_BF16, 8);
    check_misfits(&m, 1, BERTH_F16);
    made_begin(&m, BERTH_ENCODING_INT8, 2, shape);
    made_companion(&m, 0, BERTH_F32, 4);
    check_misfits(&m, 1, BERTH_I32);
    made_begin(&m, BERTH_ENCODING_FP8_BLOCK, 3, shape);
    m.record.block_size = 32;
    m.record.block_columns = 2;
    made_companion(&m, 0, BERTH_F32, 4 * 2 * 2);
    check_misfits(&m, 1, BERTH_I32);
    made_begin(&m, BERTH_ENCODING_MXFP4, 3, shape);
    m.record.block_size = 32;
    made_companion(&m, 0, BERTH_U8, 24);
    check_misfits(&m, 1, BERTH_I8);
    /* One scale for all is a thing of 8-bit floats only. */
    made_begin(&m, BERTH_ENCODING_FP4_PACKED, 2, shape);
    m.record.block_size = 32;
    made_companion(&m, 0, BERTH_F8_E8M0, 8);
    m.companions[0].size = 1;
    CHECK(berthi_decoder_can_init(&(berthi_decoder){ .elements = 0 }, NULL, &m.record));
    {
        berthi_decoder d;

        berthi_decoder_can_init(&d, NULL, &m.record);
        CHECK(!berthi_decoder_can_prepare(&d, m.companions, NULL));
    }
    made_end(&m);
}

/* A copy that ends where its memory does; to be freed. */
static void *
slice(const void *from, uint64_t begin, uint64_t bytes)
{
    void *const memory = weights_alloc(bytes);

    memcpy(memory, (const uint8_t *)from + begin, bytes);
    return memory;
}

/* What a device is asked for a piece reads no byte more than the part, and is the piece. */
static void
check_requested(const berthi_decoder *d, const made *m, uint64_t first, uint64_t count)
{
    const berthi_quantized_part part = berthi_decoder_part(d, first, count);
    const berthi_quantized_part most = berthi_decoder_most(d, count);
    const uint64_t bytes = (count + berthi_decoder_extent(d, first, count).lead) * 4;
    void *const codes = slice(m->bytes, part.begin, part.bytes);
    float *const maxima = slice(d->absmax, part.first_maximum * 4, part.maxima * 4);
    void *const expected = weights_alloc(bytes);
    void *const got = weights_alloc(bytes);
    berthi_request request;

    CHECK_LE(part.bytes, most.bytes);
    CHECK_LE(part.maxima, most.maxima);
    berthi_decoder_decode(d, first, count, codes, BERTH_F32, expected);
    berthi_decoder_request(d, first, count, codes, maxima, BERTH_F32, got, &request);
    berthi_operation_run(d->operations, &request);
    CHECK_MEM(got, expected, bytes);
    free(codes);
    free(maxima);
    free(expected);
    free(got);
}

static void
check_requests(made *m)
{
    const berthi_decoder d = made_decoder(m, weights_level(0));
    const uint64_t elements = m->record.elements;
    uint64_t state = 3;

    CHECK(berthi_decoder_has_request(&d));
    for (int i = 0; i < 50 && elements > 0; i++) {
        const uint64_t first = weights_random(&state) % elements;

        check_requested(&d, m, first, 1 + weights_random(&state) % (elements - first));
    }
    if (elements > 0)
        check_requested(&d, m, 0, elements);
    CHECK_EQ(berthi_decoder_part(&d, 0, 0).maxima, 0);
}

static void
test_requests(void)
{
    berthi_decoder d;

    for (uint64_t i = 0; i < MADE_SHAPES; i++) {
        made m;

        make_double(&m, i, BERTH_BF16); /* prepared, it is as any other */
        check_requests(&m);
        made_end(&m);
        make_4bit(&m, BERTH_ENCODING_FP4, i, 64);
        made_companion(&m, 0, BERTH_F32, divide_up(m.record.elements, 64));
        check_requests(&m);
        made_end(&m);
        made_begin(&m, BERTH_ENCODING_INT8, 2, made_shapes[i] + 1);
        m.bytes = made_bytes(m.record.elements, i);
        made_companion(&m, 0, BERTH_F32, m.shape[0]);
        check_requests(&m);
        made_end(&m);
    }
    CHECK(berthi_decoder_can_init_native(&d, BERTH_F32, 30));
    CHECK(!berthi_decoder_has_request(&d));
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

        made_begin(&m, encodings[i], 2, shape);
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

    made_begin(&m, BERTH_ENCODING_NF4, 2, shape);
    m.record.block_size = 64;
    CHECK(berthi_decoder_can_init(&d, NULL, &m.record));
    check_span(&d, 0, 1, (berthi_decoder_span){ 0, 1, 0 });
    check_span(&d, 1, 1, (berthi_decoder_span){ 0, 1, 1 });
    check_span(&d, 7, 6, (berthi_decoder_span){ 3, 4, 1 });
    check_span(&d, 8, 5, (berthi_decoder_span){ 4, 3, 0 });
    made_begin(&m, BERTH_ENCODING_FP4_PACKED, 2, shape);
    m.record.block_size = 3;
    CHECK(berthi_decoder_can_init(&d, NULL, &m.record));
    check_span(&d, 6, 6, (berthi_decoder_span){ 3, 3, 0 });
    check_span(&d, 11, 2, (berthi_decoder_span){ 3, 4, 5 });
    CHECK(berthi_decoder_can_init_native(&d, BERTH_F32, 30));
    check_span(&d, 7, 6, (berthi_decoder_span){ 28, 24, 0 });
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
    T_RUN(test_native);
    T_RUN(test_encodings_without_arithmetic);
    T_RUN(test_companions_that_do_not_fit);
    T_RUN(test_requests);
    T_RUN(test_nothing);
    T_RUN(test_extents);
    T_MAIN_END;
}
