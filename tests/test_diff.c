/* SPDX-License-Identifier: Apache-2.0 */
/* test_diff.c - berth_diff_start() against naive sums over whole weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/diff_sum.h"
#include "tests/compared.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define GPT2 "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}\n"

/* ------------------------------------------------------------------- comparing */

static void
test_plain_values(void)
{
    static const int32_t numbers[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

    for (int i = 0; i < 9; i++) {
        const char *a;
        const char *b;
        compared c;

        compared_make_near(numbers[i / 3], numbers[i % 3], i % 2 == 1, &a, &b);
        CHECK_EQ(compared_check(&c, a, b), 6);
        CHECK_EQ(c.report.compared, 6);
        CHECK_EQ(c.report.same, 0 + (c.tensors[0].is_same != 0));
        CHECK_EQ(c.tensors[3].has_codes, i / 3 == i % 3);
        CHECK_EQ(c.tensors[3].has_same_statistics, i / 3 == i % 3);
        CHECK_EQ(c.tensors[3].a.dtype, numbers[i / 3]);
        CHECK_EQ(c.tensors[3].b.dtype, numbers[i % 3]);
        CHECK_EQ(c.tensors[3].is_same, 0);
        if (i / 3 == i % 3)
            CHECK_GE(c.tensors[5].codes, c.tensors[5].errors.different);
        else
            CHECK_EQ(c.tensors[5].codes, 0);
        CHECK_EQ(c.tensors[5].a.nan + c.tensors[5].a.infinite > 0, i % 2 == 1);
    }
}

static void
test_the_same(void)
{
    const char *a;
    const char *b;
    compared c;

    compared_make_near(BERTH_BF16, BERTH_BF16, true, &a, &b);
    compared_begin(&c);
    c.options.requires_same = 1;
    c.options.has_max_relative = 1;
    c.options.has_min_snr = 1;
    c.options.min_snr = 1e9;
    CHECK_EQ(compared_run(&c, a, a), BERTH_OK);
    CHECK_EQ(c.count, 6);
    CHECK_EQ(c.report.same, 6);
    CHECK_EQ(c.report.equal, 6);
    CHECK_EQ(c.report.rejected, 0);
    CHECK_EQ(c.report.worst, BERTH_NO_TENSOR);
    CHECK_EQ(c.report.errors.different, 0);
    CHECK(c.report.errors.relative == 0);
    CHECK(isinf(c.report.errors.snr) && c.report.errors.snr > 0);
    CHECK_EQ(c.report.nan_a, c.report.nan_b);
    CHECK_GT(c.report.nan_a, 0);
    CHECK_GT(c.report.infinite_a, 0);
    CHECK_EQ(c.report.elements, c.report.errors.count + c.report.nan_a + c.report.infinite_a);
    for (uint32_t i = 0; i < c.count; i++) {
        CHECK_EQ(c.tensors[i].is_same, 1);
        CHECK_EQ(c.tensors[i].codes, 0);
        CHECK_EQ(c.tensors[i].errors.nonfinite, 0);
    }
}

static void
test_quantized(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4,
                                     BERTH_ENCODING_INT8 };
    static const uint64_t shapes[][2] = { { 1031, 1033 }, { 65, 63 }, { 3, 700 } };
    const compared_model m = compared_model_begin(FIXTURE_CONFIG);
    const char *plain;
    const char *encoded[5];
    compared c;

    for (int i = 0; i < 3; i++) {
        void *const values =
            weights_values(BERTH_BF16, shapes[i][0] * shapes[i][1], 3, false);

        compared_model_add(&m, fixture_format("model.layers.%d.a.weight", i), BERTH_BF16,
                           shapes[i][0], shapes[i][1], values);
        free(values);
    }
    fixture_add_lines(m.builder, "BF16 5 model.norm.weight\nI64 3 model.numbers\n");
    plain = compared_model_end(&m);
    for (int i = 0; i < 5; i++)
        encoded[i] = compared_quantize(plain, types[i % 3], i > 2);
    for (int i = 0; i < 5; i++)
        for (int k = -1; k <= i; k++) {
            const char *const other = k < 0 ? plain : encoded[k];
            const berth_diff_tensor *t;

            CHECK_EQ(compared_check(&c, i % 2 == 0 ? other : encoded[i],
                                    i % 2 == 0 ? encoded[i] : other),
                     4);
            t = compared_find(&c, "model.layers.0.a.weight");
            CHECK_EQ(t->has_codes, k >= 0 && k % 3 == i % 3);
            CHECK_EQ(t->is_same, k == i);
            CHECK_EQ(t->has_same_statistics, k == i);
            if (k == i - 3) /* one level or two: the same codes */
                CHECK_EQ(t->codes, 0);
            t = compared_find(&c, "model.numbers");
            CHECK_EQ(t->has_values, 0);
            CHECK_EQ(t->is_same, 1);
            CHECK_EQ(c.report.equal, k == i ? 5 : 2);
            CHECK_EQ(c.report.same, k == i ? 5 : 2);
        }
}

