/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute_experts.c - products with weights of experts where they lie, as berth.h has them.
 *
 *   experts in a row with few inputs   addresses, ranges ─▶ scratch ─▶ one operation a weight
 *   others                             each expert's own products, as of compute_multiply.c
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "kernels/multiply.h"
#include "kernels/number.h"
#include "kernels/product_arguments.h"
#include "kernels/tables.h"
#include "loader/compute.h"
#include "loader/model.h"
#include "placement/slab.h"

/* What the device reads of them: the scratch of 4-bit products begins with it. */
typedef struct table {
    uint32_t ranges[BERTHI_EXPERTS_GROUP + 2]; /* one is used by nobody: addresses follow */
    berthi_product_expert experts[BERTHI_EXPERTS_GROUP];
} table;

_Static_assert(sizeof(table) <= BERTHI_WRITE_BYTES, "it is one write");

#define TABLE_BYTES UINT64_C(2048) /* of the scratch; rounded as all of it */

typedef struct group {
    uint32_t experts[BERTHI_EXPERTS_GROUP]; /* their numbers, ascending */
    uint32_t count;
    uint32_t most_inputs;    /* that one has */
    uint32_t end;            /* the experts before it are in this group, or have no inputs */
} group;

typedef struct call {
    berth_model *model;
    const berth_multiply_experts *step;
    void *stream;
    berthi_device *device; /* NULL: no expert has inputs */
    bool are_alike;        /* each weight is encoded in the same way in all experts */
    berthi_product first[BERTH_MULTIPLY_TOGETHER]; /* of the first expert that has inputs */
} call;

static uint32_t
inputs_of(const berth_multiply_experts *s, uint32_t expert)
{
    return s->ranges[expert + 1] - s->ranges[expert];
}

static uint64_t
place_of(const call *c, uint32_t weight, uint32_t expert)
{
    return (uint64_t)weight * c->step->experts + expert;
}

/* ---------------------------------------------------------------------- products */

static const void *
inputs_from(const call *c, const berthi_product *p, uint32_t first)
{
    return (const char *)c->step->inputs
           + first * p->columns * berthi_number_bytes(c->step->dtype);
}

static void *
outputs_from(const call *c, const berthi_product *p, uint32_t weight, uint32_t first)
{
    return (char *)c->step->outputs[weight]
           + first * p->rows * berthi_number_bytes(c->step->dtype);
}

/* An expert's own product, of sizes that have been checked. */
static void
set_step(const call *c, uint32_t weight, uint32_t expert, berthi_product *p)
{
    const berth_multiply_experts *const s = c->step;
    const uint64_t table_bytes = berthi_product_is_4bit(p) ? TABLE_BYTES : 0;
    const bool has_room = s->scratch_bytes >= table_bytes;

    p->step = (berth_multiply){
        .inputs = inputs_from(c, p, s->ranges[expert]),
        .outputs = outputs_from(c, p, weight, s->ranges[expert]),
        .bias = s->biases != NULL ? s->biases[place_of(c, weight, expert)] : NULL,
        .scratch = has_room && s->scratch != NULL ? (char *)s->scratch + table_bytes : NULL,
        .scratch_bytes = has_room ? s->scratch_bytes - table_bytes : 0,
        .dtype = s->dtype,
        .count = inputs_of(s, expert),
        .threshold = p->tensor.encoding == BERTH_ENCODING_INT8 ? s->threshold : 0,
    };
}

/* Of a product that has been checked before. */
static void
take_again(const call *c, uint32_t weight, uint32_t expert, berthi_product *p)
{
    (void)berthi_product_take(p, c->model, c->step->berths[place_of(c, weight, expert)]);
    set_step(c, weight, expert, p);
    (void)berthi_product_divide(p, p->step.scratch);
}

