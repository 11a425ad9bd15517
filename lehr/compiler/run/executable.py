"""Compiled calls: a record (`lehr.compiler.emit.host` says what is in it) and a library, run.

A call leases a frame: one ctypes array that holds all pointers, and behind them the fault record
and the sizes, so that a call costs one foreign call a segment and little else. Calls may overlap
(threads, re-entrance): each has its own frame, arena and results.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.base.options import Options
from lehr.compiler.run import library, memory, pool, template

# Slots of the pointer array, as `emit.host` numbers them.
ARENA, RUNTIME, SIZES, FAULT, FIRST = range(5)
FAULT_WORDS = 4  # kind, place, value, bound
HostCall = Callable[[str, tuple[Any, ...]], Any]


class Spent(NamedTuple):
    """Seconds of all `calls` of one step; `lines`: the user's, as `file:line`. `least`: bytes that
    its kernels must move in a call, `moved`: those that they do, `why` more (0 where it is not
    known: calls of libraries, symbolic sizes)."""

    name: str
    lines: tuple[str, ...]
    calls: int
    seconds: float
    least: int = 0
    moved: int = 0
    why: tuple[str, ...] = ()


class Executable:
    """A compiled program.

    `record`    the record of the call
    `library`   its loaded code
    `host_call` runs an op's eager kernel: (op name, arguments with arrays for tensors) -> array or
                tuple of arrays
    """

    def __init__(self, record: Mapping[str, Any], library: library.Library,
                 host_call: HostCall | None = None) -> None:
        self.record, self.library, self.host_call = record, library, host_call
        self.name: str = record["name"]
        self.symbols: list[str] = list(record["symbols"])
        self.params = len(record["params"])
        self._outputs = [dt.named(o["dtype"]).np for o in record["outputs"]]
        self._constants = [_constant(c) for c in record["constants"]]
        slots = (FIRST + self.params + len(self._outputs) + len(self._constants)
                 + len(record.get("weights", ())))
        self._end = FIRST + self.params
        self.fault = slots
        self.length = slots + FAULT_WORDS + len(self.symbols)
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self._steps = [self._step(s) for s in record["steps"]]
        alone = len(self._steps) == 1 and "segment" in record["steps"][0]
        self.run: Callable[[Any], None] = self._steps[0] if alone else self._all
        self._static = self._plan(()) if not self.symbols else None

    def __call__(self, pointers: Sequence[int], sizes: Sequence[int] = ()) -> list[memory.Buffer]:
        """Run: `pointers` are the addresses of the params in order, `sizes` the values of
        `symbols`. The result is a leased buffer for each output, to be released by whoever drops
        it last; see `arrays`. IndexError, RuntimeError where the program stopped."""
        plan = self._static or self._plan(tuple(sizes))
        arena = plan.arena
        frame = arena.lease()
        p = frame.pointers
        if p[FAULT] is None:
            self.start(p, sizes)
        end = self._end
        p[FIRST:end] = pointers
        lease = memory.host.lease
        made = []
        try:
            for n, size in plan.outputs:
                buffer = lease(size)
                p[n] = buffer.address
                made.append(buffer)
            self.run(p)
            if p[self.fault]:
                raise self.error(p)
        except BaseException:
            for buffer in made:
                memory.host.release(buffer)
            raise
        finally:
            arena.release(frame)
        return made

    def arrays(self, buffers: Sequence[memory.Buffer], sizes: Sequence[int] = ()) -> list[Any]:
        """The outputs of a call as numpy arrays of their shapes and strides."""
        plan = self._static or self._plan(tuple(sizes))
        return [np.ndarray(shape, dtype, b.array, 0, strides) for b, dtype, (shape, strides)
                in zip(buffers, self._outputs, plan.shapes, strict=True)]

    def spent(self) -> list[Spent]:
        """What the steps took in all calls but the first (where there are more), of a program that
        was compiled with `options={"profile": True}`."""
        clocks = self.record.get("clocks", ())
        if not clocks:
            return []
        calls = ctypes.c_int64.in_dll(self.library.handle, "lehr_calls").value
        total = (ctypes.c_int64 * len(clocks)).in_dll(self.library.handle, "lehr_spent")
        return [Spent(c["name"], tuple(c["lines"]), max(1, calls - 1), nanoseconds / 1e9,
                      c["least"], c["moved"], tuple(c["why"]))
                for c, nanoseconds in zip(clocks, total, strict=True)]

    def _all(self, p: Any) -> None:
        """The steps of a program that is more than one segment."""
        for step in self._steps:
            step(p)
            if p[self.fault]:
                break

    def start(self, p: Any, sizes: Sequence[int]) -> None:
        """Fills what never changes into a new frame."""
        template.load(self.record)
        here = ctypes.addressof(p)
        p[RUNTIME] = pool.pool().table
        p[FAULT] = here + 8 * self.fault
        p[SIZES] = here + 8 * (self.fault + FAULT_WORDS)
        for n, value in enumerate(sizes, self.fault + FAULT_WORDS):
            p[n] = value
        for n, array in enumerate(self._constants, self._end + len(self._outputs)):
            p[n] = array.ctypes.data

    def _plan(self, sizes: tuple[int, ...]) -> _Plan:
        found = self._plans.get(sizes)
        if found is None:
            if len(sizes) != len(self.symbols):
                raise TypeError(f"{self.name} takes {len(self.symbols)} sizes, not {len(sizes)}")
            if len(self._plans) >= 64:
                self._plans.clear()
            found = self._plans[sizes] = _Plan(self, dict(zip(self.symbols, sizes, strict=True)))
        return found

    def _step(self, step: Mapping[str, Any]) -> Callable[[Any], None]:
        if "segment" in step:
            return self.library.entry(step["segment"])
        if self.host_call is None:
            raise TypeError(f"{self.name} calls the host's {step['host']}; give a host_call")
        return _Host(self, step)

    def values(self, p: Any) -> dict[str, int]:
        """The sizes of the call whose frame this is."""
        first = self.fault + FAULT_WORDS
        return {name: p[first + n] or 0 for n, name in enumerate(self.symbols)}

    def error(self, p: Any) -> Exception:
        """What the fault record says, which is cleared."""
        kind, place, value, bound = (p[self.fault + n] or 0 for n in range(FAULT_WORDS))
        for n in range(FAULT_WORDS):
            p[self.fault + n] = None
        _, at = self.record["faults"][place]
        where = f" (at {at})" if at else ""
        if kind == 2:
            return RuntimeError(f"ZeroDivisionError{where}")
        if kind == 3:
            return RuntimeError(f"oneDNN left a matrix product or a convolution undone{where}; "
                                "library='openblas' does without it")
        value, bound = (v - (1 << 64) if v >> 63 else v for v in (value, bound))
        return IndexError(f"index {value} is out of bounds for a dimension of size {bound}{where}")


class _Plan:
    """What depends on the sizes: arena, (slot, bytes) and (shape, byte strides) of the outputs."""

    __slots__ = ("arena", "outputs", "shapes")

    def __init__(self, executable: Executable, sizes: Mapping[str, int]) -> None:
        record = executable.record
        total = evaluate(record["arena"], sizes)
        self.arena = memory.Arena(memory.host, total, executable.length, ARENA)
        self.outputs: list[tuple[int, int]] = []
        self.shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for n, o in enumerate(record["outputs"], FIRST + executable.params):
            shape = tuple(evaluate(e, sizes) for e in o["shape"])
            item = dt.named(o["dtype"]).itemsize
            strides = tuple(evaluate(e, sizes) for e in o["strides"])
            span = 1 + sum((k - 1) * s for k, s in zip(shape, strides, strict=True))
            self.outputs.append((n, 0 if 0 in shape else span * item))
            self.shapes.append((shape, tuple(s * item for s in strides)))


class _Host:
    """A host call between two segments."""

    def __init__(self, executable: Executable, step: Mapping[str, Any]) -> None:
        self.executable, self.step = executable, step

    def __call__(self, p: Any) -> None:
        executable, step = self.executable, self.step
        assert executable.host_call is not None
        sizes = executable.values(p)
        args = tuple(_argument(a, p, sizes) for a in step["args"])
        made = executable.host_call(step["host"], args)
        made = made if isinstance(made, tuple) else (made,)
        for out, value in zip(step["outputs"], made, strict=True):
            _view(out, p, sizes)[...] = value


def _argument(a: Any, p: Any, sizes: Mapping[str, int]) -> Any:
    if not isinstance(a, dict):
        return a
    kind, value = next(iter(a.items()))
    return _ARGUMENTS[kind](a, value, p, sizes)


_ARGUMENTS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "tensor": lambda a, v, p, sizes: _view(v, p, sizes).copy(),
    "number": lambda a, v, p, sizes: _view(
        {"place": v, "dtype": a["dtype"], "shape": (), "strides": ()}, p, sizes).item(),
    "tuple": lambda a, v, p, sizes: tuple(_argument(x, p, sizes) for x in v),
    "size": lambda a, v, p, sizes: evaluate(v, sizes),
    "float": lambda a, v, p, sizes: float(v),
    "complex": lambda a, v, p, sizes: complex(v),
    "dtype": lambda a, v, p, sizes: dt.named(v),
    "device": lambda a, v, p, sizes: Device(v),
}


def _view(t: Mapping[str, Any], p: Any, sizes: Mapping[str, int]) -> Any:
    """A tensor of the record as a numpy array on its memory."""
    dtype = dt.named(t["dtype"]).np
    shape = tuple(evaluate(e, sizes) for e in t["shape"])
    if 0 in shape:
        return np.empty(shape, dtype)
    kind, at, *shift = t["place"]
    base = p[ARENA] + evaluate(at, sizes) if kind == "arena" else p[at]
    base += evaluate(shift[0], sizes) if shift else 0
    strides = tuple(evaluate(e, sizes) * dtype.itemsize for e in t["strides"])
    span = dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory_ = (ctypes.c_char * span).from_address(base)
    return np.ndarray(shape, dtype, memory_, 0, strides)


def _constant(c: Mapping[str, Any]) -> Any:
    data = base64.b64decode(c["data"])
    padded = np.zeros(max(len(data), 64), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    return padded


_codes: dict[str, Any] = {}


def evaluate(e: int | str, sizes: Mapping[str, int]) -> int:
    """A size of the record: a number, or text over the symbols."""
    if isinstance(e, int):
        return e
    code = _codes.get(e)
    if code is None:
        code = _codes[e] = compile(e, "<size>", "eval")
    return int(eval(code, {"__builtins__": {}, "min": min, "max": max}, dict(sizes)))


def build(sources: Sequence[str], record: Mapping[str, Any], host_call: HostCall | None = None,
          options: Options | None = None, flags: Sequence[str] = ()) -> Executable:
    """Compile C sources (or fetch them from the cache) and load them. Raises what `library.build`
    does."""
    if not sources or not record["steps"]:
        return Executable(record, library.nothing(), host_call)
    built = library.build(list(sources), record["name"], options, tuple(flags))
    return Executable(record, built, host_call)
