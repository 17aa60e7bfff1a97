/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_rename.c - what the model calls a tensor: the bare model's prefix,
 * renames of later releases. See architecture_build.h.
 */
#include "quant/architecture_build.h"

/* One line of the description's "names". */
struct build_renaming {
    const char *from;
    const char *to;
    uint32_t dots;      /* of `from` */
    uint32_t tail;      /* where it has no index any more */
    uint32_t tail_length;
    bool has_number;    /* it is for one index only */
    bool drops_index;   /* the last one of `from`, as all lines for such names do */
};

/* ------------------------------------------------------------------- the lines */

static uint32_t
count_dots(const char *text)
{
    uint32_t dots = 0;

    for (; *text != '\0'; text++)
        dots += *text == '.';
    return dots;
}

/* True for a component "*". */
static bool
is_star(const char *pattern, size_t at)
{
    return pattern[at] == '*' && (at == 0 || pattern[at - 1] == '.')
           && (pattern[at + 1] == '.' || pattern[at + 1] == '\0');
}

static uint32_t
count_stars(const char *pattern)
{
    uint32_t stars = 0;

    for (size_t at = 0; pattern[at] != '\0'; at++)
        stars += is_star(pattern, at);
    return stars;
}

/* An index that is written out: names are not alike then whatever their index is. */
static bool
has_number(const char *pattern)
{
    for (size_t at = 0; pattern[at] != '\0'; at++)
        if (build_is_digit(pattern[at]) && (at == 0 || pattern[at - 1] == '.'))
            return true;
    return false;
}

static void
add_line(build_renamings *table, const char *from, const char *to)
{
    const char *const star = strrchr(from, '*');
    const size_t tail = star != NULL ? (size_t)(star + 1 - from) : 0;

    table->items[table->count++] = (build_renaming){
        .from = from,
        .to = to,
        .dots = count_dots(from),
        .tail = (uint32_t)tail,
        .tail_length = (uint32_t)strlen(from + tail),
        .has_number = has_number(from),
        .drops_index = star != NULL && is_star(from, (size_t)(star - from))
                       && count_stars(from) == count_stars(to) + 1,
    };
}

/* True when a name can begin as both do. */
static bool
can_overlap(const char *a, const char *b)
{
    for (;;) {
        const size_t length = strcspn(a, ".");
        const size_t other = strcspn(b, ".");

        if (!is_star(a, 0) && !is_star(b, 0)
            && (length != other || memcmp(a, b, length) != 0))
            return false;
        if (a[length] == '\0' || b[other] == '\0')
            return true;
        a += length + 1;
        b += other + 1;
    }
}

/* Where a line is for one index only, no other line stands for all of them. */
static void
tell_indices_apart(build_renamings *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        table->has_number |= table->items[i].has_number;
        for (uint32_t k = 0; table->items[i].has_number && k < table->count; k++)
            if (can_overlap(table->items[i].from, table->items[k].from))
                table->items[k].drops_index = false;
    }
}

/* A line that is of the scope: what lies below its place is renamed there. */
static void
add_within(build_scope *scope, const char *from, const char *to)
{
    const char *const inner_from = berthi_build_within(scope, from);
    const char *const inner_to = berthi_build_within(scope, to);

    if (inner_from != NULL && inner_to != NULL)
        add_line(&scope->renamings, inner_from, inner_to);
}

static void
add_corrections(const berthi_build *build, build_scope *scope)
{
    const build_correction *names;
    uint32_t position = 0;

    while ((names = berthi_build_correction(build->options->era, scope->class_name,
                                            &position))
           != NULL)
        add_within(scope, names->from, names->to);
}

static uint32_t
count_corrections(const berthi_build *build, const build_scope *scope)
{
    uint32_t position = 0;
    uint32_t count = 0;

    while (berthi_build_correction(build->options->era, scope->class_name, &position)
           != NULL)
        count++;
    return count;
}

static void
read_lines(berthi_build *build, build_scope *scope)
{
    const berthi_json_value *const list = berthi_build_member(scope, "names");
    const uint32_t count = berthi_json_count(list) + count_corrections(build, scope);

    if (count == 0)
        return;
    scope->renamings.items =
        berthi_build_alloc(build, count, sizeof *scope->renamings.items);
    if (scope->renamings.items == NULL)
        return;
    add_corrections(build, scope);
    for (const berthi_json_value *at = berthi_json_first(list); at != NULL;
         at = berthi_json_next(at)) {
        const char *from;
        const char *to;

        if (!berthi_json_can_read_string(berthi_json_first(at), &from)
            || !berthi_json_can_read_string(berthi_json_next(berthi_json_first(at)),
                                            &to)) {
            berthi_build_refuse(build, "\"names\" holds no pair of texts");
            return;
        }
        if (berthi_build_replacing(build, scope, berthi_build_outside(build, scope, from),
                                   berthi_build_outside(build, scope, to))
            == NULL)
            add_within(scope, from, to);
    }
    tell_indices_apart(&scope->renamings);
}

