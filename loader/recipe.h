/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe.h - what becomes of each weight of a checkpoint: as what it is read,
 * whether rows and columns change places, and as which tensors it is stored.
 *
 * Made from the checkpoint, its config.json and the caller's options; of the
 * payload it reads one table of each doubly quantized weight that may be kept.
 * Immutable afterwards, but for the fields of `outputs` that a layout
 * fills. Borrows the checkpoint.
 */
#ifndef BERTH_LOADER_RECIPE_H
#define BERTH_LOADER_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/checkpoint.h"
#include "loader/layout.h"
#include "quant/architecture.h"
#include "quant/coverage.h"
#include "quant/rules.h"
#include "quant/rules_file.h"
#include "quant/stored.h"

/* One weight, or one tensor that is none: norms, biases, integers. */
typedef struct berthi_recipe_weight {
    const char *name;      /* of its values; borrowed, need not end in NUL */
    const uint64_t *shape; /* of its values, as they are read */
    uint64_t elements;
    uint32_t name_length;
    uint32_t rank;
    uint64_t tensor;       /* of the checkpoint */
    uint32_t record;       /* of the quantized; BERTHI_NO_RECORD: plain numbers */
    berthi_storage storage;
    bool is_turned;        /* [rows, columns] is read, [columns, rows] stored */
    bool is_copied;        /* its bytes stay what they are; of a quantized one those of
                              its statistics, too: it is kept (recipe_keep.c)         */
    uint32_t group;        /* with these it stays in one shard; 0: alone */
    uint32_t first_output;
    uint32_t output_count;
} berthi_recipe_weight;

/* What the tensor of the same number in `tensors` is. */
typedef struct berthi_recipe_output {
    uint32_t weight;
    int32_t role; /* berthi_role */
} berthi_recipe_output;

typedef struct berthi_recipe {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berthi_arena arena;       /* names and shapes that the checkpoint has not */
    berthi_json *config;      /* the checkpoint's config.json; NULL: there is none */
    int32_t dtype;            /* that the model is loaded as */
    berthi_era era;
    bool keeps_foreign;       /* encodings that berth does not decode are no failure */
    bool is_written;          /* to files, for loaders; else it only lies in memory */
    berthi_recipe_weight *weights; /* in bytewise order of the stored names */
    uint32_t weight_count;
    uint32_t weight_capacity;
    berthi_layout_tensor *tensors; /* output_count of them */
    berthi_recipe_output *outputs;
    uint32_t output_count;
    uint32_t output_capacity;
    uint64_t parameters;      /* as an index counts them */
    uint64_t quantized_count;
    uint64_t kept_count;      /* of the quantized: kept */
    /* NULL and zero when the model is dequantized. */
    berthi_rules_file rules_file;
    berthi_architecture *architecture;
    berthi_rules *rules;
    berthi_skip_words skips; /* for config.json */
    berthi_coverage coverage;
} berthi_recipe;

/* Stored as it is asked for: codes and statistics go through as they are. */
static inline bool
berthi_recipe_is_kept(const berthi_recipe_weight *weight)
{
    return weight->is_copied && weight->record != BERTHI_NO_RECORD;
}

/*
 * Decides for every tensor. `options` are complete and checked for type, dtype,
 * storage and block size. Fails with QUANT_METHOD (an encoding that berth does
 * not decode), UNSUPPORTED (a weight that cannot be stored as asked), RULES,
 * RULE_UNUSED, ARCHITECTURE, CONFIG_JSON, NO_MEMORY, or as reading config.json
 * does. On failure it is as after fini.
 */
berth_status berthi_recipe_init(berthi_recipe *recipe, berth_context *context,
                                const berth_checkpoint *checkpoint,
                                const berth_convert_options *options,
                                berth_error *error);
/*
 * Only decides, for what is encoded on its way into memory: `tensors` and `outputs` stay
 * empty, and what loaders could not divide or join as codes is quantized, too. Where nothing is
 * to be quantized, what berth does not decode stays as it is. Model classes are those described
 * in the file at this path; NULL: those built in. Fails with ARCHITECTURES_JSON, or as reading
 * it does, too.
 */
berth_status berthi_recipe_init_decided(berthi_recipe *recipe, berth_context *context,
                                        const berth_checkpoint *checkpoint,
                                        const berth_convert_options *options,
                                        const char *architectures, berth_error *error);
/* All-zero is allowed. */
void berthi_recipe_fini(berthi_recipe *recipe);

/*
 * A note for each module to skip that the model has not: lists of transformers name modules
 * of many classes.
 */
void berthi_recipe_remark_skips(const berthi_recipe *recipe, berthi_findings *findings);

/* Tells what was decided, line by line. */
void berthi_recipe_tell(const berthi_recipe *recipe, berth_coverage_function tell,
                        void *user);

#endif
