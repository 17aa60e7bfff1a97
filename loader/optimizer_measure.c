/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_measure.c - how long gradients are, and gradients added up.
 *
 * Sums of squares are kept by blocks and added in the order of the parameters, so a norm
 * does not depend on who has measured what.
 */
#include <string.h>

#include "kernels/base.h"
#include "kernels/float_mode.h"
#include "kernels/sys.h"
#include "loader/optimizer.h"
#include "loader/values.h"

/* What a thread takes of a gradient at a time: whole blocks. */
#define SHARE_BLOCKS 16u
#define SHARE_ELEMENTS (SHARE_BLOCKS * (uint64_t)BERTHI_GRADIENT_BLOCK)

static uint64_t
blocks_of(uint64_t elements)
{
    return berthi_divide_up(elements, BERTHI_GRADIENT_BLOCK);
}

/* ---------------------------------------------------------------------- room for sums */

static uint64_t
sums_bytes(const berth_optimizer *o)
{
    return berthi_round_up(o->sum_count * sizeof *o->sums, berthi_sys_page_bytes());
}

static berth_status
prepare(berth_optimizer *o, berth_error *error)
{
    if (o->sums != NULL)
        return BERTH_OK;
    o->sum_count = 0;
    for (uint64_t i = 0; i < o->parameter_count; i++)
        o->sum_count += blocks_of(o->parameters[i].states.elements);
    o->sums = berthi_memory_aligned(o->context, BERTHI_PURPOSE_SCRATCH, sums_bytes(o),
                                    berthi_sys_page_bytes());
    if (o->sums == NULL)
        return berthi_fail_memory(error, "sums of gradients");
    o->has_pinned_sums = berthi_optimizer_pin(o, o->sums, sums_bytes(o));
    return BERTH_OK;
}

void
berthi_optimizer_free_sums(berth_optimizer *o)
{
    if (o->sums == NULL)
        return;
    if (o->has_pinned_sums)
        berthi_optimizer_unpin(o, o->sums, sums_bytes(o));
    berthi_memory_free_aligned(o->context, BERTHI_PURPOSE_SCRATCH, o->sums, sums_bytes(o),
                               berthi_sys_page_bytes());
    o->sums = NULL;
}

/* -------------------------------------------------------------------------- measuring */

typedef struct measuring {
    const berthi_operations *operations;
    berthi_measure_arguments arguments;
} measuring;

static void
measure_share(void *user, uint32_t worker, uint64_t part)
{
    const measuring *const m = user;
    const uint64_t first = part * SHARE_ELEMENTS;
    const berthi_measure_arguments share = {
        .count = berthi_min_u64(m->arguments.count - first, SHARE_ELEMENTS),
        .gradient = (const uint8_t *)m->arguments.gradient
                    + first * berthi_format_element_bytes(m->arguments.dtype),
        .dtype = m->arguments.dtype,
        .sums = m->arguments.sums + part * SHARE_BLOCKS,
    };

    (void)worker;
    m->operations->measure(&share);
}

static void
measure_host(berthi_step *step, const berthi_measure_arguments *arguments)
{
    const uint64_t parts = berthi_divide_up(arguments->count, SHARE_ELEMENTS);
    measuring m = { .operations = &step->optimizer->operations, .arguments = *arguments };

    berthi_values_run(berthi_step_threads(step, parts), parts, measure_share, &m);
}

/* A page at a time: the device has room for the sums of one. */
static berth_status
measure_device(const berthi_step *step, uint32_t device,
               const berthi_measure_arguments *arguments, berth_error *error)
{
    const berthi_optimizer_device *const d = &step->optimizer->devices[device];
    const uint64_t page = step->optimizer->page_elements;
    berthi_stream *const stream = berthi_step_stream(step, device);
    berth_status status = BERTH_OK;

    for (uint64_t first = 0; first < arguments->count && status == BERTH_OK; first += page) {
        const uint64_t count = berthi_min_u64(arguments->count - first, page);
        const berthi_request request = {
            .operation = BERTHI_OPERATION_MEASURE,
            .arguments.measure = {
                .count = count,
                .gradient = (const uint8_t *)arguments->gradient
                            + first * berthi_format_element_bytes(arguments->dtype),
                .dtype = arguments->dtype,
                .sums = d->sums,
            },
        };
        const berthi_copy copy = {
            .kind = BERTHI_COPY_TO_HOST,
            .is_pinned = step->optimizer->has_pinned_sums,
            .to = arguments->sums + first / BERTHI_GRADIENT_BLOCK,
            .from = d->sums,
            .bytes = blocks_of(count) * sizeof *arguments->sums,
        };

        status = d->device->table->launch(d->device, &request, stream, error);
        if (status == BERTH_OK)
            status = d->device->table->copy(d->device, &copy, stream, error);
    }
    return status;
}

static berth_status
await_devices(const berth_optimizer *o, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < o->device_count && status == BERTH_OK; i++)
        status = berthi_optimizer_await(o, i, o->devices[i].done, error);
    return status;
}

