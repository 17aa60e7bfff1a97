/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda_capture.c - what of the streams' work a graph captures; see fake_cuda_state.h */
#include "tests/fake_cuda_state.h"

/* No stream has such a number. */
static bool
is_open(uint64_t capture)
{
    const fake_cuda_line *s = fake_cuda_now.streams;

    while (s != NULL && s->capture != capture)
        s = s->next;
    return s != NULL;
}

int
fake_cuda_check_all_captures(void)
{
    for (const fake_cuda_line *s = fake_cuda_now.streams; s != NULL; s = s->next)
        if (s->capture != 0)
            return fake_cuda_misuse(CAPTURE_UNSUPPORTED);
    return BERTHI_CUDA_OK;
}

/* As the mode that a capture has by default: also where another thread has begun it. */
int
fake_cuda_check_capture(void)
{
    return fake_cuda_mode == BERTHI_CUDA_APART ? BERTHI_CUDA_OK : fake_cuda_check_all_captures();
}

int
fake_cuda_capture_wait(fake_cuda_line *s, const fake_cuda_event *e)
{
    if (s->capture == e->capture)
        return BERTHI_CUDA_OK;
    if (s->capture != 0)
        return CAPTURE_ISOLATION;
    if (!is_open(e->capture))
        return CAPTURED_EVENT;
    s->capture = e->capture;
    return BERTHI_CUDA_OK;
}

static int
fake_stream_is_capturing(bool *out, void *handle)
{
    int code;
    const fake_cuda_line *const s = fake_cuda_enter_stream(handle, &code);

    *out = false;
    if (s == NULL)
        return code;
    *out = s->capture != 0;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

/* Of the thread alone: no call that can fail. */
static int
fake_capture_mode(int *mode)
{
    const int before = fake_cuda_mode;

    fake_cuda_mode = *mode;
    *mode = before;
    return BERTHI_CUDA_OK;
}

/* The runtime does not say it of a stream that is captured. */
static int
fake_stream_number(uint64_t *out, void *handle)
{
    int code;
    const fake_cuda_line *const s = fake_cuda_enter_stream(handle, &code);

    *out = 0;
    if (s == NULL)
        return code;
    if (s->capture != 0)
        return fake_cuda_leave(fake_cuda_misuse(CAPTURE_UNSUPPORTED));
    *out = s->number;
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

void
fake_cuda_fill_captures(berthi_cuda_calls *calls)
{
    calls->stream_is_capturing = fake_stream_is_capturing;
    calls->stream_number = fake_stream_number;
    calls->capture_mode = fake_capture_mode;
}

/* ------------------------------------------------------------------- what tests ask for */

void
fake_cuda_begin_capture(void *stream)
{
    pthread_mutex_lock(&fake_cuda_now.lock);
    fake_cuda_find_stream(stream)->capture = ++fake_cuda_now.capture_count;
    pthread_mutex_unlock(&fake_cuda_now.lock);
}

/* Of all streams that are in it. */
void
fake_cuda_end_capture(void *stream)
{
    uint64_t capture;

    pthread_mutex_lock(&fake_cuda_now.lock);
    capture = fake_cuda_find_stream(stream)->capture;
    for (fake_cuda_line *s = fake_cuda_now.streams; s != NULL; s = s->next)
        if (s->capture == capture)
            s->capture = 0;
    pthread_mutex_unlock(&fake_cuda_now.lock);
}
