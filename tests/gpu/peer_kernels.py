# SPDX-License-Identifier: Apache-2.0
"""What bitsandbytes' kernels for NF4 take on this GPU: one line of JSON, with the names that
record_bnb.py has,

    {"bitsandbytes": "0.50.2", "8192x28672": {"quantize_nf4_us": 700.1, ..., "nf4_m1_us": 55.2}}

Medians of 30 rounds by the GPU's clock. Four weights take turns, so that none is in the cache; a
round is eight calls in a graph, which leaves Python out of the time (or one after the other, where
a call cannot be part of a graph: the names of those are listed).
"""
import json
import statistics

import bitsandbytes
import torch
from bitsandbytes import functional

ROWS, COLUMNS = 8192, 28672
WEIGHTS, CALLS = 4, 8
ROUNDS = 30
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)

without_graph = []


def repeat(name, call):
    """What does CALLS calls, each with the next weight."""
    def plain():
        for i in range(CALLS):
            call(i % WEIGHTS)

    plain()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plain()
        return graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
        without_graph.append(name)
        return plain


def call_us(name, call):
    rounds = repeat(name, call)
    times = []
    for _ in range(5 + ROUNDS):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        rounds()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    return round(statistics.median(times[5:]), 2)


def main():
    torch.manual_seed(1)
    weights = [(torch.randn(ROWS, COLUMNS, device="cuda") * 0.02).to(torch.bfloat16)
               for _ in range(WEIGHTS)]
    stored = [functional.quantize_4bit(w, quant_type="nf4") for w in weights]
    times = {
        "quantize_nf4_us": call_us(
            "quantize", lambda i: functional.quantize_4bit(weights[i], quant_type="nf4")),
        "quantize_nf4_dq_us": call_us(
            "quantize_dq", lambda i: functional.quantize_4bit(weights[i], quant_type="nf4",
                                                              compress_statistics=True)),
        "dequantize_nf4_us": call_us(
            "dequantize", lambda i: functional.dequantize_4bit(*stored[i])),
    }
    del weights
    for count in COUNTS:
        inputs = torch.randn(count, COLUMNS, device="cuda", dtype=torch.bfloat16)
        times[f"nf4_m{count}_us"] = call_us(
            f"m{count}",
            lambda i, x=inputs: bitsandbytes.matmul_4bit(x, stored[i][0].t(), stored[i][1]))
    print(json.dumps({"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__,
                      f"{ROWS}x{COLUMNS}": times, "without_graph": without_graph}))


with torch.no_grad():
    main()
