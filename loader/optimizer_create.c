/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_create.c - an optimizer planned, made and looked at. */
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/optimizer.h"
#include "loader/stranded.h"

#define ARENA_BYTES (UINT64_C(16) << 10)

_Static_assert(BERTHI_STATES_MAX >= BERTHI_UPDATE_STATES,
               "pages have room for what updates keep");

/* -------------------------------------------------------------------------- sizes */

/* What does not depend on whether anything is there yet. */
static void
add_parameters(const berth_optimizer *o, uint32_t device, berth_optimizer_memory *out)
{
    for (uint64_t i = 0; i < o->parameter_count; i++) {
        const berthi_trained_tensor *const p = &o->parameters[i];

        if (device != BERTH_NO_INDEX && p->device != device)
            continue;
        out->states[p->place] += berthi_optimizer_bytes(o, p, p->place);
        out->gradients += p->owns_sum ? berthi_sum_parts(p).bytes : 0;
        out->parameters++;
        out->elements += p->states.elements;
        out->elements_8bit += p->states.bits == 8 ? p->states.elements : 0;
    }
    for (uint32_t i = 0; i < o->device_count; i++)
        if (device == BERTH_NO_INDEX || device == i)
            out->scratch += berthi_optimizer_scratch_bytes(o, i);
}

/* Bytes of the largest page that visits the device; BERTH_NO_INDEX: that comes from the disk. */
static uint64_t
largest_page(const berth_optimizer *o, uint32_t device)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        const berthi_trained_tensor *const p = &o->parameters[i];
        const bool is_meant =
            device == BERTH_NO_INDEX
                ? p->place == BERTH_STATES_DISK
                : p->device == device && p->place != BERTH_STATES_DEVICE;

        if (is_meant)
            bytes = berthi_max_u64(bytes, berthi_states_page_bytes(&p->states));
    }
    return bytes;
}

static void
add_planned(const berth_optimizer *o, uint32_t device, berth_optimizer_memory *out)
{
    for (uint32_t i = 0; i < o->device_count; i++)
        if ((device == BERTH_NO_INDEX || device == i) && !o->devices[i].is_host)
            out->slots += o->slots * berthi_pager_slot_bytes(largest_page(o, i));
    out->staging =
        BERTHI_STATES_BUFFERS * berthi_disk_buffer_bytes(largest_page(o, BERTH_NO_INDEX));
}

