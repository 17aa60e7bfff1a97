/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.cuh - values -> codes and one absmax per block: NF4, FP4, 8-bit maps.
 *
 * A lane holds 16 neighbours, so a block is 2 to 256 lanes: its maximum comes by
 * shuffles, above 512 elements through shared memory, too. Every element is read
 * once. Elements behind the last one are zeros that take part, as they do in the
 * published format.
 *
 *   traffic   per element 2 B (f32: 4 B) read, 0.5 B (8-bit: 1 B) and 4 B a
 *             block written
 *   launch    berthi_encode_ctas() CTAs of ENCODE_THREADS lanes
 *   bits      core.h; the order of lanes cannot matter: a maximum is exact
 *   bounds    writes exactly the codes of `count` elements and their absmax;
 *             reads nothing behind them
 */
#ifndef BERTH_KERNELS_QUANTIZE_CUH
#define BERTH_KERNELS_QUANTIZE_CUH

#include "kernels/core.h"
#include "kernels/kernel_arguments.h"
#include "kernels/map_search.cuh"
#include "kernels/simt.h"

typedef enum encode_kind { ENCODE_NF4, ENCODE_FP4, ENCODE_MAP } encode_kind;

/* What a kernel is made for; each field is a constant where it is used. */
typedef struct encode_variant {
    encode_kind kind;
    int32_t dtype;
    bool is_64; /* of the block size, which is the argument's otherwise */
} encode_variant;

/* -------------------------------------------------------------------- values */

/* The 16 elements of a lane: one or two to a word. */
typedef struct encode_values {
    uint32_t word[ENCODE_LANE];
} encode_values;

SIMT_INLINE float
encode_value(const encode_values *values, int32_t dtype, uint32_t k)
{
    if (dtype == BERTH_F32)
        return berthi_core_float(values->word[k]);
    if (dtype == BERTH_BF16)
        return berthi_core_float(k % 2 == 0 ? values->word[k / 2] << 16
                                            : values->word[k / 2] & 0xFFFF0000u);
    return berthi_core_from_fp16(
        (uint16_t)(k % 2 == 0 ? values->word[k / 2] : values->word[k / 2] >> 16));
}

SIMT_INLINE void
encode_load_whole(const berthi_encode_kernel *a, int32_t dtype, uint64_t first,
                  encode_values *out)
{
    const uint8_t *const from = (const uint8_t *)a->values + first * (dtype == BERTH_F32 ? 4 : 2);

    SIMT_UNROLL
    for (uint32_t k = 0; k < (dtype == BERTH_F32 ? 16u : 8u); k += 4) {
        const simt_four four = simt_load16(from + 4 * k);

        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            out->word[k + j] = four.word[j];
    }
}

/* Some are behind the last, or all lie at odd addresses: one by one. */
SIMT_INLINE void
encode_load_some(const berthi_encode_kernel *a, int32_t dtype, uint64_t first,
                 encode_values *out)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < ENCODE_LANE; k++) {
        const bool is_there = first + k < a->count;

        if (dtype == BERTH_F32) {
            const uint32_t *const from = (const uint32_t *)a->values;

            out->word[k] = is_there ? from[first + k] : 0;
        } else {
            const uint16_t *const from = (const uint16_t *)a->values;
            const uint32_t half = is_there ? from[first + k] : 0;

            out->word[k / 2] = k % 2 == 0 ? half : out->word[k / 2] | half << 16;
        }
    }
}

/* -------------------------------------------------------------------- absmax */

/* Of the lane's block; `maxima` are the warps', own to this tile. */
SIMT_INLINE float
encode_absmax(const encode_values *values, encode_variant v, uint32_t block_log2,
              float *maxima)
{
    const uint32_t lanes = 1u << (block_log2 - ENCODE_LANE_LOG2);
    float maximum = berthi_core_absmax_seed(true); /* a short block holds zeros */

    SIMT_UNROLL
    for (uint32_t k = 0; k < ENCODE_LANE; k++)
        maximum = berthi_core_absmax_step(maximum, encode_value(values, v.dtype, k));
    if (v.is_64) {
        maximum = berthi_core_absmax_join(maximum, simt_shuffle_xor(maximum, 1));
        return berthi_core_absmax_join(maximum, simt_shuffle_xor(maximum, 2));
    }
    SIMT_NO_UNROLL
    for (uint32_t step = 1; step < lanes && step < SIMT_WARP; step *= 2)
        maximum = berthi_core_absmax_join(maximum, simt_shuffle_xor(maximum, step));
    if (lanes > SIMT_WARP) {
        const uint32_t warps = lanes / SIMT_WARP;
        const uint32_t warp = simt_thread() / SIMT_WARP;
        const uint32_t first = warp / warps * warps;

        if (simt_thread() % SIMT_WARP == 0)
            maxima[warp] = maximum;
        simt_barrier();
        SIMT_NO_UNROLL
        for (uint32_t k = 0; k < warps; k++)
            maximum = berthi_core_absmax_join(maximum, maxima[first + k]);
    }
    return maximum;
}

