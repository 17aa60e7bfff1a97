/* SPDX-License-Identifier: Apache-2.0 */
/* trained.c - an optimizer, and a second opinion on its states; see trained.h. */
#include "tests/trained.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core_optimizer.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "placement/states.h"
#include "tests/random.h"
#include "tests/t.h"
#include "tests/vacant.h"

uint64_t
trained_random(trained *t, uint64_t below)
{
    return random_next(&t->random) % below;
}

static uint64_t
value_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

berth_optimizer_group
trained_group(int32_t kind, int32_t bits, int32_t place)
{
    berth_optimizer_group g;

    CHECK_EQ(berth_optimizer_group_init(&g, kind), BERTH_OK);
    g.bits = bits;
    g.place = place;
    g.least_8bit = 1000;
    g.rate = 1e-2f;
    g.decay = 1e-2f;
    return g;
}

const trained_parameter trained_three[3] = {
    { 100000, BERTH_BF16, BERTH_BF16, 0, 0 },
    { 70001, BERTH_F32, BERTH_BF16, 0, 0 },
    { 500, BERTH_F32, BERTH_F32, 0, 0 },
};

berth_optimizer_group
trained_adamw(void)
{
    berth_optimizer_group g;

    CHECK_EQ(berth_optimizer_group_init(&g, BERTH_UPDATE_ADAMW), BERTH_OK);
    return g;
}

berth_optimizer_group
trained_group_at(int32_t place)
{
    berth_optimizer_group g = trained_adamw();

    g.place = place;
    g.has_master = 1;
    return g;
}

berth_optimizer_options
trained_optimizer(const char *folder)
{
    berth_optimizer_options options;

    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.page_elements = 16384;
    options.accumulates = 1;
    return options;
}

/* ------------------------------------------------------------------ memory of devices */

static berthi_device *
device_of(const trained *t, uint32_t parameter)
{
    return t->devices != NULL ? berthi_devices_at(t->devices, t->parameters[parameter].device)
                              : NULL;
}

static void *
take(berthi_device *device, uint64_t bytes)
{
    void *memory = NULL;

    if (device == NULL)
        return malloc(bytes);
    CHECK_EQ(device->table->alloc(device, bytes, &memory, NULL), BERTH_OK);
    return memory;
}

static void
give(berthi_device *device, void *memory, uint64_t bytes)
{
    if (device == NULL)
        free(memory);
    else if (memory != NULL)
        device->table->free(device, memory, bytes);
}

static void
copy(berthi_device *device, int32_t kind, void *to, const void *from, uint64_t bytes)
{
    const berthi_copy c = { .kind = kind, .to = to, .from = from, .bytes = bytes };
    berthi_event *event = NULL;

    if (device == NULL) {
        memcpy(to, from, bytes);
        return;
    }
    CHECK_EQ(device->table->event_create(device, &event, NULL), BERTH_OK);
    CHECK_EQ(device->table->copy(device, &c, NULL, NULL), BERTH_OK);
    CHECK_EQ(device->table->record(device, event, NULL, NULL), BERTH_OK);
    CHECK_EQ(device->table->await(device, event, UINT64_MAX, NULL), BERTH_OK);
    device->table->event_destroy(device, event);
}

/* -------------------------------------------------------------------------- opening */

void
trained_list(const trained *t, berth_parameter *out)
{
    for (uint32_t i = 0; i < t->count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].name = t->twins[i].name;
        out[i].shape = &t->parameters[i].count;
        out[i].rank = 1;
        out[i].dtype = t->parameters[i].dtype;
        out[i].values = t->twins[i].values;
        out[i].sum = t->twins[i].sum;
        out[i].device = t->parameters[i].device;
        out[i].group = t->parameters[i].group;
    }
}

static bool
is_8bit(const trained *t, uint32_t i)
{
    const berth_optimizer_group *const g = &t->groups[t->parameters[i].group];

    return g->bits == 8 && t->parameters[i].count >= g->least_8bit;
}

static uint32_t
state_count(const trained *t, uint32_t i)
{
    return berthi_update_states(
        (berthi_update_kind)t->groups[t->parameters[i].group].kind);
}

