/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - the gate of an index: text, and the tables of names and shards. */
#include "loader/index.h"

#include <stdio.h>
#include <string.h>

#include "kernels/utf8.h"
#include "loader/index_draft.h"
#include "loader/safetensors.h"
#include "loader/sort.h"

#define SHOWN_NAME 160u

/* ------------------------------------------------------------------- checks */

/* A parse under way: what every step needs. */
typedef struct parser {
    const char *file;
    berthi_index *index;
    berth_error *error;
    const char *records;
    bool has_twins; /* two names are the same */
} parser;

static berth_status
blame(const parser *p, berth_reason reason, const berthi_about *about, const char *what)
{
    return berthi_blamed_fail(&p->index->blamed, reason, about, what, p->error);
}

static berth_status
refuse_json(const parser *p, const berthi_index_draft *draft)
{
    const berthi_about about = { .file = p->file, .tensor = draft->tensor.bytes,
                                 .tensor_length = (size_t)draft->tensor.length,
                                 .has = BERTH_HAS_POSITION,
                                 .position = draft->scan.problem_at };

    return blame(p, BERTH_REASON_INDEX_JSON, &about, draft->scan.problem);
}

static berth_status
check_refusal(const parser *p, const berthi_index_refusal *r)
{
    const berthi_about about = { .file = p->file, .tensor = r->name.bytes,
                                 .tensor_length = (size_t)r->name.length,
                                 .has = BERTH_HAS_POSITION, .position = r->position };
    char shown[SHOWN_NAME];
    char what[BERTH_MESSAGE_CAPACITY];

    if (!r->is_set)
        return BERTH_OK;
    if (r->problem == NULL)
        return blame(p, BERTH_REASON_NAME, &about, "a name contains U+0000");
    berth_text_escape(r->shard.bytes, (size_t)r->shard.length, shown, sizeof shown);
    snprintf(what, sizeof what, "the shard name \"%s\" %s", shown, r->problem);
    return blame(p, BERTH_REASON_PATH, &about, what);
}

static berth_status
read_draft(const parser *p, char *text, uint64_t bytes, berthi_index_draft *draft)
{
    berthi_about about = { .file = p->file };

    if (bytes > BERTHI_INDEX_LIMIT) {
        about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
        about.expected = BERTHI_INDEX_LIMIT;
        about.actual = bytes;
        return berthi_fail(p->error, BERTH_REASON_INDEX_JSON, &about,
                           "the index is too large");
    }
    about.has = BERTH_HAS_POSITION;
    about.position = berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    if (about.position < bytes)
        return berthi_fail(p->error, BERTH_REASON_INDEX_JSON, &about,
                           "the index is not UTF-8");
    if (!berthi_index_draft_can_read(draft, text, bytes))
        return refuse_json(p, draft);
    return check_refusal(p, &draft->records.refusal);
}

/* ------------------------------------------------------------------- shards */

static int
compare_runs(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const parser *const p = user;

    (void)shared;
    return strcmp(p->records + a, p->records + b);
}

/* Behind the shard of a record; most have none. */
static const char *
skip_shard(const char *at)
{
    return *at == '\0' ? at + 1 : at + strlen(at) + 1;
}

/* Places of all shard names in the records, in order of records. */
static void
find_runs(const parser *p, uint64_t run_count, uint32_t *runs)
{
    const char *at = p->records;
    const char *name;
    uint32_t length;

    for (uint64_t i = 0; i < run_count; at = skip_shard(at)) {
        at = berthi_index_draft_name(at, &name, &length);
        if (*at != '\0')
            runs[i++] = (uint32_t)(at - p->records);
    }
}

/* Sorts the runs and leaves one of each name; returns the bytes of these names. */
static uint64_t
unite_runs(const parser *p, uint32_t *runs, uint64_t *run_count)
{
    uint64_t kept = 0;
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < *run_count; i++) {
        const char *const name = p->records + runs[i];

        if (kept > 0 && strcmp(p->records + runs[kept - 1], name) == 0)
            continue;
        bytes += strlen(name) + 1;
        runs[kept++] = runs[i];
    }
    *run_count = kept;
    return bytes;
}

