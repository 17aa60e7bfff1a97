/* SPDX-License-Identifier: Apache-2.0 */
/* test_load.c - loads into host memory: every byte in its berth, encoded on the way. */
#include <stdio.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/tables.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

/* The library's own check agrees, and has looked at everything. */
static void
check_report(loaded *l)
{
    berth_check_report report;

    CHECK_EQ(loaded_see_checked(l, &report), BERTH_OK);
    CHECK_EQ(report.tensors, l->p.summary.berth_count);
    CHECK_EQ(report.bytes, l->p.summary.bytes);
    CHECK_EQ(report.mismatches, 0);
}

/* Loads, compares with `folder`, and with the sums of the plan. */
static void
check_load(const char *source, const char *folder, berth_plan_options *options,
           const char *words)
{
    loaded l;

    loaded_begin(&l, source, options, words);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        t_note("%s", l.error.message);
    if (l.status == BERTH_OK) {
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
        loaded_check(&l, folder);
        check_report(&l);
    }
    loaded_end(&l);
}

static void
test_copied(void)
{
    const char *const one = loaded_llama(2, "BF16", 1);
    const char *const three = loaded_llama(2, "F32", 3);
    berth_plan_options options = loaded_options("cpu=1GiB");

    check_load(one, one, &options, NULL);
    check_load(three, three, &options, NULL);
}

static void
test_encoded(void)
{
    static const int32_t types[] = {BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                    BERTH_ENCODING_INT8};
    const char *const source = loaded_llama(2, "BF16", 2);

    for (uint32_t i = 0; i < 5; i++) { /* INT8 is never doubly quantized */
        berth_plan_options options = loaded_options("cpu=1GiB");

        options.type = types[i % 3];
        options.double_quant = i / 3 != 0;
        check_load(source, loaded_quantized(source, &options), &options, NULL);
    }
}

/* Values of another dtype are cast first, as a conversion does. */
static void
test_cast(void)
{
    const char *const source = loaded_llama(1, "F32", 1);
    berth_plan_options options = loaded_options("cpu=1GiB");

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    options.dtype = BERTH_BF16;
    check_load(source, loaded_quantized(source, &options), &options, NULL);
}

/* What is stored quantized goes through as it is. */
static void
test_quantized_before(void)
{
    static const int32_t types[] = {BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                    BERTH_ENCODING_INT8};
    const char *const source = loaded_llama(1, "BF16", 1);

    for (uint32_t i = 0; i < 5; i++) {
        berth_plan_options options = loaded_options("cpu=1GiB");
        const char *folder;

        options.type = types[i % 3];
        options.double_quant = i / 3 != 0;
        folder = loaded_quantized(source, &options);
        check_load(folder, folder, &options, NULL);
        options.type = BERTH_ENCODING_NATIVE;
        options.double_quant = 0;
        check_load(folder, folder, &options, NULL);
    }
}

/* From one encoding to another, by way of the values: as a conversion does. */
static void
test_encoded_anew(void)
{
    static const int32_t types[] = {BERTH_ENCODING_NF4, BERTH_ENCODING_INT8,
                                    BERTH_ENCODING_FP4};
    const char *const source = loaded_llama(1, "BF16", 1);

    for (uint32_t i = 0; i < 3; i++) {
        berth_plan_options options = loaded_options("cpu=1GiB");
        const char *folder;

        options.type = types[i];
        folder = loaded_quantized(source, &options);
        options.type = types[(i + 1) % 3];
        options.double_quant = i % 2 != 0; /* FP4, of INT8 */
        check_load(folder, loaded_quantized(folder, &options), &options, NULL);
        options.max_memory = "0=64MiB,cpu=64MiB";
        check_load(folder, loaded_quantized(folder, &options), &options, "sim:64MiB");
    }
}

