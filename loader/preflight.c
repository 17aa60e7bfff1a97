/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.c - one pass over the index, a cursor in each shard.
 *
 * Most shards hold what the index lists for them, in its order, as was found when
 * they were read. In the others a cursor stands in the shard's stretch of
 * table->by_name. What the pass skips in a stretch is in no index ("extra"); where
 * it finds nothing, the index promises too much ("missing"). Ordinary checkpoints
 * have neither, so the first pass only counts, and lists are made when there is
 * something to list.
 */
#include "loader/preflight.h"

#include <inttypes.h>
#include <string.h>

#include "loader/sort.h"

/* Marks an entry that leaves the table: no berth_encoding. */
#define DROPPED UINT16_MAX

typedef struct pass {
    berth_context *context;
    const berthi_index *index;
    const berthi_shard *shards;
    uint32_t shard_count;
    berthi_table *table;
    berthi_findings *findings;
    uint64_t *cursors;  /* one a shard */
    uint32_t *ordered;  /* entries that the index names, in order; as many as the table */
    uint64_t ordered_count;
    uint32_t *extra;    /* entries that it does not name; NULL while counting */
    uint64_t extra_count;
    uint32_t *missing;  /* places in the index; NULL while counting */
    uint64_t missing_count;
} pass;

/* -------------------------------------------------------------------- the pass */

static int
compare_with_index(const pass *p, uint32_t number, const berthi_index_entry *entry)
{
    return berthi_name_compare(berthi_table_name(p->table, number),
                               p->table->entries[number].name_length,
                               p->index->text + entry->name, entry->name_length);
}

static void
add_extra(pass *p, uint32_t number)
{
    if (p->extra != NULL)
        p->extra[p->extra_count] = number;
    p->extra_count++;
}

static void
take_index_entry(pass *p, uint32_t place)
{
    const berthi_index_entry *const entry = &p->index->entries[place];
    const berthi_shard *const shard = &p->shards[entry->shard];
    const uint64_t end = shard->first_entry + shard->entry_count;
    uint64_t *const cursor = &p->cursors[entry->shard];

    if (shard->is_as_listed) {
        p->ordered[p->ordered_count++] = (uint32_t)(shard->first_entry + entry->place);
        return;
    }
    while (*cursor < end) {
        const uint32_t number = p->table->by_name[*cursor];
        const int order = compare_with_index(p, number, entry);

        if (order > 0)
            break;
        ++*cursor;
        if (order == 0) {
            p->ordered[p->ordered_count++] = number;
            return;
        }
        add_extra(p, number);
    }
    if (p->missing != NULL)
        p->missing[p->missing_count] = place;
    p->missing_count++;
}

static void
run(pass *p)
{
    p->ordered_count = 0;
    p->extra_count = 0;
    p->missing_count = 0;
    for (uint32_t i = 0; i < p->shard_count; i++)
        p->cursors[i] = p->shards[i].first_entry
                        + (p->shards[i].is_as_listed ? p->shards[i].entry_count : 0);
    for (uint64_t place = 0; place < p->index->entry_count; place++)
        if (p->shards[p->index->entries[place].shard].is_read)
            take_index_entry(p, (uint32_t)place);
    for (uint32_t i = 0; i < p->shard_count; i++) {
        const uint64_t end = p->shards[i].first_entry + p->shards[i].entry_count;

        for (; p->cursors[i] < end; p->cursors[i]++)
            add_extra(p, p->table->by_name[p->cursors[i]]);
    }
}

/* ---------------------------------------------------------------------- errors */

/* Tells an error: BERTH_OK when the pass goes on. */
static berth_status
go_on(const pass *p, const berthi_about *about, const berth_error *error)
{
    berthi_findings_keep_name(p->findings, about->tensor, about->tensor_length);
    return berthi_findings_note(p->findings, error) ? BERTH_OK : error->status;
}

/* --------------------------------------------------------------------- missing */

static berth_status
report_missing(const pass *p, const berthi_index_entry *entry, const char *found_in,
               berth_error *error)
{
    const berthi_about about = {
        .file = p->shards[entry->shard].file.path,
        .tensor = p->index->text + entry->name,
        .tensor_length = entry->name_length,
    };
    char shown[BERTHI_SHOWN_CAPACITY];

    if (found_in == NULL)
        berthi_fail(error, BERTH_REASON_INDEX_TENSOR, &about,
                    "the index names it, but it is not in this shard");
    else
        berthi_fail(error, BERTH_REASON_INDEX_TENSOR, &about,
                    "the index names it, but it is not in this shard: it is in %s",
                    berthi_findings_shown(found_in, strlen(found_in), shown));
    return go_on(p, &about, error);
}

