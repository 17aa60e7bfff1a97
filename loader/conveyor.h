/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conveyor.h - the one way payload moves: extents -> chunks -> readers -> ring
 * of staging buffers -> consumer.
 *
 *   pieces ──▶ chunk table ──▶ readers ──▶ ring (stage.h) ──▶ consumer
 *   (what)     (file order)    (reader.h)  free→filling→full→busy→free
 *
 * Back-pressure is the ring: readers wait for a free buffer, nothing else
 * queues, so peak memory is ring + table, known before starting. The first
 * failure stops the readers, drains the ring and is what run() returns.
 */
#ifndef BERTH_LOADER_CONVEYOR_H
#define BERTH_LOADER_CONVEYOR_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/file.h"
#include "loader/job.h"

#define BERTHI_NO_TAG UINT64_MAX

/* Bytes wanted: a tensor's extent, or a header (tag BERTHI_NO_TAG). */
typedef struct berthi_piece {
    uint64_t offset; /* in the file */
    uint64_t bytes;
    uint64_t tag;    /* the consumer's name for it */
    uint32_t file;   /* number in the array of files */
} berthi_piece;

/* The part of a piece that lies in a chunk. */
typedef struct berthi_span {
    uint64_t tag;
    uint64_t tag_offset; /* of the piece's bytes */
    uint64_t bytes;
    uint64_t chunk_offset;
} berthi_span;

/* A range of a file that one buffer holds. */
typedef struct berthi_chunk {
    uint64_t begin;
    uint64_t end;
    uint64_t origin; /* byte of the file that lies first in the buffer */
    uint64_t first_span;
    uint32_t span_count;
    uint32_t file;
    uint32_t number_in_file; /* 0, 1, 2, ... in file order; 0 without such an order */
    bool is_last_of_file;
} berthi_chunk;

typedef struct berthi_chunks {
    berth_context *context;
    berthi_chunk *chunks;
    uint64_t chunk_count;
    berthi_span *spans;
    uint64_t span_count;
    uint64_t span_bytes; /* sum: every byte once */
    uint64_t chunk_bytes; /* that a buffer may have to hold */
    bool is_ordered;      /* by file, then offset: what consume_in_order needs */
    bool is_windowed;     /* each lies between two multiples of chunk_bytes */
} berthi_chunks;

/*
 * Cuts pieces, sorted by (file, offset) and disjoint, at multiples of
 * `chunk_bytes` (a power of two, 4 KiB to 1 GiB) of the file. Gaps of up to
 * `gap` bytes within a chunk are read through. Empty pieces get no span, and
 * each chunk has at least one. INTERNAL: pieces out of order; NO_MEMORY.
 */
berth_status berthi_chunks_build(berth_context *context, const berthi_piece *pieces,
                                 uint64_t piece_count, uint64_t chunk_bytes,
                                 uint64_t gap, berthi_chunks *out, berth_error *error);
/*
 * One chunk for each piece, in the order given: any order of files and offsets,
 * overlaps too. Buffers are as large as the largest piece asks for. Empty pieces
 * get no chunk. NO_MEMORY; INTERNAL for a piece that ends beyond 2^63.
 */
berth_status berthi_chunks_list(berth_context *context, const berthi_piece *pieces,
                                uint64_t piece_count, berthi_chunks *out,
                                berth_error *error);
/*
 * Pieces that stay whole, sorted and disjoint: as many of them in a chunk as fit into
 * `chunk_bytes`, with gaps of up to `gap` bytes. Empty pieces get no span. INTERNAL:
 * pieces out of order, or one that is larger than a chunk; NO_MEMORY.
 */
berth_status berthi_chunks_pack(berth_context *context, const berthi_piece *pieces,
                                uint64_t piece_count, uint64_t chunk_bytes, uint64_t gap,
                                berthi_chunks *out, berth_error *error);
void berthi_chunks_fini(berthi_chunks *chunks);
/*
 * Bytes of a buffer that holds each of these chunks, at least one, read in any way. Where
 * `context` keeps buffers for later jobs, as many as a chunk may have.
 */
uint64_t berthi_chunks_buffer_bytes(const berthi_chunks *chunks,
                                    const berth_context *context);

/*
 * Who takes the bytes. `bytes` points at the chunk's first byte and is valid
 * during the call; both calls run on the conveyor's worker threads, for one
 * chunk perhaps at the same time. Any status but BERTH_OK stops the run. At
 * least one of the two is there.
 */
