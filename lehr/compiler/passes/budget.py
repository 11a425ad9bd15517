"""A bound on the bytes that forward keeps for backward: `activation_memory_budget`.

A budget is a share of what is kept without one, from 1 (all of it) to 0 (nothing that can be
computed again from inputs and weights). Below 1 dear values may be computed again, too: each has
the price of its operations, and what is kept has the price of its bytes. The cheapest cut at an
exchange rate is a minimum cut again; the rate is the highest at which the kept bytes are within the
bound, so that a smaller budget never keeps more, nor computes less. A rate alone takes all equal
layers or none: later values are dearer by up to a half, which has layers change one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.graph.ir import Node, TensorType, Value
from lehr.compiler.passes.cut import ENDLESS, Cut, cheap, closure, sever, weight
from lehr.ops import registry

# Kinds that other programs, or the system, take notice of.
ONCE = frozenset((registry.HOST, registry.COMM))
# How often the exchange rate is halved, and bits of the highest: bytes that an operation is worth.
STEPS, HIGHEST = 40, 20


def numel(v: Value) -> int:
    return weight(v) // v.type.dtype.itemsize if isinstance(v.type, TensorType) else 1


def size(v: Value, dim: int) -> Any:
    assert isinstance(v.type, TensorType)
    return v.type.shape[dim]


# Op -> multiplications that an element of its first result takes.
DEPTH: dict[str, Callable[[Node], Any]] = {
    "matmul": lambda n: size(n.inputs[0], -1),
    "convolution": lambda n: numel(n.inputs[1]) // size(n.inputs[1], 0),
    "conv_weight": lambda n: numel(n.inputs[0]) // size(n.inputs[0], 1),
    "attention": lambda n: 2 * size(n.inputs[1], -2),
}


def work(node: Node) -> int:
    """Operations that a node takes: 0 where it costs about as much as loading its result, ENDLESS
    where it cannot run twice."""
    if cheap(node):
        return 0
    if any(e.kind != "read" for e in node.effects) or node.op.kind in ONCE:
        return ENDLESS
    if any(isinstance(v.type, TensorType) and v.type.dtype.category == dt.COMPLEX
           for v in (*node.results, *node.inputs)):
        return ENDLESS
    depth = DEPTH.get(node.op.name)
    per = depth(node) if depth else 0
    once = sum(map(numel, (*node.inputs, *node.results)))
    return once + 2 * numel(node.results[0]) * (per if isinstance(per, int) else 1)


def kept_bytes(kept: Collection[Value]) -> int:
    """Bytes of what is kept, without inputs and weights."""
    return sum(weight(v) for v in kept if v.node is not None)


def within(uses: Mapping[Value, Sequence[int]], cost: Callable[[Value], int],
           place: Mapping[Value, int], most: int) -> Cut:
    """The cut that computes least again of those that keep at most `most` bytes; the one that keeps
    least where there is none. `place`: numbers of values in order."""
    last = max(place.values(), default=0) + 1

    def at(rate: float) -> list[Value]:
        def price(node: Node) -> int:
            found = work(node)
            if found in (0, ENDLESS):
                return found
            return 1 + int(found * rate * (2 + place[node.results[0]] / last) / 2)
        return sever(uses, cost, price)

    low, high = 0.0, float(1 << HIGHEST)
    best = at(low)
    for _ in range(STEPS):
        if kept_bytes(best) > most:
            break
        middle = (low + high) / 2 if low else high / 2
        found = at(middle)
        if kept_bytes(found) <= most:
            best, low = found, middle
        else:
            high = middle
        if high - low < 1e-3 * high and low:
            break
    return Cut(tuple(best), frozenset(closure(uses, best)))
