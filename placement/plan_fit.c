/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_fit.c - homes of layers, and where there are none the smallest change that
 * would make it fit: one tier with so many bytes more.
 */
#include <string.h>

#include "placement/plan.h"
#include "placement/plan_train.h"
#include "placement/slab.h"

#define CLOSE_BYTES  65536u /* of a few small tensors */
#define CLOSE_GROWTH 16u

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

/* With so much of host memory; all of the disk. */
static uint64_t
room_elsewhere(const berthi_plan_work *work, uint64_t host)
{
    if (work->input->no_offload)
        return 0;
    return work->disk != BERTHI_NO_TIER
               ? berthi_add_capped(host, work->usable[work->disk])
               : host;
}

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
        problem.elsewhere = room_elsewhere(work, usable);
    status = berthi_home_find(work->context, &problem, &found, error);
    *out_does = status == BERTH_OK && found.is_feasible;
    return status;
}

/* Homes are found by sums of bytes, but tensors lie somewhere as a whole. */
static berth_status
all_fits(const berthi_plan_work *work, const berthi_home_problem *given,
         const change *changed, bool *out_does, berth_error *error)
{
    berthi_plan_tier_input tiers[BERTHI_TIER_LIMIT];
    berthi_plan_input input = *work->input;
    berth_plan *plan;
    berth_status status;

    (void)given;
    memcpy(tiers, input.tiers, input.tier_count * sizeof *tiers);
    tiers[changed->tier].budget =
        berthi_add_capped(tiers[changed->tier].budget, changed->raise);
    input.tiers = tiers;
    input.is_trial = true;
    status = berthi_plan_make(work->context, &input, &plan, error);
    berthi_plan_free(plan);
    *out_does = status == BERTH_OK;
    return status == BERTH_ENOFIT ? BERTH_OK : status;
}

