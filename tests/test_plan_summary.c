/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_summary.c - what a plan says of the whole: sums, digest, cache, bound, tables. */
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "loader/plan_input.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ----------------------------------------------------------------------- summary */

static void
test_summary(void)
{
    berth_plan_options options = loaded_options("0=1GiB,cpu=1GiB");
    planned p;

    options.type = BERTH_ENCODING_FP4;
    options.block_size = 128;
    options.double_quant = 1;
    options.context = 64;
    options.batch = 3;
    options.cache_dtype = BERTH_F32;
    options.dtype = BERTH_F16;
    planned_begin(&p, planned_llama(12, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.type, BERTH_ENCODING_FP4);
    CHECK_EQ(p.summary.dtype, BERTH_F16);
    CHECK_EQ(p.summary.double_quant, 1);
    CHECK_EQ(p.summary.block_size, 128);
    CHECK_EQ(p.summary.context, 64);
    CHECK_EQ(p.summary.batch, 3);
    CHECK_EQ(p.summary.cache_dtype, BERTH_F32);
    for (uint32_t l = 0; l < 12; l++) /* three sequences, keys and values in f32 */
        CHECK_EQ(planned_get_layer(&p, fixture_format("model.layers.%u", l)).cache_bytes,
                 3 * 64 * 2 * 1024 * 4);
    CHECK_EQ(planned_get_layer(&p, "lm_head").cache_bytes, 0);
    planned_end(&p);
}

/* By any tool: crc32 of names, a zero, the dtype, and each dim in eight bytes. */
static void
test_digest(void)
{
    berth_plan_options options = loaded_options("0=2GiB");
    planned p;

    planned_begin(&p, planned_moe(1, 300), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.digest, 0xa65f0114);
    planned_end(&p);
}

/* Names as long as what is summed up at once, and longer, between short ones. */
static void
test_digest_of_long_names(void)
{
    static const size_t lengths[] = { 3, 7677, 7678, 5, 7679, 8000, 300, 8192, 20000, 7 };
    static char name[20001];
    static uint8_t bytes[100000];
    const uint64_t shape[] = { 2 };
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();
    berth_checkpoint *checkpoint = NULL;
    berth_context *context = NULL;
    size_t used = 0;

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(name, 'a' + (int)i, lengths[i]);
        name[lengths[i]] = '\0';
        fixture_add_sparse(b, name, "BF16", 1, shape);
        memcpy(bytes + used, name, lengths[i] + 1); /* and a zero byte */
        used += lengths[i] + 1;
        bytes[used++] = BERTH_BF16;
        bytes[used] = 2;
        used += 8;
    }
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    T_REQUIRE(CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL),
                       BERTH_OK));
    CHECK_EQ(berthi_plan_digest(checkpoint), berthi_digest_crc32(0, bytes, used));
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

/* Bytes of one layer's cache, and of what computing takes. */
static uint64_t
cache_of(int32_t dtype, uint64_t batch, uint64_t *out_activations)
{
    berth_plan_options options = loaded_options("0=1GiB");
    uint64_t bytes;
    planned p;

    options.cache_dtype = dtype;
    options.context = 64;
    options.batch = batch;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    bytes = planned_get_layer(&p, "model.layers.0").cache_bytes;
    *out_activations = planned_get_tier(&p, "cuda:0").activations;
    planned_end(&p);
    return bytes;
}

static void
test_cache(void)
{
    uint64_t one;
    uint64_t three;

    CHECK_EQ(cache_of(BERTH_F32, 1, &one), 64 * 2 * 1024 * 4);
    CHECK_EQ(cache_of(BERTH_F16, 1, &one), 64 * 2 * 1024 * 2);
    CHECK_EQ(cache_of(BERTH_BF16, 3, &three), 3 * 64 * 2 * 1024 * 2);
    CHECK_GT(three, 2 * one);
    CHECK_EQ(cache_of(BERTH_F8_E4M3, 1, &one), 64 * 2 * 1024);
    CHECK_EQ(cache_of(BERTH_F8_E5M2, 1, &one), 64 * 2 * 1024);
    CHECK_EQ(cache_of(BERTH_F8_E5M2, 0, &three), 64 * 2 * 1024); /* one is what 0 means */
    CHECK_EQ(three, one);
}

