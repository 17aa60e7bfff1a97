/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_hand.c - what a worker of a load has in its hands: memory of its own, copies that it has
 * asked for, and the wait for these.
 */
#include <string.h>

#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/load_job.h"
#include "loader/stage.h"

/* ------------------------------------------------------------------------- memory */

/* Decoded values, and behind them columns. */
static bool
alloc_own(berthi_load *load, berthi_load_hand *hand)
{
    const uint64_t values = berthi_round_up(load->values_max, BERTHI_STAGE_ALIGNMENT);
    const uint64_t bytes = values + load->gathered_max;

    if (bytes == 0)
        return true;
    if (!berthi_load_memory_take(load, bytes, load->model->devices != NULL, &hand->own))
        return false;
    hand->values = hand->own.at;
    hand->gathered = hand->own.at + values;
    return true;
}

static void
free_hand(berthi_load *load, berthi_load_hand *hand)
{
    const uint32_t tiers = load->model->tier_count;

    for (uint32_t t = 0; hand->events != NULL && t < tiers; t++)
        if (hand->events[t] != NULL) {
            berthi_device *const device = load->model->tiers[t].device;

            device->table->event_destroy(device, hand->events[t]);
        }
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, hand->events,
                       tiers * sizeof *hand->events);
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, hand->is_used,
                       tiers * sizeof *hand->is_used);
    berthi_load_memory_give(load, &hand->own);
    berthi_load_memory_give(load, &hand->turned);
    berthi_memory_free_aligned(load->context, BERTHI_PURPOSE_SCRATCH, hand->packed,
                               load->packed_max, BERTHI_SLAB_ALIGNMENT);
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, hand, sizeof *hand);
}

void
berthi_load_free_hands(berthi_load *load)
{
    berthi_load_hand **at = &load->hands;

    while (*at != NULL) {
        berthi_load_hand *const hand = *at;

        if (load->is_hung && hand->is_copied) {
            at = &hand->next;
            continue;
        }
        *at = hand->next;
        free_hand(load, hand);
    }
}

static berth_status
create_events(berthi_load *load, berthi_load_hand *hand, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < load->model->tier_count && status == BERTH_OK; t++) {
        berthi_device *const device = load->model->tiers[t].device;

        if (load->tiers[t].stream != NULL)
            status = device->table->event_create(device, &hand->events[t], error);
    }
    return status;
}

/* True when there is as much of it as any piece needs: none of 0 bytes. */
static bool
alloc_packed(const berthi_load *load, berthi_load_hand *hand)
{
    if (load->packed_max == 0)
        return true;
    hand->packed = berthi_memory_aligned(load->context, BERTHI_PURPOSE_SCRATCH,
                                         load->packed_max, BERTHI_SLAB_ALIGNMENT);
    return hand->packed != NULL;
}

static berth_status
create_hand(berthi_load *load, berthi_load_hand **out, berth_error *error)
{
    const uint32_t tiers = load->model->tier_count;
    berthi_load_hand *const hand =
        berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH, sizeof *hand);
    berth_status status;

    if (hand == NULL)
        return berthi_fail_memory(error, "placing a tensor");
    hand->events = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH,
                                        tiers * sizeof *hand->events);
    hand->is_used = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH,
                                         tiers * sizeof *hand->is_used);
    if (!alloc_own(load, hand) || !alloc_packed(load, hand) || hand->events == NULL
        || hand->is_used == NULL)
        status = berthi_fail_memory(error, "placing a tensor");
    else
        status = create_events(load, hand, error);
    if (status == BERTH_OK)
        *out = hand;
    else
        free_hand(load, hand);
    return status;
}

berth_status
berthi_load_hand_take(berthi_load *load, berthi_load_hand **out, berth_error *error)
{
    berthi_load_hand **at = &load->hands;

    pthread_mutex_lock(&load->lock);
    while (*at != NULL && (*at)->is_copied)
        at = &(*at)->next;
    *out = *at;
    if (*out != NULL)
        *at = (*out)->next;
    pthread_mutex_unlock(&load->lock);
    return *out != NULL ? BERTH_OK : create_hand(load, out, error);
}

