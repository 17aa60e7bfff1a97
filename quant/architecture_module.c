/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_module.c - modules, and which parameters lie in them. See
 * architecture_build.h.
 */
#include "quant/architecture_build.h"

/* ---------------------------------------------------------- children by name */

static berthi_text
module_name(const berthi_module *module)
{
    return (berthi_text){ module->name, module->name_length };
}

/* Where the child is, or the first free slot behind where it would be. */
static berthi_module **
find_slot(const berthi_children *by_name, berthi_text name)
{
    uint64_t at = berthi_text_hash(name) & by_name->mask;

    while (by_name->slots[at] != NULL
           && !berthi_text_is_same(module_name(by_name->slots[at]), name))
        at = (at + 1) & by_name->mask;
    return &by_name->slots[at];
}

/* Of two children of one name the first is found, as it is without a table. */
static void
enter_child(const berthi_children *by_name, berthi_module *child)
{
    berthi_module **const slot = find_slot(by_name, module_name(child));

    if (*slot == NULL)
        *slot = child;
}

/* A table of all, with room until they are twice as many. */
static void
enter_all(berthi_build *build, berthi_module *module)
{
    const uint64_t size = 4 * (uint64_t)module->child_count;
    berthi_children *const by_name = berthi_build_alloc(build, 1, sizeof *by_name);

    if (by_name == NULL)
        return;
    *by_name = (berthi_children){ size - 1,
                                  berthi_build_alloc(build, size, sizeof *by_name->slots) };
    if (by_name->slots == NULL)
        return;
    for (berthi_module *at = module->children; at != NULL; at = at->next)
        enter_child(by_name, at);
    module->by_name = by_name;
}

static void
add_child(berthi_build *build, berthi_module *module, berthi_module *child)
{
    const uint32_t count = ++module->child_count;

    if (module->last_child != NULL)
        module->last_child->next = child;
    else
        module->children = child;
    module->last_child = child;
    if (count >= BERTHI_MANY_CHILDREN && (count & (count - 1)) == 0)
        enter_all(build, module);
    else if (module->by_name != NULL)
        enter_child(module->by_name, child);
}

/* ------------------------------------------------------------------- modules */

berthi_module *
berthi_build_module(berthi_build *build, berthi_module *parent, berthi_text name,
                    berthi_module_kind kind)
{
    berthi_module *const module = berthi_build_alloc(build, 1, sizeof *module);
    berthi_text path = name;

    if (module == NULL)
        return NULL;
    if (parent != NULL)
        path = berthi_build_join(build, (berthi_text){ parent->path, parent->path_length },
                                 name);
    module->path = path.bytes;
    module->path_length = path.length;
    module->name = path.bytes + (path.length - name.length);
    module->name_length = name.length;
    module->kind = kind;
    module->parent = parent;
    if (parent != NULL)
        add_child(build, parent, module);
    return module;
}

berthi_module *
berthi_build_child(const berthi_module *module, berthi_text name)
{
    berthi_module *child = module->last_child;

    /* Names come in order: mostly it is the last one. */
    if (child != NULL && berthi_text_is_same(module_name(child), name))
        return child;
    if (module->by_name != NULL)
        return *find_slot(module->by_name, name);
    for (child = module->children; child != NULL; child = child->next)
        if (berthi_text_is_same(module_name(child), name))
            return child;
    return NULL;
}

berthi_module *
berthi_build_reach(berthi_build *build, berthi_module *module, berthi_text path,
                   berthi_module_kind kind)
{
    while (path.length > 0 && module != NULL) {
        berthi_text name = { path.bytes, 0 };
        berthi_module *child;

        while (name.length < path.length && name.bytes[name.length] != '.')
            name.length++;
        child = berthi_build_child(module, name);
        if (child == NULL)
            child = berthi_build_module(build, module, name, kind);
        module = child;
        name.length += name.length < path.length;
        path.bytes += name.length;
        path.length -= name.length;
    }
    return module;
}

