/* SPDX-License-Identifier: Apache-2.0 */
/* stream_menu.c - layers out of pieces, and the sums of their subsets. */
#include "placement/stream_menu.h"

#include <stdlib.h>
#include <string.h>

/* Groups of a layer, by how many menus there are. */
static const struct {
    uint32_t menus;
    uint32_t groups;
} limits[] = { { 16, BERTHI_STREAM_GROUPS }, { 128, 8 }, { UINT32_MAX, 4 } };

double
berthi_stream_expert_share(const berthi_stream_device *device)
{
    if (device->experts_used >= device->expert_count)
        return 1;
    return (double)device->experts_used / device->expert_count;
}

/* --------------------------------------------------------------------- layers */

static int
compare_dense(const void *a, const void *b)
{
    const berthi_stream_dense *const x = a;
    const berthi_stream_dense *const y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static void
count_piece(berthi_stream_menus *menus, berthi_stream_layer *layer,
            const berthi_stream_piece *piece)
{
    switch ((berthi_piece_kind)piece->kind) {
    case BERTHI_PIECE_FIXED:
        menus->fixed += piece->bytes;
        break;
    case BERTHI_PIECE_DENSE:
        menus->dense += piece->bytes;
        layer->dense_count++;
        break;
    case BERTHI_PIECE_EXPERT:
        menus->experts += piece->bytes;
        layer->expert_count++;
        layer->expert_bytes += piece->bytes;
        layer->expert_largest = berthi_max_u64(layer->expert_largest, piece->bytes);
        break;
    case BERTHI_PIECE_AWAY:
        menus->away += piece->bytes;
        layer->away += piece->bytes;
        break;
    case BERTHI_PIECE_IDLE:
        break;
    }
}

/* What of a piece is touched in a pass. */
static double
touched_bytes(const berthi_stream_piece *piece, double expert_share)
{
    if (piece->kind == BERTHI_PIECE_IDLE)
        return 0;
    return (double)piece->bytes
           * (piece->kind == BERTHI_PIECE_EXPERT ? expert_share : 1);
}

/* Puts dense pieces in the order of the layer before; false: they are not alike. */
static bool
can_sort_like(const berthi_stream_device *device, const berthi_stream_layer *before,
              uint32_t first_before, uint32_t first, berthi_stream_layer *layer)
{
    if (before->dense_count != layer->dense_count)
        return false;
    for (uint32_t j = 0; j < layer->dense_count; j++) {
        const uint32_t piece = before->dense[j].piece - first_before + first;

        if (piece >= device->piece_count
            || device->pieces[piece].layer != device->pieces[first].layer
            || device->pieces[piece].kind != BERTHI_PIECE_DENSE
            || device->pieces[piece].bytes != before->dense[j].bytes)
            return false;
    }
    for (uint32_t j = 0; j < layer->dense_count; j++) {
        layer->dense[j].bytes = before->dense[j].bytes;
        layer->dense[j].piece = before->dense[j].piece - first_before + first;
    }
    return true;
}

/* The dense pieces of each layer, largest first, and its experts. */
static void
part_layers(const berthi_stream_device *device, berthi_stream_menus *menus,
            berthi_stream_dense *dense, uint32_t *experts)
{
    uint32_t next = 0;
    uint32_t before = 0; /* first piece of the layer before */

    for (uint32_t i = 0; i < device->layer_count; i++) {
        berthi_stream_layer *const layer = &menus->layers[i];
        const uint32_t first = next;

        layer->dense = dense;
        layer->experts = experts;
        for (; next < device->piece_count && device->pieces[next].layer == i; next++)
            if (device->pieces[next].kind == BERTHI_PIECE_DENSE)
                *dense++ = (berthi_stream_dense){ device->pieces[next].bytes, next, 0 };
            else if (device->pieces[next].kind == BERTHI_PIECE_EXPERT)
                *experts++ = next;
        if (i == 0 || !can_sort_like(device, layer - 1, before, first, layer))
            qsort(layer->dense, layer->dense_count, sizeof *layer->dense, compare_dense);
        before = first;
    }
}

static bool
can_make_layers(berthi_arena *arena, const berthi_stream_device *device,
                berthi_stream_menus *menus)
{
    const uint64_t bytes = device->layer_count * sizeof *menus->layers;
    const double share = berthi_stream_expert_share(device);
    berthi_stream_dense *dense;
    uint32_t *experts;

    menus->layers = berthi_arena_alloc(arena, bytes, 8);
    dense = berthi_arena_alloc(arena, device->piece_count * sizeof *dense, 8);
    experts = berthi_arena_alloc(arena, device->piece_count * sizeof *experts, 4);
    if (menus->layers == NULL || dense == NULL || experts == NULL)
        return false;
    memset(menus->layers, 0, (size_t)bytes);
    for (uint32_t i = 0; i < device->piece_count; i++) {
        berthi_stream_layer *const layer = &menus->layers[device->pieces[i].layer];

        count_piece(menus, layer, &device->pieces[i]);
        layer->weight += touched_bytes(&device->pieces[i], share);
    }
    for (uint32_t i = 0; device->compute != NULL && i < device->layer_count; i++)
        menus->layers[i].weight = device->compute[i];
    part_layers(device, menus, dense, experts);
    return true;
}

/* ---------------------------------------------------------------------- menus */

static bool
is_alike(const berthi_stream_layer *a, const berthi_stream_layer *b)
{
    if (a->dense_count != b->dense_count || a->away != b->away)
        return false;
    for (uint32_t i = 0; i < a->dense_count; i++)
        if (a->dense[i].bytes != b->dense[i].bytes)
            return false;
    return true;
}

/* Numbers the menus; the first layer of each is in `first`. */
static void
find_menus(const berthi_stream_device *device, berthi_stream_menus *menus,
           uint32_t *first)
{
    for (uint32_t i = 0; i < device->layer_count; i++) {
        berthi_stream_layer *const layer = &menus->layers[i];

        while (layer->menu < menus->menu_count
               && !is_alike(layer, &menus->layers[first[layer->menu]]))
            layer->menu++;
        if (layer->menu == menus->menu_count)
            first[menus->menu_count++] = i;
    }
}

/* The smallest so far gets the next largest. Returns how many groups there are. */
static uint32_t
group_pieces(berthi_stream_layer *layer, uint32_t limit, uint64_t *group_bytes)
{
    const uint32_t count = layer->dense_count < limit ? layer->dense_count : limit;

    memset(group_bytes, 0, limit * sizeof *group_bytes);
    for (uint32_t i = 0; i < layer->dense_count; i++) {
        const uint32_t group = i < count ? i : berthi_least_at(group_bytes, count);

        layer->dense[i].group = group;
        group_bytes[group] += layer->dense[i].bytes;
    }
    return count;
}

/* Adds a group to the sums in `from`: with it and without, ascending, each sum once. */
static uint32_t
merge(const berthi_stream_option *from, uint32_t count, uint64_t bytes, uint32_t group,
      berthi_stream_option *to)
{
    uint32_t without = 0;
    uint32_t with = 0;
    uint32_t used = 0;

    while (with < count) {
        const uint64_t sum = from[with].bytes + bytes;

        if (without < count && from[without].bytes <= sum) {
            with += from[without].bytes == sum;
            to[used++] = from[without++];
        } else {
            to[used++] = (berthi_stream_option){ sum, from[with++].groups | 1u << group };
        }
    }
    return used;
}

static bool
can_make_menu(berthi_arena *arena, uint32_t limit, berthi_stream_layer *layer,
              berthi_stream_menu *menu)
{
    uint64_t group_bytes[BERTHI_STREAM_GROUPS];
    const uint32_t groups = group_pieces(layer, limit, group_bytes);
    const uint64_t bytes = sizeof(berthi_stream_option) << groups;
    berthi_stream_option *from = berthi_arena_alloc(arena, bytes, 8);
    berthi_stream_option *to = berthi_arena_alloc(arena, bytes, 8);

    if (from == NULL || to == NULL)
        return false;
    from[0] = (berthi_stream_option){ 0, 0 };
    menu->option_count = 1;
    for (uint32_t i = 0; i < groups; i++) {
        berthi_stream_option *const other = from;

        menu->option_count = merge(from, menu->option_count, group_bytes[i], i, to);
        from = to;
        to = other;
    }
    menu->options = from;
    menu->away = layer->away;
    return true;
}

bool
berthi_stream_menus_can_build(berthi_arena *arena, const berthi_stream_device *device,
                              berthi_stream_menus *out)
{
    uint32_t *first;
    uint32_t row = 0;

    memset(out, 0, sizeof *out);
    first = berthi_arena_alloc(arena, device->layer_count * sizeof *first, 4);
    if (first == NULL || !can_make_layers(arena, device, out))
        return false;
    find_menus(device, out, first);
    out->menus = berthi_arena_alloc(arena, out->menu_count * sizeof *out->menus, 8);
    if (out->menus == NULL)
        return false;
    while (out->menu_count > limits[row].menus)
        row++;
    for (uint32_t i = 0; i < out->menu_count; i++) {
        out->menus[i].layer_count = 0;
        if (!can_make_menu(arena, limits[row].groups, &out->layers[first[i]],
                           &out->menus[i]))
            return false;
    }
    for (uint32_t i = 0; i < device->layer_count; i++) {
        berthi_stream_layer *const layer = &out->layers[i];
        const berthi_stream_layer *const alike = &out->layers[first[layer->menu]];

        out->menus[layer->menu].layer_count++;
        for (uint32_t j = 0; j < layer->dense_count; j++)
            layer->dense[j].group = alike->dense[j].group;
    }
    return true;
}

const berthi_stream_option *
berthi_stream_menu_find(const berthi_stream_menu *menu, uint64_t bytes)
{
    uint32_t low = 0;
    uint32_t high = menu->option_count;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (menu->options[middle].bytes <= bytes)
            low = middle;
        else
            high = middle;
    }
    return &menu->options[low];
}
