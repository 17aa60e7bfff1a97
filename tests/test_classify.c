/* SPDX-License-Identifier: Apache-2.0 */
/* test_classify.c - weights of bitsandbytes, and what every layout has in common. */
#include "quant/classify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tensors.h"

#define STATE ".quant_state.bitsandbytes__nf4"
#define BNB "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}"

/* As classify.c takes them for many tensors. */
#define LARGE_BLOCK (UINT64_C(2) << 20)

static berth_context *context;

/* Runs and expects one error about `tensor`, both with and without going on. */
static void
check_error(tensors *t, const char *config, berth_reason reason, const char *tensor,
            const char *why)
{
    for (int keep_going = 0; keep_going < 2; keep_going++) {
        uint32_t errors = 0;

        CHECK_EQ(tensors_run(t, context, config, keep_going != 0),
                 berthi_reason_status((int32_t)reason));
        CHECK_STR(berth_reason_name(t->error.reason), berth_reason_name((int32_t)reason));
        CHECK_STR(t->error.tensor, tensor);
        CHECK_STR(t->error.file, "m/model.safetensors");
        CHECK_CONTAINS(t->error.message, why);
        CHECK_EQ(t->result.count, 0);
        CHECK(t->result.blocks == NULL);
        for (uint32_t i = 0; i < t->finding_count; i++)
            errors += t->severities[i] == BERTH_SEVERITY_ERROR;
        CHECK_EQ(errors, keep_going);
    }
}

static void
check_clean(tensors *t, const char *config)
{
    if (!CHECK_EQ(tensors_run(t, context, config, false), BERTH_OK))
        T_NOTE("\"%s\": %s", t->error.tensor, t->error.message);
    CHECK_EQ(t->finding_count, 0);
}

/* Every tensor is marked once at most, and statistics lead to their weight. */
static void
check_marks(const tensors *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const tensors_one *const one = &t->all[i];

        CHECK_EQ(one->marks, one->encoding != BERTH_ENCODING_NATIVE);
        if (one->marks == 0)
            continue;
        T_REQUIRE(one->record < t->result.count);
        const berthi_quantized *const record =
            berthi_classify_record(&t->result, one->record);
        bool is_listed = false;

        if (one->encoding != BERTH_ENCODING_STATISTICS) {
            CHECK_EQ(record->weight, i);
            CHECK_EQ(record->encoding, one->encoding);
            continue;
        }
        for (uint32_t k = 0; k < record->companion_count; k++)
            is_listed = is_listed || record->companions[k] == i;
        CHECK(is_listed);
    }
}

/* ------------------------------------------------------------------ plain models */

static void
test_plain(void)
{
    tensors *const t = tensors_create("BF16 4x8 a.weight\nF32 4 a.bias\nI64 3 a.position\n"
                                      "U8 7 a.bytes\nBOOL - flag\nI8 4 a.codes\n"
                                      "F32 2 a.absmax\nF32 1 logit_scale\nU8 2x2 weight\n"
                                      "F32 4x8 x.codebook_scales\nI32 2 g_idx\n"
                                      "F32 2x2 attention_blocks\nI32 2x2 ids\n");

    check_clean(t, NULL);
    CHECK_EQ(t->result.count, 0);
    CHECK_EQ(t->result.parameter_count, 32 + 4 + 3 + 7 + 1 + 4 + 2 + 1 + 4 + 32 + 2 + 4 + 4);
    check_marks(t);
    CHECK_EQ(t->reads, 0);
    tensors_destroy(t);
}

static void
test_nothing(void)
{
    tensors *const t = tensors_create("");
    berthi_classify_result none;

    check_clean(t, NULL);
    CHECK_EQ(t->result.parameter_count, 0);
    memset(&none, 0, sizeof none);
    berthi_classify_fini(&none);
    tensors_destroy(t);
}

static void
test_unkept_promise(void)
{
    tensors *const t = tensors_create("BF16 4x8 a.weight\n");

    CHECK_EQ(tensors_run(t, context, BNB, false), BERTH_OK);
    T_REQUIRE(t->finding_count == 1);
    CHECK_EQ(t->severities[0], BERTH_SEVERITY_WARNING);
    CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_PLAIN);
    CHECK_CONTAINS(t->findings[0].message, "\"bitsandbytes\", but no tensor is quantized");
    CHECK_STR(t->findings[0].tensor, "");
    tensors_destroy(t);
}

static void
test_unkept_promise_without_a_method(void)
{
    tensors *const t = tensors_create("BF16 4x8 a.weight\n");

    CHECK_EQ(tensors_run(t, context, "{\"quantization_config\": {\"bits\": 4}}", false),
             BERTH_OK);
    T_REQUIRE(t->finding_count == 1);
    CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_PLAIN);
    CHECK_CONTAINS(t->findings[0].message, "by no method that it names, but no tensor");
    tensors_destroy(t);
}

/* ------------------------------------------------------------------------- 4-bit */

