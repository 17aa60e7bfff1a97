# SPDX-License-Identifier: Apache-2.0
"""What the comparisons of optimizers share: the library's own, torch's and bitsandbytes'."""
import ctypes
import functools
import os
from pathlib import Path

import libraries as lib
from libraries import torch  # first: it goes on in the environment that has the others
import bitsandbytes
from safetensors.torch import load_file

BUILD = Path(os.environ.get("BERTH_BUILD", lib.ROOT / "build"))
RATE = 1e-3
SHAPES = ((512, 512), (17, 241), (1, 4095))  # whole blocks; a last one of 1; states of 32 bits
ADAM, ADAMW, LION, MOMENTUM, RMSPROP, ADAGRAD, ADEMAMIX = range(7)  # berth_update_kind
KINDS = {ADAM: "Adam", ADAMW: "AdamW", LION: "Lion", MOMENTUM: "momentum", RMSPROP: "RMSprop",
         ADAGRAD: "Adagrad", ADEMAMIX: "AdEMAMix"}
# Where decay enters their gradient, what they divide differs: see AsPublished.
BY_ROOT = (RMSPROP, ADAGRAD)
# Published, of 512 x 512 elements and more.
STATE_ATOL, STATE_RTOL, STATES_OUTSIDE = 3e-3, 1e-3, 20
VALUES_32 = {torch.float32: (1e-6, 1e-5), torch.bfloat16: (1e-3, 1e-2),
             torch.float16: (1e-4, 1e-3)}
VALUES_OUTSIDE = 15
MEANS_8 = {torch.float32: (6e-5, 6e-4), torch.bfloat16: (1.7e-4, 1.6e-3),
           torch.float16: (6e-5, 6e-4)}
t = lib.Tally()


# ---- berth's ------------------------------------------------------------------------------------

class Group(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32),
                ("bits", ctypes.c_int32), ("least_8bit", ctypes.c_uint64),
                ("place", ctypes.c_int32), ("has_master", ctypes.c_int32),
                ("is_coupled", ctypes.c_int32), ("rate", ctypes.c_float),
                ("beta1", ctypes.c_float), ("beta2", ctypes.c_float),
                ("epsilon", ctypes.c_float), ("decay", ctypes.c_float),
                ("beta3", ctypes.c_float), ("alpha", ctypes.c_float),
                ("beta3_steps", ctypes.c_uint64), ("alpha_steps", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 6)]


class Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_uint64)),
                ("rank", ctypes.c_uint32), ("dtype", ctypes.c_int32),
                ("values", ctypes.c_void_p), ("sum", ctypes.c_void_p),
                ("device", ctypes.c_uint32), ("group", ctypes.c_uint32),
                ("reserved", ctypes.c_uint64 * 2)]


class Gradient(ctypes.Structure):
    _fields_ = [("values", ctypes.c_void_p), ("dtype", ctypes.c_int32),
                ("reserved32", ctypes.c_int32), ("reserved", ctypes.c_uint64)]


