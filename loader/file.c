/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - opens files of a checkpoint, reads them exactly, notices changes. */
#include "loader/file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define STACK_BYTES (256u * 1024u)

/* Fails unless `state` is a regular file's. */
static berth_status
check_kind(const berthi_sys_stat *state, const char *path, berth_error *error)
{
    const berthi_about about = { .file = path };

    if (state->kind == BERTHI_SYS_REGULAR)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_NOT_REGULAR, &about, "%s, not a regular file",
                       state->kind == BERTHI_SYS_FOLDER ? "a directory"
                                                        : "a pipe, socket or device");
}

static berth_status
fail_open(berth_error *error, int failure, berthi_file_links links, const char *path)
{
    const berthi_about about = { .file = path, .system_error = failure };

    if (links == BERTHI_FILE_INSIDE && failure == EXDEV)
        return berthi_fail(error, BERTH_REASON_PATH, &about,
                           "a link leaves the model's directory");
    return berthi_fail_system(error, failure, path, "opening");
}

berth_status
berthi_file_open(berthi_file *file, int folder, const char *relative, const char *path,
                 berthi_file_links links, berth_error *error)
{
    berth_status status;

    memset(file, 0, sizeof *file);
    file->fd = -1;
    file->folder = folder;
    file->name = relative;
    file->path = path;
    /* Looked at before it is opened: opening alone can start a device. */
    if (berthi_sys_stat_at(folder, relative, BERTHI_SYS_FOLLOW, &file->identity) != 0)
        return berthi_fail_system(error, errno, path, "opening");
    status = check_kind(&file->identity, path, error);
    if (status != BERTH_OK)
        return status;

    file->fd = links == BERTHI_FILE_INSIDE ? berthi_sys_open_beneath(folder, relative)
                                            : berthi_sys_open_read(folder, relative);
    if (file->fd < 0)
        return fail_open(error, errno, links, path);
    /* What was opened is what counts: the name may point elsewhere by now. */
    if (berthi_sys_fstat(file->fd, &file->identity) != 0)
        status = berthi_fail_system(error, errno, path, "looking at the file");
    else
        status = check_kind(&file->identity, path, error);
    if (status != BERTH_OK)
        berthi_file_close(file);
    return status;
}

berth_status
berthi_file_fail_truncated(const berthi_file *file, uint64_t position,
                           uint64_t expected_end, const char *what, berth_error *error)
{
    const berthi_about about = {
        .file = file->path,
        .has = BERTH_HAS_POSITION | BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL,
        .position = position,
        .expected = expected_end,
        .actual = position,
    };

    return berthi_fail(error, BERTH_REASON_TRUNCATED, &about,
                       "%s: the file ended early, it was longer when it was opened", what);
}

berth_status
berthi_file_fail_read(const berthi_file *file, int system_error, uint64_t position,
                      const char *what, berth_error *error)
{
    const berth_status status =
        berthi_fail_system(error, system_error, file->path, what);

    if (error != NULL) {
        error->has = BERTH_HAS_POSITION;
        error->position = position;
    }
    return status;
}

berth_status
berthi_file_read(const berthi_file *file, void *buffer, uint64_t bytes, uint64_t offset,
                 const char *what, berth_error *error)
{
    uint64_t done = 0;

    while (done < bytes) {
        const int64_t got = berthi_sys_pread(file->fd, (char *)buffer + done,
                                             bytes - done, offset + done);

        if (got < 0)
            return berthi_file_fail_read(file, errno, offset + done, what, error);
        if (got == 0)
            return berthi_file_fail_truncated(file, offset + done, offset + bytes, what,
                                              error);
        done += (uint64_t)got;
    }
    return BERTH_OK;
}

/* ----------------------------------------------------------------- by two threads */

/* A half of what is to be read. */
typedef struct half {
    const berthi_file *file;
    char *buffer;
    uint64_t bytes;
    uint64_t offset;
    bool is_read;
} half;

static void *
read_half(void *user)
{
    half *const h = user;
    berth_error ignored;

    h->is_read =
        berthi_file_read(h->file, h->buffer, h->bytes, h->offset, "", &ignored) == BERTH_OK;
    return NULL;
}

berth_status
berthi_file_read_long(const berthi_file *file, void *buffer, uint64_t bytes,
                      uint64_t offset, const char *what, berth_error *error)
{
    const uint64_t bytes_before = bytes / 2;
    half front = { .file = file, .buffer = buffer, .bytes = bytes_before,
                   .offset = offset };
    half rear = { .file = file, .buffer = (char *)buffer + bytes_before,
                  .bytes = bytes - bytes_before, .offset = offset + bytes_before };
    pthread_t thread;

    if (bytes >= BERTHI_FILE_LONG
        && berthi_sys_thread_create(&thread, STACK_BYTES, read_half, &rear) == 0) {
        read_half(&front);
        pthread_join(thread, NULL);
        if (front.is_read && rear.is_read)
            return BERTH_OK;
    }
    /* Two threads have failed and kept no error: reading once more tells why. */
    return berthi_file_read(file, buffer, bytes, offset, what, error);
}

/* ------------------------------------------------------------------------- changes */

/* Does its name lead to another file now? Where it leads nowhere the bytes are still there. */
static bool
is_replaced(const berthi_file *file)
{
    berthi_sys_stat other;

    return file->name != NULL
           && berthi_sys_stat_at(file->folder, file->name, BERTHI_SYS_FOLLOW, &other) == 0
           && (other.inode != file->identity.inode || other.device != file->identity.device);
}

static berth_status
check(const berthi_file *file, bool is_strict, berth_error *error)
{
    berthi_about about = { .file = file->path };
    berthi_sys_stat now;

    if (berthi_sys_fstat(file->fd, &now) != 0)
        return berthi_fail_system(error, errno, file->path, "looking at the file");
    if (now.bytes != file->identity.bytes) {
        about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
        about.expected = file->identity.bytes;
        about.actual = now.bytes;
        return berthi_fail(error, BERTH_REASON_CHANGED, &about,
                           "the file's size changed while it was being read");
    }
    if (now.mtime_ns != file->identity.mtime_ns || now.inode != file->identity.inode)
        return berthi_fail(error, BERTH_REASON_CHANGED, &about,
                           "the file was written to while it was being read");
    if (now.ctime_ns == file->identity.ctime_ns)
        return BERTH_OK;
    if (is_replaced(file))
        return berthi_fail(error, BERTH_REASON_CHANGED, &about,
                           "the file was replaced by another while it was being read");
    if (is_strict)
        return berthi_fail(error, BERTH_REASON_CHANGED, &about,
                           "the file changed while it was being read: its name, links, "
                           "permissions or content");
    return BERTH_OK;
}

berth_status
berthi_file_check(const berthi_file *file, berth_error *error)
{
    return check(file, true, error);
}

berth_status
berthi_file_check_content(const berthi_file *file, berth_error *error)
{
    return check(file, false, error);
}

void
berthi_file_close(berthi_file *file)
{
    if (file->fd >= 0)
        berthi_sys_close(file->fd);
    file->fd = -1;
}
