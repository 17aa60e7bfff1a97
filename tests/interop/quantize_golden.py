#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""berth against transformers and bitsandbytes on the recorded models of ../shared/golden/quant.

    quantize_golden.py [MODEL...]

Forth: berth quantizes each source in each way; the libraries open that as their own, quantize the
same layers, and a forward pass gives the recorded logits, what they give on their own quantization,
and what berth's dequantization of it gives. Back: what the libraries wrote, berth dequantizes to
the recorded digests, as a checkpoint of the original architecture with the same logits, and
quantizes again to the same bytes.
"""
import json
import sys
from pathlib import Path

import libraries as lib
from libraries import torch

ALIKE = 1e-4  # sums are ordered differently
# How far from the library's own quantization logits may lie, as a share of how far that lies from
# the source: the bytes of NF4 are the same; with double quantization single statistics differ, and
# for FP4 the library has other thresholds on a CPU than on a GPU, whose codes berth writes.
SHARES = {"nf4": 0.0, "nf4_dq": 0.01, "fp4": 0.3, "fp4_dq": 0.3}
t = lib.Tally()


def recorded(model):
    path = lib.GOLDEN / model / "logits.safetensors"
    return lib.load_file(path) if path.exists() else {}


def expected(model, variant):
    with open(lib.GOLDEN / model / variant / "expected.json", encoding="utf-8") as file:
        return json.load(file)


def as_recorded(model, variant):
    """Settings and further options that make this variant."""
    record = expected(model, variant)
    options = ["--dtype", record["model_dtype"]]
    if len([name for name in record["files"] if name.endswith(".safetensors")]) > 1:
        options += ["--max-shard-size", "40KB"]
    return record["arguments"], *options


# ---- berth writes, the libraries read -----------------------------------------------------------

def check_int8_forward(what, ours, library, exact):
    """Activations are quantized: within twice the library's own distance from exact ones."""
    one, other = ours - exact, library - exact
    t.check(float(one.abs().max()) <= 2 * float(other.abs().max())
            and lib.rms(one) <= 2 * lib.rms(other),
            f"{what}: logits {lib.rms(one):.3g} away, the library's {lib.rms(other):.3g}")


def check_int8(what, ours, theirs, back, golden):
    """Logits were recorded with other codes, a CPU's: check_dequantized() compares those."""
    ids = golden.get("input_ids")
    library = lib.logits(theirs, ids)
    got = lib.logits(ours, ids)
    t.close_to(got, library, ALIKE, f"{what}: against the library's own")
    check_int8_forward(what, got, golden.get("int8_library_bf16", library), back)


def check_4bit(model, way, ours, theirs, back, golden):
    what, ids = f"{model} {way}", golden.get("input_ids")
    got = lib.logits(lib.in_float32(ours), ids)
    t.close_to(back, got, ALIKE, f"{what}: dequantized")
    if f"{way}_dequant_fp32" in golden:
        t.close_to(got, golden[f"{way}_dequant_fp32"], ALIKE, f"{what}: recorded logits")
    plain = lib.logits(lib.in_float32(lib.load(lib.GOLDEN / model / "source")), ids)
    if golden:
        t.close_to(plain, golden["source_fp32"], ALIKE, f"{what}: the source's logits")
    library = lib.logits(lib.in_float32(theirs), ids)
    share = lib.rms(got - library) / lib.rms(library - plain)
    t.check(share <= SHARES[way], f"{what}: {share:.3g} of the library's distance from the library")


def check_forth(model, way, work):
    """One source, quantized by berth in one way."""
    source, settings, golden = lib.GOLDEN / model / "source", lib.WAYS[way], recorded(model)
    lib.quantize(source, work / "q", settings)
    lib.dequantize(work / "q", work / "f32", "f32")
    lib.dequantize(work / "q", work / "bf16", "bf16")
    ours, theirs = lib.load(work / "q"), lib.load(source, settings)
    t.check(lib.quantized_modules(ours).keys() == lib.quantized_modules(theirs).keys()
            and len(lib.quantized_modules(ours)) > 0, f"{model} {way}: other layers are quantized")
    back = lib.logits(lib.load(work / "f32"), golden.get("input_ids"))
    if way == "int8":
        check_int8(f"{model} {way}", ours, theirs, back, golden)
    else:
        check_4bit(model, way, ours, theirs, back, golden)
    if f"{way}_dequant" in golden and way != "int8":
        rounded = lib.logits(lib.in_float32(lib.load(work / "bf16")), golden["input_ids"])
        t.close_to(rounded, golden[f"{way}_dequant"], ALIKE, f"{model} {way}: rounded weights")


def check_settings(model, variant, work):
    """Storage dtype, skipped modules, shards, another dtype: the same model as the library's."""
    what, folder = f"{model}/{variant}", lib.GOLDEN / model / variant
    lib.quantize(lib.GOLDEN / model / "source", work / "own", *as_recorded(model, variant))
    ours, theirs = lib.load(work / "own"), lib.load(folder)
    t.check(lib.quantized_modules(ours).keys() == lib.quantized_modules(theirs).keys(),
            f"{what}: other layers are quantized")
    t.close_to(lib.logits(lib.in_float32(ours)), lib.logits(lib.in_float32(theirs)), ALIKE,
               f"{what}: logits")


