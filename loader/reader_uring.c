/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader_uring.c - reads through io_uring; the only file that includes
 * liburing.h.
 *
 *   submit() ─▶ pending ─▶ prepared ─▶ in the kernel ─▶ finished ─▶ complete()
 *                (no room   (in the     (counted by
 *                 so far)    ring)       the caller)
 *
 * Only the driving thread touches the ring. Others wake it through an event
 * descriptor on which one poll request is kept in the ring. When the kernel
 * refuses to take requests for good, those it has not taken fail and those it
 * has are waited for: each read comes back exactly once.
 */
#define _GNU_SOURCE /* what liburing.h needs */

#include "loader/reader.h"

#ifdef BERTH_HAVE_URING

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sys.h"

#define ENTRIES_MAX 4096u
#define REFUSAL_LIMIT 64u /* submissions in a row, before the ring counts as broken */
#define REFUSAL_PAUSE_NS UINT64_C(1000000)

typedef struct ring_reader {
    berthi_reader reader;
    berth_context *context;
    struct io_uring ring;
    berthi_read_list pending;
    berthi_read_list prepared;
    berthi_read_list finished;
    berthi_read listener; /* stands for the poll on event_fd */
    int event_fd;
    uint32_t entries; /* of the ring */
    bool is_ring_open;
    bool is_listening;
    bool is_woken;
    bool can_register; /* the table of buffers is there */
    uint32_t refusals; /* in a row */
    int failure;       /* errno that broke the ring; 0: it works */
} ring_reader;

/* Ask before a system call: true when a test wants it to fail. */
static bool
is_faulty(void)
{
    return berthi_fault_is_due(BERTHI_FAULT_SYSTEM);
}

/* -------------------------------------------------------------------- the ring */

static void
prepare(const ring_reader *r, struct io_uring_sqe *entry, berthi_read *read)
{
    if (read == &r->listener)
        io_uring_prep_poll_add(entry, r->event_fd, POLLIN);
    else if (read->buffer != BERTHI_READER_NO_BUFFER)
        io_uring_prep_read_fixed(entry, read->fd, read->memory, read->bytes, read->offset,
                                 (int)read->buffer);
    else
        io_uring_prep_read(entry, read->fd, read->memory, read->bytes, read->offset);
    io_uring_sqe_set_data(entry, read);
    /* Cached bytes would be copied by this thread while it submits; the kernel's
       own threads do it on all cores. */
    if (read != &r->listener && !read->is_direct)
        entry->flags |= IOSQE_ASYNC;
}

static void
finish(ring_reader *r, berthi_read *read, int64_t result)
{
    if (read == &r->listener) {
        r->is_listening = false;
        r->is_woken = true;
        berthi_sys_event_clear(r->event_fd);
        return;
    }
    read->result = is_faulty() ? -EIO : result;
    read->busy_ns = berthi_sys_now_ns() - read->begin_ns;
    berthi_read_list_add(&r->finished, read);
}

/* What the kernel has not taken fails; what it has taken comes back by itself. */
static void
break_ring(ring_reader *r, int failure)
{
    berthi_read *read;

    r->failure = failure;
    while ((read = berthi_read_list_take(&r->prepared)) != NULL)
        finish(r, read, -failure);
    while ((read = berthi_read_list_take(&r->pending)) != NULL)
        finish(r, read, -failure);
}

/* True when the kernel took something, or there was nothing to take. */
static bool
submit_prepared(ring_reader *r)
{
    int taken;

    if (r->prepared.first == NULL)
        return true;
    taken = is_faulty() ? -EAGAIN : io_uring_submit(&r->ring);
    if (taken > 0) {
        r->refusals = 0;
        while (taken-- > 0)
            (void)berthi_read_list_take(&r->prepared);
        return true;
    }
    r->refusals++;
    if ((taken != 0 && taken != -EAGAIN && taken != -EBUSY && taken != -EINTR)
        || r->refusals > REFUSAL_LIMIT)
        break_ring(r, taken != 0 ? -taken : EIO);
    return false;
}

