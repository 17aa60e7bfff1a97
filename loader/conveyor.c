/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conveyor.c - a run: the calling thread reads, workers consume, the ring is
 * between them.
 *
 *   calling thread   next chunk ─▶ free buffer ─▶ reads ─▶ full      (intake.c)
 *   workers          full ─▶ consumer's calls ─▶ free                (stage.c)
 *
 * Order of chunks: as in the table. With an in-order consumer, several files
 * are under way at once, one a lane, so that as many cores can work in order;
 * the lane that holds the fewest buffers gets the next one.
 */
#include "loader/conveyor.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels/host.h"
#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/intake.h"
#include "loader/stage.h"
#include "loader/tune.h"

#define STACK_BYTES (256u * 1024u)
#define RING_CHUNKS_MIN 3u
#define LANES_MAX 4u
#define FIRST_STAGES_MIN 4u /* of a ring that is tuned: two for each worker, up to more */
#define FIRST_CHUNKS 2u /* until one has arrived: so many share the disk */
#define DEVICE_WORKERS 4u /* two of them keep the stream of a device busy */

/* Chunks of one file, or of all files when order does not matter. */
typedef struct lane {
    uint64_t next; /* chunk */
    uint64_t end;
} lane;

typedef struct conveyor {
    berth_context *context;
    berth_job *job;
    bool is_uncounted;
    const berthi_chunks *chunks;
    const berthi_consumer *consumer;
    berthi_stage stage;
    berthi_intake intake;
    berthi_tune tune;
    berthi_conveyor_stats stats;

    lane lanes[LANES_MAX];
    uint32_t lane_count;
    uint64_t started;         /* chunks */
    uint64_t next_file_chunk; /* first chunk of the first file no lane has taken */

    pthread_t *workers;
    uint32_t worker_capacity;
    uint32_t worker_count;
    _Atomic uint64_t work_ns;

    pthread_mutex_t lock; /* status and error */
    _Atomic bool has_failed;
    berth_status status;
    berth_error error;
} conveyor;

/* ------------------------------------------------------------------- failing */

/* The first failure is the run's; later ones are lines of the log. */
static void
fail(conveyor *c, berth_status status, const berth_error *error)
{
    bool is_first;

    pthread_mutex_lock(&c->lock);
    is_first = !atomic_load(&c->has_failed);
    if (is_first) {
        c->status = status;
        c->error = *error;
        atomic_store(&c->has_failed, true);
    }
    pthread_mutex_unlock(&c->lock);
    if (is_first) {
        berthi_stage_stop(&c->stage);
        if (c->consumer->stop != NULL)
            c->consumer->stop(c->consumer->user);
        c->intake.reader->table->wake(c->intake.reader);
    } else if (status != BERTH_ECANCELLED) { /* which several threads may notice */
        char line[BERTH_FILE_CAPACITY + BERTH_MESSAGE_CAPACITY];

        berth_error_format(error, line, sizeof line);
        berthi_log(c->context, BERTH_LOG_INFO, "after the first failure: %s", line);
    }
}

/* True: it is over, since it has failed, or now, since it was cancelled. */
static bool
end_if_cancelled(conveyor *c)
{
    berth_error error;

    if (atomic_load(&c->has_failed))
        return true;
    if (c->job == NULL || !berthi_job_is_cancelled(c->job))
        return false;
    fail(c, berthi_job_fail_cancelled(&error), &error);
    return true;
}

/* ----------------------------------------------------------------- consuming */

static berth_status
call_consumer(conveyor *c, const berthi_stage_work *work, berth_error *error)
{
    const berthi_chunk *const chunk = work->buffer->chunk;
    const uint8_t *const bytes = work->buffer->memory + (chunk->begin - chunk->origin);

    if (work->call == BERTHI_STAGE_IN_ORDER)
        return c->consumer->consume_in_order(c->consumer->user, chunk, bytes, error);
    return c->consumer->consume(c->consumer->user, chunk,
                                &c->chunks->spans[chunk->first_span], bytes, error);
}

static uint64_t
span_bytes(const conveyor *c, const berthi_chunk *chunk)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < chunk->span_count; i++)
        bytes += c->chunks->spans[chunk->first_span + i].bytes;
    return bytes;
}

