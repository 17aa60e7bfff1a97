/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - the header's gate: length, text, and the tables of tensors
 * whose names, shapes and extents have been checked together.
 */
#include "loader/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/utf8.h"
#include "loader/safetensors_draft.h"
#include "loader/safetensors_order.h"
#include "loader/varint.h"

#define BOTH_NUMBERS (BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL)
#define BOTH_SIZES (BOTH_NUMBERS | BERTH_HAS_BYTES)

/* ------------------------------------------------------------ length prefix */

static uint64_t
load_length(const uint8_t *prefix)
{
    uint64_t length = 0;

    for (unsigned i = 0; i < BERTHI_HEADER_PREFIX; i++)
        length |= (uint64_t)prefix[i] << 8 * i;
    return length;
}

berth_status
berthi_header_length(const uint8_t *prefix, uint64_t file_bytes, const char *file,
                     uint64_t *out_bytes, berth_error *error)
{
    berthi_about about = { .file = file, .has = BOTH_SIZES };

    *out_bytes = 0;
    about.expected = BERTHI_HEADER_PREFIX;
    about.actual = file_bytes;
    if (file_bytes < BERTHI_HEADER_PREFIX)
        return berthi_fail(error, BERTH_REASON_HEADER_TOO_SMALL, &about,
                           "the file is shorter than the length that it begins with");
    about.expected = BERTHI_HEADER_LIMIT;
    about.actual = load_length(prefix);
    if (about.actual > BERTHI_HEADER_LIMIT)
        return berthi_fail(error, BERTH_REASON_HEADER_TOO_LARGE, &about,
                           "the header's length is above the format's limit");
    about.expected = about.actual;
    about.actual = file_bytes - BERTHI_HEADER_PREFIX;
    if (about.expected > about.actual)
        return berthi_fail(error, BERTH_REASON_HEADER_LENGTH, &about,
                           "the file ends inside its header");
    *out_bytes = about.expected;
    return BERTH_OK;
}

/* ---------------------------------------------------------------- accessors */

static const char *
entry_dims(const char *text, const berthi_entry *entry)
{
    return berthi_entry_name(text, entry) + entry->name_length + 1;
}

void
berthi_entry_shape(const char *text, const berthi_entry *entry, uint64_t *shape)
{
    const char *at = entry_dims(text, entry);

    for (uint32_t i = 0; i < entry->rank; i++)
        at = berthi_varint_read(at, &shape[i]);
}

/* Left to right, as the format says: a 0 behind an overflow does not help. */
static bool
can_count_elements(const char *text, const berthi_entry *entry, uint64_t *elements)
{
    const char *at = entry_dims(text, entry);
    uint64_t dim;

    *elements = 1;
    for (uint32_t i = 0; i < entry->rank; i++) {
        at = berthi_varint_read(at, &dim);
        if (!berthi_can_mul(*elements, dim, elements))
            return false;
    }
    return true;
}

uint64_t
berthi_entry_elements(const char *text, const berthi_entry *entry)
{
    uint64_t elements;

    return can_count_elements(text, entry, &elements) ? elements : 0;
}

berthi_pair
berthi_header_pair(const berthi_header *header, uint64_t number)
{
    berthi_pair pair;

    pair.key = header->text + header->pairs[number];
    pair.key_length = strlen(pair.key); /* no key contains NUL */
    pair.value = berthi_varint_read(pair.key + pair.key_length + 1, &pair.value_length);
    return pair;
}

void
berthi_header_fini(berthi_header *header)
{
    berth_context *const context = header->context;

    if (context == NULL)
        return;
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, header->text, header->text_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, header->entries,
                       header->entry_count * sizeof *header->entries);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, header->by_name,
                       header->entry_count * sizeof *header->by_name);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, header->pairs,
                       header->pair_count * sizeof *header->pairs);
    memset(header, 0, sizeof *header);
}

/* ------------------------------------------------------------------- tables */

/* A parse under way: what every step needs. */
typedef struct parser {
    const char *file;
    berthi_header *header;
    berth_error *error;
    bool has_twins; /* two names or keys are the same */
} parser;

static const char *
fill_entry(berthi_header *header, berthi_entry *entry, const char *at, uint64_t *text)
{
    const berthi_record record = berthi_draft_record(&at);
    const uint64_t bytes = record.name_length + UINT64_C(1) + record.dims_bytes;

    *entry = (berthi_entry){ .text = *text, .begin = record.begin, .end = record.end,
                             .name_length = record.name_length, .dtype = record.dtype,
                             .rank = record.rank };
    memcpy(header->text + *text, at, (size_t)bytes);
    *text += bytes;
    return at + bytes;
}

static void
fill_entries(berthi_header *header, const berthi_draft *draft)
{
    const char *const begin = draft->scan.text;
    const char *at = begin;
    uint64_t text = draft->pair_end - draft->pair_begin;

    for (uint64_t i = 0; i < draft->entry_count; i++) {
        if (at == begin + draft->pair_begin)
            at = begin + draft->pair_end;
        at = fill_entry(header, &header->entries[i], at, &text);
    }
}

