/* SPDX-License-Identifier: Apache-2.0 */
/* products.c - see products.h */
#include "tests/products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/fenced.h"
#include "tests/random.h"
#include "tests/simt_level.h"
#include "tests/t.h"

static uint64_t state = 0x2545F4914F6CDD1Du;

uint64_t
product_random(void)
{
    return random_next(&state);
}

static float
next_normal(void)
{
    return random_share(&state) + random_share(&state) + random_share(&state)
           + random_share(&state) - 2.0f;
}

uint64_t
product_element_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* ------------------------------------------------------------------ problems */

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
draw_absmax(product_problem *p)
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
            p->absmax[i] =
                berthi_core_absmax_recover(berthi_signed_map, p->absmax_codes[i],
                                           p->absmax2[i / BERTHI_DOUBLE_BLOCK], p->offset);
    }
}

static uint8_t *
draw_values(uint64_t count, int32_t dtype, size_t odd, uint8_t **memory)
{
    uint8_t *const values = need(count * product_element_bytes(dtype));
    uint8_t *exact;

    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(values, dtype, i, next_normal());
    exact = fenced_copy(values, count * product_element_bytes(dtype), odd, memory);
    free(values);
    return exact;
}

product_problem
product_draw(const product_case *c)
{
    const uint64_t weights = c->rows * c->columns;
    product_problem p = { .c = *c, .blocks = (weights + c->block_size - 1) / c->block_size };
    uint8_t *const codes = need((weights + 1) / 2);

    for (uint64_t i = 0; i < (weights + 1) / 2; i++)
        codes[i] = (uint8_t)(random_next(&state) >> 20);
    p.codes = fenced_copy(codes, (weights + 1) / 2, c->odd_codes, &p.memory[0]);
    free(codes);
    draw_absmax(&p);
    p.inputs = draw_values(c->count * c->columns, c->dtype, c->odd_inputs, &p.memory[1]);
    p.bias = need(c->rows * product_element_bytes(c->dtype));
    for (uint64_t i = 0; i < c->rows; i++)
        berthi_core_store(p.bias, c->dtype, i, next_normal());
    return p;
}

void
product_free(product_problem *p)
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

berthi_multiply_arguments
product_arguments(const product_problem *p, uint32_t first, uint32_t count, void *outputs)
{
    const product_case *const c = &p->c;

    return (berthi_multiply_arguments){
        .codes = p->codes, .absmax = c->is_double ? p->absmax2 : p->absmax,
        .absmax_codes = c->is_double ? p->absmax_codes : NULL, .map = berthi_signed_map,
        .offset = p->offset, .block_size = c->block_size, .count = count, .rows = c->rows,
        .columns = c->columns,
        .inputs = p->inputs + first * c->columns * product_element_bytes(c->dtype),
        .bias = c->has_bias ? p->bias : NULL, .outputs = outputs, .dtype = c->dtype
    };
}

void
product_run(const product_problem *p, uint32_t first, uint32_t count, void *outputs)
{
    const product_case *const c = &p->c;
    const berthi_multiply_arguments what = product_arguments(p, first, count, outputs);

    if (c->is_wide)
        simt_multiply_wide_product(&(berthi_wide_task){
            .what = &what, .values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values,
            .processors = c->processors });
    else
        simt_multiply(&(berthi_product_task){
            .what = &what, .values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values,
            .capability = c->capability, .processors = c->processors,
            .room_bytes = SIMT_MOST_ROOM, .has_tiles = c->has_tiles });
}

/* -------------------------------------------------------------------- bounds */

/* One output: against the kernel's own operands, and against values as they are. */
typedef struct exact_sum {
    double own;
    double size; /* of its terms */
    double unrounded;
} exact_sum;

/* As the kernel multiplies with it: of many inputs absmax are part of what is rounded. */
static double
round_weight(const product_case *c, float value, float absmax)
{
    const bool is_by_products = c->is_wide && c->count > 64;
    const float own = is_by_products ? berthi_core_multiply_flush(value, absmax) : value;
    const float rounded = c->dtype == BERTH_BF16
                              ? berthi_core_from_bf16(berthi_core_to_bf16(own))
                          : c->dtype == BERTH_F16
                              ? berthi_core_from_fp16(berthi_core_to_fp16(own))
                              : own;

    return is_by_products ? (double)rounded : (double)rounded * (double)absmax;
}

static exact_sum
sum_exactly(const product_problem *p, uint32_t input, uint64_t row)
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
        const float absmax = p->absmax[i / c->block_size];
        const double by =
            (double)berthi_core_load(p->inputs, c->dtype, input * c->columns + k);
        const double own = round_weight(c, value, absmax) * by;

        sum.own += own;
        sum.size += fabs(own);
        sum.unrounded += (double)value * (double)absmax * by;
    }
    return sum;
}

