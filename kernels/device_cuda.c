/* SPDX-License-Identifier: Apache-2.0 */
/* device_cuda.c - GPUs by the CUDA runtime: the calls; see cuda_device.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda_device.h"
#include "kernels/digest.h"
#include "kernels/sys.h"

/* What a digest brings to the host at once. */
#define DIGEST_BYTES (UINT64_C(1) << 20)

#define GIVEN_UP "the device has been given up"

/* What is about to be put into the device's first stream is waited for at the end. */
static void
note_stream(const berthi_cuda_call *call, const berthi_stream *stream)
{
    if (stream == NULL)
        atomic_store(&call->device->has_used_first, true);
}

/* -------------------------------------------------------------------- properties */

static void
cuda_describe(berthi_device *device, berthi_device_properties *out)
{
    berthi_cuda_device *const d = berthi_cuda_of(device);
    const berthi_cuda_properties *const p = &d->properties;
    uint64_t total;
    berthi_cuda_call call;
    berth_status status;

    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->description, sizeof out->description,
             "%.52s, sm_%" PRId32 "%" PRId32 ", %04" PRIx32 ":%02" PRIx32 ":%02" PRIx32 ".0%s",
             p->name, p->major, p->minor, (uint32_t)p->pci_domain, (uint32_t)p->pci_bus,
             (uint32_t)p->pci_device, d->has_kernels ? "" : ", no kernels");
    out->memory_bytes = p->memory_bytes;
    out->numa_node = p->numa_node;
    out->copy_engines = p->copy_engines > 0 ? (uint32_t)p->copy_engines : 0;
    status = berthi_cuda_enter(&call, device, "asking for free memory", NULL);
    if (status == BERTH_OK)
        status = berthi_cuda_judge(&call,
                                   call.calls->memory_info(&out->free_bytes, &total));
    if (berthi_cuda_leave(&call, status) != BERTH_OK)
        out->free_bytes = UINT64_MAX;
}

static uint64_t
cuda_now_ns(berthi_device *device)
{
    (void)device;
    return berthi_sys_now_ns();
}

/* ------------------------------------------------------------------------ memory */

static berth_status
fail_room(const berthi_cuda_call *call, uint64_t bytes)
{
    berthi_about about = { .has = BERTH_HAS_EXPECTED | BERTH_HAS_BYTES, .expected = bytes };
    uint64_t total;

    (void)call->calls->last_error();
    if (call->calls->memory_info(&about.actual, &total) != BERTHI_CUDA_OK) {
        (void)call->calls->last_error();
        return berthi_fail(call->error, BERTH_REASON_NO_FIT, &about,
                           "%s: %" PRIu64 " bytes wanted, which it does not have",
                           call->device->name, bytes);
    }
    about.has |= BERTH_HAS_ACTUAL;
    return berthi_fail(call->error, BERTH_REASON_NO_FIT, &about,
                       "%s: %" PRIu64 " bytes wanted, %" PRIu64 " free", call->device->name,
                       bytes, about.actual);
}

static berth_status
cuda_alloc(berthi_device *device, uint64_t bytes, void **out, berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "an allocation", error);
    void *memory = NULL;

    if (status == BERTH_OK) {
        const int code = call.calls->alloc(&memory, berthi_max_u64(bytes, 1));

        status = code == BERTHI_CUDA_NO_MEMORY ? fail_room(&call, bytes)
                                               : berthi_cuda_judge(&call, code);
    }
    *out = status == BERTH_OK ? memory : NULL;
    return berthi_cuda_leave(&call, status);
}

/* The runtime waits for all that is under way: not for what hangs. */
static void
cuda_free(berthi_device *device, void *memory, uint64_t bytes)
{
    berthi_cuda_call call;

    (void)bytes;
    if (memory == NULL || atomic_load(&berthi_cuda_of(device)->machine->has_hung))
        return;
    berthi_cuda_enter_back(&call, device);
    (void)berthi_cuda_judge(&call, call.calls->free(memory));
    berthi_cuda_leave(&call, BERTH_OK);
}

static berth_status
cuda_pin(berthi_device *device, void *memory, uint64_t bytes, berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "pinning memory", error);

    if (status == BERTH_OK)
        status = berthi_cuda_pin_add(&call, memory, bytes);
    return berthi_cuda_leave(&call, status);
}

