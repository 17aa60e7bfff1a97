#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of optimizers drawn at random, beside bitsandbytes' own on the processor.

    train_random.py [CASES [SEED]]      (BERTH_BUILD names the folder of the build)

Kind, bits, dtype, shape, settings and gradients are drawn, and so are rates that change under way
and gradients that are zero for some steps. Both make each step from the same values and states.
Those of one of the two, drawn as well, are what both go on from: what berth saves bitsandbytes
takes, and the other way round, in an optimizer that was there or in a new one. A distance is that
of one step, therefore: values are held to the tolerances of 32 bits in 8 too, because neither
steps by what its codes will be, and codes to those beside them.
"""
import random
import sys
import tempfile
from pathlib import Path

import optimizers as own
from optimizers import torch
from safetensors.torch import save_file

CASES, SEED = 150, 1
ONE_STATE = (own.LION, own.MOMENTUM, own.RMSPROP, own.ADAGRAD)
# As a part of absmax: the widest gap of the map that a state has.
GAPS = (0.0143, 0.0072)
# Codes beside those of the library, which finds them by a table of 65536 bins.
OTHER_CODES = 0.01
# Below what is told apart at all: f16's numbers are no nearer to one another.
LEAST = {torch.float32: 1e-30, torch.bfloat16: 1e-30, torch.float16: 2.0 ** -23}
# Sizes around which something changes: blocks, states of 8 bits, threads' shares.
EDGES = (1, 255, 256, 257, 4095, 4096, 4097, 4352, 8191, 16385)


# ---- what is drawn ------------------------------------------------------------------------------

def as_f32(value):
    """What both compute with: one of them has no more."""
    return torch.tensor(value, dtype=torch.float32).item()


def power_of_ten(draw, least, most):
    return as_f32(10 ** draw.uniform(least, most))


def draw_beta(draw):
    """Near 1, or anywhere; 0 is none of the library's."""
    if draw.random() < 0.6:
        return as_f32(1 - 10 ** draw.uniform(-4, -0.3))
    return as_f32(draw.uniform(0.05, 0.95))


