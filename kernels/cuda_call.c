/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_call.c - one call on a GPU: the caller's device, failures, waiting; see cuda_device.h. */
#include <stdio.h>

#include "kernels/cuda_device.h"
#include "kernels/sys.h"

/* Answers come within microseconds or take long: first asked at once, then less and less often. */
#define POLLS_AT_ONCE 64u
#define PAUSE_NS UINT64_C(10000)
#define LONGEST_PAUSE_NS UINT64_C(100000)

/* ------------------------------------------------------------------------- failures */

/* Errors after which the runtime refuses everything on this device for this process. */
static bool
is_end(int code)
{
    switch (code) {
    case BERTHI_CUDA_UNLOADING:
    case BERTHI_CUDA_ECC:
    case BERTHI_CUDA_NVLINK:
    case BERTHI_CUDA_CONTAINED:
    case BERTHI_CUDA_ILLEGAL_ADDRESS:
    case BERTHI_CUDA_TIMEOUT:
    case BERTHI_CUDA_DESTROYED:
    case BERTHI_CUDA_ASSERT:
    case BERTHI_CUDA_STACK:
    case BERTHI_CUDA_INSTRUCTION:
    case BERTHI_CUDA_MISALIGNED:
    case BERTHI_CUDA_ADDRESS_SPACE:
    case BERTHI_CUDA_COUNTER:
    case BERTHI_CUDA_LAUNCH:
    case BERTHI_CUDA_TENSOR_LEAK:
    case BERTHI_CUDA_MPS_CLIENT:
    case BERTHI_CUDA_EXTERNAL_DEVICE: return true;
    default: return false;
    }
}

static berth_reason
reason_of(int code)
{
    switch (code) {
    case BERTHI_CUDA_NO_MEMORY: return BERTH_REASON_NO_MEMORY;
    case BERTHI_CUDA_NO_FUNCTION:
    case BERTHI_CUDA_NO_IMAGE:
    case BERTHI_CUDA_INVALID_PTX:
    case BERTHI_CUDA_NO_COMPILER:
    case BERTHI_CUDA_OLD_PTX_COMPILER:
    case BERTHI_CUDA_NO_COMPILING:
    case BERTHI_CUDA_UNSUPPORTED: return BERTH_REASON_UNSUPPORTED;
    default: return BERTH_REASON_DEVICE;
    }
}

void
berthi_cuda_lose_locked(berthi_cuda_device *device, const char *what, const char *why)
{
    if (atomic_load(&device->is_lost))
        return;
    snprintf(device->failure, sizeof device->failure, "%s%s%s", what != NULL ? what : "",
             what != NULL ? ": " : "", why);
    atomic_store(&device->is_lost, true); /* `failure` does not change any more */
}

void
berthi_cuda_lose(berthi_cuda_device *device, const char *what, const char *why)
{
    if (atomic_load(&device->is_lost))
        return;
    pthread_mutex_lock(&device->lock);
    berthi_cuda_lose_locked(device, what, why);
    pthread_mutex_unlock(&device->lock);
}

berth_status
berthi_cuda_check(const berthi_cuda_device *device, berth_error *error)
{
    if (!atomic_load(&device->is_lost))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_DEVICE_LOST, NULL, "%s: %s", device->name,
                       device->failure);
}

/* Of a call that ends nothing. */
static berth_status
fail(const berthi_cuda_call *call, int code)
{
    const char *const words = call->calls->error_words(code);

    /* The caller shall not find a failure of ours behind its own next call. */
    (void)call->calls->last_error();
    return berthi_fail(call->error, reason_of(code), NULL, "%s: %s: %s", call->device->name,
                       call->what, words);
}

berth_status
berthi_cuda_judge(const berthi_cuda_call *call, int code)
{
    if (code == BERTHI_CUDA_OK)
        return BERTH_OK;
    if (!is_end(code))
        return fail(call, code);
    berthi_cuda_lose(call->device, call->what, call->calls->error_words(code));
    (void)call->calls->last_error();
    return berthi_cuda_check(call->device, call->error);
}

