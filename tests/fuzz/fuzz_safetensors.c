/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c - the text of a header
 *
 * Where only the size of the data section is wrong, it is corrected, so that
 * accepted headers are met often. An accepted one is dense, ordered and unique;
 * printed in canonical form and parsed again it gives the same tables.
 */
#include <string.h>

#include "loader/safetensors.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"
#include "tests/header_case.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses a copy of exactly this size. */
static berth_status
parse(berth_context *context, const char *text, size_t length, uint64_t data_bytes,
      berthi_header *out, berth_error *error)
{
    char *const copy = malloc(length > 0 ? length : 1);
    berth_status status;

    REQUIRE(copy != NULL);
    if (length > 0)
        memcpy(copy, text, length);
    status = berthi_header_parse(context, copy, length, data_bytes, "f", out, error);
    REQUIRE(status == BERTH_OK
            || header_case_is_shown(copy, length, out->blamed.name, out->blamed.length, error));
    free(copy);
    REQUIRE(status == BERTH_OK || (error->status == status && error->reason != 0));
    return status;
}

static void
print_entry(json_text *t, const berthi_header *header, const berthi_entry *entry)
{
    uint64_t shape[BERTHI_MAX_RANK];

    berthi_entry_shape(header->text, entry, shape);
    json_put_string(t, berthi_entry_name(header->text, entry), entry->name_length);
    json_put_text(t, ":{\"dtype\":\"");
    json_put_text(t, berth_dtype_name(entry->dtype));
    json_put_text(t, "\",\"shape\":[");
    for (uint32_t i = 0; i < entry->rank; i++) {
        json_put_text(t, i > 0 ? "," : "");
        json_put_unsigned(t, shape[i]);
    }
    json_put_text(t, "],\"data_offsets\":[");
    json_put_unsigned(t, entry->begin);
    json_put_text(t, ",");
    json_put_unsigned(t, entry->end);
    json_put_text(t, "]}");
}

static void
print_header(json_text *t, const berthi_header *header)
{
    json_put_text(t, "{");
    for (uint64_t i = 0; i < header->pair_count; i++) {
        const berthi_pair pair = berthi_header_pair(header, i);

        json_put_text(t, i > 0 ? "," : "\"__metadata__\":{");
        json_put_string(t, pair.key, pair.key_length);
        json_put_text(t, ":");
        json_put_string(t, pair.value, pair.value_length);
    }
    json_put_text(t, header->pair_count > 0 ? "}" : "");
    for (uint64_t i = 0; i < header->entry_count; i++) {
        json_put_text(t, i > 0 || header->pair_count > 0 ? "," : "");
        print_entry(t, header, &header->entries[i]);
    }
    json_put_text(t, "}");
}

static void
check_same(const berthi_header *a, const berthi_header *b)
{
    REQUIRE(a->entry_count == b->entry_count && a->pair_count == b->pair_count
            && a->text_bytes == b->text_bytes && a->tensor_bytes == b->tensor_bytes);
    for (uint64_t i = 0; i < a->entry_count; i++) {
        const berthi_entry *const x = &a->entries[i];
        const berthi_entry *const y = &b->entries[i];
        uint64_t shapes[2][BERTHI_MAX_RANK];

        berthi_entry_shape(a->text, x, shapes[0]);
        berthi_entry_shape(b->text, y, shapes[1]);
        REQUIRE(x->begin == y->begin && x->end == y->end && x->dtype == y->dtype
                && x->rank == y->rank && a->by_name[i] == b->by_name[i]
                && strcmp(berthi_entry_name(a->text, x), berthi_entry_name(b->text, y)) == 0
                && memcmp(shapes[0], shapes[1], x->rank * sizeof shapes[0][0]) == 0);
    }
    for (uint64_t i = 0; i < a->pair_count; i++) {
        const berthi_pair x = berthi_header_pair(a, i);
        const berthi_pair y = berthi_header_pair(b, i);

        REQUIRE(strcmp(x.key, y.key) == 0 && x.value_length == y.value_length
                && memcmp(x.value, y.value, x.value_length) == 0);
    }
    REQUIRE(!b->has_leading_space && !b->has_other_trailing && !b->has_unknown_member
            && !b->has_null_metadata && !b->is_out_of_order);
}

static void
check_accepted(berth_context *context, const berthi_header *header, uint64_t data_bytes)
{
    json_text text = { 0 };
    berthi_header again;
    berth_error error;

    REQUIRE(header_case_table_problem(header, data_bytes) == NULL);
    print_header(&text, header);
    REQUIRE(parse(context, text.bytes, text.length, data_bytes, &again, &error) == BERTH_OK);
    check_same(header, &again);
    berthi_header_fini(&again);
    free(text.bytes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t data_bytes = 8;
    berth_memory_summary memory;
    berth_context *context;
    berthi_header header;
    berth_error error;
    uint64_t length;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (berthi_header_length(data, size, "f", &length, &error) == BERTH_OK)
        REQUIRE(length <= size - BERTHI_HEADER_PREFIX);
    if (parse(context, (const char *)data, size, data_bytes, &header, &error) != BERTH_OK
        && error.reason == BERTH_REASON_COVERAGE) {
        data_bytes = error.expected;
        REQUIRE(parse(context, (const char *)data, size, data_bytes, &header, &error)
                == BERTH_OK);
    }
    if (header.context != NULL)
        check_accepted(context, &header, data_bytes);
    berthi_header_fini(&header);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0 && memory.peak_bytes <= 4 * size + 4096);
    berth_context_destroy(context);
    return 0;
}
