"""The back end "loops": graphs through passes, lowering, fusion and memory plan, then interpreted.

It runs all of the compiler but the C, so random programs cost no C compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lehr.base.options import Options
from lehr.compiler import backend
from lehr.compiler.capture.entry import Compiled, Request, concrete
from lehr.compiler.emit import c
from lehr.compiler.graph.ir import Graph
from lehr.compiler.graph.verify import verify as verify_graph
from lehr.compiler.loop import fuse, halt, interp, lower
from lehr.compiler.loop import plan as memory_plan
from lehr.compiler.loop.text import row_major
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from lehr.tensor.tensor import Tensor


class Loops:
    """A graph as an interpreted loop program: (inputs, sizes) -> result tensors, Refs updated in
    place."""

    def __init__(self, graph: Graph, strides: Sequence[Any], options: Options,
                 hints: Mapping[Any, int] | None = None) -> None:
        graph = verify_graph(pipeline.run(verify_graph(graph)), functional=True)
        lowered = verify(lower.lower(graph, result_strides=strides, supports=c.supports))
        self.program = verify(fuse.fuse(lowered))
        self.plan = memory_plan.plan(self.program)
        self.early = frozenset(halt.early(self.program))

    def __call__(self, inputs: Sequence[Any], sizes: Sequence[int] = ()) -> list[Tensor]:
        arrays = [backend.eager_array(t) for t in inputs]
        known = dict(zip(self.program.symbols, sizes, strict=True))
        found = interp.run(self.program, arrays, known, plan=self.plan)
        return [backend.laid_out(a, concrete(b.strides or row_major(b.shape), known))
                for a, b in zip(found, self.program.results, strict=True)]


def loops(request: Request, options: Options) -> Compiled:
    return backend.native(request, options, Loops)


backend.BACKENDS.setdefault("loops", loops)
