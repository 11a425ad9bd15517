"""Programs of the loop IR compiled to C and called with numpy arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from lehr.base import sym
from lehr.compiler.emit import c
from lehr.compiler.loop.ir import Program
from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.verify import verify
from lehr.compiler.run import executable, library, memory, pool
from lehr.ops import execute, families, registry

assert families.FAMILIES


def host_call(op: str, args: tuple[Any, ...]) -> Any:
    return execute.run(registry.get(op), args)


def completed(program: str) -> str:
    """The text with the last argument of `add.f32(a, b)` and `sub.f32(a, b)` filled in: alpha."""
    place = 0
    while (found := _SUMS.search(program, place)) is not None:
        place = end = found.end()
        depth, commas = 1, 0
        while depth:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(program[end], 0)
            commas += depth == 1 and program[end] == ","
            end += 1
        if commas == 1:
            one = "1.0" if found[1][0] == "f" else "1"
            program = f"{program[:end - 1]}, {found[1]}({one}){program[end - 1:]}"
    return program


_SUMS = re.compile(r"\b(?:add|sub)\.(\w+)\(")


class Compiled:
    """A program, its C and its executable."""

    def __init__(self, program: Program | str, plan: Any = None) -> None:
        self.program = program if isinstance(program, Program) else read(program)
        verify(self.program)
        self.code = c.emit(self.program, plan, pool.header())
        self.run = executable.build(self.code.sources, self.code.record, host_call, flags=c.FLAGS)

    @property
    def text(self) -> str:
        return "\n".join(self.code.sources)

    def function(self, name: str) -> str:
        """The C of one kernel."""
        start = self.text.index(f"static void {name}(")
        return self.text[start: self.text.index("\n}\n", start) + 3]

    def __call__(self, *args: Any) -> list[Any]:
        """The results; "ref" arguments are arrays and are written."""
        sizes: dict[Any, int] = {}
        for b, a in zip(self.program.params, args, strict=True):
            for want, have in zip(b.shape, getattr(a, "shape", ()), strict=False):
                if isinstance(want, sym.Var):
                    sizes.setdefault(want, have)
        held = [memory_of(b, a, sizes) for b, a in zip(self.program.params, args, strict=True)]
        values = [sizes[s] for s in self.program.symbols]
        made = self.run([raw.ctypes.data for raw, _ in held], values)
        out = [a.copy() for a in self.run.arrays(made, values)]
        for buffer in made:
            memory.host.release(buffer)
        for b, a, (_, view) in zip(self.program.params, args, held, strict=True):
            if b.role == "ref":
                a[...] = view
        return out


def read(program: str) -> Program:
    return parse_program(completed(program))


def memory_of(b: Any, a: Any, sizes: dict[Any, int]) -> tuple[Any, Any]:
    """(memory in the layout of a param, a view of its shape) holding `a`."""
    shape = [sym.evaluate(n, sizes) for n in b.shape]
    strides = [sym.evaluate(n, sizes) for n in b.strides]
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    raw = np.zeros(max(span, 1), b.dtype.np)
    view = np.lib.stride_tricks.as_strided(raw, shape, [s * raw.itemsize for s in strides])
    view[...] = np.asarray(a, b.dtype.np)
    return raw, view


def text(params: str, buffers: Sequence[str], body: str, results: str) -> str:
    """The text of a program `p`."""
    lines = "\n".join(f"  {line}" for line in buffers)
    return f"program p({params}) {{\n{lines}\n{body}\n  return {results}\n}}".replace(
        "return \n", "return\n")


def build_c(body: str, name: str) -> library.Library:
    """C functions `void f(void **)` that name what they need of the prelude."""
    from lehr.compiler.emit import header

    source = "\n".join(("#include <stdint.h>", header.prelude([body]), body))
    return library.build([source], name, extra=c.FLAGS)
