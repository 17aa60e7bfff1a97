/* SPDX-License-Identifier: Apache-2.0 */
/* llama_weights.c - see llama_weights.h. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/llama_error.h"
#include "tools/llama_weights.h"

#define NAME_CAPACITY 160
#define PREFIX_CAPACITY 64

/* Finds until something is wrong. */
typedef struct search {
    const berth_model *model;
    const llama_config *config;
    llama_weights *weights;
    llama_stage *stage;
    berth_error *error;
    berth_status status;
} search;

/* What a weight is called within its layer, and its shape; 0 rows: a vector. */
typedef struct entry {
    const char *name;
    bool is_wanted;
    uint64_t rows;
    uint64_t columns;
} entry;

/* ------------------------------------------------------------------------ tensors */

static void
check_shape(search *s, const char *name, const berth_model_tensor *tensor, uint64_t rows,
            uint64_t columns)
{
    const uint32_t rank = rows > 0 ? 2 : 1;

    if (tensor->rank != rank || tensor->shape[rank - 1] != columns
        || (rank == 2 && tensor->shape[0] != rows))
        s->status = llama_fail(s->error, BERTH_EFORMAT, name,
                               "has a shape that config.json does not promise");
    else if (rank == 1 && tensor->encoding != BERTH_ENCODING_NATIVE)
        s->status = llama_fail(s->error, BERTH_EUNSUPPORTED, name, "is an encoded vector");
}

/* The stage leases the tensor's layer, on the tensor's device. */
static void
join_stage(search *s, const char *name, const berth_model_tensor *tensor)
{
    llama_stage *const stage = s->stage;
    uint32_t i = 0;

    if (stage->layer_count > 0 && stage->device != tensor->device) {
        s->status = llama_fail(s->error, BERTH_EUNSUPPORTED, name,
                               "is not computed where the rest of its layer is");
        return;
    }
    stage->device = tensor->device;
    while (i < stage->layer_count && stage->layers[i] != tensor->layer)
        i++;
    if (i == LLAMA_STAGE_LAYERS)
        s->status = llama_fail(s->error, BERTH_EUNSUPPORTED, name,
                               "belongs to another layer than its neighbours");
    else if (i == stage->layer_count)
        stage->layers[stage->layer_count++] = tensor->layer;
}

/* Only shape and place; false: there is none, or something is wrong. */
static bool
find(search *s, const char *name, uint64_t *berth, berth_model_tensor *tensor)
{
    *berth = s->status == BERTH_OK ? berth_model_find(s->model, name, strlen(name))
                                   : BERTH_NO_TENSOR;
    if (*berth == BERTH_NO_TENSOR)
        return false;
    s->status = berth_model_get_tensor(s->model, *berth, tensor);
    if (s->status != BERTH_OK)
        llama_fail(s->error, s->status, name, "cannot be found again");
    return s->status == BERTH_OK;
}

static void
find_bias(search *s, const char *module, uint64_t rows, llama_tensor *out)
{
    berth_model_tensor tensor;
    char name[NAME_CAPACITY];

    snprintf(name, sizeof name, "%s.bias", module);
    if (!find(s, name, &out->bias, &tensor))
        return;
    check_shape(s, name, &tensor, 0, rows);
    if (s->status == BERTH_OK)
        join_stage(s, name, &tensor);
}

/* Bytes that a product with such a weight reads. */
static uint64_t
count_bytes(const berth_model_tensor *tensor)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < tensor->part_count; i++) {
        const int32_t role = tensor->parts[i].role;

        if (role == BERTH_ROLE_VALUES || role == BERTH_ROLE_CODES
            || role == BERTH_ROLE_ABSMAX || role == BERTH_ROLE_ABSMAX2
            || role == BERTH_ROLE_ROW_MAXIMUM)
            bytes += tensor->parts[i].bytes;
    }
    return bytes;
}

/* `module`.weight and, where there is one, `module`.bias. Returns the weight's bytes. */
static uint64_t
find_weight(search *s, const char *module, uint64_t rows, uint64_t columns,
            llama_tensor *out)
{
    berth_model_tensor tensor;
    char name[NAME_CAPACITY];

    snprintf(name, sizeof name, "%s.weight", module);
    if (!find(s, name, &out->berth, &tensor)) {
        if (s->status == BERTH_OK)
            s->status = llama_fail(s->error, BERTH_EFORMAT, name, "is missing");
        return 0;
    }
    check_shape(s, name, &tensor, rows, columns);
    if (s->status == BERTH_OK && s->stage != NULL)
        join_stage(s, name, &tensor);
    if (rows > 0 && s->stage != NULL)
        find_bias(s, module, rows, out);
    return count_bytes(&tensor);
}

/* ------------------------------------------------------------------------- stages */

