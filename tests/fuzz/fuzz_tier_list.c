/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tier_list.c - any bytes as a list of tiers; what is accepted is in order and
 * reads back from its own text as what it was.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/tier.h"
#include "tests/fuzz/require.h"

/* Name, sign, 20 digits, sign, comma. */
#define ITEM_BYTES (BERTHI_TIER_NAME + 32u)

static void
print(const berthi_tier_list *list, char *text)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const berthi_tier_bytes *const item = &list->items[i];
        char name[BERTHI_TIER_NAME];

        text += sprintf(text, "%s%s=", i > 0 ? "," : "",
                        berthi_tier_name(&item->tier, name));
        if (item->share > 0) {
            REQUIRE(item->bytes == 0 && item->share <= 1000000000);
            text += sprintf(text, "%" PRIu64 ".%07" PRIu64 "%%", item->share / 10000000,
                            item->share % 10000000);
        } else if (item->bytes == UINT64_MAX) {
            text += sprintf(text, "inf");
        } else {
            text += sprintf(text, "%" PRIu64, item->bytes);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    char printed[BERTHI_TIER_LIMIT * ITEM_BYTES];
    berthi_tier_list list;
    berthi_tier_list again;
    berth_error error;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    if (berthi_tier_list_parse(text, &list, &error) == BERTH_OK) {
        REQUIRE(list.count > 0 && list.count <= BERTHI_TIER_LIMIT);
        for (uint32_t i = 1; i < list.count; i++)
            REQUIRE(berthi_tier_compare(&list.items[i - 1].tier, &list.items[i].tier) < 0);
        print(&list, printed);
        REQUIRE(berthi_tier_list_parse(printed, &again, NULL) == BERTH_OK);
        REQUIRE(memcmp(&list, &again, sizeof list) == 0);
    } else {
        REQUIRE(error.status == BERTH_EINVAL && error.message[0] != '\0');
        REQUIRE(list.count == 0);
    }
    free(text);
    return 0;
}
