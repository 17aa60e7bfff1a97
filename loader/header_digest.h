/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header_digest.h - crc32 of shards' headers as they lie in the files that were opened: what was
 * parsed of them is changed.
 *
 * They are read as weights are, on the conveyor: a disk that hangs is a status in time, and a
 * cancel is heard.
 */
#ifndef BERTH_LOADER_HEADER_DIGEST_H
#define BERTH_LOADER_HEADER_DIGEST_H

#include "loader/checkpoint.h"
#include "loader/job.h"

/* How headers are read. All zero: for whoever nobody cancels, and who waits as long as it takes. */
typedef struct berthi_header_reads {
    berth_job *job;   /* may be cancelled; its bytes are no progress; NULL: none */
    uint64_t wait_ns; /* no read comes back for so long: TIMEOUT; 0: patience */
    bool no_uring;
} berthi_header_reads;

/* Of the shards that are `wanted`, by number, into `crcs`; others are left as they are. */
berth_status berthi_header_digest(berth_context *context, const berth_checkpoint *checkpoint,
                                  const bool *wanted, const berthi_header_reads *reads,
                                  uint32_t *crcs, berth_error *error);

#endif
