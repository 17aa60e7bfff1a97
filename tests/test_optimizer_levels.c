/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates of every instruction-set level against the plain loops, byte for byte: all
 * kinds, dtypes, sizes of states, decays, odd lengths, extreme numbers, shares.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/any_update.h"
#include "tests/random.h"
#include "tests/t.h"

#define BLOCK BERTHI_UPDATE_BLOCK
#define STATES BERTHI_UPDATE_STATES
#define MOST (3 * 4096u)
#define GUARD 64u

typedef uint64_t update_function(const berthi_update_arguments *arguments,
                                 const berthi_update_constants *constants);

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* --------------------------------------------------------------------- cases */

/* All that an update reads and writes, in one block of bytes, guards between. */
typedef struct memory {
    uint8_t parameter[MOST * 4 + GUARD];
    uint8_t gradient[MOST * 4 + GUARD];
    float master[MOST + GUARD];
    float values[STATES][MOST + GUARD];
    uint8_t codes[STATES][MOST + GUARD];
    float absmax[STATES][MOST / BLOCK + GUARD];
} memory;

typedef struct shape {
    uint64_t count;
    int32_t dtype;
    int32_t gradient_dtype;
    bool has_master;
    bool is_8bit;
} shape;

/* What numbers there are: see make_number(). */
enum { ORDINARY, ANY_BITS, SMALL, ZEROS, LARGE, MIXED, MODES };

static berthi_update_arguments
arguments_of(memory *m, const shape *s)
{
    berthi_update_arguments a = {
        .count = s->count,
        .parameter = m->parameter,
        .dtype = s->dtype,
        .gradient = m->gradient,
        .gradient_dtype = s->gradient_dtype,
        .master = s->has_master ? m->master : NULL,
    };

    for (uint32_t k = 0; k < STATES; k++)
        a.state[k] = s->is_8bit
                         ? (berthi_update_state){ NULL, m->codes[k], m->absmax[k] }
                         : (berthi_update_state){ m->values[k], NULL, NULL };
    return a;
}

static float
make_number(uint64_t *state, int mode)
{
    const uint64_t random = random_next(state);
    const float plain = (float)(int32_t)random * 0x1p-31f;

    switch (mode == MIXED ? (int)(random >> 40) % MIXED : mode) {
    case ANY_BITS:
        return berthi_core_float((uint32_t)(random >> 8));
    case SMALL:
        return plain * 0x1p-120f;
    case ZEROS:
        return random >> 63 != 0 ? -0.0f : 0.0f;
    case LARGE:
        return plain * 0x1p100f;
    default:
        return plain * 0.1f;
    }
}

static void
fill(memory *m, const shape *s, int mode, uint64_t *state)
{
    memset(m, 0xA5, sizeof *m);
    for (uint64_t i = 0; i < s->count; i++) {
        berthi_core_store(m->parameter, s->dtype, i,
                          make_number(state, mode == ANY_BITS ? mode : ORDINARY));
        berthi_core_store(m->gradient, s->gradient_dtype, i,
                          make_number(state, mode == ZEROS && i % 4096 >= 512 ? MIXED : mode));
        m->master[i] = make_number(state, mode);
        for (uint32_t k = 0; k < STATES; k++) {
            const float value = make_number(state, mode);

            m->values[k][i] = berthi_update_is_signed(k) ? value : fabsf(value);
            m->codes[k][i] = (uint8_t)random_next(state);
        }
    }
    for (uint64_t i = 0; i < (s->count + BLOCK - 1) / BLOCK; i++)
        for (uint32_t k = 0; k < STATES; k++)
            m->absmax[k][i] = fabsf(make_number(state, mode));
}

