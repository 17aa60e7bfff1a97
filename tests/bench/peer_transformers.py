# SPDX-License-Identifier: Apache-2.0
"""transformers and bitsandbytes load a model and quantize it as it comes.

    peer_transformers.py FOLDER [nf4_dq|nf4|int8]

One line: seconds of from_pretrained, and by how many MiB the process had grown at its peak.
"""
import json
import os
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

import torch  # noqa: E402
import transformers  # noqa: E402
import bitsandbytes  # noqa: E402,F401 pylint: disable=unused-import

WAYS = {"nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        "nf4_dq": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                   "bnb_4bit_use_double_quant": True},
        "int8": {"load_in_8bit": True}}


def status(key):
    """MiB of a line of /proc/self/status."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def main():
    folder, way = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "nf4_dq"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.logging.disable_progress_bar()
    with open(folder + "/config.json", encoding="utf-8") as file:
        class_ = getattr(transformers, json.load(file)["architectures"][0])
    settings = transformers.BitsAndBytesConfig(**WAYS[way])
    before = status("VmRSS:")
    begin = time.perf_counter()
    model = class_.from_pretrained(folder, quantization_config=settings, dtype="auto")
    seconds = time.perf_counter() - begin
    assert model.is_quantized
    print(f"{seconds:.3f} {status('VmHWM:') - before:.0f}")


main()
