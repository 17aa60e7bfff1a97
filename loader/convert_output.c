/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_output.c - what is wrong with an output's folder, before anything is
 * read or written: that it is no source, that nothing lies in the way of a file,
 * and for a conversion that is only tried, whatever else the writer would say.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/checkpoint.h"
#include "loader/convert_job.h"
#include "loader/journal.h"
#include "loader/listing.h"
#include "loader/manifest.h"
#include "loader/part.h"
#include "loader/paths.h"
#include "loader/temporary.h"
#include "loader/writer_state.h"

#define MAX_DEPTH 4096 /* of folders above a folder */
#define TEXT_BLOCK_BYTES 1024u

/* The output's folder, or while there is none the one in which it will be made. */
typedef struct nearest {
    berthi_convert *convert;
    const char *path;
    int folder;
    bool exists;
    bool has_manifest;        /* of the source: the caller names one, which is there */
    berthi_sys_stat manifest;
} nearest;

/* --------------------------------------------------------------------- overlap */

static bool
is_same(const berthi_sys_stat *a, const berthi_sys_stat *b)
{
    return a->device == b->device && a->inode == b->inode;
}

/*
 * Whether `folder` is `wanted` or lies in it. What may not be looked at on the
 * way up lies in nothing.
 */
static bool
is_within(int folder, const berthi_sys_stat *wanted)
{
    berthi_sys_stat state;
    berthi_sys_stat below = { .inode = 0 };
    int at = berthi_sys_open_folder(folder, ".");
    bool is_found = false;

    for (int depth = 0; at >= 0 && depth < MAX_DEPTH && !is_found; depth++) {
        int above;

        if (berthi_sys_fstat(at, &state) != 0)
            break;
        is_found = is_same(&state, wanted);
        if (depth > 0 && is_same(&state, &below))
            break; /* the root */
        below = state;
        above = berthi_sys_open_folder(at, "..");
        berthi_sys_close(at);
        at = above;
    }
    if (at >= 0)
        berthi_sys_close(at);
    return is_found;
}

/* The folder in which the open file lies, whatever links to it; "": nobody can tell. */
static void
find_home(const berthi_file *file, char home[BERTHI_PATH_CAPACITY])
{
    const int64_t length = berthi_sys_path_of(file->fd, home, BERTHI_PATH_CAPACITY);

    if (length <= 0 || length >= BERTHI_PATH_CAPACITY - 1 || home[0] != '/')
        home[0] = '\0';
    else
        strrchr(home, '/')[1] = '\0';
}

/* Whether the file lies in the output; `last` is where the one before did, which does not. */
static bool
is_file_within(const berthi_file *file, const berthi_sys_stat *output,
               char last[BERTHI_PATH_CAPACITY])
{
    char home[BERTHI_PATH_CAPACITY];
    bool is_found;
    int folder;

    find_home(file, home);
    if (home[0] == '\0' || strcmp(home, last) == 0)
        return false;
    memcpy(last, home, sizeof home);
    folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, home);
    if (folder < 0)
        return false;
    is_found = is_within(folder, output);
    berthi_sys_close(folder);
    return is_found;
}

/*
 * True when a file of the model lies in the output, where only links lead from the model's
 * folder: it would be replaced there, or go with an older model.
 */
static bool
has_shards(const berth_checkpoint *source, const berthi_sys_stat *output)
{
    char last[BERTHI_PATH_CAPACITY] = "";
    bool is_found = false;

    for (uint32_t i = 0; i < source->shard_count && !is_found; i++)
        is_found = is_file_within(&source->shards[i].file, output, last);
    return is_found;
}

/* What a conversion writes beside shards and copies. */
#define DESCRIPTIONS 3u
static const char *const descriptions[DESCRIPTIONS] = { BERTHI_CONFIG_NAME, BERTHI_INDEX_NAME,
                                                        BERTHI_MANIFEST_NAME };

/* The same of what tells of the shards; what is not there is not in the way. */
static bool
has_description(const berthi_location *source, const berthi_sys_stat *output)
{
    char last[BERTHI_PATH_CAPACITY] = "";
    bool is_found = false;

    for (uint32_t i = 0; i < DESCRIPTIONS && !is_found; i++) {
        berth_error ignored;
        berthi_file file;

        if (berthi_file_open(&file, source->folder, descriptions[i], descriptions[i],
                             BERTHI_FILE_ANYWHERE, &ignored)
            != BERTH_OK)
            continue;
        is_found = is_file_within(&file, output, last);
        berthi_file_close(&file);
    }
    return is_found;
}

