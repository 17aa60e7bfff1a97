/* SPDX-License-Identifier: Apache-2.0 */
/* draft.c - see draft.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interrupt.h"

#define MAX_ATTEMPTS 100u
#define STEM_BYTES 200u /* of a name, in that of its temporary file */

/* ------------------------------------------------------------------------- begin */

/* What is left of the temporary name, where there is one. */
static void
forget_temporary(draft *d)
{
    interrupt_forget(d->temporary);
    free(d->temporary);
    d->temporary = NULL;
}

/* The end of a name, not from within a character. */
static const char *
stem_of(const char *name)
{
    const size_t length = strlen(name);

    if (length <= STEM_BYTES)
        return name;
    name += length - STEM_BYTES;
    while (((unsigned char)*name & 0xC0) == 0x80)
        name++;
    return name;
}

/*
 * `.NAME.berth-PID.tmp` beside it, `-1`, `-2` behind the number later, of a long NAME its end;
 * NULL when memory is out.
 */
static char *
temporary_name(const char *path, unsigned attempt)
{
    const char *const slash = strrchr(path, '/');
    const size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    const size_t capacity = strlen(path) + 48;
    char *const name = malloc(capacity);
    char behind[16] = "";

    if (attempt > 0)
        snprintf(behind, sizeof behind, "-%u", attempt);
    if (name != NULL)
        snprintf(name, capacity, "%.*s.%s.berth-%ld%s.tmp", (int)folder, path,
                 stem_of(path + folder), (long)getpid(), behind);
    return name;
}

/*
 * The mode of what it will replace, and the owner and group, or the group alone, where they can be
 * given: who may not read that one may not read this one. Returns 0, or errno.
 */
static int
take_over(int fd, const struct stat *replaced)
{
    const mode_t mode = replaced->st_mode & 0777;
    /* Owner first: changing it clears bits of the mode. */
    const bool is_given = fchown(fd, replaced->st_uid, replaced->st_gid) == 0
                          || fchown(fd, (uid_t)-1, replaced->st_gid) == 0;
    struct stat present;
    int system_error;

    (void)is_given;
    if (fchmod(fd, mode) == 0)
        return 0;
    system_error = errno;
    /* File systems with one mode for all files refuse to set even that one. */
    return fstat(fd, &present) == 0 && (present.st_mode & 0777) == mode ? 0 : system_error;
}

/*
 * What is there already is not touched: a process of another container may have our number.
 * `replaced`: what is there under the file's own name, or NULL.
 */
static int
begin_temporary(draft *d, const struct stat *replaced)
{
    int system_error = EEXIST;

    for (unsigned attempt = 0; system_error == EEXIST && attempt < MAX_ATTEMPTS; attempt++) {
        d->temporary = temporary_name(d->path, attempt);
        if (d->temporary == NULL)
            return ENOMEM;
        interrupt_remove(d->temporary);
        d->fd = open(d->temporary, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL,
                     replaced != NULL ? 0600 : 0666);
        system_error = d->fd < 0             ? errno
                       : replaced != NULL ? take_over(d->fd, replaced)
                                          : 0;
        if (system_error == 0)
            return 0;
        if (d->fd >= 0) {
            unlink(d->temporary);
            close(d->fd);
        }
        forget_temporary(d);
    }
    return system_error;
}

static int
begin_in_place(draft *d)
{
    d->fd = open(d->path, O_WRONLY | O_CLOEXEC);
    d->is_in_place = d->fd >= 0;
    return d->is_in_place ? 0 : errno;
}

int
draft_begin(draft *d, const char *path, bool may_overwrite)
{
    struct stat found;
    const bool is_there = stat(path, &found) == 0;
    struct stat dangling;

    *d = (draft){ .path = path, .may_overwrite = may_overwrite, .fd = -1 };
    if (path[0] == '\0')
        return ENOENT;
    if (is_there && S_ISDIR(found.st_mode))
        return EISDIR;
    if (is_there && !S_ISREG(found.st_mode))
        return begin_in_place(d);
    if (!may_overwrite && (is_there || lstat(path, &dangling) == 0))
        return EEXIST;
    return begin_temporary(d, is_there ? &found : NULL);
}

/* --------------------------------------------------------------------------- end */

/* Returns 0, or errno. Without hard links there is a moment in between. */
static int
put_in_place(const draft *d)
{
    if (!d->may_overwrite && link(d->temporary, d->path) == 0)
        return unlink(d->temporary) == 0 ? 0 : errno;
    if (!d->may_overwrite && (errno == EEXIST || access(d->path, F_OK) == 0))
        return EEXIST;
    return rename(d->temporary, d->path) == 0 ? 0 : errno;
}

int
draft_end(draft *d, bool is_complete)
{
    int system_error = 0;

    if (d->temporary == NULL && !d->is_in_place)
        return 0;
    if (is_complete && fsync(d->fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        system_error = errno;
    if (close(d->fd) != 0 && system_error == 0)
        system_error = errno;
    if (is_complete && system_error == 0 && !d->is_in_place)
        system_error = put_in_place(d);
    if ((!is_complete || system_error != 0) && !d->is_in_place)
        unlink(d->temporary);
    forget_temporary(d);
    d->is_in_place = false;
    return system_error;
}
