/* SPDX-License-Identifier: Apache-2.0 */
/* test_verify.c - every byte read, every damage named, manifests all or nothing. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/digest.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "loader/berth.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/verified.h"

static berth_context *context;

/* --------------------------------------------------------------- what is right */

/* The text by another way: the whole file in memory, one crc each. */
static void
check_manifest(const char *folder, const char *manifest)
{
    berth_checkpoint *const checkpoint = verified_open(context, folder, NULL);
    char *const text = fixture_read(manifest, NULL);
    berth_checkpoint_summary summary;

    berth_checkpoint_get(checkpoint, &summary);
    for (uint32_t s = 0; s < summary.shard_count; s++) {
        berth_shard shard;
        size_t length;
        unsigned char *bytes;

        CHECK_EQ(berth_checkpoint_shard(checkpoint, s, &shard), BERTH_OK);
        bytes = fixture_read(fixture_format("%s/%s", folder, shard.file), &length);
        CHECK_CONTAINS(text, fixture_format(
            "\n{\"file\": \"%s\", \"bytes\": %zu, \"header_crc32\": \"%08x\", "
            "\"tensor_crc32\": {", shard.file, length,
            berthi_digest_crc32(0, bytes, (size_t)shard.header_bytes + 8)));
        for (uint64_t i = 0; i < shard.tensor_count; i++) {
            berth_tensor tensor;

            berth_checkpoint_tensor(checkpoint, shard.first_tensor + i, &tensor);
            CHECK_CONTAINS(text, fixture_format(
                "\n\"%s\": \"%08x\"", tensor.name,
                berthi_digest_crc32(0, bytes + tensor.file_offset,
                                    (size_t)tensor.bytes)));
        }
        free(bytes);
    }
    free(text);
    berth_checkpoint_close(checkpoint);
}

static void
test_round_trip(void)
{
    const char *const folder = verified_make_model();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    const uint64_t bytes = fixture_size(fixture_format("%s/" SHARD_1, folder))
                           + fixture_size(fixture_format("%s/" SHARD_2, folder));
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    check_manifest(folder, manifest);
    CHECK_EQ(r.report.tensors_digested, 8);
    CHECK_GE(r.report.bytes_read, bytes);
    CHECK_EQ(r.report.mismatches, 0);
    CHECK(r.report.seconds > 0 && r.report.seconds < 60);
    CHECK_CONTAINS(r.report.io_path, "threads");
    CHECK_GE(r.told.progress_count, 1);
    CHECK_EQ(r.told.done, bytes);
    CHECK_EQ(r.told.total, bytes);

    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    CHECK_EQ(r.told.finding_count, 0);
    CHECK_EQ(r.report.tensors_digested, 8);
    CHECK_EQ(r.report.mismatches, 0);
    CHECK_EQ(r.told.done, bytes);
}

static void
test_tensors_in_two_shards(void)
{
    const char *const folder = verified_make_overlap();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    const uint64_t bytes = fixture_size(fixture_format("%s/" SHARD_1, folder))
                           + fixture_size(fixture_format("%s/" SHARD_2, folder));
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    if (!CHECK_EQ(verified_path(&r, context, folder), BERTH_OK))
        T_NOTE("%s", r.error.message);
    check_manifest(folder, manifest);
    CHECK_EQ(r.report.tensors_digested, 6);
    CHECK_EQ(r.told.done, bytes);
    CHECK_EQ(r.told.total, bytes);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    CHECK_EQ(r.report.mismatches, 0);
    CHECK_EQ(r.told.done, bytes);
}

/* Elsewhere, by name. */
static void
test_named_manifest(void)
{
    const char *const folder = verified_make_model();
    const char *const other = fixture_format("%s/m", fixture_folder());
    verified r;

    verified_write(context, folder, other);
    CHECK_EQ(access(fixture_format("%s/" MANIFEST, folder), F_OK), -1);
    check_manifest(folder, other);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, other);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
}

/* Takes `what` out of a text wherever it begins, `length` bytes each. */
static void
cut(char *text, const char *what, size_t length)
{
    for (char *at = strstr(text, what); at != NULL; at = strstr(at, what))
        memmove(at, at + length, strlen(at + length) + 1);
}

