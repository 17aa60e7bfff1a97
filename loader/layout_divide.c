/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_divide.c - tensors -> shards, places, offsets, lengths of headers.
 *
 * A division walks the tensors twice: in fill order, to find their shards, and
 * in the order of contents, which drops each into its place. What was filled
 * before the first length that changed stays.
 */
#include "loader/layout_divide.h"

#include <string.h>

#include "kernels/grow.h"
#include "loader/layout_check.h"
#include "loader/layout_header.h"

#define FIRST_SHARDS 16u

/* For one more shard. False: out of memory. */
static bool
make_room(berthi_layout *layout)
{
    const berthi_growth growth = { .size = sizeof *layout->shards,
                                   .used = layout->shard_count,
                                   .before = layout->shard_capacity,
                                   .after = berthi_grown(layout->shard_capacity,
                                                         FIRST_SHARDS) };
    berthi_layout_part *shards;

    if (layout->shard_count < layout->shard_capacity)
        return true;
    shards = berthi_memory_grow(layout->context, BERTHI_PURPOSE_TENSORS, layout->shards,
                                &growth);
    if (shards == NULL)
        return false;
    layout->shards = shards;
    layout->shard_capacity = growth.after;
    return true;
}

/* The state of filling. */
typedef struct filling {
    uint32_t begin;  /* of the shard to be filled, in fill order */
    uint32_t closed; /* shards when it was begun */
    uint32_t count;  /* units in it, oversize ones not among them */
    uint64_t bytes;
    uint32_t first_changed; /* shard with other tensors than before */
} filling;

/* What is not divided: a tensor, or those of a group; up to `end` in fill order. */
typedef struct unit {
    uint64_t bytes;
    uint32_t end;
    bool is_oversize;
} unit;

static unit
unit_at(const berthi_layout *layout, uint32_t begin)
{
    const berthi_layout_tensor *const first = &layout->tensors[layout->by_fill[begin]];
    unit u = { .bytes = first->bytes, .end = begin + 1 };

    for (; first->group != 0 && u.end < layout->count; u.end++) {
        const berthi_layout_tensor *const next = &layout->tensors[layout->by_fill[u.end]];

        if (next->group != first->group)
            break;
        u.bytes += next->bytes;
    }
    u.is_oversize = u.bytes > layout->max_shard_bytes;
    return u;
}

static void
assign(filling *f, berthi_layout_part *part, berthi_layout_tensor *tensor,
       uint32_t number)
{
    if (tensor->shard != number)
        f->first_changed = (uint32_t)berthi_min_u64(
            f->first_changed, berthi_min_u64(tensor->shard, number));
    tensor->shard = number;
    part->count++;
}

/*
 * A new shard with the tensors of fill order [begin, end): the oversize unit, or
 * those that are not.
 */
static bool
add_shard(berthi_layout *layout, filling *f, uint32_t begin, uint32_t end,
          bool has_oversize)
{
    const uint32_t number = layout->shard_count;
    berthi_layout_part *part;

    if (!make_room(layout))
        return false;
    part = &layout->shards[layout->shard_count++];
    memset(part, 0, sizeof *part);
    part->fill_begin = f->begin;
    part->closed = f->closed;
    while (begin < end) {
        const unit u = unit_at(layout, begin);

        for (; begin < u.end; begin++)
            if (u.is_oversize == has_oversize)
                assign(f, part, &layout->tensors[layout->by_fill[begin]], number);
    }
    return true;
}

/* Closes the shard to be filled; the next one begins at `at`. */
static bool
close_shard(berthi_layout *layout, filling *f, uint32_t at)
{
    if (!add_shard(layout, f, f->begin, at, false))
        return false;
    f->begin = at;
    f->closed = layout->shard_count;
    f->count = 0;
    f->bytes = 0;
    return true;
}

/* In fill order; the shard of an oversize unit comes before the one that is being filled. */
static bool
fill_shards(berthi_layout *layout, filling *f)
{
    unit u;

    for (uint32_t at = f->begin; at < layout->count; at = u.end) {
        u = unit_at(layout, at);
        if (u.is_oversize) {
            if (!add_shard(layout, f, at, u.end, true))
                return false;
            continue;
        }
        if (u.bytes > layout->max_shard_bytes - f->bytes && !close_shard(layout, f, at))
            return false;
        f->count++;
        f->bytes += u.bytes;
    }
    return (f->count == 0 && layout->shard_count > 0)
           || close_shard(layout, f, layout->count);
}

