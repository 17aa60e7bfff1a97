/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_turned.c - weights that lie the other way round in the encoding: a load turns
 * them as a conversion does.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define MIB     (UINT64_C(1) << 20)
#define LARGEST (UINT64_C(2) * 768 * 3072) /* of a GPT-2 of hidden size 768, in BF16 */

#define FC "transformer.h.0.mlp.c_fc.weight"

typedef struct encoding_case {
    int32_t type;
    int32_t is_double;
    int32_t dtype; /* -1: the model's */
} encoding_case;

static const encoding_case cases[] = {{BERTH_ENCODING_NF4, 0, -1},
                                      {BERTH_ENCODING_NF4, 1, BERTH_BF16},
                                      {BERTH_ENCODING_FP4, 1, -1},
                                      {BERTH_ENCODING_INT8, 0, BERTH_F16}};

#define CASES (sizeof cases / sizeof cases[0])

static berth_plan_options
options_of(const encoding_case *c, const char *max_memory)
{
    berth_plan_options options = loaded_options(max_memory);

    options.type = c->type;
    options.double_quant = c->is_double;
    options.dtype = c->dtype;
    return options;
}

/* Loads `source`: all digests are those of `folder`, and the library's check agrees. */
static void
check_load(const char *source, const char *folder, berth_plan_options *options,
           const char *words, uint32_t workers)
{
    berth_check_report report;
    loaded l;

    loaded_begin(&l, source, options, words);
    l.options.workers = workers;
    l.options.ring_bytes = UINT64_C(16) << 20;
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    if (l.status == BERTH_OK) {
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
        /* Each byte once, with the pages at the ends of chunks. */
        CHECK_LE(l.report.bytes_read, l.report.placed_bytes + 65536);
        loaded_check(&l, folder);
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_OK);
        CHECK_EQ(report.mismatches, 0);
        CHECK_EQ(report.tensors, l.p.summary.berth_count);
    }
    loaded_end(&l);
}

/* Matrices of several units, of one, and of odd sizes, in the processor's memory. */
static void
test_on_the_host(void)
{
    const char *const large = loaded_gpt2("BF16", 768, 2);
    const char *const odd = loaded_gpt2("F32", 67, 1);

    for (size_t i = 0; i < CASES; i++) {
        berth_plan_options options = options_of(&cases[i], "cpu=1GiB");

        check_load(large, loaded_quantized(large, &options), &options, NULL, 1);
        check_load(odd, loaded_quantized(odd, &options), &options, NULL, 3);
    }
}

static void
test_on_devices(void)
{
    static const char *const places[][2] = {
        {"0=64MiB,cpu=64MiB", "sim:64MiB,backing=sealed"},
        {"0=5MiB,1=64MiB,cpu=64MiB", "sim:64MiB,h2d=1GB/s,backing=sealed;sim:64MiB"}};
    const char *const large = loaded_gpt2("F32", 512, 1);

    for (size_t i = 0; i < CASES; i++)
        for (size_t j = 0; j < 2; j++) {
            berth_plan_options options = options_of(&cases[i], places[j][0]);

            check_load(large, loaded_quantized(large, &options), &options, places[j][1],
                       1 + 2 * (uint32_t)j);
        }
}

/* Several workers finish a matrix together: often, and in any order. */
static void
test_many_times(void)
{
    const char *const large = loaded_gpt2("BF16", 768, 1);
    berth_plan_options options = options_of(&cases[1], "cpu=1GiB");
    const char *const folder = loaded_quantized(large, &options);

    for (uint32_t i = 0; i < 6; i++)
        check_load(large, folder, &options, NULL, 2 + i % 3);
}

/*
 * Room for two of the largest, whatever the number of workers: the ledger's peak of what is
 * not berths, ring and tables. Whoever has placed a part of a weight is slow, so that others
 * have begun with all that they may.
 */
static void
be_slow(void *user, const berth_trace_event *event)
{
    (void)user;
    if (event->kind == BERTH_TRACE_PLACE)
        berthi_sys_sleep(UINT64_C(2000000));
}

static void
check_memory(const char *folder, berth_plan_options *options, const char *words)
{
    berth_memory_summary all;
    berth_memory scratch;
    berth_plan_tier cpu;
    loaded l;

    loaded_begin(&l, folder, options, words);
    l.p.context->trace = be_slow;
    l.options.workers = 6;
    l.options.ring_bytes = 32 * MIB;
    loaded_load(&l);
    l.p.context->trace = NULL;
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(l.report.turned_bytes, LARGEST * 2);
    CHECK_EQ(berth_plan_get_tier(l.p.plan, planned_tier(&l.p, "cpu"), &cpu), BERTH_OK);
    CHECK_EQ(cpu.turned, l.report.turned_bytes);
    CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_SCRATCH, &scratch), BERTH_OK);
    /* What stays is the plan's, in the slab; a worker has a few hundred bytes. */
    CHECK_GE(scratch.peak_bytes - scratch.current_bytes, LARGEST);
    CHECK_LE(scratch.peak_bytes - scratch.current_bytes, l.report.turned_bytes + 4096);
    berth_context_memory(l.p.context, &all);
    CHECK_LE(all.peak_bytes, l.report.allocated_bytes + l.report.ring_bytes
                                 + l.report.turned_bytes + MIB);
    loaded_end(&l);
}

static void
test_memory(void)
{
    const char *const folder = loaded_gpt2("BF16", 768, 1);

    for (size_t i = 0; i < CASES; i++) {
        berth_plan_options options = options_of(&cases[i], "cpu=64MiB");

        options.dtype = BERTH_BF16;
        check_memory(folder, &options, NULL);
        options.max_memory = "0=64MiB,cpu=64MiB";
        check_memory(folder, &options, "sim:64MiB");
    }
}

