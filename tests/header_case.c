/* SPDX-License-Identifier: Apache-2.0 */
/* header_case.c - headers, their verdicts, and large headers made; see header_case.h. */
#include "tests/header_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"

#define FILE_NAME "model.safetensors"

/* ----------------------------------------------------------------- verdicts */

static char *
copy_exactly(const char *bytes, uint64_t length)
{
    char *const copy = malloc(length > 0 ? length : 1);

    if (copy == NULL)
        exit(1);
    memcpy(copy, bytes, length);
    return copy;
}

bool
header_case_is_shown(const char *text, uint64_t bytes, const char *blamed,
                     uint64_t blamed_length, const berth_error *error)
{
    const berthi_about about = { .tensor = blamed, .tensor_length = (size_t)blamed_length };
    berth_error shown;

    berthi_fail(&shown, BERTH_REASON_NONE, &about, "%s", "");
    return strcmp(shown.tensor, error->tensor) == 0
           && (blamed == NULL || (blamed >= text && blamed_length <= bytes
                                  && blamed + blamed_length <= text + bytes));
}

berth_status
header_case_parse(berth_context *context, const char *bytes, uint64_t length,
                  berthi_header *out, berth_error *error)
{
    const uint64_t given = length < 8 ? length : 8;
    uint8_t *const prefix = (uint8_t *)copy_exactly(bytes, given);
    uint64_t header_bytes = 77;
    berth_status status;
    char *text;

    memset(out, 0, sizeof *out);
    status = berthi_header_length(prefix, length, FILE_NAME, &header_bytes, error);
    free(prefix);
    if (status != BERTH_OK) {
        CHECK_EQ(header_bytes, 0u);
        return status;
    }
    text = copy_exactly(bytes + 8, header_bytes);
    status = berthi_header_parse(context, text, header_bytes, length - 8 - header_bytes,
                                 FILE_NAME, out, error);
    if (status != BERTH_OK) {
        CHECK(header_case_is_shown(text, header_bytes, out->blamed.name, out->blamed.length,
                                   error));
        out->blamed = (berthi_blamed){ NULL, 0 };
    }
    /* Nothing in the tables may refer to the text. */
    memset(text, 0xEE, header_bytes);
    free(text);
    return status;
}

static const char *
entry_problem(const berthi_header *header, const berthi_entry *entry, uint64_t position)
{
    uint64_t shape[BERTHI_MAX_RANK];
    uint64_t elements = 1;

    if (entry->begin != position || entry->end < entry->begin)
        return "not dense";
    if (entry->dtype >= BERTH_DTYPE_COUNT || entry->rank > BERTHI_MAX_RANK)
        return "dtype or rank";
    if (entry->shard != 0 || entry->flags != 0 || entry->owner != 0)
        return "owner's fields are not zero";
    if (entry->text + entry->name_length + 1 + entry->rank > header->text_bytes
        || strlen(berthi_entry_name(header->text, entry)) != entry->name_length)
        return "name";
    berthi_entry_shape(header->text, entry, shape);
    for (uint32_t i = 0; i < entry->rank; i++)
        elements *= shape[i];
    if (elements != berthi_entry_elements(header->text, entry)
        || elements * berth_dtype_bits(entry->dtype) != (entry->end - entry->begin) * 8)
        return "size";
    return NULL;
}

static int
compare_entries(const berthi_header *header, uint32_t a, uint32_t b)
{
    const berthi_entry *const left = &header->entries[a];
    const berthi_entry *const right = &header->entries[b];

    return strcmp(berthi_entry_name(header->text, left),
                  berthi_entry_name(header->text, right));
}

static const char *
pair_problem(const berthi_header *header)
{
    for (uint64_t i = 0; i < header->pair_count; i++) {
        const berthi_pair pair = berthi_header_pair(header, i);

        if (pair.key < header->text || pair.value < pair.key + pair.key_length + 1
            || pair.value + pair.value_length >= header->text + header->text_bytes
            || pair.key[pair.key_length] != '\0' || pair.value[pair.value_length] != '\0')
            return "pair";
        if (i > 0 && strcmp(berthi_header_pair(header, i - 1).key, pair.key) >= 0)
            return "order of pairs";
    }
    return NULL;
}

