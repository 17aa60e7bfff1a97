/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_avx2.c - 4-bit and 8-bit weights times a few vectors, with AVX2.
 *
 * Steps     64 columns, 32 packed bytes. The lower half of a register is the
 *           first 32 columns, so that it lies within one block. Codes are
 *           looked up byte by byte of the numbers, which unpacking joins: the
 *           inputs are arranged once, in the order in which that meets them,
 *           first the even columns, which the upper nibbles stand for.
 * Order     the sum of a step starts from 0; times the absmax of each half's
 *           block it is added to the total. Rows and inputs that share a turn
 *           cannot change it.
 * Turns     four rows meet the inputs of a step while these are near, up to
 *           four inputs share the look-ups of the weights.
 */
#include "kernels/avx2.h"
#include "kernels/product_tiles.h"

#define STEP 64u
#define HALF_STEP 32u
#define MOST_ROWS 4
#define MOST_INPUTS 4
#define GROUPS 4 /* of eight weights, of the even or of the odd columns */

/* Byte k of the 16 numbers, in both halves. */
typedef struct planes {
    __m256i at[4];
} planes;

struct product_plan {
    const berthi_product_arguments *a;
    const float *arranged; /* [step][even, odd][group][input][8], 0 behind the last column */
    planes values;
};

static planes
make_planes(const float *values)
{
    uint8_t bytes[4][16];
    planes p;

    for (uint32_t code = 0; code < 16; code++)
        for (uint32_t k = 0; k < 4; k++)
            bytes[k][code] = (uint8_t)(berthi_core_bits(values[code]) >> 8 * k);
    for (uint32_t k = 0; k < 4; k++)
        p.at[k] = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const __m128i *)(const void *)bytes[k]));
    return p;
}

/* The even ones of x, then those of y; or the odd ones. */
ALWAYS_INLINE __m256
join_even(__m256 x, __m256 y, bool is_odd)
{
    const __m256 both = is_odd ? _mm256_shuffle_ps(x, y, 0xDD) : _mm256_shuffle_ps(x, y, 0x88);

    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(both), 0xD8));
}

static float *
arrange_inputs(const berthi_product_arguments *a)
{
    float *const arranged = berthi_product_aligned(a);
    float *out = arranged;

    if (a->is_arranged)
        return arranged;
    for (uint64_t first = 0; first < a->columns; first += STEP, out += a->count * STEP)
        for (uint64_t i = 0; i < a->count; i++)
            for (uint64_t group = 0; group < GROUPS; group++) {
                const uint64_t at = i * a->columns + first + group * 8;
                const __m256 low = load_8(a->inputs, a->dtype, at);
                /* Rows end with blocks of 32 or more. */
                const __m256 high = a->columns - first > HALF_STEP
                                        ? load_8(a->inputs, a->dtype, at + HALF_STEP)
                                        : _mm256_setzero_ps();

                _mm256_store_ps(out + (group * a->count + i) * 8, join_even(low, high, false));
                _mm256_store_ps(out + ((GROUPS + group) * a->count + i) * 8,
                                join_even(low, high, true));
            }
    return arranged;
}

/* The weights of 32 codes, a byte each. Numbers of bf16 have nothing in the lower bytes. */
ALWAYS_INLINE void
look_up(const planes *values, __m256i codes, bool is_bf16, __m256 out[GROUPS])
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i found[4];

    UNROLL
    for (int k = 0; k < 4; k++)
        found[k] = is_bf16 && k < 2 ? zero : _mm256_shuffle_epi8(values->at[k], codes);
    UNROLL
    for (int half = 0; half < 2; half++) {
        const __m256i low = is_bf16     ? zero
                            : half == 0 ? _mm256_unpacklo_epi8(found[0], found[1])
                                        : _mm256_unpackhi_epi8(found[0], found[1]);
        const __m256i high = half == 0 ? _mm256_unpacklo_epi8(found[2], found[3])
                                       : _mm256_unpackhi_epi8(found[2], found[3]);

        out[2 * half] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(low, high));
        out[2 * half + 1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, high));
    }
}

/* The even columns of a step, or the odd ones, onto its sums; `inputs` is a constant. */
ALWAYS_INLINE void
add_columns(const product_plan *p, __m256i codes, const float *arranged,
            __m256 sums[MOST_INPUTS], int inputs, bool is_bf16)
{
    __m256 weights[GROUPS];

    look_up(&p->values, codes, is_bf16, weights);
    UNROLL
    for (int group = 0; group < GROUPS; group++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            sums[i] = _mm256_fmadd_ps(weights[group], _mm256_load_ps(arranged + i * 8),
                                      sums[i]);
        arranged += p->a->count * UINT64_C(8);
    }
}

