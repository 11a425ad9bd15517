"""Differences of random programs count as rounding where rounding makes them, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.compiler.passes import decompose
from lehr.ops import registry
from tests.compile import fuzz, rounding

EPS = float(np.finfo(np.float32).eps)


def program(*lines: str, dtype: str = "float32") -> str:
    """A program over a tensor of numbers that are not short."""
    body = "\n    ".join(lines)
    return (f"def inputs(v):\n    return (make((3, 4), '{dtype}', 1) / 3,)\n\n"
            f"def main(a):\n    {body}\n")


def verdict(monkeypatch: Any, text: str, change: Callable[[Any], Any]) -> str:
    """What is said of a compiled program whose result is eager's, changed."""
    def compiled(backend: str) -> Callable[..., Any]:
        return lambda main: lambda *args: change(main(*args))
    monkeypatch.setattr(fuzz, "compiled", compiled)
    return fuzz.kind(fuzz.fault(text, "loops"))


def relative(size: float) -> Callable[[Any], Any]:
    return lambda x: x * (1 + size)


@pytest.mark.parametrize(("text", "change", "want"), [
    (program("return a.exp()"), relative(EPS), ""),
    (program("return a.exp()"), relative(40 * EPS), "result"),
    (program("return (a + 2).exp().double()"), relative(EPS), fuzz.ROUNDED),
    (program("return (a + 2).exp().double()"), relative(40 * EPS), "result"),
    (program("return a.exp()", dtype="float64"), lambda x: x.float().double(), "result"),
    (program("return a.exp().sum() - a.exp().sum(0).sum()"), lambda x: x + EPS, fuzz.ROUNDED),
    (program("return a.exp().sum() - a.exp().sum(0).sum()"), lambda x: x + 1e-4, "result"),
    (program("return (a.exp().log() > a)[0, 0]"), lambda x: ~x, fuzz.ROUNDED),
    (program("return a > 0"), lambda x: ~x, "result"),
    (program("return (a * 3).double()"), relative(EPS), "result"),       # was not rounded
    (program("s = a.sin().square().sum() + a.cos().square().sum()",
             "return 'more' if s > 12 else 'less'"),
     lambda x: {"more": "less", "less": "more"}[x], fuzz.ROUNDED),
    (program("s = torch.nn.functional.layer_norm(a, (4,)).sum()", "return s, *torch.frexp(s)"),
     lambda x: tuple(t * 0 for t in x), fuzz.ROUNDED),
    (program("s = torch.nn.functional.layer_norm(a, (4,)).sum()", "return s, *torch.frexp(s)"),
     lambda x: (x[0], x[1], x[2] * 0 + 1), "result"),
    (program("s = torch.nn.functional.layer_norm(a + a * a, (4,), a[0]).sum()",
             "return torch.frexp(s)[1]"), lambda x: x * 0, "result"),
    (program("x = torch.tensor([[-0.5, 0.25, 1.0, -1.0]])",     # short, its norm is not
             "return torch.nn.functional.layer_norm(x, (4,)).sum() + a.sum() * 0"),
     lambda x: x + EPS / 2, fuzz.ROUNDED),
    (program("h = a.bfloat16()[None]", "s = torch.nn.functional.scaled_dot_product_attention",
             "return s(h, h, h).double() - a.sum() * 0"),
     lambda x: x + x.abs().max() * 2.0 ** -9, fuzz.ROUNDED),
    (program("h = a.bfloat16()[None]", "s = torch.nn.functional.scaled_dot_product_attention",
             "return s(h, h, h).double() - a.sum() * 0"),
     lambda x: x + x.abs().max() * 2.0 ** -4, "result"),
    (program("h = torch.tensor([[1.0, 2.0 ** -7, 1e-9]]).bfloat16()",
             "return h.sum().float().double() + a.sum() * 0"),
     lambda x: x + 2.0 ** -7, "result"),
    (program("return torch.nn.functional.gelu(a.abs() * -0.1 - 3)"), lambda x: x + EPS,
     fuzz.ROUNDED),     # 16005433
    (program("return torch.nn.functional.gelu(a.abs() * -0.1 - 3)"), lambda x: x + 100 * EPS,
     "result"),
    (program("return a.sum(), a.exp()"), lambda x: x[::-1], "result"),
    (program("return a * 2"), lambda x: x.t().contiguous().t(), "result"),   # strides
    (program("return a.view(2, 6)"), lambda x: x.view(6, 2), "result"),
])
def test_what_is_rounding(monkeypatch, text, change, want):
    assert verdict(monkeypatch, text, change) == want


TRAINS = """
def inputs(v):
    torch.manual_seed(3)
    box = Box(0, None)
    box.net = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4))
    box.opt = torch.optim.NAME(box.net.parameters(), lr=0.1)
    box.data = make((3 + v, 4), 'float32', 3)
    return (box,)

def main(box):
    box.opt.zero_grad()
    (box.net(box.data) ** 2).mean().backward()
    box.opt.step()
"""


def test_gradients_that_cancel_are_rounding():
    """What stands before a batch norm has gradients of 0 but for rounding, or nearly; Adam makes
    steps of full size of them."""
    assert fuzz.kind(fuzz.fault(TRAINS.replace("NAME", "Adam"), "loops")) in ("", fuzz.ROUNDED)


@pytest.mark.parametrize("name", ["Adam", "NAdam"])
def test_numbers_in_single_precision_are_a_fault(monkeypatch, name):
    """It was there until it was looked at so closely."""
    monkeypatch.setattr(decompose, "ARITHMETIC", frozenset())
    text = TRAINS.replace("NAME", name).replace(", torch.nn.BatchNorm1d(4)", "")
    assert fuzz.kind(fuzz.fault(text, "loops")) == "arguments"


def test_short_numbers_and_what_does_not_round_stay():
    x = torch.tensor([0.1, 0.5, 3.0, float("inf"), float("nan")])
    moved = 0
    for seed in range(4):
        with rounding.shaken(seed):
            a, b = x * 0.5 + 0.25, torch.maximum(x, x.flip(0))
        want = x * 0.5 + 0.25
        np.testing.assert_array_equal(a[1:].numpy(), want[1:].numpy())
        moved += int(a[0] != want[0])
        np.testing.assert_array_equal(b.numpy(), torch.maximum(x, x.flip(0)).numpy())
    assert moved


def test_names_of_ops_are_ops():
    assert rounding.EXACT | rounding.ROUNDED | rounding.INNER <= set(registry.OPS)
