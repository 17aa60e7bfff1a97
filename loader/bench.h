/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - measuring the links of a machine: the job and what its parts share.
 *
 *   bench.c         options, the list of lines, the job, the result
 *   bench_disk.c    reads through the conveyor, with a consumer that drops the bytes
 *   bench_host.c    copies, reads and quantizing within host memory
 *   bench_update.c  updates of an optimizer
 *   bench_side.c    a device that is being measured, and a copy with it
 *   bench_device.c  copies to, from and within one device, by its own clock; products
 *   bench_shared.c  copies to several devices at once
 *   bench_links.c   lines as a file of links
 *
 * Which lines there are is known before anything is measured. Each gets a part of the
 * time, and is measured once however long that takes. Where it is measured several times
 * its rate is the median. Only for bench*.c.
 */
#ifndef BERTH_LOADER_BENCH_H
#define BERTH_LOADER_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "loader/checkpoint.h"
#include "loader/file.h"
#include "loader/job.h"

#define BERTHI_BENCH_SAMPLES 31u
#define BERTHI_BENCH_FIRST_BYTES (UINT64_C(1) << 20) /* of the first copy that is tried */

/* The rates that a line was measured at. */
typedef struct berthi_bench_samples {
    uint64_t rates[BERTHI_BENCH_SAMPLES];
    uint32_t count;
} berthi_bench_samples;

/* The result. */
struct berth_bench {
    berth_context *context;
    berth_bench_line *lines;
    uint32_t line_count;
    char *links; /* ended by a NUL */
    uint64_t links_bytes; /* with it */
};

/* A device that is being measured: its memory, stream and event. All zero: none. */
typedef struct berthi_bench_side {
    berthi_device *device;
    uint32_t number;
    berthi_stream *stream;
    berthi_event *event;
    uint8_t *memory;   /* 2 * piece */
    uint64_t piece;    /* bytes of the largest copy; 0: the device has no room */
    bool is_pinned;    /* the first `piece` bytes of the host's memory are */
    char refusal[64];  /* why not */
    /* With others. */
    uint32_t group;    /* number of the first device that shares its link */
    bool is_asked;     /* takes part */
    uint64_t alone_ns;
} berthi_bench_side;

/* Sides whose copies hang: bench_side.c. */
typedef struct berthi_bench_left berthi_bench_left;

typedef struct berthi_bench {
    berth_context *context;
    berth_bench_options options; /* defaults filled in */
    berth_job *job;
    berth_bench *result; /* NULL: it was taken */
    uint32_t cores;      /* asked once: the answer may change */
    int32_t update_kind; /* -1: none is measured */
    uint64_t weight;     /* of all lines */
    uint64_t begin_ns;   /* of the line that is being measured */
    uint64_t end_ns;     /* after which nothing more of it is begun */

    /* reads */
    berthi_file *files;
    uint32_t file_count;
    berthi_file temporary; /* fd -1: none */
    uint64_t file_system;  /* that the files lie on; 0: none */

    /* copies */
    uint8_t *memory; /* whole pages; the first half holds BF16, all finite */
    uint64_t half;
    _Atomic uint64_t sink; /* keeps what is read from being left out */
    berthi_bench_side side;
    berthi_bench_left *left; /* NULL: none */
} berthi_bench;

/* ------------------------------------------------------------------------- bench.c */

/* Has the line's time run out? */
bool berthi_bench_is_late(const berthi_bench *b);
/* CANCELLED when the caller wants an end. */
berth_status berthi_bench_check(const berthi_bench *b, berth_error *error);
/* `bytes` in `ns`: counted in `line`, the rate among `samples`. False: they are full. */
bool berthi_bench_sample(berthi_bench *b, berth_bench_line *line,
                         berthi_bench_samples *samples, uint64_t bytes, uint64_t ns);
/* The line's rate. */
void berthi_bench_settle(berth_bench_line *line, berthi_bench_samples *samples);
/* There is none, and why. */
void berthi_bench_skip(berth_bench_line *line, const char *why);

/* -------------------------------------------------------------------- bench_disk.c */

/* Opens or makes what is read, if anything is; memory is open. */
berth_status berthi_bench_open_files(berthi_bench *b, berth_error *error);
void berthi_bench_close_files(berthi_bench *b);
berth_status berthi_bench_read(berthi_bench *b, berth_bench_line *line,
                               berth_error *error);

/* -------------------------------------------------------------------- bench_host.c */

berth_status berthi_bench_open_memory(berthi_bench *b, berth_error *error);
void berthi_bench_close_memory(berthi_bench *b);
/* COPY, HOST_MEMORY, NF4, NF4_DOUBLE. */
berth_status berthi_bench_host(berthi_bench *b, berth_bench_line *line,
                               berth_error *error);

/* ------------------------------------------------------------------ bench_update.c */

/* Its berthi_update_kind; -1: there is no optimizer of this name. */
int32_t berthi_bench_find_update(const char *name);
berth_status berthi_bench_update(berthi_bench *b, berth_bench_line *line,
                                 berth_error *error);

/* -------------------------------------------------------------------- bench_side.c */

/*
 * For copies of `limit` bytes or less. `piece` is 0 where there is no room; nothing is open
 * then.
 */
berth_status berthi_bench_open_side(berthi_bench *b, uint32_t number, uint64_t limit,
                                    berthi_bench_side *side, berth_error *error);
/*
 * One that is not open is allowed. Waits for copies that are under way, for wait_ms and five
 * seconds at most: what hangs then is kept in `left`.
 */
void berthi_bench_close_side(berthi_bench *b, berthi_bench_side *side);
/* Leaves all that is in `left` to the context, and the memory, which such copies use. */
void berthi_bench_leave(berthi_bench *b);
/* Asks its stream for a copy of the line's kind, of at most `piece` bytes. */
berth_status berthi_bench_ask_copy(berthi_bench *b, const berthi_bench_side *side,
                                   const berth_bench_line *line, uint64_t bytes,
                                   berth_error *error);
/* Until the stream has done what it was asked for; looks for a cancel meanwhile. */
berth_status berthi_bench_await_side(berthi_bench *b, const berthi_bench_side *side,
                                     berth_error *error);

/* ------------------------------------------------------------------ bench_device.c */

/* TO_DEVICE, TO_HOST, DEVICE_MEMORY, OPERATION. Keeps the device open for the next line. */
berth_status berthi_bench_device(berthi_bench *b, berth_bench_line *line,
                                 berth_error *error);
void berthi_bench_close_device(berthi_bench *b);

/* ------------------------------------------------------------------ bench_shared.c */

/* TO_DEVICE_SHARED: these lines, one for each device, at once. */
berth_status berthi_bench_shared(berthi_bench *b, berth_bench_line *lines,
                                 berth_error *error);

/* ------------------------------------------------------------------- bench_links.c */

/* Fills result->links. */
berth_status berthi_bench_print_links(const berthi_bench *b, berth_error *error);

#endif
