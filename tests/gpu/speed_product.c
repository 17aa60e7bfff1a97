/* SPDX-License-Identifier: Apache-2.0 */
/* speed_product.c - few inputs times a weight of 4-bit codes; see speed.h */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/gemm_lt.h"
#include "tests/gpu/speed.h"

#define BLOCK 64u
#define MOST_INPUTS 32u
#define COUNTS 6u
#define CHECKED 3u /* of few inputs, of as many as have the same kernel, of many */

static const uint32_t counts[COUNTS] = { 1, 2, 4, 8, 16, 32 };
static const uint32_t checked[CHECKED] = { 1, 8, 32 };

/* A weight several times over, and inputs that stay. */
typedef struct weight {
    uint64_t rows;
    uint64_t columns;
    uint64_t absmax_count;
    uint32_t turns;
    bool is_double;
    uint8_t *codes[GPU_TURNS];
    float *absmax[GPU_TURNS];
    uint8_t *absmax_codes[GPU_TURNS];
    uint16_t *inputs;
    uint16_t *outputs;
} weight;

typedef struct product {
    const weight *its;
    uint32_t count;
} product;

static uint64_t
bytes_of(uint64_t rows, uint64_t columns)
{
    const uint64_t count = rows * columns;

    return count / 2 + count / BLOCK * 5 + (rows + columns) * 2 * MOST_INPUTS;
}

/* Any codes; absmax, and their codes, as those of weights are. */
static void
fill(gpu_speed *s, weight *w)
{
    float *const absmax = malloc(w->absmax_count * sizeof *absmax);

    if (absmax == NULL)
        exit(1);
    for (uint64_t i = 0; i < w->absmax_count; i++)
        absmax[i] = 0.03f + 0.02f * fabsf(berthi_core_from_bf16(s->normal[i % s->normal_count]));
    for (uint32_t i = 0; i < w->turns; i++) {
        w->codes[i] = gpu_alloc(s, w->rows * w->columns / 2);
        w->absmax[i] = gpu_alloc(s, w->absmax_count * sizeof(float));
        w->absmax_codes[i] = gpu_alloc(s, w->absmax_count);
        gpu_fill_normal(s, w->codes[i], w->rows * w->columns / 4, i);
        gpu_put(s, w->absmax[i], absmax, w->absmax_count * sizeof(float));
        gpu_fill_normal(s, w->absmax_codes[i], w->absmax_count / 2, i + 7);
    }
    w->inputs = gpu_alloc(s, MOST_INPUTS * w->columns * 2);
    w->outputs = gpu_alloc(s, MOST_INPUTS * w->rows * 2);
    gpu_fill_normal(s, w->inputs, MOST_INPUTS * w->columns, 3);
    free(absmax);
}

static void
end(gpu_speed *s, weight *w)
{
    for (uint32_t i = 0; i < w->turns; i++) {
        gpu_free(s, w->codes[i]);
        gpu_free(s, w->absmax[i]);
        gpu_free(s, w->absmax_codes[i]);
    }
    gpu_free(s, w->inputs);
    gpu_free(s, w->outputs);
}

static berthi_multiply_arguments
arguments_of(const product *p, uint32_t turn)
{
    const weight *const w = p->its;
    const uint32_t i = turn % w->turns;

    return (berthi_multiply_arguments){
        .codes = w->codes[i], .absmax = w->absmax[i],
        .absmax_codes = w->is_double ? w->absmax_codes[i] : NULL, .map = berthi_signed_map,
        .offset = 0.04f, .block_size = BLOCK, .count = p->count, .rows = w->rows,
        .columns = w->columns, .inputs = w->inputs, .outputs = w->outputs,
        .dtype = BERTH_BF16, .is_settled = true
    };
}

/* The kernel alone: with small weights a device takes longer to ask than to compute. */
static void
ask_kernel(gpu_speed *s, const berthi_multiply_arguments *a)
{
    const berthi_product_task task = { .what = a, .values = berthi_nf4_values,
                                       .capability = s->capability,
                                       .processors = s->processors,
                                       .room_bytes = s->room_bytes };
    berthi_launch l;

    if (berthi_launch_product(&task, &l, NULL) != BERTH_OK)
        exit(1);
    gpu_launch(s, &l, 1);
}

/* Of so many inputs that kernels of many may have them the device decides. */
static void
ask(gpu_speed *s, void *user, uint32_t turn)
{
    const product *const p = user;
    berthi_request request = { .operation = BERTHI_OPERATION_MULTIPLY_NF4 };
    berth_error error;

    request.arguments.multiply = arguments_of(p, turn);
    if (p->count < BERTHI_GEMM_WIDE_LEAST) {
        ask_kernel(s, &request.arguments.multiply);
        return;
    }
    if (s->device->table->launch(s->device, &request, s->stream, &error) == BERTH_OK)
        return;
    fprintf(stderr, "gpu_check: %s\n", error.message);
    exit(1);
}

/* ------------------------------------------------------------------------- what is right */

/* An output of the first input, within the bounds of the tests, by sums of fp64. */
static bool
is_row_right(gpu_speed *s, const weight *w, const uint16_t *inputs, uint64_t row, float output)
{
    const uint64_t first = row * w->columns;
    uint8_t *const codes = malloc(w->columns / 2);
    float *const absmax = malloc(w->columns / BLOCK * sizeof *absmax);
    double sum = 0.0;
    double size = 0.0;

    if (codes == NULL || absmax == NULL)
        exit(1);
    gpu_fetch(s, codes, w->codes[0] + first / 2, w->columns / 2);
    gpu_fetch(s, absmax, w->absmax[0] + first / BLOCK, w->columns / BLOCK * sizeof *absmax);
    for (uint64_t k = 0; k < w->columns; k++) {
        const uint32_t code = k % 2 == 0 ? codes[k / 2] >> 4 : codes[k / 2] & 15u;
        const float value = berthi_core_float(berthi_nf4_values[code]);
        const double term = (double)berthi_core_from_bf16(berthi_core_to_bf16(value))
                            * (double)absmax[k / BLOCK]
                            * (double)berthi_core_from_bf16(inputs[k]);

        sum += term;
        size += fabs(term);
    }
    free(codes);
    free(absmax);
    return fabs((double)output - sum) <= 0x1p-8 * fabs(sum) + 0x1p-18 * size;
}

