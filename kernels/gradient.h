/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradient.h - what a step needs of gradients beside updates: how long they are and
 * whether they are finite, and their sum over several batches.
 *
 * Bits        The same on every level and device, however a gradient is shared out.
 *             A gradient is measured by blocks of BERTHI_GRADIENT_BLOCK elements,
 *             the last one short. Element i of a block belongs to the lane i modulo
 *             BERTHI_GRADIENT_LANES. Squares are doubles, and exact; a lane adds its
 *             own in ascending order, beginning with 0. Then lane k adds lane k + 16,
 *             for all k below 16, then k + 8, 4, 2 and 1: lane 0 is the block's sum.
 *             Blocks are added in ascending order.
 * Non-finite  NaN and infinities are counted, and are in no sum of squares. Sums of
 *             batches are what the addition makes of them, NaN being 0x7FFFFFFF, or
 *             0x7FFF.
 */
#ifndef BERTH_KERNELS_GRADIENT_H
#define BERTH_KERNELS_GRADIENT_H

#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_GRADIENT_BLOCK 4096u
#define BERTHI_GRADIENT_LANES 32u

/* Of a block, or of all of them. */
typedef struct berthi_gradient_sum {
    double squares;
    uint64_t not_finite;
} berthi_gradient_sum;

typedef struct berthi_measure_arguments {
    uint64_t count;
    const void *gradient;
    int32_t dtype;             /* BERTH_BF16, BERTH_F16 or BERTH_F32 */
    berthi_gradient_sum *sums; /* one per block */
} berthi_measure_arguments;

/* By plain loops. A share for one of several threads is of whole blocks, or the last. */
void berthi_measure_plainly(const berthi_measure_arguments *arguments);
/* The blocks' sums, of one gradient or of several ones in their order, added up. */
berthi_gradient_sum berthi_gradient_total(const berthi_gradient_sum *sums, uint64_t count);

/* sum[i] + scale * gradient[i]: the product in f32, the sum in f32 and then in its dtype. */
typedef struct berthi_accumulate_arguments {
    uint64_t count;
    void *sum;
    int32_t sum_dtype; /* the same three, on its own */
    int32_t dtype;
    const void *gradient;
    float scale;       /* 1: what is added is the gradient itself */
} berthi_accumulate_arguments;

/* By plain loops. Elements know nothing of each other: any share will do. */
void berthi_accumulate_plainly(const berthi_accumulate_arguments *arguments);

/* BERTH_OK, or UNSUPPORTED: a dtype that there is not. */
berth_status berthi_measure_check(const berthi_measure_arguments *arguments,
                                  berth_error *error);
berth_status berthi_accumulate_check(const berthi_accumulate_arguments *arguments,
                                     berth_error *error);

#endif
