/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_tokens.c - lists of lengths: parsing, percentiles, batches. */
#include "placement/estimate_tokens.h"

#include <string.h>

#include "tests/estimated.h"
#include "tests/fault.h"
#include "tests/t.h"

static berth_context *context;

static berth_status
parse(const char *text, berthi_tokens *out, berth_error *error)
{
    return berthi_tokens_parse(context, text, strlen(text), "lengths.txt", out, error);
}

/* 10, 20, ... 10 * count, the last one first. */
static berthi_tokens
tens(uint64_t count)
{
    uint64_t lengths[200];
    berthi_tokens tokens;

    for (uint64_t i = 0; i < count; i++)
        lengths[i] = 10 * (count - i);
    CHECK_EQ(berthi_tokens_init(context, lengths, count, &tokens, NULL), BERTH_OK);
    return tokens;
}

static void
test_parsing(void)
{
    static const uint64_t lengths[] = { 7, 0, 1099511627776, 7, 12 };
    static const uint64_t sorted[] = { 0, 7, 7, 12, 1099511627776 };
    berthi_tokens tokens;
    berth_error error;

    CHECK_EQ(parse("# lengths\n7\r\n\n  0\t\n1099511627776\n#9\n007\n12", &tokens, &error),
             BERTH_OK);
    T_REQUIRE(tokens.count == 5);
    CHECK_MEM(tokens.lengths, lengths, sizeof lengths);
    CHECK_MEM(tokens.sorted, sorted, sizeof sorted);
    CHECK_EQ(tokens.total, 1099511627776 + 26);
    berthi_tokens_fini(&tokens);
    CHECK_EQ(tokens.count, 0);
    CHECK(tokens.lengths == NULL);
    berthi_tokens_fini(&tokens); /* twice is fine */
}

static void
test_refusals(void)
{
    static const struct {
        const char *text;
        const char *why;
    } rows[] = {
        { "", "no line has a length" },
        { "\n# 5\n \n", "no line has a length" },
        { "1\n2\n-3\n", "line 3 is \"-3\", no whole number of tokens up to 2^40" },
        { "\n\n5 6", "line 3 is \"5 6\"" },
        { "1099511627777", "line 1 is \"1099511627777\"" },
        { "99999999999999999999999999", "line 1 is" },
        { "4.0", "line 1 is \"4.0\"" },
        { "5\x01", "line 1 is \"5\\x01\"" },
        { ":", "line 1 is" },
        { "/", "line 1 is" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berthi_tokens tokens;
        berth_error error;

        CHECK_EQ(parse(rows[i].text, &tokens, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, rows[i].why);
        CHECK_STR(error.file, "lengths.txt");
        CHECK(tokens.lengths == NULL);
    }
}

static void
test_numbers(void)
{
    static const uint64_t huge[] = { UINT64_MAX / 2, 1, 1 };
    berthi_tokens tokens;
    berth_error error;

    CHECK_EQ(berthi_tokens_init(context, huge, 0, &tokens, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "no lengths");
    CHECK_EQ(berthi_tokens_init(context, huge, 3, &tokens, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "2^64 tokens");
    CHECK(tokens.lengths == NULL);
    CHECK_EQ(berthi_tokens_init(context, huge, 2, &tokens, &error), BERTH_OK);
    CHECK_EQ(tokens.total, UINT64_MAX / 2 + 1);
    berthi_tokens_fini(&tokens);
}

/* The ceil(p * n / 100)-th of n. */
static void
test_percentiles(void)
{
    berthi_tokens tokens = tens(100);

    CHECK_EQ(berthi_tokens_percentile(&tokens, 0), 10);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 1), 10);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 50), 500);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 99), 990);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 100), 1000);
    berthi_tokens_fini(&tokens);
    tokens = tens(3); /* ceil(1.5) = 2, ceil(2.85) = 3 */
    CHECK_EQ(berthi_tokens_percentile(&tokens, 33), 10);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 34), 20);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 50), 20);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 95), 30);
    berthi_tokens_fini(&tokens);
    tokens = tens(1);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 0), 10);
    CHECK_EQ(berthi_tokens_percentile(&tokens, 100), 10);
    berthi_tokens_fini(&tokens);
}