static void
test_4bit(void)
{
    tensors *const t = tensors_create("BF16 8 m.norm.weight\nBF16 272 m.x.bias\n");
    const berthi_quantized *q;

    tensors_add_4bit(t, "m.x.weight", "nf4", 272, 64, false);
    check_clean(t, BNB);
    check_marks(t);
    CHECK_EQ(t->result.count, 1);
    q = tensors_record(t, "m.x.weight");
    T_REQUIRE(q != NULL);
    CHECK_EQ(q->encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(q->dtype, BERTH_BF16);
    CHECK_EQ(q->block_size, 64);
    CHECK_EQ(q->block_columns, 0);
    CHECK_EQ(q->is_double, false);
    CHECK_EQ(q->is_transposed_absmax, false);
    CHECK(q->offset == 0.0);
    CHECK_STR(tensors_shape(q), "272x64");
    CHECK_EQ(q->elements, 272 * 64);
    CHECK_EQ(q->companion_count, 3);
    CHECK_EQ(q->total_bytes, 272 * 32 + 272 * 4 + 64
                                 + tensors_find(t, "m.x.weight" STATE)->bytes);
    CHECK_STR(q->method, "bitsandbytes nf4");
    CHECK_EQ(t->result.parameter_count, 8 + 272 + 272 * 64);
    CHECK(tensors_record(t, "m.norm.weight") == NULL);
    CHECK_EQ(tensors_find(t, "m.x.bias")->encoding, BERTH_ENCODING_NATIVE);
    tensors_destroy(t);
}

static void
test_4bit_double(void)
{
    tensors *const t = tensors_create("");
    const berthi_quantized *q;

    tensors_add_4bit(t, "w", "fp4", 257, 64, true); /* 257 blocks: two of the second level */
    check_clean(t, BNB);
    check_marks(t);
    q = tensors_record(t, "w");
    T_REQUIRE(q != NULL);
    CHECK_EQ(q->encoding, BERTH_ENCODING_FP4);
    CHECK_EQ(q->is_double, true);
    CHECK(q->offset == 0.5);
    CHECK_EQ(q->companion_count, 5);
    CHECK_EQ(tensors_find(t, "w.nested_absmax")->bytes, 8);
    CHECK_EQ(q->total_bytes, 257 * 32 + 257 + 8 + 1024 + 64
                                 + tensors_find(t, "w.quant_state.bitsandbytes__fp4")->bytes);
    CHECK_STR(q->method, "bitsandbytes fp4");
    CHECK_EQ(t->result.parameter_count, 257 * 64);
    tensors_destroy(t);
}

/* Packed bytes under every storage dtype, and any shape of them. */
static void
test_4bit_storage(void)
{
    static const char *const stored[] = { "U8 64x1", "I8 64x1", "F16 32x1", "BF16 32x1",
                                          "F32 16x1", "F64 8x1", "U8 1x64", "U8 64",
                                          "I8 8x8",  "BF16 1x32" };

    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        tensors *const t = tensors_create("");

        tensors_add_4bit(t, "a.weight", "nf4", 2, 64, false);
        tensors_remove(t, "a.weight");
        tensors_add(t, fixture_format("%s a.weight\n", stored[i]));
        check_clean(t, NULL);
        CHECK_EQ(t->result.count, 1);
        CHECK_EQ(t->result.parameter_count, 128);
        tensors_destroy(t);
    }
}

static void
test_4bit_storage_refused(void)
{
    static const struct {
        const char *stored;
        const char *why;
    } cases[] = {
        { "I64 8", "has dtype I64" },         { "BOOL 64", "has dtype BOOL" },
        { "U8 63", "bytes of packed codes" }, { "U8 65", "bytes of packed codes" },
        { "BF16 64", "bytes of packed codes" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensors *const t = tensors_create("");

        tensors_add_4bit(t, "a.weight", "nf4", 2, 64, false);
        tensors_remove(t, "a.weight");
        tensors_add(t, fixture_format("%s a.weight\n", cases[i].stored));
        check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.weight", cases[i].why);
        if (i == 1)
            CHECK_CONTAINS(t->error.message, "not one that 4-bit codes are stored as");
        if (i >= 2) {
            CHECK_EQ(t->error.expected, 64);
            CHECK_EQ(t->error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
        }
        tensors_destroy(t);
    }
}

/* n odd: one more byte; a last block of one element. */
static void
test_4bit_odd(void)
{
    tensors *const t = tensors_create("");

    tensors_add_4bit(t, "a.weight", "nf4", 5, 13, false); /* 65 elements, 33 bytes */
    CHECK_EQ(tensors_find(t, "a.weight")->bytes, 33);
    CHECK_EQ(tensors_find(t, "a.weight.absmax")->elements, 2);
    check_clean(t, NULL);
    CHECK_EQ(t->result.parameter_count, 65);
    tensors_destroy(t);
}

/* Any one companion taken away is a named error. */
static void
test_4bit_companion_missing(void)
{
    static const char *const plain[] = { "absmax", "quant_map",
                                         "quant_state.bitsandbytes__nf4" };
    static const char *const nested[] = { "absmax", "quant_map", "nested_absmax",
                                          "nested_quant_map",
                                          "quant_state.bitsandbytes__nf4" };

    for (int is_double = 0; is_double < 2; is_double++) {
        const char *const *const words = is_double ? nested : plain;

        for (unsigned i = 0; i < (is_double ? 5 : 3); i++) {
            tensors *const t = tensors_create("BF16 4 m.norm.weight\nBF16 4 m.x.bias\n");

            tensors_add_4bit(t, "m.x.weight", "nf4", 4, 64, is_double != 0);
            tensors_remove(t, fixture_format("m.x.weight.%s", words[i]));
            check_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.x.weight", words[i]);
            CHECK_CONTAINS(t->error.message, "is missing");
            tensors_destroy(t);
        }
    }
}

static void
test_4bit_weight_missing(void)
{
    for (int is_double = 0; is_double < 2; is_double++) {
        tensors *const t = tensors_create("BF16 4 m.x.bias\n");

        tensors_add_4bit(t, "m.x.weight", "nf4", 4, 64, is_double != 0);
        tensors_remove(t, "m.x.weight");
        check_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.weight" STATE,
                    "\"m.x.weight\", which is not there");
        tensors_remove(t, "m.x.weight" STATE);
        check_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.weight.absmax",
                    "\"m.x.weight\", which is not there");
        tensors_destroy(t);
    }
}

