"""CPU eager calls: an op's numpy kernel, with everything but the data worked out once.

A `Plan` holds what rules and layouts say about a call: result types, strides, which arguments are cast to what.
It depends on the arguments' types, shapes and strides alone and is remembered by them, so that a repeated call
costs little more than its numpy kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops import execute
from lehr.ops.registry import Op
from lehr.tensor.tensor import Tensor

LIMIT = 8192
NUMBERS = (int, float, complex, bool)


class Plan:
    """One remembered call. `fits`: (argument index, "one" | "many" | "number", dtype) conversions."""

    __slots__ = ("device", "fits", "op", "several", "shapes", "specs", "strides")

    def __init__(self, op: Op, args: tuple[Any, ...], spec: Any, layout_of: Any) -> None:
        self.op = op
        self.several = type(spec) is tuple
        self.specs = spec if self.several else (spec,)
        self.strides = [layout_of(op, s, args) for s in self.specs]
        self.shapes = [tuple(s.shape) for s in self.specs]
        self.device = self.specs[0].device if self.specs else None
        compute = self.specs[0].compute if self.specs else None
        self.fits = tuple(_conversions(op, args, compute))


def _conversions(op: Op, args: tuple[Any, ...], compute: DType | None) -> Any:
    if compute is None and op.exact:
        return
    for i, p in enumerate(op.params):
        a = args[i]
        if isinstance(a, Tensor):
            want = (compute or a.dtype).wide
            if want is not a.dtype:
                yield i, "one", want
        elif p.is_tensor and type(a) in (list, tuple):
            yield i, "many", compute.wide if compute is not None else None
        elif compute is not None and "Scalar" in p.types and isinstance(a, NUMBERS):
            yield i, "number", compute.wide


_PLANS: dict[Any, Plan] = {}


def plan(op: Op, args: tuple[Any, ...], layout_of: Any) -> Plan | None:
    """The plan of a call; None where it cannot be told without the data."""
    key: list[Any] = [op, dt.Default.dtype]
    for a in args:
        kind = type(a)
        if isinstance(a, Tensor):
            key.append((a._shape, a._strides, a.dtype, a._storage.device))
        elif kind in (list, tuple):
            key.append(tuple([(x._shape, x._strides, x.dtype, x._storage.device)
                              if isinstance(x, Tensor) else x for x in a]))
            key.append(kind)
        else:
            key += (a, kind)
    try:
        made = _PLANS.get(tuple(key))
    except TypeError:  # an unhashable argument
        return _fresh(op, args, layout_of)
    if made is None:
        made = _fresh(op, args, layout_of)
        if made is not None:
            if len(_PLANS) >= LIMIT:
                _PLANS.clear()
            _PLANS[tuple(key)] = made
    return made


def _fresh(op: Op, args: tuple[Any, ...], layout_of: Any) -> Plan | None:
    spec = op.rule(*args)
    for s in spec if type(spec) is tuple else (spec,):
        if not hasattr(s, "shape") or None in s.shape:
            return None
    return Plan(op, args, spec, layout_of)


def run(made: Plan, args: Any) -> Any:
    """The results of a planned call, as tensors."""
    op = made.op
    values = [a._array if isinstance(a, Tensor) else
              [x._array if isinstance(x, Tensor) else x for x in a] if type(a) in (list, tuple) else a
              for a in args]
    if op.eager is None:
        out = execute.run(op, tuple(values), made.specs if made.several else made.specs[0])
    else:
        for i, how, want in made.fits:
            values[i] = _convert(values[i], how, want)
        with np.errstate(all="ignore"):
            out = op.eager(np, *values)
    if not made.several:
        return finish(op, out, made.specs[0], made.shapes[0], made.strides[0], values)
    return tuple([finish(op, o, s, shape, strides, values) for o, s, shape, strides in
                  zip(out, made.specs, made.shapes, made.strides, strict=True)])


def _convert(value: Any, how: str, want: DType | None) -> Any:
    if how == "one":
        assert want is not None
        return execute.cast(value, want)
    if how == "number":
        assert want is not None
        return execute.number(value, want)
    return [x if x is None or not isinstance(x, np.ndarray) else
            execute.wide(x) if want is None else execute.cast(x, want) for x in value]


def finish(op: Op, a: Any, spec: Any, shape: tuple[int, ...], strides: tuple[int, ...],
           inputs: list[Any]) -> Tensor:
    """Wraps one result: right dtype, own memory, the given strides."""
    if type(a) is not np.ndarray:
        a = np.asarray(a)
    want = spec.dtype.np
    if a.dtype != want:
        with np.errstate(all="ignore"):
            a = execute.cast(a, spec.dtype)
    if a.shape != shape:
        raise AssertionError(f"op {op.name}: eager made shape {a.shape}, its rule says {shape}")
    if a.base is not None:
        a = _own(a, inputs)
    size = a.itemsize
    if a.strides != tuple([s * size for s in strides]) and a.size and any(
            x != y * size for n, x, y in zip(shape, a.strides, strides, strict=True) if n != 1):
        extent = sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)]) + 1
        owner = np.empty(extent, a.dtype)
        laid = np.ndarray(shape, a.dtype, owner.view(np.uint8), 0, tuple([s * size for s in strides]))
        laid[...] = a
        return Tensor._of(owner, laid, spec.dtype, shape, strides)
    return Tensor._of(a, a, spec.dtype, shape, strides)


def _own(a: Any, inputs: list[Any]) -> Any:
    """A result that shares memory with an argument, or does not cover its memory densely, is copied."""
    base = a.base
    if not isinstance(base, np.ndarray) or base.nbytes != a.nbytes or not a.flags.writeable:
        return a.copy()
    for x in inputs:
        for y in x if type(x) is list else (x,):
            if isinstance(y, np.ndarray) and np.may_share_memory(a, y):
                return a.copy()
    return a
