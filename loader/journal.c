/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - reads and writes the journal; berth-journal(5) describes it. */
#include "loader/journal.h"

#include <stdio.h>
#include <string.h>

#include "loader/paths.h"
#include "loader/temporary.h"
#include "quant/members.h"

const char *
berthi_journal_name_problem(const char *name, uint64_t length)
{
    if (length == strlen(BERTHI_JOURNAL_NAME)
        && memcmp(name, BERTHI_JOURNAL_NAME, (size_t)length) == 0)
        return "is that of the journal";
    return berthi_path_problem(name, length);
}

/* ------------------------------------------------------------------ reading */

typedef struct reader {
    berthi_members members;
    berthi_journal *journal;
} reader;

/* The text that comes next is a name of the set, after `before` (NULL: the first). */
static bool
can_read_name(reader *r, const char *before, const char **out)
{
    const uint64_t position = r->members.scan.position;
    const char *problem;
    char message[128];

    if (!berthi_members_can_take_text(&r->members, out))
        return false;
    problem = berthi_journal_name_problem(*out, strlen(*out));
    if (problem != NULL) {
        (void)snprintf(message, sizeof message, "a name that %s", problem);
        r->members.scan.position = position;
        return berthi_members_stop(&r->members, message);
    }
    if (before != NULL && strcmp(before, *out) >= 0)
        return berthi_members_stop(&r->members, "names do not ascend");
    return true;
}

/* Enters an array; *out: room for its elements. */
static bool
can_enter(reader *r, uint64_t element_bytes, void **out, uint64_t *out_count)
{
    uint64_t bytes;

    *out = NULL;
    if (!berthi_scan_can_enter_array(&r->members.scan))
        return false;
    *out_count = berthi_members_count(&r->members);
    /* No array has more elements than its text has bytes. */
    if (!berthi_can_mul(*out_count, element_bytes, &bytes))
        return berthi_members_stop_memory(&r->members);
    *out = berthi_arena_alloc(r->members.arena, bytes, 8);
    return *out != NULL ? true : berthi_members_stop_memory(&r->members);
}

static bool
can_read_notes(reader *r, berthi_journal_file *file)
{
    uint64_t count = 0;
    void *notes;

    if (!can_enter(r, sizeof(uint32_t), &notes, &file->note_count))
        return false;
    file->notes = notes;
    while (berthi_scan_has_next_element(&r->members.scan)) {
        uint64_t note;

        if (!berthi_scan_can_read_unsigned(&r->members.scan, &note))
            return false;
        if (note > UINT32_MAX)
            return berthi_members_stop(&r->members, "a note above 4294967295");
        ((uint32_t *)notes)[count++] = (uint32_t)note;
    }
    return r->members.scan.problem == NULL;
}

bool
berthi_journal_is_of_parts(const char *name)
{
    return berthi_path_has_prefix(name, BERTHI_JOURNAL_PARTS);
}

bool
berthi_journal_is_made_by_parts(const char *name)
{
    return berthi_journal_is_of_parts(name)
           && !berthi_path_has_suffix(name, BERTHI_JOURNAL_LOCK_END);
}

/* A name that nothing else has, in no folder. */
static bool
is_temporary(const char *name)
{
    return strchr(name, '/') == NULL
           && (berthi_temporary_is_name(name, NULL)
               || berthi_journal_is_of_parts(name));
}

static bool
can_read_file(reader *r, const char *before, berthi_journal_file *file)
{
    berthi_members *const m = &r->members;

    if (!berthi_scan_can_enter_object(&m->scan) || !berthi_members_can_read_key(m, "name")
        || !can_read_name(r, before, &file->name)
        || !berthi_members_can_read_key(m, "temporary")
        || !can_read_name(r, NULL, &file->temporary))
        return false;
    if (!is_temporary(file->temporary))
        return berthi_members_stop(m, "not the name of a temporary file");
    return berthi_members_can_read_number(m, "bytes", &file->bytes)
           && berthi_members_can_read_key(m, "notes") && can_read_notes(r, file)
           && berthi_members_is_at_end(m);
}

static bool
can_read_files(reader *r)
{
    berthi_journal *const j = r->journal;
    const char *before = NULL;
    uint64_t count = 0;
    void *files;

    if (!can_enter(r, sizeof(berthi_journal_file), &files, &j->file_count))
        return false;
    j->files = files;
    while (berthi_scan_has_next_element(&r->members.scan)) {
        if (!can_read_file(r, before, &j->files[count]))
            return false;
        before = j->files[count++].name;
    }
    return r->members.scan.problem == NULL;
}

static bool
can_read_stale(reader *r)
{
    berthi_journal *const j = r->journal;
    uint64_t count = 0;
    void *names;

    if (!can_enter(r, sizeof(const char *), &names, &j->stale_count))
        return false;
    j->stale = names;
    while (berthi_scan_has_next_element(&r->members.scan)) {
        if (!can_read_name(r, count > 0 ? j->stale[count - 1] : NULL, &j->stale[count]))
            return false;
        count++;
    }
    return r->members.scan.problem == NULL;
}

