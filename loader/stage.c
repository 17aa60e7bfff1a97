/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - states of the staging buffers.
 *
 *            take()            fill()           has_work()
 *     FREE ─────────▶ FILLING ────────▶ FULL ──────────────▶ BUSY
 *      ▲               (reads)       (waits for a worker)     │  more calls of the
 *      └──────────────────────────────────────────────────────┘  same chunk
 *                    give_back() of its last call
 *
 * A chunk gets one call in any order, and one in file order when the consumer
 * has such a call; both may run at once on two workers, neither writes. In-
 * order calls go first: they are the ones that cannot be spread.
 */
#include "loader/stage.h"

#include <string.h>

#include "kernels/spare.h"
#include "kernels/sys.h"

berth_status
berthi_stage_init(berthi_stage *stage, berth_context *context, uint64_t buffer_bytes,
                  uint32_t capacity, uint32_t file_count,
                  const bool has_call[BERTHI_STAGE_CALL_COUNT], berth_error *error)
{
    memset(stage, 0, sizeof *stage);
    stage->context = context;
    stage->buffer_bytes = buffer_bytes;
    stage->capacity = capacity;
    stage->limit = capacity;
    stage->file_count = file_count;
    memcpy(stage->has_call, has_call, sizeof stage->has_call);
    stage->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    stage->has_work = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    stage->buffers = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT,
                                          capacity * sizeof *stage->buffers);
    stage->next_in_file = berthi_memory_zalloc(
        context, BERTHI_PURPOSE_OBJECT, file_count * sizeof *stage->next_in_file);
    if (stage->buffers == NULL || stage->next_in_file == NULL) {
        berthi_stage_fini(stage);
        return berthi_fail_memory(error, "the staging ring");
    }
    for (uint32_t i = 0; i < capacity; i++)
        stage->buffers[i].number = i;
    return BERTH_OK;
}

uint8_t *
berthi_stage_detach(berthi_stage *stage, berthi_stage_buffer *buffer)
{
    uint8_t *const memory = buffer->memory;

    if (buffer->is_pinned)
        stage->pins->unpin(stage->pins->user, memory, stage->buffer_bytes);
    buffer->is_pinned = false;
    buffer->memory = NULL;
    return memory;
}

/* True: the buffer is left to the ring's user, whose devices may still copy from it. */
static bool
leave_buffer(const berthi_stage *stage, berthi_stage_buffer *buffer)
{
    if (stage->pins == NULL || stage->pins->keep == NULL
        || buffer->state != BERTHI_STAGE_BUSY
        || !stage->pins->keep(stage->pins->user, buffer->memory, stage->buffer_bytes,
                              buffer->is_pinned))
        return false;
    buffer->memory = NULL;
    buffer->is_pinned = false;
    return true;
}

void
berthi_stage_fini(berthi_stage *stage)
{
    for (uint32_t i = 0; i < stage->allocated; i++)
        if (!leave_buffer(stage, &stage->buffers[i]))
            berthi_spare_free(stage->context,
                              berthi_stage_detach(stage, &stage->buffers[i]),
                              stage->buffer_bytes, BERTHI_STAGE_ALIGNMENT);
    berthi_memory_free(stage->context, BERTHI_PURPOSE_OBJECT, stage->buffers,
                       stage->capacity * sizeof *stage->buffers);
    berthi_memory_free(stage->context, BERTHI_PURPOSE_OBJECT, stage->next_in_file,
                       stage->file_count * sizeof *stage->next_in_file);
    memset(stage, 0, sizeof *stage);
}

/* ---------------------------------------------------------------- possible calls */

/* Lock held. */
static bool
can_call(const berthi_stage *stage, const berthi_stage_buffer *buffer,
         berthi_stage_call call)
{
    if (buffer->state != BERTHI_STAGE_FULL && buffer->state != BERTHI_STAGE_BUSY)
        return false;
    if (buffer->calls[call] != BERTHI_STAGE_WAITING)
        return false;
    if (call == BERTHI_STAGE_IN_ORDER)
        return buffer->chunk->number_in_file == stage->next_in_file[buffer->chunk->file];
    return stage->next_in_turn == NULL || buffer->chunk == stage->next_in_turn;
}

/* The earliest chunk that can get this call; chunks lie in one table, in order. */
static berthi_stage_buffer *
find_callable(const berthi_stage *stage, berthi_stage_call call)
{
    berthi_stage_buffer *best = NULL;

    for (uint32_t i = 0; i < stage->allocated; i++) {
        berthi_stage_buffer *const buffer = &stage->buffers[i];

        if (can_call(stage, buffer, call) && (best == NULL || buffer->chunk < best->chunk))
            best = buffer;
    }
    return best;
}

