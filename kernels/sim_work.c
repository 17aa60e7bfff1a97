/* SPDX-License-Identifier: Apache-2.0 */
/* sim_work.c - what work touches, and how long it takes; see sim.h. */
#include "kernels/operands.h"
#include "kernels/sim.h"

#define NS_OF_SECOND 1e9

/* ---------------------------------------------------------------------- regions */

static void
add_region(berthi_sim_regions *list, const berthi_sim_region *region)
{
    if (region->bytes > 0)
        list->items[list->count++] = *region;
}

static bool
can_list_operands(const berthi_request *request, berthi_sim_regions *list)
{
    berthi_operands operands;
    const bool can_list = berthi_operands_can_list(request, &operands);

    for (uint32_t i = 0; i < operands.count; i++)
        list->items[list->count++] = (berthi_sim_region){
            .memory = operands.items[i].memory,
            .bytes = operands.items[i].bytes,
            .slot = operands.items[i].slot,
            .is_read = operands.items[i].is_read,
            .is_written = operands.items[i].is_written,
        };
    return can_list;
}

static void
list_copy(const berthi_copy *copy, berthi_sim_regions *list)
{
    const berthi_sim_region to = { .memory = copy->to,
                                   .bytes = copy->bytes,
                                   .is_written = true,
                                   .is_of_peer = copy->kind == BERTHI_COPY_TO_PEER };
    const berthi_sim_region from = { .memory = (void *)(uintptr_t)copy->from,
                                     .bytes = copy->bytes,
                                     .is_read = true };

    if (copy->kind != BERTHI_COPY_TO_HOST)
        add_region(list, &to);
    if (copy->kind != BERTHI_COPY_TO_DEVICE)
        add_region(list, &from);
}

bool
berthi_sim_work_can_list(const berthi_sim_item *item, berthi_sim_regions *out)
{
    const berthi_sim_region cleared = { .memory = item->work.clear.memory,
                                        .bytes = item->work.clear.bytes,
                                        .is_written = true };

    out->count = 0;
    if (item->kind == BERTHI_SIM_COPY)
        list_copy(&item->work.copy, out);
    if (item->kind == BERTHI_SIM_CLEAR)
        add_region(out, &cleared);
    return item->kind != BERTHI_SIM_LAUNCH || can_list_operands(&item->work.request, out);
}

static bool
is_of_experts(const berthi_sim_item *item)
{
    return item->kind == BERTHI_SIM_LAUNCH
           && (item->work.request.operation == BERTHI_OPERATION_EXPERTS_NF4
               || item->work.request.operation == BERTHI_OPERATION_EXPERTS_FP4);
}

berthi_sim_device *
berthi_sim_peer_of(const berthi_sim_item *item)
{
    return item->kind == BERTHI_SIM_COPY && item->work.copy.kind == BERTHI_COPY_TO_PEER
               ? (berthi_sim_device *)item->work.copy.peer
               : NULL;
}

bool
berthi_sim_reaches(const berthi_sim_device *device, const berthi_sim_device *other)
{
    return device != other && device->words.rate_to_peer > 0 && other->words.rate_to_peer > 0;
}

/* ---------------------------------------------------------------------- refusals */

static const char *
refuse_region(const berthi_sim_device *device, const berthi_sim_region *region,
              berth_reason *reason)
{
    const berthi_sim_allocation *const a =
        berthi_sim_memory_find(&device->memory, region->memory, region->bytes);

    if (a == NULL)
        return "lies outside of memory that is allocated";
    if (region->is_read
        && !berthi_sim_allocation_has_bytes(a, region->memory, region->bytes)) {
        *reason = BERTH_REASON_UNSUPPORTED;
        return "reads memory of which digests are kept, not bytes";
    }
    return NULL;
}

/* One that is lost gets nothing: its memory may have been given back. */
static const char *
refuse_peer(const berthi_sim_device *peer, const berthi_sim_region *region,
            berth_reason *reason)
{
    return peer->reason == BERTH_REASON_NONE ? refuse_region(peer, region, reason) : NULL;
}

/* The host's side of a copy. */
static const char *
refuse_host(const berthi_sim_device *device, const berthi_copy *copy)
{
    const void *const host =
        copy->kind == BERTHI_COPY_TO_DEVICE ? copy->from : copy->to;

    if (copy->kind == BERTHI_COPY_WITHIN || copy->kind == BERTHI_COPY_TO_PEER
        || !copy->is_pinned)
        return NULL;
    return berthi_sim_memory_is_pinned(&device->memory, host, copy->bytes)
               ? NULL
               : "is said to be pinned, and is not";
}

