"""Runs an op's `eager` body on numpy arrays: the CPU eager kernel and the reference of every
interpreter.

Half-precision arithmetic happens in float32 and is rounded once; integer arithmetic wraps; numpy's
warnings are silenced (NaN and infinity are results, not events).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.ops import registry
from lehr.ops.expand import decompose
from lehr.ops.operator import Operators
from lehr.ops.registry import Op
from lehr.ops.rule import Number, Spec

Array = np.ndarray[Any, Any]


LARGE = 2.0 ** 15     # what every floating-point type but float8 holds


def number(value: Any, dtype: DType) -> Any:
    """A Python number as a numpy scalar of `dtype`; integers wrap as a C cast does."""
    if dtype.category == dt.INT and not isinstance(value, (bool, np.bool_)):
        if isinstance(value, int):
            bits = 8 * dtype.itemsize
            value &= (1 << bits) - 1
            negative = dtype.signed and value >> (bits - 1)
            return dtype.np.type(value - (1 << bits) if negative else value)
        return cast(np.asarray(value), dtype)[()]
    if isinstance(value, (int, float)) and not -LARGE <= value <= LARGE:
        with np.errstate(over="ignore"):    # it becomes an infinity
            return dtype.np.type(value)
    return dtype.np.type(value)


def cast(a: Array, dtype: DType) -> Array:
    """`a` converted to `dtype`: truncation toward zero, wrapping, NaN to bool is True.

    Out-of-range floats to integers follow the CPU's int64 conversion, then wrap.
    """
    if a.dtype == dtype.np:
        return a
    if dtype.category == dt.INT and a.dtype.kind in "fV":
        wide = a.astype(np.float32) if a.dtype.kind == "V" else a
        return wide.astype(np.int64).astype(dtype.np)
    if a.dtype.kind == "c" and dtype.category < dt.COMPLEX:
        a = a.real
    return a.astype(dtype.np)


def wide(a: Array) -> Array:
    """Half precision as float32, everything else as it is."""
    made = dt.of_numpy(a.dtype)
    return a if made.wide is made else a.astype(made.wide.np)


def prepare(op: Op, bound: tuple[Any, ...], compute: DType | None) -> list[Any]:
    """The bound arguments with arrays (and Scalars) cast to the computing dtype; an `exact` op that
    has none only moves elements and takes them as they are."""
    if compute is None and op.exact:
        return list(bound)
    fit = wide if compute is None else functools.partial(cast, dtype=compute.wide)
    args = list(bound)
    for i, p in enumerate(op.params):
        a = args[i]
        if p.is_tensor and isinstance(a, np.ndarray):
            args[i] = fit(a)
        elif p.is_tensor and p.many and isinstance(a, (list, tuple)):
            args[i] = [fit(x) if isinstance(x, np.ndarray) else x for x in a]
        elif compute is not None and "Scalar" in p.types and isinstance(a, (int, float, complex)):
            args[i] = number(a, compute.wide)
    return args


def run(op: Op, bound: tuple[Any, ...], spec: Any = None) -> Any:
    """Evaluates `op` on arrays; results are arrays of exactly the spec's shapes and dtypes.

    An op without an `eager` body runs its `decomp`.
    """
    spec = op.rule(*map(wrap, bound)) if spec is None else spec
    with np.errstate(all="ignore"):
        if op.eager is None:
            out = unwrap(decompose(FUNCTIONS, op, tuple(map(wrap, bound)), spec))
        else:
            first = spec[0] if type(spec) is tuple else spec
            out = op.eager(np, *prepare(op, bound, getattr(first, "compute", None)))
        if type(spec) is tuple:
            return tuple(_finish(op, o, s) for o, s in zip(out, spec, strict=True))
        return _finish(op, out, spec)


def _finish(op: Op, out: Any, spec: Spec | Number) -> Any:
    if isinstance(spec, Number):
        return out
    a = out if isinstance(out, np.ndarray) else np.asarray(out)
    a = cast(a, spec.dtype)
    if a.shape != tuple(spec.shape) and not _fits(a.shape, spec.shape):
        raise AssertionError(f"op {op.name}: eager made shape {a.shape}, its rule says "
                             f"{spec.shape}")
    return a


def _fits(shape: tuple[int, ...], told: tuple[Any, ...]) -> bool:
    """Whether the rule's shape, in which None is a size that depends on data, allows this one."""
    return len(shape) == len(told) and all(n in (None, size)
                                           for size, n in zip(shape, told, strict=True))


class Value(Operators):
    """An array as decompositions see values."""

    __slots__ = ("array",)
    F: Any

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> DType:
        return dt.of_numpy(self.array.dtype)

    @property
    def device(self) -> Device:
        return CPU


def wrap(a: Any) -> Any:
    """Arrays (also inside lists and tuples) as `Value`s."""
    if isinstance(a, np.ndarray):
        return Value(a)
    return type(a)(map(wrap, a)) if type(a) in (list, tuple) else a


def unwrap(a: Any) -> Any:
    if isinstance(a, Value):
        return a.array
    return type(a)(map(unwrap, a)) if type(a) in (list, tuple) else a


def interpret(op: Op, bound: tuple[Any, ...]) -> Any:
    """`F` over `Value`s."""
    bound = tuple(map(wrap, bound))
    return wrap(run(op, tuple(map(unwrap, bound)), op.rule(*bound)))


FUNCTIONS = registry.Functions(interpret)
Value.F = FUNCTIONS
