/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converted.h - berth_convert_start() in a test: a model in, a folder out, and
 * everything given back afterwards.
 */
#ifndef BERTH_TESTS_CONVERTED_H
#define BERTH_TESTS_CONVERTED_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda_calls.h"
#include "loader/convert.h"

typedef struct converted {
    berth_convert_options options; /* converted_begin() fills it; `report` is ours */
    berthi_convert_sizes sizes;
    berth_convert_report report;
    berth_error error;
    uint32_t findings;
    berth_error finding; /* the last one */
    uint32_t lines;      /* of coverage */
    /* What the log of converted_run() tells, summed over all its calls: */
    uint32_t moves; /* shards moved because of their headers */
    uint32_t redos; /* shards that got other tensors */
    uint32_t kept;  /* shards that kept bytes for their places */
    uint32_t copies; /* shards that a join could not complete where they were */
    uint32_t copied; /* the numbers of these, a bit each */
    uint32_t measured; /* times that a part has read the weights of another one */
    uint64_t peak;  /* of the context, in the last call */
    bool is_bare;   /* the digests of the source are not looked at */
    const char *devices;      /* words of what encodes; NULL: as the options say */
    const berthi_cuda_calls *cuda; /* plays the GPUs among them */
    uint64_t device_peak;     /* scratch on them, in the last call */
} converted;

/* To `output` in this encoding, everything else as it is by itself. */
void converted_begin(converted *c, const char *output, int32_t type);
/* Units of so many values, and everything else as small as that. */
void converted_shrink(converted *c, uint64_t unit_values);
/*
 * Opens `path`, converts, closes; no memory and no descriptor is left. What is
 * there then tells the digests of its source.
 */
berth_status converted_run(converted *c, const char *path);
/* The same in a context of the caller's. */
berth_status converted_run_in(converted *c, berth_context *context, const char *path);

/* Whether this machine has a GPU. */
bool converted_has_gpu(void);
/*
 * Both convert `path`, `there` with devices: the same files, and no more memory than is said
 * before. `there` is named by its devices in notes.
 */
void converted_check_device(converted *here, converted *there, const char *path);

/* A folder with one file of weights, which these lines describe (fixture.h). */
const char *converted_source(const char *lines);

/*
 * A folder with a random checkpoint of one to three shards: matrices of odd
 * shapes and what is never quantized. `is_odd`: with NaN and the like in them;
 * `has_strange_names`: some sort between a weight and its statistics.
 */
const char *converted_make_model(uint64_t seed, int layers, bool is_odd,
                                 bool has_strange_names);

/* False, and a note which file, unless both folders hold the same files. */
bool converted_is_same(const char *folder, const char *other);
/* What somebody sees who opens a folder as a model. */
typedef enum converted_view {
    CONVERTED_NOTHING, /* no index and no model.safetensors */
    CONVERTED_OLD,     /* all files of the old model */
    CONVERTED_NEW,     /* all files of the new one */
    CONVERTED_BROKEN
} converted_view;

/* Compares with folders that hold the new model and the old one, or NULL. */
converted_view converted_look(const char *folder, const char *new_model,
                              const char *old_model);
/* The output's manifest has the crc32 of every tensor of its source, and no other. */
bool converted_has_sources(const char *folder, const char *path);
/* Reads the output and compares it with its manifest. */
bool converted_is_verified(const char *folder);

/*
 * The shards and the index that the same options must give, made by whole
 * tensors at once with the reference operations, compared with those in the
 * output. Returns the number of weights that were quantized, decoded or cast; -1
 * after a difference, which is noted.
 */
int32_t converted_matches_oracle(const converted *c, const char *path);

#endif
