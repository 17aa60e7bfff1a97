/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed_ring.c - buffers of the thread that brings units from the disk: near the devices
 * that copy from them, pinned by these; how large they are, and how many are used.
 */
#include "kernels/node.h"
#include "loader/lease_feed.h"

#define CHUNK_BYTES_MIN UINT64_C(4096)
#define RING_CHUNKS 8u /* at least so many make a ring, where chunks can be smaller */
#define RING_CHUNKS_MIN 3u
#define RING_CHUNKS_MAX 64u

/* One buffer of so many, or more, is for experts, where layers come from the disk as well. */
#define EXPERTS_SHARE 4u

uint64_t
berthi_feeder_chunk_bytes(uint64_t ring_bytes)
{
    uint64_t bytes = BERTHI_CHUNK_BYTES;

    while (bytes > CHUNK_BYTES_MIN && bytes * RING_CHUNKS > ring_bytes)
        bytes /= 2;
    return bytes;
}

uint32_t
berthi_feeder_capacity(const berthi_chunks *chunks, uint64_t ring_bytes)
{
    uint64_t capacity = ring_bytes / chunks->chunk_bytes;

    capacity = berthi_max_u64(capacity, RING_CHUNKS_MIN);
    capacity = berthi_min_u64(capacity, RING_CHUNKS_MAX);
    return (uint32_t)berthi_min_u64(capacity, chunks->chunk_count);
}

/* ------------------------------------------------------------------------- pinned */

/* All lines share the ring: their devices take turns in having a buffer near. */
static void
bring_near(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    uint32_t count = 0;
    uint32_t turn;

    for (uint32_t l = 0; l < f->leases->line_count; l++)
        count += f->leases->lines[l].has_disk;
    if (count == 0)
        return;
    turn = buffer->number % count;
    for (uint32_t l = 0; l < f->leases->line_count; l++)
        if (f->leases->lines[l].has_disk && turn-- == 0)
            berthi_node_bring(f->leases->lines[l].device, buffer->memory,
                              f->stage.buffer_bytes, BERTHI_STAGE_ALIGNMENT);
}

/* The first line on the same device with something on the disk; `line` itself at the latest. */
static uint32_t
first_line(const berthi_feeder *f, uint32_t line)
{
    const berthi_lease_line *const lines = f->leases->lines;
    uint32_t l = 0;

    while (l < line && (!lines[l].has_disk || lines[l].device != lines[line].device))
        l++;
    return l;
}

void
berthi_feeder_pin(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    if (f->is_known[buffer->number])
        return;
    f->is_known[buffer->number] = true;
    bring_near(f, buffer);
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;
        berthi_feeder_buffer_state *const state = berthi_feeder_state(f, l, buffer->number);
        berth_error error;

        if (state->copied == NULL)
            continue;
        if (first_line(f, l) < l) {
            state->is_pinned =
                berthi_feeder_state(f, first_line(f, l), buffer->number)->is_pinned;
            continue;
        }
        state->is_pinned =
            device->table->pin(device, buffer->memory, f->stage.buffer_bytes, &error)
            == BERTH_OK;
        if (!state->is_pinned)
            berthi_device_note_unpinned(f->leases->model->context, &error);
    }
}

void
berthi_feeder_unpin(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;
        berthi_feeder_buffer_state *const state = berthi_feeder_state(f, l, buffer->number);

        if (state->is_pinned && first_line(f, l) == l)
            device->table->unpin(device, buffer->memory, f->stage.buffer_bytes);
        state->is_pinned = false;
    }
}

void
berthi_feeder_destroy_events(berthi_feeder *f)
{
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;

        for (uint32_t i = 0; i < f->stage.capacity; i++)
            if (berthi_feeder_state(f, l, i)->copied != NULL)
                device->table->event_destroy(device, berthi_feeder_state(f, l, i)->copied);
    }
}

