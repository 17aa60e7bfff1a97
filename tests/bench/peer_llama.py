# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp needs to quantize a Llama to Q4_0, and to decode with the result.

    peer_llama.py quantize|decode FOLDER SCRATCH

FOLDER is the benchmark's own model; SCRATCH gets it as f16.gguf and as q4_0.gguf, 2.9 GB that are
left there. Prints one line of JSON: the median and every sample, in seconds for the whole model
(as llama-quantize does it: output.weight becomes Q6_K), or in tokens a second, one after the other.
The source is in the page cache, threads are as many as cores.
"""
import ctypes
import glob
import json
import os
import re
import statistics
import struct
import sys
import time

import llama_cpp
import numpy

ROUNDS = 5
TOKENS = 64
ALIGNMENT = 32
F32, F16 = 0, 1  # of ggml
UINT32, FLOAT32, STRING = 4, 6, 8  # of GGUF's metadata

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
               "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
               "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


# --------------------------------------------------------------------------------------- GGUF

def tensors_of(folder):
    """Every tensor of every shard: name, and its BF16 values mapped from the file."""
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for name, about in header.items():
            assert about["dtype"] == "BF16", name
            yield name, numpy.memmap(path, "<u2", "r", 8 + length + about["data_offsets"][0],
                                     tuple(about["shape"]))


def renamed(name):
    """As llama.cpp calls it."""
    stem = name.removesuffix(".weight")
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    if layer:
        return f"blk.{layer[1]}.{LAYER_NAMES[layer[2]]}.weight"
    return NAMES[stem] + ".weight"


def turned(name, values, config):
    """Rows of Q and K in the order of llama.cpp's rotation: neighbours are a pair."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    part = name.split(".")[-2]
    if part not in heads:
        return values
    rows, columns = values.shape
    count = config[heads[part]]
    return (values.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2)
            .reshape(rows, columns))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def metadata(config):
    heads, wide = config["num_attention_heads"], config["hidden_size"]
    values = {"general.architecture": "llama", "general.file_type": 1,
              "tokenizer.ggml.model": "none",
              "llama.vocab_size": config["vocab_size"], "llama.context_length": 2048,
              "llama.embedding_length": wide, "llama.block_count": config["num_hidden_layers"],
              "llama.feed_forward_length": config["intermediate_size"],
              "llama.rope.dimension_count": wide // heads, "llama.attention.head_count": heads,
              "llama.attention.head_count_kv": config["num_key_value_heads"],
              "llama.attention.layer_norm_rms_epsilon": config.get("rms_norm_eps", 1e-6)}
    packed = b""
    for key, value in values.items():
        packed += text(key)
        if isinstance(value, str):
            packed += struct.pack("<I", STRING) + text(value)
        elif isinstance(value, int):
            packed += struct.pack("<II", UINT32, value)
        else:
            packed += struct.pack("<If", FLOAT32, value)
    return len(values), packed


def padding(position):
    return b"\0" * (-position % ALIGNMENT)


def write_gguf(folder, path):
    with open(folder + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    tensors = list(tensors_of(folder))
    pairs, packed = metadata(config)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), pairs) + packed
    offset = 0
    for name, values in tensors:
        is_matrix = values.ndim == 2
        head += text(renamed(name)) + struct.pack("<I", values.ndim)
        head += struct.pack(f"<{values.ndim}Q", *reversed(values.shape))
        head += struct.pack("<IQ", F16 if is_matrix else F32, offset)
        offset += values.size * (2 if is_matrix else 4)
        offset += -offset % ALIGNMENT
    with open(path, "wb") as file:
        file.write(head + padding(len(head)))
        for name, values in tensors:
            single = (turned(name, values, config).astype("<u4") << 16).view("<f4")
            file.write((single.astype("<f2") if values.ndim == 2 else single).tobytes())
            file.write(padding(file.tell()))


# ------------------------------------------------------------------------------------ measuring

def measured(what, samples, **more):
    print(json.dumps({what: round(statistics.median(samples), 4),
                      "samples": [round(sample, 4) for sample in samples],
                      "threads": cores(), **more}))


def cores():
    return len(os.sched_getaffinity(0))


def quantize_once(source, target):
    """Seconds."""
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.nthread = cores()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    begin = time.perf_counter()
    failed = llama_cpp.llama_model_quantize(source.encode(), target.encode(),
                                            ctypes.byref(settings))
    seconds = time.perf_counter() - begin
    if failed:
        sys.exit("llama_model_quantize failed")
    return seconds


def read_through(path):
    """Into the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def quantize(source, target):
    samples = []
    for _ in range(ROUNDS):
        if os.path.exists(target):
            os.remove(target)
        read_through(source)
        samples.append(quantize_once(source, target))
    measured("seconds", samples, source_bytes=os.path.getsize(source),
             bytes=os.path.getsize(target))


def decode_once(context, vocabulary):
    """Tokens a second, from an empty cache of keys and values."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    begin = time.perf_counter()
    for i in range(TOKENS):
        token = (llama_cpp.llama_token * 1)(i * 7919 % vocabulary)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(token, 1)):
            sys.exit("llama_decode failed")
        llama_cpp.llama_get_logits(context)
    return TOKENS / (time.perf_counter() - begin)


def decode(path):
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = 4 * TOKENS
    settings.n_threads = settings.n_threads_batch = cores()
    model = llama_cpp.llama_model_load_from_file(path.encode(),
                                                 llama_cpp.llama_model_default_params())
    context = llama_cpp.llama_init_from_model(model, settings) if model else None
    if not context:
        sys.exit(path + " cannot be loaded")
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    decode_once(context, vocabulary)
    samples = [decode_once(context, vocabulary) for _ in range(ROUNDS)]
    whole = llama_cpp.llama_model_size(model)
    table = vocabulary * llama_cpp.llama_model_n_embd(model) * 18 // 32  # a row of it a token
    measured("tokens_per_second", samples, bytes=whole, token_bytes=whole - table)


def main():
    what, folder, scratch = sys.argv[1:]
    source, target = scratch + "/f16.gguf", scratch + "/q4_0.gguf"
    llama_cpp.llama_backend_init()
    if not os.path.exists(source):
        write_gguf(folder, source)
    if what == "quantize":
        quantize(source, target)
    elif what == "decode":
        if not os.path.exists(target):
            quantize_once(source, target)
        decode(target)
    else:
        sys.exit(__doc__)


main()
