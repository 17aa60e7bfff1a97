/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_llama_device.c - the decoder's layers computed by devices: as near to the reference
 * library as by the host's arithmetic, and the same bits wherever the weights lie.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/decoded.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/vacant.h"

static const char *const models[] = { "llama", "qwen3", "mixtral", "qwen3_moe" };

/* One of each kind where threads are watched, which takes its time. */
#define EACH_MODEL(i)                                                                      \
    for (size_t i = 0; i < sizeof models / sizeof models[0];                               \
         i += T_HAS_THREADS_WATCHED ? 2 : 1)

/* In memory of the processor, by its operations. */
static decoded_setup
setup_of(const char *model, int32_t type, int32_t double_quant)
{
    return (decoded_setup){ .model = model,
                            .type = type,
                            .double_quant = double_quant,
                            .cache_dtype = BERTH_F32,
                            .compute = LLAMA_COMPUTE_DEVICE };
}

/* ----------------------------------------------------------------------- encodings */

static void
test_native(void)
{
    EACH_MODEL(i)
    {
        const decoded_setup s = setup_of(models[i], BERTH_ENCODING_NATIVE, 0);

        decoded_check_near(&s, "source_fp32");
    }
}

static void
test_4bit(void)
{
    EACH_MODEL(i)
    {
        const decoded_setup nf4 = setup_of(models[i], BERTH_ENCODING_NF4, 0);
        const decoded_setup twice = setup_of(models[i], BERTH_ENCODING_NF4, 1);

        if (strcmp(models[i], "qwen3") != 0)
            decoded_check_near(&nf4, "nf4_dequant_fp32");
        decoded_check_near(&twice, "nf4_dq_dequant_fp32");
    }
}

/* As far from floats as codes of inputs are: twice as far as the library itself, at most. */
static void
check_int8(const decoded_setup *s)
{
    uint64_t bytes;
    float *const floats = decoded_read(s->model, "int8_dequant_fp32", &bytes);
    float *const library = decoded_read(s->model, "int8_library_bf16", &bytes);
    decoded out = decoded_compute(s);
    const size_t count = bytes / sizeof *floats;

    if (out.logits != NULL) {
        const decoded_distance ours = decoded_distance_of(out.logits, floats, count);
        const decoded_distance theirs = decoded_distance_of(library, floats, count);

        if (!CHECK(ours.largest <= 2 * theirs.largest) || !CHECK(ours.rms <= 2 * theirs.rms)
            || !CHECK(ours.rms > 0))
            t_note("%s: %g, %g", s->model, ours.largest, ours.rms);
    }
    free(out.logits);
    free(library);
    free(floats);
}

static void
test_int8(void)
{
    EACH_MODEL(i)
    {
        const decoded_setup s = setup_of(models[i], BERTH_ENCODING_INT8, 0);

        check_int8(&s);
    }
}

/* Near, not the same. */
static void
check_close(const decoded_setup *a, const decoded_setup *b, double most)
{
    decoded x = decoded_compute(a);
    decoded y = decoded_compute(b);

    if (x.logits != NULL && y.logits != NULL) {
        const decoded_distance d =
            decoded_distance_of(x.logits, y.logits, (size_t)x.count * x.vocab);

        if (!CHECK(d.largest > 0) || !CHECK(d.largest <= most))
            t_note("%s: %g", a->model, d.largest);
    }
    free(x.logits);
    free(y.logits);
}

static void
test_dtypes(void)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16 };

    EACH_MODEL(i)
    for (size_t k = 0; k < 2; k++) {
        const decoded_setup exact = setup_of(models[i], BERTH_ENCODING_NF4, 1);
        decoded_setup other = exact;

        other.cache_dtype = dtypes[k];
        check_close(&exact, &other, 1e-2);
        other.activations = dtypes[k];
        check_close(&exact, &other, k == 0 ? 5e-2 : 1e-2);
    }
}