static void
cuda_unpin(berthi_device *device, void *memory, uint64_t bytes)
{
    berthi_cuda_call call;

    berthi_cuda_enter_back(&call, device);
    berthi_cuda_pin_remove(&call, memory, bytes);
    berthi_cuda_leave(&call, BERTH_OK);
}

/* -------------------------------------------------------------------------- work */

/* Of a copy that has failed something may be under way all the same. */
static void
drain_after_failure(const berthi_cuda_call *call, berthi_stream *stream)
{
    berthi_cuda_call quiet = *call;

    quiet.error = NULL; /* the first failure is the one to be told */
    (void)berthi_cuda_await_so_far(&quiet, stream);
}

/*
 * Whether the runtime has read or written the host side when it returns depends on the
 * driver and the machine, so what is not pinned is waited for; also when the copy has
 * failed, since nobody knows how far it has come. Not for what others ask of the stream
 * meanwhile: that may wait for them.
 */
static berth_status
copy_unpinned(const berthi_cuda_call *call, const berthi_copy *copy, berthi_stream *stream)
{
    const int code =
        call->calls->copy(copy->to, copy->from, copy->bytes, copy->kind, stream);
    const berth_status asked = berthi_cuda_judge(call, code);

    if (asked == BERTH_OK)
        return berthi_cuda_await_so_far(call, stream);
    drain_after_failure(call, stream);
    return asked;
}

static berth_status
copy_piece(const berthi_cuda_call *call, const berthi_copy *copy, berthi_stream *stream)
{
    if (!copy->is_pinned && copy->kind != BERTHI_COPY_WITHIN)
        return copy_unpinned(call, copy, stream);
    return berthi_cuda_judge(call, call->calls->copy(copy->to, copy->from, copy->bytes,
                                                     copy->kind, stream));
}

/*
 * Its host side may go on from one registration into the next, which the runtime refuses.
 * Where a piece fails those before it are waited for, since nobody else knows of them.
 */
static berth_status
copy_pieces(const berthi_cuda_call *call, const berthi_copy *copy, berthi_stream *stream)
{
    berthi_cuda *const machine = call->device->machine;
    berthi_copy piece = *copy;
    berth_status status;

    for (uint64_t at = 0; at < copy->bytes; at += piece.bytes) {
        piece.to = (uint8_t *)copy->to + at;
        piece.from = (const uint8_t *)copy->from + at;
        piece.bytes = copy->bytes - at;
        if (copy->kind != BERTHI_COPY_WITHIN)
            piece.bytes = berthi_cuda_pin_span(
                machine, copy->kind == BERTHI_COPY_TO_DEVICE ? piece.from : piece.to,
                piece.bytes);
        status = copy_piece(call, &piece, stream);
        if (status == BERTH_OK)
            continue;
        if (at > 0)
            drain_after_failure(call, stream);
        return status;
    }
    return BERTH_OK;
}

static berth_status
cuda_copy(berthi_device *device, const berthi_copy *copy, berthi_stream *stream,
          berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "a copy", error);

    if (status == BERTH_OK && copy->bytes > 0) {
        note_stream(&call, stream);
        status = copy->kind == BERTHI_COPY_TO_PEER
                     ? berthi_cuda_copy_to_peer(&call, copy, stream)
                     : copy_pieces(&call, copy, stream);
    }
    return berthi_cuda_leave(&call, status);
}

static berth_status
cuda_clear(berthi_device *device, void *memory, uint64_t bytes, berthi_stream *stream,
           berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "zeroing memory", error);

    if (status == BERTH_OK && bytes > 0) {
        note_stream(&call, stream);
        status = berthi_cuda_judge(&call, call.calls->clear(memory, bytes, stream));
    }
    return berthi_cuda_leave(&call, status);
}

static berth_status
check_kernels(const berthi_cuda_call *call)
{
    const int32_t its = 10 * call->device->properties.major + call->device->properties.minor;
    char advice[BERTHI_CUDA_ADVICE];

    if (call->device->has_kernels)
        return BERTH_OK;
    return berthi_fail(call->error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s: no kernels for sm_%" PRId32 " are built in; %s",
                       call->device->name, its, berthi_cuda_advise(call->calls, its, advice));
}

