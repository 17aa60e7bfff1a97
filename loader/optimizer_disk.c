/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_disk.c - states in a file: a ring of buffers before it.
 *
 *   reader   waits for a buffer whose page has been written, reads the next page into it
 *   step     waits for that, has the page updated
 *   writer   waits for that, and for the copy back from a device; writes
 *
 * All three go through the same pages in the same order; page i is in buffer i mod the
 * number of buffers, so how far each of them has come says everything. Nothing of it takes
 * memory: other parameters have been updated by then. Where no thread can be had one page
 * follows another on the caller's.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/nameless.h"
#include "loader/optimizer.h"
#include "loader/temporary.h"

#define STACK_BYTES (256u * 1024u)

/* ------------------------------------------------------------------------ the file */

static berth_status
fail_system(const berth_optimizer *o, int system_error, const char *what, berth_error *error)
{
    return berthi_fail_system(error, system_error, o->disk.folder, what);
}

static berthi_target
target_of(const berth_optimizer *o)
{
    return (berthi_target){ .folder = o->disk.fd, .name = "", .path = o->disk.folder };
}

static berth_status
grow(berth_optimizer *o, uint64_t bytes, berth_error *error)
{
    const berthi_target target = target_of(o);
    berth_status status;

    if (o->disk.fd < 0)
        return berthi_nameless_create(&(berthi_nameless){ .folder = o->disk.folder,
                                                          .contents = "its states",
                                                          .bytes = bytes },
                                      &o->disk.fd, error);
    /* As before the file was made: what is said is what is missing, and no signal is sent. */
    status = berthi_target_check_limit(&target, bytes, error);
    if (status == BERTH_OK)
        status = berthi_folder_check_space(target.folder, bytes - o->disk.file_bytes,
                                           target.path, error);
    if (status == BERTH_OK)
        status = berthi_temporary_reserve(&target, o->disk.fd, bytes, error);
    if (status == BERTH_OK && berthi_sys_truncate(o->disk.fd, bytes) != 0)
        status = fail_system(o, errno, "making room for states", error);
    return status;
}

berth_status
berthi_disk_grow(berth_optimizer *o, uint64_t bytes, berth_error *error)
{
    uint64_t end;
    berth_status status;

    if (!berthi_can_add(o->disk.used, bytes, &end))
        return berthi_fail_memory(error, "states on the disk");
    if (end <= o->disk.file_bytes)
        return BERTH_OK;
    status = grow(o, end, error);
    if (status == BERTH_OK)
        o->disk.file_bytes = end;
    return status;
}

berth_status
berthi_disk_reserve(berth_optimizer *o, berthi_trained_tensor *p, berth_error *error)
{
    const uint64_t bytes = berthi_optimizer_bytes(o, p, BERTH_STATES_DISK);
    berth_status status;

    if (p->file_offset != BERTHI_NOT_ON_DISK)
        return BERTH_OK;
    if (o->disk.folder == NULL)
        return berthi_fail_argument(error, "states_dir",
                                    "is NULL, and states are to be on the disk");
    status = berthi_disk_grow(o, bytes, error);
    if (status != BERTH_OK)
        return status;
    p->file_offset = o->disk.used;
    o->disk.used += bytes;
    return BERTH_OK;
}

berth_status
berthi_disk_read(const berth_optimizer *o, uint64_t offset, void *bytes, uint64_t size,
                 berth_error *error)
{
    const berthi_file file = { .fd = o->disk.fd, .path = o->disk.folder };

    return berthi_file_read(&file, bytes, size, offset, "reading states", error);
}

berth_status
berthi_disk_write(const berth_optimizer *o, uint64_t offset, const void *bytes,
                  uint64_t size, berth_error *error)
{
    const berthi_target target = target_of(o);

    return berthi_temporary_write(&target, o->disk.fd, bytes, size, offset, error);
}

/* --------------------------------------------------------------------- the buffers */

uint64_t
berthi_disk_buffer_bytes(uint64_t page_bytes)
{
    return berthi_states_buffer_bytes(page_bytes, berthi_sys_page_bytes());
}

void
berthi_disk_free_buffers(berth_optimizer *o)
{
    if (o->disk.buffers == NULL)
        return;
    if (o->disk.is_pinned)
        berthi_optimizer_unpin(o, o->disk.buffers,
                               BERTHI_STATES_BUFFERS * o->disk.buffer_bytes);
    berthi_memory_free_aligned(o->context, BERTHI_PURPOSE_RING, o->disk.buffers,
                               BERTHI_STATES_BUFFERS * o->disk.buffer_bytes,
                               berthi_sys_page_bytes());
    o->disk.buffers = NULL;
    o->disk.buffer_bytes = 0;
}

