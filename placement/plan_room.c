/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_room.c - which tiers compute, and what their budgets leave for weights and slots:
 * less what is kept free, what quantizing takes, and rings; and the budget that would.
 */
#include "placement/plan.h"
#include "placement/slab.h"

#define RINGS_SHARE 8u /* of what host memory has, one part in so many is theirs at most */

static uint64_t
less(uint64_t bytes, uint64_t taken)
{
    if (bytes == UINT64_MAX)
        return bytes;
    return bytes > taken ? bytes - taken : 0;
}

uint64_t
berthi_plan_reserve(const berthi_plan_tier_input *tier, uint64_t budget)
{
    if (budget == UINT64_MAX) /* there is no share of what has no end */
        return tier->reserve_bytes;
    return berthi_min_u64(
        budget,
        berthi_add_capped(berthi_share_of(budget, tier->reserve_share), tier->reserve_bytes));
}

uint64_t
berthi_plan_beside(const berthi_plan_work *work, uint32_t tier)
{
    const bool is_host = work->input->tiers[tier].tier.kind == BERTHI_TIER_CPU;

    return tier == work->disk ? 0
                              : berthi_add_capped(work->scratch, is_host ? work->turned : 0);
}

uint64_t
berthi_plan_room(const berthi_plan_work *work, uint32_t tier)
{
    const berth_plan_tier *const about = &work->plan->tiers[tier];
    const uint64_t beside = berthi_plan_beside(work, tier);
    const uint64_t now = about->scratch + about->turned;

    return less(about->free, beside > now ? beside - now : 0);
}

/* Of such a budget, but for the rings of GPUs. */
static uint64_t
less_own(const berthi_plan_work *work, uint32_t tier, uint64_t budget)
{
    const uint64_t left =
        less(budget, berthi_plan_reserve(&work->input->tiers[tier], budget));

    return less(left, berthi_plan_beside(work, tier));
}

uint64_t
berthi_plan_rings(const berthi_plan_work *work)
{
    uint64_t bytes;

    return berthi_can_mul(work->device_count, work->input->staging, &bytes)
               ? berthi_min_u64(bytes, UINT64_MAX / RINGS_SHARE)
               : UINT64_MAX / RINGS_SHARE;
}

/* What host memory has for them. */
static uint64_t
staging_of(const berthi_plan_work *work, uint64_t usable)
{
    return berthi_min_u64(berthi_plan_rings(work),
                          berthi_round_down(usable / RINGS_SHARE, BERTHI_SLAB_ALIGNMENT));
}

uint64_t
berthi_plan_rings_beside(const berthi_plan_work *work, uint64_t bytes)
{
    /* One part in eight of all is one in seven of the rest. */
    return berthi_min_u64(berthi_plan_rings(work),
                          berthi_slab_round(berthi_divide_up(bytes, RINGS_SHARE - 1)));
}

uint64_t
berthi_plan_usable(const berthi_plan_work *work, uint32_t tier, uint64_t budget)
{
    const uint64_t usable = less_own(work, tier, budget);

    return tier == work->host ? less(usable, staging_of(work, usable)) : usable;
}

uint64_t
berthi_plan_raise(const berthi_plan_work *work, uint32_t tier, uint64_t bytes)
{
    const berthi_plan_tier_input *const input = &work->input->tiers[tier];
    const uint64_t kept =
        berthi_add_capped(input->reserve_bytes, berthi_plan_beside(work, tier));
    const uint64_t wanted =
        berthi_add_capped(berthi_add_capped(work->usable[tier], bytes), kept);
    const uint64_t left = BERTHI_WHOLE - berthi_min_u64(input->reserve_share, BERTHI_WHOLE);
    uint64_t budget;

    if (left == 0 || wanted / left >= UINT64_MAX / BERTHI_WHOLE)
        return UINT64_MAX;
    budget =
        wanted / left * BERTHI_WHOLE + berthi_divide_up(wanted % left * BERTHI_WHOLE, left);
    return berthi_slab_round(budget - berthi_min_u64(budget, input->budget));
}

/* ----------------------------------------------------------------------- tiers */

bool
berthi_plan_is_device(const berthi_plan_input *input, uint32_t tier)
{
    const int32_t kind = input->tiers[tier].tier.kind;

    /* GPUs come first: a host that does is behind none. */
    return kind == BERTHI_TIER_GPU || (kind == BERTHI_TIER_CPU && tier == 0);
}

/* Homes are not known yet: each device has room for the largest. */
static uint64_t
largest_scratch(const berthi_plan_input *input)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < input->tensor_count; i++)
        most = berthi_max_u64(most, input->tensors[i].scratch);
    return most;
}

static uint64_t
turned_room(const berthi_plan_input *input)
{
    uint64_t most = 0;
    uint64_t all = 0;

    for (uint32_t i = 0; i < input->tensor_count; i++) {
        if (input->tensors[i].tie != BERTHI_NO_TIE)
            continue;
        most = berthi_max_u64(most, input->tensors[i].turned);
        all = berthi_add_capped(all, input->tensors[i].turned);
    }
    return berthi_slab_round(berthi_slab_turned(most, all));
}

berth_status
berthi_plan_take_tiers(berthi_plan_work *work, berth_error *error)
{
    const berthi_plan_input *const input = work->input;

    work->scratch = largest_scratch(input);
    work->turned = turned_room(input);
    work->host = BERTHI_NO_TIER;
    work->disk = BERTHI_NO_TIER;
    for (uint32_t t = 0; t < input->tier_count; t++) {
        if (berthi_plan_is_device(input, t))
            work->device_count++;
        else if (input->tiers[t].tier.kind == BERTHI_TIER_DISK)
            work->disk = t;
        else
            work->host = t;
    }
    if (work->device_count == 0)
        return berthi_fail_argument(error, "max_memory",
                                    "names no device that computes: a GPU, or cpu");
    for (uint32_t t = 0; t < input->tier_count; t++)
        work->usable[t] = berthi_plan_usable(work, t, input->tiers[t].budget);
    if (work->host != BERTHI_NO_TIER)
        work->staging = staging_of(
            work, less_own(work, work->host, input->tiers[work->host].budget));
    return BERTH_OK;
}
