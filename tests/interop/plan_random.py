#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Device maps of random module trees: berth's imitation against the real planners.

    plan_random.py [TREES [SEED]]

Each tree is planned by accelerate (era hf4) and by transformers 5.23 (era hf5), on the meta
device. Compared are the balanced budgets, the map, what is raised, the bytes of the buffer
warning, and what devices without a module would have needed. Sizes and device words are read by
both, too.
"""
import logging
import os
import random
import re
import subprocess
import sys
import warnings


def enter():
    """Goes on in the environment with the libraries, or ends the program as skipped."""
    python = os.environ.get("BERTH_MODELS_PYTHON", "")
    if not python:
        print("skipped: no Python environment with transformers and accelerate")
        print("t: 0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    if os.path.dirname(os.path.dirname(python)) != sys.prefix:
        os.execv(python, [python] + sys.argv)


enter()
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import accelerate.utils.modeling as theirs4  # noqa: E402
import torch  # noqa: E402
import transformers.integrations.accelerate as theirs5  # noqa: E402

FIND_TIED = theirs4.find_tied_parameters
CLASSES = {name: type(name, (torch.nn.Module,), {}) for name in "MABCD"}


# ------------------------------------------------------------------------- trees

class Tensor:
    def __init__(self, name, size, memory, is_buffer):
        self.name, self.size, self.memory, self.is_buffer = name, size, memory, is_buffer


class Node:
    def __init__(self, name, path, kind):
        self.name, self.path, self.kind = name, path, kind
        self.tensors, self.children = [], []

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


class Tree:
    """A random tree; sizes in elements of four bytes."""

    def __init__(self, rng):
        self.rng = rng
        self.memories = []
        self.tie_rate = rng.choice((0, 0, 0.02, 0.08))
        self.root = self.node("", "", "M", rng.randint(1, 4))
        self.no_split = [c for c in "ABCD" if rng.random() < 0.3]
        self.is_escaping = rng.random() < 0.1
        total = sum(size for size in self.memories) * 4
        self.memory = {}
        for gpu in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 4))):
            if rng.random() < 0.95:
                self.memory[str(gpu)] = rng.choice((0, rng.randint(0, total + 40),
                                                    rng.randint(0, total // 2 + 40)))
        if rng.random() < 0.6 or not self.memory:
            self.memory["cpu"] = rng.randint(0, 2 * total + 40)
        if rng.random() < 0.05:
            self.memory["disk"] = rng.randint(0, 99)
        self.mode = rng.choice(("auto", "balanced", "balanced_low_0", "sequential"))
        self.has_fallback = rng.random() < 0.2
        self.has_buffer_offload = rng.random() < 0.2

    def tensor(self, name, is_buffer):
        shared = [m for m, (_, buffer) in enumerate(self.kinds()) if buffer == is_buffer]
        if not is_buffer and shared and self.rng.random() < self.tie_rate:
            memory = self.rng.choice(shared)
        else:
            memory = len(self.memories)
            self.memories.append(self.rng.randint(1, 40))
            self.buffer_flags.append(is_buffer)
        return Tensor(name, self.memories[memory], memory, is_buffer)

    def kinds(self):
        if not hasattr(self, "buffer_flags"):
            self.buffer_flags = []
        return list(zip(self.memories, self.buffer_flags))

    def node(self, name, path, kind, children):
        rng = self.rng
        node = Node(name, path, kind)
        chance = 0.9 if not children else 0.15
        for letter in "pwz":
            if rng.random() < chance * (0.4 if letter == "z" else 0.8):
                tensor = self.tensor(letter, letter == "z")
                if all(t.memory != tensor.memory for t in node.tensors):
                    node.tensors.append(tensor)
        depth = path.count(".") + bool(path)
        for letter in "abcde"[:children]:
            deeper = rng.choice((0, 0, 1, 2, 3)) if depth < 3 else 0
            node.children.append(self.node(letter, f"{path}.{letter}" if path else letter,
                                           rng.choice("ABCD"), deeper))
        return node

    def record(self, era):
        yield f"era {era}"
        yield f"mode {self.mode}"
        words = (["fallback"] if self.has_fallback and era == "hf4" else []) + (
            ["offload_buffers"] if self.has_buffer_offload else [])
        yield "with " + " ".join(words)
        yield "memory " + ",".join(f"{k}={v}" for k, v in self.memory.items())
        yield "no_split " + " ".join(self.no_split)
        if self.is_escaping and era != "hf4":
            yield "escaping " + " ".join(self.escaping_names())
        yield "tree"
        for node in self.root.walk():
            depth = node.path.count(".") + bool(node.path)
            words = [" " * depth + (node.name or "-"), node.kind]
            words += [("~" if t.is_buffer else "") + f"{t.name}#{t.memory}={4 * t.size}"
                      for t in node.tensors]
            yield " ".join(words)
        yield ""

    def escaping_names(self):
        """The tensors p of blocks that lie in no other block."""
        blocks = [node.path for node in self.root.walk() if node.kind in self.no_split]
        for node in self.root.walk():
            if node.path in blocks and not any(
                    node.path.startswith(f"{block}.") for block in blocks):
                yield f"{node.path}.p"

    def module(self, is_shared):
        """The tree as torch modules; with shared parameters, or with one for each name."""
        made = {}
        names = {}

        def build(node):
            module = CLASSES[node.kind]()
            for t in node.tensors:
                names.setdefault(t.memory, []).append(
                    f"{node.path}.{t.name}" if node.path else t.name)
                data = torch.empty(t.size, device="meta")
                if t.is_buffer:
                    module.register_buffer(t.name, data)
                elif is_shared and t.memory in made:
                    module.register_parameter(t.name, made[t.memory])
                else:
                    made[t.memory] = torch.nn.Parameter(data)
                    module.register_parameter(t.name, made[t.memory])
            for child in node.children:
                module.add_module(child.name, build(child))
            return module

        module = build(self.root)
        groups = [group for group in names.values() if len(group) > 1]
        module.all_tied_weights_keys = {
            target: group[0] for group in groups for target in group[1:]}
        return module, groups


# -------------------------------------------------------------------- the planners

class Messages(logging.Handler):
    """What the planners log: bytes of buffers, and what devices would need."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.clear()

    def clear(self):
        self.buffers = 0
        self.minimum = {}

    def take(self, text):
        match = re.search(r"requires (\d+) bytes of buffer", text)
        if match:
            self.buffers = int(match[1])
        if "could be assigned to the following devices" in text:
            self.minimum = dict(re.findall(r"  - (\S+): (\d+) bytes", text))

    def emit(self, record):
        self.take(record.getMessage())


