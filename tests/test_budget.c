/* SPDX-License-Identifier: Apache-2.0 */
/* test_budget.c - max_memory as transformers takes it: sizes, keys, defaults. */
#include "placement/budget.h"

#include <stdio.h>
#include <string.h>

#include "tests/t.h"

/* The size, or -1 when it is refused. */
static double
size_of(const char *text)
{
    const char *problem = NULL;
    double bytes = 7;

    if (berthi_budget_can_parse_size(text, strlen(text), &bytes, &problem)) {
        CHECK(problem == NULL);
        return bytes;
    }
    CHECK(problem != NULL);
    CHECK(bytes == 0);
    return -1;
}

static const char *
problem_of(const char *text)
{
    const char *problem = NULL;
    double bytes;

    berthi_budget_can_parse_size(text, strlen(text), &bytes, &problem);
    return problem;
}

typedef struct size_case {
    const char *text;
    double bytes;
} size_case;

static void
check_sizes(const size_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!CHECK(size_of(cases[i].text) == cases[i].bytes))
            T_NOTE("\"%s\" is %.17g", cases[i].text, size_of(cases[i].text));
}

static void
test_units(void)
{
    static const size_case cases[] = {
        { "20GB", 20e9 },
        { "20GiB", 21474836480.0 },
        { "1MiB", 1048576 },
        { "512KiB", 524288 },
        { "100MB", 1e8 },
        { "100KB", 1e5 },
        { "2GiB", 2147483648.0 },
        { "1.5GB", 1.5e9 },
        { "0.3GiB", 322122547 },
        { "1.1GiB", 1181116006 },
        { "7.999999999GB", 7999999999.0 },
        { "0MB", 0 },
        { "-0GB", 0 },
        { "-0.0000000001GB", 0 },
        { "20gib", 21474836480.0 },
        { "5GIB", 5368709120.0 },
        { "5gIb", 5368709120.0 },
        { "3mIB", 3145728 },
        { "4.1GB", 4099999999.0 }, /* one multiplication of doubles, then cut */
    };

    check_sizes(cases, sizeof cases / sizeof *cases);
}

static void
test_bits(void)
{
    static const size_case cases[] = {
        { "5Gb", 625000000 },  { "5gb", 625000000 }, { "2.5Kb", 312 },
        { "3KB", 3000 },       { "3kb", 375 },       { "3kB", 3000 },
        { "5gib", 5368709120.0 }, { "8Mb", 1000000 }, { "0.015kb", 1 },
        { "0.007kb", 0 },
    };

    check_sizes(cases, sizeof cases / sizeof *cases);
    CHECK_STR(problem_of("-0.001kb"), "is negative"); /* -1 / 8, rounded down */
}

static void
test_numbers(void)
{
    static const size_case cases[] = {
        { "5 GB", 5e9 },      { " 5GB", 5e9 },       { "\t5\nGB", 5e9 },
        { ".5GB", 5e8 },      { "5.GB", 5e9 },       { "1e3MB", 1e9 },
        { "1E3MB", 1e9 },     { "1e+3MB", 1e9 },     { "1000e-3MB", 1e6 },
        { "+5GB", 5e9 },      { "1_000MB", 1e9 },    { "1_0.0_1MB", 10.01e6 },
        { "1e0_2MB", 1e8 },   { "007GB", 7e9 },      { "0.5e1GB", 5e9 },
        { "00.5GB", 5e8 },    { "1e-400GB", 0 },     { "000GB", 0 },
        { "\x1c" "5GB", 5e9 },
    };

    check_sizes(cases, sizeof cases / sizeof *cases);
}

static void
test_integers(void)
{
    static const size_case cases[] = {
        { "0", 0 },           { "500", 500 },        { "30000000000", 3e10 },
        { "1_000", 1000 },    { "+12", 12 },         { "-0", 0 },
        { "007", 7 },         { "18446744073709551616", 18446744073709551616.0 },
    };

    check_sizes(cases, sizeof cases / sizeof *cases);
    CHECK_STR(problem_of("-1"), "is negative");
}

