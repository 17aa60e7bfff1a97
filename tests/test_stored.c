/* SPDX-License-Identifier: Apache-2.0 */
/* test_stored.c - what a weight is stored as: tensors, names, constants, refusals. */
#include "kernels/number.h"
#include "quant/stored.h"

#include <stdio.h>
#include <string.h>

#include "kernels/tables.h"
#include "quant/format.h"
#include "tests/t.h"

static const berthi_storage nf4 = { BERTH_ENCODING_NF4, BERTH_BF16, BERTH_U8, 64, false };
static const berthi_storage fp4_double = { BERTH_ENCODING_FP4, BERTH_F16, BERTH_U8, 32,
                                           true };
static const berthi_storage int8 = { BERTH_ENCODING_INT8, BERTH_BF16, 0, 0, false };

/* "role dtype dims bytes" of each tensor, a line each. */
static const char *
list(const berthi_storage *storage, const uint64_t *shape, uint32_t rank)
{
    static const char *const roles[BERTHI_ROLE_COUNT] = {
        "values", "codes", "absmax",  "absmax2", "map2",
        "map",    "state", "maximum", "format"
    };
    static char text[600];
    berthi_stored stored[BERTHI_STORED_MAX];
    const uint32_t count = berthi_stored_list(storage, shape, rank, stored);
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *const dims = berthi_stored_shape(&stored[i], shape);

        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s [", roles[stored[i].role],
                               berth_dtype_name(stored[i].dtype));
        for (uint32_t k = 0; k < stored[i].rank; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, k > 0 ? ",%llu" : "%llu",
                                   (unsigned long long)dims[k]);
        at += (size_t)snprintf(text + at, sizeof text - at, "] %llu%s\n",
                               (unsigned long long)stored[i].bytes,
                               stored[i].is_late ? " late" : "");
    }
    return text;
}

static void
test_lists(void)
{
    const uint64_t shape[] = { 91, 45 };
    const uint64_t large[] = { 512, 64 };
    const uint64_t three[] = { 3, 5, 7 };
    const berthi_storage native = { .encoding = BERTH_ENCODING_NATIVE,
                                    .dtype = BERTH_F4 };
    berthi_storage wide = nf4;

    CHECK_STR(list(&nf4, shape, 2), "codes U8 [2048,1] 2048\n"
                                    "absmax F32 [64] 256\n"
                                    "map F32 [16] 64\n"
                                    "state U8 [78] 78\n");
    CHECK_STR(list(&fp4_double, large, 2), "codes U8 [16384,1] 16384\n"
                                           "absmax U8 [1024] 1024\n"
                                           "absmax2 F32 [4] 16\n"
                                           "map2 F32 [256] 1024\n"
                                           "map F32 [16] 64\n"
                                           "state U8 [169] 169 late\n");
    CHECK_STR(list(&int8, shape, 2), "codes I8 [91,45] 4095\n"
                                     "maximum F32 [91] 364\n"
                                     "format U8 [] 1\n");
    CHECK_STR(list(&native, (const uint64_t[]){ 3, 5, 6 }, 3), "values F4 [3,5,6] 45\n");
    CHECK_STR(list(&native, (const uint64_t[]){ 0, 5 }, 2), "values F4 [0,5] 0\n");
    wide.storage = BERTH_F64;
    wide.block_size = 4096;
    CHECK_STR(list(&wide, (const uint64_t[]){ 48 }, 1), "codes F64 [3,1] 24\n"
                                                        "absmax F32 [1] 4\n"
                                                        "map F32 [16] 64\n"
                                                        "state U8 [76] 76\n");
    CHECK_CONTAINS(list(&nf4, three, 3), "codes U8 [53,1] 53\nabsmax F32 [2] 8\n");
}

static uint64_t
total(const berthi_storage *storage, const uint64_t *shape, uint32_t rank)
{
    berthi_stored stored[BERTHI_STORED_MAX];
    const uint32_t count = berthi_stored_list(storage, shape, rank, stored);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *const dims = berthi_stored_shape(&stored[i], shape);
        uint64_t elements;
        uint64_t size = 0;

        CHECK(berthi_format_can_count(dims, stored[i].rank, &elements));
        CHECK(berthi_format_can_size(stored[i].dtype, elements, &size));
        CHECK_EQ(stored[i].bytes, size);
        bytes += stored[i].bytes;
    }
    return bytes;
}

