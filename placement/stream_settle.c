/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_settle.c - which pieces stay, which are streamed, and through how many slots.
 *
 * A try is a number of slots, a bound of the units, and a way to part layers. The
 * bound comes first: smaller units make smaller slots, and less has to be streamed
 * to make room for them, but all layers together must be able to give enough. So
 * the smallest bound that fits is the best one (find_bounds), and no guess has to be
 * repeated. Then the units are spread below it (spread), and what is left over is
 * filled (fill). The try whose pass is shortest is applied.
 */
#include "placement/stream_menu.h"

#include <stddef.h>
#include <string.h>

#define SLOTS_TRIED 4u
#define SLOTS_DEFAULT 2u
/* Repetitions of the spreading, each with a larger target. */
#define SPREADS 8u
/* A pass must be shorter by this part for more slots. */
#define GAIN 1e-9
#define ARENA_BLOCK UINT64_C(16384)
#define NO_BOUND UINT64_MAX
#define MOST (UINT64_C(1) << 62)

typedef enum way {
    PARTED, /* the smallest units: the fewest bytes are streamed */
    EVEN,   /* as small as leaves the layer that takes longest its even share */
    WHOLE   /* layers are streamed whole or not at all: the fewest units */
} way;

typedef struct bounds {
    uint64_t of[BERTHI_STREAM_SLOTS_MAX + 1]; /* by slots; NO_BOUND: does not fit */
    uint64_t missing; /* bytes, at the least */
} bounds;

/* Units of a try, and what belongs to it. */
typedef struct choice {
    const berthi_stream_option **options; /* by layer */
    uint64_t streamed;    /* dense bytes, those away not counted */
    uint64_t largest;     /* unit */
    uint32_t slots;
    uint32_t unit_count;
    uint32_t experts;     /* of each layer that are resident */
} choice;

typedef struct settling {
    berthi_stream_device *device;
    berthi_stream_menus menus;
    uint64_t room;        /* for dense pieces and slots; without experts' slots */
    uint64_t after_fixed; /* for everything that is not fixed */
    double weight;        /* of all layers */
    uint32_t heaviest;    /* layer of those with dense pieces */
    uint64_t *expert_bytes; /* resident with n experts a layer, and room for the others' */
    uint64_t *expert_slots;
    uint32_t expert_rounds; /* the most experts of a layer */
    uint32_t *cursors;      /* options, by menu */
    berthi_stream_step *steps;
    double expert_share;
    double compute; /* seconds of a pass; 0: unknown */
    choice now;
    choice best;
    double best_seconds;
    bool has_best;
} settling;

/* More than there is: no sum with the bytes of pieces, which stay below, overflows. */
static uint64_t
slot_bytes(const settling *s, uint32_t slots, uint64_t unit)
{
    uint64_t bytes;

    return berthi_can_mul(slots, berthi_round_up(unit, s->device->alignment), &bytes)
               ? berthi_min_u64(bytes, MOST)
               : MOST;
}

static const berthi_stream_menu *
menu_of(const settling *s, uint32_t layer)
{
    return &s->menus.menus[s->menus.layers[layer].menu];
}

/* --------------------------------------------------------------------- bounds */

/* The next option of a menu; whole layers have two. */
static uint32_t
next_option(const berthi_stream_menu *menu, uint32_t cursor, way how)
{
    return how == WHOLE ? menu->option_count - 1 : cursor + 1;
}

/* Moves every menu to its largest unit within `bound`; returns bytes of all layers. */
static uint64_t
advance(settling *s, uint64_t bound, way how)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->menus.menu_count; i++) {
        const berthi_stream_menu *const menu = &s->menus.menus[i];
        uint32_t *const cursor = &s->cursors[i];

        while (*cursor + 1 < menu->option_count) {
            const uint32_t next = next_option(menu, *cursor, how);

            if (menu->options[next].bytes > bound - menu->away)
                break;
            *cursor = next;
        }
        bytes += menu->layer_count * menu->options[*cursor].bytes;
    }
    return bytes;
}

/* The smallest unit larger than `bound`; NO_BOUND when there is none. */
static uint64_t
next_bound(const settling *s, way how)
{
    uint64_t bound = NO_BOUND;

    for (uint32_t i = 0; i < s->menus.menu_count; i++) {
        const berthi_stream_menu *const menu = &s->menus.menus[i];
        const uint32_t cursor = s->cursors[i];

        if (cursor + 1 < menu->option_count)
            bound = berthi_min_u64(
                bound, menu->away
                           + menu->options[next_option(menu, cursor, how)].bytes);
    }
    return bound;
}

/* Whether a try fits in which resident pieces and slots take `need` bytes. */
static bool
is_enough(const settling *s, uint64_t need, uint64_t bound, uint32_t slots, way how)
{
    const uint64_t most = s->menus.dense + slot_bytes(s, slots, bound);
    const berthi_stream_menu *menu;
    uint64_t unit;

    if (need > s->room || how != EVEN)
        return need <= s->room;
    menu = menu_of(s, s->heaviest);
    unit = menu->away + berthi_stream_menu_find(menu, bound - menu->away)->bytes;
    return (double)(s->menus.away + most - berthi_min_u64(most, s->room))
               * s->menus.layers[s->heaviest].weight
           <= (double)unit * s->weight;
}

