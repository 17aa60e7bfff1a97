/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuned.h - QLoRA runs: the model of adapt.h learns a short text by heart, its adapters
 * updated by an optimizer of berth.h, whose states lie where the run wants them.
 *
 *   a step   forward, loss, backward (host) ──gradients──▶ berth_optimizer_step()
 *                  ▲                                             │
 *                  └───────────────────values────────────────────┘
 *
 * On a device, simulated or not, values and gradients are copied for that. Whatever fails
 * here ends the program.
 */
#ifndef BERTH_TESTS_TUNED_H
#define BERTH_TESTS_TUNED_H

#include <stdint.h>

#include "tests/adapt.h"

#define TUNED_RANK 16u
#define TUNED_ALPHA 32.0f
/* A line of a poem, a byte a token. */
extern const uint32_t tuned_text[];
#define TUNED_TOKENS 35u /* that are foreseen: all but the first */

/* What the adapters of a run are updated with: AdamW, with its published defaults. */
typedef struct tuned_setup {
    const char *base;    /* folder of the model, see adapt_write_base() */
    const char *devices; /* NULL: the processor */
    const char *states_dir; /* for states on the disk */
    int32_t bits;        /* of states; all adapters are large enough for 8 */
    int32_t place;       /* berth_states_place */
    uint32_t seed;       /* of adapters */
} tuned_setup;

typedef struct tuner {
    adapted model;
    berth_devices *devices; /* NULL: the processor */
    berth_optimizer *optimizer;
    berth_gradient *gradients;
    void *values;           /* memory of the device: model.learned, model.gradients */
    void *slopes;
} tuner;

void tuner_open(tuner *t, berth_context *context, const tuned_setup *setup);
void tuner_close(tuner *t);
/* The loss before; then all adapters are updated by model.gradients. */
double tuner_measure(tuner *t);
void tuner_update(tuner *t);
/* Adapters and states, in a folder; and what is there in place of the tuner's. */
void tuner_save(const tuner *t, const char *folder, const char *base);
void tuner_resume(tuner *t, const char *folder);

/* A run of `steps` steps. */
typedef struct tuned {
    uint32_t steps;
    double *losses;      /* before each step, and behind the last: steps + 1 */
    float *learned;      /* adapters, as they are at the end */
    uint64_t elements;
    berth_optimizer_memory memory;
    berth_parameter_state *states; /* of each parameter, at the end */
    uint32_t parameter_count;
} tuned;

/* `folder`: the adapters go there (adapt_write()); NULL: nowhere. */
void tuned_run(tuned *out, berth_context *context, const tuned_setup *setup,
                 uint32_t steps, const char *folder);
void tuned_free(tuned *run);
/* The largest distance of their losses at any step. */
double tuned_distance(const tuned *a, const tuned *b);

#endif
