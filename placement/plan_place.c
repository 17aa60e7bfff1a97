/* SPDX-License-Identifier: Apache-2.0 */
/* plan_place.c - what of each layer stays on its home, and where the rest goes. */
#include "placement/plan.h"

#include <string.h>

#include "placement/slab.h"

/* Which device's pieces are which tensors. */
typedef struct pieces {
    berthi_stream_piece *pieces;
    uint32_t *first;  /* of a piece: tensor; its tensors follow one another */
    uint32_t count;
    uint32_t *layers; /* of the device, by their number there */
    double *compute;
    uint32_t layer_count;
    uint64_t cache;   /* of its layers, with what they keep for training */
} pieces;

/* ------------------------------------------------------------------------ pieces */

/* As what a tensor takes part in the device's choice; false: not at all. */
static bool
is_choice(const berthi_plan_work *work, const berthi_plan_tensor *tensor, uint32_t device,
          uint8_t *out_kind)
{
    *out_kind = tensor->kind;
    if (tensor->tie != BERTHI_NO_TIE)
        return false;
    if (tensor->tier == BERTHI_NO_TIER)
        return true;
    if (tensor->tier == device) {
        *out_kind = BERTHI_PIECE_FIXED;
        return true;
    }
    *out_kind = BERTHI_PIECE_AWAY;
    /* On another device it is computed there; rows and experts need no slot. */
    return tensor->tier >= work->device_count && tensor->kind != BERTHI_PIECE_IDLE
           && tensor->kind != BERTHI_PIECE_EXPERT;
}

static bool
is_same_expert(const berthi_plan_tensor *a, const berthi_plan_tensor *b)
{
    return a->expert != BERTHI_NO_EXPERT && a->expert == b->expert && a->tier == b->tier;
}

static void
add_layer(const berthi_plan_work *work, uint32_t device, uint32_t layer, pieces *p)
{
    const berthi_plan_input *const input = work->input;
    const berthi_plan_tensor *before = NULL;

    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];
        uint8_t kind;

        if (!is_choice(work, tensor, device, &kind)) {
            before = NULL;
            continue;
        }
        if (before != NULL && is_same_expert(before, tensor)) {
            p->pieces[p->count - 1].bytes += tensor->bytes;
        } else {
            p->first[p->count] = i;
            p->pieces[p->count++] = (berthi_stream_piece){ .bytes = tensor->bytes,
                                                    .layer = p->layer_count,
                                                    .kind = kind };
        }
        before = tensor;
    }
    p->cache += input->layers[layer].cache + work->kept[layer];
    p->compute[p->layer_count] = berthi_plan_compute(work, layer);
    p->layers[p->layer_count++] = layer;
}

static bool
can_collect(berthi_plan_work *work, uint32_t device, pieces *p)
{
    const berthi_plan_input *const input = work->input;

    p->count = 0;
    p->layer_count = 0;
    p->cache = 0;
    for (uint32_t l = 0; l < input->layer_count; l++)
        if (work->homes[l] == device)
            add_layer(work, device, l, p);
    return p->layer_count > 0;
}

/* ------------------------------------------------------------------------ settle */

/* Tensors of the pieces, which are one behind the other. */
static void
mark(berthi_plan_work *work, uint32_t device, const pieces *p)
{
    for (uint32_t k = 0; k < p->count; k++) {
        const uint32_t layer = p->layers[p->pieces[k].layer];
        const uint32_t end = k + 1 < p->count && p->pieces[k + 1].layer == p->pieces[k].layer
                                 ? p->first[k + 1]
                                 : work->first[layer + 1];

        if (!p->pieces[k].is_resident)
            continue;
        for (uint32_t i = p->first[k]; i < end; i++)
            if (work->input->tensors[i].tier == BERTHI_NO_TIER
                && work->input->tensors[i].tie == BERTHI_NO_TIE)
                work->tier_of[i] = device;
    }
}

