# SPDX-License-Identifier: Apache-2.0
"""What bitsandbytes' AdamW with states of 8 bits updates on the processor: G elements/s."""
import os
import statistics
import time

import bitsandbytes
import torch

ELEMENTS = 1 << 24
ROUNDS = 5


def main():
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    parameter = torch.nn.Parameter((torch.randn(ELEMENTS) * 0.5).to(torch.bfloat16))
    parameter.grad = (torch.randn(ELEMENTS) * 0.02).to(torch.bfloat16)
    optimizer = bitsandbytes.optim.AdamW8bit([parameter], lr=1e-3)
    optimizer.step()
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    print(f"{ELEMENTS / statistics.median(seconds) / 1e9:.5f}")


main()
