/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_digests.c - the digests of the source where they are not simply
 * read along: shards that an earlier run has finished, and statistics that no
 * value is decoded with. converted_run() compares them all with zlib's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

static void
begin(converted *c, const char *output, int32_t type)
{
    converted_begin(c, output, type);
    c->options.double_quant = type == BERTH_ENCODING_NF4 || type == BERTH_ENCODING_FP4;
    c->options.max_shard_bytes = 4096;
    c->options.workers = 2;
    converted_shrink(c, 700);
}

/* Breaks a conversion off at its nth system call; then the rest. */
static bool
is_resumed(const char *model, const char *output, int32_t type, uint64_t nth,
           bool *out_is_over)
{
    converted c;
    berth_status status;

    begin(&c, output, type);
    c.is_bare = true; /* the failures are for the conversion */
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, true);
    status = converted_run(&c, model);
    *out_is_over = berthi_fault_failures(BERTHI_FAULT_SYSTEM) == 0;
    berthi_fault_disarm();
    if (status == BERTH_OK)
        return false;
    begin(&c, output, type);
    c.options.resume = 1;
    if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
        T_NOTE("after %d calls: %s %s", (int)nth, c.error.file, c.error.message);
    return c.report.bytes_resumed > 0 && c.report.bytes_read > 0;
}

/* Whatever was finished when it ended, its notes bring the digests back. */
static void
check_resumed(const char *model, int32_t type)
{
    const char *const whole = fixture_format("%s/whole", fixture_folder());
    const char *const folder = fixture_format("%s/out", fixture_folder());
    uint32_t resumed = 0;
    bool is_over = false;
    converted c;

    begin(&c, whole, type);
    T_REQUIRE(CHECK_EQ(converted_run(&c, model), BERTH_OK));
    CHECK_GT(c.report.shards, 2);
    for (uint64_t nth = 0; !is_over; nth += 17) {
        resumed += is_resumed(model, folder, type, nth, &is_over);
        CHECK(converted_is_same(whole, folder));
        fixture_remove(folder);
    }
    CHECK_GT(resumed, 3);
    T_NOTE("%u of them with finished shards", resumed);
}

static void
test_resumed_from_nf4(void)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    for (int i = 0; i < 4; i++)
        fixture_add_nf4(b, fixture_format("model.layers.%d.a.weight", i), 41,
                        (uint64_t)(63 + i), i % 2 == 0);
    fixture_add_lines(b, "BF16 33x41 model.layers.4.a.weight\nF32 9 model.norm.weight\n");
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    check_resumed(folder, BERTH_ENCODING_FP4);
    check_resumed(folder, BERTH_ENCODING_NF4); /* every other one is kept */
    check_resumed(folder, BERTH_ENCODING_NATIVE);
}

static void
test_resumed_from_int8(void)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    for (int i = 0; i < 4; i++)
        fixture_add_int8(b, fixture_format("model.layers.%d.a", i), 40, 65);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    check_resumed(folder, BERTH_ENCODING_NF4);
    check_resumed(folder, BERTH_ENCODING_INT8);
}

/* Codes that fill a shard: all statistics of a weight lie in the next one. */
static void
test_resumed_between_codes_and_statistics(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model.safetensors]\nBF16 64x128 model.layers.0.a.weight\n"
                          "F32 64x128 model.layers.1.a.weight\n"
                          "BF16 64x128 model.layers.2.a.weight\n");
    check_resumed(folder, BERTH_ENCODING_NF4);
}

/* A state with so many bytes of white space, as many tensors as it takes. */
static const char *
make_long_state(uint64_t spaces)
{
    const char *const folder = fixture_folder();
    const char *const name = "model.layers.0.a.weight";
    const uint64_t packed[2] = { 32, 1 };
    const uint64_t one = 1;
    const uint64_t codes = 16;
    fixture_builder *const b = fixture_begin();
    const char *const state = fixture_format(
        "{\"quant_type\": \"nf4\",%*s\"blocksize\": 64, \"dtype\": \"bfloat16\", "
        "\"shape\": [8, 8]}",
        (int)spaces, "");
    const uint64_t length = strlen(state);

    fixture_add(b, name, "U8", 2, packed, NULL);
    fixture_add(b, fixture_format("%s.absmax", name), "F32", 1, &one, NULL);
    fixture_add(b, fixture_format("%s.quant_map", name), "F32", 1, &codes, NULL);
    fixture_add(b, fixture_format("%s.quant_state.bitsandbytes__nf4", name), "U8", 1,
                &length, state);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}

/* Statistics that are read for their crc alone may be longer than a page. */
static void
test_long_states(void)
{
    static const uint64_t spaces[] = { 0, 4096 - 80, 4096, 8192, 20000 };

    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        const char *const model = make_long_state(spaces[i]);
        converted c;

        converted_begin(&c, fixture_format("%s/out", fixture_folder()),
                        BERTH_ENCODING_NATIVE);
        if (!CHECK_EQ(converted_run(&c, model), BERTH_OK))
            T_NOTE("%s: %s", c.error.tensor, c.error.message);
        CHECK_GT(c.report.bytes_read, spaces[i]);
    }
}

/* Nobody reads how a weight without values is decoded: it is not listed. */
static void
test_no_values(void)
{
    const char *const folder = fixture_folder();
    char *manifest;
    converted c;

    fixture_model(folder, "[model.safetensors]\nF8_E4M3 0x64 a.weight\n"
                          "F32 - a.weight_scale_inv\nBF16 2x2 b.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    converted_begin(&c, fixture_format("%s/out", fixture_folder()), BERTH_ENCODING_NATIVE);
    c.is_bare = true; /* which wants them all */
    CHECK_EQ(converted_run(&c, folder), BERTH_OK);
    manifest = fixture_read(fixture_format("%s/berth.manifest.json", c.options.output), NULL);
    CHECK_CONTAINS(strstr(manifest, "\"sources\""), "\"a.weight\": \"00000000\"");
    CHECK_CONTAINS(strstr(manifest, "\"sources\""), "\"b.weight\": \"");
    CHECK(strstr(manifest, "scale_inv") == NULL);
    free(manifest);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_resumed_from_nf4);
    T_RUN(test_resumed_from_int8);
    T_RUN(test_resumed_between_codes_and_statistics);
    T_RUN(test_long_states);
    T_RUN(test_no_values);
    T_MAIN_END;
}