/* Host memory that has no room for it is refused by the plan, and enough to the byte is not. */
static void
test_memory_is_planned(void)
{
    const char *const folder = loaded_gpt2("BF16", 768, 1);
    berth_plan_options options = options_of(&cases[1], "cpu=64MiB");
    berth_plan_tier cpu;
    char budgets[2][32];
    planned p;

    planned_begin(&p, folder, &options);
    planned_check(&p);
    CHECK_EQ(berth_plan_get_tier(p.plan, 0, &cpu), BERTH_OK);
    CHECK_EQ(cpu.turned, LARGEST * 2);
    for (uint64_t i = 0; i < 2; i++)
        snprintf(budgets[i], sizeof budgets[i], "cpu=%llu",
                 (unsigned long long)(cpu.budget - cpu.free - i));
    planned_end(&p);
    for (uint64_t i = 0; i < 2; i++) {
        options.max_memory = budgets[i];
        planned_begin(&p, folder, &options);
        CHECK_EQ(p.status, i == 0 ? BERTH_OK : BERTH_ENOFIT);
        if (p.plan != NULL) {
            CHECK_EQ(berth_plan_get_tier(p.plan, 0, &cpu), BERTH_OK);
            CHECK_EQ(cpu.free, 0);
        }
        planned_end(&p);
    }
}

/* Rows and columns are those of what lies there. */
static void
test_shape(void)
{
    const char *const folder = loaded_gpt2("BF16", 128, 1);

    for (size_t i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options("cpu=1GiB");
        berth_model_tensor tensor;
        loaded l;

        options.type = i == 0 ? BERTH_ENCODING_INT8 : BERTH_ENCODING_NATIVE;
        loaded_begin(&l, folder, &options, NULL);
        loaded_load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        T_REQUIRE(berth_model_get_tensor(l.model,
                                         berth_model_find(l.model, FC, strlen(FC)),
                                         &tensor) == BERTH_OK);
        CHECK_EQ(tensor.shape[0], i == 0 ? 512 : 128);
        CHECK_EQ(tensor.shape[1], i == 0 ? 128 : 512);
        CHECK_EQ(tensor.elements, 512 * 128);
        if (i == 0)
            CHECK_EQ(tensor.parts[1].bytes, 512 * sizeof(float));
        loaded_end(&l);
    }
}

/* From one encoding to another: both are turned, so nothing has to be. */
static void
test_encoded_anew(void)
{
    const char *const source = loaded_gpt2("BF16", 256, 1);
    berth_plan_options options = options_of(&cases[0], "cpu=1GiB");
    const char *const folder = loaded_quantized(source, &options);

    check_load(folder, folder, &options, NULL, 2);
    options.type = BERTH_ENCODING_INT8;
    check_load(folder, loaded_quantized(folder, &options), &options, NULL, 2);
}

/* In the checkpoint of this folder: plain numbers, as they lay in the first place. */
static void
check_is_plain(const char *folder, uint32_t hidden)
{
    berth_checkpoint *checkpoint = NULL;
    berth_context *context = NULL;
    berth_tensor tensor;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_tensor(
                 checkpoint, berth_checkpoint_find(checkpoint, FC, strlen(FC)), &tensor),
             BERTH_OK);
    CHECK_EQ(tensor.dtype, BERTH_BF16);
    CHECK_EQ(tensor.shape[0], hidden);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

/*
 * What is kept out of it stays as it lies; what was in it comes out again as it lay, of
 * even and odd rows, whose 4-bit codes share a byte.
 */
static void
test_kept(void)
{
    static const char *const keep[] = {"*c_fc*", "*c_attn*"};
    static const uint32_t sizes[] = {768, 67};

    for (size_t i = 0; i < 2; i++) {
        const char *const source = loaded_gpt2("BF16", sizes[i], 1);
        berth_plan_options options = options_of(&cases[0], "cpu=1GiB");
        const char *quantized;
        const char *anew;

        quantized = loaded_quantized(source, &options);
        options.keep = keep;
        options.keep_count = 2;
        check_load(source, loaded_quantized(source, &options), &options, NULL, 2);
        options.type = BERTH_ENCODING_INT8;
        anew = loaded_quantized(quantized, &options);
        check_is_plain(anew, sizes[i]);
        check_load(quantized, anew, &options, NULL, 2);
        options.max_memory = "0=64MiB,cpu=64MiB";
        check_load(quantized, anew, &options, "sim:64MiB", 2);
    }
}

/* --------------------------------------------------------------------------- faults */

static void
test_all_calls_can_fail(void)
{
    loaded_attempt attempt = { .folder = loaded_gpt2("BF16", 64, 1),
                               .max_memory = "0=64MiB,cpu=64MiB",
                               .words = "sim:64MiB",
                               .type = cases[1].type,
                               .is_double = cases[1].is_double };
    const fault_counts counts = fault_loop("turned load", loaded_once, &attempt);

    CHECK_GT(counts.memory, 60);
    CHECK_GT(counts.system, 30);
    CHECK_GT(fault_loop_devices("turned load", loaded_once, &attempt).device, 10);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_on_the_host);
    T_RUN(test_on_devices);
    T_RUN(test_many_times);
    T_RUN(test_memory);
    T_RUN(test_memory_is_planned);
    T_RUN(test_shape);
    T_RUN(test_encoded_anew);
    T_RUN(test_kept);
    T_RUN(test_all_calls_can_fail);
    return t_end();
}