static void
begin_stage(search *s, llama_stage *stage, uint32_t tensors)
{
    s->stage = stage;
    stage->tensors = calloc(tensors, sizeof *stage->tensors);
    if (stage->tensors == NULL) {
        s->status = llama_fail(s->error, BERTH_ENOMEM, NULL, "no memory for %u weights",
                               (unsigned)tensors);
        return;
    }
    stage->tensor_count = tensors;
    for (uint32_t i = 0; i < tensors; i++)
        stage->tensors[i].berth = stage->tensors[i].bias = BERTH_NO_TENSOR;
}

/*
 * How many experts of the stage can be leased at once. Those that are resident need no
 * lease; where the plan has no slots, they are multiplied where they lie in host memory.
 */
static void
find_slots(search *s)
{
    llama_stage *const stage = s->stage;
    berth_model_tensor tensor;
    uint32_t slots;

    s->status =
        berth_model_get_tensor(s->model, llama_expert(stage, 0)[0].berth, &tensor);
    if (s->status != BERTH_OK) {
        llama_fail(s->error, s->status, NULL, "an expert cannot be found again");
        return;
    }
    stage->expert_layer = tensor.layer;
    slots = berth_experts_slots(s->model, tensor.layer);
    stage->expert_slots = slots == UINT32_MAX ? 0 : slots;
}

static void
find_experts(search *s, const char *prefix)
{
    static const char *const words[][3] = {
        [LLAMA_EXPERTS_MIXTRAL] = { "w1", "w3", "w2" },
        [LLAMA_EXPERTS_QWEN] = { "gate_proj", "up_proj", "down_proj" },
    };
    const llama_config *const c = s->config;
    const char *const block =
        c->expert_names == LLAMA_EXPERTS_MIXTRAL ? "block_sparse_moe" : "mlp";
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->experts && s->status == BERTH_OK; i++)
        for (uint32_t k = 0; k < 3; k++) {
            const bool is_down = k == 2;
            char module[NAME_CAPACITY - 8];

            snprintf(module, sizeof module, "%s%s.experts.%u.%s", prefix, block, (unsigned)i,
                     words[c->expert_names][k]);
            bytes += find_weight(s, module, is_down ? c->hidden : c->expert_inner,
                                 is_down ? c->expert_inner : c->hidden,
                                 &llama_expert(s->stage, i)[k]);
        }
    s->stage->bytes += bytes / c->experts * c->experts_used;
    if (s->status == BERTH_OK)
        find_slots(s);
}

static void
find_layer(search *s, uint32_t layer)
{
    const llama_config *const c = s->config;
    const bool is_sparse = c->is_sparse[layer];
    const uint64_t queries = (uint64_t)c->heads * c->head_dim;
    const uint64_t keys = (uint64_t)c->kv_heads * c->head_dim;
    const entry entries[LLAMA_WEIGHT_COUNT] = {
        [LLAMA_ATTENTION_NORM] = { "input_layernorm", true, 0, c->hidden },
        [LLAMA_QUERY] = { "self_attn.q_proj", true, queries, c->hidden },
        [LLAMA_KEY] = { "self_attn.k_proj", true, keys, c->hidden },
        [LLAMA_VALUE] = { "self_attn.v_proj", true, keys, c->hidden },
        [LLAMA_QUERY_NORM] = { "self_attn.q_norm", c->has_head_norms, 0, c->head_dim },
        [LLAMA_KEY_NORM] = { "self_attn.k_norm", c->has_head_norms, 0, c->head_dim },
        [LLAMA_OUTPUT] = { "self_attn.o_proj", true, c->hidden, queries },
        [LLAMA_MLP_NORM] = { "post_attention_layernorm", true, 0, c->hidden },
        [LLAMA_GATE] = { "mlp.gate_proj", !is_sparse, c->inner, c->hidden },
        [LLAMA_UP] = { "mlp.up_proj", !is_sparse, c->inner, c->hidden },
        [LLAMA_DOWN] = { "mlp.down_proj", !is_sparse, c->hidden, c->inner },
        [LLAMA_ROUTER] = { c->expert_names == LLAMA_EXPERTS_MIXTRAL
                               ? "block_sparse_moe.gate"
                               : "mlp.gate",
                           is_sparse, c->experts, c->hidden },
    };
    llama_stage *const stage = &s->weights->stages[layer];
    char prefix[PREFIX_CAPACITY];

    begin_stage(s, stage, LLAMA_WEIGHT_COUNT + (is_sparse ? 3 * c->experts : 0));
    snprintf(prefix, sizeof prefix, "model.layers.%u.", (unsigned)layer);
    for (uint32_t i = 0; i < LLAMA_WEIGHT_COUNT && s->status == BERTH_OK; i++) {
        char module[NAME_CAPACITY - 8];

        snprintf(module, sizeof module, "%s%s", prefix, entries[i].name);
        if (entries[i].is_wanted)
            stage->bytes += find_weight(s, module, entries[i].rows, entries[i].columns,
                                        &stage->tensors[i]);
    }
    if (s->status == BERTH_OK && is_sparse)
        find_experts(s, prefix);
}

