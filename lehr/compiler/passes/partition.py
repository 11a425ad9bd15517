"""Splits a joint graph into a forward and a backward graph, keeping as few bytes between them as
possible (`cut` says how)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lehr.compiler.graph.ir import Builder, Graph, Node, RefType, Value, map_values
from lehr.compiler.graph.part import depending
from lehr.compiler.passes import budget
from lehr.compiler.passes.cut import ENDLESS, choose, missing, weight
from lehr.compiler.passes.simplify import live
from lehr.ops import registry


class Split(NamedTuple):
    """forward returns (outputs, saved, write-backs); backward takes `kept` and the tangents.

    kept     values of the joint graph, in the order of backward's first parameters
    refs     which of them are Ref parameters of the joint graph that backward reads itself
    anew     which of these forward's own ops read in backward, too: their results are not kept
    early    Ref parameters from which is computed what is kept
    nbytes   bytes kept in "saved", without inputs and weights
    strides  the layout of each of "saved", None for row-major
    """

    forward: Graph
    backward: Graph
    kept: tuple[Value, ...]
    refs: tuple[Value, ...]
    anew: frozenset[Value]
    early: frozenset[Value]
    nbytes: int
    strides: tuple[Any, ...]


def split(graph: Graph, tangents: Sequence[Value], share: float = 1.0,
          layouts: Mapping[Value, RefType] | None = None) -> Split:
    """Splits a functionalized joint graph; `tangents` are the parameters that only backward has.
    `share`: of the bytes that would be kept, those that may be (`budget`). `layouts`: of values
    that, if kept, are not row-major."""
    layouts = layouts or {}
    late = depending(graph, tangents)   # what can only exist in backward
    outputs, written = set(graph.results["outputs"]), set(graph.targets)

    def cost(v: Value) -> int:
        if v.node is None:
            # A Ref that the call writes cannot be read again later.
            return ENDLESS if v in written else 0
        own = weight(v)
        return max(own // 8 if v in outputs else own + (v.node.op.kind == registry.VIEW), 1)

    uses = _uses(graph, late)
    found = choose(uses, cost)
    place = {v: n for n, v in enumerate((*graph.params, *(
        v for node in graph.nodes for v in node.results)))}
    if share < 1:
        found = budget.within(uses, cost, place, int(share * budget.kept_bytes(found.kept)))
    kept = sorted(found.kept, key=place.__getitem__)
    forward = _forward(graph, late, kept, tangents)
    backward = _backward(graph, late, kept, found.again, tangents, layouts)
    refs = tuple(v for v in kept if isinstance(v.type, RefType))
    strides = tuple(layouts[v].strides if v in layouts else None for v in kept if v.node)
    needed = {v for node in live(graph.nodes, kept) for v in node.inputs}
    early = frozenset(p for p in graph.params if p in needed)
    return Split(forward, backward, tuple(kept), refs, _anew(graph, refs, found.again), early,
                 budget.kept_bytes(kept), strides)


def _anew(graph: Graph, refs: Sequence[Value], again: frozenset[Node]) -> frozenset[Value]:
    """The Refs from which backward computes what forward had computed: on the way to its results,
    not for backward alone."""
    memory = {v: v for v in refs}   # value -> the Ref whose memory it is
    found = set()
    for node in live(graph.nodes, [*graph.results["outputs"], *graph.results["writebacks"]]):
        here = {memory[v] for v in node.inputs if v in memory}
        if here and (node.op.name == "read" or node.op.kind == registry.VIEW):
            memory.update(dict.fromkeys(node.results, *here))
        elif node in again:
            found |= here
    return frozenset(found)


def _uses(graph: Graph, late: set[Value]) -> dict[Value, list[int]]:
    """Forward values that backward's nodes and results use directly, and where."""
    found: dict[Value, list[int]] = {}
    for n, node in enumerate(graph.nodes):
        if any(r in late for r in node.results):
            for v in node.inputs:
                if v not in late:
                    found.setdefault(v, []).append(n)
    for v in graph.results["grads"]:
        if v not in late:
            found.setdefault(v, []).append(len(graph.nodes))
    return found


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


def _backward(graph: Graph, late: set[Value], kept: list[Value], again: frozenset[Node],
              tangents: Sequence[Value], layouts: Mapping[Value, RefType]) -> Graph:
    builder = Builder(graph.name + "_backward")
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {}
    for v in kept:
        known[v] = builder.param(f"kept_{v.name}", layouts.get(v, v.type))
    for t in tangents:
        known[t] = builder.param(t.name, t.type)
    for v in filter(layouts.__contains__, kept):
        known[v] = builder.call(registry.get("read"), (known[v],))
    done: set[Node] = set()
    for node in graph.nodes:
        if any(r in late for r in node.results):
            for m in (*missing(again, node.inputs, done), node):
                _copy(builder, m, known)
    for m in missing(again, graph.results["grads"], done):
        _copy(builder, m, known)
    return builder.finish({"grads": [known[v] for v in graph.results["grads"]]})


def _copy(builder: Builder, node: Node, known: dict[Value, Any]) -> None:
    builder.location = node.location
    made = builder.call(node.op, map_values(node.args, known.__getitem__))
    if len(node.results) == 1:
        known[node.results[0]] = made[0] if type(made) is tuple else made
    else:
        known.update(zip(node.results, made or (), strict=True))
