/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_simt_race.c - lanes that touch the same memory without having met: seen by the thread
 * sanitizer (tests/simt_race.h), also where results are right in every order of lanes.
 */
#include <stdlib.h>

#include "kernels/simt.h"
#include "kernels/simt_wide.h"
#include "tests/simt.h"
#include "tests/t.h"

#define THREADS 128u
#define ROOM 4096u

typedef struct things {
    uint32_t *numbers;       /* one a lane */
    const uint8_t *bytes;    /* to be copied: 16 a lane */
    const berthi_tiles *tiles;
    uint32_t which; /* of what a kernel leaves out; 0: nothing */
} things;

static void
run(void (*kernel)(const void *), things its, uint32_t which, bool is_wrong)
{
    its.which = which;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        const simt_launch launch = { .threads = THREADS, .ctas = 2, .order = (simt_order)order,
                                     .seed = 3, .room_bytes = ROOM, .is_racy = is_wrong };

        its.numbers = calloc(THREADS, sizeof *its.numbers);
        CHECK(its.numbers != NULL);
        CHECK_STR(simt_run(&launch, kernel, &its),
                  is_wrong && simt_sees_races() ? SIMT_RACE : NULL);
        free(its.numbers);
    }
}

/* ------------------------------------------------------------------ warps and CTAs */

/* A shuffle is where lanes meet, but what they have written before may come later. */
SIMT_INLINE void
write_for_warp(const things *a)
{
    SIMT_SHARED(uint32_t, cells, THREADS);
    const uint32_t thread = simt_thread();

    cells[thread] = thread;
    if (a->which == 0)
        simt_warp_barrier();
    else
        (void)simt_shuffle_xor(0.0f, 1);
    a->numbers[thread] = cells[thread ^ 1];
}
SIMT_KERNEL(write_for_warp_kernel, THREADS, things, write_for_warp(a))

static void
test_a_shuffle_orders_no_memory(void)
{
    run(write_for_warp_kernel, (things){ 0 }, 0, false);
    run(write_for_warp_kernel, (things){ 0 }, 1, true);
}

/* Those of another warp, which a warp's own barrier does not wait for; and again, too early. */
SIMT_INLINE void
write_for_all(const things *a)
{
    SIMT_SHARED(uint32_t, cells, THREADS);
    const uint32_t thread = simt_thread();

    for (uint32_t turn = 0; turn < 2; turn++) {
        cells[thread] = thread + turn;
        if (a->which == 1)
            simt_warp_barrier();
        else if (a->which == 2)
            simt_group_barrier(0);
        else
            simt_barrier();
        a->numbers[thread] = cells[thread ^ SIMT_WARP];
        if (a->which == 0)
            simt_barrier();
        else if (a->which == 2)
            simt_group_barrier(0);
    }
}
SIMT_KERNEL(write_for_all_kernel, THREADS, things, write_for_all(a))

static void
test_warps_meet_at_barriers_of_the_cta(void)
{
    run(write_for_all_kernel, (things){ 0 }, 0, false);
    run(write_for_all_kernel, (things){ 0 }, 1, true);
    run(write_for_all_kernel, (things){ 0 }, 2, false);
    run(write_for_all_kernel, (things){ 0 }, 3, true);
}

/* Bits of one word, by atomic instructions or not. */
SIMT_INLINE void
set_bits(const things *a)
{
    if (a->which == 0)
        simt_atomic_or(a->numbers, 1u << simt_thread() % 32);
    else
        a->numbers[0] |= 1u << simt_thread() % 32;
}
SIMT_KERNEL(set_bits_kernel, THREADS, things, set_bits(a))

static void
test_atomic_instructions_are_no_race(void)
{
    run(set_bits_kernel, (things){ 0 }, 0, false);
    run(set_bits_kernel, (things){ 0 }, 1, true);
}

/* ---------------------------------------------------------------- copies and tiles */

/* Waiting for its copies a lane knows of its own alone. */
SIMT_INLINE void
copy_for_warp(const things *a)
{
    SIMT_SHARED(uint32_t, cells, THREADS * 4);
    const uint32_t thread = simt_thread();

    simt_copy16(cells + 4 * thread, a->bytes + 16 * thread);
    simt_end_copies();
    simt_wait_copies(0);
    if (a->which == 0)
        simt_warp_barrier();
    a->numbers[thread] = cells[4 * (thread ^ 1)];
}
SIMT_KERNEL(copy_for_warp_kernel, THREADS, things, copy_for_warp(a))

static void
test_copies_are_for_others_behind_a_meeting(void)
{
    static _Alignas(16) const uint8_t bytes[16 * THREADS];

    run(copy_for_warp_kernel, (things){ .bytes = bytes }, 0, false);
    run(copy_for_warp_kernel, (things){ .bytes = bytes }, 1, true);
}

#define TILE_BYTES 256u
#define GATE_AT 2048u

/* One lane asks for a tile, again when all have read the first one. */
SIMT_INLINE void
read_tiles(const things *a)
{
    SIMT_ROOM(room, ROOM);
    const uint32_t thread = simt_thread();
    const uint32_t gate = simt_place(room) + GATE_AT;

    if (thread == 0) {
        simt_gate_begin(gate, 1);
        simt_gates_begun();
    }
    simt_barrier();
    for (uint32_t turn = 0; turn < 2; turn++) {
        if (thread == 0) {
            simt_gate_expect(gate, TILE_BYTES);
            simt_copy_tile(simt_place(room), a->tiles, gate, 0, 0);
        }
        simt_gate_wait(gate, turn);
        a->numbers[thread] = room[thread];
        simt_barrier();
        if (a->which == 1)
            a->numbers[thread] = room[thread];
    }
}
SIMT_KERNEL(read_tiles_kernel, THREADS, things, read_tiles(a))

static void
test_tiles_come_when_all_have_read(void)
{
    static _Alignas(16) const uint8_t bytes[TILE_BYTES];
    const berthi_tiles tiles = { .of = { .from = bytes, .rows = 2, .row_bytes = 128,
                                         .tile_rows = 2, .tile_bytes = 128 } };

    run(read_tiles_kernel, (things){ .tiles = &tiles }, 0, false);
    run(read_tiles_kernel, (things){ .tiles = &tiles }, 1, true);
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
        T_RUN(test_a_shuffle_orders_no_memory);
        T_RUN(test_warps_meet_at_barriers_of_the_cta);
        T_RUN(test_atomic_instructions_are_no_race);
        T_RUN(test_copies_are_for_others_behind_a_meeting);
        T_RUN(test_tiles_come_when_all_have_read);
    } else {
        T_RUN(test_no_fibers);
    }
    T_MAIN_END;
}
