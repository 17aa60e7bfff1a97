/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a decoder's layer by plain loops, but for attention and choices: against
 * doubles within what 32-bit floats and one rounding leave, and cases worked out by hand to
 * the bit. test_simt_decoder.c and test_device_decoder.c hold the rest to these.
 */
#include "kernels/digest.h"
#include "tests/decoder_numbers.h"

/* -------------------------------------------------------------- exponentials */

static void
check_exp(float value)
{
    const double expected = exp((double)value);
    const float actual = berthi_core_exp(value);
    const double ulp = expected < 0x1p-126 ? 0x1p-149 : ldexp(1.0, ilogb(expected) - 23);

    if ((float)expected == actual)
        return;
    if (!(fabs((double)actual - expected) < ulp))
        CHECK_EQ(berthi_core_bits(actual), berthi_core_bits((float)expected));
}

static void
test_exp(void)
{
    static const float edges[] = { 0.0f, -0.0f, 1.0f, -1.0f, 88.722839f, 88.722832f, 88.8f,
                                   89.0f, 90.0f, 1e30f, INFINITY, -87.3f, -87.4f, -103.2f,
                                   -103.9f, -103.98f, -104.0f, -105.0f, -1e30f, -INFINITY,
                                   1e-40f, -1e-40f, 0x1p-24f, -0x1p-25f, 0.34657359f };

    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        check_exp(edges[i]);
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
        const float value = berthi_core_float((uint32_t)bits);

        if (value == value)
            check_exp(value);
    }
    CHECK_EQ(berthi_core_bits(berthi_core_exp(0.0f)), 0x3F800000);
    CHECK(berthi_core_exp(NAN) != berthi_core_exp(NAN));
    CHECK(berthi_core_exp(-104.0f) == 0.0f);
    CHECK(berthi_core_exp(88.8f) == INFINITY);
}

/* The bits, which no processor and compiler may change. */
static void
test_bits_of_exp(void)
{
    uint32_t crc = 0;

    for (uint32_t i = 0; i < 20000; i++) {
        const float power = berthi_core_exp(((float)i - 10400.0f) * 0.01f);

        crc = berthi_digest_crc32(crc, &power, sizeof power);
    }
    CHECK_EQ(crc, 0xCEE7081B);
}

/* --------------------------------------------------------------------- rows */

static void
test_take(void)
{
    static const uint32_t numbers[] = { 6, 0, 8, 9, UINT32_MAX, 6 };
    static const uint64_t expected[] = { 3, 0, 4, 4, 99, 3 };
    static room table;
    static room outputs;

    for (int d = 0; d < 9; d++) {
        const berth_take s = { .table = table.bytes,
                               .table_dtype = dtypes[d % 3],
                               .dtype = dtypes[d / 3],
                               .numbers = numbers,
                               .rows = d % 2 == 0 ? 4 : 5,
                               .columns = 7,
                               .count = 6,
                               .share = 2,
                               .outputs = outputs.bytes };

        fill(&table, s.table_dtype, 5 * 7, 3.0f);
        memset(&outputs, 0xA5, sizeof outputs);
        CHECK_EQ(berthi_take_check(&s, NULL), BERTH_OK);
        berthi_take_run(&s);
        for (uint32_t i = 0; i < 42; i++) {
            const uint64_t row = expected[i / 7];
            const float value =
                row < s.rows ? (float)number_of(&table, s.table_dtype, row * 7 + i % 7)
                             : 0.0f;

            CHECK(number_of(&outputs, s.dtype, i)
                  == (double)berthi_core_rounded(value, s.dtype));
        }
        CHECK_EQ(outputs.bytes[42 * (s.dtype == BERTH_F32 ? 4 : 2)], 0xA5);
    }
}

static void
check_norm(uint64_t columns, int32_t from, int32_t of_weight, int32_t to)
{
    static room inputs;
    static room weight;
    static room outputs;
    const berth_norm s = { .inputs = inputs.bytes, .weight = weight.bytes,
                           .outputs = outputs.bytes, .inputs_dtype = from,
                           .weight_dtype = of_weight, .dtype = to, .epsilon = 1e-3f,
                           .count = 3, .columns = columns };

    fill(&inputs, from, (uint32_t)(3 * columns), 2.0f);
    fill(&weight, of_weight, (uint32_t)columns, 1.5f);
    CHECK_EQ(berthi_norm_check(&s, NULL), BERTH_OK);
    berthi_norm_run(&s);
    for (uint64_t i = 0; i < 3; i++) {
        double squares = 0.0;

        for (uint64_t k = 0; k < columns; k++)
            squares += number_of(&inputs, from, i * columns + k)
                       * number_of(&inputs, from, i * columns + k);
        for (uint64_t k = 0; k < columns; k++) {
            const double expected = number_of(&weight, of_weight, k)
                                    * number_of(&inputs, from, i * columns + k)
                                    / sqrt(squares / (double)columns + (double)s.epsilon);

            check_near(number_of(&outputs, to, i * columns + k), expected, to, 1e-6,
                       fabs(expected));
        }
    }
}