static void
test_turned(void)
{
    static const uint64_t shapes[][2] = { { 1201, 1507 }, { 7, 5 }, { 100, 1 }, { 1, 99 } };
    const compared_model m = compared_model_begin(GPT2);
    const char *plain;
    compared c;

    for (int i = 0; i < 4; i++) {
        void *const values =
            weights_values(BERTH_BF16, shapes[i][0] * shapes[i][1], 3, false);

        compared_model_add(&m, fixture_format("transformer.h.%d.attn.c_attn.weight", i),
                           BERTH_BF16, shapes[i][0], shapes[i][1], values);
        free(values);
    }
    plain = compared_model_end(&m);
    for (int i = 0; i < 4; i++) {
        static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8 };
        const char *const encoded = compared_quantize(plain, types[i % 2], i == 2);

        CHECK_EQ(compared_check(&c, plain, encoded), 4);
        CHECK_EQ(c.tensors[0].is_turned, 1);
        CHECK_EQ(c.tensors[0].a.shape[0], 1201);
        CHECK_EQ(c.tensors[0].b.shape[0], 1507);
        CHECK(c.tensors[0].errors.relative < 0.2);
        CHECK_EQ(compared_check(&c, encoded, plain), 4);
        CHECK_EQ(c.tensors[0].is_turned, 1);
        CHECK(c.tensors[0].errors.relative < 0.2);
        /* Without a configuration its own codes are still its own codes. */
        fixture_remove(fixture_format("%s/config.json", encoded));
        compared_begin(&c);
        CHECK_EQ(compared_run(&c, encoded, compared_quantize(plain, types[i % 2], i == 2)),
                 BERTH_OK);
        CHECK_EQ(c.report.same, 4);
        CHECK_EQ(c.tensors[0].is_turned, 0);
    }
}

/* Experts are decoded as a whole; plain ones are read beside them. */
static void
test_experts(void)
{
    const char *const folder = fixture_folder();
    const char *const other = fixture_folder();
    const char *plain;
    compared c;

    fixture_model(folder, "[model.safetensors]\n"
                          "U8 5x48x3x16 model.layers.0.experts.x_blocks\n"
                          "U8 5x48x3 model.layers.0.experts.x_scales = 120\n"
                          "U8 3x1100x32x16 model.layers.1.experts.x_blocks\n"
                          "U8 3x1100x32 model.layers.1.experts.x_scales = 125\n"
                          "BF16 5 model.layers.0.experts.x_bias\n");
    fixture_copy_folder(folder, other);
    plain = compared_decode(folder);
    CHECK_EQ(compared_check(&c, folder, plain), 3);
    CHECK_STR(c.names[0], "model.layers.0.experts.x");
    CHECK_STR(c.names[1], "model.layers.0.experts.x_bias");
    CHECK_EQ(c.tensors[0].a.encoding, BERTH_ENCODING_MXFP4);
    CHECK_EQ(c.report.equal, 3);
    CHECK_EQ(compared_check(&c, plain, folder), 3);
    CHECK_EQ(c.report.equal, 3);
    fixture_flip(fixture_format("%s/model.safetensors", other),
                 fixture_size(fixture_format("%s/model.safetensors", other)) - 7, 0x21);
    fixture_flip(fixture_format("%s/model.safetensors", plain),
                 fixture_size(fixture_format("%s/model.safetensors", plain)) - 9, 0x21);
    CHECK_EQ(compared_check(&c, plain, other), 3);
    CHECK_EQ(compared_check(&c, other, plain), 3);
    CHECK_LT(c.report.equal, 3);
    CHECK_EQ(compared_check(&c, folder, other), 3);
    CHECK_EQ(c.report.same, 2);
}

