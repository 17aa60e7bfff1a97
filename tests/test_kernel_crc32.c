/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_crc32.c - folded stretches against the crc32 bit by bit. */
#include <string.h>

#include "kernels/crc32.h"
#include "tests/bitwise.h"
#include "tests/t.h"

enum { POOL = 5000 };

static uint8_t pool[POOL];

static void
fill_pool(void)
{
    uint64_t state = 7;

    for (size_t i = 0; i < POOL; i++) {
        state = state * UINT64_C(6364136223846793005) + 1;
        pool[i] = (uint8_t)(state >> 40);
    }
}

/* Every remainder of a turn, some turns, any begin of the crc and of the bytes. */
static void
test_folded_stretches(void)
{
    if (!berthi_crc32_can_fold())
        T_SKIP("this processor has no such products");
    fill_pool();
    for (size_t size = BERTHI_CRC32_LEAST; size < 1800; size++) {
        const uint32_t start = size % 3 == 0 ? 0 : (uint32_t)(size * 2654435761u);
        const uint8_t *const from = pool + size % 71;
        uint8_t rest[BERTHI_CRC32_REST + 1];
        size_t folded;

        rest[BERTHI_CRC32_REST] = 0xA5;
        folded = berthi_crc32_fold(start, from, size, rest);
        CHECK_EQ(folded, size / 256 * 256);
        CHECK_EQ(bitwise_crc32(bitwise_crc32(UINT32_MAX, rest, BERTHI_CRC32_REST), from + folded,
                               size - folded),
                 bitwise_crc32(start, from, size));
        CHECK_EQ(rest[BERTHI_CRC32_REST], 0xA5);
    }
}

/* Each bit of two turns, alone: every lane of every register. */
static void
test_every_bit_counts(void)
{
    uint8_t bytes[BERTHI_CRC32_LEAST];
    uint8_t rest[BERTHI_CRC32_REST];

    if (!berthi_crc32_can_fold())
        T_SKIP("this processor has no such products");
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        memset(bytes, 0, sizeof bytes);
        bytes[bit / 8] = (uint8_t)(1u << bit % 8);
        CHECK_EQ(berthi_crc32_fold(0, bytes, sizeof bytes, rest), sizeof bytes);
        CHECK_EQ(bitwise_crc32(UINT32_MAX, rest, sizeof rest),
                 bitwise_crc32(0, bytes, sizeof bytes));
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_folded_stretches);
    T_RUN(test_every_bit_counts);
    T_MAIN_END;
}
