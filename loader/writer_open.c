/* SPDX-License-Identifier: Apache-2.0 */
/* writer_open.c - the folder of a set: made, locked and opened. */
#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "kernels/utf8.h"
#include "loader/paths.h"
#include "loader/writer_state.h"

#define TEXT_BLOCK_BYTES 4096u
/* Each attempt fails only when another process has just removed the folder. */
#define MAX_ATTEMPTS 8

/* -------------------------------------------------------------------- folder */

/* A new folder is as durable as the one it lies in says, where that may be read. */
static berth_status
flush_parent(berthi_writer *writer, berth_error *error)
{
    writer->parent = berthi_sys_enter_folder(writer->folder, "..");
    if (writer->parent < 0)
        return berthi_fail_system(error, errno, writer->path,
                                  "opening the folder above it");
    return berthi_folder_flush(writer->parent, writer->path, error);
}

/* Opens the folder, which is made first if it is missing. */
static berth_status
open_or_make(berthi_writer *writer, berth_error *error)
{
    writer->folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, writer->path);
    if (writer->folder >= 0)
        return BERTH_OK;
    if (errno != ENOENT)
        return berthi_fail_system(error, errno, writer->path, "opening the folder");
    if (berthi_sys_make_folder(BERTHI_SYS_AT_CWD, writer->path) == 0)
        writer->has_made_folder = true;
    else if (errno != EEXIST) /* somebody else made it just now */
        return berthi_fail_system(error, errno, writer->path, "making the folder");
    writer->folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, writer->path);
    if (writer->folder < 0)
        return berthi_fail_system(error, errno, writer->path, "opening the folder");
    return writer->has_made_folder ? flush_parent(writer, error) : BERTH_OK;
}

/* False also when another process has removed the folder since it was opened. */
static berth_status
check_still_there(const berthi_writer *writer, bool *out_is_there, berth_error *error)
{
    berthi_sys_stat opened;
    berthi_sys_stat named;

    *out_is_there = false;
    if (berthi_sys_fstat(writer->folder, &opened) != 0)
        return berthi_fail_system(error, errno, writer->path, "looking at the folder");
    if (berthi_sys_stat_at(BERTHI_SYS_AT_CWD, writer->path, BERTHI_SYS_FOLLOW, &named) != 0) {
        if (errno == ENOENT)
            return BERTH_OK;
        return berthi_fail_system(error, errno, writer->path, "looking at the folder");
    }
    *out_is_there = opened.inode == named.inode && opened.device == named.device;
    return BERTH_OK;
}

static void
close_folder(berthi_writer *writer)
{
    if (writer->folder >= 0)
        berthi_sys_close(writer->folder);
    if (writer->parent >= 0)
        berthi_sys_close(writer->parent);
    writer->folder = -1;
    writer->parent = -1;
    writer->has_made_folder = false;
}

/*
 * Parts are in it together. File systems without locks let everybody in: names
 * that nobody else has and renames keep the files right then, only the work is
 * done twice.
 */
static berth_status
lock_folder(berthi_writer *writer, berth_error *error)
{
    const int result = writer->part > 0 ? berthi_sys_lock_shared(writer->folder)
                                        : berthi_sys_lock(writer->folder);

    writer->is_locked = result == 0;
    if (result == 0 || errno != EWOULDBLOCK)
        return BERTH_OK;
    writer->has_made_folder = false; /* it is the other one's by now */
    return berthi_target_fail(writer->path, BERTH_REASON_BUSY,
                              "another process is writing to it", error);
}

static berth_status
take_folder(berthi_writer *writer, berth_error *error)
{
    bool is_there = false;
    berth_status status = BERTH_OK;

    for (int attempt = 0; attempt < MAX_ATTEMPTS && !is_there; attempt++) {
        close_folder(writer);
        status = open_or_make(writer, error);
        if (status != BERTH_OK)
            return status;
        status = lock_folder(writer, error);
        if (status != BERTH_OK)
            return status;
        status = check_still_there(writer, &is_there, error);
        if (status != BERTH_OK)
            return status;
    }
    if (!is_there)
        return berthi_target_fail(writer->path, BERTH_REASON_IO,
                                  "is removed as often as it is made", error);
    return berthi_folder_check(writer->folder, writer->path, error);
}

/* -------------------------------------------------------------------- opening */

berth_status
berthi_writer_place_journal(berthi_writer *writer, berth_error *error)
{
    berth_status status = BERTH_OK;

    writer->journal_name = BERTHI_JOURNAL_NAME;
    if (writer->part_count > 0)
        status = berthi_writer_name_parts(writer, error);
    if (status != BERTH_OK)
        return status;
    writer->journal_path =
        berthi_path_join(&writer->texts, writer->path, writer->journal_name);
    return writer->journal_path != NULL ? BERTH_OK
                                        : berthi_fail_memory(error, "opening an output");
}

/* "out/" is "out"; "/" stays. */
static berth_status
keep_texts(berthi_writer *writer, const char *folder, const char *job, berth_error *error)
{
    uint64_t length = strlen(folder);
    const size_t job_length = strlen(job);

    if (berthi_utf8_check((const unsigned char *)job, job_length) < job_length)
        return berthi_fail_argument(error, "job", "is not UTF-8");
    while (length > 1 && folder[length - 1] == '/')
        length--;
    writer->path = berthi_arena_text(&writer->texts, folder, length);
    writer->job = berthi_arena_text(&writer->texts, job, job_length);
    if (writer->path == NULL || writer->job == NULL)
        return berthi_fail_memory(error, "opening an output");
    return berthi_writer_place_journal(writer, error);
}

berth_status
berthi_writer_open(berth_context *context, const char *folder,
                   const berthi_writer_options *options, berthi_writer **out,
                   berth_error *error)
{
    berthi_writer *const writer =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *writer);
    berth_status status;

    *out = NULL;
    if (writer == NULL)
        return berthi_fail_memory(error, "opening an output");
    writer->context = context;
    writer->folder = -1;
    writer->parent = -1;
    writer->part_lock = -1;
    writer->overwrite = options->overwrite;
    writer->part_count = options->part_count;
    writer->part = options->part;
    writer->commit = "";
    berthi_arena_init(&writer->texts, context, BERTHI_PURPOSE_OBJECT, TEXT_BLOCK_BYTES);
    writer->has_lock = pthread_mutex_init(&writer->lock, NULL) == 0;
    status = writer->has_lock ? keep_texts(writer, folder, options->job, error)
                              : berthi_fail_memory(error, "opening an output");
    if (status == BERTH_OK)
        status = take_folder(writer, error);
    if (status == BERTH_OK)
        status = berthi_writer_look_around(writer, options->resume, error);
    if (status == BERTH_OK)
        *out = writer;
    else
        berthi_writer_close(writer);
    return status;
}
