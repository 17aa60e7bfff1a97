/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_recorded_codes.c - what bitsandbytes 0.50.2 computed on an H200, every bit of it, by
 * every level: 4-bit codes with and without double quantization, 8-bit blocks, LLM.int8()
 * rows with and without outliers, the values that come back, means.
 *
 * tests/data/gpu/h200/bnb_codes.safetensors names its tensors DTYPE_ROWSxCOLUMNS.WHAT; of
 * larger ones it has the digest, WHAT.sha256. Inputs are made by the rule in source_value().
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/fixture.h"
#include "tests/recorded.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

#define PROCESSORS 132u /* of the GPU; they order the sums of the longest means */
#define PROCESSOR_THREADS 2048u

static const struct {
    const char *name;
    int32_t dtype;
} dtypes[] = { { "bf16", BERTH_BF16 }, { "f16", BERTH_F16 }, { "f32", BERTH_F32 } };

#define DTYPES (sizeof dtypes / sizeof *dtypes)

/* ---------------------------------------------------------------------- inputs */

/* Value `i`: a hash between -1 and 1, to the third power. */
static float
source_value(uint64_t i, uint64_t seed)
{
    uint64_t h = i * UINT64_C(6364136223846793005) + seed * UINT64_C(1442695040888963407);
    double t;

    h ^= h >> 29 | ((h >> 63) != 0 ? ~(UINT64_MAX >> 29) : 0); /* of a signed number */
    h *= (uint64_t)INT64_C(-4658895280553007687);
    t = (double)(h >> 32) / 0x1p31 - 1.0;
    return (float)(t * t * t * 0.05);
}

typedef struct source {
    char tag[32];
    int32_t dtype;
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    void *values;
    float *floats; /* the same, widened */
} source;

static source
make_source(size_t dtype, uint64_t rows, uint64_t columns)
{
    source s = { .dtype = dtypes[dtype].dtype, .rows = rows, .columns = columns,
                 .count = rows * columns };

    snprintf(s.tag, sizeof s.tag, "%s_%llux%llu", dtypes[dtype].name,
             (unsigned long long)rows, (unsigned long long)columns);
    s.values = weights_alloc(s.count * sizeof(float));
    s.floats = weights_alloc(s.count * sizeof(float));
    for (uint64_t i = 0; i < s.count; i++) {
        berthi_core_store(s.values, s.dtype, i, source_value(i, s.count));
        s.floats[i] = berthi_core_load(s.values, s.dtype, i);
    }
    return s;
}

/* --------------------------------------------------------------------- results */

typedef struct result {
    char what[40];
    uint8_t *bytes;
    uint64_t size;
} result;

/* All that a level makes of an input, in one order. */
typedef struct results {
    result at[64];
    uint32_t count;
} results;

/* Room for a result. */
__attribute__((format(printf, 3, 4))) static void *
add(results *r, uint64_t size, const char *what, ...)
{
    result *const one = &r->at[r->count++];
    va_list list;

    va_start(list, what);
    vsnprintf(one->what, sizeof one->what, what, list);
    va_end(list);
    one->size = size;
    one->bytes = weights_alloc(size);
    return one->bytes;
}

static uint64_t
bytes_of(int32_t dtype, uint64_t count)
{
    return count * berth_dtype_bits(dtype) / 8;
}

static void
encode_4bit(const berthi_operations *level, bool is_fp4, const berthi_encode_arguments *a)
{
    if (is_fp4)
        level->encode_fp4(a);
    else
        level->encode_nf4(a);
}

static void
decode_4bit(const berthi_operations *level, bool is_fp4, const berthi_decode_arguments *a)
{
    if (is_fp4)
        level->decode_fp4(a);
    else
        level->decode_nf4(a);
}

static void
add_4bit(results *r, const berthi_operations *level, const source *s, bool is_fp4,
         uint32_t block)
{
    const char *const type = is_fp4 ? "fp4" : "nf4";
    const uint64_t blocks = (s->count + block - 1) / block;
    uint8_t *const codes = add(r, (s->count + 1) / 2, "%s_%u.packed", type, block);
    float *const absmax = add(r, blocks * sizeof(float), "%s_%u.absmax", type, block);

    encode_4bit(level, is_fp4,
                &(berthi_encode_arguments){ s->values, s->dtype, block, s->count, NULL, codes,
                                            absmax });
    for (size_t d = 0; d < DTYPES; d++)
        decode_4bit(level, is_fp4,
                    &(berthi_decode_arguments){
                        codes, absmax, s->count, block, dtypes[d].dtype, NULL,
                        add(r, bytes_of(dtypes[d].dtype, s->count), "%s_%u.dequantized_%s", type,
                            block, dtypes[d].name) });
}

static float
mean_of(const berthi_operations *level, const float *values, uint64_t count)
{
    float *const partial = weights_alloc(
        berthi_mean_scratch(count, PROCESSORS, PROCESSOR_THREADS) * sizeof *partial);
    const float mean = berthi_mean(&(berthi_mean_arguments){
        .values = values, .count = count, .processors = PROCESSORS,
        .threads_per_processor = PROCESSOR_THREADS, .partial = partial,
        .add_rows = level->add_mean_rows });

    free(partial);
    return mean;
}