/* Zero states; values that fit half precision. */
static void
make_twin(trained *t, uint32_t i)
{
    const trained_parameter *const p = &t->parameters[i];
    trained_twin *const twin = &t->twins[i];
    const uint64_t blocks = p->count / 256 + 1;

    snprintf(twin->name, sizeof twin->name, "layer.%u.weight", (unsigned)i);
    twin->expected = malloc(p->count * value_bytes(p->dtype));
    twin->host_gradient = malloc(p->count * value_bytes(p->gradient_dtype));
    for (uint64_t k = 0; k < p->count; k++)
        berthi_core_store(twin->expected, p->dtype, k,
                          (float)trained_random(t, 4001) * 0.001f - 2.0f);
    if (t->groups[p->group].has_master && p->dtype != BERTH_F32) {
        twin->master = malloc(p->count * sizeof(float));
        for (uint64_t k = 0; k < p->count; k++)
            twin->master[k] = berthi_core_load(twin->expected, p->dtype, k);
    }
    for (uint32_t k = 0; k < state_count(t, i); k++) {
        if (is_8bit(t, i)) {
            twin->state[k].codes = calloc(p->count, 1);
            twin->state[k].absmax = calloc(blocks, sizeof(float));
        } else {
            twin->state[k].values = calloc(p->count, sizeof(float));
        }
    }
    twin->values = take(device_of(t, i), p->count * value_bytes(p->dtype));
    twin->gradient = take(device_of(t, i), p->count * value_bytes(p->gradient_dtype));
    copy(device_of(t, i), BERTHI_COPY_TO_DEVICE, twin->values, twin->expected,
         p->count * value_bytes(p->dtype));
}

static void
make_sum(trained *t, uint32_t i)
{
    const uint64_t bytes = t->parameters[i].count * sizeof(float);
    void *const junk = malloc(bytes);

    memset(junk, 0x47, bytes); /* 5e4 each */
    t->twins[i].sum = take(device_of(t, i), bytes);
    copy(device_of(t, i), BERTHI_COPY_TO_DEVICE, t->twins[i].sum, junk, bytes);
    free(junk);
}

static bool
can_open_devices(trained *t, const trained_options *options)
{
    if (options->cuda != NULL)
        return CHECK_EQ(berthi_devices_open_cuda(t->context, options->cuda, options->devices,
                                                 &t->devices, NULL),
                        BERTH_OK);
    return CHECK_EQ(berth_devices_open(t->context, options->devices, &t->devices, NULL),
                    BERTH_OK);
}

bool
trained_open(trained *t, berth_context *context, const trained_options *options)
{
    berth_parameter parameters[TRAINED_MAX];
    berth_optimizer_options mine;

    memset(t, 0, sizeof *t);
    t->context = context;
    t->random = options->seed * 2 + 88172645463325252u;
    t->count = options->count;
    memcpy(t->groups, options->groups, options->group_count * sizeof *t->groups);
    memcpy(t->parameters, options->parameters, options->count * sizeof *t->parameters);
    berth_optimizer_options_init(&mine);
    if (options->optimizer != NULL)
        mine = *options->optimizer;
    if (options->devices != NULL && !can_open_devices(t, options))
        return false;
    for (uint32_t i = 0; i < t->count; i++)
        make_twin(t, i);
    for (uint32_t i = 0; i < t->count && options->has_sums; i++)
        make_sum(t, i);
    mine.devices = t->devices;
    trained_list(t, parameters);
    return CHECK_EQ(berth_optimizer_create(context, t->groups, options->group_count,
                                           parameters, t->count, &mine, &t->optimizer, NULL),
                    BERTH_OK);
}

bool
trained_open_at(trained *t, berth_context *context, const char *folder, const char *machine,
                int32_t place)
{
    const berth_optimizer_group g = trained_group_at(place);
    const berth_optimizer_options options = trained_optimizer(folder);

    return trained_open(t, context,
                        &(trained_options){ .devices = machine,
                                            .groups = &g,
                                            .group_count = 1,
                                            .parameters = trained_three,
                                            .count = 3,
                                            .optimizer = &options });
}

void
trained_close(trained *t)
{
    berth_optimizer_destroy(t->optimizer);
    for (uint32_t i = 0; i < t->count; i++) {
        const trained_parameter *const p = &t->parameters[i];
        trained_twin *const twin = &t->twins[i];

        give(device_of(t, i), twin->values, p->count * value_bytes(p->dtype));
        give(device_of(t, i), twin->gradient, p->count * value_bytes(p->gradient_dtype));
        give(device_of(t, i), twin->sum, p->count * sizeof *twin->sum);
        free(twin->expected);
        free(twin->host_gradient);
        free(twin->master);
        for (uint32_t k = 0; k < 3; k++) {
            free(twin->state[k].values);
            free(twin->state[k].codes);
            free(twin->state[k].absmax);
        }
    }
    vacant_close(t->devices);
}

/* ---------------------------------------------------------------------------- steps */

static bool
is_in(uint32_t mask, uint32_t i)
{
    return mask >> i & 1u;
}

static float
draw(trained *t, bool has_odd_ones)
{
    const uint64_t kind = has_odd_ones ? trained_random(t, 64) : 63;

    if (kind == 0)
        return NAN;
    if (kind == 1)
        return -INFINITY;
    if (kind < 8)
        return 0.0f;
    return ((float)trained_random(t, 20001) - 10000.0f) * 1e-4f;
}

