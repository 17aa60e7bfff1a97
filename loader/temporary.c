/* SPDX-License-Identifier: Apache-2.0 */
/* temporary.c - names, locks, space and the rename of files that are written. */
#include "loader/temporary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/text.h"
#include "loader/hub_guard.h"
#include "loader/paths.h"

/* "." before the name; behind it ".berth-", pid, "-", 8 digits, ".tmp", NUL. */
#define TEMPORARY_EXTRA 40
#define TEMPORARY_MARK ".berth-"
#define TEMPORARY_END ".tmp"
#define RANDOM_DIGITS 8u
#define STEM_BYTES 200u /* of a name, in that of its temporary file */
/* Each attempt fails only when someone else met the same random number. */
#define MAX_ATTEMPTS 8

/* ------------------------------------------------------------------- failing */

berth_status
berthi_target_fail(const char *path, berth_reason reason, const char *message,
                   berth_error *error)
{
    const berthi_about about = { .file = path };

    return berthi_fail(error, reason, &about, "%s", message);
}

static berth_status
fail_system(const berthi_target *target, const char *what, berth_error *error)
{
    return berthi_fail_system(error, errno, target->path, what);
}

static berth_status
fail_full(const char *path, uint64_t bytes, uint64_t available, const char *message,
          berth_error *error)
{
    const berthi_about about = {
        .file = path,
        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
        .expected = bytes,
        .actual = available,
    };

    return berthi_fail(error, BERTH_REASON_DISK_FULL, &about, "%s", message);
}

berth_status
berthi_temporary_fail_write(const berthi_target *target, int system_error, uint64_t bytes,
                            const char *what, berth_error *error)
{
    const berth_status status =
        berthi_fail_system(error, system_error, target->path, what);
    uint64_t available;

    /* What is left of a quota (EDQUOT) nobody knows: no numbers there. */
    if (error != NULL && system_error == ENOSPC
        && berthi_sys_free_bytes(target->folder, &available) == 0 && available < bytes) {
        error->has |= BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
        error->expected = bytes;
        error->actual = available;
    }
    return status;
}

/* ------------------------------------------------------------------- folders */

static berth_status
check_place(const char *real, const char *path, berth_error *error)
{
    if (!berthi_hub_guards(real))
        return BERTH_OK;
    return berthi_target_fail(path, BERTH_REASON_ARGUMENT,
                              "lies in the hub cache, whose files are shared and never "
                              "changed: name a file elsewhere",
                              error);
}

berth_status
berthi_folder_check(int folder, const char *path, berth_error *error)
{
    char real[BERTHI_PATH_CAPACITY];
    const int64_t length = berthi_sys_path_of(folder, real, sizeof real);

    /* Without /proc the path as given has to do. */
    return check_place(length >= 0 ? real : path, path, error);
}

berth_status
berthi_folder_check_new(int folder, const char *path, berth_error *error)
{
    char real[BERTHI_PATH_CAPACITY];
    const int64_t length = berthi_sys_path_of(folder, real, sizeof real);
    size_t end = strlen(path);
    size_t begin;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    if (length >= 0 && (size_t)length < sizeof real)
        snprintf(real + length, sizeof real - (size_t)length, "/%.*s", (int)(end - begin),
                 path + begin);
    return check_place(length >= 0 ? real : path, path, error);
}

berth_status
berthi_folder_check_space(int folder, uint64_t bytes, const char *path,
                          berth_error *error)
{
    uint64_t available;

    if (berthi_sys_free_bytes(folder, &available) == 0 && bytes > available)
        return fail_full(path, bytes, available, "does not fit on the disk", error);
    return BERTH_OK;
}

berth_status
berthi_folder_flush(int folder, const char *path, berth_error *error)
{
    /* EINVAL: a file system whose folders are never flushed separately. EBADF: a folder that
       may be entered and not listed, of which nobody gets more than the place. */
    if (berthi_sys_fsync(folder) == 0 || errno == EINVAL || errno == EBADF)
        return BERTH_OK;
    return berthi_fail_system(error, errno, path, "flushing the folder");
}

/* -------------------------------------------------------------------- target */

berth_status
berthi_target_check(const berthi_target *target, berthi_sys_stat *existing,
                    bool *has_existing, berth_error *error)
{
    *has_existing = false;
    if (berthi_sys_stat_at(target->folder, target->name, BERTHI_SYS_NO_FOLLOW, existing) != 0) {
        if (errno == ENOENT)
            return BERTH_OK;
        return fail_system(target, "looking for an existing file", error);
    }
    if (existing->kind == BERTHI_SYS_FOLDER || existing->kind == BERTHI_SYS_OTHER)
        return berthi_target_fail(target->path, BERTH_REASON_NOT_REGULAR,
                                  existing->kind == BERTHI_SYS_FOLDER
                                      ? "is a directory"
                                      : "is a pipe, socket or device",
                                  error);
    if (!target->overwrite)
        return berthi_target_fail(target->path, BERTH_REASON_EXISTS, "exists already", error);
    *has_existing = existing->kind == BERTHI_SYS_REGULAR;
    return BERTH_OK;
}

