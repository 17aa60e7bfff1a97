/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_stale.c - files of an older model in an output that is replaced.
 *
 * The older manifest tells which files berth wrote. Those of them that the new
 * model has not, and that are as they were written, would only mislead loaders:
 * they go with the older shards. What somebody else wrote or has changed stays.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/convert_job.h"
#include "loader/file_digest.h"
#include "loader/findings.h"
#include "loader/journal.h"
#include "loader/manifest.h"
#include "loader/listing.h"
#include "loader/paths.h"
#include "loader/writer_state.h"

typedef struct old_file {
    struct old_file *next;
    const char *name;
    uint64_t bytes;
    uint32_t crc;
} old_file;

typedef struct sweeping {
    berthi_convert *convert;
    berthi_writer *writer;
    old_file *first; /* names descend */
    uint32_t count;
    const char **names; /* that are to go, strictly ascending */
    uint64_t name_count;
    uint64_t left; /* other files that a loader may read, and the first of them */
    const char *example;
    bool lacks_memory;
} sweeping;

/* ------------------------------------------------------------- the older manifest */

static berth_status
note_file(void *user, const berthi_manifest_file *file, berth_error *error)
{
    sweeping *const s = user;
    berthi_arena *const texts = &s->convert->texts;
    old_file *const old = berthi_arena_alloc(texts, sizeof *old, 8);
    const char *const name = berthi_arena_text(texts, file->file, file->file_length);

    if (old == NULL || name == NULL)
        return berthi_fail_memory(error, "reading a manifest");
    *old = (old_file){ s->first, name, file->bytes, file->crc32 };
    s->first = old;
    s->count++;
    return BERTH_OK;
}

/* One that cannot be read tells of nothing. */
static berth_status
read_old(sweeping *s, berth_error *error)
{
    const berthi_manifest_visitor visitor = { .user = s, .file = note_file };
    const char *const path =
        berthi_path_join(&s->convert->texts, s->writer->path, BERTHI_MANIFEST_NAME);
    berth_error ignored;
    berth_status status;

    if (path == NULL)
        return berthi_fail_memory(error, "a path");
    status = berthi_manifest_read(s->convert->context, berthi_manifest_at(path),
                                  &visitor, &ignored);
    if (status == BERTH_ENOMEM)
        return berthi_fail_memory(error, "reading a manifest");
    if (status != BERTH_OK)
        s->first = NULL;
    return BERTH_OK;
}

/* ---------------------------------------------------------------- what is unchanged */

/* Whatever cannot be told is changed. A link is never what berth wrote. */
static berth_status
check_unchanged(const sweeping *s, const old_file *old, bool *out_is_unchanged,
                berth_error *error)
{
    berth_error ignored;
    berthi_sys_stat state;
    berthi_file file;
    uint32_t crc = 0;
    berth_status status;

    *out_is_unchanged = false;
    if (berthi_sys_stat_at(s->writer->folder, old->name, BERTHI_SYS_NO_FOLLOW, &state) != 0
        || state.kind != BERTHI_SYS_REGULAR || state.bytes != old->bytes)
        return BERTH_OK;
    status = berthi_file_open(&file, s->writer->folder, old->name, old->name,
                              BERTHI_FILE_INSIDE, &ignored);
    if (status == BERTH_OK) {
        status = berthi_file_digest(&file, s->convert->context, NULL, &crc, &ignored);
        berthi_file_close(&file);
    }
    *out_is_unchanged = status == BERTH_OK && crc == old->crc;
    return status == BERTH_ENOMEM ? berthi_fail_memory(error, "looking at an older file")
                                  : BERTH_OK;
}

/* A manifest may hold anything: only names that a set can have. */
static bool
can_go(const sweeping *s, const old_file *old)
{
    return berthi_journal_name_problem(old->name, strlen(old->name)) == NULL
           && berthi_writer_find(s->writer, old->name) == NULL;
}

static berth_status
choose(sweeping *s, berth_error *error)
{
    uint32_t at = s->count;
    berth_status status = BERTH_OK;

    s->names = berthi_arena_alloc(&s->convert->texts,
                                  (s->count + UINT64_C(1)) * sizeof *s->names, 8);
    if (s->names == NULL)
        return berthi_fail_memory(error, "looking for older files");
    for (const old_file *old = s->first; old != NULL && status == BERTH_OK;
         old = old->next) {
        bool is_unchanged = false;

        if (can_go(s, old))
            status = check_unchanged(s, old, &is_unchanged, error);
        if (is_unchanged)
            s->names[--at] = old->name;
    }
    s->name_count = s->count - at;
    s->names += at;
    return status;
}

/* ------------------------------------------------------------------ what is left */

/* By its name: loaders look for files of these kinds. */
static bool
is_read_by_loaders(const char *name)
{
    static const char *const suffixes[] = { ".json", ".model", ".jinja", ".txt", ".py",
                                            ".tiktoken", NULL };

    for (size_t i = 0; suffixes[i] != NULL; i++)
        if (berthi_path_has_suffix(name, suffixes[i]))
            return true;
    return false;
}

static bool
is_going(const sweeping *s, const char *name)
{
    for (uint64_t i = 0; i < s->name_count; i++)
        if (strcmp(s->names[i], name) == 0)
            return true;
    return false;
}

static int
look(void *user, const char *name)
{
    sweeping *const s = user;

    if (name[0] == '.' || !is_read_by_loaders(name) || strcmp(name, BERTHI_INDEX_NAME) == 0
        || berthi_writer_find(s->writer, name) != NULL || is_going(s, name))
        return 0;
    s->left++;
    if (s->example == NULL || strcmp(name, s->example) < 0) {
        s->example = berthi_arena_text(&s->convert->texts, name, strlen(name));
        s->lacks_memory = s->example == NULL;
    }
    return s->lacks_memory;
}

/* Nothing hangs on it: a folder that cannot be listed is not remarked upon. */
static berth_status
remark(sweeping *s, berth_error *error)
{
    berthi_convert *const convert = s->convert;
    const char *path = NULL;
    berthi_findings findings;

    (void)berthi_sys_list(s->writer->folder, look, s);
    if (s->example != NULL)
        path = berthi_path_join(&convert->texts, s->writer->path, s->example);
    if (s->lacks_memory || (s->example != NULL && path == NULL))
        return berthi_fail_memory(error, "looking for older files");
    if (path == NULL)
        return BERTH_OK;
    berthi_findings_init(&findings, convert->context,
                         &(berth_open_options){ .finding = convert->options.finding,
                                                .finding_user =
                                                    convert->options.finding_user });
    berthi_findings_remark(&findings, BERTH_SEVERITY_WARNING, BERTH_REASON_STRAY_FILE,
                           &(berthi_about){ .file = path },
                           s->left == 1 ? "stays beside the new model, and is not of it"
                                        : "stays beside the new model, and is not of it; so "
                                          "do %" PRIu64 " more",
                           s->left - 1);
    berthi_findings_fini(&findings);
    return BERTH_OK;
}

berth_status
berthi_convert_note_stale(berthi_convert *convert, berth_error *error)
{
    sweeping s = { .convert = convert, .writer = convert->writer };
    berth_status status;

    if (!s.writer->overwrite)
        return BERTH_OK;
    status = read_old(&s, error);
    if (status == BERTH_OK)
        status = choose(&s, error);
    if (status == BERTH_OK)
        status = berthi_writer_add_stale(s.writer, s.names, s.name_count, error);
    if (status == BERTH_OK)
        status = remark(&s, error);
    return status;
}
