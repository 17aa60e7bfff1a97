/* SPDX-License-Identifier: Apache-2.0 */
/* laid.c - a second opinion on layouts. */
#include "tests/laid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/safetensors.h"
#include "tests/header_case.h"

#define NAME_CAPACITY 4096

static void *
need(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

berth_status
laid_put(void *user, const char *bytes, uint64_t size, uint64_t offset,
         berth_error *error)
{
    laid_text *const t = user;

    if (++t->calls == t->fails_at)
        return berthi_fail(error, BERTH_REASON_DISK_FULL, NULL, "full");
    if (offset != t->length || size == 0)
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL, "not in sequence");
    if (t->length + size + 1 > t->capacity) {
        t->capacity = 2 * (t->length + size + 1);
        t->bytes = need(realloc(t->bytes, t->capacity));
    }
    memcpy(t->bytes + t->length, bytes, (size_t)size);
    t->length += size;
    t->bytes[t->length] = '\0';
    return BERTH_OK;
}

const char *
laid_name(const berthi_layout_tensor *tensor)
{
    static char names[4][NAME_CAPACITY];
    static unsigned turn;
    char *const name = names[turn++ % 4];

    snprintf(name, NAME_CAPACITY, "%.*s%s", (int)tensor->name_length, tensor->name,
             tensor->suffix != NULL ? tensor->suffix : "");
    return name;
}

/* -------------------------------------------------------------------- divisions */

/* The shard of every tensor, with lists as Python would have them. */
static uint32_t
divide_naively(const berthi_layout *layout, uint64_t limit, uint32_t *shard_of)
{
    const berthi_layout_tensor *const tensors = berthi_layout_tensors(layout);
    const uint32_t *const fill = berthi_layout_fill_order(layout);
    const uint64_t count = berthi_layout_tensor_count(layout);
    uint32_t *const current = need(malloc((count + 1) * sizeof *current));
    uint64_t current_count = 0;
    uint64_t current_size = 0;
    uint32_t shards = 0;

    for (uint64_t i = 0; i <= count; i++) {
        const uint64_t size = i < count ? tensors[fill[i]].bytes : 0;

        if (i < count && size > limit) {
            shard_of[fill[i]] = shards++;
            continue;
        }
        if (current_count > 0 && (i == count || current_size + size > limit)) {
            for (uint64_t j = 0; j < current_count; j++)
                shard_of[current[j]] = shards;
            shards++;
            current_count = 0;
            current_size = 0;
        }
        current[current_count++] = i < count ? fill[i] : 0;
        current_size += size;
    }
    free(current);
    return shards > 0 ? shards : 1;
}

static const char *
shard_problem(const berthi_layout *layout, uint32_t shard, const uint32_t *shard_of,
              uint8_t *is_seen)
{
    const berthi_layout_tensor *const tensors = berthi_layout_tensors(layout);
    const berthi_layout_shard s = berthi_layout_shard_at(layout, shard);
    uint64_t offset = 0;

    for (uint32_t i = 0; i < s.tensor_count; i++) {
        const uint32_t number = s.tensors[i];
        const berthi_layout_tensor *const tensor = &tensors[number];

        if (is_seen[number]++ != 0)
            return "a tensor has two places";
        if (tensor->shard != shard || tensor->place != i)
            return "a tensor does not know its place";
        if (shard_of[number] != shard)
            return "a tensor lies in another shard";
        if (tensor->offset != offset)
            return "offsets are not dense";
        offset += tensor->bytes;
        if (i > 0) {
            const berthi_layout_tensor *const before = &tensors[s.tensors[i - 1]];

            if (before->dtype > tensor->dtype
                || (before->dtype == tensor->dtype
                    && strcmp(laid_name(before), laid_name(tensor)) >= 0))
                return "tensors are not in order";
        }
    }
    return offset == s.payload_bytes ? NULL : "the payload has another size";
}

const char *
laid_problem(const berthi_layout *layout, uint64_t max_shard_bytes)
{
    const uint64_t count = berthi_layout_tensor_count(layout);
    const uint64_t limit = max_shard_bytes > 0 ? max_shard_bytes : UINT64_MAX;
    uint32_t *const shard_of = need(calloc(count + 1, sizeof *shard_of));
    uint8_t *const is_seen = need(calloc(count + 1, 1));
    const uint32_t shards = divide_naively(layout, limit, shard_of);
    const char *problem = NULL;
    uint64_t total = 0;

    if (shards != berthi_layout_shard_count(layout))
        problem = "another number of shards";
    for (uint32_t i = 0; i < shards && problem == NULL; i++) {
        problem = shard_problem(layout, i, shard_of, is_seen);
        total += berthi_layout_shard_at(layout, i).payload_bytes;
    }
    for (uint64_t i = 0; i < count && problem == NULL; i++)
        if (is_seen[i] != 1)
            problem = "a tensor has no place";
    if (problem == NULL && total != berthi_layout_total_bytes(layout))
        problem = "the total is another";
    free(shard_of);
    free(is_seen);
    return problem;
}

