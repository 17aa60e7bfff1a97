/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_gemm.c - many inputs: how much a weight of 4-bit codes costs, as a device multiplies with
 * it, over one of 16 bits by cuBLASLt, and what LLM.int8() gains; see speed.h
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/gemm_lt.h"
#include "tests/gpu/speed.h"

#define BLOCK 64u
#define PLAIN_TURNS 2u /* of weights so large that they leave the cache */

typedef struct linear {
    uint64_t rows;
    uint64_t columns;
    uint64_t count;   /* of inputs */
    uint32_t input_turns; /* inputs take turns, too, where they alone are read */
    uint16_t *weights[PLAIN_TURNS];
    uint8_t *codes[PLAIN_TURNS];
    float *absmax[PLAIN_TURNS];
    int8_t *int8[PLAIN_TURNS];
    float *weight_maximum[PLAIN_TURNS];
    uint16_t *inputs;
    int8_t *input_codes;
    float *input_maximum;
    int32_t *sums;
    uint16_t *outputs;
} linear;

static uint64_t
bytes_of(uint64_t rows, uint64_t columns, uint64_t count)
{
    return PLAIN_TURNS * rows * columns * 4 + count * columns * 3 + count * rows * 6
           + (UINT64_C(128) << 20);
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

static void
require(berth_status status, const berth_error *error)
{
    if (status == BERTH_OK)
        return;
    fprintf(stderr, "gpu_check: %s\n", error->message);
    exit(1);
}

static berthi_gemm_task
plain_task(const linear *l, uint32_t turn)
{
    return (berthi_gemm_task){ .weight = l->weights[turn % PLAIN_TURNS], .inputs = l->inputs,
                               .outputs = l->outputs, .dtype = BERTH_BF16, .rows = l->rows,
                               .columns = l->columns, .count = l->count, .stride = l->rows };
}

static void
ask_plain(gpu_speed *s, void *user, uint32_t turn)
{
    const berthi_gemm_task task = plain_task(user, turn);
    berth_error error;

    require(multiply(s, &task, &error), &error);
}

static void
ask_4bit(gpu_speed *s, void *user, uint32_t turn)
{
    const linear *const l = user;
    const berthi_request request = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .codes = l->codes[turn % PLAIN_TURNS],
                                .absmax = l->absmax[turn % PLAIN_TURNS], .block_size = BLOCK,
                                .dtype = BERTH_BF16, .rows = l->rows, .columns = l->columns,
                                .count = (uint32_t)l->count, .inputs = l->inputs,
                                .outputs = l->outputs }
    };
    berth_error error;

    require(s->device->table->launch(s->device, &request, s->stream, &error), &error);
}

static void
ask_rows(gpu_speed *s, void *user, uint32_t turn)
{
    const linear *const l = user;
    const uint64_t first = turn % l->input_turns * l->count * l->columns;
    const berthi_rows_arguments rows = { .values = l->inputs + first, .dtype = BERTH_BF16,
                                         .rows = l->count, .columns = l->columns,
                                         .codes = l->input_codes + first,
                                         .row_maximum = l->input_maximum };
    berthi_launch its;

    (void)berthi_launch_encode_rows(&rows, &its, NULL);
    gpu_launch(s, &its, 1);
}

/* Inputs encoded, sums, outputs: all of a layer. */
static void
ask_int8(gpu_speed *s, void *user, uint32_t turn)
{
    const linear *const l = user;
    const berthi_gemm_task task = { .weight = l->int8[turn % PLAIN_TURNS],
                                    .inputs = l->input_codes, .outputs = l->sums,
                                    .dtype = BERTH_I8, .rows = l->rows,
                                    .columns = l->columns, .count = l->count,
                                    .stride = l->rows };
    const berthi_int8_output_task output = {
        .sums = l->sums, .input_maximum = l->input_maximum,
        .weight_maximum = l->weight_maximum[turn % PLAIN_TURNS],
        .outputs = l->outputs, .dtype = BERTH_BF16,
        .count = l->count, .rows = l->rows, .columns = l->columns
    };
    berth_error error;
    berthi_launch its;

    ask_rows(s, user, turn);
    require(multiply(s, &task, &error), &error);
    (void)berthi_launch_int8_output(&output, &its, NULL);
    gpu_launch(s, &its, 1);
}

/* ------------------------------------------------------------------------------ buffers */

static void
encode_weights(gpu_speed *s, const linear *l, uint32_t turn)
{
    const berthi_encode_arguments codes = { .values = l->weights[turn], .dtype = BERTH_BF16,
                                            .block_size = BLOCK, .count = l->rows * l->columns,
                                            .codes = l->codes[turn],
                                            .absmax = l->absmax[turn] };
    const berthi_rows_arguments rows = { .values = l->weights[turn], .dtype = BERTH_BF16,
                                         .rows = l->rows, .columns = l->columns,
                                         .codes = l->int8[turn],
                                         .row_maximum = l->weight_maximum[turn] };
    berthi_launch its[2];

    (void)berthi_launch_encode_nf4(&codes, &its[0], NULL);
    (void)berthi_launch_encode_rows(&rows, &its[1], NULL);
    gpu_launch(s, its, 2);
    gpu_sync(s);
}

