/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_engine.h - what computes the stages of a pass, whose weights somebody leases.
 *
 *   llama_host.c     functions of this program, in the order of the devices' streams
 *   llama_device.c   the devices themselves
 */
#ifndef BERTH_TOOLS_LLAMA_ENGINE_H
#define BERTH_TOOLS_LLAMA_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/llama_run.h"
#include "tools/llama_weights.h"

/* Tokens that go through all layers at once. */
typedef struct llama_pass {
    const uint32_t *tokens;
    uint32_t count;
    uint32_t position; /* tokens of the sequence that came before them */
    bool wants_all;    /* logits of each, else of the last */
    float *logits;     /* NULL: nobody wants them */
    uint32_t *next;    /* of devices: the likeliest token behind the last; NULL: not wanted */
} llama_pass;

typedef struct llama_engine_table llama_engine_table;

/* What each engine begins with; all but itself is borrowed. */
typedef struct llama_engine {
    const llama_engine_table *table;
    const llama_run_options *options;
    const llama_weights *weights;
    void *const *streams;   /* of the devices; behind them NULL */
    uint32_t device_count;
    uint32_t threads;       /* of this program that compute; 0: it only asks */
    const llama_pass *pass; /* under way */
    const uint32_t *counts; /* tokens of each expert of the sparse stage that has settled */
} llama_engine;

struct llama_engine_table {
    void (*destroy)(llama_engine *engine);
    /* engine->pass begins: rows of the embedding. */
    berth_status (*begin)(llama_engine *engine, berth_error *error);
    /*
     * Asks for a stage whose layers are leased and weights taken; not for experts that
     * are leased apart.
     */
    berth_status (*compute)(llama_engine *engine, const llama_stage *stage, uint32_t number,
                            berth_error *error);
    /* Asks for the experts in [first, end) that engine->counts says are used. */
    berth_status (*experts)(llama_engine *engine, const llama_stage *stage, uint32_t first,
                            uint32_t end, berth_error *error);
    /* Waits for what was asked for; it may have failed. */
    berth_status (*settle)(llama_engine *engine, berth_error *error);
};

/*
 * What it is made from lends the borrowed members. Give it back with table->destroy(); *out
 * is NULL after a failure.
 */
berth_status llama_host_create(const llama_engine *from, llama_engine **out,
                               berth_error *error);
/* Before anything is loaded: BERTH_EUNSUPPORTED for what the steps of devices do not compute. */
berth_status llama_device_check(const llama_config *config, berth_error *error);
berth_status llama_device_create(const llama_engine *from, llama_engine **out,
                                 berth_error *error);

static inline void *
llama_stream(const llama_engine *engine, uint32_t device)
{
    return engine->streams[device < engine->device_count ? device : engine->device_count];
}

#endif