static void
test_refused_sizes(void)
{
    static const char *const texts[] = {
        "",       "GB",      "5TB",      "5B",      "5BB", "5MBB",    "5k0MB",  "1,5GB",
        "5GB ",   "0x10GB",  "1__0MB",   "_1MB",    "1_MB", "1_.0MB", "1._0MB", "1.0_MB",
        "nanGB",  "5 5GB",   "e5GB",     "1eGB",    "1e+GB", ".GB",   "-GB",    "+-5GB",
        "--5GB",  "1.2.3GB", "5G",       "5iB",     "GiB", "5 ",      " 5",     "1e3",
        "1.5",    "90%",     "inf",      "1e5_GB",  "5\v", "1_",      "_1",     "_",
        "1__0",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!CHECK(problem_of(texts[i]) != NULL
                   && strstr(problem_of(texts[i]), "is no size") != NULL))
            T_NOTE("\"%s\" is accepted", texts[i]);
    CHECK_STR(problem_of("-5GB"), "is negative");
    CHECK_STR(problem_of("-1e-8GB"), "is negative");
    CHECK_STR(problem_of("infGB"), "is beyond all memory");
    CHECK_STR(problem_of("-InfinityGiB"), "is beyond all memory");
    CHECK_STR(problem_of("+INFMB"), "is beyond all memory");
    CHECK_STR(problem_of("1e400GB"), "is beyond all memory");
    CHECK_STR(problem_of("1e305GB"), "is beyond all memory");
}

/* A number is a number up to 320 characters, blanks not counted. */
static void
test_long_numbers(void)
{
    char text[400];

    memset(text, '0', sizeof text);
    memcpy(text + 318, "12GB", 5);
    CHECK(size_of(text) == 12e9);
    memset(text, '0', sizeof text);
    memcpy(text + 319, "12GB", 5);
    CHECK_CONTAINS(problem_of(text), "is no size");
    text[0] = ' ';
    CHECK(size_of(text) == 12e9);
    memset(text, '9', sizeof text);
    text[320] = '\0';
    CHECK_STR(problem_of(text), "is beyond all memory");
    memcpy(text + 300, "", 1);
    CHECK(size_of(text) == 1e300);
}

/* -------------------------------------------------------------------------- maps */

static berth_error error;

static berthi_budgets
parse(const char *text)
{
    berthi_budgets budgets;

    CHECK_EQ(berthi_budgets_parse(text, &budgets, &error), BERTH_OK);
    CHECK(budgets.is_given);
    return budgets;
}

/* "0=5 1=7 cpu=9" */
static const char *
text_of(const berthi_budgets *budgets)
{
    static char text[4096];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < budgets->count; i++) {
        char name[BERTHI_BUDGET_NAME];

        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s=%.17g",
                                   i > 0 ? " " : "",
                                   berthi_budget_name(&budgets->items[i], name),
                                   budgets->items[i].bytes);
    }
    return text;
}

static void
test_order(void)
{
    berthi_budgets b = parse("disk=1KB,cpu=2KB,10=3KB,mps=4KB,9=5KB,-1=6KB");

    CHECK_STR(text_of(&b), "-1=6000 9=5000 10=3000 mps=4000 cpu=2000 disk=1000");
    CHECK_EQ(b.items[3].kind, BERTHI_BUDGET_MPS);
    CHECK_EQ(b.items[3].number, 0);
    CHECK_EQ(b.items[0].number, -1);
    b = parse(" 0 =10GB,cpu\t=30000000000");
    CHECK_STR(text_of(&b), "0=10000000000 cpu=30000000000");
    b = parse("9223372036854775807=1,-9223372036854775807=2");
    CHECK_STR(text_of(&b), "-9223372036854775807=2 9223372036854775807=1");
}

