/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leased.h - models for tests of leases: a plan, slabs filled by hand, and what has to
 * lie in a slot while its layer is leased.
 */
#ifndef BERTH_TESTS_LEASED_H
#define BERTH_TESTS_LEASED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/lease.h"
#include "loader/lease_state.h"
#include "tests/planned.h"

/*
 * A Llama of `layers` layers, hidden 64, in `shards` files; every byte depends on the
 * tensor's name and its place. 98 KiB a layer. Returns its folder.
 */
const char *leased_llama(uint32_t layers, uint32_t shards);

/* The same in one file, its projections stored in NF4, doubly quantized. */
const char *leased_nf4(uint32_t layers);
/*
 * A Mixtral of `layers` layers with `experts` experts each, two for a token, in one file:
 * 3 KiB an expert; or stored in NF4, doubly quantized.
 */
const char *leased_moe(uint32_t layers, uint32_t experts, bool is_nf4);
/*
 * One of `layers` layers, hidden 768: 7.6 MiB a layer, of tensors that need no pins to be
 * streamed. All zeros, as holes. Returns its folder.
 */
const char *leased_wide(uint32_t layers);

#define LEASED_PINS 24u

/* What a model is made with. Zero: as the plan has it. */
typedef struct leased_options {
    const char *memory;            /* budgets */
    const char *pins[LEASED_PINS]; /* up to the first NULL */
    uint32_t slots;
    const char *links;
    const char *devices;           /* words, one device for each GPU; NULL: host memory */
    uint64_t batch;
    bool is_empty;                 /* nothing is put into berths, nothing compared */
} leased_options;

/* A layer in a slot, as a call in a stream gets it: the host is far ahead by then. */
typedef struct leased_check {
    struct leased *leased;
    uint32_t layer;
    const uint8_t *memory;
} leased_check;

typedef struct leased {
    planned planned;
    berthi_devices *devices; /* NULL: `model.host` is all of them */
    berth_model model;
    berthi_model_tier tiers[16];
    berthi_leases *leases;
    berthi_lease_options options;
    bool is_empty;
    berthi_cargo *cargos;    /* of berths, */
    uint32_t *crcs;          /* and of their bytes */
    leased_check *checks;    /* of layers, in each slot */
    _Atomic uint64_t compared; /* layers */
    _Atomic uint64_t wrong;
} leased;

/* Ends the test's program where there is no such plan. */
void leased_begin(leased *l, const char *folder, const leased_options *options);
/* Checks that everything was given back. */
void leased_end(leased *l);

/* berthi_leases_create() and destroy(); the model's context keeps the books. */
berth_status leased_start(leased *l, berth_error *error);
/* True when all that the devices' own streams were asked for is done. */
bool leased_settle(leased *l);
/* Nothing may be under way that compares bytes of slots. */
void leased_stop(leased *l);

uint32_t leased_layers(const leased *l);
/* True where `memory` holds what was stored for the berth. */
bool leased_is_right(const leased *l, uint64_t berth, const uint8_t *memory);
/* True where something is streamed for the layer. */
bool leased_is_streamed(const leased *l, uint32_t layer);
/* The device that computes the layer. */
berthi_device *leased_device(const leased *l, uint32_t layer);

/*
 * Asks `stream` to compare what lies in the slot with what should; wrong bytes are
 * counted in `wrong`. `seconds` of the device's time go by before that.
 */
berth_status leased_compare(leased *l, uint32_t layer, berthi_stream *stream,
                            double seconds, berth_error *error);
/* Acquires, compares at the beginning and at the end, releases. */
berth_status leased_use(leased *l, uint32_t layer, berthi_stream *stream, double seconds,
                        berth_error *error);
/* One use of every layer, in order; streams by tier (NULL: all NULL). */
berth_status leased_pass(leased *l, berthi_stream *const *streams, berth_error *error);

/* A fault_function: `leased` with the context's books, two passes, all given back. */
berth_status leased_use_all(void *user, berth_context *context, berth_error *error);

/* Bytes of one pass: of units, and of them from the disk. */
uint64_t leased_unit_bytes(const leased *l);
uint64_t leased_disk_bytes(const leased *l);

#endif