/* All experts of a group by one weight of each; what only devices know is left out. */
static berthi_request
ask_group(const call *c, const group *g, uint32_t weight)
{
    const berthi_product *const p = &c->first[weight];
    const uint32_t first = c->step->ranges[g->experts[0]];

    return (berthi_request){
        .operation = p->tensor.encoding == BERTH_ENCODING_NF4 ? BERTHI_OPERATION_EXPERTS_NF4
                                                              : BERTHI_OPERATION_EXPERTS_FP4,
        .arguments.experts = {
            .experts = (const void *)((const char *)c->step->scratch
                                      + offsetof(table, experts)),
            .ranges = c->step->scratch,
            .expert_count = g->count,
            .most_inputs = g->most_inputs,
            .codes_alignment = BERTHI_SLAB_ALIGNMENT,
            .block_size = p->tensor.block_size,
            .is_double = p->tensor.is_double != 0,
            .map = berthi_signed_map,
            .rows = p->rows,
            .columns = p->columns,
            .count = c->step->ranges[g->end] - first,
            .inputs = inputs_from(c, p, first),
            .outputs = outputs_from(c, p, weight, first),
            .dtype = c->step->dtype,
            .scratch = (float *)(void *)((char *)c->step->scratch + TABLE_BYTES),
        },
    };
}

/* Bytes of a 4-bit weight: as many for any number of experts and inputs. */
static uint64_t
scratch_of_group(const berthi_product *p)
{
    const berthi_experts_arguments any = {
        .block_size = p->tensor.block_size, .is_double = p->tensor.is_double != 0,
        .rows = p->rows, .columns = p->columns, .dtype = p->step.dtype,
    };

    return TABLE_BYTES + berthi_experts_scratch(&any) * sizeof(float);
}

/* ---------------------------------------------------------------------- checking */

static berth_status
check_ranges(const berth_multiply_experts *s, berth_error *error)
{
    for (uint32_t e = 0; e < s->experts; e++)
        if (s->ranges[e] > s->ranges[e + 1])
            return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                               "argument `step` has ranges that descend behind ranges[%" PRIu32
                               "]: experts' inputs follow each other",
                               e);
    return BERTH_OK;
}

static berth_status
check_step(const berth_multiply_experts *s, berth_error *error)
{
    if (s == NULL)
        return berthi_fail_argument(error, "step", "is NULL");
    if (s->berths == NULL || s->ranges == NULL)
        return berthi_fail_argument(error, "step", "has no berths or ranges");
    if (s->experts == 0 || s->experts == UINT32_MAX)
        return berthi_fail_argument(error, "step", "has no experts, or too many");
    if (s->weights == 0 || s->weights > BERTH_MULTIPLY_TOGETHER)
        return berthi_fail_argument(error, "step", "has weights that are not 1 to 4");
    if (s->inputs == NULL || s->outputs == NULL)
        return berthi_fail_argument(error, "step", "has no inputs or outputs");
    for (uint32_t i = 0; i < s->weights; i++)
        if (s->outputs[i] == NULL)
            return berthi_fail_argument(error, "step", "has no outputs of one of its weights");
    if (!berthi_is_number(s->dtype))
        return berthi_fail_argument(error, "step",
                                    "has a dtype that is none of BF16, F16 and F32");
    if (!isgreaterequal(s->threshold, 0.0f))
        return berthi_fail_argument(error, "step",
                                    "has a threshold that is below 0, or no number");
    return check_ranges(s, error);
}

static bool
is_like(const berthi_product *p, const berthi_product *other)
{
    const berth_model_tensor *const a = &p->tensor;
    const berth_model_tensor *const b = &other->tensor;

    return a->encoding == b->encoding && a->block_size == b->block_size
           && a->is_double == b->is_double;
}

/* Beside the first expert's, which is itself what the others are held against. */
static berth_status
check_shape(const call *c, const berthi_product *p, uint32_t weight, const char *name,
            berth_error *error)
{
    const berthi_product *const first = &c->first[weight];

    if (p->rows != first->rows || p->columns != first->columns)
        return berthi_fail_argument(error, name,
                                    "has another shape than that weight of an expert before it");
    if (p->columns != c->first[0].columns)
        return berthi_fail_argument(error, name,
                                    "has not as many columns as the expert's first weight");
    if (p->tensor.device != c->first[0].tensor.device)
        return berthi_fail_argument(error, name, "is of another device than the first one");
    return BERTH_OK;
}

