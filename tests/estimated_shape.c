/* SPDX-License-Identifier: Apache-2.0 */
/* estimated_shape.c - see estimated_shape.h. */
#include "tests/estimated_shape.h"

#include "tests/t.h"

estimated_counts
estimated_count(const estimated *e)
{
    estimated_counts c = { 0, 0 };

    for (uint32_t i = 0; i < e->weights.count; i++) {
        const berthi_weight *const w = &e->weights.items[i];
        const uint64_t n = w->count * w->shape[0] * (w->rank == 2 ? w->shape[1] : 1);

        CHECK_GT(n, 0); /* what is not there is not in the list */
        c.all += n;
        if (w->role == BERTHI_WEIGHT_LINEAR || w->role == BERTHI_WEIGHT_EXPERT)
            c.linear += n;
    }
    return c;
}

void
estimated_check_kind(const berthi_layer *k, uint64_t layers, int32_t attention,
                     uint64_t window, uint64_t experts)
{
    CHECK_EQ(k->count, layers);
    CHECK_EQ(k->attention, attention);
    CHECK_EQ(k->window, window);
    CHECK_EQ(k->experts, experts);
}
