/* SPDX-License-Identifier: Apache-2.0 */
/* planned.c - models for tests of plans; see planned.h. */
#include "tests/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"

/* ------------------------------------------------------------------------ models */

static void
add(fixture_builder *b, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };

    fixture_add_sparse(b, name, "BF16", columns == 0 ? 1 : 2, shape);
}

static void
add_attention(fixture_builder *b, uint32_t layer)
{
    static const char *const names[] = { "q_proj", "k_proj", "v_proj", "o_proj" };

    for (uint32_t i = 0; i < 4; i++)
        add(b, fixture_format("model.layers.%u.self_attn.%s.weight", layer, names[i]),
            1024, 1024);
    add(b, fixture_format("model.layers.%u.input_layernorm.weight", layer), 1024, 0);
    add(b, fixture_format("model.layers.%u.post_attention_layernorm.weight", layer), 1024,
        0);
}

static void
add_mlp(fixture_builder *b, const char *prefix, const char *const *names, uint64_t width)
{
    add(b, fixture_format("%s.%s.weight", prefix, names[0]), width, 1024);
    add(b, fixture_format("%s.%s.weight", prefix, names[1]), width, 1024);
    add(b, fixture_format("%s.%s.weight", prefix, names[2]), 1024, width);
}

static const char *
finish(fixture_builder *b, bool is_tied, const char *config)
{
    const char *const folder = fixture_folder();

    add(b, "model.embed_tokens.weight", 8192, 1024);
    add(b, "model.norm.weight", 1024, 0);
    if (!is_tied)
        add(b, "lm_head.weight", 8192, 1024);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), config);
    return folder;
}

const char *
planned_llama(uint32_t layers, bool is_tied)
{
    static const char *const names[] = { "gate_proj", "up_proj", "down_proj" };
    fixture_builder *const b = fixture_begin();

    for (uint32_t i = 0; i < layers; i++) {
        add_attention(b, i);
        add_mlp(b, fixture_format("model.layers.%u.mlp", i), names, 2816);
    }
    return finish(
        b, is_tied,
        fixture_format("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": "
                       "\"llama\", \"hidden_size\": 1024, \"intermediate_size\": 2816, "
                       "\"num_hidden_layers\": %u, \"num_attention_heads\": 8, "
                       "\"num_key_value_heads\": 8, \"vocab_size\": 8192, "
                       "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": %s}",
                       layers, is_tied ? "true" : "false"));
}

const char *
planned_moe(uint32_t layers, uint32_t experts)
{
    static const char *const names[] = { "w1", "w3", "w2" };
    fixture_builder *const b = fixture_begin();

    for (uint32_t i = 0; i < layers; i++) {
        add_attention(b, i);
        add(b, fixture_format("model.layers.%u.block_sparse_moe.gate.weight", i), experts,
            1024);
        for (uint32_t k = 0; k < experts; k++)
            add_mlp(b, fixture_format("model.layers.%u.block_sparse_moe.experts.%u", i, k),
                    names, 512);
    }
    return finish(
        b, false,
        fixture_format("{\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": "
                       "\"mixtral\", \"hidden_size\": 1024, \"intermediate_size\": 512, "
                       "\"num_hidden_layers\": %u, \"num_attention_heads\": 8, "
                       "\"num_key_value_heads\": 8, \"vocab_size\": 8192, "
                       "\"num_local_experts\": %u, \"num_experts_per_tok\": %u, "
                       "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}",
                       layers, experts, experts < 2 ? experts : 2));
}

/* ----------------------------------------------------------------------- opening */

static void
keep(void *user, const berth_finding *finding)
{
    planned *const p = user;

    if (p->finding_count < 8)
        (void)snprintf(p->findings[p->finding_count], sizeof p->findings[0], "%s",
                       finding->details->message);
    p->finding_count++;
}

