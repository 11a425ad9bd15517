"""Gradients of one result of a compiled call by another: both belong to one node of the tape."""

from __future__ import annotations

from collections.abc import Callable
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


def several(x: Any) -> Any:
    y = x * 2
    z = y.exp()
    return y, (z * y).sum(), z, y.sum() * 3


def hooked(y: Any, z: Any, *more: Any) -> list[Any]:
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (z * 2).backward()
    return seen


def retained(y: Any, z: Any, *more: Any) -> Any:
    y.retain_grad()
    (z + y.sum()).backward()
    return y.grad.tolist()


ASKED = {
    "grad": lambda y, z, *more: torch.autograd.grad(z, y)[0].tolist(),
    "grad behind": lambda y, z, *more: torch.autograd.grad(z * 2, y)[0].tolist(),
    "grad unused": lambda y, z, *more: torch.autograd.grad(z, y, allow_unused=True)[0].tolist(),
    "inputs": lambda y, z, *more: (z.backward(inputs=[y]), y.grad.tolist())[1],
    "hook": hooked, "retain": retained}


BACKENDS = ("inductor", "reference", lambda graph, inputs: graph.forward)


@pytest.mark.parametrize("backend", BACKENDS, ids=["c", "reference", "own"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_gradient_with_what_goes_past_the_result(asked: str, backend: Any) -> None:
    for f in (pair, several):
        made = []
        for g in (f, torch.compile(f, backend=backend)):
            x = torch.arange(3.0).requires_grad_()
            made.append((ASKED[asked](*g(x * 1)), x.grad if x.grad is None else x.grad.tolist()))
        assert made[0] == made[1]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("f", [views, own_view])
def test_of_a_view_it_is_refused(f: Any, asked: str) -> None:
    x = torch.arange(3.0).requires_grad_()
    assert ASKED[asked](*f(x * 1))                  # eagerly it is known
    with pytest.raises(RuntimeError, match="one result of a compiled call"):
        ASKED[asked](*torch.compile(f)(x * 1))


def test_a_hook_may_look_and_not_replace() -> None:
    def look(f: Any, hook: Any) -> Any:
        x = torch.arange(3.0).requires_grad_()
        y, z = f(x)
        y.register_hook(hook)
        (z + y.sum()).backward()
        return x.grad.tolist()
    compiled = torch.compile(pair)
    assert look(compiled, lambda g: None) == look(pair, lambda g: None)
    with pytest.raises(RuntimeError, match="a hook replaces"):
        look(compiled, lambda g: g * 2)


def test_double_backward_of_a_result() -> None:
    made = []
    for f in (pair, torch.compile(pair)):
        x = torch.arange(3.0).requires_grad_()
        y, z = f(x)
        first, = torch.autograd.grad(z, y, create_graph=True)
        made.append((first.tolist(), torch.autograd.grad((first * first).sum(), x)[0].tolist()))
    assert made[0] == made[1]


def test_a_program_that_asks_behind_a_break() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        str(y.sum().item())
        z = y * 3
        return torch.autograd.grad((z * z).sum(), z, allow_unused=True)

    def penalty(x: Any, w: Any) -> Any:
        mixed = (x * 0.5 + 0.5).requires_grad_()
        str(mixed.sum().item())
        d = torch.tanh(mixed * w).sum()
        g, = torch.autograd.grad(d, mixed, create_graph=True)
        ((g.norm() - 1) ** 2).backward()
        return d.detach(), w.grad
    for g, inputs in ((f, [torch.ones(2)]), (penalty, [torch.ones(2), torch.ones(2)])):
        made = []
        for h in (g, torch.compile(g)):
            made.append(h(*[t.clone().requires_grad_() for t in inputs]))
        for a, b in zip(*made, strict=True):
            torch.testing.assert_close(a, b)


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


def _detached(t: Any) -> Any:
    return t.detach().requires_grad_()


LEAVES: list[Callable[[Any, Any], list[Any]]] = [
    lambda a, c: [t := a * c, (u := _detached(t)).T, u[0]],
    lambda a, c: [t := a * c, _detached(t).T],
    lambda a, c: [t := a * c, (u := _detached(t)).T, u.T * 2],
    lambda a, c: [t := c * 2, (u := _detached(t)).T, u.view(-1)[1:]],
    lambda a, c: [t := c * 2, t.view(3, 2).requires_grad_().T],
    lambda a, c: [t := a * 2, t.data.requires_grad_().T], lambda a, c: [_detached(c).T, c]]


@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("f", LEAVES)
def test_views_of_leaves_that_share_memory(f: Callable[..., Any], backend: str) -> None:
    """Seed 19001584: where the leaf itself was no result, its views had memory of their own."""
    def seen(g: Callable[..., Any]) -> Any:
        a, c = torch.arange(6.0).reshape(2, 3).requires_grad_(), torch.ones(2, 3)
        made = g(a, c)
        places = [t.untyped_storage().data_ptr() for t in (*made, a, c)]
        marks = [(t.requires_grad, t.is_leaf, t._is_view(), t.stride()) for t in made]
        sum((t * t).sum() for t in made).backward()
        bases = [t if t._base is None else t._base for t in made]
        grads = [None if t.grad is None else t.grad.tolist() for t in (a, *bases) if t.is_leaf]
        return [places.index(p) for p in places], marks, [t.tolist() for t in made], grads
    compiled = torch.compile(f, backend=backend)
    for _ in range(2):
        assert seen(compiled) == seen(f)


@pytest.mark.parametrize("f", [
    lambda a: [(u := (a * 2).detach()).addcmul_(a, a), u.t(), u[0]],
    lambda a: [(y := a.detach() * 2)[0], y.detach().mul_(a), y],
    lambda a: [torch.from_numpy((u := (a * 2).detach()).numpy()), u, u.addcmul_(a, a).t()]])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_histories_that_begin_on_memory_without_one(f: Callable[..., Any], backend: str) -> None:
    """Seed 21008919. A tensor without gradients that is written with them has a history of its own
    on memory that others show."""
    found = []
    for g in (f, torch.compile(f, backend=backend)):
        a = torch.ones(1, 4, requires_grad=True)
        made = g(a)
        sum((t * 3).sum() for t in made if t.requires_grad).backward()
        with torch.no_grad():
            made[-1].add_(1)
        found.append([[t.tolist() for t in made], a.grad.tolist(),
                      [[t._storage is u._storage for t in made] for u in made],
                      [(t.requires_grad, t.is_leaf) for t in made]])
    assert found[0] == found[1]
