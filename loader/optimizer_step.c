/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_step.c - one step: what is measured before, which pages are updated in which
 * order, what is told afterwards.
 */
#include <math.h>
#include <string.h>

#include "kernels/float_mode.h"
#include "kernels/host.h"
#include "kernels/number.h"
#include "loader/optimizer.h"
#include "loader/values.h"

/* What a thread takes of a page at a time: whole blocks. */
#define SHARE_ELEMENTS (UINT64_C(1) << 16)

/* ----------------------------------------------------------------- what it is about */

berth_gradient
berthi_step_gradient(const berthi_step *step, uint64_t parameter)
{
    const berthi_trained_tensor *const p = &step->optimizer->parameters[parameter];

    if (step->gradients != NULL)
        return step->gradients[parameter];
    return (berth_gradient){ .values = p->has_sum ? p->sum : NULL, .dtype = BERTH_F32 };
}

berthi_stream *
berthi_step_stream(const berthi_step *step, uint32_t device)
{
    return step->streams != NULL ? step->streams[device] : NULL;
}

berth_status
berthi_step_follow(const berthi_step *step, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < o->device_count && status == BERTH_OK; i++) {
        berthi_device *const d = o->devices[i].device;

        if (o->devices[i].is_behind || o->devices[i].is_unknown)
            status = berthi_optimizer_settle(o, error);
        if (status == BERTH_OK)
            status = d->table->wait(d, berthi_step_stream(step, i), o->devices[i].done, error);
    }
    return status;
}

/* For the update of a page whose bytes lie at `bytes`, on the parameter's device. */
static berthi_update_arguments
arguments_of(const berthi_step *step, uint64_t parameter,
             const berthi_states_page *page, uint8_t *bytes)
{
    const berthi_trained_tensor *const p = &step->optimizer->parameters[parameter];
    const berth_gradient gradient = berthi_step_gradient(step, parameter);
    berthi_update_arguments a = {
        .count = page->elements,
        .parameter = p->values + page->first * berthi_format_element_bytes(p->dtype),
        .dtype = p->dtype,
        .gradient_dtype = gradient.dtype,
        .gradient = (const uint8_t *)gradient.values
                    + page->first * berthi_format_element_bytes(gradient.dtype),
    };

    if (p->states.has_master)
        a.master = (float *)(void *)(bytes + page->master);
    for (uint32_t k = 0; k < p->states.count; k++) {
        if (p->states.bits == 32) {
            a.state[k].values = (float *)(void *)(bytes + page->values[k]);
            continue;
        }
        a.state[k].codes = bytes + page->codes[k];
        a.state[k].absmax = (float *)(void *)(bytes + page->absmax[k]);
    }
    return a;
}

static berthi_update_constants
constants_of(const berthi_step *step, uint64_t parameter)
{
    const berthi_trained_tensor *const p = &step->optimizer->parameters[parameter];
    const berthi_update_settings settings =
        berthi_group_settings(&step->optimizer->groups[p->group], step->scale);

    return berthi_update_constants_of(&settings, p->step);
}

/* -------------------------------------------------------------------------- the host */

typedef struct host_work {
    berthi_step *step;
    const berthi_operations *operations;
    berthi_update_arguments arguments;
    berthi_update_constants constants;
} host_work;

static void
update_share(void *user, uint32_t worker, uint64_t part)
{
    host_work *const w = user;
    const uint64_t first = part * SHARE_ELEMENTS;
    const berthi_update_arguments share = berthi_update_share(
        &w->arguments, first, berthi_min_u64(w->arguments.count - first, SHARE_ELEMENTS));

    (void)worker;
    atomic_fetch_add(&w->step->not_finite, w->operations->update(&share, &w->constants));
}

/* How many cores there are is in files of the system: they are read once a step. */
uint32_t
berthi_step_threads(berthi_step *step, uint64_t parts)
{
    if (parts <= 1)
        return 1;
    if (step->threads == 0)
        step->threads = step->optimizer->threads != 0 ? step->optimizer->threads
                                                      : berthi_host_worker_count();
    return berthi_values_threads(step->threads, parts);
}

void
berthi_step_update_host(berthi_step *step, uint64_t parameter,
                        const berthi_states_page *page, uint8_t *bytes)
{
    const berth_optimizer *const o = step->optimizer;
    const uint64_t parts = berthi_divide_up(page->elements, SHARE_ELEMENTS);
    host_work w = {
        .step = step,
        .operations = &o->operations,
        .arguments = arguments_of(step, parameter, page, bytes),
        .constants = constants_of(step, parameter),
    };

    berthi_values_run(berthi_step_threads(step, parts), parts, update_share, &w);
}

/* ------------------------------------------------------------------------ a device */

