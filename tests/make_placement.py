#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/placement/ from the recorded device maps.

    tests/make_placement.py SHARED          SHARED holds spec/ and golden/
    tests/make_placement.py SHARED --check  exit 1 when the files differ from these

The formats are described at the head of tests/placed.h. Checkpoints of the models of
placement_vectors.json are made only where transformers is installed (tests/interop/venv.sh
models): vector_models.txt stays as it is elsewhere.
"""
import gzip
import json
import os
import re
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "placement")


# ------------------------------------------------------------------------ maps

def runs(names):
    """layers.0 layers.1 layers.2 -> layers.0..2, in the order given."""
    out = []
    for name in names:
        match = re.fullmatch(r"(.*\.|)(\d+)", name)
        if match and out and out[-1][0] == match[1] and out[-1][2] + 1 == int(match[2]):
            out[-1][2] += 1
        elif match:
            out.append([match[1], int(match[2]), int(match[2])])
        else:
            out.append([name, None, None])
    for prefix, first, last in out:
        if first is None:
            yield prefix or "-"
        elif first == last:
            yield f"{prefix}{first}"
        else:
            yield f"{prefix}{first}..{last}"


def number(value):
    return repr(value) if isinstance(value, float) and value != int(value) else str(int(value))


def pairs(mapping):
    return ",".join(f"{k}={number(v)}" for k, v in mapping.items())


def memory(mapping):
    return ",".join(f"{k}={v}" for k, v in mapping.items())


def placed(device_map, word="on"):
    devices = {}
    for name, device in device_map.items():
        devices.setdefault(str(device), []).append(name)
    for device, names in devices.items():
        yield f"{word} {device} " + " ".join(runs(names))


def quant_words(record):
    arguments = record.get("quant_args", {})
    words = [{"none": "none", "bnb-4bit": "nf4", "bnb-8bit": "int8"}[record["quant"]]]
    if arguments.get("bnb_4bit_use_double_quant"):
        words.append("double")
    if arguments.get("llm_int8_enable_fp32_cpu_offload"):
        words.append("cpu-offload")
    if "llm_int8_skip_modules" in arguments:
        words.append("skip=" + ",".join(arguments["llm_int8_skip_modules"]))
    return " ".join(words)


def map_record(record, name, era, model):
    yield f"map {name} {era} {model}"
    yield f"load {record['dtype']} {record['mode']} {quant_words(record)}"
    yield "memory " + memory(record["max_memory"])
    if "total_bytes" in record:
        yield "total " + number(record["total_bytes"])
    if "not_converted" in record:
        yield "skips " + " ".join(record["not_converted"])
    for key in ("balanced", "budget", "minimum"):
        # What was not changed is not written again.
        if key in record and not (key == "budget" and record["budget"] == record.get("balanced")):
            yield f"{key} " + pairs(record[key])
    if "device_bytes" in record:
        yield "bytes " + pairs(record["device_bytes"])
    if "buffer_warning" in record:
        yield f"buffers {record['buffer_warning']}"
    if "error" in record:
        yield f"error {record['error']['class']} {record['error']['text'][:20]}"
    yield from placed(record.get("device_map", record.get("planned_map", {})))
    yield ""


# ---------------------------------------------------------------------- models

def tensor(entry, default, mark):
    name, dtype, shape = entry[:3]
    kind = "" if dtype == default else ":" + dtype
    return f"{mark}{name}{kind}=" + ("x".join(map(str, shape)) or "-")


def node_lines(node, name, depth, default):
    words = [" " * depth + (name or "-"), node.get("c", "-")]
    words += [tensor(t, default, "") for t in node.get("p", []) + node.get("t", [])]
    words += [tensor(t, default, "~" if t[3] else "!") for t in node.get("b", [])]
    yield " ".join(words)
    for child_name, child in node.get("ch", []):
        yield from node_lines(child, child_name, depth + 1, default)


def model_lines(era, name, model):
    yield f"model {era} {name}"
    yield f"class {model['arch']}"
    yield "config " + json.dumps(model["config"], separators=(",", ":"))
    yield f"dtype {model['dtype']}"
    yield "no_split " + " ".join(model["no_split"])
    if isinstance(model["ties"], dict):
        for target, source in model["ties"].items():
            yield f"tie {source} {target}"
    else:
        for group in model["ties"]:
            yield "tie " + " ".join(group)
    for key in ("no_placement_params", "keep_in_fp32", "keep_in_fp32_strict"):
        if key in model:
            yield f"{key} " + " ".join(model[key])
    yield "tree"
    yield from node_lines(model["tree"], "", 0, model["dtype"])
    if "checkpoint" in model:
        yield "checkpoint"
        yield from node_lines(model["checkpoint"], "", 0, model["dtype"])
    yield ""


# ----------------------------------------------------------------- small trees

def small_lines(node, name, depth):
    words = [" " * depth + (name or "-"), node["c"]]
    words += [f"{n}#{i}={number(b)}" for n, b, i in node.get("p", [])]
    words += [f"~{n}#{i}={number(b)}" for n, b, i in node.get("b", [])]
    yield " ".join(words)
    for child_name, child in node.get("ch", []):
        yield from small_lines(child, child_name, depth + 1)


def small_record(index, record):
    yield f"small {index}"
    yield "no_split " + " ".join(record["no_split"])
    for group in record["ties"]:
        yield "tie " + " ".join(group)
    yield "memory " + pairs(record["budgets"])
    yield "total " + number(record["total"])
    for key in ("balanced_accelerate", "balanced_tf5"):
        value = record[key]
        if "error" in value:
            yield f"{key} !{value['error']}"
        elif value != record["budgets"]:
            yield f"{key} " + pairs(value)
    for key in ("map_accelerate", "map_tf5", "map_accelerate_fallback"):
        if key in record and "error" in record[key]:
            yield f"{key} !{record[key]['error']}"
        elif key == "map_tf5" and record[key] == record["map_accelerate"]:
            yield f"{key} ="
        elif key in record:
            yield from placed(record[key], key)
    yield "tree"
    yield from small_lines(record["tree"], "", 0)
    yield ""


# ---------------------------------------------------- checkpoints of the vectors

def published(name, shape):
    """Tensors of transformers 5 under the names and in the shapes of published files."""
    moe = re.match(r"(.*\.)mlp\.(experts\.)(gate_up_proj|down_proj)$", name)
    is_mixtral = ".mlp." in name and published.model_type == "mixtral"
    if moe:
        experts, rows, columns = shape
        home = moe[1] + ("block_sparse_moe." if is_mixtral else "mlp.")
        words = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
        for expert in range(experts):
            if moe[3] == "down_proj":
                yield f"{home}experts.{expert}.{words[2]}.weight", [rows, columns]
            else:
                yield f"{home}experts.{expert}.{words[0]}.weight", [rows // 2, columns]
                yield f"{home}experts.{expert}.{words[1]}.weight", [rows // 2, columns]
    elif published.model_type == "gpt_neox" and name == "lm_head.weight":
        yield "embed_out.weight", shape
    elif is_mixtral:
        yield name.replace(".mlp.", ".block_sparse_moe."), shape
    else:
        yield name, shape


def nested(tensors, default):
    root = {"t": [], "ch": {}}
    for name, (dtype, shape) in tensors.items():
        *path, last = name.split(".")
        node = root
        for part in path:
            node = node["ch"].setdefault(part, {"t": [], "ch": {}})
        node["t"].append([last, dtype, shape])

    def folded(node):
        children = []
        for name, child in node["ch"].items():
            child = folded(child)
            if (children and name.isdigit() and children[-1][0].isdigit()
                    and children[-1][2] == child and int(name) == int(children[-1][1]) + 1):
                children[-1][1] = name
            else:
                children.append([name, name, child])
        return {"t": node["t"], "ch": [
            [first if first == last else f"{first}..{last}", child]
            for first, last, child in children]}
    return folded(root)


def vector_model(record, name):
    import torch
    import transformers
    config = dict(record["config"])
    published.model_type = config.pop("model_type")
    config = transformers.AutoConfig.for_model(published.model_type, **config)
    with torch.device("meta"):
        model = getattr(transformers, record["arch"])(config)
    tensors = {}
    for key, value in model.state_dict().items():
        dtype = str(value.dtype)[6:] if not value.is_floating_point() else record["dtype"]
        if key not in model.all_tied_weights_keys:
            for other, shape in published(key, list(value.shape)):
                tensors[other] = (dtype, shape)
    yield f"model - {name}"
    yield f"class {record['arch']}"
    yield "config " + json.dumps(record["config"], separators=(",", ":"))
    yield f"dtype {record['dtype']}"
    yield "tree"
    yield "- -"
    yield "checkpoint"
    yield from node_lines(nested(tensors, record["dtype"]), "", 0, record["dtype"])
    yield ""


def vector_files(vectors):
    names = {}
    lines = []
    models = []
    for index, record in enumerate(vectors["real_models"]):
        key = record["arch"] + json.dumps(record["config"], sort_keys=True)
        if key not in names:
            names[key] = f"v{len(names)}"
            models.append((record, names[key]))
        era = {"tf5": "hf5.14", "tf4": "hf4"}[record["planner"]]
        lines += map_record(record, f"vector{index}", era, names[key])
    yield "vectors.txt", lines
    try:
        import transformers  # noqa: F401
    except ImportError:
        return
    yield "vector_models.txt", [l for model in models for l in vector_model(*model)]


# ------------------------------------------------------------------------ files

def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        return json.load(file)


def files(shared):
    real = read(f"{shared}/golden/placement_real.json")["real_models"]
    models = read(f"{shared}/golden/placement_models.json.gz")
    vectors = read(f"{shared}/spec/placement_vectors.json")
    lines = []
    for era in ("hf5", "hf4"):
        for name, model in models[era].items():
            lines += model_lines(era, name, model)
    yield "models.txt", lines
    lines = []
    for record in real:
        lines += map_record(record, record["id"], record["era"], record["model"])
    yield "maps.txt", lines
    lines = []
    for index, record in enumerate(vectors["small_trees"]):
        lines += small_record(index, record)
    yield "small.txt", lines
    yield from vector_files(vectors)


def main():
    is_check = "--check" in sys.argv
    differs = False
    for name, lines in files(sys.argv[1]):
        path = os.path.join(HERE, name)
        text = "\n".join(lines)
        if is_check:
            with open(path) as file:
                differs |= file.read() != text
        else:
            with open(path, "w") as file:
                file.write(text)
    return differs


if __name__ == "__main__":
    sys.exit(main())
