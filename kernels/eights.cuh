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

/* As they lie in memory: one or two to a word. */
typedef struct eight_words {
    uint32_t word[EIGHT];
} eight_words;

/* `is_shared`: others read them, too. */
SIMT_INLINE eight_words
eight_fetch_words(const void *values, int32_t dtype, uint64_t first, bool is_shared)
{
    const uint8_t *const from = (const uint8_t *)values + first * (dtype == BERTH_F32 ? 4 : 2);
    eight_words words = { { 0 } };

    SIMT_UNROLL
    for (uint32_t k = 0; k < (dtype == BERTH_F32 ? 8u : 4u); k += 4) {
        const simt_four four = is_shared ? simt_read16(from + 4 * k) : simt_load16(from + 4 * k);

        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            words.word[k + j] = four.word[j];
    }
    return words;
}

SIMT_INLINE eight_words
eight_load_words(const void *values, int32_t dtype, uint64_t first)
{
    return eight_fetch_words(values, dtype, first, false);
}

SIMT_INLINE void
eight_store_words(void *values, int32_t dtype, uint64_t first, const eight_words *words)
{
    uint8_t *const to = (uint8_t *)values + first * (dtype == BERTH_F32 ? 4 : 2);

    SIMT_UNROLL
    for (uint32_t k = 0; k < (dtype == BERTH_F32 ? 8u : 4u); k += 4) {
        const simt_four four = { { words->word[k], words->word[k + 1], words->word[k + 2],
                                   words->word[k + 3] } };

        simt_store16(to + 4 * k, four);
    }
}

SIMT_INLINE float
eight_value(const eight_words *words, int32_t dtype, uint32_t k)
{
    if (dtype == BERTH_F32)
        return berthi_core_float(words->word[k]);
    if (dtype == BERTH_BF16)
        return berthi_core_float(k % 2 == 0 ? words->word[k / 2] << 16
                                            : words->word[k / 2] & 0xFFFF0000u);
    return berthi_core_from_fp16(
        (uint16_t)(k % 2 == 0 ? words->word[k / 2] : words->word[k / 2] >> 16));
}

SIMT_INLINE void
eight_widen(const eight_words *words, int32_t dtype, float *out)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        out[k] = eight_value(words, dtype, k);
}

/* Rounded, two at a time where they share a word. */
SIMT_INLINE eight_words
eight_words_of(int32_t dtype, const float *from)
{
    eight_words words = { { 0 } };

    SIMT_UNROLL
    for (uint32_t k = 0; k < (dtype == BERTH_F32 ? 8u : 4u); k++) {
        if (dtype == BERTH_F32)
            words.word[k] = berthi_core_bits(from[k]);
        else if (dtype == BERTH_BF16)
            words.word[k] = berthi_core_to_bf16_pair(from[2 * k], from[2 * k + 1]);
        else
            words.word[k] = berthi_core_to_fp16_pair(from[2 * k], from[2 * k + 1]);
    }
    return words;
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
        const eight_words words = eight_load_words(values, dtype, first);

        eight_widen(&words, dtype, out);
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

/* Those of `keep`. */
SIMT_INLINE void
eight_store(void *values, int32_t dtype, uint64_t first, uint32_t keep, bool is_aligned,
            const float *from)
{
    if (is_aligned && keep == EIGHT_ALL) {
        const eight_words words = eight_words_of(dtype, from);

        eight_store_words(values, dtype, first, &words);
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