/* The bytes of a sum and of its norm, whatever is added; a row at a time and in place. */
static void
test_norm_of_sums(void)
{
    for (int d = 0; d < 9; d++) {
        static room weight;
        static room added;
        static room expected;
        static float sums[2][3 * 300];
        const int32_t of = dtypes[d % 3];
        berth_norm s = { .inputs = sums[0], .weight = weight.bytes, .outputs = expected.bytes,
                         .inputs_dtype = BERTH_F32, .weight_dtype = of, .dtype = dtypes[d / 3],
                         .epsilon = 1e-3f, .count = 3, .columns = 300 };

        fill(&weight, of, 300, 1.5f);
        fill(&added, dtypes[d / 3], 3 * 300, 2.0f);
        for (int i = 0; i < 3 * 300; i++)
            sums[0][i] = sums[1][i] = i == 7 ? NAN : (float)(i % 13) - 6.0f;
        berthi_add_run(&(berth_add){ .sums = sums[0], .values = added.bytes,
                                     .dtype = dtypes[d / 3], .count = 3, .sum_rows = 3,
                                     .columns = 300 });
        berthi_norm_run(&s);
        s.inputs = NULL;
        s.sums = sums[1];
        s.added = s.outputs = added.bytes;
        s.added_dtype = dtypes[d / 3];
        CHECK_EQ(berthi_norm_check(&s, NULL), BERTH_OK);
        berthi_norm_run(&s);
        CHECK_MEM(sums[1], sums[0], sizeof sums[0]);
        CHECK_MEM(added.bytes, expected.bytes, 3 * 300 * (s.dtype == BERTH_F32 ? 4u : 2u));
    }
}

static void
test_norm(void)
{
    static const uint64_t columns[] = { 1, 2, 31, 32, 33, 255, 256, 257, 1000, 4099 };
    float pair[2] = { 3.0f, 4.0f };
    const float weight[2] = { 1.0f, 2.0f };
    berth_norm s = { .inputs = pair, .weight = weight, .outputs = pair,
                     .inputs_dtype = BERTH_F32, .weight_dtype = BERTH_F32,
                     .dtype = BERTH_F32, .epsilon = 3.5f, .count = 1, .columns = 2 };

    for (int c = 0; c < 10; c++)
        for (int d = 0; d < 27; d++)
            check_norm(columns[c], dtypes[d % 3], dtypes[d / 3 % 3], dtypes[d / 9]);
    berthi_norm_run(&s); /* in place: the root of 12.5 and 3.5 */
    CHECK(pair[0] == 0.75f && pair[1] == 2.0f);
    pair[0] = NAN;
    berthi_norm_run(&s);
    CHECK_EQ(berthi_core_bits(pair[0]), QNAN);
    CHECK_EQ(berthi_core_bits(pair[1]), QNAN);
}

/* --------------------------------------------------------------------- heads */

typedef struct heads {
    room queries;
    room keys;
    room values;
    room query_norm;
    room key_norm;
    room angles;
    room key_cache;
    room value_cache;
    room before[3]; /* queries and caches */
} heads;

static heads h;

/* What becomes of element `i` of a head that begins at `first`. */
static double
rotated(const berth_rotate *s, const room *from, uint64_t first, const room *norm, uint32_t token,
        uint32_t i)
{
    const uint32_t half = s->width / 2;
    const uint32_t pair = i % half;
    const double cosine = number_of(&h.angles, BERTH_F32, token * s->width + pair);
    const double sine = number_of(&h.angles, BERTH_F32, token * s->width + half + pair);
    double two[2] = { number_of(from, s->dtype, first + pair),
                      number_of(from, s->dtype, first + half + pair) };
    double squares = 0.0;

    for (uint32_t k = 0; k < s->width; k++)
        squares += pow(number_of(from, s->dtype, first + k), 2.0);
    for (uint32_t k = 0; k < 2 && norm != NULL; k++)
        two[k] *= number_of(norm, s->norm_dtype, pair + k * half)
                  / sqrt(squares / s->width + (double)s->epsilon);
    return i < half ? two[0] * cosine - two[1] * sine : two[1] * cosine + two[0] * sine;
}

