/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_tree.c - a description's nodes become modules, in registration
 * order. See architecture_build.h; the keys of nodes are explained in the
 * "_meta" of architectures.json.
 *
 * Nodes call each other as deep as descriptions nest, at most BERTHI_BUILD_DEPTH.
 */
#include "quant/architecture_build.h"

/* Where a node stands. */
typedef struct place {
    berthi_module *parent;
    berthi_text name;
    uint32_t depth;
    bool is_known; /* it exists even without a tensor */
} place;

static berthi_module *make_node(berthi_build *build, build_node n, const place *at);

/* --------------------------------------------------------------------- nodes */

static const berthi_json_value *
element_at(const berthi_json_value *list, uint64_t index)
{
    const berthi_json_value *at = berthi_json_first(list);

    while (at != NULL && index-- > 0)
        at = berthi_json_next(at);
    return at;
}

build_node
berthi_build_node_of(const berthi_json_value *object)
{
    return (build_node){ .object = object,
                         .children = berthi_json_get(object, "ch"),
                         .parameters = berthi_json_get(object, "p"),
                         .buffers = berthi_json_get(object, "b") };
}

static bool
holds(const berthi_json_value *list, berthi_text word)
{
    for (const berthi_json_value *at = berthi_json_first(list); at != NULL;
         at = berthi_json_next(at)) {
        const char *text;

        if (berthi_json_can_read_string(at, &text)
            && berthi_text_is(word, text))
            return true;
    }
    return false;
}

static bool
is_never_split(const berthi_build *build, const char *class_name)
{
    const build_scope *scope = build->scopes;

    while (scope != NULL
           && !holds(berthi_build_member(scope, "no_split"), berthi_text_of(class_name)))
        scope = scope->next;
    return scope != NULL;
}

/* A block: a module that holds everything below its path. */
static berthi_module *
build_block(berthi_build *build, const place *at, const char *class_name,
            const berthi_json_value *buffers)
{
    berthi_module *const module =
        berthi_build_module(build, at->parent, at->name, BERTHI_MODULE_BLOCK);
    const berthi_json_value *order;
    berthi_text rest;

    if (module == NULL)
        return NULL;
    order = berthi_build_member(berthi_build_scope(build, build_path(module), &rest),
                                "unit_order");
    module->class_name = berthi_build_text(build, class_name, strlen(class_name));
    if (order != NULL && is_never_split(build, class_name))
        berthi_build_fill_ordered(build, module, order);
    else
        berthi_build_fill(build, module);
    if (build->status == BERTH_OK)
        berthi_build_add_buffers(build, module, buffers);
    return module;
}

static bool
has_mark(const berthi_build *build, berthi_text path, const char *mark)
{
    const build_range below = berthi_build_below(build, path);

    for (uint32_t i = below.first; i < below.end; i++) {
        const berthi_parameter *const p = build->made->parameters[i];

        if (berthi_build_is_match(mark, p->name + path.length + 1,
                                  p->name_length - path.length - 1))
            return true;
    }
    return false;
}

/*
 * The kind of an element: by the tensor that marks it, else the one without a
 * mark, else the default sequence. `marks` is a list of texts and nulls; with
 * `is_paired` of [mark, ...].
 */
static uint64_t
find_kind(const berthi_build *build, berthi_text path, const berthi_json_value *marks,
          bool is_paired, const berthi_json_value *sequence, uint64_t index)
{
    uint64_t unmarked = UINT64_MAX;
    uint64_t kind = 0;

    for (const berthi_json_value *at = berthi_json_first(marks); at != NULL;
         at = berthi_json_next(at), kind++) {
        const berthi_json_value *const mark = is_paired ? berthi_json_first(at) : at;
        const char *text;

        if (berthi_json_can_read_string(mark, &text)) {
            if (has_mark(build, path, text))
                return kind;
        } else if (unmarked == UINT64_MAX) {
            unmarked = kind;
        }
    }
    if (unmarked != UINT64_MAX)
        return unmarked;
    return berthi_json_can_read_unsigned(element_at(sequence, index), &kind) ? kind : 0;
}

/* One more than the highest index below the path; 0 when there is none. */
static uint64_t
count_indices(const berthi_build *build, berthi_text path)
{
    const build_range below = berthi_build_below(build, path);
    uint64_t count = 0;

    for (uint32_t i = below.first; i < below.end; i++) {
        const berthi_parameter *const p = build->made->parameters[i];
        uint64_t at = path.length + (path.length > 0);
        uint64_t index = 0;
        const uint64_t begin = at;

        for (; at < p->name_length && p->name[at] >= '0' && p->name[at] <= '9'; at++)
            if (index <= BERTHI_BUILD_LIST)
                index = 10 * index + (uint64_t)(p->name[at] - '0');
        if (at > begin && (at == p->name_length || p->name[at] == '.'))
            count = berthi_max_u64(count, index + 1);
    }
    return count;
}

