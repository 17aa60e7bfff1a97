#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Estimates from headers and from config.json alone, of small models of all model types.

    estimate_headers.py [--write FILE | TYPE...]

Each type of the table of model types that made.py can make small is saved by the library. What
berth finds linear in its headers is what the library quantizes: linear layers of exactly that
class, less those that it leaves out. --write notes configurations and headers for
test_estimate_headers, which holds both estimates against each other.
"""
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import libraries as lib
import made
from estimate_families import CLASSES, OTHERS, plain, types
from huggingface_hub.errors import StrictDataclassError
from libraries import torch, transformers
from transformers.quantizers.base import get_keys_to_not_convert
from transformers.quantizers.quantizers_utils import should_convert_module

# What made.py's sizes do not go with.
TWO_KINDS = ["linear_attention", "full_attention"]
WINDOWS = ["sliding_attention", "full_attention"]
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16}
CHANGES = {"bailing_hybrid": {"num_experts_per_token": 2},
           "bamba": MAMBA | {"attn_layer_indices": [1]},
           "deepseek_v4": {"o_groups": 2},
           "esmc": {"num_key_value_heads": 4},
           "fsmt": {"pad_token_id": 1},
           "gemma3n_text": {"intermediate_size": [176, 176], "layer_types": WINDOWS,
                            "activation_sparsity_pattern": [0.95, 0.0],
                            "num_kv_shared_layers": 0},
           "gemma4_text": {"layer_types": WINDOWS, "per_layer_config": {1: {"head_dim": 32}}},
           "gemma4_unified_text": {"layer_types": WINDOWS,
                                   "per_layer_config": {1: {"head_dim": 32}}},
           "glm_moe_dsa": {"indexer_types": ["full", "full"]},
           "gpt_neo": {"attention_types": [[["global", "local"], 1]],
                       "attention_layers": ["global", "local"]},
           "granitemoehybrid": MAMBA | {"layer_types": TWO_KINDS},
           "hy_v4": {"indexer_types": ["full", "full"]},
           "kimi_linear": {"num_experts_per_token": 2},
           "laguna": {"num_attention_heads_per_layer": [4, 4]},
           "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
           "longcat_flash": {"expert_ffn_hidden_size": 48, "moe_topk": 2, "zero_expert_num": 0,
                             "qk_head_dim": 32},
           "luke": {"entity_vocab_size": 50, "entity_emb_size": 48},
           "mamba2": {"num_heads": 8, "head_dim": 16},
           "neomme": {"layer_types": WINDOWS, "per_layer_config": {}},
           "nllb-moe": {"encoder_sparse_step": 2, "decoder_sparse_step": 2},
           "olmo_hybrid": {"layer_types": TWO_KINDS},
           "roc_bert": {"pronunciation_vocab_size": 91, "shape_vocab_size": 99},
           "xlnet": {"d_head": 16},
           "xlstm": {"embedding_dim": 64},
           "zamba": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"],
                     "num_hidden_layers": 3,
                     "attention_hidden_size": 128, "attention_head_dim": 32},
           "zamba2": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"],
                      "hybrid_layer_ids": [1, 2], "num_hidden_layers": 3,
                      "mamba_headdim": 16,
                      "attention_hidden_size": 128, "attention_head_dim": 32},
           "zaya": {"num_experts_per_tok": 1}}
# Whose part for words alone is described nowhere: the whole of it, without what sees and hears.
WHOLE = {"glm4v_moe_text": "Glm4vMoeForConditionalGeneration",
         "minimax_m3_vl_text": "MiniMaxM3SparseForConditionalGeneration",
         "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerForConditionalGeneration"}
TOWERS = re.compile("vision|visual|audio|multi_modal|patch_merge")
MOST = 12_000_000
t = lib.Tally()


def class_name(kind):
    auto = WHOLE.get(kind) or CLASSES.get(kind, "AutoModelForCausalLM")
    if not auto.startswith("Auto"):
        return auto
    names = getattr(transformers, auto)._model_mapping._model_mapping
    found = names[kind]
    return found[0] if isinstance(found, (tuple, list)) else found


def headers(folder):
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with open(path, "rb") as file:
            found |= json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    found.pop("__metadata__", None)
    return {name: (value["dtype"], value["shape"]) for name, value in found.items()
            if not TOWERS.search(name)}


def folded(tensors):
    """Names that differ in numbers alone as one line: `layers.0-1.up.weight BF16 176x64`."""
    kinds = {}
    for name, kind in tensors.items():
        numbers = tuple(int(n) for n in re.findall(r"(?<=\.)\d+(?=\.)", name))
        form = re.sub(r"(?<=\.)\d+(?=\.)", "#", name)
        kinds.setdefault((form, kind[0], tuple(kind[1]), numbers[:-1] and len(numbers)),
                         []).append(numbers)
    for (form, dtype, shape, _), all_numbers in kinds.items():
        ends = [(min(column), max(column)) for column in zip(*all_numbers)]
        size = 1
        for first, last in ends:
            size *= last - first + 1
        each = [ends] if size == len(all_numbers) else [[(n, n) for n in numbers]
                                                        for numbers in all_numbers]
        for one in each:
            name = form
            for first, last in one:
                name = name.replace("#", f"{first}-{last}" if last > first else f"{first}", 1)
            yield f"{name} {dtype} {'x'.join(map(str, shape)) or '-'}"


def untie(model):
    """As it is when the library asks, before anything is loaded."""
    for name in model.all_tied_weights_keys:
        owner, _, last = name.rpartition(".")
        own = model.get_parameter(name).clone()
        setattr(model.get_submodule(owner), last, torch.nn.Parameter(own))


def quantized(model):
    """Elements of what the library quantizes."""
    untie(model)
    # As its quantizers ask: what the strict list alone names is quantized.
    kept = get_keys_to_not_convert(model) + list(model._keep_in_fp32_modules or [])
    return sum(module.weight.numel() for name, module in model.named_modules()
               if (type(module) is torch.nn.Linear or type(module).__name__ == "Conv1D")
               and should_convert_module(name, kept))


def counted(path):
    done = subprocess.run([os.environ["BERTH"], "estimate", path, "--json", "--context", "1",
                           "--type", "nf4", "--keep-experts"],
                          capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    if done.returncode != 0:
        return answer["error"]["message"]
    reasons = {part["part"]: part["reason"] for part in answer["parts"]}
    number = re.match(r"\d+", reasons.get("linear_weights", ""))
    return int(number[0]) if number else 0


def entry(kind, folder):
    model = made.make(class_name(kind), folder, MOST * (2 if kind in WHOLE else 1),
                      **CHANGES.get(kind, {}))
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    shown = plain(config)
    shown["dtype"] = config.get("dtype", "bfloat16")
    theirs, ours = quantized(model), counted(str(folder))
    t.check(ours == theirs, f"{kind}: {ours} quantized, not {theirs}")
    return "\n".join([f"model {json.dumps(shown, separators=(',', ':'))}",
                      *folded(headers(folder))]) + "\n"


def main():
    is_writing = sys.argv[1:2] == ["--write"]
    wanted = sys.argv[1:] if not is_writing else []
    entries = []
    for kind in wanted or [kind for kind in types() if kind not in OTHERS]:
        with t.part(kind), lib.folder() as folder:
            try:
                entries.append(entry(kind, folder))
            except (ValueError, TypeError, KeyError, AttributeError,
                    StrictDataclassError) as error:
                print(f"{kind}: not made small: {str(error).splitlines()[0][:100]}")
    if is_writing:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.writelines(entries)
    t.end()


if __name__ == "__main__":
    main()
