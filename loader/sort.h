/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.h - puts numbers in the order of what they stand for.
 *
 * A natural merge sort: one pass where everything is in order or in reverse
 * already, n log r steps for r ordered stretches, n log n whatever the input.
 * Headers and indexes come as a few stretches, and are never hashed. A name is
 * read again only behind what is known to be the same: most steps read none.
 */
#ifndef BERTH_LOADER_SORT_H
#define BERTH_LOADER_SORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/memory.h"

/*
 * Below, at or above zero as `a` stands before, beside or behind `b`. *shared
 * counts bytes that both are known to begin with: who compares texts begins
 * behind them and adds those that are the same. Others leave it alone, which is
 * 0; so do those who put something before the texts, as long as it differs.
 *
 * Equal items that stand side by side in the end have been compared: a function
 * that notes a zero in `user` finds all duplicates.
 */
typedef int (*berthi_sort_compare)(void *user, uint32_t a, uint32_t b, uint64_t *shared);

/* items[i] = i */
void berthi_sort_number(uint32_t *items, uint64_t count);

/*
 * Sorts `items`, equal ones staying in their order. Takes a byte of memory an
 * item, and five more unless all of it is one stretch. False when there is
 * none; `items` is then in any order. At most 2^32 - 1 items.
 */
bool berthi_sort_arrange(berth_context *context, uint32_t *items, uint64_t count,
                         berthi_sort_compare compare, void *user);

/*
 * Moves elements of `bytes` <= BERTHI_SORT_ELEMENT each so that the new i-th is
 * the old order[i]. `order` ends as 0, 1, 2, ...
 */
#define BERTHI_SORT_ELEMENT 64u
void berthi_sort_apply(void *elements, size_t bytes, uint32_t *order, uint64_t count);

#endif
