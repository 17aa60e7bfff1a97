/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert.c - whole checkpoints quantized, against the files that the real
 * libraries wrote, byte for byte where these are canonical.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define GOLDEN "../shared/golden/quant"

static bool
is_same_file(const char *a, const char *b)
{
    size_t a_bytes;
    size_t b_bytes;
    char *const a_text = fixture_read(a, &a_bytes);
    char *const b_text = fixture_read(b, &b_bytes);
    const bool is_same = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;

    free(a_text);
    free(b_text);
    return is_same;
}

/* ----------------------------------------------------- what the libraries wrote */

/* The complete file that a canonical writer makes of this variant. */
static const char *
canonical(const char *model, const char *variant)
{
    const char *const other =
        fixture_format(GOLDEN "/%s/canonical_%s.safetensors", model, variant);

    if (access(other, R_OK) == 0)
        return other;
    return fixture_format(GOLDEN "/%s/%s/model.safetensors", model, variant);
}

typedef struct variant {
    const char *model;
    const char *name;
    int32_t type;
    int32_t double_quant;
    int32_t storage;
    int32_t dtype;
} variant;

static const variant variants[] = {
    { "llama", "nf4", BERTH_ENCODING_NF4, 0, -1, -1 },
    { "llama", "nf4_dq", BERTH_ENCODING_NF4, 1, -1, -1 },
    { "llama", "fp4", BERTH_ENCODING_FP4, 0, -1, -1 },
    { "llama", "fp4_dq", BERTH_ENCODING_FP4, 1, -1, -1 },
    { "llama", "int8", BERTH_ENCODING_INT8, 0, -1, -1 },
    { "llama", "nf4_bf16storage", BERTH_ENCODING_NF4, 0, BERTH_BF16, -1 },
    { "qwen3", "nf4_dq", BERTH_ENCODING_NF4, 1, -1, -1 },
    { "qwen3", "fp4", BERTH_ENCODING_FP4, 0, -1, -1 },
    { "qwen3", "int8", BERTH_ENCODING_INT8, 0, -1, -1 },
    { "gpt2", "nf4", BERTH_ENCODING_NF4, 0, -1, -1 },
    { "gpt2", "nf4_dq", BERTH_ENCODING_NF4, 1, -1, -1 },
    { "gpt2", "int8", BERTH_ENCODING_INT8, 0, -1, -1 },
    { "mixtral", "nf4", BERTH_ENCODING_NF4, 0, -1, -1 },
    { "mixtral", "nf4_dq", BERTH_ENCODING_NF4, 1, -1, -1 },
    { "mixtral", "int8", BERTH_ENCODING_INT8, 0, -1, -1 },
    { "opt", "nf4", BERTH_ENCODING_NF4, 0, -1, -1 },
    { "opt", "nf4_dq", BERTH_ENCODING_NF4, 1, -1, -1 },
    { "opt", "fp4_dq", BERTH_ENCODING_FP4, 1, -1, -1 },
    { "opt", "int8", BERTH_ENCODING_INT8, 0, -1, -1 },
    { "t5", "nf4_dq", BERTH_ENCODING_NF4, 1, -1, -1 },
    { "t5", "int8", BERTH_ENCODING_INT8, 0, -1, -1 },
    { "t5", "nf4_fp16", BERTH_ENCODING_NF4, 0, -1, BERTH_F16 },
};

static void
check_variant(const variant *v)
{
    const char *const folder = fixture_format("%s/%s_%s", fixture_folder(), v->model, v->name);
    converted c;

    converted_begin(&c, folder, v->type);
    c.options.double_quant = v->double_quant;
    c.options.storage = v->storage;
    c.options.dtype = v->dtype;
    if (v->storage == BERTH_BF16)
        c.options.compute_dtype = "bfloat16";
    if (!CHECK_EQ(converted_run(&c, fixture_format(GOLDEN "/%s/source", v->model)), BERTH_OK))
        T_NOTE("%s %s: %s %s", v->model, v->name, c.error.tensor, c.error.message);
    CHECK_EQ(c.report.shards, 1);
    CHECK_GE(c.lines, 2);
    if (!CHECK(is_same_file(fixture_format("%s/model.safetensors", folder),
                            canonical(v->model, v->name)))
        || !CHECK(is_same_file(fixture_format("%s/config.json", folder),
                               fixture_format(GOLDEN "/%s/%s/config.json", v->model, v->name))))
        T_NOTE("%s %s", v->model, v->name);
}

static void
test_canonical_files(void)
{
    if (access(GOLDEN, R_OK) != 0)
        T_SKIP("the recorded checkpoints are not there");
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        check_variant(&variants[i]);
}

/* What the library wrote, quantized to what it is: every file as it was. */
static void
check_kept(const variant *v)
{
    const char *const folder = fixture_format("%s/again", fixture_folder());
    const char *const golden = fixture_format(GOLDEN "/%s/%s", v->model, v->name);
    converted c;

    converted_begin(&c, folder, v->type);
    c.options.double_quant = v->double_quant;
    c.options.storage = v->storage;
    if (!CHECK_EQ(converted_run(&c, golden), BERTH_OK))
        T_NOTE("%s %s: %s %s", v->model, v->name, c.error.tensor, c.error.message);
    CHECK_GT(c.report.kept, 0);
    CHECK_EQ(c.report.kept, c.report.quantized);
    if (!CHECK(is_same_file(fixture_format("%s/model.safetensors", folder),
                            fixture_format("%s/model.safetensors", golden)))
        || !CHECK(is_same_file(fixture_format("%s/config.json", folder),
                               fixture_format("%s/config.json", golden))))
        T_NOTE("%s %s", v->model, v->name);
}

static void
test_quantized_files_are_kept(void)
{
    if (access(GOLDEN, R_OK) != 0)
        T_SKIP("the recorded checkpoints are not there");
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        check_kept(&variants[i]);
}

/* Shards as the library fills them, and its index. */
static void
test_canonical_shards(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const golden = GOLDEN "/llama/nf4_dq_sharded";
    converted c;

    if (access(golden, R_OK) != 0)
        T_SKIP("the recorded checkpoints are not there");
    converted_begin(&c, folder, BERTH_ENCODING_NF4);
    c.options.double_quant = 1;
    c.options.max_shard_bytes = 40000;
    c.options.compute_dtype = "bfloat16";
    CHECK_EQ(converted_run(&c, GOLDEN "/llama/source"), BERTH_OK);
    CHECK_EQ(c.report.shards, 4);
    CHECK(is_same_file(fixture_format("%s/model.safetensors.index.json", folder),
                       fixture_format("%s/model.safetensors.index.json", golden)));
    CHECK(is_same_file(fixture_format("%s/config.json", folder),
                       fixture_format("%s/config.json", golden)));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_canonical_files);
    T_RUN(test_quantized_files_are_kept);
    T_RUN(test_canonical_shards);
    T_MAIN_END;
}
