/* SPDX-License-Identifier: Apache-2.0 */
/* test_classify_scaled.c - FP8, packed FP4, MXFP4, and methods that are only named. */
#include "quant/classify.h"

#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tensors.h"

#define FP8 "{\"quantization_config\": {\"quant_method\": \"fp8\"}}"
#define FP8_BLOCK(block)                                                                   \
    "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": " block  \
    "}}"
#define METHOD(word) "{\"quantization_config\": {\"quant_method\": \"" word "\"}}"

static berth_context *context;

static void
check_error(const char *lines, const char *config, berth_reason reason, const char *tensor,
            const char *why)
{
    tensors *const t = tensors_create(lines);

    for (int keep_going = 0; keep_going < 2; keep_going++) {
        uint32_t errors = 0;

        CHECK_EQ(tensors_run(t, context, config, keep_going != 0),
                 berthi_reason_status((int32_t)reason));
        CHECK_STR(berth_reason_name(t->error.reason), berth_reason_name((int32_t)reason));
        CHECK_STR(t->error.tensor, tensor);
        CHECK_STR(t->error.file, "m/model.safetensors");
        CHECK_CONTAINS(t->error.message, why);
        for (uint32_t i = 0; i < t->finding_count; i++)
            errors += t->severities[i] == BERTH_SEVERITY_ERROR;
        if (!CHECK_EQ(errors, keep_going))
            T_NOTE("%s", lines);
    }
    tensors_destroy(t);
}

/* The run must succeed; the caller destroys the tensors. */
static tensors *
run(const char *lines, const char *config)
{
    tensors *const t = tensors_create(lines);

    if (!CHECK_EQ(tensors_run(t, context, config, false), BERTH_OK))
        T_NOTE("%s: \"%s\": %s", lines, t->error.tensor, t->error.message);
    for (uint32_t i = 0; i < t->count; i++)
        CHECK_EQ(t->all[i].marks, t->all[i].encoding != BERTH_ENCODING_NATIVE);
    return t;
}

static void
check_blocks(const char *weight, const char *scale, const char *config, uint32_t rows,
             uint32_t columns, const char *method)
{
    tensors *const t = run(fixture_format("F8_E4M3 %s a.weight\n%s\n", weight, scale),
                           config);
    const berthi_quantized *const q = tensors_record(t, "a.weight");

    if (CHECK(q != NULL)) {
        CHECK_EQ(q->encoding, BERTH_ENCODING_FP8_BLOCK);
        CHECK_EQ(q->dtype, -1);
        CHECK_EQ(q->block_size, rows);
        CHECK_EQ(q->block_columns, columns);
        CHECK_STR(tensors_shape(q), weight);
        CHECK_STR(q->method, method);
        CHECK_EQ(q->companion_count, 1);
        CHECK_EQ(q->total_bytes, t->all[0].bytes + t->all[1].bytes);
        CHECK_EQ(q->is_double, false);
        CHECK_EQ(t->result.parameter_count, q->elements);
        CHECK_EQ(t->finding_count, 0);
    } else {
        T_NOTE("%s beside %s", weight, scale);
    }
    tensors_destroy(t);
}

/* ----------------------------------------------------------------------- FP8 blocks */

