/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_tensors.c - the tensors of a checkpoint as berths, layer by layer.
 *
 * Layers come in the order in which the model registers its modules, which is the
 * order of execution but for one thing: an embedding that is also the output head is
 * needed as a whole at the end, and is placed there.
 */
#include <string.h>

#include "loader/plan_input.h"
#include "loader/recipe_weight.h"

/* Smaller ones always stay on the device: norms, biases, scales. */
#define FIXED_BYTES (UINT64_C(1) << 20)
#define NO_LAYER UINT32_MAX

/* While layers are counted. */
typedef struct listing {
    berthi_plan_source *source;
    uint32_t *layer_of;     /* of the recipe's weights */
    uint32_t *experts_of;   /* of layers: of each of its stacks that are taken apart */
    uint64_t *largest;      /* of layers: elements of the largest such stack */
    uint32_t *next;         /* of layers: where its next tensor goes */
    uint32_t tensor_count;
    const berthi_module *block;
    uint32_t layer_count;
    uint32_t head_layer;    /* of the embedding that is the head, too; NO_LAYER */
    berthi_plan_expert_name names; /* the one before */
} listing;

/* ------------------------------------------------------------------------ layers */

static void
open_layer(listing *l, const berthi_module *module)
{
    berthi_plan_source *const source = l->source;

    source->modules[l->layer_count] = module;
    source->layers[l->layer_count] = (berthi_plan_layer_input){
        .name = module != NULL ? module->path : "",
        .name_length = module != NULL ? module->path_length : 0,
    };
    l->layer_count++;
}

/* Its pieces belong to the newest layer. */
static void
take_parameters(listing *l, const berthi_parameter *parameter)
{
    const berthi_architecture *const model = l->source->recipe.architecture;

    for (; parameter != NULL; parameter = parameter->next)
        for (uint32_t i = parameter->first_piece; i != BERTHI_NO_POSITION;
             i = model->next_piece[i])
            l->layer_of[i] = l->layer_count - 1;
}

static bool
has_tensors(const berthi_parameter *parameter)
{
    for (; parameter != NULL; parameter = parameter->next)
        if (parameter->first_piece != BERTHI_NO_POSITION)
            return true;
    return false;
}

/* How many there will be at most: modules with tensors, and one for strays. */
static uint64_t
count_layers(const berthi_architecture *model)
{
    uint64_t count = 1;

    for (const berthi_module *m = model->root; m != NULL; m = berthi_module_after(m))
        count += has_tensors(m->parameters) || has_tensors(m->buffers);
    return count;
}

static void
list_layers(listing *l)
{
    const berthi_architecture *const model = l->source->recipe.architecture;
    const berthi_module *open = NULL;

    for (const berthi_module *m = model->root; m != NULL; m = berthi_module_after(m)) {
        const berthi_module *const block = berthi_module_block(m);
        const berthi_module *const owner = block != NULL ? block : m;

        if (!has_tensors(m->parameters) && !has_tensors(m->buffers))
            continue;
        if (owner != open)
            open_layer(l, owner);
        open = owner;
        take_parameters(l, m->parameters);
        take_parameters(l, m->buffers);
    }
}

/* Tensors that no module has taken make a layer of their own, the last one. */
static void
take_strays(listing *l)
{
    bool is_open = false;

    for (uint32_t i = 0; i < l->source->recipe.weight_count; i++) {
        if (l->layer_of[i] != NO_LAYER)
            continue;
        if (!is_open)
            open_layer(l, NULL);
        is_open = true;
        l->layer_of[i] = l->layer_count - 1;
    }
}

/* -------------------------------------------------------------------------- ties */

static bool
has_words(const char *name, uint64_t length, const char *words)
{
    const uint64_t size = strlen(words);

    for (uint64_t i = 0; i + size <= length; i++)
        if (memcmp(name + i, words, size) == 0)
            return true;
    return false;
}

