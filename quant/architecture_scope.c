/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_scope.c - who says what is where: the class's description for the whole
 * model, but for a sub-model of another type than the class has by default, that type's.
 * See architecture_build.h.
 *
 *   model.language_model            config.json: text_config.model_type "qwen3_moe"
 *   model                           the same in the description of Qwen3MoeForCausalLM
 *
 *   path "model.language_model", base "model", config: that of "text_config"
 */
#include "quant/architecture_build.h"

/* ----------------------------------------------------------------------- asking */

/* What of a path or name lies behind the place; false: it is not at it or below. */
static bool
can_enter(berthi_text name, berthi_text place, berthi_text *out)
{
    uint64_t skipped = place.length;

    if (name.length < place.length
        || memcmp(name.bytes, place.bytes, (size_t)place.length) != 0)
        return false;
    if (place.length > 0 && name.length > place.length) {
        if (name.bytes[place.length] != '.')
            return false;
        skipped++;
    }
    *out = (berthi_text){ name.bytes + skipped, name.length - skipped };
    return true;
}

const build_scope *
berthi_build_scope(const berthi_build *build, berthi_text name, berthi_text *out_rest)
{
    const build_scope *scope = build->scopes;

    while (!can_enter(name, scope->path, out_rest))
        scope = scope->next; /* the last one is the whole model's */
    return scope;
}

const char *
berthi_build_within(const build_scope *scope, const char *described)
{
    berthi_text rest;

    return can_enter(berthi_text_of(described), scope->base, &rest) ? rest.bytes : NULL;
}

bool
berthi_build_is_within(const build_scope *scope, const char *pattern, berthi_text rest)
{
    const char *const within = berthi_build_within(scope, pattern);

    return within != NULL && berthi_build_is_match(within, rest.bytes, rest.length);
}

berthi_text
berthi_build_outside(berthi_build *build, const build_scope *scope, const char *described)
{
    const char *const rest = berthi_build_within(scope, described);

    if (rest == NULL || *rest == '\0')
        return berthi_text_of("");
    return berthi_build_join(build, scope->path, berthi_text_of(rest));
}

const build_scope *
berthi_build_replacing(const berthi_build *build, const build_scope *scope,
                       berthi_text one, berthi_text other)
{
    berthi_text rest;
    const build_scope *const holder = berthi_build_scope(build, one, &rest);

    return holder != scope && holder == berthi_build_scope(build, other, &rest) ? holder
                                                                                : NULL;
}

const berthi_json_value *
berthi_build_member(const build_scope *scope, const char *name)
{
    const berthi_json_value *const older = berthi_json_find(scope->older, name);

    if (older != NULL)
        return older;
    /* Another tree has other optional children. */
    if (strcmp(name, "optional") == 0 && berthi_json_find(scope->older, "tree") != NULL)
        return NULL;
    return berthi_json_find(scope->entry, name);
}

/* ----------------------------------------------------------------------- making */

/* What is no list would never hold a class: its layers were split, and nobody told why. */
static void
check_no_split(berthi_build *build, const build_scope *scope)
{
    const berthi_json_value *const list = berthi_build_member(scope, "no_split");
    const char *text;
    bool is_good = list == NULL || berthi_json_kind_of(list) == BERTHI_JSON_ARRAY;

    for (const berthi_json_value *at = is_good ? berthi_json_first(list) : NULL; at != NULL;
         at = berthi_json_next(at))
        is_good = is_good && berthi_json_can_read_string(at, &text);
    if (!is_good)
        berthi_build_refuse(build, "\"no_split\" is no list of classes");
}

static build_scope *
add_scope(berthi_build *build, const berthi_catalogue_entry *entry)
{
    build_scope *const scope = berthi_build_alloc(build, 1, sizeof *scope);

    if (scope == NULL)
        return NULL;
    scope->class_name = "";
    scope->path = scope->base = berthi_text_of("");
    scope->next = build->scopes;
    build->scopes = scope;
    if (entry == NULL)
        return scope;
    scope->class_name = berthi_build_text(build, build->catalogue->text + entry->name,
                                          entry->name_length);
    scope->entry = berthi_build_describe(build, entry);
    if (build->options->era == BERTHI_ERA_HF4)
        scope->older = berthi_json_get(scope->entry, "v4");
    scope->top = (build_node){ .children = berthi_build_member(scope, "tree"),
                               .parameters = berthi_build_member(scope, "params"),
                               .buffers = berthi_build_member(scope, "buffers") };
    check_no_split(build, scope);
    return scope;
}

/* A class of a type that comes after `previous`, and its description; NULL: none. */
static const berthi_catalogue_entry *
next_class(berthi_build *build, const char *model_type,
           const berthi_catalogue_entry *previous, const berthi_json_value **out)
{
    const berthi_catalogue_entry *const entry =
        berthi_catalogue_type_class(build->catalogue, model_type, previous);

    *out = entry != NULL ? berthi_build_describe(build, entry) : NULL;
    return *out != NULL ? entry : NULL;
}

