/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - a file that appears under its name complete or not at all.
 *
 *   open ──▶ write, write, ... ──▶ commit        discard at any point before
 *
 * The bytes go into a temporary file in the same folder (temporary.h); commit
 * makes them durable, then renames. An existing file is never truncated or
 * written in place. A link at the name is replaced, not followed. What a killed
 * process left is removed by the next one that opens the same output.
 */
#ifndef BERTH_LOADER_OUTPUT_H
#define BERTH_LOADER_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/temporary.h"

typedef struct berthi_output {
    berth_context *context; /* NULL: not open */
    berthi_arena texts;
    berthi_target target;
    const char *temporary;  /* in the folder; NULL: there is none */
    uint64_t bytes;
    uint64_t written;
    int fd;                 /* descriptor; -1: not open */
    bool has_own_folder;    /* the folder's descriptor is closed with the output */
} berthi_output;

/*
 * Creates the temporary file for `bytes` bytes, which is exactly what will be
 * written, and refuses at once what cannot succeed: a target that exists
 * (EXISTS, unless `overwrite`) or is no regular file (NOT_REGULAR), too little
 * space or too low a limit (DISK_FULL), a folder inside the hub cache
 * (ARGUMENT: its files are shared and named by their contents).
 */
berth_status berthi_output_open(berth_context *context, const char *path, uint64_t bytes,
                                bool overwrite, berthi_output *out, berth_error *error);

/* The same in a folder that somebody holds; `target` is copied, what it points to borrowed. */
berth_status berthi_output_open_in(berth_context *context, const berthi_target *target,
                                   uint64_t bytes, berthi_output *out,
                                   berth_error *error);

/*
 * The same in a folder that somebody holds, locked and checked; `target` is
 * copied, what it points to is borrowed.
 */
berth_status berthi_output_open_at(berth_context *context, const berthi_target *target,
                                   uint64_t bytes, berthi_output *out,
                                   berth_error *error);

/* `size` bytes at `offset`; every byte is written once, in any order. */
berth_status berthi_output_write(berthi_output *output, const void *bytes, uint64_t size,
                                 uint64_t offset, berth_error *error);

/*
 * Flushes, takes over mode and owner of the file to be replaced, renames,
 * flushes the folder. The output is closed afterwards; on failure the target is
 * what it was. One exception: a folder that cannot be flushed after an existing
 * file was replaced leaves the new, complete file.
 */
berth_status berthi_output_commit(berthi_output *output, berth_error *error);

/* Removes the temporary file. Not open (all zero, committed) is allowed. */
void berthi_output_discard(berthi_output *output);

#endif
