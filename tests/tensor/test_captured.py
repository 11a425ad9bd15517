"""The tensor API under a capture: one graph, no data read, the values and layouts of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch

M = torch.tensor([[1, 0, 1, 1, 0, 0]] * 4).bool()
I = torch.tensor([2, 0, 3])
W = torch.linspace(-1, 1, 18).reshape(6, 3).requires_grad_()
X = torch.linspace(-2, 3, 24).reshape(4, 6)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * g


def put(x: Any, index: Any, value: Any) -> Any:
    y = x.clone()
    y[index] = value
    return y


def steps(x: Any) -> Any:
    y = x.clone()
    y[0] += 1
    y[:, 1] *= 2
    y.t()[2].sub_(5)
    return y


def unrecorded(x: Any) -> Any:
    with torch.no_grad():
        return x * W.sum()


PLAIN: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[1:3, ::2] + 1,
    "none": lambda x: x[:, None] * x[None],
    "integers": lambda x: x[1] - x[-1],
    "ellipsis": lambda x: x[..., 0],
    "index": lambda x: x[I],
    "index of the second": lambda x: x[:, I],
    "two indices": lambda x: x[I, I],
    "0-d index": lambda x: x[I[0]] * 2,
    "list": lambda x: x[[0, 2]],
    "mask written": lambda x: put(x, M, 0.0),
    "slice written": lambda x: put(x, (slice(0, 2), 1), 3.0),
    "tensor written": lambda x: put(x, 0, x[1]),
    "index written": lambda x: put(x, I, 1.0),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "where number": lambda x: torch.where(x > 0, x, 0.0),
    "split": lambda x: sum(a.sum(0) for a in x.split(2)),
    "chunk": lambda x: torch.cat(x.chunk(3, 1), 0),
    "unbind": lambda x: torch.stack(x.unbind(0)),
    "iteration": lambda x: torch.stack([r * 2 for r in x]),
    "zeros": lambda x: torch.zeros(x.shape) + x,
    "full": lambda x: torch.full((4, 1), 2.0) * x,
    "arange": lambda x: torch.arange(6) * x,
    "tensor": lambda x: x * torch.tensor([1.0, 2, 3, 4, 5, 6]),
    "0-d tensor": lambda x: x * torch.tensor(2.0),
    "new": lambda x: x.new_zeros(2) + x.new_full((2,), 3.0),
    "to": lambda x: x.to(torch.float64).sum().float(),
    "conversions": lambda x: x.int().float() + x.half().float(),
    "in place": lambda x: x.clone().mul_(2).add_(1),
    "steps": steps,
    "copy_": lambda x: torch.empty(4, 6).copy_(x),
    "fill_": lambda x: x.clone().fill_(2) + x.clone().zero_(),
    "view": lambda x: x.view(2, -1).t().contiguous(),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 6)),
    "expand": lambda x: x[:1].expand(4, 6) + x,
    "flip": lambda x: x.flip(dims=(0,)),
    "numpy's names": lambda x: x.sum(axis=1, keepdims=True),
    "max": lambda x: x.max(1).values,
    "topk": lambda x: x.topk(2).values,
    "sort": lambda x: x.sort()[0],
    "sizes": lambda x: x.reshape(x.size(0) * 2, -1) * len(x),
    "data": lambda x: x.data * 2,
    "detach": lambda x: x.detach() + x,
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "one_hot": lambda x: torch.nn.functional.one_hot(I, 5),
    "masked_fill": lambda x: x.masked_fill(M, -1.0),
    "transposes": lambda x: x.T @ x + x.mT.matmul(x),
    "grad": lambda x: torch.autograd.grad((x @ W).sum(), W)[0],
    "no_grad": unrecorded,
    "questions": lambda x: x * 2 if x.is_floating_point() and x.is_contiguous() else x,
    "result_type": lambda x: x.to(torch.result_type(x, 1.5)) + torch.finfo(x.dtype).eps,
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij")[0],
    "reflected": lambda x: 1 - x + 2 ** x,
    "function": lambda x: Square.apply(x).sum(),
    "channels last": lambda x: x.view(1, 4, 2, 3).to(memory_format=torch.channels_last) * 2,
}
RANDOM: dict[str, Callable[[Any], Any]] = {
    "rand": lambda x: x + torch.rand(4, 6),
    "randn": lambda x: x + torch.randn_like(x) + torch.randn(6),
    "dropout": lambda x: torch.dropout(x, 0.5, True) + torch.rand(6),
    "randint": lambda x: x + torch.randint(0, 5, (6,)),
    "randperm": lambda x: x[torch.randperm(4)],
    "normal_": lambda x: torch.empty(4, 6).normal_() + x,
    "uniform_": lambda x: x.clone().uniform_(-1, 1),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full((6,), 0.5)),
    "multinomial": lambda x: torch.multinomial(x.abs() + 1, 2),
}


def same(a: Any, b: Any) -> None:
    assert a.shape == b.shape and a.dtype is b.dtype and a.stride() == b.stride()
    torch.testing.assert_close(a.detach().float(), b.detach().float())


@pytest.mark.parametrize("name", PLAIN)
def test_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEHR_STRICT", "1")
    f = PLAIN[name]
    same(torch.compile(f, fullgraph=True)(X.clone()), f(X.clone()))


@pytest.mark.parametrize("name", RANDOM)
def test_numbers_of_the_same_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEHR_STRICT", "1")
    f = RANDOM[name]
    compiled = torch.compile(f, fullgraph=True)
    torch.manual_seed(5)
    want, after = f(X), torch.rand(2)
    for _ in range(2):
        torch.manual_seed(5)
        same(compiled(X), want)
        assert torch.equal(torch.rand(2), after)


@pytest.mark.parametrize("read", [
    lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: bool(x.sum() > 0),
    lambda x: float(x[0, 0]),
    lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: repr(x), lambda x: 1.0 in x])
def test_reading_data_is_refused(read: Callable[[Any], Any]) -> None:
    with pytest.raises(Exception) as caught:
        torch.compile(read, fullgraph=True)(X)
    assert "data" in str(caught.value)