static void
check_update(update_function *tested, const shape *s, const berthi_update_constants *c,
             int mode, uint64_t *state)
{
    memory *const expected = malloc(sizeof *expected);
    memory *const actual = malloc(sizeof *actual);
    berthi_update_arguments a;
    uint64_t skipped;

    fill(expected, s, mode, state);
    memcpy(actual, expected, sizeof *actual);
    a = arguments_of(expected, s);
    skipped = berthi_update_plainly(&a, c);
    a = arguments_of(actual, s);
    CHECK_EQ(tested(&a, c), skipped);
    if (!CHECK(memcmp(actual, expected, sizeof *actual) == 0))
        T_NOTE("%s, %s %s, dtypes %d %d, %s, count %llu, numbers %d",
               berthi_update_name((berthi_update_kind)c->kind),
               c->is_coupled ? "coupled" : c->is_shrunk ? "shrunk" : "plain",
               s->is_8bit ? "8 bits" : "32 bits", s->dtype, s->gradient_dtype,
               s->has_master ? "master" : "none", (unsigned long long)s->count, mode);
    free(expected);
    free(actual);
}

static berthi_update_constants
constants_of(int kind, int variant)
{
    static const uint64_t steps[] = { 1, 2, 50, 1000000 };
    berthi_update_settings s = berthi_update_defaults((berthi_update_kind)kind);

    s.decay = variant % 3 == 0 ? 0.0f : 0.01f;
    s.is_coupled = variant % 3 == 1;
    s.scale = variant % 2 == 0 ? 1.0f : 0.37f;
    if (variant % 5 == 4)
        s.rate = 3.0f; /* so that parameters overflow, and shrink to below 0 */
    return berthi_update_constants_of(&s, steps[variant % 4]);
}

/* --------------------------------------------------------------------- tests */

static update_function *level_update;

static void
test_every_combination(void)
{
    static const uint64_t counts[] = { 1, 255, 256, 257, 511, 512, 700, 1024, 4095, 4096, 4097 };
    uint64_t state = 77;
    int variant = 0;

    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (int combination = 0; combination < 36; combination++)
            for (int mode = 0; mode < MODES; mode++, variant++) {
                const shape s = {
                    .count = counts[random_next(&state) % (T_TAKES_FEWER ? 8 : 11)],
                    .dtype = dtypes[combination % 3],
                    .gradient_dtype = dtypes[combination / 3 % 3],
                    .has_master = combination / 9 % 2 == 1,
                    .is_8bit = combination / 18 == 0,
                };
                const berthi_update_constants c =
                    constants_of(kind, (int)(random_next(&state) % 60));

                check_update(level_update, &s, &c, mode, &state);
            }
    T_NOTE("%d updates", variant);
}

/* Whatever a caller may ask for, of whatever numbers. */
static void
test_any_constants(void)
{
    const int rounds = T_TAKES_FEWER ? 200 : 4000;
    uint64_t state = 2029;

    for (int round = 0; round < rounds; round++) {
        const int kind = round % 3 == 0 ? BERTHI_UPDATE_ADAMW
                                        : round / 3 % BERTHI_UPDATE_KIND_COUNT;
        const uint64_t random = random_next(&state);
        const int32_t dtype = dtypes[random % 3];
        const shape s = {
            .count = round % 4 == 0 ? 700 : 512,
            .dtype = dtype,
            .gradient_dtype = random >> 8 & 1 ? dtype : dtypes[(random >> 16) % 3],
            .has_master = (random >> 24) % 4 == 0,
            .is_8bit = (random >> 32) % 4 != 0,
        };
        const berthi_update_constants c = any_update_constants(kind, &state);

        check_update(level_update, &s, &c, round / 5 % MODES, &state);
    }
}

/* The lengths where states of 8 bits begin: of every kind, dtype and size of states. */
static void
test_every_kind_where_8_bits_begin(void)
{
    uint64_t state = 4096;
    int variant = 0;

    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (int d = 0; d < 3; d++)
            for (int bits = 8; bits <= 32; bits += 24)
                for (uint64_t count = 4095; count <= 4097; count++, variant++) {
                    const shape s = { count, dtypes[d], dtypes[d], false, bits == 8 };
                    const berthi_update_constants c = constants_of(kind, variant);

                    check_update(level_update, &s, &c, variant % MODES, &state);
                }
    CHECK_EQ(variant, 7 * 3 * 2 * 3);
}

