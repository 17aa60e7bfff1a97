/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_sum.h - how far apart two rows of values are: sums, maximum, counts and
 * the exponents of errors. Pure arithmetic: no allocation, no failure.
 *
 * The order of additions is fixed. Blocks of BERTHI_DIFF_BLOCK values are
 * summed in two lanes, which are added; the blocks of a unit are
 * added pairwise; units are added in their order. What a unit is hangs on the
 * weight alone, so sums do not know of threads, buffers or processors.
 */
#ifndef BERTH_LOADER_DIFF_SUM_H
#define BERTH_LOADER_DIFF_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

#define BERTHI_DIFF_BLOCK 512u

/*
 * Errors by the exponent of |a - b|: number 0 counts those that are 0, number i
 * those from 2^(i - 150) on and below twice that. Differences of two floats
 * have no others.
 */
#define BERTHI_DIFF_EXPONENTS 280u

/* What is known of a unit, a weight, or a model. */
typedef struct berthi_diff_found {
    double signal; /* sum of a^2, like the next two over pairs that are finite */
    double noise;  /* sum of (a - b)^2                                         */
    double errors; /* sum of |a - b|                                           */
    double maximum;
    uint64_t count;
    uint64_t nonfinite; /* pairs that are not the same NaN or infinity */
    uint64_t nan[2];
    uint64_t infinite[2];
    uint64_t codes;     /* stored numbers that differ */
    uint64_t exponents[BERTHI_DIFF_EXPONENTS];
} berthi_diff_found;

/* The three sums of a stretch of values. */
typedef struct berthi_diff_sums {
    double signal;
    double noise;
    double errors;
} berthi_diff_sums;

/* A unit under way: pairwise sums wait at the level of their length. */
typedef struct berthi_diff_unit_sum {
    berthi_diff_found *found;
    berthi_diff_sums levels[64];
    uint64_t blocks;
} berthi_diff_unit_sum;

/* `found` is borrowed and begins as zeros, but for what the caller counts in it. */
void berthi_diff_sum_begin(berthi_diff_unit_sum *sum, berthi_diff_found *found);
/* The next values; all but the last call of a unit bring whole blocks. */
void berthi_diff_sum_add(berthi_diff_unit_sum *sum, const float *a, const float *b,
                         uint64_t count);
/* The unit's sums are then in `found`. */
void berthi_diff_sum_end(berthi_diff_unit_sum *sum);

/*
 * How many stored numbers of `width` bytes differ; 0: of half a byte, and
 * `is_odd` says that the last half byte is none.
 */
uint64_t berthi_diff_count_codes(const uint8_t *a, const uint8_t *b, uint64_t bytes,
                                 uint32_t width, bool is_odd);
/* The same for numbers of 6 bits, four in three bytes. */
uint64_t berthi_diff_count_sixes(const uint8_t *a, const uint8_t *b, uint64_t bytes);

/* `next` stands behind what is in `to`. */
void berthi_diff_found_add(berthi_diff_found *to, const berthi_diff_found *next);

/* What the public interface says of it; `out` is overwritten. */
void berthi_diff_found_tell(const berthi_diff_found *found, berth_diff_errors *out);

#endif
