/* SPDX-License-Identifier: Apache-2.0 */
/* tuned.c - see tuned.h. */
#include "tests/tuned.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/fixture.h"

/* Emily Dickinson: "Tell all the truth but tell it slant" */
const uint32_t tuned_text[TUNED_TOKENS + 1] = {
    'T', 'e', 'l', 'l', ' ', 'a', 'l', 'l', ' ', 't', 'h', 'e', ' ', 't', 'r', 'u', 't', 'h',
    ' ', 'b', 'u', 't', ' ', 't', 'e', 'l', 'l', ' ', 'i', 't', ' ', 's', 'l', 'a', 'n', 't',
};

static void
check(berth_status status, const berth_error *error)
{
    if (status == BERTH_OK)
        return;
    fprintf(stderr, "tuned: %s\n", error->message);
    exit(1);
}

static void *
allocate(uint64_t count, uint64_t bytes)
{
    void *const memory = calloc(count + 1, bytes);

    if (memory == NULL)
        check(BERTH_ENOMEM, &(berth_error){ .message = "out of memory" });
    return memory;
}

/* -------------------------------------------------------------------- the device */

static berthi_device *
device_of(const tuner *t)
{
    return berthi_devices_at(t->devices, 0);
}

static void *
take(const tuner *t)
{
    berthi_device *const device = device_of(t);
    berth_error error;
    void *memory;

    check(device->table->alloc(device, t->model.elements * sizeof(float), &memory, &error),
          &error);
    return memory;
}

static void
give(const tuner *t, void *memory)
{
    berthi_device *const device = device_of(t);

    device->table->free(device, memory, t->model.elements * sizeof(float));
}

/* All adapters or their gradients, on the first stream; done when this returns. */
static void
copy(const tuner *t, int32_t kind, void *to, const void *from)
{
    berthi_device *const device = device_of(t);
    const berthi_copy request = { .kind = kind, .to = to, .from = from,
                                  .bytes = t->model.elements * sizeof(float) };
    berthi_event *event;
    berth_error error;

    check(device->table->event_create(device, &event, &error), &error);
    check(device->table->copy(device, &request, NULL, &error), &error);
    check(device->table->record(device, event, NULL, &error), &error);
    check(device->table->await(device, event, UINT64_MAX, &error), &error);
    device->table->event_destroy(device, event);
}

/* ------------------------------------------------------------------- the optimizer */

static void
create_optimizer(tuner *t, const tuned_setup *setup)
{
    const adapted *const m = &t->model;
    float *const values = t->values != NULL ? t->values : m->learned;
    float *const slopes = t->slopes != NULL ? t->slopes : m->gradients;
    berth_parameter *const parameters = allocate(m->parameter_count, sizeof *parameters);
    berth_optimizer_options options;
    berth_optimizer_group group;
    berth_error error;

    berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW);
    group.bits = setup->bits;
    group.least_8bit = 1;
    group.place = setup->place;
    for (uint32_t i = 0; i < m->parameter_count; i++) {
        parameters[i] = (berth_parameter){ .name = m->parameters[i].name,
                                           .shape = m->parameters[i].shape,
                                           .rank = 2,
                                           .dtype = BERTH_F32,
                                           .values = values + m->parameters[i].first };
        t->gradients[i] = (berth_gradient){ .values = slopes + m->parameters[i].first,
                                            .dtype = BERTH_F32 };
    }
    berth_optimizer_options_init(&options);
    options.devices = t->devices;
    options.states_dir = setup->states_dir;
    options.threads = 2;
    options.page_elements = 4096; /* the larger adapters have two */
    check(berth_optimizer_create(m->context, &group, 1, parameters, m->parameter_count,
                                 &options, &t->optimizer, &error),
          &error);
    free(parameters);
}

void
tuner_open(tuner *t, berth_context *context, const tuned_setup *setup)
{
    berth_error error;

    memset(t, 0, sizeof *t);
    adapt_open(&t->model, context, setup->base, TUNED_RANK, TUNED_ALPHA, TUNED_TOKENS + 1,
               setup->seed);
    t->gradients = allocate(t->model.parameter_count, sizeof *t->gradients);
    if (setup->devices != NULL) {
        check(berth_devices_open(context, setup->devices, &t->devices, &error), &error);
        t->values = take(t);
        t->slopes = take(t);
        copy(t, BERTHI_COPY_TO_DEVICE, t->values, t->model.learned);
    }
    create_optimizer(t, setup);
}