berth_status
berth_optimizer_get_memory(const berth_optimizer *optimizer, uint32_t device,
                           berth_optimizer_memory *out)
{
    memset(out, 0, sizeof *out);
    if (optimizer == NULL
        || (device != BERTH_NO_INDEX && device >= optimizer->device_count))
        return BERTH_EINVAL;
    add_parameters(optimizer, device, out);
    for (uint32_t i = 0; i < optimizer->device_count; i++) {
        const berthi_pager *const pager = &optimizer->devices[i].pager;

        if (device == BERTH_NO_INDEX || device == i)
            out->slots += pager->slot_count * pager->slot_bytes;
    }
    out->staging = BERTHI_STATES_BUFFERS * optimizer->disk.buffer_bytes;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- describing */

static berth_status
list_devices(berth_optimizer *o, berth_devices *devices, berth_error *error)
{
    const uint32_t count = devices != NULL ? berthi_devices_count(devices) : 1;

    o->devices = berthi_memory_zalloc(o->context, BERTHI_PURPOSE_OBJECT,
                                      count * sizeof *o->devices);
    if (o->devices == NULL)
        return berthi_fail_memory(error, "an optimizer's devices");
    o->device_count = count;
    for (uint32_t i = 0; i < count; i++) {
        berthi_optimizer_device *const d = &o->devices[i];
        berthi_device_properties properties;

        d->device = devices != NULL ? berthi_devices_at(devices, i) : o->host;
        d->device->table->describe(d->device, &properties);
        d->is_host = properties.is_host;
        snprintf(d->name, sizeof d->name, "%s", properties.name);
    }
    return BERTH_OK;
}

static berth_status
take_options(berth_optimizer *o, const berth_optimizer_options *options, berth_error *error)
{
    if (options->slots > BERTHI_SLOTS_MAX)
        return berthi_fail_argument(error, "slots", "are too many: 16 at most");
    o->slots = options->slots != 0 ? options->slots : BERTHI_STATES_SLOTS;
    o->threads = options->threads;
    o->accumulates = options->accumulates != 0;
    o->wait_ns = berthi_wait_ns(options->wait_ms);
    if (options->page_elements % BERTHI_GRADIENT_BLOCK != 0
        || options->page_elements > BERTHI_STATES_PAGE_MAX)
        return berthi_fail_argument(error, "page_elements",
                                    "is no multiple of 4096, or more than 2^28");
    o->page_elements =
        options->page_elements != 0 ? options->page_elements : BERTHI_STATES_PAGE;
    if (options->states_dir != NULL) {
        o->disk.folder = berthi_arena_text(&o->arena, options->states_dir,
                                           strlen(options->states_dir));
        if (o->disk.folder == NULL)
            return berthi_fail_memory(error, "an optimizer");
    }
    return BERTH_OK;
}

/* What is asked for. */
typedef struct request {
    const berth_optimizer_group *groups;
    uint32_t group_count;
    const berth_parameter *parameters;
    uint64_t parameter_count;
    const berth_optimizer_options *options;
    bool has_values;
} request;

/* What one adds to that of all, wherever it lies. Below 2^64 no sum of some of it wraps around. */
static bool
can_count(const berth_optimizer *o, const berthi_trained_tensor *p, uint64_t *bytes)
{
    return berthi_can_add(*bytes, berthi_optimizer_bytes(o, p, p->place), bytes)
           && berthi_can_add(*bytes, p->owns_sum ? berthi_sum_parts(p).bytes : 0, bytes);
}

static berth_status
describe(berth_optimizer *o, const request *r, berth_error *error)
{
    berth_optimizer_options mine;
    uint64_t bytes = 0;
    berth_status status = BERTH_OK;

    berth_optimizer_options_init(&mine);
    if (r->options != NULL)
        status = berthi_options_take(&mine, sizeof mine,
                                     offsetof(berth_optimizer_options, reserved),
                                     r->options, "options", error);
    if (status == BERTH_OK)
        status = berthi_options_check((uint32_t)mine.reserved32, "options", error);
    if (status == BERTH_OK)
        status = take_options(o, &mine, error);
    if (status == BERTH_OK)
        status = berthi_device_cpu_open(o->context, &o->host, error);
    if (status == BERTH_OK)
        status = list_devices(o, mine.devices, error);
    if (status == BERTH_OK && r->has_values) /* it is made */
        status = berthi_devices_visit(mine.devices, o->context, error);
    if (status == BERTH_OK)
        status = berthi_optimizer_take_groups(o, r->groups, r->group_count, error);
    if (status == BERTH_OK)
        status = berthi_optimizer_take_parameters(o, r->parameters, r->parameter_count,
                                                  r->has_values, error);
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++) {
        berthi_trained_tensor *const p = &o->parameters[i];

        o->devices[p->device].has_parameters = true;
        p->owns_sum = o->accumulates && p->sum == NULL;
        if (berthi_optimizer_bytes(o, p, p->place) == UINT64_MAX)
            status = berthi_optimizer_fail(p, error, "is too large");
        else if (!can_count(o, p, &bytes))
            status = berthi_optimizer_fail(p, error,
                                           "takes more than 2^64 bytes, with those before it");
        else if (p->place == BERTH_STATES_DISK && o->disk.folder == NULL)
            status = berthi_fail_argument(error, "states_dir",
                                          "is NULL, and states are to be on the disk");
    }
    return status;
}

static berth_status
begin(berth_context *context, const request *r, berth_optimizer **out, berth_error *error)
{
    berth_optimizer *o;
    berth_status status;

    *out = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    o = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *o);
    if (o == NULL)
        return berthi_fail_memory(error, "an optimizer");
    o->context = context;
    o->operations = berthi_level_operations(context->level);
    o->disk.fd = -1;
    berthi_arena_init(&o->arena, context, BERTHI_PURPOSE_OBJECT, ARENA_BYTES);
    status = describe(o, r, error);
    if (status == BERTH_OK)
        *out = o;
    else
        berth_optimizer_destroy(o);
    return status;
}

berth_status
berth_optimizer_plan(berth_context *context, const berth_optimizer_group *groups,
                     uint32_t group_count, const berth_parameter *parameters,
                     uint64_t parameter_count, const berth_optimizer_options *options,
                     uint32_t device, berth_optimizer_memory *out, berth_error *error)
{
    const request r = { .groups = groups,
                        .group_count = group_count,
                        .parameters = parameters,
                        .parameter_count = parameter_count,
                        .options = options };
    berth_optimizer *o;
    berth_status status;

    berthi_error_clear(error);
    if (out == NULL)
        return berthi_fail_argument(error, "out", "is NULL");
    memset(out, 0, sizeof *out);
    status = begin(context, &r, &o, error);
    if (status != BERTH_OK)
        return status;
    if (device != BERTH_NO_INDEX && device >= o->device_count) {
        status = berthi_fail_number(error, "device", device, o->device_count);
    } else {
        add_parameters(o, device, out);
        add_planned(o, device, out);
    }
    berth_optimizer_destroy(o);
    return status;
}

/* --------------------------------------------------------------------------- making */

static berth_status
check_device(const berthi_optimizer_device *d, berth_error *error)
{
    berthi_device_properties properties;

    if (d->device->table->has_operation(d->device, BERTHI_OPERATION_UPDATE))
        return BERTH_OK;
    d->device->table->describe(d->device, &properties);
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "device %s (%s) cannot update parameters", d->name,
                       properties.description);
}

