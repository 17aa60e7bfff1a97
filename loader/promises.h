/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promises.h - what a manifest promises of a checkpoint whose bytes a job reads anyway.
 *
 * A load and a conversion hold what they read against the manifest beside the model, in the
 * same pass. Both do it here: they take the same manifest for the model's, tell the same of
 * one that is another's, and fail with the same words. Three steps:
 *
 *   init      which manifest; the texts that say so are the caller's
 *   read      what only one side has, then the headers: before any weight is read
 *   compare   a tensor, when all its bytes have come; from any thread
 *
 * The digests of what has come are the job's: a load puts them together from pieces
 * (load_verify.c), a conversion has them for the manifest that it writes
 * (convert_sources.c). They cost the one a pass over memory, the other nothing.
 *
 * Not held against anything: tensors that the job does not read; files beside the weights,
 * which people edit (verify_files.c); the SHA-256 of hub blobs, which takes whole files in
 * their order (verify_batch.c).
 */
#ifndef BERTH_LOADER_PROMISES_H
#define BERTH_LOADER_PROMISES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/crcs.h"
#include "loader/header_digest.h"

/* What is asked for; texts are borrowed. */
typedef struct berthi_promises_options {
    int32_t mode;         /* berth_load_verify */
    bool is_of_source;    /* the manifest's digests of sources count */
    const char *manifest; /* copied; NULL: the usual one beside the model */
    const char *let_pass; /* of what WARN lets pass: "loaded all the same" */
    berth_finding_function finding; /* of what only one side has; NULL: to the log */
    void *finding_user;
} berthi_promises_options;

typedef struct berthi_promises {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berthi_promises_options options;
    berthi_arena texts;
    berthi_manifest_place place; /* where something is to be verified */
    bool is_on;                  /* there is a manifest, and it is read */
    berthi_crcs crcs;
    _Atomic bool *is_held; /* by number: it was compared */
    _Atomic uint64_t bytes; /* of tensors that were compared */
    _Atomic uint64_t tensors;
    _Atomic uint64_t mismatches;
    uint64_t unverified; /* promised, and not read, or in part */
    uint64_t entries;    /* that only one side has */
    berth_error first;   /* of them */
    bool is_other_file;  /* `first` says: another size */
} berthi_promises;

/* Only NO_MEMORY can go wrong; as after fini then. */
berth_status berthi_promises_init(berthi_promises *promises, berth_context *context,
                                  const berth_checkpoint *checkpoint,
                                  const berthi_promises_options *options,
                                  berth_error *error);
/* All-zero is allowed. */
void berthi_promises_fini(berthi_promises *promises);

/*
 * Reads the manifest, and of the model what it promises of headers. `is_on` stays false
 * where none is wanted, or none is there and none has to be. MANIFEST_ENTRY, DIGEST: it is
 * not of this model; or what reading a manifest, or headers, fails with.
 */
berth_status berthi_promises_read(berthi_promises *promises, const berthi_header_reads *reads,
                                  berth_error *error);

/* The tensor is not, or not all, read: what is promised of it is not compared. */
void berthi_promises_leave(berthi_promises *promises, uint64_t tensor);
/* Something is promised of the tensor. */
bool berthi_promises_has(const berthi_promises *promises, uint64_t tensor);
/*
 * All of the tensor has come, and `actual` has its crc32. A tensor may be compared more than
 * once, and is counted the first time. DIGEST: it is another, unless that is let pass.
 */
berth_status berthi_promises_compare(berthi_promises *promises, const berthi_crcs *actual,
                                     uint64_t tensor, berth_error *error);

#endif
