/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequantize_sources.c - weights of small floats beside scales: random
 * pieces against the arithmetic of core.h, value by value; recorded ones.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/made.h"
#include "tests/t.h"
#include "tests/vectors.h"
#include "tests/weights.h"

static uint64_t
divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

/* ------------------------------------------------------------------------ FP8 */

static float
scale_of(const made *m, uint64_t i)
{
    const berthi_companion *const c = &m->companions[0];
    const uint8_t *const bytes = c->bytes;

    if (c->dtype == BERTH_F8_E8M0 || c->dtype == BERTH_U8)
        return berthi_core_from_e8m0(bytes[i], c->dtype == BERTH_U8);
    return made_number(c, i);
}

/* Three dims: experts, rows, columns. */
static float
oracle_fp8(const made *m, uint64_t i)
{
    const uint64_t rows = m->shape[1];
    const uint64_t columns = m->shape[2];
    const uint64_t grid_rows = divide_up(rows, m->record.block_size);
    const uint64_t grid_columns = divide_up(columns, m->record.block_columns);
    const uint64_t row = i / columns % rows / m->record.block_size;
    const uint64_t column = i % columns / m->record.block_columns;
    const uint64_t expert = i / columns / rows;
    const bool is_single = m->companions[0].size
                           == berth_dtype_bits(m->companions[0].dtype) / 8;

    return berthi_core_from_e4m3(m->bytes[i])
           * scale_of(m, is_single ? 0
                                   : (expert * grid_rows + row) * grid_columns + column);
}

static void
check_fp8(const uint64_t *shape, uint32_t block_rows, uint32_t block_columns,
          int32_t scale_dtype, bool is_single)
{
    made m;

    made_begin(&m, BERTH_ENCODING_FP8_BLOCK, 3, shape);
    m.record.block_size = block_rows;
    m.record.block_columns = block_columns;
    m.bytes = made_bytes(m.record.elements, 2);
    made_companion(&m, 0, scale_dtype,
                  is_single ? 1
                            : shape[0] * divide_up(shape[1], block_rows)
                                  * divide_up(shape[2], block_columns));
    made_check(&m, oracle_fp8);
    made_end(&m);
}

static void
test_fp8(void)
{
    static const int32_t scales[] = { BERTH_F32, BERTH_BF16, BERTH_F8_E8M0, BERTH_U8 };

    for (uint64_t i = 0; i < MADE_SHAPES; i++)
        for (int k = 0; k < 4; k++) {
            const uint64_t *const shape = made_shapes[i];

            check_fp8(shape, 4, 3, scales[k], false);
            check_fp8(shape, 128, 128, scales[k], false);
            check_fp8(shape, (uint32_t)shape[1], (uint32_t)shape[2], scales[k], true);
            check_fp8(shape, 1, (uint32_t)shape[2], scales[k], false);
        }
}

/* One number for all experts, and one number each. */
static void
test_fp8_experts(void)
{
    const uint64_t shape[] = { 4, 6, 10 };

    check_fp8(shape, 6, 10, BERTH_F32, true);
    check_fp8(shape, 6, 10, BERTH_F32, false);
    check_fp8(shape, 4, 8, BERTH_BF16, false);
}

/* Scalars and vectors with one scale; a block of more than 32 bits is all there is. */
static void
test_fp8_of_low_rank(void)
{
    const float scale = 2.0f;
    const uint8_t bytes[] = { 0x38, 0x40, 0xB8 };
    const uint64_t shape[] = { 3 };

    for (uint32_t rank = 0; rank < 2; rank++) {
        const berthi_companion companion = { &scale, 4, BERTH_F32 };
        float values[3];
        berthi_decoder d;
        made m;

        made_begin(&m, BERTH_ENCODING_FP8_BLOCK, rank, shape);
        m.record.block_size = 1;
        m.record.block_columns = UINT32_MAX;
        CHECK(berthi_decoder_can_init(&d, NULL, &m.record));
        CHECK_EQ(d.block_columns, rank == 0 ? 1 : 3);
        CHECK(berthi_decoder_can_prepare(&d, &companion, NULL));
        berthi_decoder_decode(&d, 0, d.elements, bytes, BERTH_F32, values);
        CHECK(values[0] == 2.0f);
        CHECK(rank == 0 || (values[1] == 4.0f && values[2] == -2.0f));
    }
}

/* ------------------------------------------------------------------------ FP4 */

static uint32_t
low_nibble_first(const uint8_t *bytes, uint64_t i)
{
    return (uint32_t)bytes[i / 2] >> (i % 2 * 4) & 15u;
}

static float
oracle_fp4_packed(const made *m, uint64_t i)
{
    const uint64_t columns = m->shape[m->record.rank - 1];
    const uint64_t groups = columns / m->record.block_size;
    const uint32_t code = low_nibble_first(m->bytes, i);

    return berthi_core_float(berthi_e2m1_values[code])
           * scale_of(m, i / columns * groups + i % columns / m->record.block_size);
}

