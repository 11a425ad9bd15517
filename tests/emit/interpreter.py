"""Runs emitted Triton on numpy, in Triton's interpreter, in a process of its own.

The interpreter is chosen when `triton` is imported, so the process must not have imported it
before. Repairs of the interpreter (none is needed on a GPU): products of bfloat16 numbers, rounding
to bfloat16, calls of libdevice, comparisons of numbers with blocks, folds and scans of whole arrays
at a time.
"""

from __future__ import annotations

import base64
import ctypes
import linecache
import math
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {"bool": np.bool_, "bfloat16": ml_dtypes.bfloat16}


class Worker:
    """The process; `run` returns a call's results and changes "ref" arguments in place."""

    def __init__(self) -> None:
        env = {**os.environ, "TRITON_INTERPRET": "1"}
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=env)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *rest: Any) -> None:
        self.close()

    def run(self, code: Any, args: list[Any], sizes: dict[str, int] | None = None
            ) -> list[np.ndarray]:
        """RuntimeError with the trace of a failure in there; IndexError from a failed check."""
        data = pickle.dumps((code.source, code.record, args, sizes or {}))
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(struct.pack("<Q", len(data)) + data)
        self.process.stdin.flush()
        (n,) = struct.unpack("<Q", self.process.stdout.read(8))
        kind, value, changed = pickle.loads(self.process.stdout.read(n))
        if kind == "fault":
            raised(value)
        if kind == "error":
            raise RuntimeError(value)
        for a, new in zip(args, changed, strict=True):
            if isinstance(a, np.ndarray):
                a[...] = new
        return list(value)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


# Inside the process


class Pointer:
    """Memory as a kernel argument: what the interpreter asks of a tensor."""

    def __init__(self, memory: np.ndarray, kind: str) -> None:
        self.memory, self.dtype = memory, kind

    def data_ptr(self) -> int:
        return self.memory.ctypes.data

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def copy_(self, other: Pointer) -> None:
        pass

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.memory.shape

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def new_empty(self, *a: Any, device: Any = None) -> Pointer:
        return Pointer(self.memory, self.dtype)

    def set_(self, storage: Pointer, *rest: Any) -> Pointer:
        self.memory = storage.memory
        return self


def functions(source: str) -> dict[str, Any]:
    """The module that a source makes."""
    name = f"<triton {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec"), space)
    space["libdevice"] = Device()
    return space


class Device:
    """In the place of libdevice: numpy's functions."""

    def __getattr__(self, name: str) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        def call(*values: Any) -> Any:
            dtype = values[0].handle.data.dtype
            with np.errstate(all="ignore"):
                made = np.asarray(EXTERNS[name](*(v.handle.data for v in values))).astype(dtype)
            scalar = values[0].dtype
            kind = tl.block_type(scalar, list(made.shape)) if any(
                v.type.is_block() for v in values) else scalar
            return tl.tensor(TensorHandle(made, scalar), kind)
        return call


def raised(fault: tuple[str, str, int, int]) -> None:
    """The error of a failed check: its kind, the user's line, what explains it."""
    what, line, index, bound = fault
    at = f" (at {line})" if line else ""
    if what == "division":
        raise ZeroDivisionError(f"integer division by zero{at}")
    raise IndexError(f"index {index} is out of bounds for a dimension of size {bound}{at}")


