/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_count.c - a model's tree with the bytes that a release of transformers
 * counts for each tensor. Quantizing shrinks every float in 4.x, but for parameters that
 * are named as exceptions, and only weights of linear layers in 5.x. What it adds beside
 * the weights, such as absmax, is not counted, because upstream does not count it.
 */
#include <string.h>

#include "placement/imitate.h"
#include "quant/rules_skip.h"

typedef struct counting {
    berthi_tree *tree;
    const berthi_architecture *model;
    const berthi_count_options *options;
    berthi_skip_list skips;   /* modules that are not quantized; none without quantizing */
    berthi_skip_list float32; /* 4.x: parameters counted as float32 */
    const char *classes[BERTHI_CLASS_LIMIT];
    uint16_t class_count;
} counting;

/* ----------------------------------------------------------------------- bytes */

static bool
is_whole_number(int32_t dtype)
{
    switch (dtype) {
    case BERTH_U64: case BERTH_I64: case BERTH_U32: case BERTH_I32: case BERTH_U16:
    case BERTH_I16: case BERTH_I8: case BERTH_U8: case BERTH_BOOL:
        return true;
    default: return false;
    }
}

/* torch keeps dtypes of less than a byte in bytes. */
static double
bytes_of_dtype(int32_t dtype)
{
    return (double)((berth_dtype_bits(dtype) + 7) / 8);
}

/* Of a weight that bitsandbytes has quantized. */
static double
bytes_of_encoding(int32_t encoding)
{
    return encoding == BERTH_ENCODING_INT8 ? 1.0 : 0.5;
}

static bool
is_quantizing(const counting *c)
{
    return c->options->encoding != BERTH_ENCODING_NATIVE;
}

/* 5.x: weights of linear layers shrink, nothing else does. */
static double
element_5x(counting *c, const berthi_parameter *p)
{
    const bool is_layer = p->is_linear
                          || (p->is_linear_kind && c->options->era == BERTHI_ERA_HF5_0);

    if (is_quantizing(c) && is_layer
        && berthi_skip_list_find(&c->skips, p) == BERTHI_NO_SKIP)
        return bytes_of_encoding(c->options->encoding);
    return bytes_of_dtype(p->dtype);
}

/* 4.x: a skipped module's name anywhere in that of the parameter. */
static bool
has_skipped_part(const counting *c, const berthi_parameter *p)
{
    for (uint32_t i = 0; i < c->skips.count; i++) {
        const uint64_t length = strlen(c->skips.skips[i].text);

        for (uint64_t at = 0; at + length <= p->name_length; at++)
            if (memcmp(p->name + at, c->skips.skips[i].text, (size_t)length) == 0)
                return true;
    }
    return false;
}

/* 4.x: everything that floats shrinks, but named parameters. */
static double
element_4x(counting *c, const berthi_parameter *p)
{
    const double own = p->dtype == BERTH_BOOL ? 0.125 : bytes_of_dtype(p->dtype);
    const double loaded = bytes_of_dtype(c->options->dtype);
    const double target = is_quantizing(c) ? bytes_of_encoding(c->options->encoding)
                                           : loaded;

    if (!p->is_buffer
        && berthi_skip_list_find(&c->float32, p) != BERTHI_NO_SKIP)
        return bytes_of_dtype(BERTH_F32);
    if (!p->is_buffer && has_skipped_part(c, p))
        return loaded;
    return is_whole_number(p->dtype) || own < target ? own : target;
}

/* ------------------------------------------------------------------------ nodes */

static uint16_t
number_of_class(counting *c, const berthi_module *module)
{
    uint16_t i = 0;

    if (!module->is_never_split || module->class_name == NULL)
        return BERTHI_NO_CLASS;
    while (i < c->class_count && strcmp(c->classes[i], module->class_name) != 0)
        i++;
    if (i == BERTHI_CLASS_LIMIT)
        return BERTHI_CLASS_LIMIT - 1;
    if (i == c->class_count)
        c->classes[c->class_count++] = module->class_name;
    return i;
}

bool
berthi_count_is_escaping(const berthi_architecture *model, const berthi_parameter *p)
{
    const berthi_module *const block = berthi_module_block(p->module);
    berthi_words words = model->no_placement;

    for (; block != NULL && words != NULL && *words != NULL; words++) {
        const uint64_t length = strlen(*words);

        if (p->name_length == block->path_length + 1 + length
            && memcmp(p->name + block->path_length + 1, *words, (size_t)length) == 0)
            return true;
    }
    return false;
}

static void
add_tensors(counting *c, uint32_t parent, const berthi_parameter *first)
{
    const bool is_4x = c->options->era == BERTHI_ERA_HF4;

    for (const berthi_parameter *p = first; p != NULL; p = p->next) {
        const berthi_node_words words = {
            .name = p->name,
            .name_length = p->name_length,
            .bytes = (double)p->elements * (is_4x ? element_4x(c, p) : element_5x(c, p)),
            .is_left_out = p->tie != NULL && !is_4x,
            .is_escaping = berthi_count_is_escaping(c->model, p),
        };

        berthi_tree_add(c->tree, parent,
                        p->is_buffer ? BERTHI_NODE_BUFFER : BERTHI_NODE_PARAMETER, &words);
    }
}