/* Number of the shard with this name, which is one of them. */
static uint32_t
find_shard(const berthi_index *index, const char *name)
{
    uint32_t low = 0;
    uint32_t high = index->shard_count;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (strcmp(index->text + index->shards[middle], name) <= 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ------------------------------------------------------------------- tables */

static uint64_t
firsts_bytes(const berthi_index *index)
{
    return (index->shard_count + UINT64_C(1)) * sizeof *index->firsts;
}

/* Shard names go to the front of the text, in order. */
static uint64_t
fill_shards(const parser *p, const uint32_t *runs)
{
    uint64_t text = 0;

    for (uint32_t i = 0; i < p->index->shard_count; i++) {
        const char *const name = p->records + runs[i];
        const uint64_t bytes = strlen(name) + 1;

        p->index->shards[i] = text;
        memcpy(p->index->text + text, name, (size_t)bytes);
        text += bytes;
    }
    return text;
}

static void
fill_entries(const parser *p, uint64_t text)
{
    berthi_index *const index = p->index;
    const char *at = p->records;
    uint32_t shard = 0;

    for (uint64_t i = 0; i < index->entry_count; i++) {
        const char *name;
        uint32_t length;

        at = berthi_index_draft_name(at, &name, &length);
        if (*at != '\0')
            shard = find_shard(index, at);
        at = skip_shard(at);
        memcpy(index->text + text, name, (size_t)length + 1);
        index->entries[i] = (berthi_index_entry){ (uint32_t)text, length, shard,
                                                  index->firsts[shard + 1]++ };
        text += length + UINT64_C(1);
    }
}

/* The names of each shard, behind one another; entries are in the order of the text. */
static void
list_names(berthi_index *index)
{
    for (uint32_t i = 0; i < index->shard_count; i++)
        index->firsts[i + 1] += index->firsts[i];
    for (uint64_t i = 0; i < index->entry_count; i++) {
        const berthi_index_entry *const entry = &index->entries[i];

        index->listed[index->firsts[entry->shard] + entry->place] = entry->name;
    }
}

static berth_status
build_tables(const parser *p, const berthi_index_records *r, const uint32_t *runs,
             uint64_t shard_count, uint64_t shard_bytes)
{
    berthi_index *const index = p->index;
    berth_context *const context = index->context;

    index->entry_count = r->entry_count;
    index->shard_count = (uint32_t)shard_count;
    index->text_bytes = shard_bytes + r->name_bytes;
    index->text = berthi_memory_alloc(context, BERTHI_PURPOSE_TENSORS, index->text_bytes);
    index->entries = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                         index->entry_count, sizeof *index->entries);
    index->shards = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS, shard_count,
                                        sizeof *index->shards);
    index->listed = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                        index->entry_count, sizeof *index->listed);
    index->firsts = berthi_memory_zalloc(context, BERTHI_PURPOSE_TENSORS,
                                         firsts_bytes(index));
    if (index->text == NULL || index->entries == NULL || index->shards == NULL
        || index->listed == NULL || index->firsts == NULL)
        return berthi_fail_memory(p->error, "the tables of an index");
    fill_entries(p, fill_shards(p, runs));
    list_names(index);
    return BERTH_OK;
}

static berth_status
build(parser *p, const berthi_index_records *r)
{
    berth_context *const context = p->index->context;
    const uint64_t run_bytes = r->run_count * sizeof(uint32_t);
    uint64_t shard_count = r->run_count;
    berth_status status = BERTH_OK;
    uint32_t *runs;

    runs = berthi_memory_alloc(context, BERTHI_PURPOSE_SCRATCH, run_bytes);
    if (runs == NULL)
        return berthi_fail_memory(p->error, "the shards of an index");
    find_runs(p, r->run_count, runs);
    if (!berthi_sort_arrange(context, runs, r->run_count, compare_runs, p))
        status = berthi_fail_memory(p->error, "sorting the shards of an index");
    if (status == BERTH_OK) {
        const uint64_t shard_bytes = unite_runs(p, runs, &shard_count);

        status = build_tables(p, r, runs, shard_count, shard_bytes);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, runs, run_bytes);
    return status;
}

