/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_ties.c - parameters that share memory: which, when config.json
 * switches them on, and where they stand. See architecture_build.h.
 */
#include "quant/architecture_build.h"

#include <stdlib.h>

#define TIES_MOST 4096u /* of layers with each other */

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

/*
 * Zamba's layers that share their weights. Files hold one copy, which does not tell who has
 * it, too: all of them have a matrix of their own called "linear". They take turns where
 * there are several copies.
 */
typedef struct sharing {
    const char *pattern; /* of what they share, '*' for the layer first */
    uint64_t prefix;     /* its length to there */
    berthi_text *layers; /* their numbers, in order */
    uint32_t count;
    uint32_t copies;
} sharing;

/* The number of the layer in a name that begins as the pattern does. */
static berthi_text
layer_of(const sharing *s, berthi_text name)
{
    uint64_t end = s->prefix;

    while (end < name.length && build_is_digit(name.bytes[end]))
        end++;
    return (berthi_text){ name.bytes + s->prefix, end - s->prefix };
}

static int
compare_layers(const void *left, const void *right)
{
    return berthi_build_compare_numbers(*(const berthi_text *)left,
                                        *(const berthi_text *)right);
}

static uint32_t
count_copies(const build_scope *scope)
{
    uint64_t copies = 1;

    (void)berthi_json_can_read_unsigned(
        berthi_json_get(berthi_build_part(scope, ""), "num_mem_blocks"), &copies);
    return copies < 1 || copies > UINT32_MAX ? 1 : (uint32_t)copies;
}

static bool
is_own_matrix(const sharing *s, berthi_text name)
{
    static const char own[] = ".linear.weight";
    const bool begins =
        name.length > s->prefix && memcmp(name.bytes, s->pattern, (size_t)s->prefix) == 0;
    const berthi_text layer = begins ? layer_of(s, name) : (berthi_text){ "", 0 };

    return layer.length > 0 && name.length == s->prefix + layer.length + strlen(own)
           && memcmp(layer.bytes + layer.length, own, strlen(own)) == 0;
}

static void
list_layers(berthi_build *build, sharing *s)
{
    const berthi_architecture *const made = build->made;
    uint32_t count = 0;

    for (uint32_t i = 0; i < made->parameter_count; i++)
        count += is_own_matrix(s, build_name(made->parameters[i]));
    s->layers = count > 0 ? berthi_build_alloc(build, count, sizeof *s->layers) : NULL;
    for (uint32_t i = 0; s->layers != NULL && i < made->parameter_count; i++)
        if (is_own_matrix(s, build_name(made->parameters[i])))
            s->layers[s->count++] = layer_of(s, build_name(made->parameters[i]));
    if (s->count > 0)
        qsort(s->layers, s->count, sizeof *s->layers, compare_layers);
}

static sharing
find_sharing(berthi_build *build, const build_scope *scope, const char *pattern)
{
    sharing s = { .pattern = pattern,
                  .prefix = strcspn(pattern, "*"),
                  .copies = count_copies(scope) };

    list_layers(build, &s);
    return s;
}

/* Whose copy the layer holds: its position, or the number of layers. */
static uint32_t
find_copy(const sharing *s, berthi_text name)
{
    const berthi_text layer = layer_of(s, name);
    const berthi_text *const found =
        s->count > 0
            ? bsearch(&layer, s->layers, s->count, sizeof *s->layers, compare_layers)
            : NULL;

    return found == NULL || found - s->layers >= (ptrdiff_t)s->copies
               ? s->count
               : (uint32_t)(found - s->layers);
}

/* The layers beside its own that have the copy which this name is of. */
static uint64_t
count_sharers(const sharing *s, berthi_text name)
{
    const uint32_t copy = find_copy(s, name);

    return copy < s->count ? (s->count - copy - 1) / s->copies : 0;
}

/* What this name is called in the layers that have the same copy. */
static void
share(berthi_build *build, const sharing *s, berthi_text name)
{
    const berthi_text rest = { name.bytes + s->prefix + layer_of(s, name).length,
                               name.length - s->prefix - layer_of(s, name).length };
    const uint32_t copy = find_copy(s, name);

    for (uint64_t i = copy + (uint64_t)s->copies; i < s->count; i += s->copies) {
        const berthi_text begin =
            join_texts(build, (berthi_text){ s->pattern, s->prefix }, s->layers[i]);

        add_tie(build, join_texts(build, begin, rest), name);
    }
}

/* All that match share the memory of the first one. */
static void
tie_to_first(berthi_build *build, const char *pattern)
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

/* In the model every layer has what the first ones store. */
static void
tie_alike(berthi_build *build, const build_scope *scope, const char *pattern)
{
    const berthi_architecture *const made = build->made;
    const sharing s = find_sharing(build, scope, pattern);

    if (s.count == 0) {
        tie_to_first(build, pattern);
        return;
    }
    for (uint32_t i = 0; i < made->parameter_count && build->status == BERTH_OK; i++) {
        const berthi_text name = build_name(made->parameters[i]);

        if (berthi_build_is_match(pattern, name.bytes, name.length))
            share(build, &s, name);
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

/* Of all parameters that match the source of a line, which has a '*'. */
static uint64_t
count_ties(berthi_build *build, const build_scope *scope, const line *l)
{
    const berthi_architecture *const made = build->made;
    const sharing s = berthi_text_is_same(l->target, l->source)
                          ? find_sharing(build, scope, l->source.bytes)
                          : (sharing){ .count = 0 };
    uint64_t count = 0;

    for (uint32_t i = 0; i < made->parameter_count; i++) {
        const berthi_text name = build_name(made->parameters[i]);

        if (berthi_build_is_match(l->source.bytes, name.bytes, name.length))
            count += s.count > 0 ? count_sharers(&s, name) : 1;
    }
    return count;
}

/* At most as many as the lines of the descriptions and what they match make. */
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

            if (can_read_line(build, scope, at, &l) && strchr(l.source.bytes, '*') != NULL)
                count += count_ties(build, scope, &l);
        }
    if (count > TIES_MOST + (uint64_t)made->parameter_count) {
        berthi_build_fail(build, (berthi_text){ "", 0 }, count, TIES_MOST,
                          "weights that are tied");
        return false;
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
            tie_alike(build, scope, l.source.bytes);
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
