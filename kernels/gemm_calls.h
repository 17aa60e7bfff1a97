/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_calls.h - the calls of cuBLASLt that berth makes, as a table.
 *
 *   gemm_open.c          fills it from the library, which is opened at run time
 *   tests/fake_gemm.c    fills it with products on the host
 *   gemm_lt.c            makes the calls, and knows of neither
 *
 * The library's own prototypes in plain C types, its handles as void *, so that no header
 * of the toolkit is needed; where one is, cuda_runtime.c holds the numbers against it.
 * What the calls return is the library's own status.
 *
 * The library is column-major: a row-major weight of N rows and K columns is a matrix of
 * K rows and N columns to it, and is turned; a row-major y = x w^T is then what it calls
 * D = A^T B, with A the weight and B the inputs.
 */
#ifndef BERTH_KERNELS_GEMM_CALLS_H
#define BERTH_KERNELS_GEMM_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The statuses that berth tells apart. */
typedef enum berthi_gemm_status {
    BERTHI_GEMM_OK = 0,
    BERTHI_GEMM_NO_MEMORY = 3,
    BERTHI_GEMM_INVALID = 7,
    BERTHI_GEMM_MISMATCH = 8, /* not on this architecture */
    BERTHI_GEMM_EXECUTION = 13,
    BERTHI_GEMM_UNSUPPORTED = 15
} berthi_gemm_status;

typedef enum berthi_gemm_type {
    BERTHI_GEMM_F32 = 0,
    BERTHI_GEMM_F16 = 2,
    BERTHI_GEMM_I8 = 3,
    BERTHI_GEMM_I32 = 10,
    BERTHI_GEMM_BF16 = 14
} berthi_gemm_type;

/* What sums are kept in. */
typedef enum berthi_gemm_compute {
    BERTHI_GEMM_SUM_F32 = 68,
    BERTHI_GEMM_SUM_I32 = 72
} berthi_gemm_compute;

/* Of an operation. */
typedef enum berthi_gemm_attribute {
    BERTHI_GEMM_TURN_A = 3,       /* int32_t: BERTHI_GEMM_TURNED */
    BERTHI_GEMM_EPILOGUE = 7,     /* uint32_t: BERTHI_GEMM_ADD_BIAS */
    BERTHI_GEMM_BIAS_POINTER = 8  /* const void *, the device's */
} berthi_gemm_attribute;

#define BERTHI_GEMM_TURNED 1
#define BERTHI_GEMM_ADD_BIAS 4u

#define BERTHI_GEMM_COLUMNS 3 /* of a layout: uint64_t */

/* Of a preference. */
typedef enum berthi_gemm_preference {
    BERTHI_GEMM_WORKSPACE = 1,   /* uint64_t */
    BERTHI_GEMM_ALIGNMENT_A = 5, /* uint32_t, and so up to D */
    BERTHI_GEMM_ALIGNMENT_B = 6,
    BERTHI_GEMM_ALIGNMENT_C = 7,
    BERTHI_GEMM_ALIGNMENT_D = 8
} berthi_gemm_preference;

/* How a product is computed; the library's own. */
typedef struct berthi_gemm_algorithm {
    uint64_t data[8];
} berthi_gemm_algorithm;

typedef struct berthi_gemm_result {
    berthi_gemm_algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} berthi_gemm_result;

/* X(member, result, arguments, symbol) */
#define BERTHI_GEMM_CALLS(X)                                                               \
    X(status_words, const char *, (int status), "cublasLtGetStatusString")                 \
    X(create, int, (void **out_handle), "cublasLtCreate")                                  \
    X(destroy, int, (void *handle), "cublasLtDestroy")                                     \
    X(operation_create, int, (void **out, int compute, int scale_type),                    \
      "cublasLtMatmulDescCreate")                                                          \
    X(operation_destroy, int, (void *operation), "cublasLtMatmulDescDestroy")              \
    X(operation_set, int,                                                                  \
      (void *operation, int attribute, const void *value, size_t bytes),                   \
      "cublasLtMatmulDescSetAttribute")                                                    \
    X(layout_create, int,                                                                  \
      (void **out, int type, uint64_t rows, uint64_t columns, int64_t stride),             \
      "cublasLtMatrixLayoutCreate")                                                        \
    X(layout_destroy, int, (void *layout), "cublasLtMatrixLayoutDestroy")                  \
    X(layout_set, int, (void *layout, int attribute, const void *value, size_t bytes),     \
      "cublasLtMatrixLayoutSetAttribute")                                                  \
    X(preference_create, int, (void **out), "cublasLtMatmulPreferenceCreate")              \
    X(preference_destroy, int, (void *preference), "cublasLtMatmulPreferenceDestroy")      \
    X(preference_set, int,                                                                 \
      (void *preference, int attribute, const void *value, size_t bytes),                  \
      "cublasLtMatmulPreferenceSetAttribute")                                              \
    X(search, int,                                                                         \
      (void *handle, void *operation, void *a, void *b, void *c, void *d,                  \
       void *preference, int capacity, berthi_gemm_result *out, int *out_count),           \
      "cublasLtMatmulAlgoGetHeuristic")                                                    \
    X(check, int,                                                                          \
      (void *handle, void *operation, void *a, void *b, void *c, void *d,                  \
       const berthi_gemm_algorithm *algorithm, berthi_gemm_result *out),                   \
      "cublasLtMatmulAlgoCheck")                                                           \
    X(multiply, int,                                                                       \
      (void *handle, void *operation, const void *alpha, const void *a, void *a_layout,    \
       const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,     \
       void *d, void *d_layout, const berthi_gemm_algorithm *algorithm, void *workspace,   \
       size_t workspace_bytes, void *stream),                                              \
      "cublasLtMatmul")

typedef struct berthi_gemm_calls {
#define BERTHI_GEMM_MEMBER(member, result, arguments, symbol) result(*member) arguments;
    BERTHI_GEMM_CALLS(BERTHI_GEMM_MEMBER)
#undef BERTHI_GEMM_MEMBER
} berthi_gemm_calls;

#define BERTHI_GEMM_WHY_CAPACITY 96

/*
 * The library of this generation of the toolkit (13) or of another that berth knows, which
 * stays loaded: what it keeps with the driver does not take unloading well. False: `why`
 * says what is missing; else it is empty.
 */
bool berthi_gemm_open(int32_t generation, berthi_gemm_calls *out,
                      char why[BERTHI_GEMM_WHY_CAPACITY]);

#endif
