/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_listing.h - the tables of units while they are made. Only for lease_units.c,
 * lease_expert_units.c, which lists experts behind the layers, and lease_disk_units.c,
 * which lists what all of them read.
 */
#ifndef BERTH_LOADER_LEASE_LISTING_H
#define BERTH_LOADER_LEASE_LISTING_H

#include "loader/lease_state.h"

/* Tables in the making. */
typedef struct berthi_lease_listing {
    berthi_leases *leases;
    berthi_lease_item *items;
    berthi_lease_move *moves;
    uint64_t item_count;
    uint64_t move_count;
    berthi_piece *pieces;   /* of one unit */
    uint64_t piece_count;
    uint64_t chunk_bytes;
    uint32_t *numbers;      /* of the experts that a layer's berths belong to */
    uint32_t *order;        /* its berths by them */
} berthi_lease_listing;

/* A unit with nothing in it yet, the next one of the line that is made. */
berthi_lease_unit *berthi_lease_list_unit(berthi_lease_listing *listing, uint32_t layer);
/* The berth comes behind what is in the unit. */
void berthi_lease_list_berth(berthi_lease_listing *listing, berthi_lease_unit *unit,
                             uint64_t berth);
/* The unit stays: it is one of the line that is made. */
void berthi_lease_keep_unit(berthi_lease_listing *listing, berthi_lease_unit *unit);

/* Units of experts whose layers' home is the tier: a line of its own. */
berth_status berthi_lease_list_experts(berthi_lease_listing *listing, uint32_t tier,
                                       berth_error *error);

bool berthi_lease_is_on_disk(const berth_model *model, uint64_t berth);
/* Chunks and files of all units, which are listed. */
berth_status berthi_lease_list_disk(berthi_lease_listing *listing, berth_error *error);

#endif
