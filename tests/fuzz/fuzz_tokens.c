/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tokens.c - any bytes as a list of lengths. What is accepted is printed and read
 * again to the same list; sums and percentiles hold their order.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/estimate_tokens.h"
#include "tests/fuzz/require.h"

#define LINE_CAPACITY 32u

static void
check(const berthi_tokens *tokens)
{
    berthi_tokens_summary out;

    berthi_tokens_summarize(tokens, 3, NULL, NULL, 0, &out);
    REQUIRE(out.least <= out.points[0].length && out.points[0].length <= out.points[1].length
            && out.points[1].length <= out.points[2].length
            && out.points[2].length <= out.points[3].length);
    REQUIRE(out.points[3].length == out.most);
    REQUIRE(out.packed <= out.sorted && out.packed <= out.padded);
    REQUIRE(out.padded <= out.most * out.count && out.sorted <= out.most * out.count);
    REQUIRE(out.packs <= out.count && out.packs * out.most >= out.total);
    REQUIRE(berthi_tokens_padded(tokens, 1) == tokens->total);
}

static void
check_printed(berth_context *context, const berthi_tokens *tokens)
{
    char *const text = malloc(tokens->count * LINE_CAPACITY);
    berthi_tokens again;
    size_t length = 0;

    REQUIRE(text != NULL);
    for (uint64_t i = 0; i < tokens->count; i++)
        length += (size_t)snprintf(text + length, LINE_CAPACITY, "%" PRIu64 "\n",
                                   tokens->lengths[i]);
    REQUIRE(berthi_tokens_parse(context, text, length, "f", &again, NULL) == BERTH_OK);
    REQUIRE(again.count == tokens->count && again.total == tokens->total);
    REQUIRE(memcmp(again.lengths, tokens->lengths,
                   (size_t)again.count * sizeof *again.lengths) == 0);
    REQUIRE(memcmp(again.sorted, tokens->sorted,
                   (size_t)again.count * sizeof *again.sorted) == 0);
    berthi_tokens_fini(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    berth_memory_summary memory;
    berth_context *context;
    berthi_tokens tokens;
    berth_error error;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (berthi_tokens_parse(context, (const char *)data, size, "f", &tokens, &error)
        == BERTH_OK) {
        check(&tokens);
        check_printed(context, &tokens);
    } else {
        REQUIRE(error.reason == BERTH_REASON_ARGUMENT && tokens.lengths == NULL);
    }
    berthi_tokens_fini(&tokens);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
