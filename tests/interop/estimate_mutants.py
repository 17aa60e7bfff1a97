#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters of configurations changed at random: `berth estimate` against the library's classes.

    estimate_mutants.py [MUTANTS [SEED [TYPE...]]]

Of a type that is known, a few members of its small configuration get other values: numbers of
heads, experts and layers, widths, lists of layers, biases and ties; and lists of layers may be
left out. What the library makes of the file is what berth counts from it. A file of which the
library makes no model, or one that cannot run, is drawn again.
"""
import json
import random
import re
import sys

import estimate_families as families
import libraries as lib
from libraries import transformers

# The most used ones.
TYPES = ["bert", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "falcon",
         "gemma", "gemma2", "gemma3_text", "gemma4_text", "glm", "glm4", "glm4_moe",
         "gpt2", "gpt_oss", "granite", "granitemoe", "granitemoehybrid", "kimi_linear", "llama",
         "llama4_text", "ministral", "ministral3", "mistral", "mixtral", "modernbert", "nemotron",
         "nemotron_h", "olmo", "olmo2", "olmo3", "olmoe", "phi", "phi3", "phimoe", "qwen2",
         "qwen2_moe", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next",
         "roberta", "t5", "whisper"]
DEPTHS = ["num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers",
          "decoder_layers", "num_decoder_layers", "num_blocks"]
# Members that no count depends on, or that have to fit others.
LEFT = re.compile("vocab_size_per_layer|layer_types|pretraining_tp|chunk|^quantization|router_aux|"
                  "norm_topk|logit|clip|classif|_vision|_scale|max_window|n_ctx|_act|"
                  "^use_cache|return|pruned|sep|tokenizer|decoder_start|position_embedding_type|"
                  "^num_beams|time_step|gradient|^use_mamba_kernels|resid_|index_topk|"
                  "architectures|_range|bos|eos|num_ln_in|^num_kv_heads|lru_width|"
                  "^qk_head_dim")
HEADS = ["num_attention_heads", "n_head", "num_heads", "encoder_attention_heads",
         "decoder_attention_heads", "n_heads"]
USED = ["num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts"]
EXPERTS = ["n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"]
# Whose class ties what its published files keep apart.
NEVER_READ = ["t5", "mt5", "umt5", "longt5"]
t = lib.Tally()


def small(kind, chance):
    """A file of a few layers; and the whole one."""
    config = transformers.AutoConfig.for_model(kind, **families.WORDS.get(kind, {}))
    whole = json.loads(config.to_json_string(use_diff=False))
    words = families.plain(whole) | {"model_type": kind}
    for key in ["per_layer_config", "time_step_limit"]:  # for each layer, or infinite
        words.pop(key, None)
    depth, whole_depth = chance.randint(4, 9), config.num_hidden_layers
    for key, value in words.items():
        if key in DEPTHS:
            words[key] = depth if key == "num_hidden_layers" else chance.randint(2, 9)
        elif isinstance(value, list) and len(value) == whole_depth:
            words[key] = [chance.choice(value) for _ in range(depth)]
    if chance.random() < 0.5:
        words.pop("layer_types", None)
        words.pop("mlp_layer_types", None)
    return words, whole


def other(value, chance):
    if isinstance(value, bool):
        return not value
    if value is None:
        return chance.choice([1, 2, 4, 8, 64])
    if isinstance(value, list):
        return chance.sample(range(9), chance.randint(0, 4))
    few = [1, 2, 3, 4]
    return chance.choice([value * 2, max(value // 2, 1), value * 3, max(value // 4, 1),
                          chance.choice(few), value + chance.choice(few)])


def mutant(kind, chance):
    words, whole = small(kind, chance)
    keys = [key for key, value in whole.items()
            if (value is None or isinstance(value, (bool, int)) or key == "mlp_only_layers")
            and not families.NOISE.search(key) and not LEFT.search(key) and key not in DEPTHS
            and not (key == "tie_word_embeddings" and kind in NEVER_READ)]
    for key in chance.sample(keys, min(len(keys), chance.randint(1, 3))):
        words[key] = other(whole[key], chance)
    return words


def can_run(words):
    """Heads share the width, keys and values, experts are as many as a token takes, caches
    have owners. GLM 4 MoE's heads are not as wide as the hidden state."""
    for key in HEADS:
        heads = words.get(key)
        kv = words.get("num_key_value_heads", words.get("num_kv_heads")) or heads
        width = words.get("hidden_size", words.get("n_embd", words.get("d_model", 0)))
        is_even = width % heads == 0 if heads else True
        if heads and (heads % kv or not (is_even or words.get("head_dim") or words.get("d_kv")
                                         or words["model_type"] == "glm4_moe")):
            return False
    if words["model_type"] in ("esmc", "helium"):  # what is behind all heads is as wide
        if words["hidden_size"] != words["num_attention_heads"] * words["head_dim"]:
            return False
    if words["model_type"] == "xlstm":
        if words.get("embedding_dim", words["hidden_size"]) != words["hidden_size"]:
            return False
    used = [words[key] for key in USED if words.get(key)]
    experts = [words[key] for key in EXPERTS if words.get(key)]
    shared = words.get("num_kv_shared_layers", 0)
    return (shared == 0 or shared < words["num_hidden_layers"]) and (
        not (used and experts) or max(used) <= min(experts))


def made(kind, chance):
    """A file, and what the library makes of it; None where it makes nothing of any."""
    for _ in range(20):
        words = mutant(kind, chance)
        if not can_run(words):
            continue
        try:
            return words, families.count(kind, transformers.AutoConfig.for_model(**words))
        except Exception:  # pylint: disable=broad-except
            continue
    return None


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 92
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    wanted = sys.argv[3:] or TYPES
    with lib.folder() as folder:
        for i in range(count):
            kind = wanted[i % len(wanted)]
            with t.part(f"{kind} {i}"):
                mutated = made(kind, chance)
                if mutated is None:
                    t.skip(f"{kind}: the library makes no model of any of twenty")
                    continue
                words, theirs = mutated
                text = json.dumps(words)
                found = families.ours(text, folder)
                t.check(found == theirs, f"{found}, not {theirs}: {text}")
    t.end()


if __name__ == "__main__":
    main()
