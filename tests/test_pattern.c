/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pattern.c - patterns against what Python's re says of them, globs, eras.
 * The expected values below were printed by Python 3.11.
 */
#include "quant/pattern.h"

#include <string.h>

#include "quant/era.h"
#include "quant/glob.h"
#include "tests/fault.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

static void
check_pattern(const char *text, const char *name, bool begin, bool whole, bool search)
{
    berthi_pattern *pattern;
    berth_error error;
    const uint64_t length = strlen(name);

    if (!CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_OK)) {
        T_NOTE("%s: %s", text, error.message);
        return;
    }
    /* Each twice: nothing is left of the time before. */
    for (int i = 0; i < 6; i++) {
        const berthi_pattern_mode mode = (berthi_pattern_mode)(i % 3);
        const bool expected = mode == BERTHI_PATTERN_BEGIN   ? begin
                              : mode == BERTHI_PATTERN_WHOLE ? whole
                                                             : search;

        if (!CHECK_EQ(berthi_pattern_is_match(pattern, name, length, mode), expected))
            T_NOTE("/%s/ against \"%s\"", text, name);
    }
    berthi_pattern_destroy(pattern);
}

static void
test_matches(void)
{
    static const struct {
        const char *pattern;
        const char *name;
        bool begin;
        bool whole;
        bool search;
    } cases[] = {
#include "tests/data/patterns.inc"
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_pattern(cases[i].pattern, cases[i].name, cases[i].begin, cases[i].whole,
                      cases[i].search);
    CHECK_GT(sizeof cases / sizeof *cases, 400);
}

static void
test_refused(void)
{
    static const struct {
        const char *pattern;
        const char *why;
        uint64_t at;
    } cases[] = {
        { "*", "nothing to repeat", 1 },
        { "+a", "nothing to repeat", 1 },
        { "?", "nothing to repeat", 1 },
        { "a|*", "nothing to repeat", 3 },
        { "(*a)", "nothing to repeat", 2 },
        { "a**", "repeated twice", 3 },
        { "a+*", "repeated twice", 3 },
        { "a??+", "repeated twice", 4 },
        { "a???", "repeated twice", 4 },
        { "^*", "repeated twice", 2 },
        { "$?", "repeated twice", 2 },
        { "a*+", "repeated twice", 3 },
        { "(a", "a ( without )", 2 },
        { "a)", "a ) without (", 2 },
        { "(?=a)", "(? with", 1 },
        { "(?P<n>a)", "(? with", 1 },
        { "a{2}", "{ is not", 2 },
        { "[a", "a [ without ]", 2 },
        { "[]", "a [ without ]", 2 },
        { "[^]", "a [ without ]", 3 },
        { "[z-a]", "a range", 4 },
        { "[a-\\d]", "a range", 5 },
        { "[\xc3\xa4]", "beyond ASCII", 1 },
        { "[\\b]", "not supported", 2 },
        { "[\\", "nothing follows", 2 },
        { "a\\", "nothing follows", 2 },
        { "\\b", "not supported", 1 },
        { "\\1", "not supported", 1 },
        { "\\Z", "not supported", 1 },
        { "ab\xff", "not UTF-8", 2 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_pattern *pattern = (berthi_pattern *)&context;
        berth_error error;

        CHECK_EQ(berthi_pattern_create(context, cases[i].pattern, &pattern, &error),
                 BERTH_EINVAL);
        CHECK(pattern == NULL);
        CHECK_EQ(error.reason, BERTH_REASON_RULES);
        CHECK_EQ(error.position, cases[i].at);
        if (!CHECK_CONTAINS(error.message, cases[i].why))
            T_NOTE("%s", cases[i].pattern);
    }
}

/* A match may end behind a dot, the first byte too. */
static void
test_ends(void)
{
    check_pattern("\\.", ".a", true, true, true);
    check_pattern(".", ".a", true, true, true);
    check_pattern(".", "ba", true, false, true);
    check_pattern("b", "ba", true, false, true);
    check_pattern("", "ba", true, false, true);
}

/* n alternatives of n optional letters: an engine that tries one path takes 2^n steps. */
static void
test_no_explosion(void)
{
    char text[4097];
    char name[4096];
    berthi_pattern *pattern;
    berth_error error;

    for (size_t i = 0; i < 2048; i += 2)
        memcpy(text + i, "a?", 2);
    memset(text + 2048, 'a', 2048);
    text[4096] = '\0';
    memset(name, 'a', sizeof name);
    T_REQUIRE(CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_OK));
    CHECK(berthi_pattern_is_match(pattern, name, 2048, BERTHI_PATTERN_BEGIN));
    CHECK(!berthi_pattern_is_match(pattern, name, 2047, BERTHI_PATTERN_BEGIN));
    CHECK(berthi_pattern_is_match(pattern, name, 2048 + 1024, BERTHI_PATTERN_WHOLE));
    CHECK(!berthi_pattern_is_match(pattern, name, 2048 + 1025, BERTHI_PATTERN_WHOLE));
    berthi_pattern_destroy(pattern);
    berthi_pattern_destroy(NULL);
}

static void
test_limits(void)
{
    char text[BERTHI_PATTERN_LIMIT + 2];
    berthi_pattern *pattern;
    berth_error error;

    memset(text, '|', sizeof text);
    text[BERTHI_PATTERN_LIMIT] = '\0';
    CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_OK);
    CHECK(berthi_pattern_is_match(pattern, "x", 1, BERTHI_PATTERN_BEGIN));
    berthi_pattern_destroy(pattern);
    text[BERTHI_PATTERN_LIMIT] = '|';
    text[BERTHI_PATTERN_LIMIT + 1] = '\0';
    CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_EINVAL);
    CHECK_EQ(error.expected, BERTHI_PATTERN_LIMIT);
    CHECK_EQ(error.actual, BERTHI_PATTERN_LIMIT + 1);

    memset(text, '(', BERTHI_PATTERN_DEPTH);
    memset(text + BERTHI_PATTERN_DEPTH - 1, ')', BERTHI_PATTERN_DEPTH);
    text[2 * (BERTHI_PATTERN_DEPTH - 1)] = '\0';
    CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_OK);
    berthi_pattern_destroy(pattern);
    text[BERTHI_PATTERN_DEPTH - 1] = '(';
    CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "too many groups");
    /* "()" needs the most states for its length. */
    for (size_t i = 0; i < BERTHI_PATTERN_LIMIT; i += 2)
        memcpy(text + i, "()", 2);
    text[BERTHI_PATTERN_LIMIT] = '\0';
    CHECK_EQ(berthi_pattern_create(context, text, &pattern, &error), BERTH_OK);
    berthi_pattern_destroy(pattern);
}

