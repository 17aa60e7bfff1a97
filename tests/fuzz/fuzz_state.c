/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_state.c - any bytes as a state blob. What is accepted holds its
 * invariants, and printed as upstream would it parses to the same state.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "quant/state.h"
#include "tests/fuzz/require.h"

static const berthi_about place = { .file = "f", .tensor = "t", .tensor_length = 1 };

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
    char printed[BERTHI_STATE_TEXT_MAX];
    char again[BERTHI_STATE_TEXT_MAX];
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
        length = berthi_state_print(&first, printed, sizeof printed);
        REQUIRE(length < sizeof printed && length == strlen(printed));
        REQUIRE(first.is_double || length == berthi_state_guess(&first));
        memcpy(again, printed, length + 1);
        REQUIRE(berthi_state_parse(printed, length, &place, &second, &error) == BERTH_OK);
        REQUIRE(memcmp(&first.offset, &second.offset, sizeof first.offset) == 0
                || (isnan(first.offset) && isnan(second.offset)));
        first.offset = second.offset;
        REQUIRE(memcmp(&first, &second, sizeof first) == 0);
        REQUIRE(berthi_state_print(&second, printed, sizeof printed) == length);
        REQUIRE(strcmp(printed, again) == 0);
    }
    free(text);
    return 0;
}
