/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify.c - the walk over all names, and what is told at its end.
 *
 * Names come first: a companion that only one layout has leads to its weight.
 * What a name alone does not decide waits until every name has been seen, so
 * that the int8-stored codes of a 4-bit weight are not taken for LLM.int8().
 */
#include "quant/classify.h"

#include <inttypes.h>
#include <string.h>

#include "quant/classify_walk.h"
#include "quant/format.h"

/* ------------------------------------------------------------------- names */

/* What the end of a name says. */
typedef enum word {
    WORD_NONE,
    WORD_STATE_NF4,
    WORD_STATE_FP4,
    WORD_STATISTIC,  /* of a 4-bit weight */
    WORD_SCB,
    WORD_FORMAT,     /* of an int8 weight */
    WORD_BLOCKS,
    WORD_SCALES,
    WORD_SCALE,
    WORD_QWEIGHT,
    WORD_DATA,
    WORD_PACKED,
    WORD_ACTIVATION,
    WORD_INPUT
} word;

typedef struct word_row {
    const char *suffix;
    uint8_t length;
    uint8_t word;
    uint8_t is_leaf;   /* a whole last part of the name: a dot or nothing before it */
    uint8_t left_out;  /* bytes of the suffix that belong to the owner's name */
} word_row;

#define ROW(suffix, word, is_leaf, left_out) \
    { suffix, sizeof suffix - 1, word, is_leaf, left_out }

static const word_row rows[] = {
    ROW(".quant_state.bitsandbytes__nf4", WORD_STATE_NF4, 0, 0),
    ROW(".quant_state.bitsandbytes__fp4", WORD_STATE_FP4, 0, 0),
    ROW(".absmax", WORD_STATISTIC, 0, 0),
    ROW(".quant_map", WORD_STATISTIC, 0, 0),
    ROW(".nested_absmax", WORD_STATISTIC, 0, 0),
    ROW(".nested_quant_map", WORD_STATISTIC, 0, 0),
    ROW("SCB", WORD_SCB, 1, 0),
    ROW("weight_format", WORD_FORMAT, 1, 0),
    ROW("_blocks", WORD_BLOCKS, 0, 0),
    ROW("_scales", WORD_SCALES, 0, 0),
    ROW("weight_scale_inv", WORD_SCALE, 1, sizeof "weight" - 1),
    ROW("qweight", WORD_QWEIGHT, 1, 0),
    ROW("_data", WORD_DATA, 1, 0),
    ROW("weight_packed", WORD_PACKED, 1, 0),
    ROW("activation_scale", WORD_ACTIVATION, 1, 0),
    ROW("input_scale", WORD_INPUT, 1, 0),
};

/* What nearly all weights end in: no row says anything about it. */
static inline bool
is_usual(const berthi_classify_tensor *tensor)
{
    return berthi_text_ends((berthi_text){ tensor->name, tensor->name_length }, ".weight");
}

/* *owner is the part of the name that the weight has, too. */
static word
word_of(const berthi_classify_tensor *tensor, berthi_text *owner)
{
    const char *const end = tensor->name + tensor->name_length;

    if (is_usual(tensor))
        return WORD_NONE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const word_row *const row = &rows[i];
        const char *const at = end - row->length;

        if (tensor->name_length < row->length
            || end[-1] != row->suffix[row->length - 1]
            || memcmp(at, row->suffix, row->length) != 0)
            continue;
        if (row->is_leaf && tensor->name_length > row->length && at[-1] != '.')
            continue;
        owner->bytes = tensor->name;
        owner->length = tensor->name_length - row->length + row->left_out;
        return (word)row->word;
    }
    return WORD_NONE;
}

/* --------------------------------------------------------------- first round */

static void
defer(berthi_walk *walk, const berthi_member *member)
{
    walk->deferred[member->position / 64] |= UINT64_C(1) << member->position % 64;
}

/* A tensor whose name says nothing: its dtype may. */
static void
look_at_dtype(berthi_walk *walk, const berthi_member *member)
{
    if (berthi_classify_is_float8(member->tensor.dtype)) {
        if (!berthi_classify_is_scaled(walk, member))
            defer(walk, member);
        return;
    }
    switch (member->tensor.dtype) {
    case BERTH_I8:
    case BERTH_U8:
    case BERTH_U32: defer(walk, member); break;
    case BERTH_F4:
    case BERTH_F6_E3M2:
    case BERTH_F6_E2M3:
    case BERTH_I16:
    case BERTH_U16:
    case BERTH_I32:
        if (walk->is_foreign)
            defer(walk, member);
        break;
    default: break;
    }
}

