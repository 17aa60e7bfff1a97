/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_train_place.c - states beside their parameters, as far as there is room; the rest
 * in host memory, then on the disk.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "placement/plan_train.h"
#include "placement/slab.h"
#include "placement/states_stay.h"

/* States that could all be in one memory, and leave it for another. */
typedef struct choosing {
    berthi_plan_work *work;
    berthi_plan_training *training;
    berthi_trained **trained;
    uint64_t *bytes;     /* that each takes there */
    uint8_t *stays;
    uint32_t count;
    uint64_t all;        /* bytes */
    uint64_t page;       /* the largest */
    uint64_t over;       /* bytes that a map has there beyond the budget */
} choosing;

/* `fixed`: bytes of training that stay on the tier. */
static void
begin(choosing *c, uint32_t tier, uint64_t fixed)
{
    const berth_plan_tier *const about = &c->work->plan->tiers[tier];
    const uint64_t taken = berthi_plan_taken(about) - about->training + fixed;

    c->count = 0;
    c->all = 0;
    c->page = 0;
    c->over = about->budget != UINT64_MAX && taken > about->budget ? taken - about->budget : 0;
}

static void
add(choosing *c, berthi_trained *trained, bool is_pinned)
{
    const berth_plan_training *const about = &c->training->about;
    const berthi_states states = berthi_trained_states(about, trained);
    uint64_t bytes = berthi_states_bytes(&states);

    if (is_pinned)
        bytes = berthi_states_buffer_bytes(bytes, about->page_bytes);
    c->trained[c->count] = trained;
    c->bytes[c->count++] = bytes;
    c->all += bytes;
    c->page = berthi_max_u64(c->page, berthi_states_page_bytes(&states));
}

/*
 * What `bytes` more of a tier take: of host memory with the rings of GPUs, which come off
 * what can be used: an eighth of it, up to their size.
 */
static uint64_t
with_rings(const berthi_plan_work *work, uint32_t tier, uint64_t bytes)
{
    const uint64_t rings = berthi_plan_rings(work);
    const uint64_t used = work->usable[tier] + bytes;

    if (tier != work->host)
        return bytes;
    return bytes + berthi_min_u64(rings, used / 7 + 2 * BERTHI_SLAB_ALIGNMENT);
}

/* Sends to `place` what does not stay in `room`; `beside` is taken of it then. */
static berth_status
choose(choosing *c, uint32_t tier, uint64_t room, uint64_t beside, uint8_t place,
       berth_error *error)
{
    if (c->all <= room)
        return BERTH_OK;
    if (room < beside)
        return berthi_plan_refuse(c->work, tier,
                                  with_rings(c->work, tier,
                                             berthi_min_u64(c->all, beside) - room),
                                  " for pages of states on their way: give it so much more",
                                  error);
    if (!berthi_states_can_choose(&c->work->arena, c->bytes, c->count, room - beside,
                                  c->stays))
        return berthi_fail_memory(error, "placing states");
    for (uint32_t i = 0; i < c->count; i++)
        if (c->stays[i] == 0)
            c->trained[i]->place = place;
    return BERTH_OK;
}

/* What a map has put there is too much, `bytes` of states beside it. */
static berth_status
refuse_map(const choosing *c, uint32_t tier, uint64_t bytes, berth_error *error)
{
    return berthi_plan_refuse(c->work, tier, bytes,
                              " for what the map puts there and training needs beside it: "
                              "give it so much more",
                              error);
}

static berth_status
refuse(const choosing *c, uint32_t tier, uint64_t bytes, berth_error *error)
{
    char why[128];

    (void)snprintf(why, sizeof why,
                   " for states of %" PRIu32 " parameters: give it so much more, or a disk",
                   c->count);
    return berthi_plan_refuse(c->work, tier, bytes, why, error);
}

/* ------------------------------------------------------------------------ devices */

/* What of training cannot leave. */
static uint64_t
fixed_on(const berth_plan *plan, uint32_t device)
{
    const berth_plan_training_tier *const training = &plan->training->tiers[device];

    return training->adapters + training->gradients + training->states + training->scratch;
}

/* Room for states that can; what cannot has its own: nothing is over. */
static uint64_t
room_on(const berth_plan *plan, uint32_t device)
{
    const berth_plan_tier *const tier = &plan->tiers[device];

    return tier->budget == UINT64_MAX ? UINT64_MAX : tier->free - fixed_on(plan, device);
}

static berth_status
place_on(choosing *c, uint32_t device, berth_error *error)
{
    const berthi_plan_work *const work = c->work;
    const berth_plan *const plan = work->plan;
    const bool is_gpu = plan->tiers[device].kind == BERTH_TIER_GPU;
    const uint8_t away = is_gpu && work->host != BERTHI_NO_TIER ? BERTH_STATES_HOST
                                                                : BERTH_STATES_DISK;
    const bool can_leave = work->input->train->may_leave
                           && (away == BERTH_STATES_HOST || work->disk != BERTHI_NO_TIER);
    uint64_t beside;
    uint64_t room;

    begin(c, device, fixed_on(plan, device));
    for (uint64_t i = 0; i < c->training->about.parameter_count; i++) {
        berthi_trained *const trained = &c->training->trained[i];

        if (berthi_trained_can_leave(trained)
            && berthi_trained_tier(plan, trained) == device)
            add(c, trained, false);
    }
    beside = is_gpu ? BERTHI_STATES_SLOTS * berthi_states_slot_bytes(c->page)
                    : BERTHI_STATES_BUFFERS
                          * berthi_states_buffer_bytes(c->page,
                                                       c->training->about.page_bytes);
    if (c->over > 0)
        return refuse_map(c, device,
                          c->over + (can_leave ? berthi_min_u64(c->all, beside) : c->all),
                          error);
    room = room_on(plan, device);
    if (c->all > room && !can_leave)
        return refuse(c, device, c->all - room, error);
    return choose(c, device, room, beside, away, error);
}

