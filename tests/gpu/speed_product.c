/* SPDX-License-Identifier: Apache-2.0 */
/* speed_product.c - few inputs times a weight of 4-bit codes; see speed.h */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_lt.h"
#include "kernels/launch_ring.h"
#include "tests/gpu/speed_weight.h"

#define CHECKED 3u /* of few inputs, of as many as have the same kernel, of many */

static const uint32_t checked[CHECKED] = { 1, 8, 32 };

/* The kernel alone: with small weights a device takes longer to ask than to compute. */
static void
ask_kernel(gpu_speed *s, const gpu_product *p, uint32_t turn)
{
    const berthi_launch l = gpu_product_launch(s, p, turn);

    gpu_launch(s, &l, 1);
}

/* Of so many inputs that kernels of many may have them the device decides. */
static void
ask(gpu_speed *s, void *user, uint32_t turn)
{
    const gpu_product *const p = user;
    berthi_request request = { .operation = BERTHI_OPERATION_MULTIPLY_NF4 };
    berth_error error;

    if (p->count < BERTHI_GEMM_WIDE_LEAST) {
        ask_kernel(s, p, turn);
        return;
    }
    request.arguments.multiply = gpu_product_arguments(p, turn);
    gpu_require_ok(s->device->table->launch(s->device, &request, s->stream, &error), &error);
}

/*
 * The first input gives the same bits alone as with others, and some of them are right, as some of
 * those with many others.
 */
static bool
are_outputs_right(gpu_speed *s, const char *name, const gpu_weight *w, const gpu_case *c)
{
    uint16_t *const outputs = malloc(CHECKED * w->rows * sizeof *outputs);
    uint16_t *const inputs = malloc(w->columns * sizeof *inputs);
    gpu_product p = { .its = w, .how = *c };
    bool is_right = outputs != NULL && inputs != NULL;

    for (uint32_t i = 0; is_right && i < CHECKED; i++) {
        p.count = checked[i];
        ask(s, &p, 0);
        gpu_sync(s);
        gpu_fetch(s, outputs + i * w->rows, w->outputs, w->rows * sizeof *outputs);
    }
    if (is_right) {
        is_right = memcmp(outputs, outputs + w->rows, w->rows * sizeof *outputs) == 0;
        gpu_fetch(s, inputs, w->inputs[gpu_dtype_at(c->dtype)], w->columns * sizeof *inputs);
    }
    for (uint64_t i = 0; is_right && i < 32; i++) {
        const uint64_t row = i / 2 * (w->rows - 1) / 15;

        is_right = gpu_product_is_right(s, &p, inputs, row, outputs[i % 2 * 2 * w->rows + row]);
    }
    free(outputs);
    free(inputs);
    return gpu_is_right(s, name, is_right);
}

/* -------------------------------------------------------------------------------- rows */

/*
 * The least share of reading that is to be reached: weights that keep the memory busy are held to
 * it; so are 16 and 32 inputs of them, by the tensor cores. 0: nothing is.
 */
static double
target_of(const gpu_case *c, uint32_t count)
{
    if (!gpu_is_usual(c) || c->shape.rows * c->shape.columns < 60000000)
        return 0.0;
    return count == 1 ? 0.80 : count == 16 || count == 32 ? 0.60 : 0.0;
}

/* Of 8 inputs it is the time beside one's, of any weight. */
static bool
is_judged(const gpu_case *c, uint32_t count)
{
    return target_of(c, count) > 0.0 || (gpu_is_usual(c) && (count == 1 || count == 8));
}

static void
tell(gpu_speed *s, const gpu_product *p, const gpu_timing *t)
{
    const double target = target_of(&p->how, p->count);
    char name[GPU_NAME];
    const gpu_row row = { .group = gpu_is_usual(&p->how) ? "products" : "products of all kinds",
                          .name = name, .relation = target > 0.0 ? ">=" : NULL,
                          .target = target, .timing = t };

    gpu_describe(name, "NF4 product", &p->how, p->count);
    gpu_tell(s, &row, gpu_product_bytes(p), s->read_gbps, "of reading");
}

