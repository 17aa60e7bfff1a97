/* SPDX-License-Identifier: Apache-2.0 */
/* link_file.c - reads and writes files of links; berth-links(5) describes them. */
#include "placement/link.h"

#include <string.h>

#include "quant/members.h"

#define VERSION 1u

/* -------------------------------------------------------------------- reading */

typedef struct reader {
    berthi_members members;
    berthi_links *links;
} reader;

static bool
can_read_plain(reader *r, berthi_scan_text *out)
{
    if (!berthi_scan_can_read_string(&r->members.scan, out))
        return false;
    for (uint64_t i = 0; i < out->length; i++)
        if ((unsigned char)out->bytes[i] < 0x20 || out->bytes[i] == 0x7F)
            return berthi_members_stop(&r->members, "a control character in a string");
    return true;
}

/* Into `out` of `capacity` zeros, the last of which stays. */
static bool
can_read_words(reader *r, char *out, size_t capacity)
{
    berthi_scan_text text;

    if (!can_read_plain(r, &text))
        return false;
    if (text.length >= capacity)
        return berthi_members_stop(&r->members, "a string with too many bytes");
    memcpy(out, text.bytes, (size_t)text.length);
    return true;
}

static bool
can_read_source(reader *r, int32_t *out)
{
    berthi_scan_text text;

    if (!berthi_scan_can_read_string(&r->members.scan, &text))
        return false;
    for (*out = 0; *out < BERTHI_RATE_SOURCE_COUNT; ++*out)
        if (berthi_scan_text_is(&text, berthi_rate_source_name(*out)))
            return true;
    return berthi_members_stop(&r->members,
                               "a source that is none of guessed, given, measured");
}

static bool
can_read_rate(reader *r, berthi_rate *rate)
{
    if (!berthi_scan_can_enter_object(&r->members.scan)
        || !berthi_members_can_read_key(&r->members, "bytes_per_second")
        || !berthi_scan_can_read_unsigned(&r->members.scan, &rate->bytes))
        return false;
    if (rate->bytes == 0 || rate->bytes > BERTHI_RATE_LIMIT)
        return berthi_members_stop(&r->members, "a rate that is not 1 to 2^62");
    return berthi_members_can_read_key(&r->members, "source")
           && can_read_source(r, &rate->source)
           && berthi_members_can_read_key(&r->members, "words")
           && can_read_words(r, rate->words, sizeof rate->words)
           && berthi_members_is_at_end(&r->members);
}

static bool
can_read_delay(reader *r, berthi_delay *delay)
{
    if (!berthi_scan_can_enter_object(&r->members.scan)
        || !berthi_members_can_read_key(&r->members, "nanoseconds")
        || !berthi_scan_can_read_unsigned(&r->members.scan, &delay->ns))
        return false;
    if (delay->ns == 0 || delay->ns > BERTHI_DELAY_LIMIT)
        return berthi_members_stop(&r->members, "a time that is not 1 to 1000000000");
    return berthi_members_can_read_key(&r->members, "source")
           && can_read_source(r, &delay->source)
           && berthi_members_is_at_end(&r->members);
}

/* Of a GPU alone. */
static bool
can_find_operation(reader *r, berthi_link *link)
{
    bool is_there = false;

    return link->tier.kind != BERTHI_TIER_GPU
           || (berthi_members_can_find_key(&r->members, "operation", &is_there)
               && (!is_there || can_read_delay(r, &link->operation)));
}

/* What stands behind a tier: one of them at least. */
static bool
can_read_rates(reader *r, berthi_link *link)
{
    berthi_members *const m = &r->members;
    bool is_there;

    if (!berthi_members_can_find_key(m, "feed", &is_there)
        || (is_there && !can_read_rate(r, &link->feed)))
        return false;
    if (link->tier.kind != BERTHI_TIER_DISK
        && (!berthi_members_can_find_key(m, "memory", &is_there)
            || (is_there && !can_read_rate(r, &link->memory))))
        return false;
    if (!can_find_operation(r, link) || !berthi_members_is_at_end(m))
        return false;
    if (link->feed.bytes == 0 && link->memory.bytes == 0 && link->operation.ns == 0)
        return berthi_members_stop(m, "a tier without rates");
    return true;
}

