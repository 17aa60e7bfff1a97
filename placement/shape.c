/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - config.json as numbers: what all layers share; see shape.h. */
#include "placement/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "placement/shape_read.h"
#include "quant/format.h"

#define ALIASES(name, ...) static const char *const name[] = { __VA_ARGS__, NULL }

ALIASES(hidden_keys, "hidden_size", "n_embd", "d_model", "n_embed", "dim", "emb_dim",
        "embedding_dim");
ALIASES(layer_keys, "num_hidden_layers", "n_layer", "num_layers", "n_layers");
ALIASES(block_keys, "num_blocks", "num_hidden_layers");
ALIASES(decoder_keys, "num_decoder_layers", "decoder_layers", "num_layers");
ALIASES(decoder_head_keys, "num_heads", "decoder_attention_heads",
        "num_decoder_attention_heads");
ALIASES(decoder_width_keys, "d_ff", "decoder_ffn_dim");
ALIASES(head_keys, "num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads");
ALIASES(kv_head_keys, "num_key_value_heads", "num_kv_heads");
ALIASES(head_dim_keys, "head_dim", "d_kv", "kv_channels", "d_head");
ALIASES(intermediate_keys, "block_ff_dim", "intermediate_size", "n_inner", "ffn_dim",
        "d_ff", "ffn_hidden_size", "hidden_dim", "dff", "d_inner");
ALIASES(vocabulary_keys, "vocab_size", "tgt_vocab_size");
ALIASES(position_keys, "max_position_embeddings", "n_positions", "max_sequence_length",
        "max_target_positions", "max_seq_len", "max_decoder_position_embeddings");
ALIASES(nope_keys, "qk_nope_head_dim");
ALIASES(rope_keys, "qk_rope_head_dim");
ALIASES(value_dim_keys, "v_head_dim");

/* ------------------------------------------------------------------- members */

void
berthi_shape_refuse(berthi_shape_reading *r, const char *key,
                    const berthi_json_value *value, const char *wanted)
{
    const berthi_about about = { .file = r->file };
    const char *text = NULL;

    if (r->status != BERTH_OK)
        return;
    /* A number's text is digits, signs, points and letters: nothing to escape. */
    if (berthi_json_can_read_number(value, &text))
        r->status = berthi_fail(r->error, BERTH_REASON_CONFIG_JSON, &about,
                                "member \"%s\" is %.40s, not %s", key, text, wanted);
    else
        r->status = berthi_fail(
            r->error, BERTH_REASON_CONFIG_JSON, &about, "member \"%s\" is %snot %s%s",
            key, value == NULL ? "missing, " : "", wanted,
            value == NULL && !r->shape->is_known
                ? "; another name of it is not known for this model_type"
                : "");
}

static void
refuse_range(berthi_shape_reading *r, const char *key, const berthi_json_value *value,
             uint64_t least, uint64_t most)
{
    char wanted[80];

    snprintf(wanted, sizeof wanted, "a whole number from %" PRIu64 " to %" PRIu64, least,
             most);
    berthi_shape_refuse(r, key, value, wanted);
}

/* A list with one for each layer: the largest is the most there is. */
static uint64_t
largest_of(berthi_shape_reading *r, const char *key, const berthi_json_value *value,
           uint64_t least, uint64_t most)
{
    const berthi_json_value *const first = berthi_json_first(value);
    uint64_t largest = 0;
    bool is_right = first != NULL;

    for (const berthi_json_value *v = first; v != NULL && is_right; v = berthi_json_next(v)) {
        uint64_t number = 0;

        is_right = berthi_json_can_read_unsigned(v, &number) && number >= least
                   && number <= most;
        if (v != first && number != largest)
            r->shape->has_unknown_layers = true;
        largest = berthi_max_u64(largest, number);
    }
    if (!is_right)
        berthi_shape_refuse(r, key, value, "a list of whole numbers");
    return is_right ? largest : 0;
}

