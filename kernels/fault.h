/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - the fault switch: test builds can make the n-th call of a kind fail, once or from then
 * on. Release builds contain none of it, and the compiler reads the same of files that do not
 * include this: it has to read them but once (see the Makefile).
 */
#ifndef BERTH_KERNELS_FAULT_H
#define BERTH_KERNELS_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum berthi_fault_kind {
    BERTHI_FAULT_MEMORY,
    BERTHI_FAULT_SYSTEM,
    BERTHI_FAULT_DEVICE,
    BERTHI_FAULT_KIND_COUNT
} berthi_fault_kind;

#ifdef BERTH_TESTING
/* True when this call must fail. Any thread. */
bool berthi_fault_is_due(berthi_fault_kind kind);
/* The `nth` call from now fails (0 = the next); `persistent`: all later too. */
void berthi_fault_arm(berthi_fault_kind kind, uint64_t nth, bool persistent);
void berthi_fault_disarm(void);
/*
 * `call` is made at the `nth` call of any kind from now, once, on its thread, which may hold
 * locks of the library: for what is to happen at each moment of a job. NULL: never.
 */
void berthi_fault_watch(uint64_t nth, void (*call)(void *user), void *user);
/* Calls of this kind since the last arm or disarm; failures given. */
uint64_t berthi_fault_calls(berthi_fault_kind kind);
uint64_t berthi_fault_failures(berthi_fault_kind kind);
#else
#define berthi_fault_is_due(kind) false
#endif

#endif