/* Layers with a window keep no more than that: each layer by its own number. */
static void
test_cache_of_windows(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    const char *const folder = planned_llama(12, false);
    planned p;

    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"hidden_size\": 1024, \"intermediate_size\": 2816, "
                 "\"num_hidden_layers\": 12, \"num_attention_heads\": 8, "
                 "\"num_key_value_heads\": 8, \"vocab_size\": 8192, "
                 "\"torch_dtype\": \"bfloat16\", \"sliding_window\": 16, \"layer_types\": ["
                 "\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"sliding_attention\", \"full_attention\"]}");
    options.context = 64;
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    for (uint32_t i = 0; i < 12; i++)
        CHECK_EQ(planned_get_layer(&p, fixture_format("model.layers.%u", i)).cache_bytes,
                 (i == 1 || i == 11 ? 64 : 16) * 2 * 1024 * 2);
    planned_end(&p);
}

/* Tables of words and of positions have names of their own, and come behind layers. */
static void
test_other_tables(void)
{
    static const struct {
        const char *name;
        uint64_t rows;
        uint64_t columns;
    } tensors[] = {
        { "transformer.wte.weight", 4096, 512 }, { "transformer.wpe.weight", 1024, 512 },
        { "transformer.ln_f.weight", 512, 0 },   { "transformer.h.0.ln_1.weight", 512, 0 },
        { "transformer.h.0.attn.c_attn.weight", 512, 1536 },
        { "transformer.h.0.mlp.c_fc.weight", 512, 2048 },
    };
    berth_plan_options options = loaded_options("0=8MiB,cpu=60MiB");
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();
    berth_plan_layer last;
    planned p;

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const uint64_t shape[] = { tensors[i].rows, tensors[i].columns };

        fixture_add_sparse(b, tensors[i].name, "BF16", tensors[i].columns == 0 ? 1 : 2,
                           shape);
    }
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", "
                 "\"n_embd\": 512, \"n_layer\": 1, \"n_head\": 8, \"vocab_size\": 4096, "
                 "\"n_positions\": 1024, \"torch_dtype\": \"bfloat16\"}");
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_layer(&p, "transformer.wpe").cause, BERTH_PLAN_ROWS);
    CHECK_EQ(berth_plan_get_layer(p.plan, p.summary.layer_count - 1, &last), BERTH_OK);
    CHECK_STR(last.name, "transformer.wte");
    CHECK_EQ(last.bytes, 4 * MIB);
    CHECK_EQ(last.cause, BERTH_PLAN_TIED);
    planned_end(&p);
}

/* The link that decides is that of the device that is brought most. */
static void
test_bound(void)
{
    static const char *const pin = "model.embed_tokens=cuda:0";
    berth_plan_options options = loaded_options("0=90MiB,1=60MiB,cpu=300MiB");
    berth_plan_tier bound;
    char size[32];
    uint64_t said;
    uint64_t more;
    planned p;

    options.staging_bytes = MIB;
    options.pins = &pin;
    options.pin_count = 1;
    planned_begin(&p, planned_llama(8, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.bound, 1);
    CHECK_STR(p.summary.bound_tier == 0 ? "cuda:0" : "cuda:1",
              planned_get_tier(&p, "cuda:0").link_bytes > planned_get_tier(&p, "cuda:1").link_bytes
                  ? "cuda:0"
                  : "cuda:1");
    bound = planned_get_tier(&p, p.summary.bound_tier == 0 ? "cuda:0" : "cuda:1");
    more = bound.link_bytes - bound.free - bound.slots;
    T_REQUIRE(CHECK_CONTAINS(p.summary.advice, " more on "));
    (void)snprintf(size, sizeof size, "%.*s",
                   (int)(strstr(p.summary.advice, " more on ") - p.summary.advice),
                   p.summary.advice);
    T_REQUIRE(CHECK_EQ(berth_size_parse(size, &said, NULL), BERTH_OK));
    CHECK_GE(said, more); /* as it is read, it is enough: by less than a hundredth */
    CHECK_LT(said - more, MIB / 50);
    planned_end(&p);
}

/* An embedding outside is better than a second device. */
static void
test_no_cut_for_an_embedding(void)
{
    berth_plan_options options = loaded_options("0=120MiB,1=120MiB,cpu=300MiB");
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.cuts, 0);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").resident_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "lm_head").home, 0);
    planned_end(&p);
}

