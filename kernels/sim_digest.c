/* SPDX-License-Identifier: Apache-2.0 */
/* sim_digest.c - crcs of ranges instead of bytes; see sim_digest.h. */
#include "kernels/sim_digest.h"

#include <string.h>

#include "kernels/digest.h"
#include "kernels/grow.h"

#define FIRST_RANGES 64u

void
berthi_sim_digest_init(berthi_sim_digest *digest, berth_context *context)
{
    memset(digest, 0, sizeof *digest);
    digest->context = context;
}

void
berthi_sim_digest_fini(berthi_sim_digest *digest)
{
    berthi_memory_free(digest->context, BERTHI_PURPOSE_OBJECT, digest->ranges,
                       digest->capacity * sizeof *digest->ranges);
}

/* The first range that ends behind `at`. */
static uint64_t
find_range(const berthi_sim_digest *digest, uint64_t at)
{
    uint64_t low = 0;
    uint64_t high = digest->count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (digest->ranges[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Room for two more: a write into the middle of zeroes makes three of one. */
static bool
make_room(berthi_sim_digest *digest)
{
    const berthi_growth growth = { .size = sizeof *digest->ranges,
                                   .used = digest->count,
                                   .before = digest->capacity,
                                   .after = berthi_grown(digest->capacity, FIRST_RANGES) };
    berthi_sim_range *ranges;

    if (digest->count + 2 <= digest->capacity)
        return true;
    ranges = berthi_memory_grow(digest->context, BERTHI_PURPOSE_OBJECT, digest->ranges,
                                &growth);
    if (ranges == NULL)
        return false;
    digest->ranges = ranges;
    digest->capacity = growth.after;
    return true;
}

bool
berthi_sim_digest_can_write(berthi_sim_digest *digest, const berthi_sim_range *range)
{
    berthi_sim_range made[3];
    uint64_t made_count = 0;
    uint64_t first;
    uint64_t behind;

    if (range->begin == range->end)
        return true;
    if (!make_room(digest))
        return false;
    first = find_range(digest, range->begin);
    behind = first;
    if (first < digest->count && digest->ranges[first].begin < range->begin
        && digest->ranges[first].is_zero)
        made[made_count++] = (berthi_sim_range){ .begin = digest->ranges[first].begin,
                                                 .end = range->begin,
                                                 .is_zero = true };
    made[made_count++] = *range;
    while (behind < digest->count && digest->ranges[behind].begin < range->end)
        behind++;
    if (behind > first && digest->ranges[behind - 1].end > range->end
        && digest->ranges[behind - 1].is_zero)
        made[made_count++] = (berthi_sim_range){ .begin = range->end,
                                                 .end = digest->ranges[behind - 1].end,
                                                 .is_zero = true };
    memmove(digest->ranges + first + made_count, digest->ranges + behind,
            (size_t)(digest->count - behind) * sizeof *digest->ranges);
    memcpy(digest->ranges + first, made, (size_t)made_count * sizeof *made);
    digest->count += made_count - (behind - first);
    return true;
}

/* zlib inverts before and after; in between, zeroes are one multiplication. */
static uint32_t
crc_of_zeroes(uint64_t bytes)
{
    return ~berthi_digest_shift(UINT32_MAX, bytes);
}

bool
berthi_sim_digest_can_read(const berthi_sim_digest *digest, uint64_t begin, uint64_t end,
                           uint32_t *out_crc)
{
    uint64_t at = begin;
    uint32_t crc = 0;

    *out_crc = 0;
    for (uint64_t i = find_range(digest, begin); at < end; i++) {
        const berthi_sim_range *const r = &digest->ranges[i];
        uint64_t bytes;

        if (i == digest->count || r->begin > at
            || (!r->is_zero && (r->begin != at || r->end > end)))
            return false;
        bytes = berthi_min_u64(r->end, end) - at;
        crc = berthi_digest_combine(crc, r->is_zero ? crc_of_zeroes(bytes) : r->crc,
                                    bytes);
        at += bytes;
    }
    *out_crc = crc;
    return true;
}
