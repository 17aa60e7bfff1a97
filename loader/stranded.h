/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stranded.h - what reads that hang still use, after everybody else has gone on: their
 * reader, their own state, and the buffers that the kernel may yet write into.
 *
 * A hung disk or server ends a job with a status, but nothing ends a read. So the context
 * keeps these things, counted as allocated, until the reads have come back; it looks
 * when jobs begin and end, and when it is trimmed or destroyed. A context that is
 * destroyed before leaves them behind for good: memory that nobody uses, threads that
 * sleep in the kernel.
 */
#ifndef BERTH_LOADER_STRANDED_H
#define BERTH_LOADER_STRANDED_H

#include <stdint.h>

#include "loader/reader.h"

typedef struct berthi_stranded berthi_stranded;

/* Room for `capacity` buffers, allocated while nothing hangs yet. NULL: no memory. */
berthi_stranded *berthi_stranded_prepare(berth_context *context, uint32_t capacity,
                                         uint64_t buffer_bytes);
/* Nothing hung. NULL is allowed. */
void berthi_stranded_free(berthi_stranded *stranded);

/* A buffer of a ring: berthi_stage_detach(). */
void berthi_stranded_add(berthi_stranded *stranded, uint8_t *buffer);
/* Leaves everything to the context: `reads` is the memory that berthi_reads lie in. */
void berthi_stranded_leave(berthi_stranded *stranded, berthi_reader *reader,
                           uint32_t in_flight, void *reads, uint64_t reads_bytes);

#endif
