#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slices of tensor parallelism: `berth plan --tensor-parallel` against the library's own plans.

    plan_slices.py [TYPE...]

A small model of each type that berth-plan(5) lists is saved by the library. What the class's
tp_plan shares out by columns of its product are rows of the weight that is stored, what it shares
out by rows are columns, and what it does not name, or replicates, is whole. Experts that are
stored as one tensor have both behind its first dimension, and of what is packed a rank has its
share of either half. Words may be cut where it leaves them whole: tables of embeddings, which few
plans name.
"""
import json
import os
import re
import subprocess
import sys

import libraries as lib
import made
from estimate_headers import CHANGES, MOST, class_name
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open

# Which of the last two dimensions is cut, counted from the end, and into how many parts before.
BY_STYLE = {"colwise": (2, 1), "packed_colwise": (2, 2), "colwise_gather_output": (2, 1),
            "embedding_rowwise": (2, 1), "rowwise": (1, 1), "rowwise_split_input": (1, 1),
            "packed_rowwise": (1, 2)}
DIMENSIONS = ("rows", "columns", "depths")
RANK, RANKS = 1, 2
WORDS = re.compile(r"(embed_tokens|lm_head|shared_head\.head)\.weight$")
# What the library joins or renames as it loads has the plan of what it becomes.
RENAMED = ((r"block_sparse_moe", "mlp"),
           (r"experts\.\d+\.(gate_proj|up_proj|w1|w3)\.weight$", "experts.gate_up_proj"),
           (r"experts\.\d+\.(down_proj|w2)\.weight$", "experts.down_proj"),
           (r"experts\.fc1\.weight$", "experts.gate_up_proj"),
           (r"experts\.fc2\.weight$", "experts.down_proj"),
           (r"mlp\.input_linear\.weight$", "mlp.experts.gate_up_proj"),
           (r"mlp\.output_linear\.weight$", "mlp.experts.down_proj"))
JOINED = re.compile(r"experts\.\d+\.")  # a half of what is packed
# What other servers share out where the class's plan leaves it whole, or there is no plan.
BEYOND = {kind: re.compile(names) for kinds, names in (
    (("afmoe", "gpt_oss", "hunyuan_v1_dense", "hunyuan_v1_moe", "phimoe", "stablelm"), ""),
    (("granitemoe", "granitemoeshared"), r"self_attn\.|shared_mlp\."),
    (("axk1", "deepseek_v3", "youtu"), r"self_attn\.(q_b|kv_b|o)_proj"),
    (("exaone_moe", "glm4_moe_lite", "solar_open"), r"shared_experts\."),
    (("hy_v3",), r"shared_mlp\."), (("qwen2_moe",), r"shared_expert\.")) for kind in kinds}
MANUAL = lib.ROOT / "tools" / "man" / "berth-plan.5"
t = lib.Tally()


def plans_of(model):
    """The plan's patterns, longest first: module names without numbers, and their styles."""
    inner = getattr(model, model.base_model_prefix, model)
    found = dict(getattr(model, "_tp_plan", None) or {})
    for name, style in (inner.config.base_model_tp_plan or {}).items():
        found[f"{model.base_model_prefix}.{name}"] = style
    return {name.replace("block_sparse_moe", "mlp"): style for name, style in found.items()}


def expected(name, shape, plan):
    """What rank 1 of 2 has of the tensor of this name, as berth's plan says it."""
    full = name
    for pattern, whole in RENAMED:
        full = re.sub(pattern, whole, full)
    form = re.sub(r"\.\d+(?=\.|$)", ".*", full)
    module, _, kind = form.rpartition(".")
    from_end, parts = BY_STYLE.get(plan.get(form) or plan.get(module), (0, 1))
    if from_end == 0 or (kind == "bias" and from_end == 1):
        return {"of": "whole"}
    dimension = max(len(shape) - from_end, 0)
    if JOINED.search(name):
        parts = 1
    count = shape[dimension] // parts // RANKS
    found = {"of": DIMENSIONS[dimension], "first": RANK * count, "count": count}
    return found | {"parts": parts} if parts > 1 else found


def slices(folder, rank, ranks):
    """What berth's plan says of each tensor; a refusal's message."""
    done = subprocess.run([os.environ["BERTH"], "plan", folder, "--json", "--context", "1", "-m",
                           "cpu=1GiB", "--tensor-parallel", f"{rank}/{ranks}"],
                          capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    if done.returncode != 0:
        return f"{answer['error']['tensor']}: {answer['error']['message']}"
    return {layer["prefix"] + berth["tensor"]: berth.get("slice", {"of": "whole"})
            for layer in answer["layers"] for berth in layer["berths"]}


def shapes_of(folder):
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as stored:
        return {name: stored.get_slice(name).get_shape() for name in stored.keys()}


def compare(kind, folder):
    model = made.make(class_name(kind), folder, MOST, **CHANGES.get(kind, {}))
    found = slices(folder, RANK, RANKS)
    if isinstance(found, str):
        t.check(False, f"{kind}: {found}")
        return
    plan, wrong = plans_of(model), []
    shapes = shapes_of(folder)
    for name, ours in found.items():
        theirs = expected(name, shapes[name], plan)
        is_beyond = kind in BEYOND and BEYOND[kind].search(name) and theirs["of"] == "whole"
        is_words = WORDS.search(name) and ours["of"] == "rows"
        if ours != theirs and not is_beyond and not is_words:
            wrong.append(f"{name} {ours}, not {theirs}")
    t.check(len(found) > 0 and not wrong, f"{kind}: {'; '.join(wrong[:8])}")


def main():
    text = MANUAL.read_text(encoding="utf-8").partition("Models of these types are cut:")[2]
    listed = re.findall(r"\w+", text.partition(".\n")[0])
    made_small = 0
    for kind in sys.argv[1:] or listed:
        with t.part(kind), lib.folder() as folder:
            try:
                compare(kind, str(folder))
                made_small += 1
            except (ValueError, TypeError, KeyError, AttributeError, ImportError,
                    StrictDataclassError) as error:
                print(f"{kind}: not made small: {str(error).splitlines()[0][:100]}")
    t.check(sys.argv[1:] != [] or made_small > 55, f"only {made_small} of {len(listed)} types")
    t.end()


if __name__ == "__main__":
    main()
