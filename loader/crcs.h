/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crcs.h - the crc32 of each header and tensor of a checkpoint: as they were
 * read, or as a manifest promises them.
 *
 * Brings checkpoint and manifest together: what one has and the other lacks is
 * found here, by one walk along both orders of names.
 */
#ifndef BERTH_LOADER_CRCS_H
#define BERTH_LOADER_CRCS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/manifest.h"

typedef struct berthi_crcs {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    uint64_t tensor_count;
    uint32_t shard_count;
    _Atomic uint32_t *tensors; /* by number; 0 for those without bytes */
    _Atomic uint32_t *headers; /* by shard: length and header */
    bool *has_tensor;          /* the manifest has it; NULL before a read */
    bool *has_header;
} berthi_crcs;

/* All zero, as digests begin. On failure as after fini. */
berth_status berthi_crcs_init(berthi_crcs *crcs, berth_context *context,
                              const berth_checkpoint *checkpoint, berth_error *error);
/* All-zero is allowed. */
void berthi_crcs_fini(berthi_crcs *crcs);

/* Bytes of a tensor from `offset` on: pieces come in any order, from any thread. */
void berthi_crcs_add(const berthi_crcs *crcs, uint64_t tensor, uint64_t offset,
                     const void *bytes, uint64_t size);
/* The crc32 of the header or tensor that `where` says. DIGEST: they are not the same. */
berth_status berthi_crcs_compare(const berthi_about *where, uint32_t promised,
                                 uint32_t actual, berth_error *error);
/* BERTH_OK, too, where nothing is promised of the tensor. */
berth_status berthi_crcs_compare_tensor(const berthi_crcs *promised,
                                        const berthi_crcs *actual, uint64_t tensor,
                                        berth_error *error);

/* ----------------------------------------------------------- crcs_manifest.c */

/*
 * The manifest that was named, or without a name the usual one beside the model, and before
 * it FILE.berth.manifest.json of a FILE that was named by itself: in the folder that was
 * opened, wherever its path leads by now. Only NO_MEMORY can go wrong.
 */
berth_status berthi_crcs_find_manifest(const berth_checkpoint *checkpoint, const char *given,
                                       berthi_arena *texts, berthi_manifest_place *out,
                                       berth_error *error);

/*
 * Fills from that manifest. `report` gets a MANIFEST_ENTRY for each
 * shard or tensor that only one side has and for each shard of another size,
 * in the order of names; of a shard that only one side has, no tensors.
 */
berth_status berthi_crcs_read(berthi_crcs *crcs, berthi_manifest_place place,
                              berth_finding_function report, void *user,
                              berth_error *error);

/*
 * The same from what the manifest says of the source of another checkpoint, which
 * this is: nothing of headers, and tensors that it does not name are not missed.
 */
berth_status berthi_crcs_read_sources(berthi_crcs *crcs, berthi_manifest_place place,
                                      berth_finding_function report, void *user,
                                      berth_error *error);

/*
 * The text of a manifest with these digests, in pieces of some KiB, one behind
 * the other. `put` NULL: *out_bytes only, which the digests do not influence.
 */
berth_status berthi_crcs_write(const berthi_crcs *crcs,
                               berth_status (*put)(void *user, const char *bytes,
                                                   uint64_t size, uint64_t offset,
                                                   berth_error *error),
                               void *user, uint64_t *out_bytes, berth_error *error);

#endif