uint64_t
berthi_shape_number(berthi_shape_reading *r, berthi_shape_keys keys, uint64_t least,
                    uint64_t most, uint64_t fallback)
{
    const berthi_json_value *value = NULL;
    uint64_t number;

    for (; *keys != NULL; keys++) {
        value = berthi_json_find(r->model, *keys);
        if (value != NULL)
            break;
    }
    if (value == NULL)
        return fallback;
    if (berthi_json_can_read_unsigned(value, &number) && number >= least
        && number <= most)
        return number;
    if (berthi_json_kind_of(value) == BERTHI_JSON_ARRAY)
        return largest_of(r, *keys, value, least, most);
    refuse_range(r, *keys, value, least, most);
    return 0;
}

uint64_t
berthi_shape_member(berthi_shape_reading *r, const char *key, uint64_t least,
                    uint64_t most, uint64_t fallback)
{
    return berthi_shape_number(r, (const char *const[]){ key, NULL }, least, most,
                               fallback);
}

uint64_t
berthi_shape_member_if_any(berthi_shape_reading *r, const char *key, uint64_t most,
                           uint64_t fallback)
{
    const char *text;

    if (berthi_json_can_read_number(berthi_json_find(r->model, key), &text)
        && strcmp(text, "-1") == 0)
        return fallback;
    return berthi_shape_member(r, key, 0, most, fallback);
}

uint64_t
berthi_shape_need(berthi_shape_reading *r, berthi_shape_keys keys, uint64_t most,
                  uint64_t fallback)
{
    const uint64_t number = berthi_shape_number(r, keys, 1, most, fallback);

    if (number == 0 || number > most)
        refuse_range(r, keys[0], NULL, 1, most);
    return number <= most ? number : 0;
}

bool
berthi_shape_flag(berthi_shape_reading *r, const char *key, bool fallback)
{
    const berthi_json_value *const value = berthi_json_find(r->model, key);
    bool is_true = fallback;

    if (value != NULL && !berthi_json_can_read_bool(value, &is_true))
        berthi_shape_refuse(r, key, value, "true or false");
    return is_true;
}

/* ------------------------------------------------------------------ the model */

/* A text of the language model's object, or else of the root; "" without. */
static const char *
text_of(berthi_shape_reading *r, const char *key)
{
    const berthi_json_value *value = berthi_json_find(r->model, key);
    const char *text = "";

    if (value == NULL)
        value = berthi_json_find(r->root, key);
    if (value != NULL && !berthi_json_can_read_string(value, &text))
        berthi_shape_refuse(r, key, value, "a string");
    return text;
}

/* Earlier files write "torch_dtype". */
static const char *
dtype_name(berthi_shape_reading *r)
{
    const char *const name = text_of(r, "dtype");

    return name[0] != '\0' ? name : text_of(r, "torch_dtype");
}

/* The root's, or else the language model's. */
static int32_t
dtype_of(berthi_shape_reading *r)
{
    const berthi_json_value *const model = r->model;
    const char *name;
    int32_t dtype;

    r->model = r->root;
    name = dtype_name(r);
    r->model = model;
    if (name[0] == '\0')
        name = dtype_name(r);
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    dtype = berthi_format_torch_dtype(name, strlen(name));
    return dtype == BERTH_F32 || dtype == BERTH_F16 ? dtype : BERTH_BF16;
}

static bool
ties(berthi_shape_reading *r, bool fallback)
{
    const berthi_json_value *const model = r->model;
    bool is_tied;

    is_tied = berthi_shape_flag(r, "tie_word_embeddings", fallback);
    r->model = r->root; /* the outer one decides, where both are there */
    is_tied = berthi_shape_flag(r, "tie_word_embeddings", is_tied);
    r->model = model;
    /* DeBERTa's later heads are those of its words, whatever else is said. */
    return is_tied
           || (r->shape->family->flags & BERTHI_FAMILY_DISTANCES
               && !berthi_shape_flag(r, "legacy", true));
}

/* ------------------------------------------------------- what all layers share */

