/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_device.c - conversions that a device encodes for: the files are those of the
 * processor, whatever the device, the model and the pieces; its memory is what was said; and
 * what goes wrong leaves nothing.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/fault.h"
#include "tests/converted.h"
#include "tests/fake_cuda.h"
#include "tests/fixture.h"
#include "tests/gpu_faults.h"
#include "tests/loaded.h"
#include "tests/simt.h"
#include "tests/stacked.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define NAME "model.layers.0.a.weight"

static const fake_cuda_machine machine = { .count = 2, .driver = 13000, .architecture = 90,
                                           .memory_bytes = 64 * MIB, .is_late = true };

typedef struct target {
    int32_t type;
    int32_t dtype;
    int32_t double_quant;
    uint32_t block_size;
    uint64_t unit_values; /* 0: as large as ever */
    uint64_t max_shard_bytes;
    uint32_t workers;
} target;

static const target targets[] = {
    { BERTH_ENCODING_NF4, -1, 0, 64, 0, 0, 0 },
    { BERTH_ENCODING_NF4, BERTH_F32, 1, 32, 512, 5000, 3 },
    { BERTH_ENCODING_FP4, BERTH_F16, 1, 128, 1024, 0, 1 },
    { BERTH_ENCODING_FP4, -1, 0, 4096, 100, 8192, 4 },
    { BERTH_ENCODING_INT8, -1, 0, 0, 64, 0, 2 },
    { BERTH_ENCODING_INT8, BERTH_BF16, 0, 0, 0, 5000, 0 },
};
#define TARGETS (sizeof targets / sizeof *targets)
/* Where threads are watched, each model has every third target, the next one others. */
#define ONE_OF (T_HAS_THREADS_WATCHED ? 3u : 1u)

static void
begin(converted *c, const target *t)
{
    converted_begin(c, fixture_format("%s/out", fixture_folder()), t->type);
    c->options.dtype = t->dtype;
    c->options.double_quant = t->double_quant;
    c->options.block_size = t->block_size;
    c->options.max_shard_bytes = t->max_shard_bytes;
    c->options.workers = t->workers;
    c->options.takes_experts = t->type != BERTH_ENCODING_INT8;
    if (t->unit_values > 0)
        converted_shrink(c, t->unit_values);
}

static bool
is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ------------------------------------------------------------------- the same bytes */

/* By the processor, and by what the words describe. */
static void
check_same(const char *model, const target *t, const char *words, bool is_fake)
{
    converted there;
    converted here;

    begin(&here, t);
    begin(&there, t);
    there.devices = words;
    there.cuda = is_fake ? fake_cuda_calls() : NULL;
    converted_check_device(&here, &there, model);
    CHECK_EQ(there.device_peak > 0,
             strncmp(words, "cpu", 3) != 0 && here.report.quantized > here.report.kept);
}

/* Odd shapes and numbers that are none, decoded, cast and turned on the way. */
static const char *
model_of(uint32_t number)
{
    stacked_sizes experts = stacked_small;

    switch (number) {
    case 0: return converted_make_model(7, 3, true, false);
    case 1: return converted_make_model(11, 5, false, true);
    case 2: return loaded_gpt2("BF16", 64, 1);
    case 3: return loaded_gpt2("F32", 32, 2);
    default:
        experts.layers = 1;
        experts.is_mxfp4 = number == 5;
        return stacked_make(&experts);
    }
}

static void
test_simulated(void)
{
    static const char *const words[] = {
        "cpu",
        "sim:64MiB,h2d=25GB/s",
        "sim:64MiB,clock=real,backing=sealed",
        "sim:64MiB,pin=0",
        "sim:64MiB,backing=digest",
        "sim:64MiB,pin=20KiB,pick=random,touch=end",
    };

    for (uint32_t m = 0; m < 6; m++) {
        const char *const model = model_of(m);

        for (uint32_t i = m % ONE_OF; i < TARGETS; i += ONE_OF)
            check_same(model, &targets[i], words[(i + m) % 6], false);
    }
}

