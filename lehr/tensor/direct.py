"""In-place writes that need no intermediate result: eager, on the CPU, not recorded.

Each function writes and returns True, or returns False where the general way has to be taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base.device import CPU
from lehr.ops import execute
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

NUMBERS = frozenset((int, float, bool))


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to the target's."""
    gap = len(target) - len(shape)
    return shape == target or gap >= 0 and all(
        n in (1, m) for n, m in zip(shape, target[gap:], strict=True))


def _fill(target: Tensor, args: tuple[Any, ...]) -> bool:
    value = args[1]
    if type(value) not in NUMBERS:
        return False
    target._array.fill(execute.number(value, target.dtype))
    return True


def _zero(target: Tensor, args: tuple[Any, ...]) -> bool:
    target._array.fill(0)
    return True


def _copy(target: Tensor, args: tuple[Any, ...]) -> bool:
    source = args[1]
    if source is target:
        return True
    if not isinstance(source, Tensor) or source._storage.device is not CPU \
            or source.dtype is not target.dtype or not _fits(source._shape, target._shape):
        return False
    np.copyto(target._array, source._array)
    return True


def _arithmetic(ufunc: Any, is_plain: Callable[[tuple[Any, ...]], bool], floats: bool) -> Any:
    """`target = ufunc(target, other)` where both have the dtype that is computed in."""
    def write(target: Tensor, args: tuple[Any, ...]) -> bool:
        dtype, other = target.dtype, args[1]
        if dtype.wide is not dtype or not (dtype.is_floating_point or not floats and dtype.signed) \
                or not is_plain(args):
            return False
        if isinstance(other, Tensor):
            if other.dtype is not dtype or other._storage.device is not CPU \
                    or not _fits(other._shape, target._shape):
                return False
            value = other._array
        elif type(other) is int or type(other) is float and dtype.is_floating_point:
            value = execute.number(other, dtype)
        else:
            return False
        a = target._array
        try:
            STATE.quiet.run(ufunc, a, value, a)
        except RuntimeError:  # the context is in use: a finalizer in the middle of another op
            with np.errstate(all="ignore"):
                ufunc(a, value, a)
        return True
    return write


def _always(args: tuple[Any, ...]) -> bool:
    return True


def _alpha_one(args: tuple[Any, ...]) -> bool:
    return type(args[2]) is int and args[2] == 1


def _unrounded(args: tuple[Any, ...]) -> bool:
    return args[2] is None


DIRECT: dict[str, Callable[[Tensor, tuple[Any, ...]], bool]] = {
    "fill": _fill,
    "zero": _zero,
    "copy": _copy,
    "add": _arithmetic(np.add, _alpha_one, False),
    "sub": _arithmetic(np.subtract, _alpha_one, False),
    "mul": _arithmetic(np.multiply, _always, False),
    "div": _arithmetic(np.true_divide, _unrounded, True),
}