static void
test_padding(void)
{
    static const uint64_t lengths[] = { 10, 1, 2, 9, 5 };
    berthi_tokens tokens;

    CHECK_EQ(berthi_tokens_init(context, lengths, 5, &tokens, NULL), BERTH_OK);
    CHECK_EQ(berthi_tokens_padded(&tokens, 1), 27);
    CHECK_EQ(berthi_tokens_padded(&tokens, 2), 20 + 18 + 5);
    CHECK_EQ(berthi_tokens_padded(&tokens, 3), 30 + 18);
    CHECK_EQ(berthi_tokens_padded(&tokens, 5), 50);
    CHECK_EQ(berthi_tokens_padded(&tokens, UINT64_MAX), 50);
    CHECK_EQ(berthi_tokens_padded_sorted(&tokens, 2), 4 + 18 + 10);
    /* [10] [1 2] [9] [5] of 10; [10 1] [2 9] [5] of 11; all in one of 27 */
    CHECK_EQ(berthi_tokens_packs(&tokens, 10), 4);
    CHECK_EQ(berthi_tokens_packs(&tokens, 11), 3);
    CHECK_EQ(berthi_tokens_packs(&tokens, 26), 2);
    CHECK_EQ(berthi_tokens_packs(&tokens, 27), 1);
    CHECK_EQ(berthi_tokens_packs(&tokens, 4), 4); /* three are cut */
    CHECK_EQ(berthi_tokens_packs(&tokens, 0), 0);
    berthi_tokens_fini(&tokens);
}

/* 100 bytes and one for each token. */
static uint64_t
simple(const void *user, uint64_t length, uint64_t batch)
{
    (void)user;
    return 100 + length * batch;
}

static void
test_batches(void)
{
    CHECK_EQ(berthi_tokens_batch(simple, NULL, 10, 99), 0);
    CHECK_EQ(berthi_tokens_batch(simple, NULL, 10, 109), 0);
    CHECK_EQ(berthi_tokens_batch(simple, NULL, 10, 110), 1);
    CHECK_EQ(berthi_tokens_batch(simple, NULL, 10, 199), 9);
    CHECK_EQ(berthi_tokens_batch(simple, NULL, 10, 200), 10);
    CHECK_EQ(berthi_tokens_batch(simple, NULL, 0, 200), BERTHI_TOKENS_BATCH);
}

static void
test_summary(void)
{
    berthi_tokens tokens = tens(100);
    berthi_tokens_summary out;

    berthi_tokens_summarize(&tokens, 10, simple, NULL, 10100, &out);
    CHECK_EQ(out.count, 100);
    CHECK_EQ(out.total, 50500);
    CHECK_EQ(out.packed, 50500);
    CHECK_EQ(out.least, 10);
    CHECK_EQ(out.most, 1000);
    CHECK_EQ(out.mean, 505);
    CHECK_EQ(out.batch, 10);
    CHECK_EQ(out.padded, 10 * (1000 + 900 + 800 + 700 + 600 + 500 + 400 + 300 + 200 + 100));
    CHECK_EQ(out.sorted, out.padded);
    CHECK_EQ(out.packs, berthi_tokens_packs(&tokens, 1000));
    CHECK_STR(out.points[0].name, "p50");
    CHECK_EQ(out.points[0].length, 500);
    CHECK_EQ(out.points[0].batch, 20);
    CHECK_EQ(out.points[1].length, 950);
    CHECK_EQ(out.points[2].length, 990);
    CHECK_STR(out.points[3].name, "max");
    CHECK_EQ(out.points[3].length, 1000);
    CHECK_EQ(out.points[3].batch, 10);
    berthi_tokens_summarize(&tokens, 10, NULL, NULL, 10100, &out);
    CHECK_EQ(out.points[3].batch, 0);
    berthi_tokens_fini(&tokens);
}

/* The batch that is found fits, and one more does not. */
static void
test_inference(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    const uint64_t usable = UINT64_C(20) << 30;
    berthi_estimate_options options;
    berthi_weight_sums sums;
    const berthi_tokens_inference user = { &e->model, &options, &sums, NULL };
    uint64_t batch;

    berthi_estimate_options_init(&options, &e->shape);
    berthi_estimate_weights(&e->model, &options, &sums);
    options.prompt = 4000;
    batch = berthi_tokens_batch(berthi_tokens_measure_inference, &user, 2000, usable);
    CHECK_GT(batch, 0);
    CHECK_LE(berthi_tokens_measure_inference(&user, 2000, batch), usable);
    CHECK_GT(berthi_tokens_measure_inference(&user, 2000, batch + 1), usable);
    CHECK_EQ(berthi_tokens_measure_inference(&user, 0, 1), UINT64_MAX);
}

static berth_status
run_parse(void *user, berth_context *faulty, berth_error *error)
{
    const char *const text = user;
    berthi_tokens tokens;
    const berth_status status =
        berthi_tokens_parse(faulty, text, strlen(text), "f", &tokens, error);

    CHECK_EQ(tokens.lengths == NULL, status != BERTH_OK);
    berthi_tokens_fini(&tokens);
    return status;
}

static void
test_faults(void)
{
    char text[] = "1\n2\n3\n";
    const fault_counts counts = fault_loop("tokens", run_parse, text);

    CHECK_EQ(counts.survived, 0);
    CHECK_EQ(counts.memory, 4); /* each of two lists, once and from then on */
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_parsing);
    T_RUN(test_refusals);
    T_RUN(test_numbers);
    T_RUN(test_percentiles);
    T_RUN(test_padding);
    T_RUN(test_batches);
    T_RUN(test_summary);
    T_RUN(test_inference);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
