/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verified.h - berth_verify_start() in a test: small models, and all that a job told.
 */
#ifndef BERTH_TESTS_VERIFIED_H
#define BERTH_TESTS_VERIFIED_H

#include "loader/berth.h"

#define MANIFEST "berth.manifest.json"
#define MANY_FINDINGS 64

#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"

/* What a job told while it ran. */
typedef struct verified_told {
    berth_error findings[MANY_FINDINGS];
    uint64_t finding_count;
    uint64_t progress_count;
    uint64_t done;
    uint64_t total;
    int is_cancelling; /* answer of the progress hook */
} verified_told;

/* One verification, all of it in one call. */
typedef struct verified {
    berth_verify_options options;
    berth_verify_report report;
    berth_error error;
    verified_told told;
} verified;

/* Options of a run that cuts small tensors; a verified can be run more than once. */
void verified_prepare(verified *r, int32_t mode, const char *manifest);
berth_status verified_run(verified *r, berth_context *context, berth_checkpoint *checkpoint);
/* Or the end of the program. */
berth_checkpoint *verified_open(berth_context *context, const char *path,
                                const char *hub_cache);
/* Opens, verifies, closes. */
berth_status verified_path(verified *r, berth_context *context, const char *path);
void verified_write(berth_context *context, const char *path, const char *manifest);

/* Two shards; tensors of every kind of size, cut by chunks of 64 KiB. */
const char *verified_make_model(void);
/*
 * Tensors that lie in both shards, at the front, inside and at the end of one;
 * the index takes them from the other. Their bytes are read, and not digested.
 */
const char *verified_make_overlap(void);

/* Turns a bit of a stored tensor: of its byte at `at`, from the end if negative. */
void verified_damage(const char *folder, const char *name, int64_t at);

#endif