/* The planner's total, for every storage, and every tensor of its shape's size. */
static void
test_totals_are_the_formats(void)
{
    static const int32_t storages[] = { BERTH_U8,  BERTH_I8,  BERTH_BF16,
                                        BERTH_F16, BERTH_F32, BERTH_F64 };
    const uint64_t shape[] = { 272, 16 };

    for (int s = 0; s < 6; s++)
        for (uint32_t block = 32; block <= 4096; block *= 2)
            for (int is_double = 0; is_double < 2; is_double++) {
                const berthi_storage storage = { BERTH_ENCODING_NF4, BERTH_F32, storages[s],
                                                 block, is_double == 1 };
                berthi_format_plan plan = { BERTH_ENCODING_NF4, BERTH_F32, block,
                                            is_double == 1, 0 };
                berthi_format_bytes bytes;
                berthi_state state;

                berthi_stored_state(&storage, shape, 2, 0.0f, &state);
                plan.state_bytes = berthi_state_guess(&state);
                CHECK(berthi_format_can_plan(&plan, shape, 2, &bytes));
                CHECK_EQ(total(&storage, shape, 2), bytes.total);
            }
    CHECK_EQ(total(&int8, shape, 2), 272 * 16 + 272 * 4 + 1);
}

/* ------------------------------------------------------------------- refusals */

static void
check_refused(berthi_storage storage, const uint64_t *shape, uint32_t rank,
              const char *reason)
{
    berthi_stored stored[BERTHI_STORED_MAX];
    const char *const given = berthi_stored_refusal(&storage, shape, rank);

    if (CHECK(given != NULL))
        CHECK_CONTAINS(given, reason);
    CHECK_EQ(berthi_stored_list(&storage, shape, rank, stored), 0);
}

/* Not made, but listed, since others make it: its parts have so many bytes. */
static void
check_not_made(berthi_storage storage, const uint64_t *shape, uint32_t rank,
               const char *reason, uint64_t codes, uint64_t maxima)
{
    berthi_stored stored[BERTHI_STORED_MAX];
    const char *const given = berthi_stored_refusal(&storage, shape, rank);

    if (CHECK(given != NULL))
        CHECK_CONTAINS(given, reason);
    if (!CHECK_GE(berthi_stored_list(&storage, shape, rank, stored), 3))
        return;
    CHECK_EQ(stored[0].bytes, codes);
    CHECK_EQ(stored[1].bytes, maxima);
}

static berthi_storage
with(berthi_storage storage, int32_t dtype, int32_t code_dtype, uint32_t block)
{
    storage.dtype = dtype;
    storage.storage = code_dtype;
    storage.block_size = block;
    return storage;
}

