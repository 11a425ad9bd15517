"""Phrases of Python for random programs: several lines, with tensors in the places {x} and {y}.

{t}, {u} fresh names; {n} a number; {d} a dimension. A phrase that raises for its operands is left
out. The objects that phrases use are in `OBJECTS`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import lehr as torch

GENERATORS = [
    "def {t}g(q):\n    for i in range(2):\n        q = q + i\n        yield q\n"
    "{t} = list({t}g({x}))",
    "def {t}g(q):\n    yield q\n    yield from (q * i for i in range(2))\n"
    "{t} = sum(z.sum() for z in {t}g({x}))",
    "def {t}g(q):\n    try:\n        yield q\n        yield q + 1\n    finally:\n"
    "        names['end'] = q\n{u} = {t}g({x})\n{t} = next({u})\n{u}.close()\ndel {u}",
    "{u} = iter([{x}, {y}])\n{t} = next({u}) * 2\n{u} = list({u})",
    "def {t}g():\n    got = {x}\n    while True:\n        got = yield got + 1\n"
    "{u} = {t}g()\nnext({u})\n{t} = {u}.send({y})\ndel {u}",
    "{t} = {{i: q for i, q in enumerate(z * 2 for z in xs)}}",
    "{t}, *{u} = [{x}, {y}, *xs]", "{t} = [*map(torch.neg, [{x}, {y}])]",
    "for {u} in filter(lambda q: q.dim(), list(xs)):\n    {t} = {u}.sum()",
]
CONTAINERS = [
    "names['v'] = names.pop('w')", "{t} = list(names)", "{t} = list(reversed(names.values()))",
    "names = dict(sorted(names.items(), key=lambda p: str(p[0])))",
    "del names['w']\nnames['w'] = {x}", "{t} = [k for k, q in names.items() if q is {x}]",
    "names |= {{'m': {x}}}", "{t} = sorted([{x}, {y}], key=lambda q: q.numel())",
    "{t} = {{q.dtype for q in xs}} == {{{x}.dtype}}", "xs[:1] = [{x}, {y}]", "{t} = xs[::-1]",
    "{t} = [(p, q) for p in xs for q in [{x}] if p.shape == q.shape]",
    "{t} = any(q is {x} for q in xs), all(q.dim() for q in xs)", "{t} = {x} in [{x}]",
    "{t} = (lambda *q, **k: [*q, *k.values()])({x}, *xs, last={y})",
    "{t} = f'{{len(xs)}} of {{{x}.dtype}} {{tuple({x}.shape)!r:>12}}'",
    "{t} = 'a,b'.split(',') + [n]",
    "if ({u} := {x} + 1).dim() > 1:\n    {t} = {u}.sum(0)",
    "match {x}.dim():\n    case 0:\n        {t} = {x}\n    case 1 | 2:\n        {t} = {x} * 2\n"
    "    case other:\n        {t} = other",
    "assert len(xs) >= 0, 'never'", "{t} = {x} if flag else {y}",
    "for {u} in range(3):\n    if {u} == n:\n        break\nelse:\n    {t} = {x} * 3",
]
OBJECTS_ = [
    "{t} = Pair({x}, n)\n{t}.left = {t}.left * 2", "{t} = replace(Pair({x}), count=3)",
    "{t} = Pair({x}) == Pair({x})", "{t} = Pair({x}).both", "{t} = Pair.of([{x}, {y}])",
    "box.pair = Pair(box.value, box.count)", "with held(names):\n    {t} = {x} + 1",
    "with held(names):\n    {x}.nothing", "{t} = hasattr(box, 'pair') and box.pair.count",
    "Pair.made += 1\n{t} = Pair.made", "{t} = Pair({x})\n{t}.extra = {t}.both\ndel {t}.extra",
]
CLOSURES = [
    "def {t}f():\n    count = 0\n    def step(q):\n        nonlocal count\n        count += 1\n"
    "        return q * count\n    return step(step({x})), count\n{t} = {t}f()",
    "def {t}f(q, k=[]):\n    k.append(q)\n    return len(k)\n{t} = {t}f({x}) + {t}f({y})",
    "{u} = [lambda q, i=i: q + i for i in range(2)]\n{t} = [f({x}) for f in {u}]\ndel {u}",
    "def {t}f(q):\n    try:\n        return q.sum()\n    finally:\n        xs.append(q)\n"
    "{t} = {t}f({x})",
    "def {t}f(q):\n    for i in range(3):\n        try:\n            if i:\n"
    "                continue\n"
    "            q = q + 1\n        finally:\n            q = q * 2\n    return q\n{t} = {t}f({x})",
    "try:\n    try:\n        {x}.nothing\n    finally:\n        names['f'] = {x} * 2\n"
    "except AttributeError as error:\n    {t} = type(error.__context__).__name__",
    "try:\n    raise ValueError({x}.dim()) from KeyError('k')\nexcept ValueError as error:\n"
    "    {t} = error.args, repr(error.__cause__)",
]
RANDOM = [
    "{t} = torch.randn(2, 3)", "{t} = torch.randint(0, 5, (4,))", "{t} = torch.randperm(5)",
    "{t} = torch.rand(2, n)", "{t} = torch.randn_like({x})", "{x}.normal_()",
    "{t} = torch.bernoulli(torch.full((6,), 0.5))", "{t} = torch.nn.functional.dropout({x}, 0.5)",
    "{t} = torch.manual_seed(n).initial_seed()", "{t} = torch.rand(3) + torch.rand(3)",
]
GRADIENTS = [
    "{t} = {x} * 2\n{t}.register_hook(lambda g: g * 3)\n{t}.sum().backward(retain_graph=True)",
    "{t} = Twice.apply({x})", "{t} = Twice.apply({x}) * Twice.apply({y})",
    "{t} = Clip.apply({x}, n)[0]", "{u} = {x}.detach().clone().requires_grad_()\n"
    "({u} * {y}).sum().backward()\n{t} = {u}.grad",
    "{t} = torch.autograd.grad(({x} ** 3).sum(), {x}, create_graph=True)[0]",
    "{t} = torch.utils.checkpoint.checkpoint(lambda q: q.sin() * 2, {x}, use_reentrant=False)",
    "with torch.no_grad():\n    {t} = {x} * 2\n{t}.requires_grad_()", "{t} = {x}.detach() + {x}",
    "{t} = torch.func.grad(lambda q: (q * q).sum())({x}.detach())",
]
TRAINING = [
    "box.opt.zero_grad()\n(({x}.float().mean() - box.net(box.data)) ** 2).mean().backward()\n"
    "box.opt.step()",
    "{t} = box.net(box.data)", "box.net.eval()\n{t} = box.net(box.data)\nbox.net.train()",
    "for {u} in box.net.parameters():\n    {t} = {u}.sum()", "box.opt.zero_grad(set_to_none=False)",
    "{t} = [k for k, _ in box.net.named_buffers()]", "box.opt.param_groups[0]['lr'] *= 0.5",
    "for {u} in box.net.parameters():\n    {u}.data.mul_(0.5)", "box.net.requires_grad_(flag)",
    "{t} = len(box.opt.state)", "box.net(box.data).sum().backward()",
    "with torch.no_grad():\n    {t} = box.net(box.data)",
]
EVERY = (GENERATORS, CONTAINERS, OBJECTS_, CLOSURES, RANDOM, GRADIENTS)
OPTIMIZERS = ["SGD(box.net.parameters(), lr=0.1, momentum=0.9)",
              "Adam(box.net.parameters(), lr=0.1)",
              "AdamW(box.net.parameters(), lr=0.1, weight_decay=0.1)", "SGD(box.net.parameters())",
              "RMSprop(box.net.parameters(), lr=0.1)", "Adagrad(box.net.parameters())"]
NETS = ["Linear(4, 3)", "Sequential(Linear(4, 3), ReLU(), Linear(3, 2))", "LayerNorm(4)",
        "Sequential(Linear(4, 4, bias=False), BatchNorm1d(4))",
        "Sequential(Dropout(0.5), Linear(4, 2))",
        "Sequential(Linear(4, 2), GELU(), Dropout(0.25))"]


@dataclasses.dataclass
class Pair:
    """A dataclass with a default, a property, a class attribute and a class method."""

    left: Any
    count: int = 1

    @property
    def both(self) -> tuple[Any, int]:
        return self.left, self.count

    @classmethod
    def of(cls, items: list[Any]) -> list[Pair]:
        return [cls(x, i) for i, x in enumerate(items)]


@contextlib.contextmanager
def held(names: dict[str, Any]) -> Iterator[None]:
    """Says in a dictionary that it was entered and left; lets no AttributeError out."""
    names["in"] = len(names)
    try:
        yield
    except AttributeError:
        names["caught"] = True
    finally:
        names["out"] = len(names)


class Twice(torch.autograd.Function):
    """Two times; its gradient is thrice, so that it is seen to be used."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 + x * 0


class Clip(torch.autograd.Function):
    """Two results, one of them without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, n: int) -> Any:
        ctx.n, mask = n, x > n
        ctx.mark_non_differentiable(mask)
        return x.clamp(max=n), mask

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        return g * ctx.n, None


def objects() -> dict[str, Any]:
    """What programs know besides `torch`: fresh, since they write to it."""
    pair = dataclasses.dataclass(type("Pair", (Pair,), {"made": 0, "__annotations__": {}}))
    return {"Pair": pair, "replace": dataclasses.replace, "held": held, "Twice": Twice,
            "Clip": Clip}
