/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_around.c - which part of a file is the language model, and what stands beside
 * it and around it; see shape_read.h.
 */
#include <string.h>

#include "kernels/text.h"
#include "placement/shape_read.h"
#include "quant/config.h"

static bool
has_object(const berthi_json_value *root, const char *key)
{
    return berthi_json_kind_of(berthi_json_get(root, key)) == BERTHI_JSON_OBJECT;
}

/*
 * Whether an object is a model's: it names its type. Of MPT's attention, which is none, the name
 * is empty.
 */
static bool
is_model(const berthi_json_value *value)
{
    const char *type = "";

    return berthi_json_can_read_string(berthi_json_get(value, "model_type"), &type)
           && type[0] != '\0';
}

/*
 * A model beside the language model: a tower, or whatever has a model_type of its own in an object
 * that is called so ("encoder_config", "qformer_config").
 */
static bool
has_tower(const berthi_json_value *root, const berthi_json_value *model)
{
    for (const berthi_json_value *v = berthi_json_first(root); v != NULL;
         v = berthi_json_next(v)) {
        if (v != model && berthi_text_ends(berthi_text_of(berthi_json_key(v)), "_config")
            && is_model(v))
            return true;
    }
    return has_object(root, "vision_config") || has_object(root, "audio_config");
}

void
berthi_shape_read_around(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;

    r->model = berthi_config_find_language(r->root);
    shape->has_tower = has_tower(r->root, r->model);
    shape->is_inner = r->model != r->root;
    shape->is_quantized = has_object(r->root, "quantization_config")
                          || has_object(r->model, "quantization_config");
    if (!berthi_json_can_read_string(
            berthi_json_first(berthi_json_find(r->root, "architectures")), &r->class_name))
        r->class_name = "";
}
