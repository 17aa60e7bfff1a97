/* SPDX-License-Identifier: Apache-2.0 */
/* test_format.c - names of dtypes and the exact bytes of tensors. */
#include "quant/format.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"

static void
test_dtype_names(void)
{
    int32_t named = 0;

    for (int32_t i = 0; i < BERTH_DTYPE_COUNT; i++) {
        const char *const name = berth_dtype_name(i);

        named += berthi_format_dtype(name, strlen(name)) == i;
    }
    CHECK_EQ(named, BERTH_DTYPE_COUNT);
    CHECK_EQ(BERTH_DTYPE_COUNT, 22);
    CHECK_STR(berth_dtype_name(BERTH_U64), "U64");
    CHECK_STR(berth_dtype_name(BERTH_BF16), "BF16");
    CHECK_STR(berth_dtype_name(BERTH_F8_E4M3), "F8_E4M3");
    CHECK_STR(berth_dtype_name(BERTH_BOOL), "BOOL");
    CHECK_STR(berth_dtype_name(-1), "unknown");
    CHECK_STR(berth_dtype_name(BERTH_DTYPE_COUNT), "unknown");
}

static void
test_dtype_bits(void)
{
    CHECK_EQ(berth_dtype_bits(BERTH_U64), 64);
    CHECK_EQ(berth_dtype_bits(BERTH_C64), 64);
    CHECK_EQ(berth_dtype_bits(BERTH_F32), 32);
    CHECK_EQ(berth_dtype_bits(BERTH_BF16), 16);
    CHECK_EQ(berth_dtype_bits(BERTH_F8_E8M0), 8);
    CHECK_EQ(berth_dtype_bits(BERTH_F6_E2M3), 6);
    CHECK_EQ(berth_dtype_bits(BERTH_F4), 4);
    CHECK_EQ(berth_dtype_bits(BERTH_BOOL), 8);
    CHECK_EQ(berth_dtype_bits(-1), 0);
    CHECK_EQ(berth_dtype_bits(BERTH_DTYPE_COUNT), 0);
}

static void
test_dtype_is_exact(void)
{
    CHECK_EQ(berthi_format_dtype("bf16", 4), BERTHI_NO_DTYPE);
    CHECK_EQ(berthi_format_dtype("BF1", 3), BERTHI_NO_DTYPE);
    CHECK_EQ(berthi_format_dtype("BF16 ", 5), BERTHI_NO_DTYPE);
    CHECK_EQ(berthi_format_dtype("BF16x", 4), BERTH_BF16);
    CHECK_EQ(berthi_format_dtype("", 0), BERTHI_NO_DTYPE);
}

static void
test_torch_names(void)
{
    int32_t found = 0;

    for (int32_t i = 0; i < BERTH_DTYPE_COUNT; i++) {
        const char *const name = berthi_format_torch_name(i);

        if (name == NULL)
            CHECK(i == BERTH_F4 || i == BERTH_F6_E3M2 || i == BERTH_F6_E2M3);
        else
            found += berthi_format_torch_dtype(name, strlen(name)) == i;
    }
    CHECK_EQ(found, BERTH_DTYPE_COUNT - 3);
    CHECK_STR(berthi_format_torch_name(BERTH_BF16), "bfloat16");
    CHECK_STR(berthi_format_torch_name(BERTH_F16), "float16");
    CHECK_STR(berthi_format_torch_name(BERTH_F32), "float32");
    CHECK_STR(berthi_format_torch_name(BERTH_F8_E4M3), "float8_e4m3fn");
    CHECK_STR(berthi_format_torch_name(BERTH_F8_E8M0), "float8_e8m0fnu");
    CHECK_STR(berthi_format_torch_name(BERTH_U8), "uint8");
    CHECK_STR(berthi_format_torch_name(-1), NULL);
    CHECK_EQ(berthi_format_torch_dtype("half", 4), BERTHI_NO_DTYPE);
    CHECK_EQ(berthi_format_torch_dtype("", 0), BERTHI_NO_DTYPE);
}

static void
test_dtype_words(void)
{
    CHECK_EQ(berthi_format_dtype_word("bf16"), BERTH_BF16);
    CHECK_EQ(berthi_format_dtype_word("bfloat16"), BERTH_BF16);
    CHECK_EQ(berthi_format_dtype_word("fp16"), BERTH_F16);
    CHECK_EQ(berthi_format_dtype_word("f16"), BERTH_F16);
    CHECK_EQ(berthi_format_dtype_word("float16"), BERTH_F16);
    CHECK_EQ(berthi_format_dtype_word("f32"), BERTH_F32);
    CHECK_EQ(berthi_format_dtype_word("fp32"), BERTH_F32);
    CHECK_EQ(berthi_format_dtype_word("float32"), BERTH_F32);
    CHECK_EQ(berthi_format_dtype_word("BF16"), BERTHI_NO_DTYPE);
    CHECK_EQ(berthi_format_dtype_word("f64"), BERTHI_NO_DTYPE);
    CHECK_EQ(berthi_format_dtype_word(""), BERTHI_NO_DTYPE);
}

