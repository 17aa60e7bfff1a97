/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_rules.h - which layers of a model differ from the others, and how: what
 * shape_rules.c reads out of config.json once, and shape_layers.c asks for each layer.
 * What a family says of its layers in members of its own is read there.
 */
#ifndef BERTH_PLACEMENT_SHAPE_RULES_H
#define BERTH_PLACEMENT_SHAPE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/shape_read.h"

typedef struct berthi_layer_rules {
    berthi_layer_words types; /* "layer_types" */
    berthi_layer_words mlps;  /* "mlp_layer_types" */
    berthi_layer_words indexers; /* "indexer_types": which layers choose tokens */
    uint64_t index_every; /* of so many layers one, where there is no list */
    uint64_t index_from;
    const berthi_json_value *dense; /* "mlp_only_layers": numbers of layers */
    const berthi_json_value *listed_sparse; /* "moe_layers": the same */
    bool has_listed_sparse;
    uint64_t window;  /* 0: none */
    bool has_no_windows; /* by "use_sliding_window" */
    uint64_t pattern; /* all but every n-th layer; 0: not by pattern */
    uint64_t pattern_from; /* the number of the first layer in it */
    uint64_t first;   /* windows from this layer on */
    uint64_t attention_every; /* of so many layers one, the others have a state; 0: all */
    uint64_t attention_at;    /* the remainder of its number */
    bool has_listed; /* attention is where `attending` says, the others have a state */
    const berthi_json_value *attending; /* numbers of layers */
    uint64_t attending_from;            /* that of the first layer there */
    const berthi_json_value *looking; /* "cross_attention_layers": the same */
    berthi_layer_words heads; /* "num_attention_heads_per_layer": a number for each */
    uint64_t first_shared; /* layers from this one on have no keys and values */
    bool doubles_shared;   /* the MLP of those is twice as wide */
    bool has_equal_values; /* where all is seen */
    uint64_t global_dim;   /* of heads where all is seen; 0: as elsewhere */
    uint64_t global_kv;    /* of them, keys; 0: as elsewhere */
    const berthi_json_value *own; /* objects of layers that differ, by their numbers */
    berthi_layer sparse; /* the numbers of the MLP with experts */
    uint64_t first_sparse;
    uint64_t last_sparse;
    uint64_t sparse_every; /* layers whose number divides by it */
    uint64_t sparse_step;  /* of so many layers one */
    uint64_t sparse_at;    /* the remainder of its number */
    uint64_t encoder_step; /* the same of an encoder's layers; 0: none has experts */
    uint64_t encoder_at;
} berthi_layer_rules;

/* Of a model whose numbers that all layers share are read; may change `r->layer`. */
berthi_layer_rules berthi_shape_read_rules(berthi_shape_reading *r);

#endif