/* Length of what the pattern matches when that ends with a component, else UINT64_MAX. */
static uint32_t
dots_of(berthi_text name)
{
    uint32_t dots = 0;

    for (uint64_t i = 0; i < name.length; i++)
        dots += name.bytes[i] == '.';
    return dots;
}

/*
 * Says no where that is quick to see, which it is for nearly all names: a pattern has as
 * many parts as what it matches, and a whole name ends as the pattern does.
 */
static bool
can_match(const build_renaming *r, berthi_text name, uint32_t dots)
{
    if (r->dots != dots)
        return r->dots < dots;
    return name.length >= r->tail_length
           && memcmp(name.bytes + name.length - r->tail_length, r->from + r->tail,
                     r->tail_length)
                  == 0;
}

static uint64_t
match_components(const char *pattern, berthi_text name)
{
    const uint64_t matched = berthi_build_match(pattern, name.bytes, name.length);

    if (matched != UINT64_MAX && matched < name.length && name.bytes[matched] != '.')
        return UINT64_MAX;
    return matched;
}

/* The most specific line that fits: the one with the most components. */
static const build_renaming *
find_renaming(const build_renamings *table, berthi_text name, uint64_t *out_matched)
{
    const uint32_t dots = table->count > 0 ? dots_of(name) : 0;
    const build_renaming *best = NULL;

    for (uint32_t i = 0; i < table->count; i++) {
        const build_renaming *const r = &table->items[i];
        uint64_t matched;

        if ((best != NULL && r->dots <= best->dots) || !can_match(r, name, dots))
            continue;
        matched = match_components(r->from, name);
        if (matched != UINT64_MAX) {
            best = r;
            *out_matched = matched;
        }
    }
    return best;
}

/* The next component that is "*" in the pattern: what it stands for in the name. */
static berthi_text
take_index(const char **pattern, berthi_text *name)
{
    while (**pattern != '\0') {
        const size_t length = strcspn(*pattern, ".");
        const bool is_star = length == 1 && **pattern == '*';
        uint64_t own = 0;
        berthi_text component;

        while (own < name->length && name->bytes[own] != '.')
            own++;
        component = (berthi_text){ name->bytes, own };
        *pattern += length + ((*pattern)[length] == '.');
        own += own < name->length;
        name->bytes += own;
        name->length -= own;
        if (is_star)
            return component;
    }
    return (berthi_text){ "0", 1 };
}

/* Up to the next dot, or all of it. */
static size_t
part_length(const char *text)
{
    size_t length = 0;

    while (text[length] != '.' && text[length] != '\0')
        length++;
    return length;
}

/* Writes the new name to `out`, if any; returns its length. */
static uint64_t
write_renamed(const build_renaming *r, berthi_text name, uint64_t matched, char *out)
{
    const berthi_text rest = { name.bytes + matched, name.length - matched };
    const char *pattern = r->from;
    const char *to = r->to;
    berthi_text left = { name.bytes, matched };
    uint64_t length = 0;

    for (;;) {
        const size_t component = part_length(to);
        berthi_text piece = { to, component };

        if (component == 1 && *to == '*')
            piece = take_index(&pattern, &left);
        memcpy(out + length, piece.bytes, (size_t)piece.length);
        length += piece.length;
        to += component;
        if (*to++ == '\0')
            break;
        out[length++] = '.';
    }
    if (rest.length > 0)
        memcpy(out + length, rest.bytes, (size_t)rest.length);
    return length + rest.length;
}

/* Among these nodes the one that is called like the name's first component, or NULL. */
static const berthi_json_value *
find_first(const berthi_json_value *nodes, berthi_text name)
{
    berthi_text first = { name.bytes, 0 };

    while (first.length < name.length && name.bytes[first.length] != '.')
        first.length++;
    return berthi_build_find_node(nodes, first);
}

/*
 * True when the scope's tree has a place for the name, as far as it tells:
 * a sub-model may be of another type than the one that is described.
 */
static bool
is_in_tree(const build_scope *scope, berthi_text name)
{
    const berthi_json_value *nodes = scope->top.children;

    while (nodes != NULL) {
        const berthi_json_value *const node = find_first(nodes, name);
        const char *const dot = memchr(name.bytes, '.', (size_t)name.length);

        if (dot == NULL) /* a tensor of its own */
            return true;
        if (node == NULL)
            return false;
        name.length -= (uint64_t)(dot + 1 - name.bytes);
        name.bytes = dot + 1;
        nodes = berthi_json_get(node, "sub") == NULL ? berthi_json_get(node, "ch") : NULL;
    }
    return true;
}

/*
 * Descriptions tell the names of 5.x. Of 4.x, whose models were called as their
 * checkpoints unless parts had moved already (4.52), the tree tells which.
 */
static bool
is_renamed(const berthi_build *build, const build_scope *scope, berthi_text name,
           berthi_text renamed)
{
    return build->options->era != BERTHI_ERA_HF4
           || (!is_in_tree(scope, name) && is_in_tree(scope, renamed));
}

