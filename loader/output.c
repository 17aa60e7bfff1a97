/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - files written through a temporary name and one rename. */
#include "loader/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sys.h"

#define PATH_CAPACITY 4096
#define TEXT_BLOCK_BYTES 1024
/* "." before the name; behind it ".berth-", pid, "-", 8 digits, ".tmp", NUL. */
#define TEMPORARY_EXTRA 40
#define TEMPORARY_MARK ".berth-"
#define TEMPORARY_END ".tmp"
#define RANDOM_DIGITS 8
/* Each attempt fails only when someone else met the same random number. */
#define MAX_ATTEMPTS 8

/* ------------------------------------------------------------------- failing */

static berth_status
fail_with(const berthi_output *output, berth_reason reason, const char *message,
          berth_error *error)
{
    const berthi_about about = { .file = output->path };

    return berthi_fail(error, reason, &about, "%s", message);
}

static berth_status
fail_system(const berthi_output *output, const char *what, berth_error *error)
{
    return berthi_fail_system(error, errno, output->path, what);
}

static berth_status
fail_full(const berthi_output *output, uint64_t available, const char *message,
          berth_error *error)
{
    const berthi_about about = {
        .file = output->path,
        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
        .expected = output->bytes,
        .actual = available,
    };

    return berthi_fail(error, BERTH_REASON_DISK_FULL, &about, "%s", message);
}

/* -------------------------------------------------------------- name, folder */

/* Splits the path; the folder's own name is needed only until it is open. */
static berth_status
open_folder(berthi_output *output, berth_error *error)
{
    const char *const slash = strrchr(output->path, '/');
    const char *folder = ".";

    output->name = slash != NULL ? slash + 1 : output->path;
    if (output->name[0] == '\0' || strcmp(output->name, ".") == 0
        || strcmp(output->name, "..") == 0)
        return fail_with(output, BERTH_REASON_ARGUMENT, "is not the name of a file",
                         error);
    if (slash != NULL) {
        const uint64_t length = (uint64_t)(slash - output->path);

        folder = berthi_arena_text(&output->texts, output->path, length > 0 ? length : 1);
        if (folder == NULL)
            return berthi_fail_memory(error, "opening an output");
    }
    output->folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    if (output->folder < 0)
        return fail_system(output, "opening the folder", error);
    return BERTH_OK;
}

static bool
is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

static bool
is_repository(const char *name)
{
    return strncmp(name, "models--", 8) == 0 || strncmp(name, "datasets--", 10) == 0
           || strncmp(name, "spaces--", 8) == 0;
}

/* models--org--name/{blobs,snapshots,...} anywhere in the path. */
static bool
is_in_hub_cache(const char *path)
{
    static const char *const parts[] = { "blobs", "snapshots", "refs", "trees",
                                         ".no_exist" };
    bool is_inside = false;

    while (*path != '\0') {
        const size_t length = strcspn(path, "/");

        for (size_t i = 0; is_inside && i < sizeof parts / sizeof parts[0]; i++)
            if (is_word(path, length, parts[i]))
                return true;
        is_inside = is_inside || is_repository(path);
        path += length;
        path += *path == '/';
    }
    return false;
}

static berth_status
check_folder(const berthi_output *output, berth_error *error)
{
    char path[PATH_CAPACITY];
    const int64_t length = berthi_sys_path_of(output->folder, path, sizeof path);

    /* Without /proc the path as given has to do. */
    if (is_in_hub_cache(length >= 0 ? path : output->path))
        return fail_with(output, BERTH_REASON_ARGUMENT,
                         "lies in the hub cache, whose files are shared and never "
                         "changed: name a file elsewhere",
                         error);
    return BERTH_OK;
}

/* ------------------------------------------------------------- what is there */

/* `existing` is filled when there is a regular file that may be replaced. */
static berth_status
check_target(const berthi_output *output, berthi_sys_stat *existing, bool *has_existing,
             berth_error *error)
{
    *has_existing = false;
    if (berthi_sys_stat_at(output->folder, output->name, false, existing) != 0) {
        if (errno == ENOENT)
            return BERTH_OK;
        return fail_system(output, "looking for an existing file", error);
    }
    if (existing->kind == BERTHI_SYS_FOLDER || existing->kind == BERTHI_SYS_OTHER)
        return fail_with(output, BERTH_REASON_NOT_REGULAR,
                         existing->kind == BERTHI_SYS_FOLDER
                             ? "is a directory"
                             : "is a pipe, socket or device",
                         error);
    if (!output->overwrite)
        return fail_with(output, BERTH_REASON_EXISTS, "exists already", error);
    *has_existing = existing->kind == BERTHI_SYS_REGULAR;
    return BERTH_OK;
}

