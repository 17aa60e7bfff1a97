/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda_state.h - the machine of fake_cuda.h: what its files share.
 *
 *   fake_cuda.c          the machine, and what tests ask of it
 *   fake_cuda_state.c    one state for all; how a call begins, ends and fails
 *   fake_cuda_memory.c   memory of the GPUs, and what is pinned
 *   fake_cuda_stream.c   streams, events, and their work, done in order
 *   fake_cuda_capture.c  which of them a graph captures
 *   fake_cuda_copy.c     what they are asked for: copies, kernels, calls
 */
#ifndef BERTH_TESTS_FAKE_CUDA_STATE_H
#define BERTH_TESTS_FAKE_CUDA_STATE_H

#include <pthread.h>

#include "tests/fake_cuda.h"

/* The runtime's numbers that berth has no use for. */
#define INVALID_VALUE 1
#define INVALID_CONFIGURATION 9
#define INVALID_DEVICE 101
#define INVALID_CONTEXT 201
#define INVALID_HANDLE 400
#define CAPTURE_UNSUPPORTED 900 /* what a capture does not bear */
#define CAPTURE_ISOLATION 905   /* a captured stream waits for what is not */
#define CAPTURED_EVENT 907      /* of a capture that has ended */

typedef struct fake_cuda_event {
    struct fake_cuda_event *next;
    int device;
    uint64_t recorded; /* how often */
    uint64_t passed;   /* the last of these that has passed */
    bool is_destroyed; /* waits may still be for it */
    uint64_t capture;  /* that it was recorded in; 0: none */
} fake_cuda_event;

typedef enum fake_cuda_kind { COPY, CLEAR, LAUNCH, RECORD, WAIT, CALL } fake_cuda_kind;

typedef struct fake_cuda_work {
    struct fake_cuda_work *next;
    fake_cuda_kind kind;
    void *to;
    const void *from;
    uint64_t bytes;
    fake_cuda_event *event;
    uint64_t generation;
    berthi_launch launch;
    void (*call)(void *user);
    void *user;
} fake_cuda_work;

/* A stream. */
typedef struct fake_cuda_line {
    struct fake_cuda_line *next;
    const void *handle;
    uint64_t number;   /* no other one ever has it */
    uint64_t capture;  /* 0: none */
    int device;
    bool is_first;     /* a GPU's own */
    bool is_destroyed; /* its work goes on */
    bool is_hung;
    fake_cuda_work *head;
    fake_cuda_work *tail;
} fake_cuda_line;

typedef struct fake_cuda_stretch {
    struct fake_cuda_stretch *next;
    uint8_t *memory;
    uint64_t bytes;
    int device;
} fake_cuda_stretch;

typedef struct fake_cuda_state {
    pthread_mutex_t lock;
    fake_cuda_machine machine;
    int contexts[2 * FAKE_CUDA_GPUS]; /* nothing but their addresses: the runtime's, others */
    uint64_t free_bytes[FAKE_CUDA_GPUS];
    bool reaches[FAKE_CUDA_GPUS][FAKE_CUDA_GPUS];
    int ended[FAKE_CUDA_GPUS]; /* the error of a GPU that is no more */
    uint32_t room_bytes[FAKE_CUDA_GPUS][KERNEL_COUNT]; /* that launches may have there */
    fake_cuda_stretch *allocations;
    fake_cuda_stretch *pins;
    fake_cuda_line *streams;
    fake_cuda_event *events;
    uint64_t stream_count;    /* so far, and of captures */
    uint64_t capture_count;
    const void *spare_handle; /* of the stream that was destroyed last */
    bool is_reusing;
    fake_cuda_books books;
    uint64_t called;
    uint64_t called_within; /* of these, not about which GPU is current */
    uint64_t failures;
    uint64_t nth;
    int code;
    int kernel_code;
    bool is_armed;
    bool is_within; /* `nth` is one of those */
    bool is_persistent;
    bool is_half;
    bool skips_kernels;
    bool is_hung;
} fake_cuda_state;

extern fake_cuda_state fake_cuda_now;
extern _Thread_local int fake_cuda_device; /* the current one */
extern _Thread_local int fake_cuda_chosen; /* what is so without a context */
extern _Thread_local bool fake_cuda_has_context; /* of the current one */
extern _Thread_local bool fake_cuda_has_other; /* and not the runtime's */
extern _Thread_local int fake_cuda_error;  /* the last one */
extern _Thread_local int fake_cuda_mode;   /* of captures */

/* ---------------------------------------------------------------- fake_cuda_state.c */

/* What every call begins with: 0, or what it has to return. The lock is taken. */
int fake_cuda_enter(void);
/* The same for calls about which GPU is current. */
int fake_cuda_enter_choice(void);
/* The same for calls about handles: a thread that has no context gets one for them. */
int fake_cuda_enter_context(void);
/* The same for calls about the current GPU: one that has ended says so. */
int fake_cuda_enter_current(void);
/* Returns `code`. */
int fake_cuda_leave(int code);
int fake_cuda_misuse(int code);
/* What launches with matrices are to be given. */
void fake_cuda_tiles(void);

/* --------------------------------------------- everything below holds the lock */

/* The thread's context is this GPU's, which begins where it has none. */
void fake_cuda_use_context(int device);
/* A stretch that has all of these bytes; NULL: none has. */
fake_cuda_stretch *fake_cuda_find_memory(fake_cuda_stretch *list, const void *at,
                                         uint64_t bytes);
/* Takes out what begins there; NULL: nothing does. */
fake_cuda_stretch *fake_cuda_take_memory(fake_cuda_stretch **list, const void *at);

/* NULL: it is not there. */
fake_cuda_line *fake_cuda_find_stream(const void *handle);
/* Enters, as fake_cuda_enter_context(), for this stream. NULL: what is then returned is said. */
fake_cuda_line *fake_cuda_enter_stream(const void *handle, int *out_code);
fake_cuda_line *fake_cuda_add_stream(int device, bool is_first);
/* One piece of work of the first stream that has some; that one is then the last. */
bool fake_cuda_can_step(void);
/* The last of the stream; at once where the machine is so. */
int fake_cuda_add_work(void *handle, const fake_cuda_work *what);
/* All of it is memory of the stream's GPU. */
bool fake_cuda_holds(const void *handle, const void *at, uint64_t bytes);
/* Shared memory that a CTA may have on this machine's GPUs. */
uint32_t fake_cuda_most_room(void);

/* -------------------------------------------------------------- fake_cuda_capture.c */

/* 0, or what a call returns that no capture bears, but for calls that stand apart of it. */
int fake_cuda_check_capture(void);
/* Also for those. */
int fake_cuda_check_all_captures(void);
/* A stream that waits for an event may come into its capture by that. */
int fake_cuda_capture_wait(fake_cuda_line *s, const fake_cuda_event *e);

/* The calls of each file. */
void fake_cuda_fill_captures(berthi_cuda_calls *calls);
void fake_cuda_fill_memory(berthi_cuda_calls *calls);
void fake_cuda_fill_streams(berthi_cuda_calls *calls);
void fake_cuda_fill_copies(berthi_cuda_calls *calls);

#endif
