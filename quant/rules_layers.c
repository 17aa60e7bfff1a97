/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_layers.c - the modules that loaders make quantized layers of, unless a skip list
 * names them.
 *
 * Of a weight that is not loaded as it is stored, these are all modules that get its
 * numbers: they stand beside the one that it is called by. And the one that it is stored
 * by, for loaders with code of the checkpoint's own.
 */
#include <string.h>

#include "kernels/text.h"
#include "quant/rules_skip.h"

#define SUFFIX ".weight"

typedef struct listing {
    const berthi_skip_model *model;
    berthi_arena *arena;
    berthi_skip_layer *layers;
    uint32_t count;
} listing;

bool
berthi_skip_is_layer(const berthi_architecture *architecture,
                     const berthi_parameter *parameter)
{
    return parameter->is_linear
           || (parameter->is_linear_kind
               && (architecture->era == BERTHI_ERA_HF4
                   || architecture->era == BERTHI_ERA_HF5_0));
}

uint64_t
berthi_skip_layers_most(const berthi_skip_model *model)
{
    uint64_t count = model->source->count;

    for (uint32_t i = 0; i < model->source->count; i++) {
        berthi_words module = model->architecture->parameter_of[i]->remade;

        for (; module != NULL && *module != NULL; module++)
            count++;
    }
    return count;
}

/* The module of this weight. */
static void
add(listing *l, const char *name, uint64_t length, uint32_t position)
{
    if (length > strlen(SUFFIX)
        && berthi_text_ends((berthi_text){ name, length }, SUFFIX))
        l->layers[l->count++] = (berthi_skip_layer){
            .name = name,
            .length = length - strlen(SUFFIX),
            .is_quantized = l->model->is_quantized[position],
        };
}

/* The weight of the module `last` beside that of the parameter. */
static bool
can_add_beside(listing *l, uint32_t position, const char *last)
{
    const berthi_parameter *const p = l->model->architecture->parameter_of[position];
    uint64_t kept = p->name_length - strlen(SUFFIX);
    char *name;

    while (kept > 0 && p->name[kept - 1] != '.')
        kept--;
    name = berthi_arena_alloc(l->arena, kept + strlen(last) + sizeof SUFFIX, 1);
    if (name == NULL)
        return false;
    memcpy(name, p->name, (size_t)kept);
    strcpy(name + kept, last);
    strcat(name + kept, SUFFIX);
    add(l, name, strlen(name), position);
    return true;
}

static bool
can_add_remade(listing *l, uint32_t position, berthi_words modules)
{
    const berthi_model_source *const source = l->model->source;
    berthi_model_tensor tensor;

    for (; *modules != NULL; modules++)
        if (!can_add_beside(l, position, *modules))
            return false;
    source->get(source->user, position, &tensor);
    add(l, tensor.name, tensor.name_length, position);
    return true;
}

bool
berthi_skip_layers_can_list(const berthi_skip_model *model, berthi_arena *arena,
                            berthi_skip_layer *layers, uint32_t *out_count)
{
    listing l = { model, arena, layers, 0 };

    for (uint32_t i = 0; i < model->source->count; i++) {
        const berthi_parameter *const p = model->architecture->parameter_of[i];

        /* Tied ones hold nothing of their own. */
        if (p->tie != NULL || !berthi_skip_is_layer(model->architecture, p))
            continue;
        if (p->remade == NULL)
            add(&l, p->name, p->name_length, i);
        else if (!can_add_remade(&l, i, p->remade))
            return false;
    }
    *out_count = l.count;
    return true;
}
