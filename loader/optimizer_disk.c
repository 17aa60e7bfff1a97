/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_disk.c - states in a file: a ring of buffers before it.
 *
 *   reader   waits for a buffer whose page has been written, reads the next page into it
 *   step     waits for that, has the page updated
 *   writer   waits for that, and for the copy back from a device; writes
 *
 * All three go through the same list of pages; page i is in buffer i mod the number of
 * buffers, so how far each of them has come says everything.
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

static berth_status
grow(berth_optimizer *o, uint64_t bytes, berth_error *error)
{
    const berthi_target target = { .folder = o->disk.fd, .name = "", .path = o->disk.folder };
    berth_status status;

    if (o->disk.fd < 0)
        return berthi_nameless_create(&(berthi_nameless){ .folder = o->disk.folder,
                                                          .contents = "its states",
                                                          .bytes = bytes },
                                      &o->disk.fd, error);
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
berthi_disk_reserve(berth_optimizer *o, berthi_parameter *p, berth_error *error)
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
    uint64_t done = 0;

    while (done < size) {
        const int64_t written = berthi_sys_pwrite(o->disk.fd, (const char *)bytes + done,
                                                  size - done, offset + done);

        if (written <= 0)
            return fail_system(o, written < 0 ? errno : EIO, "writing states", error);
        done += (uint64_t)written;
    }
    return BERTH_OK;
}

/* --------------------------------------------------------------------- the buffers */

uint64_t
berthi_disk_buffer_bytes(uint64_t page_bytes)
{
    return berthi_states_buffer_bytes(page_bytes, berthi_sys_page_bytes());
}

static void
free_buffers(berth_optimizer *o)
{
    if (o->disk.buffers == NULL)
        return;
    if (o->disk.is_pinned)
        berthi_optimizer_unpin(o, o->disk.buffers,
                               BERTHI_DISK_BUFFERS * o->disk.buffer_bytes);
    berthi_memory_free_aligned(o->context, BERTHI_PURPOSE_RING, o->disk.buffers,
                               BERTHI_DISK_BUFFERS * o->disk.buffer_bytes,
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
    free_buffers(o);
    o->disk.buffers = berthi_memory_aligned(o->context, BERTHI_PURPOSE_RING,
                                            BERTHI_DISK_BUFFERS * bytes,
                                            berthi_sys_page_bytes());
    if (o->disk.buffers == NULL)
        return berthi_fail_memory(error, "buffers for states on the disk");
    o->disk.buffer_bytes = bytes;
    o->disk.is_pinned =
        berthi_optimizer_pin(o, o->disk.buffers, BERTHI_DISK_BUFFERS * bytes);
    return BERTH_OK;
}

void
berthi_disk_close(berth_optimizer *o)
{
    free_buffers(o);
    if (o->disk.fd >= 0)
        berthi_sys_close(o->disk.fd);
    o->disk.fd = -1;
}

/* ------------------------------------------------------------------------ the ring */

typedef struct disk_page {
    uint64_t parameter;
    uint64_t number;
} disk_page;

typedef struct disk_run {
    berthi_step *step;
    berth_optimizer *optimizer;
    disk_page *pages;
    uint64_t count;
    berthi_event *copied[BERTHI_DISK_BUFFERS]; /* of the page there; NULL: by the host */
    pthread_mutex_t lock; /* all below */
    pthread_cond_t has_changed;
    uint64_t read;        /* pages, from the first one on; so too: */
    uint64_t updated;
    uint64_t written;
    bool is_stopped;
    berth_status status;  /* the first that is not OK */
    berth_error error;
} disk_run;

static berthi_states_page
page_of(const disk_run *r, uint64_t i, const berthi_parameter **out_parameter)
{
    const berthi_parameter *const p = &r->optimizer->parameters[r->pages[i].parameter];

    *out_parameter = p;
    return berthi_states_get_page(&p->states, r->pages[i].number);
}

static uint8_t *
buffer_of(const disk_run *r, uint64_t i)
{
    return r->optimizer->disk.buffers
           + i % BERTHI_DISK_BUFFERS * r->optimizer->disk.buffer_bytes;
}

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

    for (uint64_t i = 0; i < r->count && status == BERTH_OK; i++) {
        const berthi_parameter *p;
        const berthi_states_page page = page_of(r, i, &p);
        berth_error error;

        if (i >= BERTHI_DISK_BUFFERS && !await_done(r, &r->written, i - BERTHI_DISK_BUFFERS))
            break;
        status = berthi_disk_read(r->optimizer, p->file_offset + page.offset,
                                  buffer_of(r, i), page.bytes, &error);
        tell(r, &r->read, status, &error);
    }
    return NULL;
}

/* The page has come back from its device. */
static berth_status
await_copy(disk_run *r, uint64_t i, const berthi_parameter *p, berth_error *error)
{
    berthi_event **const copied = &r->copied[i % BERTHI_DISK_BUFFERS];
    berthi_device *const d = r->optimizer->devices[p->device].device;
    berth_status status;

    if (*copied == NULL)
        return BERTH_OK;
    status = berthi_optimizer_await(r->optimizer, p->device, *copied, error);
    d->table->event_destroy(d, *copied);
    *copied = NULL;
    return status;
}