/* What a checkpoint that was made from the model in `folder` would say of it. */
static void
write_sources(const char *folder, const char *manifest)
{
    char *text;
    char *shards;

    verified_write(context, folder, manifest);
    text = fixture_read(manifest, NULL);
    cut(text, "\"header_crc32\": ", strlen("\"header_crc32\": \"01234567\", "));
    shards = strstr(text, "\"shards\": [");
    T_REQUIRE(shards != NULL);
    *shards = '\0';
    fixture_text(manifest, fixture_format("%s\"shards\": [],\n\"sources\": [%s", text,
                                          shards + strlen("\"shards\": [")));
    free(text);
}

/* Against the manifest of what was made from it: no headers, else the same. */
static void
test_source_of_another(void)
{
    const char *const folder = verified_make_model();
    const char *const other = fixture_format("%s/m", fixture_folder());
    const char *const own = fixture_format("%s/own", fixture_folder());
    berth_checkpoint *checkpoint;
    berth_tensor tensor;
    berth_shard shard;
    verified r;

    write_sources(folder, other);
    verified_write(context, folder, own);
    verified_prepare(&r, BERTH_MANIFEST_SOURCE, other);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    CHECK_EQ(r.report.tensors_digested, 8);
    CHECK_EQ(r.told.finding_count, 0);
    /* The two kinds of manifest say nothing for each other. */
    verified_prepare(&r, BERTH_MANIFEST_CHECK, other);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_CONTAINS(r.error.message, "no entry for this file");
    verified_prepare(&r, BERTH_MANIFEST_SOURCE, own);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_CONTAINS(r.error.message, "no entry for this file");
    checkpoint = verified_open(context, folder, NULL);
    berth_checkpoint_tensor(checkpoint, 3, &tensor);
    berth_checkpoint_shard(checkpoint, tensor.shard, &shard);
    fixture_flip(fixture_format("%s/%s", folder, shard.file), tensor.file_offset, 1);
    verified_prepare(&r, BERTH_MANIFEST_SOURCE, other);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.error.reason, BERTH_REASON_DIGEST);
    CHECK_STR(r.error.tensor, tensor.name);
    CHECK_EQ(r.report.mismatches, 1);
    berth_checkpoint_close(checkpoint);
}

/* A single file, also in the working folder: the manifest lies beside it. */
static void
test_single_file(void)
{
    const char *const folder = fixture_folder();
    char before[4096];
    verified r;

    fixture_file(fixture_format("%s/x.safetensors", folder), "U8 3 t = 1 2 3\n");
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    CHECK_EQ(verified_path(&r, context, fixture_format("%s/x.safetensors", folder)), BERTH_OK);
    CHECK_EQ(access(fixture_format("%s/" MANIFEST, folder), F_OK), 0);
    T_REQUIRE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, "x.safetensors"), BERTH_OK);
    CHECK_EQ(r.report.tensors_digested, 1);
    CHECK_EQ(chdir(before), 0);
}

/* No JSON holds such a name: said before a byte is read, and nothing is left. */
static void
test_file_name_is_not_utf8(void)
{
    const char *const folder = fixture_folder();
    const char *const file = fixture_format("%s/\xC3\xA9\xFF.safetensors", folder);
    const char *const manifest = fixture_format("%s/m", folder);
    verified r;

    fixture_file(file, "F32 4 a\n");
    verified_prepare(&r, BERTH_MANIFEST_WRITE, manifest);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EUNSUPPORTED);
    CHECK_EQ(r.error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_STR(r.error.file, fixture_format("%s/\xC3\xA9\\xff.safetensors", folder));
    CHECK_CONTAINS(r.error.message, "is not UTF-8");
    CHECK_EQ(r.report.bytes_read, 0);
    CHECK(access(manifest, F_OK) != 0);
    verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    CHECK_GT(r.report.bytes_read, 0);
}

