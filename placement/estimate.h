/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate.h - what a model needs besides its weights, before anything is loaded
 * or even downloaded: lines of bytes, each with a formula and how sure it is.
 *
 * Pure: numbers of a model and options in, a struct of lines out; nothing is
 * allocated, nothing fails but for sums beyond 2^64. Training is train.h. The
 * exact planner is another module: here a device is a number of bytes.
 *
 * h hidden, i intermediate, L layers, V vocabulary, nq and nkv query and key-value
 * heads, d head dimension, b sequences, s tokens of one, B bytes of the dtype that
 * is computed in.
 *
 *   weights       of every tensor what quant/stored says, statistics, code tables
 *                 and state blobs included; linear layers are quantized, embeddings,
 *                 head and norms stay in `dtype`. Exact.
 *   KV cache      a layer: tokens * (nkv * dk + nkv * dv) elements; latent (MLA):
 *                 tokens * (kv_lora_rank + qk_rope_head_dim), or, expanded as
 *                 transformers keeps it, tokens * nq * (dk + dv); and tokens *
 *                 index_head_dim where heads choose tokens; tokens at most the
 *                 window where the layer has one. DeepSeek V4: dk a token of the window,
 *                 and tokens / compress_rate entries of dk, or of dk + index_head_dim,
 *                 behind it. int8 and int4 have an f16 scale and an f16 minimum for each
 *                 32 elements.
 *   states        of linear attention, in f32, and of convolutions: once a sequence.
 *   activations   b * s * B * (2h + the larger of  h + queries + keys + values +
 *                 output  and  h + 3i), of the largest layer: one layer at a time.
 *                 Within 10 %. A plain MLP has 2i. Experts: i of those that a token
 *                 takes, and a copy of h for each.
 *   scores        b * nq * s * tokens * (B + 4) without a fused kernel.
 *   logits        b * V * 4 for the last position, or b * s * V * 4 for all.
 *   runtime       a context (0.3 to 0.8 GB; half a GiB unless measured), a workspace
 *                 of cuBLASLt (32 MiB), and what a caching allocator loses: 3 to 10 %
 *                 of what comes and goes (activations, scores, logits), nothing of
 *                 what stays.
 *
 * Sources: the classes of transformers 5.23 for weights and caches; activations and
 * runtime are estimates, and say so.
 */
#ifndef BERTH_PLACEMENT_ESTIMATE_H
#define BERTH_PLACEMENT_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "placement/shape.h"

/* ------------------------------------------------------------- types of weights */

/* X(IDENTIFIER, "word"): how linear layers are stored; NATIVE: as they are. */
#define BERTHI_TYPES(X)                     \
    X(NATIVE, "native")                     \
    X(F32, "f32")                           \
    X(BF16, "bf16")                         \
    X(F16, "f16")                           \
    X(INT8, "int8")                         \
    X(NF4, "nf4")                           \
    X(NF4_DOUBLE, "nf4+double-quant")       \
    X(FP4, "fp4")                           \
    X(FP4_DOUBLE, "fp4+double-quant")

typedef enum berthi_type {
#define BERTHI_TYPE_ENUM(identifier, word) BERTHI_TYPE_##identifier,
    BERTHI_TYPES(BERTHI_TYPE_ENUM)
#undef BERTHI_TYPE_ENUM
        BERTHI_TYPE_COUNT
} berthi_type;

/* X(IDENTIFIER, "word"): how a KV cache is kept. */
#define BERTHI_CACHE_TYPES(X) \
    X(F32, "f32")             \
    X(BF16, "bf16")           \
    X(F16, "f16")             \
    X(FP8, "fp8")             \
    X(INT8, "int8")           \
    X(INT4, "int4")

typedef enum berthi_cache_type {
#define BERTHI_CACHE_ENUM(identifier, word) BERTHI_CACHE_##identifier,
    BERTHI_CACHE_TYPES(BERTHI_CACHE_ENUM)
#undef BERTHI_CACHE_ENUM
        BERTHI_CACHE_COUNT
} berthi_cache_type;

/* Their words; "unknown" for a number that is none. */
const char *berthi_type_name(int32_t type);
const char *berthi_cache_type_name(int32_t type);
/* The type of a word, or -1. "fp8" is also "e4m3", dtypes have all their words. */
int32_t berthi_type_find(const char *word);
int32_t berthi_cache_type_find(const char *word);

/* True for the types that quantize linear layers; false for plain dtypes. */
bool berthi_type_is_quantized(int32_t type);

/* ----------------------------------------------------------------------- lines */

