/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_model.c - all linear layers of a model of 70 billion parameters for one token: what its
 * decoder layers ask for, launch after launch, eighty times. Attention, norms and the head are left
 * out; see speed.h
 */
#include <stdlib.h>

#include "tests/gpu/speed_weight.h"

#define MEMBERS 7u
#define LAYERS 80.0

/* Weights that meet the same inputs are one launch. */
static const struct {
    gpu_shape shape;
    uint32_t together; /* it and those behind it */
} members[MEMBERS] = {
    { { 8192, 8192 }, 3 },  { { 1024, 8192 }, 0 },  { { 1024, 8192 }, 0 }, /* query, key, value */
    { { 8192, 8192 }, 1 },                                                 /* output */
    { { 28672, 8192 }, 2 }, { { 28672, 8192 }, 0 },                        /* gate, up */
    { { 8192, 28672 }, 1 },                                                /* down */
};

typedef struct layer {
    gpu_weight weights[MEMBERS];
    bool is_double;
} layer;

/* The inputs are those of the first of its group. */
static gpu_product
member_of(const layer *l, uint32_t i)
{
    uint32_t first = i;

    while (members[first].together == 0)
        first--;
    return (gpu_product){ .its = &l->weights[i],
                          .how = { .shape = members[i].shape, .dtype = BERTH_BF16,
                                   .block_size = 64, .is_double = l->is_double },
                          .count = 1,
                          .inputs = (const uint16_t *const *)l->weights[first].inputs };
}

static void
ask(gpu_speed *s, void *user, uint32_t turn)
{
    const layer *const l = user;
    berthi_launch launches[MEMBERS];

    for (uint32_t i = 0; i < MEMBERS; i++) {
        const gpu_product p = member_of(l, i);

        launches[i] = gpu_product_launch(s, &p, turn);
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (members[i].together > 1)
            (void)berthi_launch_join_products(&launches[i], members[i].together);
    gpu_launch(s, launches, MEMBERS);
}

/* Some outputs of each of its products. */
static bool
is_layer_right(gpu_speed *s, const char *name, layer *l)
{
    bool is_right = true;

    ask(s, l, 0);
    gpu_sync(s);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const gpu_product p = member_of(l, i);
        const gpu_weight *const w = p.its;
        uint16_t *const input = gpu_host_alloc(w->columns * sizeof *input);

        gpu_fetch(s, input, p.inputs[gpu_dtype_at(BERTH_BF16)], w->columns * sizeof *input);
        for (uint64_t k = 0; is_right && k < 4; k++) {
            const uint64_t row = k * (w->rows - 1) / 3;
            uint16_t output;

            gpu_fetch(s, &output, w->outputs + row, sizeof output);
            is_right = gpu_product_is_right(s, &p, input, row, output);
        }
        free(input);
    }
    return gpu_is_right(s, name, is_right);
}

/*
 * With double quantization 10.5 ms on an H200, of which 4569 GB/s could be read: elsewhere as much
 * more or less as this GPU reads.
 */
static void
measure(gpu_speed *s, layer *l)
{
    const char *const name = l->is_double ? "all linear layers of a 70B model, double, a token"
                                          : "all linear layers of a 70B model, a token";
    const gpu_work work = { ask, l };
    gpu_timing t;
    gpu_row row = { .group = "products", .name = name, .unit = "ms", .timing = &t,
                    .relation = l->is_double ? "<=" : NULL };
    double bytes = 0.0;

    if (!gpu_can_begin(s, name, 0))
        return;
    gpu_time(s, &work, 1, &t);
    if (!is_layer_right(s, name, l))
        return;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const gpu_product p = member_of(l, i);

        bytes += gpu_product_bytes(&p);
    }
    row.value = LAYERS * t.us / 1000.0;
    row.gbps = bytes / t.us / 1000.0;
    row.target = l->is_double ? 10.5 * 4569.0 / s->read_gbps : 0.0;
    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

void
gpu_speed_model(gpu_speed *s)
{
    layer l = { .is_double = s->pass == GPU_JUDGED };
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < MEMBERS; i++) {
        l.weights[i] = gpu_weight_of(s, members[i].shape);
        /* A layer is larger than any cache. */
        l.weights[i].turns = 2;
        bytes += gpu_weight_bytes(&l.weights[i]);
    }
    if (!gpu_can_begin(s, "all linear layers of a 70B model", bytes))
        return;
    for (uint32_t i = 0; i < MEMBERS; i++)
        gpu_weight_begin(s, &l.weights[i]);
    measure(s, &l);
    for (uint32_t i = 0; i < MEMBERS; i++)
        gpu_weight_end(s, &l.weights[i]);
}
