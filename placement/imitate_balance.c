/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_balance.c - budgets of `auto`, `balanced`, `balanced_low_0`: an even
 * share of the model and a buffer for each GPU but the last, which keeps its budget;
 * for GPU 0 in `balanced_low_0` only what the others do not hold. The buffer is 5/4 of
 * a block or of a leaf, whichever is larger. Which block and which leaf are meant is
 * what releases have changed most often.
 */
#include "placement/imitate_walk.h"

#include <math.h>

#define BUFFER_SHARE 1.25
/* What a single GPU that nobody gave a budget may use. */
#define SINGLE_SHARE 0.9

/* ---------------------------------------------------------------------- blocks */

/* The largest block of all; false when the model's classes match no module. */
static bool
has_largest_block(const berthi_tree *tree, double *out)
{
    bool is_found = false;

    *out = 0;
    for (uint32_t i = 0; i < tree->count; i++)
        if (tree->nodes[i].class_number != BERTHI_NO_CLASS) {
            is_found = true;
            if (tree->nodes[i].bytes > *out)
                *out = tree->nodes[i].bytes;
        }
    return is_found || !tree->has_classes;
}

/* What the size table has shown so far: of each class the first module. */
typedef struct first_blocks {
    double bytes[BERTHI_CLASS_LIMIT];
    uint32_t tensor[BERTHI_CLASS_LIMIT]; /* that brought it into the table; 0: none */
} first_blocks;

/* A tensor brings the modules that hold it into the table, outer ones first. */
static void
show_modules(const berthi_tree *tree, uint32_t tensor, first_blocks *blocks)
{
    for (uint32_t at = tree->nodes[tensor].parent; at != 0; at = tree->nodes[at].parent) {
        const uint16_t number = tree->nodes[at].class_number;

        if (number != BERTHI_NO_CLASS
            && (blocks->tensor[number] == 0 || blocks->tensor[number] == tensor)) {
            blocks->bytes[number] = tree->nodes[at].bytes;
            blocks->tensor[number] = tensor;
        }
    }
}

/* The largest of the first blocks of all classes. */
static double
largest_first_block(const berthi_tree *tree)
{
    first_blocks blocks = { .tensor = { 0 } };
    double largest = 0;

    for (int kind = BERTHI_NODE_PARAMETER; kind <= BERTHI_NODE_BUFFER; kind++)
        for (uint32_t i = 1; i < tree->count; i++)
            if (tree->nodes[i].kind == kind && tree->nodes[i].is_counted)
                show_modules(tree, i, &blocks);
    for (uint32_t i = 0; i < BERTHI_CLASS_LIMIT; i++)
        if (blocks.tensor[i] != 0 && blocks.bytes[i] > largest)
            largest = blocks.bytes[i];
    return largest;
}

/* ---------------------------------------------------------------------- leaves */

/* Bytes of what modules are made of. */
typedef struct leaves {
    double sum;
    double largest;
    double count;
} leaves;

static void
add_leaf(leaves *l, double bytes)
{
    l->sum += bytes;
    l->count++;
    if (bytes > l->largest)
        l->largest = bytes;
}

/* 4.x: modules below the root that hold tensors, but no module that does. */
static leaves
leaves_of_table(const berthi_tree *tree)
{
    const berthi_node *const nodes = tree->nodes;
    leaves l = { 0, 0, 0 };

    for (uint32_t i = 1; i < tree->count; i++) {
        uint32_t below = i + 1;

        if (nodes[i].kind != BERTHI_NODE_MODULE || !nodes[i].is_counted)
            continue;
        while (below < nodes[i].end
               && (nodes[below].kind != BERTHI_NODE_MODULE || !nodes[below].is_counted))
            below++;
        if (below == nodes[i].end)
            add_leaf(&l, nodes[i].bytes);
    }
    return l;
}

/* 5.x: modules below the root that have tensors of their own, by those alone. */
static leaves
leaves_of_owners(const berthi_tree *tree)
{
    const berthi_node *const nodes = tree->nodes;
    leaves l = { 0, 0, 0 };

    for (uint32_t i = 1; i < tree->count; i++) {
        double bytes = 0;
        bool is_owner = false;

        if (nodes[i].kind != BERTHI_NODE_MODULE)
            continue;
        for (uint32_t own = i + 1; own < nodes[i].end; own = nodes[own].end)
            if (nodes[own].kind != BERTHI_NODE_MODULE && nodes[own].is_counted) {
                bytes += nodes[own].bytes;
                is_owner = true;
            }
        if (is_owner)
            add_leaf(&l, bytes);
    }
    return l;
}

