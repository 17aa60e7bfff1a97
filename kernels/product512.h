/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product512.h - 4-bit weights times a few vectors in registers of 512 bits;
 * included by the files of such levels, each with its own arithmetic.
 *
 * Chunks    128 columns, 64 packed bytes, one load. A lane of 32 bits holds
 *           eight neighbouring weights, so that it lies within one block. A
 *           position is the codes that the lowest bits of the lanes show;
 *           shifting by four shows the next one. The inputs are arranged
 *           once, in the order in which the positions meet them.
 * Order     the sum of a chunk starts from 0, position after position; times
 *           the absmax of each lane's block it is added to the total. Rows
 *           and inputs that share a turn cannot change it.
 * Turns     three rows, or four where inputs are few, share the loads of the
 *           inputs, up to four inputs the look-ups of the weights. Sums and
 *           totals stay in registers: what is stored in a chunk holds up
 *           later loads from like addresses.
 * Memory    codes are asked for far ahead, absmax one turn: its rows are too
 *           short for what the processor foresees by itself.
 */
#ifndef BERTH_KERNELS_PRODUCT512_H
#define BERTH_KERNELS_PRODUCT512_H

#ifdef __AVX512BW__ /* a file without the level's flags sees nothing */

#include "kernels/product_tiles.h"

#include <immintrin.h>

#define CHUNK BERTHI_PRODUCT_CHUNK

/*
 * Rows and inputs that share a turn: where inputs are few, 32 registers hold the sums and totals
 * of one more row, if the compiler sees it.
 */
#ifdef __clang__
#define MOST_ROWS 3
#else
#define MOST_ROWS 4
#endif
#define MANY_INPUTS_ROWS 3
#define FEW_INPUTS 2
#define MOST_INPUTS 4

/* The weights that the lowest bits of `codes` show. */
typedef __m512i look_up_function(__m512i codes, __m512i table);
/* sum + weights * inputs */
typedef __m512 multiply_function(__m512 sum, __m512i weights, __m512i inputs);

struct product_plan {
    const berthi_product_arguments *a;
    const uint8_t *arranged; /* [chunk][position][input][lane], 0 behind the last column */
    __m512i table;
    __m512i lane_block; /* block of a lane within its chunk */
    uint32_t chunk_blocks; /* of a whole chunk */
};

static inline product_plan
make_product_plan(const berthi_product_arguments *a, const void *arranged, __m512i table)
{
    const __m512i lane =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const uint32_t blocks = a->block_size < CHUNK ? CHUNK / a->block_size : 1;
    const __m128i shift = _mm_cvtsi32_si128(blocks == 4 ? 2 : blocks == 2 ? 3 : 4);

    return (product_plan){ a, arranged, table, _mm512_srl_epi32(lane, shift), blocks };
}

/* What of a chunk is there: its lanes of codes and its blocks. */
typedef struct chunk_masks {
    __mmask16 lanes;
    __mmask16 blocks;
} chunk_masks;

/* Of a chunk of `count` columns, whole lanes and blocks. */
ALWAYS_INLINE chunk_masks
make_masks(const product_plan *p, uint64_t count)
{
    const uint64_t blocks = count >= CHUNK ? p->chunk_blocks : count / p->a->block_size;

    return (chunk_masks){ (__mmask16)(count >= CHUNK ? 0xFFFFu : (1u << count / 8) - 1),
                          (__mmask16)((1u << blocks) - 1) };
}

/*
 * The rows' values are there before what follows begins: stages of like instructions, as they
 * stand here, keep more ports busy than GCC's order. A macro for floats and integers.
 */
#ifdef __clang__
#define KEEP_TOGETHER(v, rows) (void)0
#else
#define KEEP_TOGETHER(v, rows)                                                             \
    do {                                                                                   \
        if ((rows) == 4)                                                                   \
            __asm__ volatile("" : "+v"((v)[0]), "+v"((v)[1]), "+v"((v)[2]), "+v"((v)[3])); \
        else if ((rows) == 3)                                                              \
            __asm__ volatile("" : "+v"((v)[0]), "+v"((v)[1]), "+v"((v)[2]));               \
    } while (0)
#endif