/* What is compared takes turns: clocks and heat are the same for both. */
static void
measure_eight(gpu_speed *s, const gpu_case *c, const gpu_work *one, const gpu_work *eight)
{
    const gpu_work works[] = { *one, *eight };
    gpu_timing t[2];
    char name[GPU_NAME];
    gpu_row row = { .group = "products", .name = name, .unit = "x m = 1", .relation = "<=",
                    .target = 1.1 };

    gpu_time(s, works, 2, t);
    row.value = t[1].us / t[0].us;
    gpu_describe(name, "m = 8 over m = 1", c, 0);
    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

/*
 * Each by itself, as it is in decoding: what a launch overlaps with, and what the GPU's clocks go
 * by, is its own kind.
 */
static void
measure_chosen(gpu_speed *s, gpu_product *products, uint32_t count)
{
    const gpu_product *const first = &products[0];
    gpu_work works[GPU_FEW];
    gpu_timing t[GPU_FEW];
    uint32_t eight = 0;
    char name[GPU_NAME];

    for (uint32_t i = 0; i < count; i++) {
        works[i] = (gpu_work){ ask, &products[i] };
        gpu_time(s, &works[i], 1, &t[i]);
    }
    gpu_describe(name, "NF4 product", &first->how, first->count);
    if (!are_outputs_right(s, name, first->its, &first->how))
        return;
    for (uint32_t i = 0; i < count; i++) {
        tell(s, &products[i], &t[i]);
        eight = products[i].count == 8 ? i : eight;
    }
    if (eight > 0 && first->count == 1 && s->pass == GPU_JUDGED)
        measure_eight(s, &first->how, &works[0], &works[eight]);
}

/* By tiles, with two CTAs a processor where it is one, and the other way round. */
static void
ask_other_ctas(gpu_speed *s, void *user, uint32_t turn)
{
    berthi_launch l = gpu_product_launch(s, user, turn);
    const uint32_t units = l.argument.product.units;

    l.ctas = l.ctas > s->processors ? s->processors : 2 * s->processors;
    l.ctas = l.ctas < units ? l.ctas : units;
    gpu_launch(s, &l, 1);
}

/* Beside what the launch has chosen, by the number of rows: is that right? */
static void
measure_ctas(gpu_speed *s, const gpu_product *p)
{
    char product[GPU_NAME];
    char name[GPU_NAME + 32];
    gpu_product other = *p;
    const gpu_work works[] = { { ask, &other }, { ask_other_ctas, &other } };
    gpu_timing t[2];
    gpu_row row = { .group = "products", .name = name, .unit = "x the CTAs as chosen" };

    if (!gpu_is_usual(&p->how) || !berthi_launch_is_few(gpu_product_launch(s, p, 0).kernel))
        return;
    gpu_time(s, works, 2, t);
    gpu_describe(product, "NF4 product", &p->how, p->count);
    snprintf(name, sizeof name, "%s, other CTAs", product);
    row.value = t[1].us / t[0].us;
    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

/* As many inputs as the pass has. */
static void
measure_case(gpu_speed *s, const gpu_weight *w, const gpu_case *c, const char *why)
{
    gpu_product products[GPU_FEW];
    uint32_t count = 0;
    char name[GPU_NAME];

    for (uint32_t i = 0; i < GPU_FEW; i++)
        if (is_judged(c, gpu_counts[i]) == (s->pass == GPU_JUDGED))
            products[count++] = (gpu_product){ .its = w, .how = *c, .count = gpu_counts[i] };
    if (why == NULL)
        why = gpu_refusal(s, 0);
    if (count > 0 && why == NULL)
        measure_chosen(s, products, count);
    for (uint32_t i = 0; i < count && why == NULL && s->pass == GPU_JUDGED; i++)
        measure_ctas(s, &products[i]);
    for (uint32_t i = 0; i < count && why != NULL; i++) {
        gpu_describe(name, "NF4 product", c, products[i].count);
        gpu_rows_skip(s->rows, name, why);
    }
}

void
gpu_speed_product(gpu_speed *s)
{
    for (size_t i = 0; i < GPU_SHAPES; i++) {
        gpu_weight w = gpu_weight_of(s, gpu_shapes[i]);
        const char *const why = gpu_shape_refusal(s, w.shape, gpu_weight_bytes(&w));

        if (why == NULL)
            gpu_weight_begin(s, &w);
        for (uint32_t k = 0; k < GPU_ENCODINGS; k++) {
            const gpu_case c = gpu_case_at(gpu_shapes[i], k);

            measure_case(s, &w, &c, why);
        }
        gpu_weight_end(s, &w);
    }
}
