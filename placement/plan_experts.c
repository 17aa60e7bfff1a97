/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_experts.c - what is left of a device when all else has its place: experts that
 * stay, or slots that any of them may lie in.
 *
 * Where all are as likely, slots are hit as often as the same experts would be that
 * stay, and where some are used again soon, more often. But what has a slot lies
 * elsewhere, too. So experts leave the device as long as there is room for them, and
 * what is brought is no more for it.
 */
#include "placement/plan.h"

#include <string.h>

/* What is brought is the same if it differs by no more of it. */
#define SAME 1e-9

/* Experts of the layers of one device. */
typedef struct tally {
    uint32_t *kept_count;  /* with at most so many in each layer; by that number */
    uint64_t *kept_bytes;
    uint32_t *most_away;   /* in a layer then, of those that have more */
    uint32_t rounds;       /* the most that stay in a layer now */
    uint32_t away_count;   /* now */
    uint64_t away_bytes;
    uint64_t away_largest;
    uint64_t largest;      /* of all of them */
    uint32_t layers;       /* that have some */
    uint32_t most;         /* in a layer that are away now */
    bool is_encoded;       /* a plain copy of one that stays would not do */
} tally;

/* How it is divided. */
typedef struct division {
    uint32_t kept;   /* in each layer, at most */
    uint32_t slots;
    uint32_t away;
    uint64_t slot_bytes;
    bool is_enough;  /* slots, for one request */
    double hits;
    double brought;  /* bytes that all requests together would not find */
} division;

double
berthi_plan_expert_hits(uint64_t slots, uint64_t away, uint64_t layers, uint64_t used)
{
    if (slots >= away)
        return 1;
    if (slots >= layers * used)
        return (double)slots / (double)away;
    return slots > used ? (double)(slots - used) / (double)(away - used) : 0;
}

bool
berthi_plan_has_given_hits(const berthi_plan_work *work, uint32_t device)
{
    const berthi_stream_result *const settled = &work->settled[device];

    return work->input->has_hits && settled->expert_slots > 0
           && settled->expert_slots < settled->experts_away;
}

/* ------------------------------------------------------------------------- tally */

static uint64_t
group_bytes(const berthi_plan_work *work, uint32_t begin, uint32_t end)
{
    uint64_t bytes = 0;

    for (uint32_t i = begin; i < end; i++)
        bytes += work->input->tensors[i].bytes;
    return bytes;
}

static bool
is_expert(const berthi_plan_tensor *tensor)
{
    return tensor->kind == BERTHI_PIECE_EXPERT && tensor->tie == BERTHI_NO_TIE;
}

static void
count_layer(const berthi_plan_work *work, uint32_t layer, tally *t)
{
    uint32_t before = BERTHI_NO_EXPERT; /* that is away */
    uint64_t away = 0;                  /* of it */
    uint32_t kept = 0;
    uint32_t count = 0; /* away */

    for (uint32_t i = work->first[layer], end; i < work->first[layer + 1]; i = end) {
        const berthi_plan_tensor *const tensor = &work->input->tensors[i];
        uint64_t bytes;
        bool is_more = false;

        end = berthi_plan_group_end(work, i);
        bytes = group_bytes(work, i, end);
        if (!is_expert(tensor) || bytes == 0)
            continue;
        if (work->tier_of[i] >= work->device_count) {
            is_more = tensor->expert == before && before != BERTHI_NO_EXPERT;
            before = tensor->expert;
            away = is_more ? away + bytes : bytes;
            t->away_count += !is_more;
            count += !is_more;
            t->away_bytes += bytes;
            t->away_largest = berthi_max_u64(t->away_largest, away);
        } else if (tensor->tier == BERTHI_NO_TIER) {
            t->kept_count[++kept]++;
            t->kept_bytes[kept] += bytes;
            t->is_encoded |= tensor->scratch > 0;
        } else {
            continue; /* bound to where it lies */
        }
        t->largest = berthi_max_u64(t->largest, is_more ? away : bytes);
    }
    for (uint32_t n = 0; n < kept; n++)
        t->most_away[n] = (uint32_t)berthi_max_u64(t->most_away[n], count + kept - n);
    t->layers += count + kept > 0;
    t->most = (uint32_t)berthi_max_u64(t->most, count);
    t->rounds = (uint32_t)berthi_max_u64(t->rounds, kept);
}

