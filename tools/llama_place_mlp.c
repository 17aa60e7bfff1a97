/* SPDX-License-Identifier: Apache-2.0 */
/* llama_place_mlp.c - MLPs, dense and of experts, as steps of a device; see llama_place.h. */
#include "tools/llama_place.h"

static berth_status
activate(const llama_place *p, void *gate, const void *up, uint64_t elements,
         berth_error *error)
{
    const berth_gate step = { .gate = gate, .up = up, .elements = elements,
                              .dtype = p->dtype };

    return berth_device_gate(p->devices, p->number, &step, p->stream, error);
}

berth_status
llama_place_dense(llama_place *p, const llama_stage *stage, berth_error *error)
{
    const llama_tensor *const t = stage->tensors;
    const uint32_t count = p->engine->pass->count;
    const llama_output outputs[] = { { &t[LLAMA_GATE], p->gate }, { &t[LLAMA_UP], p->up } };
    berth_status status = llama_place_multiply(p, outputs, 2, p->dtype, p->normed, count, error);

    if (status == BERTH_OK)
        status = activate(p, p->gate, p->up,
                          (uint64_t)count * p->engine->options->config->inner, error);
    if (status == BERTH_OK)
        status = llama_place_multiply(p, &(llama_output){ &t[LLAMA_DOWN], p->normed }, 1,
                                      p->dtype, p->gate, count, error);
    p->is_owed = true;
    return status;
}

/* ------------------------------------------------------------------------- experts */

berth_status
llama_place_route(const llama_place *p, const llama_stage *stage, uint32_t *numbers,
                  berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    const uint32_t count = p->engine->pass->count;
    const berth_choose step = {
        .logits = p->router,
        .numbers = p->numbers,
        .weights = p->weights,
        .dtype = p->dtype,
        .is_renormalised = c->is_renormalised,
        .count = count,
        .experts = c->experts,
        .used = c->experts_used,
    };
    const llama_output output = { &stage->tensors[LLAMA_ROUTER], p->router };
    berth_status status = llama_place_multiply(p, &output, 1, p->dtype, p->normed, count, error);

    if (status == BERTH_OK)
        status = berth_device_choose(p->devices, p->number, &step, p->stream, error);
    return status == BERTH_OK
               ? llama_place_read(p, numbers, p->numbers,
                                  (uint64_t)count * c->experts_used * sizeof *numbers, error)
               : status;
}

berth_status
llama_place_gather(const llama_place *p, const uint32_t *slots, berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    const uint32_t count = p->engine->pass->count;
    const berth_take step = {
        .table = p->normed,
        .table_dtype = p->dtype,
        .dtype = p->dtype,
        .numbers = p->slots,
        .rows = count,
        .columns = c->hidden,
        .count = count * c->experts_used,
        .share = c->experts_used,
        .outputs = p->gathered,
    };
    const berth_status status = llama_place_write(p, p->slots, slots,
                                                  step.count * sizeof *slots, error);

    return status == BERTH_OK
               ? berth_device_take(p->devices, p->number, &step, p->stream, error)
               : status;
}

/* Experts in [first, end), whose slots follow each other from `slot` on. */
typedef struct run {
    const llama_stage *stage;
    uint32_t first;
    uint32_t count;
    uint64_t slot;
    uint32_t slots;
} run;

/* Those without slots are not looked at. */
static berth_status
list_weight(const llama_place *p, const run *r, uint32_t which, uint32_t number,
            berth_error *error)
{
    const llama_grouped *const g = &p->grouped;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < r->count && status == BERTH_OK; i++) {
        const llama_tensor *const t = &llama_expert(r->stage, r->first + i)[which];
        const uint32_t at = number * r->count + i;

        g->berths[at] = t->berth;
        g->biases[at] = NULL;
        if (g->ranges[i + 1] > g->ranges[i])
            status = llama_place_bias(p, t, p->dtype, at, &g->biases[at], error);
    }
    return status;
}

/* Slots by `weights` of each expert, from `which` of gate, up and down on. */
static berth_status
multiply_experts(const llama_place *p, const run *r, uint32_t which, uint32_t weights,
                 const void *inputs, void *const *outputs, berth_error *error)
{
    const berth_multiply_experts step = {
        .berths = p->grouped.berths,
        .ranges = p->grouped.ranges,
        .inputs = inputs,
        .outputs = outputs,
        .biases = p->grouped.biases,
        .scratch = p->scratch,
        .scratch_bytes = p->scratch_bytes,
        .dtype = p->dtype,
        .experts = r->count,
        .weights = weights,
        .threshold = p->engine->options->config->int8_threshold,
    };
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < weights && status == BERTH_OK; i++)
        status = list_weight(p, r, which + i, i, error);
    return status == BERTH_OK ? berth_model_multiply_experts(p->engine->options->model, &step,
                                                             p->stream, error)
                              : status;
}

/* Slots in and out. */
static berth_status
run_experts(const llama_place *p, const run *r, berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    void *const outside = (char *)p->gathered + r->slot * c->hidden * llama_place_width(p);
    void *const inside[] = { (char *)p->gate + r->slot * c->expert_inner * llama_place_width(p),
                             (char *)p->up + r->slot * c->expert_inner * llama_place_width(p) };
    berth_status status = multiply_experts(p, r, 0, 2, outside, inside, error);

    if (status == BERTH_OK)
        status = activate(p, inside[0], inside[1], (uint64_t)r->slots * c->expert_inner, error);
    return status == BERTH_OK ? multiply_experts(p, r, 2, 1, inside[0], &outside, error) : status;
}

/* What comes out of slots, to what goes from layer to layer. */
static berth_status
add_slots(const llama_place *p, const run *r, berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    const berth_add step = {
        .sums = p->hidden,
        .values = (char *)p->gathered + r->slot * c->hidden * llama_place_width(p),
        .rows = p->slots + r->slot,
        .weights = p->weights,
        .dtype = p->dtype,
        .share = c->experts_used,
        .count = r->slots,
        .sum_rows = p->engine->pass->count,
        .columns = c->hidden,
    };

    return berth_device_add(p->devices, p->number, &step, p->stream, error);
}

berth_status
llama_place_experts(const llama_place *p, const llama_stage *stage, uint32_t first,
                    uint32_t end, uint64_t slot, berth_error *error)
{
    uint32_t *const ranges = p->grouped.ranges;
    run r = { .stage = stage, .first = first, .count = end - first, .slot = slot };
    berth_status status;

    ranges[0] = 0;
    for (uint32_t i = 0; i < r.count; i++)
        ranges[i + 1] = ranges[i] + p->engine->counts[first + i];
    r.slots = ranges[r.count];
    status = run_experts(p, &r, error);
    return status == BERTH_OK ? add_slots(p, &r, error) : status;
}