static void
test_reading_only(void)
{
    const char *const folder = verified_make_model();
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    CHECK_EQ(r.report.tensors_digested, 0);
    CHECK_GT(r.report.bytes_read, 331000);
    CHECK_EQ(access(fixture_format("%s/" MANIFEST, folder), F_OK), -1);
    /* NULL options mean the same. */
    berth_checkpoint *const checkpoint = verified_open(context, folder, NULL);
    berth_job *job;

    CHECK_EQ(berth_verify_start(context, checkpoint, NULL, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_checkpoint_close(checkpoint);
}

/* Neither threads nor cuts nor the way of reading change a byte. */
static void
test_result_is_independent(void)
{
    static const uint64_t rings[] = { 0, 1, 300000, 1 << 20, UINT64_C(1) << 30 };
    const char *const folder = verified_make_model();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    char *expected;

    verified_write(context, folder, NULL);
    expected = fixture_read(manifest, NULL);
    for (size_t i = 0; i < sizeof rings / sizeof rings[0]; i++)
        for (int32_t io = BERTH_IO_AUTO; io <= BERTH_IO_BUFFERED; io++) {
            char *found;
            verified r;

            verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
            r.options.overwrite = 1;
            r.options.ring_bytes = rings[i];
            r.options.io = io;
            r.options.no_uring = (int32_t)(i % 2);
            r.options.threads = (uint32_t)i;
            CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
            found = fixture_read(manifest, NULL);
            CHECK_STR(found, expected);
            free(found);
        }
    free(expected);
}

/* More than one batch of shards, more tensors than one takes. */
static void
test_many_tensors(void)
{
    const char *const folder = fixture_folder();
    verified r;

    for (int shard = 0; shard < 4; shard++) {
        fixture_builder *const builder = fixture_begin();

        for (int i = 0; i < (shard == 2 ? 9000 : 1500); i++)
            fixture_add_lines(builder, fixture_format("U8 %d s%d.t%d\n", i % 5, shard, i));
        fixture_finish(builder, fixture_format("%s/%d.safetensors", folder, shard));
    }
    berth_open_options options;
    berth_checkpoint *checkpoint;

    berth_open_options_init(&options);
    options.all_files = 1;
    T_REQUIRE(berth_checkpoint_open(context, folder, &options, &checkpoint, NULL)
              == BERTH_OK);
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
    CHECK_EQ(r.report.tensors_digested, 13500);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
    CHECK_EQ(r.report.tensors_digested, 13500);
    CHECK_EQ(r.report.mismatches, 0);
    berth_checkpoint_close(checkpoint);
}

/* Memory: the ring and little more, however large the file. */
static void
test_memory(void)
{
    const char *const folder = fixture_folder();
    berth_context *own;
    berth_memory_summary before;
    berth_memory_summary after;
    berth_checkpoint *checkpoint;
    berth_job *job;
    verified r;

    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "U8 200000000 big = sparse\n");
    T_REQUIRE(berth_context_create(NULL, &own, NULL) == BERTH_OK);
    T_REQUIRE(berth_checkpoint_open(own, folder, NULL, &checkpoint, NULL) == BERTH_OK);
    berth_context_memory(own, &before);
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    r.options.ring_bytes = 0;
    CHECK_EQ(berth_verify_start(own, checkpoint, &r.options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_context_memory(own, &after);
    CHECK_EQ(after.current_bytes, before.current_bytes);
    CHECK_LT(after.peak_bytes, before.current_bytes + (34u << 20));
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(own);
}

/* The example in berth-manifest(5) is a real one. */
static void
test_example_of_the_page(void)
{
    const char *const folder = fixture_folder();
    char *page;
    char *text;

    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "F32 2 a.bias = 0.5 1\nF32 2x2 a.weight = 1 2 3 4\n");
    verified_write(context, folder, NULL);
    page = fixture_read("tools/man/berth-manifest.5", NULL);
    text = fixture_read(fixture_format("%s/" MANIFEST, folder), NULL);
    CHECK_CONTAINS(page, fixture_format(".Bd -literal\n%s.Ed\n", text));
    free(page);
    free(text);
}

/* -------------------------------------------------------------------- damage */

/* The one finding of a flipped bit, and the same as the job's error. */
static void
check_flip(const char *folder, const char *file, const char *tensor, uint64_t tensor_at,
           uint64_t tensor_bytes, uint64_t at)
{
    const char *const path = fixture_format("%s/%s", folder, file);
    unsigned char *bytes = fixture_read(path, NULL);
    const uint32_t expected =
        berthi_digest_crc32(0, bytes + tensor_at, (size_t)tensor_bytes);
    uint32_t actual;
    const berth_error *found;
    verified r;

    bytes[at] ^= 0x10;
    actual = berthi_digest_crc32(0, bytes + tensor_at, (size_t)tensor_bytes);
    fixture_flip(path, at, 0x10);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.told.finding_count, 1);
    CHECK_EQ(r.report.mismatches, 1);
    CHECK_EQ(r.report.tensors_digested, 8);
    found = &r.told.findings[0];
    CHECK_EQ(found->reason, BERTH_REASON_DIGEST);
    CHECK_STR(found->file, path);
    CHECK_STR(found->tensor, tensor);
    CHECK_EQ(found->has, BERTH_HAS_POSITION | BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                              | BERTH_HAS_CRC32);
    CHECK_EQ(found->position, tensor_at);
    CHECK_EQ(found->expected, expected);
    CHECK_EQ(found->actual, actual);
    CHECK_STR(found->message,
              fixture_format("the %s has another crc32 than the manifest says",
                             tensor[0] != '\0' ? "tensor" : "header"));
    CHECK_MEM(&r.error, found, sizeof *found);
    fixture_flip(path, at, 0x10);
    free(bytes);
}

/* First and last byte of each tensor, both sides of each border of a chunk. */
static void
test_flipped_bits(void)
{
    const char *const folder = verified_make_model();
    berth_checkpoint *checkpoint;
    berth_checkpoint_summary summary;
    uint64_t flips = 0;

    verified_write(context, folder, NULL);
    checkpoint = verified_open(context, folder, NULL);
    berth_checkpoint_get(checkpoint, &summary);
    for (uint64_t i = 0; i < summary.tensor_count; i++) {
        berth_tensor tensor;
        berth_shard shard;
        uint64_t end;

        berth_checkpoint_tensor(checkpoint, i, &tensor);
        berth_checkpoint_shard(checkpoint, tensor.shard, &shard);
        end = tensor.file_offset + tensor.bytes;
        for (uint64_t at = tensor.file_offset; at < end; at++)
            if (at == tensor.file_offset || at == end - 1 || at % 65536 == 0
                || at % 65536 == 65535) {
                check_flip(folder, shard.file, tensor.name, tensor.file_offset,
                           tensor.bytes, at);
                flips++;
            }
    }
    berth_checkpoint_close(checkpoint);
    T_NOTE("%" PRIu64 " flips", flips);
    CHECK_GE(flips, 20);
}

/* A header that is damaged and can still be read: a value of its metadata. */
static void
test_flipped_header(void)
{
    const char *const folder = verified_make_model();
    const char *const path = fixture_format("%s/" SHARD_2, folder);
    size_t length;
    unsigned char *const bytes = fixture_read(path, &length);
    const unsigned char *const value = memmem(bytes, length, "\"pt\"", 4);
    uint64_t header;

    T_REQUIRE(value != NULL);
    memcpy(&header, bytes, 8);
    verified_write(context, folder, NULL);
    check_flip(folder, SHARD_2, "", 0, header + 8, (uint64_t)(value - bytes) + 1);
    /* Its last byte: one blank more or less is damage, too. */
    if (bytes[8 + header - 1] == ' ') {
        verified r;

        fixture_flip(path, 8 + header - 1, ' ' ^ '\n');
        verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
        CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
        CHECK_EQ(r.told.finding_count, 1);
        CHECK_CONTAINS(r.error.message, "the header has");
    }
    free(bytes);
}

static void
test_all_mismatches(void)
{
    const char *const folder = verified_make_model();
    const char *const paths[] = { fixture_format("%s/" SHARD_1, folder),
                                  fixture_format("%s/" SHARD_2, folder) };
    static const char *const order[] = { "a.short", "b.long", "z" };
    berth_checkpoint *checkpoint;
    verified r;

    verified_write(context, folder, NULL);
    checkpoint = verified_open(context, folder, NULL);
    for (int i = 0; i < 3; i++) {
        berth_tensor tensor;

        berth_checkpoint_tensor(
            checkpoint, berth_checkpoint_find(checkpoint, order[i], strlen(order[i])),
            &tensor);
        fixture_flip(paths[tensor.shard], tensor.file_offset, 1);
    }
    berth_checkpoint_close(checkpoint);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.report.mismatches, 3);
    CHECK_EQ(r.told.finding_count, 3);
    for (int i = 0; i < 3; i++)
        CHECK_STR(r.told.findings[i].tensor, order[i]);
    CHECK_STR(r.error.tensor, "a.short");
    CHECK_STR(r.error.file, paths[0]);
    CHECK_STR(r.told.findings[2].file, paths[1]);
    /* Without anybody listening the job still fails; it counts from 0 again. */
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    r.options.finding = NULL;
    r.options.report = NULL;
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
}

