/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed.h - what the parts of the feeder share: its state, which is its thread's alone.
 *
 *   lease_feed_ring.c     buffers: how large, how many, pinned by whom
 *   lease_feed_copy.c     out of full ones into slots, until they are free again
 *   lease_feed_courier.c  the same, where that would keep other devices waiting
 *   lease_feed_read.c     which chunk is read next
 *   lease_feed.c          the thread: what it does and waits for, and what failed
 */
#ifndef BERTH_LOADER_LEASE_FEED_H
#define BERTH_LOADER_LEASE_FEED_H

#include "loader/intake.h"
#include "loader/lease_state.h"
#include "loader/stage.h"
#include "loader/tune.h"

/* What the feeder knows of a chunk. */
typedef struct berthi_feeder_chunk_state {
    uint64_t feed_number; /* of its line, when it was last copied; 0: never */
    bool is_held;         /* a buffer has it, or is going to */
} berthi_feeder_chunk_state;

/* What a line knows of one buffer of the ring. */
typedef struct berthi_feeder_buffer_state {
    berthi_event *copied; /* NULL: the line has nothing on the disk */
    bool is_pinned;
} berthi_feeder_buffer_state;

/* Copies to a line. */
typedef struct berthi_feeder_line_state {
    uint32_t copying; /* buffers */
    bool is_late;     /* they have not gone on while others waited: it is brought nothing */
    bool has_lost;    /* meanwhile what was in the ring for it has been dropped */
} berthi_feeder_line_state;

/* Makes copies to a line that wait for its device. */
typedef struct berthi_courier {
    berthi_feeder *feeder;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* is_asked, is_stopped */
    pthread_cond_t changed;
    bool is_asked;        /* to copy; until that is over it has all below */
    bool is_stopped;
    const berthi_stage_buffer *buffer; /* NULL: it has nothing that the feeder has not taken */
    berthi_lease_slot *slot;
    uint64_t copied;      /* bytes that were asked for */
    berth_error error;
} berthi_courier;

struct berthi_feeder {
    berthi_leases *leases;
    const berthi_chunks *chunks;
    berthi_stage stage;
    berthi_intake intake;
    berthi_tune tune;
    berthi_conveyor_stats stats;
    berthi_feeder_chunk_state *states;   /* of chunks */
    berthi_feeder_buffer_state *buffers; /* of a line: as many as the ring has */
    berthi_feeder_line_state *lines;
    berthi_courier *couriers; /* of lines */
    uint32_t carried;        /* buffers that couriers have */
    uint64_t late_ns;        /* copies do not go on: none has passed for so long */
    bool *is_known;          /* of buffers: devices have been asked to pin */
    bool *is_recorded;       /* of buffers that are being copied */
    uint64_t cursor;         /* chunk of a layer that is read next */
    uint32_t next_line;      /* whose experts are looked for first */
    uint32_t room[2];        /* buffers in use, at most, of layers and of experts; */
    uint32_t held[2];        /* so many have a chunk */
    uint64_t reading_ns;     /* so long were reads waited for: the clock of `tune`, which */
    uint64_t idle_ns;        /* stands still with them; and slots, without room for more */
    uint32_t copying;        /* buffers */
    bool has_grown;          /* the ring, by a buffer: what else there is to do comes first */
    bool has_failed;         /* reading */
    bool was_late;           /* that is since reads hung, which have not all come back */
    berth_status status;
    berth_error error;
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_stopped;
};

/* Number of the chunk that it holds, */
static inline uint64_t
berthi_feeder_chunk(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    return (uint64_t)(buffer->chunk - f->chunks->chunks);
}

/* and the line that is for. */
static inline berthi_lease_line *
berthi_feeder_line(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    const uint32_t unit = f->leases->unit_of_chunk[berthi_feeder_chunk(f, buffer)];

    return &f->leases->lines[f->leases->units[unit].line];
}

static inline berthi_feeder_line_state *
berthi_feeder_line_state_of(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    return &f->lines[berthi_feeder_line(f, buffer) - f->leases->lines];
}

/* Which buffers it is for. */
static inline uint32_t
berthi_feeder_share(const berthi_feeder *f, uint64_t chunk)
{
    return chunk >= f->leases->layer_chunks;
}

static inline berthi_feeder_buffer_state *
berthi_feeder_state(berthi_feeder *f, uint32_t line, uint32_t buffer)
{
    return &f->buffers[line * f->stage.capacity + buffer];
}

/* The same for the line that its chunk is for. */
static inline berthi_feeder_buffer_state *
berthi_feeder_state_of(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    const berthi_lease_line *const line = berthi_feeder_line(f, buffer);

    return berthi_feeder_state(f, (uint32_t)(line - f->leases->lines), buffer->number);
}

/* ---------------------------------------------------------------------------- ring */

