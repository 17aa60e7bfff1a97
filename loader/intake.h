/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake.h - fills staging buffers: turns a chunk into reads, direct or
 * buffered, follows them through short and refused results, and checks each
 * file after its last byte.
 *
 * Used by one thread. It owns the reader and, per file, descriptors of its
 * own, so that neither flags nor advice touch the caller's.
 */
#ifndef BERTH_LOADER_INTAKE_H
#define BERTH_LOADER_INTAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/conveyor.h"
#include "loader/reader.h"
#include "loader/source.h"
#include "loader/stage.h"

typedef struct berthi_intake_transfer berthi_intake_transfer;
typedef struct berthi_intake_part berthi_intake_part;

typedef struct berthi_intake {
    berth_context *context;
    berth_job *job; /* may be NULL */
    const berthi_file *files;
    uint32_t file_count;
    const berthi_chunks *chunks;
    berthi_stage *stage;
    berthi_conveyor_stats *stats;
    berthi_reader *reader;
    berth_io io;
    uint32_t in_flight; /* reads */
    bool is_cancelled;
    bool has_notice; /* said once that reads are not direct */

    uint8_t *shares;                   /* of the sources: one a chunk */
    berthi_source *sources;            /* one a file */
    berthi_intake_transfer *transfers; /* one a staging buffer */
    berthi_intake_part *parts;         /* parts_per_buffer for each */
    uint32_t parts_per_buffer;
    uint64_t direct_bytes;   /* of one direct read, at most */
    uint64_t buffered_bytes; /* of one buffered read, at most */
} berthi_intake;

/*
 * `stage` has been initialised; the arguments outlive the intake. On failure
 * the intake is as after fini.
 */
berth_status berthi_intake_init(berthi_intake *intake, berth_context *context,
                                berth_job *job, const berthi_file *files,
                                uint32_t file_count, const berthi_chunks *chunks,
                                const berthi_conveyor_options *options,
                                berthi_stage *stage, berthi_conveyor_stats *stats,
                                berth_error *error);
/* Nothing may be in flight. A zeroed intake is allowed. */
void berthi_intake_fini(berthi_intake *intake);

/* Starts the reads of the chunk that `buffer` was taken for. */
void berthi_intake_start(berthi_intake *intake, berthi_stage_buffer *buffer);
/*
 * Waits for one read, until woken or `deadline_ns`, and carries on with what
 * it was for: the rest of a short one, the same again, or a full buffer.
 */
berth_status berthi_intake_wait(berthi_intake *intake, uint64_t deadline_ns,
                                berth_error *error);
/* Gives up: returns when nothing is in flight. */
void berthi_intake_drain(berthi_intake *intake);

#endif
