/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train.h - what training needs, line by line, and what to do when it does not fit.
 *
 * Pure, as estimate.h, whose letters are used: h, i, L, V, nq, nkv, d, b, s, B.
 *
 *   weights        FULL: every parameter in `dtype`, or in f32 under autocast.
 *                  LORA: the base as its type (QLoRA: nf4), and adapters of
 *                  r * (in + out) parameters for each adapted matrix.
 *   master         MASTER: an f32 copy of what is trained in 16 bits. AUTOCAST: the weights are
 *                  f32 themselves, and cast to `dtype` for the step.
 *   gradients      the dtype of what is trained, or f32 when accumulated so.
 *   states         AdamW 8 bytes a parameter, Lion and momentum 4, torch's own in the
 *                  dtype of the parameter (bf16: 4 and 2); 8-bit: one byte and an f32
 *                  for each 256 of them, f32 for tensors below 4096 elements;
 *                  Adafactor 4 * (rows + columns) a matrix. Paged: those of tensors
 *                  of 100 000 elements and more lie on the host (absmax does not), and
 *                  on the device what is being updated: one tensor's.
 *   activations    kept for the backward pass, bytes a token and layer in 16 bits:
 *                  fused   8h * norms + 2 * (queries + keys + values + output)
 *                          + 8i + 4 * nq + 4 * norms
 *                  eager   8h * norms + 4 * (queries + output) + 8i + 6 * nq * s
 *                          + 4 * norms
 *                  which is 16h + 4 nq d + 4 nkv d + 8i + 4 nq + 8 and 16h + 8 nq d +
 *                  8i + 6 nq s + 8 for Llama: measured with transformers 5.23 and
 *                  torch 2.15 in bf16, equal to the byte at every size tried. For
 *                  other layers the same sum is an estimate. Fused norms: 5h each. A
 *                  plain MLP: 4i. Experts: i of those a token takes and 4h for each.
 *                  GPT-2: 18h + 4i + 5 nq s (34h + 5 nq s with i = 4h), the classic
 *                  published figure; fused 18h + 4i + 4 nq. LoRA: the same and B * r
 *                  for each adapted matrix, an upper bound, because frozen layers keep
 *                  their input only where an adapter reads it. In f32 twice as much.
 *   checkpointing  every k layers: B * h * ceil(L / k), and k layers' full amount once
 *                  while they are computed again.
 *   head and loss  a logit in 16 bits, its f32 copy and its gradient: 10 * V a token, or
 *                  of a chunk of positions (f32: 8).
 *   dequantized    of a quantized base one weight at a time, the largest, in `dtype`.
 *   batches        ids, mask, labels of 8 bytes each a token, once and for each batch
 *                  uploaded ahead; pinned on the host: workers * prefetch factor.
 *   runtime        as in estimate.h, fragmentation of what comes and goes.
 */
#ifndef BERTH_PLACEMENT_TRAIN_H
#define BERTH_PLACEMENT_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/estimate.h"

/* ------------------------------------------------------------------ optimizers */

typedef enum berthi_state_bits {
    BERTHI_STATES_8 = 8,
    BERTHI_STATES_32 = 32,
    BERTHI_STATES_AS_PARAMETER = 0 /* f32 where there is a master copy */
} berthi_state_bits;

typedef struct berthi_optimizer {
    const char *name;    /* as users know it: "paged_adamw_8bit"                     */
    uint32_t states;     /* numbers kept for a parameter                             */
    int32_t bits;        /* berthi_state_bits                                        */
    bool is_paged;
    bool is_factored;    /* rows and columns only                                    */
    const char *smaller; /* the same in 8 bits; NULL: none                           */
    const char *paged;   /* the same, paged; NULL: none                              */
} berthi_optimizer;

/* NULL: no optimizer of this name. */
const berthi_optimizer *berthi_optimizer_find(const char *name);
/* By number from 0, for lists of names; NULL behind the last. */
const berthi_optimizer *berthi_optimizer_at(uint32_t number);
/* berth_update_kind; -1: berth_optimizer_create() makes none such. */
int32_t berthi_optimizer_kind(const berthi_optimizer *optimizer);

/* Where an optimizer's states are, in bytes. */
typedef struct berthi_optimizer_bytes {
    uint64_t device;
    uint64_t host;  /* paged */
    uint64_t pages; /* the largest paged tensor's: on the device while it is updated */
} berthi_optimizer_bytes;

/*
 * Adds the states of `count` tensors of rows x columns (columns 1: vectors), whose
 * parameters have `parameter_bytes` each where states are AS_PARAMETER.
 */