const char *
header_case_table_problem(const berthi_header *header, uint64_t data_bytes)
{
    uint64_t position = 0;

    for (uint64_t i = 0; i < header->entry_count; i++) {
        const berthi_entry *const entry = &header->entries[i];
        const char *const problem = entry_problem(header, entry, position);

        if (problem != NULL)
            return problem;
        if (i > 0 && entry->begin == entry[-1].begin && entry->end == entry[-1].end
            && compare_entries(header, (uint32_t)i - 1, (uint32_t)i) >= 0)
            return "order of tensors at one place";
        if (header->by_name[i] >= header->entry_count)
            return "by_name";
        if (i > 0 && compare_entries(header, header->by_name[i - 1], header->by_name[i]) >= 0)
            return "order of names";
        position = entry->end;
    }
    if (position != data_bytes || header->tensor_bytes != data_bytes)
        return "bytes of tensors";
    return pair_problem(header);
}

static bool
is_zero(const void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (((const char *)bytes)[i] != 0)
            return false;
    return true;
}

static void
check_refused(berth_status status, const berthi_header *header, const berth_error *error,
              berth_reason reason)
{
    CHECK_EQ(status, berthi_reason_status((int32_t)reason));
    CHECK_EQ(error->status, status);
    CHECK_STR(error->file, FILE_NAME);
    CHECK_NE(error->message[0], '\0');
    CHECK(is_zero(header, sizeof *header));
}

void
header_case_check_file(const char *id, const char *bytes, uint64_t length,
                       berth_reason reason)
{
    berth_memory_summary memory;
    berth_context *context;
    berthi_header header;
    berth_error error;
    berth_status status;

    berthi_error_clear(&error);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    status = header_case_parse(context, bytes, length, &header, &error);
    if (!CHECK_EQ(error.reason, (int32_t)reason))
        T_NOTE("%s: %s at %" PRIu64, id, error.message, error.position);
    if (status != BERTH_OK) {
        check_refused(status, &header, &error, reason);
    } else {
        uint64_t header_bytes = 0;

        CHECK_EQ(berthi_header_length((const uint8_t *)bytes, length, "", &header_bytes,
                                      NULL), BERTH_OK);
        if (!CHECK_STR(header_case_table_problem(&header, length - 8 - header_bytes), NULL))
            T_NOTE("%s", id);
    }
    berthi_header_fini(&header);
    CHECK(is_zero(&header, sizeof header));
    berthi_header_fini(&header);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0u);
    berth_context_destroy(context);
}

void
header_case_check(const char *id, const char *header, uint64_t length,
                  uint64_t data_bytes, berth_reason reason)
{
    char *const bytes = calloc(1, 8 + length + data_bytes + 1);

    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (char)(unsigned char)(length >> 8 * i);
    memcpy(bytes + 8, header, length);
    header_case_check_file(id, bytes, 8 + length + data_bytes, reason);
    free(bytes);
}

void
header_case_check_entry(const char *id, const char *name, uint64_t name_length,
                        const char *dtype, const char *shape, const char *offsets,
                        uint64_t data_bytes, berth_reason reason)
{
    char *const text = malloc(name_length + strlen(shape) + 200);
    char *at = text;

    at += sprintf(at, "{\"");
    memcpy(at, name, name_length);
    at += name_length;
    at += sprintf(at, "\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":%s}}", dtype, shape,
                  offsets);
    header_case_check(id, text, (uint64_t)(at - text), data_bytes, reason);
    free(text);
}

/* -------------------------------------------------------------------- loads */

#define LOAD_LIMIT UINT64_C(100000000)
#define USUAL "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"

const char *
header_load_name(header_load load)
{
    static const char *const names[HEADER_LOAD_COUNT] = {
        "X01", "X02", "R1", "R2", "R3", "R4", "R6", "R7", "L09", "M22", "shuffled", "pairs",
    };

    return names[load];
}

