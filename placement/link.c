/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - rates of links: guessed, and as words; see link.h. */
#include "placement/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/duration.h"
#include "kernels/text.h"

#define GIGA UINT64_C(1000000000)
/* Characters of a rate; only needless digits of a fraction need more. */
#define RATE_TEXT 64u

/* What sixteen lanes carry, in GB/s: about 0.8 of what they could. */
static const struct {
    uint32_t generation;
    uint32_t gigabytes;
} generations[] = { { 3, 12 }, { 4, 25 }, { 5, 55 }, { 6, 110 } };

static const char *const source_names[] = {
#define SOURCE_NAME(identifier, word) word,
    BERTHI_RATE_SOURCES(SOURCE_NAME)
#undef SOURCE_NAME
};

const char *
berthi_rate_source_name(int32_t source)
{
    return source >= 0 && source < BERTHI_RATE_SOURCE_COUNT ? source_names[source] : NULL;
}

/* -------------------------------------------------------------------- guesses */

static void
set_rate(berthi_rate *rate, uint64_t bytes, berthi_rate_source source)
{
    memset(rate, 0, sizeof *rate);
    rate->bytes = bytes;
    rate->source = (int32_t)source;
}

/* Of lanes that are 1, 2, 4, 8 or 16; false for a generation that there is not. */
static bool
has_lanes(berthi_rate *rate, uint32_t generation, uint32_t lanes,
          berthi_rate_source source)
{
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        if (generations[i].generation == generation) {
            set_rate(rate, generations[i].gigabytes * GIGA / 16 * lanes, source);
            snprintf(rate->words, sizeof rate->words, "PCIe %" PRIu32 ".0 x%" PRIu32,
                     generation, lanes);
            return true;
        }
    return false;
}

berthi_link
berthi_link_guess(const berthi_tier *tier, uint32_t cores)
{
    const uint64_t most = BERTHI_RATE_LIMIT / (8 * GIGA);
    berthi_link link = { .tier = *tier };

    switch ((berthi_tier_kind)tier->kind) {
    case BERTHI_TIER_GPU:
        has_lanes(&link.feed, 4, 16, BERTHI_RATE_GUESSED);
        set_rate(&link.memory, 900 * GIGA, BERTHI_RATE_GUESSED);
        break;
    case BERTHI_TIER_CPU:
        set_rate(&link.feed, 8 * GIGA * berthi_min_u64(berthi_max_u64(cores, 1), most),
                 BERTHI_RATE_GUESSED);
        set_rate(&link.memory, 20 * GIGA, BERTHI_RATE_GUESSED);
        break;
    case BERTHI_TIER_DISK:
        set_rate(&link.feed, 3 * GIGA, BERTHI_RATE_GUESSED);
        link.memory = link.feed;
        break;
    }
    return link;
}

/* ---------------------------------------------------------------------- lists */

/* Where the tier is, or belongs. */
static uint32_t
find_place(const berthi_links *links, const berthi_tier *tier)
{
    uint32_t at = 0;

    while (at < links->count && berthi_tier_compare(&links->items[at].tier, tier) < 0)
        at++;
    return at;
}

static bool
is_at(const berthi_links *links, uint32_t at, const berthi_tier *tier)
{
    return at < links->count && berthi_tier_compare(&links->items[at].tier, tier) == 0;
}

berthi_link
berthi_links_find(const berthi_links *links, const berthi_tier *tier, uint32_t cores)
{
    berthi_link link = berthi_link_guess(tier, cores);
    const uint32_t at = find_place(links, tier);

    if (!is_at(links, at, tier))
        return link;
    if (links->items[at].feed.bytes > 0)
        link.feed = links->items[at].feed;
    if (tier->kind == BERTHI_TIER_DISK)
        link.memory = link.feed;
    else if (links->items[at].memory.bytes > 0)
        link.memory = links->items[at].memory;
    link.operation = links->items[at].operation;
    return link;
}

berthi_link *
berthi_links_place(berthi_links *links, const berthi_tier *tier)
{
    const uint32_t gpu_limit = BERTHI_LINK_LIMIT - 2; /* cpu and disk find a place */
    const uint32_t at = find_place(links, tier);

    if (is_at(links, at, tier))
        return &links->items[at];
    if (tier->kind == BERTHI_TIER_GPU && links->count >= gpu_limit
        && links->items[gpu_limit - 1].tier.kind == BERTHI_TIER_GPU)
        return NULL;
    memmove(&links->items[at + 1], &links->items[at],
            (links->count - at) * sizeof *links->items);
    memset(&links->items[at], 0, sizeof *links->items);
    links->items[at].tier = *tier;
    links->count++;
    return &links->items[at];
}

/* ---------------------------------------------------------------------- words */

static berth_status
refuse(berth_error *error, berthi_text item, const char *problem)
{
    char name[BERTH_NAME_CAPACITY];

    berth_text_escape(item.bytes, (size_t)item.length, name, sizeof name);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "\"%s\" %s", name, problem);
}

/* Takes `word` off the end, if it is there. */
static bool
has_taken(berthi_text *text, const char *word)
{
    if (!berthi_text_ends(*text, word))
        return false;
    text->length -= strlen(word);
    return true;
}

