/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_tiles.h - the way of a 4-bit product through rows and inputs, what the
 * levels share: a turn of rows meets all inputs, tile by tile, before the next.
 *
 * Included by the files of the levels, which inline it: `rows` and `inputs` are
 * constants of every tile.
 */
#ifndef BERTH_KERNELS_PRODUCT_TILES_H
#define BERTH_KERNELS_PRODUCT_TILES_H

#include "kernels/product.h"
#include "kernels/simd_blocks.h"

/* A level's own: the arguments, and what it has made of inputs and values. */
typedef struct product_plan product_plan;

/* `rows` rows from `row`, inputs [first, first + inputs). */
typedef void multiply_tile_function(const product_plan *p, uint64_t row, uint32_t first,
                                    int rows, int inputs);

/* Inputs of a turn: fours where a tile may have so many, then twos, then one. */
ALWAYS_INLINE void
multiply_turn(const product_plan *p, uint32_t count, uint64_t row, int rows,
              int most_inputs, multiply_tile_function *multiply_tile)
{
    uint32_t first = 0;

    for (; most_inputs == 4 && count - first >= 4; first += 4)
        multiply_tile(p, row, first, rows, 4);
    for (; count - first >= 2; first += 2)
        multiply_tile(p, row, first, rows, 2);
    if (first < count)
        multiply_tile(p, row, first, rows, 1);
}

/* All rows: `most_rows` a turn, then one by one; it and `most_inputs` are constants. */
ALWAYS_INLINE void
multiply_rows(const product_plan *p, const berthi_product_arguments *a, int most_rows,
              int most_inputs, multiply_tile_function *multiply_tile)
{
    uint64_t row = a->first_row;

    for (; a->end_row - row >= (uint64_t)most_rows; row += (uint64_t)most_rows)
        multiply_turn(p, a->count, row, most_rows, most_inputs, multiply_tile);
    for (; row < a->end_row; row++)
        multiply_turn(p, a->count, row, 1, most_inputs, multiply_tile);
}

#endif