static void
test_encoding_names(void)
{
    static const char *const names[] = { "native", "nf4",        "fp4",   "int8",   "fp8",
                                         "fp4 packed", "mxfp4", "foreign", "statistics" };

    for (int32_t i = 0; i <= BERTH_ENCODING_STATISTICS; i++)
        CHECK_STR(berth_encoding_name(i), names[i]);
    CHECK_STR(berth_encoding_name(-1), "unknown");
    CHECK_STR(berth_encoding_name(BERTH_ENCODING_STATISTICS + 1), "unknown");
}

/* Who reads plans by another program finds each in the page. */
static void
test_encodings_of_the_page(void)
{
    char *const page = fixture_read("tools/man/berth-plan.5", NULL);

    for (int32_t i = 0; i <= BERTH_ENCODING_STATISTICS; i++)
        CHECK_CONTAINS(page, fixture_format(".Qq %s", berth_encoding_name(i)));
    free(page);
}

static void
test_count(void)
{
    const uint64_t shape[] = { 3, 5, 7 };
    const uint64_t large[] = { UINT64_C(1) << 32, UINT64_C(1) << 31, 2 };
    uint64_t n = 0;

    CHECK(berthi_format_can_count(shape, 0, &n));
    CHECK_EQ(n, 1);
    CHECK(berthi_format_can_count(shape, 3, &n));
    CHECK_EQ(n, 105);
    CHECK(berthi_format_can_count(large, 2, &n));
    CHECK_EQ(n, UINT64_C(1) << 63);
    CHECK(!berthi_format_can_count(large, 3, &n));
}

static void
test_size(void)
{
    uint64_t bytes = 0;

    CHECK(berthi_format_can_size(BERTH_F32, 7, &bytes));
    CHECK_EQ(bytes, 28);
    CHECK(berthi_format_can_size(BERTH_F4, 6, &bytes));
    CHECK_EQ(bytes, 3);
    CHECK(!berthi_format_can_size(BERTH_F4, 5, &bytes));
    CHECK(berthi_format_can_size(BERTH_F6_E3M2, 4, &bytes));
    CHECK_EQ(bytes, 3);
    CHECK(!berthi_format_can_size(BERTH_F6_E3M2, 3, &bytes));
    CHECK(berthi_format_can_size(BERTH_U64, UINT64_MAX / 64, &bytes));
    CHECK_EQ(bytes, UINT64_MAX / 64 * 8);
    CHECK(!berthi_format_can_size(BERTH_U64, UINT64_MAX / 64 + 1, &bytes));
    CHECK(!berthi_format_can_size(-1, 8, &bytes));
    CHECK(!berthi_format_can_size(BERTH_DTYPE_COUNT, 8, &bytes));
}

static void
test_slice(void)
{
    const uint64_t shape[] = { 4, 3, 5 };
    uint64_t offset = 9;
    uint64_t bytes = 9;

    CHECK_STR(berthi_format_slice(BERTH_BF16, shape, 3, 1, 2, &offset, &bytes), NULL);
    CHECK_EQ(offset, 30);
    CHECK_EQ(bytes, 60);
    CHECK_STR(berthi_format_slice(BERTH_BF16, shape, 3, 1, UINT64_MAX, &offset, &bytes),
              NULL);
    CHECK_EQ(offset, 30);
    CHECK_EQ(bytes, 90);
    CHECK_STR(berthi_format_slice(BERTH_BF16, shape, 3, 0, 4, &offset, &bytes), NULL);
    CHECK_EQ(offset, 0);
    CHECK_EQ(bytes, 120);
    CHECK_STR(berthi_format_slice(BERTH_BF16, shape, 3, 4, 0, &offset, &bytes), NULL);
    CHECK_EQ(bytes, 0);
    CHECK_STR(berthi_format_slice(BERTH_BF16, shape, 3, 5, 0, &offset, &bytes),
              "begins behind the last row");
    CHECK_STR(berthi_format_slice(BERTH_BF16, shape, 3, 3, 2, &offset, &bytes),
              "ends behind the last row");
    CHECK_EQ(offset, 0);
    CHECK_EQ(bytes, 0);
}

