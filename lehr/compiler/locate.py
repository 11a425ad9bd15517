"""The smallest part of a compiled program that computes something else than its graph."""

from __future__ import annotations

import linecache
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from lehr.compiler import check
from lehr.compiler.backend import Native
from lehr.compiler.check import Run, StageError
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import Graph, Location, Node, RefType, TensorType, Value
from lehr.compiler.graph.part import is_tensor, needed, part
from lehr.compiler.graph.text import print_graph
from lehr.compiler.passes.functionalize import functionalize
from lehr.tensor.tensor import Tensor

PATIENCE = 60.0     # seconds that the search for a smaller part may take


class Fault(NamedTuple):
    """A fault of the compiler.

    stage     the first stage whose results are wrong: a pass, lowering, fusion, the compiled code
    text      what differs there
    part      the smallest graph that shows it, None where only the whole does
    location  the user's line of the first wrong value
    """

    stage: str
    text: str
    part: Graph | None
    location: Location | None

    def __str__(self) -> str:
        lines = [f"The first wrong stage is {self.stage}."]
        if self.location is not None:
            at = self.location
            lines += [f'  File "{at.path or at.file}", line {at.line}',
                      f"    {linecache.getline(at.path, at.line).strip()}"]
        if self.part is not None:
            lines += ["The smallest part that is wrong:", print_graph(self.part)]
        return "\n".join([*lines, self.text])


def locate(runs: Sequence[Run]) -> Fault | None:
    """The fault of the first run that is wrong; None where every program is its graph."""
    for run in runs:
        error = wrong(run.graph, run.strides, run, run.inputs)
        if error is not None:
            return smallest(run, error)
    return None


def wrong(graph: Graph, strides: Sequence[Any], run: Run, inputs: Sequence[Any],
          program: Any = None) -> StageError | None:
    """What a graph's compilation does wrong for inputs. program: the compiled graph, made if need
    be.
    """
    options = run.options.replace(check="", audit=False)
    try:
        program = program or (run.program if graph is run.graph else
                              Native(graph, strides, options))
        check.Checked(program, graph, strides, options)(check.own(inputs))
    except StageError as error:
        return error
    return None


def smallest(run: Run, error: StageError) -> Fault:
    """The fault of a run that is known to be wrong."""
    graph = functionalize(run.graph)
    nodes = [n for n in graph.nodes if n.op.name != "read" and all(map(is_tensor, n.results))]
    if not nodes or error.stage.endswith("functionalize"):
        return Fault(error.stage, str(error), None, None)
    search = Search(run, graph)
    last = search.first(nodes)
    if last is None:
        return Fault(error.stage, str(error), None, None)
    chain = [n for n in needed(graph, last.results, graph.params) if n.op.name != "read"]
    found, size = None, 1
    while found is None and size < 2 * len(chain):
        found = search.tail(chain[-size:], last)
        size *= 2
    low, high = size // 4, min(size // 2, len(chain))
    while found is not None and high - low > 1:
        middle = (low + high) // 2
        closer = search.tail(chain[-middle:], last)
        low, high = (middle, high) if closer is None else (low, middle)
        found = closer or found
    if found is None:
        return Fault(error.stage, str(error), None, last.location)
    made, its = found
    return Fault(its.stage, str(its), made, last.location)


class Search:
    """Parts of a graph, tried on the values that they had in one call."""

    def __init__(self, run: Run, graph: Graph) -> None:
        self.run, self.graph = run, graph
        self.end = time.monotonic() + PATIENCE
        arrays = check.copies(run.inputs)
        sizes = interp.bind_sizes(graph, arrays)
        self.values: dict[Value, Any] = dict(zip(graph.params, arrays, strict=True))
        self.inputs = dict(zip(graph.params, run.inputs, strict=True))
        for node in graph.nodes:
            made = interp.evaluate(node, self.values, sizes)
            self.values.update(zip(node.results, made, strict=True))

    def given(self, value: Value) -> Any:
        """A value as an input of a part."""
        if value in self.inputs:
            return self.inputs[value]
        array = self.values[value]
        return Tensor._from_array(array.copy()) if isinstance(value.type, TensorType) else array

    def tried(self, results: Sequence[Value], given: Sequence[Value]
              ) -> tuple[Graph, StageError] | None:
        """The part that computes `results` from `given`, if it is wrong and there is time left."""
        if time.monotonic() > self.end:
            return None
        made = part(self.graph, {"outputs": results}, given, name="part")
        error = wrong(made, [None] * len(results), self.run, [self.given(v) for v in given])
        return None if error is None else (made, error)

    def first(self, nodes: Sequence[Node]) -> Node | None:
        """The first node by which something is wrong; None where it takes the whole graph."""
        def bad(count: int) -> bool:
            results = [v for n in nodes[:count] for v in n.results]
            return self.tried(results, self.graph.params) is not None
        if not bad(len(nodes)):
            # Whatever is wrong is not seen where every value is a result: go by single values.
            return next((n for n in nodes if self.tried(n.results, self.graph.params)), None)
        low, high = 0, len(nodes)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if bad(middle) else (middle, high)
        return nodes[high - 1]

    def tail(self, nodes: Sequence[Node], last: Node) -> tuple[Graph, StageError] | None:
        """The last nodes of a chain, on the values that they take from before it."""
        inside = {v for n in nodes for v in n.results}
        given = dict.fromkeys(v for n in nodes for v in n.inputs if v not in inside)
        if any(isinstance(v.type, RefType) for v in given):
            return None
        return self.tried(last.results, list(given))
