"""Back ends by name: each turns a capture's `Request` into something that runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lehr.base.options import Options
from lehr.compiler.capture.entry import Compiled, Request
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import Graph, Value, map_values
from lehr.compiler.passes import partition
from lehr.compiler.passes.functionalize import functionalize
from lehr.tensor import dispatch
from lehr.tensor.tensor import Tensor

Runner = Callable[[Sequence[Any]], dict[str, tuple[Any, ...]]]


def eager_array(value: Any) -> Any:
    """An input of a graph as the reference interpreter takes it."""
    return value._array if isinstance(value, Tensor) else np.asarray(value)


def reference(request: Request, options: Options) -> Compiled:
    """The graph interpreter: slow, and what every other back end is compared with."""
    graph = functionalize(request.graph)
    strides = request.strides

    def tensors(arrays: Sequence[Any], layouts: Sequence[Any]) -> list[Tensor]:
        return [laid_out(a, s) for a, s in zip(arrays, layouts, strict=True)]

    if not request.tangents:
        def forward(inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
            found = interp.run(graph, [eager_array(t) for t in inputs])
            return tensors(found["outputs"], strides), None
        return Compiled(forward)
    names = [t.name for t in request.tangents]
    params = {p.name: p for p in graph.params}
    split = partition.split(graph, [params[n] for n in names])
    order = [p for p in graph.params if p.name not in set(names)]

    def forward_joint(inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
        arrays = [eager_array(t) for t in inputs]
        found = interp.run(split.forward, arrays)
        state = collect(split, order, arrays, found["saved"])
        return tensors(found["outputs"], strides), state

    def backward(state: Any, tangents: Sequence[Tensor]) -> list[Tensor]:
        found = interp.run(split.backward, [*state, *(t._array for t in tangents)])
        return tensors(found["grads"], request.grad_strides)
    return Compiled(forward_joint, backward, functools.partial(replay, graph))


def replay(graph: Graph, inputs: Sequence[Any], tangents: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a functionalized joint graph, op by op on the tape: a derivative of a compiled
    backward is asked for."""
    known: dict[Value, Any] = dict(zip(graph.params, [*inputs, *tangents], strict=True))
    for node in graph.nodes:
        args = map_values(node.args, known.__getitem__)
        if node.op.name == "read":
            made: Any = args[0]
        elif node.op.name == "number":
            made = args[0].item() if isinstance(args[0], Tensor) else args[0]
        else:
            made = dispatch.call(node.op, args)
        if len(node.results) == 1:
            known[node.results[0]] = made[0] if isinstance(made, tuple) else made
        else:
            known.update(zip(node.results, made, strict=True))
    return [known[v] for v in graph.results["grads"]]


def collect(split: partition.Split, order: Sequence[Value], inputs: Sequence[Any],
            saved: Sequence[Any]) -> list[Any]:
    """Backward's first arguments: inputs that it reads itself, and what forward saved."""
    place = {p: i for i, p in enumerate(order)}
    rest = iter(saved)
    return [inputs[place[v]] if v in place else next(rest) for v in split.kept]


def laid_out(a: Any, strides: tuple[Any, ...]) -> Tensor:
    """A fresh tensor with the values of `a` in a given layout."""
    a = np.asarray(a)
    if a.base is not None or not a.flags.owndata:
        a = a.copy()
    size = a.itemsize
    if a.size == 0 or all(n == 1 or have == want * size for n, have, want in zip(
            a.shape, a.strides, strides, strict=True)):
        made = Tensor._from_array(a)
        made._strides = tuple(strides)
        return made
    extent = 1 + sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True))
    owner = np.empty(extent, a.dtype)
    view = np.ndarray(a.shape, a.dtype, owner.view(np.uint8), 0, tuple(s * size for s in strides))
    view[...] = a
    return Tensor._of(owner, view, Tensor._from_array(a).dtype, a.shape, tuple(strides))


BACKENDS: dict[str, Callable[..., Compiled]] = {"reference": reference, "inductor": reference}

__all__ = ["BACKENDS", "Graph", "reference"]
