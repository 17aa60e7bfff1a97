/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_names.c - names of the checkpoint become parameters of the
 * model: the bare model's prefix, renames of later releases, experts that are
 * fused (several tensors, one parameter). See architecture_build.h.
 */
#include "quant/architecture_build.h"

/* ----------------------------------------------------------------- patterns */

uint64_t
berthi_build_match(const char *pattern, const char *text, uint64_t length)
{
    uint64_t at = 0;

    for (; *pattern != '\0'; pattern++) {
        if (at == length)
            return UINT64_MAX;
        if (*pattern != '*') {
            if (text[at++] != *pattern)
                return UINT64_MAX;
            continue;
        }
        if (!build_is_digit(text[at]))
            return UINT64_MAX;
        while (at < length && build_is_digit(text[at]))
            at++;
    }
    return at;
}

bool
berthi_build_is_match(const char *pattern, const char *text, uint64_t length)
{
    return berthi_build_match(pattern, text, length) == length;
}

/* --------------------------------------------------------------------- order */

static unsigned
rank_of(char byte)
{
    return byte == '.' ? 0 : (unsigned)(unsigned char)byte + 1;
}

int
berthi_build_compare(build_text a, build_text b)
{
    const uint64_t shorter = berthi_min_u64(a.length, b.length);

    for (uint64_t i = 0; i < shorter; i++)
        if (a.bytes[i] != b.bytes[i])
            return rank_of(a.bytes[i]) < rank_of(b.bytes[i]) ? -1 : 1;
    return (a.length > b.length) - (a.length < b.length);
}

static int
compare_parameters(const void *a, const void *b)
{
    return berthi_build_compare(build_name(a), build_name(b));
}

/* One pass of a merge sort: runs of `width` items become runs of twice that. */
static void
merge_runs(void **from, void **to, uint32_t count, uint32_t width, build_compare compare)
{
    for (uint64_t begin = 0; begin < count; begin += 2 * (uint64_t)width) {
        const uint64_t middle = berthi_min_u64(begin + width, count);
        const uint64_t end = berthi_min_u64(middle + width, count);
        uint64_t left = begin;
        uint64_t right = middle;

        for (uint64_t at = begin; at < end; at++)
            to[at] = left < middle
                             && (right == end || compare(from[left], from[right]) <= 0)
                         ? from[left++]
                         : from[right++];
    }
}

