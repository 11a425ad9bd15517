"""Small programs, found by strangers, that once did something else when compiled."""

from __future__ import annotations

import typing
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch


class Marked(torch.Tensor):
    def twice(self) -> Any:
        return self * 2


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Options(typing.TypedDict):
    rate: int


class Meta(type):
    __call__ = dict


class Made(metaclass=Meta):
    pass


LOG: list[Any] = []


def twice(f: Callable[..., Any], *args: Any) -> tuple[list[Any], list[str]]:
    """The results of two calls, and the warnings."""
    LOG.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return [f(*args), f(*args)], [str(w.message) for w in said]


@pytest.mark.parametrize("f", [
    lambda x: [x + 1, x.twice(), x.view(1, 2), x.sum(), x == 1, torch.zeros_like(x), x.max(0)[0]],
    lambda x: [(x * 3).detach(), torch.cat([x, torch.ones(2)]), x.as_subclass(torch.Tensor) * 2],
])
@pytest.mark.parametrize("grad", [False, True])
def test_results_are_of_the_class_of_their_operands(f: Any, grad: bool) -> None:
    x = torch.ones(2).requires_grad_(grad).as_subclass(Marked)
    for have, want in zip(torch.compile(f)(x), f(x), strict=True):
        assert type(have) is type(want)
        assert have.tolist() == want.tolist() and have.requires_grad is want.requires_grad


def test_functions_that_a_class_takes_over_run_at_every_call() -> None:
    x = torch.ones(2).as_subclass(Logged)

    def f(x: Any) -> Any:
        return (x + 1).relu()
    twice(torch.compile(f), x)
    assert LOG == ["add", "relu"] * 2


@pytest.mark.parametrize("f", [lambda x: (x + 1, Options(rate=2)), lambda x: (x + 1, Made(a=3))])
def test_calls_that_a_metaclass_redirects(f: Any) -> None:
    x = torch.ones(2)
    made, = {str(twice(g, x)[0]) for g in (f, torch.compile(f))}
    assert "'rate': 2" in made or "'a': 3" in made


@pytest.mark.parametrize("f", [
    lambda x: x * 1e300, lambda x: x.clamp(-1e300, 1e300), lambda x: x.half() + 70000.0,
    lambda x: x.clone().fill_(1e300)])
def test_numbers_beyond_a_type_are_infinite_without_a_warning(f: Any) -> None:
    x = torch.ones(2)
    plain, fast = twice(f, x), twice(torch.compile(f), x)
    assert str(plain) == str(fast) and plain[1] == []


def test_lazy_modules_get_their_shapes_inside() -> None:
    net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.ReLU(), torch.nn.LazyBatchNorm1d())
    fast = torch.compile(net)
    x = torch.ones(4, 2)
    assert fast(x).shape == (4, 3) and type(net[0]) is torch.nn.Linear
    net.eval()
    assert fast(x).tolist() == net(x).tolist()
