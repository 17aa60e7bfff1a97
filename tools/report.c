/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - findings and verdict, for people and for programs. */
#include "tools/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/help.h"
#include "tools/input.h"
#include "tools/json_error.h"

static const char *
severity_name(int32_t severity)
{
    return severity == BERTH_SEVERITY_ERROR     ? "error"
           : severity == BERTH_SEVERITY_WARNING ? "warning"
                                                : "note";
}

void
report_begin(report *r, session *s, const char *model, bool is_json, bool is_quiet)
{
    memset(r, 0, sizeof *r);
    r->s = s;
    r->is_json = is_json;
    r->is_quiet = is_quiet;
    if (!is_json)
        return;
    json_begin(&r->w, &s->out, false);
    json_object_begin(&r->w, NULL);
    json_number(&r->w, "schema_version", 1);
    json_text(&r->w, "model", model);
    json_array_begin(&r->w, "findings");
}

/* ------------------------------------------------------------------ findings */

static void
write_finding(json_writer *w, const berth_finding *finding, const berth_error *named)
{
    json_object_begin(w, NULL);
    json_text(w, "severity", severity_name(finding->severity));
    json_error(w, named, finding->name != NULL ? finding->name : "", finding->name_length);
    json_object_end(w);
}

static void
print_finding(session *s, int32_t severity, const berth_error *e)
{
    const colour style = severity == BERTH_SEVERITY_ERROR     ? COLOUR_ERROR
                         : severity == BERTH_SEVERITY_WARNING ? COLOUR_WARNING
                                                              : COLOUR_NOTE;
    char line[sizeof *e + 512]; /* all of its texts, numbers and advice */

    berth_error_format(e, line, sizeof line);
    output_format(&s->out, "%s%s%s: ", colour_begin(&s->screen, style),
                  severity_name(severity), colour_end(&s->screen, style));
    output_text(&s->out, line);
    output_text(&s->out, "\n");
}

void
report_finding(void *user, const berth_finding *finding)
{
    report *const r = user;
    const int32_t severity = finding->severity;
    const berth_error named = input_named(finding->details);

    if (severity < BERTH_SEVERITY_NOTE || severity > BERTH_SEVERITY_ERROR)
        return;
    if (severity == BERTH_SEVERITY_ERROR && r->counts[severity] == 0)
        r->first_error = named;
    r->counts[severity]++;
    progress_hide(&r->s->progress);
    if (r->is_json)
        write_finding(&r->w, finding, &named);
    else if (!r->is_quiet || severity == BERTH_SEVERITY_ERROR)
        print_finding(r->s, severity, &named);
    output_flush(&r->s->out);
    progress_show(&r->s->progress);
}

void
report_error(report *r, const berth_error *error)
{
    const berth_error *const first = &r->first_error;
    const berth_finding finding = { .severity = BERTH_SEVERITY_ERROR,
                                    .details = error,
                                    .name = error->tensor,
                                    .name_length = strlen(error->tensor) };

    if (r->counts[BERTH_SEVERITY_ERROR] > 0 && first->status == error->status
        && first->reason == error->reason)
        return;
    report_finding(r, &finding);
}

/* ------------------------------------------------------------------- verdict */

static const char *
verdict_name(berth_status status)
{
    return status == BERTH_OK            ? "ok"
           : status == BERTH_ECANCELLED  ? "interrupted"
                                         : "failed";
}

static void
write_digest(json_writer *w, const report_facts *facts)
{
    const berth_verify_report *const d = facts->digest;

    if (d == NULL) {
        json_null(w, "digest");
        return;
    }
    json_object_begin(w, "digest");
    if (facts->manifest != NULL)
        json_text(w, "manifest", input_name(facts->manifest));
    else
        json_null(w, "manifest");
    json_bool(w, "manifest_written", facts->manifest_mode == BERTH_MANIFEST_WRITE);
    json_number(w, "bytes_read", d->bytes_read);
    json_number(w, "tensors_digested", d->tensors_digested);
    json_number(w, "blobs_checked", d->blobs_checked);
    json_number(w, "blobs_unchecked", d->blobs_unchecked);
    json_number(w, "files_checked", d->files_checked);
    json_number(w, "files_changed", d->files_changed);
    json_number(w, "mismatches", d->mismatches);
    json_real(w, "seconds", d->seconds);
    json_text(w, "io_path", d->io_path);
    json_object_end(w);
}

void
report_write_status(report *r, berth_status status)
{
    /* What the command itself refuses is no finding of the library. */
    if (status != BERTH_OK && r->counts[BERTH_SEVERITY_ERROR] == 0
        && cli_told()->status != BERTH_OK)
        report_error(r, cli_told());
    json_array_end(&r->w);
    json_text(&r->w, "verdict", verdict_name(status));
    json_text(&r->w, "status", berth_status_name(status));
    json_number(&r->w, "exit_code", (uint64_t)cli_exit_code(status));
    json_number(&r->w, "errors", r->counts[BERTH_SEVERITY_ERROR]);
    json_number(&r->w, "warnings", r->counts[BERTH_SEVERITY_WARNING]);
    json_number(&r->w, "notes", r->counts[BERTH_SEVERITY_NOTE]);
}

static void
write_verdict(report *r, berth_status status, const report_facts *facts)
{
    report_write_status(r, status);
    if (facts->checkpoint != NULL) {
        berth_checkpoint_summary m;

        berth_checkpoint_get(facts->checkpoint, &m);
        json_text(&r->w, "path", m.path);
        json_text(&r->w, "revision", m.revision);
        json_number(&r->w, "tensors", m.tensor_count);
        json_number(&r->w, "shards", m.shard_count);
        json_number(&r->w, "tensor_bytes", m.tensor_bytes);
    }
    write_digest(&r->w, facts);
    json_object_end(&r->w);
    json_end(&r->w);
}

