/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_room.c - see gemm_room.h */
#include "kernels/gemm_room.h"

#define UNKNOWN UINT64_MAX /* the number of no stream */

typedef berthi_gemm_room room;

static bool
is_of(const room *r, const void *stream)
{
    return r->used != 0 && r->stream == stream;
}

/* Graphs never have all of them. */
static room *
find_room(berthi_gemm *g, const void *stream)
{
    room *oldest = NULL;

    for (room *r = g->rooms; r < g->rooms + BERTHI_GEMM_ROOMS; r++) {
        if (r->is_captured)
            continue;
        if (is_of(r, stream))
            return r;
        if (oldest == NULL || r->used < oldest->used)
            oldest = r;
    }
    return oldest;
}

/* Nothing has to be made, and all that was asked for in it is before the stream's next. */
static bool
is_ready(const berthi_gemm *g, const room *r, berthi_gemm_need need)
{
    if (r->workspace == NULL || r->is_unmarked)
        return false;
    if (need == BERTHI_GEMM_NEEDS_FLAGS)
        return r->has_flags;
    return g->plans.handle != NULL
           && (need != BERTHI_GEMM_NEEDS_SLABS
               || r->slabs[BERTHI_GEMM_SLABS - 1].released != NULL); /* is made last */
}

/* One that its graphs have already, or its own, while another is left; NULL: none. */
static room *
find_captured(berthi_gemm *g, const void *stream, berthi_gemm_need need)
{
    uint32_t left = 0;
    room *found = NULL;

    for (room *r = g->rooms; r < g->rooms + BERTHI_GEMM_ROOMS; r++) {
        left += !r->is_captured;
        if (is_of(r, stream) && is_ready(g, r, need) && (found == NULL || r->is_captured))
            found = r;
    }
    return found != NULL && !found->is_captured && left < 2 ? NULL : found;
}

/* ------------------------------------------------------------------------------ making */

static berth_status
make_event(const berthi_cuda_call *call, void **event)
{
    return *event != NULL ? BERTH_OK
                          : berthi_cuda_judge(call, call->calls->event_create(event));
}

/* Where a GPU has no room for whole slabs, halves of them serve, too: more products. */
static berth_status
make_memory(const berthi_cuda_call *call, room *r)
{
    uint64_t bytes = BERTHI_GEMM_SLAB_BYTES;
    berth_status status;

    do {
        berthi_error_clear(call->error);
        status = berthi_cuda_judge(
            call, call->calls->alloc(&r->memory, BERTHI_GEMM_SLABS * bytes));
        r->slab_bytes = bytes;
        bytes /= 2;
    } while (status == BERTH_ENOMEM && bytes >= BERTHI_GEMM_LEAST_SLAB_BYTES);
    return status;
}

static berth_status
make_slabs(const berthi_cuda_call *call, room *r)
{
    berth_status status = BERTH_OK;

    if (r->memory == NULL)
        status = make_memory(call, r);
    if (status == BERTH_OK && r->side == NULL)
        status = berthi_cuda_judge(call, call->calls->stream_create(&r->side));
    for (size_t i = 0; i < BERTHI_GEMM_SLABS && status == BERTH_OK; i++) {
        berthi_gemm_slab *const slab = &r->slabs[i];

        slab->values = (uint8_t *)r->memory + i * r->slab_bytes;
        status = make_event(call, &slab->decoded);
        if (status == BERTH_OK)
            status = make_event(call, &slab->released);
    }
    return status;
}

/* They are let down in the stream that has the room; who has it next waits for that one. */
static berth_status
make_flags(const berthi_cuda_call *call, room *r, void *stream)
{
    void *memory = r->flags;
    berth_status status = BERTH_OK;

    if (memory == NULL)
        status = berthi_cuda_judge(call, call->calls->alloc(&memory, WIDE_FLAG_BYTES));
    if (status != BERTH_OK)
        return status;
    r->flags = memory;
    if (!r->has_flags)
        status = berthi_cuda_judge(call, call->calls->clear(memory, WIDE_FLAG_BYTES, stream));
    r->has_flags = status == BERTH_OK;
    return status;
}

/* -------------------------------------------------------------------- taking and leaving */

/* Where streams have no numbers none is taken for one that was here before. */
static berth_status
ask_number(const berthi_cuda_call *call, void *stream, uint64_t *out)
{
    *out = UNKNOWN;
    return call->calls->stream_number == NULL
               ? BERTH_OK
               : berthi_cuda_judge(call, call->calls->stream_number(out, stream));
}

/* What has been asked for in this room and is not known to be before the stream's next. */
static berth_status
wait_for_room(const berthi_cuda_call *call, room *r, void *stream)
{
    uint64_t number;
    berth_status status = ask_number(call, stream, &number);
    const bool is_same = number != UNKNOWN && number == r->number;

    if (status == BERTH_OK && r->is_unmarked)
        status = berthi_cuda_judge(call, call->calls->synchronize());
    else if (status == BERTH_OK && r->used != 0 && !is_same)
        status = berthi_cuda_judge(call, call->calls->stream_wait(stream, r->event));
    if (status == BERTH_OK)
        r->number = number;
    return status;
}

