/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with the same inputs in one grid, on the host: the bits of each alone, whatever the
 * rows of the others, in every order of lanes; and what is no such product stays its own launch.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/fenced.h"
#include "tests/random.h"
#include "tests/simt_level.h"
#include "tests/t.h"

#define MEMBERS 5u /* one more than are together */

static uint64_t state = 0x2545F4914F6CDD1Du;

/* What they agree on. */
typedef struct common {
    uint64_t columns;
    uint32_t block_size;
    uint32_t count;
    int32_t dtype;
    bool is_fp4;
    bool is_double;
} common;

/* One weight, and memory of it. */
typedef struct weight {
    berthi_multiply_arguments a;
    uint8_t *codes;
    float *absmax;
    uint8_t *absmax_codes;
    uint16_t *bias;
} weight;

static void *
need(uint64_t bytes)
{
    void *const memory = aligned_alloc(64, (bytes + 127) / 64 * 64);

    if (memory == NULL)
        abort();
    return memory;
}

static uint16_t
make_value(int32_t dtype)
{
    const float value = random_share(&state) * 2.0f - 1.0f;

    return dtype == BERTH_BF16 ? berthi_core_to_bf16(value) : berthi_core_to_fp16(value);
}

static weight
make_weight(const common *c, uint64_t rows, bool has_bias)
{
    const uint64_t blocks = (rows * c->columns + c->block_size - 1) / c->block_size;
    weight w = { .codes = need(rows * c->columns / 2 + 1),
                 .absmax = need(blocks * sizeof(float)),
                 .absmax_codes = need(blocks),
                 .bias = need(rows * sizeof(uint16_t)) };

    for (uint64_t i = 0; i < rows * c->columns / 2 + 1; i++)
        w.codes[i] = (uint8_t)(random_next(&state) >> 20);
    for (uint64_t i = 0; i < blocks; i++) {
        w.absmax[i] = 0.01f + 0.1f * random_share(&state);
        w.absmax_codes[i] = (uint8_t)(random_next(&state) >> 20);
    }
    for (uint64_t i = 0; i < rows; i++)
        w.bias[i] = make_value(c->dtype);
    w.a = (berthi_multiply_arguments){
        .codes = w.codes, .absmax = w.absmax,
        .absmax_codes = c->is_double ? w.absmax_codes : NULL, .map = berthi_signed_map,
        .offset = 0.05f * random_share(&state), .block_size = c->block_size,
        .count = c->count, .rows = rows, .columns = c->columns,
        .bias = has_bias ? w.bias : NULL, .dtype = c->dtype
    };
    return w;
}

static void
free_weight(weight *w)
{
    free(w->codes);
    free(w->absmax);
    free(w->absmax_codes);
    free(w->bias);
}

static berthi_product_task
task_of(const common *c, const berthi_multiply_arguments *a)
{
    return (berthi_product_task){ .what = a,
                                  .values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values,
                                  .capability = 90 };
}

/* Alone, then together in an order of lanes: the same bytes, and no others. */
static void
check_members(const common *c, weight *weights, uint32_t count, simt_order order, bool are_one)
{
    berthi_product_task tasks[MEMBERS];
    fenced_output alone[MEMBERS];
    fenced_output together[MEMBERS];

    for (uint32_t i = 0; i < count; i++) {
        berthi_multiply_arguments *const a = &weights[i].a;
        const uint64_t bytes = a->count * a->rows * sizeof(uint16_t);

        alone[i] = fenced_begin(bytes, 0);
        together[i] = fenced_begin(bytes, 0);
        tasks[i] = task_of(c, a);
        a->outputs = alone[i].bytes;
        simt_level_set_order(SIMT_ASCENDING, 0);
        simt_multiply(&tasks[i]);
        a->outputs = together[i].bytes;
    }
    simt_level_set_order(order, count);
    CHECK_EQ(simt_multiply_together(tasks, count), are_one && simt_level_has_tensor_cores());
    for (uint32_t i = 0; i < count; i++)
        fenced_end(&together[i], &alone[i], "a product among others");
}

