/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_folders.c - folders between the output's own and a file of the set.
 *
 * They are made when the files get their names and go when they are empty. None
 * is ever entered through a link: what lies behind one is not the output's.
 */
#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/writer_state.h"

#define NAME_CAPACITY 1025u /* what the path rule allows, and NUL */

/* From "" to the first folder of `name`, and on to the next; false: that was the last. */
static bool
has_next_folder(const char *name, char *folder)
{
    const size_t before = strlen(folder);
    const char *const slash = strchr(name + before + (before > 0), '/');

    if (slash == NULL)
        return false;
    memcpy(folder, name, (size_t)(slash - name));
    folder[slash - name] = '\0';
    return true;
}

/* False when something else stands where a folder must be; one may be missing. */
static berth_status
look_for_folders(const berthi_writer *writer, const char *name, const char *path,
                 bool *out_are_folders, berth_error *error)
{
    char folder[NAME_CAPACITY] = "";

    *out_are_folders = true;
    while (*out_are_folders && has_next_folder(name, folder)) {
        berthi_sys_stat state;

        if (berthi_sys_stat_at(writer->folder, folder, BERTHI_SYS_NO_FOLLOW, &state) != 0) {
            if (errno == ENOENT)
                return BERTH_OK;
            return berthi_fail_system(error, errno, path, "looking at its folder");
        }
        *out_are_folders = state.kind == BERTHI_SYS_FOLDER;
    }
    return BERTH_OK;
}

static berth_status
check_folders(const berthi_writer *writer, const char *name, const char *path,
              berth_error *error)
{
    bool are_folders;
    berth_status status = look_for_folders(writer, name, path, &are_folders, error);

    if (status == BERTH_OK && !are_folders)
        status = berthi_target_fail(path, BERTH_REASON_NOT_REGULAR,
                                    "lies in something that is no directory", error);
    return status;
}

berth_status
berthi_writer_check_target(const berthi_writer *writer, const char *name,
                           const char *path, berth_error *error)
{
    const berthi_target target = { writer->folder, name, path, writer->overwrite };
    berthi_sys_stat existing;
    bool has_existing;
    berth_status status = check_folders(writer, name, path, error);

    if (status == BERTH_OK)
        status = berthi_target_check(&target, &existing, &has_existing, error);
    return status;
}

berth_status
berthi_writer_make_folders(const berthi_writer *writer, const char *name,
                           const char *path, berth_error *error)
{
    char folder[NAME_CAPACITY] = "";
    berth_status status = check_folders(writer, name, path, error);

    while (status == BERTH_OK && has_next_folder(name, folder))
        if (berthi_sys_make_folder(writer->folder, folder) != 0 && errno != EEXIST)
            status = berthi_fail_system(error, errno, path, "making its folder");
    return status;
}

berth_status
berthi_writer_flush_folders(const berthi_writer *writer, const char *name,
                            berth_error *error)
{
    char folder[NAME_CAPACITY] = "";
    berth_status status = BERTH_OK;

    while (status == BERTH_OK && has_next_folder(name, folder)) {
        const int fd = berthi_sys_open_folder(writer->folder, folder);

        if (fd < 0 && errno == ENOENT) /* removed: there is nothing to flush */
            return BERTH_OK;
        if (fd < 0)
            return berthi_fail_system(error, errno, writer->path,
                                      "opening a folder in it");
        status = berthi_folder_flush(fd, writer->path, error);
        berthi_sys_close(fd);
    }
    return status;
}

static void
remove_folders(const berthi_writer *writer, const char *name)
{
    char folder[NAME_CAPACITY];
    char *slash;

    memcpy(folder, name, strlen(name) + 1);
    while ((slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        if (berthi_sys_remove_folder(writer->folder, folder) != 0 && errno != ENOENT)
            return;
    }
}

berth_status
berthi_writer_remove_stale(const berthi_writer *writer, const char *name, bool is_file,
                           berth_error *error)
{
    bool are_folders;
    berth_status status =
        look_for_folders(writer, name, writer->path, &are_folders, error);

    if (status != BERTH_OK || !are_folders)
        return status;
    if (is_file)
        (void)berthi_sys_unlink(writer->folder, name);
    remove_folders(writer, name);
    return BERTH_OK;
}
