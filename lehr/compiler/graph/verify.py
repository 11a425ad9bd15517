"""The rules of the graph IR, checked.

Level 1 checks the structure: values are defined before they are used, Refs are touched by `read`
and `write` alone, results and write-backs fit. Level 2 infers every type and effect again from the
ops' rules and compares. A graph after `functionalize` obeys more: one `read` of a Ref at most, no
`write`, one write-back a Ref.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from lehr.base.proof import Undecided, prove_eq
from lehr.compiler.graph.ir import (
    Builder,
    Graph,
    Node,
    RefType,
    ScalarType,
    TensorType,
    Value,
    infer_effects,
    values_in,
)
from lehr.compiler.graph.text import node_text, type_text, value_text


class GraphError(AssertionError):
    """A graph that breaks the rules of its IR: a bug in the pass that made it."""


def verify(graph: Graph, level: int = 2, functional: bool = False) -> Graph:
    """Returns the graph; GraphError names the node, what is wrong, and the user's line.

    `functional`: hold it to the rules after `functionalize`.
    """
    if level >= 1:
        _structure(graph)
    if level >= 1 and functional:
        _functional(graph)
    if level >= 2:
        for node in graph.nodes:
            _inference(graph, node)
    return graph


def _error(graph: Graph, node: Node | None, text: str) -> GraphError:
    if node is None:
        return GraphError(f"graph {graph.name}: {text}")
    return GraphError(f"graph {graph.name}: {text}\n  in {node_text(node)}")


def _structure(graph: Graph) -> None:
    known: set[Value] = set()
    names = Counter(p.name for p in graph.params)
    for p in graph.params:
        if names[p.name] > 1:
            raise _error(graph, None, f"two parameters are named {value_text(p)}")
        if p.node is not None:
            raise _error(graph, None, f"parameter {value_text(p)} is a node's result")
        known.add(p)
    for node in graph.nodes:
        for v in node.inputs:
            if v not in known:
                raise _error(graph, node, f"{value_text(v)} is used before it is defined")
        touched = node.args[0] if node.op.name in ("read", "write") else None
        if touched is not None and not isinstance(getattr(touched, "type", None), RefType):
            raise _error(graph, node, f"{node.op.name} needs a Ref first")
        for v in values_in(node.args[0 if touched is None else 1:]):
            if isinstance(v.type, RefType):
                raise _error(graph, node, f"{value_text(v)} is a Ref: only read and write take one")
        for i, v in enumerate(node.results):
            if v.node is not node or v.index != i or v in known:
                raise _error(graph, node, f"result {i} does not belong to this node")
            known.add(v)
    for v in graph.returned:
        if v not in known:
            raise _error(graph, None, f"{value_text(v)} is returned but not defined")
        if not isinstance(v.type, TensorType | ScalarType):
            raise _error(graph, None, f"{value_text(v)} is returned but is no tensor or number")
    _writebacks(graph)


def _writebacks(graph: Graph) -> None:
    backs = graph.results["writebacks"]
    if len(backs) != len(graph.targets):
        raise _error(graph, None, f"{len(backs)} write-backs for {len(graph.targets)} targets")
    params = set(graph.params)
    for target, v in zip(graph.targets, backs, strict=True):
        if target not in params or not isinstance(target.type, RefType):
            raise _error(graph, None, f"write-back target {value_text(target)} is no Ref parameter")
        if not same_type(target.type.tensor, v.type):
            raise _error(graph, None, f"write-back of {value_text(v)}: {type_text(v.type)} into "
                         f"{value_text(target)}: {type_text(target.type)}")


def _functional(graph: Graph) -> None:
    reads: set[Value] = set()
    for node in graph.nodes:
        if node.op.name == "write":
            raise _error(graph, node, "a functional graph has no writes")
        if node.op.name == "read":
            if node.args[0] in reads:
                raise _error(graph, node, f"a second read of {value_text(node.args[0])}")
            reads.add(node.args[0])
    for target, count in Counter(graph.targets).items():
        if count > 1:
            raise _error(graph, None, f"two write-backs into {value_text(target)}")


def same_type(a: Any, b: Any) -> bool:
    """Whether two types are equal; sizes that are not known to differ count as equal."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return (a.dtype is b.dtype and a.device is b.device and len(a.shape) == len(b.shape)
                and all(m is n or m == n or prove_eq(m, n) is not False
                        for m, n in zip(a.shape, b.shape, strict=True)))
    return type(a) is type(b) and bool(a == b)


def _inference(graph: Graph, node: Node) -> None:
    effects = infer_effects(node.op, node.args)
    if effects != node.effects:
        raise _error(graph, node, f"effects {_effects(node.effects)} should be {_effects(effects)}")
    probe = Builder()
    probe.location = node.location
    try:
        probe.call(node.op, node.args)
    except Undecided:
        return  # the fact was decided, and is guarded, where the graph was captured
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise _error(graph, node, f"the rule refuses it: {told}") from error
    types = [v.type for v in probe.nodes[-1].results]
    stated = [v.type for v in node.results]
    if len(types) != len(stated) or not all(map(same_type, stated, types)):
        told = ", ".join(map(type_text, types)) or "no results"
        raise _error(graph, node, f"the rule gives {told}")


def _effects(effects: Any) -> str:
    return "{" + ", ".join(sorted(f"{e.kind} {getattr(e.target, 'name', e.target)}"
                                  for e in effects)) + "}"
