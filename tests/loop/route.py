"""One op as a graph, sent through passes and lowering, run by the reference interpreters."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.compiler.graph import interp as graph_interp
from lehr.compiler.graph.ir import Builder, Graph, TensorType
from lehr.compiler.graph.verify import verify as verify_graph
from lehr.compiler.loop import interp as loop_interp
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.text import print_program
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from lehr.ops.registry import Op


def graph_of(op: Op, bound: tuple[Any, ...]) -> tuple[Graph, list[np.ndarray]]:
    """The graph of one call, and its arrays."""
    builder, arrays = Builder(op.name), []

    def param(a: Any) -> Any:
        if isinstance(a, np.ndarray):
            arrays.append(a)
            return builder.param(f"x{len(arrays)}", TensorType(a.shape, dt.of_numpy(a.dtype)))
        return tuple(map(param, a)) if isinstance(a, (tuple, list)) else a

    made = builder.call(op, tuple(map(param, bound)))
    results = made if isinstance(made, tuple) else (made,)
    return builder.finish({"outputs": results}), arrays


def through(op: Op, bound: tuple[Any, ...]) -> tuple[Any, Any]:
    """(results of the lowered program, the program); every stage is verified on the way."""
    graph, arrays = graph_of(op, bound)
    graph = verify_graph(pipeline.run(verify_graph(graph)), functional=True)
    program = verify(lower(graph))
    fused = verify(fuse(program))
    for a, b in zip(loop_interp.run(program, arrays), loop_interp.run(fused, arrays), strict=True):
        np.testing.assert_array_equal(*(x.astype(np.float64) if x.dtype.kind == "V" else x
                                        for x in (a, b)))
    program = fused
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    return loop_interp.run(program, arrays), program


def by_graph(op: Op, bound: tuple[Any, ...]) -> Any:
    graph, arrays = graph_of(op, bound)
    return graph_interp.run(graph, arrays)["outputs"]