/* As by the host's arithmetic; of 8 bits near it, as codes of inputs are. */
static void
test_biases(void)
{
    const char *const folder = decoded_biased();
    decoded_setup device = setup_of("llama", BERTH_ENCODING_NATIVE, 0);
    decoded_setup host = device;

    device.folder = host.folder = folder;
    host.compute = LLAMA_COMPUTE_HOST;
    check_close(&host, &device, 1e-4);
    device.type = host.type = BERTH_ENCODING_NF4;
    check_close(&host, &device, 1e-4);
    device.activations = BERTH_BF16;
    check_close(&host, &device, 5e-2);
    device.type = host.type = BERTH_ENCODING_INT8;
    device.activations = 0;
    check_close(&host, &device, 5e-2);
}

/* Norms of heads have each a dtype of their own; the same numbers give the same bits. */
static void
test_norms_of_two_dtypes(void)
{
    static const char *const wide[] = { "k_norm", "q_norm" };
    const decoded_setup stored = setup_of("qwen3", BERTH_ENCODING_NATIVE, 0);

    for (size_t i = 0; i < 2; i++) {
        decoded_setup other = stored;

        other.folder = decoded_widened("qwen3", wide[i]);
        decoded_check_same(&stored, &other, NULL);
    }
}

/* The llama with a threshold of its own: what it says of how inputs are multiplied by int8. */
static const char *
with_threshold(const char *threshold)
{
    return decoded_rewritten("\"model_type\"",
                             fixture_format("\"quantization_config\": "
                                            "{\"llm_int8_threshold\": %s}, \"model_type\"",
                                            threshold));
}

/* Of how many inputs are apart host and devices think alike; of all, they are floats. */
static void
test_outliers(void)
{
    static const char *const thresholds[] = { "0", "0.5", "1.25", "1e-6" };
    decoded_setup device = setup_of("llama", BERTH_ENCODING_INT8, 0);
    decoded_setup host = device;
    decoded_setup there;

    host.compute = LLAMA_COMPUTE_HOST;
    host.has_int8_inputs = true;
    for (size_t i = 0; i < sizeof thresholds / sizeof thresholds[0]; i++) {
        device.folder = host.folder = with_threshold(thresholds[i]);
        check_close(&host, &device, 1e-3);
        there = device;
        there.max_memory = "0=64MiB,cpu=1GiB";
        there.devices = "sim:64MiB,backing=sealed";
        decoded_check_same(&device, &there, NULL);
    }
    decoded_check_near(&device, "int8_dequant_fp32");
}

/* Eight positions, itself included. */
static void
test_window(void)
{
    decoded_setup device = setup_of("llama", BERTH_ENCODING_NATIVE, 0);
    decoded_setup host = device;

    device.folder = host.folder =
        decoded_rewritten("\"model_type\": \"llama\"",
                          "\"model_type\": \"mistral\", \"sliding_window\": 8");
    device.batch = 5;
    host.compute = LLAMA_COMPUTE_HOST;
    check_close(&host, &device, 1e-4);
}

/* -------------------------------------------------------------------------- places */

#define DEVICE "0=64MiB,cpu=1GiB,disk=inf"
#define GPU "sim:64MiB,backing=sealed" /* the host cannot touch its memory */

/* On a device of its own, each model and encoding has the bits that it has on the host. */
static void
check_place(const decoded_setup *place, bool is_streamed, bool is_from_disk)
{
    static const int32_t types[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                     BERTH_ENCODING_INT8 };

    EACH_MODEL(i)
    for (size_t k = 0; k < 3; k++) {
        const decoded_setup here = setup_of(models[i], types[k], types[k] == BERTH_ENCODING_NF4);
        decoded_setup there = *place;
        berth_lease_summary leases;

        there.model = here.model;
        there.type = here.type;
        there.double_quant = here.double_quant;
        there.cache_dtype = here.cache_dtype;
        there.compute = here.compute;
        decoded_check_same(&here, &there, &leases);
        CHECK_EQ(leases.copied_bytes > 0, is_streamed);
        CHECK_EQ(leases.disk_bytes > 0, is_from_disk);
    }
}

static void
test_resident_on_a_device(void)
{
    check_place(&(decoded_setup){ .max_memory = DEVICE, .devices = GPU }, false, false);
}

/* Tokens a few at a time: of an input alone the bits are those that it has among others. */
static void
test_streamed_from_host(void)
{
    check_place(&(decoded_setup){ .max_memory = DEVICE,
                                  .devices = "sim:64MiB,backing=sealed,jitter=50%,seed=3",
                                  .pins = { "model.layers=cpu" },
                                  .batch = 7 },
                true, false);
}

