/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt.h - QLoRA: a Llama whose linear layers have 4 bits and stay as they are, and beside
 * each of them an adapter of 32-bit floats that learns. Forward, loss, backward.
 *
 *   y = W x + scale B (A x)      W: NF4, dequantized whenever it is used
 *                                A [rank, in], B [out, rank]; scale: alpha / rank
 *
 * All seven projections of every layer are adapted: q, k, v, o, gate, up, down. Weights and
 * configuration are read as the reference decoder reads them, and what it has for its
 * arithmetic is used here. One sequence at a time, one thread, always the same bits.
 *
 * Whatever fails here ends the program, as in fixture.h.
 */
#ifndef BERTH_TESTS_ADAPT_H
#define BERTH_TESTS_ADAPT_H

#include <stdint.h>

#include "loader/berth.h"
#include "tools/llama_config.h"

#define ADAPT_MODEL "tests/data/llama/llama" /* the tiny Llama, with recorded logits */
#define ADAPT_RANK_MAX 64u
#define ADAPT_HEAD_MAX 128u
#define ADAPT_TOKENS_MAX 256u

typedef enum adapt_projection {
    ADAPT_QUERY,
    ADAPT_KEY,
    ADAPT_VALUE,
    ADAPT_OUTPUT,
    ADAPT_GATE,
    ADAPT_UP,
    ADAPT_DOWN,
    ADAPT_PROJECTIONS
} adapt_projection;

/* "self_attn.q_proj", ... */
extern const char *const adapt_projection_names[ADAPT_PROJECTIONS];

/* What learns: A or B of one projection. */
typedef struct adapt_parameter {
    char name[96];     /* as PEFT calls it */
    uint64_t shape[2];
    uint64_t first;    /* element among those of all */
    uint64_t elements;
} adapt_parameter;

typedef struct adapt_linear {
    uint64_t shape[2]; /* rows (out), columns (in) */
    void *codes;       /* NF4 */
    uint64_t codes_bytes;
    float *absmax;
    uint64_t absmax_bytes;
    uint32_t a;        /* parameters */
    uint32_t b;
} adapt_linear;

/* A decoder layer, and what its backward needs of its forward: a row a token. */
typedef struct adapt_layer {
    adapt_linear linears[ADAPT_PROJECTIONS];
    float *attention_norm;
    float *mlp_norm;
    float *input;      /* hidden */
    float *normed;
    float *queries;    /* heads x head_dim, turned */
    float *keys;
    float *values;
    float *shares;     /* [head][token][token]: of attention */
    float *attended;
    float *middle;     /* hidden, behind attention */
    float *mlp_normed;
    float *gate;       /* inner */
    float *up;
    float *product;
    float *low[ADAPT_PROJECTIONS]; /* rank: A x */
} adapt_layer;

typedef struct adapted {
    berth_context *context;
    llama_config config;
    uint32_t rank;
    float alpha;
    uint32_t capacity; /* tokens of a sequence */
    adapt_layer *layers;
    float *embedding;  /* vocab x hidden */
    float *head;
    float *final_norm;
    adapt_parameter *parameters;
    uint32_t parameter_count;
    uint64_t elements;
    float *learned;    /* all parameters, one behind the other */
    float *gradients;  /* the same, of the latest adapt_backward() */

    /* Of the latest pass. */
    float *hidden;     /* a row a token, behind the last layer */
    float *normed;
    float *logits;     /* vocab; after adapt_loss() their gradient */
    float *angles;
    float *weight;     /* of the linear layer at work, dequantized */
    float *slopes;     /* memory for the backward */
    float *memory;     /* in which all floats lie */
} adapted;

/*
 * The model of `folder`, its linear layers quantized; A is random by `seed`, B zero: it
 * computes what it would without adapters. Ends with adapt_close().
 */
void adapt_open(adapted *m, berth_context *context, const char *folder, uint32_t rank,
                float alpha, uint32_t capacity, uint32_t seed);
void adapt_close(adapted *m);

/* Logits of `count` tokens, in m->logits. */
void adapt_forward(adapted *m, const uint32_t *ids, uint32_t count);
/*
 * Of a text of `count` + 1 ids each but the first is to be foreseen by those before it:
 * the mean cross-entropy, after a forward of the first `count`.
 */
double adapt_loss(adapted *m, const uint32_t *text, uint32_t count);
/* Fills m->gradients, after adapt_loss(). */
void adapt_backward(adapted *m, uint32_t count);

/* ------------------------------------------------------------------ adapt_files.c */

/*
 * A copy of the reference decoder's tiny Llama whose final norm is eight times as large.
 * As it is its weights are those of a model before its training: logits that hardly
 * differ, which no adapter below the head can change.
 */
void adapt_write_base(berth_context *context, const char *folder);
/*
 * adapter_model.safetensors and adapter_config.json, as PEFT reads them, in a new folder;
 * `base` is what the latter calls the model.
 */
void adapt_write(const adapted *m, const char *folder, const char *base);
/* Such adapters take the place of the model's. */
void adapt_read(adapted *m, const char *folder);

#endif