static void
count(const berthi_plan_work *work, uint32_t device, uint32_t most, tally *t)
{
    uint32_t *const kept_count = t->kept_count;
    uint64_t *const kept_bytes = t->kept_bytes;
    uint32_t *const most_away = t->most_away;

    memset(kept_count, 0, (most + UINT64_C(1)) * sizeof *kept_count);
    memset(kept_bytes, 0, (most + UINT64_C(1)) * sizeof *kept_bytes);
    memset(most_away, 0, (most + UINT64_C(1)) * sizeof *most_away);
    *t = (tally){ .kept_count = kept_count, .kept_bytes = kept_bytes,
                  .most_away = most_away };
    for (uint32_t l = 0; l < work->input->layer_count; l++)
        if (work->homes[l] == device)
            count_layer(work, l, t);
    for (uint32_t n = 2; n <= t->rounds; n++) { /* one alone is its own sum */
        kept_count[n] += kept_count[n - 1];
        kept_bytes[n] += kept_bytes[n - 1];
    }
}

/* ------------------------------------------------------------------------ divide */

/* With `kept` experts in each layer; `room`: what no expert that stays takes now. */
static division
divide(const berthi_plan_work *work, const tally *t, uint64_t room, uint32_t kept)
{
    const uint64_t moved = t->kept_bytes[t->rounds] - t->kept_bytes[kept];
    const uint32_t used = berthi_plan_experts(work->input);
    division d = { .kept = kept };

    d.away = t->away_count + t->kept_count[t->rounds] - t->kept_count[kept];
    d.slot_bytes = kept < t->rounds ? t->largest : t->away_largest;
    if (d.away == 0)
        return d;
    d.slots = (uint32_t)berthi_min_u64((room + moved) / d.slot_bytes, d.away);
    d.is_enough = d.slots >= berthi_min_u64(used, berthi_max_u64(t->most_away[kept],
                                                                 t->most));
    d.hits = berthi_plan_expert_hits(d.slots, d.away, t->layers, used);
    d.brought = (double)(t->away_bytes + moved) * (1 - d.hits);
    return d;
}

/*
 * The one that brings least; of those that bring as much, if they bring anything, the one
 * with most slots.
 */
static division
choose(const berthi_plan_work *work, const tally *t, uint64_t room, uint64_t elsewhere)
{
    division best = divide(work, t, room, t->rounds);

    for (uint32_t kept = t->rounds; kept-- > 0;) {
        const division d = divide(work, t, room, kept);

        if (best.brought <= 0 || t->kept_bytes[t->rounds] - t->kept_bytes[kept] > elsewhere)
            break;
        if (d.is_enough && (d.brought <= best.brought * (1 + SAME) || !best.is_enough))
            best = d;
    }
    return best;
}

/* Those that stay no longer go to `tier`. Returns their bytes. */
static uint64_t
move(berthi_plan_work *work, const division *d, uint32_t device, uint32_t tier)
{
    uint64_t moved = 0;

    for (uint32_t l = 0; l < work->input->layer_count; l++) {
        uint32_t kept = 0;

        if (work->homes[l] != device)
            continue;
        for (uint32_t i = work->first[l], end; i < work->first[l + 1]; i = end) {
            const berthi_plan_tensor *const tensor = &work->input->tensors[i];
            uint64_t bytes;

            end = berthi_plan_group_end(work, i);
            if (!is_expert(tensor) || tensor->tier != BERTHI_NO_TIER
                || work->tier_of[i] != device)
                continue;
            bytes = group_bytes(work, i, end);
            if (bytes == 0 || kept++ < d->kept)
                continue;
            for (uint32_t k = i; k < end; k++)
                work->tier_of[k] = tier;
            moved += bytes;
        }
    }
    return moved;
}