/* A bit that turns in a berth is found, and named. */
/* A weight as bitsandbytes stores it, of no more than a block. */
static void
add_nf4(fixture_builder *b, const char *name, const char *shape, uint64_t bytes)
{
    static const float maximum = 2.0f;
    const char *const state =
        fixture_format("{\"quant_type\": \"nf4\", \"blocksize\": 64, "
                       "\"dtype\": \"bfloat16\", \"shape\": %s}",
                       shape);
    const uint64_t packed[2] = {bytes, 1};
    const uint64_t blocks = bytes > 0;
    const uint64_t codes = 16;
    const uint64_t length = strlen(state);

    fixture_add(b, name, "U8", 2, packed, "\x0f");
    fixture_add(b, fixture_format("%s.absmax", name), "F32", 1, &blocks, &maximum);
    fixture_add(b, fixture_format("%s.quant_map", name), "F32", 1, &codes, berthi_nf4_values);
    fixture_add(b, fixture_format("%s.quant_state.bitsandbytes__nf4", name), "U8", 1, &length,
                state);
}

/* Weights that others quantize and berth does not: without values, and without dims. */
static void
test_quantized_by_others(void)
{
    static const uint64_t columns[2] = {3, 0};
    static const uint64_t rows = 3;
    static const float maxima[3] = {1.0f, 2.0f, 3.0f};
    const char *const folder = fixture_folder();
    berth_plan_options host = loaded_options("cpu=1GiB");
    berth_plan_options device = loaded_options("0=64MiB,cpu=64MiB");
    fixture_builder *const b = fixture_begin();

    add_nf4(b, "model.layers.0.a.weight", "[0, 64]", 0);
    add_nf4(b, "model.layers.0.b.weight", "[]", 1);
    fixture_add(b, "model.layers.0.c.weight", "I8", 2, columns, "");
    fixture_add(b, "model.layers.0.c.SCB", "F32", 1, &rows, maxima);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    check_load(folder, folder, &host, NULL);
    check_load(folder, folder, &device, "sim:64MiB");
}

static void
test_check_finds(void)
{
    const char *const source = loaded_llama(1, "BF16", 1);

    for (uint32_t part = 0; part < 3; part++) {
        berth_plan_options options = loaded_options("cpu=1GiB");
        static const char name[] = "model.layers.0.mlp.up_proj.weight";
        berth_check_report report;
        berth_model_tensor tensor;
        uint8_t *memory;
        loaded l;

        options.type = BERTH_ENCODING_NF4;
        options.double_quant = 1;
        loaded_begin(&l, source, &options, NULL);
        loaded_load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_EQ(berth_model_get_tensor(
                     l.model, berth_model_find(l.model, name, strlen(name)), &tensor),
                 BERTH_OK);
        CHECK_EQ(tensor.part_count, 3);
        memory = (uint8_t *)(uintptr_t)tensor.parts[part].memory;
        memory[tensor.parts[part].bytes - 1] ^= 0x10;
        CHECK_EQ(loaded_see_checked(&l, &report), BERTH_EINTEGRITY);
        CHECK_EQ(report.mismatches, 1);
        CHECK_STR(l.error.tensor, name);
        CHECK_EQ(l.error.reason, BERTH_REASON_DIGEST);
        loaded_end(&l);
    }
}

/* Of a check that had no memory, too: what was in it before is gone. */
static void
test_check_fills_its_report(void)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_status status = BERTH_ENOMEM;
    uint32_t jobs = 0;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    loaded_load(&l);
    T_REQUIRE(CHECK_EQ(l.status, BERTH_OK));
    for (uint64_t nth = 0; status != BERTH_OK && nth < 50; nth++) {
        berth_check_options check;
        berth_check_report report;
        berth_job *job;

        memset(&report, 0xAB, sizeof report);
        berth_check_options_init(&check);
        check.report = &report;
        berthi_fault_arm(BERTHI_FAULT_MEMORY, nth, false);
        status = berth_check_start(l.model, &check, &job, NULL);
        if (status == BERTH_OK) {
            jobs++;
            status = berth_job_finish(job, NULL);
            CHECK_EQ(report.mismatches, 0);
            CHECK_EQ(report.bytes, status == BERTH_OK ? l.p.summary.bytes : 0);
        }
        berthi_fault_disarm();
        CHECK(status == BERTH_OK || status == BERTH_ENOMEM);
    }
    CHECK_EQ(status, BERTH_OK);
    CHECK_GT(jobs, 1);
    loaded_unload(&l);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_copied);
    T_RUN(test_encoded);
    T_RUN(test_cast);
    T_RUN(test_quantized_before);
    T_RUN(test_encoded_anew);
    T_RUN(test_quantized_by_others);
    T_RUN(test_check_finds);
    T_RUN(test_check_fills_its_report);
    return t_end();
}
