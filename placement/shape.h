/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h - the numbers of a model, out of config.json alone: kinds of layers,
 * heads, widths, experts, windows, vocabulary; and the weights they make.
 *
 * Pure: a parsed config.json in, a struct of plain numbers out. config.json is
 * untrusted: every number has a range, and one outside it is CONFIG_JSON naming
 * its key. What the file leaves out comes from the defaults of the model_type's
 * configuration class, of which shape_family.h's table knows some 210; any other is
 * counted as a dense gated decoder (the shape of Llama), and `is_known` is false.
 *
 * Multimodal models: the language model's numbers, from "text_config" (or
 * "llm_config", "language_config"; inside "thinker_config" where there is one). Towers,
 * projectors and heads around it are not counted here: `has_tower` and `is_inner` say
 * that there may be some, and their bytes need headers.
 *
 * Where there are headers, the list of weights comes from them and not from here;
 * layers, heads and windows are needed all the same.
 */
#ifndef BERTH_PLACEMENT_SHAPE_H
#define BERTH_PLACEMENT_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "placement/shape_family.h"
#include "quant/json.h"

/* What a layer remembers of the tokens before. */
typedef enum berthi_attention {
    BERTHI_ATTENTION_NONE,   /* nothing: an encoder's layer                         */
    BERTHI_ATTENTION_HEADS,  /* keys and values of its heads                        */
    BERTHI_ATTENTION_LATENT, /* MLA: one latent and one rotary key a token          */
    BERTHI_ATTENTION_STATE   /* linear attention, convolution: constant in size     */
} berthi_attention;

/* How a STATE layer is made. */
typedef enum berthi_state_kind {
    BERTHI_STATE_ABSENT,
    BERTHI_STATE_DELTA,       /* gated delta net: Qwen3-Next                        */
    BERTHI_STATE_CONVOLUTION, /* short convolution: LFM2                            */
    BERTHI_STATE_GATED,       /* gated linear recurrence: RecurrentGemma            */
    BERTHI_STATE_MAMBA,
    BERTHI_STATE_MAMBA2,
    BERTHI_STATE_APART,       /* DELTA, each matrix by itself: OLMo Hybrid          */
    BERTHI_STATE_RANKED,      /* the same, with gates of low rank: Kimi Linear      */
    BERTHI_STATE_MIXED,       /* of a token and the one before it: RWKV             */
    BERTHI_STATE_LIGHTNING,   /* plain linear attention: MiniMax                    */
    BERTHI_STATE_MEMORY       /* a matrix for each head: xLSTM                      */
} berthi_state_kind;

/* What a model ends in, by its class. */
typedef enum berthi_ending {
    BERTHI_ENDING_WORDS,
    BERTHI_ENDING_NONE,
    BERTHI_ENDING_LABELS,       /* of the whole text                                */
    BERTHI_ENDING_TOKEN_LABELS, /* of each token                                    */
    BERTHI_ENDING_CHOICE,       /* how well each of several texts fits              */
    BERTHI_ENDING_FOLLOWS,      /* whether a text goes on in the next one           */
    BERTHI_ENDING_TRAINING,     /* words, and what else its training asks for       */
    BERTHI_ENDING_ANSWERS,      /* where in a text an answer begins and ends        */
    BERTHI_ENDING_ENTITY,       /* labels of one entity                             */
    BERTHI_ENDING_ENTITY_PAIR,  /* of two, without a bias                           */
    BERTHI_ENDING_ENTITY_SPAN,  /* of one, and of its first and last words          */
    BERTHI_ENDING_VECTORS,      /* of each token, to find texts by: NeoMME          */
    BERTHI_ENDING_TWO_HEADS,    /* words, and how well each of several texts fits   */
    BERTHI_ENDING_UNKNOWN,      /* no words, and it is not known what else          */
    BERTHI_ENDING_OTHER         /* of which nothing is known                        */
} berthi_ending;

typedef struct berthi_state_layer {
    int32_t kind;         /* berthi_state_kind                                      */
    uint64_t inner;       /* width of the values                                    */
    uint64_t key_heads;   /* DELTA; MAMBA2: groups                                  */
    uint64_t value_heads; /* DELTA, MAMBA2; GATED: blocks of its gates              */
    uint64_t key_dim;     /* DELTA: of a key; MAMBA, MAMBA2: state_size; GATED: 1   */
    uint64_t step_rank;   /* MAMBA: time_step_rank; RANKED: of its gates; MEMORY: of keys */
    uint64_t block;       /* LIGHTNING: tokens that it computes at once             */
    uint64_t kernel;      /* positions of the convolution; 0: there is none         */
    bool has_bias;        /* of its linear layers                                   */
    bool has_output_bias; /* of the last of them                                    */
    bool has_key_steps;   /* APART: what it forgets is told by parts of keys        */
    bool has_norm;        /* MAMBA: of steps and states; MAMBA2: of the values      */
    bool has_kernel_bias; /* of the convolution                                     */
} berthi_state_layer;