class Optimizer:
    """One parameter "w" of the library's, whose values are a tensor of torch."""

    def __init__(self, values, kind, bits, decay, **settings):
        self.lib = ctypes.CDLL(str(BUILD / "libberth.so"))
        self.lib.berth_dtype_name.restype = ctypes.c_char_p
        self.values, self.context, self.object = values, ctypes.c_void_p(), ctypes.c_void_p()
        self.call("berth_context_create", None, ctypes.byref(self.context))
        self.group = Group()
        if self.lib.berth_optimizer_group_init_sized(
                ctypes.byref(self.group), ctypes.c_size_t(ctypes.sizeof(Group)), kind) != 0:
            raise RuntimeError("no such optimizer")
        self.fill({"bits": bits, "rate": RATE, "decay": decay, **settings})
        self.shape = (ctypes.c_uint64 * values.dim())(*values.shape)
        parameter = Parameter(name=b"w", shape=self.shape, rank=values.dim(),
                              dtype=self.dtype(values), values=values.data_ptr())
        self.call("berth_optimizer_create", self.context, ctypes.byref(self.group), 1,
                  ctypes.byref(parameter), ctypes.c_uint64(1), None, ctypes.byref(self.object))

    def dtype(self, tensor):
        word = {"torch.float32": b"F32", "torch.float16": b"F16",
                "torch.bfloat16": b"BF16"}[str(tensor.dtype)]
        for number in range(64):
            if self.lib.berth_dtype_name(number) == word:
                return number
        raise RuntimeError(word)

    def call(self, name, *arguments):
        error, line = ctypes.create_string_buffer(16384), ctypes.create_string_buffer(4096)
        if getattr(self.lib, name)(*arguments, error) != 0:
            self.lib.berth_error_format(error, line, ctypes.c_size_t(4096))
            raise RuntimeError(f"{name}: {line.value.decode()}")

    def fill(self, settings):
        for name, value in settings.items():
            if value is not None:
                setattr(self.group, name, value)

    def set(self, **settings):
        self.fill(settings)
        self.call("berth_optimizer_set_group", self.object, 0, ctypes.byref(self.group))

    def step(self, gradient):
        mine = Gradient(values=gradient.data_ptr(), dtype=self.dtype(gradient))
        self.call("berth_optimizer_step", self.object, ctypes.byref(mine), None)

    def state(self, number):
        out = torch.empty(self.values.shape, dtype=torch.float32)
        self.call("berth_optimizer_read", self.object, ctypes.c_uint64(0),
                  ctypes.c_uint32(number), ctypes.c_uint64(0), ctypes.c_uint64(out.numel()),
                  ctypes.c_void_p(out.data_ptr()))
        return out

    def save(self, path):
        self.call("berth_optimizer_save", self.object, str(path).encode(), 1)

    def load(self, path):
        self.call("berth_optimizer_load", self.object, str(path).encode())

    def close(self):
        self.lib.berth_optimizer_destroy(self.object)
        self.lib.berth_context_destroy(self.context)


# ---- others' ------------------------------------------------------------------------------------

class AsPublished:
    """RMSprop and Adagrad that divide the gradient without its decay.

    The published kernels for GPUs do, torch and bitsandbytes on the processor do not.
    """

    def __init__(self, kind, values, decay):
        self.kind, self.values, self.decay = kind, values, decay
        self.square = torch.zeros_like(values.data)
        self.state = {values: {"square": self.square}}

    def step(self):
        # In one rounding: where both cancel out, the division makes much of a second one.
        whole = (self.values.grad.double() + self.decay * self.values.data.double()).float()
        if self.kind == RMSPROP:
            self.square.mul_(0.99)
        self.square.addcmul_(whole, whole, value=0.01 if self.kind == RMSPROP else 1)
        epsilon = 1e-8 if self.kind == RMSPROP else 1e-10
        self.values.data.addcdiv_(self.values.grad, self.square.sqrt() + epsilon, value=-RATE)


def torch_peer(kind, values, decay):
    """One of torch's own, and what it calls its states."""
    both = {"lr": RATE, "weight_decay": decay}
    if kind == ADAM:
        return torch.optim.Adam([values], **both), ("exp_avg", "exp_avg_sq")
    if kind == ADAMW:
        return torch.optim.AdamW([values], **both), ("exp_avg", "exp_avg_sq")
    if kind == MOMENTUM:
        return torch.optim.SGD([values], momentum=0.9, **both), ("momentum_buffer",)
    if kind == RMSPROP:
        return torch.optim.RMSprop([values], **both), ("square_avg",)
    return torch.optim.Adagrad([values], **both), ("sum",)


def wide_peer(kind, values, decay):
    """In 32 bits torch's, bitsandbytes' where torch has none; what it calls its states."""
    both = {"lr": RATE, "weight_decay": decay, "optim_bits": 32}
    if kind == LION:
        return bitsandbytes.optim.Lion([values], **both), ("state1",)
    if kind == ADEMAMIX:
        # f32 as on GPUs, and so in what 1 lacks: of 0.9999 that differs by a part in 6000.
        betas = torch.tensor((0.9, 0.999, 0.9999)).tolist()
        return bitsandbytes.optim.AdEMAMix([values], betas=betas, **both), ("state1", "state2")
    return torch_peer(kind, values, decay)