/* One of the words alone, without a weight, is a name like any other. */
static void
test_4bit_lone_word(void)
{
    tensors *t = tensors_create("F32 4 a.absmax\nF32 4 b.quant_map\nF32 4 c.nested_absmax\n"
                                "F32 4 d.nested_quant_map\n");

    check_clean(t, NULL);
    CHECK_EQ(t->result.parameter_count, 16);
    tensors_destroy(t);
    t = tensors_create("F32 4 a\nF32 4 a.absmax\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "a", "quant_state");
    tensors_destroy(t);
    t = tensors_create("F32 4 a.nested_absmax\nF32 4 a.nested_quant_map\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_UNKNOWN, "a.nested_absmax", "\"a\"");
    tensors_destroy(t);
    t = tensors_create("F32 4 a.quant_map\nF32 4 a.absmax\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_UNKNOWN, "a.absmax", "\"a\"");
    tensors_destroy(t);
}

/* Codes that nothing stands beside: known by their shape, in a model of 4-bit weights. */
static void
test_4bit_bare_codes(void)
{
    static const char config[] = "{\"quantization_config\": {\"load_in_4bit\": true}}";
    static const char *const others[] = { "U8 128 m.x.weight", "U8 64x2 m.x.weight",
                                          "U8 1x128 m.x.weight", "U8 128x1x1 m.x.weight",
                                          "U8 128x1 m.x.table", "U16 64x1 m.x.weight" };
    tensors *t = tensors_create("U8 128x1 m.x.weight\n");

    check_error(t, config, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "quant_state");
    check_clean(t, NULL);
    tensors_add_4bit(t, "m.y.weight", "fp4", 4, 64, false);
    check_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "quant_state");
    tensors_destroy(t);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        t = tensors_create(fixture_format("%s\n", others[i]));
        tensors_add_4bit(t, "m.y.weight", "nf4", 4, 64, false);
        check_clean(t, config);
        CHECK_EQ(t->result.count, 1);
        tensors_destroy(t);
    }
}

static void
test_4bit_unknown_child(void)
{
    static const char *const names[] = { "a.weight.aaa", "a.weight.zzz", "a.weight.",
                                         "a.weight.quant_state.bitsandbytes__int3",
                                         "a.weight.p.q.r" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tensors *const t = tensors_create("BF16 2 a.weight_norm\nBF16 2 a.weight-g\n"
                                          "BF16 2 a.weigh\nBF16 2 a.bias\n");

        tensors_add_4bit(t, "a.weight", "nf4", 4, 64, true);
        check_clean(t, BNB);
        tensors_add(t, fixture_format("F32 2 %s\n", names[i]));
        check_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, names[i],
                    "no companion of a 4-bit weight");
        tensors_destroy(t);
    }
}

static void
test_4bit_two_states(void)
{
    tensors *const t = tensors_create("");

    tensors_add_4bit(t, "a", "nf4", 4, 64, false);
    tensors_add(t, "U8 * a.quant_state.bitsandbytes__fp4 {\"quant_type\": \"fp4\", "
                   "\"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [4, 64]}\n");
    CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_EFORMAT);
    CHECK_EQ(t->error.reason, BERTH_REASON_COMPANION_UNKNOWN);
    CHECK_STR(t->error.tensor, "a" STATE);
    tensors_destroy(t);
}

/* A tensor that is the absmax of one weight and itself another weight. */
static void
test_4bit_contested(void)
{
    tensors *const t = tensors_create(
        "U8 64x1 a\nF32 2 a.absmax\nF32 16 a.quant_map nf4\nU8 * a" STATE
        " {\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
        "\"shape\": [128]}\n"
        "F32 1 a.absmax.absmax\nF32 16 a.absmax.quant_map nf4\nU8 * a.absmax" STATE
        " {\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
        "\"shape\": [16]}\n");

    check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a", "belongs to another weight");
    tensors_destroy(t);
}

/* Replaces a companion by another one and expects to hear about it. */
static void
check_replaced(bool is_double, const char *word, const char *line, berth_reason reason,
               const char *why)
{
    tensors *const t = tensors_create("");

    tensors_add_4bit(t, "a.w", "nf4", 4, 64 * 65, is_double);
    tensors_remove(t, fixture_format("a.w.%s", word));
    tensors_add(t, fixture_format("%s", line));
    check_error(t, BNB, reason, fixture_format("a.w.%s", word), why);
    tensors_destroy(t);
}

