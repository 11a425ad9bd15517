"""`t.data = other` inside compiled functions: graphs without a break, or a break before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.compiler.counters import stats

Made = dict[str, Any]


def start() -> Made:
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3) / 4)
    return {"p": p, "x": torch.ones(2, 3), "y": torch.full((2, 3), 2.0),
            "q": torch.nn.Parameter(torch.zeros(2, 3)),
            "b": torch.zeros(2, 3)}


def descend(m: Made) -> Any:
    loss = (m["p"] * m["x"]).pow(2).sum()
    loss.backward()
    m["p"].data = m["p"].data - 0.125 * m["p"].grad.data
    m["p"].grad = None
    return loss.detach()


def descend_in_place(m: Made) -> Any:
    loss = (m["p"] * m["x"]).pow(2).sum()
    loss.backward()
    m["p"].data -= 0.125 * m["p"].grad.data
    m["p"].grad.data.zero_()
    return loss.detach()


def momentum_encoder(m: Made) -> Any:
    """A moving average beside a result that backward goes through."""
    out = m["x"] * m["p"]
    with torch.no_grad():
        m["b"].data = m["b"].data * 0.75 + m["p"].data * 0.25
        key = m["x"] * m["b"]
    return (out * key).sum()


def to_another(m: Made) -> Any:
    m["p"].data = m["y"]
    return m["p"] * 3


def to_another_then_written(m: Made) -> Any:
    m["p"].data = m["y"]
    m["p"].data.mul_(5)
    return m["p"] + m["y"]


def other_written_then(m: Made) -> Any:
    m["p"].data = m["y"]
    m["y"].add_(1)
    return (m["p"] * 1).detach()


def twice(m: Made) -> Any:
    m["p"].data = m["p"].data * 2
    m["p"].data = m["p"].data + 1
    return m["p"].sum()


def view_before(m: Made) -> Any:
    v = m["b"][0]
    flat = m["b"].view(-1)
    m["b"].data = m["x"] * 7
    v.add_(1)
    return v * 1, flat + 0, m["b"] + v


def view_behind(m: Made) -> Any:
    m["b"].data = m["x"] * 7
    m["b"].data[0] = 3
    return m["b"][1] + 1


def of_its_own(m: Made) -> Any:
    t = m["x"] * 2
    s = t.view(-1)
    t.data = m["y"] * 3
    s.add_(1)
    return t, s


def result_is_the_memory(m: Made) -> Any:
    new = m["x"] * 2
    m["b"].data = new
    return new


def with_gradients_behind(m: Made) -> Any:
    m["p"].data = m["p"].data + 1
    return (m["x"] * m["p"]).sum()


def a_gradient(m: Made) -> Any:
    (m["p"] * m["y"]).sum().backward()
    m["p"].grad.data = m["p"].grad.data.clamp(max=1.0)
    return m["p"].grad.sum()


def swapped(m: Made) -> Any:
    m["p"].data, m["q"].data = m["q"].data, m["p"].data
    return m["p"].sum() + 2 * m["q"].sum()


def old_memory_returned(m: Made) -> Any:
    old = m["b"].data
    m["b"].data = m["x"] * 2
    return old


def moved_view_returned(m: Made) -> Any:
    m["b"].data = m["x"] * 2
    return m["b"][0]


def written_by_itself(m: Made) -> Any:
    m["b"].data = m["x"] * 2
    m["b"].add_(1)
    return m["b"] * 1


def saved_for_backward(m: Made) -> Any:
    out = (m["p"] * m["p"]).sum()
    m["p"].data = m["p"].data * 2
    return out


def another_shape(m: Made) -> Any:
    m["b"].data = torch.ones(4)
    return m["b"] + 1


def moved_while_called(m: Made) -> Any:
    def hook(g: Any) -> None:
        m["b"].data = g * 2
    z = m["p"] * 2
    z.register_hook(hook)
    return z


WHOLE = (descend, descend_in_place, momentum_encoder, to_another, to_another_then_written,
         other_written_then, twice, view_behind, of_its_own, result_is_the_memory,
         with_gradients_behind)
BROKEN = (swapped, view_before, old_memory_returned, moved_view_returned, written_by_itself,
          saved_for_backward, another_shape, moved_while_called, a_gradient)


def told(t: Any, seen: dict[Any, int]) -> Any:
    if isinstance(t, torch.Tensor):
        grad = None if t.grad is None or not t.is_leaf else t.grad.tolist()
        return (t.detach().tolist(), tuple(t.stride()), t.requires_grad, t._version, grad,
                seen.setdefault(t._storage.origin, len(seen)))
    return [told(x, seen) for x in (t if isinstance(t, tuple) else (t,))]


def outcomes(f: Callable[..., Any], g: Callable[..., Any]) -> list[Any]:
    found = []
    m = start()
    kept = m["p"].detach(), m["b"].detach(), m["p"].data       # the memory before
    for _ in range(3):
        m["y"] = torch.full((2, 3), 2.0)
        result = g(m)
        parts = result if isinstance(result, tuple) else (result,)
        seen: dict[Any, int] = {}
        found.append([told(t.detach(), seen)[:3] for t in parts])
        if parts[0].requires_grad:
            parts[0].sum().backward()
        found.append([told(t, seen) for t in m.values()])
    return [*found, [told(t, {}) for t in kept]]


@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("f", [f for f in (*WHOLE, *BROKEN) if f is not saved_for_backward])
def test_moves_are_those_of_eager_mode(f: Callable[..., Any], backend: str) -> None:
    torch.compiler.reset()
    assert outcomes(f, torch.compile(f, backend=backend)) == outcomes(f, f)


@pytest.mark.parametrize("f", WHOLE)
def test_these_are_one_graph(f: Callable[..., Any]) -> None:
    torch.compiler.reset()
    torch.compile(f, backend="reference", fullgraph=True)(start())


@pytest.mark.parametrize("f", [f for f in BROKEN if f is not a_gradient])
def test_these_end_before_the_assignment(f: Callable[..., Any]) -> None:
    torch.compiler.reset()
    broke = torch.compiler.explain(f)(start()).break_reasons
    assert [b.code for b in broke][:1] in (["tensor-change"], ["late"])


def test_second_derivatives_read_the_memory_of_the_call() -> None:
    def f(m: Made) -> Any:
        out = (m["p"] * m["p"] * m["b"].sum()).sum()
        m["b"].data = m["b"] + 1
        return out
    found = []
    for g in (f, torch.compile(f, backend="reference")):
        m = start()
        g(m)
        first, = torch.autograd.grad(g(m), m["p"], create_graph=True)
        found.append(torch.autograd.grad(first.sum(), m["p"])[0].tolist())
    assert found[0] == found[1] == [[12.0] * 3] * 2


def test_second_derivatives_of_what_moved_are_refused() -> None:
    def f(m: Made) -> Any:
        out = (m["p"] * m["y"]).sum()
        m["p"].data = m["p"].data + 1
        return out
    m = start()
    out = torch.compile(f, backend="reference", fullgraph=True)(m)
    with pytest.raises(RuntimeError, match="stands on other memory"):
        torch.autograd.grad(out, m["p"], create_graph=True)


def test_steps_are_compiled_once() -> None:
    model = torch.nn.Linear(3, 3)

    def step(x: Any) -> Any:
        loss = model(x).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            p.data = p.data.add(p.grad.data, alpha=-0.1)
            p.grad = None
        return loss.detach()
    compiled = torch.compile(step, backend="reference")
    compiled(torch.ones(2, 3))
    before = stats()["captures"]
    losses = [compiled(torch.ones(2, 3)).item() for _ in range(4)]
    assert stats()["captures"] == before and losses == sorted(losses, reverse=True)


def test_assigning_its_own_memory_changes_nothing() -> None:
    """As `x.data += 1` does: what shared a version still shares it."""
    x = torch.zeros(3)
    v = x.detach()
    x.data += 1
    v.add_(1)
    assert x._version == 1 and np.array_equal(x.numpy(), [2, 2, 2])
