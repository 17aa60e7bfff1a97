/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - the plan: what it is made from, what it holds, how it is made.
 *
 *   tensors, layers, tiers
 *     │ plan_make.c     checks, sums of layers; plan_room.c: rooms of tiers
 *     ▼
 *   homes of layers     plan_fit.c (home.h), or a device map that is followed
 *     │ plan_place.c    stay or go (stream.h); host memory or disk
 *     │ plan_experts.c  experts that stay, or slots that all of them share
 *     ▼
 *   berths              plan_lay.c: offsets, names (plan_names.h): counting is laying out
 *     │ plan_sum.c      sums of tiers and layers, out of the berths
 *     │ plan_predict.c  passes over the layers (stream.h), load, advice
 *     │ plan_spread.c   the same with homes in proportion to room: is it faster?
 *     │ plan_train.h    for training: what is trained, and places of its states
 *     ▼
 *   struct berth_plan   plan_explain.c says why; plan_print.c writes it and plan_parse.c
 *                       reads it (plan_json.h), in the words of plan_words.h
 *
 * Pure: no files, no devices, no clock. A plan belongs to its context and holds
 * neither checkpoint nor names of it.
 */
#ifndef BERTH_PLACEMENT_PLAN_H
#define BERTH_PLACEMENT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "placement/home.h"
#include "placement/parallel.h"
#include "placement/stream.h"
#include "placement/tier.h"

#define BERTHI_NO_TIER UINT32_MAX
#define BERTHI_NO_EXPERT UINT32_MAX

/* Of a plan for training: plan_train.h. */
typedef struct berthi_trained berthi_trained;
typedef struct berthi_train_input berthi_train_input;
typedef struct berthi_plan_training berthi_plan_training;

/* ------------------------------------------------------------------------ input */

/* What of a tensor a pass reads, if that is less than its kind says. */
typedef enum berthi_plan_reads {
    BERTHI_READS_ALL,
    BERTHI_READS_ROWS,   /* FIXED: an embedding that is trained */
    BERTHI_READS_EXPERTS /* those of a stack, which is moved as a whole */
} berthi_plan_reads;

/* One tensor of the checkpoint that is no statistics, or an expert of a stack. */
typedef struct berthi_plan_tensor {
    const char *name;     /* as stored; borrowed, not ended by a NUL */
    uint64_t bytes;       /* of its berth (slab.h) */
    uint64_t stored;      /* that a load reads for it */
    uint64_t scratch;     /* while it is quantized; 0: it is not */
    uint64_t turned;      /* its values in their new order, meanwhile; 0: it stays as it lies */
    uint32_t name_length;
    uint32_t number;      /* of the checkpoint */
    uint32_t layer;
    uint32_t tie;         /* the tensor whose berth it shares; BERTHI_NO_TIE: none */
    uint32_t tier;        /* it has to lie there; BERTHI_NO_TIER: anywhere */
    uint8_t kind;         /* berthi_piece_kind; FIXED: wherever the layer's home is */
    uint8_t reads;        /* berthi_plan_reads: what of it a pass reads */
    int8_t encoding;
    int8_t dtype;
    uint32_t expert;      /* its pieces go together; BERTHI_NO_EXPERT: alone */
    bool is_grouped;      /* of an expert: multiplied by with those of others at once */
    berthi_slice slice;   /* that the berth holds */
} berthi_plan_tensor;

#define BERTHI_NO_TIE UINT32_MAX

typedef struct berthi_plan_layer_input {
    const char *name; /* of the module; borrowed */
    uint64_t name_length;
    uint64_t cache;   /* bytes of its KV cache, or for its backward pass: on its home */
    uint32_t stacks;  /* taken apart: its last tensors, so many for each expert */
    bool is_tied;     /* its tensors serve another layer, too */
    bool is_again;    /* training: computed a second time, for its backward pass */
} berthi_plan_layer_input;

typedef struct berthi_plan_tier_input {
    berthi_tier tier;
    uint64_t budget;        /* UINT64_MAX: no limit */
    uint64_t reserve_share; /* of it, kept free: billionths; it grows with the budget */
    uint64_t reserve_bytes; /* beside it, however large the budget is */
    uint64_t link_rate;     /* GPU: from host memory; cpu, disk: from the disk */
    uint64_t memory_rate;
    uint64_t operation_ns;  /* what an operation takes beyond its bytes; 0: not known */
    int32_t link_source;    /* berth_rate_source */
    int32_t memory_source;
} berthi_plan_tier_input;

