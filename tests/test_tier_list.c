/* SPDX-License-Identifier: Apache-2.0 */
/* test_tier_list.c - tiers by name, and lists of them with bytes. */
#include "placement/tier.h"

#include <stdio.h>
#include <string.h>

#include "tests/t.h"

#define GIB (UINT64_C(1) << 30)

static void
check_name(const char *text, int32_t kind, uint32_t number, const char *printed)
{
    berthi_tier tier = { 7, 7 };
    char name[BERTHI_TIER_NAME];

    if (!CHECK(berthi_tier_can_parse(text, strlen(text), &tier)))
        T_NOTE("\"%s\"", text);
    CHECK_EQ(tier.kind, kind);
    CHECK_EQ(tier.number, number);
    CHECK_STR(berthi_tier_name(&tier, name), printed);
    CHECK(berthi_tier_name(&tier, name) == name);
}

static void
test_names(void)
{
    check_name("0", BERTHI_TIER_GPU, 0, "cuda:0");
    check_name("7", BERTHI_TIER_GPU, 7, "cuda:7");
    check_name("19", BERTHI_TIER_GPU, 19, "cuda:19");
    check_name("cuda", BERTHI_TIER_GPU, 0, "cuda:0");
    check_name("cuda:0", BERTHI_TIER_GPU, 0, "cuda:0");
    check_name("cuda:63", BERTHI_TIER_GPU, 63, "cuda:63");
    check_name("cuda:4294967295", BERTHI_TIER_GPU, UINT32_MAX, "cuda:4294967295");
    check_name("cpu", BERTHI_TIER_CPU, 0, "cpu");
    check_name("disk", BERTHI_TIER_DISK, 0, "disk");
}

static void
test_no_names(void)
{
    static const char *const texts[] = {
        "",      "cuda:",   "cuda0", "cud",  "cpu:0",      "CPU",   "disk ",
        "-1",    "+1",      "1.0",   "0x1",  "4294967296", "gpu:0", "cuda:4294967296",
        "/",     ":",       "mps",   " 0",   "99999999999999999999999",
        "cpux",  "cuda:-1", "cuda;0"
    };
    berthi_tier tier;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!CHECK(!berthi_tier_can_parse(texts[i], strlen(texts[i]), &tier)))
            T_NOTE("\"%s\"", texts[i]);
    CHECK(berthi_tier_can_parse("cpu=1", 3, &tier)); /* the length counts */
    CHECK(berthi_tier_can_parse("cuda:12", 6, &tier));
    CHECK_EQ(tier.number, 1);
    CHECK(!berthi_tier_can_parse("cuda:12", 5, &tier));
}

static int
compared(int32_t kind, uint32_t number, int32_t other_kind, uint32_t other_number)
{
    const berthi_tier a = { kind, number };
    const berthi_tier b = { other_kind, other_number };

    CHECK_EQ(berthi_tier_compare(&a, &b), -berthi_tier_compare(&b, &a));
    return berthi_tier_compare(&a, &b);
}

static void
test_compare(void)
{
    CHECK_EQ(compared(BERTHI_TIER_GPU, 0, BERTHI_TIER_GPU, 0), 0);
    CHECK_LT(compared(BERTHI_TIER_GPU, 0, BERTHI_TIER_GPU, 1), 0);
    CHECK_GT(compared(BERTHI_TIER_GPU, UINT32_MAX, BERTHI_TIER_GPU, 1), 0);
    CHECK_LT(compared(BERTHI_TIER_GPU, 9, BERTHI_TIER_CPU, 0), 0);
    CHECK_LT(compared(BERTHI_TIER_CPU, 0, BERTHI_TIER_DISK, 0), 0);
    CHECK_LT(compared(BERTHI_TIER_GPU, 9, BERTHI_TIER_DISK, 0), 0);
    CHECK_EQ(compared(BERTHI_TIER_DISK, 0, BERTHI_TIER_DISK, 0), 0);
}

