/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply.h - inputs times a weight of 4-bit codes, as any device is asked for it.
 *
 *   outputs[i][row] = bias[row] + the sum over k of inputs[i][k] * weight[row][k]
 *
 * Sums, with the bias, are rounded once, to the inputs' dtype. They are within the bounds
 * of the tests of the exact ones, run after run the same bits, and of an input alone those
 * that it has in a batch. Which bits is a device's own affair: what codes stand for counts
 * as rounded to bf16 with bf16 inputs, and with f16 inputs on GPUs to f16.
 *
 * From berthi_gemm_least_inputs() inputs on GPUs may ask cuBLASLt, from BERTHI_GEMM_WIDE_LEAST on
 * those of 9.0 have kernels of many: bits are those of that library, or kernel, for that number
 * of inputs, and by the library, and of more than 64 inputs by kernels, the weight itself counts
 * as rounded to the inputs' dtype.
 */
#ifndef BERTH_KERNELS_MULTIPLY_H
#define BERTH_KERNELS_MULTIPLY_H

#include "kernels/kernel.h"

#define BERTHI_MULTIPLY_INPUTS 32u /* that meet a weight at once; of more, one group of so
                                      many after the other */

/* Pointers are the device's memory, but for the map. */
typedef struct berthi_multiply_arguments {
    const uint8_t *codes;
    const float *absmax;         /* double quantization: the second level              */
    const uint8_t *absmax_codes; /* double quantization: the first level; NULL: plain  */
    const uint32_t *map;         /* of those codes, as it is stored; the host's, and
                                    there until the work is done                       */
    float offset;                /* double quantization                                */
    uint32_t block_size;         /* 32 to 4096, a power of two                         */
    uint32_t count;              /* of inputs                                          */
    uint64_t rows;
    uint64_t columns;            /* any number; blocks run over the flat weight        */
    const void *inputs;          /* count x columns                                    */
    const void *bias;            /* rows; NULL: none                                   */
    void *outputs;               /* count x rows                                       */
    int32_t dtype;               /* of inputs, bias and outputs: BERTH_BF16, F16, F32  */
    float *scratch;              /* berthi_multiply_scratch() values; not looked at by
                                    GPUs                                               */
    bool is_settled;             /* codes and absmax are not written by anything that the
                                    stream waits for: they may be read before that       */
} berthi_multiply_arguments;

/* Rows from one that begins with a block to the next that does: a power of two, as blocks are. */
uint64_t berthi_multiply_period(uint64_t columns, uint32_t block_size);
/*
 * Absmax of a doubly quantized weight, from that of block `first` on, which need not begin a
 * block of the second level. `weight` is all of it, but for count.
 */
void berthi_multiply_recover(const berthi_double_arguments *weight,
                             const berthi_operations *operations, uint64_t first,
                             uint64_t count, float *out);

/* Whether bytes of weights, inputs and outputs can be counted: of products of all kinds. */
berth_status berthi_multiply_check_sizes(uint64_t rows, uint64_t columns, uint64_t count,
                                         berth_error *error);
/* BERTH_OK, or UNSUPPORTED: what no device does. */
berth_status berthi_multiply_check(const berthi_multiply_arguments *arguments,
                                   berth_error *error);
/* Group of inputs from `first` on: what remains of a product, at most so many. */
berthi_multiply_arguments berthi_multiply_group(const berthi_multiply_arguments *arguments,
                                                uint32_t first);
/*
 * Of checked arguments: some rows of floats. It grows with columns and the inputs of a
 * group, not with rows.
 */
uint64_t berthi_multiply_scratch(const berthi_multiply_arguments *arguments);
/* Checked, on host memory, with one of the operations' products. */
void berthi_multiply_run(const berthi_multiply_arguments *arguments,
                         const berthi_operations *operations,
                         void (*multiply)(const berthi_product_arguments *part));

#endif
