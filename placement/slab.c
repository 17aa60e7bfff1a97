/* SPDX-License-Identifier: Apache-2.0 */
/* slab.c - parts of a weight in memory; see slab.h. */
#include "placement/slab.h"

#include "kernels/base.h"
#include "kernels/device.h"

uint64_t
berthi_slab_round(uint64_t bytes)
{
    uint64_t rounded;

    return berthi_can_round_up(bytes, BERTHI_SLAB_ALIGNMENT, &rounded) ? rounded
                                                                       : UINT64_MAX;
}

/* Constants and texts are elsewhere. */
static bool
is_in_memory(berthi_role role)
{
    return role == BERTHI_ROLE_VALUES || role == BERTHI_ROLE_CODES
           || role == BERTHI_ROLE_ABSMAX || role == BERTHI_ROLE_ABSMAX2
           || role == BERTHI_ROLE_ROW_MAXIMUM;
}

bool
berthi_slab_can_list(const berthi_storage *storage, const uint64_t *shape, uint32_t rank,
                     berthi_slab_part parts[BERTHI_SLAB_PARTS], uint32_t *out_count,
                     uint64_t *out_bytes)
{
    berthi_stored stored[BERTHI_STORED_MAX];
    const uint32_t count = berthi_stored_list(storage, shape, rank, stored);
    uint64_t offset = 0;

    *out_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_in_memory(stored[i].role))
            continue;
        parts[(*out_count)++] = (berthi_slab_part){ .role = (int32_t)stored[i].role,
                                                    .dtype = stored[i].dtype,
                                                    .offset = offset,
                                                    .bytes = stored[i].bytes };
        if (!berthi_can_add(offset, berthi_slab_round(stored[i].bytes), &offset))
            return false;
    }
    *out_bytes = offset;
    return count > 0;
}

uint64_t
berthi_slab_second_scratch(uint64_t blocks)
{
    const uint64_t bytes = berthi_offset_scratch(blocks) * sizeof(float);

    return BERTHI_SLAB_RESULT + bytes <= BERTHI_SLAB_PIECE ? 0 : berthi_slab_round(bytes);
}

uint64_t
berthi_slab_scratch(const berthi_storage *storage, uint64_t elements)
{
    uint64_t blocks = 0;

    if (storage->encoding == BERTH_ENCODING_NATIVE)
        return 0;
    if (storage->is_double && storage->block_size > 0)
        blocks = berthi_divide_up(elements, storage->block_size);
    return BERTHI_SLAB_PIECE + berthi_slab_round(blocks * sizeof(float))
           + berthi_slab_second_scratch(blocks);
}

uint64_t
berthi_slab_turned(uint64_t largest, uint64_t all)
{
    return berthi_min_u64(all, 2 * largest);
}
