"""`options={"profile": True}`: a clock at every step, told by the user's lines."""

import numpy as np
import pytest

import lehr


def chain(x, w):
    y = lehr.softmax(x @ w, -1)
    return (y @ w).sum(0)


def profiled(f, *args, calls):
    made = lehr.compile(f, options={"profile": True})
    results = [made(*args) for _ in range(calls)]
    return results, lehr.compiler.explain(made).explanation()


def test_steps_are_timed_by_line():
    x, w = lehr.randn(64, 64), lehr.randn(64, 64)
    results, told = profiled(chain, x, w, calls=4)
    plain = lehr.compile(chain)(x, w)
    for made in results:
        np.testing.assert_array_equal(made.numpy(), plain.numpy())
    (graph,) = told.graphs
    steps = graph.forward.kernels + graph.forward.library_calls
    assert 0 < len(graph.spent) <= steps
    assert all(s.calls == 3 and s.seconds > 0 for s in graph.spent)    # all but the first
    first = chain.__code__.co_firstlineno
    lines = {line for s in graph.spent for line in s.lines}
    assert lines == {f"test_profile.py:{first + n}" for n in (1, 2)}
    text = str(told)
    assert "%" in text and f"matmul0 (test_profile.py:{first + 1})" in text


def test_what_is_moved_more_than_once_is_told():
    def f(x, w):
        return (x * w).exp()
    columns = 1 << 19
    _, told = profiled(f, lehr.randn(4, columns), lehr.randn(columns), calls=2)
    (step,) = told.graphs[0].spent
    assert (step.least, step.moved) == (9 * columns * 4, 12 * columns * 4)
    assert "1.33 times the least: reads w 4 times: its 2 MiB do not stay" in str(told)
    assert " 24 MiB  " in str(told)


def test_equal_steps_are_added_up():
    def f(x, w):
        for _ in range(3):
            x = x @ w
        return x
    _, told = profiled(f, lehr.randn(32, 32), lehr.randn(32, 32), calls=2)
    (graph,) = told.graphs
    assert len(graph.spent) == 3 and len(graph.longest) == 1
    assert graph.longest[0].seconds == pytest.approx(sum(s.seconds for s in graph.spent))


def test_nothing_is_timed_otherwise():
    made = lehr.compile(chain)
    made(lehr.randn(4, 4), lehr.randn(4, 4))
    (graph,) = lehr.compiler.explain(made).explanation().graphs
    assert graph.spent == () and graph.longest == []


def test_gradients_are_timed_too():
    x = lehr.randn(16, 16, requires_grad=True)
    made = lehr.compile(lambda x: (x @ x).sin().sum(), options={"profile": True})
    for _ in range(2):
        made(x).backward()
    (graph,) = lehr.compiler.explain(made).explanation().graphs
    assert graph.backward is not None
    assert len(graph.spent) > graph.forward.kernels + graph.forward.library_calls
