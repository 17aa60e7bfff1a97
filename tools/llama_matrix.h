/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_matrix.h - weights as a berth_model shows them, and products with vectors
 * where they lie: nothing is decoded beforehand, nothing is kept.
 */
#ifndef BERTH_TOOLS_LLAMA_MATRIX_H
#define BERTH_TOOLS_LLAMA_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/llama_pool.h"

/* A weight in memory; all borrowed. */
typedef struct llama_matrix {
    int32_t encoding;     /* BERTH_ENCODING_NATIVE, _NF4, _FP4 or _INT8 */
    int32_t dtype;        /* of the values */
    uint32_t block_size;  /* 4-bit */
    bool is_double;
    float offset;
    uint64_t rows;        /* a vector is one row */
    uint64_t columns;
    const void *codes;    /* NATIVE: the values */
    const void *absmax;   /* INT8: row maxima */
    const float *absmax2;
    const void *bias;     /* a value a row; NULL: none */
    int32_t bias_dtype;
} llama_matrix;

/*
 * What of `tensor` a product needs. BERTH_EUNSUPPORTED: encoded or shaped as no weight
 * of a decoder; BERTH_EINTERNAL: it is not in memory.
 */
berth_status llama_matrix_take(const berth_model_tensor *tensor, llama_matrix *out,
                               berth_error *error);

/* outputs[i][row] = sum over k of inputs[i][k] matrix[row][k], and the row's bias. */
typedef struct llama_product {
    const llama_matrix *matrix;
    const float *inputs; /* count x columns */
    float *outputs;      /* count x rows */
    uint32_t count;
} llama_product;

/* Threads that products are shared out among. */
typedef struct llama_multiplier llama_multiplier;

typedef struct llama_multiplier_options {
    bool has_int8_inputs; /* products with INT8 weights are those of LLM.int8(), inputs as
                             codes, too; else inputs stay floats */
    float int8_threshold; /* of such inputs; 0: none is apart */
} llama_multiplier_options;

/*
 * The pool must outlive it. Free it with llama_multiplier_destroy(). BERTH_ENOMEM.
 */
berth_status llama_multiplier_create(berth_context *context, llama_pool *pool,
                                     const llama_multiplier_options *options,
                                     llama_multiplier **out, berth_error *error);
/* NULL is allowed. */
void llama_multiplier_destroy(llama_multiplier *multiplier);

/*
 * All products at once: their rows are shared out among the threads. Gives the same
 * bits whatever the threads; for an input alone or among others, too, but for inputs as
 * codes.
 */
berth_status llama_matrix_multiply(llama_multiplier *multiplier,
                                   const llama_product *products, uint32_t count,
                                   berth_error *error);

#endif