/* Moves waiting reads into the ring and the ring's into the kernel. */
static void
flush(ring_reader *r)
{
    if (r->failure != 0) {
        break_ring(r, r->failure);
        return;
    }
    if (!r->is_listening) {
        r->is_listening = true;
        berthi_read_list_add(&r->pending, &r->listener);
    }
    for (;;) {
        struct io_uring_sqe *entry = NULL;

        while (r->pending.first != NULL
               && (entry = io_uring_get_sqe(&r->ring)) != NULL) {
            berthi_read *const read = berthi_read_list_take(&r->pending);

            prepare(r, entry, read);
            berthi_read_list_add(&r->prepared, read);
        }
        if (!submit_prepared(r) || r->pending.first == NULL)
            break;
    }
}

/*
 * Nobody cancels what the kernel has taken: it has no thread for this read and may start none, as
 * all that this process may have (RLIMIT_NPROC, pids.max) are taken. This one is there.
 */
static int64_t
read_here(const berthi_read *read)
{
    const int64_t result =
        berthi_sys_pread(read->fd, read->memory, read->bytes, read->offset);

    return result < 0 ? -errno : result;
}

static void
reap(ring_reader *r)
{
    struct io_uring_cqe *event;

    while (io_uring_peek_cqe(&r->ring, &event) == 0) {
        berthi_read *const read = io_uring_cqe_get_data(event);
        const int64_t result = event->res;

        io_uring_cqe_seen(&r->ring, event);
        finish(r, read, result == -ECANCELED && read != &r->listener ? read_here(read) : result);
    }
}

static void
wait_for_event(ring_reader *r, uint64_t deadline_ns)
{
    const uint64_t now_ns = berthi_sys_now_ns();
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    struct __kernel_timespec timeout;
    struct io_uring_cqe *event;

    /* The kernel has to be asked again soon. */
    if (r->refusals > 0)
        left_ns = berthi_min_u64(left_ns, REFUSAL_PAUSE_NS);
    timeout.tv_sec = (long long)(left_ns / 1000000000u);
    timeout.tv_nsec = (long long)(left_ns % 1000000000u);
    (void)io_uring_wait_cqe_timeout(&r->ring, &event, &timeout);
}

/* ------------------------------------------------------------ from the driver */

static void
submit_to_ring(berthi_reader *reader, berthi_read *read)
{
    ring_reader *const r = (ring_reader *)reader;

    read->begin_ns = berthi_sys_now_ns();
    berthi_read_list_add(&r->pending, read);
    flush(r);
}

static berthi_read *
complete_from_ring(berthi_reader *reader, uint64_t deadline_ns)
{
    ring_reader *const r = (ring_reader *)reader;

    flush(r);
    reap(r);
    if (r->finished.first == NULL && !r->is_woken) {
        wait_for_event(r, deadline_ns);
        reap(r);
    }
    r->is_woken = false;
    return berthi_read_list_take(&r->finished);
}

static void
wake_ring_driver(berthi_reader *reader)
{
    /* A lost signal delays the driver until its deadline, nothing more. */
    (void)berthi_sys_event_signal(((ring_reader *)reader)->event_fd);
}

static void
cancel_ring(berthi_reader *reader)
{
    ring_reader *const r = (ring_reader *)reader;
    berthi_read *read;

    while ((read = berthi_read_list_take(&r->pending)) != NULL)
        finish(r, read, -ECANCELED);
}

static bool
add_ring_buffer(berthi_reader *reader, uint32_t number, void *memory, uint64_t bytes)
{
    ring_reader *const r = (ring_reader *)reader;
    const struct iovec buffer = { memory, (size_t)bytes };

    return r->can_register && !is_faulty()
           && io_uring_register_buffers_update_tag(&r->ring, number, &buffer, NULL, 1) == 1;
}

/* -------------------------------------------------------------- open and close */

/* The thread sanitizer's, where a program has it. */
typedef void note_function(void *place);
note_function __tsan_acquire __attribute__((weak));
note_function __tsan_release __attribute__((weak));

static void
note_pages(void *from, size_t bytes, note_function *note)
{
    for (size_t at = 0; at < bytes; at += berthi_sys_page_bytes())
        note((uint8_t *)from + at);
}

/*
 * The library maps rings by calls of its own, which the thread sanitizer does not see: a ring where
 * another one was is that one to it, which another thread has used. Nothing in a ring is read here:
 * that would be an access before the one note, or behind the other.
 */
