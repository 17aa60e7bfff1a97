/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - the arithmetic on stored values, once, for host and device.
 *
 * Canonical is the CUDA back end of the published library: fast reciprocal,
 * subnormals flushed, products and sums rounded separately. Loops, SIMD code
 * and kernels may restructure the work; what they store must be what these
 * functions return. Compile with -ffp-contract=off, never with fast-math.
 *
 *   flush(v)       a subnormal becomes zero of the same sign
 *   reciprocal(x)  rcp.approx.ftz.f32; on the host the same bits, by reciprocal.h
 *   NaN            compares false with every threshold: its code is 0
 *
 * Of NaN there is one, 0x7FFFFFFF: it is what a GPU's arithmetic gives, whatever went in.
 * Other processors pass on signs and payloads, each by rules of its own; so here, where
 * values are made that are stored, NaN is replaced. berthi_core_multiply() and
 * berthi_core_add() leave that to whoever stores their results: berthi_core_settle().
 */
#ifndef BERTH_KERNELS_CORE_H
#define BERTH_KERNELS_CORE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/reciprocal.h"
#include "kernels/tables.h"
#include "loader/berth.h"

#ifdef __CUDACC__
#define BERTHI_CORE static __host__ __device__ __forceinline__
#else
#define BERTHI_CORE static inline
#endif
/* What reads tables.h, which lies in the host's memory; kernels are given tables. */
#define BERTHI_CORE_TABLED static inline

/* --------------------------------------------------------------------- bits */

BERTHI_CORE uint32_t
berthi_core_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

BERTHI_CORE float
berthi_core_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

BERTHI_CORE float
berthi_core_one_nan(float value)
{
    return value != value ? berthi_core_float(0x7FFFFFFFu) : value;
}

/* ------------------------------------------- primitives with two spellings */

/* A sum or a product that is stored; a device makes no other NaN. */
BERTHI_CORE float
berthi_core_settle(float result)
{
#ifdef __CUDA_ARCH__
    return result;
#else
    return berthi_core_one_nan(result);
#endif
}

BERTHI_CORE float
berthi_core_flush(float value)
{
    const uint32_t bits = berthi_core_bits(value);

    return (bits & 0x7F800000u) == 0 ? berthi_core_float(bits & 0x80000000u) : value;
}

/* Of which the host does not settle the NaN: for what is not stored yet. */
BERTHI_CORE float
berthi_core_multiply_flush_any(float a, float b)
{
#ifdef __CUDA_ARCH__
    float product;

    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
#else
    return berthi_core_flush(berthi_core_flush(a) * berthi_core_flush(b));
#endif
}

BERTHI_CORE float
berthi_core_multiply_flush(float a, float b)
{
    return berthi_core_settle(berthi_core_multiply_flush_any(a, b));
}

/* Rounded on its own: never contracted with a neighbouring addition. */
BERTHI_CORE float
berthi_core_multiply(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

BERTHI_CORE float
berthi_core_add(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/*
 * The result is subnormal, hence 0, above 2^126; a subnormal counts as 0 and
 * gives infinity. Up to one ulp beside the correctly rounded one, to either side.
 */
BERTHI_CORE float
berthi_core_reciprocal(float value)
{
#ifdef __CUDA_ARCH__
    float reciprocal;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
    return reciprocal;
#else
    const uint32_t bits = berthi_core_bits(value) & 0x7FFFFFFFu;
    const uint32_t sign = berthi_core_bits(value) & 0x80000000u;
    const berthi_reciprocal_piece *const piece = berthi_reciprocal_piece_of(bits);

    if (bits > 0x7F800000u)
        return berthi_core_float(0x7FFFFFFFu);
    if (bits > BERTHI_RECIPROCAL_MOST)
        return berthi_core_float(sign);
    if (bits < 0x00800000u)
        return berthi_core_float(sign | 0x7F800000u);
    return berthi_core_float(
        sign | berthi_reciprocal_bits(bits, piece->constant, piece->shape));
#endif
}

/* -------------------------------------------------------------- conversions */

BERTHI_CORE float
berthi_core_from_bf16(uint16_t stored)
{
    return berthi_core_float((uint32_t)stored << 16);
}

/* Nearest even; every NaN becomes 0x7FFF. */
BERTHI_CORE uint16_t
berthi_core_to_bf16(float value)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint16_t stored;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored) : "f"(value));
    return stored;
