/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made.h - a stored weight that a test makes up: its record, random bytes and
 * companions; and the comparison of what is decoded with an oracle.
 */
#ifndef BERTH_TESTS_MADE_H
#define BERTH_TESTS_MADE_H

#include <stdint.h>

#include "quant/dequantize.h"

typedef struct made {
    berthi_quantized record;
    uint64_t shape[4];
    uint8_t *bytes; /* of the weight */
    berthi_companion companions[3];
    void *memory;   /* of the prepared statistics */
} made;

/* What value i is before it is rounded to the wanted dtype. */
typedef float made_oracle(const made *m, uint64_t i);

/* BF16, F16, F32 */
extern const int32_t made_dtypes[3];

/* Small and odd ones, of three dims. */
#define MADE_SHAPES 7u
extern const uint64_t made_shapes[MADE_SHAPES][3];

/* To be freed. */
uint8_t *made_bytes(uint64_t count, uint64_t seed);

void made_begin(made *m, int32_t encoding, uint32_t rank, const uint64_t *shape);
/* `count` random values of a dtype, as companion i. */
void made_companion(made *m, uint32_t i, int32_t dtype, uint64_t count);
void made_end(made *m);

/* Element i of a companion of numbers. */
float made_number(const berthi_companion *companion, uint64_t i);

/* Prepared; its statistics live until the next call or the end. */
berthi_decoder made_decoder(made *m, const berthi_operations *operations);

/* All levels, dtypes, some divisions into pieces: the oracle's values. */
void made_check(made *m, made_oracle *oracle);

#endif