/* --------------------------------------------------------------- what is found */

static void
test_kinds(void)
{
    const char *const a = fixture_folder();
    const char *const b = fixture_folder();
    static const struct {
        const char *name;
        int32_t kind;
        int32_t is_same;
        int32_t has_codes;
        int32_t has_values;
    } known[] = {
        { "a", BERTH_DIFF_ONLY_A, 0, 0, 0 },       { "aa", BERTH_DIFF_COMPARED, 1, 1, 1 },
        { "b", BERTH_DIFF_ONLY_B, 0, 0, 0 },       { "c", BERTH_DIFF_SHAPE, 0, 0, 0 },
        { "d", BERTH_DIFF_DTYPE, 0, 0, 0 },        { "e", BERTH_DIFF_COMPARED, 0, 1, 0 },
        { "empty", BERTH_DIFF_COMPARED, 1, 1, 1 }, { "f", BERTH_DIFF_SHAPE, 0, 0, 0 },
        { "g", BERTH_DIFF_COMPARED, 1, 1, 0 },     { "h", BERTH_DIFF_DTYPE, 0, 0, 0 },
        { "i", BERTH_DIFF_COMPARED, 0, 0, 1 },     { "s", BERTH_DIFF_COMPARED, 1, 1, 1 },
        { "z", BERTH_DIFF_ONLY_B, 0, 0, 0 },
    };
    compared c;

    fixture_model(a, "[model.safetensors]\nF32 3 a\nF32 2x3 aa\nF32 2x3 c\nI64 4 d\n"
                     "U8 5 e = 1 2 3 4 5\nBF16 0x7 empty\nBF16 4x2 f\nBOOL 9 g\n"
                     "I32 4 h\nF32 2 i = 1 2\nF16 - s\n");
    fixture_model(b, "[model.safetensors]\nF32 2x3 aa\nF32 3 b\nF32 3x2 c\nBF16 4 d\n"
                     "U8 5 e = 1 0 3 4 255\nBF16 0x7 empty\nBF16 8 f\nBOOL 9 g\n"
                     "I64 4 h\nBF16 2 i\nF16 - s\nF32 3 z\n");
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, a, b), BERTH_OK);
    T_REQUIRE(CHECK_EQ(c.count, sizeof known / sizeof known[0]));
    for (uint32_t i = 0; i < c.count; i++) {
        const berth_diff_tensor *const t = &c.tensors[i];

        CHECK_STR(c.names[i], known[i].name);
        if (!CHECK_EQ(t->kind, known[i].kind) || !CHECK_EQ(t->is_same, known[i].is_same)
            || !CHECK_EQ(t->has_codes, known[i].has_codes)
            || !CHECK_EQ(t->has_values, known[i].has_values))
            T_NOTE("%s", known[i].name);
        CHECK_EQ(t->is_rejected, 0);
    }
    CHECK_EQ(compared_find(&c, "e")->codes, 2);
    CHECK_EQ(compared_find(&c, "i")->errors.different, 2);
    CHECK_EQ(compared_find(&c, "a")->a.bytes, 12);
    CHECK_EQ(compared_find(&c, "a")->b.bytes, 0);
    CHECK_EQ(compared_find(&c, "z")->b.bytes, 12);
    CHECK_EQ(compared_find(&c, "z")->elements, 3);
    CHECK_EQ(compared_find(&c, "c")->b.shape[0], 3);
    CHECK_EQ(compared_find(&c, "c")->b.rank, 2);
    CHECK_EQ(compared_find(&c, "s")->elements, 1);
    CHECK_EQ(compared_find(&c, "s")->a.rank, 0);
    CHECK_EQ(compared_find(&c, "empty")->errors.count, 0);
    CHECK_EQ(c.report.compared, 6);
    CHECK_EQ(c.report.same, 4);
    CHECK_EQ(c.report.equal, 4);
    CHECK_EQ(c.report.only_a, 1);
    CHECK_EQ(c.report.only_b, 2);
    CHECK_EQ(c.report.other_shape, 2);
    CHECK_EQ(c.report.other_dtype, 2);
    CHECK_EQ(c.report.elements, 6 + 5 + 0 + 9 + 2 + 1);
    CHECK_EQ(c.report.codes, 2);
    CHECK_EQ(c.report.errors.count, 6 + 2 + 1);
    CHECK_EQ(c.report.errors.histogram[0], 6 + 1);
    CHECK(c.report.errors.unit == 0);
    CHECK_NE(c.report.io_path[0], '\0');
    CHECK_GT(c.report.bytes_read, 0);
}

