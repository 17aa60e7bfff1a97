/* SPDX-License-Identifier: Apache-2.0 */
/* described.c - invariants of architectures, and descriptions laid out; see described.h. */
#include "tests/described.h"

#include <stdio.h>
#include <string.h>

#include "tests/t.h"

model
described_read(berth_context *context, const char *text)
{
    model m;

    CHECK(model_read(context, &text, &m));
    return m;
}

/* ------------------------------------------------------------------ invariants */

static bool
is_end_of(const char *end, uint64_t end_length, const char *whole, uint64_t length)
{
    return end_length <= length
           && memcmp(whole + length - end_length, end, (size_t)end_length) == 0;
}

static void
check_module(const berthi_module *module, uint64_t *tensors)
{
    const berthi_module *child = module->children;
    const berthi_parameter *last = NULL;

    CHECK(is_end_of(module->name, module->name_length, module->path, module->path_length));
    CHECK_EQ(module->kind == BERTHI_MODULE_BLOCK, module->class_name != NULL);
    CHECK(!module->is_never_split || module->kind == BERTHI_MODULE_BLOCK);
    for (; child != NULL; child = child->next) {
        CHECK(child->parent == module);
        CHECK(child->next != NULL || child == module->last_child);
        CHECK_EQ(child->path_length, module->path_length + (module->path_length > 0)
                                         + child->name_length);
    }
    for (const berthi_parameter *p = module->parameters; p != NULL; p = p->next) {
        CHECK(p->module == module && !p->is_buffer);
        last = p;
        (*tensors)++;
    }
    CHECK(last == module->last_parameter);
    last = NULL;
    for (const berthi_parameter *p = module->buffers; p != NULL; p = p->next) {
        CHECK(p->module == module && p->is_buffer && !p->is_linear);
        last = p;
        (*tensors)++;
    }
    CHECK(last == module->last_buffer);
}

void
described_check(const berthi_architecture *a, const model *m)
{
    uint64_t tensors = 0;
    uint64_t modules = 0;

    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at)) {
        check_module(at, &tensors);
        T_REQUIRE(CHECK_LT(++modules, 100000));
    }
    CHECK_GE(tensors, a->parameter_count);
    for (uint32_t i = 0; i < a->parameter_count; i++) {
        const berthi_parameter *const p = a->parameters[i];

        T_REQUIRE(CHECK(p->module != NULL));
        CHECK(berthi_architecture_find(a, p->name, p->name_length) == p);
        CHECK(!p->is_conv1d || p->is_linear);
        CHECK(!(p->is_linear && p->is_linear_kind));
    }
    CHECK_EQ(a->tensor_count, m->tensor_count);
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        uint32_t piece = a->parameter_of[i]->first_piece;
        uint32_t pieces = 0;
        bool is_among = false;

        for (; piece != BERTHI_NO_POSITION; piece = a->next_piece[piece], pieces++)
            is_among = is_among || piece == i;
        CHECK(is_among);
        CHECK_EQ(pieces, a->parameter_of[i]->piece_count);
    }
}

const char *
described_name(const berthi_architecture *a, const model *m, const char *name,
               char *out)
{
    const berthi_parameter *const p = a->parameter_of[model_position(m, name)];

    snprintf(out, 256, "%.*s", (int)p->name_length, p->name);
    return out;
}

const berthi_parameter *
described_find(const berthi_architecture *a, const char *name)
{
    return berthi_architecture_find(a, name, strlen(name));
}

berth_status
described_lay_out(berth_context *context, const char *description, const char *lines,
                  model *m, berthi_catalogue **catalogue, berthi_architecture **out,
                  berth_error *error)
{
    char text[4096];
    berthi_architecture_options options;

    snprintf(text, sizeof text, "{\"architectures\": {\"X\": %s}}", description);
    CHECK_EQ(berthi_catalogue_create(context, text, strlen(text), "x.json", catalogue, error),
             BERTH_OK);
    *m = described_read(context, lines);
    snprintf(m->class_name, sizeof m->class_name, "X");
    options = model_options(m, BERTHI_ERA_HF5);
    options.catalogue = *catalogue;
    return berthi_architecture_create(context, &options, &m->source, out, error);
}

void
described_end(berth_context *context, model *m, berthi_catalogue *catalogue,
              berthi_architecture *a)
{
    berthi_architecture_destroy(a);
    berthi_catalogue_destroy(context, catalogue);
    model_fini(m);
}
