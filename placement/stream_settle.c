/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_settle.c - which pieces stay, which are streamed, and through how many slots.
 *
 * A try is a number of slots, a bound of the units, and a way to part layers: its units
 * are chosen in stream_units.c. The try whose pass is shortest is applied.
 */
#include "placement/stream_settling.h"

#include <stddef.h>
#include <string.h>

#define SLOTS_TRIED 4u
#define SLOTS_DEFAULT 2u
/* A pass must be shorter by this part for more slots. */
#define GAIN 1e-9
#define ARENA_BLOCK UINT64_C(16384)

/* -------------------------------------------------------------------- experts */

/* Room to bring the experts of one layer of which `resident` stay. */
static uint64_t
expert_slot(const settling *s, const berthi_stream_layer *layer, uint32_t resident)
{
    const uint32_t away = layer->expert_count - resident;
    const uint32_t used = s->device->experts_used;

    return berthi_stream_slots(s, away < used ? away : used, layer->expert_largest);
}

/* Bytes with n experts resident in each layer, and of the slots then, for each n. */
static void
sum_experts(settling *s)
{
    memset(s->expert_bytes, 0, (s->expert_rounds + 1) * sizeof *s->expert_bytes);
    memset(s->expert_slots, 0, (s->expert_rounds + 1) * sizeof *s->expert_slots);
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_layer *const layer = &s->menus.layers[i];

        for (uint32_t n = 0; n < layer->expert_count; n++) {
            s->expert_bytes[n + 1] += s->device->pieces[layer->experts[n]].bytes;
            s->expert_slots[n] = berthi_max_u64(s->expert_slots[n],
                                                expert_slot(s, layer, n));
        }
    }
    for (uint32_t n = 0; n < s->expert_rounds; n++)
        s->expert_bytes[n + 1] += s->expert_bytes[n];
}

/* The most experts of each layer that stay in what the units have left. */
static void
choose_experts(settling *s)
{
    const uint64_t room = s->after_fixed - berthi_stream_needed(s);
    uint32_t n = s->expert_rounds;

    while (n > 0 && s->expert_bytes[n] + s->expert_slots[n] > room)
        n--;
    s->now.experts = n;
}

/* ----------------------------------------------------------------------- time */

/* Steps of the try at hand. */
static void
set_steps(settling *s)
{
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_layer *const layer = &s->menus.layers[i];
        uint64_t away = layer->expert_bytes;

        for (uint32_t n = 0; n < s->now.experts && n < layer->expert_count; n++)
            away -= s->device->pieces[layer->experts[n]].bytes;
        s->steps[i] = (berthi_stream_step){
            .host_bytes = layer->away + s->now.options[i]->bytes,
            .demand_host = (uint64_t)((double)away * s->expert_share),
            .compute = s->device->compute == NULL ? 0 : s->device->compute[i],
        };
    }
}

static berth_status
time_pass(berth_context *context, const settling *s, uint32_t slots, double *out_seconds,
          berth_error *error)
{
    const berthi_stream_line line = { s->device->rate, slots };
    const berthi_stream_passes passes = {
        .steps = s->steps, .step_count = s->device->layer_count, .lines = &line,
        .line_count = 1, .disk_rate = 1,
    };
    berthi_stream_time time;
    const berth_status status = berthi_stream_run(context, &passes, &time, error);

    *out_seconds = time.seconds;
    return status;
}

/* ---------------------------------------------------------------------- tries */

/* A pass is never shorter than its computing, or than its bytes take. */
static bool
is_hopeless(const settling *s, uint64_t bound, uint32_t slots)
{
    const uint64_t need = s->menus.dense + berthi_stream_slots(s, slots, bound);
    const uint64_t streamed = s->menus.away + need - berthi_min_u64(need, s->room);

    return (double)streamed / (double)s->device->rate >= s->best_seconds * (1 - GAIN)
           || s->compute >= s->best_seconds * (1 - GAIN);
}

/* Tries slots from `least` to `most`; the best try of all is s->best afterwards. */
static berth_status
try_slots(berth_context *context, settling *s, uint32_t least, uint32_t most,
          const settling_bounds *with, settling_way how, berth_error *error)
{
    for (uint32_t slots = least; slots <= most; slots++) {
        const uint64_t bound = with->of[slots];
        berth_status status;
        double seconds;

        if (bound == SETTLING_NO_BOUND || (s->has_best && is_hopeless(s, bound, slots)))
            continue;
        s->now.slots = slots;
        berthi_stream_choose_units(s, bound, how);
        choose_experts(s);
        set_steps(s);
        status = time_pass(context, s, slots, &seconds, error);
        if (status != BERTH_OK)
            return status;
        if (!s->has_best || seconds < s->best_seconds * (1 - GAIN)) {
            const settling_choice now = s->now;

            s->now.options = s->best.options;
            s->best = now;
            s->best_seconds = seconds;
            s->has_best = true;
        }
        if (s->best.unit_count == 0)
            break;
    }
    return BERTH_OK;
}

