/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A finding has the whole name of its tensor and the whole path of its file,
 * however long they are, whatever they hold, and wherever the finding is made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "loader/findings.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"
#define MANIFEST "berth.manifest.json"
#define CHARACTERS 5000u

static berth_context *context;
static char name[2 * CHARACTERS + 16]; /* 5,000 characters, each of two bytes */

static const char *
in(const char *folder, const char *file)
{
    return fixture_format("%s/%s", folder, file);
}

/* -------------------------------------------------------------- whole names */

typedef struct expected {
    const char *name;
    const char *file; /* NULL: any */
    int32_t severity;
    int32_t reason;
    uint32_t count; /* findings like this one */
} expected;

static void
compare(void *user, const berth_finding *finding)
{
    expected *const e = user;

    opened_check_finding(finding);
    if (finding->details->reason != e->reason)
        return;
    e->count++;
    CHECK_EQ(finding->severity, e->severity);
    if (e->file != NULL)
        CHECK_STR(finding->details->file, e->file);
    if (e->name == NULL)
        CHECK(finding->name == NULL);
    else if (CHECK(finding->name != NULL) && CHECK_EQ(finding->name_length, strlen(e->name)))
        CHECK_MEM(finding->name, e->name, strlen(e->name));
}

static berth_checkpoint *
open_model(const char *path, expected *e, bool keep_going)
{
    berth_checkpoint *checkpoint = NULL;
    berth_open_options options;

    berth_open_options_init(&options);
    options.finding = compare;
    options.finding_user = e;
    options.keep_going = keep_going;
    berth_checkpoint_open(context, path, &options, &checkpoint, NULL);
    return checkpoint;
}

/* Opening `path` makes one finding of `reason`, about the long name. */
static void
expect(const char *path, berth_severity severity, berth_reason reason)
{
    expected e = { .name = name, .severity = (int32_t)severity,
                   .reason = (int32_t)reason };
    berth_checkpoint *const checkpoint = open_model(path, &e, true);

    CHECK_EQ(checkpoint != NULL, severity != BERTH_SEVERITY_ERROR);
    if (!CHECK_EQ(e.count, 1))
        T_NOTE("of %s", berth_reason_name((int32_t)reason));
    berth_checkpoint_close(checkpoint);
}

/* A file with this header, `%s` being the name, and its data. */
static void
expect_header(const char *header, uint64_t data_bytes, berth_reason reason)
{
    const char *const file = in(fixture_folder(), "model.safetensors");
    const char *const mark = strstr(header, "NAME");
    const char *const text = fixture_format("%.*s%s%s", (int)(mark - header), header, name,
                                            mark + strlen("NAME"));

    fixture_raw(file, strlen(text), text, strlen(text), data_bytes);
    expect(file, BERTH_SEVERITY_ERROR, reason);
}