static uint64_t
count_elements(berthi_build *build, build_node n, berthi_text path)
{
    const berthi_json_value *const length = berthi_json_get(n.object, "len");
    const char *key;
    berthi_text rest;
    uint64_t stated = 0;
    const bool is_fixed = berthi_json_can_read_unsigned(length, &stated);
    uint64_t count = count_indices(build, path);

    if (!is_fixed && count == 0 && berthi_json_can_read_string(length, &key))
        (void)berthi_json_can_read_unsigned(
            berthi_build_config(berthi_build_scope(build, path, &rest), key), &stated);
    if (count == 0)
        count = stated;
    if (is_fixed && berthi_json_get(n.object, "split_list") != NULL)
        count = berthi_max_u64(count, stated);
    if (count > BERTHI_BUILD_LIST) {
        berthi_build_fail(build, path, count, BERTHI_BUILD_LIST,
                          "more elements than a list of modules can have");
        return 0;
    }
    return count;
}

static void
build_element(berthi_build *build, build_node n, const place *at, uint64_t index)
{
    const berthi_json_value *const blocks = berthi_json_get(n.object, "list");
    const berthi_json_value *const kinds = berthi_json_get(n.object, "ub_kinds");
    const berthi_json_value *buffers = berthi_json_get(n.object, "ub");
    const berthi_text path = berthi_build_join(build, build_path(at->parent), at->name);
    const uint64_t kind = find_kind(build, path, berthi_json_get(n.object, "marks"), false,
                                    berthi_json_get(n.object, "seq"), index);
    const char *class_name;

    if (build->status != BERTH_OK)
        return;
    if (blocks == NULL) {
        const build_node element = berthi_build_node_of(
            element_at(berthi_json_get(n.object, "split_list"), kind));

        if (make_node(build, element, at) == NULL)
            (void)berthi_build_module(build, at->parent, at->name, BERTHI_MODULE_PLAIN);
        return;
    }
    if (!berthi_json_can_read_string(element_at(blocks, kind), &class_name)) {
        berthi_build_refuse(build, "a list without a class for an element");
        return;
    }
    if (berthi_json_first(kinds) != NULL)
        buffers = element_at(
            element_at(kinds, find_kind(build, path, kinds, true, NULL, 0)), 1);
    (void)build_block(build, at, class_name, buffers);
}

/* Tensors that the description does not know: behind its children, by name. */
static void
build_extra(berthi_build *build, berthi_module *module)
{
    const build_range below = berthi_build_below(build, build_path(module));
    const uint64_t skipped = module->path_length + (module->path_length > 0);

    for (uint32_t i = below.first; i < below.end && build->status == BERTH_OK; i++) {
        berthi_parameter *const parameter = build->made->parameters[i];
        berthi_text name = { parameter->name + skipped, 0 };

        if (parameter->module != NULL)
            continue;
        build->made->is_approximate = true;
        while (skipped + name.length < parameter->name_length
               && name.bytes[name.length] != '.')
            name.length++;
        if (skipped + name.length == parameter->name_length)
            berthi_build_add(module, parameter, false);
        else if (berthi_build_child(module, name) == NULL)
            (void)build_block(build, &(place){ .parent = module, .name = name }, "?", NULL);
    }
}

/* Decimal, into `digits`, which ends in a NUL. */
static berthi_text
write_index(uint64_t index, char digits[24])
{
    char *at = digits + 23;

    *at = '\0';
    do
        *--at = (char)('0' + index % 10);
    while ((index /= 10) > 0);
    return berthi_text_of(at);
}

static berthi_module *
build_list(berthi_build *build, build_node n, const place *at)
{
    berthi_module *const module =
        berthi_build_module(build, at->parent, at->name, BERTHI_MODULE_LIST);
    uint64_t count;

    if (module == NULL)
        return NULL;
    count = count_elements(build, n, build_path(module));
    for (uint64_t i = 0; i < count && build->status == BERTH_OK; i++) {
        char digits[24];
        const place element = { module, write_index(i, digits), at->depth + 1, true };

        build_element(build, n, &element, i);
    }
    if (build->status == BERTH_OK)
        build_extra(build, module);
    berthi_build_add_buffers(build, module, n.buffers);
    return module;
}

