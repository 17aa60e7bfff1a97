/* SPDX-License-Identifier: Apache-2.0 */
/* test_crcs.c - a checkpoint and a manifest side by side, without reading payloads. */
#include "loader/crcs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "tests/fault.h"
#include "tests/fence.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"

/* --------------------------------------------------------------------- helpers */

static const char *
make_model(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[" SHARD_1 "]\nF32 2 b\nF32 2 a\n"
                          "[" SHARD_2 "]\nF32 2 c\nF32 2 e\nF32 2 d\n");
    return folder;
}

static berth_checkpoint *
open_model(berth_context *context, const char *folder)
{
    berth_checkpoint *checkpoint = NULL;

    if (!CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL),
                  BERTH_OK))
        exit(1);
    return checkpoint;
}

static berth_status
put(void *user, const char *bytes, uint64_t size, uint64_t offset, berth_error *error)
{
    FILE *const file = user;

    (void)error;
    CHECK_EQ((uint64_t)ftell(file), offset);
    CHECK_EQ(fwrite(bytes, 1, (size_t)size, file), size);
    return BERTH_OK;
}

/* What was reported: the last word of each message, and the whole name, if any. */
typedef struct told {
    char text[1024];
} told;

static void
report(void *user, const berth_finding *finding)
{
    told *const t = user;
    const char *const word = strrchr(finding->details->message, ' ');
    const size_t used = strlen(t->text);

    CHECK_EQ(finding->severity, BERTH_SEVERITY_ERROR);
    CHECK_EQ(finding->details->reason, BERTH_REASON_MANIFEST_ENTRY);
    snprintf(t->text + used, sizeof t->text - used, "%s%s%.*s;",
             word != NULL ? word + 1 : "?", finding->name != NULL ? " " : "",
             (int)finding->name_length, finding->name != NULL ? finding->name : "");
}

static bool
is_all_zero(const void *object, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)object)[i] != 0)
            return false;
    return true;
}

/* Numbers that tell every tensor and header from the others. */
static void
fill(berthi_crcs *crcs)
{
    for (uint64_t i = 0; i < crcs->tensor_count; i++)
        atomic_store(&crcs->tensors[i], (uint32_t)(1000 + i));
    for (uint32_t i = 0; i < crcs->shard_count; i++)
        atomic_store(&crcs->headers[i], 2000 + i);
}

/* Writes the manifest of a model's numbers. */
static void
write_manifest(const berthi_crcs *crcs, const char *path)
{
    FILE *const file = fopen(path, "wb");
    uint64_t bytes = 0;
    uint64_t counted = 0;

    T_REQUIRE(file != NULL);
    CHECK_EQ(berthi_crcs_write(crcs, NULL, NULL, &counted, NULL), BERTH_OK);
    CHECK_EQ(berthi_crcs_write(crcs, put, file, &bytes, NULL), BERTH_OK);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(fixture_size(path), bytes);
    CHECK_EQ(counted, bytes);
}

/* ----------------------------------------------------------------------- tests */

static void
test_begins_with_zeros(void)
{
    berth_context *const context = fence_context();
    berth_checkpoint *const checkpoint = open_model(context, make_model());
    berth_memory_summary before;
    berth_memory_summary after;
    berthi_crcs crcs;

    berth_context_memory(context, &before);
    memset(&crcs, 0xAA, sizeof crcs);
    T_REQUIRE(berthi_crcs_init(&crcs, context, checkpoint, NULL) == BERTH_OK);
    CHECK_EQ(crcs.tensor_count, 5);
    CHECK_EQ(crcs.shard_count, 2);
    for (size_t i = 0; i < 5; i++)
        CHECK_EQ(atomic_load(&crcs.tensors[i]), 0);
    for (size_t i = 0; i < 2; i++)
        CHECK_EQ(atomic_load(&crcs.headers[i]), 0);
    CHECK(crcs.has_tensor == NULL);
    CHECK(crcs.has_header == NULL);
    berthi_crcs_fini(&crcs);
    CHECK(is_all_zero(&crcs, sizeof crcs));
    berthi_crcs_fini(&crcs);
    berth_context_memory(context, &after);
    CHECK_EQ(after.current_bytes, before.current_bytes);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    CHECK_EQ(fence_broken(), 0);
}

