/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - numbers that look random and are the same in every run: xorshift over a
 * state that is not 0.
 */
#ifndef BERTH_TESTS_RANDOM_H
#define BERTH_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t
random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* [0, 1) */
static inline float
random_share(uint64_t *state)
{
    return (float)(random_next(state) >> 40) * 0x1p-24f;
}

/* [-1, 1) */
static inline float
random_signed(uint64_t *state)
{
    return (float)((int64_t)(random_next(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

#endif
