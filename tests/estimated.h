/* SPDX-License-Identifier: Apache-2.0 */
/* estimated.h - models for tests of estimates: tests/data/configs, or a text. */
#ifndef BERTH_TESTS_ESTIMATED_H
#define BERTH_TESTS_ESTIMATED_H

#include "placement/estimate.h"

/* A model out of its config.json alone. */
typedef struct estimated {
    berthi_shape shape;
    berthi_weight_list weights;
    berthi_estimate_model model;
    berth_error error;
} estimated;

/* tests/data/configs/NAME.json; borrowed, until the next call. Ends the program. */
estimated *estimated_config(const char *name);
/* The same from a text; NULL when it is refused, with estimated_error(). */
estimated *estimated_text(const char *text);
const berth_error *estimated_error(void);

/* Rounded to 10^-3 GB, as published figures are: 13477 is 13.477 GB. */
uint64_t estimated_mb(uint64_t bytes);

#endif