static uint32_t
add_module(counting *c, uint32_t parent, const berthi_module *module)
{
    const berthi_node_words words = {
        .name = module->path,
        .name_length = module->path_length,
        .class_number = number_of_class(c, module),
    };
    const uint32_t number = berthi_tree_add(c->tree, parent, BERTHI_NODE_MODULE, &words);

    add_tensors(c, number, module->parameters);
    return number;
}

/* Every module, its buffers behind its children. */
static void
add_modules(counting *c)
{
    const berthi_module *module = c->model->root;
    uint32_t number = add_module(c, BERTHI_NO_NODE, module);

    while (!c->tree->is_failed) {
        if (module->children != NULL) {
            module = module->children;
            number = add_module(c, number, module);
            continue;
        }
        add_tensors(c, number, module->buffers);
        while (module->next == NULL && module->parent != NULL && !c->tree->is_failed) {
            module = module->parent;
            number = c->tree->nodes[number].parent;
            add_tensors(c, number, module->buffers);
        }
        if (module->parent == NULL || c->tree->is_failed)
            return;
        module = module->next;
        number = add_module(c, c->tree->nodes[number].parent, module);
    }
}

static uint64_t
count_nodes(const berthi_architecture *model)
{
    uint64_t count = 0;

    for (const berthi_module *module = model->root; module != NULL;
         module = berthi_module_after(module)) {
        count++;
        for (const berthi_parameter *p = module->parameters; p != NULL; p = p->next)
            count++;
        for (const berthi_parameter *p = module->buffers; p != NULL; p = p->next)
            count++;
    }
    return count;
}

/* ------------------------------------------------------------------------- ties */

/* The node of a parameter, by the pointer to its name: every parameter has a node. */
static uint32_t
find_node(const berthi_tree *tree, const char *name)
{
    uint32_t i = 0;

    while (tree->nodes[i].name != name || tree->nodes[i].kind == BERTHI_NODE_MODULE)
        i++;
    return i;
}

/* In the tree of modules: the model's list lacks names that no checkpoint holds. */
static void
tie_all(counting *c)
{
    for (const berthi_module *module = c->model->root;
         module != NULL && !c->tree->is_failed; module = berthi_module_after(module))
        for (const berthi_parameter *p = module->parameters; p != NULL; p = p->next)
            if (p->tie != NULL)
                berthi_tree_tie(c->tree, find_node(c->tree, p->tie->name),
                                find_node(c->tree, p->name));
}

/* -------------------------------------------------------------------- skip lists */

/*
 * What is not quantized; in 4.x also what counts as float32, in every load that
 * quantizes, else by the load dtype.
 */
static berth_status
make_lists(counting *c, berth_error *error)
{
    const berthi_count_options *const o = c->options;
    berthi_rules_options rules = {
        .era = o->era,
        .type = o->encoding,
        .dtype = o->dtype,
        .has_skips = o->has_skips,
        .skips = o->skips,
        .skip_count = o->skip_count,
    };
    berth_status status = BERTH_OK;

    if (is_quantizing(c))
        status = berthi_skip_list_create(&c->tree->arena, &rules, c->model, &c->skips,
                                         error);
    if (status != BERTH_OK || o->era != BERTHI_ERA_HF4)
        return status;
    if (!is_quantizing(c))
        rules.era = BERTHI_ERA_HF5; /* its rule is that of loads without quantizing */
    return berthi_skip_list_float32(&c->tree->arena, &rules, c->model, &c->float32, error);
}

/* 4.x: modules of the skip list may lie on cpu though the model is quantized. */
static bool
can_exempt(counting *c)
{
    const char **texts;

    if (c->options->era != BERTHI_ERA_HF4 || c->skips.count == 0)
        return true;
    texts = berthi_arena_alloc(&c->tree->arena, c->skips.count * sizeof *texts, 8);
    if (texts == NULL)
        return false;
    for (uint32_t i = 0; i < c->skips.count; i++)
        texts[i] = c->skips.skips[i].text;
    c->tree->exempt = texts;
    c->tree->exempt_count = c->skips.count;
    return true;
}

berth_status
berthi_tree_count(berth_context *context, const berthi_architecture *model,
                  const berthi_count_options *options, berthi_tree *out,
                  berth_error *error)
{
    counting c = { .tree = out, .model = model, .options = options };
    berth_status status;

    berthi_tree_init(out, context, count_nodes(model));
    status = make_lists(&c, error);
    if (status == BERTH_OK && !can_exempt(&c))
        status = berthi_fail_memory(error, "counting the model");
    if (status == BERTH_OK && !out->is_failed) {
        out->is_escaping = model->no_placement != NULL && *model->no_placement != NULL;
        add_modules(&c);
        tie_all(&c);
    }
    if (status == BERTH_OK)
        status = berthi_tree_finish(out, error);
    berthi_skip_list_fini(&c.skips);
    berthi_skip_list_fini(&c.float32);
    return status;
}