/* X(IDENTIFIER, "key", "words"): in the order in which lines come out. */
#define BERTHI_PARTS(X)                                                  \
    X(LINEARS, "linear_weights", "weights of linear layers")             \
    X(OTHERS, "other_weights", "embeddings, head and norms")             \
    X(ADAPTERS, "adapters", "adapters")                                  \
    X(MASTER, "master_weights", "master weights")                        \
    X(CASTS, "cast_cache", "weights cast for the step")                  \
    X(GRADIENTS, "gradients", "gradients")                               \
    X(OPTIMIZER, "optimizer_states", "optimizer states")                 \
    X(PAGED, "paged_states", "paged optimizer states")                   \
    X(PAGES, "pages", "states being updated")                            \
    X(CACHE, "kv_cache", "KV cache")                                     \
    X(STATES, "recurrent_states", "recurrent states")                    \
    X(CROSS, "cross_cache", "cross-attention cache")                     \
    X(ACTIVATIONS, "activations", "activations")                         \
    X(SCORES, "attention_scores", "attention scores")                    \
    X(CHECKPOINTS, "checkpoints", "checkpointed activations")            \
    X(RECOMPUTED, "recomputed", "activations recomputed")                \
    X(FINAL_NORM, "final_norm", "final norm")                            \
    X(LOGITS, "logits", "logits")                                        \
    X(LOSS, "head_and_loss", "head and loss")                            \
    X(DEQUANTIZED, "dequantized_weight", "a weight dequantized")         \
    X(BATCHES, "batch_buffers", "batch buffers")                         \
    X(PINNED, "pinned_buffers", "pinned loader buffers")                 \
    X(CONTEXT, "runtime_context", "runtime context")                     \
    X(WORKSPACE, "workspace", "workspace")                               \
    X(FRAGMENTATION, "fragmentation", "fragmentation")                   \
    X(DECODE, "decode_activations", "activations of one token")          \
    X(CACHE_READ, "cache_read", "cache read for a token")                \
    X(WEIGHT_READ, "weights_read", "weights read for a token")

typedef enum berthi_part {
#define BERTHI_PART_ENUM(identifier, key, words) BERTHI_PART_##identifier,
    BERTHI_PARTS(BERTHI_PART_ENUM)
#undef BERTHI_PART_ENUM
        BERTHI_PART_COUNT
} berthi_part;

const char *berthi_part_key(int32_t part);  /* "kv_cache": for JSON */
const char *berthi_part_name(int32_t part); /* "KV cache"           */

typedef enum berthi_place {
    BERTHI_PLACE_DEVICE,
    BERTHI_PLACE_HOST,
    BERTHI_PLACE_NOWHERE /* not memory of its own: read or part of another line */
} berthi_place;

typedef enum berthi_basis {
    BERTHI_BASIS_EXACT,    /* sizes of tensors                                   */
    BERTHI_BASIS_FORMULA,  /* arithmetic                                         */
    BERTHI_BASIS_MEASURED, /* a formula equal to measurements, for Llama's layer */
    BERTHI_BASIS_ESTIMATE
} berthi_basis;

const char *berthi_basis_name(int32_t basis); /* "exact", "formula", ...  */

#define BERTHI_REASON_CAPACITY 224u

typedef struct berthi_estimate_line {
    int32_t part;      /* berthi_part  */
    int32_t place;     /* berthi_place */
    int32_t basis;     /* berthi_basis */
    const char *dtype; /* "bf16", "nf4", "8-bit", ...; "" where there is none */
    uint64_t bytes;
    char reason[BERTHI_REASON_CAPACITY]; /* the formula with its numbers, ASCII */
} berthi_estimate_line;

#define BERTHI_ESTIMATE_NOTES 8u

/* A breakdown. Lines of 0 bytes are left out. */
typedef struct berthi_estimate {
    uint32_t line_count;
    uint32_t note_count;
    uint64_t device_bytes; /* of all lines on the device */
    uint64_t host_bytes;
    berthi_estimate_line lines[BERTHI_PART_COUNT];
    char notes[BERTHI_ESTIMATE_NOTES][BERTHI_REASON_CAPACITY];
} berthi_estimate;

/* The line of a part, or NULL. */
const berthi_estimate_line *berthi_estimate_find(const berthi_estimate *estimate,
                                                 int32_t part);
/* Its bytes; 0 where there is no such line. */
uint64_t berthi_estimate_bytes(const berthi_estimate *estimate, int32_t part);

/* ------------------------------------------------------------------ inference */

/*
 * A model: numbers, and weights out of them or out of a checkpoint's headers. Every
 * question walks over the list: weights that are alike belong into one entry.
 */