void
berthi_load_hand_give(berthi_load *load, berthi_load_hand *hand)
{
    pthread_mutex_lock(&load->lock);
    hand->next = load->hands;
    load->hands = hand;
    pthread_mutex_unlock(&load->lock);
}

/* ------------------------------------------------------------------------- copies */

static void
copy_in_host(berthi_load *load, uint32_t tier, void *to, const uint8_t *bytes,
             uint64_t size)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    berthi_pages_expect(&load->tiers[tier].pages, to, size, size);
    memcpy(to, bytes, size);
    berthi_load_count_since(&load->tiers[tier].copy_ns, begin_ns);
}

static berth_status
ask_for(berthi_load *load, berthi_load_hand *hand, uint32_t tier, const berthi_copy *copy,
        berth_error *error)
{
    berthi_device *const device = load->model->tiers[tier].device;
    berthi_load_tier *const lane = &load->tiers[tier];
    berth_status status;

    pthread_mutex_lock(&lane->lock);
    status = device->table->copy(device, copy, lane->stream, error);
    pthread_mutex_unlock(&lane->lock);
    hand->is_used[tier] = true;
    return status;
}

/* Asks for the copy that is pending. */
static berth_status
flush(berthi_load *load, berthi_load_hand *hand, berth_error *error)
{
    const berthi_copy copy = hand->pending;

    if (copy.bytes == 0)
        return BERTH_OK;
    hand->pending.bytes = 0;
    return ask_for(load, hand, hand->pending_tier, &copy, error);
}

/* Neighbours in the file are often neighbours in the slab: one copy for both. */
static berth_status
copy_to_device(berthi_load *load, berthi_load_hand *hand, uint32_t tier, void *to,
               const uint8_t *bytes, uint64_t size, berth_error *error)
{
    berthi_copy *const pending = &hand->pending;
    berth_status status;

    if (pending->bytes > 0 && hand->pending_tier == tier
        && (const uint8_t *)pending->from + pending->bytes == bytes
        && (uint8_t *)pending->to + pending->bytes == to) {
        pending->bytes += size;
        return BERTH_OK;
    }
    status = flush(load, hand, error);
    hand->pending_tier = tier;
    *pending = (berthi_copy){.kind = BERTHI_COPY_TO_DEVICE,
                             .is_pinned = !atomic_load(&load->has_unpinned),
                             .to = to,
                             .from = bytes,
                             .bytes = size,
                             .layer = hand->layer};
    return status;
}

berth_status
berthi_load_hand_put(berthi_load *load, berthi_load_hand *hand, uint32_t tier, void *to,
                     const uint8_t *bytes, uint64_t size, berth_error *error)
{
    if (load->tiers[tier].stream != NULL)
        return copy_to_device(load, hand, tier, to, bytes, size, error);
    copy_in_host(load, tier, to, bytes, size);
    return BERTH_OK;
}

/* It has no neighbours: not pending. */
berth_status
berthi_load_hand_put_own(berthi_load *load, berthi_load_hand *hand, uint32_t tier,
                         berthi_copy copy, berth_error *error)
{
    if (load->tiers[tier].stream == NULL) {
        copy_in_host(load, tier, copy.to, copy.from, copy.bytes);
        return BERTH_OK;
    }
    copy.kind = BERTHI_COPY_TO_DEVICE;
    copy.layer = hand->layer;
    hand->is_copied |= copy.is_pinned;
    return ask_for(load, hand, tier, &copy, error);
}

/* ------------------------------------------------------------------------ waiting */

static berth_status
fail_wait(const berthi_load *load, const berthi_load_hand *hand, uint32_t tier,
          berth_error *error)
{
    const berthi_about about = berthi_load_about(load, hand->berth);

    return berthi_model_fail_copies(load->model, load->model->tiers[tier].device, &about,
                                    error);
}

static void
begin_wait(berthi_load *load, berthi_load_tier *lane)
{
    pthread_mutex_lock(&load->lock);
    if (lane->waiting++ == 0)
        lane->moved_ns = berthi_sys_now_ns();
    pthread_mutex_unlock(&load->lock);
}