berth_status
berthi_target_check_limit(const berthi_target *target, uint64_t bytes, berth_error *error)
{
    uint64_t limit;

    if (berthi_sys_limit(BERTHI_SYS_LIMIT_FILE, &limit) == 0 && bytes > limit)
        return fail_full(target->path, bytes, limit,
                         "is larger than this process may write (`ulimit -f`)", error);
    return BERTH_OK;
}

berth_status
berthi_target_check_space(const berthi_target *target, uint64_t bytes, berth_error *error)
{
    const berth_status status = berthi_target_check_limit(target, bytes, error);

    if (status != BERTH_OK)
        return status;
    return berthi_folder_check_space(target->folder, bytes, target->path, error);
}

/* --------------------------------------------------------------------- names */

static bool
are_all(const char *bytes, size_t count, const char *set)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] == '\0' || strchr(set, bytes[i]) == NULL)
            return false;
    return true;
}

/*
 * What a temporary name is made of: as much of the end of a name as leaves room
 * for the rest, and no folder.
 */
static const char *
stem_of(const char *name)
{
    const char *const slash = strrchr(name, '/');
    const char *stem = slash != NULL ? slash + 1 : name;
    const size_t length = strlen(stem);

    if (length <= STEM_BYTES)
        return stem;
    stem += length - STEM_BYTES;
    while (((unsigned char)*stem & 0xc0u) == 0x80) /* not in the middle of a character */
        stem++;
    return stem;
}

/* `.<stem>.berth-<digits>-<8 hex digits>.tmp`, read from its end: a name may hold
   anything, the mark too. */
bool
berthi_temporary_is_name(const char *name, const char *final_name)
{
    const size_t mark = strlen(TEMPORARY_MARK);
    const size_t tail = 1 + RANDOM_DIGITS + strlen(TEMPORARY_END);
    const size_t length = strlen(name);
    size_t end;

    if (length < tail || name[0] != '.')
        return false;
    end = length - tail;
    if (name[end] != '-' || !are_all(name + end + 1, RANDOM_DIGITS, "0123456789abcdef")
        || strcmp(name + end + 1 + RANDOM_DIGITS, TEMPORARY_END) != 0)
        return false;
    while (end > 0 && are_all(name + end - 1, 1, "0123456789"))
        end--;
    if (end < 2 + mark || !berthi_text_ends((berthi_text){ name, end }, TEMPORARY_MARK))
        return false;
    return final_name == NULL
           || berthi_text_is((berthi_text){ name + 1, end - mark - 1 }, stem_of(final_name));
}

/* ---------------------------------------------------------- what the dead left */

typedef struct search {
    int folder;
    const char *final_name;
    bool (*is_kept)(void *user, const char *name);
    void *user;
} search;

/* What cannot be looked at stays. */
static int
remove_if_dead(void *user, const char *name)
{
    const search *const s = user;
    berthi_sys_stat state;
    int fd;

    if (!berthi_temporary_is_name(name, s->final_name)
        || (s->is_kept != NULL && s->is_kept(s->user, name))
        || berthi_sys_stat_at(s->folder, name, BERTHI_SYS_NO_FOLLOW, &state) != 0
        || state.kind != BERTHI_SYS_REGULAR)
        return 0;
    fd = berthi_sys_open_read(s->folder, name);
    if (fd < 0)
        return 0;
    /* Its owner would have an exclusive one. NFS gives readers no other than this. */
    if (berthi_sys_lock_shared(fd) == 0)
        berthi_sys_unlink(s->folder, name);
    berthi_sys_close(fd);
    return 0;
}

void
berthi_temporary_remove_dead(int folder, const char *final_name,
                             bool (*is_kept)(void *user, const char *name), void *user)
{
    search s = { folder, final_name, is_kept, user };

    berthi_sys_list(folder, remove_if_dead, &s);
}

/* -------------------------------------------------------------------- creating */

/* True unless another process holds or removed the file, as a dead one's, meanwhile. */
static bool
lock_as_ours(int folder, const char *name, int fd)
{
    berthi_sys_stat opened;
    berthi_sys_stat named;

    if (berthi_sys_lock(fd) != 0 && errno == EWOULDBLOCK)
        return false;
    return berthi_sys_fstat(fd, &opened) == 0
           && berthi_sys_stat_at(folder, name, BERTHI_SYS_NO_FOLLOW, &named) == 0
           && opened.inode == named.inode && opened.device == named.device;
}

