/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - files written through a temporary name and one rename. */
#include "loader/output.h"

#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/journal.h"

#define TEXT_BLOCK_BYTES 1024

static berth_status
fail_system(const berthi_output *output, const char *what, berth_error *error)
{
    return berthi_fail_system(error, errno, output->target.path, what);
}

/* ------------------------------------------------------------------- opening */

/* Splits the path; the folder's own name is needed only until it is open. */
static berth_status
open_folder(berthi_output *output, berth_error *error)
{
    berthi_target *const target = &output->target;
    const char *const slash = strrchr(target->path, '/');
    const char *folder = ".";

    target->name = slash != NULL ? slash + 1 : target->path;
    if (target->name[0] == '\0' || strcmp(target->name, ".") == 0
        || strcmp(target->name, "..") == 0)
        return berthi_target_fail(target->path, BERTH_REASON_ARGUMENT,
                                  "is not the name of a file", error);
    if (slash != NULL) {
        const uint64_t length = (uint64_t)(slash - target->path);

        folder = berthi_arena_text(&output->texts, target->path, length > 0 ? length : 1);
        if (folder == NULL)
            return berthi_fail_memory(error, "opening an output");
    }
    target->folder = berthi_sys_enter_folder(BERTHI_SYS_AT_CWD, folder);
    if (target->folder < 0)
        return fail_system(output, "opening the folder", error);
    output->has_own_folder = true;
    return BERTH_OK;
}

/* Beside a journal stands what it lists, which a resumed run comes back for. */
static void
remove_what_the_dead_left(const berthi_target *target)
{
    berthi_sys_stat state;

    if (berthi_sys_stat_at(target->folder, BERTHI_JOURNAL_NAME, BERTHI_SYS_NO_FOLLOW, &state)
            != 0
        && errno == ENOENT)
        berthi_temporary_remove_dead(target->folder, target->name, NULL, NULL);
}

static berth_status
check(const berthi_output *output, berth_error *error)
{
    berthi_sys_stat existing;
    bool has_existing;
    berth_status status =
        berthi_target_check(&output->target, &existing, &has_existing, error);

    if (status == BERTH_OK)
        status = berthi_target_check_space(&output->target, output->bytes, error);
    return status;
}

static berth_status
create(berthi_output *output, berth_error *error)
{
    berth_status status =
        berthi_temporary_create(&output->target, &output->texts, &output->temporary,
                                &output->fd, error);

    if (status == BERTH_OK)
        status = berthi_temporary_reserve(&output->target, output->fd, output->bytes,
                                          error);
    return status;
}

/* In a folder that has been checked, and where nothing is to be removed. */
static berth_status
begin_checked(berthi_output *output, berth_error *error)
{
    const berth_status status = check(output, error);

    return status == BERTH_OK ? create(output, error) : status;
}

/* In a folder that nobody has checked. */
static berth_status
begin(berthi_output *output, berth_error *error)
{
    berth_status status =
        berthi_folder_check(output->target.folder, output->target.path, error);

    if (status == BERTH_OK)
        status = check(output, error);
    if (status != BERTH_OK)
        return status;
    remove_what_the_dead_left(&output->target);
    return create(output, error);
}

static void
init(berthi_output *output, berth_context *context, uint64_t bytes)
{
    memset(output, 0, sizeof *output);
    output->context = context;
    output->target.folder = -1;
    output->fd = -1;
    output->bytes = bytes;
    berthi_arena_init(&output->texts, context, BERTHI_PURPOSE_OBJECT, TEXT_BLOCK_BYTES);
}

berth_status
berthi_output_open(berth_context *context, const char *path, uint64_t bytes,
                   bool overwrite, berthi_output *out, berth_error *error)
{
    berth_status status;

    init(out, context, bytes);
    out->target.overwrite = overwrite;
    out->target.path = berthi_arena_text(&out->texts, path, strlen(path));
    status = out->target.path != NULL ? open_folder(out, error)
                                      : berthi_fail_memory(error, "opening an output");
    if (status == BERTH_OK)
        status = begin(out, error);
    if (status != BERTH_OK)
        berthi_output_discard(out);
    return status;
}

/* In a folder that is open, `how`. */
static berth_status
open_target(berth_context *context, const berthi_target *target, uint64_t bytes,
            berth_status (*how)(berthi_output *output, berth_error *error),
            berthi_output *out, berth_error *error)
{
    berth_status status;

    init(out, context, bytes);
    out->target = *target;
    status = how(out, error);
    if (status != BERTH_OK)
        berthi_output_discard(out);
    return status;
}

berth_status
berthi_output_open_in(berth_context *context, const berthi_target *target, uint64_t bytes,
                      berthi_output *out, berth_error *error)
{
    return open_target(context, target, bytes, begin, out, error);
}

berth_status
berthi_output_open_at(berth_context *context, const berthi_target *target, uint64_t bytes,
                      berthi_output *out, berth_error *error)
{
    return open_target(context, target, bytes, begin_checked, out, error);
}

/* ------------------------------------------------------------ writing, closing */

berth_status
berthi_output_write(berthi_output *output, const void *bytes, uint64_t size,
                    uint64_t offset, berth_error *error)
{
    berth_status status;

    /* Beyond the size that was announced lies what nobody checked. */
    if (offset > output->bytes || size > output->bytes - offset)
        return berthi_target_fail(output->target.path, BERTH_REASON_INTERNAL,
                                  "a write beyond the end", error);
    status = berthi_temporary_write(&output->target, output->fd, bytes, size, offset,
                                    error);
    if (status == BERTH_OK)
        output->written += size;
    return status;
}

/* The name appears here. */
static berth_status
publish(berthi_output *output, berth_error *error)
{
    const berth_status status =
        berthi_temporary_publish(&output->target, output->temporary, error);

    if (status == BERTH_OK) {
        berthi_sys_close(output->fd);
        output->fd = -1;
    }
    return status;
}

static berth_status
flush_folder(const berthi_output *output, berth_error *error)
{
    const berthi_target *const target = &output->target;
    const berth_status status = berthi_folder_flush(target->folder, target->path, error);

    if (status != BERTH_OK && !target->overwrite)
        berthi_sys_unlink(target->folder, target->name);
    return status;
}

berth_status
berthi_output_commit(berthi_output *output, berth_error *error)
{
    const berthi_target *const target = &output->target;
    berthi_sys_stat existing;
    bool has_existing = false;
    berth_status status = BERTH_OK;

    if (output->written != output->bytes)
        status = berthi_target_fail(target->path, BERTH_REASON_INTERNAL,
                                    "was not written completely", error);
    if (status == BERTH_OK)
        status = berthi_target_check(target, &existing, &has_existing, error);
    if (status == BERTH_OK && has_existing)
        status = berthi_temporary_take_over(target, output->fd, &existing, error);
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
    if (output->fd >= 0) {
        berthi_sys_unlink(output->target.folder, output->temporary);
        berthi_sys_close(output->fd);
    }
    if (output->has_own_folder)
        berthi_sys_close(output->target.folder);
    berthi_arena_fini(&output->texts);
    memset(output, 0, sizeof *output);
}