static void
check_item(const berthi_tier_list *list, uint32_t i, const char *name, uint64_t bytes,
           uint64_t share)
{
    char text[BERTHI_TIER_NAME];

    T_REQUIRE(i < list->count);
    CHECK_STR(berthi_tier_name(&list->items[i].tier, text), name);
    CHECK_EQ(list->items[i].bytes, bytes);
    CHECK_EQ(list->items[i].share, share);
    CHECK(berthi_tier_list_find(list, &list->items[i].tier) == &list->items[i]);
}

static void
test_parse(void)
{
    const berthi_tier absent = { BERTHI_TIER_GPU, 3 };
    berthi_tier_list list;
    berth_error error;

    T_REQUIRE(berthi_tier_list_parse("disk=inf,cuda:12=5000,0=20GiB,cpu=64GiB,1=90%",
                                     &list, &error) == BERTH_OK);
    CHECK_EQ(list.count, 5);
    check_item(&list, 0, "cuda:0", 20 * GIB, 0);
    check_item(&list, 1, "cuda:1", 0, 900000000);
    check_item(&list, 2, "cuda:12", 5000, 0);
    check_item(&list, 3, "cpu", 64 * GIB, 0);
    check_item(&list, 4, "disk", UINT64_MAX, 0);
    CHECK(berthi_tier_list_find(&list, &absent) == NULL);
    CHECK_EQ(berthi_tier_list_parse(" cuda = 1.5 GiB ,  cpu=0", &list, NULL), BERTH_OK);
    CHECK_EQ(list.count, 2);
    check_item(&list, 0, "cuda:0", 3 * GIB / 2, 0);
    check_item(&list, 1, "cpu", 0, 0);
}

/* The share of "cpu=TEXT". */
static uint64_t
share_of(const char *text)
{
    char item[100];
    berthi_tier_list list;

    snprintf(item, sizeof item, "cpu=%s", text);
    CHECK_EQ(berthi_tier_list_parse(item, &list, NULL), BERTH_OK);
    CHECK_EQ(list.count, 1);
    CHECK_EQ(list.items[0].bytes, 0);
    return list.items[0].share;
}

static void
test_shares(void)
{
    CHECK_EQ(share_of("0%"), 0);
    CHECK_EQ(share_of("1%"), 10000000);
    CHECK_EQ(share_of("90%"), 900000000);
    CHECK_EQ(share_of("100%"), 1000000000);
    CHECK_EQ(share_of("100.0%"), 1000000000);
    CHECK_EQ(share_of("0100%"), 1000000000);
    CHECK_EQ(share_of("12.5%"), 125000000);
    CHECK_EQ(share_of("0.0000001%"), 1);
    CHECK_EQ(share_of("33.33333339%"), 333333333); /* cut off, never more */
    CHECK_EQ(share_of("99.99999999999999%"), 999999999);
}

static void
check_refused(const char *text, const char *item, const char *why)
{
    berthi_tier_list list;
    berth_error error;

    if (!CHECK_EQ(berthi_tier_list_parse(text, &list, &error), BERTH_EINVAL))
        T_NOTE("\"%s\"", text);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(error.message, item);
    CHECK_CONTAINS(error.message, why);
    CHECK_EQ(list.count, 0);
    CHECK_EQ(list.items[0].bytes, 0);
}

