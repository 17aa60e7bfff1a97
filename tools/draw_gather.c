/* SPDX-License-Identifier: Apache-2.0 */
/* draw_gather.c - tensors become pieces of layers, and lines of lists. */
#include <stdlib.h>
#include <string.h>

#include "tools/draw_map.h"
#include "tools/grow.h"

/* -------------------------------------------------------------------- pieces */

static bool
add_bytes(draw_map *map, draw_layer *layer, uint32_t number, const berth_berth *b)
{
    const form_class class = form_class_of_type(b->encoding, b->dtype);
    draw_piece *pieces;

    for (size_t i = 0; i < layer->piece_count; i++) {
        draw_piece *const piece = &map->pieces[layer->first_piece + i];

        if (piece->tier != b->tier)
            continue;
        piece->bytes += b->bytes;
        piece->class_bytes[class] += b->bytes;
        if (piece->class_bytes[class] > piece->class_bytes[piece->class])
            piece->class = class;
        return true;
    }
    pieces = grow(map->pieces, &map->piece_capacity, map->piece_count, 1, sizeof *pieces);
    if (pieces == NULL)
        return false;
    map->pieces = pieces;
    pieces[map->piece_count] = (draw_piece){ .layer = number, .tier = b->tier,
                                             .class = class, .bytes = b->bytes };
    pieces[map->piece_count].class_bytes[class] = b->bytes;
    if (layer->piece_count == 0)
        layer->first_piece = map->piece_count;
    layer->piece_count++;
    map->piece_count++;
    return true;
}

static void
add_type(draw_map *map, const berth_berth *b)
{
    size_t i = 0;

    while (i < map->type_count
           && (map->types[i].encoding != b->encoding || map->types[i].dtype != b->dtype))
        i++;
    if (i == DRAW_MAX_TYPES)
        return;
    if (i == map->type_count)
        map->types[map->type_count++] = (draw_type){ b->encoding, b->dtype, 0 };
    map->types[i].bytes += b->bytes;
}

/* --------------------------------------------------------------------- lines */

/* The number in "mlp.experts.17.up_proj", or in a stack. False: none of many experts. */
static bool
find_expert(const berth_berth *berth, const char *name, uint64_t *number)
{
    static const char word[] = "experts.";
    const char *const at = strstr(name, word);
    char *end;

    if (at == NULL || at[sizeof word - 1] < '0' || at[sizeof word - 1] > '9') {
        *number = berth->first;
        return berth->along == BERTH_SLICING_ROWS && berth->count == 1;
    }
    *number = strtoull(at + sizeof word - 1, &end, 10);
    return *end == '.';
}

static bool
add_line(draw_map *map, draw_layer *layer, const draw_line *line)
{
    draw_line *const lines = grow(map->lines, &map->line_capacity, map->line_count, 1,
                                  sizeof *lines);

    if (lines == NULL)
        return false;
    map->lines = lines;
    lines[map->line_count] = *line;
    if (layer->line_count == 0)
        layer->first_line = map->line_count;
    layer->line_count++;
    map->line_count++;
    return true;
}

/* The line of experts that are stored alike, in the same tier. */
static draw_line *
find_experts(draw_map *map, const draw_layer *layer, const berth_berth *b)
{
    for (size_t i = 0; i < layer->line_count; i++) {
        draw_line *const line = &map->lines[layer->first_line + i];

        if (line->experts > 0 && line->tier == b->tier && line->encoding == b->encoding
            && line->dtype == b->dtype)
            return line;
    }
    return NULL;
}

/* The line that takes all tensors for which there is no room. */
static draw_line *
find_rest(draw_map *map, const draw_layer *layer)
{
    draw_line *const last = layer->line_count > 0 ? &map->lines[map->line_count - 1] : NULL;

    return last != NULL && last->name == NULL && last->experts == 0 ? last : NULL;
}

static bool
has_room_for_line(const draw_map *map, const draw_layer *layer)
{
    return layer->line_count + 1 < DRAW_MAX_LINES
           && map->line_count < DRAW_MAX_ALL_LINES;
}

/* The tensor's name behind that of its layer, escaped, to be freed. */
static char *
short_name(const draw_layer *layer, const char *name)
{
    const size_t length = strlen(layer->name);
    char *const text = text_escaped(name, strlen(name));
    char *behind = text;

    if (text == NULL)
        return NULL;
    if (strncmp(text, layer->name, length) == 0 && text[length] == '.')
        behind += length + 1;
    memmove(text, behind, strlen(behind) + 1);
    text_cut(text, DRAW_NAME_WIDTH, true);
    return text;
}

static bool
add_tensor(draw_map *map, draw_layer *layer, const berth_berth *b, const char *name)
{
    draw_line line = { .bytes = b->bytes, .tensors = 1, .tier = b->tier,
                       .encoding = b->encoding, .dtype = b->dtype };
    uint64_t expert = 0;
    const bool is_expert = b->is_expert && find_expert(b, name, &expert);
    const bool has_room = has_room_for_line(map, layer);
    draw_line *same = is_expert ? find_experts(map, layer, b) : NULL;

    if (same == NULL && !has_room)
        same = find_rest(map, layer);
    if (same != NULL) {
        same->experts += same->experts > 0 && same->last_expert != expert;
        same->last_expert = expert;
        same->bytes += b->bytes;
        same->tensors++;
        return true;
    }
    line.experts = is_expert;
    line.last_expert = expert;
    if (!has_room) {
        line.tier = BERTH_NO_INDEX;
        line.experts = 0;
    } else if (!is_expert) {
        line.name = short_name(layer, name);
        if (line.name == NULL)
            return false;
    }
    if (add_line(map, layer, &line))
        return true;
    free(line.name);
    return false;
}

bool
draw_map_add(draw_map *map, uint32_t layer, const berth_berth *b, const char *name)
{
    add_type(map, b);
    return add_bytes(map, &map->layers[layer], layer, b)
           && (!map->has_lines || layer >= DRAW_MAX_LAYERS
               || add_tensor(map, &map->layers[layer], b, name));
}
