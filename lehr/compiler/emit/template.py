"""Calls of templates: functions of the runtime that take a record of pointers and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.compiler.emit.product import Maker
from lehr.compiler.loop.ir import Axis, Buffer, Expr, Extern, Kernel, Operand, Store, axis


class Template(NamedTuple):
    """A call of a template: `function` of the runtime with the fields of its record of type
    `record`, after the kernels `before` and before the kernels `after`. A field is a buffer, a
    number or a tuple of numbers."""

    name: str
    function: str
    record: str
    fields: tuple[tuple[str, Any], ...]
    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]
    scratch: tuple[Buffer, ...]
    views: dict[Buffer, Operand]
    fails: bool = False  # the function gives 0 where it left the call undone


class Calls(Maker):
    """Memory for the operands of a call of a template."""

    def __init__(self, e: Extern) -> None:
        super().__init__(e)
        self.after: list[Kernel] = []

    def call(self, name: str, function: str, record: str, fields: tuple[tuple[str, Any], ...]
             ) -> Template:
        return Template(name, function, record, fields, tuple(self.before), tuple(self.after),
                        tuple(self.scratch), self.views)

    def copied(self, o: Operand, name: str, strides: tuple[Any, ...],
               dtype: DType = dt.float32) -> tuple[Buffer, tuple[Any, ...]]:
        source, made = self.view(o, name), self.laid(name, dtype, o.shape, strides)
        self.before.append(self.moved(name, source, made))
        return made, strides

    def laid(self, name: str, dtype: DType, shape: Sequence[Any], strides: tuple[Any, ...]
             ) -> Buffer:
        made = Buffer(f"{self.e.name}_{name}", dtype, tuple(shape), strides, "arena")
        self.scratch.append(made)
        return made

    def moved(self, name: str, source: Buffer, target: Buffer) -> Kernel:
        """A kernel that copies an operand into another layout or dtype."""
        axes = tuple(axis(f"i{d}", n) for d, n in enumerate(target.shape))
        return Kernel(f"{self.e.name}_{name}", axes, (stored(source, target, axes),), (),
                      self.e.locations)


def stored(source: Buffer, target: Buffer, axes: Sequence[Axis]) -> Store:
    idx = tuple(a.var for a in axes)
    value = Expr("Load", source.dtype, source, idx, None, None)
    value = value if source.dtype is target.dtype else Expr("Cast", target.dtype, value)
    return Store(target, idx, value)
