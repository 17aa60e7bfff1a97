/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_model.c - writes a small but real checkpoint in the shape of a Llama:
 * config.json, shards, index, and bfloat16 values that depend on nothing but
 * the names of the tensors.
 *
 *     make_model FOLDER [OPTION VALUE]...
 *
 *     --layers 4   --hidden 64   --inner 176   --vocab 256   --shards 3
 *     --heads 4    --kv-heads 2
 *     --as bf16    nf4, nf4-double, int8: linear layers as bitsandbytes stores them
 *     --sparse 1   holes instead of values: any size in no space
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"

typedef enum storage { AS_BF16, AS_NF4, AS_NF4_DOUBLE, AS_INT8 } storage;

typedef struct model {
    const char *folder;
    uint64_t layers;
    uint64_t hidden;
    uint64_t inner;
    uint64_t vocab;
    uint64_t shards;
    uint64_t heads;
    uint64_t kv_heads;
    uint64_t is_sparse;
    storage as;
    /* while writing */
    fixture_builder *shard;
    uint64_t parameters; /* of what was added so far */
    uint64_t all_parameters;
    uint64_t shard_number;
    uint64_t total_size;
    FILE *lines; /* of the index */
} model;

static void
die(const char *what, const char *which)
{
    fprintf(stderr, "make_model: %s: %s\n", which, what);
    exit(1);
}

/* -------------------------------------------------------------------- values */

static uint32_t
next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Nearly normal, deviation 0.02: the sum of four uniform numbers. */
static uint16_t
next_bf16(uint32_t *state)
{
    float value = -2.0f;
    uint32_t bits;

    for (int i = 0; i < 4; i++)
        value += (float)(next_random(state) >> 8) / 16777216.0f;
    value *= 0.0346f;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static uint16_t *
make_values(const char *name, uint64_t count, bool is_norm)
{
    uint16_t *const values = malloc((size_t)count * sizeof *values + 1);
    uint32_t state = 2166136261u;

    if (values == NULL)
        die("out of memory", name);
    for (const char *p = name; *p != '\0'; p++)
        state = (state ^ (uint8_t)*p) * 16777619u;
    state |= 1;
    for (uint64_t i = 0; i < count; i++)
        values[i] = is_norm ? 0x3F80 : next_bf16(&state);
    return values;
}

/* ------------------------------------------------------------------- tensors */

static const char *
shard_name(const model *m)
{
    return m->shards == 1 ? "model.safetensors"
                          : fixture_format("model-%05" PRIu64 "-of-%05" PRIu64
                                           ".safetensors",
                                           m->shard_number + 1, m->shards);
}

static void
finish_shard(model *m)
{
    if (m->shard == NULL)
        return;
    m->total_size += fixture_finish(m->shard,
                                    fixture_format("%s/%s", m->folder, shard_name(m)));
    m->shard = NULL;
    m->shard_number++;
}

/* Shards are filled in order, each with its part of the parameters. */
static void
begin_tensor(model *m, uint64_t parameters)
{
    const double part = (double)m->all_parameters / (double)m->shards;

    if (m->shard != NULL && m->shard_number + 1 < m->shards
        && (double)m->parameters >= part * (double)(m->shard_number + 1))
        finish_shard(m);
    if (m->shard == NULL) {
        m->shard = fixture_begin();
        fixture_add_lines(m->shard, "@format pt");
    }
    m->parameters += parameters;
}

static void
add_name(model *m, const char *name)
{
    fprintf(m->lines, "%s %s\n", name, shard_name(m));
}

static void
add_plain(model *m, const char *name, uint32_t rank, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };
    uint16_t *values;

    begin_tensor(m, rows * columns);
    add_name(m, name);
    if (m->is_sparse) {
        fixture_add_sparse(m->shard, name, "BF16", rank, shape);
        return;
    }
    values = make_values(name, rows * columns, rank == 1);
    fixture_add(m->shard, name, "BF16", rank, shape, values);
    free(values);
}

static void
add_suffixes(model *m, const char *name, const char *const *suffixes)
{
    for (; *suffixes != NULL; suffixes++)
        add_name(m, fixture_format("%s%s", name, *suffixes));
}

/* A linear layer, stored as the model's variant says. */
static void
add_linear(model *m, const char *module, uint64_t rows, uint64_t columns)
{
    static const char *const nf4[] = { "", ".absmax", ".quant_map",
                                       ".quant_state.bitsandbytes__nf4", NULL };
    static const char *const twice[] = { ".nested_absmax", ".nested_quant_map", NULL };
    static const char *const int8[] = { ".weight", ".SCB", ".weight_format", NULL };
    const char *const weight = fixture_format("%s.weight", module);

    if (m->as == AS_BF16) {
        add_plain(m, weight, 2, rows, columns);
        return;
    }
    begin_tensor(m, rows * columns);
    if (m->as == AS_INT8) {
        add_suffixes(m, module, int8);
        fixture_add_int8(m->shard, module, rows, columns);
        return;
    }
    add_suffixes(m, weight, nf4);
    if (m->as == AS_NF4_DOUBLE)
        add_suffixes(m, weight, twice);
    fixture_add_nf4(m->shard, weight, rows, columns, m->as == AS_NF4_DOUBLE);
}