/* The runtime does not say which of the two it is: the current one tells, asked for anything. */
berth_status
berthi_cuda_judge_both(const berthi_cuda_call *call, berthi_cuda_device *other, int code)
{
    berthi_cuda_call its = *call;
    uint64_t free_bytes;
    uint64_t total;

    if (is_end(code)
        && call->calls->memory_info(&free_bytes, &total) == BERTHI_CUDA_OK)
        its.device = other;
    return berthi_cuda_judge(&its, code);
}

/* ------------------------------------------------------------------- current device */

/* Never given back: nobody knows what else in the process relies on it. */
static int
find_context(berthi_cuda_device *device, void **out)
{
    const berthi_cuda_contexts *const contexts = &device->machine->contexts;
    int code;
    int number;

    *out = atomic_load(&device->context);
    if (*out != NULL)
        return BERTHI_CUDA_OK;
    code = contexts->find_device(&number, device->base.ordinal);
    if (code == BERTHI_CUDA_OK)
        code = contexts->retain(out, number);
    if (code == BERTHI_CUDA_OK)
        atomic_store(&device->context, *out);
    return code;
}

/*
 * What the caller has current, and whether the runtime's calls go to its own context of the device
 * by that: where a thread has none they begin it. One that the caller has made of the same GPU by
 * the driver's calls is another, with memory and streams of its own.
 */
static int
find_current(berthi_cuda_call *call, bool *out_is_own)
{
    const berthi_cuda *const machine = call->device->machine;
    int code = BERTHI_CUDA_OK;

    if (machine->has_contexts)
        code = machine->contexts.current(&call->context);
    *out_is_own = call->context != NULL && call->context == atomic_load(&call->device->context);
    if (code != BERTHI_CUDA_OK || call->context != NULL)
        return code;
    code = call->calls->get_device(&call->found);
    *out_is_own = call->found == call->device->base.ordinal;
    return code;
}

/*
 * Since CUDA 12 to make a device current is also to begin a context on it, which takes some
 * hundred MB of its memory. A thread that has never chosen has device 0, on which there may be
 * none: so what is put back is the thread's context, or none. Where the driver does not tell,
 * it is the device, if it was another one. Also by a call that fails: it may have gone half way.
 */
static int
make_current(berthi_cuda_call *call)
{
    const berthi_cuda *const machine = call->device->machine;
    void *own;
    int code;

    if (!machine->has_contexts) {
        call->is_changed = true;
        return call->calls->set_device(call->device->base.ordinal);
    }
    code = find_context(call->device, &own);
    if (code != BERTHI_CUDA_OK || own == call->context)
        return code;
    call->is_changed = true;
    return machine->contexts.make_current(own);
}

/* What fails before the device is current says nothing of it: that of the caller may have ended. */
static berth_status
switch_device(berthi_cuda_call *call)
{
    bool is_own;
    const int code = find_current(call, &is_own);

    if (code != BERTHI_CUDA_OK)
        return fail(call, code);
    return is_own ? BERTH_OK : berthi_cuda_judge(call, make_current(call));
}

static int
put_back(const berthi_cuda_call *call)
{
    const berthi_cuda *const machine = call->device->machine;

    return machine->has_contexts ? machine->contexts.make_current(call->context)
                                 : call->calls->set_device(call->found);
}

/*
 * A capture of the default mode forbids all threads what it might miss: memory, and questions about
 * streams and events that have nothing to do with it. That is the caller's affair, not berth's.
 */
static void
stand_apart(berthi_cuda_call *call)
{
    call->capture_mode = BERTHI_CUDA_APART;
    call->is_apart = call->calls->capture_mode(&call->capture_mode) == BERTHI_CUDA_OK;
    if (!call->is_apart)
        (void)call->calls->last_error();
}

berth_status
berthi_cuda_enter(berthi_cuda_call *call, berthi_device *device, const char *what,
                  berth_error *error)
{
    berthi_cuda_device *const d = (berthi_cuda_device *)device;
    berth_status status = berthi_cuda_check(d, error);

    *call = (berthi_cuda_call){
        .device = d, .calls = d->machine->calls, .what = what, .error = error
    };
    if (status == BERTH_OK)
        status = switch_device(call);
    if (status == BERTH_OK)
        stand_apart(call);
    return status;
}

