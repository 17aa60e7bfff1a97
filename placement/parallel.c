/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - rows and columns for a rank; see parallel.h. */
#include "placement/parallel.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/text.h"

/* -------------------------------------------------------------------------- family */

/* Their layers hold what `modules` and `numbers` name, and nothing that is fused. */
static const char *const families[] = {
    "afmoe", "apertus", "arcee", "axk1", "cohere", "cohere2", "cohere2_moe", "cwm",
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5", "ernie4_5_moe",
    "exaone4", "exaone_moe", "flex_olmo", "gemma", "gemma2", "gemma3_text", "glm4_moe",
    "glm4_moe_lite", "glm_moe_dsa", "granite", "granite_swa", "helium",
    "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "hyperclovax", "internlm3",
    "iquestcoder", "jais2", "kimi_k2", "kolibri1", "llama", "mellum",
    "minicpm3", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral", "nemotron",
    "olmo", "olmo2", "olmo3", "olmoe", "phi", "phimoe", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_moe", "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2",
    "vaultgemma", "youtu",
};

#define FAMILIES (sizeof families / sizeof *families)

static bool
is_listed(const berthi_shape *shape)
{
    const char *const name = berthi_shape_family_name(shape);

    for (size_t i = 0; i < FAMILIES; i++)
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
                              .heads = shape->kinds[0].heads,
                              .kv_heads = shape->kinds[0].kv_heads };
    for (uint32_t k = 1; k < shape->kind_count; k++)
        if (shape->kinds[k].heads != out->heads
            || shape->kinds[k].kv_heads != out->kv_heads)
            return fail_family(shape, error);
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
    RULE_WORDS     /* rows, even or not */
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

/* Numbers that stand in no module of their own. */
static const named_rule numbers[] = {
    { "e_score_correction_bias", RULE_WHOLE },
    { "expert_bias", RULE_WHOLE },
    { "sinks", RULE_HEADS },
};

static rule
find_named(const named_rule *named, size_t count, berthi_text name)
{
    for (size_t i = 0; i < count; i++)
        if (berthi_text_is(name, named[i].name))
            return named[i].rule;
    return RULE_UNKNOWN;
}

/* By the last part of the name, or the last but one. */
static rule
find_rule(const berthi_parallel_tensor *tensor)
{
    uint64_t end = tensor->name_length;
    berthi_text module;
    uint64_t begin;
    rule found;

    while (end > 0 && tensor->name[end - 1] != '.')
        end--;
    found = find_named(numbers, sizeof numbers / sizeof *numbers,
                       (berthi_text){ tensor->name + end, tensor->name_length - end });
    if (found != RULE_UNKNOWN || end == 0)
        return found;
    begin = --end;
    while (begin > 0 && tensor->name[begin - 1] != '.')
        begin--;
    module = (berthi_text){ tensor->name + begin, end - begin };
    found = find_named(modules, sizeof modules / sizeof *modules, module);
    return found == RULE_UNKNOWN && tensor->rank == 1 && berthi_text_ends(module, "norm")
               ? RULE_WHOLE
               : found;
}

/* ---------------------------------------------------------------------- one tensor */

/* What is cut: of `units` that stay together. */
typedef struct division {
    uint64_t size;
    uint64_t units;
    const char *what; /* "rows" */
    bool is_shared;   /* fewer units than ranks: a unit is on several */
} division;

static berth_status
fail_uneven(const berthi_parallel *p, const division *d, const berthi_about *where,
            berth_error *error)
{
    if (d->units == d->size)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, where,
                           "has %" PRIu64 " %s, which %" PRIu32
                           " ranks cannot share evenly",
                           d->size, d->what, p->ranks);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, where,
                       "has %" PRIu64 " %s of %" PRIu64 " heads, which %" PRIu32
                       " ranks cannot share evenly",
                       d->size, d->what, d->units, p->ranks);
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

