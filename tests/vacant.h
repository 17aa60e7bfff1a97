/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vacant.h - contexts and devices in which nobody has left anything: a simulated machine is
 * closed with whatever still lies in it, so a test that wants to know asks before.
 */
#ifndef BERTH_TESTS_VACANT_H
#define BERTH_TESTS_VACANT_H

#include <stdint.h>

#include "loader/berth.h"

/*
 * Checks that no device holds memory, by its own word and by the books of its context, and
 * of simulated ones that no stream and no pinned memory is left, and that nothing was given
 * back twice. Events are host memory there: the ledger has them. Where the context keeps
 * something for what hangs (berthi_context_keep()), only closing ends it, and nothing is
 * checked. NULL is allowed.
 */
void vacant_check(const berth_devices *devices);
/* Without the books: others in the context have memory, on devices of the same numbers. */
void vacant_check_devices(const berth_devices *devices);
/* The same, and closes them. */
void vacant_close(berth_devices *devices);
/* All host memory has been given back. */
void vacant_check_memory(const berth_context *context);
/* Every tier holds nothing for any purpose. */
void vacant_check_tiers(const berth_context *context);

#endif