_Static_assert(BERTHI_WRITE_BYTES == WRITE_WORDS * sizeof(uint32_t), "a launch has room");

static berth_status
cuda_write(berthi_device *device, void *to, const void *from, uint64_t bytes,
           berthi_stream *stream, berth_error *error)
{
    berthi_cuda_call call;
    berthi_launch launch;
    berth_status status = berthi_cuda_enter(&call, device, "writing to memory", error);

    if (status == BERTH_OK)
        status = check_kernels(&call);
    if (status == BERTH_OK)
        status = berthi_launch_write(to, from, bytes, &launch, error);
    if (status == BERTH_OK && launch.kernel != KERNEL_NONE) {
        note_stream(&call, stream);
        status = berthi_cuda_start(&call, &launch, stream);
    }
    return berthi_cuda_leave(&call, status);
}

static bool
cuda_groups_experts(const berthi_device *device, const berthi_request *request)
{
    return berthi_cuda_groups_experts((const berthi_cuda_device *)device,
                                      &request->arguments.experts);
}

static bool
cuda_has_operation(const berthi_device *device, int32_t operation)
{
    if (operation == BERTHI_OPERATION_CALL)
        return true;
    return berthi_operation_is_known(operation)
           && ((const berthi_cuda_device *)device)->has_kernels;
}

static berth_status
launch_one(const berthi_cuda_call *call, const berthi_request *request, berthi_stream *stream)
{
    const berthi_call_arguments *const its = &request->arguments.call;
    berth_status status;

    if (request->operation == BERTHI_OPERATION_CALL)
        return berthi_cuda_judge(call, call->calls->call(its->call, its->user, stream));
    status = check_kernels(call);
    if (status != BERTH_OK)
        return status;
    return berthi_cuda_is_product(request->operation)
               ? berthi_cuda_multiply(call, request, stream)
               : berthi_cuda_launch(call, request, stream);
}

static berth_status
cuda_launch(berthi_device *device, const berthi_request *request, berthi_stream *stream,
            berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "an operation", error);

    if (status == BERTH_OK)
        status = berthi_operation_check(call.device->name, request, error);
    if (status == BERTH_OK) {
        note_stream(&call, stream);
        status = launch_one(&call, request, stream);
    }
    return berthi_cuda_leave(&call, status);
}

/* All are checked before the first is asked for. */
static berth_status
launch_several(const berthi_cuda_call *call, const berthi_request *requests, uint32_t count,
               berthi_stream *stream)
{
    bool are_products = true;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        status = berthi_operation_check(call->device->name, &requests[i], call->error);
        are_products = are_products && berthi_cuda_is_product(requests[i].operation);
    }
    if (status != BERTH_OK)
        return status;
    note_stream(call, stream);
    if (are_products) {
        status = check_kernels(call);
        return status == BERTH_OK
                   ? berthi_cuda_multiply_together(call, requests, count, stream)
                   : status;
    }
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = launch_one(call, &requests[i], stream);
    return status;
}

static berth_status
cuda_launch_together(berthi_device *device, const berthi_request *requests, uint32_t count,
                     berthi_stream *stream, berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "an operation", error);

    if (status == BERTH_OK)
        status = launch_several(&call, requests, count, stream);
    return berthi_cuda_leave(&call, status);
}

/* ------------------------------------------------------------------------- digests */

static berth_status
digest_pieces(const berthi_cuda_call *call, const uint8_t *memory, uint64_t bytes,
              uint8_t *piece, uint32_t *crc)
{
    berth_status status = berthi_cuda_judge(call, call->calls->synchronize());

    for (uint64_t at = 0; at < bytes && status == BERTH_OK; at += DIGEST_BYTES) {
        const berthi_copy copy = { .kind = BERTHI_COPY_TO_HOST,
                                   .to = piece,
                                   .from = memory + at,
                                   .bytes = berthi_min_u64(DIGEST_BYTES, bytes - at) };

        status = copy_unpinned(call, &copy, NULL);
        if (status == BERTH_OK)
            *crc = berthi_digest_crc32(*crc, piece, (size_t)copy.bytes);
    }
    return status;
}

