/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h - the ring of staging buffers between readers and consumers.
 *
 * It owns the buffers and who may touch them, nothing else: it neither reads
 * nor consumes. Memory grows with the buffers in use, up to the capacity, and
 * is given back by fini. Invariants:
 *   - a buffer that is not free holds exactly one chunk;
 *   - chunks of a file are put in in file order, so the next chunk that an
 *     in-order consumer needs is in the ring or none behind it is: the ring
 *     cannot fill up with chunks that wait for one without a buffer.
 */
#ifndef BERTH_LOADER_STAGE_H
#define BERTH_LOADER_STAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/memory.h"
#include "loader/conveyor.h"

#define BERTHI_STAGE_ALIGNMENT 4096u /* of each buffer */

typedef enum berthi_stage_state {
    BERTHI_STAGE_FREE,
    BERTHI_STAGE_FILLING,
    BERTHI_STAGE_FULL,
    BERTHI_STAGE_BUSY
} berthi_stage_state;

/* The two calls each chunk gets from its consumer. */
typedef enum berthi_stage_call {
    BERTHI_STAGE_ANY_ORDER,
    BERTHI_STAGE_IN_ORDER,
    BERTHI_STAGE_CALL_COUNT
} berthi_stage_call;

typedef enum berthi_stage_progress {
    BERTHI_STAGE_WAITING,
    BERTHI_STAGE_RUNNING,
    BERTHI_STAGE_DONE
} berthi_stage_progress;

typedef struct berthi_stage_buffer {
    uint8_t *memory; /* NULL until it is first used */
    bool is_pinned;
    uint32_t number; /* in the ring */
    berthi_stage_state state;
    const berthi_chunk *chunk; /* NULL: free */
    berthi_stage_progress calls[BERTHI_STAGE_CALL_COUNT];
} berthi_stage_buffer;

/* How long something has been so. */
typedef struct berthi_stage_span {
    bool is_now;
    uint64_t from_ns;  /* it is, since then */
    uint64_t total_ns; /* so long in all, before that */
} berthi_stage_span;

typedef struct berthi_stage {
    berth_context *context;
    uint64_t buffer_bytes;
    uint32_t capacity;  /* of the table */
    uint32_t limit;     /* no more are taken: the capacity, or what was allowed */
    bool is_short;      /* of memory: it does not grow at all */
    uint32_t allocated; /* buffers with memory: the first of them */
    uint32_t file_count;
    bool has_call[BERTHI_STAGE_CALL_COUNT];
    berthi_stage_buffer *buffers;
    const berthi_ring_pins *pins; /* NULL: none; set before the first take() */

    pthread_mutex_t lock;    /* states and everything below */
    pthread_cond_t has_work; /* a call may be possible, or there will be none */
    uint32_t *next_in_file;  /* per file: number of the chunk whose turn it is */
    const berthi_chunk *next_in_turn; /* of any-order calls; NULL: whatever is there */
    bool is_starved;         /* the last take() found none */
    berthi_stage_span behind; /* workers are waited for, not reads */
    berthi_stage_span idle;   /* every buffer that is allowed is being filled */
    bool is_closed;          /* nothing more will be filled */
    bool is_stopped;         /* no more calls */
} berthi_stage;

/* A call that a worker has taken. */
typedef struct berthi_stage_work {
    berthi_stage_buffer *buffer;
    berthi_stage_call call;
} berthi_stage_work;

/* `has_call`: which of the two calls chunks get; at least one. */
berth_status berthi_stage_init(berthi_stage *stage, berth_context *context,
                               uint64_t buffer_bytes, uint32_t capacity,
                               uint32_t file_count,
                               const bool has_call[BERTHI_STAGE_CALL_COUNT],
                               berth_error *error);
/*
 * Memory of a buffer that is no longer the stage's, unpinned: reads into it have not come
 * back. Only fini may follow.
 */
uint8_t *berthi_stage_detach(berthi_stage *stage, berthi_stage_buffer *buffer);
/* No thread may use the stage any more. A zeroed stage is allowed. */
void berthi_stage_fini(berthi_stage *stage);

/* ---- for the thread that reads */

/* Before the first take(), and at any time: so many buffers, or the capacity. */
void berthi_stage_allow(berthi_stage *stage, uint32_t count);

/* So long was every buffer that is allowed being filled, and nothing there to consume. */
uint64_t berthi_stage_idle_ns(berthi_stage *stage);

/*
 * A free buffer for `chunk`, now filling. NULL: all are in use. When a further
 * buffer cannot be allocated the ring stays as small as it is; NO_MEMORY only
 * if it has none at all, and the next call asks for it again.
 */
berth_status berthi_stage_take(berthi_stage *stage, const berthi_chunk *chunk,
                               berthi_stage_buffer **out_buffer, berth_error *error);
/* Its last byte has arrived: filling -> full. */
void berthi_stage_fill(berthi_stage *stage, berthi_stage_buffer *buffer);
/*
 * A ring without workers: the thread that reads is done with a chunk, or will not get it;
 * the buffer is free.
 */
void berthi_stage_drop(berthi_stage *stage, berthi_stage_buffer *buffer);
/* Buffers that hold chunks of `file`. */
uint32_t berthi_stage_held(berthi_stage *stage, uint32_t file);
/* Nothing more comes: workers end when the last chunk is consumed. */
void berthi_stage_close(berthi_stage *stage);
/* Workers end after the call they are in. Any thread. */
void berthi_stage_stop(berthi_stage *stage);
/* So long were workers waited for, and not reads; once workers have ended. */
uint64_t berthi_stage_behind_ns(const berthi_stage *stage);

/* ---- for workers */

/* Waits for a call that is possible; false: there will be none. */
bool berthi_stage_await_work(berthi_stage *stage, berthi_stage_work *work);

typedef struct berthi_stage_outcome {
    bool is_consumed; /* it was the chunk's last call: the buffer is free */
    bool is_awaited;  /* and the reading thread had found none */
} berthi_stage_outcome;

berthi_stage_outcome berthi_stage_give_back(berthi_stage *stage,
                                            const berthi_stage_work *work);

#endif
