/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the GPU's products on 4-bit weights, on the host: within their
 * bounds of sums in double for every block size, dtype and kind of absmax, with
 * and without tensor cores, for odd shapes and addresses; the same bits in every
 * order of lanes and for an input alone or in a batch. Inputs end where their
 * memory does, outputs lie behind a fence.
 */
#define _DEFAULT_SOURCE /* MAP_NORESERVE */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/products.h"
#include "tests/simt_level.h"
#include "tests/t.h"

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* One shape for each kernel of each block size: tails of rows, chunks and quads. */
static void
test_every_block_size(void)
{
    for (unsigned i = 0; i < 8 * 3 * 2 * 2; i++) {
        const uint32_t block_size = 32u << i / 12;

        product_check(&(product_case){
            .rows = 17 + i % 5,
            .columns = block_size < 512 ? block_size * (5 - i % 3) : block_size,
            .block_size = block_size,
            .count = 1 + i % 8,
            .dtype = dtypes[i % 3],
            .is_fp4 = i / 5 % 2 == 1,
            .is_double = i / 3 % 2 == 1,
            .has_bias = i % 7 == 0,
            .capability = i / 6 % 2 == 1 ? 90 : 70 });
    }
}

/* Every kernel that decodes a weight once for 9 to 32 inputs; tails of fragments. */
static void
test_many_inputs(void)
{
    static const uint32_t counts[] = { 9, 15, 16, 17, 24, 25, 31, 32 };

    for (unsigned i = 0; i < 8 * 4; i++)
        product_check(&(product_case){
            .rows = i % 3 == 0 ? 16 : 21 + i % 5,
            .columns = i / 4 % 2 == 0 ? 256 : 1024 + 128 * (i % 3),
            .block_size = i / 2 % 2 == 0 ? 64 : 128,
            .count = counts[i / 4],
            .dtype = dtypes[i % 2],
            .is_fp4 = i / 5 % 2 == 1,
            .is_double = i / 8 % 2 == 1,
            .has_bias = i % 7 == 0,
            .capability = 90 });
}

/* As many warps as share a row, with shares that end before and within the row. */
static void
test_shares_of_a_row(void)
{
    static const uint64_t columns[] = { 512, 1024, 1088, 2048, 2240, 4096, 4160, 4480 };

    for (unsigned i = 0; i < 8 * 4; i++)
        product_check(&(product_case){ .rows = i % 2 == 0 ? 16 : 35,
                                       .columns = columns[i / 4],
                                       .block_size = i / 2 % 2 == 0 ? 64 : 128,
                                       .count = 3,
                                       .dtype = dtypes[i % 2],
                                       .is_double = i % 3 == 0,
                                       .capability = 80 });
}

/* Blocks that end within rows, and second-level ones, too. */
static void
test_blocks_across_rows(void)
{
    static const struct {
        uint64_t rows, columns;
        uint32_t block_size;
    } shapes[] = { { 50, 192, 128 }, { 37, 192, 4096 }, { 70, 320, 256 }, { 40, 384, 256 },
                   { 33, 640, 512 }, { 40, 1024, 64 }, { 21, 100, 32 },  { 90, 168, 64 },
                   { 19, 45, 64 },   { 33, 999, 128 } };

    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0] * 4; i++)
        product_check(&(product_case){ .rows = shapes[i / 4].rows,
                                       .columns = shapes[i / 4].columns,
                                       .block_size = shapes[i / 4].block_size,
                                       .count = 2,
                                       .dtype = dtypes[i % 3],
                                       .is_double = i % 2 == 0,
                                       .capability = 90 });
}

static void
test_odd_shapes_and_addresses(void)
{
    static const uint64_t columns[] = { 0, 1, 2, 7, 8, 31, 33, 63, 64, 65, 127, 128, 200, 264 };

    for (unsigned i = 0; i < sizeof columns / sizeof columns[0] * 9; i++) {
        const int32_t dtype = dtypes[i % 3];

        product_check(&(product_case){
            .rows = 1 + product_random() % 40,
            .columns = columns[i / 9],
            .block_size = 32u << i % 4,
            .count = 1 + i % 8,
            .dtype = dtype,
            .is_double = i % 2 == 0,
            .has_bias = i % 4 == 0,
            .capability = 90,
            .odd_codes = i / 3 % 3 == 1 ? 1 + product_random() % 15 : 0,
            .odd_inputs = i / 3 % 3 == 2
                              ? product_element_bytes(dtype) * (1 + product_random() % 3)
                              : 0 });
    }
}

