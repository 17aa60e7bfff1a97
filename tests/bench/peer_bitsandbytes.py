# SPDX-License-Identifier: Apache-2.0
"""What bitsandbytes does on the processor, in G elements/s: one line,

    nf4 RATE fp4 RATE int8 RATE decode RATE

quantization from bf16 (LLM.int8() by way of fp16, as transformers does it) and NF4 back to bf16.
Medians of rounds after one that is not counted, on as many threads as there are cores. Every
result is memory of its own, as a model's weights are: one process in four gets that of the
result before again, still in the cache, and then decodes at some 9 instead of 1.2 to 1.7.
"""
import os
import statistics
import time

import torch
from bitsandbytes import functional

ROWS, COLUMNS = 4096, 4096  # 32 MiB: through memory, as a large model's matrices go
ROUNDS = 5


def rate(work):
    results = [work()]
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        results.append(work())
        seconds.append(time.perf_counter() - begin)
    return ROWS * COLUMNS / statistics.median(seconds) / 1e9


def main():
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    weights = (torch.randn(ROWS, COLUMNS) * 0.02).to(torch.bfloat16)
    packed, state = functional.quantize_4bit(weights, quant_type="nf4")
    rates = {"nf4": rate(lambda: functional.quantize_4bit(weights, quant_type="nf4")),
             "fp4": rate(lambda: functional.quantize_4bit(weights, quant_type="fp4")),
             "int8": rate(lambda: functional.int8_vectorwise_quant(weights.to(torch.float16))),
             "decode": rate(lambda: functional.dequantize_4bit(packed, state))}
    print(" ".join(f"{name} {value:.4f}" for name, value in rates.items()))


with torch.no_grad():
    main()
