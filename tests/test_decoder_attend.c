/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and the choice of experts by plain loops: against doubles within what 32-bit
 * floats and one rounding leave, and cases worked out by hand.
 */
#include "tests/decoder_numbers.h"

/* ----------------------------------------------------------------- attention */

typedef struct attention {
    room queries;
    room keys;
    room values;
    room outputs;
} attention;

static attention t;

static double
attended(const berth_attend *s, uint32_t token, uint32_t head, uint32_t column)
{
    const uint64_t last = s->position + token;
    const uint64_t query = (token * s->heads + head) * s->width;
    const uint64_t cache = head / (s->heads / s->kv_heads) * s->capacity;
    double sum = 0.0;
    double shares = 0.0;

    for (uint64_t at = 0; at <= last; at++) {
        double product = 0.0;

        if (s->window != 0 && last - at >= s->window)
            continue;
        for (uint32_t k = 0; k < s->width; k++)
            product += number_of(&t.queries, s->dtype, query + k)
                       * number_of(&t.keys, s->cache_dtype, (cache + at) * s->width + k);
        product = exp(product / sqrt(s->width));
        shares += product;
        sum += product
               * number_of(&t.values, s->cache_dtype, (cache + at) * s->width + column);
    }
    return sum / shares;
}

static void
check_attend(uint32_t width, uint32_t position, uint64_t window, int32_t dtype,
             int32_t of_cache)
{
    const uint32_t capacity = position + 3;
    const berth_attend s = { .queries = t.queries.bytes,
                             .key_cache = t.keys.bytes,
                             .value_cache = t.values.bytes,
                             .outputs = t.outputs.bytes,
                             .dtype = dtype,
                             .cache_dtype = of_cache,
                             .count = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .width = width,
                             .position = position,
                             .capacity = capacity,
                             .window = window };

    fill(&t.queries, dtype, 2 * 4 * width, 3.0f);
    fill(&t.keys, of_cache, 2 * capacity * width, 2.0f);
    fill(&t.values, of_cache, 2 * capacity * width, 1.0f);
    CHECK_EQ(berthi_attend_check(&s, NULL), BERTH_OK);
    berthi_attend_run(&s);
    for (uint32_t i = 0; i < 2 * 4; i++)
        for (uint32_t k = 0; k < width; k += width < 16 ? 1 : 13)
            check_near(number_of(&t.outputs, dtype, i * width + k),
                       attended(&s, i / 4, i % 4, k), dtype, 2e-6, 1.0);
}

static void
test_attend(void)
{
    static const uint32_t widths[] = { 2, 6, 32, 64, 100, 256 };
    static const uint32_t positions[] = { 0, 1, 30, 31, 32, 33, 70 };
    static const uint64_t windows[] = { 0, 1, 2, 31, 32, 33, 64, 1000 };

    for (int w = 0; w < 6; w++)
        for (int p = 0; p < 7; p++)
            check_attend(widths[w], positions[p], windows[(w + p) % 8], dtypes[(w + p) % 3],
                         dtypes[p % 3]);
    for (int i = 0; i < 8; i++) {
        check_attend(4, 8 * 32 - 2, windows[i], BERTH_F32, BERTH_F32);
        check_attend(4, 900, windows[i], BERTH_F32, BERTH_F16);
    }
}

/* One query of two numbers over three positions. */
static void
run_small(const float *query, const float *keys, const float *values, uint64_t window,
          float *outputs)
{
    const berth_attend s = { .queries = query, .key_cache = keys, .value_cache = values,
                             .outputs = outputs, .dtype = BERTH_F32,
                             .cache_dtype = BERTH_F32, .count = 1, .heads = 1,
                             .kv_heads = 1, .width = 2, .position = 2, .capacity = 3,
                             .window = window };

    CHECK_EQ(berthi_attend_check(&s, NULL), BERTH_OK);
    berthi_attend_run(&s);
}

static void
test_attend_by_hand(void)
{
    const float values[6] = { 1.0f, 2.0f, 3.0f, 6.0f, 5.0f, 10.0f };
    const float same[6] = { 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f };
    const float apart[6] = { 0.0f, 0.0f, 1e6f, 0.0f, -1e6f, 0.0f };
    float keys[6] = { 0.0f, 0.0f, INFINITY, 0.0f, 0.0f, 0.0f };
    float query[2] = { 1.0f, 0.0f };
    float outputs[2];

    run_small(query, same, values, 0, outputs); /* their mean */
    CHECK(fabsf(outputs[0] - 3.0f) < 1e-6f && fabsf(outputs[1] - 6.0f) < 1e-6f);
    run_small(query, same, values, 2, outputs); /* of two it is exact */
    CHECK(outputs[0] == 4.0f && outputs[1] == 8.0f);
    run_small(query, same, values, 1, outputs); /* itself */
    CHECK(outputs[0] == 5.0f && outputs[1] == 10.0f);
    run_small(query, apart, values, 0, outputs); /* one far ahead of all */
    CHECK(outputs[0] == 3.0f && outputs[1] == 6.0f);
    run_small(query, apart, values, 1, query); /* in place */
    CHECK(query[0] == 5.0f && query[1] == 10.0f);
    query[1] = 1.0f;
    keys[2] = -INFINITY; /* has no share */
    run_small(query, keys, values, 0, outputs);
    CHECK(outputs[0] == 3.0f && outputs[1] == 6.0f);
    keys[2] = INFINITY; /* shares of infinity have no meaning */
    run_small(query, keys, values, 0, outputs);
    CHECK_EQ(berthi_core_bits(outputs[0]), QNAN);
    keys[2] = NAN;
    run_small(query, keys, values, 0, outputs);
    CHECK_EQ(berthi_core_bits(outputs[0]), QNAN);
    CHECK_EQ(berthi_core_bits(outputs[1]), QNAN);
    run_small(query, keys, values, 1, outputs); /* it is out of sight */
    CHECK(outputs[0] == 5.0f);
}

