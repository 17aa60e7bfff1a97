/* SPDX-License-Identifier: Apache-2.0 */
/* test_duration.c - times in words. */
#include "kernels/duration.h"

#include "tests/t.h"

static void
test_units(void)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } rows[] = {
        { "0s", 0 },           { "15ns", 15 },
        { "4us", 4000 },       { "007ms", 7000000 },
        { "3600s", UINT64_C(3600000000000) }, { "18446744073709551615ns", UINT64_MAX },
        { "18446744073s", UINT64_C(18446744073000000000) },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t ns = 1;

        if (!CHECK(berthi_duration_can_parse(rows[i].text, UINT64_MAX, &ns)))
            T_NOTE("%s", rows[i].text);
        CHECK_EQ(ns, rows[i].ns);
    }
}

static void
test_refusals(void)
{
    static const char *const wrong[] = {
        "", "5", "us", "s", "-1s", "+1s", " 1s", "1 s", "1.5s", "1us ", "1US", "1m", "1nss",
        "18446744073709551616ns", "18446744074s", "184467440737095516150ns",
        "99999999999999999999999999s",
    };
    uint64_t ns;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!CHECK(!berthi_duration_can_parse(wrong[i], UINT64_MAX, &ns)))
            T_NOTE("%s", wrong[i]);
}

static void
test_limit(void)
{
    uint64_t ns;

    CHECK(berthi_duration_can_parse("1us", 1000, &ns));
    CHECK(!berthi_duration_can_parse("1us", 999, &ns));
    CHECK(berthi_duration_can_parse("0ms", 0, &ns));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_units);
    T_RUN(test_refusals);
    T_RUN(test_limit);
    T_MAIN_END;
}
