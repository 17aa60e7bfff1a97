/* SPDX-License-Identifier: Apache-2.0 */
/* speed_linear.c - see speed_linear.h */
#include "tests/gpu/speed_linear.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/core.h"
#include "kernels/gemm_lt.h"

#define LEAST_BLOCK 64u
#define THRESHOLD 6.0f /* of outliers, as LLM.int8() has it */

static const uint32_t block_sizes[GPU_BLOCKS] = { 64, 128 };

/* ---------------------------------------------------------------------------- memory */

static uint64_t
weights_of(const gpu_linear *l)
{
    return l->rows * l->columns;
}

static uint64_t
most_absmax(const gpu_linear *l)
{
    return weights_of(l) / LEAST_BLOCK;
}

/* Of the second level, so that every turn begins at an aligned address. */
static uint64_t
most_absmax2(const gpu_linear *l)
{
    return (most_absmax(l) / BERTHI_DOUBLE_BLOCK / 64 + 1) * 64;
}

gpu_linear
gpu_linear_of(const gpu_speed *s, gpu_shape shape, int32_t dtype, uint64_t most, bool has_4bit)
{
    const gpu_shape made = gpu_made(s, shape);
    gpu_linear l = { .shape = shape, .rows = made.rows, .columns = made.columns, .most = most,
                     .dtype = dtype, .has_4bit = has_4bit };

    /* The smallest of its forms has to leave the cache. */
    l.turns = gpu_turns(s, weights_of(&l) / (has_4bit ? 2 : 1));
    l.outliers.capacity = (uint32_t)berthi_outlier_capacity(l.columns);
    return l;
}

uint64_t
gpu_linear_bytes(const gpu_linear *l)
{
    const uint64_t packed =
        weights_of(l) / 2 + most_absmax(l) * 5 + most_absmax2(l) * sizeof(float);
    const uint64_t one = weights_of(l) * 3 + (l->has_4bit ? GPU_BLOCKS * packed : 0);

    return l->turns * one + l->most * (l->columns * 3 + l->rows * 6) + (UINT64_C(384) << 20);
}

static void
begin_inputs(gpu_speed *s, gpu_linear *l)
{
    l->inputs = gpu_alloc(s, l->most * l->columns * 2);
    l->input_codes = gpu_alloc(s, l->most * l->columns);
    l->input_maximum = gpu_alloc(s, l->most * sizeof(float));
    l->sums = gpu_alloc(s, l->most * l->rows * sizeof(int32_t));
    l->outputs = gpu_alloc(s, l->most * l->rows * 2);
    l->outliers.mask = gpu_alloc(s, berthi_outlier_words(l->columns) * sizeof(uint32_t));
    l->outliers.list = gpu_alloc(s, l->outliers.capacity * sizeof(uint32_t));
    l->outliers.count = gpu_alloc(s, sizeof(uint32_t));
    gpu_fill_normal(s, l->inputs, l->dtype, l->most * l->columns, 5);
}

static void
begin_packed(gpu_speed *s, const gpu_linear *l, gpu_packed *p)
{
    p->codes = gpu_alloc(s, l->turns * weights_of(l) / 2);
    p->absmax = gpu_alloc(s, l->turns * most_absmax(l) * sizeof(float));
    p->absmax_codes = gpu_alloc(s, l->turns * most_absmax(l));
    p->absmax2 = gpu_alloc(s, l->turns * most_absmax2(l) * sizeof(float));
}

static void
launch(gpu_speed *s, berth_status status, const berthi_launch *launches, uint32_t count)
{
    gpu_require_ok(status, NULL);
    gpu_launch(s, launches, count);
}

static void
encode_rows(gpu_speed *s, const gpu_linear *l, uint32_t turn)
{
    const berthi_rows_arguments rows = { .values = l->weights + turn * weights_of(l),
                                         .dtype = l->dtype, .rows = l->rows,
                                         .columns = l->columns,
                                         .codes = l->int8 + turn * weights_of(l),
                                         .row_maximum = l->weight_maximum + turn * l->rows };
    berthi_launch its;

    launch(s, berthi_launch_encode_rows(&rows, &its, NULL), &its, 1);
}

/* In blocks, and their absmax once more; the offset comes to the host. */
static void
encode_blocks(gpu_speed *s, gpu_linear *l, uint32_t which, uint32_t turn, float *scratch)
{
    gpu_packed *const p = &l->packed[which];
    float *const offset = scratch;
    const berthi_encode_arguments codes = { .values = l->weights + turn * weights_of(l),
                                            .dtype = l->dtype,
                                            .block_size = block_sizes[which],
                                            .count = weights_of(l),
                                            .codes = p->codes + turn * weights_of(l) / 2,
                                            .absmax = p->absmax + turn * most_absmax(l) };
    const berthi_mean_arguments mean = { .values = codes.absmax,
                                         .count = codes.count / codes.block_size,
                                         .partial = scratch + 64 };
    const berthi_double_arguments twice = { .absmax = mean.values, .count = mean.count,
                                            .codes = p->absmax_codes + turn * most_absmax(l),
                                            .absmax2 = p->absmax2 + turn * most_absmax2(l) };
    berthi_launch its[3];

    launch(s, berthi_launch_encode_nf4(&codes, &its[0], NULL), its, 1);
    launch(s, berthi_launch_mean(&mean, offset, its, NULL), its, 2);
    launch(s, berthi_launch_encode_double(&twice, offset, its, NULL), its, 1);
    gpu_fetch(s, &p->offsets[turn], offset, sizeof(float));
}

