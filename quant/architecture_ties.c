/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_ties.c - parameters that share memory: which, when config.json
 * switches them on, and where they stand. See architecture_build.h.
 */
#include "quant/architecture_build.h"

/* "tie_word_embeddings" of a part of config.json; false: it says nothing. */
static bool
has_tie_flag(const build_scope *scope, const char *part, bool *out)
{
    return berthi_json_can_read_bool(
        berthi_json_get(berthi_build_part(scope, part), "tie_word_embeddings"), out);
}

/* The default of the sub-model whose part it is, where that is of another type. */
static void
take_default(const berthi_build *build, const berthi_json_value *config, bool *out)
{
    for (const build_scope *at = build->scopes; at != NULL; at = at->next)
        if (config != NULL && at->config == config)
            (void)berthi_json_can_read_bool(berthi_build_member(at, "tie_default"), out);
}

/* Whether config.json, or the class's default, switches this tie on. */
static bool
is_active(const berthi_build *build, const build_scope *scope, const char *target)
{
    const berthi_json_value *const by =
        berthi_json_get(berthi_build_member(scope, "tied_by"), target);
    const char *part = "";
    bool is_tied = false;

    if (by != NULL) {
        (void)berthi_json_can_read_string(berthi_json_first(by), &part);
        (void)berthi_json_can_read_bool(berthi_json_next(berthi_json_first(by)), &is_tied);
    } else {
        (void)berthi_json_can_read_bool(berthi_build_member(scope, "tie_default"),
                                        &is_tied);
    }
    if (has_tie_flag(scope, part, &is_tied) || *part != '\0')
        return is_tied;
    if (berthi_json_can_read_string(berthi_build_member(scope, "tie_from"), &part)) {
        take_default(build, berthi_build_part(scope, part), &is_tied);
        (void)has_tie_flag(scope, part, &is_tied);
    }
    return is_tied;
}

static void
add_tie(berthi_build *build, berthi_text target, berthi_text source)
{
    berthi_architecture *const made = build->made;
    const char *const target_copy = berthi_build_text(build, target.bytes, target.length);
    const char *const source_copy = berthi_build_text(build, source.bytes, source.length);

    if (source_copy != NULL)
        made->ties[made->tie_count++] = (berthi_tie){ target_copy, source_copy };
}

static berthi_text
join_texts(berthi_build *build, berthi_text a, berthi_text b)
{
    char *const joined = berthi_build_alloc(build, a.length + b.length + 1, 1);

    if (joined == NULL)
        return a;
    memcpy(joined, a.bytes, (size_t)a.length);
    memcpy(joined + a.length, b.bytes, (size_t)b.length);
    return (berthi_text){ joined, a.length + b.length };
}

int
berthi_build_compare_numbers(berthi_text a, berthi_text b)
{
    uint64_t i = 0;
    uint64_t k = 0;

    while (i < a.length && k < b.length) {
        const uint64_t i_begin = i;
        const uint64_t k_begin = k;
        int order;

        while (i < a.length && build_is_digit(a.bytes[i]))
            i++;
        while (k < b.length && build_is_digit(b.bytes[k]))
            k++;
        if (i - i_begin != k - k_begin)
            return i - i_begin < k - k_begin ? -1 : 1;
        order = memcmp(a.bytes + i_begin, b.bytes + k_begin, (size_t)(i - i_begin));
        if (order != 0)
            return order;
        i++;
        k++;
    }
    return 0;
}

/* All that match share the memory of the first one. */
static void
tie_alike(berthi_build *build, const char *pattern)
{
    const berthi_architecture *const made = build->made;
    berthi_text first = { NULL, 0 };

    for (uint32_t i = 0; i < made->parameter_count; i++) {
        const berthi_text name = build_name(made->parameters[i]);

        if (berthi_build_is_match(pattern, name.bytes, name.length)
            && (first.bytes == NULL || berthi_build_compare_numbers(name, first) < 0))
            first = name;
    }
    for (uint32_t i = 0; i < made->parameter_count; i++) {
        const berthi_text name = build_name(made->parameters[i]);

        if (name.bytes != first.bytes
            && berthi_build_is_match(pattern, name.bytes, name.length))
            add_tie(build, name, first);
    }
}

/* The target of a source: each '*' is the number at the same place. */
static berthi_text
fill_pattern(berthi_build *build, const char *target, berthi_text source)
{
    berthi_text made = { "", 0 };
    uint64_t at = 0;

    while (*target != '\0' && build->status == BERTH_OK) {
        const size_t plain = strcspn(target, "*");
        uint64_t begin;

        made = join_texts(build, made, (berthi_text){ target, plain });
        target += plain;
        if (*target == '\0')
            break;
        target++;
        while (at < source.length && !build_is_digit(source.bytes[at]))
            at++;
        begin = at;
        while (at < source.length && build_is_digit(source.bytes[at]))
            at++;
        made = join_texts(build, made, (berthi_text){ source.bytes + begin, at - begin });
    }
    return made;
}