typedef enum change { SHORTER, LONGER, TOUCHED } change;

/* The file changes after it was opened. */
static void
test_changed_files(void)
{
    static const char *const messages[] = { "", "size changed", "written to" };

    for (change c = SHORTER; c <= TOUCHED; c++) {
        const char *const folder = verified_make_model();
        const char *const path = fixture_format("%s/" SHARD_2, folder);
        berth_checkpoint *checkpoint;
        verified r;

        verified_write(context, folder, NULL);
        checkpoint = verified_open(context, folder, NULL);
        if (c == SHORTER)
            fixture_truncate(path, 70000);
        else if (c == LONGER)
            fixture_extend(path, 1);
        else
            CHECK_EQ(utimensat(AT_FDCWD, path,
                               (struct timespec[]){ { 1, 1 }, { 1, 1 } }, 0), 0);
        verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
        CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_EIO);
        CHECK(r.error.reason == BERTH_REASON_CHANGED
              || (c == SHORTER && r.error.reason == BERTH_REASON_TRUNCATED));
        CHECK_STR(r.error.file, path);
        CHECK_CONTAINS(r.error.message, messages[c]);
        CHECK(r.report.seconds > 0);
        CHECK_GT(r.report.bytes_read, 0);

        /* No manifest of a file that moved. */
        verified_prepare(&r, BERTH_MANIFEST_WRITE, fixture_format("%s/new", folder));
        CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_EIO);
        CHECK_EQ(access(r.options.manifest, F_OK), -1);
        berth_checkpoint_close(checkpoint);
    }
}

