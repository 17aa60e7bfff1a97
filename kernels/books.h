/* SPDX-License-Identifier: Apache-2.0 */
/*
 * books.h - how much of each memory is used for what, now, at most and in all.
 *
 * The first tier is host memory, "cpu", and is written by the ledger with every
 * allocation of the context; what slabs hold is booked by those who make them, under the
 * name of the tier that the slab is, because one allocation has several purposes. A tier
 * keeps its page for the life of the context. Any thread.
 */
#ifndef BERTH_KERNELS_BOOKS_H
#define BERTH_KERNELS_BOOKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

#define BERTHI_BOOKS_TIERS 66u /* host memory, 64 devices, and one for all that are more */
#define BERTHI_BOOKS_NAME 32u
#define BERTHI_BOOKS_HOST 0u

/* What was given back is the rest of `allocated`. */
typedef struct berthi_account {
    _Atomic uint64_t current;
    _Atomic uint64_t peak;
    _Atomic uint64_t allocated;
} berthi_account;

typedef struct berthi_book {
    char tier[BERTHI_BOOKS_NAME];
    berthi_account accounts[BERTH_MEMORY_PURPOSE_COUNT]; /* that of ALL, too */
    _Atomic uint64_t slabs;      /* there now */
    _Atomic uint64_t slab_bytes; /* of them, as they were asked for */
    _Atomic uint64_t slab_parts; /* of them, with a purpose */
} berthi_book;

typedef struct berthi_books {
    pthread_mutex_t lock; /* while a tier gets its page */
    _Atomic uint32_t count;
    berthi_book books[BERTHI_BOOKS_TIERS];
} berthi_books;

/* A slab, and what lies in it; the rest of it is used for nothing. */
typedef struct berthi_slab_parts {
    uint64_t bytes;
    uint64_t weights;
    uint64_t states; /* of an optimizer */
    uint64_t slots;
    uint64_t scratch;
} berthi_slab_parts;

void berthi_books_init(berthi_books *books);
/* One purpose of a tier, and ALL of it. */
void berthi_book_take(berthi_book *book, int32_t purpose, uint64_t bytes);
void berthi_book_give(berthi_book *book, int32_t purpose, uint64_t bytes);
/* The page of a tier, a new one where it has none. */
berthi_book *berthi_books_find(berthi_books *books, const char *tier);
void berthi_books_take_slab(berthi_books *books, const char *tier,
                            const berthi_slab_parts *parts);
/* With the parts that were taken. */
void berthi_books_give_slab(berthi_books *books, const char *tier,
                            const berthi_slab_parts *parts);

#endif