static void
begin(gpu_speed *s, linear *l)
{
    const uint64_t weights = l->rows * l->columns;
    const uint64_t inputs = l->count * l->columns * l->input_turns;

    for (uint32_t i = 0; i < PLAIN_TURNS; i++) {
        l->weights[i] = gpu_alloc(s, weights * 2);
        l->codes[i] = gpu_alloc(s, weights / 2);
        l->absmax[i] = gpu_alloc(s, weights / BLOCK * sizeof(float));
        l->int8[i] = gpu_alloc(s, weights);
        l->weight_maximum[i] = gpu_alloc(s, l->rows * sizeof(float));
        gpu_fill_normal(s, l->weights[i], weights, i);
        encode_weights(s, l, i);
    }
    l->inputs = gpu_alloc(s, inputs * 2);
    l->input_codes = gpu_alloc(s, inputs);
    l->input_maximum = gpu_alloc(s, l->count * sizeof(float));
    l->sums = gpu_alloc(s, l->count * l->rows * sizeof(int32_t));
    l->outputs = gpu_alloc(s, l->count * l->rows * 2);
    gpu_fill_normal(s, l->inputs, inputs, 5);
}

static void
end(gpu_speed *s, linear *l)
{
    for (uint32_t i = 0; i < PLAIN_TURNS; i++) {
        gpu_free(s, l->weights[i]);
        gpu_free(s, l->codes[i]);
        gpu_free(s, l->absmax[i]);
        gpu_free(s, l->int8[i]);
        gpu_free(s, l->weight_maximum[i]);
    }
    gpu_free(s, l->inputs);
    gpu_free(s, l->input_codes);
    gpu_free(s, l->input_maximum);
    gpu_free(s, l->sums);
    gpu_free(s, l->outputs);
}

/* ------------------------------------------------------------------------- what is right */

static uint16_t *
fetch_row(gpu_speed *s, const uint16_t *matrix, uint64_t row, uint64_t columns)
{
    uint16_t *const values = malloc(columns * sizeof *values);

    if (values == NULL)
        exit(1);
    gpu_fetch(s, values, matrix + row * columns, columns * sizeof *values);
    return values;
}

/*
 * Some outputs of what was asked for last against the weight of 16 bits: `noise` is what
 * codes may be off, as a share of the sum of squares.
 */
static bool
are_outputs_right(gpu_speed *s, const char *name, const linear *l, double noise)
{
    bool is_right = true;

    gpu_sync(s);
    for (uint64_t i = 0; is_right && i < 12; i++) {
        const uint64_t row = i * (l->rows - 1) / 11;
        const uint64_t input = i * (l->count - 1) / 11;
        uint16_t *const weights = fetch_row(s, l->weights[0], row, l->columns);
        uint16_t *const inputs = fetch_row(s, l->inputs, input, l->columns);
        double sum = 0.0;
        double squares = 0.0;
        uint16_t output;

        gpu_fetch(s, &output, l->outputs + input * l->rows + row, sizeof output);
        for (uint64_t k = 0; k < l->columns; k++) {
            const double term = (double)berthi_core_from_bf16(weights[k])
                                * (double)berthi_core_from_bf16(inputs[k]);

            sum += term;
            squares += term * term;
        }
        /* Six deviations of the noise, and the rounding of the output. */
        is_right = fabs((double)berthi_core_from_bf16(output) - sum)
                   <= 0x1p-7 * fabs(sum) + 6.0 * noise * sqrt(squares) + 1e-6;
        free(weights);
        free(inputs);
    }
    return gpu_is_right(s, name, is_right);
}

/* Everything of a weight is computed by the first buffer of each turn. */
static bool
check(gpu_speed *s, const char *name, linear *l, void (*ask)(gpu_speed *, void *, uint32_t),
      double noise)
{
    ask(s, l, 0);
    return are_outputs_right(s, name, l, noise);
}

/* -------------------------------------------------------------------------------- rows */