static void
test_fp8_configured(void)
{
    check_blocks("256x384", "F32 2x3 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
    check_blocks("576x7168", "F32 5x56 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
    check_blocks("192x200", "BF16 2x2 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
    check_blocks("256x384", "F8_E8M0 2x3 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
    check_blocks("256x384", "U8 2x3 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
    check_blocks("256x384", "F32 4x12 a.weight_scale_inv", FP8_BLOCK("[64, 32]"), 64, 32,
                 "fp8 blocks");
    check_blocks("7x256x384", "F32 7x2x3 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
    check_blocks("256x384", "F32 2x3 a.scale", FP8, 128, 128, "fp8 blocks");
    check_blocks("129x1", "F32 2x1 a.weight_scale_inv", FP8, 128, 128, "fp8 blocks");
}

/* Without a configuration: what divides, else 128. */
static void
test_fp8_derived(void)
{
    check_blocks("256x384", "F32 4x6 a.weight_scale_inv", NULL, 64, 64, "fp8 blocks");
    check_blocks("256x384", "F32 2x3 a.weight_scale_inv", NULL, 128, 128, "fp8 blocks");
    check_blocks("576x256", "F32 5x2 a.weight_scale_inv", NULL, 128, 128, "fp8 blocks");
    check_blocks("256x200", "F32 2x2 a.weight_scale_inv", NULL, 128, 100, "fp8 blocks");
    check_blocks("192x200", "F32 2x2 a.weight_scale_inv", NULL, 96, 100, "fp8 blocks");
    check_blocks("300x128", "F32 3x1 a.weight_scale_inv", NULL, 100, 128, "fp8 blocks");
    check_blocks("128x300", "F32 1x3 a.weight_scale_inv", NULL, 128, 100, "fp8 blocks");
    check_blocks("0x256", "F32 0x2 a.weight_scale_inv", NULL, 128, 128, "fp8 blocks");
    check_blocks("256x0", "F32 2x0 a.weight_scale_inv", NULL, 128, 128, "fp8 blocks");
}

static void
test_fp8_whole_tensor(void)
{
    check_blocks("256x384", "F32 - a.weight_scale_inv", FP8, 256, 384, "fp8 tensor");
    check_blocks("256x384", "F32 1 a.weight_scale_inv", FP8, 256, 384, "fp8 tensor");
    check_blocks("256x384", "BF16 1x1 a.weight_scale_inv", NULL, 256, 384, "fp8 tensor");
    check_blocks("3x256x384", "F32 3x1x1 a.weight_scale_inv", FP8, 256, 384, "fp8 tensor");
    check_blocks("3x256x384", "F32 - a.weight_scale_inv", FP8, 256, 384, "fp8 tensor");
    check_blocks("16", "F32 - a.weight_scale_inv", FP8, 1, 16, "fp8 tensor");
    check_blocks("256x384", "F32 - a.weight_scale", METHOD("fbgemm_fp8"), 256, 384,
                 "fp8 tensor");
    check_blocks("256x384", "F32 1 a.weight_scale", METHOD("compressed-tensors"), 256, 384,
                 "fp8 tensor");
}

static void
test_fp8_rows(void)
{
    check_blocks("256x384", "F32 256 a.weight_scale", METHOD("fbgemm_fp8"), 1, 384,
                 "fp8 rows");
    check_blocks("256x384", "F32 256x1 a.weight_scale", NULL, 1, 384, "fp8 rows");
}

/* Scales of whole tensors, of which fused experts have two: gate and up. */
static void
test_fp8_without_blocks(void)
{
    check_blocks("4x256x384", "F32 4x2x1 a.weight_scale_inv", FP8_BLOCK("null"), 128, 384,
                 "fp8 blocks");
    check_blocks("4x256x384", "F32 4x1x1 a.weight_scale_inv", FP8_BLOCK("null"), 256, 384,
                 "fp8 tensor");
    check_blocks("256x384", "F32 - a.weight_scale_inv", FP8_BLOCK("null"), 256, 384,
                 "fp8 tensor");
    check_error("F8_E4M3 4x256x384 a.weight\nF32 4x2x1 a.weight_scale_inv\n", FP8,
                BERTH_REASON_COMPANION_MISMATCH, "a.weight_scale_inv", "scales do not fit");
}

/* A scale under the parameter's own name: experts fused into one. */
static void
test_fp8_fused(void)
{
    tensors *const t = run("F8_E4M3 4x256x128 e.gate_up_proj\n"
                           "F32 4x2x1 e.gate_up_proj_scale_inv\n", FP8);

    CHECK(tensors_record(t, "e.gate_up_proj") != NULL);
    CHECK_EQ(tensors_find(t, "e.gate_up_proj_scale_inv")->encoding,
             BERTH_ENCODING_STATISTICS);
    tensors_destroy(t);
}

static void
test_fp8_grid_mismatch(void)
{
    static const struct {
        const char *weight;
        const char *scale;
        uint64_t expected;
        uint64_t actual;
    } cases[] = {
        { "256x384", "F32 3x3", 2, 3 },    { "256x384", "F32 1x3", 2, 1 },
        { "256x384", "F32 2x4", 3, 4 },    { "257x384", "F32 2x3", 3, 2 },
        { "256x384", "F32 2", 2, 1 },      { "256x384", "F32 1x2x3", 2, 3 },
        { "4x256x384", "F32 3x2x3", 4, 3 }, { "4x256x384", "F32 4", 3, 1 },
        { "16", "F32 2", 1, 1 },           { "256x384", "F32 1x1x1", 2, 3 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const lines =
            fixture_format("F8_E4M3 %s a.weight\n%s a.weight_scale_inv\n", cases[i].weight,
                           cases[i].scale);
        tensors *const t = tensors_create(lines);

        check_error(lines, FP8, BERTH_REASON_COMPANION_MISMATCH, "a.weight_scale_inv",
                    "scales");
        tensors_run(t, context, FP8, false);
        CHECK_EQ(t->error.expected, cases[i].expected);
        CHECK_EQ(t->error.actual, cases[i].actual);
        tensors_destroy(t);
    }
    check_error("F8_E4M3 256x384 a.weight\nF16 2x3 a.weight_scale_inv\n", FP8,
                BERTH_REASON_COMPANION_MISMATCH, "a.weight_scale_inv", "has dtype F16");
}

static void
test_fp8_activation_scales(void)
{
    tensors *const t = run("F8_E4M3 256x384 a.weight\nF32 2x3 a.weight_scale_inv\n"
                           "F32 1 a.input_scale\nF32 1 a.activation_scale\n"
                           "F32 1 b.input_scale\nF8_E4M3 256x384 bc.weight\n"
                           "F32 2x3 bc.weight_scale_inv\nF32 1 ab.activation_scale\n", FP8);
    const berthi_quantized *const q = tensors_record(t, "a.weight");

    T_REQUIRE(q != NULL);
    CHECK_EQ(q->companion_count, 3);
    CHECK_EQ(q->total_bytes, 256 * 384 + 24 + 8);
    CHECK_EQ(tensors_find(t, "a.input_scale")->encoding, BERTH_ENCODING_STATISTICS);
    CHECK_EQ(tensors_find(t, "a.activation_scale")->encoding, BERTH_ENCODING_STATISTICS);
    CHECK_EQ(tensors_find(t, "b.input_scale")->encoding, BERTH_ENCODING_NATIVE);
    CHECK_EQ(tensors_record(t, "bc.weight")->companion_count, 1);
    CHECK_EQ(t->result.parameter_count, 2 * 256 * 384 + 2);
    T_REQUIRE(t->finding_count == 1);
    CHECK_EQ(t->severities[0], BERTH_SEVERITY_NOTE);
    CHECK_CONTAINS(t->findings[0].message, "2 scales of activations");
    tensors_destroy(t);
}

/* Of fused experts: one an expert, under the parameter's name. */
static void
test_fp8_fused_activation_scales(void)
{
    tensors *const t = run("F8_E4M3 4x256x128 e.down_proj\nF32 4 e.down_proj_activation_scale\n"
                           "F32 4x2x1 e.down_proj_scale_inv\nF8_E4M3 4x256x128 e.up_proj\n"
                           "F32 - e.up_proj_input_scale\nF32 4x2x1 e.up_proj_scale_inv\n"
                           "F32 4 e.other_activation_scale\n", FP8);

    T_REQUIRE(t->result.count == 2);
    CHECK_EQ(tensors_record(t, "e.down_proj")->companion_count, 2);
    CHECK_EQ(tensors_record(t, "e.up_proj")->companion_count, 2);
    CHECK_EQ(tensors_find(t, "e.down_proj_activation_scale")->encoding,
             BERTH_ENCODING_STATISTICS);
    CHECK_EQ(tensors_find(t, "e.other_activation_scale")->encoding, BERTH_ENCODING_NATIVE);
    CHECK_EQ(t->result.parameter_count, 2 * 4 * 256 * 128 + 4);
    T_REQUIRE(t->finding_count == 1);
    CHECK_CONTAINS(t->findings[0].message, "2 scales of activations");
    tensors_destroy(t);
}

/* ------------------------------------------------------------- 8-bit floats, plain */

static void
test_fp8_without_scales(void)
{
    static const char *const dtypes[] = { "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ",
                                          "F8_E5M2FNUZ" };

    for (unsigned i = 0; i < 4; i++) {
        const char *const lines =
            fixture_format("%s 2x2 a.weight\n%s 3 b.weight\n", dtypes[i], dtypes[i]);
        tensors *const t = run(lines, NULL);

        CHECK_EQ(t->result.count, 0);
        CHECK_EQ(t->result.parameter_count, 7);
        T_REQUIRE(t->finding_count == 1);
        CHECK_EQ(t->severities[0], BERTH_SEVERITY_WARNING);
        CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_PLAIN);
        CHECK_STR(t->findings[0].tensor, "a.weight");
        CHECK_STR(t->findings[0].file, "m/model.safetensors");
        CHECK_CONTAINS(t->findings[0].message, "plain numbers: 2 tensors");
        tensors_destroy(t);
        check_error(fixture_format("%s 2x2 a.weight\n", dtypes[i]), FP8,
                    BERTH_REASON_QUANT_PLAIN, "a.weight", dtypes[i]);
        check_error(fixture_format("%s 2x2 a.weight\n", dtypes[i]),
                    "{\"quantization_config\": {}}", BERTH_REASON_QUANT_PLAIN, "a.weight",
                    "no scales");
    }
}

static void
test_one_fp8_without_scales(void)
{
    tensors *const t = run("F8_E4M3 2x2 a.weight\n", NULL);

    T_REQUIRE(t->finding_count == 1);
    CHECK_CONTAINS(t->findings[0].message, "plain numbers: 1 tensors");
    tensors_destroy(t);
    /* bitsandbytes promises nothing about 8-bit floats. */
    tensors_destroy(run("F8_E5M2 2x2 a.weight\n", METHOD("bitsandbytes")));
}

/* An empty weight whose grid is not: nothing to divide by. */
static void
test_fp8_empty(void)
{
    check_error("F8_E4M3 0x256 a.weight\nF32 1x2 a.weight_scale_inv\n", NULL,
                BERTH_REASON_COMPANION_MISMATCH, "a.weight_scale_inv", "scales do not fit");
    check_error("F8_E4M3 256x0 a.weight\nF32 2x1 a.weight_scale_inv\n", NULL,
                BERTH_REASON_COMPANION_MISMATCH, "a.weight_scale_inv", "scales do not fit");
}

/* The numbers of a mismatch are those that disagree. */
static void
check_numbers(const char *lines, uint64_t expected, uint64_t actual)
{
    tensors *const t = tensors_create(lines);

    CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_EFORMAT);
    CHECK_EQ(t->error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(t->error.expected, expected);
    CHECK_EQ(t->error.actual, actual);
    tensors_destroy(t);
}

static void
test_numbers(void)
{
    check_numbers("I8 64x64 a.weight\nF8_E8M0 64x3 a.weight_scale_inv\n", 128, 3);
    check_numbers("I8 64x64 a.weight\nF8_E8M0 64x4x1 a.weight_scale_inv\n", 2, 3);
    check_numbers("I8 64x64 a.weight\nF8_E8M0 60x4 a.weight_scale_inv\n", 64, 60);
    check_numbers("U8 2x48x3x32 x_blocks\nU8 2x48x3 x_scales\n", 16, 32);
    check_numbers("U8 2x48x3x16x1 x_blocks\nU8 2x48x3 x_scales\n", 16, 0);
    check_numbers("U8 48x3x16 x_blocks\nU8 48x3 x_scales\n", 16, 0);
    check_numbers("U8 2x48x3x16 x_blocks\nU8 288 x_scales\n", 3, 1);
}

/* Scales are no weights, whatever their dtype. */
static void
test_e8m0_is_no_weight(void)
{
    tensors *const t = run("F8_E8M0 2x2 a.scales\n", NULL);

    CHECK_EQ(t->finding_count, 0);
    tensors_destroy(t);
}

static void
test_lone_scale(void)
{
    tensors *t;

    check_error("F32 2x3 a.weight_scale_inv\n", FP8, BERTH_REASON_COMPANION_UNKNOWN,
                "a.weight_scale_inv", "\"a.weight\", which is not there");
    check_error("BF16 2x3 a.weight\nF32 1x1 a.weight_scale_inv\n", NULL,
                BERTH_REASON_COMPANION_MISMATCH, "a.weight", "has dtype BF16");
    t = run("F32 2x3 a.weight_scale_inv\n", METHOD("quanto"));
    tensors_destroy(t);
    t = run("F32 1 logit_scale_inv\nF32 1 a.xweight_scale_inv\n", NULL);
    CHECK_EQ(t->finding_count, 0);
    tensors_destroy(t);
}

/* ----------------------------------------------------------------------- packed FP4 */

static void
test_fp4_packed(void)
{
    static const char *const names[] = { "a.weight_scale_inv", "a.weight_scale", "a.scale" };

    for (unsigned i = 0; i < 3; i++) {
        tensors *const t = run(fixture_format("I8 64x64 a.weight\nF8_E8M0 64x4 %s\n",
                                              names[i]), FP8);
        const berthi_quantized *const q = tensors_record(t, "a.weight");

        T_REQUIRE(q != NULL);
        CHECK_EQ(q->encoding, BERTH_ENCODING_FP4_PACKED);
        CHECK_STR(tensors_shape(q), "64x128");
        CHECK_EQ(q->block_size, 32);
        CHECK_EQ(q->block_columns, 0);
        CHECK_EQ(q->dtype, -1);
        CHECK_EQ(q->total_bytes, 64 * 64 + 64 * 4);
        CHECK_STR(q->method, "fp4 packed");
        CHECK_EQ(t->result.parameter_count, 64 * 128);
        CHECK_EQ(t->finding_count, 0);
        tensors_destroy(t);
    }
}

static void
test_fp4_packed_experts(void)
{
    tensors *const t = run("I8 3x8x16 e.down_proj\nF8_E8M0 3x8x2 e.down_proj_scale_inv\n",
                           NULL);

    CHECK_STR(tensors_shape(tensors_record(t, "e.down_proj")), "3x8x32");
    CHECK_EQ(tensors_record(t, "e.down_proj")->block_size, 16);
    tensors_destroy(t);
}

static void
test_fp4_packed_mismatch(void)
{
    static const struct {
        const char *scale;
        const char *why;
    } cases[] = {
        { "F8_E8M0 63x4", "do not fit the shape" },
        { "F8_E8M0 64x3", "columns do not divide" },
        { "F8_E8M0 64x0", "columns do not divide" },
        { "F8_E8M0 64", "another rank" },
        { "F8_E8M0 64x4x1", "another rank" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_error(fixture_format("I8 64x64 a.weight\n%s a.weight_scale_inv\n",
                                   cases[i].scale), FP8, BERTH_REASON_COMPANION_MISMATCH,
                    "a.weight_scale_inv", cases[i].why);
}

/* ---------------------------------------------------------------------------- MXFP4 */

static void
test_mxfp4(void)
{
    tensors *const t = run("U8 2x48x3x16 e.gate_up_proj_blocks\nU8 2x48x3 e.gate_up_proj_scales\n"
                           "BF16 2x48 e.gate_up_proj_bias\n", METHOD("mxfp4"));
    const berthi_quantized *const q = tensors_record(t, "e.gate_up_proj_blocks");

    T_REQUIRE(q != NULL);
    CHECK_EQ(q->encoding, BERTH_ENCODING_MXFP4);
    CHECK_STR(tensors_shape(q), "2x96x48");
    CHECK_EQ(q->elements, 2 * 96 * 48);
    CHECK_EQ(q->block_size, 32);
    CHECK_EQ(q->total_bytes, 2 * 48 * 3 * 17);
    CHECK_EQ(q->companion_count, 1);
    CHECK_STR(q->method, "mxfp4");
    CHECK_EQ(t->result.parameter_count, 2 * 96 * 48 + 96);
    CHECK_EQ(t->finding_count, 0);
    CHECK_EQ(tensors_find(t, "e.gate_up_proj_bias")->encoding, BERTH_ENCODING_NATIVE);
    tensors_destroy(t);
}

static void
test_mxfp4_missing(void)
{
    tensors *t;

    check_error("U8 2x48x3x16 e.x_blocks\n", METHOD("mxfp4"),
                BERTH_REASON_COMPANION_MISSING, "e.x_blocks", "\"_scales\" is missing");
    check_error("U8 2x48x3 e.x_scales\n", METHOD("mxfp4"), BERTH_REASON_COMPANION_UNKNOWN,
                "e.x_scales", "\"e.x\", which is not there");
    t = run("U8 2x48x3x15 a_blocks\nU8 48x16 b_blocks\nF32 2x4x3 c_scales\nU8 2x3 d_scales\n"
            "F32 2x2 f_blocks\nF32 2 f_scales\nU8 16 g_blocks\n", NULL);
    CHECK_EQ(t->result.count, 0);
    tensors_destroy(t);
}

static void
test_mxfp4_mismatch(void)
{
    static const struct {
        const char *blocks;
        const char *scales;
        const char *tensor;
        const char *why;
    } cases[] = {
        { "2x48x3x16", "U8 2x48x4", "x_scales", "scales do not fit" },
        { "2x48x3x16", "U8 2x47x3", "x_scales", "scales do not fit" },
        { "2x48x3x16", "U8 3x48x3", "x_scales", "scales do not fit" },
        { "2x48x3x16", "U8 288", "x_scales", "rank of scales" },
        { "2x48x3x16", "I8 2x48x3", "x_scales", "has dtype I8, not U8" },
        { "2x48x3x32", "U8 2x48x3", "x_blocks", "[experts, rows, groups, 16]" },
        { "48x3x16", "U8 48x3", "x_blocks", "[experts, rows, groups, 16]" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_error(fixture_format("U8 %s x_blocks\n%s x_scales\n", cases[i].blocks,
                                   cases[i].scales), NULL, BERTH_REASON_COMPANION_MISMATCH,
                    cases[i].tensor, cases[i].why);
}

/* No values, but as they are decoded more than can be counted on the way. */
static void
test_mxfp4_overflow(void)
{
    check_error("U8 4611686018427387904x0x4x16 x_blocks\nU8 4611686018427387904x0x4 x_scales\n",
                NULL, BERTH_REASON_OVERFLOW, "x_blocks", "does not fit 64 bits");
}

/* ---------------------------------------------------------------------- only named */

/* One foreign weight, `tensor`, with this many companions, and one note about it. */
static void
check_foreign(const char *lines, const char *config, const char *tensor,
              unsigned companions, const char *method)
{
    tensors *const t = run(lines, config);
    const berthi_quantized *const q = tensors_record(t, tensor);

    CHECK_EQ(t->result.count, 1);
    if (CHECK(q != NULL)) {
        CHECK_EQ(q->encoding, BERTH_ENCODING_FOREIGN);
        CHECK_STR(q->method, method);
        CHECK_EQ(q->companion_count, companions);
        CHECK_EQ(q->dtype, -1);
    }
    if (CHECK_EQ(t->finding_count, 1)) {
        CHECK_EQ(t->severities[0], BERTH_SEVERITY_NOTE);
        CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_METHOD);
        CHECK_CONTAINS(t->findings[0].message, fixture_format("\"%s\"", method));
        CHECK_CONTAINS(t->findings[0].message, ": 1 weights");
    }
    tensors_destroy(t);
}

#define AWQ "I32 16x32 a.qweight\nI32 1x4 a.qzeros\nF16 1x32 a.scales\n"

static void
test_gptq_and_awq(void)
{
    tensors *t;

    check_foreign(AWQ, NULL, "a.qweight", 2, "awq");
    check_foreign(AWQ "I32 128 a.g_idx\n", NULL, "a.qweight", 3, "gptq");
    check_foreign(AWQ "I32 128 a.g_idx\n", METHOD("auto-round"), "a.qweight", 3,
                  "auto-round");
    check_foreign(AWQ, METHOD("gptq"), "a.qweight", 2, "gptq");
    t = run("F32 16x32 a.qweight\n", NULL);
    CHECK_EQ(t->result.count, 0);
    tensors_destroy(t);
}

/* Packed into other whole numbers: told by the scales beside them, or by config.json. */
static void
test_qweight_of_other_dtypes(void)
{
    static const char *const dtypes[] = { "I16", "U16", "U32", "I8", "U8" };

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const char *const lines = fixture_format("%s 16x32 a.qweight\n", dtypes[i]);
        const char *const beside =
            fixture_format("%sF16 4x64 a.scales\nF16 4x64 a.qzeros\n", lines);
        tensors *t = run(lines, NULL);

        CHECK_EQ(t->result.count, 0);
        CHECK_EQ(t->finding_count, 0);
        tensors_destroy(t);
        check_foreign(lines, METHOD("awq"), "a.qweight", 0, "awq");
        check_foreign(beside, NULL, "a.qweight", 2, "awq");
        check_foreign(beside, METHOD("gptq"), "a.qweight", 2, "gptq");
        check_foreign(fixture_format("%sBF16 8x64 a.wscales\nBF16 8x64 a.wzeros\n", lines),
                      NULL, "a.qweight", 2, "packed with scales");
    }
    tensors *const t = run("I16 16x32 a.qweight\nF16 4x64 a.scales\nF16 4x64 a.qzeros\n",
                           "{\"quantization_config\": {\"quant_method\": \"awq\", "
                           "\"bits\": 4}}");

    CHECK_EQ(t->result.parameter_count, 512 * 4);
    tensors_destroy(t);
}

static void
test_gptq_parameters(void)
{
    static const struct {
        const char *bits;
        uint64_t count;
    } cases[] = {
        { "4", 512 * 8 }, { "8", 512 * 4 }, { "2", 512 * 16 }, { "3", 512 * 32 / 3 },
        { "1", 512 * 32 }, { "0", 512 }, { "32", 512 }, { "33", 512 }, { "31", 512 * 32 / 31 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensors *const t = run(AWQ, fixture_format("{\"quantization_config\": "
                                                   "{\"quant_method\": \"gptq\", "
                                                   "\"bits\": %s}}", cases[i].bits));

        CHECK_EQ(t->result.parameter_count, cases[i].count);
        CHECK_EQ(tensors_record(t, "a.qweight")->elements, 512);
        tensors_destroy(t);
    }
}

static void
test_compressed_tensors(void)
{
    const char *const named = "{\"quantization_config\": {\"quant_method\": "
                              "\"compressed-tensors\", \"format\": \"pack-quantized\"}}";

    check_foreign("I32 16x32 a.weight_packed\nBF16 16x4 a.weight_scale\n"
                  "I64 2 a.weight_shape\nI32 4 a.weight_g_idx\nI32 2x4 a.weight_zero_point\n",
                  named, "a.weight_packed", 4, "compressed-tensors pack-quantized");
    check_foreign("U8 16x32 a.weight_packed\nF8_E4M3 16x4 a.weight_scale\n"
                  "F32 1 a.weight_global_scale\n", NULL, "a.weight_packed", 2,
                  "compressed-tensors");
    check_foreign("I8 16x32 a.weight\nBF16 16x1 a.weight_scale\n", named, "a.weight", 1,
                  "compressed-tensors pack-quantized");
    check_foreign("I8 16x32 a.weight\nBF16 16x1 a.weight_scale\n", NULL, "a.weight", 1,
                  "int8 with scales");
    check_foreign("I8 16x32 a.weight\nF32 16x1 a.scale\n", NULL, "a.weight", 1,
                  "int8 with scales");
}

/* As MLX has them: their config.json names no method. */
static void
test_mlx(void)
{
    static const char *const all = "BF16 64x8 a.biases\nBF16 64x8 a.scales\nU32 64x64 a.weight\n"
                                   "BF16 8 norm.weight\n";
    tensors *t;

    check_foreign("BF16 64x8 a.biases\nBF16 64x8 a.scales\nU32 64x64 a.weight\n", NULL,
                  "a.weight", 2, "mlx");
    check_foreign("U8 64x16 a.scales\nU32 64x64 a.weight\n",
                  "{\"quantization_config\": {\"group_size\": 32, \"mode\": \"mxfp4\"}}",
                  "a.weight", 1, "mlx");
    t = run(all, "{\"quantization_config\": {\"group_size\": 64, \"bits\": 4}}");
    CHECK_EQ(t->result.count, 1);
    CHECK_EQ(t->result.parameter_count, 64 * 512 + 8);
    tensors_destroy(t);
    /* Numbers like any others. */
    t = run("U32 64x64 a.weight\nU32 4x4 b.ids\nBF16 4 b.scales\nU32 9 c.weight\n"
            "BF16 1 c.scales\n", NULL);
    CHECK_EQ(t->result.count, 0);
    CHECK_EQ(t->finding_count, 0);
    tensors_destroy(t);
}

/* Tensors of optimum-quanto: nothing but the names says so. */
static void
test_quanto(void)
{
    static const char *const others[] = { "I8 4x8 a.weight._data", "F32 4x8 b.weight._data",
                                          "I8 4x8 c_data" };
    tensors *t;

    check_foreign("I8 4x8 a.weight._data\nBF16 4x1 a.weight._scale\n", NULL,
                  "a.weight._data", 1, "quanto");
    check_foreign("F8_E4M3 4x8 a.weight._data\nBF16 4x1 a.weight._scale\n", NULL,
                  "a.weight._data", 1, "quanto");
    check_foreign("U8 4x8 a.weight._data._data\nBF16 4x1 a.weight._scale\n"
                  "BF16 4x1 a.weight._shift\nBF16 1 a.input_scale\n", NULL,
                  "a.weight._data._data", 2, "quanto");
    check_foreign("U8 4x8 _data._data\n", METHOD("quanto"), "_data._data", 0, "quanto");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        t = run(fixture_format("%s\nBF16 4x1 b.weight._scale\nBF16 4x1 c_scale\n",
                               others[i]), NULL);
        CHECK_EQ(t->result.count, 0);
        tensors_destroy(t);
    }
}

/* Under names that others give them: never taken as numbers without scales. */
static void
test_fp8_other_names(void)
{
    check_foreign("F32 - a.scale_weight\nF8_E4M3 4x8 a.weight\n", NULL, "a.weight", 1,
                  "fp8 with scales of another kind");
    check_foreign("F32 - a.qscale_weight\nF8_E4M3 4x8 a.weight\n", NULL, "a.weight", 1,
                  "fp8 with scales of another kind");
    check_foreign("F32 1 a.scale_weight\nF8_E5M2 4x8 a.weight\n", NULL, "a.weight", 1,
                  "F8_E5M2");
}

/* Bytes beside them are no plain numbers, either, nor LLM.int8() without its maxima. */
static void
test_bytes_with_other_names(void)
{
    check_foreign("F32 16 a.scale_weight\nI8 16x32 a.weight\n", NULL, "a.weight", 1,
                  "int8 with scales");
    check_foreign("F32 16 a.qscale_weight\nU8 16x32 a.weight\n", NULL, "a.weight", 1,
                  "packed with scales");
}

static void
test_nvfp4(void)
{
    check_foreign("U8 16x32 a.weight\nF8_E4M3 16x4 a.weight_scale\nF32 1 a.weight_scale_2\n",
                  METHOD("modelopt"), "a.weight", 2, "modelopt");
    check_foreign("U8 16x32 a.weight\nF8_E4M3 16x4 a.weight_scale\n", NULL, "a.weight", 1,
                  "packed with scales");
}

/* FP8 whose scales are of a kind that berth does not decode. */
static void
test_foreign_fp8(void)
{
    static const char *const scales[] = { "BF16 256x1", "F32 255",     "F32 256x2",
                                          "F32 2x128",  "F32 256x1x1", "F32 1x256",
                                          "U8 256x12",  "F8_E8M0 256x12", "F32 0" };

    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        check_foreign(fixture_format("F8_E4M3 256x384 a.weight\n%s a.weight_scale\n",
                                     scales[i]), NULL, "a.weight", 1,
                      "fp8 with scales of another kind");
    check_foreign("F8_E4M3 2x256x384 a.weight\nF32 2 a.weight_scale\n", NULL, "a.weight", 1,
                  "fp8 with scales of another kind");
    check_foreign("F8_E5M2 256x384 a.weight\nF32 2x3 a.weight_scale_inv\n", FP8, "a.weight",
                  1, "F8_E5M2");
    check_foreign("F8_E4M3 256x384 a.weight\nF8_E4M3 4 a.vector\n", METHOD("torchao"),
                  "a.weight", 0, "torchao");
}

/* Any other word: whole numbers and small floats of two dims are its weights. */
static void
test_unknown_method(void)
{
    static const char *const dtypes[] = { "I8",  "U8",  "I16", "U16", "I32",
                                          "U32", "F4",  "F6_E3M2", "F6_E2M3" };

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        check_foreign(fixture_format("%s 16x32 a.codes\nBF16 4x4 b.weight\nI64 2x2 c.ids\n"
                                     "%s 16 d.vector\n", dtypes[i], dtypes[i]),
                      METHOD("hqq"), "a.codes", 0, "hqq");
        tensors *const t = run(fixture_format("%s 16x32 a.codes\n", dtypes[i]), NULL);

        CHECK_EQ(t->result.count, 0);
        CHECK_EQ(t->result.parameter_count, 512);
        tensors_destroy(t);
    }
}

static void
test_method_without_weights(void)
{
    tensors *const t = run("BF16 4x4 a.weight\n", METHOD("torch\\u001bao"));

    T_REQUIRE(t->finding_count == 1);
    CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_METHOD);
    CHECK_CONTAINS(t->findings[0].message, ": 0 weights");
    CHECK(strchr(t->findings[0].message, '\x1b') == NULL);
    tensors_destroy(t);
}

/* Two foreign weights never fight over a companion. */
static void
test_foreign_takes_what_is_left(void)
{
    tensors *const t = run("I8 4x4 a.weight\nBF16 4x1 a.weight_scale\nF32 4 a.scale\n"
                           "I32 4x4 a.weight_packed\n", NULL);

    CHECK_EQ(t->result.count, 2);
    CHECK_EQ(tensors_find(t, "a.weight_scale")->marks, 1);
    tensors_destroy(t);
}

static void
test_many_companions(void)
{
    check_foreign("I8 4x4 a.weight\nBF16 4 a.weight_scale\nF32 1 a.weight_scale_inv\n"
                  "F32 1 a.weight_scale_2\nF32 1 a.weight_global_scale\n"
                  "F32 1 a.weight_zero_point\nF32 1 a.weight_g_idx\nF32 1 a.weight_shape\n"
                  "F32 1 a.scale\n", METHOD("x"), "a.weight", 8, "x");
}

/* ------------------------------------------------------------------------- faults */

static berth_status
classify_once(void *user, berth_context *its_context, berth_error *error)
{
    tensors *const t = user;
    const berth_status status = tensors_run(t, its_context, METHOD("hqq"), false);

    CHECK_EQ(t->result.count, status == BERTH_OK ? 4 : 0);
    *error = t->error;
    berthi_classify_fini(&t->result);
    return status;
}

static void
test_every_allocation_fails(void)
{
    tensors *const t = tensors_create(AWQ "F8_E4M3 2x2 f.weight\nF32 - f.weight_scale_inv\n"
                                          "I8 4x4 g.weight\nF8_E8M0 4x1 g.weight_scale\n"
                                          "U8 1x1x1x16 h_blocks\nU8 1x1x1 h_scales\n");
    const fault_counts counts = fault_loop("classify, other methods", classify_once, t);

    CHECK_GE(counts.memory, 2 * 4);
    CHECK_EQ(counts.survived, 0);
    tensors_destroy(t);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_fp8_configured);
    T_RUN(test_fp8_derived);
    T_RUN(test_fp8_whole_tensor);
    T_RUN(test_fp8_rows);
    T_RUN(test_fp8_without_blocks);
    T_RUN(test_fp8_fused);
    T_RUN(test_fp8_grid_mismatch);
    T_RUN(test_fp8_activation_scales);
    T_RUN(test_fp8_fused_activation_scales);
    T_RUN(test_fp8_without_scales);
    T_RUN(test_one_fp8_without_scales);
    T_RUN(test_fp8_empty);
    T_RUN(test_numbers);
    T_RUN(test_e8m0_is_no_weight);
    T_RUN(test_lone_scale);
    T_RUN(test_fp4_packed);
    T_RUN(test_fp4_packed_experts);
    T_RUN(test_fp4_packed_mismatch);
    T_RUN(test_mxfp4);
    T_RUN(test_mxfp4_missing);
    T_RUN(test_mxfp4_mismatch);
    T_RUN(test_mxfp4_overflow);
    T_RUN(test_gptq_and_awq);
    T_RUN(test_qweight_of_other_dtypes);
    T_RUN(test_gptq_parameters);
    T_RUN(test_compressed_tensors);
    T_RUN(test_mlx);
    T_RUN(test_quanto);
    T_RUN(test_fp8_other_names);
    T_RUN(test_bytes_with_other_names);
    T_RUN(test_nvfp4);
    T_RUN(test_foreign_fp8);
    T_RUN(test_unknown_method);
    T_RUN(test_method_without_weights);
    T_RUN(test_foreign_takes_what_is_left);
    T_RUN(test_many_companions);
    T_RUN(test_every_allocation_fails);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
