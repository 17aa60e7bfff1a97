/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verify_files.c - the files beside the weights that a manifest tells of: each one that is
 * another, or not there, is a warning; the weights are judged without them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/digest.h"
#include "loader/berth.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define LONG_BYTES 200000u /* several reads */
#define MOST_FINDINGS 8u
#define CONFIG "{\"temperature\": 0.6}"

/* ---------------------------------------------------------------------------- helpers */

/* One verification, and what it told. */
typedef struct run {
    berth_verify_report report;
    berth_error error;
    berth_error findings[MOST_FINDINGS];
    int32_t severities[MOST_FINDINGS];
    uint32_t count;
} run;

static void
note_finding(void *user, const berth_finding *finding)
{
    run *const r = user;

    opened_check_finding(finding);
    if (r->count < MOST_FINDINGS) {
        r->findings[r->count] = *finding->details;
        r->severities[r->count] = finding->severity;
    }
    r->count++;
}

static berth_status
verify_with(run *r, berth_context *context, const char *folder, int32_t mode, bool listens)
{
    berth_verify_options options;
    berth_checkpoint *checkpoint = NULL;
    berth_job *job = NULL;
    berth_status status = berth_checkpoint_open(context, folder, NULL, &checkpoint, &r->error);

    memset(&r->report, 0, sizeof r->report);
    r->count = 0;
    berth_verify_options_init(&options);
    options.manifest_mode = mode;
    options.overwrite = 1;
    options.report = &r->report;
    options.finding = listens ? note_finding : NULL;
    options.finding_user = r;
    options.no_uring = 1;
    if (status == BERTH_OK)
        status = berth_verify_start(context, checkpoint, &options, &job, &r->error);
    if (job != NULL)
        status = berth_job_finish(job, &r->error);
    berth_checkpoint_close(checkpoint);
    return status;
}

static run
verify(const char *folder)
{
    berth_context *context = NULL;
    run r = { .count = 0 };
    berth_status status;

    CHECK_EQ(berth_context_create(NULL, &context, &r.error), BERTH_OK);
    status = verify_with(&r, context, folder, BERTH_MANIFEST_CHECK, true);
    CHECK_EQ(r.error.status, status);
    berth_context_destroy(context);
    return r;
}

/* The manifest's last line, which closes the document, gives way to a list of files. */
static void
add_files(const char *folder, const char *list)
{
    const char *const path = fixture_format("%s/berth.manifest.json", folder);
    char *const text = fixture_read(path, NULL);

    *strrchr(text, '}') = '\0';
    fixture_text(path, fixture_format("%s,\n\"files\": [%s]}\n", text, list));
    free(text);
}

static const char *
entry(const char *name, const void *bytes, size_t size)
{
    return fixture_format("{\"file\": \"%s\", \"bytes\": %zu, \"crc32\": \"%08" PRIx32 "\"}",
                          name, size, berthi_digest_crc32(0, bytes, size));
}

/* A model with three files beside it, one of them below a folder, and a manifest of all. */
static const char *
make_model(void)
{
    const char *const folder = fixture_folder();
    char *const bytes = malloc(LONG_BYTES);
    berth_context *context = NULL;
    run r;

    for (uint32_t i = 0; i < LONG_BYTES; i++)
        bytes[i] = (char)('a' + i % 23);
    fixture_model(folder, "[model.safetensors]\n@format pt\nU8 100 a\nF32 2x3 b\n");
    fixture_make_folder(fixture_format("%s/more", folder));
    fixture_text(fixture_format("%s/generation_config.json", folder), CONFIG);
    fixture_write(fixture_format("%s/more/empty", folder), "", 0);
    fixture_write(fixture_format("%s/tokenizer.json", folder), bytes, LONG_BYTES);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(verify_with(&r, context, folder, BERTH_MANIFEST_WRITE, true), BERTH_OK);
    CHECK_EQ(r.report.files_checked, 0);
    berth_context_destroy(context);
    add_files(folder, fixture_format("%s, %s, %s",
                                     entry("generation_config.json", CONFIG, strlen(CONFIG)),
                                     entry("more/empty", "", 0),
                                     entry("tokenizer.json", bytes, LONG_BYTES)));
    free(bytes);
    return folder;
}

static void
check_warning(const run *r, uint32_t number, berth_reason reason, const char *file,
              const char *message)
{
    if (!CHECK_LT(number, r->count))
        return;
    CHECK_EQ(r->severities[number], BERTH_SEVERITY_WARNING);
    CHECK_EQ(r->findings[number].reason, reason);
    CHECK_STR(r->findings[number].file, file);
    CHECK_STR(r->findings[number].message, message);
}

/* ------------------------------------------------------------------------------ tests */

static void
test_as_promised(void)
{
    const char *const folder = make_model();
    const run r = verify(folder);

    CHECK_EQ(r.error.status, BERTH_OK);
    CHECK_EQ(r.count, 0);
    CHECK_EQ(r.report.files_checked, 3);
    CHECK_EQ(r.report.files_changed, 0);
    CHECK_EQ(r.report.bytes_read, fixture_size(fixture_format("%s/model.safetensors", folder))
                                      + strlen(CONFIG) + LONG_BYTES);
}