/* Blocks of 64 whose maxima are quantized, too. */
static void
add_double(results *r, const berthi_operations *level, const source *s, bool is_fp4)
{
    const char *const type = is_fp4 ? "fp4" : "nf4";
    const uint64_t blocks = (s->count + 63) / 64;
    const uint64_t blocks2 = (blocks + BERTHI_DOUBLE_BLOCK - 1) / BERTHI_DOUBLE_BLOCK;
    uint8_t *const codes = add(r, (s->count + 1) / 2, "%s_64_dq.packed", type);
    uint8_t *const absmax_codes = add(r, blocks, "%s_64_dq.absmax", type);
    float *const absmax2 = add(r, blocks2 * sizeof(float), "%s_64_dq.nested_absmax", type);
    float *const offset = add(r, sizeof *offset, "%s_64_dq.offset", type);
    float *const absmax = weights_alloc(blocks * sizeof *absmax);
    float *const scratch = weights_alloc(BERTHI_DOUBLE_SCRATCH * sizeof *scratch);
    berthi_double_arguments a;

    encode_4bit(level, is_fp4,
                &(berthi_encode_arguments){ s->values, s->dtype, 64, s->count, NULL, codes,
                                            absmax });
    *offset = mean_of(level, absmax, blocks);
    a = (berthi_double_arguments){ .absmax = absmax, .count = blocks, .codes = absmax_codes,
                                   .absmax2 = absmax2, .offset = *offset, .scratch = scratch,
                                   .map = berthi_signed_map };
    level->encode_double(&a);
    level->decode_double(&a, absmax);
    decode_4bit(level, is_fp4,
                &(berthi_decode_arguments){ codes, absmax, s->count, 64, s->dtype, NULL,
                                            add(r, bytes_of(s->dtype, s->count),
                                                "%s_64_dq.dequantized", type) });
    free(absmax);
    free(scratch);
}

static void
add_blocks(results *r, const berthi_operations *level, const source *s, uint32_t block)
{
    level->encode_map(&(berthi_encode_arguments){
        s->floats, BERTH_F32, block, s->count, berthi_signed_map,
        add(r, s->count, "b8_%u.codes", block),
        add(r, (s->count + block - 1) / block * sizeof(float), "b8_%u.absmax", block) });
}

/* Columns with outliers are listed, if only by a list of none. */
static void
add_rows(results *r, const berthi_operations *level, const source *s, const char *threshold)
{
    uint8_t *const is_outlier = weights_alloc(s->columns);
    int64_t *columns;
    uint64_t outliers = 0;

    level->encode_activations(&(berthi_activation_arguments){
        .values = s->values, .dtype = s->dtype, .rows = s->rows, .columns = s->columns,
        .threshold = strtof(threshold, NULL),
        .codes = add(r, s->count, "int8_%s.codes", threshold),
        .row_maximum = add(r, s->rows * sizeof(float), "int8_%s.stats", threshold),
        .is_outlier = is_outlier });
    for (uint64_t k = 0; k < s->columns; k++)
        outliers += is_outlier[k];
    if (strtof(threshold, NULL) > 0.0f) {
        columns = add(r, outliers * sizeof *columns, "int8_%s.columns", threshold);
        for (uint64_t k = 0; k < s->columns; k++)
            if (is_outlier[k] != 0)
                *columns++ = (int64_t)k;
    }
    free(is_outlier);
}

static results
make_results(const berthi_operations *level, const source *s)
{
    static const uint32_t blocks[] = { 64, 128, 4096 };
    static const uint32_t map_blocks[] = { 64, 256, 4096 };
    results r = { .count = 0 };

    memcpy(add(&r, bytes_of(s->dtype, s->count), "input"), s->values,
           bytes_of(s->dtype, s->count));
    for (int is_fp4 = 0; is_fp4 < 2; is_fp4++) {
        for (size_t b = 0; b < 3; b++)
            add_4bit(&r, level, s, is_fp4 != 0, blocks[b]);
        add_double(&r, level, s, is_fp4 != 0);
    }
    for (size_t b = 0; b < 3; b++)
        add_blocks(&r, level, s, map_blocks[b]);
    if (s->dtype == BERTH_F16) {
        add_rows(&r, level, s, "0.0");
        add_rows(&r, level, s, "0.03");
    }
    return r;
}

static void
free_results(results *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        free(r->at[i].bytes);
}

/* ------------------------------------------------------------------- comparing */

static vectors recording;
static bool *is_seen; /* tensors of it */

static bool
has_digest(const result *one, const uint8_t *digest)
{
    char wanted[65];
    char got[65];

    for (int i = 0; i < 32; i++)
        snprintf(wanted + 2 * i, 3, "%02x", digest[i]);
    fixture_sha256(one->bytes, one->size, got);
    return CHECK_STR(got, wanted);
}