/* Workers are what is waited for: with something they have not taken, or with all there is. */
static bool
is_behind(const berthi_stage *stage)
{
    bool is_filling = false;
    bool is_held = false;

    if (find_callable(stage, BERTHI_STAGE_ANY_ORDER) != NULL
        || find_callable(stage, BERTHI_STAGE_IN_ORDER) != NULL)
        return true;
    for (uint32_t i = 0; i < stage->allocated; i++) {
        is_filling |= stage->buffers[i].state == BERTHI_STAGE_FILLING;
        is_held |= stage->buffers[i].state == BERTHI_STAGE_BUSY;
    }
    return is_held && !is_filling;
}

/* Consumers have nothing, and reads all they may have. */
static bool
is_idle(const berthi_stage *stage)
{
    uint32_t filling = 0;

    for (uint32_t i = 0; i < stage->allocated; i++)
        filling += stage->buffers[i].state == BERTHI_STAGE_FILLING;
    return filling >= stage->limit;
}

static void
note_span(berthi_stage_span *span, bool is_now)
{
    uint64_t now_ns;

    if (is_now == span->is_now)
        return;
    now_ns = berthi_sys_now_ns();
    if (is_now)
        span->from_ns = now_ns;
    else
        span->total_ns += now_ns - span->from_ns;
    span->is_now = is_now;
}

/* After each change of a buffer's state. Lock held. */
static void
note(berthi_stage *stage)
{
    note_span(&stage->behind, is_behind(stage));
    note_span(&stage->idle, is_idle(stage));
}

uint64_t
berthi_stage_behind_ns(const berthi_stage *stage)
{
    return stage->behind.total_ns;
}

/* -------------------------------------------------------------------- filling */

/* The first: bytes that are read into what has just been used are in a cache, still. */
static berthi_stage_buffer *
find_free(berthi_stage *stage)
{
    for (uint32_t i = 0; i < stage->allocated && i < stage->limit; i++)
        if (stage->buffers[i].state == BERTHI_STAGE_FREE)
            return &stage->buffers[i];
    return NULL;
}

/* No more buffers are asked for; without any, whoever takes the first one asks again. */
static void
stay_short(berthi_stage *stage)
{
    if (stage->allocated == 0)
        return;
    stage->limit = stage->allocated;
    stage->is_short = true;
    berthi_log(stage->context, BERTH_LOG_INFO,
               "memory is short: going on with %u staging buffers instead of %u",
               (unsigned)stage->allocated, (unsigned)stage->capacity);
}

/* One buffer more, or a ring that stays as small as it is. */
static berthi_stage_buffer *
grow(berthi_stage *stage)
{
    berthi_stage_buffer *const buffer = &stage->buffers[stage->allocated];

    buffer->memory = berthi_spare_alloc(stage->context, stage->buffer_bytes,
                                        BERTHI_STAGE_ALIGNMENT);
    if (buffer->memory == NULL) {
        stay_short(stage);
        return NULL;
    }
    stage->allocated++;
    buffer->is_pinned =
        stage->pins != NULL
        && stage->pins->pin(stage->pins->user, buffer->memory, stage->buffer_bytes);
    return buffer;
}

void
berthi_stage_allow(berthi_stage *stage, uint32_t count)
{
    pthread_mutex_lock(&stage->lock);
    if (!stage->is_short)
        stage->limit = (uint32_t)berthi_min_u64(count, stage->capacity);
    note_span(&stage->idle, is_idle(stage));
    pthread_mutex_unlock(&stage->lock);
}

uint64_t
berthi_stage_idle_ns(berthi_stage *stage)
{
    uint64_t idle_ns;

    pthread_mutex_lock(&stage->lock);
    idle_ns = stage->idle.total_ns;
    if (stage->idle.is_now)
        idle_ns += berthi_sys_now_ns() - stage->idle.from_ns;
    pthread_mutex_unlock(&stage->lock);
    return idle_ns;
}

berth_status
berthi_stage_take(berthi_stage *stage, const berthi_chunk *chunk,
                  berthi_stage_buffer **out_buffer, berth_error *error)
{
    berthi_stage_buffer *buffer;
    bool is_empty;

    pthread_mutex_lock(&stage->lock);
    buffer = find_free(stage);
    if (buffer == NULL && stage->allocated < stage->limit)
        buffer = grow(stage);
    is_empty = stage->allocated == 0;
    stage->is_starved = buffer == NULL;
    if (buffer != NULL) {
        buffer->state = BERTHI_STAGE_FILLING;
        buffer->chunk = chunk;
        note(stage);
    }
    pthread_mutex_unlock(&stage->lock);
    *out_buffer = buffer;
    return is_empty ? berthi_fail_memory(error, "the first staging buffer") : BERTH_OK;
}

