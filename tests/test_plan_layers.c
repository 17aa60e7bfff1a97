/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_layers.c - which layers a plan has, and as what their tensors count. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "placement/plan.h"
#include "tests/fixture.h"
#include "tests/planned.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

typedef struct stored {
    const char *name;
    uint64_t rows;
    uint64_t columns; /* 0: one dim */
} stored;

static const char *
write_model(const stored *tensors, size_t count, const char *config)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    for (size_t i = 0; i < count; i++) {
        const uint64_t shape[] = { tensors[i].rows, tensors[i].columns };

        fixture_add_sparse(b, tensors[i].name, "BF16", tensors[i].columns == 0 ? 1 : 2,
                           shape);
    }
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), config);
    return folder;
}

static void
begin(planned *p, const char *folder, const char *max_memory, uint64_t context)
{
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = max_memory;
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = context;
    options.staging_bytes = MIB;
    planned_begin(p, folder, &options);
}

/* An encoder has as many blocks as the decoder; what it computes is not kept. */
static void
test_encoder(void)
{
    static const stored tensors[] = {
        { "shared.weight", 512, 64 },
        { "encoder.block.0.layer.0.SelfAttention.q.weight", 64, 64 },
        { "encoder.block.1.layer.0.SelfAttention.q.weight", 64, 64 },
        { "decoder.block.0.layer.0.SelfAttention.q.weight", 64, 64 },
        { "decoder.block.1.layer.0.SelfAttention.q.weight", 64, 64 },
    };
    const char *const folder = write_model(
        tensors, sizeof tensors / sizeof *tensors,
        "{\"architectures\": [\"T5ForConditionalGeneration\"], \"model_type\": \"t5\", "
        "\"vocab_size\": 512, \"d_model\": 64, \"d_kv\": 16, \"d_ff\": 128, "
        "\"num_layers\": 2, \"num_decoder_layers\": 2, \"num_heads\": 4, "
        "\"torch_dtype\": \"bfloat16\"}");
    planned p;

    begin(&p, folder, "0=1GiB", 128);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(planned_get_layer(&p, fixture_format("encoder.block.%u", i)).cache_bytes, 0);
        CHECK_GT(planned_get_layer(&p, fixture_format("decoder.block.%u", i)).cache_bytes, 0);
    }
    planned_end(&p);
}

/* Neither does a tower, which may have as many blocks, too. */
static void
test_tower(void)
{
    static const stored tensors[] = {
        { "model.embed_tokens.weight", 512, 64 },
        { "model.layers.0.self_attn.q_proj.weight", 64, 64 },
        { "model.layers.1.self_attn.q_proj.weight", 64, 64 },
        { "visual.blocks.0.attn.qkv.weight", 96, 32 },
        { "visual.blocks.1.attn.qkv.weight", 96, 32 },
    };
    const char *const folder = write_model(
        tensors, sizeof tensors / sizeof *tensors,
        "{\"architectures\": [\"Qwen2VLForConditionalGeneration\"], "
        "\"model_type\": \"qwen2_vl\", \"vocab_size\": 512, \"hidden_size\": 64, "
        "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"torch_dtype\": \"bfloat16\", \"vision_config\": {\"depth\": 2}}");
    planned p;

    begin(&p, folder, "0=1GiB", 128);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(planned_get_layer(&p, fixture_format("model.visual.blocks.%u", i)).cache_bytes, 0);
        CHECK_GT(planned_get_layer(&p, fixture_format("model.language_model.layers.%u", i))
                     .cache_bytes,
                 0);
    }
    planned_end(&p);
}

/* Blocks behind the model's own predict further tokens: they keep nothing, the others do. */
static void
test_further_tokens(void)
{
    static const stored tensors[] = {
        { "model.embed_tokens.weight", 512, 64 },
        { "model.layers.0.self_attn.q_proj.weight", 64, 64 },
        { "model.layers.1.self_attn.q_proj.weight", 64, 64 },
        { "model.layers.2.self_attn.q_proj.weight", 64, 64 },
        { "model.layers.2.eh_proj.weight", 64, 128 },
    };
    const char *const folder = write_model(
        tensors, sizeof tensors / sizeof *tensors,
        "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\", "
        "\"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 128, "
        "\"num_hidden_layers\": 2, \"num_nextn_predict_layers\": 1, "
        "\"num_attention_heads\": 4, \"kv_lora_rank\": 32, \"qk_rope_head_dim\": 16, "
        "\"qk_nope_head_dim\": 16, \"v_head_dim\": 16, \"torch_dtype\": \"bfloat16\"}");
    planned p;

    begin(&p, folder, "0=1GiB", 128);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_layer(&p, "model.layers.0").cache_bytes, 128 * (32 + 16) * 2);
    CHECK_EQ(planned_get_layer(&p, "model.layers.1").cache_bytes, 128 * (32 + 16) * 2);
    CHECK_EQ(planned_get_layer(&p, "model.layers.2").cache_bytes, 0);
    planned_end(&p);
}

