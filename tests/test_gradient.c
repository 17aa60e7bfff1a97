/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients measured and added up, and states converted, by the plain loops against
 * their descriptions written down once more, and by every level against the plain loops,
 * byte for byte: all dtypes, odd lengths and addresses, numbers of every kind.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/random.h"
#include "tests/t.h"

#define BLOCK BERTHI_GRADIENT_BLOCK
#define MOST (4 * BLOCK)
#define GUARD 64u

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static const uint64_t counts[] = { 0,    1,    31,       32,       33,    255,
                                   256,  257,  4095,     4096,     4097,  4128,
                                   8191, 8192, 8192 + 7, 3 * 4096, 16000, MOST };
#define COUNTS (sizeof counts / sizeof *counts)

static const berthi_operations *level; /* that is tested */

enum { ORDINARY, ANY_BITS, SMALL, LARGE, ONE_NAN, MODES };

static float
make_number(uint64_t *state, int mode)
{
    const uint64_t random = random_next(state);
    const float plain = (float)(int32_t)random * 0x1p-31f;

    switch (mode) {
    case ANY_BITS: return berthi_core_float((uint32_t)(random >> 16));
    case SMALL: return plain * 0x1p-130f;
    case LARGE: return plain * 0x1.fffffep127f;
    case ONE_NAN: return random >> 32 < 1u << 20 ? NAN : plain;
    default: return plain;
    }
}

/* Room for values of any dtype that begin at an odd place, guards around. */
typedef struct room {
    uint8_t bytes[GUARD + 4 * MOST + GUARD];
} room;

static void *
values_in(room *r, int32_t dtype, uint32_t skew)
{
    return r->bytes + GUARD / 2 + skew * (dtype == BERTH_F32 ? 4 : 2);
}

static void
fill(room *r, int32_t dtype, uint32_t skew, uint64_t count, int mode, uint64_t *state)
{
    memset(r, 0xA5, sizeof *r);
    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(values_in(r, dtype, skew), dtype, i, make_number(state, mode));
}

/* ------------------------------------------------------------------ measures */

/* As the header says, by what comes to a lane instead of lane by lane. */
static berthi_gradient_sum
describe_block(const void *gradient, int32_t dtype, uint64_t first, uint64_t end)
{
    berthi_gradient_sum sum = { 0.0, 0 };
    double at[32];

    for (uint64_t lane = 0; lane < 32; lane++) {
        at[lane] = 0.0;
        for (uint64_t i = first + lane; i < end; i += 32) {
            const double value = berthi_core_load(gradient, dtype, i);

            if (isfinite(value))
                at[lane] = at[lane] + pow(value, 2);
            else
                sum.not_finite++;
        }
    }
    for (uint64_t lane = 0; lane < 16; lane++)
        at[lane] = at[lane] + at[lane + 16];
    for (uint64_t lane = 0; lane < 8; lane++)
        at[lane] = at[lane] + at[lane + 8];
    sum.squares = ((at[0] + at[4]) + (at[2] + at[6])) + ((at[1] + at[5]) + (at[3] + at[7]));
    return sum;
}

static void
test_measures_as_described(void)
{
    room *const r = malloc(sizeof *r);
    uint64_t state = 21;
    uint64_t blocks = 0;

    for (int mode = 0; mode < MODES; mode++)
        for (size_t c = 0; c < COUNTS; c++) {
            const int32_t dtype = dtypes[(c + (size_t)mode) % 3];
            berthi_gradient_sum sums[MOST / BLOCK + 1];
            berthi_gradient_sum total = { 0.0, 0 };
            const berthi_measure_arguments a = { counts[c], values_in(r, dtype, 1), dtype, sums };
            uint64_t k = 0;

            memset(sums, 0xA5, sizeof sums);
            fill(r, dtype, 1, counts[c], mode, &state);
            berthi_measure_plainly(&a);
            for (; k * BLOCK < counts[c]; k++, blocks++) {
                const uint64_t end = (k + 1) * BLOCK;
                const berthi_gradient_sum s =
                    describe_block(a.gradient, dtype, k * BLOCK,
                                   end < counts[c] ? end : counts[c]);

                CHECK_MEM(&sums[k].squares, &s.squares, sizeof s.squares);
                CHECK_EQ(sums[k].not_finite, s.not_finite);
                total.squares = total.squares + s.squares;
                total.not_finite += s.not_finite;
            }
            CHECK_EQ(((uint8_t *)&sums[k])[0], 0xA5);
            CHECK(berthi_gradient_total(sums, k).squares == total.squares);
            CHECK_EQ(berthi_gradient_total(sums, k).not_finite, total.not_finite);
        }
    T_NOTE("%llu blocks", (unsigned long long)blocks);
    free(r);
}

