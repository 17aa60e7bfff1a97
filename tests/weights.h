/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - for the tests of quant/quantize and quant/dequantize: random
 * values, the levels of this processor, and weights encoded and decoded in
 * random pieces, each in memory of exactly its size.
 */
#ifndef BERTH_TESTS_WEIGHTS_H
#define BERTH_TESTS_WEIGHTS_H

#include <stdint.h>

#include "quant/dequantize.h"
#include "quant/quantize.h"

/* Complete operations of level `i`, the reference first; NULL behind the last. */
const berthi_operations *weights_level(uint32_t i);

/* The next of a sequence that begins with any *state. */
uint64_t weights_random(uint64_t *state);

/*
 * `count` values of a dtype, to be freed: like weights, and where `is_odd` one
 * in eight is a NaN, an infinity, a zero, or any bits.
 */
void *weights_values(int32_t dtype, uint64_t count, uint64_t seed, bool is_odd);

/* malloc() that cannot fail; of 0 bytes, too. */
void *weights_alloc(uint64_t bytes);

/* All of the weight, in pieces; `codes` and `absmax` are the whole weight's. */
void weights_encode(const berthi_quantizer *q, const void *values, uint8_t *codes,
                    float *absmax, uint64_t seed);

/* All values, in pieces, out of the whole tensor's `bytes`; to be freed. */
void *weights_decode(const berthi_decoder *d, const void *bytes, int32_t dtype,
                     uint64_t seed);

#endif
