/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_decode.c - plain weights that a device decodes: the files are those of the
 * processor, whatever the device, the model, the encoding and the pieces; its memory is what
 * was said; and what goes wrong leaves nothing.
 */
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

/* How a model is stored, and what becomes of it. */
typedef struct target {
    int32_t stored;
    int32_t double_quant;
    uint32_t block_size;
    int32_t dtype;        /* of the plain weights; -1: as config.json says */
    uint64_t unit_values; /* 0: as large as ever */
    uint32_t workers;
} target;

static const target targets[] = {
    { BERTH_ENCODING_NF4, 0, 64, -1, 0, 0 },
    { BERTH_ENCODING_NF4, 1, 32, BERTH_F32, 333, 3 },
    { BERTH_ENCODING_FP4, 1, 128, BERTH_F16, 1001, 1 },
    { BERTH_ENCODING_FP4, 0, 4096, BERTH_BF16, 100, 4 },
    { BERTH_ENCODING_INT8, 0, 0, -1, 77, 2 },
    { BERTH_ENCODING_INT8, 0, 0, BERTH_F32, 0, 0 },
};
#define TARGETS (sizeof targets / sizeof *targets)
/* Under sanitizers each model has some of the targets, the next one others. */
#define ONE_OF (T_HAS_THREADS_WATCHED ? 4u : T_IS_SANITIZED ? 2u : 1u)

static bool
is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The model, quantized as the target has it; its folder. */
static const char *
quantize(const char *model, const target *t)
{
    converted c;

    converted_begin(&c, fixture_format("%s/stored", fixture_folder()), t->stored);
    c.options.double_quant = t->double_quant;
    c.options.block_size = t->block_size;
    c.options.takes_experts = t->stored != BERTH_ENCODING_INT8;
    c.is_bare = true;
    if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
        T_NOTE("%s: %s %s", model, c.error.tensor, c.error.message);
    CHECK_GT(c.report.quantized, 0);
    return c.options.output;
}

static void
begin(converted *c, const target *t)
{
    converted_begin(c, fixture_format("%s/out", fixture_folder()), BERTH_ENCODING_NATIVE);
    c->options.dtype = t->dtype;
    c->options.workers = t->workers;
    if (t->unit_values > 0)
        converted_shrink(c, t->unit_values);
}

/* ------------------------------------------------------------------- the same bytes */

/* By the processor, and by what the words describe. */
static void
check_same(const char *stored, const target *t, const char *words, bool is_fake)
{
    converted there;
    converted here;

    begin(&here, t);
    begin(&there, t);
    there.devices = words;
    there.cuda = is_fake ? fake_cuda_calls() : NULL;
    converted_check_device(&here, &there, stored);
    CHECK_EQ(there.device_peak > 0, strncmp(words, "cpu", 3) != 0);
}

/* Odd shapes and numbers that are none; weights that are turned back; stacks of experts. */
static const char *
model_of(uint32_t number)
{
    stacked_sizes experts = stacked_small;

    switch (number) {
    case 0: return converted_make_model(7, 3, true, false);
    case 1: return converted_make_model(11, 5, false, true);
    case 2: return loaded_gpt2("BF16", 64, 1);
    default: experts.layers = 1; return stacked_make(&experts);
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
        "sim:64MiB,pin=20KiB,pick=random,touch=end",
    };

    for (uint32_t m = 0; m < 4; m++) {
        const char *const model = model_of(m);

        for (uint32_t i = m % ONE_OF; i < TARGETS; i += ONE_OF)
            check_same(quantize(model, &targets[i]), &targets[i], words[(i + m) % 5], false);
    }
}

/* The bodies of the kernels, on a runtime that does everything late. */
static void
test_kernels(void)
{
    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    for (uint32_t m = 0; m < 3; m += 2) {
        const char *const model = model_of(m);

        for (uint32_t i = m / 2 % ONE_OF; i < TARGETS; i += ONE_OF) {
            const char *const stored = quantize(model, &targets[i]);

            fake_cuda_begin(&machine);
            check_same(stored, &targets[i], "cuda:1", true);
            CHECK_GT(fake_cuda_read().launches, 0);
            fake_cuda_check_empty();
            CHECK_EQ(fake_cuda_error_left(), 0);
            CHECK_EQ(fake_cuda_current(), 0);
            fake_cuda_end();
        }
    }
}

