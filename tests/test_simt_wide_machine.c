/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that runs kernels on the host, where four warps multiply together what is copied
 * while they go on: gates, tiles and products mean what they mean on a device, and what a device
 * would not stand is noticed.
 */
#include <string.h>

#include "kernels/core.h"
#include "kernels/simt_wide.h"
#include "tests/simt.h"
#include "tests/t.h"

enum { THREADS = 256, ROOM = 16384 + 1024, LINES = 64, TILE = LINES * 128 };

typedef struct cells {
    berthi_tiles tiles;
    uint32_t *words;
    const uint16_t *numbers;
    float *sums;
    uint32_t wrong;
    bool begins; /* sums, with what is first multiplied */
    int32_t dtype;
} cells;

static const char *
run(void (*kernel)(const void *), const cells *argument, simt_order order, uint64_t ctas)
{
    const simt_launch launch = { .threads = THREADS, .ctas = ctas, .room_bytes = ROOM,
                                 .order = order, .seed = 9, .is_ascending = true };

    return simt_run(&launch, kernel, argument);
}

/* A multiple of 1024, and the gates behind a tile there. */
SIMT_INLINE uint32_t
begin_of(const uint8_t *memory)
{
    return (simt_place(memory) + 1023) / 1024 * 1024;
}

/* ------------------------------------------------------------------- gates and tiles */

#define TURNS 3u

/* Warps take turns: the first four bring tiles, the others add up what has come. */
SIMT_INLINE void
bring_and_take(const cells *a)
{
    SIMT_ROOM(memory, ROOM);
    const uint32_t tile = begin_of(memory);
    const uint32_t came = tile + TILE;
    const uint32_t is_free = came + 8;
    const uint32_t lane = simt_thread();

    if (lane == 0) {
        simt_gate_begin(came, 1);
        simt_gate_begin(is_free, SIMT_GROUP);
        simt_gates_begun();
    }
    simt_barrier();
    for (uint32_t turn = 0; turn < TURNS; turn++)
        if (lane == 0) {
            simt_gate_wait(is_free, 1 ^ turn % 2);
            simt_gate_expect(came, TILE);
            simt_copy_tile(tile, &a->tiles, came, turn * 128, turn);
        } else if (lane >= SIMT_GROUP) {
            const uint32_t own = lane - SIMT_GROUP;

            simt_gate_wait(came, turn % 2);
            a->words[turn * SIMT_GROUP + own] =
                simt_place_load4(tile + own / 4 * 256 + own % 4 * 4);
            simt_gate_arrive(is_free);
        }
    if (lane == 0)
        simt_gate_wait(is_free, 1 ^ TURNS % 2);
}
SIMT_KERNEL(bring_and_take_kernel, THREADS, cells, bring_and_take(a))

/* A matrix of 40 lines of 384 bytes: what is beyond is 0. */
static void
test_tiles(void)
{
    static _Alignas(16) uint32_t matrix[40 * 96];

    for (uint32_t i = 0; i < 40 * 96; i++)
        matrix[i] = i + 1;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        uint32_t words[TURNS * SIMT_GROUP] = { 0 };
        const cells argument = {
            .tiles = { .of = { .from = matrix, .row_bytes = 384, .rows = 40, .tile_bytes = 128,
                               .tile_rows = LINES, .is_turned = order == 1 } },
            .words = words
        };

        CHECK_STR(run(bring_and_take_kernel, &argument, (simt_order)order, 1), NULL);
        for (uint32_t turn = 0; turn < TURNS; turn++)
            for (uint32_t i = 0; i < SIMT_GROUP; i++) {
                const uint32_t line = i / 4 * 2;
                const uint32_t part = order == 1 ? line % 8 : 0;
                const uint32_t expected =
                    line + turn < 40 ? (line + turn) * 96 + turn * 32 + part * 4 + i % 4 + 1 : 0;

                CHECK_EQ(words[turn * SIMT_GROUP + i], expected);
            }
    }
}

/* ---------------------------------------------------------------------------- products */

/* Two products of 64 x 16 times 16 x 64 by each four warps, both under way for a while. */
SIMT_INLINE void
multiply_numbers(const cells *a)
{
    SIMT_ROOM(memory, ROOM);
    const uint32_t tile = begin_of(memory);
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t row = simt_thread() / SIMT_WARP * 16 + lane / 4;
    uint32_t rows[2][4];
    float sums[32];

    if (simt_thread() == 0) {
        simt_gate_begin(tile + TILE, 1);
        simt_gate_expect(tile + TILE, TILE);
        simt_copy_tile(tile, &a->tiles, tile + TILE, 0, 0);
    }
    simt_barrier();
    for (uint32_t i = 0; i < 32; i++)
        sums[i] = (float)i;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 4; k++) {
            const uint16_t *const two =
                a->numbers + (row + k % 2 * 8) * 32 + i * 16 + k / 2 * 8 + lane % 4 * 2;

            rows[i][k] = (uint32_t)two[1] << 16 | two[0];
        }
    simt_gate_wait(tile + TILE, 0);
    for (uint32_t i = 0; i < 2; i++) {
        simt_begin_multiplying();
        simt_multiply_wide(sums, rows[i], tile, i, 64, a->dtype == BERTH_BF16,
                           i > 0 || !a->begins);
        simt_end_multiplying();
        simt_wait_multiplied(1);
    }
    simt_wait_multiplied(0);
    for (uint32_t i = 0; i < 32; i++)
        a->sums[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
}
SIMT_KERNEL(multiply_numbers_kernel, THREADS, cells, multiply_numbers(a))

