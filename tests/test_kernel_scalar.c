/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference loops against vectors of the real library: every case of
 * tests/data/vectors.safetensors, and of the full recordings where they lie
 * beside the project. Bits are compared, NaN with NaN. Codes are those of the
 * correctly rounded reciprocal, and made those of a GPU's: see recorded.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/recorded.h"
#include "tests/t.h"
#include "tests/vectors.h"

static const struct {
    const char *name;
    const char *canonical;
    int32_t dtype;
} outputs[] = {
    { "dequant_fp32", "dequant_fp32_canonical", BERTH_F32 },
    { "dequant_bf16", "dequant_bf16_canonical", BERTH_BF16 },
    { "dequant_fp16", "dequant_fp16_canonical", BERTH_F16 },
};

static uint8_t *deltas; /* of the recorded reciprocals */
static uint64_t changed; /* codes, by them */

/* ----------------------------------------------------------- blocks, both ways */

typedef struct block_operations {
    void (*encode)(const berthi_encode_arguments *arguments);
    void (*decode)(const berthi_decode_arguments *arguments);
    int32_t encoding; /* of packed codes; else BERTH_ENCODING_NATIVE */
} block_operations;

static void
check_blocks(const vectors *v, const char *prefix, const block_operations *ops)
{
    const int64_t *const params = vectors_either(v, prefix, "params", "params");
    const berthi_entry *const input = vectors_find(v, prefix, "input");
    const bool is_packed = ops->encoding != BERTH_ENCODING_NATIVE;
    const char *const codes_name = is_packed ? "packed" : "codes";
    const void *const canonical = vectors_either(
        v, prefix, is_packed ? "packed_canonical" : "codes_canonical", codes_name);
    const void *const absmax = vectors_either(v, prefix, "absmax_canonical", "absmax");
    const uint64_t count = (uint64_t)params[1];
    const uint32_t block = (uint32_t)params[0];
    const uint64_t blocks = (count + block - 1) / block;
    const uint64_t code_bytes = is_packed ? (count + 1) / 2 : count;
    const uint32_t *const map = is_packed        ? NULL
                                : params[2] != 0 ? berthi_unsigned_map
                                                 : berthi_signed_map;
    uint8_t *const codes = recorded_vector(
        deltas, v, prefix,
        &(recorded_weight){ ops->encoding, map, vectors_data(v, input), input->dtype, count,
                            block },
        canonical, &changed);
    uint8_t *const got_codes = calloc(1, code_bytes + 1);
    float *const got_absmax = calloc(blocks + 1, sizeof(float));
    uint8_t *const got_values = malloc(count * 4 + 4);

    T_REQUIRE(got_codes != NULL && got_absmax != NULL && got_values != NULL);
    got_codes[code_bytes] = 0xA5;
    ops->encode(&(berthi_encode_arguments){ vectors_data(v, input), input->dtype, block, count,
                                            map, got_codes, got_absmax });
    if (!CHECK_MEM(got_codes, codes, code_bytes) || !CHECK_EQ(got_codes[code_bytes], 0xA5)
        || !CHECK_MEM(got_absmax, absmax, blocks * sizeof(float)))
        T_NOTE("encode %s", prefix);
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        const void *const values = vectors_either(v, prefix, outputs[i].canonical, outputs[i].name);

        if (values == NULL)
            continue;
        ops->decode(&(berthi_decode_arguments){
            vectors_either(v, prefix, codes_name, codes_name),
            vectors_either(v, prefix, "absmax", "absmax"), count, block, outputs[i].dtype, map,
            got_values });
        if (!CHECK(vectors_are_same(got_values, values, count, outputs[i].dtype)))
            T_NOTE("decode %s %s", prefix, outputs[i].name);
    }
    free(codes);
    free(got_codes);
    free(got_absmax);
    free(got_values);
}

static void
check_nf4(const vectors *v, const char *prefix)
{
    check_blocks(v, prefix,
                 &(block_operations){ berthi_scalar_operations.encode_nf4,
                                      berthi_scalar_operations.decode_nf4, BERTH_ENCODING_NF4 });
}