static void *
run_writer(void *user)
{
    disk_run *const r = user;
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < r->count && status == BERTH_OK; i++) {
        const berthi_parameter *p;
        const berthi_states_page page = page_of(r, i, &p);
        berth_error error;

        if (!await_done(r, &r->updated, i))
            break;
        status = await_copy(r, i, p, &error);
        if (status == BERTH_OK)
            status = berthi_disk_write(r->optimizer, p->file_offset + page.offset,
                                       buffer_of(r, i), page.bytes, &error);
        tell(r, &r->written, status, &error);
    }
    return NULL;
}

static berth_status
update(disk_run *r, uint64_t i, berth_error *error)
{
    const berthi_parameter *p;
    const berthi_states_page page = page_of(r, i, &p);
    berthi_event **const copied = &r->copied[i % BERTHI_DISK_BUFFERS];
    berthi_device *const d = r->optimizer->devices[p->device].device;
    berth_status status;

    if (r->optimizer->devices[p->device].is_host) {
        berthi_step_update_host(r->step, r->pages[i].parameter, &page, buffer_of(r, i));
        return BERTH_OK;
    }
    status = d->table->event_create(d, copied, error);
    if (status == BERTH_OK)
        status = berthi_pager_visit(r->step, r->pages[i].parameter, &page, buffer_of(r, i),
                                    r->optimizer->disk.is_pinned, *copied, error);
    return status;
}

static void
run_pages(disk_run *r)
{
    for (uint64_t i = 0; i < r->count && await_done(r, &r->read, i); i++) {
        berth_error error;
        const berth_status status = update(r, i, &error);

        tell(r, &r->updated, status, &error);
        if (status != BERTH_OK)
            break;
    }
}

/* -------------------------------------------------------------------------- a step */

static bool
is_due(const berthi_step *step, uint64_t parameter)
{
    return step->optimizer->parameters[parameter].memory == NULL
           && berthi_step_gradient(step, parameter).values != NULL;
}

static uint64_t
list_pages(const berthi_step *step, disk_page *out)
{
    const berth_optimizer *const o = step->optimizer;
    uint64_t count = 0;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        const uint64_t pages =
            is_due(step, i) ? berthi_states_page_count(&o->parameters[i].states) : 0;

        for (uint64_t k = 0; k < pages; k++, count++)
            if (out != NULL)
                out[count] = (disk_page){ i, k };
    }
    return count;
}

/* What devices still copy to and from stays until they have done so. */
static void
drain(disk_run *r)
{
    for (uint64_t i = r->written; i < r->count && i < r->written + BERTHI_DISK_BUFFERS; i++) {
        const berthi_parameter *p;
        berth_error ignored;

        (void)page_of(r, i, &p);
        (void)await_copy(r, i, p, &ignored);
    }
}

static berth_status
run(disk_run *r, berth_error *error)
{
    pthread_t reader;
    pthread_t writer;
    bool has_reader;
    bool has_writer;

    has_reader = berthi_sys_thread_create(&reader, STACK_BYTES, run_reader, r) == 0;
    has_writer = has_reader
                 && berthi_sys_thread_create(&writer, STACK_BYTES, run_writer, r) == 0;
    if (has_writer) {
        run_pages(r);
    } else {
        berth_error failure;
        const berth_status status = berthi_fail_memory(&failure, "starting a thread");

        tell(r, &r->read, status, &failure);
    }
    if (has_reader)
        pthread_join(reader, NULL);
    if (has_writer)
        pthread_join(writer, NULL);
    drain(r);
    if (r->status != BERTH_OK && error != NULL)
        *error = r->error;
    return r->status;
}

berth_status
berthi_disk_step(berthi_step *step, berth_error *error)
{
    berth_optimizer *const o = step->optimizer;
    disk_run r = { .step = step, .optimizer = o, .count = list_pages(step, NULL) };
    berth_status status;

    if (r.count == 0)
        return BERTH_OK;
    r.pages = berthi_memory_array(o->context, BERTHI_PURPOSE_CHUNKS, r.count,
                                  sizeof *r.pages);
    if (r.pages == NULL)
        return berthi_fail_memory(error, "a list of pages");
    (void)list_pages(step, r.pages);
    if (berthi_sys_condition_init(&r.has_changed) != 0) {
        status = berthi_fail_memory(error, "updating states on the disk");
    } else {
        pthread_mutex_init(&r.lock, NULL);
        status = run(&r, error);
        pthread_mutex_destroy(&r.lock);
        pthread_cond_destroy(&r.has_changed);
    }
    berthi_memory_free(o->context, BERTHI_PURPOSE_CHUNKS, r.pages,
                       r.count * sizeof *r.pages);
    return status;
}
