#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose weights transformers does not load as they are stored: is what berth makes of them
loaded?

    quantize_remade.py [CLASS...]

The library's own table says which weights it divides, joins or moves rows of. Those stay plain, and
all else is quantized: the library opens it without a remark, finds the layers that berth has
quantized and no others, each with the bytes that it makes of that layer itself, and the numbers
that were everywhere else.
"""
import sys
from pathlib import Path

import libraries as lib
import made
from libraries import torch, transformers
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter

CLASSES = [
    "GteForMaskedLM", "HrmTextForCausalLM", "JinaEmbeddingsV3ForMaskedLM",
    "Kimi_K25ForConditionalGeneration", "MiniMaxM3SparseForConditionalGeneration",
    "MistralLarge4ForConditionalGeneration", "Molmo2ForConditionalGeneration",
    "NemotronH_Omni_Reasoning_V3", "NomicBertForMaskedLM", "QianfanOCRForConditionalGeneration",
    "Step3p7ForConditionalGeneration", "UnlimitedOcrForConditionalGeneration",
]
ALONE = {  # is called so in the model: its module, and so what int8 has beside it, is not
    "UnlimitedOcrForConditionalGeneration": {"model.multi_modal_projector.weight"},
}
MOST = 30_000_000  # parameters
t = lib.Tally()


def remade_layers(model):
    """Linear layers whose weights a converter makes."""
    converters = [converter.reverse_transform()
                  for converter in get_model_conversion_mapping(model, add_legacy=False)
                  if isinstance(converter, WeightConverter)]
    return {name for name, module in model.named_modules() if type(module) is torch.nn.Linear
            and any(converter.rename_source_key(f"{name}.weight")[1] is not None
                    for converter in converters)}


def compare(name, way, source, work):
    what = f"{name} {way}"
    class_ = getattr(transformers, name)
    remade = remade_layers(class_(class_.config_class.from_pretrained(source)))
    t.check(remade, f"{what}: the library loads every layer as it is stored")
    lib.quantize(source, work, lib.WAYS[way])
    ours, theirs = lib.load(work), lib.load(source, lib.WAYS[way])
    own, other = lib.quantized_modules(ours), lib.quantized_modules(theirs)
    wanted = {key for key in other if key.rpartition(".")[0] not in remade}
    wanted -= ALONE.get(name, set()) if way == "int8" else set()
    t.check(own.keys() == wanted, f"{what}: {sorted(own.keys() ^ wanted)[:4]} "
                                  "quantized by one alone")
    differing = [key for key in own.keys() & other.keys()
                 if lib.bytes_of(own[key].weight.data) != lib.bytes_of(other[key].weight.data)]
    t.check(not differing, f"{what}: {differing[:4]} differ")
    plain = dict(lib.load(source).named_parameters())
    differing = [key for key, value in ours.named_parameters()
                 if key not in own and lib.bytes_of(value.data) != lib.bytes_of(plain[key].data)]
    t.check(not differing, f"{what}: {differing[:4]} are other numbers")


for chosen in sys.argv[1:] or CLASSES:
    with lib.folder() as place:
        try:
            made.make(chosen, Path(place) / "source", MOST)
        except Exception as problem:  # pylint: disable=broad-except
            t.skip(f"{chosen}: not made: {type(problem).__name__}: {str(problem)[:60]!r}")
            continue
        for kind in ("nf4", "int8"):
            with t.part(f"{chosen} {kind}"):
                compare(chosen, kind, Path(place) / "source", Path(place) / kind)
t.end()