/* -------------------------------------------------------------------- host memory */

static berth_status
place_in_host(choosing *c, berth_error *error)
{
    const berthi_plan_work *const work = c->work;
    const uint64_t page = c->training->about.page_bytes;
    uint64_t beside;
    uint64_t room;

    begin(c, work->host, 0);
    for (uint64_t i = 0; i < c->training->about.parameter_count; i++)
        if (c->training->trained[i].place == BERTH_STATES_HOST)
            add(c, &c->training->trained[i], true);
    beside = BERTHI_STATES_BUFFERS * berthi_states_buffer_bytes(c->page, page);
    if (c->over > 0)
        return refuse_map(c, work->host,
                          with_rings(work, work->host,
                                     c->over
                                         + (work->disk == BERTHI_NO_TIER
                                                ? c->all
                                                : berthi_min_u64(c->all, beside))),
                          error);
    room = work->plan->tiers[work->host].free;
    if (c->all > room && work->disk == BERTHI_NO_TIER)
        return refuse(c, work->host, with_rings(work, work->host, c->all - room), error);
    return choose(c, work->host, room, beside, BERTH_STATES_DISK, error);
}

static berth_status
check_disk(choosing *c, berth_error *error)
{
    const berthi_plan_work *const work = c->work;

    begin(c, work->disk, 0);
    for (uint64_t i = 0; i < c->training->about.parameter_count; i++)
        if (c->training->trained[i].place == BERTH_STATES_DISK)
            add(c, &c->training->trained[i], false);
    if (c->over > 0)
        return refuse_map(c, work->disk, c->over + c->all, error);
    if (c->all <= work->plan->tiers[work->disk].free)
        return BERTH_OK;
    return refuse(c, work->disk, c->all - work->plan->tiers[work->disk].free, error);
}

/* -------------------------------------------------------------------------- call */

static bool
can_begin(choosing *c)
{
    const berthi_train_input *const train = c->work->input->train;
    berthi_arena *const arena = &c->work->arena;
    const uint64_t count = train->count + UINT64_C(1);
    berth_plan *const plan = c->work->plan;

    c->trained = berthi_arena_alloc(arena, count * sizeof *c->trained, 8);
    c->bytes = berthi_arena_alloc(arena, count * sizeof *c->bytes, 8);
    c->stays = berthi_arena_alloc(arena, count, 1);
    if (c->trained == NULL || c->bytes == NULL || c->stays == NULL
        || !berthi_plan_can_train(plan, train->count))
        return false;
    c->training = plan->training;
    c->training->about = train->about;
    c->training->about.parameter_count = train->count;
    c->training->about.optimizer = berthi_arena_text(&plan->arena, train->about.optimizer,
                                                     strlen(train->about.optimizer));
    c->training->about.targets =
        berthi_arena_text(&plan->arena, train->about.targets, strlen(train->about.targets));
    if (train->count > 0)
        memcpy(c->training->trained, train->trained,
               train->count * sizeof *c->training->trained);
    return c->training->about.optimizer != NULL && c->training->about.targets != NULL;
}

/* What stays on devices in any case: states that cannot leave, counted alone. */
static void
sum_fixed(choosing *c)
{
    const uint64_t count = c->training->about.parameter_count;
    berthi_plan_training *const training = c->training;
    berth_plan *const plan = c->work->plan;

    berthi_plan_train_sum(plan);
    for (uint64_t i = 0; i < count; i++) {
        const berthi_trained *const trained = &training->trained[i];
        const berthi_states states = berthi_trained_states(&training->about, trained);

        if (berthi_trained_can_leave(trained))
            training->tiers[berthi_trained_tier(plan, trained)].states -=
                berthi_states_bytes(&states);
    }
}

berth_status
berthi_plan_train_place(berthi_plan_work *work, berth_error *error)
{
    choosing c = { .work = work };
    berth_status status = BERTH_OK;

    if (work->input->train == NULL)
        return BERTH_OK;
    if (!can_begin(&c))
        return berthi_fail_memory(error, "placing states");
    sum_fixed(&c);
    for (uint32_t d = 0; d < work->device_count && status == BERTH_OK; d++)
        status = place_on(&c, d, error);
    if (status == BERTH_OK && work->host != BERTHI_NO_TIER)
        status = place_in_host(&c, error);
    if (status == BERTH_OK && work->disk != BERTHI_NO_TIER)
        status = check_disk(&c, error);
    if (status == BERTH_OK)
        berthi_plan_sum(work->plan);
    return status;
}
