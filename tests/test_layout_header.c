/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout_header.c - canonical headers byte for byte, as safetensors writes them. */
#include "loader/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/layout_check.h"
#include "loader/safetensors.h"
#include "tests/laid.h"
#include "tests/t.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static berth_context *context;
static const uint64_t one[1] = { 1 };

/* Of the right size for its dtype. */
static berthi_layout_tensor
tensor_of(const char *name, int32_t dtype, const uint64_t *shape, uint32_t rank)
{
    berthi_layout_tensor tensor = { .name = name, .name_length = (uint32_t)strlen(name),
                                    .dtype = dtype, .shape = shape, .rank = rank };
    uint64_t bits = berth_dtype_bits(dtype);

    for (uint32_t i = 0; i < rank; i++)
        bits *= shape[i];
    tensor.bytes = bits / 8;
    return tensor;
}

/* The header is `text` and blanks up to `header_bytes`. */
static void
check_header(berthi_layout_tensor *tensors, uint64_t count,
             const berthi_layout_pair *pairs, uint32_t pair_count, const char *text,
             uint64_t header_bytes)
{
    const berthi_layout_options options = { .pairs = pairs, .pair_count = pair_count };
    char expected[4096];
    laid_text written = { 0 };
    berthi_layout *layout;

    T_REQUIRE(berthi_layout_create(context, tensors, count, &options, &layout, NULL)
              == BERTH_OK);
    CHECK_EQ(berthi_layout_shard_at(layout, 0).header_bytes, header_bytes);
    CHECK_EQ(berthi_layout_write_header(layout, 0, laid_put, &written, NULL), BERTH_OK);
    snprintf(expected, sizeof expected, "%-*s", (int)header_bytes, text);
    CHECK_EQ(written.length, 8 + header_bytes);
    CHECK_EQ((unsigned char)written.bytes[0] | (unsigned char)written.bytes[1] << 8,
             header_bytes);
    CHECK_MEM(written.bytes + 2, "\0\0\0\0\0\0", 6);
    CHECK_STR(written.bytes + 8, expected);
    CHECK_STR(laid_header_problem(context, layout, 0, &options), NULL);
    free(written.bytes);
    berthi_layout_destroy(layout);
}

static void
test_no_tensors(void)
{
    check_header(NULL, 0, NULL, 0, "{}", 8);
    check_header(NULL, 0, berthi_layout_format, 1,
                 "{\"__metadata__\":{\"format\":\"pt\"}}", 32);
    /* The reference writes `{},"__metadata__":{}` here. */
    check_header(NULL, 0, berthi_layout_format, 0, "{}", 8);
}

