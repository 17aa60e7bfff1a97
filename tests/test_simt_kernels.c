/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the GPU's kernels on the host, byte for byte against the
 * reference loops: golden inputs, raw bits, every threshold, all block sizes,
 * tails, odd addresses, counts beyond 32 bits; lanes ascending, descending and
 * in a random order. Outputs lie between fences and end where memory does.
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
static uint64_t state = 0x2545F4914F6CDD1Du;

static uint64_t
element_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* ------------------------------------------------------------ one comparison each */

typedef struct encoder {
    void (*tested)(const berthi_encode_arguments *arguments);
    void (*scalar)(const berthi_encode_arguments *arguments);
    const uint32_t *map; /* NULL: two codes to a byte */
} encoder;

static void
check_encoding(const encoder *e, const void *values, int32_t dtype, uint32_t block_size,
               uint64_t count, size_t odd)
{
    const uint64_t code_bytes = e->map != NULL ? count : (count + 1) / 2;
    const uint64_t blocks = (count + block_size - 1) / block_size;
    fenced_output codes = fenced_begin(code_bytes, odd);
    fenced_output absmax = fenced_begin(blocks * sizeof(float), 0);
    fenced_output expected_codes = fenced_begin(code_bytes, 0);
    fenced_output expected_absmax = fenced_begin(blocks * sizeof(float), 0);
    char what[100];

    snprintf(what, sizeof what, "%s dtype %d block %u count %llu",
             e->map != NULL ? "map" : "4-bit", dtype, block_size, (unsigned long long)count);
    e->tested(&(berthi_encode_arguments){ values, dtype, block_size, count, e->map,
                                          codes.bytes, (float *)(void *)absmax.bytes });
    e->scalar(&(berthi_encode_arguments){ values, dtype, block_size, count, e->map,
                                          expected_codes.bytes,
                                          (float *)(void *)expected_absmax.bytes });
    fenced_end(&codes, &expected_codes, what);
    fenced_end(&absmax, &expected_absmax, what);
}

static const encoder *
get_encoder(unsigned i)
{
    static encoder encoders[4];

    encoders[0] = (encoder){ simt_encode_nf4, berthi_scalar_operations.encode_nf4, NULL };
    encoders[1] = (encoder){ simt_encode_fp4, berthi_scalar_operations.encode_fp4, NULL };
    encoders[2] = (encoder){ simt_encode_map, berthi_scalar_operations.encode_map,
                             berthi_signed_map };
    encoders[3] = (encoder){ simt_encode_map, berthi_scalar_operations.encode_map,
                             berthi_unsigned_map };
    return &encoders[i];
}

typedef struct decoder {
    void (*tested)(const berthi_decode_arguments *arguments);
    void (*scalar)(const berthi_decode_arguments *arguments);
    const uint32_t *map;
} decoder;

static void
check_decoding(const decoder *d, const uint8_t *codes, const float *absmax, int32_t dtype,
               uint32_t block_size, uint64_t count, size_t odd)
{
    fenced_output values = fenced_begin(count * element_bytes(dtype), odd);
    fenced_output expected = fenced_begin(count * element_bytes(dtype), 0);
    char what[100];

    snprintf(what, sizeof what, "%s dtype %d block %u count %llu",
             d->map != NULL ? "map" : "4-bit", dtype, block_size, (unsigned long long)count);
    d->tested(&(berthi_decode_arguments){ codes, absmax, count, block_size, dtype, d->map,
                                          values.bytes });
    d->scalar(&(berthi_decode_arguments){ codes, absmax, count, block_size, dtype, d->map,
                                          expected.bytes });
    fenced_end(&values, &expected, what);
}

static const decoder *
get_decoder(unsigned i)
{
    static decoder decoders[3];

    decoders[0] = (decoder){ simt_decode_nf4, berthi_scalar_operations.decode_nf4, NULL };
    decoders[1] = (decoder){ simt_decode_fp4, berthi_scalar_operations.decode_fp4, NULL };
    decoders[2] = (decoder){ simt_decode_map, berthi_scalar_operations.decode_map,
                             berthi_unsigned_map };
    return &decoders[i];
}

