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

struct berthi_stranded;
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
    uint64_t wait_ns;   /* the longest without one that comes back; UINT64_MAX: none */
    uint64_t moved_ns;  /* when one came back, or was asked for where none was on its way */
    uint64_t looked_ns; /* when it was looked whether one had */
    bool is_late;       /* that has been said; until one comes back */
    uint64_t filled;    /* buffers, so far */
    bool is_cancelled;
    bool is_endless; /* set after init: chunks are read again and again, see below */
    bool has_notice; /* said once that reads are not direct */

    uint8_t *shares;                   /* of the sources: one a chunk */
    berthi_source *sources;            /* one a file */
    berthi_intake_transfer *transfers; /* one a staging buffer */
    berthi_intake_part *parts;         /* parts_per_buffer for each */
    struct berthi_stranded *stranded;  /* prepared for reads that never come back */
    uint32_t parts_per_buffer;
    uint32_t reads;          /* direct ones that a ring is divided into */
    uint64_t buffered_bytes; /* of one buffered read, at most */
} berthi_intake;

/*
 * `stage` has been initialised; it, the statistics and what is to be read outlive the
 * intake. On failure the intake is as after fini.
 */
berth_status berthi_intake_init(berthi_intake *intake, const berthi_freight *freight,
                                const berthi_conveyor_options *options,
                                berthi_stage *stage, berthi_conveyor_stats *stats,
                                berth_error *error);
/*
 * Before the stage's fini. What is still in flight after a drain is left to the context,
 * with the buffers that it is read into. A zeroed intake is allowed.
 */
void berthi_intake_fini(berthi_intake *intake);

/*
 * Starts the reads of the chunk that `buffer` was taken for. Each chunk is read once, and
 * each file is checked after the last one; where that is endless, after each.
 */
void berthi_intake_start(berthi_intake *intake, berthi_stage_buffer *buffer);
/*
 * Waits for one read, until woken or `deadline_ns`, and carries on with what
 * it was for: the rest of a short one, the same again, or a full buffer. Where none has
 * come back for `wait_ns`: TIMEOUT with file and position, once.
 */
berth_status berthi_intake_wait(berthi_intake *intake, uint64_t deadline_ns,
                                berth_error *error);
/*
 * Gives up: returns when nothing is in flight, or when no read has come back for
 * `wait_ns` or five seconds, whichever is less.
 */
void berthi_intake_drain(berthi_intake *intake);

#endif