static berth_status
check_space(const berthi_output *output, berth_error *error)
{
    uint64_t limit;
    uint64_t available;

    if (berthi_sys_limit(BERTHI_SYS_LIMIT_FILE, &limit) == 0 && output->bytes > limit)
        return fail_full(output, limit, "is larger than this process may write", error);
    if (berthi_sys_free_bytes(output->folder, &available) == 0
        && output->bytes > available)
        return fail_full(output, available, "does not fit on the disk", error);
    return BERTH_OK;
}

/* ------------------------------------------------------------ temporary file */

/* `.<name>.berth-<digits>-<8 hex digits>.tmp` */
static bool
is_temporary_of(const char *name, const char *final_name)
{
    const size_t length = strlen(final_name);

    if (name[0] != '.' || strncmp(name + 1, final_name, length) != 0)
        return false;
    name += 1 + length;
    if (strncmp(name, TEMPORARY_MARK, strlen(TEMPORARY_MARK)) != 0)
        return false;
    name += strlen(TEMPORARY_MARK);
    name += strspn(name, "0123456789");
    return name[0] == '-' && strspn(name + 1, "0123456789abcdef") == RANDOM_DIGITS
           && strcmp(name + 1 + RANDOM_DIGITS, TEMPORARY_END) == 0;
}

/* Best effort: what cannot be looked at stays. */
static int
remove_if_dead(void *user, const char *name)
{
    const berthi_output *const output = user;
    berthi_sys_stat state;
    int fd;

    if (!is_temporary_of(name, output->name)
        || berthi_sys_stat_at(output->folder, name, false, &state) != 0
        || state.kind != BERTHI_SYS_REGULAR)
        return 0;
    fd = berthi_sys_open_read(output->folder, name);
    if (fd < 0)
        return 0;
    if (berthi_sys_lock(fd) == 0)
        berthi_sys_unlink(output->folder, name);
    berthi_sys_close(fd);
    return 0;
}

/* True unless another process removed the file as a dead one's meanwhile. */
static bool
is_still_ours(const berthi_output *output)
{
    berthi_sys_stat opened;
    berthi_sys_stat named;

    if (berthi_sys_lock(output->fd) != 0 && errno == EWOULDBLOCK)
        return false;
    return berthi_sys_fstat(output->fd, &opened) == 0
           && berthi_sys_stat_at(output->folder, output->temporary, false, &named) == 0
           && opened.inode == named.inode && opened.device == named.device;
}

static void
drop_temporary(berthi_output *output)
{
    if (output->fd < 0)
        return;
    berthi_sys_unlink(output->folder, output->temporary);
    berthi_sys_close(output->fd);
    output->fd = -1;
}

static berth_status
create_temporary(berthi_output *output, berth_error *error)
{
    const size_t capacity = strlen(output->name) + TEMPORARY_EXTRA;
    char *const name = berthi_arena_alloc(&output->texts, capacity, 1);

    if (name == NULL)
        return berthi_fail_memory(error, "opening an output");
    output->temporary = name;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        uint32_t random;

        if (berthi_sys_random(&random, sizeof random) != 0)
            return fail_system(output, "making a random name", error);
        snprintf(name, capacity, ".%s" TEMPORARY_MARK "%" PRIu32 "-%08" PRIx32
                                 TEMPORARY_END,
                 output->name, berthi_sys_process_id(), random);
        output->fd = berthi_sys_create(output->folder, name);
        if (output->fd >= 0 && is_still_ours(output))
            return BERTH_OK;
        if (output->fd < 0 && errno != EEXIST)
            return fail_system(output, "creating a temporary file beside it", error);
        drop_temporary(output);
    }
    return fail_with(output, BERTH_REASON_IO,
                     "no temporary file beside it could be created and kept", error);
}

/* The whole size now: a full disk must not be found out at the end. */
static berth_status
allocate(const berthi_output *output, berth_error *error)
{
    /* EINVAL: nothing to reserve, or a file system that knows no such thing. */
    if (berthi_sys_allocate(output->fd, output->bytes) == 0 || errno == EOPNOTSUPP
        || errno == EINVAL)
        return BERTH_OK;
    return fail_system(output, "reserving space", error);
}

/* ------------------------------------------------------------------- calls */

static berth_status
prepare(berthi_output *output, berth_error *error)
{
    berthi_sys_stat existing;
    bool has_existing;
    berth_status status = open_folder(output, error);

    if (status == BERTH_OK)
        status = check_folder(output, error);
    if (status == BERTH_OK)
        status = check_target(output, &existing, &has_existing, error);
    if (status == BERTH_OK)
        status = check_space(output, error);
    if (status != BERTH_OK)
        return status;
    berthi_sys_list(output->folder, remove_if_dead, output);
    status = create_temporary(output, error);
    if (status == BERTH_OK)
        status = allocate(output, error);
    return status;
}

