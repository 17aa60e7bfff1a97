/* SPDX-License-Identifier: Apache-2.0 */
/* llama_config.c - see llama_config.h; defaults are those of the models' own classes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/llama_config.h"
#include "tools/llama_error.h"

#define KEY_CAPACITY 64

/* What `model_type` says beyond config.json's own numbers. */
typedef struct family {
    const char *model_type;
    double theta;
    double norm_epsilon;
    uint32_t kv_heads;     /* 0: as many as heads */
    uint32_t head_dim;     /* 0: hidden / heads */
    uint32_t window;       /* where the key is absent; 0: none */
    bool has_window_switch; /* the window counts only with use_sliding_window */
    bool has_window_layers; /* and only from max_window_layers on */
    bool has_head_norms;
    llama_experts expert_names;
} family;

static const family families[] = {
    { "llama", 10000, 1e-6, 0, 0, 0, true, false, false, LLAMA_EXPERTS_NONE },
    { "mistral", 10000, 1e-6, 8, 0, 4096, false, false, false, LLAMA_EXPERTS_NONE },
    { "qwen2", 10000, 1e-6, 32, 0, 4096, true, true, false, LLAMA_EXPERTS_NONE },
    { "qwen3", 10000, 1e-6, 32, 128, 4096, true, true, true, LLAMA_EXPERTS_NONE },
    { "mixtral", 1e6, 1e-5, 8, 0, 0, false, false, false, LLAMA_EXPERTS_MIXTRAL },
    { "qwen3_moe", 10000, 1e-6, 4, 0, 4096, true, false, true, LLAMA_EXPERTS_QWEN },
};

/* Reads until something is wrong; from then on every value is its default. */
typedef struct reading {
    const berth_config *config;
    const family *family;
    berth_error *error;
    berth_status status;
} reading;

/* What is wrong with `subject`, a key of config.json or what stands there. */
static void
refuse(reading *r, berth_status status, const char *subject, const char *why)
{
    char shown[KEY_CAPACITY];

    if (r->status != BERTH_OK)
        return;
    berth_text_escape(subject, strlen(subject), shown, sizeof shown);
    r->status = llama_fail(r->error, status, NULL, "%s %s", shown, why);
    if (r->error != NULL)
        snprintf(r->error->file, sizeof r->error->file, "config.json");
}

/* ---------------------------------------------------------------------- values */

/* Absent and null are the default; what is there must be what it should be. */
static bool
is_there(reading *r, berth_status status)
{
    if (status != BERTH_OK && status != BERTH_ENOENT && r->status == BERTH_OK)
        r->status = status;
    return status == BERTH_OK && r->status == BERTH_OK;
}

static uint32_t
read_number(reading *r, const char *key, uint32_t fallback)
{
    int64_t number;

    if (r->status != BERTH_OK
        || !is_there(r, berth_config_integer(r->config, key, &number, r->error)))
        return fallback;
    if (number >= 0 && number <= INT32_MAX)
        return (uint32_t)number;
    refuse(r, BERTH_EFORMAT, key, "is no count");
    return fallback;
}

static double
read_real(reading *r, const char *key, double fallback)
{
    double number;

    if (r->status != BERTH_OK
        || !is_there(r, berth_config_double(r->config, key, &number, r->error)))
        return fallback;
    if (isfinite(number))
        return number;
    refuse(r, BERTH_EFORMAT, key, "is not finite");
    return fallback;
}

static bool
read_bool(reading *r, const char *key, bool fallback)
{
    int32_t value;

    if (r->status != BERTH_OK
        || !is_there(r, berth_config_bool(r->config, key, &value, r->error)))
        return fallback;
    return value != 0;
}

/* NULL: it is not there. */
static const char *
read_text(reading *r, const char *key)
{
    const char *text;

    if (r->status != BERTH_OK
        || !is_there(r, berth_config_string(r->config, key, &text, r->error)))
        return NULL;
    return text;
}

/* ------------------------------------------------------------------------ rope */

/* A member of the object that holds the rope's numbers. */
static double
read_member(reading *r, const char *object, const char *name, double fallback)
{
    char key[KEY_CAPACITY];

    if (object == NULL)
        return fallback;
    snprintf(key, sizeof key, "%s.%s", object, name);
    return read_real(r, key, fallback);
}

