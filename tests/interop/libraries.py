# SPDX-License-Identifier: Apache-2.0
"""What the tests of quantization share: transformers and bitsandbytes on a CPU, and berth.

Models are loaded and saved by the libraries themselves. Two things of bitsandbytes' CPU code are
put aside, because they fail on the libraries' own files, too: the packing for AVX512-BF16 refuses
matrices that are no multiple of 32, and the compiled dequantization is wrong where a block goes on
in the next row. Its path in plain torch does both. `compiled()` gives the library as it comes.
Rows of int8 are what the library makes of them on a GPU: berth's codes are those everywhere.
"""
import contextlib
import gzip
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path


def enter():
    """Goes on in the environment with the libraries, or ends the program as skipped."""
    python = os.environ.get("BERTH_MODELS_PYTHON", "")
    if not python:
        print("skipped: no Python environment with transformers and bitsandbytes")
        print("t: 0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    if Path(python).parent.parent != Path(sys.prefix):
        os.execv(python, [python] + sys.argv)


enter()
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TORCHDYNAMO_DISABLE="1",
                  HF_HUB_DISABLE_PROGRESS_BARS="1", BITSANDBYTES_NOWELCOME="1")
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
import transformers  # noqa: E402
from bitsandbytes import functional as bnb  # noqa: E402
from bitsandbytes.backends.default import ops as plain_torch  # noqa: E402
from bitsandbytes.backends.utils import _get_4bit_code as table_of  # noqa: E402
from bitsandbytes.nn import Linear4bit, Linear8bitLt, Params4bit  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)  # others run beside
torch.set_grad_enabled(False)

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT.parent / "shared" / "golden" / "quant"
WAYS = {  # what a person asks of the library
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nf4_dq": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
               "bnb_4bit_use_double_quant": True},
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "fp4_dq": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4",
               "bnb_4bit_use_double_quant": True},
    "int8": {"load_in_8bit": True},
}


# ---- int8 codes as on a GPU ---------------------------------------------------------------------