/* Layers without a cache that grows keep their state, whatever the context. */
static void
test_states(void)
{
    static const stored tensors[] = {
        { "model.embed_tokens.weight", 512, 64 },
        { "model.layers.0.conv.in_proj.weight", 192, 64 },
        { "model.layers.1.self_attn.q_proj.weight", 64, 64 },
    };
    const char *const folder = write_model(
        tensors, sizeof tensors / sizeof *tensors,
        "{\"architectures\": [\"Lfm2ForCausalLM\"], \"model_type\": \"lfm2\", "
        "\"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 128, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"conv_L_cache\": 4, "
        "\"layer_types\": [\"conv\", \"full_attention\"], \"torch_dtype\": \"bfloat16\"}");
    planned p;

    begin(&p, folder, "0=1GiB", 128);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_layer(&p, "model.layers.0").cache_bytes, 64 * 4 * 2);
    CHECK_EQ(planned_get_layer(&p, "model.layers.1").cache_bytes, 128 * 2 * 2 * 16 * 2);
    planned_end(&p);
    /* Without a context nothing is kept. */
    begin(&p, folder, "0=1GiB", 0);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_layer(&p, "model.layers.0").cache_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "model.layers.1").cache_bytes, 0);
    planned_end(&p);
}

/* A head that is the table of words comes last; layers stay what they are. */
static void
test_moved_head(void)
{
    static const stored tensors[] = {
        { "transformer.wte.weight", 4096, 512 },
        { "transformer.wpe.weight", 1024, 512 },
        { "transformer.h.0.attn.c_attn.weight", 512, 1536 },
        { "transformer.h.1.attn.c_attn.weight", 512, 1536 },
        { "transformer.ln_f.weight", 512, 0 },
    };
    static const char *const names[] = { "transformer.wpe", "transformer.h.0",
                                         "transformer.h.1", "transformer.ln_f",
                                         "transformer.wte" };
    const char *const folder = write_model(
        tensors, sizeof tensors / sizeof *tensors,
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", "
        "\"n_embd\": 512, \"n_layer\": 2, \"n_head\": 8, \"vocab_size\": 4096, "
        "\"n_positions\": 1024, \"torch_dtype\": \"bfloat16\"}");
    planned p;

    begin(&p, folder, "0=1GiB", 100);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.layer_count, 5);
    for (uint32_t l = 0; l < p.summary.layer_count; l++) {
        const bool is_block = l == 1 || l == 2;
        berth_plan_layer layer;

        CHECK_EQ(berth_plan_get_layer(p.plan, l, &layer), BERTH_OK);
        CHECK_STR(layer.name, names[l]);
        CHECK_EQ(layer.berth_count, 1);
        CHECK_EQ(layer.cache_bytes, is_block ? 100 * 2 * 512 * 2 : 0);
        CHECK_EQ(layer.cause, l == 4 ? BERTH_PLAN_TIED : BERTH_PLAN_RESIDENT);
    }
    planned_end(&p);
}

/* What no module of its class has is a layer of its own, the last one, without a name. */
static void
test_strays(void)
{
    static const stored tensors[] = {
        { "layers.0.a.weight", 64, 64 },
        { "rotary.other", 64, 64 },
        { "rotary.third", 32, 64 },
    };
    const char *const folder =
        write_model(tensors, sizeof tensors / sizeof *tensors,
                    "{\"architectures\": [\"New\"], \"n\": 1}");
    const char *const file = fixture_format("%s/new.json", fixture_folder());
    berth_plan_options options;
    berth_plan_layer last;
    berth_berth berth;
    char name[64];
    planned p;

    fixture_text(file, "{\"architectures\": {\"New\": {\"base\": \"\", \"no_split\": [\"L\"], "
                       "\"buffers\": [[\"rotary.table\", \"float32\", [4], false]], "
                       "\"tree\": [{\"n\": \"layers\", \"list\": [\"L\"], \"ub\": [], "
                       "\"len\": \"n\"}]}}}");
    berth_plan_options_init(&options);
    options.max_memory = "0=1GiB";
    options.architectures = file;
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.layer_count, 2);
    CHECK_EQ(planned_get_layer(&p, "layers.0").berth_count, 1);
    CHECK_EQ(berth_plan_get_layer(p.plan, 1, &last), BERTH_OK);
    CHECK_STR(last.name, "");
    CHECK_EQ(last.berth_count, 2);
    CHECK_EQ(last.bytes, 3 * 32 * 64 * 2);
    CHECK_EQ(berth_plan_get_berth(p.plan, last.first_berth, &berth, name, sizeof name),
             BERTH_OK);
    CHECK_STR(name, "rotary.other");
    CHECK_EQ(berth.layer, 1);
    planned_end(&p);
}

