/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_classify_golden.c - checkpoints that the real libraries wrote.
 *
 * tests/data/quant holds names, shapes and state blobs of some of them. Where
 * the recorded files themselves lie beside this tree, all of them are read and
 * compared with what their expected.json says.
 */
#define _POSIX_C_SOURCE 200809L

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/safetensors.h"
#include "quant/classify.h"
#include "quant/json.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tensors.h"

#define GOLDEN "../shared/golden/quant"
#define BNB "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}"

static berth_context *context;

static void
check_expected(tensors *t)
{
    CHECK_EQ(t->result.count, t->expected_count);
    for (uint32_t i = 0; i < t->expected_count; i++) {
        const tensors_expected *const e = &t->expected[i];
        const berthi_quantized *const q = tensors_record(t, e->name);

        if (!CHECK(q != NULL))
            continue;
        CHECK_STR(berth_encoding_name(q->encoding), e->encoding);
        CHECK_EQ(q->rank, e->rank);
        CHECK_MEM(q->shape, e->shape, e->rank * sizeof *e->shape);
    }
}

/* ------------------------------------------------------------------ tests/data */

static void
check_data(const char *name, int32_t dtype, uint64_t parameters)
{
    char *const lines = fixture_read(fixture_format("tests/data/quant/%s.txt", name), NULL);
    tensors *const t = tensors_create(lines);

    free(lines);
    CHECK_EQ(tensors_run(t, context, BNB, false), BERTH_OK);
    CHECK_EQ(t->finding_count, 0);
    CHECK_GT(t->expected_count, 5);
    check_expected(t);
    CHECK_EQ(t->result.parameter_count, parameters);
    for (uint32_t i = 0; i < t->result.count; i++)
        CHECK_EQ(berthi_classify_record(&t->result, i)->dtype, dtype);
    tensors_destroy(t);
}

static void
test_data(void)
{
    check_data("opt_nf4_dq", BERTH_BF16, 40802);
    check_data("gpt2_int8", -1, 97952);
    check_data("llama_nf4_bf16storage", BERTH_BF16, 149824);
    check_data("t5_nf4_fp16", BERTH_F16, 111296);
}

/* Any one companion taken away from a real checkpoint is an error that names it. */
static void
test_data_companion_missing(void)
{
    char *const lines = fixture_read("tests/data/quant/opt_nf4_dq.txt", NULL);
    tensors *t = tensors_create(lines);
    const uint32_t count = t->count;
    unsigned removed = 0;

    CHECK_EQ(tensors_run(t, context, BNB, false), BERTH_OK);
    for (uint32_t i = 0; i < count; i++) {
        const tensors_one *const one = &t->all[i];
        const berthi_quantized *record;
        tensors *less;
        const char *owner;

        if (one->encoding != BERTH_ENCODING_STATISTICS)
            continue;
        record = berthi_classify_record(&t->result, one->record);
        owner = t->all[record->weight].name;
        less = tensors_create(lines);
        tensors_remove(less, one->name);
        CHECK_EQ(tensors_run(less, context, BNB, false), BERTH_EFORMAT);
        CHECK_EQ(less->error.reason, BERTH_REASON_COMPANION_MISSING);
        CHECK_STR(less->error.tensor, owner);
        CHECK_CONTAINS(less->error.message, one->name + strlen(owner) + 1);
        tensors_destroy(less);
        removed++;
    }
    CHECK_EQ(removed, 14 * 5);
    tensors_destroy(t);
    free(lines);
}

/* -------------------------------------------------------------- recorded files */

static void
add_entry(tensors *t, const berthi_header *header, const berthi_entry *entry,
          const uint8_t *data)
{
    uint64_t shape[BERTH_MAX_RANK];

    berthi_entry_shape(header->text, entry, shape);
    tensors_add_one(t, berthi_entry_name(header->text, entry), entry->dtype, entry->rank,
                    shape, data + entry->begin);
}

/* Adds the tensors of one file. */
static void
add_file(tensors *t, const char *path)
{
    size_t bytes;
    char *const file = fixture_read(path, &bytes);
    berthi_header header;
    berth_error error;
    uint64_t length;

    if (CHECK_EQ(berthi_header_length((const uint8_t *)file, bytes, path, &length, &error),
                 BERTH_OK)
        && CHECK_EQ(berthi_header_parse(context, file + 8, length, bytes - 8 - length, path,
                                        &header, &error), BERTH_OK)) {
        for (uint64_t i = 0; i < header.entry_count; i++)
            add_entry(t, &header, &header.entries[i],
                      (const uint8_t *)file + 8 + length);
        berthi_header_fini(&header);
    }
    free(file);
}

/* All files that match the pattern, as one checkpoint. */
static tensors *
read_files(const char *pattern)
{
    tensors *const t = tensors_create("");
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            add_file(t, found.gl_pathv[i]);
    globfree(&found);
    return t;
}

static const char *
text_of(const berthi_json_value *object, const char *member)
{
    const char *text = "";

    berthi_json_can_read_string(berthi_json_get(object, member), &text);
    return text;
}

static uint64_t
number_of(const berthi_json_value *object, const char *member)
{
    uint64_t number = 0;

    berthi_json_can_read_unsigned(berthi_json_get(object, member), &number);
    return number;
}