void
planned_begin(planned *p, const char *folder, berth_plan_options *options)
{
    memset(p, 0, sizeof *p);
    CHECK_EQ(berth_context_create(NULL, &p->context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(p->context, folder, NULL, &p->checkpoint, &p->error),
             BERTH_OK);
    options->finding = keep;
    options->finding_user = p;
    p->plan = (berth_plan *)(void *)p; /* to be set in any case */
    p->status = berth_plan_create(p->context, p->checkpoint, options, &p->plan, &p->error);
    CHECK_EQ(p->status, p->error.status);
    CHECK((p->status == BERTH_OK) == (p->plan != NULL));
    if (p->plan != NULL)
        berth_plan_get(p->plan, &p->summary);
}

void
planned_end(planned *p)
{
    berth_memory_summary memory;

    berth_plan_destroy(p->plan);
    berth_checkpoint_close(p->checkpoint);
    berth_context_memory(p->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(p->context);
}

berth_plan_tier
planned_get_tier(const planned *p, const char *name)
{
    berth_plan_tier tier;

    CHECK_EQ(berth_plan_get_tier(p->plan, planned_tier(p, name), &tier), BERTH_OK);
    return tier;
}

berth_plan_layer
planned_get_layer(const planned *p, const char *name)
{
    berth_plan_layer layer;

    CHECK_EQ(berth_plan_get_layer(p->plan, planned_layer(p, name), &layer), BERTH_OK);
    return layer;
}

bool
planned_is_zero(const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)bytes)[i] != 0)
            return false;
    return true;
}

uint32_t
planned_tier(const planned *p, const char *name)
{
    berth_plan_tier tier;

    for (uint32_t t = 0; berth_plan_get_tier(p->plan, t, &tier) == BERTH_OK; t++)
        if (strcmp(tier.name, name) == 0)
            return t;
    CHECK_STR(name, "a tier of the plan");
    return 0;
}

uint32_t
planned_layer(const planned *p, const char *name)
{
    berth_plan_layer layer;

    for (uint32_t l = 0; berth_plan_get_layer(p->plan, l, &layer) == BERTH_OK; l++)
        if (strcmp(layer.name, name) == 0)
            return l;
    CHECK_STR(name, "a layer of the plan");
    return 0;
}

/* -------------------------------------------------------------------------- text */

typedef struct text {
    char *bytes;
    size_t length;
} text;

static int
append(void *user, const char *bytes, size_t length)
{
    text *const t = user;

    t->bytes = realloc(t->bytes, t->length + length + 1);
    if (t->bytes == NULL)
        abort();
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
    t->bytes[t->length] = '\0';
    return 0;
}

char *
planned_text(const berth_plan *plan, size_t *length)
{
    text t = { .bytes = NULL };

    CHECK_EQ(berth_plan_print(plan, append, &t, NULL), BERTH_OK);
    if (length != NULL)
        *length = t.length;
    return t.bytes;
}