/* Finds s->best; *out_missing is 0 when there is one. */
static berth_status
find_best(berth_context *context, settling *s, uint64_t *out_missing, berth_error *error)
{
    const berthi_stream_device *const device = s->device;
    uint32_t least = 1;
    uint32_t most = device->compute == NULL ? SLOTS_DEFAULT : SLOTS_TRIED;
    berth_status status;
    settling_bounds parted;

    if (device->slots != 0) {
        least = (uint32_t)berthi_min_u64(device->slots, BERTHI_STREAM_SLOTS_MAX);
        most = least;
    }
    berthi_stream_find_bounds(s, least, most, WAY_PARTED, &parted);
    *out_missing = parted.missing;
    if (device->compute == NULL && parted.of[most] != SETTLING_NO_BOUND)
        least = most; /* nothing tells which are better */
    status = try_slots(context, s, least, most, &parted, WAY_PARTED, error);
    for (settling_way how = WAY_EVEN; how <= WAY_WHOLE && device->compute != NULL; how++) {
        settling_bounds other;

        if (status != BERTH_OK || !s->has_best || s->best.unit_count == 0)
            break;
        berthi_stream_find_bounds(s, least, most, how, &other);
        for (uint32_t slots = least; how == WAY_EVEN && slots <= most; slots++)
            if (other.of[slots] == parted.of[slots])
                other.of[slots] = SETTLING_NO_BOUND; /* the same try */
        status = try_slots(context, s, least, most, &other, how, error);
    }
    return status;
}

/* ---------------------------------------------------------------------- apply */

static void
mark_all(settling *s)
{
    for (uint32_t i = 0; i < s->device->piece_count; i++)
        s->device->pieces[i].is_resident = s->device->pieces[i].kind == BERTHI_PIECE_FIXED;
}

static uint64_t
largest_unit(const settling *s)
{
    uint64_t largest = 0;

    for (uint32_t i = 0; i < s->device->layer_count; i++)
        largest = berthi_max_u64(largest, s->steps[i].host_bytes);
    return largest;
}

/* Keeps those of a layer's pieces that `left` has room for; returns their bytes. */
static uint64_t
keep_fitting(settling *s, uint32_t number, uint64_t left)
{
    const berthi_stream_layer *const layer = &s->menus.layers[number];
    uint64_t kept = 0;

    for (uint32_t i = 0; i < layer->dense_count; i++) {
        berthi_stream_piece *const piece = &s->device->pieces[layer->dense[i].piece];

        if (piece->is_resident || piece->bytes > left - kept)
            continue;
        piece->is_resident = true;
        kept += piece->bytes;
    }
    s->steps[number].host_bytes -= kept;
    return kept;
}

/* Pieces that were chosen in groups may still fit one by one. Returns what is left. */
static uint64_t
keep_more(settling *s, uint32_t slots, uint64_t room)
{
    uint64_t left;
    uint64_t kept;

    do {
        left = room - berthi_stream_slots(s, slots, largest_unit(s));
        kept = 0;
        for (uint32_t i = 0; i < s->device->layer_count; i++)
            kept += keep_fitting(s, i, left - kept);
        room -= kept;
    } while (kept > 0); /* units may be smaller now, and slots */
    return left;
}

/* Marks what the best try keeps; returns the bytes left for all but dense pieces. */
static uint64_t
apply_dense(settling *s)
{
    uint64_t room = s->after_fixed;

    s->now = s->best;
    set_steps(s);
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_layer *const layer = &s->menus.layers[i];

        for (uint32_t j = 0; j < layer->dense_count; j++) {
            berthi_stream_piece *const piece = &s->device->pieces[layer->dense[j].piece];

            piece->is_resident = (s->now.options[i]->groups >> layer->dense[j].group & 1)
                                 == 0;
            if (piece->is_resident)
                room -= piece->bytes;
        }
    }
    /* The slots of experts were not offered to dense pieces, and are not now. */
    return s->after_fixed - s->room
           + keep_more(s, s->now.slots, room - (s->after_fixed - s->room));
}

/* The same number in each layer, then one more in as many as have room for it. */
static uint64_t
apply_experts(settling *s, uint64_t left, berthi_stream_result *out)
{
    const uint32_t n = s->now.experts;

    left -= s->expert_bytes[n] + s->expert_slots[n];
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_layer *const layer = &s->menus.layers[i];
        uint64_t away = layer->expert_bytes;
        uint32_t resident = 0;

        while (resident < layer->expert_count && resident <= n) {
            berthi_stream_piece *const piece = &s->device->pieces[layer->experts[resident]];

            if (resident == n && piece->bytes > left)
                break;
            left -= resident == n ? piece->bytes : 0; /* those before are taken off */
            piece->is_resident = true;
            away -= piece->bytes;
            resident++;
        }
        out->expert_slot_bytes = berthi_max_u64(out->expert_slot_bytes,
                                                expert_slot(s, layer, resident));
        s->steps[i].demand_host = (uint64_t)((double)away * s->expert_share);
    }
    return left + s->expert_slots[n] - out->expert_slot_bytes;
}