#else
    const uint32_t bits = berthi_core_bits(value);

    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FFF;
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
#endif
}

/* Two of them, `low` in the low half. */
BERTHI_CORE uint32_t
berthi_core_to_bf16_pair(float low, float high)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint32_t pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (uint32_t)berthi_core_to_bf16(high) << 16 | berthi_core_to_bf16(low);
#endif
}

/* The device's conversion is arithmetic, too. */
BERTHI_CORE float
berthi_core_from_fp16(uint16_t stored)
{
#ifdef __CUDA_ARCH__
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
    return value;
#else
    const uint32_t sign = (uint32_t)(stored & 0x8000u) << 16;
    const uint32_t exponent = stored >> 10 & 0x1Fu;
    const uint32_t mantissa = stored & 0x3FFu;

    if (exponent == 0x1F)
        return berthi_core_float(mantissa != 0 ? 0x7FFFFFFFu : sign | 0x7F800000u);
    if (exponent != 0)
        return berthi_core_float(sign | (exponent + 112) << 23 | mantissa << 13);
    /* Subnormal: mantissa * 2^-24, exact; the sign survives a zero mantissa. */
    return berthi_core_float(sign | berthi_core_bits((float)mantissa * 0x1p-24f));
#endif
}

/* The bits of 65520, half way to the first number that is too large for fp16. */
#define BERTHI_CORE_FP16_OVERFLOW 0x477FF000u

/* Nearest even, subnormals produced, overflow to infinity; NaN is 0x7FFF. */
BERTHI_CORE uint16_t
berthi_core_to_fp16(float value)
{
#ifdef __CUDA_ARCH__
    uint16_t stored;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
    return stored;
#else
    const uint32_t bits = berthi_core_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;

    if (magnitude > 0x7F800000u)
        return 0x7FFF;
    if (magnitude >= BERTHI_CORE_FP16_OVERFLOW)
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) {
        /* Below 2^-14: adding 0.5 leaves multiples of 2^-24 in the last bits. */
        const float shifted = berthi_core_add(berthi_core_float(magnitude), 0.5f);

        return (uint16_t)(sign | (berthi_core_bits(shifted) - 0x3F000000u));
    }
    return (uint16_t)(sign
                      | (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13);
#endif
}

BERTHI_CORE uint32_t
berthi_core_to_fp16_pair(float low, float high)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint32_t pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (uint32_t)berthi_core_to_fp16(high) << 16 | berthi_core_to_fp16(low);
#endif
}

/* E4M3 without infinities: 0x7F and 0xFF are NaN, the largest number is 448. */
BERTHI_CORE float
berthi_core_from_e4m3(uint8_t stored)
{
    const uint32_t sign = (uint32_t)(stored & 0x80u) << 24;
    const uint32_t exponent = stored >> 3 & 15u;
    const uint32_t mantissa = stored & 7u;

    if ((stored & 0x7Fu) == 0x7Fu)
        return berthi_core_float(sign | 0x7FC00000u);
    if (exponent != 0)
        return berthi_core_float(sign | (exponent + 120) << 23 | mantissa << 20);
    return berthi_core_float(sign | berthi_core_bits((float)mantissa * 0x1p-9f));
}

/* Number `k` of E2M1 pairs, the first of a pair in the low nibble. */
BERTHI_CORE_TABLED float
berthi_core_e2m1(const uint8_t *codes, uint64_t k)
{
    return berthi_core_float(berthi_e2m1_values[(uint32_t)codes[k / 2] >> (k % 2 * 4) & 15u]);
}

/* 2^(stored - 127); 0xFF is NaN, or infinity where the scale is stored as U8. */
BERTHI_CORE float
berthi_core_from_e8m0(uint8_t stored, bool is_u8)
{
    if (stored == 0xFF)
        return berthi_core_float(is_u8 ? 0x7F800000u : 0x7FC00000u);
    return berthi_core_float(stored != 0 ? (uint32_t)stored << 23 : 0x00400000u);
}

/* What such numbers are under their scale; subnormals stay. */
BERTHI_CORE float
berthi_core_source_value(float number, float scale)
{
    return berthi_core_settle(berthi_core_multiply(number, scale));
}