/* Bytes of codes, absmax and state that are turned one by one. */
static void
test_codes(void)
{
    const compared_model m = compared_model_begin(FIXTURE_CONFIG);
    void *const values = weights_values(BERTH_BF16, 33 * 33, 3, false);
    static const struct {
        const char *tensor;
        uint64_t from_end; /* 1: its last byte */
        unsigned mask;
        uint64_t codes;
        int32_t has_same_statistics;
    } known[] = {
        { "model.layers.0.a.weight", 545, 0x10, 1, 1 },
        { "model.layers.0.a.weight", 545, 0x31, 2, 1 },
        { "model.layers.0.a.weight", 300, 0x0F, 1, 1 },
        { "model.layers.0.a.weight", 1, 0x40, 1, 1 },
        { "model.layers.0.a.weight", 1, 0x04, 0, 1 }, /* no code: 33 * 33 is odd */
        { "model.layers.0.a.weight.absmax", 4, 0x01, 0, 0 },
        { "model.layers.0.a.weight.quant_map", 1, 0x01, 0, 1 },
        { "model.layers.0.a.weight.nested_absmax", 1, 0x01, 0, 0 },
    };
    const char *encoded;

    compared_model_add(&m, "model.layers.0.a.weight", BERTH_BF16, 33, 33, values);
    free(values);
    encoded = compared_quantize(compared_model_end(&m), BERTH_ENCODING_NF4, true);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *const other = fixture_folder();
        const char *const file = fixture_format("%s/model.safetensors", other);
        berth_checkpoint *checkpoint;
        berth_context *context;
        berth_tensor tensor;
        compared c;

        fixture_copy_folder(encoded, other);
        CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
        CHECK_EQ(berth_checkpoint_open(context, other, NULL, &checkpoint, NULL), BERTH_OK);
        CHECK_EQ(berth_checkpoint_tensor(checkpoint,
                                         berth_checkpoint_find(checkpoint, known[i].tensor,
                                                               strlen(known[i].tensor)),
                                         &tensor),
                 BERTH_OK);
        fixture_flip(file, tensor.file_offset + tensor.bytes - known[i].from_end,
                     known[i].mask);
        berth_checkpoint_close(checkpoint);
        berth_context_destroy(context);
        compared_begin(&c);
        c.options.requires_same = 1;
        CHECK_EQ(compared_run(&c, encoded, other), BERTH_EPOLICY);
        CHECK_CONTAINS(c.error.message, "not the same bytes");
        if (!CHECK_EQ(c.tensors[0].codes, known[i].codes)
            || !CHECK_EQ(c.tensors[0].has_same_statistics, known[i].has_same_statistics)
            || !CHECK_EQ(c.tensors[0].is_same, 0))
            T_NOTE("%s, %d", known[i].tensor, (int)i);
        CHECK_EQ(c.report.codes, known[i].codes);
        CHECK_EQ(c.tensors[0].errors.different > 0,
                 known[i].codes > 0 || !known[i].has_same_statistics);
    }
}

