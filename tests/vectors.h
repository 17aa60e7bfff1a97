/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vectors.h - recordings of the real library: a safetensors file in memory,
 * its tensors found by `case.what`. Contains what berth's own parser makes of
 * it, so a broken parser shows here, too.
 */
#ifndef BERTH_TESTS_VECTORS_H
#define BERTH_TESTS_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/safetensors.h"

typedef struct vectors {
    berth_context *context;
    berthi_header header;
    uint8_t *bytes;
    const uint8_t *data;
} vectors;

/* False when there is no such file, or (a failed check) when it does not parse. */
bool vectors_has_opened(vectors *v, const char *path);
void vectors_close(vectors *v);

/* Tensor `prefix.what`, or NULL. */
const berthi_entry *vectors_find(const vectors *v, const char *prefix, const char *what);
const void *vectors_data(const vectors *v, const berthi_entry *entry);
/* Data of the first of two tensors that is there, or NULL. */
const void *vectors_either(const vectors *v, const char *prefix, const char *first,
                           const char *second);
/* Calls `test` for every prefix in `group` that has a tensor `prefix.marker`. */
unsigned vectors_each(const vectors *v, const char *group, const char *marker,
                      void (*test)(const vectors *v, const char *prefix));
/* Equal bits, or NaN with NaN; notes the first element that differs. */
bool vectors_are_same(const void *a, const void *b, uint64_t count, int32_t dtype);

#endif
