/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed.h - speeds of the kernels as shares of what this GPU was found to reach in the same
 * run.
 *
 *   speed.c           what measurements share: memory, random weights, time
 *   speed_limits.c    copies and reads of its memory, of the host's, a product of 16 bits
 *   speed_cases.c     which weights, in what encodings, with how many inputs; how rows are called
 *   speed_blocks.c    encoding and decoding
 *   speed_weight.c    a weight of 4-bit codes, several times over
 *   speed_product.c   products of few inputs with it
 *   speed_model.c     those of a whole model for a token
 *   speed_plain.c     products of few inputs with weights that are not of 4 bits
 *   speed_linear.c    a weight in 16 bits, 4 bits and 8 bits, for many inputs
 *   speed_gemm.c      products of many, beside those of 16 bits by cuBLASLt
 *   speed_int8.c      LLM.int8(): rows, few inputs, outlier columns
 *   speed_update.c    updates of parameters
 *
 * All parts run twice: first what something is to be reached for, with many samples, then
 * all other cases, with few: there are more than a thousand. What finds no time is a row
 * that says so. The limits are measured before and after; when they have moved by more than
 * a twentieth all speeds are void.
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
#define GPU_NAME 128u /* of a row, at most */

/* Which rows are measured: see above. */
typedef enum gpu_pass {
    GPU_JUDGED, /* something is to be reached */
    GPU_OTHERS
} gpu_pass;

#define GPU_DTYPES 2u /* BF16 and F16 */

typedef struct gpu_speed {
    const gpu_machine *machine;
    const berthi_cuda_calls *calls;
    berthi_cuda_tiles *tiles; /* NULL: there are none */
    FILE *rows;
    uint64_t deadline_ns; /* berthi_sys_now_ns(): nothing is begun after it */
    bool is_tiny;         /* shapes that lanes on the host get through */
    void *stream;
    berth_context *context;
    berthi_devices *devices;
    berthi_device *device;  /* of the first GPU */
    berthi_cuda_calls narrow_calls;
    berthi_devices *narrow_devices;
    berthi_device *narrow_device; /* the same GPU, as if it had no kernels of many inputs */
    uint32_t capability;    /* of the kernels that run there */
    uint32_t processors;
    uint32_t room_bytes;    /* shared memory that a CTA may have */
    bool has_room[KERNEL_COUNT]; /* launches of these kernels: the runtime has been told */
    uint64_t cache_bytes;
    gpu_pass pass;
    uint16_t *normal;       /* random weights, BF16; on the host */
    uint16_t *normals[GPU_DTYPES]; /* the same in each dtype, on the GPU */
    uint64_t normal_count;
    double copy_gbps;       /* read and written */
    double read_gbps;
    uint32_t wrong;         /* outputs */
    char why[80];           /* of gpu_refusal() */
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
/* The same unless it is BERTH_OK; `error` may be NULL. */
void gpu_require_ok(berth_status status, const berth_error *error);
/* Zeroed memory of the host, free() it; ends the program where there is none. */
void *gpu_host_alloc(uint64_t bytes);
/* NULL: time is left, so much memory, and limits to compare with; else why not. */
const char *gpu_refusal(gpu_speed *s, uint64_t bytes);
/* The same, and a row of this name says why not. */
bool gpu_can_begin(gpu_speed *s, const char *name, uint64_t bytes);
void *gpu_alloc(gpu_speed *s, uint64_t bytes);
void gpu_free(gpu_speed *s, void *memory);
void gpu_fetch(gpu_speed *s, void *to, const void *from, uint64_t bytes);
void gpu_put(gpu_speed *s, void *to, const void *from, uint64_t bytes);
/* Of random weights of this dtype; `seed` says where in them it begins. */
void gpu_fill_normal(gpu_speed *s, void *memory, int32_t dtype, uint64_t count, uint32_t seed);
void gpu_sync(const gpu_speed *s);
/* Buffers of `bytes` that take turns; at most GPU_TURNS. */
uint32_t gpu_turns(const gpu_speed *s, uint64_t bytes);
/* Each of `count` works, in turns, with as many samples as the pass has. */
void gpu_time(gpu_speed *s, const gpu_work *works, uint32_t count, gpu_timing *out);
void gpu_launch(gpu_speed *s, const berthi_launch *launches, uint32_t count);
/* Notes an output that is not what it has to be; true when it is. */
bool gpu_is_right(gpu_speed *s, const char *name, bool is_right);
/* A row of `bytes` moved, as a share of the limit; with no relation nothing is judged. */
void gpu_tell(gpu_speed *s, const gpu_row *row, double bytes, double limit_gbps,
              const char *of);

/* ----------------------------------------------------------------- speed_cases.c */

#define GPU_SHAPES 8u
#define GPU_COUNTS 14u
#define GPU_FEW 6u /* of the counts: those that share a pass over a weight */
#define GPU_MOST_FEW 32u

typedef struct gpu_shape {
    uint64_t rows;
    uint64_t columns;
} gpu_shape;

/* The first one is what most targets are for. */
extern const gpu_shape gpu_shapes[GPU_SHAPES];
extern const uint32_t gpu_counts[GPU_COUNTS]; /* of inputs */

/* What a row is of: a weight, and how its codes are stored. */
typedef struct gpu_case {
    gpu_shape shape; /* as it is called */
    int32_t dtype;   /* of values, inputs, outputs: BERTH_BF16 or BERTH_F16 */
    uint32_t block_size;
    bool is_double;
} gpu_case;

#define GPU_ENCODINGS 8u /* blocks of 64 and 128, with and without double quantization, dtypes */

/* Case `i` of a weight; those of BF16 in blocks of 64 come first. */
gpu_case gpu_case_at(gpu_shape shape, uint32_t i);
/* BF16 in blocks of 64: what targets are for. */
bool gpu_is_usual(const gpu_case *c);
/* What is measured: the weight itself, or where all is tiny one that stands for it. */
gpu_shape gpu_made(const gpu_speed *s, gpu_shape shape);
/* As gpu_refusal(); where all is tiny one shape is enough. */
const char *gpu_shape_refusal(gpu_speed *s, gpu_shape shape, uint64_t bytes);
uint32_t gpu_made_inputs(const gpu_speed *s, uint32_t count);
/* "WHAT, 8192 x 28672, block 128, f16, double, m = 1", without what is usual; 0: no inputs. */
void gpu_describe(char out[GPU_NAME], const char *what, const gpu_case *c, uint32_t count);
/* 0 and 1 for BF16 and F16; a value of the dtype, and how it is rounded to it. */
uint32_t gpu_dtype_at(int32_t dtype);
double gpu_value(int32_t dtype, uint16_t stored);
double gpu_rounding(int32_t dtype);

/* ------------------------------------------------------------------- its parts */

void gpu_speed_limits(gpu_speed *s);
/* Once more, and how far they are from the first ones. */
void gpu_speed_limits_again(gpu_speed *s);
void gpu_speed_blocks(gpu_speed *s);
void gpu_speed_product(gpu_speed *s);
void gpu_speed_model(gpu_speed *s);
void gpu_speed_plain(gpu_speed *s);
void gpu_speed_gemm(gpu_speed *s);
void gpu_speed_int8(gpu_speed *s);
void gpu_speed_update(gpu_speed *s);

#endif
