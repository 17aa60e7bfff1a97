/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - parameters and groups, as callers give them: checked and listed. */
#include "loader/optimizer.h"
#include "kernels/number.h"
#include "kernels/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------- groups */

/* The table of kinds is berth.h's. */
_Static_assert((int)BERTHI_UPDATE_ADAM == (int)BERTH_UPDATE_ADAM
                   && (int)BERTHI_UPDATE_ADAMW == (int)BERTH_UPDATE_ADAMW
                   && (int)BERTHI_UPDATE_LION == (int)BERTH_UPDATE_LION
                   && (int)BERTHI_UPDATE_MOMENTUM == (int)BERTH_UPDATE_MOMENTUM
                   && (int)BERTHI_UPDATE_RMSPROP == (int)BERTH_UPDATE_RMSPROP
                   && (int)BERTHI_UPDATE_ADAGRAD == (int)BERTH_UPDATE_ADAGRAD
                   && (int)BERTHI_UPDATE_ADEMAMIX == (int)BERTH_UPDATE_ADEMAMIX,
               "kinds have the numbers of berth.h");

static bool
is_kind(int32_t kind)
{
    return kind >= 0 && kind < BERTHI_UPDATE_KIND_COUNT;
}

const char *
berth_update_name(int32_t kind)
{
    return is_kind(kind) ? berthi_update_name((berthi_update_kind)kind) : NULL;
}

/* The published defaults. */
static berth_optimizer_group
default_group(berthi_update_kind kind)
{
    const berthi_update_settings defaults = berthi_update_defaults(kind);

    return (berth_optimizer_group){
        .kind = (int32_t)kind,
        .bits = 8,
        .least_8bit = BERTHI_STATES_LEAST_8BIT,
        .is_coupled = defaults.is_coupled,
        .rate = defaults.rate,
        .beta1 = defaults.beta1,
        .beta2 = defaults.beta2,
        .epsilon = defaults.epsilon,
        .decay = defaults.decay,
        .beta3 = defaults.beta3,
        .alpha = defaults.alpha,
    };
}

berth_status
berth_optimizer_group_init_sized(berth_optimizer_group *group, size_t struct_size,
                                 int32_t kind)
{
    berth_optimizer_group mine = { .struct_size = 0 };
    const bool is_known = is_kind(kind);
    berth_status status;

    if (is_known)
        mine = default_group((berthi_update_kind)kind);
    status = berthi_options_give(group, struct_size, &mine, sizeof mine);
    return is_known ? status : BERTH_EINVAL;
}

berthi_update_settings
berthi_group_settings(const berth_optimizer_group *g, float scale)
{
    return (berthi_update_settings){
        .kind = g->kind,
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
        .alpha_steps = g->alpha_steps,
    };
}

static berth_status
fail_group(uint32_t number, const char *what, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "group %" PRIu32 " %s", number,
                       what);
}

/* Comparisons of a NaN that end no process, whatever its thread traps. */
static bool
is_share(float value)
{
    return isgreaterequal(value, 0.0f) && isless(value, 1.0f);
}

static bool
is_from_zero(float value)
{
    return isgreaterequal(value, 0.0f) && !isinf(value);
}

static berth_status
check_group(const berth_optimizer_group *g, uint32_t number, berth_error *error)
{
    if (!is_kind(g->kind))
        return fail_group(number, "has a kind that is no BERTH_UPDATE_...", error);
    if (g->bits != 8 && g->bits != 32)
        return fail_group(number, "has states of other than 8 or 32 bits", error);
    if (g->place < 0 || g->place >= BERTH_STATES_PLACE_COUNT)
        return fail_group(number, "has a place that is none of device, host and disk", error);
    if (!isfinite(g->rate))
        return fail_group(number, "has a rate that is no number", error);
    if (!is_share(g->beta1) || !is_share(g->beta2) || !is_share(g->beta3))
        return fail_group(number, "has a beta that is not in [0, 1)", error);
    if (!is_from_zero(g->epsilon))
        return fail_group(number, "has an epsilon that is no number from 0 on", error);
    if (!is_from_zero(g->decay))
        return fail_group(number, "has a decay that is no number from 0 on", error);
    if (!isfinite(g->alpha))
        return fail_group(number, "has an alpha that is no number", error);
    return BERTH_OK;
}

/*
 * Group `number` of an array; the caller's header says how far apart they lie, and its groups
 * may be longer than ours, or shorter.
 */