/* Every length around a block's ends. */
static void
test_every_length(void)
{
    uint64_t state = 3;

    for (uint64_t count = 1; count <= 2 * BLOCK + 1; count += T_TAKES_FEWER ? 17 : 3) {
        const shape s = { count, dtypes[count % 3], dtypes[count % 3], false, true };
        const berthi_update_constants c =
            constants_of((int)count % BERTHI_UPDATE_KIND_COUNT, (int)count % 60);

        check_update(level_update, &s, &c, MIXED, &state);
    }
}

/* One number of a block that is not like the others; where and which is random. */
static void
spoil(memory *m, const shape *s, uint64_t block, uint64_t *state)
{
    static const float numbers[] = {NAN,      INFINITY,  -INFINITY, -0.0f,
                                    0x1p100f, 0x1p-140f, -3e38f};
    const uint64_t random = random_next(state);
    const uint64_t i = block * BLOCK + random % BLOCK;
    const float number = numbers[(random >> 32) % 7];

    switch ((random >> 8) % 5) {
    case 0:
        berthi_core_store(m->parameter, s->dtype, i, number);
        break;
    case 1:
        berthi_core_store(m->gradient, s->gradient_dtype, i, number);
        break;
    case 2:
        m->absmax[random >> 16 & 1][block] = fabsf(number);
        break;
    case 3:
        m->absmax[random >> 16 & 1][block] = 0.0f;
        break;
    default: /* nothing to do for the block */
        m->absmax[0][block] = m->absmax[1][block] = 0.0f;
        for (uint64_t k = 0; k < BLOCK; k++)
            berthi_core_store(m->gradient, s->gradient_dtype, block * BLOCK + k, 0.0f);
    }
}

/* What one block is does not change its neighbours. */
static void
test_unusual_blocks_among_usual_ones(void)
{
    uint64_t state = 41;

    for (int round = 0; round < (T_TAKES_FEWER ? 30 : 300); round++) {
        const shape s = {8 * BLOCK, dtypes[round % 3], dtypes[round % 3], false, true};
        const berthi_update_constants c = constants_of(BERTHI_UPDATE_ADAMW, round * 3);
        memory *const expected = malloc(sizeof *expected);
        memory *const actual = malloc(sizeof *actual);
        berthi_update_arguments a;
        uint64_t skipped;

        fill(expected, &s, ORDINARY, &state);
        for (uint64_t block = 0; block < 8; block++)
            if (random_next(&state) >> 62 == 0)
                spoil(expected, &s, block, &state);
        memcpy(actual, expected, sizeof *actual);
        a = arguments_of(expected, &s);
        skipped = berthi_update_plainly(&a, &c);
        a = arguments_of(actual, &s);
        CHECK_EQ(level_update(&a, &c), skipped);
        if (!CHECK(memcmp(actual, expected, sizeof *actual) == 0))
            T_NOTE("round %d", round);
        free(expected);
        free(actual);
    }
}

/* Up the hill: of zeros the signs are those of the plain loops, too. */
static void
test_rates_below_zero(void)
{
    uint64_t state = 47;

    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (int round = 0; round < 6; round++) {
            const shape s = { 512, dtypes[round % 3], BERTH_F32, round < 3, true };
            berthi_update_settings settings = berthi_update_defaults((berthi_update_kind)kind);
            berthi_update_constants c;

            settings.rate = round % 2 == 0 ? -1e-3f : -0.0f;
            c = berthi_update_constants_of(&settings, 3);
            check_update(level_update, &s, &c, ZEROS, &state);
        }
}

/* A decay beyond all numbers makes a NaN of a parameter that is 0, and stays it. */
static void
test_a_decay_without_bounds(void)
{
    uint64_t state = 43;

    for (int round = 0; round < 3; round++) {
        const shape s = { 4 * BLOCK, dtypes[round], dtypes[round], false, true };
        berthi_update_settings settings = berthi_update_defaults(BERTHI_UPDATE_ADAMW);
        memory *const expected = malloc(sizeof *expected);
        memory *const actual = malloc(sizeof *actual);
        berthi_update_constants c;
        berthi_update_arguments a;

        settings.rate = settings.decay = 1e20f;
        c = berthi_update_constants_of(&settings, 3);
        fill(expected, &s, ORDINARY, &state);
        for (uint64_t i = 0; i < s.count; i += 5) {
            berthi_core_store(expected->parameter, s.dtype, i, 0.0f);
            berthi_core_store(expected->gradient, s.gradient_dtype, i, 0.0f);
            expected->codes[0][i] = 127; /* 0 */
        }
        memcpy(actual, expected, sizeof *actual);
        a = arguments_of(expected, &s);
        (void)berthi_update_plainly(&a, &c);
        a = arguments_of(actual, &s);
        (void)level_update(&a, &c);
        CHECK(memcmp(actual, expected, sizeof *actual) == 0);
        free(expected);
        free(actual);
    }
}