/* DeBERTa's positions. */
typedef struct berthi_distances {
    uint64_t rows;    /* of the table of distances; 0: there is none                */
    uint64_t kernel;  /* of a convolution beside the first layer; 0: none           */
    bool has_norm;    /* behind the table                                           */
    bool has_keys;    /* each layer has a matrix for it                             */
    bool has_queries;
} berthi_distances;

/* MobileBERT's layers. */
typedef struct berthi_bottleneck {
    uint64_t width;         /* of what is inside; 0: the model has none of this         */
    uint64_t narrowed;      /* the hidden state in front of it: the same, but in odd files */
    uint64_t mlps;          /* in a layer                                               */
    uint64_t word_parts;    /* words that are read at once                              */
    bool is_narrower;       /* than the hidden state                                    */
    bool has_narrow_values; /* which are made of what is inside                         */
    bool has_queries;       /* made, with keys, of what is narrowed for them            */
    bool has_pooler;
} berthi_bottleneck;

/* Layers that are convolutions: of SqueezeBERT, or ConvBERT's heads. */
#define BERTHI_CONVOLVED_PARTS 6u

typedef struct berthi_convolved {
    uint64_t groups[BERTHI_CONVOLVED_PARTS]; /* blocks of a layer's matrices; 0: it has none */
    uint64_t kernel;     /* tokens that heads see at once; 0: the model has none of this */
    uint64_t mlp_groups; /* blocks of the MLP's matrices                            */
} berthi_convolved;

/* Tables beside that of words. */
typedef struct berthi_lookup {
    uint64_t rows[2];  /* 0: there is none                                          */
    uint64_t width[2];
    uint64_t joined;   /* width of all of them, with the words'; 0: they are not    */
    bool has_queries;  /* of their own, in each layer                               */
} berthi_lookup;

/* DeepSeek V4's: what is behind a window, the output, and the hidden state. */
typedef struct berthi_compression {
    uint64_t index_tokens; /* of one entry behind it, where an index chooses among them */
    uint64_t tokens;       /* of one where all are seen                              */
    uint64_t groups;       /* of the output's heads; 0: the model has none of this   */
    uint64_t group_rank;
    uint64_t streams;      /* of the hidden state                                    */
    uint64_t looked_up;    /* layers, the first ones, that look a word's experts up  */
} berthi_compression;

/* Layers that are alike. Numbers that a layer has not are 0. */
typedef struct berthi_layer {
    uint64_t count;
    int32_t attention;            /* berthi_attention                               */
    bool is_encoder;
    bool has_cross;               /* and reads an encoder's output                  */
    bool looks;                   /* at pictures alone: `has_cross`, and keeps no token */
    bool shares_cache;            /* has no keys and values but a layer's before it */
    bool has_equal_values;        /* keys serve as values                           */
    uint64_t window;              /* tokens it looks back; 0: all                   */
    uint64_t entry_tokens;        /* that one entry behind the window stands for; 0: none */
    bool has_index;               /* which chooses among those entries, or tokens   */
    bool has_word_experts;        /* they are looked up in a table, by the word     */
    uint64_t heads;               /* nq                                             */
    uint64_t kv_heads;            /* nkv; latent: = nq                              */
    uint64_t key_dim;             /* d of a query or key; latent: nope + rope       */
    uint64_t value_dim;           /* d of a value                                   */
    uint64_t state_elements;      /* STATE: of the recurrent state of a sequence    */
    uint64_t convolution_elements; /* STATE: of its convolution's window            */
    uint64_t intermediate;        /* i of the dense MLP; 0: none                    */
    uint64_t experts;             /* routed ones; 0: dense                          */
    uint64_t experts_used;        /* of them by one token                           */
    uint64_t expert_intermediate; /* i of one                                       */
    uint64_t shared_intermediate; /* of the experts every token takes, together     */
} berthi_layer;

/*
 * Full, sliding, latent and state layers, each dense or with experts, with keys and values of their
 * own or another layer's; an encoder; and some with numbers of their own.
 */
#define BERTHI_LAYER_KINDS 20u
/* Far beyond any model. */
#define BERTHI_SHAPE_LAYERS 4096u