typedef struct berthi_consumer {
    void *user;
    /* Optional: any order, several at once; in turn: begun in the order of the table. */
    berth_status (*consume)(void *user, const berthi_chunk *chunk,
                            const berthi_span *spans, const uint8_t *bytes,
                            berth_error *error);
    /* Optional: chunks of a file one after the other, files independently. */
    berth_status (*consume_in_order)(void *user, const berthi_chunk *chunk,
                                     const uint8_t *bytes, berth_error *error);
    /*
     * Optional: the run has failed or was cancelled. Whoever waits inside one of
     * the calls above for another chunk must return. Any thread, once or twice.
     */
    void (*stop)(void *user);
    /*
     * `consume` may then wait for chunks that come earlier: they have been given
     * to somebody. Not together with consume_in_order.
     */
    bool is_in_turn;
} berthi_consumer;

/* Memory of the ring is made fit for copies to devices; unpinned is what was pinned. */
typedef struct berthi_ring_pins {
    void *user;
    /* False: it could not be pinned, and is used as it is. */
    bool (*pin)(void *user, void *memory, uint64_t bytes);
    void (*unpin)(void *user, void *memory, uint64_t bytes);
    /*
     * At the end of the ring, of a buffer whose consumer has failed: true where a device may
     * still copy from it. It is the user's then, pinned or not, as it was allocated.
     */
    bool (*keep)(void *user, uint8_t *memory, uint64_t bytes, bool is_pinned);
} berthi_ring_pins;

#define BERTHI_RING_CHUNKS_MAX 64u
#define BERTHI_CHUNK_BYTES (UINT64_C(4) << 20) /* of rings that are tuned, at most */
#define BERTHI_RING_BYTES (UINT64_C(64) << 20) /* where copies, products or writes take part */
#define BERTHI_RING_BYTES_READ (UINT64_C(32) << 20) /* of what is only read */

typedef struct berthi_conveyor_options {
    int32_t io;          /* berth_io */
    bool no_uring;
    uint32_t readers;    /* reader threads; 0: default */
    uint32_t workers;    /* consumer threads; 0: berthi_host_worker_count() */
    uint64_t ring_bytes; /* cap of the ring, 0: BERTHI_RING_BYTES_READ; at least 3 chunks */
    uint32_t stages;     /* of the ring that are used; 0: all of it, or found: tune.h */
    bool is_tuned;       /* `stages` 0: there are more where reading gains by them */
    const struct berthi_reader_table *reader; /* this back end and no other; or NULL */
    const berthi_ring_pins *pins; /* NULL: plain memory */
    uint64_t wait_ns;    /* no read comes back for so long: TIMEOUT; 0: patience */
} berthi_conveyor_options;

/* As many workers as cores, or where they wait for a device some more: who waits needs none. */
uint32_t berthi_conveyor_workers(bool has_device);

/* Taken once, at the boundaries of the stages. */
typedef struct berthi_conveyor_stats {
    uint64_t bytes_read;
    uint64_t direct_bytes;
    uint64_t buffered_bytes;
    uint64_t read_ns;  /* summed over reads: from their beginning to their end */
    uint64_t wait_ns;  /* workers were waited for, not reads */
    uint64_t work_ns;  /* workers inside the consumer */
    uint32_t stages;   /* of the ring that were used at the end */
    uint64_t stage_bytes; /* of one of them */
    char path[64];     /* "io_uring direct", "threads buffered", ... */
} berthi_conveyor_stats;

/* What is to be moved. Everything in it is borrowed. */
typedef struct berthi_freight {
    berth_context *context;
    berth_job *job; /* progress (span bytes as they are consumed) and cancel; or NULL */
    bool is_uncounted; /* its bytes are none of those that the job counts */
    const berthi_file *files;
    uint32_t file_count;
    const berthi_chunks *chunks; /* of these files */
} berthi_freight;

/*
 * Moves every chunk once. Checks the identity of each file after
 * its last byte. All threads are joined on return; only what a read that hangs still
 * uses is left to the context (stranded.h), and what a copy may still use to `pins`.
 */
berth_status berthi_conveyor_run(const berthi_freight *freight,
                                 const berthi_conveyor_options *options,
                                 const berthi_consumer *consumer,
                                 berthi_conveyor_stats *stats, berth_error *error);

#endif
