/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_state_print.c - states as text: Python's numbers, the blobs that the
 * real library wrote, and texts that are cut.
 */
#define _POSIX_C_SOURCE 200809L

#include "quant/state.h"

#include <glob.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/comma.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vectors.h"

#define GOLDEN "../shared/golden/quant"

static const struct {
    uint32_t bits;
    const char *text;
} offsets[] = {
#include "tests/data/offsets.inc"
};

#define OFFSETS (sizeof offsets / sizeof *offsets)

static const berthi_about place = { .file = "m", .tensor = "w", .tensor_length = 1 };

static float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static berthi_state
double_state(float offset)
{
    const berthi_state state = { .encoding = BERTH_ENCODING_NF4, .dtype = BERTH_BF16,
                                 .block_size = 64, .rank = 2, .shape = { 4096, 4096 },
                                 .elements = UINT64_C(1) << 24, .is_double = true,
                                 .nested_dtype = BERTH_F32, .offset = offset };

    return state;
}

#define NESTED                                                                             \
    "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "               \
    "\"shape\": [4096, 4096], \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "  \
    "\"nested_offset\": "

/* The whole text, which is expected to have room. */
static const char *
print(const berthi_state *state)
{
    static char text[BERTHI_STATE_TEXT_MAX];
    const size_t length = berthi_state_print(state, text, sizeof text);

    CHECK_EQ(length, strlen(text));
    return text;
}

static void
check_offset(uint32_t bits, const char *text)
{
    const berthi_state state = double_state(float_of(bits));

    CHECK_STR(print(&state), fixture_format(NESTED "%s}", text));
}

static void
check_offsets(void)
{
    for (size_t i = 0; i < OFFSETS; i++)
        check_offset(offsets[i].bits, offsets[i].text);
}

static void
test_offsets_are_python_numbers(void)
{
    CHECK_GT(OFFSETS, 180);
    check_offsets();
    check_offset(0x7f800000, "Infinity");
    check_offset(0xff800000, "-Infinity");
    check_offset(0x7fc00000, "NaN");
    check_offset(0xffc00001, "NaN");
}

/* A locale with a decimal comma changes nothing. */
static void
test_locale(void)
{
    if (!comma_is_set())
        T_SKIP("no locale with a decimal comma can be had");
    check_offsets();
    setlocale(LC_NUMERIC, "C");
}

/* Digits of a number's text from its first to its last that is not 0. */
static int
digits_of(const char *text)
{
    int digits = 0;
    int last = 0;

    text += strspn(text, "-0.");
    for (; *text != '\0' && *text != 'e' && *text != '}'; text++) {
        digits += *text != '.';
        if (*text >= '1')
            last = digits;
    }
    return last;
}

/* Shortest: read as a double again it is the same, and with a digit less it is not. */
static void
test_offsets_come_back(void)
{
    for (uint32_t i = 1; i < 100000; i++) {
        const uint32_t bits = i * UINT32_C(2654435761) & 0x7fffffff;
        const berthi_state state = double_state(float_of(bits));
        const double value = (double)state.offset;
        const char *text;
        char *end;
        int digits;

        if (bits >= 0x7f800000)
            continue;
        text = print(&state) + strlen(NESTED);
        digits = digits_of(text);
        if (!CHECK(strtod(text, &end) == value) || !CHECK_STR(end, "}")
            || !CHECK(digits < 3
                      || strtod(fixture_format("%.*e", digits - 2, value), NULL) != value))
            T_NOTE("bits %08x: %s", bits, text);
    }
}

static void
test_plain(void)
{
    berthi_state state = { .encoding = BERTH_ENCODING_FP4, .dtype = BERTH_F16,
                           .block_size = 4096, .rank = 3, .offset = 7.0f,
                           .shape = { 18446744073709551615u, 0, 10 } };

    CHECK_STR(print(&state), "{\"quant_type\": \"fp4\", \"blocksize\": 4096, \"dtype\": "
                             "\"float16\", \"shape\": [18446744073709551615, 0, 10]}");
    CHECK_EQ(berthi_state_guess(&state), strlen(print(&state)));
    state.rank = 0;
    state.dtype = BERTH_F32;
    CHECK_STR(print(&state), "{\"quant_type\": \"fp4\", \"blocksize\": 4096, \"dtype\": "
                             "\"float32\", \"shape\": []}");
    state.is_double = true;
    state.nested_dtype = BERTH_BF16;
    CHECK_STR(print(&state), "{\"quant_type\": \"fp4\", \"blocksize\": 4096, \"dtype\": "
                             "\"float32\", \"shape\": [], \"nested_blocksize\": 256, "
                             "\"nested_dtype\": \"bfloat16\", \"nested_offset\": 7.0}");
}

