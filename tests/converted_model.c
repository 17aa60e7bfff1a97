/* SPDX-License-Identifier: Apache-2.0 */
/* converted_model.c - random checkpoints of a model that nobody knows. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/core.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/weights.h"

static const char *const float_names[] = { "BF16", "F16", "F32" };
static const int32_t float_dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

static uint64_t
below(uint64_t *state, uint64_t end)
{
    return weights_random(state) % end;
}

/* A model while it is made. */
typedef struct making {
    fixture_builder *builder;
    const char *shard; /* name of its file */
    char *index;       /* lines for fixture_index() */
    size_t length;
    uint64_t state;
} making;

#define INDEX_CAPACITY 65536u

static void
list(making *m, const char *name)
{
    m->length += (size_t)snprintf(m->index + m->length, INDEX_CAPACITY - m->length,
                                  "%s %s\n", name, m->shard);
}

static void
add_values(making *m, const char *name, uint32_t rank, const uint64_t *shape, bool is_odd)
{
    const uint64_t kind = below(&m->state, 3);
    uint64_t count = 1;
    void *values;

    for (uint32_t i = 0; i < rank; i++)
        count *= shape[i];
    values =
        weights_values(float_dtypes[kind], count, weights_random(&m->state), is_odd);
    /* Their mean has one digit: the state is much shorter than one guesses. */
    if (below(&m->state, 3) == 0)
        for (uint64_t i = 0; i < count; i++)
            berthi_core_store(values, float_dtypes[kind], i, 0.5f);
    fixture_add(m->builder, name, float_names[kind], rank, shape, values);
    list(m, name);
    free(values);
}

/* Odd shapes first, then any. */
static void
choose_shape(uint64_t *state, uint64_t shape[2])
{
    static const uint64_t odd[][2] = { { 1, 1 },  { 3, 5 },   { 65, 63 }, { 100, 7 },
                                       { 7, 100 }, { 1, 257 }, { 33, 1 },  { 64, 64 },
                                       { 2, 4096 } };
    const uint64_t number = below(state, 16);

    if (number < sizeof odd / sizeof odd[0]) {
        shape[0] = odd[number][0];
        shape[1] = odd[number][1];
    } else {
        shape[0] = 1 + below(state, 90);
        shape[1] = 1 + below(state, 200);
    }
}

/* What is never quantized. */
static void
add_others(making *m, int layer)
{
    static const char *const tensors[][2] = {
        { "I64 3", "ids" },     { "BOOL 5", "mask" },      { "F64 2x3", "table" },
        { "U8 13", "bytes" },   { "F32 0x4", "empty" },    { "I32 -", "step" },
        { "F8_E5M2 9", "tiny" }, { "BF16 7", "norm.weight" }, { "F16 -", "scale" },
        { "F32 11", "bias" },
    };

    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[64];
        char line[128];

        if (below(&m->state, 3) > 0)
            continue;
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, tensors[i][1]);
        snprintf(line, sizeof line, "%s %s\n", tensors[i][0], name);
        fixture_add_lines(m->builder, line);
        list(m, name);
    }
}

static void
add_layer(making *m, int layer, bool is_odd, bool has_strange_names)
{
    static const char *const kinds[] = { "fc1", "fc2", "attn.q", "attn.out", "up" };

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        char name[128];
        uint64_t shape[2];

        if (k > 0 && below(&m->state, 3) == 0)
            continue;
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, kinds[k]);
        choose_shape(&m->state, shape);
        add_values(m, name, 2, shape, is_odd);
        if (!has_strange_names || below(&m->state, 2) > 0)
            continue;
        /* Sorted between a weight and its statistics. */
        snprintf(name, sizeof name, "model.layers.%d.%s.weight-b.weight", layer, kinds[k]);
        choose_shape(&m->state, shape);
        add_values(m, name, 2, shape, is_odd);
    }
    add_others(m, layer);
}

const char *
converted_make_model(uint64_t seed, int layers, bool is_odd, bool has_strange_names)
{
    const char *const folder = fixture_folder();
    making m = { .state = seed, .index = calloc(INDEX_CAPACITY, 1) };
    int shards = 1 + (int)below(&m.state, 3);

    if (m.index == NULL)
        abort();
    shards = shards < layers ? shards : layers;
    for (int shard = 0; shard < shards; shard++) {
        m.builder = fixture_begin();
        m.shard = shards == 1 ? "model.safetensors"
                              : fixture_format("model-%05d-of-%05d.safetensors", shard + 1,
                                               shards);
        for (int layer = layers * shard / shards; layer < layers * (shard + 1) / shards;
             layer++)
            add_layer(&m, layer, is_odd, has_strange_names);
        fixture_finish(m.builder, fixture_format("%s/%s", folder, m.shard));
    }
    if (shards > 1)
        fixture_index(fixture_format("%s/model.safetensors.index.json", folder), 1,
                      m.index);
    free(m.index);
    return folder;
}