static const char *
read_rope_type(reading *r, const char *object)
{
    char key[KEY_CAPACITY];
    const char *type;

    if (object == NULL)
        return "default";
    snprintf(key, sizeof key, "%s.rope_type", object);
    type = read_text(r, key);
    if (type == NULL) {
        snprintf(key, sizeof key, "%s.type", object); /* as releases before 4.43 wrote it */
        type = read_text(r, key);
    }
    return type != NULL ? type : "default";
}

static double
magnitude(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

/* transformers takes 0 for a number that is not there. */
static double
read_turns(reading *r, const char *object, const char *name, double fallback)
{
    const double turns = read_member(r, object, name, fallback);

    return turns != 0 ? turns : fallback;
}

static void
read_yarn(reading *r, const char *object, llama_rope *rope)
{
    const double scale = read_member(r, object, "mscale", 0);
    const double all = read_member(r, object, "mscale_all_dim", 0);
    const double usual = scale != 0 && all != 0
                             ? magnitude(rope->factor, scale) / magnitude(rope->factor, all)
                             : magnitude(rope->factor, 1);
    char key[KEY_CAPACITY];

    rope->attention = read_member(r, object, "attention_factor", usual);
    rope->beta_fast = read_turns(r, object, "beta_fast", 32);
    rope->beta_slow = read_turns(r, object, "beta_slow", 1);
    snprintf(key, sizeof key, "%s.truncate", object);
    rope->is_truncated = read_bool(r, key, true);
}

static void
check_rope(reading *r, const llama_rope *rope)
{
    const bool is_scaled = rope->scaling != LLAMA_SCALING_NONE;
    const bool has_length = is_scaled && rope->scaling != LLAMA_SCALING_LINEAR;

    if (r->status == BERTH_OK
        && (rope->theta <= 0 || (is_scaled && rope->factor <= 0)
            || (has_length && rope->positions <= 0)
            || (rope->scaling == LLAMA_SCALING_LLAMA3
                && (rope->low_factor <= 0 || rope->high_factor <= rope->low_factor))
            || (rope->scaling == LLAMA_SCALING_YARN
                && (rope->theta == 1 || rope->beta_slow <= 0
                    || rope->beta_fast < rope->beta_slow))))
        refuse(r, BERTH_EFORMAT, "rope_parameters", "has numbers that are no positions");
}

/*
 * Of the training: what stands outside of the object counts more, as in transformers. 0: it is not
 * said.
 */
static double
read_trained(reading *r, const char *object)
{
    static const char key[] = "original_max_position_embeddings";

    return read_real(r, key, read_member(r, object, key, 0));
}

/*
 * Yarn has it from the two lengths, where both are said. Without one nothing is scaled, and that
 * is not what was trained.
 */
static double
read_factor(reading *r, const char *object, const llama_config *c, double trained)
{
    const bool is_known = c->rope.scaling == LLAMA_SCALING_YARN && trained > 0;

    return read_member(r, object, "factor", is_known ? c->positions / trained : 0);
}

/*
 * The object that holds the numbers; NULL: there is none. rope_scaling is what people add to a
 * config.json that has rope_parameters already: transformers takes it, and nothing of the other.
 */
static const char *
find_rope(reading *r)
{
    static const char *const objects[] = { "rope_scaling", "rope_parameters" };

    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        uint64_t members;

        if (berth_config_kind_of(r->config, objects[i]) == BERTH_CONFIG_OBJECT
            && is_there(r, berth_config_length(r->config, objects[i], &members, r->error))
            && members > 0)
            return objects[i];
    }
    return NULL;
}

static void
read_rope(reading *r, llama_config *c)
{
    static const char *const types[] = { "default", "linear", "llama3", "yarn" };
    const char *const object = find_rope(r);
    const char *const type = read_rope_type(r, object);
    llama_rope *const rope = &c->rope;
    double trained;
    int32_t i = 0;

    while (i <= LLAMA_SCALING_YARN && strcmp(types[i], type) != 0)
        i++;
    if (i > LLAMA_SCALING_YARN) {
        refuse(r, BERTH_EUNSUPPORTED, type,
               "is no kind of rotary positions that the decoder has");
        return;
    }
    rope->scaling = (llama_scaling)i;
    rope->theta = read_member(r, object, "rope_theta",
                              read_real(r, "rope_theta", r->family->theta));
    trained = read_trained(r, object);
    rope->positions = trained != 0 ? trained : c->positions;
    rope->factor = read_factor(r, object, c, trained);
    rope->attention = 1;
    if (rope->scaling == LLAMA_SCALING_LLAMA3) {
        rope->low_factor = read_member(r, object, "low_freq_factor", 1);
        rope->high_factor = read_member(r, object, "high_freq_factor", 4);
    }
    if (rope->scaling == LLAMA_SCALING_YARN)
        read_yarn(r, object, rope);
    if (read_real(r, "partial_rotary_factor", 1) != 1
        || read_member(r, object, "partial_rotary_factor", 1) != 1)
        refuse(r, BERTH_EUNSUPPORTED, "partial_rotary_factor",
               "turns a part of the head, which the decoder does not");
    check_rope(r, rope);
}

