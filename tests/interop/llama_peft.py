#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters that berth's QLoRA run has trained, in PEFT: loaded, computed with, saved again.

tests/make_qlora trains them on a base of NF4 with paged 8-bit AdamW. The base is given to PEFT
twice: as berth quantizes and dequantizes it, in float32, and in the 4 bits of bitsandbytes.
"""
import os
import subprocess
from pathlib import Path

import libraries as lib
from libraries import torch  # first: it goes on in the environment that has the others
from peft import PeftModel

ALIKE = 2e-3  # of logits up to 10: sums are ordered differently
MAKER = str(Path(os.environ.get("BERTH_BUILD", lib.ROOT / "build")) / "tests" / "make_qlora")
FOUR_BITS = {**lib.WAYS["nf4"], "bnb_4bit_compute_dtype": torch.float32}
t = lib.Tally()


def losses_of(path):
    """First and last loss of the run with states of 8 bits."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return float(lines[0][1]), float(lines[-1][1])


def loss_of(logits, ids):
    return float(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]))


def check_taken(model, stored, what):
    """Every adapter of the file is in the model, and the model has no other."""
    taken = {name.replace(".default.", "."): tensor
             for name, tensor in model.state_dict().items() if ".lora_" in name}
    t.check(taken.keys() == stored.keys(), f"{what}: other adapters than in the file")
    t.check(all(torch.equal(taken[name], stored[name]) for name in stored if name in taken),
            f"{what}: other values than in the file")


def check(what, base, work, merges):
    recorded = lib.load_file(work / "logits.safetensors")
    ids, wanted = recorded["input_ids"], recorded["logits"]
    first, last = losses_of(work / "loss.txt")
    stored = lib.load_file(work / "adapter" / "adapter_model.safetensors")
    model = PeftModel.from_pretrained(base, work / "adapter")
    check_taken(model, stored, what)
    got = lib.logits(model, ids)
    t.close_to(got, wanted, ALIKE, f"{what}: logits")
    t.check(abs(loss_of(got, ids) - last) < ALIKE, f"{what}: loss {loss_of(got, ids)}, not {last}")
    with model.disable_adapter():
        plain = loss_of(lib.logits(model, ids), ids)
    t.check(abs(plain - first) < ALIKE, f"{what}: loss without adapters {plain}, not {first}")
    if merges:
        model.save_pretrained(work / "saved")
        saved = lib.load_file(work / "saved" / "adapter_model.safetensors")
        t.check(saved.keys() == stored.keys()
                and all(torch.equal(saved[name], stored[name]) for name in stored),
                f"{what}: PEFT saves other adapters than it has loaded")
        t.close_to(lib.logits(model.merge_and_unload(), ids), wanted, ALIKE, f"{what}: merged")


with lib.folder() as place_:
    place = Path(place_)
    subprocess.run([MAKER, place_], check=True)
    with t.part("float32"):
        lib.quantize(place / "base", place / "nf4", lib.WAYS["nf4"])
        lib.dequantize(place / "nf4", place / "f32", "f32")
        check("float32", lib.in_float32(lib.load(place / "f32")), place, True)
    with t.part("4 bits"):
        check("4 bits", lib.load(place / "base", FOUR_BITS, torch.float32), place, False)
t.end()
