/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that runs kernels on the host: places, shuffles, barriers and
 * shared memory mean what they mean on a device, and what a device would not
 * stand is noticed.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/simt.h"
#include "tests/simt.h"
#include "tests/t.h"

enum { THREADS = 96, CTAS = 3, CELLS = THREADS * CTAS };

typedef struct cells {
    float *values;
    uint32_t *numbers;
} cells;

static const char *
run(void (*kernel)(const void *), const void *argument, simt_order order, uint64_t seed)
{
    const simt_launch launch = { .threads = THREADS, .ctas = CTAS, .order = order,
                                 .seed = seed };

    return simt_run(&launch, kernel, argument);
}

/* The same of a kernel that is known to be wrong. */
static const char *
run_wrong(void (*kernel)(const void *), const void *argument, simt_order order)
{
    const simt_launch launch = { .threads = THREADS, .ctas = CTAS, .order = order,
                                 .seed = 2, .is_racy = true };

    return simt_run(&launch, kernel, argument);
}

SIMT_INLINE uint32_t
cell(void)
{
    return (uint32_t)(simt_cta() * THREADS) + simt_thread();
}

/* ------------------------------------------------------------------- places */

SIMT_INLINE void
number_cells(const cells *a)
{
    a->numbers[cell()] += cell() + (uint32_t)simt_ctas() * 1000;
}
SIMT_KERNEL(number_cells_kernel, THREADS, cells, number_cells(a))

static void
test_every_lane_of_every_cta_runs_once(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        uint32_t numbers[CELLS] = { 0 };

        CHECK_STR(run(number_cells_kernel, &(cells){ .numbers = numbers },
                      (simt_order)order, 1),
                  NULL);
        for (uint32_t i = 0; i < CELLS; i++)
            CHECK_EQ(numbers[i], i + CTAS * 1000);
    }
}

static void
test_a_grid_may_be_run_from_a_later_cta(void)
{
    uint32_t numbers[CELLS] = { 0 };
    const simt_launch launch = { .threads = THREADS, .ctas = CTAS, .first_cta = 2 };

    CHECK_STR(simt_run(&launch, number_cells_kernel, &(cells){ .numbers = numbers }), NULL);
    CHECK_EQ(numbers[2 * THREADS - 1], 0);
    CHECK_EQ(numbers[2 * THREADS], 2 * THREADS + CTAS * 1000);
    CHECK_EQ(numbers[CELLS - 1], CELLS - 1 + CTAS * 1000);
}

static uint32_t order_seen[CELLS];
static uint32_t order_count;

SIMT_INLINE void
note_order(const cells *a)
{
    (void)a;
    order_seen[__atomic_fetch_add(&order_count, 1, __ATOMIC_RELAXED)] = cell();
}
SIMT_KERNEL(note_order_kernel, THREADS, cells, note_order(a))

static void
look_at_order(simt_order order, uint64_t seed)
{
    order_count = 0;
    CHECK_STR(run(note_order_kernel, &(cells){ 0 }, order, seed), NULL);
    CHECK_EQ(order_count, CELLS);
}

static void
test_orders(void)
{
    uint32_t first[CELLS];
    bool is_seen[CELLS] = { false };

    look_at_order(SIMT_ASCENDING, 0);
    for (uint32_t i = 0; i < CELLS; i++)
        CHECK_EQ(order_seen[i], i);
    look_at_order(SIMT_DESCENDING, 0);
    for (uint32_t i = 0; i < CELLS; i++)
        CHECK_EQ(order_seen[i], CELLS - 1 - i);
    look_at_order(SIMT_RANDOM, 5);
    memcpy(first, order_seen, sizeof first);
    for (uint32_t i = 0; i < CELLS; i++)
        is_seen[order_seen[i]] = true;
    for (uint32_t i = 0; i < CELLS; i++)
        CHECK(is_seen[i]);
    look_at_order(SIMT_RANDOM, 5);
    CHECK_MEM(order_seen, first, sizeof first);
    look_at_order(SIMT_RANDOM, 6);
    CHECK(memcmp(order_seen, first, sizeof first) != 0);
}

/* --------------------------------------------------- shuffles, barriers, sums */

