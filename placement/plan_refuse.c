/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_refuse.c - why a plan is refused: the smallest change that would make it fit, of one
 * tier where that does, else of several.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "placement/plan.h"
#include "placement/plan_several.h"
#include "placement/plan_train.h"
#include "placement/slab.h"

#define CLOSE_BYTES  65536u /* of a few small tensors */
#define CLOSE_GROWTH 16u

/* " and cuda:63 of 1023.99 GiB", or how many others there are. */
#define OTHER_MOST (BERTHI_TIER_NAME + 40u)

/* One tier that could be larger. */
typedef struct change {
    uint32_t tier;  /* BERTHI_NO_TIER: none helps */
    uint64_t raise; /* of its budget */
} change;

/* ------------------------------------------------------------------------- words */

void
berthi_plan_raise_format(uint64_t bytes, char *text)
{
    uint64_t more = 1;
    uint64_t read;

    (void)berth_size_format(bytes, text);
    /* Twice as much in each turn: the next hundredth is met, not the one behind it. */
    while (berth_size_parse(text, &read, NULL) == BERTH_OK && read < bytes) {
        (void)berth_size_format(berthi_add_capped(bytes, more), text);
        more *= 2;
    }
}

/* -------------------------------------------------------------------------- try */

/* Whether layers have homes, or all of the plan fits, as if the tier of the change were larger. */
typedef berth_status suffices(const berthi_plan_work *work,
                              const berthi_home_problem *given, const change *changed,
                              bool *out_does, berth_error *error);

static berth_status
are_homed(const berthi_plan_work *work, const berthi_home_problem *given,
          const change *changed, bool *out_does, berth_error *error)
{
    const uint64_t usable = berthi_plan_usable(
        work, changed->tier,
        berthi_add_capped(work->input->tiers[changed->tier].budget, changed->raise));
    berthi_home_device devices[BERTHI_HOME_DEVICES];
    berthi_home_problem problem = *given;
    berthi_homes found = { .homes = work->homes };
    berth_status status;

    memcpy(devices, given->devices, given->device_count * sizeof *devices);
    problem.devices = devices;
    if (changed->tier < given->device_count)
        devices[changed->tier].room = usable;
    else
        problem.elsewhere = berthi_plan_room_elsewhere(work, usable);
    status = berthi_home_find(work->context, &problem, &found, error);
    *out_does = status == BERTH_OK && found.is_feasible;
    return status;
}

/* Homes are found by sums of bytes, but tensors lie somewhere as a whole. */
static berth_status
all_fits(const berthi_plan_work *work, const berthi_home_problem *given,
         const change *changed, bool *out_does, berth_error *error)
{
    berthi_plan_growth growth = { .raise = { 0 } };

    (void)given;
    growth.raise[changed->tier] = changed->raise;
    return berthi_plan_try(work, &growth, out_does, error);
}

/* Halves the stretch between too little and enough, in whole alignments. */
static berth_status
halve(const berthi_plan_work *work, const berthi_home_problem *problem, suffices *does,
      uint64_t low, change *enough_of, berth_error *error)
{
    while (enough_of->raise - low > BERTHI_SLAB_ALIGNMENT) {
        const change tried = { enough_of->tier,
                               low + berthi_slab_round((enough_of->raise - low) / 2) };
        bool is_enough;
        const berth_status status = does(work, problem, &tried, &is_enough, error);

        if (status != BERTH_OK)
            return status;
        if (is_enough)
            enough_of->raise = tried.raise;
        else
            low = tried.raise;
    }
    return BERTH_OK;
}

/*
 * First of all it is asked whether this tier takes less than the best so far: mostly one
 * search for a tier.
 */
static berth_status
measure(const berthi_plan_work *work, const berthi_home_problem *problem, suffices *does,
        uint64_t low, change *best, const change *most, berth_error *error)
{
    change tried = { most->tier,
                     berthi_min_u64(best->raise - BERTHI_SLAB_ALIGNMENT, most->raise) };
    bool is_enough;
    berth_status status;

    if (tried.raise <= low)
        return BERTH_OK;
    status = does(work, problem, &tried, &is_enough, error);
    if (status != BERTH_OK || !is_enough)
        return status;
    status = halve(work, problem, does, low, &tried, error);
    *best = tried;
    return status;
}

/*
 * The same for all of a plan, where layers have homes with `low`: mostly no more than a few tensors
 * are short then, and each trial goes through all there are. So it begins close by.
 */
