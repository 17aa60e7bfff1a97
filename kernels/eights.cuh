/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eights.cuh - eight neighbours of a tensor in the registers of a lane, widened: read
 * and written at once where they lie so, else one by one, as far as the tensor goes.
 */
#ifndef BERTH_KERNELS_EIGHTS_CUH
#define BERTH_KERNELS_EIGHTS_CUH

#include "kernels/core.h"
#include "kernels/simt.h"

#define EIGHT 8u
#define EIGHT_ALL 0xFFu

/* Of sixteen bytes each: two of f32. */
SIMT_INLINE uint32_t
eight_fours(int32_t dtype)
{
    return dtype == BERTH_F32 ? 2 : 1;
}

/* As they lie; `is_shared`: others read them, too. */
SIMT_INLINE void
eight_fetch(const void *values, int32_t dtype, uint64_t first, bool is_shared, simt_four *out)
{
    const uint8_t *const from = (const uint8_t *)values + first * (dtype == BERTH_F32 ? 4 : 2);

    SIMT_UNROLL
    for (uint32_t k = 0; k < eight_fours(dtype); k++)
        out[k] = is_shared ? simt_read16(from + 16 * k) : simt_load16(from + 16 * k);
}

SIMT_INLINE void
eight_widen(const simt_four *fours, int32_t dtype, float *out)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < eight_fours(dtype); k++)
        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t word = fours[k].word[j];

            if (dtype == BERTH_F32) {
                out[4 * k + j] = berthi_core_float(word);
            } else if (dtype == BERTH_BF16) {
                out[2 * j] = berthi_core_float(word << 16);
                out[2 * j + 1] = berthi_core_float(word & 0xFFFF0000u);
            } else {
                out[2 * j] = berthi_core_from_fp16((uint16_t)word);
                out[2 * j + 1] = berthi_core_from_fp16((uint16_t)(word >> 16));
            }
        }
}

SIMT_INLINE void
eight_load_whole(const void *values, int32_t dtype, uint64_t first, float *out)
{
    simt_four fours[2];

    eight_fetch(values, dtype, first, false, fours);
    eight_widen(fours, dtype, out);
}

/* Those of the eight that there are, of `count` elements, as bits. */
SIMT_INLINE uint32_t
eight_there(uint64_t first, uint64_t count)
{
    if (first >= count)
        return 0;
    return count - first >= EIGHT ? EIGHT_ALL : (1u << (uint32_t)(count - first)) - 1;
}

/* Those that are there; others are 0. */
SIMT_INLINE void
eight_load(const void *values, int32_t dtype, uint64_t first, uint32_t there, bool is_aligned,
           float *out)
{
    if (is_aligned && there == EIGHT_ALL) {
        eight_load_whole(values, dtype, first, out);
        return;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        out[k] = (there >> k & 1) != 0 ? berthi_core_load(values, dtype, first + k) : 0.0f;
}

/* Of a dtype that only the argument tells. */
SIMT_INLINE void
eight_load_any(const void *values, int32_t dtype, uint64_t first, uint32_t there,
               bool is_aligned, float *out)
{
    if (dtype == BERTH_F32)
        eight_load(values, BERTH_F32, first, there, is_aligned, out);
    else if (dtype == BERTH_BF16)
        eight_load(values, BERTH_BF16, first, there, is_aligned, out);
    else
        eight_load(values, BERTH_F16, first, there, is_aligned, out);
}

SIMT_INLINE void
eight_store_whole(void *values, int32_t dtype, uint64_t first, const float *from)
{
    uint8_t *const to = (uint8_t *)values + first * (dtype == BERTH_F32 ? 4 : 2);

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k += dtype == BERTH_F32 ? 4u : 8u) {
        simt_four four;

        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            if (dtype == BERTH_F32)
                four.word[j] = berthi_core_bits(from[k + j]);
            else if (dtype == BERTH_BF16)
                four.word[j] = berthi_core_to_bf16_pair(from[2 * j], from[2 * j + 1]);
            else
                four.word[j] = berthi_core_to_fp16_pair(from[2 * j], from[2 * j + 1]);
        }
        simt_store16(to + 4 * k, four);
    }
}

/* Those of `keep`. */
SIMT_INLINE void
eight_store(void *values, int32_t dtype, uint64_t first, uint32_t keep, bool is_aligned,
            const float *from)
{
    if (is_aligned && keep == EIGHT_ALL) {
        eight_store_whole(values, dtype, first, from);
        return;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        if ((keep >> k & 1) != 0)
            berthi_core_store(values, dtype, first + k, from[k]);
}

/* Codes of eight bits, as they lie: the first in the lowest byte; `behind` for others. */
SIMT_INLINE simt_two
eight_load_codes(const uint8_t *codes, uint64_t first, uint32_t there, bool is_aligned,
                 uint32_t behind)
{
    simt_two two = { { 0, 0 } };

    if (is_aligned && there == EIGHT_ALL)
        return simt_load8(codes + first);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        two.word[k / 4] |= ((there >> k & 1) != 0 ? codes[first + k] : behind) << (k % 4 * 8);
    return two;
}

SIMT_INLINE void
eight_store_codes(uint8_t *codes, uint64_t first, uint32_t there, bool is_aligned,
                  simt_two two)
{
    if (is_aligned && there == EIGHT_ALL) {
        simt_store8(codes + first, two);
        return;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        if ((there >> k & 1) != 0)
            codes[first + k] = (uint8_t)(two.word[k / 4] >> (k % 4 * 8));
}

#endif
