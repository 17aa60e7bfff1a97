# SPDX-License-Identifier: Apache-2.0
"""What transformers needs to load a checkpoint to this GPU, as NF4 with double quantization: one
line of JSON, with the names that record_bnb.py has,

    peer_load.py MODEL
    {"from_pretrained_nf4_dq_first": {"seconds": 9.1, "GBps": 0.8, "peak_gpu_bytes": 5000000000},
     "from_pretrained_nf4_dq_second": {...}}

The first load of a process imports and sets up what both need. The second finds all files in the
page cache; the first finds them there if they have been read before.
"""
import glob
import json
import os
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

import torch  # noqa: E402
import transformers  # noqa: E402


def load(folder, size):
    settings = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=settings, device_map={"": 0})
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    assert model.is_quantized
    return {"seconds": seconds, "GBps": size / seconds / 1e9,
            "peak_gpu_bytes": torch.cuda.max_memory_allocated()}


def main():
    folder = sys.argv[1]
    size = sum(os.path.getsize(file) for file in glob.glob(folder + "/*.safetensors"))
    transformers.logging.disable_progress_bar()
    torch.zeros(1, device="cuda")
    print(json.dumps({"transformers": transformers.__version__,
                      "from_pretrained_nf4_dq_first": load(folder, size),
                      "from_pretrained_nf4_dq_second": load(folder, size)}))


main()
