/* SPDX-License-Identifier: Apache-2.0 */
/* asked.c - see asked.h. */
#include "tests/asked.h"

#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"

berth_status
asked_open(asked *a, const char *path, const berth_open_options *options)
{
    berth_status status;

    memset(a, 0, sizeof *a);
    CHECK_EQ(berth_context_create(NULL, &a->context, NULL), BERTH_OK);
    status = berth_shape_open(a->context, path, options, &a->shape, &a->error);
    CHECK_EQ(status, a->error.status);
    CHECK_EQ(status == BERTH_OK, a->shape != NULL);
    if (status == BERTH_OK)
        berth_shape_get(a->shape, &a->model);
    return status;
}

berth_status
asked_estimate(asked *a, const berth_estimate_options *options)
{
    berth_status status;

    berth_estimate_destroy(a->estimate);
    status = berth_estimate_create(a->context, a->shape, options, &a->estimate, &a->error);
    CHECK_EQ(status, a->error.status);
    CHECK_EQ(status == BERTH_OK, a->estimate != NULL);
    if (status == BERTH_OK)
        berth_estimate_get(a->estimate, &a->summary);
    return status;
}

void
asked_end(asked *a)
{
    berth_memory_summary memory;

    berth_estimate_destroy(a->estimate);
    berth_shape_close(a->shape);
    berth_context_memory(a->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(a->context);
}

uint64_t
asked_part(const asked *a, const char *key)
{
    berth_estimate_part part;

    for (uint32_t i = 0; i < a->summary.part_count; i++) {
        CHECK_EQ(berth_estimate_get_part(a->estimate, i, &part), BERTH_OK);
        if (strcmp(part.key, key) == 0)
            return part.bytes;
    }
    return 0;
}

uint64_t
asked_weights(const asked *a)
{
    return asked_part(a, "linear_weights") + asked_part(a, "other_weights");
}

const char *
asked_config(const char *name)
{
    return fixture_format("tests/data/configs/%s.json", name);
}

const char *
asked_config_folder(const char *name)
{
    const char *const folder = fixture_folder();

    fixture_copy(asked_config(name), fixture_format("%s/config.json", folder));
    return folder;
}

static void
add_small(fixture_builder *b, const char *prefix, bool is_quantized)
{
    static const struct {
        const char *name;
        uint64_t shape[2];
    } linears[] = { { "self_attn.q_proj", { 128, 128 } }, { "self_attn.k_proj", { 64, 128 } },
                    { "self_attn.v_proj", { 64, 128 } },  { "self_attn.o_proj", { 128, 128 } },
                    { "mlp.gate_proj", { 256, 128 } },    { "mlp.up_proj", { 256, 128 } },
                    { "mlp.down_proj", { 128, 256 } } };
    static const char *const norms[] = { "input_layernorm", "post_attention_layernorm" };
    static const uint64_t norm[] = { 128 };

    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        const char *const name =
            fixture_format("%s%s.weight", prefix, linears[i].name);

        if (is_quantized)
            fixture_add_nf4(b, name, linears[i].shape[0], linears[i].shape[1], false);
        else
            fixture_add(b, name, "BF16", 2, linears[i].shape, NULL);
    }
    for (size_t i = 0; i < 2; i++)
        fixture_add(b, fixture_format("%s%s.weight", prefix, norms[i]), "BF16", 1, norm,
                    NULL);
}

const char *
asked_small_folder(const char *extra, bool is_quantized, const char *ties)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    fixture_text(fixture_format("%s/config.json", folder),
                 fixture_format(ASKED_SMALL_CONFIG, ties));
    fixture_add_lines(b, "BF16 500x128 model.embed_tokens.weight\n"
                         "BF16 500x128 lm_head.weight\nBF16 128 model.norm.weight\n");
    fixture_add_lines(b, extra);
    add_small(b, "model.layers.0.", is_quantized);
    add_small(b, "model.layers.1.", is_quantized);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}