def narrow_peer(kind, values, decay):
    """In 8 bits, with the same defaults."""
    optim = bitsandbytes.optim
    more = {"momentum": 0.9} if kind == MOMENTUM else {}
    makers = {ADAM: optim.Adam8bit, ADAMW: optim.AdamW8bit, LION: optim.Lion8bit,
              MOMENTUM: optim.SGD8bit, RMSPROP: optim.RMSprop8bit,
              ADAGRAD: optim.Adagrad8bit, ADEMAMIX: optim.AdEMAMix8bit}
    return makers[kind]([values], lr=RATE, weight_decay=decay, **more)


# ---- states -------------------------------------------------------------------------------------

def decoded(state, number):
    """What state1 or state2 of bitsandbytes' stand for."""
    codes = state[f"state{number}"]
    if codes.dtype == torch.float32:
        return codes
    values = state[f"qmap{number}"][codes.long()]
    largest = state[f"absmax{number}"].reshape(-1, state[f"absmax{number}"].shape[-1])
    halves = values.reshape(len(largest), -1)
    scales = largest.repeat_interleave(256, dim=1)[:, :halves.shape[1]]
    return (halves * scales).reshape(codes.shape)


def states_of(mine, kind):
    """berth's, shaped as bitsandbytes': AdEMAMix' first is its two means."""
    if kind == ADEMAMIX:
        return [torch.stack([mine.state(0), mine.state(2)]), mine.state(1)]
    return [mine.state(i) for i in range(2 if kind in (ADAM, ADAMW) else 1)]


def saved_by(mine, path):
    """What berth writes of its one parameter, by key."""
    mine.save(path)
    return {key[len("w."):]: value for key, value in load_file(path).items()}


def flattened(entry, prefix):
    """Tensors under the names of files: nested states have their key before them."""
    tensors = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            tensors.update(flattened(value, f"{prefix}{key}."))
        else:
            tensors[prefix + key] = (value.contiguous() if torch.is_tensor(value)
                                     else torch.tensor(value, dtype=torch.int64))
    return tensors


def replaced(entry, saved):
    """The same keys, nested as they are, with what berth has saved."""
    return {key: replaced(value, saved) if isinstance(value, dict)
            else int(saved[key]) if key == "step" else saved[key].clone()
            for key, value in entry.items()}


def off_absmax(ours, theirs, shape, block):
    """How far apart at most, as a part of the largest magnitude of the block."""
    size = min(block, ours.numel())
    off = 0.0
    for one, other in zip(ours.reshape(-1, *shape), theirs.reshape(-1, *shape), strict=True):
        largest, apart = (
            torch.nn.functional.pad(each.reshape(-1), (0, -each.numel() % size))
            .reshape(-1, size).abs().amax(1) for each in (other, one - other))
        off = max(off, float((apart / (largest + 1e-30)).max()))
    return off


def states_outside(ours, theirs):
    return int((~torch.isclose(ours, theirs, atol=STATE_ATOL, rtol=STATE_RTOL)).sum())


def may_be_outside(published, elements):
    """As large a part of these elements as of those that it is published for."""
    return published * min(elements, 512 * 512) // (512 * 512)


# ---- numbers ------------------------------------------------------------------------------------

def judge(name, holds, words, is_quiet=False):
    t.check(holds, f"{name}: {words}")
    if not is_quiet:
        print(f"note: {name}: {words}")


def draw(seed, dtype, shape):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 0.1).to(dtype)


@functools.lru_cache(maxsize=64)
def gradient(step, dtype, shape):
    """As bitsandbytes' tests draw them; the same one each time."""
    generator = torch.Generator().manual_seed(1000 + step)
    return (torch.randn(shape, generator=generator) * 0.01).to(dtype)
