"""Python's operators over ops, for every kind of value (`Tensor`, graph `Value`, reference
`Array`).

A subclass provides `F`, the registry bound to its interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
          "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and",
          "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
          "rshift": "bitwise_right_shift"}
COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}


class Operators:
    """Mixin: `x + y` is `F.add(x, y)`; an operand that is no tensor or number gives NotImplemented.
    """

    __slots__ = ()
    F: Any

    @classmethod
    def accepts(cls, other: Any) -> bool:
        return (isinstance(other, (Operators, int, float, complex))
                or hasattr(other, "scalar_category") or hasattr(other, "__array__"))


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not self.accepts(other):
            return NotImplemented
        return getattr(self.F, name)(self, other)
    return method


def _reflected(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not self.accepts(other):
            return NotImplemented
        return getattr(self.F, name)(other, self)
    return method


def _unary(name: str) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        return getattr(self.F, name)(self)
    return method


for _dunder, _name in BINARY.items():
    setattr(Operators, f"__{_dunder}__", _forward(_name))
    setattr(Operators, f"__r{_dunder}__", _reflected(_name))
for _dunder, _name in COMPARE.items():
    setattr(Operators, f"__{_dunder}__", _forward(_name))
for _dunder, _name in UNARY.items():
    setattr(Operators, f"__{_dunder}__", _unary(_name))
Operators.__hash__ = object.__hash__  # type: ignore[method-assign]