/* -------------------------------------------------------------------- inputs */

/* Any bits, or finite ones, or ordinary ones; now and then a run of zeros or NaN. */
static void
fill_values(uint8_t *bytes, uint64_t count, unsigned kind)
{
    for (uint64_t i = 0; i + 8 <= count; i += 8) {
        uint64_t bits = random_next(&state);

        if (kind == 1)
            bits &= UINT64_C(0xBFFFBFFFBFFFBFFF);
        if (kind == 2)
            bits = (bits & UINT64_C(0x81FF81FF81FF81FF)) | UINT64_C(0x3C003C003C003C00);
        memcpy(bytes + i, &bits, 8);
    }
    for (unsigned run = 0; kind != 2 && run < 2; run++) {
        const uint64_t at = random_next(&state) % count;
        const uint64_t left = count - at;

        memset(bytes + at, run == 0 ? 0 : 0xFF, left < 600 ? left : 600);
    }
}

/* ------------------------------------------------------------------- encoding */

/* Small counts, tails of each kind, and now and then more than a CTA. */
static uint64_t
draw_count(uint32_t block_size, unsigned round)
{
    static const uint64_t counts[] = { 1, 2, 63, 64, 65, 127, ENCODE_CTA - 1, ENCODE_CTA };

    if (round % 4 == 0)
        return counts[round / 4 % 8];
    if (round % 16 == 1)
        return ENCODE_CTA + random_next(&state) % ENCODE_CTA + 1;
    if (round % 4 == 1)
        return random_next(&state) % 3 * block_size + random_next(&state) % block_size
               + 1;
    return random_next(&state) % 5000 + 1;
}

static void
test_encoding_of_any_bits(void)
{
    uint8_t *const values = malloc(3 * ENCODE_CTA * 4);

    T_REQUIRE(values != NULL);
    for (unsigned round = 0; round < 240; round++) {
        const int32_t dtype = dtypes[round % 3];
        const uint32_t block_size = 32u << round / 3 % 8;
        const uint64_t count =
            draw_count(block_size, (unsigned)(random_next(&state) % 64));
        const uint64_t bytes = count * element_bytes(dtype);
        const size_t odd =
            round % 5 == 4 ? element_bytes(dtype) * (1 + random_next(&state) % 3) : 0;
        uint8_t *memory;
        uint8_t *exact;

        fill_values(values, 3 * ENCODE_CTA * 4, round % 4);
        exact = fenced_copy(values, bytes, odd, &memory);
        simt_level_set_order((simt_order)(random_next(&state) % SIMT_ORDER_COUNT), round);
        check_encoding(get_encoder((unsigned)(random_next(&state) % 4)), exact, dtype,
                       block_size, count, round % 7 == 6 ? 1 : 0);
        free(memory);
    }
    free(values);
}

/* One input through every kernel, in every order: the same bytes. */
static void
test_every_kernel_in_every_order(void)
{
    uint8_t *const values = malloc((ENCODE_CTA + 100) * 4);

    T_REQUIRE(values != NULL);
    fill_values(values, (ENCODE_CTA + 100) * 4, 1);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned d = 0; d < 3; d++)
            for (uint32_t block_size = 64; block_size <= 4096; block_size *= 64)
                for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
                    simt_level_set_order((simt_order)order, 77);
                    check_encoding(get_encoder(i), values, dtypes[d], block_size,
                                   ENCODE_CTA + 99, 0);
                }
    free(values);
}

/* With absmax 1 the scaled value is the value itself. */
static uint64_t
add_neighbours(float *x, uint64_t count, uint32_t bits)
{
    for (int32_t d = -40; d <= 40; d++) {
        if (count % 64 == 0)
            x[count++] = 1.0f;
        x[count++] = berthi_core_float(bits + (uint32_t)d);
        if (count % 64 != 0)
            x[count++] = -berthi_core_float(bits + (uint32_t)d);
    }
    return count;
}

