/* SPDX-License-Identifier: Apache-2.0 */
/* loaded.c - models for tests of loads; see loaded.h. */
#include "tests/loaded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"
#include "tests/weights.h"

#define HIDDEN 256u
#define WIDTH  704u
#define WORDS  512u

/* Without it a test has nothing to say. */
static void
must(bool is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "loaded: %s\n", what);
    exit(1);
}

/* ------------------------------------------------------------------------- models */

typedef struct making {
    fixture_builder *shards[8];
    uint32_t shard_count;
    uint32_t added;
    const char *dtype;
    int32_t number; /* berth_dtype */
    uint32_t hidden;
    uint32_t inner;
    char *index;
    size_t used;
} making;

static int32_t
dtype_of(const char *name)
{
    for (int32_t d = 0; d < BERTH_DTYPE_COUNT; d++)
        if (strcmp(berth_dtype_name(d), name) == 0)
            return d;
    must(false, "no such dtype");
    return -1;
}

/* Tensors go to the shards in turn. */
static void
add(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    const uint64_t count = rows * (columns == 0 ? 1 : columns);
    void *const values = weights_values(m->number, count, m->added + UINT64_C(7), false);
    const uint32_t shard = m->added++ % m->shard_count;

    fixture_add(m->shards[shard], name, m->dtype, columns == 0 ? 1 : 2, shape, values);
    m->used +=
        (size_t)snprintf(m->index + m->used, 4096, "%s model-%05u-of-%05u.safetensors\n",
                         name, shard + 1, m->shard_count);
    free(values);
}

