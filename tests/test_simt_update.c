/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the GPU's updates, and of what they need of gradients, on the host, byte
 * for byte against the plain loops: every kind, dtype and size of states, tails, odd
 * addresses, numbers of every kind; lanes ascending, descending and in a random order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/any_update.h"
#include "tests/simt_level.h"
#include "tests/random.h"
#include "tests/t.h"

#define BLOCK BERTHI_UPDATE_BLOCK
#define STATES BERTHI_UPDATE_STATES
#define MOST 10000u
#define GUARD 64u

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0x2545F4914F6CDD1Du;

enum { ORDINARY, ANY_BITS, SMALL, ZEROS, MIXED, MODES };

static float
make_number(int mode)
{
    const uint64_t random = random_next(&state);
    const float plain = (float)(int32_t)random * 0x1p-31f;

    switch (mode == MIXED ? (int)(random >> 40) % MIXED : mode) {
    case ANY_BITS: return berthi_core_float((uint32_t)(random >> 8));
    case SMALL: return plain * 0x1p-120f;
    case ZEROS: return random >> 63 != 0 ? -0.0f : 0.0f;
    default: return plain * 0.1f;
    }
}

static uint64_t
width_of(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* ------------------------------------------------------------------- updates */

/* All that an update reads and writes, guards between; at an odd place, or an even one. */
typedef struct memory {
    _Alignas(16) uint8_t parameter[(MOST + GUARD) * 4];
    _Alignas(16) uint8_t gradient[(MOST + GUARD) * 4];
    _Alignas(16) float master[MOST + GUARD];
    _Alignas(16) float values[STATES][MOST + GUARD];
    _Alignas(16) uint8_t codes[STATES][MOST + GUARD];
    float absmax[STATES][MOST / BLOCK + GUARD];
} memory;

typedef struct shape {
    uint64_t count;
    int32_t dtype;
    int32_t gradient_dtype;
    bool has_master;
    bool is_8bit;
    uint32_t odd; /* elements that everything begins behind its place; or one thing alone */
} shape;

/* Of the fifth on: one of several pieces that is alone at an odd address. */
static uint32_t
skew_of(const shape *s, uint32_t piece)
{
    if (s->odd < 4)
        return s->odd;
    return s->odd - 4 == piece ? 1 : 0;
}

static berthi_update_arguments
arguments_of(memory *m, const shape *s)
{
    berthi_update_arguments a = {
        .count = s->count,
        .parameter = m->parameter + skew_of(s, 0) * width_of(s->dtype),
        .dtype = s->dtype,
        .gradient = m->gradient + skew_of(s, 1) * width_of(s->gradient_dtype),
        .gradient_dtype = s->gradient_dtype,
        .master = s->has_master ? m->master + skew_of(s, 2) : NULL,
    };

    for (uint32_t k = 0; k < STATES; k++)
        a.state[k] = s->is_8bit ? (berthi_update_state){ NULL, m->codes[k] + skew_of(s, 3 + k),
                                                         m->absmax[k] }
                                : (berthi_update_state){ m->values[k] + skew_of(s, 3 + k),
                                                         NULL, NULL };
    return a;
}

static void
fill(memory *m, const shape *s, int mode)
{
    const berthi_update_arguments a = arguments_of(m, s);

    memset(m, 0xA5, sizeof *m);
    for (uint64_t i = 0; i < s->count; i++) {
        berthi_core_store(a.parameter, s->dtype, i,
                          make_number(mode == ANY_BITS ? mode : ORDINARY));
        berthi_core_store((void *)(uintptr_t)a.gradient, s->gradient_dtype, i,
                          make_number(mode));
        if (s->has_master)
            a.master[i] = make_number(mode);
        for (uint32_t k = 0; k < STATES; k++) {
            const float value = make_number(mode);

            if (s->is_8bit)
                a.state[k].codes[i] = (uint8_t)random_next(&state);
            else
                a.state[k].values[i] = berthi_update_is_signed(k) ? value : fabsf(value);
        }
    }
    for (uint64_t i = 0; i < (s->count + BLOCK - 1) / BLOCK && s->is_8bit; i++)
        for (uint32_t k = 0; k < STATES; k++)
            a.state[k].absmax[i] = fabsf(make_number(mode));
}

static void
check_update(const shape *s, const berthi_update_constants *c, int mode)
{
    memory *const expected = malloc(sizeof *expected);
    memory *const actual = malloc(sizeof *actual);
    berthi_update_arguments a;
    uint64_t skipped;

    T_REQUIRE(expected != NULL && actual != NULL);
    fill(expected, s, mode);
    memcpy(actual, expected, sizeof *actual);
    a = arguments_of(expected, s);
    skipped = berthi_update_plainly(&a, c);
    a = arguments_of(actual, s);
    CHECK_EQ(simt_update(&a, c), skipped);
    if (!CHECK(memcmp(actual, expected, sizeof *actual) == 0))
        T_NOTE("%s, %s, dtypes %d %d, %s, count %llu, odd %u, numbers %d",
               berthi_update_name((berthi_update_kind)c->kind),
               s->is_8bit ? "8 bits" : "32 bits", s->dtype, s->gradient_dtype,
               s->has_master ? "master" : "none", (unsigned long long)s->count, s->odd, mode);
    free(expected);
    free(actual);
}

static berthi_update_constants
constants_of(int kind, uint32_t variant)
{
    static const uint64_t steps[] = { 1, 2, 50, 1000000 };
    berthi_update_settings s = berthi_update_defaults((berthi_update_kind)kind);

    s.decay = variant % 3 == 0 ? 0.0f : 0.01f;
    s.is_coupled = variant % 3 == 1;
    s.scale = variant % 2 == 0 ? 1.0f : 0.37f;
    return berthi_update_constants_of(&s, steps[variant % 4]);
}

static bool
has_level(void)
{
    const char *why;

    if (simt_level_is_there(&why))
        return true;
    T_NOTE("skipped: %s", why);
    return false;
}

static void
set_order(uint32_t turn)
{
    simt_level_set_order((simt_order)(turn % SIMT_ORDER_COUNT), turn);
}

/* All kinds, dtypes of both, with and without a master, in 8 and 32 bits. */
static void
test_every_combination(void)
{
    static const uint64_t counts[] = { 1, 7, 8, 255, 256, 257, 600, 2048, 4097, 8192, 8500 };
    uint32_t turn = 0;

    if (!has_level())
        return;
    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (uint32_t combination = 0; combination < 36; combination++, turn++) {
            const shape s = {
                .count = counts[random_next(&state) % (T_IS_SANITIZED ? 7 : 11)],
                .dtype = dtypes[combination % 3],
                .gradient_dtype = dtypes[combination / 3 % 3],
                .has_master = combination / 9 % 2 == 1,
                .is_8bit = combination / 18 == 0,
                .odd = (uint32_t)(random_next(&state) % 10),
            };
            const berthi_update_constants c =
                constants_of(kind, (uint32_t)(random_next(&state) % 12));

            set_order(turn);
            check_update(&s, &c, (int)(turn % MODES));
        }
    T_NOTE("%u updates", turn);
}

/* Whatever a caller may ask for, of whatever numbers; the usual kernel twice as often. */
static void
test_any_constants(void)
{
    const uint32_t rounds = T_IS_SANITIZED ? 60 : 1200;

    if (!has_level())
        return;
    for (uint32_t round = 0; round < rounds; round++) {
        const bool is_usual = round % 3 != 0;
        const int kind = is_usual ? BERTHI_UPDATE_ADAMW
                                  : (int)(round / 3 % BERTHI_UPDATE_KIND_COUNT);
        const uint64_t random = random_next(&state);
        const int32_t dtype = dtypes[random % 3];
        const shape s = {
            .count = round % 4 == 0 ? 700 : 512,
            .dtype = dtype,
            .gradient_dtype = is_usual ? dtype : dtypes[(random >> 16) % 3],
            .has_master = !is_usual && random >> 63 != 0,
            .is_8bit = is_usual || random >> 62 % 2 != 0,
        };
        const berthi_update_constants c = any_update_constants(kind, &state);

        set_order(round);
        check_update(&s, &c, (int)(round / 5 % MODES));
    }
}

/* The lengths where states of 8 bits begin: of every kind, dtype and size of states. */
static void
test_every_kind_where_8_bits_begin(void)
{
    uint32_t turn = 0;

    if (!has_level())
        return;
    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (int d = 0; d < 3; d++)
            for (int bits = 8; bits <= 32; bits += 24)
                for (uint64_t count = 4095; count <= 4097; count++, turn++) {
                    const shape s = { count, dtypes[d], dtypes[d], false, bits == 8, 0 };
                    const berthi_update_constants c = constants_of(kind, turn);

                    set_order(turn);
                    check_update(&s, &c, (int)(turn % MODES));
                }
    CHECK_EQ(turn, 7 * 3 * 2 * 3);
}

/* Gradients end; states fade, in every other block through what is subnormal to zero. */
static void
fade(int kind, uint64_t count)
{
    const shape s = { count, dtypes[count % 3], dtypes[count % 3], false, true, 0 };
    static memory expected;
    static memory actual;
    berthi_update_arguments a;
    bool is_same = true;

    fill(&expected, &s, ORDINARY);
    a = arguments_of(&expected, &s);
    for (uint32_t k = 0; k < STATES; k++)
        for (uint64_t block = 1; block * BLOCK < count; block += 2)
            a.state[k].absmax[block] *= 0x1p-120f;
    for (uint64_t i = 0; i < count; i++)
        berthi_core_store((void *)(uintptr_t)a.gradient, s.dtype, i,
                          i % 3 == 0 ? -0.0f : 0.0f);
    actual = expected;
    for (uint64_t step = 2; step <= 201 && is_same; step++) {
        const berthi_update_settings settings =
            berthi_update_defaults((berthi_update_kind)kind);
        const berthi_update_constants c = berthi_update_constants_of(&settings, step);

        a = arguments_of(&expected, &s);
        (void)berthi_update_plainly(&a, &c);
        a = arguments_of(&actual, &s);
        (void)simt_update(&a, &c);
        is_same = CHECK(memcmp(&actual, &expected, sizeof actual) == 0);
        if (!is_same)
            T_NOTE("%s, count %llu, step %llu", berthi_update_name((berthi_update_kind)kind),
                   (unsigned long long)count, (unsigned long long)step);
    }
}

static void
test_no_gradient_for_long(void)
{
    if (!has_level())
        return;
    set_order(0);
    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        fade(kind, (uint64_t)((T_IS_SANITIZED ? 511 : 4095) + kind % 3));
}

/* The kernels of the usual one: all numbers, alignments, ends. */
static void
test_usual_ones(void)
{
    static const uint64_t counts[] = { 256, 4095, 4096, 4097, 300, 8193 };
    uint32_t turn = 0;

    if (!has_level())
        return;
    for (int mode = 0; mode < MODES; mode++)
        for (int d = 0; d < 3; d++)
            for (uint32_t odd = 0; odd < 10; odd++, turn++) {
                const shape s = { counts[turn % (T_IS_SANITIZED ? 1 : 6)], dtypes[d], dtypes[d],
                                  false, true, odd };
                const berthi_update_constants c =
                    constants_of(turn % 2 == 0 ? BERTHI_UPDATE_ADAM : BERTHI_UPDATE_ADAMW,
                                 turn % 4 == 0 ? 0 : 2);

                if (odd == 6 || odd == 9) /* it has no master, no third state */
                    continue;
                set_order(turn);
                check_update(&s, &c, mode);
            }
}

/*
 * Blocks with one thing in them that the short way of adam8.cuh has to see, or to stand:
 * `what` is written to the block's element 100, or to all of them.
 */
static const struct {
    uint32_t gradient; /* bits; 1: is left */
    uint32_t absmax1;
    uint32_t absmax2;
    uint32_t parameter;
    bool is_all;
} oddities[] = {
    { 0x7FC00001u, 1, 1, 1, false },        /* NaN, infinity, what overflows */
    { 0xFF800000u, 1, 1, 1, false },
    { 0x7F7F0000u, 1, 1, 1, false },
    { 0x5F000000u, 1, 1, 1, false },        /* 2^63 and 2^20: large, and ordinary yet */
    { 0x49800000u, 1, 1, 1, false },
    { 0x00000000u, 1, 1, 1, false },        /* zeros, of which states are zeros */
    { 0x80000000u, 0, 0, 1, false },
    { 0x00000000u, 0, 0, 1, true },
    { 0x80000000u, 0, 0, 0x80000000u, true },
    { 0x80000000u, 1, 1, 0x80000000u, true },
    { 0x00010000u, 0, 0, 0, true },         /* subnormal; 2^-95, 2^-85, 2^-60, 2^-40 */
    { 0x10000000u, 0, 0, 0, true },
    { 0x15000000u, 0, 0, 0, false },
    { 0x15000000u, 0, 0, 0, true },
    { 0x21800000u, 0, 0, 0, true },
    { 0x2B800000u, 0, 0, 0x80000000u, true },
    { 0x2B800000u, 0x00400000u, 1, 0, true }, /* absmax: subnormal, 2^-85, 2^65, none */
    { 1, 0x15000000u, 1, 0, true },
    { 1, 0x60000000u, 1, 1, true },
    { 1, 0x7F800000u, 1, 1, true },
    { 1, 0xFFC00000u, 1, 1, true },
    { 1, 1, 0x00400000u, 1, true },
    { 0, 1, 0x00000001u, 1, true },
    { 1, 1, 0x7F800000u, 1, true },
    { 1, 1, 0x7FC00000u, 1, true },
    { 1, 1, 0xBF800000u, 1, true },
    { 1, 1, 1, 0x7FC10000u, false },        /* a parameter that is none */
    { 1, 1, 1, 0xFF800000u, false },
    { 1, 1, 1, 1, false },
};

static void
make_odd(const berthi_update_arguments *a, uint64_t block, size_t kind)
{
    const uint64_t first = block * BLOCK;
    const uint64_t end = first + BLOCK < a->count ? first + BLOCK : a->count;

    for (uint64_t i = first; i < end; i++) {
        if (!oddities[kind].is_all && i != first + 100)
            continue;
        if (oddities[kind].gradient != 1)
            berthi_core_store((void *)(uintptr_t)a->gradient, a->dtype, i,
                              berthi_core_float(oddities[kind].gradient));
        if (oddities[kind].parameter != 1)
            berthi_core_store(a->parameter, a->dtype, i,
                              berthi_core_float(oddities[kind].parameter));
    }
    if (oddities[kind].absmax1 != 1)
        a->state[0].absmax[block] = berthi_core_float(oddities[kind].absmax1);
    if (oddities[kind].absmax2 != 1)
        a->state[1].absmax[block] = berthi_core_float(oddities[kind].absmax2);
}

static void
check_odd_blocks(const shape *s, const berthi_update_constants *c)
{
    static memory expected;
    static memory actual;
    berthi_update_arguments a;
    uint64_t skipped;

    fill(&expected, s, ORDINARY);
    a = arguments_of(&expected, s);
    for (uint64_t block = 0; block * BLOCK < s->count; block++)
        make_odd(&a, block, block % (sizeof oddities / sizeof oddities[0]));
    actual = expected;
    skipped = berthi_update_plainly(&a, c);
    a = arguments_of(&actual, s);
    CHECK_EQ(simt_update(&a, c), skipped);
    for (uint64_t block = 0; block * BLOCK < s->count; block++)
        if (!CHECK(memcmp(actual.codes[0] + block * BLOCK, expected.codes[0] + block * BLOCK,
                          BLOCK) == 0
                   && memcmp(actual.parameter + block * BLOCK * width_of(s->dtype),
                             expected.parameter + block * BLOCK * width_of(s->dtype),
                             BLOCK * width_of(s->dtype))
                          == 0))
            T_NOTE("oddity %u of dtype %d", (unsigned)(block % (sizeof oddities
                                                                / sizeof oddities[0])),
                   s->dtype);
    CHECK(memcmp(&actual, &expected, sizeof actual) == 0);
}

static void
test_odd_blocks(void)
{
    if (!has_level())
        return;
    for (int d = 0; d < 3; d++)
        for (uint32_t variant = 0; variant < 6; variant += 2) {
            const shape s = { MOST, dtypes[d], dtypes[d], false, true, 0 };
            berthi_update_constants c = constants_of(BERTHI_UPDATE_ADAMW, variant);

            set_order(variant / 2);
            for (uint32_t turns = 2; turns <= 4; turns++) {
                simt_level_set_turns(turns % 4);
                check_odd_blocks(&s, &c);
            }
            c.beta1 = 0.0f; /* no mean at all, and constants that are for the long way */
            c.rest1 = 1.0f;
            check_odd_blocks(&s, &c);
            c.epsilon = 0.0f;
            check_odd_blocks(&s, &c);
        }
}

/*
 * A mean so small that it vanishes beside a gradient's share, which lies in the middle of two
 * numbers: which of them it is says whether the mean was rounded to 0 before.
 */
static void
test_means_that_vanish(void)
{
    const shape s = { BLOCK, BERTH_F32, BERTH_F32, false, true, 0 };
    const berthi_update_constants c = constants_of(BERTHI_UPDATE_ADAMW, 2);
    static memory expected;
    static memory actual;
    berthi_update_arguments a;

    if (!has_level())
        return;
    for (uint32_t bits = 0; bits < 24; bits++) {
        fill(&expected, &s, ORDINARY);
        a = arguments_of(&expected, &s);
        a.state[0].absmax[0] = berthi_core_float(UINT32_C(1) << bits);
        for (uint32_t i = 0; i < BLOCK; i++)
            ((float *)(uintptr_t)a.gradient)[i] = i % 2 == 0 ? 0x1.08p-1f : -0x1.08p-1f;
        actual = expected;
        (void)berthi_update_plainly(&a, &c);
        a = arguments_of(&actual, &s);
        (void)simt_update(&a, &c);
        CHECK(memcmp(&actual, &expected, sizeof actual) == 0);
    }
}

/* Of the borders between codes: momentum's state is the gradient. */
static void
test_codes_around_every_border(void)
{
    static float gradient[BLOCK * 32];
    static float parameter[2][BLOCK * 32];
    static uint8_t codes[2][BLOCK * 32];
    static float absmax[2][32];
    const berthi_update_constants c = constants_of(BERTHI_UPDATE_MOMENTUM, 0);

    if (!has_level())
        return;
    for (uint32_t block = 0; block < 32; block++)
        for (uint32_t i = 0; i < BLOCK; i++) {
            const float border =
                i < 255 ? berthi_core_map_border(berthi_signed_map, i) : 1.0f;
            const int32_t off = i < 255 ? (int32_t)block - 16 : 0;

            gradient[block * BLOCK + i] =
                berthi_core_float(berthi_core_bits(border) + (uint32_t)off);
        }
    for (int k = 0; k < 2; k++) {
        const berthi_update_arguments a = {
            .count = BLOCK * 32, .parameter = parameter[k], .dtype = BERTH_F32,
            .gradient = gradient, .gradient_dtype = BERTH_F32,
            .state = { { NULL, codes[k], absmax[k] } }
        };

        if (k == 0)
            CHECK_EQ(berthi_update_plainly(&a, &c), 0);
        else
            CHECK_EQ(simt_update(&a, &c), 0);
    }
    CHECK_MEM(codes[1], codes[0], sizeof codes[0]);
    CHECK_MEM(absmax[1], absmax[0], sizeof absmax[0]);
}

/* ----------------------------------------------------------------- gradients */

typedef struct room {
    _Alignas(16) uint8_t bytes[(MOST + GUARD) * 4];
} room;

static void *
fill_room(room *r, int32_t dtype, uint32_t odd, uint64_t count, int mode)
{
    uint8_t *const values = r->bytes + odd * width_of(dtype);

    memset(r, 0xA5, sizeof *r);
    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(values, dtype, i, make_number(mode));
    return values;
}

static void
test_measures(void)
{
    static const uint64_t counts[] = { 1, 31, 33, 4095, 4096, 4097, 8192, 9999 };
    static room r;
    uint32_t turn = 0;

    if (!has_level())
        return;
    for (int mode = 0; mode < MODES; mode++)
        for (int d = 0; d < 3; d++)
            for (int c = 0; c < 8; c++, turn++) {
                berthi_gradient_sum expected[4];
                berthi_gradient_sum actual[4];
                berthi_measure_arguments a =
                    { counts[c], fill_room(&r, dtypes[d], turn % 2, counts[c], mode),
                      dtypes[d], expected };

                memset(expected, 0xA5, sizeof expected);
                memset(actual, 0xA5, sizeof actual);
                berthi_measure_plainly(&a);
                a.sums = actual;
                set_order(turn);
                simt_measure(&a);
                CHECK_MEM(actual, expected, sizeof actual);
            }
}

static void
test_sums(void)
{
    static const uint64_t counts[] = { 1, 8, 9, 2047, 2048, 2500 };
    static room expected;
    static room actual;
    static room gradient;
    uint32_t turn = 0;

    if (!has_level())
        return;
    for (int mode = 0; mode < MODES; mode++)
        for (int d = 0; d < 9; d++)
            for (int c = 0; c < 6; c++, turn++) {
                const uint32_t odd = turn / 2 % 4 == 3 ? 1 : 0;
                berthi_accumulate_arguments a =
                    { counts[c],
                      fill_room(&expected, dtypes[d % 3], odd, counts[c], mode),
                      dtypes[d % 3],
                      dtypes[d / 3],
                      fill_room(&gradient, dtypes[d / 3], turn % 5 == 4 ? 1 : 0, counts[c],
                                mode),
                      turn % 3 == 0 ? 1.0f : -0.7f };

                actual = expected;
                berthi_accumulate_plainly(&a);
                a.sum = actual.bytes + ((uint8_t *)a.sum - expected.bytes);
                set_order(turn);
                simt_accumulate(&a);
                CHECK(memcmp(&actual, &expected, sizeof actual) == 0);
            }
}

/* ------------------------------------------------------------------ launches */

static void
test_launches(void)
{
    static _Alignas(16) float memory_of_all[64];
    const shape s = { 8192, BERTH_BF16, BERTH_BF16, false, true, 0 };
    berthi_update_request r = {
        .arguments = { .count = s.count, .parameter = memory_of_all, .dtype = BERTH_BF16,
                       .gradient_dtype = BERTH_BF16, .gradient = memory_of_all,
                       .state = { { NULL, (uint8_t *)memory_of_all, memory_of_all },
                                  { NULL, (uint8_t *)memory_of_all, memory_of_all } } },
        .constants = constants_of(BERTHI_UPDATE_ADAMW, 2),
    };
    berthi_launch l;

    CHECK_EQ(berthi_launch_update(&r, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_update_bf16_adam8);
    CHECK_EQ(l.threads, UPDATE_THREADS);
    CHECK_EQ(l.ctas, 2);
    CHECK(l.argument.update.is_aligned);
    CHECK(l.argument.update.is_usual);
    r.arguments.count++;
    r.constants = constants_of(BERTHI_UPDATE_ADAM, 1); /* coupled */
    CHECK_EQ(berthi_launch_update(&r, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_update_bf16);
    CHECK_EQ(l.ctas, 3);
    r.arguments.count = 0;
    CHECK_EQ(berthi_launch_update(&r, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    r.arguments.count = UINT64_MAX;
    CHECK_EQ(berthi_launch_update(&r, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    r.arguments.dtype = BERTH_U8;
    CHECK_EQ(berthi_launch_update(&r, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(berthi_launch_measure(&(berthi_measure_arguments){ .dtype = BERTH_U8 }, &l, NULL),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_accumulate(
                 &(berthi_accumulate_arguments){ .sum_dtype = BERTH_U8 }, &l, NULL),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_LE(sizeof l.argument, 4096); /* of which a launch holds no more */
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_launches);
    T_RUN(test_every_combination);
    T_RUN(test_any_constants);
    T_RUN(test_every_kind_where_8_bits_begin);
    T_RUN(test_no_gradient_for_long);
    T_RUN(test_usual_ones);
    T_RUN(test_odd_blocks);
    T_RUN(test_means_that_vanish);
    T_RUN(test_codes_around_every_border);
    T_RUN(test_measures);
    T_RUN(test_sums);
    T_MAIN_END;
}
