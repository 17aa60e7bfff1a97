/* SPDX-License-Identifier: Apache-2.0 */
/* test_size.c - sizes as text, both ways. */
#include "kernels/base.h"

#include <locale.h>
#include <string.h>

#include "tests/comma.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (MIB * KIB)
#define EIB (GIB * GIB)

static uint64_t
parsed(const char *text)
{
    berth_error error;
    uint64_t bytes = 12345;

    CHECK_EQ(berth_size_parse(text, &bytes, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    return bytes;
}

static void
check_refused(const char *text, const char *why)
{
    berth_error error;
    uint64_t bytes = 12345;

    CHECK_EQ(berth_size_parse(text, &bytes, &error), BERTH_EINVAL);
    CHECK_EQ(error.status, BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(error.message, why);
    CHECK_EQ(bytes, 0);
}

static void
check_format(uint64_t bytes, const char *expected)
{
    char text[BERTH_SIZE_CAPACITY];

    CHECK_STR(berth_size_format(bytes, text), expected);
    CHECK_STR(text, expected);
}

static void
test_format(void)
{
    check_format(0, "0 B");
    check_format(612, "612 B");
    check_format(1023, "1023 B");
    check_format(1024, "1.00 KiB");
    check_format(1536, "1.50 KiB");
    check_format(3 * GIB / 2, "1.50 GiB");
    check_format(MIB, "1.00 MiB");
    check_format(1024 * GIB, "1.00 TiB");
    check_format(1024 * 1024 * GIB, "1.00 PiB");
    check_format(EIB, "1.00 EiB");
    check_format(EIB + EIB / 4 + EIB / 100, "1.26 EiB");
    check_format(UINT64_MAX, "16.00 EiB");
}

/* Half of a hundredth goes up; 1024.00 of one unit is 1.00 of the next. */
static void
test_format_rounds(void)
{
    check_format(1024 + 5, "1.00 KiB");  /* 1.00488 */
    check_format(1024 + 6, "1.01 KiB");  /* 1.00586 */
    check_format(MIB - 6, "1023.99 KiB"); /* 1023.9941 */
    check_format(MIB - 5, "1.00 MiB");    /* 1023.9951 */
    check_format(MIB - 1, "1.00 MiB");
    check_format(1024 + 200, "1.20 KiB"); /* 1.1953 */
    check_format(1024 + 128, "1.13 KiB"); /* 1.125 exactly */
    check_format(EIB + EIB / 8, "1.13 EiB");
    check_format(EIB + EIB / 8 - 1, "1.12 EiB");
}

static void
test_parse_units(void)
{
    CHECK_EQ(parsed("0"), 0);
    CHECK_EQ(parsed("1234"), 1234);
    CHECK_EQ(parsed("18446744073709551615"), UINT64_MAX);
    CHECK_EQ(parsed("7B"), 7);
    CHECK_EQ(parsed("1kB"), 1000);
    CHECK_EQ(parsed("1KB"), 1000);
    CHECK_EQ(parsed("1MB"), 1000000);
    CHECK_EQ(parsed("20GB"), UINT64_C(20000000000));
    CHECK_EQ(parsed("1TB"), UINT64_C(1000000000000));
    CHECK_EQ(parsed("1PB"), UINT64_C(1000000000000000));
    CHECK_EQ(parsed("18EB"), UINT64_C(18000000000000000000));
    CHECK_EQ(parsed("3KiB"), 3 * KIB);
    CHECK_EQ(parsed("20480MiB"), 20 * GIB);
    CHECK_EQ(parsed("20GiB"), 20 * GIB);
    CHECK_EQ(parsed("20   GiB"), 20 * GIB);
    CHECK_EQ(parsed("1TiB"), KIB * GIB);
    CHECK_EQ(parsed("1PiB"), MIB * GIB);
    CHECK_EQ(parsed("15EiB"), 15 * EIB);
}

static void
test_parse_fractions(void)
{
    CHECK_EQ(parsed("1.5 GiB"), 3 * GIB / 2);
    CHECK_EQ(parsed("0.1GiB"), 107374182); /* 107374182.4: never more than was said */
    CHECK_EQ(parsed("0.3KB"), 300);
    CHECK_EQ(parsed("1.999999999999999999999999999999KB"), 1999);
    CHECK_EQ(parsed("1.9999B"), 1);
    CHECK_EQ(parsed("0.123456789012345678 EB"), UINT64_C(123456789012345678));
    CHECK_EQ(parsed("15.999999999999999999999999999999999999EiB"), UINT64_MAX);
    CHECK_EQ(parsed("0.50000000000000000000000EiB"), EIB / 2);
    /* 2^53 + 1: the first integer that a double cannot hold. */
    CHECK_EQ(parsed("9007199254740.993 KB"), UINT64_C(9007199254740993));
}

static void
test_parse_refuses(void)
{
    check_refused("", "is not a size");
    check_refused("GiB", "is not a size");
    check_refused("-1GiB", "is not a size");
    check_refused("+1", "is not a size");
    check_refused(" 1", "is not a size");
    check_refused(".5GiB", "is not a size");
    check_refused("1.GiB", "no digits behind its point");
    check_refused("1.5", "needs a unit");
    check_refused("1 ", "none of the units");
    check_refused("1,5GiB", "none of the units");
    check_refused("1e3", "none of the units");
    check_refused("1GiB ", "none of the units");
    check_refused("1Gb", "none of the units");
    check_refused("1gib", "none of the units");
    check_refused("1GiBx", "none of the units");
    check_refused("90%", "none of the units");
    check_refused("inf", "is not a size");
    check_refused("0x10", "none of the units");
    check_refused("1.5.5GiB", "none of the units");
    check_refused("1/", "none of the units");
    check_refused("1:", "none of the units");
}

static void
test_parse_overflow(void)
{
    check_refused("18446744073709551616", "larger than 2^64");
    check_refused("99999999999999999999999", "larger than 2^64");
    check_refused("16EiB", "larger than 2^64");
    check_refused("18.45EB", "larger than 2^64");
    check_refused("16384 PiB", "larger than 2^64");
    CHECK_EQ(parsed("18.446744073709551615EB"), UINT64_MAX);
    check_refused("18.446744073709551616EB", "larger than 2^64");
}

static void
test_parse_arguments(void)
{
    berth_error error;
    uint64_t bytes = 5;

    CHECK_EQ(berth_size_parse("1", NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`out_bytes` is NULL");
    CHECK_EQ(berth_size_parse(NULL, &bytes, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`text` is NULL");
    CHECK_EQ(bytes, 0);
    CHECK_EQ(berth_size_parse("x", &bytes, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_size_parse("9", &bytes, NULL), BERTH_OK);
    CHECK_EQ(bytes, 9);
}

/* Raw bytes of an argument never reach a message. */
static void
test_parse_escapes(void)
{
    berth_error error;
    uint64_t bytes;

    berth_size_parse("\x1b[31m5\n", &bytes, &error);
    CHECK(strchr(error.message, '\x1b') == NULL);
    CHECK(strchr(error.message, '\n') == NULL);
}

/* What is printed reads back within half a hundredth of the unit. */
static void
test_round_trip(void)
{
    for (unsigned shift = 0; shift < 64; shift++) {
        const uint64_t bytes = (UINT64_C(1) << shift) + (UINT64_C(1) << shift) / 7;
        char text[BERTH_SIZE_CAPACITY];
        uint64_t back;

        berth_size_format(bytes, text);
        back = parsed(text);
        CHECK_LE(back > bytes ? back - bytes : bytes - back, bytes / 200 + 1);
    }
}

static void
test_locale(void)
{
    char text[BERTH_SIZE_CAPACITY];

    if (!comma_is_set())
        T_SKIP("no locale with a decimal comma can be had");
    CHECK_EQ(parsed("1.5 GiB"), 3 * GIB / 2);
    CHECK_STR(berth_size_format(3 * GIB / 2, text), "1.50 GiB");
    setlocale(LC_NUMERIC, "C");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_format);
    T_RUN(test_format_rounds);
    T_RUN(test_parse_units);
    T_RUN(test_parse_fractions);
    T_RUN(test_parse_refuses);
    T_RUN(test_parse_overflow);
    T_RUN(test_parse_arguments);
    T_RUN(test_parse_escapes);
    T_RUN(test_round_trip);
    T_RUN(test_locale);
    T_MAIN_END;
}
