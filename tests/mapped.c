/* SPDX-License-Identifier: Apache-2.0 */
/* mapped.c - device maps as text; see mapped.h. */
#include "tests/mapped.h"

#include <string.h>

static void
add_line(berthi_json_text *text, const berthi_map_line *line)
{
    char name[BERTHI_TIER_NAME];

    berthi_json_text_add_string(text, line->path, line->path_length, BERTHI_JSON_ASCII);
    berthi_json_text_add_words(text, ": ");
    if (line->tier.kind == BERTHI_TIER_GPU) {
        berthi_json_text_add_number(text, line->tier.number);
    } else {
        berthi_tier_name(&line->tier, name);
        berthi_json_text_add_string(text, name, strlen(name), BERTHI_JSON_ASCII);
    }
}

berth_status
mapped_print(const berthi_device_map *map, berthi_json_put put, void *user)
{
    berthi_json_text text;

    berthi_json_text_begin(&text, put, user, NULL);
    berthi_json_text_add_words(&text, "{");
    for (uint32_t i = 0; i < map->count; i++) {
        berthi_json_text_add_words(&text, i > 0 ? ",\n  " : "\n  ");
        add_line(&text, &map->lines[i]);
    }
    berthi_json_text_add_words(&text, map->count > 0 ? "\n}\n" : "}\n");
    return berthi_json_text_end(&text, NULL);
}