/* The hook runs while the job does: it changes the time of the file. */
static int
touch_file(void *user, const berth_progress *progress)
{
    (void)progress;
    return utimensat(AT_FDCWD, user, (struct timespec[]){ { 5, 5 }, { 5, 5 } }, 0);
}

static void
test_changed_during_the_job(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/model.safetensors", folder);
    verified r;

    fixture_file(path, "U8 100000000 big = sparse\n");
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    r.options.progress = touch_file;
    r.options.progress_user = (void *)(uintptr_t)path;
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EIO);
    CHECK_EQ(r.error.reason, BERTH_REASON_CHANGED);
    CHECK_EQ(access(fixture_format("%s/" MANIFEST, folder), F_OK), -1);
}

/* ---------------------------------------------------- manifests of other models */

/* Changes the manifest: the first `old` becomes `new`. */
static void
edit_manifest(const char *folder, const char *old, const char *new)
{
    const char *const path = fixture_format("%s/" MANIFEST, folder);
    char *const text = fixture_read(path, NULL);
    const char *const place = strstr(text, old);

    if (CHECK(place != NULL))
        fixture_text(path, fixture_format("%.*s%s%s", (int)(place - text), text, new,
                                          place + strlen(old)));
    free(text);
}

static void
check_entry(const berth_error *found, const char *file, const char *tensor,
            const char *message)
{
    CHECK_EQ(found->status, BERTH_EINTEGRITY);
    CHECK_EQ(found->reason, BERTH_REASON_MANIFEST_ENTRY);
    CHECK_STR(found->file, file);
    CHECK_STR(found->tensor, tensor);
    CHECK_STR(found->message, message);
}

