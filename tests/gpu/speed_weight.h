/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_weight.h - a weight of 4-bit codes, several times over, and inputs that stay: blocks and
 * absmax of any kind share the codes.
 */
#ifndef BERTH_TESTS_GPU_SPEED_WEIGHT_H
#define BERTH_TESTS_GPU_SPEED_WEIGHT_H

#include "tests/gpu/speed.h"

typedef struct gpu_weight {
    gpu_shape shape; /* as it is called */
    uint64_t rows;
    uint64_t columns;
    uint32_t turns;
    uint8_t *codes;
    float *absmax;         /* of blocks of 64: those of larger ones are fewer */
    uint8_t *absmax_codes; /* for which absmax are the second level */
    uint16_t *inputs[GPU_DTYPES];
    uint16_t *outputs;
} gpu_weight;

/* A product with it. */
typedef struct gpu_product {
    const gpu_weight *its;
    gpu_case how;
    uint32_t count;               /* of inputs, at most GPU_MOST_FEW */
    const uint16_t *const *inputs; /* in place of the weight's; NULL: those */
} gpu_product;

gpu_weight gpu_weight_of(const gpu_speed *s, gpu_shape shape);
/* Of all turns. */
uint64_t gpu_weight_bytes(const gpu_weight *w);
void gpu_weight_begin(gpu_speed *s, gpu_weight *w);
/* What was never begun has nothing. */
void gpu_weight_end(gpu_speed *s, gpu_weight *w);

berthi_multiply_arguments gpu_product_arguments(const gpu_product *p, uint32_t turn);
/* The kernel of few inputs. */
berthi_launch gpu_product_launch(gpu_speed *s, const gpu_product *p, uint32_t turn);
/* What a pass over it reads and writes. */
double gpu_product_bytes(const gpu_product *p);
/* `output` is what the first input, on the host, gives for this row, within the bounds of tests. */
bool gpu_product_is_right(gpu_speed *s, const gpu_product *p, const uint16_t *input,
                          uint64_t row, uint16_t output);

#endif
