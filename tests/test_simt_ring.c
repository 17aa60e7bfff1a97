/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the products by rings, on the host: within their bounds for every kernel, for
 * tiles of every height and parts of one, rows that end within a turn, and CTAs that go from tile
 * to tile; the same bits in every order of lanes, with copies that come late and early, for an
 * input alone or in a batch, for any number of processors, and of a weight together with others.
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
ring_case(uint64_t rows, uint64_t columns, uint32_t count, uint32_t processors)
{
    return (product_case){ .rows = rows, .columns = columns, .block_size = RING_BLOCK,
                           .count = count, .dtype = BERTH_BF16, .capability = 90,
                           .processors = processors };
}

/* Each of the twelve, one CTA and several, whole tiles and parts of one. */
static void
test_every_kernel(void)
{
    static const uint32_t counts[] = { 3, 13, 27 };
    static const uint64_t rows[] = { 32, 35, 5, 64, 1 };

    for (unsigned i = 0; i < 3 * 4; i++) {
        product_case c = ring_case(rows[i % 5], RING_LEAST_COLUMNS, counts[i / 4], 1 + i % 2);

        c.dtype = dtypes[i % 2];
        c.is_double = i / 2 % 2 == 1;
        c.is_fp4 = i % 5 == 4;
        c.has_bias = i % 7 == 0;
        product_check(&c);
    }
}

/*
 * CTAs with tiles of 64 rows, of 32 and of 16 behind each other, and with none of the first; rows
 * that end in each unit of one.
 */
static void
test_heights_of_tiles(void)
{
    static const uint64_t rows[] = { 16, 48, 64, 63, 50, 80, 112, 115, 128, 176 };

    for (unsigned i = 0; i < 2 * 10; i++) {
        product_case c = ring_case(rows[i % 10], i % 3 == 0 ? 4352 : 4608,
                                   i % 4 < 2 ? 1 + i % 8 : 11 + i % 5, 1 + i % 3);

        c.dtype = dtypes[i / 2 % 2];
        c.is_double = i / 10 == 1;
        product_check(&c);
    }
}

/* Of an input, with tiles of two groups or of one, and for each number of processors. */
static void
test_heights_do_not_matter(void)
{
    for (unsigned i = 0; i < 4; i++) {
        product_case c = ring_case(150, i % 2 == 0 ? 4352 : 4096, 9, 1 + i);
        uint16_t tall[150 * 9];
        uint16_t alone[150];
        product_problem p;

        c.is_double = i / 2 == 1;
        p = product_draw(&c);
        simt_level_set_order(SIMT_DESCENDING, 0);
        product_run(&p, 0, c.count, tall);
        for (uint32_t k = 0; k < c.count; k += 4) {
            simt_level_set_order(SIMT_RANDOM, k);
            p.c.processors = 1 + (i + k) % 5;
            product_run(&p, k, 1, alone);
            CHECK_MEM(alone, tall + k * c.rows, sizeof alone);
        }
        product_free(&p);
    }
}

/* Lines that are a turn's first one and last of the row, warps with a turn more than others. */
static void
test_ends_of_rows(void)
{
    static const uint64_t columns[] = { 4352, 4608, 4864, 7936, 8192, 8448 };

    for (unsigned i = 0; i < 6; i++) {
        product_case c = ring_case(34, columns[i], 3, 1);

        c.is_double = i % 2 == 1;
        product_check(&c);
    }
}

/* One CTA has all tiles, or each its own: what is under way from tile to tile is the same. */
static void
test_processors_do_not_matter(void)
{
    for (unsigned i = 0; i < 2; i++) {
        product_case c = ring_case(96, 4352, 2, 1);
        uint16_t of_one[96 * 2];
        uint16_t outputs[96 * 2];
        product_problem p;

        c.is_double = i == 1;
        p = product_draw(&c);
        simt_level_set_order(SIMT_ASCENDING, 0);
        product_run(&p, 0, c.count, of_one);
        product_check_bounds(&p, of_one);
        for (uint32_t processors = 2; processors < 4; processors++) {
            p.c.processors = processors;
            simt_level_set_order((simt_order)(processors % SIMT_ORDER_COUNT), processors);
            product_run(&p, 0, c.count, outputs);
            CHECK_MEM(outputs, of_one, sizeof of_one);
        }
        product_free(&p);
    }
}

static void
test_an_input_alone_gives_the_same_bits(void)
{
    static const uint32_t counts[] = { 7, 16, 32 };

    for (unsigned i = 0; i < 3; i++) {
        product_case c = ring_case(37, 4352, counts[i], 1 + i);

        c.dtype = dtypes[i % 2];
        c.is_double = i < 2;
        product_check_alone(&c, 7, (simt_order)(i % SIMT_ORDER_COUNT), i);
    }
}

/* NaN and infinity stay in their input's, or their row's, outputs. */
static void
test_what_is_not_finite_stays_where_it_is(void)
{
    for (unsigned i = 0; i < 2; i++) {
        const product_case c = ring_case(40, 4096, 5, 1);

        product_check_not_finite(&c, i % 2 == 0 ? NAN : INFINITY, 33, i);
    }
}

/* ------------------------------------------------------------------ weights together */

static void
check_together(const uint64_t *rows, uint32_t count, uint32_t inputs, bool is_double,
               uint32_t processors)
{
    product_case c = ring_case(0, 4352, inputs, processors);

    c.is_double = is_double;
    product_check_together(&c, rows, count);
}

static void
test_together(void)
{
    static const uint64_t rows[] = { 32, 33, 7, 64, 3 };
    static const uint64_t tall[] = { 100, 40, 130, 16 };
    static const uint32_t inputs[] = { 1, 2, 20, 4 };

    for (unsigned i = 0; i < 4; i++) {
        check_together(tall + i / 2, 2, 6 + 4 * i % 10, i % 2 == 1, 1 + i % 2);
        check_together(rows + i % 2, 2 + i % 3, inputs[i], i % 2 == 0, 1 + i % 3);
    }
}

static void
test_nothing_runs_them(void)
{
    const char *why;

    (void)(simt_level_is_there(&why) && simt_level_has_rings(&why));
    T_SKIP(why);
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    if (simt_level_is_there(&why) && simt_level_has_rings(&why)) {
        T_RUN(test_every_kernel);
        T_RUN(test_heights_of_tiles);
        T_RUN(test_heights_do_not_matter);
        T_RUN(test_ends_of_rows);
        T_RUN(test_processors_do_not_matter);
        T_RUN(test_an_input_alone_gives_the_same_bits);
        T_RUN(test_what_is_not_finite_stays_where_it_is);
        T_RUN(test_together);
    } else {
        T_RUN(test_nothing_runs_them);
    }
    T_MAIN_END;
}
