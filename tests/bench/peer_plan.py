# SPDX-License-Identifier: Apache-2.0
"""Infers the device map of a model of Llama-3-70B's shape, on the meta device.

Prints the median seconds of the inference alone: neither imports nor the empty model.
"""
import statistics
import time

import torch
from accelerate.utils import infer_auto_device_map
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    config = LlamaConfig(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                         num_attention_heads=64, num_key_value_heads=8,
                         vocab_size=128256, tie_word_embeddings=False)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    budgets = {i: "40GiB" for i in range(8)} | {"cpu": "64GiB"}
    samples = []
    for _ in range(7):
        begin = time.perf_counter()
        device_map = infer_auto_device_map(model, max_memory=budgets,
                                           no_split_module_classes=["LlamaDecoderLayer"])
        samples.append(time.perf_counter() - begin)
        assert len(device_map) > 4
    print(statistics.median(samples))


main()
