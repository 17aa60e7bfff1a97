/* SPDX-License-Identifier: Apache-2.0 */
/* side_files_copy.c - a file that goes along, copied into another folder. */
#include <errno.h>
#include <string.h>

#include "loader/output.h"
#include "loader/paths.h"
#include "loader/side_files.h"

/*
 * Opens the folder `name`, which is made where it is missing, in the open folder
 * *fd, which is closed in any case. `path` is what messages show.
 */
static berth_status
enter_folder(int *fd, const char *name, const char *path, berth_error *error)
{
    const int above = *fd;
    berth_status status = BERTH_OK;

    if (berthi_sys_make_folder(above, name) == 0)
        status = berthi_folder_flush(above, path, error);
    else if (errno != EEXIST)
        status = berthi_fail_system(error, errno, path, "making its folder");
    *fd = -1;
    if (status == BERTH_OK) {
        *fd = berthi_sys_open_folder(above, name);
        if (*fd < 0)
            status = berthi_fail_system(error, errno, path, "opening its folder");
    }
    berthi_sys_close(above);
    return status;
}

/* The folder in which `name` is to lie, open; *out_last is what it is called there. */
static berth_status
open_target(berthi_location *location, const char *folder, const char *name,
            const char *path, int *out_fd, const char **out_last, berth_error *error)
{
    char *part = berthi_arena_text(&location->arena, name, strlen(name));
    berth_status status = BERTH_OK;
    char *slash;

    *out_fd = -1;
    if (part == NULL)
        return berthi_fail_memory(error, "a path");
    *out_fd = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, folder);
    if (*out_fd < 0)
        return berthi_fail_system(error, errno, folder, "opening the folder");
    while (status == BERTH_OK && (slash = strchr(part, '/')) != NULL) {
        *slash = '\0';
        status = enter_folder(out_fd, part, path, error);
        part = slash + 1;
    }
    *out_last = part;
    return status;
}

static berth_status
put_output(void *user, const void *bytes, uint64_t size, uint64_t offset,
           berth_error *error)
{
    return berthi_output_write(user, bytes, size, offset, error);
}

berth_status
berthi_side_files_copy(berthi_location *location, const berthi_side_file *file,
                       const char *folder, bool overwrite, berth_error *error)
{
    const char *const path = berthi_path_join(&location->arena, folder, file->name);
    berthi_target target = { .path = path, .overwrite = overwrite };
    berthi_output output;
    berth_status status;

    if (path == NULL)
        return berthi_fail_memory(error, "a path");
    status = open_target(location, folder, file->name, path, &target.folder, &target.name,
                         error);
    if (status != BERTH_OK)
        return status;
    status = berthi_output_open_at(location->context, &target, file->identity.bytes,
                                   &output, error);
    if (status == BERTH_OK) {
        status = berthi_side_files_read(location, file, put_output, &output, error);
        if (status == BERTH_OK)
            status = berthi_output_commit(&output, error);
        else
            berthi_output_discard(&output);
    }
    berthi_sys_close(target.folder);
    return status;
}