berth_status
berthi_step_measure(berthi_step *step, berthi_gradient_sum *out, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    uint64_t blocks = 0;
    berth_status status = prepare(o, error);

    if (status == BERTH_OK && o->has_late_sums)
        status = berthi_optimizer_settle(o, error);
    if (status == BERTH_OK)
        status = berthi_step_follow(step, error);
    if (status != BERTH_OK)
        return status;
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++) {
        const berthi_trained_tensor *const p = &o->parameters[i];
        const berth_gradient gradient = berthi_step_gradient(step, i);
        const berthi_measure_arguments arguments = { .count = p->states.elements,
                                                     .gradient = gradient.values,
                                                     .dtype = gradient.dtype,
                                                     .sums = o->sums + blocks };

        if (gradient.values == NULL)
            continue;
        if (o->devices[p->device].is_host)
            measure_host(step, &arguments);
        else
            status = measure_device(step, p->device, &arguments, error);
        blocks += blocks_of(p->states.elements);
    }
    status = berthi_step_end(step, status, error);
    if (status == BERTH_OK)
        status = await_devices(o, error);
    o->has_late_sums = status != BERTH_OK;
    if (status == BERTH_OK)
        *out = berthi_gradient_total(o->sums, blocks);
    return status;
}

/* ----------------------------------------------------------------------------- adding */

typedef struct adding {
    const berthi_operations *operations;
    berthi_accumulate_arguments arguments;
} adding;

static void
add_share(void *user, uint32_t worker, uint64_t part)
{
    const adding *const a = user;
    const uint64_t first = part * SHARE_ELEMENTS;
    berthi_accumulate_arguments share = a->arguments;

    (void)worker;
    share.count = berthi_min_u64(a->arguments.count - first, SHARE_ELEMENTS);
    share.sum = (float *)a->arguments.sum + first;
    share.gradient = (const uint8_t *)a->arguments.gradient
                     + first * berthi_format_element_bytes(share.dtype);
    a->operations->accumulate(&share);
}

static void
add_host(berthi_step *step, const berthi_trained_tensor *p,
         const berthi_accumulate_arguments *arguments)
{
    const uint64_t parts = berthi_divide_up(arguments->count, SHARE_ELEMENTS);
    adding a = { .operations = &step->optimizer->operations, .arguments = *arguments };

    if (!p->has_sum)
        memset(p->sum, 0, arguments->count * sizeof *p->sum);
    berthi_values_run(berthi_step_threads(step, parts), parts, add_share, &a);
}

static berth_status
add_device(const berth_optimizer *o, const berthi_trained_tensor *p,
           const berthi_accumulate_arguments *arguments, berthi_stream *stream,
           berth_error *error)
{
    berthi_device *const d = o->devices[p->device].device;
    const berthi_request request = { .operation = BERTHI_OPERATION_ACCUMULATE,
                                     .arguments.accumulate = *arguments };
    berth_status status = BERTH_OK;

    if (!p->has_sum)
        status = d->table->clear(d, p->sum, arguments->count * sizeof *p->sum, stream,
                                 error);
    return status == BERTH_OK ? d->table->launch(d, &request, stream, error) : status;
}

static berth_status
add(berthi_step *step, uint64_t parameter, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    berthi_trained_tensor *const p = &o->parameters[parameter];
    const berthi_accumulate_arguments arguments = {
        .count = p->states.elements,
        .sum = p->sum,
        .sum_dtype = BERTH_F32,
        .dtype = step->gradients[parameter].dtype,
        .gradient = step->gradients[parameter].values,
        .scale = 1.0f,
    };
    berth_status status = BERTH_OK;

    if (o->devices[p->device].is_host)
        add_host(step, p, &arguments);
    else
        status = add_device(o, p, &arguments, berthi_step_stream(step, p->device), error);
    if (status == BERTH_OK)
        p->has_sum = true;
    return status;
}

static berth_status
add_all(berthi_step *step, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < step->optimizer->parameter_count && status == BERTH_OK; i++)
        if (step->gradients[i].values != NULL)
            status = add(step, i, error);
    return berthi_step_end(step, status, error);
}

void
berthi_optimizer_forget_sums(berth_optimizer *o)
{
    for (uint64_t i = 0; i < o->parameter_count; i++)
        o->parameters[i].has_sum = false;
}

void
berthi_step_forget_sums(berthi_step *step)
{
    if (step->gradients == NULL)
        berthi_optimizer_forget_sums(step->optimizer);
}

berth_status
berth_optimizer_accumulate(berth_optimizer *optimizer, const berth_gradient *gradients,
                           void *const *streams, berth_error *error)
{
    berthi_step step = { .optimizer = optimizer, .gradients = gradients, .streams = streams };
    berth_status status;
    fenv_t mode;

    berthi_error_clear(error);
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (gradients == NULL)
        return berthi_fail_argument(error, "gradients", "is NULL");
    if (!optimizer->accumulates)
        return berthi_fail_argument(error, "accumulates",
                                    "was not set when the optimizer was made");
    status = berthi_step_check(&step, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_step_follow(&step, error);
    berthi_float_mode_begin(&mode);
    if (status == BERTH_OK)
        status = add_all(&step, error);
    berthi_float_mode_end(&mode);
    if (status != BERTH_OK) /* some may have been added: a second try would add them again */
        berthi_optimizer_forget_sums(optimizer);
    return status;
}
