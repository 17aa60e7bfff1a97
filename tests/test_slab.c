/* SPDX-License-Identifier: Apache-2.0 */
/* test_slab.c - parts of weights in memory. */
#include "placement/slab.h"

#include "kernels/device.h"
#include "tests/t.h"

static berthi_storage
storage_of(int32_t encoding, uint32_t block_size, bool is_double)
{
    return (berthi_storage){ .encoding = encoding,
                             .dtype = BERTH_BF16,
                             .storage = BERTH_U8,
                             .block_size = block_size,
                             .is_double = is_double };
}

static void
test_rounding(void)
{
    CHECK_EQ(berthi_slab_round(0), 0);
    CHECK_EQ(berthi_slab_round(1), 256);
    CHECK_EQ(berthi_slab_round(256), 256);
    CHECK_EQ(berthi_slab_round(257), 512);
    CHECK_EQ(berthi_slab_round(UINT64_MAX - 255), UINT64_MAX - 255);
    CHECK_EQ(berthi_slab_round(UINT64_MAX - 254), UINT64_MAX);
    CHECK_EQ(berthi_slab_round(UINT64_MAX), UINT64_MAX);
}

static void
test_plain(void)
{
    const berthi_storage storage = storage_of(BERTH_ENCODING_NATIVE, 0, false);
    const uint64_t shape[] = { 3, 43 };
    berthi_slab_part parts[BERTHI_SLAB_PARTS];
    uint32_t count;
    uint64_t bytes;

    T_REQUIRE(berthi_slab_can_list(&storage, shape, 2, parts, &count, &bytes));
    CHECK_EQ(count, 1);
    CHECK_EQ(parts[0].role, BERTHI_ROLE_VALUES);
    CHECK_EQ(parts[0].dtype, BERTH_BF16);
    CHECK_EQ(parts[0].offset, 0);
    CHECK_EQ(parts[0].bytes, 258);
    CHECK_EQ(bytes, 512);
}

static void
test_four_bits(void)
{
    const berthi_storage plain = storage_of(BERTH_ENCODING_NF4, 64, false);
    const berthi_storage twice = storage_of(BERTH_ENCODING_FP4, 64, true);
    const uint64_t shape[] = { 100, 1000 };
    berthi_slab_part parts[BERTHI_SLAB_PARTS];
    uint32_t count;
    uint64_t bytes;

    T_REQUIRE(berthi_slab_can_list(&plain, shape, 2, parts, &count, &bytes));
    CHECK_EQ(count, 2);
    CHECK_EQ(parts[0].role, BERTHI_ROLE_CODES);
    CHECK_EQ(parts[0].bytes, 50000);
    CHECK_EQ(parts[1].role, BERTHI_ROLE_ABSMAX);
    CHECK_EQ(parts[1].dtype, BERTH_F32);
    CHECK_EQ(parts[1].offset, 50176);
    CHECK_EQ(parts[1].bytes, 1563 * 4);
    CHECK_EQ(bytes, 50176 + 6400);
    T_REQUIRE(berthi_slab_can_list(&twice, shape, 2, parts, &count, &bytes));
    CHECK_EQ(count, 3);
    CHECK_EQ(parts[1].dtype, BERTH_U8);
    CHECK_EQ(parts[1].bytes, 1563);
    CHECK_EQ(parts[2].role, BERTHI_ROLE_ABSMAX2);
    CHECK_EQ(parts[2].offset, 50176 + 1792);
    CHECK_EQ(parts[2].bytes, 7 * 4);
    CHECK_EQ(bytes, 50176 + 1792 + 256);
}

static void
test_rows(void)
{
    const berthi_storage storage = storage_of(BERTH_ENCODING_INT8, 0, false);
    const uint64_t shape[] = { 100, 1000 };
    const uint64_t vector[] = { 100 };
    berthi_slab_part parts[BERTHI_SLAB_PARTS];
    uint32_t count;
    uint64_t bytes;

    T_REQUIRE(berthi_slab_can_list(&storage, shape, 2, parts, &count, &bytes));
    CHECK_EQ(count, 2);
    CHECK_EQ(parts[0].bytes, 100000);
    CHECK_EQ(parts[1].role, BERTHI_ROLE_ROW_MAXIMUM);
    CHECK_EQ(parts[1].bytes, 400);
    CHECK_EQ(bytes, 100096 + 512);
    CHECK(!berthi_slab_can_list(&storage, vector, 1, parts, &count, &bytes));
}

/* Every part begins where the one before has ended, rounded up. */
static void
test_any_shape(void)
{
    static const int32_t encodings[] = { BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                         BERTH_ENCODING_FP4, BERTH_ENCODING_INT8 };

    for (uint64_t rows = 1; rows < 200; rows += 7)
        for (uint32_t e = 0; e < 8; e++) {
            const berthi_storage storage = storage_of(encodings[e % 4], 32, e >= 4);
            const uint64_t shape[] = { rows, 3 * rows + 1 };
            berthi_slab_part parts[BERTHI_SLAB_PARTS];
            uint64_t bytes;
            uint64_t at = 0;
            uint32_t count;

            T_REQUIRE(berthi_slab_can_list(&storage, shape, 2, parts, &count, &bytes));
            for (uint32_t i = 0; i < count; i++) {
                CHECK_EQ(parts[i].offset, at);
                at = berthi_slab_round(at + parts[i].bytes);
            }
            CHECK_EQ(bytes, at);
        }
}

static void
test_scratch(void)
{
    berthi_storage storage = storage_of(BERTH_ENCODING_NF4, 64, true);

    /* a piece of the values, and the first level of double quantization */
    CHECK_EQ(berthi_slab_scratch(&storage, 64 * 64), 4194304 + 256);
    CHECK_EQ(berthi_slab_scratch(&storage, 64 * 64 + 1), 4194304 + 512);
    storage.is_double = false;
    CHECK_EQ(berthi_slab_scratch(&storage, 4096), 4194304);
    storage = storage_of(BERTH_ENCODING_INT8, 0, true);
    CHECK_EQ(berthi_slab_scratch(&storage, 4096), 4194304);
    storage = storage_of(BERTH_ENCODING_NATIVE, 64, true);
    CHECK_EQ(berthi_slab_scratch(&storage, 4096), 0);
}

/* The second level has room of its own, or all it needs in the place of a piece. */
static void
test_scratch_of_the_largest(void)
{
    const berthi_storage storage = storage_of(BERTH_ENCODING_NF4, 64, true);
    bool is_large = false;

    for (uint64_t blocks = 1; blocks < UINT64_C(1) << 33; blocks += blocks / 7 + 1) {
        const uint64_t absmax = berthi_slab_round(blocks * 4);
        const uint64_t needed = berthi_offset_scratch(blocks) * 4;
        const uint64_t behind = berthi_slab_second_scratch(blocks);

        CHECK_EQ(berthi_slab_scratch(&storage, blocks * 64), 4194304 + absmax + behind);
        if (behind > 0)
            CHECK_GE(behind, needed);
        else
            CHECK_LE(1024 + needed, 4194304);
        CHECK(behind > 0 || !is_large);
        is_large = behind > 0;
    }
    CHECK(is_large);
    CHECK_EQ(berthi_slab_second_scratch(UINT64_C(1) << 24), 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_rounding);
    T_RUN(test_plain);
    T_RUN(test_four_bits);
    T_RUN(test_rows);
    T_RUN(test_any_shape);
    T_RUN(test_scratch);
    T_RUN(test_scratch_of_the_largest);
    T_MAIN_END;
}