static void
test_4bit_mismatch(void)
{
    static const struct {
        const char *word;
        const char *line;
        const char *why;
        bool is_double;
    } cases[] = {
        /* 4 x 4160 in blocks of 64: 260 blocks, 2 of the second level */
        { "absmax", "F32 259 a.w.absmax", "absmax values do not fit", false },
        { "absmax", "F32 261 a.w.absmax", "absmax values do not fit", false },
        { "absmax", "F32 260x1 a.w.absmax", "absmax values do not fit", false },
        { "absmax", "F16 260 a.w.absmax", "has dtype F16, not F32", false },
        { "absmax", "U8 260 a.w.absmax", "has dtype U8, not F32", false },
        { "absmax", "F32 260 a.w.absmax", "has dtype F32, not U8", true },
        { "absmax", "U8 259 a.w.absmax", "absmax values do not fit", true },
        { "quant_map", "F32 15 a.w.quant_map", "values of the code table", false },
        { "quant_map", "F32 17 a.w.quant_map", "values of the code table", false },
        { "quant_map", "BF16 16 a.w.quant_map", "has dtype BF16, not F32", false },
        { "nested_absmax", "F32 1 a.w.nested_absmax", "second-level absmax", true },
        { "nested_absmax", "F32 3 a.w.nested_absmax", "second-level absmax", true },
        { "nested_absmax", "F16 2 a.w.nested_absmax", "has dtype F16", true },
        { "nested_quant_map", "F32 255 a.w.nested_quant_map", "second-level code table",
          true },
        { "nested_quant_map", "U8 256 a.w.nested_quant_map", "has dtype U8", true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_replaced(cases[i].is_double, cases[i].word, cases[i].line,
                       BERTH_REASON_COMPANION_MISMATCH, cases[i].why);
}

static void
test_4bit_mismatch_numbers(void)
{
    tensors *const t = tensors_create("");

    tensors_add_4bit(t, "a.w", "nf4", 4, 64 * 65, false);
    tensors_remove(t, "a.w.absmax");
    tensors_add(t, "F32 259 a.w.absmax\n");
    tensors_run(t, context, NULL, false);
    CHECK_EQ(t->error.expected, 260);
    CHECK_EQ(t->error.actual, 259);
    CHECK_EQ(t->error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    tensors_destroy(t);
}

static void
test_4bit_state(void)
{
    static const struct {
        const char *line;
        berth_reason reason;
        const char *why;
    } cases[] = {
        { "U8 * a.w" STATE " {\"quant_type\": \"nf4\"}", BERTH_REASON_STATE_JSON,
          "it lacks blocksize" },
        { "U8 * a.w" STATE " x", BERTH_REASON_STATE_JSON, "unusable" },
        { "U8 0 a.w" STATE, BERTH_REASON_STATE_JSON, "empty or too large" },
        { "U8 65537 a.w" STATE, BERTH_REASON_STATE_JSON, "empty or too large" },
        { "U8 65536 a.w" STATE, BERTH_REASON_STATE_JSON, "unusable" },
        { "I8 90 a.w" STATE, BERTH_REASON_COMPANION_MISMATCH, "not a vector of U8" },
        { "U8 90x1 a.w" STATE, BERTH_REASON_COMPANION_MISMATCH, "not a vector of U8" },
        { "U8 * a.w" STATE " {\"quant_type\": \"fp4\", \"blocksize\": 64, \"dtype\": "
          "\"bfloat16\", \"shape\": [4, 4160]}", BERTH_REASON_COMPANION_MISMATCH,
          "its name and its quant_type disagree" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_replaced(false, "quant_state.bitsandbytes__nf4", cases[i].line,
                       cases[i].reason, cases[i].why);
}

/* The blob says "not nested", the tensors say the contrary; and the other way. */
static void
test_4bit_nesting(void)
{
    tensors *t = tensors_create("");

    tensors_add_4bit(t, "a", "nf4", 4, 64, false);
    tensors_add(t, "F32 1 a.nested_absmax\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.nested_absmax",
                "says that nothing is nested");
    tensors_remove(t, "a.nested_absmax");
    tensors_add(t, "F32 256 a.nested_quant_map\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.nested_quant_map",
                "says that nothing is nested");
    tensors_destroy(t);
    t = tensors_create("");
    tensors_add_4bit(t, "a", "nf4", 4, 64, true);
    tensors_remove(t, "a.nested_absmax");
    tensors_remove(t, "a.nested_quant_map");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "a", "nested_absmax");
    tensors_destroy(t);
}

/* Saved after inference on AVX512-BF16: BF16 [K/B, N]. */
static void
test_4bit_transposed(void)
{
    static const struct {
        const char *line;
        bool is_accepted;
    } cases[] = {
        { "BF16 3x8 a.absmax", true },   { "BF16 8x3 a.absmax", false },
        { "BF16 24 a.absmax", false },   { "F16 3x8 a.absmax", false },
        { "BF16 4x6 a.absmax", false },  { "BF16 3x8x1 a.absmax", false },
        { "BF16 3x7 a.absmax", false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensors *const t = tensors_create("");

        tensors_add_4bit(t, "a", "nf4", 8, 192, false);
        tensors_remove(t, "a.absmax");
        tensors_add(t, cases[i].line);
        if (!cases[i].is_accepted) {
            check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.absmax", "has dtype");
        } else {
            CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_OK);
            CHECK_EQ(tensors_record(t, "a")->is_transposed_absmax, true);
            T_REQUIRE(t->finding_count == 1);
            CHECK_EQ(t->severities[0], BERTH_SEVERITY_WARNING);
            CHECK_EQ(t->findings[0].reason, BERTH_REASON_COMPANION_MISMATCH);
            CHECK_STR(t->findings[0].tensor, "a.absmax");
            CHECK_CONTAINS(t->findings[0].message, "lost accuracy");
        }
        tensors_destroy(t);
    }
}

/* Only what is not nested can be transposed, and only where rows are whole blocks. */
static void
test_4bit_transposed_elsewhere(void)
{
    tensors *t = tensors_create("");

    tensors_add_4bit(t, "a", "nf4", 8, 192, true);
    tensors_remove(t, "a.absmax");
    tensors_add(t, "BF16 3x8 a.absmax");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.absmax", "has dtype BF16");
    tensors_destroy(t);
    t = tensors_create("");
    tensors_add_4bit(t, "a", "nf4", 64, 65, false); /* 65 blocks */
    tensors_remove(t, "a.absmax");
    tensors_add(t, "BF16 1x64 a.absmax");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.absmax", "has dtype BF16");
    tensors_destroy(t);
}

static void
check_map(const char *type, unsigned entry, uint32_t bits, bool is_warned)
{
    tensors *const t = tensors_create("");
    uint8_t *data;

    tensors_add_4bit(t, "a", type, 4, 64, false);
    data = tensors_find(t, "a.quant_map")->data;
    memcpy(data + entry * sizeof bits, &bits, sizeof bits);
    CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_OK);
    CHECK_EQ(t->finding_count, is_warned);
    if (is_warned) {
        CHECK_EQ(t->severities[0], BERTH_SEVERITY_WARNING);
        CHECK_EQ(t->findings[0].reason, BERTH_REASON_COMPANION_MISMATCH);
        CHECK_STR(t->findings[0].tensor, "a.quant_map");
        CHECK_CONTAINS(t->findings[0].message,
                       fixture_format("published table of %s", type));
    }
    tensors_destroy(t);
}

static void
test_4bit_map(void)
{
    check_map("fp4", 8, 0x00000000, false); /* as files have it */
    check_map("fp4", 8, 0x80000000, false); /* as it decodes */
    check_map("nf4", 0, 0xbf800000, false);
    check_map("nf4", 0, 0xbf800001, true);
    check_map("nf4", 15, 0x3f800001, true);
    check_map("nf4", 15, 0xbf800000, true);
    check_map("fp4", 8, 0x00000001, true);
}

/* Second levels that decode otherwise count as stored, and are told. */
static void
check_nested(uint32_t entry, uint32_t bits, const char *dtype, const char *told)
{
    tensors *const t = tensors_create("");
    char *state;

    tensors_add_4bit(t, "a", "nf4", 4, 64, true);
    memcpy((uint8_t *)tensors_find(t, "a.nested_quant_map")->data + entry * sizeof bits, &bits,
           sizeof bits);
    state = strstr((char *)tensors_find(t, "a" STATE)->data, "float32");
    memcpy(state, dtype, strlen(dtype));
    CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_OK);
    CHECK_EQ(t->finding_count, told != NULL);
    CHECK_EQ(tensors_record(t, "a")->is_nested_otherwise, told != NULL);
    CHECK_EQ(berthi_quantized_is_as_made(tensors_record(t, "a")), told == NULL);
    if (told != NULL) {
        CHECK_EQ(t->severities[0], BERTH_SEVERITY_NOTE);
        CHECK_EQ(t->findings[0].reason, BERTH_REASON_COMPANION_MISMATCH);
        CHECK_STR(t->findings[0].tensor, told);
        CHECK_CONTAINS(t->findings[0].message, "is encoded anew where it is loaded");
    }
    tensors_destroy(t);
}

static void
test_4bit_nested(void)
{
    check_nested(127, 0x00000000, "float32", NULL);
    check_nested(127, 0x80000000, "float32", NULL);
    check_nested(0, 0xbf800000, "float32", "a.nested_quant_map"); /* of old CPU versions */
    check_nested(255, 0x3f800001, "float32", "a.nested_quant_map");
    check_nested(255, 0x3f800000, "float16", "a" STATE);
}

static void
test_4bit_unreadable(void)
{
    tensors *const t = tensors_create("");

    tensors_add_4bit(t, "a", "nf4", 4, 64, false);
    for (uint32_t i = 2; i < 4; i++) { /* quant_map, state */
        t->unreadable = i;
        for (int keep_going = 0; keep_going < 2; keep_going++) {
            CHECK_EQ(tensors_run(t, context, NULL, keep_going != 0), BERTH_EIO);
            CHECK_STR(t->error.message, "cannot read");
            CHECK_EQ(t->finding_count, 0);
        }
    }
    tensors_add_int8(t, "b", 4, 4); /* an error that would come later */
    tensors_remove(t, "b.weight");
    CHECK_EQ(tensors_run(t, context, NULL, true), BERTH_EIO);
    CHECK_EQ(t->finding_count, 0);
    tensors_destroy(t);
}

/* ------------------------------------------------------------------- LLM.int8() */

static void
test_int8(void)
{
    tensors *const t = tensors_create("BF16 64 m.x.bias\nBF16 4 m.y.weight\n"
                                      "F32 3 m.SCB2\nF32 3 m.xSCB\n");
    const berthi_quantized *q;

    tensors_add_int8(t, "m.x", 64, 272);
    check_clean(t, BNB);
    check_marks(t);
    q = tensors_record(t, "m.x.weight");
    T_REQUIRE(q != NULL);
    CHECK_EQ(q->encoding, BERTH_ENCODING_INT8);
    CHECK_EQ(q->dtype, -1);
    CHECK_STR(tensors_shape(q), "64x272");
    CHECK_EQ(q->elements, 64 * 272);
    CHECK_EQ(q->total_bytes, 64 * 272 + 256 + 1);
    CHECK_EQ(q->companion_count, 2);
    CHECK_EQ(q->block_size, 0);
    CHECK_STR(q->method, "bitsandbytes int8");
    CHECK_EQ(t->result.parameter_count, 64 * 272 + 64 + 4 + 6);
    tensors_remove(t, "m.x.weight_format"); /* missing: rows */
    check_clean(t, BNB);
    CHECK_EQ(tensors_record(t, "m.x.weight")->companion_count, 1);
    tensors_destroy(t);
}

/* Statistics stand far before the weight when submodules come between. */
static void
test_int8_far_apart(void)
{
    tensors *const t = tensors_create("I8 4x4 weight\nF32 4 SCB\nU8 - weight_format\n");

    for (unsigned i = 0; i < 300; i++)
        tensors_add(t, fixture_format("BF16 2 q.s%03u.bias\n", i));
    tensors_add_int8(t, "q", 8, 2);
    check_clean(t, NULL);
    CHECK_EQ(t->result.count, 2);
    CHECK_LE(t->gets, t->count + 100u); /* near or far, a look-up is a few looks */
    CHECK_STR(tensors_shape(tensors_record(t, "weight")), "4x4");
    CHECK_STR(tensors_shape(tensors_record(t, "q.weight")), "8x2");
    tensors_destroy(t);
}

static void
test_int8_missing(void)
{
    tensors *t = tensors_create("");

    tensors_add_int8(t, "m.x", 4, 8);
    tensors_remove(t, "m.x.SCB");
    check_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "\"SCB\" is missing");
    tensors_remove(t, "m.x.weight_format");
    check_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "\"SCB\" is missing");
    tensors_destroy(t);
    t = tensors_create("");
    tensors_add_int8(t, "m.x", 4, 8);
    tensors_remove(t, "m.x.weight");
    check_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.SCB",
                "the weight \"m.x.weight\", which is not there");
    tensors_remove(t, "m.x.SCB");
    check_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.weight_format",
                "the weight \"m.x.weight\", which is not there");
    tensors_destroy(t);
    t = tensors_create("BF16 4x4 m.weight\nU8 - m.weight_format\n");
    check_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.weight", "\"SCB\" is missing");
    tensors_destroy(t);
}

