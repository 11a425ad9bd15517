"""Which indices cannot fail whatever the data: clamped ones, and no others."""

from __future__ import annotations

import pytest

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.graph.ir import Builder, TensorType
from lehr.compiler.loop import expr
from lehr.compiler.loop.halt import halting
from lehr.compiler.loop.ir import Bind, Buffer
from lehr.compiler.loop.lower import lower
from lehr.compiler.passes import pipeline
from lehr.ops import families

assert families.FAMILIES
DATA = {d: expr.load(Buffer("p", d, (4,), (1,), "param"), (sym.Var("i", 0, 3),))
        for d in (dt.int64, dt.int32)}
X = DATA[dt.int64]


def number(value):
    return expr.const(value, dt.int64)


def clamped(x, low, high):
    return expr.alu("minimum", expr.alu("maximum", x, number(low)), number(high))


CASES = [
    (clamped(X, 0, 9), True),
    (expr.alu("maximum", number(0), expr.alu("minimum", X, number(9))), True),
    (clamped(expr.cast(DATA[dt.int32], dt.int64), 0, 9), True),
    (clamped(X, 0, 10), False),                         # one too far
    (clamped(X, -1, 9), False),
    (expr.alu("minimum", X, number(9)), False),
    (expr.alu("maximum", X, number(0)), False),
    (expr.alu("minimum", clamped(X, 0, 9), X), False),
    (expr.alu("maximum", clamped(X, 0, 9), X), False),
    (expr.alu("maximum", clamped(X, 2, 9), clamped(X, 0, 4)), True),
    (expr.alu("add", clamped(X, 0, 9), number(1)), False),
    (X, False),
]


@pytest.mark.parametrize(("value", "sure"), CASES)
def test_sure(value, sure):
    assert expr.sure(Bind(None, value, 10)) is sure


def test_nothing_is_below_zero():
    assert not expr.sure(Bind(None, clamped(X, 0, -1), 0))


@pytest.mark.parametrize(("make", "halts"), [
    (lambda F, g, at: F.max_pool_grad(g, at, [4, 4], [2, 2], [2, 2], [0, 0], [1, 1]), False),
    (lambda F, g, at: F.gather(g, 0, at), True),
])
def test_what_data_can_stop(make, halts):
    """Where it cannot, a call copies nothing that it may have to put back."""
    b = Builder("p")
    g = b.param("g", TensorType((1, 1, 2, 2), dt.float32))
    at = b.param("at", TensorType((1, 1, 2, 2), dt.int64))
    program = lower(pipeline.run(b.finish({"outputs": (make(b.F, g, at),)})))
    assert any(halting(program.steps)) is halts
