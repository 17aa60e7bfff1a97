/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pass.h - passes over the layers of a loaded model, timed by its devices. */
#ifndef BERTH_TOOLS_BENCH_PASS_H
#define BERTH_TOOLS_BENCH_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

typedef struct pass_facts {
    uint32_t passes;      /* measured together, behind the first one                  */
    double first_seconds; /* by the clock of the devices, of the host without any     */
    double seconds;       /* of one of those that follow                              */
    double predicted;     /* by the plan: with or without computing                   */
    bool is_computing;    /* simulated devices are given what the plan takes for it   */
    int32_t bound;        /* as in berth_plan_summary                                 */
    uint64_t copied_bytes; /* in a pass, counted by the library                       */
    uint64_t disk_bytes;
    uint64_t planned_bytes; /* brought for a token, as the plan has it                */
    uint64_t planned_disk_bytes;
    uint64_t host_waits;  /* in all passes                                            */
} pass_facts;

typedef struct pass_options {
    double seconds;      /* for all passes; two are made at least */
    double wait_seconds; /* longest wait for a stream that does not move */
    bool (*is_cancelled)(void);
} pass_options;

/*
 * Acquires and releases every layer in order, pass after pass. Returns BERTH_ECANCELLED when
 * `is_cancelled` says so, BERTH_EIO where a device does not move.
 */
berth_status pass_run(berth_model *model, const berth_plan *plan, berth_devices *devices,
                      const pass_options *options, pass_facts *out, berth_error *error);

#endif
