/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_avx512.c - 4-bit and 8-bit weights times a few vectors, with AVX-512:
 * products and sums in fp32, eight positions a chunk (product512.h).
 */
#include "kernels/avx512.h"
#include "kernels/product512.h"

#define POSITIONS 8

/* Half of the columns of both: of each lane `from` to `from` + 3, 2 or 1 there. */
ALWAYS_INLINE __m512
merge(__m512 x, __m512 y, __m512i order, int from)
{
    return _mm512_permutex2var_ps(x, _mm512_add_epi32(order, _mm512_set1_epi32(from)), y);
}

/*
 * Sixteen lanes of eight elements, as they lie, become eight vectors of one element of
 * each lane: merged by twos, fours and eights, each time with half as many elements.
 */
ALWAYS_INLINE void
turn_lanes(const __m512 in[8], __m512 out[8])
{
    const __m512i twos = _mm512_set_epi32(27, 19, 11, 3, 26, 18, 10, 2, 25, 17, 9, 1, 24, 16,
                                          8, 0);
    const __m512i fours = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2,
                                           1, 0);
    const __m512i eights = _mm512_set_epi32(23, 22, 21, 20, 19, 18, 17, 16, 7, 6, 5, 4, 3, 2,
                                            1, 0);
    __m512 two[2][4];
    __m512 four[4][2];

    UNROLL
    for (int i = 0; i < 4; i++) {
        two[0][i] = merge(in[2 * i], in[2 * i + 1], twos, 0);
        two[1][i] = merge(in[2 * i], in[2 * i + 1], twos, 4);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        four[i][0] = merge(two[i / 2][0], two[i / 2][1], fours, i % 2 * 8);
        four[i][1] = merge(two[i / 2][2], two[i / 2][3], fours, i % 2 * 8);
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        out[i] = merge(four[i / 2][0], four[i / 2][1], eights, i % 2 * 8);
}

/* Position j of a lane is its element j ^ 1: the first of a pair is the high nibble. */
static float *
arrange_inputs(const berthi_product_arguments *a)
{
    float *const arranged = berthi_product_aligned(a);
    float *out = arranged;

    if (a->is_arranged)
        return arranged;
    for (uint64_t first = 0; first < a->columns; first += CHUNK, out += a->count * CHUNK)
        for (uint32_t i = 0; i < a->count; i++) {
            __m512 in[8];
            __m512 turned[8];

            UNROLL
            for (uint32_t j = 0; j < 8; j++) {
                const uint64_t k = first + 16 * j; /* rows end with blocks of 32 or more */

                in[j] = k < a->columns ? load_16(a->inputs, a->dtype, i * a->columns + k)
                                       : _mm512_setzero_ps();
            }
            turn_lanes(in, turned);
            UNROLL
            for (uint32_t j = 0; j < POSITIONS; j++)
                _mm512_store_ps(out + (j * a->count + i) * 16, turned[j ^ 1]);
        }
    return arranged;
}

ALWAYS_INLINE __m512i
look_up(__m512i codes, __m512i table)
{
    return _mm512_permutexvar_epi32(codes, table);
}

ALWAYS_INLINE __m512
add_products(__m512 sum, __m512i weights, __m512i inputs)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(weights), _mm512_castsi512_ps(inputs), sum);
}

ALWAYS_INLINE void
multiply_tile(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs)
{
    multiply_tile_by(p, row, first, rows, inputs, POSITIONS, look_up, add_products);
}

static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    float values[16];
    product_plan p;

    berthi_product_values(value_bits, a->dtype, values);
    p = make_product_plan(a, arrange_inputs(a), _mm512_loadu_si512(values));
    multiply_all_rows(&p, multiply_tile);
}

void
berthi_avx512_multiply_nf4(const berthi_product_arguments *a)
{
    if (berthi_product_has_whole_rows(a))
        multiply(a, berthi_nf4_values);
    else
        berthi_scalar_operations.multiply_nf4(a);
}

void
berthi_avx512_multiply_fp4(const berthi_product_arguments *a)
{
    if (berthi_product_has_whole_rows(a))
        multiply(a, berthi_fp4_values);
    else
        berthi_scalar_operations.multiply_fp4(a);
}

/* ------------------------------------------------------------- 8-bit weights */

ALWAYS_INLINE __m512i
widen(const int8_t *codes)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)codes));
}

static int64_t
dot(const int8_t *x, const int8_t *w, uint64_t columns)
{
    __m512i sums = _mm512_setzero_si512();
    uint64_t k = 0;
    int64_t sum;

    for (; columns - k >= 32; k += 32)
        sums = _mm512_add_epi32(sums, _mm512_madd_epi16(widen(x + k), widen(w + k)));
    sum = _mm512_reduce_add_epi32(sums);
    for (; k < columns; k++)
        sum += (int32_t)x[k] * (int32_t)w[k];
    return sum;
}

void
berthi_avx512_dot_int8(const berthi_dot_arguments *a)
{
    berthi_product_dot_rows(a, dot);
}
