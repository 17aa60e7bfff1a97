/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h - weights in the caller's memory: checked arguments, and work that
 * several threads share. Only for values*.c, and for what they are measured by.
 */
#ifndef BERTH_LOADER_VALUES_H
#define BERTH_LOADER_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/kernel.h"
#include "kernels/memory.h"
#include "quant/stored.h"

/* Values of a part of the work: less is not worth a thread. */
#define BERTHI_VALUES_PIECE (UINT64_C(1) << 18)

/* Checked options and what follows from them. */
typedef struct berthi_values {
    berthi_storage storage;
    const uint64_t *shape; /* the caller's */
    uint32_t rank;
    uint32_t threads;
    uint64_t elements;
    uint64_t value_bytes;  /* of all values */
    uint64_t blocks;       /* 4-bit: first-level absmax; INT8: rows */
    berthi_stored parts[BERTHI_STORED_MAX];
    uint32_t part_count;
} berthi_values;

/* ------------------------------------------------------------------- values.c */

/* EINVAL names what is wrong. */
berth_status berthi_values_take(const berth_values_options *options, berthi_values *out,
                                berth_error *error);

/* A stretch of memory that an argument names. */
typedef struct berthi_values_range {
    const char *name;
    const void *memory;
    uint64_t bytes;
    uint64_t wanted;    /* what `bytes` must be */
    uint32_t alignment;
    bool is_written;
} berthi_values_range;

#define BERTHI_VALUES_RANGES 8u

/*
 * EINVAL: NULL, another size than wanted, not aligned, beyond the end of
 * memory, or one that is written overlaps another.
 */
berth_status berthi_values_check(const berthi_values_range *ranges, uint32_t count,
                                 berth_error *error);
/*
 * The caller's buffers into `mine` and the ranges they are, three at most;
 * those that such a weight has not must be NULL and 0.
 */
berth_status berthi_values_take_buffers(const berthi_values *values,
                                        const berth_values_buffers *buffers,
                                        bool is_written, berth_values_buffers *mine,
                                        berthi_values_range *ranges, uint32_t *count,
                                        berth_error *error);

/* ---------------------------------------------------------- values_parallel.c */

/* Part `part` of the work, on thread `worker` of those asked for. */
typedef void (*berthi_values_work)(void *user, uint32_t worker, uint64_t part);

/* How many threads `parts` parts get; `wanted` 0: as many as there are cores. */
uint32_t berthi_values_threads(uint32_t wanted, uint64_t parts);
/*
 * Does all parts and returns. The calling thread is one of the `threads`, and
 * the only one where no other can be started.
 */
void berthi_values_run(uint32_t threads, uint64_t parts, berthi_values_work work,
                       void *user);

#endif
