/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h - numbers by the group that each is in, such as tensors by their shard: so that
 * whoever goes from group to group does not look at all numbers in each.
 */
#ifndef BERTH_LOADER_GROUPS_H
#define BERTH_LOADER_GROUPS_H

#include "kernels/base.h"
#include "kernels/memory.h"

typedef struct berthi_groups {
    berth_context *context;
    uint64_t count; /* of the numbers */
    uint32_t group_count;
    uint32_t *numbers;
    uint64_t *ends; /* where each group ends in there */
} berthi_groups;

/*
 * Of `order`, which each group keeps. `group_of` is asked twice for each number. Only
 * NO_MEMORY can go wrong; as after fini then.
 */
berth_status berthi_groups_init(berthi_groups *groups, berth_context *context,
                                const uint32_t *order, uint64_t count, uint32_t group_count,
                                uint32_t (*group_of)(const void *user, uint32_t number),
                                const void *user, berth_error *error);
/* All-zero is allowed. */
void berthi_groups_fini(berthi_groups *groups);

static inline uint64_t
berthi_groups_begin(const berthi_groups *groups, uint32_t group)
{
    return group > 0 ? groups->ends[group - 1] : 0;
}

#endif