/* The bodies of the kernels, on a runtime that does everything late. */
static void
test_kernels(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (uint32_t m = 0; m < 6; m += m == 0 ? 2 : 3) {
        const char *const model = model_of(m);

        for (uint32_t i = 1 + m / 2 % ONE_OF; i < TARGETS; i += ONE_OF) {
            fake_cuda_begin(&machine);
            check_same(model, &targets[i], "cuda:1", true);
            CHECK_GT(fake_cuda_read().launches, 0);
            fake_cuda_check_empty();
            CHECK_EQ(fake_cuda_error_left(), 0);
            CHECK_EQ(fake_cuda_current(), 0);
            fake_cuda_end();
        }
    }
}

/* Of a GPU that this machine has, all of its encodings; the reciprocals are its own. */
static void
test_gpu(void)
{
    const char *const model = model_of(0);

    if (!converted_has_gpu())
        T_SKIP("no GPU on this machine");
    for (uint32_t i = 0; i < TARGETS; i++)
        check_same(model, &targets[i], "cuda:0", false);
}

/* What is stored as is asked for is copied: the device has nothing to do. */
static void
test_kept(void)
{
    converted first;
    converted again;

    begin(&first, &targets[0]);
    CHECK_EQ(converted_run(&first, model_of(1)), BERTH_OK);
    begin(&again, &targets[0]);
    again.devices = "sim:64MiB";
    CHECK_EQ(converted_run(&again, first.options.output), BERTH_OK);
    CHECK_EQ(again.report.kept, first.report.quantized);
    CHECK_EQ(again.report.device_memory, 0);
    CHECK_EQ(again.device_peak, 0);
    /* Decoded and encoded anew, it does. */
    check_same(first.options.output, &targets[4], "sim:64MiB,clock=real", false);
}

/* --------------------------------------------------------------------------- memory */

/* A worker has values, codes and maxima of one piece there, each in whole 256 bytes. */
static void
test_memory(void)
{
    static const char *const shapes[] = { "64x64", "256x64", "1024x640" };
    static const target t = { BERTH_ENCODING_NF4, -1, 1, 64, 4096, 0, 3 };
    converted c;

    for (uint32_t i = 0; i < 3; i++) {
        const char *const model = converted_source(
            fixture_format("BF16 %s " NAME "\nF32 9 model.norm.weight", shapes[i]));

        begin(&c, &t);
        c.devices = "sim:64MiB";
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_EQ(c.report.device_memory, 3 * (8192 + 2048 + 256));
        CHECK_LE(c.device_peak, c.report.device_memory);
        CHECK_EQ(c.device_peak % (8192 + 2048 + 256), 0);
        c.options.overwrite = 1;
        c.options.dry_run = 1;
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_EQ(c.report.device_memory, 3 * (8192 + 2048 + 256));
        CHECK_EQ(c.device_peak, 0);
    }
    /* A row of INT8 is the least that can be encoded. */
    begin(&c, &targets[4]);
    c.devices = "sim:64MiB";
    CHECK_EQ(converted_run(&c, converted_source("F16 3x1000 " NAME)), BERTH_OK);
    CHECK_EQ(c.report.device_memory, 2 * (2048 + 1024 + 256));
    /* Experts of MXFP4 are decoded as a whole, and encoded in pieces. */
    begin(&c, &(target){ BERTH_ENCODING_NF4, -1, 0, 64, 1024, 0, 1 });
    c.devices = "sim:64MiB";
    CHECK_EQ(converted_run(&c, model_of(5)), BERTH_OK);
    CHECK_EQ(c.report.device_memory, 2048 + 512 + 256);
}