/* Codes of one byte that are no weight of a Linear. */
static void
test_int8_lookalikes(void)
{
    tensors *t = tensors_create("I8 4 m.weight\nI8 4x4 m.table\nI8 - weight\n"
                                "F32 3 n.weight_format\nU8 3 o.weight_format\n"
                                "U8 4x4 p.weight\n");

    check_clean(t, NULL);
    CHECK_EQ(t->result.count, 0);
    CHECK_EQ(t->result.parameter_count, 4 + 16 + 1 + 3 + 3 + 16);
    tensors_destroy(t);
    t = tensors_create("I8 4x4 weight\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "weight", "SCB");
    tensors_destroy(t);
    t = tensors_create("I8 2x2x2 m.weight\n");
    check_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "m.weight", "SCB");
    tensors_destroy(t);
}

static void
test_int8_mismatch(void)
{
    static const struct {
        const char *out;
        const char *in;
        const char *why;
    } cases[] = {
        { "m.weight", "U8 4x8 m.weight", "has dtype U8, not I8" },
        { "m.weight", "I8 32 m.weight", "rank of an int8 weight" },
        { "m.weight", "I8 4x2x4 m.weight", "rank of an int8 weight" },
        { "m.SCB", "F32 3 m.SCB", "row maxima do not fit" },
        { "m.SCB", "F32 8 m.SCB", "row maxima do not fit" },
        { "m.SCB", "F32 4x1 m.SCB", "row maxima do not fit" },
        { "m.SCB", "F16 4 m.SCB", "has dtype F16, not F32" },
        { "m.weight_format", "I8 - m.weight_format", "has dtype I8, not one U8" },
        { "m.weight_format", "U8 2 m.weight_format", "not one U8" },
        { "m.weight_format", "U8 - m.weight_format \\4", "no layout has this number" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensors *const t = tensors_create("");

        tensors_add_int8(t, "m", 4, 8);
        tensors_remove(t, cases[i].out);
        tensors_add(t, cases[i].in);
        check_error(t, BNB, BERTH_REASON_COMPANION_MISMATCH, cases[i].out, cases[i].why);
        tensors_destroy(t);
    }
}

static void
test_int8_layouts(void)
{
    static const char *const names[] = { "bitsandbytes int8", "bitsandbytes int8 (col32)",
                                         "bitsandbytes int8 (col_turing)",
                                         "bitsandbytes int8 (col_ampere)" };

    for (unsigned i = 0; i < 4; i++) {
        tensors *const t = tensors_create("I8 4x8 m.weight\nF32 4 m.SCB\n");

        tensors_add(t, fixture_format("U8 - m.weight_format \\%u\n", i));
        CHECK_EQ(tensors_run(t, context, BNB, false), BERTH_OK);
        CHECK_STR(tensors_record(t, "m.weight")->method, names[i]);
        CHECK_EQ(tensors_record(t, "m.weight")->encoding,
                 i == 0 ? BERTH_ENCODING_INT8 : BERTH_ENCODING_FOREIGN);
        CHECK_EQ(t->finding_count, i > 0);
        if (i > 0) {
            CHECK_EQ(t->severities[0], BERTH_SEVERITY_NOTE);
            CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_METHOD);
            CHECK_CONTAINS(t->findings[0].message,
                           fixture_format("\"%s\", which berth names and does not decode: "
                                          "1 weights", names[i]));
        }
        tensors_destroy(t);
    }
}