/* Element i of an array of BERTH_BF16, BERTH_F16 or BERTH_F32, widened. */
BERTHI_CORE float
berthi_core_load(const void *values, int32_t dtype, uint64_t i)
{
    if (dtype == BERTH_F32)
        return ((const float *)values)[i];
    if (dtype == BERTH_BF16)
        return berthi_core_from_bf16(((const uint16_t *)values)[i]);
    return berthi_core_from_fp16(((const uint16_t *)values)[i]);
}

/* What such an element is once it has been rounded to fp16, whatever its dtype. */
BERTHI_CORE float
berthi_core_load_fp16(const void *values, int32_t dtype, uint64_t i)
{
    return berthi_core_from_fp16(berthi_core_to_fp16(berthi_core_load(values, dtype, i)));
}

/* As it is when it has been stored in `dtype`, one of these three. */
BERTHI_CORE float
berthi_core_rounded(float value, int32_t dtype)
{
    if (dtype == BERTH_BF16)
        return berthi_core_from_bf16(berthi_core_to_bf16(value));
    return dtype == BERTH_F16 ? berthi_core_from_fp16(berthi_core_to_fp16(value)) : value;
}

/* As berthi_core_load(), rounded on the way in. */
BERTHI_CORE void
berthi_core_store(void *values, int32_t dtype, uint64_t i, float value)
{
    if (dtype == BERTH_F32)
        ((float *)values)[i] = value;
    else if (dtype == BERTH_BF16)
        ((uint16_t *)values)[i] = berthi_core_to_bf16(value);
    else
        ((uint16_t *)values)[i] = berthi_core_to_fp16(value);
}

/* ------------------------------------------------------------------- absmax */

/*
 * Where the maximum of a block starts: a full block of NaN keeps this seed. A
 * short block is padded with zeros, which take part.
 */
BERTHI_CORE float
berthi_core_absmax_seed(bool is_full_block)
{
    return is_full_block ? berthi_core_float(0xFF7FFFFFu) : 0.0f;
}

/*
 * NaN is ignored; a subnormal counts as 0, which is more than -0. A comparison,
 * not fmaxf: the C library lets a signaling NaN through.
 */
BERTHI_CORE float
berthi_core_absmax_step(float maximum, float value)
{
#ifdef __CUDA_ARCH__
    asm("max.ftz.f32 %0, %0, %1;" : "+f"(maximum) : "f"(fabsf(value)));
    return maximum;
#else
    const float magnitude = berthi_core_flush(fabsf(value));

    return magnitude >= maximum ? magnitude : maximum;
#endif
}