typedef struct berthi_shape {
    const berthi_family *family;
    bool is_known;             /* the model_type has a row of its own               */
    bool has_tower;            /* a model beside it that is not counted             */
    bool is_inner;             /* the model of another that is not counted          */
    bool is_other_class;       /* "architectures" names one that is not known here  */
    bool has_head;             /* of words                                          */
    int32_t ending;            /* berthi_ending                                     */
    uint64_t labels;           /* that it tells apart; 0: it has words, or neither  */
    bool has_unknown_layers;   /* or widths by layer: counted as the most it can be */
    bool is_quantized;         /* has a quantization_config                         */
    bool ties_embeddings;
    bool has_final_norm;
    int32_t dtype;             /* berth_dtype; BERTH_BF16 where the file says none  */
    uint64_t hidden;           /* h                                                 */
    uint64_t vocabulary;       /* V                                                 */
    uint64_t word_tables;      /* of the embeddings, for one reader each            */
    uint64_t other_words;      /* rows of one more such table, of a reader's own words; 0: none */
    uint64_t unsaid_words;     /* more rows of the embeddings than the head has         */
    uint64_t embedding;        /* width of the embeddings; not h: two matrices turn it */
    uint64_t last_width;       /* of what labels are made of: h, but for a narrower OPT */
    uint64_t positions;        /* longest context it was made for; 0: not said      */
    uint64_t learned_positions; /* rows of a table of positions; 0: rotary or none  */
    uint64_t layers;           /* L, the decoder's                                  */
    uint64_t encoder_layers;   /* 0: none                                           */
    bool is_encoder_alone;     /* `layers` are an encoder's                         */
    uint64_t encoder_positions; /* rows of its table, which it fills; 0: it has none */
    uint64_t encoder_hidden;   /* its h, where that is not the decoder's; 0: it is      */
    uint64_t encoder_rows;     /* of its table, where that is not the decoder's; 0: it is */
    uint64_t sound_bands;      /* that an encoder hears; 0: it reads words          */
    uint64_t prompt_rows;      /* of prompts that are learned, for each layer; 0: none */
    uint64_t prompt_width;     /* on their way to a layer                           */
    uint64_t token_types;      /* rows of a table of them; 0: none                  */
    uint64_t relative_rows;    /* of a table of positions a side; 0: none           */
    bool has_global_tokens;    /* an encoder of its own has, with a table and norms: LongT5 */
    uint64_t head_width;       /* what the head reads: h, or `embedding`            */
    uint64_t box_rows;         /* of tables of places on a page, four of them; 0: none */
    uint64_t patch_numbers;    /* of a patch of a picture, that layers see beside words; 0: none */
    uint64_t head_kernel;      /* of a convolution for each head; 0: none           */
    uint64_t layer_sets;       /* of weights, that layers share; 0: each has its own    */
    berthi_distances distances;
    berthi_compression compression;
    berthi_bottleneck bottleneck;
    berthi_convolved convolved;
    berthi_lookup lookup;
    uint64_t global_rows;      /* of a table of tokens that all see; 0: there is none */
    uint64_t tokens_ahead;     /* that are predicted at once; 0: one, as usual      */
    uint64_t distance_rows;    /* of them, that each layer makes for each head      */
    uint64_t adapters;         /* in a layer, for each language one; 0: none        */
    uint64_t adapter_width;
    bool has_adapter_norm;
    uint64_t layer_words;      /* rows of a table that has a part for each layer    */
    uint64_t layer_width;      /* of that part; 0: there is no such table           */
    uint64_t side_states;      /* that run through all layers; 0: one, as usual     */
    uint64_t side_rank;        /* of what goes around attention beside them         */
    /* Latent attention; 0 without. */
    uint64_t query_rank;       /* q_lora_rank; 0: queries have no latent            */
    uint64_t latent_rank;      /* kv_lora_rank                                      */
    uint64_t rope_dim;
    uint64_t index_heads;      /* that choose the tokens to look at; 0: all are     */
    uint64_t index_dim;        /* of their keys, one a token                        */
    berthi_state_layer state;  /* of the STATE layers                               */
    uint64_t shared_blocks;    /* of attention and MLP, that layers with a state share; 0: none */
    uint64_t shared_width;     /* that their attention reads                        */
    uint64_t adapter_rank;     /* of what tells those layers apart; 0: nothing does */
    uint64_t adapter_slots;    /* layers that a file lists for them; 0: those that there are */
    bool adapts_attention;     /* and not the MLP alone                             */
    uint64_t head_gates;       /* numbers that weigh what a head finds; 0: none         */
    uint64_t single_experts;   /* beside an MLP, of one column and row each; 0: none    */
    uint64_t router_width;     /* of a router of several layers; 0: it is one matrix    */
    uint64_t head_steps[2];    /* tokens that two convolutions mix heads of; 0: none    */
    bool has_router_bias;
    uint64_t idle_experts;     /* a router's, that hand on what they see            */
    uint64_t expert_latent;    /* what experts see instead of h; 0: h               */
    uint64_t layer_norms;      /* on the hidden state, in a layer                   */
    uint64_t mlp_matrices;     /* 3 where the MLP is gated, else 2                  */
    uint64_t head_biases;      /* of V numbers each                                 */
    bool has_attention_bias;   /* of queries, keys and values                       */
    bool has_output_bias;      /* of attention                                      */
    bool has_mlp_bias;
    bool has_norm_bias;
    bool has_word_norm;        /* behind the embeddings                             */
    bool has_head_norms;       /* of queries and keys                               */
    bool has_correction;       /* one number an expert, in the router               */
    bool has_transform_bias;   /* of the layer before a head that fills gaps        */
    uint32_t kind_count;
    berthi_layer kinds[BERTHI_LAYER_KINDS]; /* in order of their first layer */
    uint8_t layer_kinds[BERTHI_SHAPE_LAYERS]; /* of each layer of the decoder */
    uint8_t encoder_kinds[BERTHI_SHAPE_LAYERS];
} berthi_shape;

