"""Splits a joint graph into a forward and a backward graph, keeping as few bytes between them as
possible.

What backward needs of forward is a cut: every path from forward's inputs to a use in backward
crosses a value that is kept. A value costs its bytes; an input or a weight costs nothing (it is
alive anyway); a value that comes from cheap elementwise work need not be kept, since backward can
compute it again from what is. The cheapest cut is the maximum flow (Ford and Fulkerson 1956; here
Dinic 1970).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.compiler.graph.ir import Builder, Graph, Node, RefType, TensorType, Value, map_values
from lehr.ops import registry

# Kinds that backward may run again: they cost about as much as loading their result would.
CHEAP = frozenset((registry.POINTWISE, registry.VIEW, registry.CREATE, registry.RANDOM))
ENDLESS = 1 << 60
SIZE_HINT = 128  # stands for a symbolic size when values are weighed


class Split(NamedTuple):
    """forward returns (outputs, saved, write-backs); backward takes `kept` and the tangents.

    kept     values of the joint graph, in the order of backward's first parameters
    refs     which of them are Ref parameters of the joint graph that backward reads itself
    nbytes   bytes kept in "saved", without inputs and weights
    """

    forward: Graph
    backward: Graph
    kept: tuple[Value, ...]
    refs: tuple[Value, ...]
    nbytes: int


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


def split(graph: Graph, tangents: Sequence[Value]) -> Split:
    """Splits a functionalized joint graph; `tangents` are the parameters that only backward has."""
    late = _depends_on(graph, tangents)
    written = set(graph.targets)
    needed = _needed(graph, late)
    kept = _cut(graph, late, needed, written)
    again = _recomputed(graph, late, needed, kept)
    # An input that costs nothing lies on the cut even where nothing asks for it.
    asked = needed.union(*(node.inputs for node in again))
    kept = [v for v in kept if v in asked]
    forward = _forward(graph, late, kept, tangents)
    backward = _backward(graph, late, kept, again, tangents)
    refs = tuple(v for v in kept if isinstance(v.type, RefType))
    params = set(graph.params)
    nbytes = sum(weight(v) for v in kept if v not in params)
    return Split(forward, backward, tuple(kept), refs, nbytes)


def _depends_on(graph: Graph, tangents: Sequence[Value]) -> set[Value]:
    """Values that can only exist in backward."""
    late = set(tangents)
    for node in graph.nodes:
        if any(v in late for v in node.inputs):
            late.update(node.results)
    return late


def _needed(graph: Graph, late: set[Value]) -> set[Value]:
    """Forward values that backward's nodes and results use directly."""
    used = {v for node in graph.nodes if any(r in late for r in node.results)
            for v in node.inputs if v not in late}
    return used | {v for v in graph.results["grads"] if v not in late}


