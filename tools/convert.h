/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - what `berth quantize` and `berth dequantize` share: their arguments,
 * the job, and what is said about it.
 */
#ifndef BERTH_TOOLS_CONVERT_H
#define BERTH_TOOLS_CONVERT_H

#include "tools/encoding.h"
#include "tools/session.h"

#define CONVERT_MIN_SHARD 4096 /* bytes; the library takes no less */

/* Arguments of both; dequantize leaves those of quantizing at zero. */
typedef struct convert_arguments {
    cli_common common;
    model_arguments model;
    encoding_arguments encoding; /* its type in CONVERT_TYPES */
    int32_t compute_dtype;       /* in CONVERT_COMPUTE_DTYPES */
    bool rejects_nonfinite;
    const char *device; /* words; NULL: the processor */
    bool has_to_verify;
    bool is_unverified;
    const char *manifest;
    bool verifies_blobs;
    const char *min_coverage;

    uint64_t max_shard_bytes;
    uint64_t ring_bytes;
    uint32_t jobs;
    int32_t io;
    progress_arguments progress;
    bool is_resuming;
    bool may_overwrite;
    const char *part;
    bool is_joining;
    bool is_dry;
    bool wants_json;
    bool is_quiet;
} convert_arguments;

#define CONVERT_TYPES "nf4|fp4|int8"
#define CONVERT_COMPUTE_DTYPES "source|" ENCODING_DTYPE_WORDS

/*
 * Paragraphs of both descriptions. The first tells scripts when OUT is a model, by the order in
 * which berthi_writer_publish() gives files their names.
 */
#define CONVERT_OUTPUT_TEXT                                                                \
    "Files in OUT have temporary names until all of them are finished. The last to get its "  \
    "own is model.safetensors.index.json, or model.safetensors where there is one shard: "   \
    "OUT is complete when that is there and .berth-journal.json is not. What an "            \
    "interrupted run has finished stays in OUT for --resume, which writes the same bytes; "  \
    "IN is never changed. Where OUT is complete, the same command with --resume has nothing " \
    "to do, and files beside the weights that are others in IN by now are a warning."

#define CONVERT_VERIFY_TEXT                                                                \
    "Where a manifest lies beside IN, every byte that is converted is held against it on its " \
    "way, and each file's header before that: see berth-manifest(5). Exit code 5 names what is " \
    "another, and OUT does not become a model. What an earlier run or other parts have "    \
    "converted is held against it by the digests that they have noted; an OUT that was "     \
    "finished before, but for the names of its files, is left alone. Tensors that OUT is "   \
    "not made of are not read: they are counted. Files beside the weights are not compared: "   \
    "`berth verify --digest` does that. "                                                    \
    "--verify-blobs holds a model of the hub's cache against the SHA-256 that its blobs are "  \
    "called by, before anything is written: each that is another is named, and a file of IN " \
    "that is no such blob is refused. Files are read as a whole for that, and then once "    \
    "more; with --part by each process."

#define CONVERT_PARTS_TEXT                                                                 \
    "Several processes share the work with --part, on any machines that see the same "     \
    "files: the same command with another I/N each. With auto the rank comes from "        \
    "mpirun, srun or a Slurm job array, with auto/N also from an indexed Kubernetes "      \
    "job. The last to finish puts OUT together, byte for byte what one process writes; "   \
    "without locks on the file system --join does. A part that died is run again alone "   \
    "with --resume."

/* Rows of both option tables, behind those of quantizing. */
#define CONVERT_OPTIONS                                                                    \
    { "max-shard-size", '\0', CLI_SIZE, offsetof(convert_arguments, max_shard_bytes),     \
      "SIZE", NULL, "5GB",                                                                  \
      "largest file of the new checkpoint, but for tensors that stay together" },           \
    { "resume", '\0', CLI_FLAG, offsetof(convert_arguments, is_resuming), NULL, NULL,     \
      NULL, "go on with what an interrupted run has finished" },                           \
    { "force", 'f', CLI_FLAG, offsetof(convert_arguments, may_overwrite), NULL, NULL,     \
      NULL, "replace a checkpoint that is there" },                                        \
    { "part", '\0', CLI_TEXT, offsetof(convert_arguments, part), "I/N", NULL, NULL,       \
      "do only this share: N processes make one OUT; or auto, auto/N" },                   \
    { "join", '\0', CLI_FLAG, offsetof(convert_arguments, is_joining), NULL, NULL, NULL,  \
      "put together what all parts have finished" },                                       \
    { "verify", '\0', CLI_FLAG, offsetof(convert_arguments, has_to_verify), NULL, NULL,   \
      NULL, "there has to be a manifest of IN, and all that is stored in it; without this, " \
            "what a manifest has is verified" },                                            \
    { "no-verify", '\0', CLI_FLAG, offsetof(convert_arguments, is_unverified), NULL, NULL, \
      NULL, "leave a manifest of IN alone" },                                              \
    { "manifest", '\0', CLI_INPUT, offsetof(convert_arguments, manifest), "FILE", NULL,   \
      NULL, "verify IN with this one; without it, berth.manifest.json beside it, or of a "  \
            "single file IN.berth.manifest.json where that is there" },                     \
    { "verify-blobs", '\0', CLI_FLAG, offsetof(convert_arguments, verifies_blobs), NULL,  \
      NULL, NULL, "first read all of IN and compare its files, hub blobs each, with their "   \
                  "SHA-256" },                                                            \
    { "dry-run", 'n', CLI_FLAG, offsetof(convert_arguments, is_dry), NULL, NULL, NULL,    \
      "decide, count, report; write nothing" },                                            \
    { "jobs", 'j', CLI_NUMBER, offsetof(convert_arguments, jobs), "N", NULL, NULL,        \
      "threads that convert; without it, one a core, with --device 4 at least" },          \
    IO_OPTION(convert_arguments, io),                                                      \
    { "ring", '\0', CLI_SIZE, offsetof(convert_arguments, ring_bytes), "SIZE", NULL,      \
      "64MiB", "memory for bytes in flight, 12MiB at least" },                             \
    { "json", '\0', CLI_FLAG, offsetof(convert_arguments, wants_json), NULL, NULL, NULL,  \
      "one JSON object: findings, verdict, numbers" },                                     \
    { "quiet", 'q', CLI_FLAG, offsetof(convert_arguments, is_quiet), NULL, NULL, NULL,    \
      "print errors only" },                                                               \
    PROGRESS_OPTIONS(convert_arguments, progress),                                         \
    MODEL_OPTIONS(convert_arguments)

/* Converts to `type`, a berth_encoding; NATIVE dequantizes. */
berth_status convert_run(session *s, int32_t type);

#endif
