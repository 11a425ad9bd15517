"""The backward programs of a compiled call: one for each set of its results that have a gradient,
made when a backward first asks for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import proof
from lehr.compiler.graph.ir import Graph, Value
from lehr.compiler.passes.absent import absent

Given = tuple[tuple[bool, ...], tuple[int, ...]]    # which tangents are there, what is wanted


class Variant(NamedTuple):
    """numbers: where its gradients stand among the `many` that are wanted; relations: what
    must hold of the sizes of a call."""

    program: Any
    numbers: Sequence[int]
    many: int
    relations: tuple[proof.Relation, ...] = ()

    def spread(self, made: Sequence[Any]) -> list[Any]:
        """What is wanted, None where there is no gradient."""
        found: list[Any] = [None] * self.many
        for n, g in zip(self.numbers, made, strict=True):
            found[n] = g
        return found


class Sizes:
    """Decides about symbols by the sizes of a call."""

    def __init__(self, values: Mapping[Any, int]) -> None:
        self.values = values

    def decide(self, relation: proof.Relation) -> bool:
        return relation.holds(self.values)


class Variants:
    """The variants of a graph without writes, by which of the parameters `tangents` are there.

    make: (graph, numbers of its gradients, sizes of the call, which tangents are there) -> program
    """

    def __init__(self, graph: Graph, tangents: Sequence[Value],
                 make: Callable[[Graph, Sequence[int], Mapping[Any, int], Sequence[bool]], Any]
                 ) -> None:
        self.graph, self.tangents, self.make = graph, tuple(tangents), make
        self.made: dict[Given, tuple[Variant, ...]] = {}
        self.lock = threading.Lock()

    def whole(self, program: Any) -> None:
        """The program for all gradients, made already; what it takes for granted is guarded."""
        every = tuple(range(len(self.graph.results["grads"])))
        given = (True,) * len(self.tangents), every
        self.made[given] = (Variant(program, every, len(every)),)

    def find(self, tangents: Sequence[Any], wanted: Sequence[int], sizes: Mapping[Any, int]
             ) -> Variant:
        """The variant for a call and the numbers of the gradients that it is to give; `sizes`: of
        the symbols."""
        given = there(tangents), tuple(wanted)
        found = self._known(given, sizes)
        if found is not None:
            return found
        with self.lock:
            found = self._known(given, sizes)
            if found is None:
                found = self._make(given, sizes)
                self.made[given] = (*self.made.get(given, ()), found)
        return found

    def _known(self, given: Given, sizes: Mapping[Any, int]) -> Variant | None:
        for v in self.made.get(given, ()):
            if not v.relations or all(r.holds(sizes) for r in v.relations):
                return v
        return None

    def _make(self, given: Given, sizes: Mapping[Any, int]) -> Variant:
        present = [t for t, g in zip(self.tangents, given[0], strict=True) if g]
        graph, wanted = self.graph, given[1]
        places = tuple(range(len(wanted)))
        with contextlib.ExitStack() as stack:
            texts = []
            if sizes:
                stack.enter_context(proof.deciding(Sizes(sizes)))
                texts = stack.enter_context(proof.noting())
            if not all(given[0]) or len(wanted) < len(graph.results["grads"]):
                graph, places = absent(graph, set(self.tangents).difference(present), present,
                                       wanted)
            program = self.make(graph, [wanted[n] for n in places], sizes, given[0])
        names = {v.name: v for v in sizes}
        relations = tuple(proof.Relation.parse(text, names) for text in dict.fromkeys(texts))
        return Variant(program, places, len(wanted), relations)


def there(tangents: Sequence[Any]) -> tuple[bool, ...]:
    """Which gradients are there."""
    return tuple([t is not None for t in tangents])
