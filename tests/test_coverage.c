/* SPDX-License-Identifier: Apache-2.0 */
/* test_coverage.c - shares, what left out what, the gate, the warnings. */
#include "quant/coverage.h"

#include <stdlib.h>
#include <string.h>

#include "tests/models.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

typedef struct setting {
    model m;
    berthi_architecture *architecture;
    berthi_rules_file file;
    berthi_rules *rules;
    berthi_coverage coverage;
} setting;

/*
 * All tensors decided and counted: two bytes a value, one stored when quantized.
 * Into the caller's place: the rules point to their file.
 */
static void
cover(setting *s, const char *text, berthi_era era, const char *rules)
{
    berthi_rules_options options = { .era = era, .type = BERTH_ENCODING_NF4,
                                     .dtype = BERTH_BF16 };
    berth_error error;

    memset(s, 0, sizeof *s);
    CHECK(model_read(context, &text, &s->m));
    CHECK_EQ(berthi_rules_file_parse(context, rules, strlen(rules), "r", &s->file, &error),
             BERTH_OK);
    options.file = &s->file;
    s->architecture = model_architecture(context, &s->m, era);
    CHECK_EQ(berthi_rules_create(context, &options, s->architecture, &s->m.source,
                                 &s->rules, &error), BERTH_OK);
    CHECK_EQ(berthi_coverage_init(&s->coverage, context, s->rules, &error), BERTH_OK);
    for (uint32_t i = 0; i < s->m.tensor_count; i++) {
        const berthi_decision d = berthi_rules_decide(s->rules, i);
        const uint64_t elements = s->m.tensors[i].elements;

        berthi_coverage_add(&s->coverage, &s->m.tensors[i], &d, 2 * elements,
                            d.encoding == BERTH_ENCODING_NATIVE ? 2 * elements : elements);
    }
}

static void
end(setting *s)
{
    berthi_coverage_fini(&s->coverage);
    berthi_coverage_fini(&s->coverage);
    berthi_rules_destroy(s->rules);
    berthi_architecture_destroy(s->architecture);
    berthi_rules_file_fini(&s->file);
    model_fini(&s->m);
}

static const char llama[] = "class LlamaForCausalLM\ntype llama\nconfig {}\n"
                            "BF16 10x10 lm_head.weight\n"
                            "BF16 10x20 model.embed_tokens.weight\n"
                            "BF16 10x30 model.layers.0.mlp.up_proj.weight\n"
                            "BF16 10x40 model.layers.0.mlp.down_proj.weight\n"
                            "BF16 10 model.norm.weight\n";

static const berthi_coverage_line *
detail(const setting *s, berthi_cause cause, uint32_t number)
{
    return &s->coverage.details[s->coverage.first[cause] + number].line;
}

static void
test_sums(void)
{
    setting s;
    const berthi_coverage *const c = &s.coverage;

    cover(&s, llama, BERTHI_ERA_HF5, "keep *.down_proj.weight\nfp4 *.nothing\n");
    CHECK_EQ(c->all.tensors, 5);
    CHECK_EQ(c->all.parameters, 1010);
    CHECK_EQ(c->all.source_bytes, 2020);
    CHECK_EQ(c->all.stored_bytes, 1720);
    CHECK_EQ(c->encodings[BERTH_ENCODING_NF4].tensors, 1);
    CHECK_EQ(c->encodings[BERTH_ENCODING_NF4].parameters, 300);
    CHECK_EQ(c->encodings[BERTH_ENCODING_NATIVE].tensors, 4);
    CHECK_EQ(c->encodings[BERTH_ENCODING_NATIVE].stored_bytes, 1420);
    CHECK_EQ(c->encodings[BERTH_ENCODING_INT8].tensors, 0);
    CHECK_EQ(detail(&s, BERTHI_CAUSE_RULE, 0)->parameters, 400);
    CHECK_EQ(detail(&s, BERTHI_CAUSE_RULE, 1)->tensors, 0);
    CHECK_EQ(detail(&s, BERTHI_CAUSE_SKIPPED, 0)->parameters, 100);
    CHECK_EQ(detail(&s, BERTHI_CAUSE_NOT_LINEAR, 0)->parameters, 210);
    CHECK_EQ(detail(&s, BERTHI_CAUSE_NOT_LINEAR, 0)->tensors, 2);
    CHECK_EQ(detail(&s, BERTHI_CAUSE_LINEAR, 0)->stored_bytes, 300);
    CHECK_EQ(berthi_coverage_share(c), UINT64_C(297029702));
    end(&s);
}