static void
read_heads(berthi_shape_reading *r, const berthi_family *family)
{
    const uint64_t hidden = r->shape->hidden;
    berthi_layer *const layer = &r->layer;
    uint64_t fallback;

    if (family->traits & BERTHI_TRAIT_NO_HEADS)
        return;
    layer->heads = berthi_shape_need(
        r, family->flags & BERTHI_FAMILY_ENCODER ? decoder_head_keys : head_keys,
        BERTHI_SHAPE_HEADS, family->heads);
    if (layer->heads == 0)
        return;
    fallback = family->kv_heads > 0 ? family->kv_heads : layer->heads;
    /* Falcon's first models and StarCoder have one or all, whatever else they say. */
    if (berthi_json_find(r->model, "multi_query") != NULL
        && !berthi_shape_flag(r, "new_decoder_architecture", false))
        layer->kv_heads = berthi_shape_flag(r, "multi_query", false) ? 1 : layer->heads;
    else
        layer->kv_heads = berthi_shape_number(r, kv_head_keys, 1, layer->heads, fallback);
    fallback = family->head_dim > 0 ? family->head_dim : hidden / layer->heads;
    layer->key_dim = berthi_shape_need(r, head_dim_keys, BERTHI_SHAPE_HEADS, fallback);
    layer->value_dim = layer->key_dim;
    if (family->flags & BERTHI_FAMILY_WINDOW_HEADS)
        layer->value_dim =
            berthi_shape_need(r, value_dim_keys, BERTHI_SHAPE_HEADS, layer->key_dim);
    layer->attention =
        family->flags & BERTHI_FAMILY_BOTH_WAYS || r->shape->is_encoder_alone
            ? BERTHI_ATTENTION_NONE
            : BERTHI_ATTENTION_HEADS;
}

/* Some heads choose the tokens for all others. */
static void
read_index(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;

    shape->index_heads =
        berthi_shape_member(r, "index_n_heads", 1, BERTHI_SHAPE_HEADS, 0);
    if (shape->index_heads > 0)
        shape->index_dim =
            berthi_shape_member(r, "index_head_dim", 1, BERTHI_SHAPE_HEADS, 128);
}

/* MiniMax M3's, of blocks of tokens; published files name it otherwise. */
void
berthi_shape_read_block_index(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const berthi_json_value *const model = r->model;
    const uint64_t most = BERTHI_SHAPE_HEADS;

    shape->index_heads = berthi_shape_member(r, "index_n_heads", 1, most, 4);
    shape->index_dim = berthi_shape_member(r, "index_head_dim", 1, most, 128);
    r->model = berthi_json_find(model, "sparse_attention_config");
    shape->index_heads =
        berthi_shape_member(r, "sparse_num_index_heads", 1, most, shape->index_heads);
    shape->index_dim = berthi_shape_member(r, "sparse_index_dim", 1, most, shape->index_dim);
    r->model = model;
}

/* DeepSeek's attention, where the file names the rank of its latents. */
static void
read_latent(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    berthi_layer *const layer = &r->layer;

    shape->latent_rank = berthi_shape_member(r, "kv_lora_rank", 0, BERTHI_SHAPE_HEADS, 0);
    if (shape->latent_rank == 0)
        return;
    shape->query_rank = berthi_shape_member(r, "q_lora_rank", 0, BERTHI_SHAPE_HEADS, 0);
    shape->rope_dim = berthi_shape_need(r, rope_keys, BERTHI_SHAPE_HEADS, 0);
    layer->attention = BERTHI_ATTENTION_LATENT;
    layer->kv_heads = layer->heads;
    layer->key_dim =
        berthi_shape_need(r, nope_keys, BERTHI_SHAPE_HEADS, 0) + shape->rope_dim;
    layer->value_dim = berthi_shape_need(r, value_dim_keys, BERTHI_SHAPE_HEADS, 0);
    read_index(r);
}

