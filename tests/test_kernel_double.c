/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double quantization by every instruction-set level against the reference
 * loops, byte for byte: the mean and what it finds on its way, and the codes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/random.h"
#include "tests/t.h"

#define GUARD 64u

static berthi_operations level; /* under test */

/* -------------------------------------------------------------------- codes */

/* Of the first `count` blocks, as a mean leaves them. */
static berthi_extremes *
extremes_of(const float *absmax, uint64_t count)
{
    berthi_extremes *const extremes = malloc((count + 1) * sizeof *extremes);

    for (uint64_t b = 0; b < count; b++) {
        uint32_t largest = 0;
        uint32_t least = UINT32_MAX;

        for (uint64_t i = b * 256; i < b * 256 + 256; i++) {
            const uint32_t bits = berthi_core_bits(absmax[i]);

            largest = bits > largest ? bits : largest;
            least = bits < least ? bits : least;
        }
        extremes[b] =
            (berthi_extremes){ berthi_core_float(largest), berthi_core_float(least) };
    }
    return extremes;
}

static void
check_double_with(const float *absmax, uint64_t count, float offset, uint64_t extremes_count)
{
    const uint64_t blocks = (count + 255) / 256;
    uint8_t *const codes = malloc(2 * (count + GUARD));
    float *const absmax2 = malloc(2 * (blocks + 1) * sizeof(float));
    berthi_extremes *const extremes = extremes_of(absmax, extremes_count);
    float scratch[BERTHI_DOUBLE_SCRATCH];
    berthi_double_arguments a = { .absmax = absmax, .count = count, .codes = codes,
                                  .absmax2 = absmax2, .offset = offset, .scratch = scratch };

    memset(codes, 0xA5, 2 * (count + GUARD));
    memset(absmax2, 0x3F, 2 * (blocks + 1) * sizeof(float)); /* 0.7: none that stands out */
    berthi_scalar_operations.encode_double(&a);
    a.codes += count + GUARD;
    a.absmax2 += blocks + 1;
    a.extremes = extremes;
    a.extremes_count = extremes_count;
    level.encode_double(&a);
    CHECK_MEM(codes + count + GUARD, codes, count + GUARD);
    CHECK_MEM(absmax2 + blocks + 1, absmax2, (blocks + 1) * sizeof(float));
    free(codes);
    free(absmax2);
    free(extremes);
}

static void
check_double(const float *absmax, uint64_t count, float offset)
{
    check_double_with(absmax, count, offset, 0);
    check_double_with(absmax, count, offset, count / 256 / 2);
    check_double_with(absmax, count, offset, count / 256);
}

/* With an offset of 0 and a block's largest of 1, what is coded is the value itself. */
static void
test_double_around_every_border(void)
{
    enum { NEIGHBOURS = 60, FAR = 40000 };
    float *const x = malloc(sizeof(float) * 255 * (2 * NEIGHBOURS + 4) * 2);
    uint64_t count = 0;

    for (int i = 0; i < 255; i++) {
        const float middle = (berthi_core_float(berthi_signed_map[i])
                              + berthi_core_float(berthi_signed_map[i + 1])) * 0.5f;

        for (int32_t d = -NEIGHBOURS; d <= NEIGHBOURS; d++) {
            /* Neighbours one by one, then further and further away. */
            const int32_t far = d * (d < -20 || d > 20 ? FAR / NEIGHBOURS : 1);

            if (count % 256 == 0)
                x[count++] = i % 2 == 0 ? 1.0f : -1.0f;
            x[count++] = berthi_core_float(berthi_core_bits(middle) + (uint32_t)far);
        }
    }
    check_double(x, count, 0.0f);
    free(x);
}