/* A table of rows: outside of all layers, no linear layer, two dims. */
static bool
is_table(const berthi_plan_source *source, uint32_t weight)
{
    const berthi_parameter *const parameter =
        source->recipe.architecture->parameter_of[weight];
    const berthi_module *const module = parameter->module;

    if (parameter->rank != 2 || parameter->is_linear || parameter->is_linear_kind
        || module == NULL || berthi_module_block(module) != NULL)
        return false;
    return has_words(module->name, module->name_length, "emb")
           || has_words(module->name, module->name_length, "wte")
           || has_words(module->name, module->name_length, "wpe")
           || has_words(module->name, module->name_length, "shared");
}

/* True when the model's output head is a name for this parameter. */
static bool
is_head(const berthi_architecture *model, const berthi_parameter *parameter)
{
    const uint64_t head = strlen(model->head);

    for (uint32_t i = 0; i < model->tie_count && head > 0; i++) {
        const berthi_tie *const tie = &model->ties[i];

        if (strncmp(tie->target, model->head, head) == 0 && tie->target[head] == '.'
            && strlen(tie->source) == parameter->name_length
            && memcmp(tie->source, parameter->name, parameter->name_length) == 0)
            return true;
    }
    return false;
}

static void
find_head(listing *l)
{
    const berthi_architecture *const model = l->source->recipe.architecture;

    l->head_layer = NO_LAYER;
    for (uint32_t i = 0; i < l->source->recipe.weight_count; i++)
        if (model->parameter_of[i]->is_tie_source && is_table(l->source, i)
            && is_head(model, model->parameter_of[i]))
            l->head_layer = l->layer_of[i];
}

/* The layer that is head and embedding goes to the end. */
static void
move_head(listing *l)
{
    berthi_plan_source *const source = l->source;
    const uint32_t from = l->head_layer;
    const uint32_t last = l->layer_count - 1;
    berthi_plan_layer_input layer;
    const berthi_module *module;

    if (from == NO_LAYER)
        return;
    layer = source->layers[from];
    module = source->modules[from];
    layer.is_tied = true;
    for (uint32_t i = from; i < last; i++) {
        source->layers[i] = source->layers[i + 1];
        source->modules[i] = source->modules[i + 1];
    }
    source->layers[last] = layer;
    source->modules[last] = module;
    for (uint32_t i = 0; i < source->recipe.weight_count; i++) {
        if (l->layer_of[i] == from)
            l->layer_of[i] = last;
        else if (l->layer_of[i] > from)
            l->layer_of[i]--;
    }
    l->head_layer = last;
}

/* ----------------------------------------------------------------------- tensors */

/* What chooses experts is needed before all of them. */
static bool
is_router(const berthi_module *module)
{
    return module != NULL
           && ((module->name_length == 4 && memcmp(module->name, "gate", 4) == 0)
               || has_words(module->name, module->name_length, "router"));
}

static uint8_t
kind_of(const listing *l, uint32_t weight, const berthi_plan_tensor *tensor)
{
    const berthi_parameter *const parameter =
        l->source->recipe.architecture->parameter_of[weight];

    if (tensor->expert != BERTHI_NO_EXPERT)
        return BERTHI_PIECE_EXPERT; /* stored alone, or taken out of a stack */
    if (tensor->layer != l->head_layer && is_table(l->source, weight))
        return BERTHI_PIECE_IDLE;
    if (tensor->bytes < FIXED_BYTES || is_router(parameter->module))
        return BERTHI_PIECE_FIXED;
    return BERTHI_PIECE_DENSE;
}

/* The weight as a tensor, all of it or an expert of it. */
static void
put_tensor(const listing *l, uint32_t number, uint32_t place, uint32_t expert,
           const berthi_slice *slice)
{
    const berthi_plan_source *const source = l->source;
    const berthi_recipe_weight *const weight = &source->recipe.weights[number];
    berthi_plan_tensor *const tensor = &source->tensors[place];

    *tensor = (berthi_plan_tensor){ .name = weight->name,
                                    .name_length = weight->name_length,
                                    .number = (uint32_t)weight->tensor,
                                    .layer = l->layer_of[number],
                                    .tie = BERTHI_NO_TIE,
                                    .tier = BERTHI_NO_TIER,
                                    .expert = expert,
                                    .slice = *slice };
    berthi_plan_measure(source, number, tensor);
    tensor->kind = kind_of(l, number, tensor);
}