static berth_status
settle(berthi_plan_work *work, uint32_t device, pieces *p, berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t taken = input->activations + work->own[device] + p->cache;
    const uint64_t usable = work->usable[device];
    berthi_stream_device stream = {
        .pieces = p->pieces,
        .piece_count = p->count,
        .layer_count = p->layer_count,
        .compute = p->compute,
        .room = usable == UINT64_MAX ? UINT64_MAX / 4 : usable > taken ? usable - taken : 0,
        .rate = input->tiers[device].link_rate,
        .expert_count = input->expert_count,
        .experts_used = berthi_plan_experts(input),
        .slots = input->slots,
        .alignment = BERTHI_SLAB_ALIGNMENT,
    };
    berth_status status;

    status = berthi_stream_settle(work->context, &stream, &work->settled[device], error);
    if (status == BERTH_OK && input->is_mapped && work->settled[device].missing > 0) {
        stream.room += work->settled[device].missing; /* followed, whatever fits */
        work->is_short = true;
        status =
            berthi_stream_settle(work->context, &stream, &work->settled[device], error);
    }
    if (status == BERTH_OK && work->settled[device].missing > 0)
        return berthi_plan_refuse(work, device, work->settled[device].missing,
                                  " for what is bound to it and for its slots: give it so "
                                  "much more",
                                  error);
    if (status == BERTH_OK)
        mark(work, device, p);
    return status;
}

/* --------------------------------------------------------------------- elsewhere */

/* Tensors of one kind that have no tier yet. */
typedef struct left {
    uint64_t bytes;
    uint32_t count;
} left;

static void
sum_left(const berthi_plan_work *work, left by_kind[BERTHI_PIECE_KINDS])
{
    const berthi_plan_input *const input = work->input;

    memset(by_kind, 0, BERTHI_PIECE_KINDS * sizeof *by_kind);
    for (uint32_t i = 0; i < input->tensor_count; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];

        if (work->tier_of[i] != BERTHI_NO_TIER || tensor->tie != BERTHI_NO_TIE)
            continue;
        by_kind[tensor->kind].bytes += tensor->bytes;
        by_kind[tensor->kind].count++;
    }
}

void
berthi_plan_sum_tiers(const berthi_plan_work *work, uint64_t *bytes)
{
    const berthi_plan_input *const input = work->input;

    memset(bytes, 0, input->tier_count * sizeof *bytes);
    for (uint32_t i = 0; i < input->tensor_count; i++)
        if (work->tier_of[i] != BERTHI_NO_TIER && input->tensors[i].tie == BERTHI_NO_TIE)
            bytes[work->tier_of[i]] += input->tensors[i].bytes;
}

uint32_t
berthi_plan_group_end(const berthi_plan_work *work, uint32_t i)
{
    const berthi_plan_tensor *const tensors = work->input->tensors;
    uint32_t next = i + 1;
    uint32_t end;

    if (tensors[i].expert == BERTHI_NO_EXPERT)
        return next;
    end = work->first[tensors[i].layer + 1];
    while (next < end && is_same_expert(&tensors[i], &tensors[next])
           && work->tier_of[next] == work->tier_of[i])
        next++;
    return next;
}

/* What host memory and the disk have left. */
typedef struct rooms {
    uint64_t host;
    uint64_t disk;
} rooms;

/*
 * Sends those of a kind that are left to host memory, as far as its room goes, spread
 * evenly over the layers; the rest to the disk, until that is full.
 */
static void
spread(berthi_plan_work *work, uint8_t kind, uint64_t all, rooms *room)
{
    const berthi_plan_input *const input = work->input;
    const bool is_all = room->host >= all || work->disk == BERTHI_NO_TIER;
    const double share = is_all ? 1.0 : (double)room->host / (double)all;
    double due = 0;

    for (uint32_t i = 0; i < input->tensor_count;) {
        uint64_t bytes = 0;
        uint32_t end;
        bool is_host;

        if (input->tensors[i].kind != kind || work->tier_of[i] != BERTHI_NO_TIER
            || input->tensors[i].tie != BERTHI_NO_TIE) {
            i++;
            continue;
        }
        end = berthi_plan_group_end(work, i);
        for (uint32_t k = i; k < end; k++)
            bytes += input->tensors[k].bytes;
        due += (double)bytes * share;
        is_host = bytes <= room->host
                  && (is_all || due >= (double)bytes / 2 || bytes > room->disk);
        if (is_host) {
            due -= (double)bytes;
            room->host -= bytes;
        } else {
            room->disk -= berthi_min_u64(bytes, room->disk);
        }
        for (; i < end; i++)
            work->tier_of[i] = is_host ? work->host : work->disk;
    }
}

/* Beside what is bound to the tier; 0: there is no such tier. */
static uint64_t
room_of(const berthi_plan_work *work, uint32_t tier, const uint64_t *bound)
{
    if (tier == BERTHI_NO_TIER)
        return 0;
    if (work->usable[tier] == UINT64_MAX)
        return UINT64_MAX / 4;
    return work->usable[tier] - berthi_min_u64(work->usable[tier], bound[tier]);
}