/* All that could have to go anywhere, with slots: enough for any tier. */
static uint64_t
enough(const berthi_home_problem *problem)
{
    uint64_t bytes = 0;

    for (uint32_t l = 0; l < problem->layer_count; l++) {
        const berthi_home_layer *const layer = &problem->layers[l];

        bytes += layer->fixed + (1 + BERTHI_STREAM_SLOTS_MAX) * layer->dense
                 + layer->experts + layer->idle + layer->expert_slot;
    }
    for (uint32_t d = 0; d < problem->device_count; d++)
        bytes += problem->devices[d].overhead;
    return berthi_slab_round(bytes);
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

/* Enough for any plan. */
static change
largest_change(const berthi_plan_work *work, const berthi_home_problem *problem,
               uint32_t tier)
{
    const berthi_train_input *const train = work->input->train;
    const uint64_t rings = tier == work->host ? berthi_plan_rings(work) : 0;
    const uint64_t states = train != NULL ? berthi_plan_train_most(train) : 0;
    const uint64_t bytes =
        berthi_add_capped(berthi_add_capped(enough(problem), rings), states);

    return (change){ tier, berthi_plan_raise(work, tier, bytes) };
}

/*
 * Most often all fits where layers have homes. In training homes are no bound: where all
 * states stay, less may do.
 */
static berth_status
try_tier(const berthi_plan_work *work, const berthi_home_problem *problem, uint32_t tier,
         changes *best, berth_error *error)
{
    const change most = largest_change(work, problem, tier);
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

/* The smallest change of one tier where the known one, of `bytes`, does not do. */
static berth_status
try_others(const berthi_plan_work *work, const change *known, uint64_t bytes, change *best,
           berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t enough_bytes =
        berthi_add_capped(berthi_add_capped(berthi_plan_train_most(input->train), bytes),
                          berthi_plan_rings(work));
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < input->tier_count && status == BERTH_OK; t++) {
        const change most = { t, berthi_plan_raise(work, t, enough_bytes) };
        const uint64_t low = t == known->tier ? known->raise : 0;

        if (input->tiers[t].budget != UINT64_MAX && most.raise != UINT64_MAX)
            status = measure(work, NULL, all_fits, low, best, &most, error);
    }
    return status;
}

/*
 * What training leaves of one tier comes to another, and with more memory some layers have
 * other homes: what would do is tried before it is told.
 */
static berth_status
refuse_training(const berthi_plan_work *work, const change *known, uint64_t bytes,
                const char *why, berth_error *error)
{
    change best = { BERTHI_NO_TIER, UINT64_MAX };
    bool does = false;
    berth_status status = all_fits(work, NULL, known, &does, error);

    if (status == BERTH_OK && does)
        return fail_short(work, known, why, error);
    if (status == BERTH_OK)
        status = try_others(work, known, bytes, &best, error);
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

    if (work->input->train == NULL || work->input->is_trial || changed.raise == UINT64_MAX)
        return fail_short(work, &changed, why, error);
    return refuse_training(work, &changed, bytes, why, error);
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

static berth_status
refuse(const berthi_plan_work *work, const berthi_home_problem *problem,
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
    if (best.homed.tier != BERTHI_NO_TIER)
        return fail_short(work, &best.homed, at_least, error);
    if (is_all_kept_free(work))
        return berthi_fail(error, BERTH_REASON_NO_FIT, NULL,
                           "all that there is of devices is kept free: reserve less");
    return berthi_fail(error, BERTH_REASON_NO_FIT, NULL,
                       "no single tier can be large enough: give more to several");
}

/* -------------------------------------------------------------------------- homes */

/* The same layers with embeddings that stay; false: not all can. */
static bool
can_stay(const berthi_home_problem *problem, berthi_home_layer *layers)
{
    uint64_t needed = 0;
    uint64_t room = 0;

    for (uint32_t l = 0; l < problem->layer_count; l++) {
        berthi_home_layer *const layer = &layers[l];

        *layer = problem->layers[l];
        if (layer->is_away)
            return false;
        layer->fixed += layer->idle;
        layer->idle = 0;
        needed += layer->fixed + layer->dense + layer->experts;
    }
    for (uint32_t d = 0; d < problem->device_count; d++)
        room = berthi_add_capped(room, problem->devices[d].room);
    return needed <= room;
}

/*
 * Rows cost next to nothing to fetch, so that homes are found with embeddings outside.
 * Where all stays on as few devices, with nothing to bring, those homes are taken.
 */
static berth_status
bring_home(berthi_plan_work *work, const berthi_home_problem *given,
           const berthi_homes *found, berth_error *error)
{
    const uint64_t bytes = given->layer_count * sizeof *work->homes;
    berthi_home_layer *const layers = berthi_arena_alloc(
        &work->arena, given->layer_count * sizeof *layers, sizeof(uint64_t));
    berthi_homes all = { .homes = berthi_arena_alloc(&work->arena, bytes, 4) };
    berthi_home_problem problem = *given;
    berth_status status;

    if (layers == NULL || all.homes == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    if (found->cost.nanoseconds > 0 || !can_stay(given, layers))
        return BERTH_OK;
    problem.layers = layers;
    problem.elsewhere = 0;
    status = berthi_home_find(work->context, &problem, &all, error);
    if (status == BERTH_OK && all.is_feasible && all.cost.cuts <= found->cost.cuts)
        memcpy(work->homes, all.homes, bytes);
    return status;
}

/* What homes are searched for; `devices` has BERTHI_HOME_DEVICES. */
static berthi_home_problem
describe(const berthi_plan_work *work, berthi_home_device *devices)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t host =
        work->host != BERTHI_NO_TIER ? work->usable[work->host] : 0;
    berthi_home_problem problem = { .layers = work->sums,
                                    .layer_count = input->layer_count,
                                    .devices = devices,
                                    .device_count = work->device_count,
                                    .elsewhere = room_elsewhere(work, host),
                                    .slots = input->slots };

    for (uint32_t d = 0; d < work->device_count; d++)
        devices[d] = (berthi_home_device){ .room = work->usable[d],
                                           .overhead = input->activations + work->own[d],
                                           .rate = input->tiers[d].link_rate };
    if (input->expert_count > 0)
        problem.expert_share = (uint32_t)berthi_min_u64(
            ((uint64_t)berthi_plan_experts(input) << 32) / input->expert_count,
            UINT32_MAX);
    return problem;
}

static berth_status
take(berthi_plan_work *work, const berthi_home_problem *problem, const berthi_homes *found,
     berth_error *error)
{
    work->plan->summary.is_proved = found->is_proved;
    return bring_home(work, problem, found, error);
}

berth_status
berthi_plan_probe_homes(berthi_plan_work *work, bool *out_all_stay, berth_error *error)
{
    berthi_home_device devices[BERTHI_HOME_DEVICES];
    const berthi_home_problem problem = describe(work, devices);
    berthi_homes found = { .homes = work->homes };
    const berth_status status = berthi_home_find(work->context, &problem, &found, error);

    *out_all_stay =
        status == BERTH_OK && found.is_feasible && found.cost.nanoseconds == 0;
    return *out_all_stay ? take(work, &problem, &found, error) : status;
}

berth_status
berthi_plan_find_homes(berthi_plan_work *work, berth_error *error)
{
    berthi_home_device devices[BERTHI_HOME_DEVICES];
    berthi_home_problem problem = describe(work, devices);
    berthi_homes found = { .homes = work->homes };
    berth_status status = berthi_home_find(work->context, &problem, &found, error);

    if (status == BERTH_OK && !found.is_feasible && problem.slots == 0) {
        problem.slots = 1; /* nothing is brought ahead, but it runs */
        status = berthi_home_find(work->context, &problem, &found, error);
    }
    if (status != BERTH_OK)
        return status;
    if (!found.is_feasible)
        return refuse(work, &problem, error);
    return take(work, &problem, &found, error);
}