static void
test_streamed_from_disk(void)
{
    check_place(&(decoded_setup){ .max_memory = DEVICE,
                                  .devices = GPU,
                                  .pins = { "model.layers=disk" },
                                  .offload_dir = fixture_folder() },
                true, true);
}

/* What goes from layer to layer changes its device, and comes back for the head. */
static void
test_several_devices(void)
{
    static const char *const words[] = {
        "sim:64MiB,backing=sealed*2",
        "sim:64MiB,backing=sealed,peers=50GB/s,jitter=50%,pick=last,touch=end*2",
        "sim:64MiB,backing=sealed,peers=50GB/s,clock=real,pick=random*2",
    };

    /* The first and the last where threads are watched: only a real clock has one. */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i += T_HAS_THREADS_WATCHED ? 2 : 1)
        check_place(&(decoded_setup){ .max_memory = "0=64MiB,1=64MiB,cpu=1GiB",
                                      .devices = words[i],
                                      .pins = { "model.layers.0=cuda:1",
                                                "model.layers.1=cuda:0" } },
                    false, false);
    check_place(&(decoded_setup){ .max_memory = "0=64MiB,1=64MiB,cpu=1GiB",
                                  .devices = "cpu*2",
                                  .pins = { "model.layers.0=cuda:0", "model.layers.1=cuda:1" } },
                false, false);
}

/* The final norm on one device, the head on another, which gets what it has made. */
static void
test_head_on_a_device_of_its_own(void)
{
    EACH_MODEL(i)
    for (uint32_t batch = 0; batch < 8; batch += 7) {
        const bool is_tied = strcmp(models[i], "qwen3") == 0;
        const decoded_setup here = setup_of(models[i], BERTH_ENCODING_NF4, 1);
        decoded_setup there = here;

        there.max_memory = "0=64MiB,1=64MiB,cpu=1GiB";
        there.devices = "sim:64MiB,backing=sealed*2";
        there.pins[0] = "model.norm=cuda:0";
        there.pins[1] = is_tied ? "model.embed_tokens=cuda:1" : "lm_head=cuda:1";
        there.batch = batch;
        decoded_check_same(&here, &there, NULL);
    }
}

/* More logits than the head computes at once. */
static void
test_many_logits(void)
{
    EACH_MODEL(i)
    {
        decoded_setup few = setup_of(models[i], BERTH_ENCODING_NF4, 1);
        decoded_setup many = few;

        few.least_tokens = many.least_tokens = 50;
        few.batch = 9;
        many.batch = 50;
        decoded_check_same(&few, &many, NULL);
    }
}

/* Rows of an embedding on a device that computes no layer, or that is nobody's. */
static void
test_embeddings_elsewhere(void)
{
    static const char *const pins[] = { "model.embed_tokens=cuda:1", "model.embed_tokens=cpu",
                                        "model.embed_tokens=disk" };

    for (size_t i = 0; i < sizeof pins / sizeof pins[0]; i++) {
        const decoded_setup here = setup_of("llama", BERTH_ENCODING_NATIVE, 0);
        decoded_setup there = here;

        there.max_memory = "0=64MiB,1=64MiB,cpu=1GiB,disk=inf";
        there.devices = "sim:64MiB,backing=sealed*2";
        there.pins[0] = "model.layers=cuda:0";
        there.pins[1] = pins[i];
        there.offload_dir = fixture_folder();
        decoded_check_same(&here, &there, NULL);
    }
}

static void
check_experts(const char *model, const char *const *memory)
{
    for (size_t i = 0; i < 3; i++)
        for (uint32_t batch = 0; batch < 3; batch += 2) {
            const decoded_setup native = setup_of(model, BERTH_ENCODING_NATIVE, 0);
            decoded_setup there = native;
            berth_lease_summary leases;

            there.max_memory = memory[i];
            there.devices = i < 2 ? "sim:64MiB,backing=sealed,h2d=1GB/s,jitter=50%,seed=1" : NULL;
            there.batch = batch;
            decoded_check_same(&native, &there, &leases);
            CHECK_GT(leases.experts_acquired, 20);
            CHECK_GT(leases.experts_filled, 1);
        }
}

