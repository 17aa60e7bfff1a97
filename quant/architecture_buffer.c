/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_buffer.c - buffers: those that checkpoints hold, and those whose
 * size follows from config.json, as that of rotary tables; parameters like these. See
 * architecture_build.h.
 */
#include "quant/architecture_build.h"
#include "quant/format.h"

/* A buffer's description: [name, dtype, shape, persistent]. */
typedef struct buffer {
    const char *name;
    const char *dtype;
    const berthi_json_value *shape;
    bool is_persistent;
} buffer;

static bool
can_read_buffer(berthi_build *build, const berthi_json_value *value, buffer *out)
{
    const berthi_json_value *at = berthi_json_first(value);
    bool is_good = berthi_json_can_read_string(at, &out->name);

    at = berthi_json_next(at);
    is_good = is_good && berthi_json_can_read_string(at, &out->dtype);
    at = berthi_json_next(at);
    out->shape = at;
    at = berthi_json_next(at);
    is_good = is_good && berthi_json_can_read_bool(at, &out->is_persistent);
    if (!is_good)
        berthi_build_refuse(build, "a buffer is not [name, dtype, shape, persistent]");
    return is_good;
}

static int32_t
buffer_dtype(berthi_build *build, const buffer *b)
{
    int32_t dtype;

    if (strcmp(b->dtype, "model") == 0)
        return build->options->dtype;
    dtype = berthi_format_torch_dtype(b->dtype, strlen(b->dtype));
    if (dtype == BERTHI_NO_DTYPE)
        berthi_build_refuse(build, "a buffer of no dtype");
    return dtype;
}

/* Tables by position are as long as the embedding of positions beside them. */
static void
take_position_count(const berthi_build *build, berthi_text path, uint64_t *out)
{
    berthi_text last;
    const berthi_text parent = berthi_build_split(path, &last);
    const build_range near = berthi_build_below(build, parent);

    if (!berthi_text_is(last, "position_ids")
        && !berthi_text_is(last, "token_type_ids"))
        return;
    for (uint32_t i = near.first; i < near.end; i++) {
        const berthi_parameter *const p = build->made->parameters[i];
        berthi_text weight;
        berthi_text owner;

        berthi_build_split(berthi_build_split(build_name(p), &weight), &owner);
        if (!berthi_text_ends(weight, "weight"))
            continue;
        for (uint64_t k = 0; k + 8 <= owner.length; k++)
            if (memcmp(owner.bytes + k, "position", 8) == 0 && p->rank > 0) {
                *out = p->shape[0];
                return;
            }
    }
}

static void
take_shape(berthi_build *build, berthi_text path, const buffer *b, berthi_parameter *made)
{
    const berthi_json_value *at = berthi_json_first(b->shape);
    uint64_t *shape;

    while (at != NULL) {
        made->rank++;
        at = berthi_json_next(at);
    }
    shape = berthi_build_alloc(build, made->rank, sizeof *shape);
    if (shape == NULL)
        return;
    at = berthi_json_first(b->shape);
    for (uint32_t i = 0; i < made->rank; i++, at = berthi_json_next(at))
        if (!berthi_json_can_read_unsigned(at, &shape[i]))
            berthi_build_refuse(build, "a buffer's shape");
        else
            (void)berthi_build_can_size(build, path, i, &shape[i]);
    if (made->rank > 0)
        take_position_count(build, path, &shape[made->rank - 1]);
    made->shape = shape;
    if (!berthi_format_can_count(shape, made->rank, &made->elements))
        berthi_build_fail(build, path, shape[0], 0, "a buffer of impossible size");
}

void
berthi_build_add_unstored(berthi_build *build, berthi_module *module)
{
    const berthi_text path =
        berthi_build_join(build, build_path(module), berthi_text_of("weight"));
    uint64_t *const shape = berthi_build_alloc(build, 2, sizeof *shape);
    berthi_parameter *const made = berthi_build_alloc(build, 1, sizeof *made);

    if (made == NULL || berthi_build_find(build, path) != NULL
        || !berthi_build_can_size(build, path, 0, &shape[0])
        || !berthi_build_can_size(build, path, 1, &shape[1])
        || !berthi_format_can_count(shape, 2, &made->elements))
        return;
    made->name = path.bytes;
    made->name_length = path.length;
    made->shape = shape;
    made->rank = 2;
    made->dtype = build->options->dtype;
    made->first_piece = BERTHI_NO_POSITION;
    berthi_build_add(module, made, false);
}

static berthi_parameter *
make_buffer(berthi_build *build, berthi_text path, const buffer *b)
{
    berthi_parameter *const made = berthi_build_alloc(build, 1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->name = path.bytes;
    made->name_length = path.length;
    made->dtype = buffer_dtype(build, b);
    made->first_piece = BERTHI_NO_POSITION;
    take_shape(build, path, b, made);
    return made;
}

/* 4.x has no unchanged copies of the rotary tables. */
static bool
is_absent_copy(const berthi_build *build, const buffer *b)
{
    return build->options->era == BERTHI_ERA_HF4
           && berthi_text_ends(berthi_text_of(b->name), "original_inv_freq");
}

static void
add_buffer(berthi_build *build, berthi_module *module, const buffer *b)
{
    const berthi_text path =
        berthi_build_join(build, build_path(module), berthi_text_of(b->name));
    berthi_parameter *tensor = berthi_build_find(build, path);
    berthi_text last;
    berthi_module *owner;

    /* Checkpoints that lack one of the root's get it from the class. */
    if (build->status != BERTH_OK || (tensor != NULL && tensor->is_buffer)
        || (tensor == NULL && b->is_persistent && module->parent != NULL))
        return;
    if (tensor == NULL)
        tensor = make_buffer(build, path, b);
    else if (b->is_persistent)
        tensor->dtype = buffer_dtype(build, b);
    owner = berthi_build_reach(build, module,
                               berthi_build_split(berthi_text_of(b->name), &last),
                               BERTHI_MODULE_INNER);
    if (build->status != BERTH_OK)
        return;
    if (tensor->module != NULL)
        berthi_build_remove(tensor);
    tensor->is_persistent = b->is_persistent;
    tensor->is_linear = false;
    berthi_build_add(owner, tensor, true);
}

void
berthi_build_add_buffers(berthi_build *build, berthi_module *module,
                         const berthi_json_value *list)
{
    for (const berthi_json_value *at = berthi_json_first(list); at != NULL;
         at = berthi_json_next(at)) {
        buffer b;

        if (build->status != BERTH_OK || !can_read_buffer(build, at, &b))
            return;
        if (!is_absent_copy(build, &b))
            add_buffer(build, module, &b);
    }
}
