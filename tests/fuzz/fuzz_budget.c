/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_budget.c - any bytes as max_memory; what is accepted is in order, whole
 * and finite, and reads back from its own text as what it was.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/budget.h"
#include "tests/fuzz/require.h"

/* "0=123,cpu=456"; 24 bytes of name and 309 digits for each device. */
static char *
print(const berthi_budgets *budgets)
{
    char *const text = malloc(BERTHI_BUDGET_LIMIT * 340);
    size_t length = 0;

    for (uint32_t i = 0; text != NULL && i < budgets->count; i++) {
        char name[BERTHI_BUDGET_NAME];

        length += (size_t)sprintf(text + length, "%s%s=%.0f", i > 0 ? "," : "",
                                  berthi_budget_name(&budgets->items[i], name),
                                  budgets->items[i].bytes);
    }
    return text;
}

static void
check(const berthi_budgets *budgets)
{
    REQUIRE(budgets->count > 0 && budgets->count <= BERTHI_BUDGET_LIMIT);
    REQUIRE(budgets->is_given);
    for (uint32_t i = 0; i < budgets->count; i++) {
        const berthi_budget *const b = &budgets->items[i];

        REQUIRE(isfinite(b->bytes) && b->bytes >= 0 && b->bytes == trunc(b->bytes));
        REQUIRE(!signbit(b->bytes));
        REQUIRE(b->kind == BERTHI_BUDGET_GPU || b->number == 0);
        if (i > 0)
            REQUIRE(b[-1].kind < b->kind
                    || (b[-1].kind == BERTHI_BUDGET_GPU && b->kind == BERTHI_BUDGET_GPU
                        && b[-1].number < b->number));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    berthi_budgets budgets;
    berthi_budgets again;
    berth_error error;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    if (berthi_budgets_parse(text, &budgets, &error) == BERTH_OK) {
        char *const printed = print(&budgets);

        check(&budgets);
        if (printed != NULL) {
            REQUIRE(berthi_budgets_parse(printed, &again, NULL) == BERTH_OK);
            REQUIRE(again.count == budgets.count);
            for (uint32_t i = 0; i < again.count; i++)
                REQUIRE(again.items[i].kind == budgets.items[i].kind
                        && again.items[i].number == budgets.items[i].number
                        && again.items[i].bytes == budgets.items[i].bytes);
        }
        free(printed);
    } else {
        REQUIRE(error.status == BERTH_EINVAL && error.message[0] != '\0');
        REQUIRE(budgets.count == 0);
    }
    free(text);
    return 0;
}
