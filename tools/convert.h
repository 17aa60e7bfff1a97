/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - what `berth quantize` and `berth dequantize` share: their arguments,
 * the job, and what is said about it.
 */
#ifndef BERTH_TOOLS_CONVERT_H
#define BERTH_TOOLS_CONVERT_H

#include "tools/session.h"

#define CONVERT_MAX_SKIPS 256
#define CONVERT_MIN_SHARD 4096 /* bytes; the library takes no less */

/* Arguments of both; dequantize leaves those of quantizing at zero. */
typedef struct convert_arguments {
    cli_common common;
    model_arguments model;
    int32_t type;    /* position in CONVERT_TYPES */
    int32_t storage; /* in CONVERT_STORAGES */
    int32_t dtype;   /* in CONVERT_DTYPES */
    int32_t compute_dtype; /* in CONVERT_COMPUTE_DTYPES */
    int32_t like;    /* in CONVERT_ERAS */
    uint32_t block_size;
    bool is_double;
    bool takes_experts;
    bool rejects_nonfinite;
    const char *skip_modules;
    const char *rules;
    const char *min_coverage;
    cli_list keep;
    cli_list only;

    uint64_t max_shard_bytes;
    uint64_t ring_bytes;
    uint32_t jobs;
    int32_t io;
    int32_t progress;
    uint32_t progress_fd;
    bool is_resuming;
    bool may_overwrite;
    bool is_dry;
    bool wants_json;
    bool is_quiet;
} convert_arguments;

#define CONVERT_TYPES "nf4|fp4|int8"
/* Every word that names one of the three dtypes, behind one that names none. */
#define CONVERT_DTYPE_WORDS "bf16|fp16|f32|bfloat16|float16|float32|f16|fp32"
#define CONVERT_DTYPES "model|" CONVERT_DTYPE_WORDS
#define CONVERT_STORAGES "uint8|" CONVERT_DTYPE_WORDS
#define CONVERT_COMPUTE_DTYPES CONVERT_DTYPE_WORDS
#define CONVERT_ERAS "hf5|hf5.14|hf5.0|hf4"

/* Rows of both option tables, behind those of quantizing. */
#define CONVERT_OPTIONS                                                                    \
    { "max-shard-size", '\0', CLI_SIZE, offsetof(convert_arguments, max_shard_bytes),     \
      "SIZE", NULL, "5GB", "largest file of the new checkpoint" },                         \
    { "resume", '\0', CLI_FLAG, offsetof(convert_arguments, is_resuming), NULL, NULL,     \
      NULL, "go on with what an interrupted run has finished" },                           \
    { "force", 'f', CLI_FLAG, offsetof(convert_arguments, may_overwrite), NULL, NULL,     \
      NULL, "replace a checkpoint that is there" },                                        \
    { "dry-run", 'n', CLI_FLAG, offsetof(convert_arguments, is_dry), NULL, NULL, NULL,    \
      "decide, count, report; write nothing" },                                            \
    { "jobs", 'j', CLI_NUMBER, offsetof(convert_arguments, jobs), "N", NULL, NULL,        \
      "threads that convert; without it, one a core" },                                    \
    { "io", '\0', CLI_CHOICE, offsetof(convert_arguments, io), "auto|direct|buffered",    \
      "BERTH_IO", "auto",                                                                  \
      "past the page cache, through it, or whichever suits the files" },                   \
    { "ring", '\0', CLI_SIZE, offsetof(convert_arguments, ring_bytes), "SIZE", NULL,      \
      "128MiB", "memory for bytes in flight" },                                            \
    { "json", '\0', CLI_FLAG, offsetof(convert_arguments, wants_json), NULL, NULL, NULL,  \
      "one JSON object: findings, verdict, numbers" },                                     \
    { "quiet", 'q', CLI_FLAG, offsetof(convert_arguments, is_quiet), NULL, NULL, NULL,    \
      "print errors only" },                                                               \
    { "progress", '\0', CLI_CHOICE, offsetof(convert_arguments, progress),                \
      PROGRESS_WORDS, NULL, "auto",                                                        \
      "a bar on a terminal and a line every 5 s elsewhere; or as said" },                  \
    { "progress-fd", '\0', CLI_NUMBER, offsetof(convert_arguments, progress_fd), "N",     \
      NULL, "2", "descriptor for progress" },                                              \
    MODEL_OPTIONS(convert_arguments, model)

/* The settle function of both. */
berth_status convert_settle(cli_call *call);
/* Converts to `type`, a berth_encoding; NATIVE dequantizes. */
berth_status convert_run(session *s, int32_t type);

#endif
