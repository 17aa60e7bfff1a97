#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models of which a person has chosen the layers, in transformers and bitsandbytes.

config.json names what berth left plain, so that the library makes the same layers of it: those of
which statistics are stored are quantized, all others are not, and a forward pass gives what the
library gives when it is told that list itself. Without the list it loads the model, with a
quantized layer for plain weights, and does not compute.
"""
import json
from pathlib import Path

import libraries as lib
import made

CHOICES = {  # what a person asks for
    "one kept": ["--keep", "*.1.*.down_proj.weight"],
    "a kind kept": ["--keep", "*.o_proj.weight"],
    "only": ["--only", "*.mlp.*"],
    "head": ["--rules", "head.rules"],
}
CLASSES = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"]
t = lib.Tally()


def skips_of(folder):
    return lib.config_of(folder)["quantization_config"]["llm_int8_skip_modules"]


def set_skips(folder, skips):
    config = lib.config_of(folder)
    config["quantization_config"]["llm_int8_skip_modules"] = skips
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def stored(folder):
    """The weights that have statistics."""
    names = lib.tensors_of(folder)
    return {name for name in names
            if f"{name}.absmax" in names or name.removesuffix("weight") + "SCB" in names}


def computes(folder):
    try:
        lib.logits(lib.load(folder))
    except Exception:  # pylint: disable=broad-except
        return False
    return True


def compare(what, source, way, options, work):
    lib.quantize(source, work / "ours", lib.WAYS[way], *options)
    skips = skips_of(work / "ours")
    t.check(skips is not None, f"{what}: no list")
    ours = lib.load(work / "ours")
    theirs = lib.load(source, {**lib.WAYS[way], "llm_int8_skip_modules": skips})
    theirs.save_pretrained(work / "theirs")
    differing = lib.differing_files(work / "ours", work / "theirs")
    t.check(not differing, f"{what}: {differing} differ from what the library writes")
    t.check(lib.quantized_modules(ours).keys() == stored(work / "ours"),
            f"{what}: other layers are quantized than stored so")
    t.check(lib.quantized_modules(ours).keys() == lib.quantized_modules(theirs).keys(),
            f"{what}: the library understands {skips} otherwise")
    one, other = lib.logits(lib.in_float32(ours)), lib.logits(lib.in_float32(theirs))
    t.check(bool((one == other).all()), f"{what}: logits {lib.rms(one - other):.3g} apart")
    set_skips(work / "ours", None)
    t.check(not computes(work / "ours"), f"{what}: computes without its list")


for name in CLASSES:
    with lib.folder() as place:
        folder = Path(place) / "source"
        made.make(name, folder, tie_word_embeddings=False)
        lib.load(folder).save_pretrained(folder)
        rules = Path(place) / "head.rules"
        rules.write_text("quantize lm_head.weight\n", encoding="utf-8")
        for chosen, arguments in CHOICES.items():
            arguments = [str(rules) if a == "head.rules" else a for a in arguments]
            for kind in ("nf4", "int8"):
                with lib.folder() as own, t.part(f"{name} {kind} {chosen}"):
                    compare(f"{name} {kind} {chosen}", folder, kind, arguments, Path(own))
t.end()