static void
test_header(void)
{
    static const char twice[] = "\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
                                "\"data_offsets\":[0,1]}";
    char ranks[256] = "1";

    for (unsigned i = 1; i < 65; i++)
        strcat(ranks, ",1");
    expect_header("{\"NAME\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
                  BERTH_REASON_OFFSET);
    expect_header("{\"NAME\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,2]}}", 2,
                  BERTH_REASON_SIZE_MISMATCH);
    expect_header("{\"NAME\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                  BERTH_REASON_SUBBYTE);
    expect_header("{\"NAME\":{\"dtype\":\"F4\",\"shape\":[9223372036854775807,9],"
                  "\"data_offsets\":[0,1]}}", 1, BERTH_REASON_OVERFLOW);
    expect_header("{\"NAME\":{\"dtype\":\"X\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                  BERTH_REASON_UNSUPPORTED);
    expect_header(fixture_format("{%s,\"NAME\":{\"dtype\":\"U8\",\"shape\":[%s],"
                                 "\"data_offsets\":[1,2]}}", twice, ranks), 2,
                  BERTH_REASON_RANK);
    expect_header(fixture_format("{%s,\"NAME\":{\"dtype\":\"U8\",\"shape\":[1],"
                                 "\"data_offsets\":[1,2]},\"%s\":{\"dtype\":\"U8\","
                                 "\"shape\":[1],\"data_offsets\":[2,3]}}", twice, name), 3,
                  BERTH_REASON_DUPLICATE);
}

/* U+0000 ends no name: the finding has what stands behind it, too. */
static void
test_name_with_nul(void)
{
    static const char header[] =
        "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    const char *const file = in(fixture_folder(), "model.safetensors");
    opened o;
    berth_open_options options;

    berth_open_options_init(&options);
    options.keep_going = 1;
    fixture_raw(file, sizeof header - 1, header, sizeof header - 1, 1);
    opened_begin(&o, file, &options);
    CHECK_EQ(o.error.reason, BERTH_REASON_NAME);
    CHECK_STR(o.error.tensor, "a\\x00b");
    CHECK_EQ(o.finding_count, 1); /* opened_begin() compares its name with that */
    opened_end(&o);
}

static void
test_index(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, fixture_format("[" SHARD_1 "]\nF32 2 %s\n[" SHARD_2 "]\nF32 2 b\n",
                                         name));
    fixture_text(in(folder, INDEX),
                 fixture_format("{\"weight_map\":{\"%s\":\"../x.safetensors\"}}", name));
    expect(folder, BERTH_SEVERITY_ERROR, BERTH_REASON_PATH);
    fixture_text(in(folder, INDEX), fixture_format("{\"weight_map\":{\"%s\":7}}", name));
    expect(folder, BERTH_SEVERITY_ERROR, BERTH_REASON_INDEX_JSON);
    fixture_text(in(folder, INDEX),
                 fixture_format("{\"weight_map\":{\"%s\":\"" SHARD_1 "\",\"b\":\"" SHARD_2
                                "\",\"%s\":\"" SHARD_1 "\"}}", name, name));
    expect(folder, BERTH_SEVERITY_ERROR, BERTH_REASON_DUPLICATE);
    /* The index lacks it; it is in another shard; it is in both. */
    fixture_text(in(folder, INDEX),
                 fixture_format("{\"weight_map\":{\"%s\":\"" SHARD_2 "\",\"b\":\"" SHARD_2
                                "\"}}", name));
    expect(folder, BERTH_SEVERITY_ERROR, BERTH_REASON_INDEX_TENSOR);
    fixture_file(in(folder, SHARD_2), fixture_format("F32 2 %s\nF32 2 b\n", name));
    fixture_text(in(folder, INDEX), "{\"weight_map\":{\"b\":\"" SHARD_2 "\"}}");
    expect(folder, BERTH_SEVERITY_WARNING, BERTH_REASON_INDEX_EXTRA);
    fixture_text(in(folder, INDEX),
                 fixture_format("{\"weight_map\":{\"%s\":\"" SHARD_1 "\",\"b\":\"" SHARD_2
                                "\"}}", name));
    fixture_file(in(folder, SHARD_1), fixture_format("F32 2 %s\n", name));
    expect(folder, BERTH_SEVERITY_WARNING, BERTH_REASON_DUPLICATE);
}

static void
test_quantized(void)
{
    const char *const folder = fixture_folder();
    const char *const lines = fixture_format("F32 64 %s.SCB\n", name);
    const size_t length = strlen(name);

    strcpy(name + length, ".SCB");
    fixture_file(in(folder, "model.safetensors"), lines);
    expect(folder, BERTH_SEVERITY_ERROR, BERTH_REASON_COMPANION_UNKNOWN);
    /* Of a shard that was named by itself it is only a warning. */
    fixture_file(in(folder, SHARD_1), lines);
    expect(in(folder, SHARD_1), BERTH_SEVERITY_WARNING, BERTH_REASON_COMPANION_UNKNOWN);
    name[length] = '\0';
}

static void
test_mismatch(void)
{
    const char *const folder = fixture_folder();
    const char *const file = in(folder, "model.safetensors");
    expected e = { .name = name, .file = file, .severity = BERTH_SEVERITY_ERROR,
                   .reason = BERTH_REASON_DIGEST };
    berth_verify_options options;
    berth_checkpoint *checkpoint;
    berth_error error;
    berth_job *job;

    fixture_file(file, fixture_format("F32 2 %s\n", name));
    checkpoint = open_model(folder, &e, false);
    T_REQUIRE(checkpoint != NULL);
    berth_verify_options_init(&options);
    options.finding = compare;
    options.finding_user = &e;
    options.manifest_mode = BERTH_MANIFEST_WRITE;
    CHECK_EQ(berth_verify_start(context, checkpoint, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_checkpoint_close(checkpoint);
    fixture_flip(file, fixture_size(file) - 1, 1);

    checkpoint = open_model(folder, &e, false);
    options.manifest_mode = BERTH_MANIFEST_CHECK;
    CHECK_EQ(berth_verify_start(context, checkpoint, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_EINTEGRITY);
    CHECK_EQ(strlen(error.tensor), 128 + strlen("..."));
    CHECK_EQ(e.count, 1);
    e = (expected){ .name = name, .file = file, .severity = BERTH_SEVERITY_ERROR,
                    .reason = BERTH_REASON_MANIFEST_ENTRY };
    fixture_text(in(folder, MANIFEST),
                 fixture_format("{\"schema_version\":1,\"writer\":\"w\",\"shards\":"
                                "[{\"file\":\"model.safetensors\",\"bytes\":%llu,"
                                "\"header_crc32\":\"00000000\",\"tensor_crc32\":{}}]}",
                                (unsigned long long)fixture_size(file)));
    CHECK_EQ(berth_verify_start(context, checkpoint, &options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_EINTEGRITY);
    CHECK_EQ(e.count, 1);
    berth_checkpoint_close(checkpoint);
}

/* ------------------------------------------------------------- whole paths */

static void
test_deep_path(void)
{
    static const char part[] = "/a-folder-whose-name-takes-its-time-\xC3\xA9\xC3\xA9";
    char path[4096];
    expected e = { .severity = BERTH_SEVERITY_ERROR,
                   .reason = BERTH_REASON_HEADER_TOO_SMALL };
    size_t length = (size_t)snprintf(path, sizeof path, "%s", fixture_folder());

    while (length + sizeof part + sizeof "/model.safetensors" < sizeof path) {
        strcpy(path + length, part);
        length += sizeof part - 1;
    }
    CHECK_GT(length, 4000);
    e.file = in(path, "model.safetensors");
    fixture_write(e.file, "", 0);
    CHECK(open_model(path, &e, true) == NULL);
    CHECK_EQ(e.count, 1);
}

/* ----------------------------------------------------------------- the module */

static void
init(berthi_findings *findings, expected *e, int32_t keep_going)
{
    berth_open_options options;

    berth_open_options_init(&options);
    options.finding = e != NULL ? compare : NULL;
    options.finding_user = e;
    options.keep_going = keep_going;
    berthi_findings_init(findings, context, &options);
}

static void
fill(berth_error *error, const char *tensor)
{
    berthi_fail(error, BERTH_REASON_OFFSET,
                &(berthi_about){ .tensor = tensor,
                                 .tensor_length = tensor != NULL ? strlen(tensor) : 0 },
                "wrong");
}

/* A name serves the error that it was kept for, once. */
static void
test_name_of_another_error(void)
{
    expected e = { .severity = BERTH_SEVERITY_ERROR, .reason = BERTH_REASON_OFFSET };
    berthi_findings findings;
    berth_error error;

    init(&findings, &e, 1);
    berthi_findings_keep_name(&findings, name, strlen(name));
    fill(&error, NULL);
    CHECK(berthi_findings_note(&findings, &error)); /* compare(): it has none */
    fill(&error, "other");
    e.name = "other";
    berthi_findings_keep_name(&findings, name, strlen(name));
    CHECK(berthi_findings_note(&findings, &error));
    berthi_findings_keep_name(&findings, "other", 5);
    berthi_findings_keep_name(&findings, NULL, 0);
    CHECK(berthi_findings_note(&findings, &error));
    fill(&error, name);
    e.name = name;
    berthi_findings_keep_name(&findings, name, strlen(name));
    CHECK(berthi_findings_note(&findings, &error));
    /* Its name has gone: what the error shows is left. */
    e.name = error.tensor;
    CHECK(berthi_findings_note(&findings, &error));
    /* An empty name is a name, and no name of an error without one. */
    e.name = "";
    fill(&error, "");
    berthi_findings_keep_name(&findings, "", 0);
    CHECK(berthi_findings_note(&findings, &error));
    e.name = NULL;
    CHECK(berthi_findings_note(&findings, &error));
    CHECK_EQ(e.count, 7);
    CHECK_EQ(findings.errors, 7);
    berthi_findings_fini(&findings);
    berthi_findings_fini(&findings);
}

static void
test_nobody_listens(void)
{
    berthi_findings findings;
    berth_error error;
    berth_memory_summary before;
    berth_memory_summary after;

    init(&findings, NULL, 1);
    berth_context_memory(context, &before);
    berthi_findings_keep_name(&findings, name, strlen(name));
    berth_context_memory(context, &after);
    CHECK_EQ(after.allocations, before.allocations);
    fill(&error, name);
    berthi_findings_tell(&findings, BERTH_SEVERITY_WARNING, &error);
    CHECK_EQ(findings.errors, 0);
    CHECK(berthi_findings_note(&findings, &error));
    CHECK_EQ(berthi_findings_result(&findings, &error), BERTH_EFORMAT);
    berthi_findings_fini(&findings);
}

/* Without memory for a name, the finding has the one that the error shows. */
static void
test_no_memory(void)
{
    expected e = { .severity = BERTH_SEVERITY_ERROR, .reason = BERTH_REASON_OFFSET };
    berthi_findings findings;
    berth_error error;

    init(&findings, &e, 1);
    fill(&error, name);
    e.name = error.tensor;
    berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
    berthi_findings_keep_name(&findings, name, strlen(name));
    CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_MEMORY), 1);
    berthi_fault_disarm();
    CHECK(berthi_findings_note(&findings, &error));
    CHECK_EQ(e.count, 1);
    berthi_findings_fini(&findings);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    berth_memory_summary memory;

    for (unsigned i = 0; i < CHARACTERS; i++)
        sprintf(name + 2 * i, "%c%c", 0xC3, 0xA0 + (int)(i % 31));
    berth_context_create(NULL, &context, NULL);
    T_RUN(test_header);
    T_RUN(test_name_with_nul);
    T_RUN(test_index);
    T_RUN(test_quantized);
    T_RUN(test_mismatch);
    T_RUN(test_deep_path);
    T_RUN(test_name_of_another_error);
    T_RUN(test_nobody_listens);
    T_RUN(test_no_memory);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
