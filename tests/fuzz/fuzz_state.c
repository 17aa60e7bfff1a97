/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_state.c - any bytes as a state blob. What is accepted holds its
 * invariants, and printed as upstream would it parses to the same state.
 */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "quant/state.h"

#define REQUIRE(condition) \
    do { \
        if (!(condition)) \
            __builtin_trap(); \
    } while (0)

#define CAPACITY 4096

static const berthi_about place = { .file = "f", .tensor = "t", .tensor_length = 1 };

static size_t
print_offset(const berthi_state *s, char *text, size_t capacity)
{
    if (isnan(s->offset))
        return (size_t)snprintf(text, capacity, "NaN");
    if (isinf(s->offset))
        return (size_t)snprintf(text, capacity, "%sInfinity", s->offset < 0 ? "-" : "");
    return (size_t)snprintf(text, capacity, "%.17g", (double)s->offset);
}

static size_t
print(const berthi_state *s, char *text)
{
    size_t at = (size_t)snprintf(text, CAPACITY,
                                 "{\"quant_type\": \"%s\", \"blocksize\": %u, \"dtype\": "
                                 "\"%s\", \"shape\": [",
                                 berth_encoding_name(s->encoding), s->block_size,
                                 berthi_format_torch_name(s->dtype));

    for (uint32_t i = 0; i < s->rank; i++)
        at += (size_t)snprintf(text + at, CAPACITY - at, "%s%" PRIu64, i > 0 ? ", " : "",
                               s->shape[i]);
    at += (size_t)snprintf(text + at, CAPACITY - at, "]");
    if (s->is_double) {
        at += (size_t)snprintf(text + at, CAPACITY - at,
                               ", \"nested_blocksize\": 256, \"nested_dtype\": \"%s\", "
                               "\"nested_offset\": ",
                               berthi_format_torch_name(s->nested_dtype));
        at += print_offset(s, text + at, CAPACITY - at);
    }
    return at + (size_t)snprintf(text + at, CAPACITY - at, "}");
}

static void
check(const berthi_state *s)
{
    uint64_t elements;

    REQUIRE(s->encoding == BERTH_ENCODING_NF4 || s->encoding == BERTH_ENCODING_FP4);
    REQUIRE(berthi_format_is_block_size(s->block_size));
    REQUIRE(s->rank <= BERTH_MAX_RANK);
    REQUIRE(berthi_format_can_count(s->shape, s->rank, &elements));
    REQUIRE(elements == s->elements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    berthi_state first;
    berthi_state second;
    berth_error error;
    char printed[CAPACITY];
    size_t length;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    if (berthi_state_parse(text, size, &place, &first, &error) != BERTH_OK) {
        REQUIRE(error.reason == BERTH_REASON_STATE_JSON);
        REQUIRE(error.position <= size);
    } else {
        check(&first);
        length = print(&first, printed);
        REQUIRE(length < CAPACITY);
        REQUIRE(berthi_state_parse(printed, length, &place, &second, &error) == BERTH_OK);
        REQUIRE(memcmp(&first.offset, &second.offset, sizeof first.offset) == 0
                || (isnan(first.offset) && isnan(second.offset)));
        first.offset = second.offset;
        REQUIRE(memcmp(&first, &second, sizeof first) == 0);
    }
    free(text);
    return 0;
}