typedef struct berthi_estimate_model {
    const berthi_shape *shape;
    const berthi_weight *weights;
    uint32_t weight_count;
    bool has_headers;
    bool knows_stored; /* without headers: what quantized weights are stored as */
    bool is_foreign; /* stored in a way that berth does not decode: native only */
} berthi_estimate_model;

typedef struct berthi_estimate_options {
    int32_t type;              /* berthi_type                                       */
    int32_t dtype;             /* BERTH_BF16, F16 or F32: that is computed in       */
    int32_t cache_type;        /* berthi_cache_type                                 */
    uint32_t block_size;       /* of 4-bit types                                    */
    bool keeps_experts;        /* unquantized, as transformers 5 does               */
    bool expands_latents;      /* MLA: the cache as transformers keeps it           */
    bool is_eager;             /* attention without a fused kernel                  */
    bool has_all_logits;       /* of every position of the prompt                   */
    uint64_t context;          /* tokens of a sequence, prompt and answer           */
    uint64_t prompt;           /* computed at once, of the context; 0: all of it    */
    uint64_t source;           /* encoder-decoder: tokens of the encoder's input; 0: as many
                                  as the context                                    */
    uint64_t batch;            /* sequences                                         */
    uint64_t context_bytes;    /* of the runtime                                    */
    uint64_t workspace_bytes;
    uint32_t fragmentation_percent;
} berthi_estimate_options;

#define BERTHI_CONTEXT_BYTES (UINT64_C(512) << 20)
#define BERTHI_WORKSPACE_BYTES (UINT64_C(32) << 20)
#define BERTHI_FRAGMENTATION_PERCENT 5u

/* Native weights, bf16 (or the model's f16, f32) cache, 4096 tokens, one sequence. */
void berthi_estimate_options_init(berthi_estimate_options *options,
                                  const berthi_shape *shape);

/*
 * Fails with ARGUMENT: an option out of its range, or a line or sum of more than
 * 2^64 bytes, named.
 */
berth_status berthi_estimate_inference(const berthi_estimate_model *model,
                                       const berthi_estimate_options *options,
                                       berthi_estimate *out, berth_error *error);

/* --------------------------------------------------------------------- weights */

/* Sums over a model's weights as a type. UINT64_MAX: beyond. */
typedef struct berthi_weight_sums {
    uint64_t parameters;
    uint64_t quantized;   /* of them in weights that are quantized                  */
    uint64_t values;      /* bytes of plain numbers and packed codes                */
    uint64_t statistics;  /* of absmax, second level, row maxima                    */
    uint64_t tables;      /* of code tables and state blobs                         */
    uint64_t total;
    uint64_t linears;     /* bytes of linear layers and experts                     */
    uint64_t first;       /* of embeddings                                          */
    uint64_t last;        /* of head and final norm                                 */
    uint64_t idle;        /* of experts that one token does not take                */
    uint64_t layers[BERTHI_LAYER_KINDS]; /* of one layer of the kind, rounded up    */
    uint64_t largest;     /* elements of the largest linear weight                  */
} berthi_weight_sums;

/* Reads type, dtype, block_size and keeps_experts of the options. */
void berthi_estimate_weights(const berthi_estimate_model *model,
                             const berthi_estimate_options *options,
                             berthi_weight_sums *out);
/* The same estimate from sums made before: they do not hang on context and batch. */
berth_status berthi_estimate_with(const berthi_estimate_model *model,
                                  const berthi_weight_sums *sums,
                                  const berthi_estimate_options *options,
                                  berthi_estimate *out, berth_error *error);

/* ----------------------------------------------------------------------- cache */

/* Tokens that an encoder reads. */
uint64_t berthi_estimate_source(const berthi_estimate_options *options);
/* Bytes of elements in a cache. */
uint64_t berthi_cache_size(int32_t cache_type, uint64_t elements);
/* Of one sequence of `tokens` in one layer; states excluded. */
uint64_t berthi_cache_layer(const berthi_shape *shape, const berthi_layer *layer,
                            const berthi_estimate_options *options, uint64_t tokens);
/* What one layer of a kind keeps for all sequences: its cache, cross cache and states. */
uint64_t berthi_layer_keeps(const berthi_shape *shape, const berthi_layer *layer,
                            const berthi_estimate_options *options);
/* Of all layers and one sequence. */
uint64_t berthi_cache_sequence(const berthi_shape *shape,
                               const berthi_estimate_options *options, uint64_t tokens);

/* ------------------------------------------------------------------- backwards */

/* What may be filled. */
typedef struct berthi_fit_budget {
    uint64_t bytes;           /* of one device, the first */
    uint32_t reserve_percent; /* of each is kept free     */
    uint64_t host_bytes;      /* for streamed layers; 0: as many as needed */
    const uint64_t *more;     /* bytes of further devices, in the order they are filled in */
    uint32_t more_count;
} berthi_fit_budget;

