/* SPDX-License-Identifier: Apache-2.0 */
/* test_state.c - the state blob of bitsandbytes' 4-bit weights. */
#include "quant/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"

#define PLAIN                                                                              \
    "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "               \
    "\"shape\": [4096, 14336]}"
#define NESTED                                                                             \
    "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "               \
    "\"shape\": [4096, 4096], \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "  \
    "\"nested_offset\": 0.044628698378801346}"

static const berthi_about place = { .file = "m.safetensors", .tensor = "w.quant_state",
                                    .tensor_length = 13 };

static berth_status
parse_bytes(const char *text, size_t bytes, berthi_state *out, berth_error *error)
{
    char copy[4096];

    memcpy(copy, text, bytes);
    return berthi_state_parse(copy, bytes, &place, out, error);
}

static berthi_state
parse(const char *text)
{
    berthi_state state;
    berth_error error;

    if (!CHECK_EQ(parse_bytes(text, strlen(text), &state, &error), BERTH_OK))
        T_NOTE("%s: %s", text, error.message);
    return state;
}

static void
check_refused_at(const char *text, size_t bytes, uint64_t position, const char *why)
{
    berthi_state state;
    berth_error error;

    CHECK_EQ(parse_bytes(text, bytes, &state, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_STATE_JSON);
    CHECK_STR(error.file, "m.safetensors");
    CHECK_STR(error.tensor, "w.quant_state");
    CHECK_EQ(error.has, BERTH_HAS_POSITION);
    if (position != UINT64_MAX)
        CHECK_EQ(error.position, position);
    if (!CHECK_CONTAINS(error.message, why))
        T_NOTE("text: %s", text);
}

static void
check_refused(const char *text, const char *why)
{
    check_refused_at(text, strlen(text), UINT64_MAX, why);
}

static void
test_plain(void)
{
    const berthi_state s = parse(PLAIN);

    CHECK_EQ(strlen(PLAIN), 83);
    CHECK_EQ(s.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(s.block_size, 64);
    CHECK_EQ(s.dtype, BERTH_BF16);
    CHECK_EQ(s.rank, 2);
    CHECK_EQ(s.shape[0], 4096);
    CHECK_EQ(s.shape[1], 14336);
    CHECK_EQ(s.elements, UINT64_C(4096) * 14336);
    CHECK_EQ(s.is_double, false);
}

static void
test_nested(void)
{
    const berthi_state s = parse(NESTED);

    CHECK_EQ(strlen(NESTED), 173);
    CHECK_EQ(s.is_double, true);
    CHECK_EQ(s.nested_dtype, BERTH_F32);
    CHECK(s.offset == 0.044628698378801346f);
    CHECK_EQ(s.rank, 2);
    CHECK_EQ(s.elements, UINT64_C(4096) * 4096);
}

static void
test_other_order_and_space(void)
{
    const berthi_state s = parse("\n{ \"shape\":[3],\"dtype\" : \"float16\",\t"
                                 "\"blocksize\":4096,\"quant_type\":\"fp4\" } ");

    CHECK_EQ(s.encoding, BERTH_ENCODING_FP4);
    CHECK_EQ(s.block_size, 4096);
    CHECK_EQ(s.dtype, BERTH_F16);
    CHECK_EQ(s.rank, 1);
    CHECK_EQ(s.elements, 3);
}

static berthi_state
parse_shape(const char *shape)
{
    return parse(fixture_format("{\"quant_type\": \"nf4\", \"blocksize\": 32, \"dtype\": "
                                "\"float32\", \"shape\": %s}", shape));
}

static void
check_shape_refused(const char *shape, const char *why)
{
    check_refused(fixture_format("{\"quant_type\": \"nf4\", \"blocksize\": 32, \"dtype\": "
                                 "\"float32\", \"shape\": %s}", shape), why);
}

static void
test_shapes(void)
{
    char longest[300] = "[1";
    berthi_state s = parse_shape("[]");

    CHECK_EQ(s.rank, 0);
    CHECK_EQ(s.elements, 1);
    s = parse_shape("[0, 7]");
    CHECK_EQ(s.elements, 0);
    s = parse_shape("[2, 3, 5]");
    CHECK_EQ(s.rank, 3);
    CHECK_EQ(s.elements, 30);
    s = parse_shape("[4294967296, 4294967295]");
    CHECK_EQ(s.elements, UINT64_C(4294967296) * 4294967295);
    for (unsigned i = 1; i < 64; i++)
        strcat(longest, ",1");
    s = parse_shape(fixture_format("%s]", longest));
    CHECK_EQ(s.rank, 64);
    check_shape_refused(fixture_format("%s,1]", longest), "more than 64 dims");
    check_shape_refused("[4294967296, 4294967296]", "more than 2^64 elements");
    check_shape_refused("[1.0]", "");
    check_shape_refused("[-1]", "");
    check_shape_refused("[\"1\"]", "");
    check_shape_refused("[1,]", "");
    check_shape_refused("4", "");
    check_shape_refused("null", "");
}

static void
check_member(const char *member, const char *why)
{
    /* The member stands first, so a repeated key is not what is told. */
    check_refused(fixture_format("{%s, \"nested_dtype\": \"float32\"}", member), why);
}

static void
test_values(void)
{
    check_member("\"quant_type\": \"int4\"", "neither nf4 nor fp4");
    check_member("\"quant_type\": \"NF4\"", "neither nf4 nor fp4");
    check_member("\"quant_type\": 4", "");
    check_member("\"blocksize\": 63", "no power of two from 32 to 4096");
    check_member("\"blocksize\": 0", "no power of two");
    check_member("\"blocksize\": 8192", "no power of two");
    check_member("\"blocksize\": 64.0", "");
    check_member("\"blocksize\": 4294967360", "no power of two");
    check_member("\"dtype\": \"float64\"", "none of float16, bfloat16, float32");
    check_member("\"dtype\": \"torch.float16\"", "none of float16");
    check_member("\"dtype\": \"uint8\"", "none of float16");
    check_member("\"dtype\": null", "");
    check_member("\"nested_blocksize\": 128", "nested_blocksize is not 256");
    check_member("\"nested_blocksize\": \"256\"", "");
    check_member("\"nested_offset\": \"0.5\"", "");
    check_refused("{\"nested_dtype\": \"int8\"}", "none of float16");
    check_refused("{\"nested_dtype\": 32}", "");
}

static void
test_offsets(void)
{
    static const char *const texts[] = { "NaN", "Infinity", "-Infinity", "-1e-05", "0.0",
                                         "1e+16", "0.044628698378801346" };
    static const float values[] = { 0, INFINITY, -INFINITY, -1e-05f, 0.0f, 1e+16f,
                                    0.044628698378801346f };

    for (unsigned i = 0; i < 7; i++) {
        const berthi_state s = parse(fixture_format(
            "{\"quant_type\": \"fp4\", \"blocksize\": 64, \"dtype\": \"float16\", "
            "\"shape\": [2, 2], \"nested_blocksize\": 256, \"nested_dtype\": \"bfloat16\", "
            "\"nested_offset\": %s}", texts[i]));

        CHECK(i == 0 ? isnan(s.offset) : s.offset == values[i]);
        CHECK_EQ(s.nested_dtype, BERTH_BF16);
        CHECK_EQ(s.is_double, true);
    }
}

/* The whole blob with one key left out, for each key. */
static void
test_missing_keys(void)
{
    static const char *const members[] = {
        "\"quant_type\": \"nf4\"", "\"blocksize\": 64",  "\"dtype\": \"float16\"",
        "\"shape\": [2]",          "\"nested_blocksize\": 256",
        "\"nested_dtype\": \"float32\"", "\"nested_offset\": 1.0"
    };
    static const char *const names[] = { "quant_type", "blocksize", "dtype", "shape",
                                         "nested_blocksize", "nested_dtype",
                                         "nested_offset" };

    for (unsigned left_out = 0; left_out < 7; left_out++) {
        char text[400] = "{";

        for (unsigned i = 0; i < 7; i++)
            if (i != left_out) {
                if (strlen(text) > 1)
                    strcat(text, ", ");
                strcat(text, members[i]);
            }
        strcat(text, "}");
        check_refused_at(text, strlen(text), strlen(text),
                         fixture_format("it lacks %s", names[left_out]));
    }
    check_refused("{}", "it lacks quant_type");
}

static void
test_unknown_and_repeated_keys(void)
{
    check_refused("{\"quant_type\": \"nf4\", \"extra\": 1}", "an unknown key");
    check_refused("{\"Quant_type\": \"nf4\"}", "an unknown key");
    check_refused("{\"quant_type\": \"nf4\", \"quant_type\": \"nf4\"}", "a key stands twice");
    check_refused("{\"blocksize\": 64, \"block\\u0073ize\": 64}", "a key stands twice");
}

/* What transformers saves of weights that it has divided: one state behind another. */
static void
test_joined(void)
{
    static const char one[] = "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": "
                              "\"bfloat16\", \"shape\": [4, 64]}";
    const char *const two = fixture_format("%s%s", one, one);

    check_refused_at(two, strlen(two), strlen(one), "of several weights are joined");
    check_refused(fixture_format("%s}", one), "something stands behind the end");
    check_refused(fixture_format("%s [", one), "something stands behind the end");
    check_refused("{\"quant_type\": {}}", "");
}

static void
test_no_json(void)
{
    check_refused_at("", 0, 0, "");
    check_refused_at(PLAIN "x", 84, 83, "");
    check_refused_at(PLAIN "\0", 84, 83, "");
    check_refused_at(PLAIN, 82, 82, "");
    check_refused_at("\xff", 1, 0, "not UTF-8");
    check_refused_at("{\"\xc0\"", 4, 2, "not UTF-8");
    check_refused("[]", "");
    check_refused("7", "");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_plain);
    T_RUN(test_nested);
    T_RUN(test_other_order_and_space);
    T_RUN(test_shapes);
    T_RUN(test_values);
    T_RUN(test_offsets);
    T_RUN(test_missing_keys);
    T_RUN(test_unknown_and_repeated_keys);
    T_RUN(test_joined);
    T_RUN(test_no_json);
    T_MAIN_END;
}