/* Drops the tensors of all shards from `begin` on into their places. */
static void
place_tensors(berthi_layout *layout, uint32_t begin, uint32_t first)
{
    for (uint32_t i = begin; i < layout->shard_count; i++) {
        layout->shards[i].first = first;
        first += layout->shards[i].count;
        layout->shards[i].count = 0;
    }
    for (uint32_t i = 0; i < layout->count; i++) {
        const uint32_t number = layout->by_content[i];
        berthi_layout_tensor *const tensor = &layout->tensors[number];

        if (tensor->shard >= begin) {
            berthi_layout_part *const part = &layout->shards[tensor->shard];

            tensor->place = part->count++;
            layout->places[part->first + tensor->place] = number;
        }
    }
}

/* Moves the border of final offsets behind the tensors that are late no more. */
static void
advance(const berthi_layout *layout, berthi_layout_part *part)
{
    if (part->known == 0 && part->count > 0)
        berthi_layout_part_tensor(layout, part, part->known++)->offset = 0;
    while (part->known < part->count) {
        const berthi_layout_tensor *const before =
            berthi_layout_part_tensor(layout, part, part->known - 1);

        if (before->is_late)
            break;
        berthi_layout_part_tensor(layout, part, part->known++)->offset =
            before->offset + before->bytes;
    }
}

uint64_t
berthi_layout_part_text_bytes(const berthi_layout *layout, const berthi_layout_part *part)
{
    const uint32_t members = part->count + (layout->pairs != NULL ? 1 : 0);
    uint64_t bytes = layout->frame_bytes + members - (members > 0); /* and commas */

    for (uint32_t i = 0; i < part->count; i++) {
        const berthi_layout_tensor *const tensor =
            berthi_layout_part_tensor(layout, part, i);

        bytes += tensor->text_bytes + berthi_layout_header_number_bytes(tensor);
    }
    return bytes;
}

static void
measure(const berthi_layout *layout, berthi_layout_part *part)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < part->count; i++) {
        berthi_layout_tensor *const tensor = berthi_layout_part_tensor(layout, part, i);

        tensor->offset = offset;
        offset += tensor->bytes;
    }
    part->payload_bytes = offset;
    part->header_bytes = berthi_round_down(berthi_layout_part_text_bytes(layout, part)
                                               + BERTHI_LAYOUT_ALIGNMENT - 1,
                                           BERTHI_LAYOUT_ALIGNMENT);
    part->known = 0;
    advance(layout, part);
}

berth_status
berthi_layout_divide_changed(berthi_layout *layout, uint32_t *out_first,
                             berth_error *error)
{
    const uint32_t begin = layout->changed_begin;
    const uint32_t closed = layout->changed_closed;
    filling f = { .begin = begin, .closed = closed, .first_changed = UINT32_MAX };
    berth_status status = BERTH_OK;

    layout->shard_count = closed;
    if (!fill_shards(layout, &f))
        return berthi_fail_memory(error, "laying out the shards");
    place_tensors(layout, closed, begin);
    for (uint32_t i = closed; i < layout->shard_count && status == BERTH_OK; i++) {
        measure(layout, &layout->shards[i]);
        status = berthi_layout_check_header(layout->shards[i].header_bytes, error);
    }
    layout->changed_begin = layout->count;
    layout->changed_closed = layout->shard_count;
    if (out_first != NULL)
        *out_first = (uint32_t)berthi_min_u64(f.first_changed, layout->shard_count);
    return status;
}

berth_status
berthi_layout_divide(berthi_layout *layout, uint32_t *out_first, berth_error *error)
{
    if (layout->changed_begin < layout->count)
        return berthi_layout_divide_changed(layout, out_first, error);
    if (out_first != NULL)
        *out_first = layout->shard_count;
    return BERTH_OK;
}

/*
 * Filling must begin again where the tensor's shard did; and one shard earlier
 * when it was the tensor that did not fit there any more.
 */
static void
note_change(berthi_layout *layout, uint32_t number)
{
    const berthi_layout_part *part = &layout->shards[layout->tensors[number].shard];

    if (layout->by_fill[part->fill_begin] == number && part->closed > 0)
        part = &layout->shards[part->closed - 1];
    if (part->fill_begin < layout->changed_begin) {
        layout->changed_begin = part->fill_begin;
        layout->changed_closed = part->closed;
    }
}

void
berthi_layout_set_bytes(berthi_layout *layout, uint32_t tensor, uint32_t bytes)
{
    berthi_layout_tensor *const t = &layout->tensors[tensor];

    if (!t->is_late)
        return;
    t->is_late = false;
    if (t->bytes != bytes) {
        t->bytes = bytes;
        note_change(layout, tensor);
    }
    advance(layout, &layout->shards[t->shard]);
}

bool
berthi_layout_is_place_known(const berthi_layout *layout, uint32_t tensor)
{
    const berthi_layout_tensor *const t = &layout->tensors[tensor];

    return t->place < layout->shards[t->shard].known;
}
