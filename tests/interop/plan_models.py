#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Device maps of real model classes: `berth plan --hf-map` against from_pretrained itself.

    plan_models.py [REQUESTS [SEED [CLASS[:PART=TYPE,...]...]]]

For each class a small random model is saved; then from_pretrained() is called with a mode, a
max_memory and sometimes bitsandbytes, and stopped when it has its map. The same map, or a refusal
of the same kind.
"""
import json
import os
import random
import subprocess
import sys

import libraries as lib
import made
from libraries import torch, transformers

CLASSES = [
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "MixtralForCausalLM", "DeepseekV3ForCausalLM", "GemmaForCausalLM",
    "Gemma2ForCausalLM", "Phi3ForCausalLM", "GPTNeoXForCausalLM", "GPT2LMHeadModel",
    "GPTJForCausalLM", "BloomForCausalLM", "FalconForCausalLM", "OPTForCausalLM",
    "StableLmForCausalLM", "Olmo2ForCausalLM", "GraniteForCausalLM", "CohereForCausalLM",
    "Starcoder2ForCausalLM", "MptForCausalLM", "BertForMaskedLM", "RobertaForMaskedLM",
    "T5ForConditionalGeneration", "BartForConditionalGeneration",
    "WhisperForConditionalGeneration", "MambaForCausalLM",
    # Sub-models of other types than by default.
    "InternVLForConditionalGeneration:text_config=qwen3_moe",
    "LlavaForConditionalGeneration:text_config=mistral,vision_config=pixtral",
    "LlavaForConditionalGeneration:vision_config=vit",
    "PaliGemmaForConditionalGeneration:text_config=gemma2",
    "InstructBlipForConditionalGeneration:text_config=llama",
    "VisionEncoderDecoderModel:encoder=vit,decoder=trocr",
]
TYPES = {"none": None, "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
         "int8": {"load_in_8bit": True}}
t = lib.Tally()


class Stop(Exception):
    """from_pretrained() has its map."""


def stopping(real):
    def get_device_map(*arguments, **words):
        raise Stop(real(*arguments, **words))
    return get_device_map


transformers.modeling_utils._get_device_map = stopping(
    transformers.modeling_utils._get_device_map)


class Request:
    """What is asked of both."""

    def __init__(self, rng, total):
        self.mode = rng.choice(("auto", "balanced", "balanced_low_0", "sequential"))
        self.type = rng.choice(("none", "none", "none", "nf4", "int8"))
        self.memory = {}
        for gpu in range(rng.choice((1, 1, 2, 2, 3))):
            self.memory[gpu] = int(total * rng.choice((0.3, 0.6, 1.2)) * rng.uniform(0.3, 1.5))
        if rng.random() < 0.7:
            self.memory["cpu"] = int(total * rng.uniform(0.2, 3))
        self.is_offloading = self.type != "none" and rng.random() < 0.7

    def theirs(self, class_, folder):
        words = {"device_map": self.mode, "max_memory": dict(self.memory),
                 "dtype": torch.bfloat16}
        if self.type != "none":
            words["quantization_config"] = transformers.BitsAndBytesConfig(
                llm_int8_enable_fp32_cpu_offload=self.is_offloading, **TYPES[self.type])
        try:
            class_.from_pretrained(folder, **words)
        except Stop as stop:
            return dict(stop.args[0])
        except Exception as error:  # what is raised is what is compared
            return 6 if "dispatched on the CPU" in str(error) else 2
        return "no map was made"

    def words(self):
        memory = ",".join(f"{k}={v}" for k, v in self.memory.items())
        return ["--like", "hf5", "--mode", self.mode, "--type", self.type, "--dtype", "bf16",
                "--max-memory", memory] + (["--cpu-offload"] if self.is_offloading else [])

    def ours(self, folder):
        done = subprocess.run([os.environ["BERTH"], "plan", folder, "--hf-map", *self.words()],
                              capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else done.returncode


def compare(name, folder, requests, rng):
    class_ = made.class_of(name)
    model = made.make(name, folder)
    total = 2 * sum(tensor.numel() for tensor in model.parameters())
    del model
    counts = {"maps": 0, "refused": 0}
    for _ in range(requests):
        request = Request(rng, total)
        theirs, ours = request.theirs(class_, folder), request.ours(folder)
        counts["maps" if isinstance(theirs, dict) else "refused"] += 1
        if not t.check(theirs == ours, f"{name} {' '.join(request.words())}"):
            print("    theirs", theirs)
            print("    ours  ", ours)
    print(f"note: {name}: {counts}")


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 20_261_121)
    for name in sys.argv[3:] or CLASSES:
        with t.part(name), lib.folder() as folder:
            compare(name, folder, requests, rng)
    t.end()


if __name__ == "__main__":
    main()