static void
test_double_of_any_bits(void)
{
    enum { COUNT = BERTHI_DOUBLE_SCRATCH + 1000 };
    float *const x = malloc((COUNT + 8) * sizeof(float));
    uint64_t state = 11;

    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < COUNT + 8; i++) {
            const uint64_t random = random_next(&state);
            const float plain = 0.02f + (float)(random >> 40) * 0x1p-30f;

            x[i] = round % 4 == 0   ? plain
                   : round % 4 == 1 ? berthi_core_float((uint32_t)random)
                   : round % 4 == 2 ? plain * 0x1p-62f
                                    : (random % 300 == 0 ? plain : 0.5f);
        }
        check_double(x + round % 8,
                     round < 2 ? COUNT
                               : random_next(&state) % (round % 2 ? 700 : COUNT) + 1,
                     round % 4 == 0   ? 0.027f
                     : round % 4 == 3 ? 0.5f
                                      : 0.0f);
    }
    free(x);
}

/* A value more or less than whole blocks, and none. */
static void
test_double_around_blocks(void)
{
    static const uint64_t counts[] = { 0, 1, 2, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049 };
    float x[2049];
    uint64_t state = 13;

    for (int i = 0; i < 2049; i++)
        x[i] = (float)(random_next(&state) >> 40) * 0x1p-26f;
    for (int sign = 1; sign >= -1; sign -= 2) { /* negative ones have another order */
        for (int i = 0; i < 2049; i += 3)
            x[i] *= (float)sign;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            check_double(x, counts[i], 0.1f);
    }
}

/* ------------------------------------------------------------------- decode */

/* Every code several times, by the published map or by one that is not in order. */
static void
check_decoding(uint64_t count, bool is_published, uint64_t *state)
{
    const uint64_t blocks = (count + 255) / 256;
    uint8_t *const codes = malloc(count);
    float *const absmax2 = malloc(blocks * sizeof *absmax2);
    float *const out = malloc(2 * (count + GUARD) * sizeof *out);
    uint32_t map[256];
    const berthi_double_arguments a = { .codes = codes, .count = count, .absmax2 = absmax2,
                                        .offset = is_published ? 0.03125f : -1e-38f,
                                        .map = map };

    for (uint32_t i = 0; i < 256; i++) /* of odd ones some are subnormal, none is a NaN */
        map[i] = is_published ? berthi_signed_map[i]
                              : (uint32_t)(random_next(state) % 0x7F000000u)
                                    >> (i % 5 == 0 ? 8 : 0)
                                    | (i % 2) << 31;
    for (uint64_t i = 0; i < count; i++)
        codes[i] = (uint8_t)(i < 512 ? i : random_next(state) % 256);
    for (uint64_t b = 0; b < blocks; b++)
        absmax2[b] = berthi_core_float(
            (uint32_t)(random_next(state) % 0x3F800000u) >> (b % 4 == 3 ? 8 : 0));
    memset(out, 0xA5, 2 * (count + GUARD) * sizeof *out);
    berthi_scalar_operations.decode_double(&a, out);
    level.decode_double(&a, out + count + GUARD);
    CHECK_MEM(out + count + GUARD, out, (count + GUARD) * sizeof *out);
    free(codes);
    free(absmax2);
    free(out);
}

static void
test_decoding(void)
{
    uint64_t state = 29;

    for (int is_published = 0; is_published < 2; is_published++) {
        for (uint64_t count = 1; count < 70; count++)
            check_decoding(count, is_published, &state);
        for (int round = 0; round < 40; round++)
            check_decoding(random_next(&state) % 5000 + 1, is_published, &state);
    }
}

/* --------------------------------------------------------------------- mean */

