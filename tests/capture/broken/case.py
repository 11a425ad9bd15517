"""How a program with breaks is written down.

    @case(given(t(1, 2)), given(t(-1, 2)), graphs=3, breaks=1)
    def name(x): ...

Each `given(...)` is one call; its arguments are made anew for the eager and for the compiled run,
so they are descriptions: `t(...)` a tensor, `leaf(...)` one that requires a gradient, anything
callable is called, the rest is copied.
"""

import copy
from typing import Any, NamedTuple

import lehr as torch

CASES: list["Case"] = []
LOG: list[Any] = []


class Case(NamedTuple):
    function: Any
    calls: list[Any]
    graphs: int | dict[Any, int]
    breaks: int | dict[Any, int]
    fallbacks: int


class Made(NamedTuple):
    """A description of an argument."""

    data: Any
    grad: bool = False
    dtype: Any = None

    def make(self) -> Any:
        return torch.tensor(self.data, dtype=self.dtype, requires_grad=self.grad)


def t(*data: Any, dtype: Any = None) -> Made:
    return Made(list(data) if len(data) != 1 else data[0], False, dtype or torch.float32)


def leaf(*data: Any) -> Made:
    return Made(list(data), True, torch.float32)


def given(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def made(x: Any) -> Any:
    """An argument from its description."""
    if isinstance(x, Made):
        return x.make()
    if type(x) is list:
        return [made(v) for v in x]
    if type(x) is dict:
        return {k: made(v) for k, v in x.items()}
    if type(x) is tuple:
        return tuple(made(v) for v in x)
    if callable(x):
        return x()
    return copy.deepcopy(x)


def case(*calls: Any, graphs: Any, breaks: Any, fallbacks: int = 0, repeat: int = 1) -> Any:
    def add(function: Any) -> Any:
        CASES.append(Case(function, list(calls) * repeat, graphs, breaks, fallbacks))
        return function

    return add


def note(*args: Any) -> Any:
    """A function of the user's that capture follows, up to a break."""
    LOG.append(args)
    return args[0] if args else None
