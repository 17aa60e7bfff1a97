/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c - the files of a set, one at a time: created, finished, renamed, dropped. */
#include "loader/writer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/output.h"
#include "loader/paths.h"
#include "loader/writer_state.h"

berthi_target
berthi_writer_target(const berthi_writer *writer, const berthi_writer_file *file)
{
    return (berthi_target){ writer->folder, file->name, file->path, writer->overwrite };
}

/* ------------------------------------------------------------------- the set */

static berthi_writer_file *
find(const berthi_writer *writer, const char *name)
{
    for (berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

berthi_writer_file *
berthi_writer_find(berthi_writer *writer, const char *name)
{
    berthi_writer_file *file;

    pthread_mutex_lock(&writer->lock);
    file = find(writer, name);
    pthread_mutex_unlock(&writer->lock);
    return file;
}

bool
berthi_writer_is_complete(const berthi_writer *writer)
{
    return writer->is_publishing;
}

void
berthi_writer_insert(berthi_writer *writer, berthi_writer_file *file)
{
    berthi_writer_file **place = &writer->files;

    while (*place != NULL && strcmp((*place)->name, file->name) < 0)
        place = &(*place)->next;
    file->next = *place;
    file->is_listed = true;
    *place = file;
}

static void
take_out(berthi_writer *writer, berthi_writer_file *file)
{
    berthi_writer_file **place = &writer->files;

    while (*place != file)
        place = &(*place)->next;
    *place = file->next;
    file->is_listed = false;
}

/* Name and path anew; false: out of memory. */
static bool
can_name(berthi_writer *writer, berthi_writer_file *file, const char *name)
{
    const char *const copy = berthi_arena_text(&writer->texts, name, strlen(name));
    const char *const path = berthi_path_join(&writer->texts, writer->path, name);

    if (copy == NULL || path == NULL)
        return false;
    file->name = copy;
    file->path = path;
    return true;
}

berthi_writer_file *
berthi_writer_make_file(berthi_writer *writer, const char *name)
{
    berthi_writer_file *const file =
        berthi_arena_alloc(&writer->texts, sizeof *file, 8);

    if (file == NULL)
        return NULL;
    memset(file, 0, sizeof *file);
    file->fd = -1;
    return can_name(writer, file, name) ? file : NULL;
}

/* True when `name` lies below `folder`, a name as well. */
static bool
is_above(const char *folder, const char *name)
{
    const size_t length = strlen(folder);

    return strncmp(folder, name, length) == 0 && name[length] == '/';
}

/* True when the set's files leave no room for a file of that name. */
static bool
is_taken(const berthi_writer *writer, const char *name)
{
    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (strcmp(f->name, name) == 0 || is_above(f->name, name)
            || is_above(name, f->name))
            return true;
    return false;
}

/* A name that the set can take, and that nothing stands in the way of. */
static berth_status
check_name(const berthi_writer *writer, const char *name, berth_error *error)
{
    const berthi_about about = { .file = writer->path,
                                 .tensor = name,
                                 .tensor_length = strlen(name) };
    const char *const problem = berthi_journal_name_problem(name, strlen(name));

    if (writer->is_publishing)
        return berthi_fail(error, BERTH_REASON_INTERNAL, &about,
                           "the output is being published already");
    if (problem != NULL)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &about, "the name %s", problem);
    if (is_taken(writer, name))
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                           "the output has a file of this name");
    return berthi_writer_check_target(writer, name, writer->path, error);
}

/* ------------------------------------------------------------------- creating */

berth_status
berthi_writer_check_space(berthi_writer *writer, uint64_t bytes, berth_error *error)
{
    return berthi_folder_check_space(writer->folder, bytes, writer->path, error);
}

/* The part that needs the lock: a name that is free, and a file of that name. */
static berth_status
begin_file(berthi_writer *writer, const char *name, uint64_t bytes,
           berthi_writer_file **out, berth_error *error)
{
    berthi_writer_file *file;
    berthi_target target;
    berth_status status = check_name(writer, name, error);

    if (status != BERTH_OK)
        return status;
    file = berthi_writer_make_file(writer, name);
    if (file == NULL)
        return berthi_fail_memory(error, "creating an output");
    file->bytes = bytes;
    target = berthi_writer_target(writer, file);
    status = berthi_target_check_space(&target, bytes, error);
    if (status == BERTH_OK)
        status = berthi_temporary_create(&target, &writer->texts, &file->temporary,
                                         &file->fd, error);
    if (status != BERTH_OK)
        return status;
    berthi_writer_insert(writer, file);
    *out = file;
    return BERTH_OK;
}

