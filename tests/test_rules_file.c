/* SPDX-License-Identifier: Apache-2.0 */
/* test_rules_file.c - reading the user's rules. */
#include "quant/rules_file.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

static berthi_rules_file
parse(const char *text)
{
    berthi_rules_file file;
    berth_error error;

    if (!CHECK_EQ(berthi_rules_file_parse(context, text, strlen(text), "r", &file, &error),
                  BERTH_OK))
        T_NOTE("%s: %s", text, error.message);
    return file;
}

static void
test_empty(void)
{
    static const char *const texts[] = { "", "\n", "  \t \r\n\n", "# nothing",
                                         "#\n \t# keep *\n" };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        berthi_rules_file file = parse(texts[i]);

        CHECK_EQ(file.count, 0);
        CHECK_STR(file.name, "r");
        berthi_rules_file_fini(&file);
    }
}

static void
test_everything(void)
{
    berthi_rules_file file =
        parse("# experts in 4 bits\r\n"
              "nf4\t*.experts.*   rank=2,3 \r\n"
              "\n"
              "  int8 *.q_proj.weight shape=*x4096 dtype=bf16,f16 # why\n"
              "fp4 a#b shape=16+x16x0\n"
              "keep * optional\n"
              "quantize ?\n"
              "auto [a-z]* rank=31");
    const berthi_rule *const r = file.rules;

    T_REQUIRE(CHECK_EQ(file.count, 6));
    CHECK_EQ(r[0].action, BERTHI_ACTION_NF4);
    CHECK_STR(r[0].glob, "*.experts.*");
    CHECK_STR(r[0].text, "nf4 *.experts.* rank=2,3");
    CHECK_EQ(r[0].line, 2);
    CHECK_EQ(r[0].ranks, 12);
    CHECK_EQ(r[0].dtypes, 0);
    CHECK_EQ(r[0].axis_count, 0);
    CHECK_EQ(r[0].is_optional, false);
    CHECK_EQ(r[1].action, BERTHI_ACTION_INT8);
    CHECK_STR(r[1].text, "int8 *.q_proj.weight shape=*x4096 dtype=bf16,f16");
    CHECK_EQ(r[1].line, 4);
    CHECK_EQ(r[1].ranks, 0);
    CHECK_EQ(r[1].dtypes, 1u << BERTH_BF16 | 1u << BERTH_F16);
    CHECK_EQ(r[1].axis_count, 2);
    CHECK_EQ(r[1].axes[0].minimum, 0);
    CHECK_EQ(r[1].axes[0].maximum, UINT64_MAX);
    CHECK_EQ(r[1].axes[1].minimum, 4096);
    CHECK_EQ(r[1].axes[1].maximum, 4096);
    CHECK_EQ(r[2].action, BERTHI_ACTION_FP4);
    CHECK_STR(r[2].glob, "a#b");
    CHECK_EQ(r[2].axis_count, 3);
    CHECK_EQ(r[2].axes[0].minimum, 16);
    CHECK_EQ(r[2].axes[0].maximum, UINT64_MAX);
    CHECK_EQ(r[2].axes[1].maximum, 16);
    CHECK_EQ(r[2].axes[2].maximum, 0);
    CHECK_EQ(r[3].action, BERTHI_ACTION_KEEP);
    CHECK_EQ(r[3].is_optional, true);
    CHECK_EQ(r[4].action, BERTHI_ACTION_QUANTIZE);
    CHECK_STR(r[4].text, "quantize ?");
    CHECK_EQ(r[5].action, BERTHI_ACTION_AUTO);
    CHECK_EQ(r[5].ranks, 1u << 31);
    CHECK_EQ(r[5].line, 8);
    berthi_rules_file_fini(&file);
}

