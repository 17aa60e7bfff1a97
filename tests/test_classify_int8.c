/* SPDX-License-Identifier: Apache-2.0 */
/* test_classify_int8.c - weights of bitsandbytes in 8 bits. */
#include "quant/classify.h"
#include "tests/classified.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tensors.h"

/* ------------------------------------------------------------------- LLM.int8() */

static void
test_int8(void)
{
    tensors *const t = tensors_create("BF16 64 m.x.bias\nBF16 4 m.y.weight\n"
                                      "F32 3 m.SCB2\nF32 3 m.xSCB\n");
    const berthi_quantized *q;

    tensors_add_int8(t, "m.x", 64, 272);
    classified_clean(t, BNB);
    classified_marks(t);
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
    classified_clean(t, BNB);
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
    classified_clean(t, NULL);
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
    classified_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "\"SCB\" is missing");
    tensors_remove(t, "m.x.weight_format");
    classified_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.x.weight", "\"SCB\" is missing");
    tensors_destroy(t);
    t = tensors_create("");
    tensors_add_int8(t, "m.x", 4, 8);
    tensors_remove(t, "m.x.weight");
    classified_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.SCB",
                     "the weight \"m.x.weight\", which is not there");
    tensors_remove(t, "m.x.SCB");
    classified_error(t, BNB, BERTH_REASON_COMPANION_UNKNOWN, "m.x.weight_format",
                     "the weight \"m.x.weight\", which is not there");
    tensors_destroy(t);
    t = tensors_create("BF16 4x4 m.weight\nU8 - m.weight_format\n");
    classified_error(t, BNB, BERTH_REASON_COMPANION_MISSING, "m.weight", "\"SCB\" is missing");
    tensors_destroy(t);
}

/* Codes of one byte that are no weight of a Linear. */
static void
test_int8_lookalikes(void)
{
    tensors *t = tensors_create("I8 4 m.weight\nI8 4x4 m.table\nI8 - weight\n"
                                "F32 3 n.weight_format\nU8 3 o.weight_format\n"
                                "U8 4x4 p.weight\n");

    classified_clean(t, NULL);
    CHECK_EQ(t->result.count, 0);
    CHECK_EQ(t->result.parameter_count, 4 + 16 + 1 + 3 + 3 + 16);
    tensors_destroy(t);
    t = tensors_create("I8 4x4 weight\n");
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "weight", "SCB");
    tensors_destroy(t);
    t = tensors_create("I8 2x2x2 m.weight\n");
    classified_error(t, NULL, BERTH_REASON_COMPANION_MISSING, "m.weight", "SCB");
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
        classified_error(t, BNB, BERTH_REASON_COMPANION_MISMATCH, cases[i].out, cases[i].why);
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
        CHECK_EQ(tensors_run(t, classified_context, BNB, false), BERTH_OK);
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

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &classified_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_int8);
    T_RUN(test_int8_far_apart);
    T_RUN(test_int8_missing);
    T_RUN(test_int8_lookalikes);
    T_RUN(test_int8_mismatch);
    T_RUN(test_int8_layouts);
    berth_context_memory(classified_context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(classified_context);
    T_MAIN_END;
}