/* Never more than one pass: the same chunk is not in the ring twice. */
uint32_t berthi_feeder_capacity(const berthi_chunks *chunks, uint64_t ring_bytes);
berth_status berthi_feeder_create_events(berthi_feeder *f, berth_error *error);
void berthi_feeder_destroy_events(berthi_feeder *f);
/* Devices that copy from a buffer pin it, once it is there; each of them once. */
void berthi_feeder_pin(berthi_feeder *f, const berthi_stage_buffer *buffer);
/* One that no device copies from. */
void berthi_feeder_unpin(berthi_feeder *f, const berthi_stage_buffer *buffer);
/* Its chunk is needed no longer, or has to be read again. */
void berthi_feeder_release(berthi_feeder *f, berthi_stage_buffer *buffer);
/*
 * Nothing is being read, and no buffer is full: whether one can be had for more. Where it has
 * to be, the ring is as large as it may get.
 */
bool berthi_feeder_make_room(berthi_feeder *f, uint32_t share);
void berthi_feeder_begin_tuning(berthi_feeder *f);
/*
 * Slots take whatever comes, of layers or of experts, and all buffers that it may come into are
 * being filled.
 */
bool berthi_feeder_is_idle(const berthi_feeder *f);
/* Reads have been waited for, so long: more buffers, or fewer, where it is time to look. */
void berthi_feeder_tune(berthi_feeder *f, uint64_t waited_ns, bool was_idle);

/* ------------------------------------------------------------------------- reading */

/* The first failure stops reading. */
void berthi_feeder_fail_reading(berthi_feeder *f, berth_status status,
                                const berth_error *error);
/* Layers are read ahead as long as there are buffers. True: a read was begun. */
bool berthi_feeder_read_ahead(berthi_feeder *f);
/* Experts are read as they are asked for, as long as there are buffers. True: as above. */
bool berthi_feeder_read_experts(berthi_feeder *f);
/*
 * Its lock held. The line's first slot that waits for a chunk which no buffer has, and that
 * chunk; NULL: none.
 */
berthi_lease_slot *berthi_feeder_find_missing(const berthi_feeder *f,
                                              const berthi_lease_line *line,
                                              uint64_t *out_chunk);
/*
 * Where a line has been asked for another layer than the next one, reading begins anew at that,
 * and what was read for the line is dropped. False: none has been.
 */
bool berthi_feeder_follow(berthi_feeder *f);
/*
 * Layers (share 0) or experts (1), whatever the others do: where nothing of them goes on unless
 * something else is read, and somebody waits, whose line has no copies under way, reading begins
 * anew at what he misses, and what was read for nobody is dropped. Lines that have copies under
 * way are late. True: it does, or there is no need to, as somebody waits for what is in the ring
 * by now.
 */
bool berthi_feeder_unstick(berthi_feeder *f, uint32_t share);

/* -------------------------------------------------------------------------- copies */

/* Its line's lock held. The slot that waits for what the buffer holds; NULL: none does. */
berthi_lease_slot *berthi_feeder_find_slot(const berthi_feeder *f,
                                           const berthi_stage_buffer *buffer);
/* Of layers (0) or experts (1) no copy is under way, or none goes on that is. */
bool berthi_feeder_is_stuck(const berthi_feeder *f, uint32_t share);
/* Hands out what is wanted; false: nothing was. */
bool berthi_feeder_copy(berthi_feeder *f);
/* Buffers of copies that have passed are free; false: none was. */
bool berthi_feeder_recycle(berthi_feeder *f);
/*
 * Asks for the copies of a full buffer into a slot of its line: with the line's lock, or, where
 * the slot is written to, on any thread. Bytes that were asked for, until one copy failed.
 */
uint64_t berthi_feeder_copy_spans(berthi_feeder *f, const berthi_lease_slot *slot,
                                  const berthi_stage_buffer *buffer, const char *thread,
                                  berth_error *error);
/* They have been, so many bytes, or failed: what follows. The line's lock held. */
void berthi_feeder_end_copy(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
                            const berthi_stage_buffer *buffer, uint64_t copied,
                            const berth_error *failure);

/* ------------------------------------------------------------------------ couriers */

/*
 * The line's lock held, which is let go and taken again; its courier has nothing. False: the
 * feeder has to copy by itself.
 */
bool berthi_courier_send(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
                         const berthi_stage_buffer *buffer);
/* What has been copied; false: nothing was. */
bool berthi_couriers_take(berthi_feeder *f);
/* The feeder's thread has ended. Waits for copies that are being made, and takes them. */
void berthi_couriers_stop(berthi_feeder *f);
/* Whether a line's has something. */
static inline bool
berthi_courier_is_busy(const berthi_feeder *f, uint32_t line)
{
    return f->carried > 0 && f->couriers[line].buffer != NULL;
}

#endif