/* A block of gradients that become the states, with a largest of 1. */
static void
check_codes_of(const float *numbers, uint32_t count, const berthi_update_constants *c)
{
    memory *const expected = calloc(1, sizeof *expected);
    memory *const actual = calloc(1, sizeof *actual);
    const shape s = { (count + 254) / 255 * 256, BERTH_F32, BERTH_F32, false, true };
    berthi_update_arguments a;
    float *const gradient = (float *)expected->gradient;

    for (uint32_t i = 0; i < count; i++) {
        gradient[i / 255 * 256] = 1.0f;
        gradient[i / 255 * 256 + 1 + i % 255] = numbers[i];
    }
    memcpy(actual, expected, sizeof *actual);
    a = arguments_of(expected, &s);
    berthi_update_plainly(&a, c);
    a = arguments_of(actual, &s);
    level_update(&a, c);
    CHECK_MEM(actual->codes, expected->codes, sizeof actual->codes);
    CHECK_MEM(actual->absmax, expected->absmax, sizeof actual->absmax);
    free(expected);
    free(actual);
}

/* Momentum's first state is the gradient; with a beta1 of 0 Adam's is, too. */
static void
check_signed_borders(int kind)
{
    enum { NEAR = 20 };
    static float numbers[2 * NEAR + 1];
    berthi_update_settings settings = berthi_update_defaults((berthi_update_kind)kind);
    berthi_update_constants c;

    if (kind == BERTHI_UPDATE_ADAM)
        settings.beta1 = 0.0f;
    c = berthi_update_constants_of(&settings, 1);

    for (uint32_t lower = 0; lower < 255; lower++) {
        const float border = berthi_core_map_border(berthi_signed_map, lower);

        for (int32_t d = -NEAR; d <= NEAR; d++)
            numbers[d + NEAR] =
                berthi_core_float(berthi_core_bits(border) + (uint32_t)(d * d * d / 8));
        check_codes_of(numbers, 2 * NEAR + 1, &c);
    }
}

static void
test_signed_codes_around_every_border(void)
{
    check_signed_borders(BERTHI_UPDATE_MOMENTUM);
    check_signed_borders(BERTHI_UPDATE_ADAM);
}

/* With a beta2 of 0 Adam's second state is the gradient's square. */
static void
test_unsigned_codes_around_every_border(void)
{
    enum { NEAR = 20 };
    static float numbers[2 * NEAR + 1];
    berthi_update_settings settings = berthi_update_defaults(BERTHI_UPDATE_ADAM);
    berthi_update_constants c;

    settings.beta2 = 0.0f;
    c = berthi_update_constants_of(&settings, 2);
    for (uint32_t lower = 0; lower < 255; lower++) {
        const float root = sqrtf(berthi_core_map_border(berthi_unsigned_map, lower));

        for (int32_t d = -NEAR; d <= NEAR; d++)
            numbers[d + NEAR] =
                berthi_core_float(berthi_core_bits(root) + (uint32_t)(d * d * d / 8));
        check_codes_of(numbers, 2 * NEAR + 1, &c);
    }
}

/* Dense, over all binades, of either sign. */
static void
test_codes_of_many_numbers(void)
{
    enum { COUNT = 255 * 40 };
    static float numbers[COUNT];
    berthi_update_settings settings = berthi_update_defaults(BERTHI_UPDATE_ADAM);
    berthi_update_constants c;
    uint64_t state = 5;

    settings.beta1 = 0.0f;
    settings.beta2 = 0.0f;
    c = berthi_update_constants_of(&settings, 2);
    for (int round = 0; round < (T_TAKES_FEWER ? 2 : 20); round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint64_t random = random_next(&state);

            numbers[i] = berthi_core_float(
                (uint32_t)(random & 0x807FFFFFu)
                | (uint32_t)(126 - random % (round % 2 == 0 ? 8 : 30)) << 23);
        }
        check_codes_of(numbers, COUNT, &c);
    }
}