/* All of a cache: what was placed, and what stays. */
static void
check_cache(const berth_rotate *s, const room *cache, const room *before, bool is_keys)
{
    for (uint32_t head = 0; head < s->kv_heads; head++)
        for (uint64_t at = 0; at < s->capacity; at++)
            for (uint32_t i = 0; i < s->width; i++) {
                const uint64_t place = (head * s->capacity + at) * s->width + i;
                const uint32_t token = (uint32_t)(at - s->position);
                const uint64_t from = (token * s->kv_heads + head) * s->width;
                const double actual = number_of(cache, s->cache_dtype, place);

                if (at < s->position || token >= s->count)
                    CHECK(actual == number_of(before, s->cache_dtype, place));
                else if (is_keys)
                    check_near(actual,
                               rotated(s, &h.keys, from,
                                       s->key_norm != NULL ? &h.key_norm : NULL, token, i),
                               s->cache_dtype, 1e-6, 8.0);
                else
                    CHECK(actual
                          == (double)berthi_core_rounded(
                              (float)number_of(&h.values, s->dtype, from + i),
                              s->cache_dtype));
            }
}

static void
check_rotate(uint32_t width, int32_t dtype, int32_t of_norm, int32_t of_cache)
{
    const bool has_norm = width % 4 == 0;
    const berth_rotate s = { .queries = h.queries.bytes,
                             .keys = h.keys.bytes,
                             .values = h.values.bytes,
                             .query_norm = has_norm ? h.query_norm.bytes : NULL,
                             .key_norm = has_norm ? h.key_norm.bytes : NULL,
                             .angles = (const float *)(const void *)h.angles.bytes,
                             .key_cache = h.key_cache.bytes,
                             .value_cache = h.value_cache.bytes,
                             .dtype = dtype,
                             .norm_dtype = of_norm,
                             .cache_dtype = of_cache,
                             .epsilon = 1e-4f,
                             .count = 3,
                             .heads = 6,
                             .kv_heads = 2,
                             .width = width,
                             .position = 4,
                             .capacity = 9 };

    fill(&h.queries, dtype, 3 * 6 * width, 2.0f);
    fill(&h.keys, dtype, 3 * 2 * width, 2.0f);
    fill(&h.values, dtype, 3 * 2 * width, 2.0f);
    fill(&h.query_norm, of_norm, width, 1.5f);
    fill(&h.key_norm, of_norm, width, 1.5f);
    fill(&h.angles, BERTH_F32, 3 * width, 1.0f);
    fill(&h.key_cache, of_cache, 2 * 9 * width, 1.0f);
    fill(&h.value_cache, of_cache, 2 * 9 * width, 1.0f);
    h.before[0] = h.queries;
    h.before[1] = h.key_cache;
    h.before[2] = h.value_cache;
    CHECK_EQ(berthi_rotate_check(&s, NULL), BERTH_OK);
    berthi_rotate_run(&s);
    for (uint32_t i = 0; i < 3 * 6 * width; i++)
        check_near(number_of(&h.queries, dtype, i),
                   rotated(&s, &h.before[0], i / width * width,
                           has_norm ? &h.query_norm : NULL, i / width / 6, i % width),
                   dtype, 1e-6, 8.0);
    check_cache(&s, &h.key_cache, &h.before[1], true);
    check_cache(&s, &h.value_cache, &h.before[2], false);
}

static void
test_rotate(void)
{
    static const uint32_t widths[] = { 2, 6, 64, 100, 126, 256 };
    static const float quarter[4] = { 0.0f, 1.0f, 1.0f, 0.0f }; /* cosines, sines */
    float query[4] = { 1.0f, 2.0f, 3.0f, 4.0f };
    const float key[4] = { 5.0f, 6.0f, 7.0f, 8.0f };
    float caches[2][4];
    const berth_rotate s = { .queries = query, .keys = key, .values = key,
                             .angles = quarter, .key_cache = caches[0],
                             .value_cache = caches[1], .dtype = BERTH_F32,
                             .cache_dtype = BERTH_F32, .count = 1, .heads = 1,
                             .kv_heads = 1, .width = 4, .capacity = 1 };
    static const float turned[2][4] = { { -3.0f, 2.0f, 1.0f, 4.0f },
                                        { -7.0f, 6.0f, 5.0f, 8.0f } };

    for (int d = 0; d < 27; d++)
        for (int w = 0; w < 6; w++)
            check_rotate(widths[w], dtypes[d % 3], dtypes[d / 3 % 3], dtypes[d / 9]);
    CHECK_EQ(berthi_rotate_check(&s, NULL), BERTH_OK);
    berthi_rotate_run(&s); /* the first pair by a quarter, the second stays */
    CHECK_MEM(query, turned[0], sizeof query);
    CHECK_MEM(caches[0], turned[1], sizeof caches[0]);
    CHECK_MEM(caches[1], key, sizeof caches[1]);
}