/* --------------------------------------------------------------------- codes */

/*
 * A CTA's copy of the argument's table. Of bins 16 copies side by side: lanes of
 * a half warp, whatever their bins, then read from different banks.
 */
SIMT_INLINE void
encode_fill_table(const berthi_encode_kernel *a, encode_kind kind, uint32_t *table)
{
    const uint32_t thread = simt_thread();

    if (kind == ENCODE_MAP) {
        table[thread] = a->table[thread];
        return;
    }
    SIMT_UNROLL
    for (uint32_t i = thread; i < ENCODE_BINS * ENCODE_COPIES; i += ENCODE_THREADS) {
        table[2 * i] = a->table[i / ENCODE_COPIES * 2];
        table[2 * i + 1] = a->table[i / ENCODE_COPIES * 2 + 1];
    }
}

/* `codes` with one more at the low end; of FP4 it is the step yet, and the sign. */
SIMT_INLINE uint32_t
encode_append(uint32_t codes, encode_kind kind, float scaled, const uint32_t *table,
              uint32_t copy)
{
    const float placed = kind == ENCODE_FP4 ? fabsf(scaled) : scaled;
    const uint32_t at = (berthi_bin_bits(scaled) & ENCODE_BIN_MASK) | copy;
    const simt_two bin = simt_shared_load8((const uint8_t *)table + at);

    codes = codes * 16 + bin.word[1];
    if (placed > berthi_core_float(bin.word[0]))
        codes += 1;
    return codes;
}

/*
 * Eight elements from `k` on: four bytes, the first of a pair in the high
 * nibble, so pairs are appended from the last one.
 */
SIMT_INLINE uint32_t
encode_eight(const encode_values *values, encode_variant v, float reciprocal,
             const uint32_t *table, uint32_t k)
{
    const uint32_t copy = simt_thread() % ENCODE_COPIES * 8;
    uint32_t codes = 0;

    SIMT_UNROLL
    for (uint32_t pair = 8; pair > 0; pair -= 2)
        SIMT_UNROLL
        for (uint32_t j = 0; j < 2; j++) {
            const float value = encode_value(values, v.dtype, k + pair - 2 + j);
            const float scaled = berthi_core_multiply_flush(value, reciprocal);

            codes = encode_append(codes, v.kind, scaled, table, copy);
        }
    /* Steps to magnitude codes, 0 1 2 3 4 5 6 7 -> 0 1 6 7 4 5 2 3, all at once. */
    if (v.kind == ENCODE_FP4)
        codes ^= (codes & 0x22222222u) << 1;
    return codes;
}

SIMT_INLINE uint32_t
encode_four_map_codes(const encode_values *values, encode_variant v, float reciprocal,
                      const uint32_t *table, uint32_t k)
{
    uint32_t codes = 0;

    SIMT_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const float value = encode_value(values, v.dtype, k + j);

        codes |= map_search(berthi_core_multiply_flush(value, reciprocal), table)
                 << (8 * j);
    }
    return codes;
}

/* --------------------------------------------------------------------- tiles */

/* The words of a lane's codes: two of 4-bit ones, four of 8-bit ones. */
SIMT_INLINE simt_four
encode_codes(const encode_values *values, encode_variant v, float reciprocal,
             const uint32_t *table)
{
    simt_four codes = { { 0, 0, 0, 0 } };

    if (v.kind == ENCODE_MAP) {
        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            codes.word[j] = encode_four_map_codes(values, v, reciprocal, table, 4 * j);
    } else {
        codes.word[0] = encode_eight(values, v, reciprocal, table, 0);
        codes.word[1] = encode_eight(values, v, reciprocal, table, 8);
    }
    return codes;
}

SIMT_INLINE void
encode_store_whole(const berthi_encode_kernel *a, encode_kind kind, uint64_t first,
                   simt_four codes)
{
    if (kind == ENCODE_MAP) {
        simt_store16(a->codes + first, codes);
    } else {
        const simt_two two = { { codes.word[0], codes.word[1] } };

        simt_store8(a->codes + first / 2, two);
    }
}

/* An odd tensor ends in a whole byte: its last code is that of a zero. */
SIMT_INLINE void
encode_store_some(const berthi_encode_kernel *a, encode_kind kind, uint64_t first,
                  simt_four codes)
{
    const uint32_t in_byte = kind == ENCODE_MAP ? 1 : 2;

    SIMT_UNROLL
    for (uint32_t k = 0; k < ENCODE_LANE / in_byte; k++)
        if (first + k * in_byte < a->count)
            a->codes[first / in_byte + k] = (uint8_t)(codes.word[k / 4] >> (k % 4 * 8));
}

