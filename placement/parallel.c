/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - rows and columns for a rank; see parallel.h. */
#include "placement/parallel.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/kernel.h"
#include "kernels/text.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* -------------------------------------------------------------------------- family */

/* Their layers hold what `modules` and `numbers` name, and what is theirs alone. */
static const char *const families[] = {
    "afmoe", "apertus", "arcee", "aria_text", "axk1", "cohere", "cohere2",
    "cohere2_moe", "cwm", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1",
    "ernie4_5", "ernie4_5_moe", "exaone4", "exaone_moe", "flex_olmo", "gemma", "gemma2",
    "gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss",
    "granite", "granite_swa", "granitemoe", "granitemoeshared", "helium",
    "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "hyperclovax", "internlm3",
    "iquestcoder", "jais2", "kimi_k2", "kolibri1", "llama", "llama4_text", "mellum",
    "minicpm3", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral",
    "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "phi", "phi3", "phimoe", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "solar_open", "stablelm",
    "starcoder2", "vaultgemma", "youtu",
};

/* Whose ranks have what is fused as it lies, and bring together what it gives. */
static const struct {
    const char *family;
    bool heads; /* of queries, keys and values, too */
} gathering[] = { { "glm", false }, { "glm4", false }, { "phi3", true } };

static bool
is_listed(const berthi_shape *shape)
{
    const char *const name = berthi_shape_family_name(shape);

    for (size_t i = 0; i < COUNT(families); i++)
        if (strcmp(families[i], name) == 0)
            return true;
    return false;
}

static bool
is_known(const berthi_shape *shape)
{
    return is_listed(shape) && shape->is_known && !shape->has_tower
           && !shape->has_unknown_layers;
}

static berth_status
fail_family(const berthi_shape *shape, berth_error *error)
{
    const char *const name = shape != NULL ? berthi_shape_family_name(shape)
                                           : "a model without config.json that can be read";

    if (shape != NULL && is_listed(shape))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "how %s is cut for tensor parallelism is not known where its "
                           "layers differ, or beside a tower for pictures or sounds",
                           name);
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "how %s is cut for tensor parallelism is not known: berth-plan(5) "
                       "lists the types of which it is",
                       name);
}

static void
gather(berthi_parallel *parallel)
{
    for (size_t i = 0; i < COUNT(gathering); i++)
        if (strcmp(gathering[i].family, parallel->model_type) == 0) {
            parallel->gathers_heads = gathering[i].heads;
            parallel->gathers_widths = true;
        }
}