static void
test_slice_of_scalar(void)
{
    uint64_t offset = 9;
    uint64_t bytes = 9;

    CHECK_STR(berthi_format_slice(BERTH_F32, NULL, 0, 0, UINT64_MAX, &offset, &bytes),
              NULL);
    CHECK_EQ(offset, 0);
    CHECK_EQ(bytes, 4);
    CHECK_STR(berthi_format_slice(BERTH_F32, NULL, 0, 0, 2, &offset, &bytes),
              "ends behind the last row");
}

static void
test_slice_inside_bytes(void)
{
    const uint64_t odd[] = { 4, 3 };  /* F4: 12 bits a row */
    const uint64_t even[] = { 4, 2 }; /* F6: 12 bits a row */
    uint64_t offset;
    uint64_t bytes;

    CHECK_STR(berthi_format_slice(BERTH_F4, odd, 2, 0, 1, &offset, &bytes),
              "ends inside a byte");
    CHECK_STR(berthi_format_slice(BERTH_F4, odd, 2, 1, 2, &offset, &bytes),
              "begins inside a byte");
    CHECK_STR(berthi_format_slice(BERTH_F4, odd, 2, 2, 2, &offset, &bytes), NULL);
    CHECK_EQ(offset, 3);
    CHECK_EQ(bytes, 3);
    CHECK_STR(berthi_format_slice(BERTH_F6_E2M3, even, 2, 0, 2, &offset, &bytes), NULL);
    CHECK_EQ(bytes, 3);
}

static void
test_slice_of_impossible_rows(void)
{
    const uint64_t empty[] = { 0, UINT64_C(1) << 40, UINT64_C(1) << 40 };
    const uint64_t wide[] = { 2, UINT64_C(1) << 40, UINT64_C(1) << 40 };
    const uint64_t long_rows[] = { 2, UINT64_C(1) << 61 };
    const uint64_t many[] = { 40, UINT64_C(1) << 56 };
    uint64_t offset;
    uint64_t bytes;

    CHECK_STR(berthi_format_slice(BERTH_F32, empty, 3, 0, UINT64_MAX, &offset, &bytes),
              NULL);
    CHECK_EQ(bytes, 0);
    CHECK_STR(berthi_format_slice(BERTH_F32, wide, 3, 0, 1, &offset, &bytes),
              "has rows of impossible size");
    CHECK_STR(berthi_format_slice(BERTH_F32, long_rows, 2, 0, 1, &offset, &bytes),
              "has rows of impossible size");
    CHECK_STR(berthi_format_slice(BERTH_U8, many, 2, 33, 1, &offset, &bytes),
              "has rows of impossible size");
    CHECK_STR(berthi_format_slice(BERTH_U8, many, 2, 0, 33, &offset, &bytes),
              "has rows of impossible size");
}

static void
test_block_sizes(void)
{
    unsigned count = 0;

    for (uint64_t size = 0; size <= 10000; size++)
        count += berthi_format_is_block_size(size);
    CHECK_EQ(count, 8);
    CHECK(berthi_format_is_block_size(32));
    CHECK(berthi_format_is_block_size(64));
    CHECK(berthi_format_is_block_size(4096));
    CHECK(!berthi_format_is_block_size(16));
    CHECK(!berthi_format_is_block_size(96));
    CHECK(!berthi_format_is_block_size(8192));
    CHECK(!berthi_format_is_block_size(UINT64_C(1) << 40));
}

static void
test_slice_of_vector(void)
{
    const uint64_t shape[] = { 10 };
    uint64_t offset;
    uint64_t bytes;

    CHECK_STR(berthi_format_slice(BERTH_F32, shape, 1, 3, 2, &offset, &bytes), NULL);
    CHECK_EQ(offset, 12);
    CHECK_EQ(bytes, 8);
}

/*
 * ceil(n / 2) bytes of codes, 4 a block, 64 of the table, and the state. Doubly quantized: a
 * byte a block, 4 for each 256 blocks, and 1024 of a second table.
 */
static void
test_plan_of_4bit(void)
{
    const uint64_t shape[] = { 45, 91 }; /* n = 4095: odd, 64 blocks of 64 */
    berthi_format_plan plan = { .encoding = BERTH_ENCODING_NF4, .block_size = 64,
                                .state_bytes = 83 };
    berthi_format_bytes b;

    T_REQUIRE(berthi_format_can_plan(&plan, shape, 2, &b));
    CHECK_EQ(b.elements, 4095);
    CHECK_EQ(b.blocks, 64);
    CHECK_EQ(b.packed, 2048);
    CHECK_EQ(b.absmax, 256);
    CHECK_EQ(b.absmax2, 0);
    CHECK_EQ(b.tables, 64);
    CHECK_EQ(b.state, 83);
    CHECK_EQ(b.total, 2048 + 256 + 64 + 83);

    plan.encoding = BERTH_ENCODING_FP4;
    plan.is_double = true;
    plan.block_size = 32;
    T_REQUIRE(berthi_format_can_plan(&plan, shape, 2, &b));
    CHECK_EQ(b.blocks, 128);
    CHECK_EQ(b.absmax, 128);
    CHECK_EQ(b.absmax2, 4);
    CHECK_EQ(b.tables, 64 + 1024);
    CHECK_EQ(b.total, 2048 + 128 + 4 + 64 + 1024 + 83);
}