static void
test_refusals(void)
{
    const uint64_t matrix[] = { 4, 4 };
    const uint64_t odd[] = { 1, 7 };
    const uint64_t empty[] = { 4, 0 };
    const uint64_t huge[] = { UINT64_C(1) << 40, UINT64_C(1) << 40 };
    const uint64_t large[] = { UINT64_C(1) << 32, UINT64_C(1) << 31 };
    const uint64_t cube[] = { 2, 2, 2 };
    const uint64_t many[BERTH_MAX_RANK + 1] = { 0 };

    CHECK(berthi_stored_refusal(&nf4, matrix, 2) == NULL);
    check_not_made(nf4, NULL, 0, "a scalar", 1, 4);
    check_not_made(nf4, empty, 2, "without values", 0, 0);
    check_not_made(int8, empty, 2, "without values", 0, 16);
    check_refused(int8, cube, 3, "only matrices");
    check_refused(int8, cube, 1, "only matrices");
    check_refused(nf4, huge, 2, "more than 2^64 elements");
    check_refused(nf4, many, BERTH_MAX_RANK + 1, "more dims");
    check_refused(with(nf4, BERTH_F64, BERTH_U8, 64), matrix, 2, "BF16, F16 and F32");
    check_refused(with(int8, BERTH_U8, 0, 0), matrix, 2, "BF16, F16 and F32");
    check_refused(with(nf4, BERTH_F32, BERTH_U8, 48), matrix, 2, "block size");
    check_refused(with(nf4, BERTH_F32, BERTH_U8, 8192), matrix, 2, "block size");
    check_refused(with(nf4, BERTH_F32, BERTH_U16, 64), matrix, 2, "stored as this dtype");
    check_refused((berthi_storage){ .encoding = BERTH_ENCODING_FP8_BLOCK,
                                    .dtype = BERTH_F32 }, matrix, 2, "this encoding");
    check_refused((berthi_storage){ .encoding = BERTH_ENCODING_NATIVE, .dtype = BERTH_F4 },
                  odd, 2, "size in bytes");
    check_refused((berthi_storage){ .encoding = BERTH_ENCODING_NATIVE,
                                    .dtype = BERTH_DTYPE_COUNT }, matrix, 2,
                  "size in bytes");
    check_refused((berthi_storage){ .encoding = BERTH_ENCODING_NATIVE, .dtype = BERTH_F32 },
                  large, 2, "size in bytes");
    check_refused((berthi_storage){ .encoding = BERTH_ENCODING_NATIVE, .dtype = BERTH_U8 },
                  huge, 2, "more than 2^64 elements");
    check_refused((berthi_storage){ .encoding = BERTH_ENCODING_NATIVE, .dtype = BERTH_U8 },
                  many, BERTH_MAX_RANK + 1, "more dims");
    /* 7 codes are 4 bytes, but the last one is half of a pair. */
    CHECK(berthi_stored_refusal(&nf4, odd, 2) == NULL);
    check_refused(with(nf4, BERTH_F32, BERTH_BF16, 64), odd, 2, "whole elements");
    check_refused(with(nf4, BERTH_F32, BERTH_F16, 64), (const uint64_t[]){ 6 }, 1,
                  "whole elements");
    check_refused(with(nf4, BERTH_F32, BERTH_F32, 64), (const uint64_t[]){ 12 }, 1,
                  "whole elements");
    check_refused(with(nf4, BERTH_F32, BERTH_F64, 64), (const uint64_t[]){ 24 }, 1,
                  "whole elements");
    CHECK(berthi_stored_refusal(&(berthi_storage){ BERTH_ENCODING_NF4, BERTH_F32,
                                                   BERTH_I8, 64, false }, odd, 2) == NULL);
}

/* ---------------------------------------------------------------------- names */

static void
check_name(const char *weight, berthi_role role, int32_t encoding, const char *expected)
{
    const berthi_stored_name name =
        berthi_stored_name_of(weight, strlen(weight), role, encoding);
    char text[200];

    snprintf(text, sizeof text, "%.*s%s", (int)name.kept, weight, name.suffix);
    CHECK_STR(text, expected);
}

static void
test_names(void)
{
    const int32_t type = BERTH_ENCODING_NF4;

    check_name("a.weight", BERTHI_ROLE_VALUES, BERTH_ENCODING_NATIVE, "a.weight");
    check_name("a.weight", BERTHI_ROLE_CODES, type, "a.weight");
    check_name("a.weight", BERTHI_ROLE_ABSMAX, type, "a.weight.absmax");
    check_name("a.weight", BERTHI_ROLE_ABSMAX2, type, "a.weight.nested_absmax");
    check_name("a.weight", BERTHI_ROLE_MAP2, type, "a.weight.nested_quant_map");
    check_name("experts.up", BERTHI_ROLE_MAP, type, "experts.up.quant_map");
    check_name("a.weight", BERTHI_ROLE_STATE, type,
               "a.weight.quant_state.bitsandbytes__nf4");
    check_name("a.weight", BERTHI_ROLE_STATE, BERTH_ENCODING_FP4,
               "a.weight.quant_state.bitsandbytes__fp4");
    check_name("a.b.weight", BERTHI_ROLE_CODES, BERTH_ENCODING_INT8, "a.b.weight");
    check_name("a.b.weight", BERTHI_ROLE_ROW_MAXIMUM, BERTH_ENCODING_INT8, "a.b.SCB");
    check_name("a.b.weight", BERTHI_ROLE_ROW_FORMAT, BERTH_ENCODING_INT8,
               "a.b.weight_format");
    check_name("weight", BERTHI_ROLE_ROW_MAXIMUM, BERTH_ENCODING_INT8, "SCB");
}

static bool
can_name(const char *weight, int32_t encoding)
{
    return berthi_stored_can_name(weight, strlen(weight), encoding);
}