static void
check_text(const planned *p)
{
    const char *const path = fixture_format("%s/plan.json", fixture_folder());
    size_t length;
    char *const first = planned_text(p->plan, &length);
    berth_plan *again = NULL;
    berth_error error;
    char *second;

    fixture_write(path, first, length);
    if (!CHECK_EQ(berth_plan_open(p->context, path, &again, &error), BERTH_OK)) {
        T_NOTE("%s at %llu", error.message, (unsigned long long)error.position);
        free(first);
        return;
    }
    second = planned_text(again, NULL);
    CHECK_STR(second, first);
    memset(&error, 0xff, sizeof error); /* as it may lie on a caller's stack */
    CHECK_EQ(berth_plan_check(again, p->context, p->checkpoint, "", NULL, NULL, &error),
             BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    berth_plan_destroy(again);
    free(first);
    free(second);
}

/* -------------------------------------------------------------------- what holds */

static void
check_tier(const planned *p, uint32_t t)
{
    berth_plan_tier tier;
    uint64_t end = 0;
    uint64_t berths = 0;
    uint64_t bytes = 0;

    CHECK_EQ(berth_plan_get_tier(p->plan, t, &tier), BERTH_OK);
    for (uint64_t i = 0; i < p->summary.berth_count; i++) {
        berth_berth berth;

        CHECK_EQ(berth_plan_get_berth(p->plan, i, &berth, NULL, 0), BERTH_OK);
        if (berth.tier != t)
            continue;
        CHECK_EQ(berth.offset % 256, 0);
        CHECK_EQ(berth.bytes % 256, 0);
        berths++;
        bytes += berth.bytes;
        if (berth.offset + berth.bytes > end)
            end = berth.offset + berth.bytes;
    }
    CHECK_EQ(tier.weights, end);
    CHECK_LE(tier.berths, berths);
    CHECK_LE(end, bytes); /* no holes; tied ones count twice in `bytes` */
    CHECK_EQ(tier.slots, tier.slot_count * tier.slot_bytes);
    if (tier.budget != UINT64_MAX)
        CHECK_EQ(tier.budget, tier.reserve + tier.weights + tier.cache + tier.activations
                                  + tier.slots + tier.expert_slots + tier.scratch
                                  + tier.turned + tier.staging + tier.training + tier.free);
}

/* Behind the last one there is nothing. */
static void
check_ends(const planned *p)
{
    berth_plan_tier tier;
    berth_plan_layer layer;
    berth_map_line line;
    berth_berth berth;
    char reason[8];

    CHECK_EQ(berth_plan_get_tier(p->plan, p->summary.tier_count, &tier), BERTH_EINVAL);
    CHECK_EQ(berth_plan_get_layer(p->plan, p->summary.layer_count, &layer), BERTH_EINVAL);
    CHECK_EQ(berth_plan_get_map(p->plan, p->summary.map_count, &line), BERTH_EINVAL);
    CHECK_EQ(berth_plan_get_berth(p->plan, p->summary.berth_count, &berth, NULL, 0),
             BERTH_EINVAL);
    CHECK_EQ(berth_plan_explain(p->plan, p->summary.layer_count, reason, sizeof reason),
             BERTH_EINVAL);
}

static void
check_layers(const planned *p)
{
    uint64_t next = 0;
    uint64_t bytes = 0;
    uint64_t resident = 0;
    uint64_t link = 0;
    uint32_t cuts = 0;
    uint32_t home = 0;

    for (uint32_t l = 0; l < p->summary.layer_count; l++) {
        berth_plan_layer layer;
        char reason[256] = "";

        CHECK_EQ(berth_plan_get_layer(p->plan, l, &layer), BERTH_OK);
        CHECK_EQ(layer.first_berth, next);
        CHECK_LT(layer.home, p->summary.tier_count);
        CHECK_EQ(berth_plan_explain(p->plan, l, reason, sizeof reason), BERTH_OK);
        CHECK(reason[0] != '\0');
        next += layer.berth_count;
        bytes += layer.bytes;
        resident += layer.resident_bytes;
        link += layer.link_bytes;
        cuts += l > 0 && layer.home != home;
        home = layer.home;
    }
    CHECK_EQ(next, p->summary.berth_count);
    check_ends(p);
    CHECK_EQ(bytes, p->summary.bytes);
    CHECK_EQ(resident, p->summary.resident_bytes);
    CHECK_EQ(bytes - resident, p->summary.streamed_bytes);
    CHECK_EQ(link, p->summary.link_bytes);
    CHECK_EQ(cuts, p->summary.cuts);
}

/* Every tensor once, under its own name; of a stack every expert. */
static void
check_names(const planned *p)
{
    berth_checkpoint_summary model;
    uint64_t *seen; /* rows */

    berth_checkpoint_get(p->checkpoint, &model);
    seen = calloc(model.tensor_count, sizeof *seen);
    if (seen == NULL)
        abort();
    for (uint64_t i = 0; i < p->summary.berth_count; i++) {
        berth_tensor tensor;
        berth_berth berth;
        char name[512];

        CHECK_EQ(berth_plan_get_berth(p->plan, i, &berth, name, sizeof name), BERTH_OK);
        CHECK_EQ(berth_checkpoint_tensor(p->checkpoint, berth.tensor, &tensor), BERTH_OK);
        CHECK_EQ(strlen(name), tensor.name_length);
        CHECK_MEM(name, tensor.name, tensor.name_length);
        if (p->summary.stacks == BERTH_STACKS_APART && berth.along == BERTH_SLICING_ROWS) {
            CHECK_EQ(berth.is_expert, 1);
            CHECK_EQ(seen[berth.tensor], berth.first);
            seen[berth.tensor] += berth.count;
            CHECK_LE(seen[berth.tensor], tensor.shape[0]);
        } else {
            CHECK_EQ(seen[berth.tensor], 0);
            seen[berth.tensor] = UINT64_MAX;
        }
    }
    for (uint64_t i = 0; i < model.tensor_count; i++) {
        berth_tensor tensor;

        CHECK_EQ(berth_checkpoint_tensor(p->checkpoint, i, &tensor), BERTH_OK);
        if (seen[i] != 0 && seen[i] != UINT64_MAX && tensor.rank == 3) /* not packed */
            CHECK_EQ(seen[i], tensor.shape[0]);
    }
    free(seen);
}

void
planned_check(const planned *p)
{
    for (uint32_t t = 0; t < p->summary.tier_count; t++)
        check_tier(p, t);
    check_layers(p);
    check_names(p);
    check_text(p);
}

uint64_t
planned_best_sum(const uint64_t *bytes, uint32_t count, uint64_t room)
{
    uint64_t best = 0;

    for (uint32_t mask = 0; mask < 1u << count; mask++) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < count; i++)
            sum += (mask >> i & 1) != 0 ? bytes[i] : 0;
        if (sum <= room && sum > best)
            best = sum;
    }
    return best;
}
