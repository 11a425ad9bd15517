"""The bytes that kernels move, and the least: counted by hand."""

from __future__ import annotations

import lehr
from lehr.compiler.graph.ir import Builder, TensorType
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.ir import Kernel
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.plan import kernels_of
from lehr.compiler.loop.traffic import CACHE, traffic
from lehr.compiler.passes import pipeline

F32, I64 = lehr.float32, lehr.int64


def kernels(make, *params):
    """The kernels of a fused graph; params: (name, shape, dtype)."""
    b = Builder("g")
    made = make(b.F, *(b.param(n, TensorType(s, d)) for n, s, d in params))
    program = fuse(lower(pipeline.run(b.finish({"outputs": [made]}))))
    return [k for s in program.steps for k in kernels_of(s) if isinstance(k, Kernel)]


def test_rows_that_fit_are_read_once():
    """Softmax: passes over a row that is in a cache, or comes from memory again."""
    for rows, columns, times in ((512, 1024, 1), (64, CACHE // 4, 2)):
        (k,) = kernels(lambda F, x: F.softmax(x, -1), ("x", (rows, columns), F32))
        found, whole = traffic(k), rows * columns * 4
        assert found.least == 2 * whole and found.moved == (times + 1) * whole
    assert found.why == ("reads x 2 times: rows of 3 MiB do not stay in a cache between passes",)


def test_a_vector_stays_and_a_large_operand_does_not():
    def make(F, x, w):
        return F.mul(x, w)
    small, large = (kernels(make, ("x", (64, n), F32), ("w", (n,), F32)) for n in (1024, 1 << 19))
    found = traffic(small[0])
    assert found.moved == found.least == 4 * (2 * 64 * 1024 + 1024)
    found = traffic(large[0])
    assert found.moved - found.least == 63 * 4 * (1 << 19)
    assert found.why == ("reads w 64 times: its 2 MiB do not stay in a cache between rows",)


def test_only_what_is_needed_counts():
    """A piece of a large tensor, and rows that data picks."""
    (k,) = kernels(lambda F, x: F.exp(F.slice(x, 0, 0, 4, 1)), ("x", (1024, 256), F32))
    assert traffic(k) == (2 * 4 * 256 * 4,) * 2 + ((),)
    (k,) = kernels(lambda F, x, i: F.exp(F.index_select(x, 0, i)),
                   ("x", (1024, 256), F32), ("i", (3,), I64))
    assert traffic(k).least == 2 * 3 * 256 * 4 + 3 * 8


def test_values_that_are_used_often_are_looked_at_once():
    def make(F, x):
        for _ in range(60):
            x = F.mul(x, x)
        return x
    (k,) = kernels(make, ("x", (64,), F32))
    assert traffic(k).least == 2 * 64 * 4
