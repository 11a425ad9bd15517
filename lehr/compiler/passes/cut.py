"""Which values an earlier part of a graph keeps for a later one, and which the later one computes
again, so that as few bytes as possible live in between.

Every path from what is there anyway to a use in the later part crosses a value that is kept: a cut.
A value costs its bytes; what comes from cheap elementwise work need not be kept. The cheapest cut
is the maximum flow; of several the one next to the uses, which computes least again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.graph.ir import Node, TensorType, Value
from lehr.compiler.passes.flow import Flow
from lehr.ops import registry

# Kinds that may run again: they cost about as much as loading their result would.
CHEAP = frozenset((registry.POINTWISE, registry.VIEW, registry.CREATE, registry.RANDOM))
ENDLESS = 1 << 90
SIZE_HINT = 128  # stands for a symbolic size when values are weighed
# What is computed again early and used until many nodes later would lie in memory as if it had been
# kept: it is kept (a residual stream, whose last element is asked for first).
SPAN, TRIALS = 64, 4


class Cut(NamedTuple):
    """kept: values, in order of appearance; again: nodes that the later part runs again."""

    kept: tuple[Value, ...]
    again: frozenset[Node]


def weight(value: Value) -> int:
    """Bytes of a value; symbolic sizes are weighed at SIZE_HINT."""
    kind = value.type
    if not isinstance(kind, TensorType):
        return 8
    n = kind.dtype.itemsize
    for size in kind.shape:
        n *= size if isinstance(size, int) else sym.evaluate(
            size, dict.fromkeys(sym.free(size), SIZE_HINT))
    return max(n, 1)


def cheap(node: Node) -> bool:
    """Whether a node may run again. Complex elements are computed by the host."""
    return (node.op.kind in CHEAP and not node.op.host
            and all(e.kind == "read" for e in node.effects)
            and not any(isinstance(v.type, TensorType) and v.type.dtype.category == dt.COMPLEX
                        for v in (*node.results, *node.inputs)))


def choose(uses: Mapping[Value, Sequence[int]], cost: Callable[[Value], int],
           may: Callable[[Node], bool] = cheap) -> Cut:
    """The cheapest cut. `uses`: where the later part uses values of the earlier one (numbers that
    grow with time); `cost`: of keeping a value; `may`: whether a node may run again."""
    fixed: set[Value] = set()
    for _ in range(TRIALS):
        kept = sever(uses, cost, lambda n: 0 if may(n) else ENDLESS, fixed)
        again = closure(uses, kept)
        long = _long(uses, again)
        if not long:
            break
        fixed |= long
    return Cut(tuple(kept), frozenset(again))


def sever(uses: Collection[Value], cost: Callable[[Value], int], price: Callable[[Node], int],
          fixed: Collection[Value] = ()) -> list[Value]:
    """The values to keep. `price`: of running a node again, in units of `cost`; ENDLESS where it
    cannot. `fixed`: values that are not computed again."""
    def again(v: Value) -> int:
        return ENDLESS if v.node is None or v in fixed else price(v.node)

    flow = Flow()
    source, sink = flow.vertex(), flow.vertex()
    place: dict[Value, int] = {}
    stack = list(uses)
    while stack:
        v = stack.pop()
        if v in place:
            continue
        place[v] = a = flow.vertex()
        flow.edge(a, flow.vertex(), cost(v))
        dear = again(v)
        if dear:
            flow.edge(source, a, dear)
        if dear < ENDLESS and v.node is not None:
            stack.extend(v.node.inputs)
    for v, a in place.items():
        if again(v) < ENDLESS and v.node is not None:
            for x in v.node.inputs:
                flow.edge(place[x] + 1, a, ENDLESS)
    for v in uses:
        flow.edge(place[v] + 1, sink, ENDLESS)
    near = flow.cut(source, sink)
    return [v for v, a in place.items() if near[a] and not near[a + 1]]


def closure(uses: Collection[Value], kept: Collection[Value]) -> set[Node]:
    """The nodes that compute what is used from what is kept."""
    have, again = set(kept), set()
    stack = [v for v in uses if v not in have]
    while stack:
        v = stack.pop()
        node = v.node
        assert node is not None, f"{v} is neither kept nor computed"
        if node in again:
            continue
        again.add(node)
        stack.extend(i for i in node.inputs if i not in have)
    return again


def missing(again: Collection[Node], values: Iterable[Value], done: set[Node]) -> list[Node]:
    """The nodes, of those to run again, that must run now so that the values are there; notes them
    as done."""
    made: list[Node] = []
    stack = [v.node for v in values]
    while stack:
        node = stack[-1]
        if node is None or node not in again or node in done:
            stack.pop()
            continue
        first = [v.node for v in node.inputs if v.node in again and v.node not in done]
        if first:
            stack += first
        else:
            done.add(node)
            made.append(node)
    return made


def _long(uses: Mapping[Value, Sequence[int]], again: Collection[Node]) -> set[Value]:
    """Values that would be computed again long before their last use."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for node in _late_first(again):
        for v in node.results:
            at = [*uses.get(v, ()), *((first[v], last[v]) if v in first else ())]
            if not at:
                continue
            first[v], last[v] = min(at), max(at)
            # A view keeps alive what it shows; others ask for their inputs once.
            end = last[v] if node.op.kind == registry.VIEW else first[v]
            for x in node.inputs:
                first[x] = min(first.get(x, first[v]), first[v])
                last[x] = max(last.get(x, end), end)
    own = {v for node in again for v in node.results if node.op.kind != registry.VIEW}
    return {v for v in own if v in first and last[v] - first[v] > SPAN and weight(v) > 64}


def _late_first(nodes: Collection[Node]) -> list[Node]:
    """The nodes, each after those that use its results."""
    waits = dict.fromkeys(nodes, 0)
    makers = {n: {v.node for v in n.inputs if v.node in waits} for n in waits}
    for before in makers.values():
        for m in before:
            assert m is not None
            waits[m] += 1
    ready = [n for n, count in waits.items() if not count]
    order = []
    while ready:
        n = ready.pop()
        order.append(n)
        for m in makers[n]:
            assert m is not None
            waits[m] -= 1
            if not waits[m]:
                ready.append(m)
    return order
