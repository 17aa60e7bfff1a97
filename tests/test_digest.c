/* SPDX-License-Identifier: Apache-2.0 */
/* test_digest.c - crc32 against a bitwise one, joined parts against the whole. */
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include "kernels/digest.h"
#include "tests/bitwise.h"
#include "tests/random.h"
#include "tests/t.h"

enum { POOL = 1 << 16 };

static uint8_t pool[POOL];
static uint64_t seed = 88172645463325252u;

static void fill_pool(void)
{
    for (size_t i = 0; i < POOL; i++)
        pool[i] = (uint8_t)(random_next(&seed) >> 32);
}

static void test_known_values(void)
{
    CHECK_EQ(berthi_digest_crc32(0, NULL, 0), 0);
    CHECK_EQ(berthi_digest_crc32(0x12345678u, NULL, 0), 0x12345678u);
    CHECK_EQ(berthi_digest_crc32(0, "123456789", 9), 0xCBF43926u);
    CHECK_EQ(berthi_digest_crc32(0, "a", 1), 0xE8B7BE43u);
    CHECK_EQ(berthi_digest_crc32(0, "\0\0\0\0", 4), 0x2144DF1Cu);
}

static void test_every_small_size_and_alignment(void)
{
    for (size_t size = 0; size <= 300; size++)
        for (size_t at = 0; at < 17; at += 1 + size % 3) {
            const uint32_t start = size % 2 == 0 ? 0 : (uint32_t)random_next(&seed);

            if (berthi_digest_crc32(start, pool + at, size)
                != bitwise_crc32(start, pool + at, size)) {
                CHECK_EQ(size, at); /* says which */
                return;
            }
        }
    CHECK_EQ(berthi_digest_crc32(0, pool, POOL), bitwise_crc32(0, pool, POOL));
}

static void test_continues(void)
{
    for (int i = 0; i < 200; i++) {
        const size_t cut = (size_t)(random_next(&seed) % POOL);
        const uint32_t first = berthi_digest_crc32(0, pool, cut);

        CHECK_EQ(berthi_digest_crc32(first, pool + cut, POOL - cut),
                 berthi_digest_crc32(0, pool, POOL));
    }
}

static void test_combine_is_the_whole(void)
{
    for (int i = 0; i < 2000; i++) {
        const size_t size = (size_t)(random_next(&seed) % POOL);
        const size_t cut = (size_t)(random_next(&seed) % (size + 1));
        const uint32_t first = berthi_digest_crc32(0, pool, cut);
        const uint32_t second = berthi_digest_crc32(0, pool + cut, size - cut);

        if (!CHECK_EQ(berthi_digest_combine(first, second, size - cut),
                      berthi_digest_crc32(0, pool, size)))
            return;
    }
}

/* Any number of parts, added in any order. */
static void test_contributions_in_any_order(void)
{
    for (int round = 0; round < 200; round++) {
        uint32_t parts[16];
        size_t at = 0;
        uint32_t sum = 0;
        const int count = 1 + (int)(random_next(&seed) % 16);

        for (int i = 0; i < count; i++) {
            const size_t left = POOL - at;
            const size_t size =
                i == count - 1 ? left : (size_t)(random_next(&seed) % (left + 1));

            parts[i] = berthi_digest_shift(berthi_digest_crc32(0, pool + at, size),
                                           left - size);
            at += size;
        }
        for (int i = 0; i < count; i++)
            sum ^= parts[(i + round) % count];
        CHECK_EQ(sum, berthi_digest_crc32(0, pool, POOL));
    }
}

/* Beyond what fits into memory: zlib is the oracle up to 2^62. */
static void test_shift_of_large_sizes(void)
{
    for (int i = 0; i < 2000; i++) {
        const uint64_t behind = random_next(&seed) >> (2 + random_next(&seed) % 62);
        const uint32_t crc = (uint32_t)random_next(&seed);

        if (!CHECK_EQ(berthi_digest_shift(crc, behind),
                      (uint32_t)crc32_combine(crc, 0, (z_off_t)behind)))
            return;
    }
    /* 2^64 - 1 bytes: half, half, and one more. */
    CHECK_EQ(berthi_digest_shift(0xDEADBEEFu, UINT64_MAX),
             berthi_digest_shift(
                 berthi_digest_shift(berthi_digest_shift(0xDEADBEEFu, UINT64_MAX / 2),
                                     UINT64_MAX / 2),
                 1));
    CHECK_EQ(berthi_digest_shift(0x80000000u, 0), 0x80000000u);
    CHECK_EQ(berthi_digest_shift(0, 12345), 0);
}

/* Only its declaration: no address, where the library was not linked. */
uint32_t libdeflate_crc32(uint32_t crc, const void *bytes, size_t size)
    __attribute__((weak));

static void test_says_which_library(void)
{
    CHECK_EQ(berthi_digest_is_fast(), libdeflate_crc32 != NULL);
    T_NOTE("crc32 by %s", berthi_digest_is_fast() ? "libdeflate" : "zlib");
}

int main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    fill_pool();
    T_RUN(test_known_values);
    T_RUN(test_every_small_size_and_alignment);
    T_RUN(test_continues);
    T_RUN(test_combine_is_the_whole);
    T_RUN(test_contributions_in_any_order);
    T_RUN(test_shift_of_large_sizes);
    T_RUN(test_says_which_library);
    T_MAIN_END;
}