static void
test_refused(void)
{
    static const struct {
        const char *text;
        uint64_t at;
        const char *why;
    } cases[] = {
        { "nf", 0, "line 1: an action that is none" },
        { "NF4 *", 0, "an action that is none" },
        { "\n\nkept *", 2, "line 3: an action" },
        { "keep", 4, "an action without a pattern" },
        { "keep # *", 5, "an action without a pattern" },
        { "keep [a", 5, "a [ without ]" },
        { "keep a\\", 5, "nothing follows" },
        { "keep * b", 7, "a condition that is none" },
        { "keep * rank", 7, "a condition that is none" },
        { "keep * Optional", 7, "a condition that is none" },
        { "keep * rank=", 7, "rank= wants" },
        { "keep * rank=a", 7, "rank= wants" },
        { "keep * rank=1,", 7, "rank= wants" },
        { "keep * rank=1;2", 7, "rank= wants" },
        { "keep * rank=32", 7, "rank= wants" },
        { "keep * rank=18446744073709551616", 7, "rank= wants" },
        { "keep * rank=1 rank=2", 14, "a second rank=" },
        { "keep * shape=", 7, "shape= wants" },
        { "keep * shape=4x", 7, "shape= wants" },
        { "keep * shape=4,4", 7, "shape= wants" },
        { "keep * shape=+", 7, "shape= wants" },
        { "keep * shape=99999999999999999999999", 7, "shape= wants" },
        { "keep * shape=18446744073709551616", 7, "shape= wants" },
        { "keep * shape=*+", 7, "shape= wants" },
        { "keep * shape=1x1x1x1x1x1x1x1x1", 7, "more than 8 axes" },
        { "keep * shape=1 shape=1", 15, "a second shape=" },
        { "keep * dtype=", 7, "dtype= wants" },
        { "keep * dtype=bf17", 7, "dtype= wants" },
        { "keep * dtype=bf16,", 7, "dtype= wants" },
        { "keep * dtype=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 7, "dtype= wants" },
        { "keep * dtype=f16 dtype=f16", 17, "a second dtype=" },
        { "keep *\n\xff", 7, "not UTF-8" },
        { "\xef\xbb\xbf" "keep *\n", 0, "a byte order mark: save the file without it" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_rules_file file;
        berth_error error;

        CHECK_EQ(berthi_rules_file_parse(context, cases[i].text, strlen(cases[i].text),
                                         "x.rules", &file, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_RULES);
        CHECK_STR(error.file, "x.rules");
        CHECK_EQ(error.has, BERTH_HAS_POSITION);
        CHECK_EQ(file.count, 0);
        CHECK(file.rules == NULL);
        CHECK_EQ(error.position, cases[i].at);
        if (!CHECK_CONTAINS(error.message, cases[i].why))
            T_NOTE("%s", cases[i].text);
        berthi_rules_file_fini(&file);
    }
}

static void
test_nul(void)
{
    berthi_rules_file file;
    berth_error error;

    CHECK_EQ(berthi_rules_file_parse(context, "keep a\0b", 8, "r", &file, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.position, 6);
    CHECK_CONTAINS(error.message, "a NUL");
}

/* As many rules as fit, and a text that is too large. */
static void
test_limits(void)
{
    const uint64_t bytes = BERTHI_RULES_LIMIT;
    char *const text = malloc(bytes + 1);
    berthi_rules_file file;
    berth_error error;

    T_REQUIRE(CHECK(text != NULL));
    for (uint64_t i = 0; i <= bytes; i++)
        text[i] = "nf4 *\n"[i % 6];
    CHECK_EQ(berthi_rules_file_parse(context, text, bytes / 6 * 6 - 1, "r", &file, &error),
             BERTH_OK);
    CHECK_EQ(file.count, bytes / 6);
    CHECK_EQ(file.rules[file.count - 1].line, bytes / 6);
    berthi_rules_file_fini(&file);
    memset(text, '\n', bytes + 1);
    CHECK_EQ(berthi_rules_file_parse(context, text, bytes, "r", &file, &error), BERTH_OK);
    berthi_rules_file_fini(&file);
    CHECK_EQ(berthi_rules_file_parse(context, text, bytes + 1, "r", &file, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.expected, bytes);
    CHECK_EQ(error.actual, bytes + 1);
    free(text);
}

/* "\r" is a blank, so that "\r\n" ends a line as "\n" does. */
static void
test_returns(void)
{
    berthi_rules_file file = parse("keep a\r\r\n\r\nfp4\rc\r \n");

    T_REQUIRE(CHECK_EQ(file.count, 2));
    CHECK_STR(file.rules[0].glob, "a");
    CHECK_STR(file.rules[0].text, "keep a");
    CHECK_STR(file.rules[1].text, "fp4 c");
    CHECK_EQ(file.rules[1].line, 3);
    berthi_rules_file_fini(&file);
}

/* The last test: nothing is left of the others. */
static void
test_all_given_back(void)
{
    vacant_check_memory(context);
}

/* Rules beyond the first block of memory. */
static berth_status
parse_once(void *user, berth_context *fresh, berth_error *error)
{
    const char *const text = user;
    berthi_rules_file file;
    const berth_status status =
        berthi_rules_file_parse(fresh, text, strlen(text), "r", &file, error);

    CHECK_EQ(status == BERTH_OK, file.rules != NULL);
    berthi_rules_file_fini(&file);
    return status;
}

static void
test_faults(void)
{
    char text[3 * 6000 + 1];
    fault_counts counts;

    /* A long glob: pattern, then text of the rule, in blocks of their own. */
    memset(text, 'a', sizeof text);
    memcpy(text, "keep ", 5);
    memcpy(text + 6000, "\nfp4 ", 5);
    memcpy(text + 12000, "\nnf4 ", 5);
    text[sizeof text - 1] = '\0';
    counts = fault_loop("rules file", parse_once, text);
    CHECK_EQ(counts.memory, 2 * 8);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_empty);
    T_RUN(test_everything);
    T_RUN(test_refused);
    T_RUN(test_nul);
    T_RUN(test_limits);
    T_RUN(test_returns);
    T_RUN(test_faults);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
