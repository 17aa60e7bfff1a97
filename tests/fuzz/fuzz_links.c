/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_links.c - any bytes as a file of links, and as the words of --link
 *
 * What is accepted has its tiers in order and rates within their limits; it is
 * printed, and the print must parse to the same and print to the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "placement/link.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"

static void
check_rate(const berthi_rate *rate)
{
    REQUIRE(rate->bytes <= BERTHI_RATE_LIMIT);
    REQUIRE(rate->source >= 0 && rate->source < BERTHI_RATE_SOURCE_COUNT);
    REQUIRE(memchr(rate->words, 0, sizeof rate->words) != NULL);
}

static void
check(const berthi_links *links)
{
    REQUIRE(links->count <= BERTHI_LINK_LIMIT);
    REQUIRE(memchr(links->fingerprint, 0, sizeof links->fingerprint) != NULL);
    for (uint32_t i = 0; i < links->count; i++) {
        const berthi_link *const item = &links->items[i];
        const berthi_link link = berthi_links_find(links, &item->tier, 1);

        REQUIRE(i == 0 || berthi_tier_compare(&item[-1].tier, &item->tier) < 0);
        check_rate(&item->feed);
        check_rate(&item->memory);
        REQUIRE(item->feed.bytes > 0 || item->memory.bytes > 0);
        REQUIRE(link.feed.bytes > 0 && link.memory.bytes > 0);
    }
}

static void
check_printed(const berthi_links *links)
{
    json_text first = { .length = 0 };
    json_text second = { .length = 0 };
    berthi_links again;
    char *copy;

    REQUIRE(berthi_links_print(links, json_put_piece, &first, NULL, NULL) == BERTH_OK);
    copy = malloc(first.length);
    REQUIRE(copy != NULL);
    memcpy(copy, first.bytes, first.length);
    REQUIRE(berthi_links_parse(copy, first.length, "f", &again, NULL) == BERTH_OK);
    REQUIRE(memcmp(&again, links, sizeof again) == 0);
    REQUIRE(berthi_links_print(&again, json_put_piece, &second, NULL, NULL) == BERTH_OK);
    REQUIRE(first.length == second.length
            && memcmp(first.bytes, second.bytes, first.length) == 0);
    free(copy);
    free(first.bytes);
    free(second.bytes);
}

static void
check_words(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    berthi_links links;
    berth_error error;

    REQUIRE(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    memset(&links, 0, sizeof links);
    if (berthi_links_parse_words(text, &links, &error) == BERTH_OK) {
        check(&links);
        check_printed(&links);
    } else {
        REQUIRE(error.reason == BERTH_REASON_ARGUMENT && error.message[0] != '\0');
        REQUIRE(links.count == 0);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    berthi_links links;
    berth_error error;

    REQUIRE(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    if (berthi_links_parse(text, size, "f", &links, &error) == BERTH_OK) {
        check(&links);
        check_printed(&links);
    } else {
        REQUIRE(error.reason == BERTH_REASON_LINKS_JSON
                || error.reason == BERTH_REASON_UNSUPPORTED);
        REQUIRE(error.message[0] != '\0' && links.count == 0);
        REQUIRE((error.has & BERTH_HAS_POSITION) == 0 || error.position <= size);
    }
    free(text);
    check_words(data, size);
    return 0;
}