/* ---------------------------------------------------------------------- headers */

static const char *
entry_problem(const berthi_header *header, const berthi_entry *entry,
              const berthi_layout_tensor *tensor)
{
    uint64_t shape[BERTHI_MAX_RANK];
    const uint32_t rank = tensor->shape != NULL ? tensor->rank : 1;
    const uint64_t *const expected =
        tensor->shape != NULL ? tensor->shape : &tensor->bytes;

    berthi_entry_shape(header->text, entry, shape);
    if (strcmp(berthi_entry_name(header->text, entry), laid_name(tensor)) != 0)
        return "an entry has another name";
    if (entry->dtype != tensor->dtype || entry->rank != rank
        || (rank > 0 && memcmp(shape, expected, rank * sizeof shape[0]) != 0))
        return "an entry has another shape";
    if (entry->begin != tensor->offset || entry->end != tensor->offset + tensor->bytes)
        return "an entry lies elsewhere";
    return NULL;
}

static const char *
pairs_problem(const berthi_header *header, const berthi_layout_options *options)
{
    if (header->pair_count != (options->pairs != NULL ? options->pair_count : 0))
        return "another number of pairs";
    for (uint32_t i = 0; i < header->pair_count; i++) {
        const berthi_pair pair = berthi_header_pair(header, i);

        if (strcmp(pair.key, options->pairs[i].key) != 0
            || strcmp(pair.value, options->pairs[i].value) != 0)
            return "another pair";
    }
    return NULL;
}

static const char *
text_problem(const laid_text *text, const berthi_layout_shard *shard)
{
    const uint64_t header_bytes = text->length - 8;
    const char *const last = strrchr(text->bytes + 8, '}');

    if (text->length < 16 || header_bytes % 8 != 0 || header_bytes != shard->header_bytes)
        return "the header has another length";
    for (unsigned i = 0; i < 8; i++)
        if ((unsigned char)text->bytes[i] != (header_bytes >> 8 * i & 0xFF))
            return "the length in front is another";
    if (text->bytes[8] != '{' || last == NULL
        || text->bytes + text->length - (last + 1) > 7
        || strspn(last + 1, " ") != (size_t)(text->bytes + text->length - (last + 1)))
        return "the padding is wrong";
    return NULL;
}

static const char *
parsed_problem(berth_context *context, const berthi_layout *layout,
               const berthi_layout_shard *shard, laid_text *text,
               const berthi_layout_options *options)
{
    const berthi_layout_tensor *const tensors = berthi_layout_tensors(layout);
    const char *problem;
    berthi_header header;

    if (berthi_header_parse(context, text->bytes + 8, text->length - 8,
                            shard->payload_bytes, "f", &header, NULL)
        != BERTH_OK)
        return "the parser refuses the header";
    problem = header_case_table_problem(&header, shard->payload_bytes);
    if (problem == NULL)
        problem = pairs_problem(&header, options);
    if (problem == NULL && header.entry_count != shard->tensor_count)
        problem = "another number of entries";
    for (uint64_t i = 0; problem == NULL && i < header.entry_count; i++) {
        /* The parser puts tensors without bytes in order of names. */
        const berthi_entry *const entry = &header.entries[i];
        const berthi_layout_tensor *tensor = &tensors[shard->tensors[i]];

        for (uint32_t j = 0; entry->begin == entry->end && j < shard->tensor_count; j++)
            if (strcmp(laid_name(&tensors[shard->tensors[j]]),
                       berthi_entry_name(header.text, entry))
                == 0)
                tensor = &tensors[shard->tensors[j]];
        problem = entry_problem(&header, entry, tensor);
    }
    if (problem == NULL
        && (header.has_leading_space || header.has_other_trailing
            || header.has_unknown_member || header.has_null_metadata))
        problem = "strict mode would object";
    berthi_header_fini(&header);
    return problem;
}

const char *
laid_header_problem(berth_context *context, const berthi_layout *layout, uint32_t shard,
                    const berthi_layout_options *options)
{
    const berthi_layout_shard s = berthi_layout_shard_at(layout, shard);
    laid_text text = { 0 };
    const char *problem;

    if (berthi_layout_write_header(layout, shard, laid_put, &text, NULL) != BERTH_OK)
        return "the header is not written";
    problem = text_problem(&text, &s);
    if (problem == NULL)
        problem = parsed_problem(context, layout, &s, &text, options);
    free(text.bytes);
    return problem;
}
