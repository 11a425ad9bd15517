"""Runs a graph node by node on numpy arrays: what every later stage is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lehr.base import sym
from lehr.compiler.graph.ir import Graph, Node, RefType, ScalarType, TensorType, Type, Value
from lehr.compiler.graph.text import node_text
from lehr.ops import execute
from lehr.ops.execute import Array


def run(graph: Graph, args: Sequence[Any], sizes: Mapping[Any, int] | None = None
        ) -> dict[str, tuple[Any, ...]]:
    """The result groups of a call.

    `args`: one array for each tensor or Ref parameter, a Python number for each scalar. Arrays of
    Refs are changed in place, by `write` nodes and by write-backs. `sizes` gives symbols that are
    no dimension of a parameter. TypeError where an argument does not fit its parameter.
    """
    sizes = bind_sizes(graph, args, sizes)
    values: dict[Value, Any] = {}
    for p, a in zip(graph.params, args, strict=True):
        values[p] = check(p, a, sizes)
    for node in graph.nodes:
        made = evaluate(node, values, sizes)
        for v, a in zip(node.results, made, strict=True):
            values[v] = a
    results = {g: tuple(values[v] for v in vs) for g, vs in graph.results.items()}
    for target, a in zip(graph.targets, results["writebacks"], strict=True):
        np.copyto(values[target], a, casting="no")
    return results


def bind_sizes(graph: Graph, args: Sequence[Any], sizes: Mapping[Any, int] | None = None
               ) -> dict[Any, int]:
    """The value of every size variable: from `sizes`, or the dimension of a parameter that is just
    it."""
    found = dict(sizes or {})
    for p, a in zip(graph.params, args, strict=True):
        t = tensor_of(p.type)
        for want, have in zip(t.shape, getattr(a, "shape", ()), strict=False) if t else ():
            if isinstance(want, sym.Var):
                found.setdefault(want, have)
    for var in graph.symbols:
        if var not in found:
            raise TypeError(f"graph {graph.name}: no parameter has the size {var.name}; "
                            "pass it in `sizes`")
    return found


def tensor_of(type: Type) -> TensorType | None:
    """The tensor type of a parameter; None for a number."""
    if isinstance(type, RefType):
        return type.tensor
    return type if isinstance(type, TensorType) else None


def check(param: Value, a: Any, sizes: Mapping[Any, int]) -> Any:
    t = tensor_of(param.type)
    if t is None:
        return a
    shape = concrete(t.shape, sizes)
    if not isinstance(a, np.ndarray) or a.dtype != t.dtype.np or a.shape != shape:
        have = f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else type(a).__name__
        raise TypeError(f"parameter {param.name} takes {t.dtype.name}{list(shape)}, not {have}")
    return a


def concrete(a: Any, sizes: Mapping[Any, int]) -> Any:
    """Sizes replaced by their values, also inside tuples."""
    if isinstance(a, sym.Sym):
        return sym.evaluate(a, sizes)
    return tuple(concrete(x, sizes) for x in a) if isinstance(a, tuple) else a


def evaluate(node: Node, values: dict[Value, Any], sizes: Mapping[Any, int]) -> tuple[Any, ...]:
    """The results of one node."""
    if node.op.name == "read":
        return (values[node.args[0]].copy(),)
    bound = tuple(_argument(a, values, sizes) for a in node.args)
    if node.op.name == "write":
        np.copyto(bound[0], bound[1], casting="no")
        return ()
    made = execute.run(node.op, bound)
    results = made if type(made) is tuple else (made,)
    for v, a in zip(node.results, results, strict=True):
        t = v.type
        if isinstance(t, TensorType) and (
                a.dtype != t.dtype.np or a.shape != concrete(t.shape, sizes)):
            raise AssertionError(f"made {a.dtype}{list(a.shape)} in {node_text(node)}")
        if isinstance(t, ScalarType) and isinstance(a, np.ndarray):
            raise AssertionError(f"made an array, not a number, in {node_text(node)}")
    return results


def _argument(a: Any, values: dict[Value, Any], sizes: Mapping[Any, int]) -> Any:
    if isinstance(a, Value):
        return values[a]
    if isinstance(a, tuple):
        return tuple(_argument(x, values, sizes) for x in a)
    return sym.evaluate(a, sizes) if isinstance(a, sym.Sym) else a


__all__ = ["Array", "bind_sizes", "check", "concrete", "evaluate", "run", "tensor_of"]