static void
advance(const conveyor *c, const berthi_chunk *chunk)
{
    if (c->is_uncounted)
        berthi_job_touch(c->job);
    else
        berthi_job_advance(c->job, span_bytes(c, chunk));
}

static void *
run_worker(void *argument)
{
    conveyor *const c = argument;
    berthi_stage_work work;

    while (!end_if_cancelled(c) && berthi_stage_await_work(&c->stage, &work)) {
        const berthi_chunk *const chunk = work.buffer->chunk;
        const uint64_t begin_ns = berthi_sys_now_ns();
        berthi_stage_outcome outcome;
        berth_error error;
        berth_status status;

        berthi_error_clear(&error);
        status = call_consumer(c, &work, &error);
        atomic_fetch_add(&c->work_ns, berthi_sys_now_ns() - begin_ns);
        if (berthi_trace_is_on(c->context))
            berthi_trace_thread(c->context, BERTH_TRACE_CHUNK, "worker", begin_ns,
                                span_bytes(c, chunk),
                                (berthi_trace_of){ BERTH_NO_TENSOR, BERTH_NO_INDEX,
                                                   chunk->file });
        if (status != BERTH_OK) {
            fail(c, status, &error);
            break;
        }
        outcome = berthi_stage_give_back(&c->stage, &work);
        if (outcome.is_consumed && c->job != NULL)
            advance(c, chunk);
        if (outcome.is_awaited)
            c->intake.reader->table->wake(c->intake.reader);
    }
    return NULL;
}

uint32_t
berthi_conveyor_workers(bool has_device)
{
    const uint32_t cores = berthi_host_worker_count();

    return has_device && cores < DEVICE_WORKERS ? DEVICE_WORKERS : cores;
}

static uint32_t
choose_workers(const berthi_conveyor_options *options, const berthi_stage *stage)
{
    const uint32_t count =
        options->workers > 0 ? options->workers : berthi_host_worker_count();
    uint64_t calls = 0;

    for (int call = 0; call < BERTHI_STAGE_CALL_COUNT; call++)
        calls += stage->has_call[call] ? stage->capacity : 0;
    return (uint32_t)berthi_min_u64(count, calls); /* others would find nothing to do */
}

/* Fewer workers than wanted are slower, none is a failure. */
static berth_status
start_workers(conveyor *c, berth_error *error)
{
    berthi_about about = { .system_error = 0 };

    c->workers = berthi_memory_array(c->context, BERTHI_PURPOSE_OBJECT,
                                     c->worker_capacity, sizeof *c->workers);
    if (c->workers == NULL)
        return berthi_fail_memory(error, "the worker threads");
    while (about.system_error == 0 && c->worker_count < c->worker_capacity) {
        about.system_error = berthi_sys_thread_create(&c->workers[c->worker_count],
                                                      STACK_BYTES, run_worker, c);
        if (about.system_error == 0)
            c->worker_count++;
    }
    if (c->worker_count > 0)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_NO_MEMORY, &about,
                       "starting a worker thread failed");
}

static void
join_workers(conveyor *c)
{
    for (uint32_t i = 0; i < c->worker_count; i++)
        pthread_join(c->workers[i], NULL);
    berthi_memory_free(c->context, BERTHI_PURPOSE_OBJECT, c->workers,
                       c->worker_capacity * sizeof *c->workers);
    c->workers = NULL;
}

/* ------------------------------------------------------------------- reading */

/* Gives an empty lane the next file, or everything if it is the only one. */
static void
refill_lane(conveyor *c, lane *l)
{
    const uint64_t count = c->chunks->chunk_count;
    uint64_t end = c->next_file_chunk;

    if (l->next < l->end)
        return;
    while (end < count && !c->chunks->chunks[end].is_last_of_file)
        end++;
    l->next = c->next_file_chunk;
    l->end = c->lane_count == 1 ? count : berthi_min_u64(end + 1, count);
    c->next_file_chunk = l->end;
}