/* "a/b/" lies in "a/", "b" in ".". NULL: out of memory. */
static const char *
folder_above(const char *path, berthi_arena *texts)
{
    uint64_t length = strlen(path);

    while (length > 0 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length > 0 ? berthi_arena_text(texts, path, length) : ".";
}

static berth_status
open_nearest(nearest *n, berth_error *error)
{
    const char *above;

    n->folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, n->path);
    n->exists = n->folder >= 0;
    if (n->exists)
        return BERTH_OK;
    if (errno != ENOENT)
        return berthi_fail_system(error, errno, n->path, "opening the folder");
    above = folder_above(n->path, &n->convert->texts);
    if (above == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    n->folder = berthi_sys_enter_folder(BERTHI_SYS_AT_CWD, above);
    return n->folder >= 0
               ? BERTH_OK
               : berthi_fail_system(error, errno, n->path, "making the folder");
}

static berth_status
check_overlap(const nearest *n, berth_error *error)
{
    const berthi_location *const source = &n->convert->location;
    berthi_sys_stat source_state;
    berthi_sys_stat output_state;
    const char *problem = NULL;

    if (berthi_sys_fstat(source->folder, &source_state) != 0
        || berthi_sys_fstat(n->folder, &output_state) != 0)
        return berthi_fail_system(error, errno, n->path, "looking at the folder");
    if (n->exists && is_same(&source_state, &output_state))
        problem = "is the folder of the model that is read";
    /* Beside a file that was named there may be anything. */
    else if (source->file == NULL && is_within(n->folder, &source_state))
        problem = "lies in the folder of the model that is read";
    else if (n->exists && is_within(source->folder, &output_state))
        problem = "holds the folder of the model that is read";
    else if (n->exists
             && (has_shards(n->convert->checkpoint, &output_state)
                 || has_description(source, &output_state)))
        problem = "holds files of the model that is read, to which links lead";
    return problem == NULL ? BERTH_OK
                           : berthi_target_fail(n->path, BERTH_REASON_ARGUMENT, problem, error);
}

/* ------------------------------------------------------------ what is in the way */

/* A writer that can look at targets, and nothing else. */
static berthi_writer
as_writer(const nearest *n)
{
    return (berthi_writer){ .folder = n->folder, .path = n->path, .overwrite = true };
}

/* One that lies in the output is read, and would be replaced when all is written. */
static void
find_manifest(nearest *n)
{
    const berth_convert_options *const options = &n->convert->options;

    n->has_manifest = options->manifest != NULL && options->verify != BERTH_LOAD_VERIFY_NONE
                      && berthi_sys_stat_at(BERTHI_SYS_AT_CWD, options->manifest,
                                            BERTHI_SYS_FOLLOW, &n->manifest)
                             == 0;
}

static bool
is_manifest(const nearest *n, const char *name)
{
    berthi_sys_stat state;

    return n->has_manifest
           && berthi_sys_stat_at(n->folder, name, BERTHI_SYS_NO_FOLLOW, &state) == 0
           && is_same(&state, &n->manifest);
}

static berth_status
check_name(const nearest *n, const char *name, berth_error *error)
{
    const berthi_writer writer = as_writer(n);
    const char *const path = berthi_path_join(&n->convert->texts, n->path, name);

    if (path == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    if (is_manifest(n, name))
        return berthi_target_fail(path, BERTH_REASON_ARGUMENT,
                                  "is the manifest that is read, and would be replaced", error);
    return berthi_writer_check_target(&writer, name, path, error);
}

/* A folder or a device under the name of a file is better found now than at the end. */
static berth_status
check_names(const nearest *n, berth_error *error)
{
    const berthi_side_files *const files = &n->convert->side_files;
    const uint32_t shards = berthi_layout_shard_count(n->convert->layout);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < DESCRIPTIONS && status == BERTH_OK; i++)
        status = check_name(n, descriptions[i], error);
    for (uint32_t i = 0; i < files->count && status == BERTH_OK; i++)
        status = check_name(n, files->files[i].name, error);
    for (uint32_t i = 0; i < shards && status == BERTH_OK; i++) {
        char name[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(i, shards, name);
        status = check_name(n, name, error);
    }
    return status;
}

/* -------------------------------------------------------------------- dry runs */

/* The writer that the job would open, as far as it looks at the folder. */
static berth_status
name_writer(const nearest *n, berthi_writer *writer, berth_error *error)
{
    const berthi_convert *const convert = n->convert;

    writer->context = convert->context;
    writer->overwrite = convert->options.overwrite != 0;
    writer->job = convert->identity;
    writer->part_count = convert->options.part_count;
    writer->part = convert->options.part;
    return berthi_writer_place_journal(writer, error);
}

static bool
goes_on(const nearest *n)
{
    return n->convert->options.resume != 0 || n->convert->options.join != 0;
}

static bool
has_journal(const nearest *n)
{
    berthi_sys_stat state;

    return berthi_sys_stat_at(n->folder, BERTHI_JOURNAL_NAME, BERTHI_SYS_NO_FOLLOW, &state) == 0;
}

/* Whoever goes on finds a journal; else there is nothing yet. */
static berth_status
check_contents(const nearest *n, const berthi_writer *writer, berth_error *error)
{
    const bool is_begun = has_journal(n);
    bool has_own;

    if (is_begun && goes_on(n))
        return BERTH_OK;
    return writer->part > 0
               ? berthi_writer_check_part(writer, is_begun, goes_on(n), &has_own, error)
               : berthi_writer_check_contents(writer, is_begun, error);
}

/* What an earlier run has finished has its room; one that was publishing has all of it. */
static berth_status
count_rest(const nearest *n, berthi_writer *writer, uint64_t *out_bytes, berth_error *error)
{
    berth_status status;

    if (pthread_mutex_init(&writer->lock, NULL) != 0)
        return berthi_fail_memory(error, "starting a conversion");
    status = berthi_writer_resume(writer, error);
    if (status == BERTH_OK) {
        n->convert->writer = writer;
        *out_bytes = writer->is_publishing ? 0 : berthi_convert_missing_bytes(n->convert);
        n->convert->writer = NULL;
    }
    pthread_mutex_destroy(&writer->lock);
    return status;
}

/* Who joins parts moves what is there; how much of it he copies is found only then. */
static berth_status
check_space(const nearest *n, berthi_writer *writer, berth_error *error)
{
    const berth_convert_options *const options = &n->convert->options;
    uint64_t bytes = n->convert->report.output_bytes;
    berth_status status = BERTH_OK;

    if (writer->part > 0) /* others may have made room for all that they share */
        status = berthi_part_missing_bytes(n->convert, writer, &bytes, error);
    else if (options->resume != 0 && options->join == 0 && n->exists && has_journal(n))
        status = count_rest(n, writer, &bytes, error);
    return status == BERTH_OK ? berthi_folder_check_space(n->folder, bytes, n->path, error)
                              : status;
}

/* What the writer would say first, of a folder that nobody touches. */
static berth_status
try_writer(const nearest *n, berth_error *error)
{
    berth_context *const context = n->convert->context;
    berthi_writer writer = as_writer(n);
    berth_status status = n->exists ? berthi_folder_check(n->folder, n->path, error)
                                    : berthi_folder_check_new(n->folder, n->path, error);

    berthi_arena_init(&writer.texts, context, BERTHI_PURPOSE_OBJECT, TEXT_BLOCK_BYTES);
    if (status == BERTH_OK)
        status = name_writer(n, &writer, error);
    if (status == BERTH_OK && n->exists && n->convert->options.overwrite == 0)
        status = check_contents(n, &writer, error);
    if (status == BERTH_OK && berthi_sys_check_writable(n->folder) != 0)
        status = berthi_fail_system(error, errno, n->path,
                                    n->exists ? "writing to the folder"
                                              : "making the folder");
    if (status == BERTH_OK)
        status = check_space(n, &writer, error);
    berthi_arena_fini(&writer.texts);
    return status;
}

/* Some file system does not say how much there is. Where all is done nothing is written. */
static berth_status
try_folder(const nearest *n, berth_error *error)
{
    berth_convert_report *const report = &n->convert->report;
    bool is_done = false;
    const berth_status status =
        goes_on(n) ? berthi_convert_find_result(n->convert, &is_done, error) : BERTH_OK;

    if (berthi_sys_free_bytes(n->folder, &report->free_bytes) != 0)
        report->free_bytes = UINT64_MAX;
    return status == BERTH_OK && !is_done ? try_writer(n, error) : status;
}

berth_status
berthi_convert_check_output(berthi_convert *convert, berth_error *error)
{
    nearest n = { .convert = convert, .path = convert->options.output };
    berth_status status = open_nearest(&n, error);

    if (status != BERTH_OK)
        return status;
    find_manifest(&n);
    status = check_overlap(&n, error);
    if (status == BERTH_OK && n.exists && convert->options.overwrite != 0)
        status = check_names(&n, error);
    if (status == BERTH_OK && convert->options.dry_run != 0)
        status = try_folder(&n, error);
    berthi_sys_close(n.folder);
    return status;
}