/* A failure leaves what fini leaves. */
static void
test_init_fails(void)
{
    berth_context *const context = fence_context();
    berth_checkpoint *const checkpoint = open_model(context, make_model());
    berth_memory_summary before;
    berth_memory_summary after;
    berth_error error;
    berthi_crcs crcs;

    berth_context_memory(context, &before);
    for (uint64_t nth = 0; nth < 2; nth++) {
        memset(&crcs, 0xAA, sizeof crcs);
        berthi_fault_arm(BERTHI_FAULT_MEMORY, nth, false);
        CHECK_EQ(berthi_crcs_init(&crcs, context, checkpoint, &error), BERTH_ENOMEM);
        berthi_fault_disarm();
        CHECK_STR(error.message, "out of memory: the table of digests");
        CHECK(is_all_zero(&crcs, sizeof crcs));
        berth_context_memory(context, &after);
        CHECK_EQ(after.current_bytes, before.current_bytes);
    }
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

/* What was written is read into the same places, by name and not by number. */
static void
test_round_trip(void)
{
    const char *const folder = make_model();
    const char *const path = fixture_format("%s/m.json", folder);
    berth_context *const context = fence_context();
    berth_checkpoint *const checkpoint = open_model(context, folder);
    told t = { "" };
    berthi_crcs one;
    berthi_crcs two;
    char *text;

    T_REQUIRE(berthi_crcs_init(&one, context, checkpoint, NULL) == BERTH_OK);
    T_REQUIRE(berthi_crcs_init(&two, context, checkpoint, NULL) == BERTH_OK);
    fill(&one);
    write_manifest(&one, path);
    text = fixture_read(path, NULL);
    CHECK_LT((uintptr_t)strstr(text, "\n\"a\""), (uintptr_t)strstr(text, "\n\"b\""));
    CHECK_LT((uintptr_t)strstr(text, "\n\"d\""), (uintptr_t)strstr(text, "\n\"e\""));
    free(text);
    CHECK_EQ(berthi_crcs_read(&two, berthi_manifest_at(path), report, &t, NULL), BERTH_OK);
    CHECK_STR(t.text, "");
    for (size_t i = 0; i < 5; i++) {
        CHECK_EQ(atomic_load(&two.tensors[i]), 1000 + i);
        CHECK(two.has_tensor[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQ(atomic_load(&two.headers[i]), 2000 + i);
        CHECK(two.has_header[i]);
    }
    berthi_crcs_fini(&one);
    berthi_crcs_fini(&two);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    CHECK_EQ(fence_broken(), 0);
}

/* The beginning of the shard or source that is called so in a plan. */
static void
begin_file(FILE *file, const char *folder, char called, bool is_source)
{
    const char *const name = called == '1' ? SHARD_1 : called == '2' ? SHARD_2 : "x";
    uint64_t bytes = 0;

    if (called != 'x')
        bytes = fixture_size(fixture_format("%s/%s", folder, name));
    fprintf(file, "{\"file\":\"%s\",\"bytes\":%" PRIu64 ",", name, bytes);
    fprintf(file, "%s\"tensor_crc32\":{",
            is_source ? "" : "\"header_crc32\":\"00000007\",");
}

/* "1ab 2cde": files by number ("x": another file), tensors by letter, one crc. */
static void
write_by_hand(const char *path, const char *folder, const char *plan, bool is_source)
{
    FILE *const file = fopen(path, "wb");
    char before = ' ';

    T_REQUIRE(file != NULL);
    fprintf(file, "{\"schema_version\":1,\"writer\":\"w\",\"shards\":[%s",
            is_source ? "],\"sources\":[" : "");
    for (const char *at = plan; *at != '\0'; before = *at++) {
        if (*at == ' ')
            fprintf(file, "}},");
        else if (before == ' ')
            begin_file(file, folder, *at, is_source);
        else
            fprintf(file, "%s\"%c\":\"000000ff\"",
                    strchr("12x", before) != NULL ? "" : ",", *at);
    }
    fprintf(file, "%s]}", plan[0] != '\0' ? "}}" : "");
    CHECK_EQ(fclose(file), 0);
}

/* Letters of the tensors and numbers of the headers that the manifest has. */
static void
check_has(const berthi_crcs *crcs, const char *expected)
{
    char has[32] = "";
    size_t count = 0;

    for (char letter = 'a'; letter <= 'e'; letter++)
        for (uint64_t i = 0; i < crcs->tensor_count; i++) {
            berth_tensor tensor;

            berth_checkpoint_tensor(crcs->checkpoint, i, &tensor);
            if (tensor.name[0] != letter)
                continue;
            CHECK_EQ(atomic_load(&crcs->tensors[i]), crcs->has_tensor[i] ? 255 : 0);
            if (crcs->has_tensor[i])
                has[count++] = letter;
        }
    for (uint32_t i = 0; i < crcs->shard_count; i++) {
        CHECK_EQ(atomic_load(&crcs->headers[i]), crcs->has_header[i] ? 7 : 0);
        if (crcs->has_header[i])
            has[count++] = (char)('1' + i);
    }
    CHECK_STR(has, expected);
}

typedef struct lacks {
    const char *manifest;
    const char *told;
    const char *has;
} lacks;

static void
check_lacks(const lacks *expected, bool is_source)
{
    const char *const folder = make_model();
    const char *const path = fixture_format("%s/m.json", folder);
    berth_context *const context = fence_context();
    berth_checkpoint *const checkpoint = open_model(context, folder);
    told t = { "" };
    berthi_crcs crcs;

    write_by_hand(path, folder, expected->manifest, is_source);
    T_REQUIRE(berthi_crcs_init(&crcs, context, checkpoint, NULL) == BERTH_OK);
    CHECK_EQ((is_source ? berthi_crcs_read_sources : berthi_crcs_read)(
                 &crcs, berthi_manifest_at(path), report, &t, NULL),
             BERTH_OK);
    CHECK_STR(t.text, expected->told);
    check_has(&crcs, expected->has);
    berthi_crcs_fini(&crcs);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    CHECK_EQ(fence_broken(), 0);
}

/* One side lacks something, at the beginning, in the middle and at the very end. */
static void
test_what_one_side_lacks(void)
{
    static const lacks cases[] = {
        { "1ab 2cde", "", "abcde12" },
        { "1ab 2cd", "tensor e;", "abcd12" },
        { "1a 2d", "tensor b;tensor c;tensor e;", "ad12" },
        { "1 2", "tensor a;tensor b;tensor c;tensor d;tensor e;", "12" },
        { "1Aabc 2Ccdef", "lacks A;lacks c;lacks C;lacks f;", "abcde12" },
        { "1ab", "file;", "ab1" },
        { "2cde", "file;", "cde2" },
        { "", "file;file;", "" },
        { "1ab 2cd xcd", "tensor e;\"x\";", "abcd12" },
        { "xab", "file;file;\"x\";", "" },
    };

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_lacks(&cases[k], false);
}

/* The same of a source; tensors that are not named are not missed, nor headers. */
static void
test_sources(void)
{
    static const lacks cases[] = {
        { "1ab 2cde", "", "abcde" },
        { "1ab 2cd", "", "abcd" },
        { "1a 2d", "", "ad" },
        { "1 2", "", "" },
        { "1Aabc 2Ccdef", "lacks A;lacks c;lacks C;lacks f;", "abcde" },
        { "1ab", "file;", "ab" },
        { "2cde", "file;", "cde" },
        { "", "file;file;", "" },
        { "1ab 2cd xcd", "\"x\";", "abcd" },
    };

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_lacks(&cases[k], true);
}

/* -------------------------------------------------------------------- failures */

static berth_status
read_and_write(void *user, berth_context *context, berth_error *error)
{
    const char *const folder = user;
    berth_checkpoint *checkpoint = NULL;
    told t = { "" };
    berthi_crcs crcs = { .context = NULL };
    uint64_t bytes;
    berth_status status =
        berth_checkpoint_open(context, folder, NULL, &checkpoint, error);

    if (status == BERTH_OK)
        status = berthi_crcs_init(&crcs, context, checkpoint, error);
    if (status == BERTH_OK)
        status = berthi_crcs_read(&crcs,
                                  berthi_manifest_at(fixture_format("%s/m.json", folder)),
                                  report, &t, error);
    if (status == BERTH_OK)
        status = berthi_crcs_write(&crcs, NULL, NULL, &bytes, error);
    berthi_crcs_fini(&crcs);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_faults(void)
{
    const char *const folder = make_model();
    fault_counts counts;

    write_by_hand(fixture_format("%s/m.json", folder), folder, "1ab 2cde", false);
    counts = fault_loop("digests", read_and_write, (void *)(uintptr_t)folder);
    CHECK_GE(counts.memory, 20);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_begins_with_zeros);
    T_RUN(test_init_fails);
    T_RUN(test_round_trip);
    T_RUN(test_what_one_side_lacks);
    T_RUN(test_sources);
    T_RUN(test_faults);
    T_MAIN_END;
}
