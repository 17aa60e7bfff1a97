#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the library beside torch's in 32 bits and bitsandbytes' in 8, on the processor.

    train_steps.py          (BERTH_BUILD names the folder of the build)

Fifty steps with the same gradients, within the tolerances that bitsandbytes tests itself with.
"""
import ctypes
import os
from pathlib import Path

import libraries as lib
from libraries import torch  # first: it goes on in the environment that has the others
import bitsandbytes

BUILD = Path(os.environ.get("BERTH_BUILD", lib.ROOT / "build"))
STEPS = 50
SHAPE = (512, 512)
ADAM, ADAMW, LION, MOMENTUM, RMSPROP, ADAGRAD, ADEMAMIX = range(7)  # berth_update_kind
t = lib.Tally()


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

    def __init__(self, values, kind, bits, rate, decay):
        self.lib = ctypes.CDLL(str(BUILD / "libberth.so"))
        self.lib.berth_dtype_name.restype = ctypes.c_char_p
        self.values, self.context, self.object = values, ctypes.c_void_p(), ctypes.c_void_p()
        self.call("berth_context_create", None, ctypes.byref(self.context))
        group = Group()
        if self.lib.berth_optimizer_group_init(ctypes.byref(group), kind) != 0:
            raise RuntimeError("no such optimizer")
        group.bits, group.rate, group.decay = bits, rate, decay
        self.shape = (ctypes.c_uint64 * values.dim())(*values.shape)
        parameter = Parameter(name=b"w", shape=self.shape, rank=values.dim(),
                              dtype=self.dtype(values), values=values.data_ptr())
        self.call("berth_optimizer_create", self.context, ctypes.byref(group), 1,
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

    def step(self, gradient):
        mine = Gradient(values=gradient.data_ptr(), dtype=self.dtype(gradient))
        self.call("berth_optimizer_step", self.object, ctypes.byref(mine), None)

    def state(self, number):
        out = torch.empty(self.values.shape, dtype=torch.float32)
        self.call("berth_optimizer_read", self.object, ctypes.c_uint64(0),
                  ctypes.c_uint32(number), ctypes.c_uint64(0), ctypes.c_uint64(out.numel()),
                  ctypes.c_void_p(out.data_ptr()))
        return out

    def close(self):
        self.lib.berth_optimizer_destroy(self.object)
        self.lib.berth_context_destroy(self.context)


def judge(name, holds, words):
    t.check(holds, f"{name}: {words}")
    print(f"note: {name}: {words}")


def draw(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(SHAPE, generator=generator) * 0.1).to(dtype)


def gradient(step, dtype):
    """As bitsandbytes' tests draw them."""
    generator = torch.Generator().manual_seed(1000 + step)
    return (torch.randn(SHAPE, generator=generator) * 0.01).to(dtype)


def wide_peer(kind, values, rate, decay):
    """In 32 bits torch's, bitsandbytes' where torch has none; the key of its first state."""
    both = {"lr": rate, "weight_decay": decay}
    if kind == ADAM:
        return torch.optim.Adam([values], **both), "exp_avg"
    if kind == ADAMW:
        return torch.optim.AdamW([values], **both), "exp_avg"
    if kind == LION:
        return bitsandbytes.optim.Lion([values], optim_bits=32, **both), "state1"
    if kind == MOMENTUM:
        return torch.optim.SGD([values], momentum=0.9, **both), "momentum_buffer"
    if kind == RMSPROP:
        return torch.optim.RMSprop([values], **both), "square_avg"
    if kind == ADAGRAD:
        return torch.optim.Adagrad([values], **both), "sum"
    return bitsandbytes.optim.AdEMAMix([values], optim_bits=32, **both), "state1"


def narrow_peer(kind, values, rate, decay):
    """In 8 bits, with the same defaults."""
    optim = bitsandbytes.optim
    more = {"momentum": 0.9} if kind == MOMENTUM else {}
    makers = {ADAM: optim.Adam8bit, ADAMW: optim.AdamW8bit, LION: optim.Lion8bit,
              MOMENTUM: optim.SGD8bit, RMSPROP: optim.RMSprop8bit,
              ADAGRAD: optim.Adagrad8bit, ADEMAMIX: optim.AdEMAMix8bit}
    return makers[kind]([values], lr=rate, weight_decay=decay, **more)