void
trained_draw(trained *t, uint32_t mask, bool has_odd_ones)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const trained_parameter *const p = &t->parameters[i];

        if (!is_in(mask, i))
            continue;
        for (uint64_t k = 0; k < p->count; k++)
            berthi_core_store(t->twins[i].host_gradient, p->gradient_dtype, k,
                              draw(t, has_odd_ones));
        copy(device_of(t, i), BERTHI_COPY_TO_DEVICE, t->twins[i].gradient,
             t->twins[i].host_gradient, p->count * value_bytes(p->gradient_dtype));
    }
}

void
trained_gradients(const trained *t, uint32_t mask, berth_gradient *out)
{
    for (uint32_t i = 0; i < t->count; i++)
        out[i] = (berth_gradient){ .values = is_in(mask, i) ? t->twins[i].gradient : NULL,
                                   .dtype = t->parameters[i].gradient_dtype };
}

static berthi_update_settings
settings_of(const berth_optimizer_group *g, float scale)
{
    return (berthi_update_settings){ .kind = g->kind,
                                     .is_coupled = g->is_coupled != 0,
                                     .rate = g->rate,
                                     .beta1 = g->beta1,
                                     .beta2 = g->beta2,
                                     .epsilon = g->epsilon,
                                     .decay = g->decay,
                                     .scale = scale,
                                     .beta3 = g->beta3,
                                     .alpha = g->alpha,
                                     .beta3_steps = g->beta3_steps,
                                     .alpha_steps = g->alpha_steps };
}

void
trained_expect(trained *t, uint32_t mask, float scale)
{
    /* Those of every level have the bits of the plain loops, and are ten times as fast. */
    const berthi_operations operations = berthi_level_operations(t->context->level);

    t->not_finite = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const trained_parameter *const p = &t->parameters[i];
        trained_twin *const twin = &t->twins[i];
        const berthi_update_settings s = settings_of(&t->groups[p->group], scale);
        const berthi_update_arguments a = {
            .count = p->count,
            .parameter = twin->expected,
            .dtype = p->dtype,
            .gradient_dtype = p->gradient_dtype,
            .gradient = twin->host_gradient,
            .master = twin->master,
            .state = { twin->state[0], twin->state[1], twin->state[2] },
        };
        berthi_update_constants c;

        if (!is_in(mask, i))
            continue;
        c = berthi_update_constants_of(&s, ++twin->step);
        t->not_finite += operations.update(&a, &c);
    }
}

void
trained_step(trained *t, uint32_t mask, bool has_odd_ones)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_error error;

    trained_draw(t, mask, has_odd_ones);
    trained_gradients(t, mask, gradients);
    if (!CHECK_EQ(berth_optimizer_step(t->optimizer, gradients, NULL, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    trained_expect(t, mask, 1.0f);
}

void
trained_put_values(const trained *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        copy(device_of(t, i), BERTHI_COPY_TO_DEVICE, t->twins[i].values, t->twins[i].expected,
             t->parameters[i].count * value_bytes(t->parameters[i].dtype));
}

/* -------------------------------------------------------------------------- checking */

void
trained_read_sum(const trained *t, uint32_t i, float *out)
{
    copy(device_of(t, i), BERTHI_COPY_TO_HOST, out, t->twins[i].sum,
         t->parameters[i].count * sizeof *out);
}

static void
check_state(trained *t, uint32_t i, uint32_t k)
{
    const trained_parameter *const p = &t->parameters[i];
    const berthi_update_state *const state = &t->twins[i].state[k];
    float *const actual = malloc(p->count * sizeof *actual);
    const uint32_t *const map =
        berthi_update_is_signed(k) ? berthi_signed_map : berthi_unsigned_map;
    float *expected = state->values;

    CHECK_EQ(berth_optimizer_read(t->optimizer, i, k, 0, p->count, actual, NULL), BERTH_OK);
    if (expected == NULL) {
        expected = malloc(p->count * sizeof *expected);
        for (uint64_t n = 0; n < p->count; n++)
            expected[n] = berthi_core_state_value(map, state->codes[n],
                                                  state->absmax[n / 256]);
    }
    CHECK_MEM(actual, expected, p->count * sizeof *actual);
    if (expected != state->values)
        free(expected);
    free(actual);
}

void
trained_check(trained *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const uint64_t bytes = t->parameters[i].count * value_bytes(t->parameters[i].dtype);
        berth_parameter_state state;
        uint8_t *actual;

        for (uint32_t k = 0; k < state_count(t, i); k++)
            check_state(t, i, k);
        actual = malloc(bytes);
        copy(device_of(t, i), BERTHI_COPY_TO_HOST, actual, t->twins[i].values, bytes);
        CHECK_MEM(actual, t->twins[i].expected, bytes);
        free(actual);
        CHECK_EQ(berth_optimizer_get(t->optimizer, i, &state), BERTH_OK);
        CHECK_EQ(state.device, t->parameters[i].device);
        CHECK_EQ(state.step, t->twins[i].step);
    }
}