berth_status
berthi_output_open(berth_context *context, const char *path, uint64_t bytes,
                   bool overwrite, berthi_output *out, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    out->context = context;
    out->folder = -1;
    out->fd = -1;
    out->bytes = bytes;
    out->overwrite = overwrite;
    berthi_arena_init(&out->texts, context, BERTHI_PURPOSE_OBJECT, TEXT_BLOCK_BYTES);
    out->path = berthi_arena_text(&out->texts, path, strlen(path));
    status = out->path != NULL ? prepare(out, error)
                               : berthi_fail_memory(error, "opening an output");
    if (status != BERTH_OK)
        berthi_output_discard(out);
    return status;
}

berth_status
berthi_output_write(berthi_output *output, const void *bytes, uint64_t size,
                    uint64_t offset, berth_error *error)
{
    uint64_t done = 0;

    /* Beyond the size that was announced lies what nobody checked. */
    if (offset > output->bytes || size > output->bytes - offset)
        return fail_with(output, BERTH_REASON_INTERNAL, "a write beyond the end", error);
    while (done < size) {
        const int64_t put = berthi_sys_pwrite(output->fd, (const char *)bytes + done,
                                              size - done, offset + done);

        if (put == 0)
            errno = ENOSPC; /* no progress and no reason: what else would it be */
        if (put <= 0)
            return fail_system(output, "writing", error);
        done += (uint64_t)put;
    }
    output->written += size;
    return BERTH_OK;
}

/* Mode and owner of what is replaced. Giving a file away may be forbidden. */
static berth_status
take_over(const berthi_output *output, const berthi_sys_stat *existing,
          berth_error *error)
{
    /* Owner first: changing it clears bits of the mode. */
    (void)berthi_sys_set_owner(output->fd, existing->user, existing->group);
    if (berthi_sys_set_mode(output->fd, existing->mode & 0777u) != 0)
        return fail_system(output, "taking over the permissions", error);
    return BERTH_OK;
}

/*
 * The name appears here. A file system without the rename that refuses to
 * replace leaves a moment in which another file of that name would be lost.
 */
static berth_status
publish(berthi_output *output, berth_error *error)
{
    int failed;

    if (output->overwrite) {
        failed = berthi_sys_rename(output->folder, output->temporary, output->name);
    } else {
        failed = berthi_sys_rename_new(output->folder, output->temporary, output->name);
        if (failed != 0 && errno == EINVAL)
            failed = berthi_sys_rename(output->folder, output->temporary, output->name);
    }
    if (failed != 0 && errno == EEXIST)
        return fail_with(output, BERTH_REASON_EXISTS, "exists already", error);
    if (failed != 0)
        return fail_system(output, "renaming the temporary file", error);
    berthi_sys_close(output->fd);
    output->fd = -1;
    return BERTH_OK;
}

static berth_status
flush_folder(const berthi_output *output, berth_error *error)
{
    berth_status status;

    /* EINVAL: a file system whose folders are never flushed separately. */
    if (berthi_sys_fsync(output->folder) == 0 || errno == EINVAL)
        return BERTH_OK;
    status = fail_system(output, "flushing the folder", error);
    if (!output->overwrite)
        berthi_sys_unlink(output->folder, output->name);
    return status;
}

berth_status
berthi_output_commit(berthi_output *output, berth_error *error)
{
    berthi_sys_stat existing;
    bool has_existing = false;
    berth_status status = BERTH_OK;

    if (output->written != output->bytes)
        status = fail_with(output, BERTH_REASON_INTERNAL, "was not written completely",
                           error);
    if (status == BERTH_OK)
        status = check_target(output, &existing, &has_existing, error);
    if (status == BERTH_OK && has_existing)
        status = take_over(output, &existing, error);
    /* A failure is final: the kernel may have dropped what it could not write. */
    if (status == BERTH_OK && berthi_sys_fsync(output->fd) != 0)
        status = fail_system(output, "flushing", error);
    if (status == BERTH_OK)
        status = publish(output, error);
    if (status == BERTH_OK)
        status = flush_folder(output, error);
    berthi_output_discard(output);
    return status;
}

void
berthi_output_discard(berthi_output *output)
{
    if (output->context == NULL)
        return;
    drop_temporary(output);
    if (output->folder >= 0)
        berthi_sys_close(output->folder);
    berthi_arena_fini(&output->texts);
    memset(output, 0, sizeof *output);
}