SIMT_INLINE void
shuffle_values(const cells *a)
{
    const uint32_t i = cell();
    float value = a->values[i];

    value = simt_shuffle_xor(value, 5) * 2.0f;
    value = value + simt_shuffle_down(value, 7);
    value = simt_shuffle_xor(value, 16);
    a->values[i] = value;
}
SIMT_KERNEL(shuffle_values_kernel, THREADS, cells, shuffle_values(a))

static float
shuffled(uint32_t i)
{
    const uint32_t warp = i / 32 * 32;
    const uint32_t lane = i % 32 ^ 16;
    const uint32_t further = lane + 7 < 32 ? lane + 7 : lane;

    return 2.0f * (float)(warp + (lane ^ 5)) + 2.0f * (float)(warp + (further ^ 5));
}

static void
test_shuffles(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        float values[CELLS];

        for (uint32_t i = 0; i < CELLS; i++)
            values[i] = (float)i;
        CHECK_STR(run(shuffle_values_kernel, &(cells){ .values = values }, (simt_order)order,
                      3),
                  NULL);
        for (uint32_t i = 0; i < CELLS; i++)
            CHECK(values[i] == shuffled(i));
    }
}

/* The sum over the CTA: a tree within each warp, then over the warps. */
SIMT_INLINE void
add_up(const cells *a, bool has_barrier)
{
    SIMT_SHARED(float, sums, THREADS / SIMT_WARP);
    const uint32_t thread = simt_thread();
    float sum = a->values[cell()];
    float total = 0.0f;

    for (uint32_t step = 16; step > 0; step /= 2)
        sum += simt_shuffle_down(sum, step);
    if (thread % SIMT_WARP == 0)
        sums[thread / SIMT_WARP] = sum;
    if (has_barrier)
        simt_barrier();
    for (uint32_t warp = 0; warp < THREADS / SIMT_WARP; warp++)
        total += sums[warp];
    a->values[cell()] = total;
}
SIMT_KERNEL(add_up_kernel, THREADS, cells, add_up(a, true))
SIMT_KERNEL(add_up_without_barrier_kernel, THREADS, cells, add_up(a, false))

static void
fill(float *values)
{
    for (uint32_t i = 0; i < CELLS; i++)
        values[i] = (float)(i % 7);
}

static void
test_sum_over_a_cta(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        float values[CELLS];
        float expected[CTAS] = { 0 };

        fill(values);
        for (uint32_t i = 0; i < CELLS; i++)
            expected[i / THREADS] += values[i];
        CHECK_STR(run(add_up_kernel, &(cells){ .values = values }, (simt_order)order, 9),
                  NULL);
        for (uint32_t i = 0; i < CELLS; i++)
            CHECK(values[i] == expected[i / THREADS]);
    }
}

/* What is read before it was written is 0xCD: a missing barrier changes results. */
static void
test_a_missing_barrier_shows(void)
{
    const char *const told = simt_sees_races() ? SIMT_RACE : NULL;
    float ascending[CELLS];
    float descending[CELLS];

    fill(ascending);
    fill(descending);
    CHECK_STR(run_wrong(add_up_without_barrier_kernel, &(cells){ .values = ascending },
                        SIMT_ASCENDING),
              told);
    CHECK_STR(run_wrong(add_up_without_barrier_kernel, &(cells){ .values = descending },
                        SIMT_DESCENDING),
              told);
    CHECK(memcmp(ascending, descending, sizeof ascending) != 0);
}

/* Many meetings in a row: a fast lane never overwrites what a slow one has to read. */
SIMT_INLINE void
pass_around(const cells *a)
{
    SIMT_SHARED(float, places, THREADS);
    const uint32_t thread = simt_thread();
    float value = a->values[cell()];

    for (uint32_t turn = 0; turn < 20; turn++) {
        places[thread] = simt_shuffle_xor(value, turn % 32);
        simt_barrier();
        value = places[(thread + turn) % THREADS];
        simt_barrier();
    }
    a->values[cell()] = value;
}
SIMT_KERNEL(pass_around_kernel, THREADS, cells, pass_around(a))

static void
test_many_meetings(void)
{
    float first[CELLS];

    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        float values[CELLS];
        float sum = 0.0f;

        for (uint32_t i = 0; i < CELLS; i++)
            values[i] = (float)i;
        CHECK_STR(run(pass_around_kernel, &(cells){ .values = values }, (simt_order)order,
                      11),
                  NULL);
        for (uint32_t i = 0; i < CELLS; i++)
            sum += values[i];
        CHECK_EQ((int)sum, CELLS * (CELLS - 1) / 2);
        if (order == SIMT_ASCENDING)
            memcpy(first, values, sizeof first);
        CHECK_MEM(values, first, sizeof first);
    }
}

