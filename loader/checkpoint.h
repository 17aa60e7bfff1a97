/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - the opened model: one table of tensors over all shards.
 *
 * Owns names, shapes and extents (table.h), the shards' files, what config.json
 * says and which tensors are quantized. Immutable once open has returned, so
 * that any number of threads may ask and read.
 */
#ifndef BERTH_LOADER_CHECKPOINT_H
#define BERTH_LOADER_CHECKPOINT_H

#include "loader/file.h"
#include "loader/locate.h"
#include "loader/safetensors.h"
#include "loader/shard.h"
#include "loader/table.h"
#include "quant/classify.h"
#include "quant/config.h"
#include "quant/json.h"

struct berth_checkpoint {
    berth_context *context;
    berthi_location location; /* of all texts; stays open: its path may lead elsewhere
                                 by the time that something else of it is wanted       */
    const char *path;         /* folder or file, as resolved */
    const char *quant_method;
    bool has_config;          /* there was a config.json */
    const char *config_path;  /* where it lay, or would lie */
    char *config_text;        /* what it held; NULL: nothing, or it could not be read */
    uint64_t config_bytes;
    berthi_config config;
    berthi_shard *shards;
    uint32_t shard_count;
    bool is_sharded;
    bool is_adapter;
    bool is_lone;      /* one shard of several, named by itself */
    bool is_in_pieces; /* one shard of several, without what its weights are decoded with:
                          none is marked */
    /*
     * Entries: `flags` is the berth_encoding, `owner` the number of the record
     * in `quantized` unless that is NATIVE.
     */
    berthi_table table;
    berthi_classify_result quantized;
};

/*
 * What config.json said when the checkpoint was opened, as a document of `context`; *out NULL:
 * there was none. CONFIG_JSON also where it could not be read then.
 */
berth_status berthi_checkpoint_parse_config(const berth_checkpoint *checkpoint,
                                            berth_context *context, berthi_json **out,
                                            berth_error *error);

/* The shard's open file, valid until the checkpoint is closed. */
berth_status berthi_checkpoint_file(const berth_checkpoint *checkpoint, uint32_t shard,
                                    const berthi_file **out_file, berth_error *error);

/* All of them into `out`: copies, the checkpoint keeps the descriptors. */
void berthi_checkpoint_copy_files(const berth_checkpoint *checkpoint, berthi_file *out);

/* Where the bytes of a tensor begin in its shard. */
static inline uint64_t
berthi_checkpoint_offset(const berth_checkpoint *checkpoint, const berthi_entry *entry)
{
    return BERTHI_HEADER_PREFIX + checkpoint->shards[entry->shard].header_bytes
           + entry->begin;
}

/* For errors about the tensor of this number. */
static inline berthi_about
berthi_checkpoint_about(const berth_checkpoint *checkpoint, uint64_t number)
{
    const berthi_entry *const entry = &checkpoint->table.entries[number];

    return (berthi_about){ .file = checkpoint->shards[entry->shard].file.path,
                           .tensor = berthi_table_name(&checkpoint->table, number),
                           .tensor_length = entry->name_length };
}

/*
 * Bytes [offset, offset + bytes) of a tensor as it is stored, from the file as it was
 * when it was opened. `what` is for errors.
 */
berth_status berthi_checkpoint_read(const berth_checkpoint *checkpoint, uint64_t number,
                                    uint64_t offset, void *memory, uint64_t bytes,
                                    const char *what, berth_error *error);

/*
 * The dtype that the model is loaded as: BF16, F16 or F32. config.json's; where it names none
 * that of the first plain numbers, by name; else BF16.
 */
int32_t berthi_checkpoint_dtype(const berth_checkpoint *checkpoint);
/*
 * True for 8-bit floats that are numbers where they have no scales; of one shard by itself
 * these may lie in another.
 */
bool berthi_checkpoint_has_small_numbers(const berth_checkpoint *checkpoint, int32_t dtype);

/* The first step of an opening: keeps config.json, and what it says. */
berth_status berthi_checkpoint_read_config(berth_checkpoint *checkpoint,
                                           berthi_findings *findings, berth_error *error);
/* Finds quantized weights; the table is complete. Remarks go to `findings`. */
berth_status berthi_checkpoint_classify(berth_checkpoint *checkpoint,
                                        berthi_findings *findings, berth_error *error);
/*
 * Whether the numbers that its weights stand for can be had at all. UNSUPPORTED: what they
 * are decoded with lies in other shards. QUANT_METHOD: config.json names a method that no
 * tensor shows, and some tensor may be its codes.
 */
berth_status berthi_checkpoint_check_values(const berth_checkpoint *checkpoint,
                                            berth_error *error);

#endif
