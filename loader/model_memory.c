/* SPDX-License-Identifier: Apache-2.0 */
/* model_memory.c - memory of slabs: of the device, or from the caller's hooks. */
#include <inttypes.h>

#include "kernels/sys.h"
#include "loader/model.h"

static uint64_t
alignment_of(uint32_t number)
{
    return number == BERTHI_NO_DEVICE ? berthi_sys_page_bytes() : BERTHI_SLAB_ALIGNMENT;
}

static berthi_device *
device_of(const berth_model *model, uint32_t number)
{
    return number == BERTHI_NO_DEVICE ? model->host
                                      : berthi_devices_at(model->devices, number);
}

static berth_status
fail_refused(uint32_t number, uint64_t bytes, berth_error *error)
{
    const berthi_about about = { .has = BERTH_HAS_EXPECTED | BERTH_HAS_BYTES,
                                 .expected = bytes };

    if (number == BERTHI_NO_DEVICE)
        return berthi_fail(error, BERTH_REASON_NO_MEMORY, &about,
                           "the caller has no host memory for a slab");
    return berthi_fail(error, BERTH_REASON_NO_FIT, &about,
                       "the caller has no memory of device %" PRIu32 " for a slab", number);
}

static berth_status
ask_for(const berth_model *model, uint32_t number, uint64_t bytes, const char *purpose,
        void **out, berth_error *error)
{
    const berth_slab_memory *const hooks = &model->memory;
    const uint64_t alignment = alignment_of(number);
    berthi_device *const device = device_of(model, number);

    *out = NULL;
    if (hooks->alloc == NULL)
        return device->table->alloc(device, bytes, out, error);
    *out = hooks->alloc(hooks->user, number, bytes, alignment, purpose);
    if (*out == NULL)
        return fail_refused(number, bytes, error);
    if ((uintptr_t)*out % alignment == 0)
        return BERTH_OK;
    hooks->free(hooks->user, number, *out, bytes, alignment, purpose);
    *out = NULL;
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL,
                       "the caller's memory for a slab does not begin at a multiple of "
                       "%" PRIu64,
                       alignment);
}

berth_status
berthi_model_alloc(berth_model *model, uint32_t number, uint64_t bytes,
                   const char *purpose, void **out, berth_error *error)
{
    const berth_status status = ask_for(model, number, bytes, purpose, out, error);

    if (status == BERTH_OK)
        atomic_fetch_add(&model->bytes, bytes);
    return status;
}

static bool
has_device_hung(const berth_model *model)
{
    const uint32_t count = model->devices != NULL ? berthi_devices_count(model->devices) : 0;
    bool has_hung = false;

    for (uint32_t i = 0; i < count && !has_hung; i++)
        has_hung = berthi_device_has_hung(berthi_devices_at(model->devices, i));
    return has_hung;
}

/*
 * What hangs may use the hooks' memory for good: that of a device, and what is pinned for one, by
 * the caller, or by berth, which has noted it.
 */
static bool
is_left(const berth_model *model, uint32_t number, const void *memory, uint64_t bytes)
{
    if (number != BERTHI_NO_DEVICE)
        return berthi_device_has_hung(device_of(model, number));
    return model->memory.is_pinned != 0
               ? has_device_hung(model)
               : berthi_memory_is_abandoned(model->context, memory, bytes);
}

void
berthi_model_dealloc(berth_model *model, uint32_t number, void *memory,
                     uint64_t bytes, const char *purpose)
{
    const berth_slab_memory *const hooks = &model->memory;
    berthi_device *const device = device_of(model, number);

    atomic_fetch_sub(&model->bytes, bytes);
    if (hooks->alloc == NULL)
        device->table->free(device, memory, bytes);
    else if (!is_left(model, number, memory, bytes))
        hooks->free(hooks->user, number, memory, bytes, alignment_of(number), purpose);
}

void
berthi_model_unpin_host(const berth_model *model, void *memory, uint64_t bytes)
{
    if (model->memory.is_pinned == 0)
        berthi_model_unpin(model, memory, bytes);
}
