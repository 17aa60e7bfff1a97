/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_family.h - what a model_type's class does that its config.json does not
 * say: biases, norms, names of linear layers, windows, defaults.
 *
 * Source: the configuration and modelling classes of transformers 5.23. A row is
 * right when the sum over its weights is the published number of parameters, and
 * that of the class itself: tests/interop/estimate_families.py asks it.
 */
#ifndef BERTH_PLACEMENT_SHAPE_FAMILY_H
#define BERTH_PLACEMENT_SHAPE_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"

#define BERTHI_FAMILY_PLAIN_MLP 1u       /* two matrices, not three                  */
#define BERTHI_FAMILY_QKV_BIAS 2u        /* unless "attention_bias" says otherwise   */
#define BERTHI_FAMILY_HEAD_BIAS 4u       /* of the output head                       */
#define BERTHI_FAMILY_MLP_BIAS 8u        /* unless "mlp_bias" says otherwise         */
#define BERTHI_FAMILY_NORM_BIAS 16u
#define BERTHI_FAMILY_HEAD_NORMS 32u     /* of queries and keys, one head wide       */
#define BERTHI_FAMILY_WIDE_NORMS 64u     /* of queries and keys, all heads wide      */
#define BERTHI_FAMILY_TIES 128u          /* unless "tie_word_embeddings" is false    */
#define BERTHI_FAMILY_POSITIONS 256u     /* a table of learned positions             */
#define BERTHI_FAMILY_SINKS 512u         /* one number a head                        */
#define BERTHI_FAMILY_EXPERT_BIAS 1024u  /* of experts and router                    */
#define BERTHI_FAMILY_CORRECTION 2048u   /* one number an expert, in the router      */
#define BERTHI_FAMILY_SHARED_GATE 4096u  /* of the shared expert                     */
#define BERTHI_FAMILY_FUSED_QKV 8192u
#define BERTHI_FAMILY_FUSED_UP 16384u
#define BERTHI_FAMILY_CLASSIC 32768u     /* GPT-2's layer, with dropout              */
#define BERTHI_FAMILY_QUERY_GATE 65536u  /* queries are twice as wide                */
#define BERTHI_FAMILY_BIAS_QKV_ONLY 131072u /* "attention_bias" is not the output's  */
#define BERTHI_FAMILY_TWO_ROWS 262144u   /* more in the table of positions           */
#define BERTHI_FAMILY_SHARED_IS_EXPERT 524288u /* one shared expert of i             */
#define BERTHI_FAMILY_ENCODER 1048576u   /* encoder and decoder: T5, Whisper         */
#define BERTHI_FAMILY_ALL_STATE 2097152u /* every layer is a STATE layer             */
#define BERTHI_FAMILY_USE_BIAS 4194304u  /* "use_bias", "bias": of all linear layers */
#define BERTHI_FAMILY_AUDIO 8388608u     /* an encoder of sound, with positions      */
#define BERTHI_FAMILY_PLAIN_KEYS 16777216u /* whose linear layer has no bias         */
#define BERTHI_FAMILY_BOTH_WAYS 33554432u /* tokens see those behind them: BERT      */
#define BERTHI_FAMILY_PADDED 67108864u   /* two of its positions are no token's      */
#define BERTHI_FAMILY_BARE_NORMS 134217728u /* norms have no weights                 */
#define BERTHI_FAMILY_WORD_NORM 268435456u /* behind the embeddings                  */
#define BERTHI_FAMILY_OUTPUT_BIAS 536870912u /* of attention, the output's alone     */
#define BERTHI_FAMILY_SPLIT_DELTA 1073741824u /* gates of a delta net by themselves  */
#define BERTHI_FAMILY_SHARED_IS_DENSE 2147483648u /* without experts it is the MLP   */
#define BERTHI_FAMILY_MAMBA2 UINT64_C(4294967296) /* ALL_STATE, of the second kind   */
#define BERTHI_FAMILY_LISTED UINT64_C(8589934592) /* attention where a list says so  */
#define BERTHI_FAMILY_RELATIVE UINT64_C(17179869184) /* positions as a small table a side */
#define BERTHI_FAMILY_NO_LAST_NORM UINT64_C(34359738368)

/* Which layers look back only so far, where "layer_types" does not say. */
typedef enum berthi_family_window {
    BERTHI_WINDOW_NEVER,
    BERTHI_WINDOW_ALL,     /* every layer, when the key is there and not null       */
    BERTHI_WINDOW_PATTERN, /* all but every n-th                                    */
    BERTHI_WINDOW_UPPER    /* from "max_window_layers" on, with "use_sliding_window" */
} berthi_family_window;

/* Names of linear layers; NULL: the family has none such. */
typedef struct berthi_family_names {
    const char *query; /* or all three, where they are fused */
    const char *key;
    const char *value;
    const char *output;
    const char *gate;
    const char *up; /* or both, where they are fused */
    const char *down;
} berthi_family_names;

typedef struct berthi_family {
    const char *model_type;
    const berthi_family_names *names;
    uint64_t flags;
    uint8_t norms;          /* on the hidden state, in a layer                      */
    uint8_t window;         /* berthi_family_window                                 */
    uint8_t pattern;        /* WINDOW_PATTERN: default of n                         */
    uint8_t numbers;        /* of its activation, in a layer                        */
    /* Defaults of the class, which "text_config" often leaves out; 0: it has to say. */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t hidden;
    uint32_t intermediate;
    uint32_t layers;
    uint32_t vocabulary;
} berthi_family;

/* The row of a model_type; one called "other" where there is none, *is_known false. */
const berthi_family *berthi_family_find(const char *model_type, bool *is_known);

#endif