/* ---------------------------------------------------------------- going on, scale */

/* A weight with two things wrong: the first is told, and nothing else of it. */
static void
test_one_error_a_weight(void)
{
    static const struct {
        const char *out;
        const char *in;
        const char *also_out;
        const char *also_in;
        const char *why;
        bool is_double;
    } cases[] = {
        { "a.w", "U8 9 a.w", "a.w.quant_map", "F32 15 a.w.quant_map", "packed codes",
          false },
        { "a.w", "I64 1040 a.w", "a.w.quant_map", "F32 15 a.w.quant_map",
          "has dtype I64", false },
        { "a.w.quant_map", "F16 16 a.w.quant_map", "a.w.absmax", "F32 259 a.w.absmax",
          "has dtype F16", false },
        { "a.w.quant_map", "F32 15 a.w.quant_map", "a.w.absmax", "F32 259 a.w.absmax",
          "values of the code table", false },
        { "a.w.absmax", "U8 259 a.w.absmax", "a.w.nested_absmax",
          "F32 1 a.w.nested_absmax", "absmax values do not fit", true },
        { "a.w.nested_absmax", "F32 1 a.w.nested_absmax", "a.w.nested_quant_map",
          "F32 1 a.w.nested_quant_map", "second-level absmax", true },
        { NULL, "F32 2 a.w.nested_absmax", "a.w", "U8 9 a.w", "nothing is nested",
          false },
        { "a.w" STATE, "I8 90 a.w" STATE, "a.w", "U8 9 a.w", "not a vector of U8",
          false },
        { "m.weight", "U8 4x8 m.weight", "m.SCB", "F16 3 m.SCB", "not I8", false },
        { "m.weight", "U8 4x8 m.weight", "m.weight_format", "U8 2 m.weight_format",
          "not I8", false },
        { "m.weight", "I8 32 m.weight", "m.weight_format", "U8 2 m.weight_format",
          "rank of an int8", false },
        { "m.weight", "I8 32 m.weight", "m.SCB", "F16 32 m.SCB", "rank of an int8",
          false },
        { "m.SCB", "F32 3 m.SCB", "m.weight_format", "U8 2 m.weight_format", "row maxima",
          false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensors *const t = tensors_create("");

        tensors_add_4bit(t, "a.w", "nf4", 4, 64 * 65, cases[i].is_double);
        tensors_add_int8(t, "m", 4, 8);
        if (cases[i].out != NULL)
            tensors_remove(t, cases[i].out);
        tensors_remove(t, cases[i].also_out);
        tensors_add(t, fixture_format("%s\n%s\n", cases[i].in, cases[i].also_in));
        check_error(t, BNB, BERTH_REASON_COMPANION_MISMATCH,
                    cases[i].out != NULL ? cases[i].out : "a.w.nested_absmax",
                    cases[i].why);
        tensors_destroy(t);
    }
}

static void
test_keep_going(void)
{
    tensors *const t = tensors_create("");

    for (unsigned i = 0; i < 5; i++) {
        tensors_add_4bit(t, fixture_format("l.%u.weight", i), "nf4", 4, 64, false);
        tensors_add_int8(t, fixture_format("m.%u", i), 4, 8);
    }
    tensors_remove(t, "l.1.weight.absmax");
    tensors_remove(t, "l.3.weight");
    tensors_remove(t, "m.2.SCB");
    tensors_remove(t, "m.4.weight");
    CHECK_EQ(tensors_run(t, context, NULL, true), BERTH_EFORMAT);
    CHECK_STR(t->error.tensor, "l.1.weight");
    T_REQUIRE(t->finding_count == 4);
    CHECK_STR(t->findings[0].tensor, "l.1.weight");
    CHECK_STR(t->findings[1].tensor, "l.3.weight" STATE);
    CHECK_STR(t->findings[2].tensor, "m.4.SCB");
    CHECK_STR(t->findings[3].tensor, "m.2.weight");
    tensors_destroy(t);
}

/* What a name does not decide is found again wherever it stands. */
static void
test_second_round(void)
{
    for (unsigned at = 0; at < 200; at += 9) {
        tensors *const t = tensors_create("");
        const char *const name = fixture_format("l.%03u.weight", at);

        for (unsigned i = 0; i < 200; i++)
            tensors_add(t, fixture_format("%s l.%03u.weight\n",
                                          i == at ? "I8 4x4" : "BF16 2", i));
        check_error(t, NULL, BERTH_REASON_COMPANION_MISSING, name, "SCB");
        tensors_destroy(t);
    }
}

/* Without keep_going nothing is looked at behind the first error. */
static void
test_stops(void)
{
    tensors *const t = tensors_create("F32 4 a.SCB\n");

    for (unsigned i = 0; i < 200; i++)
        tensors_add(t, fixture_format("BF16 2 b.%u.weight\n", i));
    CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_EFORMAT);
    CHECK_LT(t->gets, 40);
    CHECK_EQ(tensors_run(t, context, NULL, true), BERTH_EFORMAT);
    CHECK_GE(t->gets, 200);
    tensors_destroy(t);
}

