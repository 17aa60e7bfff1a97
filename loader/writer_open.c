/* SPDX-License-Identifier: Apache-2.0 */
/* writer_open.c - the folder of a set: made, locked, and what an earlier run left. */
#include <errno.h>
#include <string.h>

#include "kernels/sys.h"
#include "kernels/utf8.h"
#include "loader/file.h"
#include "loader/paths.h"
#include "loader/writer_state.h"

#define TEXT_BLOCK_BYTES 4096u
/* Each attempt fails only when another process has just removed the folder. */
#define MAX_ATTEMPTS 8
#define LINE_CAPACITY 160u /* of a job, in a message */

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

/* The line that begins at `text`, printable and cut. */
static void
show_line(const char *text, char *out)
{
    berth_text_escape(text, strcspn(text, "\n"), out, LINE_CAPACITY);
}

static berth_status
check_job(const berthi_writer *writer, const berthi_journal *journal, berth_error *error)
{
    const berthi_about about = { .file = writer->path };
    const char *mine = writer->job;
    const char *found = journal->job;
    char my_line[LINE_CAPACITY];
    char found_line[LINE_CAPACITY];
    size_t line = 0; /* where the first line begins that differs */

    for (size_t i = 0; mine[i] == found[i]; i++) {
        if (mine[i] == '\0')
            return BERTH_OK;
        if (mine[i] == '\n')
            line = i + 1;
    }
    show_line(mine + line, my_line);
    show_line(found + line, found_line);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                       "holds an interrupted run of another command: there \"%s\", now "
                       "\"%s\"; give what was given then, or --force to begin anew",
                       found_line, my_line);
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

static berth_status
resume(berthi_writer *writer, berth_error *error)
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
look_around(berthi_writer *writer, bool is_resume, berth_error *error)
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
        status = resume(writer, error);
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
look_around_joining(berthi_writer *writer, berth_error *error)
{
    berth_status status = look_around(writer, true, error);

    if ((status == BERTH_EINVAL || status == BERTH_EFORMAT) && writer->overwrite)
        status = begin_anew(writer, error);
    return status;
}

berth_status
berthi_writer_check_own(const berthi_writer *writer, bool is_resume, bool *out_has_own,
                        berth_error *error)
{
    const berth_status status =
        find_journal(writer, writer->journal_name, out_has_own, error);

    if (status != BERTH_OK || !*out_has_own || is_resume || writer->overwrite)
        return status;
    return berthi_target_fail(writer->journal_path, BERTH_REASON_EXISTS,
                              "this part has been begun before: --resume goes on with it, "
                              "--force begins it anew",
                              error);
}

/* A part looks at its own journal; what other parts do is their business. */
static berth_status
look_around_as_part(berthi_writer *writer, bool is_resume, berth_error *error)
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
    if (!writer->overwrite)
        status = berthi_writer_check_contents(writer, has_journal, error);
    if (status == BERTH_OK)
        status = berthi_writer_lock_part(writer, error);
    if (status == BERTH_OK)
        status = berthi_writer_check_own(writer, is_resume, &has_own, error);
    if (status != BERTH_OK || !has_own)
        return status;
    if (is_resume)
        return resume(writer, error);
    if (berthi_sys_unlink(writer->folder, writer->journal_name) != 0 && errno != ENOENT)
        return berthi_fail_system(error, errno, writer->journal_path,
                                  "removing the journal");
    return berthi_folder_flush(writer->folder, writer->path, error);
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

static berth_status
look(berthi_writer *writer, bool is_resume, berth_error *error)
{
    if (writer->part_count == 0)
        return look_around(writer, is_resume, error);
    if (writer->part == 0)
        return look_around_joining(writer, error);
    return look_around_as_part(writer, is_resume, error);
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
        status = look(writer, options->resume, error);
    if (status == BERTH_OK)
        *out = writer;
    else
        berthi_writer_close(writer);
    return status;
}
