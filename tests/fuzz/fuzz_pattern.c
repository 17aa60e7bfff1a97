/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pattern.c - a pattern, a line break, and a name
 *
 * The three ways of matching contain each other, and a pattern matches alike in
 * a group, with itself as another choice, and behind "^".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/utf8.h"
#include "quant/glob.h"
#include "quant/pattern.h"
#include "tests/fuzz/require.h"

#define LIMIT 512u

/* Bits: begin, whole, search; -1: no pattern. */
static int
match(berth_context *context, const char *text, const char *name, size_t length)
{
    berthi_pattern *pattern;
    berth_error error;
    int result = 0;

    if (berthi_pattern_create(context, text, &pattern, &error) != BERTH_OK) {
        REQUIRE(error.reason == BERTH_REASON_RULES && pattern == NULL);
        REQUIRE(error.position <= strlen(text));
        return -1;
    }
    for (int mode = 0; mode < 3; mode++)
        if (berthi_pattern_is_match(pattern, name, length, (berthi_pattern_mode)mode))
            result |= 1 << mode;
    berthi_pattern_destroy(pattern);
    return result;
}

/* The same pattern between two texts; as another choice of itself when `is_twice`. */
static int
match_within(berth_context *context, const char *before, const char *text, bool is_twice,
             const char *name, size_t length)
{
    char other[2 * LIMIT + 16];

    snprintf(other, sizeof other, "%s%s%s%s)", before, text, is_twice ? "|" : "",
             is_twice ? text : "");
    return match(context, other, name, length);
}

static void
check(berth_context *context, const char *text, const char *name, size_t length)
{
    const int result = match(context, text, name, length);
    int within;

    if (result < 0)
        return;
    REQUIRE((result & 2) == 0 || (result & 1) != 0); /* whole: begin */
    REQUIRE((result & 1) == 0 || (result & 4) != 0); /* begin: search */
    within = match_within(context, "(", text, false, name, length);
    if (within < 0) /* one group too many */
        return;
    REQUIRE(within == result);
    REQUIRE(match_within(context, "(?:", text, true, name, length) == result);
    REQUIRE((match_within(context, "^(", text, false, name, length) & 1) == (result & 1));
}

static void
check_input(berth_context *context, const uint8_t *data, size_t size)
{
    const char *const text = (const char *)data;
    const char *const line = size > 0 ? memchr(text, '\n', size) : NULL;
    const size_t length = line != NULL ? (size_t)(line - text) : size;
    const char *const name = line != NULL ? line + 1 : "";
    const size_t name_length = line != NULL ? size - length - 1 : 0;
    char pattern[LIMIT];

    if (length >= LIMIT || memchr(text, 0, length) != NULL
        || berthi_utf8_check(data, size) != size)
        return;
    memcpy(pattern, text, length);
    pattern[length] = '\0';
    check(context, pattern, name, name_length);
    if (berthi_glob_check(pattern) == NULL)
        (void)berthi_glob_is_match(pattern, name, name_length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    berth_context *context;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (size > 0)
        check_input(context, data, size);
    berth_context_destroy(context);
    return 0;
}
