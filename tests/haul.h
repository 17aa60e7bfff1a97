/* SPDX-License-Identifier: Apache-2.0 */
/*
 * haul.h - conveyor runs over files of known content, every delivered byte
 * compared and counted; and a reading back end that misbehaves as told.
 *
 *     haul h;
 *     haul_begin(&h, folder, sizes, count);    writes and opens the files
 *     haul_want_all(&h);                        or haul_want() piece by piece
 *     CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
 *     haul_check(&h);                           each byte wanted came once
 *     haul_end(&h);
 */
#ifndef BERTH_TESTS_HAUL_H
#define BERTH_TESTS_HAUL_H

#include <pthread.h>
#include <stdatomic.h>

#include "loader/conveyor.h"
#include "loader/reader.h"

#define HAUL_FILES 24
#define HAUL_PIECES 256

typedef struct haul haul;

struct haul {
    berth_context *context;
    const char *folder;
    uint32_t file_count;
    berthi_file files[HAUL_FILES];
    uint64_t sizes[HAUL_FILES];
    uint8_t *contents[HAUL_FILES];
    uint8_t *deliveries[HAUL_FILES]; /* per byte: how often consume() got it */
    uint8_t *ordered[HAUL_FILES];    /* and consume_in_order() */
    uint64_t ordered_up_to[HAUL_FILES];
    uint32_t ordered_chunks[HAUL_FILES];
    _Atomic int ordering[HAUL_FILES]; /* calls running at once */
    berthi_piece pieces[HAUL_PIECES];
    uint64_t piece_count;

    /* Settings, zero unless changed. */
    uint64_t chunk_bytes; /* 4096 */
    uint64_t gap;
    uint32_t shuffle; /* not 0: pieces are a list, in an order of this seed */
    bool is_packed; /* pieces stay whole: berthi_chunks_pack() */
    bool is_any;   /* the consumer has consume(); haul_begin() sets it */
    bool is_in_order;
    berthi_conveyor_options options;
    /* Runs at the beginning of each call; what it returns the call returns. */
    berth_status (*each)(haul *h, const berthi_chunk *chunk, bool is_in_order,
                         berth_error *error);
    void *user;

    /* Results. */
    berthi_conveyor_stats stats;
    berth_error error;
    _Atomic uint64_t calls;
    _Atomic uint64_t stops; /* of the consumer */
    _Atomic bool has_wrong_bytes;
    _Atomic bool has_wrong_order;
    _Atomic int notices; /* lines of the log */
    char last_notice[512];
};

/* The path of a file of this haul. */
const char *haul_path(const haul *h, uint32_t file);
void haul_begin(haul *h, const char *folder, const uint64_t *sizes, uint32_t count);
void haul_want(haul *h, uint32_t file, uint64_t offset, uint64_t bytes);
void haul_want_all(haul *h);
/* Forgets deliveries, so that the same files can be run again. */
void haul_reset(haul *h);
berth_status haul_run(haul *h, berth_job *job);
/* All wanted bytes came exactly once, no other ones, all of them right. */
void haul_check(haul *h);
void haul_end(haul *h);
uint64_t haul_total(const haul *h);

void haul_pause(uint64_t ns);
/* For `each`: 200 us, or 20 ms, a call. */
berth_status haul_slowly(haul *h, const berthi_chunk *chunk, bool is_in_order,
                         berth_error *error);
berth_status haul_very_slowly(haul *h, const berthi_chunk *chunk, bool is_in_order,
                              berth_error *error);

/* Threads of this process, without the kernel's, and without those that were joined. */
uint64_t haul_threads(void);
/*
 * Whether there are no more. An emulator tells those who join a thread before it ends it, and a
 * kernel that knows of no end yet is asked again there.
 */
bool haul_has_at_most(uint64_t count);
/* Cached bytes of a file; UINT64_MAX: nobody can say. */
uint64_t haul_cached(const haul *h, uint32_t file);
/* Drops a file from the page cache. */
void haul_drop(const haul *h, uint32_t file);

/* -------------------------------------------------------------- misbehaviour */

/*
 * The next runs with options.reader = &haul_reader read through pread, one at
 * a time, each read changed as told here. All zero: as it should be.
 */
typedef struct haul_tricks {
    uint64_t direct_block;   /* direct reads return at most so many bytes ... */
    uint64_t buffered_block; /* and buffered ones */
    int failure;             /* errno ... */
    uint64_t failure_first;  /* of reads with this number (from 0) ... */
    uint64_t failure_count;  /* and the ones after it, so many in all */
    bool only_direct;        /* of direct reads only; the number counts those */
    bool is_backward;        /* what was submitted last comes back first */
    uint64_t delay_ns;       /* each read takes so long, unless it is hurried */
    uint64_t latency_ns;     /* each comes so late, as many as there are at once */
    uint64_t away_ns;        /* who waits for the first one does not run for so long after that
                                wait is over, as where its process is stopped */
    uint64_t end;            /* files end here for all reads; 0: where they end */
    bool knows_buffers;      /* add_buffer() succeeds */
    uint64_t add_ns;         /* and takes so long */
    bool fails_every_second; /* `failure` of reads 0, 2, 4 ... */
    bool hangs;              /* reads with number hang_first and later ones do not come
                                back as long as haul_is_hung says so */
    uint64_t hang_first;
} haul_tricks;

extern haul_tricks haul_trick;
/* The same while something reads. */
void haul_set(haul_tricks next);
extern _Atomic bool haul_is_hung;
/* Reads that are not delayed any more: each that comes back takes one off. */
extern _Atomic uint32_t haul_hurried;
extern const berthi_reader_table haul_reader;
/* What the back end has done since haul_begin(). */
extern _Atomic uint64_t haul_reads;
/* Buffers it was told of; reads that named another buffer than theirs, or none. */
extern _Atomic uint64_t haul_buffers;
extern _Atomic uint64_t haul_misnamed;

#endif