/* The last byte of several reads; what lies before and behind is as it was. */
static void
test_other_bytes(void)
{
    const char *const folder = make_model();
    const char *const path = fixture_format("%s/tokenizer.json", folder);
    char *const before = fixture_read(path, NULL);
    char *after;
    run r;

    fixture_flip(path, LONG_BYTES - 1, 1);
    after = fixture_read(path, NULL);
    r = verify(folder);
    CHECK_EQ(r.error.status, BERTH_OK);
    CHECK_EQ(r.report.mismatches, 0);
    CHECK_EQ(r.report.files_checked, 3);
    CHECK_EQ(r.report.files_changed, 1);
    CHECK_EQ(r.count, 1);
    check_warning(&r, 0, BERTH_REASON_DIGEST, path,
                  "is not as it was written with the weights: edited since, or damaged");
    CHECK_EQ(r.findings[0].has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_CRC32);
    CHECK_EQ(r.findings[0].expected, berthi_digest_crc32(0, before, LONG_BYTES));
    CHECK_EQ(r.findings[0].actual, berthi_digest_crc32(0, after, LONG_BYTES));
    free(before);
    free(after);
}

static void
test_other_sizes(void)
{
    static const char message[] =
        "has another size than the file that was written with the weights";
    const char *const folder = make_model();
    const char *const config = fixture_format("%s/generation_config.json", folder);
    const char *const empty = fixture_format("%s/more/empty", folder);
    run r;

    fixture_extend(config, 1);
    fixture_extend(empty, 7);
    r = verify(folder);
    CHECK_EQ(r.error.status, BERTH_OK);
    CHECK_EQ(r.report.files_changed, 2);
    CHECK_EQ(r.count, 2);
    check_warning(&r, 0, BERTH_REASON_DIGEST, config, message);
    CHECK_EQ(r.findings[0].has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(r.findings[0].expected, strlen(CONFIG));
    CHECK_EQ(r.findings[0].actual, strlen(CONFIG) + 1);
    check_warning(&r, 1, BERTH_REASON_DIGEST, empty, message);
    CHECK_EQ(r.findings[1].actual, 7);
}

static void
test_not_there(void)
{
    const char *const folder = make_model();
    const char *const config = fixture_format("%s/generation_config.json", folder);
    run r;

    fixture_remove(config);
    fixture_remove(fixture_format("%s/tokenizer.json", folder));
    fixture_make_folder(fixture_format("%s/tokenizer.json", folder));
    r = verify(folder);
    CHECK_EQ(r.error.status, BERTH_OK);
    CHECK_EQ(r.report.files_checked, 3);
    CHECK_EQ(r.report.files_changed, 2);
    CHECK_EQ(r.count, 2);
    check_warning(&r, 0, BERTH_REASON_MANIFEST_ENTRY, config,
                  "is not there, and was written with the weights");
    CHECK_EQ(r.severities[1], BERTH_SEVERITY_WARNING);
    CHECK_EQ(r.findings[1].reason, BERTH_REASON_NOT_REGULAR);
}

/* Whoever wrote that manifest: nothing is looked for outside of the model. */
static void
test_names(void)
{
    const char *const folder = make_model();
    const char *const manifest = fixture_format("%s/berth.manifest.json", folder);
    char *const text = fixture_read(manifest, NULL);
    run r;

    *strstr(text, ",\n\"files\"") = '\0';
    fixture_text(manifest, fixture_format("%s}\n", text));
    add_files(folder, fixture_format("%s, %s, %s", entry("../secret", "", 0),
                                     entry("a\\u0000b", "", 0), entry("c\\\\d", "", 0)));
    r = verify(folder);
    CHECK_EQ(r.error.status, BERTH_OK);
    CHECK_EQ(r.report.files_checked, 3);
    CHECK_EQ(r.report.files_changed, 3);
    CHECK_EQ(r.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(r.findings[i].reason, BERTH_REASON_MANIFEST_ENTRY);
        CHECK_STR(r.findings[i].file, manifest);
    }
    CHECK_CONTAINS(r.findings[0].message, "its file \"../secret\" ");
    free(text);
}

/* Weights that are others are what the job fails with, and files are looked at all the same. */
static void
test_weights_too(void)
{
    const char *const folder = make_model();
    const char *const weights = fixture_format("%s/model.safetensors", folder);
    run r;

    fixture_flip(weights, fixture_size(weights) - 1, 1);
    fixture_flip(fixture_format("%s/generation_config.json", folder), 0, 1);
    r = verify(folder);
    CHECK_EQ(r.error.status, BERTH_EINTEGRITY);
    CHECK_EQ(r.report.mismatches, 1);
    CHECK_EQ(r.report.files_changed, 1);
    CHECK_EQ(r.count, 2);
    CHECK_EQ(r.severities[0], BERTH_SEVERITY_ERROR);
    CHECK_EQ(r.severities[1], BERTH_SEVERITY_WARNING);
}

static void
test_nobody_listens(void)
{
    const char *const folder = make_model();
    berth_context *context = NULL;
    run r;

    fixture_flip(fixture_format("%s/generation_config.json", folder), 0, 1);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(verify_with(&r, context, folder, BERTH_MANIFEST_CHECK, false), BERTH_OK);
    CHECK_EQ(r.report.files_changed, 1);
    berth_context_destroy(context);
}

/* ----------------------------------------------------------------------------- faults */

static berth_status
verify_once(void *user, berth_context *with, berth_error *error)
{
    run r = { .count = 0 };
    const berth_status status = verify_with(&r, with, user, BERTH_MANIFEST_CHECK, true);

    CHECK_EQ(r.count, 0);
    CHECK_EQ(r.report.files_changed, 0);
    if (status == BERTH_OK)
        CHECK_EQ(r.report.files_checked, 3);
    *error = r.error;
    return status;
}

static void
test_faults(void)
{
    fault_loop("verify, with other files", verify_once, (void *)(uintptr_t)make_model());
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_as_promised);
    T_RUN(test_other_bytes);
    T_RUN(test_other_sizes);
    T_RUN(test_not_there);
    T_RUN(test_names);
    T_RUN(test_weights_too);
    T_RUN(test_nobody_listens);
    T_RUN(test_faults);
    T_MAIN_END;
}
