/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_weights.h - the tensors of a decoder, found by name in a berth_model.
 *
 * Found once. What is streamed lies somewhere else at each lease: taken again for
 * every pass, after its layer has been acquired.
 */
#ifndef BERTH_TOOLS_LLAMA_WEIGHTS_H
#define BERTH_TOOLS_LLAMA_WEIGHTS_H

#include <stdbool.h>

#include "loader/berth.h"
#include "tools/llama_config.h"
#include "tools/llama_matrix.h"

/* The weights of a decoder layer. */
typedef enum llama_weight {
    LLAMA_ATTENTION_NORM,
    LLAMA_QUERY,
    LLAMA_KEY,
    LLAMA_VALUE,
    LLAMA_QUERY_NORM, /* those of models that have them */
    LLAMA_KEY_NORM,
    LLAMA_OUTPUT,
    LLAMA_MLP_NORM,
    LLAMA_GATE,       /* dense layers; in sparse ones three an expert */
    LLAMA_UP,
    LLAMA_DOWN,
    LLAMA_ROUTER,     /* sparse layers */
    LLAMA_WEIGHT_COUNT
} llama_weight;

/* One weight, and where to find it again. */
typedef struct llama_tensor {
    uint64_t berth;  /* BERTH_NO_TENSOR: the model has none */
    uint64_t bias;   /* the same */
    llama_matrix matrix; /* as last taken */
} llama_tensor;

#define LLAMA_STAGE_LAYERS 2u

/* What is computed at one place, between an acquire and a release. */
typedef struct llama_stage {
    llama_tensor *tensors;
    uint32_t tensor_count;
    uint32_t layers[LLAMA_STAGE_LAYERS]; /* of the plan: those that are leased */
    uint32_t layer_count;
    uint32_t device;     /* that computes it */
    uint64_t bytes;      /* that a token's products read */
    uint32_t expert_layer; /* of the plan; */
    uint32_t expert_slots; /* experts that are leased at once; 0: they need no lease */
} llama_stage;

/* Tensors of the stages behind the layers: one has both, or two have one each. */
#define LLAMA_FINAL_NORM 0u
#define LLAMA_HEAD 1u
#define LLAMA_END_COUNT 2u

static inline bool
llama_stage_has(const llama_stage *stage, uint32_t tensor)
{
    return stage->tensors[tensor].berth != BERTH_NO_TENSOR;
}

typedef struct llama_weights {
    const berth_model *model;
    llama_stage *stages;     /* decoder layers, then final norm and head: one, or two
                                where they have two devices */
    uint32_t stage_count;
    llama_tensor embedding;  /* not taken: its rows are fetched one by one */
} llama_weights;

/* Expert `number`'s weights lie behind the others: gate, up, down. */
static inline llama_tensor *
llama_expert(const llama_stage *stage, uint32_t number)
{
    return &stage->tensors[LLAMA_WEIGHT_COUNT + 3 * number];
}

/*
 * Finds everything and holds shapes against the configuration. The model must outlive
 * it. Free it with llama_weights_free(), also after a failure. BERTH_EFORMAT: a weight
 * is missing or has another shape; BERTH_EUNSUPPORTED: layers that are cut otherwise
 * than the decoder's; BERTH_ENOMEM.
 */
berth_status llama_weights_find(const berth_model *model, const llama_config *config,
                                llama_weights *out, berth_error *error);
void llama_weights_free(llama_weights *weights);

/* Where the stage's weights lie now: its layers are leased. Not experts that are apart. */
berth_status llama_weights_take(const llama_weights *weights, llama_stage *stage,
                                berth_error *error);
/* Where an expert that is leased lies now. */
berth_status llama_weights_take_expert(const llama_weights *weights, llama_stage *stage,
                                       uint32_t expert, berth_error *error);

#endif