/* Values -> codes of one lane's 16 elements from `first`, number `local` of the CTA. */
SIMT_INLINE void
encode_tile(const berthi_encode_kernel *a, encode_variant v, bool is_whole, uint64_t first,
            uint32_t local, encode_values *values, const uint32_t *table, float *maxima)
{
    const uint32_t block_log2 = v.is_64 ? 6 : a->block_log2;
    simt_four codes;
    float absmax;

    absmax = encode_absmax(values, v, block_log2, maxima);
    codes = encode_codes(values, v, berthi_core_reciprocal(absmax), table);
    if (is_whole)
        encode_store_whole(a, v.kind, first, codes);
    else
        encode_store_some(a, v.kind, first, codes);
    /* A CTA begins with a block, whatever its size. */
    if (local % (1u << block_log2) == 0 && (is_whole || first < a->count))
        a->absmax[((first - local) >> block_log2) + (local >> block_log2)] = absmax;
}

/* The loads of all tiles come first, so that all are on their way at once. */
SIMT_INLINE void
encode(const berthi_encode_kernel *a, encode_variant v, uint32_t *table)
{
    SIMT_SHARED(float, maxima, ENCODE_TILES * (ENCODE_THREADS / SIMT_WARP));
    const uint64_t begin = simt_cta() * ENCODE_CTA;
    const uint32_t own = simt_thread() * ENCODE_LANE;
    encode_values values[ENCODE_TILES];

    if (a->is_aligned != 0 && a->count - begin >= ENCODE_CTA) {
        SIMT_UNROLL
        for (uint32_t t = 0; t < ENCODE_TILES; t++)
            encode_load_whole(a, v.dtype, begin + own + t * ENCODE_TILE, &values[t]);
        encode_fill_table(a, v.kind, table);
        simt_barrier();
        SIMT_UNROLL
        for (uint32_t t = 0; t < ENCODE_TILES; t++)
            encode_tile(a, v, true, begin + own + t * ENCODE_TILE, own + t * ENCODE_TILE,
                        &values[t], table, maxima + t * (ENCODE_THREADS / SIMT_WARP));
        return;
    }
    encode_fill_table(a, v.kind, table);
    simt_barrier();
    SIMT_NO_UNROLL
    for (uint32_t t = 0; t < ENCODE_TILES; t++) {
        const uint32_t local = own + t * ENCODE_TILE;

        encode_load_some(a, v.dtype, begin + local, &values[0]);
        encode_tile(a, v, false, begin + local, local, &values[0], table,
                    maxima + t * (ENCODE_THREADS / SIMT_WARP));
    }
}

/* ------------------------------------------------------------------- kernels */

#define ENCODE_KERNEL(name, kind, dtype, is_64)                                       \
    SIMT_INLINE void name##_body(const berthi_encode_kernel *a)                       \
    {                                                                                 \
        const encode_variant v = { kind, dtype, is_64 };                              \
        SIMT_SHARED(uint32_t, table, (kind) == ENCODE_MAP ? 256u : ENCODE_BINS_WORDS); \
                                                                                      \
        encode(a, v, table);                                                          \
    }                                                                                 \
    SIMT_KERNEL(name, ENCODE_THREADS, berthi_encode_kernel, name##_body(a))

ENCODE_KERNEL(berthi_encode_nf4_bf16_64, ENCODE_NF4, BERTH_BF16, true)
ENCODE_KERNEL(berthi_encode_nf4_f16_64, ENCODE_NF4, BERTH_F16, true)
ENCODE_KERNEL(berthi_encode_nf4_f32_64, ENCODE_NF4, BERTH_F32, true)
ENCODE_KERNEL(berthi_encode_fp4_bf16_64, ENCODE_FP4, BERTH_BF16, true)
ENCODE_KERNEL(berthi_encode_fp4_f16_64, ENCODE_FP4, BERTH_F16, true)
ENCODE_KERNEL(berthi_encode_fp4_f32_64, ENCODE_FP4, BERTH_F32, true)
ENCODE_KERNEL(berthi_encode_nf4_bf16, ENCODE_NF4, BERTH_BF16, false)
ENCODE_KERNEL(berthi_encode_nf4_f16, ENCODE_NF4, BERTH_F16, false)
ENCODE_KERNEL(berthi_encode_nf4_f32, ENCODE_NF4, BERTH_F32, false)
ENCODE_KERNEL(berthi_encode_fp4_bf16, ENCODE_FP4, BERTH_BF16, false)
ENCODE_KERNEL(berthi_encode_fp4_f16, ENCODE_FP4, BERTH_F16, false)
ENCODE_KERNEL(berthi_encode_fp4_f32, ENCODE_FP4, BERTH_F32, false)
ENCODE_KERNEL(berthi_encode_map_bf16, ENCODE_MAP, BERTH_BF16, false)
ENCODE_KERNEL(berthi_encode_map_f16, ENCODE_MAP, BERTH_F16, false)
ENCODE_KERNEL(berthi_encode_map_f32, ENCODE_MAP, BERTH_F32, false)

#endif