static void
test_around_every_threshold(void)
{
    static const uint32_t edges[] = { 0x00800000, 0x3F800000, 0x3F7FFFFF, 0x3A000000 };
    float *const x = malloc(sizeof(float) * (22 + 255 + 4) * 81 * 3);
    uint64_t count = 0;

    T_REQUIRE(x != NULL);
    for (int k = 0; k < 15; k++)
        count = add_neighbours(x, count, berthi_nf4_thresholds[k] & 0x7FFFFFFFu);
    for (int k = 0; k < 7; k++)
        count = add_neighbours(x, count, berthi_fp4_thresholds[k]);
    for (int k = 0; k < 4; k++)
        count = add_neighbours(x, count, edges[k]);
    for (uint32_t k = 0; k < 255; k += 3)
        count = add_neighbours(
            x, count,
            berthi_core_bits(berthi_core_map_border(berthi_signed_map, k)) & 0x7FFFFFFFu);
    simt_level_set_order(SIMT_RANDOM, 3);
    for (unsigned i = 0; i < 4; i++)
        check_encoding(get_encoder(i), x, BERTH_F32, 64, count, 0);
    free(x);
}

/* Every bf16 with two absmax: each bin, each neighbourhood of a border between bins. */
static void
test_every_bf16(void)
{
    static const uint16_t largest[] = { 0x3F80, 0x3FB3 };
    uint16_t *const x = malloc(2 * 0x20000);
    simt_level_set_order(SIMT_DESCENDING, 0);
    T_REQUIRE(x != NULL);
    for (int k = 0; k < 2; k++) {
        uint64_t count = 0;

        for (uint32_t v = largest[k] - 14u * 128; v <= largest[k]; v++) {
            if (count % 64 == 0)
                x[count++] = largest[k];
            x[count++] = (uint16_t)v;
            x[count++] = (uint16_t)(v | 0x8000);
            if (count % 64 == 63)
                x[count++] = 0x8000;
        }
        check_encoding(get_encoder(0), x, BERTH_BF16, 64, count, 0);
        check_encoding(get_encoder(1), x, BERTH_BF16, 64, count, 0);
    }
    free(x);
}

/* Every scaled value has one bin, and a bin's two codes are the right ones. */
static void
test_bins(void)
{
    uint32_t nf4[256] = { 0 };
    uint32_t fp4[256] = { 0 };
    uint32_t last = 0;

    berthi_fill_nf4_bins(nf4);
    berthi_fill_fp4_bins(fp4);
    for (int32_t i = -130000; i <= 130000; i++) {
        const float scaled = (float)i / 130000.0f;
        const uint32_t bin = berthi_bin_of(scaled);
        const float magnitude = fabsf(scaled);
        const uint32_t step =
            fp4[2 * bin + 1] + (magnitude > berthi_core_float(fp4[2 * bin]) ? 1 : 0);

        if (bin < last || bin < 1 || bin > 33)
            CHECK_GE(bin, last);
        last = bin;
        if (nf4[2 * bin + 1] + (scaled > berthi_core_float(nf4[2 * bin]) ? 1 : 0)
                != berthi_core_nf4_code(scaled)
            || (step ^ (step & 2) << 1) != berthi_core_fp4_code(scaled))
            CHECK_EQ(i, 0);
    }
    CHECK_EQ(last, 33);
    CHECK_EQ(berthi_bin_of(-1.0f), 1);
    CHECK_EQ(berthi_bin_of(-0x1.000002p0f), 0);
    CHECK_EQ(berthi_bin_of(0x1.000002p0f), 33);
    CHECK_EQ(berthi_bin_of(-0x1p-126f), 16);
    CHECK_EQ(berthi_bin_of(-0.0f), 17);
    CHECK_EQ(berthi_bin_of(NAN), ENCODE_NAN_BIN);
    for (uint32_t k = 0; k < 15; k++)
        for (uint32_t j = 0; j < k; j++)
            CHECK_NE(berthi_bin_of(berthi_core_float(berthi_nf4_thresholds[j])),
                     berthi_bin_of(berthi_core_float(berthi_nf4_thresholds[k])));
}

