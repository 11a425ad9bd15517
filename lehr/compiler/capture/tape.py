"""The tape's nodes for compiled calls.

All results of a call that carry gradients are results of one node. Where one of them was made from
another, a gradient of the first reaches the call's inputs without passing through the second: what
it adds to the second's gradient is not known outside. Asking for that is an error (`Node.inner`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lehr.compiler.capture.tracer import Outside
from lehr.compiler.graph.ir import Value
from lehr.tensor import node
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


class Backward(node.Node):
    """The tape's node for a compiled call.

    inner  result -> the results that were made from it
    """

    __slots__ = ("inner",)

    def __init__(self, op: Any, edges: list[Any], count: int,
                 inner: Mapping[int, Collection[int]] = node.NOTHING) -> None:
        super().__init__(op, edges, count)
        self.inner = inner

    def name(self) -> str:
        return "CompiledBackward"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        compiled, state, inputs, metas, versions, needs = self.extra
        again = STATE.grad or STATE.tracer is not None
        if state is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time. Specify retain_graph=True if "
                "you need to backward through a compiled call a second time.")
        for t, version, read in versions:
            if (read or again) and t._storage.version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: an input of a compiled call, [torch.{t.dtype.name} "
                    f"{list(t._shape)}], is at version {t._storage.version}; expected version "
                    f"{version} instead.")
        full = [g if g is not None else Tensor.F.zeros(list(shape), dtype=dtype)
                for g, (shape, dtype) in zip(grads, metas, strict=True)]
        made = compiled.replay(inputs, full) if again else compiled.backward(state, full)
        given = {n for n, g in enumerate(grads) if g is not None}
        return [None if given.isdisjoint(n) else g for g, n in zip(made, needs, strict=True)]

    def release(self) -> None:
        self.extra = (self.extra[0], None, None, self.extra[3], (), ())


class Refused(node.Node):
    """The tape's node for a result whose backward raises."""

    __slots__ = ()

    def name(self) -> str:
        return "CompiledBackward"

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        raise type(self.extra)(*self.extra.args)


def reached(nodes: Sequence[Any], tangents: Sequence[Value], values: Sequence[Value]
            ) -> tuple[frozenset[int], ...]:
    """For each value the numbers of the tangents that it depends on; of all, where it is the same
    whatever they are (zeros)."""
    found = {t: frozenset((n,)) for n, t in enumerate(tangents)}
    nothing: frozenset[int] = frozenset()
    for n in nodes if tangents else ():
        here = nothing.union(*(found[v] for v in n.inputs if v in found))
        if here:
            found.update(dict.fromkeys(n.results, here))
    every = frozenset(range(len(tangents)))
    return tuple(found.get(v, every) for v in values)


def passing(roots: Sequence[Tensor]) -> dict[int, set[int]]:
    """For numbers of roots, those of the others whose history passes through them."""
    ends = [node.edge_of(t) for t in roots]
    numbers: dict[Any, list[int]] = {}
    for n, edge in enumerate(ends):
        numbers.setdefault(edge, []).append(n)
    found: dict[int, set[int]] = {}
    for m, end in enumerate(ends):
        seen: set[Any] = set()
        stack = [end[0]] if end is not None else []
        while stack:
            here = stack.pop()
            if here in seen or type(here) is Outside:
                continue
            seen.add(here)
            for edge in here.edges:
                if edge is None:
                    continue
                for n in numbers.get(edge, ()):
                    if n != m:
                        found.setdefault(n, set()).add(m)
                stack.append(edge[0])
    return found