static berth_status
measure_close(const berthi_plan_work *work, const berthi_home_problem *problem, uint64_t low,
              change *best, const change *most, berth_error *error)
{
    const uint64_t end = berthi_min_u64(best->raise - BERTHI_SLAB_ALIGNMENT, most->raise);
    change tried = { most->tier, low };
    uint64_t step = CLOSE_BYTES;
    bool is_enough = false;
    berth_status status = BERTH_OK;

    while (status == BERTH_OK && !is_enough && tried.raise < end) {
        low = tried.raise;
        tried.raise = end - low > step ? low + step : end;
        step = step < end ? step * CLOSE_GROWTH : step;
        status = all_fits(work, problem, &tried, &is_enough, error);
    }
    if (status != BERTH_OK || !is_enough)
        return status;
    status = halve(work, problem, all_fits, low, &tried, error);
    *best = tried;
    return status;
}

/* The best changes so far. */
typedef struct changes {
    change homed; /* with which layers have homes */
    change whole; /* with which all fits */
} changes;

static change
largest_change(const berthi_plan_work *work, uint32_t tier)
{
    return (change){ tier, berthi_plan_raise(work, tier, berthi_plan_most(work)) };
}

/*
 * Most often all fits where layers have homes. In training homes are no bound: where all
 * states stay, less may do.
 */
static berth_status
try_tier(const berthi_plan_work *work, const berthi_home_problem *problem, uint32_t tier,
         changes *best, berth_error *error)
{
    const change most = largest_change(work, tier);
    change homed = { .tier = BERTHI_NO_TIER, .raise = best->whole.raise };
    bool does = false;
    berth_status status;

    if (most.raise == UINT64_MAX)
        return BERTH_OK;
    if (work->input->train != NULL)
        return measure(work, problem, all_fits, 0, &best->whole, &most, error);
    status = measure(work, problem, are_homed, 0, &homed, &most, error);
    if (status != BERTH_OK || homed.tier == BERTHI_NO_TIER)
        return status;
    if (homed.raise < best->homed.raise)
        best->homed = homed;
    status = all_fits(work, problem, &homed, &does, error);
    if (status != BERTH_OK)
        return status;
    if (!does)
        return measure_close(work, problem, homed.raise, &best->whole, &most, error);
    best->whole = homed;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- refusal */

static berth_status
fail_short(const berthi_plan_work *work, const change *changed, const char *why,
           berth_error *error)
{
    const berthi_plan_tier_input *const input = &work->input->tiers[changed->tier];
    char name[BERTHI_TIER_NAME];
    char size[32];

    (void)berthi_tier_name(&input->tier, name);
    berthi_plan_raise_format(changed->raise, size);
    return berthi_fail(error, BERTH_REASON_NO_FIT,
                       &(berthi_about){ .tensor = name,
                                        .tensor_length = strlen(name),
                                        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                               | BERTH_HAS_BYTES,
                                        .expected = berthi_add_capped(input->budget,
                                                                      changed->raise),
                                        .actual = input->budget },
                       "is short of %s%s", size, why);
}

static const char smallest[] = ": the smallest change that would do";
static const char at_least[] =
    " at least, and other memory is short, too: give more to several";

/* " and disk of 1.00 KiB", behind the first one; of very many how many more there are. */
static void
list_others(const berthi_plan_work *work, const berthi_plan_growth *growth, uint32_t first,
            char *text, size_t capacity)
{
    uint32_t left = 0;
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t t = first + 1; t < work->input->tier_count; t++)
        left += growth->raise[t] > 0;
    for (uint32_t t = first + 1; left > 0; t++) {
        char name[BERTHI_TIER_NAME];
        char size[32];

        if (growth->raise[t] == 0)
            continue;
        if (left > 1 && capacity - length < 2 * OTHER_MOST) {
            (void)snprintf(text + length, capacity - length, " and %" PRIu32 " others", left);
            return;
        }
        (void)berthi_tier_name(&work->input->tiers[t].tier, name);
        berthi_plan_raise_format(growth->raise[t], size);
        length += (size_t)snprintf(text + length, capacity - length, "%s%s of %s",
                                   left == 1 ? " and " : ", ", name, size);
        left--;
    }
}

static void
keep_lacks(const berthi_plan_work *work, const berthi_plan_growth *growth)
{
    berthi_plan_lacks *const lacks = work->input->lacks;

    for (uint32_t t = 0; lacks != NULL && t < work->input->tier_count; t++) {
        const berthi_plan_tier_input *const input = &work->input->tiers[t];

        if (growth->raise[t] == 0)
            continue;
        lacks->at[lacks->count].tier = input->tier;
        lacks->at[lacks->count].budget = input->budget;
        lacks->at[lacks->count++].raise = growth->raise[t];
    }
}

