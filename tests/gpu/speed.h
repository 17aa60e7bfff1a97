/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed.h - speeds of the kernels as shares of what this GPU was found to reach in the same
 * run.
 *
 *   speed.c           what measurements share: memory, random weights, time
 *   speed_limits.c    copies and reads of its memory, of the host's, a product of 16 bits
 *   speed_blocks.c    encoding and decoding
 *   speed_product.c   products of few inputs
 *   speed_plain.c     the same with weights that are not of 4 bits
 *   speed_gemm.c      products of many, by cuBLASLt
 *   speed_update.c    updates of parameters
 *
 * Buffers take turns, so that none is in the GPU's cache when it comes round again. What is
 * compared is timed in turns, too. A speed is told only of outputs that were checked: one
 * that is wrong is a row of its own, counted, and no speed. Whatever fails ends the program.
 */
#ifndef BERTH_TESTS_GPU_SPEED_H
#define BERTH_TESTS_GPU_SPEED_H

#include "kernels/cuda_device.h"
#include "kernels/launch.h"
#include "tests/gpu/machine.h"
#include "tests/gpu/rows.h"

#define GPU_TURNS 64u /* buffers that take turns, at most */

typedef struct gpu_speed {
    const gpu_machine *machine;
    const berthi_cuda_calls *calls;
    FILE *rows;
    uint64_t deadline_ns; /* berthi_sys_now_ns(): nothing is begun after it */
    bool is_tiny;         /* shapes that lanes on the host get through */
    void *stream;
    berth_context *context;
    berthi_devices *devices;
    berthi_device *device;  /* of the first GPU */
    uint32_t capability;    /* of the kernels that run there */
    uint32_t processors;
    uint32_t room_bytes;    /* shared memory that a CTA may have */
    uint64_t cache_bytes;
    uint16_t *normal;       /* random weights, BF16; on the host */
    uint64_t normal_count;
    double copy_gbps;       /* read and written */
    double read_gbps;
    uint32_t wrong;         /* outputs */
} gpu_speed;

/* Asks the stream for one piece of work, on the buffers of this turn. */
typedef struct gpu_work {
    void (*ask)(gpu_speed *s, void *user, uint32_t turn);
    void *user;
} gpu_work;

/* What is asked for: all, or one part beside the limits that it is a share of. */
typedef struct gpu_speed_request {
    double seconds;
    bool is_tiny;
    const char *part; /* "blocks", ...; NULL: all */
} gpu_speed_request;

/* 0: no output was wrong; 2: there is no such part. `machine` as from its kind's call. */
int gpu_speed_run(const gpu_machine *machine, FILE *rows, const gpu_speed_request *request);

/* ----------------------------------------------------------------------- speed.c */

/* Prints and ends the program unless `code` is 0. */
void gpu_require(const gpu_speed *s, int code, const char *what);
/* Time is left, and so much memory; else the row says so. */
bool gpu_can_begin(const gpu_speed *s, const char *name, uint64_t bytes);
void *gpu_alloc(gpu_speed *s, uint64_t bytes);
void gpu_free(gpu_speed *s, void *memory);
void gpu_fetch(gpu_speed *s, void *to, const void *from, uint64_t bytes);
void gpu_put(gpu_speed *s, void *to, const void *from, uint64_t bytes);
/* Of random BF16 weights; `seed` says where in them it begins. */
void gpu_fill_normal(gpu_speed *s, void *memory, uint64_t count, uint32_t seed);
void gpu_sync(const gpu_speed *s);
/* Buffers of `bytes` that take turns; at most GPU_TURNS. */
uint32_t gpu_turns(const gpu_speed *s, uint64_t bytes);
/* Each of `count` works, in turns. */
void gpu_time(gpu_speed *s, const gpu_work *works, uint32_t count, gpu_timing *out);
void gpu_launch(gpu_speed *s, const berthi_launch *launches, uint32_t count);
/* Notes an output that is not what it has to be; true when it is. */
bool gpu_is_right(gpu_speed *s, const char *name, bool is_right);
/* A row of `bytes` moved, as a share of the limit; with no relation nothing is judged. */
void gpu_tell(gpu_speed *s, const gpu_row *row, double bytes, double limit_gbps,
              const char *of);

/* ------------------------------------------------------------------- its parts */

void gpu_speed_limits(gpu_speed *s);
void gpu_speed_blocks(gpu_speed *s);
void gpu_speed_product(gpu_speed *s);
void gpu_speed_plain(gpu_speed *s);
void gpu_speed_gemm(gpu_speed *s);
void gpu_speed_update(gpu_speed *s);

#endif