/* Missing and extra are both in order of names: what is in the wrong shard meets. */
static berth_status
report_all_missing(const pass *p, berth_error *error)
{
    uint64_t at = 0;

    for (uint64_t i = 0; i < p->missing_count; i++) {
        const berthi_index_entry *const entry = &p->index->entries[p->missing[i]];
        const char *found_in = NULL;
        berth_status status;

        while (at < p->extra_count && compare_with_index(p, p->extra[at], entry) < 0)
            at++;
        if (at < p->extra_count && compare_with_index(p, p->extra[at], entry) == 0)
            found_in = p->shards[p->table->entries[p->extra[at]].shard].name;
        status = report_missing(p, entry, found_in, error);
        if (status != BERTH_OK)
            return status;
    }
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- extra */

static berthi_about
about_entry(const pass *p, uint32_t number)
{
    const berthi_entry *const entry = &p->table->entries[number];

    return (berthi_about){ .file = p->shards[entry->shard].file.path,
                           .tensor = berthi_table_name(p->table, number),
                           .tensor_length = entry->name_length };
}

static berth_status
report_unnamed(const pass *p, uint32_t number, berth_error *error)
{
    static const char what[] = "in this shard, but the index does not name it";
    const berthi_about about = about_entry(p, number);

    if (!p->findings->is_strict) {
        berthi_findings_remark(p->findings, BERTH_SEVERITY_WARNING,
                               BERTH_REASON_INDEX_EXTRA, &about, "%s", what);
        return BERTH_OK;
    }
    berthi_fail(error, BERTH_REASON_INDEX_EXTRA, &about, "%s", what);
    return go_on(p, &about, error);
}

static berth_status
report_twice(const pass *p, uint32_t number, uint32_t other, berth_error *error)
{
    const char *const name = p->shards[p->table->entries[other].shard].name;
    const berthi_about about = about_entry(p, number);
    char shown[BERTHI_SHOWN_CAPACITY];

    berthi_fail(error, BERTH_REASON_DUPLICATE, &about,
                "also in %s, and no index says which one counts",
                berthi_findings_shown(name, strlen(name), shown));
    return go_on(p, &about, error);
}

static void
drop(const pass *p, uint32_t number, uint32_t kept)
{
    const char *const name = p->shards[p->table->entries[kept].shard].name;
    const berthi_about about = about_entry(p, number);
    char shown[BERTHI_SHOWN_CAPACITY];

    p->table->entries[number].flags = DROPPED;
    berthi_findings_remark(p->findings, BERTH_SEVERITY_WARNING, BERTH_REASON_DUPLICATE,
                           &about, "left out: the index takes it from %s",
                           berthi_findings_shown(name, strlen(name), shown));
}

/* Goes through the extra entries beside the named ones, both in order; counts dropped. */
static berth_status
report_all_extra(pass *p, uint64_t *dropped, berth_error *error)
{
    const berthi_table *const table = p->table;
    uint64_t at = 0;

    for (uint64_t i = 0; i < p->extra_count; i++) {
        const uint32_t number = p->extra[i];
        berth_status status = BERTH_OK;

        while (at < p->ordered_count
               && berthi_table_compare(table, p->ordered[at], number) < 0)
            at++;
        if (at < p->ordered_count
            && berthi_table_compare(table, p->ordered[at], number) == 0) {
            drop(p, number, p->ordered[at]);
            ++*dropped;
        } else if (i > 0 && berthi_table_compare(table, p->extra[i - 1], number) == 0) {
            status = report_twice(p, number, p->extra[i - 1], error);
        } else {
            status = report_unnamed(p, number, error);
        }
        if (status != BERTH_OK)
            return status;
    }
    return BERTH_OK;
}

/* -------------------------------------------------------------- the new order */

/* by_name from the named and the extra entries that were not dropped. */
static void
merge(pass *p)
{
    const berthi_table *const table = p->table;
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t out = 0;

    while (a < p->ordered_count || b < p->extra_count) {
        if (b < p->extra_count && table->entries[p->extra[b]].flags == DROPPED)
            b++;
        else if (b == p->extra_count
                 || (a < p->ordered_count
                     && berthi_table_compare(table, p->ordered[a], p->extra[b]) < 0))
            table->by_name[out++] = p->ordered[a++];
        else
            table->by_name[out++] = p->extra[b++];
    }
}

/* Takes the dropped entries out and renumbers; `numbers` is scratch for all. */
static void
compact(const pass *p, berthi_shard *shards, uint64_t dropped, uint32_t *numbers)
{
    berthi_table *const table = p->table;
    uint64_t kept = 0;

    for (uint32_t i = 0; i < p->shard_count; i++) {
        berthi_shard *const shard = &shards[i];
        const uint64_t first = shard->first_entry;

        shard->first_entry = kept;
        for (uint64_t old = first; old < first + shard->entry_count; old++) {
            berthi_entry *const entry = &table->entries[old];

            if (entry->flags == DROPPED) {
                table->tensor_bytes -= entry->end - entry->begin;
                continue;
            }
            numbers[old] = (uint32_t)kept;
            table->entries[kept++] = *entry;
        }
        shard->entry_count = kept - shard->first_entry;
    }
    table->entry_count -= dropped;
    for (uint64_t i = 0; i < table->entry_count; i++)
        table->by_name[i] = numbers[table->by_name[i]];
}

/* ----------------------------------------------------------------- exceptions */

static int
compare_entries(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    (void)shared;
    return berthi_table_compare(user, a, b);
}

/* Lists what the first pass counted, reports it, and makes the order. */
static berth_status
settle(pass *p, berthi_shard *shards, berth_error *error)
{
    berth_context *const context = p->context;
    const uint64_t extras = p->extra_count;
    const uint64_t missings = p->missing_count;
    uint32_t *const extra =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, extras, sizeof *extra);
    uint32_t *const missing =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, missings, sizeof *missing);
    uint64_t dropped = 0;
    berth_status status = BERTH_OK;

    if (extra == NULL || missing == NULL) {
        status = berthi_fail_memory(error, "comparing index and shards");
        goto done;
    }
    p->extra = extra;
    p->missing = missing;
    run(p);
    if (!berthi_sort_arrange(context, extra, extras, compare_entries, p->table)) {
        status = berthi_fail_memory(error, "comparing index and shards");
        goto done;
    }
    status = report_all_missing(p, error);
    if (status == BERTH_OK)
        status = report_all_extra(p, &dropped, error);
    if (status != BERTH_OK)
        goto done;
    merge(p);
    if (dropped > 0)
        compact(p, shards, dropped, p->ordered);
