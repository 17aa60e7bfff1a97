/* SPDX-License-Identifier: Apache-2.0 */
/* era.c - the words of eras; see era.h. */
#include "quant/era.h"

#include <stddef.h>
#include <string.h>

static const char *const names[BERTHI_ERA_COUNT] = {
#define BERTHI_ERA_NAME(identifier, word) word,
    BERTHI_ERAS(BERTHI_ERA_NAME)
#undef BERTHI_ERA_NAME
};

const char *
berthi_era_name(berthi_era era)
{
    return names[era];
}

bool
berthi_era_can_parse(const char *word, berthi_era *out)
{
    for (size_t i = 0; i < BERTHI_ERA_COUNT; i++)
        if (strcmp(names[i], word) == 0) {
            *out = (berthi_era)i;
            return true;
        }
    return false;
}