/* The records of the pairs go to the front of the text as they are. */
static void
fill_pairs(berthi_header *header, const berthi_draft *draft)
{
    uint64_t at = 0;

    memcpy(header->text, draft->scan.text + draft->pair_begin,
           (size_t)(draft->pair_end - draft->pair_begin));
    for (uint64_t i = 0; i < draft->pair_count; i++) {
        berthi_pair pair;

        header->pairs[i] = (uint32_t)at;
        pair = berthi_header_pair(header, i);
        at = (uint64_t)(pair.value + pair.value_length + 1 - header->text);
    }
}

static berth_status
build_tables(parser *p, const berthi_draft *draft)
{
    berthi_header *const header = p->header;
    berth_context *const context = header->context;

    header->entry_count = draft->entry_count;
    header->pair_count = draft->pair_count;
    header->text_bytes = draft->entry_text + (draft->pair_end - draft->pair_begin);
    header->has_leading_space = draft->has_leading_space;
    header->has_other_trailing = draft->has_other_trailing;
    header->has_unknown_member = draft->has_unknown_member;
    header->has_null_metadata = draft->has_null_metadata;
    header->is_out_of_order = draft->is_out_of_order;
    header->text = berthi_memory_alloc(context, BERTHI_PURPOSE_TENSORS, header->text_bytes);
    header->entries = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                          header->entry_count, sizeof *header->entries);
    header->by_name = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                          header->entry_count, sizeof *header->by_name);
    header->pairs = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS,
                                        header->pair_count, sizeof *header->pairs);
    if (header->text == NULL || header->entries == NULL || header->by_name == NULL
        || header->pairs == NULL)
        return berthi_fail_memory(p->error, "the tables of a header");
    fill_pairs(header, draft);
    fill_entries(header, draft);
    return BERTH_OK;
}

/* ------------------------------------------------------------------- checks */

static berth_status
blame(const parser *p, berth_reason reason, const berthi_about *about, const char *what)
{
    return berthi_blamed_fail(&p->header->blamed, reason, about, what, p->error);
}

static bool
are_twins(const berthi_header *header, uint32_t a, uint32_t b)
{
    const berthi_entry *const left = &header->entries[a];
    const berthi_entry *const right = &header->entries[b];

    return berthi_name_compare(berthi_entry_name(header->text, left), left->name_length,
                               berthi_entry_name(header->text, right), right->name_length)
           == 0;
}

static berth_status
check_names(const parser *p)
{
    const berthi_header *const header = p->header;
    berthi_about about = { .file = p->file };

    if (!p->has_twins)
        return BERTH_OK;
    for (uint64_t i = 1; i < header->entry_count; i++)
        if (are_twins(header, header->by_name[i - 1], header->by_name[i])) {
            const berthi_entry *const entry = &header->entries[header->by_name[i]];

            about.tensor = berthi_entry_name(header->text, entry);
            about.tensor_length = entry->name_length;
            return blame(p, BERTH_REASON_DUPLICATE, &about,
                         "the header has this tensor more than once");
        }
    for (uint64_t i = 1; i < header->pair_count; i++)
        if (strcmp(header->text + header->pairs[i - 1], header->text + header->pairs[i])
            == 0) {
            const berthi_pair pair = berthi_header_pair(header, i);

            about.tensor = pair.key;
            about.tensor_length = (size_t)pair.key_length;
            return blame(p, BERTH_REASON_DUPLICATE, &about,
                         "__metadata__ has this key more than once");
        }
    return BERTH_OK;
}

/* The first tensor that does not begin where the one before ended fails. */
static berth_status
check_extent(const parser *p, const berthi_entry *entry, uint64_t position)
{
    const char *const text = p->header->text;
    berthi_about about = { .file = p->file, .tensor = berthi_entry_name(text, entry),
                           .tensor_length = entry->name_length, .has = BOTH_NUMBERS };
    uint64_t bits;

    about.expected = position;
    about.actual = entry->begin;
    if (entry->begin != position)
        return blame(p, BERTH_REASON_OFFSET, &about,
                     entry->begin > position ? "no tensor covers the bytes before it"
                                             : "it overlaps the tensor before it");
    about.expected = entry->begin;
    about.actual = entry->end;
    if (entry->end < entry->begin)
        return blame(p, BERTH_REASON_OFFSET, &about, "it ends before it begins");
    about.has = 0;
    if (!can_count_elements(text, entry, &bits)
        || !berthi_can_mul(bits, berth_dtype_bits(entry->dtype), &bits))
        return blame(p, BERTH_REASON_OVERFLOW, &about,
                     "its size in bits does not fit 64 bits");
    about.has = BERTH_HAS_ACTUAL;
    about.actual = bits;
    if (bits % 8 != 0)
        return blame(p, BERTH_REASON_SUBBYTE, &about, "its bits do not fill whole bytes");
    about.has = BOTH_SIZES;
    about.expected = bits / 8;
    about.actual = entry->end - entry->begin;
    if (about.actual != about.expected)
        return blame(p, BERTH_REASON_SIZE_MISMATCH, &about,
                     "dtype and shape need another number of bytes");
    return BERTH_OK;
}