/* The same absmax, rounded to another dtype as they are recovered. */
static void
test_nested_dtype(void)
{
    static const char from[] = "\"nested_dtype\": \"float32\"";
    const compared_model m = compared_model_begin(FIXTURE_CONFIG);
    void *const values = weights_values(BERTH_BF16, 33 * 33, 3, false);
    const char *const other = fixture_folder();
    const char *const file = fixture_format("%s/model.safetensors", other);
    const char *encoded;
    compared c;
    size_t length;
    char *bytes;
    size_t at;

    compared_model_add(&m, "model.layers.0.a.weight", BERTH_BF16, 33, 33, values);
    free(values);
    encoded = compared_quantize(compared_model_end(&m), BERTH_ENCODING_NF4, true);
    fixture_copy_folder(encoded, other);
    bytes = fixture_read(file, &length);
    for (at = 0; at + sizeof from <= length && memcmp(bytes + at, from, sizeof from - 1) != 0;)
        at++;
    memcpy(bytes + at + sizeof from - 4, "16", 2);
    fixture_write(file, bytes, length);
    free(bytes);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, encoded, other), BERTH_OK);
    CHECK_EQ(c.tensors[0].codes, 0);
    CHECK_EQ(c.tensors[0].has_same_statistics, 0);
    CHECK_EQ(c.tensors[0].is_same, 0);
}

/* Blocks of an odd size begin inside bytes: a unit's codes then come with some before them. */
static void
test_codes_of_other_blocks(void)
{
    static const char *const scales[] = { "300x6", "300x3" };
    const char *folders[2];
    compared c;

    for (uint32_t i = 0; i < 2; i++) {
        folders[i] = fixture_folder();
        fixture_model(folders[i],
                      fixture_format("[model.safetensors]\nI8 300x2193 a.weight\n"
                                     "F8_E8M0 %s a.weight_scale_inv = 127\n", scales[i]));
    }
    for (uint32_t i = 0; i < 2; i++) {
        compared_begin(&c);
        CHECK_EQ(compared_run(&c, folders[i], folders[1 - i]), BERTH_OK);
        T_REQUIRE(c.count == 1);
        CHECK_EQ(c.tensors[0].a.encoding, BERTH_ENCODING_FP4_PACKED);
        CHECK_EQ(c.tensors[0].codes, 0);
        CHECK_EQ(c.tensors[0].has_same_statistics, 0);
        CHECK_EQ(c.tensors[0].errors.different, 0);
    }
    fixture_flip(fixture_format("%s/model.safetensors", folders[1]),
                 fixture_size(fixture_format("%s/model.safetensors", folders[1])) - 2000, 0x11);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    CHECK_EQ(c.tensors[0].codes, 2);
}

/* A shard by itself, whose scales lie in another one: no values, and codes as they are. */
static void
test_codes_without_scales(void)
{
    const char *folders[2];
    compared c;

    for (uint32_t i = 0; i < 2; i++) {
        const char *const folder = fixture_folder();

        folders[i] = fixture_format("%s/model-00001-of-00002.safetensors", folder);
        fixture_file(folders[i], i == 0 ? "F8_E4M3 4x8 a.weight = 1\nBF16 4 b\n"
                                        : "F8_E4M3 4x8 a.weight = 1 2\nBF16 4 b\n");
        fixture_text(fixture_format("%s/config.json", folder),
                     "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    }
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    T_REQUIRE(c.count == 2);
    CHECK_EQ(c.tensors[0].has_values, 0);
    CHECK_EQ(c.tensors[0].is_same, 0);
    CHECK_EQ(c.tensors[0].codes, 31);
    CHECK_EQ(c.tensors[1].has_values, 1);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[0]), BERTH_OK);
    CHECK_EQ(c.tensors[0].is_same, 1);
}

