/* SPDX-License-Identifier: Apache-2.0 */
/*
 * era.h - the releases of transformers whose behaviour berth can follow.
 */
#ifndef BERTH_QUANT_ERA_H
#define BERTH_QUANT_ERA_H

#include <stdbool.h>

/* BERTHI_ERAS(X): X(IDENTIFIER, "word"), newest first. */
#define BERTHI_ERAS(X)                                                                     \
    X(HF5, "hf5")       /* 5.21 and later */                                               \
    X(HF5_14, "hf5.14") /* 5.5 to 5.20 */                                                  \
    X(HF5_0, "hf5.0")   /* 5.0 to 5.4 */                                                   \
    X(HF4, "hf4")       /* 4.x and earlier */

typedef enum berthi_era {
#define BERTHI_ERA_ENUM(identifier, word) BERTHI_ERA_##identifier,
    BERTHI_ERAS(BERTHI_ERA_ENUM)
#undef BERTHI_ERA_ENUM
        BERTHI_ERA_COUNT
} berthi_era;

/* "hf5", ... */
const char *berthi_era_name(berthi_era era);
/* The era of such a word; false when it is none. */
bool berthi_era_can_parse(const char *word, berthi_era *out);

#endif