/* A tied head is the embedding's weight, unless it is stored once more. */
static const char *
head_module(const search *s)
{
    const bool is_stored = berth_model_find(s->model, "lm_head.weight", 14)
                           != BERTH_NO_TENSOR;

    return is_stored || !s->config->is_tied ? "lm_head" : "model.embed_tokens";
}

/* Whether another device than the stage's computes the module. */
static bool
is_elsewhere(search *s, const char *module, const llama_stage *stage)
{
    berth_model_tensor tensor;
    uint64_t berth;
    char name[NAME_CAPACITY];

    snprintf(name, sizeof name, "%s.weight", module);
    return find(s, name, &berth, &tensor) && tensor.device != stage->device;
}

/* Final norm and head: one stage, or two where they are computed on two devices. */
static void
find_head(search *s)
{
    const llama_config *const c = s->config;
    const char *const head = head_module(s);
    llama_stage *stage = &s->weights->stages[c->layers];

    begin_stage(s, stage, LLAMA_END_COUNT);
    if (s->status != BERTH_OK)
        return;
    stage->bytes = find_weight(s, "model.norm", 0, c->hidden,
                               &stage->tensors[LLAMA_FINAL_NORM]);
    if (s->status == BERTH_OK && is_elsewhere(s, head, stage)) {
        stage = &s->weights->stages[s->weights->stage_count++];
        begin_stage(s, stage, LLAMA_END_COUNT);
    }
    if (s->status == BERTH_OK)
        stage->bytes += find_weight(s, head, c->vocab, c->hidden,
                                    &stage->tensors[LLAMA_HEAD]);
}

/* ---------------------------------------------------------------------- interface */

berth_status
llama_weights_find(const berth_model *model, const llama_config *config,
                   llama_weights *out, berth_error *error)
{
    search s = { model, config, out, NULL, error, BERTH_OK };

    *out = (llama_weights){ .model = model, .stage_count = config->layers + 1 };
    out->stages = calloc(out->stage_count + 1u, sizeof *out->stages);
    if (out->stages == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for %u layers",
                          (unsigned)config->layers);
    find_weight(&s, "model.embed_tokens", config->vocab, config->hidden, &out->embedding);
    for (uint32_t layer = 0; layer < config->layers && s.status == BERTH_OK; layer++)
        find_layer(&s, layer);
    if (s.status == BERTH_OK)
        find_head(&s);
    return s.status;
}

void
llama_weights_free(llama_weights *weights)
{
    for (uint32_t i = 0; i < weights->stage_count && weights->stages != NULL; i++)
        free(weights->stages[i].tensors);
    free(weights->stages);
    *weights = (llama_weights){ .stages = NULL };
}

/* Experts without a lease that are away from their home are used in host memory. */
static berth_status
locate(const berth_model *model, uint64_t berth, berth_model_tensor *out,
       berth_error *error)
{
    berth_status status = berth_model_get_tensor(model, berth, out);
    const char *const name = out->name;

    if (status != BERTH_OK)
        return llama_fail(error, status, NULL, "a weight cannot be found again");
    if (!out->is_expert || out->is_resident || out->parts[0].memory != NULL)
        return BERTH_OK;
    status = berth_model_get_host(model, berth, out);
    return status == BERTH_OK
               ? BERTH_OK
               : llama_fail(error, BERTH_EUNSUPPORTED, name,
                            "is an expert on the disk: plan it into memory");
}

static berth_status
take(const berth_model *model, llama_tensor *t, berth_error *error)
{
    berth_model_tensor tensor;
    llama_matrix bias;
    berth_status status = locate(model, t->berth, &tensor, error);

    if (status != BERTH_OK)
        return status;
    status = llama_matrix_take(&tensor, &t->matrix, error);
    if (status != BERTH_OK || t->bias == BERTH_NO_TENSOR)
        return status;
    status = berth_model_get_tensor(model, t->bias, &tensor);
    if (status != BERTH_OK)
        return llama_fail(error, status, NULL, "a bias cannot be found again");
    status = llama_matrix_take(&tensor, &bias, error);
    t->matrix.bias = bias.codes;
    t->matrix.bias_dtype = bias.dtype;
    return status;
}

berth_status
llama_weights_take(const llama_weights *weights, llama_stage *stage, berth_error *error)
{
    const uint32_t count = stage->expert_slots > 0 ? LLAMA_WEIGHT_COUNT
                                                   : stage->tensor_count;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        if (stage->tensors[i].berth != BERTH_NO_TENSOR)
            status = take(weights->model, &stage->tensors[i], error);
    return status;
}

berth_status
llama_weights_take_expert(const llama_weights *weights, llama_stage *stage,
                          uint32_t expert, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t k = 0; k < 3 && status == BERTH_OK; k++)
        status = take(weights->model, &llama_expert(stage, expert)[k], error);
    return status;
}
