"""The graph passes, in order."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from lehr.base import log
from lehr.base.options import Options
from lehr.compiler.graph.ir import Graph
from lehr.compiler.graph.text import print_graph
from lehr.compiler.graph.verify import verify
from lehr.compiler.passes.decompose import decompose
from lehr.compiler.passes.functionalize import functionalize
from lehr.compiler.passes.recompute import recompute
from lehr.compiler.passes.simplify import simplify


class Pass(NamedTuple):
    """A named rewrite of the whole graph. `joint`: it also comes before a graph is split."""

    name: str
    run: Callable[[Graph], Graph]
    joint: bool = True


PASSES = (
    Pass("functionalize", functionalize),  # reads and writes of storages -> values and write-backs
    Pass("decompose", decompose),          # composites -> ops that lowering takes
    Pass("simplify", simplify),            # dead code, equal calls, exact algebra
    Pass("recompute", recompute, False),   # less memory by computing cheap values again
)


def passes_of(whole: Collection[str]) -> tuple[Pass, ...]:
    """The passes for a back end that takes the composites `whole` as they are."""
    taking = functools.partial(decompose, whole=whole)
    return tuple(p._replace(run=taking) if p.name == "decompose" else p for p in PASSES)


class Timing(NamedTuple):
    """What one pass did: nodes before and after, seconds."""

    name: str
    before: int
    after: int
    seconds: float


def run(graph: Graph, options: Options | None = None, *, passes: Collection[Pass] = PASSES,
        dump: log.Dump | None = None, timings: list[Timing] | None = None) -> Graph:
    """The graph after all passes. `dump` gets the text after each, `timings` a record of each.

    With `options.check` the graph is verified before the first and after every pass (GraphError
    names the pass's output); with `options.strict` its structure is, which costs little.
    """
    level = 0 if options is None else 2 if options.check else int(options.strict)
    say = log.channel("passes")
    verify(graph, level)
    functional = False
    for each in passes:
        start = time.perf_counter()
        made = each.run(graph)
        seconds = time.perf_counter() - start
        functional = functional or each.name == "functionalize"
        verify(made, level, functional)
        if timings is not None:
            timings.append(Timing(each.name, len(graph.nodes), len(made.nodes), seconds))
        say("%s: %d -> %d nodes in %.1f ms", each.name, len(graph.nodes), len(made.nodes),
            seconds * 1e3)
        if dump:
            dump.write(each.name, print_graph(made))
        graph = made
    return graph
