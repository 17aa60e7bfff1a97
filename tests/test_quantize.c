/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quantize.c - pieces in any order against the whole weight at once by
 * the reference loops, at every level; casts, counts, transposition.
 */
#include "quant/quantize.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

static const int32_t numbers[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

#define GUARD 0xA5

static berthi_quantizer
quantizer_of(const berthi_operations *operations, const berthi_storage *storage,
             uint64_t rows, uint64_t columns)
{
    const uint64_t shape[] = { rows, columns };
    berthi_quantizer q = { .elements = 0 };

    CHECK(berthi_quantizer_can_init(&q, operations, storage, shape, 2));
    return q;
}

/* -------------------------------------------------------------------- pieces */

/* The whole weight by the reference loops: codes, then maxima. */
static void
encode_plainly(const berthi_quantizer *q, const void *values, uint8_t *codes,
               float *absmax)
{
    const berthi_operations *const scalar = &berthi_scalar_operations;
    const berthi_encode_arguments a = { values, q->storage.dtype, q->storage.block_size,
                                        q->elements, NULL, codes, absmax };

    switch (q->storage.encoding) {
    case BERTH_ENCODING_NF4: scalar->encode_nf4(&a); break;
    case BERTH_ENCODING_FP4: scalar->encode_fp4(&a); break;
    case BERTH_ENCODING_INT8:
        scalar->encode_rows(&(berthi_rows_arguments){ values, q->storage.dtype, q->rows,
                                                      q->columns, (int8_t *)codes,
                                                      absmax });
        break;
    default: memcpy(codes, values, q->elements * berth_dtype_bits(a.dtype) / 8); break;
    }
}

static void
check_cuts(const berthi_storage *storage, uint64_t rows, uint64_t columns, uint64_t seed)
{
    const berthi_quantizer q = quantizer_of(weights_level(0), storage, rows, columns);
    const berthi_quantized_part all = berthi_quantizer_part(&q, 0, q.elements);
    const uint64_t maxima = all.maxima * sizeof(float);
    void *const values = weights_values(storage->dtype, q.elements, seed, seed % 2 == 1);
    uint8_t *const codes = weights_alloc(all.bytes);
    float *const absmax = weights_alloc(maxima);
    uint8_t *const got_codes = weights_alloc(all.bytes);
    float *const got_absmax = weights_alloc(maxima);

    encode_plainly(&q, values, codes, absmax);
    for (uint32_t i = 0; weights_level(i) != NULL; i++) {
        const berthi_quantizer tested = quantizer_of(weights_level(i), storage, rows,
                                                     columns);

        memset(got_codes, GUARD, all.bytes);
        memset(got_absmax, GUARD, maxima);
        weights_encode(&tested, values, got_codes, got_absmax, seed + i);
        if (!CHECK_MEM(got_codes, codes, all.bytes)
            || !CHECK_MEM(got_absmax, absmax, maxima))
            T_NOTE("%s: encoding %d dtype %d block %u, %llux%llu",
                   weights_level(i)->level, storage->encoding, storage->dtype,
                   storage->block_size, (unsigned long long)rows,
                   (unsigned long long)columns);
    }
    free(values);
    free(codes);
    free(absmax);
    free(got_codes);
    free(got_absmax);
}

static const uint64_t shapes[][2] = { { 1, 1 },  { 1, 2 },    { 3, 7 },    { 5, 333 },
                                      { 91, 45 }, { 1, 4097 }, { 130, 64 }, { 4096, 3 },
                                      { 33, 32 }, { 1, 31 },   { 7, 4096 } };

#define SHAPES (sizeof shapes / sizeof *shapes)

static void
check_4bit_cuts(int32_t encoding)
{
    static const uint32_t blocks[] = { 32, 64, 256, 4096 };

    for (uint64_t i = 0; i < SHAPES; i++)
        for (uint64_t b = 0; b < 4; b++)
            for (uint64_t d = 0; d < 3; d++)
                check_cuts(&(berthi_storage){ encoding, numbers[d], BERTH_U8, blocks[b],
                                              false },
                           shapes[i][0], shapes[i][1], i * 31 + b * 7 + d);
}

static void
test_nf4_in_pieces(void)
{
    check_4bit_cuts(BERTH_ENCODING_NF4);
}

static void
test_fp4_in_pieces(void)
{
    check_4bit_cuts(BERTH_ENCODING_FP4);
}

static void
test_int8_in_pieces(void)
{
    for (uint64_t i = 0; i < SHAPES; i++)
        for (uint64_t d = 0; d < 3; d++)
            check_cuts(&(berthi_storage){ BERTH_ENCODING_INT8, numbers[d], 0, 0, false },
                       shapes[i][0], shapes[i][1], i * 5 + d);
}

/* Any dtype is copied, those that share bytes in pairs or fours. */
static void
test_native_in_pieces(void)
{
    static const struct {
        int32_t dtype;
        uint64_t columns;
        uint64_t step;
    } cases[] = { { BERTH_BF16, 333, 1 }, { BERTH_I64, 33, 1 },    { BERTH_F4, 90, 2 },
                  { BERTH_U8, 77, 1 },    { BERTH_F6_E2M3, 44, 4 },
                  { BERTH_BOOL, 3, 1 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const berthi_storage storage = { .encoding = BERTH_ENCODING_NATIVE,
                                         .dtype = cases[i].dtype };
        const berthi_quantizer q = quantizer_of(NULL, &storage, 5, cases[i].columns);
        const uint64_t bytes = q.elements * berth_dtype_bits(storage.dtype) / 8;
        uint8_t *const values = weights_values(BERTH_BF16, bytes, 3, true);
        uint8_t *const got = weights_alloc(bytes);

        CHECK_EQ(berthi_quantizer_step(&q), cases[i].step);
        CHECK_EQ(berthi_quantizer_part(&q, 0, q.elements).bytes, bytes);
        CHECK_EQ(berthi_quantizer_part(&q, 0, q.elements).maxima, 0);
        for (uint64_t seed = 0; seed < 5; seed++) {
            memset(got, GUARD, bytes);
            weights_encode(&q, values, got, NULL, seed);
            CHECK_MEM(got, values, bytes);
        }
        free(values);
        free(got);
    }
}

static void
check_part(const berthi_quantizer *q, uint64_t first, uint64_t count,
           berthi_quantized_part expected)
{
    const berthi_quantized_part part = berthi_quantizer_part(q, first, count);

    CHECK_EQ(part.begin, expected.begin);
    CHECK_EQ(part.bytes, expected.bytes);
    CHECK_EQ(part.first_maximum, expected.first_maximum);
    CHECK_EQ(part.maxima, expected.maxima);
}

static void
test_steps_and_parts(void)
{
    const berthi_storage nf4 = { BERTH_ENCODING_NF4, BERTH_BF16, BERTH_U8, 64, false };
    const berthi_storage int8 = { BERTH_ENCODING_INT8, BERTH_BF16, 0, 0, false };
    const berthi_storage native = { BERTH_ENCODING_NATIVE, BERTH_F32, 0, 0, false };
    berthi_quantizer q = quantizer_of(NULL, &nf4, 91, 45);

    CHECK_EQ(q.elements, 4095);
    CHECK_EQ(q.blocks, 64);
    CHECK_EQ(berthi_quantizer_step(&q), 64);
    check_part(&q, 0, 4095, (berthi_quantized_part){ 0, 2048, 0, 64 });
    check_part(&q, 128, 64, (berthi_quantized_part){ 64, 32, 2, 1 });
    check_part(&q, 4032, 63, (berthi_quantized_part){ 2016, 32, 63, 1 });
    q = quantizer_of(NULL, &int8, 91, 45);
    CHECK_EQ(q.rows, 91);
    CHECK_EQ(q.columns, 45);
    CHECK_EQ(berthi_quantizer_step(&q), 45);
    check_part(&q, 90, 135, (berthi_quantized_part){ 90, 135, 2, 3 });
    q = quantizer_of(NULL, &native, 91, 45);
    check_part(&q, 90, 135, (berthi_quantized_part){ 360, 540, 0, 0 });
    CHECK(!berthi_quantizer_can_init(&q, NULL, &int8, (const uint64_t[]){ 5 }, 1));
    CHECK(!berthi_quantizer_can_init(&q, NULL, &nf4, NULL, 0));
}

/* -------------------------------------------------------- double quantization */

static void
check_finish(const vectors *v, const char *prefix)
{
    const berthi_entry *const entry = vectors_find(v, prefix, "statistics");
    const uint64_t count = berthi_entry_elements(v->header.text, entry);
    const uint64_t groups = (count + 255) / 256;
    const float *const offset = vectors_either(v, prefix, "offset", "offset");
    const berthi_storage storage = { BERTH_ENCODING_NF4, BERTH_BF16, BERTH_U8, 64, true };
    const berthi_quantizer q = quantizer_of(weights_level(0), &storage, count, 64);
    float *const scratch = weights_alloc(berthi_quantizer_scratch(&q) * sizeof(float));
    float *const absmax2 = weights_alloc(groups * sizeof(float));
    uint8_t *const codes = weights_alloc(count);

    CHECK_EQ(q.blocks, count);
    CHECK_EQ(berthi_core_bits(berthi_quantizer_finish(&q, vectors_data(v, entry), codes,
                                                      absmax2, scratch)),
             berthi_core_bits(*offset));
    CHECK_MEM(codes, vectors_either(v, prefix, "codes", "codes"), count);
    CHECK_MEM(absmax2, vectors_either(v, prefix, "nested_absmax", "nested_absmax"),
              groups * sizeof(float));
    free(scratch);
    free(absmax2);
    free(codes);
}

static void
test_finish(void)
{
    vectors v;

    T_REQUIRE(vectors_has_opened(&v, "tests/data/vectors.safetensors"));
    CHECK_GE(vectors_each(&v, "double/", "statistics", check_finish), 8);
    vectors_close(&v);
}

/* Large weights need more than what the codes do. */
static void
test_scratch(void)
{
    const berthi_storage storage = { BERTH_ENCODING_NF4, BERTH_BF16, BERTH_U8, 64, true };
    const berthi_quantizer small = quantizer_of(NULL, &storage, 1, 1);
    const berthi_quantizer large =
        quantizer_of(NULL, &storage, UINT64_C(1) << 32, UINT64_C(1) << 20);

    /* And of every double block the two extremes. */
    CHECK_EQ(berthi_quantizer_scratch(&small), BERTHI_DOUBLE_SCRATCH);
    CHECK_EQ(berthi_quantizer_scratch(&large),
             berthi_mean_scratch(large.blocks, 0, 0) + large.blocks / 256 * 2);
    CHECK_GT(berthi_mean_scratch(large.blocks, 0, 0), BERTHI_DOUBLE_SCRATCH);
}

/* ----------------------------------------------------------------------- casts */

static void
check_cast(const void *from, int32_t from_dtype, int32_t to_dtype, uint64_t count)
{
    const uint64_t size = berth_dtype_bits(to_dtype) / 8;
    uint8_t *const got = weights_alloc(count * size + 1);
    uint8_t *const expected = weights_alloc(count * size);

    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(expected, to_dtype, i, berthi_core_load(from, from_dtype, i));
    if (from_dtype == to_dtype)
        memcpy(expected, from, count * size);
    got[count * size] = GUARD;
    berthi_quantize_cast(from, from_dtype, got, to_dtype, count);
    if (!CHECK_MEM(got, expected, count * size) || !CHECK_EQ(got[count * size], GUARD))
        T_NOTE("dtype %d to %d", from_dtype, to_dtype);
    free(got);
    free(expected);
}

static void
test_casts_of_every_16_bit_number(void)
{
    uint16_t *const all = weights_alloc(65536 * sizeof *all);

    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 3; to++)
            check_cast(all, numbers[from], numbers[to], 65536);
    free(all);
}

static void
test_casts_of_any_count(void)
{
    static const uint64_t counts[] = { 0, 1, 3, 4095, 4096, 4097, 8192, 10001 };
    uint64_t state = 9;

    for (int i = 0; i < 8; i++) {
        uint32_t *const bits = weights_alloc(counts[i] * sizeof *bits);

        for (uint64_t k = 0; k < counts[i]; k++)
            bits[k] = (uint32_t)weights_random(&state);
        for (int from = 0; from < 3; from++)
            for (int to = 0; to < 3; to++)
                check_cast(bits, numbers[from], numbers[to], counts[i]);
        free(bits);
    }
}

/* As values of a file lie whose header is not padded. */
static void
test_casts_of_any_place(void)
{
    const uint64_t count = 5000;
    uint32_t *const bits = weights_alloc(count * sizeof *bits);
    uint8_t *const moved = weights_alloc(count * sizeof *bits + 3);
    uint32_t *const expected = weights_alloc(count * sizeof *expected);
    uint32_t *const got = weights_alloc(count * sizeof *got);
    uint64_t state = 10;

    for (uint64_t i = 0; i < count; i++)
        bits[i] = (uint32_t)weights_random(&state);
    for (int place = 1; place < 4; place++) {
        memcpy(moved + place, bits, count * sizeof *bits);
        for (int from = 0; from < 3; from++)
            for (int to = 0; to < 3; to++) {
                berthi_quantize_cast(bits, numbers[from], expected, numbers[to], count);
                berthi_quantize_cast(moved + place, numbers[from], got, numbers[to], count);
                CHECK_MEM(got, expected, count * berth_dtype_bits(numbers[to]) / 8);
            }
    }
    free(bits);
    free(moved);
    free(expected);
    free(got);
}

/* Half to even, overflow, subnormals; a NaN that stays what it is keeps its bits. */
static void
test_casts_by_example(void)
{
    const uint32_t f32[] = { 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7FC12345, 0x477FF000 };
    const uint16_t bf16[] = { 0x3F80, 0x3F82, 0x7F80, 0x7FFF, 0x4780 };
    const uint16_t f16[] = { 0x3C04, 0x3C0C, 0x7C00, 0x7FFF, 0x7C00 };
    uint16_t got[5];
    uint32_t same[5];

    berthi_quantize_cast(f32, BERTH_F32, got, BERTH_BF16, 5);
    CHECK_MEM(got, bf16, sizeof got);
    berthi_quantize_cast(f32, BERTH_F32, got, BERTH_F16, 5);
    CHECK_MEM(got, f16, sizeof got);
    berthi_quantize_cast(f32, BERTH_F32, same, BERTH_F32, 5);
    CHECK_MEM(same, f32, sizeof same);
}

/* ------------------------------------------------------------------ non-finite */

/* One value among zeros, at every place near the borders of the loops' turns. */
static void
check_count(int32_t dtype, uint32_t bits, uint64_t nan, uint64_t infinite)
{
    static const uint64_t counts[] = { 1, 7, 4095, 4096, 4097, 9000 };
    const uint64_t size = berth_dtype_bits(dtype) / 8;

    for (int i = 0; i < 6; i++) {
        uint8_t *const values = calloc(counts[i], size);

        T_REQUIRE(values != NULL);
        for (uint64_t at = 0; at < counts[i]; at += at < 4090 && counts[i] > 8 ? 15 : 1) {
            berthi_nonfinite found;

            memcpy(values + at * size, &bits, size);
            found = berthi_quantize_nonfinite(values, dtype, counts[i]);
            CHECK_EQ(found.nan, nan);
            CHECK_EQ(found.infinite, infinite);
            memset(values + at * size, 0, size);
        }
        free(values);
    }
}

static void
test_nonfinite_by_place(void)
{
    check_count(BERTH_BF16, 0x7F80, 0, 1);
    check_count(BERTH_BF16, 0xFF80, 0, 1);
    check_count(BERTH_BF16, 0x7F81, 1, 0);
    check_count(BERTH_BF16, 0xFFFF, 1, 0);
    check_count(BERTH_BF16, 0xFF7F, 0, 0);
    check_count(BERTH_F16, 0x7C00, 0, 1);
    check_count(BERTH_F16, 0xFC01, 1, 0);
    check_count(BERTH_F16, 0x7BFF, 0, 0);
    check_count(BERTH_F32, 0xFF800000, 0, 1);
    check_count(BERTH_F32, 0x7F800001, 1, 0);
    check_count(BERTH_F32, 0xFFFFFFFF, 1, 0);
    check_count(BERTH_F32, 0x7F7FFFFF, 0, 0);
}

static void
test_nonfinite_of_all_numbers(void)
{
    uint16_t *const all = weights_alloc(65536 * sizeof *all);
    uint32_t *const wide = weights_alloc(70000 * sizeof *wide);
    berthi_nonfinite found;

    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    found = berthi_quantize_nonfinite(all, BERTH_BF16, 65536);
    CHECK_EQ(found.nan, 2 * 127);
    CHECK_EQ(found.infinite, 2);
    found = berthi_quantize_nonfinite(all, BERTH_F16, 65536);
    CHECK_EQ(found.nan, 2 * 1023);
    CHECK_EQ(found.infinite, 2);
    found = berthi_quantize_nonfinite(all, BERTH_U16, 65536);
    CHECK_EQ(found.nan + found.infinite, 0);
    for (uint32_t i = 0; i < 70000; i++) /* more than 16 bits can count */
        wide[i] = i % 2 == 0 ? 0x7FC00000 : 0x7F800000;
    found = berthi_quantize_nonfinite(wide, BERTH_F32, 70000);
    CHECK_EQ(found.nan, 35000);
    CHECK_EQ(found.infinite, 35000);
    free(all);
    free(wide);
}

/* The same as of the values that have been rounded. */
static void
check_as_fp16(const void *values, int32_t dtype, uint64_t count)
{
    uint16_t *const rounded = weights_alloc(count * sizeof *rounded);
    const berthi_nonfinite found = berthi_quantize_nonfinite_as_fp16(values, dtype, count);
    berthi_nonfinite expected;

    berthi_quantize_cast(values, dtype, rounded, BERTH_F16, count);
    expected = berthi_quantize_nonfinite(rounded, BERTH_F16, count);
    CHECK_EQ(found.nan, expected.nan);
    CHECK_EQ(found.infinite, expected.infinite);
    free(rounded);
}

static void
test_nonfinite_as_fp16(void)
{
    static const uint32_t about[] = { 0x477FE000, 0x477FF000, 0x47800000, 0x7F800000 };
    uint16_t *const all = weights_alloc(65536 * sizeof *all);
    float wide[64];

    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    check_as_fp16(all, BERTH_BF16, 65536);
    check_as_fp16(all, BERTH_F16, 65536);
    for (size_t k = 0; k < sizeof about / sizeof about[0]; k++) {
        for (uint32_t i = 0; i < 64; i++)
            wide[i] = berthi_core_float((about[k] + i / 2 - 16) | i % 2 << 31);
        for (uint64_t count = 1; count <= 64; count++)
            check_as_fp16(wide, BERTH_F32, count);
    }
    free(all);
}

/* --------------------------------------------------------------- transposition */

static void
check_transpose(uint64_t rows, uint64_t columns, uint32_t size)
{
    const uint64_t from_stride = columns + 3;
    const uint64_t to_stride = rows + 5;
    const uint64_t to_bytes = columns * to_stride * size;
    uint8_t *const from = weights_values(BERTH_F32, rows * from_stride, 5, true);
    uint8_t *const to = weights_alloc(to_bytes);
    uint8_t *const expected = weights_alloc(to_bytes);

    memset(to, GUARD, to_bytes);
    memset(expected, GUARD, to_bytes);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            memcpy(expected + (c * to_stride + r) * size,
                   from + (r * from_stride + c) * size, size);
    berthi_quantize_transpose(
        &(berthi_matrix){ from, from_stride, to, to_stride, rows, columns, size });
    if (!CHECK_MEM(to, expected, to_bytes))
        T_NOTE("%llux%llu of %u bytes", (unsigned long long)rows,
               (unsigned long long)columns, size);
    free(from);
    free(to);
    free(expected);
}

static void
test_transpose(void)
{
    static const uint64_t sides[] = { 1, 2, 31, 32, 33, 64, 100 };

    for (int r = 0; r < 7; r++)
        for (int c = 0; c < 7; c++) {
            check_transpose(sides[r], sides[c], 2);
            check_transpose(sides[r], sides[c], 4);
        }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_nf4_in_pieces);
    T_RUN(test_fp4_in_pieces);
    T_RUN(test_int8_in_pieces);
    T_RUN(test_native_in_pieces);
    T_RUN(test_steps_and_parts);
    T_RUN(test_finish);
    T_RUN(test_scratch);
    T_RUN(test_casts_of_every_16_bit_number);
    T_RUN(test_casts_of_any_count);
    T_RUN(test_casts_of_any_place);
    T_RUN(test_casts_by_example);
    T_RUN(test_nonfinite_by_place);
    T_RUN(test_nonfinite_of_all_numbers);
    T_RUN(test_nonfinite_as_fp16);
    T_RUN(test_transpose);
    T_MAIN_END;
}