/* The direct parameters that the checkpoint has. */
static void
add_parameters(berthi_build *build, berthi_module *module, const berthi_json_value *names)
{
    for (const berthi_json_value *at = berthi_json_first(names); at != NULL;
         at = berthi_json_next(at)) {
        const char *name;
        berthi_parameter *parameter;

        if (!berthi_json_can_read_string(at, &name))
            continue;
        parameter = berthi_build_find(
            build, berthi_build_join(build, build_path(module), berthi_text_of(name)));
        if (parameter != NULL && parameter->module == NULL)
            berthi_build_add(module, parameter, false);
    }
}

/* ------------------------------------------------------------------ children */

/* The "optional" of a module, by its path with '*' for numbers. */
static const berthi_json_value *
find_optional(const berthi_build *build, berthi_text path)
{
    berthi_text rest;
    const build_scope *const scope = berthi_build_scope(build, path, &rest);
    const berthi_json_value *at =
        berthi_json_first(berthi_build_member(scope, "optional"));

    while (at != NULL && !berthi_build_is_within(scope, berthi_json_key(at), rest))
        at = berthi_json_next(at);
    return at;
}

const berthi_json_value *
berthi_build_find_node(const berthi_json_value *nodes, berthi_text name)
{
    for (const berthi_json_value *at = berthi_json_first(nodes); at != NULL;
         at = berthi_json_next(at)) {
        const char *text;

        if ((berthi_json_can_read_string(at, &text)
             || berthi_json_can_read_string(berthi_json_get(at, "n"), &text))
            && berthi_text_is(name, text))
            return at;
    }
    return NULL;
}

static bool
has_tie_below(const berthi_build *build, berthi_text path)
{
    for (uint32_t i = 0; i < build->made->tie_count; i++) {
        const berthi_text target = berthi_text_of(build->made->ties[i].target);

        if (target.length > path.length && target.bytes[path.length] == '.'
            && memcmp(target.bytes, path.bytes, (size_t)path.length) == 0)
            return true;
    }
    return false;
}

/* What a flag of config.json says of a child: 1 there, 0 not; -1: nothing. */
static int
read_flag(const berthi_build *build, const berthi_json_value *optional, berthi_text path,
          berthi_text name)
{
    const berthi_json_value *at = berthi_json_first(berthi_json_get(optional, "when"));
    const berthi_json_value *value;
    berthi_text rest;
    const char *flag;
    uint64_t number = 0;
    bool truth = false;
    bool is_turned;

    while (at != NULL && !berthi_text_is(name, berthi_json_key(at)))
        at = berthi_json_next(at);
    if (!berthi_json_can_read_string(at, &flag))
        return -1;
    is_turned = *flag == '!';
    value = berthi_build_config(berthi_build_scope(build, path, &rest), flag + is_turned);
    if (value == NULL)
        return -1;
    if (!berthi_json_can_read_bool(value, &truth))
        truth = !berthi_json_can_read_unsigned(value, &number) || number != 0;
    return truth != is_turned;
}

static void
build_child(berthi_build *build, const berthi_json_value *known,
            const berthi_json_value *optional, place at)
{
    const berthi_text path = berthi_build_join(build, build_path(at.parent), at.name);
    const int flag = read_flag(build, optional, build_path(at.parent), at.name);

    if (build->status != BERTH_OK || (flag == 0 && !berthi_build_has_below(build, path)))
        return;
    if (!holds(berthi_json_get(optional, "only_sometimes"), at.name))
        at.is_known = (known != NULL && has_tie_below(build, path))
                      || holds(berthi_json_get(optional, "sometimes_empty"), at.name);
    if (flag == 1 && known == NULL)
        at.is_known = true;
    (void)make_node(build, berthi_build_node_of(known), &at);
}

/* Of a child, or of an order's element. */
static berthi_text
name_of(const berthi_json_value *child)
{
    const char *name = "";

    if (!berthi_json_can_read_string(child, &name))
        (void)berthi_json_can_read_string(berthi_json_get(child, "n"), &name);
    return berthi_text_of(name);
}

/*
 * Children that the order does not have, from this one of the tree on: they stay behind
 * what they stand behind there.
 */
static void
build_left_out(berthi_build *build, berthi_module *module, const berthi_json_value *known,
               const berthi_json_value *optional, uint32_t depth)
{
    const berthi_json_value *const order = berthi_json_get(optional, "order");

    for (; known != NULL && build->status == BERTH_OK; known = berthi_json_next(known)) {
        const berthi_text name = name_of(known);

        if (berthi_build_find_node(order, name) != NULL)
            return;
        build_child(build, known, optional, (place){ module, name, depth + 1, false });
    }
}

/* Children that the description lacks, behind this one of its own. */
static void
build_lacking(berthi_build *build, berthi_module *module, berthi_text behind,
              uint32_t depth)
{
    uint32_t position = 0;
    const char *name;

    while ((name = berthi_build_lacking_child(build, build_path(module), behind, &position))
           != NULL)
        build_child(build, NULL, NULL,
                    (place){ module, berthi_text_of(name), depth + 1, false });
}

