"""`__torch_function__` of classes of the program's, inside compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch

LOG: list[Any] = []
HANDLED: dict[Any, Callable[..., Any]] = {}


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append((func.__name__, len(args), sorted(kwargs or {}), [t.__name__ for t in types]))
        return super().__torch_function__(func, types, args, kwargs or {})


class Table(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **(kwargs or {}))
        return made.as_subclass(Table) if isinstance(made, torch.Tensor) else made


class Strict(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "exp":
            raise ValueError("no exp here")
        if func.__name__ == "log":
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs or {})


class Asking(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})
        if func.__name__ == "sin":
            with torch._C.DisableTorchFunctionSubclass():
                LOG.append(float(made.sum().item()))
        return made


def handled(f: Any) -> Any:
    def mark(g: Any) -> Any:
        HANDLED[f] = g
        return g
    return mark


@handled(torch.relu)
def relu(x: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor).clamp(min=1.0)


def operators(x: Any) -> Any:
    y = x + 1
    return y * 2, 3 - y, -y, y @ y.t()


def functions(x: Any) -> Any:
    return torch.relu(x), torch.cat([x, x]), x.sum(dim=0), torch.nn.functional.gelu(x)


def shapes(x: Any) -> Any:
    return x.view(-1)[1:], x.shape[0] * x, x.size(0), x.dim()


def writes(x: Any) -> Any:
    x.add_(1)
    x[0] = 5
    return x * 1


def caught(x: Any) -> Any:
    try:
        return x.exp()
    except ValueError as error:
        return str(error), x.cos()


def nobody(x: Any) -> Any:
    try:
        return torch.log(x.abs())
    except TypeError as error:
        return str(error)[:40]


def asking(x: Any) -> Any:
    y = x * 2
    z = y.sin()
    return z + y


def plain_inside(x: Any) -> Any:
    y = x.as_subclass(torch.Tensor) * 2
    return y + 1, x + y


def gradients(x: Any) -> Any:
    w = torch.ones(2, 2, requires_grad=True)
    loss = (x * w).sum()
    loss.backward()
    return w.grad, loss.detach()


PROGRAMS = (operators, functions, shapes, writes, caught, nobody, asking, plain_inside, gradients)
CLASSES = (Loud, Table, Strict, Asking)


def told(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        kind = type(value).__name__
        with torch._C.DisableTorchFunctionSubclass():
            return kind, value.detach().tolist(), tuple(value.stride())
    if isinstance(value, (tuple, list)):
        return [told(v) for v in value]
    return value


def outcomes(g: Callable[..., Any], cls: type) -> list[Any]:
    made = []
    for n in range(3):
        LOG.clear()
        x = torch.tensor([[0.5, 1.5], [-2.0, 3.0 + n]]).as_subclass(cls)
        try:
            found = told(g(x))
        except (ValueError, TypeError) as error:
            found = type(error).__name__, str(error)
        made.append((found, told(x), list(LOG)))
    return made


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("f", PROGRAMS)
def test_classes_that_take_over_are_followed(f: Callable[..., Any], cls: type) -> None:
    torch.compiler.reset()
    want = outcomes(f, cls)
    have = outcomes(torch.compile(f, backend="reference"), cls)
    assert have == want
    assert torch.ones(2).as_subclass(Loud).add(1).sum().item() == 4     # hooks act as before


@pytest.mark.parametrize("f", [operators, functions, writes, plain_inside])
@pytest.mark.parametrize("cls", [Loud, Table])
def test_these_are_one_graph(f: Callable[..., Any], cls: type) -> None:
    torch.compiler.reset()
    torch.compile(f, backend="reference", fullgraph=True)(torch.ones(2, 2).as_subclass(cls))


def test_what_a_class_does_now_is_what_counts() -> None:
    """A table that the hook reads, and the hook itself, are guarded."""
    def f(x: Any) -> Any:
        return torch.sigmoid(x)
    compiled = torch.compile(f, backend="reference")
    x = torch.ones(2).as_subclass(Table)
    assert type(compiled(x)) is Table
    handled(torch.sigmoid)(lambda t: "mine")
    try:
        assert compiled(x) == "mine"
    finally:
        del HANDLED[torch.sigmoid]
    assert type(compiled(x)) is Table
