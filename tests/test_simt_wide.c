/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the products of many inputs, on the host: within their bounds for every kernel,
 * for tiles that are not whole, for tiles split between CTAs; the same bits in every order of
 * lanes, with tiles that come late and early, and for any number of inputs of the same kernel.
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
wide_case(uint64_t rows, uint64_t columns, uint32_t count, uint32_t processors)
{
    return (product_case){ .rows = rows, .columns = columns, .block_size = WIDE_BLOCK,
                           .count = count, .dtype = BERTH_BF16, .processors = processors,
                           .is_wide = true };
}

/* Rows and inputs that fill no tile, of each kernel and each kind of absmax. */
static void
test_every_kernel(void)
{
    static const uint32_t counts[] = { 5, 17, 32, 33, 90, 141 };
    static const uint64_t rows[] = { 130, 7, 72, 65, 128 };

    for (unsigned i = 0; i < 6 * 4; i++) {
        product_case c = wide_case(rows[i % 5], 512, counts[i / 4], 1 + i % 3);

        c.dtype = dtypes[i % 2];
        c.is_double = i / 2 % 2 == 1;
        c.is_fp4 = i % 5 == 4;
        c.has_bias = i % 3 == 0;
        product_check(&c);
    }
}

/* Several tiles of rows and inputs: whole ones one after the other, and what is left split. */
static void
test_many_tiles(void)
{
    static const struct {
        uint64_t rows;
        uint64_t columns;
        uint32_t count;
        uint32_t processors;
    } cases[] = { { 300, 256, 100, 2 },  { 300, 512, 100, 2 }, { 520, 768, 40, 2 },
                  { 260, 1280, 50, 7 },  { 257, 256, 260, 4 }, { 140, 1024, 270, 3 },
                  { 700, 256, 65, 2 },   { 16, 2304, 34, 5 } };

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        product_case c = wide_case(cases[i].rows, cases[i].columns, cases[i].count,
                                   cases[i].processors);

        c.dtype = dtypes[i / 2 % 2];
        c.is_double = i % 2 == 1;
        product_check(&c);
    }
}

/* One tile, between more and more CTAs. */
static void
test_split_tiles(void)
{
    for (uint32_t processors = 1; processors < 6; processors++) {
        product_case c = wide_case(40, 256 * 11, 40, processors);

        c.is_double = processors % 2 == 0;
        c.has_bias = processors % 3 == 0;
        product_check(&c);
    }
}

/* Outputs at odd addresses: fences end the tested memory there. */
static void
test_rows_that_are_no_eights(void)
{
    for (uint32_t i = 1; i < 8; i += 2) {
        const product_case c = wide_case(64 + i, 256, 35 + i, 1);

        product_check(&c);
    }
}

/* Other inputs do not matter to an input's bits, as long as there are as many tiles. */
static void
test_inputs_do_not_meet(void)
{
    const product_case c = wide_case(70, 512, 60, 2);
    product_problem p = product_draw(&c);
    uint16_t all[60 * 70];
    uint16_t some[40 * 70];

    simt_level_set_order(SIMT_ASCENDING, 0);
    product_run(&p, 0, 60, all);
    simt_level_set_order(SIMT_RANDOM, 7);
    product_run(&p, 20, 40, some);
    CHECK_MEM(some, all + 20 * 70, sizeof some);
    product_free(&p);
}

/* NaN and infinity stay in their input's, or their row's, outputs. */
static void
test_what_is_not_finite_stays_where_it_is(void)
{
    for (unsigned i = 0; i < 2; i++) {
        const product_case c = wide_case(40, 512, 34, 2);

        product_check_not_finite(&c, i % 2 == 0 ? NAN : INFINITY, 33, i);
    }
}

static void
test_nothing_runs_them(void)
{
    const char *why;

    (void)(simt_level_is_there(&why) && simt_level_is_wide(&why));
    T_SKIP(why);
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    if (simt_level_is_there(&why) && simt_level_is_wide(&why)) {
        T_RUN(test_every_kernel);
        T_RUN(test_many_tiles);
        T_RUN(test_split_tiles);
        T_RUN(test_rows_that_are_no_eights);
        T_RUN(test_inputs_do_not_meet);
        T_RUN(test_what_is_not_finite_stays_where_it_is);
    } else {
        T_RUN(test_nothing_runs_them);
    }
    T_MAIN_END;
}