berth_status
berthi_step_launch(berthi_step *step, uint64_t parameter, const berthi_states_page *page,
                   uint8_t *bytes, berth_error *error)
{
    const berth_optimizer *const o = step->optimizer;
    const uint32_t device = o->parameters[parameter].device;
    berthi_device *const d = o->devices[device].device;
    const berthi_request request = {
        .operation = BERTHI_OPERATION_UPDATE,
        .arguments.update = {
            .arguments = arguments_of(step, parameter, page, bytes),
            .constants = constants_of(step, parameter),
            .not_finite = o->devices[device].not_finite,
        },
    };

    return d->table->launch(d, &request, berthi_step_stream(step, device), error);
}

/* --------------------------------------------------------------------------- updates */

static berth_status
update_page(berthi_step *step, uint64_t parameter, uint64_t number, berth_error *error)
{
    const berthi_trained_tensor *const p = &step->optimizer->parameters[parameter];
    const berthi_states_page page = berthi_states_get_page(&p->states, number);
    uint8_t *const bytes = p->memory + page.offset;

    if (step->optimizer->devices[p->device].is_host) {
        berthi_step_update_host(step, parameter, &page, bytes);
        return BERTH_OK;
    }
    if (p->place == BERTH_STATES_DEVICE)
        return berthi_step_launch(step, parameter, &page, bytes, error);
    return berthi_pager_visit(step, parameter, &page, bytes, p->is_pinned, NULL, error);
}

/* Devices are asked first, so that they work while the host does. */
static berth_status
update_memory(berthi_step *step, bool on_host, berth_error *error)
{
    const berth_optimizer *const o = step->optimizer;
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++) {
        const berthi_trained_tensor *const p = &o->parameters[i];
        uint64_t pages = berthi_states_page_count(&p->states);

        if (p->memory == NULL || o->devices[p->device].is_host != on_host
            || berthi_step_gradient(step, i).values == NULL)
            pages = 0;
        for (uint64_t k = 0; k < pages && status == BERTH_OK; k++)
            status = update_page(step, i, k, error);
    }
    return status;
}

/* Those that are due are counted before the first of them is asked for. */
static uint64_t
count_steps(berthi_step *step)
{
    const berth_optimizer *const o = step->optimizer;
    uint64_t due = 0;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        if (berthi_step_gradient(step, i).values == NULL)
            continue;
        o->parameters[i].step++;
        due++;
    }
    return due;
}

/*
 * Where the caller's stream is. Asked once more where that fails, as it does where a driver
 * tells of something else: who does not know of an update does not wait for it either. The
 * device's first stream can be asked later still; one of the caller's may be gone by then.
 */
static berth_status
note_done(const berthi_step *step, uint32_t device, berth_error *error)
{
    berthi_optimizer_device *const d = &step->optimizer->devices[device];
    berthi_stream *const stream = berthi_step_stream(step, device);
    const berth_status status =
        d->device->table->record(d->device, d->done, stream, error);

    if (status == BERTH_OK
        || d->device->table->record(d->device, d->done, stream, NULL) == BERTH_OK)
        return status;
    d->is_behind |= stream == NULL;
    d->is_unknown |= stream != NULL;
    return status;
}

berth_status
berthi_step_end(berthi_step *step, berth_status status, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    berth_status first = status;

    for (uint32_t i = 0; i < o->device_count; i++) {
        status = note_done(step, i, first == BERTH_OK ? error : NULL);
        if (status == BERTH_OK)
            status = berthi_pager_end(step, i, first == BERTH_OK ? error : NULL);
        if (first == BERTH_OK)
            first = status;
    }
    return first;
}

/* Nothing is updated where `*out_updated` stays 0. */
static berth_status
update(berthi_step *step, uint64_t *out_updated, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    berth_status status = berthi_step_follow(step, error);

    for (uint32_t i = 0; i < o->device_count && status == BERTH_OK; i++)
        status = berthi_pager_begin(step, i, error);
    if (status != BERTH_OK)
        return status;
    *out_updated = count_steps(step);
    status = update_memory(step, false, error);
    if (status == BERTH_OK)
        status = update_memory(step, true, error);
    if (status == BERTH_OK)
        status = berthi_disk_step(step, error);
    o->not_finite += atomic_load(&step->not_finite);
    return berthi_step_end(step, status, error);
}

/* ------------------------------------------------------------------------- reporting */

/* What devices have counted, and the host. They have done it. On failure it stays untold. */
static berth_status
read_counts(berthi_step *step, uint64_t *out, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;

    for (uint32_t i = 0; i < o->device_count; i++) {
        berthi_optimizer_device *const d = &o->devices[i];
        berth_status status;
        uint64_t count;

        if (d->not_finite == NULL)
            continue;
        status = berthi_optimizer_fetch_count(o, i, &count, error);
        if (status != BERTH_OK)
            return status;
        o->not_finite += count - d->told;
        d->told = count;
    }
    *out = o->not_finite;
    o->not_finite = 0;
    return BERTH_OK;
}