static void
tie_each(berthi_build *build, const char *target, const char *source)
{
    const berthi_architecture *const made = build->made;

    for (uint32_t i = 0; i < made->parameter_count && build->status == BERTH_OK; i++) {
        const berthi_text name = build_name(made->parameters[i]);

        if (berthi_build_is_match(source, name.bytes, name.length))
            add_tie(build, fill_pattern(build, target, name), name);
    }
}

/* A line of "tied" as the model calls both. */
typedef struct line {
    berthi_text target;
    berthi_text source;
} line;

/* False for a line that is not of the scope, or of what another class stands for. */
static bool
can_read_line(berthi_build *build, const build_scope *scope, const berthi_json_value *at,
              line *out)
{
    const build_scope *replacing;
    const char *source;

    if (!berthi_json_can_read_string(at, &source)) {
        berthi_build_refuse(build, "\"tied\" holds something that is no text");
        return false;
    }
    out->target = berthi_build_outside(build, scope, berthi_json_key(at));
    out->source = berthi_build_outside(build, scope, source);
    if (out->target.length == 0 || out->source.length == 0)
        return false;
    replacing = berthi_build_replacing(build, scope, out->target, out->source);
    return replacing == NULL || replacing->is_tower;
}

/* At most one for each line of the descriptions and each parameter it matches. */
static bool
can_hold_ties(berthi_build *build)
{
    const berthi_architecture *const made = build->made;
    uint64_t count = 0;

    for (const build_scope *scope = build->scopes; scope != NULL; scope = scope->next)
        for (const berthi_json_value *at =
                 berthi_json_first(berthi_build_member(scope, "tied"));
             at != NULL; at = berthi_json_next(at), count++) {
            line l;

            if (can_read_line(build, scope, at, &l)
                && strchr(l.source.bytes, '*') != NULL)
                for (uint32_t i = 0; i < made->parameter_count; i++)
                    count += berthi_build_is_match(l.source.bytes,
                                                   made->parameters[i]->name,
                                                   made->parameters[i]->name_length);
        }
    build->made->ties = berthi_build_alloc(build, count, sizeof(berthi_tie));
    return build->made->ties != NULL;
}

static void
find_ties_of(berthi_build *build, const build_scope *scope)
{
    for (const berthi_json_value *at =
             berthi_json_first(berthi_build_member(scope, "tied"));
         at != NULL && build->status == BERTH_OK; at = berthi_json_next(at)) {
        line l;

        if (!can_read_line(build, scope, at, &l)
            || !is_active(build, scope, berthi_json_key(at)))
            continue;
        if (strchr(l.target.bytes, '*') == NULL)
            add_tie(build, l.target, l.source);
        else if (berthi_text_is_same(l.target, l.source))
            tie_alike(build, l.source.bytes);
        else
            tie_each(build, l.target.bytes, l.source.bytes);
    }
}

void
berthi_build_find_ties(berthi_build *build)
{
    berthi_architecture *const made = build->made;

    if (!can_hold_ties(build))
        return;
    for (const build_scope *scope = build->scopes; scope != NULL; scope = scope->next)
        find_ties_of(build, scope);
    for (uint32_t i = 0; i < made->tie_count; i++) {
        const berthi_parameter *const there =
            berthi_build_find(build, berthi_text_of(made->ties[i].target));

        if (there != NULL
            && berthi_build_find(build, berthi_text_of(made->ties[i].source)) == NULL)
            berthi_build_alias(build, berthi_text_of(made->ties[i].source), there);
    }
}

/* The target as it is in the model, made where the checkpoint has none. */
static berthi_parameter *
place_target(berthi_build *build, berthi_text name)
{
    berthi_parameter *target = berthi_build_find(build, name);
    berthi_text last;
    berthi_module *module;

    if (target == NULL) {
        target = berthi_build_alloc(build, 1, sizeof *target);
        if (target == NULL)
            return NULL;
        target->name = name.bytes;
        target->name_length = name.length;
        target->first_piece = BERTHI_NO_POSITION;
    }
    if (target->module != NULL)
        return target;
    module = berthi_build_reach(build, build->made->root, berthi_build_split(name, &last),
                                BERTHI_MODULE_PLAIN);
    if (module == NULL)
        return NULL;
    berthi_build_add(module, target, false);
    return target;
}

void
berthi_build_place_ties(berthi_build *build)
{
    const berthi_architecture *const made = build->made;

    for (uint32_t i = 0; i < made->tie_count && build->status == BERTH_OK; i++) {
        const char *const source_name = made->ties[i].source;
        /* In the tree, not in the list: what a tie has placed may be a source. */
        berthi_parameter *const source = (berthi_parameter *)berthi_architecture_find(
            made, source_name, strlen(source_name));
        berthi_parameter *target;

        if (source == NULL)
            continue;
        target = place_target(build, berthi_text_of(made->ties[i].target));
        if (target == NULL || target == source)
            continue;
        target->tie = source;
        target->shape = source->shape;
        target->rank = source->rank;
        target->elements = source->elements;
        target->dtype = source->dtype;
        target->is_linear =
            source->rank == 2
            && berthi_build_is_linear(build, build_name(target), &target->is_linear_kind);
        source->is_tie_source = true;
    }
}
