/* SPDX-License-Identifier: Apache-2.0 */
/* test_sort.c - order, stability, cost in comparisons, memory, moving elements. */
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "loader/sort.h"
#include "tests/fault.h"
#include "tests/t.h"

/* keys[i] is what item i stands for. */
typedef struct subject {
    berth_context *context;
    uint32_t *keys;
    uint64_t count;
    uint64_t comparisons;
    bool has_twins;
    bool has_texts;      /* keys stand for texts, highest byte first, */
    uint64_t all_shared; /* behind so many bytes that are the same    */
} subject;

static uint64_t
count_shared(const subject *s, uint32_t a, uint32_t b)
{
    const uint32_t difference = s->keys[a] ^ s->keys[b];

    if (!s->has_texts)
        return 0;
    return s->all_shared
           + (difference == 0 ? 4 : (unsigned)__builtin_clz(difference) / 8);
}

static int
compare(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    subject *const s = user;

    s->comparisons++;
    s->has_twins = s->has_twins || s->keys[a] == s->keys[b];
    CHECK_LE(*shared, count_shared(s, a, b));
    *shared = count_shared(s, a, b);
    return (s->keys[a] > s->keys[b]) - (s->keys[a] < s->keys[b]);
}

static uint32_t
next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Sorts 0 to count-1 by the keys, checks order and stability; what it cost. */
static uint64_t
check_sort(subject *s)
{
    uint32_t *const items = malloc((s->count + 1) * sizeof *items);
    uint8_t *const seen = calloc(s->count + 1, 1);
    berth_memory_summary memory;
    bool has_twins = false;

    items[s->count] = 12345; /* not to be touched */
    berthi_sort_number(items, s->count);
    s->comparisons = 0;
    s->has_twins = false;
    CHECK(berthi_sort_arrange(s->context, items, s->count, compare, s));
    CHECK_EQ(items[s->count], 12345u);
    for (uint64_t i = 0; i < s->count; i++) {
        seen[items[i]]++;
        if (i == 0)
            continue;
        has_twins = has_twins || s->keys[items[i]] == s->keys[items[i - 1]];
        if (s->keys[items[i]] < s->keys[items[i - 1]]
            || (s->keys[items[i]] == s->keys[items[i - 1]] && items[i] < items[i - 1])) {
            CHECK(false);
            break;
        }
    }
    CHECK(memchr(seen, 0, s->count) == NULL);
    /* Neighbours in the end have met: that is how duplicates are found. */
    CHECK_EQ(s->has_twins, has_twins);
    berth_context_memory(s->context, &memory);
    CHECK_EQ(memory.current_bytes, 0u);
    free(seen);
    free(items);
    return s->comparisons;
}

static subject
subject_create(uint64_t count)
{
    subject s = { .count = count, .keys = malloc((count + 1) * sizeof *s.keys) };

    CHECK_EQ(berth_context_create(NULL, &s.context, NULL), BERTH_OK);
    return s;
}

static void
subject_destroy(subject *s)
{
    berth_context_destroy(s->context);
    free(s->keys);
}

/* All arrangements of up to 7 keys out of 0..3, with and without equal ones. */
static void
test_all_small(void)
{
    for (uint64_t count = 0; count <= 7; count++) {
        subject s = subject_create(count);

        for (uint32_t code = 0; code < 1u << 2 * count; code++) {
            for (uint64_t i = 0; i < count; i++)
                s.keys[i] = code >> 2 * i & 3;
            check_sort(&s);
        }
        subject_destroy(&s);
    }
}

static void
test_random(void)
{
    uint64_t random = 7;

    for (uint64_t count = 1; count < 3000; count = count * 3 / 2 + 1)
        for (uint32_t range = 2; range < 1u << 20; range *= 32) {
            subject s = subject_create(count);

            for (uint64_t i = 0; i < count; i++)
                s.keys[i] = next_random(&random) % range;
            check_sort(&s);
            subject_destroy(&s);
        }
}

