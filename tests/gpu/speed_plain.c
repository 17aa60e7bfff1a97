/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_plain.c - few inputs times a weight that is not of 4 bits, by kernels of berth's own;
 * and what the library's way costs over theirs where gemm_lt.c's table begins with it; see
 * speed.h
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/gemm_lt.h"
#include "tests/gpu/speed.h"

#define MOST_INPUTS 32u
#define WORKS 4u

/* BF16, or the same bytes as codes. */
typedef struct weight {
    uint64_t rows;
    uint64_t columns;
    uint32_t turns;
    void *values[GPU_TURNS];
    void *inputs;
    void *outputs;
} weight;

typedef struct product {
    const weight *its;
    uint32_t count;
    bool is_int8;
    bool by_table; /* as a device is asked for it: from some inputs on by the library */
} product;

static uint64_t
bytes_of(uint64_t rows, uint64_t columns)
{
    return rows * columns * 2;
}

static void
begin(gpu_speed *s, weight *w)
{
    for (uint32_t i = 0; i < w->turns; i++) {
        w->values[i] = gpu_alloc(s, bytes_of(w->rows, w->columns));
        gpu_fill_normal(s, w->values[i], BERTH_BF16, w->rows * w->columns, i);
    }
    w->inputs = gpu_alloc(s, MOST_INPUTS * w->columns * 2);
    w->outputs = gpu_alloc(s, MOST_INPUTS * w->rows * 4);
    gpu_fill_normal(s, w->inputs, BERTH_BF16, MOST_INPUTS * w->columns, 3);
}

static void
end(gpu_speed *s, weight *w)
{
    for (uint32_t i = 0; i < w->turns; i++)
        gpu_free(s, w->values[i]);
    gpu_free(s, w->inputs);
    gpu_free(s, w->outputs);
}

static berthi_request
request_of(const product *p, uint32_t turn)
{
    const weight *const w = p->its;
    void *const values = w->values[turn % w->turns];

    if (p->is_int8)
        return (berthi_request){ .operation = BERTHI_OPERATION_MULTIPLY_INT8,
                                 .arguments.int8 = { .weights = values, .inputs = w->inputs,
                                                     .sums = w->outputs, .count = p->count,
                                                     .rows = w->rows,
                                                     .columns = w->columns } };
    return (berthi_request){ .operation = BERTHI_OPERATION_MULTIPLY_PLAIN,
                             .arguments.plain = { .weight = values, .inputs = w->inputs,
                                                  .outputs = w->outputs,
                                                  .weight_dtype = BERTH_BF16,
                                                  .dtype = BERTH_BF16, .count = p->count,
                                                  .rows = w->rows,
                                                  .columns = w->columns } };
}

static void
ask(gpu_speed *s, void *user, uint32_t turn)
{
    const product *const p = user;
    const berthi_request request = request_of(p, turn);
    berth_error error;
    berthi_launch l;

    berthi_error_clear(&error);
    if (p->by_table) {
        gpu_require_ok(s->device->table->launch(s->device, &request, s->stream, &error), &error);
        return;
    }
    gpu_require_ok(p->is_int8 ? berthi_launch_int8_sums(&request.arguments.int8, &l, &error)
                              : berthi_launch_plain(&request.arguments.plain, &l, &error),
                   &error);
    gpu_launch(s, &l, 1);
}

/* ------------------------------------------------------------------------- what is right */

static bool
is_output_right(const product *p, const void *values, const void *inputs, const void *output)
{
    const uint16_t *const numbers = values;
    const uint16_t *const x = inputs;
    const int8_t *const codes = values;
    const int8_t *const y = inputs;
    double sum = 0.0;
    double size = 0.0;

    for (uint64_t k = 0; k < p->its->columns; k++) {
        const double term = p->is_int8 ? (double)(codes[k] * y[k])
                                       : (double)berthi_core_from_bf16(numbers[k])
                                             * (double)berthi_core_from_bf16(x[k]);

        sum += term;
        size += fabs(term);
    }
    if (p->is_int8)
        return (double)*(const int32_t *)output == sum;
    return fabs((double)berthi_core_from_bf16(*(const uint16_t *)output) - sum)
           <= 0x1p-8 * fabs(sum) + 0x1p-18 * size;
}