#define NO_TENSOR_ENTRY "the manifest has no entry for this tensor"
#define NO_FILE_ENTRY "the manifest has no entry for this file"
#define NO_TENSOR "the manifest has a tensor that this file lacks"

static void
test_tensors_that_one_side_lacks(void)
{
    const char *const folder = verified_make_model();
    const char *const one = fixture_format("%s/" SHARD_1, folder);
    const char *const two = fixture_format("%s/" SHARD_2, folder);
    verified r;

    verified_write(context, folder, NULL);
    edit_manifest(folder, "\n\"a.short\"", "\n\"a\": \"00000000\",\n\"a.shoru\"");
    edit_manifest(folder, "\n\"one\"", "\n\"onf\"");
    edit_manifest(folder, "\n\"z\"", "\n\"zz\"");
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.told.finding_count, 7);
    CHECK_EQ(r.report.mismatches, 7);
    check_entry(&r.told.findings[0], one, "a", NO_TENSOR);
    check_entry(&r.told.findings[1], one, "a.short", NO_TENSOR_ENTRY);
    check_entry(&r.told.findings[2], one, "a.shoru", NO_TENSOR);
    check_entry(&r.told.findings[3], two, "one", NO_TENSOR_ENTRY);
    check_entry(&r.told.findings[4], two, "onf", NO_TENSOR);
    check_entry(&r.told.findings[5], two, "z", NO_TENSOR_ENTRY);
    check_entry(&r.told.findings[6], two, "zz", NO_TENSOR);
    CHECK_MEM(&r.error, &r.told.findings[0], sizeof r.error);
    /* It went on to read: the whole report is there. */
    CHECK_EQ(r.report.tensors_digested, 8);
}

static void
test_last_tensors_missing(void)
{
    const char *const folder = verified_make_model();
    verified r;

    verified_write(context, folder, NULL);
    edit_manifest(folder, "\n}}\n]", "\n}},{\"file\":\"x\",\"bytes\":0,\"header_crc32\":"
                                     "\"00000000\",\"tensor_crc32\":{\"t\":\"00000000\"}}]");
    edit_manifest(folder, "\"one\": ", "\"one\": \"00000000\"}}, {\"file\": \"w\\u001b\", "
                          "\"bytes\":0,\"header_crc32\":\"00000000\",\"tensor_crc32\":{"
                          "\"\":");
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.told.finding_count, 4);
    check_entry(&r.told.findings[0], fixture_format("%s/" SHARD_2, folder), "z",
                NO_TENSOR_ENTRY);
    check_entry(&r.told.findings[1], fixture_format("%s/" MANIFEST, folder), "",
                "the checkpoint has no file \"w\\x1b\"");
    check_entry(&r.told.findings[2], fixture_format("%s/" MANIFEST, folder), "",
                "the checkpoint has no file \"x\"");
    CHECK_EQ(r.told.findings[3].reason, BERTH_REASON_DIGEST);
    CHECK_STR(r.told.findings[3].tensor, "one");
}

static void
test_shards_that_one_side_lacks(void)
{
    const char *const folder = verified_make_model();
    verified r;

    verified_write(context, folder, NULL);
    edit_manifest(folder, SHARD_1, "model-00001-of-00001.safetensors");
    edit_manifest(folder, SHARD_2, "model-00002-of-00001.safetensors");
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.told.finding_count, 4);
    check_entry(&r.told.findings[0], fixture_format("%s/" MANIFEST, folder), "",
                "the checkpoint has no file \"model-00001-of-00001.safetensors\"");
    check_entry(&r.told.findings[1], fixture_format("%s/" SHARD_1, folder), "",
                NO_FILE_ENTRY);
    check_entry(&r.told.findings[2], fixture_format("%s/" MANIFEST, folder), "",
                "the checkpoint has no file \"model-00002-of-00001.safetensors\"");
    check_entry(&r.told.findings[3], fixture_format("%s/" SHARD_2, folder), "",
                NO_FILE_ENTRY);
}

