/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - what the measurements need of a GPU beyond the library's own calls: times of
 * streams, and a kernel that only reads.
 *
 *   machine_cuda.c   the first GPU of this machine; read_all.cu
 *   machine_fake.c   that of fake_cuda.h: the same steps, and no measurement
 *
 * What the calls return is the runtime's number for an error, as in cuda_calls.h.
 */
#ifndef BERTH_TESTS_GPU_MACHINE_H
#define BERTH_TESTS_GPU_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda_calls.h"

typedef struct gpu_machine {
    const berthi_cuda_calls *calls;
    bool is_simulated;
    int (*stamp_create)(void **out);
    int (*stamp_destroy)(void *stamp);
    /* The stamp is when the stream has done what it was asked for so far. */
    int (*stamp_record)(void *stamp, void *stream);
    /* Between two that have passed. */
    int (*elapsed_ms)(float *out, void *begin, void *end);
    /* Reads `bytes`, a multiple of 16, and adds up something that depends on each. */
    int (*read_all)(const void *memory, uint64_t bytes, uint32_t *sum, void *stream);
    /* Bytes of the cache that all multiprocessors share, and clocks in MHz; 0: unknown. */
    int (*describe)(uint64_t *cache_bytes, uint32_t *clock, uint32_t *memory_clock);
} gpu_machine;

/* NULL: `*out_why` there is none. */
const gpu_machine *gpu_machine_cuda(const char **out_why);
const gpu_machine *gpu_machine_fake(const char **out_why);

#endif
