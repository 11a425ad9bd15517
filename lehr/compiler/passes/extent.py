"""Between which numbers the elements of an integer value lie, read off the nodes that make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.base.dtype import INT
from lehr.compiler.graph.ir import TensorType, Value

Extent = tuple[int, int]

# Nodes that are looked through at most.
DEPTH = 16
# All that 64 bits hold: what is said where nothing is known, or where a sum may wrap.
ALL = -(1 << 63), (1 << 63) - 1


def extent(v: Any, depth: int = DEPTH) -> Extent:
    """(least, greatest) that an element of a 64-bit value, or a Python number, may be."""
    if isinstance(v, int) and not isinstance(v, bool):
        return v, v
    if not isinstance(v, Value) or v.node is None or not depth or not _whole(v):
        return ALL
    rule = _RULES.get(v.node.op.name)
    low, high = ALL if rule is None else rule(depth - 1, *v.node.args)
    return (low, high) if ALL[0] <= low and high <= ALL[1] else ALL


def _whole(v: Value) -> bool:
    t = v.type
    return isinstance(t, TensorType) and t.dtype.category == INT and t.dtype.itemsize == 8


def _same(depth: int, x: Any, *rest: Any) -> Extent:
    return extent(x, depth)


def _least(depth: int, x: Any, low: Any) -> Extent:
    (a, b), (c, d) = extent(x, depth), extent(low, depth)
    return max(a, c), max(b, d)


def _most(depth: int, x: Any, high: Any) -> Extent:
    (a, b), (c, d) = extent(x, depth), extent(high, depth)
    return min(a, c), min(b, d)


def _full(depth: int, shape: Any, value: Any, *rest: Any) -> Extent:
    return extent(value, depth)


def _add(depth: int, x: Any, y: Any, alpha: Any = 1) -> Extent:
    if alpha != 1:
        return ALL
    (a, b), (c, d) = extent(x, depth), extent(y, depth)
    return a + c, b + d


def _mul(depth: int, x: Any, y: Any) -> Extent:
    ends = [p * q for p in extent(x, depth) for q in extent(y, depth)]
    return min(ends), max(ends)


_RULES: dict[str, Callable[..., Extent]] = {
    "clamp_min": _least, "maximum": _least, "clamp_max": _most, "minimum": _most, "full": _full,
    "add": _add, "mul": _mul, "to_dtype": _same, "view": _same, "expand": _same,
    "permute": _same, "slice": _same, "select": _same,
}
