"""`x.data` between a compiled call and its backward: what eager mode's backward reads by then, a
compiled one reads, too, or it says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch


@pytest.mark.parametrize("f", [lambda d, w: d * w, lambda d, w: d[0] * w,
                               lambda d, w: torch.nn.functional.linear(d, w)])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_data_that_is_assigned_between_a_call_and_its_backward(
        f: Callable[..., Any], backend: str) -> None:
    """Seed 11002159. Eager mode reads what is there by then, or what was there for a view; a
    compiled call says that it cannot tell."""
    w, d = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    y = torch.compile(f, backend=backend)(d, w)
    d.data = d.data + 4
    with pytest.raises(RuntimeError, match=r"stands on other memory \(`x.data = y`\)"):
        y.sum().backward()
    y = torch.compile(lambda d, w: d + w, backend=backend)(d, w)
    d.data = d.data + 4
    y.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_data_that_is_written_between_a_call_and_its_backward(backend: str) -> None:
    """Seed 17002350. Eager mode reads what is there by then where it kept the tensor itself, as
    `clamp` does; what was made of it, as by `exp`, it kept. A compiled call does the first, too,
    and says that it cannot do the second where it would compute it again."""
    def kept(c: torch.Tensor) -> torch.Tensor:
        return c.clamp(-1, 1)

    def made(c: torch.Tensor) -> torch.Tensor:
        t = c.clamp(-1, 1)
        t.exp_()
        assert c.tolist()
        c.data.add_(0.5)
        return t
    c = torch.tensor([-2.0, -0.6, 0.3, 0.7, 2.0], requires_grad=True)
    y = torch.compile(kept, backend=backend)(c)
    c.data.add_(0.5)
    y.sum().backward()
    assert c.grad is not None and c.grad.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]
    with pytest.raises(RuntimeError, match="has been written through `x.data` since"):
        torch.compile(made, backend=backend)(c).sum().backward()


def summed(c: Any) -> Any:
    return (t := c.sum()), t.sin()


@pytest.mark.parametrize("f", [summed, lambda c: [(t := c * 2), t.view(-1).sin()],
                               lambda c: [(t := c * 2).detach(), t.sin()],
                               lambda c: [(t := c * 2)[1:], t.sin()], lambda c: [c.exp()] * 2])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_results_that_are_written_through_data(f: Callable[..., Any], backend: str) -> None:
    """Seed 20004035. Eager mode's backward reads its results; a compiled one has its own."""
    c = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
    first, last = torch.compile(f, backend=backend)(c)
    first.data.add_(2)
    with pytest.raises(RuntimeError, match="has been written through `x.data` since"):
        last.sum().backward()


@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_results_that_no_backward_reads_are_written_through_data(backend: str) -> None:
    def f(c: Any) -> Any:
        t, u = c * 2, c + 3
        return t, u, (t + u).sum(), t.sin()
    c = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
    t, u, total, _ = torch.compile(f, backend=backend)(c)
    t.data.add_(2)
    u.data.zero_()
    total.backward()
    assert c.grad is not None and c.grad.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("f", [lambda c: c.prod(-1), lambda c: (c.sin() * c.cos()).sum()])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_arguments_of_which_a_rule_is_ahead(f: Callable[..., Any], backend: str) -> None:
    """Seed 20005874. What a gradient rule makes of an argument alone may be made before backward;
    eager mode makes it of what is there then."""
    found = []
    for g in (f, torch.compile(f, backend=backend)):
        c = torch.tensor([2.0, 0.0, 3.0], requires_grad=True)
        y = g(c)
        c.data.add_(1.5)
        try:
            y.backward()
        except RuntimeError as error:
            assert g is not f and "has been written through `x.data` since" in str(error)
            continue
        found.append(c.grad.tolist())
    assert found[0] == found[-1]