/* The kernel, its share of a row, and each sum are those of one input. */
static void
test_an_input_alone_gives_the_same_bits(void)
{
    for (unsigned i = 0; i < 3 * 2 * 4; i++) {
        static const uint32_t counts[] = { 32, 13, 8, 17 };
        const product_case c = { .rows = 19,
                                 .columns = i % 4 == 3 ? 511 : 1024,
                                 .block_size = i % 4 == 1 ? 256 : 64,
                                 .count = counts[i / 3 % 4],
                                 .dtype = dtypes[i % 3],
                                 .is_double = i % 5 == 0,
                                 .capability = i < 18 ? 90 : 70 };

        product_check_alone(&c, 1, (simt_order)(i % SIMT_ORDER_COUNT), i);
    }
}

/* NaN and infinity stay in their input's, or their row's, outputs. */
static void
test_what_is_not_finite_stays_where_it_is(void)
{
    for (unsigned i = 0; i < 2 * 2 * 2; i++) {
        const product_case c = { .rows = 20, .columns = 256, .block_size = i < 4 ? 64 : 128,
                                 .count = 5, .dtype = dtypes[i % 2],
                                 .capability = i / 2 % 2 == 0 ? 90 : 70 };

        product_check_not_finite(&c, i % 2 == 0 ? NAN : INFINITY, 9, i);
    }
}

/* ------------------------------------------------------------ beyond 32 bits */

/* Memory that costs nothing until it is touched; NULL where there is none. */
static void *
reserve(size_t bytes)
{
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* The last rows of a matrix of more than 2^33 weights, by both ways. */
static void
check_counts_beyond_32_bits(void)
{
    enum { COLUMNS = 4096, LAST = 5, BLOCK = 64, OF_ROW = COLUMNS / BLOCK };
    const uint64_t first = UINT64_C(1) << 21;
    const uint64_t rows = first + LAST;
    uint8_t *const codes = reserve(rows * COLUMNS / 2);
    float *const absmax = reserve(rows * OF_ROW * sizeof(float));
    uint16_t *const outputs = reserve(rows * 2 * sizeof(uint16_t));

    if (codes == NULL || absmax == NULL || outputs == NULL)
        T_SKIP("no 5 GB of addresses");
    for (uint32_t capability = 70; capability <= 90; capability += 20) {
        const product_case c = { .rows = LAST, .columns = COLUMNS, .block_size = BLOCK,
                                 .count = 2, .dtype = BERTH_BF16, .capability = capability };
        product_problem p = product_draw(&c);
        product_problem large = p;
        uint16_t small[LAST * 2];

        large.c.rows = rows;
        large.codes = codes;
        large.absmax = absmax;
        memcpy(codes + first * COLUMNS / 2, p.codes, LAST * COLUMNS / 2);
        memcpy(absmax + first * OF_ROW, p.absmax, LAST * OF_ROW * sizeof(float));
        product_run(&p, 0, c.count, small);
        simt_level_set_first(capability == 90
                                 ? first / PRODUCT_TILE_ROWS
                                       / (PRODUCT_WARPS / berthi_product_slices(COLUMNS))
                                 : first / PRODUCT_WARPS);
        product_run(&large, 0, c.count, outputs);
        simt_level_set_first(0);
        for (uint32_t k = 0; k < c.count; k++)
            CHECK_MEM(outputs + k * rows + first, small + k * LAST, LAST * sizeof small[0]);
        product_free(&p);
    }
    munmap(codes, rows * COLUMNS / 2);
    munmap(absmax, rows * OF_ROW * sizeof(float));
    munmap(outputs, rows * 2 * sizeof(uint16_t));
}

static void
test_counts_beyond_32_bits(void)
{
    if (!simt_level_runs_parts())
        T_SKIP("a device runs grids whole");
    check_counts_beyond_32_bits();
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    if (simt_level_is_there(&why)) {
        T_RUN(test_every_block_size);
        T_RUN(test_many_inputs);
        T_RUN(test_shares_of_a_row);
        T_RUN(test_blocks_across_rows);
        T_RUN(test_odd_shapes_and_addresses);
        T_RUN(test_an_input_alone_gives_the_same_bits);
        T_RUN(test_what_is_not_finite_stays_where_it_is);
        T_RUN(test_counts_beyond_32_bits);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
