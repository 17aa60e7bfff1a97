/* SPDX-License-Identifier: Apache-2.0 */
/* plan_read.c - values of a plan's JSON, each of which is one that a plan can have. */
#include "placement/plan_read.h"

#include <string.h>

#include "quant/format.h"

bool
berthi_plan_can_read_word(berthi_members *m, const char *key, berthi_plan_words words,
                          int32_t *out)
{
    const char *text;

    if (!berthi_members_can_read_text(m, key, &text))
        return false;
    if (berthi_plan_can_find_word(words, text, out))
        return true;
    return berthi_members_stop(m, "an unknown word");
}

bool
berthi_plan_can_read_dtype(berthi_members *m, const char *key, int32_t *out)
{
    const char *text;

    if (!berthi_members_can_read_text(m, key, &text))
        return false;
    *out = berthi_format_dtype(text, strlen(text));
    if (*out == BERTHI_NO_DTYPE)
        return berthi_members_stop(m, "an unknown dtype");
    return true;
}

bool
berthi_plan_can_read_encoding(berthi_members *m, const char *key, int32_t *out)
{
    const char *text;

    if (!berthi_members_can_read_text(m, key, &text))
        return false;
    for (*out = 0; *out < BERTH_ENCODING_STATISTICS; ++*out)
        if (strcmp(berth_encoding_name(*out), text) == 0)
            return true;
    return berthi_members_stop(m, "an unknown encoding");
}

bool
berthi_plan_can_read_tier(berthi_members *m, const berth_plan *plan, const char *key,
                          uint32_t *out)
{
    const char *text;

    if (!berthi_members_can_read_text(m, key, &text))
        return false;
    for (*out = 0; *out < plan->summary.tier_count; ++*out)
        if (strcmp(plan->tiers[*out].name, text) == 0)
            return true;
    return berthi_members_stop(m, "a tier that is not in the list of tiers");
}

bool
berthi_plan_can_read_32(berthi_members *m, const char *key, uint32_t *out)
{
    uint64_t number;

    if (!berthi_members_can_read_below(m, key, UINT32_MAX + UINT64_C(1), &number))
        return false;
    *out = (uint32_t)number;
    return true;
}

bool
berthi_plan_can_read_bytes(berthi_members *m, const char *key, uint64_t *out)
{
    return berthi_members_can_read_below(m, key, BERTHI_PLAN_PART, out);
}

bool
berthi_plan_can_read_time(berthi_members *m, const char *key, double *out)
{
    uint64_t nanoseconds;

    if (!berthi_members_can_read_below(m, key, UINT64_C(1) << 53, &nanoseconds))
        return false;
    *out = (double)nanoseconds / 1e9;
    return true;
}

bool
berthi_plan_can_read_flag_if(berthi_members *m, const char *key, bool *out)
{
    *out = false;
    if (!berthi_members_can_find_key(m, key, out))
        return false;
    return !*out || berthi_scan_can_read_bool(&m->scan, out);
}