void
berthi_build_sort(berthi_build *build, void **items, uint32_t count, build_compare compare)
{
    void **scratch;
    void **from = items;
    uint32_t i = 1;

    if (build->status != BERTH_OK) /* there may be no list */
        return;
    /* Most lists come in order. */
    while (i < count && compare(items[i - 1], items[i]) <= 0)
        i++;
    if (i >= count)
        return;
    scratch = berthi_memory_array(build->context, BERTHI_PURPOSE_SCRATCH, count,
                                  sizeof *scratch);
    if (scratch == NULL) {
        build->status = berthi_fail_memory(build->error, "laying out the model");
        return;
    }
    for (uint64_t width = 1; width < count; width *= 2) {
        void **const to = from == items ? scratch : items;

        merge_runs(from, to, count, (uint32_t)width, compare);
        from = to;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
    berthi_memory_free(build->context, BERTHI_PURPOSE_SCRATCH, scratch,
                       count * sizeof *scratch);
}

/* ------------------------------------------------------------------- looking */

/* Below, in or above the names that lie below `path`. */
static int
compare_below(build_text name, build_text path)
{
    const build_text head = { name.bytes, berthi_min_u64(name.length, path.length) };
    const int order = berthi_build_compare(head, path);

    if (order != 0 || path.length == 0)
        return order;
    if (name.length == path.length)
        return -1;
    return name.bytes[path.length] == '.' ? 0 : 1;
}

/* The first parameter that is not below (`limit` 0) or is above (1) the stretch. */
static uint32_t
find_bound(const berthi_build *build, build_text path, int limit)
{
    uint32_t low = 0;
    uint32_t high = build->made->parameter_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (compare_below(build_name(build->made->parameters[middle]), path) < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

build_range
berthi_build_below(const berthi_build *build, build_text path)
{
    return (build_range){ find_bound(build, path, 0), find_bound(build, path, 1) };
}

berthi_parameter *
berthi_build_find(const berthi_build *build, build_text name)
{
    uint32_t low = 0;
    uint32_t high = build->made->parameter_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        berthi_parameter *const parameter = build->made->parameters[middle];
        const int order = berthi_build_compare(build_name(parameter), name);

        if (order == 0)
            return parameter;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ------------------------------------------------------------------ renaming */

/* One line of the description's "names". */
typedef struct renaming {
    const char *from;
    const char *to;
    uint32_t dots;
} renaming;

typedef struct renamings {
    renaming *items;
    uint32_t count;
} renamings;

static uint32_t
count_dots(const char *text)
{
    uint32_t dots = 0;

    for (; *text != '\0'; text++)
        dots += *text == '.';
    return dots;
}

static uint32_t
count_elements(const berthi_json_value *list)
{
    uint32_t count = 0;

    for (const berthi_json_value *at = berthi_json_first(list); at != NULL;
         at = berthi_json_next(at))
        count++;
    return count;
}

/* Names changed in 5.0; before, the model's were the checkpoint's. */
static renamings
read_renamings(berthi_build *build)
{
    const berthi_json_value *const list = berthi_build_member(build, "names");
    renamings table = { NULL, 0 };

    if (list == NULL || build->options->era == BERTHI_ERA_HF4)
        return table;
    table.items = berthi_build_alloc(build, count_elements(list), sizeof *table.items);
    if (table.items == NULL)
        return table;
    for (const berthi_json_value *at = berthi_json_first(list); at != NULL;
         at = berthi_json_next(at)) {
        renaming *const r = &table.items[table.count++];

        if (!berthi_json_can_read_string(berthi_json_first(at), &r->from)
            || !berthi_json_can_read_string(berthi_json_next(berthi_json_first(at)),
                                            &r->to)) {
            berthi_build_refuse(build, "\"names\" holds no pair of texts");
            return (renamings){ NULL, 0 };
        }
        r->dots = count_dots(r->from);
    }
    return table;
}

/* Length of what the pattern matches when that ends with a component, else UINT64_MAX. */
static uint64_t
match_components(const char *pattern, build_text name)
{
    const uint64_t matched = berthi_build_match(pattern, name.bytes, name.length);

    if (matched != UINT64_MAX && matched < name.length && name.bytes[matched] != '.')
        return UINT64_MAX;
    return matched;
}

/* The most specific line that fits: the one with the most components. */
static const renaming *
find_renaming(const renamings *table, build_text name, uint64_t *out_matched)
{
    const renaming *best = NULL;

    for (uint32_t i = 0; i < table->count; i++) {
        const renaming *const r = &table->items[i];
        uint64_t matched;

        if (best != NULL && r->dots <= best->dots)
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
static build_text
take_index(const char **pattern, build_text *name)
{
    while (**pattern != '\0') {
        const size_t length = strcspn(*pattern, ".");
        const bool is_star = length == 1 && **pattern == '*';
        uint64_t own = 0;
        build_text component;

        while (own < name->length && name->bytes[own] != '.')
            own++;
        component = (build_text){ name->bytes, own };
        *pattern += length + ((*pattern)[length] == '.');
        own += own < name->length;
        name->bytes += own;
        name->length -= own;
        if (is_star)
            return component;
    }
    return (build_text){ "0", 1 };
}

/* Writes the new name to `out`, if any; returns its length. */
static uint64_t
write_renamed(const renaming *r, build_text name, uint64_t matched, char *out)
{
    const build_text rest = { name.bytes + matched, name.length - matched };
    const char *pattern = r->from;
    const char *to = r->to;
    build_text left = { name.bytes, matched };
    uint64_t length = 0;

    for (;;) {
        const size_t component = strcspn(to, ".");
        build_text piece = { to, component };

        if (component == 1 && *to == '*')
            piece = take_index(&pattern, &left);
        if (out != NULL)
            memcpy(out + length, piece.bytes, (size_t)piece.length);
        length += piece.length;
        to += component;
        if (*to++ == '\0')
            break;
        if (out != NULL)
            out[length] = '.';
        length++;
    }
    if (out != NULL && rest.length > 0)
        memcpy(out + length, rest.bytes, (size_t)rest.length);
    return length + rest.length;
}

static build_text
rename_one(berthi_build *build, const renamings *table, build_text name)
{
    uint64_t matched = 0;
    const renaming *const r = find_renaming(table, name, &matched);
    uint64_t length;
    char *renamed;

    if (r == NULL)
        return name;
    length = write_renamed(r, name, matched, NULL);
    renamed = berthi_build_alloc(build, length + 1, 1);
    if (renamed == NULL)
        return name;
    write_renamed(r, name, matched, renamed);
    return (build_text){ renamed, length };
}

/* ---------------------------------------------------------- the bare model */

/* True when the description has a top-level module or parameter of this name. */
static bool
is_top(const berthi_json_value *tree, build_text name)
{
    uint64_t length = 0;

    while (length < name.length && name.bytes[length] != '.')
        length++;
    for (const berthi_json_value *at = berthi_json_first(tree); at != NULL;
         at = berthi_json_next(at)) {
        const char *word;

        if ((berthi_json_can_read_string(at, &word)
             || berthi_json_can_read_string(berthi_json_get(at, "n"), &word))
            && strlen(word) == length && memcmp(word, name.bytes, (size_t)length) == 0)
            return true;
    }
    return false;
}

static build_text
get_name(const berthi_build *build, uint32_t position)
{
    berthi_model_tensor tensor;

    build->source->get(build->source->user, position, &tensor);
    return (build_text){ tensor.name, tensor.name_length };
}

/* The prefix that the names lack, as those of a bare model do; "" for none. */
static build_text
find_prefix(berthi_build *build, const renamings *table)
{
    const berthi_json_value *const tree = berthi_build_member(build, "tree");
    const char *base = "";
    build_text prefix;

    if (!berthi_json_can_read_string(berthi_build_member(build, "base"), &base))
        return (build_text){ "", 0 };
    prefix = (build_text){ base, strlen(base) };
    if (!is_top(tree, prefix))
        return (build_text){ "", 0 };
    for (uint32_t i = 0; i < build->source->count && build->status == BERTH_OK; i++)
        if (is_top(tree, rename_one(build, table, get_name(build, i))))
            return (build_text){ "", 0 };
    return prefix;
}

/* ---------------------------------------------------------------- parameters */

static void
take_tensor(berthi_build *build, uint32_t position, build_text name,
            berthi_parameter *parameter)
{
    berthi_model_tensor tensor;

    build->source->get(build->source->user, position, &tensor);
    parameter->name = name.bytes;
    parameter->name_length = name.length;
    parameter->shape = tensor.shape;
    parameter->rank = tensor.rank;
    parameter->elements = tensor.elements;
    parameter->dtype = tensor.dtype;
    parameter->first_piece = position;
    parameter->piece_count = 1;
}

/*
 * Parameters of equal names become one, its pieces in the order of positions:
 * the sort is stable. Returns how many are left.
 */
static uint32_t
fuse_pieces(berthi_architecture *made, berthi_parameter **items, uint32_t count)
{
    uint32_t kept = 0;
    uint32_t last_piece = 0;

    for (uint32_t i = 0; i < count; i++) {
        berthi_parameter *const piece = items[i];
        berthi_parameter *const whole = kept > 0 ? items[kept - 1] : NULL;
        const uint32_t position = piece->first_piece;

        if (whole == NULL || compare_parameters(whole, piece) != 0) {
            items[kept++] = piece;
        } else {
            made->next_piece[last_piece] = position;
            whole->piece_count++;
            /* Cannot overflow in a real file; saturated, it is at least absurd. */
            if (!berthi_can_add(whole->elements, piece->elements, &whole->elements))
                whole->elements = UINT64_MAX;
        }
        made->next_piece[position] = BERTHI_NO_POSITION;
        made->parameter_of[position] = items[kept - 1];
        last_piece = position;
    }
    return kept;
}

void
berthi_build_names(berthi_build *build)
{
    const uint32_t count = build->source->count;
    berthi_architecture *const made = build->made;
    const renamings table = read_renamings(build);
    const build_text prefix = find_prefix(build, &table);
    berthi_parameter *const all = berthi_build_alloc(build, count, sizeof *all);

    made->tensor_count = count;
    made->parameters = berthi_build_alloc(build, count, sizeof *made->parameters);
    made->parameter_of = berthi_build_alloc(build, count, sizeof *made->parameter_of);
    made->next_piece = berthi_build_alloc(build, count, sizeof *made->next_piece);
    for (uint32_t i = 0; i < count && build->status == BERTH_OK; i++) {
        build_text name = get_name(build, i);

        if (prefix.length > 0)
            name = berthi_build_join(build, prefix, name);
        take_tensor(build, i, rename_one(build, &table, name), &all[i]);
        made->parameters[i] = &all[i];
    }
    berthi_build_sort(build, (void **)made->parameters, count, compare_parameters);
    if (build->status != BERTH_OK)
        return;
    made->parameter_count = fuse_pieces(made, made->parameters, count);
    for (uint32_t i = 0; i < made->parameter_count; i++)
        berthi_build_describe_parameter(build, made->parameters[i]);
}

void
berthi_build_alias(berthi_build *build, build_text name, const berthi_parameter *like)
{
    berthi_architecture *const made = build->made;
    const uint32_t count = made->parameter_count;
    berthi_parameter **const longer =
        berthi_build_alloc(build, (uint64_t)count + 1, sizeof *longer);
    berthi_parameter *const alias = berthi_build_alloc(build, 1, sizeof *alias);

    if (alias == NULL)
        return;
    *alias = *like;
    alias->name = name.bytes;
    alias->name_length = name.length;
    if (count > 0)
        memcpy(longer, made->parameters, count * sizeof *longer);
    longer[count] = alias;
    made->parameters = longer;
    made->parameter_count++;
    berthi_build_sort(build, (void **)longer, count + 1, compare_parameters);
    berthi_build_describe_parameter(build, alias);
}