static berth_status
create_once(void *user, berth_context *fresh, berth_error *error)
{
    berthi_pattern *pattern;
    const berth_status status = berthi_pattern_create(fresh, "(a|b)*c", &pattern, error);

    (void)user;
    CHECK_EQ(status == BERTH_OK, pattern != NULL);
    berthi_pattern_destroy(pattern);
    return status;
}

static void
test_faults(void)
{
    CHECK_EQ(fault_loop("pattern", create_once, NULL).memory, 2);
}

/* ----------------------------------------------------------------------- globs */

static void
test_globs(void)
{
    static const struct {
        const char *glob;
        const char *name;
        bool is_match;
    } cases[] = {
        { "a", "a", true },
        { "a", "b", false },
        { "a", "ab", false },
        { "ab", "a", false },
        { "*", "", true },
        { "*", "a.b.c", true },
        { "**", "ab", true },
        { "?", "", false },
        { "?", "a", true },
        { "?", "ab", false },
        { "?", "\xc3\xa4", true },
        { "??", "\xc3\xa4", false },
        { "a?c", "abc", true },
        { "a?c", "a\xe2\x82\xac" "c", true },
        { "*.weight", "a.b.weight", true },
        { "*.weight", "a.b.weights", false },
        { "*.weight", ".weight", true },
        { "model.*.mlp.*", "model.layers.0.mlp.up.weight", true },
        { "*a*b", "xaxbxb", true },
        { "*a*b", "xaxbxc", false },
        { "*ab", "aab", true },
        { "a*", "a", true },
        { "*aab", "aaaaab", true },
        { "[abc]", "b", true },
        { "[abc]", "d", false },
        { "[a-c]x", "bx", true },
        { "[a-c]x", "dx", false },
        { "[!a-c]", "d", true },
        { "[!a-c]", "a", false },
        { "[!a]", "\xc3\xa4", true },
        { "[a]", "\xc3\xa4", false },
        { "[]]", "]", true },
        { "[!]]", "]", false },
        { "[a-]", "-", true },
        { "[-a]", "-", true },
        { "[a-]", "b", false },
        { "[+--]", ",", true },
        { "\\*", "*", true },
        { "\\*", "a", false },
        { "\\\\", "\\", true },
        { "\\[a]", "[a]", true },
        { "*[0-9].x", "layers.10.x", true },
        { "*\\?", "what?", true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(berthi_glob_check(cases[i].glob) == NULL);
        if (!CHECK_EQ(berthi_glob_is_match(cases[i].glob, cases[i].name,
                                           strlen(cases[i].name)), cases[i].is_match))
            T_NOTE("%s against %s", cases[i].glob, cases[i].name);
    }
    CHECK_STR(berthi_glob_check(""), "an empty pattern");
    CHECK_STR(berthi_glob_check("a\\"), "nothing follows the last \\");
    CHECK_STR(berthi_glob_check("[a"), "a [ without ]");
    CHECK_STR(berthi_glob_check("[]"), "a [ without ]");
    CHECK_STR(berthi_glob_check("a[!]"), "a [ without ]");
    CHECK_STR(berthi_glob_check("[\xc3\xa4]"), "a set of characters beyond ASCII");
    CHECK(berthi_glob_check("\xc3\xa4*") == NULL);
}

/* ------------------------------------------------------------------------ eras */

static void
test_eras(void)
{
    static const char *const words[] = { "hf5", "hf5.14", "hf5.0", "hf4" };
    berthi_era era = BERTHI_ERA_HF4;

    CHECK_EQ(BERTHI_ERA_COUNT, 4);
    for (int i = 0; i < BERTHI_ERA_COUNT; i++) {
        CHECK_STR(berthi_era_name((berthi_era)i), words[i]);
        CHECK(berthi_era_can_parse(words[i], &era));
        CHECK_EQ(era, i);
    }
    CHECK(!berthi_era_can_parse("hf", &era));
    CHECK(!berthi_era_can_parse("hf5.1", &era));
    CHECK_EQ(era, BERTHI_ERA_HF4);
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
    T_RUN(test_matches);
    T_RUN(test_refused);
    T_RUN(test_ends);
    T_RUN(test_no_explosion);
    T_RUN(test_limits);
    T_RUN(test_faults);
    T_RUN(test_globs);
    T_RUN(test_eras);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