/* Without a finding hook and an error to fill, only the status is left. */
static void
test_no_hooks(void)
{
    tensors *const t = tensors_create("I8 4x4 weight\n");
    berthi_classify_source source = { .count = 0 };
    berthi_classify_result result;

    memset(&result, 0x55, sizeof result);
    CHECK_EQ(berthi_classify_run(context, &source, NULL, &result, NULL), BERTH_OK);
    CHECK_EQ(result.count, 0);
    CHECK_EQ(result.parameter_count, 0);
    CHECK(result.blocks == NULL);
    berthi_classify_fini(&result);
    source.count = UINT32_MAX;
    CHECK_EQ(berthi_classify_run(context, &source, NULL, &result, &t->error),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(t->error.message, "more than 2^32 tensors");
    tensors_destroy(t);
}

/* The tensors of DeepSeek-V3: 46,000 weights with their scales and norms between. */
static void
test_many(void)
{
    tensors *const t = tensors_create("");
    const uint64_t weight[] = { 256, 256 };
    const uint64_t scale[] = { 2, 2 };
    berth_memory_summary memory;
    uint32_t weights = 0;

    for (unsigned layer = 0; layer < 60; layer++)
        for (unsigned e = 0; e < 256; e++)
            for (unsigned k = 0; k < 3; k++, weights++) {
                static const char *const parts[] = { "down", "gate", "up" };
                char name[128];

                snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s_proj.weight",
                         layer, e, parts[k]);
                tensors_add_one(t, name, BERTH_F8_E4M3, 2, weight, NULL);
                strcat(name, "_scale_inv");
                tensors_add_one(t, name, BERTH_F32, 2, scale, NULL);
            }
    check_clean(t, "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    CHECK_EQ(t->result.count, weights);
    CHECK_EQ(t->result.parameter_count, (uint64_t)weights * 65536);
    CHECK_LE(t->gets, 3 * (uint64_t)t->count);
    berth_context_memory(context, &memory);
    CHECK_LE(memory.current_bytes, (uint64_t)weights * 104 + LARGE_BLOCK);
    T_NOTE("%u tensors: %.2f gets and %.2f shapes each, %.1f bytes a record", t->count,
           (double)t->gets / t->count, (double)t->shapes / t->count,
           (double)memory.current_bytes / weights);
    tensors_destroy(t);
}

/* One record: a small block, and a large one beside many tensors. */
static void
test_blocks(void)
{
    const uint64_t shape[] = { 2, 2 };

    for (unsigned many = 0; many < 2; many++) {
        tensors *const t = tensors_create("F8_E4M3 2x2 weight\nF32 1x1 weight_scale_inv\n");
        berth_memory_summary memory;
        char name[16];

        for (unsigned i = 2; i < 32767 + many; i++) {
            snprintf(name, sizeof name, "a%u", i);
            tensors_add_one(t, name, BERTH_F32, 2, shape, NULL);
        }
        CHECK_EQ(tensors_run(t, context, NULL, false), BERTH_OK);
        CHECK_EQ(t->result.count, 1);
        berth_context_memory(context, &memory);
        CHECK_EQ(memory.current_bytes, (many ? LARGE_BLOCK : 65536) + 16 * sizeof(void *));
        tensors_destroy(t);
    }
}

/* ------------------------------------------------------------------------- faults */

static berth_status
classify_once(void *user, berth_context *its_context, berth_error *error)
{
    tensors *const t = user;
    berth_status status = tensors_run(t, its_context, NULL, false);

    if (status != BERTH_OK) {
        CHECK(t->result.blocks == NULL);
        CHECK_EQ(t->result.count, 0);
    }
    *error = t->error;
    berthi_classify_fini(&t->result);
    return status;
}

static void
test_every_allocation_fails(void)
{
    tensors *const t = tensors_create("I32 4x4 q.qweight\nF8_E4M3 2x2 f.weight\n"
                                      "F32 - f.weight_scale_inv\n");
    fault_counts counts;

    tensors_add_4bit(t, "a.weight", "nf4", 4, 64, true);
    for (unsigned i = 0; i < 300; i++) /* a second block of records */
        tensors_add_int8(t, fixture_format("b.%u", i), 4, 8);
    counts = fault_loop("classify", classify_once, t);
    CHECK_GE(counts.memory, 2 * 5);
    CHECK_EQ(counts.survived, 0);
    tensors_destroy(t);
}

/* The table of blocks grows beyond its first size, too. */
static void
test_many_records(void)
{
    tensors *const t = tensors_create("");

    for (unsigned i = 0; i < 64 * 16 + 1; i++)
        tensors_add(t, fixture_format("I8 1x1 b.%u.weight\nF32 1 b.%u.SCB\n", i, i));
    check_clean(t, NULL);
    CHECK_EQ(t->result.count, 64 * 16 + 1);
    for (uint32_t i = 0; i < t->count; i++)
        if (t->all[i].encoding == BERTH_ENCODING_INT8)
            CHECK_EQ(berthi_classify_record(&t->result, t->all[i].record)->weight, i);
    tensors_destroy(t);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_plain);
    T_RUN(test_nothing);
    T_RUN(test_unkept_promise);
    T_RUN(test_unkept_promise_without_a_method);
    T_RUN(test_4bit);
    T_RUN(test_4bit_double);
    T_RUN(test_4bit_storage);
    T_RUN(test_4bit_storage_refused);
    T_RUN(test_4bit_odd);
    T_RUN(test_4bit_companion_missing);
    T_RUN(test_4bit_weight_missing);
    T_RUN(test_4bit_lone_word);
    T_RUN(test_4bit_bare_codes);
    T_RUN(test_4bit_unknown_child);
    T_RUN(test_4bit_two_states);
    T_RUN(test_4bit_contested);
    T_RUN(test_4bit_mismatch);
    T_RUN(test_4bit_mismatch_numbers);
    T_RUN(test_4bit_state);
    T_RUN(test_4bit_nesting);
    T_RUN(test_4bit_transposed);
    T_RUN(test_4bit_transposed_elsewhere);
    T_RUN(test_4bit_map);
    T_RUN(test_4bit_nested);
    T_RUN(test_4bit_unreadable);
    T_RUN(test_int8);
    T_RUN(test_int8_far_apart);
    T_RUN(test_int8_missing);
    T_RUN(test_int8_lookalikes);
    T_RUN(test_int8_mismatch);
    T_RUN(test_int8_layouts);
    T_RUN(test_one_error_a_weight);
    T_RUN(test_keep_going);
    T_RUN(test_second_round);
    T_RUN(test_stops);
    T_RUN(test_no_hooks);
    T_RUN(test_many);
    T_RUN(test_blocks);
    T_RUN(test_many_records);
    T_RUN(test_every_allocation_fails);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