/* What is lost beside a large number in its lane is not in a lane of its own. */
static void
test_order_is_seen(void)
{
    static float values[BLOCK];
    berthi_gradient_sum sum;
    const berthi_measure_arguments a = { BLOCK, values, BERTH_F32, &sum };

    for (uint32_t lane = 3; lane <= 4; lane++) {
        memset(values, 0, sizeof values);
        for (uint32_t row = 0; row < BLOCK / 32; row++)
            values[32 * row + lane] = 2.0f;
        values[3] = 0x1p30f;
        berthi_measure_plainly(&a);
        CHECK(sum.squares == (lane == 3 ? 0x1p60 : 0x1p60 + 512.0));
        CHECK_EQ(sum.not_finite, 0);
    }
}

static void
test_measures_of_level(void)
{
    room *const r = malloc(sizeof *r);
    uint64_t state = 22;

    for (int mode = 0; mode < MODES; mode++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int d = 0; d < 3; d++) {
                const uint32_t skew = (uint32_t)(random_next(&state) % 8);
                berthi_gradient_sum expected[MOST / BLOCK + 1];
                berthi_gradient_sum actual[MOST / BLOCK + 1];
                berthi_measure_arguments a =
                    { counts[c], values_in(r, dtypes[d], skew), dtypes[d], expected };

                memset(expected, 0xA5, sizeof expected);
                memset(actual, 0xA5, sizeof actual);
                fill(r, dtypes[d], skew, counts[c], mode, &state);
                berthi_measure_plainly(&a);
                a.sums = actual;
                level->measure(&a);
                if (!CHECK_MEM(actual, expected, sizeof actual))
                    T_NOTE("%llu of dtype %d, numbers %d", (unsigned long long)counts[c],
                           dtypes[d], mode);
            }
    free(r);
}

/* ---------------------------------------------------------------------- sums */

static void
test_sums_as_described(void)
{
    enum { COUNT = 300 };
    room *const sum = malloc(sizeof *sum);
    room *const gradient = malloc(sizeof *gradient);
    room *const before = malloc(sizeof *before); /* and after */
    uint64_t state = 23;

    for (int turn = 0; turn < 9 * MODES; turn++) {
        const int32_t sum_dtype = dtypes[turn % 3];
        const int32_t dtype = dtypes[turn / 3 % 3];
        const float scale = turn % 2 == 0 ? 1.0f : 0.3f;
        const berthi_accumulate_arguments a = {
            COUNT, values_in(sum, sum_dtype, 1), sum_dtype, dtype, values_in(gradient, dtype, 3),
            scale
        };

        fill(sum, sum_dtype, 1, COUNT, turn / 9, &state);
        fill(gradient, dtype, 3, COUNT, turn / 9, &state);
        *before = *sum;
        berthi_accumulate_plainly(&a);
        for (uint64_t i = 0; i < COUNT; i++) {
            const double product = scale * berthi_core_load(a.gradient, dtype, i);
            const double exact =
                berthi_core_load(values_in(before, sum_dtype, 1), sum_dtype, i)
                + (double)(float)product;

            berthi_core_store(values_in(before, sum_dtype, 1), sum_dtype, i,
                              isnan(exact) ? berthi_core_float(0x7FFFFFFF) : (float)exact);
        }
        CHECK(memcmp(sum, before, sizeof *sum) == 0);
    }
    free(sum);
    free(gradient);
    free(before);
}