berth_status
berthi_disk_prepare(berth_optimizer *o, uint64_t page_bytes, berth_error *error)
{
    const uint64_t bytes = berthi_disk_buffer_bytes(page_bytes);
    berth_status status = BERTH_OK;

    if (o->disk.buffer_bytes >= bytes)
        return BERTH_OK;
    if (o->disk.buffers != NULL) /* a step that failed may have left copies behind */
        status = berthi_optimizer_settle(o, error);
    if (status != BERTH_OK)
        return status;
    berthi_disk_free_buffers(o);
    o->disk.buffers = berthi_memory_aligned(o->context, BERTHI_PURPOSE_RING,
                                            BERTHI_STATES_BUFFERS * bytes,
                                            berthi_sys_page_bytes());
    if (o->disk.buffers == NULL)
        return berthi_fail_memory(error, "buffers for states on the disk");
    o->disk.buffer_bytes = bytes;
    o->disk.is_pinned =
        berthi_optimizer_pin(o, o->disk.buffers, BERTHI_STATES_BUFFERS * bytes);
    return BERTH_OK;
}

void
berthi_disk_close(berth_optimizer *o)
{
    berthi_disk_free_buffers(o);
    if (o->disk.fd >= 0)
        berthi_sys_close(o->disk.fd);
    o->disk.fd = -1;
}

/* ------------------------------------------------------------------------ the ring */

typedef struct disk_run {
    berthi_step *step;
    berth_optimizer *optimizer;
    /* Device that the page there comes back from; BERTH_NO_INDEX: none. */
    uint32_t copied_by[BERTHI_STATES_BUFFERS];
    bool is_late; /* one has not come back in time */
    pthread_mutex_t lock; /* all below */
    pthread_cond_t has_changed;
    uint64_t read;        /* pages, from the first one on; so too: */
    uint64_t updated;
    uint64_t written;
    bool is_stopped;
    berth_status status;  /* the first that is not OK */
    berth_error error;
} disk_run;

/* One of the pages that are due: what the three have in place of a list. */
typedef struct disk_page {
    uint64_t i;         /* pages before it */
    uint64_t parameter;
    uint64_t number;    /* among the parameter's */
} disk_page;

/* From `page` on; false: there is none any more. */
static bool
has_page(const berthi_step *step, disk_page *page)
{
    const berth_optimizer *const o = step->optimizer;

    for (; page->parameter < o->parameter_count; page->parameter++, page->number = 0) {
        const berthi_trained_tensor *const p = &o->parameters[page->parameter];

        if (p->memory == NULL && berthi_step_gradient(step, page->parameter).values != NULL
            && page->number < berthi_states_page_count(&p->states))
            return true;
    }
    return false;
}

static void
go_on(disk_page *page)
{
    page->i++;
    page->number++;
}

static const berthi_trained_tensor *
parameter_of(const disk_run *r, const disk_page *page)
{
    return &r->optimizer->parameters[page->parameter];
}

static uint32_t
turn_of(const disk_page *page)
{
    return (uint32_t)(page->i % BERTHI_STATES_BUFFERS);
}

static uint8_t *
buffer_of(const disk_run *r, const disk_page *page)
{
    return r->optimizer->disk.buffers + turn_of(page) * r->optimizer->disk.buffer_bytes;
}

/* -------------------------------------------------------------------- what is done to one */

static berth_status
read_page(disk_run *r, const disk_page *page, berth_error *error)
{
    const berthi_trained_tensor *const p = parameter_of(r, page);
    const berthi_states_page its = berthi_states_get_page(&p->states, page->number);

    return berthi_disk_read(r->optimizer, p->file_offset + its.offset, buffer_of(r, page),
                            its.bytes, error);
}

static berth_status
update_page(disk_run *r, const disk_page *page, berth_error *error)
{
    const berthi_trained_tensor *const p = parameter_of(r, page);
    const berthi_states_page its = berthi_states_get_page(&p->states, page->number);
    const berthi_optimizer_device *const d = &r->optimizer->devices[p->device];

    if (d->is_host) {
        berthi_step_update_host(r->step, page->parameter, &its, buffer_of(r, page));
        return BERTH_OK;
    }
    r->copied_by[turn_of(page)] = p->device;
    return berthi_pager_visit(r->step, page->parameter, &its, buffer_of(r, page),
                              r->optimizer->disk.is_pinned, d->pager.copied[turn_of(page)],
                              error);
}

/* The page there has come back from its device. */
static berth_status
await_copy(disk_run *r, uint32_t turn, berth_error *error)
{
    const uint32_t device = r->copied_by[turn];
    berth_status status;

    r->copied_by[turn] = BERTH_NO_INDEX;
    if (device == BERTH_NO_INDEX)
        return BERTH_OK;
    status = berthi_optimizer_await(r->optimizer, device,
                                    r->optimizer->devices[device].pager.copied[turn], error);
    r->is_late = status != BERTH_OK;
    return status;
}

static berth_status
write_page(disk_run *r, const disk_page *page, berth_error *error)
{
    const berthi_trained_tensor *const p = parameter_of(r, page);
    const berthi_states_page its = berthi_states_get_page(&p->states, page->number);
    const berth_status status = await_copy(r, turn_of(page), error);

    if (status != BERTH_OK)
        return status;
    return berthi_disk_write(r->optimizer, p->file_offset + its.offset, buffer_of(r, page),
                             its.bytes, error);
}

