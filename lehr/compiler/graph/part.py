"""A part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lehr.compiler.graph.ir import Builder, Graph, Node, RefType, TensorType, Value, map_values


def needed(graph: Graph, results: Iterable[Value], given: Iterable[Value]) -> list[Node]:
    """The nodes that compute `results` from `given`, in order."""
    stop, wanted, found = set(given), set(results), []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(v for v in node.results if v not in stop):
            found.append(node)
            wanted.update(node.inputs)
    return found[::-1]


def part(graph: Graph, results: Mapping[str, Sequence[Value]], given: Sequence[Value],
         targets: Sequence[Value] = (), name: str = "") -> Graph:
    """The graph that computes `results` (group -> values) from `given`.

    graph: without `write` nodes; given: its parameters or values of it that become parameters
    (named `v5` after value %5); targets: storages of the group "writebacks", among `given`.
    KeyError where `given` does not suffice.
    """
    builder = Builder(name or graph.name)
    builder.symbols = list(graph.symbols)
    known: dict[Value, Value] = {}
    for v in given:
        label = v.name if v.node is None else f"v{v.name}"
        known[v] = builder.param(label, v.type)
    for node in needed(graph, [v for vs in results.values() for v in vs], given):
        builder.location = node.location
        made = builder.call(node.op, map_values(node.args, known.__getitem__))
        several = made if isinstance(made, tuple) else (made,)
        known.update(zip(node.results, several, strict=True))
    return builder.finish({g: [known[v] for v in vs] for g, vs in results.items()},
                          [known[t] for t in targets])


def depending(graph: Graph, on: Iterable[Value]) -> set[Value]:
    """These parameters and all values that are computed from them."""
    found = set(on)
    for node in graph.nodes:
        if any(v in found for v in node.inputs):
            found.update(node.results)
    return found


def is_tensor(value: Value) -> bool:
    """Whether a value can be a result of a graph."""
    return isinstance(value.type, TensorType) and not isinstance(value.type, RefType)