/* Words of GPTQ: `qweight` is a line of fixture_model(), `scales` numbers for one. */
static const char *
make_packed(const char *qweight, const char *scales, uint32_t bits)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[model.safetensors]\n%s\nI32 1x2 m.qzeros\n"
                                         "F32 1x16 m.scales = %s\nI32 64 m.g_idx\n"
                                         "F32 4 n = 1 2 3 4\n", qweight, scales));
    fixture_text(fixture_format("%s/config.json", folder),
                 fixture_format("{\"quantization_config\": {\"quant_method\": \"gptq\", "
                                "\"bits\": %u}}", bits));
    return folder;
}

/* What berth does not decode is compared as it is stored, statistics included. */
static void
test_packed_by_others(void)
{
    static const struct {
        const char *qweight;
        const char *scales;
        uint32_t bits;
        int32_t kind;
        int32_t is_same;
        uint64_t codes; /* words that differ */
    } cases[] = {
        { "I32 8x16 m.qweight = 1", "1", 4, BERTH_DIFF_COMPARED, 1, 0 },
        { "I32 8x16 m.qweight = 1 2 3", "1", 4, BERTH_DIFF_COMPARED, 0, 127 },
        { "I32 8x16 m.qweight = 1 -1", "1", 4, BERTH_DIFF_COMPARED, 0, 127 },
        { "I32 8x16 m.qweight = 1", "1 2", 4, BERTH_DIFF_COMPARED, 0, 0 },
        { "I32 16x16 m.qweight = 1", "1", 8, BERTH_DIFF_SHAPE, 0, 0 },
        { "I32 16x8 m.qweight = 1", "1", 4, BERTH_DIFF_SHAPE, 0, 0 },
        { "U8 8x16 m.qweight = 1", "1", 4, BERTH_DIFF_DTYPE, 0, 0 },
    };
    const char *const first = make_packed("I32 8x16 m.qweight = 1", "1", 4);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        compared c;

        compared_begin(&c);
        CHECK_EQ(compared_run(&c, first,
                              make_packed(cases[i].qweight, cases[i].scales, cases[i].bits)),
                 BERTH_OK);
        T_REQUIRE(c.count == 2);
        CHECK_EQ(c.tensors[0].kind, cases[i].kind);
        CHECK_EQ(c.tensors[0].is_same, cases[i].is_same);
        CHECK_EQ(c.tensors[0].has_values, 0);
        CHECK_EQ(c.tensors[0].has_same_statistics,
                 cases[i].kind == BERTH_DIFF_COMPARED && strcmp(cases[i].scales, "1") == 0);
        if (!CHECK_EQ(c.tensors[0].codes, cases[i].codes))
            T_NOTE("case %zu", i);
        CHECK_EQ(c.tensors[1].is_same, 1);
    }
}

/* What the statistics of others are only their names tell. */
static void
test_statistics_by_name(void)
{
    static const char *const names[] = { "weight_scale", "weight_scale_inv" };
    const char *folders[2];
    compared c;

    for (uint32_t i = 0; i < 2; i++) {
        folders[i] = fixture_folder();
        fixture_model(folders[i], fixture_format("[model.safetensors]\nI8 4x8 m.weight = 1\n"
                                                 "F32 4x1 m.%s = 2\n", names[i]));
        fixture_text(fixture_format("%s/config.json", folders[i]),
                     "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}}");
    }
    for (uint32_t i = 0; i < 2; i++) {
        compared_begin(&c);
        CHECK_EQ(compared_run(&c, folders[0], folders[i]), BERTH_OK);
        T_REQUIRE(c.count == 1);
        CHECK_EQ(c.tensors[0].kind, BERTH_DIFF_COMPARED);
        CHECK_EQ(c.tensors[0].is_same, i == 0);
        CHECK_EQ(c.tensors[0].has_same_statistics, i == 0);
        CHECK_EQ(c.tensors[0].codes, 0);
    }
}

