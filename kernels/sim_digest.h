/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_digest.h - what is known of memory whose bytes are not kept: ranges that were
 * written, with the crc32 of each.
 *
 * A range ends where the next write into it begins: what is left of it is unknown,
 * because no crc of a part follows from that of the whole. Zeroes can be cut. Ranges
 * are not joined: each of their ends may be that of a tensor.
 */
#ifndef BERTH_KERNELS_SIM_DIGEST_H
#define BERTH_KERNELS_SIM_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/memory.h"

typedef struct berthi_sim_range {
    uint64_t begin;
    uint64_t end;
    uint32_t crc; /* not of zeroes */
    bool is_zero;
} berthi_sim_range;

/* Ranges by ascending begin, without overlap. */
typedef struct berthi_sim_digest {
    berth_context *context;
    berthi_sim_range *ranges;
    uint64_t count;
    uint64_t capacity;
} berthi_sim_digest;

void berthi_sim_digest_init(berthi_sim_digest *digest, berth_context *context);
void berthi_sim_digest_fini(berthi_sim_digest *digest);

/* Takes the place of what was known of it. False: out of memory, nothing changed. */
bool berthi_sim_digest_can_write(berthi_sim_digest *digest,
                                 const berthi_sim_range *range);
/* False where something of the range is unknown. */
bool berthi_sim_digest_can_read(const berthi_sim_digest *digest, uint64_t begin,
                                uint64_t end, uint32_t *out_crc);

#endif