/* Of a GPU that this machine has. */
static void
test_gpu(void)
{
    const char *const model = model_of(0);

    if (!converted_has_gpu())
        T_SKIP("no GPU on this machine");
    for (uint32_t i = 0; i < TARGETS; i++)
        check_same(quantize(model, &targets[i]), &targets[i], "cuda:0", false);
}

/* Other encodings, and what is encoded anew, the processor decodes; plain weights nobody. */
static void
test_by_the_processor(void)
{
    stacked_sizes experts = stacked_small;
    const char *models[2];
    const char *stored;
    converted c;

    experts.layers = 1;
    experts.is_mxfp4 = true;
    models[0] = stacked_make(&experts);
    models[1] = model_of(1);
    for (uint32_t i = 0; i < 2; i++) {
        begin(&c, &targets[0]);
        c.devices = "sim:64MiB";
        CHECK_EQ(converted_run(&c, models[i]), BERTH_OK);
        CHECK_EQ(c.report.device_memory, 0);
        CHECK_EQ(c.device_peak, 0);
    }
    stored = quantize(models[1], &targets[1]);
    begin(&c, &targets[0]);
    c.options.type = BERTH_ENCODING_NF4;
    c.options.block_size = 64;
    c.devices = "sim:64MiB";
    CHECK_EQ(converted_run(&c, stored), BERTH_OK);
    CHECK_GT(c.device_peak, 0); /* which encodes */
}

/* --------------------------------------------------------------------------- memory */

