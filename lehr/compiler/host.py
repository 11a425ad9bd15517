"""The host's side of a compiled program: addresses in, memory for results, one foreign call.

A `Host` keeps frames, arrays of pointers that a call fills and hands to the code. `bind` gives a
`Host` whose frames already point to some of the inputs (parameters, say), so that a call costs
what the others cost.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.run import memory
from lehr.compiler.run.executable import ARENA, FIRST, Executable
from lehr.tensor.leased import Layout
from lehr.tensor.tensor import Tensor

# dtype of a run-time number -> how it lies in a frame.
NUMBERS: dict[str, Any] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64,
    "int32": ctypes.c_int32, "bool": ctypes.c_bool}

Frame = tuple[Any, list[tuple[int, Any]]]   # pointers; (input, place of its number)


class Host:
    """(inputs) -> results. Calls may overlap: each has a frame of its own.

    program  the compiled code, of static sizes
    numbers  which inputs are Python numbers
    bound    inputs whose tensors never change: their memory must outlive every call
    """

    def __init__(self, program: Executable, numbers: Sequence[int],
                 bound: Mapping[int, Tensor] | None = None) -> None:
        self.program, self.numbers, self.bound = program, numbers, dict(bound or {})
        record = program.record
        sizes = [dt.named(p["dtype"]).itemsize for p in record["params"]]
        self.tensors = [(i, FIRST + i, size) for i, size in enumerate(sizes)
                        if i not in self.numbers and i not in self.bound]
        self.fixed = [(FIRST + i, t._storage.ptr + t._offset * sizes[i])
                      for i, t in self.bound.items()]
        self.results = [
            (n, Layout(dt.named(o["dtype"]), tuple(o["shape"]), tuple(o["strides"])))
            for n, o in enumerate(record["outputs"], FIRST + len(sizes))]
        self.scratch: int = record["arena"]
        self.run, self.fault = program.run, program.fault
        self.ready: list[Frame] = []

    def bind(self, bound: Mapping[int, Tensor]) -> Host:
        """The same program with some inputs known."""
        return Host(self.program, self.numbers, bound)

    def frame(self) -> Frame:
        """A frame for one call, with all that is the same in every call."""
        program = self.program
        p = (ctypes.c_void_p * (program.length + len(self.numbers)))()
        program.start(p, ())
        numbers = []
        for n, i in enumerate(self.numbers, program.length):
            kind = NUMBERS[program.record["params"][i]["dtype"]]
            numbers.append((i, kind.from_buffer(p, 8 * n)))
            p[FIRST + i] = ctypes.addressof(p) + 8 * n
        for slot, address in self.fixed:
            p[slot] = address
        return p, numbers

    def __call__(self, inputs: Sequence[Any]) -> list[Tensor]:
        try:
            frame = self.ready.pop()
        except IndexError:
            frame = self.frame()
        p, numbers = frame
        for i, slot, size in self.tensors:
            t = inputs[i]
            s = t._storage
            p[slot] = (s._ptr or s.ptr) + t._offset * size
        for i, place in numbers:
            place.value = inputs[i]
        made = []
        for slot, layout in self.results:
            t = layout.make()
            p[slot] = t._storage._ptr
            made.append(t)
        if self.scratch:
            buffer = memory.host.lease(self.scratch)
            p[ARENA] = buffer.address
            try:
                self.run(p)
            finally:
                memory.host.release(buffer)
        else:
            self.run(p)
        if p[self.fault]:
            raise self.program.error(p)
        self.ready.append(frame)
        return made