static void
apply_idle(settling *s, uint64_t left)
{
    for (uint32_t i = 0; i < s->device->piece_count; i++) {
        berthi_stream_piece *const piece = &s->device->pieces[i];

        if (piece->kind == BERTHI_PIECE_IDLE && piece->bytes <= left) {
            piece->is_resident = true;
            left -= piece->bytes;
        }
    }
}

static void
sum_up(const settling *s, berthi_stream_result *out)
{
    for (uint32_t i = 0; i < s->device->piece_count; i++) {
        const berthi_stream_piece *const piece = &s->device->pieces[i];

        if (piece->is_resident)
            out->resident += piece->bytes;
        else if (piece->kind == BERTHI_PIECE_EXPERT)
            out->experts += piece->bytes;
        else if (piece->kind == BERTHI_PIECE_IDLE)
            out->idle += piece->bytes;
        else
            out->streamed += piece->bytes;
    }
    for (uint32_t i = 0; i < s->device->layer_count; i++)
        out->unit_count += s->steps[i].host_bytes > 0;
    out->slot_bytes = berthi_round_up(largest_unit(s), s->device->alignment);
    if (out->unit_count > 0)
        out->slots = s->best.slots;
}

/* ---------------------------------------------------------------------- begin */

/* What the layers weigh, the room for dense pieces. Returns what fixed pieces lack. */
static uint64_t
prepare(settling *s)
{
    const berthi_stream_device *const device = s->device;
    const uint64_t slots = berthi_stream_slots(s, BERTHI_STREAM_SLOTS_MAX, s->menus.away);
    uint64_t least = s->menus.fixed;

    for (uint32_t i = 0; i < device->layer_count; i++) {
        const berthi_stream_layer *const layer = &s->menus.layers[i];
        const berthi_stream_layer *const heaviest = &s->menus.layers[s->heaviest];

        s->weight += layer->weight;
        if (layer->dense_count > 0
            && (heaviest->dense_count == 0 || layer->weight > heaviest->weight))
            s->heaviest = i;
    }
    if (device->compute != NULL)
        s->compute = s->weight;
    if (s->weight <= 0) { /* nothing tells them apart */
        for (uint32_t i = 0; i < device->layer_count; i++)
            s->menus.layers[i].weight = 1;
        s->weight = device->layer_count;
    }
    sum_experts(s);
    s->expert_share = berthi_stream_expert_share(device);
    if (s->menus.fixed + s->menus.dense + s->menus.experts + slots > device->room)
        least += s->expert_slots[0];
    s->after_fixed = device->room - berthi_min_u64(device->room, s->menus.fixed);
    s->room = device->room - berthi_min_u64(device->room, least);
    return least - berthi_min_u64(device->room, least);
}

static bool
can_allocate(settling *s, berthi_arena *arena)
{
    const uint64_t layers = s->device->layer_count;
    uint64_t rounds;

    if (!berthi_stream_menus_can_build(arena, s->device, &s->menus))
        return false;
    for (uint32_t i = 0; i < layers; i++)
        s->expert_rounds = (uint32_t)berthi_max_u64(s->expert_rounds,
                                                    s->menus.layers[i].expert_count);
    rounds = (uint64_t)s->expert_rounds + 1;
    s->expert_bytes = berthi_arena_alloc(arena, rounds * sizeof *s->expert_bytes, 8);
    s->expert_slots = berthi_arena_alloc(arena, rounds * sizeof *s->expert_slots, 8);
    s->now.options = berthi_arena_alloc(arena, layers * sizeof *s->now.options, 8);
    s->best.options = berthi_arena_alloc(arena, layers * sizeof *s->best.options, 8);
    s->steps = berthi_arena_alloc(arena, layers * sizeof *s->steps, 8);
    s->cursors = berthi_arena_alloc(arena, s->menus.menu_count * sizeof *s->cursors, 4);
    return s->expert_bytes != NULL && s->expert_slots != NULL && s->now.options != NULL
           && s->best.options != NULL && s->steps != NULL && s->cursors != NULL;
}

/* With everything in place. */
static berth_status
settle(berth_context *context, settling *s, berthi_stream_result *out,
       berth_error *error)
{
    const uint64_t lack = prepare(s);
    uint64_t missing;
    berth_status status;

    mark_all(s);
    status = find_best(context, s, &missing, error);
    if (status != BERTH_OK)
        return status;
    out->missing = lack + missing;
    if (out->missing > 0) {
        memset(s->steps, 0, s->device->layer_count * sizeof *s->steps);
        sum_up(s, out);
        return BERTH_OK;
    }
    apply_idle(s, apply_experts(s, apply_dense(s), out));
    sum_up(s, out);
    return time_pass(context, s, s->best.slots, &out->seconds, error);
}

berth_status
berthi_stream_settle(berth_context *context, berthi_stream_device *device,
                     berthi_stream_result *out, berth_error *error)
{
    settling s = { .device = device };
    berthi_arena arena;
    berth_status status;

    memset(out, 0, sizeof *out);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, ARENA_BLOCK);
    if (can_allocate(&s, &arena))
        status = settle(context, &s, out, error);
    else
        status = berthi_fail_memory(error, "choosing what is streamed");
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    berthi_arena_fini(&arena);
    return status;
}