/* However a parameter is cut at blocks, the whole is the same. */
static void
test_shares(void)
{
    memory *const expected = malloc(sizeof *expected);
    memory *const actual = malloc(sizeof *actual);
    uint64_t state = 19;

    for (int round = 0; round < 24; round++) {
        const shape s = { 3000, dtypes[round % 3], dtypes[round / 3 % 3], round % 2 == 1,
                          round % 4 < 2 };
        const berthi_update_constants c = constants_of(round % BERTHI_UPDATE_KIND_COUNT, round);
        const uint64_t cut = random_next(&state) % 12 * BLOCK;
        berthi_update_arguments a;
        berthi_update_arguments share;
        uint64_t skipped;

        fill(expected, &s, MIXED, &state);
        memcpy(actual, expected, sizeof *actual);
        a = arguments_of(expected, &s);
        skipped = level_update(&a, &c);
        a = arguments_of(actual, &s);
        share = berthi_update_share(&a, 0, cut);
        skipped -= level_update(&share, &c);
        share = berthi_update_share(&a, cut, s.count - cut);
        CHECK_EQ(level_update(&share, &c), skipped);
        CHECK(memcmp(actual, expected, sizeof *actual) == 0);
    }
    free(expected);
    free(actual);
}

/* --------------------------------------------------------------- no gradient for long */

/* What updates are made by: the plain loops first, then each level that has its own. */
static uint32_t
list_updates(update_function **out)
{
    uint32_t count = 0;

    out[count++] = berthi_update_plainly;
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        const berthi_operations all = berthi_level_operations((berthi_cpu_level)i);

        if (berthi_cpu_has_level((berthi_cpu_level)i) && all.update != out[count - 1])
            out[count++] = all.update;
    }
    return count;
}

/* States fade, in every other block through what is subnormal to zero. */
static void
fill_fading(memory *m, const shape *s)
{
    uint64_t state = s->count;

    fill(m, s, ORDINARY, &state);
    for (uint32_t k = 0; k < STATES; k++)
        for (uint64_t block = 1; block * BLOCK < s->count; block += 2)
            m->absmax[k][block] *= 0x1p-120f;
    for (uint64_t i = 0; i < s->count; i++)
        berthi_core_store(m->gradient, s->dtype, i, i % 3 == 0 ? -0.0f : 0.0f);
}

static void
check_fading(int kind, uint64_t count)
{
    const shape s = { count, dtypes[count % 3], dtypes[count % 3], false, true };
    update_function *updates[BERTHI_CPU_LEVEL_COUNT + 1];
    const uint32_t number = list_updates(updates);
    memory *const all = malloc(number * sizeof *all);
    const berthi_update_settings settings = berthi_update_defaults((berthi_update_kind)kind);
    bool is_same = true;

    for (uint32_t i = 0; i < number; i++)
        fill_fading(&all[i], &s);
    for (uint64_t step = 2; step <= 201 && is_same; step++) {
        const berthi_update_constants c = berthi_update_constants_of(&settings, step);

        for (uint32_t i = 0; i < number; i++) {
            const berthi_update_arguments a = arguments_of(&all[i], &s);

            CHECK_EQ(updates[i](&a, &c), 0);
            is_same = is_same && CHECK(memcmp(&all[i], &all[0], sizeof *all) == 0);
        }
        if (!is_same)
            T_NOTE("%s, count %llu, step %llu", berthi_update_name((berthi_update_kind)kind),
                   (unsigned long long)count, (unsigned long long)step);
    }
    free(all);
}

/* Two hundred steps of every kind, by every level. */
static void
test_no_gradient_for_long(void)
{
    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        check_fading(kind, (uint64_t)((T_TAKES_FEWER ? 511 : 4095) + kind % 3));
}

/* ------------------------------------------------------------------ borders */