static void
test_wide_products(void)
{
    static _Alignas(16) uint16_t columns[64 * 64];
    static uint16_t rows[128 * 32];
    static float sums[128 * 64];

    for (int order = 0; order < 2 * SIMT_ORDER_COUNT; order++) {
        const int32_t dtype = order % 2 == 0 ? BERTH_BF16 : BERTH_F16;
        const cells argument = {
            .tiles = { .of = { .from = columns, .row_bytes = 128, .rows = 64, .tile_bytes = 128,
                               .tile_rows = LINES, .is_turned = 1 } },
            .numbers = rows, .sums = sums, .dtype = dtype, .begins = order % 3 == 0
        };

        for (uint32_t i = 0; i < 64 * 64; i++)
            berthi_core_store(columns, dtype, i, (float)(i * 7 % 13) - 6.0f);
        for (uint32_t i = 0; i < 128 * 32; i++)
            berthi_core_store(rows, dtype, i, (float)(i * 5 % 11) - 5.0f);
        CHECK_STR(run(multiply_numbers_kernel, &argument, (simt_order)(order / 2), 1), NULL);
        for (uint32_t i = 0; i < 128 * 64; i++) {
            const uint32_t row = i / 64;
            const uint32_t column = i % 64;
            const uint32_t own = row % 16 / 8 * 2 + column / 8 * 4 + column % 2;
            float expected = argument.begins ? 0.0f : (float)own;

            for (uint32_t k = 0; k < 32; k++)
                expected += berthi_core_load(rows, dtype, row * 32 + k)
                            * berthi_core_load(columns, dtype, column * 64 + k);
            CHECK_EQ(sums[i] == expected, true);
        }
    }
}

/* ------------------------------------------------------------- words, turned, and flags */

SIMT_INLINE void
turn_words(const cells *a)
{
    SIMT_ROOM(memory, ROOM);
    const uint32_t begin = begin_of(memory) + simt_warp() * 512;
    const uint32_t lane = simt_thread() % SIMT_WARP;
    uint32_t words[4];

    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t first = k * 64 + lane / 4 * 8 + lane % 4 * 2; /* of matrix k, row by row */

        words[k] = (first + 1) << 16 | first;
    }
    simt_store_turned(begin + lane * 16, words);
    simt_group_barrier(simt_thread() / SIMT_GROUP);
    for (uint32_t k = 0; k < 4; k++)
        a->words[(simt_thread() / SIMT_WARP * SIMT_WARP + lane) * 4 + k] =
            simt_place_load4(begin + lane * 16 + k * 4);
}
SIMT_KERNEL(turn_words_kernel, THREADS, cells, turn_words(a))

static void
test_words_are_turned(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        uint32_t words[THREADS * 4];
        const cells argument = { .words = words };

        CHECK_STR(run(turn_words_kernel, &argument, (simt_order)order, 1), NULL);
        for (uint32_t i = 0; i < THREADS * 4; i++) {
            const uint32_t line = i / 4 % 32; /* column line % 8 of matrix line / 8 */
            const uint32_t first = line / 8 * 64 + i % 4 * 2 * 8 + line % 8;

            CHECK_EQ(words[i], (first + 8) << 16 | first);
        }
    }
}

static void
test_bytes_are_picked(void)
{
    CHECK_EQ(simt_pick_bytes(0x44332211u, 0x88776655u, 0x7531), 0x88664422u);
    CHECK_EQ(simt_pick_bytes(0x44332291u, 0x88776655u, 0x8FC0), 0xFFFF0091u);
}

/* Each CTA adds to what the one before has left. */
SIMT_INLINE void
pass_on(const cells *a)
{
    const uint64_t cta = simt_cta();

    if (simt_thread() == 0) {
        if (cta > 0)
            simt_await_flag(&a->words[cta - 1]);
        a->sums[cta] = 1.0f + (cta > 0 ? a->sums[cta - 1] : 0.0f);
        if (cta + 1 < simt_ctas())
            simt_raise_flag(&a->words[cta]);
    }
    simt_group_barrier(simt_thread() / SIMT_GROUP);
}
SIMT_KERNEL(pass_on_kernel, THREADS, cells, pass_on(a))

