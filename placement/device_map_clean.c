/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_map_clean.c - where each tensor lies, as the shortest device map.
 *
 * Begins with the lines that transformers would begin with: a line for each block
 * and for each module without children, where all in it lies on one tier; lines of
 * what such a module holds, where it does not. What is in no checkpoint (tables of
 * rotary embeddings, modules without tensors) lies where its neighbour does, so
 * that a loader finds a line for everything.
 */
#include "placement/device_map.h"

#include <string.h>

#include "kernels/grow.h"
#include "kernels/text.h"
#include "placement/shorten.h"

#define FIRST_NODES 256u
/* Of a line: where its neighbour lies. */
#define ANYWHERE (UINT64_MAX - 1)

typedef struct cleaning {
    berth_context *context;
    const berthi_architecture *model;
    berthi_tier (*tier_of)(void *user, const berthi_parameter *what);
    void *user;
    berthi_shorten_node *nodes;
    berthi_text *paths; /* of nodes */
    uint32_t count;
    uint64_t capacity;
    bool is_failed; /* out of memory; afterwards calls do nothing */
} cleaning;

static uint64_t
place_of_tier(const berthi_tier *tier)
{
    return (uint64_t)tier->kind << 32 | tier->number;
}

static berthi_tier
tier_of_place(uint64_t place)
{
    return (berthi_tier){ (int32_t)(place >> 32), (uint32_t)place };
}

/* Of a tensor that the checkpoint does not hold nobody says where it lies. */
static uint64_t
place_of(const cleaning *c, const berthi_parameter *p)
{
    berthi_tier tier;

    while (p->piece_count == 0 && p->tie != NULL)
        p = p->tie;
    if (p->piece_count == 0)
        return ANYWHERE;
    tier = c->tier_of(c->user, p);
    return place_of_tier(&tier);
}

/* ----------------------------------------------------------------------- nodes */

static void *
larger_copy(const cleaning *c, const void *old, size_t size)
{
    return berthi_memory_copy(c->context, BERTHI_PURPOSE_SCRATCH, old,
                              &(berthi_growth){ .size = size,
                                                .used = c->count,
                                                .before = c->capacity,
                                                .after = berthi_grown(c->capacity,
                                                                      FIRST_NODES) });
}

/* Both or none: the two share one capacity. */
static bool
can_grow(cleaning *c)
{
    const uint64_t capacity = berthi_grown(c->capacity, FIRST_NODES);
    berthi_shorten_node *const nodes = larger_copy(c, c->nodes, sizeof *nodes);
    berthi_text *const paths = larger_copy(c, c->paths, sizeof *paths);

    if (nodes == NULL || paths == NULL) {
        berthi_memory_free(c->context, BERTHI_PURPOSE_SCRATCH, nodes,
                           capacity * sizeof *nodes);
        berthi_memory_free(c->context, BERTHI_PURPOSE_SCRATCH, paths,
                           capacity * sizeof *paths);
        c->is_failed = true;
        return false;
    }
    berthi_memory_free(c->context, BERTHI_PURPOSE_SCRATCH, c->nodes,
                       c->capacity * sizeof *nodes);
    berthi_memory_free(c->context, BERTHI_PURPOSE_SCRATCH, c->paths,
                       c->capacity * sizeof *paths);
    c->nodes = nodes;
    c->paths = paths;
    c->capacity = capacity;
    return true;
}

/* Its number; after a failure any. */
static uint32_t
add_node(cleaning *c, uint32_t parent, berthi_text name)
{
    if (c->is_failed || (c->count == c->capacity && !can_grow(c)))
        return 0;
    c->nodes[c->count] = (berthi_shorten_node){ .parent = parent, .end = c->count + 1 };
    c->paths[c->count] = name;
    return c->count++;
}

static void
set_line(cleaning *c, uint32_t node, uint64_t place)
{
    if (c->is_failed)
        return;
    c->nodes[node].is_line = true;
    c->nodes[node].place = place;
}

static void
add_tensors(cleaning *c, uint32_t parent, const berthi_parameter *p)
{
    for (; p != NULL; p = p->next)
        set_line(c, add_node(c, parent, (berthi_text){ p->name, p->name_length }),
                 place_of(c, p));
}

/* --------------------------------------------------------------------- modules */

/* False when tensors of the list lie elsewhere than *place; ANYWHERE agrees with all. */
static bool
can_agree(const cleaning *c, const berthi_parameter *p, uint64_t *place)
{
    for (; p != NULL; p = p->next) {
        const uint64_t here = place_of(c, p);

        if (*place == ANYWHERE)
            *place = here;
        else if (here != ANYWHERE && here != *place)
            return false;
    }
    return true;
}