/* Of a plan that is refused: tiers that are short, where more of one would not do. */
typedef struct berthi_plan_lacks {
    uint32_t count;
    struct {
        berthi_tier tier;
        uint64_t budget;
        uint64_t raise; /* of it, at least */
    } at[BERTHI_TIER_LIMIT];
} berthi_plan_lacks;

typedef struct berthi_plan_input {
    const berthi_plan_tensor *tensors; /* layers ascending, in a layer by name, stacks last */
    uint32_t tensor_count;
    const berthi_plan_layer_input *layers; /* in the order of execution */
    uint32_t layer_count;
    const berthi_plan_tier_input *tiers; /* in the order of berthi_tier_compare() */
    uint32_t tier_count;
    uint64_t activations;    /* bytes on each device that computes */
    uint64_t runtime;        /* what a GPU's runtime is expected to take of its reserve */
    uint64_t disk_rate;      /* what is loaded comes from it, tier or not */
    uint64_t staging;        /* of each GPU, in host memory */
    uint32_t expert_count;   /* of a layer */
    uint32_t experts_used;   /* of them by one token; 0: not known, all */
    uint32_t stacked_count;  /* experts of a layer, where they stay stacked; 0: nowhere */
    uint64_t expert_hits;    /* given, as billionths: of those that share slots */
    bool has_hits;           /* false: all are as likely */
    uint64_t tokens;         /* of one pass: sequences */
    uint32_t slots;          /* 0: as many as are best */
    bool no_offload;
    bool is_mapped;          /* every tensor has a tier: it is followed, budgets or not */
    bool is_trial;           /* nobody reads why it does not fit */
    berthi_plan_lacks *lacks; /* filled where several tiers are short; NULL: not wanted */
    const berthi_train_input *train; /* NULL: inference */
    berth_plan_summary summary; /* type, dtype, digest, ...: what is only passed on */
} berthi_plan_input;

/* Whether layers are computed there: on GPUs, and on the host where there is none. */
bool berthi_plan_is_device(const berthi_plan_input *input, uint32_t tier);

/* ------------------------------------------------------------------------- plan */

/* 32 bytes a tensor: there are plans of a hundred thousand. */
typedef struct berthi_berth {
    uint64_t offset; /* in the tier's slab */
    uint64_t bytes;
    uint32_t number; /* of the checkpoint */
    uint32_t name;   /* behind the layer's prefix: offset in `texts` */
    uint16_t layer;
    uint8_t tier;
    int8_t encoding;
    int8_t dtype;
    bool is_expert;
    bool is_tied;    /* shares the berth of another; counts in no sum */
    bool is_resident;
} berthi_berth;

#define BERTHI_PLAN_LAYERS 65535u
/*
 * Of all berths together, of all caches, and of each other part of a tier: sums of them stay below
 * 2^64, but for the reserve, a share of any budget.
 */
#define BERTHI_PLAN_PART (UINT64_C(1) << 56)

typedef struct berthi_plan_layer {
    berth_plan_layer out;      /* what berth.h says of it */
    const char *prefix;        /* of the stored names of its tensors */
    uint32_t prefix_length;
} berthi_plan_layer;

struct berth_plan {
    berth_context *context;
    berthi_arena arena;        /* layers, tiers, map, texts */
    berth_plan_summary summary;
    berth_plan_tier *tiers;
    berthi_plan_layer *layers;
    berthi_berth *berths;      /* in the order of the tensors */
    berthi_slice *slices;      /* of berths; NULL: they hold whole tensors */
    uint64_t berth_count;
    berthi_plan_training *training; /* NULL: inference */
    bool is_read;              /* from a text, which may be anybody's */
    const char *texts;         /* ends of names, each ended by a NUL, each once */
    berth_map_line *map;
};

/*
 * Makes a plan but for its map. Fails with ARGUMENT, NO_FIT (the tier, the bytes
 * missing, the smallest change), UNSUPPORTED (more layers than a plan can have) or
 * NO_MEMORY. Free with berthi_plan_free().
 */
berth_status berthi_plan_make(berth_context *context, const berthi_plan_input *input,
                              berth_plan **out, berth_error *error);
/* Memory for a plan of these counts, all zero but for the counts. */
berth_status berthi_plan_alloc(berth_context *context, uint32_t tiers, uint32_t layers,
                               uint64_t berths, berth_plan **out, berth_error *error);