static void
check_together(const common *c, const uint64_t *rows, uint32_t count, simt_order order,
               bool are_one)
{
    uint16_t *const inputs = need(c->count * c->columns * sizeof *inputs);
    weight weights[MEMBERS];

    for (uint64_t i = 0; i < c->count * c->columns; i++)
        inputs[i] = make_value(c->dtype);
    for (uint32_t i = 0; i < count; i++) {
        weights[i] = make_weight(c, rows[i], i % 2 == 1);
        weights[i].a.inputs = inputs;
    }
    check_members(c, weights, count, order, are_one);
    for (uint32_t i = 0; i < count; i++)
        free_weight(&weights[i]);
    free(inputs);
}

/* Every kernel; tails of rows; one to all members. */
static void
test_together(void)
{
    static const uint64_t rows[] = { 70, 16, 33, 1, 300, 64, 7 };
    static const uint64_t columns[] = { 512, 2048, 1088, 4096 };

    for (uint32_t i = 0; i < 32; i++) {
        const common c = { .columns = columns[i / 8],
                           .block_size = i % 2 == 0 ? 64 : 128,
                           .count = 1 + i * 5 % 8,
                           .dtype = i / 2 % 2 == 0 ? BERTH_BF16 : BERTH_F16,
                           .is_fp4 = i % 5 == 4,
                           .is_double = i / 4 % 2 == 0 };

        check_together(&c, rows + i % 4, 2 + i % 3, (simt_order)(i % SIMT_ORDER_COUNT), true);
    }
}

/* More than there is room for, of too many inputs, of odd shapes, of nothing. */
static void
test_apart(void)
{
    static const uint64_t rows[] = { 40, 20, 30, 50, 10 };
    static const uint64_t nothing[] = { 40, 0 };
    const common usual = { .columns = 512, .block_size = 64, .count = 2, .dtype = BERTH_BF16 };
    common c = usual;

    check_together(&c, rows, MEMBERS, SIMT_ASCENDING, false);
    check_together(&c, nothing, 2, SIMT_ASCENDING, false);
    c.count = 9;
    check_together(&c, rows, 3, SIMT_ASCENDING, false);
    c = usual;
    c.columns = 80; /* no whole chunks */
    check_together(&c, rows, 2, SIMT_ASCENDING, false);
}

/* Encoded in two ways, or with inputs of their own. */
static void
test_unlike(void)
{
    const common c = { .columns = 512, .block_size = 64, .count = 2, .dtype = BERTH_BF16 };
    uint32_t map[256];

    for (uint32_t i = 0; i < 5; i++) {
        uint8_t *const bytes = need(UINT64_C(1) << 16);
        weight weights[2] = { make_weight(&c, 40, false), make_weight(&c, 24, false) };
        berthi_launch launches[2];
        berthi_launch before[2];

        memset(bytes, 0, 1 << 16);
        memcpy(map, berthi_signed_map, sizeof map);
        map[3]++;
        for (uint32_t k = 0; k < 2; k++) {
            berthi_multiply_arguments *const a = &weights[k].a;
            berthi_product_task task = task_of(&c, a);

            a->absmax_codes = i == 3 ? weights[k].absmax_codes : NULL;
            a->inputs = i == 0 && k == 1 ? bytes + 4096 : bytes;
            a->block_size = i == 1 && k == 1 ? 128 : 64;
            if (i == 2 && k == 1)
                a->absmax_codes = weights[k].absmax_codes;
            if (i == 3 && k == 1)
                a->map = map;
            if (i == 4 && k == 1)
                task.values = berthi_fp4_values;
            memset(&launches[k], 0, sizeof launches[k]);
            CHECK_EQ(berthi_launch_product(&task, &launches[k], NULL), BERTH_OK);
        }
        memcpy(before, launches, sizeof before);
        CHECK(!berthi_launch_join_products(launches, 2));
        CHECK_MEM(launches, before, sizeof before);
        for (uint32_t k = 0; k < 2; k++)
            free_weight(&weights[k]);
        free(bytes);
    }
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_unlike);
    if (simt_level_is_there(&why)) {
        T_RUN(test_together);
        T_RUN(test_apart);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