berth_status
berthi_parallel_init(berthi_parallel *out, uint32_t rank, uint32_t ranks,
                     const berthi_shape *shape, berth_error *error)
{
    if (ranks > BERTHI_PARALLEL_RANKS)
        return berthi_fail_argument(error, "ranks", "is more than 1024");
    if (rank >= ranks)
        return berthi_fail_argument(error, "rank", "is not below ranks");
    if (shape == NULL || !is_known(shape))
        return fail_family(shape, error);
    *out = (berthi_parallel){ .rank = rank,
                              .ranks = ranks,
                              .model_type = berthi_shape_family_name(shape),
                              .hidden = shape->hidden,
                              .heads = shape->kinds[0].heads,
                              .kv_heads = shape->kinds[0].kv_heads };
    for (uint32_t k = 1; k < shape->kind_count; k++)
        if (shape->kinds[k].heads != out->heads
            || shape->kinds[k].kv_heads != out->kv_heads)
            return fail_family(shape, error);
    gather(out);
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- rules */

typedef enum rule {
    RULE_UNKNOWN,
    RULE_WHOLE,
    RULE_HEADS,    /* rows, between heads */
    RULE_KV_HEADS, /* the same, of keys and values */
    RULE_OUTPUT,   /* columns, between heads */
    RULE_ROWS,
    RULE_COLUMNS,
    RULE_WORDS,    /* rows, even or not */
    /* Matrices of experts, stacked, have their rows and columns behind the first dimension. */
    RULE_HALVES,        /* rows of gate, behind them those of up */
    RULE_DOWN,          /* columns */
    RULE_TURNED_HALVES, /* the same of matrices that lie turned: columns */
    RULE_TURNED_PAIRS,  /* columns of gate and up by turns, and their biases */
    RULE_TURNED_DOWN,   /* rows */
    RULE_COUNT
} rule;

typedef struct named_rule {
    const char *name;
    rule rule;
} named_rule;

/* Whose weight or bias it is. */
static const named_rule modules[] = {
    { "q_proj", RULE_HEADS },
    { "k_proj", RULE_KV_HEADS },
    { "v_proj", RULE_KV_HEADS },
    { "o_proj", RULE_OUTPUT },
    { "dense", RULE_OUTPUT },
    /* Latents are of all heads. */
    { "q_a_proj", RULE_WHOLE },
    { "q_b_proj", RULE_HEADS },
    { "kv_a_proj_with_mqa", RULE_WHOLE },
    { "kv_b_proj", RULE_HEADS },
    /* What chooses tokens is the same for all heads. */
    { "wq_b", RULE_WHOLE },
    { "wk", RULE_WHOLE },
    { "weights_proj", RULE_WHOLE },
    { "gate_proj", RULE_ROWS },
    { "up_proj", RULE_ROWS },
    { "down_proj", RULE_COLUMNS },
    { "w1", RULE_ROWS },
    { "w3", RULE_ROWS },
    { "w2", RULE_COLUMNS },
    { "fc1", RULE_ROWS },
    { "fc2", RULE_COLUMNS },
    { "c_fc", RULE_ROWS },
    { "c_proj", RULE_COLUMNS },
    { "gate", RULE_WHOLE },
    { "router", RULE_WHOLE },
    { "wg", RULE_WHOLE },
    { "shared_expert_gate", RULE_WHOLE },
    { "act_fn", RULE_WHOLE },
    { "embed_tokens", RULE_WORDS },
    { "lm_head", RULE_WORDS },
    { "rotary_emb", RULE_WHOLE },
    { "post_norm1", RULE_WHOLE },
    { "post_norm2", RULE_WHOLE },
    /* Of a layer that predicts one more token: DeepSeek V3's last. */
    { "eh_proj", RULE_WHOLE },
    { "head", RULE_WORDS },
};

typedef struct family_rule {
    const char *family;
    named_rule named;
} family_rule;

/* Before all others. */
static const family_rule modules_of[] = {
    { "aria_text", { "fc1", RULE_TURNED_HALVES } },
    { "aria_text", { "fc2", RULE_TURNED_DOWN } },
    { "glm", { "gate_up_proj", RULE_ROWS } },
    { "glm4", { "gate_up_proj", RULE_ROWS } },
    { "granitemoe", { "input_linear", RULE_HALVES } },
    { "granitemoe", { "output_linear", RULE_DOWN } },
    { "granitemoe", { "layer", RULE_WHOLE } }, /* of the router */
    { "granitemoeshared", { "input_linear", RULE_HALVES } },
    { "granitemoeshared", { "output_linear", RULE_DOWN } },
    { "granitemoeshared", { "layer", RULE_WHOLE } },
    { "phi3", { "qkv_proj", RULE_ROWS } },
    { "phi3", { "o_proj", RULE_COLUMNS } },
    { "phi3", { "gate_up_proj", RULE_ROWS } },
};
static const family_rule numbers_of[] = {
    { "gpt_oss", { "gate_up_proj", RULE_TURNED_PAIRS } },
    { "gpt_oss", { "gate_up_proj_bias", RULE_TURNED_PAIRS } },
    { "gpt_oss", { "down_proj", RULE_TURNED_DOWN } },
    { "gpt_oss", { "down_proj_bias", RULE_WHOLE } },
    { "llama4_text", { "gate_up_proj", RULE_TURNED_HALVES } },
    { "llama4_text", { "down_proj", RULE_TURNED_DOWN } },
};

/* Numbers that stand in no module of their own. */
static const named_rule numbers[] = {
    { "e_score_correction_bias", RULE_WHOLE },
    { "expert_bias", RULE_WHOLE },
    { "sinks", RULE_HEADS },
    /* Stacks, as transformers has them in memory. */
    { "gate_up_proj", RULE_HALVES },
    { "down_proj", RULE_DOWN },
};

static rule
find_named(const named_rule *named, size_t count, berthi_text name)
{
    for (size_t i = 0; i < count; i++)
        if (berthi_text_is(name, named[i].name))
            return named[i].rule;
    return RULE_UNKNOWN;
}

static rule
find_own(const berthi_parallel *parallel, const family_rule *rules, size_t count,
         berthi_text name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rules[i].family, parallel->model_type) == 0
            && berthi_text_is(name, rules[i].named.name))
            return rules[i].named.rule;
    return RULE_UNKNOWN;
}

static rule
find_module(const berthi_parallel *parallel, berthi_text name)
{
    const rule own = find_own(parallel, modules_of, COUNT(modules_of), name);

    return own != RULE_UNKNOWN ? own : find_named(modules, COUNT(modules), name);
}

