/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert.c - whole checkpoints quantized, against the files that the real
 * libraries wrote, byte for byte where these are canonical.
 */
#define _POSIX_C_SOURCE 200809L

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quant/quantize.h"
#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/recorded.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

#define GOLDEN "../shared/golden/quant"

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

/* ------------------------------------------------ what a GPU's reciprocals make of it */

/* The rows that are quantized: those of a Conv1D are the source's columns. */
static void *
rows_of(const variant *v, const void *values, const uint64_t *shape)
{
    const uint64_t bytes = shape[0] * shape[1] * sizeof(uint16_t);
    void *const rows = weights_alloc(bytes);

    if (strcmp(v->model, "gpt2") == 0)
        berthi_quantize_transpose(&(berthi_matrix){ values, shape[1], rows, shape[0], shape[0],
                                                    shape[1], sizeof(uint16_t) });
    else
        memcpy(rows, values, bytes);
    return rows;
}

/* The codes in `file` of a weight of the source, if it has any. */
static uint64_t
repair_weight(const variant *v, const vectors *source, const berthi_entry *from,
              const uint8_t *deltas, const vectors *file, uint8_t *data)
{
    const char *const name = berthi_entry_name(source->header.text, from);
    const char *const dot = name + from->name_length - strlen(".weight");
    const berthi_entry *to;
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t changed;
    void *rows;

    if (from->rank != 2 || strncmp(dot, ".weight", strlen(".weight")) != 0)
        return 0;
    to = vectors_find(file, fixture_format("%.*s", (int)(dot - name), name), "weight");
    if (to == NULL || (to->dtype != BERTH_U8 && to->dtype != BERTH_I8))
        return 0;
    CHECK_EQ(from->dtype, BERTH_BF16);
    berthi_entry_shape(source->header.text, from, shape);
    rows = rows_of(v, vectors_data(source, from), shape);
    changed = recorded_repair(
        deltas,
        &(recorded_weight){ v->type, NULL, rows, BERTH_BF16, shape[0] * shape[1],
                            v->type != BERTH_ENCODING_INT8      ? 64
                            : strcmp(v->model, "gpt2") == 0 ? shape[0]
                                                            : shape[1] },
        data + to->begin);
    free(rows);
    return changed;
}

/* A copy of the canonical file with the codes of a GPU. NF4 of bf16 and fp16 has the same. */
static const char *
repaired(const variant *v, const uint8_t *deltas, uint64_t *changed)
{
    const char *const path = canonical(v->model, v->name);
    const char *const copy = fixture_format("%s/expected.safetensors", fixture_folder());
    vectors file;
    glob_t found;
    uint8_t *own;
    size_t bytes;

    if (v->type == BERTH_ENCODING_NF4)
        return path;
    own = fixture_read(path, &bytes);
    CHECK(vectors_has_opened(&file, path));
    if (CHECK_EQ(glob(fixture_format(GOLDEN "/%s/source/*.safetensors", v->model), 0, NULL,
                      &found),
                 0))
        for (size_t i = 0; i < found.gl_pathc; i++) {
            vectors source;

            CHECK(vectors_has_opened(&source, found.gl_pathv[i]));
            for (uint64_t k = 0; k < source.header.entry_count; k++)
                *changed += repair_weight(v, &source, &source.header.entries[k], deltas, &file,
                                          own + (file.data - file.bytes));
            vectors_close(&source);
        }
    globfree(&found);
    fixture_write(copy, own, bytes);
    vectors_close(&file);
    free(own);
    return copy;
}

static void
check_variant(const variant *v, const uint8_t *deltas, uint64_t *changed)
{
    const char *const folder = fixture_format("%s/%s_%s", fixture_folder(), v->model, v->name);
    const char *const expected = repaired(v, deltas, changed);
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
    if (!CHECK(fixture_is_same_file(fixture_format("%s/model.safetensors", folder),
                            expected))
        || !CHECK(fixture_is_same_file(fixture_format("%s/config.json", folder),
                               fixture_format(GOLDEN "/%s/%s/config.json", v->model, v->name))))
        T_NOTE("%s %s", v->model, v->name);
}

static void
test_canonical_files(void)
{
    uint64_t changed = 0;
    uint8_t *deltas;

    if (access(GOLDEN, R_OK) != 0)
        T_SKIP("the recorded checkpoints are not there");
    deltas = recorded_open();
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        check_variant(&variants[i], deltas, &changed);
    free(deltas);
    T_NOTE("%llu codes of a GPU are other ones", (unsigned long long)changed);
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
    if (!CHECK(fixture_is_same_file(fixture_format("%s/model.safetensors", folder),
                            fixture_format("%s/model.safetensors", golden)))
        || !CHECK(fixture_is_same_file(fixture_format("%s/config.json", folder),
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
    CHECK(fixture_is_same_file(fixture_format("%s/model.safetensors.index.json", folder),
                       fixture_format("%s/model.safetensors.index.json", golden)));
    CHECK(fixture_is_same_file(fixture_format("%s/config.json", folder),
                       fixture_format("%s/config.json", golden)));
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_canonical_files);
    T_RUN(test_quantized_files_are_kept);
    T_RUN(test_canonical_shards);
    T_MAIN_END;
}