/* The smallest bound of the units, for each number of slots from `least` to `most`. */
static void
find_bounds(settling *s, uint32_t least, uint32_t most, way how, bounds *out)
{
    uint64_t bound = 0;
    uint32_t open = most - least + 1;

    out->missing = UINT64_MAX;
    for (uint32_t slots = 0; slots <= BERTHI_STREAM_SLOTS_MAX; slots++)
        out->of[slots] = NO_BOUND;
    for (uint32_t i = 0; i < s->menus.menu_count; i++) {
        bound = berthi_max_u64(bound, s->menus.menus[i].away);
        s->cursors[i] = 0;
    }
    while (open > 0 && bound != NO_BOUND) {
        const uint64_t resident = s->menus.dense - advance(s, bound, how);

        for (uint32_t slots = least; slots <= most; slots++) {
            const uint64_t need = resident + slot_bytes(s, slots, bound);

            if (out->of[slots] != NO_BOUND)
                continue;
            if (is_enough(s, need, bound, slots, how)) {
                out->of[slots] = bound;
                open--;
            }
            out->missing = berthi_min_u64(out->missing,
                                          need - berthi_min_u64(need, s->room));
        }
        bound = next_bound(s, how);
    }
}

/* ------------------------------------------------------------------ spreading */

/* The option nearest to `target`, the larger of two as near, and within `bound`. */
static const berthi_stream_option *
nearest(const berthi_stream_menu *menu, double target, uint64_t bound, way how)
{
    const berthi_stream_option *const last = &menu->options[menu->option_count - 1];
    const berthi_stream_option *low = menu->options;
    const berthi_stream_option *high = last;

    if (how != WHOLE && target >= 1) {
        low = berthi_stream_menu_find(menu, target < (double)last->bytes
                                                ? (uint64_t)target
                                                : last->bytes);
        if (low->bytes > bound)
            return berthi_stream_menu_find(menu, bound);
    }
    if (how != WHOLE && low < last)
        high = low + 1;
    return high->bytes <= bound && (double)high->bytes - target <= target - (double)low->bytes
               ? high
               : low;
}

static void
take(settling *s, uint32_t layer, const berthi_stream_option *option)
{
    const uint64_t unit = menu_of(s, layer)->away + option->bytes;

    s->now.options[layer] = option;
    s->now.streamed += option->bytes;
    s->now.largest = berthi_max_u64(s->now.largest, unit);
    s->now.unit_count += unit > 0;
}

static void
take_none(settling *s)
{
    s->now.streamed = 0;
    s->now.largest = 0;
    s->now.unit_count = 0;
}

/* Error diffusion: what a layer streams too much or too little, the next ones make up. */
static void
spread(settling *s, double target, uint64_t bound, way how)
{
    double due = 0;

    take_none(s);
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_menu *const menu = menu_of(s, i);

        due += s->menus.layers[i].weight * target / s->weight;
        take(s, i, nearest(menu, due - (double)menu->away, bound - menu->away, how));
        due -= (double)(menu->away + s->now.options[i]->bytes);
    }
}

/* Bytes that resident dense pieces and slots take. */
static uint64_t
needed(const settling *s)
{
    return s->menus.dense - s->now.streamed + slot_bytes(s, s->now.slots, s->now.largest);
}

/* Units within `bound` that make enough room: find_bounds() has seen that there are. */
static void
spread_enough(settling *s, uint64_t bound, way how)
{
    const uint64_t most = s->menus.dense + slot_bytes(s, s->now.slots, bound);
    double target = (double)s->menus.away + (double)(most - berthi_min_u64(most, s->room));

    for (uint32_t i = 0; i < SPREADS; i++) {
        spread(s, target, bound, how);
        if (needed(s) <= s->room)
            return;
        target += (double)(needed(s) - s->room);
    }
    take_none(s);
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_menu *const menu = menu_of(s, i);

        take(s, i, nearest(menu, (double)bound, bound - menu->away, how));
    }
}

/* The smallest option by which a layer gives back no more than `free`. */
static const berthi_stream_option *
shrunk(const berthi_stream_menu *menu, const berthi_stream_option *option, uint64_t free)
{
    const berthi_stream_option *found;

    if (option->bytes <= free)
        return menu->options;
    found = berthi_stream_menu_find(menu, option->bytes - free);
    return found->bytes < option->bytes - free ? found + 1 : found;
}

/*
 * What is left over goes where most of it is used, until no piece fits any more:
 * among layers as good into the middle, where the spread suffers least.
 */
