/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_device.h - GPUs by the CUDA runtime: what their files share.
 *
 *   device_cuda.c    the table of calls
 *   cuda_runtime.c   the calls of the runtime (cuda_calls.h), where the toolkit is
 *   cuda_driver.c    calls of the driver that the runtime has no name for
 *   cuda_stream.c    streams and events
 *   cuda_open.c      which GPUs there are, and which are meant
 *   cuda_call.c      the caller's current device, failures, waiting
 *   cuda_pin.c       host memory that is registered
 *   cuda_launch.c    operations as launches of kernels
 *   cuda_multiply.c  products: by cuBLASLt, or by kernels some inputs at a time
 *   cuda_peer.c      one GPU's memory reached from another
 *   cuda_links.c     what connects a GPU
 *   nvml_open.c      the driver's library for management, opened then (nvml_calls.h)
 *   nvlink.c         what it tells of NVLink
 *   gemm_open.c      cuBLASLt, opened when it is first needed (gemm_calls.h)
 *   gemm_lt.c        products of many inputs by cuBLASLt
 *   gemm_plan.c      how it computes each of them
 *   gemm_room.c      memory, events and a stream for them
 *   gemm_slab.c      the same of weights of 4 bits
 *   gemm_wide.c      the same by kernels that need no library
 *
 * Every call makes its device the thread's current one and puts back what it has found, be it
 * that the thread has never had one. A stream is the runtime's own, so that callers can bring
 * theirs.
 *
 * Calls are no part of what other streams capture, and do not spoil it.
 *
 * Some errors end a GPU for this process: from then on every call says so without asking
 * the runtime. Giving back goes on; what the GPU may still be busy with when it has been
 * given up is left alone for good.
 */
#ifndef BERTH_KERNELS_CUDA_DEVICE_H
#define BERTH_KERNELS_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda_calls.h"
#include "kernels/device.h"
#include "kernels/device_words.h"

/* How long stop() waits for what is under way. */
#define BERTHI_CUDA_PATIENCE_NS UINT64_C(1000000000)

typedef struct berthi_cuda_device berthi_cuda_device;
typedef struct berthi_gemm berthi_gemm; /* gemm_lt.h */

/* One that berth has made; what a caller brings is in no list. */
typedef struct berthi_cuda_stream berthi_cuda_stream;
struct berthi_cuda_stream {
    berthi_cuda_stream *next;
    void *handle;
};

/* Whether another GPU's memory is reached. */
typedef enum berthi_cuda_peer {
    BERTHI_CUDA_PEER_UNKNOWN,
    BERTHI_CUDA_PEER_REACHED,
    BERTHI_CUDA_PEER_OUT_OF_REACH
} berthi_cuda_peer;

struct berthi_event {
    berthi_cuda_device *owner;
    void *handle;
};

struct berthi_cuda_device {
    berthi_device base;
    berthi_cuda *machine;
    char name[16];
    berthi_cuda_properties properties;
    bool has_kernels;
    _Atomic bool may_have_room[KERNEL_COUNT]; /* launches of these kernels */
    uint32_t capability;         /* what kernels that run here were made for: 90 is sm_90 */
    _Atomic bool has_used_first; /* the NULL stream */
    _Atomic bool is_lost;        /* once `failure` says why */
    char failure[160];
    pthread_mutex_t lock;        /* of what follows, and of becoming lost */
    bool has_lock;
    _Atomic(void *) context; /* the runtime's own; NULL: not needed so far */
    berthi_cuda_stream *streams;
    pthread_mutex_t peer_lock;
    bool has_peer_lock;
    uint8_t peers[BERTHI_DEVICES_LIMIT]; /* berthi_cuda_peer, by number; of peer_lock */
    berthi_gemm *gemm; /* NULL: not needed so far */
    berthi_nvlinks nvlinks; /* of links_lock */
};

/* Registered for all GPUs at once: each of them may ask for it. */
typedef struct berthi_cuda_pin {
    void *memory;
    uint64_t bytes;
    uint32_t users;
} berthi_cuda_pin;