/* Small tensors stay at home, and so do routers, whatever else is streamed. */
static void
test_fixed(void)
{
    const char *const folder = planned_moe(3, 8);
    uint32_t streamed = 0;

    for (uint32_t mebibytes = 10; mebibytes < 60; mebibytes += 5) {
        planned p;

        begin(&p, folder, fixture_format("0=%uMiB,cpu=500MiB", mebibytes), 0);
        for (uint64_t i = 0; p.plan != NULL && i < p.summary.berth_count; i++) {
            berth_berth berth;
            char name[128];

            CHECK_EQ(berth_plan_get_berth(p.plan, i, &berth, name, sizeof name), BERTH_OK);
            if (berth.bytes < MIB && !CHECK_EQ(berth.tier, 0))
                T_NOTE("%s, %u MiB", name, mebibytes);
            streamed += berth.tier != 0 && strstr(name, "self_attn") != NULL;
        }
        planned_end(&p);
    }
    CHECK_GT(streamed, 5);
}

/* Seconds that operations of a second each take in a pass over 4 sequences. */
static double
count_operations(const char *folder, int32_t type)
{
    double seconds[2] = { 0, 0 };

    for (int i = 0; i < 2; i++) {
        berth_plan_options options;
        planned p;

        berth_plan_options_init(&options);
        options.max_memory = "0=4GiB";
        options.type = type;
        options.takes_experts = 1;
        options.batch = 4;
        options.links = i > 0 ? "0.operation=1s" : NULL;
        planned_begin(&p, folder, &options);
        if (CHECK_EQ(p.status, BERTH_OK))
            seconds[i] = p.summary.compute_seconds;
        planned_end(&p);
    }
    return seconds[1] - seconds[0];
}

/*
 * Four sequences take all of eight experts. In BF16 these are products of their own, of three
 * weights each; in NF4 each of the three is one of all, and the write that it begins with.
 */
static void
test_operations_of_experts(void)
{
    const char *const folder = planned_moe(2, 8);
    const double plain = count_operations(folder, BERTH_ENCODING_NATIVE);
    const double grouped = count_operations(folder, BERTH_ENCODING_NF4);

    if (!CHECK(fabs(plain - grouped - 2 * 3 * (8 - 2)) < 1e-6))
        T_NOTE("%g and %g operations", plain, grouped);
    CHECK(grouped > 2 * 3 * 2);
}

static uint32_t
expert_of(const char *name)
{
    return berthi_plan_expert(name, strlen(name));
}

/* The number of an expert is a whole word behind ".experts." */
static void
test_numbers_of_experts(void)
{
    CHECK_EQ(expert_of("m.0.mlp.experts.0.up.weight"), 0);
    CHECK_EQ(expert_of("m.0.mlp.experts.7.up.weight"), 7);
    CHECK_EQ(expert_of("m.0.mlp.experts.120.up.weight"), 120);
    CHECK_EQ(expert_of("m.0.mlp.experts.4294967294.w"), 4294967294);
    CHECK_EQ(expert_of("m.0.mlp.experts.4294967295.w"), BERTHI_NO_EXPERT);
    CHECK_EQ(expert_of("m.0.mlp.experts..w"), BERTHI_NO_EXPERT);
    CHECK_EQ(expert_of("m.0.mlp.experts.7"), BERTHI_NO_EXPERT);
    CHECK_EQ(expert_of("m.0.mlp.experts.7a.w"), BERTHI_NO_EXPERT);
    CHECK_EQ(expert_of("m.0.mlp.experts.x.w"), BERTHI_NO_EXPERT);
    CHECK_EQ(expert_of("m.0.mlp.expert.7.w"), BERTHI_NO_EXPERT);
    CHECK_EQ(expert_of("m.0.mlp.experts"), BERTHI_NO_EXPERT);
    /* What stands behind the name is no part of it. */
    CHECK_EQ(berthi_plan_expert("m.experts.7.w", 11), BERTHI_NO_EXPERT);
    CHECK_EQ(berthi_plan_expert("m.experts.7.w", 12), 7);
}

/* Whatever name came before. */
static void
test_experts_one_after_another(void)
{
    static const char *const names[] = {
        "m.0.mlp.experts.7.up.weight", "m.0.mlp.experts.8.up.weight",
        "m.0.mlp.experts.80.w",        "m.1.mlp.experts.7.up.weight",
        "m.0.mlp.exports.7.up.weight", "m.10.mlp.experts.7.up.weight",
        "m.0.mlp.experts.x.experts.5.w", "m.0.mlp.experts.",
        "m.0.mlp",                     "m.0.norm.of.all.7.w",
        "",
    };
    const size_t count = sizeof names / sizeof *names;

    for (size_t i = 0; i < count * count; i++) {
        const char *const first = names[i / count];
        const char *const name = names[i % count];
        berthi_plan_expert_name before = { .name = NULL };

        (void)berthi_plan_next_expert(&before, first, strlen(first));
        if (!CHECK_EQ(berthi_plan_next_expert(&before, name, strlen(name)),
                      expert_of(name)))
            T_NOTE("%s behind %s", name, first);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_encoder);
    T_RUN(test_tower);
    T_RUN(test_further_tokens);
    T_RUN(test_states);
    T_RUN(test_moved_head);
    T_RUN(test_strays);
    T_RUN(test_fixed);
    T_RUN(test_operations_of_experts);
    T_RUN(test_numbers_of_experts);
    T_RUN(test_experts_one_after_another);
    T_MAIN_END;
}
