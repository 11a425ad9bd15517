"""From a captured graph to what the cache keeps: imported where the cache has no entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from lehr.base import proof
from lehr.base.options import Options
from lehr.compiler import choice
from lehr.compiler.emit import c, product
from lehr.compiler.graph.ir import Graph
from lehr.compiler.loop import fuse, halt, lower, plan, prologue
from lehr.compiler.loop.ir import Program
from lehr.compiler.passes import pipeline
from lehr.compiler.run import entry, library, pool, template

Lowered = tuple[Graph, Program, plan.Plan, c.Code]


def lowered(graph: Graph, strides: Sequence[Any], options: Options) -> Lowered:
    """The stages of the compilation: the graph after passes, the program, its plan, its C."""
    graph = pipeline.run(graph, options, passes=pipeline.passes_of(c.WHOLE))
    program = lower.lower(graph, result_strides=strides, supports=c.supports)
    program = prologue.absorb(fuse.fuse(program), product.supported)
    other = choice.of(program, options)
    found = plan.plan(program)
    code = c.emit(program, c.Layout(found.offsets, found.nbytes), pool.header(),
                  options.profile, other)
    return graph, program, found, code


def build(make: Callable[[], Lowered], options: Options) -> bytes:
    """What the cache keeps of a program: the record of its call, its machine code, counts, and what
    was decided about symbols on the way."""
    with proof.noting() as decided:
        _, program, found, code = make()
    built = b""
    if code.sources and code.record["steps"]:
        with template.ahead(code.record):
            built = library.code(list(code.sources), code.record["name"], options, c.FLAGS)
    m = plan.measure(program)
    counts = {"kernels": m.kernels, "externs": m.externs, "host_calls": m.hosts,
              "launches": m.launches, "moved": m.moved, "arena": found.nbytes, "peak": found.peak}
    counts = {k: v for k, v in counts.items() if isinstance(v, int)}
    return entry.bundle({"record": json.dumps(code.record).encode(), "code": built,
                         "decided": json.dumps(decided).encode(),
                         "early": json.dumps(halt.early(program)).encode(),
                         "counts": json.dumps(counts).encode()})