static berth_status
take_group(const berth_optimizer_group *groups, uint32_t number, berth_optimizer_group *out,
           berth_error *error)
{
    const uint8_t *given = (const uint8_t *)groups;
    size_t size;
    size_t its_size;
    berth_status status;

    memcpy(&size, given, sizeof size);
    given += number * size;
    memcpy(&its_size, given, sizeof its_size);
    if (its_size != size)
        return fail_group(number, "has another struct_size than the first", error);
    status = berthi_options_take(out, sizeof *out, offsetof(berth_optimizer_group, reserved),
                                 given, "groups", error);
    return status == BERTH_OK ? check_group(out, number, error) : status;
}

berth_status
berthi_optimizer_take_groups(berth_optimizer *o, const berth_optimizer_group *groups,
                             uint32_t count, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (groups == NULL || count == 0)
        return berthi_fail_argument(error, "groups", "has none");
    o->groups = berthi_memory_array(o->context, BERTHI_PURPOSE_OBJECT, count,
                                    sizeof *o->groups);
    if (o->groups == NULL)
        return berthi_fail_memory(error, "an optimizer's groups");
    o->group_count = count;
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = take_group(groups, i, &o->groups[i], error);
    return status;
}

/* ---------------------------------------------------------------------- parameters */

berth_status
berthi_optimizer_fail(const berthi_trained_tensor *p, berth_error *error, const char *what)
{
    const berthi_about about = { .tensor = p->name, .tensor_length = strlen(p->name) };

    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about, "%s", what);
}

/* Elements of a shape, or 0. */
static uint64_t
elements_of(const berth_parameter *given)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < given->rank; i++)
        if (!berthi_can_mul(elements, given->shape[i], &elements))
            return 0;
    return elements <= UINT64_MAX / 64 ? elements : 0;
}

static berth_status
check_parameter(const berth_optimizer *o, const berth_parameter *given,
                const berthi_trained_tensor *p, bool has_values, berth_error *error)
{
    if (berthi_utf8_check((const unsigned char *)p->name, strlen(p->name)) < strlen(p->name))
        return berthi_optimizer_fail(p, error, "has a name that is not UTF-8");
    if (given->rank > BERTH_MAX_RANK || (given->rank > 0 && given->shape == NULL))
        return berthi_optimizer_fail(p, error, "has no shape");
    if (elements_of(given) == 0)
        return berthi_optimizer_fail(p, error, "has no elements, or more than there can be");
    if (!berthi_is_number(given->dtype))
        return berthi_optimizer_fail(p, error, "is not bf16, f16 or f32");
    if (given->group >= o->group_count)
        return berthi_optimizer_fail(p, error, "has a group beyond those given");
    /* Two of its means lie in one tensor of a file, which has a dimension more. */
    if (given->rank == BERTH_MAX_RANK
        && berthi_update_states((berthi_update_kind)o->groups[given->group].kind) == 3)
        return berthi_optimizer_fail(p, error,
                                     "has more dimensions than ademamix can have: 63 at most");
    if (given->device >= o->device_count)
        return berthi_optimizer_fail(p, error, "has a device beyond those given");
    if (has_values && given->values == NULL)
        return berthi_optimizer_fail(p, error, "has no values");
    if ((uintptr_t)given->values % berthi_format_element_bytes(given->dtype) != 0
        || (uintptr_t)given->sum % sizeof(float) != 0)
        return berthi_optimizer_fail(p, error, "is not aligned");
    return BERTH_OK;
}

int32_t
berthi_optimizer_place(const berth_optimizer *o, const berthi_trained_tensor *p, int32_t place)
{
    const bool is_host = o->devices[p->device].is_host;

    return is_host && place == BERTH_STATES_HOST ? BERTH_STATES_DEVICE : place;
}

static void
describe(const berth_optimizer *o, const berth_parameter *given, berthi_trained_tensor *p)
{
    const berth_optimizer_group *const g = &o->groups[given->group];

    p->values = given->values;
    p->sum = given->sum;
    p->file_offset = BERTHI_NOT_ON_DISK;
    p->rank = given->rank;
    p->dtype = given->dtype;
    p->device = given->device;
    p->group = given->group;
    p->states = (berthi_states){
        .elements = elements_of(given),
        .page_elements = o->page_elements,
        .count = berthi_update_states((berthi_update_kind)g->kind),
        .has_master = g->has_master != 0 && given->dtype != BERTH_F32,
    };
    p->states.bits = p->states.elements < g->least_8bit ? 32 : g->bits;
    p->place = p->states.elements < g->least_8bit ? BERTH_STATES_DEVICE : g->place;
    p->place = berthi_optimizer_place(o, p, p->place);
}