/* A worker has values, codes and maxima of one piece there, each in whole 256 bytes. */
static void
test_memory(void)
{
    /* With one that a piece begins behind, and of blocks, or rows, one more than fit. */
    static const struct {
        target t;
        const char *shape;
        uint64_t bytes;
    } cases[] = {
        { { BERTH_ENCODING_NF4, 1, 64, BERTH_BF16, 4096, 3 }, "64x64",
          8192 + 256 + 2304 + 512 },
        { { BERTH_ENCODING_NF4, 0, 64, BERTH_F32, 4096, 2 }, "256x64",
          16384 + 256 + 2304 + 512 },
        { { BERTH_ENCODING_INT8, 0, 0, BERTH_BF16, 2048, 1 }, "64x128", 4096 + 2048 + 256 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const plain = converted_source(
            fixture_format("BF16 %s " NAME "\nF32 9 model.norm.weight", cases[i].shape));
        const char *const stored = quantize(plain, &cases[i].t);
        converted c;

        begin(&c, &cases[i].t);
        c.devices = "sim:64MiB";
        CHECK_EQ(converted_run(&c, stored), BERTH_OK);
        CHECK_EQ(c.report.device_memory, cases[i].t.workers * cases[i].bytes);
        CHECK_LE(c.device_peak, c.report.device_memory);
        CHECK_EQ(c.device_peak % cases[i].bytes, 0);
        c.options.overwrite = 1;
        c.options.dry_run = 1;
        CHECK_EQ(converted_run(&c, stored), BERTH_OK);
        CHECK_EQ(c.report.device_memory, cases[i].t.workers * cases[i].bytes);
        CHECK_EQ(c.device_peak, 0);
    }
}

/* ------------------------------------------------------------------------ what fails */

static void
test_refused(void)
{
    static const fake_cuda_machine old = { .count = 1, .driver = 13000, .architecture = 30,
                                           .memory_bytes = 64 * MIB };
    const char *const stored =
        quantize(converted_source("BF16 64x64 " NAME "\nF32 9 model.norm.weight"), &targets[0]);
    converted c;

    fake_cuda_begin(&old);
    begin(&c, &targets[0]);
    c.devices = "cuda";
    c.cuda = fake_cuda_calls();
    CHECK_EQ(converted_run(&c, stored), BERTH_EUNSUPPORTED);
    CHECK_STR(c.error.tensor, NAME);
    CHECK_CONTAINS(c.error.message, "has no kernel of this build that decodes nf4: leave the "
                                    "device out");
    CHECK(!is_there(c.options.output));
    fake_cuda_end();
    begin(&c, &targets[0]);
    c.devices = "sim:2MiB,steal=2MiB";
    CHECK_EQ(converted_run(&c, stored), BERTH_ENOFIT);
    CHECK_CONTAINS(c.error.message, "sim:0");
    CHECK(!is_there(c.options.output));
}

/* A failure in the middle of a piece is said of its tensor. */
static void
test_where(void)
{
    const char *const stored = quantize(converted_source("BF16 64x64 " NAME), &targets[0]);
    converted c;

    fake_cuda_begin(&machine);
    begin(&c, &targets[0]);
    c.devices = "cuda:0";
    c.cuda = fake_cuda_calls();
    fake_cuda_fail_kernel(719);
    CHECK_EQ(converted_run(&c, stored), BERTH_ENODEV);
    CHECK_STR(c.error.tensor, NAME);
    CHECK_CONTAINS(c.error.file, "model.safetensors");
    CHECK_CONTAINS(c.error.message, "cuda:0");
    CHECK(!is_there(c.options.output));
    fake_cuda_end();
}

/* The device is lost with its n-th call: the processor or another one resumes. */
static void
test_lost(void)
{
    static const target t = { BERTH_ENCODING_NF4, 1, 64, BERTH_F32, 1024, 2 };
    const char *const stored = quantize(model_of(1), &t);
    uint64_t lost = 0;
    converted here;
    converted c;

    begin(&here, &t);
    here.options.max_shard_bytes = 5000;
    CHECK_EQ(converted_run(&here, stored), BERTH_OK);
    for (uint64_t nth = 1;; nth += 1 + nth / 8) {
        begin(&c, &t);
        c.options.max_shard_bytes = 5000;
        c.devices = fixture_format("sim:64MiB,lose=%d", (int)nth);
        if (converted_run(&c, stored) == BERTH_OK)
            break;
        lost++;
        CHECK_EQ(c.error.reason, BERTH_REASON_DEVICE_LOST);
        CHECK(!is_there(fixture_format("%s/model.safetensors.index.json",
                                       c.options.output)));
        c.options.resume = 1;
        c.devices = lost % 2 == 0 ? NULL : "sim:64MiB,clock=real";
        CHECK_EQ(converted_run(&c, stored), BERTH_OK);
        CHECK(converted_is_same(c.options.output, here.options.output));
    }
    CHECK_GT(lost, 20);
    CHECK(converted_is_same(c.options.output, here.options.output));
}

/* --------------------------------------------------------------------------- faults */

static const char *stored_once;

static berth_status
convert_once(const char *words, const berthi_cuda_calls *cuda, berth_context *context,
             berth_error *error)
{
    static const target t = { BERTH_ENCODING_NF4, 1, 64, BERTH_BF16, 2048, 2 };
    berth_status status;
    converted c;

    begin(&c, &t);
    c.devices = words;
    c.cuda = cuda;
    status = converted_run_in(&c, context, stored_once);
    if (error != NULL)
        *error = c.error;
    if (berthi_fault_failures(BERTHI_FAULT_SYSTEM) == 0)
        CHECK_EQ(is_there(fixture_format("%s/model.safetensors", c.options.output)),
                 status == BERTH_OK);
    fixture_remove(c.options.output);
    return status;
}

static void
prepare_once(void)
{
    static const target t = { BERTH_ENCODING_NF4, 1, 64, BERTH_BF16, 0, 1 };

    if (stored_once == NULL)
        stored_once = quantize(
            converted_source("BF16 64x64 " NAME "\nBF16 70x64 model.layers.1.b.weight\n"
                             "F32 9 model.norm.weight"),
            &t);
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
    fault_counts device;
    fault_counts any;

    prepare_once();
    device = fault_loop_devices("a device", convert_simulated, early);
    any = fault_loop("host", convert_simulated, late);
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
    prepare_once();
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
    T_RUN(test_by_the_processor);
    T_RUN(test_memory);
    T_RUN(test_refused);
    T_RUN(test_where);
    T_RUN(test_lost);
    T_RUN(test_faults);
    T_RUN(test_runtime_faults);
    T_MAIN_END;
}
