/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mixed.h - leases of a model of which layers lie on the disk, alone or among others, in tests.
 */
#ifndef BERTH_TESTS_MIXED_H
#define BERTH_TESTS_MIXED_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/leased.h"

/* Where a model's weights are. */
typedef enum mixed {
    MIXED_DISK,  /* all of the layers on the disk */
    MIXED_PARTS, /* attention in host memory, the MLP on the disk */
    MIXED_BOTH,  /* layers on the disk, in host memory, and resident */
    MIXED_HOST   /* no GPU: computed in host memory, streamed from the disk */
} mixed;

leased_options mixed_options(mixed kind, uint32_t slots, const char *devices);
berth_lease_summary mixed_summary(const leased *l);
bool mixed_start(leased *l, uint64_t ring_bytes);
void mixed_passes(leased *l, uint32_t count);

#endif
