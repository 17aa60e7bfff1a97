/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_index.c - the text of an index
 *
 * An accepted one has unique names in order and shards that keep the path
 * rule; printed and parsed again it gives the same tables.
 */
#include <string.h>

#include "loader/index.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"
#include "tests/header_case.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static berth_status
parse(berth_context *context, const char *text, size_t length, berthi_index *out)
{
    char *const copy = malloc(length > 0 ? length : 1);
    berth_status status;
    berth_error error;

    REQUIRE(copy != NULL);
    if (length > 0)
        memcpy(copy, text, length);
    status = berthi_index_parse(context, copy, length, "i", out, &error);
    REQUIRE(status == BERTH_OK
            || header_case_is_shown(copy, length, out->blamed.name, out->blamed.length, &error));
    free(copy);
    REQUIRE(status == BERTH_OK
            || (error.status == status && error.reason != 0 && error.position <= length));
    return status;
}

static void
check_tables(const berthi_index *index)
{
    uint8_t *const used = calloc(index->shard_count, 1);
    uint32_t used_count = 0;

    REQUIRE(used != NULL && index->entry_count > 0);
    for (uint32_t i = 0; i < index->shard_count; i++) {
        const char *const name = index->text + index->shards[i];

        REQUIRE(berthi_shard_name_problem(name, strlen(name)) == NULL);
        REQUIRE(i == 0 || strcmp(index->text + index->shards[i - 1], name) < 0);
    }
    for (uint64_t i = 0; i < index->entry_count; i++) {
        const berthi_index_entry *const entry = &index->entries[i];

        REQUIRE(entry->name + entry->name_length < index->text_bytes);
        REQUIRE(strlen(index->text + entry->name) == entry->name_length);
        REQUIRE(i == 0 || strcmp(index->text + entry[-1].name, index->text + entry->name) < 0);
        REQUIRE(entry->shard < index->shard_count);
        used_count += used[entry->shard] == 0;
        used[entry->shard] = 1;
    }
    REQUIRE(used_count == index->shard_count);
    free(used);
}

static void
print_index(json_text *t, const berthi_index *index)
{
    json_put_text(t, "{");
    if (index->has_total_size) {
        json_put_text(t, "\"metadata\":{\"total_size\":");
        json_put_unsigned(t, index->total_size);
        json_put_text(t, "},");
    }
    json_put_text(t, "\"weight_map\":{");
    for (uint64_t i = 0; i < index->entry_count; i++) {
        const char *const shard = index->text + index->shards[index->entries[i].shard];

        json_put_text(t, i > 0 ? "," : "");
        json_put_string(t, index->text + index->entries[i].name,
                        index->entries[i].name_length);
        json_put_text(t, ":");
        json_put_string(t, shard, strlen(shard));
    }
    json_put_text(t, "}}");
}

static void
check_same(const berthi_index *a, const berthi_index *b)
{
    REQUIRE(a->entry_count == b->entry_count && a->shard_count == b->shard_count
            && a->text_bytes == b->text_bytes && a->has_total_size == b->has_total_size
            && a->total_size == b->total_size);
    for (uint32_t i = 0; i < a->shard_count; i++)
        REQUIRE(strcmp(a->text + a->shards[i], b->text + b->shards[i]) == 0);
    for (uint64_t i = 0; i < a->entry_count; i++)
        REQUIRE(a->entries[i].shard == b->entries[i].shard
                && strcmp(a->text + a->entries[i].name, b->text + b->entries[i].name) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    berth_memory_summary memory;
    berth_context *context;
    berthi_index index;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (parse(context, (const char *)data, size, &index) == BERTH_OK) {
        json_text text = { 0 };
        berthi_index again;

        check_tables(&index);
        print_index(&text, &index);
        REQUIRE(parse(context, text.bytes, text.length, &again) == BERTH_OK);
        check_same(&index, &again);
        berthi_index_fini(&again);
        free(text.bytes);
    }
    berthi_index_fini(&index);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
