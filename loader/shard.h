/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - one safetensors file of a checkpoint: opened, its header read,
 * checked and handed to the table.
 *
 * Reads the length prefix and the header, nothing else; a refused file has its
 * first 4 KiB looked at, to tell what it is.
 */
#ifndef BERTH_LOADER_SHARD_H
#define BERTH_LOADER_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/file.h"
#include "loader/findings.h"
#include "loader/locate.h"
#include "loader/table.h"

/* Texts belong to the location's arena. */
typedef struct berthi_shard {
    berthi_file file;
    const char *name;        /* relative to the model's folder */
    const char *target;      /* of a link, or "" */
    const char *blob_sha256; /* promised by the hub cache, or "" */
    bool is_read;            /* its tensors are in the table */
    uint64_t header_bytes;   /* N */
    uint64_t first_entry;    /* in the table */
    uint64_t entry_count;
    uint64_t text;           /* of its header, in the table's text */
    uint32_t *pairs;         /* __metadata__, see safetensors.h */
    uint64_t pair_count;
} berthi_shard;

/*
 * Opens the file `name`, a text that stays valid. `missing` and `why` as in
 * berthi_location_open(). On failure the shard may be closed, not used.
 */
berth_status berthi_shard_open(berthi_shard *shard, berthi_location *location,
                               const char *name, berth_reason missing, const char *why,
                               berth_error *error);

/* Reads and checks the header, and appends what it says to the table. */
berth_status berthi_shard_read(berthi_shard *shard, uint32_t number, berthi_table *table,
                               berthi_findings *findings, berth_error *error);

/* Closes the file, frees the pairs. */
void berthi_shard_close(berthi_shard *shard, berth_context *context);

#endif
