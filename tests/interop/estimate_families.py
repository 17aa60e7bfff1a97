#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters of model types: `berth estimate` of a config.json against the library's own classes.

    estimate_families.py [--write FILE | TYPE...]

Each type of the table of model types that the library has is made without memory, from the
defaults of its configuration and from family_variants.py; what its state has in all is what berth
counts from the configuration alone. --write notes numbers and configurations for
test_estimate_shape.
"""
import json
import os
import re
import subprocess
import sys

import libraries as lib
from family_variants import VARIANTS, WORDS
from libraries import torch, transformers

TABLES = [lib.ROOT / "placement" / name
          for name in ["shape_family.c", "shape_readers.c"]]
CLASSES = {"whisper": "AutoModelForSpeechSeq2Seq", "mistral4": "AutoModelForImageTextToText",
           "mllama_text_model": "MllamaForCausalLM"}
CLASSES |= dict.fromkeys(
    ["bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "fsmt", "led", "longt5",
     "m2m_100", "marian", "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart",
     "prophetnet", "switch_transformers", "t5", "t5gemma", "umt5"],
    "AutoModelForSeq2SeqLM")
# Of a model for images or sound; its head stands outside.
CLASSES |= dict.fromkeys(
    ["glm4v_moe_text", "glm4v_text", "qwen2_5_vl_text", "qwen2_vl_text", "qwen3_vl_moe_text",
     "qwen3_vl_text"], "AutoModel")
CLASSES |= dict.fromkeys(
    ["albert", "bert", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2",
     "distilbert", "electra", "ernie", "esm", "esmc", "eurobert", "flaubert", "fnet", "funnel",
     "gte", "ibert",
     "jina_embeddings_v3", "layoutlm", "longformer", "luke", "megatron-bert", "mobilebert",
     "modernbert", "mpnet", "mra", "neomme", "nomic_bert", "nystromformer", "rembert", "roberta",
     "roberta-prelayernorm", "roc_bert", "roformer", "squeezebert", "tapas", "xlm",
     "xlm-roberta", "xlm-roberta-xl", "xmod", "yoso"], "AutoModelForMaskedLM")
CLASSES |= {"qwen2_5_omni_text": "Qwen2_5OmniThinkerTextModel",
            "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextModel"}
# With a tower that needs headers, of somebody else's code, or half of another one.
OTHERS = {"gemma3", "qwen2_vl", "qwen2_5_vl", "kimi_k2", "t5_gemma_module",
          "phi4_multimodal"}
# What no count depends on.
NOISE = re.compile(r"_token_id$|dropout|_pdrop|^output_(?!embedding|groups)|_eps(ilon)?$|"
                   r"initializer|^use_cache$|return_dict|^chunk_size|(?<!aggregation_)label|^rope|"
                   r"transformers_version|problem_type|_coef$|^mask_|^apply_spec|_drop$|"
                   r"layerdrop|^is_(?!moe)|^dtype$|^name_or_path$|^_name")
# Buffers that checkpoints have.
SAVED = re.compile(r"correction_bias|expert_bias|tid2eid|final_logits_bias|act_fn\.(beta|eps)$|"
                   "layer_scalar$|slope_rate$|_decay$|balancing_biases$|position_ids$|"
                   r"_integer$|_scaling_factor$|x_m(ax|in)$|\.shift$")
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
