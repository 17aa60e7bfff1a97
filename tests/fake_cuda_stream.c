/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda_stream.c - streams, events, and work done in order; see fake_cuda_state.h */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda_state.h"
#include "tests/simt_level.h"

/* -------------------------------------------------------------------- work of streams */

static void
do_item(const fake_cuda_line *s, fake_cuda_work *i)
{
    switch (i->kind) {
    case COPY: memcpy(i->to, i->from, (size_t)i->bytes); break;
    case CLEAR: memset(i->to, 0, (size_t)i->bytes); break;
    case LAUNCH:
        if (fake_cuda_now.kernel_code != BERTHI_CUDA_OK) {
            fake_cuda_now.ended[s->device] = fake_cuda_now.kernel_code;
            fake_cuda_now.kernel_code = BERTHI_CUDA_OK;
            return;
        }
        fake_cuda_now.books.launches++;
        fake_cuda_now.books.launched[i->launch.kernel]++;
        if (!fake_cuda_now.skips_kernels)
            simt_level_launch(&i->launch);
        break;
    case RECORD: /* of two streams the later may be done first */
        if (i->event->passed < i->generation)
            i->event->passed = i->generation;
        break;
    case CALL: i->call(i->user); break;
    default: break;
    }
}

static bool
can_begin(const fake_cuda_line *s)
{
    const fake_cuda_work *const i = s->head;

    return i != NULL && !s->is_hung
           && (i->kind != WAIT || i->event->passed >= i->generation
               || fake_cuda_now.ended[i->event->device] != BERTHI_CUDA_OK);
}

/* One piece of work of the first stream that has some; that one is then the last. */
bool
fake_cuda_can_step(void)
{
    fake_cuda_line **at = &fake_cuda_now.streams;
    fake_cuda_line *s;
    fake_cuda_work *i;

    while (*at != NULL && !can_begin(*at))
        at = &(*at)->next;
    s = *at;
    if (s == NULL || fake_cuda_now.is_hung
        || (fake_cuda_now.is_persistent && fake_cuda_now.failures > 0))
        return false;
    *at = s->next;
    s->next = NULL;
    for (at = &fake_cuda_now.streams; *at != NULL; at = &(*at)->next)
        ;
    *at = s;
    i = s->head;
    s->head = i->next;
    if (fake_cuda_now.ended[s->device] == BERTHI_CUDA_OK)
        do_item(s, i);
    free(i);
    fake_cuda_now.books.under_way--;
    return true;
}

static void
run_at_once(void)
{
    while (!fake_cuda_now.machine.is_late && fake_cuda_can_step())
        ;
}

/* ---------------------------------------------------------------------------- handles */

/* NULL: it is not there. */
fake_cuda_line *
fake_cuda_find_stream(const void *handle)
{
    fake_cuda_line *s = fake_cuda_now.streams;

    while (s != NULL
           && (handle == NULL ? !s->is_first || s->device != fake_cuda_device
                              : s->handle != handle || s->is_destroyed))
        s = s->next;
    return s;
}

fake_cuda_line *
fake_cuda_enter_stream(const void *handle, int *out_code)
{
    fake_cuda_line *s;

    *out_code = fake_cuda_enter_context();
    s = *out_code == BERTHI_CUDA_OK ? fake_cuda_find_stream(handle) : NULL;
    if (s != NULL)
        return s;
    if (*out_code == BERTHI_CUDA_OK)
        *out_code = fake_cuda_misuse(INVALID_HANDLE);
    *out_code = fake_cuda_leave(*out_code);
    return NULL;
}

static fake_cuda_event *
find_event(const void *handle)
{
    fake_cuda_event *e = fake_cuda_now.events;

    while (e != NULL && ((const void *)e != handle || e->is_destroyed))
        e = e->next;
    return e;
}

fake_cuda_line *
fake_cuda_add_stream(int device, bool is_first)
{
    fake_cuda_line *const s = calloc(1, sizeof *s);

    if (s == NULL)
        abort();
    *s = (fake_cuda_line){ .next = fake_cuda_now.streams, .handle = s, .device = device,
                           .number = fake_cuda_now.stream_count++, .is_first = is_first };
    if (fake_cuda_now.is_reusing && fake_cuda_now.spare_handle != NULL) {
        s->handle = fake_cuda_now.spare_handle;
        fake_cuda_now.spare_handle = NULL;
    }
    fake_cuda_now.streams = s;
    return s;
}

/* ------------------------------------------------------------------ streams and events */

static int
fake_stream_create(void **out)
{
    const int code = fake_cuda_enter_current();

    *out = NULL;
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    *out = (void *)(uintptr_t)fake_cuda_add_stream(fake_cuda_device, false)->handle;
    fake_cuda_now.books.streams++;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_stream_destroy(void *handle)
{
    const int code = fake_cuda_enter_context();
    fake_cuda_line *const s = handle != NULL ? fake_cuda_find_stream(handle) : NULL;

    if (s == NULL)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_HANDLE));
    s->is_destroyed = true;
    fake_cuda_now.spare_handle = s->handle;
    fake_cuda_now.books.streams--;
    return fake_cuda_leave(code != BERTHI_CUDA_OK ? code : fake_cuda_now.ended[s->device]);
}

