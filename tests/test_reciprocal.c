/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reciprocal.c - the reciprocal of the host against a GPU's, as recorded: every
 * mantissa, what special values give, and the codes that follow from it on every level,
 * of values right beside the borders between codes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/fixture.h"
#include "tests/random.h"
#include "tests/recorded.h"
#include "tests/t.h"
#include "tests/weights.h"

#define MANTISSAS (1u << 23)
#define LARGEST_EXPONENT 252u /* whose reciprocals are all normal */

static uint8_t *deltas;

/* --------------------------------------------------------------------- numbers */

/* How many of an exponent's, and of either sign, are another than the recorded one. */
static uint32_t
count_wrong(uint32_t exponent, uint32_t sign)
{
    uint32_t wrong = 0;

    for (uint32_t m = 0; m < MANTISSAS; m++) {
        const float value = berthi_core_float(exponent << 23 | m);
        const float got = berthi_core_reciprocal(berthi_core_float(sign | exponent << 23 | m));
        const float wanted = recorded_reciprocal(deltas, value);

        wrong += berthi_core_bits(got) != (sign | berthi_core_bits(wanted)) ? 1u : 0u;
    }
    return wrong;
}

static void
test_every_mantissa(void)
{
    CHECK_EQ(count_wrong(127, 0), 0);
    CHECK_EQ(count_wrong(1, 0), 0);
    CHECK_EQ(count_wrong(190, 0x80000000u), 0);
    CHECK_EQ(count_wrong(LARGEST_EXPONENT, 0), 0);
}

/* Every exponent with some mantissas, those at the ends of pieces among them. */
static void
test_every_exponent(void)
{
    for (uint32_t exponent = 1; exponent <= LARGEST_EXPONENT; exponent++)
        for (uint32_t m = 0; m < MANTISSAS; m += m % 65536 == 0 ? 65535 : 1) {
            const float value = berthi_core_float(exponent << 23 | m);

            CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(value)),
                     berthi_core_bits(recorded_reciprocal(deltas, value)));
        }
}

/* Above 2^126 nothing is left but a zero. */
static void
test_results_that_are_flushed(void)
{
    for (uint32_t bits = 0x7E800001u; bits < 0x7F800000u; bits += bits % 4096 == 0 ? 1 : 4095) {
        CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(berthi_core_float(bits))), 0);
        CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(
                     berthi_core_float(0x80000000u | bits))),
                 0x80000000u);
    }
}

/* ----------------------------------------------------------------------- facts */

/* "# exponent 1: equal 7280086, +1 733799, -1 374723, more 0; ..." */
static bool
check_exponent(const char *line)
{
    unsigned exponent;
    unsigned counts[4];
    unsigned got[4] = { 0 };

    if (sscanf(line, "# exponent %u: equal %u, +1 %u, -1 %u, more %u;", &exponent, &counts[0],
               &counts[1], &counts[2], &counts[3])
            != 5
        || exponent > LARGEST_EXPONENT)
        return false;
    for (uint32_t m = 0; m < MANTISSAS; m++) {
        const float value = berthi_core_float(exponent << 23 | m);
        const uint32_t ulps = berthi_core_bits(berthi_core_reciprocal(value))
                              - berthi_core_bits(1.0f / value);

        got[ulps == 0 ? 0 : ulps == 1 ? 1 : ulps == UINT32_MAX ? 2 : 3]++;
    }
    CHECK_MEM(got, counts, sizeof got);
    return true;
}

/* "# rcp(7e800001) = 00000000" */
static bool
check_special(const char *line)
{
    unsigned value;
    unsigned result;

    if (sscanf(line, "# rcp(%x) = %x", &value, &result) != 2)
        return false;
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(berthi_core_float(value))), result);
    return true;
}

/* Of mantissas of ten bits, 32 a line: all that bf16 and fp16 have. */
static uint32_t
check_short_mantissas(const char *line, uint32_t first)
{
    uint32_t k = first;
    char *end;

    for (const char *at = line;; at = end) {
        const long ulps = strtol(at, &end, 10);
        const float value = berthi_core_float(0x3F800000u | k << 13);

        if (end == at)
            return k;
        CHECK_EQ((long)berthi_core_bits(berthi_core_reciprocal(value))
                     - (long)berthi_core_bits(1.0f / value),
                 ulps);
        k++;
    }
}

static void
test_recorded_facts(void)
{
    size_t bytes;
    char *const text = fixture_read(RECORDED_FOLDER "rcp10.txt", &bytes);
    uint32_t exponents = 0;
    uint32_t specials = 0;
    uint32_t mantissas = 0;

    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        exponents += check_exponent(line);
        specials += check_special(line);
        if (line[0] != '#')
            mantissas = check_short_mantissas(line, mantissas);
    }
    CHECK_EQ(exponents, 11);
    CHECK_EQ(specials, 14);
    CHECK_EQ(mantissas, 1024);
    free(text);
}

/* ----------------------------------------------------------------------- codes */

#define BLOCK 256u /* values under one maximum; four blocks of 64 with the same one */

/* Borders between codes, scaled: what is beside them is told apart by an ulp. */
typedef struct borders {
    float at[255];
    uint32_t count;
} borders;

