#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors lent by berth as DLPack, taken by NumPy and, where there is one, by torch.

    dlpack_take.py          (BERTH_BUILD names the folder of the build)

A model is loaded with the library itself, through ctypes; every tensor is taken without a copy and
compared with what safetensors reads. The model is destroyed while they are still held.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("BERTH_BUILD", ROOT / "build"))
CAPSULE = b"dltensor_versioned"
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned, as far as it is looked at here."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
                ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class Lent:
    """What from_dlpack() takes."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __dlpack__(self, **_):
        return api.PyCapsule_New(self.pointer, CAPSULE, None)

    def __dlpack_device__(self):
        managed = ctypes.cast(self.pointer, ctypes.POINTER(Managed)).contents
        return managed.device_type, managed.device_id


class Model:
    """A checkpoint, loaded into host memory."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(BUILD / "libberth.so"))
        self.lib.berth_model_find.restype = ctypes.c_uint64
        self.context, self.checkpoint = ctypes.c_void_p(), ctypes.c_void_p()
        self.plan, self.model, job = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("berth_context_create", None, ctypes.byref(self.context))
        self.call("berth_checkpoint_open", self.context, str(path).encode(), None,
                  ctypes.byref(self.checkpoint))
        plan = path.parent / "plan.json"
        subprocess.run([BUILD / "berth", "plan", path, "-m", "cpu=1GiB", "-o", plan],
                       check=True, capture_output=True)
        self.call("berth_plan_open", self.context, str(plan).encode(),
                  ctypes.byref(self.plan))
        self.call("berth_load_start", self.context, self.checkpoint, self.plan, None,
                  ctypes.byref(job))
        self.call("berth_load_finish", job, ctypes.byref(self.model))

    def call(self, name, *arguments):
        """Calls what takes a berth_error last."""
        error, line = ctypes.create_string_buffer(16384), ctypes.create_string_buffer(4096)
        if getattr(self.lib, name)(*arguments, error) != 0:
            self.lib.berth_error_format(error, line, ctypes.c_size_t(len(line)))
            raise RuntimeError(f"{name}: {line.value.decode()}")

    def lend(self, name):
        text = name.encode()
        berth = self.lib.berth_model_find(self.model, text, ctypes.c_size_t(len(text)))
        lent = ctypes.c_void_p()
        self.call("berth_model_dlpack", self.model, ctypes.c_uint64(berth), 0,
                  ctypes.byref(lent))
        return Lent(lent.value)

    def destroy(self):
        self.lib.berth_model_destroy(self.model)

    def close(self):
        self.lib.berth_plan_destroy(self.plan)
        self.lib.berth_checkpoint_close(self.checkpoint)
        self.lib.berth_context_destroy(self.context)


def tensors(np):
    """One of each dtype that NumPy has, of several ranks."""
    values = np.random.default_rng(1)
    kinds = ["float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8"]
    return {f"model.layers.{i}.mlp.{kind}.weight":
            (values.standard_normal((4 + i, 3, 5)[: 1 + i % 3]) * 50).astype(kind)
            for i, kind in enumerate(kinds)}


def compare(model, expected, take, same):
    held = {name: take(model.lend(name)) for name in expected}
    failed = sum(not same(held[name], value) for name, value in expected.items())
    model.destroy()
    failed += sum(not same(held[name], value) for name, value in expected.items())
    held.clear()
    model.close()
    return failed


def with_numpy(folder):
    import numpy as np
    from safetensors.numpy import save_file

    expected = tensors(np)
    save_file(expected, folder / "model.safetensors")
    return compare(Model(folder / "model.safetensors"), expected, np.from_dlpack,
                   lambda a, b: a.dtype == b.dtype and a.shape == b.shape
                   and not a.flags.writeable and np.array_equal(a, b))


def with_torch(folder):
    import torch
    from safetensors.torch import save_file

    expected = {f"model.layers.{i}.mlp.up_proj.weight": torch.randn(7, 5 + i).to(dtype)
                for i, dtype in enumerate([torch.bfloat16, torch.float16, torch.float32])}
    save_file(expected, folder / "model.safetensors")
    return compare(Model(folder / "model.safetensors"), expected, torch.from_dlpack,
                   lambda a, b: a.dtype == b.dtype and torch.equal(a, b))


def main():
    ways = {"numpy": with_numpy, "torch": with_torch}
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(ways[sys.argv[1]](Path(folder)))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    pythons = {"numpy": sys.executable, "torch": os.environ.get("BERTH_MODELS_PYTHON", "")}
    for way, python in pythons.items():
        if not python:
            print(f"skipped: no Python environment with {way}")
            counts["skipped"] += 1
            continue
        code = subprocess.run([python, __file__, way], check=False).returncode
        print(f"{'ok' if code == 0 else 'FAILED'}: {way}.from_dlpack")
        counts["passed" if code == 0 else "failed"] += 1
    print("t: " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    sys.exit(counts["failed"] > 0)


main()
