/* SPDX-License-Identifier: Apache-2.0 */
/* How states lie in memory: what pages are made of covers them, each byte once. */
#include <string.h>

#include "placement/states.h"
#include "placement/train.h"
#include "tests/t.h"

#define BYTES_MAX 65536u

static uint8_t used[BYTES_MAX];

static void
use(uint64_t first, uint64_t bytes, uint64_t alignment)
{
    CHECK_EQ(first % alignment, 0);
    if (!CHECK_LE(first + bytes, BYTES_MAX))
        return;
    for (uint64_t i = first; i < first + bytes; i++)
        used[i]++;
}

static void
use_page(const berthi_states *s, const berthi_states_page *page)
{
    const uint64_t blocks = (page->elements + 255) / 256;

    CHECK_EQ(page->offset % 4, 0);
    if (s->has_master)
        use(page->offset + page->master, page->elements * 4, 4);
    else
        CHECK_EQ(page->master, BERTHI_STATES_NOTHING);
    for (uint32_t k = 0; k < BERTHI_STATES_MAX; k++) {
        const bool is_there = k < s->count;

        if (is_there && s->bits == 32) {
            use(page->offset + page->values[k], page->elements * 4, 4);
        } else if (is_there) {
            use(page->offset + page->absmax[k], blocks * 4, 4);
            use(page->offset + page->codes[k], page->elements, 1);
        }
        CHECK_EQ(page->values[k] == BERTHI_STATES_NOTHING, !is_there || s->bits == 8);
        CHECK_EQ(page->absmax[k] == BERTHI_STATES_NOTHING, !is_there || s->bits == 32);
        CHECK_EQ(page->codes[k] == BERTHI_STATES_NOTHING, !is_there || s->bits == 32);
    }
}

static void
check_layout(const berthi_states *s)
{
    const uint64_t bytes = berthi_states_bytes(s);
    uint64_t elements = 0;
    uint64_t end = 0;
    uint64_t largest = 0;

    memset(used, 0, sizeof used);
    for (uint64_t i = 0; i < berthi_states_page_count(s); i++) {
        const berthi_states_page page = berthi_states_get_page(s, i);

        CHECK_EQ(page.first, elements);
        CHECK_EQ(page.offset, end);
        use_page(s, &page);
        elements += page.elements;
        end += page.bytes;
        if (page.bytes > largest)
            largest = page.bytes;
    }
    CHECK_EQ(elements, s->elements);
    CHECK_EQ(end, bytes);
    CHECK_EQ(largest, berthi_states_page_bytes(s));
    for (uint64_t i = 0; i < bytes; i++)
        CHECK_EQ(used[i], 1);
    for (uint64_t i = bytes; i < BYTES_MAX; i++)
        CHECK_EQ(used[i], 0);
}

static void
test_pages_cover_states(void)
{
    static const uint64_t counts[] = { 1,   2,    3,    255,  256,  257,  511,
                                       512, 1023, 1024, 1025, 2047, 2048, 3001 };

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint32_t states = 1; states <= BERTHI_STATES_MAX; states++)
            for (int32_t bits = 8; bits <= 32; bits += 24)
                for (int master = 0; master < 2; master++)
                    for (uint64_t page = 256; page <= 2048; page *= 2)
                        check_layout(&(berthi_states){ .elements = counts[i],
                                                       .page_elements = page,
                                                       .count = states,
                                                       .bits = bits,
                                                       .has_master = master != 0 });
}

static void
test_sizes_have_an_end(void)
{
    berthi_states s = { .elements = UINT64_MAX / 2,
                        .page_elements = BERTHI_STATES_PAGE,
                        .count = 2,
                        .bits = 8 };

    CHECK_EQ(berthi_states_bytes(&s), UINT64_MAX);
    s.bits = 32;
    CHECK_EQ(berthi_states_bytes(&s), UINT64_MAX);
    s.elements = UINT64_MAX / 9;
    CHECK_EQ(berthi_states_bytes(&s), UINT64_MAX / 9 * 8);
    s.has_master = true;
    CHECK_EQ(berthi_states_bytes(&s), UINT64_MAX);
    s.elements = UINT64_MAX;
    s.bits = 8;
    s.count = 1;
    s.has_master = false;
    CHECK_EQ(berthi_states_bytes(&s), UINT64_MAX);
}

/* What `berth estimate --train` tells is what an optimizer takes. */
static void
test_equal_estimates(void)
{
    const berthi_optimizer *const small = berthi_optimizer_find("adamw_8bit");
    const berthi_optimizer *const large = berthi_optimizer_find("adamw_torch");

    for (uint64_t n = 1; n < 20000; n += 37) {
        berthi_states s = { .elements = n,
                            .page_elements = BERTHI_STATES_PAGE,
                            .count = 2,
                            .bits = n < BERTHI_STATES_LEAST_8BIT ? 32 : 8 };
        berthi_optimizer_bytes sums = { 0, 0, 0 };

        berthi_optimizer_add(small, n, 1, 1, 4, &sums);
        CHECK_EQ(sums.device, berthi_states_bytes(&s));
        s.bits = 32;
        sums.device = 0;
        berthi_optimizer_add(large, n, 1, 1, 4, &sums);
        CHECK_EQ(sums.device, berthi_states_bytes(&s));
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_pages_cover_states);
    T_RUN(test_sizes_have_an_end);
    T_RUN(test_equal_estimates);
    T_MAIN_END;
}
