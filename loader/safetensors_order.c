/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_order.c - the order of names, and a header's tables in order: tensors as
 * they lie in the file, numbers by name, pairs by key. Twins are met on the way.
 */
#include "loader/safetensors_order.h"

#include <string.h>

#include "kernels/word.h"
#include "loader/sort.h"

/* -------------------------------------------------------------------- names */

int
berthi_name_compare(const char *a, uint64_t a_length, const char *b, uint64_t b_length)
{
    const int order = memcmp(a, b, (size_t)berthi_min_u64(a_length, b_length));

    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

/* Up to where a and b are the same, the first `at` of their `length` bytes being so. */
static inline uint64_t
skip_shared(const char *a, const char *b, uint64_t at, uint64_t length)
{
    while (length - at > BERTHI_WORD_BYTES) {
        const uint64_t other = berthi_word_load(a + at) ^ berthi_word_load(b + at);

        if (other != 0)
            return at + berthi_word_first(other);
        at += BERTHI_WORD_BYTES;
    }
    if (length >= BERTHI_WORD_BYTES) { /* the last eight, some of them once more */
        const uint64_t last = length - BERTHI_WORD_BYTES;
        const uint64_t other = berthi_word_load(a + last) ^ berthi_word_load(b + last);

        return other == 0 ? length : last + berthi_word_first(other);
    }
    while (at < length && a[at] == b[at])
        at++;
    return at;
}

int
berthi_name_compare_behind(const char *a, uint64_t a_length, const char *b,
                           uint64_t b_length, uint64_t *shared)
{
    const uint64_t length = berthi_min_u64(a_length, b_length);
    const uint64_t at = skip_shared(a, b, *shared, length);

    *shared = at;
    if (at < length)
        return (unsigned char)a[at] < (unsigned char)b[at] ? -1 : 1;
    return (a_length > b_length) - (a_length < b_length);
}

/* ------------------------------------------------------------------- tables */

typedef struct orders {
    berthi_header *header;
    berth_error *error;
    bool has_twins;
} orders;

static int
compare_names(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    orders *const o = user;
    const char *const text = o->header->text;
    const berthi_entry *const left = &o->header->entries[a];
    const berthi_entry *const right = &o->header->entries[b];
    const int order = berthi_name_compare_behind(
        berthi_entry_name(text, left), left->name_length, berthi_entry_name(text, right),
        right->name_length, shared);

    if (order == 0)
        o->has_twins = true;
    return order;
}

/* `shared` is of names, so 0 unless the extents are the same. */
static int
compare_extents(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    orders *const o = user;
    const berthi_entry *const left = &o->header->entries[a];
    const berthi_entry *const right = &o->header->entries[b];

    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    if (left->end != right->end)
        return left->end < right->end ? -1 : 1;
    return compare_names(user, a, b, shared);
}

static int
compare_keys(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    orders *const o = user;
    const int order = strcmp(o->header->text + a, o->header->text + b);

    (void)shared;
    if (order == 0)
        o->has_twins = true;
    return order;
}

/* Whether all extents rise: names need not be asked. */
static bool
is_in_order(const berthi_header *header)
{
    for (uint64_t i = 1; i < header->entry_count; i++)
        if (header->entries[i].begin <= header->entries[i - 1].begin)
            return false;
    return true;
}

static berth_status
sort_entries(orders *o)
{
    berthi_header *const header = o->header;
    const uint64_t count = header->entry_count;

    if (is_in_order(header))
        return BERTH_OK;
    if (!berthi_sort_arrange(header->context, header->by_name, count, compare_extents,
                             o))
        return berthi_fail_memory(o->error, "sorting the tensors of a header");
    berthi_sort_apply(header->entries, sizeof *header->entries, header->by_name, count);
    return BERTH_OK;
}

static bool
is_as_listed(const berthi_header *header, const berthi_name_list *list)
{
    if (list->count != header->entry_count)
        return false;
    for (uint64_t i = 0; i < list->count; i++) {
        const berthi_entry *const entry = &header->entries[i];
        const uint64_t bytes = entry->name_length + UINT64_C(1); /* no name contains NUL */

        if (bytes > list->text_bytes - list->names[i]
            || memcmp(list->text + list->names[i],
                      berthi_entry_name(header->text, entry), (size_t)bytes) != 0)
            return false;
    }
    return true;
}

berth_status
berthi_header_sort(berthi_header *header, const berthi_name_list *list, bool *out_has_twins,
                   berth_error *error)
{
    berth_context *const context = header->context;
    const uint64_t count = header->entry_count;
    orders o = { .header = header, .error = error };
    berth_status status;

    berthi_sort_number(header->by_name, count);
    status = sort_entries(&o);
    if (status != BERTH_OK)
        return status;
    header->is_as_listed = is_as_listed(header, list);
    if ((!header->is_as_listed
         && !berthi_sort_arrange(context, header->by_name, count, compare_names, &o))
        || !berthi_sort_arrange(context, header->pairs, header->pair_count,
                                compare_keys, &o))
        return berthi_fail_memory(error, "sorting the names of a header");
    *out_has_twins = o.has_twins;
    return BERTH_OK;
}