berth_status
berthi_parallel_divide(const berthi_parallel *parallel,
                       const berthi_parallel_tensor *tensor, const berthi_about *where,
                       berthi_slice *out, berth_error *error)
{
    const rule how = find_rule(tensor);
    const bool is_column = how == RULE_OUTPUT || how == RULE_COLUMNS;
    const uint32_t dimension = is_column ? 1 : 0;
    division d = { .what = is_column ? "columns" : "rows",
                   .is_shared = how == RULE_KV_HEADS };

    *out = (berthi_slice){ .along = BERTH_SLICING_NONE };
    /* What is added to a sum over ranks is not cut: one rank adds it. */
    if (how == RULE_WHOLE || (is_column && tensor->rank == 1))
        return BERTH_OK;
    if (how == RULE_UNKNOWN || tensor->rank == 0 || tensor->rank > 2)
        return fail_unknown(parallel, where, error);
    out->along = is_column ? BERTH_SLICING_COLUMNS : BERTH_SLICING_ROWS;
    d.size = tensor->shape[dimension];
    if (how == RULE_WORDS) {
        out->first = bound(d.size, parallel->rank, parallel->ranks);
        out->count = bound(d.size, parallel->rank + 1, parallel->ranks) - out->first;
        return BERTH_OK;
    }
    d.units = how == RULE_HEADS || how == RULE_OUTPUT ? parallel->heads
              : how == RULE_KV_HEADS                   ? parallel->kv_heads
                                                        : d.size;
    return divide_evenly(parallel, &d, where, out, error);
}

void
berthi_parallel_shrink(const berthi_parallel *parallel, berthi_shape *shape)
{
    const uint64_t ranks = parallel->ranks;

    shape->vocabulary = berthi_max_u64(berthi_divide_up(shape->vocabulary, ranks), 1);
    for (uint32_t k = 0; k < shape->kind_count; k++) {
        berthi_layer *const kind = &shape->kinds[k];

        kind->heads = berthi_max_u64(kind->heads / ranks, 1);
        kind->kv_heads = berthi_max_u64(kind->kv_heads / ranks, 1);
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

uint64_t
berthi_slice_row(const uint64_t *shape, uint32_t rank)
{
    uint64_t values = 1;

    for (uint32_t i = 1; i < rank; i++)
        values *= shape[i];
    return values;
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
    const uint32_t dimension = slice->along == BERTH_SLICING_COLUMNS ? 1 : 0;
    const uint64_t size = shape[dimension];
    const uint64_t count = dimension < rank ? dims[dimension] : 1;
    const uint64_t end = slice->first + slice->count;

    *out = *slice;
    if (slice->along == BERTH_SLICING_NONE || count == size)
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

/* Where what lies together is whole blocks, a slice may have some of them. */
static const char *
refuse_pieces(const berthi_slice *slice, const berthi_slice_view *view,
              const berthi_quantized *record)
{
    const uint64_t block = record->block_size;

    if (record->is_double)
        return "is doubly quantized in blocks that run along its rows: columns of it would "
               "split second levels, cut the checkpoint it was made of";
    if (block == 0 || view->size * view->inner % block != 0
        || slice->first * view->inner % block != 0
        || slice->count * view->inner % block != 0)
        return "is stored in blocks that run along its rows: columns of it would split "
               "them, cut the checkpoint it was made of";
    return NULL;
}

/* Blocks of 4 bits run along rows and on into the next one. */
static const char *
refuse_blocks(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
              const berthi_quantized *record)
{
    const berthi_slice_view view = berthi_slice_look(slice, shape, rank);
    const uint64_t block =
        record->is_double ? record->block_size * UINT64_C(256) : record->block_size;
    const uint64_t begin = slice->first * view.inner;
    const uint64_t end = begin + slice->count * view.inner;

    if (slice->along != BERTH_SLICING_ROWS || slice->parts > 1)
        return refuse_pieces(slice, &view, record);
    if (block == 0 || begin % block != 0
        || (end % block != 0 && end != record->elements))
        return "is stored in blocks that a cut here would split: cut the checkpoint it "
               "was made of";
    return NULL;
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