static char *
put_entry(char *at, uint64_t number, const char *name, uint64_t bytes, uint64_t begin)
{
    return at + sprintf(at,
                        "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64
                        "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                        number == 0 ? "{" : ",", name, bytes, begin, begin + bytes);
}

static char *
put_entries(char *at, uint64_t count, uint64_t bytes, bool is_one_name)
{
    for (uint64_t i = 0; i < count; i++) {
        char name[32] = "";

        if (!is_one_name)
            sprintf(name, "%" PRIu64, i);
        at = put_entry(at, i, name, bytes, i * bytes);
    }
    return at + sprintf(at, "}");
}

/* Names and extents run through all numbers, each with another stride. */
static char *
put_shuffled(char *at, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        char name[64];

        sprintf(name, "model.layers.%" PRIu64, i * 7699979 % count);
        at = put_entry(at, i, name, 1, i * 769999 % count);
    }
    return at + sprintf(at, "}");
}

static char *
put_repeated(char *at, const char *before, const char *piece, uint64_t count,
             const char *after)
{
    const size_t length = strlen(piece);

    at += sprintf(at, "%s", before);
    for (uint64_t i = 0; i < count; i++, at += length)
        memcpy(at, piece, length);
    return at + sprintf(at, "%s", after);
}

static char *
put_pairs(char *at, uint64_t count, const char *format)
{
    at += sprintf(at, "{\"__metadata__\":{");
    for (uint64_t i = 0; i < count; i++) {
        *at = ',';
        at += i > 0;
        *at++ = '"';
        at += sprintf(at, format, (unsigned)i);
    }
    return at + sprintf(at, "}}");
}

static char *
put_load(header_load load, uint64_t divisor, char *at, uint64_t *data_bytes)
{
    *data_bytes = 8;
    switch (load) {
    case HEADER_LOAD_X01:
        *data_bytes = 200000 / divisor;
        return put_entries(at, 200000 / divisor, 1, false);
    case HEADER_LOAD_X02: *data_bytes = 0; return put_entries(at, 1200000 / divisor, 0, false);
    case HEADER_LOAD_R1:
        return put_repeated(at, USUAL ",\"x\":[0", ",0", 49900000 / divisor, "]}}");
    case HEADER_LOAD_R2:
        return put_repeated(at, USUAL ",\"x\":[0", ",[0]", 24900000 / divisor, "]}}");
    case HEADER_LOAD_R3:
        return put_repeated(at, "{\"a\":{\"data_offsets\":[0,8],\"dtype\":\"F64\",\"shape\":[1",
                            ",1", 49900000 / divisor, "]}}");
    case HEADER_LOAD_R4: *data_bytes = 0; return put_entries(at, 1720000 / divisor, 0, false);
    case HEADER_LOAD_R6: *data_bytes = 0; return put_entries(at, 1850000 / divisor, 0, true);
    case HEADER_LOAD_R7: *data_bytes = 0; return put_pairs(at, 5000000 / divisor, "k%u\":\"v\"");
    case HEADER_LOAD_L09:
        return put_repeated(at, USUAL "}}", " ", LOAD_LIMIT / divisor - sizeof USUAL - 1, "");
    case HEADER_LOAD_M22:
        *data_bytes = 0;
        return put_repeated(at, "{\"__metadata__\":{\"k\":\"", "v", 50000000 / divisor, "\"}}");
    case HEADER_LOAD_SHUFFLED:
        *data_bytes = 1150000 / divisor;
        return put_shuffled(at, 1150000 / divisor);
    case HEADER_LOAD_PAIRS:
        *data_bytes = 0;
        return put_pairs(at, 8200000 / divisor, "%06x\":\"\"");
    case HEADER_LOAD_COUNT: break;
    }
    return at;
}

char *
header_load_create(header_load load, uint64_t divisor, uint64_t *out_length,
                   uint64_t *out_data_bytes)
{
    char *const text = malloc(LOAD_LIMIT + 4096);

    if (text == NULL)
        exit(1);
    *out_length = (uint64_t)(put_load(load, divisor, text, out_data_bytes) - text);
    return text;
}