# ---- the libraries wrote, berth reads -----------------------------------------------------------

def check_digests(what, entries, tensors, key, turned):
    """Weights have the recorded digests, in the orientation in which they were quantized."""
    for entry in entries:
        tensor = tensors[entry["name"]]
        if entry["name"] in turned:
            tensor = tensor.t()
        if key == "dequant_fp32_sha256":
            tensor = tensor + 0.0  # recorded without the sign of FP4's second zero
        t.check(list(tensor.shape) == entry["original_shape"]
                and lib.digest(tensor) == entry[key], f"{what}: digest of {entry['name']}")


def check_plain_tensors(what, entries, tensors, source):
    """What was not quantized is what it was."""
    for entry in entries:
        t.check(lib.bytes_of(tensors[entry["name"]].to(source[entry["name"]].dtype))
                == lib.bytes_of(source[entry["name"]]), f"{what}: bytes of {entry['name']}")


def check_dequantized(model, variant, work):
    what, folder = f"{model}/{variant}", lib.GOLDEN / model / variant
    entries = expected(model, variant)["parameters"]
    quantized = [entry for entry in entries if entry["quantized"]]
    source = lib.tensors_of(lib.GOLDEN / model / "source")
    turned = {name for name, tensor in source.items() if model == "gpt2" and tensor.dim() == 2}
    for dtype, key in (("bf16", "dequant_bf16_sha256_signed_zero"),
                       ("f32", "dequant_fp32_sha256")):
        lib.dequantize(folder, work / dtype, dtype)
        tensors = lib.tensors_of(work / dtype)
        t.check(tensors.keys() == source.keys(), f"{what}: names of the source in {dtype}")
        check_digests(what, quantized, tensors, key, turned)
        check_plain_tensors(what, [entry for entry in entries if not entry["quantized"]],
                            tensors, source)
    config = lib.config_of(work / "bf16")
    before = lib.config_of(lib.GOLDEN / model / "source")
    t.check(config == before, f"{what}: config.json is the source's again")
    library = lib.logits(lib.in_float32(lib.load(folder)), recorded(model).get("input_ids"))
    back = lib.logits(lib.load(work / "f32"), recorded(model).get("input_ids"))
    if not variant.startswith("int8"):
        t.close_to(back, library, ALIKE, f"{what}: logits of the dequantized model")
    elif f"{variant}_dequant_fp32" in recorded(model):
        t.close_to(back, recorded(model)[f"{variant}_dequant_fp32"], ALIKE, f"{what}: logits")


def without_second_zero(packed):
    """FP4's two zeros as one code."""
    packed = packed.view(torch.uint8)
    high, low = packed >> 4, packed & 15
    high[high == 8], low[low == 8] = 0, 0
    return (high << 4) | low


def check_again(model, variant, work):
    """Quantized as it was, from what was quantized."""
    what, folder = f"{model}/{variant}", lib.GOLDEN / model / variant
    record = expected(model, variant)
    lib.quantize(folder, work / "again", *as_recorded(model, variant))
    if not variant.startswith("fp4") and "_dq" not in variant:
        differing = lib.differing_files(work / "again", folder)
        t.check(not differing, f"{what}: again, but {differing}")
        return
    theirs, ours = lib.tensors_of(folder), lib.tensors_of(work / "again")
    t.check(ours.keys() == theirs.keys(), f"{what}: again, other tensors")
    for entry in record["parameters"]:
        if not entry["quantized"]:
            continue
        one, other = ours[entry["name"]], theirs[entry["name"]]
        if variant.startswith("fp4"):
            one, other = without_second_zero(one), without_second_zero(other)
        # A block of zeros: the library's code is that of 0, the canonical one is 0.
        known = record["library_vs_canonical"]["codes"] == 64 and variant == "nf4_dq"
        differ = int((one.view(torch.uint8) != other.view(torch.uint8)).sum())
        t.check(differ == 0 or (known and differ == 32),
                f"{what}: again, {differ} bytes of {entry['name']}")


names = sys.argv[1:] or (sorted(path.name for path in lib.GOLDEN.iterdir() if path.is_dir())
                         if lib.GOLDEN.is_dir() else [])
for name in names:
    for chosen in lib.WAYS:
        with lib.folder() as place, t.part(f"{name} {chosen}"):
            check_forth(name, chosen, Path(place))
    for written in sorted(path.parent.name for path in lib.GOLDEN.glob(f"{name}/*/expected.json")):
        if written != "source":
            with lib.folder() as place, t.part(f"{name}/{written}"):
                check_dequantized(name, written, Path(place))
                check_again(name, written, Path(place))
                if written not in lib.WAYS:
                    check_settings(name, written, Path(place))
if not names:
    t.skip("no recorded models in ../shared/golden/quant")
t.end()
