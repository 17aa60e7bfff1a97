/* SPDX-License-Identifier: Apache-2.0 */
/* writer_resume.c - what an earlier run has left in the folder: to go on with, to begin anew. */
#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/file.h"
#include "loader/writer_job.h"
#include "loader/writer_state.h"

/* --------------------------------------------------------------------- texts */

berth_status
berthi_writer_read_text(berthi_writer *writer, const char *name, const char *path,
                        uint64_t limit, berth_reason reason, char **out_text,
                        uint64_t *out_bytes, berth_error *error)
{
    berthi_file file;
    uint64_t bytes;
    char *text = NULL;
    berth_status status =
        berthi_file_open(&file, writer->folder, name, path, BERTHI_FILE_ANYWHERE, error);

    *out_text = NULL;
    *out_bytes = 0;
    if (status != BERTH_OK)
        return status;
    bytes = file.identity.bytes;
    if (bytes > limit) {
        status = berthi_target_fail(path, reason, "is too large", error);
        goto done;
    }
    text = berthi_memory_alloc(writer->context, BERTHI_PURPOSE_DOCUMENT, bytes);
    if (text == NULL) {
        status = berthi_fail_memory(error, "reading a text");
        goto done;
    }
    status = berthi_file_read(&file, text, bytes, 0, "reading", error);
    if (status == BERTH_OK) {
        *out_text = text;
        *out_bytes = bytes;
        text = NULL;
    }

done:
    berthi_memory_free(writer->context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    berthi_file_close(&file);
    return status;
}

/* ------------------------------------------------------------------- journal */

berth_status
berthi_writer_read_journal(berthi_writer *writer, const char *name, const char *path,
                           berthi_journal *out, berth_error *error)
{
    char *text;
    uint64_t bytes;
    berth_status status =
        berthi_writer_read_text(writer, name, path, BERTHI_JOURNAL_LIMIT,
                                BERTH_REASON_JOURNAL, &text, &bytes, error);

    memset(out, 0, sizeof *out);
    if (status == BERTH_OK)
        status = berthi_journal_parse(text, bytes, path, &writer->texts, out, error);
    berthi_memory_free(writer->context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    return status;
}

static berth_status
read_journal(berthi_writer *writer, berthi_journal *out, berth_error *error)
{
    return berthi_writer_read_journal(writer, writer->journal_name, writer->journal_path,
                                      out, error);
}

static berth_status
check_job(const berthi_writer *writer, const berthi_journal *journal, berth_error *error)
{
    const berthi_about about = { .file = writer->path };
    berthi_writer_difference d;

    if (!berthi_writer_find_difference(writer->job, journal->job, strlen(journal->job), &d))
        return BERTH_OK;
    if (d.is_of_source)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                           "holds an interrupted run, and \"%s\" of the model is not what "
                           "it read: it was written since, or is another model's; --force "
                           "begins anew",
                           d.mine);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                       "holds an interrupted run of another command: there \"%s\", now "
                       "\"%s\"; give what was given then, or --force to begin anew",
                       d.found, d.mine);
}

berth_status
berthi_writer_has_whole(const berthi_writer *writer, const char *name, uint64_t bytes,
                        bool *out_has, berth_error *error)
{
    berthi_sys_stat state;

    *out_has = false;
    if (berthi_sys_stat_at(writer->folder, name, BERTHI_SYS_NO_FOLLOW, &state) == 0)
        *out_has = state.kind == BERTHI_SYS_REGULAR && state.bytes == bytes;
    else if (errno != ENOENT && errno != ENOTDIR)
        return berthi_fail_system(error, errno, writer->path,
                                  "looking for finished files");
    return BERTH_OK;
}

