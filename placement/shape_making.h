/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_making.h - adding weights to a list, between shape_weights.c (the model),
 * shape_state.c (layers with a state), shape_memory.c (xLSTM), shape_compress.c
 * (DeepSeek V4), shape_fill.c (models that fill gaps), shape_pair.c (an encoder before a
 * decoder), shape_bottleneck.c (MobileBERT), shape_convolved.c (layers that are
 * convolutions), shape_lookup.c (tables beside that of words) and shape_extras.c (what
 * single classes have).
 */
#ifndef BERTH_PLACEMENT_SHAPE_MAKING_H
#define BERTH_PLACEMENT_SHAPE_MAKING_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/shape.h"

typedef struct berthi_shape_making {
    const berthi_shape *shape;
    berthi_weight_list *out;
    uint32_t layer; /* BERTHI_NO_LAYER: outside the layers */
    uint64_t count; /* of a weight added now */
    int32_t role;   /* of a matrix added now */
    bool has_bias;  /* of a linear layer added now */
    berthi_weight absent; /* what came last without elements, and is not in the list */
} berthi_shape_making;

/* One of the flags, or of the traits. */
bool berthi_shape_has(const berthi_shape_making *m, uint64_t flags);
bool berthi_shape_has_trait(const berthi_shape_making *m, uint64_t traits);
/*
 * What has no elements, or is in no layer, is not added. Each gives the weight for its other
 * members, one that nobody reads where none was added.
 */
berthi_weight *berthi_shape_add_vector(berthi_shape_making *m, const char *module,
                                       uint64_t elements);
berthi_weight *berthi_shape_add_matrix(berthi_shape_making *m, const char *module,
                                       int32_t role, uint64_t rows, uint64_t columns);
/* A linear layer, and its bias when `has_bias`. */
void berthi_shape_add_linear(berthi_shape_making *m, const char *module, uint64_t outputs,
                             uint64_t inputs);
/* One of a class made from linear ones, or kept from quantizers: OTHER, and adapted. */
berthi_weight *berthi_shape_add_derived(berthi_shape_making *m, const char *module,
                                        uint64_t outputs, uint64_t inputs);
/* `norms` norms of one width; with their biases where the family has them. */
void berthi_shape_add_norms(berthi_shape_making *m, uint64_t elements, uint64_t norms);

/* Of models with an encoder: tables of words, and what is beside the layers. */
void berthi_shape_add_words(berthi_shape_making *m);
void berthi_shape_add_pair(berthi_shape_making *m);
/* SHARED_BLOCKS: all weights of a layer. */
void berthi_shape_add_shared(berthi_shape_making *m, const berthi_layer *layer);
/* An MLP by itself, with biases when `has_bias`. */
void berthi_shape_add_mlp(berthi_shape_making *m, uint64_t width, uint64_t hidden);
/* A router, experts, and what stands beside them. */
void berthi_shape_add_experts(berthi_shape_making *m, const berthi_layer *layer);
/* Those added from `first` on: whether they lie in one tensor, or are layers themselves. */
void berthi_shape_mark_experts(berthi_shape_making *m, uint32_t first, uint64_t experts);
/* All weights of a STATE layer but its MLP and norms. */
void berthi_shape_add_state(berthi_shape_making *m);
/* MEMORY: the same. */
void berthi_shape_add_memory(berthi_shape_making *m);
/* COMPRESSED: a layer but its MLP and norms, and what is outside of layers. */
void berthi_shape_add_compressed(berthi_shape_making *m, const berthi_layer *layer);
void berthi_shape_add_streams(berthi_shape_making *m);
/* STREAMS: how a layer's halves read and write them. */
void berthi_shape_add_stream_gates(berthi_shape_making *m);
/* How a router of those chooses. */
void berthi_shape_add_choice(berthi_shape_making *m, const berthi_layer *layer);
/* Of attention, what only models that fill gaps have. */
void berthi_shape_add_asking(berthi_shape_making *m, const berthi_layer *layer);
/* Outside the layers, the same. */
void berthi_shape_add_beside(berthi_shape_making *m);
void berthi_shape_add_filling_head(berthi_shape_making *m);
/* BOTTLENECK: all weights of a layer, and what makes the hidden state of words. */
void berthi_shape_add_narrow(berthi_shape_making *m, const berthi_layer *layer);
void berthi_shape_add_word_parts(berthi_shape_making *m);
/* GROUPED, SPANS: all weights of a layer. */
void berthi_shape_add_convolved(berthi_shape_making *m, const berthi_layer *layer);
/* ENTITIES, SIGNS, PLACES: what is outside of layers, and in one. */
void berthi_shape_add_lookup(berthi_shape_making *m);
void berthi_shape_add_entity_queries(berthi_shape_making *m, const berthi_layer *layer);
/* MIXED_HEADS: the router of its experts. */
void berthi_shape_add_router(berthi_shape_making *m, const berthi_layer *layer);
/* Of a layer, and outside of them, what one class alone has. */
void berthi_shape_add_extras(berthi_shape_making *m, const berthi_layer *layer);
void berthi_shape_add_outer_extras(berthi_shape_making *m);
/* What it ends in. */
void berthi_shape_add_ending(berthi_shape_making *m);
/* INTEGERS: those of all that was added. */
void berthi_shape_add_integers(berthi_shape_making *m);
/* What the class keeps from quantizers, or in float32, of all that was added. */
void berthi_shape_leave_plain(berthi_weight_list *list, const berthi_family *family);

#endif
