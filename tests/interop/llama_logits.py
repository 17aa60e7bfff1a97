#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""berth-llama against transformers: logits and greedy tokens of every family it computes.

    llama_logits.py [CASE...]          compares
    UPDATE=1 llama_logits.py           writes tests/data/llama/qwen3_moe anew, too

Models are small and random, made and saved by the library. What it computes in float32 is held
against what the decoder computes with the same weights: as they are stored, and quantized by
berth; resident in host memory, streamed from there to a simulated device, and streamed from disk.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import libraries as lib
import made
from libraries import torch  # first: it goes on in the environment that has the others
from safetensors.torch import save_file

ALIKE = 1e-4  # sums are ordered differently
GENERATED = 6
BERTH_LLAMA = os.environ.get("BERTH_LLAMA", str(lib.ROOT / "build" / "berth-llama"))
DATA = lib.ROOT / "tests" / "data" / "llama"
DEVICE = ("--devices", "sim:64MiB", "--max-memory", "0=64MiB,cpu=1GiB,disk=inf")
PLACES = {"resident": (), "from host": (*DEVICE, "--pin", "model.layers=cpu"),
          "from disk": (*DEVICE, "--pin", "model.layers=disk")}
WAYS = {"nf4": ("--type", "nf4"), "nf4_dq": ("--type", "nf4", "--double-quant"),
        "int8": ("--type", "int8")}
SPARSE = {"num_hidden_layers": 3, "mlp_only_layers": [1]}
CASES = {  # class, changes of its config
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 8}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    "mixtral": ("MixtralForCausalLM", {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {}),
    "qwen3_moe, dense layer": ("Qwen3MoeForCausalLM", {**SPARSE, "norm_topk_prob": True}),
    "qwen3_moe, every second": ("Qwen3MoeForCausalLM",
                                {"num_hidden_layers": 4, "decoder_sparse_step": 2}),
    "qwen3_moe, tied": ("Qwen3MoeForCausalLM", {"tie_word_embeddings": True}),
}
t = lib.Tally()


def berth_llama(model, ids, work, *options):
    """Logits of the prompt, and the tokens behind it."""
    file = work / "logits.safetensors"
    file.unlink(missing_ok=True)
    done = subprocess.run(
        [BERTH_LLAMA, str(model), "--tokens", ",".join(map(str, ids)), "--generate",
         str(GENERATED), "--logits", str(file), "-q", *map(str, options)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"berth-llama: {done.returncode}: {done.stderr}")
    return lib.load_file(file)["logits"], [int(word) for word in done.stdout.split()]


def prompt_of(model):
    vocabulary = model.config.vocab_size
    return ((torch.arange(16) * 37 + 11) % (vocabulary - 4) + 3).reshape(1, 16)


def continued(model, ids):
    """What the library takes next, one token after the other, without its cache."""
    for _ in range(GENERATED):
        following = model(input_ids=ids, use_cache=False).logits[0, -1].argmax()
        ids = torch.cat([ids, following.reshape(1, 1)], dim=1)
    return ids[0, -GENERATED:].tolist()


def compare(what, source, wanted, tokens, ids, work, *options):
    """In all places: near the library's, and the same bits as in host memory."""
    first = None
    for place, where in PLACES.items():
        offload = ("--offload-dir", work / "layers") if place == "from disk" and options else ()
        with t.part(f"{what}, {place}"):
            got, next_ones = berth_llama(source, ids, work, *options, *where, *offload)
            t.close_to(got, wanted, ALIKE, f"{what}, {place}")
            t.check(next_ones == tokens, f"{what}, {place}: {next_ones} follow, not {tokens}")
            first = got if first is None else first
            t.check(bool((got == first).all()), f"{what}, {place}: other bits than resident")


def compare_case(what, class_name, changes, work):
    source = work / "source"
    made.make(class_name, source, **changes)
    model = lib.in_float32(lib.load(source))
    ids = prompt_of(model)
    compare(what, source, lib.logits(model, ids), continued(model, ids), ids[0].tolist(), work)
    for way, options in WAYS.items():
        lib.quantize(source, work / way, lib.WAYS[way])
        lib.dequantize(work / way, work / f"{way}.f32", "f32")
        plain = lib.load(work / f"{way}.f32")
        compare(f"{what} {way}", source, lib.logits(plain, ids), continued(plain, ids),
                ids[0].tolist(), work, *options)


# ---- what `make check` has of it ----------------------------------------------------------------

def by_library(source, way, dtype):
    """The library's own quantization, its weights dequantized by the library."""
    quantized = lib.load(source, lib.WAYS[way])
    plain = lib.in_float32(lib.load(source))
    weights = dict(plain.named_parameters())
    for name, module in lib.quantized_modules(quantized).items():
        weights[name].data = lib.library_values(module, dtype).float()
    return plain


def record():
    """A model of 3 layers, the second of them dense, and logits by nothing but the library."""
    folder = DATA / "qwen3_moe"
    shutil.rmtree(folder, ignore_errors=True)
    made.make("Qwen3MoeForCausalLM", folder, **SPARSE, norm_topk_prob=True, hidden_size=32,
              head_dim=16, num_experts=5, num_local_experts=5, moe_intermediate_size=24,
              intermediate_size=40, vocab_size=64)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = prompt_of(lib.load(folder))
    out = {"input_ids": ids, "source_fp32": lib.logits(lib.in_float32(lib.load(folder)), ids),
           "int8_library_bf16": lib.logits(lib.load(folder, lib.WAYS["int8"]), ids)}
    for way in WAYS:
        out[f"{way}_dequant_fp32"] = lib.logits(by_library(folder, way, torch.float32), ids)
    save_file(out, DATA / "qwen3_moe.logits.safetensors")


def check_record():
    """The recorded logits are those that this release of the library computes."""
    folder = DATA / "qwen3_moe"
    recorded = lib.load_file(DATA / "qwen3_moe.logits.safetensors")
    ids = recorded["input_ids"]
    t.close_to(lib.logits(lib.in_float32(lib.load(folder)), ids), recorded["source_fp32"], ALIKE,
               "tests/data/llama/qwen3_moe: as it is")
    for way in WAYS:
        t.close_to(lib.logits(by_library(folder, way, torch.float32), ids),
                   recorded[f"{way}_dequant_fp32"], ALIKE, f"tests/data/llama/qwen3_moe: {way}")


if os.environ.get("UPDATE"):
    record()
for name in sys.argv[1:] or CASES:
    with lib.folder() as place_, t.part(name):
        compare_case(name, *CASES[name], Path(place_))
with t.part("recorded logits"):
    check_record()
t.end()