static void
note_ring(const ring_reader *r, note_function *note)
{
    const struct io_uring *const ring = &r->ring;

    if (note == NULL)
        return;
    note_pages(ring->sq.ring_ptr, ring->sq.ring_sz, note);
    note_pages(ring->cq.ring_ptr, ring->cq.ring_sz, note);
    note_pages(ring->sq.sqes, r->entries * sizeof(struct io_uring_sqe), note);
}

static void
close_ring(berthi_reader *reader)
{
    ring_reader *const r = (ring_reader *)reader;

    if (r->is_ring_open) {
        note_ring(r, __tsan_release);
        io_uring_queue_exit(&r->ring);
    }
    if (r->event_fd >= 0)
        berthi_sys_close(r->event_fd);
    berthi_memory_free(r->context, BERTHI_PURPOSE_OBJECT, r, sizeof *r);
}

/* Sets up the ring; 0 or a negated errno. */
static int
set_up(ring_reader *r, const berthi_reader_options *options)
{
    struct io_uring_params parameters;
    uint32_t entries;
    int failure;

    memset(&parameters, 0, sizeof parameters);
    parameters.flags = IORING_SETUP_CLAMP;
    entries = (uint32_t)berthi_min_u64((uint64_t)options->depth + 1, ENTRIES_MAX);
    if (is_faulty())
        return -ENOSYS;
    failure = io_uring_queue_init_params(entries, &r->ring, &parameters);
    if (failure != 0)
        return failure;
    r->is_ring_open = true;
    r->entries = parameters.sq_entries;
    note_ring(r, __tsan_acquire);
    /* Without it a wait with a timeout is a request of its own (before 5.11). */
    if ((parameters.features & IORING_FEAT_EXT_ARG) == 0)
        return -ENOSYS;
    r->event_fd = berthi_sys_event_create();
    if (r->event_fd < 0)
        return -errno;
    r->can_register =
        !is_faulty() && io_uring_register_buffers_sparse(&r->ring, options->buffer_count) == 0;
    return 0;
}

/*
 * Rings can be set up where reading through them is forbidden. What is read is a signal of our
 * own, which is there: a file may be on a disk that hangs.
 */
static int
probe(ring_reader *r)
{
    uint64_t signal;
    berthi_read read = {
        .memory = (uint8_t *)&signal,
        .bytes = sizeof signal,
        .buffer = BERTHI_READER_NO_BUFFER,
        .fd = r->event_fd,
        .is_direct = true, /* no thread is needed for it */
    };
    const berthi_read *done = NULL;

    if (berthi_sys_event_signal(r->event_fd) != 0)
        return -errno;
    submit_to_ring(&r->reader, &read);
    while (done == NULL) /* it is on this stack */
        done = complete_from_ring(&r->reader, UINT64_MAX);
    return done->result < 0 ? (int)done->result : 0;
}

static berth_status
open_ring(berth_context *context, const berthi_reader_options *options,
          berthi_reader **out_reader, berth_error *error)
{
    berthi_about about = { .system_error = 0 };
    ring_reader *r;
    int failure;

    *out_reader = NULL;
    r = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *r);
    if (r == NULL)
        return berthi_fail_memory(error, "the io_uring reader");
    r->reader.table = &berthi_reader_uring;
    r->context = context;
    r->event_fd = -1;
    failure = set_up(r, options);
    if (failure == 0)
        failure = probe(r);
    if (failure != 0) {
        close_ring(&r->reader);
        about.system_error = -failure;
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                           "io_uring cannot be used");
    }
    *out_reader = &r->reader;
    return BERTH_OK;
}

const berthi_reader_table berthi_reader_uring = {
    .name = "io_uring",
    .open = open_ring,
    .add_buffer = add_ring_buffer,
    .submit = submit_to_ring,
    .complete = complete_from_ring,
    .wake = wake_ring_driver,
    .cancel = cancel_ring,
    .close = close_ring,
};

#else /* a build without liburing */

static berth_status
open_ring(berth_context *context, const berthi_reader_options *options,
          berthi_reader **out_reader, berth_error *error)
{
    (void)context;
    (void)options;
    *out_reader = NULL;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "this build has no io_uring");
}

const berthi_reader_table berthi_reader_uring = {
    .name = "io_uring",
    .open = open_ring,
};

#endif
