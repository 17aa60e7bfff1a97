/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - the job that reads every byte of a checkpoint once: crc32 of all
 * headers and tensors against a manifest or into one, SHA-256 of hub blobs
 * against their names. Of a manifest's other files verify_files.c sees to.
 *
 * Memory is the ring, some bytes a tensor, and the tables of one batch.
 */
#include "loader/berth.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/checkpoint.h"
#include "loader/manifest.h"
#include "loader/output.h"
#include "loader/paths.h"
#include "loader/verify_batch.h"
#include "loader/verify_files.h"

typedef struct verify {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berth_verify_options options;
    berthi_arena texts;
    berthi_manifest_place manifest; /* where there is a mode that needs one */
    berth_job *job;
    berth_checkpoint_summary summary;
    berthi_crcs actual;
    berthi_crcs promised;
    berthi_output output;
    berthi_sha256 *sha256; /* NULL: not needed, or no libcrypto */
    berth_verify_report report;
    uint64_t path_bytes;   /* read on the way that report.io_path names */
    berth_error first;     /* of the mismatches */
} verify;

/* ---------------------------------------------------------------- mismatches */

static void
report_mismatch(void *user, const berth_finding *finding)
{
    verify *const v = user;

    if (v->report.mismatches++ == 0)
        v->first = *finding->details;
    if (v->options.finding != NULL)
        v->options.finding(v->options.finding_user, finding);
}

/* What a comparison has found. */
static void
note_comparison(verify *v, berth_status status, const char *tensor, size_t tensor_length,
                const berth_error *details)
{
    if (status != BERTH_OK)
        report_mismatch(v, &(berth_finding){ .severity = BERTH_SEVERITY_ERROR,
                                             .details = details,
                                             .name = tensor,
                                             .name_length = tensor_length });
}

static bool
is_comparing(const verify *v)
{
    return v->options.manifest_mode == BERTH_MANIFEST_CHECK
           || v->options.manifest_mode == BERTH_MANIFEST_SOURCE;
}

static void
compare_header(verify *v, const char *file, uint32_t shard)
{
    berth_error details;

    if (v->promised.has_header[shard])
        note_comparison(v,
                        berthi_crcs_compare(&(berthi_about){ .file = file },
                                            atomic_load(&v->promised.headers[shard]),
                                            atomic_load(&v->actual.headers[shard]),
                                            &details),
                        NULL, 0, &details);
}

static void
compare_tensor(verify *v, uint64_t number)
{
    berth_tensor tensor;
    berth_error details;

    berth_checkpoint_tensor(v->checkpoint, number, &tensor);
    note_comparison(
        v, berthi_crcs_compare_tensor(&v->promised, &v->actual, number, &details),
        tensor.name, tensor.name_length, &details);
}

static void
compare_blob(verify *v, const char *file, const berthi_blob *blob)
{
    berth_error details;
    const berth_finding finding = { .severity = BERTH_SEVERITY_ERROR,
                                    .details = &details };

    if (blob->promised == NULL)
        return;
    v->report.blobs_checked++;
    if (strcmp(blob->promised, blob->hex) == 0)
        return;
    berthi_fail(&details, BERTH_REASON_BLOB_DIGEST, &(berthi_about){ .file = file },
                "the SHA-256 is %s, the blob's name says %s", blob->hex, blob->promised);
    report_mismatch(v, &finding);
}

/* In the order of the files, whatever the order of the threads was. */
static void
compare_batch(verify *v, const berthi_verify_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        const char *const file = batch->files[i].path;
        const uint32_t number = batch->first_shard + i;
        berth_shard shard;

        berth_checkpoint_shard(v->checkpoint, number, &shard);
        if (is_comparing(v)) {
            compare_header(v, file, number);
            for (uint64_t t = 0; t < shard.tensor_count; t++)
                compare_tensor(v, shard.first_tensor + t);
        }
        compare_blob(v, file, &batch->blobs[i]);
        if (v->options.manifest_mode != BERTH_MANIFEST_NONE)
            v->report.tensors_digested += shard.tensor_count;
    }
}

/* --------------------------------------------------------------------- batch */

/* The report names the way that most bytes of a batch took. */
static void
note_stats(verify *v, const berthi_conveyor_stats *stats)
{
    v->report.bytes_read += stats->bytes_read;
    if (stats->bytes_read < v->path_bytes)
        return;
    v->path_bytes = stats->bytes_read;
    memcpy(v->report.io_path, stats->path, sizeof v->report.io_path);
}

