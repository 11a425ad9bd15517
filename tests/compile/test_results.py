"""Gradients of one result of a compiled call by another: both belong to one node of the tape."""

from __future__ import annotations

from typing import Any

import pytest

import lehr as torch


def pair(x: Any) -> Any:
    y = x * 2
    return y, (y * y).sum()


def views(x: Any) -> Any:
    y = x.unsqueeze(0)
    return y, (y * y).sum()


def own_view(x: Any) -> Any:
    y = (x * 2).view(3, 1)
    return y, (y * y).sum()


def hooked(y: Any, z: Any) -> list[Any]:
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (z * 2).backward()
    return seen


def retained(y: Any, z: Any) -> Any:
    y.retain_grad()
    (z + y.sum()).backward()
    return y.grad.tolist()


ASKED = {
    "grad": lambda y, z: torch.autograd.grad(z, y)[0].tolist(),
    "grad behind": lambda y, z: torch.autograd.grad(z * 2, y)[0].tolist(),
    "grad unused": lambda y, z: torch.autograd.grad(z, y, allow_unused=True)[0].tolist(),
    "inputs": lambda y, z: (z.backward(inputs=[y]), y.grad.tolist())[1],
    "hook": hooked, "retain": retained}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("f", [pair, views, own_view])
def test_a_gradient_that_passes_a_result_by_is_refused(f: Any, asked: str) -> None:
    x = torch.arange(3.0).requires_grad_()
    assert ASKED[asked](*f(x * 1))                  # eagerly it is known
    with pytest.raises(RuntimeError, match="one result of a compiled call"):
        ASKED[asked](*torch.compile(f)(x * 1))


def test_a_program_that_asks_behind_a_break_is_refused_too() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        str(y.sum().item())
        z = y * 3
        return torch.autograd.grad((z * z).sum(), z, allow_unused=True)
    with pytest.raises(RuntimeError, match="one result of a compiled call"):
        torch.compile(f)(torch.ones(2).requires_grad_())


FINE = {
    "of itself": lambda x, y, z: torch.autograd.grad(y.sum(), y)[0],
    "hook on another way": lambda x, y, z: (y.register_hook(lambda g: g * 2),
                                            torch.autograd.grad(y.sum(), x)[0])[1],
    "removed": lambda x, y, z: (y.register_hook(lambda g: g * 2).remove(),
                                torch.autograd.grad(z, x)[0])[1],
    "inputs": lambda x, y, z: torch.autograd.grad(z + y.sum(), x)[0],
    "hook on the last": lambda x, y, z: (z.register_hook(lambda g: g * 2),
                                         torch.autograd.grad(z, x)[0])[1]}


@pytest.mark.parametrize("asked", FINE)
def test_others_are_those_of_eager_mode(asked: str) -> None:
    made = []
    for g in (pair, torch.compile(pair)):
        x = torch.arange(3.0).requires_grad_()
        made.append(FINE[asked](x, *g(x)).tolist())
    assert made[0] == made[1]


def test_a_hook_inside_sees_all_of_a_gradient() -> None:
    def f(x: Any, seen: list[Any]) -> Any:
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        return y, (y * y).sum()
    made: list[Any] = []
    for g in (f, torch.compile(f)):
        seen: list[Any] = []
        y, z = g(torch.arange(3.0).requires_grad_(), seen)
        (z + y.sum()).backward()
        made.append(seen)
    assert made[0] == made[1] == [[1.0, 5.0, 9.0]]