void
berthi_cuda_enter_back(berthi_cuda_call *call, berthi_device *device)
{
    berthi_cuda_device *const d = (berthi_cuda_device *)device;

    *call = (berthi_cuda_call){
        .device = d, .calls = d->machine->calls, .what = "giving back", .is_back = true
    };
    (void)switch_device(call);
    stand_apart(call);
}

/* Said once. */
static void
tell_left(const berthi_cuda_call *call, int code)
{
    berthi_cuda *const machine = call->device->machine;
    char what[16] = "a context";

    if (atomic_exchange(&machine->has_told, true))
        return;
    if (!machine->has_contexts)
        snprintf(what, sizeof what, "cuda:%d", call->found);
    berthi_log(machine->context, BERTH_LOG_WARNING,
               "%s, this thread's current %s, could not be made so again: %s", what,
               machine->has_contexts ? "one" : "device", call->calls->error_words(code));
}

/* That of the caller fails for reasons of its own device, which its next call will tell. */
berth_status
berthi_cuda_leave(berthi_cuda_call *call, berth_status status)
{
    int code;

    if (call->is_apart)
        (void)call->calls->capture_mode(&call->capture_mode);
    if (!call->is_changed || put_back(call) == BERTHI_CUDA_OK)
        return status;
    code = put_back(call);
    (void)call->calls->last_error();
    if (code != BERTHI_CUDA_OK)
        tell_left(call, code);
    return status;
}

/* -------------------------------------------------------------------------- waiting */

/*
 * The runtime's own waits know neither deadlines nor a device that is given up, so the
 * answer is asked for again and again.
 */
berth_status
berthi_cuda_poll(const berthi_cuda_call *call, int (*query)(void *handle), void *handle,
                 uint64_t deadline_ns)
{
    uint64_t pause_ns = PAUSE_NS;

    for (uint32_t polls = 1;; polls++) {
        const int code = query(handle);
        berth_status status = BERTH_OK;

        if (code != BERTHI_CUDA_NOT_READY)
            return berthi_cuda_judge(call, code);
        (void)call->calls->last_error(); /* the runtime takes it for a failure */
        if (!call->is_back)
            status = berthi_cuda_check(call->device, call->error);
        if (status != BERTH_OK)
            return status;
        if (berthi_sys_now_ns() >= deadline_ns)
            return BERTH_PENDING;
        if (polls < POLLS_AT_ONCE)
            continue;
        berthi_sys_sleep(pause_ns);
        pause_ns = berthi_min_u64(pause_ns * 2, LONGEST_PAUSE_NS);
    }
}

/* As berthi_cuda_poll(). Where the runtime has no answer all of the device is waited for. */
static berth_status
await_end(const berthi_cuda_call *call, int (*query)(void *handle), void *handle,
          uint64_t deadline_ns)
{
    const berth_status status = berthi_cuda_poll(call, query, handle, deadline_ns);
    berthi_cuda_call quiet = *call;

    if (status == BERTH_OK || status == BERTH_PENDING || atomic_load(&call->device->is_lost))
        return status;
    quiet.error = NULL;
    (void)berthi_cuda_judge(&quiet, call->calls->synchronize());
    return status;
}

berth_status
berthi_cuda_drain(const berthi_cuda_call *call, void *stream)
{
    return await_end(call, call->calls->stream_query, stream, UINT64_MAX);
}

/* By an event where it has not ended yet; where there is none, the stream's end is waited for. */
berth_status
berthi_cuda_await_so_far(const berthi_cuda_call *call, void *stream)
{
    berthi_cuda_call quiet = *call;
    void *event;
    berth_status status = await_end(call, call->calls->stream_query, stream, 0);

    if (status != BERTH_PENDING)
        return status;
    quiet.error = NULL;
    if (berthi_cuda_judge(&quiet, call->calls->event_create(&event)) != BERTH_OK)
        return berthi_cuda_drain(call, stream);
    status = berthi_cuda_judge(&quiet, call->calls->event_record(event, stream));
    status = status == BERTH_OK ? await_end(call, call->calls->event_query, event, UINT64_MAX)
                                : berthi_cuda_drain(call, stream);
    (void)berthi_cuda_judge(&quiet, call->calls->event_destroy(event));
    return status;
}
