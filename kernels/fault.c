/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - the fault switch; empty in release builds. */
#include "kernels/fault.h"

#ifdef BERTH_TESTING

#include <stdatomic.h>
#include <stddef.h>

/* Tests own the process: here, and only in test builds, globals are right. */
static struct {
    _Atomic uint64_t calls;
    _Atomic uint64_t failures;
    _Atomic uint64_t nth;
    _Atomic int mode; /* 0 off, 1 once, 2 from then on */
} switches[BERTHI_FAULT_KIND_COUNT];

#define UNWATCHED UINT64_MAX
#define MAKING    (UINT64_MAX - 1)

static struct {
    _Atomic uint64_t left; /* calls before it; MAKING it; UNWATCHED: it was, or nobody wants it */
    void (*call)(void *user); /* written while it is UNWATCHED, read while it is MAKING */
    void *user;
} watch = { .left = UNWATCHED };

static void
note_call(void)
{
    uint64_t left = atomic_load(&watch.left);

    while (left < MAKING
           && !atomic_compare_exchange_weak(&watch.left, &left, left > 0 ? left - 1 : MAKING))
        continue;
    if (left > 0)
        return;
    watch.call(watch.user);
    atomic_store(&watch.left, UNWATCHED);
}

/* Not while the call that was wanted before is made. */
void
berthi_fault_watch(uint64_t nth, void (*call)(void *user), void *user)
{
    uint64_t left = atomic_load(&watch.left);

    while (left == MAKING || !atomic_compare_exchange_weak(&watch.left, &left, UNWATCHED))
        left = atomic_load(&watch.left);
    watch.call = call;
    watch.user = user;
    atomic_store(&watch.left, call != NULL ? nth : UNWATCHED);
}

bool
berthi_fault_is_due(berthi_fault_kind kind)
{
    const uint64_t call = atomic_fetch_add(&switches[kind].calls, 1);
    const int mode = atomic_load(&switches[kind].mode);
    const uint64_t nth = atomic_load(&switches[kind].nth);
    const bool is_due = (mode == 1 && call == nth) || (mode == 2 && call >= nth);

    if (is_due)
        atomic_fetch_add(&switches[kind].failures, 1);
    note_call();
    return is_due;
}

void
berthi_fault_arm(berthi_fault_kind kind, uint64_t nth, bool persistent)
{
    atomic_store(&switches[kind].calls, 0);
    atomic_store(&switches[kind].failures, 0);
    atomic_store(&switches[kind].nth, nth);
    atomic_store(&switches[kind].mode, persistent ? 2 : 1);
}

void
berthi_fault_disarm(void)
{
    for (int kind = 0; kind < BERTHI_FAULT_KIND_COUNT; kind++) {
        atomic_store(&switches[kind].mode, 0);
        atomic_store(&switches[kind].calls, 0);
    }
}

uint64_t
berthi_fault_calls(berthi_fault_kind kind)
{
    return atomic_load(&switches[kind].calls);
}

uint64_t
berthi_fault_failures(berthi_fault_kind kind)
{
    return atomic_load(&switches[kind].failures);
}

#else

/* C forbids an empty translation unit. */
typedef int berthi_fault_is_absent;

#endif
