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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/fenced.h"
#include "tests/simt_level.h"
#include "tests/random.h"
#include "tests/t.h"

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0x2545F4914F6CDD1Du;

static float
next_normal(void)
{
    return random_share(&state) + random_share(&state) + random_share(&state)
           + random_share(&state) - 2.0f;
}

static uint64_t
element_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* ------------------------------------------------------------------ problems */

typedef struct product_case {
    uint64_t rows;
    uint64_t columns;
    uint32_t block_size;
    uint32_t count;
    int32_t dtype;
    bool is_fp4;
    bool is_double;
    bool has_bias;
    uint32_t capability;
    size_t odd_codes;
    size_t odd_inputs;
} product_case;

typedef struct problem {
    product_case c;
    uint64_t blocks;
    uint8_t *codes;
    float *absmax; /* as the weights meet it */
    uint8_t *absmax_codes;
    float *absmax2;
    float offset;
    uint8_t *inputs;
    void *bias;
    uint8_t *memory[2]; /* that codes and inputs end with */
} problem;

static void *
need(size_t bytes)
{
    void *const memory = malloc(bytes);

    if (memory == NULL)
        abort();
    return memory;
}

/* Each 50th block is one of zeros. */
static void
draw_absmax(problem *p)
{
    const uint64_t blocks2 = (p->blocks + BERTHI_DOUBLE_BLOCK - 1) / BERTHI_DOUBLE_BLOCK;

    p->absmax = need(p->blocks * sizeof(float));
    p->absmax_codes = need(p->blocks);
    p->absmax2 = need(blocks2 * sizeof(float));
    p->offset = 0.05f;
    for (uint64_t i = 0; i < blocks2; i++)
        p->absmax2[i] = 0.02f + 0.02f * random_share(&state);
    for (uint64_t i = 0; i < p->blocks; i++) {
        p->absmax_codes[i] = (uint8_t)(random_next(&state) >> 20);
        p->absmax[i] = i % 50 == 49 ? 0.0f : 0.01f + 0.09f * random_share(&state);
        if (p->c.is_double)
            p->absmax[i]
                = berthi_core_absmax_recover(berthi_signed_map, p->absmax_codes[i],
                                             p->absmax2[i / BERTHI_DOUBLE_BLOCK], p->offset);
    }
}

static uint8_t *
draw_values(uint64_t count, int32_t dtype, size_t odd, uint8_t **memory)
{
    uint8_t *const values = need(count * element_bytes(dtype));
    uint8_t *exact;

    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(values, dtype, i, next_normal());
    exact = fenced_copy(values, count * element_bytes(dtype), odd, memory);
    free(values);
    return exact;
}

static problem
draw_problem(const product_case *c)
{
    const uint64_t weights = c->rows * c->columns;
    problem p = { .c = *c, .blocks = (weights + c->block_size - 1) / c->block_size };
    uint8_t *const codes = need((weights + 1) / 2);

    for (uint64_t i = 0; i < (weights + 1) / 2; i++)
        codes[i] = (uint8_t)(random_next(&state) >> 20);
    p.codes = fenced_copy(codes, (weights + 1) / 2, c->odd_codes, &p.memory[0]);
    free(codes);
    draw_absmax(&p);
    p.inputs = draw_values(c->count * c->columns, c->dtype, c->odd_inputs, &p.memory[1]);
    p.bias = need(c->rows * element_bytes(c->dtype));
    for (uint64_t i = 0; i < c->rows; i++)
        berthi_core_store(p.bias, c->dtype, i, next_normal());
    return p;
}

static void
free_problem(problem *p)
{
    free(p->memory[0]);
    free(p->memory[1]);
    free(p->absmax);
    free(p->absmax_codes);
    free(p->absmax2);
    free(p->bias);
}

static void
describe(const product_case *c, char *what, size_t size)
{
    snprintf(what, size, "%s%s dtype %d block %u: %u x %llu x %llu on %u",
             c->is_fp4 ? "FP4" : "NF4", c->is_double ? " double" : "", c->dtype, c->block_size,
             c->count, (unsigned long long)c->rows, (unsigned long long)c->columns,
             c->capability);
}

