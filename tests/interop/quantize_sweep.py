#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""berth against transformers and bitsandbytes on a small random model of every class there is.

    quantize_sweep.py [--all | --sample N] [--part I/N] [--keep FOLDER] [CLASS...]

Each model is quantized in each way by both, into shards in two of them: the files must be the same,
byte for byte. What cannot be known from headers and config.json is in EXPECTED, with the reason.
Without arguments a fixed sample of two minutes; --all takes an hour. --keep holds what the library
wrote in FOLDER and takes it from there in later runs, which then need a minute.
"""
import argparse
import json
import signal
import sys
from pathlib import Path

import libraries as lib
import made
from libraries import transformers

SAMPLE = 24
LIMIT = "60KB"  # of a shard
MOST = 1_500_000  # parameters
SECONDS = 90  # for one class
WAYS = {  # name: settings, and whether the output is divided
    "nf4": (lib.WAYS["nf4"], False),
    "int8": (lib.WAYS["int8"], True),
    "plain": (None, True),
}
# Kinds of differences, the classes that have them (* at the end: all that begin so), and why they
# cannot be known from headers and config.json.
EXPECTED = [
    ("names bytes shards config fails", "Gte* JinaEmbeddingsV3* NomicBert* Molmo2* Kimi_K25* "
     "Step3p7* QianfanOCR* Tipsv2Text* HrmText* MiniMaxM3* NemotronH_Omni* UnlimitedOcr*",
     "the library splits a weight into several parameters, quantizes each, and puts their maps, "
     "states and names together in files that it cannot load, where berth leaves it plain; its "
     "part that is sorted first, by which it fills shards, is not described"),
    ("names bytes", "MobileBertForMaskedLM", "a layer without elements, made by the small sizes"),
    ("shards files", "MarianMTModel DeepseekV4* BrosModel Gemma4AudioModel Glm4vMoeTextModel "
     "Lasr* Parakeet* PatchTSTModel Sam3LiteTextTextModel ClvpModel* VideoPrismClipModel",
     "parameters that are not stored, or buffers that are, of which only the class's code tells"),
    ("shards", "ASTModel DeiTModel IJepaModel ViT* Vivit* VisionTextDualEncoderModel "
     "PaddleOCRVLModel Wav2Vec2BertModel InstructBlip*",
     "no description: how the model calls its parameters in memory is not known"),
    ("names bytes", "Llama4TextModel Aimv2VisionModel ClvpModel* DecisionTransformerModel "
     "InstructBlip* LayoutLMv3Model MllamaModel PatchTSTModel Sam3LiteTextTextModel "
     "TimesFmModel VoxtralRealtimeModel",
     "no description: which matrix is a linear layer or the last parameter is guessed from names"),
    ("bytes config", "DeepseekV4Model Glm4vMoeTextModel HYV4Model OpenAIPrivacyFilterModel "
     "VideoPrismClipModel VoxtralModel",
     "no description: which parameters have a dtype of their own is not known"),
]
t = lib.Tally()


class TooLong(Exception):
    """A class takes more than its seconds."""


def stop(_signal, _frame):
    raise TooLong()


# ---- the library's side -------------------------------------------------------------------------

def class_names():
    """Every class that a checkpoint can name, those that berth describes first."""
    described = lib.ROOT / "quant" / "architectures.json"
    with open(described, encoding="utf-8") as file:
        names = dict.fromkeys(json.load(file)["architectures"])
    auto = transformers.models.auto.modeling_auto
    for mapping in ("MULTIMODAL_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM",
                    "SPEECH_SEQ_2_SEQ", "TEXT_ENCODING", "SEQUENCE_CLASSIFICATION"):
        found = getattr(auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").values()
        names.update(dict.fromkeys(found))
    for found in auto.MODEL_MAPPING_NAMES.values():
        names.update(dict.fromkeys([found] if isinstance(found, str) else found))
    return [name for name in names if isinstance(name, str)]


def forget_dtypes(path):
    """Takes the dtype out of the configs inside, which many published ones lack."""
    config = json.loads(path.read_text(encoding="utf-8"))
    inner = [config]
    while inner:
        for value in inner.pop().values():
            if isinstance(value, dict):
                inner.append(value)
                if "model_type" in value:
                    value.pop("dtype", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_theirs(name, folder):
    """Makes the source and what the library makes of it; says why it does not."""
    try:
        made.make(name, folder / "source", MOST)
        lib.load(folder / "source").save_pretrained(folder / "source")
        forget_dtypes(folder / "source" / "config.json")
    except Exception as problem:  # pylint: disable=broad-except
        return {"source": f"{type(problem).__name__}: {str(problem)[:90]!r}"}
    problems = {}
    for way, (settings, is_divided) in WAYS.items():
        options = {"max_shard_size": LIMIT} if is_divided else {}
        try:
            lib.load(folder / "source", settings).save_pretrained(folder / way, **options)
        except Exception as problem:  # pylint: disable=broad-except
            problems[way] = f"{type(problem).__name__}: {str(problem)[:90]!r}"
    return problems


def theirs_of(name, folder):
    """What could not be written, by way; "source" alone: nothing could."""
    notes = folder / "problems.json"
    if notes.exists():
        return json.loads(notes.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    signal.alarm(SECONDS)
    try:
        problems = write_theirs(name, folder)
    except TooLong:
        problems = {"source": "takes too long"}
    finally:
        signal.alarm(0)
    notes.write_text(json.dumps(problems), encoding="utf-8")
    return problems


# ---- berth's side -------------------------------------------------------------------------------

def write_ours(source, output, way):
    settings, is_divided = WAYS[way]
    options = ["--max-shard-size", LIMIT] if is_divided else []
    if settings is None:
        lib.berth("dequantize", source, output, *options, "-q")
    else:
        lib.quantize(source, output, settings, *options)


def shards_of(path):
    """Shard of every tensor."""
    index = Path(path) / "model.safetensors.index.json"
    if not index.exists():
        return {}
    return json.loads(index.read_text(encoding="utf-8"))["weight_map"]


def differences(ours, theirs, way):
    """What kinds of things differ, with an example of each."""
    differing = lib.differing_files(ours, theirs)
    if way == "plain":  # without --dtype berth leaves the configs inside as they are
        differing = [name for name in differing if name != "config.json"]
    if not differing:
        return {}
    kinds = {}
    one, other = lib.tensors_of(ours), lib.tensors_of(theirs)
    if one.keys() != other.keys():
        kinds["names"] = sorted(one.keys() ^ other.keys())[:6]
    bytes_differ = [name for name in sorted(one.keys() & other.keys())
                    if one[name].dtype != other[name].dtype or one[name].shape != other[name].shape
                    or lib.bytes_of(one[name]) != lib.bytes_of(other[name])]
    if bytes_differ:
        kinds["bytes"] = bytes_differ[:6]
    if "config.json" in differing:
        kinds["config"] = config_differences(lib.config_of(ours), lib.config_of(theirs))
    if not kinds and shards_of(ours) != shards_of(theirs):
        kinds["shards"] = sorted(name for name, shard in shards_of(theirs).items()
                                 if shards_of(ours).get(name) != shard)[:6]
    return kinds or {"files": differing[:6]}


def config_differences(ours, theirs, path=""):
    """Members that differ, dotted; "order" when only the text does."""
    found = []
    for key in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(key, "absent"), theirs.get(key, "absent")
        if isinstance(one, dict) and isinstance(other, dict):
            found += config_differences(one, other, f"{path}{key}.")
        elif one != other:
            found.append(f"{path}{key}: {one!r} not {other!r}"[:100])
    return found if found or path else ["order"]


def reason_for(name, kinds):
    """Why a difference is known; None: it is not."""
    for known, classes, reason in EXPECTED:
        if kinds <= set(known.split()) and any(
                name.startswith(entry[:-1]) if entry.endswith("*") else name == entry
                for entry in classes.split()):
            return reason
    return None


def compare(name, way, folder, work):
    what = f"{name} {way}"
    try:
        write_ours(folder / "source", work / f"our-{way}", way)
        found = differences(work / f"our-{way}", folder / way, way)
    except Exception as problem:  # pylint: disable=broad-except
        found = {"fails": str(problem).replace("\n", " ")[-300:]}
    if not found:
        return t.check(True, what)
    reason = reason_for(name, set(found))
    if reason is not None:
        print(f"known: {what}: {', '.join(found)}: {reason}")
        return t.check(True, what)
    return t.check(False, f"{what}: {found}")


def compare_class(name, keep):
    with lib.folder() as place:
        folder = Path(keep or place) / name
        problems = theirs_of(name, folder)
        if "source" in problems:
            t.skip(f"{name}: not made: {problems['source']}")
            return
        for way in WAYS:
            if way in problems:
                t.skip(f"{name} {way}: not written: {problems[way]}")
            else:
                compare(name, way, folder, Path(place))


def chosen_classes(arguments):
    if arguments.classes:
        return arguments.classes
    names = class_names()
    if arguments.all:
        number, count = map(int, arguments.part.split("/"))
        return names[number - 1::count]
    return names[::max(len(names) // arguments.sample, 1)][:arguments.sample]


parser = argparse.ArgumentParser()
parser.add_argument("--all", action="store_true")
parser.add_argument("--sample", type=int, default=SAMPLE)
parser.add_argument("--part", default="1/1")
parser.add_argument("--keep")
parser.add_argument("classes", nargs="*")
signal.signal(signal.SIGALRM, stop)
given = parser.parse_args()
for chosen in chosen_classes(given):
    compare_class(chosen, given.keep)
sys.stdout.flush()
t.end()
