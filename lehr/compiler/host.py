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
from lehr.compiler.run.executable import ARENA, FAULT_WORDS, FIRST, Executable, evaluate
from lehr.compiler.weight import Packs, Weights
from lehr.tensor.leased import Layout
from lehr.tensor.tensor import Tensor

# dtype of a run-time number -> how it lies in a frame.
NUMBERS: dict[str, Any] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64,
    "int32": ctypes.c_int32, "bool": ctypes.c_bool}

MOST = 256      # sizes for which a host remembers how results are made

Frame = tuple[Any, list[tuple[int, Any]]]   # pointers; (input, place of its number)


class Host:
    """(inputs) -> results. Calls may overlap: each has a frame of its own.

    program  the compiled code; a call gives the sizes of its symbols
    numbers  which inputs are Python numbers
    bound    inputs whose tensors never change: their memory must outlive every call
    keep     whether those of them that are weights of products stay packed between calls
    """

    def __init__(self, program: Executable, numbers: Sequence[int],
                 bound: Mapping[int, Tensor] | None = None, keep: bool = False) -> None:
        self.program, self.numbers, self.bound = program, numbers, dict(bound or {})
        record = program.record
        sizes = [dt.named(p["dtype"]).itemsize for p in record["params"]]
        self.tensors = [(i, FIRST + i, size) for i, size in enumerate(sizes)
                        if i not in self.numbers and i not in self.bound]
        self.fixed = [(FIRST + i, t._storage.ptr + t._offset * sizes[i])
                      for i, t in self.bound.items()]
        self.symbols = program.symbols
        self.first = program.fault + FAULT_WORDS        # the place of the first size in a frame
        self.plans: dict[tuple[int, ...], Any] = {}
        self.results, self.scratch = ([], 0) if self.symbols else self.plan(())
        self.run, self.fault = program.run, program.fault
        self.weights = Weights.of(record, self.bound) if keep else None
        self.ready: Packs[Frame] = Packs()

    def plan(self, sizes: tuple[int, ...]) -> tuple[list[tuple[int, Layout]], int]:
        """How the results of a call of certain sizes are made, and the bytes of its arena."""
        found = self.plans.get(sizes)
        if found is None:
            record, known = self.program.record, dict(zip(self.symbols, sizes, strict=True))

            def of(several: Sequence[Any]) -> tuple[int, ...]:
                return tuple([evaluate(e, known) for e in several])
            results = [(n, Layout(dt.named(o["dtype"]), of(o["shape"]), of(o["strides"])))
                       for n, o in enumerate(record["outputs"], FIRST + self.program.params)]
            if len(self.plans) >= MOST:
                self.plans.clear()
            found = self.plans[sizes] = results, evaluate(record["arena"], known)
        return found

    def bind(self, bound: Mapping[int, Tensor], keep: bool = False) -> Host:
        """The same program with some inputs known."""
        return Host(self.program, self.numbers, bound, keep)

    def frame(self, packs: Packs[Frame]) -> Frame:
        """A frame for one call, with all that is the same in every call."""
        program = self.program
        p = (ctypes.c_void_p * (program.length + len(self.numbers)))()
        program.start(p, (0,) * len(self.symbols))
        numbers = []
        for n, i in enumerate(self.numbers, program.length):
            kind = NUMBERS[program.record["params"][i]["dtype"]]
            numbers.append((i, kind.from_buffer(p, 8 * n)))
            p[FIRST + i] = ctypes.addressof(p) + 8 * n
        for slot, address in (*self.fixed, *packs.slots):
            p[slot] = address
        return p, numbers

    def __call__(self, inputs: Sequence[Any], sizes: tuple[int, ...] = ()) -> list[Tensor]:
        ready = self.ready if self.weights is None else self.weights.now()
        try:
            frame = ready.pop()
        except IndexError:
            frame = self.frame(ready)
        p, numbers = frame
        for i, slot, size in self.tensors:
            t = inputs[i]
            s = t._storage
            p[slot] = (s._ptr or s.ptr) + t._offset * size
        for i, place in numbers:
            place.value = inputs[i]
        results, scratch = self.results, self.scratch
        if self.symbols:
            results, scratch = self.plan(sizes)
            p[self.first:self.first + len(sizes)] = sizes
        made = []
        for slot, layout in results:
            t = layout.make()
            p[slot] = t._storage._ptr
            made.append(t)
        if scratch:
            buffer = memory.host.lease(scratch)
            p[ARENA] = buffer.address
            try:
                self.run(p)
            finally:
                memory.host.release(buffer)
        else:
            self.run(p)
        if p[self.fault]:
            raise self.program.error(p)
        ready.append(frame)
        return made
