/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stranded.h - what reads and copies that hang still use, after everybody else has gone
 * on: of reads their reader, their own state, and the buffers that the kernel may yet
 * write into; of copies their streams and the memory at both ends.
 *
 * A hung disk, server or device ends a job with a status, but nothing ends a read or a
 * copy. So the context keeps these things, counted as allocated, until they have come
 * back; it looks when jobs begin and end, and when it is trimmed or destroyed. A context
 * that is destroyed before leaves them behind for good: memory that nobody uses, threads
 * that sleep in the kernel. What hangs on devices comes back at the latest when these are
 * closed.
 */
#ifndef BERTH_LOADER_STRANDED_H
#define BERTH_LOADER_STRANDED_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/memory.h"
#include "loader/conveyor.h"
#include "loader/job.h"
#include "loader/model.h"
#include "loader/reader.h"

/* How long a device that does not move is waited for, of an option `wait_ms`; 0: 60 s. */
uint64_t berthi_wait_ns(uint64_t wait_ms);

/*
 * Whoever comes back so much later than told was kept from running: its process was stopped, or
 * the machine has more to do than it can. That something else is late does not follow from it.
 */
#define BERTHI_AWAY_NS UINT64_C(250000000)

static inline bool
berthi_was_away(uint64_t back_ns, uint64_t now_ns)
{
    return now_ns > back_ns && now_ns - back_ns >= BERTHI_AWAY_NS;
}

/* Somebody who looks again and again, and gives up after `wait_ns` in which he was there. */
typedef struct berthi_watch {
    uint64_t wait_ns;
    uint64_t pause_ns;
    uint64_t deadline_ns;
    uint64_t back_ns; /* to look again */
} berthi_watch;

berthi_watch berthi_watch_begin(uint64_t wait_ns, uint64_t pause_ns);
/* He looks, and is to be back after a pause; true: it is time to give up. */
bool berthi_watch_is_over(berthi_watch *watch);

/* Of somebody who gives up, and would wait so long otherwise. */
static inline uint64_t
berthi_patience(const berth_context *context, uint64_t wait_ns)
{
    return berthi_min_u64(wait_ns, context->hung_ns);
}

typedef struct berthi_stranded berthi_stranded;

/* Room for `capacity` buffers, allocated while nothing hangs yet. NULL: no memory. */
berthi_stranded *berthi_stranded_prepare(berth_context *context, uint32_t capacity,
                                         uint64_t buffer_bytes);
/* Nothing hung. NULL is allowed. */
void berthi_stranded_free(berthi_stranded *stranded);

/* A buffer of a ring: berthi_stage_detach(). */
void berthi_stranded_add(berthi_stranded *stranded, uint8_t *buffer);
/* Leaves everything to the context: `reads` is the memory that berthi_reads lie in. */
void berthi_stranded_leave(berthi_stranded *stranded, berthi_reader *reader,
                           uint32_t in_flight, void *reads, uint64_t reads_bytes);

/*
 * Waits as await() of the device, and once more as long where who waits was away;
 * CANCELLED soon after a cancel of `job`. NULL: nobody cancels, and the deadline stays.
 */
berth_status berthi_await_event(const berth_job *job, berthi_device *device,
                                berthi_event *event, uint64_t deadline_ns,
                                berth_error *error);

/* The end of what a stream was asked for. Owns nothing. */
typedef struct berthi_stream_end {
    berthi_device *device;
    berthi_stream *stream;
    berthi_event *event; /* that nobody else records meanwhile */
    bool is_recorded;
} berthi_stream_end;

/*
 * Waits for it. True: the deadline came first. Where the device does not even say that it
 * waits it is not known to hang.
 */
bool berthi_stream_hangs(berthi_stream_end *end, uint64_t deadline_ns);
/* It hung: true when all has been done meanwhile, or never will be. Does not wait. */
bool berthi_stream_is_over(berthi_stream_end *end);

/* A buffer of a ring that a device may still copy from: as berthi_ring_pins has it. */
typedef struct berthi_left {
    uint8_t *memory;
    uint64_t bytes;
    bool is_pinned;
} berthi_left;

typedef struct berthi_lefts {
    berthi_left at[BERTHI_RING_CHUNKS_MAX];
    uint32_t count;
} berthi_lefts;

void berthi_lefts_add(berthi_lefts *lefts, uint8_t *memory, uint64_t bytes,
                      bool is_pinned);
/* Nothing copies from it any more, and no device knows it. */
void berthi_left_free(const berthi_left *left, berth_context *context);
/* Nothing copies from them any more. */
void berthi_lefts_free(berthi_lefts *lefts, const berth_model *model);

#endif