/* Of the maxima of two parts of a block: neither is NaN or subnormal. */
BERTHI_CORE float
berthi_core_absmax_join(float a, float b)
{
#ifdef __CUDA_ARCH__
    asm("max.ftz.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
#else
    return b > a || berthi_core_bits(a) == 0x80000000u ? b : a;
#endif
}

/* -------------------------------------------------------------- 4-bit codes */

/* `scaled` is the value times the reciprocal of its block's absmax. */
BERTHI_CORE_TABLED uint32_t
berthi_core_nf4_code(float scaled)
{
    uint32_t code = 0;

    for (int k = 0; k < 15; k++)
        code += scaled > berthi_core_float(berthi_nf4_thresholds[k]) ? 1u : 0u;
    return code;
}

BERTHI_CORE_TABLED uint32_t
berthi_core_fp4_code(float scaled)
{
    const uint32_t sign = scaled < 0.0f ? 8u : 0u;
    const float magnitude = fabsf(scaled);
    uint32_t step = 0;

    for (int k = 0; k < 7; k++)
        step += magnitude > berthi_core_float(berthi_fp4_thresholds[k]) ? 1u : 0u;
    return sign + berthi_fp4_codes[step];
}

BERTHI_CORE_TABLED float
berthi_core_nf4_value(uint32_t code, float absmax)
{
    return berthi_core_multiply_flush(berthi_core_float(berthi_nf4_values[code]), absmax);
}

BERTHI_CORE_TABLED float
berthi_core_fp4_value(uint32_t code, float absmax)
{
    return berthi_core_multiply_flush(berthi_core_float(berthi_fp4_values[code]), absmax);
}

/* -------------------------------------------------------------- 8-bit codes */

BERTHI_CORE float
berthi_core_map_value(const uint32_t *map, uint32_t code)
{
    return berthi_core_float(map[code]);
}

/*
 * Where code `lower` of a map ends: what is strictly above takes the next one.
 * A value on a midpoint takes the even neighbour, so where that is the upper one
 * the border lies an ulp lower.
 */
BERTHI_CORE float
berthi_core_map_border(const uint32_t *map, uint32_t lower)
{
    const float sum = berthi_core_add(berthi_core_float(map[lower]),
                                      berthi_core_float(map[lower + 1]));
    const float midpoint = berthi_core_multiply(sum, 0.5f);

    return lower % 2 == 0 ? midpoint : nextafterf(midpoint, -INFINITY);
}

/*
 * Nearest entry of a map; exactly on the midpoint of i and i + 1 the even one.
 * `scaled` may be infinite; NaN gives 0.
 */
BERTHI_CORE uint32_t
berthi_core_map_code(const uint32_t *map, float scaled)
{
    uint32_t code = 0;

    for (uint32_t i = 0; i < 255; i++) {
        const float sum =
            berthi_core_add(berthi_core_float(map[i]), berthi_core_float(map[i + 1]));
        const float midpoint = berthi_core_multiply(sum, 0.5f);

        /* Monotone: passed once, passed for every lower midpoint. */
        if (scaled > midpoint || (scaled == midpoint && (i & 1u) == 1))
            code = i + 1;
    }
    return code;
}

BERTHI_CORE float
berthi_core_map_decode(const uint32_t *map, uint32_t code, float absmax)
{
    return berthi_core_multiply_flush(berthi_core_float(map[code]), absmax);
}

/* First-level absmax out of its code: product and sum are rounded separately. */
BERTHI_CORE float
berthi_core_absmax_recover(const uint32_t *map, uint32_t code, float absmax2,
                           float offset)
{
    const float product =
        berthi_core_multiply_flush_any(berthi_core_float(map[code]), absmax2);

    return berthi_core_settle(berthi_core_add(product, offset));
}

/* --------------------------------------------------------------- LLM.int8() */

/* Where the maximum of a row starts; stays where there are only NaN and outliers. */
#define BERTHI_CORE_ROW_SEED (-0.0f)

BERTHI_CORE float
berthi_core_int8_scale(float row_maximum)
{
    return berthi_core_multiply_flush(127.0f, berthi_core_reciprocal(row_maximum));
}

/*
 * Half to even; NaN (a row of zeros, infinity times zero) gives 0. The low byte of
 * a 32-bit integer, which matters where a threshold's fp16 is below it: an element
 * between the two is in no maximum, yet has a code.
 */
BERTHI_CORE int8_t
berthi_core_int8_code(float value, float scale)
{
    const float scaled = berthi_core_multiply_flush(value, scale);

#ifdef __CUDA_ARCH__
    return (int8_t)__float2int_rn(scaled);
#else
    if (!(scaled > -0x1p31f))
        return 0; /* NaN, or the low byte of the smallest integer */
    if (scaled >= 0x1p31f)
        return -1; /* the low byte of the largest one */
    return (int8_t)lrintf(scaled);
#endif
}

/*
 * A sum of products of codes -> fp16: scaled by the maxima of input and weight
 * row, then one fused multiply-add with the bias. Below 2^24 in magnitude the
 * conversion of the sum is exact, above it rounds to nearest even.
 */
BERTHI_CORE uint16_t
berthi_core_int8_output(int64_t sum, float input_maximum, float weight_maximum, float bias)
{
    const float scaled = berthi_core_multiply(
        berthi_core_multiply((float)sum, input_maximum), weight_maximum);

    return berthi_core_to_fp16(
        fmaf(scaled, berthi_core_float(BERTHI_INT8_PRODUCT_BITS), bias));
}

BERTHI_CORE float
berthi_core_int8_value(int8_t code, float row_maximum)
{
    return berthi_core_settle(
        berthi_core_multiply(berthi_core_multiply((float)code, row_maximum),
                             berthi_core_float(BERTHI_INT8_INVERSE_BITS)));
}

#endif