/* Whether some of its berths may hold parts of tensors. */
static inline bool
berthi_plan_has_slices(const berth_plan_summary *summary)
{
    return summary->ranks > 1 || summary->stacks == BERTH_STACKS_APART;
}
/* Memory for what berths hold: `slices`, all whole. */
bool berthi_plan_can_slice(berth_plan *plan);
/* What a berth holds. */
static inline berthi_slice
berthi_plan_slice(const berth_plan *plan, uint64_t berth)
{
    return plan->slices != NULL ? plan->slices[berth]
                                : (berthi_slice){ .along = BERTH_SLICING_NONE };
}
/* NULL is allowed. */
void berthi_plan_free(berth_plan *plan);

/* Makes all sums anew, from berths, slots and what was asked for beside them. */
void berthi_plan_sum(berth_plan *plan);
/* All of a tier's parts but what is free. */
uint64_t berthi_plan_taken(const berth_plan_tier *tier);

/* The name of a berth's tensor, as snprintf() would write it. */
uint64_t berthi_plan_name(const berth_plan *plan, uint64_t berth, char *text,
                          size_t capacity);
/* For errors about a layer, whose name is printable as it is. */
berthi_about berthi_plan_about_layer(const berth_plan *plan, uint32_t layer);
/* The number behind ".experts." in a tensor's name; BERTHI_NO_EXPERT: there is none. */
uint32_t berthi_plan_expert(const char *name, uint64_t length);

/*
 * The expert that a berth of one belongs to: by its tensor's name, or the row of a stack;
 * BERTHI_NO_EXPERT: neither tells.
 */
uint32_t berthi_plan_expert_of(const berth_plan *plan, uint64_t berth, const char *name,
                               uint64_t length);

/* A name, and where the number is in it; zero before the first. */
typedef struct berthi_plan_expert_name {
    const char *name;
    uint64_t number; /* 0: there is none */
} berthi_plan_expert_name;

/* The same for names one after another, which mostly begin as the one before. */
uint32_t berthi_plan_next_expert(berthi_plan_expert_name *before, const char *name,
                                 uint64_t length);
/* One sentence, cut at `capacity`. */
void berthi_plan_explain(const berth_plan *plan, uint32_t layer, char *text,
                         size_t capacity);

/* ----------------------------------------------------------- parts of plan_make */

/* A plan in the making. */
typedef struct berthi_plan_work {
    berth_context *context;
    const berthi_plan_input *input;
    berthi_arena arena;    /* all below */
    uint32_t device_count; /* tiers that compute: the first ones */
    uint32_t host;         /* tier; BERTHI_NO_TIER: none */
    uint32_t disk;
    uint32_t *homes;       /* of layers: tiers */
    uint64_t *needed;      /* of layers: berthi_plan_need() */
    uint32_t *operations;  /* of layers: berthi_plan_count() */
    berthi_home_layer *sums; /* of layers; NULL where a map is followed */
    uint32_t *first;       /* of layers: tensors; one more at the end */
    uint32_t *tier_of;     /* of tensors */
    uint64_t scratch;      /* of each tier but the disk */
    uint64_t turned;       /* in host memory, whatever the tier */
    uint64_t staging;      /* in host memory, of all devices */
    uint64_t *usable;      /* of tiers: budget less reserve and what has been taken */
    uint64_t *kept;        /* of layers, at home for training; 0 without */
    uint64_t *own;         /* of tiers: the same, of devices that compute a layer */
    bool is_short;         /* a map asks for more than a device has, kept things included */
    berthi_stream_result *settled; /* of devices */
    berth_plan *plan;
} berthi_plan_work;

/* Experts of a layer that one pass takes, at most. */
uint32_t berthi_plan_experts(const berthi_plan_input *input);
/* The same, of a layer with so many. */
uint32_t berthi_plan_experts_of(const berthi_plan_input *input, uint32_t count);

