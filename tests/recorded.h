/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorded.h - what a GPU was seen to do, in tests/data/gpu/h200:
 *
 *   rcp23.bin.gz   of rcp.approx.ftz.f32: by how many ulps it lies beside the correctly
 *                  rounded reciprocal, for every mantissa (two bits each, the first in
 *                  the lowest: 0, +1, -1)
 *   rcp10.txt      that this holds for every exponent, and what special values give
 *
 * Older recordings, the "canonical" codes of vectors and checkpoints, are those of the
 * correctly rounded reciprocal. recorded_repair() makes of them what a GPU stores.
 */
#ifndef BERTH_TESTS_RECORDED_H
#define BERTH_TESTS_RECORDED_H

#include <stdint.h>

#include "tests/vectors.h"

#define RECORDED_FOLDER "tests/data/gpu/h200/"

/* The whole of rcp23.bin; to be freed. */
uint8_t *recorded_open(void);

/* Of a positive normal number up to 2^126. */
float recorded_reciprocal(const uint8_t *deltas, float value);

typedef struct recorded_weight {
    int32_t encoding;    /* BERTH_ENCODING_NF4, _FP4 or _INT8; with a map none of them counts */
    const uint32_t *map; /* 8-bit codes in blocks; else NULL */
    const void *values;
    int32_t dtype;
    uint64_t count;
    uint64_t block_size; /* int8: the columns */
} recorded_weight;

/* The code of a value, given the reciprocal of the largest one. */
uint8_t recorded_code(const recorded_weight *w, float value, float reciprocal);

/*
 * Codes that a correctly rounded reciprocal gives -> those of the recorded one. An element
 * whose code changes must have had the former, or a check fails; the others are left alone.
 * Returns how many have changed.
 */
uint64_t recorded_repair(const uint8_t *deltas, const recorded_weight *w, uint8_t *codes);

/*
 * The same on a copy, to be freed, of the codes of a vector; what changes must be among those
 * that it names as sensitive. How many is added to *changed.
 */
uint8_t *recorded_vector(const uint8_t *deltas, const vectors *v, const char *prefix,
                         const recorded_weight *w, const uint8_t *codes, uint64_t *changed);

#endif
