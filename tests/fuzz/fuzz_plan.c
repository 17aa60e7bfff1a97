/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_plan.c - any bytes as a plan
 *
 * What is accepted is printed, and the print must parse to the same and print to the
 * same bytes; berths lie in tiers that there are, from multiples of 256 on, apart from
 * each other, and the sums are those of the berths.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "placement/plan_json.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"

/* Without ranks, all of a tensor, or one expert of a stack. */
static void
check_slice(const berth_plan *plan, uint64_t berth)
{
    const berthi_slice slice = berthi_plan_slice(plan, berth);

    REQUIRE(plan->summary.ranks > 1 || slice.along == BERTH_SLICING_NONE
            || (slice.along == BERTH_SLICING_ROWS && slice.count == 1 && slice.parts == 0
                && plan->berths[berth].is_expert));
}

static void
check(const berth_plan *plan)
{
    const berth_plan_summary *const s = &plan->summary;
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < s->berth_count; i++) {
        const berthi_berth *const a = &plan->berths[i];

        REQUIRE(a->tier < s->tier_count && a->layer < s->layer_count);
        REQUIRE(a->offset % 256 == 0 && a->bytes % 256 == 0);
        check_slice(plan, i);
        if (a->is_tied)
            continue;
        bytes += a->bytes;
        REQUIRE(a->offset + a->bytes <= plan->tiers[a->tier].weights);
        for (uint64_t k = 0; k < i && i < 100; k++) {
            const berthi_berth *const b = &plan->berths[k];

            REQUIRE(b->is_tied || b->tier != a->tier || a->bytes == 0 || b->bytes == 0
                    || a->offset + a->bytes <= b->offset
                    || b->offset + b->bytes <= a->offset);
        }
    }
    REQUIRE((plan->slices != NULL) == berthi_plan_has_slices(s) && s->rank < s->ranks);
    REQUIRE(s->ranks == 1 || s->stacks == BERTH_STACKS_WHOLE);
    REQUIRE(plan->training == NULL || s->stacks == BERTH_STACKS_WHOLE);
    REQUIRE(bytes == s->bytes && s->resident_bytes + s->streamed_bytes == bytes);
}

/* Parses a copy of the bytes and prints what was seen into `out`. */
static berth_status
parse_and_print(berth_context *context, const void *data, size_t size, json_text *out)
{
    berth_error error = { .status = BERTH_OK };
    char *const copy = malloc(size + 1);
    berth_plan *plan;
    berth_status status;

    REQUIRE(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    status = berthi_plan_parse(context, copy, size, "fuzz", &plan, &error);
    REQUIRE(status == error.status);
    if (status == BERTH_OK) {
        check(plan);
        REQUIRE(berthi_plan_print(plan, json_put_piece, out, NULL) == BERTH_OK);
        berthi_plan_free(plan);
    } else {
        REQUIRE(plan == NULL);
        REQUIRE(status == BERTH_EFORMAT || status == BERTH_EUNSUPPORTED);
        REQUIRE(error.message[0] != '\0');
        REQUIRE((error.has & BERTH_HAS_POSITION) == 0 || error.position <= size);
    }
    free(copy);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_text first = { .length = 0 };
    json_text second = { .length = 0 };
    berth_context *context = NULL;
    berth_memory_summary memory;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (parse_and_print(context, data, size, &first) == BERTH_OK) {
        REQUIRE(parse_and_print(context, first.bytes, first.length, &second) == BERTH_OK);
        REQUIRE(first.length == second.length);
        REQUIRE(memcmp(first.bytes, second.bytes, first.length) == 0);
    }
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    free(first.bytes);
    free(second.bytes);
    return 0;
}
