/* SPDX-License-Identifier: Apache-2.0 */
/* test_verify_blobs.c - models of the hub cache: blobs by the SHA-256 in their names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "loader/sha256.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/verified.h"

static berth_context *context;

static bool
has_libcrypto(void)
{
    return berthi_sha256_is_there(context);
}

/* Two shards as blobs of a cache. */
static const char *
make_hub(const char **out_snapshot)
{
    const char *const cache = fixture_folder();

    *out_snapshot = fixture_hub(cache, "org/name", FIXTURE_COMMIT, verified_make_model());
    return cache;
}

static void
test_blobs(void)
{
    const char *snapshot;
    const char *const cache = make_hub(&snapshot);
    berth_checkpoint *checkpoint;
    verified r;

    if (!has_libcrypto())
        T_SKIP("libcrypto is not there");
    checkpoint = verified_open(context, "org/name", cache);
    for (int32_t io = BERTH_IO_AUTO; io <= BERTH_IO_BUFFERED; io++) {
        verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
        r.options.io = io;
        CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
        CHECK_EQ(r.report.blobs_checked, 2);
        CHECK_EQ(r.report.blobs_unchecked, 0);
    }
    verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
    r.options.no_blobs = 1;
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
    CHECK_EQ(r.report.blobs_checked, 0);
    CHECK_EQ(r.report.blobs_unchecked, 0);
    /* With a manifest elsewhere, both are done in one pass. */
    verified_prepare(&r, BERTH_MANIFEST_WRITE,
                     fixture_format("%s/m.json", fixture_folder()));
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
    CHECK_EQ(r.report.blobs_checked, 2);
    CHECK_EQ(r.report.tensors_digested, 8);
    memset(&r.told, 0, sizeof r.told);
    r.options.manifest_mode = BERTH_MANIFEST_CHECK;
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
    /* Never into the cache. */
    verified_prepare(&r, BERTH_MANIFEST_WRITE, NULL);
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_EINVAL);
    CHECK_CONTAINS(r.error.message, "hub cache");
    berth_checkpoint_close(checkpoint);
}

/* A blob is the whole file, whatever the index takes of it. */
static void
test_blobs_with_tensors_in_two(void)
{
    const char *const cache = fixture_folder();
    berth_checkpoint *checkpoint;
    verified r;

    if (!has_libcrypto())
        T_SKIP("libcrypto is not there");
    fixture_hub(cache, "org/name", FIXTURE_COMMIT, verified_make_overlap());
    checkpoint = verified_open(context, "org/name", cache);
    verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_OK);
    CHECK_EQ(r.report.blobs_checked, 2);
    CHECK_EQ(r.told.finding_count, 0);
    berth_checkpoint_close(checkpoint);
}

/* The usual manifest, of a model that no link may leave. */
static void
check_inside(const char *path, const char *cache, const char *manifest, berth_reason reason)
{
    berth_open_options options;
    berth_checkpoint *checkpoint;
    verified r;

    berth_open_options_init(&options);
    options.hub_cache = cache;
    options.inside_only = 1;
    T_REQUIRE(berth_checkpoint_open(context, path, &options, &checkpoint, NULL) == BERTH_OK);
    verified_prepare(&r, BERTH_MANIFEST_CHECK, manifest);
    (void)verified_run(&r, context, checkpoint);
    CHECK_EQ(r.error.reason, reason);
    CHECK_EQ(r.report.tensors_digested, reason == 0 ? 8 : 0);
    berth_checkpoint_close(checkpoint);
}

static void
test_manifest_inside_only(void)
{
    const char *const folder = verified_make_model();
    const char *const manifest = fixture_format("%s/" MANIFEST, folder);
    const char *const elsewhere = fixture_format("%s/m.json", fixture_folder());
    const char *const copy = fixture_format("%s/copy", fixture_folder());
    const char *const cache = fixture_folder();
    verified r;

    verified_write(context, folder, manifest);
    fixture_copy_folder(folder, copy);
    fixture_hub(cache, "org/name", FIXTURE_COMMIT, copy);
    check_inside("org/name", cache, NULL, 0); /* it is a link to a blob */
    check_inside(folder, NULL, NULL, 0);
    fixture_copy(manifest, elsewhere);
    fixture_link(elsewhere, manifest);
    check_inside(folder, NULL, NULL, BERTH_REASON_PATH);
    check_inside(folder, NULL, manifest, 0); /* whoever names it wants it */
    verified_prepare(&r, BERTH_MANIFEST_CHECK, NULL);
    CHECK_EQ(verified_path(&r, context, folder), BERTH_OK);
}

