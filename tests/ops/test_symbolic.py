"""Ops on tensors whose sizes are symbols: types, layouts and lowered programs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.device import CPU
from lehr.base.proof import deciding
from lehr.compiler.graph.ir import Builder, TensorType
from lehr.compiler.loop import interp
from lehr.compiler.loop.lower import lower
from lehr.compiler.passes import pipeline
from lehr.ops import execute, families, layout, registry
from lehr.ops.registry import VIEW, Op
from lehr.ops.sample import Sample, dtypes_of, samples_of

assert families.FAMILIES
MODULES = [f"lehr.ops.{m}" for m in ("view", "slice", "arrange", "pad", "join", "index", "scatter",
                                      "assign", "masked", "sort", "arithmetic", "convert",
                                      "create", "select", "compare", "bitwise", "exponential",
                                      "trigonometry", "rounding",
                                      "special", "activation", "reduce", "statistic", "softmax",
                                      "scan", "window")]
OPS = [op for op in registry.OPS.values() if op.module in MODULES and not op.breaks
       and op.name != "view_dtype"]
# Equal sizes are one symbol, as a capture that has seen them equal once makes them.
NAMES = {n: sym.Var(f"s{n}", 2, None) for n in range(2, 40)}
HINTS = {var: n for n, var in NAMES.items()}


class Hints:
    """Answers from the sizes at hand, as a capture does."""

    def decide(self, relation: Any) -> bool:
        return relation.holds(HINTS)


def size(n: int) -> Any:
    return NAMES.get(n, n)


def value(e: Any) -> int:
    return sym.evaluate(e, HINTS)


def described(a: Any) -> Any:
    """An array's type with symbolic sizes, laid out in row-major order."""
    if isinstance(a, np.ndarray):
        shape = tuple(map(size, a.shape))
        return SimpleNamespace(shape=shape, strides=layout.contiguous(shape), offset=0, device=CPU,
                               dtype=dt.of_numpy(a.dtype), ndim=a.ndim)
    return type(a)(map(described, a)) if type(a) in (list, tuple) else a


def good(op: Op) -> list[Sample]:
    made = dt.float32 if dt.float32 in dtypes_of(op) else dt.int64
    return [s for s in samples_of(op, made) if s.error is None]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_types_and_layouts(op):
    for sample in good(op):
        bound = sample.bind(op)
        want = op.rule(*map(execute.wrap, bound))
        with deciding(Hints()):
            types = tuple(map(described, bound))
            have = op.rule(*types)
            laid = op.layout(*types) if op.kind is VIEW and op.layout is not None else None
        several = type(want) is tuple
        for a, b in zip(have if several else (have,), want if several else (want,), strict=True):
            assert tuple(map(value, a.shape)) == tuple(b.shape), sample
            assert a.dtype is b.dtype
        if laid is not None:
            plain = [SimpleNamespace(shape=a.shape, strides=layout.contiguous(a.shape), offset=0,
                                     dtype=dt.float32, device=CPU)
                     if isinstance(a, np.ndarray) else a for a in bound]
            shape, strides, offset = op.layout(*plain)
            assert tuple(map(value, laid[0])) == tuple(shape)
            assert tuple(map(value, laid[1])) == tuple(strides)
            assert value(laid[2]) == offset


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_lowered(op):
    """The program of symbolic sizes, run at the sizes at hand, gives what eager gives."""
    for sample in good(op)[:6]:
        bound = sample.bind(op)
        want = execute.run(op, bound)
        with deciding(Hints()):
            program, arrays = build(op, bound)
        if program is None:
            continue
        made = interp.run(program, arrays, {v.name: HINTS[v] for v in program.symbols})
        for a, b in zip(made, want if isinstance(want, tuple) else (want,), strict=True):
            np.testing.assert_allclose(a, b, 2e-6, 1e-6, err_msg=f"{sample}\n{program}")


def build(op: Op, bound: tuple[Any, ...]) -> Any:
    """The lowered program of one call, and its arrays."""
    builder, arrays = Builder(op.name), []

    def param(a: Any) -> Any:
        if isinstance(a, np.ndarray):
            arrays.append(a)
            for n in a.shape:
                if n in NAMES:
                    builder.symbol(NAMES[n])
            shape = tuple(map(size, a.shape))
            return builder.param(f"x{len(arrays)}", TensorType(shape, dt.of_numpy(a.dtype)))
        return tuple(map(param, a)) if isinstance(a, (tuple, list)) else a

    out = builder.call(op, tuple(map(param, bound)))
    graph = builder.finish({"outputs": out if isinstance(out, tuple) else (out,)})
    return lower(pipeline.run(graph)), arrays