berthi_text
berthi_build_split(berthi_text path, berthi_text *out_last)
{
    uint64_t at = path.length;

    while (at > 0 && path.bytes[at - 1] != '.')
        at--;
    *out_last = (berthi_text){ path.bytes + at, path.length - at };
    return (berthi_text){ path.bytes, at > 0 ? at - 1 : 0 };
}

/* ---------------------------------------------------- parameters and buffers */

void
berthi_build_add(berthi_module *module, berthi_parameter *parameter, bool is_buffer)
{
    berthi_parameter **const first = is_buffer ? &module->buffers : &module->parameters;
    berthi_parameter **const last =
        is_buffer ? &module->last_buffer : &module->last_parameter;

    parameter->module = module;
    parameter->next = NULL;
    parameter->is_buffer = is_buffer;
    if (*last != NULL)
        (*last)->next = parameter;
    else
        *first = parameter;
    *last = parameter;
}

void
berthi_build_remove(berthi_parameter *parameter)
{
    berthi_module *const module = parameter->module;
    berthi_parameter *before = NULL;
    berthi_parameter *at = module->parameters;

    while (at != NULL && at != parameter) {
        before = at;
        at = at->next;
    }
    if (at == NULL)
        return;
    if (before != NULL)
        before->next = at->next;
    else
        module->parameters = at->next;
    if (module->last_parameter == at)
        module->last_parameter = before;
}

/* Below a module, with the modules in between. */
static void
put(berthi_build *build, berthi_module *module, berthi_parameter *parameter)
{
    const uint64_t skipped = module->path_length + (module->path_length > 0);
    berthi_text last;
    const berthi_text below = { parameter->name + skipped, parameter->name_length - skipped };
    const berthi_text between = berthi_build_split(below, &last);
    berthi_module *const owner =
        berthi_build_reach(build, module, between, BERTHI_MODULE_INNER);

    if (owner != NULL)
        berthi_build_add(owner, parameter, false);
}

typedef struct ordered {
    berthi_parameter *parameter;
    uint32_t rank;
} ordered;

static int
compare_ordered(const void *a, const void *b)
{
    const ordered *const left = a;
    const ordered *const right = b;

    return (left->rank > right->rank) - (left->rank < right->rank);
}

/* Place in the "unit_order" of the description; behind all of it when not there. */
static uint32_t
find_rank(const berthi_json_value *order, const berthi_parameter *parameter,
          uint64_t skipped)
{
    uint32_t rank = 0;
    const char *pattern;

    for (; order != NULL; order = berthi_json_next(order), rank++)
        if (berthi_json_can_read_string(order, &pattern)
            && berthi_build_is_match(pattern, parameter->name + skipped,
                                     parameter->name_length - skipped))
            break;
    return rank;
}

void
berthi_build_fill_ordered(berthi_build *build, berthi_module *module,
                          const berthi_json_value *order)
{
    const build_range below = berthi_build_below(build, build_path(module));
    const uint32_t count = below.end - below.first;
    ordered *const items = berthi_build_alloc(build, count, sizeof *items);
    void **const sorted = berthi_build_alloc(build, count, sizeof *sorted);

    if (sorted == NULL)
        return;
    for (uint32_t i = 0; i < count; i++) {
        items[i].parameter = build->made->parameters[below.first + i];
        items[i].rank = find_rank(berthi_json_first(order), items[i].parameter,
                                  module->path_length + 1);
        sorted[i] = &items[i];
    }
    berthi_build_sort(build, sorted, count, compare_ordered);
    for (uint32_t i = 0; i < count && build->status == BERTH_OK; i++)
        if (((const ordered *)sorted[i])->parameter->module == NULL)
            put(build, module, ((const ordered *)sorted[i])->parameter);
}

void
berthi_build_fill(berthi_build *build, berthi_module *module)
{
    const build_range below = berthi_build_below(build, build_path(module));

    for (uint32_t i = below.first; i < below.end && build->status == BERTH_OK; i++)
        if (build->made->parameters[i]->module == NULL)
            put(build, module, build->made->parameters[i]);
}

bool
berthi_build_has_below(const berthi_build *build, berthi_text path)
{
    const build_range below = berthi_build_below(build, path);

    return below.first < below.end;
}
