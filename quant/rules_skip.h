/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_skip.h - the skip list of a release of transformers, and what it
 * matches (quant-formats.md 8.9). Only for rules*.c.
 */
#ifndef BERTH_QUANT_RULES_SKIP_H
#define BERTH_QUANT_RULES_SKIP_H

#include "quant/pattern.h"
#include "quant/rules.h"

#define BERTHI_NO_SKIP UINT32_MAX

/* Zero is an empty list. */
typedef struct berthi_skip_list {
    berthi_skip *skips;         /* in the arena */
    berthi_pattern **patterns;  /* of each; NULL in 4.x, which compares texts */
    berthi_era era;
    bool is_search; /* parameters by a part of their name, not modules */
    uint32_t count;
} berthi_skip_list;

/* The list in force: the user's or the automatic one, and what stays in float32. */
berth_status berthi_skip_list_create(berthi_arena *arena,
                                     const berthi_rules_options *options,
                                     const berthi_architecture *architecture,
                                     berthi_skip_list *out, berth_error *error);
/* Parameters that are loaded as float32 whatever the model is loaded as. */
berth_status berthi_skip_list_float32(berthi_arena *arena,
                                      const berthi_rules_options *options,
                                      const berthi_architecture *architecture,
                                      berthi_skip_list *out, berth_error *error);
/* After failures, too. The entries are the arena's. */
void berthi_skip_list_fini(berthi_skip_list *list);

/* The first entry that matches, and counts it; or BERTHI_NO_SKIP. */
uint32_t berthi_skip_list_find(berthi_skip_list *list, const berthi_parameter *parameter);

#endif