static void
tell_ratio(gpu_speed *s, const char *name, double value, const char *unit,
           const char *relation, double target, const gpu_timing *t)
{
    const gpu_row row = { .group = "many inputs", .name = name, .value = value, .unit = unit,
                          .relation = relation, .target = target, .timing = t };

    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

static void
tell_plain(gpu_speed *s, const linear *l, const gpu_timing *t)
{
    const double operations = 2.0 * (double)l->rows * (double)l->columns * (double)l->count;
    char name[96];

    snprintf(name, sizeof name, "BF16 by cuBLASLt, %" PRIu64 " x %" PRIu64 ", m = %" PRIu64,
             l->rows, l->columns, l->count);
    tell_ratio(s, name, operations / t->us / 1e6, "TFLOP/s", NULL, 0.0, t);
}

#define LEAST_INT8 512u /* inputs: of fewer int8 is not measured, but where all is tiny */

/* BF16, NF4 and int8 in turns. `most` and `least` are 0 where nothing is to be reached. */
static void
measure(gpu_speed *s, uint64_t rows, uint64_t columns, uint64_t count, double most,
        double least)
{
    linear l = { .rows = rows, .columns = columns, .count = count,
                 .input_turns = 1 };
    const gpu_work works[3] = { { ask_plain, &l }, { ask_4bit, &l }, { ask_int8, &l } };
    const bool has_int8 = s->is_tiny || count >= LEAST_INT8;
    gpu_timing t[3];
    char name[96];

    snprintf(name, sizeof name, "many inputs, %" PRIu64 " x %" PRIu64 ", m = %" PRIu64, rows,
             columns, count);
    if (!gpu_can_begin(s, name, bytes_of(rows, columns, count)))
        return;
    begin(s, &l);
    gpu_time(s, works, has_int8 ? 3 : 2, t);
    if (check(s, name, &l, ask_plain, 0x1p-12))
        tell_plain(s, &l, &t[0]);
    snprintf(name, sizeof name, "NF4, %" PRIu64 " x %" PRIu64 ", m = %" PRIu64, rows, columns,
             count);
    if (check(s, name, &l, ask_4bit, 0.2))
        tell_ratio(s, name, t[1].us / t[0].us, "x BF16 time", most > 0 ? "<=" : NULL, most,
                   &t[1]);
    snprintf(name, sizeof name, "LLM.int8(), %" PRIu64 " x %" PRIu64 ", m = %" PRIu64, rows,
             columns, count);
    if (has_int8 && check(s, name, &l, ask_int8, 0.02))
        tell_ratio(s, name, t[0].us / t[2].us, "x BF16 speed", least > 0 ? ">=" : NULL, least,
                   &t[2]);
    end(s, &l);
}

/* Rows of activations alone: 3 bytes an element. */
static void
measure_rows(gpu_speed *s, uint64_t count, uint64_t columns)
{
    linear l = { .rows = 16, .columns = columns, .count = count,
                 .input_turns = gpu_turns(s, 3 * count * columns) };
    const gpu_work work = { ask_rows, &l };
    gpu_timing t;
    char name[96];
    const gpu_row row = { .group = "many inputs", .name = name, .relation = ">=",
                          .target = 0.80, .timing = &t };

    snprintf(name, sizeof name, "LLM.int8() rows, %" PRIu64 " x %" PRIu64, count, columns);
    if (s->copy_gbps <= 0.0
        || !gpu_can_begin(s, name, bytes_of(16, columns, count * l.input_turns)))
        return;
    begin(s, &l);
    gpu_time(s, &work, 1, &t);
    gpu_tell(s, &row, 3.0 * (double)count * (double)columns, s->copy_gbps, "of copy");
    end(s, &l);
}

/* A product that needs the library says whether it is there. */
static bool
has_library(gpu_speed *s)
{
    linear l = { .rows = 16, .columns = 64, .count = 64, .input_turns = 1 };
    berthi_gemm_task task;
    berth_error error;
    berth_status status;

    begin(s, &l);
    task = plain_task(&l, 0);
    status = multiply(s, &task, &error);
    gpu_sync(s);
    end(s, &l);
    if (status != BERTH_OK)
        gpu_rows_skip(s->rows, "products of many inputs", error.message);
    return status == BERTH_OK;
}

void
gpu_speed_gemm(gpu_speed *s)
{
    const bool is_tiny = s->is_tiny;

    measure_rows(s, is_tiny ? 16 : 4096, is_tiny ? 256 : 8192);
    if (!has_library(s))
        return;
    measure(s, is_tiny ? 64 : 8192, is_tiny ? 128 : 8192, is_tiny ? 64 : 8192, 0.0, 0.0);
    if (is_tiny)
        return;
    measure(s, 8192, 28672, 64, 1.0, 0.0);
    measure(s, 8192, 28672, 128, 1.1, 0.0);
    measure(s, 8192, 28672, 256, 1.15, 0.0);
    measure(s, 28672, 8192, 64, 1.0, 0.0);
    measure(s, 28672, 8192, 512, 1.15, 0.0);
    measure(s, 8192, 28672, 512, 1.15, 0.0);
    measure(s, 8192, 28672, 1024, 0.0, 1.4);
    measure(s, 8192, 28672, 2048, 1.05, 1.4);
    measure(s, 8192, 28672, 8192, 1.03, 1.4);
}