/* A whole tile that has no share, and one that has them all. */
static void
test_attend_to_none(void)
{
    const float query[2] = { 1.0f, 1.0f };
    float keys[33 * 2];
    float values[33 * 2];
    float outputs[2];
    berth_attend s = { .queries = query, .key_cache = keys, .value_cache = values,
                       .outputs = outputs, .dtype = BERTH_F32, .cache_dtype = BERTH_F32,
                       .count = 1, .heads = 1, .kv_heads = 1, .width = 2, .position = 32,
                       .capacity = 33 };

    for (uint32_t i = 0; i < 66; i++) {
        keys[i] = i < 64 ? -INFINITY : -3.0f;
        values[i] = (float)i;
    }
    berthi_attend_run(&s);
    CHECK(outputs[0] == 64.0f && outputs[1] == 65.0f);
    s.position = 31; /* shares of nothing have no meaning */
    berthi_attend_run(&s);
    CHECK_EQ(berthi_core_bits(outputs[0]), QNAN);
}

/* A query in a batch, and its bits alone. */
static void
test_attend_in_batches(void)
{
    const uint32_t width = 16;
    room alone;
    berth_attend s = { .queries = t.queries.bytes, .key_cache = t.keys.bytes,
                       .value_cache = t.values.bytes, .outputs = t.outputs.bytes,
                       .dtype = BERTH_F32, .cache_dtype = BERTH_BF16, .count = 5,
                       .heads = 2, .kv_heads = 1, .width = width, .position = 290,
                       .capacity = 300 };

    fill(&t.queries, BERTH_F32, 5 * 2 * width, 3.0f);
    fill(&t.keys, BERTH_BF16, 300 * width, 2.0f);
    fill(&t.values, BERTH_BF16, 300 * width, 1.0f);
    berthi_attend_run(&s);
    s.count = 1;
    for (uint32_t i = 0; i < 5; i++, s.position++) {
        s.queries = t.queries.bytes + (size_t)i * 2 * width * 4;
        s.outputs = alone.bytes;
        berthi_attend_run(&s);
        CHECK_MEM(alone.bytes, t.outputs.bytes + (size_t)i * 2 * width * 4,
                  2 * width * 4);
    }
}

/* ------------------------------------------------------------------- choices */

static void
check_choice(const float *logits, uint32_t experts, uint32_t used, bool is_renormalised,
             const uint32_t *numbers, const float *weights)
{
    uint32_t chosen[8];
    float shares[8];
    const berth_choose s = { .logits = logits, .numbers = chosen, .weights = shares,
                             .dtype = BERTH_F32, .is_renormalised = is_renormalised,
                             .count = 1, .experts = experts, .used = used };

    CHECK_EQ(berthi_choose_check(&s, NULL), BERTH_OK);
    berthi_choose_run(&s);
    CHECK_MEM(chosen, numbers, used * sizeof *chosen);
    for (uint32_t i = 0; i < used; i++)
        CHECK(berthi_core_bits(shares[i]) == berthi_core_bits(weights[i])
              || fabsf(shares[i] - weights[i]) < 1e-6f);
}

static void
check_largest(const float *values, uint32_t columns, uint32_t number)
{
    uint32_t its = UINT32_MAX;
    const berth_largest s = { .values = values, .numbers = &its, .dtype = BERTH_F32,
                              .count = 1, .columns = columns };

    CHECK_EQ(berthi_largest_check(&s, NULL), BERTH_OK);
    berthi_largest_run(&s);
    CHECK_EQ(its, number);
}

static void
test_largest_by_hand(void)
{
    check_largest((float[]){ 1.0f, 3.0f, 3.0f, 2.0f }, 4, 1);
    check_largest((float[]){ NAN, -1.0f, NAN }, 3, 1);
    check_largest((float[]){ NAN, -INFINITY }, 2, 0);
    check_largest((float[]){ -0.0f, 0.0f }, 2, 0);
    check_largest((float[]){ -5.0f }, 1, 0);
}