static rule
find_number(const berthi_parallel *parallel, berthi_text name)
{
    const rule own = find_own(parallel, numbers_of, COUNT(numbers_of), name);

    return own != RULE_UNKNOWN ? own : find_named(numbers, COUNT(numbers), name);
}

/* By the last part of the name, or the last but one. */
static rule
find_rule(const berthi_parallel *parallel, const berthi_parallel_tensor *tensor)
{
    uint64_t end = tensor->name_length;
    berthi_text module;
    uint64_t begin;
    rule found;

    while (end > 0 && tensor->name[end - 1] != '.')
        end--;
    found = find_number(parallel,
                        (berthi_text){ tensor->name + end, tensor->name_length - end });
    if (found != RULE_UNKNOWN || end == 0)
        return found;
    begin = --end;
    while (begin > 0 && tensor->name[begin - 1] != '.')
        begin--;
    module = (berthi_text){ tensor->name + begin, end - begin };
    found = find_module(parallel, module);
    return found == RULE_UNKNOWN && tensor->rank == 1 && berthi_text_ends(module, "norm")
               ? RULE_WHOLE
               : found;
}

/* ---------------------------------------------------------------------- one tensor */

typedef enum unit {
    UNIT_ONE,
    UNIT_PAIR,
    UNIT_HEAD,
    UNIT_KV_HEAD
} unit;

/* How a rule cuts. */
typedef struct way {
    unit unit;
    uint32_t parts;      /* of the dimension; 0: one */
    uint32_t rank_least; /* of tensors that it is for */
    uint32_t rank_most;
    bool is_last;        /* the last dimension; else the last but one, if there is one */
} way;

static const way ways[RULE_COUNT] = {
    [RULE_HEADS] = { UNIT_HEAD, 0, 1, 2, false },
    [RULE_KV_HEADS] = { UNIT_KV_HEAD, 0, 1, 2, false },
    [RULE_OUTPUT] = { UNIT_HEAD, 0, 1, 2, true },
    [RULE_ROWS] = { UNIT_ONE, 0, 1, 2, false },
    [RULE_COLUMNS] = { UNIT_ONE, 0, 1, 2, true },
    [RULE_WORDS] = { UNIT_ONE, 0, 1, 2, false },
    [RULE_HALVES] = { UNIT_ONE, 2, 2, 3, false },
    [RULE_DOWN] = { UNIT_ONE, 0, 2, 3, true },
    [RULE_TURNED_HALVES] = { UNIT_ONE, 2, 3, 3, true },
    [RULE_TURNED_PAIRS] = { UNIT_PAIR, 0, 2, 3, true },
    [RULE_TURNED_DOWN] = { UNIT_ONE, 0, 3, 3, false },
};

static uint32_t
dimension_of(const way *how, uint32_t rank)
{
    return how->is_last || rank < 2 ? rank - 1 : rank - 2;
}

/* Its other dimension is the hidden state's: nobody has turned or renamed it. */
static bool
is_for(const way *how, const berthi_parallel *parallel, const berthi_parallel_tensor *tensor)
{
    const uint32_t rank = tensor->rank;
    uint64_t size;

    if (rank < how->rank_least || rank > how->rank_most)
        return false;
    size = tensor->shape[dimension_of(how, rank)];
    if ((how->parts > 1 && size % how->parts != 0) || (how->unit == UNIT_PAIR && size % 2 != 0))
        return false;
    return rank < 3 || tensor->shape[how->is_last ? 1 : 2] == parallel->hidden;
}

/* What is cut: of `units` that stay together. */
typedef struct division {
    uint64_t size;
    uint64_t units;
    uint32_t parts;    /* alike, in the dimension; 0: one */
    const char *what;  /* "rows" */
    const char *whose; /* units of several */
    bool is_shared;    /* fewer units than ranks: a unit is on several */
} division;

static berth_status
fail_uneven(const berthi_parallel *p, const division *d, const berthi_about *where,
            berth_error *error)
{
    if (d->parts > 1)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, where,
                           "has %" PRIu64 " %s in each of %" PRIu32 " parts, which %" PRIu32
                           " ranks cannot share evenly",
                           d->size, d->what, d->parts, p->ranks);
    if (d->units == d->size)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, where,
                           "has %" PRIu64 " %s, which %" PRIu32
                           " ranks cannot share evenly",
                           d->size, d->what, p->ranks);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, where,
                       "has %" PRIu64 " %s of %" PRIu64 " %s, which %" PRIu32
                       " ranks cannot share evenly",
                       d->size, d->what, d->units, d->whose, p->ranks);
}