/* True where the nodes are those of a class with its head: one is its base model. */
static bool
is_whole(berthi_build *build, const char *model_type, const berthi_json_value *nodes)
{
    const berthi_catalogue_entry *entry = NULL;
    const berthi_json_value *description;

    while ((entry = next_class(build, model_type, entry, &description)) != NULL) {
        const char *base;

        if (berthi_json_can_read_string(berthi_json_get(description, "base"), &base)
            && berthi_build_find_node(nodes, berthi_text_of(base)) != NULL)
            return true;
    }
    return false;
}

/* The first class of this type in the group; NULL: none. */
static const berthi_catalogue_entry *
find_in_group(berthi_build *build, const char *model_type, const char *group)
{
    const berthi_catalogue_entry *entry = NULL;
    const berthi_json_value *description;

    while ((entry = next_class(build, model_type, entry, &description)) != NULL) {
        const char *own;

        if (berthi_json_can_read_string(berthi_json_get(description, "group"), &own)
            && strcmp(own, group) == 0)
            return entry;
    }
    return NULL;
}

/* Of the base model in a class's tree; NULL where that has none. */
static build_scope *
add_base(berthi_build *build, const berthi_catalogue_entry *entry,
         const berthi_json_value *description)
{
    const char *base = "";
    build_scope *scope;

    if (!berthi_json_can_read_string(berthi_json_get(description, "base"), &base))
        berthi_build_refuse(build, "a class without \"base\"");
    if (berthi_build_find_node(berthi_json_get(description, "tree"), berthi_text_of(base))
        == NULL)
        return NULL;
    scope = add_scope(build, entry);
    if (scope == NULL)
        return NULL;
    scope->base = berthi_text_of(base);
    scope->top = berthi_build_node_of(
        berthi_build_find_node(scope->top.children, scope->base));
    return scope;
}

/*
 * What has the class's head in it is of the first class with a head for text, all else a
 * base model. NULL: the type is not described, or not so.
 */
static build_scope *
add_inner(berthi_build *build, const berthi_json_value *nodes, const char *usual,
          const char *actual)
{
    const berthi_catalogue_entry *entry =
        berthi_catalogue_tower(build->catalogue, actual);
    const berthi_json_value *description;
    build_scope *scope = NULL;
    bool has_head;

    if (entry != NULL) {
        scope = add_scope(build, entry);
        if (scope != NULL)
            scope->is_tower = true;
        return scope;
    }
    has_head = is_whole(build, usual, nodes);
    entry = find_in_group(build, actual, has_head ? "causal-lm" : "encoder");
    if (entry == NULL && has_head)
        entry = berthi_catalogue_type_class(build->catalogue, actual, NULL);
    if (entry != NULL)
        return add_scope(build, entry);
    while (scope == NULL
           && (entry = next_class(build, actual, entry, &description)) != NULL)
        scope = add_base(build, entry, description);
    return scope;
}

/* A node's sub-model of another type than the class has by default. */
typedef struct other {
    const berthi_json_value *config;
    const char *usual;
    const char *actual;
} other;

static bool
is_other(const build_scope *scope, const berthi_json_value *node, other *out)
{
    const char *part;

    if (!berthi_json_can_read_string(berthi_json_get(node, "sub"), &part)
        || !berthi_json_can_read_string(berthi_json_get(node, "sub_type"), &out->usual))
        return false;
    out->config = berthi_build_part(scope, part);
    return berthi_json_can_read_string(berthi_json_get(out->config, "model_type"),
                                       &out->actual)
           && strcmp(out->actual, out->usual) != 0;
}

static void find_below(berthi_build *build, const build_scope *scope,
                       const berthi_json_value *nodes, berthi_text path, uint32_t depth);

/* At a node and below it. */
static void
find_at(berthi_build *build, const build_scope *scope, const berthi_json_value *node,
        berthi_text path, uint32_t depth)
{
    const berthi_json_value *const nodes = berthi_json_get(node, "ch");
    build_scope *inner = NULL;
    other o;

    if (is_other(scope, node, &o))
        inner = add_inner(build, nodes, o.usual, o.actual);
    if (inner == NULL) {
        find_below(build, scope, nodes, path, depth);
        return;
    }
    inner->path = path;
    inner->config = o.config;
    find_below(build, inner, inner->top.children, path, depth);
}

static void
find_below(berthi_build *build, const build_scope *scope, const berthi_json_value *nodes,
           berthi_text path, uint32_t depth)
{
    if (depth > BERTHI_BUILD_DEPTH)
        berthi_build_fail(build, path, depth, BERTHI_BUILD_DEPTH,
                          "sub-models inside each other without end");
    for (const berthi_json_value *at = berthi_json_first(nodes);
         at != NULL && build->status == BERTH_OK; at = berthi_json_next(at)) {
        const char *name;

        if (berthi_json_can_read_string(berthi_json_get(at, "n"), &name))
            find_at(build, scope, at,
                    berthi_build_join(build, path, berthi_text_of(name)), depth + 1);
    }
}

void
berthi_build_find_scopes(berthi_build *build, const berthi_catalogue_entry *entry)
{
    build_scope *const whole = add_scope(build, entry);

    if (whole == NULL)
        return;
    build->whole = whole;
    whole->config = build->options->config;
    find_below(build, whole, whole->top.children, whole->path, 0);
}
