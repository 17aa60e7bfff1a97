/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.h - short texts that the kernel writes: files below /proc and /sys.
 *
 * Such files tell no size and may be different at the next read, so they are
 * read by lines into a buffer that lies in the struct: nothing here allocates.
 * Lines end in NUL instead of a newline. A line longer than the buffer is left
 * out: none that berth asks for is.
 */
#ifndef BERTH_KERNELS_PROCFS_H
#define BERTH_KERNELS_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BERTHI_PROCFS_UNKNOWN UINT64_MAX
#define BERTHI_PROCFS_LINE 16384 /* a mount table's line holds two paths of 4096 */

/* What asking for something came to. */
typedef enum berthi_reading {
    BERTHI_READING_OK,
    BERTHI_READING_ABSENT, /* there is no such file, or no such line in it */
    BERTHI_READING_UNKNOWN /* it is there, but not to be read or understood */
} berthi_reading;

typedef struct berthi_procfs {
    int fd;
    int failure;     /* errno of what failed, or 0 */
    uint64_t offset; /* of the next read */
    size_t begin;    /* unread part of the buffer */
    size_t end;
    bool is_skipping; /* inside a line that is too long */
    bool is_at_end;
    char buffer[BERTHI_PROCFS_LINE];
} berthi_procfs;

/* `path` is relative to `folder`. A failure is told by the next call. */
void berthi_procfs_open(berthi_procfs *file, int folder, const char *path);
/* The next line, valid until the next call; NULL at the end or on failure. */
char *berthi_procfs_next(berthi_procfs *file);
/* How the lines ended: OK at the file's end or anywhere before it. */
berthi_reading berthi_procfs_close(berthi_procfs *file);

/* Decimal digits at `text`; what follows them, or NULL: none, or above 2^64 - 1. */
const char *berthi_procfs_digits(const char *text, uint64_t *out_number);

/* The first line, cut to `capacity`; "" unless OK. An empty file is UNKNOWN. */
berthi_reading berthi_procfs_line(int folder, const char *path, char *text,
                                  size_t capacity);

/*
 * The number in the first line that begins with `key`, spaces between:
 * "MemTotal:  5 kB". `unit` is what must follow the number, " kB" or "".
 */
berthi_reading berthi_procfs_field(int folder, const char *path, const char *key,
                                   const char *unit, uint64_t *out_number);

#endif
