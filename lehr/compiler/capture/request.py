"""What a back end is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.compiler.graph.ir import Graph
from lehr.compiler.graph.ir import Value as GraphValue
from lehr.tensor.tensor import Tensor


class Request(NamedTuple):
    """What a back end compiles.

    graph     results "outputs" and, for a joint graph, "grads"
    sizes     symbol of the graph -> its size in the captured call
    places    of each symbol: (number of an input, dimension; None: it is the input, a number)
    tangents  the parameters that only backward has: gradients of the outputs of the numbers
              `roots`
    strides   eager layout of every output and gradient
    totals    how many of the gradients, the last ones, are of outputs
    hasty     see `tape.hasty`
    """

    graph: Graph
    tangents: tuple[GraphValue, ...]
    strides: tuple[tuple[Any, ...], ...]
    grad_strides: tuple[tuple[Any, ...], ...]
    sizes: Mapping[Any, int] = {}
    places: tuple[tuple[int, int | None], ...] = ()
    totals: int = 0
    roots: tuple[int, ...] = ()
    hasty: frozenset[int] = frozenset()

    @property
    def usual(self) -> range:
        """The numbers of the gradients that a backward gives."""
        return range(len(self.grad_strides) - self.totals)

    def read(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of a call, in the order of the symbols."""
        return tuple([inputs[i] if d is None else inputs[i]._shape[d] for i, d in self.places])


Backwards = Callable[[Any, Sequence[Tensor | None], Sequence[int]], list[Tensor | None]]


class Compiled(NamedTuple):
    """What a back end returns. Inputs and results are tensors (numbers as Python numbers), in graph
    order.

    forward   (inputs) -> (outputs, state for backward)
    backward  (state, tangents, numbers of gradients) -> these; None where there is no joint graph.
              A tangent is None where the result has no gradient, a gradient where it depends on
              such alone
    replay    (inputs, tangents, numbers) -> the same, recorded on the tape, for double backward
    reads     numbers of the inputs whose memory `backward` reads; None: all
    anew      numbers of those from which it computes again what `forward` had computed, or
              `forward` had computed what eager mode's backward does
    bind      (inputs, numbers of those whose memory stays) -> a `forward` that costs less
    same      see `lehr.compiler.run.word`
    early     numbers of the inputs that `forward` may have written when data stops it; None: all
    """

    forward: Callable[[Sequence[Any]], tuple[list[Tensor], Any]]
    backward: Backwards | None = None
    replay: Backwards | None = None
    report: Any = None
    bind: Callable[[Sequence[Any], Collection[int]], Any] | None = None
    same: Any = None
    reads: Collection[int] | None = None
    early: Collection[int] | None = None
    anew: Collection[int] = ()


Backend = Callable[[Request], Compiled]
NOTHING = Compiled(lambda inputs: ([], None))   # where a captured part computes nothing