SIMT_INLINE void
shuffle_quads(const cells *a)
{
    const uint32_t i = cell();
    const float value = a->values[i];

    a->values[i] = simt_shuffle_quad(value, 3) * 1000.0f + simt_shuffle_quad(value, i % 4 ^ 1);
}
SIMT_KERNEL(shuffle_quads_kernel, THREADS, cells, shuffle_quads(a))

static void
test_shuffles_among_four(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        float values[CELLS];

        for (uint32_t i = 0; i < CELLS; i++)
            values[i] = (float)i;
        CHECK_STR(run(shuffle_quads_kernel, &(cells){ .values = values }, (simt_order)order, 7),
                  NULL);
        for (uint32_t i = 0; i < CELLS; i++)
            CHECK(values[i] == (float)((i | 3) * 1000 + (i ^ 1)));
    }
}

/* ------------------------------------------------------- products of fragments */

enum { M = 16, N = 8, K = 16, TURNS = 3 };

/* Small integers: sums are exact in any order. */
typedef struct matrices {
    float a[TURNS][M][K];
    float b[TURNS][K][N];
    float sums[CELLS][4];
    bool is_bf16;
} matrices;

static uint32_t
pair_of(float low, float high, bool is_bf16)
{
    return is_bf16 ? berthi_core_to_bf16_pair(low, high) : berthi_core_to_fp16_pair(low, high);
}

/* Element by element as the PTX ISA lists the fragments of m16n8k16. */
SIMT_INLINE void
multiply_fragments(matrices *const *argument)
{
    matrices *const m = *argument;
    const uint32_t group = simt_thread() % SIMT_WARP >> 2;
    const uint32_t in_group = simt_thread() % SIMT_WARP % 4;
    float *const sums = m->sums[cell()];

    for (uint32_t turn = 0; turn < TURNS; turn++) {
        float a[8];
        float b[4];
        uint32_t rows[4];
        uint32_t columns[2];

        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            const uint32_t column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);

            a[i] = m->a[turn][row][column];
        }
        for (uint32_t i = 0; i < 4; i++)
            b[i] = m->b[turn][in_group * 2 + (i & 1) + (i < 2 ? 0 : 8)][group];
        for (uint32_t i = 0; i < 4; i++)
            rows[i] = pair_of(a[2 * i], a[2 * i + 1], m->is_bf16);
        for (uint32_t i = 0; i < 2; i++)
            columns[i] = pair_of(b[2 * i], b[2 * i + 1], m->is_bf16);
        if (m->is_bf16)
            simt_multiply_bf16(sums, rows, columns);
        else
            simt_multiply_f16(sums, rows, columns);
    }
}
typedef matrices *matrices_pointer;
SIMT_KERNEL(multiply_fragments_kernel, THREADS, matrices_pointer, multiply_fragments(a))

static void
fill_matrices(matrices *m)
{
    for (int turn = 0; turn < TURNS; turn++)
        for (int k = 0; k < K; k++) {
            for (int i = 0; i < M; i++)
                m->a[turn][i][k] = (float)((i * 37 + k * 11 + turn * 5) % 23 - 11);
            for (int j = 0; j < N; j++)
                m->b[turn][k][j] = (float)((j * 29 + k * 7 + turn * 3) % 19) * 0.5f;
        }
    for (int i = 0; i < CELLS; i++)
        for (int s = 0; s < 4; s++)
            m->sums[i][s] = (float)(i + s);
}

static void
test_products_of_fragments(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT * 2; order++) {
        matrices m = { .is_bf16 = order % 2 == 0 };
        matrices *argument = &m;

        fill_matrices(&m);
        CHECK_STR(run(multiply_fragments_kernel, &argument, (simt_order)(order / 2), 3), NULL);
        for (int i = 0; i < CELLS; i++)
            for (int s = 0; s < 4; s++) {
                const int row = i % 32 / 4 + (s < 2 ? 0 : 8);
                const int column = i % 4 * 2 + (s & 1);
                float expected = (float)(i + s);

                for (int turn = 0; turn < TURNS; turn++)
                    for (int k = 0; k < K; k++)
                        expected += m.a[turn][row][k] * m.b[turn][k][column];
                CHECK(m.sums[i][s] == expected);
            }
    }
}

