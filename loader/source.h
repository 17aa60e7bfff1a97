/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - a file while chunks of it are being read: descriptors of its own,
 * the alignment of direct reads, and what of it was in the page cache before.
 *
 * Flags and advice never touch the caller's descriptor. Pages that were not
 * cached before are dropped again, those that were stay.
 */
#ifndef BERTH_LOADER_SOURCE_H
#define BERTH_LOADER_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/conveyor.h"

typedef struct berthi_source {
    const berthi_file *file;
    const berthi_chunk *chunks; /* from its first to its last one; NULL: it has none */
    uint64_t chunk_count; /* of these, others' among them */
    uint64_t chunks_left; /* its own, not read yet */
    uint8_t *shares;      /* one a chunk: per cent that was cached before; borrowed */
    uint64_t alignment;   /* of direct reads */
    uint32_t number;      /* of the file */
    int direct_fd;        /* -1: none */
    int buffered_fd;      /* -1: none of its own */
    bool is_surveyed;     /* `shares` are known */
    bool is_prepared;     /* opened for direct reads, or not possible */
    bool is_refused;      /* a direct read failed: the next ones are buffered */
    bool is_buffered;     /* something was read through the page cache */
} berthi_source;

/* Without chunks; acquires nothing. */
void berthi_source_init(berthi_source *source, const berthi_file *file, uint32_t number);
/* Descriptors are closed, guests dropped; may be called again. */
void berthi_source_close(berthi_source *source);

/* True when copying the chunk from the page cache is faster than the disk. */
bool berthi_source_is_warm(berthi_source *source, const berthi_chunk *chunk);
/* The same of a chunk that was, before it is read again. */
bool berthi_source_is_still_warm(berthi_source *source, const berthi_chunk *chunk);
/*
 * True when the file can be read directly, in buffers of `chunk_bytes`; it is
 * opened for that by the first call, unless it is refused.
 */
bool berthi_source_has_direct(berthi_source *source, uint64_t chunk_bytes);
/*
 * The alignment of direct reads where the kernel asks for `memory` and
 * `offset`, in buffers of `chunk_bytes`; 0: there can be none.
 */
uint64_t berthi_source_alignment(uint32_t memory, uint32_t offset, uint64_t chunk_bytes);
/* For reads through the page cache. Never fails: the file's own if need be. */
int berthi_source_buffered_fd(berthi_source *source);
/* A chunk has been read through the page cache: its pages go if it was a guest. */
void berthi_source_drop(const berthi_source *source, const berthi_chunk *chunk);

#endif