MESSAGES = Messages()
for logger_name in ("accelerate.utils.modeling", "transformers.integrations.accelerate"):
    logger = logging.getLogger(logger_name)
    logger.handlers[:] = [MESSAGES]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def budgets(tree):
    return {int(k) if k.isdigit() else k: v for k, v in tree.memory.items()}


def plan4(tree):
    module, groups = tree.module(True)
    memory = budgets(tree)
    # The order of several groups comes from a set of strings; it decides some maps.
    found = theirs4.find_tied_parameters(module)
    assert sorted(found) == sorted(sorted(group) for group in groups)
    if tree.mode != "sequential":
        memory = theirs4.get_balanced_memory(
            module, memory, no_split_module_classes=tree.no_split,
            low_zero=tree.mode == "balanced_low_0")
    yield theirs4.get_max_memory(dict(memory))
    theirs4.find_tied_parameters = lambda _: [sorted(group) for group in groups]
    try:
        yield theirs4.infer_auto_device_map(
            module, memory, no_split_module_classes=tree.no_split,
            offload_buffers=tree.has_buffer_offload, fallback_allocation=tree.has_fallback)
    finally:
        theirs4.find_tied_parameters = FIND_TIED


def plan5(tree):
    module, groups = tree.module(False)
    memory = budgets(tree)
    no_split = set(tree.no_split)
    if tree.mode != "sequential":
        memory = theirs5.get_balanced_memory(
            module, memory, no_split_module_classes=no_split,
            low_zero=tree.mode == "balanced_low_0")
    yield theirs4.get_max_memory(dict(memory))
    yield theirs5.infer_auto_device_map(
        module, memory, no_split_module_classes=no_split,
        tied_parameters=[sorted(group) for group in groups] or [[]],
        offload_buffers=tree.has_buffer_offload,
        **({"no_placement_params": ["p"]} if tree.is_escaping else {}))


def words(mapping):
    return " ".join(f"{k}={v:.17g}" for k, v in mapping.items())


def real(plan, tree):
    MESSAGES.clear()
    device_map, balanced = None, {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            balanced, device_map = plan(tree)
            verdict = "ok"
        except Exception as error:  # what they raise is what is compared
            verdict = type(error).__name__
    for warning in caught:
        MESSAGES.take(str(warning.message))
    if verdict != "ok":
        return (verdict,)
    return (verdict, words(balanced),
            " ".join(sorted(f"{v}:{k}" for k, v in device_map.items())),
            str(MESSAGES.buffers),
            " ".join(f"{k}={v}" for k, v in sorted(MESSAGES.minimum.items()) if v != "0"))


def ours(line):
    fields = line.split("\t")
    if fields[0] != "ok":
        return (fields[0],)
    # mps, disk: whether a budget was given for the disk makes no difference to the map
    return (fields[0], fields[1].strip(), " ".join(sorted(fields[2].split(" ")[1:])),
            fields[3], " ".join(sorted(fields[4].split())))


# ----------------------------------------------------------------------- comparing

def main():
    program = os.path.join(os.environ["BERTH_BUILD"], "tests", "make_map")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20_261_121
    rng = random.Random(seed)
    trees = [Tree(rng) for _ in range(count)]
    failed = 0
    for era, plan in (("hf4", plan4), ("hf5", plan5)):
        text = "\n".join("\n".join(tree.record(era)) for tree in trees)
        lines = subprocess.run([program], input=text, capture_output=True,
                               text=True, check=True).stdout.splitlines()
        assert len(lines) == count, (len(lines), count)
        verdicts = {}
        for tree, line in zip(trees, lines):
            expected = real(plan, tree)
            verdicts[expected[0]] = verdicts.get(expected[0], 0) + 1
            if ours(line) != expected:
                failed += 1
                if failed <= 3:
                    print("\n".join(tree.record(era)))
                    print("theirs", *expected, sep="\n  ")
                    print("ours  ", *ours(line), sep="\n  ")
        print(f"note: {era}: {count} trees of seed {seed}: {verdicts}")
    print(f"t: {2 * count - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