static void
test_other_size(void)
{
    const char *const folder = verified_make_model();
    const uint64_t bytes = fixture_size(fixture_format("%s/" SHARD_1, folder));
    verified r;

    verified_write(context, folder, NULL);
    edit_manifest(folder, fixture_format("\"bytes\": %" PRIu64, bytes), "\"bytes\": 7");
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINTEGRITY);
    CHECK_EQ(r.told.finding_count, 1);
    check_entry(&r.told.findings[0], fixture_format("%s/" SHARD_1, folder), "",
                "the manifest is about a file of another size");
    CHECK_EQ(r.error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(r.error.expected, 7);
    CHECK_EQ(r.error.actual, bytes);
}

/* What cannot succeed fails before the first byte is read. */
static void
test_refused_early(void)
{
    const char *const folder = verified_make_model();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_ENOENT);
    CHECK_STR(r.error.file, manifest);
    CHECK_EQ(r.report.bytes_read, 0);
    fixture_text(manifest, "{}");
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EFORMAT);
    CHECK_EQ(r.error.reason, BERTH_REASON_MANIFEST_JSON);
    CHECK_EQ(r.report.bytes_read, 0);
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_EINVAL);
    CHECK_EQ(r.error.reason, BERTH_REASON_EXISTS);
    CHECK_STR(r.error.file, manifest);
    CHECK_EQ(r.report.bytes_read, 0);
    r.options.overwrite = 1;
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
    check_manifest(folder, manifest);
}

static void
test_arguments(void)
{
    berth_checkpoint *const checkpoint = verified_open(context, verified_make_model(), NULL);
    berth_job *job = (berth_job *)(uintptr_t)1;
    struct {
        berth_verify_options options;
        uint64_t later;
    } newer;
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
    CHECK_EQ(berth_verify_start(NULL, checkpoint, &r.options, &job, &r.error),
             BERTH_EINVAL);
    CHECK(job == NULL);
    CHECK_CONTAINS(r.error.message, "`context`");
    CHECK_EQ(berth_verify_start(context, NULL, &r.options, &job, &r.error), BERTH_EINVAL);
    CHECK_CONTAINS(r.error.message, "`checkpoint`");
    CHECK_EQ(berth_verify_start(context, checkpoint, &r.options, NULL, &r.error),
             BERTH_EINVAL);
    CHECK_CONTAINS(r.error.message, "`out_job`");
    for (int32_t bad = -1; bad <= 4; bad += 5) {
        verified_prepare(&r, bad, NULL);
        CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_EINVAL);
        CHECK_CONTAINS(r.error.message, "manifest_mode");
        verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
        r.options.io = bad;
        CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_EINVAL);
        CHECK_CONTAINS(r.error.message, "unknown io");
    }
    memset(&newer, 0, sizeof newer);
    newer.options.struct_size = sizeof newer;
    CHECK_EQ(berth_verify_start(context, checkpoint, &newer.options, &job, NULL),
             BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    newer.later = 1;
    CHECK_EQ(berth_verify_start(context, checkpoint, &newer.options, &job, NULL),
             BERTH_EINVAL);
    berth_checkpoint_close(checkpoint);
}

/* -------------------------------------------------------------------- cancel */

static void
test_cancel_by_hook(void)
{
    const char *const folder = fixture_folder();
    verified r;

    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "U8 100000000 big = sparse\n");
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    r.told.is_cancelling = 1;
    CHECK_EQ(verified_path(&r, context, folder), BERTH_ECANCELLED);
    CHECK_EQ(r.error.reason, BERTH_REASON_CANCELLED);
    CHECK_EQ(access(fixture_format("%s/" MANIFEST, folder), F_OK), -1);
}

/*
 * At any point: either all of it or nothing, never a manifest that a cancelled
 * job left behind.
 */
