"""Functions of sizes that may be symbolic, and checks that programs state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lehr.base.sym import Sym
from lehr.tensor.tensor import Tensor


def sym_int(a: Any) -> Any:
    """A size as an integer."""
    return a if isinstance(a, Sym) else int(a)


def sym_float(a: Any) -> Any:
    """A size as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """`not a`."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger size."""
    return a if a >= b else b


def sym_min(a: Any, b: Any) -> Any:
    """The smaller size."""
    return a if a <= b else b


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t if b else f`."""
    return t if b else f


def sym_sum(args: Any) -> Any:
    """The sum of sizes."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root of a size."""
    return math.sqrt(a)


def _failed(kind: type[Exception], message: Any) -> None:
    text = "Expected cond to be True, but got False."
    raise kind(text if message is None else str(message()))


def _checker(name: str, kind: type[Exception]) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], str] | None = None) -> None:
        if not isinstance(cond, bool) and not hasattr(cond, "__bool__"):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if not cond:
            _failed(kind, message)
    check.__name__ = name
    check.__doc__ = f"Raises {kind.__name__} with `message()` where `cond` is false."
    return check


_check = _checker("_check", RuntimeError)
_check_index = _checker("_check_index", IndexError)
_check_value = _checker("_check_value", ValueError)
_check_type = _checker("_check_type", TypeError)
_check_not_implemented = _checker("_check_not_implemented", NotImplementedError)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Raises where `i` is negative (or above `max`)."""
    if i < 0 or (max is not None and i > max):
        _failed(RuntimeError, message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    """Raises where some element is false."""
    if not bool(cond.all()):
        _failed(RuntimeError, message)


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message` that is always there."""
    if not condition:
        raise AssertionError(message)