void berthi_optimizer_add(const berthi_optimizer *optimizer, uint64_t rows,
                          uint64_t columns, uint64_t count, uint64_t parameter_bytes,
                          berthi_optimizer_bytes *sums);

/* -------------------------------------------------------------------- estimates */

typedef enum berthi_method {
    BERTHI_METHOD_FULL,
    BERTHI_METHOD_LORA /* QLoRA with a quantized type */
} berthi_method;

typedef enum berthi_precision {
    BERTHI_PRECISION_PURE,     /* everything in `dtype`                            */
    BERTHI_PRECISION_AUTOCAST, /* f32 parameters, computed in `dtype`              */
    BERTHI_PRECISION_MASTER    /* `dtype` parameters and an f32 copy               */
} berthi_precision;

/* All matrices inside layers, experts and routers excepted. */
#define BERTHI_ALL_LINEAR "all-linear"

typedef struct berthi_train_options {
    berthi_estimate_options base; /* type: of frozen weights; batch: of a micro-batch */
    int32_t method;               /* berthi_method                                    */
    int32_t precision;            /* berthi_precision                                 */
    const char *optimizer;        /* a name of the table                              */
    uint64_t rank;                /* LORA                                             */
    const char *targets;          /* LORA: ALL_LINEAR, or "q_proj,v_proj"             */
    uint64_t checkpoint_every;    /* layers; 0: no checkpointing                      */
    uint64_t accumulation;        /* micro-batches a step                             */
    bool accumulates_f32;
    bool has_fused_norms;
    bool is_packed;               /* a micro-batch has `packed_tokens`                */
    uint64_t packed_tokens;       /* what it would have without padding; 0: not known */
    uint64_t loss_chunk;          /* positions; 0: all at once                        */
    uint64_t prefetch;            /* batches on the device ahead of time              */
    uint64_t workers;             /* of the loader; 0: nothing is pinned              */
    uint64_t prefetch_factor;     /* batches each of them prepares                    */
} berthi_train_options;

/*
 * Full training with adamw_torch in the model's dtype, one sequence of 4096 tokens,
 * rank 16 on all linear layers, 2 workers with 2 batches each.
 */
void berthi_train_options_init(berthi_train_options *options, const berthi_shape *shape);

/* Fails with ARGUMENT, as berthi_estimate_inference(). */
berth_status berthi_train_estimate(const berthi_estimate_model *model,
                                   const berthi_train_options *options,
                                   berthi_estimate *out, berth_error *error);

/* Parameters that are trained. */
uint64_t berthi_train_parameters(const berthi_estimate_model *model,
                                 const berthi_train_options *options);

/* With LORA: whether the weight gets adapters. */
bool berthi_train_adapts(const berthi_train_options *options, const berthi_weight *weight);

/* Bytes a token keeps in one layer of the kind, LoRA's share apart. */
uint64_t berthi_train_layer(const berthi_shape *shape, const berthi_layer *layer,
                            const berthi_train_options *options);

/*
 * In the order of what saves most at least cost, one on top of the other until it
 * fits: fused attention, packing, a smaller micro-batch with accumulation,
 * checkpointing, an 8-bit optimizer, paged states, int8 then nf4 base with LoRA,
 * double quantization, a smaller rank, fewer targets, host tier, disk tier. What
 * saves nothing is left out.
 */
berth_status berthi_train_advise(const berthi_estimate_model *model,
                                 const berthi_train_options *options,
                                 const berthi_fit_budget *budget, berthi_advice_list *out,
                                 berth_error *error);

/* A measure for berthi_tokens_batch(): `user` is a berthi_train_measured. */
typedef struct berthi_train_measured {
    const berthi_estimate_model *model;
    const berthi_train_options *options;
} berthi_train_measured;

uint64_t berthi_train_measure(const void *user, uint64_t length, uint64_t batch);

/* ------------------------------------------------------------- published figures */

/* A figure that users bring, beside ours, and what lies between. */
typedef struct berthi_claim {
    const char *table; /* "Llama-2 13B, full"            */
    const char *what;  /* "optimizer"                    */
    uint64_t claimed;  /* bytes                          */
    uint64_t ours;     /* of the same part, by this file */
    char reason[BERTHI_REASON_CAPACITY];
} berthi_claim;

#define BERTHI_CLAIMS 12u

/*
 * The published figures that an estimate invites to compare with: those for a model
 * of this number of parameters (within 3 %) trained in this way. `options` NULL: the
 * estimate is of inference. Returns how many.
 */
uint32_t berthi_train_claims(const berthi_estimate_model *model,
                             const berthi_estimate_options *base,
                             const berthi_train_options *options,
                             const berthi_estimate *estimate,
                             berthi_claim out[BERTHI_CLAIMS]);

#endif