static void
print_structure(session *s, const berth_checkpoint *checkpoint)
{
    berth_checkpoint_summary m;
    char number[TEXT_NUMBER_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];

    berth_checkpoint_get(checkpoint, &m);
    session_print_word(s, "ok", COLOUR_GOOD);
    output_name(&s->out, m.path, strlen(m.path));
    output_format(&s->out, ": %s tensor%s, ", text_number(m.tensor_count, number),
                  text_plural(m.tensor_count));
    output_format(&s->out, "%s in %" PRIu32 " %s%s, each byte accounted for\n",
                  berth_size_format(m.tensor_bytes, size), m.shard_count,
                  m.is_sharded ? "shard" : "file", text_plural(m.shard_count));
}

/* "29 digests match FILE", or what was done instead. */
static void
print_manifest(session *s, const report_facts *facts)
{
    const bool is_one = facts->digest->tensors_digested == 1;
    char number[TEXT_NUMBER_CAPACITY];

    text_number(facts->digest->tensors_digested, number);
    if (facts->manifest_mode == BERTH_MANIFEST_CHECK
        || facts->manifest_mode == BERTH_MANIFEST_SOURCE)
        output_format(&s->out, "; %s digest%s ", number, is_one ? " matches" : "s match");
    else if (facts->manifest_mode == BERTH_MANIFEST_WRITE)
        output_format(&s->out, "; %s digest%s written to ", number, is_one ? "" : "s");
    else
        output_text(&s->out, "; no manifest to compare with (--write-manifest makes one)");
    if (facts->manifest != NULL) {
        const char *const name = input_name(facts->manifest);

        output_name(&s->out, name, strlen(name));
    }
}

/* Beside the weights; of a manifest that tells of any. */
static void
print_files(session *s, const berth_verify_report *digest)
{
    const uint64_t checked = digest->files_checked;
    const uint64_t changed = digest->files_changed;

    if (changed > 0)
        output_format(&s->out, "; %" PRIu64 " of %" PRIu64 " other file%s changed", changed,
                      checked, text_plural(checked));
    else if (checked > 0)
        output_format(&s->out, "; %" PRIu64 " other file%s, too", checked,
                      checked == 1 ? " does" : "s do");
}

/* Of how many files, where some are none: these are held against nothing. */
static void
print_blobs(session *s, const report_facts *facts)
{
    const uint64_t checked = facts->digest->blobs_checked;
    const uint64_t unchecked = facts->digest->blobs_unchecked;
    berth_checkpoint_summary m;
    char of_files[48] = "";

    berth_checkpoint_get(facts->checkpoint, &m);
    if (checked + unchecked < m.shard_count)
        snprintf(of_files, sizeof of_files, " of %" PRIu32 " files", m.shard_count);
    if (checked > 0)
        output_format(&s->out, "; %" PRIu64 " blob%s%s match%s the SHA-256 of the hub", checked,
                      text_plural(checked), of_files, checked == 1 ? "es" : "");
    if (unchecked > 0)
        output_format(&s->out, "; %" PRIu64 " blob%s%s not checked: libcrypto is missing",
                      unchecked, text_plural(unchecked), of_files);
}

static void
print_digest(session *s, const report_facts *facts)
{
    const berth_verify_report *const d = facts->digest;
    char size[BERTH_SIZE_CAPACITY];
    char rate[BERTH_SIZE_CAPACITY];

    session_print_word(s, "ok", COLOUR_GOOD);
    output_format(&s->out, "%s read", berth_size_format(d->bytes_read, size));
    print_manifest(s, facts);
    print_files(s, d);
    print_blobs(s, facts);
    output_text(&s->out, "\n");
    if (s->common->verbosity == 0)
        return;
    session_print_word(s, "io", COLOUR_DIM);
    output_format(&s->out, "%s, %.3f s, %s/s\n", d->io_path, d->seconds,
                  berth_size_format(d->seconds > 0
                                        ? (uint64_t)((double)d->bytes_read / d->seconds)
                                        : 0,
                                    rate));
}

static void
print_count(session *s, uint64_t count, const char *what)
{
    if (count > 0)
        output_format(&s->out, "%" PRIu64 " %s%s, ", count, what, text_plural(count));
}

static void
print_failure(const report *r, berth_status status)
{
    const int code = cli_exit_code(status);
    session *const s = r->s;

    session_print_word(s, status == BERTH_ECANCELLED ? "interrupted" : "FAILED", COLOUR_ERROR);
    print_count(s, r->counts[BERTH_SEVERITY_ERROR], "error");
    print_count(s, r->counts[BERTH_SEVERITY_WARNING], "warning");
    output_format(&s->out, "exit code %d", code);
    for (size_t i = 0; i < help_exit_code_count; i++)
        if (help_exit_codes[i].code == code)
            output_format(&s->out, ": %s", help_exit_codes[i].meaning);
    output_text(&s->out, "\n");
}

void
report_end(report *r, berth_status status, const report_facts *facts)
{
    if (r->is_json) {
        write_verdict(r, status, facts);
    } else if (!r->is_quiet && status != BERTH_OK) {
        print_failure(r, status);
    } else if (!r->is_quiet) {
        print_structure(r->s, facts->checkpoint);
        if (facts->digest != NULL)
            print_digest(r->s, facts);
    }
}