static int
compare_names(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    parser *const p = user;
    const berthi_index_entry *const left = &p->index->entries[a];
    const berthi_index_entry *const right = &p->index->entries[b];
    const char *const text = p->index->text;
    const int order =
        berthi_name_compare_behind(text + left->name, left->name_length,
                                   text + right->name, right->name_length, shared);

    p->has_twins = p->has_twins || order == 0;
    return order;
}

static berth_status
sort_entries(parser *p)
{
    berthi_index *const index = p->index;
    const uint64_t order_bytes = index->entry_count * sizeof(uint32_t);
    bool is_sorted;
    uint32_t *order;

    order = berthi_memory_alloc(index->context, BERTHI_PURPOSE_SCRATCH, order_bytes);
    if (order == NULL)
        return berthi_fail_memory(p->error, "sorting the names of an index");
    berthi_sort_number(order, index->entry_count);
    is_sorted = berthi_sort_arrange(index->context, order, index->entry_count,
                                    compare_names, p);
    if (is_sorted)
        berthi_sort_apply(index->entries, sizeof *index->entries, order,
                          index->entry_count);
    berthi_memory_free(index->context, BERTHI_PURPOSE_SCRATCH, order, order_bytes);
    return is_sorted ? BERTH_OK
                     : berthi_fail_memory(p->error, "sorting the names of an index");
}

static berth_status
check_names(parser *p)
{
    const berthi_index *const index = p->index;

    if (!p->has_twins)
        return BERTH_OK;
    for (uint32_t i = 1; i < index->entry_count; i++)
        if (compare_names(p, i - 1, i, &(uint64_t){ 0 }) == 0) {
            const berthi_index_entry *const entry = &index->entries[i];
            const berthi_about about = { .file = p->file,
                                         .tensor = index->text + entry->name,
                                         .tensor_length = entry->name_length };

            return blame(p, BERTH_REASON_DUPLICATE, &about,
                         "the index has this tensor more than once");
        }
    return BERTH_OK;
}

/* ------------------------------------------------------------------- public */

void
berthi_index_fini(berthi_index *index)
{
    berth_context *const context = index->context;

    if (context == NULL)
        return;
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, index->text, index->text_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, index->entries,
                       index->entry_count * sizeof *index->entries);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, index->shards,
                       index->shard_count * sizeof *index->shards);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, index->listed,
                       index->entry_count * sizeof *index->listed);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, index->firsts,
                       firsts_bytes(index));
    memset(index, 0, sizeof *index);
}

berthi_name_list
berthi_index_list(const berthi_index *index, uint32_t shard)
{
    const uint32_t first = index->firsts[shard];

    return (berthi_name_list){ .text = index->text, .text_bytes = index->text_bytes,
                               .names = index->listed + first,
                               .count = index->firsts[shard + 1] - first };
}

/* Gives up the tables. */
static void
abandon(berthi_index *index, char *text)
{
    const berthi_blamed blamed = berthi_blamed_move(index->blamed, text);

    berthi_index_fini(index);
    index->blamed = blamed;
}

berth_status
berthi_index_parse(berth_context *context, char *text, uint64_t bytes, const char *file,
                   berthi_index *out, berth_error *error)
{
    parser p = { .file = file, .index = out, .error = error, .records = text };
    berth_status status;
    berthi_index_draft draft;

    memset(out, 0, sizeof *out);
    out->context = context;
    status = read_draft(&p, text, bytes, &draft);
    if (status == BERTH_OK)
        status = build(&p, &draft.records);
    if (status == BERTH_OK)
        status = sort_entries(&p);
    if (status == BERTH_OK)
        status = check_names(&p);
    if (status != BERTH_OK) {
        abandon(out, text);
        return status;
    }
    out->has_total_size = draft.has_total;
    out->total_size = draft.has_total ? draft.total : 0;
    return BERTH_OK;
}
