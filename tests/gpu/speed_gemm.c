/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed_gemm.c - many inputs: how much a weight of 4-bit codes costs, as a device multiplies with
 * it, over one of 16 bits by cuBLASLt, and what LLM.int8() gains; see speed.h
 */
#include "tests/gpu/speed_linear.h"

/* That of 16 bits, four encodings, LLM.int8(), the first encoding decoded. */
#define MOST_WORKS 7u

/* One way to multiply with the weight. */
typedef struct way {
    const char *name;
    void (*ask)(gpu_speed *s, void *layer, uint32_t turn);
    double noise;  /* of its codes */
    double target; /* 0: nothing is to be reached */
    bool is_told;  /* the others are only compared with */
    bool is_other; /* the way that a judged product may not go: is that right? */
    gpu_layer layer;
} way;

/* ----------------------------------------------------------------------------- targets */

static bool
is_largest(const gpu_case *c)
{
    return c->shape.rows * c->shape.columns == UINT64_C(8192) * 28672;
}

/* Of 16 bits' time, at most: what decoding may add to a product that is as fast as it can be. */
static double
most_time(const gpu_case *c, uint32_t count)
{
    if (!gpu_is_usual(c) || c->is_double || !is_largest(c))
        return 0.0;
    switch (count) {
    case 64: return 1.0;
    case 128: return 1.1;
    case 256:
    case 512: return 1.15;
    case 2048:
    case 4096: return 1.05;
    case 8192: return 1.03;
    default: return 0.0;
    }
}

/* Times 16 bits' speed, at least. */
static double
least_int8(const gpu_case *c, uint32_t count)
{
    return gpu_is_usual(c) && is_largest(c) && c->shape.rows == 8192 && count >= 1024 ? 1.4
                                                                                    : 0.0;
}

/* -------------------------------------------------------------------------------- rows */

static bool
is_plain(const way *w)
{
    return w->ask == gpu_ask_plain;
}

static void
describe(const way *w, uint32_t count, char name[GPU_NAME])
{
    gpu_describe(name, w->name, &w->layer.how, count);
}

static void
tell(gpu_speed *s, const way *w, const char *name, const gpu_timing *plain, const gpu_timing *t)
{
    const gpu_linear *const l = w->layer.its;
    const bool is_int8 = w->ask == gpu_ask_int8;
    const double operations =
        2.0 * (double)l->rows * (double)l->columns * (double)w->layer.count;
    gpu_row row = { .group = gpu_is_usual(&w->layer.how) && !w->layer.how.is_double
                                 ? "many inputs"
                                 : "many inputs of all kinds",
                    .name = name, .timing = t, .target = w->target,
                    .relation = w->target <= 0.0 ? NULL : is_int8 ? ">=" : "<=" };

    if (is_plain(w)) {
        row.value = operations / t->us / 1e6;
        row.unit = "TFLOP/s";
    } else if (is_int8) {
        row.value = plain->us / t->us;
        row.unit = l->dtype == BERTH_F16 ? "x F16 speed" : "x BF16 speed";
    } else {
        row.value = t->us / plain->us;
        row.unit = l->dtype == BERTH_F16 ? "x F16 time" : "x BF16 time";
    }
    gpu_rows_speed(s->rows, &row, s->machine->is_simulated);
}

static void
measure_ways(gpu_speed *s, way *ways, uint32_t ways_count, uint32_t count)
{
    gpu_work works[MOST_WORKS];
    gpu_timing t[MOST_WORKS];
    char name[GPU_NAME];

    for (uint32_t i = 0; i < ways_count; i++)
        works[i] = (gpu_work){ ways[i].ask, &ways[i].layer };
    gpu_time(s, works, ways_count, t);
    for (uint32_t i = 0; i < ways_count; i++) {
        describe(&ways[i], count, name);
        if (ways[i].is_told
            && gpu_layer_is_right(s, name, &ways[i].layer, ways[i].ask, ways[i].noise))
            tell(s, &ways[i], name, &t[0], &t[i]);
    }
}

