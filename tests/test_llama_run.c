/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_llama_run.c - the decoder's logits against those of the reference library, for
 * every encoding, and the same bits wherever the weights lie.
 *
 * tests/data/llama: models with random weights as transformers saved them, logits as it
 * computed them in 32-bit floats.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/decoded.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tools/llama_math.h"
#include "tools/llama_run.h"

#define DATA DECODED_DATA

typedef decoded_setup setup;

/* ----------------------------------------------------------------------- encodings */

static const char *const models[] = { "llama", "qwen3", "mixtral", "qwen3_moe" };

#define EACH_MODEL(i) for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)

static void
test_native(void)
{
    EACH_MODEL(i)
    decoded_check_near(&(setup){ .model = models[i], .cache_dtype = BERTH_F32 }, "source_fp32");
}

static void
test_nf4(void)
{
    decoded_check_near(&(setup){ .model = "llama", .type = BERTH_ENCODING_NF4,
                         .cache_dtype = BERTH_F32 },
               "nf4_dequant_fp32");
    decoded_check_near(&(setup){ .model = "mixtral", .type = BERTH_ENCODING_NF4,
                         .cache_dtype = BERTH_F32 },
               "nf4_dequant_fp32");
    decoded_check_near(&(setup){ .model = "qwen3_moe", .type = BERTH_ENCODING_NF4,
                         .cache_dtype = BERTH_F32 },
               "nf4_dequant_fp32");
}

static void
test_nf4_double(void)
{
    EACH_MODEL(i)
    decoded_check_near(&(setup){ .model = models[i], .type = BERTH_ENCODING_NF4, .double_quant = 1,
                         .cache_dtype = BERTH_F32 },
               "nf4_dq_dequant_fp32");
}

/*
 * Recorded with the codes of a correctly rounded reciprocal. Those that berth makes, a GPU's, are
 * others in qwen3: the library's are read there.
 */
static void
test_int8(void)
{
    EACH_MODEL(i)
    {
        const bool is_read = strcmp(models[i], "qwen3") == 0;

        decoded_check_near(&(setup){ .model = models[i],
                                     .folder = is_read ? DATA "qwen3_int8" : NULL,
                                     .type = is_read ? BERTH_ENCODING_NATIVE : BERTH_ENCODING_INT8,
                                     .cache_dtype = BERTH_F32 },
                           "int8_dequant_fp32");
    }
}

/*
 * The codes that berth makes of qwen3: with a GPU's reciprocal, 21 of 170,496 are one more or
 * less. That moves logits by 2.6e-4 at most, which is more than sums in another order do, and a
 * thirtieth of what int8 itself does to them.
 */
static void
test_own_int8(void)
{
    uint64_t bytes;
    float *const recorded = decoded_read("qwen3", "int8_dequant_fp32", &bytes);
    float *const source = decoded_read("qwen3", "source_fp32", &bytes);
    decoded out = decoded_compute(&(setup){ .model = "qwen3", .type = BERTH_ENCODING_INT8,
                                            .cache_dtype = BERTH_F32 });
    const size_t count = bytes / sizeof *recorded;

    if (out.logits != NULL) {
        const decoded_distance own = decoded_distance_of(out.logits, recorded, count);
        const decoded_distance all = decoded_distance_of(source, recorded, count);

        if (!CHECK(own.largest <= 3e-4) || !CHECK(20 * own.largest <= all.largest)
            || !CHECK(20 * own.rms <= all.rms))
            t_note("%g, %g of %g, %g", own.largest, own.rms, all.largest, all.rms);
    }
    free(out.logits);
    free(source);
    free(recorded);
}