static void
test_damaged_blob(void)
{
    const char *snapshot;
    const char *const cache = make_hub(&snapshot);
    const char *const path = fixture_format("%s/" SHARD_2, snapshot);
    const char *const manifest = fixture_format("%s/m.json", fixture_folder());
    berth_checkpoint *checkpoint;
    char promised[65];
    char found[65];
    size_t length;
    void *bytes;
    verified r;

    if (!has_libcrypto())
        T_SKIP("libcrypto is not there");
    bytes = fixture_read(path, &length);
    fixture_sha256(bytes, length, promised);
    free(bytes);
    fixture_flip(path, length - 1, 0x80);
    bytes = fixture_read(path, &length);
    fixture_sha256(bytes, length, found);
    free(bytes);
    checkpoint = verified_open(context, "org/name", cache);
    verified_prepare(&r, BERTH_MANIFEST_WRITE, manifest);
    CHECK_EQ(verified_run(&r, context, checkpoint), BERTH_EINTEGRITY);
    CHECK_EQ(r.told.finding_count, 1);
    CHECK_EQ(r.report.mismatches, 1);
    CHECK_EQ(r.report.blobs_checked, 2);
    CHECK_EQ(r.error.reason, BERTH_REASON_BLOB_DIGEST);
    CHECK_CONTAINS(r.error.file, SHARD_2);
    CHECK_STR(r.error.message,
              fixture_format("the SHA-256 is %s, the blob's name says %s", found,
                             promised));
    /* No manifest that would make the damage official. */
    CHECK_EQ(access(manifest, F_OK), -1);
    berth_checkpoint_close(checkpoint);
}

static void
note_line(void *user, int32_t level, const char *line)
{
    (void)level;
    if (strstr(line, "libcrypto") != NULL)
        ++*(int *)user;
}

/* ------------------------------------------------------------------- faults */

typedef struct fault_case {
    berth_checkpoint *checkpoint;
    uint64_t unchecked; /* blobs, over all runs that succeeded */
} fault_case;

static berth_status
verify_once(void *user, berth_context *with, berth_error *error)
{
    fault_case *const c = user;
    berth_job *job;
    berth_status status;
    verified r;

    verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
    status = berth_verify_start(with, c->checkpoint, &r.options, &job, error);
    CHECK_EQ(job != NULL, status == BERTH_OK);
    if (job != NULL)
        status = berth_job_finish(job, error);
    CHECK_EQ(r.told.finding_count, 0);
    if (status == BERTH_OK) {
        CHECK_EQ(r.report.blobs_checked + r.report.blobs_unchecked, 2);
        c->unchecked += r.report.blobs_unchecked;
    }
    return status;
}

static void
test_faults_of_blobs(void)
{
    const char *snapshot;
    const char *const cache = make_hub(&snapshot);
    fault_case c = { .unchecked = 0 };

    c.checkpoint = verified_open(context, "org/name", cache);
    fault_loop("verify, hub blobs", verify_once, &c);
    /* libcrypto was not there in some of the runs: counted, not failed. */
    CHECK_GT(c.unchecked, 0);
    berth_checkpoint_close(c.checkpoint);
}

/* One line in the log says why blobs were not checked. */
static void
test_no_libcrypto(void)
{
    const char *snapshot;
    const char *const cache = make_hub(&snapshot);
    berth_checkpoint *const checkpoint = verified_open(context, "org/name", cache);
    berth_context_options options;
    berth_context *own;
    bool was_seen = false;
    int notices = 0;

    berth_context_options_init(&options);
    options.log = note_line;
    options.log_user = &notices;
    T_REQUIRE(berth_context_create(&options, &own, NULL) == BERTH_OK);
    for (uint64_t nth = 0; nth < 50 && !was_seen; nth++) {
        berth_job *job;
        verified r;

        verified_prepare(&r, BERTH_MANIFEST_NONE, NULL);
        notices = 0;
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        if (berth_verify_start(own, checkpoint, &r.options, &job, NULL) == BERTH_OK
            && berth_job_finish(job, NULL) == BERTH_OK) {
            was_seen = r.report.blobs_unchecked == 2;
            CHECK_EQ(notices, was_seen ? 1 : 0);
            CHECK_EQ(r.report.blobs_checked, was_seen ? 0 : 2);
        }
        berthi_fault_disarm();
    }
    CHECK(was_seen);
    berth_context_destroy(own);
    berth_checkpoint_close(checkpoint);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_blobs);
    T_RUN(test_blobs_with_tensors_in_two);
    T_RUN(test_manifest_inside_only);
    T_RUN(test_damaged_blob);
    T_RUN(test_no_libcrypto);
    T_RUN(test_faults_of_blobs);
    berth_context_destroy(context);
    T_MAIN_END;
}
