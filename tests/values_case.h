/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values_case.h - weights in the caller's memory, and vectors that they are multiplied by:
 * every buffer is exactly as large as it must be, with guards on both sides.
 */
#ifndef BERTH_TESTS_VALUES_CASE_H
#define BERTH_TESTS_VALUES_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

#define VALUES_GUARD 0xA5u /* of each byte that nothing has been written to */

/* Memory of exactly `bytes`, with a guard on both sides, which is looked at in the end. */
uint8_t *values_guarded(uint64_t bytes);
void values_release(uint8_t *memory, uint64_t bytes);

/* A weight with buffers of its size. */
typedef struct values_weight {
    berth_context *context;
    berth_values_options options;
    uint64_t shape[2];
    berth_values_part parts[BERTH_VALUES_PARTS];
    uint32_t part_count;
    berth_values_buffers buffers;
    uint8_t *values;
    uint64_t values_bytes;
    uint64_t elements;
    berth_error error;
} values_weight;

void values_begin(values_weight *w, int32_t encoding, int32_t dtype, uint64_t rows,
                  uint64_t columns);
/* Buffers, and values to quantize; after the options are complete. */
void values_allocate(values_weight *w, uint64_t seed, bool is_odd);
/* NULL: it has none. */
const berth_values_part *values_part(const values_weight *w, int32_t role);
berth_status values_quantize(values_weight *w);
/* All memory of the context's has been given back. */
void values_end(values_weight *w);

/* What a weight is multiplied by, and what that gives. */
typedef struct values_factors {
    berth_values_product product;
    uint8_t *inputs;
    uint8_t *outputs;
} values_factors;

void values_begin_product(values_factors *f, const values_weight *w, uint32_t count,
                          int32_t dtype);
berth_status values_multiply(values_weight *w, const values_factors *f);
void values_end_product(values_factors *f);

#endif
