"""The order of steps: what it frees, and what it may not move."""

from __future__ import annotations

import lehr
from lehr.compiler.graph.ir import Builder, RefType, TensorType
from lehr.compiler.loop.halt import halting
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.plan import lifetimes, plan
from lehr.compiler.loop.schedule import schedule
from lehr.compiler.loop.verify import touched, verify

F32, I64 = lehr.float32, lehr.int64
N = 512


def updates(count: int, indexed: bool = False):
    """Products that make gradients, and updates that all come at the end."""
    b = Builder("updates")
    F = b.F
    x = b.param("x", TensorType((N, N), F32))
    refs = [b.param(f"w{i}", RefType(TensorType((N, N), F32))) for i in range(count)]
    index = b.param("i", TensorType((N,), I64))
    weights, grads, d = [F.read(r) for r in refs], [], x
    for w in weights:
        d = F.matmul(d, w)
        grads.append(F.matmul(d, x))
    made = [F.index_select(d, 0, index)] if indexed else [d]
    for r, w, g in zip(refs, weights, grads, strict=True):
        F.write(r, w - g)
    from lehr.compiler.passes import pipeline
    return lower(pipeline.run(b.finish({"outputs": made})))


def test_updates_follow_their_gradients():
    program = updates(6)
    made = program._replace(steps=tuple(schedule(program.steps)))
    verify(made)
    assert plan(program).peak >= 6 * N * N * 4
    assert plan(made).peak <= 4 * N * N * 4
    assert sorted(s.name for s in made.steps) == sorted(s.name for s in program.steps)


def test_no_update_before_what_may_stop():
    """The caller would see weights of a call that raised."""
    program = updates(4, indexed=True)
    steps = schedule(program.steps)
    halts = halting(steps)
    last = max(n for n, h in enumerate(halts) if h)
    written = [n for n, s in enumerate(steps) if any(b.role == "ref" for b in touched(s)[1])]
    assert written and min(written) > last


def test_dependencies_hold():
    program = updates(5)
    steps = schedule(program.steps)
    assert all(a <= b for a, b in lifetimes(program._replace(steps=tuple(steps))).values())
    place = {s.name: n for n, s in enumerate(steps)}
    last = {}
    for s in program.steps:
        reads, writes = touched(s)
        for b in reads | writes:
            if b in last:
                assert place[last[b]] < place[s.name]
        for b in writes:
            last[b] = s.name


def test_checked_indices_cannot_fail_again():
    """The same look at the same unchanged memory; another bound is another check."""
    def program(rows):
        b = Builder("twice")
        F = b.F
        t = b.param("t", TensorType((16, 4), F32))
        u = b.param("u", TensorType((rows, 4), F32))
        i = b.param("i", TensorType((8,), I64))
        first = F.index_select(t, 0, i)
        second = F.index_select(u, 0, i)
        return lower(b.finish({"outputs": [first, second]}))
    assert halting(program(16).steps) == [True, False]
    assert halting(program(9).steps) == [True, True]
