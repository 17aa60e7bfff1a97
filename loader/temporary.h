/* SPDX-License-Identifier: Apache-2.0 */
/*
 * temporary.h - a file under a temporary name, from the first check of its
 * place to the rename.
 *
 *   check ──▶ create ──▶ write ... ──▶ [take over] ──▶ publish
 *
 * The name is `.<final>.berth-<pid>-<random>.tmp`, in the target's folder, with the last
 * component of the final one, or the end of that where it is long. A live process
 * holds a lock on its temporary file: one without a lock was left by a process that
 * is gone. Owns no descriptor beyond a call: output.h (one file) and writer.h (a set)
 * keep them.
 */
#ifndef BERTH_LOADER_TEMPORARY_H
#define BERTH_LOADER_TEMPORARY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "kernels/sys.h"

/* Where a file is to appear; all borrowed. */
typedef struct berthi_target {
    int folder;       /* descriptor */
    const char *name; /* in the folder */
    const char *path; /* as the caller would write it, for messages */
    bool overwrite;
} berthi_target;

/* ------------------------------------------------------------------- folders */

/* ARGUMENT for a folder in the hub cache, or a file there: they are shared. */
berth_status berthi_folder_check(int folder, const char *path, berth_error *error);
/* The same of what is to be made in the folder, which `path` ends in. */
berth_status berthi_folder_check_new(int folder, const char *path, berth_error *error);
/* DISK_FULL when less than `bytes` are free for `path` on the file system. */
berth_status berthi_folder_check_space(int folder, uint64_t bytes, const char *path,
                                       berth_error *error);
/* Does nothing for a folder of berthi_sys_enter_folder() that may not be listed. */
berth_status berthi_folder_flush(int folder, const char *path, berth_error *error);

/* -------------------------------------------------------------------- target */

/* Fails for what is, or is to be, at `path`. */
berth_status berthi_target_fail(const char *path, berth_reason reason,
                                const char *message, berth_error *error);
/*
 * EXISTS when there is something and it may not be overwritten, NOT_REGULAR
 * when it is no file and no link. *has_existing: `existing` is filled with the
 * regular file that is there.
 */
berth_status berthi_target_check(const berthi_target *target, berthi_sys_stat *existing,
                                 bool *has_existing, berth_error *error);
/* DISK_FULL for a file that is larger than this process may write: a signal would end it. */
berth_status berthi_target_check_limit(const berthi_target *target, uint64_t bytes,
                                       berth_error *error);
/* DISK_FULL for a file that the disk or this process's limit has no room for. */
berth_status berthi_target_check_space(const berthi_target *target, uint64_t bytes,
                                       berth_error *error);

/* ------------------------------------------------------------ temporary files */

/* The name of a temporary file of `final_name`; NULL: of any. */
bool berthi_temporary_is_name(const char *name, const char *final_name);

/*
 * Removes the temporary files of `final_name` (NULL: all) whose owner is dead,
 * but for those that `is_kept` (may be NULL) claims. Best effort.
 */
void berthi_temporary_remove_dead(int folder, const char *final_name,
                                  bool (*is_kept)(void *user, const char *name),
                                  void *user);

/* Creates and locks one; its name belongs to `arena`. On failure -1 and NULL. */
berth_status berthi_temporary_create(const berthi_target *target, berthi_arena *arena,
                                     const char **out_name, int *out_fd,
                                     berth_error *error);
/* Reserves the whole size now: a full disk must not be found out at the end. */
berth_status berthi_temporary_reserve(const berthi_target *target, int fd, uint64_t bytes,
                                      berth_error *error);
/* All of `bytes`, however many calls the system makes of it. */
berth_status berthi_temporary_write(const berthi_target *target, int fd,
                                    const void *bytes, uint64_t size, uint64_t offset,
                                    berth_error *error);
/* A write that failed with `system_error`; on a full disk it says what is missing. */
berth_status berthi_temporary_fail_write(const berthi_target *target, int system_error,
                                         uint64_t bytes, const char *what,
                                         berth_error *error);
/* Mode of what is replaced, and owner and group, or the group alone, where they can be given. */
berth_status berthi_temporary_take_over(const berthi_target *target, int fd,
                                        const berthi_sys_stat *existing,
                                        berth_error *error);
/* The rename. EXISTS when there is something that may not be overwritten. */
berth_status berthi_temporary_publish(const berthi_target *target, const char *temporary,
                                      berth_error *error);

#endif
