/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8_output.h - what LLM.int8() makes of sums, as any device is asked for it: the bits of
 * berthi_int8_output(), with sums of 32 bits and outlier columns as bits of a mask.
 *
 *   outputs[i][row] = sums[i][row] * both maxima + bias[row], through fp16, and what the
 *                     outlier columns of input i add, in the outputs' dtype
 */
#ifndef BERTH_KERNELS_INT8_OUTPUT_H
#define BERTH_KERNELS_INT8_OUTPUT_H

#include "kernels/int8_input.h"

/* Pointers are the device's memory. */
typedef struct berthi_int8_output_task {
    const int32_t *sums;         /* count x rows */
    const float *input_maximum;  /* count */
    const float *weight_maximum; /* rows */
    const uint16_t *bias;        /* rows, fp16; NULL: none */
    void *outputs;               /* count x rows */
    int32_t dtype;               /* of outputs and inputs: BERTH_BF16, F16, F32 */
    uint64_t count;              /* of inputs, below 2^32 */
    uint64_t rows;
    berthi_outlier_room outliers; /* as inputs were encoded; without a mask there are none */
    const int8_t *weights;       /* rows x columns; with outliers, as what follows */
    const void *inputs;          /* count x columns before encoding */
    uint64_t columns;            /* below 2^32 */
} berthi_int8_output_task;

/* BERTH_OK, or UNSUPPORTED: what no device does. */
berth_status berthi_int8_output_check(const berthi_int8_output_task *task,
                                      berth_error *error);
/* Checked, on host memory. The list is not looked at. */
void berthi_int8_output_run(const berthi_int8_output_task *task);

#endif