static void
test_experts_apart(void)
{
    static const char *const mixtral[] = { "0=180KiB,cpu=1GiB", "0=180KiB,disk=inf",
                                           "cpu=180KiB,disk=inf" };
    static const char *const qwen[] = { "0=122KiB,cpu=1GiB", "0=122KiB,disk=inf",
                                        "cpu=122KiB,disk=inf" };

    check_experts("mixtral", mixtral);
    check_experts("qwen3_moe", qwen);
}

/* In 4 bits: as many as there are slots in a group, as one token has, or as many have. */
static void
test_experts_encoded(void)
{
    static const char *const of_experts[] = { "mixtral", "qwen3_moe" };
    static const char *const memory[][2] = { { "0=64MiB,cpu=1GiB", "0=64MiB,cpu=1GiB" },
                                             { "0=4220KiB,cpu=1GiB", "0=4195KiB,cpu=1GiB" } };

    for (size_t i = 0; i < 8; i++) {
        decoded_setup here = setup_of(of_experts[i % 2], BERTH_ENCODING_NF4, i / 2 % 2);
        decoded_setup there;
        berth_lease_summary leases;

        here.takes_experts = true;
        there = here;
        there.max_memory = memory[i / 4][i % 2];
        there.devices = "sim:64MiB,backing=sealed,h2d=1GB/s,jitter=50%,seed=1";
        there.batch = i / 2 % 2 + 1;
        decoded_check_same(&here, &there, &leases);
        CHECK_EQ(leases.experts_filled > 0, i / 4 == 1);
    }
}

/* --------------------------------------------------------------------------- faults */

/* A model, and what a run on it is made from. */
typedef struct ready {
    llama_run_options options;
    llama_config config;
    berth_plan *plan;
} ready;

static ready *
prepare(const decoded_setup *s)
{
    ready *const r = calloc(1, sizeof *r);
    llama_run_options *const o = &r->options;

    *o = (llama_run_options){ .config = &r->config, .capacity = 8,
                              .cache_dtype = BERTH_F32, .compute = LLAMA_COMPUTE_DEVICE,
                              .activations = BERTH_F32 };
    CHECK_EQ(berth_context_create(NULL, &o->context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(o->context, fixture_format(DECODED_DATA "%s", s->model),
                                   NULL, &o->checkpoint, NULL),
             BERTH_OK);
    CHECK_EQ(llama_config_read(o->context, o->checkpoint, &r->config, NULL), BERTH_OK);
    if (s->devices != NULL)
        CHECK_EQ(berth_devices_open(o->context, s->devices, &o->devices, NULL), BERTH_OK);
    CHECK_EQ(decoded_load(s, o->context, o->checkpoint, o->devices, &r->plan, &o->model,
                          NULL),
             BERTH_OK);
    o->plan = r->plan;
    return r;
}

static void
dismiss(ready *r)
{
    llama_run_options *const o = &r->options;

    berth_model_destroy(o->model);
    berth_plan_destroy(r->plan);
    vacant_close(o->devices);
    berth_checkpoint_close(o->checkpoint);
    berth_context_destroy(o->context);
    free(r);
}

/* From its making to its end, with what it allocates itself from this context. */
static berth_status
run_once(void *user, berth_context *context, berth_error *error)
{
    llama_run_options options = ((const ready *)user)->options;
    const uint32_t tokens[3] = { 5, 6, 7 };
    float *const logits = malloc(options.config->vocab * sizeof *logits);
    uint32_t next = UINT32_MAX;
    llama_run *r;
    berth_status status;

    options.context = context;
    status = llama_run_create(&options, &r, error);
    CHECK_EQ(r == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = llama_run_feed(r, tokens, 3, false, logits, error);
    if (status == BERTH_OK)
        status = llama_run_step(r, 8, logits, &next, error);
    CHECK(status != BERTH_OK || next < options.config->vocab);
    llama_run_destroy(r);
    free(logits);
    return status;
}

static void
test_faults(void)
{
    static const char *const of_faults[] = { "llama", "mixtral", "llama" };

    /* Experts are many calls more, and no thread more. */
    for (size_t i = 0; i < 3; i += T_HAS_THREADS_WATCHED ? 2 : 1) {
        decoded_setup s = i < 2 ? setup_of(of_faults[i], BERTH_ENCODING_NF4, 1)
                                : setup_of(of_faults[i], BERTH_ENCODING_INT8, 0);
        ready *r;

        s.takes_experts = true;
        r = prepare(&s);
        CHECK_GT(fault_loop("a run on the processor", run_once, r).memory, 2);
        CHECK_GT(fault_loop_devices("a run on the processor", run_once, r).device, 20);
        dismiss(r);
    }
}

static uint64_t
booked(berth_context *context, const char *name)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < berth_memory_tiers(context); i++) {
        berth_memory m;

        CHECK_EQ(berth_memory_get(context, i, BERTH_MEMORY_COMPUTING, &m), BERTH_OK);
        if (strcmp(m.tier, name) == 0)
            bytes = m.current_bytes;
    }
    return bytes;
}