static void
test_sums_of_level(void)
{
    room *const expected = malloc(sizeof *expected);
    room *const actual = malloc(sizeof *actual);
    room *const gradient = malloc(sizeof *gradient);
    uint64_t state = 24;

    for (int mode = 0; mode < MODES; mode++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int d = 0; d < 9; d++) {
                const int32_t sum_dtype = dtypes[d % 3];
                const int32_t dtype = dtypes[d / 3];
                const uint32_t skew = (uint32_t)(random_next(&state) % 8);
                berthi_accumulate_arguments a = { counts[c],
                                                  values_in(expected, sum_dtype, skew),
                                                  sum_dtype,
                                                  dtype,
                                                  values_in(gradient, dtype, 7 - skew),
                                                  c % 2 == 0 ? 1.0f : -0.7f };

                fill(expected, sum_dtype, skew, counts[c], mode, &state);
                fill(gradient, dtype, 7 - skew, counts[c], mode, &state);
                *actual = *expected;
                berthi_accumulate_plainly(&a);
                a.sum = values_in(actual, sum_dtype, skew);
                level->accumulate(&a);
                if (!CHECK(memcmp(actual, expected, sizeof *actual) == 0))
                    T_NOTE("%llu of dtypes %d += %d, numbers %d",
                           (unsigned long long)counts[c], sum_dtype, dtype, mode);
            }
    free(expected);
    free(actual);
    free(gradient);
}

/* -------------------------------------------------------------------- states */

typedef struct states {
    float values[GUARD + MOST + GUARD];
    uint8_t codes[GUARD + MOST + GUARD];
    float absmax[GUARD + MOST / BERTHI_UPDATE_BLOCK + GUARD];
} states;

static berthi_state_arguments
state_of(states *s, uint64_t count, bool is_signed)
{
    return (berthi_state_arguments){ count, is_signed, s->values + GUARD / 2 + 1,
                                     s->codes + GUARD / 2 + 3, s->absmax + GUARD / 2 };
}

static void
fill_states(states *s, uint64_t count, int mode, uint64_t *state)
{
    memset(s, 0xA5, sizeof *s);
    for (uint64_t i = 0; i < count; i++) {
        state_of(s, count, true).values[i] = make_number(state, mode);
        state_of(s, count, true).codes[i] = (uint8_t)random_next(state);
        state_of(s, count, true).absmax[i / BERTHI_UPDATE_BLOCK] = make_number(state, mode);
    }
}

static void
test_states_of_level(void)
{
    states *const expected = malloc(sizeof *expected);
    states *const actual = malloc(sizeof *actual);
    uint64_t state = 25;

    for (int mode = 0; mode < MODES; mode++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int way = 0; way < 4; way++) {
                const bool is_signed = way % 2 == 0;
                const berthi_state_arguments a = state_of(expected, counts[c], is_signed);
                const berthi_state_arguments b = state_of(actual, counts[c], is_signed);

                fill_states(expected, counts[c], mode, &state);
                *actual = *expected;
                if (way < 2) {
                    berthi_encode_state_plainly(&a);
                    level->encode_state(&b);
                } else {
                    berthi_decode_state_plainly(&a);
                    level->decode_state(&b);
                }
                if (!CHECK(memcmp(actual, expected, sizeof *actual) == 0))
                    T_NOTE("%llu %s, %s, numbers %d", (unsigned long long)counts[c],
                           way < 2 ? "encoded" : "decoded",
                           is_signed ? "signed" : "unsigned", mode);
            }
    free(expected);
    free(actual);
}

/*
 * An update in 8 bits from nothing keeps what the same one in 32 bits keeps, once that
 * is encoded; and what is decoded is what the next one reads: of a gradient of zero it
 * makes the same parameters.
 */
