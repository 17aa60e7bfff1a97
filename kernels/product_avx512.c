/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_avx512.c - 4-bit and 8-bit weights times a few vectors, with AVX-512.
 *
 * Traffic   every packed byte once, the inputs from cache. A block's table is
 *           the 16 values times its absmax; a weight is then one look-up.
 * Order     each output has one accumulator of 16 lanes; even columns of a
 *           group are added before odd ones. The number of rows and inputs
 *           that share a turn cannot change it.
 * Turns     several rows share the loads of the inputs, several inputs the
 *           look-ups of the weights, as far as 32 registers reach.
 */
#include "kernels/avx512.h"

#define GROUP 32u /* columns of a turn: 16 packed bytes */

/*
 * Inputs so that a turn loads them in order: for each group of columns, for
 * each input, the 16 even and then the 16 odd columns.
 */
static void
arrange_inputs(const berthi_product_arguments *a)
{
    float *out = a->scratch;

    for (uint64_t first = 0; first < a->columns; first += GROUP)
        for (uint32_t i = 0; i < a->count; i++) {
            const float *const from = a->inputs + i * a->columns + first;

            for (uint32_t k = 0; k < GROUP / 2; k++) {
                out[k] = from[2 * k];
                out[GROUP / 2 + k] = from[2 * k + 1];
            }
            out += GROUP;
        }
}

/* Sums stay in registers only when the loops over them are gone. */
#define UNROLL _Pragma("GCC unroll 8")

/* Largest numbers of rows and inputs that share a turn. */
#define MOST_ROWS 5
#define MOST_INPUTS 4

typedef struct tile {
    __m512 sums[MOST_ROWS][MOST_INPUTS];
    __m512 tables[MOST_ROWS]; /* the values times the absmax of the row's block */
} tile;

/* One group of columns; `rows` and `inputs` are constants. */
ALWAYS_INLINE void
add_group(tile *t, const uint8_t *codes, uint64_t row_bytes, const float *arranged,
          int rows, int inputs)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const __m512i bytes = _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(codes + (uint64_t)r * row_bytes)));
        const __m512 even
            = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), t->tables[r]);
        const __m512 odd = _mm512_permutexvar_ps(bytes, t->tables[r]);

        UNROLL
        for (int i = 0; i < inputs; i++) {
            const float *const x = arranged + (uint32_t)i * GROUP;
            const __m512 sum = _mm512_fmadd_ps(even, _mm512_loadu_ps(x), t->sums[r][i]);

            t->sums[r][i] = _mm512_fmadd_ps(odd, _mm512_loadu_ps(x + 16), sum);
        }
    }
}

/* `rows` rows from `row`, inputs [first, first + inputs). */
ALWAYS_INLINE void
multiply_tile(const berthi_product_arguments *a, __m512 values, uint64_t row,
              uint32_t first, int rows, int inputs)
{
    const uint64_t blocks = a->columns / a->block_size;
    const uint64_t row_bytes = a->columns / 2;
    const uint8_t *codes = a->codes + row * row_bytes;
    const float *arranged = a->scratch + first * GROUP;
    tile t;

    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            t.sums[r][i] = _mm512_setzero_ps();
    }
    for (uint64_t block = 0; block < blocks; block++) {
        UNROLL
        for (int r = 0; r < rows; r++)
            t.tables[r] = _mm512_mul_ps(
                values, _mm512_set1_ps(a->absmax[(row + (uint64_t)r) * blocks + block]));
        for (uint32_t k = 0; k < a->block_size; k += GROUP) {
            add_group(&t, codes, row_bytes, arranged, rows, inputs);
            codes += GROUP / 2;
            arranged += a->count * GROUP;
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            a->outputs[(first + (uint32_t)i) * a->rows + row + (uint64_t)r]
                = _mm512_reduce_add_ps(t.sums[r][i]);
    }
}

/* All rows of the share, for `inputs` inputs. */
ALWAYS_INLINE void
multiply_rows(const berthi_product_arguments *a, __m512 values, uint32_t first, int rows,
              int inputs)
{
    uint64_t row = a->first_row;

    for (; a->end_row - row >= (uint64_t)rows; row += (uint64_t)rows)
        multiply_tile(a, values, row, first, rows, inputs);
    for (; row < a->end_row; row++)
        multiply_tile(a, values, row, first, 1, inputs);
}

static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    const __m512 values = _mm512_castsi512_ps(_mm512_loadu_si512(value_bits));
    uint32_t first = 0;

    arrange_inputs(a);
    for (; a->count - first >= 4; first += 4)
        multiply_rows(a, values, first, 5, 4);
    for (; a->count - first >= 2; first += 2)
        multiply_rows(a, values, first, 4, 2);
    for (; first < a->count; first++)
        multiply_rows(a, values, first, 4, 1);
}

/* Rows that do not begin on a block border are for the reference. */
static bool
has_whole_rows(const berthi_product_arguments *a)
{
    return a->columns % a->block_size == 0;
}

void
berthi_avx512_multiply_nf4(const berthi_product_arguments *a)
{
    if (has_whole_rows(a))
        multiply(a, berthi_nf4_values);
    else
        berthi_scalar_operations.multiply_nf4(a);
}

void
berthi_avx512_multiply_fp4(const berthi_product_arguments *a)
{
    if (has_whole_rows(a))
        multiply(a, berthi_fp4_values);
    else
        berthi_scalar_operations.multiply_fp4(a);
}

/* ------------------------------------------------------------- 8-bit weights */

/* Products of 127 * 127 in pairs: so many columns cannot overflow 32 bits. */
#define DOT_COLUMNS (UINT64_C(1) << 16)

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
    for (uint64_t row = a->first_row; row < a->end_row; row++)
        for (uint32_t i = 0; i < a->count; i++) {
            const int8_t *const x = a->inputs + i * a->columns;
            const int8_t *const w = a->weights + row * a->columns;
            int64_t sum = 0;

            for (uint64_t k = 0; k < a->columns; k += DOT_COLUMNS)
                sum += dot(x + k, w + k,
                           a->columns - k < DOT_COLUMNS ? a->columns - k : DOT_COLUMNS);
            a->sums[i * a->rows + row] = sum;
        }
}