static borders
borders_of(const recorded_weight *w)
{
    borders b = { .count = w->map != NULL                          ? 255
                           : w->encoding == BERTH_ENCODING_FP4 ? 7
                                                                : 15 };

    for (uint32_t k = 0; k < b.count; k++)
        b.at[k] = w->map != NULL ? berthi_core_map_border(w->map, k)
                                 : berthi_core_float(w->encoding == BERTH_ENCODING_FP4
                                                         ? berthi_fp4_thresholds[k]
                                                         : berthi_nf4_thresholds[k]);
    return b;
}

/* The maximum first, in every 64; then neighbours of borders. */
static void
fill_block(float *x, const borders *b, float maximum, uint64_t *state)
{
    for (uint32_t i = 0; i < BLOCK; i++) {
        const float beside = b->at[i % b->count] * maximum;
        const uint64_t random = random_next(state);

        x[i] = i % 64 == 0 ? maximum
                           : berthi_core_float(berthi_core_bits(beside) + (uint32_t)(random % 4)
                                               - 1);
        if (b->count == 7 && i % 64 != 0 && (random >> 8) % 2 == 0) /* borders of magnitudes */
            x[i] = -x[i];
    }
}

typedef struct coded {
    uint8_t codes[BLOCK];
    float absmax[BLOCK / 64];
} coded;

typedef void encode_function(const berthi_operations *level, const float *x, coded *out);

static void
encode_nf4(const berthi_operations *level, const float *x, coded *out)
{
    level->encode_nf4(&(berthi_encode_arguments){ x, BERTH_F32, 64, BLOCK, NULL, out->codes,
                                                  out->absmax });
}

static void
encode_fp4(const berthi_operations *level, const float *x, coded *out)
{
    level->encode_fp4(&(berthi_encode_arguments){ x, BERTH_F32, 64, BLOCK, NULL, out->codes,
                                                  out->absmax });
}

static void
encode_map(const berthi_operations *level, const float *x, coded *out)
{
    level->encode_map(&(berthi_encode_arguments){ x, BERTH_F32, 64, BLOCK, berthi_signed_map,
                                                  out->codes, out->absmax });
}

static void
encode_double(const berthi_operations *level, const float *x, coded *out)
{
    float scratch[BERTHI_DOUBLE_SCRATCH];

    level->encode_double(&(berthi_double_arguments){
        .absmax = x, .count = BLOCK, .codes = out->codes, .absmax2 = out->absmax,
        .scratch = scratch });
}

/* The codes by the recorded reciprocal; counts those that the rounded one would change. */
static uint64_t
expect(const recorded_weight *w, const float *x, uint8_t *codes)
{
    const float inverse = recorded_reciprocal(deltas, x[0]);
    uint64_t changed = 0;

    memset(codes, 0, BLOCK);
    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint8_t code = recorded_code(w, x[i], inverse);

        changed += code != recorded_code(w, x[i], 1.0f / x[0]) ? 1u : 0u;
        if (w->map != NULL)
            codes[i] = code;
        else
            codes[i / 2] = (uint8_t)(i % 2 == 0 ? code << 4 : codes[i / 2] | code);
    }
    return changed;
}

/* Every `step`th mantissa, on every level. */
static void
check_codes(const recorded_weight *w, encode_function *encode, uint32_t step)
{
    const borders b = borders_of(w);
    const uint32_t bytes = w->map != NULL ? BLOCK : BLOCK / 2;
    uint64_t state = 0x9E3779B97F4A7C15u;
    const berthi_operations *const level = weights_level(0); /* one behind the other */
    uint32_t levels = 0;
    uint64_t changed = 0;

    while (weights_level(levels) != NULL)
        levels++;
    for (uint32_t m = 0; m < MANTISSAS; m += step) {
        const float maximum = berthi_core_float((100 + m % 50) << 23 | m);
        uint8_t wanted[BLOCK];
        float x[BLOCK];

        fill_block(x, &b, maximum, &state);
        changed += expect(w, x, wanted);
        for (uint32_t i = 0; i < levels; i++) {
            coded got;

            encode(&level[i], x, &got);
            if (!CHECK_MEM(got.codes, wanted, bytes))
                T_NOTE("%s: %a", level[i].level, (double)maximum);
            CHECK_MEM(&got.absmax[0], &maximum, sizeof maximum);
        }
    }
    T_NOTE("%llu codes differ from those of a rounded reciprocal",
           (unsigned long long)changed);
    CHECK_GT(changed, 1000);
}

static void
test_codes_of_nf4(void)
{
    check_codes(&(recorded_weight){ .encoding = BERTH_ENCODING_NF4 }, encode_nf4, 509);
}

static void
test_codes_of_fp4(void)
{
    check_codes(&(recorded_weight){ .encoding = BERTH_ENCODING_FP4 }, encode_fp4, 509);
}

static void
test_codes_of_blocks(void)
{
    check_codes(&(recorded_weight){ .map = berthi_signed_map }, encode_map, 4099);
}

/* The second level of double quantization: its maxima have all their bits. */
static void
test_codes_of_statistics(void)
{
    check_codes(&(recorded_weight){ .map = berthi_signed_map }, encode_double, 4099);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    deltas = recorded_open();
    T_RUN(test_every_mantissa);
    T_RUN(test_every_exponent);
    T_RUN(test_results_that_are_flushed);
    T_RUN(test_recorded_facts);
    T_RUN(test_codes_of_nf4);
    T_RUN(test_codes_of_fp4);
    T_RUN(test_codes_of_blocks);
    T_RUN(test_codes_of_statistics);
    free(deltas);
    T_MAIN_END;
}