/* ---------------------------------------------------------------------- layers */

static void
read_window(reading *r, llama_config *c)
{
    const bool is_absent =
        berth_config_kind_of(r->config, "sliding_window") == BERTH_CONFIG_ABSENT;
    const bool is_on = !r->family->has_window_switch
                       || read_bool(r, "use_sliding_window", false);
    const uint32_t first = r->family->has_window_layers
                               ? read_number(r, "max_window_layers", 28)
                               : 0;

    c->window = is_on ? read_number(r, "sliding_window",
                                    is_absent ? r->family->window : 0)
                      : 0;
    for (uint32_t layer = 0; layer < c->layers && r->status == BERTH_OK; layer++) {
        char key[KEY_CAPACITY];
        const char *type = NULL;

        snprintf(key, sizeof key, "layer_types.%u", (unsigned)layer);
        if (r->family->has_window_layers)
            type = read_text(r, key);
        c->slides[layer] = c->window > 0
                           && (type != NULL ? strcmp(type, "sliding_attention") == 0
                                            : layer >= first);
    }
}

/* Is `layer` among the numbers of mlp_only_layers? */
static bool
is_dense_only(reading *r, uint32_t layer)
{
    uint64_t count;

    if (!is_there(r, berth_config_length(r->config, "mlp_only_layers", &count, r->error)))
        return false;
    for (uint64_t i = 0; i < count && r->status == BERTH_OK; i++) {
        char key[KEY_CAPACITY];

        snprintf(key, sizeof key, "mlp_only_layers.%llu", (unsigned long long)i);
        if (read_number(r, key, UINT32_MAX) == layer)
            return true;
    }
    return false;
}

static void
read_experts(reading *r, llama_config *c)
{
    const bool is_qwen = r->family->expert_names == LLAMA_EXPERTS_QWEN;
    uint32_t step;

    c->expert_names = r->family->expert_names;
    if (c->expert_names == LLAMA_EXPERTS_NONE)
        return;
    /* Qwen's own name for it is the older one: releases since 5.0 write the other. */
    c->experts = read_number(r, "num_local_experts", is_qwen ? 128 : 8);
    if (is_qwen)
        c->experts = read_number(r, "num_experts", c->experts);
    c->experts_used = read_number(r, "num_experts_per_tok", is_qwen ? 8 : 2);
    c->expert_inner = is_qwen ? read_number(r, "moe_intermediate_size", 768) : c->inner;
    c->is_renormalised = !is_qwen || read_bool(r, "norm_topk_prob", false);
    step = is_qwen ? read_number(r, "decoder_sparse_step", 1) : 1;
    if (r->status == BERTH_OK
        && (step == 0 || c->experts_used == 0 || c->experts_used > c->experts
            || c->experts > LLAMA_EXPERTS_MAX)) {
        refuse(r, BERTH_EFORMAT, "num_experts_per_tok",
               "with the number of experts and of layers between is no choice");
        return;
    }
    if (c->expert_inner == 0) {
        refuse(r, BERTH_EFORMAT, "moe_intermediate_size", "is missing or describes no decoder");
        return;
    }
    for (uint32_t layer = 0; layer < c->layers && r->status == BERTH_OK; layer++)
        c->is_sparse[layer] = (layer + 1) % step == 0
                              && (!is_qwen || !is_dense_only(r, layer));
}

/* ---------------------------------------------------------------- quantization */

/* LLM.int8()'s default; from 0 down it has no outliers. */
static void
read_threshold(reading *r, llama_config *c)
{
    const double threshold = read_real(r, "quantization_config.llm_int8_threshold", 6);

    c->int8_threshold = threshold > 0 ? (float)threshold : 0;
}

/* ------------------------------------------------------------------- interface */

#define FAMILY_COUNT (sizeof families / sizeof families[0])

static void
refuse_family(reading *r, const char *type)
{
    char why[256] = "is no family that the decoder computes";
    size_t length = strlen(why);

    for (size_t i = 0; i < FAMILY_COUNT && length < sizeof why; i++)
        length += (size_t)snprintf(why + length, sizeof why - length, "%s %s",
                                   i > 0 ? "," : ":", families[i].model_type);
    refuse(r, BERTH_EUNSUPPORTED, type, why);
}

