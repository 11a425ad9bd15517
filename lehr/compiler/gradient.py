"""How gradients lie where only some results of a call have one.

A leaf's gradient is a sum of terms, and lies as its first one does. A backward that lacks terms is
run once more on tensors without data, op by op, as eager mode would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import log
from lehr.compiler.capture.request import Request
from lehr.compiler.graph.ir import Graph, RefType, Value, map_values
from lehr.compiler.passes.absent import absent
from lehr.ops.layout import contiguous
from lehr.tensor import dispatch
from lehr.tensor.create import empty_strided
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


def strides_of(request: Request, graph: Graph, present: Sequence[bool], numbers: Sequence[int]
               ) -> list[tuple[Any, ...]]:
    """The layouts of the gradients `numbers`. graph: functional, of the whole call; present: which
    tangents are there. Those of the whole backward where sizes are symbols, or where an op cannot
    do without data."""
    whole = [request.grad_strides[n] for n in numbers]
    if all(present) or request.sizes:
        return whole
    params = {p.name: p for p in graph.params}
    own = [params[t.name] for t in request.tangents]
    missing = {t for t, here in zip(own, present, strict=True) if not here}
    alone, places = absent(graph, missing, [t for t in own if t not in missing], numbers)
    lying = {t.name: request.strides[i]
             for t, i in zip(request.tangents, request.roots, strict=True)}
    inputs = [hollow(p, lying.get(p.name)) for p in alone.params]
    try:
        with no_grad():
            made = [t._strides for t in run(alone, inputs)]
    except (RuntimeError, TypeError) as error:      # numbers are right either way
        log.channel("graph")("gradients of some results lie as those of all: %s", error)
        return whole
    for place, strides in zip(places, made, strict=True):
        whole[place] = strides
    return whole


def hollow(param: Value, strides: Sequence[int] | None) -> Tensor:
    """What stands for an argument."""
    kind = param.type
    if isinstance(kind, RefType):
        return without_data(kind.tensor, kind.strides)
    return without_data(kind, strides)


def without_data(kind: Any, strides: Sequence[int] | None) -> Tensor:
    made = contiguous(kind.shape) if strides is None else strides
    return empty_strided(kind.shape, made, dtype=kind.dtype, device="meta")


def run(graph: Graph, inputs: Sequence[Any]) -> list[Tensor]:
    """The gradients, without data; what ops make of no tensor is left without, too."""
    known: dict[Value, Any] = dict(zip(graph.params, inputs, strict=True))
    for node in graph.nodes:
        args = map_values(node.args, known.__getitem__)
        if node.op.name == "read":
            made = args[0]
        elif node.op.name == "number":
            made = 1
        else:
            made = dispatch.call(node.op, args)
        made = made if isinstance(made, tuple) else (made,)
        known.update(zip(node.results, [emptied(t) for t in made], strict=True))
    return [known[v] for v in graph.results["grads"]]


def emptied(t: Any) -> Any:
    """A tensor without its data."""
    if not isinstance(t, Tensor) or t.device.type == "meta":
        return t
    return empty_strided(t._shape, t._strides, dtype=t.dtype, device="meta")


__all__ = ["strides_of"]
