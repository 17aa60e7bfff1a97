/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - what is allocated, by tier and purpose.
 *
 * Every allocation of a context passes here: current, peak, totals. The ledger
 * is the memory summary for users, the ceiling that is enforced, and the leak
 * test: all zero after destroy. Counters are atomic; any thread.
 */
#ifndef BERTH_KERNELS_LEDGER_H
#define BERTH_KERNELS_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/books.h"

/* X(IDENTIFIER, "name"): what an allocation is for. */
#define BERTHI_PURPOSES(X)                                                                 \
    X(OBJECT, "object")         /* contexts, checkpoints, jobs and what hangs on them */   \
    X(HEADER, "header")         /* text of a header or index while it is parsed */         \
    X(TENSORS, "tensors")       /* names, shapes, extents */                               \
    X(DOCUMENT, "document")     /* config.json, state blobs, manifests */                  \
    X(RING, "ring")             /* staging buffers */                                      \
    X(CHUNKS, "chunks")         /* chunk and span tables of a job */                       \
    X(SCRATCH, "scratch")                                                                  \
    X(WEIGHTS, "weights")       /* slabs: what a model's tensors lie in */

typedef enum berthi_purpose {
#define BERTHI_PURPOSE_ENUM(identifier, name) BERTHI_PURPOSE_##identifier,
    BERTHI_PURPOSES(BERTHI_PURPOSE_ENUM)
#undef BERTHI_PURPOSE_ENUM
        BERTHI_PURPOSE_COUNT
} berthi_purpose;

typedef struct berthi_ledger {
    uint64_t limit; /* 0: none; set before the first use, then constant */
    _Atomic uint64_t current; /* in use and reserved */
    _Atomic uint64_t peak;
    _Atomic uint64_t allocations;
    _Atomic uint64_t frees;
    _Atomic uint64_t by_purpose[BERTHI_PURPOSE_COUNT];
    berthi_books books; /* what users are told; slabs are booked by who makes them */
} berthi_ledger;

void berthi_ledger_init(berthi_ledger *ledger, uint64_t limit);

/*
 * An allocation is reserved, tried, and then taken or cancelled, so that the
 * limit holds at every moment and what failed never counts as used.
 *
 * Reserves `bytes`, or returns false and does nothing when that passes the limit.
 * *out_current is all that is then in use and reserved.
 */
bool berthi_ledger_reserve(berthi_ledger *ledger, uint64_t bytes,
                           uint64_t *out_current);
/* Whether `bytes` could be reserved now; others may be quicker. */
bool berthi_ledger_has_room(const berthi_ledger *ledger, uint64_t bytes);
/* The allocation failed: the reservation ends. */
void berthi_ledger_cancel(berthi_ledger *ledger, uint64_t bytes);
/* It succeeded: what was reserved, with `current` as told then, is in use. */
void berthi_ledger_take(berthi_ledger *ledger, berthi_purpose purpose, uint64_t bytes,
                        uint64_t current);
/* Returns what was taken. */
void berthi_ledger_give(berthi_ledger *ledger, berthi_purpose purpose, uint64_t bytes);

/* "header", ... */
const char *berthi_purpose_name(berthi_purpose purpose);

#endif
