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
    for (uint32_t i = 0; i < table->count; i++)
        for (uint32_t k = 0; table->items[i].has_number && k < table->count; k++)
            if (can_overlap(table->items[i].from, table->items[k].from))
                table->items[k].drops_index = false;
}

static void
add_corrections(const berthi_build *build, build_renamings *table)
{
    const build_correction *names;
    uint32_t position = 0;

    while ((names = berthi_build_correction(build, &position)) != NULL)
        add_line(table, names->from, names->to);
}

static uint32_t
count_corrections(const berthi_build *build)
{
    uint32_t position = 0;
    uint32_t count = 0;

    while (berthi_build_correction(build, &position) != NULL)
        count++;
    return count;
}

static build_renamings
read_lines(berthi_build *build)
{
    const berthi_json_value *const list = berthi_build_member(build, "names");
    build_renamings table = { 0 };
    const uint32_t count = berthi_json_count(list) + count_corrections(build);

    if (count == 0)
        return table;
    table.items = berthi_build_alloc(build, count, sizeof *table.items);
    if (table.items == NULL)
        return table;
    add_corrections(build, &table);
    for (const berthi_json_value *at = berthi_json_first(list); at != NULL;
         at = berthi_json_next(at)) {
        const char *from;
        const char *to;

        if (!berthi_json_can_read_string(berthi_json_first(at), &from)
            || !berthi_json_can_read_string(berthi_json_next(berthi_json_first(at)),
                                            &to)) {
            berthi_build_refuse(build, "\"names\" holds no pair of texts");
            return (build_renamings){ 0 };
        }
        add_line(&table, from, to);
    }
    tell_indices_apart(&table);
    return table;
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
 * True when the description's tree has a place for the name, as far as it tells:
 * a sub-model may be of another type than the one that is described.
 */
static bool
is_in_tree(const berthi_build *build, berthi_text name)
{
    const berthi_json_value *nodes = berthi_build_member(build, "tree");

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
is_renamed(const berthi_build *build, berthi_text name, berthi_text renamed)
{
    return build->options->era != BERTHI_ERA_HF4
           || (!is_in_tree(build, name) && is_in_tree(build, renamed));
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

static berthi_text
rename_whole(berthi_build *build, const build_renamings *table, berthi_text name,
             build_index *out_dropped)
{
    uint64_t matched = 0;
    const build_renaming *const r = find_renaming(table, name, &matched);
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
    if (out.bytes == NULL || !is_renamed(build, name, out))
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

/* The prefix that the names lack, as those of a bare model do; "" for none. */
static berthi_text
find_prefix(berthi_build *build, const build_renamings *table)
{
    const berthi_json_value *const tree = berthi_build_member(build, "tree");
    const char *base = "";
    berthi_text prefix;

    if (!berthi_json_can_read_string(berthi_build_member(build, "base"), &base))
        return (berthi_text){ "", 0 };
    prefix = berthi_text_of(base);
    if (!is_top(tree, prefix))
        return (berthi_text){ "", 0 };
    for (uint32_t i = 0; i < build->source->count && build->status == BERTH_OK; i++) {
        build_index unused = { 0, 0 };

        if (is_top(tree, rename_whole(build, table, get_name(build, i), &unused)))
            return (berthi_text){ "", 0 };
    }
    return prefix;
}

/* ---------------------------------------------------------------------- calls */

build_renamings
berthi_build_read_renamings(berthi_build *build)
{
    build_renamings table = read_lines(build);

    table.prefix = find_prefix(build, &table);
    return table;
}

berthi_text
berthi_build_rename(berthi_build *build, const build_renamings *table, berthi_text name,
                    build_index *out_dropped)
{
    berthi_text whole = name;
    berthi_text renamed;

    *out_dropped = (build_index){ 0, 0 };
    if (table->prefix.length > 0)
        whole = berthi_build_join(build, table->prefix, name);
    renamed = rename_whole(build, table, whole, out_dropped);
    if (table->prefix.length > 0 && out_dropped->end > 0) {
        out_dropped->begin -= table->prefix.length + 1;
        out_dropped->end -= table->prefix.length + 1;
    }
    return renamed;
}
