/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - which files of a folder are the model.
 *
 * Only names are looked at. First what config.json names, then model.safetensors,
 * then its index; anything else is taken only where it leaves no choice. Two
 * copies of the same weights are never mixed.
 */
#ifndef BERTH_LOADER_WEIGHTS_H
#define BERTH_LOADER_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/findings.h"
#include "loader/locate.h"

/* All texts belong to the location's arena. */
typedef struct berthi_weights {
    const char *index;   /* the index that names the shards; NULL: none */
    const char **files;  /* without an index: the files, bytewise order */
    uint32_t file_count;
    bool is_adapter;
} berthi_weights;

/*
 * Decides. `named` is config.json's transformers_weights, "" when it names
 * nothing; `variant` may be NULL. Remarks go to `findings`.
 *
 * In a folder with a journal (journal.h) only a commit file is taken, or what it
 * names, with a warning: INCOMPLETE where there is none.
 *
 * Fails with NOT_FOUND, AMBIGUOUS, INCOMPLETE, ARGUMENT (variant), PATH (what
 * is named breaks the path rule), PICKLE, GGUF or OTHER_FORMAT for weights of
 * another kind, or as the system did.
 */
berth_status berthi_weights_find(berthi_location *location, const char *named,
                                 const char *variant, bool all_files,
                                 berthi_findings *findings, berthi_weights *out,
                                 berth_error *error);

/*
 * True for "x-00002-of-00005.safetensors": number 2 of 5, of a stem of length 1.
 * The three are unspecified otherwise.
 */
bool berthi_weights_is_numbered(const char *name, uint32_t *out_number,
                                uint32_t *out_total, size_t *out_stem_length);

/*
 * Remarks on *.safetensors that lie in the folder and are no part of the
 * model: `is_part` is asked for each. A warning where parts of a conversion lie there.
 */
berth_status berthi_weights_remark_strays(berthi_location *location,
                                          bool (*is_part)(const void *user,
                                                          const char *name),
                                          const void *user, berthi_findings *findings,
                                          berth_error *error);

#endif