/* Who waits for a device needs no core: there are some workers on any machine. */
static void
test_workers(void)
{
    converted c;

    begin(&c, &(target){ BERTH_ENCODING_NF4, -1, 0, 64, 1024, 0, 0 });
    c.devices = "sim:64MiB";
    CHECK_EQ(converted_run(&c, converted_source("BF16 64x64 " NAME)), BERTH_OK);
    CHECK_GE(c.report.device_memory, 4 * (2048 + 512 + 256));
}

/* ------------------------------------------------------------------------ what fails */

/* Nothing is left, and the processor can do it after all. */
static void
check_failure(converted *c, const char *model, berth_status status, const char *words)
{
    CHECK_EQ(converted_run(c, model), status);
    CHECK_CONTAINS(c->error.message, words);
    CHECK(!is_there(c->options.output));
    c->devices = NULL;
    c->options.devices = NULL;
    CHECK_EQ(converted_run(c, model), BERTH_OK);
}

static void
test_refused(void)
{
    static const fake_cuda_machine old = { .count = 1, .driver = 13000, .architecture = 30,
                                           .memory_bytes = 64 * MIB };
    const char *const model = converted_source("BF16 640x640 " NAME "\nF32 9 model.norm.weight");
    converted c;

    begin(&c, &targets[0]);
    c.devices = "sim:64MiB";
    c.options.device = 1;
    check_failure(&c, model, BERTH_EINVAL, "has a device that is none of its devices");
    /* Room for the ring's pins, and none for values. */
    begin(&c, &targets[0]);
    c.devices = "sim:2MiB,steal=2MiB";
    check_failure(&c, model, BERTH_ENOFIT, "sim:0");
    fake_cuda_begin(&old);
    begin(&c, &targets[4]);
    c.devices = "cuda";
    c.cuda = fake_cuda_calls();
    CHECK_EQ(converted_run(&c, model), BERTH_EUNSUPPORTED);
    CHECK_STR(c.error.tensor, NAME);
    CHECK_CONTAINS(c.error.message, "has no kernel of this build that makes int8: leave the "
                                    "device out");
    CHECK_CONTAINS(c.error.message, "cuda:0, Fake GPU");
    CHECK(!is_there(c.options.output));
    /* That it has none for what nobody needs there is no matter. */
    converted_begin(&c, c.options.output, BERTH_ENCODING_NATIVE);
    c.devices = "cuda";
    c.cuda = fake_cuda_calls();
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    fake_cuda_end();
}

/*
 * The device is lost with its n-th call. What was finished before stays for a resume, by
 * whatever device.
 */
static void
test_lost(void)
{
    static const target t = { BERTH_ENCODING_NF4, -1, 1, 64, 1024, 5000, 2 };
    const char *const model = model_of(1);
    uint64_t lost = 0;
    converted here;
    converted c;

    begin(&here, &t);
    CHECK_EQ(converted_run(&here, model), BERTH_OK);
    for (uint64_t nth = 1;; nth += 1 + nth / 8) {
        begin(&c, &t);
        c.devices = fixture_format("sim:64MiB,lose=%d", (int)nth);
        if (converted_run(&c, model) == BERTH_OK)
            break;
        lost++;
        CHECK_EQ(c.error.status, BERTH_ENODEV);
        CHECK_EQ(c.error.reason, BERTH_REASON_DEVICE_LOST);
        CHECK_CONTAINS(c.error.message, "sim:0");
        CHECK(!is_there(fixture_format("%s/model.safetensors.index.json",
                                       c.options.output)));
        c.options.resume = 1;
        c.devices = lost % 2 == 0 ? NULL : "sim:64MiB,clock=real";
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK(converted_is_same(c.options.output, here.options.output));
    }
    CHECK_GT(lost, 20);
    CHECK(converted_is_same(c.options.output, here.options.output));
}

