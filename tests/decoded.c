/* SPDX-License-Identifier: Apache-2.0 */
/* decoded.c - see decoded.h. */
#include "tests/decoded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/llama_math.h"

#define TOLERANCE 1e-4

void *
decoded_read(const char *model, const char *name, uint64_t *bytes)
{
    const char *const path = fixture_format(DECODED_DATA "%s.logits.safetensors", model);
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_tensor tensor;
    uint64_t index;
    void *data = NULL;

    *bytes = 0;
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    if (!CHECK_EQ(berth_checkpoint_open(context, path, NULL, &checkpoint, NULL), BERTH_OK))
        return NULL;
    index = berth_checkpoint_find(checkpoint, name, strlen(name));
    if (CHECK_EQ(berth_checkpoint_tensor(checkpoint, index, &tensor), BERTH_OK)) {
        data = malloc(tensor.bytes);
        *bytes = tensor.bytes;
        CHECK_EQ(berth_checkpoint_read(checkpoint, index, 0, UINT64_MAX, data, tensor.bytes,
                                       NULL),
                 BERTH_OK);
    }
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return data;
}

/* The recorded prompt; free() it. */
static uint32_t *
read_prompt(const decoded_setup *s, uint32_t *count)
{
    uint64_t bytes;
    int64_t *const stored = decoded_read(s->model, "input_ids", &bytes);
    const uint32_t there = (uint32_t)(bytes / sizeof *stored);
    uint32_t *ids;

    *count = there > s->least_tokens ? there : s->least_tokens;
    ids = malloc(*count * sizeof *ids + 1);
    for (uint32_t i = 0; i < *count && there > 0; i++)
        ids[i] = (uint32_t)stored[i % there];
    free(stored);
    return ids;
}

/* Prompt, then greedy tokens. */
static void
run(const decoded_setup *s, llama_run *run, const llama_config *config, decoded *out)
{
    uint32_t *const ids = read_prompt(s, &out->count);
    float *const next = malloc(config->vocab * sizeof *next);
    berth_error error;

    out->vocab = config->vocab;
    out->logits = calloc((size_t)out->count * out->vocab, sizeof *out->logits);
    if (!CHECK_EQ(llama_run_feed(run, ids, out->count, true, out->logits, &error), BERTH_OK))
        t_note("%s", error.message);
    memcpy(next, out->logits + (size_t)(out->count - 1) * out->vocab,
           out->vocab * sizeof *next);
    out->ids[0] = llama_math_largest(next, out->vocab);
    for (uint32_t i = 1; i < DECODED_GENERATED; i++)
        CHECK_EQ(llama_run_step(run, out->ids[i - 1], next, &out->ids[i], &error), BERTH_OK);
    CHECK_EQ(llama_run_feed(run, &out->ids[DECODED_GENERATED - 1], 1, false, next, &error),
             BERTH_OK);
    free(next);
    free(ids);
}

berth_status
decoded_load(const decoded_setup *s, berth_context *context, berth_checkpoint *checkpoint,
     berth_devices *devices, berth_plan **plan, berth_model **model, berth_error *error)
{
    berth_plan_options wanted;
    berth_load_options options;
    berth_job *job;
    berth_status status;

    *model = NULL;
    berth_plan_options_init(&wanted);
    wanted.type = s->type;
    wanted.double_quant = s->double_quant;
    wanted.takes_experts = s->takes_experts;
    wanted.max_memory = s->max_memory != NULL ? s->max_memory : "cpu=64MiB";
    wanted.reserve_share = BERTH_RESERVE_NONE;
    wanted.context = 64;
    wanted.pins = s->pins;
    wanted.pin_count = (uint32_t)((s->pins[0] != NULL) + (s->pins[1] != NULL));
    status = berth_plan_create(context, checkpoint, &wanted, plan, error);
    berth_load_options_init(&options);
    options.offload_dir = s->offload_dir;
    options.devices = devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, *plan, &options, &job, error);
    return status == BERTH_OK ? berth_load_finish(job, model, error) : status;
}

