/* SPDX-License-Identifier: Apache-2.0 */
/* launch_wide.c - products of many inputs by kernels of sm_90a alone, see launch.h */
#include <string.h>

#include "kernels/base.h"
#include "kernels/launch_grid.h"
#include "kernels/number.h"

#define MOST_COLUMNS (UINT64_C(1) << 22) /* numbers of groups, times CTAs, are below 2^32 */
#define MOST_ROWS (UINT64_C(1) << 31)
#define ENOUGH_PERCENT 95u /* of the processors' time has a whole tile in it */
#define LEAST_GROUPS 4u /* of columns that a CTA has, so that adding up parts is little beside */

_Static_assert(sizeof(berthi_wide_kernel) + 64 <= sizeof(((berthi_launch *)0)->argument),
               "a GPU's argument ends at a multiple of 64");
_Static_assert(offsetof(berthi_wide_kernel, absmax) == 2 * sizeof(berthi_tiles),
               "the matrices are the argument's first");
_Static_assert(sizeof(berthi_tiles) == 128, "what hardware makes of it");

typedef struct wide_kernel {
    berthi_wide_shape shape;
    berthi_kernel_id kernels[2]; /* by dtype */
} wide_kernel;

/* H200, two shapes: a tile's time is that of its inputs, were they there or not. */
static const wide_kernel *
find_kernel(uint32_t count)
{
    static const wide_kernel kernels[] = {
        { WIDE_SHAPE_32, { KERNEL_wide32_bf16, KERNEL_wide32_f16 } },
        { WIDE_SHAPE_64, { KERNEL_wide64_bf16, KERNEL_wide64_f16 } },
        { WIDE_SHAPE_128, { KERNEL_wide128_bf16, KERNEL_wide128_f16 } },
        { WIDE_SHAPE_256, { KERNEL_wide256_bf16, KERNEL_wide256_f16 } },
    };
    const wide_kernel *its = kernels;

    while (count > its->shape.inputs && its->shape.inputs < WIDE_MOST_INPUTS)
        its++;
    return its;
}

bool
berthi_launch_can_wide(const berthi_multiply_arguments *a, uint32_t processors)
{
    const bool is_double = a->absmax_codes != NULL;

    return processors > 0 && (a->dtype == BERTH_BF16 || a->dtype == BERTH_F16)
           && a->block_size == WIDE_BLOCK && a->columns % WIDE_GROUP == 0 && a->columns > 0
           && a->columns < MOST_COLUMNS && a->rows > 0 && a->rows < MOST_ROWS
           && a->rows * a->columns < PRODUCT_MOST_WEIGHTS && a->count > 0
           && a->count <= INT32_MAX && berthi_is_aligned(a->inputs, 16)
           && berthi_is_aligned(a->codes, 16)
           && berthi_is_aligned(is_double ? (const void *)a->absmax_codes : a->absmax,
                                is_double ? 4 : 16);
}

static void
fill_matrices(const berthi_multiply_arguments *a, berthi_wide_shape s, berthi_wide_kernel *k)
{
    const uint32_t rows = s.fours * WIDE_ROWS;

    k->inputs = berthi_tiles_of(a->inputs, a->columns * 2, a->count, WIDE_LINE, s.inputs);
    k->codes = berthi_tiles_of(a->codes, a->columns / 2, a->rows, WIDE_LINE, rows);
    k->absmax = berthi_tiles_of(a->absmax, a->columns / WIDE_BLOCK * sizeof(float), a->rows,
                                WIDE_GROUP / WIDE_BLOCK * sizeof(float), rows);
    if (a->absmax_codes != NULL) /* not looked at, and of another size: any that there is */
        k->absmax = k->codes;
}

static void
fill_values(const berthi_wide_task *t, berthi_wide_kernel *k)
{
    const berthi_multiply_arguments *const a = t->what;

    *k = (berthi_wide_kernel){
        .absmax2 = a->absmax, .absmax_codes = a->absmax_codes, .bias = a->bias,
        .outputs = a->outputs, .parts = t->parts, .flags = t->flags, .rows = a->rows,
        .offset = a->offset, .count = a->count,
        .groups = (uint32_t)(a->columns / WIDE_GROUP),
        .is_aligned = a->rows % 8 == 0 && berthi_is_aligned(a->outputs, 16),
        .is_settled = a->is_settled,
    };
    memcpy(k->values, t->values, sizeof k->values);
    if (a->absmax_codes != NULL)
        memcpy(k->map, a->map, sizeof k->map);
}

/*
 * Whole tiles where they keep the processors busy. Else the last two rounds of them are split, or
 * the one that there is: between as many CTAs as it takes.
 */
static uint32_t
split(berthi_wide_kernel *k, uint32_t processors)
{
    const uint32_t most = processors < WIDE_MOST_CTAS ? processors : WIDE_MOST_CTAS;
    const uint64_t parts = berthi_divide_up((uint64_t)k->tiles * k->groups, LEAST_GROUPS);
    const uint64_t rounds = berthi_divide_up(k->tiles, most);

    k->split_tiles = 0;
    if (100 * (uint64_t)k->tiles >= ENOUGH_PERCENT * rounds * most)
        return k->tiles < most ? k->tiles : most;
    k->split_tiles = rounds > 2 ? k->tiles - (uint32_t)(rounds - 2) * most : k->tiles;
    if (rounds > 1 || parts >= most)
        return most;
    return parts > k->tiles ? (uint32_t)parts : k->tiles;
}

berth_status
berthi_launch_wide(const berthi_wide_task *t, berthi_launch *out, berth_error *error)
{
    const berthi_multiply_arguments *const a = t->what;
    const wide_kernel *const its = find_kernel(a->count);
    const berthi_wide_shape s = its->shape;
    berthi_wide_kernel *const k = &out->argument.wide;
    uint64_t tiles;
    size_t dtype;
    berth_status status;

    out->kernel = KERNEL_NONE;
    status = berthi_multiply_check(a, error);
    if (status == BERTH_OK)
        status = berthi_launch_find_dtype(a->dtype, &dtype, error);
    if (status == BERTH_OK && !berthi_launch_can_wide(a, t->processors))
        status = berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                             "no kernel has many inputs of this weight at once");
    if (status != BERTH_OK)
        return status;
    fill_values(t, k);
    fill_matrices(a, s, k);
    k->input_tiles = (uint32_t)berthi_divide_up(a->count, s.inputs);
    tiles = berthi_divide_up(a->rows, s.fours * WIDE_ROWS) * k->input_tiles;
    if (tiles > BERTHI_MOST_CTAS)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL, "more tiles than are counted");
    k->tiles = (uint32_t)tiles;
    status = berthi_launch_set_grid(out, its->kernels[dtype],
                                    s.fours * WIDE_FOUR_LANES + WIDE_FEEDERS,
                                    split(k, t->processors), error);
    out->room_bytes = berthi_wide_room_bytes(s);
    out->matrices = WIDE_MATRICES;
    out->matrices_at = offsetof(berthi_wide_kernel, inputs);
    return status;
}
