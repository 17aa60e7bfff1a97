/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders of weights that others stored quantized, against what the real
 * library decodes. The trimmed cases of tests/data begin at row 120 of their
 * tensor, so that a border of blocks of 128 rows lies inside.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/t.h"
#include "tests/vectors.h"

static vectors file;
static bool is_full; /* the full recording: tensors from their first row */

typedef struct grid {
    uint64_t block_rows;
    uint64_t block_columns;
} grid;

static void
check(const char *name, void (*decode)(const berthi_source_arguments *arguments),
      uint64_t values_per_byte, uint64_t first_row, grid blocks, const char *want,
      int32_t dtype)
{
    const berthi_entry *const weight = vectors_find(&file, name, "weight");
    const berthi_entry *const scales = vectors_find(&file, name, "weight_scale_inv");
    const berthi_entry *const expected = vectors_find(&file, name, want);
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t scale_shape[BERTH_MAX_RANK];
    berthi_source_arguments a;
    uint8_t *values;

    T_REQUIRE(weight != NULL && scales != NULL && expected != NULL);
    berthi_entry_shape(file.header.text, weight, shape);
    berthi_entry_shape(file.header.text, scales, scale_shape);
    values = malloc(expected->end - expected->begin);
    T_REQUIRE(values != NULL);
    a = (berthi_source_arguments){ .codes = vectors_data(&file, weight),
                                   .scales = vectors_data(&file, scales),
                                   .scale_dtype = scales->dtype,
                                   .rows = shape[0],
                                   .columns = shape[1] * values_per_byte,
                                   .first_row = is_full ? 0 : first_row,
                                   .block_rows = blocks.block_rows,
                                   .block_columns = blocks.block_columns,
                                   .scale_columns = scale_shape[1],
                                   .dtype = dtype,
                                   .values = values };
    decode(&a);
    CHECK(vectors_are_same(values, vectors_data(&file, expected), shape[0] * a.columns,
                           dtype));
    free(values);
}

static const grid by_128 = { 128, 128 };

static void
test_fp8_blocks(void)
{
    check("fp8_f32", berthi_decode_e4m3, 1, 120, by_128, "f32", BERTH_F32);
    check("fp8_f32", berthi_decode_e4m3, 1, 120, by_128, "bf16", BERTH_BF16);
}

static void
test_fp8_partial_blocks(void)
{
    check("fp8_partial", berthi_decode_e4m3, 1, 120, by_128, "f32", BERTH_F32);
    check("fp8_partial", berthi_decode_e4m3, 1, 120, by_128, "bf16", BERTH_BF16);
}

/* All 256 codes. */
static void
test_fp8_every_code(void)
{
    check("fp8_all", berthi_decode_e4m3, 1, 0, by_128, "f32", BERTH_F32);
    check("fp8_all", berthi_decode_e4m3, 1, 0, by_128, "bf16", BERTH_BF16);
}

static void
test_fp8_with_exponent_scales(void)
{
    check("fp8_ue8m0", berthi_decode_e4m3, 1, 120, by_128, "bf16", BERTH_BF16);
}

static void
test_fp4_rows(void)
{
    check("fp4_packed", berthi_decode_e2m1, 2, 0, (grid){ 1, 32 }, "bf16", BERTH_BF16);
}

static void
test_mxfp4_is_transposed(void)
{
    const berthi_entry *const blocks = vectors_find(&file, "mxfp4", "gate_up_proj_blocks");
    const berthi_entry *const scales = vectors_find(&file, "mxfp4", "gate_up_proj_scales");
    const berthi_entry *const expected = vectors_find(&file, "mxfp4.gate_up_proj", "bf16");
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t columns;
    uint16_t *values;

    T_REQUIRE(blocks != NULL && scales != NULL && expected != NULL);
    berthi_entry_shape(file.header.text, blocks, shape);
    columns = shape[2] * 32;
    values = malloc(shape[1] * columns * 2);
    T_REQUIRE(values != NULL);
    for (uint64_t e = 0; e < shape[0]; e++) {
        const uint64_t count = shape[1] * columns;

        berthi_decode_mxfp4(&(berthi_source_arguments){
            .codes = (const uint8_t *)vectors_data(&file, blocks) + e * count / 2,
            .scales = (const uint8_t *)vectors_data(&file, scales) + e * count / 32,
            .scale_dtype = BERTH_U8,
            .rows = shape[1],
            .columns = columns,
            .block_rows = 1,
            .block_columns = 32,
            .scale_columns = shape[2],
            .dtype = BERTH_BF16,
            .values = values });
        CHECK_MEM(values, (const uint16_t *)vectors_data(&file, expected) + e * count,
                  count * 2);
    }
    free(values);
}

static void
test_exponent_scales(void)
{
    CHECK_EQ(berthi_core_bits(berthi_core_from_e8m0(0, false)), 0x00400000);
    CHECK_EQ(berthi_core_bits(berthi_core_from_e8m0(1, false)), 0x00800000);
    CHECK_EQ(berthi_core_bits(berthi_core_from_e8m0(127, true)), 0x3F800000);
    CHECK_EQ(berthi_core_bits(berthi_core_from_e8m0(254, true)), 0x7F000000);
    CHECK(isnan(berthi_core_from_e8m0(255, false)));
    CHECK(isinf(berthi_core_from_e8m0(255, true)));
}

static void
run_all(void)
{
    T_RUN(test_fp8_blocks);
    T_RUN(test_fp8_partial_blocks);
    T_RUN(test_fp8_every_code);
    T_RUN(test_fp8_with_exponent_scales);
    T_RUN(test_fp4_rows);
    T_RUN(test_mxfp4_is_transposed);
    vectors_close(&file);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_exponent_scales);
    if (vectors_has_opened(&file, "tests/data/sources.safetensors"))
        run_all();
    is_full = true;
    if (vectors_has_opened(&file, "../shared/golden/quant/vectors_sources.safetensors"))
        run_all();
    T_MAIN_END;
}