static void
test_one_tensor(void)
{
    static const uint64_t shape[] = { 1, 1, 2, 3 };
    static const uint64_t pair[] = { 1, 2 };
    berthi_layout_tensor tensor = tensor_of("attn.0", BERTH_F32, shape + 1, 3);

    check_header(&tensor, 1, NULL, 0,
                 "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],"
                 "\"data_offsets\":[0,24]}}",
                 64);
    tensor = tensor_of("attn0", BERTH_F32, shape, 4);
    check_header(&tensor, 1, NULL, 0,
                 "{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],"
                 "\"data_offsets\":[0,24]}}",
                 72);
    tensor = tensor_of("attn.0", BERTH_F4, pair, 2);
    check_header(&tensor, 1, NULL, 0,
                 "{\"attn.0\":{\"dtype\":\"F4\",\"shape\":[1,2],\"data_offsets\":[0,1]}}",
                 64);
    tensor = tensor_of("a", BERTH_U8, one, 1);
    check_header(&tensor, 1, berthi_layout_format, 0,
                 "{\"__metadata__\":{},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
                 "\"data_offsets\":[0,1]}}",
                 72);
    tensor = tensor_of("", BERTH_F64, NULL, 0);
    tensor.shape = one;
    check_header(&tensor, 1, NULL, 0,
                 "{\"\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 56);
}

static void
test_escapes(void)
{
    static const berthi_layout_pair pairs[] = { { "", "" },
                                                { "\"k\n", "\\\001\xc3\xa9/" } };
    berthi_layout_tensor tensor =
        tensor_of("q\"\\/\b\f\n\r\t\001\x7f\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8",
                  BERTH_U8, one, 1);

    check_header(&tensor, 1, NULL, 0,
                 "{\"q\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f\xc3\xa9\xf0\x9f\x98\x80"
                 "\xe2\x80\xa8\":{\"dtype\":\"U8\",\"shape\":[1],"
                 "\"data_offsets\":[0,1]}}",
                 88);
    tensor = tensor_of("a", BERTH_U8, one, 1);
    check_header(&tensor, 1, pairs, 2,
                 "{\"__metadata__\":{\"\":\"\",\"\\\"k\\n\":\"\\\\\\u0001\xc3\xa9/\"},"
                 "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 104);
}

#define ENTRY(name, dtype, begin, end)                                               \
    ",\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[1],\"data_offsets\":[" begin \
    "," end "]}"

static void
test_order(void)
{
    static const char *const names[] = { "d", "\xc3\xa9", "b", "a.2", "a.10", "a", "B",
                                         "c" };
    berthi_layout_tensor tensors[COUNT(names)];

    for (size_t i = 0; i < COUNT(names); i++)
        tensors[i] = tensor_of(names[i],
                               i == 0   ? BERTH_I64
                               : i == 7 ? BERTH_F16
                                        : BERTH_F32,
                               one, 1);
    check_header(tensors, COUNT(names), berthi_layout_format, 1,
                 "{\"__metadata__\":{\"format\":\"pt\"}" ENTRY("d", "I64", "0", "8")
                     ENTRY("B", "F32", "8", "12") ENTRY("a", "F32", "12", "16")
                         ENTRY("a.10", "F32", "16", "20") ENTRY("a.2", "F32", "20", "24")
                             ENTRY("b", "F32", "24", "28")
                                 ENTRY("\xc3\xa9", "F32", "28", "32")
                                     ENTRY("c", "F16", "32", "34") "}",
                 480);
}

/* Every dtype, each [8], in any order of the input. */
static void
test_all_dtypes(void)
{
    static const uint64_t eight[] = { 8 };
    berthi_layout_tensor tensors[BERTH_DTYPE_COUNT];
    char names[BERTH_DTYPE_COUNT][20];
    char text[4096] = "{";
    size_t length = 1;
    uint64_t offset = 0;

    for (int32_t i = 0; i < BERTH_DTYPE_COUNT; i++) {
        const int32_t at = (i * 5 + 3) % BERTH_DTYPE_COUNT;
        const uint64_t end = offset + berth_dtype_bits(i);

        snprintf(names[i], sizeof names[i], "t_%s", berth_dtype_name(i));
        tensors[at] = tensor_of(names[i], i, eight, 1);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[8],"
                                   "\"data_offsets\":[%llu,%llu]}",
                                   i > 0 ? "," : "", names[i], berth_dtype_name(i),
                                   (unsigned long long)offset, (unsigned long long)end);
        offset = end;
    }
    snprintf(text + length, sizeof text - length, "}");
    CHECK_EQ(offset, 496);
    check_header(tensors, BERTH_DTYPE_COUNT, NULL, 0, text, 1416);
}

/* Every length of padding, and offsets of every number of digits. */
static void
test_padding(void)
{
    char name[] = "nnnnnnnnnnnnnnnn";
    uint64_t bytes = 1;

    for (uint32_t i = 0; i < 18; i++, bytes *= 10) {
        const berthi_layout_options options = { .pairs = berthi_layout_format,
                                                .pair_count = 1 };
        berthi_layout_tensor tensors[3];
        berthi_layout *layout;

        for (uint64_t less = 0; less < 2; less++) {
            const uint64_t shape[] = { bytes - less };

            tensors[0] = tensor_of("a", BERTH_U8, shape, 1);
            tensors[1] = tensor_of(name, BERTH_U8, shape, 1);
            tensors[1].name_length = i % 17;
            tensors[2] = (berthi_layout_tensor){ .name = "z", .name_length = 1,
                                                 .dtype = BERTH_I8, .bytes = bytes };
            T_REQUIRE(berthi_layout_create(context, tensors, 3, &options, &layout, NULL)
                      == BERTH_OK);
            CHECK_STR(laid_header_problem(context, layout, 0, &options), NULL);
            berthi_layout_destroy(layout);
        }
    }
}

/* A header above the limit of readers is refused before anything is written. */
static void
test_too_large(void)
{
    const uint64_t length = UINT64_C(50000000);
    char *const name = malloc(length);
    berthi_layout_tensor tensors[2];
    const berthi_layout_options options = { .pairs = NULL };
    const berthi_layout_options halves = { .max_shard_bytes = 1 };
    berthi_layout *layout;
    berth_error error;

    T_REQUIRE(name != NULL);
    memset(name, 'n', length);
    tensors[0] = tensor_of("", BERTH_U8, one, 1);
    tensors[1] = tensor_of("", BERTH_U8, one, 1);
    tensors[0].name = name;
    tensors[1].name = name;
    /* {"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} twice, less a brace each */
    tensors[0].name_length = (uint32_t)length - 52;
    tensors[1].name_length = (uint32_t)length - 51;
    CHECK_EQ(berthi_layout_create(context, tensors, 2, &options, &layout, &error),
             BERTH_OK);
    CHECK_EQ(berthi_layout_shard_at(layout, 0).header_bytes, BERTHI_HEADER_LIMIT);
    berthi_layout_destroy(layout);
    tensors[1].name_length++;
    tensors[0].name_length++;
    CHECK_EQ(berthi_layout_create(context, tensors, 2, &options, &layout, &error),
             BERTH_EUNSUPPORTED);
    CHECK(layout == NULL);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "choose smaller shards");
    CHECK_EQ(error.expected, 100000000);
    CHECK_EQ(error.actual, 100000008);
    CHECK_EQ(berthi_layout_create(context, tensors, 2, &halves, &layout, &error),
             BERTH_OK);
    CHECK_EQ(berthi_layout_shard_count(layout), 2);
    berthi_layout_destroy(layout);
    free(name);
}