/* The first device less its reserve, rounded down. */
uint64_t berthi_fit_usable(const berthi_fit_budget *budget);
/* The same of all of them; UINT64_MAX: beyond. */
uint64_t berthi_fit_usable_all(const berthi_fit_budget *budget);

typedef struct berthi_fit_type {
    int32_t type;
    bool fits;        /* the devices, with the options' context                  */
    bool is_capped;   /* the model is made for no more than this context         */
    uint64_t bytes;   /* on the device, with the options' context                */
    uint64_t context; /* largest that fits the devices; 0: none does             */
    uint32_t devices; /* fewest like the first that hold it; 0: none             */
} berthi_fit_type;

/* Contexts beyond are not looked for. */
#define BERTHI_FIT_CONTEXT (UINT64_C(1) << 32)
#define BERTHI_FIT_DEVICES 4096u

/*
 * The types to choose from, the most exact first: native, bf16, int8, nf4,
 * nf4+double-quant; of a model with a foreign method native alone. Behind them the type
 * that was asked for, if it is none of them. Returns how many.
 */
uint32_t berthi_fit_types(const berthi_estimate_model *model, int32_t asked,
                          int32_t out[BERTHI_TYPE_COUNT]);

/*
 * The options with the type of each row; the rest of the row is filled. They and the
 * budget have been checked. Several devices take whole layers in order, the first the
 * embeddings, the last head and logits, and each its own runtime and activations. Kinds
 * of layers are packed one after the other, which the exact planner does not: it may
 * need one device fewer where layers differ. Returns the number of the first row that
 * fits; -1: none does.
 */
int32_t berthi_estimate_fit(const berthi_estimate_model *model,
                            const berthi_estimate_options *options,
                            const berthi_fit_budget *budget, berthi_fit_type *rows,
                            uint32_t count);
/* Does it fit the devices of the budget, with the options' context? */
bool berthi_fit_is_held(const berthi_estimate_model *model,
                        const berthi_weight_sums *sums,
                        const berthi_estimate_options *options,
                        const berthi_fit_budget *budget);
/* The largest context of at most `most` that fits; 0: none does. */
uint64_t berthi_fit_context(const berthi_estimate_model *model,
                            const berthi_weight_sums *sums,
                            const berthi_estimate_options *options,
                            const berthi_fit_budget *budget, uint64_t most);
/* The fewest devices of `usable` bytes that hold it; 0: none. */
uint32_t berthi_fit_devices(const berthi_estimate_model *model,
                            const berthi_weight_sums *sums,
                            const berthi_estimate_options *options, uint64_t usable);
berth_status berthi_fit_check(const berthi_estimate_options *options,
                              const berthi_fit_budget *budget, berth_error *error);

typedef struct berthi_estimate_cells {
    const int32_t *types; /* of rows */
    uint32_t type_count;
    const uint64_t *contexts; /* of columns */
    uint32_t context_count;
    uint64_t *bytes; /* row after row */
} berthi_estimate_cells;

/* device_bytes for each type and context, into `cells->bytes`. */
berth_status berthi_estimate_table(const berthi_estimate_model *model,
                                   const berthi_estimate_options *options,
                                   const berthi_estimate_cells *cells, berth_error *error);

/* ---------------------------------------------------------------------- advice */

#define BERTHI_ADVICE_CAPACITY 24u

/* One thing to do, on top of those before it. */
typedef struct berthi_advice {
    uint64_t saved; /* bytes of the device                  */
    uint64_t bytes; /* on the device afterwards             */
    bool fits;
    char what[BERTHI_REASON_CAPACITY]; /* "a cache of int8" */
    const char *cost;                  /* "link time: ..."  */
} berthi_advice;

typedef struct berthi_advice_list {
    uint64_t usable;
    uint64_t bytes; /* before any of it */
    uint32_t count; /* 0: it fits as it is */
    bool fits;      /* after the last one */
    berthi_advice items[BERTHI_ADVICE_CAPACITY];
} berthi_advice_list;

#define BERTHI_ADVICE_CONTEXT 2048u

/*
 * For inference, one on top of the other until it fits: quantized cache (int8, then
 * int4), the largest context that fits, but no less than 2048, NF4, double
 * quantization, host tier for as many layers as needed (then the disk), more
 * devices. A context is not cut where that alone would not do, but for the last
 * resort. What saves nothing is left out.
 */
berth_status berthi_estimate_advise(const berthi_estimate_model *model,
                                    const berthi_estimate_options *options,
                                    const berthi_fit_budget *budget,
                                    berthi_advice_list *out, berth_error *error);

#endif
