/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - a machine of simulated devices: what its files share.
 *
 *   device_sim.c     the table of calls
 *   sim_call.c       what begins and ends a call; failures
 *   sim_stream.c     streams and events
 *   sim_open.c       opening and closing
 *   sim_words.c      words -> what is simulated
 *   sim_memory.c     device memory with guards and poison, pinned host memory
 *   sim_digest.c     what is known of memory whose bytes are not kept
 *   sim_work.c       what work touches, how long it takes
 *   sim_do.c         doing it
 *   sim_queue.c      queues, engines, which work is next
 *   sim_trace.c      what was done when, for who listens
 *   sim_clock.c      time: events of a simulation, or threads that sleep
 *
 * A stream is a queue. The work at its head waits for an engine: one for copies to
 * the device, one for copies to the host, one for those to other devices where there is a
 * link to them, one that computes; devices of one root share the first two. An engine
 * does one thing at a time, in the order in which it was asked for, unless `pick` says
 * otherwise. An event is a place in a stream, and has passed when the stream has come
 * that far.
 *
 * One lock for all of it, which is not held while memory is touched.
 */
#ifndef BERTH_KERNELS_SIM_H
#define BERTH_KERNELS_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/operands.h"
#include "kernels/sim_digest.h"
#include "kernels/sim_words.h"

/* ------------------------------------------------------------------------ memory */

#define BERTHI_SIM_GRANULE (UINT64_C(2) << 20)
#define BERTHI_SIM_POISON 0xA5
/* Smaller allocations are always kept. */
#define BERTHI_SIM_DIGEST_LEAST (UINT64_C(64) << 20)
#define BERTHI_SIM_KEEPS 8u
#define BERTHI_SIM_GRAVES 256u
#define BERTHI_SIM_GRAVE_BYTES (UINT64_C(1) << 40)

typedef struct berthi_sim_stretch {
    uint8_t *memory;
    uint64_t bytes;
} berthi_sim_stretch;

typedef struct berthi_sim_allocation {
    berthi_sim_stretch own;      /* as it was given out */
    berthi_sim_stretch reserved; /* with what guards it */
    bool keeps_digests;
    uint32_t keep_count;
    berthi_sim_stretch keeps[BERTHI_SIM_KEEPS]; /* bytes that are there all the same */
    berthi_sim_digest digest;                   /* from the beginning of `own` */
} berthi_sim_allocation;

typedef struct berthi_sim_memory {
    berth_context *context;
    uint64_t granules; /* of all */
    uint64_t used;     /* granules */
    bool keeps_digests;
    bool is_sealed;  /* while nobody has opened it */
    uint32_t opened; /* by so many */
    berthi_sim_allocation **allocations; /* by address */
    uint64_t allocation_count;
    uint64_t allocation_capacity;
    berthi_sim_stretch graves[BERTHI_SIM_GRAVES]; /* freed, and not to be touched */
    uint64_t grave_first;
    uint64_t grave_count;
    uint64_t grave_bytes;
    berthi_sim_stretch *pins; /* in no order */
    uint64_t pin_count;
    uint64_t pin_capacity;
    uint64_t pin_bytes;
    uint64_t pin_limit;
} berthi_sim_memory;

void berthi_sim_memory_init(berthi_sim_memory *memory, berth_context *context,
                            const berthi_sim_device_words *words);
void berthi_sim_memory_fini(berthi_sim_memory *memory);

static inline uint64_t
berthi_sim_memory_free_bytes(const berthi_sim_memory *memory)
{
    return (memory->granules - memory->used) * BERTHI_SIM_GRANULE;
}

/*
 * Counts `bytes` as used, or returns false. What is claimed is then made, without the
 * lock, and added, with it; or disclaimed.
 */
bool berthi_sim_memory_claim(berthi_sim_memory *memory, uint64_t bytes);
void berthi_sim_memory_disclaim(berthi_sim_memory *memory, uint64_t bytes);
/* Reserved, poisoned; NULL when out of memory. Touches nothing of `memory`. */
berthi_sim_allocation *berthi_sim_allocation_create(const berthi_sim_memory *memory,
                                                    uint64_t bytes);
