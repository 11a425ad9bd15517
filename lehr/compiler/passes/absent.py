"""A backward graph for a call of which only some results have a gradient.

A result that backward is not asked about has none, and what its gradient would be multiplied with
does not matter: where that is infinite or NaN, zeros in the place of the gradient would make NaN of
what the others give. So what depends on absent gradients alone is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lehr.compiler.graph.ir import Builder, Graph, Node, TensorType, Value, map_values
from lehr.compiler.graph.part import depending, needed


def absent(graph: Graph, missing: Collection[Value], present: Collection[Value],
           wanted: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
    """(the graph without the parameters `missing`, which of the "grads" of the numbers `wanted` it
    gives). `present`: the parameters that are gradients, too, and there.

    The graph is without writes, and its gradients are linear in those parameters.
    """
    nothing = depending(graph, missing) - depending(graph, present)
    every = [graph.results["grads"][n] for n in wanted]
    left = [n for n, v in enumerate(every) if v not in nothing]
    results = [every[n] for n in left]
    builder = Builder(graph.name)
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params
                               if p not in nothing}
    for node in needed(graph, results, nothing):
        builder.location = node.location
        made = _alone(node, nothing, known)
        if made is None:
            made = builder.call(node.op, map_values(
                node.args, lambda v: _zeros(builder, v) if v in nothing else known[v]))
        several = made if isinstance(made, tuple) else (made,)
        known.update(zip(node.results, several, strict=True))
    return builder.finish({"grads": [known[v] for v in results]}), tuple(left)


def _alone(node: Node, nothing: Collection[Value], known: dict[Value, Any]) -> Any:
    """The other term of a sum with nothing, where it is all that there is."""
    if node.op.name != "add" or len(node.inputs) != 2 or node.args[2:] not in ((), (1,)):
        return None
    kept = [v for v in node.inputs if v not in nothing]
    return known[kept[0]] if len(kept) == 1 and kept[0].type == node.result.type else None


def _zeros(builder: Builder, v: Value) -> Value:
    kind = v.type
    assert isinstance(kind, TensorType)
    made: Value = builder.F.full(kind.shape, 0, dtype=kind.dtype, device=kind.device)
    return made