/* -------------------------------------------------------------------- balancing */

/* What each GPU gets beyond its even share; false when upstream fails. */
static bool
can_size_buffer(const berthi_tree *tree, berthi_era era, double *out)
{
    const leaves l = era == BERTHI_ERA_HF4 ? leaves_of_table(tree) : leaves_of_owners(tree);
    const double leaf = era == BERTHI_ERA_HF5 ? l.largest
                                              : trunc(l.sum / (l.count > 0 ? l.count : 1));
    double block;

    if (era == BERTHI_ERA_HF4 || era == BERTHI_ERA_HF5_0)
        block = largest_first_block(tree);
    else if (!has_largest_block(tree, &block))
        return false;
    *out = trunc(BUFFER_SHARE * (block > leaf ? block : leaf));
    return true;
}

static berthi_budget *
find_gpu(berthi_budgets *budgets, int64_t number)
{
    for (uint32_t i = 0; i < budgets->count; i++)
        if (budgets->items[i].kind == BERTHI_BUDGET_GPU
            && budgets->items[i].number == number)
            return &budgets->items[i];
    return NULL;
}

static bool
is_filled(const berthi_budget *budget)
{
    return budget->kind == BERTHI_BUDGET_GPU && budget->bytes > 0;
}

/*
 * GPU 0 gets what the others leave. They are summed up by the numbers 1 to
 * count - 1, whatever numbers the GPUs have: upstream's mistake.
 */
static berthi_refusal
lower_first(berthi_budgets *budgets, uint32_t count, double total, uint32_t *out_refused)
{
    berthi_budget *const first = find_gpu(budgets, 0);
    double rest = total;

    for (uint32_t i = 1; i < count; i++) {
        const berthi_budget *const gpu = find_gpu(budgets, i);

        *out_refused = i;
        if (gpu == NULL)
            return BERTHI_REFUSAL_NUMBER;
        rest -= gpu->bytes;
    }
    *out_refused = 0;
    if (first == NULL)
        return BERTHI_REFUSAL_NUMBER;
    first->bytes = fmin(fmax(rest, 0), first->bytes);
    return BERTHI_REFUSAL_NONE;
}

static void
limit_all_but_last(berthi_budgets *budgets, double share, bool spares_first)
{
    berthi_budget *last = NULL;

    for (uint32_t i = 0; i < budgets->count; i++) {
        berthi_budget *const budget = &budgets->items[i];

        if (!is_filled(budget))
            continue;
        if (last != NULL && !(spares_first && last->number == 0))
            last->bytes = fmin(share, last->bytes);
        last = budget;
    }
}

/* One GPU: nothing to balance. */
static void
keep_single(berthi_budgets *budgets)
{
    for (uint32_t i = 0; i < budgets->count && !budgets->is_given; i++)
        if (budgets->items[i].kind == BERTHI_BUDGET_GPU) {
            budgets->items[i].bytes *= SINGLE_SHARE;
            return;
        }
}

berthi_refusal
berthi_imitate_balance(const berthi_tree *tree, const berthi_imitate_options *options,
                       berthi_budgets *budgets, uint32_t *out_refused)
{
    const double total = tree->nodes[0].bytes;
    bool has_low_zero = options->mode == BERTHI_PLAN_MODE_BALANCED_LOW_0;
    uint32_t count = 0;
    double buffer;

    for (uint32_t i = 0; i < budgets->count; i++) {
        if (budgets->items[i].kind == BERTHI_BUDGET_DISK && options->era == BERTHI_ERA_HF4)
            return BERTHI_REFUSAL_DISK;
        count += is_filled(&budgets->items[i]);
    }
    if (count == 0)
        return BERTHI_REFUSAL_NONE;
    if (count == 1) {
        has_low_zero = false;
        keep_single(budgets);
    }
    if (!can_size_buffer(tree, options->era, &buffer))
        return BERTHI_REFUSAL_CLASS;
    limit_all_but_last(budgets, floor(total / (has_low_zero ? count - 1 : count)) + buffer,
                       has_low_zero);
    return has_low_zero ? lower_first(budgets, count, total, out_refused)
                        : BERTHI_REFUSAL_NONE;
}
