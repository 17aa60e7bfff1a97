/* SPDX-License-Identifier: Apache-2.0 */
/* test_classify_4bit.c - weights of bitsandbytes in 4 bits. */
#include <string.h>

#include "quant/classify.h"
#include "tests/classified.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tensors.h"

/* ------------------------------------------------------------------------- 4-bit */

static void
test_4bit(void)
{
    tensors *const t = tensors_create("BF16 8 m.norm.weight\nBF16 272 m.x.bias\n");
    const berthi_quantized *q;

    tensors_add_4bit(t, "m.x.weight", "nf4", 272, 64, false);
    classified_clean(t, BNB);
    classified_marks(t);
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
    classified_clean(t, BNB);
    classified_marks(t);
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
        classified_clean(t, NULL);
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
        classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.weight", cases[i].why);
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
    classified_clean(t, NULL);
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
            classified_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.x.weight", words[i]);
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
        classified_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.weight" STATE,
                         "\"m.x.weight\", which is not there");
        tensors_remove(t, "m.x.weight" STATE);
        classified_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.weight.absmax",
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

    classified_clean(t, NULL);
    CHECK_EQ(t->result.parameter_count, 16);
    tensors_destroy(t);
    t = tensors_create("F32 4 a\nF32 4 a.absmax\n");
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "a", "quant_state");
    tensors_destroy(t);
    t = tensors_create("F32 4 a.nested_absmax\nF32 4 a.nested_quant_map\n");
    classified_error(t, NULL, BERTH_REASON_COMPANION_UNKNOWN, "a.nested_absmax", "\"a\"");
    tensors_destroy(t);
    t = tensors_create("F32 4 a.quant_map\nF32 4 a.absmax\n");
    classified_error(t, NULL, BERTH_REASON_COMPANION_UNKNOWN, "a.absmax", "\"a\"");
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

    classified_error(t, config, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "quant_state");
    classified_clean(t, NULL);
    tensors_add_4bit(t, "m.y.weight", "fp4", 4, 64, false);
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "quant_state");
    tensors_destroy(t);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        t = tensors_create(fixture_format("%s\n", others[i]));
        tensors_add_4bit(t, "m.y.weight", "nf4", 4, 64, false);
        classified_clean(t, config);
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
        classified_clean(t, BNB);
        tensors_add(t, fixture_format("F32 2 %s\n", names[i]));
        classified_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, names[i],
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
    CHECK_EQ(tensors_run(t, classified_context, NULL, false), BERTH_EFORMAT);
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

    classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a", "belongs to another weight");
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
    classified_error(t, BNB, reason, fixture_format("a.w.%s", word), why);
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
    tensors_run(t, classified_context, NULL, false);
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
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.nested_absmax",
                     "says that nothing is nested");
    tensors_remove(t, "a.nested_absmax");
    tensors_add(t, "F32 256 a.nested_quant_map\n");
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.nested_quant_map",
                     "says that nothing is nested");
    tensors_destroy(t);
    t = tensors_create("");
    tensors_add_4bit(t, "a", "nf4", 4, 64, true);
    tensors_remove(t, "a.nested_absmax");
    tensors_remove(t, "a.nested_quant_map");
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "a", "nested_absmax");
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
            classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.absmax", "has dtype");
        } else {
            CHECK_EQ(tensors_run(t, classified_context, NULL, false), BERTH_OK);
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
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.absmax", "has dtype BF16");
    tensors_destroy(t);
    t = tensors_create("");
    tensors_add_4bit(t, "a", "nf4", 64, 65, false); /* 65 blocks */
    tensors_remove(t, "a.absmax");
    tensors_add(t, "BF16 1x64 a.absmax");
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISMATCH, "a.absmax", "has dtype BF16");
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
    CHECK_EQ(tensors_run(t, classified_context, NULL, false), BERTH_OK);
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
    CHECK_EQ(tensors_run(t, classified_context, NULL, false), BERTH_OK);
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
            CHECK_EQ(tensors_run(t, classified_context, NULL, keep_going != 0), BERTH_EIO);
            CHECK_STR(t->error.message, "cannot read");
            CHECK_EQ(t->finding_count, 0);
        }
    }
    tensors_add_int8(t, "b", 4, 4); /* an error that would come later */
    tensors_remove(t, "b.weight");
    CHECK_EQ(tensors_run(t, classified_context, NULL, true), BERTH_EIO);
    CHECK_EQ(t->finding_count, 0);
    tensors_destroy(t);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &classified_context, NULL) != BERTH_OK)
        return 1;
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
    berth_context_memory(classified_context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(classified_context);
    T_MAIN_END;
}