static void
test_plan_of_second_level(void)
{
    const uint64_t exact[] = { 64 * 256 };
    const uint64_t more[] = { 64 * 256 + 1 };
    const uint64_t none[] = { 0 };
    const berthi_format_plan plan = { .encoding = BERTH_ENCODING_NF4, .block_size = 64,
                                      .is_double = true };
    berthi_format_bytes b;

    T_REQUIRE(berthi_format_can_plan(&plan, exact, 1, &b));
    CHECK_EQ(b.blocks, 256);
    CHECK_EQ(b.absmax2, 4);
    T_REQUIRE(berthi_format_can_plan(&plan, more, 1, &b));
    CHECK_EQ(b.blocks, 257);
    CHECK_EQ(b.absmax2, 8);
    CHECK_EQ(b.packed, 8193);
    T_REQUIRE(berthi_format_can_plan(&plan, none, 1, &b));
    CHECK_EQ(b.total, 64 + 1024);
}

static void
test_plan_of_int8_and_native(void)
{
    const uint64_t shape[] = { 64, 272 };
    berthi_format_plan plan = { .encoding = BERTH_ENCODING_INT8 };
    berthi_format_bytes b;

    T_REQUIRE(berthi_format_can_plan(&plan, shape, 2, &b));
    CHECK_EQ(b.packed, 17408);
    CHECK_EQ(b.absmax, 256);
    CHECK_EQ(b.state, 1);
    CHECK_EQ(b.total, 17408 + 256 + 1);
    CHECK(!berthi_format_can_plan(&plan, shape, 1, &b));

    plan.encoding = BERTH_ENCODING_NATIVE;
    plan.dtype = BERTH_BF16;
    T_REQUIRE(berthi_format_can_plan(&plan, shape, 2, &b));
    CHECK_EQ(b.packed, 34816);
    CHECK_EQ(b.total, 34816);
    CHECK_EQ(b.absmax + b.absmax2 + b.tables + b.state + b.blocks, 0);
}

static void
test_plan_refuses(void)
{
    const uint64_t wide[] = { UINT64_MAX, 2 };
    const uint64_t odd[] = { 3 };
    const uint64_t tall[] = { UINT64_MAX, 1 };
    const uint64_t some[] = { 2, 2 };
    berthi_format_plan plan = { .encoding = BERTH_ENCODING_NF4, .block_size = 64 };
    berthi_format_bytes b;

    CHECK(!berthi_format_can_plan(&plan, wide, 2, &b));
    CHECK(berthi_format_can_plan(&plan, tall, 2, &b));
    CHECK_EQ(b.packed, UINT64_C(1) << 63);
    CHECK_EQ(b.blocks, UINT64_C(1) << 58);
    plan.state_bytes = UINT64_MAX;
    CHECK(!berthi_format_can_plan(&plan, some, 2, &b));
    plan.block_size = 63;
    plan.state_bytes = 0;
    CHECK(!berthi_format_can_plan(&plan, some, 2, &b));
    plan.encoding = BERTH_ENCODING_INT8;
    CHECK(!berthi_format_can_plan(&plan, tall, 2, &b));
    plan.encoding = BERTH_ENCODING_NATIVE;
    plan.dtype = BERTH_F4;
    CHECK(!berthi_format_can_plan(&plan, odd, 1, &b));
    plan.encoding = BERTH_ENCODING_MXFP4;
    CHECK(!berthi_format_can_plan(&plan, some, 2, &b));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_dtype_names);
    T_RUN(test_dtype_bits);
    T_RUN(test_dtype_is_exact);
    T_RUN(test_torch_names);
    T_RUN(test_dtype_words);
    T_RUN(test_encoding_names);
    T_RUN(test_encodings_of_the_page);
    T_RUN(test_count);
    T_RUN(test_size);
    T_RUN(test_slice);
    T_RUN(test_slice_of_scalar);
    T_RUN(test_slice_of_vector);
    T_RUN(test_slice_inside_bytes);
    T_RUN(test_slice_of_impossible_rows);
    T_RUN(test_block_sizes);
    T_RUN(test_plan_of_4bit);
    T_RUN(test_plan_of_second_level);
    T_RUN(test_plan_of_int8_and_native);
    T_RUN(test_plan_refuses);
    T_MAIN_END;
}