/* Which tiers compute, and what each has room for; refuses budgets without a device. */
berth_status berthi_plan_take_tiers(berthi_plan_work *work, berth_error *error);
/* Bytes of such a budget of the tier that are kept free. */
uint64_t berthi_plan_reserve(const berthi_plan_tier_input *tier, uint64_t budget);
/* What quantizing takes of a tier beside weights, whatever lies there. */
uint64_t berthi_plan_beside(const berthi_plan_work *work, uint32_t tier);
/* Of what is free in a tier of the plan: what weights can take that are not there yet. */
uint64_t berthi_plan_room(const berthi_plan_work *work, uint32_t tier);
/* Rings of all GPUs as asked for, at most what any host memory has for them: an eighth. */
uint64_t berthi_plan_rings(const berthi_plan_work *work);
/* What of them host memory has room for that has just so many bytes beside them. */
uint64_t berthi_plan_rings_beside(const berthi_plan_work *work, uint64_t bytes);
/* What layers and slots find on a tier with such a budget; UINT64_MAX: no limit. */
uint64_t berthi_plan_usable(const berthi_plan_work *work, uint32_t tier, uint64_t budget);
/*
 * By how much the tier's budget grows for so many bytes more that can be used: what is
 * kept free of it and what is short of that, too. UINT64_MAX: no budget is enough.
 */
uint64_t berthi_plan_raise(const berthi_plan_work *work, uint32_t tier, uint64_t bytes);
/* As berth_size_format(), but what is read back from the text is never less. */
void berthi_plan_raise_format(uint64_t bytes, char *text);
/*
 * NO_FIT: the tier is short of room for so many bytes; `why` stands behind its budget. What is
 * told is enough, or says that it is not: of other tiers too, where more of this one would not do.
 */
berth_status berthi_plan_refuse(const berthi_plan_work *work, uint32_t tier,
                                uint64_t bytes, const char *why, berth_error *error);
/* The same where layers have no homes. */
berth_status berthi_plan_refuse_homes(const berthi_plan_work *work,
                                      const berthi_home_problem *problem, berth_error *error);
/* With so much of host memory; all of the disk. */
uint64_t berthi_plan_room_elsewhere(const berthi_plan_work *work, uint64_t host);
/* Homes of layers, or a refusal that says what would make it fit. */
berth_status berthi_plan_find_homes(berthi_plan_work *work, berth_error *error);
/* Takes homes with nothing to bring, if there are such. */
berth_status berthi_plan_probe_homes(berthi_plan_work *work, bool *out_all_stay,
                                     berth_error *error);
/* Bytes that a pass reads of a layer, wherever it is computed. */
uint64_t berthi_plan_need(const berthi_plan_input *input, uint32_t layer, uint32_t first,
                          uint32_t end);
/*
 * Operations of a layer in a pass: one for each of its tensors, those of experts that are
 * taken; of such as are grouped what berthi_experts_operations() says. Operations without
 * weights make up for products that are asked for together: a layer of Llama has nine tensors,
 * and is nine operations.
 */
uint32_t berthi_plan_count(const berthi_plan_input *input, uint32_t first, uint32_t end);
/* Seconds that a pass computes in a layer: its home's memory is read, operations begin. */
double berthi_plan_compute(const berthi_plan_work *work, uint32_t layer);

/* What of each layer stays on its home, and where the rest goes. */
berth_status berthi_plan_place(berthi_plan_work *work, berth_error *error);
/* The tensors of one expert, or one tensor, from `i` to what is returned go as one. */
uint32_t berthi_plan_group_end(const berthi_plan_work *work, uint32_t i);
/* Bytes of all tensors that lie on each tier. */
void berthi_plan_sum_tiers(const berthi_plan_work *work, uint64_t *bytes);
/*
 * Gives what a device has left to slots of experts, and the place of experts that stay,
 * if there is room for them elsewhere and no more is brought then. Fails with NO_MEMORY.
 */
berth_status berthi_plan_divide_experts(berthi_plan_work *work, berth_error *error);
/*
 * Of the experts that are wanted and do not stay those that lie in slots, 0 to 1, if all
 * are as likely: `layers` take `used` each, in turn, of `away` in all. As
 * loader/lease_cache.c gives slots away: each layer has its share of them, but for what
 * a layer needs that uses more than its share.
 */
double berthi_plan_expert_hits(uint64_t slots, uint64_t away, uint64_t layers,
                               uint64_t used);
/* True where the caller's number counts: some of the experts that share slots have none. */
bool berthi_plan_has_given_hits(const berthi_plan_work *work, uint32_t device);
/* Offsets, names, sums of tiers and layers. */
berth_status berthi_plan_lay(berthi_plan_work *work, berth_error *error);
/* Times, bytes over links, advice. */
berth_status berthi_plan_predict(berthi_plan_work *work, berth_error *error);
/* Takes other homes where they make a pass shorter. */
berth_status berthi_plan_spread(berthi_plan_work *work, berth_error *error);
/* What the caller knows and the planner does not ask. */
void berthi_plan_pass_on(const berthi_plan_input *input, berth_plan *plan);

#endif
