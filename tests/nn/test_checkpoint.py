"""Recomputation in the backward pass: gradients, random numbers, errors; the same under torch."""

from __future__ import annotations

import gc
import weakref

import pytest

import lehr
from lehr.utils.checkpoint import CheckpointError, checkpoint
from tests.nn.both import check, filled, numbers


def _gradients(m, reentrant, **kw):
    n = filled(m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 2)), m)
    x = numbers(m, 5, 3).requires_grad_()
    out = m.utils.checkpoint.checkpoint(n, x, use_reentrant=reentrant, **kw)
    out.pow(2).sum().backward()
    return [out, x.grad, [p.grad for p in n.parameters()]]


def _several(m):
    def f(a, b, scale=1.0):
        return a.sin() * b, (a + b).exp() * scale, "text"
    a, b = (numbers(m, 3, seed=i).requires_grad_() for i in (1, 2))
    u, v, text = m.utils.checkpoint.checkpoint(f, a, b, use_reentrant=False, scale=2.0)
    (u.sum() + v.pow(2).sum()).backward()
    return [u, v, text, a.grad, b.grad]


def _sequential(m):
    n = filled(m.nn.Sequential(*(m.nn.Linear(3, 3) for _ in range(5))), m)
    x = numbers(m, 2, 3).requires_grad_()
    out = m.utils.checkpoint.checkpoint_sequential(n, 2, x, use_reentrant=False)
    out.sum().backward()
    return [out, x.grad, [p.grad for p in n.parameters()]]


def _twice(m):
    x = numbers(m, 3).requires_grad_()
    out = m.utils.checkpoint.checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False).sum()
    out.backward(retain_graph=True)
    out.backward()
    y = numbers(m, 3).requires_grad_()
    first, = m.autograd.grad(m.utils.checkpoint.checkpoint(
        lambda t: t.pow(3), y, use_reentrant=False).sum(), y, create_graph=True)
    first.sum().backward()
    return [x.grad, y.grad]


def _nested(m):
    def inner(t):
        return t.sin().exp()

    def outer(t):
        return m.utils.checkpoint.checkpoint(inner, t * 2, use_reentrant=False).cos()
    x = numbers(m, 3).requires_grad_()
    m.utils.checkpoint.checkpoint(outer, x, use_reentrant=False).sum().backward()
    return x.grad


PROGRAMS = {
    "reentrant": lambda m: _gradients(m, True), "plain": lambda m: _gradients(m, False),
    "no_stop": lambda m: _gradients(m, False, early_stop=False),
    "no_rng": lambda m: _gradients(m, False, preserve_rng_state=False), "several": _several,
    "sequential": _sequential, "twice": _twice, "nested": _nested,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name])


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_second_run_draws_the_same_numbers(reentrant):
    lehr.manual_seed(0)
    x = lehr.ones(1000, requires_grad=True)
    out = checkpoint(lambda t: lehr.nn.functional.dropout(t, 0.5) ** 2, x, use_reentrant=reentrant)
    before = lehr.get_rng_state()
    out.sum().backward()
    assert (x.grad != 0).tolist() == (out != 0).tolist()
    assert lehr.get_rng_state().tolist() == before.tolist()


@pytest.mark.parametrize("reentrant", [True, False])
def test_nothing_inside_is_kept(reentrant):
    kept = []

    def f(t):
        made = t.exp()
        kept.append(weakref.ref(made))
        return made.sin().exp()
    x = lehr.ones(3, requires_grad=True)
    out = checkpoint(f, x, use_reentrant=reentrant)
    gc.collect()
    assert kept[0]() is None
    out.sum().backward()
    assert len(kept) == 2


def test_runs_stop_early():
    runs = []

    def f(t):
        made = t.exp()
        runs.append("first")
        made = made.sin()
        runs.append("second")
        return made + 1
    checkpoint(f, lehr.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    assert runs == ["first", "second", "first"]


def test_a_second_run_that_differs_is_refused():
    calls = []

    def f(t):
        calls.append(1)
        return (t[:2] if len(calls) > 1 else t).exp().sin()
    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(f, lehr.ones(3, requires_grad=True), use_reentrant=False).sum().backward()

    def g(t):
        calls.append(1)
        return t.exp().sin() if len(calls) < 4 else t * 2
    calls[:] = [1, 1]
    with pytest.raises(CheckpointError, match="different number"):
        checkpoint(g, lehr.ones(3, requires_grad=True), use_reentrant=False).sum().backward()


def test_autocast_is_the_same():
    seen = []

    def f(t):
        made = t @ t
        seen.append(made.dtype)
        return made.float().exp()
    x = lehr.ones(2, 2, requires_grad=True)
    with lehr.autocast("cpu"):
        out = checkpoint(f, x, use_reentrant=False)
    out.sum().backward()
    assert seen == [lehr.bfloat16, lehr.bfloat16]
