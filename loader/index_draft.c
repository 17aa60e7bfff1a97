/* SPDX-License-Identifier: Apache-2.0 */
/* index_draft.c - the JSON of an index -> packed records. */
#include "loader/index_draft.h"

#include <string.h>

/* 2^64, the first double above every total */
#define TOTAL_LIMIT 18446744073709551616.0

static const berthi_scan_text no_text = { "", 0, false };

/* ------------------------------------------------------------------ records */

static berthi_scan_text
put_text(berthi_index_draft *draft, const berthi_scan_text *text)
{
    char *const out = draft->scan.text + draft->records.bytes;

    memmove(out, text->bytes, (size_t)text->length);
    out[text->length] = '\0';
    draft->records.bytes += text->length + 1;
    return (berthi_scan_text){ out, text->length, text->has_nul };
}

static void
refuse_later(berthi_index_draft *draft, uint64_t position, const berthi_scan_text *name,
             const berthi_scan_text *shard, const char *problem)
{
    if (!draft->records.refusal.is_set)
        draft->records.refusal =
            (berthi_index_refusal){ true, position, *name, *shard, problem };
}

/* The name that was read becomes a record, to which its shard is to be added. */
static berthi_scan_text
put_name(berthi_index_draft *draft)
{
    const berthi_scan_text *const tensor = &draft->tensor;
    const uint64_t position = (uint64_t)(tensor->bytes - draft->scan.text);
    const uint32_t length = (uint32_t)tensor->length;
    char *const head = draft->scan.text + draft->records.bytes;
    berthi_scan_text name;

    draft->records.bytes += sizeof length;
    name = put_text(draft, tensor);
    memcpy(head, &length, sizeof length); /* last: the name may have come from there */
    draft->records.entry_count++;
    draft->records.name_bytes += length + UINT64_C(1);
    if (name.has_nul)
        refuse_later(draft, position, &name, &no_text, NULL);
    return name;
}

static void
add_record(berthi_index_draft *draft, const berthi_scan_text *shard)
{
    berthi_index_records *const r = &draft->records;
    const uint64_t position = (uint64_t)(shard->bytes - draft->scan.text);
    const berthi_scan_text name = put_name(draft);
    const char *problem;

    if (r->run_count > 0 && r->shard.length == shard->length
        && memcmp(r->shard.bytes, shard->bytes, (size_t)shard->length) == 0) {
        put_text(draft, &no_text);
        return;
    }
    /* Text only becomes shorter where it was escaped. */
    r->is_plain = shard->bytes + shard->length + 1 == draft->scan.text + draft->scan.position;
    r->run_count++;
    r->shard = put_text(draft, shard);
    problem = berthi_shard_name_problem(r->shard.bytes, r->shard.length);
    if (problem != NULL)
        refuse_later(draft, position, &name, &r->shard, problem);
}

/* ------------------------------------------------------------------ reading */

/* The scanner's first problem stays: it is looked for at the end only. */

static void
read_pair(berthi_index_draft *draft, const berthi_scan_text *key)
{
    const berthi_index_records *const r = &draft->records;
    berthi_scan_text shard;

    draft->tensor = *key;
    /* Mostly the shard of the tensor before: nothing to look for in it. */
    if (r->is_plain && berthi_scan_has_plain(&draft->scan, &r->shard)) {
        put_name(draft);
        put_text(draft, &no_text);
    } else if (berthi_scan_can_read_string(&draft->scan, &shard)) {
        add_record(draft, &shard);
    } else {
        return;
    }
    draft->tensor.bytes = NULL;
}

/* What looked like a bare map before it is forgotten. */
static void
read_map(berthi_index_draft *draft)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan_text key;

    if (draft->has_map)
        berthi_scan_refuse(scan, "a second weight_map");
    draft->has_map = true;
    memset(&draft->records, 0, sizeof draft->records);
    berthi_scan_can_enter_object(scan);
    while (berthi_scan_has_next_member(scan, &key))
        read_pair(draft, &key);
}

/* Old writers give a float: taken when it is an integer all the same. */
static void
read_total(berthi_index_draft *draft)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan attempt = *scan;
    double value;

    draft->has_total = berthi_scan_can_read_unsigned(&attempt, &draft->total);
    if (draft->has_total) {
        *scan = attempt;
    } else if (berthi_scan_peek(scan) != BERTHI_SCAN_NUMBER) {
        berthi_scan_can_skip(scan);
    } else if (berthi_scan_can_read_double(scan, &value) && value >= 0.0
               && value < TOTAL_LIMIT && (double)(uint64_t)value == value) {
        draft->has_total = true;
        draft->total = (uint64_t)value;
    }
}

static void
read_metadata(berthi_index_draft *draft)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan_text key;

    berthi_scan_can_enter_object(scan);
    while (berthi_scan_has_next_member(scan, &key)) {
        if (berthi_scan_text_is(&key, "total_size"))
            read_total(draft);
        else
            berthi_scan_can_skip(scan);
    }
}

static void
read_root_member(berthi_index_draft *draft, const berthi_scan_text *key)
{
    const berthi_scan_kind kind = berthi_scan_peek(&draft->scan);

    if (berthi_scan_text_is(key, "weight_map")) {
        read_map(draft);
        return;
    }
    if (kind == BERTHI_SCAN_STRING && !draft->has_map) {
        read_pair(draft, key);
        return;
    }
    draft->has_other = draft->has_other || kind != BERTHI_SCAN_STRING;
    if (kind == BERTHI_SCAN_OBJECT && berthi_scan_text_is(key, "metadata"))
        read_metadata(draft);
    else
        berthi_scan_can_skip(&draft->scan);
}

bool
berthi_index_draft_can_read(berthi_index_draft *draft, char *text, uint64_t bytes)
{
    berthi_scan *const scan = &draft->scan;
    berthi_scan_text key;

    memset(draft, 0, sizeof *draft);
    berthi_scan_init(scan, text, bytes, 0);
    berthi_scan_can_enter_object(scan);
    while (berthi_scan_has_next_member(scan, &key))
        read_root_member(draft, &key);
    if (!berthi_scan_can_finish(scan))
        return false;
    if (!draft->has_map && draft->has_other)
        return berthi_scan_refuse(scan, "no weight_map");
    return draft->records.entry_count > 0 || berthi_scan_refuse(scan, "names no tensor");
}