/* ------------------------------------------------------------------- decoding */

static void
fill_absmax(float *absmax, uint64_t count, unsigned kind)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)random_next(&state);

        /* Any bits; small ones, whose products are flushed; ordinary ones. */
        absmax[i] = berthi_core_float(kind == 0   ? bits
                                      : kind == 1 ? bits & 0x037FFFFFu
                                                  : (bits & 0x03FFFFFFu) + 0x3C000000u);
    }
}

static void
test_decoding_of_any_bits(void)
{
    uint8_t *const codes = malloc(2 * DECODE_CTA);

    T_REQUIRE(codes != NULL);
    for (unsigned round = 0; round < 160; round++) {
        const int32_t dtype = dtypes[round % 3];
        const uint32_t block_size = 32u << round / 3 % 8;
        const decoder *const d = get_decoder((unsigned)(random_next(&state) % 3));
        const uint64_t count = round % 16 == 0 ? DECODE_CTA - 1
                               : round % 8 == 0
                                   ? DECODE_CTA + random_next(&state) % DECODE_CTA + 1
                                   : draw_count(block_size, round);
        const uint64_t code_bytes = d->map != NULL ? count : (count + 1) / 2;
        const uint64_t blocks = (count + block_size - 1) / block_size;
        float *const absmax = malloc(blocks * sizeof(float));
        uint8_t *memory;
        uint8_t *exact;

        for (uint64_t i = 0; i < code_bytes; i++)
            codes[i] = (uint8_t)(random_next(&state) >> 20);
        fill_absmax(absmax, blocks, round / 5 % 3);
        exact = fenced_copy(codes, code_bytes, round % 6 == 5 ? 1 : 0, &memory);
        simt_level_set_order((simt_order)(round % SIMT_ORDER_COUNT), round);
        check_decoding(d, exact, absmax, dtype, block_size, count,
                       round % 9 == 8 ? element_bytes(dtype) : 0);
        free(memory);
        free(absmax);
    }
    free(codes);
}

/* ------------------------------------------------------- double quantization */

/* Statistics around their offset, and any bits. */
static void
fill_statistics(float *x, uint64_t count, unsigned kind)
{
    fill_absmax(x, count, kind == 0 ? 0 : 2);
    for (uint64_t i = 0; kind == 2 && i < count; i++)
        x[i] = 0.5f;
}

static void
test_double_quantization(void)
{
    static const uint64_t counts[] = { 1, 255, 256, 257, 4095, DOUBLE_CTA, DOUBLE_CTA + 700 };

    for (unsigned round = 0; round < 21; round++) {
        const uint64_t count = counts[round % 7];
        const uint64_t blocks = (count + 255) / 256;
        const float offset = round % 3 == 2 ? 0.5f : round % 3 == 1 ? 0.03f : 1e-3f;
        float *const x = malloc(count * sizeof(float));
        fenced_output codes = fenced_begin(count, round % 2);
        fenced_output absmax2 = fenced_begin(blocks * sizeof(float), 0);
        fenced_output expected_codes = fenced_begin(count, 0);
        fenced_output expected_absmax2 = fenced_begin(blocks * sizeof(float), 0);
        float scratch[BERTHI_DOUBLE_SCRATCH];

        fill_statistics(x, count, round % 3);
        simt_level_set_order((simt_order)(round / 7), round);
        simt_encode_double(&(berthi_double_arguments){
            .absmax = x, .count = count, .codes = codes.bytes,
            .absmax2 = (float *)(void *)absmax2.bytes, .offset = offset });
        berthi_scalar_operations.encode_double(&(berthi_double_arguments){
            .absmax = x, .count = count, .codes = expected_codes.bytes,
            .absmax2 = (float *)(void *)expected_absmax2.bytes, .offset = offset,
            .scratch = scratch });
        fenced_end(&codes, &expected_codes, "double quantization: codes");
        fenced_end(&absmax2, &expected_absmax2, "double quantization: absmax");
        free(x);
    }
}

