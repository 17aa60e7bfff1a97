/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_estimate_extras.c - what one class alone has: layers with heads of their own,
 * layers that see pictures, RWKV's state, and which layers are which without a list.
 * That the sums are right is test_families' of test_estimate_shape.
 */
#include <stdio.h>
#include <string.h>

#include "placement/shape.h"
#include "tests/estimated.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define TINY(type, more)                                                                  \
    "{\"model_type\": \"" type "\", \"hidden_size\": 64, \"num_hidden_layers\": 6, "       \
    "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100" more "}"

static const berthi_shape *
shape_of(const char *text)
{
    static const berthi_shape none;
    const estimated *const e = estimated_text(text);

    return CHECK(e != NULL) ? &e->shape : &none;
}

/* Elements of all weights of a module, in a kind of layers. */
static uint64_t
elements(const estimated *e, uint32_t kind, const char *module)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < e->weights.count; i++) {
        const berthi_weight *const w = &e->weights.items[i];

        if (w->layer == kind && strcmp(w->module, module) == 0)
            sum += w->count * w->shape[0] * (w->rank == 2 ? w->shape[1] : 1);
    }
    return sum;
}

static void
test_heads_of_layers(void)
{
    const berthi_shape *s =
        shape_of(TINY("laguna", ", \"num_attention_heads_per_layer\": [4, 8, 8, 4, 8, 8], "
                                "\"num_key_value_heads\": 2"));

    CHECK_EQ(s->kind_count, 2);
    CHECK_EQ(s->kinds[0].count, 2);
    CHECK_EQ(s->kinds[0].heads, 4);
    CHECK_EQ(s->kinds[1].count, 4);
    CHECK_EQ(s->kinds[1].heads, 8);
    CHECK_EQ(s->kinds[1].kv_heads, 2);
    CHECK_EQ(s->kinds[1].key_dim, 128);
    CHECK_EQ(s->layer_kinds[3], 0);
    CHECK_EQ(s->head_gates, 1);
    CHECK_EQ(shape_of(TINY("laguna", ", \"gating\": \"per-element\", \"head_dim\": 16"))
                 ->head_gates,
             16);
}