static berth_status
divide_evenly(const berthi_parallel *p, const division *d, const berthi_about *where,
              berthi_slice *out, berth_error *error)
{
    if (d->units == 0 || d->size % d->units != 0)
        return fail_uneven(p, d, where, error);
    if (d->units % p->ranks == 0) {
        out->count = d->size / p->ranks;
        out->first = p->rank * out->count;
        return BERTH_OK;
    }
    if (!d->is_shared || p->ranks % d->units != 0)
        return fail_uneven(p, d, where, error);
    out->count = d->size / d->units;
    out->first = p->rank / (p->ranks / d->units) * out->count;
    return BERTH_OK;
}

/* floor(size * rank / ranks), without the product. */
static uint64_t
bound(uint64_t size, uint32_t rank, uint32_t ranks)
{
    return size / ranks * rank + size % ranks * rank / ranks;
}

static berth_status
fail_unknown(const berthi_parallel *p, const berthi_about *where, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, where,
                       "is no tensor of %s that berth knows how to cut for tensor "
                       "parallelism",
                       p->model_type);
}

/* What of its parts, which are all alike, is cut. */
static division
find_division(const berthi_parallel *parallel, const way *how, uint64_t size, int32_t along)
{
    static const char *const words[] = { "values", "rows", "columns", "depths" };
    division d = { .size = how->parts > 1 ? size / how->parts : size,
                   .parts = how->parts,
                   .what = words[along],
                   .whose = how->unit == UNIT_PAIR ? "pairs" : "heads",
                   .is_shared = how->unit == UNIT_KV_HEAD };

    switch (how->unit) {
    case UNIT_PAIR: d.units = d.size / 2; break;
    case UNIT_HEAD: d.units = parallel->heads; break;
    case UNIT_KV_HEAD: d.units = parallel->kv_heads; break;
    default: d.units = d.size; break;
    }
    return d;
}

berth_status
berthi_parallel_divide(const berthi_parallel *parallel,
                       const berthi_parallel_tensor *tensor, const berthi_about *where,
                       berthi_slice *out, berth_error *error)
{
    const rule found = find_rule(parallel, tensor);
    const way *const how = &ways[found];
    uint32_t dimension;
    division d;

    *out = (berthi_slice){ .along = BERTH_SLICING_NONE };
    /* What is added to a sum over ranks is not cut: one rank adds it. */
    if (found == RULE_WHOLE || (how->is_last && tensor->rank == 1 && how->rank_least == 1))
        return BERTH_OK;
    if (found == RULE_UNKNOWN || !is_for(how, parallel, tensor))
        return fail_unknown(parallel, where, error);
    dimension = dimension_of(how, tensor->rank);
    out->along = BERTH_SLICING_ROWS + (int32_t)dimension;
    out->parts = how->parts;
    d = find_division(parallel, how, tensor->shape[dimension], out->along);
    if (found == RULE_WORDS) {
        out->first = bound(d.size, parallel->rank, parallel->ranks);
        out->count = bound(d.size, parallel->rank + 1, parallel->ranks) - out->first;
        return BERTH_OK;
    }
    return divide_evenly(parallel, &d, where, out, error);
}

void
berthi_parallel_shrink(const berthi_parallel *parallel, berthi_shape *shape)
{
    const uint64_t ranks = parallel->ranks;

    shape->vocabulary = berthi_max_u64(berthi_divide_up(shape->vocabulary, ranks), 1);
    for (uint32_t k = 0; k < shape->kind_count; k++) {
        berthi_layer *const kind = &shape->kinds[k];

        if (!parallel->gathers_heads) {
            kind->heads = berthi_max_u64(kind->heads / ranks, 1);
            kind->kv_heads = berthi_max_u64(kind->kv_heads / ranks, 1);
        }
        if (!parallel->gathers_widths)
            kind->intermediate /= ranks;
        kind->expert_intermediate /= ranks;
        kind->shared_intermediate /= ranks;
    }
}

/* ----------------------------------------------------------------------- any slice */

bool
berthi_slice_is_inside(const berthi_slice *slice, const uint64_t *shape, uint32_t rank)
{
    const uint32_t dimension = berthi_slice_dimension(slice);
    const uint64_t parts = berthi_slice_parts(slice);
    uint64_t size;

    if (slice->along == BERTH_SLICING_NONE)
        return true;
    if (rank <= dimension || shape[dimension] % parts != 0)
        return false;
    size = shape[dimension] / parts;
    return slice->first <= size && slice->count <= size - slice->first;
}