/* The mean's last pass in the launch of the codes: grids of one CTA and of several. */
static void
test_double_quantization_joined(void)
{
    enum { MOST = 40001 };
    static const uint64_t counts[] = { 1, 127, 257, 4100, 16384, 20000, MOST };
    static float x[MOST];
    static uint8_t codes[2][MOST];
    static float absmax2[2][(MOST + 255) / 256];
    static float partial[MOST];
    static float scratch[BERTHI_DOUBLE_SCRATCH];

    for (unsigned round = 0; round < 14; round++) {
        const uint64_t count = counts[round % 7];
        const berthi_mean_arguments mean = {
            .values = x, .count = count, .processors = 132, .threads_per_processor = 512,
            .is_old_order = round >= 7, .partial = partial
        };
        berthi_double_arguments a = { .absmax = x, .count = count, .codes = codes[0],
                                      .absmax2 = absmax2[0], .scratch = scratch };

        for (uint64_t i = 0; i < count; i++)
            x[i] = berthi_core_float(0x3C000000u
                                     + (uint32_t)(random_next(&state) % 0x02000000u));
        a.offset = berthi_mean(&mean);
        berthi_scalar_operations.encode_double(&a);
        a.codes = codes[1];
        a.absmax2 = absmax2[1];
        simt_level_set_order((simt_order)(round % SIMT_ORDER_COUNT), round);
        CHECK_EQ(berthi_core_bits(simt_encode_double_joined(&a, &mean)),
                 berthi_core_bits(a.offset));
        CHECK_MEM(codes[1], codes[0], count);
        CHECK_MEM(absmax2[1], absmax2[0], (count + 255) / 256 * sizeof absmax2[0][0]);
    }
}

static void
check_mean(const float *values, uint64_t count, uint32_t processors, int is_old_order)
{
    /* The limits of the grid count above some thousand values alone. */
    float *const partial = malloc(berthi_mean_scratch(count, processors, 512) * sizeof(float));
    const berthi_mean_arguments m = { .values = values, .count = count,
                                      .processors = processors, .threads_per_processor = 512,
                                      .is_old_order = is_old_order, .partial = partial };

    if (partial == NULL)
        abort();
    if (!CHECK_EQ(berthi_core_bits(simt_mean(&m)), berthi_core_bits(berthi_mean(&m))))
        T_NOTE("%llu values, %u processors, order %d", (unsigned long long)count, processors,
               is_old_order);
    free(partial);
}

/* Full mantissas over many binades: another order is another last bit. */
static void
test_mean(void)
{
    static const uint64_t counts[] = { 1,    2,    3,    5,     31,     32,     33,
                                       63,   64,   65,   100,   127,    128,    129,
                                       131,  255,  257,  1023,  2047,   2049,   4095,
                                       5000, 9999, 70001, 130560, 130561, 200003, 400001 };
    enum { MOST = 400001 };
    float *const x = malloc((MOST + 1) * sizeof(float));
    uint32_t differing = 0;

    T_REQUIRE(x != NULL);
    for (uint64_t i = 0; i <= MOST; i++)
        x[i] = berthi_core_float(0x3C000000u
                                 + (uint32_t)(random_next(&state) % 0x02000000u));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int old = 0; old < 2; old++) {
            simt_level_set_order((simt_order)(i % SIMT_ORDER_COUNT), i);
            check_mean(x, counts[i], 132, old);
            check_mean(x + 1, counts[i], 3, old);
        }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        float *const partial = malloc(berthi_mean_scratch(counts[i], 132, 0) * sizeof(float));
        berthi_mean_arguments m = { .count = counts[i], .processors = 132,
                                    .partial = partial };

        /* One order or another is chance's: any of some numbers tells them apart. */
        for (uint64_t first = 0; first + counts[i] <= MOST && first < 8; first++) {
            float mean;

            m.values = x + first;
            m.is_old_order = 0;
            mean = berthi_mean(&m);
            m.is_old_order = 1;
            if (mean != berthi_mean(&m)) {
                differing++;
                break;
            }
        }
        free(partial);
    }
    CHECK_GT(differing, 5);
    x[0] = -0.0f;
    check_mean(x, 1, 132, 0);
    free(x);
}