/* Takes one file of the journal. What is not there any more is not finished. */
static berth_status
adopt_file(berthi_writer *writer, const berthi_journal_file *listed, bool is_publishing,
           berth_error *error)
{
    berthi_writer_file *file;
    bool is_temporary;
    bool is_published = false;
    bool is_own;
    berth_status status =
        berthi_writer_has_whole(writer, listed->temporary, listed->bytes, &is_temporary,
                                error);

    if (status == BERTH_OK && is_publishing && !is_temporary)
        status = berthi_writer_has_whole(writer, listed->name, listed->bytes,
                                         &is_published, error);
    if (status != BERTH_OK || (!is_temporary && !is_published && !is_publishing))
        return status;
    file = berthi_writer_make_file(writer, listed->name);
    if (file == NULL)
        return berthi_fail_memory(error, "resuming an output");
    if (!is_temporary && !is_published)
        return berthi_target_fail(file->path, BERTH_REASON_JOURNAL,
                                  "was finished, and has been lost since", error);
    file->temporary = listed->temporary;
    file->bytes = listed->bytes;
    file->notes = listed->notes;
    file->note_count = listed->note_count;
    file->is_finished = true;
    file->is_published = is_published;
    file->is_shared = berthi_writer_is_of_parts(writer, listed->temporary, &is_own);
    berthi_writer_insert(writer, file);
    return BERTH_OK;
}

berth_status
berthi_writer_resume(berthi_writer *writer, berth_error *error)
{
    berthi_journal journal;
    berth_status status = read_journal(writer, &journal, error);

    if (status == BERTH_OK)
        status = check_job(writer, &journal, error);
    if (status != BERTH_OK)
        return status;
    writer->overwrite = writer->overwrite || journal.overwrite;
    writer->stale = journal.stale;
    writer->stale_count = journal.stale_count;
    for (uint64_t i = 0; status == BERTH_OK && i < journal.file_count; i++)
        status = adopt_file(writer, &journal.files[i], journal.is_publishing, error);
    if (status != BERTH_OK)
        return status;
    writer->has_journal = true;
    writer->is_publishing = journal.is_publishing;
    writer->commit = journal.commit;
    return BERTH_OK;
}

/*
 * Begins anew where a journal stands. A run that was publishing has put shards
 * under final names: they are as stale as those of an old model.
 */
static berth_status
begin_anew(berthi_writer *writer, berth_error *error)
{
    berthi_journal journal;
    berth_error ignored;
    const char **names;
    berth_status status = read_journal(writer, &journal, &ignored);

    if (status == BERTH_ENOMEM)
        return berthi_fail_memory(error, "reading the journal");
    if (status != BERTH_OK)
        return BERTH_OK;
    writer->has_journal = !journal.is_publishing;
    writer->stale = journal.stale;
    writer->stale_count = journal.stale_count;
    if (!journal.is_publishing)
        return BERTH_OK;
    names = berthi_arena_alloc(&writer->texts, journal.file_count * sizeof *names, 8);
    if (names == NULL)
        return berthi_fail_memory(error, "reading the journal");
    for (uint64_t i = 0; i < journal.file_count && status == BERTH_OK; i++) {
        names[i] = journal.files[i].name;
        /* Folders that were made and not used yet. */
        status = berthi_writer_remove_stale(writer, names[i], false, error);
    }
    if (status != BERTH_OK)
        return status;
    return berthi_writer_merge_stale(writer, names, journal.file_count, error);
}

/* What a folder holds, but for temporary files: what is dead of them goes. */
typedef struct contents {
    const berthi_writer *writer;
    bool has_files;
    bool has_parts; /* of a set that is not this one */
} contents;

static int
note_contents(void *user, const char *name)
{
    contents *const c = user;
    bool is_own;

    if (berthi_writer_is_of_parts(c->writer, name, &is_own))
        c->has_parts |= !is_own && berthi_journal_is_made_by_parts(name);
    else if (!berthi_temporary_is_name(name, NULL))
        c->has_files = true;
    return c->has_files;
}

berth_status
berthi_writer_check_contents(const berthi_writer *writer, bool has_journal,
                             berth_error *error)
{
    contents c = { .writer = writer };

    if (has_journal)
        return berthi_target_fail(writer->path, BERTH_REASON_EXISTS,
                                  writer->part > 0
                                      ? "holds an interrupted run: --join goes on where "
                                        "parts were put together, --force begins anew"
                                      : "holds an interrupted run: --resume goes on with "
                                        "it, --force begins anew",
                                  error);
    if (berthi_sys_list(writer->folder, note_contents, &c) != 0)
        return berthi_fail_system(error, errno, writer->path, "listing the folder");
    if (c.has_files)
        return berthi_target_fail(writer->path, BERTH_REASON_EXISTS,
                                  "is there already and not empty", error);
    if (!c.has_parts)
        return BERTH_OK;
    return berthi_target_fail(writer->path, BERTH_REASON_EXISTS,
                              writer->prefix != NULL
                                  ? "holds parts that another command has made: --force "
                                    "begins anew"
                                  : "holds parts of a model: --join puts them together, "
                                    "--force begins anew",
                              error);
}