/* One weight against its entry in expected.json; returns its number of values. */
static uint64_t
check_parameter(tensors *t, const berthi_json_value *p, const char *model_dtype)
{
    const char *const name = text_of(p, "name");
    const berthi_json_value *dims = berthi_json_get(p, "original_shape");
    const berthi_quantized *const q = tensors_record(t, name);
    bool is_quantized = false;
    uint64_t elements = 1;
    uint32_t rank = 0;

    berthi_json_can_read_bool(berthi_json_get(p, "quantized"), &is_quantized);
    CHECK_EQ(q != NULL, is_quantized);
    if (dims == NULL)
        dims = berthi_json_get(p, "shape");
    for (dims = berthi_json_first(dims); dims != NULL; dims = berthi_json_next(dims), rank++) {
        uint64_t dim = 0;

        berthi_json_can_read_unsigned(dims, &dim);
        elements *= dim;
        if (q != NULL && CHECK_LT(rank, q->rank))
            CHECK_EQ(q->shape[rank], dim);
    }
    if (q == NULL)
        return elements;
    CHECK_EQ(q->rank, rank);
    CHECK_EQ(q->elements, elements);
    CHECK_EQ(q->elements, number_of(p, "n"));
    CHECK_STR(berth_encoding_name(q->encoding), text_of(p, "method"));
    if (q->encoding == BERTH_ENCODING_INT8) {
        CHECK_EQ(q->dtype, -1);
        return elements;
    }
    CHECK_EQ(q->dtype, strcmp(model_dtype, "float16") == 0 ? BERTH_F16 : BERTH_BF16);
    CHECK_EQ(q->block_size, 64);
    CHECK_EQ(t->all[q->weight].bytes, number_of(p, "storage_bytes"));
    CHECK_EQ(t->all[q->companions[0]].elements, number_of(p, "nb"));
    return elements;
}

static void
check_folder(const char *folder, unsigned *quantized)
{
    size_t bytes;
    char *const text = fixture_read(fixture_format("%s/expected.json", folder), &bytes);
    char *const config = fixture_read(fixture_format("%s/config.json", folder), NULL);
    const berthi_json_origin origin = { BERTH_REASON_MANIFEST_JSON, folder };
    tensors *const t = read_files(fixture_format("%s/*.safetensors", folder));
    uint64_t parameters = 0;
    uint32_t weights = 0;
    berthi_json *expected;

    T_REQUIRE(berthi_json_parse(context, text, bytes, 0, &origin, &expected, NULL)
              == BERTH_OK);
    if (!CHECK_EQ(tensors_run(t, context, config, false), BERTH_OK))
        T_NOTE("%s: \"%s\": %s", folder, t->error.tensor, t->error.message);
    CHECK_EQ(t->finding_count, 0);
    for (const berthi_json_value *p = berthi_json_first(
             berthi_json_get(berthi_json_root(expected), "parameters"));
         p != NULL; p = berthi_json_next(p), weights++)
        parameters += check_parameter(t, p, text_of(berthi_json_root(expected),
                                                    "model_dtype"));
    CHECK_GT(weights, 10);
    CHECK_EQ(t->result.parameter_count, parameters);
    *quantized += t->result.count > 0;
    berthi_json_destroy(expected);
    tensors_destroy(t);
    free(text);
    free(config);
}

static void
test_golden_models(void)
{
    unsigned quantized = 0;
    glob_t found;

    if (glob(GOLDEN "/*/*/expected.json", 0, NULL, &found) != 0)
        T_SKIP("the recorded checkpoints are not beside this tree");
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_folder(fixture_format("%.*s", (int)(strlen(found.gl_pathv[i])
                                                  - strlen("/expected.json")),
                                    found.gl_pathv[i]), &quantized);
    T_NOTE("%zu folders, %u of them quantized", found.gl_pathc, quantized);
    CHECK_GE(quantized, 24);
    globfree(&found);
}

/* What a canonical writer has to produce, without a config.json. */
static void
test_golden_canonical(void)
{
    glob_t found;

    if (glob(GOLDEN "/*/canonical_*.safetensors", 0, NULL, &found) != 0)
        T_SKIP("the recorded checkpoints are not beside this tree");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        tensors *const t = read_files(found.gl_pathv[i]);

        CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_OK);
        CHECK_EQ(t->finding_count, 0);
        CHECK_GE(t->result.count, 7);
        tensors_destroy(t);
    }
    T_NOTE("%zu files", found.gl_pathc);
    globfree(&found);
}

static void
test_golden_sources(void)
{
    tensors *t;

    if (access(GOLDEN "/vectors_sources.safetensors", R_OK) != 0)
        T_SKIP("the recorded checkpoints are not beside this tree");
    t = read_files(GOLDEN "/vectors_sources.safetensors");
    CHECK_EQ(tensors_run(t, context, "{\"quantization_config\": {\"quant_method\": \"fp8\"}}",
                         false), BERTH_OK);
    CHECK_EQ(t->finding_count, 0);
    CHECK_EQ(t->result.count, 6);
    CHECK_STR(tensors_shape(tensors_record(t, "fp8_partial.weight")), "192x200");
    CHECK_EQ(tensors_record(t, "fp8_partial.weight")->block_size, 128);
    CHECK_STR(tensors_shape(tensors_record(t, "fp4_packed.weight")), "64x128");
    CHECK_EQ(tensors_record(t, "fp4_packed.weight")->block_size, 32);
    CHECK_STR(tensors_shape(tensors_record(t, "mxfp4.gate_up_proj_blocks")), "2x96x48");
    CHECK_EQ(tensors_record(t, "fp8_ue8m0.weight")->encoding, BERTH_ENCODING_FP8_BLOCK);
    CHECK_EQ(tensors_record(t, "fp8_all.weight")->encoding, BERTH_ENCODING_FP8_BLOCK);
    CHECK_EQ(tensors_record(t, "fp8_f32.weight")->encoding, BERTH_ENCODING_FP8_BLOCK);
    tensors_destroy(t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_data);
    T_RUN(test_data_companion_missing);
    T_RUN(test_golden_models);
    T_RUN(test_golden_canonical);
    T_RUN(test_golden_sources);
    berth_context_destroy(context);
    T_MAIN_END;
}
