/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_read.h - members of config.json as numbers, between shape.c (the model),
 * shape_around.c (what stands around it), shape_ending.c (what it ends in),
 * shape_biases.c (its biases and norms), shape_pair.c (an encoder before it),
 * shape_rules.c (which layers differ), shape_layers.c (its layers), shape_words.c (a
 * word for each), shape_state.c (those with a state), shape_memory.c (xLSTM),
 * shape_shared.c (Zamba), shape_compress.c (DeepSeek V4), shape_fill.c (models that fill
 * gaps), shape_bottleneck.c (MobileBERT), shape_convolved.c (layers that are
 * convolutions), shape_lookup.c (tables beside that of words) and shape_extras.c (what
 * single classes have).
 */
#ifndef BERTH_PLACEMENT_SHAPE_READ_H
#define BERTH_PLACEMENT_SHAPE_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/shape.h"

/* Far beyond any model, and small enough that products of two stay below 2^64. */
#define BERTHI_SHAPE_WIDTH (UINT64_C(1) << 24)
#define BERTHI_SHAPE_HEADS (UINT64_C(1) << 16)
#define BERTHI_SHAPE_TOKENS (UINT64_C(1) << 40)

/* A config.json on its way into `shape`; the first failure stays. */
typedef struct berthi_shape_reading {
    const berthi_json_value *root;
    const berthi_json_value *model; /* the language model's object: root or inside */
    const char *file;
    const char *class_name; /* the first of "architectures"; "": not said */
    berth_error *error;
    berth_status status;
    berthi_shape *shape;
    berthi_layer encoder; /* an encoder's layers, where they are not `layer`; count 0: they are */
    berthi_layer layer; /* what all layers have in common; `intermediate` dense */
} berthi_shape_reading;

/* Other names of a number: the first that is there counts. Ends with NULL. */
typedef const char *const *berthi_shape_keys;

/* `wanted` ends the sentence: member "x" is -1, not ... */
void berthi_shape_refuse(berthi_shape_reading *r, const char *key,
                         const berthi_json_value *value, const char *wanted);
/*
 * The number, at least `least` and at most `most`, or `fallback` when it is absent. Of a list with
 * one for each layer it is the largest, and layers that differ are `has_unknown_layers`.
 */
uint64_t berthi_shape_number(berthi_shape_reading *r, berthi_shape_keys keys,
                             uint64_t least, uint64_t most, uint64_t fallback);
/* The same, and it has to be there: 0 after a failure. */
uint64_t berthi_shape_need(berthi_shape_reading *r, berthi_shape_keys keys, uint64_t most,
                           uint64_t fallback);
/* berthi_shape_number() for one key. */
uint64_t berthi_shape_member(berthi_shape_reading *r, const char *key, uint64_t least,
                             uint64_t most, uint64_t fallback);
/* The same; -1, which files say for none, is as if it were absent. */
uint64_t berthi_shape_member_if_any(berthi_shape_reading *r, const char *key, uint64_t most,
                                    uint64_t fallback);
bool berthi_shape_flag(berthi_shape_reading *r, const char *key, bool fallback);

/* Which object is the language model, and what a file says of the whole. */
void berthi_shape_read_around(berthi_shape_reading *r);

/* What its class ends in. */
void berthi_shape_read_ending(berthi_shape_reading *r);
bool berthi_shape_is_encoder_class(const berthi_shape_reading *r);

/* ENCODER: what the encoder has, and both sides; of a model whose words are counted. */
void berthi_shape_read_pair(berthi_shape_reading *r);
/* NESTED_PAIR: the encoder, of a model whose own numbers are read. */
void berthi_shape_read_nested(berthi_shape_reading *r);

/* Which biases and norms there are; of a model whose ties are read. */
void berthi_shape_read_biases(berthi_shape_reading *r);