bool berthi_sim_memory_add(berthi_sim_memory *memory,
                           berthi_sim_allocation *allocation);
/* Gives address space back, too: nobody has seen it. */
void berthi_sim_allocation_destroy(berthi_sim_allocation *allocation);
/* False: this was not allocated so. */
bool berthi_sim_memory_free(berthi_sim_memory *memory, void *own, uint64_t bytes);

/* The allocation that all of it lies in; NULL: none. */
berthi_sim_allocation *berthi_sim_memory_find(const berthi_sim_memory *memory,
                                              const void *at, uint64_t bytes);
/* Whether its bytes are there, all of them. */
bool berthi_sim_allocation_has_bytes(const berthi_sim_allocation *allocation,
                                     const void *at, uint64_t bytes);
/* Bytes of an allocation that shall be there. False: no room or no memory for that. */
bool berthi_sim_allocation_keep(berthi_sim_allocation *allocation, void *at,
                                uint64_t bytes);

/*
 * Around whatever touches bytes of allocations; any number at a time. False: the system
 * refuses.
 */
bool berthi_sim_memory_open(berthi_sim_memory *memory);
void berthi_sim_memory_close(berthi_sim_memory *memory);

/* NULL, or why not: NO_MEMORY, or INTERNAL where the caller is wrong. */
const char *berthi_sim_memory_pin(berthi_sim_memory *memory, void *at, uint64_t bytes,
                                  berth_reason *reason);
bool berthi_sim_memory_unpin(berthi_sim_memory *memory, void *at, uint64_t bytes);
bool berthi_sim_memory_is_pinned(const berthi_sim_memory *memory, const void *at,
                                 uint64_t bytes);

/* -------------------------------------------------------------------------- work */

typedef enum berthi_sim_kind {
    BERTHI_SIM_COPY,
    BERTHI_SIM_CLEAR,
    BERTHI_SIM_LAUNCH,
    BERTHI_SIM_WAIT,
    BERTHI_SIM_STALL /* never passes */
} berthi_sim_kind;

typedef enum berthi_sim_engine_kind {
    BERTHI_SIM_TO_DEVICE,
    BERTHI_SIM_TO_HOST,
    BERTHI_SIM_TO_PEER,
    BERTHI_SIM_COMPUTE,
    BERTHI_SIM_ENGINE_KINDS,
    BERTHI_SIM_NO_ENGINE = BERTHI_SIM_ENGINE_KINDS /* takes no time */
} berthi_sim_engine_kind;

typedef struct berthi_sim_device berthi_sim_device;

/* A place in a stream; it was reached when so many items were completed. */
typedef struct berthi_sim_place {
    berthi_stream *stream; /* NULL: nowhere, and never waited for */
    uint64_t at;
} berthi_sim_place;

typedef struct berthi_sim_item {
    struct berthi_sim_item *next;
    uint64_t order;  /* in which all work of the machine was asked for */
    uint64_t number; /* in its stream, from 1 */
    uint64_t duration_ns;
    uint64_t begin_ns; /* when it was started; of a WAIT: when it came to the head */
    int32_t kind;
    int32_t engine;
    bool is_running;
    bool is_joined; /* an operation: with the one before it */
    bool hangs; /* once it has begun: until it is released, or its device fails */
    uint64_t held_bytes;
    void *held; /* of a copy to the device that is not pinned: what the host had then */
    union {
        berthi_copy copy;
        berthi_sim_stretch clear;
        berthi_request request;
        berthi_sim_place wait;
    } work;
} berthi_sim_item;

/* What of the device's memory an item reads or writes. */
#define BERTHI_SIM_REGIONS BERTHI_OPERANDS

typedef struct berthi_sim_region {
    void *memory;
    uint64_t bytes;
    size_t slot; /* of a request: where the pointer stands in it */
    bool is_read;
    bool is_written;
    bool is_of_peer; /* of the copy's: not this device's memory */
} berthi_sim_region;

typedef struct berthi_sim_regions {
    berthi_sim_region items[BERTHI_SIM_REGIONS];
    uint32_t count;
} berthi_sim_regions;

