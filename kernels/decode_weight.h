/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_weight.h - values of stored weights, as any device is asked for them: all, or any
 * stretch. The bits are those that the scalar operations make of the whole weight.
 *
 * What lies in memory begins where the stretch does, which need not be where a block does:
 *
 *   blocks   |       |       |       |      `first` says how far into its block, and into its
 *   values       |--------------|           block of absmax, the first value is
 *                ^ first
 *
 * Operations count from a block on, so a stretch is decoded in parts: what is left of its first
 * block, of a block of absmax, and the rest.
 */
#ifndef BERTH_KERNELS_DECODE_WEIGHT_H
#define BERTH_KERNELS_DECODE_WEIGHT_H

#include "kernels/kernel.h"

/* Of 4-bit codes. Pointers are the device's memory, but for the map. */
typedef struct berthi_decode_blocks_task {
    const uint8_t *codes;        /* from the first value's on */
    const float *absmax;         /* double quantization: the second level; from its block on */
    const uint8_t *absmax_codes; /* double quantization: the first level; NULL: plain */
    const uint32_t *map;         /* of those codes, as it is stored; the host's, and there until
                                    the work is done */
    float offset;                /* double quantization */
    uint32_t block_size;         /* 32 to 4096, a power of two */
    uint64_t first;              /* number of the first value in the weight, even */
    uint64_t count;
    void *values;
    int32_t dtype;               /* of the values: BERTH_BF16, F16, F32 */
} berthi_decode_blocks_task;

/* Of the codes of LLM.int8(). Pointers are the device's memory. */
typedef struct berthi_decode_rows_task {
    const int8_t *codes;      /* from the first value's on */
    const float *row_maximum; /* from its row on */
    uint64_t columns;         /* below 2^31 */
    uint64_t first;           /* number of the first value in the weight */
    uint64_t count;
    void *values;
    int32_t dtype;            /* of the values: BERTH_BF16, F16, F32 */
} berthi_decode_rows_task;

/* BERTH_OK, or UNSUPPORTED: what no device does. What follows is of checked tasks. */
berth_status berthi_decode_blocks_check(const berthi_decode_blocks_task *task,
                                        berth_error *error);
berth_status berthi_decode_rows_check(const berthi_decode_rows_task *task, berth_error *error);

/* Blocks that the values are in, and blocks of absmax that those are in. */
uint64_t berthi_decode_blocks_of(const berthi_decode_blocks_task *task);
uint64_t berthi_decode_absmax_blocks_of(const berthi_decode_blocks_task *task);
/* Rows that the values are in. */
uint64_t berthi_decode_rows_of(const berthi_decode_rows_task *task);

#define BERTHI_DECODE_PARTS 3u /* at most */

/*
 * What is decoded at once from value `done` on, the first of a part, as a task of its own: it
 * begins with a block and, doubly quantized, with one of absmax, or lies in one.
 */
berthi_decode_blocks_task berthi_decode_blocks_part(const berthi_decode_blocks_task *task,
                                                    uint64_t done);
/* The same: part of a row, or whole rows. */
berthi_rows_decode_arguments berthi_decode_rows_part(const berthi_decode_rows_task *task,
                                                     uint64_t done);

/* On host memory, `decode` being one of the operations. */
void berthi_decode_blocks_run(const berthi_decode_blocks_task *task,
                              const berthi_operations *operations,
                              void (*decode)(const berthi_decode_arguments *part));
void berthi_decode_rows_run(const berthi_decode_rows_task *task,
                            const berthi_operations *operations);

#endif
