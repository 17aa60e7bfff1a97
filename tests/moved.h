/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moved.h - a loaded model that is to be moved, and what has to be in its berths
 * wherever they are.
 */
#ifndef BERTH_TESTS_MOVED_H
#define BERTH_TESTS_MOVED_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/loaded.h"

typedef struct moved {
    loaded l;
    uint32_t *digests; /* of berths, as loaded */
    uint64_t looked;   /* tensors in a pass */
    uint64_t memory;   /* of weights on the host, while it is awake */
    berth_move_options options; /* of what follows */
    berth_move_report report;
    berth_error error;
} moved;

/* Opens, plans, loads; ends the test's program where that fails. */
void moved_begin(moved *m, const char *folder, berth_plan_options *options,
                 const char *words);
/* The same with a folder for what the files do not have as a slot wants it. */
void moved_begin_with(moved *m, const char *folder, berth_plan_options *options,
                      const char *words, const char *offload_dir);
/* Checks that nothing is left. */
void moved_end(moved *m);

/* Host memory for weights: what else there is, rings and queues, comes and goes. */
uint64_t moved_used(const moved *m);
/* Of a device. */
uint64_t moved_free(const moved *m, uint32_t number);

/* From start to finish: the status of either, its error in m->error. */
berth_status moved_sleep(moved *m);
berth_status moved_wake(moved *m);
berth_status moved_move(moved *m, const berth_plan *plan);
/* This one sleeps, `other` wakes. */
berth_status moved_swap(moved *m, berth_model *other);
/* The same for a job that was started, or not. */
berth_status moved_finish(moved *m, berth_status status, berth_job *job);
/* Checks that it is BERTH_OK, and tells what the error says. */
bool moved_is_ok(const moved *m, berth_status status);

/* Awake, every berth with the bytes that were loaded. */
void moved_check(moved *m);

/* Another plan of the model; it lives until moved_end(). */
berth_plan *moved_plan(moved *m, berth_plan_options *options);
void moved_free_plans(void);

#endif