/* False: sizes that no memory has. */
bool berthi_sim_work_can_list(const berthi_sim_item *item, berthi_sim_regions *out);
/* The other device of a copy; NULL: there is none. */
berthi_sim_device *berthi_sim_peer_of(const berthi_sim_item *item);
/* Both have a link to others of their machine. */
bool berthi_sim_reaches(const berthi_sim_device *device, const berthi_sim_device *other);
/* NULL, or what is wrong with doing this on that device now. */
const char *berthi_sim_work_refusal(const berthi_sim_device *device,
                                    const berthi_sim_item *item, berth_reason *reason);
/* Fills engine and duration. */
void berthi_sim_work_measure(berthi_sim_device *device, berthi_sim_item *item);
/* Does it. The lock is held before and after, not meanwhile. */
void berthi_sim_work_do(berthi_sim_device *device, const berthi_sim_item *item);

/* ------------------------------------------------------------- streams and engines */

struct berthi_stream {
    berthi_sim_device *device;
    berthi_stream *next; /* of the machine's */
    berthi_sim_item *head;
    berthi_sim_item *tail;
    uint64_t asked;      /* items */
    uint64_t completed;
    uint64_t number;     /* of all that were ever made, from 1 */
    bool is_free;        /* destroyed: may be given out again */
};

struct berthi_event {
    berthi_sim_place place;
};

typedef struct berthi_sim_engine {
    berthi_sim *sim;
    uint32_t kind;         /* berthi_sim_engine_kind */
    uint32_t device;       /* the first that has it */
    berthi_stream *stream; /* whose head it works on; NULL: idle */
    uint64_t touch_ns;
    uint64_t end_ns;
    bool is_touched;
    bool is_hung; /* what it works on does not go on; neither moment is known */
    berthi_sim_item *candidate; /* while work is given out */
    berthi_stream *candidate_stream;
    uint32_t candidate_count;
    uint64_t busy_ns; /* in all */
    uint64_t done;    /* items */
    pthread_t thread; /* of a real clock */
    pthread_cond_t wake;
    bool has_thread;
    bool has_wake;
} berthi_sim_engine;

struct berthi_sim_device {
    berthi_device base;
    berthi_sim *sim;
    char name[16]; /* "sim:0" */
    berthi_sim_device_words words;
    berthi_sim_memory memory;
    berthi_sim_engine *engines[BERTHI_SIM_ENGINE_KINDS]; /* NULL: it has none */
    berthi_stream first; /* the NULL stream */
    int32_t reason;      /* berth_reason; NONE while it works */
    char failure[160];
    uint32_t touching;         /* engines, whose work touches its memory now */
    uint64_t calls;            /* that can fail */
    uint64_t records;
    uint64_t streams; /* made and not destroyed, without `first` */
    uint64_t copies;
    uint64_t unrecorded_waits; /* for events that were never recorded */
    uint64_t misuses;          /* frees of what was not there */
};

struct berthi_sim {
    berth_context *context;
    berthi_sim_words words;
    berthi_operations operations;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was completed, asked for, or failed */
    bool has_lock;
    bool has_changed;
    bool is_closing;
    bool is_stepping;   /* one thread moves a virtual clock */
    pthread_t stepper;
    uint32_t touching;  /* engines whose work touches memory now */
    uint64_t now_ns;    /* of a virtual clock */
    uint64_t order;
    uint64_t stream_count;
    uint64_t random;
    berthi_stream *streams; /* all, first streams of devices included */
    berthi_sim_item *spare; /* items */
    uint32_t engine_count;
    berthi_sim_engine engines[BERTHI_SIM_ENGINE_KINDS * BERTHI_DEVICES_LIMIT];
    berthi_sim_device *devices[BERTHI_DEVICES_LIMIT];
};

extern const berthi_device_table berthi_sim_table;

static inline berthi_sim_device *
berthi_sim_of(berthi_device *device)
{
    return (berthi_sim_device *)device;
}

/* The NULL stream is the device's first one. */
static inline berthi_stream *
berthi_sim_stream_of(berthi_sim_device *device, berthi_stream *stream)
{
    return stream != NULL ? stream : &device->first;
}