/* ------------------------------------------------------------------------- tiers */

/* Bytes by which what is taken of a tier is less than its room. */
static uint64_t
room_of(const berthi_plan_work *work, uint32_t tier, uint64_t taken)
{
    if (work->usable[tier] == UINT64_MAX)
        return UINT64_MAX / 4;
    return work->usable[tier] - berthi_min_u64(taken, work->usable[tier]);
}

/* Beside the bytes that lie there. */
static uint64_t
room_on_device(const berthi_plan_work *work, uint32_t device, uint64_t lying)
{
    const berthi_stream_result *const settled = &work->settled[device];
    uint64_t taken = work->input->activations + work->own[device]
                     + settled->slots * settled->slot_bytes + lying;

    for (uint32_t l = 0; l < work->input->layer_count; l++)
        if (work->homes[l] == device)
            taken += work->input->layers[l].cache + work->kept[l];
    return room_of(work, device, taken);
}

/* Where experts are brought from, if all of them are. */
static uint32_t
source_of(const berthi_plan_work *work)
{
    if (work->host == BERTHI_NO_TIER)
        return work->disk;
    for (uint32_t i = 0; i < work->input->tensor_count; i++)
        if (work->tier_of[i] == work->disk && is_expert(&work->input->tensors[i]))
            return BERTHI_NO_TIER; /* one more from there costs more than it is worth */
    return work->host;
}

static uint32_t
largest_layer(const berthi_plan_work *work)
{
    uint32_t most = 0;

    for (uint32_t l = 0; l < work->input->layer_count; l++)
        most = (uint32_t)berthi_max_u64(most, work->first[l + 1] - work->first[l]);
    return most;
}

berth_status
berthi_plan_divide_experts(berthi_plan_work *work, berth_error *error)
{
    const uint32_t source = source_of(work);
    const uint32_t most = largest_layer(work);
    uint64_t lying[BERTHI_TIER_LIMIT]; /* bytes on each tier */
    tally t;

    if (work->input->expert_count == 0)
        return BERTH_OK;
    t.kept_count = berthi_arena_alloc(
        &work->arena, (most + UINT64_C(1)) * sizeof *t.kept_count, 4);
    t.kept_bytes = berthi_arena_alloc(
        &work->arena, (most + UINT64_C(1)) * sizeof *t.kept_bytes, 8);
    t.most_away = berthi_arena_alloc(
        &work->arena, (most + UINT64_C(1)) * sizeof *t.most_away, 4);
    if (t.kept_count == NULL || t.kept_bytes == NULL || t.most_away == NULL)
        return berthi_fail_memory(error, "placing experts");
    berthi_plan_sum_tiers(work, lying);
    for (uint32_t d = 0; d < work->device_count; d++) {
        berthi_stream_result *const settled = &work->settled[d];
        uint64_t elsewhere = 0;
        division chosen;

        count(work, d, most, &t);
        /* Training takes all of them in each pass, and host memory for states. */
        if (work->input->train == NULL && source != BERTHI_NO_TIER
            && (source == work->host || !t.is_encoded))
            elsewhere = room_of(work, source, lying[source]);
        chosen = choose(work, &t, room_on_device(work, d, lying[d]), elsewhere);
        if (chosen.kept < t.rounds)
            lying[source] += move(work, &chosen, d, source);
        settled->expert_slot_bytes = chosen.slots * chosen.slot_bytes;
        settled->expert_slots = chosen.slots;
        settled->experts_away = chosen.away;
        settled->expert_hits = chosen.hits;
        if (berthi_plan_has_given_hits(work, d))
            settled->expert_hits = (double)work->input->expert_hits / 1e9;
    }
    return BERTH_OK;
}
