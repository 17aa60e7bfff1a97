/* SPDX-License-Identifier: Apache-2.0 */
/* kernel8_neon.c - 8-bit codes with NEON: blocks by a map, LLM.int8() rows. */
#include "kernels/map_bins.h"
#include "kernels/neon.h"
#include "kernels/row_blocks.h"

/* ------------------------------------------------------------------ maps */

static void
encode_map_bins(const berthi_encode_arguments *a, const void *tables)
{
    encode_all(a, tables, find_absmax, encode_map_block,
               berthi_scalar_operations.encode_map);
}

void
berthi_neon_encode_map(const berthi_encode_arguments *a)
{
    encode_map_by(a, encode_map_bins);
}

void
berthi_neon_encode_double(const berthi_double_arguments *a)
{
    encode_double_by(a, encode_map_bins);
}

/* --------------------------------------------------------------- LLM.int8() */

#define TURN 16u /* codes of a vector */

/* Four elements as a row of fp16 holds them, widened. */
ALWAYS_INLINE float32x4_t
load_rounded(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F16)
        return widen_fp16(vld1_u16((const uint16_t *)values + first));
    return widen_fp16(round_to_16_bit(
        dtype == BERTH_F32 ? vld1q_f32((const float *)values + first)
                           : widen_bf16(vld1_u16((const uint16_t *)values + first)),
        BERTH_F16));
}

/* The conversion takes the even neighbour; NaN, of a row of zeros, becomes 0. */
ALWAYS_INLINE void
encode_row_values(const berthi_rows_arguments *a, int32_t dtype, uint64_t first,
                  uint64_t count, float scale)
{
    for (uint64_t i = first; i < first + count; i += TURN) {
        uint32x4_t codes[4];

        UNROLL
        for (unsigned k = 0; k < 4; k++)
            codes[k] = vreinterpretq_u32_s32(vcvtnq_s32_f32(
                vmulq_n_f32(load_rounded(a->values, dtype, i + 4 * k), scale)));
        vst1q_s8(a->codes + i, vreinterpretq_s8_u8(narrow(codes)));
    }
}

void
berthi_neon_encode_rows(const berthi_rows_arguments *a)
{
    encode_rows_by(a, find_absmax, encode_row_values);
}

static void
encode_activation_row(const berthi_activation_arguments *a, uint64_t row)
{
    encode_activation_row_by(a, row, find_absmax, encode_row_values);
}

void
berthi_neon_encode_activations(const berthi_activation_arguments *a)
{
    encode_activations_by(a, berthi_neon_encode_rows, encode_activation_row);
}

ALWAYS_INLINE void
decode_four(const berthi_rows_decode_arguments *a, uint64_t first, int16x4_t codes,
            float maximum)
{
    const float32x4_t values =
        vmulq_n_f32(vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(codes)), maximum),
                    berthi_core_float(BERTHI_INT8_INVERSE_BITS));

    if (a->dtype == BERTH_F32)
        vst1q_f32((float *)a->values + first, values);
    else
        vst1_u16((uint16_t *)a->values + first, round_to_16_bit(values, a->dtype));
}

ALWAYS_INLINE void
decode_row_values(const berthi_rows_decode_arguments *a, uint64_t first, uint64_t count,
                  float maximum)
{
    for (uint64_t i = first; i < first + count; i += TURN) {
        const int8x16_t codes = vld1q_s8(a->codes + i);
        const int16x8_t low = vmovl_s8(vget_low_s8(codes));
        const int16x8_t high = vmovl_high_s8(codes);

        decode_four(a, i, vget_low_s16(low), maximum);
        decode_four(a, i + 4, vget_high_s16(low), maximum);
        decode_four(a, i + 8, vget_low_s16(high), maximum);
        decode_four(a, i + 12, vget_high_s16(high), maximum);
    }
}

void
berthi_neon_decode_rows(const berthi_rows_decode_arguments *a)
{
    decode_rows_by(a, decode_row_values);
}
