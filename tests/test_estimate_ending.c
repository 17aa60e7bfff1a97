/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_ending.c - what a model ends in, by the class that its file names. */
#include "tests/estimated_shape.h"
#include "tests/fixture.h"
#include "tests/t.h"

/* A model may end in something else than a head of words. */
static void
test_class(void)
{
    static const struct {
        const char *name;
        bool is_other;
        uint64_t head; /* what it has more than the model without one */
    } rows[] = {
        { "LlamaForCausalLM", false, 6400 }, { "GPT2LMHeadModel", false, 6400 },
        { "MarianMTModel", false, 6400 },    { "LlamaModel", false, 0 },
        { "Qwen2_5OmniModel", false, 6400 },
        { "LlamaForSequenceClassification", false, 2 * 64 },
        { "LlamaForTokenClassification", false, 2 * 64 + 2 },
        { "LlamaForQuestionAnswering", false, 2 * 64 + 2 },
        { "GPT2DoubleHeadsModel", false, 6400 + 64 + 1 },
        { "BertForPreTraining", true, 6400 },
        { "LlamaForMultipleChoice", true, 6400 }, /* which there is not */
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(
            fixture_format("{\"architectures\": [\"%s\"], %s", rows[i].name, &TINY("")[1]));

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.is_other_class, rows[i].is_other)
            || !CHECK_EQ(estimated_count(e).all - (4 * (16384 + 24576 + 128) + 6400 + 64),
                         rows[i].head))
            T_NOTE("%s", rows[i].name);
    }
}

/* Where an answer begins and ends is told by two labels of each token, or by what a table has. */
static void
test_answers(void)
{
    static const struct {
        const char *type;
        const char *more;
        uint64_t labels;
    } rows[] = {
        { "bert", "", 2 },
        { "bert", ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 3 },
        { "gptj", ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 3 },
        { "qwen3", ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 2 },
        { "funnel", "", 2 },
        { "mpnet", "", 2 },
        { "big_bird", ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 2 },
        { "tapas", "", 0 },
        { "tapas", ", \"num_aggregation_labels\": 4", 4 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(fixture_format(
            "{\"model_type\": \"%s\", \"architectures\": [\"TheForQuestionAnswering\"]%s, %s",
            rows[i].type, rows[i].more, &TINY("")[1]));

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.labels, rows[i].labels)
            || !CHECK(!e->shape.is_other_class) || !CHECK(!e->shape.has_head))
            T_NOTE("%s", rows[i].type);
    }
}

/* OPT's words may be narrower than its layers, and so is what the last of them gives. */
static void
test_narrow_labels(void)
{
    static const char *const classes[] = { "OPTForSequenceClassification",
                                           "OPTForQuestionAnswering" };
    uint64_t base = 0;

    for (size_t i = 0; i < 3; i++) {
        const estimated *const e = estimated_text(fixture_format(
            "{\"model_type\": \"opt\", \"word_embed_proj_dim\": 32, "
            "\"architectures\": [\"%s\"], %s",
            i == 0 ? "OPTModel" : classes[i - 1], &TINY("")[1]));

        T_REQUIRE(e != NULL);
        if (i == 0)
            base = estimated_count(e).all;
        else
            CHECK_EQ(estimated_count(e).all - base, 2 * 32 + (i == 2 ? 2 : 0));
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_class);
    T_RUN(test_answers);
    T_RUN(test_narrow_labels);
    T_MAIN_END;
}