/* A failure in the middle of a piece is said of its tensor. */
static void
test_where(void)
{
    converted c;

    fake_cuda_begin(&machine);
    begin(&c, &targets[0]);
    c.devices = "cuda";
    c.cuda = fake_cuda_calls();
    fake_cuda_fail_kernel(719);
    CHECK_EQ(converted_run(&c, converted_source("BF16 64x64 " NAME)), BERTH_ENODEV);
    CHECK_STR(c.error.tensor, NAME);
    CHECK_CONTAINS(c.error.file, "model.safetensors");
    CHECK_CONTAINS(c.error.message, "cuda:0");
    CHECK(!is_there(c.options.output));
    fake_cuda_end();
}

/* Parts of one output, each by another device. */
static void
test_parts(void)
{
    const char *const model = model_of(1);
    converted here;
    converted c;

    begin(&here, &targets[1]);
    CHECK_EQ(converted_run(&here, model), BERTH_OK);
    begin(&c, &targets[1]);
    c.options.part_count = 2;
    c.is_bare = true;
    for (c.options.part = 1; c.options.part <= 2; c.options.part++) {
        c.devices = c.options.part == 1 ? "sim:64MiB" : NULL;
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
    }
    CHECK_EQ(c.report.is_joined, 1);
    CHECK(converted_is_same(c.options.output, here.options.output));
}

/* --------------------------------------------------------------------------- faults */

/* A model of which every kind of value is encoded, and what is said of one that failed. */
static berth_status
convert_once(const char *words, const berthi_cuda_calls *cuda, berth_context *context,
             berth_error *error)
{
    static const target t = { BERTH_ENCODING_NF4, -1, 1, 64, 2048, 0, 2 };
    static const char *model;
    berth_status status;
    converted c;

    if (model == NULL)
        model = converted_source("BF16 64x64 " NAME "\nF32 70x64 model.layers.1.b.weight\n"
                                 "F32 9 model.norm.weight");
    begin(&c, &t);
    c.devices = words;
    c.cuda = cuda;
    status = converted_run_in(&c, context, model);
    if (error != NULL)
        *error = c.error;
    /* What is finished without being published is kept for a resume; and a system may fail
     * behind that. */
    if (berthi_fault_failures(BERTHI_FAULT_SYSTEM) == 0)
        CHECK_EQ(is_there(fixture_format("%s/model.safetensors", c.options.output)),
                 status == BERTH_OK);
    fixture_remove(c.options.output);
    return status;
}

static berth_status
convert_simulated(void *words, berth_context *context, berth_error *error)
{
    return convert_once(words, NULL, context, error);
}

static void
test_faults(void)
{
    static char late[] = "sim:64MiB,clock=real";
    static char early[] = "sim:64MiB";
    const fault_counts device = fault_loop_devices("a device", convert_simulated, early);
    const fault_counts any = fault_loop("host", convert_simulated, late);

    CHECK_GT(device.device, 30);
    CHECK_GT(any.memory, 100);
    CHECK_LT(any.survived, any.runs / 2);
}

static berth_status
convert_on_fake(void *user, berth_context *context, berth_error *error)
{
    (void)user;
    return convert_once("cuda:0", fake_cuda_calls(), context, error);
}

static void
test_runtime_faults(void)
{
    static const int codes[] = { 1, 2, 719 }; /* refused, out of memory, the GPU's end */
    static const gpu_faults faults = { .function = convert_on_fake, .machine = &machine,
                                       .stride = 1, .least = 30 };
    gpu_tally count = { .injections = 0 };

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    gpu_fail_all(&faults, codes, 3, &count);
    CHECK_GT(count.lost, 10);
    T_NOTE("%d failures, %d survived, %d with a lost GPU", (int)count.injections,
           (int)count.survived, (int)count.lost);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_simulated);
    T_RUN(test_kernels);
    T_RUN(test_gpu);
    T_RUN(test_kept);
    T_RUN(test_memory);
    T_RUN(test_workers);
    T_RUN(test_refused);
    T_RUN(test_lost);
    T_RUN(test_where);
    T_RUN(test_parts);
    T_RUN(test_faults);
    T_RUN(test_runtime_faults);
    T_MAIN_END;
}