static void
check_fp4(const vectors *v, const char *prefix)
{
    check_blocks(v, prefix,
                 &(block_operations){ berthi_scalar_operations.encode_fp4,
                                      berthi_scalar_operations.decode_fp4, BERTH_ENCODING_FP4 });
}

static void
check_map8(const vectors *v, const char *prefix)
{
    check_blocks(v, prefix,
                 &(block_operations){ berthi_scalar_operations.encode_map,
                                      berthi_scalar_operations.decode_map,
                                      BERTH_ENCODING_NATIVE });
}

/* -------------------------------------------------------- double quantization */

static float
mean_of(const float *values, uint64_t count, int is_old_order)
{
    float *const partial = malloc(berthi_mean_scratch(count, 132, 2048) * sizeof(float));
    float mean;

    if (partial == NULL)
        abort();
    mean = berthi_mean(
        &(berthi_mean_arguments){ .values = values, .count = count,
                                  .is_old_order = is_old_order, .partial = partial });
    free(partial);
    return mean;
}

static void
check_double(const vectors *v, const char *prefix)
{
    const berthi_entry *const entry = vectors_find(v, prefix, "statistics");
    const float *const statistics = vectors_data(v, entry);
    const uint64_t count = berthi_entry_elements(v->header.text, entry);
    const uint64_t blocks = (count + 255) / 256;
    const float *const offset = vectors_either(v, prefix, "offset", "offset");
    const float *const old_offset = vectors_either(v, prefix, "offset_old_order",
                                           "offset_old_order");
    uint8_t *const codes = malloc(count);
    float *const floats = malloc((count + blocks + BERTHI_DOUBLE_SCRATCH) * sizeof(float));
    berthi_double_arguments a;

    T_REQUIRE(codes != NULL && floats != NULL);
    CHECK_EQ(berthi_core_bits(mean_of(statistics, count, 0)), berthi_core_bits(*offset));
    if (old_offset != NULL)
        CHECK_EQ(berthi_core_bits(mean_of(statistics, count, 1)),
                 berthi_core_bits(*old_offset));
    a = (berthi_double_arguments){ .absmax = statistics, .count = count, .codes = codes,
                                   .absmax2 = floats + count, .offset = *offset,
                                   .scratch = floats + count + blocks,
                                   .map = berthi_signed_map };
    berthi_scalar_operations.encode_double(&a);
    CHECK_MEM(codes, vectors_either(v, prefix, "codes", "codes"), count);
    CHECK_MEM(a.absmax2, vectors_either(v, prefix, "nested_absmax", "nested_absmax"),
              blocks * sizeof(float));
    berthi_scalar_operations.decode_double(&a, floats);
    CHECK_MEM(floats, vectors_either(v, prefix, "recovered", "recovered"), count * sizeof(float));
    free(codes);
    free(floats);
}

/* What the library made on a CPU must be read bit for bit, too. */
static void
check_double_of_cpu(const vectors *v, const char *prefix)
{
    const berthi_entry *const entry = vectors_find(v, prefix, "cpu_recovered");
    const uint64_t count = berthi_entry_elements(v->header.text, entry);
    float *const got = malloc(count * sizeof(float));
    uint8_t *const codes = malloc(count);
    float *const absmax2 = malloc((count / 256 + 1) * sizeof(float));

    T_REQUIRE(got != NULL && codes != NULL && absmax2 != NULL);
    memcpy(codes, vectors_either(v, prefix, "cpu_codes", "cpu_codes"), count);
    memcpy(absmax2, vectors_either(v, prefix, "cpu_nested_absmax", "cpu_nested_absmax"),
           (count + 255) / 256 * sizeof(float));
    berthi_scalar_operations.decode_double(
        &(berthi_double_arguments){
            .count = count, .codes = codes, .absmax2 = absmax2,
            .offset = *(const float *)vectors_either(v, prefix, "cpu_offset", "cpu_offset"),
            .map = berthi_signed_map },
        got);
    CHECK_MEM(got, vectors_data(v, entry), count * sizeof(float));
    free(got);
    free(codes);
    free(absmax2);
}