/*
 * Reads config.json's root. `file` is for messages. Fails with CONFIG_JSON: no
 * object, a number that is missing, of another type or out of its range, or a
 * list of layers of another length; the message names the key.
 */
berth_status berthi_shape_read(const berthi_json_value *config, const char *file,
                               berthi_shape *out, berth_error *error);

/* "llama", ...: the row of the table; "other" where the model_type is unknown. */
const char *berthi_shape_family_name(const berthi_shape *shape);

/* Layers with dropout and norms with biases, as GPT-2 has them. */
bool berthi_shape_is_classic(const berthi_shape *shape);

/* ------------------------------------------------------------------- weights */

typedef enum berthi_weight_role {
    BERTHI_WEIGHT_LINEAR,    /* a matrix inside a layer: what is quantized          */
    BERTHI_WEIGHT_EXPERT,    /* the same, of one expert                             */
    BERTHI_WEIGHT_EMBEDDING, /* with tables of positions                            */
    BERTHI_WEIGHT_HEAD,
    BERTHI_WEIGHT_OTHER      /* norms, biases, routers                              */
} berthi_weight_role;

#define BERTHI_NO_LAYER UINT32_MAX

/* Weights that are alike. */
typedef struct berthi_weight {
    const char *module; /* last part of its module's name: "q_proj"                 */
    int32_t role;       /* berthi_weight_role                                       */
    int32_t dtype;      /* of the values as they are stored                         */
    uint32_t layer;     /* position in `kinds`, or BERTHI_NO_LAYER                  */
    uint32_t rank;      /* 2: rows (outputs) and columns (inputs); else 1: elements */
    uint64_t shape[2];
    uint64_t count;     /* how many; of a kind: over all its layers                 */
    uint64_t stack;     /* matrices that one tensor holds; 0: one                     */
    uint64_t stored;    /* bytes of one tensor in its file, where that is quantized   */
    bool is_derived;    /* OTHER of a linear layer, or a class made from it: adapted  */
    bool is_apart;      /* EXPERT that is a linear layer itself: quantized and adapted  */
    bool is_f32;        /* whatever the model is cast to                              */
    bool is_f32_in_f16; /* where a model of f16 is quantized                          */
    bool is_f32_in_bf16;
} berthi_weight;

/*
 * A layer of a kind has at most 48 different weights, whatever a file says that its class does not
 * have; the model 38 more.
 */
#define BERTHI_WEIGHT_KINDS (BERTHI_LAYER_KINDS * 48u + 38u)

typedef struct berthi_weight_list {
    uint32_t count;
    bool is_cut; /* there would be more: nothing it holds is to be counted */
    berthi_weight items[BERTHI_WEIGHT_KINDS];
} berthi_weight_list;

/*
 * The weights of transformers' class for this model_type, tied ones once, in the
 * order embeddings, layers by kind, final norm, head. Numbers of a shape that
 * berthi_shape_read() has passed: no product here overflows.
 */
void berthi_shape_weights(const berthi_shape *shape, berthi_weight_list *out);

#endif
