/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - numbers by group, counted and then put in their places; see groups.h. */
#include "loader/groups.h"

berth_status
berthi_groups_init(berthi_groups *groups, berth_context *context, const uint32_t *order,
                   uint64_t count, uint32_t group_count,
                   uint32_t (*group_of)(const void *user, uint32_t number), const void *user,
                   berth_error *error)
{
    uint64_t *ends;
    uint64_t begin = 0;

    *groups = (berthi_groups){ .context = context, .count = count, .group_count = group_count };
    groups->numbers =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count, sizeof *groups->numbers);
    groups->ends = ends =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, group_count * sizeof *ends);
    if (groups->numbers == NULL || ends == NULL) {
        berthi_groups_fini(groups);
        return berthi_fail_memory(error, "numbers by group");
    }
    for (uint64_t i = 0; i < count; i++)
        ends[group_of(user, order[i])]++;
    for (uint32_t i = 0; i < group_count; i++) {
        const uint64_t size = ends[i];

        ends[i] = begin; /* grows to its end below */
        begin += size;
    }
    for (uint64_t i = 0; i < count; i++)
        groups->numbers[ends[group_of(user, order[i])]++] = order[i];
    return BERTH_OK;
}

void
berthi_groups_fini(berthi_groups *groups)
{
    berthi_memory_free(groups->context, BERTHI_PURPOSE_SCRATCH, groups->numbers,
                       groups->count * sizeof *groups->numbers);
    berthi_memory_free(groups->context, BERTHI_PURPOSE_SCRATCH, groups->ends,
                       groups->group_count * sizeof *groups->ends);
    *groups = (berthi_groups){ .context = NULL };
}