static void
look_at(berthi_walk *walk, const berthi_member *member)
{
    berthi_text owner;

    switch (word_of(&member->tensor, &owner)) {
    case WORD_STATE_NF4:
        berthi_classify_4bit(walk, member, owner, BERTH_ENCODING_NF4);
        break;
    case WORD_STATE_FP4:
        berthi_classify_4bit(walk, member, owner, BERTH_ENCODING_FP4);
        break;
    case WORD_SCB: berthi_classify_int8(walk, member); break;
    case WORD_BLOCKS: berthi_classify_mxfp4(walk, member, owner); break;
    case WORD_QWEIGHT:
        if (!berthi_classify_gptq(walk, member))
            look_at_dtype(walk, member);
        break;
    case WORD_DATA:
        if (!berthi_classify_quanto(walk, member, owner))
            look_at_dtype(walk, member);
        break;
    case WORD_PACKED: berthi_classify_foreign(walk, member, "compressed-tensors"); break;
    case WORD_ACTIVATION: walk->activations[0] = member->position; break;
    case WORD_INPUT: walk->activations[1] = member->position; break;
    case WORD_STATISTIC:
    case WORD_FORMAT:
    case WORD_SCALES:
    case WORD_SCALE: defer(walk, member); break;
    case WORD_NONE: look_at_dtype(walk, member); break;
    }
}

/* -------------------------------------------------------------- second round */

static void
look_again(berthi_walk *walk, const berthi_member *member)
{
    berthi_text owner;

    switch (word_of(&member->tensor, &owner)) {
    case WORD_STATISTIC: berthi_classify_lone_statistic(walk, member, owner); break;
    case WORD_FORMAT: berthi_classify_lone_format(walk, member); break;
    case WORD_SCALES: berthi_classify_lone_scales(walk, member, owner); break;
    case WORD_SCALE: berthi_classify_lone_scale(walk, member, owner); break;
    default:
        if (member->tensor.dtype == BERTH_I8 || member->tensor.dtype == BERTH_U8)
            berthi_classify_byte(walk, member);
        else if (berthi_classify_is_float8(member->tensor.dtype))
            berthi_classify_bare_float8(walk, member);
        else if (!walk->is_foreign)
            berthi_classify_mlx(walk, member);
        else if (member->tensor.rank >= 2)
            berthi_classify_foreign(walk, member, "");
        break;
    }
}

static void
walk_all(berthi_walk *walk)
{
    const uint32_t count = (uint32_t)walk->source->count;
    berthi_member member;

    for (uint32_t i = 0; i < count && !walk->is_stopped; i++) {
        if (berthi_walk_is_claimed(walk, i))
            continue;
        berthi_walk_get(walk, i, &member);
        walk->out->parameter_count += member.tensor.elements;
        walk->counted = i + 1;
        look_at(walk, &member);
    }
    for (uint32_t i = 0; i < count && !walk->is_stopped; i++) {
        if ((walk->deferred[i / 64] >> i % 64 & 1) == 0
            || berthi_walk_is_claimed(walk, i))
            continue;
        berthi_walk_get(walk, i, &member);
        look_again(walk, &member);
    }
}

/* ------------------------------------------------------------ what is told last */

static void
tell_foreign(berthi_walk *walk)
{
    const char *const method =
        walk->foreign > 0 ? walk->foreign_method : walk->config->quant_method;
    char name[BERTH_NAME_CAPACITY];
    berth_error details;

    berth_text_escape(method, strlen(method), name, sizeof name);
    berthi_fail(&details, BERTH_REASON_QUANT_METHOD, NULL,
                "quantized by \"%s\", which berth names and does not decode: %" PRIu64
                " weights", name, walk->foreign);
    berthi_walk_tell(walk, BERTH_SEVERITY_NOTE, NULL, &details);
}