static void
build_children(berthi_build *build, berthi_module *module, const berthi_json_value *tree,
               uint32_t depth)
{
    const berthi_json_value *const optional = find_optional(build, build_path(module));
    const berthi_json_value *order = berthi_json_get(optional, "order");

    if (depth > BERTHI_BUILD_DEPTH) {
        berthi_build_fail(build, build_path(module), depth, BERTHI_BUILD_DEPTH,
                          "sub-models inside each other without end");
        return;
    }
    if (order == NULL)
        order = tree;
    else
        build_left_out(build, module, berthi_json_first(tree), optional, depth);
    for (const berthi_json_value *at = berthi_json_first(order);
         at != NULL && build->status == BERTH_OK; at = berthi_json_next(at)) {
        const berthi_text name = name_of(at);
        const berthi_json_value *const known = berthi_build_find_node(tree, name);

        build_child(build, known, optional, (place){ module, name, depth + 1, false });
        build_lacking(build, module, name, depth);
        if (order != tree && known != NULL)
            build_left_out(build, module, berthi_json_next(known), optional, depth);
    }
    build_extra(build, module);
}

static berthi_module *
build_plain(berthi_build *build, build_node n, const place *at)
{
    berthi_module *const module =
        berthi_build_module(build, at->parent, at->name, BERTHI_MODULE_PLAIN);

    if (module == NULL)
        return NULL;
    if (n.children == NULL) {
        berthi_build_fill(build, module);
        if (berthi_build_is_unstored(build, build_path(module)))
            berthi_build_add_unstored(build, module);
        berthi_build_add_buffers(build, module, n.buffers);
        return module;
    }
    add_parameters(build, module, n.parameters);
    berthi_build_add_buffers(build, module, n.buffers);
    if (build->status == BERTH_OK)
        build_children(build, module, n.children, at->depth);
    return module;
}

/* True when nothing below has a tensor in any checkpoint: it is there without one. */
static bool
is_bare(const berthi_json_value *nodes)
{
    const berthi_json_value *at = berthi_json_first(nodes);

    while (at != NULL
           && (berthi_json_get(at, "k") != NULL
               || (berthi_json_get(at, "p") == NULL && is_bare(berthi_json_get(at, "ch")))))
        at = berthi_json_next(at);
    return at == NULL && berthi_json_first(nodes) != NULL;
}

/* What is described in the place of a sub-model that is of another type. */
static build_node
choose_model(const berthi_build *build, build_node n, berthi_text path)
{
    berthi_text rest;
    const build_scope *const scope = berthi_build_scope(build, path, &rest);

    return rest.length == 0 && scope != build->whole ? scope->top : n;
}

/* NULL when the module does not exist in this checkpoint. */
static berthi_module *
make_node(berthi_build *build, build_node n, const place *at)
{
    const berthi_text path = berthi_build_join(build, build_path(at->parent), at->name);
    const bool has = berthi_build_has_below(build, path);
    const char *class_name;

    n = choose_model(build, n, path);
    if (build->status != BERTH_OK)
        return NULL;
    if (berthi_json_can_read_string(berthi_json_get(n.object, "unit"), &class_name))
        return has || berthi_json_get(n.object, "k") != NULL
                   ? build_block(build, at, class_name, berthi_json_get(n.object, "ub"))
                   : NULL;
    if (berthi_json_get(n.object, "list") != NULL
        || berthi_json_get(n.object, "split_list") != NULL)
        return build_list(build, n, at);
    if (!has && !at->is_known && !berthi_build_is_unstored(build, path)
        && (n.children != NULL
                ? n.parameters != NULL || !is_bare(n.children)
                : berthi_json_get(n.object, "k") == NULL && n.buffers == NULL))
        return NULL;
    return build_plain(build, n, at);
}

/* ------------------------------------------------------------------ the whole */

void
berthi_build_tree(berthi_build *build)
{
    berthi_architecture *const made = build->made;
    berthi_module *module;

    made->root = berthi_build_module(build, NULL, (berthi_text){ "", 0 },
                                     BERTHI_MODULE_PLAIN);
    if (made->root == NULL)
        return;
    add_parameters(build, made->root, build->whole->top.parameters);
    berthi_build_add_buffers(build, made->root, build->whole->top.buffers);
    if (build->status == BERTH_OK)
        build_children(build, made->root, build->whole->top.children, 0);
    for (module = made->root; module != NULL && build->status == BERTH_OK;
         module = (berthi_module *)berthi_module_after(module))
        if (module->class_name != NULL)
            module->is_never_split = is_never_split(build, module->class_name);
}
