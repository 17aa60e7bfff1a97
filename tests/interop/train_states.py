#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""States of optimizers that one library saves and another goes on with, on the processor.

    train_states.py         (BERTH_BUILD names the folder of the build)

Torch's in 32 bits and bitsandbytes' in 8, both ways: 25 steps by one, the next ones by both, each
on its own. What is loaded is what was saved, to the bit; what follows is within the tolerances that
bitsandbytes tests itself with.
"""
import tempfile
from pathlib import Path

import optimizers as own
from optimizers import torch
from safetensors.torch import save_file

STEPS = 25
DTYPE = torch.float32
NESTED = "__bnb_optimizer_quant_state__"


def decay_of(kind):
    return 0.0 if kind in own.BY_ROOT else 1e-2


def is_small(shape):
    """What holds for these is counted, and not told."""
    return tuple(shape) != own.SHAPES[0]


def are_same(ours, theirs):
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


# ---- both go on ---------------------------------------------------------------------------------

def go_on(mine, peer, theirs, first, measure):
    """Both make steps, each from what it has made itself; the worst of them."""
    worst = 0.0
    for step in range(first, first + STEPS):
        theirs.grad = own.gradient(step, DTYPE, theirs.shape)
        mine.step(theirs.grad)
        peer.step()
        worst = max(worst, float(measure(mine.values, theirs.detach())))
    return worst


def outside_32(ours, theirs):
    atol, rtol = own.VALUES_32[DTYPE]
    return (~torch.isclose(ours, theirs, atol=atol, rtol=rtol)).sum()


def mean_distance(ours, theirs):
    return (ours - theirs).abs().mean()


# ---- torch's ------------------------------------------------------------------------------------

def compare_torch(kind, shape, folder):
    """Its states continued here, and what comes of that by a new one of its own."""
    name, decay = f"{own.KINDS[kind]} {shape[0]} x {shape[1]}", decay_of(kind)
    theirs = torch.nn.Parameter(own.draw(3, DTYPE, shape))
    peer, keys = own.torch_peer(kind, theirs, decay)
    for step in range(STEPS):
        theirs.grad = own.gradient(step, DTYPE, shape)
        peer.step()
    state = peer.state[theirs]
    # SGD counts no steps.
    tensors = {"step": torch.tensor(float(STEPS)), **state}
    save_file({f"w.{key}": value for key, value in tensors.items()}, folder / "theirs")
    mine = own.Optimizer(theirs.detach().clone(), kind, 32, decay, is_coupled=kind != own.ADAMW)
    mine.load(folder / "theirs")
    own.judge(f"{name}, torch's states, loaded",
              are_same(own.states_of(mine, kind), [state[key] for key in keys]), "to the bit",
              is_quiet=True)
    outside = go_on(mine, peer, theirs, STEPS, outside_32)
    own.judge(f"{name}, torch's states, continued", outside <= limit_32(theirs),
              f"{outside:g} of {theirs.numel()} elements outside", is_quiet=is_small(shape))

    saved = own.saved_by(mine, folder / "ours")
    theirs = torch.nn.Parameter(mine.values.clone())
    peer, _ = own.torch_peer(kind, theirs, decay)
    give_torch(peer, keys, saved)
    outside = go_on(mine, peer, theirs, 2 * STEPS, outside_32)
    mine.close()
    own.judge(f"{name}, our states, continued by torch", outside <= limit_32(theirs),
              f"{outside:g} of {theirs.numel()} elements outside", is_quiet=is_small(shape))


def limit_32(values):
    return own.may_be_outside(own.VALUES_OUTSIDE, values.numel())


def give_torch(peer, keys, saved):
    """A new optimizer takes states of berth's file."""
    whole = peer.state_dict()
    entry = {key: saved[f"state{i + 1}"] for i, key in enumerate(keys)}
    whole["state"] = {0: {"step": saved["step"].float(), **entry}}
    peer.load_state_dict(whole)


# ---- bitsandbytes' ------------------------------------------------------------------------------

def compare_loaded(kind, name, state, folder, file):
    """A file of bitsandbytes' states, in an optimizer that has none yet, and saved again."""
    codes = own.flattened(state, "")
    values = torch.zeros(codes["state1"].shape[-2:])
    mine = own.Optimizer(values, kind, 8, decay_of(kind))
    mine.load(file)
    numbers = (1, 2) if "state2" in codes else (1,)
    own.judge(f"{name}, loaded",
              are_same(own.states_of(mine, kind), [own.decoded(codes, i) for i in numbers]),
              "to the bit", is_quiet=True)
    saved = own.saved_by(mine, folder / "again")
    own.judge(f"{name}, saved again", saved.keys() == codes.keys() and all(
        saved[key].shape == value.shape and saved[key].dtype == value.dtype
        and torch.equal(saved[key], value) for key, value in codes.items()),
        ", ".join(sorted(saved)), is_quiet=True)
    mine.close()


def compare_bitsandbytes(kind, shape, folder):
    """Its states continued here, and what comes of that by a new one of its own."""
    name, decay = f"{own.KINDS[kind]} {shape[0]} x {shape[1]}", decay_of(kind)
    theirs = torch.nn.Parameter(own.draw(3, DTYPE, shape))
    peer = own.narrow_peer(kind, theirs, decay)
    for step in range(STEPS):
        theirs.grad = own.gradient(step, DTYPE, shape)
        peer.step()
    entry = peer.state_dict()["state"][0]
    save_file(own.flattened(entry, "w."), folder / "nested")
    save_file(own.flattened(peer.state[theirs], "w."), folder / "direct")  # before 0.49.2
    for file in ("nested", "direct"):
        compare_loaded(kind, f"{name}, {file}", peer.state[theirs], folder, folder / file)
    mine = own.Optimizer(theirs.detach().clone(), kind, 8, decay)
    mine.load(folder / "nested")
    worst = go_on(mine, peer, theirs, STEPS, mean_distance)
    own.judge(f"{name}, bitsandbytes' states, continued", worst < own.MEANS_8[DTYPE][0],
              f"{worst:.2g} apart in the mean ({'nested' if NESTED in entry else 'direct'})",
              is_quiet=is_small(shape))
    compare_returned(kind, name, mine, peer, folder)
    mine.close()


def compare_returned(kind, name, mine, peer, folder):
    """berth's states in a new optimizer of bitsandbytes', which goes on."""
    saved = own.saved_by(mine, folder / "ours")
    theirs = torch.nn.Parameter(mine.values.clone())
    whole = peer.state_dict()
    whole["state"] = {0: own.replaced(whole["state"][0], saved)}
    fresh = own.narrow_peer(kind, theirs, decay_of(kind))
    fresh.load_state_dict(whole)
    state = fresh.state[theirs]
    own.judge(f"{name}, our states, taken", state["step"] == 2 * STEPS and are_same(
        own.states_of(mine, kind), [own.decoded(state, i) for i in (1, 2) if f"state{i}" in state]),
        "to the bit", is_quiet=True)
    worst = go_on(mine, fresh, theirs, 2 * STEPS, mean_distance)
    own.judge(f"{name}, our states, continued by bitsandbytes", worst < own.MEANS_8[DTYPE][0],
              f"{worst:.2g} apart in the mean", is_quiet=is_small(theirs.shape))


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for shape in own.SHAPES:
            for kind in own.KINDS:
                if kind not in (own.LION, own.ADEMAMIX):  # torch has neither
                    compare_torch(kind, shape, Path(folder))
                compare_bitsandbytes(kind, shape, Path(folder))
    own.t.end()


main()
