/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed_courier.c - copies that wait for their device, made by a thread of the line's own.
 *
 * Memory that a device has not pinned is copied by a call of its driver that returns when the
 * device has taken the bytes, which is never where it hangs, and nobody can end that. The feeder
 * is not to be in such a call where other devices stream: each line of a device that has not
 * pinned the ring has a courier then, from its first such copy on.
 *
 *   feeder   send: buffer BUSY, slot written to ──▶ courier   the call
 *   feeder   take: what came of it              ◀──           wakes the feeder
 *
 * A courier has one chunk at a time, and touches neither the ring nor lines: what it is sent
 * stays as it is until the feeder takes it back.
 */
#include "kernels/sys.h"
#include "loader/lease_feed.h"

#define STACK_BYTES (256u * 1024u)

static void *
run(void *argument)
{
    berthi_courier *const c = argument;

    pthread_mutex_lock(&c->lock);
    while (c->is_asked || !c->is_stopped) {
        if (!c->is_asked) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        c->copied =
            berthi_feeder_copy_spans(c->feeder, c->slot, c->buffer, "courier", &c->error);
        pthread_mutex_lock(&c->lock);
        c->is_asked = false;
        pthread_mutex_unlock(&c->lock);
        berthi_feeder_wake(c->feeder);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static bool
has_other_device(const berthi_feeder *f, const berthi_lease_line *line)
{
    bool has_other = false;

    for (uint32_t l = 0; l < f->leases->line_count && !has_other; l++)
        has_other = f->leases->lines[l].has_disk
                    && f->leases->lines[l].device != line->device;
    return has_other;
}

/* False: nobody else would wait, or no thread can be had now. */
static bool
start(berthi_feeder *f, berthi_courier *c, const berthi_lease_line *line)
{
    if (c->has_thread || !has_other_device(f, line)
        || BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_COURIERS))
        return c->has_thread;
    c->feeder = f;
    c->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    c->changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    c->has_thread = berthi_sys_thread_create(&c->thread, STACK_BYTES, run, c) == 0;
    return c->has_thread;
}

bool
berthi_courier_send(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
                    const berthi_stage_buffer *buffer)
{
    berthi_courier *const c = &f->couriers[line - f->leases->lines];

    if (!start(f, c, line))
        return false;
    c->slot = slot;
    c->buffer = buffer;
    f->carried++;
    berthi_lease_begin_write(line, slot);
    pthread_mutex_lock(&c->lock);
    c->is_asked = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_lock(&line->lock);
    return true;
}

static bool
has_done(berthi_courier *c)
{
    bool has_done;

    if (c->buffer == NULL)
        return false;
    pthread_mutex_lock(&c->lock);
    has_done = !c->is_asked;
    pthread_mutex_unlock(&c->lock);
    return has_done;
}

bool
berthi_couriers_take(berthi_feeder *f)
{
    bool has_any = false;

    for (uint32_t l = 0; l < f->leases->line_count && f->carried > 0; l++) {
        berthi_courier *const c = &f->couriers[l];
        berthi_lease_line *const line = &f->leases->lines[l];
        const berthi_stage_buffer *const buffer = c->buffer;

        if (!has_done(c))
            continue;
        c->buffer = NULL;
        f->carried--;
        berthi_lease_end_write(f->leases, line, c->slot);
        berthi_feeder_end_copy(f, line, c->slot, buffer, c->copied, &c->error);
        pthread_mutex_unlock(&line->lock);
        has_any = true;
    }
    return has_any;
}

void
berthi_couriers_stop(berthi_feeder *f)
{
    for (uint32_t l = 0; f->couriers != NULL && l < f->leases->line_count; l++) {
        berthi_courier *const c = &f->couriers[l];

        if (!c->has_thread)
            continue;
        pthread_mutex_lock(&c->lock);
        c->is_stopped = true;
        pthread_cond_signal(&c->changed);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        c->has_thread = false;
        (void)berthi_couriers_take(f);
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
    }
}