/* The lane whose turn it is; NULL when all chunks are under way. */
static lane *
choose_lane(conveyor *c)
{
    lane *best = NULL;
    uint32_t best_held = 0;

    for (uint32_t i = 0; i < c->lane_count; i++) {
        lane *const l = &c->lanes[i];
        uint32_t held;

        refill_lane(c, l);
        if (l->next >= l->end)
            continue;
        held = c->lane_count == 1
                   ? 0
                   : berthi_stage_held(&c->stage, c->chunks->chunks[l->next].file);
        if (best == NULL || held < best_held) {
            best = l;
            best_held = held;
        }
    }
    return best;
}

/*
 * Starts reads for as many chunks as there are buffers, or until one of these is new. That
 * takes a while where memory is short: what has come back, and a cancel, do not wait for all.
 */
static berth_status
start_chunks(conveyor *c, bool *has_more, bool *has_grown, berth_error *error)
{
    berth_status status = BERTH_OK;
    lane *l;

    *has_grown = false;
    while ((l = choose_lane(c)) != NULL
           && (c->started < FIRST_CHUNKS || (c->intake.filled > 0 && !*has_grown))) {
        const uint32_t allocated = c->stage.allocated;
        berthi_stage_buffer *buffer;

        status = berthi_stage_take(&c->stage, &c->chunks->chunks[l->next], &buffer, error);
        if (buffer == NULL)
            break;
        l->next++;
        c->started++;
        berthi_intake_start(&c->intake, buffer);
        *has_grown = c->stage.allocated > allocated;
    }
    *has_more = l != NULL;
    return status;
}

/* There was more to read, and no buffer for it. */
static void
end_wait(conveyor *c, uint64_t begin_ns)
{
    if (berthi_trace_is_on(c->context))
        berthi_trace_thread(c->context, BERTH_TRACE_WAIT, "reads", begin_ns, 0,
                            BERTHI_TRACE_NOTHING);
}

/* So many buffers are used at first. */
static void
begin_tuning(conveyor *c, const berthi_conveyor_options *options)
{
    const uint32_t capacity = c->stage.capacity;
    const uint64_t few =
        berthi_min_u64(berthi_max_u64(2 * (uint64_t)c->worker_capacity, FIRST_STAGES_MIN),
                       BERTHI_TUNE_STAGES);
    const uint32_t stages = options->stages > 0  ? options->stages
                            : options->is_tuned ? (uint32_t)few
                                                : capacity;

    berthi_tune_begin(&c->tune, stages, capacity, berthi_sys_now_ns());
    c->tune.is_settled |= options->stages > 0;
    berthi_stage_allow(&c->stage, c->tune.stages);
}

static void
tune(conveyor *c)
{
    berthi_tune_sample sample = { .now_ns = berthi_sys_now_ns() };

    if (!berthi_tune_is_due(&c->tune, sample.now_ns))
        return;
    sample.bytes = c->stats.bytes_read;
    sample.idle_ns = berthi_stage_idle_ns(&c->stage);
    berthi_stage_allow(&c->stage, berthi_tune_look(&c->tune, &sample));
}

/* Until every chunk is in the ring, or the run has failed. */
static void
read_all(conveyor *c)
{
    bool has_more = true;

    while (!end_if_cancelled(c)) {
        berth_error error;
        uint64_t begin_ns;
        bool has_grown;
        berth_status status = start_chunks(c, &has_more, &has_grown, &error);

        if (status == BERTH_OK && !has_more && c->intake.in_flight == 0)
            break;
        tune(c);
        begin_ns = berthi_sys_now_ns();
        if (status == BERTH_OK)
            status = berthi_intake_wait(
                &c->intake, has_grown ? 0 : begin_ns + BERTHI_CANCEL_NS, &error);
        if (has_more && !has_grown)
            end_wait(c, begin_ns);
        if (status != BERTH_OK)
            fail(c, status, &error);
    }
    berthi_intake_drain(&c->intake);
    berthi_stage_close(&c->stage);
}

/* --------------------------------------------------------------------- a run */

/* Files of which nothing is wanted are promised to be unchanged, too. */
static berth_status
check_unread(const conveyor *c, const berthi_freight *freight, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < freight->file_count && status == BERTH_OK; i++)
        if (c->intake.sources == NULL || c->intake.sources[i].chunks == NULL)
            status = berthi_file_check_content(&freight->files[i], error);
    return status;
}

