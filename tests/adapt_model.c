/* SPDX-License-Identifier: Apache-2.0 */
/* adapt_model.c - a model to adapt: read, quantized, laid out; see adapt.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/adapt.h"
#include "tests/fixture.h"
#include "tools/llama_math.h"

const char *const adapt_projection_names[ADAPT_PROJECTIONS] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",
};

static void
die(const char *what, const char *which)
{
    fprintf(stderr, "adapt: %s: %s\n", which, what);
    exit(1);
}

static void *
allocate(uint64_t count, uint64_t bytes)
{
    void *const memory = calloc(count + 1, bytes);

    if (memory == NULL)
        die("out of memory", "model");
    return memory;
}

/* ------------------------------------------------------------------------ weights */

/* A tensor's values as floats; free() them. */
static float *
read_floats(berth_checkpoint *checkpoint, const char *name, uint64_t elements)
{
    const uint64_t index = berth_checkpoint_find(checkpoint, name, strlen(name));
    berth_tensor tensor;
    float *values;
    void *stored;

    if (berth_checkpoint_tensor(checkpoint, index, &tensor) != BERTH_OK)
        die("is not there", name);
    if (tensor.elements != elements || !llama_math_has_dtype(tensor.dtype))
        die("another shape or dtype", name);
    values = allocate(elements, sizeof *values);
    stored = allocate(tensor.bytes, 1);
    if (berth_checkpoint_read(checkpoint, index, 0, UINT64_MAX, stored, tensor.bytes, NULL)
        != BERTH_OK)
        die("cannot be read", name);
    llama_math_widen(tensor.dtype, stored, elements, values);
    free(stored);
    return values;
}

/* 4 bits with an absmax for 64 values, as berth_convert_start() stores them. */
static void
quantize(const adapted *m, adapt_linear *l, const float *values)
{
    berth_values_part parts[BERTH_VALUES_PARTS];
    berth_values_options options;
    berth_values_buffers buffers;
    uint32_t count;

    berth_values_options_init(&options);
    options.encoding = BERTH_ENCODING_NF4;
    options.dtype = BERTH_F32;
    options.shape = l->shape;
    options.rank = 2;
    options.threads = 1;
    if (berth_values_list(&options, parts, &count, NULL) != BERTH_OK)
        die("cannot be quantized", "weight");
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].role == BERTH_ROLE_CODES)
            l->codes_bytes = parts[i].bytes;
        if (parts[i].role == BERTH_ROLE_ABSMAX)
            l->absmax_bytes = parts[i].bytes;
    }
    l->codes = allocate(l->codes_bytes, 1);
    l->absmax = allocate(l->absmax_bytes, 1);
    berth_values_buffers_init(&buffers);
    buffers.codes = l->codes;
    buffers.codes_bytes = l->codes_bytes;
    buffers.absmax = l->absmax;
    buffers.absmax_bytes = l->absmax_bytes;
    if (berth_values_quantize(m->context, &options, values,
                              l->shape[0] * l->shape[1] * sizeof(float), &buffers, NULL)
        != BERTH_OK)
        die("cannot be quantized", "weight");
}

static void
read_layer(adapted *m, berth_checkpoint *checkpoint, uint32_t number)
{
    adapt_layer *const layer = &m->layers[number];
    const uint64_t hidden = m->config.hidden;

    layer->attention_norm = read_floats(
        checkpoint, fixture_format("model.layers.%u.input_layernorm.weight", number), hidden);
    layer->mlp_norm = read_floats(
        checkpoint, fixture_format("model.layers.%u.post_attention_layernorm.weight", number),
        hidden);
    for (int p = 0; p < ADAPT_PROJECTIONS; p++) {
        adapt_linear *const l = &layer->linears[p];
        float *const values = read_floats(
            checkpoint,
            fixture_format("model.layers.%u.%s.weight", number, adapt_projection_names[p]),
            l->shape[0] * l->shape[1]);

        quantize(m, l, values);
        free(values);
    }
}

/* ----------------------------------------------------------------------- adapters */

