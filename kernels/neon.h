/* SPDX-License-Identifier: Apache-2.0 */
/* neon.h - what the files of the NEON levels share; included by them alone. */
#ifndef BERTH_KERNELS_NEON_H
#define BERTH_KERNELS_NEON_H

#ifdef __aarch64__ /* elsewhere a file sees nothing */

#include "kernels/simd_blocks.h"

#include <arm_neon.h>

/* kernel8_neon.c: entries of the level's table. */
void berthi_neon_encode_map(const berthi_encode_arguments *arguments);
void berthi_neon_encode_double(const berthi_double_arguments *arguments);
void berthi_neon_encode_rows(const berthi_rows_arguments *arguments);
void berthi_neon_decode_rows(const berthi_rows_decode_arguments *arguments);
void berthi_neon_encode_activations(const berthi_activation_arguments *arguments);

/* product_neon.c: entries of the level's table. */
void berthi_neon_multiply_nf4(const berthi_product_arguments *arguments);
void berthi_neon_multiply_fp4(const berthi_product_arguments *arguments);
void berthi_neon_dot_int8(const berthi_dot_arguments *arguments);

/* optimizer_neon.c: an entry of the level's table. */
uint64_t berthi_neon_update(const berthi_update_arguments *arguments,
                            const berthi_update_constants *constants);
void berthi_neon_encode_state(const berthi_state_arguments *arguments);
void berthi_neon_decode_state(const berthi_state_arguments *arguments);
void berthi_neon_measure(const berthi_measure_arguments *arguments);
void berthi_neon_accumulate(const berthi_accumulate_arguments *arguments);

/* ------------------------------------------------------------------- absmax */

/* Magnitudes are in the order of their bits: an integer maximum. */
ALWAYS_INLINE uint32_t
largest_16_bit(const uint16_t *values, uint32_t count)
{
    const uint16x8_t magnitude = vdupq_n_u16(0x7FFF);
    uint16x8_t first = vdupq_n_u16(0);
    uint16x8_t second = first;

    for (uint32_t i = 0; i < count; i += 16) {
        first = vmaxq_u16(first, vandq_u16(vld1q_u16(values + i), magnitude));
        second = vmaxq_u16(second, vandq_u16(vld1q_u16(values + i + 8), magnitude));
    }
    return vmaxvq_u16(vmaxq_u16(first, second));
}

ALWAYS_INLINE uint32_t
largest_32_bit(const uint32_t *values, uint32_t count)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7FFFFFFF);
    uint32x4_t first = vdupq_n_u32(0);
    uint32x4_t second = first;

    for (uint32_t i = 0; i < count; i += 8) {
        first = vmaxq_u32(first, vandq_u32(vld1q_u32(values + i), magnitude));
        second = vmaxq_u32(second, vandq_u32(vld1q_u32(values + i + 4), magnitude));
    }
    return vmaxvq_u32(vmaxq_u32(first, second));
}

ALWAYS_INLINE float
find_absmax(const void *values, int32_t dtype, uint64_t first, uint32_t count)
{
    if (dtype == BERTH_F32)
        return berthi_core_float(largest_32_bit((const uint32_t *)values + first, count));
    const uint32_t bits = largest_16_bit((const uint16_t *)values + first, count);

    return dtype == BERTH_BF16 ? berthi_core_from_bf16((uint16_t)bits)
                               : berthi_core_from_fp16((uint16_t)bits);
}

/* ------------------------------------------------------------- conversions */

ALWAYS_INLINE float32x4_t
widen_bf16(uint16x4_t values)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(values), 16));
}

ALWAYS_INLINE float32x4_t
widen_fp16(uint16x4_t values)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(values));
}

/* Nearest even; NaN does not come here. */
ALWAYS_INLINE uint16x4_t
round_to_16_bit(float32x4_t values, int32_t dtype)
{
    if (dtype == BERTH_BF16) {
        const uint32x4_t bits = vreinterpretq_u32_f32(values);
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));

        return vshrn_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd), 16);
    }
    return vreinterpret_u16_f16(vcvt_f16_f32(values));
}

/* ------------------------------------------------------------------- bytes */

/* The lowest bytes of 16 lanes. */
ALWAYS_INLINE uint8x16_t
narrow(const uint32x4_t lanes[4])
{
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(lanes[0]),
                                      vreinterpretq_u16_u32(lanes[1]));
    const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(lanes[2]),
                                       vreinterpretq_u16_u32(lanes[3]));

    return vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

/* Sixteen numbers of 32 bits, byte by byte, so that bytes look them up. */
typedef struct planes {
    uint8x16_t at[4]; /* the lowest first */
} planes;

ALWAYS_INLINE planes
make_planes(const float *values)
{
    const uint8x16x4_t all = vld4q_u8((const uint8_t *)values);

    return (planes){ { all.val[0], all.val[1], all.val[2], all.val[3] } };
}

/* Bytes of 16 numbers put together again: four a vector, in order. */
ALWAYS_INLINE void
join_planes(const planes *p, float32x4_t out[4])
{
    const uint16x8_t low1 = vreinterpretq_u16_u8(vzip1q_u8(p->at[0], p->at[1]));
    const uint16x8_t low2 = vreinterpretq_u16_u8(vzip2q_u8(p->at[0], p->at[1]));
    const uint16x8_t high1 = vreinterpretq_u16_u8(vzip1q_u8(p->at[2], p->at[3]));
    const uint16x8_t high2 = vreinterpretq_u16_u8(vzip2q_u8(p->at[2], p->at[3]));

    out[0] = vreinterpretq_f32_u16(vzip1q_u16(low1, high1));
    out[1] = vreinterpretq_f32_u16(vzip2q_u16(low1, high1));
    out[2] = vreinterpretq_f32_u16(vzip1q_u16(low2, high2));
    out[3] = vreinterpretq_f32_u16(vzip2q_u16(low2, high2));
}

#endif
#endif