/* Values -> codes, statistics, offset and the statistics' codes, kernel after kernel. */
static void
test_double_quantization_of_a_tensor(void)
{
    enum { COUNT = 70000, BLOCKS = (COUNT + 63) / 64, DOUBLE = (BLOCKS + 255) / 256 };
    uint16_t *const x = malloc(COUNT * sizeof *x);
    static uint8_t codes[2][COUNT / 2];
    static uint8_t absmax_codes[2][BLOCKS];
    static float absmax[2][BLOCKS];
    static float absmax2[2][DOUBLE];
    static float scratch[BERTHI_DOUBLE_SCRATCH];
    float partial[8];
    float offset[2];

    T_REQUIRE(x != NULL);
    for (uint64_t i = 0; i < COUNT; i++)
        x[i] = (uint16_t)((random_next(&state) & 0x81FF) | 0x3C00);
    simt_level_set_order(SIMT_RANDOM, 12);
    simt_encode_nf4(&(berthi_encode_arguments){ x, BERTH_BF16, 64, COUNT, NULL, codes[0],
                                                absmax[0] });
    offset[0] = simt_mean(&(berthi_mean_arguments){ .values = absmax[0], .count = BLOCKS,
                                                    .partial = partial });
    simt_encode_double(&(berthi_double_arguments){ .absmax = absmax[0], .count = BLOCKS,
                                                   .codes = absmax_codes[0],
                                                   .absmax2 = absmax2[0],
                                                   .offset = offset[0] });
    berthi_scalar_operations.encode_nf4(&(berthi_encode_arguments){
        x, BERTH_BF16, 64, COUNT, NULL, codes[1], absmax[1] });
    offset[1] = berthi_mean(&(berthi_mean_arguments){ .values = absmax[1], .count = BLOCKS,
                                                      .partial = partial });
    berthi_scalar_operations.encode_double(&(berthi_double_arguments){
        .absmax = absmax[1], .count = BLOCKS, .codes = absmax_codes[1],
        .absmax2 = absmax2[1], .offset = offset[1], .scratch = scratch });
    CHECK_MEM(codes[0], codes[1], sizeof codes[0]);
    CHECK_MEM(absmax[0], absmax[1], sizeof absmax[0]);
    CHECK_MEM(&offset[0], &offset[1], sizeof offset[0]);
    CHECK_MEM(absmax_codes[0], absmax_codes[1], sizeof absmax_codes[0]);
    CHECK_MEM(absmax2[0], absmax2[1], sizeof absmax2[0]);
    free(x);
}