/*
 * The first input gives the same bits alone as with others, and some of them are right, as some of
 * those with many others.
 */
static bool
are_outputs_right(gpu_speed *s, const char *name, weight *w)
{
    uint16_t *const outputs = malloc(CHECKED * w->rows * sizeof *outputs);
    uint16_t *const inputs = malloc(w->columns * sizeof *inputs);
    bool is_right = outputs != NULL && inputs != NULL;

    for (uint32_t i = 0; is_right && i < CHECKED; i++) {
        product p = { w, checked[i] };

        ask(s, &p, 0);
        gpu_sync(s);
        gpu_fetch(s, outputs + i * w->rows, w->outputs, w->rows * sizeof *outputs);
    }
    if (is_right) {
        is_right = memcmp(outputs, outputs + w->rows, w->rows * sizeof *outputs) == 0;
        gpu_fetch(s, inputs, w->inputs, w->columns * sizeof *inputs);
    }
    for (uint64_t i = 0; is_right && !w->is_double && i < 32; i++) {
        const uint64_t row = i / 2 * (w->rows - 1) / 15;

        is_right = is_row_right(s, w, inputs, row,
                                berthi_core_from_bf16(outputs[i % 2 * 2 * w->rows + row]));
    }
    free(outputs);
    free(inputs);
    return gpu_is_right(s, name, is_right);
}

/* -------------------------------------------------------------------------------- rows */

static double
counted_bytes(const weight *w, uint32_t count)
{
    const double weights = (double)w->rows * (double)w->columns;

    return weights * (0.5 + (w->is_double ? 1.0 / BLOCK + 4.0 / BLOCK / 256 : 4.0 / BLOCK))
           + 2.0 * count * ((double)w->rows + (double)w->columns);
}

static void
describe(const weight *w, uint32_t count, char name[96])
{
    snprintf(name, 96, "NF4 product, %" PRIu64 " x %" PRIu64 "%s, m = %u", w->rows, w->columns,
             w->is_double ? ", double" : "", count);
}

/* Weights that keep the memory busy are held to it; so is m = 32 of them, by the tensor cores. */
static void
tell(gpu_speed *s, const weight *w, uint32_t count, const gpu_timing *t)
{
    const bool is_large = w->rows * w->columns >= 60000000 || s->is_tiny;
    char name[96];
    gpu_row row = { .group = "products", .name = name, .timing = t };

    describe(w, count, name);
    if (is_large && (count == 1 || count == 32)) {
        row.relation = ">=";
        row.target = count == 1 ? 0.80 : 0.60;
    }
    gpu_tell(s, &row, counted_bytes(w, count), s->read_gbps, "of reading");
}

static void
measure(gpu_speed *s, uint64_t rows, uint64_t columns, bool is_double, bool has_all)
{
    weight w = { .rows = rows, .columns = columns, .absmax_count = rows * columns / BLOCK,
                 .turns = gpu_turns(s, bytes_of(rows, columns)), .is_double = is_double };
    product products[COUNTS];
    gpu_work works[COUNTS];
    gpu_timing t[COUNTS];
    uint32_t count = 0;
    double of_eight = 0.0;
    char name[96];
    gpu_row row;

    describe(&w, 1, name);
    if (!gpu_can_begin(s, name, bytes_of(rows, columns) * w.turns))
        return;
    fill(s, &w);
    for (uint32_t i = 0; i < COUNTS; i++)
        if (has_all || counts[i] == 1 || counts[i] == 8) {
            products[count] = (product){ &w, counts[i] };
            works[count] = (gpu_work){ ask, &products[count] };
            count++;
        }
    gpu_time(s, works, count, t);
    if (are_outputs_right(s, name, &w)) {
        for (uint32_t i = 0; i < count; i++) {
            tell(s, &w, products[i].count, &t[i]);
            if (products[i].count == 8)
                of_eight = t[i].us;
        }
        snprintf(name, sizeof name, "m = 8 over m = 1, %" PRIu64 " x %" PRIu64 "%s", rows,
                 columns, is_double ? ", double" : "");
        row = (gpu_row){ .group = "products", .name = name, .value = of_eight / t[0].us,
                         .unit = "x m = 1", .relation = "<=", .target = 1.1 };
        gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
    }
    end(s, &w);
}

void
gpu_speed_product(gpu_speed *s)
{
    static const uint64_t shapes[][2] = { { 28672, 8192 }, { 8192, 8192 }, { 10240, 8192 },
                                          { 57344, 8192 }, { 1024, 8192 }, { 4096, 4096 },
                                          { 14336, 4096 } };

    if (s->read_gbps <= 0.0)
        return;
    measure(s, s->is_tiny ? 32 : 8192, s->is_tiny ? 256 : 28672, false, true);
    measure(s, s->is_tiny ? 32 : 8192, s->is_tiny ? 256 : 28672, true, true);
    for (size_t i = 0; !s->is_tiny && i < sizeof shapes / sizeof *shapes; i++)
        measure(s, shapes[i][0], shapes[i][1], false, false);
}