/* Texts are compared less often, and end in the same order. */
static void
test_texts(void)
{
    static const uint64_t all_shared[] = { 0, 1, 250, 251, 252, 255, 256, 1000 };
    const uint64_t count = 5000;
    uint64_t random = 11;
    subject s = subject_create(count);

    for (uint32_t range = 2; range != 0; range *= 8) {
        uint64_t without;

        for (uint64_t i = 0; i < count; i++)
            s.keys[i] = next_random(&random) % range;
        s.has_texts = false;
        without = check_sort(&s);
        s.has_texts = true;
        for (size_t i = 0; i < sizeof all_shared / sizeof all_shared[0]; i++) {
            s.all_shared = all_shared[i];
            CHECK_LE(check_sort(&s), without);
            if (all_shared[i] > 255)
                CHECK_EQ(s.comparisons, without);
        }
    }
    subject_destroy(&s);
}

/*
 * Names of layers and experts, 10 behind 1 and not behind 9: those of a layer
 * share what no other has, so that hardly anything but the first look is left.
 */
static void
test_texts_that_begin_alike(void)
{
    const uint64_t count = 1 << 16;
    subject s = subject_create(count);

    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = (uint32_t)((i >> 8 & 0xff) * 167 % 256 << 24 | (i & 0xff) * 99 % 256);
    s.has_texts = true;
    CHECK_LE(check_sort(&s), 9 * count);
    s.has_texts = false;
    CHECK_GE(check_sort(&s), 12 * count);
    subject_destroy(&s);
}

static uint64_t
peak_bytes(const subject *s)
{
    berth_memory_summary memory;

    berth_context_memory(s->context, &memory);
    return memory.peak_bytes;
}

/* In order, in reverse, all the same: one pass, a byte an item. */
static void
test_one_stretch(void)
{
    const uint64_t count = 10000;
    subject s = subject_create(count);

    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = (uint32_t)i;
    CHECK_EQ(check_sort(&s), count - 1);
    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = (uint32_t)(count - i);
    CHECK_EQ(check_sort(&s), count - 1);
    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = 5;
    CHECK_EQ(check_sort(&s), count - 1);
    CHECK_EQ(peak_bytes(&s), count);
    subject_destroy(&s);
}

static uint64_t
log2_ceiling(uint64_t count)
{
    uint64_t bits = 0;

    while (UINT64_C(1) << bits < count)
        bits++;
    return bits;
}

/* r ordered stretches: n for finding them, n log2 r for merging, r log2 n for borders. */
static void
check_stretches(uint64_t count, uint64_t stretches, uint64_t levels)
{
    const uint64_t each = count / stretches;
    subject s = subject_create(count);

    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = (uint32_t)(i % each * 1000 + i / each * 7 % 1000);
    CHECK_LE(check_sort(&s), count * (levels + 1) + stretches * log2_ceiling(count));
    CHECK_EQ(peak_bytes(&s), 6 * count);
    subject_destroy(&s);
}

/*
 * Numbered stretches that overlap a little at their borders, as those of experts
 * do: what lies before a border is not looked at again.
 */
static void
test_overlapping_borders(void)
{
    const uint64_t count = 1 << 16;
    subject s = subject_create(count);

    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = (uint32_t)(i / 64 * 60 + i % 64);
    CHECK_LE(check_sort(&s), 2 * count);
    subject_destroy(&s);
}

static void
test_few_stretches(void)
{
    check_stretches(12000, 2, 1);
    check_stretches(12000, 3, 2);
    check_stretches(12000, 4, 2);
    check_stretches(12000, 16, 4);
    check_stretches(12000, 100, 7);
}

/* Never more than n log2 n + 2n comparisons, whatever the lengths of stretches. */
static void
test_cost_of_bad_patterns(void)
{
    const uint64_t count = 1 << 16;
    uint64_t random = 1;
    subject s = subject_create(count);

    for (int pattern = 0; pattern < 6; pattern++) {
        uint64_t length = 1;
        uint64_t left = 1;

        for (uint64_t i = 0; i < count; i++) {
            const uint32_t noise = next_random(&random);

            if (--left == 0) {
                /* stretches of 1, 2, 3, ...; doubling; shrinking; random; zigzag */
                length = pattern == 0   ? length + 1
                         : pattern == 1 ? length * 2
                         : pattern == 2 ? (count - i) / 2 + 1
                         : pattern == 3 ? noise % 500 + 1
                                        : 1;
                left = length;
            }
            s.keys[i] = pattern == 4   ? noise
                        : pattern == 5 ? (uint32_t)(i % 2 ? i : count - i)
                                       : (uint32_t)((length - left) * 4096 + noise % 4096);
        }
        CHECK_LE(check_sort(&s), count * (log2_ceiling(count) + 2));
    }
    subject_destroy(&s);
}

