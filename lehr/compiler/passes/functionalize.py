"""Removes mutation: reads and writes of Refs become values, the last value written a write-back.

Afterwards a Ref has at most one `read`, which gives its value at the start of the call, and nothing
happens to storages before the end of the graph.
"""

from __future__ import annotations

from typing import Any

from lehr.compiler.graph.ir import Builder, Graph, Node, Value, copy_into


def functionalize(graph: Graph) -> Graph:
    """The same results and final storages, without writes. A storage that ends up with the value it
    had is not written back."""
    builder = Builder(graph.name)
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params}
    first: dict[Value, Value] = {}
    current: dict[Value, Value] = {}

    def rewrite(b: Builder, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op.name == "read":
            ref = args[0]
            if ref not in current:
                current[ref] = first[ref] = b.call(node.op, args)
            return current[ref]
        if node.op.name == "write":
            current[args[0]] = args[1]
            return None
        return b.call(node.op, args)

    copy_into(builder, graph, known, rewrite)
    for target, value in zip(graph.targets, graph.results["writebacks"], strict=True):
        current[known[target]] = known[value]
    backs = [(p, current[p]) for p in builder.params
             if p in current and current[p] is not first.get(p)]
    results = {g: [known[v] for v in vs] for g, vs in graph.results.items()}
    results["writebacks"] = [v for _, v in backs]
    return builder.finish(results, [p for p, _ in backs])