static void
fill(settling *s)
{
    const berthi_stream_option **const options = s->now.options;
    const uint32_t count = s->device->layer_count;

    for (;;) {
        const uint64_t free = s->room - needed(s);
        const berthi_stream_option *best = NULL;
        uint64_t gain = 0;
        uint32_t layer = 0;

        for (uint32_t j = 0; free > 0 && j < count; j++) {
            const uint32_t i = (j + count / 2) % count;
            const berthi_stream_option *const option = shrunk(menu_of(s, i), options[i],
                                                              free);

            if (options[i]->bytes - option->bytes > gain) {
                gain = options[i]->bytes - option->bytes;
                best = option;
                layer = i;
            }
        }
        if (best == NULL)
            return;
        options[layer] = best;
        take_none(s);
        for (uint32_t i = 0; i < count; i++)
            take(s, i, options[i]);
    }
}

/* -------------------------------------------------------------------- experts */

/* Room to bring the experts of one layer of which `resident` stay. */
static uint64_t
expert_slot(const settling *s, const berthi_stream_layer *layer, uint32_t resident)
{
    const uint32_t away = layer->expert_count - resident;
    const uint32_t used = s->device->experts_used;

    return slot_bytes(s, away < used ? away : used, layer->expert_largest);
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
    const uint64_t room = s->after_fixed - needed(s);
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
    const uint64_t need = s->menus.dense + slot_bytes(s, slots, bound);
    const uint64_t streamed = s->menus.away + need - berthi_min_u64(need, s->room);

    return (double)streamed / (double)s->device->rate >= s->best_seconds * (1 - GAIN)
           || s->compute >= s->best_seconds * (1 - GAIN);
}

/* Tries slots from `least` to `most`; the best try of all is s->best afterwards. */
static berth_status
try_slots(berth_context *context, settling *s, uint32_t least, uint32_t most,
          const bounds *with, way how, berth_error *error)
{
    for (uint32_t slots = least; slots <= most; slots++) {
        const uint64_t bound = with->of[slots];
        berth_status status;
        double seconds;

        if (bound == NO_BOUND || (s->has_best && is_hopeless(s, bound, slots)))
            continue;
        s->now.slots = slots;
        spread_enough(s, bound, how);
        fill(s);
        choose_experts(s);
        set_steps(s);
        status = time_pass(context, s, slots, &seconds, error);
        if (status != BERTH_OK)
            return status;
        if (!s->has_best || seconds < s->best_seconds * (1 - GAIN)) {
            const choice now = s->now;

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
    bounds parted;

    if (device->slots != 0) {
        least = (uint32_t)berthi_min_u64(device->slots, BERTHI_STREAM_SLOTS_MAX);
        most = least;
    }
    find_bounds(s, least, most, PARTED, &parted);
    *out_missing = parted.missing;
    if (device->compute == NULL && parted.of[most] != NO_BOUND)
        least = most; /* nothing tells which are better */
    status = try_slots(context, s, least, most, &parted, PARTED, error);
    for (way how = EVEN; how <= WHOLE && device->compute != NULL; how++) {
        bounds other;

        if (status != BERTH_OK || !s->has_best || s->best.unit_count == 0)
            break;
        find_bounds(s, least, most, how, &other);
        for (uint32_t slots = least; how == EVEN && slots <= most; slots++)
            if (other.of[slots] == parted.of[slots])
                other.of[slots] = NO_BOUND; /* the same try */
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

/* Pieces that were chosen in groups may still fit one by one. Returns what is left. */
static uint64_t
keep_more(settling *s, uint32_t slots, uint64_t room)
{
    uint64_t left = 0;
    bool has_more = true;

    while (has_more) {
        left = room - slot_bytes(s, slots, largest_unit(s));
        has_more = false;
        for (uint32_t i = 0; i < s->device->layer_count; i++) {
            const berthi_stream_layer *const layer = &s->menus.layers[i];

            for (uint32_t j = 0; j < layer->dense_count; j++) {
                berthi_stream_piece *const piece = &s->device->pieces[layer->dense[j].piece];

                if (piece->is_resident || piece->bytes > left)
                    continue;
                piece->is_resident = true;
                left -= piece->bytes;
                room -= piece->bytes;
                s->steps[i].host_bytes -= piece->bytes;
                has_more = true;
            }
        }
    }
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

            if (resident == n) {
                if (piece->bytes > left)
                    break;
                left -= piece->bytes;
            }
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
    uint64_t largest = 0;

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
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        largest = berthi_max_u64(largest, s->steps[i].host_bytes);
        out->unit_count += s->steps[i].host_bytes > 0;
    }
    out->slot_bytes = berthi_round_up(largest, s->device->alignment);
    if (out->unit_count > 0)
        out->slots = s->best.slots;
}

/* ---------------------------------------------------------------------- begin */

/* What the layers weigh, the room for dense pieces. Returns what fixed pieces lack. */
static uint64_t
prepare(settling *s)
{
    const berthi_stream_device *const device = s->device;
    const uint64_t slots = slot_bytes(s, BERTHI_STREAM_SLOTS_MAX, s->menus.away);
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