/* Everything with so many inputs, that of 16 bits first; how much. */
static uint32_t
list_ways(gpu_speed *s, const gpu_linear *l, uint32_t count, way out[MOST_WORKS])
{
    gpu_case plain = gpu_case_at(l->shape, 0);
    uint32_t ways = 1;

    plain.dtype = l->dtype;
    out[0] = (way){ l->dtype == BERTH_F16 ? "F16 by cuBLASLt" : "BF16 by cuBLASLt",
                    gpu_ask_plain, 0x1p-12, 0.0, false, false, { .how = plain } };
    for (uint32_t i = 0; i < GPU_ENCODINGS; i++) {
        const gpu_case c = gpu_case_at(l->shape, i);

        if (c.dtype == l->dtype)
            out[ways++] = (way){ "NF4", gpu_ask_4bit, 0.2, most_time(&c, count), false, false,
                                 { .how = c } };
    }
    out[ways++] = (way){ "LLM.int8()", gpu_ask_int8, 0.02, least_int8(&plain, count), false,
                         false, { .how = plain } };
    if (most_time(&plain, count) > 0.0)
        out[ways++] = (way){ "NF4, decoded", gpu_ask_4bit, 0.2, 0.0, false, true,
                             { .how = plain, .is_decoded = true } };
    for (uint32_t i = 0; i < ways; i++) {
        out[i].layer.its = l;
        out[i].layer.count = gpu_made_inputs(s, count);
    }
    return ways;
}

static bool
is_judged(const way *w)
{
    return w->target > 0.0 || w->is_other;
}

/* Those that the pass has, beside that of 16 bits, which is told where it first comes. */
static uint32_t
choose_ways(gpu_speed *s, way ways[MOST_WORKS], uint32_t count)
{
    bool has_judged = false;
    uint32_t chosen = 1;

    for (uint32_t i = 1; i < count; i++)
        has_judged = has_judged || is_judged(&ways[i]);
    ways[0].is_told = has_judged == (s->pass == GPU_JUDGED);
    for (uint32_t i = 1; i < count; i++)
        if (is_judged(&ways[i]) == (s->pass == GPU_JUDGED)) {
            ways[chosen] = ways[i];
            ways[chosen++].is_told = true;
        }
    return chosen;
}

static void
measure_count(gpu_speed *s, const gpu_linear *l, uint32_t count, const char *why)
{
    way ways[MOST_WORKS];
    uint32_t chosen;
    char name[GPU_NAME];

    chosen = choose_ways(s, ways, list_ways(s, l, count, ways));
    if (chosen == 1)
        return;
    if (why == NULL)
        why = gpu_refusal(s, 0);
    if (why == NULL)
        measure_ways(s, ways, chosen, count);
    for (uint32_t i = 0; i < chosen && why != NULL; i++) {
        describe(&ways[i], count, name);
        if (ways[i].is_told)
            gpu_rows_skip(s->rows, name, why);
    }
}

static void
measure_weight(gpu_speed *s, gpu_shape shape, int32_t dtype, const char *no_library)
{
    gpu_linear l = gpu_linear_of(s, shape, dtype,
                                 gpu_made_inputs(s, gpu_counts[GPU_COUNTS - 1]), true);
    const char *const why =
        no_library != NULL ? no_library
                           : gpu_shape_refusal(s, shape, gpu_linear_bytes(&l));
    const gpu_case c = { .shape = shape, .dtype = dtype, .block_size = 64 };

    if (s->pass == GPU_JUDGED && most_time(&c, 64) <= 0.0)
        return;
    if (why == NULL)
        gpu_linear_begin(s, &l);
    for (uint32_t i = GPU_FEW; i < GPU_COUNTS; i++)
        measure_count(s, &l, gpu_counts[i], why);
    gpu_linear_end(s, &l);
}

void
gpu_speed_gemm(gpu_speed *s)
{
    const char *const no_library = gpu_linear_refusal(s);

    for (size_t i = 0; i < GPU_SHAPES; i++) {
        measure_weight(s, gpu_shapes[i], BERTH_BF16, no_library);
        measure_weight(s, gpu_shapes[i], BERTH_F16, no_library);
    }
}
