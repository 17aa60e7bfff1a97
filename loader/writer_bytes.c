/* SPDX-License-Identifier: Apache-2.0 */
/* writer_bytes.c - the bytes of a file of a set: written, flushed early, read, moved. */
#include <errno.h>
#include <stdatomic.h>

#include "kernels/base.h"
#include "kernels/sys.h"
#include "loader/file.h"
#include "loader/writer_state.h"

/*
 * Write-back begins when a window of a file has been written. A writer that is so
 * many bytes ahead of the disk waits for it and drops what has arrived: of a file
 * no more is dirty or in the cache, and the flush at its end is as short. Few are
 * enough for a disk, and pages that come back soon need not be new ones, which cost
 * a virtual machine more than the bytes that are put there.
 *
 * Where parts share a file each knows its own bytes alone, and windows in which two
 * of them write fill for neither. Theirs are small, and one that the part has left
 * LEFT_WINDOWS behind leaves as it is, or the flush would find most of it.
 */
#define WINDOW_BYTES (UINT64_C(8) << 20)
#define SHARED_WINDOW_BYTES (UINT64_C(1) << 20)
#define AHEAD_BYTES (UINT64_C(64) << 20)
#define SHARED_AHEAD_BYTES (UINT64_C(32) << 20)
#define LEFT_WINDOWS 8u
#define MOVE_BYTES UINT64_C(1048576)

/* -------------------------------------------------------------------- windows */

void
berthi_writer_free_windows(const berthi_writer *writer, berthi_writer_file *file)
{
    berthi_memory_free(writer->context, BERTHI_PURPOSE_OBJECT, file->windows,
                       2 * file->window_count * sizeof *file->windows);
    file->windows = NULL;
}

berth_status
berthi_writer_make_windows(const berthi_writer *writer, berthi_writer_file *file,
                           berth_error *error)
{
    uint64_t bytes;

    file->window_bytes = file->is_shared ? SHARED_WINDOW_BYTES : WINDOW_BYTES;
    file->window_count = berthi_divide_up(file->bytes, file->window_bytes);
    if (!berthi_can_mul(file->window_count, 2 * sizeof *file->windows, &bytes))
        return berthi_fail_memory(error, "creating an output");
    file->windows = berthi_memory_zalloc(writer->context, BERTHI_PURPOSE_OBJECT, bytes);
    return file->windows != NULL ? BERTH_OK
                                 : berthi_fail_memory(error, "creating an output");
}

/* -------------------------------------------------------------------- writing */

/* Advice that failed is no failure, bytes that were lost are. */
static berth_status
check_advice(const berthi_writer *writer, berthi_writer_file *file, int result,
             berth_error *error)
{
    const berthi_target target = berthi_writer_target(writer, file);

    if (result == 0 || (errno != EIO && errno != ENOSPC && errno != EDQUOT))
        return BERTH_OK;
    return berthi_temporary_fail_write(&target, errno, file->bytes, "writing", error);
}

static berth_status
begin_write_back(const berthi_writer *writer, berthi_writer_file *file, uint64_t window,
                 berth_error *error)
{
    _Atomic uint32_t *const order = file->windows + file->window_count;
    const uint64_t bytes = file->window_bytes;
    const uint64_t lead = (file->is_shared ? SHARED_AHEAD_BYTES : AHEAD_BYTES) / bytes;
    uint64_t mine;
    uint64_t behind;
    berth_status status =
        check_advice(writer, file,
                     berthi_sys_write_back(file->fd, window * bytes, bytes), error);

    if (status != BERTH_OK)
        return status;
    mine = atomic_fetch_add(&file->begun, 1);
    if (mine < file->window_count)
        atomic_store(&order[mine], (uint32_t)window + 1);
    if (mine < lead || mine >= file->window_count)
        return BERTH_OK;
    /* 0: its thread has the number and has not noted it yet; it stays until finish. */
    behind = atomic_load(&order[mine - lead]);
    if (behind == 0)
        return BERTH_OK;
    behind = (behind - 1) * bytes;
    status = check_advice(writer, file, berthi_sys_wait_back(file->fd, behind, bytes),
                          error);
    (void)berthi_sys_drop_cache(file->fd, behind, bytes);
    return status;
}

/*
 * Begins to write back those windows of a shared file that lie behind `window` and have not
 * filled. Each is looked at once; what is put there later waits for the flush.
 */
static berth_status
begin_left_behind(const berthi_writer *writer, berthi_writer_file *file, uint64_t window,
                  berth_error *error)
{
    uint64_t first = atomic_load(&file->left);
    const uint64_t end = window > LEFT_WINDOWS ? window - LEFT_WINDOWS : 0;
    berth_status status = BERTH_OK;

    do
        if (first >= end)
            return BERTH_OK;
    while (!atomic_compare_exchange_weak(&file->left, &first, end));
    for (; first < end && status == BERTH_OK; first++) {
        const uint32_t bytes = atomic_load(&file->windows[first]);

        if (bytes > 0 && bytes < file->window_bytes)
            status = begin_write_back(writer, file, first, error);
    }
    return status;
}

