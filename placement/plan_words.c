/* SPDX-License-Identifier: Apache-2.0 */
/* plan_words.c - words of a plan's JSON. */
#include "placement/plan_words.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *
find(const char *const *words, int32_t count, int32_t number)
{
    return number >= 0 && number < count ? words[number] : NULL;
}

const char *
berthi_plan_cause_word(int32_t cause)
{
    static const char *const words[] = { "resident", "short", "pinned",
                                         "mapped",   "tied",  "rows" };

    return find(words, sizeof words / sizeof *words, cause);
}

const char *
berthi_plan_bound_word(int32_t bound)
{
    static const char *const words[] = { "compute", "link", "disk" };

    return find(words, sizeof words / sizeof *words, bound);
}

const char *
berthi_plan_slicing_word(int32_t slicing)
{
    static const char *const words[] = { "all", "rows", "columns", "depths" };

    return find(words, sizeof words / sizeof *words, slicing);
}

const char *
berthi_plan_routing_word(int32_t routing)
{
    static const char *const words[] = { "uniform", "given" };

    return find(words, sizeof words / sizeof *words, routing);
}

const char *
berthi_plan_method_word(int32_t method)
{
    static const char *const words[] = { "full", "lora" };

    return find(words, sizeof words / sizeof *words, method);
}

const char *
berthi_plan_precision_word(int32_t precision)
{
    static const char *const words[] = { "pure", "autocast", "master" };

    return find(words, sizeof words / sizeof *words, precision);
}

const char *
berthi_plan_part_word(int32_t part)
{
    static const char *const words[] = { "whole", "lora_A", "lora_B" };

    return find(words, sizeof words / sizeof *words, part);
}

const char *
berthi_plan_place_word(int32_t place)
{
    static const char *const words[] = { "device", "host", "disk" };

    return find(words, sizeof words / sizeof *words, place);
}

bool
berthi_plan_can_find_word(berthi_plan_words words, const char *text, int32_t *out)
{
    for (int32_t i = 0; words(i) != NULL; i++)
        if (strcmp(words(i), text) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------------ numbers */

const char *
berthi_real_text(double value, char text[BERTHI_REAL_CAPACITY])
{
    char *point;
    size_t length;

    (void)snprintf(text, BERTHI_REAL_CAPACITY, "%.3g", value);
    /* What a locale has for a point may be several bytes. */
    point = text + strspn(text, "0123456789");
    length = strcspn(point, "0123456789+-e");
    if (point > text && length > 0) {
        memmove(point + 1, point + length, strlen(point + length) + 1);
        *point = '.';
    }
    return text;
}
