/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.c - the choice of a back end, and the one that works everywhere: a
 * pool of threads, each with one positioned read at a time.
 */
#include "loader/reader.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/sys.h"

#define STACK_BYTES (256u * 1024u)

typedef struct thread_reader {
    berthi_reader reader;
    berth_context *context;
    pthread_t *threads;
    uint32_t thread_capacity;
    uint32_t thread_count;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t has_reads;
    pthread_cond_t has_results;
    berthi_read_list waiting;
    berthi_read_list finished;
    bool is_woken;
    bool is_closing;
} thread_reader;

/* ------------------------------------------------------------------- threads */

static void
perform(berthi_read *read)
{
    read->begin_ns = berthi_sys_now_ns();
    read->result = berthi_sys_pread(read->fd, read->memory, read->bytes, read->offset);
    if (read->result < 0)
        read->result = -errno;
    read->busy_ns = berthi_sys_now_ns() - read->begin_ns;
}

static void *
run_reads(void *argument)
{
    thread_reader *const pool = argument;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        berthi_read *const read = berthi_read_list_take(&pool->waiting);

        if (read != NULL) {
            pthread_mutex_unlock(&pool->lock);
            perform(read);
            pthread_mutex_lock(&pool->lock);
            berthi_read_list_add(&pool->finished, read);
            pthread_cond_signal(&pool->has_results);
        } else if (pool->is_closing) {
            break;
        } else {
            pthread_cond_wait(&pool->has_reads, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void
free_pool(thread_reader *pool)
{
    berthi_memory_free(pool->context, BERTHI_PURPOSE_OBJECT, pool->threads,
                       pool->thread_capacity * sizeof *pool->threads);
    berthi_memory_free(pool->context, BERTHI_PURPOSE_OBJECT, pool, sizeof *pool);
}

static void
close_threads(berthi_reader *reader)
{
    thread_reader *const pool = (thread_reader *)reader;

    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_cond_broadcast(&pool->has_reads);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->has_results);
    pthread_cond_destroy(&pool->has_reads);
    pthread_mutex_destroy(&pool->lock);
    free_pool(pool);
}

static berth_status
fail_system(berth_error *error, int failure, const char *what)
{
    const berthi_about about = { .system_error = failure };

    return berthi_fail(error, BERTH_REASON_NO_MEMORY, &about, "%s failed", what);
}

/* Fewer threads than wanted are slower, none is a failure. */
static int
start_threads(thread_reader *pool)
{
    int failure = 0;

    while (failure == 0 && pool->thread_count < pool->thread_capacity) {
        failure = berthi_sys_thread_create(&pool->threads[pool->thread_count],
                                           STACK_BYTES, run_reads, pool);
        if (failure == 0)
            pool->thread_count++;
    }
    return pool->thread_count > 0 ? 0 : failure;
}

static berth_status
open_threads(berth_context *context, const berthi_reader_options *options,
             berthi_reader **out_reader, berth_error *error)
{
    const uint64_t count = berthi_min_u64(options->threads, options->depth);
    thread_reader *pool;
    int failure;

    *out_reader = NULL;
    pool = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *pool);
    if (pool == NULL)
        return berthi_fail_memory(error, "the reader threads");
    pool->reader.table = &berthi_reader_threads;
    pool->context = context;
    pool->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool->has_reads = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool->thread_capacity = (uint32_t)berthi_max_u64(count, 1);
    pool->threads = berthi_memory_array(context, BERTHI_PURPOSE_OBJECT,
                                        pool->thread_capacity, sizeof *pool->threads);
    if (pool->threads == NULL) {
        free_pool(pool);
        return berthi_fail_memory(error, "the reader threads");
    }
    failure = berthi_sys_condition_init(&pool->has_results);
    if (failure != 0) {
        free_pool(pool);
        return fail_system(error, failure, "preparing the reader threads");
    }
    failure = start_threads(pool);
    if (failure != 0) {
        close_threads(&pool->reader);
        return fail_system(error, failure, "starting a reader thread");
    }
    *out_reader = &pool->reader;
    return BERTH_OK;
}

/* ------------------------------------------------------------ from the driver */

static void
submit_to_threads(berthi_reader *reader, berthi_read *read)
{
    thread_reader *const pool = (thread_reader *)reader;

    pthread_mutex_lock(&pool->lock);
    berthi_read_list_add(&pool->waiting, read);
    pthread_cond_signal(&pool->has_reads);
    pthread_mutex_unlock(&pool->lock);
}

static berthi_read *
complete_from_threads(berthi_reader *reader, uint64_t deadline_ns)
{
    thread_reader *const pool = (thread_reader *)reader;
    berthi_read *read;
    int failure = 0;

    pthread_mutex_lock(&pool->lock);
    while (pool->finished.first == NULL && !pool->is_woken && failure == 0)
        failure = berthi_sys_condition_wait_until(&pool->has_results, &pool->lock,
                                                  deadline_ns);
    pool->is_woken = false;
    read = berthi_read_list_take(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
    return read;
}

static void
wake_threads_driver(berthi_reader *reader)
{
    thread_reader *const pool = (thread_reader *)reader;

    pthread_mutex_lock(&pool->lock);
    pool->is_woken = true;
    pthread_cond_signal(&pool->has_results);
    pthread_mutex_unlock(&pool->lock);
}

static void
cancel_threads(berthi_reader *reader)
{
    thread_reader *const pool = (thread_reader *)reader;
    berthi_read *read;

    pthread_mutex_lock(&pool->lock);
    while ((read = berthi_read_list_take(&pool->waiting)) != NULL) {
        read->result = -ECANCELED;
        read->busy_ns = 0;
        berthi_read_list_add(&pool->finished, read);
    }
    pthread_mutex_unlock(&pool->lock);
}

const berthi_reader_table berthi_reader_threads = {
    .name = "threads",
    .open = open_threads,
    .submit = submit_to_threads,
    .complete = complete_from_threads,
    .wake = wake_threads_driver,
    .cancel = cancel_threads,
    .close = close_threads,
};

/* -------------------------------------------------------------------- choice */

#ifdef BERTH_TESTING
const berthi_reader_table *_Atomic berthi_reader_instead;
#endif

berth_status
berthi_reader_open(berth_context *context, const berthi_reader_table *wanted,
                   bool no_uring, const berthi_reader_options *options,
                   berthi_reader **out_reader, berth_error *error)
{
#ifdef BERTH_TESTING
    if (wanted == NULL)
        wanted = atomic_load(&berthi_reader_instead);
#endif
    if (wanted != NULL)
        return wanted->open(context, options, out_reader, error);
    /* Whatever stops a ring from being set up must not stop the job. */
    if (!no_uring
        && berthi_reader_uring.open(context, options, out_reader, NULL) == BERTH_OK)
        return BERTH_OK;
    return berthi_reader_threads.open(context, options, out_reader, error);
}
