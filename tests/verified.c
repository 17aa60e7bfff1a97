/* SPDX-License-Identifier: Apache-2.0 */
/* verified.c - see verified.h. */
#include "tests/verified.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/opened.h"
#include "tests/t.h"

static void
note_finding(void *user, const berth_finding *finding)
{
    verified_told *const t = user;

    opened_check_finding(finding);
    CHECK_EQ(finding->severity, BERTH_SEVERITY_ERROR);
    if (t->finding_count < MANY_FINDINGS)
        t->findings[t->finding_count] = *finding->details;
    t->finding_count++;
}

static int
note_progress(void *user, const berth_progress *progress)
{
    verified_told *const t = user;

    CHECK_STR(progress->phase, "verify");
    CHECK_GE(progress->done, t->done);
    CHECK_LE(progress->done, progress->total);
    t->done = progress->done;
    t->total = progress->total;
    t->progress_count++;
    return t->is_cancelling;
}

void
verified_prepare(verified *r, int32_t mode, const char *manifest)
{
    memset(r, 0, sizeof *r);
    berth_verify_options_init(&r->options);
    r->options.manifest_mode = mode;
    r->options.manifest = manifest;
    r->options.report = &r->report;
    r->options.finding = note_finding;
    r->options.finding_user = &r->told;
    r->options.progress = note_progress;
    r->options.progress_user = &r->told;
    /* The smallest chunks, 64 KiB, so that small tensors are cut. */
    r->options.ring_bytes = 1;
    r->options.no_uring = 1;
}

berth_status
verified_run(verified *r, berth_context *context, berth_checkpoint *checkpoint)
{
    berth_job *job = NULL;
    berth_status status =
        berth_verify_start(context, checkpoint, &r->options, &job, &r->error);

    CHECK_EQ(job != NULL, status == BERTH_OK);
    if (status == BERTH_OK)
        status = berth_job_finish(job, &r->error);
    CHECK_EQ(r->error.status, status);
    return status;
}

berth_checkpoint *
verified_open(berth_context *context, const char *path, const char *hub_cache)
{
    berth_open_options options;
    berth_checkpoint *checkpoint = NULL;
    berth_error error;

    berth_open_options_init(&options);
    options.hub_cache = hub_cache;
    if (!CHECK_EQ(berth_checkpoint_open(context, path, &options, &checkpoint, &error),
                  BERTH_OK)) {
        T_NOTE("%s", error.message);
        exit(1);
    }
    return checkpoint;
}

berth_status
verified_path(verified *r, berth_context *context, const char *path)
{
    berth_checkpoint *const checkpoint = verified_open(context, path, NULL);
    const berth_status status = verified_run(r, context, checkpoint);

    berth_checkpoint_close(checkpoint);
    return status;
}

void
verified_write(berth_context *context, const char *path, const char *manifest)
{
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_WRITE, manifest);
    r.options.overwrite = 1;
    CHECK_EQ(verified_path(&r, context, path), BERTH_OK);
    CHECK_EQ(r.told.finding_count, 0);
}

const char *
verified_make_model(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model-00001-of-00002.safetensors]\n"
                          "@format pt\n"
                          "F32 - scalar\n"
                          "U8 200000 b.long\n"
                          "F32 2x3 a.short\n"
                          "[model-00002-of-00002.safetensors]\n"
                          "@format pt\n"
                          "BF16 0x7 empty\n"
                          "U8 1 one\n"
                          "U8 65536 chunk\n"
                          "U8 65535 less\n"
                          "I64 4 z\n");
    return folder;
}

const char *
verified_make_overlap(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder, "[model-00001-of-00002.safetensors]\n"
                          "U8 70000 a\n"
                          "U8 200000 b\n"
                          "U8 5 c\n"
                          "U8 66000 d\n"
                          "U8 9 e\n"
                          "[model-00002-of-00002.safetensors]\n"
                          "U8 70000 a\n"
                          "U8 5 c\n"
                          "U8 9 e\n"
                          "F32 2 f\n");
    fixture_index(fixture_format("%s/model.safetensors.index.json", folder), 336022,
                  "a " SHARD_2 "\nb " SHARD_1 "\nc " SHARD_2 "\nd " SHARD_1 "\ne " SHARD_2
                  "\nf " SHARD_2 "\n");
    return folder;
}

void
verified_damage(const char *folder, const char *name, int64_t at)
{
    berth_checkpoint *checkpoint;
    berth_context *context;
    berth_tensor tensor;
    berth_shard shard;
    uint64_t number;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    checkpoint = verified_open(context, folder, NULL);
    number = berth_checkpoint_find(checkpoint, name, strlen(name));
    T_REQUIRE(berth_checkpoint_tensor(checkpoint, number, &tensor) == BERTH_OK);
    berth_checkpoint_shard(checkpoint, tensor.shard, &shard);
    fixture_flip(fixture_format("%s/%s", folder, shard.file),
                 tensor.file_offset + (at < 0 ? tensor.bytes : 0) + (uint64_t)at, 0x10);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}
