/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_int8.c - LLM.int8(): rows of activations, whole layers with few inputs, and what outlier
 * columns cost; with many inputs it is in speed_gemm.c; see speed.h
 */
#include <inttypes.h>

#include "tests/gpu/speed_linear.h"

#define OUTLIERS 6u /* columns, as many as models of some billion parameters have */
#define MANY 2048u  /* inputs */

/* ---------------------------------------------------------------------- rows alone */

typedef struct lines {
    uint64_t rows;
    uint64_t columns;
    uint32_t turns;
    uint16_t *values;
    int8_t *codes;
    float *maximum;
} lines;

static void
ask_rows(gpu_speed *s, void *user, uint32_t turn)
{
    const lines *const l = user;
    const uint64_t first = turn % l->turns * l->rows * l->columns;
    const berthi_rows_arguments rows = { .values = l->values + first, .dtype = BERTH_BF16,
                                         .rows = l->rows, .columns = l->columns,
                                         .codes = l->codes + first,
                                         .row_maximum = l->maximum };
    berthi_launch its;

    gpu_require_ok(berthi_launch_encode_rows(&rows, &its, NULL), NULL);
    gpu_launch(s, &its, 1);
}

/* 3 bytes an element. Their codes are checked with those of weights, in speed_blocks.c. */
static void
measure_rows(gpu_speed *s)
{
    static const char name[] = "LLM.int8() rows, 4096 x 8192";
    lines l = { .rows = s->is_tiny ? 16 : 4096, .columns = s->is_tiny ? 256 : 8192 };
    const uint64_t count = l.rows * l.columns;
    const gpu_work work = { ask_rows, &l };
    gpu_timing t;
    const gpu_row row = { .group = "many inputs", .name = name, .relation = ">=",
                          .target = 0.80, .timing = &t };

    l.turns = gpu_turns(s, 3 * count);
    if (!gpu_can_begin(s, name, l.turns * count * 3))
        return;
    l.values = gpu_alloc(s, l.turns * count * 2);
    l.codes = gpu_alloc(s, l.turns * count);
    l.maximum = gpu_alloc(s, l.rows * sizeof(float));
    gpu_fill_normal(s, l.values, BERTH_BF16, l.turns * count, 5);
    gpu_time(s, &work, 1, &t);
    gpu_tell(s, &row, 3.0 * (double)count, s->copy_gbps, "of copy");
    gpu_free(s, l.values);
    gpu_free(s, l.codes);
    gpu_free(s, l.maximum);
}

/* --------------------------------------------------------------------------- few inputs */

/* Codes read, sums written and read; inputs and outputs. */
static double
counted_bytes(const gpu_layer *y)
{
    const double rows = (double)y->its->rows;
    const double columns = (double)y->its->columns;

    return rows * columns + (double)y->count * (4.0 * columns + 10.0 * rows);
}

/* A weight that keeps the memory busy, as few inputs as servers have at a time. */
static double
target_of(const gpu_case *c, uint32_t count)
{
    return c->dtype == BERTH_BF16 && c->shape.rows == 8192 && c->shape.columns == 28672
                   && count == 16
               ? 0.80
               : 0.0;
}

static void
tell(gpu_speed *s, const gpu_layer *y, const char *name, double target, const gpu_timing *t)
{
    const gpu_row row = { .group = "LLM.int8(), few inputs", .name = name, .timing = t,
                          .relation = target > 0.0 ? ">=" : NULL, .target = target };

    gpu_tell(s, &row, counted_bytes(y), s->read_gbps, "of reading");
}

