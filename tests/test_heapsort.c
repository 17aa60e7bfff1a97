/* SPDX-License-Identifier: Apache-2.0 */
/* test_heapsort.c - lists of all small lengths, in every kind of order. */
#include <stdlib.h>
#include <string.h>

#include "quant/heapsort.h"
#include "tests/random.h"
#include "tests/t.h"

#define MOST 70u

/* As large as an element may be. */
typedef struct item {
    uint64_t key;
    uint64_t behind[3]; /* made of the key: what is moved is moved as a whole */
} item;

_Static_assert(sizeof(item) == BERTHI_HEAPSORT_ELEMENT, "no larger one is sorted");

static uint64_t comparisons;

static int
compare(const void *a, const void *b)
{
    const uint64_t left = ((const item *)a)->key;
    const uint64_t right = ((const item *)b)->key;

    comparisons++;
    return left < right ? -1 : left > right;
}

static int
compare_bytes(const void *a, const void *b)
{
    return *(const unsigned char *)a - *(const unsigned char *)b;
}

static item
item_of(uint64_t key)
{
    return (item){ key, { key + 1, key * 3, ~key } };
}

static void
check(item *items, uint64_t count)
{
    item expected[MOST];

    memcpy(expected, items, count * sizeof *items);
    qsort(expected, count, sizeof *expected, compare);
    comparisons = 0;
    berthi_heapsort(items, count, sizeof *items, compare);
    CHECK_MEM(items, expected, count * sizeof *items);
    CHECK_LE(comparisons, 2 * 7 * count); /* 2^7 are more than there are */
}

static void
test_orders(void)
{
    item items[MOST];

    for (uint64_t count = 0; count <= MOST; count++) {
        for (uint64_t i = 0; i < count; i++)
            items[i] = item_of(i);
        check(items, count);
        for (uint64_t i = 0; i < count; i++)
            items[i] = item_of(count - i);
        check(items, count);
        for (uint64_t i = 0; i < count; i++)
            items[i] = item_of(7);
        check(items, count);
    }
}

static void
test_random(void)
{
    uint64_t state = 20;
    item items[MOST];

    for (uint32_t round = 0; round < 2000; round++) {
        const uint64_t count = random_next(&state) % (MOST + 1);
        const uint64_t keys = 1 + random_next(&state) % (2 * MOST); /* few: many are equal */

        for (uint64_t i = 0; i < count; i++)
            items[i] = item_of(random_next(&state) % keys);
        check(items, count);
    }
}

static void
test_small_elements(void)
{
    char bytes[] = "the quick brown fox";

    berthi_heapsort(bytes, sizeof bytes - 1, 1, compare_bytes);
    CHECK_STR(bytes, "   bcefhiknooqrtuwx");
    berthi_heapsort(NULL, 0, 1, compare_bytes);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_orders);
    T_RUN(test_random);
    T_RUN(test_small_elements);
    T_MAIN_END;
}