static void
add_layer(making *m, uint32_t layer)
{
    static const char *const matrices[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

    for (uint32_t i = 0; i < 7; i++)
        add(m, fixture_format("model.layers.%u.%s.weight", layer, matrices[i]),
            i == 4 || i == 5 ? m->inner : m->hidden, i == 6 ? m->inner : m->hidden);
    add(m, fixture_format("model.layers.%u.input_layernorm.weight", layer), m->hidden, 0);
    add(m, fixture_format("model.layers.%u.post_attention_layernorm.weight", layer),
        m->hidden, 0);
    /* No tensor of a Llama: of a size that fits nowhere. */
    add(m, fixture_format("model.layers.%u.odd", layer), 4099, 0);
}

static void
finish(making *m, const char *folder)
{
    uint64_t bytes = 0;

    if (m->shard_count == 1) {
        (void)fixture_finish(m->shards[0],
                             fixture_format("%s/model.safetensors", folder));
        return;
    }
    for (uint32_t i = 0; i < m->shard_count; i++)
        bytes += fixture_finish(m->shards[i],
                                fixture_format("%s/model-%05u-of-%05u.safetensors",
                                               folder, i + 1, m->shard_count));
    fixture_index(fixture_format("%s/model.safetensors.index.json", folder), bytes,
                  m->index);
}

/* The head of a Llama. */
typedef enum head_kind {
    OWN,
    TIED,
    TIED_AND_STORED /* with values of its own, which are nobody's */
} head_kind;

static const char *
make(uint32_t layers, const char *dtype, uint32_t shards, uint32_t hidden, uint32_t inner,
     head_kind head)
{
    const char *const folder = fixture_folder();
    making m = {.shard_count = shards,
                .dtype = dtype,
                .number = dtype_of(dtype),
                .hidden = hidden,
                .inner = inner};

    m.index = malloc(4096u * (layers * 10u + 8u));
    must(m.index != NULL && shards <= 8, "memory");
    for (uint32_t i = 0; i < shards; i++)
        m.shards[i] = fixture_begin();
    add(&m, "model.embed_tokens.weight", WORDS, hidden);
    for (uint32_t i = 0; i < layers; i++)
        add_layer(&m, i);
    add(&m, "model.norm.weight", hidden, 0);
    if (head != TIED)
        add(&m, "lm_head.weight", WORDS, hidden);
    finish(&m, folder);
    free(m.index);
    fixture_text(
        fixture_format("%s/config.json", folder),
        fixture_format("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": "
                       "\"llama\", \"hidden_size\": %u, \"intermediate_size\": %u, "
                       "\"num_hidden_layers\": %u, \"num_attention_heads\": 4, "
                       "\"num_key_value_heads\": 4, \"vocab_size\": %u, "
                       "\"torch_dtype\": \"%s\", \"tie_word_embeddings\": %s}",
                       m.hidden, m.inner, layers, WORDS,
                       strcmp(dtype, "BF16") == 0 ? "bfloat16" : "float32",
                       head != OWN ? "true" : "false"));
    return folder;
}

const char *
loaded_llama(uint32_t layers, const char *dtype, uint32_t shards)
{
    return make(layers, dtype, shards, 256, 704, OWN);
}

const char *
loaded_tied(uint32_t layers, uint32_t shards)
{
    return make(layers, "BF16", shards, 256, 704, TIED);
}

const char *
loaded_tied_and_stored(uint32_t layers, uint32_t shards)
{
    return make(layers, "BF16", shards, 256, 704, TIED_AND_STORED);
}

const char *
loaded_large(uint32_t layers, uint32_t shards)
{
    return make(layers, "BF16", shards, 768, 1024, OWN);
}

const char *
loaded_wide(uint32_t shards)
{
    return make(1, "BF16", shards, 256, 12000, OWN);
}

const char *
loaded_long(void)
{
    return make(1, "BF16", 1, 4, 1100000, OWN);
}

/* Conv1D: [in, out]. */
static void
add_conv1d(making *m, const char *name, uint32_t inputs, uint32_t outputs)
{
    add(m, fixture_format("transformer.h.0.%s.weight", name), inputs, outputs);
    add(m, fixture_format("transformer.h.0.%s.bias", name), outputs, 0);
}

const char *
loaded_gpt2(const char *dtype, uint32_t hidden, uint32_t shards)
{
    const char *const folder = fixture_folder();
    making m = {.shard_count = shards, .dtype = dtype, .number = dtype_of(dtype)};

    m.index = malloc(65536);
    must(m.index != NULL && shards <= 8, "memory");
    for (uint32_t i = 0; i < shards; i++)
        m.shards[i] = fixture_begin();
    add(&m, "transformer.wte.weight", WORDS, hidden);
    add(&m, "transformer.wpe.weight", 64, hidden);
    add_conv1d(&m, "attn.c_attn", hidden, 3 * hidden);
    add_conv1d(&m, "attn.c_proj", hidden, hidden);
    add_conv1d(&m, "mlp.c_fc", hidden, 4 * hidden);
    add_conv1d(&m, "mlp.c_proj", 4 * hidden, hidden);
    add(&m, "transformer.h.0.ln_1.weight", hidden, 0);
    add(&m, "transformer.ln_f.weight", hidden, 0);
    finish(&m, folder);
    free(m.index);
    fixture_text(
        fixture_format("%s/config.json", folder),
        fixture_format("{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": "
                       "\"gpt2\", \"n_embd\": %u, \"n_layer\": 1, \"n_head\": 1, "
                       "\"n_positions\": 64, \"vocab_size\": %u, \"torch_dtype\": \"%s\"}",
                       hidden, WORDS,
                       strcmp(dtype, "BF16") == 0 ? "bfloat16" : "float32"));
    return folder;
}

const char *
loaded_quantized(const char *folder, const berth_plan_options *options)
{
    const char *const output = fixture_format("%s/quantized", fixture_folder());
    berth_convert_options convert;
    berth_checkpoint *checkpoint;
    berth_context *context;
    berth_error error;
    berth_job *job;

    must(berth_context_create(NULL, &context, NULL) == BERTH_OK, "berth_context_create");
    must(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL) == BERTH_OK,
         "berth_checkpoint_open");
    berth_convert_options_init(&convert);
    convert.output = output;
    convert.type = options->type;
    convert.dtype = options->dtype;
    convert.block_size = options->block_size;
    convert.double_quant = options->double_quant;
    convert.keep = options->keep;
    convert.keep_count = options->keep_count;
    convert.takes_experts = options->takes_experts;
    convert.only = options->only;
    convert.only_count = options->only_count;
    must(berth_convert_start(context, checkpoint, &convert, &job, &error) == BERTH_OK,
         "berth_convert_start");
    must(berth_job_finish(job, &error) == BERTH_OK, "berth_job_finish");
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return output;
}