/* Bytes behind which nothing can be touched. */
typedef struct bordered {
    uint8_t *bytes;
    uint8_t *memory;
    uint64_t mapped;
} bordered;

static bordered
border(const void *from, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    bordered b = { .mapped = (berthi_divide_up(bytes, page) + 1) * page };

    b.memory = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.memory == MAP_FAILED || mprotect(b.memory + b.mapped - page, page, PROT_NONE) != 0)
        abort();
    b.bytes = b.memory + b.mapped - page - bytes;
    memcpy(b.bytes, from, bytes);
    return b;
}

/* Whether these are the bytes; they are gone then. */
static bool
is_end_of(bordered *b, const void *expected, uint64_t bytes)
{
    const bool is_equal = memcmp(b->bytes, expected, bytes) == 0;

    munmap(b->memory, b->mapped);
    return is_equal;
}

/* All that an update of 8 bits reads and writes ends where the memory does. */
static void
check_border(const shape *s, const berthi_update_constants *c, uint64_t *state)
{
    const uint64_t blocks = (s->count + BLOCK - 1) / BLOCK * sizeof(float);
    const uint64_t bytes = s->count * (s->dtype == BERTH_F32 ? 4 : 2);
    memory *const expected = malloc(sizeof *expected);
    berthi_update_arguments a;
    bordered parameter, gradient, codes[STATES], absmax[STATES];

    fill(expected, s, ORDINARY, state);
    a = arguments_of(expected, s);
    parameter = border(a.parameter, bytes);
    gradient = border(a.gradient, bytes);
    for (uint32_t k = 0; k < STATES; k++) {
        codes[k] = border(a.state[k].codes, s->count);
        absmax[k] = border(a.state[k].absmax, blocks);
    }
    (void)berthi_update_plainly(&a, c);
    a.parameter = parameter.bytes;
    a.gradient = gradient.bytes;
    for (uint32_t k = 0; k < STATES; k++)
        a.state[k] = (berthi_update_state){ NULL, codes[k].bytes,
                                            (float *)(void *)absmax[k].bytes };
    (void)level_update(&a, c);
    CHECK(is_end_of(&parameter, expected->parameter, bytes));
    CHECK(is_end_of(&gradient, expected->gradient, bytes));
    for (uint32_t k = 0; k < STATES; k++) {
        CHECK(is_end_of(&codes[k], expected->codes[k], s->count));
        CHECK(is_end_of(&absmax[k], expected->absmax[k], blocks));
    }
    free(expected);
}

static void
test_nothing_behind_the_end(void)
{
    static const uint64_t counts[] = { 1, 255, 256, 257, 511, 512, 2560, 2561 };
    uint64_t state = 5;

    for (int kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++)
        for (uint32_t i = 0; i < 24; i++) {
            const shape s = { counts[i / 3], dtypes[i % 3], dtypes[i % 3], false, true };
            const berthi_update_constants c = constants_of(kind, (int)i);

            check_border(&s, &c, &state);
        }
}

static void
run_level(const char *name)
{
    T_NOTE("level %s", name);
    T_RUN(test_every_combination);
    T_RUN(test_any_constants);
    T_RUN(test_every_kind_where_8_bits_begin);
    T_RUN(test_every_length);
    T_RUN(test_unusual_blocks_among_usual_ones);
    T_RUN(test_rates_below_zero);
    T_RUN(test_a_decay_without_bounds);
    T_RUN(test_signed_codes_around_every_border);
    T_RUN(test_unsigned_codes_around_every_border);
    T_RUN(test_codes_of_many_numbers);
    T_RUN(test_shares);
    T_RUN(test_nothing_behind_the_end);
}

static void
test_shares_of_the_reference(void)
{
    level_update = berthi_update_plainly;
    test_shares();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_shares_of_the_reference);
    T_RUN(test_no_gradient_for_long);
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        const berthi_operations all = berthi_level_operations((berthi_cpu_level)i);

        if (!berthi_cpu_has_level((berthi_cpu_level)i)
            || all.update == berthi_update_plainly || all.update == level_update)
            continue;
        level_update = all.update;
        run_level(all.level);
    }
    T_MAIN_END;
}