static berth_status
check_coverage(const parser *p, uint64_t needed, uint64_t data_bytes)
{
    const berthi_about about = { .file = p->file, .has = BOTH_SIZES,
                                 .expected = needed, .actual = data_bytes };

    if (data_bytes < needed)
        return berthi_fail(p->error, BERTH_REASON_COVERAGE, &about,
                           "the data section is %" PRIu64 " bytes short",
                           needed - data_bytes);
    if (data_bytes > needed)
        return berthi_fail(p->error, BERTH_REASON_COVERAGE, &about,
                           "the data section is %" PRIu64 " bytes too long",
                           data_bytes - needed);
    return BERTH_OK;
}

static berth_status
check_extents(const parser *p, uint64_t data_bytes)
{
    berthi_header *const header = p->header;
    uint64_t position = 0;

    for (uint64_t i = 0; i < header->entry_count; i++) {
        const berth_status status = check_extent(p, &header->entries[i], position);

        if (status != BERTH_OK)
            return status;
        position = header->entries[i].end;
    }
    header->tensor_bytes = position;
    return check_coverage(p, position, data_bytes);
}

/* ------------------------------------------------------------------ parsing */

static berth_status
refuse_json(const parser *p, const berthi_draft *draft)
{
    const berthi_about about = { .file = p->file, .tensor = draft->tensor.bytes,
                                 .tensor_length = (size_t)draft->tensor.length,
                                 .has = BERTH_HAS_POSITION,
                                 .position = BERTHI_HEADER_PREFIX + draft->scan.problem_at };

    return blame(p, BERTH_REASON_HEADER_JSON, &about, draft->scan.problem);
}

/* It may be of a later version of the format: named, and not called damage. */
static berth_status
blame_dtype(const parser *p, const berthi_draft *draft, const berthi_about *about)
{
    char message[BERTHI_SHOWN_CAPACITY + 32];

    snprintf(message, sizeof message, "an unknown dtype \"%s\"", draft->dtype_shown);
    return blame(p, BERTH_REASON_UNSUPPORTED, about, message);
}

/* What is JSON, but not for berth: names with U+0000, ranks that nobody has, dtypes. */
static berth_status
check_refusals(const parser *p, const berthi_draft *draft)
{
    const berthi_draft_refusal *const refusal = draft->name.is_set   ? &draft->name
                                          : draft->rank.is_set ? &draft->rank
                                                               : &draft->dtype;
    berthi_about about = { .file = p->file, .tensor = refusal->name,
                           .tensor_length = (size_t)refusal->name_length,
                           .has = BERTH_HAS_POSITION,
                           .position = BERTHI_HEADER_PREFIX + refusal->position };

    if (!refusal->is_set)
        return BERTH_OK;
    if (draft->name.is_set)
        return blame(p, BERTH_REASON_NAME, &about, "a name or key contains U+0000");
    if (!draft->rank.is_set)
        return blame_dtype(p, draft, &about);
    about.has |= BOTH_NUMBERS;
    about.expected = BERTHI_MAX_RANK;
    about.actual = refusal->actual;
    return blame(p, BERTH_REASON_RANK, &about, "it has too many dimensions");
}

static berth_status
read_draft(const parser *p, char *text, uint64_t bytes, berthi_draft *draft)
{
    const uint64_t well_formed =
        berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    const berthi_about about = { .file = p->file, .has = BERTH_HAS_POSITION,
                                 .position = BERTHI_HEADER_PREFIX + well_formed };

    if (well_formed < bytes)
        return berthi_fail(p->error, BERTH_REASON_HEADER_UTF8, &about,
                           "the header is not UTF-8");
    if (!berthi_draft_can_read(draft, text, bytes))
        return refuse_json(p, draft);
    return check_refusals(p, draft);
}

/* Gives up the tables. */
static void
abandon(berthi_header *header, char *text)
{
    const berthi_blamed blamed = berthi_blamed_move(header->blamed, text);

    berthi_header_fini(header);
    header->blamed = blamed;
}

berth_status
berthi_header_parse(berth_context *context, char *text, uint64_t bytes,
                    uint64_t data_bytes, const char *file, berthi_header *out,
                    berth_error *error)
{
    const berthi_name_list none = { .count = 0 };

    return berthi_header_parse_listed(context, text, bytes, data_bytes, &none, file, out,
                                      error);
}

berth_status
berthi_header_parse_listed(berth_context *context, char *text, uint64_t bytes,
                           uint64_t data_bytes, const berthi_name_list *list,
                           const char *file, berthi_header *out, berth_error *error)
{
    parser p = { .file = file, .header = out, .error = error };
    berthi_draft draft;
    berth_status status;

    memset(out, 0, sizeof *out);
    out->context = context;
    status = read_draft(&p, text, bytes, &draft);
    if (status == BERTH_OK)
        status = build_tables(&p, &draft);
    if (status == BERTH_OK)
        status = berthi_header_sort(out, list, &p.has_twins, error);
    if (status == BERTH_OK)
        status = check_names(&p);
    if (status == BERTH_OK)
        status = check_extents(&p, data_bytes);
    if (status != BERTH_OK)
        abandon(out, text);
    return status;
}