/* The device does not see what stands in its memory. */
static berth_status
check_bias(const berthi_product *p, const char *name, berth_error *error)
{
    const int32_t dtype =
        p->tensor.encoding == BERTH_ENCODING_INT8 ? BERTH_F16 : p->step.dtype;

    return (uintptr_t)p->step.bias % berthi_number_bytes(dtype) == 0
               ? BERTH_OK
               : berthi_fail_argument(error, name,
                                      "has a bias at an address that its dtype cannot have");
}

static berth_status
check_as(const call *c, uint32_t weight, uint32_t expert, berthi_product *p, const char *name,
         berth_error *error)
{
    const berth_multiply_experts *const s = c->step;
    berth_status status;

    if (berthi_product_take(p, c->model, s->berths[place_of(c, weight, expert)]) != BERTH_OK)
        return berthi_fail_argument(error, name, "is not that of a tensor");
    status = berthi_multiply_check_sizes(p->rows, p->columns, s->ranges[s->experts], error);
    if (status != BERTH_OK)
        return status;
    set_step(c, weight, expert, p);
    status = check_shape(c, p, weight, name, error);
    if (status == BERTH_OK)
        status = berthi_product_check(p, name, error);
    if (status == BERTH_OK && berthi_product_is_4bit(p))
        status = berthi_scratch_check(s->scratch, s->scratch_bytes, scratch_of_group(p), error);
    return status == BERTH_OK ? check_bias(p, name, error) : status;
}

/* It gets a name where something is wrong with it: there are many, for each token. */
static berth_status
check_product(const call *c, uint32_t weight, uint32_t expert, berthi_product *p,
              berth_error *error)
{
    char name[40];

    if (check_as(c, weight, expert, p, "", NULL) == BERTH_OK)
        return BERTH_OK;
    snprintf(name, sizeof name, "berths[%" PRIu64 "]", place_of(c, weight, expert));
    return check_as(c, weight, expert, p, name, error);
}

/* Before anything is asked for. */
static berth_status
check_all(call *c, berth_error *error)
{
    berthi_product other = { .rows = 0 };
    berth_status status = BERTH_OK;

    for (uint32_t e = 0; e < c->step->experts && status == BERTH_OK; e++) {
        const bool is_first = c->device == NULL;

        if (inputs_of(c->step, e) == 0)
            continue;
        for (uint32_t w = 0; w < c->step->weights && status == BERTH_OK; w++) {
            berthi_product *const p = is_first ? &c->first[w] : &other;

            status = check_product(c, w, e, p, error);
            if (status == BERTH_OK && !is_like(p, &c->first[w]))
                c->are_alike = false;
        }
        if (is_first && status == BERTH_OK)
            c->device = berthi_device_of(c->model, &c->first[0].tensor);
    }
    return status;
}

/* ------------------------------------------------------------------------ asking */

/* From `expert` on, as many as have few inputs; one that has many ends it. */
static void
gather(const berth_multiply_experts *s, uint32_t expert, group *g)
{
    g->count = 0;
    g->most_inputs = 0;
    for (g->end = expert; g->end < s->experts && g->count < BERTHI_EXPERTS_GROUP; g->end++) {
        const uint32_t count = inputs_of(s, g->end);

        if (count > BERTHI_EXPERTS_INPUTS)
            return;
        if (count == 0)
            continue;
        g->experts[g->count++] = g->end;
        if (g->most_inputs < count)
            g->most_inputs = count;
    }
}