decoded
decoded_compute(const decoded_setup *s)
{
    decoded out = { .logits = NULL };
    llama_config *const config = malloc(sizeof *config);
    llama_run_options options = { .config = config, .capacity = 64, .batch = s->batch,
                                  .threads = s->threads, .cache_dtype = s->cache_dtype,
                                  .has_int8_inputs = s->has_int8_inputs,
                                  .compute = s->compute,
                                  .activations = s->activations != 0 ? s->activations
                                                                     : BERTH_F32 };
    berth_plan *plan = NULL;
    berth_memory_summary memory;
    llama_run *r = NULL;
    berth_error error = { .status = BERTH_OK };
    berth_status status = berth_context_create(NULL, &options.context, &error);

    if (status == BERTH_OK)
        status = berth_checkpoint_open(
            options.context,
            s->folder != NULL ? s->folder : fixture_format(DECODED_DATA "%s", s->model), NULL,
            &options.checkpoint, &error);
    if (status == BERTH_OK)
        status = llama_config_read(options.context, options.checkpoint, config, &error);
    if (status == BERTH_OK && s->devices != NULL)
        status = berth_devices_open(options.context, s->devices, &options.devices, &error);
    if (status == BERTH_OK)
        status = decoded_load(s, options.context, options.checkpoint, options.devices, &plan,
                      &options.model, &error);
    options.plan = plan;
    if (status == BERTH_OK)
        status = llama_run_create(&options, &r, &error);
    if (status == BERTH_OK) {
        run(s, r, config, &out);
        berth_model_leases(options.model, &out.leases);
    } else {
        CHECK_STR(error.message, "");
    }
    llama_run_destroy(r);
    berth_model_destroy(options.model);
    berth_plan_destroy(plan);
    berth_devices_close(options.devices);
    berth_checkpoint_close(options.checkpoint);
    for (uint32_t i = 0; i < berth_memory_tiers(options.context); i++) {
        berth_memory tier;

        CHECK_EQ(berth_memory_get(options.context, i, BERTH_MEMORY_ALL, &tier), BERTH_OK);
        CHECK_EQ(tier.current_bytes, 0);
    }
    berth_context_memory(options.context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(options.context);
    free(config);
    return out;
}

const char *
decoded_rewritten(const char *from, const char *to)
{
    const char *const folder = fixture_folder();
    char *const text = fixture_read(DECODED_DATA "llama/config.json", NULL);
    const char *const at = strstr(text, from);

    fixture_copy(DECODED_DATA "llama/model.safetensors",
                 fixture_format("%s/model.safetensors", folder));
    if (CHECK(at != NULL))
        fixture_text(fixture_format("%s/config.json", folder),
                     fixture_format("%.*s%s%s", (int)(at - text), text, to,
                                    at + strlen(from)));
    free(text);
    return folder;
}

/* All tensors of a model; those of 16 bits with `wide` in their name (NULL: none) as F32. */
static void
copy_tensors(fixture_builder *builder, const char *model, const char *wide)
{
    berth_checkpoint_summary summary;
    berth_context *context;
    berth_checkpoint *checkpoint = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, fixture_format(DECODED_DATA "%s", model), NULL,
                                   &checkpoint, NULL),
             BERTH_OK);
    berth_checkpoint_get(checkpoint, &summary);
    for (uint64_t i = 0; i < summary.tensor_count; i++) {
        berth_tensor t;
        char *values;

        CHECK_EQ(berth_checkpoint_tensor(checkpoint, i, &t), BERTH_OK);
        values = malloc(3 * t.bytes);
        CHECK_EQ(berth_checkpoint_read(checkpoint, i, 0, UINT64_MAX, values, t.bytes, NULL),
                 BERTH_OK);
        if (wide != NULL && strstr(t.name, wide) != NULL) {
            llama_math_widen(t.dtype, values, t.elements, (float *)(void *)(values + t.bytes));
            fixture_add(builder, t.name, "F32", t.rank, t.shape, values + t.bytes);
        } else {
            fixture_add(builder, t.name, berth_dtype_name(t.dtype), t.rank, t.shape, values);
        }
        free(values);
    }
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

const char *
decoded_widened(const char *model, const char *wide)
{
    const char *const folder = fixture_folder();
    fixture_builder *const builder = fixture_begin();

    copy_tensors(builder, model, wide);
    fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
    fixture_copy(fixture_format(DECODED_DATA "%s/config.json", model),
                 fixture_format("%s/config.json", folder));
    return folder;
}

const char *
decoded_biased(void)
{
    static const char *const modules[] = { "q_proj", "k_proj", "v_proj" };
    const char *const folder = fixture_folder();
    char *const text = fixture_read(DECODED_DATA "llama/config.json", NULL);
    char *const type = strstr(text, "\"model_type\": \"llama\"");
    fixture_builder *const builder = fixture_begin();
    uint16_t bias[64];

    copy_tensors(builder, "llama", NULL);
    for (size_t i = 0; i < sizeof bias / sizeof bias[0]; i++)
        bias[i] = 0x3E80;
    for (unsigned i = 0; i < 6; i++)
        fixture_add(builder,
                    fixture_format("model.layers.%u.self_attn.%s.bias", i / 3, modules[i % 3]),
                    "BF16", 1, &(uint64_t){ i % 3 == 0 ? 64 : 32 }, bias);
    fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
    if (CHECK(type != NULL))
        memcpy(type, "\"model_type\": \"qwen2\"", strlen("\"model_type\": \"qwen2\""));
    fixture_text(fixture_format("%s/config.json", folder), text);
    free(text);
    return folder;
}

decoded_distance
decoded_distance_of(const float *a, const float *b, size_t count)
{
    decoded_distance d = { 0, 0 };

    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);

        d.largest = fmax(d.largest, isnan(difference) ? INFINITY : difference);
        d.rms += difference * difference;
    }
    d.rms = sqrt(d.rms / (double)count);
    return d;
}

void
decoded_check_near(const decoded_setup *s, const char *name)
{
    decoded out = decoded_compute(s);
    uint64_t bytes;
    float *const recorded = decoded_read(s->model, name, &bytes);
    decoded_distance d;

    if (out.logits != NULL
        && CHECK_EQ(bytes, (uint64_t)out.count * out.vocab * sizeof *recorded)) {
        d = decoded_distance_of(out.logits, recorded, (size_t)out.count * out.vocab);
        if (!CHECK(d.largest <= TOLERANCE))
            t_note("%s, %s: %g", s->model, name, d.largest);
    }
    free(recorded);
    free(out.logits);
}

void
decoded_check_same(const decoded_setup *a, const decoded_setup *b, berth_lease_summary *leases)
{
    decoded x = decoded_compute(a);
    decoded y = decoded_compute(b);

    if (x.logits != NULL && y.logits != NULL) {
        CHECK_MEM(x.logits, y.logits, (size_t)x.count * x.vocab * sizeof *x.logits);
        CHECK_MEM(x.ids, y.ids, sizeof x.ids);
    }
    if (leases != NULL)
        *leases = y.leases;
    free(x.logits);
    free(y.logits);
}
