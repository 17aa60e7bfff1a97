/* SPDX-License-Identifier: Apache-2.0 */
/* era.c - words and version numbers; see era.h. */
#include "quant/era.h"

#include <stddef.h>
#include <stdint.h>
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

/* Digits at *text, which moves behind them; large numbers stay large. */
static bool
has_number(const char **text, uint32_t *out)
{
    const char *at = *text;

    *out = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        if (*out < 100000)
            *out = *out * 10 + (uint32_t)(*at - '0');
    if (at == *text)
        return false;
    *text = at;
    return true;
}

berthi_era
berthi_era_of_version(const char *version)
{
    uint32_t major;
    uint32_t minor = 0;

    if (!has_number(&version, &major))
        return BERTHI_ERA_HF5;
    if (*version == '.') {
        version++;
        (void)has_number(&version, &minor);
    }
    if (major < 5)
        return BERTHI_ERA_HF4;
    if (major > 5 || minor >= 21)
        return BERTHI_ERA_HF5;
    return minor >= 5 ? BERTHI_ERA_HF5_14 : BERTHI_ERA_HF5_0;
}