static void
end_wait(berthi_load *load, berthi_load_tier *lane, berth_status status)
{
    pthread_mutex_lock(&load->lock);
    lane->waiting--;
    if (status == BERTH_OK)
        lane->moved_ns = berthi_sys_now_ns();
    lane->is_late |= status == BERTH_PENDING;
    pthread_mutex_unlock(&load->lock);
}

/*
 * When it is too late for a lane to move: the same for all that wait for it, else one that
 * began to wait later would keep a load which has failed. Whoever gives up is less patient.
 */
static uint64_t
late_ns(berthi_load *load, const berthi_load_tier *lane)
{
    uint64_t wait_ns = load->model->wait_ns;
    uint64_t late;

    pthread_mutex_lock(&load->lock);
    if (load->is_stopped || load->failure != BERTH_OK || berthi_job_is_cancelled(load->job))
        wait_ns = berthi_patience(load->context, wait_ns);
    late = berthi_add_capped(lane->moved_ns, wait_ns);
    pthread_mutex_unlock(&load->lock);
    return late;
}

/* Looks up every few seconds, for then the load may have been given up. */
static berth_status
await_event(berthi_load *load, uint32_t t, berthi_event *event, berth_error *error)
{
    berthi_device *const device = load->model->tiers[t].device;
    berth_status status;

    do {
        const uint64_t late = late_ns(load, &load->tiers[t]);

        status = device->table->await(
            device, event,
            berthi_min_u64(late, berthi_sys_now_ns() + load->context->hung_ns), error);
    } while (status == BERTH_PENDING
             && berthi_sys_now_ns() < late_ns(load, &load->tiers[t]));
    return status;
}

/* Waits for what the tier's stream was asked for until now. */
static berth_status
await_tier(berthi_load *load, berthi_load_hand *hand, uint32_t t, berth_error *error)
{
    berthi_device *const device = load->model->tiers[t].device;
    const uint64_t begin_ns = berthi_trace_begin(load->context);
    berthi_load_tier *const lane = &load->tiers[t];
    const uint64_t wait_ns = berthi_sys_now_ns();
    berth_status status;

    begin_wait(load, lane);
    status = device->table->record(device, hand->events[t], lane->stream, error);
    if (status == BERTH_OK)
        status = await_event(load, t, hand->events[t], error);
    end_wait(load, lane, status);
    berthi_load_count_since(&lane->copy_ns, wait_ns);
    berthi_trace_end(load->context, BERTH_TRACE_WAIT, "worker", begin_ns, 0,
                     BERTHI_TRACE_NOTHING);
    if (status != BERTH_OK)
        atomic_store(&load->is_unsettled, true);
    return status == BERTH_PENDING ? fail_wait(load, hand, t, error) : status;
}

/*
 * Before its worker waits for what it has asked for: that is not to be the first failure, nor
 * to be waited for as if nothing had failed.
 */
static void
note_failure(berthi_load *load, berth_status status, const berth_error *error)
{
    pthread_mutex_lock(&load->lock);
    if (!load->is_stopped && load->failure == BERTH_OK) {
        load->failure = status;
        load->error = *error;
    }
    pthread_mutex_unlock(&load->lock);
}

berth_status
berthi_load_hand_settle(berthi_load *load, berthi_load_hand *hand, berth_status status,
                        berth_error *error)
{
    if (status == BERTH_OK)
        status = flush(load, hand, error);
    hand->pending.bytes = 0;
    for (uint32_t t = 0; t < load->model->tier_count; t++) {
        berth_error later;
        berth_status result;

        if (!hand->is_used[t] || hand->events[t] == NULL)
            continue;
        if (status != BERTH_OK)
            note_failure(load, status, error);
        hand->is_used[t] = false;
        result = await_tier(load, hand, t, status == BERTH_OK ? error : &later);
        if (status == BERTH_OK)
            status = result;
    }
    hand->is_copied = hand->is_copied && status != BERTH_OK;
    return status;
}

berth_status
berthi_load_hand_empty(berthi_load *load, berthi_load_hand *hand, berth_error *error)
{
    return hand->is_copied ? berthi_load_hand_settle(load, hand, BERTH_OK, error) : BERTH_OK;
}