static void
place_rest(berthi_plan_work *work)
{
    static const uint8_t order[] = { BERTHI_PIECE_IDLE, BERTHI_PIECE_FIXED,
                                     BERTHI_PIECE_DENSE, BERTHI_PIECE_AWAY,
                                     BERTHI_PIECE_EXPERT };
    uint64_t bound[BERTHI_TIER_LIMIT];
    left by_kind[BERTHI_PIECE_KINDS];
    rooms room;

    sum_left(work, by_kind);
    berthi_plan_sum_tiers(work, bound);
    room.host = room_of(work, work->host, bound);
    room.disk = room_of(work, work->disk, bound);
    for (uint32_t i = 0; i < sizeof order; i++)
        if (by_kind[order[i]].count > 0)
            spread(work, order[i], by_kind[order[i]].bytes, &room);
}

/* -------------------------------------------------------------------------- calls */

static bool
can_alloc(berthi_plan_work *work, pieces *p)
{
    const uint64_t tensors = work->input->tensor_count + UINT64_C(1);
    const uint64_t layers = work->input->layer_count;

    p->pieces = berthi_arena_alloc(&work->arena, tensors * sizeof *p->pieces, 8);
    p->first = berthi_arena_alloc(&work->arena, tensors * sizeof *p->first, 4);
    p->layers = berthi_arena_alloc(&work->arena, layers * sizeof *p->layers, 4);
    p->compute = berthi_arena_alloc(&work->arena, layers * sizeof *p->compute, 8);
    return p->pieces != NULL && p->first != NULL && p->layers != NULL
           && p->compute != NULL;
}

/* Host memory is short: what lies there, and so much that has no place, is `bytes`. */
static berth_status
refuse_host(const berthi_plan_work *work, uint64_t bytes, const char *why, berth_error *error)
{
    const uint64_t wanted = berthi_add_capped(bytes, berthi_plan_rings_beside(work, bytes));

    return berthi_plan_refuse(work, work->host,
                              wanted - berthi_min_u64(wanted, work->usable[work->host]), why,
                              error);
}

/*
 * Homes are found by sums of bytes, host memory and disk together. But tensors stay or go as
 * a whole, and some are bound to one of the two: what then lies there may be too much for it,
 * or the last tensor finds no place in host memory.
 */
static berth_status
check_rest(const berthi_plan_work *work, berth_error *error)
{
    left by_kind[BERTHI_PIECE_KINDS];
    uint64_t lying[BERTHI_TIER_LIMIT];
    uint64_t bytes = 0;
    uint32_t count = 0;

    sum_left(work, by_kind);
    for (uint32_t i = 0; i < BERTHI_PIECE_KINDS; i++) {
        bytes += by_kind[i].bytes;
        count += by_kind[i].count;
    }
    if (count > 0 && work->host == BERTHI_NO_TIER)
        return berthi_fail(error, BERTH_REASON_NO_FIT, NULL,
                           "what no device has room for has no place: give memory of cpu, or "
                           "a disk");
    berthi_plan_sum_tiers(work, lying);
    if (count > 0)
        return refuse_host(work, lying[work->host] + bytes,
                           " for what no device has room for: give it so much more, or a disk",
                           error);
    if (work->input->is_mapped) /* followed, whatever fits */
        return BERTH_OK;
    if (work->host != BERTHI_NO_TIER && lying[work->host] > work->usable[work->host])
        return refuse_host(work, lying[work->host],
                           " for what is bound to it: give it so much more", error);
    if (work->disk != BERTHI_NO_TIER && lying[work->disk] > work->usable[work->disk])
        return berthi_plan_refuse(work, work->disk,
                                  lying[work->disk] - work->usable[work->disk],
                                  " for what is bound to it, or fits nowhere else: give it so "
                                  "much more",
                                  error);
    return BERTH_OK;
}

berth_status
berthi_plan_place(berthi_plan_work *work, berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    berth_status status = BERTH_OK;
    pieces p;

    if (!can_alloc(work, &p))
        return berthi_fail_memory(error, "placing tensors");
    for (uint32_t i = 0; i < input->tensor_count; i++)
        work->tier_of[i] = input->tensors[i].tier;
    for (uint32_t d = 0; d < work->device_count && status == BERTH_OK; d++)
        if (can_collect(work, d, &p))
            status = settle(work, d, &p, error);
    if (status != BERTH_OK)
        return status;
    place_rest(work);
    status = berthi_plan_divide_experts(work, error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < input->tensor_count; i++)
        if (input->tensors[i].tie != BERTHI_NO_TIE)
            work->tier_of[i] = work->tier_of[input->tensors[i].tie];
    return check_rest(work, error);
}
