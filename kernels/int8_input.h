/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8_input.h - what LLM.int8() makes of inputs, as any device is asked for it: the bits of
 * berthi_encode_activations(), with outlier columns as bits of a mask and as a list.
 *
 * A column is one that has an input of magnitude `threshold` or above, as fp16, in any row:
 * its codes are 0 in all of them, and INT8_OUTPUT adds what it makes of the inputs as they
 * were, by the same mask and list.
 */
#ifndef BERTH_KERNELS_INT8_INPUT_H
#define BERTH_KERNELS_INT8_INPUT_H

#include "kernels/kernel.h"

/* Where outlier columns are noted; whoever asks owns it, for as long as outputs need it. */
typedef struct berthi_outlier_room {
    uint32_t *mask;    /* berthi_outlier_words(), all 0 before inputs are encoded */
    uint32_t *list;    /* columns, ascending; as many as there is room for */
    uint32_t *count;   /* of all of them */
    uint32_t capacity; /* of the list: any number; of more columns the mask is read */
} berthi_outlier_room;

static inline uint64_t
berthi_outlier_words(uint64_t columns)
{
    return columns / 32 + (columns % 32 != 0);
}

/* A good one: where more columns are apart, eight bits of the mask are cheap beside one. */
static inline uint64_t
berthi_outlier_capacity(uint64_t columns)
{
    return columns / 8 + (columns % 8 != 0);
}

/* Pointers are the device's memory. */
typedef struct berthi_int8_input_task {
    const void *inputs;   /* count x columns */
    int32_t dtype;        /* of them: BERTH_BF16, F16, F32 */
    float threshold;      /* 0: no outliers, and no room for them is looked at */
    uint64_t count;
    uint64_t columns;     /* below 2^31 */
    int8_t *codes;        /* count x columns */
    float *input_maximum; /* count */
    berthi_outlier_room outliers;
} berthi_int8_input_task;

/* BERTH_OK, or UNSUPPORTED: what no device does. */
berth_status berthi_int8_input_check(const berthi_int8_input_task *task, berth_error *error);
/* Checked, on host memory. */
void berthi_int8_input_run(const berthi_operations *operations,
                           const berthi_int8_input_task *task);

#endif