static bool
can_read_link(reader *r)
{
    berthi_links *const links = r->links;
    berthi_link *link;
    berthi_scan_text name;
    berthi_tier tier;

    if (!berthi_scan_can_enter_object(&r->members.scan)
        || !berthi_members_can_read_key(&r->members, "tier")
        || !berthi_scan_can_read_string(&r->members.scan, &name))
        return false;
    if (!berthi_tier_can_parse(name.bytes, name.length, &tier))
        return berthi_members_stop(&r->members,
                                   "a tier that is none of cuda:0 and so on, cpu, disk");
    if (links->count > 0
        && berthi_tier_compare(&links->items[links->count - 1].tier, &tier) >= 0)
        return berthi_members_stop(&r->members, "a tier twice, or not in the order of tiers");
    link = berthi_links_place(links, &tier);
    return link == NULL ? berthi_members_stop(&r->members, "more than 64 GPUs")
                        : can_read_rates(r, link);
}

static bool
can_read_document(reader *r)
{
    berthi_members *const m = &r->members;
    berthi_scan_text writer;

    if (!berthi_members_can_read_version(m, VERSION)
        || !berthi_members_can_read_key(m, "writer") || !can_read_plain(r, &writer)
        || !berthi_members_can_read_key(m, "fingerprint")
        || !can_read_words(r, r->links->fingerprint, sizeof r->links->fingerprint)
        || !berthi_members_can_read_key(m, "links")
        || !berthi_scan_can_enter_array(&m->scan))
        return false;
    while (berthi_scan_has_next_element(&m->scan))
        if (!can_read_link(r))
            return false;
    return berthi_members_is_at_end(m);
}

berth_status
berthi_links_parse(char *text, uint64_t bytes, const char *file, berthi_links *out,
                   berth_error *error)
{
    reader r = { .members = { .file = file,
                              .reason = BERTH_REASON_LINKS_JSON,
                              .what = "reading links",
                              .error = error },
                 .links = out };
    berth_status status;

    memset(out, 0, sizeof *out);
    if (berthi_members_can_begin(&r.members, text, bytes))
        (void)can_read_document(&r);
    status = berthi_members_end(&r.members);
    if (status != BERTH_OK)
        memset(out, 0, sizeof *out);
    return status;
}

/* -------------------------------------------------------------------- writing */

static void
add_string(berthi_json_text *text, const char *words)
{
    berthi_json_text_add_string(text, words, strlen(words), BERTHI_JSON_RAW);
}

static void
add_rate(berthi_json_text *text, const char *key, const berthi_rate *rate)
{
    if (rate->bytes == 0)
        return;
    berthi_json_text_add_words(text, ", \"");
    berthi_json_text_add_words(text, key);
    berthi_json_text_add_words(text, "\": {\"bytes_per_second\": ");
    berthi_json_text_add_number(text, rate->bytes);
    berthi_json_text_add_words(text, ", \"source\": ");
    add_string(text, berthi_rate_source_name(rate->source));
    berthi_json_text_add_words(text, ", \"words\": ");
    add_string(text, rate->words);
    berthi_json_text_add_words(text, "}");
}

static void
add_operation(berthi_json_text *text, const berthi_delay *delay)
{
    if (delay->ns == 0)
        return;
    berthi_json_text_add_words(text, ", \"operation\": {\"nanoseconds\": ");
    berthi_json_text_add_number(text, delay->ns);
    berthi_json_text_add_words(text, ", \"source\": ");
    add_string(text, berthi_rate_source_name(delay->source));
    berthi_json_text_add_words(text, "}");
}

berth_status
berthi_links_print(const berthi_links *links, berthi_json_put put, void *user,
                   uint64_t *out_bytes, berth_error *error)
{
    berthi_json_text text;
    char name[BERTHI_TIER_NAME];

    berthi_json_text_begin(&text, put, user, error);
    berthi_json_text_add_words(&text, "{\n\"schema_version\": 1,\n\"writer\": \"berth ");
    berthi_json_text_add_words(&text, berth_version());
    berthi_json_text_add_words(&text, "\",\n\"fingerprint\": ");
    add_string(&text, links->fingerprint);
    berthi_json_text_add_words(&text, ",\n\"links\": [");
    for (uint32_t i = 0; i < links->count; i++) {
        berthi_json_text_add_words(&text, i == 0 ? "\n{\"tier\": " : ",\n{\"tier\": ");
        add_string(&text, berthi_tier_name(&links->items[i].tier, name));
        add_rate(&text, "feed", &links->items[i].feed);
        if (links->items[i].tier.kind != BERTHI_TIER_DISK)
            add_rate(&text, "memory", &links->items[i].memory);
        add_operation(&text, &links->items[i].operation);
        berthi_json_text_add_words(&text, "}");
    }
    berthi_json_text_add_words(&text, "\n]\n}\n");
    return berthi_json_text_end(&text, out_bytes);
}
