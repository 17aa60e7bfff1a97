/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_settling.h - one device while what stays on it is settled. Only for
 * stream_settle.c, which tries and applies, and stream_units.c, which chooses the units
 * of a try.
 */
#ifndef BERTH_PLACEMENT_STREAM_SETTLING_H
#define BERTH_PLACEMENT_STREAM_SETTLING_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/stream_menu.h"

#define SETTLING_NO_BOUND UINT64_MAX /* no unit is small enough and makes room enough */

typedef enum settling_way {
    WAY_PARTED, /* the smallest units: the fewest bytes are streamed */
    WAY_EVEN,   /* as small as leaves the layer that takes longest its even share */
    WAY_WHOLE   /* layers are streamed whole or not at all: the fewest units */
} settling_way;

typedef struct settling_bounds {
    uint64_t of[BERTHI_STREAM_SLOTS_MAX + 1]; /* by slots */
    uint64_t missing; /* bytes, at the least */
} settling_bounds;

/* Units of a try, and what belongs to it. */
typedef struct settling_choice {
    const berthi_stream_option **options; /* by layer */
    uint64_t streamed;    /* dense bytes, those away not counted */
    uint64_t largest;     /* unit */
    uint32_t slots;
    uint32_t unit_count;
    uint32_t experts;     /* of each layer that are resident */
} settling_choice;

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
    settling_choice now;
    settling_choice best;
    double best_seconds;
    bool has_best;
} settling;

/* Bytes of slots for such units; capped, so that no sum with the bytes of pieces overflows. */
uint64_t berthi_stream_slots(const settling *s, uint32_t slots, uint64_t unit);
/* Bytes that resident dense pieces and slots take with the units of s->now. */
uint64_t berthi_stream_needed(const settling *s);
/* The smallest bound of the units, for each number of slots from `least` to `most`. */
void berthi_stream_find_bounds(settling *s, uint32_t least, uint32_t most, settling_way how,
                               settling_bounds *out);
/* Sets the units of s->now, for its slots, within a bound that was found. */
void berthi_stream_choose_units(settling *s, uint64_t bound, settling_way how);

#endif
