/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_files.h - the files beside the weights that a manifest tells of: config.json, tokenizer
 * and the like. Are they still those that were written with the weights?
 *
 * People change them on purpose, so what differs is a warning and no mismatch.
 */
#ifndef BERTH_LOADER_VERIFY_FILES_H
#define BERTH_LOADER_VERIFY_FILES_H

#include "loader/job.h"
#include "loader/manifest.h"

typedef struct berthi_verify_files {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    const berth_job *job;
    berth_finding_function finding; /* NULL: nobody listens */
    void *finding_user;
    uint64_t checked; /* out: those that the manifest tells of */
    uint64_t changed; /* out: those of them that are others, or not there */
    uint64_t bytes_read;
} berthi_verify_files;

/* A warning for each that is another one, or not there, in the order of names. */
berth_status berthi_verify_files_check(berthi_verify_files *files, berthi_manifest_place place,
                                       berth_error *error);

#endif