/* What is quantized already stays as it is. */
static void
test_kept(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    fixture_builder *const b = fixture_begin();
    const char *const folder = fixture_folder();
    const uint64_t norm[] = { 512 };
    berth_berth berth;
    planned p;

    fixture_add_nf4(b, "model.layers.0.mlp.up_proj.weight", 512, 512, true);
    fixture_add_sparse(b, "model.norm.weight", "BF16", 1, norm);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.berth_count, 2);
    CHECK_EQ(berth_plan_get_berth(p.plan, 0, &berth, NULL, 0), BERTH_OK);
    CHECK_EQ(berth.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(berth.bytes, 512 * 256 + 4096 + 256);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").scratch, 0);
    CHECK_EQ(p.finding_count, 1); /* no config.json: a guessed model, and no KV cache */
    planned_end(&p);
}

/* So is what berth does not make: the weight and its scales, each in a berth's grain. */
static void
test_kept_foreign(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    fixture_builder *const b = fixture_begin();
    const char *const folder = fixture_folder();
    berth_berth berth;
    planned p;

    fixture_add_sparse(b, "model.layers.0.mlp.up_proj.weight", "F8_E4M3", 2,
                       (const uint64_t[]){ 384, 250 });
    fixture_add_sparse(b, "model.layers.0.mlp.up_proj.weight_scale_inv", "F32", 2,
                       (const uint64_t[]){ 3, 2 });
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"quantization_config\": {\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": [128, 128]}}");
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.berth_count, 1);
    CHECK_EQ(berth_plan_get_berth(p.plan, 0, &berth, NULL, 0), BERTH_OK);
    CHECK_EQ(berth.encoding, BERTH_ENCODING_FP8_BLOCK);
    CHECK_EQ(berth.bytes, 96000 + 256);
    planned_end(&p);
}

/* And what it has no decoder for, as long as no values of it are asked for. */
static void
test_kept_undecoded(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    const char *const folder = fixture_folder();
    berth_berth berth;
    planned p;

    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "I32 32x512 model.layers.0.mlp.up_proj.qweight\n"
                 "I32 2x64 model.layers.0.mlp.up_proj.qzeros\n"
                 "F16 2x512 model.layers.0.mlp.up_proj.scales\n"
                 "I32 256 model.layers.0.mlp.up_proj.g_idx\n"
                 "BF16 256 model.norm.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}");
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.berth_count, 2);
    CHECK_EQ(berth_plan_get_berth(p.plan, 0, &berth, NULL, 0), BERTH_OK);
    CHECK_EQ(berth.encoding, BERTH_ENCODING_FOREIGN);
    CHECK_EQ(berth.bytes, 32 * 512 * 4 + 2 * 64 * 4 + 2 * 512 * 2 + 256 * 4);
    planned_end(&p);
    options.type = BERTH_ENCODING_NF4;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_EUNSUPPORTED);
    CHECK_EQ(p.error.reason, BERTH_REASON_QUANT_METHOD);
    planned_end(&p);
}

/* Options that are passed on: experts that are fused are quantized, slots counted. */
static void
test_passed_on(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    uint64_t plain;
    planned p;

    options.type = BERTH_ENCODING_NF4;
    planned_begin(&p, planned_moe(2, 4), &options);
    T_REQUIRE(p.status == BERTH_OK);
    plain = p.summary.bytes;
    planned_end(&p);
    options.takes_experts = 1;
    planned_begin(&p, planned_moe(2, 4), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_LT(p.summary.bytes + 2 * 4 * 2 * MIB, plain); /* 3 MiB each before */
    planned_end(&p);
    options = loaded_options("0=120MiB,cpu=600MiB");
    options.staging_bytes = MIB;
    for (options.slots = 1; options.slots < 4; options.slots++) {
        planned_begin(&p, planned_llama(8, false), &options);
        T_REQUIRE(p.status == BERTH_OK);
        CHECK_EQ(planned_get_tier(&p, "cuda:0").slot_count, options.slots);
        planned_end(&p);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_summary);
    T_RUN(test_digest);
    T_RUN(test_digest_of_long_names);
    T_RUN(test_cache);
    T_RUN(test_cache_of_windows);
    T_RUN(test_other_tables);
    T_RUN(test_bound);
    T_RUN(test_no_cut_for_an_embedding);
    T_RUN(test_kept);
    T_RUN(test_kept_foreign);
    T_RUN(test_kept_undecoded);
    T_RUN(test_passed_on);
    T_MAIN_END;
}
