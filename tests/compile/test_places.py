"""Where an argument begins in its memory is no fact of a compiled call: views of it lie in the
argument of each call (seed 14003351). What names a place in memory itself stays there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "view": lambda u: (u.view(-1), u * 2),
    "detach": lambda u: [u.detach(), u.detach()[:, 1:]],
    "data": lambda u: [d := u.data[:, 1:], d.t(), u.data],
    "unfold": lambda u: u.unfold(1, 2, 2),
    "write": lambda u: (u.view(-1)[1:].add_(1), u.t()),
    "copied": lambda u: copy.deepcopy([u.detach()]),
    "broken": lambda u: (torch._dynamo.graph_break(), [u.view(-1)])[1],
    "other elements": lambda u: [u.view(torch.int16), u.view(torch.float64)[:, 1:]],
    "complex": lambda u: [torch.view_as_real(z := u.view(torch.complex64)), z.real],
    "strided": lambda u: u.as_strided((2,), (1,), 8),
    "strided here": lambda u: u.as_strided((2,), (1,)),
    "strided and computed": lambda u: u.as_strided((2,), (1,), 8) * 2,
}


def seen(f: Callable[[Any], Any], i: int, step: int) -> list[Any]:
    x = torch.arange(48.0).reshape(8, 6)[:, :step]
    made = f(x[i:i + 2])
    made = made if isinstance(made, tuple | list) else [made]
    return [*((t.storage_offset(), t.stride(), t.tolist()) for t in made), x.tolist()]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_views_of_arguments_that_begin_elsewhere(f: Any, backend: str, dynamic: Any) -> None:
    compiled = torch.compile(f, backend=backend, dynamic=dynamic)
    for i in (2, 3, 0, 2, 6):
        assert seen(compiled, i, 6) == seen(f, i, 6)


BEYOND: list[Callable[[Any], Any]] = [
    lambda x: [x.abs(), x.as_strided((5,), (1,))], lambda x: x.as_strided((5,), (1,)) * 2,
    lambda x: [x.abs(), x.view(torch.int16).as_strided((10,), (1,))],
    lambda x: [x.abs(), x[1:].as_strided((5,), (1,))],
    lambda x: (x.abs() + 1).as_strided((5,), (1,)), lambda x: x.as_strided_((5,), (1,))]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("make", [torch.ones, lambda n: torch.ones(n, 1).expand(n, 2),
                                  lambda n: torch.ones(2 * n)[:n], lambda n: torch.ones(2 * n)[n:]])
@pytest.mark.parametrize("f", BEYOND)
def test_views_beyond_the_memory_of_an_argument(
        f: Callable[..., Any], make: Callable[..., Any], backend: str, dynamic: Any) -> None:
    """Seed 16009082: a compiled call returned a view of memory that is not there."""
    def seen(f: Callable[..., Any], x: Any) -> Any:
        try:
            made = f(x)
        except RuntimeError as error:
            return str(error)
        return [(t.tolist(), t.storage_offset()) for t in
                (made if isinstance(made, list) else [made])]
    compiled = torch.compile(f, backend=backend, dynamic=dynamic)
    for n in (6, 7, 1, 3, 2, 6):
        assert seen(compiled, make(n)) == seen(f, make(n))


def test_whether_an_argument_is_a_view() -> None:
    """Seed 14000007: compiled, it never was one."""
    def f(x: Any) -> Any:
        return x * 2, x._is_view(), x[:1]._is_view(), x._base is None
    compiled = torch.compile(f, backend="reference")
    for x in (torch.ones(2, 3), torch.ones(2, 1).expand(2, 3), torch.ones(4, 3)[:2],
              torch.ones(2, 3).requires_grad_(), torch.ones(4, 3)[:2].requires_grad_(),
              torch.ones(4, 3)[:2].detach(), torch.ones(2, 3)):
        assert compiled(x)[1:] == f(x)[1:]


def test_casts_of_views_are_not_kept() -> None:
    """Gradients of one cast are added in bfloat16, those of several in float32: as eagerly."""
    def f(a: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            u = torch.nn.functional.linear(a, a)
            t = torch.nn.functional.linear(a, a) + u
        return u.abs().log1p().sum() + t.square().sum()
    for make in (lambda x: x.expand(2, 4), lambda x: x.expand(2, 4).clone()):
        grads = []
        for g in (f, torch.compile(f, backend="reference")):
            torch.manual_seed(0)
            a = make(torch.randn(2, 1)).requires_grad_()
            g(a).backward()
            assert a.grad is not None
            grads.append(a.grad.tolist())
        assert grads[0] == grads[1]