static void
test_row_maxima_need_a_weight(void)
{
    CHECK(can_name("a.weight", BERTH_ENCODING_INT8));
    CHECK(can_name("weight", BERTH_ENCODING_INT8));
    CHECK(!can_name("a.weigh", BERTH_ENCODING_INT8));
    CHECK(!can_name("a.weights", BERTH_ENCODING_INT8));
    CHECK(!can_name("a.qweight", BERTH_ENCODING_INT8));
    CHECK(!can_name("a.weighs", BERTH_ENCODING_INT8));
    CHECK(!can_name("", BERTH_ENCODING_INT8));
    CHECK(can_name("experts.up", BERTH_ENCODING_NF4));
    CHECK(can_name("experts.up", BERTH_ENCODING_NATIVE));
}

/* ------------------------------------------------------------------ constants */

static void
test_constants(void)
{
    uint8_t bytes[BERTHI_STORED_CONSTANT_MAX];
    uint32_t fp4[16];

    CHECK_EQ(berthi_stored_constant(BERTHI_ROLE_MAP, BERTH_ENCODING_NF4, bytes), 64);
    CHECK_MEM(bytes, berthi_nf4_values, 64);
    memcpy(fp4, berthi_fp4_values, sizeof fp4);
    CHECK_EQ(fp4[8], 0x80000000);
    fp4[8] = 0;
    CHECK_EQ(berthi_stored_constant(BERTHI_ROLE_MAP, BERTH_ENCODING_FP4, bytes), 64);
    CHECK_MEM(bytes, fp4, 64);
    CHECK_EQ(berthi_stored_constant(BERTHI_ROLE_MAP2, BERTH_ENCODING_NF4, bytes), 1024);
    CHECK_MEM(bytes, berthi_signed_map, 1024);
    bytes[0] = 7;
    CHECK_EQ(berthi_stored_constant(BERTHI_ROLE_ROW_FORMAT, BERTH_ENCODING_INT8, bytes), 1);
    CHECK_EQ(bytes[0], 0);
    CHECK_EQ(berthi_stored_constant(BERTHI_ROLE_STATE, BERTH_ENCODING_NF4, bytes), 0);
    CHECK_EQ(berthi_stored_constant(BERTHI_ROLE_CODES, BERTH_ENCODING_NF4, bytes), 0);
}

static void
test_state(void)
{
    const uint64_t shape[] = { 2, 3, 4 };
    char text[BERTHI_STATE_TEXT_MAX];
    berthi_state state;

    berthi_stored_state(&fp4_double, shape, 3, 0.5f, &state);
    berthi_state_print(&state, text, sizeof text);
    CHECK_STR(text, "{\"quant_type\": \"fp4\", \"blocksize\": 32, \"dtype\": \"float16\", "
                    "\"shape\": [2, 3, 4], \"nested_blocksize\": 256, \"nested_dtype\": "
                    "\"float32\", \"nested_offset\": 0.5}");
    CHECK_EQ(state.elements, 24);
    berthi_stored_state(&nf4, shape, 1, 0.5f, &state);
    berthi_state_print(&state, text, sizeof text);
    CHECK_STR(text, "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": "
                    "\"bfloat16\", \"shape\": [2]}");
}

/* Printed and parsed again it is the same, to the last byte. */
static void
test_state_is_whole(void)
{
    const berthi_about place = { .file = "m" };
    const uint64_t shape[] = { 2, 3, 4 };
    char text[BERTHI_STATE_TEXT_MAX];
    berthi_state state;
    berthi_state parsed;
    size_t length;

    memset(&state, 0xA5, sizeof state);
    berthi_stored_state(&fp4_double, shape, 3, 0.5f, &state);
    length = berthi_state_print(&state, text, sizeof text);
    T_REQUIRE(berthi_state_parse(text, length, &place, &parsed, NULL) == BERTH_OK);
    CHECK_MEM(&state, &parsed, sizeof state);
}

static void
test_numbers(void)
{
    for (int32_t dtype = -1; dtype <= BERTH_DTYPE_COUNT; dtype++)
        CHECK_EQ(berthi_is_number(dtype),
                 dtype == BERTH_BF16 || dtype == BERTH_F16 || dtype == BERTH_F32);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lists);
    T_RUN(test_totals_are_the_formats);
    T_RUN(test_refusals);
    T_RUN(test_names);
    T_RUN(test_row_maxima_need_a_weight);
    T_RUN(test_constants);
    T_RUN(test_state);
    T_RUN(test_state_is_whole);
    T_RUN(test_numbers);
    T_MAIN_END;
}
