/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_map.c - devices of modules as a map, made short (shorten.h); and what
 * upstream warns of, or should.
 */
#include "placement/imitate_walk.h"
#include "placement/shorten.h"

/* As the queue has left it, in the shape that the rule wants. */
static void
fill_nodes(const berthi_imitate_walk *walk, berthi_shorten_node *nodes)
{
    const berthi_node *const from = walk->tree->nodes;

    for (uint32_t i = 0; i < walk->tree->count; i++)
        nodes[i] = (berthi_shorten_node){
            .parent = i > 0 ? from[i].parent : 0,
            .end = from[i].end,
            .place = walk->states[i].device,
            .is_line = walk->states[i].device != BERTHI_NO_PLACE,
        };
}

static berth_status
shorten(berthi_imitate_walk *walk, berth_error *error)
{
    const uint32_t count = walk->tree->count;
    berth_context *const context = walk->result->context;
    berthi_shorten_node *const nodes =
        berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, count, sizeof *nodes);

    if (nodes == NULL)
        return berthi_fail_memory(error, "shortening the device map");
    fill_nodes(walk, nodes);
    berthi_shorten(nodes, count);
    for (uint32_t i = 0; i < count; i++)
        walk->states[i].device = nodes[i].is_line ? (uint16_t)nodes[i].place
                                                  : BERTHI_NO_PLACE;
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, nodes, count * sizeof *nodes);
    return BERTH_OK;
}

berth_status
berthi_imitate_write(berthi_imitate_walk *walk, berth_error *error)
{
    berthi_imitation *const result = walk->result;
    berth_status status = BERTH_OK;
    uint32_t count = 0;

    /* A class with _no_placement_params keeps its map as it is. */
    if (!walk->tree->is_escaping || walk->options->era == BERTHI_ERA_HF4)
        status = shorten(walk, error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < walk->tree->count; i++)
        count += walk->states[i].device != BERTHI_NO_PLACE;
    result->placed = berthi_memory_array(result->context, BERTHI_PURPOSE_OBJECT, count,
                                         sizeof *result->placed);
    if (result->placed == NULL)
        return berthi_fail_memory(error, "writing the device map");
    result->placed_count = count;
    count = 0;
    for (uint32_t i = 0; i < walk->tree->count; i++)
        if (walk->states[i].device != BERTHI_NO_PLACE)
            result->placed[count++] = (berthi_placed){
                .path = walk->tree->nodes[i].name,
                .path_length = walk->tree->nodes[i].name_length,
                .bytes = walk_bytes(walk, i),
                .device = walk->states[i].device,
            };
    return BERTH_OK;
}

/* --------------------------------------------------------------------- remarks */

/* Where a node lies: by itself or by a module that holds it. */
static uint16_t
device_of(const berthi_imitate_walk *walk, uint32_t node)
{
    while (walk->states[node].device == BERTHI_NO_PLACE
           && walk->tree->nodes[node].parent != BERTHI_NO_NODE)
        node = walk->tree->nodes[node].parent;
    return walk->states[node].device;
}

/* The first buffer of a module that was split: upstream forgets those. */
static uint32_t
find_lost_buffer(const berthi_imitate_walk *walk)
{
    for (uint32_t i = 1; i < walk->tree->count; i++)
        if (walk->tree->nodes[i].kind == BERTHI_NODE_BUFFER
            && device_of(walk, i) == BERTHI_NO_PLACE)
            return i;
    return BERTHI_NO_NODE;
}

static bool
is_offload(const berthi_budget *device)
{
    return device->kind == BERTHI_BUDGET_CPU || device->kind == BERTHI_BUDGET_DISK;
}

/* Buffers of offloaded modules stay on a GPU, and nothing has kept room for them. */
static double
homeless_buffers(const berthi_imitate_walk *walk)
{
    const berthi_budgets *const budgets = &walk->result->budgets;
    bool has_gpu = false;
    double bytes = 0;

    for (uint32_t i = 0; i < budgets->count; i++)
        if (is_offload(&budgets->items[i]))
            bytes += walk->buffers[i];
    for (uint32_t i = 0; i < budgets->count; i++)
        if (!is_offload(&budgets->items[i])) {
            has_gpu = true;
            if (budgets->items[i].bytes >= bytes + walk->used[i])
                return 0;
        }
    return has_gpu && !walk->options->has_buffer_offload ? bytes : 0;
}

void
berthi_imitate_look_back(berthi_imitate_walk *walk)
{
    walk->result->lost_buffer = find_lost_buffer(walk);
    walk->result->buffer_bytes = homeless_buffers(walk);
}