static void
check_update(int kind, uint64_t count, uint64_t *state)
{
    static states in8[BERTHI_UPDATE_STATES];
    static states in32[BERTHI_UPDATE_STATES];
    static float gradient[MOST];
    static float parameters[2][MOST];
    const berthi_update_settings settings = berthi_update_defaults((berthi_update_kind)kind);
    const uint32_t state_count = berthi_update_states((berthi_update_kind)kind);
    berthi_update_arguments a = { .count = count, .dtype = BERTH_F32,
                                  .gradient_dtype = BERTH_F32, .gradient = gradient };
    berthi_update_arguments b = a;

    memset(in8, 0, sizeof in8);
    memset(in32, 0, sizeof in32);
    memset(parameters, 0, sizeof parameters);
    a.parameter = parameters[0];
    b.parameter = parameters[1];
    for (uint64_t i = 0; i < count; i++)
        gradient[i] = make_number(state, ORDINARY);
    for (uint32_t k = 0; k < state_count; k++) {
        const berthi_state_arguments s = state_of(&in8[k], count, berthi_update_is_signed(k));

        a.state[k] = (berthi_update_state){ NULL, s.codes, s.absmax };
        b.state[k].values = state_of(&in32[k], count, berthi_update_is_signed(k)).values;
    }
    for (uint64_t step = 1; step <= 2; step++) {
        const berthi_update_constants c = berthi_update_constants_of(&settings, step);

        level->update(&a, &c);
        level->update(&b, &c);
        CHECK_MEM(parameters[0], parameters[1], sizeof parameters[0]);
        for (uint32_t k = 0; k < state_count && step == 1; k++) {
            const berthi_state_arguments s = state_of(&in32[k], count, berthi_update_is_signed(k));

            level->encode_state(&s);
            CHECK_MEM(in32[k].codes, in8[k].codes, sizeof in8[k].codes);
            CHECK_MEM(in32[k].absmax, in8[k].absmax, sizeof in8[k].absmax);
            level->decode_state(&s);
        }
        memset(gradient, 0, sizeof gradient);
    }
}

static void
test_states_are_the_updates(void)
{
    uint64_t state = 26;

    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (uint64_t count = 200; count < 9000; count += 1999)
            check_update(kind, count, &state);
}

static void
test_refusals(void)
{
    const berthi_measure_arguments m = { .dtype = BERTH_U8 };
    berthi_accumulate_arguments a = { .sum_dtype = BERTH_F16, .dtype = BERTH_I64 };
    berth_error error;

    CHECK_EQ(berthi_measure_check(&m, &error), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "no gradient is of dtype ");
    for (int i = 0; i < 3; i++)
        CHECK_EQ(berthi_measure_check(&(berthi_measure_arguments){ .dtype = dtypes[i] }, NULL),
                 BERTH_OK);
    CHECK_EQ(berthi_accumulate_check(&a, &error), BERTH_EUNSUPPORTED);
    a.dtype = BERTH_BF16;
    CHECK_EQ(berthi_accumulate_check(&a, &error), BERTH_OK);
    a.sum_dtype = BERTH_I64;
    CHECK_EQ(berthi_accumulate_check(&a, &error), BERTH_EUNSUPPORTED);
}

int
main(int argc, char **argv)
{
    berthi_operations all = berthi_level_operations(BERTHI_CPU_SCALAR);

    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_refusals);
    T_RUN(test_measures_as_described);
    T_RUN(test_order_is_seen);
    T_RUN(test_sums_as_described);
    level = &all;
    T_RUN(test_states_are_the_updates);
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        void (*const before)(const berthi_measure_arguments *) = all.measure;

        if (!berthi_cpu_has_level((berthi_cpu_level)i))
            continue;
        all = berthi_level_operations((berthi_cpu_level)i);
        if (all.measure == berthi_measure_plainly || all.measure == before)
            continue;
        T_NOTE("level %s", all.level);
        T_RUN(test_measures_of_level);
        T_RUN(test_sums_of_level);
        T_RUN(test_states_of_level);
        T_RUN(test_states_are_the_updates);
    }
    T_MAIN_END;
}
