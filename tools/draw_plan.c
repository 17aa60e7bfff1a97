/* SPDX-License-Identifier: Apache-2.0 */
/* draw_plan.c - a plan becomes a map. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>

#include "tools/draw_map.h"

#define NAME_CAPACITY 4096
#define REASON_CAPACITY 512

static bool
gather_tiers(draw_map *map, const berth_plan *plan)
{
    map->tiers = calloc((size_t)map->summary.tier_count + 1, sizeof *map->tiers);
    if (map->tiers == NULL)
        return false;
    for (uint32_t i = 0; i < map->summary.tier_count; i++)
        if (berth_plan_get_tier(plan, i, &map->tiers[map->tier_count].facts) == BERTH_OK)
            map->tier_count++;
    return true;
}

static bool
gather_layer(draw_map *map, const berth_plan *plan, uint32_t number)
{
    draw_layer *const layer = &map->layers[number];
    berth_plan_layer facts;
    char reason[REASON_CAPACITY];
    char name[NAME_CAPACITY] = "";

    if (berth_plan_get_layer(plan, number, &facts) != BERTH_OK
        || berth_plan_explain(plan, number, reason, sizeof reason) != BERTH_OK)
        return false;
    *layer = (draw_layer){ .home = facts.home, .cause = facts.cause, .bytes = facts.bytes,
                           .resident_bytes = facts.resident_bytes,
                           .link_bytes = facts.link_bytes };
    map->layer_count = (size_t)number + 1;
    layer->name = strdup(facts.name);
    layer->reason = strdup(reason);
    if (layer->name == NULL || layer->reason == NULL)
        return false;
    for (uint64_t i = 0; i < facts.berth_count; i++) {
        berth_berth b;

        if (berth_plan_get_berth(plan, facts.first_berth + i, &b,
                                 map->has_lines ? name : NULL, sizeof name) != BERTH_OK
            || !draw_map_add(map, number, &b, name))
            return false;
    }
    return true;
}

bool
draw_map_gather(draw_map *map, const berth_plan *plan, bool wants_lines)
{
    memset(map, 0, sizeof *map);
    map->has_lines = wants_lines;
    berth_plan_get(plan, &map->summary);
    map->is_training = berth_plan_get_training(plan, &map->training) == BERTH_OK;
    map->layers = calloc((size_t)map->summary.layer_count + 1, sizeof *map->layers);
    if (map->layers == NULL || !gather_tiers(map, plan))
        return false;
    for (uint32_t i = 0; i < map->summary.layer_count; i++)
        if (!gather_layer(map, plan, i))
            return false;
    return draw_map_arrange(map);
}
