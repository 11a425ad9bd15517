"""What decides a kernel's C: its structure, with buffers numbered as they are met.

Equal layers have kernels of equal signatures, and the C is written for the first of them alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from lehr.compiler.loop.ir import Axis, Buffer, Expr, Kernel


class _Numbers:
    """Numbers of buffers and of values; `rows` describes the values, in the order of theirs."""

    def __init__(self) -> None:
        self.buffers: dict[Buffer, int] = {}
        self.values: dict[Expr, int] = {}
        self.rows: list[Hashable] = []

    def of(self, field: Any) -> Hashable:
        """A field of a value, a store or a checked index, without the buffers' identity."""
        if isinstance(field, Expr):
            return "value", self.value(field)
        if isinstance(field, Buffer):
            return "buffer", self.buffers.setdefault(field, len(self.buffers))
        if isinstance(field, tuple) and not isinstance(field, Axis):
            return tuple(map(self.of, field))
        return type(field), field  # True is not 1

    def value(self, root: Expr) -> int:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in self.values:
                stack.pop()
                continue
            waiting = [c for c in e.children if c not in self.values]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            fields = repr(e.fields[0]) if e.kind == "Const" else self.of(e.fields)
            self.rows.append((e.kind, e.dtype, fields))
            self.values[e] = len(self.values)
        return self.values[root]


def signature(k: Kernel, rows: int, alias: Mapping[Buffer, Buffer]
              ) -> tuple[Hashable, tuple[Buffer, ...]]:
    """(what decides the C, the buffers in the order of their numbers). `rows` and `alias` are what
    `nest.prepare` gets."""
    numbers = _Numbers()
    steps: Iterable[Hashable] = [numbers.of(tuple(x)) for x in (*k.binds, *k.stores)]
    met = tuple(numbers.buffers)
    made = [(b.dtype, b.shape, b.strides, b.role, numbers.of(alias.get(b, b))) for b in met]
    return (rows, k.axes, tuple(steps), tuple(numbers.rows), tuple(made)), met
