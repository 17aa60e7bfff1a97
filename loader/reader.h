/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.h - reads in flight: one table of functions for each way of reading.
 *
 * A back end takes reads, performs them in any order and hands each back
 * exactly once. It knows nothing of files, chunks or retries: a short or
 * refused read is a result like any other (loader/intake.h decides).
 *
 * One thread drives a reader; only wake() may come from others.
 */
#ifndef BERTH_LOADER_READER_H
#define BERTH_LOADER_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_READER_NO_BUFFER UINT32_MAX

/* The caller's from complete() to submit(), the back end's in between. */
typedef struct berthi_read {
    struct berthi_read *next; /* the back end's */
    uint8_t *memory;
    uint64_t offset;
    uint32_t bytes;
    uint32_t buffer; /* number given to add_buffer(), or NO_BUFFER */
    int fd;
    bool is_direct;
    int64_t result;    /* bytes read, 0 at the end of the file, or a negated errno */
    uint64_t begin_ns; /* when it was submitted or began */
    uint64_t busy_ns;  /* how long it took */
} berthi_read;

/* A chain of reads, oldest first; all zero: empty. */
typedef struct berthi_read_list {
    berthi_read *first;
    berthi_read *last; /* unspecified when `first` is NULL */
} berthi_read_list;

static inline void
berthi_read_list_add(berthi_read_list *list, berthi_read *read)
{
    read->next = NULL;
    if (list->first == NULL)
        list->first = read;
    else
        list->last->next = read;
    list->last = read;
}

/* NULL when empty. */
static inline berthi_read *
berthi_read_list_take(berthi_read_list *list)
{
    berthi_read *const read = list->first;

    if (read != NULL)
        list->first = read->next;
    return read;
}

typedef struct berthi_reader_options {
    uint32_t threads;      /* at most so many reader threads; at least 1 is needed */
    uint32_t depth;        /* at most so many reads in flight */
    uint32_t buffer_count; /* for add_buffer() */
} berthi_reader_options;

typedef struct berthi_reader berthi_reader;

typedef struct berthi_reader_table {
    const char *name; /* "threads", "io_uring" */
    /* On failure nothing is kept. BERTH_EUNSUPPORTED: try another back end. */
    berth_status (*open)(berth_context *context, const berthi_reader_options *options,
                         berthi_reader **out_reader, berth_error *error);
    /*
     * Optional: `memory` will be read into often. True when reads into it may
     * name it by `number`; it must then stay until close().
     */
    bool (*add_buffer)(berthi_reader *reader, uint32_t number, void *memory,
                       uint64_t bytes);
    /* Never fails: what goes wrong is the read's result. */
    void (*submit)(berthi_reader *reader, berthi_read *read);
    /* A finished read; NULL when woken or when `deadline_ns` has passed. */
    berthi_read *(*complete)(berthi_reader *reader, uint64_t deadline_ns);
    /* Makes a complete() that waits, or the next one, return. Any thread. */
    void (*wake)(berthi_reader *reader);
    /* Reads that have not begun come back with -ECANCELED, the others finish. */
    void (*cancel)(berthi_reader *reader);
    /* Nothing may be in flight. */
    void (*close)(berthi_reader *reader);
} berthi_reader_table;

/* What each back end's own state begins with. */
struct berthi_reader {
    const berthi_reader_table *table;
};

extern const berthi_reader_table berthi_reader_threads;
/* open() returns BERTH_EUNSUPPORTED where the build or the kernel has none. */
extern const berthi_reader_table berthi_reader_uring;

/*
 * The best back end that works here: `wanted` alone if it is not NULL, else
 * io_uring unless `no_uring`, else threads.
 */
berth_status berthi_reader_open(berth_context *context, const berthi_reader_table *wanted,
                                bool no_uring, const berthi_reader_options *options,
                                berthi_reader **out_reader, berth_error *error);

/* In test builds: the back end of whoever wants none in particular; NULL: the best one. */
extern const berthi_reader_table *_Atomic berthi_reader_instead;

#endif
