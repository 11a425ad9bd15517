"""A small reverse-mode tape over the op registry: the engine that the gradient tests trust.

It knows nothing but `vjp` and `decomp`. A backward pass runs on tracked values, so it can be
differentiated.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from lehr.base.dtype import DType
from lehr.ops import execute
from lehr.ops.expand import decompose, pullback
from lehr.ops.operator import Operators
from lehr.ops.registry import Functions, Op

_numbers = itertools.count()


class Tracked(Operators):
    """An array with the call it came from."""

    __slots__ = ("array", "call", "index", "number")

    def __init__(self, array: Any, call: Any = None, index: int = 0) -> None:
        self.array, self.call, self.index = array, call, index
        self.number = next(_numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> DType:
        return execute.dt.of_numpy(self.array.dtype)

    @property
    def device(self) -> Any:
        return execute.CPU


def _map(fn: Any, a: Any) -> Any:
    if isinstance(a, (Tracked, np.ndarray)):
        return fn(a)
    return type(a)(_map(fn, x) for x in a) if type(a) in (list, tuple) else a


def track(a: Any) -> Any:
    return _map(lambda x: x if isinstance(x, Tracked) else Tracked(x), a)


def arrays(a: Any) -> Any:
    return _map(lambda x: x.array if isinstance(x, Tracked) else x, a)


def differentiable(x: Tracked) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def interpret(op: Op, bound: tuple[Any, ...]) -> Any:
    bound = track(bound)
    spec = op.rule(*bound)
    if op.vjp is None and op.decomp is not None and op.nondiff is not True:
        out = decompose(F, op, bound, spec)
        if out is not NotImplemented:
            return out
    out = execute.run(op, arrays(bound), spec)
    if op.nondiff is True:
        return track(out)
    call = [op, bound, None]
    made = (tuple(Tracked(o, call, i) for i, o in enumerate(out)) if isinstance(out, tuple)
            else Tracked(out, call) if isinstance(out, np.ndarray) else out)
    call[2] = made
    return made


F = Functions(interpret)
Tracked.F = F


def fit(g: Any, x: Tracked) -> Any:
    """Broadcasting and promotion undone."""
    g = g() if callable(g) else g
    if g is None or not differentiable(x):
        return None
    gap = g.ndim - x.ndim
    if gap > 0:
        g = F.sum(g, list(range(gap)))
    dims = [i for i, (a, b) in enumerate(zip(g.shape, x.shape, strict=True)) if a != b]
    g = F.sum(g, dims, True) if dims else g
    if g.shape != x.shape:
        g = F.expand(g, x.shape)
    return g if g.dtype is x.dtype else F.to_dtype(g, x.dtype)


def _inputs(op: Op, bound: tuple[Any, ...], grads: Any) -> list[tuple[Tracked, Any]]:
    slots = op.signature.tensor_slots
    grads = grads if isinstance(grads, tuple) and len(slots) > 1 else (grads,)
    pairs: list[tuple[Tracked, Any]] = []
    for slot, g in zip(slots, grads, strict=True):
        a = bound[slot]
        if isinstance(a, (list, tuple)):
            g = g() if callable(g) else g
            parts = g or [None] * len(a)
            pairs.extend((x, v) for x, v in zip(a, parts, strict=True) if x is not None)
        elif isinstance(a, Tracked):
            pairs.append((a, g))
    return pairs


def gradients(outputs: list[tuple[Tracked, Tracked]], wanted: list[Tracked]) -> list[Any]:
    """Of the sum of <output, weight> with respect to `wanted`: Tracked values or None."""
    grads: dict[int, Any] = {}
    values: dict[int, Tracked] = {}

    def add(x: Tracked, g: Any) -> None:
        values[x.number] = x
        grads[x.number] = F.add(grads[x.number], g) if x.number in grads else g

    for out, weight in outputs:
        add(out, weight)
    done = {}
    while values:
        number = max(values)
        x = values.pop(number)
        g = done[number] = grads.pop(number)
        if x.call is None:
            continue
        op, bound, out = x.call
        if isinstance(out, tuple):
            # Siblings have neighbouring numbers, so all of their gradients are there.
            parts = tuple(g if o is x else grads.pop(o.number, None) for o in out)
            for o in out:
                if values.pop(o.number, None) is not None:
                    done[o.number] = parts[o.index]
            made = pullback(F, op, parts, out, bound)
        else:
            made = pullback(F, op, g, out, bound)
        for source, part in _inputs(op, bound, made):
            part = fit(part, source)
            if part is not None:
                add(source, part)
    return [done.get(w.number) for w in wanted]
