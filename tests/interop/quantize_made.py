#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""berth against transformers and bitsandbytes on small random models of many classes.

    quantize_made.py [CLASS[:PART=TYPE,...]...]     some unless given; `all`: every class (an hour)

Both quantize the same model: the same layers, names, dtypes, shapes and bytes (but for the codes of
FP4 and the statistics of double quantization), the same config.json; the library opens berth's as
its own and computes the same with it. What the library wrote, berth dequantizes to the values that
the library makes of it, in a model of the original class.
"""
import json
import sys
from pathlib import Path

import libraries as lib
import made
from libraries import torch

CLASSES = [
    "MistralForCausalLM",     # an untied head
    "Qwen2ForCausalLM",       # biases
    "Qwen3MoeForCausalLM",    # experts that the model fuses
    "DeepseekV3ForCausalLM",  # latent attention, shared experts
    "Gemma2ForCausalLM",      # tied
    "Phi3ForCausalLM",        # fused projections
    "GPTNeoXForCausalLM", "BloomForCausalLM",
    "GPTJForCausalLM",        # a head with a bias
    "FalconForCausalLM",      # nothing is quantized: its layers are of a class of their own
    "BertForMaskedLM",        # a tied decoder in the head
    "T5ForConditionalGeneration", "WhisperForConditionalGeneration",
    # Experts, a router, a head, and "wo", of sub-models of other types than by default.
    "InternVLForConditionalGeneration:text_config=qwen3_moe",
    "InternVLForConditionalGeneration:text_config=gpt_oss",
    "LlavaForConditionalGeneration:vision_config=siglip_vision_model",
    "Blip2ForConditionalGeneration:text_config=t5",
]
WAYS = ["nf4", "nf4_dq", "fp4", "int8"]
t = lib.Tally()


def differences(way, ours, theirs):
    """Files that differ, or, where bytes may, tensors that must not."""
    if way in ("nf4", "int8"):
        return lib.differing_files(ours, theirs)
    differing = lib.differing_tensors(ours, theirs)
    if way == "fp4":
        one, other = lib.tensors_of(ours), lib.tensors_of(theirs)
        differing = [name for name in differing
                     if name + ".absmax" not in other or one[name].shape != other[name].shape]
    if lib.config_of(ours) != lib.config_of(theirs):
        differing.append("config.json")
    return differing


def can_compute(model):
    """Whether sixteen tokens are all that a forward pass takes."""
    return model.main_input_name == "input_ids" and not hasattr(model.config, "vision_config")


def check_logits(what, way, ours, theirs, plain):
    try:
        other = lib.logits(lib.in_float32(lib.load(theirs)))
    except RuntimeError:
        print(f"note: {what}: the library does not compute with its own")
        lib.load(ours)
        return
    one = lib.logits(lib.in_float32(lib.load(ours)))
    share = lib.rms(one - other) / max(lib.rms(other - plain), 1e-6)
    most = {"nf4": 0, "int8": 0, "nf4_dq": 0.02, "fp4": 0.5}[way]
    t.check(share <= most, f"{what}: logits {share:.3g} of the library's distance apart")


def check_back(what, theirs, library, work):
    lib.dequantize(theirs, work / "back", "f32")
    back = lib.load(work / "back")
    t.check(not hasattr(back.config, "quantization_config"), f"{what}: still says it is quantized")
    wrong = []
    for name, module in lib.quantized_modules(library).items():
        values, wanted = back.get_parameter(name), lib.library_values(module, torch.float32)
        if values.shape != wanted.shape:
            values = values.t()
        if not torch.equal(values, wanted):
            wrong.append(name)
    t.check(not wrong, f"{what}: dequantized, {wrong}")


def compare(name, way, plain, source, work):
    what = f"{name} {way}"
    library = lib.load(source, lib.WAYS[way])
    library.save_pretrained(work / "theirs")
    lib.quantize(source, work / "ours", lib.WAYS[way])
    differing = differences(way, work / "ours", work / "theirs")
    t.check(not differing, f"{what}: {differing} differ from what the library writes")
    if plain is None:
        lib.load(work / "ours")
    else:
        check_logits(what, way, work / "ours", work / "theirs", plain)
    check_back(what, work / "theirs", library, work)


def compare_class(name, folder, ways):
    try:
        made.make(name, folder)
        model = lib.load(folder)
        model.save_pretrained(folder)  # as the library writes what it has loaded
        plain = lib.logits(lib.in_float32(model)) if can_compute(model) else None
    except Exception as problem:  # pylint: disable=broad-except
        t.skip(f"{name}: not made: {type(problem).__name__}: {str(problem)[:60]!r}")
        return
    for way in ways:
        with lib.folder() as work, t.part(f"{name} {way}"):
            compare(name, way, plain, folder, Path(work))


names = sys.argv[1:] or CLASSES
if names == ["all"]:
    with open(lib.ROOT.parent / "shared" / "spec" / "architectures.json", encoding="utf-8") as file:
        names = list(json.load(file)["architectures"])
for chosen in names:
    with lib.folder() as place:
        compare_class(chosen, Path(place) / "source", WAYS)
t.end()
