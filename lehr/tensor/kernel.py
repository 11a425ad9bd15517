"""CPU eager calls: an op's numpy kernel, with everything but the data worked out once.

A `Plan` holds what rules and layouts say about a call: result types, strides, which arguments are
cast to what. It depends on the arguments' types, shapes and strides alone and is remembered by
them, so that a repeated call costs little more than its numpy kernel.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops import execute
from lehr.ops.registry import POINTWISE, Op
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

LIMIT = 8192
NUMBERS = (int, float, complex, bool)
PLAIN = frozenset(NUMBERS)

# (shape, strides, dtype, device) -> a number that stands for it; numbers are never used again.
_KEYS: dict[Any, int] = {}
_numbers = itertools.count()


def intern(t: Tensor) -> int:
    """The number that stands for a tensor's type and layout."""
    described = (t._shape, t._strides, t.dtype, t._storage.device)
    key = _KEYS.get(described)
    if key is None:
        if len(_KEYS) >= LIMIT:
            _KEYS.clear()
        key = _KEYS[described] = next(_numbers)
    t._key = key
    return key


class Result:
    """One result of a planned call. `bytes`: its strides in bytes, None where any will do."""

    __slots__ = ("bytes", "dtype", "key", "np", "shape", "strides")

    def __init__(self, spec: Any, strides: tuple[int, ...]) -> None:
        self.shape: tuple[int, ...] = tuple(spec.shape)
        self.dtype: DType = spec.dtype
        self.np = spec.dtype.np
        self.strides = strides
        self.bytes = tuple([s * self.np.itemsize for s in strides])
        self.key: int | None = None


class Plan:
    """One remembered call. `fits`: (argument index, "one" | "many" | "number", dtype) conversions;
    `own`: the kernel is lehr's own, so that it never comes back into the dispatcher; `tensors`,
    `lists`: which arguments are tensors, and lists that hold some."""

    __slots__ = ("device", "fits", "lists", "op", "own", "results", "several", "specs", "tensors")

    def __init__(self, op: Op, args: tuple[Any, ...], spec: Any, layout_of: Any) -> None:
        self.op = op
        self.several = type(spec) is tuple
        self.specs = spec if self.several else (spec,)
        self.results = [Result(s, layout_of(op, s, args)) for s in self.specs]
        self.device = self.specs[0].device if self.specs else None
        self.own = op.module.startswith("lehr.ops.")
        self.tensors = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor)])
        self.lists = tuple([i for i, a in enumerate(args) if type(a) in (list, tuple)
                            and any(isinstance(x, Tensor) for x in a)])
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
            yield i, "number", _NUMBERS[compute.wide]


_PLANS: dict[Any, Plan] = {}
_LOOSE: dict[Op, tuple[bool, ...]] = {}


def loose(op: Op) -> tuple[bool, ...]:
    """Which parameters are numbers whose type alone (and sign, of integers) a plan depends on."""
    free = ("key", "offset") if "key" in op.signature.index else ()  # of random ops
    made = _LOOSE[op] = tuple([(op.kind is POINTWISE and "Scalar" in p.types) or p.name in free
                               for p in op.params])
    return made


def plan(op: Op, args: tuple[Any, ...], layout_of: Any) -> Plan | None:
    """The plan of a call; None where it cannot be told without the data."""
    key: list[Any] = [op, dt.Default.dtype]
    flags = _LOOSE.get(op) or loose(op)
    for a, free in zip(args, flags):  # noqa: B905  (an op without parameters has no flags)
        if isinstance(a, Tensor):
            key.append(intern(a) if a._key is None else a._key)
        elif free and (kind := type(a)) in PLAIN:
            key += (kind is int and a < 0, kind)
        elif (kind := type(a)) is list or kind is tuple:
            key.append(tuple([(intern(x) if x._key is None else x._key, Tensor)
                              if isinstance(x, Tensor) else (x, type(x)) for x in a]))
            key.append(kind)
        else:
            key += (a, kind)
    found = tuple(key)
    try:
        made = _PLANS.get(found)
    except TypeError:  # an unhashable argument
        return _fresh(op, args, layout_of)
    if made is None:
        made = _fresh(op, args, layout_of)
        if made is not None:
            if len(_PLANS) >= LIMIT:
                _PLANS.clear()
            _PLANS[found] = made
    return made


def _fresh(op: Op, args: tuple[Any, ...], layout_of: Any) -> Plan | None:
    spec = op.rule(*args)
    for s in spec if type(spec) is tuple else (spec,):
        if not hasattr(s, "shape") or None in s.shape:
            return None
    if type(spec) is not tuple and any(isinstance(n, np.integer) for n in spec.shape):
        spec = spec._replace(shape=tuple(map(int, spec.shape)))  # sizes given as numpy's numbers
    return Plan(op, args, spec, layout_of)


