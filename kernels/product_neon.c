/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_neon.c - 4-bit and 8-bit weights times a few vectors, with NEON.
 *
 * Steps     32 columns, 16 packed bytes. The inputs are arranged once: of a
 *           step first the even columns, which the upper halves of the bytes
 *           stand for, then the odd ones.
 * Order     the sum of a chunk, which lies within one block, starts from 0,
 *           step after step; times the block's absmax it is added to the
 *           total. Rows and inputs that share a turn cannot change it.
 * Turns     four rows share the loads of one input; two rows those of two or
 *           four, and these the look-ups of the weights.
 */
#include "kernels/neon.h"
#include "kernels/product_tiles.h"

#define STEP 32u
#define MOST_ROWS 4
#define MOST_INPUTS 4

struct product_plan {
    const berthi_product_arguments *a;
    const float *arranged; /* [step][input][32] */
    planes values;
    uint32_t chunk; /* columns */
};

static float *
arrange_inputs(const berthi_product_arguments *a)
{
    float *const arranged = berthi_product_aligned(a);
    float *out = arranged;

    if (a->is_arranged)
        return arranged;
    for (uint64_t first = 0; first < a->columns; first += STEP)
        for (uint64_t i = 0; i < a->count; i++)
            for (uint64_t j = 0; j < STEP; j++)
                *out++ = berthi_core_load(a->inputs, a->dtype,
                                          i * a->columns + first + j % 16 * 2 + j / 16);
    return arranged;
}

/* Numbers of bf16 have nothing in the lower bytes. */
ALWAYS_INLINE void
look_up(const planes *values, uint8x16_t codes, bool is_bf16, float32x4_t out[4])
{
    planes found;

    UNROLL
    for (int k = 0; k < 4; k++)
        found.at[k] = is_bf16 && k < 2 ? vdupq_n_u8(0) : vqtbl1q_u8(values->at[k], codes);
    join_planes(&found, out);
}

/* One half of a step. */
ALWAYS_INLINE void
add_half(const product_plan *p, const uint8x16_t codes[MOST_ROWS], const float *arranged,
         float32x4_t sums[MOST_ROWS][MOST_INPUTS], int rows, int inputs, bool is_bf16)
{
    float32x4_t weights[MOST_ROWS][4];

    UNROLL
    for (int r = 0; r < rows; r++)
        look_up(&p->values, codes[r], is_bf16, weights[r]);
    UNROLL
    for (int k = 0; k < 4; k++) {
        UNROLL
        for (int i = 0; i < inputs; i++) {
            const float32x4_t input = vld1q_f32(arranged + (unsigned)i * STEP + 4 * k);

            UNROLL
            for (int r = 0; r < rows; r++)
                sums[r][i] = vfmaq_f32(sums[r][i], weights[r][k], input);
        }
    }
}

/* One chunk of a tile; `rows` and `inputs` are constants. */
ALWAYS_INLINE void
add_chunk(const product_plan *p, const uint8_t *codes, const float *absmax,
          const float *arranged, float32x4_t totals[MOST_ROWS][MOST_INPUTS], int rows,
          int inputs, bool is_bf16)
{
    const uint64_t row_bytes = p->a->columns / 2;
    const uint64_t row_blocks = p->a->columns / p->a->block_size;
    float32x4_t sums[MOST_ROWS][MOST_INPUTS];

    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < inputs; i++)
            sums[r][i] = vdupq_n_f32(0.0f);
    }
    for (uint32_t k = 0; k < p->chunk; k += STEP) {
        uint8x16_t even[MOST_ROWS];
        uint8x16_t odd[MOST_ROWS];

        UNROLL
        for (int r = 0; r < rows; r++) {
            const uint8x16_t packed = vld1q_u8(codes + (uint64_t)r * row_bytes);

            even[r] = vshrq_n_u8(packed, 4);
            odd[r] = vandq_u8(packed, vdupq_n_u8(15));
        }
        add_half(p, even, arranged, sums, rows, inputs, is_bf16);
        add_half(p, odd, arranged + 16, sums, rows, inputs, is_bf16);
        codes += STEP / 2;
        arranged += p->a->count * STEP;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const float scale = absmax[(uint64_t)r * row_blocks];

        UNROLL
        for (int i = 0; i < inputs; i++)
            totals[r][i] = vfmaq_n_f32(totals[r][i], sums[r][i], scale);
    }
}