/* Inputs `first` to `first + count - 1` of the problem. */
static void
multiply(const problem *p, uint32_t first, uint32_t count, void *outputs)
{
    const product_case *const c = &p->c;
    const berthi_multiply_arguments what = {
        .codes = p->codes, .absmax = c->is_double ? p->absmax2 : p->absmax,
        .absmax_codes = c->is_double ? p->absmax_codes : NULL, .map = berthi_signed_map,
        .offset = p->offset, .block_size = c->block_size, .count = count, .rows = c->rows,
        .columns = c->columns,
        .inputs = p->inputs + first * c->columns * element_bytes(c->dtype),
        .bias = c->has_bias ? p->bias : NULL, .outputs = outputs, .dtype = c->dtype
    };

    simt_multiply(&(berthi_product_task){
        .what = &what, .values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values,
        .capability = c->capability });
}

/* -------------------------------------------------------------------- bounds */

/* One output: against the kernel's own operands, and against values as they are. */
typedef struct exact_sum {
    double own;
    double size; /* of its terms */
    double unrounded;
} exact_sum;

static exact_sum
sum_exactly(const problem *p, uint32_t input, uint64_t row)
{
    const product_case *const c = &p->c;
    const uint32_t *const values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values;
    exact_sum sum = { 0.0, 0.0, 0.0 };

    if (c->has_bias)
        sum.own = (double)berthi_core_load(p->bias, c->dtype, row);
    sum.unrounded = sum.own;
    for (uint64_t k = 0; k < c->columns; k++) {
        const uint64_t i = row * c->columns + k;
        const uint32_t code = i % 2 == 0 ? p->codes[i / 2] >> 4 : p->codes[i / 2] & 15u;
        const float value = berthi_core_float(values[code]);
        const float own = c->dtype == BERTH_BF16
                              ? berthi_core_from_bf16(berthi_core_to_bf16(value))
                          : c->dtype == BERTH_F16
                              ? berthi_core_from_fp16(berthi_core_to_fp16(value))
                              : value;
        const double by = (double)p->absmax[i / c->block_size]
                          * (double)berthi_core_load(p->inputs, c->dtype,
                                                     input * c->columns + k);

        sum.own += (double)own * by;
        sum.size += fabs((double)own * by);
        sum.unrounded += (double)value * by;
    }
    return sum;
}

/* Of every output, and of their norm where there are enough for it to be one. */
static void
check_bounds(const problem *p, const void *outputs)
{
    const product_case *const c = &p->c;
    const double unit = c->dtype == BERTH_BF16  ? 0x1p-8
                        : c->dtype == BERTH_F16 ? 0x1p-11
                                                : 0x1p-22;
    const double least = c->dtype == BERTH_BF16  ? 3e-3
                         : c->dtype == BERTH_F16 ? 4e-4
                                                 : 1e-6 * sqrt((double)c->columns) / 8;
    double error = 0.0;
    double norm = 0.0;
    char what[120];

    describe(c, what, sizeof what);
    for (uint32_t i = 0; i < c->count; i++)
        for (uint64_t row = 0; row < c->rows; row++) {
            const exact_sum exact = sum_exactly(p, i, row);
            const double got = (double)berthi_core_load(outputs, c->dtype, i * c->rows + row);

            if (!CHECK(fabs(got - exact.own) <= unit * fabs(exact.own) + 0x1p-18 * exact.size))
                T_NOTE("%s: input %u row %llu is %g, exact %g", what, i,
                       (unsigned long long)row, got, exact.own);
            error += pow(got - exact.unrounded, 2);
            norm += pow(exact.unrounded, 2);
        }
    if (c->count * c->rows >= 64 && c->columns >= 64 && !c->has_bias)
        if (!CHECK(sqrt(error) <= least * sqrt(norm)))
            T_NOTE("%s: %g of the norm", what, sqrt(error / norm));
}