/* One attempt; *out_fd is -1 when the name or the file was taken. */
static berth_status
try_name(const berthi_target *target, char *name, size_t capacity, int *out_fd,
         berth_error *error)
{
    uint32_t random;

    *out_fd = -1;
    if (berthi_sys_random(&random, sizeof random) != 0)
        return fail_system(target, "making a random name", error);
    snprintf(name, capacity, ".%s" TEMPORARY_MARK "%" PRIu32 "-%08" PRIx32 TEMPORARY_END,
             stem_of(target->name), berthi_sys_process_id(), random);
    *out_fd = berthi_sys_create(target->folder, name);
    if (*out_fd < 0 && errno != EEXIST)
        return fail_system(target, "creating a temporary file in the folder", error);
    if (*out_fd >= 0 && !lock_as_ours(target->folder, name, *out_fd)) {
        berthi_sys_unlink(target->folder, name);
        berthi_sys_close(*out_fd);
        *out_fd = -1;
    }
    return BERTH_OK;
}

berth_status
berthi_temporary_create(const berthi_target *target, berthi_arena *arena,
                        const char **out_name, int *out_fd, berth_error *error)
{
    const size_t capacity = strlen(target->name) + TEMPORARY_EXTRA;
    char *const name = berthi_arena_alloc(arena, capacity, 1);

    *out_name = NULL;
    *out_fd = -1;
    if (name == NULL)
        return berthi_fail_memory(error, "opening an output");
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        const berth_status status = try_name(target, name, capacity, out_fd, error);

        if (status != BERTH_OK)
            return status;
        if (*out_fd >= 0) {
            *out_name = name;
            return BERTH_OK;
        }
    }
    return berthi_target_fail(target->path, BERTH_REASON_IO,
                              "no temporary file could be created and kept in the folder", error);
}

berth_status
berthi_temporary_reserve(const berthi_target *target, int fd, uint64_t bytes,
                         berth_error *error)
{
    /* EINVAL: nothing to reserve, or a file system that knows no such thing; ENOSYS: a filter. */
    if (berthi_sys_allocate(fd, bytes) == 0 || errno == EOPNOTSUPP || errno == EINVAL
        || errno == ENOSYS)
        return BERTH_OK;
    return berthi_temporary_fail_write(target, errno, bytes, "reserving space", error);
}

berth_status
berthi_temporary_write(const berthi_target *target, int fd, const void *bytes,
                       uint64_t size, uint64_t offset, berth_error *error)
{
    uint64_t done = 0;

    while (done < size) {
        const int64_t put = berthi_sys_pwrite(fd, (const char *)bytes + done, size - done,
                                              offset + done);

        if (put == 0)
            errno = ENOSPC; /* no progress and no reason: what else would it be */
        if (put <= 0)
            return berthi_temporary_fail_write(target, errno, size - done, "writing",
                                               error);
        done += (uint64_t)put;
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------ publishing */

berth_status
berthi_temporary_take_over(const berthi_target *target, int fd,
                           const berthi_sys_stat *existing, berth_error *error)
{
    const uint32_t mode = existing->mode & 0777u;
    berthi_sys_stat present;
    int failure;

    /* Owner first: changing it clears bits of the mode. */
    if (berthi_sys_set_owner(fd, existing->user, existing->group) != 0)
        (void)berthi_sys_set_owner(fd, BERTHI_SYS_SAME_USER, existing->group);
    if (berthi_sys_set_mode(fd, mode) == 0)
        return BERTH_OK;
    failure = errno;
    /* File systems with one mode for all files refuse to set even that one. */
    if (berthi_sys_fstat(fd, &present) != 0 || (present.mode & 0777u) != mode)
        return berthi_fail_system(error, failure, target->path,
                                  "taking over the permissions");
    return BERTH_OK;
}

/*
 * A file system without the rename that refuses to replace leaves a moment in
 * which another file of that name would be lost.
 */
berth_status
berthi_temporary_publish(const berthi_target *target, const char *temporary,
                         berth_error *error)
{
    int failed;

    if (target->overwrite) {
        failed = berthi_sys_rename(target->folder, temporary, target->name);
    } else {
        failed = berthi_sys_rename_new(target->folder, temporary, target->name);
        if (failed != 0 && errno == EINVAL)
            failed = berthi_sys_rename(target->folder, temporary, target->name);
    }
    if (failed != 0 && errno == EEXIST)
        return berthi_target_fail(target->path, BERTH_REASON_EXISTS, "exists already", error);
    if (failed != 0)
        return fail_system(target, "renaming the temporary file", error);
    return BERTH_OK;
}
