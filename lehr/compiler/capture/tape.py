"""The tape's nodes for compiled calls.

All results of a call that carry gradients are results of one node. Where one of them was made from
another, a gradient of the first reaches the call's inputs without passing through the second
(`Node.inner`). Who asks for the second's gradient gets it from a backward of its own
(`Backward.total`); to replace it, as a hook may, is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.compiler.capture.moved import saved
from lehr.compiler.capture.tracer import Outside, slot
from lehr.compiler.graph.ir import Value
from lehr.ops import registry
from lehr.tensor import node
from lehr.tensor.hook import PAST
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

ELSEWHERE = ("an input of a compiled call stands on other memory (`x.data = y`) than when the call "
             "was made, and its backward needs it: whether as it was or as it is now is not "
             "recorded. Assign to `.data` after the backward, or give the call `x.detach()`.")
HIDDEN = ("a tensor that a compiled call was given or returned has been written through `x.data` "
          "since the call, and its backward needs it: what the call computed from it before is "
          "kept, or computed again now, where eager mode does the other. Write after the backward, "
          "or to a copy, `x.clone()`.")


# An input of a compiled call: the tensor, the storage it stood on, its version and how often it was
# written through any (NaN where somebody may write without telling); whether backward reads it, and
# whether when it does so matters: it computes from it again what forward had, or the reverse.
Given = tuple[Tensor, Any, int, float, bool, bool]
# A result whose memory eager mode's backward reads: the tensor, its version, how often written.
Shown = tuple[Tensor, int, float]


class Call(NamedTuple):
    """What a compiled call keeps for its backward.

    state     of the compiled program
    inputs    of the call
    given     the inputs that are tensors
    shown     of each result, those that eager mode's backward reads
    spends    of each result, those whose backward needs what its own backward frees
    usual     numbers of the gradients of the call's inputs
    totals    result -> number of its own gradient, with all that comes through other results
    """

    compiled: Any
    state: Any
    inputs: Sequence[Any]
    given: Sequence[Given]
    shown: Sequence[Sequence[Shown]]
    spends: Sequence[frozenset[int]]
    usual: Sequence[int]
    totals: Mapping[int, int]


class Backward(node.Node):
    """The tape's node for a compiled call: `extra` is its `Call`, None where a backward inside has
    used it up.

    inner    result -> the results that were made from it
    reached  of each input the results from which it has a gradient, were it but zeros
    asked    the results that the last backward was asked about
    spent    those whose backward has been freed
    """

    __slots__ = ("asked", "inner", "reached", "spent")

    def __init__(self, op: Any, edges: list[Any], count: int,
                 inner: Mapping[int, Collection[int]] = node.NOTHING,
                 reached: Sequence[frozenset[int]] = ()) -> None:
        super().__init__(op, edges, count)
        self.inner, self.reached = inner, reached
        self.asked: frozenset[int] = frozenset()
        self.spent: frozenset[int] = frozenset()

    def name(self) -> str:
        return "CompiledBackward"

    def ahead(self, index: int) -> list[Any] | None:
        return [e for e, ways in zip(self.edges, self.reached, strict=True) if index in ways] \
            if self.edges else None

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        self.asked = frozenset([n for n, g in enumerate(grads) if g is not None])
        if not self.asked:
            return [None] * len(self.edges)
        made = self.run(grads, None)
        return [None if self.asked.isdisjoint(ways) else g if g is not None else Tensor.F.zeros(
                    list(like.shape), dtype=like.dtype, device=like.device)
                for g, ways, like in zip(made, self.reached, self.inputs, strict=True)]

    def run(self, grads: list[Tensor | None], numbers: Sequence[int] | None
            ) -> list[Tensor | None]:
        """The gradients of these numbers; None: those of the inputs."""
        call: Call | None = self.extra
        if call is None or any(n in self.spent for n, g in enumerate(grads) if g is not None):
            raise RuntimeError(node.FREED)
        again = STATE.grad or STATE.tracer is not None
        for t, storage, version, writes, read, anew in call.given:
            if (read or again) and t._storage is not storage:
                raise RuntimeError(ELSEWHERE)
            if (read or again) and storage.version != version:
                error = RuntimeError(node.stale(t, storage.version, version))
                error.add_note("It is an input of a compiled call.")
                raise error
            if (anew or again) and storage is not None and storage.origin.writes > writes:
                raise RuntimeError(f"{HIDDEN} It is [torch.{t.dtype.name} {list(t._shape)}].")
        for n, g in enumerate(grads):
            for t, version, writes in call.shown[n] if g is not None else ():
                if t._storage.version == version and t._storage.origin.writes > writes:
                    raise RuntimeError(f"{HIDDEN} It is [torch.{t.dtype.name} {list(t._shape)}].")
        numbers, compiled = call.usual if numbers is None else numbers, call.compiled
        made: list[Tensor | None] = (compiled.replay(call.inputs, grads, numbers) if again else
                                     compiled.backward(call.state, grads, numbers))
        return made

    def total(self, grads: list[Tensor | None], result: int) -> Tensor | None:
        """The gradient of a result, with what comes through others that were made from it."""
        if self.extra is None:
            raise RuntimeError(node.FREED)
        if result not in self.extra.totals:
            raise RuntimeError(PAST)
        return self.run(grads, (self.extra.totals[result],))[0]

    def release(self) -> None:
        call: Call | None = self.extra
        if call is not None:
            self.spent = self.spent.union(*(call.spends[n] for n in self.asked))
            if len(self.spent) == len(call.spends):
                self.extra = None


class Refused(node.Node):
    """The tape's node for a result whose backward raises."""

    __slots__ = ()

    def name(self) -> str:
        return "CompiledBackward"

    def ahead(self, index: int) -> list[Any] | None:
        return None

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        raise type(self.extra)(*self.extra.args)


