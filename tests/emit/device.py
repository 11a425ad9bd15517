"""Runs emitted Triton on an NVIDIA GPU through the driver's own C interface: for tests of kernels,
with no memory pool, no graphs, a copy in and a copy out for each call."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from lehr.compiler.run import cubin
from lehr.compiler.run.cache import store
from tests.emit import interpreter

_MOST_SHARED, _PRIMARY = 8, 0  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, device 0


@functools.cache
def driver() -> Any:
    """The driver library with the first GPU's context current; None where there is none."""
    try:
        lib = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if lib.cuInit(0) or lib.cuDeviceGet(ctypes.byref(device), _PRIMARY):
        return None
    check(lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(lib.cuCtxSetCurrent(context))
    return lib


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA driver error {status}")


@functools.cache
def architecture() -> int:
    """The device's compute capability: 90 for 9.0."""
    parts = []
    for attribute in (75, 76):  # major, minor
        n = ctypes.c_int()
        check(driver().cuDeviceGetAttribute(ctypes.byref(n), attribute, _PRIMARY))
        parts.append(n.value)
    return 10 * parts[0] + parts[1]


class Memory:
    """Device memory of so many bytes."""

    def __init__(self, size: int) -> None:
        pointer = ctypes.c_uint64()
        check(driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(max(size, 16))))
        self.pointer, self.size = pointer.value, size

    def put(self, data: np.ndarray) -> None:
        check(driver().cuMemcpyHtoD_v2(ctypes.c_uint64(self.pointer), ctypes.c_void_p(
            data.ctypes.data), ctypes.c_size_t(data.nbytes)))

    def get(self, data: np.ndarray) -> None:
        check(driver().cuMemcpyDtoH_v2(ctypes.c_void_p(data.ctypes.data), ctypes.c_uint64(
            self.pointer), ctypes.c_size_t(data.nbytes)))

    def __del__(self) -> None:
        driver().cuMemFree_v2(ctypes.c_uint64(self.pointer))


class Function:
    """A cubin's entry, ready to launch."""

    def __init__(self, made: cubin.Cubin) -> None:
        lib, module, self.entry = driver(), ctypes.c_void_p(), ctypes.c_void_p()
        check(lib.cuModuleLoadData(ctypes.byref(module), made.image))
        check(lib.cuModuleGetFunction(ctypes.byref(self.entry), module, made.name.encode()))
        if made.shared > 48 << 10:
            check(lib.cuFuncSetAttribute(self.entry, _MOST_SHARED, made.shared))
        assert made.scratch == 0, "a kernel with global scratch memory"
        self.made = made

    def __call__(self, programs: int, args: list[int]) -> None:
        values = [{"i32": ctypes.c_int32, "i64": ctypes.c_int64}.get(t, ctypes.c_uint64)(a)
                  for t, a in zip(self.made.types, args, strict=True)]
        values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
        array = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        check(driver().cuLaunchKernel(self.entry, programs, 1, 1, 32 * self.made.warps, 1, 1,
                                      self.made.shared, None, array, None))


@functools.cache
def _function(source: str, name: str, facts: str) -> Function:
    made = cubin.compile_cubin(source, name, eval(facts), architecture(), store())
    return Function(made)


class Device:
    """What `interpreter.Worker` is, on the GPU."""

    def run(self, code: Any, args: list[Any], sizes: Mapping[str, int] | None = None
            ) -> list[np.ndarray]:
        call = interpreter.Call(code.record, args, dict(sizes or {}))
        slots = []
        for raw in call.slots:
            slots.append(Memory(raw.nbytes))
            slots[-1].put(raw)
        arena, fault = Memory(call.size(code.record["arena"]) + 64), Memory(call.fault.nbytes)
        fault.put(call.fault)

        def argument(a: Any) -> int:
            if a == "fault":
                return fault.pointer
            if isinstance(a, dict):
                return call.size(a["size"])
            if a[0] == "slot":
                return slots[a[1] - 4].pointer
            return arena.pointer + call.size(a[1])

        for step in code.record["steps"]:
            facts = code.record["functions"][step["launch"]]
            programs = call.size(step["programs"])
            if programs:
                _function(code.source, step["launch"], repr(facts))(
                    programs, list(map(argument, step["args"])))
        check(driver().cuCtxSynchronize())
        for memory, raw in zip(slots, call.slots, strict=True):
            memory.get(raw)
        fault.get(call.fault)
        call.failed(interpreter.raised)
        for a, new in zip(args, call.after(), strict=True):
            if isinstance(a, np.ndarray):
                a[...] = new
        return call.results()

    def close(self) -> None:
        pass