void
tuner_close(tuner *t)
{
    berth_optimizer_destroy(t->optimizer);
    if (t->devices != NULL) {
        give(t, t->values);
        give(t, t->slopes);
        berth_devices_close(t->devices);
    }
    free(t->gradients);
    adapt_close(&t->model);
    memset(t, 0, sizeof *t);
}

double
tuner_measure(tuner *t)
{
    const double loss = adapt_loss(&t->model, tuned_text, TUNED_TOKENS);

    adapt_backward(&t->model, TUNED_TOKENS);
    return loss;
}

void
tuner_update(tuner *t)
{
    berth_step_options options;
    berth_step_report report;
    berth_error error;

    if (t->devices != NULL)
        copy(t, BERTHI_COPY_TO_DEVICE, t->slopes, t->model.gradients);
    berth_step_options_init(&options);
    options.report = &report;
    check(berth_optimizer_step(t->optimizer, t->gradients, &options, &error), &error);
    if (report.updated != t->model.parameter_count || report.non_finite > 0)
        check(BERTH_EINVAL, &(berth_error){ .message = "not every adapter was updated" });
    if (t->devices != NULL)
        copy(t, BERTHI_COPY_TO_HOST, t->model.learned, t->values);
}

/* -------------------------------------------------------------------- an interruption */

static const char *
states_file(const char *folder)
{
    return fixture_format("%s/states.safetensors", folder);
}

void
tuner_save(const tuner *t, const char *folder, const char *base)
{
    berth_error error;

    fixture_make_folder(folder);
    adapt_write(&t->model, fixture_format("%s/adapter", folder), base);
    check(berth_optimizer_save(t->optimizer, states_file(folder), 1, &error), &error);
}

void
tuner_resume(tuner *t, const char *folder)
{
    berth_error error;

    adapt_read(&t->model, fixture_format("%s/adapter", folder));
    if (t->devices != NULL)
        copy(t, BERTHI_COPY_TO_DEVICE, t->values, t->model.learned);
    check(berth_optimizer_load(t->optimizer, states_file(folder), &error), &error);
}

/* ------------------------------------------------------------------------- a run */

void
tuned_run(tuned *out, berth_context *context, const tuned_setup *setup, uint32_t steps,
            const char *folder)
{
    berth_error error = { .message = "no state" };
    tuner t;

    tuner_open(&t, context, setup);
    *out = (tuned){ .steps = steps,
                      .elements = t.model.elements,
                      .parameter_count = t.model.parameter_count };
    out->losses = allocate(steps + 1, sizeof *out->losses);
    out->learned = allocate(out->elements, sizeof *out->learned);
    out->states = allocate(out->parameter_count, sizeof *out->states);
    for (uint32_t step = 0; step < steps; step++) {
        out->losses[step] = tuner_measure(&t);
        tuner_update(&t);
    }
    out->losses[steps] = tuner_measure(&t);
    memcpy(out->learned, t.model.learned, out->elements * sizeof *out->learned);
    check(berth_optimizer_get_memory(t.optimizer, BERTH_NO_INDEX, &out->memory), &error);
    for (uint32_t i = 0; i < out->parameter_count; i++) {
        check(berth_optimizer_get(t.optimizer, i, &out->states[i]), &error);
        out->states[i].name = NULL; /* the optimizer's */
    }
    if (folder != NULL)
        adapt_write(&t.model, folder, setup->base);
    tuner_close(&t);
}

void
tuned_free(tuned *run)
{
    free(run->losses);
    free(run->learned);
    free(run->states);
    memset(run, 0, sizeof *run);
}

double
tuned_distance(const tuned *a, const tuned *b)
{
    double largest = 0;

    for (uint32_t i = 0; i <= a->steps; i++)
        largest = fmax(largest, fabs(a->losses[i] - b->losses[i]));
    return largest;
}
