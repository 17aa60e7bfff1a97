/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the products of few inputs by tiles, on the host: within their bounds for every
 * kernel, for whole tiles and parts of one, rows that end within a turn, and CTAs that go from tile
 * to tile; the same bits in every order of lanes, with tiles that come late and early, for any
 * number of CTAs, of a weight together with others, and by rings.
 */
#include <math.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/product_arguments.h"
#include "tests/products.h"
#include "tests/simt_level.h"
#include "tests/t.h"

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16 };

static product_case
few_case(uint64_t rows, uint64_t columns, uint32_t count, uint32_t processors)
{
    return (product_case){ .rows = rows, .columns = columns, .block_size = RING_BLOCK,
                           .count = count, .dtype = BERTH_BF16, .capability = 90,
                           .processors = processors, .has_tiles = true };
}

/* Each of the four, one CTA and several, whole tiles and parts of one. */
static void
test_every_kernel(void)
{
    static const uint64_t rows[] = { 32, 35, 5, 64, 1 };

    for (unsigned i = 0; i < 3 * 4; i++) {
        product_case c = few_case(rows[i % 5], RING_LEAST_COLUMNS, 1 + i % FEW_INPUTS, 1 + i % 2);

        c.dtype = dtypes[i % 2];
        c.is_double = i / 2 % 2 == 1;
        c.is_fp4 = i % 5 == 4;
        c.has_bias = i % 7 == 0;
        product_check(&c);
    }
}

/* CTAs with tiles of 32 rows and of 16 behind each other, one a processor and two. */
static void
test_heights_of_tiles(void)
{
    static const uint64_t rows[] = { 16, 48, 64, 63, 50, 80, 128, 115, 127, 176 };

    /* Each access is looked at under sanitizers: some of the heights are enough there. */
    for (unsigned i = 0; i < 2 * 10; i += T_IS_SANITIZED ? 3 : 1) {
        product_case c = few_case(rows[i % 10], i % 3 == 0 ? 4096 : 5120, 1 + i % FEW_INPUTS,
                                  1 + i % 3);

        c.dtype = dtypes[i / 2 % 2];
        c.is_double = i / 10 == 1;
        product_check(&c);
    }
}

/* Lines that are a turn's first one and last of the row, warps with a turn more than others. */
static void
test_ends_of_rows(void)
{
    static const uint64_t columns[] = { 4352, 4608, 4864, 7936, 8192, 8448 };
    static const uint64_t of_codes[] = { 5120, 6144, 7168, 8192, 9216 };

    for (unsigned i = 0; i < 6; i++) {
        const product_case c = few_case(34, columns[i], 3, 1);

        product_check(&c);
    }
    for (unsigned i = 0; i < 5; i++) {
        product_case c = few_case(34, of_codes[i], 2, 1 + i % 2);

        c.is_double = true;
        product_check(&c);
    }
}

/* What a weight's products are by rings, for each number of processors. */
static void
test_bits_of_rings(void)
{
    for (unsigned i = 0; i < 4; i++) {
        product_case c = few_case(150, i % 2 == 0 ? 5120 : 4096, FEW_INPUTS, 1 + i);
        uint16_t by_rings[150 * FEW_INPUTS];
        uint16_t outputs[150 * FEW_INPUTS];
        product_problem p;

        c.is_double = i / 2 == 1;
        p = product_draw(&c);
        p.c.has_tiles = false;
        simt_level_set_order(SIMT_DESCENDING, 0);
        product_run(&p, 0, c.count, by_rings);
        p.c.has_tiles = true;
        for (uint32_t processors = 1; processors < 4; processors++) {
            p.c.processors = processors;
            simt_level_set_order((simt_order)(processors % SIMT_ORDER_COUNT), processors);
            product_run(&p, 0, c.count, outputs);
            CHECK_MEM(outputs, by_rings, sizeof by_rings);
        }
        for (uint32_t k = 0; k < c.count; k++) {
            simt_level_set_order(SIMT_RANDOM, k);
            product_run(&p, k, 1, outputs);
            CHECK_MEM(outputs, by_rings + k * c.rows, c.rows * sizeof *outputs);
        }
        product_free(&p);
    }
}

/* NaN and infinity stay in their input's, or their row's, outputs. */
static void
test_what_is_not_finite_stays_where_it_is(void)
{
    for (unsigned i = 0; i < 2; i++) {
        const product_case c = few_case(40, 4096, 4, 1);

        product_check_not_finite(&c, i % 2 == 0 ? NAN : INFINITY, 33, i);
    }
}

/* ------------------------------------------------------------------ weights together */

static void
check_together(const uint64_t *rows, uint32_t count, uint32_t inputs, bool is_double,
               uint32_t processors)
{
    product_case c = few_case(0, 5120, inputs, processors);

    c.is_double = is_double;
    product_check_together(&c, rows, count);
}

static void
test_together(void)
{
    static const uint64_t rows[] = { 32, 33, 7, 64, 3 };

    for (unsigned i = 0; i < 6; i += T_IS_SANITIZED ? 2 : 1)
        check_together(rows + i % 2, 2 + i % 3, 1 + i % FEW_INPUTS, i % 2 == 0, 1 + i % 3);
}

static void
test_nothing_runs_them(void)
{
    const char *why;

    (void)(simt_level_is_there(&why) && simt_level_has_tiles(&why));
    T_SKIP(why);
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    if (simt_level_is_there(&why) && simt_level_has_tiles(&why)) {
        T_RUN(test_every_kernel);
        T_RUN(test_heights_of_tiles);
        T_RUN(test_ends_of_rows);
        T_RUN(test_bits_of_rings);
        T_RUN(test_what_is_not_finite_stays_where_it_is);
        T_RUN(test_together);
    } else {
        T_RUN(test_nothing_runs_them);
    }
    T_MAIN_END;
}
