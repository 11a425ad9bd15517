"""Python's operators on tensors, in the shortest way to the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.ops import registry
from lehr.ops.operator import BINARY, COMPARE, UNARY
from lehr.ops.registry import Op
from lehr.tensor import api, create, dispatch, override
from lehr.tensor.protocol import Protocol
from lehr.tensor.tensor import Tensor

NUMBERS = frozenset((int, float, bool))
TENSORS_ONLY = frozenset(("matmul",))
# In-place operators; `x @= y` makes a new tensor, as in PyTorch.
INPLACE = {k: v for k, v in BINARY.items() if k != "matmul"}

_FORWARD = """
def {dunder}(self, other):
    if {test} and not _watch.on:
        return _call(_op, (self, other{tail}))
    return _other({dunder}, _op, self, other, False)
"""
_REFLECTED = """
def {dunder}(self, other):
    if {test} and not _watch.on and isinstance(self, _T):
        return _call(_op, (other, self{tail}))
    return _other({dunder}, _op, self, other, True)
"""
_INPLACE = """
def {dunder}(self, other):
    if {test} and not _watch.on:
        return _inplace(_op, (self, other{tail}))
    return _other_inplace({dunder}, _op, self, other)
"""
_UNARY = """
def {dunder}(self):
    if not _watch.on:
        return _call(_op, (self,))
    return _other_unary({dunder}, _op, self)
"""


def _operand(op: Op, other: Any) -> Any:
    """The other operand as ops take it; NotImplemented for what no op takes."""
    if isinstance(other, Tensor):
        return other
    if isinstance(other, np.generic):
        other = other.item()
    if isinstance(other, (int, float, complex)) or hasattr(other, "scalar_category"):
        return NotImplemented if op.name in TENSORS_ONLY else other
    if isinstance(other, np.ndarray):
        return create.from_data(other, None)
    return NotImplemented


def _taken(function: Any, self: Any, *others: Any) -> Any:
    """The result of whoever takes the operator over; it is asked about the method of that name."""
    word = function.__name__.strip("_")
    name = {**BINARY, **COMPARE, **UNARY}.get(word)
    if name is None and word[0] == "i" and word[1:] in BINARY:
        name = BINARY[word[1:]] + "_"
    if word in ("radd", "rmul"):
        name = word[1:]
    public = function if name is None else getattr(Tensor, name)
    if override.WATCH.on:
        return override.intercept(public, (self, *others), {})
    return override.late(public, (self, *others), {})


def _other(function: Any, op: Op, self: Any, other: Any, reflected: bool) -> Any:
    """An operator on something else than a tensor or a plain number, or with overrides about."""
    made = _taken(function, self, other)
    if made is not override.MISSING:
        return made
    if not isinstance(self, Tensor):
        raise TypeError(f"operator {op.name}: self must be Tensor, not {type(self).__name__}")
    operand = _operand(op, other)
    if operand is NotImplemented:
        return NotImplemented
    pair = (operand, self) if reflected else (self, operand)
    return dispatch.call(op, (*pair, *(p.default for p in op.params[2:])))


def _other_inplace(function: Any, op: Op, self: Any, other: Any) -> Any:
    made = _taken(function, self, other)
    if made is not override.MISSING:
        return made
    operand = _operand(op, other)
    if operand is NotImplemented:
        return NotImplemented
    return dispatch.inplace(op, (self, operand, *(p.default for p in op.params[2:])))


def _other_unary(function: Any, op: Op, self: Any) -> Any:
    made = _taken(function, self)
    return dispatch.call(op, (self,)) if made is override.MISSING else made


def _define(template: str, dunder: str, name: str) -> Callable[..., Any]:
    op = registry.get(name)
    space: dict[str, Any] = {
        "__name__": api.__name__, "_op": op, "_call": dispatch.call, "_inplace": dispatch.inplace,
        "_other": _other, "_other_inplace": _other_inplace, "_other_unary": _other_unary,
        "_watch": override.WATCH, "_T": Tensor, "_n": NUMBERS,
        "_d": tuple(p.default for p in op.params)}
    tail = "".join(f", _d[{i}]" for i in range(2, len(op.params)))
    test = "isinstance(other, _T)"
    if name not in TENSORS_ONLY:
        test = f"({test} or type(other) in _n)"
    exec(template.format(dunder=dunder, tail=tail, test=test), space)
    made: Callable[..., Any] = space[dunder]
    made.__qualname__ = f"Tensor.{dunder}"
    made.__module__ = "lehr"
    return made


def _invert(self: Tensor) -> Tensor:
    if not self.dtype.is_integer:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type "
                        "tensors")
    return self.bitwise_not()


def install() -> None:
    """Puts the operators on the class."""
    for word, name in BINARY.items():
        setattr(Tensor, f"__{word}__", _define(_FORWARD, f"__{word}__", name))
        setattr(Tensor, f"__r{word}__", _define(_REFLECTED, f"__r{word}__", name))
    for word, name in INPLACE.items():
        setattr(Tensor, f"__i{word}__", _define(_INPLACE, f"__i{word}__", name))
    for word, name in COMPARE.items():
        setattr(Tensor, f"__{word}__", _define(_FORWARD, f"__{word}__", name))
    for word, name in UNARY.items():
        setattr(Tensor, f"__{word}__", _define(_UNARY, f"__{word}__", name))
    for word, method in (("invert", _invert), ("hash", Protocol.__hash__)):
        setattr(Tensor, f"__{word}__", method)  # beside __eq__, __hash__ has to be said again
    for word in ("div", "rdiv"):
        setattr(Tensor, f"__{word}__", getattr(Tensor, f"__{word.replace('div', 'truediv')}__"))


install()