/*
 * Another stream had its handle, and is no more. What that one's graphs work in stays theirs, and
 * is not for graphs of this one.
 */
static void
leave_to_graphs(berthi_gemm *g, const void *stream, uint64_t number)
{
    for (room *r = g->rooms; r < g->rooms + BERTHI_GEMM_ROOMS; r++)
        if (r->is_captured && is_of(r, stream) && r->number != number && number != UNKNOWN)
            r->stream = r; /* the handle of none */
}

void
berthi_gemm_forget_rooms(berthi_gemm *g, const void *stream)
{
    for (room *r = g->rooms; r < g->rooms + BERTHI_GEMM_ROOMS; r++)
        if (is_of(r, stream))
            r->stream = r;
}

berth_status
berthi_gemm_take_room(berthi_gemm *g, const berthi_cuda_call *call, void *stream,
                      berthi_gemm_need need, room **out)
{
    room *const r = find_room(g, stream);
    berth_status status = make_event(call, &r->event);

    if (status == BERTH_OK && r->workspace == NULL)
        status = berthi_cuda_judge(call,
                                   call->calls->alloc(&r->workspace, g->plans.workspace_bytes));
    if (status == BERTH_OK && need == BERTHI_GEMM_NEEDS_SLABS)
        status = make_slabs(call, r);
    if (status == BERTH_OK)
        status = wait_for_room(call, r, stream);
    if (status == BERTH_OK && need == BERTHI_GEMM_NEEDS_FLAGS)
        status = make_flags(call, r, stream);
    if (status != BERTH_OK)
        return status;
    leave_to_graphs(g, stream, r->number);
    r->is_unmarked = false;
    r->stream = stream;
    r->used = ++g->turn;
    *out = r;
    return BERTH_OK;
}

/*
 * Nothing is waited for: the stream is behind its own eager work, and whoever launches the graph
 * on another one has put that behind it (berth.h). Which thread's a thread's own stream is nobody
 * says while it captures: by its handle another one's work may lie in the room.
 */
berth_status
berthi_gemm_take_captured(berthi_gemm *g, const berthi_cuda_call *call, void *stream,
                          berthi_gemm_need need, room **out)
{
    room *const r =
        stream != BERTHI_CUDA_STREAM_OF_THREAD ? find_captured(g, stream, need) : NULL;

    *out = r;
    if (r == NULL)
        return berthi_fail(call->error, BERTH_REASON_UNSUPPORTED, NULL,
                           "%s: no memory is set apart for products that this graph captures",
                           call->device->name);
    r->is_captured = true;
    return BERTH_OK;
}

/* After a failure: what the side stream has been asked for is before the end, too. */
static berth_status
join(const berthi_cuda_call *call, room *r)
{
    void *const event = r->slabs[0].decoded;
    berth_status status = berthi_cuda_judge(call, call->calls->event_record(event, r->side));

    if (status == BERTH_OK)
        status = berthi_cuda_judge(call, call->calls->stream_wait(r->stream, event));
    r->is_forked = false;
    return status;
}

berth_status
berthi_gemm_leave_room(const berthi_cuda_call *call, room *r, berth_status status)
{
    berthi_cuda_call its = *call;
    berth_status marked = BERTH_OK;

    if (status != BERTH_OK)
        its.error = NULL; /* the first failure is the one to be told */
    if (r->is_forked)
        marked = join(&its, r);
    if (marked == BERTH_OK && !r->is_captured)
        marked = berthi_cuda_judge(&its, call->calls->event_record(r->event, r->stream));
    r->is_unmarked = marked != BERTH_OK && !r->is_captured;
    return status != BERTH_OK ? status : marked;
}

/* ------------------------------------------------------------------------- giving back */

static void
free_events(const berthi_cuda_call *call, const room *r)
{
    if (r->event != NULL)
        (void)berthi_cuda_judge(call, call->calls->event_destroy(r->event));
    for (size_t i = 0; i < BERTHI_GEMM_SLABS; i++) {
        if (r->slabs[i].decoded != NULL)
            (void)berthi_cuda_judge(call, call->calls->event_destroy(r->slabs[i].decoded));
        if (r->slabs[i].released != NULL)
            (void)berthi_cuda_judge(call, call->calls->event_destroy(r->slabs[i].released));
    }
}

/* The runtime waits for all that is under way: not for what hangs. */
void
berthi_gemm_free_rooms(berthi_gemm *g, const berthi_cuda_call *call)
{
    const bool has_hung = atomic_load(&g->device->machine->has_hung);

    for (size_t i = 0; i < BERTHI_GEMM_ROOMS; i++) {
        room *const r = &g->rooms[i];

        free_events(call, r);
        if (r->side != NULL)
            (void)berthi_cuda_judge(call, call->calls->stream_destroy(r->side));
        if (r->memory != NULL && !has_hung)
            (void)berthi_cuda_judge(call, call->calls->free(r->memory));
        if (r->flags != NULL && !has_hung)
            (void)berthi_cuda_judge(call, call->calls->free(r->flags));
        if (r->workspace != NULL && !has_hung)
            (void)berthi_cuda_judge(call, call->calls->free(r->workspace));
    }
}