/*
 * Where the name has the index that is not in its new one: what is called alike but
 * for this index is renamed alike, too, where no line tells one index from others.
 */
static build_index
find_dropped(const berthi_build *build, const build_renaming *r, berthi_text name,
             uint64_t matched)
{
    build_index index = { 0, 0 };

    if (!r->drops_index || build->options->era == BERTHI_ERA_HF4)
        return index;
    index.end = matched - r->tail_length;
    index.begin = index.end;
    while (index.begin > 0 && build_is_digit(name.bytes[index.begin - 1]))
        index.begin--;
    return index;
}

/* A name, or what of it lies within the scope. */
static berthi_text
rename_in(berthi_build *build, const build_scope *scope, berthi_text name,
          build_index *out_dropped)
{
    uint64_t matched = 0;
    const build_renaming *const r = find_renaming(&scope->renamings, name, &matched);
    char written[512];
    berthi_text out;
    uint64_t most;
    char *longest;

    if (r == NULL)
        return name;
    /* Indices stay, the rest is at most as long as both. */
    most = name.length + strlen(r->to);
    longest = most <= sizeof written ? written : berthi_build_alloc(build, most, 1);
    if (longest == NULL)
        return name;
    out.length = write_renamed(r, name, matched, longest);
    out.bytes = berthi_build_text(build, longest, out.length);
    if (out.bytes == NULL || !is_renamed(build, scope, name, out))
        return name;
    *out_dropped = find_dropped(build, r, name, matched);
    return out;
}

/* ---------------------------------------------------------- the bare model */

/* True when the description has a top-level module or parameter of this name. */
static bool
is_top(const berthi_json_value *tree, berthi_text name)
{
    return find_first(tree, name) != NULL;
}

static berthi_text
get_name(const berthi_build *build, uint32_t position)
{
    berthi_model_tensor tensor;

    build->source->get(build->source->user, position, &tensor);
    return (berthi_text){ tensor.name, tensor.name_length };
}

static berthi_text
find_prefix(berthi_build *build)
{
    const berthi_json_value *const tree = build->whole->top.children;
    const char *base = "";
    berthi_text prefix;

    if (!berthi_json_can_read_string(berthi_build_member(build->whole, "base"), &base))
        return (berthi_text){ "", 0 };
    prefix = berthi_text_of(base);
    if (!is_top(tree, prefix))
        return (berthi_text){ "", 0 };
    for (uint32_t i = 0; i < build->source->count && build->status == BERTH_OK; i++) {
        build_index unused = { 0, 0 };

        if (is_top(tree, rename_in(build, build->whole, get_name(build, i), &unused)))
            return (berthi_text){ "", 0 };
    }
    return prefix;
}

/* ---------------------------------------------------------------- sub-models */

/*
 * Where the whole name has the index that is dropped of its rest: ends are the same. A
 * line for one index of the whole model would tell names apart that are alike here.
 */
static build_index
find_dropped_outside(const berthi_build *build, berthi_text name, berthi_text rest,
                     build_index inner)
{
    const build_index none = { 0, 0 };
    const uint64_t kept = rest.length - inner.begin;

    if (inner.end == 0 || build->whole->renamings.has_number || kept >= name.length
        || memcmp(name.bytes + name.length - kept, rest.bytes + inner.begin, (size_t)kept)
               != 0)
        return none;
    return (build_index){ name.length - kept,
                          name.length - kept + (inner.end - inner.begin) };
}

/* `name`, `renamed` as the whole model calls it, as the sub-model that has it does. */
static berthi_text
rename_inside(berthi_build *build, berthi_text name, berthi_text renamed,
              build_index *out_dropped)
{
    berthi_text rest;
    const build_scope *const scope = berthi_build_scope(build, renamed, &rest);
    build_index inner = { 0, 0 };
    berthi_text inside;

    if (scope == build->whole)
        return renamed;
    inside = rename_in(build, scope, rest, &inner);
    if (inside.bytes == rest.bytes)
        return renamed;
    *out_dropped = find_dropped_outside(build, name, rest, inner);
    return berthi_build_join(build, scope->path, inside);
}

/* ---------------------------------------------------------------------- calls */

berthi_text
berthi_build_read_renamings(berthi_build *build)
{
    for (build_scope *scope = build->scopes; scope != NULL; scope = scope->next)
        read_lines(build, scope);
    return find_prefix(build);
}

berthi_text
berthi_build_rename(berthi_build *build, berthi_text prefix, berthi_text name,
                    build_index *out_dropped)
{
    berthi_text whole = name;
    berthi_text renamed;

    *out_dropped = (build_index){ 0, 0 };
    if (prefix.length > 0)
        whole = berthi_build_join(build, prefix, name);
    renamed = rename_in(build, build->whole, whole, out_dropped);
    renamed = rename_inside(build, whole, renamed, out_dropped);
    if (prefix.length > 0 && out_dropped->end > 0) {
        out_dropped->begin -= prefix.length + 1;
        out_dropped->end -= prefix.length + 1;
    }
    return renamed;
}