static void
test_flags(void)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        uint32_t words[3] = { 0 };
        float sums[3] = { 0.0f };
        const cells argument = { .words = words, .sums = sums };

        CHECK_STR(run(pass_on_kernel, &argument, (simt_order)order, 3), NULL);
        CHECK_EQ(sums[2] == 3.0f, true);
        CHECK_EQ(words[0] + words[1] + words[2], 0);
    }
}

/* ------------------------------------------------------- what a device would not stand */

/* What number `wrong` is; of one lane, or of all of a warp. */
SIMT_INLINE void
do_wrongly(const cells *a)
{
    SIMT_ROOM(memory, ROOM);
    const uint32_t tile = begin_of(memory);
    const uint32_t gate = tile + TILE;
    const uint32_t rows[4] = { 0, 0, 0, 0 };
    const bool is_first = simt_thread() == 0;
    float sums[32] = { 0.0f };

    if (is_first)
        simt_gate_begin(gate, 1);
    if (a->wrong == 0 && is_first)
        simt_gate_begin(gate, 1);
    if (a->wrong == 1 && is_first)
        simt_gate_arrive(gate + 8);
    if (a->wrong == 2 && is_first)
        simt_gate_wait(gate, 0);
    if (a->wrong == 3 && is_first) {
        simt_gate_expect(gate, 16);
        simt_gate_arrive(gate);
    }
    if (a->wrong == 4 && is_first) {
        simt_gate_expect(gate, 16);
        simt_copy_tile(tile, &a->tiles, gate, 0, 0);
        simt_gate_wait(gate, 0);
    }
    if (a->wrong == 5 && is_first)
        simt_copy_tile(tile + 16, &a->tiles, gate, 0, 0);
    if (a->wrong == 6 && is_first)
        simt_copy_tile(tile, &a->tiles, gate, 8, 0);
    if (a->wrong == 7 && is_first)
        simt_copy_tile(tile, &a->tiles, gate, 0, 0);
    if (a->wrong == 8)
        simt_multiply_wide(sums, rows, tile, 0, 64, true, true);
    if (a->wrong >= 9 && a->wrong <= 11)
        simt_begin_multiplying();
    if (a->wrong == 9)
        simt_multiply_wide(sums, rows, tile, 0, 64, true, true);
    if (a->wrong == 10)
        simt_multiply_wide(sums, rows, tile, 0, 16, true, true);
    if (a->wrong == 11) {
        simt_multiply_wide(sums, rows, tile, simt_thread() / SIMT_WARP % 2, 64, true, true);
        simt_end_multiplying();
        simt_wait_multiplied(0);
    }
    if (a->wrong == 12 && is_first)
        simt_await_flag(a->words);
    if (a->wrong == 13 && simt_thread() != 0)
        simt_group_barrier(simt_thread() / SIMT_GROUP);
    if (a->wrong == 14)
        simt_group_barrier(1);
    if (a->wrong == 15 && is_first)
        (void)simt_place_load16(tile + 8);
    if (a->wrong == 16 && is_first)
        (void)simt_place_load4(0xFFFFFFF0u);
    if (a->wrong == 17) {
        simt_begin_multiplying();
        simt_multiply_wide(sums, rows, tile, simt_thread() % 2, 64, true, true);
        simt_end_multiplying();
        simt_wait_multiplied(0);
    }
}
SIMT_KERNEL(do_wrongly_kernel, THREADS, cells, do_wrongly(a))

static void
test_what_a_device_would_not_stand(void)
{
    static const char *const complaints[] = {
        "a gate that has begun before",
        "a gate that nobody has begun",
        "a gate that does not open",
        "more arrive at a gate than it counts",
        "more bytes come to a gate than it expects",
        "a tile at an odd place",
        "a tile that no hardware copies",
        "a CTA has ended while tiles are on their way",
        "products whose operands nobody has announced",
        "a lane has ended while its products are under way",
        "products of so many columns are none of hardware",
        "warps that multiply different things together",
        "a flag that no earlier CTA has raised",
        "a barrier that not all lanes of four warps reach",
        "a barrier of four warps that the lane is not of",
        "an access at an odd address",
        "an access beyond shared memory",
        "lanes of a warp that multiply different things",
    };
    static _Alignas(16) uint8_t matrix[TILE];
    uint32_t word = 0;
    cells argument = { .tiles = { .of = { .from = matrix, .row_bytes = 128, .rows = 64,
                                          .tile_bytes = 128, .tile_rows = LINES,
                                          .is_turned = 1 } },
                       .words = &word };

    for (uint32_t wrong = 0; wrong < sizeof complaints / sizeof *complaints; wrong++) {
        argument.wrong = wrong;
        CHECK_STR(run(do_wrongly_kernel, &argument, SIMT_ASCENDING, 1), complaints[wrong]);
    }
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
        T_RUN(test_tiles);
        T_RUN(test_wide_products);
        T_RUN(test_words_are_turned);
        T_RUN(test_bytes_are_picked);
        T_RUN(test_flags);
        T_RUN(test_what_a_device_would_not_stand);
    } else {
        T_RUN(test_no_fibers);
    }
    T_MAIN_END;
}
