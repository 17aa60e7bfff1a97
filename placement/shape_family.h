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

/* What a class does, a bit each. */
#define BERTHI_FAMILY(number) (UINT64_C(1) << (number))

#define BERTHI_FAMILY_PLAIN_MLP        BERTHI_FAMILY(0)  /* two matrices, not three */
#define BERTHI_FAMILY_QKV_BIAS         BERTHI_FAMILY(1)  /* unless "attention_bias" says not */
#define BERTHI_FAMILY_HEAD_BIAS        BERTHI_FAMILY(2)  /* of the head; USE_BIAS: as others */
#define BERTHI_FAMILY_MLP_BIAS         BERTHI_FAMILY(3)  /* unless "mlp_bias" says not */
#define BERTHI_FAMILY_NORM_BIAS        BERTHI_FAMILY(4)
#define BERTHI_FAMILY_HEAD_NORMS       BERTHI_FAMILY(5)  /* of queries and keys, one head wide */
#define BERTHI_FAMILY_WIDE_NORMS       BERTHI_FAMILY(6)  /* of queries and keys, all heads wide */
#define BERTHI_FAMILY_TIES             BERTHI_FAMILY(7)  /* unless "tie_word_embeddings" is false */
#define BERTHI_FAMILY_POSITIONS        BERTHI_FAMILY(8)  /* a table of learned positions */
#define BERTHI_FAMILY_SINKS            BERTHI_FAMILY(9)  /* one number a head */
#define BERTHI_FAMILY_EXPERT_BIAS      BERTHI_FAMILY(10) /* of experts and router */
#define BERTHI_FAMILY_CORRECTION       BERTHI_FAMILY(11) /* one number an expert, in the router */
#define BERTHI_FAMILY_SHARED_GATE      BERTHI_FAMILY(12) /* of the shared expert */
#define BERTHI_FAMILY_FUSED_QKV        BERTHI_FAMILY(13)
#define BERTHI_FAMILY_FUSED_UP         BERTHI_FAMILY(14)
#define BERTHI_FAMILY_CLASSIC          BERTHI_FAMILY(15) /* GPT-2's layer, with dropout */
#define BERTHI_FAMILY_QUERY_GATE       BERTHI_FAMILY(16) /* queries are twice as wide */
#define BERTHI_FAMILY_BIAS_QKV_ONLY    BERTHI_FAMILY(17) /* "attention_bias" is not the output's */
#define BERTHI_FAMILY_TWO_ROWS         BERTHI_FAMILY(18) /* more in the table of positions */
#define BERTHI_FAMILY_SHARED_IS_EXPERT BERTHI_FAMILY(19) /* one shared expert of i */
#define BERTHI_FAMILY_ENCODER          BERTHI_FAMILY(20) /* encoder and decoder: T5, Whisper */
#define BERTHI_FAMILY_ALL_STATE        BERTHI_FAMILY(21) /* every layer is a STATE layer */
#define BERTHI_FAMILY_USE_BIAS         BERTHI_FAMILY(22) /* "use_bias", "bias": of all linears */
#define BERTHI_FAMILY_AUDIO            BERTHI_FAMILY(23) /* an encoder of sound, with positions */
#define BERTHI_FAMILY_PLAIN_KEYS       BERTHI_FAMILY(24) /* that have no bias, fused or not */
#define BERTHI_FAMILY_BOTH_WAYS        BERTHI_FAMILY(25) /* tokens see those behind them: BERT */
#define BERTHI_FAMILY_PADDED           BERTHI_FAMILY(26) /* two of its positions are no token's */
#define BERTHI_FAMILY_BARE_NORMS       BERTHI_FAMILY(27) /* norms have no weights */
#define BERTHI_FAMILY_WORD_NORM        BERTHI_FAMILY(28) /* behind the embeddings */
#define BERTHI_FAMILY_OUTPUT_BIAS      BERTHI_FAMILY(29) /* of attention, the output's alone */
#define BERTHI_FAMILY_SPLIT_DELTA      BERTHI_FAMILY(30) /* gates of a delta net by themselves */
#define BERTHI_FAMILY_SHARED_IS_DENSE  BERTHI_FAMILY(31) /* without experts it is the MLP */
#define BERTHI_FAMILY_MAMBA2           BERTHI_FAMILY(32) /* ALL_STATE, of the second kind */
#define BERTHI_FAMILY_LISTED           BERTHI_FAMILY(33) /* attention where a list says so */
#define BERTHI_FAMILY_RELATIVE         BERTHI_FAMILY(34) /* positions as a small table a side */
#define BERTHI_FAMILY_NO_LAST_NORM     BERTHI_FAMILY(35)
#define BERTHI_FAMILY_BESIDE           BERTHI_FAMILY(36) /* experts stand beside the MLP: Gemma 4 */
#define BERTHI_FAMILY_GLOBAL_HEADS     BERTHI_FAMILY(37) /* of another width where all is seen */
#define BERTHI_FAMILY_ALTUP            BERTHI_FAMILY(38) /* states side by side: Gemma 3n */
#define BERTHI_FAMILY_NO_TYPES         BERTHI_FAMILY(39) /* of tokens, unless a number is said */
#define BERTHI_FAMILY_NARROW           BERTHI_FAMILY(40) /* tables of tokens: "embedding_size" */
#define BERTHI_FAMILY_SHARED_LAYERS    BERTHI_FAMILY(41) /* all layers are one: ALBERT */
#define BERTHI_FAMILY_PLAIN_HEAD       BERTHI_FAMILY(42) /* BOTH_WAYS, with a decoder's head */
#define BERTHI_FAMILY_BARE_TRANSFORM   BERTHI_FAMILY(43) /* before that head, without bias */
#define BERTHI_FAMILY_GLOBAL_QKV       BERTHI_FAMILY(44) /* for tokens that see all: Longformer */
#define BERTHI_FAMILY_DISTANCES        BERTHI_FAMILY(45) /* of tokens: DeBERTa */
#define BERTHI_FAMILY_CONTACTS         BERTHI_FAMILY(46) /* a head for pairs of tokens: ESM */
#define BERTHI_FAMILY_ASKED_NORMS      BERTHI_FAMILY(47) /* HEAD or WIDE, where a file says so */
#define BERTHI_FAMILY_TWO_BIASES       BERTHI_FAMILY(48) /* BOTH_WAYS, of a head that is not tied */
#define BERTHI_FAMILY_BESIDE_HALVES    BERTHI_FAMILY(49) /* "use_parallel_residual": a norm less */
#define BERTHI_FAMILY_SUB_NORMS        BERTHI_FAMILY(50) /* before each half's last layer: BitNet */
#define BERTHI_FAMILY_RELATIVE_EACH    BERTHI_FAMILY(51) /* RELATIVE, in each layer: UMT5 */
#define BERTHI_FAMILY_HALVES           BERTHI_FAMILY(52) /* layers are half of one: Nemotron H */
#define BERTHI_FAMILY_CYCLE            BERTHI_FAMILY(53) /* "block_types", again and again */
#define BERTHI_FAMILY_BESIDE_STATE     BERTHI_FAMILY(54) /* attention beside a state: Falcon H1 */
#define BERTHI_FAMILY_HALF_WIDTH       BERTHI_FAMILY(55) /* of the MLP: half of what is said */
#define BERTHI_FAMILY_COMPRESSED       BERTHI_FAMILY(56) /* behind a window: DeepSeek V4 */
#define BERTHI_FAMILY_BARE_ATTENTION   BERTHI_FAMILY(57) /* no biases, whatever a file says */
#define BERTHI_FAMILY_BARE_MLP         BERTHI_FAMILY(58) /* the same */
#define BERTHI_FAMILY_GATE_APART       BERTHI_FAMILY(59) /* of queries, without a bias: AFMoE */
#define BERTHI_FAMILY_NEVER_TIES       BERTHI_FAMILY(60) /* whatever a file says */
#define BERTHI_FAMILY_EXPERT_HEADS     BERTHI_FAMILY(61) /* queries of experts: JetMoE */
#define BERTHI_FAMILY_WINDOW_HEADS     BERTHI_FAMILY(62) /* twice the keys, and sinks: MiMo V2 */
#define BERTHI_FAMILY_FIRST_DIFFERS    BERTHI_FAMILY(63) /* layer 0 is not as the others' rule */

