/* SPDX-License-Identifier: Apache-2.0 */
/* stacked.c - models whose experts are stacked; see stacked.h. */
#include "tests/stacked.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define WORDS 64u

const stacked_sizes stacked_small = { .layers = 3, .experts = 8, .hidden = 64, .inner = 64 };
const stacked_sizes stacked_large = {
    .layers = 4, .experts = 8, .hidden = 512, .inner = 1024, .is_sparse = true
};

typedef struct making {
    const stacked_sizes *sizes;
    fixture_builder *builder;
} making;

static uint64_t
elements_of(uint32_t rank, const uint64_t *shape)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < rank; i++)
        count *= shape[i];
    return count;
}

static void
add(making *m, const char *name, uint32_t rank, const uint64_t *shape)
{
    const uint64_t count = elements_of(rank, shape);
    void *values;

    if (m->sizes->is_sparse) {
        fixture_add_sparse(m->builder, name, "BF16", rank, shape);
        return;
    }
    values = weights_values(BERTH_BF16, count, strlen(name) * 131 + count, false);
    fixture_add(m->builder, name, "BF16", rank, shape, values);
    free(values);
}

static void
add_matrix(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    add(m, name, 2, (const uint64_t[2]){ rows, columns });
}

static void
add_vector(making *m, const char *name, uint64_t count)
{
    add(m, name, 1, &count);
}

/* Bytes of any value. */
static void
add_bytes(making *m, const char *name, uint32_t rank, const uint64_t *shape)
{
    const uint64_t count = elements_of(rank, shape);
    uint8_t *const bytes = weights_alloc(count);

    fixture_payload(name, 0, bytes, count);
    fixture_add(m->builder, name, "U8", rank, shape, bytes);
    free(bytes);
}

/* A stack of [inputs, outputs]; groups run along inputs. */
static void
add_stack(making *m, const char *name, uint64_t inputs, uint64_t outputs)
{
    const uint64_t experts = m->sizes->experts;

    if (!m->sizes->is_mxfp4) {
        add(m, name, 3, (const uint64_t[3]){ experts, inputs, outputs });
        return;
    }
    add_bytes(m, fixture_format("%s_blocks", name), 4,
              (const uint64_t[4]){ experts, outputs, inputs / 32, 16 });
    add_bytes(m, fixture_format("%s_scales", name), 3,
              (const uint64_t[3]){ experts, outputs, inputs / 32 });
}

static void
add_layer(making *m, uint32_t layer)
{
    const stacked_sizes *const s = m->sizes;
    const char *const prefix = fixture_format("model.layers.%u", layer);

    add_vector(m, fixture_format("%s.input_layernorm.weight", prefix), s->hidden);
    for (const char *const *name = (const char *const[]){ "q", "k", "v", "o", NULL };
         *name != NULL; name++)
        add_matrix(m, fixture_format("%s.self_attn.%s_proj.weight", prefix, *name),
                   s->hidden, s->hidden);
    add_vector(m, fixture_format("%s.self_attn.sinks", prefix), 4);
    add_matrix(m, fixture_format("%s.mlp.router.weight", prefix), s->experts, s->hidden);
    add_matrix(m, fixture_format("%s.mlp.experts.gate_up_proj_bias", prefix), s->experts,
               2 * (uint64_t)s->inner);
    add_stack(m, fixture_format("%s.mlp.experts.gate_up_proj", prefix), s->hidden,
              2 * (uint64_t)s->inner);
    add_stack(m, fixture_format("%s.mlp.experts.down_proj", prefix), s->inner, s->hidden);
}

const char *
stacked_make(const stacked_sizes *s)
{
    const char *const folder = fixture_folder();
    making m = { s, fixture_begin() };

    add_matrix(&m, "model.embed_tokens.weight", WORDS, s->hidden);
    for (uint32_t i = 0; i < s->layers; i++)
        add_layer(&m, i);
    if (s->extra != NULL)
        add(&m, s->extra, 3, s->extra_shape);
    add_vector(&m, "model.norm.weight", s->hidden);
    add_matrix(&m, "lm_head.weight", WORDS, s->hidden);
    (void)fixture_finish(m.builder, fixture_format("%s/model.safetensors", folder));
    fixture_text(
        fixture_format("%s/config.json", folder),
        fixture_format("{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": "
                       "\"gpt_oss\", \"hidden_size\": %u, \"intermediate_size\": %u, "
                       "\"num_hidden_layers\": %u, \"num_attention_heads\": 4, "
                       "\"num_key_value_heads\": 4, \"head_dim\": %u, \"vocab_size\": %u, "
                       "\"num_local_experts\": %u, \"num_experts_per_tok\": 2, "
                       "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false%s}",
                       s->hidden, s->inner, s->layers, s->hidden / 4, WORDS, s->experts,
                       s->is_mxfp4 ? ", \"quantization_config\": {\"quant_method\": "
                                     "\"mxfp4\"}"
                                   : ""));
    return folder;
}

berth_plan_options
stacked_options(const char *max_memory, int32_t stacks)
{
    berth_plan_options options = loaded_options(max_memory);

    options.stacks = stacks;
    return options;
}

uint64_t
stacked_berth(const planned *p, uint32_t layer, const char *stack, uint32_t expert)
{
    const char *const wanted =
        fixture_format("model.layers.%u.mlp.experts.%s", layer, stack);

    for (uint64_t i = 0; i < p->summary.berth_count; i++) {
        berth_berth berth;
        char name[256];

        CHECK_EQ(berth_plan_get_berth(p->plan, i, &berth, name, sizeof name), BERTH_OK);
        if (strcmp(name, wanted) == 0 && berth.first == expert)
            return i;
    }
    CHECK_STR("no berth", wanted);
    return 0;
}

berth_status
stacked_parse(const planned *p, const char *from, const char *to, berth_plan **out,
              berth_error *error)
{
    size_t length;
    char *const text = planned_text(p->plan, &length);
    const char *const at = strstr(text, from);
    const size_t before = (size_t)(at - text);
    char *changed;
    berth_status status;

    if (!CHECK(at != NULL))
        abort();
    changed = weights_alloc(length + strlen(to));
    memcpy(changed, text, before);
    memcpy(changed + before, to, strlen(to));
    memcpy(changed + before + strlen(to), at + strlen(from),
           length - before - strlen(from));
    status = berth_plan_parse(p->context, changed, length - strlen(from) + strlen(to),
                              "plan", out, error);
    free(changed);
    free(text);
    return status;
}
