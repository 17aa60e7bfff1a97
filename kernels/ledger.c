/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c - counters of allocations; no lock, no allocation of its own. */
#include "kernels/ledger.h"

#include "kernels/base.h"

static const char *const purpose_names[] = {
#define PURPOSE_NAME(identifier, name) name,
    BERTHI_PURPOSES(PURPOSE_NAME)
#undef PURPOSE_NAME
};

/* As users are told: of slabs it is booked what lies in them, when they are divided. */
static const int8_t told_as[] = {
    [BERTHI_PURPOSE_OBJECT] = BERTH_MEMORY_TABLES,
    [BERTHI_PURPOSE_HEADER] = BERTH_MEMORY_TABLES,
    [BERTHI_PURPOSE_TENSORS] = BERTH_MEMORY_TABLES,
    [BERTHI_PURPOSE_DOCUMENT] = BERTH_MEMORY_TABLES,
    [BERTHI_PURPOSE_RING] = BERTH_MEMORY_STAGING,
    [BERTHI_PURPOSE_CHUNKS] = BERTH_MEMORY_TABLES,
    [BERTHI_PURPOSE_SCRATCH] = BERTH_MEMORY_SCRATCH,
    [BERTHI_PURPOSE_WEIGHTS] = -1,
};

const char *
berthi_purpose_name(berthi_purpose purpose)
{
    return (unsigned)purpose < BERTHI_PURPOSE_COUNT ? purpose_names[purpose] : "unknown";
}

void
berthi_ledger_init(berthi_ledger *ledger, uint64_t limit)
{
    ledger->limit = limit;
    atomic_init(&ledger->current, 0);
    atomic_init(&ledger->peak, 0);
    atomic_init(&ledger->allocations, 0);
    atomic_init(&ledger->frees, 0);
    for (int i = 0; i < BERTHI_PURPOSE_COUNT; i++)
        atomic_init(&ledger->by_purpose[i], 0);
    berthi_books_init(&ledger->books);
}

static bool
can_hold(const berthi_ledger *ledger, uint64_t current, uint64_t bytes, uint64_t *out_after)
{
    return berthi_can_add(current, bytes, out_after)
           && (ledger->limit == 0 || *out_after <= ledger->limit);
}

bool
berthi_ledger_has_room(const berthi_ledger *ledger, uint64_t bytes)
{
    uint64_t after;

    return can_hold(ledger, atomic_load(&ledger->current), bytes, &after);
}

bool
berthi_ledger_reserve(berthi_ledger *ledger, uint64_t bytes, uint64_t *out_current)
{
    uint64_t current = atomic_load(&ledger->current);
    uint64_t after;

    do {
        if (!can_hold(ledger, current, bytes, &after))
            return false;
    } while (!atomic_compare_exchange_weak(&ledger->current, &current, after));
    *out_current = after;
    return true;
}

void
berthi_ledger_cancel(berthi_ledger *ledger, uint64_t bytes)
{
    atomic_fetch_sub(&ledger->current, bytes);
}

void
berthi_ledger_take(berthi_ledger *ledger, berthi_purpose purpose, uint64_t bytes,
                   uint64_t current)
{
    uint64_t peak = atomic_load(&ledger->peak);

    while (peak < current && !atomic_compare_exchange_weak(&ledger->peak, &peak, current))
        continue;
    atomic_fetch_add(&ledger->by_purpose[purpose], bytes);
    atomic_fetch_add(&ledger->allocations, 1);
    if (told_as[purpose] >= 0)
        berthi_book_take(&ledger->books.books[BERTHI_BOOKS_HOST], told_as[purpose],
                         bytes);
}

void
berthi_ledger_give(berthi_ledger *ledger, berthi_purpose purpose, uint64_t bytes)
{
    atomic_fetch_sub(&ledger->current, bytes);
    atomic_fetch_sub(&ledger->by_purpose[purpose], bytes);
    atomic_fetch_add(&ledger->frees, 1);
    if (told_as[purpose] >= 0)
        berthi_book_give(&ledger->books.books[BERTHI_BOOKS_HOST], told_as[purpose],
                         bytes);
}
