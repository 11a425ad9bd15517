"""Back ends of the user's own: callables that take a graph, as a callable, and example inputs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from lehr.compiler.backend import laid_out, named, sizes_of
from lehr.compiler.capture.entry import Compiled, Request
from lehr.compiler.gradient import strides_of
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import Graph, Value, map_values
from lehr.compiler.graph.part import part
from lehr.compiler.graph.text import print_graph
from lehr.compiler.passes.functionalize import functionalize
from lehr.compiler.run import word
from lehr.compiler.variant import Variants
from lehr.tensor import dispatch
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

Maker = Callable[["GraphModule", list[Any]], Callable[..., Any]]


class GraphModule:
    """A captured graph as a function of its inputs, op by op on eager tensors.

    graph  the graph: `params`, `nodes` (`op`, `args`, `results`, `location`), `results`
    code   its text
    """

    def __init__(self, graph: Graph, sizes: Callable[[Sequence[Any]], dict[Any, int]]) -> None:
        self.graph, self._sizes = graph, sizes
        self.code = print_graph(graph)

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """The results for inputs in the order of `graph.params`; storages written by the program
        are written.
        """
        known: dict[Value, Any] = dict(zip(self.graph.params, inputs, strict=True))
        sizes = self._sizes(inputs)
        for node in self.graph.nodes:
            args = interp.concrete(map_values(node.args, known.__getitem__), sizes)
            made = SPECIAL[node.op.name](args) if node.op.name in SPECIAL else (
                dispatch.call(node.op, args))
            if len(node.results) == 1:
                made = (made[0] if isinstance(made, tuple) else made,)
            known.update(zip(node.results, made, strict=True))
        with no_grad():
            backs = zip(self.graph.targets, self.graph.results["writebacks"], strict=True)
            for target, value in list(backs):
                known[target].copy_(known[value])
        return tuple(known[v] for v in self.graph.results["outputs"])

    __call__ = forward

    def print_readable(self, print_output: bool = True) -> str:
        """The graph's text, printed."""
        if print_output:
            sys.stdout.write(self.code + "\n")
        return self.code


# Ops that stand for no call of the user's.
SPECIAL: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "read": lambda args: args[0].detach().clone(),
    "number": lambda args: args[0].item() if isinstance(args[0], Tensor) else args[0],
}


def backend(make: Maker) -> Callable[..., Compiled]:
    """The back end that a user's callable is.

    make: (graph, inputs of the first call) -> a callable of the inputs that returns the graph's
    results. Gradients are computed from the captured graph, whatever it returns.
    """
    def compiled(request: Request, options: Any) -> Compiled:
        joint = functionalize(request.graph)
        late = {t.name for t in request.tangents}
        early = [p for p in joint.params if p.name not in late]
        groups = {g: joint.results[g] for g in ("outputs", "writebacks")}
        sizes = functools.partial(sizes_of, request)
        module = GraphModule(part(joint, groups, early, joint.targets), sizes)
        made: list[Callable[..., Any]] = []

        def forward(inputs: Sequence[Any]) -> tuple[list[Tensor], Any]:
            here = sizes(inputs)
            kept = [t._array.copy() if isinstance(t, Tensor) else t for t in inputs] if late else []
            plain = [t.detach() if isinstance(t, Tensor) else t for t in inputs]
            if not made:
                made.append(make(module, list(plain)))
            with no_grad():
                found = made[0](*plain)
            found = [found] if isinstance(found, Tensor) else list(found)
            if len(found) != len(request.strides) or not all(
                    isinstance(t, Tensor) for t in found):
                raise TypeError(f"the back end {name_of(make)} gave {len(found)} results; the "
                                f"graph has {len(request.strides)} tensors")
            taken = {id(t._storage.origin) for t in plain if isinstance(t, Tensor)}
            strides = interp.concrete(tuple(request.strides), here)
            return [fresh(t, s, taken) for t, s in zip(found, strides, strict=True)], (here, kept)

        variants = Variants(joint, named(joint, [t.name for t in request.tangents]),
                            lambda g, numbers, sizes, present: (
                                g, strides_of(request, joint, present, numbers)))

        def backward(state: Any, tangents: Sequence[Tensor | None], numbers: Sequence[int]
                 ) -> list[Tensor | None]:
            here, kept = state[0], iter(state[1])
            rest = (t for t in tangents if t is not None)
            v = variants.find(tangents, numbers, here)
            program, strides = v.program
            arrays = [next(rest)._array if p.name in late else next(kept) for p in program.params]
            grads = interp.run(program, arrays, here)["grads"]
            return v.spread([laid_out(g, s) for g, s in zip(
                grads, interp.concrete(tuple(strides), here), strict=True)])

        return Compiled(forward, backward if late else None, same=word.same())

    compiled.__name__ = name_of(make)
    return compiled


def name_of(make: Any) -> str:
    return getattr(make, "__name__", type(make).__name__)


def fresh(t: Tensor, strides: tuple[Any, ...], taken: set[int]) -> Tensor:
    """A result on memory of its own, laid out as eager results would be."""
    t = t.detach()
    if id(t._storage.origin) in taken or t._strides != tuple(strides) or t._offset:
        t = laid_out(t._array.copy(), strides)
    taken.add(id(t._storage.origin))
    return t