berth_status
berthi_writer_create(berthi_writer *writer, const char *name, uint64_t bytes,
                     berthi_writer_file **out, berth_error *error)
{
    berthi_writer_file *file = NULL;
    berth_status status;

    *out = NULL;
    pthread_mutex_lock(&writer->lock);
    status = begin_file(writer, name, bytes, &file, error);
    pthread_mutex_unlock(&writer->lock);
    if (status == BERTH_OK)
        status = berthi_writer_make_windows(writer, file, error);
    if (status == BERTH_OK) {
        const berthi_target target = berthi_writer_target(writer, file);

        status = berthi_temporary_reserve(&target, file->fd, bytes, error);
    }
    if (status == BERTH_OK)
        *out = file;
    else
        berthi_writer_drop(writer, file);
    return status;
}

/* ------------------------------------------------------------------ finishing */

static berth_status
put_journal(void *user, const char *bytes, uint64_t size, uint64_t offset,
            berth_error *error)
{
    return berthi_output_write(user, bytes, size, offset, error);
}

static berth_status
print_journal(berthi_writer *writer, const berthi_journal *journal, berth_error *error)
{
    const berthi_target target = { writer->folder, writer->journal_name,
                                   writer->journal_path, true };
    berthi_output output;
    uint64_t bytes;
    berth_status status = berthi_journal_print(journal, NULL, NULL, &bytes, error);

    if (status == BERTH_OK)
        status = berthi_output_open_at(writer->context, &target, bytes, &output, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_journal_print(journal, put_journal, &output, NULL, error);
    if (status == BERTH_OK)
        status = berthi_output_commit(&output, error);
    else
        berthi_output_discard(&output);
    return status;
}

berth_status
berthi_writer_save(berthi_writer *writer, berth_error *error)
{
    berthi_journal journal = {
        .job = writer->job,
        .overwrite = writer->overwrite,
        .is_publishing = writer->is_publishing,
        .commit = writer->commit,
        .stale = writer->stale,
        .stale_count = writer->stale_count,
    };
    uint64_t count = 0;
    berth_status status;

    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        count += f->is_finished;
    journal.files = berthi_memory_array(writer->context, BERTHI_PURPOSE_OBJECT, count,
                                        sizeof *journal.files);
    if (journal.files == NULL)
        return berthi_fail_memory(error, "writing the journal");
    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (f->is_finished)
            journal.files[journal.file_count++] = (berthi_journal_file){
                f->name, f->temporary, f->bytes, f->notes, f->note_count
            };
    status = print_journal(writer, &journal, error);
    if (status == BERTH_OK)
        writer->has_journal = true;
    berthi_memory_free(writer->context, BERTHI_PURPOSE_OBJECT, journal.files,
                       count * sizeof *journal.files);
    return status;
}

/* Notes it and tells the journal; as before on failure, but that it is in the set. */
static berth_status
list_file(berthi_writer *writer, berthi_writer_file *file, const uint32_t *notes,
          uint64_t note_count, berth_error *error)
{
    uint64_t bytes;
    uint32_t *copy = NULL;
    berth_status status;

    if (berthi_can_mul(note_count, sizeof *notes, &bytes))
        copy = berthi_arena_alloc(&writer->texts, bytes, 8);
    if (copy == NULL)
        return berthi_fail_memory(error, "finishing an output");
    if (note_count > 0)
        memcpy(copy, notes, (size_t)bytes);
    file->notes = copy;
    file->note_count = note_count;
    file->is_finished = true;
    if (!file->is_listed) /* a shared one: others are from the beginning */
        berthi_writer_insert(writer, file);
    status = berthi_writer_save(writer, error);
    file->is_finished = status == BERTH_OK;
    return status;
}

static berth_status
make_durable(berthi_writer_file *file, uint64_t bytes, berth_error *error)
{
    if (berthi_sys_truncate(file->fd, bytes) != 0)
        return berthi_fail_system(error, errno, file->path, "cutting it to its size");
    /* A failure is final: the kernel may have dropped what it could not write. */
    if (berthi_sys_fsync(file->fd) != 0)
        return berthi_fail_system(error, errno, file->path, "flushing");
    (void)berthi_sys_drop_cache(file->fd, 0, 0);
    file->bytes = bytes;
    return BERTH_OK;
}

berth_status
berthi_writer_finish(berthi_writer *writer, berthi_writer_file *file, uint64_t bytes,
                     const uint32_t *notes, uint64_t note_count, berth_error *error)
{
    berth_status status;

    if (file->is_finished || bytes > file->bytes
        || (!file->is_shared && atomic_load(&file->written) < bytes))
        return berthi_target_fail(file->path, BERTH_REASON_INTERNAL,
                                  "was not written completely", error);
    if (atomic_load(&file->has_failed))
        return berthi_target_fail(file->path, BERTH_REASON_IO,
                                  "something of it could not be written before", error);
    status = make_durable(file, bytes, error);
    /* Other parts trust the journal without looking for what it lists: names first. */
    if (status == BERTH_OK && file->is_shared)
        status = berthi_folder_flush(writer->folder, writer->path, error);
    if (status == BERTH_OK) {
        pthread_mutex_lock(&writer->lock);
        status = list_file(writer, file, notes, note_count, error);
        pthread_mutex_unlock(&writer->lock);
    }
    if (status != BERTH_OK) {
        atomic_store(&file->has_failed, true);
        return status;
    }
    berthi_sys_close(file->fd);
    file->fd = -1;
    berthi_writer_free_windows(writer, file);
    return BERTH_OK;
}

/* ------------------------------------------------------ renaming, dropping, closing */

berth_status
berthi_writer_rename(berthi_writer *writer, berthi_writer_file *file, const char *name,
                     berth_error *error)
{
    berth_status status = BERTH_OK;

    if (strcmp(file->name, name) == 0)
        return BERTH_OK;
    pthread_mutex_lock(&writer->lock);
    status = check_name(writer, name, error);
    if (status == BERTH_OK) {
        take_out(writer, file);
        if (!can_name(writer, file, name))
            status = berthi_fail_memory(error, "renaming an output");
        berthi_writer_insert(writer, file);
    }
    pthread_mutex_unlock(&writer->lock);
    return status;
}

/* Unfinished or finished, but not published. What is shared is others', too. */
static void
remove_file(const berthi_writer *writer, berthi_writer_file *file)
{
    if (!file->is_shared)
        berthi_sys_unlink(writer->folder, file->temporary);
    if (file->fd >= 0)
        berthi_sys_close(file->fd);
    file->fd = -1;
    berthi_writer_free_windows(writer, file);
}

void
berthi_writer_drop(berthi_writer *writer, berthi_writer_file *file)
{
    if (file == NULL)
        return;
    pthread_mutex_lock(&writer->lock);
    if (file->is_listed)
        take_out(writer, file);
    pthread_mutex_unlock(&writer->lock);
    remove_file(writer, file);
}

void
berthi_writer_drop_others(berthi_writer *writer,
                          bool (*is_kept)(const void *user, const berthi_writer_file *file),
                          const void *user)
{
    berthi_writer_file *next;

    for (berthi_writer_file *f = writer->files; f != NULL; f = next) {
        next = f->next;
        if (!is_kept(user, f))
            berthi_writer_drop(writer, f);
    }
}

/* Nothing is finished: as if nothing had begun. A folder with contents stays. */
static void
remove_folder(const berthi_writer *writer)
{
    const char *slash;

    if (writer->has_journal)
        berthi_sys_unlink(writer->folder, writer->journal_name);
    if (!writer->has_made_folder)
        return;
    slash = strrchr(writer->path, '/');
    if (writer->parent >= 0)
        berthi_sys_remove_folder(writer->parent,
                                 slash != NULL ? slash + 1 : writer->path);
    else
        berthi_sys_remove_folder(BERTHI_SYS_AT_CWD, writer->path);
}

bool
berthi_writer_has_finished(const berthi_writer *writer)
{
    for (const berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (f->is_finished)
            return true;
    return writer->is_recorded;
}

void
berthi_writer_close(berthi_writer *writer)
{
    if (writer == NULL)
        return;
    for (berthi_writer_file *f = writer->files; f != NULL; f = f->next)
        if (!f->is_finished)
            remove_file(writer, f);
    if (!berthi_writer_has_finished(writer))
        remove_folder(writer);
    if (writer->part_lock >= 0)
        berthi_sys_close(writer->part_lock);
    if (writer->parent >= 0)
        berthi_sys_close(writer->parent);
    if (writer->folder >= 0)
        berthi_sys_close(writer->folder);
    if (writer->has_lock)
        pthread_mutex_destroy(&writer->lock);
    berthi_arena_fini(&writer->texts);
    berthi_memory_free(writer->context, BERTHI_PURPOSE_OBJECT, writer, sizeof *writer);
}
