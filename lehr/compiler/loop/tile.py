"""Default schedules: how a kernel's loops are cut, as small frozen records beside the kernel.

A schedule changes no value. Autotuning searches records around the default; the cache keeps the
record that won. Emitters take what they can use of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.index import linearize
from lehr.compiler.loop.expr import weight
from lehr.compiler.loop.ir import Axis, Expr, Kernel, Store
from lehr.compiler.loop.text import walk
from lehr.ops.rule import numel

# Work (weighted operations) that is worth a task of its own, and the pieces of one reduction.
TASK, PIECES = 1 << 15, 64
# Fewer outer points than this leave threads idle: long reductions are split.
FEW = 8
TILE = 32
HINT = 64  # stands for an extent known only at run time


class Schedule(NamedTuple):
    """How to run one kernel.

    grain    outer points a task takes (consecutive, the last axis fastest)
    vector   per store: the axis whose neighbours lie next to each other in memory (outer, inner or
             reduced), or None
    split    pieces that each outermost reduction is cut into, combined in order; 1: not split
    tiles    (axis, size) pairs blocked together where a store turns its input around
    """

    grain: int
    vector: tuple[Any, ...]
    split: int
    tiles: tuple[tuple[Any, int], ...]


def schedule(k: Kernel) -> Schedule:
    """The default for a kernel."""
    vectors = tuple(_vector(k, s) for s in k.stores)
    work = sum(_work(s) for s in k.stores)
    points = _count(k.axes)
    folds = max((_folded(s) for s in k.stores), default=1)
    split = min(PIECES, -(-folds // TASK)) if points < FEW and folds > 2 * TASK else 1
    tiles: tuple[tuple[Any, int], ...] = ()
    for s, v in zip(k.stores, vectors, strict=True):
        tiles = tiles or _turned(k, s, v)
    return Schedule(max(1, min(points, TASK // max(work, 1))), vectors, split, tiles)


def _count(axes: tuple[Axis, ...]) -> int:
    n = numel(a.extent if isinstance(a.extent, int) else HINT for a in axes)
    return int(n)


def _folded(s: Store) -> int:
    """Elements of the largest reduction of a store."""
    return max((_count(e.fields[1]) for e in walk((s.value,)) if e.kind == "Reduce"), default=1)


def _work(s: Store) -> int:
    """Weighted operations of one outer point."""
    total = 0
    for e in walk((s.value,)):
        if e.kind == "Reduce":
            inside = sum(weight(x) for x in walk(e.fields[2]) if x.kind != "Reduce")
            total += _count(e.fields[1]) * max(inside, 1)
        else:
            total += weight(e)
    return total * _count(s.axes)


def _candidates(k: Kernel, s: Store) -> list[Axis]:
    """The axes that a store's innermost loop may run along: inner, reduced, outer ones."""
    reduced = [a for e in walk((s.value,)) if e.kind == "Reduce" for a in e.fields[1]]
    return [*reversed(s.axes), *reversed(list(dict.fromkeys(reduced))), *reversed(k.axes)]


def stride(flat: Any, var: Any) -> Any:
    """The distance in elements between neighbours along an axis; None where it varies."""
    if isinstance(flat, int) or var not in sym.free(flat):
        return 0
    split = sym.affine(flat, (var,))
    if split is not None:
        return split[0].get(var, 0)
    step = sym.substitute(flat, {var: var + 1}) - flat
    return step if isinstance(step, int) else None


def _accesses(s: Store) -> list[tuple[Any, int]]:
    """(flat index, bytes of an element) of every access."""
    found = [(linearize(s.idx, s.buffer.shape, s.buffer.strides) if s.idx else 0,
              s.buffer.dtype.itemsize)]
    roots: list[Expr] = [s.value] if s.mask is None else [s.value, s.mask]
    for e in walk(roots):
        if e.kind == "Load" and e.fields[0].role != "local" and e.fields[1]:
            b = e.fields[0]
            found.append((linearize(e.fields[1], b.shape, b.strides), b.dtype.itemsize))
    return found


def _vector(k: Kernel, s: Store) -> Any:
    """The axis along which most bytes are contiguous and fewest scattered; the store counts twice.
    A scan does not run along itself."""
    accesses = _accesses(s)
    accesses.append(accesses[0])
    best, score = None, (0, 0)
    for a in _candidates(k, s):
        if a.role == "scan":
            continue
        steps = [(stride(flat, a.var), size) for flat, size in accesses]
        near = sum(size for step, size in steps if step == 1)
        far = sum(size for step, size in steps if step not in (0, 1))
        if near and (near, -far) > score:
            best, score = a.var, (near, -far)
    return best


def _turned(k: Kernel, s: Store, vector: Any) -> tuple[tuple[Any, int], ...]:
    """Two axes to block where one access is contiguous along another axis than the rest."""
    if vector is None:
        return ()
    for flat, _ in _accesses(s):
        if stride(flat, vector) in (0, 1):
            continue
        for a in _candidates(k, s):
            if a.var is not vector and a.role == "parallel" and stride(flat, a.var) == 1:
                return (a.var, TILE), (vector, TILE)
    return ()