/* LFM2 gives a width, by a name of its own, too, that its class shrinks by a third, and rounds. */
static uint64_t
adjusted_width(berthi_shape_reading *r, uint64_t width)
{
    const uint64_t unit =
        berthi_shape_member(r, "block_multiple_of", 1, BERTHI_SHAPE_WIDTH, 256);
    const berthi_json_value *const factor =
        berthi_json_find(r->model, "block_ffn_dim_multiplier");
    double times = 1.0;

    if (unit == 0 || !berthi_shape_flag(r, "block_auto_adjust_ff_dim", false))
        return width;
    width = 2 * width / 3;
    if (factor == NULL)
        return width;
    if (!berthi_json_can_read_double(factor, &times) || !(times > 0 && times <= 16))
        berthi_shape_refuse(r, "block_ffn_dim_multiplier", factor, "a number up to 16");
    else
        width = (uint64_t)(times * (double)width);
    return (width + unit - 1) / unit * unit;
}

/* T5 says it in a word: "relu", "gated-gelu". */
static uint64_t
mlp_matrices(berthi_shape_reading *r, uint64_t flags)
{
    if (flags & BERTHI_FAMILY_RELATIVE)
        return strncmp(text_of(r, "feed_forward_proj"), "gated", 5) == 0 ? 3 : 2;
    return flags & BERTHI_FAMILY_PLAIN_MLP ? 2 : 3;
}

/* ESM turns queries and keys instead, and DeBERTa's later models have distances. */
static bool
has_table_of_positions(berthi_shape_reading *r)
{
    return strcmp(text_of(r, "position_embedding_type"), "rotary") != 0
           && berthi_shape_flag(r, "position_biased_input", true);
}

/* How long a context may be, and tables that tokens are looked up in beside the words. */
static void
read_positions(berthi_shape_reading *r, uint64_t flags)
{
    berthi_shape *const shape = r->shape;

    shape->positions = berthi_shape_number(r, position_keys, 0, BERTHI_SHAPE_TOKENS, 0);
    if (flags & BERTHI_FAMILY_POSITIONS && has_table_of_positions(r))
        shape->learned_positions =
            shape->positions + (flags & BERTHI_FAMILY_TWO_ROWS ? 2 : 0);
    if (flags & BERTHI_FAMILY_PADDED)
        shape->positions -= berthi_min_u64(shape->positions, 2);
    if (flags & BERTHI_FAMILY_RELATIVE)
        shape->relative_rows = berthi_shape_member(r, "relative_attention_num_buckets", 1,
                                                   BERTHI_SHAPE_HEADS, 32);
    shape->has_global_tokens =
        strcmp(text_of(r, "encoder_attention_type"), "transient-global") == 0;
    if (flags & BERTHI_FAMILY_BOTH_WAYS)
        berthi_shape_read_filling(r);
    shape->layer_words =
        berthi_shape_member(r, "vocab_size_per_layer_input", 0, UINT32_MAX, 0);
    if (shape->layer_words > 0)
        shape->layer_width = berthi_shape_member(r, "hidden_size_per_layer_input", 0,
                                                 BERTHI_SHAPE_HEADS, 0);
    if (flags & BERTHI_FAMILY_ALTUP) {
        shape->side_states = berthi_shape_member(r, "altup_num_inputs", 1, 64, 4);
        shape->side_rank =
            berthi_shape_member(r, "laurel_rank", 1, BERTHI_SHAPE_WIDTH, 64);
    }
}

/* LongCat's files count two as one; the number of all is a name that others give it. */
static uint64_t
count_layers(berthi_shape_reading *r)
{
    const berthi_family *const family = r->shape->family;
    const uint64_t fallback = family->flags & BERTHI_FAMILY_HALVES
                                  ? berthi_shape_count_halves(r)
                                  : family->layers;

    if (family->state == BERTHI_STATE_MEMORY) /* of two names its class takes this one */
        return berthi_shape_need(r, block_keys, BERTHI_SHAPE_LAYERS, 0);
    if (family->traits & BERTHI_TRAIT_STACKS)
        return berthi_shape_count_stacks(r);
    if (family->traits & BERTHI_TRAIT_BLOCKS)
        return berthi_shape_count_blocks(r);
    if (family->parts > 0 && berthi_json_find(r->model, layer_keys[0]) == NULL)
        return family->parts
               * berthi_shape_need(r, layer_keys, BERTHI_SHAPE_LAYERS / family->parts, 0);
    return berthi_shape_need(
        r, family->flags & BERTHI_FAMILY_ENCODER ? decoder_keys : layer_keys,
        BERTHI_SHAPE_LAYERS, fallback);
}