/* ------------------------------------------------------------------ LLM.int8() */

static void
check_int8(const vectors *v, const char *prefix)
{
    const berthi_entry *const input = vectors_find(v, prefix, "input");
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t count;
    int8_t *codes;
    uint8_t *wanted;
    float *maximum;
    uint8_t *values;

    /* Activations with outlier columns are another operation. */
    if (vectors_find(v, prefix, "scb") == NULL || vectors_find(v, prefix, "columns") != NULL)
        return;
    berthi_entry_shape(v->header.text, input, shape);
    count = shape[0] * shape[1];
    codes = malloc(count);
    maximum = malloc(shape[0] * sizeof(float));
    values = malloc(count * 4);
    T_REQUIRE(codes != NULL && maximum != NULL && values != NULL);
    berthi_scalar_operations.encode_rows(&(berthi_rows_arguments){
        vectors_data(v, input), input->dtype, shape[0], shape[1], codes, maximum });
    wanted = recorded_vector(
        deltas, v, prefix,
        &(recorded_weight){ BERTH_ENCODING_INT8, NULL, vectors_data(v, input),
                            input->dtype, count, shape[1] },
        vectors_either(v, prefix, "codes", "codes"), &changed);
    CHECK_MEM(codes, wanted, count);
    CHECK_MEM(maximum, vectors_either(v, prefix, "scb", "scb"), shape[0] * sizeof(float));
    /* Decoded were those of the other reciprocal. */
    memcpy(codes, vectors_either(v, prefix, "codes", "codes"), count);
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
            codes, maximum, shape[0], shape[1], outputs[i].dtype, values });
        CHECK(vectors_are_same(values, vectors_either(v, prefix, outputs[i].name, "?"), count,
                              outputs[i].dtype));
    }
    free(codes);
    free(wanted);
    free(maximum);
    free(values);
}

/* ----------------------------------------------------------------------- mean */

static float *
mean_input(uint64_t count, uint64_t seed)
{
    float *const x = malloc(count * sizeof(float));

    if (x == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t hash = (uint32_t)((i + seed) * UINT64_C(2654435761));

        x[i] = 0.03125f + (float)(hash >> 9) * 0x1p-29f;
    }
    return x;
}

static void
check_means(const vectors *v, const char *prefix)
{
    const berthi_entry *const entry = vectors_find(v, prefix, "mean_current");
    const float *const current = vectors_data(v, entry);
    const float *const old = vectors_either(v, prefix, "mean_old", "mean_old");
    const int64_t *const lengths = vectors_either(v, prefix, "L", "L");
    const int64_t *const seed = vectors_either(v, prefix, "seed", "seed");
    const uint64_t cases = berthi_entry_elements(v->header.text, entry);

    for (uint64_t i = 0; i < cases; i++) {
        const uint64_t count = (uint64_t)lengths[i];
        float *const x = mean_input(count, (uint64_t)*seed);

        if (count >= 8)
            CHECK_MEM(x, vectors_either(v, prefix, "first8", "first8"), 8 * sizeof(float));
        CHECK_EQ(berthi_core_bits(mean_of(x, count, 0)), berthi_core_bits(current[i]));
        CHECK_EQ(berthi_core_bits(mean_of(x, count, 1)), berthi_core_bits(old[i]));
        free(x);
    }
}

/* -------------------------------------------------------------------- the tests */

#define TRIMMED "tests/data/vectors.safetensors"
#define FULL "../shared/golden/quant/vectors_"

typedef void case_function(const vectors *v, const char *prefix);

/* Runs the trimmed cases of a group, and all of the full recording if it is there. */
static void
run_group(const char *group, const char *marker, const char *full, unsigned least,
          case_function *test)
{
    vectors v;
    unsigned count;

    T_REQUIRE(vectors_has_opened(&v, TRIMMED));
    count = vectors_each(&v, group, marker, test);
    CHECK_GE(count, least);
    vectors_close(&v);
    if (full == NULL || !vectors_has_opened(&v, full))
        return;
    count += vectors_each(&v, "", marker, test);
    vectors_close(&v);
    T_NOTE("%s: %u cases, %llu codes of a GPU are other ones", group, count,
           (unsigned long long)changed);
    changed = 0;
}

