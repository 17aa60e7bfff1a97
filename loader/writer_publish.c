/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_publish.c - final names for a whole set.
 *
 *   journal "publishing" ─▶ old commit points go ─▶ all files but one ─▶ the
 *   commit file ─▶ stale shards go ─▶ the journal goes
 *
 * Each arrow is a flush of the folder. Every step leaves alone what is done
 * already, so that a resumed run takes the same way from the beginning.
 */
#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/index.h"
#include "loader/listing.h"
#include "loader/paths.h"
#include "loader/writer_state.h"

/* --------------------------------------------------------------- stale shards */

static bool
is_stale(berthi_writer *writer, const char *name, bool is_shard)
{
    return berthi_journal_name_problem(name, strlen(name)) == NULL
           && (!is_shard || berthi_path_has_suffix(name, BERTHI_SINGLE_SUFFIX))
           && berthi_writer_find(writer, name) == NULL;
}

static berth_status
merge(berthi_writer *writer, const char *const *b, uint64_t b_count, bool are_shards,
      berth_error *error)
{
    const char **const a = writer->stale;
    const uint64_t a_count = writer->stale_count;
    uint64_t bytes;
    uint64_t count = 0;
    uint64_t i = 0;
    uint64_t j = 0;
    const char **merged = NULL;

    if (berthi_can_mul(a_count + b_count, sizeof *merged, &bytes))
        merged = berthi_arena_alloc(&writer->texts, bytes, 8);
    if (merged == NULL)
        return berthi_fail_memory(error, "publishing an output");
    while (i < a_count || j < b_count) {
        const int order = i == a_count   ? 1
                          : j == b_count ? -1
                                         : strcmp(a[i], b[j]);

        if (order <= 0)
            merged[count++] = a[i++];
        else if (is_stale(writer, b[j], are_shards))
            merged[count++] = b[j];
        j += order >= 0;
    }
    writer->stale = merged;
    writer->stale_count = count;
    return BERTH_OK;
}

berth_status
berthi_writer_merge_stale(berthi_writer *writer, const char *const *b, uint64_t b_count,
                          berth_error *error)
{
    return merge(writer, b, b_count, true, error);
}

berth_status
berthi_writer_add_stale(berthi_writer *writer, const char *const *names, uint64_t count,
                        berth_error *error)
{
    return merge(writer, names, count, false, error);
}

/* Shard names of an index, as texts that outlive it. */
static berth_status
add_shards(berthi_writer *writer, const berthi_index *index, berth_error *error)
{
    const char **const names = berthi_arena_alloc(
        &writer->texts, index->shard_count * sizeof(const char *), 8);

    if (names == NULL)
        return berthi_fail_memory(error, "publishing an output");
    for (uint32_t i = 0; i < index->shard_count; i++) {
        const char *const name = index->text + index->shards[i];

        names[i] = berthi_arena_text(&writer->texts, name, strlen(name));
        if (names[i] == NULL)
            return berthi_fail_memory(error, "publishing an output");
    }
    return berthi_writer_merge_stale(writer, names, index->shard_count, error);
}