static float *
begin_scratch(gpu_speed *s, const gpu_linear *l)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < GPU_BLOCKS; i++) {
        const uint64_t its = berthi_mean_scratch(weights_of(l) / block_sizes[i], 0, 0);

        most = its > most ? its : most;
    }
    return gpu_alloc(s, (64 + most) * sizeof(float));
}

void
gpu_linear_begin(gpu_speed *s, gpu_linear *l)
{
    const uint64_t all = l->turns * weights_of(l);
    float *const scratch = begin_scratch(s, l);

    l->weights = gpu_alloc(s, all * 2);
    l->int8 = gpu_alloc(s, all);
    l->weight_maximum = gpu_alloc(s, l->turns * l->rows * sizeof(float));
    for (uint32_t k = 0; l->has_4bit && k < GPU_BLOCKS; k++)
        begin_packed(s, l, &l->packed[k]);
    begin_inputs(s, l);
    for (uint32_t i = 0; i < l->turns; i++) {
        gpu_fill_normal(s, l->weights + i * weights_of(l), l->dtype, weights_of(l), i);
        encode_rows(s, l, i);
        for (uint32_t k = 0; l->has_4bit && k < GPU_BLOCKS; k++)
            encode_blocks(s, l, k, i, scratch);
    }
    gpu_sync(s);
    gpu_free(s, scratch);
}

void
gpu_linear_end(gpu_speed *s, gpu_linear *l)
{
    gpu_free(s, l->weights);
    for (uint32_t i = 0; i < GPU_BLOCKS; i++) {
        gpu_free(s, l->packed[i].codes);
        gpu_free(s, l->packed[i].absmax);
        gpu_free(s, l->packed[i].absmax_codes);
        gpu_free(s, l->packed[i].absmax2);
    }
    gpu_free(s, l->int8);
    gpu_free(s, l->weight_maximum);
    gpu_free(s, l->inputs);
    gpu_free(s, l->input_codes);
    gpu_free(s, l->input_maximum);
    gpu_free(s, l->sums);
    gpu_free(s, l->outputs);
    gpu_free(s, l->outliers.mask);
    gpu_free(s, l->outliers.list);
    gpu_free(s, l->outliers.count);
}

/* ------------------------------------------------------------------------------- works */

/* Without the library nothing of this can be measured. */
static berth_status
multiply(gpu_speed *s, const berthi_gemm_task *task, berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, s->device, "a product", error);

    if (status == BERTH_OK)
        status = berthi_gemm_multiply(&call, task, s->stream);
    return berthi_cuda_leave(&call, status);
}

static berthi_gemm_task
plain_task(const gpu_layer *y, uint32_t turn)
{
    const gpu_linear *const l = y->its;

    return (berthi_gemm_task){ .weight = l->weights + turn % l->turns * weights_of(l),
                               .inputs = l->inputs, .outputs = l->outputs, .dtype = l->dtype,
                               .rows = l->rows, .columns = l->columns, .count = y->count,
                               .stride = l->rows };
}

void
gpu_ask_plain(gpu_speed *s, void *layer, uint32_t turn)
{
    const berthi_gemm_task task = plain_task(layer, turn);
    berth_error error;

    gpu_require_ok(multiply(s, &task, &error), &error);
}

static void
ask_device(const gpu_speed *s, berthi_device *device, const berthi_request *request)
{
    berth_error error;

    gpu_require_ok(device->table->launch(device, request, s->stream, &error), &error);
}

void
gpu_ask_4bit(gpu_speed *s, void *layer, uint32_t turn)
{
    const gpu_layer *const y = layer;
    const gpu_linear *const l = y->its;
    const gpu_packed *const p = &l->packed[y->how.block_size == block_sizes[1]];
    const uint64_t i = turn % l->turns;
    const bool is_double = y->how.is_double;
    const berthi_request request = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .codes = p->codes + i * weights_of(l) / 2,
                                .absmax = is_double ? p->absmax2 + i * most_absmax2(l)
                                                    : p->absmax + i * most_absmax(l),
                                .absmax_codes =
                                    is_double ? p->absmax_codes + i * most_absmax(l) : NULL,
                                .map = berthi_signed_map, .offset = p->offsets[i],
                                .block_size = y->how.block_size, .dtype = l->dtype,
                                .rows = l->rows, .columns = l->columns,
                                .count = (uint32_t)y->count, .inputs = l->inputs,
                                .outputs = l->outputs }
    };

    ask_device(s, y->is_decoded ? s->narrow_device : s->device, &request);
}