static int
fake_stream_query(void *handle)
{
    int code;
    const fake_cuda_line *const s = fake_cuda_enter_stream(handle, &code);

    if (s == NULL)
        return code;
    if (s->capture != 0)
        return fake_cuda_leave(fake_cuda_misuse(CAPTURE_UNSUPPORTED));
    if (fake_cuda_check_capture() != BERTHI_CUDA_OK)
        return fake_cuda_leave(CAPTURE_UNSUPPORTED);
    if (s->head != NULL)
        (void)fake_cuda_can_step();
    if (fake_cuda_now.ended[s->device] != BERTHI_CUDA_OK)
        return fake_cuda_leave(fake_cuda_now.ended[s->device]);
    return fake_cuda_leave(s->head == NULL ? BERTHI_CUDA_OK : BERTHI_CUDA_NOT_READY);
}

static int
fake_event_create(void **out)
{
    const int code = fake_cuda_enter_current();
    fake_cuda_event *e;

    *out = NULL;
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    e = calloc(1, sizeof *e);
    if (e == NULL)
        abort();
    e->device = fake_cuda_device;
    e->next = fake_cuda_now.events;
    fake_cuda_now.events = e;
    fake_cuda_now.books.events++;
    *out = e;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_event_destroy(void *handle)
{
    const int code = fake_cuda_enter_context();
    fake_cuda_event *const e = find_event(handle);

    if (e == NULL)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_HANDLE));
    e->is_destroyed = true;
    fake_cuda_now.books.events--;
    return fake_cuda_leave(code != BERTHI_CUDA_OK ? code : fake_cuda_now.ended[e->device]);
}

static int
fake_event_query(void *handle)
{
    const int code = fake_cuda_enter_context();
    const fake_cuda_event *const e = find_event(handle);

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (e == NULL)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_HANDLE));
    if (e->capture != 0)
        return fake_cuda_leave(fake_cuda_misuse(CAPTURED_EVENT));
    if (fake_cuda_check_capture() != BERTHI_CUDA_OK)
        return fake_cuda_leave(CAPTURE_UNSUPPORTED);
    if (e->passed < e->recorded)
        (void)fake_cuda_can_step();
    if (fake_cuda_now.ended[e->device] != BERTHI_CUDA_OK)
        return fake_cuda_leave(fake_cuda_now.ended[e->device]);
    return fake_cuda_leave(e->passed >= e->recorded ? BERTHI_CUDA_OK : BERTHI_CUDA_NOT_READY);
}

/* ------------------------------------------------------------------- asking for work */

/* The fake_cuda_error of the stream; at once where the machine is so. */
int
fake_cuda_add_work(void *handle, const fake_cuda_work *what)
{
    fake_cuda_line *const s = fake_cuda_find_stream(handle);
    fake_cuda_work *const i = malloc(sizeof *i);

    if (i == NULL)
        abort();
    if (s == NULL) {
        free(i);
        return fake_cuda_misuse(INVALID_HANDLE);
    }
    *i = *what;
    i->next = NULL;
    if (s->head == NULL)
        s->head = i;
    else
        s->tail->next = i;
    s->tail = i;
    fake_cuda_now.books.under_way++;
    run_at_once();
    return fake_cuda_now.machine.is_late ? BERTHI_CUDA_OK : fake_cuda_now.ended[s->device];
}

/* Streams wait for events of any GPU; of one that has ended that is its error. */
static int
fake_stream_wait(void *handle, void *its)
{
    int code = fake_cuda_enter_current();
    fake_cuda_event *const e = find_event(its);
    fake_cuda_line *const s = fake_cuda_find_stream(handle);

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (e == NULL || s == NULL)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_HANDLE));
    if (fake_cuda_now.ended[e->device] != BERTHI_CUDA_OK)
        return fake_cuda_leave(fake_cuda_now.ended[e->device]);
    code = fake_cuda_capture_wait(s, e);
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    return fake_cuda_leave(fake_cuda_add_work(
        handle, &(fake_cuda_work){ .kind = WAIT, .event = e, .generation = e->recorded }));
}

static int
fake_event_record(void *its, void *handle)
{
    const int code = fake_cuda_enter_current();
    const fake_cuda_line *const s = fake_cuda_find_stream(handle);
    fake_cuda_event *const e = find_event(its);

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (e == NULL || s == NULL || s->device != e->device)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_HANDLE));
    e->recorded++;
    e->capture = s->capture;
    return fake_cuda_leave(fake_cuda_add_work(
        handle,
        &(fake_cuda_work){ .kind = RECORD, .event = e, .generation = e->recorded }));
}

void
fake_cuda_fill_streams(berthi_cuda_calls *calls)
{
    calls->stream_create = fake_stream_create;
    calls->stream_destroy = fake_stream_destroy;
    calls->stream_query = fake_stream_query;
    calls->event_create = fake_event_create;
    calls->event_destroy = fake_event_destroy;
    calls->event_query = fake_event_query;
    calls->stream_wait = fake_stream_wait;
    calls->event_record = fake_event_record;
}
