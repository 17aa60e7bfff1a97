/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - one open file of a checkpoint: descriptors, identity, exact reads.
 *
 * The identity (size, device, inode, mtime, ctime) is taken once from the open
 * descriptor; the path is never opened again behind its back. What is read at once is
 * compared with all of it, payload with what tells of its bytes.
 */
#ifndef BERTH_LOADER_FILE_H
#define BERTH_LOADER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/sys.h"

typedef struct berthi_file {
    int fd;                    /* buffered; -1: not open                            */
    int folder;                /* that its name is below; borrowed, as the texts    */
    const char *name;          /* NULL: it has none                                 */
    const char *path;          /* for messages; borrowed, outlives the file         */
    berthi_sys_stat identity;
} berthi_file;

/* Where the links on the way to a file may lead. */
typedef enum berthi_file_links {
    BERTHI_FILE_ANYWHERE,
    BERTHI_FILE_INSIDE /* not out of the folder that the way begins in */
} berthi_file_links;

/*
 * Opens `relative` below `folder` (or BERTHI_SYS_AT_CWD); refuses everything
 * but regular files (NOT_REGULAR), and links that lead elsewhere than `links` says.
 * `path` is what messages show. What is checked later looks for `relative` below `folder` once
 * more: they outlive the file, too. On failure the file is closed (fd -1).
 */
berth_status berthi_file_open(berthi_file *file, int folder, const char *relative,
                              const char *path, berthi_file_links links, berth_error *error);
/* Reads exactly `bytes`; the end before that is TRUNCATED, with its position. */
berth_status berthi_file_read(const berthi_file *file, void *buffer, uint64_t bytes,
                              uint64_t offset, const char *what, berth_error *error);
/*
 * The same by two threads, from BERTHI_FILE_LONG bytes on: memory that is new takes as long
 * to get as the bytes to copy. What fails is what would have failed to one.
 */
#define BERTHI_FILE_LONG (UINT64_C(1) << 21)
berth_status berthi_file_read_long(const berthi_file *file, void *buffer, uint64_t bytes,
                                   uint64_t offset, const char *what, berth_error *error);
/* The two ways in which a read of `what` goes wrong at `position`. */
berth_status berthi_file_fail_truncated(const berthi_file *file, uint64_t position,
                                        uint64_t expected_end, const char *what,
                                        berth_error *error);
berth_status berthi_file_fail_read(const berthi_file *file, int system_error,
                                   uint64_t position, const char *what,
                                   berth_error *error);
/* CHANGED when size, mtime or ctime are no longer those of the opening. */
berth_status berthi_file_check(const berthi_file *file, berth_error *error);
/*
 * The same for reads long after the opening: a file that was linked, moved or removed, or has
 * other permissions, has another ctime and the same bytes. One in whose place there is another
 * is CHANGED.
 */
berth_status berthi_file_check_content(const berthi_file *file, berth_error *error);
/* -1 and closed are allowed. */
void berthi_file_close(berthi_file *file);

#endif