struct berthi_cuda {
    berth_context *context;
    const berthi_cuda_calls *calls;
    berthi_cuda_contexts contexts;
    bool has_contexts;
    berthi_cuda_tiles *tiles; /* NULL: there are no kernels that copy tiles */
    bool may_overlap;         /* launches, also those that graphs capture */
    _Atomic bool has_told; /* that a caller's current device could not be put back */
    _Atomic bool has_hung; /* a GPU has not ended what it was busy with */
    pthread_mutex_t pin_lock; /* one registers at a time, which takes a while */
    bool has_pin_lock;
    /* Of what follows; who changes it holds the other, too: copies look while one registers. */
    pthread_mutex_t pins_lock;
    berthi_cuda_pin *pins; /* in the order of their addresses */
    uint64_t pin_count;
    uint64_t pin_capacity;
    pthread_mutex_t links_lock;
    bool has_nvlinks; /* every device's have been asked for; of links_lock */
    uint32_t count;
    berthi_cuda_device *devices[BERTHI_DEVICES_LIMIT];
};

extern const berthi_device_table berthi_cuda_table;

static inline berthi_cuda_device *
berthi_cuda_of(berthi_device *device)
{
    return (berthi_cuda_device *)device;
}

/* ------------------------------------------------------------- one call, cuda_call.c */

typedef struct berthi_cuda_call {
    berthi_cuda_device *device;
    const berthi_cuda_calls *calls;
    const char *what; /* "a copy" */
    berth_error *error;
    void *context;    /* the caller's current one, or NULL; where the driver tells */
    int found;        /* where it is not known, or NULL: the caller's current device */
    int capture_mode; /* of the caller's calls */
    bool is_apart;    /* those of berth have another one */
    bool is_changed;
    bool is_back; /* gives something back: whether the device is lost does not matter */
} berthi_cuda_call;

/* Whatever it returns, berthi_cuda_leave() follows. */
berth_status berthi_cuda_enter(berthi_cuda_call *call, berthi_device *device,
                               const char *what, berth_error *error);
/* The same to give something back: also on a device that is lost; failures are noted. */
void berthi_cuda_enter_back(berthi_cuda_call *call, berthi_device *device);
/* Returns `status`. */
berth_status berthi_cuda_leave(berthi_cuda_call *call, berth_status status);

/* What the runtime has returned; NOT_READY is a failure here. */
berth_status berthi_cuda_judge(const berthi_cuda_call *call, int code);
/* Of a call that is about another GPU, too, of which either may have ended. */
berth_status berthi_cuda_judge_both(const berthi_cuda_call *call, berthi_cuda_device *other,
                                    int code);
/* DEVICE_LOST when it is. */
berth_status berthi_cuda_check(const berthi_cuda_device *device, berth_error *error);
/* `what` may be NULL. The first reason counts. */
void berthi_cuda_lose(berthi_cuda_device *device, const char *what, const char *why);
/* The same with the device's lock held. */
void berthi_cuda_lose_locked(berthi_cuda_device *device, const char *what, const char *why);
/* Until `query` says that it is over; PENDING at the deadline. */
berth_status berthi_cuda_poll(const berthi_cuda_call *call, int (*query)(void *handle),
                              void *handle, uint64_t deadline_ns);

/*
 * Until everything in the stream is over. Where the runtime does not answer that, all of
 * the device is waited for, and the failure told.
 */
berth_status berthi_cuda_drain(const berthi_cuda_call *call, void *stream);
/* The same of what the stream has been asked for so far: others may go on asking. */
berth_status berthi_cuda_await_so_far(const berthi_cuda_call *call, void *stream);

/* ---------------------------------------- streams and events, as a table has them */

berth_status berthi_cuda_stream_create(berthi_device *device, berthi_stream **out,
                                       berth_error *error);
void berthi_cuda_stream_destroy(berthi_device *device, berthi_stream *stream);
berth_status berthi_cuda_event_create(berthi_device *device, berthi_event **out,
                                      berth_error *error);