static void
test_products_of_bytes(void)
{
    CHECK_EQ(simt_add_bytes(0x01020304u, 0x05060708u, 9), 5 + 12 + 21 + 32 + 9);
    CHECK_EQ(simt_add_bytes(0xFF00AB12u, 0x80u, 124), 0x12 * 128 + 124);
    CHECK_EQ(simt_add_bytes(0xFF00AB12u, 0x80000000u, 0), 0xFF * 128);
    CHECK_EQ(simt_add_bytes(UINT32_MAX, UINT32_MAX, UINT32_MAX), 4 * 255 * 255 - 1);
}

/* ------------------------------------------------------------- wide accesses */

typedef struct wide {
    const uint8_t *from;
    uint8_t *to;
} wide;

SIMT_INLINE void
copy_wide(const wide *a)
{
    const uint32_t i = simt_thread();
    const uint32_t word = simt_load4(a->from + 4 * i);

    memcpy(a->to + 4 * i, &word, sizeof word);
    simt_store8(a->to + 4 * THREADS + 8 * i, simt_load8(a->from + 4 * THREADS + 8 * i));
    simt_store16(a->to + 12 * THREADS + 16 * i,
                 i % 2 == 0 ? simt_load16(a->from + 12 * THREADS + 16 * i)
                            : simt_read16(a->from + 12 * THREADS + 16 * i));
}
SIMT_KERNEL(copy_wide_kernel, THREADS, wide, copy_wide(a))

static void
test_wide_accesses(void)
{
    static _Alignas(16) uint8_t from[28 * THREADS + 16];
    static _Alignas(16) uint8_t to[28 * THREADS + 16];
    const simt_launch launch = { .threads = THREADS, .ctas = 1 };
    const char *const odd = "an access at an odd address";

    for (uint32_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    CHECK_STR(simt_run(&launch, copy_wide_kernel, &(wide){ from, to }), NULL);
    CHECK_MEM(to, from, 28 * THREADS);
    CHECK_EQ(to[28 * THREADS], 0);
    CHECK_STR(simt_run(&launch, copy_wide_kernel, &(wide){ from + 1, to }), odd);
    CHECK_STR(simt_run(&launch, copy_wide_kernel, &(wide){ from + 4, to }), odd);
    CHECK_STR(simt_run(&launch, copy_wide_kernel, &(wide){ from, to + 8 }), odd);
}

/* ------------------------------------------------ copies, and what a launch gives */

enum { ROOM_BYTES = 65536, ROUNDS = 5 };

typedef struct rounds {
    const uint32_t *from; /* ROUNDS x CELLS x 4 */
    uint32_t *to;         /* the same */
    uint32_t missing;     /* of what a lane has to do; 0: nothing */
} rounds;

/* As one piece or as several, which come to the same. */
SIMT_INLINE void
copy_cell(uint8_t *to, const uint32_t *from, uint32_t thread)
{
    if (thread % 3 == 0) {
        simt_copy16(to, from);
        return;
    }
    simt_copy8(to + thread % 2 * 8, from + thread % 2 * 2);
    simt_copy4(to + (1 - thread % 2) * 8, from + (1 - thread % 2) * 2);
    simt_copy4(to + (1 - thread % 2) * 8 + 4, from + (1 - thread % 2) * 2 + 1);
}

/*
 * Each lane passes what its neighbour has copied, a round while the next one's copies are on
 * their way.
 */
SIMT_INLINE void
pass_copies(const rounds *a)
{
    const uint32_t thread = simt_thread();
    SIMT_ROOM(room, ROOM_BYTES);

    for (uint32_t round = 0; round <= ROUNDS; round++) {
        uint8_t *const half = room + ROOM_BYTES / 2 * (round % 2);
        const uint8_t *const other = room + ROOM_BYTES / 2 * ((round + 1) % 2);

        if (round < ROUNDS)
            copy_cell(half + 16 * thread, a->from + 4 * (round * CELLS + cell()), thread);
        simt_end_copies();
        if (round == 0)
            continue;
        if (a->missing != 1)
            simt_wait_copies(1);
        if (a->missing != 2)
            simt_warp_barrier();
        memcpy(a->to + 4 * ((round - 1) * CELLS + (cell() ^ 1)), other + 16 * (thread ^ 1), 16);
        if (a->missing != 3)
            simt_warp_barrier();
    }
    simt_wait_copies(0);
}
SIMT_KERNEL(pass_copies_kernel, THREADS, rounds, pass_copies(a))

static uint32_t copied_from[ROUNDS * CELLS * 4];
static uint32_t copied_to[ROUNDS * CELLS * 4];

/* Whether all came. */
static bool
copies_come(uint32_t missing, simt_order order)
{
    const simt_launch launch = { .threads = THREADS, .ctas = CTAS, .room_bytes = ROOM_BYTES,
                                 .order = order, .seed = 5, .is_racy = missing > 1 };
    const char *const told = missing > 1 && simt_sees_races() ? SIMT_RACE : NULL;
    const rounds argument = { copied_from, copied_to, missing };

    for (uint32_t i = 0; i < ROUNDS * CELLS * 4; i++)
        copied_from[i] = i * 7919;
    memset(copied_to, 0, sizeof copied_to);
    CHECK_STR(simt_run(&launch, pass_copies_kernel, &argument), told);
    return memcmp(copied_to, copied_from, sizeof copied_to) == 0;
}

static void
test_copies(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++)
        CHECK(copies_come(0, (simt_order)order));
    CHECK(!copies_come(1, SIMT_ASCENDING)); /* not waited for */
    CHECK(!copies_come(2, SIMT_ASCENDING)); /* the neighbour has not waited so far */
    CHECK(!copies_come(3, SIMT_DESCENDING)); /* it has not read what is written over */
}

