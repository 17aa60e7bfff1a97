/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.h - drawn products of 4-bit weights, and whether what kernels make of them on the
 * host is within the bounds of sums in double.
 */
#ifndef BERTH_TESTS_PRODUCTS_H
#define BERTH_TESTS_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/multiply.h"
#include "tests/simt.h"

typedef struct product_case {
    uint64_t rows;
    uint64_t columns;
    uint32_t block_size;
    uint32_t count;
    int32_t dtype;
    bool is_fp4;
    bool is_double;
    bool has_bias;
    uint32_t capability;
    uint32_t processors; /* 0: not by rings */
    bool has_tiles;      /* of few inputs by tiles instead */
    size_t odd_codes;
    size_t odd_inputs;
    bool is_wide; /* by kernels of many inputs, of which weights count as rounded themselves */
} product_case;

typedef struct product_problem {
    product_case c;
    uint64_t blocks;
    uint8_t *codes;
    float *absmax; /* as the weights meet it */
    uint8_t *absmax_codes;
    float *absmax2;
    float offset;
    uint8_t *inputs;
    void *bias;
    uint8_t *memory[2]; /* that codes and inputs end with */
} product_problem;

uint64_t product_element_bytes(int32_t dtype);
/* The same each time that a program is run. */
uint64_t product_random(void);
/* Inputs end where their memory does. */
product_problem product_draw(const product_case *c);
void product_free(product_problem *p);
/* Of inputs `first` to `first + count - 1`. */
berthi_multiply_arguments product_arguments(const product_problem *p, uint32_t first,
                                            uint32_t count, void *outputs);
void product_run(const product_problem *p, uint32_t first, uint32_t count, void *outputs);
void product_check_bounds(const product_problem *p, const void *outputs);
/* In every order of lanes the same bits, behind a fence, within the bounds. */
void product_check(const product_case *c);
/* Inputs, each `apart`-th, have alone the bits that they have in a batch, which has its bounds. */
void product_check_alone(const product_case *c, uint32_t apart, simt_order order, uint64_t seed);
/*
 * So many weights, of these rows, in one launch: each one's bits are those that it has alone. Tiles
 * of one follow the other's in a CTA. Of 16-bit inputs.
 */
void product_check_together(const product_case *c, const uint64_t *rows, uint32_t count);
/* This value in input 3, and NaN in a block of `row`, stay in their outputs. */
void product_check_not_finite(const product_case *c, float value, uint64_t row, uint64_t seed);

#endif