static berth_status
cuda_digest(berthi_device *device, const void *memory, uint64_t bytes, uint32_t *out_crc,
            berth_error *error)
{
    const uint64_t room = berthi_max_u64(berthi_min_u64(DIGEST_BYTES, bytes), 1);
    uint8_t *const piece =
        berthi_memory_alloc(device->context, BERTHI_PURPOSE_OBJECT, room);
    uint32_t crc = 0;
    berthi_cuda_call call;
    berth_status status;

    *out_crc = 0;
    if (piece == NULL)
        return berthi_fail_memory(error, "bringing bytes of a device to the host");
    status = berthi_cuda_enter(&call, device, "a digest", error);
    if (status == BERTH_OK)
        status = digest_pieces(&call, memory, bytes, piece, &crc);
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, piece, room);
    if (status == BERTH_OK)
        *out_crc = crc;
    return berthi_cuda_leave(&call, status);
}

/* ------------------------------------------------------------------------- giving up */

/* True: it is over, or will never be: a GPU that has ended does nothing any more. */
static bool
await_end(const berthi_cuda_call *call, void *stream, uint64_t deadline_ns)
{
    berthi_cuda_call its = *call;
    berth_error error;
    berth_status status;

    its.error = &error;
    status = berthi_cuda_poll(&its, call->calls->stream_query, stream, deadline_ns);
    return status == BERTH_OK
           || (status != BERTH_PENDING && error.reason == BERTH_REASON_DEVICE_LOST);
}

/* True: no stream has had any work. To look at one is to begin a context, which takes a while. */
static bool
give_up_unused(berthi_cuda_device *device)
{
    bool is_unused;

    pthread_mutex_lock(&device->lock);
    is_unused = device->streams == NULL && !atomic_load(&device->has_used_first);
    if (is_unused)
        berthi_cuda_lose_locked(device, NULL, GIVEN_UP);
    pthread_mutex_unlock(&device->lock);
    return is_unused;
}

/*
 * No stream leaves the list from before the device is lost until all have been looked at.
 * Those that callers have made are not looked at: nobody knows whether their handles still
 * stand for something.
 */
static void
cuda_stop(berthi_device *device)
{
    const uint64_t deadline_ns = berthi_sys_now_ns() + BERTHI_CUDA_PATIENCE_NS;
    berthi_cuda_device *const d = berthi_cuda_of(device);
    bool is_over = true;
    berthi_cuda_call call;

    if (give_up_unused(d))
        return;
    berthi_cuda_enter_back(&call, device);
    pthread_mutex_lock(&d->lock);
    berthi_cuda_lose_locked(d, NULL, GIVEN_UP);
    if (atomic_load(&d->has_used_first))
        is_over = await_end(&call, NULL, deadline_ns);
    for (berthi_cuda_stream *s = d->streams; s != NULL && is_over; s = s->next)
        is_over = await_end(&call, s->handle, deadline_ns);
    pthread_mutex_unlock(&d->lock);
    berthi_cuda_leave(&call, BERTH_OK);
    if (!is_over)
        atomic_store(&d->machine->has_hung, true);
}

static bool
cuda_has_hung(berthi_device *device)
{
    return atomic_load(&berthi_cuda_of(device)->machine->has_hung);
}

const berthi_device_table berthi_cuda_table = {
    .kind = "cuda",
    .describe = cuda_describe,
    .find_links = berthi_cuda_find_links,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .stream_create = berthi_cuda_stream_create,
    .stream_destroy = berthi_cuda_stream_destroy,
    .event_create = berthi_cuda_event_create,
    .event_destroy = berthi_cuda_event_destroy,
    .record = berthi_cuda_record,
    .wait = berthi_cuda_wait,
    .query = berthi_cuda_query,
    .await = berthi_cuda_await,
    .copy = cuda_copy,
    .reaches = berthi_cuda_reaches,
    .clear = cuda_clear,
    .write = cuda_write,
    .has_operation = cuda_has_operation,
    .groups_experts = cuda_groups_experts,
    .launch = cuda_launch,
    .launch_together = cuda_launch_together,
    .digest = cuda_digest,
    .stop = cuda_stop,
    .has_hung = cuda_has_hung,
    .now_ns = cuda_now_ns,
};