class Flow:
    """Maximum flow on integer vertices (Dinic), without recursion."""

    def __init__(self) -> None:
        self.head: list[list[int]] = []
        self.to: list[int] = []
        self.room: list[int] = []

    def vertex(self) -> int:
        self.head.append([])
        return len(self.head) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        for x, y, room in ((a, b, capacity), (b, a, 0)):
            self.head[x].append(len(self.to))
            self.to.append(y)
            self.room.append(room)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.head)
        level[source] = 0
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for e in self.head[a]:
                if self.room[e] > 0 and level[self.to[e]] < 0:
                    level[self.to[e]] = level[a] + 1
                    queue.append(self.to[e])
        return level

    def _push(self, source: int, sink: int, level: list[int], at: list[int]) -> int:
        path: list[int] = []
        a = source
        while a != sink:
            edges = self.head[a]
            while at[a] < len(edges):
                e = edges[at[a]]
                if self.room[e] > 0 and level[self.to[e]] == level[a] + 1:
                    break
                at[a] += 1
            else:
                if not path:
                    return 0
                level[a] = -1
                a = self.to[path.pop() ^ 1]
                continue
            path.append(e)
            a = self.to[e]
        pushed = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= pushed
            self.room[e ^ 1] += pushed
        return pushed

    def cut(self, source: int, sink: int) -> list[bool]:
        """Whether each vertex lies on the source's side of a minimum cut."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return [x >= 0 for x in level]
            at = [0] * len(self.head)
            while self._push(source, sink, level, at):
                pass


def _cut(graph: Graph, late: set[Value], needed: set[Value], written: set[Value]) -> list[Value]:
    """The values to keep."""
    flow = Flow()
    source, sink = flow.vertex(), flow.vertex()
    place: dict[Value, tuple[int, int]] = {}
    outputs = set(graph.results["outputs"])
    order: list[Value] = []

    def enter(v: Value, cost: int) -> tuple[int, int]:
        a, b = flow.vertex(), flow.vertex()
        flow.edge(a, b, cost)
        place[v] = (a, b)
        order.append(v)
        return a, b

    for p in graph.params:
        if p not in late:
            # A Ref that the call writes cannot be read again later.
            a, _ = enter(p, ENDLESS if p in written else 0)
            flow.edge(source, a, ENDLESS)
    for node in graph.nodes:
        if any(r in late for r in node.results):
            continue
        cheap = node.op.kind in CHEAP and all(e.kind == "read" for e in node.effects)
        for r in node.results:
            cost = weight(r)
            cost = cost // 8 if r in outputs else cost + (node.op.kind == registry.VIEW)
            a, _ = enter(r, max(cost, 1))
            if not cheap or not node.inputs:
                flow.edge(source, a, 0 if cheap else ENDLESS)
            for v in node.inputs:
                flow.edge(place[v][1], a, ENDLESS)
    for v in needed:
        flow.edge(place[v][1], sink, ENDLESS)
    near = flow.cut(source, sink)
    return [v for v in order if near[place[v][0]] and not near[place[v][1]]]


def _recomputed(graph: Graph, late: set[Value], needed: set[Value], kept: list[Value]) -> set[Node]:
    """Forward nodes that backward runs again."""
    have, again = set(kept), set()
    stack = [v for v in needed if v not in have]
    while stack:
        v = stack.pop()
        node = v.node
        assert node is not None, f"{v} is neither kept nor computed"
        if node in again:
            continue
        again.add(node)
        stack.extend(i for i in node.inputs if i not in have)
    return again


def _forward(graph: Graph, late: set[Value], kept: list[Value], tangents: Sequence[Value]) -> Graph:
    builder = Builder(graph.name + "_forward")
    builder.symbols = list(graph.symbols)
    skip = set(tangents)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params
                               if p not in skip}
    params = set(graph.params)
    for node in graph.nodes:
        if not any(r in late for r in node.results):
            _copy(builder, node, known)
    saved = [known[v] for v in kept if v not in params]
    return builder.finish(
        {"outputs": [known[v] for v in graph.results["outputs"]], "saved": saved,
         "writebacks": [known[v] for v in graph.results["writebacks"]]},
        [known[t] for t in graph.targets])


def _backward(graph: Graph, late: set[Value], kept: list[Value], again: set[Node],
              tangents: Sequence[Value]) -> Graph:
    builder = Builder(graph.name + "_backward")
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {}
    for v in kept:
        known[v] = builder.param(f"kept_{v.name}", v.type)
    for t in tangents:
        known[t] = builder.param(t.name, t.type)
    for node in graph.nodes:
        if node in again or any(r in late for r in node.results):
            _copy(builder, node, known)
    return builder.finish({"grads": [known[v] for v in graph.results["grads"]]})


def _copy(builder: Builder, node: Node, known: dict[Value, Any]) -> None:
    builder.location = node.location
    made = builder.call(node.op, map_values(node.args, known.__getitem__))
    if len(node.results) == 1:
        known[node.results[0]] = made[0] if type(made) is tuple else made
    else:
        known.update(zip(node.results, made or (), strict=True))
