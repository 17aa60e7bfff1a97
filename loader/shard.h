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

/* The header of a shard, on its way into the table. */
typedef struct berthi_shard_header {
    berthi_header header;
    uint64_t bytes; /* N */
} berthi_shard_header;

/* Texts belong to the location's arena. */
typedef struct berthi_shard {
    berthi_file file;
    const char *name;        /* relative to the model's folder */
    const char *target;      /* of a link, or "" */
    const char *blob_sha256; /* promised by the hub cache, or "" */
    berthi_name_list listed; /* by the index, while the checkpoint is opened */
    bool is_read;            /* its tensors are in the table */
    bool is_as_listed;       /* these are its names, in the order of its entries */
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

/*
 * Reads and checks the header. On failure it is empty; `findings` then have the whole
 * name of the tensor to blame.
 */
berth_status berthi_shard_read(const berthi_shard *shard, berth_context *context,
                               berthi_shard_header *out, berthi_findings *findings,
                               berth_error *error);
/*
 * The same, of a header of at most `limit` bytes. False when there is anything to say:
 * berthi_shard_read() will say it. Any thread.
 */
bool berthi_shard_can_read(const berthi_shard *shard, berth_context *context,
                           uint64_t limit, berthi_shard_header *out);

/* Remarks on it, and what strict mode refuses. */
berth_status berthi_shard_check(const berthi_shard *shard, uint32_t number,
                                const berthi_shard_header *header,
                                berthi_findings *findings, berth_error *error);
/*
 * Appends what the header says to the table. Free the header whatever comes of it; out of
 * memory it is as it was, and can be taken later.
 */
berth_status berthi_shard_take(berthi_shard *shard, uint32_t number,
                               berthi_shard_header *header, berthi_table *table,
                               berth_error *error);

/* Closes the file, frees the pairs. */
void berthi_shard_close(berthi_shard *shard, berth_context *context);

#endif
