/* SPDX-License-Identifier: Apache-2.0 */
/* llama_options.h - the command line of berth-llama. */
#ifndef BERTH_TOOLS_LLAMA_OPTIONS_H
#define BERTH_TOOLS_LLAMA_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "loader/berth.h"

#define LLAMA_PINS_MAX 32u

/* Texts are those of the command line. */
typedef struct llama_options {
    const char *model;
    const char *plan;        /* file; NULL: one is made */
    const char *type;        /* what a plan is made for */
    const char *dtype;
    const char *max_memory;
    const char *links;
    const char *pins[LLAMA_PINS_MAX];
    uint32_t pin_count;
    uint32_t slots;
    bool double_quant;
    const char *devices;
    const char *offload_dir; /* of layers that are quantized and lie on the disk */
    const char *tokens;
    const char *tokens_file;
    const char *logits;      /* file; NULL: none */
    bool may_overwrite;      /* that file */
    uint32_t generate;       /* ids to print */
    uint32_t context;        /* longest sequence; 0: as long as this one gets */
    uint32_t batch;
    uint32_t threads;
    const char *cache_dtype; /* "f32" */
    const char *compute;     /* "host", "device"; NULL: as the devices are */
    const char *activations; /* NULL: "f32" */
    bool has_int8_inputs;
    bool wants_json;
    bool is_quiet;
    bool wants_help;
    bool wants_version;
} llama_options;

/*
 * BERTH_OK or BERTH_EINVAL. `wants_json` and the message of `error` are good in either case.
 */
berth_status llama_options_parse(int argc, char **argv, llama_options *out,
                                 berth_error *error);
void llama_options_print_help(FILE *out);

/* "bf16", "f16", "f32" as a berth_dtype; -1: none of them. */
int32_t llama_options_dtype(const char *word);
/* The plan's options that the command line says. BERTH_OK or BERTH_EINVAL. */
berth_status llama_options_plan(const llama_options *options, berth_plan_options *out,
                                berth_error *error);

#endif