def draw_shape(draw):
    count = draw.choice(EDGES) if draw.random() < 0.6 else draw.randrange(1, 20000)
    divisors = [d for d in range(2, 40) if count % d == 0]
    if divisors and draw.random() < 0.5:
        rows = draw.choice(divisors)
        return (rows, count // rows)
    return (count,)


class Case:
    """What is drawn once."""

    def __init__(self, number):
        draw = self.draw = random.Random(number)
        self.kind = draw.choice(list(own.KINDS))
        self.bits = draw.choice((8, 8, 32))
        self.dtype = draw.choice(list(own.VALUES_32))
        self.shape = draw_shape(draw)
        self.least = draw.choice((1, 4096, 4096, 10000))
        self.steps = draw.randrange(3, 10)
        self.rate = power_of_ten(draw, -5, -1)
        self.betas = [draw_beta(draw) for _ in range(3)]
        # Where it is not, the library's beta3 goes on behind the steps over which it rises.
        self.betas[2] = max(self.betas[0], self.betas[2])
        self.epsilon = power_of_ten(draw, -10, -3)
        self.alpha = as_f32(draw.uniform(0, 8))
        self.rises = [draw.choice((0, 0, 5, 100)) for _ in range(2)]
        # Where decay enters what is divided here and there is another place: see AsPublished.
        has_decay = self.kind not in own.BY_ROOT and draw.random() < 0.6
        self.decay = power_of_ten(draw, -3, 0) if has_decay else 0.0
        self.size = power_of_ten(draw, -4, 1)
        self.seed = draw.randrange(1 << 30)

    def __str__(self):
        return (f"{own.KINDS[self.kind]}, {self.bits} bits from {self.least}, "
                f"{str(self.dtype)[6:]} {'x'.join(map(str, self.shape))}, rate {self.rate:.3g}, "
                f"betas {', '.join(f'{b:.5g}' for b in self.betas)}, epsilon {self.epsilon:.2g}, "
                f"alpha {self.alpha:.2g}, rises {self.rises}, decay {self.decay:.2g}, "
                f"gradients {self.size:.2g}")

    def gradient(self, step):
        """Some have zeros in whole blocks; some are nothing else."""
        generator = torch.Generator().manual_seed(self.seed + step)
        gradient = torch.randn(self.shape, generator=generator) * self.size
        if self.draw.random() < 0.25:
            gradient.zero_()
        elif self.draw.random() < 0.25:
            gradient.reshape(-1)[:self.draw.randrange(1, gradient.numel() + 1)] = 0
        return gradient.to(self.dtype)


# ---- both, made anew ----------------------------------------------------------------------------

def make_ours(case, values):
    beta1, beta2, beta3 = case.betas
    settings = {"rate": case.rate, "beta1": beta1, "beta2": beta2, "epsilon": case.epsilon,
                "least_8bit": case.least}
    if case.kind == own.ADEMAMIX:
        settings |= {"beta3": beta3, "alpha": case.alpha, "alpha_steps": case.rises[0],
                     "beta3_steps": case.rises[1]}
    return own.Optimizer(values, case.kind, case.bits, case.decay, **settings)


def make_theirs(case, values):
    """Decay that shrinks values is made beside it, where a GPU makes it."""
    optim = own.bitsandbytes.optim
    beta1, beta2, beta3 = case.betas
    both = {"lr": case.rate, "optim_bits": case.bits, "min_8bit_size": case.least,
            "weight_decay": case.decay if case.kind == own.MOMENTUM else 0.0}
    if case.kind == own.MOMENTUM:
        return optim.SGD([values], momentum=beta1, **both)
    if case.kind == own.LION:
        return optim.Lion([values], betas=(beta1, beta2), **both)
    both["eps"] = case.epsilon
    if case.kind == own.RMSPROP:
        return optim.RMSprop([values], alpha=beta1, **both)
    if case.kind == own.ADAGRAD:
        return optim.Adagrad([values], **both)
    if case.kind == own.ADEMAMIX:
        rises = {"t_alpha": case.rises[0] or None, "t_beta3": case.rises[1] or None}
        return optim.AdEMAMix([values], betas=(beta1, beta2, beta3), alpha=case.alpha, **rises,
                              **both)
    maker = optim.Adam if case.kind == own.ADAM else optim.AdamW
    return maker([values], betas=(beta1, beta2), **both)


# ---- one step -----------------------------------------------------------------------------------

class Pair:
    """Ours and theirs, with the same values and states before each step."""

    def __init__(self, case, folder):
        self.case, self.file = case, folder / "states"
        self.ours = own.draw(case.seed, case.dtype, case.shape)
        self.theirs = torch.nn.Parameter(self.ours.clone())
        self.mine = make_ours(case, self.ours)
        self.peer = make_theirs(case, self.theirs)
        self.rate = case.rate

    def set_rate(self, rate):
        self.rate = rate
        self.mine.set(rate=rate)
        self.peer.param_groups[0]["lr"] = rate

    def step(self, gradient):
        """Returns what is wrong, or None."""
        kind, before = self.case.kind, self.ours.float().clone()
        states = own.states_of(self.mine, kind)
        shrink = 1 - self.rate * self.case.decay
        self.mine.step(gradient)
        if kind == own.LION:
            self.theirs.data.mul_(shrink)
        self.theirs.grad = gradient.clone()
        self.peer.step()
        if kind not in ONE_STATE:
            self.theirs.data.mul_(shrink)
        return self.find_values(before) or self.find_states(gradient, states, before)

    def find_values(self, before):
        ours, theirs = self.ours.float(), self.theirs.detach().float()
        relative = own.VALUES_32[self.case.dtype][1]
        scale = torch.stack([before.abs(), theirs.abs(), (theirs - before).abs()]).amax(0)
        far = ~(ours.sub(theirs).abs() <= relative * scale + LEAST[self.case.dtype])
        far &= ~((ours == theirs) | (ours.isnan() & theirs.isnan()))
        if int(far.sum()) <= far.numel() // 2000:
            return None
        at = int(far.reshape(-1).int().argmax())
        return (f"{int(far.sum())} values: {before.reshape(-1)[at]:.9g} becomes "
                f"{ours.reshape(-1)[at]:.9g}, not {theirs.reshape(-1)[at]:.9g}")

    def find_states(self, gradient, states, before):
        state = self.peer.state[self.theirs]
        is_coded = state["state1"].dtype == torch.uint8
        mine = own.states_of(self.mine, self.case.kind)
        for i, (was, ours) in enumerate(zip(states, mine, strict=True)):
            theirs = own.decoded(state, i + 1)
            if is_coded:
                wrong = self.find_coded(ours, theirs, state[f"absmax{i + 1}"], GAPS[i])
            else:
                wrong = self.find_wide(ours, theirs, was, gradient, before)
            if wrong:
                return f"state {i + 1}: {wrong}"
        return None

    def find_coded(self, ours, theirs, absmax, gap):
        off = own.off_absmax(ours, theirs, self.case.shape, 256)
        other = (ours - theirs).abs() > 1e-4 * absmax.max()
        # Where gradients are zero many numbers are the same one.
        count = len(torch.unique(theirs[other]))
        if off > gap:
            return f"{off:.3g} of absmax off"
        if count > 8 + OTHER_CODES * other.numel():
            return f"{count} other codes of {other.numel()}"
        return None

    def find_wide(self, ours, theirs, was, gradient, before):
        """Means are sums, which may cancel out."""
        given = gradient.float().abs() + self.case.decay * before.abs()
        scale = was.abs() + theirs.abs()
        if self.case.kind not in own.BY_ROOT:
            scale = scale + given
        far = (ours - theirs).abs() > 2e-6 * scale + 1e-37
        if not far.any():
            return None
        at = int(far.reshape(-1).int().argmax())
        return (f"{int(far.sum())} numbers: {was.reshape(-1)[at]:.9g} becomes "
                f"{ours.reshape(-1)[at]:.9g}, not {theirs.reshape(-1)[at]:.9g}")

    # ---- from one to the other ------------------------------------------------------------------

    def give_theirs(self, is_new):
        """What berth saves is what bitsandbytes goes on with."""
        whole = self.peer.state_dict()
        saved = own.saved_by(self.mine, self.file)
        whole["state"] = {0: own.replaced(whole["state"][0], saved)}
        self.theirs.data.copy_(self.ours)
        if is_new:
            self.theirs = torch.nn.Parameter(self.ours.clone())
            self.peer = make_theirs(self.case, self.theirs)
        self.peer.load_state_dict(whole)
        return self.find_lost()

    def give_ours(self, is_new):
        """And the other way round."""
        entry = self.peer.state_dict()["state"][0]
        save_file(own.flattened(entry, "w."), self.file)
        self.ours.copy_(self.theirs.detach())
        if is_new:
            self.mine.close()
            self.mine = make_ours(self.case, self.ours)
            self.mine.set(rate=self.rate)
        self.mine.load(self.file)
        return self.find_lost()

    def find_lost(self):
        """Both have the same states now, to the bit, and count the same steps."""
        state = self.peer.state[self.theirs]
        for i, ours in enumerate(own.states_of(self.mine, self.case.kind)):
            if not torch.equal(ours, own.decoded(state, i + 1)):
                return f"state {i + 1} is another one behind the file"
        return None


# ---- runs ---------------------------------------------------------------------------------------

def run(case, folder):
    pair, draw = Pair(case, folder), case.draw
    try:
        for step in range(case.steps):
            if draw.random() < 0.3:
                pair.set_rate(power_of_ten(draw, -5, -1) if draw.random() < 0.9 else 0.0)
            wrong = pair.step(case.gradient(step))
            if wrong:
                return f"step {step + 1}: {wrong}"
            if not torch.isfinite(pair.ours).all():
                return None  # nothing more is to be seen
            give = pair.give_theirs if draw.random() < 0.5 else pair.give_ours
            wrong = give(draw.random() < 0.5)
            if wrong:
                return f"behind step {step + 1}: {wrong}"
    finally:
        pair.mine.close()
    return None


def main():
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else SEED
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + cases):
            case = Case(number)
            wrong = run(case, Path(folder))
            own.t.check(wrong is None, f"{number}: {case}: {wrong}")
    own.t.end()


main()
