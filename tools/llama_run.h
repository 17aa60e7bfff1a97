/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_run.h - tokens in, logits out: the layers of a loaded model one after the
 * other, each leased while it is computed.
 *
 *   tokens ─▶ rows of the embedding ─▶ layer 0 ─▶ ... ─▶ final norm, head ─▶ logits
 *
 *   a layer:  acquire ─▶ where its weights lie ─▶ compute, on its stream ─▶ release
 *
 * Layers are computed by this program, where they lie in host memory, or in the stream's
 * order in that of simulated devices; or by the devices themselves.
 */
#ifndef BERTH_TOOLS_LLAMA_RUN_H
#define BERTH_TOOLS_LLAMA_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/llama_config.h"

typedef struct llama_run llama_run;

typedef enum llama_compute {
    LLAMA_COMPUTE_HOST,  /* this program, where it reaches the devices' memory */
    LLAMA_COMPUTE_DEVICE /* the devices that layers lie on */
} llama_compute;

/* Everything is borrowed and must outlive the run. */
typedef struct llama_run_options {
    berth_context *context;
    berth_checkpoint *checkpoint;
    const berth_plan *plan;
    berth_devices *devices;  /* that the model was loaded on; NULL: the processor */
    berth_model *model;
    const llama_config *config;
    uint32_t capacity;       /* tokens of the sequence */
    uint32_t batch;          /* tokens that a pass takes at most; 0: 512 */
    uint32_t threads;        /* 0: one a usable core */
    int32_t cache_dtype;     /* of keys and values: BERTH_F32, _BF16 or _F16 */
    bool has_int8_inputs;    /* INT8 weights: LLM.int8(), else inputs stay floats */
    llama_compute compute;
    int32_t activations;     /* DEVICE: BERTH_F32, _BF16 or _F16 */
} llama_run_options;

/*
 * Free it with llama_run_destroy(), before the model. BERTH_EFORMAT: weights are not
 * those of the configuration; BERTH_EUNSUPPORTED; BERTH_ENOMEM; BERTH_ENODEV.
 */
berth_status llama_run_create(const llama_run_options *options, llama_run **out,
                              berth_error *error);
/* NULL is allowed. */
void llama_run_destroy(llama_run *run);

/*
 * The next `count` tokens of the sequence. `logits` gets config->vocab numbers for the
 * last of them, or, with `wants_all`, for each. Fails with BERTH_EINVAL where a token is
 * none or the sequence gets too long, and as leases do; the run is then good for
 * nothing but its end.
 */
berth_status llama_run_feed(llama_run *run, const uint32_t *tokens, uint32_t count,
                            bool wants_all, float *logits, berth_error *error);

/*
 * One token more, and *next that is then the likeliest. `room` is for config->vocab numbers,
 * which only come there where the host computes: a device brings no more than the token.
 */
berth_status llama_run_step(llama_run *run, uint32_t token, float *room, uint32_t *next,
                            berth_error *error);

/* Bytes of weights that one token reads. */
uint64_t llama_run_token_bytes(const llama_run *run);
/* How many threads of this program compute; 0: devices do. */
uint32_t llama_run_threads(const llama_run *run);

#endif
