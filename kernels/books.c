/* SPDX-License-Identifier: Apache-2.0 */
/* books.c - see books.h. */
#include "kernels/books.h"

#include <stdio.h>
#include <string.h>

void
berthi_books_init(berthi_books *books)
{
    memset(books, 0, sizeof *books);
    books->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    snprintf(books->books[BERTHI_BOOKS_HOST].tier, BERTHI_BOOKS_NAME, "cpu");
    atomic_store(&books->count, 1);
}

/* ---------------------------------------------------------------------- accounts */

static void
take(berthi_account *account, uint64_t bytes)
{
    const uint64_t current = atomic_fetch_add(&account->current, bytes) + bytes;
    uint64_t peak = atomic_load(&account->peak);

    atomic_fetch_add(&account->allocated, bytes);
    while (peak < current
           && !atomic_compare_exchange_weak(&account->peak, &peak, current))
        continue;
}

void
berthi_book_take(berthi_book *book, int32_t purpose, uint64_t bytes)
{
    take(&book->accounts[purpose], bytes);
    take(&book->accounts[BERTH_MEMORY_ALL], bytes);
}

void
berthi_book_give(berthi_book *book, int32_t purpose, uint64_t bytes)
{
    atomic_fetch_sub(&book->accounts[purpose].current, bytes);
    atomic_fetch_sub(&book->accounts[BERTH_MEMORY_ALL].current, bytes);
}

/* ------------------------------------------------------------------------- slabs */

berthi_book *
berthi_books_find(berthi_books *books, const char *tier)
{
    uint32_t count;
    uint32_t i = 0;

    pthread_mutex_lock(&books->lock);
    count = atomic_load(&books->count);
    while (i < count && strcmp(books->books[i].tier, tier) != 0)
        i++;
    if (i >= BERTHI_BOOKS_TIERS - 1) {
        i = BERTHI_BOOKS_TIERS - 1;
        tier = "others";
    }
    if (i == count) {
        snprintf(books->books[i].tier, BERTHI_BOOKS_NAME, "%s", tier);
        atomic_store(&books->count, count + 1);
    }
    pthread_mutex_unlock(&books->lock);
    return &books->books[i];
}

/* What of it has a purpose. */
static uint64_t
sum_of(const berthi_slab_parts *parts)
{
    return parts->weights + parts->states + parts->slots + parts->scratch;
}

void
berthi_books_take_slab(berthi_books *books, const char *tier,
                       const berthi_slab_parts *parts)
{
    berthi_book *const book = berthi_books_find(books, tier);

    berthi_book_take(book, BERTH_MEMORY_WEIGHTS, parts->weights);
    berthi_book_take(book, BERTH_MEMORY_STATES, parts->states);
    berthi_book_take(book, BERTH_MEMORY_SLOTS, parts->slots);
    berthi_book_take(book, BERTH_MEMORY_SCRATCH, parts->scratch);
    atomic_fetch_add(&book->slab_bytes, parts->bytes);
    atomic_fetch_add(&book->slab_parts, sum_of(parts));
    atomic_fetch_add(&book->slabs, 1);
}

void
berthi_books_give_slab(berthi_books *books, const char *tier,
                       const berthi_slab_parts *parts)
{
    berthi_book *const book = berthi_books_find(books, tier);

    berthi_book_give(book, BERTH_MEMORY_WEIGHTS, parts->weights);
    berthi_book_give(book, BERTH_MEMORY_STATES, parts->states);
    berthi_book_give(book, BERTH_MEMORY_SLOTS, parts->slots);
    berthi_book_give(book, BERTH_MEMORY_SCRATCH, parts->scratch);
    atomic_fetch_sub(&book->slab_bytes, parts->bytes);
    atomic_fetch_sub(&book->slab_parts, sum_of(parts));
    atomic_fetch_sub(&book->slabs, 1);
}
