/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_menu.h - the ways to part a layer's dense pieces into resident and streamed
 * ones: every sum of bytes that a subset of them has. Layers that are alike share one
 * menu.
 *
 * Up to BERTHI_STREAM_GROUPS pieces of a layer are chosen one by one; more are put
 * together into as many groups first, the largest piece into the smallest group.
 * Where many layers are all different the groups are fewer, so that all menus
 * together stay small.
 */
#ifndef BERTH_PLACEMENT_STREAM_MENU_H
#define BERTH_PLACEMENT_STREAM_MENU_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/memory.h"
#include "placement/stream.h"

#define BERTHI_STREAM_GROUPS 12u

typedef struct berthi_stream_option {
    uint64_t bytes;
    uint32_t groups; /* a bit for each that is streamed */
} berthi_stream_option;

typedef struct berthi_stream_menu {
    const berthi_stream_option *options; /* ascending: nothing first, everything last */
    uint32_t option_count;
    uint32_t layer_count;
    uint64_t away; /* bytes of each layer that are streamed whatever is chosen */
} berthi_stream_menu;

typedef struct berthi_stream_dense {
    uint64_t bytes;
    uint32_t piece;
    uint32_t group;
} berthi_stream_dense;

typedef struct berthi_stream_layer {
    berthi_stream_dense *dense; /* largest first */
    const uint32_t *experts;    /* pieces */
    uint32_t dense_count;
    uint32_t expert_count;
    uint32_t menu;
    uint64_t away;
    uint64_t expert_bytes;      /* of all */
    uint64_t expert_largest;
    double weight;              /* its part of a pass's time */
} berthi_stream_layer;

typedef struct berthi_stream_menus {
    berthi_stream_layer *layers;
    berthi_stream_menu *menus;
    uint32_t menu_count;
    uint64_t fixed; /* bytes of all pieces of a kind */
    uint64_t dense;
    uint64_t away;
    uint64_t experts;
} berthi_stream_menus;

/* The part of its experts' bytes that a pass takes: 0 to 1. */
double berthi_stream_expert_share(const berthi_stream_device *device);
/* Fills `out` from `arena`; false: no memory. */
bool berthi_stream_menus_can_build(berthi_arena *arena, const berthi_stream_device *device,
                                   berthi_stream_menus *out);
/* The last option of at most `bytes`; there is always the first. */
const berthi_stream_option *berthi_stream_menu_find(const berthi_stream_menu *menu,
                                                    uint64_t bytes);

#endif