/* What few classes do, and most that fill gaps: there are no flags left. */
#define BERTHI_TRAIT(number) (UINT64_C(1) << (number))

#define BERTHI_TRAIT_POOLER       BERTHI_TRAIT(0) /* of its class without a head */
#define BERTHI_TRAIT_THREE_LABELS BERTHI_TRAIT(1) /* unless a file names some */
#define BERTHI_TRAIT_ALWAYS_POOLS BERTHI_TRAIT(2) /* a pooler, whatever it ends in */
#define BERTHI_TRAIT_TRANSFORM    BERTHI_TRAIT(3) /* a layer before the head: not BOTH_WAYS alone */
#define BERTHI_TRAIT_DOWN_BIAS    BERTHI_TRAIT(4) /* of the MLP's last layer alone */
#define BERTHI_TRAIT_TURNS        BERTHI_TRAIT(5) /* a table of them, as wide as a head: RoFormer */
#define BERTHI_TRAIT_KERNELS      BERTHI_TRAIT(6) /* a convolution for each head: Nystromformer */
#define BERTHI_TRAIT_BOXES        BERTHI_TRAIT(7) /* four tables of places on a page: LayoutLM */
#define BERTHI_TRAIT_BARE_LABELS  BERTHI_TRAIT(8) /* of a text: behind the pooler it always has */
#define BERTHI_TRAIT_ASKED_QKV    BERTHI_TRAIT(9) /* "use_bias": of queries, keys and values */
#define BERTHI_TRAIT_BARE_HEAD    BERTHI_TRAIT(10) /* BOTH_WAYS, without a layer before it */
#define BERTHI_TRAIT_NESTED_PAIR  BERTHI_TRAIT(11) /* an encoder in an object of its own: T5Gemma */
#define BERTHI_TRAIT_ALONE_APART  BERTHI_TRAIT(13) /* a decoder by itself does not tie its head */
#define BERTHI_TRAIT_SHARED_BLOCKS BERTHI_TRAIT(12) /* before layers of a state: Zamba */
#define BERTHI_TRAIT_HEAD_GATES   BERTHI_TRAIT(14) /* of what heads find: "g_proj" */
#define BERTHI_TRAIT_LAMBDAS      BERTHI_TRAIT(15) /* four, as wide as a head: DiffLlama */
#define BERTHI_TRAIT_KEY_STEPS    BERTHI_TRAIT(16) /* how far keys are seen: Doge */
#define BERTHI_TRAIT_SPARSE_NORM  BERTHI_TRAIT(17) /* behind experts, not an MLP: A.X K1 */
#define BERTHI_TRAIT_LOOKS        BERTHI_TRAIT(18) /* some layers see pictures alone: Llama 3.2 */
#define BERTHI_TRAIT_UNSAID_WORD  BERTHI_TRAIT(19) /* one that is read and never predicted: Moshi */
#define BERTHI_TRAIT_SANDWICH     BERTHI_TRAIT(20) /* "use_sandwich_norm": else two norms less */
#define BERTHI_TRAIT_KEY_GATES    BERTHI_TRAIT(21) /* RANKED, but gates are whole: Ling 3 */
#define BERTHI_TRAIT_LANGUAGES    BERTHI_TRAIT(22) /* a table of them, of more than one: XLM */
#define BERTHI_TRAIT_SEGMENTS     BERTHI_TRAIT(23) /* distances and parts of a text: XLNet */
#define BERTHI_TRAIT_SPARSE_PAIR  BERTHI_TRAIT(24) /* experts in the encoder, too: Switch */
#define BERTHI_TRAIT_BOTTLENECK   BERTHI_TRAIT(25) /* layers narrower than `hidden`: MobileBERT */
#define BERTHI_TRAIT_MIXED_HEADS  BERTHI_TRAIT(26) /* of tokens side by side: Zaya */
#define BERTHI_TRAIT_GROUPED      BERTHI_TRAIT(27) /* matrices are blocks: SqueezeBERT */
#define BERTHI_TRAIT_SPANS        BERTHI_TRAIT(28) /* convolutions for some heads: ConvBERT */
#define BERTHI_TRAIT_ENTITIES     BERTHI_TRAIT(29) /* beside words: LUKE */
#define BERTHI_TRAIT_SIGNS        BERTHI_TRAIT(30) /* how words sound and look: RoCBERT */
#define BERTHI_TRAIT_PLACES       BERTHI_TRAIT(31) /* of words, in a table: TAPAS */
#define BERTHI_TRAIT_ADAPTERS     BERTHI_TRAIT(32) /* for each language, in each layer: X-MOD */
#define BERTHI_TRAIT_NO_HEADS     BERTHI_TRAIT(33) /* tokens are added up: FNet */
#define BERTHI_TRAIT_LAST_BIAS    BERTHI_TRAIT(34) /* of attention, in the last layer alone */
#define BERTHI_TRAIT_BLOCKS       BERTHI_TRAIT(35) /* of layers, ever shorter: Funnel */
#define BERTHI_TRAIT_PLAIN_QUERIES BERTHI_TRAIT(36) /* that have no bias */
#define BERTHI_TRAIT_GLOBAL_ROWS  BERTHI_TRAIT(37) /* tokens that all see: Pegasus-X */
#define BERTHI_TRAIT_TWO_LANGUAGES BERTHI_TRAIT(38) /* words of each side: FSMT */
#define BERTHI_TRAIT_AHEAD        BERTHI_TRAIT(39) /* several tokens are predicted: ProphetNet */
#define BERTHI_TRAIT_STACKS       BERTHI_TRAIT(40) /* two, run again and again: HRM */
#define BERTHI_TRAIT_BARE_LAST    BERTHI_TRAIT(41) /* the last norm has no bias: ESMC */
#define BERTHI_TRAIT_FEW_INDEXES  BERTHI_TRAIT(42) /* of four layers one chooses tokens */
#define BERTHI_TRAIT_STREAMS      BERTHI_TRAIT(43) /* of the hidden state: HY V4 */
#define BERTHI_TRAIT_BARE_CHOICE  BERTHI_TRAIT(44) /* among texts: without a pooler of its own */
#define BERTHI_TRAIT_FOLLOWS      BERTHI_TRAIT(45) /* is trained to tell which text goes on */
#define BERTHI_TRAIT_OWN_WORDS    BERTHI_TRAIT(46) /* to tell which words are its text's: ELECTRA */
#define BERTHI_TRAIT_TWO_ANSWERS  BERTHI_TRAIT(47) /* labels of begin and end, whatever is said */
#define BERTHI_TRAIT_OWN_LINEARS  BERTHI_TRAIT(48) /* of a class derived from linear ones: Falcon */
#define BERTHI_TRAIT_OWN_ROUTER   BERTHI_TRAIT(49) /* of a class derived from them: Llama 4 */
#define BERTHI_TRAIT_PATCHES      BERTHI_TRAIT(50) /* of pictures, beside words of a rank: NeoMME */
#define BERTHI_TRAIT_SAID_ANSWERS BERTHI_TRAIT(51) /* as many labels of them as a file has */
#define BERTHI_TRAIT_ONE_TENSOR   BERTHI_TRAIT(52) /* of a layer's experts: GPT-OSS, Llama 4 */
#define BERTHI_TRAIT_EXPERT_LAYERS BERTHI_TRAIT(53) /* they are linear ones themselves: Switch */
#define BERTHI_TRAIT_CAST_CHOICE  BERTHI_TRAIT(54) /* they are cast with the rest: MiniMax M2 */
#define BERTHI_TRAIT_INTEGERS     BERTHI_TRAIT(56) /* beside what they are made of: I-BERT */
#define BERTHI_TRAIT_SAVED_PLACES BERTHI_TRAIT(55) /* of words, in order: MRA */

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
    const char *router;     /* of experts, that is a linear layer; NULL: it is none     */
    uint64_t flags;
    uint64_t traits;        /* BERTHI_TRAIT_*                                       */
    uint8_t norms;          /* on the hidden state, in a layer                      */
    uint8_t window;         /* berthi_family_window                                 */
    uint8_t pattern;        /* WINDOW_PATTERN: default of n                         */
    uint8_t numbers;        /* single ones in a layer: of its activation, a scale   */
    uint8_t state;          /* berthi_state_kind, where its members do not tell it  */
    uint8_t parts;          /* layers that a file counts as one, with experts in the
                             * first of them, beside its MLP; 0: each is counted    */
    uint16_t narrow;        /* NARROW: default of that width; 0: 128                */
    uint16_t wide;          /* of what the head reads; 0: as the words              */
    uint8_t dense;          /* layers without experts, the first ones, unless said  */
    /* Modules, by their names in shape.h's list, whose numbers are f32; NULL: none. */
    const char *const *own_f32;    /* whatever the model is cast to                 */
    const char *const *f32;        /* beside quantized weights                      */
    const char *const *f32_in_f16; /* so in models of f16, and not quantized in any */
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