/* One step onto the totals. */
ALWAYS_INLINE void
add_step(const product_plan *p, __m256i packed, const float *arranged, __m256 scale,
         __m256 totals[MOST_INPUTS], int inputs, bool is_bf16)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256 sums[MOST_INPUTS];

    UNROLL
    for (int i = 0; i < inputs; i++)
        sums[i] = _mm256_setzero_ps();
    add_columns(p, _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask), arranged, sums,
                inputs, is_bf16);
    add_columns(p, _mm256_and_si256(packed, mask),
                arranged + p->a->count * UINT64_C(8) * GROUPS, sums, inputs, is_bf16);
    UNROLL
    for (int i = 0; i < inputs; i++)
        totals[i] = _mm256_fmadd_ps(sums[i], scale, totals[i]);
}

ALWAYS_INLINE __m256
join_halves(float first, float second)
{
    return _mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first));
}

ALWAYS_INLINE float
sum_lanes(__m256 values)
{
    const __m128 four =
        _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* A tile; `is_bf16` is a constant. */
ALWAYS_INLINE void
multiply_tile_of(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs,
                 bool is_bf16)
{
    const berthi_product_arguments *const a = p->a;
    const uint64_t row_bytes = a->columns / 2;
    const uint64_t row_blocks = a->columns / a->block_size;
    const int shift = __builtin_ctz(a->block_size);
    const uint64_t ahead = berthi_product_ahead(row_bytes, (uint64_t)rows);
    const uint8_t *codes = a->codes + row * row_bytes;
    const float *arranged = p->arranged + first * UINT64_C(8);
    __m256 totals[MOST_ROWS][MOST_INPUTS];

    for (int r = 0; r < MOST_ROWS; r++)
        for (int i = 0; i < MOST_INPUTS; i++)
            totals[r][i] = _mm256_setzero_ps();
    for (uint64_t k = 0; k < a->columns; k += STEP, codes += STEP / 2) {
        const bool is_whole = a->columns - k >= STEP; /* or half: blocks are no shorter */

        _mm_prefetch((const char *)berthi_product_later_absmax(a, row, (uint64_t)rows, k),
                     _MM_HINT_T1);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const float *const absmax = a->absmax + (row + (uint64_t)r) * row_blocks;
            const uint8_t *const from = codes + (uint64_t)r * row_bytes;
            const __m256i packed =
                is_whole ? _mm256_loadu_si256((const __m256i *)(const void *)from)
                         : _mm256_zextsi128_si256(
                               _mm_loadu_si128((const __m128i *)(const void *)from));

            _mm_prefetch((const char *)from + ahead, _MM_HINT_T1);
            add_step(p, packed, arranged,
                     join_halves(absmax[k >> shift],
                                 is_whole ? absmax[(k + HALF_STEP) >> shift] : 0.0f),
                     totals[r], inputs, is_bf16);
        }
        arranged += a->count * UINT64_C(64);
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < inputs; i++)
            a->outputs[(first + (uint32_t)i) * a->rows + row + (uint64_t)r] =
                sum_lanes(totals[r][i]);
}

ALWAYS_INLINE void
multiply_tile(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs)
{
    multiply_tile_of(p, row, first, rows, inputs, false);
}

ALWAYS_INLINE void
multiply_tile_bf16(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs)
{
    multiply_tile_of(p, row, first, rows, inputs, true);
}

static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    float values[16];
    product_plan p = { .a = a };

    berthi_product_values(value_bits, a->dtype, values);
    p.arranged = arrange_inputs(a);
    p.values = make_planes(values);
    if (a->dtype == BERTH_BF16)
        multiply_rows(&p, a, MOST_ROWS, MOST_INPUTS, multiply_tile_bf16);
    else
        multiply_rows(&p, a, MOST_ROWS, MOST_INPUTS, multiply_tile);
}

void
berthi_avx2_multiply_nf4(const berthi_product_arguments *a)
{
    if (berthi_product_has_whole_rows(a))
        multiply(a, berthi_nf4_values);
    else
        berthi_scalar_operations.multiply_nf4(a);
}

void
berthi_avx2_multiply_fp4(const berthi_product_arguments *a)
{
    if (berthi_product_has_whole_rows(a))
        multiply(a, berthi_fp4_values);
    else
        berthi_scalar_operations.multiply_fp4(a);
}

/* ------------------------------------------------------------- 8-bit weights */

ALWAYS_INLINE __m256i
widen(const int8_t *codes)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
}

static int64_t
dot(const int8_t *x, const int8_t *w, uint64_t columns)
{
    __m256i sums = _mm256_setzero_si256();
    int32_t lanes[8];
    uint64_t k = 0;
    int64_t sum = 0;

    for (; columns - k >= 16; k += 16)
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(widen(x + k), widen(w + k)));
    _mm256_storeu_si256((__m256i *)(void *)lanes, sums);
    for (uint32_t i = 0; i < 8; i++)
        sum += lanes[i];
    for (; k < columns; k++)
        sum += (int32_t)x[k] * (int32_t)w[k];
    return sum;
}

void
berthi_avx2_dot_int8(const berthi_dot_arguments *a)
{
    berthi_product_dot_rows(a, dot);
}
