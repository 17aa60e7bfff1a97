/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - reads and writes the journal; berth-journal(5) describes it. */
#include "loader/journal.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/utf8.h"
#include "loader/paths.h"
#include "loader/temporary.h"
#include "quant/scan.h"

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
    berthi_scan scan;
    const char *file;
    berthi_arena *arena;
    berthi_journal *journal;
    berth_error *error;
    berth_status status; /* of what the scanner does not know about */
} reader;

/* The functions below return false after a failure: the scanner's or this one. */
static bool
stop(reader *r, const char *message)
{
    const berthi_about about = {
        .file = r->file, .has = BERTH_HAS_POSITION, .position = r->scan.position
    };

    r->status = berthi_fail(r->error, BERTH_REASON_JOURNAL, &about, "%s", message);
    return false;
}

static bool
stop_without_memory(reader *r)
{
    r->status = berthi_fail_memory(r->error, "reading the journal");
    return false;
}

/* Schema 1 has one order of members, so there is one that can come next. */
static bool
can_read_key(reader *r, const char *key)
{
    const berthi_about about = {
        .file = r->file, .has = BERTH_HAS_POSITION, .position = r->scan.position
    };
    berthi_scan_text found;

    if (berthi_scan_has_next_member(&r->scan, &found)) {
        if (berthi_scan_text_is(&found, key))
            return true;
    } else if (r->scan.problem != NULL) {
        return false;
    }
    r->status = berthi_fail(r->error, BERTH_REASON_JOURNAL, &about,
                            "the next member should be \"%s\"", key);
    return false;
}

static bool
is_at_end(reader *r)
{
    const uint64_t position = r->scan.position;
    berthi_scan_text found;

    if (!berthi_scan_has_next_member(&r->scan, &found))
        return r->scan.problem == NULL;
    r->scan.position = position;
    return stop(r, "the next member has no meaning");
}

static bool
can_read_text(reader *r, const char **out)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(&r->scan, &text))
        return false;
    if (text.has_nul)
        return stop(r, "a text with U+0000");
    *out = berthi_arena_text(r->arena, text.bytes, text.length);
    return *out != NULL ? true : stop_without_memory(r);
}

/* A name of the set, after `before` (NULL: the first). */
static bool
can_read_name(reader *r, const char *before, const char **out)
{
    const berthi_about about = {
        .file = r->file, .has = BERTH_HAS_POSITION, .position = r->scan.position
    };
    const char *problem;

    if (!can_read_text(r, out))
        return false;
    problem = berthi_journal_name_problem(*out, strlen(*out));
    if (problem != NULL) {
        r->status = berthi_fail(r->error, BERTH_REASON_JOURNAL, &about,
                                "a name that %s", problem);
        return false;
    }
    if (before != NULL && strcmp(before, *out) >= 0)
        return stop(r, "names do not ascend");
    return true;
}

/* Elements of the array that has just been entered, without reading them. */
static uint64_t
count_elements(const reader *r)
{
    berthi_scan ahead = r->scan;
    uint64_t count = 0;

    /* One that cannot be skipped counts: the reader begins it before it fails. */
    while (berthi_scan_has_next_element(&ahead)) {
        count++;
        if (!berthi_scan_can_skip(&ahead))
            break;
    }
    return count;
}

/* Enters an array; *out: room for its elements. */
static bool
can_enter(reader *r, uint64_t element_bytes, void **out, uint64_t *out_count)
{
    uint64_t bytes;

    if (!berthi_scan_can_enter_array(&r->scan))
        return false;
    *out_count = count_elements(r);
    /* No array has more elements than its text has bytes. */
    if (!berthi_can_mul(*out_count, element_bytes, &bytes))
        return stop_without_memory(r);
    *out = berthi_arena_alloc(r->arena, bytes, 8);
    return *out != NULL ? true : stop_without_memory(r);
}

static bool
can_read_notes(reader *r, berthi_journal_file *file)
{
    uint64_t count = 0;
    void *notes;

    if (!can_enter(r, sizeof(uint32_t), &notes, &file->note_count))
        return false;
    file->notes = notes;
    while (berthi_scan_has_next_element(&r->scan)) {
        uint64_t note;

        if (!berthi_scan_can_read_unsigned(&r->scan, &note))
            return false;
        if (note > UINT32_MAX)
            return stop(r, "a note above 4294967295");
        ((uint32_t *)notes)[count++] = (uint32_t)note;
    }
    return r->scan.problem == NULL;
}

