/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.h - where in architectures.json each model class is described.
 *
 * architectures.json describes the module trees of model classes ("LlamaFor-
 * CausalLM") and of sub-models by model_type ("siglip_vision_model"). Its text
 * is kept as it is, and one description is parsed when one is asked for. So the
 * copy that is compiled in and a newer file given at run time go through the
 * same reader, the data needs no relocation, pages of classes that nobody asks
 * for are never touched, and a class costs tens of microseconds. Parsing all of
 * it would cost milliseconds and megabytes at every start; constant tables
 * would need a second reader and a compiler of trees.
 *
 * The build runs generate_architectures.c, which indexes the file with
 * berthi_catalogue_index() below and writes text and index as C tables.
 */
#ifndef BERTH_QUANT_CATALOGUE_H
#define BERTH_QUANT_CATALOGUE_H

#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

/* Larger files are refused: offsets have 32 bits. */
#define BERTHI_CATALOGUE_LIMIT UINT64_C(16777216)

/* A class or a sub-model: places in the text. */
typedef struct berthi_catalogue_entry {
    uint32_t name; /* without its quotes */
    uint32_t name_length;
    uint32_t body; /* the JSON object that describes it */
    uint32_t body_length;
} berthi_catalogue_entry;

/* A model_type of config.json and a class that it selects. */
typedef struct berthi_catalogue_type {
    uint32_t name;
    uint32_t name_length;
    uint32_t entry;
} berthi_catalogue_type;

typedef struct berthi_catalogue {
    const char *text;
    uint64_t bytes;
    const berthi_catalogue_entry *entries; /* classes, then sub-models */
    const berthi_catalogue_type *types;
    uint32_t class_count;
    uint32_t tower_count; /* sub-models */
    uint32_t type_count;
} berthi_catalogue;

/* ------------------------------------------------------------------ indexing */

/* Arrays to fill; a NULL one is only counted. */
typedef struct berthi_catalogue_draft {
    berthi_catalogue_entry *entries;
    berthi_catalogue_type *types;
    uint32_t class_count;
    uint32_t tower_count;
    uint32_t type_count;
    const char *problem; /* what is wrong with the text, or NULL */
    uint64_t problem_at;
} berthi_catalogue_draft;

/*
 * Counts, and fills where there are arrays, which a first call has counted.
 * Changes nothing in the text, which is at most BERTHI_CATALOGUE_LIMIT bytes.
 * Checks all of it; on a problem the counts mean nothing.
 */
void berthi_catalogue_index(char *text, uint64_t bytes, berthi_catalogue_draft *draft);

/* ------------------------------------------------------------------- looking */

/* The copy that is compiled in. */
const berthi_catalogue *berthi_catalogue_builtin(void);

/*
 * Reads another architectures.json: `bytes` of text, copied. Fails with
 * ARCHITECTURES_JSON, naming `file` and the position, or NO_MEMORY.
 * Free with berthi_catalogue_destroy().
 */
berth_status berthi_catalogue_create(berth_context *context, const char *text,
                                     uint64_t bytes, const char *file,
                                     berthi_catalogue **out, berth_error *error);
/* Only what berthi_catalogue_create() made; NULL is allowed. */
void berthi_catalogue_destroy(berth_context *context, berthi_catalogue *catalogue);

/* Each gives NULL when there is none. Names end in NUL. */
const berthi_catalogue_entry *berthi_catalogue_class(const berthi_catalogue *catalogue,
                                                     const char *name);
const berthi_catalogue_entry *berthi_catalogue_tower(const berthi_catalogue *catalogue,
                                                     const char *model_type);
/* The class of this model_type that comes after `previous` (NULL: the first one). */
const berthi_catalogue_entry *
berthi_catalogue_type_class(const berthi_catalogue *catalogue, const char *model_type,
                            const berthi_catalogue_entry *previous);

#endif
