/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classified.h - what one classification of a few tensors finds, in tests.
 */
#ifndef BERTH_TESTS_CLASSIFIED_H
#define BERTH_TESTS_CLASSIFIED_H

#include "tests/tensors.h"

#define STATE ".quant_state.bitsandbytes__nf4"
#define BNB "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}"

extern berth_context *classified_context;

/* Runs and expects one error about `tensor`, both with and without going on. */
void classified_error(tensors *t, const char *config, berth_reason reason,
                      const char *tensor, const char *why);
void classified_clean(tensors *t, const char *config);

/* Every tensor is marked once at most, and statistics lead to their weight. */
void classified_marks(const tensors *t);

#endif