/* 0 to 2^64 - 1 */
uint64_t berthi_sim_random(berthi_sim *sim);

/* Room for what a stream is asked for; the lock is held. */
berth_status berthi_sim_item_take(berthi_sim_device *device, int32_t kind,
                                  berthi_sim_item **out, berth_error *error);
void berthi_sim_item_give(berthi_sim *sim, berthi_sim_item *item);

void berthi_sim_add_stream(berthi_sim_device *device, berthi_stream *stream);
/* The last of the stream. */
void berthi_sim_push(berthi_stream *stream, berthi_sim_item *item);
/* Everything of a stream but what runs. */
void berthi_sim_purge(berthi_stream *stream);
/* Ends waits that are over, and gives work that is ready to engines that are idle. */
void berthi_sim_settle(berthi_sim *sim);
/* What hangs on engines of this device goes on now. */
void berthi_sim_end_hang(berthi_sim_device *device);
#ifdef BERTH_TESTING
/* The same of a device's copy that was told to hang; no later one does. Any thread. */
void berthi_sim_release(berthi_device *device);
#endif
/* The engine's work is over; settle and tell others. */
void berthi_sim_complete(berthi_sim_engine *engine);
bool berthi_sim_is_past(const berthi_sim_place *place);

/* -------------------------------------------------------------------------- calls */

/* What begins every call that can fail, and takes the lock in any case. */
berth_status berthi_sim_enter(berthi_sim_device *device, const char *what,
                              berth_error *error);
/* Returns `status`. */
berth_status berthi_sim_leave(berthi_sim_device *device, berth_status status);
/* The device is not usable any more; the first reason counts. */
__attribute__((format(printf, 3, 4))) void
berthi_sim_fail_device(berthi_sim_device *device, berth_reason reason,
                       const char *format, ...);
/*
 * BERTH_OK, or why the device is not usable; then nothing of it touches memory any more:
 * whoever is told gives memory back.
 */
berth_status berthi_sim_check(berthi_sim_device *device, berth_error *error);

/* ---------------------------------------- streams and events, as a table has them */

berth_status berthi_sim_stream_create(berthi_device *device, berthi_stream **out,
                                      berth_error *error);
void berthi_sim_stream_destroy(berthi_device *device, berthi_stream *stream);
berth_status berthi_sim_event_create(berthi_device *device, berthi_event **out,
                                     berth_error *error);
void berthi_sim_event_destroy(berthi_device *device, berthi_event *event);
berth_status berthi_sim_record(berthi_device *device, berthi_event *event,
                               berthi_stream *stream, berth_error *error);
berth_status berthi_sim_wait(berthi_device *device, berthi_stream *stream,
                             berthi_event *event, berth_error *error);
berth_status berthi_sim_query(berthi_device *device, berthi_event *event,
                              bool *out_is_past, berth_error *error);
berth_status berthi_sim_await_event(berthi_device *device, berthi_event *event,
                                    uint64_t deadline_ns, berth_error *error);

/* -------------------------------------------------------------------------- trace */

/* What the engine works on has ended. */
void berthi_sim_trace_work(const berthi_sim_engine *engine);
/* The WAIT at the head of the stream is over. */
void berthi_sim_trace_wait(const berthi_stream *stream);

/* -------------------------------------------------------------------------- clock */

uint64_t berthi_sim_now(const berthi_sim *sim);
/* A thread for each engine, where the clock is real. */
berth_status berthi_sim_clock_start(berthi_sim *sim, berth_error *error);
void berthi_sim_clock_stop(berthi_sim *sim);
/* Settled: to the next moment at which something happens; false: nothing is under way. */
bool berthi_sim_step(berthi_sim *sim);
/* PENDING at the deadline. */
berth_status berthi_sim_await(berthi_sim_device *device, const berthi_sim_place *place,
                              uint64_t deadline_ns, berth_error *error);
/* Until the stream is empty, or nothing can happen any more. */
void berthi_sim_drain(berthi_stream *stream);
/* Until nothing touches memory. */
void berthi_sim_pause(berthi_sim *sim);
/* Until nothing of the device does. */
void berthi_sim_leave_memory(berthi_sim_device *device);

#endif