/* One chunk of a turn; `rows`, `inputs` and `positions` are constants. */
ALWAYS_INLINE void
add_chunk(const product_plan *p, const uint8_t *codes, uint64_t row_bytes,
          const float *absmax, uint64_t row_blocks, const uint8_t *arranged,
          uint64_t ahead, chunk_masks masks, __m512 totals[MOST_ROWS][MOST_INPUTS],
          bool is_whole, int rows, int inputs,
          int positions, look_up_function *look_up, multiply_function *multiply)
{
    __m512 sums[MOST_INPUTS][MOST_ROWS];
    __m512i shown[MOST_ROWS];

    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *const from = codes + (uint64_t)r * row_bytes;

        shown[r] = is_whole ? _mm512_loadu_si512(from)
                            : _mm512_maskz_loadu_epi32(masks.lanes, from);
        _mm_prefetch((const char *)from + ahead, _MM_HINT_T1);
        UNROLL
        for (int i = 0; i < inputs; i++)
            sums[i][r] = _mm512_setzero_ps();
    }
    UNROLL
    for (int position = 0; position < positions; position++) {
        __m512i weights[MOST_ROWS];

        UNROLL
        for (int r = 0; r < rows; r++)
            if (position > 0)
                shown[r] = positions == 8 ? _mm512_srli_epi32(shown[r], 4)
                                          : _mm512_srli_epi16(shown[r], 4);
        KEEP_TOGETHER(shown, rows);
        UNROLL
        for (int r = 0; r < rows; r++)
            weights[r] = look_up(shown[r], p->table);
        KEEP_TOGETHER(weights, rows);
        UNROLL
        for (int i = 0; i < inputs; i++) {
            __m512i input = _mm512_load_si512(arranged + (uint64_t)i * 64);

            /* Loaded once, not by every product: a cycle has one load of this size. */
            __asm__("" : "+v"(input));
            UNROLL
            for (int r = 0; r < rows; r++)
                sums[i][r] = multiply(sums[i][r], weights[r], input);
            KEEP_TOGETHER(sums[i], rows);
        }
        arranged += p->a->count * 64;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const __m512 scale = _mm512_permutexvar_ps(
            p->lane_block,
            _mm512_maskz_loadu_ps(masks.blocks, absmax + (uint64_t)r * row_blocks));

        UNROLL
        for (int i = 0; i < inputs; i++)
            totals[r][i] = _mm512_fmadd_ps(sums[i][r], scale, totals[r][i]);
    }
}

/* A tile, by a level's arithmetic. */
ALWAYS_INLINE void
multiply_tile_by(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs,
                 int positions, look_up_function *look_up, multiply_function *multiply)
{
    const berthi_product_arguments *const a = p->a;
    const int block_shift = __builtin_ctz(a->block_size);
    const uint64_t row_blocks = a->columns >> block_shift;
    const uint64_t row_bytes = a->columns / 2;
    const uint64_t input_bytes = (uint64_t)positions * 64;
    const uint64_t ahead = berthi_product_ahead(row_bytes, (uint64_t)rows);
    const uint8_t *codes = a->codes + row * row_bytes;
    const float *const absmax = a->absmax + row * row_blocks;
    const uint8_t *arranged = p->arranged + first * 64;
    chunk_masks masks = make_masks(p, CHUNK);
    __m512 totals[MOST_ROWS][MOST_INPUTS];
    uint64_t k;

    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            totals[r][i] = _mm512_setzero_ps();
    }
    for (k = 0; a->columns - k >= CHUNK; k += CHUNK) {
        _mm_prefetch((const char *)berthi_product_later_absmax(a, row, (uint64_t)rows, k),
                     _MM_HINT_T1);
        add_chunk(p, codes, row_bytes, absmax + (k >> block_shift), row_blocks, arranged,
                  ahead, masks, totals, true, rows, inputs, positions, look_up, multiply);
        codes += CHUNK / 2;
        arranged += a->count * input_bytes;
    }
    if (k < a->columns) {
        masks = make_masks(p, a->columns - k);
        add_chunk(p, codes, row_bytes, absmax + (k >> block_shift), row_blocks, arranged,
                  ahead, masks, totals, false, rows, inputs, positions, look_up, multiply);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            a->outputs[(first + (uint32_t)i) * a->rows + row + (uint64_t)r] =
                _mm512_reduce_add_ps(totals[r][i]);
    }
}

ALWAYS_INLINE void
multiply_all_rows(const product_plan *p, multiply_tile_function *multiply_tile)
{
    if (p->a->count <= FEW_INPUTS)
        multiply_rows(p, p->a, MOST_ROWS, FEW_INPUTS, multiply_tile);
    else
        multiply_rows(p, p->a, MANY_INPUTS_ROWS, MOST_INPUTS, multiply_tile);
}

#endif
#endif
