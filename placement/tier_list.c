/* SPDX-License-Identifier: Apache-2.0 */
/* tier_list.c - tiers by name, and lists of them with bytes; see tier.h. */
#include "placement/tier.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digits.h"
#include "kernels/text.h"

/* Characters of a size or share; only needless digits of a fraction need more. */
#define SIZE_LIMIT 64u

/* --------------------------------------------------------------------- names */

bool
berthi_tier_can_parse(const char *text, uint64_t length, berthi_tier *out)
{
    static const char prefix[] = "cuda:";
    const uint64_t prefix_length = sizeof prefix - 1;
    berthi_text name = { text, length };
    uint64_t number;

    *out = (berthi_tier){ BERTHI_TIER_GPU, 0 };
    if (berthi_text_is(name, "cuda"))
        return true;
    if (berthi_text_is(name, "cpu")) {
        out->kind = BERTHI_TIER_CPU;
        return true;
    }
    if (berthi_text_is(name, "disk")) {
        out->kind = BERTHI_TIER_DISK;
        return true;
    }
    if (length >= prefix_length && memcmp(text, prefix, prefix_length) == 0)
        name = (berthi_text){ text + prefix_length, length - prefix_length };
    if (!berthi_digits_can_parse(name.bytes, name.length, UINT32_MAX, &number))
        return false;
    out->number = (uint32_t)number;
    return true;
}

const char *
berthi_tier_name(const berthi_tier *tier, char *text)
{
    if (tier->kind == BERTHI_TIER_GPU)
        snprintf(text, BERTHI_TIER_NAME, "cuda:%" PRIu32, tier->number);
    else
        snprintf(text, BERTHI_TIER_NAME, "%s",
                 tier->kind == BERTHI_TIER_CPU ? "cpu" : "disk");
    return text;
}

int
berthi_tier_compare(const berthi_tier *a, const berthi_tier *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* --------------------------------------------------------------------- lists */

const berthi_tier_bytes *
berthi_tier_list_find(const berthi_tier_list *list, const berthi_tier *tier)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (berthi_tier_compare(&list->items[i].tier, tier) == 0)
            return &list->items[i];
    return NULL;
}

/* cpu and disk always find a place: GPUs leave two. */
static bool
has_place(const berthi_tier_list *list, const berthi_tier *tier)
{
    const uint32_t gpu_limit = BERTHI_TIER_LIMIT - 2;

    return tier->kind != BERTHI_TIER_GPU || list->count < gpu_limit
           || list->items[gpu_limit - 1].tier.kind != BERTHI_TIER_GPU;
}

bool
berthi_tier_list_can_add(berthi_tier_list *list, const berthi_tier_bytes *item)
{
    uint32_t at = list->count;

    if (!has_place(list, &item->tier)
        || berthi_tier_list_find(list, &item->tier) != NULL)
        return false;
    while (at > 0 && berthi_tier_compare(&item->tier, &list->items[at - 1].tier) < 0)
        at--;
    memmove(&list->items[at + 1], &list->items[at],
            (list->count - at) * sizeof *list->items);
    list->items[at] = *item;
    list->count++;
    return true;
}

/* ------------------------------------------------------------------- parsing */

/* "12.5" as billionths, what is finer cut off; NULL, or what is wrong. */
static const char *
parse_percent(const char *text, uint64_t *out)
{
    uint64_t unit = BERTHI_WHOLE / 100;
    uint64_t share = 0;
    const char *digit = text;

    for (; *digit >= '0' && *digit <= '9'; digit++) {
        share = share * 10 + (uint64_t)(*digit - '0') * unit;
        if (share > BERTHI_WHOLE)
            return "is more than all of it";
    }
    if (digit > text && digit[0] == '.' && digit[1] != '\0')
        for (digit++; *digit >= '0' && *digit <= '9'; digit++) {
            unit /= 10;
            share += (uint64_t)(*digit - '0') * unit;
        }
    if (digit == text || *digit != '\0')
        return "is not a share in per cent";
    *out = share;
    return share > BERTHI_WHOLE ? "is more than all of it" : NULL;
}

/* Says which of the list's items is wrong, and why. */
static berth_status
refuse(berth_error *error, berthi_text item, const char *problem)
{
    char name[BERTH_NAME_CAPACITY];

    berth_text_escape(item.bytes, item.length, name, sizeof name);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "\"%s\" %s", name, problem);
}

static berth_status
read_bytes(berthi_text item, berthi_text size, berthi_tier_bytes *out, berth_error *error)
{
    char text[SIZE_LIMIT + 1];
    const char *problem;
    berth_error inner;

    if (size.length > SIZE_LIMIT)
        return refuse(error, item, "has a size of too many characters");
    memcpy(text, size.bytes, size.length);
    text[size.length] = '\0';
    if (strcmp(text, "inf") == 0) {
        out->bytes = UINT64_MAX;
        return BERTH_OK;
    }
    if (size.length > 0 && text[size.length - 1] == '%') {
        text[size.length - 1] = '\0';
        problem = parse_percent(text, &out->share);
        return problem == NULL ? BERTH_OK : refuse(error, item, problem);
    }
    if (berth_size_parse(text, &out->bytes, &inner) == BERTH_OK)
        return BERTH_OK;
    return refuse(error, item, inner.message);
}

/* One "device=size". */
static berth_status
read_item(berthi_text item, berthi_tier_list *list, berth_error *error)
{
    const char *const sign = memchr(item.bytes, '=', item.length);
    berthi_tier_bytes read = { .bytes = 0 };
    berth_status status;
    berthi_text name;
    berthi_text size;

    if (sign == NULL)
        return refuse(error, item, "is not written as device=size");
    name = berthi_text_trim((berthi_text){ item.bytes, (uint64_t)(sign - item.bytes) });
    size = berthi_text_trim(
        (berthi_text){ sign + 1, item.length - (uint64_t)(sign + 1 - item.bytes) });
    if (!berthi_tier_can_parse(name.bytes, name.length, &read.tier))
        return refuse(error, item, "has no device before its size: 0, cuda:0, cpu, disk");
    status = read_bytes(item, size, &read, error);
    if (status != BERTH_OK)
        return status;
    if (!has_place(list, &read.tier))
        return refuse(error, item, "is a GPU too many: there is room for 64");
    if (!berthi_tier_list_can_add(list, &read))
        return refuse(error, item, "names a device that was named before");
    return BERTH_OK;
}

berth_status
berthi_tier_list_parse(const char *text, berthi_tier_list *out, berth_error *error)
{
    berth_status status;

    memset(out, 0, sizeof *out);
    do {
        const size_t length = strcspn(text, ",");

        status = read_item(berthi_text_trim((berthi_text){ text, length }), out, error);
        text += length;
    } while (*text++ == ',' && status == BERTH_OK);
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return status;
}