/* One odd map, as an old release stored it. */
static void
test_decoding_of_double_quantized(void)
{
    uint32_t old_map[256];

    memcpy(old_map, berthi_signed_map, sizeof old_map);
    old_map[0] = 0xBF800000u;
    for (unsigned round = 0; round < 60; round++) {
        const int32_t dtype = dtypes[round % 3];
        const uint32_t block_size = 32u << round / 3 % 8;
        const uint64_t count = round % 4 == 0 ? DECODE_CTA + round * 97
                                              : draw_count(block_size, round);
        const uint64_t blocks = (count + block_size - 1) / block_size;
        const uint64_t bytes = count * element_bytes(dtype);
        uint8_t *const codes = malloc((count + 1) / 2 + blocks);
        uint8_t *const absmax_codes = codes + (count + 1) / 2;
        float *const absmax = malloc((blocks + blocks / 256 + 1) * sizeof(float));
        float *const absmax2 = absmax + blocks;
        const uint32_t *const map = round % 2 == 0 ? berthi_signed_map : old_map;
        const float offset = round % 3 == 0 ? -0.0f : 0.027f;
        fenced_output values = fenced_begin(bytes, 0);
        fenced_output expected = fenced_begin(bytes, 0);

        for (uint64_t i = 0; i < (count + 1) / 2 + blocks; i++)
            codes[i] = (uint8_t)(random_next(&state) >> 20);
        fill_absmax(absmax2, blocks / 256 + 1, round / 5 % 3);
        for (uint64_t i = 0; i < blocks; i++)
            absmax[i] = berthi_core_absmax_recover(map, absmax_codes[i], absmax2[i / 256],
                                                   offset);
        simt_level_set_order((simt_order)(round / 4 % SIMT_ORDER_COUNT), round);
        simt_decode_double(&(berthi_decode_arguments){ codes, NULL, count, block_size, dtype,
                                                       NULL, values.bytes },
                           berthi_nf4_values,
                           &(simt_double_absmax){ absmax_codes, absmax2, map, offset });
        berthi_scalar_operations.decode_nf4(&(berthi_decode_arguments){
            codes, absmax, count, block_size, dtype, NULL, expected.bytes });
        fenced_end(&values, &expected, "decoding with double quantized absmax");
        free(codes);
        free(absmax);
    }
}

/* -------------------------------------------------------------- golden inputs */

static void
check_golden(const vectors *v, const char *prefix, unsigned first_encoder,
             unsigned last_encoder)
{
    const int64_t *const params = vectors_either(v, prefix, "params", "params");
    const berthi_entry *const input = vectors_find(v, prefix, "input");
    const uint32_t block_size = (uint32_t)params[0];

    if (block_size < 32 || block_size > 4096 || (block_size & (block_size - 1)) != 0)
        return; /* of CPUs alone */
    simt_level_set_order(SIMT_RANDOM, (uint64_t)params[1]);
    for (unsigned i = first_encoder; i <= last_encoder; i++) {
        uint8_t *memory;
        const uint64_t count = (uint64_t)params[1];
        const uint8_t *const exact =
            fenced_copy(vectors_data(v, input), count * element_bytes(input->dtype), 0, &memory);

        check_encoding(get_encoder(i), exact, input->dtype, block_size, count, 0);
        free(memory);
    }
}

static void
check_golden_nf4(const vectors *v, const char *prefix)
{
    check_golden(v, prefix, 0, 0);
}

static void
check_golden_fp4(const vectors *v, const char *prefix)
{
    check_golden(v, prefix, 1, 1);
}

static void
check_golden_map(const vectors *v, const char *prefix)
{
    check_golden(v, prefix, 2, 3);
}

/* The recorded offset and codes of statistics: no oracle of ours between. */
static void
check_golden_double(const vectors *v, const char *prefix)
{
    const berthi_entry *const entry = vectors_find(v, prefix, "statistics");
    const float *const statistics = vectors_data(v, entry);
    const uint64_t count = berthi_entry_elements(v->header.text, entry);
    const float *const offset = vectors_either(v, prefix, "offset", "offset");
    float partial[8];
    float mean;

    simt_level_set_order(SIMT_RANDOM, count);
    mean = simt_mean(&(berthi_mean_arguments){ .values = statistics, .count = count,
                                               .partial = partial });
    CHECK_MEM(&mean, offset, sizeof mean);
}