/* Layers without a cache that grows: how they are made, if the file has any. */
void berthi_shape_read_state(berthi_shape_reading *r);
/* MEMORY: how wide they are. */
void berthi_shape_read_memory(berthi_shape_reading *r);
/* Makes `layer` one of them. */
void berthi_shape_make_state(const berthi_shape *shape, berthi_layer *layer);
/* Gives it what they keep, beside its attention. */
void berthi_shape_add_kept(const berthi_shape *shape, berthi_layer *layer);

/* SHARED_BLOCKS: what the file says of them, and a layer, with its word. */
void berthi_shape_read_shared(berthi_shape_reading *r);
void berthi_shape_make_shared(berthi_shape_reading *r, const char *word, berthi_layer *layer);

/* COMPRESSED: what the file says of it, and the layer of a number, with its word or none. */
void berthi_shape_read_compression(berthi_shape_reading *r);
void berthi_shape_compress(berthi_shape_reading *r, const char *word, uint64_t number,
                           berthi_layer *layer);

/* What chooses blocks of tokens, in layers that do not see all. */
void berthi_shape_read_block_index(berthi_shape_reading *r);

/* BOTTLENECK: how wide layers are inside. */
void berthi_shape_read_bottleneck(berthi_shape_reading *r);

/* GROUPED, SPANS: what is convolved, of a model whose heads are read. */
void berthi_shape_read_convolved(berthi_shape_reading *r);

/* ENTITIES, SIGNS, PLACES: tables beside that of words. */
void berthi_shape_read_lookup(berthi_shape_reading *r);

/* What one class alone has, of a model whose heads are read. */
void berthi_shape_read_extras(berthi_shape_reading *r);
/* LOOKS: whether the layer of a number does; `looking` is the list of those. */
bool berthi_shape_looks(berthi_shape_reading *r, const berthi_json_value *looking,
                        uint64_t number);

/* What a model that fills gaps has beside its layers. */
void berthi_shape_read_filling(berthi_shape_reading *r);

/* A word for each layer; taken one after the other. */
typedef struct berthi_layer_words {
    const char *key;
    const berthi_json_value *first;
    const berthi_json_value *next; /* NULL: there are none */
    const char *letters;           /* instead; NULL: none  */
    const char *const *marks;      /* words of 0 and of 1, which it has instead; NULL: none */
    bool is_cycle;                 /* begins again where it ends */
} berthi_layer_words;

/* The member of that name, a list with one entry for each layer or nothing. */
berthi_layer_words berthi_shape_open_list(berthi_shape_reading *r, const char *key);
/* What the family calls it: "layer_types", "layers_block_type", "block_types", letters. */
berthi_layer_words berthi_shape_open_words(berthi_shape_reading *r);
/* "mlp_layer_types", or which of the layers have experts, as 0 and 1. */
berthi_layer_words berthi_shape_open_mlps(berthi_shape_reading *r);
/* "indexer_types", or a letter for each: which layers choose tokens, and which share. */
berthi_layer_words berthi_shape_open_indexers(berthi_shape_reading *r);
/* Of the next layer; "" without any. */
const char *berthi_shape_take_word(berthi_shape_reading *r, berthi_layer_words *words);
/* HALVES: how many there are, where no number says it. */
uint64_t berthi_shape_count_halves(berthi_shape_reading *r);
/* STACKS: how often layers run; and how many there are. */
uint64_t berthi_shape_count_stacks(berthi_shape_reading *r);
/* BLOCKS: in all of them, and behind them. */
uint64_t berthi_shape_count_blocks(berthi_shape_reading *r);

/* Of whole numbers, `most` at most; `otherwise` where there is no such member. */
uint64_t berthi_shape_sum_list(berthi_shape_reading *r, const char *key, uint64_t most,
                               uint64_t otherwise);

/* The first of a list of layers' numbers; NULL: there is none. */
const berthi_json_value *berthi_shape_open_numbers(berthi_shape_reading *r, const char *key);
bool berthi_shape_is_listed(const berthi_json_value *first, uint64_t layer);

/* Fills shape->kinds from `r->layer` and the lists and rules of layers. */
void berthi_shape_read_layers(berthi_shape_reading *r);

#endif