static void
test_bad_heads(void)
{
    char list[256] = "";
    size_t length = 0;

    CHECK(estimated_text(TINY("laguna", ", \"num_attention_heads_per_layer\": [4]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"num_attention_heads_per_layer\" is not a list "
                                               "with one entry for each layer");
    CHECK(estimated_text(TINY("laguna", ", \"num_attention_heads_per_layer\": "
                                        "[4, 4, 4, 4, 4, 0]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "is 0, not a list of whole numbers");
    for (unsigned i = 1; i <= BERTHI_LAYER_KINDS + 1; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%u",
                                   i > 1 ? ", " : "", i);
    CHECK(estimated_text(fixture_format(
              "{\"model_type\": \"laguna\", \"hidden_size\": 64, \"num_hidden_layers\": %u, "
              "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
              "\"num_attention_heads_per_layer\": [%s]}",
              BERTHI_LAYER_KINDS + 1, list)) == NULL);
    CHECK_CONTAINS(estimated_error()->message,
                   "\"num_attention_heads_per_layer\" is not for as few different layers");
}

/* Pictures are as long for all texts: what sees them keeps nothing of a token. */
static void
test_looking(void)
{
    const berthi_shape *s =
        shape_of(TINY("mllama_text_model", ", \"cross_attention_layers\": [1, 4]"));

    CHECK_EQ(s->kind_count, 2);
    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_HEADS);
    CHECK(!s->kinds[0].has_cross);
    CHECK_EQ(s->kinds[1].count, 2);
    CHECK_EQ(s->kinds[1].attention, BERTHI_ATTENTION_NONE);
    CHECK(s->kinds[1].looks && s->kinds[1].has_cross);
    CHECK_EQ(s->layer_kinds[4], 1);
    s = shape_of(TINY("mllama_text_model", ""));
    CHECK_EQ(s->kinds[1].count, 1); /* the class's own list */
    CHECK_EQ(s->layer_kinds[3], 1);
    CHECK_EQ(shape_of(TINY("llama", ", \"cross_attention_layers\": [1, 4]"))->kind_count, 1);
}

static void
test_mixed(void)
{
    const char *const text = "{\"model_type\": \"rwkv\", \"hidden_size\": 64, "
                             "\"num_hidden_layers\": 2, \"vocab_size\": 100%s}";
    const berthi_shape *s = shape_of(fixture_format(text, ""));

    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_STATE);
    CHECK_EQ(s->kinds[0].state_elements, 3 * 64);
    CHECK_EQ(s->kinds[0].convolution_elements, 2 * 64);
    CHECK_EQ(s->kinds[0].intermediate, 4 * 64);
    CHECK_EQ(s->state.kernel, 2); /* widths of activations divide by it */
    s = shape_of(fixture_format(text, ", \"attention_hidden_size\": 32, "
                                      "\"intermediate_size\": 96"));
    CHECK_EQ(s->kinds[0].state_elements, 3 * 32);
    CHECK_EQ(s->kinds[0].convolution_elements, 2 * 64);
    CHECK_EQ(s->kinds[0].intermediate, 96);
}

/* Files without a list of layers. */
static void
test_ruled(void)
{
    const berthi_shape *s =
        shape_of(TINY("lfm3", ", \"conv_L_cache\": 3, \"sliding_window\": 8"));

    CHECK_EQ(s->kind_count, 3);
    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_STATE);
    CHECK_EQ(s->kinds[0].count, 4);
    CHECK_EQ(s->kinds[s->layer_kinds[2]].window, 0);
    CHECK_EQ(s->kinds[s->layer_kinds[2]].attention, BERTHI_ATTENTION_HEADS);
    CHECK_EQ(s->kinds[s->layer_kinds[4]].window, 8);
    s = shape_of(TINY("bailing_hybrid",
                      ", \"layer_group_size\": 3, \"kv_lora_rank\": 16, \"v_head_dim\": 12, "
                      "\"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, \"num_experts\": 8, "
                      "\"head_dim\": 24"));
    CHECK_EQ(s->kinds[s->layer_kinds[2]].attention, BERTHI_ATTENTION_LATENT);
    CHECK_EQ(s->kinds[s->layer_kinds[5]].attention, BERTHI_ATTENTION_LATENT);
    CHECK_EQ(s->kinds[s->layer_kinds[4]].state_elements, 4 * 24 * 24);
    CHECK_EQ(s->kinds[s->layer_kinds[1]].experts, 0);
    CHECK_EQ(s->kinds[s->layer_kinds[2]].experts, 8);
}

/* Doge's router has keys for two halves of an expert's number. */
static void
test_single_experts(void)
{
    const estimated *e = estimated_text(TINY("doge", ", \"num_experts\": 24"));

    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.kinds[0].experts, 0);
    CHECK_EQ(elements(e, 0, "up_embed"), 0);
    e = estimated_text(TINY("doge", ", \"num_experts\": 24, \"is_moe\": true"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, 0, "up_embed"), 6 * 24 * 64);
    CHECK_EQ(elements(e, 0, "router_gate"), 6 * 2 * 4 * 64);
    e = estimated_text(TINY("doge", ", \"num_experts\": 25, \"is_moe\": true"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, 0, "router_gate"), 6 * 2 * 5 * 64);
}

#define PAIR(type, more)                                                                  \
    "{\"model_type\": \"" type "\", \"d_model\": 64, \"vocab_size\": 100, "               \
    "\"num_experts\": 8" more "}"
#define SWITCH_SIZES                                                                      \
    ", \"num_layers\": 6, \"num_decoder_layers\": 4, \"num_heads\": 4, \"d_ff\": 128"

/* Which layers of an encoder and of a decoder have experts. */
static void
test_sparse_pair(void)
{
    const berthi_shape *s = shape_of(
        PAIR("switch_transformers", SWITCH_SIZES ", \"num_sparse_encoder_layers\": 2, "
                                    "\"num_sparse_decoder_layers\": 4"));

    CHECK_EQ(s->kind_count, 3); /* each of the decoder's has */
    CHECK_EQ(s->kinds[0].experts, 0);
    CHECK_EQ(s->kinds[0].count, 4);
    CHECK_EQ(s->kinds[1].experts, 8);
    CHECK_EQ(s->kinds[1].experts_used, 1);
    CHECK(s->kinds[1].is_encoder);
    CHECK_EQ(s->kinds[2].experts, 8);
    CHECK_EQ(s->kinds[2].count, 4);
    s = shape_of(PAIR("switch_transformers",
                      SWITCH_SIZES ", \"encoder_sparse_step\": 0, \"decoder_sparse_step\": 2"));
    CHECK_EQ(s->kinds[0].count, 6);
    CHECK_EQ(s->kinds[0].experts, 0);
    CHECK_EQ(s->kinds[s->layer_kinds[0]].experts, 0);
    CHECK_EQ(s->kinds[s->layer_kinds[1]].experts, 8);
    s = shape_of(PAIR("nllb-moe", ", \"encoder_layers\": 5, \"decoder_layers\": 4, "
                                  "\"decoder_attention_heads\": 4, \"decoder_ffn_dim\": 128, "
                                  "\"encoder_ffn_dim\": 96, \"decoder_sparse_step\": 0"));
    CHECK_EQ(s->kind_count, 3);
    CHECK_EQ(s->kinds[1].count, 1);
    CHECK_EQ(s->kinds[1].expert_intermediate, 96);
    CHECK_EQ(s->kinds[1].experts_used, 2);
    CHECK_EQ(s->kinds[2].experts, 0);
    CHECK_EQ(s->kinds[2].intermediate, 128);
}

/* A head cut by how rare words are is not known. */
static void
test_languages(void)
{
    const char *const text = "{\"model_type\": \"xlm\", \"emb_dim\": 64, \"n_layers\": 2, "
                             "\"n_heads\": 4, \"vocab_size\": 100%s}";

    CHECK_EQ(shape_of(fixture_format(text, ", \"n_langs\": 1"))->token_types, 0);
    CHECK_EQ(shape_of(fixture_format(text, ", \"n_langs\": 2"))->token_types, 2);
    CHECK_EQ(shape_of(fixture_format(text, ", \"n_langs\": 2, \"use_lang_emb\": false"))
                 ->token_types,
             0);
    CHECK(!shape_of(fixture_format(text, ""))->has_unknown_layers);
    CHECK(shape_of(fixture_format(text, ", \"asm\": true"))->has_unknown_layers);
}

/* Without experts all of them are dense. */
static void
test_pair_without_experts(void)
{
    const berthi_shape *const s =
        shape_of(fixture_format("{\"model_type\": \"switch_transformers\", \"d_model\": 64, "
                                "\"d_kv\": 16, \"vocab_size\": 100, \"num_experts\": 0"
                                SWITCH_SIZES "}"));

    for (uint32_t i = 0; i < s->kind_count; i++) {
        CHECK_EQ(s->kinds[i].experts, 0);
        CHECK_EQ(s->kinds[i].intermediate, 128);
    }
}

/* Fewer norms than a word leaves out are none. */
static void
test_norms_end_at_none(void)
{
    const estimated *const e =
        estimated_text(TINY("lfm3", ", \"conv_L_cache\": 3, \"use_sandwich_norm\": false, "
                                    "\"num_ln_in_parallel_attn\": 1"));

    T_REQUIRE(e != NULL);
    for (uint32_t i = 0; i < e->weights.count; i++)
        CHECK(e->weights.items[i].count <= 6);
}

/* MobileBERT's layers are as wide inside as a file says, or as the hidden state. */
static void
test_bottleneck(void)
{
    const estimated *e;
    const berthi_shape *s = shape_of(TINY("mobilebert", ", \"intra_bottleneck_size\": 16, "
                                                        "\"embedding_size\": 8"));

    CHECK_EQ(s->bottleneck.width, 16);
    CHECK_EQ(s->bottleneck.mlps, 4);
    CHECK_EQ(s->kinds[0].key_dim, 4);
    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_NONE);
    s = shape_of(TINY("mobilebert", ", \"use_bottleneck\": false, \"embedding_size\": 64"));
    CHECK_EQ(s->bottleneck.width, 64);
    CHECK_EQ(s->kinds[0].key_dim, 16);
    /* The head is as wide as words, whatever else a file says. */
    e = estimated_text(TINY("mobilebert", ", \"embedding_size\": 8, \"word_embed_proj_dim\": 4, "
                                          "\"tie_word_embeddings\": false"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "lm_head"), 100 * 8 + 2 * 100); /* biases */
    CHECK(estimated_text(TINY("mobilebert", ", \"embedding_size\": 65")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"embedding_size\" is 65, not a width up to");
}

/* Zaya's words for layers; what the first layer's router does not see. */
static void
test_mixed_heads(void)
{
    const char *const words = ", \"sliding_window\": 8, \"num_experts\": 3, \"layer_types\": "
                              "[\"hybrid_sliding\", \"hybrid\", \"hybrid\", \"hybrid\", "
                              "\"hybrid\", \"hybrid\"]";
    const char *const text = "{\"model_type\": \"%s\", \"hidden_size\": 64, "
                             "\"num_hidden_layers\": 6, \"num_attention_heads\": 4, "
                             "\"moe_intermediate_size\": 128, \"vocab_size\": 100%s}";
    const estimated *const e = estimated_text(fixture_format(text, "zaya", words));

    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.kind_count, 2);
    CHECK_EQ(e->shape.kinds[0].window, 8);
    CHECK_EQ(e->shape.kinds[1].window, 0);
    CHECK(!e->shape.has_unknown_layers);
    CHECK_EQ(elements(e, 0, "router_states_scale"), 0);
    CHECK_EQ(elements(e, 1, "router_states_scale"), 5 * 256);
    CHECK(shape_of(fixture_format(text, "llama", words))->has_unknown_layers);
}

