/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_names.c - tensors of the checkpoint become parameters of the model:
 * several of them one parameter, where the model fuses experts. Patterns, order and
 * search of names. See architecture_build.h.
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

/* Bytes that both begin with, in whole words: names of one model share most of theirs. */
static uint64_t
skip_equal_words(const char *a, const char *b, uint64_t length)
{
    uint64_t at = 0;

    while (length - at >= sizeof(uint64_t)) {
        uint64_t word_a;
        uint64_t word_b;

        memcpy(&word_a, a + at, sizeof word_a);
        memcpy(&word_b, b + at, sizeof word_b);
        if (word_a != word_b)
            break;
        at += sizeof word_a;
    }
    return at;
}

/* '.' before all other bytes. */
static int
compare_texts(berthi_text a, berthi_text b)
{
    const uint64_t shorter = berthi_min_u64(a.length, b.length);

    for (uint64_t i = skip_equal_words(a.bytes, b.bytes, shorter); i < shorter; i++)
        if (a.bytes[i] != b.bytes[i])
            return rank_of(a.bytes[i]) < rank_of(b.bytes[i]) ? -1 : 1;
    return (a.length > b.length) - (a.length < b.length);
}

static int
compare_parameters(const void *a, const void *b)
{
    return compare_texts(build_name(a), build_name(b));
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

        if (middle < end && compare(from[middle - 1], from[middle]) <= 0) {
            memcpy(to + begin, from + begin, (end - begin) * sizeof *to);
            continue; /* one run already, as most are */
        }
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
compare_below(berthi_text name, berthi_text path)
{
    const berthi_text head = { name.bytes, berthi_min_u64(name.length, path.length) };
    const int order = compare_texts(head, path);

    if (order != 0 || path.length == 0)
        return order;
    if (name.length == path.length)
        return -1;
    return name.bytes[path.length] == '.' ? 0 : 1;
}

/* The first parameter that is not below (`limit` 0) or is above (1) the stretch. */
static uint32_t
find_bound(const berthi_build *build, berthi_text path, int limit)
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
berthi_build_below(const berthi_build *build, berthi_text path)
{
    return (build_range){ find_bound(build, path, 0), find_bound(build, path, 1) };
}

berthi_parameter *
berthi_build_find(const berthi_build *build, berthi_text name)
{
    uint32_t low = 0;
    uint32_t high = build->made->parameter_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        berthi_parameter *const parameter = build->made->parameters[middle];
        const int order = compare_texts(build_name(parameter), name);

        if (order == 0)
            return parameter;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---------------------------------------------------------------- parameters */

/*
 * A tensor whose index the model drops, as it fuses them: bytes before and behind the
 * index, and what all such tensors become.
 */
typedef struct fused {
    berthi_text head;
    berthi_text tail;
    berthi_parameter *parameter;
    uint32_t behind; /* which of the recent ones came behind it the last time */
} fused;

/* Experts come one after the other, each with a few tensors. */
#define FUSED_COUNT 8u

typedef struct naming {
    berthi_build *build;
    berthi_text prefix; /* that all names lack */
    bool has_remade;
    fused recent[FUSED_COUNT];
    uint32_t fused_count; /* that have been kept, the oldest of them overwritten */
    uint32_t last_fused;  /* that was found or kept */
} naming;

static bool
is_fused_like(const fused *f, berthi_text name)
{
    uint64_t at = f->head.length;
    uint64_t end;

    if (f->parameter == NULL || name.length <= f->head.length + f->tail.length)
        return false;
    end = name.length - f->tail.length;
    if (memcmp(name.bytes + end, f->tail.bytes, (size_t)f->tail.length) != 0
        || memcmp(name.bytes, f->head.bytes, (size_t)f->head.length) != 0)
        return false;
    while (at < end && build_is_digit(name.bytes[at]))
        at++;
    return at == end;
}

/* What a tensor of this name becomes a part of, as others have; NULL: not known yet. */
static berthi_parameter *
find_fused(naming *n, berthi_text name)
{
    uint32_t at = n->recent[n->last_fused].behind; /* as experts come in turn */

    if (!is_fused_like(&n->recent[at], name)) {
        at = 0;
        while (at < FUSED_COUNT && !is_fused_like(&n->recent[at], name))
            at++;
    }
    if (at == FUSED_COUNT)
        return NULL;
    n->recent[n->last_fused].behind = at;
    n->last_fused = at;
    return n->recent[at].parameter;
}

/* Tensors of two names may become one parameter, too. */
static berthi_parameter *
find_renamed(const naming *n, berthi_text renamed)
{
    for (uint32_t i = 0; i < FUSED_COUNT; i++)
        if (n->recent[i].parameter != NULL
            && berthi_text_is_same(build_name(n->recent[i].parameter), renamed))
            return n->recent[i].parameter;
    return NULL;
}

static void
keep_fused(naming *n, berthi_text name, build_index index, berthi_parameter *parameter)
{
    n->last_fused = n->fused_count++ % FUSED_COUNT;
    n->recent[n->last_fused] = (fused){
        .head = { name.bytes, index.begin },
        .tail = { name.bytes + index.end, name.length - index.end },
        .parameter = parameter,
    };
}

static berthi_parameter *
add_parameter(berthi_build *build, const berthi_model_tensor *tensor, berthi_text name)
{
    berthi_architecture *const made = build->made;
    berthi_parameter *const parameter = berthi_build_alloc(build, 1, sizeof *parameter);

    if (parameter == NULL)
        return NULL;
    parameter->name = name.bytes;
    parameter->name_length = name.length;
    parameter->shape = tensor->shape;
    parameter->rank = tensor->rank;
    parameter->dtype = tensor->dtype;
    parameter->first_piece = BERTHI_NO_POSITION;
    made->parameters[made->parameter_count++] = parameter;
    return parameter;
}

static void
add_elements(berthi_parameter *whole, uint64_t elements)
{
    /* Cannot overflow in a real file; saturated, it is at least absurd. */
    if (!berthi_can_add(whole->elements, elements, &whole->elements))
        whole->elements = UINT64_MAX;
}

static void
take_remaking(const berthi_build *build, berthi_text name, berthi_parameter *parameter)
{
    berthi_text rest;
    const char *const class_name =
        berthi_build_scope(build, build_name(parameter), &rest)->class_name;

    if (parameter->remade == NULL)
        parameter->remade = berthi_build_remade(class_name, name);
    parameter->is_alone |= berthi_build_is_alone(class_name, name);
}

/* What a tensor becomes, or becomes a part of. */
static void
take_tensor(naming *n, uint32_t position)
{
    berthi_build *const build = n->build;
    build_index index = { 0, 0 };
    berthi_parameter *parameter;
    berthi_model_tensor tensor;
    berthi_text name;
    berthi_text renamed;

    build->source->get(build->source->user, position, &tensor);
    name = (berthi_text){ tensor.name, tensor.name_length };
    parameter = find_fused(n, name);
    if (parameter == NULL) {
        renamed = berthi_build_rename(build, n->prefix, name, &index);
        if (index.end > 0)
            parameter = find_renamed(n, renamed);
        if (parameter == NULL)
            parameter = add_parameter(build, &tensor, renamed);
        if (parameter == NULL)
            return;
        if (n->has_remade)
            take_remaking(build, name, parameter);
        if (index.end > 0)
            keep_fused(n, name, index, parameter);
    }
    add_elements(parameter, tensor.elements);
    build->made->parameter_of[position] = parameter;
}

/* Parameters of equal names become one, that of the first tensor: the sort is stable. */
static void
merge_equal(berthi_build *build)
{
    berthi_architecture *const made = build->made;
    berthi_parameter **const items = made->parameters;
    const uint32_t count = made->parameter_count;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (kept > 0 && compare_parameters(items[kept - 1], items[i]) == 0)
            add_elements(items[kept - 1], items[i]->elements);
        else
            items[kept++] = items[i];
    made->parameter_count = kept;
    for (uint64_t i = 0; i < made->tensor_count && kept < count; i++)
        made->parameter_of[i] = berthi_build_find(build, build_name(made->parameter_of[i]));
}

/* In the order of positions: from the last one on, each goes before those behind it. */
static void
link_pieces(berthi_architecture *made)
{
    for (uint32_t i = (uint32_t)made->tensor_count; i-- > 0;) {
        berthi_parameter *const parameter = made->parameter_of[i];

        made->next_piece[i] = parameter->first_piece;
        parameter->first_piece = i;
        parameter->piece_count++;
    }
}

void
berthi_build_names(berthi_build *build)
{
    const uint32_t count = build->source->count;
    berthi_architecture *const made = build->made;
    naming n = { .build = build,
                 .prefix = berthi_build_read_renamings(build),
                 .has_remade = berthi_build_has_remade(build) };

    made->tensor_count = count;
    made->parameters = berthi_build_alloc(build, count, sizeof *made->parameters);
    made->parameter_of = berthi_build_alloc(build, count, sizeof *made->parameter_of);
    made->next_piece = berthi_build_alloc(build, count, sizeof *made->next_piece);
    for (uint32_t i = 0; i < count && build->status == BERTH_OK; i++)
        take_tensor(&n, i);
    berthi_build_sort(build, (void **)made->parameters, made->parameter_count,
                      compare_parameters);
    if (build->status != BERTH_OK)
        return;
    merge_equal(build);
    link_pieces(made);
    for (uint32_t i = 0; i < made->parameter_count; i++)
        berthi_build_describe_parameter(build, made->parameters[i]);
}

void
berthi_build_alias(berthi_build *build, berthi_text name, const berthi_parameter *like)
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