static void
test_nf4_equals_the_library(void)
{
    run_group("nf4/", "params", FULL "nf4.safetensors", 50, check_nf4);
}

static void
test_fp4_equals_the_library(void)
{
    run_group("fp4/", "params", FULL "fp4.safetensors", 50, check_fp4);
}

static void
test_8_bit_equals_the_library(void)
{
    run_group("map8/", "params", FULL "blockwise8.safetensors", 14, check_map8);
}

static void
test_double_quantization(void)
{
    run_group("double/", "statistics", FULL "doublequant.safetensors", 8, check_double);
}

static void
test_double_quantization_made_on_a_cpu(void)
{
    run_group("double/", "cpu_recovered", FULL "doublequant.safetensors", 7,
              check_double_of_cpu);
}

static void
test_int8_rows(void)
{
    run_group("int8/", "codes", FULL "int8.safetensors", 8, check_int8);
}

/* One lane in 32 has a fifth value: by hand, where the old order first takes fours. */
static void
test_old_mean_of_129(void)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        float *const x = mean_input(129, seed);
        float lane[32];

        for (uint32_t k = 0; k < 32; k++) {
            const float first = k == 0 ? x[0] + x[128] : x[4 * k];

            lane[k] = first + x[4 * k + 1] + x[4 * k + 2] + x[4 * k + 3];
        }
        for (uint32_t step = 1; step < 32; step *= 2)
            for (uint32_t k = 0; k + step < 32; k++)
                lane[k] += lane[k + step];
        CHECK_EQ(berthi_core_bits(mean_of(x, 129, 1)),
                 berthi_core_bits(lane[0] * (1.0f / 129.0f)));
        free(x);
    }
}

static void
test_mean_in_both_orders(void)
{
    run_group("mean", "L", NULL, 1, check_means);
}

/* fp16 both ways, every pattern; to fp16 at every rounding border. */
static void
test_fp16_conversions(void)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float value = berthi_core_from_fp16((uint16_t)h);
        const bool is_nan = (h & 0x7FFF) > 0x7C00;

        CHECK_EQ(berthi_core_to_fp16(value), is_nan ? 0x7FFF : h);
        if ((h & 0x7FFF) < 0x7BFF) { /* a finite one with a finite neighbour */
            const float next = berthi_core_from_fp16((uint16_t)(h + 1));
            const float middle = (value + next) / 2; /* exact in fp32 */

            CHECK_EQ(berthi_core_to_fp16(middle), h % 2 == 0 ? h : h + 1);
            CHECK_EQ(berthi_core_to_fp16(nextafterf(middle, value)), h);
            CHECK_EQ(berthi_core_to_fp16(nextafterf(middle, next)), h + 1);
        }
    }
    CHECK_EQ(berthi_core_to_fp16(65519.996f), 0x7BFF);
    CHECK_EQ(berthi_core_to_fp16(65520.0f), 0x7C00);
    CHECK_EQ(berthi_core_to_fp16(-65520.0f), 0xFC00);
}

static void
test_bf16_conversions(void)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float value = berthi_core_from_bf16((uint16_t)h);
        const bool is_nan = (h & 0x7FFF) > 0x7F80;
        const uint32_t up = (h << 16) + 0x8000u;

        CHECK_EQ(berthi_core_to_bf16(value), is_nan ? 0x7FFF : h);
        if ((h & 0x7FFF) < 0x7F80) {
            CHECK_EQ(berthi_core_to_bf16(berthi_core_float(up - 1)), h);
            CHECK_EQ(berthi_core_to_bf16(berthi_core_float(up)), h + (h & 1));
            CHECK_EQ(berthi_core_to_bf16(berthi_core_float(up + 1)), h + 1);
        }
    }
}

