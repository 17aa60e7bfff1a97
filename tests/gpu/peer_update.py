# SPDX-License-Identifier: Apache-2.0
"""What an update by bitsandbytes' AdamW with states of 8 bits takes on this GPU: one line of JSON,

    {"bitsandbytes": "0.49.2", "adamw8_134M_us": 3673.1}

134 M parameters and their gradients as bf16; the median of 20 steps, by the GPU's clock, after
five that are not counted: the first makes the states.
"""
import json
import statistics

import bitsandbytes
import torch

COUNT = 1 << 27
WARM_UP = 5
STEPS = 20


def step_us(optimizer):
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    optimizer.step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def random_values():
    return (torch.randn(COUNT, device="cuda") * 0.02).to(torch.bfloat16)


def main():
    torch.manual_seed(1)
    parameter = torch.nn.Parameter(random_values())
    parameter.grad = random_values()
    optimizer = bitsandbytes.optim.AdamW8bit([parameter])
    times = [step_us(optimizer) for _ in range(WARM_UP + STEPS)]
    print(json.dumps({"bitsandbytes": bitsandbytes.__version__,
                      "adamw8_134M_us": statistics.median(times[WARM_UP:])}))


if __name__ == "__main__":
    main()