static void
read_model(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const berthi_family *const family = shape->family;
    const bool is_plain = family->flags & BERTHI_FAMILY_PLAIN_MLP;
    const bool has_encoder = family->flags & BERTHI_FAMILY_ENCODER;
    uint64_t wide;

    shape->hidden =
        berthi_shape_need(r, hidden_keys, BERTHI_SHAPE_WIDTH / 16, family->hidden);
    shape->layers = count_layers(r);
    shape->vocabulary =
        berthi_shape_need(r, vocabulary_keys, UINT32_MAX, family->vocabulary);
    shape->word_tables = 1;
    if (has_encoder)
        berthi_shape_read_pair(r);
    /* OPT has its words narrower in one of its models. */
    shape->embedding = berthi_shape_member(r, "word_embed_proj_dim", 1,
                                           BERTHI_SHAPE_WIDTH / 16, shape->hidden);
    shape->last_width = shape->embedding;
    read_positions(r, family->flags);
    shape->head_width = berthi_shape_member(r, "output_embedding_size", 1,
                                            BERTHI_SHAPE_WIDTH / 16,
                                            family->wide > 0 ? family->wide : shape->embedding);
    shape->mlp_matrices = mlp_matrices(r, family->flags);
    berthi_shape_read_state(r);
    berthi_shape_read_biases(r);
    if (family->flags & BERTHI_FAMILY_ALL_STATE)
        return;
    read_heads(r, family);
    read_latent(r);
    if (family->flags & BERTHI_FAMILY_COMPRESSED)
        berthi_shape_read_compression(r);
    /* Where all layers have experts, nothing else may be said. */
    wide = is_plain ? 4 * shape->hidden
                    : berthi_shape_member(r, "moe_intermediate_size", 1,
                                          BERTHI_SHAPE_WIDTH, family->intermediate);
    wide = berthi_shape_need(r, has_encoder ? decoder_width_keys : intermediate_keys,
                             BERTHI_SHAPE_WIDTH, wide);
    r->layer.intermediate =
        family->flags & BERTHI_FAMILY_HALF_WIDTH ? wide / 2 : adjusted_width(r, wide);
    if (family->traits & BERTHI_TRAIT_SHARED_BLOCKS)
        berthi_shape_read_shared(r);
    if (family->traits & BERTHI_TRAIT_NESTED_PAIR)
        berthi_shape_read_nested(r);
    berthi_shape_read_extras(r);
}

berth_status
berthi_shape_read(const berthi_json_value *config, const char *file, berthi_shape *out,
                  berth_error *error)
{
    berthi_shape_reading r = {
        .root = config, .file = file, .error = error, .shape = out
    };

    memset(out, 0, sizeof *out);
    if (berthi_json_kind_of(config) != BERTHI_JSON_OBJECT)
        return berthi_fail(error, BERTH_REASON_CONFIG_JSON,
                           &(berthi_about){ .file = file }, "not an object");
    berthi_shape_read_around(&r);
    out->family = berthi_family_find(text_of(&r, "model_type"), &out->is_known);
    berthi_shape_read_ending(&r);
    out->ties_embeddings = ties(&r, out->family->flags & BERTHI_FAMILY_TIES)
                           && (out->family->flags & BERTHI_FAMILY_NEVER_TIES) == 0;
    out->dtype = dtype_of(&r);
    read_model(&r);
    if (r.status == BERTH_OK)
        berthi_shape_read_layers(&r);
    if (r.status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return r.status;
}

/* ---------------------------------------------------------------- of its family */

const char *
berthi_shape_family_name(const berthi_shape *shape)
{
    return shape->family->model_type;
}

bool
berthi_shape_is_classic(const berthi_shape *shape)
{
    return shape->family->flags & BERTHI_FAMILY_CLASSIC;
}