/* What outlier columns need is cleared before each product, as the library does it. */
static void
ask_codes(gpu_speed *s, const gpu_layer *y)
{
    const gpu_linear *const l = y->its;
    const berthi_request request = {
        .operation = BERTHI_OPERATION_INT8_INPUT,
        .arguments.int8_input = { .inputs = l->inputs, .dtype = l->dtype,
                                  .threshold = y->has_outliers ? THRESHOLD : 0.0f,
                                  .count = y->count, .columns = l->columns,
                                  .codes = l->input_codes, .input_maximum = l->input_maximum,
                                  .outliers = l->outliers }
    };

    if (y->has_outliers)
        gpu_require(s, s->calls->clear(l->outliers.mask,
                                       berthi_outlier_words(l->columns) * sizeof(uint32_t),
                                       s->stream), "clearing");
    ask_device(s, s->device, &request);
}

void
gpu_ask_int8(gpu_speed *s, void *layer, uint32_t turn)
{
    const gpu_layer *const y = layer;
    const gpu_linear *const l = y->its;
    const uint64_t i = turn % l->turns;
    const int8_t *const weights = l->int8 + i * weights_of(l);
    const berthi_request sums = {
        .operation = BERTHI_OPERATION_MULTIPLY_INT8,
        .arguments.int8 = { .weights = weights, .inputs = l->input_codes, .sums = l->sums,
                            .count = (uint32_t)y->count, .rows = l->rows,
                            .columns = l->columns }
    };
    berthi_request output = {
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = { .sums = l->sums, .input_maximum = l->input_maximum,
                                   .weight_maximum = l->weight_maximum + i * l->rows,
                                   .outputs = l->outputs, .dtype = l->dtype,
                                   .count = y->count, .rows = l->rows, .weights = weights,
                                   .inputs = l->inputs, .columns = l->columns }
    };

    if (y->has_outliers)
        output.arguments.int8_output.outliers = l->outliers;
    ask_codes(s, y);
    ask_device(s, s->device, &sums);
    ask_device(s, s->device, &output);
}

const char *
gpu_linear_refusal(gpu_speed *s)
{
    static char why[BERTH_MESSAGE_CAPACITY];
    gpu_linear l = gpu_linear_of(s, gpu_shapes[0], BERTH_BF16, 64, false);
    const gpu_layer y = { .its = &l, .count = 64 };
    berthi_gemm_task task;
    berth_error error;
    berth_status status;

    l.rows = 16;
    l.columns = 64;
    l.turns = 1;
    gpu_linear_begin(s, &l);
    task = plain_task(&y, 0);
    status = multiply(s, &task, &error);
    gpu_sync(s);
    gpu_linear_end(s, &l);
    if (status != BERTH_OK)
        snprintf(why, sizeof why, "%s", error.message);
    return status == BERTH_OK ? NULL : why;
}

/* ------------------------------------------------------------------------- what is right */

static uint16_t *
fetch_row(gpu_speed *s, const uint16_t *matrix, uint64_t row, uint64_t columns)
{
    uint16_t *const values = gpu_host_alloc(columns * sizeof *values);

    gpu_fetch(s, values, matrix + row * columns, columns * sizeof *values);
    return values;
}

static bool
is_output_right(gpu_speed *s, const gpu_layer *y, uint64_t row, uint64_t input, double noise)
{
    const gpu_linear *const l = y->its;
    uint16_t *const weights = fetch_row(s, l->weights, row, l->columns);
    uint16_t *const inputs = fetch_row(s, l->inputs, input, l->columns);
    double sum = 0.0;
    double squares = 0.0;
    uint16_t output;

    gpu_fetch(s, &output, l->outputs + input * l->rows + row, sizeof output);
    for (uint64_t k = 0; k < l->columns; k++) {
        const double term = gpu_value(l->dtype, weights[k]) * gpu_value(l->dtype, inputs[k]);

        sum += term;
        squares += term * term;
    }
    free(weights);
    free(inputs);
    /* Six deviations of the noise, and the rounding of the output. */
    return fabs(gpu_value(l->dtype, output) - sum)
           <= 0x1p-7 * fabs(sum) + 6.0 * noise * sqrt(squares) + 1e-6;
}

bool
gpu_layer_is_right(gpu_speed *s, const char *name, gpu_layer *y,
                   void (*ask)(gpu_speed *s, void *layer, uint32_t turn), double noise)
{
    bool is_right = true;

    ask(s, y, 0);
    gpu_sync(s);
    for (uint64_t i = 0; is_right && i < 12; i++)
        is_right = is_output_right(s, y, i * (y->its->rows - 1) / 11, i * (y->count - 1) / 11,
                                   noise);
    return gpu_is_right(s, name, is_right);
}