static void
add_tensor(listing *l, uint32_t number)
{
    static const berthi_slice whole = { .along = BERTH_SLICING_NONE };
    berthi_plan_source *const source = l->source;
    const berthi_recipe_weight *const weight = &source->recipe.weights[number];
    const uint32_t place = l->next[l->layer_of[number]]++;
    const uint32_t stack = berthi_plan_stack(source, number);

    put_tensor(l, number, place,
               berthi_plan_next_expert(&l->names, weight->name, weight->name_length),
               source->slices != NULL ? &source->slices[number] : &whole);
    source->tensor_of[number] = place;
    if (stack == 0)
        return;
    source->tensors[place].reads = BERTHI_READS_EXPERTS;
    source->input.stacked_count = stack;
}

/* Expert by expert: its next tensor, and as many further on as an expert has. */
static void
add_stack(listing *l, uint32_t number)
{
    berthi_plan_source *const source = l->source;
    const uint32_t layer = l->layer_of[number];
    const uint32_t place = l->next[layer]++;

    source->tensor_of[number] = place;
    for (uint32_t e = 0; e < l->experts_of[layer]; e++)
        put_tensor(l, number, place + e * source->layers[layer].stacks, e,
                   &(berthi_slice){ .along = BERTH_SLICING_ROWS, .first = e, .count = 1 });
}

/* Stacks of one layer are taken apart together, those with as many experts. */
static bool
is_apart(const listing *l, uint32_t number)
{
    const uint32_t experts = l->experts_of[l->layer_of[number]];

    return experts > 0 && berthi_plan_stack(l->source, number) == experts
           && berthi_plan_can_take_apart(l->source, number);
}

/* As many as the largest stack of a layer has that can be taken apart. */
static void
count_experts(listing *l)
{
    const berthi_plan_source *const source = l->source;

    for (uint32_t i = 0; i < source->recipe.weight_count && source->takes_apart; i++) {
        const uint64_t elements = source->recipe.weights[i].elements;
        const uint32_t layer = l->layer_of[i];
        const uint32_t stack = berthi_plan_stack(source, i);

        if (stack == 0 || elements <= l->largest[layer]
            || !berthi_plan_can_take_apart(source, i))
            continue;
        l->largest[layer] = elements;
        l->experts_of[layer] = stack;
    }
}

/* Which stacks are taken apart, and how many tensors there are then. */
static berth_status
count_tensors(listing *l, berth_error *error)
{
    berthi_plan_source *const source = l->source;
    uint64_t count = source->recipe.weight_count;

    count_experts(l);
    for (uint32_t i = 0; i < source->recipe.weight_count && source->takes_apart; i++) {
        const uint32_t layer = l->layer_of[i];

        if (!is_apart(l, i))
            continue;
        source->layers[layer].stacks++;
        source->input.summary.stacks = BERTH_STACKS_APART;
        count += l->experts_of[layer] - 1;
    }
    l->tensor_count = (uint32_t)count;
    source->tensors = count <= UINT32_MAX
                          ? berthi_arena_alloc(&source->arena,
                                               (count + 1) * sizeof *source->tensors, 8)
                          : NULL;
    return source->tensors != NULL ? BERTH_OK : berthi_fail_memory(error, "listing tensors");
}

/*
 * Weights are in bytewise order of names: counting sort keeps that in a layer. What is
 * taken apart follows what is whole.
 */