/* Half of ConvBERT's heads are convolutions; FNet has none. */
static void
test_convolved(void)
{
    const estimated *e;
    const berthi_shape *s = shape_of(TINY("convbert", ", \"embedding_size\": 64"));

    CHECK_EQ(s->kinds[0].heads, 2);
    CHECK_EQ(s->kinds[0].key_dim, 16);
    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_NONE);
    CHECK_EQ(shape_of(TINY("convbert", ", \"head_ratio\": 8"))->kinds[0].heads, 1);
    e = estimated_text(TINY("squeezebert", ", \"q_groups\": 8"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, 0, "query"), 6 * (64 * 8 + 64));
    CHECK_EQ(elements(e, 0, "key"), 6 * (64 * 16 + 64));
    for (uint32_t i = 0; i < e->weights.count; i++) /* convolutions stay as they are */
        CHECK(e->weights.items[i].layer != 0
              || e->weights.items[i].role == BERTHI_WEIGHT_OTHER);
    s = shape_of("{\"model_type\": \"fnet\", \"hidden_size\": 64, \"num_hidden_layers\": 6, "
                 "\"intermediate_size\": 96, \"vocab_size\": 100}");
    CHECK_EQ(s->kinds[0].heads, 0);
    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_NONE);
    CHECK_EQ(s->kinds[0].intermediate, 96);
}