void
berthi_feeder_release(berthi_feeder *f, berthi_stage_buffer *buffer)
{
    const uint64_t chunk = berthi_feeder_chunk(f, buffer);

    f->states[chunk].is_held = false;
    f->held[berthi_feeder_share(f, chunk)]--;
    berthi_stage_drop(&f->stage, buffer);
}

berth_status
berthi_feeder_create_events(berthi_feeder *f, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;

        if (!f->leases->lines[l].has_disk)
            continue;
        for (uint32_t i = 0; i < f->stage.capacity && status == BERTH_OK; i++)
            status = device->table->event_create(
                device, &berthi_feeder_state(f, l, i)->copied, error);
    }
    return status;
}

/* ------------------------------------------------------------------------- tuning */

/* Of layers or of experts. */
static uint32_t
count_lines(const berthi_feeder *f, uint32_t share)
{
    uint32_t count = 0;

    for (uint32_t l = 0; l < f->leases->line_count; l++)
        count += f->leases->lines[l].has_disk && f->leases->lines[l].is_cache == (share == 1);
    return count;
}

/*
 * Buffers for experts, of so many, beside layers: one for each line at least, as one that hangs
 * keeps its own, once each line of layers has one.
 */
static uint32_t
choose_share(const berthi_feeder *f, uint32_t all)
{
    const uint32_t of_layers = count_lines(f, 0);
    const uint32_t left = all > of_layers ? all - of_layers : 0;
    const uint64_t wanted = berthi_max_u64(all / EXPERTS_SHARE, count_lines(f, 1));

    return (uint32_t)berthi_max_u64(berthi_min_u64(wanted, left), 1);
}

/* Divides what is used of it. */
static void
divide_ring(berthi_feeder *f)
{
    const uint64_t layers = f->leases->layer_chunks;
    const uint32_t all = f->stage.limit;

    f->room[1] = layers == 0                          ? all
                 : layers == f->chunks->chunk_count ? 0
                                                      : choose_share(f, all);
    f->room[0] = all - f->room[1];
    if (layers > 0 && f->room[0] == 0) /* they take turns with the only one */
        f->room[0] = 1;
}

static void
use_buffers(berthi_feeder *f, uint32_t count)
{
    berthi_stage_allow(&f->stage, count);
    divide_ring(f);
}

/* Of those that are in use. */
static bool
has_room(const berthi_feeder *f, uint32_t share)
{
    return f->held[share] < f->room[share] && f->copying < f->stage.limit;
}

bool
berthi_feeder_make_room(berthi_feeder *f, uint32_t share)
{
    /* There were more while copies were asked for that are late. */
    if (!has_room(f, share))
        use_buffers(f, f->stage.capacity);
    return has_room(f, share);
}

bool
berthi_feeder_is_idle(const berthi_feeder *f)
{
    uint32_t filling[2] = { 0 };
    bool is_idle = false;

    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        const berthi_stage_buffer *const buffer = &f->stage.buffers[i];

        if (buffer->state == BERTHI_STAGE_FILLING)
            filling[berthi_feeder_share(f, berthi_feeder_chunk(f, buffer))]++;
    }
    for (uint32_t share = 0; share < 2; share++)
        is_idle |= filling[share] > 0 && filling[share] == f->held[share]
                   && filling[share] >= f->room[share];
    return is_idle;
}

void
berthi_feeder_begin_tuning(berthi_feeder *f)
{
    berthi_tune_begin(&f->tune, BERTHI_TUNE_STAGES, f->stage.capacity, 0);
    use_buffers(f, f->tune.stages);
}

void
berthi_feeder_tune(berthi_feeder *f, uint64_t waited_ns, bool was_idle)
{
    berthi_tune_sample sample = { .bytes = f->stats.bytes_read };

    f->reading_ns += waited_ns;
    f->idle_ns += was_idle ? waited_ns : 0;
    sample.now_ns = f->reading_ns;
    sample.idle_ns = f->idle_ns;
    if (berthi_tune_is_due(&f->tune, sample.now_ns))
        use_buffers(f, berthi_tune_look(&f->tune, &sample));
}
