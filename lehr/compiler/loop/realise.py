"""Which values of a graph get a buffer, and which are computed where they are used.

A value is *kept* (realised) where something needs memory (a library call, a host call, the caller),
where it is a reduction, a scan or a scatter, or where computing it again would cost more than a
load: several uses, or an expensive value read more often than it has elements. Views are never
kept. Fusion later takes back what turns out to be used only next to where it is made.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from lehr.base.dtype import COMPLEX
from lehr.compiler.graph.ir import Graph, Node, RefType, TensorType, Value
from lehr.compiler.loop.expr import op_weight
from lehr.ops import registry
from lehr.ops.registry import Op
from lehr.ops.rule import numel

# Computing a value again instead of loading it: at most this cost, from at most one buffer.
CHEAP = 2
# A value that is read more often than it has elements is kept from this cost on.
EXPENSIVE = 8
# Longer chains are cut, which bounds the depth of expressions.
DEPTH = 60

# Costs of kinds: random bits are a hash, and an index that is data is checked at every use.
OWN = {registry.RANDOM: 12, registry.INDEX: 4}

INLINE = ("view", "value", "number")


def nature(node: Node) -> str:
    """How a node is lowered: view, value, number, reduce, scan, scatter, join, extern, host; ""
    where it cannot be. Loops have no complex elements: their ops run in the host."""
    kind = _nature(node.op)
    far = kind != "number" and any(_complex(v) for v in (*node.inputs, *node.results))
    return "host" if far else kind


def _complex(v: Value) -> bool:
    t = v.type.tensor if isinstance(v.type, RefType) else v.type
    return isinstance(t, TensorType) and t.dtype.category == COMPLEX


@functools.cache
def _nature(op: Op) -> str:
    if op.name in ("read", "number"):
        return "number"
    if op.kind == registry.COMM or op.host:
        return "host"
    if op.kind == registry.EXTERN:
        return "extern"
    if op.scatter is not None:
        return "scatter"
    if op.name == "cat":
        return "join"
    if op.monoid is not None:
        return "scan" if op.kind == registry.SCAN else "reduce"
    if op.lower is not None:
        if _reduces(op.lower.__code__):
            return "fold"
        return "view" if op.kind == registry.VIEW and op.layout is not None else "value"
    return "value" if op.c is not None else ""


def _reduces(code: types.CodeType) -> bool:
    return "reduce" in code.co_names or any(
        _reduces(c) for c in code.co_consts if isinstance(c, types.CodeType))


def size_of(v: Value) -> Any:
    return numel(v.type.shape) if isinstance(v.type, TensorType) else 1


class Uses:
    """Per value: the routes by which it is used (views passed through), whether memory is needed,
    and the largest number of elements that a user computes."""

    def __init__(self, graph: Graph) -> None:
        self.routes: dict[Value, int] = {}
        self.memory: set[Value] = set()
        self.reach: dict[Value, Any] = {}
        for v in graph.returned:
            self._use(v, 1, size_of(v))
        for node in reversed(graph.nodes):
            self._node(node)

    def _use(self, v: Value, routes: int, reach: Any) -> None:
        self.routes[v] = self.routes.get(v, 0) + routes
        have = self.reach.get(v, 0)
        if not (isinstance(have, int) and isinstance(reach, int) and reach <= have):
            self.reach[v] = reach

    def _node(self, node: Node) -> None:
        kind = nature(node)
        needs = kind in ("extern", "host")
        for v in dict.fromkeys(node.inputs):
            if kind == "view":
                out = node.result
                self._use(v, self.routes.get(out, 0), self.reach.get(out, 0))
                needs = out in self.memory
            else:
                # A reduction computes each element of its input once.
                largest = 0 if kind in ("reduce", "scan") else max(
                    (size_of(r) for r in node.results), key=_order, default=1)
                self._use(v, 1, largest)
            if needs:
                self.memory.add(v)


def _order(n: Any) -> Any:
    return n if isinstance(n, int) else float("inf")


def kept(graph: Graph) -> set[Value]:
    """The values that get a buffer."""
    uses = Uses(graph)
    returned = set(graph.returned)
    found: set[Value] = set()
    cost: dict[Value, int] = {}
    sources: dict[Value, frozenset[Value]] = {}
    depth: dict[Value, int] = {}
    for node in graph.nodes:
        kind = nature(node)
        if kind not in INLINE:
            found.update(node.results)
            continue
        inputs = list(dict.fromkeys(node.inputs))
        own = 0 if kind != "value" else op_weight(node.op) if node.op.c else 1
        own = OWN.get(node.op.kind, own)
        v = node.result
        # What is smaller than the value is computed once for many elements.
        size = size_of(v)
        level = [x for x in inputs if not _smaller(size_of(x), size)]
        cost[v] = own + sum(cost.get(x, 0) for x in level if x not in found)
        depth[v] = (kind == "value") + max((depth.get(x, 0) for x in inputs if x not in found),
                                           default=0)
        sources[v] = frozenset().union(*(
            frozenset((x,)) if x in found or x not in sources else sources[x] for x in level))
        if kind != "value":
            continue
        again = uses.routes.get(v, 0) > 1 and not (cost[v] <= CHEAP and len(sources[v]) <= 1)
        if (v in returned or v in uses.memory or depth[v] > DEPTH or again
                or cost[v] >= EXPENSIVE and _grows(size_of(v), uses.reach.get(v, 0))):
            found.add(v)
    return found


def _smaller(have: Any, than: Any) -> bool:
    return isinstance(have, int) and (not isinstance(than, int) or have < than)


def _grows(have: Any, reach: Any) -> bool:
    if isinstance(have, int) and isinstance(reach, int):
        return reach > have
    return have is not reach and have != reach
