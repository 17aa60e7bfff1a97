/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ruled.h - a model with rules over it, as tests of rules ask them.
 */
#ifndef BERTH_TESTS_RULED_H
#define BERTH_TESTS_RULED_H

#include "quant/rules.h"
#include "tests/models.h"

/* A model, its layout and rules over it. */
typedef struct ruled {
    berth_context *context;
    model m;
    berthi_architecture *architecture;
    berthi_rules *rules;
    berthi_rules_file file;
    const char *skips[16];
    char words[512];
} ruled;

/* Of a text, of the text in tests/data/models/NAME; ruled_end() ends it. */
ruled ruled_read(berth_context *context, const char *text);
ruled ruled_load(berth_context *context, const char *name);
void ruled_end(ruled *s);

/* New rules over the model; `file` is a text of rules or NULL. */
berth_status ruled_try(ruled *s, berthi_rules_options options, const char *file,
                       berth_error *error);
/* The same, which has to succeed. */
void ruled_set(ruled *s, berthi_rules_options options, const char *file);
/* "auto", "[]" or entries with commas. */
berthi_rules_options ruled_skips(ruled *s, berthi_era era, const char *list);

berthi_decision ruled_decide(const ruled *s, const char *name);
bool ruled_is_quantized(const ruled *s, const char *name);
/* Tensors that are. */
uint32_t ruled_count(const ruled *s);
/* What is said of the decision. */
void ruled_check(const ruled *s, const char *name, const char *expected);

#endif
