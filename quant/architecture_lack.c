/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_lack.c - what descriptions lack besides names (architecture_correct.c):
 * children that a model has inside of some others alone, sizes of buffers, parameters that
 * no checkpoint needs to hold. See architecture_build.h.
 */
#include "quant/architecture_build.h"

static const char *const of_opt[] = { "Blip2ForConditionalGeneration",
                                      "InstructBlipForConditionalGeneration",
                                      "InstructBlipVideoForConditionalGeneration", NULL };
static const char *const falcon_mamba[] = { "FalconMambaForCausalLM", NULL };
static const char *const marian[] = { "MarianMTModel", NULL };

/* Of OPT as a model by itself they are known. */
static const struct {
    const char *const *classes;
    const char *path;
    const char *behind;
    const char *child;
} children[] = {
    { of_opt, "language_model.model.decoder", "embed_positions", "project_out" },
    { of_opt, "language_model.model.decoder", "embed_positions", "project_in" },
};

static const struct {
    const char *const *classes;
    const char *star;
    const char *axes[2];
} sizes[] = {
    { falcon_mamba, "backbone.layers.*.mixer.dt_layernorm.weight", { "expand*hidden_size" } },
    { falcon_mamba, "backbone.layers.*.mixer.dt_rms", { "expand*hidden_size" } }, /* 4.x */
    { marian, "model.decoder.embed_positions.weight",
      { "max_position_embeddings", "d_model" } },
    { marian, "model.encoder.embed_positions.weight",
      { "max_position_embeddings", "d_model" } },
};

/* Sines and cosines. */
static const struct {
    const char *const *classes;
    const char *path;
} unstored[] = {
    { marian, "model.decoder.embed_positions" },
    { marian, "model.encoder.embed_positions" },
};

const char *
berthi_build_lacking_child(const berthi_build *build, berthi_text path, berthi_text behind,
                           uint32_t *position)
{
    while (*position < sizeof children / sizeof *children) {
        const uint32_t at = (*position)++;

        if (berthi_build_is_among(children[at].classes, build->made->class_name)
            && berthi_text_is(path, children[at].path)
            && berthi_text_is(behind, children[at].behind))
            return children[at].child;
    }
    return NULL;
}

const char *
berthi_build_lacking_size(const char *class_name, const char *star, uint32_t axis)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (axis < sizeof sizes[i].axes / sizeof *sizes[i].axes
            && berthi_build_is_among(sizes[i].classes, class_name)
            && strcmp(sizes[i].star, star) == 0)
            return sizes[i].axes[axis];
    return NULL;
}

bool
berthi_build_is_unstored(const berthi_build *build, berthi_text path)
{
    for (size_t i = 0; i < sizeof unstored / sizeof *unstored; i++)
        if (berthi_build_is_among(unstored[i].classes, build->made->class_name)
            && berthi_text_is(path, unstored[i].path))
            return true;
    return false;
}