static void
test_golden_inputs(void)
{
    vectors v;

    T_REQUIRE(vectors_has_opened(&v, "tests/data/vectors.safetensors"));
    CHECK_GE(vectors_each(&v, "nf4/", "params", check_golden_nf4), 50);
    CHECK_GE(vectors_each(&v, "fp4/", "params", check_golden_fp4), 50);
    CHECK_GE(vectors_each(&v, "map8/", "params", check_golden_map), 14);
    CHECK_GE(vectors_each(&v, "double/", "statistics", check_golden_double), 8);
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

/* The last two CTAs of a tensor of more than 2^32 elements, one of them short. */
static void
check_counts_beyond_32_bits(void)
{
    const uint64_t count = (UINT64_C(1) << 32) + DECODE_CTA + 1234;
    const uint64_t first = count / DECODE_CTA * DECODE_CTA - DECODE_CTA;
    uint16_t *const values = reserve(count * 2);
    uint8_t *const codes = reserve(count / 2);
    float *const absmax = reserve((count / 64 + 1) * sizeof(float));
    berthi_encode_kernel e = { .values = values, .codes = codes, .absmax = absmax,
                               .count = count, .block_log2 = 6, .is_aligned = 1 };
    const uint64_t left = count - first;
    fenced_output expected_codes = fenced_begin((left + 1) / 2, 0);
    fenced_output expected_absmax = fenced_begin((left + 63) / 64 * 4, 0);

    if (values == NULL || codes == NULL || absmax == NULL)
        T_SKIP("no 11 GB of addresses");
    for (uint64_t i = first; i < count; i++)
        values[i] = (uint16_t)((random_next(&state) & 0x81FF) | 0x3C00);
    berthi_fill_nf4_bins(e.table);
    simt_level_encode_from(&e, first / ENCODE_CTA);
    berthi_scalar_operations.encode_nf4(&(berthi_encode_arguments){
        values + first, BERTH_BF16, 64, left, NULL, expected_codes.bytes,
        (float *)(void *)expected_absmax.bytes });
    CHECK_MEM(codes + first / 2, expected_codes.bytes, expected_codes.count);
    CHECK_MEM(absmax + first / 64, expected_absmax.bytes, expected_absmax.count);

    for (uint64_t i = first; i < count; i++)
        values[i] = 0;
    simt_level_decode_from(codes, absmax, count, values, first / DECODE_CTA);
    for (uint64_t i = first; i < count; i += 61) {
        const uint32_t code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15u;

        CHECK_EQ(values[i],
                 berthi_core_to_bf16(berthi_core_nf4_value(code, absmax[i / 64])));
    }
    munmap(values, count * 2);
    munmap(codes, count / 2);
    munmap(absmax, (count / 64 + 1) * sizeof(float));
    free(expected_codes.memory);
    free(expected_absmax.memory);
}

/* Words that come along with a launch: all lanes have some, the last of them fewer, and none. */
static void
test_words_of_the_host(void)
{
    static const uint32_t counts[] = { 1, 31, 256, 300, WRITE_WORDS };
    uint32_t words[WRITE_WORDS];

    for (uint32_t i = 0; i < WRITE_WORDS; i++)
        words[i] = i * 2654435761u;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const uint64_t bytes = counts[i] * sizeof words[0];
        fenced_output tested = fenced_begin(bytes, 0);
        fenced_output expected = fenced_begin(bytes, 0);

        memcpy(expected.bytes, words, bytes);
        simt_level_set_order((simt_order)(i % SIMT_ORDER_COUNT), i);
        simt_write(tested.bytes, words, bytes);
        fenced_end(&tested, &expected, "words of the host");
    }
}

static void
test_counts_beyond_32_bits(void)
{
    if (!simt_level_has_room(UINT64_C(12) << 30))
        T_SKIP("no 12 GiB are free on the device");
    check_counts_beyond_32_bits();
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    if (simt_level_is_there(&why)) {
        T_RUN(test_bins);
        T_RUN(test_encoding_of_any_bits);
        T_RUN(test_every_kernel_in_every_order);
        T_RUN(test_around_every_threshold);
        T_RUN(test_every_bf16);
        T_RUN(test_decoding_of_any_bits);
        T_RUN(test_double_quantization);
        T_RUN(test_double_quantization_joined);
        T_RUN(test_mean);
        T_RUN(test_double_quantization_of_a_tensor);
        T_RUN(test_decoding_of_double_quantized);
        T_RUN(test_golden_inputs);
        T_RUN(test_words_of_the_host);
        T_RUN(test_counts_beyond_32_bits);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