/* With the tensor that was recorded, or its digest. */
static void
check_recorded(const char *tag, const result *one)
{
    const char *const digest = fixture_format("%s.sha256", one->what);
    const berthi_entry *entry = vectors_find(&recording, tag, one->what);
    bool is_same;

    if (entry != NULL) {
        is_same = CHECK_EQ(entry->end - entry->begin, one->size)
                  && CHECK_MEM(one->bytes, vectors_data(&recording, entry), one->size);
    } else {
        entry = vectors_find(&recording, tag, digest);
        is_same = CHECK(entry != NULL) && has_digest(one, vectors_data(&recording, entry));
    }
    if (entry != NULL)
        is_seen[entry - recording.header.entries] = true;
    if (!is_same)
        T_NOTE("%s.%s", tag, one->what);
}

/* The reference against the recording, every level against the reference. */
static void
check_source(size_t dtype, uint64_t rows, uint64_t columns)
{
    source s = make_source(dtype, rows, columns);
    results reference = make_results(weights_level(0), &s);

    for (uint32_t i = 0; i < reference.count; i++)
        check_recorded(s.tag, &reference.at[i]);
    for (uint32_t l = 1; weights_level(l) != NULL; l++) {
        results r = make_results(weights_level(l), &s);

        CHECK_EQ(r.count, reference.count);
        for (uint32_t i = 0; i < r.count; i++)
            if (!CHECK_EQ(r.at[i].size, reference.at[i].size)
                || !CHECK_MEM(r.at[i].bytes, reference.at[i].bytes, r.at[i].size))
                T_NOTE("%s: %s.%s", weights_level(l)->level, s.tag, r.at[i].what);
        free_results(&r);
    }
    free_results(&reference);
    free(s.values);
    free(s.floats);
}

static void
test_every_tensor(void)
{
    static const uint64_t shapes[][2] = { { 256, 256 }, { 37, 300 }, { 1, 1 },     { 3, 21 },
                                          { 1, 63 },    { 129, 65 }, { 2048, 320 } };
    uint64_t seen = 0;

    T_REQUIRE(vectors_has_opened(&recording, RECORDED_FOLDER "bnb_codes.safetensors"));
    is_seen = calloc(recording.header.entry_count, sizeof *is_seen);
    T_REQUIRE(is_seen != NULL);
    for (size_t d = 0; d < DTYPES; d++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            check_source(d, shapes[k][0], shapes[k][1]);
    for (uint64_t i = 0; i < recording.header.entry_count; i++)
        seen += is_seen[i];
    CHECK_EQ(seen, recording.header.entry_count);
    T_NOTE("%llu tensors", (unsigned long long)seen);
    free(is_seen);
    vectors_close(&recording);
}

/* "130560": 1011581118 of bnb_means.json: a length, and the bits of the mean. */
static void
test_means(void)
{
    size_t bytes;
    char *const text = fixture_read(RECORDED_FOLDER "bnb_means.json", &bytes);
    uint32_t means = 0;

    for (const char *at = strchr(text, '"'); at != NULL; at = strchr(at, '"')) {
        unsigned long long count;
        unsigned bits;
        float *values;

        T_REQUIRE(sscanf(at, "\"%llu\": %u", &count, &bits) == 2);
        values = weights_alloc(count * sizeof *values);
        for (uint64_t i = 0; i < count; i++)
            values[i] = fabsf(source_value(i, count));
        for (uint32_t l = 0; weights_level(l) != NULL; l++)
            if (!CHECK_EQ(berthi_core_bits(mean_of(weights_level(l), values, count)), bits))
                T_NOTE("%s: of %llu values", weights_level(l)->level, count);
        free(values);
        at = strchr(at, ':');
        means++;
    }
    CHECK_EQ(means, 23);
    free(text);
}

static uint32_t
row_maximum_bits(const berthi_operations *level, const float *row, uint64_t columns)
{
    uint8_t is_outlier[96];
    int8_t codes[96];
    float maximum;

    level->encode_activations(&(berthi_activation_arguments){
        .values = row, .dtype = BERTH_F32, .rows = 1, .columns = columns, .threshold = 0.5f,
        .codes = codes, .row_maximum = &maximum, .is_outlier = is_outlier });
    return berthi_core_bits(maximum);
}

/* As f16_1x1.int8_0.03.stats: with nothing but outliers and NaN the maximum is -0. */
static void
test_rows_without_values(void)
{
    for (uint64_t columns = 1; columns <= 96; columns += 5) {
        float row[96];

        for (uint64_t k = 0; k < columns; k++)
            row[k] = k % 3 == 1 ? NAN : 1.0f;
        for (uint32_t l = 0; weights_level(l) != NULL; l++)
            CHECK_EQ(row_maximum_bits(weights_level(l), row, columns), 0x80000000u);
        row[columns / 2] = -0.0f;
        for (uint32_t l = 0; weights_level(l) != NULL; l++)
            CHECK_EQ(row_maximum_bits(weights_level(l), row, columns), 0);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_tensor);
    T_RUN(test_means);
    T_RUN(test_rows_without_values);
    T_MAIN_END;
}