void berthi_cuda_event_destroy(berthi_device *device, berthi_event *event);
berth_status berthi_cuda_record(berthi_device *device, berthi_event *event,
                                berthi_stream *stream, berth_error *error);
berth_status berthi_cuda_wait(berthi_device *device, berthi_stream *stream,
                              berthi_event *event, berth_error *error);
berth_status berthi_cuda_query(berthi_device *device, berthi_event *event,
                               bool *out_is_past, berth_error *error);
berth_status berthi_cuda_await(berthi_device *device, berthi_event *event,
                               uint64_t deadline_ns, berth_error *error);

/* -------------------------------------------------------------------------- pinning */

berth_status berthi_cuda_pin_add(const berthi_cuda_call *call, void *memory,
                                 uint64_t bytes);
void berthi_cuda_pin_remove(const berthi_cuda_call *call, void *memory, uint64_t bytes);
/*
 * Of these bytes of host memory, those from `at` on that one copy can take: the runtime
 * refuses a copy that lies in two registrations, or in one and in memory that is in none.
 */
uint64_t berthi_cuda_pin_span(berthi_cuda *machine, const void *at, uint64_t bytes);
/* The list; what is in it was given back before. */
void berthi_cuda_pin_fini(berthi_cuda *machine);

/* ---------------------------------------------------------------------------- peers */

/* Asked for once; the runtime knows no better later. */
bool berthi_cuda_reaches(berthi_device *device, berthi_device *other);
/* `copy->peer` is reached. */
berth_status berthi_cuda_copy_to_peer(const berthi_cuda_call *call, const berthi_copy *copy,
                                      berthi_stream *stream);

/* ---------------------------------------------------------------------------- links */

/* NVLink of all GPUs is asked for at once, and once: NVML takes a while to begin. */
void berthi_cuda_find_links(berthi_device *device, berthi_device_links *out);

/* ------------------------------------------------------------------------- launches */

#define BERTHI_CUDA_LAUNCHES 3u

#define BERTHI_CUDA_ADVICE 48u

/* What is to be done for one of this architecture, which a build has no kernels for: its words. */
const char *berthi_cuda_advise(const berthi_cuda_calls *calls, int32_t architecture,
                               char out[BERTHI_CUDA_ADVICE]);

/*
 * What a request is, in order; KERNEL_NONE where it is less. UNSUPPORTED: operations, sizes,
 * dtypes and addresses that no kernel takes.
 */
berth_status berthi_cuda_plan_launches(const berthi_cuda_device *device,
                                       const berthi_request *request,
                                       berthi_launch out[BERTHI_CUDA_LAUNCHES],
                                       berth_error *error);
/* One, in a call that has been entered, and so is what follows. */
berth_status berthi_cuda_start(const berthi_cuda_call *call, const berthi_launch *launch,
                               berthi_stream *stream);
/* All of them. */
berth_status berthi_cuda_launch(const berthi_cuda_call *call, const berthi_request *request,
                                berthi_stream *stream);

/* Of NF4 or FP4, for a question about its bits: product_ring.cuh has others. */
bool berthi_cuda_groups_experts(const berthi_cuda_device *device,
                                const berthi_experts_arguments *arguments);

/* Weights of 4 bits, numbers, codes of LLM.int8(); not of experts. */
bool berthi_cuda_is_product(int32_t operation);
/*
 * Of any number of inputs: from berthi_gemm_least_inputs() on by cuBLASLt, where that can, 4-bit
 * weights of more than few by kernels that have many, where there are such. A graph may capture
 * it: see gemm_lt.h.
 */
berth_status berthi_cuda_multiply(const berthi_cuda_call *call,
                                  const berthi_request *request, berthi_stream *stream);

/* Each as by berthi_cuda_multiply(), but in one grid where berthi_launch_join_products() can. */
berth_status berthi_cuda_multiply_together(const berthi_cuda_call *call,
                                           const berthi_request *requests, uint32_t count,
                                           berthi_stream *stream);

#endif