static uint32_t
add_parameter(adapted *m, const char *name, char which, uint64_t rows, uint64_t columns)
{
    adapt_parameter *const p = &m->parameters[m->parameter_count];

    snprintf(p->name, sizeof p->name, "base_model.model.%s.lora_%c.weight", name, which);
    p->shape[0] = rows;
    p->shape[1] = columns;
    p->first = m->elements;
    p->elements = rows * columns;
    m->elements += p->elements;
    return m->parameter_count++;
}

static void
add_linear(adapted *m, uint32_t number, adapt_projection p, uint64_t rows, uint64_t columns)
{
    adapt_linear *const l = &m->layers[number].linears[p];
    const char *const name =
        fixture_format("model.layers.%u.%s", number, adapt_projection_names[p]);

    l->shape[0] = rows;
    l->shape[1] = columns;
    l->a = add_parameter(m, name, 'A', m->rank, columns);
    l->b = add_parameter(m, name, 'B', rows, m->rank);
}

static void
add_layer(adapted *m, uint32_t number)
{
    const llama_config *const c = &m->config;
    const uint64_t queries = (uint64_t)c->heads * c->head_dim;
    const uint64_t keys = (uint64_t)c->kv_heads * c->head_dim;

    add_linear(m, number, ADAPT_QUERY, queries, c->hidden);
    add_linear(m, number, ADAPT_KEY, keys, c->hidden);
    add_linear(m, number, ADAPT_VALUE, keys, c->hidden);
    add_linear(m, number, ADAPT_OUTPUT, c->hidden, queries);
    add_linear(m, number, ADAPT_GATE, c->inner, c->hidden);
    add_linear(m, number, ADAPT_UP, c->inner, c->hidden);
    add_linear(m, number, ADAPT_DOWN, c->hidden, c->inner);
}

/* A: uniform within 1 / sqrt(in), as PEFT begins; B stays zero. */
static void
begin_adapters(adapted *m, uint32_t seed)
{
    uint64_t state = seed;

    for (uint32_t i = 0; i < m->parameter_count; i += 2) {
        const adapt_parameter *const a = &m->parameters[i];
        const float bound = 1.0f / sqrtf((float)a->shape[1]);

        for (uint64_t e = 0; e < a->elements; e++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            m->learned[a->first + e] = bound * ((float)(state >> 40) / 0x1p23f - 1.0f);
        }
    }
}

/* ------------------------------------------------------------------------- memory */

/* Parts of m->memory, one after the other; only counted while there is none. */
typedef struct carving {
    float *memory;
    uint64_t floats;
} carving;

static void
carve(carving *c, float **out, uint64_t floats)
{
    *out = c->memory != NULL ? c->memory + c->floats : NULL;
    c->floats += floats;
}

static void
carve_layer(const adapted *m, adapt_layer *l, carving *c)
{
    const llama_config *const config = &m->config;
    const uint64_t tokens = m->capacity;
    const uint64_t queries = (uint64_t)config->heads * config->head_dim;
    const uint64_t keys = (uint64_t)config->kv_heads * config->head_dim;

    carve(c, &l->input, tokens * config->hidden);
    carve(c, &l->normed, tokens * config->hidden);
    carve(c, &l->queries, tokens * queries);
    carve(c, &l->keys, tokens * keys);
    carve(c, &l->values, tokens * keys);
    carve(c, &l->shares, tokens * tokens * config->heads);
    carve(c, &l->attended, tokens * queries);
    carve(c, &l->middle, tokens * config->hidden);
    carve(c, &l->mlp_normed, tokens * config->hidden);
    carve(c, &l->gate, tokens * config->inner);
    carve(c, &l->up, tokens * config->inner);
    carve(c, &l->product, tokens * config->inner);
    for (int p = 0; p < ADAPT_PROJECTIONS; p++)
        carve(c, &l->low[p], tokens * m->rank);
}

