/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_plain.h - inputs times weights that are not of 4 bits, as any device is asked for
 * it: numbers as they are, and codes of LLM.int8().
 *
 * Numbers: outputs[i][row] = bias[row] + the sum over k of inputs[i][k] * weight[row][k].
 * Column k belongs to sum k % 256 of a row. To each of them its products, rounded to f32,
 * are added with ascending k; then of eights of neighbours the sum 4, 2 and 1 further on is
 * added, and of the eights (a lane each) that 16, 8, 4, 2 and 1 further on. The bias comes
 * last, and one rounding to the outputs' dtype. So processors, simulations and berth's own
 * kernels have the same bits, for an input alone those that it has in a batch. From
 * berthi_gemm_least_inputs() inputs on GPUs may ask cuBLASLt, whose order is its own.
 *
 * Codes: sums that are exact, the same on any device.
 */
#ifndef BERTH_KERNELS_MULTIPLY_PLAIN_H
#define BERTH_KERNELS_MULTIPLY_PLAIN_H

#include "kernels/kernel.h"

#define BERTHI_PLAIN_SUMS 256u /* of a row */

/* Pointers are the device's memory. */
typedef struct berthi_multiply_plain_arguments {
    const void *weight;   /* rows x columns                              */
    const void *inputs;   /* count x columns                             */
    const void *bias;     /* rows; NULL: none                            */
    void *outputs;        /* count x rows                                */
    int32_t weight_dtype; /* BERTH_BF16, F16, F32                        */
    int32_t dtype;        /* of inputs, bias and outputs: the same three */
    uint32_t count;       /* of inputs                                   */
    uint64_t rows;
    uint64_t columns;
} berthi_multiply_plain_arguments;

/* Of more columns a sum of 32 bits might not be exact: (-128)^2 is 2^14. */
#define BERTHI_INT8_COLUMNS ((UINT64_C(1) << 17) - 1)

/* sums[i][row] = the sum over k of inputs[i][k] * weights[row][k]: for INT8_OUTPUT. */
typedef struct berthi_multiply_int8_arguments {
    const int8_t *weights; /* rows x columns                  */
    const int8_t *inputs;  /* count x columns                 */
    int32_t *sums;         /* count x rows                    */
    uint32_t count;
    uint64_t rows;
    uint64_t columns;      /* at most BERTHI_INT8_COLUMNS     */
} berthi_multiply_int8_arguments;

/* BERTH_OK, or UNSUPPORTED: what no device does. */
berth_status berthi_multiply_plain_check(const berthi_multiply_plain_arguments *arguments,
                                         berth_error *error);
berth_status berthi_multiply_int8_check(const berthi_multiply_int8_arguments *arguments,
                                        berth_error *error);
/* Checked, on host memory. */
void berthi_multiply_plain_run(const berthi_multiply_plain_arguments *arguments);
void berthi_multiply_int8_run(const berthi_multiply_int8_arguments *arguments,
                              void (*dot)(const berthi_dot_arguments *part));

#endif
