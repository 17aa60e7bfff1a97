/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_guess.c - a tree for a class that nobody has described, from
 * names alone: embeddings, then what else there is, then lists of layers, then
 * norms, then heads. See architecture_build.h.
 */
#include "quant/architecture_build.h"

/* What matches no word stands between embeddings and layers. */
typedef enum guess_rank {
    RANK_EMBEDDING,
    RANK_OTHER,
    RANK_LAYERS,
    RANK_NORM,
    RANK_HEAD
} guess_rank;

static const char *const embeddings[] = { "embed", "wte", "wpe", NULL };
static const char *const heads[] = { "head", "embed_out", "classifier", "score", NULL };
static const char *const norms[] = { "norm", "ln_f", NULL };

static bool
has_one_of(const char *name, uint64_t name_length, const char *const *words)
{
    for (; *words != NULL; words++) {
        const uint64_t length = strlen(*words);

        for (uint64_t i = 0; i + length <= name_length; i++)
            if (memcmp(name + i, *words, (size_t)length) == 0)
                return true;
    }
    return false;
}

/* ------------------------------------------------------------------- layers */

static bool
is_number(const berthi_module *module)
{
    for (uint64_t i = 0; i < module->name_length; i++)
        if (module->name[i] < '0' || module->name[i] > '9')
            return false;
    return module->name_length > 0;
}

/* All children are numbers, and nothing else is there. */
static bool
is_list(const berthi_module *module)
{
    if (module->children == NULL || module->parameters != NULL)
        return false;
    for (const berthi_module *at = module->children; at != NULL; at = at->next)
        if (!is_number(at))
            return false;
    return true;
}

/* The outermost lists are lists of layers. Parents come before their children. */
static void
mark_layers(berthi_module *root)
{
    for (berthi_module *at = root; at != NULL;
         at = (berthi_module *)berthi_module_after(at)) {
        if (at->parent != NULL && at->parent->kind == BERTHI_MODULE_LIST) {
            at->kind = BERTHI_MODULE_BLOCK;
            at->class_name = "?";
            at->is_never_split = true;
        } else if (at->parent == NULL || at->parent->kind == BERTHI_MODULE_PLAIN) {
            at->kind = is_list(at) ? BERTHI_MODULE_LIST : BERTHI_MODULE_PLAIN;
        }
    }
}

/* -------------------------------------------------------------------- order */

typedef struct ranked {
    berthi_module *module;
    guess_rank rank;
} ranked;

/* True for a list of layers and for what holds one. */
static bool
has_layers(const berthi_module *module)
{
    const berthi_module *at = module;

    do {
        if (at->kind == BERTHI_MODULE_LIST)
            return true;
        at = berthi_module_after(at);
    } while (at != NULL && at->path_length > module->path_length
             && memcmp(at->path, module->path, (size_t)module->path_length) == 0
             && at->path[module->path_length] == '.');
    return false;
}

static guess_rank
find_rank(const berthi_module *module)
{
    if (has_layers(module))
        return RANK_LAYERS;
    if (has_one_of(module->name, module->name_length, heads))
        return RANK_HEAD;
    if (has_one_of(module->name, module->name_length, embeddings))
        return RANK_EMBEDDING;
    return has_one_of(module->name, module->name_length, norms) ? RANK_NORM : RANK_OTHER;
}

static int
compare_ranked(const void *a, const void *b)
{
    return (int)((const ranked *)a)->rank - (int)((const ranked *)b)->rank;
}

/* Elements of a list, by number: fewer digits first. */
static int
compare_numbered(const void *a, const void *b)
{
    const berthi_module *const left = ((const ranked *)a)->module;
    const berthi_module *const right = ((const ranked *)b)->module;

    if (left->name_length != right->name_length)
        return left->name_length < right->name_length ? -1 : 1;
    return memcmp(left->name, right->name, (size_t)left->name_length);
}

static void
sort_children(berthi_build *build, berthi_module *module)
{
    const bool is_listed = module->kind == BERTHI_MODULE_LIST;
    ranked *items;
    void **sorted;
    uint32_t count = 0;

    for (berthi_module *at = module->children; at != NULL; at = at->next)
        count++;
    items = berthi_build_alloc(build, count, sizeof *items);
    sorted = berthi_build_alloc(build, count, sizeof *sorted);
    if (sorted == NULL || count == 0)
        return;
    count = 0;
    for (berthi_module *at = module->children; at != NULL; at = at->next, count++) {
        items[count].module = at;
        items[count].rank = is_listed ? RANK_LAYERS : find_rank(at);
        sorted[count] = &items[count];
    }
    berthi_build_sort(build, sorted, count, is_listed ? compare_numbered : compare_ranked);
    for (uint32_t i = 0; i < count; i++)
        ((ranked *)sorted[i])->module->next =
            i + 1 < count ? ((ranked *)sorted[i + 1])->module : NULL;
    module->children = ((ranked *)sorted[0])->module;
    module->last_child = ((ranked *)sorted[count - 1])->module;
}

/* --------------------------------------------------------------- head, ties */

static void
guess_head(berthi_build *build)
{
    static const char *const names[] = { "lm_head", "embed_out" };

    build->made->head = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const berthi_text name = { names[i], strlen(names[i]) };
        const build_range below = berthi_build_below(build, name);

        if (below.first < below.end && *build->made->head == '\0')
            build->made->head = names[i];
    }
}

/* A model that ties its embeddings and comes without a head: lm_head is tied. */
static void
guess_ties(berthi_build *build)
{
    berthi_architecture *const made = build->made;
    bool is_tied = false;

    (void)berthi_json_can_read_bool(
        berthi_json_get(build->options->config, "tie_word_embeddings"), &is_tied);
    if (!is_tied || *made->head != '\0')
        return;
    for (uint32_t i = 0; i < made->parameter_count; i++) {
        const berthi_parameter *const p = made->parameters[i];

        if (p->rank != 2 || !has_one_of(p->name, p->name_length, embeddings))
            continue;
        made->ties = berthi_build_alloc(build, 1, sizeof *made->ties);
        if (made->ties == NULL)
            return;
        made->ties[0].target = "lm_head.weight";
        made->ties[0].source = berthi_build_text(build, p->name, p->name_length);
        made->tie_count = 1;
        made->head = "lm_head";
        return;
    }
}

void
berthi_build_guess(berthi_build *build)
{
    berthi_module *const root = berthi_build_module(
        build, NULL, (berthi_text){ "", 0 }, BERTHI_MODULE_PLAIN);

    build->made->root = root;
    if (root == NULL)
        return;
    berthi_build_fill(build, root);
    if (build->status != BERTH_OK)
        return;
    mark_layers(root);
    guess_head(build);
    guess_ties(build);
    for (berthi_module *at = root; at != NULL && build->status == BERTH_OK;
         at = (berthi_module *)berthi_module_after(at))
        if (at->kind == BERTHI_MODULE_PLAIN || at->kind == BERTHI_MODULE_LIST)
            sort_children(build, at);
}
