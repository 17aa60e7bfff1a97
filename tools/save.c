/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - drafts of commands, and what they print where one fails; see save.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/save.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interrupt.h"

#define SHOWN_CAPACITY 256

static berth_status
fail(const save *v, int system_error)
{
    const bool leads_nowhere =
        system_error == ENOENT || system_error == ENOTDIR || system_error == EACCES;
    const bool is_of_output = system_error == ENOSPC || system_error == EDQUOT
                              || system_error == EFBIG || system_error == EBADF;
    const char *const advice =
        leads_nowhere  ? "choose a folder that is there and may be written to"
        : is_of_output ? output_advice(system_error)
                       : "";
    char shown[SHOWN_CAPACITY];

    berth_text_escape(v->path, strlen(v->path), shown, sizeof shown);
    cli_failure(v->command, leads_nowhere ? BERTH_ENOENT : BERTH_EIO, "%s: %s%s%s", shown,
                strerror(system_error), advice[0] != '\0' ? "; " : "", advice);
    return cli_told_of_file(v->path, system_error);
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
    cli_failure(v->command, BERTH_EINVAL, "%s: is there already [exists]; choose "
                "another name or pass --force", shown);
    return cli_told_of_file(v->path, EEXIST);
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
    unsigned char begin[9];
    uint64_t length = 0;
    struct stat found;
    bool is_read;
    int fd;

    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode)) /* a pipe is not even opened */
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

/* What a draft could not begin or end with. */
static berth_status
fail_draft(const save *v, int system_error)
{
    return system_error == EEXIST   ? fail_exists(v)
           : system_error == EISDIR ? fail_name(v)
           : system_error == ENOMEM
               ? cli_failure(v->command, BERTH_ENOMEM, "out of memory")
               : fail(v, system_error);
}

static berth_status
begin_standard(save *v)
{
    v->path = "standard output";
    v->is_standard = true;
    v->draft.fd = dup(STDOUT_FILENO);
    v->draft.is_in_place = v->draft.fd >= 0;
    output_init(&v->out, v->draft.fd);
    return v->draft.is_in_place ? BERTH_OK : fail(v, errno);
}

berth_status
save_begin(save *v, const cli_command *command, const char *path, bool may_overwrite)
{
    int system_error;

    *v = (save){ .command = command, .path = path };
    if (strcmp(path, "-") == 0)
        return begin_standard(v);
    if (path[0] == '\0')
        return fail_name(v);
    if (save_refuse_weights(command, path) != BERTH_OK)
        return BERTH_EINVAL;
    system_error = draft_begin(&v->draft, path, may_overwrite);
    output_init(&v->out, v->draft.fd);
    return system_error == 0 ? BERTH_OK : fail_draft(v, system_error);
}

berth_status
save_end(save *v, berth_status status)
{
    bool has_gone; /* whoever reads, or is not waited for */
    int system_error;
    int failure;

    if (v->draft.temporary == NULL && !v->draft.is_in_place)
        return status;
    output_flush(&v->out);
    has_gone = v->out.system_error == EPIPE && (v->is_standard || interrupt_is_wanted());
    system_error = has_gone ? 0 : v->out.system_error;
    failure = draft_end(&v->draft, system_error == 0 && status == BERTH_OK);
    if (system_error == 0)
        system_error = failure;
    return status != BERTH_OK || system_error == 0 ? status : fail_draft(v, system_error);
}
