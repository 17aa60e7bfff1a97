/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_report.c - findings and verdicts as people and programs read them. */
#define _POSIX_C_SOURCE 200809L

#include "tools/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

static session s;
static cli_common common;
static report r;
static const char *path;

static void
begin(bool is_json, bool is_quiet)
{
    memset(&s, 0, sizeof s);
    memset(&common, 0, sizeof common);
    s.common = &common;
    path = fixture_format("%s/out", fixture_folder());
    output_init(&s.out, open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    CHECK(progress_init(&s.progress, -1, &s.screen, PROGRESS_NEVER));
    report_begin(&r, &s, "model", is_json, is_quiet);
}

/* What was printed; ends the report. */
static const char *
end(void)
{
    char *bytes;
    const char *text;

    output_flush(&s.out);
    close(s.out.fd);
    progress_fini(&s.progress);
    bytes = fixture_read(path, NULL);
    text = fixture_format("%s", bytes);
    free(bytes);
    return text;
}

static berth_error
error_of(berth_status status, int32_t reason, const char *message)
{
    berth_error error;

    memset(&error, 0, sizeof error);
    error.status = status;
    error.reason = reason;
    strcpy(error.file, "f");
    strcpy(error.message, message);
    return error;
}

static void
find(int32_t severity, const char *message)
{
    const berth_error error = error_of(BERTH_EFORMAT, BERTH_REASON_HEADER_JSON, message);
    const berth_finding finding = { .severity = severity, .details = &error };

    report_finding(&r, &finding);
}

static void
find_one_of_each(void)
{
    find(BERTH_SEVERITY_NOTE - 1, "below");
    find(BERTH_SEVERITY_NOTE, "a note");
    find(BERTH_SEVERITY_WARNING, "a warning");
    find(BERTH_SEVERITY_ERROR, "an error");
    find(BERTH_SEVERITY_ERROR + 1, "above");
}

static void
test_findings(void)
{
    const char *text;

    begin(false, false);
    find_one_of_each();
    CHECK_EQ(r.counts[BERTH_SEVERITY_NOTE], 1);
    CHECK_EQ(r.counts[BERTH_SEVERITY_WARNING], 1);
    CHECK_EQ(r.counts[BERTH_SEVERITY_ERROR], 1);
    CHECK_STR(r.first_error.message, "an error");
    text = end();
    CHECK_EQ(strncmp(text, "note: f: a note [header_json]", 29), 0);
    CHECK_CONTAINS(text, "\nwarning: f: a warning [header_json]");
    CHECK_CONTAINS(text, "\nerror: f: an error [header_json]");
    CHECK(strstr(text, "below") == NULL && strstr(text, "above") == NULL);
    begin(false, true);
    find_one_of_each();
    text = end();
    CHECK_EQ(strncmp(text, "error: f: an error", 18), 0);
    CHECK(strstr(text, "warning:") == NULL && strstr(text, "note:") == NULL);
}

static void
test_colours_of_findings(void)
{
    const char *text;

    begin(false, false);
    s.screen.has_colour = true;
    find_one_of_each();
    text = end();
    CHECK_CONTAINS(text, "\033[36mnote\033[0m: f");
    CHECK_CONTAINS(text, "\033[33mwarning\033[0m: f");
    CHECK_CONTAINS(text, "\033[1;31merror\033[0m: f");
}

/* A finding is there for a reader as soon as it is found. */
static void
test_findings_come_at_once(void)
{
    begin(false, false);
    find(BERTH_SEVERITY_NOTE, "a note");
    CHECK_GT(fixture_size(path), 0);
    end();
}

/* The bar is cleared before anything else is printed. */
static void
test_findings_beside_a_bar(void)
{
    const berth_progress now = { .phase = "read", .file = "", .total = 1 };

    begin(false, false);
    progress_fini(&s.progress);
    CHECK(progress_init(&s.progress, s.out.fd, &s.screen, PROGRESS_ALWAYS));
    progress_update(&s.progress, &now);
    find(BERTH_SEVERITY_NOTE, "a note");
    progress_update(&s.progress, &now);
    CHECK_CONTAINS(end(), "0 B/s\033[K\r\033[Knote: f: a note");
}

/* All of an error's texts fit, however long they are. */
static void
test_long_finding(void)
{
    berth_error error = error_of(BERTH_EIO, BERTH_REASON_HEADER_JSON, "");
    const berth_finding finding = { .severity = BERTH_SEVERITY_ERROR, .details = &error };
    const char *text;

    memset(error.file, 'f', sizeof error.file - 1);
    memset(error.tensor, 't', sizeof error.tensor - 1);
    memset(error.message, 'm', sizeof error.message - 1);
    error.has = BERTH_HAS_POSITION | BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
    error.position = error.expected = error.actual = UINT64_MAX;
    error.system_error = 5;
    begin(false, false);
    report_finding(&r, &finding);
    text = end();
    CHECK_CONTAINS(text, berth_reason_advice(error.reason));
    CHECK_EQ(text[strlen(text) - 1], '\n');
}

/* What a call returns is printed only if it was not the first finding. */
static void
test_errors_once(void)
{
    const berth_error same = error_of(BERTH_EFORMAT, BERTH_REASON_HEADER_JSON, "same");
    const berth_error other = error_of(BERTH_EFORMAT, BERTH_REASON_DIGEST, "other");
    const berth_error third = error_of(BERTH_EIO, BERTH_REASON_HEADER_JSON, "third");
    const char *text;

    begin(false, false);
    find(BERTH_SEVERITY_WARNING, "a warning");
    report_error(&r, &same);
    CHECK_EQ(r.counts[BERTH_SEVERITY_ERROR], 1);
    report_error(&r, &same);
    CHECK_EQ(r.counts[BERTH_SEVERITY_ERROR], 1);
    report_error(&r, &other);
    CHECK_EQ(r.counts[BERTH_SEVERITY_ERROR], 2);
    report_error(&r, &third);
    CHECK_EQ(r.counts[BERTH_SEVERITY_ERROR], 3);
    CHECK_STR(r.first_error.message, "same");
    text = end();
    CHECK_CONTAINS(text, "error: f: same");
    CHECK_CONTAINS(text, "error: f: other");
    CHECK_CONTAINS(text, "error: f: third");
}

static void
test_failures(void)
{
    static const struct {
        berth_status status;
        int errors;
        int warnings;
        const char *end;
    } cases[] = {
        { BERTH_EFORMAT, 0, 0, "FAILED  exit code 4: checkpoint incomplete or malformed: "
                               "download again\n" },
        { BERTH_EFORMAT, 1, 1, "FAILED  1 error, 1 warning, exit code 4: " },
        { BERTH_EFORMAT, 2, 2, "FAILED  2 errors, 2 warnings, exit code 4: " },
        { BERTH_ECANCELLED, 0, 0, "interrupted  exit code 130: " },
        { BERTH_EFORMAT - 1000, 0, 0, "FAILED  exit code 1004\n" },
    };
    const report_facts facts = { 0 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(false, false);
        for (int n = 0; n < cases[i].errors; n++)
            find(BERTH_SEVERITY_ERROR, "x");
        for (int n = 0; n < cases[i].warnings; n++)
            find(BERTH_SEVERITY_WARNING, "x");
        report_end(&r, cases[i].status, &facts);
        CHECK_CONTAINS(end(), cases[i].end);
    }
    begin(false, true);
    report_end(&r, BERTH_EFORMAT, &facts);
    CHECK_STR(end(), "");
}

static const berth_verify_report digest_of_two = { .bytes_read = 2048,
                                                   .tensors_digested = 2,
                                                   .blobs_checked = 2,
                                                   .blobs_unchecked = 2,
                                                   .files_checked = 5,
                                                   .files_changed = 4,
                                                   .mismatches = 3,
                                                   .seconds = 0.5,
                                                   .io_path = "way" };
static const berth_verify_report digest_of_one = { .bytes_read = 1,
                                                   .tensors_digested = 1,
                                                   .blobs_checked = 1,
                                                   .blobs_unchecked = 1,
                                                   .files_checked = 1,
                                                   .io_path = "way" };

/* The second line of a good verdict. */
static const char *
read_line(const opened *o, const berth_verify_report *digest, int32_t mode, uint32_t verbosity)
{
    const report_facts facts = { .checkpoint = o->checkpoint,
                                 .digest = digest,
                                 .manifest_mode = mode,
                                 .manifest = mode == BERTH_MANIFEST_NONE ? NULL : "a\nb" };
    const char *text;

    begin(false, false);
    common.verbosity = verbosity;
    report_end(&r, BERTH_OK, &facts);
    text = strchr(end(), '\n');
    return text != NULL ? text + 1 : "";
}

static void
test_digests(void)
{
    const char *const file = fixture_format("%s/m.safetensors", fixture_folder());
    berth_verify_report none = digest_of_one;
    opened o;

    fixture_file(file, "U8 2 a");
    opened_begin(&o, file, NULL);
    CHECK_STR(read_line(&o, &digest_of_two, BERTH_MANIFEST_CHECK, 1),
              "ok  2.00 KiB read; 2 digests match a\\x0ab; 4 of 5 other files changed; "
              "2 blobs match the SHA-256 of the hub; 2 blobs not checked: libcrypto is missing\n"
              "io  way, 0.500 s, 4.00 KiB/s\n");
    CHECK_STR(read_line(&o, &digest_of_one, BERTH_MANIFEST_CHECK, 0),
              "ok  1 B read; 1 digest matches a\\x0ab; 1 other file does, too; 1 blob matches the "
              "SHA-256 of the hub; 1 blob not checked: libcrypto is missing\n");
    none.files_checked = 2;
    CHECK_CONTAINS(read_line(&o, &none, BERTH_MANIFEST_CHECK, 0), "; 2 other files do, too; ");
    none.files_changed = 1;
    CHECK_CONTAINS(read_line(&o, &none, BERTH_MANIFEST_CHECK, 0),
                   "; 1 of 2 other files changed; ");
    none.files_checked = 1;
    CHECK_CONTAINS(read_line(&o, &none, BERTH_MANIFEST_CHECK, 0),
                   "; 1 of 1 other file changed; ");
    none.files_checked = 0;
    none.files_changed = 0;
    none.blobs_checked = 0;
    none.blobs_unchecked = 0;
    CHECK_STR(read_line(&o, &none, BERTH_MANIFEST_WRITE, 1),
              "ok  1 B read; 1 digest written to a\\x0ab\nio  way, 0.000 s, 0 B/s\n");
    none.bytes_read = 0;
    CHECK_CONTAINS(read_line(&o, &none, BERTH_MANIFEST_WRITE, 1), "\nio  way, 0.000 s, 0 B/s\n");
    none.bytes_read = 1;
    none.tensors_digested = 1000;
    CHECK_STR(read_line(&o, &none, BERTH_MANIFEST_WRITE, 0),
              "ok  1 B read; 1,000 digests written to a\\x0ab\n");
    CHECK_STR(read_line(&o, &none, BERTH_MANIFEST_NONE, 0),
              "ok  1 B read; no manifest to compare with (--write-manifest makes one)\n");
    CHECK_STR(read_line(&o, NULL, BERTH_MANIFEST_NONE, 1), "");
    opened_end(&o);
}

static void
test_structures(void)
{
    const char *const folder = fixture_folder();
    report_facts known = { 0 };
    opened o;

    fixture_text(fixture_format("%s/config.json", folder), FIXTURE_CONFIG);
    fixture_model(folder, "[model-00001-of-00001.safetensors]\nU8 2 a\nU8 3 b");
    opened_begin(&o, folder, NULL);
    known.checkpoint = o.checkpoint;
    begin(false, false);
    report_end(&r, BERTH_OK, &known);
    CHECK_STR(end(), fixture_format("ok  %s: 2 tensors, 5 B in 1 shard, each byte accounted "
                                    "for\n", folder));
    begin(false, true);
    report_end(&r, BERTH_OK, &known);
    CHECK_STR(end(), "");
    opened_end(&o);
}

static void
test_programs(void)
{
    const report_facts nothing = { 0 };
    const report_facts facts = { .digest = &digest_of_two,
                                 .manifest_mode = BERTH_MANIFEST_WRITE,
                                 .manifest = "m" };
    const report_facts alone = { .digest = &digest_of_one };
    berth_error error = error_of(BERTH_EFORMAT, BERTH_REASON_HEADER_JSON, "x");
    const berth_finding finding = { .severity = BERTH_SEVERITY_WARNING,
                                    .details = &error,
                                    .name = "a\nb",
                                    .name_length = 2 };
    const char *text;

    begin(true, false);
    report_end(&r, BERTH_ECANCELLED, &nothing);
    CHECK_CONTAINS(end(), "\"findings\": [],\n  \"verdict\": \"interrupted\",\n"
                          "  \"status\": \"cancelled\",\n  \"exit_code\": 130,\n"
                          "  \"errors\": 0,\n  \"warnings\": 0,\n  \"notes\": 0,\n"
                          "  \"digest\": null\n}\n");
    begin(true, false);
    error.has = BERTH_HAS_EXPECTED;
    error.position = 1;
    error.expected = 2;
    error.actual = 3;
    error.system_error = 5;
    report_finding(&r, &finding);
    report_end(&r, BERTH_EFORMAT, &facts);
    text = end();
    CHECK_CONTAINS(text, "\"severity\": \"warning\"");
    CHECK_CONTAINS(text, "\"tensor\": \"a\\n\"");
    CHECK_CONTAINS(text, "\"position\": null,\n      \"expected\": 2,\n      \"actual\": null,\n"
                         "      \"system_error\": 5,\n");
    CHECK_CONTAINS(text, "\"verdict\": \"failed\"");
    CHECK_CONTAINS(text, "\"warnings\": 1,\n");
    CHECK_CONTAINS(text, "\"digest\": {\n    \"manifest\": \"m\",\n"
                         "    \"manifest_written\": true,\n    \"bytes_read\": 2048,\n"
                         "    \"tensors_digested\": 2,\n    \"blobs_checked\": 2,\n"
                         "    \"blobs_unchecked\": 2,\n    \"files_checked\": 5,\n"
                         "    \"files_changed\": 4,\n    \"mismatches\": 3,\n"
                         "    \"seconds\": 0.500,\n    \"io_path\": \"way\"\n  }\n}\n");
    begin(true, false);
    report_end(&r, BERTH_OK, &alone);
    text = end();
    CHECK_CONTAINS(text, "\"verdict\": \"ok\"");
    CHECK_CONTAINS(text, "\"manifest\": null,\n    \"manifest_written\": false,\n");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_findings);
    T_RUN(test_colours_of_findings);
    T_RUN(test_findings_come_at_once);
    T_RUN(test_findings_beside_a_bar);
    T_RUN(test_long_finding);
    T_RUN(test_errors_once);
    T_RUN(test_failures);
    T_RUN(test_digests);
    T_RUN(test_structures);
    T_RUN(test_programs);
    T_MAIN_END;
}