static bool
is_listed(void *user, const char *name)
{
    const berthi_writer *const writer = user;

    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (strcmp(f->temporary, name) == 0)
            return true;
    return false;
}

static berth_status
find_journal(const berthi_writer *writer, const char *name, bool *out_is_there,
             berth_error *error)
{
    berthi_sys_stat state;

    *out_is_there = berthi_sys_stat_at(writer->folder, name, BERTHI_SYS_NO_FOLLOW, &state) == 0;
    if (*out_is_there || errno == ENOENT)
        return BERTH_OK;
    return berthi_fail_system(error, errno, writer->journal_path, "looking for a journal");
}

static berth_status
look_as_whole(berthi_writer *writer, bool is_resume, berth_error *error)
{
    bool has_journal;
    berth_status status =
        find_journal(writer, BERTHI_JOURNAL_NAME, &has_journal, error);

    if (status != BERTH_OK)
        return status;
    if (!has_journal)
        status = writer->overwrite ? BERTH_OK
                                   : berthi_writer_check_contents(writer, false, error);
    else if (is_resume)
        status = berthi_writer_resume(writer, error);
    else if (writer->overwrite)
        status = begin_anew(writer, error);
    else
        status = berthi_writer_check_contents(writer, true, error);
    if (status == BERTH_OK)
        berthi_temporary_remove_dead(writer->folder, NULL, is_listed, writer);
    if (status == BERTH_OK && writer->overwrite && writer->prefix == NULL)
        status = berthi_writer_remove_parts(writer, error);
    return status;
}

/* What another command has left is begun anew where that is allowed. */
static berth_status
look_as_joining(berthi_writer *writer, berth_error *error)
{
    berth_status status = look_as_whole(writer, true, error);

    if ((status == BERTH_EINVAL || status == BERTH_EFORMAT) && writer->overwrite)
        status = begin_anew(writer, error);
    return status;
}

berth_status
berthi_writer_check_part(const berthi_writer *writer, bool has_journal, bool is_resume,
                         bool *out_has_own, berth_error *error)
{
    berth_status status = find_journal(writer, writer->journal_name, out_has_own, error);

    if (status != BERTH_OK || writer->overwrite || (is_resume && *out_has_own))
        return status;
    status = berthi_writer_check_contents(writer, has_journal, error);
    if (status != BERTH_OK || !*out_has_own)
        return status;
    return berthi_target_fail(writer->journal_path, BERTH_REASON_EXISTS,
                              "this part has been begun before: --resume goes on with it, "
                              "--force begins it anew",
                              error);
}

/* A part looks at its own journal; what other parts do is their business. */
static berth_status
look_as_part(berthi_writer *writer, bool is_resume, berth_error *error)
{
    bool has_journal;
    bool has_own = false;
    berth_status status =
        find_journal(writer, BERTHI_JOURNAL_NAME, &has_journal, error);

    if (status != BERTH_OK)
        return status;
    if (has_journal && is_resume) {
        writer->is_joining = true;
        return BERTH_OK;
    }
    status = berthi_writer_check_part(writer, has_journal, is_resume, &has_own, error);
    if (status == BERTH_OK)
        status = berthi_writer_lock_part(writer, error);
    /* Once more: whoever had the lock may have ended. */
    if (status == BERTH_OK)
        status = berthi_writer_check_part(writer, has_journal, is_resume, &has_own, error);
    if (status != BERTH_OK || !has_own)
        return status;
    if (is_resume)
        return berthi_writer_resume(writer, error);
    if (berthi_sys_unlink(writer->folder, writer->journal_name) != 0 && errno != ENOENT)
        return berthi_fail_system(error, errno, writer->journal_path,
                                  "removing the journal");
    return berthi_folder_flush(writer->folder, writer->path, error);
}

berth_status
berthi_writer_look_around(berthi_writer *writer, bool is_resume, berth_error *error)
{
    if (writer->part_count == 0)
        return look_as_whole(writer, is_resume, error);
    if (writer->part == 0)
        return look_as_joining(writer, error);
    return look_as_part(writer, is_resume, error);
}
