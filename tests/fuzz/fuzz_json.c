/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json.c - any bytes as a small document, Python's numbers allowed when the
 * first byte is odd. An accepted document is printed and parsed again: the tree
 * must be the same, and so is every number, as integer and as double.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/json.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"

static const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "f" };

static void
put_number(json_text *t, const berthi_json_value *value)
{
    char digits[64];
    uint64_t integer;
    double number;

    REQUIRE(berthi_json_can_read_double(value, &number));
    if (berthi_json_can_read_unsigned(value, &integer)) {
        REQUIRE(number == (double)integer);
        json_put_unsigned(t, integer);
    } else if (isnan(number)) {
        json_put_text(t, "NaN");
    } else if (isinf(number)) {
        json_put_text(t, number < 0 ? "-Infinity" : "Infinity");
    } else {
        /* With an exponent, so that it is no integer when it comes back. */
        json_put(t, digits, (size_t)snprintf(digits, sizeof digits, "%.17e", number));
    }
}

/* Recursion is bounded by the gate's depth; here only, in a test. */
static void
print(json_text *t, const berthi_json_value *value)
{
    const berthi_json_kind kind = berthi_json_kind_of(value);
    const char *string;
    bool truth;

    REQUIRE(kind != BERTHI_JSON_ABSENT);
    if (kind == BERTHI_JSON_STRING) {
        REQUIRE(berthi_json_can_read_string(value, &string));
        json_put_string(t, string, strlen(string));
    } else if (kind == BERTHI_JSON_NUMBER) {
        put_number(t, value);
    } else if (kind == BERTHI_JSON_BOOL) {
        REQUIRE(berthi_json_can_read_bool(value, &truth));
        json_put_text(t, truth ? "true" : "false");
    } else if (kind == BERTHI_JSON_NULL) {
        json_put_text(t, "null");
    } else {
        json_put_text(t, kind == BERTHI_JSON_OBJECT ? "{" : "[");
        for (const berthi_json_value *v = berthi_json_first(value); v != NULL;
             v = berthi_json_next(v)) {
            if (v != berthi_json_first(value))
                json_put_text(t, ",");
            if (kind == BERTHI_JSON_OBJECT) {
                REQUIRE(berthi_json_get(value, berthi_json_key(v)) == v);
                json_put_string(t, berthi_json_key(v), strlen(berthi_json_key(v)));
                json_put_text(t, ":");
            }
            print(t, v);
        }
        json_put_text(t, kind == BERTHI_JSON_OBJECT ? "}" : "]");
    }
}

static json_text
print_all(const berthi_json *document)
{
    json_text t = { NULL, 0, 0 };

    print(&t, berthi_json_root(document));
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint32_t flags = size > 0 && data[0] % 2 != 0 ? BERTHI_JSON_NONFINITE : 0;
    const char *const bytes = size > 0 ? (const char *)data + 1 : "";
    berth_memory_summary memory;
    berth_context *context;
    berthi_json *document;
    berth_error error;
    json_text first;
    json_text second;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (berthi_json_parse(context, bytes, size > 0 ? size - 1 : 0, flags, &origin, &document,
                          &error) != BERTH_OK) {
        REQUIRE(document == NULL && error.reason == BERTH_REASON_CONFIG_JSON);
        REQUIRE(error.position <= size);
    } else {
        first = print_all(document);
        berthi_json_destroy(document);
        REQUIRE(berthi_json_parse(context, first.bytes, first.length, flags, &origin,
                                  &document, &error) == BERTH_OK);
        second = print_all(document);
        berthi_json_destroy(document);
        REQUIRE(first.length == second.length
                && memcmp(first.bytes, second.bytes, first.length) == 0);
        free(first.bytes);
        free(second.bytes);
    }
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