const char *
loaded_manifest(const char *folder)
{
    berth_verify_options options;
    berth_checkpoint *checkpoint;
    berth_context *context;
    berth_job *job;

    must(berth_context_create(NULL, &context, NULL) == BERTH_OK, "loaded_manifest");
    must(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL) == BERTH_OK,
         "loaded_manifest");
    berth_verify_options_init(&options);
    options.manifest_mode = BERTH_MANIFEST_WRITE;
    must(berth_verify_start(context, checkpoint, &options, &job, NULL) == BERTH_OK,
         "loaded_manifest");
    must(berth_job_finish(job, NULL) == BERTH_OK, "loaded_manifest");
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return fixture_format("%s/berth.manifest.json", folder);
}

/* ------------------------------------------------------------------------ loading */

berth_plan_options
loaded_options(const char *max_memory)
{
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = max_memory;
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 0;
    return options;
}

void
loaded_begin(loaded *l, const char *folder, berth_plan_options *options,
             const char *words)
{
    memset(l, 0, sizeof *l);
    planned_begin(&l->p, folder, options);
    if (!CHECK_EQ(l->p.status, BERTH_OK))
        t_note("%s", l->p.error.message);
    must(l->p.status == BERTH_OK, "the plan is refused");
    if (words != NULL)
        must(berth_devices_open(l->p.context, words, &l->devices, &l->error) == BERTH_OK,
             "berth_devices_open");
    berth_load_options_init(&l->options);
    l->options.devices = l->devices;
    l->options.report = &l->report;
}

void
loaded_load(loaded *l)
{
    berth_job *job = NULL;

    l->status = berth_load_start(l->p.context, l->p.checkpoint, l->p.plan, &l->options,
                                 &job, &l->error);
    CHECK_EQ(l->status, l->error.status);
    CHECK((l->status == BERTH_OK) == (job != NULL));
    if (l->status != BERTH_OK)
        return;
    l->status = berth_load_finish(job, &l->model, &l->error);
    CHECK_EQ(l->status, l->error.status);
    CHECK((l->status == BERTH_OK) == (l->model != NULL));
}

void
loaded_unload(loaded *l)
{
    berth_model_destroy(l->model);
    l->model = NULL;
}

void
loaded_end(loaded *l)
{
    loaded_unload(l);
    vacant_close(l->devices);
    planned_end(&l->p);
}

/* ------------------------------------------------------------------------ attempts */

static berth_status
plan_attempt(const loaded_attempt *a, berth_context *context, berth_checkpoint *checkpoint,
             berth_plan **out, berth_error *error)
{
    berth_plan_options options = loaded_options(a->max_memory);

    options.type = a->type;
    options.double_quant = a->is_double;
    options.pins = a->pins;
    options.pin_count = a->pin_count;
    if (a->ranks > 0) {
        options.rank = a->rank;
        options.ranks = a->ranks;
    }
    return berth_plan_create(context, checkpoint, &options, out, error);
}

static berth_status
lease_experts(const loaded_attempt *a, berth_model *model, uint32_t layer,
              berth_error *error)
{
    berth_expert_counts counts;
    berth_status status;

    berth_experts_count(model, layer, &counts);
    if (counts.away == 0 || a->expert_count == 0)
        return BERTH_OK;
    status =
        berth_experts_acquire(model, layer, a->experts, a->expert_count, NULL, error);
    if (status == BERTH_OK)
        status =
            berth_experts_release(model, layer, a->experts, a->expert_count, NULL, error);
    return status;
}

static berth_status
lease_all(const loaded_attempt *a, berth_model *model, const berth_plan *plan,
          berth_error *error)
{
    berth_plan_summary summary;
    berth_status status = BERTH_OK;

    berth_plan_get(plan, &summary);
    for (uint32_t i = 0; status == BERTH_OK && i < summary.layer_count; i++) {
        status = berth_layer_acquire(model, i, NULL, error);
        if (status == BERTH_OK)
            status = berth_layer_release(model, i, NULL, error);
        if (status == BERTH_OK)
            status = lease_experts(a, model, i, error);
    }
    return status;
}