/* Beside the weight of a model that is not packed, which has another name. */
static void
test_packed_beside_values(void)
{
    const char *const packed = make_packed("I32 8x16 m.qweight = 1", "1", 4);
    const char *const plain = fixture_folder();
    compared c;

    fixture_model(plain, "[model.safetensors]\nBF16 16x64 m.weight\nF32 4 n = 1 2 3 4\n");
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, packed, plain), BERTH_OK);
    T_REQUIRE(c.count == 3);
    CHECK_EQ(c.tensors[0].kind, BERTH_DIFF_ONLY_A);
    CHECK_EQ(c.tensors[1].kind, BERTH_DIFF_ONLY_B);
    CHECK_EQ(c.tensors[2].is_same, 1);
}

/* Numbers of 6 bits are counted one by one, also where a unit ends. */
static void
test_sixes(void)
{
    const char *const folders[2] = { fixture_folder(), fixture_folder() };
    const char *const file = fixture_format("%s/model.safetensors", folders[1]);
    uint64_t end;
    compared c;

    for (uint32_t i = 0; i < 2; i++)
        fixture_model(folders[i], "[model.safetensors]\nF6_E3M2 3000x2000 a\n");
    end = fixture_size(file);
    for (uint64_t i = 0; i < 6; i++) /* two groups on both sides of 4 MiB */
        fixture_flip(file, end - 4500000 + (UINT64_C(4) << 20) - 4 + i, 0xFF);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    T_REQUIRE(c.count == 1);
    CHECK_EQ(c.tensors[0].has_values, 0);
    CHECK_EQ(c.tensors[0].codes, 8);
    fixture_flip(file, end - 1, 0x80);
    fixture_flip(file, end - 3, 0xC0);
    compared_begin(&c);
    CHECK_EQ(compared_run(&c, folders[0], folders[1]), BERTH_OK);
    CHECK_EQ(c.tensors[0].codes, 10);
}

/* Numbers of every width, against a loop over them. */
static void
test_count_codes(void)
{
    static const uint32_t widths[] = { 0, 1, 2, 4, 8 };
    uint8_t a[80];
    uint8_t b[80];
    uint64_t state = 1;

    for (int round = 0; round < 2000; round++) {
        const uint32_t width = widths[round % 5];
        const uint64_t bytes = weights_random(&state) % 10 * (width > 0 ? width : 1);
        const bool is_odd = width == 0 && round % 2 == 1;
        uint64_t expected = 0;

        for (size_t i = 0; i < sizeof a; i++) {
            a[i] = (uint8_t)weights_random(&state);
            b[i] = a[i];
            if (weights_random(&state) % 3 == 0)
                b[i] ^= (uint8_t)(weights_random(&state) & weights_random(&state));
        }
        for (uint64_t i = 0; i < bytes && width > 0; i += width)
            expected += memcmp(a + i, b + i, width) != 0;
        for (uint64_t i = 0; i < 2 * bytes && width == 0; i++)
            expected += !(is_odd && i == 2 * bytes - 1)
                        && (((a[i / 2] ^ b[i / 2]) >> (i % 2 == 0 ? 4 : 0)) & 15) != 0;
        if (!CHECK_EQ(berthi_diff_count_codes(a, b, bytes, width, is_odd), expected))
            T_NOTE("%u bytes each, %u bytes", width, (unsigned)bytes);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_plain_values);
    T_RUN(test_the_same);
    T_RUN(test_quantized);
    T_RUN(test_turned);
    T_RUN(test_experts);
    T_RUN(test_kinds);
    T_RUN(test_codes);
    T_RUN(test_nested_dtype);
    T_RUN(test_codes_of_other_blocks);
    T_RUN(test_codes_without_scales);
    T_RUN(test_packed_by_others);
    T_RUN(test_statistics_by_name);
    T_RUN(test_packed_beside_values);
    T_RUN(test_sixes);
    T_RUN(test_count_codes);
    T_MAIN_END;
}