/* Verifies shards from *next on and moves it behind them. */
static berth_status
verify_batch(verify *v, uint32_t *next, berth_error *error)
{
    const bool has_crcs = v->options.manifest_mode != BERTH_MANIFEST_NONE;
    const berthi_conveyor_options options = {
        .io = v->options.io,
        .no_uring = v->options.no_uring != 0,
        .readers = v->options.threads,
        .ring_bytes = v->options.ring_bytes,
    };
    berthi_conveyor_stats stats;
    berthi_verify_batch batch;
    berth_status status =
        berthi_verify_batch_init(&batch, v->context, v->checkpoint, *next,
                                 has_crcs ? &v->actual : NULL, v->sha256,
                                 options.ring_bytes, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_verify_batch_run(&batch, v->job, &options, &stats, error);
    note_stats(v, &stats);
    if (status == BERTH_OK)
        compare_batch(v, &batch);
    *next += batch.count;
    berthi_verify_batch_fini(&batch);
    return status;
}

/* ----------------------------------------------------------------- the job */

/* Opens libcrypto when a shard promises a SHA-256. */
static berth_status
prepare_blobs(verify *v, berth_error *error)
{
    uint64_t promised = 0;
    berth_status status;

    for (uint32_t i = 0; i < v->summary.shard_count && !v->options.no_blobs; i++) {
        berth_shard shard;

        berth_checkpoint_shard(v->checkpoint, i, &shard);
        promised += shard.blob_sha256[0] != '\0';
    }
    if (promised == 0)
        return BERTH_OK;
    status = berthi_sha256_open(v->context, &v->sha256, error);
    if (status == BERTH_OK && v->sha256 == NULL) {
        v->report.blobs_unchecked = promised;
        berthi_log(v->context, BERTH_LOG_WARNING,
                   "libcrypto is not there: the SHA-256 of %" PRIu64
                   " hub blobs is not checked",
                   promised);
    }
    return status;
}

/* Beside the model in the folder that was opened, whatever its path leads to by now. */
static berth_status
open_output(verify *v, uint64_t bytes, berth_error *error)
{
    const berthi_target target = { .folder = v->manifest.folder,
                                   .name = v->manifest.name,
                                   .path = v->manifest.path,
                                   .overwrite = v->options.overwrite != 0 };

    return v->options.manifest == NULL
               ? berthi_output_open_in(v->context, &target, bytes, &v->output, error)
               : berthi_output_open(v->context, target.path, bytes, target.overwrite,
                                    &v->output, error);
}

/* What can be refused is refused before the first byte is read. */
static berth_status
prepare(verify *v, berth_error *error)
{
    const int32_t mode = v->options.manifest_mode;
    uint64_t bytes;
    berth_status status = BERTH_OK;

    if (mode != BERTH_MANIFEST_NONE)
        status = berthi_crcs_init(&v->actual, v->context, v->checkpoint, error);
    if (status == BERTH_OK && is_comparing(v))
        status = berthi_crcs_init(&v->promised, v->context, v->checkpoint, error);
    if (status == BERTH_OK && mode == BERTH_MANIFEST_CHECK)
        status = berthi_crcs_read(&v->promised, v->manifest, report_mismatch, v, error);
    if (status == BERTH_OK && mode == BERTH_MANIFEST_SOURCE)
        status = berthi_crcs_read_sources(&v->promised, v->manifest, report_mismatch, v,
                                          error);
    if (status == BERTH_OK && mode == BERTH_MANIFEST_WRITE) {
        status = berthi_crcs_write(&v->actual, NULL, NULL, &bytes, error);
        if (status == BERTH_OK)
            status = open_output(v, bytes, error);
    }
    if (status == BERTH_OK)
        status = prepare_blobs(v, error);
    return status;
}

static berth_status
put_manifest(void *user, const char *bytes, uint64_t size, uint64_t offset,
             berth_error *error)
{
    return berthi_output_write(user, bytes, size, offset, error);
}

/* Every byte has been read: the result, and the manifest of a sound checkpoint. */
static berth_status
conclude(verify *v, berth_error *error)
{
    berth_status status;

    if (v->report.mismatches > 0) {
        *error = v->first;
        return v->first.status;
    }
    if (v->options.manifest_mode != BERTH_MANIFEST_WRITE)
        return BERTH_OK;
    status = berthi_crcs_write(&v->actual, put_manifest, &v->output, NULL, error);
    if (status == BERTH_OK && !berthi_job_commit(v->job))
        status = berthi_job_fail_cancelled(error);
    if (status == BERTH_OK)
        status = berthi_output_commit(&v->output, error);
    return status;
}

/* Warnings, which are no mismatches. */
static berth_status
check_files(verify *v, berth_error *error)
{
    berthi_verify_files files = { .context = v->context,
                                  .checkpoint = v->checkpoint,
                                  .job = v->job,
                                  .finding = v->options.finding,
                                  .finding_user = v->options.finding_user };
    const berth_status status = berthi_verify_files_check(&files, v->manifest, error);

    v->report.files_checked = files.checked;
    v->report.files_changed = files.changed;
    v->report.bytes_read += files.bytes_read;
    return status;
}

static berth_status
run_verify(berth_job *job, void *user, berth_error *error)
{
    const uint64_t start_ns = berthi_sys_now_ns();
    verify *const v = user;
    uint32_t next = 0;
    berth_status status;

    v->job = job;
    status = prepare(v, error);
    while (status == BERTH_OK && next < v->summary.shard_count)
        status = verify_batch(v, &next, error);
    if (status == BERTH_OK && v->options.manifest_mode == BERTH_MANIFEST_CHECK)
        status = check_files(v, error);
    if (status == BERTH_OK)
        status = conclude(v, error);
    v->report.seconds = (double)(berthi_sys_now_ns() - start_ns) / 1e9;
    if (v->options.report != NULL)
        *v->options.report = v->report;
    return status;
}

static void
destroy_verify(void *user)
{
    verify *const v = user;

    berthi_output_discard(&v->output);
    berthi_crcs_fini(&v->actual);
    berthi_crcs_fini(&v->promised);
    berthi_sha256_close(v->sha256);
    berthi_arena_fini(&v->texts);
    berthi_memory_free(v->context, BERTHI_PURPOSE_OBJECT, v, sizeof *v);
}

/* --------------------------------------------------------------------- start */

static berth_status
check_options(const berth_verify_options *options, berth_error *error)
{
    if (options->manifest_mode < BERTH_MANIFEST_NONE
        || options->manifest_mode > BERTH_MANIFEST_SOURCE)
        return berthi_fail_argument(error, "options", "has an unknown manifest_mode");
    if (options->io < BERTH_IO_AUTO || options->io > BERTH_IO_BUFFERED)
        return berthi_fail_argument(error, "options", "has an unknown io");
    return BERTH_OK;
}

static berth_status
create_verify(berth_context *context, const berth_checkpoint *checkpoint,
              const berth_verify_options *options, verify **out, berth_error *error)
{
    verify *const v = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *v);
    berth_status status = BERTH_OK;

    *out = NULL;
    if (v == NULL)
        return berthi_fail_memory(error, "starting a verification");
    v->context = context;
    v->checkpoint = checkpoint;
    v->options = *options;
    if (v->options.ring_bytes == 0)
        v->options.ring_bytes = BERTHI_RING_BYTES_READ;
    berthi_arena_init(&v->texts, context, BERTHI_PURPOSE_OBJECT, 256);
    berth_checkpoint_get(checkpoint, &v->summary);
    if (options->manifest_mode != BERTH_MANIFEST_NONE)
        status = berthi_crcs_find_manifest(checkpoint, options->manifest, &v->texts,
                                           &v->manifest, error);
    if (status == BERTH_OK)
        *out = v;
    else
        destroy_verify(v);
    return status;
}

berth_status
berth_verify_start(berth_context *context, berth_checkpoint *checkpoint,
                   const berth_verify_options *options, berth_job **out_job,
                   berth_error *error)
{
    berth_verify_options mine;
    berth_status status;
    verify *v;

    status = berthi_job_check_start(context, "context", out_job, error);
    if (status == BERTH_OK && checkpoint == NULL)
        status = berthi_fail_argument(error, "checkpoint", "is NULL");
    if (status == BERTH_OK)
        status = berthi_options_take(&mine, sizeof mine, sizeof mine, options,
                                     "options", error);
    if (status == BERTH_OK)
        status = check_options(&mine, error);
    if (status == BERTH_OK)
        status = create_verify(context, checkpoint, &mine, &v, error);
    if (status != BERTH_OK)
        return status;
    /* From here on the job owns `v`, also when it cannot be started. */
    return berthi_job_start(context,
                            &(berthi_job_work){ .run = run_verify,
                                                .fini = destroy_verify,
                                                .user = v,
                                                .phase = "verify",
                                                .total = v->summary.file_bytes,
                                                .progress = mine.progress,
                                                .progress_user = mine.progress_user },
                            out_job, error);
}