done:
    p->extra = NULL;
    p->missing = NULL;
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, extra, extras * sizeof *extra);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, missing,
                       missings * sizeof *missing);
    return status;
}

/* --------------------------------------------------------------------- calls */

berth_status
berthi_preflight_index(const berthi_index *index, berthi_shard *shards,
                       uint32_t shard_count, berthi_table *table,
                       berthi_findings *findings, berth_error *error)
{
    berth_context *const context = table->context;
    pass p = { .context = context, .index = index, .shards = shards,
               .shard_count = shard_count, .table = table, .findings = findings };
    berth_status status = BERTH_OK;

    p.cursors = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, shard_count,
                                    sizeof *p.cursors);
    p.ordered = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, table->entry_count,
                                    sizeof *p.ordered);
    const uint64_t ordered_bytes = table->entry_count * sizeof *p.ordered;

    if (p.cursors == NULL || p.ordered == NULL) {
        status = berthi_fail_memory(error, "comparing index and shards");
        goto done;
    }
    run(&p);
    if (p.extra_count + p.missing_count > 0)
        status = settle(&p, shards, error);
    else
        memcpy(table->by_name, p.ordered, (size_t)p.ordered_count * sizeof *p.ordered);
done:
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, p.ordered, ordered_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, p.cursors,
                       shard_count * sizeof *p.cursors);
    return status;
}

berth_status
berthi_preflight_files(const berthi_shard *shards, berthi_table *table,
                       berthi_findings *findings, berth_error *error)
{
    const pass p = { .table = table, .findings = findings, .shards = shards };
    berth_status status = berthi_table_sort(table, error);

    for (uint64_t i = 1; status == BERTH_OK && i < table->entry_count; i++) {
        const uint32_t before = table->by_name[i - 1];
        const uint32_t number = table->by_name[i];

        if (table->entries[before].shard != table->entries[number].shard
            && berthi_table_compare(table, before, number) == 0)
            status = report_twice(&p, number, before, error);
    }
    return status;
}