static berth_status
take_parameter(berth_optimizer *o, const berth_parameter *given, berthi_trained_tensor *p,
               bool has_values, berth_error *error)
{
    uint64_t *shape;
    berth_status status;

    if (given->name == NULL || given->name[0] == '\0')
        return berthi_fail_argument(error, "parameters", "has one without a name");
    p->name = berthi_arena_text(&o->arena, given->name, strlen(given->name));
    if (p->name == NULL)
        return berthi_fail_memory(error, "an optimizer's parameters");
    status = check_parameter(o, given, p, has_values, error);
    if (status != BERTH_OK)
        return status;
    shape = berthi_arena_alloc(&o->arena, (given->rank + 1) * sizeof *shape, sizeof *shape);
    if (shape == NULL)
        return berthi_fail_memory(error, "an optimizer's parameters");
    if (given->rank > 0)
        memcpy(shape, given->shape, given->rank * sizeof *shape);
    p->shape = shape;
    describe(o, given, p);
    return BERTH_OK;
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp((*(const berthi_trained_tensor *const *)a)->name,
                  (*(const berthi_trained_tensor *const *)b)->name);
}

/* For files, which have them by name. */
static berth_status
sort(berth_optimizer *o, berth_error *error)
{
    o->by_name = berthi_memory_array(o->context, BERTHI_PURPOSE_OBJECT, o->parameter_count,
                                     sizeof *o->by_name);
    if (o->by_name == NULL)
        return berthi_fail_memory(error, "an optimizer's parameters");
    for (uint64_t i = 0; i < o->parameter_count; i++)
        o->by_name[i] = &o->parameters[i];
    qsort(o->by_name, o->parameter_count, sizeof *o->by_name, compare_names);
    for (uint64_t i = 1; i < o->parameter_count; i++)
        if (compare_names(&o->by_name[i - 1], &o->by_name[i]) == 0)
            return berthi_optimizer_fail(o->by_name[i], error,
                                         "is the name of two parameters");
    return BERTH_OK;
}

bool
berthi_optimizer_has_name(const berth_optimizer *o, const char *name)
{
    const berthi_trained_tensor named = { .name = name };
    const berthi_trained_tensor *const key = &named;

    return bsearch(&key, o->by_name, o->parameter_count, sizeof *o->by_name, compare_names)
           != NULL;
}

berth_status
berthi_optimizer_take_parameters(berth_optimizer *o, const berth_parameter *parameters,
                                 uint64_t count, bool has_values, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (parameters == NULL || count == 0)
        return berthi_fail_argument(error, "parameters", "has none");
    o->parameters = berthi_memory_array(o->context, BERTHI_PURPOSE_OBJECT, count,
                                        sizeof *o->parameters);
    if (o->parameters == NULL)
        return berthi_fail_memory(error, "an optimizer's parameters");
    memset(o->parameters, 0, count * sizeof *o->parameters);
    o->parameter_count = count;
    for (uint64_t i = 0; i < count && status == BERTH_OK; i++)
        status = take_parameter(o, &parameters[i], &o->parameters[i], has_values, error);
    return status == BERTH_OK ? sort(o, error) : status;
}

berth_status
berth_optimizer_set_group(berth_optimizer *optimizer, uint32_t number,
                          const berth_optimizer_group *group, berth_error *error)
{
    berth_optimizer_group *old;
    berth_optimizer_group mine;
    berth_status status;

    berthi_error_clear(error);
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (number >= optimizer->group_count)
        return berthi_fail_argument(error, "number", "is that of no group");
    if (group == NULL)
        return berthi_fail_argument(error, "group", "is NULL");
    status = berthi_options_take(&mine, sizeof mine,
                                 offsetof(berth_optimizer_group, reserved), group, "group",
                                 error);
    if (status == BERTH_OK)
        status = check_group(&mine, number, error);
    if (status != BERTH_OK)
        return status;
    old = &optimizer->groups[number];
    if (mine.kind != old->kind || mine.bits != old->bits
        || (mine.has_master != 0) != (old->has_master != 0))
        return fail_group(number, "cannot have another kind, bits or master any more", error);
    mine.least_8bit = old->least_8bit;
    mine.place = old->place;
    *old = mine;
    return BERTH_OK;
}