static void
test_limits(void)
{
    berth_error error;

    CHECK_EQ(berthi_layout_check_header(BERTHI_HEADER_LIMIT, &error), BERTH_OK);
    CHECK_EQ(berthi_layout_check_header(BERTHI_HEADER_LIMIT + 1, &error),
             BERTH_EUNSUPPORTED);
}

/* A single name of which every byte becomes six: refused by itself. */
static void
test_name_too_long(void)
{
    const uint64_t length = UINT64_C(16666660);
    char *const name = malloc(length);
    berthi_layout_tensor tensor = tensor_of("", BERTH_U8, one, 1);
    const berthi_layout_options options = { .pairs = NULL };
    berthi_layout *layout;
    berth_error error;

    T_REQUIRE(name != NULL);
    memset(name, 1, length);
    tensor.name = name;
    tensor.name_length = (uint32_t)length;
    CHECK_EQ(berthi_layout_create(context, &tensor, 1, &options, &layout, &error),
             BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(error.message, "too long for any header");
    tensor.name_length -= 10;
    CHECK_EQ(berthi_layout_create(context, &tensor, 1, &options, &layout, &error),
             BERTH_OK);
    berthi_layout_destroy(layout);
    free(name);
}

int
main(int argc, char **argv)
{
    int result;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_no_tensors);
    T_RUN(test_one_tensor);
    T_RUN(test_escapes);
    T_RUN(test_order);
    T_RUN(test_all_dtypes);
    T_RUN(test_padding);
    T_RUN(test_too_large);
    T_RUN(test_limits);
    T_RUN(test_name_too_long);
    result = t_end();
    berth_context_destroy(context);
    return result;
}
