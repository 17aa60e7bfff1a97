/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h - the tensors of a checkpoint in the order people count in:
 * component by component, numbers by value, so layer 2 comes before layer 10.
 */
#ifndef BERTH_TOOLS_LISTING_H
#define BERTH_TOOLS_LISTING_H

#include <stddef.h>
#include <stdint.h>

#include "loader/berth.h"

typedef struct listing_entry {
    const char *name; /* borrowed from the checkpoint */
    size_t name_length;
    uint64_t index; /* of the tensor */
} listing_entry;

typedef struct listing {
    listing_entry *entries;
    size_t count;
} listing;

/* Returns BERTH_OK or BERTH_ENOMEM; free with listing_fini(). */
berth_status listing_init(listing *l, const berth_checkpoint *checkpoint);
void listing_fini(listing *l);

/*
 * Below 0, 0, above 0. A total order in which all names that begin with the
 * same components follow each other.
 */
int listing_compare(const char *a, size_t a_length, const char *b, size_t b_length);

#endif