/* Four rows of the mean: with and without what was there, as sums and as lanes. */
static void
check_rows(const float *values, uint64_t stride, bool is_first, bool has_lanes)
{
    enum { BLOCKS = BERTHI_MEAN_ROW / 256 };
    const uint64_t extremes_count = 3 * stride / 256 + BLOCKS;
    static float sums[2][BERTHI_MEAN_ROW + 1];
    static float lanes[2][BERTHI_MEAN_LANES + 1];
    berthi_extremes *const extremes = malloc(2 * (extremes_count + 1) * sizeof *extremes);

    memset(lanes, 0xA5, sizeof lanes);
    memset(extremes, 0xA5, 2 * (extremes_count + 1) * sizeof *extremes);
    for (int which = 0; which < 2; which++) {
        const berthi_mean_rows_arguments a = {
            .values = values, .stride = stride, .sums = sums[which], .is_first = is_first,
            .lanes = has_lanes ? lanes[which] : NULL,
            .extremes = extremes + (uint64_t)which * (extremes_count + 1) };

        for (uint32_t i = 0; i < BERTHI_MEAN_ROW + 1; i++)
            sums[which][i] = is_first ? 5.0f : 1.0f + (float)i * 0x1.1p-9f;
        (which == 0 ? &berthi_scalar_operations : &level)->add_mean_rows(&a);
    }
    CHECK_MEM(lanes[1], lanes[0], sizeof lanes[0]);
    if (!has_lanes) /* else they are nothing's */
        CHECK_MEM(sums[1], sums[0], sizeof sums[0]);
    CHECK_MEM(extremes + extremes_count + 1, extremes,
              (extremes_count + 1) * sizeof *extremes);
    for (uint64_t row = 0; row < 4; row++) {
        berthi_extremes *const expected = extremes_of(values + row * stride, BLOCKS);

        CHECK_MEM(extremes + row * (stride / 256), expected, BLOCKS * sizeof *extremes);
        free(expected);
    }
    free(extremes);
}

static void
test_rows_of_the_mean(void)
{
    enum { COUNT = 4 * 3 * BERTHI_MEAN_ROW };
    float *const x = malloc((COUNT + 8) * sizeof(float));
    uint64_t state = 17;

    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < COUNT + 8; i++) {
            const uint64_t random = random_next(&state);

            x[i] = (round % 2 == 1 && random % 500 == 0 ? -1.0f : 1.0f)
                   * berthi_core_float(0x3C000000u + (uint32_t)(random % 0x02000000u));
        }
        x[round * 300] = round % 3 == 0 ? -0.0f : INFINITY;
        for (int kind = 0; kind < 4; kind++)
            check_rows(x + round, (uint64_t)(round % 3 + 1) * BERTHI_MEAN_ROW, kind % 2,
                       kind / 2);
    }
    free(x);
}

/* A whole mean, and its help for the codes: the level's rows and those of the reference. */
static void
check_mean(const float *values, uint64_t count, uint32_t processors)
{
    float *const partial = malloc(berthi_mean_scratch(count, processors, 512) * sizeof(float));
    berthi_mean_arguments m = { .values = values, .count = count, .processors = processors,
                                .threads_per_processor = 512, .partial = partial };
    const uint64_t known = berthi_mean_extremes(&m);
    berthi_extremes *const extremes = malloc((known + 1) * sizeof *extremes);
    berthi_extremes *const expected = extremes_of(values, known);
    const float mean = berthi_mean(&m);

    m.add_rows = level.add_mean_rows;
    CHECK_EQ(berthi_core_bits(berthi_mean(&m)), berthi_core_bits(mean));
    m.extremes = extremes;
    memset(extremes + known, 0xA5, sizeof *extremes);
    memset(expected + known, 0xA5, sizeof *extremes);
    CHECK_EQ(berthi_core_bits(berthi_mean(&m)), berthi_core_bits(mean));
    CHECK_MEM(extremes, expected, (known + 1) * sizeof *extremes);
    CHECK_LE(known * 256, count);
    free(partial);
    free(extremes);
    free(expected);
}

/* Of 132 blocks the order is that of the reference, whatever the rows are added by. */
static void
test_mean(void)
{
    enum { MOST = 3 << 18 };
    static const uint64_t counts[] = { 1, 100, 2047, 2048, 8191, 8192, 8193, 16384, 131071,
                                       131072, 262144, 262147, 300000, 5 << 16, MOST };
    float *const x = malloc(MOST * sizeof(float));
    uint64_t state = 23;

    for (int i = 0; i < MOST; i++)
        x[i] = berthi_core_float(0x3C000000u
                                 + (uint32_t)(random_next(&state) % 0x02000000u));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_mean(x, counts[i], 0);
        check_mean(x, counts[i], 5);
    }
    free(x);
}