/* What it has on the device, and what it is refused. */
static void
test_memory_of_devices(void)
{
    decoded_setup s = setup_of("llama", BERTH_ENCODING_NATIVE, 0);
    const uint32_t tokens[3] = { 5, 6, 7 };
    float logits[160];
    berth_error error;
    llama_run *run = NULL;
    ready *r;

    s.max_memory = "0=2MiB,cpu=1GiB";
    s.devices = "sim:4MiB";
    r = prepare(&s);
    T_REQUIRE(llama_run_create(&r->options, &run, &error) == BERTH_OK);
    CHECK_GT(booked(r->options.context, "sim:0"), 50000);
    CHECK_EQ(llama_run_threads(run), 0);
    CHECK_EQ(llama_run_feed(run, tokens, 3, false, logits, &error), BERTH_OK);
    llama_run_destroy(run);
    CHECK_EQ(booked(r->options.context, "sim:0"), 0);
    /* A sequence so long that its keys and values have no room. */
    r->options.capacity = 1u << 14;
    CHECK_EQ(llama_run_create(&r->options, &run, &error), BERTH_ENOFIT);
    CHECK(run == NULL);
    CHECK_EQ(booked(r->options.context, "sim:0"), 0);
    dismiss(r);
}

/* A load without devices opens those of its plan, which are none that the decoder has. */
static void
test_devices_of_the_load_alone(void)
{
    static const char *const pins[] = { "model.layers=cpu", "model.layers=cuda:0" };

    for (size_t i = 0; i < 4; i++) {
        decoded_setup s = setup_of("llama", BERTH_ENCODING_NATIVE, 0);
        berth_error error;
        llama_run *run = NULL;
        llama_run_options options;
        ready *r;

        s.max_memory = "0=64MiB,cpu=1GiB";
        s.devices = "sim:64MiB";
        s.pins[0] = pins[i % 2];
        r = prepare(&s);
        options = r->options;
        options.devices = NULL;
        options.compute = i < 2 ? LLAMA_COMPUTE_HOST : LLAMA_COMPUTE_DEVICE;
        CHECK_EQ(llama_run_create(&options, &run, &error), BERTH_EUNSUPPORTED);
        CHECK_CONTAINS(error.message, "give them with --devices");
        dismiss(r);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_native);
    T_RUN(test_4bit);
    T_RUN(test_int8);
    T_RUN(test_dtypes);
    T_RUN(test_biases);
    T_RUN(test_norms_of_two_dtypes);
    T_RUN(test_outliers);
    T_RUN(test_window);
    T_RUN(test_resident_on_a_device);
    T_RUN(test_streamed_from_host);
    T_RUN(test_streamed_from_disk);
    T_RUN(test_several_devices);
    T_RUN(test_head_on_a_device_of_its_own);
    T_RUN(test_many_logits);
    T_RUN(test_embeddings_elsewhere);
    T_RUN(test_experts_apart);
    T_RUN(test_experts_encoded);
    T_RUN(test_faults);
    T_RUN(test_memory_of_devices);
    T_RUN(test_devices_of_the_load_alone);
    T_MAIN_END;
}