static berth_status
prepare_device(berth_optimizer *o, uint32_t number, berth_error *error)
{
    berthi_optimizer_device *const d = &o->devices[number];
    const berthi_slab_parts parts = berthi_scratch_parts(o, number);
    void *memory = NULL;
    berth_status status = d->device->table->event_create(d->device, &d->done, error);

    if (status != BERTH_OK || parts.bytes == 0)
        return status;
    status = check_device(d, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_optimizer_take(o, number, &parts, &memory, error);
    d->scratch = memory;
    if (status != BERTH_OK)
        return status;
    d->not_finite = memory;
    d->sums = (berthi_gradient_sum *)(void *)(d->scratch + BERTHI_STATES_COUNTER);
    return BERTH_OK;
}

static berth_status
alloc_sum(berth_optimizer *o, berthi_trained_tensor *p, berth_error *error)
{
    const berthi_slab_parts parts = berthi_sum_parts(p);
    void *memory = NULL;
    berth_status status;

    if (!p->owns_sum)
        return BERTH_OK;
    status = berthi_optimizer_take(o, p->device, &parts, &memory, error);
    p->sum = memory;
    return status;
}

/* Masters begin as the parameters are. */
static berth_status
make_masters(berth_optimizer *o, berth_error *error)
{
    uint64_t bytes = 0;
    uint8_t *room;
    berth_status status;

    for (uint64_t i = 0; i < o->parameter_count; i++)
        if (o->parameters[i].states.has_master)
            bytes = berthi_max_u64(bytes, berthi_optimizer_master_bytes(&o->parameters[i]));
    if (bytes == 0)
        return BERTH_OK;
    status = berthi_optimizer_open_room(o, bytes, true, "f32 copies of values", &room, error);
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++)
        if (o->parameters[i].states.has_master)
            status = berthi_optimizer_copy_master(o, &o->parameters[i], room, error);
    berthi_optimizer_close_room(o);
    return status;
}

static berth_status
make_states(berth_optimizer *o, berth_error *error)
{
    uint64_t disk = 0;
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < o->parameter_count; i++)
        if (o->parameters[i].place == BERTH_STATES_DISK)
            disk = berthi_add_capped(
                disk, berthi_optimizer_bytes(o, &o->parameters[i], BERTH_STATES_DISK));
    if (disk > 0)
        status = berthi_disk_grow(o, disk, error);
    for (uint64_t i = 0; i < o->parameter_count && status == BERTH_OK; i++) {
        berthi_trained_tensor *const p = &o->parameters[i];

        status = berthi_optimizer_alloc(o, p, error);
        if (status == BERTH_OK)
            status = alloc_sum(o, p, error);
    }
    return status == BERTH_OK ? make_masters(o, error) : status;
}

/* Slots of the largest page at once: they would be made anew for each larger one. */
static berth_status
make_slots(berth_optimizer *o, berth_error *error)
{
    const uint64_t disk = largest_page(o, BERTH_NO_INDEX);
    berth_status status = BERTH_OK;

    if (disk > 0)
        status = berthi_disk_prepare(o, disk, error);
    for (uint32_t i = 0; i < o->device_count && status == BERTH_OK; i++) {
        const uint64_t page = largest_page(o, i);

        if (page > 0 && !o->devices[i].is_host)
            status = berthi_pager_open(o, i, berthi_pager_slot_bytes(page), o->slots, error);
    }
    return status;
}

berth_status
berth_optimizer_create(berth_context *context, const berth_optimizer_group *groups,
                       uint32_t group_count, const berth_parameter *parameters,
                       uint64_t parameter_count, const berth_optimizer_options *options,
                       berth_optimizer **out_optimizer, berth_error *error)
{
    const request r = { .groups = groups,
                        .group_count = group_count,
                        .parameters = parameters,
                        .parameter_count = parameter_count,
                        .options = options,
                        .has_values = true };
    berth_optimizer *o;
    berth_status status;

    berthi_error_clear(error);
    if (out_optimizer == NULL)
        return berthi_fail_argument(error, "out_optimizer", "is NULL");
    *out_optimizer = NULL;
    status = begin(context, &r, &o, error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < o->device_count && status == BERTH_OK; i++)
        status = prepare_device(o, i, error);
    if (status == BERTH_OK)
        status = make_slots(o, error);
    if (status == BERTH_OK)
        status = make_states(o, error);
    if (status == BERTH_OK)
        *out_optimizer = o;
    else
        berth_optimizer_destroy(o);
    return status;
}

/* --------------------------------------------------------------------------- looking */

berth_status
berth_optimizer_get(const berth_optimizer *optimizer, uint64_t parameter,
                    berth_parameter_state *out)
{
    const berthi_trained_tensor *p;

    memset(out, 0, sizeof *out);
    if (optimizer == NULL || parameter >= optimizer->parameter_count)
        return BERTH_EINVAL;
    p = &optimizer->parameters[parameter];
    out->name = p->name;
    out->elements = p->states.elements;
    out->step = p->step;
    out->bytes = berthi_states_bytes(&p->states);
    out->kind = optimizer->groups[p->group].kind;
    out->bits = p->states.bits;
    out->place = p->place;
    out->has_master = p->states.has_master;
    out->states = p->states.count;
    out->device = p->device;
    return BERTH_OK;
}
