/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h - the names in a model's folder that say something about weights.
 */
#ifndef BERTH_LOADER_LISTING_H
#define BERTH_LOADER_LISTING_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/locate.h"

#define BERTHI_SINGLE_SUFFIX ".safetensors"
#define BERTHI_INDEX_INFIX ".safetensors.index"

/* What transformers calls the one shard of a model, an index, and what describes it. */
#define BERTHI_SINGLE_NAME "model" BERTHI_SINGLE_SUFFIX
#define BERTHI_INDEX_NAME "model" BERTHI_INDEX_INFIX ".json"
#define BERTHI_CONFIG_NAME "config.json"

typedef enum berthi_weights_kind {
    BERTHI_WEIGHTS_NONE,
    BERTHI_WEIGHTS_SAFETENSORS,
    BERTHI_WEIGHTS_PICKLE,
    BERTHI_WEIGHTS_GGUF,
    BERTHI_WEIGHTS_OTHER /* of other frameworks, or made for one device */
} berthi_weights_kind;

/* All texts belong to the location's arena. */
typedef struct berthi_listing {
    const char **singles; /* *.safetensors, bytewise order */
    uint32_t single_count;
    uint32_t index_count;
    const char *index;  /* of these and the following kinds the first name, or NULL */
    const char *pickle;
    const char *gguf;
    const char *other;  /* weights of other frameworks */
    bool has_pipeline;  /* model_index.json of diffusers */
    bool has_repositories; /* models--*: a hub cache itself */
    bool has_parts; /* what parts of a conversion have made, which counts as nothing else */
} berthi_listing;

berth_status berthi_listing_read(berthi_location *location, berthi_listing *out,
                                 berth_error *error);

/* What a name says, wherever it comes from. */
bool berthi_listing_is_index(const char *name);
berthi_weights_kind berthi_listing_kind(const char *name); /* by its suffix */
/* Is it a pickle with weights? Those that a training leaves beside a model are not. */
bool berthi_listing_is_pickle(const char *name);

#endif
