"""What a backward calls of the program's: rules of `autograd.Function`, hooks of tensors inside.

Their effects, errors and decisions on data come with each backward, as eagerly; what they read is
guarded, and plain ones are part of the graph.
"""

from __future__ import annotations

from typing import Any

import pytest

import lehr as torch
from lehr.compiler import stats

LOG: list[Any] = []
SEEN = torch.zeros(2)


class Counted(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx: Any, x: Any, how: Any) -> Any:
        LOG.append("forward")
        how["calls"] = how.get("calls", 0) + 1
        ctx.how = how
        ctx.save_for_backward(x)
        return x * Counted.factor

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        LOG.append(("backward", ctx.how["calls"]))
        return g * Counted.factor, None


class Deciding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, = ctx.saved_tensors
        return g * (2 if x.sum().item() > 0 else -1)


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise ValueError("in backward")


class Writing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        SEEN.add_(g)
        return g


class Rounded(torch.autograd.Function):
    step = 0.5

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.sizes = x.shape
        return (x / Rounded.step).round() * Rounded.step

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.expand(ctx.sizes) * Rounded.step


def gradients(f: Any, *args: Any) -> list[Any]:
    """Of calls on three inputs: the result, the error of its backward, the gradient, the log."""
    LOG.clear()
    SEEN.zero_()
    found: list[Any] = []
    for start in (1.0, -3.0, 2.0):
        x = torch.tensor([start, 0.25], requires_grad=True)
        y = f(x, *args)
        found.append(y.detach().tolist())
        try:
            y.sum().backward()
        except ValueError as error:
            found.append(str(error))
        found += [None if x.grad is None else x.grad.tolist(), list(LOG), SEEN.tolist()]
    return found


def hooked(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: LOG.append(float(g.sum())))
    y.register_hook(lambda g: g * 3)
    return (y * y).sum()


@pytest.mark.parametrize("f", [
    lambda x: Counted.apply(x, {}) + 1,
    lambda x: Deciding.apply(x) * 2,
    lambda x: Failing.apply(x) + 1,
    lambda x: Writing.apply(x) * 2,
    hooked,
], ids=["effects", "data", "error", "write", "hook"])
def test_what_comes_with_the_backward(f: Any) -> None:
    before = stats()["breaks"]
    assert gradients(torch.compile(f)) == gradients(f)
    assert stats()["breaks"] > before
    with pytest.raises(Exception, match=r"\[late\]|\[data-dependent\]"):
        torch.compile(f, fullgraph=True)(torch.ones(2, requires_grad=True))


def test_arguments_and_context_are_the_programs() -> None:
    how: dict[str, int] = {}
    gradients(torch.compile(lambda x, how: Counted.apply(x, how)), how)
    assert how == {"calls": 3}
    assert LOG == ["forward", ("backward", 1), "forward", ("backward", 2), "forward",
                   ("backward", 3)]


def test_effects_of_a_backward_inside() -> None:
    def step(x: Any) -> Any:
        Counted.apply(x, {}).sum().backward()
        return x.grad * 2
    LOG.clear()
    fast = torch.compile(step)
    for _ in range(3):
        assert fast(torch.ones(2, requires_grad=True)).tolist() == [4.0, 4.0]
    assert LOG == ["forward", ("backward", 1)] * 3


def test_a_plain_rule_is_part_of_the_graph_and_guarded() -> None:
    fast = torch.compile(lambda x: Rounded.apply(x) * 5, fullgraph=True)
    try:
        for step in (0.5, 0.25):
            Rounded.step = step
            x = torch.tensor([1.1, 0.3], requires_grad=True)
            fast(x).sum().backward()
            assert x.grad.tolist() == [5 * step] * 2
    finally:
        Rounded.step = 0.5


def test_copies_of_structures_share_memory_as_eager_ones_do() -> None:
    import copy

    def f(x: Any) -> Any:
        y = x + 1
        a, (b, c) = copy.deepcopy([y, (y[1:], y)])
        b.fill_(7)
        return a, b, c, a is c, copy.deepcopy(y * 2)
    for g in (f, torch.compile(f)):
        a, b, c, same, d = g(torch.zeros(2))
        assert (a.tolist(), b.tolist(), c.tolist(), same, d.tolist()) == (
            [1, 7], [7], [1, 7], True, [2, 2])
