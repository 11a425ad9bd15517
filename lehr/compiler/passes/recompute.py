"""Computes cheap values again instead of keeping them while much else is in memory.

In a graph of a whole training step, what forward makes for backward all lives where the one ends
and the other begins. There is no mark for that place: it is where the most bytes lie that could
be computed again. What crosses it is then chosen as between a forward and a backward graph (`cut`);
what is not kept is computed again just before its first use behind that place. Results are the
same to the last bit: the same ops on the same numbers.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from lehr.compiler.graph.ir import Builder, Graph, Node, Value, map_values
from lehr.compiler.passes.cut import SPAN, Cut, cheap, choose, missing, weight
from lehr.compiler.passes.simplify import live
from lehr.ops import registry

# A round is worth it from this part (one in ...) of the bytes that cross on: it costs computation.
GAIN = 4
LEAST, SMALL = 1 << 20, 1 << 12   # bytes: of a gain, and of a value that is worth it
IMAGES = ("convolution", "conv_weight")
ROUNDS = 3   # a place that is no longer the worst leaves another one


def recompute(graph: Graph) -> Graph:
    """The same graph, or one with a lower peak: of a step that writes weights. What others keep is
    asked for by the caller, or was chosen when they were split. Steps with convolutions stay as
    they are: their statistics share loops with what they normalise, and apart both cost more than
    the few bytes are worth."""
    if not graph.targets or any(node.op.name in IMAGES for node in graph.nodes):
        return graph
    for _ in range(ROUNDS):
        made = _round(graph)
        if made is graph:
            break
        graph = made
    return graph


def _round(graph: Graph) -> Graph:
    place = {v: n for n, node in enumerate(graph.nodes) for v in node.results}
    uses = _uses(graph)
    returned = set(graph.returned)
    brief = {v for v, where in uses.items() if v in returned or where[-1] - place.get(v, 0) <= SPAN}
    at = _place(graph, place, uses, brief)
    if at is None:
        return graph
    late = {v: later for v, where in uses.items() if place.get(v, at) < at
            and (later := [n for n in where if n >= at])}

    def cost(v: Value) -> int:
        if v.node is None or v.node.op.name == "read":
            return 0
        return 1 if v in returned else weight(v) + (v.node.op.kind == registry.VIEW)

    found = choose(late, cost, lambda node: cheap(node) and _large(node))
    before, after = (sum(_bytes(v) for v in vs if v not in brief) for vs in (late, found.kept))
    if (before - after) * GAIN < max(before, LEAST * GAIN):
        return graph
    return _rebuilt(graph, at, found)


def _large(node: Node) -> bool:
    """Whether keeping a result costs more than asking for it again: numbers and statistics stay."""
    return node.op.kind == registry.VIEW or any(weight(v) > SMALL for v in node.results)


def _bytes(v: Value) -> int:
    """What a value takes: nothing where it is a view, or was there before the graph ran."""
    node = v.node
    if node is None or node.op.kind == registry.VIEW or node.op.name == "read":
        return 0
    return weight(v)


def _uses(graph: Graph) -> dict[Value, list[int]]:
    """Where each value is used; results at the end."""
    found: dict[Value, list[int]] = {}
    for n, node in enumerate(graph.nodes):
        for v in dict.fromkeys(node.inputs):
            found.setdefault(v, []).append(n)
    for v in graph.returned:
        found.setdefault(v, []).append(len(graph.nodes))
    return found


def _place(graph: Graph, place: dict[Value, int], uses: dict[Value, list[int]],
           brief: set[Value]) -> int | None:
    """The node before which the most bytes lie that could be computed again; None where they are
    few. `brief`: values that do not count."""
    change = [0] * (len(graph.nodes) + 2)
    for v, where in uses.items():
        if v.node is not None and v not in brief and cheap(v.node):
            change[place[v] + 1] += _bytes(v)
            change[where[-1] + 1] -= _bytes(v)
    alive = list(accumulate(change))
    at = max(range(len(alive)), key=alive.__getitem__)
    return at if alive[at] >= LEAST else None


def _rebuilt(graph: Graph, at: int, found: Cut) -> Graph:
    builder = Builder(graph.name)
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params}
    again: dict[Value, Any] = {}

    def copy(node: Node, into: dict[Value, Any]) -> None:
        builder.location = node.location
        made = builder.call(node.op, map_values(node.args, lambda v: again.get(v, known.get(v))))
        if len(node.results) == 1:
            into[node.results[0]] = made[0] if type(made) is tuple else made
        else:
            into.update(zip(node.results, made or (), strict=True))

    done: set[Node] = set()
    for n, node in enumerate(graph.nodes):
        if n >= at:
            for m in missing(found.again, node.inputs, done):
                copy(m, again)
        copy(node, known)
    results = {g: [known[v] for v in vs] for g, vs in graph.results.items()}
    builder.nodes = live(builder.nodes, [v for vs in results.values() for v in vs])
    return builder.finish(results, [known[t] for t in graph.targets])
