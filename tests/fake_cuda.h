/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.h - the CUDA runtime's calls without a GPU: device memory is malloc's, kernels
 * are run by the lanes of simt.h.
 *
 * Work of a stream is done when somebody asks for a stream, an event or the device, a
 * piece at each question; or at once. What the runtime leaves open goes against the
 * caller: copies read and write host memory late, also what is not pinned, streams take
 * turns, a failing call may have done half of its work, and NOT_READY stays behind as the
 * thread's last error. The host memory of a copy is all of one registration, or of none.
 * What is given back is gone, whatever the call returns. What is captured is done all the same.
 */
#ifndef BERTH_TESTS_FAKE_CUDA_H
#define BERTH_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda_calls.h"

#define FAKE_CUDA_GPUS 4u

typedef struct fake_cuda_machine {
    uint32_t count;         /* of GPUs */
    int driver;             /* 13000; 0: there is none */
    int architecture;       /* 90 */
    uint64_t memory_bytes;  /* of each */
    bool is_late;
    bool is_apart;          /* no GPU reaches another's memory */
} fake_cuda_machine;

/* Forgets everything: machine, failures, what was never given back. */
void fake_cuda_begin(const fake_cuda_machine *machine);
void fake_cuda_end(void);
/* Built for sm_86 and sm_90, with PTX of 90. */
const berthi_cuda_calls *fake_cuda_calls(void);

/*
 * The `nth` call from now returns `code` (0 = the next); `is_persistent`: all later ones,
 * too, and no work is done any more. Errors that end a GPU end the current one for good.
 */
void fake_cuda_fail(uint64_t nth, int code, bool is_persistent);
/* The same of what a call is made of beside finding out, and saying, which GPU is current. */
void fake_cuda_fail_within(uint64_t nth, int code);
/* A call of set_device() that fails has set it all the same. */
void fake_cuda_fail_half(bool is_half);
/* Kernels are only counted when their turn comes, since begin. */
void fake_cuda_skip_kernels(void);
void fake_cuda_disarm(void);
uint64_t fake_cuda_called(void);   /* since begin, fail or disarm */
uint64_t fake_cuda_failures(void); /* the same: calls that were made to fail */
/* Nothing that streams were asked for is done any more. */
void fake_cuda_hang(bool is_hung);
/* The same of this one; others go on. */
void fake_cuda_hang_stream(const void *stream);
/* Of work that is done late: the next kernel ends its GPU with `code`. */
void fake_cuda_fail_kernel(int code);
/* What this thread finds as its last error. */
void fake_cuda_leave_error(int code);
int fake_cuda_error_left(void);
int fake_cuda_current(void);
void fake_cuda_make_current(int device);
/* As if this thread had never chosen one: the first is current, and has no context here. */
void fake_cuda_make_none_current(void);
bool fake_cuda_has_current(void);
/* A context that the caller has made of the GPU, beside the runtime's; calls in it are misuses. */
void fake_cuda_make_other_current(int device);
bool fake_cuda_has_other_current(void);

/* What is there now, and what has been done. */
typedef struct fake_cuda_books {
    uint64_t allocations;
    uint64_t pins;
    uint64_t streams;
    uint64_t events;
    uint64_t launches;  /* of kernels that were run */
    uint64_t launched[KERNEL_COUNT]; /* of each of them */
    uint64_t overlapping; /* launches that were asked for so */
    uint64_t under_way; /* pieces of work */
    uint64_t misuses;   /* of memory and handles that are not there */
    uint64_t stuck;     /* memory that was unpinned while a GPU hung: a driver waits for that */
    uint64_t untouched; /* pages of host memory that were pinned before anybody used them */
    uint64_t peer_copies; /* that were asked for */
    uint64_t switches;  /* of the current device */
    bool has_context[FAKE_CUDA_GPUS]; /* there ever was one */
} fake_cuda_books;

fake_cuda_books fake_cuda_read(void);
/* Checks that everything was given back, and nothing misused. */
void fake_cuda_check_empty(void);
/* A stream that the caller has made without berth, of GPU 0. */
void *fake_cuda_stream(void);
/* Each time another thread's own, all of them by one handle; those before go on. */
void *fake_cuda_stream_of_thread(void);
/* The next stream has the handle of the one that was destroyed last, which may be busy. */
void fake_cuda_reuse_handles(bool is_reusing);
/*
 * What the stream is asked for from now on is captured in a graph, until that ends. Meanwhile
 * calls that a capture does not bear are misuses, whatever they are about, unless they stand apart
 * of it.
 */
void fake_cuda_begin_capture(void *stream);
void fake_cuda_end_capture(void *stream);
bool fake_cuda_is_pinned(const void *memory);

/* For a library that is not the runtime: work of a stream, which no call of ours is. */
int fake_cuda_push(void (*call)(void *user), void *user, void *stream);
/* All of it is memory of the stream's GPU. */
bool fake_cuda_is_on(const void *stream, const void *memory, uint64_t bytes);

#endif