static void
test_refuses(void)
{
    check_refused("", "\"\"", "not written as device=size");
    check_refused("0=1,", "\"\"", "not written as device=size");
    check_refused("0=1GiB,cpu", "\"cpu\"", "not written as device=size");
    check_refused("gpu=1GiB", "\"gpu=1GiB\"", "no device before its size");
    check_refused("=1GiB", "\"=1GiB\"", "no device before its size");
    check_refused("cpu=1GiB,0=", "\"0=\"", "is not a size");
    check_refused("cpu=-1", "\"cpu=-1\"", "\"-1\" is not a size");
    check_refused("cpu=1Gb", "\"cpu=1Gb\"", "none of the units");
    check_refused("cpu=16EiB", "\"cpu=16EiB\"", "larger than 2^64");
    check_refused("cpu=infinite", "\"cpu=infinite\"", "is not a size");
    check_refused("0=1,cuda=2", "\"cuda=2\"", "named before");
    check_refused("cpu=1,0=1,cpu=inf", "\"cpu=inf\"", "named before");
    check_refused("cpu=%", "\"cpu=%\"", "not a share");
    check_refused("cpu=.5%", "\"cpu=.5%\"", "not a share");
    check_refused("cpu=5.%", "\"cpu=5.%\"", "not a share");
    check_refused("cpu=5 %", "\"cpu=5 %\"", "not a share");
    check_refused("cpu=-5%", "\"cpu=-5%\"", "not a share");
    check_refused("cpu=5:%", "\"cpu=5:%\"", "not a share");
    check_refused("cpu=5.1/%", "\"cpu=5.1/%\"", "not a share");
    check_refused("cpu=101%", "\"cpu=101%\"", "more than all of it");
    check_refused("cpu=100.0000001%", "\"cpu=100.0000001%\"", "more than all of it");
    check_refused("cpu=99999999999999999999%", "99999%", "more than all of it");
    check_refused("c\npu=1", "\"c\\x0apu=1\"", "no device");
}

/* 64 characters are read, 65 are too many. */
static void
test_long_sizes(void)
{
    char text[100];
    berthi_tier_list list;

    snprintf(text, sizeof text, "cpu=%064u", 17u);
    CHECK_EQ(berthi_tier_list_parse(text, &list, NULL), BERTH_OK);
    CHECK_EQ(list.items[0].bytes, 17);
    snprintf(text, sizeof text, "cpu=%065u", 17u);
    check_refused(text, "\"cpu=000", "too many characters");
}

/* GPUs leave two places for cpu and disk. */
static void
test_full(void)
{
    const berthi_tier_bytes more = { { BERTHI_TIER_GPU, 1000 }, 1, 0 };
    char text[1000];
    size_t length = 0;
    berthi_tier_list list = { .count = 0 };

    for (uint32_t i = 0; i < 64; i++) {
        const berthi_tier_bytes item = { { BERTHI_TIER_GPU, 100 - i }, i, 0 };

        CHECK(berthi_tier_list_can_add(&list, &item));
        CHECK(!berthi_tier_list_can_add(&list, &item));
        length += (size_t)snprintf(text + length, sizeof text - length, "%u=%u,", i, i);
    }
    CHECK(!berthi_tier_list_can_add(&list, &more));
    CHECK_EQ(list.count, 64);
    for (uint32_t i = 0; i < 64; i++)
        CHECK_EQ(list.items[i].tier.number, 37 + i);
    for (int32_t kind = BERTHI_TIER_DISK; kind > BERTHI_TIER_GPU; kind--) {
        const berthi_tier_bytes item = { { kind, 0 }, 5, 0 };

        CHECK(berthi_tier_list_can_add(&list, &item));
        CHECK(!berthi_tier_list_can_add(&list, &more));
    }
    CHECK_EQ(list.count, BERTHI_TIER_LIMIT);
    CHECK_EQ(list.items[64].tier.kind, BERTHI_TIER_CPU);
    CHECK_EQ(list.items[65].tier.kind, BERTHI_TIER_DISK);

    snprintf(text + length, sizeof text - length, "disk=1,cpu=2");
    CHECK_EQ(berthi_tier_list_parse(text, &list, NULL), BERTH_OK);
    CHECK_EQ(list.count, BERTHI_TIER_LIMIT);
    snprintf(text + length, sizeof text - length, "64=1");
    check_refused(text, "\"64=1\"", "a GPU too many");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_names);
    T_RUN(test_no_names);
    T_RUN(test_compare);
    T_RUN(test_parse);
    T_RUN(test_shares);
    T_RUN(test_refuses);
    T_RUN(test_long_sizes);
    T_RUN(test_full);
    T_MAIN_END;
}
