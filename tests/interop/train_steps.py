#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the library beside torch's in 32 bits and bitsandbytes' in 8, on the processor.

    train_steps.py          (BERTH_BUILD names the folder of the build)

Fifty steps with the same gradients. After each of them values and states are within the tolerances
that bitsandbytes tests itself with.
"""
import optimizers as own
from optimizers import torch

STEPS = 50
# f32, as kernels take it. Of 8 bits a decay that shrinks values has to be this large to be seen by
# the published bounds when it is lost; bf16 loses it itself, in the rounding of its own.
DECAY = torch.tensor(1e-2).item()
SHRINKING_DECAY = 1.0
# How far a state may be off, as a part of absmax of a block: in 8 bits half of the widest gap of
# its map, in 32, where all are one block, what 1 - 0.999 is off in f32.
OFF_8, OFF_32 = (0.0071, 0.0036), (2e-5, 2e-5)


def name_of(kind, bits, values, decay):
    rows, columns = values.shape
    return (f"{own.KINDS[kind]}, {bits} bits, {str(values.dtype)[6:]} {rows} x {columns}"
            + (", decay" if decay else ""))


def is_told(values, decay):
    """What holds for small ones and without decay is counted, and not told."""
    return bool(decay) and tuple(values.shape) == own.SHAPES[0]


# ---- 32 bits ------------------------------------------------------------------------------------

def wide_of_ours(kind, values, decay):
    """In 32 bits, with decay as berth has it."""
    if decay and kind in own.BY_ROOT:
        return own.AsPublished(kind, values, decay), ("square",)
    if kind == own.ADAM:
        return own.wide_peer(own.ADAMW, values, decay)
    return own.wide_peer(kind, values, decay)


def compare_32(kind, dtype, shape, decay):
    """Published: at most 15 elements outside; values of 16 bits are brought together.

    Those too whose steps have no bound, because their decay is not in what is divided: a gradient
    that it cancels out makes much of the last bit of a value.
    """
    ours = own.draw(1, dtype, shape)
    theirs = torch.nn.Parameter(ours.float().clone())
    # Torch's Adam has its decay in the gradient, which is a choice here.
    is_coupled = 1 if kind == own.ADAM else None
    peer, keys = (own.wide_peer if is_coupled else wide_of_ours)(kind, theirs, decay)
    mine = own.Optimizer(ours, kind, 32, decay, is_coupled=is_coupled)
    atol, rtol = own.VALUES_32[dtype]
    outside, off = 0, 0.0
    for step in range(STEPS):
        gradient = own.gradient(step, dtype, shape)
        mine.step(gradient)
        theirs.grad = gradient.float()
        peer.step()
        near = torch.isclose(ours.float(), theirs.detach(), atol=atol, rtol=rtol)
        outside = max(outside, int((~near).sum()))
        for state, key in zip(own.states_of(mine, kind), keys, strict=True):
            off = max(off, own.off_absmax(state, peer.state[theirs][key], shape, ours.numel()))
        if dtype != torch.float32 or isinstance(peer, own.AsPublished):
            ours.copy_(theirs.detach())
            theirs.data.copy_(ours)
    mine.close()
    own.judge(name_of(kind, 32, ours, decay), outside <= own.VALUES_OUTSIDE and off < OFF_32[0],
              f"{outside} of {theirs.numel()} elements outside {atol:g} + {rtol:g}; states "
              f"{off:.2g} of absmax off",
              is_quiet=not is_told(ours, decay))


# ---- 8 bits -------------------------------------------------------------------------------------

class Followed:
    """Ours of 8 bits, and one of 32 that makes each step from the same values and states.

    As bitsandbytes' tests do it, so that distances are those of one step. Keeps the worst of them.
    """

    def __init__(self, kind, values, decay):
        self.kind, self.values, self.decay = kind, values, decay
        self.mine = own.Optimizer(values, kind, 8, decay)
        self.wide = torch.nn.Parameter(values.float().clone())
        # After the step as on GPUs: torch's order shows in the relative distance of values near 0.
        shrinks_after = kind in (own.ADAM, own.ADAMW, own.ADEMAMIX)
        self.shrink = 1 - own.RATE * decay if shrinks_after else 1.0
        self.peer, self.keys = wide_of_ours(kind, self.wide, 0.0 if shrinks_after else decay)
        self.mean = self.relative = 0.0
        self.off, self.outside = [0.0, 0.0], 0
        self.is_coded = values.numel() >= 4096
        self.block = 256 if self.is_coded else values.numel()

    def go(self, gradient):
        self.wide.grad = gradient.float()
        self.mine.step(gradient)
        self.peer.step()
        self.wide.data.mul_(self.shrink)
        self.measure_values()
        states = own.states_of(self.mine, self.kind)
        for i, (state, key) in enumerate(zip(states, self.keys, strict=True)):
            wanted = self.peer.state[self.wide][key]
            self.outside = max(self.outside, own.states_outside(state, wanted))
            off = own.off_absmax(state, wanted, self.values.shape, self.block)
            self.off[i] = max(self.off[i], off)
            wanted.copy_(state)
        self.values.copy_(self.wide.detach())
        self.wide.data.copy_(self.values)

    def measure_values(self):
        apart = (self.values.float() - self.wide.detach()).abs()
        self.mean = max(self.mean, float(apart.mean()))
        relative = apart / (self.wide.detach().abs() + 1e-9)
        self.relative = max(self.relative, float(relative.mean()))

    def judge(self, name):
        mean, relative = own.MEANS_8[self.values.dtype]
        if (self.kind == own.ADAGRAD and self.decay
                and self.values.dtype == torch.bfloat16):
            mean = float("inf")  # a few steps, which have no bound, make values of any size
        limits = OFF_8 if self.is_coded else OFF_32
        own.judge(name, self.mean < mean and self.relative < relative
                  and self.outside < own.STATES_OUTSIDE
                  and all(off <= limit for off, limit in zip(self.off, limits)),
                  f"{self.mean:.2g} (bound {mean:g}) apart in the mean, {self.relative:.2g} "
                  f"({relative:g}) relatively; of states {self.outside} elements "
                  f"outside, {max(self.off):.2g} of absmax off",
                  is_quiet=not is_told(self.values, self.decay))


def compare_8(kind, dtype, shape, decay):
    """Published: mean distances to 32 bits and elements of states outside, after each step."""
    ours = own.draw(2, dtype, shape)
    theirs = torch.nn.Parameter(ours.clone())
    followed = Followed(kind, ours, decay)
    peer = own.narrow_peer(kind, theirs, decay)
    between = 0.0
    for step in range(STEPS):
        theirs.grad = own.gradient(step, dtype, shape)
        followed.go(theirs.grad)
        peer.step()
        between = max(between, float((ours.float() - theirs.detach().float()).abs().mean()))
    followed.mine.close()
    name = name_of(kind, 8, ours, decay)
    followed.judge(name)
    if not decay or kind not in own.BY_ROOT:
        own.judge(f"{name}, bitsandbytes", between < own.MEANS_8[dtype][0],
                  f"{between:.2g} apart in the mean", is_quiet=not is_told(ours, decay))


def parts_of(dtype, shape):
    """Of the decay: none and all, but for what takes long and shows nothing more."""
    return (1.0,) if shape == own.SHAPES[0] and dtype != torch.float32 else (0.0, 1.0)


def decay_8(kind, dtype):
    is_shrinking = kind not in (own.MOMENTUM, *own.BY_ROOT)
    return SHRINKING_DECAY if is_shrinking and dtype != torch.bfloat16 else DECAY


def main():
    torch.set_num_threads(1)
    for shape in own.SHAPES:
        for dtype in own.VALUES_32:
            for kind in own.KINDS:
                for part in parts_of(dtype, shape):
                    compare_32(kind, dtype, shape, part * DECAY)
                    compare_8(kind, dtype, shape, part * decay_8(kind, dtype))
    own.t.end()


main()