/* ------------------------------------------------------------------------- the three */

/* Until `*done` is beyond `i`; false: something failed. */
static bool
await_done(disk_run *r, const uint64_t *done, uint64_t i)
{
    bool is_stopped;

    pthread_mutex_lock(&r->lock);
    while (*done <= i && !r->is_stopped)
        pthread_cond_wait(&r->has_changed, &r->lock);
    is_stopped = r->is_stopped;
    pthread_mutex_unlock(&r->lock);
    return !is_stopped;
}

/* One page more, or the end of all. */
static void
tell(disk_run *r, uint64_t *done, berth_status status, const berth_error *error)
{
    pthread_mutex_lock(&r->lock);
    if (status == BERTH_OK) {
        ++*done;
    } else if (!r->is_stopped) {
        r->is_stopped = true;
        r->status = status;
        r->error = *error;
    }
    pthread_cond_broadcast(&r->has_changed);
    pthread_mutex_unlock(&r->lock);
}

static void *
run_reader(void *user)
{
    disk_run *const r = user;
    berth_status status = BERTH_OK;

    for (disk_page page = { 0 }; status == BERTH_OK && has_page(r->step, &page); go_on(&page)) {
        berth_error error;

        if (page.i >= BERTHI_STATES_BUFFERS
            && !await_done(r, &r->written, page.i - BERTHI_STATES_BUFFERS))
            break;
        status = read_page(r, &page, &error);
        tell(r, &r->read, status, &error);
    }
    return NULL;
}

static void *
run_writer(void *user)
{
    disk_run *const r = user;
    berth_status status = BERTH_OK;

    for (disk_page page = { 0 }; status == BERTH_OK && has_page(r->step, &page); go_on(&page)) {
        berth_error error;

        if (!await_done(r, &r->updated, page.i))
            break;
        status = write_page(r, &page, &error);
        tell(r, &r->written, status, &error);
    }
    return NULL;
}

static void
run_updates(disk_run *r)
{
    berth_status status = BERTH_OK;

    for (disk_page page = { 0 }; status == BERTH_OK && has_page(r->step, &page); go_on(&page)) {
        berth_error error;

        if (!await_done(r, &r->read, page.i))
            break;
        status = update_page(r, &page, &error);
        tell(r, &r->updated, status, &error);
    }
}

/* -------------------------------------------------------------------------- a step */

/* Without threads. */
static berth_status
run_alone(disk_run *r, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (disk_page page = { 0 }; status == BERTH_OK && has_page(r->step, &page); go_on(&page)) {
        status = read_page(r, &page, error);
        if (status == BERTH_OK)
            status = update_page(r, &page, error);
        if (status == BERTH_OK)
            status = write_page(r, &page, error);
    }
    return status;
}

/* Nothing has been updated, so nothing written: what it has read is read again. */
static void
dismiss(disk_run *r, pthread_t reader)
{
    pthread_mutex_lock(&r->lock);
    r->is_stopped = true;
    pthread_cond_broadcast(&r->has_changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(reader, NULL);
}

static berth_status
run(disk_run *r, berth_error *error)
{
    pthread_t reader;
    pthread_t writer;

    if (berthi_sys_thread_create(&reader, STACK_BYTES, run_reader, r) != 0)
        return run_alone(r, error);
    if (berthi_sys_thread_create(&writer, STACK_BYTES, run_writer, r) != 0) {
        dismiss(r, reader);
        return run_alone(r, error);
    }
    run_updates(r);
    pthread_join(reader, NULL);
    pthread_join(writer, NULL);
    if (r->status != BERTH_OK && error != NULL)
        *error = r->error;
    return r->status;
}

/*
 * What devices still copy to and from stays until they have done so. One that hangs is waited
 * for once: the buffers are the optimizer's, which is not given back before that is over.
 */
static void
drain(disk_run *r)
{
    for (uint32_t turn = 0; turn < BERTHI_STATES_BUFFERS && !r->is_late; turn++) {
        berth_error ignored;

        (void)await_copy(r, turn, &ignored);
    }
}

berth_status
berthi_disk_step(berthi_step *step, berth_error *error)
{
    disk_run r = { .step = step, .optimizer = step->optimizer };
    berth_status status;

    if (!has_page(step, &(disk_page){ 0 }))
        return BERTH_OK;
    for (uint32_t turn = 0; turn < BERTHI_STATES_BUFFERS; turn++)
        r.copied_by[turn] = BERTH_NO_INDEX;
    if (berthi_sys_condition_init(&r.has_changed) != 0) {
        status = run_alone(&r, error);
    } else {
        pthread_mutex_init(&r.lock, NULL);
        status = run(&r, error);
        pthread_mutex_destroy(&r.lock);
        pthread_cond_destroy(&r.has_changed);
    }
    drain(&r);
    return status;
}
