/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_device_map.c - any bytes as a device map
 *
 * What is accepted is sorted, each line is found by its path, and the print parses
 * to the same lines and prints to the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "placement/device_map.h"
#include "tests/fuzz/json_text.h"
#include "tests/fuzz/require.h"
#include "tests/mapped.h"

static void
check_lines(const berthi_device_map *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const berthi_map_line *line = &map->lines[i];
        const berthi_map_line *a;

        REQUIRE(berthi_device_map_find(map, line->path, line->path_length) == line);
        REQUIRE(line->tier.kind >= BERTHI_TIER_GPU && line->tier.kind <= BERTHI_TIER_DISK);
        REQUIRE(line->tier.kind == BERTHI_TIER_GPU || line->tier.number == 0);
        if (i == 0)
            continue;
        a = &map->lines[map->by_path[i - 1]];
        line = &map->lines[map->by_path[i]];
        REQUIRE(memcmp(a->path, line->path,
                       a->path_length < line->path_length ? a->path_length
                                                          : line->path_length) <= 0);
    }
}

/* Parses the bytes, which change, and prints the map into `out`. */
static berth_status
parse_and_print(berth_context *context, char *bytes, size_t size, json_text *out)
{
    berth_error error = { .status = BERTH_OK };
    berthi_device_map map;
    const berth_status status =
        berthi_device_map_parse(context, bytes, size, "fuzz", &map, &error);

    if (status == BERTH_OK) {
        check_lines(&map);
        REQUIRE(mapped_print(&map, json_put_piece, out) == BERTH_OK);
    } else {
        REQUIRE(status == BERTH_EINVAL && error.status == BERTH_EINVAL);
        REQUIRE(error.reason == BERTH_REASON_DEVICE_MAP && error.message[0] != '\0');
        REQUIRE((error.has & BERTH_HAS_POSITION) == 0 || error.position <= size);
        REQUIRE(map.count == 0);
    }
    berthi_device_map_fini(&map);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const copy = malloc(size + 1);
    json_text first = { .length = 0 };
    json_text second = { .length = 0 };
    berth_context *context;

    REQUIRE(copy != NULL && berth_context_create(NULL, &context, NULL) == BERTH_OK);
    if (size > 0)
        memcpy(copy, data, size);
    if (parse_and_print(context, copy, size, &first) == BERTH_OK) {
        char *const again = malloc(first.length);

        REQUIRE(again != NULL);
        memcpy(again, first.bytes, first.length);
        REQUIRE(parse_and_print(context, again, first.length, &second) == BERTH_OK);
        REQUIRE(first.length == second.length);
        REQUIRE(memcmp(first.bytes, second.bytes, first.length) == 0);
        free(again);
    }
    berth_context_destroy(context);
    free(copy);
    free(first.bytes);
    free(second.bytes);
    return 0;
}