static void
test_guess_is_of_twenty_characters(void)
{
    const berthi_state usual = double_state(0.044628698378801346f); /* 20 characters */
    const berthi_state nan = double_state(NAN);

    CHECK_EQ(berthi_state_guess(&usual), 173);
    CHECK_EQ(strlen(print(&usual)), 173);
    CHECK_EQ(berthi_state_guess(&nan), 173);
}

/* Whatever the room: the same length, as much of the text as fits, and a NUL. */
static void
test_cut(void)
{
    const berthi_state state = double_state(-1.1754943508222875e-38f);
    const char *const whole = print(&state);
    const size_t length = strlen(whole);
    char text[300];

    CHECK_EQ(berthi_state_print(&state, NULL, 0), length);
    for (size_t capacity = 1; capacity < length + 3; capacity++) {
        const size_t kept = capacity - 1 < length ? capacity - 1 : length;

        memset(text, 'x', sizeof text);
        CHECK_EQ(berthi_state_print(&state, text, capacity), length);
        CHECK_MEM(text, whole, kept);
        CHECK_EQ(text[kept], '\0');
        CHECK_EQ(text[kept + 1], 'x');
    }
}

/* The longest there is fits. */
static void
test_longest(void)
{
    berthi_state state = double_state(-1.1754943508222875e-38f);

    state.rank = BERTH_MAX_RANK;
    for (uint32_t i = 0; i < BERTH_MAX_RANK; i++)
        state.shape[i] = UINT64_MAX;
    state.dtype = BERTH_BF16;
    state.nested_dtype = BERTH_BF16;
    state.block_size = 4096;
    CHECK_LT(berthi_state_print(&state, NULL, 0), BERTHI_STATE_TEXT_MAX);
    CHECK_EQ(strlen(print(&state)), berthi_state_print(&state, NULL, 0));
}

/* ------------------------------------------------- blobs of the real library */

static unsigned blobs;

/* Parsed and printed, a blob is what it was. */
static void
check_blob(const char *text, size_t length)
{
    char *const copy = malloc(length + 1);
    berthi_state state;
    berth_error error;

    T_REQUIRE(copy != NULL);
    memcpy(copy, text, length);
    if (CHECK_EQ(berthi_state_parse(copy, length, &place, &state, &error), BERTH_OK)) {
        CHECK_EQ(strlen(print(&state)), length);
        CHECK_MEM(print(&state), text, length);
    }
    free(copy);
    blobs++;
}

static void
check_lines(const char *path)
{
    char *const lines = fixture_read(path, NULL);
    char *rest = lines;

    for (char *line = strtok_r(lines, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *const blob = strstr(line, "{\"quant_type\"");

        if (blob != NULL)
            check_blob(blob, strlen(blob));
    }
    free(lines);
}

static void
test_blobs_of_small_copies(void)
{
    blobs = 0;
    check_lines("tests/data/quant/opt_nf4_dq.txt");
    check_lines("tests/data/quant/llama_nf4_bf16storage.txt");
    check_lines("tests/data/quant/t5_nf4_fp16.txt");
    CHECK_GE(blobs, 14 * 3);
}

static void
check_file(const char *path)
{
    vectors v;

    T_REQUIRE(vectors_has_opened(&v, path));
    for (uint64_t i = 0; i < v.header.entry_count; i++) {
        const berthi_entry *const e = &v.header.entries[i];

        if (strstr(berthi_entry_name(v.header.text, e), ".quant_state.") != NULL)
            check_blob(vectors_data(&v, e), (size_t)(e->end - e->begin));
    }
    vectors_close(&v);
}

static void
check_files(const char *pattern)
{
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            check_file(found.gl_pathv[i]);
    globfree(&found);
}

static void
test_blobs_of_recorded_checkpoints(void)
{
    blobs = 0;
    check_files(GOLDEN "/*/*/*.safetensors");
    check_files(GOLDEN "/*/canonical_*.safetensors");
    if (blobs == 0)
        T_SKIP("no recorded checkpoints at " GOLDEN);
    CHECK_GT(blobs, 200);
    T_NOTE("%u blobs", blobs);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_offsets_are_python_numbers);
    T_RUN(test_locale);
    T_RUN(test_offsets_come_back);
    T_RUN(test_plain);
    T_RUN(test_guess_is_of_twenty_characters);
    T_RUN(test_cut);
    T_RUN(test_longest);
    T_RUN(test_blobs_of_small_copies);
    T_RUN(test_blobs_of_recorded_checkpoints);
    T_MAIN_END;
}