/* Sums of small whole numbers are exact in any order: each value is there, and once. */
static void
test_mean_of_whole_numbers(void)
{
    enum { MOST = 300007 };
    static const uint64_t counts[] = { 1, 3, 31, 127, 128, 129, 131, 1000, 2047, 2048, 8191,
                                       8195, 130560, 131072, 131079, 262144, MOST };
    float *const x = malloc(MOST * sizeof(float));
    float *const partial = malloc(berthi_mean_scratch(MOST, 0, 0) * sizeof(float));
    uint64_t state = 29;

    for (int i = 0; i < MOST; i++)
        x[i] = (float)(random_next(&state) % 8);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint64_t sum = 0;

        for (uint64_t k = 0; k < counts[i]; k++)
            sum += (uint64_t)x[k];
        for (uint32_t n = 0; n < 10; n++) { /* of processors, twice */
            const berthi_mean_arguments a = {
                .values = x, .count = counts[i], .processors = n / 2, .is_old_order = n % 2,
                .threads_per_processor = n / 2 > 0 ? 512 : 0, .partial = partial,
                .add_rows = level.add_mean_rows };

            CHECK_EQ(berthi_core_bits(berthi_mean(&a)),
                     berthi_core_bits((float)sum * (1.0f / (float)counts[i])));
        }
    }
    free(x);
    free(partial);
}

/* Who walks the grid elsewhere, as a GPU does, finds no sum that would tell it is another. */
static void
test_grid_of_the_mean(void)
{
    static const struct {
        berthi_mean_arguments what;
        berthi_mean_grid grid;
    } cases[] = {
        { { .count = 1 }, { 1, 1, false } },
        { { .count = 2 }, { 2, 1, false } },
        { { .count = 127 }, { 64, 1, false } },
        { { .count = 128 }, { 32, 1, true } },
        { { .count = 128, .is_old_order = 1 }, { 128, 1, false } },
        { { .count = 129, .is_old_order = 1 }, { 32, 1, true } },
        { { .count = 2047 }, { 256, 1, true } },
        { { .count = 2048 }, { 512, 1, true } },
        { { .count = 255 * 512 }, { 512, 1, true } },
        { { .count = 255 * 512 + 1 }, { 512, 16, true } }, /* 16 values or more a lane */
        { { .count = 257 * 512, .processors = 7, .threads_per_processor = 1024 },
          { 512, 14, true } }, /* as many as are at work at once */
        { { .count = 1 << 24 }, { 512, 132 * 4, true } },
        { { .count = 1 << 27 }, { 512, 1024, true } }, /* 256 values at most */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const berthi_mean_grid grid = berthi_mean_plan(&cases[i].what);

        CHECK_EQ(grid.width, cases[i].grid.width);
        CHECK_EQ(grid.blocks, cases[i].grid.blocks);
        CHECK_EQ(grid.is_vector, cases[i].grid.is_vector);
    }
}

/* Most of a large weight's blocks come with their extremes. */
static void
test_share_of_known_extremes(void)
{
    CHECK_EQ(berthi_mean_extremes(&(berthi_mean_arguments){ .count = 8191 }), 0);
    CHECK_EQ(berthi_mean_extremes(&(berthi_mean_arguments){ .count = 8192 }), 32);
    CHECK_EQ(berthi_mean_extremes(&(berthi_mean_arguments){ .count = 1 << 20 }), 4096);
    CHECK_EQ(berthi_mean_extremes(&(berthi_mean_arguments){ .count = 100 }), 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_grid_of_the_mean);
    T_RUN(test_share_of_known_extremes);
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        if (!berthi_cpu_has_level((berthi_cpu_level)i))
            continue;
        level = berthi_level_operations((berthi_cpu_level)i);
        T_NOTE("level %s", level.level);
        T_RUN(test_double_around_every_border);
        T_RUN(test_double_of_any_bits);
        T_RUN(test_double_around_blocks);
        T_RUN(test_decoding);
        T_RUN(test_rows_of_the_mean);
        T_RUN(test_mean);
        T_RUN(test_mean_of_whole_numbers);
    }
    T_MAIN_END;
}