static void
fill_table(const call *c, const group *g, uint32_t weight, table *t)
{
    const uint32_t *const ranges = c->step->ranges;

    for (uint32_t i = 0; i < g->count; i++) {
        berthi_multiply_arguments one;
        berthi_product p;

        take_again(c, weight, g->experts[i], &p);
        one = berthi_product_ask_4bit(&p).arguments.multiply;
        t->experts[i] = (berthi_product_expert){ .codes = one.codes,
                                                 .absmax = one.absmax,
                                                 .absmax_codes = one.absmax_codes,
                                                 .bias = one.bias,
                                                 .offset = one.offset };
        t->ranges[i] = ranges[g->experts[i]] - ranges[g->experts[0]];
    }
    t->ranges[g->count] = ranges[g->end] - ranges[g->experts[0]];
}

static berth_status
launch_group(const call *c, const group *g, berth_error *error)
{
    const uint64_t bytes = offsetof(table, experts) + g->count * sizeof(berthi_product_expert);
    table t = { .ranges = { 0 } };
    berth_status status = BERTH_OK;

    for (uint32_t w = 0; w < c->step->weights && status == BERTH_OK; w++) {
        const berthi_request request = ask_group(c, g, w);

        fill_table(c, g, w, &t);
        status = berthi_device_write(c->device, c->step->scratch, &t, bytes, c->stream, error);
        if (status == BERTH_OK)
            status = berthi_launch_on(c->device, &request, c->stream, error);
    }
    return status;
}

static berth_status
launch_one(const call *c, uint32_t expert, berth_error *error)
{
    berthi_product products[BERTH_MULTIPLY_TOGETHER];

    for (uint32_t w = 0; w < c->step->weights; w++)
        take_again(c, w, expert, &products[w]);
    return berthi_products_launch(products, c->step->weights, c->device, c->stream, error);
}

/* All weights of a group have the bits of products one after the other. */
static bool
can_group(const call *c)
{
    const group any = { .count = 1, .most_inputs = 1 };

    for (uint32_t w = 0; w < c->step->weights; w++) {
        berthi_request request;

        if (!berthi_product_is_4bit(&c->first[w]))
            return false;
        request = ask_group(c, &any, w);
        if (!berthi_device_groups_experts(c->device, &request))
            return false;
    }
    return true;
}

static berth_status
launch_all(const call *c, berth_error *error)
{
    const bool is_grouping = c->are_alike && can_group(c);
    berth_status status = BERTH_OK;
    group g;

    for (uint32_t e = 0; e < c->step->experts && status == BERTH_OK; e = g.end) {
        g = (group){ .end = e + 1 };
        if (is_grouping && inputs_of(c->step, e) <= BERTHI_EXPERTS_INPUTS)
            gather(c->step, e, &g);
        if (g.count > 1)
            status = launch_group(c, &g, error);
        else if (g.count == 1 || inputs_of(c->step, e) > 0)
            status = launch_one(c, g.count == 1 ? g.experts[0] : e, error);
    }
    return status;
}

/* ---------------------------------------------------------------------- interface */

berth_status
berth_model_multiply_experts(berth_model *model, const berth_multiply_experts *step,
                             void *stream, berth_error *error)
{
    call c = { .model = model, .step = step, .stream = stream, .are_alike = true };
    berth_status status;

    berthi_error_clear(error);
    if (model == NULL)
        return berthi_fail_argument(error, "model", "is NULL");
    status = check_step(step, error);
    if (status == BERTH_OK)
        status = berthi_model_enter(model, error);
    if (status != BERTH_OK)
        return status;
    status = check_all(&c, error);
    if (status == BERTH_OK && c.device != NULL)
        status = launch_all(&c, error);
    berthi_model_leave(model);
    return status;
}

uint64_t
berth_model_multiply_experts_scratch(const berth_model *model, uint64_t berth, int32_t dtype,
                                     uint32_t count)
{
    berthi_product p = { .step = { .dtype = dtype, .count = count } };
    const uint64_t bytes = model != NULL ? berthi_product_measure(&p, model, berth) : 0;

    return bytes > 0 && berthi_product_is_4bit(&p) ? scratch_of_group(&p) : bytes;
}