/* Groups that are not the last ones have come, those have not. */
SIMT_INLINE void
wait_for_groups(const rounds *a)
{
    SIMT_ROOM(room, 64);
    uint32_t words[8];

    if (simt_thread() != 0)
        return;
    memset(room, 0, 64);
    simt_copy16(room, a->from);
    simt_end_copies();
    simt_copy16(room + 16, a->from + 4);
    simt_end_copies();
    simt_end_copies();
    simt_wait_copies(2);
    memcpy(words, room, sizeof words);
    for (uint32_t i = 0; i < 8; i++)
        a->to[i] = words[i];
    simt_wait_copies(0);
    memcpy(words, room, sizeof words);
    for (uint32_t i = 0; i < 8; i++)
        a->to[8 + i] = words[i];
}
SIMT_KERNEL(wait_for_groups_kernel, 32, rounds, wait_for_groups(a))

static void
test_groups_of_copies(void)
{
    static const uint32_t from[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    static const uint32_t expected[16] = { 1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    const simt_launch launch = { .threads = 32, .ctas = 1, .room_bytes = 64 };
    uint32_t to[16] = { 0 };

    CHECK_STR(simt_run(&launch, wait_for_groups_kernel, &(rounds){ from, to, 0 }), NULL);
    CHECK_MEM(to, expected, sizeof expected);
}

/* -------------------------------------------------------- what is not allowed */

SIMT_INLINE void
do_wrong(const cells *a)
{
    const uint32_t wrong = a->numbers[0];
    const uint32_t thread = simt_thread();
    SIMT_SHARED(uint32_t, array, 5);

    if (wrong == 1 && thread != 7)
        simt_barrier();
    if (wrong == 2 && thread / SIMT_WARP == 1 && thread % SIMT_WARP != 3)
        (void)simt_shuffle_xor(0.0f, 1);
    if (wrong == 3 && thread == 0)
        array[5] = 0;
    if (wrong == 4 && thread == 2)
        array[-1] = 0;
    if (wrong == 5) {
        SIMT_SHARED(uint8_t, large, SIMT_SHARED_BYTES + 1);

        large[0] = 1;
    }
    if (wrong == 6) {
        SIMT_SHARED(uint32_t, second, thread % 2 + 1);

        second[0] = 1;
    }
    if (wrong == 7)
        (void)simt_shuffle_xor(0.0f, 32);
    if (wrong == 8) {
        float sums[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        const uint32_t words[4] = { 0, 0, 0, 0 };

        if (thread == 5)
            (void)simt_shuffle_xor(0.0f, 1);
        else
            simt_multiply_bf16(sums, words, words);
    }
    if (wrong == 9) {
        SIMT_ROOM(room, 1);

        room[0] = 1;
    }
}
SIMT_KERNEL(do_wrong_kernel, THREADS, cells, do_wrong(a))

static void
test_what_a_device_would_not_stand(void)
{
    static const char *const complaints[] = {
        NULL,
        "a barrier that not all lanes of the CTA reach",
        "a shuffle that not all lanes of the warp reach",
        "a write beyond an array of shared memory",
        "a write beyond an array of shared memory",
        "more shared memory than a kernel may declare",
        "lanes declare different shared memory",
        "a shuffle from a lane that no warp has",
        "lanes of a warp that meet for different things",
        "more shared memory than a kernel may declare",
        NULL,
    };

    for (uint32_t wrong = 0; wrong < 11; wrong++)
        for (int order = 0; order < SIMT_ORDER_COUNT; order++)
            CHECK_STR(run_wrong(do_wrong_kernel, &(cells){ .numbers = &wrong },
                                (simt_order)order),
                      complaints[wrong]);
}

/* Copies to odd places, more than are kept, and a lane that does not wait for them. */
SIMT_INLINE void
copy_wrongly(const cells *a)
{
    const uint32_t wrong = a->numbers[0];
    SIMT_ROOM(rooms, 32 * THREADS);
    uint8_t *const room = rooms + 32 * simt_thread();

    for (uint32_t i = 0; i < (wrong == 4 ? 65 : wrong < 5 ? 64 : 1); i++)
        simt_copy16(room + (wrong == 1 ? 4 : 0), a->values + (wrong == 2 ? 1 : 0));
    if (wrong == 5)
        simt_copy8(room + 4, a->values);
    if (wrong == 6)
        simt_copy4(room, (const uint8_t *)a->values + 2);
    if (wrong == 3 && simt_thread() == 9)
        return;
    simt_end_copies();
    simt_wait_copies(0);
}
SIMT_KERNEL(copy_wrongly_kernel, THREADS, cells, copy_wrongly(a))

static void
test_copies_that_a_device_would_not_stand(void)
{
    static _Alignas(16) float values[8];
    static const char *const complaints[] = {
        NULL,
        "an access at an odd address",
        "an access at an odd address",
        "a lane has ended while its copies are on their way",
        "more copies of a lane on their way than this machine keeps",
        "an access at an odd address",
        "an access at an odd address",
    };

    for (uint32_t wrong = 0; wrong < 7; wrong++) {
        const simt_launch launch = { .threads = THREADS, .ctas = 1,
                                     .room_bytes = 32 * THREADS };
        const cells argument = { .values = values, .numbers = &wrong };

        CHECK_STR(simt_run(&launch, copy_wrongly_kernel, &argument), complaints[wrong]);
    }
}

static void
test_launches_that_cannot_be(void)
{
    const simt_launch roomy = { .threads = 32, .ctas = 1, .room_bytes = SIMT_MOST_ROOM + 1 };
    static const uint32_t threads[] = { 0, 31, 33, SIMT_MOST_THREADS + 32 };

    for (int i = 0; i < 4; i++) {
        const simt_launch launch = { .threads = threads[i], .ctas = 1 };

        CHECK_STR(simt_run(&launch, note_order_kernel, NULL),
                  "a CTA is whole warps, and not too many");
    }
    CHECK_STR(simt_run(&roomy, note_order_kernel, NULL),
              "more shared memory than a launch may give");
}

static void
test_no_fibers(void)
{
    T_SKIP("no fibers on this processor");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (simt_has_fibers()) {
        T_RUN(test_every_lane_of_every_cta_runs_once);
        T_RUN(test_a_grid_may_be_run_from_a_later_cta);
        T_RUN(test_orders);
        T_RUN(test_shuffles);
        T_RUN(test_sum_over_a_cta);
        T_RUN(test_a_missing_barrier_shows);
        T_RUN(test_many_meetings);
        T_RUN(test_shuffles_among_four);
        T_RUN(test_products_of_fragments);
        T_RUN(test_products_of_bytes);
        T_RUN(test_wide_accesses);
        T_RUN(test_what_a_device_would_not_stand);
        T_RUN(test_copies);
        T_RUN(test_groups_of_copies);
        T_RUN(test_copies_that_a_device_would_not_stand);
        T_RUN(test_launches_that_cannot_be);
    } else {
        T_RUN(test_no_fibers);
    }
    T_MAIN_END;
}