/* Counts what was written; a window that is now full begins its way to the disk. */
static berth_status
count_written(const berthi_writer *writer, berthi_writer_file *file, uint64_t size,
              uint64_t offset, berth_error *error)
{
    const uint64_t end = offset + size;
    const uint64_t bytes = file->window_bytes;
    berth_status status = BERTH_OK;

    atomic_fetch_add(&file->written, size);
    while (status == BERTH_OK && offset < berthi_min_u64(end, file->window_count * bytes)) {
        const uint64_t window = offset / bytes;
        const uint64_t begin = window * bytes;
        const uint64_t length = berthi_min_u64(bytes, file->bytes - begin);
        const uint64_t part = berthi_min_u64(end, begin + bytes) - offset;
        const uint32_t before =
            atomic_fetch_add(&file->windows[window], (uint32_t)part);

        if (before + part == length)
            status = begin_write_back(writer, file, window, error);
        if (status == BERTH_OK && file->is_shared)
            status = begin_left_behind(writer, file, window, error);
        offset += part;
    }
    return status;
}

berth_status
berthi_writer_write(berthi_writer *writer, berthi_writer_file *file, const void *bytes,
                    uint64_t size, uint64_t offset, berth_error *error)
{
    const berthi_target target = berthi_writer_target(writer, file);
    berth_status status;

    /* Beyond the size that was announced lies what nobody checked. */
    if (file->is_finished || offset > file->bytes || size > file->bytes - offset)
        return berthi_target_fail(file->path, BERTH_REASON_INTERNAL,
                                  "a write beyond the end", error);
    status = berthi_temporary_write(&target, file->fd, bytes, size, offset, error);
    if (status == BERTH_OK)
        status = count_written(writer, file, size, offset, error);
    if (status != BERTH_OK)
        atomic_store(&file->has_failed, true);
    return status;
}

/* ----------------------------------------------------------- reading, moving */

static berth_status
read_from(const berthi_writer_file *file, int fd, void *buffer, uint64_t size,
          uint64_t offset, berth_error *error)
{
    const berthi_file open = { .fd = fd, .path = file->path };

    return berthi_file_read(&open, buffer, size, offset, "reading what was written", error);
}

berth_status
berthi_writer_read(berthi_writer *writer, berthi_writer_file *file, void *buffer,
                   uint64_t size, uint64_t offset, berth_error *error)
{
    berth_status status;
    int fd;

    if (!file->is_finished)
        return read_from(file, file->fd, buffer, size, offset, error);
    fd = berthi_sys_open_read(writer->folder,
                              file->is_published ? file->name : file->temporary);
    if (fd < 0)
        return berthi_fail_system(error, errno, file->path, "opening");
    status = read_from(file, fd, buffer, size, offset, error);
    berthi_sys_close(fd);
    return status;
}

/* Pieces in the order in which none is overwritten before it was moved. */
static berth_status
move_pieces(const berthi_writer *writer, berthi_writer_file *file, char *buffer,
            uint64_t from, uint64_t to, uint64_t bytes, berth_error *error)
{
    const berthi_target target = berthi_writer_target(writer, file);
    uint64_t done = 0;
    berth_status status = BERTH_OK;

    while (status == BERTH_OK && done < bytes) {
        const uint64_t piece = berthi_min_u64(MOVE_BYTES, bytes - done);
        const uint64_t at = to > from ? bytes - done - piece : done;

        status = read_from(file, file->fd, buffer, piece, from + at, error);
        if (status == BERTH_OK)
            status = berthi_temporary_write(&target, file->fd, buffer, piece, to + at,
                                            error);
        done += piece;
    }
    return status;
}

berth_status
berthi_writer_move(berthi_writer *writer, berthi_writer_file *file, uint64_t from,
                   uint64_t to, uint64_t bytes, berth_error *error)
{
    uint64_t end;
    char *buffer;
    berth_status status;

    if (file->is_finished || from > file->bytes || bytes > file->bytes - from
        || !berthi_can_add(to, bytes, &end))
        return berthi_target_fail(file->path, BERTH_REASON_INTERNAL,
                                  "a move beyond the end", error);
    if (from == to || bytes == 0)
        return BERTH_OK;
    buffer = berthi_memory_alloc(writer->context, BERTHI_PURPOSE_SCRATCH, MOVE_BYTES);
    if (buffer == NULL)
        return berthi_fail_memory(error, "moving bytes of an output");
    status = move_pieces(writer, file, buffer, from, to, bytes, error);
    if (status == BERTH_OK)
        file->bytes = berthi_max_u64(file->bytes, end);
    else
        atomic_store(&file->has_failed, true);
    berthi_memory_free(writer->context, BERTHI_PURPOSE_SCRATCH, buffer, MOVE_BYTES);
    return status;
}