static bool
can_read_file(reader *r, const char *before, berthi_journal_file *file)
{
    if (!berthi_scan_can_enter_object(&r->scan) || !can_read_key(r, "name")
        || !can_read_name(r, before, &file->name) || !can_read_key(r, "temporary")
        || !can_read_name(r, NULL, &file->temporary))
        return false;
    if (!berthi_temporary_is_name(file->temporary, NULL)
        || strchr(file->temporary, '/') != NULL)
        return stop(r, "not the name of a temporary file");
    return can_read_key(r, "bytes")
           && berthi_scan_can_read_unsigned(&r->scan, &file->bytes)
           && can_read_key(r, "notes") && can_read_notes(r, file) && is_at_end(r);
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
    while (berthi_scan_has_next_element(&r->scan)) {
        if (!can_read_file(r, before, &j->files[count]))
            return false;
        before = j->files[count++].name;
    }
    return r->scan.problem == NULL;
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
    while (berthi_scan_has_next_element(&r->scan)) {
        if (!can_read_name(r, count > 0 ? j->stale[count - 1] : NULL, &j->stale[count]))
            return false;
        count++;
    }
    return r->scan.problem == NULL;
}

static bool
can_read_state(reader *r)
{
    berthi_scan_text state;

    if (!berthi_scan_can_read_string(&r->scan, &state))
        return false;
    r->journal->is_publishing = berthi_scan_text_is(&state, "publishing");
    if (r->journal->is_publishing || berthi_scan_text_is(&state, "writing"))
        return true;
    return stop(r, "a state is \"writing\" or \"publishing\"");
}

/* A later version may mean anything by its members: nothing of it is used. */
static bool
can_read_version(reader *r)
{
    const berthi_about about = { .file = r->file };
    uint64_t version;

    if (!can_read_key(r, "schema_version")
        || !berthi_scan_can_read_unsigned(&r->scan, &version))
        return false;
    if (version == 0)
        return stop(r, "there is no schema version 0");
    if (version > BERTHI_JOURNAL_VERSION) {
        r->status = berthi_fail(r->error, BERTH_REASON_UNSUPPORTED, &about,
                                "schema_version %" PRIu64 " needs a newer berth",
                                version);
        return false;
    }
    return true;
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
static bool
is_commit_valid(reader *r)
{
    const berthi_journal *const j = r->journal;

    if (j->is_publishing ? has_file(j, j->commit) && strchr(j->commit, '/') == NULL
                         : j->commit[0] == '\0')
        return true;
    return stop(r, "the commit file is one of the files, while publishing");
}

static bool
can_read_document(reader *r)
{
    berthi_journal *const j = r->journal;
    berthi_scan_text writer;

    return berthi_scan_can_enter_object(&r->scan) && can_read_version(r)
           && can_read_key(r, "writer") && berthi_scan_can_read_string(&r->scan, &writer)
           && can_read_key(r, "job") && can_read_text(r, &j->job)
           && can_read_key(r, "state") && can_read_state(r)
           && can_read_key(r, "overwrite")
           && berthi_scan_can_read_bool(&r->scan, &j->overwrite)
           && can_read_key(r, "commit") && can_read_text(r, &j->commit)
           && can_read_key(r, "stale") && can_read_stale(r)
           && can_read_key(r, "files") && can_read_files(r) && is_at_end(r)
           && berthi_scan_can_finish(&r->scan) && is_commit_valid(r);
}

berth_status
berthi_journal_parse(char *text, uint64_t bytes, const char *file, berthi_arena *arena,
                     berthi_journal *out, berth_error *error)
{
    const size_t valid = berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    reader r = {
        .file = file, .arena = arena, .journal = out, .error = error, .status = BERTH_OK
    };

    memset(out, 0, sizeof *out);
    berthi_scan_init(&r.scan, text, bytes, 0);
    if (valid < bytes) {
        r.scan.position = valid;
        stop(&r, "not UTF-8");
    } else if (!can_read_document(&r) && r.status == BERTH_OK) {
        r.scan.position = r.scan.problem_at;
        stop(&r, r.scan.problem);
    }
    if (r.status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return r.status;
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