/* Blocks of any size, odd ones too: there scales begin inside a byte. */
static void
test_fp4_packed(void)
{
    static const struct {
        uint64_t shape[3];
        uint32_t block;
        uint64_t lead_max;
    } cases[] = { { { 1, 5, 64 }, 32, 1 }, { { 2, 3, 6 }, 2, 1 },  { { 2, 3, 6 }, 3, 5 },
                  { { 1, 7, 30 }, 5, 9 },  { { 1, 1, 2 }, 1, 1 },
                  { { 2, 2, 40 }, 8, 1 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_decoder d;
        made m;

        made_begin(&m, BERTH_ENCODING_FP4_PACKED, 3, cases[i].shape);
        m.record.block_size = cases[i].block;
        m.bytes = made_bytes(m.record.elements / 2, i);
        made_companion(&m, 0, BERTH_F8_E8M0, m.record.elements / cases[i].block);
        made_check(&m, oracle_fp4_packed);
        d = made_decoder(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_lead_max(&d), cases[i].lead_max);
        CHECK_EQ(berthi_decoder_step(&d), 1);
        made_end(&m);
    }
}

/* Values [E, 32 G, N] of stored rows [E, N, 32 G]. */
static float
oracle_mxfp4(const made *m, uint64_t i)
{
    const uint64_t rows = m->shape[2];
    const uint64_t columns = m->shape[1];
    const uint64_t expert = i / (rows * columns);
    const uint64_t at = (expert * rows + i % rows) * columns + i / rows % columns;

    return berthi_core_float(berthi_e2m1_values[low_nibble_first(m->bytes, at)])
           * scale_of(m, at / 32);
}

static void
test_mxfp4(void)
{
    static const uint64_t dims[][3] = { { 1, 32, 1 }, { 3, 64, 5 }, { 7, 96, 4 } };

    for (int i = 0; i < 3; i++) {
        berthi_decoder d;
        made m;

        made_begin(&m, BERTH_ENCODING_MXFP4, 3, dims[i]);
        m.record.block_size = 32;
        m.bytes = made_bytes(m.record.elements / 2, 1);
        made_companion(&m, 0, BERTH_U8, m.record.elements / 32);
        made_check(&m, oracle_mxfp4);
        d = made_decoder(&m, weights_level(0));
        CHECK_EQ(berthi_decoder_step(&d), dims[i][1] * dims[i][2]);
        CHECK_EQ(berthi_decoder_lead_max(&d), 0);
        made_end(&m);
    }
}

/* A scale for each row, though there is nothing in it. */
static void
test_no_columns(void)
{
    static const uint64_t shape[2] = { 4, 0 };
    float scales[4] = { 1.0f, 2.0f, 3.0f, 4.0f };
    const berthi_companion companion = { scales, sizeof scales, BERTH_F32 };
    berthi_decoder d;
    made m;

    made_begin(&m, BERTH_ENCODING_FP8_BLOCK, 2, shape);
    m.record.block_size = 1;
    m.record.block_columns = 0;
    CHECK(berthi_decoder_can_init(&d, weights_level(0), &m.record));
    CHECK(berthi_decoder_can_prepare(&d, &companion, NULL));
}

/* ------------------------------------------------------------ recorded sources */

#define TRIMMED "tests/data/sources.safetensors"
#define FULL "../shared/golden/quant/vectors_sources.safetensors"

static int32_t source_encoding;

/* A recorded weight with its scales against its recorded values. */
static void
check_source(const vectors *v, const char *prefix, const char *weight, const char *scales,
             const char *values, int32_t dtype)
{
    const berthi_entry *const w = vectors_find(v, prefix, weight);
    const berthi_entry *const s = vectors_find(v, prefix, scales);
    const berthi_entry *const x = vectors_find(v, prefix, values);
    uint64_t shape[BERTH_MAX_RANK];
    berthi_companion companion;
    berthi_decoder d;
    void *got;
    made m;

    if (x == NULL)
        return;
    T_REQUIRE(w != NULL && s != NULL);
    berthi_entry_shape(v->header.text, x, shape);
    made_begin(&m, source_encoding, x->rank, shape);
    m.record.block_size = source_encoding == BERTH_ENCODING_FP8_BLOCK ? 128 : 32;
    if (shape[0] == 16) /* trimmed to eight rows on either side of a border */
        m.record.block_size = 8;
    m.record.block_columns = 128;
    companion = (berthi_companion){ vectors_data(v, s), s->end - s->begin, s->dtype };
    CHECK(berthi_decoder_can_init(&d, weights_level(0), &m.record));
    T_REQUIRE(berthi_decoder_can_prepare(&d, &companion, NULL));
    for (uint64_t seed = 0; seed < 6; seed++) {
        got = weights_decode(&d, vectors_data(v, w), dtype, seed);
        if (!CHECK(vectors_are_same(got, vectors_data(v, x), d.elements, dtype)))
            T_NOTE("%s.%s", prefix, values);
        free(got);
    }
}

static void
check_weight(const vectors *v, const char *prefix)
{
    source_encoding = strncmp(prefix, "fp8", 3) == 0 ? BERTH_ENCODING_FP8_BLOCK
                                                     : BERTH_ENCODING_FP4_PACKED;
    check_source(v, prefix, "weight", "weight_scale_inv", "bf16", BERTH_BF16);
    check_source(v, prefix, "weight", "weight_scale_inv", "f32", BERTH_F32);
}

static void
check_sources(const char *path)
{
    vectors v;

    if (!vectors_has_opened(&v, path))
        T_SKIP("the recorded checkpoints are not beside this tree");
    CHECK_EQ(vectors_each(&v, "", "weight", check_weight), 5);
    source_encoding = BERTH_ENCODING_MXFP4;
    check_source(&v, "mxfp4", "gate_up_proj_blocks", "gate_up_proj_scales",
                 "gate_up_proj.bf16", BERTH_BF16);
    vectors_close(&v);
}

static void
test_sources(void)
{
    check_sources(TRIMMED);
}

static void
test_recorded_sources(void)
{
    check_sources(FULL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_fp8);
    T_RUN(test_fp8_experts);
    T_RUN(test_fp8_of_low_rank);
    T_RUN(test_fp4_packed);
    T_RUN(test_mxfp4);
    T_RUN(test_no_columns);
    T_RUN(test_sources);
    T_RUN(test_recorded_sources);
    T_MAIN_END;
}