/* "gen4x16". */
static bool
can_read_lanes(const char *text, berthi_rate *rate)
{
    static const char *const widths[] = { "x1", "x2", "x4", "x8", "x16" };

    for (uint32_t i = 0; text[0] != '\0' && i < sizeof widths / sizeof *widths; i++)
        if (strcmp(text + 1, widths[i]) == 0)
            return has_lanes(rate, (uint32_t)(text[0] - '0'), 1u << i, BERTHI_RATE_GIVEN);
    return false;
}

static berth_status
read_rate(berthi_text item, berthi_text value, bool is_gpu, berthi_rate *out, berth_error *error)
{
    char text[RATE_TEXT + 1];
    uint64_t bytes;
    berth_error inner;

    if (value.length > RATE_TEXT)
        return refuse(error, item, "has a rate of too many characters");
    memcpy(text, value.bytes, (size_t)value.length);
    text[value.length] = '\0';
    if (strncmp(text, "gen", 3) == 0) {
        if (!is_gpu)
            return refuse(error, item, "has a PCIe generation, which is for GPUs");
        if (!can_read_lanes(text + 3, out))
            return refuse(error, item, "has none of gen3, gen4, gen5, gen6 with x1, x2, x4, "
                                       "x8 or x16 behind it");
        return BERTH_OK;
    }
    value.bytes = text;
    if (has_taken(&value, "/s"))
        text[value.length] = '\0';
    if (berth_size_parse(text, &bytes, &inner) != BERTH_OK)
        return refuse(error, item, inner.message);
    if (bytes == 0 || bytes > BERTHI_RATE_LIMIT)
        return refuse(error, item, "is not between 1 B/s and 4 EiB/s");
    set_rate(out, bytes, BERTHI_RATE_GIVEN);
    return BERTH_OK;
}

/* "4us". */
static berth_status
read_delay(berthi_text item, berthi_text value, const berthi_tier *tier, berthi_delay *out,
           berth_error *error)
{
    char text[RATE_TEXT + 1];

    if (tier->kind != BERTHI_TIER_GPU)
        return refuse(error, item, "has operations, which are for GPUs");
    if (out->ns > 0)
        return refuse(error, item, "names a time that was named before");
    snprintf(text, sizeof text, "%.*s", (int)berthi_min_u64(value.length, RATE_TEXT),
             value.bytes);
    if (strlen(text) != value.length
        || !berthi_duration_can_parse(text, BERTHI_DELAY_LIMIT, &out->ns) || out->ns == 0)
        return refuse(error, item, "is not a time as 4us, up to 1s");
    out->source = BERTHI_RATE_GIVEN;
    return BERTH_OK;
}

/* One "device=rate", "device.memory=rate" or "device.operation=time". */
static berth_status
read_item(berthi_text item, berthi_links *links, berth_error *error)
{
    const char *const sign = memchr(item.bytes, '=', (size_t)item.length);
    berthi_link *link;
    berthi_rate *rate;
    berthi_tier tier;
    berthi_text name;
    berthi_text value;
    bool is_memory;
    bool is_operation;

    if (sign == NULL)
        return refuse(error, item, "is not written as device=rate");
    name = berthi_text_trim((berthi_text){ item.bytes, (uint64_t)(sign - item.bytes) });
    value = berthi_text_trim(
        (berthi_text){ sign + 1, item.length - (uint64_t)(sign + 1 - item.bytes) });
    is_memory = has_taken(&name, ".memory");
    is_operation = !is_memory && has_taken(&name, ".operation");
    if (!berthi_tier_can_parse(name.bytes, name.length, &tier))
        return refuse(error, item, "has no device before its rate: 0, cuda:0, cpu, disk");
    if (is_memory && tier.kind == BERTHI_TIER_DISK)
        return refuse(error, item, "is the memory of a disk: give disk=");
    link = berthi_links_place(links, &tier);
    if (link == NULL)
        return refuse(error, item, "is a GPU too many: there is room for 64");
    if (is_operation)
        return read_delay(item, value, &tier, &link->operation, error);
    rate = is_memory ? &link->memory : &link->feed;
    if (rate->bytes > 0)
        return refuse(error, item, "names a rate that was named before");
    return read_rate(item, value, tier.kind == BERTHI_TIER_GPU && !is_memory, rate, error);
}

/* False: a GPU too many. */
static bool
can_add(berthi_links *links, const berthi_links *more)
{
    for (uint32_t i = 0; i < more->count; i++) {
        berthi_link *const link = berthi_links_place(links, &more->items[i].tier);

        if (link == NULL)
            return false;
        if (more->items[i].feed.bytes > 0)
            link->feed = more->items[i].feed;
        if (more->items[i].memory.bytes > 0)
            link->memory = more->items[i].memory;
        if (more->items[i].operation.ns > 0)
            link->operation = more->items[i].operation;
    }
    return true;
}

berth_status
berthi_links_parse_words(const char *text, berthi_links *links, berth_error *error)
{
    const berthi_text all = berthi_text_of(text);
    berthi_links given;
    berthi_links sum = *links;
    berth_status status;

    memset(&given, 0, sizeof given);
    do {
        const size_t length = strcspn(text, ",");

        status = read_item(berthi_text_trim((berthi_text){ text, length }), &given, error);
        text += length;
    } while (*text++ == ',' && status == BERTH_OK);
    if (status != BERTH_OK)
        return status;
    if (!can_add(&sum, &given))
        return refuse(error, all, "has a GPU too many: there is room for 64");
    *links = sum;
    return BERTH_OK;
}