def run(made: Plan, args: tuple[Any, ...]) -> Any:
    """The results of a planned call, as tensors."""
    op = made.op
    values = list(args)
    for i in made.tensors:
        t = args[i]
        values[i] = t._array if t._np is None else t._np
    for i in made.lists:
        values[i] = [x._array if isinstance(x, Tensor) else x for x in args[i]]
    if op.eager is None:
        out = execute.run(op, tuple(values), made.specs if made.several else made.specs[0])
    else:
        for i, how, want in made.fits:
            if how == "number":
                value = values[i]
                known = want.numbers.get(value)
                values[i] = _number(value, want) if known is None else known
            else:
                values[i] = _convert(values[i], how, want)
        out = quietly(made, op.eager, values)
    if not made.several:
        return finish(op, out, made.results[0], values)
    return tuple([finish(op, o, r, values)
                  for o, r in zip(out, made.results, strict=True)])


def quietly(made: Plan, eager: Any, values: list[Any]) -> Any:
    """Runs a kernel without numpy's warnings: NaN and infinity are results, not events.

    Entering a prepared context costs a twentieth of `np.errstate`; it cannot be entered twice,
    which happens when a finalizer calls an op in the middle of another one.
    """
    if made.own:
        try:
            return STATE.quiet.run(eager, np, *values)
        except RuntimeError as error:
            if "cannot enter context" not in str(error):
                raise
    with np.errstate(all="ignore"):
        return eager(np, *values)


def _number(value: Any, want: Any) -> Any:
    """A Python number as the dtype's own, remembered for the next call (but not zeros, whose signs
    compare equal)."""
    made = execute.number(value, want.dtype)
    if value != 0 and len(want.numbers) < 64:
        want.numbers[value] = made
    return made


class Numbers:
    """Numbers that were converted to a dtype."""

    __slots__ = ("dtype", "numbers")

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.numbers: dict[Any, Any] = {}


_NUMBERS: dict[DType, Numbers] = {d: Numbers(d) for d in dt.ALL}


def _convert(value: Any, how: str, want: DType | None) -> Any:
    if how == "one":
        assert want is not None
        return execute.cast(value, want)
    return [x if x is None or not isinstance(x, np.ndarray) else
            execute.wide(x) if want is None else execute.cast(x, want) for x in value]


def finish(op: Op, a: Any, want: Result, inputs: list[Any]) -> Tensor:
    """Wraps one result: right dtype, own memory, the planned strides."""
    if type(a) is not np.ndarray:
        a = np.asarray(a)
    if a.dtype is not want.np and a.dtype != want.np:
        with np.errstate(all="ignore"):
            a = execute.cast(a, want.dtype)
    if a.base is not None:
        a = _own(a, inputs)
    else:
        for x in inputs:    # a kernel may return its argument
            if x is a or type(x) is list and any(y is a for y in x):
                a = a.copy()
                break
    if a.strides != want.bytes or a.shape != want.shape:
        return _laid(op, a, want)
    t = Tensor._of(a, a, want.dtype, want.shape, want.strides)
    t._key = want.key
    if want.key is None:
        want.key = intern(t)
    return t


def _laid(op: Op, a: Any, want: Result) -> Tensor:
    """A result whose array has other strides than planned."""
    shape, strides = want.shape, want.strides
    if a.shape != shape:
        raise AssertionError(f"op {op.name}: eager made shape {a.shape}, its rule says {shape}")
    if a.size and any(n != 1 and x != y
                      for n, x, y in zip(shape, a.strides, want.bytes, strict=True)):
        extent = sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)]) + 1
        owner = np.empty(extent, a.dtype)
        laid = np.ndarray(shape, a.dtype, owner.view(np.uint8), 0, want.bytes)
        laid[...] = a
        return Tensor._of(owner, laid, want.dtype, shape, strides)
    return Tensor._of(a, a, want.dtype, shape, strides)


def _own(a: Any, inputs: list[Any]) -> Any:
    """Copies a result that shares memory with an argument, or does not cover its memory."""
    base = a.base
    if not isinstance(base, np.ndarray) or base.nbytes != a.nbytes or not a.flags.writeable:
        return a.copy()
    for x in inputs:
        for y in x if type(x) is list else (x,):
            if isinstance(y, np.ndarray) and np.may_share_memory(a, y):
                return a.copy()
    return a
