/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded.h - a model in a test: opened, planned, loaded, compared with what lies in
 * its files, given back.
 */
#ifndef BERTH_TESTS_LOADED_H
#define BERTH_TESTS_LOADED_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/planned.h"

/*
 * A Llama of `layers` layers, hidden 256, 704 in its MLP, 512 words, in this dtype, with
 * random weights that are no NaN; some tensors end in the middle of a page, one has an
 * odd size. Of `shards` shards. Returns its folder.
 */
const char *loaded_llama(uint32_t layers, const char *dtype, uint32_t shards);
/* The same in BF16, whose head is its embedding. */
const char *loaded_tied(uint32_t layers, uint32_t shards);
/* That, and the head is stored all the same. */
const char *loaded_tied_and_stored(uint32_t layers, uint32_t shards);
/* Hidden 768, 1024 in its MLP, BF16: its matrices are large enough to be streamed. */
const char *loaded_large(uint32_t layers, uint32_t shards);
/* Hidden 256, 12000 in its MLP, one layer, BF16: matrices of 6 MB, more than a piece. */
const char *loaded_wide(uint32_t shards);
/* Hidden 4, one layer, BF16: rows of one matrix have 2.2 MB, more than half a piece. */
const char *loaded_long(void);
/* A GPT-2 of one layer: its weights lie as [in, out], and are turned to be encoded. */
const char *loaded_gpt2(const char *dtype, uint32_t hidden, uint32_t shards);

/* Of a plan without reserve and KV cache, for these memories. */
berth_plan_options loaded_options(const char *max_memory);

typedef struct loaded {
    planned p;
    berth_devices *devices; /* NULL: the plan has no GPUs */
    berth_model *model;     /* NULL: it was refused */
    berth_load_options options;
    berth_load_report report;
    berth_status status;
    berth_error error;
} loaded;

/* Opens and plans; `words`: devices for the plan's GPUs, or NULL. */
void loaded_begin(loaded *l, const char *folder, berth_plan_options *options,
                  const char *words);
/* Loads with l->options: status, error, report, model. */
void loaded_load(loaded *l);
/* Model and devices are given back; memory is what it was before the plan's end. */
void loaded_unload(loaded *l);
void loaded_end(loaded *l);

/* What the context holds of host memory. */
uint64_t loaded_bytes(const berth_context *context);

/* A load from the opening on, in a context of the caller. */
typedef struct loaded_attempt {
    const char *folder;
    const char *max_memory;
    const char *words; /* devices; NULL: host memory alone */
    int32_t type;
    bool is_double;
    uint32_t rank;
    uint32_t ranks;    /* 0: the whole model */
    int32_t verify;
    bool has_passes;   /* each layer is leased once, and behind it these of its experts */
    const uint32_t *experts;
    uint32_t expert_count;
    bool no_uring;
    const char *const *pins;
    uint32_t pin_count;
    const char *offload_dir;
    bool has_company;  /* other models are in the context */
    bool has_loaded;   /* what became of it: what failed, if anything, was a lease */
} loaded_attempt;

/* Opens, plans, loads, leases, gives everything back: a fault_function for an attempt. */
berth_status loaded_once(void *attempt, berth_context *context, berth_error *error);

/*
 * Digests of all berths are those of the same tensors of the checkpoint in `folder`, as
 * stored there: that of the model itself, or one that was quantized before.
 */
void loaded_check(loaded *l, const char *folder);
/* berth_check_start() to its end. */
berth_status loaded_see_checked(loaded *l, berth_check_report *report);
/* The folder, quantized by berth_convert_start() as the options of a plan say. */
const char *loaded_quantized(const char *folder, const berth_plan_options *options);

/* Writes berth.manifest.json beside the model; returns its path. */
const char *loaded_manifest(const char *folder);

#endif