static void
sort(listing *l)
{
    berthi_plan_source *const source = l->source;
    const uint32_t count = source->recipe.weight_count;
    const bool has_apart = source->input.summary.stacks == BERTH_STACKS_APART;
    uint32_t *const next = l->next;

    for (uint32_t i = 0; i < count; i++)
        next[l->layer_of[i] + 1] +=
            has_apart && is_apart(l, i) ? l->experts_of[l->layer_of[i]] : 1;
    for (uint32_t i = 0; i < l->layer_count; i++)
        next[i + 1] += next[i];
    for (uint32_t i = 0; i < count; i++)
        if (!has_apart || !is_apart(l, i))
            add_tensor(l, i);
    for (uint32_t i = 0; i < count && has_apart; i++)
        if (is_apart(l, i))
            add_stack(l, i);
}

uint32_t
berthi_plan_tensor_count(const berthi_plan_source *source, uint32_t weight)
{
    const berthi_plan_tensor *const first = &source->tensors[source->tensor_of[weight]];

    return source->layers[first->layer].stacks > 0
                   && first->slice.along != BERTH_SLICING_NONE
               ? (uint32_t)source->recipe.weights[weight].shape[0]
               : 1;
}

uint32_t
berthi_plan_tensor_of(const berthi_plan_source *source, uint32_t weight, uint32_t number)
{
    const uint32_t first = source->tensor_of[weight];

    return first + number * source->layers[source->tensors[first].layer].stacks;
}

/* A tensor that is stored although the model takes another's memory for it. */
static void
tie_tensors(const berthi_plan_source *source)
{
    const berthi_architecture *const model = source->recipe.architecture;

    for (uint32_t i = 0; i < source->recipe.weight_count; i++) {
        const berthi_parameter *const tie = model->parameter_of[i]->tie;

        if (tie != NULL && tie->first_piece != BERTHI_NO_POSITION
            && tie->first_piece != i)
            source->tensors[source->tensor_of[i]].tie =
                source->tensor_of[tie->first_piece];
    }
}

static bool
can_alloc(listing *l)
{
    berthi_plan_source *const source = l->source;
    berthi_arena *const arena = &source->arena;
    const uint64_t count = source->recipe.weight_count + UINT64_C(1);
    const uint64_t layers = count_layers(source->recipe.architecture);

    l->layer_of = berthi_arena_alloc(arena, count * sizeof *l->layer_of, 4);
    source->tensor_of = berthi_arena_alloc(arena, count * sizeof *source->tensor_of, 4);
    source->layers = berthi_arena_alloc(arena, layers * sizeof *source->layers, 8);
    source->modules = berthi_arena_alloc(arena, layers * sizeof *source->modules, 8);
    l->experts_of = berthi_arena_alloc(arena, layers * sizeof *l->experts_of, 4);
    l->largest = berthi_arena_alloc(arena, layers * sizeof *l->largest, 8);
    l->next = berthi_arena_alloc(arena, (layers + 1) * sizeof *l->next, 4);
    if (l->layer_of == NULL || source->tensor_of == NULL || source->layers == NULL
        || source->modules == NULL || l->experts_of == NULL || l->largest == NULL
        || l->next == NULL)
        return false;
    memset(l->largest, 0, layers * sizeof *l->largest);
    memset(l->experts_of, 0, layers * sizeof *l->experts_of);
    memset(l->next, 0, (layers + 1) * sizeof *l->next);
    return true;
}

berth_status
berthi_plan_list_tensors(berthi_plan_source *source, berth_error *error)
{
    listing l = { .source = source };
    berth_status status;

    if (!can_alloc(&l))
        return berthi_fail_memory(error, "listing tensors");
    for (uint32_t i = 0; i < source->recipe.weight_count; i++)
        l.layer_of[i] = NO_LAYER;
    list_layers(&l);
    take_strays(&l);
    find_head(&l);
    move_head(&l);
    status = count_tensors(&l, error);
    if (status != BERTH_OK)
        return status;
    sort(&l);
    tie_tensors(source);
    source->input.tensors = source->tensors;
    source->input.tensor_count = l.tensor_count;
    source->input.layers = source->layers;
    source->input.layer_count = l.layer_count;
    return BERTH_OK;
}