/* Twice as far from floats as the library itself, at most. */
static void
test_int8_activations(void)
{
    EACH_MODEL(i)
    {
        uint64_t bytes;
        float *const floats = decoded_read(models[i], "int8_dequant_fp32", &bytes);
        float *const library = decoded_read(models[i], "int8_library_bf16", &bytes);
        decoded out = decoded_compute(&(setup){ .model = models[i], .type = BERTH_ENCODING_INT8,
                                        .cache_dtype = BERTH_F32,
                                        .has_int8_inputs = true });
        const size_t count = bytes / sizeof *floats;

        if (out.logits != NULL) {
            const decoded_distance ours = decoded_distance_of(out.logits, floats, count);
            const decoded_distance theirs = decoded_distance_of(library, floats, count);

            if (!CHECK(ours.largest <= 2 * theirs.largest)
                || !CHECK(ours.rms <= 2 * theirs.rms) || !CHECK(ours.rms > 0))
                t_note("%s: %g, %g", models[i], ours.largest, ours.rms);
        }
        free(out.logits);
        free(library);
        free(floats);
    }
}

/* -------------------------------------------------------------------------- places */

static void
test_batches_and_threads(void)
{
    EACH_MODEL(i)
    {
        const setup one = { .model = models[i], .type = BERTH_ENCODING_NF4,
                            .cache_dtype = BERTH_F32, .threads = 1 };
        setup other = one;

        other.threads = 3;
        other.batch = 5;
        decoded_check_same(&one, &other, NULL);
        other.threads = 2;
        other.batch = 1;
        decoded_check_same(&one, &other, NULL);
    }
}

/* Shorter keys and values are near, not the same. */
static void
test_cache_dtypes(void)
{
    const int32_t dtypes[] = { BERTH_BF16, BERTH_F16 };
    decoded exact = decoded_compute(&(setup){ .model = "llama", .cache_dtype = BERTH_F32 });

    for (size_t i = 0; i < 2; i++) {
        decoded out = decoded_compute(&(setup){ .model = "llama", .cache_dtype = dtypes[i] });

        if (out.logits != NULL && exact.logits != NULL) {
            const decoded_distance d = decoded_distance_of(out.logits, exact.logits,
                                           (size_t)out.count * out.vocab);

            CHECK(d.largest > 0 && d.largest < 1e-2);
        }
        free(out.logits);
    }
    free(exact.logits);
}

#define DEVICE "0=64MiB,cpu=1GiB,disk=inf"

/* The same bits as from host memory, for each model, as it is and as NF4. */
static void
check_place(const setup *place, bool is_streamed, bool is_from_disk)
{
    EACH_MODEL(i)
    for (int32_t nf4 = 0; nf4 < 2; nf4++) {
        berth_lease_summary leases;
        setup there = *place;
        setup here = { .model = models[i], .cache_dtype = BERTH_F32 };

        here.type = nf4 ? BERTH_ENCODING_NF4 : BERTH_ENCODING_NATIVE;
        here.double_quant = nf4;
        there.model = here.model;
        there.type = here.type;
        there.double_quant = here.double_quant;
        there.cache_dtype = here.cache_dtype;
        decoded_check_same(&here, &there, &leases);
        CHECK_EQ(leases.copied_bytes > 0, is_streamed);
        CHECK_EQ(leases.disk_bytes > 0, is_from_disk);
    }
}

static void
test_resident_on_a_device(void)
{
    check_place(&(setup){ .max_memory = DEVICE, .devices = "sim:64MiB" }, false, false);
}

static void
test_streamed_from_host(void)
{
    check_place(&(setup){ .max_memory = DEVICE, .devices = "sim:64MiB",
                          .pins = { "model.layers=cpu" }, .batch = 7 },
                true, false);
}