static void
measure_layers(gpu_speed *s, const gpu_linear *l, const char *why)
{
    gpu_case c = gpu_case_at(l->shape, 0);
    gpu_layer layers[GPU_FEW];
    uint32_t counts[GPU_FEW];
    gpu_work works[GPU_FEW];
    gpu_timing t[GPU_FEW];
    uint32_t chosen = 0;
    char name[GPU_NAME];

    c.dtype = l->dtype;
    for (uint32_t i = 0; i < GPU_FEW; i++)
        if ((target_of(&c, gpu_counts[i]) > 0.0) == (s->pass == GPU_JUDGED)) {
            counts[chosen] = gpu_counts[i];
            layers[chosen] = (gpu_layer){ .its = l, .how = c, .count = gpu_counts[i] };
            works[chosen] = (gpu_work){ gpu_ask_int8, &layers[chosen] };
            chosen++;
        }
    if (why == NULL)
        gpu_time(s, works, chosen, t);
    for (uint32_t i = 0; i < chosen; i++) {
        gpu_describe(name, "LLM.int8()", &c, counts[i]);
        if (why != NULL)
            gpu_rows_skip(s->rows, name, why);
        else if (gpu_layer_is_right(s, name, &layers[i], gpu_ask_int8, 0.02))
            tell(s, &layers[i], name, target_of(&c, counts[i]), &t[i]);
    }
}

static void
measure_few(gpu_speed *s, gpu_shape shape, int32_t dtype)
{
    gpu_linear l = gpu_linear_of(s, shape, dtype, GPU_MOST_FEW, false);
    const gpu_case c = { .shape = shape, .dtype = dtype };
    const char *why;

    if (s->pass == GPU_JUDGED && target_of(&c, 16) <= 0.0)
        return;
    why = gpu_shape_refusal(s, shape, gpu_linear_bytes(&l));
    if (why == NULL)
        gpu_linear_begin(s, &l);
    measure_layers(s, &l, why);
    gpu_linear_end(s, &l);
}

/* ---------------------------------------------------------------------- outlier columns */

/* An input of theirs is far above the threshold; the others are as they were. */
static void
put_outliers(gpu_speed *s, const gpu_linear *l)
{
    const uint16_t large = 0x4120; /* 10, in BF16 */

    for (uint64_t i = 0; i < OUTLIERS; i++)
        gpu_put(s, l->inputs + i * (l->columns - 1) / (OUTLIERS - 1), &large, sizeof large);
}

/* The same layer without any and with some, in turns. */
static void
measure_outliers(gpu_speed *s, const gpu_linear *l, uint32_t count)
{
    const uint64_t made = gpu_made_inputs(s, count);
    const gpu_case c = gpu_case_at(l->shape, 0);
    gpu_layer layers[2] = { { .its = l, .how = c, .count = made },
                            { .its = l, .how = c, .count = made, .has_outliers = true } };
    const gpu_work works[2] = { { gpu_ask_int8, &layers[0] }, { gpu_ask_int8, &layers[1] } };
    gpu_timing t[2];
    char name[GPU_NAME];
    gpu_row row = { .group = "LLM.int8(), outliers", .name = name, .unit = "x without any",
                    .timing = &t[1] };

    gpu_describe(name, "LLM.int8() with 6 outlier columns", &c, count);
    if (!gpu_can_begin(s, name, 0))
        return;
    gpu_time(s, works, 2, t);
    row.value = t[1].us / t[0].us;
    if (gpu_layer_is_right(s, name, &layers[1], gpu_ask_int8, 0.02))
        gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

static void
measure_all_outliers(gpu_speed *s)
{
    static const uint32_t counts[] = { 1, 16, MANY };
    gpu_linear l = gpu_linear_of(s, gpu_shapes[0], BERTH_BF16, MANY, false);

    if (!gpu_can_begin(s, "LLM.int8() with outlier columns", gpu_linear_bytes(&l)))
        return;
    gpu_linear_begin(s, &l);
    put_outliers(s, &l);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        measure_outliers(s, &l, counts[i]);
    gpu_linear_end(s, &l);
}

void
gpu_speed_int8(gpu_speed *s)
{
    if (s->pass == GPU_JUDGED)
        measure_rows(s);
    for (size_t i = 0; i < GPU_SHAPES; i++) {
        measure_few(s, gpu_shapes[i], BERTH_BF16);
        measure_few(s, gpu_shapes[i], BERTH_F16);
    }
    if (s->pass == GPU_OTHERS)
        measure_all_outliers(s);
}