def spending(roots: Sequence[Tensor]) -> tuple[frozenset[int], ...]:
    """For each root the roots whose backward walks a node that keeps tensors and that its own
    backward walks, too: it is spent when that one is."""
    keepers = [{n for n in walked(t) if n.keeps()} for t in roots]
    return tuple(frozenset(m for m, other in enumerate(keepers) if not own.isdisjoint(other))
                 for own in keepers)


def showing(roots: Sequence[Tensor], slots: Mapping[int, int]) -> tuple[frozenset[int], ...]:
    """For each root the numbers of the results (`slots`: memory -> number) that nodes behind it
    keep."""
    def kept(args: Any) -> set[int]:
        return {slots[slot(t)] for t in saved(args) if t is not None and slot(t) in slots}
    return tuple(frozenset().union(*(kept((n.args, n.out)) for n in walked(t))) for t in roots)


def hasty(nodes: Sequence[Any], start: int, tangents: Sequence[Value], params: Sequence[Value]
          ) -> frozenset[int]:
    """Numbers of the parameters from which gradient rules (the nodes from `start` on) compute what
    depends on no tangent: forward may do it."""
    memory = {p: n for n, p in enumerate(params)}   # value -> the parameter whose memory it is
    late, found = set(tangents), set()
    for at, n in enumerate(nodes):
        here = {memory[v] for v in n.inputs if v in memory}
        if not late.isdisjoint(n.inputs):
            late.update(n.results)
        elif n.op.name == "read" or n.op.kind == registry.VIEW:
            memory.update((r, *here) for r in n.results if here)
        elif at >= start:
            found |= here
    return frozenset(found)


def walked(root: Tensor) -> set[Any]:
    """The nodes behind a tensor."""
    seen: set[Any] = set()
    stack = [root.grad_fn]
    while stack:
        here = stack.pop()
        if here is not None and here not in seen and type(here) is not Outside:
            seen.add(here)
            stack += [edge[0] for edge in here.edges if edge is not None]
    return seen


def leading(roots: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[frozenset[int]]:
    """For each leaf the numbers of the roots whose history leads to it."""
    ends = [node.edge_of(t) for t in leaves]
    found: list[set[int]] = [set() for _ in leaves]
    for n, t in enumerate(roots):
        edges = {edge for here in walked(t) for edge in here.edges if edge is not None}
        edges.add(node.edge_of(t))
        for ways, end in zip(found, ends, strict=True):
            if end in edges:
                ways.add(n)
    return [frozenset(ways) for ways in found]


def depending(nodes: Sequence[Any], tangents: Sequence[Value], values: Sequence[Value]
              ) -> list[frozenset[int]]:
    """For each value of a graph the numbers of the tangents that it depends on."""
    found = {t: frozenset((n,)) for n, t in enumerate(tangents)}
    nothing: frozenset[int] = frozenset()
    for n in nodes if tangents else ():
        here = nothing.union(*(found[v] for v in n.inputs if v in found))
        if here:
            found.update(dict.fromkeys(n.results, here))
    return [found.get(v, nothing) for v in values]


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
