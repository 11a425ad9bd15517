"""How compile time grows: processor seconds of every stage for programs of more and more blocks.

    python benchmarks/scale.py [BLOCKS ...]

A block is a normalisation, a product, a GELU, a softmax and what joins them: some 10 ops as
captured, 27 once taken apart. No C compiler runs.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import lehr
from lehr.compiler import backend
from lehr.compiler.emit import c
from lehr.compiler.loop import fuse, lower
from lehr.compiler.loop import plan as memory_plan
from lehr.compiler.passes import pipeline
from lehr.compiler.run import pool

SIZE, WEIGHTS = 32, 8


class Stages(NamedTuple):
    """`nodes` as captured and after the passes, `seconds` by stage, `functions` of the C."""

    nodes: tuple[int, int]
    seconds: dict[str, float]
    functions: int


class _Stop(BaseException):
    """The program is there: nothing is to be built of it."""


def program(x: Any, weights: Any, blocks: int) -> Any:
    F = lehr.nn.functional
    for n in range(blocks):
        h = F.gelu(F.layer_norm(x, (SIZE,)) @ weights[n % WEIGHTS])
        x = x + h * 0.5
        x = x * lehr.softmax(x, -1).sum(-1, keepdim=True) + lehr.tanh(h)
    return x


def captured(blocks: int) -> backend.Native:
    """The program of so many blocks, before any stage."""
    found = []

    def take(native: backend.Native) -> bytes:
        found.append(native)
        raise _Stop

    kept, backend.Native.build = backend.Native.build, take  # type: ignore[method-assign]
    weights = [lehr.ones(SIZE, SIZE) for _ in range(WEIGHTS)]
    try:
        lehr.compile(program, options={"cache": False})(lehr.ones(64, SIZE), weights, blocks)
    except _Stop:
        pass
    finally:
        backend.Native.build = kept  # type: ignore[method-assign]
    return found[0]


def stages(blocks: int) -> Stages:
    """Every stage of the compilation, timed."""
    native, seconds = captured(blocks), {}

    def timed(name: str, work: Any) -> Any:
        began = time.process_time()
        made = work()
        seconds[name] = time.process_time() - began
        return made

    graph = timed("passes", lambda: pipeline.run(native.graph, native.options))
    made = timed("lower", lambda: lower.lower(graph, result_strides=native.strides,
                                              supports=c.supports))
    made = timed("fuse", lambda: fuse.fuse(made))
    plan = timed("plan", lambda: memory_plan.plan(made))
    code = timed("emit", lambda: c.emit(made, c.Layout(plan.offsets, plan.nbytes), pool.header()))
    functions = sum(text.count("void k_") for text in code.sources) - text_entries(code)
    return Stages((len(native.graph.nodes), len(graph.nodes)), seconds, functions)


def text_entries(code: c.Code) -> int:
    """Entry functions, which are no kernels."""
    return sum("segment" in step for step in code.record["steps"])


def main() -> None:
    for blocks in map(int, sys.argv[1:] or (30, 120, 500)):
        s = stages(blocks)
        parts = "  ".join(f"{name} {t:.2f}" for name, t in s.seconds.items())
        most = sum(s.seconds[n] for n in ("lower", "fuse", "plan"))
        print(f"{blocks} blocks, {s.nodes[0]} -> {s.nodes[1]} nodes: {parts} s; lower, fuse and "
              f"plan {most:.2f} s; {s.functions} functions")


if __name__ == "__main__":
    main()