static void
test_gate(void)
{
    setting s;
    berth_error error;

    cover(&s, llama, BERTHI_ERA_HF5, "keep *.down_proj.weight\n");
    CHECK_EQ(berthi_coverage_check(&s.coverage, s.rules, UINT64_C(297029702), &error),
             BERTH_OK);
    CHECK_EQ(berthi_coverage_check(&s.coverage, s.rules, UINT64_C(297029703), &error),
             BERTH_EPOLICY);
    CHECK_EQ(error.reason, BERTH_REASON_MIN_COVERAGE);
    CHECK_STR(error.message, "29.70 % of the parameters are quantized, 29.70 % are asked "
                             "for; most of the others, 39.60 % of all: rule line 1: keep "
                             "*.down_proj.weight");
    CHECK_EQ(berthi_coverage_check(&s.coverage, s.rules, BERTHI_WHOLE, NULL),
             BERTH_EPOLICY);
    CHECK_EQ(berthi_coverage_check(&s.coverage, s.rules, 0, &error), BERTH_OK);
    end(&s);
}

static void
test_none(void)
{
    setting s;

    cover(&s, llama, BERTHI_ERA_HF5, "keep *.down_proj.weight");
    CHECK(!berthi_coverage_is_none(&s.coverage));
    end(&s);
    /* Falcon in 5.5 and later. */
    cover(&s, "class FalconForCausalLM\ntype falcon\nconfig {}\n"
              "BF16 8x8 transformer.word_embeddings.weight\n"
              "BF16 8x8 transformer.h.0.self_attention.dense.weight\n",
              BERTHI_ERA_HF5, "");
    CHECK(berthi_coverage_is_none(&s.coverage));
    CHECK_EQ(berthi_coverage_share(&s.coverage), 0);
    end(&s);
    /* Nothing is there to be quantized. */
    cover(&s, "class LlamaForCausalLM\ntype llama\nconfig {}\n", BERTHI_ERA_HF5, "");
    CHECK(!berthi_coverage_is_none(&s.coverage));
    CHECK_EQ(berthi_coverage_share(&s.coverage), BERTHI_WHOLE);
    end(&s);
}

static void
test_parse(void)
{
    static const struct {
        const char *text;
        uint64_t share;
    } good[] = {
        { "95%", 950000000 },   { "95 %", 950000000 },    { "0%", 0 },
        { "100%", 1000000000 }, { "99.5%", 995000000 },   { "0.0000001%", 1 },
        { "0.95", 950000000 },  { "0", 0 },               { "1", 1000000000 },
        { "1.0", 1000000000 },  { "0.123456789", 123456789 }, { "00.5", 500000000 },
        { "100.0000000%", 1000000000 },
    };
    static const char *const bad[] = {
        "", "%", "95", "2", "1.1", "1.000000001", "101%", "100.1%", "0.1234567891",
        "0.00000001%", ".5", "5.", "-1%", "+1%", "95%%", "95% ", " 95%", "95  %", "9 5%",
        "1e-1", "10099%", "0.", "0.%", "1.a", "0,95", "x", "18446744073709551617%", "0.9.5", "5%x",
    };
    uint64_t share;
    berth_error error;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_EQ(berth_share_parse(good[i].text, &share, &error), BERTH_OK);
        if (!CHECK_EQ(share, good[i].share))
            T_NOTE("%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        share = 7;
        if (!CHECK_EQ(berth_share_parse(bad[i], &share, &error), BERTH_EINVAL))
            T_NOTE("%s", bad[i]);
        CHECK_EQ(share, 0);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, "95% or 0.95");
    }
    share = 7;
    CHECK_EQ(berth_share_parse(NULL, &share, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`text` is NULL");
    CHECK_EQ(share, 0);
    CHECK_EQ(berth_share_parse("5%", NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`out_share` is NULL");
    CHECK_EQ(berth_share_parse("5%", &share, NULL), BERTH_OK);
    CHECK_EQ(share, 50000000);
}

/* Shares of models larger than any there is. */
static void
test_large(void)
{
    berthi_coverage c;

    memset(&c, 0, sizeof c);
    c.all.parameters = UINT64_C(1) << 60;
    c.encodings[BERTH_ENCODING_NATIVE].parameters = 1;
    CHECK_EQ(berthi_coverage_share(&c), 999999999);
    c.encodings[BERTH_ENCODING_NATIVE].parameters = UINT64_C(1) << 59;
    CHECK_EQ(berthi_coverage_share(&c), 500000000);
    c.encodings[BERTH_ENCODING_NATIVE].parameters = 0;
    CHECK_EQ(berthi_coverage_share(&c), BERTHI_WHOLE);
}

/* The last test: nothing is left of the others. */
static void
test_all_given_back(void)
{
    vacant_check_memory(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_sums);
    T_RUN(test_gate);
    T_RUN(test_none);
    T_RUN(test_parse);
    T_RUN(test_large);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