static void
check_refused(const char *text, const char *message)
{
    berthi_budgets budgets;

    memset(&budgets, 1, sizeof budgets);
    CHECK_EQ(berthi_budgets_parse(text, &budgets, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    if (!CHECK_CONTAINS(error.message, message))
        T_NOTE("%s: %s", text, error.message);
    CHECK_EQ(budgets.count, 0);
    CHECK(!budgets.is_given);
}

static void
test_refused_maps(void)
{
    const char *const device =
        "is no device: they are integers (GPUs), mps, cpu and disk";

    check_refused("", "\"\" is not written as device=size");
    check_refused("5GB", "\"5GB\" is not written as device=size");
    check_refused("0=5GB,", "\"\" is not written as device=size");
    check_refused("0=", "\"0\" has no size");
    check_refused("0=8TB,cpu=30GB", "max_memory of device 0: \"8TB\" is no size");
    check_refused("0=1,5GB", "\"5GB\" is not written");
    check_refused("0=5GB=6GB", "is no size");
    check_refused("cuda:0=8GB", "\"cuda:0\" ");
    check_refused("cuda:0=8GB", device);
    check_refused("GPU=8GB", device);
    check_refused("=8GB", device);
    check_refused("-=8GB", device);
    check_refused("+1=8GB", device);
    check_refused("1 2=8GB", device);
    check_refused("CPU=8GB", device);
    check_refused("cpu0=8GB", device);
    check_refused("9223372036854775808=8GB", device);
    check_refused("99999999999999999999999=8GB", device);
    check_refused("0=8GB,0=9GB", "\"0\" is there twice");
    check_refused("cpu=8GB,1=1,cpu=9GB", "\"cpu\" is there twice");
    check_refused("0=-5GB", "max_memory of device 0: \"-5GB\" is negative");
    check_refused("a\x01=8GB", "\"a\\x01\"");
}

/* All places but one are for what users name; the last is the disk's. */
static void
test_limit(void)
{
    berthi_budgets budgets = { .count = 0 };
    berthi_budget budget = { BERTHI_BUDGET_GPU, 0, 1 };

    for (uint32_t i = 0; i + 1 < BERTHI_BUDGET_LIMIT; i++) {
        budget.number = i;
        CHECK(berthi_budgets_can_add(&budgets, &budget));
    }
    budget.number = BERTHI_BUDGET_LIMIT;
    CHECK(!berthi_budgets_can_add(&budgets, &budget));
    budget.kind = BERTHI_BUDGET_DISK;
    CHECK(berthi_budgets_can_add(&budgets, &budget));
    CHECK(!berthi_budgets_can_add(&budgets, &budget));
    CHECK_EQ(budgets.count, BERTHI_BUDGET_LIMIT);
}

static void
test_defaults(void)
{
    const uint64_t gpus[] = { 1000, 0, 3000 };
    berthi_budget_machine machine = { gpus, 3, 5000, false };
    berthi_budgets budgets;

    berthi_budgets_default(BERTHI_ERA_HF5, &machine, &budgets);
    CHECK_STR(text_of(&budgets), "0=1000 1=0 2=3000 cpu=4500");
    CHECK(!budgets.is_given);
    berthi_budgets_default(BERTHI_ERA_HF5_0, &machine, &budgets);
    CHECK_STR(text_of(&budgets), "0=1000 1=0 2=3000 cpu=4500");
    berthi_budgets_default(BERTHI_ERA_HF4, &machine, &budgets);
    CHECK_STR(text_of(&budgets), "0=1000 1=0 2=3000 cpu=5000");
    machine.is_integrated = true;
    machine.gpu_count = 1;
    berthi_budgets_default(BERTHI_ERA_HF4, &machine, &budgets);
    CHECK_STR(text_of(&budgets), "0=1000");
}

static void
test_cut(void)
{
    berthi_budgets budgets = parse("0=3753402624,cpu=10,disk=100");

    berthi_budgets_cut(&budgets);
    CHECK_STR(text_of(&budgets), "0=3378062361.5999999 cpu=9 disk=90");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_units);
    T_RUN(test_bits);
    T_RUN(test_numbers);
    T_RUN(test_integers);
    T_RUN(test_refused_sizes);
    T_RUN(test_long_numbers);
    T_RUN(test_order);
    T_RUN(test_refused_maps);
    T_RUN(test_limit);
    T_RUN(test_defaults);
    T_RUN(test_cut);
    T_MAIN_END;
}