/* The module behind all that this one holds; NULL: the end. */
static const berthi_module *
module_behind(const berthi_module *module)
{
    while (module->next == NULL && module->parent != NULL)
        module = module->parent;
    return module->next;
}

/* True for a module that begins as one line: *place. */
static bool
is_whole(const cleaning *c, const berthi_module *module, uint64_t *place)
{
    const berthi_module *const behind = module_behind(module);

    *place = ANYWHERE;
    if (module->children != NULL && module->kind != BERTHI_MODULE_BLOCK)
        return false;
    for (const berthi_module *m = module; m != behind; m = berthi_module_after(m))
        if (!can_agree(c, m->parameters, place) || !can_agree(c, m->buffers, place))
            return false;
    return true;
}

/* What comes behind the children: buffers, and the end. */
static void
close_module(cleaning *c, uint32_t node, const berthi_module *module, bool is_line)
{
    if (!is_line)
        add_tensors(c, node, module->buffers);
    if (!c->is_failed)
        c->nodes[node].end = c->count;
}

static void
add_modules(cleaning *c)
{
    const berthi_module *module = c->model->root;
    uint32_t node = add_node(c, 0, (berthi_text){ "", 0 });
    uint64_t place;
    bool is_line;

    while (!c->is_failed) {
        is_line = is_whole(c, module, &place);
        if (is_line)
            set_line(c, node, place);
        else
            add_tensors(c, node, module->parameters);
        if (!is_line && module->children != NULL) {
            module = module->children;
            node = add_node(c, node, (berthi_text){ module->path, module->path_length });
            continue;
        }
        close_module(c, node, module, is_line);
        while (!c->is_failed && module->parent != NULL && module->next == NULL) {
            module = module->parent;
            node = c->nodes[node].parent;
            close_module(c, node, module, false);
        }
        if (c->is_failed || module->parent == NULL)
            break;
        module = module->next;
        node = add_node(c, c->nodes[node].parent,
                        (berthi_text){ module->path, module->path_length });
    }
}

/* ----------------------------------------------------------------------- lines */

/* As the line before; the first ones as the first that lies somewhere. */
static void
settle(cleaning *c)
{
    uint64_t place = ANYWHERE;

    for (uint32_t i = 0; i < c->count && place == ANYWHERE; i++)
        if (c->nodes[i].is_line)
            place = c->nodes[i].place;
    for (uint32_t i = 0; i < c->count; i++) {
        if (!c->nodes[i].is_line)
            continue;
        if (c->nodes[i].place == ANYWHERE)
            c->nodes[i].place = place;
        place = c->nodes[i].place;
        c->nodes[i].is_line = place != ANYWHERE;
    }
}

static berth_status
write_lines(cleaning *c, berthi_device_map *out, berth_error *error)
{
    berthi_map_line *lines;
    berth_status status;
    uint32_t count = 0;

    for (uint32_t i = 0; i < c->count; i++)
        count += c->nodes[i].is_line;
    lines = berthi_memory_array(c->context, BERTHI_PURPOSE_SCRATCH, count, sizeof *lines);
    if (lines == NULL)
        return berthi_fail_memory(error, "a device map");
    count = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->nodes[i].is_line)
            lines[count++] = (berthi_map_line){
                .path = c->paths[i].bytes,
                .path_length = c->paths[i].length,
                .tier = tier_of_place(c->nodes[i].place),
            };
    status = berthi_device_map_make(c->context, lines, count, out, error);
    berthi_memory_free(c->context, BERTHI_PURPOSE_SCRATCH, lines, count * sizeof *lines);
    return status;
}

berth_status
berthi_device_map_clean(berth_context *context, const berthi_architecture *model,
                        berthi_tier (*tier_of)(void *user, const berthi_parameter *what),
                        void *user, berthi_device_map *out, berth_error *error)
{
    cleaning c = { .context = context, .model = model, .tier_of = tier_of, .user = user };
    berth_status status;

    memset(out, 0, sizeof *out);
    add_modules(&c);
    if (c.is_failed) {
        status = berthi_fail_memory(error, "a device map");
    } else {
        settle(&c);
        berthi_shorten(c.nodes, c.count);
        status = write_lines(&c, out, error);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, c.nodes,
                       c.capacity * sizeof *c.nodes);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, c.paths,
                       c.capacity * sizeof *c.paths);
    return status;
}