static void
read_family(reading *r)
{
    const char *const type = read_text(r, "model_type");

    for (size_t i = 0; i < FAMILY_COUNT && type != NULL; i++)
        if (strcmp(families[i].model_type, type) == 0)
            r->family = &families[i];
    if (r->family == NULL)
        refuse_family(r, type != NULL ? type : "model_type");
}

static void
check_counts(reading *r, const llama_config *c)
{
    const struct {
        const char *key;
        bool is_good;
    } checks[] = {
        { "num_hidden_layers", c->layers > 0 && c->layers <= LLAMA_LAYERS_MAX },
        { "hidden_size", c->hidden > 0 },
        { "num_attention_heads", c->heads > 0 },
        { "num_key_value_heads", c->kv_heads > 0 && c->heads % c->kv_heads == 0 },
        { "head_dim", c->head_dim > 0 && c->head_dim % 2 == 0 },
        { "intermediate_size", c->inner > 0 },
        { "vocab_size", c->vocab > 0 },
        { "rms_norm_eps", c->norm_epsilon >= 0 },
    };

    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (!checks[i].is_good)
            refuse(r, BERTH_EFORMAT, checks[i].key, "is missing or describes no decoder");
}

/* Where the key is absent it is the family's number; null is a head of keys for each. */
static uint32_t
read_kv_heads(reading *r, uint32_t heads)
{
    static const char key[] = "num_key_value_heads";
    const bool is_absent = berth_config_kind_of(r->config, key) == BERTH_CONFIG_ABSENT;

    return read_number(r, key,
                       is_absent && r->family->kv_heads > 0 ? r->family->kv_heads : heads);
}

static void
read_counts(reading *r, llama_config *c)
{
    const family *const f = r->family;
    const char *const activation = read_text(r, "hidden_act");

    c->layers = read_number(r, "num_hidden_layers", 0);
    c->hidden = read_number(r, "hidden_size", 0);
    c->heads = read_number(r, "num_attention_heads", 0);
    c->kv_heads = read_kv_heads(r, c->heads);
    c->head_dim = read_number(r, "head_dim",
                              f->head_dim > 0 ? f->head_dim
                              : c->heads > 0  ? c->hidden / c->heads
                                              : 0);
    c->inner = read_number(r, "intermediate_size", 0);
    c->vocab = read_number(r, "vocab_size", 0);
    c->positions = read_number(r, "max_position_embeddings", 0);
    c->norm_epsilon = (float)read_real(r, "rms_norm_eps", f->norm_epsilon);
    c->has_head_norms = f->has_head_norms;
    c->is_tied = read_bool(r, "tie_word_embeddings", false);
    if (activation != NULL && strcmp(activation, "silu") != 0)
        refuse(r, BERTH_EUNSUPPORTED, activation, "is no activation that the decoder has");
    check_counts(r, c);
}

/* A decoder needs the values of all weights. */
static berth_status
check_values(const berth_checkpoint *checkpoint, berth_error *error)
{
    berth_quantized stored;
    berth_tensor tensor;

    for (uint64_t i = 0; berth_checkpoint_tensor(checkpoint, i, &tensor) == BERTH_OK; i++)
        if (tensor.encoding == BERTH_ENCODING_FOREIGN
            && berth_checkpoint_quantized(checkpoint, i, &stored) == BERTH_OK)
            return llama_fail(error, BERTH_EUNSUPPORTED, tensor.name,
                              "is quantized as %s, which is not decoded", stored.method);
    return BERTH_OK;
}

berth_status
llama_config_read(berth_context *context, const berth_checkpoint *checkpoint,
                  llama_config *out, berth_error *error)
{
    reading r = { .error = error };
    berth_config *config;

    memset(out, 0, sizeof *out);
    r.status = berth_config_open(context, checkpoint, &config, error);
    if (r.status != BERTH_OK)
        return r.status;
    r.config = config;
    read_family(&r);
    if (r.status == BERTH_OK)
        read_counts(&r, out);
    if (r.status == BERTH_OK)
        read_threshold(&r, out);
    if (r.status == BERTH_OK)
        read_rope(&r, out);
    if (r.status == BERTH_OK)
        read_window(&r, out);
    if (r.status == BERTH_OK)
        read_experts(&r, out);
    berth_config_close(config);
    return r.status == BERTH_OK ? check_values(checkpoint, error) : r.status;
}