static void
test_choose_by_hand(void)
{
    const float some[5] = { 1.0f, 3.0f, 3.0f, 2.0f, 3.0f };
    const float none[3] = { NAN, -1.0f, NAN };
    const float lowest[2] = { -INFINITY, -INFINITY };
    const float zeroes[4] = { -0.0f, 0.0f, -0.0f, 0.0f };
    const double all = 3.0 + exp(-1.0) + exp(-2.0);
    const float thirds[3] = { (float)(1.0 / all), (float)(1.0 / all), (float)(1.0 / all) };
    const float of_four[4] = { 0.25f, 0.25f, 0.25f, 0.25f };
    const float no_number[2] = { berthi_core_float(QNAN), berthi_core_float(QNAN) };

    check_choice(some, 5, 1, true, (uint32_t[]){ 1 }, (float[]){ 1.0f });
    check_choice(some, 5, 1, false, (uint32_t[]){ 1 }, thirds);
    check_choice(some, 5, 2, false, (uint32_t[]){ 1, 2 }, thirds);
    check_choice(some, 5, 2, true, (uint32_t[]){ 1, 2 }, (float[]){ 0.5f, 0.5f });
    check_choice(some, 5, 3, false, (uint32_t[]){ 1, 2, 4 }, thirds);
    check_choice(some, 5, 4, true, (uint32_t[]){ 1, 2, 3, 4 },
                 (float[]){ (float)(1.0 / (3.0 + exp(-1.0))),
                            (float)(1.0 / (3.0 + exp(-1.0))),
                            (float)(exp(-1.0) / (3.0 + exp(-1.0))),
                            (float)(1.0 / (3.0 + exp(-1.0))) });
    check_choice(none, 3, 2, false, (uint32_t[]){ 0, 1 }, (float[]){ 0.0f, 1.0f });
    check_choice(lowest, 2, 1, true, (uint32_t[]){ 0 }, no_number);
    check_choice(zeroes, 4, 2, false, (uint32_t[]){ 0, 1 }, of_four);
    check_choice(zeroes, 4, 4, true, (uint32_t[]){ 0, 1, 2, 3 }, of_four);
}

/* Whether expert `e` comes before as many as `used` say. */
static bool
is_among(const room *logits, int32_t dtype, uint64_t first, uint32_t experts, uint32_t e,
         uint32_t used)
{
    const double own = number_of(logits, dtype, first + e);
    uint32_t better = 0;

    for (uint32_t k = 0; k < experts; k++) {
        const double its = number_of(logits, dtype, first + k);

        better += its > own || (its == own && k < e) ? 1 : 0;
    }
    return better < used;
}

static void
check_choose(uint32_t experts, uint32_t used, int32_t dtype, bool is_renormalised)
{
    static room logits;
    static uint32_t numbers[3 * 64];
    static float weights[3 * 64];
    const berth_choose s = { .logits = logits.bytes, .numbers = numbers, .weights = weights,
                             .dtype = dtype, .is_renormalised = is_renormalised,
                             .count = 3, .experts = experts, .used = used };

    fill(&logits, dtype, 3 * experts, 3.0f);
    CHECK_EQ(berthi_choose_check(&s, NULL), BERTH_OK);
    berthi_choose_run(&s);
    for (uint32_t token = 0; token < 3; token++) {
        const uint64_t first = (uint64_t)token * experts;
        uint32_t out = token * used;
        double sum = 0.0;

        for (uint32_t e = 0; e < experts; e++)
            if (!is_renormalised || is_among(&logits, dtype, first, experts, e, used))
                sum += exp(number_of(&logits, dtype, first + e));
        for (uint32_t e = 0; e < experts; e++)
            if (is_among(&logits, dtype, first, experts, e, used)) {
                CHECK_EQ(numbers[out], e);
                check_near((double)weights[out++],
                           exp(number_of(&logits, dtype, first + e)) / sum, BERTH_F32, 1e-6,
                           1.0);
            }
        CHECK_EQ(out, (token + 1) * used);
    }
}

static void
test_choose(void)
{
    static const uint32_t experts[] = { 1, 2, 8, 33, 64, 128, 1024 };

    for (int i = 0; i < 7; i++)
        for (int d = 0; d < 6; d++) {
            check_choose(experts[i], 1, dtypes[d % 3], d < 3);
            check_choose(experts[i], experts[i] < 8 ? experts[i] : 8, dtypes[d % 3], d < 3);
            if (experts[i] >= 64)
                check_choose(experts[i], 64, dtypes[d % 3], d < 3);
        }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_attend);
    T_RUN(test_attend_by_hand);
    T_RUN(test_attend_to_none);
    T_RUN(test_attend_in_batches);
    T_RUN(test_largest_by_hand);
    T_RUN(test_choose_by_hand);
    T_RUN(test_choose);
    T_MAIN_END;
}