berthi_slice_view
berthi_slice_look(const berthi_slice *slice, const uint64_t *shape, uint32_t rank)
{
    const uint32_t dimension = berthi_slice_dimension(slice);
    const uint64_t parts = berthi_slice_parts(slice);
    berthi_slice_view view = { parts, shape[dimension] / parts, 1 };

    for (uint32_t i = 0; i < dimension; i++)
        view.outer *= shape[i];
    for (uint32_t i = dimension + 1; i < rank; i++)
        view.inner *= shape[i];
    return view;
}

void
berthi_slice_shape(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
                   uint64_t *out)
{
    memcpy(out, shape, rank * sizeof *out);
    if (slice->along != BERTH_SLICING_NONE)
        out[berthi_slice_dimension(slice)] = slice->count * berthi_slice_parts(slice);
}

bool
berthi_slice_can_take(const berthi_slice *slice, const uint64_t *shape, uint64_t block,
                      const uint64_t *dims, uint32_t rank, berthi_slice *out)
{
    const uint32_t dimension = berthi_slice_dimension(slice);
    const uint64_t size = shape[dimension];
    const uint64_t count = dimension < rank ? dims[dimension] : 1;
    const uint64_t end = slice->first + slice->count;

    *out = *slice;
    if (slice->along == BERTH_SLICING_NONE || (dimension < rank && count == size))
        return true;
    if (slice->parts > 1)
        return false;
    if (block == 0 || berthi_divide_up(size, block) != count)
        return false;
    if (count == 1) {
        *out = (berthi_slice){ .along = BERTH_SLICING_NONE };
        return true;
    }
    out->first = slice->first / block;
    out->count = berthi_divide_up(slice->count, block);
    return slice->first % block == 0 && (end % block == 0 || end == size);
}

/* Whether a slice is whole blocks, which run along rows and on into the next one. */
static bool
is_in_blocks(const berthi_slice *slice, const uint64_t *shape, uint32_t rank, uint64_t block)
{
    const berthi_slice_view view = berthi_slice_look(slice, shape, rank);
    const uint64_t begin = slice->first * view.inner;
    const uint64_t end = begin + slice->count * view.inner;
    const uint64_t all = view.size * view.inner;

    if (block == 0 || begin % block != 0)
        return false;
    return view.outer == 1 ? end % block == 0 || end == all
                           : end % block == 0 && all % block == 0;
}

bool
berthi_slice_splits_levels(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
                           const berthi_quantized *record)
{
    return record->is_double && slice->along != BERTH_SLICING_NONE
           && !is_in_blocks(slice, shape, rank,
                            record->block_size * (uint64_t)BERTHI_DOUBLE_BLOCK);
}

static const char *
refuse_blocks(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
              const berthi_quantized *record)
{
    if (is_in_blocks(slice, shape, rank, record->block_size))
        return NULL;
    return slice->along == BERTH_SLICING_ROWS && slice->parts <= 1
               ? "is stored in blocks that a cut here would split: cut the checkpoint it "
                 "was made of"
               : "is stored in blocks that run along its rows: columns of it would split "
                 "them, cut the checkpoint it was made of";
}

/* Of 4 bits: eight numbers are whole bytes. */
static bool
is_in_bytes(const berthi_slice *slice, const uint64_t *shape, uint32_t rank, uint64_t bits)
{
    const berthi_slice_view view = berthi_slice_look(slice, shape, rank);
    const uint64_t inner = view.inner % 8 * bits;

    return slice->first % 8 * inner % 8 == 0 && slice->count % 8 * inner % 8 == 0
           && ((slice->along == BERTH_SLICING_ROWS && slice->parts <= 1)
               || view.size % 8 * inner % 8 == 0);
}

const char *
berthi_slice_refusal(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
                     int32_t dtype, const berthi_quantized *record)
{
    if (slice->along == BERTH_SLICING_NONE)
        return NULL;
    if (record == NULL)
        return is_in_bytes(slice, shape, rank, berth_dtype_bits(dtype))
                   ? NULL
                   : "has no whole bytes where it would be cut";
    switch (record->encoding) {
    case BERTH_ENCODING_NF4:
    case BERTH_ENCODING_FP4:
        if (berthi_quantized_is_as_made(record))
            return refuse_blocks(slice, shape, rank, record);
        break;
    case BERTH_ENCODING_INT8: return NULL;
    default: break;
    }
    return "is stored in an encoding that is not cut: cut the checkpoint it was made of";
}