def compare_32(kind, name, dtype, atol, rtol):
    """Published: torch in float32, at most 15 elements outside; 16 bits are brought together."""
    rate = 1e-3
    ours = draw(1, dtype)
    theirs = torch.nn.Parameter(ours.float().clone())
    peer, _ = wide_peer(kind, theirs, rate, 0.0)
    mine = Optimizer(ours, kind, 32, rate, 0.0)
    outside = 0
    for step in range(STEPS):
        mine.step(gradient(step, dtype))
        theirs.grad = gradient(step, dtype).float()
        peer.step()
        near = torch.isclose(ours.float(), theirs.detach(), atol=atol, rtol=rtol)
        outside = max(outside, int((~near).sum()))
        if dtype != torch.float32:
            ours.copy_(theirs.detach())
            theirs.data.copy_(ours)
    mine.close()
    judge(f"{name}, 32 bits, {str(dtype)[6:]}", outside <= 15,
               f"{outside} of {theirs.numel()} elements outside {atol:g} + {rtol:g}")


def compare_8(kind, name, dtype, mean, relative):
    """Published: 8 bits against torch's 32, mean errors of the values after each step."""
    rate, decay = 1e-3, 1e-2 if kind == ADAMW else 0.0
    ours = draw(2, dtype)
    narrow = torch.nn.Parameter(ours.clone())
    wide = torch.nn.Parameter(ours.float().clone())
    peer, state = wide_peer(kind, wide, rate, decay)
    small = narrow_peer(kind, narrow, rate, decay)
    mine = Optimizer(ours, kind, 8, rate, decay)
    sums = torch.zeros(4, dtype=torch.float64)
    for step in range(STEPS):
        narrow.grad = gradient(step, dtype)
        wide.grad = narrow.grad.float()
        mine.step(narrow.grad)
        peer.step()
        small.step()
        apart = (ours.float() - wide.detach()).abs()
        their = (narrow.detach().float() - wide.detach()).abs()
        size = wide.detach().abs() + 1e-9
        sums += torch.tensor([apart.mean(), (apart / size).mean(), (their / size).mean(),
                              (ours.float() - narrow.detach().float()).abs().mean()])
        for values in (narrow.data, ours):
            values.copy_(wide.detach())
        wide.data.copy_(ours)
    wanted = peer.state[wide][state].reshape(-1, *SHAPE)[0]  # AdEMAMix has two of them
    outside = int((~torch.isclose(mine.state(0), wanted, atol=3e-3, rtol=1e-3)).sum())
    mine.close()
    absolute, relative_ours, relative_theirs, between = (sums / STEPS).tolist()
    judge(f"{name}, 8 bits, {str(dtype)[6:]}, 32 bits",
          absolute < mean and relative_ours < max(relative, 1.05 * relative_theirs)
          and outside < 20,
          f"{absolute:.2g} apart in the mean, {relative_ours:.2g} relatively (bitsandbytes "
          f"{relative_theirs:.2g}), {outside} elements of state 1 outside")
    judge(f"{name}, 8 bits, {str(dtype)[6:]}, bitsandbytes", between < 2 * mean,
          f"{between:.2g} apart in the mean")


def main():
    torch.set_num_threads(1)
    kinds = ((ADAM, "Adam"), (ADAMW, "AdamW"), (LION, "Lion"), (MOMENTUM, "momentum"),
             (RMSPROP, "RMSprop"), (ADAGRAD, "Adagrad"), (ADEMAMIX, "AdEMAMix"))
    for kind, name in kinds:
        compare_32(kind, name, torch.float32, 1e-6, 1e-5)
        compare_32(kind, name, torch.bfloat16, 1e-3, 1e-2)
        compare_32(kind, name, torch.float16, 1e-4, 1e-3)
    for kind, name in kinds:
        compare_8(kind, name, torch.float32, 6e-5, 6e-4)
        compare_8(kind, name, torch.bfloat16, 1.7e-4, 1.6e-3)
    t.end()


main()