void
berthi_stage_fill(berthi_stage *stage, berthi_stage_buffer *buffer)
{
    pthread_mutex_lock(&stage->lock);
    buffer->state = BERTHI_STAGE_FULL;
    for (int call = 0; call < BERTHI_STAGE_CALL_COUNT; call++)
        buffer->calls[call] =
            stage->has_call[call] ? BERTHI_STAGE_WAITING : BERTHI_STAGE_DONE;
    note(stage);
    /* Up to two calls have become possible. */
    pthread_cond_broadcast(&stage->has_work);
    pthread_mutex_unlock(&stage->lock);
}

void
berthi_stage_drop(berthi_stage *stage, berthi_stage_buffer *buffer)
{
    pthread_mutex_lock(&stage->lock);
    buffer->state = BERTHI_STAGE_FREE;
    buffer->chunk = NULL;
    pthread_mutex_unlock(&stage->lock);
}

uint32_t
berthi_stage_held(berthi_stage *stage, uint32_t file)
{
    uint32_t count = 0;

    pthread_mutex_lock(&stage->lock);
    for (uint32_t i = 0; i < stage->allocated; i++)
        if (stage->buffers[i].state != BERTHI_STAGE_FREE
            && stage->buffers[i].chunk->file == file)
            count++;
    pthread_mutex_unlock(&stage->lock);
    return count;
}

void
berthi_stage_close(berthi_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->is_closed = true;
    pthread_cond_broadcast(&stage->has_work);
    pthread_mutex_unlock(&stage->lock);
}

void
berthi_stage_stop(berthi_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->is_stopped = true;
    pthread_cond_broadcast(&stage->has_work);
    pthread_mutex_unlock(&stage->lock);
}

/* ------------------------------------------------------------------ consuming */

/* Lock held. False: no call is possible now. */
static bool
take_work(berthi_stage *stage, berthi_stage_work *work)
{
    work->call = BERTHI_STAGE_IN_ORDER;
    work->buffer = find_callable(stage, work->call);
    if (work->buffer == NULL) {
        work->call = BERTHI_STAGE_ANY_ORDER;
        work->buffer = find_callable(stage, work->call);
    }
    if (work->buffer == NULL)
        return false;
    if (work->call == BERTHI_STAGE_ANY_ORDER && stage->next_in_turn != NULL)
        stage->next_in_turn++;
    work->buffer->state = BERTHI_STAGE_BUSY;
    work->buffer->calls[work->call] = BERTHI_STAGE_RUNNING;
    note(stage);
    return true;
}

/* Everything that was read has been taken and given back. */
static bool
is_drained(const berthi_stage *stage)
{
    if (!stage->is_closed)
        return false;
    for (uint32_t i = 0; i < stage->allocated; i++)
        if (stage->buffers[i].state != BERTHI_STAGE_FREE)
            return false;
    return true;
}

bool
berthi_stage_await_work(berthi_stage *stage, berthi_stage_work *work)
{
    bool has_work = false;

    pthread_mutex_lock(&stage->lock);
    while (!stage->is_stopped && !is_drained(stage)) {
        has_work = take_work(stage, work);
        if (has_work)
            break;
        pthread_cond_wait(&stage->has_work, &stage->lock);
    }
    pthread_mutex_unlock(&stage->lock);
    return has_work;
}

berthi_stage_outcome
berthi_stage_give_back(berthi_stage *stage, const berthi_stage_work *work)
{
    berthi_stage_buffer *const buffer = work->buffer;
    berthi_stage_outcome outcome = { .is_consumed = false };

    pthread_mutex_lock(&stage->lock);
    buffer->calls[work->call] = BERTHI_STAGE_DONE;
    if (work->call == BERTHI_STAGE_IN_ORDER)
        stage->next_in_file[buffer->chunk->file]++;
    if (buffer->calls[BERTHI_STAGE_ANY_ORDER] == BERTHI_STAGE_DONE
        && buffer->calls[BERTHI_STAGE_IN_ORDER] == BERTHI_STAGE_DONE) {
        buffer->state = BERTHI_STAGE_FREE;
        buffer->chunk = NULL;
        outcome.is_consumed = true;
        outcome.is_awaited = stage->is_starved;
    }
    note(stage);
    /* The next ordered call of this file is for the worker that is here. */
    if (is_drained(stage))
        pthread_cond_broadcast(&stage->has_work);
    pthread_mutex_unlock(&stage->lock);
    return outcome;
}
