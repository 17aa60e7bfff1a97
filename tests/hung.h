/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hung.h - simulated devices whose copies hang, in tests: which copy, what is still in use
 * meanwhile, and that nothing is when it has come back.
 */
#ifndef BERTH_TESTS_HUNG_H
#define BERTH_TESTS_HUNG_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/loaded.h"
#include "tests/t.h"

#define HUNG_MS_NS UINT64_C(1000000)
/* Some tenths of a second are asked for; a loaded machine gets this. */
#define HUNG_SLACK_NS UINT64_C(10000000000)
/*
 * Of whoever is told that a copy hangs, where something else may be told first: then the same
 * is tried again with twice as much, and again. Most often this is enough.
 */
#define HUNG_FIRST_MS (T_IS_SANITIZED ? 100u : 25u)
/* Of whoever gives up, where what hangs never comes back by itself: nobody learns from more. */
#define HUNG_PATIENCE_NS (UINT64_C(200) * HUNG_MS_NS)
/* What a simulated machine keeps for itself: streams, work that was asked for. */
#define HUNG_LISTS (UINT64_C(64) << 10)

/* The first device's copy after `before` others hangs, counted from now on. */
void hung_copy(berth_devices *devices, uint64_t before);
/* The same of another device. */
void hung_copy_of(berth_devices *devices, uint32_t device, uint64_t before);
/* True when it has been asked for. */
bool hung_has(berth_devices *devices);
/* A device is lost at its call after `before` others. */
void hung_lose(berth_devices *devices, uint32_t device, uint64_t before);
/* Copies of the first device, so far. */
uint64_t hung_copies(berth_devices *devices);

/* Memory of a context and of its first device, to come back to. */
typedef struct hung_account {
    uint64_t bytes;
    uint64_t device_bytes; /* free */
} hung_account;

hung_account hung_account_of(const loaded *l);
bool hung_is_as_before(const loaded *l, const hung_account *before);
/* The device comes back; whoever keeps what it used looks, until nothing is left. */
void hung_recover(const loaded *l, const hung_account *before);

#endif