/* In every order the same bits, within the bounds. */
static void
check_product(const product_case *c)
{
    problem p = draw_problem(c);
    const uint64_t bytes = c->count * c->rows * element_bytes(c->dtype);
    uint8_t *const first = need(bytes);
    char what[120];

    describe(c, what, sizeof what);
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        fenced_output tested = fenced_begin(bytes, 0);
        fenced_output expected = fenced_begin(bytes, 0);

        simt_level_set_order((simt_order)order, c->columns + c->rows);
        multiply(&p, 0, c->count, tested.bytes);
        if (order == 0) {
            check_bounds(&p, tested.bytes);
            memcpy(first, tested.bytes, bytes);
        }
        memcpy(expected.bytes, first, bytes);
        fenced_end(&tested, &expected, what);
    }
    free(first);
    free_problem(&p);
}

/* --------------------------------------------------------------------- tests */

/* One shape for each kernel of each block size: tails of rows, chunks and quads. */
static void
test_every_block_size(void)
{
    for (unsigned i = 0; i < 8 * 3 * 2 * 2; i++) {
        const uint32_t block_size = 32u << i / 12;

        check_product(&(product_case){
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
        check_product(&(product_case){
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
        check_product(&(product_case){ .rows = i % 2 == 0 ? 16 : 35,
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
        check_product(&(product_case){ .rows = shapes[i / 4].rows,
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

        check_product(&(product_case){
            .rows = 1 + random_next(&state) % 40,
            .columns = columns[i / 9],
            .block_size = 32u << i % 4,
            .count = 1 + i % 8,
            .dtype = dtype,
            .is_double = i % 2 == 0,
            .has_bias = i % 4 == 0,
            .capability = 90,
            .odd_codes = i / 3 % 3 == 1 ? 1 + random_next(&state) % 15 : 0,
            .odd_inputs = i / 3 % 3 == 2
                              ? element_bytes(dtype) * (1 + random_next(&state) % 3)
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
        const uint64_t row_bytes = c.rows * element_bytes(c.dtype);
        problem p = draw_problem(&c);
        uint8_t *const batch = need(c.count * row_bytes);
        uint8_t *const alone = need(row_bytes);

        simt_level_set_order((simt_order)(i % SIMT_ORDER_COUNT), i);
        multiply(&p, 0, c.count, batch);
        check_bounds(&p, batch);
        for (uint32_t k = 0; k < c.count; k++) {
            multiply(&p, k, 1, alone);
            CHECK_MEM(alone, batch + k * row_bytes, row_bytes);
        }
        free(batch);
        free(alone);
        free_problem(&p);
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
        problem p = draw_problem(&c);
        uint16_t outputs[20 * 5];

        berthi_core_store(p.inputs, c.dtype, 3 * c.columns + 77, i % 2 == 0 ? NAN : INFINITY);
        p.absmax[9 * c.columns / c.block_size] = NAN;
        simt_level_set_order(SIMT_RANDOM, i);
        multiply(&p, 0, c.count, outputs);
        for (uint32_t k = 0; k < c.count; k++)
            for (uint64_t row = 0; row < c.rows; row++) {
                const float got = berthi_core_load(outputs, c.dtype, k * c.rows + row);

                CHECK_EQ(isfinite(got) != 0, k != 3 && row != 9);
            }
        free_problem(&p);
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
        problem p = draw_problem(&c);
        problem large = p;
        uint16_t small[LAST * 2];

        large.c.rows = rows;
        large.codes = codes;
        large.absmax = absmax;
        memcpy(codes + first * COLUMNS / 2, p.codes, LAST * COLUMNS / 2);
        memcpy(absmax + first * OF_ROW, p.absmax, LAST * OF_ROW * sizeof(float));
        multiply(&p, 0, c.count, small);
        simt_level_set_first(capability == 90
                                 ? first / PRODUCT_TILE_ROWS
                                       / (PRODUCT_WARPS / berthi_product_slices(COLUMNS))
                                 : first / PRODUCT_WARPS);
        multiply(&large, 0, c.count, outputs);
        simt_level_set_first(0);
        for (uint32_t k = 0; k < c.count; k++)
            CHECK_MEM(outputs + k * rows + first, small + k * LAST, LAST * sizeof small[0]);
        free_problem(&p);
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

static void
test_nothing_runs_them(void)
{
    const char *why;

    (void)simt_level_is_there(&why);
    T_SKIP(why);
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
        T_RUN(test_nothing_runs_them);
    }
    T_MAIN_END;
}
