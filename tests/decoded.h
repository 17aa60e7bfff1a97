/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoded.h - a model of tests/data/llama run by the decoder: its logits, held against
 * those of the reference library or of another run.
 */
#ifndef BERTH_TESTS_DECODED_H
#define BERTH_TESTS_DECODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/llama_run.h"

#define DECODED_DATA "tests/data/llama/"
#define DECODED_GENERATED 8u

/* How a model is loaded and run. */
typedef struct decoded_setup {
    const char *model;
    const char *folder;     /* NULL: that of `model` */
    int32_t type;
    int32_t double_quant;
    const char *max_memory; /* NULL: all of it in host memory */
    const char *devices;    /* NULL: the processor */
    const char *pins[2];
    uint32_t least_tokens;  /* of the prompt: it begins anew until there are so many */
    uint32_t batch;
    uint32_t threads;
    int32_t cache_dtype;
    bool has_int8_inputs;
    const char *offload_dir;
    llama_compute compute;
    int32_t activations;    /* 0: BERTH_F32 */
    bool takes_experts;     /* they are encoded, too */
} decoded_setup;

/* What came out. */
typedef struct decoded {
    float *logits;
    uint32_t count;  /* tokens of the prompt */
    uint32_t vocab;
    uint32_t ids[DECODED_GENERATED];
    berth_lease_summary leases;
} decoded;

typedef struct decoded_distance {
    double largest;
    double rms;
} decoded_distance;

/* A folder of the llama's weights under a config.json in which `from` has become `to`. */
const char *decoded_rewritten(const char *from, const char *to);
/* A model's folder in which tensors of 16 bits with `wide` in their name are stored as F32. */
const char *decoded_widened(const char *model, const char *wide);
/* As Qwen2 has them, with biases: queries, keys and values are a quarter higher. */
const char *decoded_biased(void);
/* One tensor of a recorded file; free() it. */
void *decoded_read(const char *model, const char *name, uint64_t *bytes);
/* A plan, and the model loaded by it. */
berth_status decoded_load(const decoded_setup *s, berth_context *context,
                          berth_checkpoint *checkpoint, berth_devices *devices,
                          berth_plan **plan, berth_model **model, berth_error *error);
/* The whole way; what it takes is given back. The caller frees the logits. */
decoded decoded_compute(const decoded_setup *s);
decoded_distance decoded_distance_of(const float *a, const float *b, size_t count);
/* As near to what was recorded under this name as 32-bit floats are. */
void decoded_check_near(const decoded_setup *s, const char *name);
/* The same bits; `leases` (NULL is allowed) are those of `b`. */
void decoded_check_same(const decoded_setup *a, const decoded_setup *b,
                        berth_lease_summary *leases);

#endif