/* One long stretch beside many short ones is merged last, once. */
static void
test_long_stretch_is_moved_once(void)
{
    const uint64_t count = 1 << 16;
    const uint64_t tail = 1 << 10;
    uint64_t random = 3;
    subject s = subject_create(count);

    for (uint64_t i = 0; i < count; i++)
        s.keys[i] = i < count - tail ? (uint32_t)i : next_random(&random) % (uint32_t)count;
    CHECK_LE(check_sort(&s), 2 * count + tail * 12);
    subject_destroy(&s);
}

/* Items need not be 0, 1, 2: metadata sorts places in a text. */
static void
test_items_of_any_value(void)
{
    uint32_t items[] = { 30, 10, 20, 0 };
    subject s = subject_create(31);

    for (uint32_t i = 0; i <= 30; i++)
        s.keys[i] = 100 - i;
    CHECK(berthi_sort_arrange(s.context, items, 4, compare, &s));
    CHECK_EQ(items[0], 30u);
    CHECK_EQ(items[1], 20u);
    CHECK_EQ(items[2], 10u);
    CHECK_EQ(items[3], 0u);
    subject_destroy(&s);
}

static berth_status
sort_with_faults(void *user, berth_context *context, berth_error *error)
{
    uint32_t keys[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    uint32_t items[8];
    subject s = { .context = context, .keys = keys, .count = 8 };

    (void)user;
    berthi_sort_number(items, 8);
    if (!berthi_sort_arrange(context, items, 8, compare, &s))
        return berthi_fail_memory(error, "sorting");
    CHECK_EQ(items[0], 1u);
    return BERTH_OK;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("sort", sort_with_faults, NULL);

    CHECK_EQ(counts.memory, 4u);
    CHECK_EQ(counts.survived, 0u);
}

/* ------------------------------------------------------------------- moving */

static void
check_apply(size_t bytes, uint64_t count, uint64_t step)
{
    char *const elements = malloc(bytes * count + 1);
    uint32_t *const order = malloc((count + 1) * sizeof *order);

    for (uint64_t i = 0; i < count; i++) {
        memset(elements + i * bytes, (int)(i % 251), bytes);
        order[i] = (uint32_t)((i * step + 1) % count);
    }
    elements[bytes * count] = 77;
    berthi_sort_apply(elements, bytes, order, count);
    for (uint64_t i = 0; i < count; i++) {
        const int expected = (int)((i * step + 1) % count % 251);

        CHECK_EQ(order[i], i);
        CHECK_EQ((unsigned char)elements[i * bytes], expected);
        CHECK_EQ((unsigned char)elements[i * bytes + bytes - 1], expected);
    }
    CHECK_EQ(elements[bytes * count], 77);
    free(order);
    free(elements);
}

static void
test_apply(void)
{
    check_apply(1, 1, 1);
    check_apply(1, 2, 1);
    check_apply(4, 5, 1);  /* one cycle */
    check_apply(16, 7, 3); /* several */
    check_apply(40, 101, 17);
    check_apply(64, 9, 2);
    berthi_sort_apply(NULL, 8, NULL, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_all_small);
    T_RUN(test_random);
    T_RUN(test_texts);
    T_RUN(test_texts_that_begin_alike);
    T_RUN(test_one_stretch);
    T_RUN(test_few_stretches);
    T_RUN(test_overlapping_borders);
    T_RUN(test_cost_of_bad_patterns);
    T_RUN(test_long_stretch_is_moved_once);
    T_RUN(test_items_of_any_value);
    T_RUN(test_faults);
    T_RUN(test_apply);
    T_MAIN_END;
}