class Call:
    """The memory of one call of a record, on the host: `slots`, `fault`, and sizes."""

    def __init__(self, record: dict[str, Any], args: list[Any], sizes: dict[str, int]) -> None:
        self.record, self.args, self.known = record, args, sizes
        for p, a in zip(record["params"], args, strict=True):
            for text, n in zip(p["shape"], getattr(a, "shape", ()), strict=False):
                if isinstance(text, str) and text.isidentifier():
                    self.known[text] = n
        self.params = [self.memory(p, a) for p, a in zip(record["params"], args, strict=True)]
        self.outputs = [self.memory(o) for o in record["outputs"]]
        constants = [self.memory(c, np.frombuffer(base64.b64decode(c["data"]), TYPES.get(
            c["dtype"], c["dtype"])).reshape([self.size(n) for n in c["shape"]]))
            for c in record["constants"]]
        self.slots = [raw for raw, _ in (*self.params, *self.outputs, *constants)]
        self.fault = np.zeros(1 + 2 * len(record["faults"]), np.int64)

    def size(self, e: Any) -> int:
        return e if isinstance(e, int) else eval(e, {"min": min, "max": max}, self.known)

    def memory(self, d: dict[str, Any], fill: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """(memory, its view in logical shape)."""
        dtype = np.dtype(TYPES.get(d["dtype"], d["dtype"]))
        shape = [self.size(n) for n in d["shape"]]
        strides = [self.size(n) for n in d["strides"]] if d.get("strides") is not None else [
            math.prod(shape[i + 1:]) for i in range(len(shape))]
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        length = max(span, 1) * dtype.itemsize
        raw = np.full(length + 16, 0x5B, np.uint8)
        raw = raw[-raw.ctypes.data % 16:][:length]
        if dtype == np.bool_:
            raw[:] = 0
        view = np.lib.stride_tricks.as_strided(raw.view(dtype), shape,
                                               [s * dtype.itemsize for s in strides])
        if fill is not None:
            view[...] = fill
        return raw, view

    def failed(self, tell: Callable[[Any], Any]) -> Any:
        """What `tell` makes of a failed check; None where none failed."""
        if not self.fault[0]:
            return None
        place = int(self.fault[0]) + (1 << 31)
        return tell((*self.record["faults"][place], *self.fault[2 * place + 1:][:2].tolist()))

    def results(self) -> list[np.ndarray]:
        return [np.array(view) for _, view in self.outputs]

    def after(self) -> list[Any]:
        """The arguments as the call left them."""
        return [np.array(view) if isinstance(a, np.ndarray) else a
                for (_, view), a in zip(self.params, self.args, strict=True)]


def execute(source: str, record: dict[str, Any], args: list[Any], sizes: dict[str, int]
            ) -> tuple[str, Any, list[Any]]:
    """("done", results, args after) or ("fault", its entry, nothing)."""
    call = Call(record, args, sizes)
    arena = np.full(call.size(record["arena"]) + 64, 0x5B, np.uint8)
    arena = arena[-arena.ctypes.data % 64:]
    module = functions(source)

    def argument(a: Any, kind: str) -> Any:
        if a == "fault":
            return Pointer(call.fault, "i64")
        if isinstance(a, dict):
            return call.size(a["size"])
        if a[0] == "slot":
            return Pointer(call.slots[a[1] - 4], kind[1:])
        return Pointer(arena[call.size(a[1]):], kind[1:])

    for step in record["steps"]:
        facts = record["functions"][step["launch"]]
        given = [argument(a, k) for a, k in zip(step["args"], facts["types"], strict=True)]
        for n in facts["aligned"]:
            value = given[n]
            assert (value.data_ptr() if isinstance(value, Pointer) else value) % 16 == 0, (
                step["launch"], n)
        programs = call.size(step["programs"])
        if programs:
            module[step["launch"]][(programs,)](*given, **facts["constants"])
        fault = call.failed(lambda entry: entry)
        if fault is not None:
            return "fault", fault, []
    return "done", call.results(), call.after()


def repair() -> None:
    """What the interpreter gets wrong or does not have."""
    import triton.language as tl
    from triton.runtime import interpreter as I

    def plain(h: Any) -> np.ndarray:
        if h.dtype.scalar == tl.bfloat16:
            return (h.data.astype(np.uint32) << 16).view(np.float32)
        return h.data

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, most: Any) -> Any:
        made = np.matmul(plain(a), plain(b), dtype=d.data.dtype) + d.data
        return I.TensorHandle(made, d.dtype.scalar)

    def convert(x: np.ndarray, src: Any, dst: Any, mode: Any) -> np.ndarray:
        if dst == tl.bfloat16 and src == tl.float32:
            return np.ascontiguousarray(x).astype(ml_dtypes.bfloat16).view(np.uint16)
        if dst == tl.float32 and src == tl.bfloat16:
            return (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << 16)
        return old(x, src, dst, mode)

    def generic_reduce(self: Any, given: Any) -> list[Any]:
        state, axis = [t.handle.data for t in given], self.axis
        n = state[0].shape[axis]
        while n > 1:  # blocks have a power of two
            halves = [np.split(s, 2, axis) for s in state]
            state = combined(self, given, [h[0] for h in halves], [h[1] for h in halves])
            n //= 2
        if not self.keep_dims:
            state = [np.take(s, 0, axis) for s in state]
        return [self.to_tensor(s, t.dtype) for s, t in zip(state, given, strict=True)]

    def generic_scan(self: Any, given: Any) -> list[Any]:
        state, axis, step = [t.handle.data for t in given], self.axis, 1
        n = state[0].shape[axis]
        place = np.arange(n).reshape([-1 if d == axis else 1 for d in range(state[0].ndim)])
        while step < n:  # after each round, element i holds the last 2 * step elements
            joined = combined(self, given, [np.roll(s, step, axis) for s in state], state)
            state = [np.where(place < step, *pair) for pair in zip(state, joined, strict=True)]
            step *= 2
        return [self.to_tensor(s, t.dtype) for s, t in zip(state, given, strict=True)]

    def combined(self: Any, given: Any, left: Any, right: Any) -> list[np.ndarray]:
        both = [self.to_tensor(x, t.dtype) for side in (left, right)
                for x, t in zip(side, given, strict=True)]
        made = self.combine_fn.fn(*both)
        return [m.handle.data for m in (made if isinstance(made, tuple) else (made,))]

    def splat(self: Any, kind: Any, arg: Any) -> Any:
        # The handle of a comparison has the dtype of what is compared.
        return I.TensorHandle(np.full(kind.shape, arg.data.reshape(-1)[0], arg.data.dtype),
                              arg.dtype.scalar)

    def ones(self: Any, kind: Any) -> Any:
        scalar = kind.scalar
        dtype = np.bool_ if scalar == tl.int1 else np.dtype(str(scalar))
        return I.TensorHandle(~np.zeros(1, dtype), scalar)

    def set_attr(self: Any, where: Any, name: str, value: Any) -> None:
        if name == "__index__":  # numpy 2.4 takes no array of one element for a number
            value = lambda t: int(t.handle.data.reshape(-1)[0])
        before(self, where, name, value)

    old, before = I._convert_float, I._LangPatchScope.set_attr
    I._LangPatchScope.set_attr = set_attr
    I._convert_float = convert
    builder = I.InterpreterBuilder
    builder.create_dot, builder.create_splat = create_dot, splat
    builder.get_all_ones_value = ones
    I.ReduceOps.generic_reduce, I.ScanOps.generic_scan = generic_reduce, generic_scan


def _special(name: str) -> Any:
    lib = ctypes.CDLL("libm.so.6")
    function = getattr(lib, name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    return np.vectorize(function, otypes=[np.float64])


EXTERNS = {n: getattr(np, n) for n in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "rint", "trunc", "copysign", "hypot", "fmod")}
EXTERNS |= {n.replace("arc", "a"): getattr(np, n) for n in (
    "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "arctan2")}
EXTERNS |= {"pow": np.power}
EXTERNS |= {n: _special(n) for n in ("erf", "erfc", "lgamma")}


def main() -> None:
    import traceback
    repair()
    back = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints do not mix with answers
    while head := sys.stdin.buffer.read(8):
        data = sys.stdin.buffer.read(struct.unpack("<Q", head)[0])
        try:
            with np.errstate(all="ignore"):
                answer = execute(*pickle.loads(data))
        except Exception:
            answer = ("error", traceback.format_exc(), [])
        data = pickle.dumps(answer)
        back.write(struct.pack("<Q", len(data)) + data)
        back.flush()


if __name__ == "__main__":
    main()
