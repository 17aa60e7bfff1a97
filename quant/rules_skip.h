/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_skip.h - the skip list of a release of transformers, and what it
 * matches. For rules*.c, and for what counts as they do.
 *
 *   entries   the user's, if there is a list, even an empty one. Else tied names, the
 *             last parameter and the output head; 4.x: the head alone, where there is
 *             one and nothing is tied. To either those are added that stay in float32
 *   4.x       skips a module that has the entry as its name, as the last part of it, or
 *             anywhere in it with a dot behind
 *   5.x       skips a module whose name matches the entry as a regular expression, from
 *             the first character on, or ends in its text. From 5.21 on a match has to
 *             end where a part of the name ends
 */
#ifndef BERTH_QUANT_RULES_SKIP_H
#define BERTH_QUANT_RULES_SKIP_H

#include "quant/pattern.h"
#include "quant/rules.h"

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

/* Whether the entry stands for the module (of a search list: the parameter). */
bool berthi_skip_list_is_match(const berthi_skip_list *list, uint32_t entry,
                               const char *name, uint64_t length);
/* The same of 4.x, where an entry of `own` bytes is a text. */
bool berthi_skip_is_match_4x(const char *name, uint64_t length, const char *entry,
                             uint64_t own);

/* Whether the entry stands for anything in the model, quantized or not. */
bool berthi_skip_list_has_match(const berthi_skip_list *list, uint32_t entry,
                                const berthi_architecture *architecture);

/* The first entry that matches; or BERTHI_NO_SKIP. */
uint32_t berthi_skip_list_find(const berthi_skip_list *list,
                               const berthi_parameter *parameter);

/* A linear layer, which loaders make a quantized one of unless it is listed. */
typedef struct berthi_skip_layer {
    const char *name; /* of the module; need not end in NUL */
    uint64_t length;
    bool is_quantized;
    bool is_listed;   /* used while the list is spelt */
} berthi_skip_layer;

/* What layers are listed of. */
typedef struct berthi_skip_model {
    const berthi_architecture *architecture;
    const berthi_model_source *source;
    const bool *is_quantized; /* by position of the source */
} berthi_skip_model;

/* True for the weight of what that release makes a quantized layer of. */
bool berthi_skip_is_layer(const berthi_architecture *architecture,
                          const berthi_parameter *parameter);
/* How many layers there are at most. */
uint64_t berthi_skip_layers_most(const berthi_skip_model *model);
/* Fills `layers`, which has room for so many; false: out of memory. */
bool berthi_skip_layers_can_list(const berthi_skip_model *model, berthi_arena *arena,
                                 berthi_skip_layer *layers, uint32_t *out_count);

/* As berthi_rules_spell_skips() does it; `out` is all zero, texts are the arena's. */
berth_status berthi_skip_list_spell(const berthi_skip_list *list, berthi_arena *arena,
                                    berthi_skip_layer *layers, uint32_t count,
                                    berthi_skip_words *out, berth_error *error);

#endif
