/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - a file under a temporary name until it is complete; see save.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interrupt.h"

#define SHOWN_CAPACITY 256
#define MAX_ATTEMPTS 100u

static berth_status
fail(const save *v, int system_error)
{
    const bool leads_nowhere =
        system_error == ENOENT || system_error == ENOTDIR || system_error == EACCES;
    const char *const advice = leads_nowhere ? "; choose a folder that is there and may be "
                                               "written to"
                               : system_error == ENOSPC || system_error == EDQUOT
                                   ? "; free space, or write elsewhere"
                               : system_error == EFBIG
                                   ? "; raise the limit of a file's size, see `ulimit -f`"
                                   : "";
    char shown[SHOWN_CAPACITY];

    berth_text_escape(v->path, strlen(v->path), shown, sizeof shown);
    return cli_failure(v->command, leads_nowhere ? BERTH_ENOENT : BERTH_EIO, "%s: %s%s",
                       shown, strerror(system_error), advice);
}

/* What no file can be made at. */
static berth_status
fail_name(const save *v)
{
    char shown[SHOWN_CAPACITY];

    if (v->path[0] == '\0')
        return cli_failure(v->command, BERTH_EINVAL,
                           "the name of the file to write is empty; give one");
    berth_text_escape(v->path, strlen(v->path), shown, sizeof shown);
    return cli_failure(v->command, BERTH_EINVAL,
                       "%s: is a folder; give the name of a file in it", shown);
}

static berth_status
fail_exists(const save *v)
{
    char shown[SHOWN_CAPACITY];

    berth_text_escape(v->path, strlen(v->path), shown, sizeof shown);
    return cli_failure(v->command, BERTH_EINVAL, "%s: is there already [exists]; choose "
                       "another name or pass --force", shown);
}

/* What is left of the temporary name, where there is one. */
static void
forget_temporary(save *v)
{
    interrupt_forget(v->temporary);
    free(v->temporary);
    v->temporary = NULL;
}

/* `.NAME.berth-PID.tmp` beside it, `-1`, `-2` behind the number later; NULL when memory is out. */
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
        snprintf(name, capacity, "%.*s.%s.berth-%ld%s.tmp", (int)folder, path, path + folder,
                 (long)getpid(), behind);
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
static berth_status
begin_temporary(save *v, const struct stat *replaced)
{
    int system_error = EEXIST;

    for (unsigned attempt = 0; system_error == EEXIST && attempt < MAX_ATTEMPTS; attempt++) {
        int fd;

        v->temporary = temporary_name(v->path, attempt);
        if (v->temporary == NULL)
            return cli_failure(v->command, BERTH_ENOMEM, "out of memory");
        interrupt_remove(v->temporary);
        fd = open(v->temporary, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL,
                  replaced != NULL ? 0600 : 0666);
        system_error = fd < 0 ? errno : replaced != NULL ? take_over(fd, replaced) : 0;
        if (system_error == 0) {
            output_init(&v->out, fd);
            return BERTH_OK;
        }
        if (fd >= 0) {
            unlink(v->temporary);
            close(fd);
        }
        forget_temporary(v);
    }
    return fail(v, system_error);
}

static berth_status
begin_in_place(save *v, const char *path)
{
    const int fd = v->is_standard ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        output_init(&v->out, fd);
        return BERTH_OK;
    }
    v->is_in_place = false;
    return fail(v, errno);
}

bool
save_is_same(const char *a, const char *b)
{
    struct stat of_a;
    struct stat of_b;

    if (a == NULL || b == NULL)
        return false;
    if (stat(a, &of_a) != 0 || stat(b, &of_b) != 0)
        return strcmp(a, b) == 0;
    return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* The length of a header that ends within the file, in little-endian order, and its brace. */
static bool
is_weights(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    unsigned char begin[9];
    uint64_t length = 0;
    struct stat found;
    bool is_read;

    if (fd < 0)
        return false;
    is_read = fstat(fd, &found) == 0 && S_ISREG(found.st_mode)
              && read(fd, begin, sizeof begin) == (ssize_t)sizeof begin;
    close(fd);
    for (int i = 7; i >= 0 && is_read; i--)
        length = length << 8 | begin[i];
    return is_read && begin[8] == '{' && length <= (uint64_t)found.st_size - 8;
}

berth_status
save_refuse_weights(const cli_command *command, const char *path)
{
    char shown[SHOWN_CAPACITY];

    if (!is_weights(path))
        return BERTH_OK;
    berth_text_escape(path, strlen(path), shown, sizeof shown);
    return cli_failure(command, BERTH_EINVAL, "%s: holds weights, which are never "
                       "replaced; choose another name", shown);
}

berth_status
save_begin(save *v, const cli_command *command, const char *path, bool may_overwrite)
{
    struct stat found;
    const bool is_there = stat(path, &found) == 0;

    *v = (save){ .command = command, .path = path, .may_overwrite = may_overwrite };
    if (strcmp(path, "-") == 0) {
        v->path = "standard output";
        v->is_in_place = v->is_standard = true;
        return begin_in_place(v, path);
    }
    if (path[0] == '\0' || (is_there && S_ISDIR(found.st_mode)))
        return fail_name(v);
    v->is_in_place = is_there && !S_ISREG(found.st_mode);
    if (v->is_in_place)
        return begin_in_place(v, path);
    if (save_refuse_weights(command, path) != BERTH_OK)
        return BERTH_EINVAL;
    if (!may_overwrite && is_there)
        return fail_exists(v);
    return begin_temporary(v, is_there ? &found : NULL);
}

/* Returns 0, or errno. Without hard links there is a moment in between. */
static int
put_in_place(const save *v)
{
    if (!v->may_overwrite && link(v->temporary, v->path) == 0)
        return unlink(v->temporary) == 0 ? 0 : errno;
    if (!v->may_overwrite && (errno == EEXIST || access(v->path, F_OK) == 0))
        return EEXIST;
    return rename(v->temporary, v->path) == 0 ? 0 : errno;
}

berth_status
save_end(save *v, berth_status status)
{
    int system_error;

    if (v->temporary == NULL && !v->is_in_place)
        return status;
    output_flush(&v->out);
    system_error = v->is_standard && v->out.system_error == EPIPE ? 0 : v->out.system_error;
    if (system_error == 0 && status == BERTH_OK && fsync(v->out.fd) != 0
        && errno != EINVAL && errno != ENOTSUP)
        system_error = errno;
    if (close(v->out.fd) != 0 && system_error == 0)
        system_error = errno;
    if (system_error == 0 && status == BERTH_OK && !v->is_in_place)
        system_error = put_in_place(v);
    if ((system_error != 0 || status != BERTH_OK) && !v->is_in_place)
        unlink(v->temporary);
    forget_temporary(v);
    if (status != BERTH_OK || system_error == 0)
        return status;
    return system_error == EEXIST ? fail_exists(v) : fail(v, system_error);
}
