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

Given = tuple[bool, ...]


class Variant(NamedTuple):
    """numbers: of the gradients that the program gives, of `many` in all; relations: what
    must hold of the sizes of a call."""

    program: Any
    numbers: Sequence[int]
    many: int
    relations: tuple[proof.Relation, ...] = ()

    def spread(self, made: Sequence[Any]) -> list[Any]:
        """All gradients, None where there is none."""
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

    make: (graph, numbers of its gradients, sizes of the call) -> program
    """

    def __init__(self, graph: Graph, tangents: Sequence[Value],
                 make: Callable[[Graph, Sequence[int], Mapping[Any, int]], Any]) -> None:
        self.graph, self.tangents, self.make = graph, tuple(tangents), make
        self.made: dict[Given, tuple[Variant, ...]] = {}
        self.lock = threading.Lock()

    def whole(self, program: Any) -> None:
        """The program for all gradients, made already; what it takes for granted is guarded."""
        count = len(self.graph.results["grads"])
        self.made[(True,) * len(self.tangents)] = (Variant(program, range(count), count),)

    def find(self, given: Given, sizes: Mapping[Any, int]) -> Variant:
        """The variant for a call; `sizes`: of the symbols."""
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
        there = [t for t, g in zip(self.tangents, given, strict=True) if g]
        count = len(self.graph.results["grads"])
        graph, numbers = self.graph, tuple(range(count))
        if not all(given):
            graph, numbers = absent(graph, set(self.tangents).difference(there), there)
        with contextlib.ExitStack() as stack:
            texts = []
            if sizes:
                stack.enter_context(proof.deciding(Sizes(sizes)))
                texts = stack.enter_context(proof.noting())
            program = self.make(graph, numbers, sizes)
        names = {v.name: v for v in sizes}
        relations = tuple(proof.Relation.parse(text, names) for text in dict.fromkeys(texts))
        return Variant(program, numbers, count, relations)


def given(tangents: Sequence[Any]) -> Given:
    """Which gradients are there."""
    return tuple([t is not None for t in tangents])
