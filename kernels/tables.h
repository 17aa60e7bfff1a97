/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.h - the constants of the formats, as bit patterns of binary32.
 *
 * Bit patterns, because a decimal literal that a compiler rounds once more is
 * another number. None of them is computed at run time: the published files
 * hold these bits, whatever formula they once came from.
 */
#ifndef BERTH_KERNELS_TABLES_H
#define BERTH_KERNELS_TABLES_H

#include <stdint.h>

/* NF4: value of each code, ascending; code = thresholds strictly below it. */
extern const uint32_t berthi_nf4_values[16];
extern const uint32_t berthi_nf4_thresholds[15];

/*
 * FP4: bit 3 is the sign. The step of |p| among the thresholds is mapped to
 * the magnitude code. Code 8 is -0 when decoded; files store +0 in its place.
 */
extern const uint32_t berthi_fp4_values[16];
extern const uint32_t berthi_fp4_thresholds[7];
extern const uint8_t berthi_fp4_codes[8];

/* Dynamic 8-bit maps, ascending. The signed one begins at -0.99297, not at -1. */
extern const uint32_t berthi_signed_map[256];
extern const uint32_t berthi_unsigned_map[256];

/* E2M1, the 4-bit floats of packed sources, by code; code 8 is -0. */
extern const uint32_t berthi_e2m1_values[16];

/*
 * What NVIDIA's units invert by, one for each 128th of [1, 2): the value in units of 2^-26,
 * and in units of 2^-39 what each 2^-23 more takes from it and what the square gives back.
 * How they are used is in reciprocal.h.
 */
typedef struct berthi_reciprocal_piece {
    uint32_t constant;
    uint32_t shape; /* the slope, and the curve << 16 */
} berthi_reciprocal_piece;

extern const berthi_reciprocal_piece berthi_reciprocal_pieces[128];

/* LLM.int8(): 1/127 for a stored weight, and 1/127^2 for a product, as published. */
#define BERTHI_INT8_INVERSE_BITS UINT32_C(0x3c010204)
#define BERTHI_INT8_PRODUCT_BITS UINT32_C(0x38820610)

#endif
