/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_scan.c - any JSON text; the first byte's lowest bit allows NaN and Infinity
 *
 * Skipping and reading value by value give the same verdict, and skipping
 * changes nothing. What was read is printed; read and printed again it is the
 * same text.
 */
#include <math.h>
#include <string.h>

#include "kernels/utf8.h"
#include "quant/scan.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *
copy_exactly(const char *text, size_t length)
{
    char *const copy = malloc(length > 0 ? length : 1);

    REQUIRE(copy != NULL);
    if (length > 0)
        memcpy(copy, text, length);
    return copy;
}

/* The three ways to read a number agree. */
static bool
has_number(berthi_scan *scan, json_text *out)
{
    berthi_scan as_unsigned = *scan;
    berthi_scan as_double = *scan;
    berthi_scan_text text;
    uint64_t integer;
    double value;
    char digits[32];
    const bool is_ok = berthi_scan_can_read_number(scan, &text);

    REQUIRE(berthi_scan_can_read_double(&as_double, &value) == is_ok);
    REQUIRE(as_double.position == scan->position && as_double.problem == scan->problem);
    if (berthi_scan_can_read_unsigned(&as_unsigned, &integer)) {
        const int length = sprintf(digits, "%llu", (unsigned long long)integer);

        REQUIRE(is_ok && text.length == (size_t)length
                && memcmp(text.bytes, digits, text.length) == 0);
        REQUIRE((double)integer == value);
    }
    if (is_ok) {
        REQUIRE(isfinite(value) || (scan->flags & BERTHI_SCAN_NONFINITE) != 0);
        json_put(out, text.bytes, text.length);
    }
    return is_ok;
}

static bool
has_value(berthi_scan *scan, json_text *out)
{
    berthi_scan_text text;
    bool flag;

    switch (berthi_scan_peek(scan)) {
    case BERTHI_SCAN_OBJECT: json_put_text(out, "{"); return berthi_scan_can_enter_object(scan);
    case BERTHI_SCAN_ARRAY: json_put_text(out, "["); return berthi_scan_can_enter_array(scan);
    case BERTHI_SCAN_NUMBER: return has_number(scan, out);
    case BERTHI_SCAN_STRING:
        if (!berthi_scan_can_read_string(scan, &text))
            return false;
        REQUIRE(text.has_nul == (memchr(text.bytes, '\0', text.length) != NULL));
        json_put_string(out, text.bytes, text.length);
        return true;
    case BERTHI_SCAN_TRUE:
    case BERTHI_SCAN_FALSE:
        if (!berthi_scan_can_read_bool(scan, &flag))
            return false;
        json_put_text(out, flag ? "true" : "false");
        return true;
    case BERTHI_SCAN_NULL: json_put_text(out, "null"); return berthi_scan_can_read_null(scan);
    case BERTHI_SCAN_NONE: break;
    }
    return berthi_scan_refuse(scan, "nothing");
}

/* Moves to the next value; false at the end of the text or after a problem. */
static bool
has_more(berthi_scan *scan, json_text *out)
{
    while (scan->depth > 0) {
        const uint32_t innermost = scan->depth - 1;
        const bool is_object = scan->is_object[innermost / 64] >> innermost % 64 & 1;
        const bool has_member = scan->has_member;
        berthi_scan_text key;

        if (is_object ? berthi_scan_has_next_member(scan, &key)
                      : berthi_scan_has_next_element(scan)) {
            json_put_text(out, has_member ? "," : "");
            if (is_object) {
                json_put_string(out, key.bytes, key.length);
                json_put_text(out, ":");
            }
            return true;
        }
        if (scan->problem != NULL)
            return false;
        json_put_text(out, is_object ? "}" : "]");
    }
    return false;
}

static bool
can_print(char *text, size_t length, uint32_t flags, json_text *out)
{
    berthi_scan scan;

    berthi_scan_init(&scan, text, length, flags);
    do {
        if (!has_value(&scan, out))
            return false;
    } while (has_more(&scan, out));
    return berthi_scan_can_finish(&scan);
}

static bool
can_skip(char *text, size_t length, uint32_t flags)
{
    berthi_scan scan;

    berthi_scan_init(&scan, text, length, flags);
    return berthi_scan_can_skip(&scan) && berthi_scan_can_finish(&scan);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint32_t flags = size > 0 && (data[0] & 1) != 0 ? BERTHI_SCAN_NONFINITE : 0;
    const char *const text = size > 0 ? (const char *)data + 1 : "";
    const size_t length = size > 0 ? size - 1 : 0;
    char *const copy = copy_exactly(text, length);
    json_text printed = { 0 };
    json_text again = { 0 };
    bool is_ok;

    if (berthi_utf8_check((const unsigned char *)text, length) == length) {
        is_ok = can_skip(copy, length, flags);
        REQUIRE(memcmp(copy, text, length) == 0);
        REQUIRE(can_print(copy, length, flags, &printed) == is_ok);
        if (is_ok) {
            char *const second = copy_exactly(printed.bytes, printed.length);

            REQUIRE(can_print(second, printed.length, flags, &again));
            REQUIRE(again.length == printed.length
                    && memcmp(again.bytes, printed.bytes, again.length) == 0);
            free(second);
        }
    }
    free(again.bytes);
    free(printed.bytes);
    free(copy);
    return 0;
}