/* Tables beside that of words, and adapters for languages. */
static void
test_lookup(void)
{
    const estimated *e;

    CHECK_EQ(shape_of(TINY("tapas", ""))->token_types, 1039);
    CHECK_EQ(shape_of(TINY("tapas", ", \"type_vocab_sizes\": [3, 5]"))->token_types, 8);
    CHECK(estimated_text(TINY("tapas", ", \"type_vocab_sizes\": [3, \"5\"]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"type_vocab_sizes\" is not a list of whole");
    CHECK(estimated_text(TINY("tapas", ", \"type_vocab_sizes\": 8")) == NULL);
    CHECK_EQ(shape_of(TINY("tapas", ", \"type_vocab_sizes\": null"))->token_types, 1039);
    CHECK_EQ(shape_of(TINY("roc_bert", ", \"enable_shape\": false"))->lookup.joined, 832);
    CHECK_EQ(shape_of(TINY("roc_bert", ", \"concat_input\": false"))->lookup.joined, 0);
    e = estimated_text(TINY("luke", ", \"entity_vocab_size\": 50, \"entity_emb_size\": 16"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "decoder"), 100 * 64); /* never that of words */
    e = estimated_text(TINY("luke", ", \"entity_vocab_size\": 50, \"entity_emb_size\": 16, "
                                    "\"tie_word_embeddings\": false"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "decoder"), 50 * 16);
    e = estimated_text(TINY("xmod", ", \"languages\": [\"en_XX\", \"de_DE\"], "
                                    "\"adapter_reduction_factor\": 64"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, 0, "dense1"), 6 * 2 * (64 + 1));
    CHECK(!e->shape.has_final_norm);
    CHECK(shape_of(TINY("xmod", ", \"pre_norm\": true"))->has_final_norm);
    CHECK(estimated_text(TINY("xmod", ", \"languages\": \"en_XX\"")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"languages\" is not a list");
    CHECK(estimated_text(TINY("xmod", ", \"adapter_reduction_factor\": 65")) == NULL);
}

/* Funnel's blocks, and layers behind them that some of its classes have not. */
static void
test_blocks(void)
{
    const char *const text = "{\"model_type\": \"funnel\", \"d_model\": 64, \"n_head\": 4, "
                             "\"d_head\": 8, \"d_inner\": 96, \"vocab_size\": 100%s}";
    const char *const shrunk = ", \"block_sizes\": [2, 3], \"num_decoder_layers\": 4";
    const berthi_shape *s = shape_of(fixture_format(text, ""));

    CHECK_EQ(s->layers, 14);
    CHECK_EQ(s->kinds[0].key_dim, 8);
    CHECK_EQ(s->token_types, 0);
    CHECK_EQ(shape_of(fixture_format(text, shrunk))->layers, 9);
    CHECK_EQ(shape_of(fixture_format(text, ", \"block_sizes\": [2, 3], \"architectures\": "
                                           "[\"FunnelBaseModel\"]"))
                 ->layers,
             5);
    CHECK(estimated_text(fixture_format(text, ", \"block_sizes\": [2, -3]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"block_sizes\" is not a list of whole numbers");
    CHECK(estimated_text(fixture_format(text, ", \"block_sizes\": [4096, 1]")) == NULL);
    CHECK(estimated_text(fixture_format(text, ", \"block_sizes\": \"4,4,4\"")) == NULL);
    CHECK(estimated_text(fixture_format(text, ", \"block_sizes\": [0, 0]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "one of them above 0");
    CHECK_EQ(shape_of(fixture_format(text, ", \"block_sizes\": null"))->layers, 14);
    CHECK(estimated_text(fixture_format(text, ", \"num_decoder_layers\": 0, \"block_sizes\": []"))
          == NULL);
}

/* What an encoder and a decoder of BART's kin have beside each other. */
static void
test_other_pairs(void)
{
    const char *const text =
        "{\"model_type\": \"%s\", \"d_model\": 64, \"encoder_layers\": 2, \"decoder_layers\": 3, "
        "\"decoder_attention_heads\": 4, \"decoder_ffn_dim\": 96, \"%s\": 100, "
        "\"max_position_embeddings\": 32%s}";
    const estimated *e =
        estimated_text(fixture_format(text, "fsmt", "tgt_vocab_size", ", \"src_vocab_size\": 70"));

    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "embed_tokens"), (100 + 70) * 64);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "output_projection"), 100 * 64);
    e = estimated_text(fixture_format(text, "pegasus_x", "vocab_size", ""));
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "embed_global"), 32 * 64);
    CHECK_EQ(elements(e, 0, "norm"), 2 * 3 * 2 * 64); /* the encoder's: one more */
    e = estimated_text("{\"model_type\": \"prophetnet\", \"hidden_size\": 64, "
                       "\"num_encoder_layers\": 2, \"num_decoder_layers\": 3, "
                       "\"num_decoder_attention_heads\": 4, \"decoder_ffn_dim\": 96, "
                       "\"vocab_size\": 100, \"max_position_embeddings\": 32, \"ngram\": 3}");
    T_REQUIRE(e != NULL);
    CHECK_EQ(elements(e, BERTHI_NO_LAYER, "ngram_embeddings"), 3 * 64);
    CHECK_EQ(elements(e, 0, "relative_pos_embeddings"), 0);
    CHECK_EQ(elements(e, 1, "relative_pos_embeddings"), 3 * 32 * 4 * (64 + 1));
}

/* xLSTM's widths are fractions of the hidden state; its matrices are kept. */
static void
test_memory(void)
{
    const char *const text = "{\"model_type\": \"xlstm\", \"hidden_size\": 100, "
                             "\"num_blocks\": 2, \"num_hidden_layers\": 9, \"num_heads\": 4, "
                             "\"vocab_size\": 100, \"qk_dim_factor\": %s}";
    const berthi_shape *s = shape_of(fixture_format(text, "0.36"));

    CHECK_EQ(s->layers, 2);
    CHECK_EQ(s->kinds[0].attention, BERTHI_ATTENTION_STATE);
    CHECK_EQ(s->kinds[0].state_elements, 4 * 9 * 25 + 36 + 4);
    CHECK_EQ(s->kinds[0].intermediate, 320); /* 266.7 and more, of 64 each */
    CHECK(estimated_text(fixture_format(text, "65")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"qk_dim_factor\" is 65, not a number up to 64");
    CHECK(estimated_text(fixture_format(text, "-1")) == NULL);
    CHECK(estimated_text(fixture_format(text, "\"1\"")) == NULL);
}

/* HRM's stacks run again and again: the weights are there once, tokens are kept each time. */
static void
test_stacks(void)
{
    const char *const text = "{\"model_type\": \"hrm_text\", \"hidden_size\": 64, "
                             "\"num_attention_heads\": 4, \"intermediate_size\": 96, "
                             "\"vocab_size\": 100, \"head_dim\": 16, \"H_cycles\": 2, "
                             "\"L_cycles\": 3, %s}";
    const estimated *e = estimated_text(fixture_format(text, "\"num_hidden_layers\": 3"));

    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.layers, 3 * 2 * 4);
    CHECK_EQ(e->shape.layer_sets, 6);
    CHECK_EQ(elements(e, 0, "down_proj"), 6 * 64 * 96);
    e = estimated_text(
        fixture_format(text, "\"num_hidden_layers\": 24, \"num_layers_per_stack\": 3"));
    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.layers, 24);
    CHECK_EQ(e->shape.layer_sets, 6);
    CHECK(estimated_text(fixture_format(text, "\"num_hidden_layers\": 513")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"num_layers_per_stack\"");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_heads_of_layers);
    T_RUN(test_bad_heads);
    T_RUN(test_looking);
    T_RUN(test_mixed);
    T_RUN(test_ruled);
    T_RUN(test_single_experts);
    T_RUN(test_sparse_pair);
    T_RUN(test_languages);
    T_RUN(test_pair_without_experts);
    T_RUN(test_norms_end_at_none);
    T_RUN(test_bottleneck);
    T_RUN(test_mixed_heads);
    T_RUN(test_convolved);
    T_RUN(test_lookup);
    T_RUN(test_blocks);
    T_RUN(test_other_pairs);
    T_RUN(test_memory);
    T_RUN(test_stacks);
    T_MAIN_END;
}