def recorded_deltas():
    """By how many ulps a GPU's reciprocal lies beside the rounded one: two bits a mantissa."""
    with gzip.open(ROOT / "tests/data/gpu/h200/rcp23.bin.gz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


DELTAS = recorded_deltas()
rounded_rows = bnb.int8_vectorwise_quant


def reciprocal(values):
    """Of float32 from 2^-126 to 2^126, zero and infinity."""
    mantissas = (values.view(torch.int32) & 0x7FFFFF).long()
    deltas = (DELTAS[mantissas >> 2].long() >> (2 * (mantissas & 3))) & 3
    ulps = torch.tensor([0, 1, -1], dtype=torch.int32)[deltas]
    return ((1 / values).view(torch.int32) + ulps).view(torch.float32)


def gpu_rows(rows, threshold=0.0):
    """int8_vectorwise_quant(), but for the reciprocal."""
    codes, maxima, columns = rounded_rows(rows, threshold)
    values = rows.reshape(-1, rows.shape[-1])
    scales = 127 * reciprocal(maxima.reshape(-1, 1))
    own = torch.nan_to_num(torch.round(values.to(torch.float16).float() * scales), 0, 0, 0)
    if threshold > 0:
        own[values.abs() >= threshold] = 0
        if columns is not None:
            own[:, columns] = 0
    return own.to(torch.int8).view_as(codes), maxima, columns


bnb.int8_vectorwise_quant = gpu_rows


# ---- bitsandbytes' dequantization in plain torch ------------------------------------------------

def dequantize_plainly(packed, absmax, blocksize, quant_type, shape, dtype):
    return plain_torch._dequantize_4bit_compute(
        packed.contiguous().view(torch.uint8).reshape(-1), absmax.float(),
        table_of(quant_type, packed.device), blocksize, shape, dtype)


class Plainly:
    """The registration that replaces the compiled code, while it lives."""
    registration = None

    @classmethod
    def choose(cls, chosen):
        if chosen and cls.registration is None:
            cls.registration = torch.library.Library("bitsandbytes", "IMPL")
            with warnings.catch_warnings():
                cls.registration.impl("dequantize_4bit", dequantize_plainly, "CPU",
                                      allow_override=True)
        elif not chosen and cls.registration is not None:
            cls.registration._destroy()
            cls.registration = None


Plainly.choose(True)


@contextlib.contextmanager
def compiled():
    """bitsandbytes as it comes."""
    Plainly.choose(False)
    yield
    Plainly.choose(True)


# ---- counting -----------------------------------------------------------------------------------

class Tally:
    passed = failed = skipped = 0

    def check(self, held, what):
        """Counts; says what did not hold."""
        if held:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}", flush=True)
        return held

    def close_to(self, actual, wanted, tolerance, what):
        distance = float((actual.double() - wanted.double()).abs().max())
        return self.check(distance <= tolerance,
                          f"{what}: {distance:.3g} away, not {tolerance:.3g}")

    @contextlib.contextmanager
    def part(self, what):
        """A part that raises is one failure."""
        try:
            yield
        except Exception as problem:  # pylint: disable=broad-except
            text = str(problem).strip().replace("\n", " ")
            self.check(False, f"{what}: {type(problem).__name__}: {text[-600:]}")

    def skip(self, why):
        self.skipped += 1
        print(f"skipped: {why}", flush=True)

    def end(self):
        print(f"t: {self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        sys.exit(1 if self.failed else 0)


# ---- berth and files ----------------------------------------------------------------------------

def berth(*arguments):
    """Runs the tool; returns its seconds."""
    begin = time.perf_counter()
    done = subprocess.run([os.environ["BERTH"], *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        words = " ".join(map(str, arguments))
        raise RuntimeError(f"berth {words}: {done.returncode}: {done.stdout.decode()}")
    return seconds


def arguments_of(settings):
    """The library's settings as berth's options."""
    arguments = []
    for key, value in settings.items():
        if key == "load_in_8bit":
            arguments += ["--type", "int8"]
        elif key == "bnb_4bit_quant_type":
            arguments += ["--type", value]
        elif key == "bnb_4bit_use_double_quant":
            arguments += ["--double-quant"]
        elif key == "bnb_4bit_quant_storage":
            arguments += ["--storage", value]
        elif key == "bnb_4bit_compute_dtype":
            arguments += ["--compute-dtype", value]
        elif key == "llm_int8_skip_modules":
            arguments += ["--skip-modules", ",".join(value)]
        elif key != "load_in_4bit":
            raise KeyError(key)
    return arguments


def quantize(source, output, settings, *options):
    return berth("quantize", source, output, *arguments_of(settings), *options, "-q")


def dequantize(source, output, dtype):
    return berth("dequantize", source, output, "--dtype", dtype, "-q")


def folder():
    return tempfile.TemporaryDirectory(prefix="berth-interop.")


def config_of(path):
    with open(Path(path) / "config.json", encoding="utf-8") as file:
        return json.load(file)


def tensors_of(path):
    """Every tensor of a checkpoint."""
    tensors = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def bytes_of(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def digest(tensor):
    return hashlib.sha256(bytes_of(tensor)).hexdigest()


def differing_files(ours, theirs):
    """Names of files that only one has or that differ; berth's manifest is its own."""
    ours, theirs = Path(ours), Path(theirs)
    names = {p.name for p in [*ours.iterdir(), *theirs.iterdir()]} - {"berth.manifest.json"}
    return sorted(name for name in names
                  if not (ours / name).is_file() or not (theirs / name).is_file()
                  or (ours / name).read_bytes() != (theirs / name).read_bytes())


def rms(difference):
    return float(difference.double().pow(2).mean().sqrt())


def differing_tensors(ours, theirs):
    """Names of tensors that differ, statistics of double quantization left out."""
    one, other = tensors_of(ours), tensors_of(theirs)
    nested = {name[:-len(".nested_absmax")] for name in other if name.endswith(".nested_absmax")}
    own = {weight + end for weight in nested
           for end in (".absmax", ".nested_absmax", ".quant_state.bitsandbytes__nf4",
                       ".quant_state.bitsandbytes__fp4")}
    return sorted(name for name in one.keys() | other.keys()
                  if name not in one or name not in other
                  or (name not in own and bytes_of(one[name]) != bytes_of(other[name])))


# ---- models -------------------------------------------------------------------------------------

class NotClean(Exception):
    """The library loads a checkpoint with remarks."""


def load(path, settings=None, dtype="auto", packs=False, **options):
    """The library's own from_pretrained; nothing may be missing, left over or of another shape.

    `packs` leaves the choice of packing weights for the processor to the library.
    """
    if settings is not None:
        options["quantization_config"] = transformers.BitsAndBytesConfig(**settings)
    class_ = getattr(transformers, config_of(path)["architectures"][0])
    model, remarks = class_.from_pretrained(path, dtype=dtype, attn_implementation="eager",
                                            output_loading_info=True, **options)
    remarks = {kind: found for kind, found in remarks.items() if found}
    if remarks:
        raise NotClean(f"{path}: {remarks}")
    for module in model.modules():
        if isinstance(module, Linear4bit) and not packs:
            module.support_avx512bf16_for_cpu = False
    return model.eval()


def quantized_modules(model):
    """Name of the weight -> module."""
    return {f"{name}.weight": module for name, module in model.named_modules()
            if isinstance(module, (Linear4bit, Linear8bitLt))}


def in_float32(model):
    """Everything computes in float32, 4-bit weights too."""
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.dtype in (torch.bfloat16, torch.float16) and not isinstance(tensor, Params4bit):
            tensor.data = tensor.data.float()
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.compute_dtype = torch.float32
    return model


def logits(model, ids=None):
    """The output of one forward pass on these tokens, or on sixteen that every model has."""
    if ids is None:
        vocabulary = model.config.get_text_config().vocab_size
        ids = (torch.arange(16) * 37 + 11) % (vocabulary - 4) + 3
        ids = ids.reshape(1, 16)
    inputs = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids[:, :9]
    result = model(**inputs)
    return (result.logits if hasattr(result, "logits") else result.last_hidden_state).float()


def library_values(module, dtype):
    """What bitsandbytes makes of a quantized weight."""
    weight = module.weight
    if isinstance(module, Linear8bitLt):
        rows = weight.SCB if weight.SCB is not None else module.state.SCB
        return (weight.data.float() * rows.float().view(-1, 1) * (1 / 127)).to(dtype)
    state = weight.quant_state
    state.dtype, kept = dtype, state.dtype
    values = bnb.dequantize_4bit(weight.data, state)
    state.dtype = kept
    return values
