/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_place.h - memory of a device that computes stages: activations, keys and values of
 * its layers, and what steps need beside; and the steps of stages in it.
 *
 * What goes from layer to layer is f32; other activations are of one dtype.
 */
#ifndef BERTH_TOOLS_LLAMA_PLACE_H
#define BERTH_TOOLS_LLAMA_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/llama_engine.h"

#define LLAMA_LOGIT_ROWS 32u /* computed at once */
#define LLAMA_TOGETHER 3u    /* products with the same inputs */

/* What the host says of products with experts' weights: lists of two weights of each expert. */
typedef struct llama_grouped {
    uint64_t *berths;
    const void **biases;
    uint32_t *ranges;     /* one more than experts: of slots */
} llama_grouped;

typedef struct llama_place {
    const llama_engine *engine;
    berth_devices *devices;
    uint32_t number;      /* of the device among them */
    void *stream;
    int32_t dtype;        /* of activations */
    uint32_t layer_count; /* whose keys and values lie here */
    uint32_t *layer_of;   /* of the model's layers: which of these it is */
    uint64_t bias_rows;   /* of the longest */
    uint32_t biases;      /* that products have at once */
    llama_grouped grouped;
    uint64_t scratch_bytes;
    void *memory;         /* all that follows lies in it */
    uint64_t bytes;
    float *hidden;        /* batch x hidden: what goes from layer to layer */
    void *normed;         /* the same, in `dtype`, and what follows */
    bool is_owed;         /* `normed` has still to be added to `hidden` */
    void *queries;        /* batch x heads x head_dim; then what they make of values */
    void *keys;
    void *values;
    void *gate;           /* tokens, or tokens with each of their experts, x inner */
    void *up;
    void *bias;           /* `biases` of them */
    float *norms;         /* of queries' heads and of keys', where these have two dtypes */
    float *angles;        /* of all positions */
    char *caches;         /* keys, then values, of each layer */
    uint32_t *tokens;     /* batch, where rows of the embedding are taken, or the next one */
    uint32_t chosen;      /* that one, */
    bool has_chosen;      /* if it is what lies there */
    uint32_t *zero;       /* one */
    float *last;          /* rows of logits at once x hidden: normalised */
    float *logits;        /* the same x vocab */
    void *scratch;        /* of products */
    /* Sparse layers: a slot is a token with one of its experts, in the experts' order. */
    void *router;         /* batch x experts */
    void *gathered;       /* slots x hidden: what goes in, then what comes out */
    float *weights;       /* batch x experts used */
    uint32_t *numbers;    /* the same: of experts */
    uint32_t *slots;      /* token x experts used + which, of a slot */
} llama_place;

/*
 * For the stages of engine->weights on this device, `device` as they have it. Free it with
 * llama_place_free(), also after a failure.
 * BERTH_ENOFIT, BERTH_ENOMEM, BERTH_EUNSUPPORTED: an expert that is not brought there.
 */
berth_status llama_place_init(llama_place *place, const llama_engine *engine,
                              berth_devices *devices, uint32_t number, uint32_t device,
                              int32_t dtype, berth_error *error);
void llama_place_free(llama_place *place);
/* What a layer's keys take on the device; its values take as many. */
uint64_t llama_place_cache_bytes(const llama_place *place);

/* Host memory -> the device's, and the other way round; they wait. */
berth_status llama_place_write(const llama_place *place, void *to, const void *from,
                               uint64_t bytes, berth_error *error);
berth_status llama_place_read(const llama_place *place, void *to, const void *from,
                              uint64_t bytes, berth_error *error);
/* What goes from layer to layer, settled, to another device of the same; waits for neither. */
berth_status llama_place_send(const llama_place *place, const llama_place *other,
                              uint64_t bytes, berth_error *error);

/* ---- what its steps share: llama_place_steps.c */

/* A product, one of those that have the same inputs. */
typedef struct llama_output {
    const llama_tensor *tensor;
    void *to;
} llama_output;

/* Bytes of an activation. */
uint64_t llama_place_width(const llama_place *place);
/* The bias, if there is one, as a product takes it: `number` of those at once. */
berth_status llama_place_bias(const llama_place *place, const llama_tensor *tensor,
                              int32_t dtype, uint32_t number, const void **out,
                              berth_error *error);
/* `count` inputs by each of the tensors, LLAMA_TOGETHER at most. */
berth_status llama_place_multiply(const llama_place *place, const llama_output *outputs,
                                  uint32_t tensors, int32_t dtype, const void *inputs,
                                  uint32_t count, berth_error *error);

/* ---- steps, in the order of its stream */

/* Rows of the embedding, which lies here, for engine->pass. */
berth_status llama_place_take(llama_place *place, const berth_model_tensor *embedding,
                              berth_error *error);
/* place->hidden through attention, and the norm behind it into place->normed. */
berth_status llama_place_attend(llama_place *place, const llama_stage *stage,
                                uint32_t layer, berth_error *error);
/* What it computes is owed: the next norm of this place adds it on its way. */
berth_status llama_place_dense(llama_place *place, const llama_stage *stage,
                               berth_error *error);
/* What is owed to place->hidden is added. */
berth_status llama_place_settle(llama_place *place, berth_error *error);
/* Numbers of the experts of each token; waits. */
berth_status llama_place_route(const llama_place *place, const llama_stage *stage,
                               uint32_t *numbers, berth_error *error);
/* The inputs of all experts, from their slots; waits. */
berth_status llama_place_gather(const llama_place *place, const uint32_t *slots,
                                berth_error *error);
/* The experts in [first, end) that have slots, from `slot` on. */
berth_status llama_place_experts(const llama_place *place, const llama_stage *stage,
                                 uint32_t first, uint32_t end, uint64_t slot,
                                 berth_error *error);
/* The final norm of all tokens in place->hidden, for a head that is computed elsewhere. */
berth_status llama_place_norm(llama_place *place, const llama_stage *stage,
                              berth_error *error);
/* Final norm, unless another stage has had it, and head; waits. */
berth_status llama_place_head(llama_place *place, const llama_stage *stage,
                              berth_error *error);

#endif