/* Some rows of the first input and of the last. */
static bool
are_outputs_right(gpu_speed *s, const char *name, product *p)
{
    const weight *const w = p->its;
    const uint64_t line = w->columns * (p->is_int8 ? 1 : 2);
    const uint64_t width = p->is_int8 ? 4 : 2;
    uint8_t *const values = malloc(2 * line);
    bool is_right = values != NULL;

    ask(s, p, 0);
    gpu_sync(s);
    for (uint64_t i = 0; is_right && i < 12; i++) {
        const uint64_t row = i * (w->rows - 1) / 11;
        const uint64_t input = i % 2 * (p->count - 1);
        uint32_t output = 0;

        gpu_fetch(s, values, (const uint8_t *)w->values[0] + row * line, line);
        gpu_fetch(s, values + line, (const uint8_t *)w->inputs + input * line, line);
        gpu_fetch(s, &output,
                  (const uint8_t *)w->outputs + (input * w->rows + row) * width, width);
        is_right = is_output_right(p, values, values + line, &output);
    }
    free(values);
    return gpu_is_right(s, name, is_right);
}

/* -------------------------------------------------------------------------------- rows */

static void
describe(const product *p, char name[96])
{
    snprintf(name, 96, "%s product, %" PRIu64 " x %" PRIu64 ", m = %u",
             p->is_int8 ? "int8" : "BF16", p->its->rows, p->its->columns, p->count);
}

static void
tell(gpu_speed *s, product *p, const gpu_timing *t)
{
    const weight *const w = p->its;
    const double width = p->is_int8 ? 1.0 : 2.0;
    char name[96];
    const gpu_row row = { .group = "products", .name = name, .timing = t };

    describe(p, name);
    if (are_outputs_right(s, name, p))
        gpu_tell(s, &row,
                 width * ((double)w->rows + p->count) * (double)w->columns
                     + (p->is_int8 ? 4.0 : 2.0) * p->count * (double)w->rows,
                 s->read_gbps, "of reading");
}

/* Above 1 the table of gemm_lt.c begins too early. */
static void
tell_ratio(gpu_speed *s, product *p, const gpu_timing *own, const gpu_timing *table)
{
    char what[96];
    char name[128];
    const gpu_row row = { .group = "products", .name = name, .value = table->us / own->us,
                          .unit = "x own kernel's time", .timing = table };

    describe(p, what);
    snprintf(name, sizeof name, "as asked for: %s", what);
    if (are_outputs_right(s, name, p))
        gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

/* One input, as many as share a pass over the weight, and the table's first, by both ways. */
static void
measure(gpu_speed *s, uint64_t rows, uint64_t columns, bool is_int8)
{
    const uint32_t begins = berthi_gemm_least_inputs(
        BERTHI_GEMM_OF_NUMBERS, is_int8 ? BERTH_I8 : BERTH_BF16, s->capability);
    const uint32_t least = begins < MOST_INPUTS ? begins : MOST_INPUTS;
    const uint32_t counts[WORKS] = { 1, is_int8 ? INT8_SUM_INPUTS : PLAIN_INPUTS, least, least };
    weight w = { .rows = rows, .columns = columns,
                 .turns = gpu_turns(s, bytes_of(rows, columns)) };
    product products[WORKS];
    gpu_work works[WORKS];
    gpu_timing t[WORKS];
    char name[96];

    for (uint32_t i = 0; i < WORKS; i++) {
        products[i] = (product){ &w, counts[i], is_int8, i == WORKS - 1 };
        works[i] = (gpu_work){ ask, &products[i] };
    }
    describe(&products[0], name);
    if (!gpu_can_begin(s, name, bytes_of(rows, columns) * w.turns))
        return;
    begin(s, &w);
    gpu_time(s, works, WORKS, t);
    for (uint32_t i = 0; i < WORKS - 1; i++)
        tell(s, &products[i], &t[i]);
    tell_ratio(s, &products[WORKS - 1], &t[WORKS - 2], &t[WORKS - 1]);
    end(s, &w);
}

void
gpu_speed_plain(gpu_speed *s)
{
    if (s->pass != GPU_OTHERS)
        return;
    measure(s, s->is_tiny ? 32 : 8192, s->is_tiny ? 256 : 28672, false);
    measure(s, s->is_tiny ? 32 : 8192, s->is_tiny ? 256 : 28672, true);
}