static void
add_layer(model *m, uint64_t layer)
{
    const uint64_t kv = m->hidden / m->heads * m->kv_heads;
    const char *const at = fixture_format("model.layers.%" PRIu64, layer);

    add_plain(m, fixture_format("%s.input_layernorm.weight", at), 1, m->hidden, 1);
    add_linear(m, fixture_format("%s.self_attn.q_proj", at), m->hidden, m->hidden);
    add_linear(m, fixture_format("%s.self_attn.k_proj", at), kv, m->hidden);
    add_linear(m, fixture_format("%s.self_attn.v_proj", at), kv, m->hidden);
    add_linear(m, fixture_format("%s.self_attn.o_proj", at), m->hidden, m->hidden);
    add_plain(m, fixture_format("%s.post_attention_layernorm.weight", at), 1, m->hidden, 1);
    add_linear(m, fixture_format("%s.mlp.gate_proj", at), m->inner, m->hidden);
    add_linear(m, fixture_format("%s.mlp.up_proj", at), m->inner, m->hidden);
    add_linear(m, fixture_format("%s.mlp.down_proj", at), m->hidden, m->inner);
}

static uint64_t
count_parameters(const model *m)
{
    const uint64_t kv = m->hidden / m->heads * m->kv_heads;
    const uint64_t attention = 2 * m->hidden * m->hidden + 2 * kv * m->hidden;
    const uint64_t layer = attention + 3 * m->hidden * m->inner + 2 * m->hidden;

    return 2 * m->vocab * m->hidden + m->layers * layer + m->hidden;
}

/* --------------------------------------------------------------------- files */

static const char *
quantization_config(const model *m)
{
    if (m->as == AS_BF16)
        return "";
    if (m->as == AS_INT8)
        return "  \"quantization_config\": {\n    \"load_in_8bit\": true,\n"
               "    \"quant_method\": \"bitsandbytes\"\n  },\n";
    return fixture_format("  \"quantization_config\": {\n"
                          "    \"bnb_4bit_compute_dtype\": \"bfloat16\",\n"
                          "    \"bnb_4bit_quant_type\": \"nf4\",\n"
                          "    \"bnb_4bit_use_double_quant\": %s,\n"
                          "    \"load_in_4bit\": true,\n"
                          "    \"quant_method\": \"bitsandbytes\"\n  },\n",
                          m->as == AS_NF4_DOUBLE ? "true" : "false");
}

static void
write_config(const model *m)
{
    fixture_text(fixture_format("%s/config.json", m->folder),
                 fixture_format("{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n"
                                "  \"dtype\": \"bfloat16\",\n"
                                "  \"hidden_size\": %" PRIu64 ",\n"
                                "  \"intermediate_size\": %" PRIu64 ",\n"
                                "  \"model_type\": \"llama\",\n"
                                "  \"num_attention_heads\": %" PRIu64 ",\n"
                                "  \"num_hidden_layers\": %" PRIu64 ",\n"
                                "  \"num_key_value_heads\": %" PRIu64 ",\n%s"
                                "  \"tie_word_embeddings\": false,\n"
                                "  \"vocab_size\": %" PRIu64 "\n}\n",
                                m->hidden, m->inner, m->heads, m->layers, m->kv_heads,
                                quantization_config(m), m->vocab));
}

static void
write_model(model *m)
{
    char *lines = NULL;
    size_t length;

    m->all_parameters = count_parameters(m);
    m->lines = open_memstream(&lines, &length);
    if (m->lines == NULL)
        die("out of memory", m->folder);
    write_config(m);
    add_plain(m, "model.embed_tokens.weight", 2, m->vocab, m->hidden);
    for (uint64_t layer = 0; layer < m->layers; layer++)
        add_layer(m, layer);
    add_plain(m, "model.norm.weight", 1, m->hidden, 1);
    add_plain(m, "lm_head.weight", 2, m->vocab, m->hidden);
    finish_shard(m);
    fclose(m->lines);
    if (m->shard_number != m->shards)
        die("too few tensors for so many shards", m->folder);
    if (m->shards > 1)
        fixture_index(fixture_format("%s/model.safetensors.index.json", m->folder),
                      m->total_size, lines);
    free(lines);
}

/* ------------------------------------------------------------------- options */

static uint64_t *
field_of(model *m, const char *option)
{
    struct {
        const char *name;
        uint64_t *field;
    } const fields[] = {
        { "--layers", &m->layers }, { "--hidden", &m->hidden },     { "--inner", &m->inner },
        { "--vocab", &m->vocab },   { "--shards", &m->shards },     { "--heads", &m->heads },
        { "--kv-heads", &m->kv_heads }, { "--sparse", &m->is_sparse },
    };

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].name, option) == 0)
            return fields[i].field;
    die("no such option", option);
    return NULL;
}

static storage
storage_of(const char *word)
{
    static const char *const words[] = { "bf16", "nf4", "nf4-double", "int8" };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], word) == 0)
            return (storage)i;
    die("no such storage", word);
    return AS_BF16;
}

int
main(int argc, char **argv)
{
    model m = { .layers = 4, .hidden = 64, .inner = 176, .vocab = 256, .shards = 3,
                .heads = 4, .kv_heads = 2 };

    if (argc < 2 || argc % 2 != 0)
        die("give a folder, then options with values", argv[0]);
    m.folder = argv[1];
    for (int i = 2; i < argc; i += 2) {
        if (strcmp(argv[i], "--as") == 0)
            m.as = storage_of(argv[i + 1]);
        else
            *field_of(&m, argv[i]) = strtoull(argv[i + 1], NULL, 10);
    }
    fixture_make_folder(m.folder);
    write_model(&m);
    return 0;
}
