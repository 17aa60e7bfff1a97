#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters of model types: `berth estimate` of a config.json against the library's own classes.

    estimate_families.py [--write FILE | TYPE...]

Each type of the table of model types that the library has is made without memory, from the
defaults of its configuration and from the variants below; what its state has in all is what berth
counts from the configuration alone. --write notes numbers and configurations for test_estimate_shape.
"""
import json
import os
import re
import subprocess
import sys

import libraries as lib
from libraries import torch, transformers

TABLES = [lib.ROOT / "placement" / name for name in ["shape_family.c", "shape_readers.c"]]
CLASSES = {"whisper": "AutoModelForSpeechSeq2Seq", "mistral4": "AutoModelForImageTextToText",
           "mllama_text_model": "MllamaForCausalLM"}
CLASSES |= dict.fromkeys(
    ["bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "led", "longt5", "m2m_100",
     "marian", "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "plbart", "switch_transformers", "t5",
     "t5gemma", "umt5"],
    "AutoModelForSeq2SeqLM")
# Of a model for images or sound; its head stands outside.
CLASSES |= dict.fromkeys(
    ["glm4v_moe_text", "glm4v_text", "qwen2_5_vl_text", "qwen2_vl_text", "qwen3_vl_moe_text",
     "qwen3_vl_text"], "AutoModel")
CLASSES |= dict.fromkeys(
    ["albert", "bert", "camembert", "data2vec-text", "deberta", "deberta-v2",
     "distilbert", "electra", "ernie", "esm", "eurobert", "flaubert", "gte", "ibert",
     "jina_embeddings_v3", "layoutlm", "longformer", "megatron-bert", "mobilebert", "modernbert",
     "mpnet", "mra", "nomic_bert", "nystromformer", "rembert", "roberta", "roberta-prelayernorm",
     "roformer", "xlm", "xlm-roberta", "xlm-roberta-xl", "yoso"], "AutoModelForMaskedLM")
CLASSES |= {"qwen2_5_omni_text": "Qwen2_5OmniThinkerTextModel",
            "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextModel"}
# With a tower that needs headers, of somebody else's code, or half of another one.
OTHERS = {"gemma3", "qwen2_vl", "qwen2_5_vl", "kimi_k2", "t5_gemma_module",
          "phi4_multimodal"}
# Whose configuration has no defaults that make a model.
WORDS = {"dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6,
                   "first_k_dense_replace": 1},
         "hunyuan_v1_dense": {"head_dim": 128},
         "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
         "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
         "ministral": {"head_dim": 128},
         # Its class has half of the weights of experts that have none, in no checkpoint.
         "longcat_flash": {"zero_expert_num": 0},
         "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
         "esm": {"vocab_size": 33}}
VARIANTS = [
    ("bamba", {"attn_layer_indices": [9, 18, 27]}),
    ("granitemoehybrid", {"num_local_experts": 0, "shared_intermediate_size": 8192,
                          "layer_types": ["mamba"] * 5 + ["attention"] + ["mamba"] * 26}),
    ("lfm2", {"layer_types": ["conv", "conv", "full_attention"] * 2, "num_hidden_layers": 6}),
    ("lfm2", {"block_auto_adjust_ff_dim": False}),
    ("gemma3n_text", {"num_kv_shared_layers": 10, "altup_num_inputs": 2, "laurel_rank": 32}),
    ("lfm2", {"block_ffn_dim_multiplier": 1.3, "block_multiple_of": 512}),
    ("stablelm", {"use_qkv_bias": True}),
    ("glm", {"attention_bias": False}),
    ("mamba2", {"num_heads": 64, "hidden_size": 2048, "n_groups": 1, "tie_word_embeddings": True}),
    ("qwen3_5_text", {"linear_num_value_heads": 48, "num_hidden_layers": 8, "layer_types": None}),
    ("whisper", {"encoder_layers": 32, "decoder_layers": 2, "d_model": 1280,
                 "encoder_attention_heads": 20, "decoder_attention_heads": 20,
                 "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128}),
    ("bert", {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
              "num_attention_heads": 16}),
    ("gpt_neo", {"intermediate_size": 1234}),
    ("gemma4_text", {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8,
                     "moe_intermediate_size": 704, "num_kv_shared_layers": 12,
                     "attention_k_eq_v": True, "num_global_key_value_heads": 2,
                     "use_double_wide_mlp": True}),
    ("gemma4_text", {"hidden_size_per_layer_input": 0, "global_head_dim": 384}),
    ("gemma4_text", {"num_kv_shared_layers": 12, "use_double_wide_mlp": True}),
    ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("albert", {"num_hidden_groups": 2, "inner_group_num": 3}),
    ("electra", {"embedding_size": 256}),
    ("deberta", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                 "max_relative_positions": 77, "position_biased_input": False}),
    ("deberta-v2", {"relative_attention": True, "position_buckets": 256, "share_att_key": True,
                    "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p",
                    "position_biased_input": False, "num_hidden_layers": 12}),
    ("deberta-v2", {"relative_attention": True, "pos_att_type": "p2c", "conv_kernel_size": 3,
                    "type_vocab_size": 3}),
    ("ernie", {"use_task_id": True, "task_type_vocab_size": 4}),
    ("esm", {"vocab_size": 33, "position_embedding_type": "rotary"}),
    ("mbart", {"encoder_layers": 3, "decoder_layers": 5}),
    ("afmoe", {"attention_bias": True}),
    ("deepseek_v32", {"attention_bias": True, "mlp_bias": True}),
    ("ernie4_5_moe", {"use_bias": True}),
    ("glm_moe_dsa", {"attention_bias": True, "mlp_bias": True}),
    ("longt5", {"encoder_attention_type": "transient-global", "num_layers": 3}),
    ("nemotron_h", {"attention_bias": True, "tie_word_embeddings": True}),
    ("bamba", {"attn_layer_indices": [9], "mamba_conv_bias": False, "mamba_proj_bias": True}),
    ("bart", {"encoder_ffn_dim": 1024, "tie_word_embeddings": False}),
    ("bert", {"tie_word_embeddings": False}),
    ("cohere", {"use_qk_norm": True}),
    ("deepseek_v2", {"mlp_bias": True}),
    ("deepseek_v4", {"num_hidden_layers": 5, "hc_mult": 2, "o_groups": 4, "index_n_heads": 8,
                     "layer_types": ["sliding_attention", "heavily_compressed_attention",
                                     "compressed_sparse_attention", "sliding_attention",
                                     "heavily_compressed_attention"],
                     "mlp_layer_types": ["hash_moe", "moe", "hash_moe", "moe", "moe"],
                     "mlp_bias": True,
                     "compress_rates": {"compressed_sparse_attention": 1,
                                        "heavily_compressed_attention": 64}}),
    ("esm", {"vocab_size": 33, "emb_layer_norm_before": True}),
    ("eurobert", {"mlp_bias": True}),
    ("falcon", {"parallel_attn": False}),
    ("falcon", {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}),
    ("gemma4_text", {"num_experts": 4}),
    ("gemma4_text", {"num_hidden_layers": 8}),
    ("longcat_flash", {"num_layers": 3, "attention_bias": True, "zero_expert_num": 0}),
    ("glm4_moe", {"use_qk_norm": True}),
    ("gpt_bigcode", {"multi_query": False}),
    ("llama4_text", {"num_hidden_layers": 6, "moe_layers": [0, 1, 4]}),
    ("deepseek_v4", {"num_hidden_layers": 4, "n_shared_experts": 3}),
    ("gptj", {"tie_word_embeddings": True}),
    ("lfm2", {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2,
              "conv_bias": True}),
    ("mamba", {"use_bias": True, "use_conv_bias": False}),
    ("mamba2", {"use_bias": True, "use_conv_bias": False}),
    ("modernbert", {"norm_bias": True, "decoder_bias": False, "classifier_bias": True}),
    ("opt", {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("persimmon", {"qk_layernorm": False}),
    ("phi", {"qk_layernorm": True, "tie_word_embeddings": True}),
    ("phimoe", {"lm_head_bias": True}),
    ("qwen2_moe", {"qkv_bias": False}),
    ("seed_oss", {"attention_out_bias": True}),
    ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
    ("t5", {"relative_attention_num_buckets": 64}),
    ("gpt2", {"add_cross_attention": True}),
    ("lfm2_moe", WORDS["lfm2_moe"] | {"use_expert_bias": False, "num_dense_layers": 3}),
    ("ernie4_5_moe", {"moe_layer_interval": 2, "moe_layer_start_index": 3}),
    ("ernie4_5_moe", {"moe_layer_end_index": 7, "num_hidden_layers": 12}),
    ("kimi_linear", {"linear_attn_config": {"head_dim": 96, "num_heads": 8, "kda_layers": [1, 2],
                                            "short_conv_kernel_size": 3,
                                            "full_attn_layers": [3, 4]},
                     "num_hidden_layers": 4, "tie_word_embeddings": True}),
    ("mimo_v2_flash", {"attention_bias": True, "num_hidden_layers": 8, "layer_types": [
        "sliding_attention"] * 3 + ["full_attention"] * 5}),
    ("minimax", {"head_dim": 96, "num_hidden_layers": 5, "block_size": 64}),
    ("minimax_m3_vl_text", {"moe_layer_freq": [0, 1, 1, 0], "num_hidden_layers": 4,
                            "sparse_attention_config": {
                                "sparse_num_index_heads": 2, "sparse_index_dim": 64,
                                "sparse_attention_freq": [0, 0, 1, 1]}}),
    ("olmo_hybrid", {"num_key_value_heads": 10, "linear_num_key_heads": 15,
                     "linear_value_head_dim": 128, "linear_conv_kernel_dim": 3}),
    ("marian", {"share_encoder_decoder_embeddings": False}),
    ("solar_open", {"attention_bias": True}),
    ("falcon_h1", {"mamba_d_ssm": None, "mamba_rms_norm": True, "projectors_bias": True,
                   "mamba_expand": 4, "num_hidden_layers": 3}),
    ("jamba", {"num_experts": 1}),
    ("jetmoe", {"num_experts_per_tok": 4, "num_local_experts": 6, "kv_channels": 96}),
    ("jamba", {"num_hidden_layers": 9, "attn_layer_period": 4, "attn_layer_offset": 1,
               "expert_layer_period": 3, "expert_layer_offset": 0, "mamba_dt_rank": 77,
               "mamba_proj_bias": True, "mamba_conv_bias": False}),
    ("nemotron_h", {"layers_block_type": ["mamba", "attention", "moe", "mlp", "mamba"],
                    "n_groups": 4, "mamba_num_heads": 64, "use_bias": True,
                    "use_conv_bias": False, "mlp_bias": True}),
    ("nemotron_h", {"hybrid_override_pattern": "M-M*-ME-*E", "moe_latent_size": 512}),
    ("recurrent_gemma", {"lru_width": 1280, "num_hidden_layers": 7, "num_key_value_heads": 1,
                         "attention_bias": True}),
    ("mvp", {"use_prompt": True}),
    ("mvp", {"use_prompt": True, "prompt_length": 20, "prompt_mid_dim": 50, "encoder_layers": 3,
             "decoder_layers": 5}),
    ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60000}),
    ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60000,
                "tie_word_embeddings": False}),
    ("marian", {"tie_word_embeddings": False, "decoder_vocab_size": 60000}),
    ("marian", {"decoder_vocab_size": 60000}),
    ("deberta-v2", {"legacy": False, "tie_word_embeddings": False}),
    ("deberta", {"legacy": False, "tie_word_embeddings": False}),
    ("bart", {"architectures": ["BartForCausalLM"]}),
    ("mbart", {"architectures": ["MBartForCausalLM"], "tie_word_embeddings": False}),
    ("mvp", {"architectures": ["MvpForCausalLM"], "use_prompt": True}),
    ("whisper", {"architectures": ["WhisperForCausalLM"]}),
    ("bert", {"architectures": ["BertModel"]}),
    ("xlm-roberta", {"architectures": ["XLMRobertaModel"]}),
    ("xlm-roberta", {"architectures": ["XLMRobertaForSequenceClassification"], "num_labels": 1}),
    ("distilbert", {"architectures": ["DistilBertModel"]}),
    ("modernbert", {"architectures": ["ModernBertForSequenceClassification"], "num_labels": 7,
                    "classifier_bias": True}),
    ("bart", {"architectures": ["BartForSequenceClassification"]}),
    ("qwen3", {"architectures": ["Qwen3Model"]}),
    ("qwen3", {"architectures": ["Qwen3ForSequenceClassification"], "num_labels": 1}),
    ("bert", {"architectures": ["BertForTokenClassification"], "num_labels": 9}),
    ("t5", {"architectures": ["T5EncoderModel"], "num_layers": 24, "feed_forward_proj":
            "gated-gelu"}),
    ("longt5", {"architectures": ["LongT5EncoderModel"], "encoder_attention_type":
                "transient-global", "num_layers": 3}),
    ("umt5", {"architectures": ["UMT5EncoderModel"]}),
    ("mt5", {"architectures": ["MT5ForTokenClassification"], "num_labels": 9}),
    ("bert-generation", {"tie_word_embeddings": False}),
    ("big_bird", {"use_bias": False, "type_vocab_size": 3}),
    ("big_bird", {"architectures": ["BigBirdForSequenceClassification"]}),
    ("gte", {"tie_word_embeddings": False, "type_vocab_size": 0}),
    ("layoutlm", {"max_2d_position_embeddings": 77}),
    ("layoutlm", {"architectures": ["LayoutLMForSequenceClassification"]}),
    ("modernbert-decoder", {"norm_bias": True, "mlp_bias": True, "attention_bias": True,
                            "decoder_bias": False, "classifier_bias": True}),
    ("modernbert-decoder", {"tie_word_embeddings": False}),
    ("modernbert-decoder", {"architectures": ["ModernBertDecoderModel"]}),
    ("nystromformer", {"conv_kernel_size": 7}),
    ("rembert", {"tie_word_embeddings": True, "input_embedding_size": 128,
                 "output_embedding_size": 512}),
    ("rembert", {"input_embedding_size": 1152}),
    ("rembert", {"architectures": ["RemBertForSequenceClassification"]}),
    ("roformer", {"embedding_size": 384, "tie_word_embeddings": False}),
    ("led", {"tie_word_embeddings": False, "encoder_layers": 3, "encoder_ffn_dim": 512,
             "attention_window": [8, 8, 8], "max_encoder_position_embeddings": 512}),
    ("led", {"architectures": ["LEDModel"]}),
    ("bigbird_pegasus", {"use_bias": True, "encoder_layers": 3}),
    ("bigbird_pegasus", {"tie_word_embeddings": False}),
    ("bigbird_pegasus", {"architectures": ["BigBirdPegasusForCausalLM"]}),
    ("t5gemma", {}),
    ("t5gemma", {"encoder": {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1000,
                             "vocab_size": 5000},
                 "decoder": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
                             "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 700,
                             "vocab_size": 6000}, "tie_word_embeddings": False}),
    ("t5gemma", {"architectures": ["T5GemmaForSequenceClassification"]}),
    ("zamba", {"mamba_proj_bias": True, "mamba_conv_bias": False, "mamba_dt_rank": 33,
               "num_hidden_layers": 12, "mamba_expand": 4, "tie_word_embeddings": False}),
    ("zamba", {"attention_head_dim": 96, "attention_hidden_size": 7424}),
    ("zamba2", {"num_mem_blocks": 2, "use_shared_attention_adapter": True, "adapter_rank": 64,
                "add_bias_linear": True, "num_hidden_layers": 5, "num_key_value_heads": 8,
                "n_mamba_heads": 16, "mamba_ngroups": 2, "layers_block_type":
                ["mamba", "hybrid", "mamba", "hybrid", "hybrid"]}),
    ("zamba2", {"tie_word_embeddings": False, "num_mem_blocks": 2}),
    ("zamba2", {"architectures": ["Zamba2Model"]}),
    ("zamba2", {"num_mem_blocks": 2, "num_hidden_layers": 4, "hybrid_layer_ids": [0, 1, 2, 3, 4],
                "layers_block_type": ["mamba", "hybrid", "hybrid", "hybrid"],
                "tie_word_embeddings": False}),
    ("zamba2", {"attention_hidden_size": 4096, "attention_head_dim": 96,
                "use_shared_attention_adapter": True}),
    ("axk1", {"attention_bias": True, "first_k_dense_replace": 3, "q_lora_rank": 96,
              "num_hidden_layers": 5}),
    ("bailing_hybrid", {"layer_group_size": 4, "head_dim": 96, "num_attention_heads": 16,
                        "num_key_value_heads": 16, "short_conv_kernel_size": 3,
                        "num_hidden_layers": 9,
                        "attention_bias": True, "first_k_dense_replace": 1}),
    ("ctrl", {"tie_word_embeddings": False, "dff": 1000, "n_layer": 3}),
    ("diffllama", {"attention_bias": True, "num_key_value_heads": 8, "head_dim": 96,
                   "tie_word_embeddings": True}),
    ("doge", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 2,
              "tie_word_embeddings": True}),
    ("doge", {"is_moe": True, "num_experts": 1000, "num_hidden_layers": 3}),
    ("laguna", {"gating": "per-element", "attention_bias": True, "num_hidden_layers": 6,
                "num_attention_heads_per_layer": [48, 64, 64, 48, 64, 64],
                "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * 2,
                "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 4}),
    ("laguna", {"gating": "per-head", "num_attention_heads_per_layer": [8, 16], "head_dim": 64,
                "num_hidden_layers": 2, "tie_word_embeddings": True}),
    ("lfm3", {"use_attention_gate": False, "conv_bias": True, "attention_bias": True}),
    ("lfm3", {"use_sandwich_norm": False, "num_hidden_layers": 7, "conv_L_cache": 3,
              "tie_word_embeddings": False, "head_dim": 96}),
    ("mllama_text_model", {"cross_attention_layers": [1, 2], "num_hidden_layers": 5,
                           "num_key_value_heads": 4}),
    ("moshi", {"ffn_dim": 1024, "num_key_value_heads": 4, "head_dim": 96,
               "num_hidden_layers": 3}),
    ("rwkv", {"attention_hidden_size": 2048, "intermediate_size": 1000,
              "tie_word_embeddings": True, "num_hidden_layers": 3}),
    ("rwkv", {"architectures": ["RwkvModel"]}),
    ("flaubert", {"pre_norm": True, "n_langs": 3, "tie_word_embeddings": False}),
    ("zaya", {"layer_types": ["hybrid", "hybrid_sliding"] * 3, "num_hidden_layers": 6,
              "sliding_window": 8, "attention_bias": True, "lm_head_bias": True}),
    ("zaya", {"router_hidden_size": 64, "cca_time0": 3, "cca_time1": 4, "num_experts": 5,
              "head_dim": 96, "tie_word_embeddings": False, "num_hidden_layers": 2}),
    ("mobilebert", {"use_bottleneck": False, "num_feedforward_networks": 1,
                    "intermediate_size": 1000, "trigram_input": False}),
    ("mobilebert", {"use_bottleneck_attention": True, "key_query_shared_bottleneck": False,
                    "intra_bottleneck_size": 96, "tie_word_embeddings": False,
                    "normalization_type": "layer_norm", "embedding_size": 200}),
    ("mobilebert", {"architectures": ["MobileBertForSequenceClassification"], "num_labels": 3}),
    ("mobilebert", {"architectures": ["MobileBertModel"], "classifier_activation": False}),
    ("nllb-moe", {"encoder_sparse_step": 2, "decoder_sparse_step": 3, "num_experts": 6,
                  "router_bias": True, "encoder_ffn_dim": 1000, "decoder_layers": 7}),
    ("nllb-moe", {"decoder_sparse_step": 0, "num_experts": 4, "encoder_sparse_step": 1}),
    ("switch_transformers", {"num_sparse_encoder_layers": 6, "num_sparse_decoder_layers": 12,
                             "router_bias": True, "d_kv": 32}),
    ("switch_transformers", {"num_sparse_encoder_layers": 0, "num_layers": 5,
                             "num_decoder_layers": 7, "tie_word_embeddings": False}),
    ("xlm", {"n_langs": 15, "emb_dim": 1024, "n_heads": 8, "tie_word_embeddings": False}),
    ("xlm", {"n_langs": 15, "use_lang_emb": False, "max_position_embeddings": 77}),
    ("xlm", {"architectures": ["XLMForSequenceClassification"], "num_labels": 3}),
    ("xlm", {"architectures": ["XLMModel"]}),
    ("xlnet", {"d_model": 768, "n_head": 12, "d_inner": 3000, "n_layer": 3,
               "tie_word_embeddings": False}),
    ("xlnet", {"architectures": ["XLNetForSequenceClassification"], "num_labels": 3}),
    ("xlnet", {"architectures": ["XLNetModel"]}),
]
# What no count depends on.
NOISE = re.compile(r"_token_id$|dropout|_pdrop|^output_(?!embedding)|_eps(ilon)?$|initializer|"
                   r"^use_cache$|return_dict|^chunk_size|label|^rope|transformers_version|"
                   r"problem_type|_coef$|^mask_|^apply_spec|_drop$|layerdrop|^is_(?!moe)|^dtype$|"
                   r"^name_or_path$|^_name")
# Buffers that checkpoints have.
SAVED = re.compile(r"correction_bias|expert_bias|tid2eid|final_logits_bias|act_fn\.(beta|eps)$|"
                   "layer_scalar$|slope_rate$|_decay$|balancing_biases$")
t = lib.Tally()


def types():
    rows = "".join(table.read_text(encoding="utf-8") for table in TABLES)
    return re.findall(r'model_type = "([^"]+)"', rows)[1:]


def count(kind, config):
    """Of what a checkpoint has: buffers that are saved, too, and tied tensors once."""
    name = (config.architectures or [CLASSES.get(kind, "AutoModelForCausalLM")])[0]
    with torch.device("meta"):
        made = getattr(transformers, name)
        model = (made.from_config if name.startswith("Auto") else made._from_config)(config)
    saved = set(model.state_dict())
    is_body = name == CLASSES.get(kind) and name.endswith("Model")
    has_head = is_body and not getattr(config, "tie_word_embeddings", False)
    return (sum(p.numel() for p in model.parameters())
            + sum(b.numel() for buffer, b in model.named_buffers() if buffer in saved
                  and SAVED.search(buffer))
            + (config.vocab_size * config.hidden_size if has_head else 0))


def plain(value):
    """Numbers, words and lists of them, and objects of those."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()
                if not NOISE.search(k) and isinstance(v, (bool, int, float, str, list, dict))}
    return value


def texts(kind, words):
    config = transformers.AutoConfig.for_model(kind, **words)
    shown = plain(json.loads(config.to_json_string(use_diff=False)))
    if "num_labels" in words:
        shown["id2label"] = {str(i): f"LABEL_{i}" for i in range(words["num_labels"])}
    return count(kind, config), json.dumps(shown, separators=(",", ":"))


def ours(text, folder):
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([os.environ["BERTH"], "estimate", path, "--json"],
                          capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    return answer["model"]["parameters"] if done.returncode == 0 else answer["error"]["message"]


def main():
    is_writing = sys.argv[1:2] == ["--write"]
    wanted = sys.argv[1:] if not is_writing else []
    cases = [(kind, WORDS.get(kind, {})) for kind in wanted or types() if kind not in OTHERS]
    cases += [] if wanted else VARIANTS
    lines = []
    with lib.folder() as folder:
        for kind, words in cases:
            with t.part(f"{kind} {words}"):
                theirs, text = texts(kind, words)
                found = ours(text, folder)
                t.check(found == theirs, f"{kind} {words}: {found}, not {theirs}")
                lines.append(f"{theirs} {text}\n")
    if is_writing:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.writelines(lines)
    t.end()


if __name__ == "__main__":
    main()