/* What nobody has told yet, if anybody wants to know. */
static berth_status
tell_counts(berthi_step *step, const berth_step_options *options, berth_step_report *report,
            berth_error *error)
{
    berth_status status;

    if (options->report == NULL)
        return BERTH_OK;
    status = berthi_optimizer_settle(step->optimizer, error);
    return status == BERTH_OK ? read_counts(step, &report->non_finite, error) : status;
}

/* --------------------------------------------------------------------------- the call */

berth_status
berthi_step_check(const berthi_step *step, berth_error *error)
{
    const berth_optimizer *const o = step->optimizer;

    if (step->gradients == NULL)
        return o->accumulates ? BERTH_OK
                              : berthi_fail_argument(error, "gradients",
                                                     "is NULL, and none are added up");
    for (uint64_t i = 0; i < o->parameter_count; i++) {
        const berth_gradient *const g = &step->gradients[i];

        if (g->values == NULL)
            continue;
        if (!berthi_is_number(g->dtype))
            return berthi_optimizer_fail(&o->parameters[i], error,
                                         "has a gradient that is not bf16, f16 or f32");
        if ((uintptr_t)g->values % berthi_format_element_bytes(g->dtype) != 0)
            return berthi_optimizer_fail(&o->parameters[i], error,
                                         "has a gradient that is not aligned");
    }
    return BERTH_OK;
}

static berth_status
check_options(const berth_step_options *options, berth_error *error)
{
    /* A NaN is compared so that it ends no process, whatever its thread traps. */
    if (!isfinite(options->scale) || options->scale == 0)
        return berthi_fail_argument(error, "scale", "is no number to multiply with");
    if (!isgreaterequal(options->max_norm, 0.0f) || isinf(options->max_norm))
        return berthi_fail_argument(error, "max_norm", "is no length");
    return BERTH_OK;
}

/* Norm, clip and whether the step is made at all. */
static berth_status
look(berthi_step *step, const berth_step_options *options, berth_step_report *report,
     berth_error *error)
{
    const bool has_norm = options->max_norm > 0 || options->has_norm != 0;
    berthi_gradient_sum sum;
    berth_status status;

    if (!has_norm && options->skips_non_finite == 0)
        return BERTH_OK;
    status = berthi_step_measure(step, &sum, error);
    if (status != BERTH_OK)
        return status;
    if (has_norm)
        report->norm = sqrt(sum.squares) * fabs((double)options->scale);
    if (options->max_norm > 0 && report->norm > (double)options->max_norm)
        report->clip = (float)((double)options->max_norm / report->norm);
    report->is_skipped = options->skips_non_finite != 0 && sum.not_finite > 0;
    if (report->is_skipped)
        step->optimizer->not_finite += sum.not_finite;
    step->scale = options->scale * report->clip;
    return BERTH_OK;
}

/* Slots that there was no room for when states were moved. */
static berth_status
prepare(berth_optimizer *o, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++)
        status = berthi_optimizer_prepare(o, &o->parameters[i], error);
    return status;
}

static berth_status
make(berthi_step *step, const berth_step_options *options, berth_step_report *report,
     berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    berth_status status = look(step, options, report, error);

    if (status != BERTH_OK)
        return status;
    if (report->is_skipped) {
        berthi_step_forget_sums(step);
        return tell_counts(step, options, report, error);
    }
    status = prepare(o, error);
    if (status != BERTH_OK)
        return status;
    status = update(step, &report->updated, error);
    if (status == BERTH_OK)
        status = tell_counts(step, options, report, error);
    if (status != BERTH_OK && report->updated == 0)
        return status;
    o->step++;
    o->is_torn = status != BERTH_OK;
    berthi_step_forget_sums(step);
    return status;
}

berth_status
berth_optimizer_step(berth_optimizer *optimizer, const berth_gradient *gradients,
                     const berth_step_options *options, berth_error *error)
{
    berthi_step step = { .optimizer = optimizer, .gradients = gradients };
    berth_step_report report = { .norm = NAN, .clip = 1.0f };
    berth_step_options mine;
    berth_status status;
    fenv_t mode;

    berthi_error_clear(error);
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    berth_step_options_init(&mine);
    if (options != NULL) {
        status = berthi_options_take(&mine, sizeof mine,
                                     offsetof(berth_step_options, reserved), options,
                                     "options", error);
        if (status != BERTH_OK)
            return status;
    }
    status = check_options(&mine, error);
    if (status == BERTH_OK)
        status = berthi_step_check(&step, error);
    if (status != BERTH_OK)
        return status;
    if (optimizer->is_torn)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                           "an earlier step or load failed half way: load values and states "
                           "that belong together first");
    step.streams = mine.streams;
    step.scale = mine.scale;
    report.step = optimizer->step + 1;
    berthi_float_mode_begin(&mode);
    status = make(&step, &mine, &report, error);
    berthi_float_mode_end(&mode);
    if (mine.report != NULL)
        *mine.report = report;
    return status;
}