static void
test_flush_and_reciprocal(void)
{
    CHECK_EQ(berthi_core_bits(berthi_core_flush(berthi_core_float(0x007FFFFF))), 0);
    CHECK_EQ(berthi_core_bits(berthi_core_flush(berthi_core_float(0x807FFFFF))),
             0x80000000u);
    CHECK_EQ(berthi_core_bits(berthi_core_flush(berthi_core_float(0x00800000))),
             0x00800000u);
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(0.0f)), 0x7F800000u);
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(-0.0f)), 0xFF800000u);
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(berthi_core_float(1))), 0x7F800000u);
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(0x1p126f)), 0x00800000u);
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(0x1.000002p126f)), 0);
    CHECK_EQ(berthi_core_bits(berthi_core_reciprocal(-INFINITY)), 0x80000000u);
    CHECK(berthi_core_reciprocal(NAN) != berthi_core_reciprocal(NAN));
    CHECK_EQ(berthi_core_bits(berthi_core_multiply_flush(0x1p-100f, -0x1p-100f)),
             0x80000000u);
}

/* Quiet or signaling, first or last: the maximum of the others is kept. */
static void
test_absmax_ignores_every_nan(void)
{
    static const uint32_t nans[] = { 0x7FC00000, 0x7F800001, 0xFFBFFFFF, 0xFFFFFFFF };

    for (int i = 0; i < 4; i++) {
        const float nan = berthi_core_float(nans[i]);

        CHECK_EQ(berthi_core_bits(berthi_core_absmax_step(3.0f, nan)), 0x40400000);
        CHECK_EQ(berthi_core_bits(berthi_core_absmax_step(0.0f, nan)), 0);
    }
    CHECK_EQ(berthi_core_bits(berthi_core_absmax_step(1.0f, -3.0f)), 0x40400000);
    CHECK_EQ(berthi_core_bits(berthi_core_absmax_step(1.0f, INFINITY)), 0x7F800000);
    CHECK_EQ(berthi_core_bits(berthi_core_absmax_step(0.0f, berthi_core_float(0x007FFFFF))),
             0);
    CHECK_EQ(berthi_core_bits(berthi_core_absmax_step(berthi_core_absmax_seed(true), 0.0f)),
             0);
}

/* A chunk that ends on a block gives the same bytes as the whole. */
static void
test_results_do_not_depend_on_the_cut(void)
{
    enum { COUNT = 64 * 7 + 13 };
    float *const x = mean_input(COUNT, 3);
    uint8_t whole[(COUNT + 1) / 2];
    uint8_t cut[(COUNT + 1) / 2];
    float whole_absmax[8];
    float cut_absmax[8];

    for (int first = 64; first < COUNT; first += 64) {
        berthi_encode_arguments a = { x, BERTH_F32, 64, COUNT, NULL, whole, whole_absmax };

        berthi_scalar_operations.encode_nf4(&a);
        a.count = (uint64_t)first;
        a.codes = cut;
        a.absmax = cut_absmax;
        berthi_scalar_operations.encode_nf4(&a);
        a.values = x + first;
        a.count = (uint64_t)(COUNT - first);
        a.codes = cut + first / 2;
        a.absmax = cut_absmax + first / 64;
        berthi_scalar_operations.encode_nf4(&a);
        CHECK_MEM(cut, whole, sizeof whole);
        CHECK_MEM(cut_absmax, whole_absmax, sizeof whole_absmax);
    }
    free(x);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    deltas = recorded_open();
    T_RUN(test_nf4_equals_the_library);
    T_RUN(test_fp4_equals_the_library);
    T_RUN(test_8_bit_equals_the_library);
    T_RUN(test_double_quantization);
    T_RUN(test_double_quantization_made_on_a_cpu);
    T_RUN(test_int8_rows);
    T_RUN(test_mean_in_both_orders);
    T_RUN(test_old_mean_of_129);
    T_RUN(test_fp16_conversions);
    T_RUN(test_bf16_conversions);
    T_RUN(test_flush_and_reciprocal);
    T_RUN(test_absmax_ignores_every_nan);
    T_RUN(test_results_do_not_depend_on_the_cut);
    free(deltas);
    T_MAIN_END;
}
