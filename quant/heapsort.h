/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heapsort.h - elements in order: in place, without memory or recursion, and no input makes
 * it quadratic.
 */
#ifndef BERTH_QUANT_HEAPSORT_H
#define BERTH_QUANT_HEAPSORT_H

#include <stddef.h>
#include <stdint.h>

#define BERTHI_HEAPSORT_ELEMENT 32u /* bytes, at most */

/* Ascending, as qsort() would put them; equal elements stand in any order. */
void berthi_heapsort(void *elements, uint64_t count, size_t bytes,
                     int (*compare)(const void *a, const void *b));

#endif