static void
describe_path(const conveyor *c, char path[64])
{
    const berthi_conveyor_stats *const stats = &c->stats;

    snprintf(path, sizeof stats->path, "%s %s", c->intake.reader->table->name,
             stats->buffered_bytes == 0   ? "direct"
             : stats->direct_bytes == 0   ? "buffered"
                                          : "direct and buffered");
}

/* How many chunks the ring may hold. */
static uint32_t
choose_capacity(const berthi_conveyor_options *options, const berthi_chunks *chunks)
{
    const uint64_t ring_bytes =
        options->ring_bytes > 0 ? options->ring_bytes : BERTHI_RING_BYTES_READ;
    uint64_t capacity = ring_bytes / chunks->chunk_bytes;

    capacity = berthi_max_u64(capacity, RING_CHUNKS_MIN);
    capacity = berthi_min_u64(capacity, BERTHI_RING_CHUNKS_MAX);
    return (uint32_t)berthi_min_u64(capacity, chunks->chunk_count);
}

static void
run_threads(conveyor *c)
{
    berth_error error;
    const berth_status status = start_workers(c, &error);

    if (status == BERTH_OK)
        read_all(c);
    else
        fail(c, status, &error);
    join_workers(c);
    /* The last bytes may have been consumed after the last look. */
    (void)end_if_cancelled(c);
    c->stats.work_ns = atomic_load(&c->work_ns);
    c->stats.wait_ns = berthi_stage_behind_ns(&c->stage);
    c->stats.stages = c->stage.limit;
    c->stats.stage_bytes = c->stage.buffer_bytes;
}

/* Moves the chunks, at least one. */
static berth_status
run_chunks(conveyor *c, const berthi_freight *freight,
           const berthi_conveyor_options *options, berth_error *error)
{
    const bool has_call[BERTHI_STAGE_CALL_COUNT] = {
        [BERTHI_STAGE_ANY_ORDER] = c->consumer->consume != NULL,
        [BERTHI_STAGE_IN_ORDER] = c->consumer->consume_in_order != NULL,
    };
    berth_status status;

    status = berthi_stage_init(&c->stage, c->context,
                               berthi_chunks_buffer_bytes(c->chunks, c->context),
                               choose_capacity(options, c->chunks), freight->file_count,
                               has_call, error);
    if (status != BERTH_OK)
        return status;
    c->stage.pins = options->pins;
    status = berthi_intake_init(&c->intake, freight, options, &c->stage, &c->stats, error);
    if (status == BERTH_OK) {
        c->worker_capacity = choose_workers(options, &c->stage);
        c->lane_count = has_call[BERTHI_STAGE_IN_ORDER]
                            ? (uint32_t)berthi_min_u64(c->worker_capacity, LANES_MAX)
                            : 1;
        c->stage.next_in_turn = c->consumer->is_in_turn ? c->chunks->chunks : NULL;
        begin_tuning(c, options);
        run_threads(c);
        describe_path(c, c->stats.path);
        status = c->status;
        if (status != BERTH_OK && error != NULL)
            *error = c->error;
        if (status == BERTH_OK)
            status = check_unread(c, freight, error);
    }
    berthi_intake_fini(&c->intake);
    berthi_stage_fini(&c->stage);
    return status;
}

berth_status
berthi_conveyor_run(const berthi_freight *freight, const berthi_conveyor_options *options,
                    const berthi_consumer *consumer, berthi_conveyor_stats *stats,
                    berth_error *error)
{
    conveyor c;
    berth_status status;

    memset(&c, 0, sizeof c);
    c.context = freight->context;
    c.job = freight->job;
    c.is_uncounted = freight->is_uncounted;
    c.chunks = freight->chunks;
    c.consumer = consumer;
    c.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (consumer->consume_in_order != NULL && !c.chunks->is_ordered)
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                           "chunks without an order cannot be consumed in order");
    if (c.chunks->chunk_count > 0)
        status = run_chunks(&c, freight, options, error);
    else
        status = check_unread(&c, freight, error);
    if (status == BERTH_OK && c.job != NULL && berthi_job_is_cancelled(c.job))
        status = berthi_job_fail_cancelled(error);
    if (stats != NULL)
        *stats = c.stats;
    return status;
}
