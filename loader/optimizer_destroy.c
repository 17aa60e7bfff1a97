/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_destroy.c - an optimizer is given back: at once, or by the context when a device
 * that hangs has come back, or is lost.
 */
#include <string.h>

#include "kernels/sys.h"
#include "loader/optimizer.h"
#include "loader/stranded.h"

/* -------------------------------------------------------------------------- giving back */

static void
free_parameters(berth_optimizer *o)
{
    for (uint64_t i = 0; i < o->parameter_count; i++) {
        berthi_trained_tensor *const p = &o->parameters[i];
        const berthi_slab_parts parts = berthi_sum_parts(p);

        berthi_optimizer_free(o, p);
        if (p->owns_sum)
            berthi_optimizer_give(o, p->device, &parts, p->sum);
    }
    berthi_memory_free(o->context, BERTHI_PURPOSE_OBJECT, o->by_name,
                       o->parameter_count * sizeof *o->by_name);
    berthi_memory_free(o->context, BERTHI_PURPOSE_OBJECT, o->parameters,
                       o->parameter_count * sizeof *o->parameters);
}

static void
close_devices(berth_optimizer *o)
{
    for (uint32_t i = 0; i < o->device_count; i++) {
        berthi_optimizer_device *const d = &o->devices[i];
        const berthi_slab_parts parts = berthi_scratch_parts(o, i);

        berthi_optimizer_give(o, i, &parts, d->scratch);
        if (d->done != NULL)
            d->device->table->event_destroy(d->device, d->done);
    }
    berthi_memory_free(o->context, BERTHI_PURPOSE_OBJECT, o->devices,
                       o->device_count * sizeof *o->devices);
}

/* Nothing of it is under way. */
static void
give_back(berth_optimizer *o)
{
    berth_context *const context = o->context;

    for (uint32_t i = 0; i < o->device_count; i++) {
        berthi_optimizer_give_late(o, i);
        berthi_pager_close(o, i);
    }
    berthi_optimizer_free_rooms(o);
    berthi_optimizer_free_sums(o);
    berthi_disk_close(o);
    free_parameters(o);
    close_devices(o);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, o->groups,
                       o->group_count * sizeof *o->groups);
    berthi_arena_fini(&o->arena);
    berthi_device_cpu_close(o->host);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, o, sizeof *o);
}

/* ------------------------------------------------------------------------ what hangs */

#define ENDS 3u

/*
 * The ends of what its last step has asked for: of the caller's stream, of its own ones, which
 * a step that failed half way has not noted.
 */
static uint32_t
list_ends(const berth_optimizer *o, uint32_t device, berthi_stream_end *out)
{
    const berthi_optimizer_device *const d = &o->devices[device];
    uint32_t count = 0;

    if (d->done != NULL)
        out[count++] = (berthi_stream_end){ d->device, NULL, d->done, true };
    if (d->pager.idle != NULL)
        out[count++] =
            (berthi_stream_end){ d->device, d->pager.out, d->pager.idle, !o->is_torn };
    if (d->pager.brought != NULL && o->is_torn)
        out[count++] =
            (berthi_stream_end){ d->device, d->pager.in, d->pager.brought, false };
    return count;
}

/* `done` has passed, and is to stand for the first stream instead. False: there is no need. */
static bool
can_begin_anew(berthi_optimizer_device *d)
{
    berth_error ignored;

    if (!d->is_behind)
        return false;
    d->is_behind = false;
    return d->device->table->record(d->device, d->done, NULL, &ignored) == BERTH_OK;
}

/* Nobody knows when it is over; one that is lost does nothing any more. */
static bool
is_out_of_sight(const berthi_optimizer_device *d)
{
    bool is_past;
    berth_error error;

    return d->is_unknown
           && (d->device->table->query(d->device, d->done, &is_past, &error) == BERTH_OK
               || error.reason != BERTH_REASON_DEVICE_LOST);
}

static bool
is_late(const berth_optimizer *o, uint32_t device, uint64_t deadline_ns)
{
    berthi_stream_end ends[ENDS];
    const uint32_t count = list_ends(o, device, ends);
    bool is_late = is_out_of_sight(&o->devices[device]);

    for (uint32_t k = 0; k < count && !is_late; k++)
        is_late = berthi_stream_hangs(&ends[k], deadline_ns);
    return is_late;
}

static bool
hangs(berth_optimizer *o)
{
    const uint64_t deadline =
        berthi_add_capped(berthi_sys_now_ns(), berthi_patience(o->context, o->wait_ns));
    bool hangs = false;

    for (uint32_t i = 0; i < o->device_count && !hangs; i++)
        hangs = is_late(o, i, deadline)
                || (can_begin_anew(&o->devices[i]) && is_late(o, i, deadline));
    return hangs;
}

static bool
is_over(const berth_optimizer *o, uint32_t device)
{
    berthi_stream_end ends[ENDS];
    const uint32_t count = list_ends(o, device, ends);
    bool is_over = !is_out_of_sight(&o->devices[device]);

    for (uint32_t k = 0; k < count && is_over; k++)
        is_over = berthi_stream_is_over(&ends[k]);
    return is_over;
}

static bool
try_end(berthi_kept *kept)
{
    berth_optimizer *const o = (berth_optimizer *)kept;

    for (uint32_t i = 0; i < o->device_count; i++)
        if (!is_over(o, i) || (can_begin_anew(&o->devices[i]) && !is_over(o, i)))
            return false;
    give_back(o);
    return true;
}

/* ------------------------------------------------------------------------- interface */

void
berth_optimizer_destroy(berth_optimizer *optimizer)
{
    if (optimizer == NULL)
        return;
    if (!hangs(optimizer)) {
        give_back(optimizer);
        return;
    }
    optimizer->kept.try_end = try_end;
    berthi_context_keep(optimizer->context, &optimizer->kept);
}
