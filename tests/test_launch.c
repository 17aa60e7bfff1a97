/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches without a device: of nothing there is none, the largest grid is one
 * and what is beyond it is refused, and so are block sizes and dtypes that no
 * kernel has. What launches compute is for the tests of the kernels.
 */
#include "kernels/launch.h"
#include "tests/t.h"

static const uint64_t most = BERTHI_MOST_CTAS;

static berth_status
encode(uint64_t count, uint32_t block_size, int32_t dtype, berthi_launch *out)
{
    return berthi_launch_encode_nf4(
        &(berthi_encode_arguments){ .dtype = dtype, .block_size = block_size, .count = count },
        out, NULL);
}

static berth_status
encode_rows(uint64_t rows, uint64_t columns, berthi_launch *out)
{
    return berthi_launch_encode_rows(
        &(berthi_rows_arguments){ .dtype = BERTH_BF16, .rows = rows, .columns = columns }, out,
        NULL);
}

static void
test_nothing_is_no_launch(void)
{
    const berthi_rows_decode_arguments no_rows = { .dtype = BERTH_F32, .columns = 8 };
    const berthi_mean_arguments no_values = { .count = 0 };
    berthi_launch l[2];
    float mean;

    CHECK_EQ(encode(0, 64, BERTH_BF16, l), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(encode_rows(0, 64, l), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_decode_rows(&no_rows, l, NULL), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_mean(&no_values, &mean, l, NULL), BERTH_OK);
    CHECK_EQ(l[0].kernel, KERNEL_NONE);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
}

static void
test_grids_end(void)
{
    berthi_launch l;

    CHECK_EQ(encode(most * ENCODE_CTA, 64, BERTH_BF16, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_encode_nf4_bf16_64);
    CHECK_EQ(l.ctas, most);
    CHECK_EQ(l.threads, ENCODE_THREADS);
    CHECK_EQ(encode(most * ENCODE_CTA + 1, 64, BERTH_BF16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(encode_rows(most, 4096, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_int8_encode_bf16_cta);
    CHECK_EQ(l.ctas, most);
    CHECK_EQ(encode_rows(most + 1, 4096, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    /* Four rows a CTA. */
    CHECK_EQ(encode_rows(4 * most, 64, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_int8_encode_bf16_warp);
    CHECK_EQ(l.ctas, most);
    CHECK_EQ(encode_rows(4 * most + 1, 64, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode_rows(UINT64_MAX / 8, 64, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode_rows(1, UINT64_C(1) << 32, &l), BERTH_EUNSUPPORTED);
}

static void
test_what_no_kernel_does(void)
{
    berth_error error = { 0 };
    berthi_launch l;

    CHECK_EQ(encode(1, 32, BERTH_F32, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_encode_nf4_f32);
    CHECK_EQ(encode(1, 4096, BERTH_F16, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_encode_nf4_f16);
    CHECK_EQ(encode(1, 16, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 8192, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 65, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 0, BERTH_F16, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(encode(1, 64, BERTH_U8, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    CHECK_EQ(berthi_launch_encode_fp4(
                 &(berthi_encode_arguments){ .dtype = BERTH_BF16, .block_size = 48 }, &l,
                 &error),
             BERTH_EUNSUPPORTED);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
}

/* ------------------------------------------------------------------ products */

/* Nothing is read at these addresses. */
static berth_status
multiply(const berthi_multiply_arguments *arguments, bool is_double, uintptr_t codes,
         uintptr_t inputs, uint32_t capability, berthi_launch *out)
{
    static const uint8_t absmax_codes;
    berthi_multiply_arguments a = *arguments;

    a.codes = (const uint8_t *)codes;
    a.inputs = (const void *)inputs;
    a.absmax_codes = is_double ? &absmax_codes : NULL;
    a.map = berthi_signed_map;
    return berthi_launch_product(&(berthi_product_task){ .what = &a,
                                                         .values = berthi_nf4_values,
                                                         .capability = capability },
                                 out, NULL);
}

static const struct {
    int32_t dtype;
    uint32_t block_size;
    uint64_t columns;
    uint32_t capability;
    bool is_double;
    uintptr_t codes, inputs;
    berthi_kernel_id kernel;
} products[] = {
    { BERTH_BF16, 64, 4096, 80, false, 16, 16, KERNEL_product_64_bf16 },
    { BERTH_BF16, 64, 4096, 90, true, 16, 16, KERNEL_product_64_bf16_double },
    { BERTH_F16, 64, 64, 80, false, 16, 32, KERNEL_product_64_f16 },
    { BERTH_F16, 64, 4096, 120, true, 16, 16, KERNEL_product_64_f16_double },
    { BERTH_BF16, 128, 4096, 80, false, 16, 16, KERNEL_product_128_bf16 },
    { BERTH_BF16, 4096, 128, 90, true, 16, 16, KERNEL_product_128_bf16_double },
    { BERTH_F16, 256, 384, 89, false, 16, 16, KERNEL_product_128_f16 },
    { BERTH_F16, 512, 512, 89, true, 16, 16, KERNEL_product_128_f16_double },
    /* Half blocks. */
    { BERTH_BF16, 128, 192, 90, false, 16, 16, KERNEL_product_64_bf16 },
    /* What tensor cores do not take; codes that 16 does not divide the address of among it. */
    { BERTH_BF16, 64, 4096, 90, true, 8, 16, KERNEL_product_lanes_bf16_double },
    { BERTH_F16, 64, 64, 80, false, 8, 32, KERNEL_product_lanes_f16 },
    { BERTH_F16, 128, 256, 90, false, 8, 16, KERNEL_product_lanes_f16 },
    { BERTH_F32, 64, 4096, 90, false, 16, 16, KERNEL_product_lanes_f32 },
    { BERTH_F32, 64, 4096, 90, true, 16, 16, KERNEL_product_lanes_f32_double },
    { BERTH_BF16, 64, 4096, 79, false, 16, 16, KERNEL_product_lanes_bf16 },
    { BERTH_BF16, 64, 4096, 75, true, 16, 16, KERNEL_product_lanes_bf16_double },
    { BERTH_F16, 64, 4096, 79, false, 16, 16, KERNEL_product_lanes_f16 },
    { BERTH_F16, 64, 4096, 70, true, 16, 16, KERNEL_product_lanes_f16_double },
    { BERTH_BF16, 32, 4096, 90, false, 16, 16, KERNEL_product_lanes_bf16 },
    { BERTH_BF16, 64, 4128, 90, false, 16, 16, KERNEL_product_lanes_bf16 },
    { BERTH_BF16, 64, 4096, 90, false, 4, 16, KERNEL_product_lanes_bf16 },
    { BERTH_BF16, 64, 4096, 90, false, 16, 8, KERNEL_product_lanes_bf16 },
    { BERTH_BF16, 64, 0, 90, false, 16, 16, KERNEL_product_lanes_bf16 },
    { BERTH_BF16, 64, PRODUCT_MOST_COLUMNS, 90, false, 16, 16, KERNEL_product_lanes_bf16 },
};

static void
test_kernels_of_products(void)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const berthi_multiply_arguments a = { .block_size = products[i].block_size,
                                              .count = 1, .rows = 100,
                                              .columns = products[i].columns,
                                              .dtype = products[i].dtype };
        berthi_launch l;

        CHECK_EQ(multiply(&a, products[i].is_double, products[i].codes, products[i].inputs,
                          products[i].capability, &l),
                 BERTH_OK);
        CHECK_EQ(l.kernel, products[i].kernel);
        CHECK_EQ(l.threads, PRODUCT_THREADS);
    }
}

/* A weight is decoded once for all inputs. */
static void
test_kernels_of_many_inputs(void)
{
    static const struct {
        uint32_t count;
        berthi_kernel_id kernel;
    } kernels[] = { { 1, KERNEL_product_128_f16_double },
                    { 8, KERNEL_product_128_f16_double },
                    { 9, KERNEL_product16_128_f16_double },
                    { 16, KERNEL_product16_128_f16_double },
                    { 17, KERNEL_product32_128_f16_double },
                    { 32, KERNEL_product32_128_f16_double } };

    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const berthi_multiply_arguments a = { .block_size = 128, .count = kernels[i].count,
                                              .rows = 100, .columns = 4096,
                                              .dtype = BERTH_F16 };
        berthi_launch l;

        CHECK_EQ(multiply(&a, true, 16, 16, 90, &l), BERTH_OK);
        CHECK_EQ(l.kernel, kernels[i].kernel);
        CHECK_EQ(l.ctas, 4); /* tiles of 32 rows in eight slices, whatever the count */
    }
}

/* Elements one by one where eights of columns, or their addresses, are odd. */
static void
test_products_of_odd_lengths_and_addresses(void)
{
    static const struct {
        uint64_t columns;
        uintptr_t codes, inputs;
        bool is_aligned;
    } rows[] = { { 8, 4, 16, true },  { 9, 4, 16, false }, { 12, 4, 16, false },
                 { 8, 2, 16, false }, { 8, 4, 8, false } };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const berthi_multiply_arguments a = { .block_size = 32, .count = 1, .rows = 1,
                                              .columns = rows[i].columns,
                                              .dtype = BERTH_F32 };
        berthi_launch l;

        CHECK_EQ(multiply(&a, false, rows[i].codes, rows[i].inputs, 0, &l), BERTH_OK);
        CHECK_EQ(l.argument.product.is_aligned, rows[i].is_aligned);
    }
}

static void
test_grids_of_products(void)
{
    static const struct {
        uint64_t rows;
        uint32_t count, capability, ctas, groups;
    } grids[] = { { 1, 1, 90, 1, 1 },    { 256, 8, 90, 1, 1 },  { 257, 9, 90, 2, 1 },
                  { 512, 32, 90, 2, 1 }, { 8, 1, 70, 1, 1 },    { 9, 8, 70, 2, 1 },
                  { 17, 25, 70, 12, 4 }, { 0, 1, 90, 0, 1 },    { 5, 0, 90, 0, 0 } };
    berthi_multiply_arguments a = { .block_size = 64, .columns = 64, .dtype = BERTH_BF16 };
    berthi_launch l;

    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        a.rows = grids[i].rows;
        a.count = grids[i].count;
        CHECK_EQ(multiply(&a, false, 16, 16, grids[i].capability, &l), BERTH_OK);
        CHECK_EQ(l.kernel == KERNEL_NONE, grids[i].ctas == 0);
        CHECK_EQ(l.ctas, grids[i].ctas);
        CHECK_EQ(l.argument.product.groups, grids[i].groups);
    }
    /* So many chunks that tensor cores do not number them. */
    a.count = 1;
    a.rows = PRODUCT_MOST_WEIGHTS / 64 - 1;
    CHECK_EQ(multiply(&a, false, 16, 16, 90, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_product_64_bf16);
    a.rows++;
    CHECK_EQ(multiply(&a, false, 16, 16, 90, &l), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_product_lanes_bf16);
    a.rows = most * 8;
    CHECK_EQ(multiply(&a, false, 16, 16, 90, &l), BERTH_OK);
    CHECK_EQ(l.ctas, most);
    a.rows++;
    CHECK_EQ(multiply(&a, false, 16, 16, 90, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
}

/* ------------------------------------------------------------------ rings */

typedef struct ring_product {
    berthi_multiply_arguments a;
    uint32_t capability;
    uint32_t processors;
    uint32_t room_bytes;
    bool has_tiles;
} ring_product;

/* Nothing is read at these addresses. */
static ring_product
usual_ring(void)
{
    return (ring_product){
        .a = { .codes = (const uint8_t *)64, .absmax = (const float *)64, .map = berthi_signed_map,
               .block_size = 64, .count = 1, .rows = 100, .columns = 4096,
               .inputs = (const void *)64, .dtype = BERTH_BF16 },
        .capability = 90, .processors = 132, .room_bytes = 163 << 10
    };
}

static berthi_kernel_id
ring_kernel(const ring_product *p, berthi_launch *out)
{
    const berthi_product_task task = { .what = &p->a, .values = berthi_nf4_values,
                                       .capability = p->capability,
                                       .processors = p->processors,
                                       .room_bytes = p->room_bytes,
                                       .has_tiles = p->has_tiles };

    CHECK_EQ(berthi_launch_product(&task, out, NULL), BERTH_OK);
    return out->kernel;
}

static void
test_rings(void)
{
    static const uint32_t counts[] = { 4, 5, 9, 16, 17, 32 };
    static const berthi_kernel_id kernels[] = { KERNEL_ring_bf16, KERNEL_ring16_bf16,
                                                KERNEL_ring32_bf16 };
    ring_product p = usual_ring();
    berthi_launch l;

    for (int i = 0; i < 6; i++) {
        p.a.count = counts[i];
        CHECK_EQ(ring_kernel(&p, &l), kernels[i / 2]);
        CHECK_EQ(l.threads, PRODUCT_THREADS);
        CHECK_EQ(l.ctas, 7);
        CHECK_EQ(l.room_bytes, RING_ROOM_BYTES);
        CHECK_EQ(l.argument.product.units, 7);
        CHECK_EQ(l.argument.product.has_pairs, 0);
        CHECK_EQ(l.argument.product.is_settled, 0);
        CHECK_EQ(l.argument.product.members[0].first, 0);
        CHECK_EQ(l.argument.product.members[1].first, UINT32_MAX);
    }
    p = usual_ring();
    p.a.absmax_codes = (const uint8_t *)4;
    p.a.absmax = (const float *)4; /* the second level may lie anywhere */
    p.a.dtype = BERTH_F16;
    p.a.is_settled = true;
    p.a.rows = 132 * 16 + 1;
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_ring_f16_double);
    CHECK_EQ(l.ctas, 132);
    CHECK_EQ(l.argument.product.units, 133);
    CHECK_EQ(l.argument.product.is_settled, 1);
}

/* Codes of two lines are read at once where all rows' turns begin at multiples of their eight. */
static void
test_pairs_of_rings(void)
{
    static const struct {
        uintptr_t address;
        uint64_t columns;
        uint32_t has_pairs;
    } cases[] = { { 8, 4096, 1 }, { 4, 4096, 0 }, { 8, 4352, 0 }, { 64, 4608, 1 } };
    ring_product p = usual_ring();
    berthi_launch l[2];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.a.absmax_codes = (const uint8_t *)cases[i].address;
        p.a.columns = cases[i].columns;
        CHECK_EQ(ring_kernel(&p, &l[0]), KERNEL_ring_bf16_double);
        CHECK_EQ(l[0].argument.product.has_pairs, cases[i].has_pairs);
    }
    CHECK_EQ(l[0].argument.product.has_pairs, 1);
    p.a.absmax_codes = (const uint8_t *)68;
    CHECK_EQ(ring_kernel(&p, &l[1]), KERNEL_ring_bf16_double);
    CHECK(berthi_launch_join_products(l, 2));
    CHECK_EQ(l[0].argument.product.has_pairs, 0);
}

/* What the device has, whatever its kernels were made for, from the first that have rings on. */
static void
test_room_of_rings(void)
{
    static const struct {
        uint32_t room_bytes;
        bool is_enough;
    } rooms[] = { { 227 << 10, true }, { 163 << 10, true }, { 129 << 10, true },
                  { (129 << 10) - 1, false }, { 99 << 10, false }, { 64 << 10, false },
                  { 0, false } };
    static const uint32_t capabilities[] = { 75, 80, 86, 89, 90, 100, 120 };

    for (int i = 0; i < 7 * 7; i++) {
        ring_product p = usual_ring();
        const bool is_ring = rooms[i / 7].is_enough && i % 7 > 0;
        berthi_launch l;

        p.room_bytes = rooms[i / 7].room_bytes;
        p.capability = capabilities[i % 7];
        CHECK_EQ(ring_kernel(&p, &l), is_ring     ? KERNEL_ring_bf16
                                      : i % 7 > 0 ? KERNEL_product_64_bf16
                                                  : KERNEL_product_lanes_bf16);
        CHECK_EQ(l.room_bytes, is_ring ? RING_ROOM_BYTES : 0);
    }
}

/* Each once: what keeps a product from rings. */
static void
test_products_that_rings_do_not_take(void)
{
    for (int i = 0; i < 12; i++) {
        ring_product p = usual_ring();
        berthi_launch l;

        switch (i) {
        case 0: p.processors = 0; break;
        case 1: p.a.block_size = 128; break;
        case 2: p.a.block_size = 32; break;
        case 3: p.a.columns = 4096 + 128; break;
        case 4: p.a.columns = 4096 - 256; break;
        case 5: p.a.columns = PRODUCT_MOST_COLUMNS; break;
        case 6: p.a.rows = PRODUCT_MOST_WEIGHTS / 4096; break;
        case 7: p.a.inputs = (const void *)8; break;
        case 8: p.a.codes = (const uint8_t *)8; break;
        case 9: p.a.absmax = (const float *)8; break;
        case 10: p.a.absmax_codes = (const uint8_t *)2; break;
        default: p.a.dtype = BERTH_F32; break;
        }
        (void)ring_kernel(&p, &l);
        CHECK(l.kernel < KERNEL_ring_bf16 || l.kernel > KERNEL_ring32_f16_double);
        CHECK_EQ(l.room_bytes, 0);
    }
}

static void
test_rings_of_nothing(void)
{
    ring_product p = usual_ring();
    berthi_launch l;

    p.a.count = 0;
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_NONE);
    p = usual_ring();
    p.a.rows = 0;
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_NONE);
}

/* As many CTAs as there are processors for the units of both; early only where both may. */
static void
test_rings_together(void)
{
    ring_product p = usual_ring();
    berthi_launch l[2];

    p.processors = 6;
    p.a.is_settled = true;
    CHECK_EQ(ring_kernel(&p, &l[0]), KERNEL_ring_bf16);
    p.a.rows = 33;
    CHECK_EQ(ring_kernel(&p, &l[1]), KERNEL_ring_bf16);
    CHECK(berthi_launch_join_products(l, 2));
    CHECK_EQ(l[0].kernel, KERNEL_ring_bf16);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
    CHECK_EQ(l[0].ctas, 6);
    CHECK_EQ(l[0].argument.product.units, 10);
    CHECK_EQ(l[0].argument.product.is_settled, 1);
    CHECK_EQ(l[0].argument.product.members[1].first, 7);
    CHECK_EQ(l[0].argument.product.members[1].rows, 33);
    CHECK_EQ(l[0].argument.product.members[2].first, UINT32_MAX);
    p.processors = 4;
    CHECK_EQ(ring_kernel(&p, &l[0]), KERNEL_ring_bf16);
    p.a.is_settled = false;
    p.a.rows = 100;
    CHECK_EQ(ring_kernel(&p, &l[1]), KERNEL_ring_bf16);
    CHECK(berthi_launch_join_products(l, 2));
    CHECK_EQ(l[0].ctas, 4);
    CHECK_EQ(l[0].argument.product.units, 10);
    CHECK_EQ(l[0].argument.product.is_settled, 0);
}

/* Two pairs of steps of 128 columns each, at least. */
static void
test_slices_of_rows(void)
{
    CHECK_EQ(berthi_product_slices(0), 1);
    CHECK_EQ(berthi_product_slices(1023), 1);
    CHECK_EQ(berthi_product_slices(1024), 2);
    CHECK_EQ(berthi_product_slices(2047), 2);
    CHECK_EQ(berthi_product_slices(2048), 4);
    CHECK_EQ(berthi_product_slices(4095), 4);
    CHECK_EQ(berthi_product_slices(4096), 8);
    CHECK_EQ(berthi_product_slices(28672), 8);
}

/* What codes stand for is rounded as the inputs are. */
static void
test_values_of_products(void)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
    static const uint32_t of_code_1[] = { 0xBF320000u, 0xBF324000u, 0xBF3239B1u };

    for (int i = 0; i < 3; i++) {
        const berthi_multiply_arguments a = { .block_size = 64, .count = 1, .rows = 1,
                                              .columns = 64, .dtype = dtypes[i] };
        berthi_launch l;

        CHECK_EQ(multiply(&a, true, 16, 16, 0, &l), BERTH_OK);
        CHECK_EQ(l.argument.product.table[0], 0xBF800000u);
        CHECK_EQ(l.argument.product.table[1], of_code_1[i]);
        CHECK_MEM(l.argument.product.map, berthi_signed_map, sizeof l.argument.product.map);
    }
}

static void
test_products_that_no_kernel_does(void)
{
    const berthi_multiply_arguments good = { .block_size = 64, .count = 32, .rows = 8,
                                             .columns = 64, .dtype = BERTH_BF16 };
    berthi_multiply_arguments bad[7] = { good, good, good, good, good, good, good };
    berthi_launch l;

    bad[0].count = 33;
    bad[1].dtype = BERTH_U8;
    bad[2].block_size = 16;
    bad[3].columns = UINT64_C(1) << 31;
    bad[4].rows = UINT64_MAX / 64;
    bad[5].block_size = 96;
    bad[6].block_size = 8192;
    CHECK_EQ(multiply(&good, false, 16, 16, 90, &l), BERTH_OK);
    for (int i = 0; i < 7; i++) {
        CHECK_EQ(multiply(&bad[i], false, 16, 16, 90, &l), BERTH_EUNSUPPORTED);
        CHECK_EQ(l.kernel, KERNEL_NONE);
    }
}

/* ------------------------------------------------------------------ of many inputs */

static berth_status
multiply_many(uint64_t rows, uint64_t columns, uint32_t count, uint32_t processors,
              berthi_launch *out)
{
    const berthi_multiply_arguments a = { .codes = (const uint8_t *)16,
                                          .absmax = (const float *)16,
                                          .inputs = (const void *)16, .block_size = 64,
                                          .count = count, .rows = rows, .columns = columns,
                                          .dtype = BERTH_BF16, .is_settled = count % 2 == 0 };

    return berthi_launch_wide(
        &(berthi_wide_task){ .what = &a, .values = berthi_nf4_values, .processors = processors },
        out, NULL);
}

/* Tiles are whole where they keep processors busy, else those of two rounds are split. */
static void
test_grids_of_many_inputs(void)
{
    static const struct {
        uint64_t rows, columns;
        uint32_t count, processors;
        berthi_kernel_id kernel;
        uint32_t threads, ctas, tiles, split_tiles;
    } grids[] = {
        { 8192, 28672, 1, 132, KERNEL_wide32_bf16, 512, 132, 43, 43 },
        { 8192, 28672, 32, 132, KERNEL_wide32_bf16, 512, 132, 43, 43 },
        { 8192, 28672, 33, 132, KERNEL_wide64_bf16, 512, 132, 43, 43 },
        { 8192, 28672, 64, 132, KERNEL_wide64_bf16, 512, 132, 43, 43 },
        { 8192, 28672, 65, 132, KERNEL_wide128_bf16, 512, 132, 43, 43 },
        { 28672, 8192, 128, 132, KERNEL_wide128_bf16, 512, 132, 150, 150 },
        { 28672, 8192, 129, 132, KERNEL_wide256_bf16, 384, 132, 224, 224 },
        { 28672, 8192, 512, 132, KERNEL_wide256_bf16, 384, 132, 448, 184 },
        { 8192, 8192, 512, 132, KERNEL_wide256_bf16, 384, 128, 128, 0 },
        { 8192, 8192, 1024, 132, KERNEL_wide256_bf16, 384, 132, 256, 0 },
        { 192, 8192, 64, 132, KERNEL_wide64_bf16, 512, 8, 1, 1 },
        { 768, 256, 64, 132, KERNEL_wide64_bf16, 512, 4, 4, 4 },
        { 768, 1024, 64, 132, KERNEL_wide64_bf16, 512, 4, 4, 4 },
        { 768, 2048, 64, 132, KERNEL_wide64_bf16, 512, 8, 4, 4 },
        { 75000, 256, 64, 1000, KERNEL_wide64_bf16, 512, WIDE_MOST_CTAS, 391, 391 },
    };

    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        berthi_launch l;

        CHECK_EQ(multiply_many(grids[i].rows, grids[i].columns, grids[i].count,
                               grids[i].processors, &l),
                 BERTH_OK);
        CHECK_EQ(l.kernel, grids[i].kernel);
        CHECK_EQ(l.threads, grids[i].threads);
        CHECK_EQ(l.ctas, grids[i].ctas);
        CHECK_EQ(l.matrices, WIDE_MATRICES);
        CHECK_EQ(l.argument.wide.tiles, grids[i].tiles);
        CHECK_EQ(l.argument.wide.split_tiles, grids[i].split_tiles);
        CHECK_LE(l.room_bytes, 232448);
        CHECK_EQ(l.argument.wide.is_settled, grids[i].count % 2 == 0);
    }
}

/* What no kernel of many inputs takes: other blocks and dtypes, odd columns and addresses. */
static void
test_many_inputs_that_no_kernel_has(void)
{
    const berthi_multiply_arguments good =
        { .codes = (const uint8_t *)16, .absmax = (const float *)16, .inputs = (const void *)16,
          .block_size = 64, .count = 40, .rows = 10, .columns = 512, .dtype = BERTH_F16 };
    berthi_multiply_arguments a[14];
    berthi_launch l;

    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        a[i] = good;
    a[1].block_size = 128;
    a[2].dtype = BERTH_F32;
    a[3].columns = 384;
    a[4].columns = UINT64_C(1) << 22;
    a[5].inputs = (const void *)24;
    a[6].codes = (const uint8_t *)8;
    a[7].absmax = (const float *)4;
    a[8].absmax_codes = (const uint8_t *)2;
    a[9].rows = UINT64_C(1) << 31;
    a[10].rows = 0;
    a[11].count = 0;
    a[12].columns = 0;
    a[13].rows = PRODUCT_MOST_WEIGHTS / 512;
    CHECK(berthi_launch_can_wide(&a[0], 132));
    CHECK(!berthi_launch_can_wide(&a[0], 0));
    for (size_t i = 1; i < sizeof a / sizeof *a; i++)
        CHECK(!berthi_launch_can_wide(&a[i], 132));
    CHECK_EQ(multiply_many(10, 384, 40, 132, &l), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
}

/* ------------------------------------------------------------------ of few inputs */

static ring_product
usual_few(void)
{
    ring_product p = usual_ring();

    p.has_tiles = true;
    return p;
}

static void
check_tiles(const berthi_tiles *tiles, const void *from, uint64_t row_bytes, uint64_t rows,
            uint32_t tile_bytes)
{
    CHECK(tiles->of.from == from);
    CHECK_EQ(tiles->of.row_bytes, row_bytes);
    CHECK_EQ(tiles->of.rows, rows);
    CHECK_EQ(tiles->of.tile_bytes, tile_bytes);
    CHECK_EQ(tiles->of.tile_rows, 16);
    CHECK_EQ(tiles->of.is_turned, tile_bytes == 128);
}

static void
test_few(void)
{
    ring_product p = usual_few();
    berthi_launch l;

    for (p.a.count = 1; p.a.count < 9; p.a.count++)
        CHECK_EQ(ring_kernel(&p, &l), p.a.count <= 4 ? KERNEL_few_bf16 : KERNEL_ring_bf16);
    p.a.count = 4;
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_few_bf16);
    CHECK_EQ(l.threads, PRODUCT_THREADS);
    CHECK_EQ(l.ctas, 7);
    CHECK_EQ(l.room_bytes, FEW_ROOM_BYTES);
    CHECK_EQ(l.matrices, 2);
    CHECK_EQ(l.matrices_at, offsetof(berthi_few_kernel, tiles));
    CHECK_EQ(l.argument.product.units, 7);
    CHECK_EQ(l.argument.product.is_settled, 0);
    CHECK_EQ(l.argument.product.members[0].first, 0);
    CHECK_EQ(l.argument.product.members[1].first, UINT32_MAX);
    check_tiles(&l.argument.few.tiles[0], p.a.codes, 2048, 100, 128);
    check_tiles(&l.argument.few.tiles[1], p.a.absmax, 256, 100, 16);
    p.a.dtype = BERTH_F16;
    p.a.is_settled = true;
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_few_f16);
    CHECK_EQ(l.argument.product.is_settled, 1);
    p.a.absmax_codes = (const uint8_t *)128;
    p.a.absmax = (const float *)4; /* the second level may lie anywhere */
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_few_f16_double);
    check_tiles(&l.argument.few.tiles[1], p.a.absmax_codes, 64, 100, 16);
    p.a.count = 0;
    CHECK_EQ(ring_kernel(&p, &l), KERNEL_NONE);
}

/* Two CTAs a processor where they have more than half a tile each, or rows are long. */
static void
test_ctas_of_few(void)
{
    static const struct {
        uint32_t units;
        uint32_t columns;
        uint32_t ctas;
    } cases[] = { { 1, 4096, 1 },     { 132, 4096, 132 },  { 133, 4096, 132 },  { 264, 4096, 132 },
                  { 265, 4096, 264 }, { 3584, 4096, 264 }, { 264, 7936, 132 },  { 264, 8192, 264 },
                  { 200, 8192, 200 }, { 100, 8192, 100 },  { 1792, 8192, 264 }, { 64, 14336, 64 } };
    ring_product p = usual_few();
    berthi_launch l;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.a.rows = (uint64_t)cases[i].units * RING_UNIT_ROWS;
        p.a.columns = cases[i].columns;
        CHECK_EQ(ring_kernel(&p, &l), KERNEL_few_bf16);
        CHECK_EQ(l.argument.product.units, cases[i].units);
        CHECK_EQ(l.ctas, cases[i].ctas);
    }
}

/* Each once: what keeps a product of few inputs from tiles. */
static void
test_products_without_tiles(void)
{
    for (int i = 0; i < 10; i++) {
        ring_product p = usual_few();
        berthi_launch l;

        p.a.absmax_codes = i < 5 ? NULL : (const uint8_t *)16;
        p.a.columns = 5120;
        switch (i) {
        case 0: p.has_tiles = false; break;
        case 1: p.capability = 87; break;
        case 2: p.a.rows = UINT64_C(1) << 31; break;
        case 3: p.a.block_size = 128; break;
        case 4: p.room_bytes = 99 << 10; break;
        case 5: p.a.absmax_codes = (const uint8_t *)8; break;
        case 6: p.a.columns = 5120 + 512; break;
        case 7: p.a.columns = 5120 + 256; break;
        case 8: p.capability = 100; break;
        default: p.a.count = 5; break;
        }
        CHECK(ring_kernel(&p, &l) != KERNEL_few_bf16);
        CHECK(l.kernel != KERNEL_few_bf16_double);
        CHECK_EQ(l.matrices, 0);
    }
}

static void
test_few_together(void)
{
    ring_product p = usual_few();
    berthi_launch l[2];

    p.processors = 6;
    p.a.is_settled = true;
    CHECK_EQ(ring_kernel(&p, &l[0]), KERNEL_few_bf16);
    p.a.rows = 33;
    p.a.codes = (const uint8_t *)4096;
    CHECK_EQ(ring_kernel(&p, &l[1]), KERNEL_few_bf16);
    l[0].argument.few.tiles[4].of.rows = 12345; /* none of theirs */
    CHECK(berthi_launch_join_products(l, 2));
    CHECK_EQ(l[0].kernel, KERNEL_few_bf16);
    CHECK_EQ(l[1].kernel, KERNEL_NONE);
    CHECK_EQ(l[0].ctas, 6);
    CHECK_EQ(l[0].matrices, 4);
    CHECK_EQ(l[0].argument.few.tiles[4].of.rows, 12345);
    CHECK_EQ(l[0].argument.product.units, 10);
    CHECK_EQ(l[0].argument.product.is_settled, 1);
    CHECK_EQ(l[0].argument.product.members[1].first, 7);
    CHECK_EQ(l[0].argument.product.members[2].first, UINT32_MAX);
    check_tiles(&l[0].argument.few.tiles[0], (const void *)64, 2048, 100, 128);
    check_tiles(&l[0].argument.few.tiles[2], p.a.codes, 2048, 33, 128);
    check_tiles(&l[0].argument.few.tiles[3], p.a.absmax, 256, 33, 16);
    p.a.dtype = BERTH_F16;
    p.a.absmax_codes = (const uint8_t *)128;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(ring_kernel(&p, &l[i]), KERNEL_few_f16_double);
    CHECK(berthi_launch_join_products(l, 2));
    CHECK_EQ(l[0].kernel, KERNEL_few_f16_double);
    CHECK_EQ(l[0].matrices, 4);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_nothing_is_no_launch);
    T_RUN(test_grids_end);
    T_RUN(test_what_no_kernel_does);
    T_RUN(test_kernels_of_products);
    T_RUN(test_kernels_of_many_inputs);
    T_RUN(test_products_of_odd_lengths_and_addresses);
    T_RUN(test_grids_of_products);
    T_RUN(test_rings);
    T_RUN(test_pairs_of_rings);
    T_RUN(test_room_of_rings);
    T_RUN(test_products_that_rings_do_not_take);
    T_RUN(test_rings_of_nothing);
    T_RUN(test_rings_together);
    T_RUN(test_few);
    T_RUN(test_ctas_of_few);
    T_RUN(test_products_without_tiles);
    T_RUN(test_few_together);
    T_RUN(test_slices_of_rows);
    T_RUN(test_values_of_products);
    T_RUN(test_products_that_no_kernel_does);
    T_RUN(test_grids_of_many_inputs);
    T_RUN(test_many_inputs_that_no_kernel_has);
    T_MAIN_END;
}
