/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_lt.h - products of many inputs on a GPU by cuBLASLt: weights of 4 bits are decoded
 * slab by slab, the next one while one is multiplied; and, on GPUs of 9.0, by kernels that
 * decode them where they multiply, in the library's workspace and without the library.
 *
 * The library is opened at the first product, and so is what it costs: on the GPU, for
 * each of up to BERTHI_GEMM_ROOMS streams that multiply at a time, a workspace and, where
 * weights have to be decoded, slabs and a stream beside. Nothing is allocated and nothing
 * searched for a shape and a stream that have been there.
 *
 * A graph may capture any call. What its products work in is what the stream has from eager
 * ones, and is set apart for its graphs from then on; nothing is made for a graph, and one of
 * the BERTHI_GEMM_ROOMS is left for eager work.
 *
 * While a stream captures the runtime does not tell its number, which no other stream has, but its
 * handle alone, which comes again. So berth's streams are forgotten when they are destroyed, and an
 * eager product finds out of which stream a handle is; a caller's stream that has done none yet
 * cannot be told from one before it (berth.h).
 *
 * EUNSUPPORTED, ENOMEM: not this way - no library, no product of this shape in it, no room;
 * berth's own kernels have to do it, and write all outputs anew (cuda_multiply.c does).
 * Everything else has failed.
 */
#ifndef BERTH_KERNELS_GEMM_LT_H
#define BERTH_KERNELS_GEMM_LT_H

#include "kernels/cuda_device.h"
#include "kernels/launch.h"

#define BERTHI_GEMM_ROOMS 4u
#define BERTHI_GEMM_PLANS 64u /* shapes that are kept; the one used longest ago goes first */
/*
 * Weights that are decoded, at most: 2048 rows of 28672 columns in 16 bits, which with 2048
 * inputs are a tile of 128 x 256 for each of 128 processors. `LEAST`: where a GPU has no room
 * for that. `DECODED` is of all slabs of a stream, and of the flags of products without them,
 * which plans count with.
 */
#define BERTHI_GEMM_SLABS 2u
#ifdef BERTH_TESTING
#define BERTHI_GEMM_SLAB_BYTES (UINT64_C(64) << 10) /* small weights have several */
#define BERTHI_GEMM_LEAST_SLAB_BYTES (UINT64_C(16) << 10)
#else
#define BERTHI_GEMM_SLAB_BYTES (UINT64_C(112) << 20)
#define BERTHI_GEMM_LEAST_SLAB_BYTES (UINT64_C(14) << 20)
#endif
#define BERTHI_GEMM_DECODED_BYTES                                                     \
    (BERTHI_GEMM_SLABS * BERTHI_GEMM_SLAB_BYTES + WIDE_FLAG_BYTES)
/* From Hopper on, and before. */
#define BERTHI_GEMM_WORKSPACE_BYTES (UINT64_C(32) << 20)
#define BERTHI_GEMM_SMALL_WORKSPACE_BYTES (UINT64_C(4) << 20)

typedef enum berthi_gemm_weight {
    BERTHI_GEMM_OF_4BIT,
    BERTHI_GEMM_OF_NUMBERS, /* of the inputs' dtype; BERTH_I8: codes of LLM.int8() */
    BERTHI_GEMM_WEIGHTS
} berthi_gemm_weight;

/*
 * From how many inputs, of this dtype, on this is the faster way: the one table of that.
 * UINT32_MAX: never. `capability` is 10 * major + minor.
 */
uint32_t berthi_gemm_least_inputs(berthi_gemm_weight weight, int32_t dtype,
                                  uint32_t capability);

/* outputs[i][row] = bias[row] + the sum over k of inputs[i][k] * weight[row][k]. */
typedef struct berthi_gemm_task {
    const void *weight; /* rows x columns */
    const void *inputs; /* count x columns */
    const void *bias;   /* rows; NULL: none, as of BERTH_I8 */
    void *outputs;      /* count x rows, their lines `stride` values apart */
    int32_t dtype;      /* of all: BERTH_BF16, _F16, _F32; BERTH_I8: outputs are BERTH_I32 */
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    uint64_t stride;    /* at least `rows` */
} berthi_gemm_task;

/* Within a call that has been entered; in the order of the stream. */
berth_status berthi_gemm_multiply(const berthi_cuda_call *call, const berthi_gemm_task *task,
                                  berthi_stream *stream);

/* The same with a weight of 4-bit codes, which is decoded to the dtype of the inputs. */
typedef struct berthi_gemm_4bit {
    const uint8_t *codes;
    const float *absmax;    /* not looked at with `double_absmax` */
    const berthi_double_absmax *double_absmax; /* NULL: plain ones */
    const uint32_t *values; /* 16 that the codes stand for; read on the host */
    uint32_t block_size;
    int32_t dtype;          /* BERTH_BF16, _F16, _F32 */
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    const void *inputs;
    const void *bias;
    void *outputs;          /* count x rows */
} berthi_gemm_4bit;

/*
 * Rows that are decoded at once where a slab has so many bytes, on a GPU of so many
 * processors: all but the last slab have as many. 0: no slab begins with a block.
 */
uint64_t berthi_gemm_slab_rows(const berthi_gemm_4bit *task, uint64_t bytes,
                               uint32_t processors);
berth_status berthi_gemm_multiply_4bit(const berthi_cuda_call *call,
                                       const berthi_gemm_4bit *task, berthi_stream *stream);

/*
 * Whether this device has kernels of many inputs (product_wide.cuh) for a weight of 4 bits, and the
 * inputs are so many that these are quicker than those of few.
 */
bool berthi_gemm_is_wide(const berthi_cuda_call *call, const berthi_multiply_arguments *arguments);
#define BERTHI_GEMM_WIDE_LEAST 17u /* H200, measured: fewer are as quick by rings */
/* Whether they are quicker than the library with a weight that is decoded for it. */
bool berthi_gemm_is_wide_first(const berthi_cuda_call *call,
                               const berthi_multiply_arguments *arguments);
berth_status berthi_gemm_multiply_wide(const berthi_cuda_call *call,
                                       const berthi_multiply_arguments *arguments,
                                       const uint32_t *values, berthi_stream *stream);

/* The stream ends: the next one with its handle has none of what it multiplied in. */
void berthi_gemm_forget(berthi_cuda_device *device, const void *stream);
/* What the device has of it is given back; NULL is allowed. */
void berthi_gemm_destroy(berthi_gemm *gemm);

#endif