static bool
can_read_state(reader *r)
{
    berthi_scan_text state;

    if (!berthi_scan_can_read_string(&r->members.scan, &state))
        return false;
    r->journal->is_publishing = berthi_scan_text_is(&state, "publishing");
    if (r->journal->is_publishing || berthi_scan_text_is(&state, "writing"))
        return true;
    return berthi_members_stop(&r->members, "a state is \"writing\" or \"publishing\"");
}

static bool
has_file(const berthi_journal *journal, const char *name)
{
    for (uint64_t i = 0; i < journal->file_count; i++)
        if (strcmp(journal->files[i].name, name) == 0)
            return true;
    return false;
}

/* What is published last is one of the files, in no folder; before, nothing is. */
static void
check_commit(reader *r)
{
    const berthi_journal *const j = r->journal;

    if (j->is_publishing ? has_file(j, j->commit) && strchr(j->commit, '/') == NULL
                         : j->commit[0] == '\0')
        return;
    (void)berthi_members_stop(&r->members,
                              "the commit file is one of the files, while publishing");
}

static bool
can_read_document(reader *r)
{
    berthi_members *const m = &r->members;
    berthi_journal *const j = r->journal;
    berthi_scan_text writer;

    return berthi_members_can_read_version(m, BERTHI_JOURNAL_VERSION)
           && berthi_members_can_read_key(m, "writer")
           && berthi_scan_can_read_string(&m->scan, &writer)
           && berthi_members_can_read_text(m, "job", &j->job)
           && berthi_members_can_read_key(m, "state") && can_read_state(r)
           && berthi_members_can_read_bool(m, "overwrite", &j->overwrite)
           && berthi_members_can_read_text(m, "commit", &j->commit)
           && berthi_members_can_read_key(m, "stale") && can_read_stale(r)
           && berthi_members_can_read_key(m, "files") && can_read_files(r)
           && berthi_members_is_at_end(m) && berthi_scan_can_finish(&m->scan);
}

berth_status
berthi_journal_parse(char *text, uint64_t bytes, const char *file, berthi_arena *arena,
                     berthi_journal *out, berth_error *error)
{
    reader r = { .members = { .file = file,
                              .reason = BERTH_REASON_JOURNAL,
                              .what = "reading the journal",
                              .arena = arena,
                              .error = error },
                 .journal = out };
    berth_status status;

    if (berthi_members_can_begin(&r.members, text, bytes) && can_read_document(&r))
        check_commit(&r);
    status = berthi_members_end(&r.members);
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return status;
}

/* ------------------------------------------------------------------ writing */

static void
add_member(berthi_json_text *t, const char *key, const char *value)
{
    berthi_json_text_add_words(t, key);
    berthi_json_text_add_string(t, value, strlen(value), BERTHI_JSON_RAW);
}

static void
add_file(berthi_json_text *t, const berthi_journal_file *file)
{
    add_member(t, "\n{\"name\": ", file->name);
    add_member(t, ", \"temporary\": ", file->temporary);
    berthi_json_text_add_words(t, ", \"bytes\": ");
    berthi_json_text_add_number(t, file->bytes);
    berthi_json_text_add_words(t, ", \"notes\": [");
    for (uint64_t i = 0; i < file->note_count; i++) {
        berthi_json_text_add_words(t, i > 0 ? ", " : "");
        berthi_json_text_add_number(t, file->notes[i]);
    }
    berthi_json_text_add_words(t, "]}");
}

berth_status
berthi_journal_print(const berthi_journal *journal, berthi_json_put put, void *user,
                     uint64_t *out_bytes, berth_error *error)
{
    berthi_json_text t;

    berthi_json_text_begin(&t, put, user, error);
    berthi_json_text_add_words(&t, "{\n\"schema_version\": 1,\n\"writer\": \"berth ");
    berthi_json_text_add_words(&t, berth_version());
    add_member(&t, "\",\n\"job\": ", journal->job);
    add_member(&t, ",\n\"state\": ", journal->is_publishing ? "publishing" : "writing");
    berthi_json_text_add_words(&t, ",\n\"overwrite\": ");
    berthi_json_text_add_words(&t, journal->overwrite ? "true" : "false");
    add_member(&t, ",\n\"commit\": ", journal->commit);
    berthi_json_text_add_words(&t, ",\n\"stale\": [");
    for (uint64_t i = 0; i < journal->stale_count; i++)
        add_member(&t, i > 0 ? ", " : "", journal->stale[i]);
    berthi_json_text_add_words(&t, "],\n\"files\": [");
    for (uint64_t i = 0; i < journal->file_count; i++) {
        berthi_json_text_add_words(&t, i > 0 ? "," : "");
        add_file(&t, &journal->files[i]);
    }
    berthi_json_text_add_words(&t, journal->file_count > 0 ? "\n]\n}\n" : "]\n}\n");
    return berthi_json_text_end(&t, out_bytes);
}