/* All that are short, each whatever the others get; OK: that are not several. */
static berth_status
tell_several(const berthi_plan_work *work, berth_error *error)
{
    static const char together[] = ": the smallest changes that together would do";
    static const char each[] = " at least, and that is not all: give more to several";
    char others[BERTH_MESSAGE_CAPACITY - 64 - sizeof each];
    char why[sizeof others + sizeof each];
    berthi_plan_growth growth;
    change first = { .tier = 0 };
    bool is_enough;
    const berth_status status = berthi_plan_find_several(work, &growth, &is_enough, error);

    if (status != BERTH_OK)
        return status;
    while (first.tier < work->input->tier_count && growth.raise[first.tier] == 0)
        first.tier++;
    list_others(work, &growth, first.tier, others, sizeof others);
    if (others[0] == '\0')
        return BERTH_OK;
    keep_lacks(work, &growth);
    first.raise = growth.raise[first.tier];
    (void)snprintf(why, sizeof why, "%s%s", others, is_enough ? together : each);
    return fail_short(work, &first, why, error);
}

/* The smallest change of one tier where the known one does not do. */
static berth_status
try_others(const berthi_plan_work *work, const change *known, change *best,
           berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < input->tier_count && status == BERTH_OK; t++) {
        const change most = largest_change(work, t);
        const uint64_t low = t == known->tier ? known->raise : 0;

        if (input->tiers[t].budget != UINT64_MAX && most.raise != UINT64_MAX)
            status = measure(work, NULL, all_fits, low, best, &most, error);
    }
    return status;
}

/*
 * Other memory may be short, too, and what training leaves of one tier comes to another: what
 * would do is tried before it is told.
 */
static berth_status
refuse(const berthi_plan_work *work, const change *known, const char *why, berth_error *error)
{
    change best = { BERTHI_NO_TIER, UINT64_MAX };
    bool does = false;
    berth_status status = all_fits(work, NULL, known, &does, error);

    if (status == BERTH_OK && does)
        return fail_short(work, known, why, error);
    if (status == BERTH_OK)
        status = try_others(work, known, &best, error);
    if (status == BERTH_OK && best.tier == BERTHI_NO_TIER)
        status = tell_several(work, error);
    if (status != BERTH_OK)
        return status;
    return best.tier != BERTHI_NO_TIER ? fail_short(work, &best, smallest, error)
                                       : fail_short(work, known, at_least, error);
}

berth_status
berthi_plan_refuse(const berthi_plan_work *work, uint32_t tier, uint64_t bytes,
                   const char *why, berth_error *error)
{
    const change changed = { .tier = tier, .raise = berthi_plan_raise(work, tier, bytes) };

    if (work->input->is_trial || changed.raise == UINT64_MAX)
        return fail_short(work, &changed, why, error);
    return refuse(work, &changed, why, error);
}

/* The device that lacks least, most likely; the first of those alike. */
static uint32_t
largest_device(const berthi_home_problem *problem)
{
    uint32_t largest = 0;

    for (uint32_t d = 1; d < problem->device_count; d++)
        if (problem->devices[d].room > problem->devices[largest].room)
            largest = d;
    return largest;
}

/* Of any budget, however large: a share that is all of it, or no end of bytes. */
static bool
is_all_kept_free(const berthi_plan_work *work)
{
    const uint64_t most = UINT64_MAX - 1;

    for (uint32_t d = 0; d < work->device_count; d++)
        if (berthi_plan_reserve(&work->input->tiers[d], most) < most)
            return false;
    return true;
}

berth_status
berthi_plan_refuse_homes(const berthi_plan_work *work, const berthi_home_problem *problem,
                         berth_error *error)
{
    const uint32_t first = largest_device(problem);
    changes best = { { BERTHI_NO_TIER, UINT64_MAX }, { BERTHI_NO_TIER, UINT64_MAX } };
    berth_status status = BERTH_OK;

    if (work->input->is_trial)
        return berthi_fail(error, BERTH_REASON_NO_FIT, NULL, "it does not fit");
    /* Host memory is what is easiest to give: of changes as small, that one. */
    if (work->host != BERTHI_NO_TIER && !work->input->no_offload)
        status = try_tier(work, problem, work->host, &best, error);
    if (status == BERTH_OK)
        status = try_tier(work, problem, first, &best, error);
    for (uint32_t d = 0; d < problem->device_count && status == BERTH_OK; d++)
        if (d != first)
            status = try_tier(work, problem, d, &best, error);
    if (status != BERTH_OK)
        return status;
    if (best.whole.tier != BERTHI_NO_TIER)
        return fail_short(work, &best.whole, smallest, error);
    status = tell_several(work, error);
    if (status != BERTH_OK)
        return status;
    if (best.homed.tier != BERTHI_NO_TIER)
        return fail_short(work, &best.homed, at_least, error);
    if (is_all_kept_free(work))
        return berthi_fail(error, BERTH_REASON_NO_FIT, NULL,
                           "all that there is of devices is kept free: reserve less");
    return berthi_fail(error, BERTH_REASON_NO_FIT, NULL,
                       "no single tier can be large enough: give more to several");
}