/* ------------------------------------------------------------------ elements */

static void
test_gate(void)
{
    static const float edges[] = { 0.0f, -0.0f, 100.0f, -100.0f, 1e30f, -1e30f, 1e-40f };
    static room gate;
    static room up;
    static room before;
    float value;
    berth_gate s = { .gate = gate.bytes, .up = up.bytes };

    for (int d = 0; d < 3; d++) {
        s.dtype = dtypes[d];
        s.elements = 5000;
        fill(&gate, s.dtype, 5001, 20.0f);
        fill(&up, s.dtype, 5001, 3.0f);
        before = gate;
        CHECK_EQ(berthi_gate_check(&s, NULL), BERTH_OK);
        berthi_gate_run(&s);
        for (uint32_t i = 0; i < 5000; i++) {
            const double from = number_of(&before, s.dtype, i);
            const double expected = from / (1.0 + exp(-from)) * number_of(&up, s.dtype, i);

            check_near(number_of(&gate, s.dtype, i), expected, s.dtype, 4e-7, fabs(expected));
        }
        CHECK(number_of(&gate, s.dtype, 5000) == number_of(&before, s.dtype, 5000));
    }
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        value = berthi_core_gate(edges[i], 1.0f);
        CHECK(edges[i] > 1.0f    ? value == edges[i]
              : edges[i] < -1.0f ? value == 0.0f
                                 : value == edges[i] / 2.0f);
    }
    value = NAN;
    s = (berth_gate){ .gate = &value, .up = up.bytes, .elements = 1, .dtype = BERTH_F32 };
    berthi_gate_run(&s);
    CHECK_EQ(berthi_core_bits(value), QNAN);
}

/* The order counts: what is small is lost beside what is large. */
static void
test_add(void)
{
    static const uint32_t rows[] = { 2, 5, 1, 6, 3, UINT32_MAX, 2 };
    static const float weights[] = { 9.0f, 2.0f, 1.0f, 0.5f, 9.0f, -1.0f, 3.0f };
    const float values[14] = { 0x1p24f, 1.0f, 1.0f, 2.0f, 3.0f,  4.0f, 5.0f,
                               6.0f,    2.0f, 8.0f, 9.0f, 10.0f, 1.0f, 1.0f };
    float sums[8] = { 1.0f, 1.0f, 0.0f, 0.0f, 10.0f, 20.0f, 7.0f, 7.0f };
    /* The last row is none of them. */
    static const float expected[8] =
        { 1.0f + 2.0f * 3.0f, 1.0f + 2.0f * 4.0f, 0x1p24f, 6.0f, 9.0f, 18.0f, 7.0f, 7.0f };
    uint16_t halves[2] = { 0x4000, 0x7E01 };
    berth_add s = { .sums = sums, .values = values, .rows = rows, .weights = weights,
                    .dtype = BERTH_F32, .share = 2, .count = 7, .sum_rows = 3,
                    .columns = 2 };

    CHECK_EQ(berthi_add_check(&s, NULL), BERTH_OK);
    berthi_add_run(&s);
    /* In row 1 two ones, each lost beside 2^24; together they would not be. */
    CHECK_MEM(sums, expected, sizeof sums);
    s = (berth_add){ .sums = sums, .values = halves, .dtype = BERTH_F16, .count = 2,
                     .sum_rows = 2, .columns = 1 };
    CHECK_EQ(berthi_add_check(&s, NULL), BERTH_OK);
    berthi_add_run(&s);
    CHECK(sums[0] == 9.0f);
    CHECK_EQ(berthi_core_bits(sums[1]), QNAN);
    s.sum_rows = 1; /* the second has no sum */
    berthi_add_run(&s);
    CHECK(sums[0] == 11.0f && sums[2] == expected[2]);
    s.share = 2; /* both belong to the first */
    berthi_add_run(&s);
    CHECK_EQ(berthi_core_bits(sums[0]), QNAN);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_exp);
    T_RUN(test_bits_of_exp);
    T_RUN(test_take);
    T_RUN(test_norm);
    T_RUN(test_norm_of_sums);
    T_RUN(test_rotate);
    T_RUN(test_gate);
    T_RUN(test_add);
    T_MAIN_END;
}