static berth_status
read_index(berthi_writer *writer, berth_error *error)
{
    berthi_index index;
    char *text;
    uint64_t bytes;
    berth_status status =
        berthi_writer_read_text(writer, BERTHI_INDEX_NAME, writer->path,
                                BERTHI_INDEX_LIMIT, BERTH_REASON_INDEX_JSON, &text,
                                &bytes, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_index_parse(writer->context, text, bytes, writer->path, &index,
                                error);
    if (status == BERTH_OK)
        status = add_shards(writer, &index, error);
    berthi_index_fini(&index);
    berthi_memory_free(writer->context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    return status;
}

/*
 * Notes what only the old model's index names. Where there is none, or nobody
 * can say what it means, its shards stay: no index names them any more.
 */
static berth_status
note_stale(berthi_writer *writer, berth_error *error)
{
    berth_error mine;
    const berth_status status = read_index(writer, &mine);

    if (status == BERTH_OK || status == BERTH_ENOENT || status == BERTH_EFORMAT)
        return BERTH_OK;
    if (error != NULL)
        *error = mine;
    return status;
}

/* ------------------------------------------------------------------ beginning */

/*
 * Nothing may be in the way, of the last file as little as of the first, nor of
 * removing an old model's commit points.
 */
static berth_status
check_targets(const berthi_writer *writer, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (const berthi_writer_file *f = writer->files; f != NULL && status == BERTH_OK;
         f = f->next)
        status = berthi_writer_check_target(writer, f->name, f->path, error);
    if (status == BERTH_OK && writer->overwrite)
        status = berthi_writer_check_target(writer, BERTHI_INDEX_NAME, writer->path,
                                            error);
    if (status == BERTH_OK && writer->overwrite)
        status = berthi_writer_check_target(writer, BERTHI_SINGLE_NAME, writer->path,
                                            error);
    return status;
}

static berth_status
begin(berthi_writer *writer, const char *commit_name, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (!f->is_finished)
            return berthi_target_fail(f->path, BERTH_REASON_INTERNAL,
                                      "is to be published and not finished", error);
    if (commit_name == NULL || strchr(commit_name, '/') != NULL
        || berthi_writer_find(writer, commit_name) == NULL)
        return berthi_fail_argument(error, "commit_name", "is no file of the output");
    status = check_targets(writer, error);
    if (status == BERTH_OK && writer->overwrite)
        status = note_stale(writer, error);
    if (status != BERTH_OK)
        return status;
    writer->commit = berthi_writer_find(writer, commit_name)->name;
    writer->is_publishing = true;
    status = berthi_writer_save(writer, error);
    if (status != BERTH_OK) {
        writer->is_publishing = false;
        writer->commit = "";
    }
    return status;
}

/* ---------------------------------------------------------------------- steps */

static berth_status
take_over_one(const berthi_writer *writer, const berthi_writer_file *file,
              berth_error *error)
{
    const berthi_target target = berthi_writer_target(writer, file);
    berthi_sys_stat existing;
    bool has_existing;
    int fd;
    berth_status status = berthi_target_check(&target, &existing, &has_existing, error);

    if (status != BERTH_OK || !has_existing)
        return status;
    fd = berthi_sys_open_read(writer->folder, file->temporary);
    if (fd < 0)
        return berthi_fail_system(error, errno, file->path, "opening it once more");
    status = berthi_temporary_take_over(&target, fd, &existing, error);
    berthi_sys_close(fd);
    return status;
}

static berth_status
take_over(const berthi_writer *writer, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (const berthi_writer_file *f = writer->files; f != NULL && status == BERTH_OK;
         f = f->next)
        if (!f->is_published)
            status = take_over_one(writer, f, error);
    return status;
}

/* From here on there is no old model. What this set has published stays. */
static berth_status
remove_commit_points(berthi_writer *writer, berth_error *error)
{
    const char *const names[] = { BERTHI_INDEX_NAME, BERTHI_SINGLE_NAME,
                                  writer->commit };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const berthi_writer_file *const file = berthi_writer_find(writer, names[i]);

        if (file != NULL && file->is_published)
            continue;
        if (berthi_sys_unlink(writer->folder, names[i]) != 0 && errno != ENOENT)
            return berthi_fail_system(error, errno, writer->path,
                                      "removing the old index");
    }
    return berthi_folder_flush(writer->folder, writer->path, error);
}

static berth_status
publish_file(const berthi_writer *writer, berthi_writer_file *file, berth_error *error)
{
    const berthi_target target = berthi_writer_target(writer, file);
    berth_status status = BERTH_OK;

    if (!file->is_published)
        status = berthi_writer_make_folders(writer, file->name, file->path, error);
    if (!file->is_published && status == BERTH_OK)
        status = berthi_temporary_publish(&target, file->temporary, error);
    file->is_published = file->is_published || status == BERTH_OK;
    return status;
}

/* Folders within first: a file that has left the output's own is in its new one. */
static berth_status
flush_all(const berthi_writer *writer, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (const berthi_writer_file *f = writer->files; f != NULL && status == BERTH_OK;
         f = f->next)
        status = berthi_writer_flush_folders(writer, f->name, error);
    if (status == BERTH_OK)
        status = berthi_folder_flush(writer->folder, writer->path, error);
    return status;
}

static berth_status
publish_files(berthi_writer *writer, berthi_writer_file *commit, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (berthi_writer_file *f = writer->files; f != NULL && status == BERTH_OK;
         f = f->next)
        if (f != commit)
            status = publish_file(writer, f, error);
    if (status == BERTH_OK)
        status = flush_all(writer, error);
    if (status == BERTH_OK)
        status = publish_file(writer, commit, error);
    if (status == BERTH_OK)
        status = berthi_folder_flush(writer->folder, writer->path, error);
    return status;
}

/* The journal goes last: as long as it is there, a resumed run comes by here. */
static berth_status
clean(berthi_writer *writer, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < writer->stale_count && status == BERTH_OK; i++)
        if (berthi_writer_find(writer, writer->stale[i]) == NULL)
            status = berthi_writer_remove_stale(writer, writer->stale[i], true, error);
    for (uint64_t i = 0; i < writer->stale_count && status == BERTH_OK; i++)
        status = berthi_writer_flush_folders(writer, writer->stale[i], error);
    if (status == BERTH_OK && writer->prefix != NULL)
        status = berthi_writer_remove_parts(writer, error);
    if (status == BERTH_OK && (writer->stale_count > 0 || writer->prefix != NULL))
        status = berthi_folder_flush(writer->folder, writer->path, error);
    if (status != BERTH_OK)
        return status;
    if (berthi_sys_unlink(writer->folder, BERTHI_JOURNAL_NAME) != 0 && errno != ENOENT)
        return berthi_fail_system(error, errno, writer->journal_path,
                                  "removing the journal");
    return berthi_folder_flush(writer->folder, writer->path, error);
}

berth_status
berthi_writer_publish(berthi_writer *writer, const char *commit_name, berth_error *error)
{
    berthi_writer_file *commit;
    berth_status status = BERTH_OK;

    if (!writer->is_publishing)
        status = begin(writer, commit_name, error);
    if (status != BERTH_OK)
        return status;
    commit = berthi_writer_find(writer, writer->commit);
    if (writer->overwrite) {
        status = take_over(writer, error);
        if (status == BERTH_OK)
            status = remove_commit_points(writer, error);
    }
    if (status == BERTH_OK)
        status = publish_files(writer, commit, error);
    if (status == BERTH_OK)
        status = clean(writer, error);
    return status;
}