/* A tile whose sums fit; `is_bf16` is a constant. */
ALWAYS_INLINE void
multiply_tile_of(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs,
                 bool is_bf16)
{
    const berthi_product_arguments *const a = p->a;
    const uint8_t *const codes = a->codes + row * (a->columns / 2);
    const float *const absmax = a->absmax + row * (a->columns / a->block_size);
    const float *const arranged = p->arranged + first * STEP;
    float32x4_t totals[MOST_ROWS][MOST_INPUTS];

    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int i = 0; i < inputs; i++)
            totals[r][i] = vdupq_n_f32(0.0f);
    for (uint64_t k = 0; k < a->columns; k += p->chunk)
        add_chunk(p, codes + k / 2, absmax + k / a->block_size, arranged + k * a->count,
                  totals, rows, inputs, is_bf16);
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int i = 0; i < inputs; i++)
            a->outputs[(first + (uint32_t)i) * a->rows + row + (uint64_t)r] =
                vaddvq_f32(totals[r][i]);
}

/* More than four sums take two rows at a time: those of eight do not fit 32 registers. */
ALWAYS_INLINE void
multiply_fitting(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs,
                 bool is_bf16)
{
    if (rows == 1 || inputs == 1)
        multiply_tile_of(p, row, first, rows, inputs, is_bf16);
    else
        for (int r = 0; r < rows; r += 2)
            multiply_tile_of(p, row + (uint64_t)r, first, 2, inputs, is_bf16);
}

ALWAYS_INLINE void
multiply_tile(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs)
{
    multiply_fitting(p, row, first, rows, inputs, false);
}

ALWAYS_INLINE void
multiply_tile_bf16(const product_plan *p, uint64_t row, uint32_t first, int rows, int inputs)
{
    multiply_fitting(p, row, first, rows, inputs, true);
}

static void
multiply(const berthi_product_arguments *a, const uint32_t *value_bits)
{
    float values[16];
    product_plan p = { .a = a };

    berthi_product_values(value_bits, a->dtype, values);
    p.arranged = arrange_inputs(a);
    p.values = make_planes(values);
    p.chunk = a->block_size < BERTHI_PRODUCT_CHUNK ? a->block_size : BERTHI_PRODUCT_CHUNK;
    if (a->dtype == BERTH_BF16)
        multiply_rows(&p, a, MOST_ROWS, MOST_INPUTS, multiply_tile_bf16);
    else
        multiply_rows(&p, a, MOST_ROWS, MOST_INPUTS, multiply_tile);
}

void
berthi_neon_multiply_nf4(const berthi_product_arguments *a)
{
    if (berthi_product_has_whole_rows(a))
        multiply(a, berthi_nf4_values);
    else
        berthi_scalar_operations.multiply_nf4(a);
}

void
berthi_neon_multiply_fp4(const berthi_product_arguments *a)
{
    if (berthi_product_has_whole_rows(a))
        multiply(a, berthi_fp4_values);
    else
        berthi_scalar_operations.multiply_fp4(a);
}

/* ------------------------------------------------------------- 8-bit weights */

/* Two products of -128 do not fit 16 bits: pairs are added in 32. */
static int64_t
dot(const int8_t *x, const int8_t *w, uint64_t columns)
{
    int32x4_t low = vdupq_n_s32(0);
    int32x4_t high = low;
    uint64_t k = 0;
    int64_t sum;

    for (; columns - k >= 16; k += 16) {
        const int8x16_t left = vld1q_s8(x + k);
        const int8x16_t right = vld1q_s8(w + k);

        low = vpadalq_s16(low, vmull_s8(vget_low_s8(left), vget_low_s8(right)));
        high = vpadalq_s16(high, vmull_high_s8(left, right));
    }
    sum = vaddvq_s32(vaddq_s32(low, high));
    for (; k < columns; k++)
        sum += (int32_t)x[k] * (int32_t)w[k];
    return sum;
}

void
berthi_neon_dot_int8(const berthi_dot_arguments *a)
{
    berthi_product_dot_rows(a, dot);
}
