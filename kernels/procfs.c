/* SPDX-License-Identifier: Apache-2.0 */
/* procfs.c - lines, numbers and fields of files that the kernel writes. */
#include "kernels/procfs.h"

#include <errno.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/sys.h"

/* -------------------------------------------------------------------- lines */

void
berthi_procfs_open(berthi_procfs *file, int folder, const char *path)
{
    file->offset = 0;
    file->begin = 0;
    file->end = 0;
    file->is_skipping = false;
    file->is_at_end = false;
    file->fd = berthi_sys_open_read(folder, path);
    file->failure = file->fd < 0 ? errno : 0;
}

/* Moves what is unread to the front and reads behind it; at the end adds a newline. */
static void
fill(berthi_procfs *file)
{
    const size_t unread = file->end - file->begin;
    int64_t got;

    memmove(file->buffer, file->buffer + file->begin, unread);
    file->begin = 0;
    file->end = unread;
    got = berthi_sys_pread(file->fd, file->buffer + unread, sizeof file->buffer - unread,
                           file->offset);
    if (got < 0) {
        file->failure = errno;
    } else if (got == 0) {
        file->is_at_end = true;
        if (unread > 0)
            file->buffer[file->end++] = '\n';
    } else {
        file->offset += (uint64_t)got;
        file->end += (size_t)got;
    }
}

char *
berthi_procfs_next(berthi_procfs *file)
{
    while (file->failure == 0) {
        char *const line = file->buffer + file->begin;
        char *const newline = memchr(line, '\n', file->end - file->begin);

        if (newline != NULL) {
            const bool is_whole = !file->is_skipping;

            *newline = '\0';
            file->begin = (size_t)(newline + 1 - file->buffer);
            file->is_skipping = false;
            if (is_whole)
                return line;
        } else if (file->is_at_end) {
            break;
        } else {
            if (file->end - file->begin == sizeof file->buffer) {
                file->is_skipping = true;
                file->begin = file->end;
            }
            fill(file);
        }
    }
    return NULL;
}

static berthi_reading
reading_of_errno(int failure)
{
    if (failure == 0)
        return BERTHI_READING_OK;
    /* ENODEV: a control group that was removed after its file was opened. */
    return failure == ENOENT || failure == ENOTDIR || failure == ENODEV
               ? BERTHI_READING_ABSENT
               : BERTHI_READING_UNKNOWN;
}

berthi_reading
berthi_procfs_close(berthi_procfs *file)
{
    if (file->fd >= 0)
        berthi_sys_close(file->fd);
    return reading_of_errno(file->failure);
}

/* ------------------------------------------------------------------- values */

const char *
berthi_procfs_digits(const char *text, uint64_t *out_number)
{
    const bool is_there =
        berthi_digits_can_take(&text, text + strlen(text), UINT64_MAX, out_number);

    return is_there ? text : NULL;
}

berthi_reading
berthi_procfs_line(int folder, const char *path, char *text, size_t capacity)
{
    berthi_procfs file;
    berthi_reading reading;
    const char *line;

    text[0] = '\0';
    berthi_procfs_open(&file, folder, path);
    line = berthi_procfs_next(&file);
    if (line != NULL) {
        strncpy(text, line, capacity - 1);
        text[capacity - 1] = '\0';
    }
    reading = berthi_procfs_close(&file);
    return reading == BERTHI_READING_OK && text[0] == '\0' ? BERTHI_READING_UNKNOWN
                                                           : reading;
}

/* The number behind `key`; UNKNOWN when anything else stands there. */
static berthi_reading
field_number(const char *text, const char *unit, uint64_t *out_number)
{
    uint64_t number;
    const char *rest;

    text += strspn(text, " \t");
    rest = berthi_procfs_digits(text, &number);
    if (rest == NULL || strcmp(rest, unit) != 0)
        return BERTHI_READING_UNKNOWN;
    *out_number = number;
    return BERTHI_READING_OK;
}

berthi_reading
berthi_procfs_field(int folder, const char *path, const char *key, const char *unit,
                    uint64_t *out_number)
{
    const size_t key_length = strlen(key);
    berthi_reading found = BERTHI_READING_ABSENT;
    berthi_reading reading;
    berthi_procfs file;
    const char *line;

    berthi_procfs_open(&file, folder, path);
    while (found == BERTHI_READING_ABSENT && (line = berthi_procfs_next(&file)) != NULL)
        if (strncmp(line, key, key_length) == 0)
            found = field_number(line + key_length, unit, out_number);
    reading = berthi_procfs_close(&file);
    return reading != BERTHI_READING_OK ? reading : found;
}
