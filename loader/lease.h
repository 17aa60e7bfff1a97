/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - slots of devices, and the layers that take turns in them.
 *
 *   unit   what of a layer is not on its home, in the order of the plan's berths,
 *          each berth from a multiple of 256 on: what a slot holds
 *   line   a device, its slots, its units in the order of the layers, endlessly:
 *          the unit behind the last one is the first one
 *
 *   slot:  EMPTY ──fill──▶ FILLING ──copies asked for, `full` recorded──▶ FULL
 *          FULL ──acquire: the stream waits for `full`──▶ LEASED (counted)
 *          LEASED ──last release: `free` recorded on that stream──▶ DRAINING
 *          DRAINING ──next fill: copies wait for `free`──▶ FILLING
 *
 * The slot that has been empty for longest takes the next unit: where layers are leased
 * one after the other, fill number f goes into slot f mod the number of slots. So a
 * slot's next unit is known, and its release is what begins to fill it: for units in
 * pinned host memory no thread is involved. Units that lie on the disk come through a
 * thread of the model's own, the feeder, which reads them in the same order into a ring
 * of staging buffers, ahead of the slots as far as those go that are in use.
 *
 * A layer that is asked for in another order: what was filled for others, is not leased
 * and does not follow it at once is given up, and its line goes on from that layer. A
 * prefetch says so ahead of the acquire, which finds its layer on the way then.
 *
 * Experts that are not on their layer's home have slots of their own, for all layers of
 * a device: a cache. Nobody knows which ones come next, so they are filled when they are
 * asked for, and stay until others need the slot (lease_cache.c).
 */
#ifndef BERTH_LOADER_LEASE_H
#define BERTH_LOADER_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/model.h"

typedef struct berthi_leases berthi_leases;

/*
 * What a slot has to hold for the layer: all that lies elsewhere, but experts, and rows of an
 * embedding, which are what lies there from *out_rows of a slab on (UINT64_MAX: none does).
 */
uint64_t berthi_lease_unit_bytes(const berth_plan *plan, uint32_t layer, uint64_t *out_rows);

/*
 * For the units of a model that has been filled; begins to fill slots at once.
 * *out is NULL where nothing is streamed and no layer has experts. Fails with NO_MEMORY,
 * or as the device does: *out is not NULL then where copies into slots hang, and has to be
 * given back as any other.
 */
berth_status berthi_leases_create(berth_model *model, const berthi_lease_options *options,
                                  berthi_leases **out, berth_error *error);
/*
 * Ends what brings layers, and waits for copies under way, not for releases. True: they
 * hang, and all that belongs to the leases has to stay until they are over. NULL: false.
 */
bool berthi_leases_hang(berthi_leases *leases);
/* They hung: true when nothing of it is under way any more. Does not wait. */
bool berthi_leases_are_over(berthi_leases *leases);
/* Waits for copies under way, not for releases. NULL is allowed. */
void berthi_leases_destroy(berthi_leases *leases);

/* Whether something of the layer is streamed. NULL: false. */
bool berthi_leases_stream(const berthi_leases *leases, uint32_t layer);
/* As berth_layer_acquire(), berth_layer_release() and berth_layer_prefetch(). */
berth_status berthi_leases_acquire(berthi_leases *leases, uint32_t layer,
                                   berthi_stream *stream, berth_error *error);
berth_status berthi_leases_release(berthi_leases *leases, uint32_t layer,
                                   berthi_stream *stream, berth_error *error);
berth_status berthi_leases_prefetch(berthi_leases *leases, uint32_t layer,
                                    berth_error *error);

/* Experts of a layer, as callers name them. */
typedef struct berthi_expert_list {
    uint32_t layer; /* one of the plan's */
    uint32_t count;
    const uint32_t *numbers;
} berthi_expert_list;

/* As berth_experts_acquire(), berth_experts_release(), berth_experts_prefetch(). */
berth_status berthi_experts_acquire(berthi_leases *leases, const berthi_expert_list *list,
                                    berthi_stream *stream, berth_error *error);
berth_status berthi_experts_release(berthi_leases *leases, const berthi_expert_list *list,
                                    berthi_stream *stream, berth_error *error);
berth_status berthi_experts_prefetch(berthi_leases *leases, const berthi_expert_list *list,
                                     berth_error *error);
/* As berth_experts_slots(). */
uint32_t berthi_experts_slots(const berthi_leases *leases, uint32_t layer);
/* As berth_experts_count(). */
void berthi_experts_count(berthi_leases *leases, uint32_t layer,
                          berth_expert_counts *out);
/* As berthi_leases_find(), of a berth of an expert. */
uint8_t *berthi_experts_find(berthi_leases *leases, uint64_t berth);

/* When what calls wait for has last moved: a read, or a copy that is not pinned. NULL: 0. */
uint64_t berthi_leases_moved_ns(const berthi_leases *leases);
/* Where a streamed berth lies in the slot of its unit; NULL: it is not leased. */
uint8_t *berthi_leases_find(berthi_leases *leases, uint64_t berth);
void berthi_leases_summary(berthi_leases *leases, berth_lease_summary *out);
/* Adds counts to counts. */
void berthi_leases_add(berth_lease_summary *sum, const berth_lease_summary *more);
/*
 * Waits until nothing uses slots any more. EINVAL: a layer is leased. Nobody acquires or
 * releases meanwhile. `job`: as berthi_await_event() of stranded.h.
 */
berth_status berthi_leases_settle(berthi_leases *leases, const berth_job *job,
                                  berth_error *error);

#endif
