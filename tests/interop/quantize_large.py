#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""berth against transformers and bitsandbytes on a random Llama in shards.

    quantize_large.py [LAYERS]           4 unless given: 127 MB; 12 are 315 MB

bitsandbytes computes as it comes here, with its compiled code: every matrix suits it. Both quantize
the same model; files, logits, seconds and memory are compared. Then berth turns the library's files
back into the values that the library makes of them.
"""
import json
import sys
import time
from pathlib import Path

import libraries as lib
from libraries import torch, transformers

WAYS = ["nf4", "nf4_dq", "int8"]
SHARD = "40MB"
t = lib.Tally()


def make_model(folder, layers):
    """Weights as trained ones are: nearly normal, of another spread in every matrix."""
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=layers,
        num_attention_heads=16, num_key_value_heads=8, vocab_size=8000,
        max_position_embeddings=512, dtype=torch.bfloat16)
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    for number, tensor in enumerate(model.parameters()):
        if tensor.dim() == 2:
            tensor.data.normal_(0, 0.01 + 0.002 * (number % 11))
    model.save_pretrained(folder, max_shard_size=SHARD)


def resident(key):
    """MiB of a line of /proc/self/status."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def load_measured(source, settings):
    """The library's own quantization, its seconds, and the MiB it grew by at its peak."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak counts from now
    before, begin = resident("VmRSS:"), time.perf_counter()
    model = lib.load(source, settings)
    return model, time.perf_counter() - begin, resident("VmHWM:") - before


def weight_map(path):
    with open(path / "model.safetensors.index.json", encoding="utf-8") as file:
        return json.load(file)["weight_map"]


def check_files(way, ours, theirs):
    if way == "nf4_dq":
        differing = lib.differing_tensors(ours, theirs)
    else:
        differing = lib.differing_files(ours, theirs)
    t.check(not differing, f"{way}: {differing} differ from what the library writes")
    t.check(weight_map(ours) == weight_map(theirs) and len(set(weight_map(ours).values())) > 1,
            f"{way}: other shards")


def check_back(way, theirs, library, work):
    """The library's files turned back: the values that bitsandbytes makes of them."""
    lib.dequantize(theirs, work / "back", "bf16")
    back = lib.load(work / "back")
    t.check(not hasattr(back.config, "quantization_config"), f"{way}: still says it is quantized")
    for name, module in lib.quantized_modules(library).items():
        t.check(torch.equal(back.get_parameter(name),
                            lib.library_values(module, torch.bfloat16)), f"{way}: values of {name}")


def check_logits(way, ours, theirs, plain):
    """The library's forward pass on either folder."""
    ids = torch.arange(64).reshape(1, 64) * 97 % 7990 + 3
    with lib.compiled():
        got, wanted = (lib.logits(lib.load(path, packs=True), ids) for path in (ours, theirs))
    apart, far = lib.rms(got - wanted), lib.rms(wanted - lib.logits(plain, ids))
    t.check(apart <= (0.05 if way == "nf4_dq" else 0) * far,
            f"{way}: logits {apart:.3g} apart, {far:.3g} from the source")
    print(f"note: {way}: logits {apart:.2g} from the library's, which are {far:.2g} from bf16's")


def compare(way, source, plain, work):
    settings = lib.WAYS[way]
    library, theirs, grown = load_measured(source, settings)
    ours = lib.quantize(source, work / "ours", settings, "--max-shard-size", SHARD)
    print(f"note: {way}: berth {ours:.2f} s, written; the library {theirs:.2f} s, in memory, "
          f"{grown:.0f} MiB more of it")
    library.save_pretrained(work / "theirs", max_shard_size=SHARD)
    check_files(way, work / "ours", work / "theirs")
    check_back(way, work / "theirs", library, work)
    check_logits(way, work / "ours", work / "theirs", plain)


layer_count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
with lib.folder() as place:
    make_model(Path(place) / "source", layer_count)
    unquantized = lib.load(Path(place) / "source")
    for chosen in WAYS:
        with lib.folder() as own, t.part(chosen):
            compare(chosen, Path(place) / "source", unquantized, Path(own))
t.end()
