/* SPDX-License-Identifier: Apache-2.0 */
/* test_classify.c - encodings of tensors: what every layout has in common. */
#include <stdio.h>
#include <string.h>

#include "quant/classify.h"
#include "tests/classified.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/tensors.h"

/* As classify.c takes them for many tensors. */
#define LARGE_BLOCK (UINT64_C(2) << 20)

/* ------------------------------------------------------------------ plain models */

static void
test_plain(void)
{
    tensors *const t = tensors_create("BF16 4x8 a.weight\nF32 4 a.bias\nI64 3 a.position\n"
                                      "U8 7 a.bytes\nBOOL - flag\nI8 4 a.codes\n"
                                      "F32 2 a.absmax\nF32 1 logit_scale\nU8 2x2 weight\n"
                                      "F32 4x8 x.codebook_scales\nI32 2 g_idx\n"
                                      "F32 2x2 attention_blocks\nI32 2x2 ids\n");

    classified_clean(t, NULL);
    CHECK_EQ(t->result.count, 0);
    CHECK_EQ(t->result.parameter_count, 32 + 4 + 3 + 7 + 1 + 4 + 2 + 1 + 4 + 32 + 2 + 4 + 4);
    classified_marks(t);
    CHECK_EQ(t->reads, 0);
    tensors_destroy(t);
}

static void
test_nothing(void)
{
    tensors *const t = tensors_create("");
    berthi_classify_result none;

    classified_clean(t, NULL);
    CHECK_EQ(t->result.parameter_count, 0);
    memset(&none, 0, sizeof none);
    berthi_classify_fini(&none);
    tensors_destroy(t);
}

static void
test_unkept_promise(void)
{
    tensors *const t = tensors_create("BF16 4x8 a.weight\n");

    CHECK_EQ(tensors_run(t, classified_context, BNB, false), BERTH_OK);
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

    CHECK_EQ(tensors_run(t, classified_context, "{\"quantization_config\": {\"bits\": 4}}", false),
             BERTH_OK);
    T_REQUIRE(t->finding_count == 1);
    CHECK_EQ(t->findings[0].reason, BERTH_REASON_QUANT_PLAIN);
    CHECK_CONTAINS(t->findings[0].message, "by no method that it names, but no tensor");
    tensors_destroy(t);
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
        classified_error(t, BNB, BERTH_REASON_COMPANION_MISMATCH,
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
    CHECK_EQ(tensors_run(t, classified_context, NULL, true), BERTH_EFORMAT);
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
        classified_error(t, NULL, BERTH_REASON_COMPANION_MISSING, name, "SCB");
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
    CHECK_EQ(tensors_run(t, classified_context, NULL, false), BERTH_EFORMAT);
    CHECK_LT(t->gets, 40);
    CHECK_EQ(tensors_run(t, classified_context, NULL, true), BERTH_EFORMAT);
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
    CHECK_EQ(berthi_classify_run(classified_context, &source, NULL, &result, NULL), BERTH_OK);
    CHECK_EQ(result.count, 0);
    CHECK_EQ(result.parameter_count, 0);
    CHECK(result.blocks == NULL);
    berthi_classify_fini(&result);
    source.count = UINT32_MAX;
    CHECK_EQ(berthi_classify_run(classified_context, &source, NULL, &result, &t->error),
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
    classified_clean(t, "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    CHECK_EQ(t->result.count, weights);
    CHECK_EQ(t->result.parameter_count, (uint64_t)weights * 65536);
    CHECK_LE(t->gets, 3 * (uint64_t)t->count);
    berth_context_memory(classified_context, &memory);
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
        CHECK_EQ(tensors_run(t, classified_context, NULL, false), BERTH_OK);
        CHECK_EQ(t->result.count, 1);
        berth_context_memory(classified_context, &memory);
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
    classified_clean(t, NULL);
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
    if (berth_context_create(NULL, &classified_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_plain);
    T_RUN(test_nothing);
    T_RUN(test_unkept_promise);
    T_RUN(test_unkept_promise_without_a_method);
    T_RUN(test_one_error_a_weight);
    T_RUN(test_keep_going);
    T_RUN(test_second_round);
    T_RUN(test_stops);
    T_RUN(test_no_hooks);
    T_RUN(test_many);
    T_RUN(test_blocks);
    T_RUN(test_many_records);
    T_RUN(test_every_allocation_fails);
    berth_context_memory(classified_context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(classified_context);
    T_MAIN_END;
}
