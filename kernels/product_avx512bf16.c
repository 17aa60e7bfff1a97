/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_avx512bf16.c - 4-bit weights times bf16 vectors where the processor
 * multiplies pairs of them: four positions a chunk (product512.h). Products
 * are exact, sums fp32; subnormals count as 0. Other inputs are the lower
 * level's.
 */
#include "kernels/avx512.h"
#include "kernels/product512.h"

#define POSITIONS 4

/* Of each word of four elements the one at `from`. */
ALWAYS_INLINE __m512i
take_fourths(const __m512i in[4], __m512i fourths, int from)
{
    const __m512i order = _mm512_add_epi16(fourths, _mm512_set1_epi16((int16_t)from));

    return _mm512_inserti64x4(
        _mm512_permutex2var_epi16(in[0], order, in[1]),
        _mm512_castsi512_si256(_mm512_permutex2var_epi16(in[2], order, in[3])), 1);
}

/* Position j of a word is its element j ^ 1: the first of a pair is the high nibble. */
static uint16_t *
arrange_inputs(const berthi_product_arguments *a)
{
    const __m512i fourths = _mm512_set_epi32(
        0, 0, 0, 0, 0, 0, 0, 0, 60 << 16 | 56, 52 << 16 | 48, 44 << 16 | 40, 36 << 16 | 32,
        28 << 16 | 24, 20 << 16 | 16, 12 << 16 | 8, 4 << 16 | 0);
    uint16_t *const arranged = berthi_product_aligned(a);
    uint16_t *out = arranged;

    if (a->is_arranged)
        return arranged;
    for (uint64_t first = 0; first < a->columns; first += CHUNK, out += a->count * CHUNK)
        for (uint32_t i = 0; i < a->count; i++) {
            const uint16_t *const from = (const uint16_t *)a->inputs + i * a->columns;
            __m512i in[4];

            UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                const uint64_t k = first + 32 * j; /* rows end with blocks of 32 or more */

                in[j] = k < a->columns ? _mm512_loadu_si512(from + k) : _mm512_setzero_si512();
            }
            UNROLL
            for (int j = 0; j < POSITIONS; j++)
                _mm512_store_si512(out + ((uint32_t)j * a->count + i) * 32,
                                   take_fourths(in, fourths, j ^ 1));
        }
    return arranged;
}

/* Five bits are looked at, the fifth is another code's: the table is there twice. */
ALWAYS_INLINE __m512i
look_up(__m512i codes, __m512i table)
{
    return _mm512_permutexvar_epi16(codes, table);
}

ALWAYS_INLINE __m512
add_products(__m512 sum, __m512i weights, __m512i inputs)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)inputs);
}

ALWAYS_INLINE void
multiply_tile(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs)
{
    multiply_tile_by(p, row, first, rows, inputs, POSITIONS, look_up, add_products);
}

static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    uint16_t table[32];
    product_plan p;

    for (uint32_t i = 0; i < 32; i++)
        table[i] = berthi_core_to_bf16(berthi_core_float(value_bits[i % 16]));
    p = make_product_plan(a, arrange_inputs(a), _mm512_loadu_si512(table));
    multiply_all_rows(&p, multiply_tile);
}

static bool
is_mine(const berthi_product_arguments *a)
{
    return a->dtype == BERTH_BF16 && berthi_product_has_whole_rows(a);
}

static void
multiply_nf4(const berthi_product_arguments *a)
{
    if (is_mine(a))
        multiply(a, berthi_nf4_values);
    else
        berthi_avx512_multiply_nf4(a);
}

static void
multiply_fp4(const berthi_product_arguments *a)
{
    if (is_mine(a))
        multiply(a, berthi_fp4_values);
    else
        berthi_avx512_multiply_fp4(a);
}

/* The rest is of the level below. */
const berthi_operations berthi_avx512bf16_operations = {
    .level = "avx512bf16",
    .multiply_nf4 = multiply_nf4,
    .multiply_fp4 = multiply_fp4,
};