/* Of every output, and of their norm where there are enough for it to be one. */
void
product_check_bounds(const product_problem *p, const void *outputs)
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
void
product_check(const product_case *c)
{
    product_problem p = product_draw(c);
    const uint64_t bytes = c->count * c->rows * product_element_bytes(c->dtype);
    uint8_t *const first = need(bytes);
    char what[120];

    describe(c, what, sizeof what);
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        fenced_output tested = fenced_begin(bytes, 0);
        fenced_output expected = fenced_begin(bytes, 0);

        simt_level_set_order((simt_order)order, c->columns + c->rows);
        product_run(&p, 0, c->count, tested.bytes);
        if (order == 0) {
            product_check_bounds(&p, tested.bytes);
            memcpy(first, tested.bytes, bytes);
        }
        memcpy(expected.bytes, first, bytes);
        fenced_end(&tested, &expected, what);
    }
    free(first);
    product_free(&p);
}

/* --------------------------------------------------------------------- tests */

void
product_check_alone(const product_case *c, uint32_t apart, simt_order order, uint64_t seed)
{
    const uint64_t row_bytes = c->rows * product_element_bytes(c->dtype);
    uint8_t *const batch = need(c->count * row_bytes);
    uint8_t *const alone = need(row_bytes);
    product_problem p = product_draw(c);

    simt_level_set_order(order, seed);
    product_run(&p, 0, c->count, batch);
    product_check_bounds(&p, batch);
    for (uint32_t k = 0; k < c->count; k += apart) {
        product_run(&p, k, 1, alone);
        CHECK_MEM(alone, batch + k * row_bytes, row_bytes);
    }
    product_free(&p);
    free(batch);
    free(alone);
}

void
product_check_not_finite(const product_case *c, float value, uint64_t row, uint64_t seed)
{
    enum { INPUT = 3 };
    uint8_t *const outputs = need(c->count * c->rows * product_element_bytes(c->dtype));
    product_problem p = product_draw(c);

    berthi_core_store(p.inputs, c->dtype, INPUT * c->columns + 77, value);
    p.absmax[row * c->columns / c->block_size] = NAN;
    simt_level_set_order(SIMT_RANDOM, seed);
    product_run(&p, 0, c->count, outputs);
    for (uint32_t k = 0; k < c->count; k++)
        for (uint64_t i = 0; i < c->rows; i++) {
            const float got = berthi_core_load(outputs, c->dtype, k * c->rows + i);

            CHECK_EQ(isfinite(got) != 0, k != INPUT && i != row);
        }
    product_free(&p);
    free(outputs);
}

/* ------------------------------------------------------------------ weights together */

#define MOST_TOGETHER 4u

static void
run_together(product_problem *p, void **outputs, uint32_t count, bool are_one)
{
    berthi_multiply_arguments whats[MOST_TOGETHER];
    berthi_product_task tasks[MOST_TOGETHER];

    for (uint32_t i = 0; i < count; i++) {
        whats[i] = product_arguments(&p[i], 0, p[i].c.count, outputs[i]);
        whats[i].inputs = p[0].inputs;
        tasks[i] = (berthi_product_task){ .what = &whats[i], .values = berthi_nf4_values,
                                          .capability = p[i].c.capability,
                                          .processors = p[i].c.processors,
                                          .room_bytes = SIMT_MOST_ROOM,
                                          .has_tiles = p[i].c.has_tiles };
    }
    CHECK_EQ(simt_multiply_together(tasks, count), are_one);
}

void
product_check_together(const product_case *c, const uint64_t *rows, uint32_t count)
{
    product_problem p[MOST_TOGETHER];
    fenced_output alone[MOST_TOGETHER];
    fenced_output together[MOST_TOGETHER];
    void *places[MOST_TOGETHER];

    T_REQUIRE(count > 0 && count <= MOST_TOGETHER);
    for (uint32_t i = 0; i < count; i++) {
        product_case its = *c;

        its.rows = rows[i];
        its.has_bias = i % 2 == 1;
        p[i] = product_draw(&its);
        p[i].offset = 0.04f + 0.01f * (float)i;
        alone[i] = fenced_begin(rows[i] * c->count * 2, 0);
        together[i] = fenced_begin(rows[i] * c->count * 2, 0);
        places[i] = alone[i].bytes;
    }
    simt_level_set_order(SIMT_ASCENDING, 0);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *const own = p[i].inputs;

        p[i].inputs = p[0].inputs;
        run_together(&p[i], &places[i], 1, false);
        p[i].inputs = own;
        places[i] = together[i].bytes;
    }
    simt_level_set_order(SIMT_RANDOM, count);
    run_together(p, places, count, count > 1);
    for (uint32_t i = 0; i < count; i++) {
        fenced_end(&together[i], &alone[i], "a product among others");
        product_free(&p[i]);
    }
}