const char *
berthi_sim_work_refusal(const berthi_sim_device *device, const berthi_sim_item *item,
                        berth_reason *reason)
{
    const berthi_sim_device *const peer = berthi_sim_peer_of(item);
    berthi_sim_regions regions;
    const char *problem = NULL;

    *reason = BERTH_REASON_INTERNAL;
    if (!berthi_sim_work_can_list(item, &regions))
        return "has sizes that no memory has";
    if (is_of_experts(item) && device->memory.keeps_digests) {
        *reason = BERTH_REASON_UNSUPPORTED;
        return "reads weights wherever they lie, and digests may be kept of them";
    }
    if (peer != NULL && !berthi_sim_reaches(device, peer))
        return "is for a device that this one does not reach";
    for (uint32_t i = 0; i < regions.count && problem == NULL; i++)
        problem = regions.items[i].is_of_peer
                      ? refuse_peer(peer, &regions.items[i], reason)
                      : refuse_region(device, &regions.items[i], reason);
    if (problem == NULL && item->kind == BERTHI_SIM_COPY)
        problem = refuse_host(device, &item->work.copy);
    return problem;
}

/* ---------------------------------------------------------------------- duration */

static double
touched_bytes(const berthi_sim_item *item)
{
    berthi_sim_regions regions;
    berthi_operands operands;
    double bytes = 0;

    if (item->kind == BERTHI_SIM_LAUNCH) {
        (void)berthi_operands_can_list(&item->work.request, &operands);
        return berthi_operands_moved(&operands);
    }
    (void)berthi_sim_work_can_list(item, &regions);
    for (uint32_t i = 0; i < regions.count; i++)
        bytes += (double)regions.items[i].bytes;
    return bytes;
}

/* A copy that is not pinned goes through a buffer of the driver, at half the rate. */
static double
link_ns(const berthi_sim_device *device, const berthi_copy *copy, uint64_t rate)
{
    const double passes = copy->is_pinned ? 1 : 2;

    return (double)device->words.latency_ns
           + passes * (double)copy->bytes * NS_OF_SECOND / (double)rate;
}

/* The slower of the two. */
static double
peer_ns(const berthi_sim_device *device, const berthi_sim_item *item)
{
    const uint64_t rate = berthi_min_u64(device->words.rate_to_peer,
                                         berthi_sim_peer_of(item)->words.rate_to_peer);

    return (double)device->words.latency_ns
           + (double)item->work.copy.bytes * NS_OF_SECOND / (double)rate;
}

void
berthi_sim_work_measure(berthi_sim_device *device, berthi_sim_item *item)
{
    const berthi_sim_device_words *const words = &device->words;
    double ns;

    item->engine = BERTHI_SIM_COMPUTE;
    if (berthi_sim_peer_of(item) != NULL) {
        item->engine = BERTHI_SIM_TO_PEER;
        ns = peer_ns(device, item);
    } else if (item->kind == BERTHI_SIM_COPY
               && item->work.copy.kind != BERTHI_COPY_WITHIN) {
        const bool is_to_device = item->work.copy.kind == BERTHI_COPY_TO_DEVICE;

        item->engine = is_to_device ? BERTHI_SIM_TO_DEVICE : BERTHI_SIM_TO_HOST;
        ns = link_ns(device, &item->work.copy,
                     is_to_device ? words->rate_to_device : words->rate_to_host);
    } else if (item->kind == BERTHI_SIM_LAUNCH
               && item->work.request.operation == BERTHI_OPERATION_CALL) {
        ns = item->work.request.arguments.call.seconds * NS_OF_SECOND;
    } else {
        ns = touched_bytes(item) * NS_OF_SECOND / (double)words->rate_memory;
        if (item->kind == BERTHI_SIM_LAUNCH && !item->is_joined)
            ns += (double)words->operation_ns;
    }
    if (words->jitter > 0)
        ns += ns * (words->jitter / 100.0)
              * ((double)(berthi_sim_random(device->sim) >> 11) * 0x1p-53);
    item->duration_ns = ns < (double)(UINT64_C(1) << 62) ? (uint64_t)(ns + 0.5)
                                                         : UINT64_C(1) << 62;
}