/* The disk gets what is encoded on the way: the same bits as from host memory. */
static void
check_encoded_for_the_disk(int32_t type, int32_t double_quant)
{
    const setup here = { .model = "llama",
                         .type = type,
                         .double_quant = double_quant,
                         .cache_dtype = BERTH_F32 };
    setup there = here;
    berth_lease_summary leases;

    there.pins[0] = "model.layers=disk";
    there.offload_dir = fixture_folder();
    there.max_memory = DEVICE;
    there.devices = "sim:64MiB";
    decoded_check_same(&here, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
    there.max_memory = "cpu=1GiB,disk=inf";
    there.devices = NULL;
    decoded_check_same(&here, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
}

static void
test_encoded_for_the_disk(void)
{
    check_encoded_for_the_disk(BERTH_ENCODING_NF4, 0);
    check_encoded_for_the_disk(BERTH_ENCODING_NF4, 1);
    check_encoded_for_the_disk(BERTH_ENCODING_INT8, 0);
}

/* A checkpoint that holds them so. */
static void
check_encoded_on_disk(int32_t type, int32_t double_quant, const char *recorded)
{
    berth_plan_options options;
    setup here = { .model = "llama", .cache_dtype = BERTH_F32 };
    setup there;
    berth_lease_summary leases;

    berth_plan_options_init(&options);
    options.type = type;
    options.double_quant = double_quant;
    here.folder = loaded_quantized(DATA "llama", &options);
    decoded_check_near(&here, recorded);
    there = here;
    there.max_memory = DEVICE;
    there.devices = "sim:64MiB";
    there.pins[0] = "model.layers=disk";
    decoded_check_same(&here, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
    there.pins[0] = "model.layers=cpu";
    decoded_check_same(&here, &there, &leases);
    CHECK_EQ(leases.disk_bytes, 0);
    CHECK_GT(leases.copied_bytes, 0);
    there = here;
    there.max_memory = "cpu=1GiB,disk=inf";
    there.pins[0] = "model.layers=disk";
    decoded_check_same(&here, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
}

static void
test_encoded_on_disk(void)
{
    check_encoded_on_disk(BERTH_ENCODING_NF4, 0, "nf4_dequant_fp32");
    check_encoded_on_disk(BERTH_ENCODING_NF4, 1, "nf4_dq_dequant_fp32");
    check_encoded_on_disk(BERTH_ENCODING_INT8, 0, "int8_dequant_fp32");
}

static void
test_streamed_from_disk(void)
{
    const setup native = { .model = "llama", .cache_dtype = BERTH_F32 };
    setup there = native;
    berth_lease_summary leases;

    there.max_memory = DEVICE;
    there.devices = "sim:64MiB";
    there.pins[0] = "model.layers=disk";
    decoded_check_same(&native, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
    there.pins[1] = "model.embed_tokens=disk";
    there.batch = 3;
    decoded_check_same(&native, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
}

/*
 * Experts in slots: fewer than a batch uses, from host memory and from the disk, on a
 * device and on the processor.
 */
static void
check_experts(const char *model, const char *const memory[3])
{
    for (size_t i = 0; i < 3; i++)
        for (uint32_t batch = 0; batch < 3; batch += 2) {
            const setup native = { .model = model, .cache_dtype = BERTH_F32 };
            setup there = native;
            berth_lease_summary leases;

            there.max_memory = memory[i];
            there.devices = i < 2 ? "sim:64MiB,h2d=1GB/s,jitter=50%,seed=1" : NULL;
            there.batch = batch;
            decoded_check_same(&native, &there, &leases);
            CHECK_GT(leases.experts_acquired, 20);
            CHECK_GT(leases.experts_filled, 1);
            CHECK_EQ(leases.expert_hits + leases.experts_filled, leases.experts_acquired);
            CHECK_EQ(leases.expert_disk_bytes, i > 0 ? leases.expert_bytes : 0);
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

static void
test_processor_with_disk(void)
{
    const setup native = { .model = "qwen3", .cache_dtype = BERTH_F32 };
    setup there = native;
    berth_lease_summary leases;

    there.max_memory = "cpu=1GiB,disk=inf";
    there.pins[0] = "model.layers=disk";
    decoded_check_same(&native, &there, &leases);
    CHECK_GT(leases.disk_bytes, 0);
}

static void
test_two_devices(void)
{
    check_place(&(setup){ .max_memory = "0=64MiB,1=64MiB,cpu=1GiB",
                          .devices = "sim:64MiB*2",
                          .pins = { "model.layers.0=cuda:0", "model.layers.1=cuda:1" } },
                false, false);
}

/* The final norm on one device, the head on another. */
static void
test_head_on_a_device_of_its_own(void)
{
    EACH_MODEL(i)
    {
        const bool is_tied = strcmp(models[i], "qwen3") == 0;
        const setup here = { .model = models[i], .cache_dtype = BERTH_F32 };
        setup there = here;

        there.max_memory = "0=64MiB,1=64MiB,cpu=1GiB";
        there.devices = "sim:64MiB*2";
        there.pins[0] = "model.norm=cuda:0";
        there.pins[1] = is_tied ? "model.embed_tokens=cuda:1" : "lm_head=cuda:1";
        decoded_check_same(&here, &there, NULL);
    }
}

/* A head that is stored although it is the embedding, which is brought for each pass. */
static void
test_tied_and_stored(void)
{
    const setup here = { .model = "llama",
                         .folder = decoded_rewritten("\"tie_word_embeddings\": false",
                                                     "\"tie_word_embeddings\": true"),
                         .cache_dtype = BERTH_F32 };
    setup there = here;
    berth_lease_summary leases;

    there.max_memory = DEVICE;
    there.devices = "sim:64MiB";
    there.pins[0] = "model.embed_tokens=cpu";
    decoded_check_same(&here, &there, &leases);
    CHECK_GT(leases.copied_bytes, 0);
}

/* ------------------------------------------------------------------------- families */

#define TYPE "\"model_type\": \"llama\""

/* Without windows and biases they are the same model. */
static void
test_mistral_and_qwen2(void)
{
    const setup llama = { .model = "llama", .cache_dtype = BERTH_F32 };
    setup other = llama;

    other.folder = decoded_rewritten(TYPE, "\"model_type\": \"mistral\", \"sliding_window\": null");
    decoded_check_same(&llama, &other, NULL);
    other.folder = decoded_rewritten(TYPE, "\"model_type\": \"qwen2\"");
    decoded_check_same(&llama, &other, NULL);
}

/* Eight positions, itself included: the ninth is the first that misses one. */
static void
test_window(void)
{
    const uint32_t window = 8;
    const setup llama = { .model = "llama", .cache_dtype = BERTH_F32 };
    setup other = llama;
    decoded x = decoded_compute(&llama);
    decoded y;

    other.folder = decoded_rewritten(TYPE, "\"model_type\": \"mistral\", \"sliding_window\": 8");
    y = decoded_compute(&other);
    if (x.logits != NULL && y.logits != NULL) {
        const size_t row = x.vocab * sizeof *x.logits;

        CHECK_MEM(x.logits, y.logits, window * row);
        for (uint32_t i = window; i < x.count; i++)
            CHECK(memcmp(x.logits + (size_t)i * x.vocab, y.logits + (size_t)i * x.vocab, row)
                  != 0);
    }
    other.batch = 3;
    decoded_check_same(&(setup){ .model = "llama", .folder = other.folder,
                         .cache_dtype = BERTH_F32 },
               &other, NULL);
    free(x.logits);
    free(y.logits);
}

/* ------------------------------------------------------------------------- refusals */

static void
test_refuses_tokens(void)
{
    llama_config *const config = malloc(sizeof *config);
    llama_run_options options = { .config = config, .capacity = 4,
                                  .cache_dtype = BERTH_F32 };
    const uint32_t good[5] = { 1, 2, 3, 4, 5 };
    const uint32_t bad[1] = { 160 };
    const setup s = { .model = "llama" };
    float *const logits = malloc(160 * sizeof *logits);
    berth_plan *plan = NULL;
    llama_run *r = NULL;
    uint32_t next;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &options.context, &error), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(options.context, DATA "llama", NULL, &options.checkpoint,
                                   &error),
             BERTH_OK);
    CHECK_EQ(llama_config_read(options.context, options.checkpoint, config, &error),
             BERTH_OK);
    CHECK_EQ(decoded_load(&s, options.context, options.checkpoint, NULL, &plan, &options.model,
                  &error),
             BERTH_OK);
    options.plan = plan;
    CHECK_EQ(llama_run_create(&options, &r, &error), BERTH_OK);
    CHECK_EQ(llama_run_feed(r, bad, 1, false, logits, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "160 is none: the vocabulary ends before 160");
    CHECK_EQ(llama_run_feed(r, good, 5, false, logits, &error), BERTH_EINVAL);
    CHECK_EQ(llama_run_feed(r, good, 0, false, logits, &error), BERTH_EINVAL);
    CHECK_EQ(llama_run_feed(r, good, 4, false, logits, &error), BERTH_OK);
    CHECK_EQ(llama_run_feed(r, good, 1, false, logits, &error), BERTH_EINVAL);
    CHECK_EQ(llama_run_step(r, good[0], logits, &next, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "1 behind 4 others: the sequence has room for 1 to 0");
    CHECK_EQ(llama_run_token_bytes(r),
             2 * (160 * 64 + 5 * 64
                      + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 272)));
    llama_run_destroy(r);
    llama_run_destroy(NULL);
    /* A configuration that promises other shapes. */
    config->inner = 271;
    CHECK_EQ(llama_run_create(&options, &r, &error), BERTH_EFORMAT);
    CHECK(r == NULL);
    CHECK_STR(error.tensor, "model.layers.0.mlp.gate_proj.weight");
    config->inner = 272;
    config->layers = 3;
    CHECK_EQ(llama_run_create(&options, &r, &error), BERTH_EFORMAT);
    CHECK_STR(error.tensor, "model.layers.2.input_layernorm.weight");
    CHECK_STR(error.message, "is missing");
    berth_model_destroy(options.model);
    berth_plan_destroy(plan);
    berth_checkpoint_close(options.checkpoint);
    berth_context_destroy(options.context);
    free(logits);
    free(config);
}

/* --------------------------------------------------------------------------- faults */

/* A run on a model that is there, from its making to its end. */
static berth_status
run_once(void *user, berth_context *context, berth_error *error)
{
    llama_run_options options = *(const llama_run_options *)user;
    const uint32_t tokens[3] = { 5, 6, 7 };
    float *const logits = malloc(options.config->vocab * sizeof *logits);
    llama_run *r;
    berth_status status;

    options.context = context;
    status = llama_run_create(&options, &r, error);
    CHECK_EQ(r == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = llama_run_feed(r, tokens, 3, false, logits, error);
    llama_run_destroy(r);
    free(logits);
    return status;
}

static void
test_faults(void)
{
    llama_config *const config = malloc(sizeof *config);
    llama_run_options options = { .config = config, .capacity = 4, .threads = 2,
                                  .cache_dtype = BERTH_F32 };
    const setup s = { .model = "llama", .type = BERTH_ENCODING_NF4 };
    berth_plan *plan = NULL;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &options.context, &error), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(options.context, DATA "llama", NULL, &options.checkpoint,
                                   &error),
             BERTH_OK);
    CHECK_EQ(llama_config_read(options.context, options.checkpoint, config, &error),
             BERTH_OK);
    CHECK_EQ(decoded_load(&s, options.context, options.checkpoint, NULL, &plan, &options.model,
                  &error),
             BERTH_OK);
    options.plan = plan;
    CHECK_GT(fault_loop("llama run", run_once, &options).memory, 20);
    berth_model_destroy(options.model);
    berth_plan_destroy(plan);
    berth_checkpoint_close(options.checkpoint);
    berth_context_destroy(options.context);
    free(config);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_native);
    T_RUN(test_nf4);
    T_RUN(test_nf4_double);
    T_RUN(test_int8);
    T_RUN(test_own_int8);
    T_RUN(test_int8_activations);
    T_RUN(test_batches_and_threads);
    T_RUN(test_cache_dtypes);
    T_RUN(test_resident_on_a_device);
    T_RUN(test_streamed_from_host);
    T_RUN(test_encoded_on_disk);
    T_RUN(test_encoded_for_the_disk);
    T_RUN(test_streamed_from_disk);
    T_RUN(test_experts_apart);
    T_RUN(test_processor_with_disk);
    T_RUN(test_two_devices);
    T_RUN(test_head_on_a_device_of_its_own);
    T_RUN(test_tied_and_stored);
    T_RUN(test_mistral_and_qwen2);
    T_RUN(test_window);
    T_RUN(test_refuses_tokens);
    T_RUN(test_faults);
    T_MAIN_END;
}
