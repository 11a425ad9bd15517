"""A compiled call counts the writes to its arguments that eager mode counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch


def data(p: Any, x: Any) -> Any:
    p.data.add_(x)
    p.data[0] = 5
    return p * 2


def plain(p: Any, x: Any) -> Any:
    x.add_(1)
    x[0] = 5
    return p * x


def both(p: Any, x: Any) -> Any:
    x.add_(1)
    x.data.add_(1)
    return x * 2


def detached(p: Any, x: Any) -> Any:
    p.detach().add_(x)
    return p * 2


@pytest.mark.parametrize("f", [data, plain, both, detached])
def test_versions(f: Callable[..., Any]) -> None:
    seen = []
    for g in (f, torch.compile(f, backend="eager"), torch.compile(f)):
        p, x = torch.ones(3, requires_grad=True), torch.arange(3.0)
        said = [g(p, x).tolist() for _ in range(2)]
        seen.append((said, p._version, x._version, p.tolist(), x.tolist()))
    assert seen[0] == seen[1] == seen[2]


def test_a_write_through_data_does_not_spoil_an_earlier_forward() -> None:
    @torch.compile
    def shrink(p: Any) -> None:
        p.data.mul_(0.5)
    p = torch.ones(3, requires_grad=True)
    loss = (p * p).sum()
    shrink(p)
    loss.backward()
    assert p.grad.tolist() == [1.0] * 3 and p._version == 0     # as eager: of the new values