/* config.json promises what no tensor keeps: some writers leave it behind. */
static void
tell_unkept_promise(berthi_walk *walk)
{
    char name[BERTH_NAME_CAPACITY];
    const char *const method = walk->config->quant_method;
    berth_error details;

    berth_text_escape(method, strlen(method), name, sizeof name);
    if (method[0] == '\0')
        berthi_fail(&details, BERTH_REASON_QUANT_PLAIN, NULL,
                    "config.json promises quantization, by no method that it names, but no "
                    "tensor is quantized");
    else
        berthi_fail(&details, BERTH_REASON_QUANT_PLAIN, NULL,
                    "config.json promises quantization by \"%s\", but no tensor is quantized",
                    name);
    berthi_walk_tell(walk, BERTH_SEVERITY_WARNING, NULL, &details);
}

static void
tell_plain_floats(berthi_walk *walk)
{
    berth_error details;
    berthi_member first;
    berthi_about about;

    berthi_walk_get(walk, walk->first_plain_float, &first);
    about = berthi_walk_about(walk, &first);
    berthi_fail(&details, BERTH_REASON_QUANT_PLAIN, &about,
                "8-bit floats without scales are taken as plain numbers: %" PRIu64
                " tensors, this is the first", walk->plain_floats);
    berthi_walk_tell(walk, BERTH_SEVERITY_WARNING, &about, &details);
}

static void
tell_dropped(berthi_walk *walk)
{
    berth_error details;

    berthi_fail(&details, BERTH_REASON_NONE, NULL,
                "%" PRIu64 " scales of activations are no part of the weights and are "
                "left out when decoding", walk->dropped);
    berthi_walk_tell(walk, BERTH_SEVERITY_NOTE, NULL, &details);
}

static void
tell_summary(berthi_walk *walk)
{
    if (walk->foreign > 0 || (walk->is_foreign && walk->out->count == 0))
        tell_foreign(walk);
    else if (walk->config->has_quantization && walk->out->count == 0)
        tell_unkept_promise(walk);
    if (walk->plain_floats > 0)
        tell_plain_floats(walk);
    if (walk->dropped > 0)
        tell_dropped(walk);
}

/* ------------------------------------------------------------------- the call */

static berth_status
run(berthi_walk *walk)
{
    const uint64_t words = walk->source->count / 64 + 1;
    const uint64_t bytes = words * sizeof *walk->claimed;
    berth_context *const context = walk->context;

    walk->claimed = berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, bytes);
    walk->deferred = berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, bytes);
    if (walk->claimed == NULL || walk->deferred == NULL) {
        walk->status = berthi_fail_memory(walk->error, "classifying tensors");
    } else {
        walk_all(walk);
        if (walk->status == BERTH_OK)
            tell_summary(walk);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, walk->claimed, bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, walk->deferred, bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, walk->buffer,
                       BERTHI_COMPANION_LIMIT);
    return walk->status;
}

berth_status
berthi_classify_run(berth_context *context, const berthi_classify_source *source,
                    const berthi_config *config, berthi_classify_result *out,
                    berth_error *error)
{
    berthi_walk walk = { .context = context, .source = source, .config = config,
                         .out = out, .error = error,
                         .activations = { UINT32_MAX, UINT32_MAX } };
    berthi_config none;
    berth_status status;

    memset(out, 0, sizeof *out);
    if (source->count >= UINT32_MAX)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "more than 2^32 tensors in one checkpoint");
    if (config == NULL) {
        berthi_config_init(&none, context);
        walk.config = &none;
    }
    walk.is_foreign = berthi_classify_is_foreign(walk.config->quant_method);
    walk.is_fp8 = strcmp(walk.config->quant_method, "fp8") == 0;
    walk.has_4bit = walk.config->loads_4bit;
    berthi_arena_init(&out->arena, context, BERTHI_PURPOSE_TENSORS,
                      berthi_arena_block_for(source->count));
    status = run(&walk);
    if (status != BERTH_OK) {
        const berthi_classify_result failed = { .blamed = out->blamed,
                                                .blamed_length = out->blamed_length };

        berthi_classify_fini(out);
        *out = failed;
    }
    return status;
}

void
berthi_classify_fini(berthi_classify_result *result)
{
    if (result->blocks != NULL)
        berthi_memory_free(result->arena.context, BERTHI_PURPOSE_TENSORS, result->blocks,
                           result->block_capacity * sizeof *result->blocks);
    berthi_arena_fini(&result->arena);
    memset(result, 0, sizeof *result);
}

const berthi_quantized *
berthi_classify_record(const berthi_classify_result *result, uint32_t record)
{
    return &result->blocks[record / BERTHI_CLASSIFY_BLOCK]
                          [record % BERTHI_CLASSIFY_BLOCK];
}
