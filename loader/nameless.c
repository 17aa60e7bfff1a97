/* SPDX-License-Identifier: Apache-2.0 */
/* nameless.c - files without a name. */
#include "loader/nameless.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "kernels/sys.h"
#include "loader/temporary.h"

#define NAME_CAPACITY  48
#define WORDS_CAPACITY 64
#define INNER_NAME     "layers"
/* Each attempt fails only when someone else met the same random number. */
#define MAX_ATTEMPTS 8

static berthi_target
target_of(const berthi_nameless *file, int folder)
{
    return (berthi_target){ .folder = folder, .name = "", .path = file->folder };
}

static berth_status
fail_system(const berthi_nameless *file, const char *what, berth_error *error)
{
    return berthi_fail_system(error, errno, file->folder, what);
}

static berth_status
fail_creating(const berthi_nameless *file, berth_error *error)
{
    const int reason = errno;
    char words[WORDS_CAPACITY];

    snprintf(words, sizeof words, "creating the file of %s", file->contents);
    return berthi_fail_system(error, reason, file->folder, words);
}

/* The name goes at once. */
static berth_status
create_and_unlink(const berthi_nameless *file, int folder, int *out_fd,
                  berth_error *error)
{
    *out_fd = berthi_sys_create_private(folder, INNER_NAME);
    if (*out_fd < 0)
        return fail_creating(file, error);
    if (berthi_sys_unlink(folder, INNER_NAME) != 0)
        return fail_system(file, "removing the name of a file", error);
    return BERTH_OK;
}

/* Where a file cannot be made without a name. */
static berth_status
create_named(const berthi_nameless *file, int folder, int *out_fd, berth_error *error)
{
    char name[NAME_CAPACITY];
    berth_status status = BERTH_OK;
    uint32_t random;
    int private;
    int made = -1;

    for (int i = 0; i < MAX_ATTEMPTS && made != 0; i++) {
        if (berthi_sys_random(&random, sizeof random) != 0)
            return fail_system(file, "making a random name", error);
        snprintf(name, sizeof name, ".berth-offload-%" PRIu32 "-%08" PRIx32,
                 berthi_sys_process_id(), random);
        made = berthi_sys_make_private_folder(folder, name);
        if (made != 0 && errno != EEXIST)
            break;
    }
    if (made != 0)
        return fail_system(file, "creating a folder in it", error);
    private = berthi_sys_open_folder(folder, name);
    if (private < 0)
        status = fail_system(file, "opening a folder in it", error);
    else
        status = create_and_unlink(file, private, out_fd, error);
    if (private >= 0)
        berthi_sys_close(private);
    (void)berthi_sys_remove_folder(folder, name);
    return status;
}

static bool
has_no_nameless_files(int system_error)
{
    return system_error == EOPNOTSUPP || system_error == EISDIR || system_error == ENOENT
           || system_error == EINVAL;
}

/* Room is asked for before it is taken, and taken before the first byte is read. */
static berth_status
create_in(const berthi_nameless *file, int folder, int *out_fd, berth_error *error)
{
    const berthi_target target = target_of(file, folder);
    berth_status status = berthi_target_check_space(&target, file->bytes, error);

    if (status != BERTH_OK)
        return status;
    *out_fd = berthi_sys_create_nameless(folder);
    if (*out_fd < 0 && !has_no_nameless_files(errno))
        return fail_creating(file, error);
    if (*out_fd < 0)
        status = create_named(file, folder, out_fd, error);
    if (status == BERTH_OK)
        status = berthi_temporary_reserve(&target, *out_fd, file->bytes, error);
    if (status == BERTH_OK && berthi_sys_truncate(*out_fd, file->bytes) != 0)
        status = fail_creating(file, error);
    return status;
}

/* A folder that is made here is not needed as soon as the file is there. */
static berth_status
try_to_create(const berthi_nameless *file, int *out_fd, berth_error *error)
{
    const bool is_new =
        berthi_sys_make_private_folder(BERTHI_SYS_AT_CWD, file->folder) == 0;
    berth_status status;
    int folder;

    if (!is_new && errno != EEXIST)
        return fail_system(file, "creating the folder", error);
    folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, file->folder);
    status = folder >= 0 ? create_in(file, folder, out_fd, error)
                         : fail_system(file, "opening the folder", error);
    if (folder >= 0)
        berthi_sys_close(folder);
    if (is_new)
        (void)berthi_sys_remove_folder(BERTHI_SYS_AT_CWD, file->folder);
    return status;
}

/*
 * A folder that another one has made goes when his file is there: then it is made again.
 * What is not there for other reasons is not there either time.
 */
static berth_status
create(const berthi_nameless *file, int *out_fd, berth_error *error)
{
    berth_status status = BERTH_ENOENT;

    for (int i = 0; i < MAX_ATTEMPTS && status == BERTH_ENOENT; i++) {
        berthi_error_clear(error);
        status = try_to_create(file, out_fd, error);
    }
    return status;
}

berth_status
berthi_nameless_create(const berthi_nameless *file, int *out_fd, berth_error *error)
{
    berth_status status;

    *out_fd = -1;
    status = create(file, out_fd, error);
    if (status != BERTH_OK && *out_fd >= 0) {
        berthi_sys_close(*out_fd);
        *out_fd = -1;
    }
    return status;
}
