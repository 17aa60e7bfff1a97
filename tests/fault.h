/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - a function run with the n-th allocation or system call failing,
 * for n = 0, 1, 2 ... until it got through without a failure: once with that
 * single failure, once with all later calls failing too.
 *
 * The function does the whole thing, set-up to clean-up, and returns the first
 * status that was not BERTH_OK. It checks for itself that outputs are NULL.
 *
 * Checked here: a failed allocation gives BERTH_ENOMEM, if any failure; a
 * failed system call any; the error's status is the one returned and says
 * something; the context's ledger, the books of all its tiers, the open descriptors
 * and the threads are afterwards what they were. Devices are closed by then: a function
 * that opens some closes them with vacant_close() (tests/vacant.h).
 */
#ifndef BERTH_TESTS_FAULT_H
#define BERTH_TESTS_FAULT_H

#include <stdint.h>

#include "loader/berth.h"

typedef berth_status (*fault_function)(void *user, berth_context *context,
                                       berth_error *error);

/* What a loop has counted. */
typedef struct fault_counts {
    uint64_t runs;
    uint64_t memory;   /* runs in which an allocation failed            */
    uint64_t system;   /* runs in which a system call failed            */
    uint64_t device;   /* runs in which a call of a device failed       */
    uint64_t survived; /* of all: runs that succeeded all the same     */
} fault_counts;

/*
 * Runs both loops over `function` and prints the counts. Few failures may be
 * survived, those of advice and of what makes things faster only: the caller
 * compares `survived` with what it knows.
 */
fault_counts fault_loop(const char *name, fault_function function, void *user);
/* The same with calls of devices failing. */
fault_counts fault_loop_devices(const char *name, fault_function function, void *user);

/*
 * From the n-th failure to the next one that is given. Races are a matter of which threads
 * are about, and late failures a few calls apart meet the same ones: where threads are
 * watched, which takes twenty times as long, one of eight is given there and counts for all
 * eight.
 */
uint64_t fault_step(uint64_t nth);

#endif