static void
test_cancel_anywhere(void)
{
    const char *const folder = verified_make_model();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    berth_checkpoint *const checkpoint = verified_open(context, folder, NULL);
    int cancelled = 0;

    for (int i = 0; i < 100; i++) {
        berth_job *job;
        berth_status status;
        verified r;

        verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
        T_REQUIRE(berth_verify_start(context, checkpoint, &r.options, &job, NULL)
                  == BERTH_OK);
        usleep((useconds_t)(i * i % 3000));
        berth_job_cancel(job);
        berth_job_cancel(job);
        status = berth_job_finish(job, &r.error);
        CHECK(status == BERTH_OK || status == BERTH_ECANCELLED);
        CHECK_EQ(access(manifest, F_OK), status == BERTH_OK ? 0 : -1);
        cancelled += status == BERTH_ECANCELLED;
        fixture_remove(manifest);
    }
    T_NOTE("%d of 100 were cancelled", cancelled);
    CHECK_GT(cancelled, 0);
    berth_checkpoint_close(checkpoint);
}

/* Killed while it verifies and writes: no manifest, or a whole one. */
static void
test_kill(void)
{
    const char *const folder = verified_make_model();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    int whole = 0;

    for (int round = 0; round < 20; round++) {
        const pid_t child = fork();

        T_REQUIRE(child >= 0); /* kill(-1) would be everybody's end */
        if (child == 0) {
            for (;;)
                verified_write(context, folder, NULL);
        }
        usleep((useconds_t)(3000 + round * 397 % 9000));
        CHECK_EQ(kill(child, SIGKILL), 0);
        CHECK_EQ(waitpid(child, NULL, 0), child);
        if (access(manifest, F_OK) != 0)
            continue;
        whole++;
        check_manifest(folder, manifest);
    }
    T_NOTE("killed 20 times, %d times there was a manifest", whole);
}

/* ------------------------------------------------------------------- faults */

typedef struct fault_case {
    const char *folder; /* of the manifest */
    berth_checkpoint *checkpoint;
    int32_t mode;
} fault_case;

static berth_status
verify_once(void *user, berth_context *with, berth_error *error)
{
    fault_case *const c = user;
    const char *const manifest = fixture_format("%s/" MANIFEST, c->folder);
    berth_job *job;
    berth_status status;
    verified r;

    verified_prepare(&r, c->mode, manifest);
    if (c->mode == BERTH_MANIFEST_WRITE)
        fixture_remove(manifest);
    status = berth_verify_start(with, c->checkpoint, &r.options, &job, error);
    CHECK_EQ(job != NULL, status == BERTH_OK);
    if (job != NULL)
        status = berth_job_finish(job, error);
    CHECK_EQ(r.told.finding_count, 0);
    if (c->mode == BERTH_MANIFEST_WRITE)
        CHECK_EQ(access(manifest, F_OK), status == BERTH_OK ? 0 : -1);
    return status;
}

static void
test_faults(void)
{
    const char *const folder = verified_make_model();
    fault_case c = { .folder = folder, .checkpoint = verified_open(context, folder, NULL) };

    c.mode = BERTH_MANIFEST_WRITE;
    fault_loop("verify, writing a manifest", verify_once, &c);
    c.mode = BERTH_MANIFEST_CHECK;
    fault_loop("verify, checking a manifest", verify_once, &c);
    berth_checkpoint_close(c.checkpoint);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_round_trip);
    T_RUN(test_tensors_in_two_shards);
    T_RUN(test_named_manifest);
    T_RUN(test_source_of_another);
    T_RUN(test_single_file);
    T_RUN(test_file_name_is_not_utf8);
    T_RUN(test_reading_only);
    T_RUN(test_result_is_independent);
    T_RUN(test_many_tensors);
    T_RUN(test_memory);
    T_RUN(test_example_of_the_page);
    T_RUN(test_flipped_bits);
    T_RUN(test_flipped_header);
    T_RUN(test_all_mismatches);
    T_RUN(test_changed_files);
    T_RUN(test_changed_during_the_job);
    T_RUN(test_tensors_that_one_side_lacks);
    T_RUN(test_last_tensors_missing);
    T_RUN(test_shards_that_one_side_lacks);
    T_RUN(test_other_size);
    T_RUN(test_refused_early);
    T_RUN(test_arguments);
    T_RUN(test_cancel_by_hook);
    T_RUN(test_cancel_anywhere);
    T_RUN(test_kill);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