static uint64_t
carve_all(adapted *m, float *memory)
{
    const llama_config *const config = &m->config;
    const uint64_t tokens = m->capacity;
    const uint64_t queries = (uint64_t)config->heads * config->head_dim;
    const uint64_t keys = (uint64_t)config->kv_heads * config->head_dim;
    carving c = { .memory = memory };

    for (uint32_t i = 0; i < config->layers; i++)
        carve_layer(m, &m->layers[i], &c);
    carve(&c, &m->learned, m->elements);
    carve(&c, &m->gradients, m->elements);
    carve(&c, &m->hidden, tokens * config->hidden);
    carve(&c, &m->normed, tokens * config->hidden);
    carve(&c, &m->logits, tokens * config->vocab);
    carve(&c, &m->angles, tokens * config->head_dim);
    carve(&c, &m->weight, (uint64_t)config->hidden * (config->inner + queries));
    carve(&c, &m->slopes,
          tokens * (2 * config->hidden + 2 * queries + 2 * keys + 3 * config->inner));
    return c.floats;
}

static void
fill_angles(adapted *m)
{
    const uint32_t half = m->config.head_dim / 2;
    float frequencies[ADAPT_HEAD_MAX];
    float scale;

    llama_math_frequencies(&m->config, frequencies, &scale);
    for (uint32_t t = 0; t < m->capacity; t++)
        llama_math_angles(frequencies, scale, half, t, m->angles + (uint64_t)t * 2 * half);
}

/* --------------------------------------------------------------------------- both */

static void
check_config(const llama_config *c, uint32_t rank, uint32_t capacity, const char *folder)
{
    if (c->has_head_norms || c->is_tied || c->window > 0
        || c->expert_names != LLAMA_EXPERTS_NONE || c->head_dim > ADAPT_HEAD_MAX)
        die("not the decoder that this adapts", folder);
    if (rank > ADAPT_RANK_MAX || capacity > ADAPT_TOKENS_MAX)
        die("a larger rank or more tokens than there is room for", folder);
}

void
adapt_open(adapted *m, berth_context *context, const char *folder, uint32_t rank,
           float alpha, uint32_t capacity, uint32_t seed)
{
    const uint64_t parameters = 2 * ADAPT_PROJECTIONS;
    berth_checkpoint *checkpoint;
    berth_error error;

    memset(m, 0, sizeof *m);
    m->context = context;
    m->rank = rank;
    m->alpha = alpha;
    m->capacity = capacity;
    if (berth_checkpoint_open(context, folder, NULL, &checkpoint, &error) != BERTH_OK
        || llama_config_read(context, checkpoint, &m->config, &error) != BERTH_OK)
        die(error.message, folder);
    check_config(&m->config, rank, capacity, folder);
    m->layers = allocate(m->config.layers, sizeof *m->layers);
    m->parameters = allocate(m->config.layers * parameters, sizeof *m->parameters);
    for (uint32_t i = 0; i < m->config.layers; i++)
        add_layer(m, i);
    m->memory = allocate(carve_all(m, NULL), sizeof *m->memory);
    carve_all(m, m->memory);
    for (uint32_t i = 0; i < m->config.layers; i++)
        read_layer(m, checkpoint, i);
    m->embedding = read_floats(checkpoint, "model.embed_tokens.weight",
                               (uint64_t)m->config.vocab * m->config.hidden);
    m->head = read_floats(checkpoint, "lm_head.weight",
                          (uint64_t)m->config.vocab * m->config.hidden);
    m->final_norm = read_floats(checkpoint, "model.norm.weight", m->config.hidden);
    berth_checkpoint_close(checkpoint);
    fill_angles(m);
    begin_adapters(m, seed);
}

void
adapt_close(adapted *m)
{
    for (uint32_t i = 0; i < m->config.layers; i++) {
        for (int p = 0; p < ADAPT_PROJECTIONS; p++) {
            free(m->layers[i].linears[p].codes);
            free(m->layers[i].linears[p].absmax);
        }
        free(m->layers[i].attention_norm);
        free(m->layers[i].mlp_norm);
    }
    free(m->layers);
    free(m->parameters);
    free(m->embedding);
    free(m->head);
    free(m->final_norm);
    free(m->memory);
    memset(m, 0, sizeof *m);
}