berth_status
loaded_once(void *attempt, berth_context *context, berth_error *error)
{
    loaded_attempt *const a = attempt;
    berth_checkpoint *checkpoint = NULL;
    berth_devices *devices = NULL;
    berth_model *model = NULL;
    berth_load_options load;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    berth_load_options_init(&load);
    load.workers = 2;
    load.ring_bytes = UINT64_C(16) << 20;
    load.verify = a->verify;
    load.offload_dir = a->offload_dir;
    load.no_uring = a->no_uring;
    status = berth_checkpoint_open(context, a->folder, NULL, &checkpoint, error);
    if (status == BERTH_OK)
        status = plan_attempt(a, context, checkpoint, &plan, error);
    if (status == BERTH_OK && a->words != NULL)
        status = berth_devices_open(context, a->words, &devices, error);
    load.devices = devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, plan, &load, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    a->has_loaded = model != NULL;
    if (status == BERTH_OK && a->has_passes)
        status = lease_all(a, model, plan, error);
    berth_model_destroy(model);
    if (a->has_company)
        vacant_check_devices(devices);
    else
        vacant_check(devices);
    berth_devices_close(devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

/* ----------------------------------------------------------------------- comparing */

static uint32_t
crc_of(berth_checkpoint *checkpoint, uint64_t tensor, uint32_t crc)
{
    berth_tensor t;
    void *bytes;

    must(berth_checkpoint_tensor(checkpoint, tensor, &t) == BERTH_OK,
         "berth_checkpoint_tensor");
    bytes = weights_alloc(t.bytes);
    must(berth_checkpoint_read(checkpoint, tensor, 0, UINT64_MAX, bytes, t.bytes, NULL)
             == BERTH_OK,
         "berth_checkpoint_read");
    crc = berthi_digest_crc32(crc, bytes, (size_t)t.bytes);
    free(bytes);
    return crc;
}

/* Values or codes, then what of the statistics lies in memory, as in the file. */
static uint32_t
crc_of_weight(berth_checkpoint *checkpoint, uint64_t tensor)
{
    berth_quantized q;
    uint32_t crc = crc_of(checkpoint, tensor, 0);

    if (berth_checkpoint_quantized(checkpoint, tensor, &q) != BERTH_OK)
        return crc;
    for (uint32_t i = 0; i < (q.is_double ? 2u : 1u); i++)
        crc = crc_of(checkpoint, q.companions[i], crc);
    return crc;
}

void
loaded_check(loaded *l, const char *folder)
{
    berth_checkpoint *other;
    char name[512];

    must(l->model != NULL, "there is no model");
    must(berth_checkpoint_open(l->p.context, folder, NULL, &other, NULL) == BERTH_OK,
         "berth_checkpoint_open");
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
        berth_berth berth;
        uint32_t crc;
        uint64_t tensor;

        must(berth_plan_get_berth(l->p.plan, i, &berth, name, sizeof name) == BERTH_OK,
             "berth_plan_get_berth");
        tensor = berth_checkpoint_find(other, name, strlen(name));
        must(tensor != BERTH_NO_TENSOR, "a tensor is missing");
        must(berth_model_digest(l->model, i, &crc, NULL) == BERTH_OK,
             "berth_model_digest");
        if (!CHECK_EQ(crc, crc_of_weight(other, tensor)))
            t_note("%s", name);
        CHECK_EQ(berth_model_find(l->model, name, strlen(name)), i);
    }
    berth_checkpoint_close(other);
}

berth_status
loaded_see_checked(loaded *l, berth_check_report *report)
{
    berth_check_options options;
    berth_job *job;
    berth_status status;

    berth_check_options_init(&options);
    options.report = report;
    status = berth_check_start(l->model, &options, &job, &l->error);
    return status == BERTH_OK ? berth_job_finish(job, &l->error) : status;
}

uint64_t
loaded_bytes(const berth_context *context)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    return memory.current_bytes;
}
