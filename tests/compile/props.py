"""Objects that the phrases of `idioms` and `handling` use."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import lehr as torch
from lehr import nn
from tests.compile.phrases import counting

# -- modules


class Tally(nn.Module):
    """A weight; how often it was called, as a number and in a buffer."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(float(n)) / 4)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        self.calls += 1
        if self.training:
            self.seen += 1
        return x * self.weight * scale + self.calls


class Ladder(nn.Module):
    """Layers in a list, every second with what was before it added."""

    def __init__(self, n: int, steps: int) -> None:
        super().__init__()
        torch.manual_seed(n)
        self.steps = nn.ModuleList(nn.Linear(n, n) for _ in range(steps))

    def forward(self, x: Any) -> Any:
        for i, step in enumerate(self.steps):
            x = step(x).tanh() + (x if i % 2 else 0)
        return x


class Shelf(nn.Module):
    """Layers by name."""

    def __init__(self, n: int) -> None:
        super().__init__()
        torch.manual_seed(n)
        self.parts = nn.ModuleDict({"up": nn.Linear(n, n), "down": nn.LayerNorm(n)})
        self.used: list[str] = []

    def forward(self, x: Any, which: str) -> Any:
        self.used.append(which)
        return self.parts[which](x) if which in self.parts else x


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, n: int) -> None:
        super().__init__()
        torch.manual_seed(n)
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x).relu())


# -- records


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    count: int = 1


@dataclasses.dataclass
class Basket:
    items: list[Any] = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(int(x.numel()) for x in self.items)


class Slim:
    __slots__ = ("k", "value")

    def __init__(self, value: Any, k: int) -> None:
        self.value, self.k = value, k


class Span(NamedTuple):
    start: int
    stop: int = 9

    @property
    def size(self) -> int:
        return self.stop - self.start

    def wider(self, k: int) -> Span:
        return self._replace(stop=self.stop + k)


# -- objects


class Problem(Exception):
    """An error with a number."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class Guarded:
    """A context that lets no Problem out."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def __enter__(self) -> Guarded:
        self.names["entered"] = True
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.names["left"] = kind and kind.__name__
        return isinstance(error, Problem)


class Meter:
    """A running mean, which can be set."""

    def __init__(self) -> None:
        self.total: Any = 0
        self.count = 0

    def update(self, x: Any) -> None:
        self.total, self.count = self.total + x, self.count + 1

    @property
    def mean(self) -> Any:
        return self.total / max(self.count, 1)

    @mean.setter
    def mean(self, value: Any) -> None:
        self.total, self.count = value, 1


class Registry:
    """Functions by name."""

    known: dict[str, Any] = {}

    @classmethod
    def add(cls, f: Any) -> Any:
        cls.known[f.__name__] = f
        return f

    @staticmethod
    def of(name: str) -> Any:
        return Registry.known[name]


@Registry.add
def double(x: Any) -> Any:
    return x * 2


@Registry.add
def half(x: Any) -> Any:
    return x / 2


class Lazy:
    def __init__(self, at: Any) -> None:
        self.at = at

    @functools.cached_property
    def square(self) -> Any:
        return self.at * self.at


class Vector:
    """Operators from both sides."""

    def __init__(self, at: Any) -> None:
        self.at = at

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.at + other.at)

    def __mul__(self, k: int) -> Vector:
        return Vector(self.at * k)

    def __rsub__(self, k: int) -> Vector:
        return Vector(k - self.at)

    def __neg__(self) -> Vector:
        return self * -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.at is other.at

    def __hash__(self) -> int:
        return id(self.at)

    def __bool__(self) -> bool:
        return bool(self.at.numel())

    @classmethod
    def zero(cls, x: Any) -> Vector:
        return cls(torch.zeros_like(x))

    @staticmethod
    def name(x: Any) -> str:
        return f"vector {tuple(x.shape)}"


class Countdown:
    """An iterator by itself."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Tagged(torch.Tensor):
    """A subclass of tensors."""


class Shape:
    """Kinds that enter themselves under their names."""

    kinds: dict[str, type[Shape]] = {}

    def __init__(self, x: Any) -> None:
        self.x = x

    def __init_subclass__(cls, name: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        Shape.kinds[name] = cls

    @classmethod
    def make(cls, name: str, x: Any) -> Shape:
        return cls.kinds[name](x)

    def area(self) -> Any:
        return self.x.sum()


class Square(Shape, name="square"):
    def area(self) -> Any:
        return super().area() * 2


class Line(Shape, name="line"):
    pass


# -- functions


@functools.singledispatch
def shape_of(x: Any) -> Any:
    return type(x).__name__


@shape_of.register
def _(x: list) -> Any:  # type: ignore[type-arg]
    return [shape_of(q) for q in x]


@shape_of.register
def _(x: torch.Tensor) -> Any:
    return tuple(x.shape)


def kept(names: dict[str, Any], x: Any) -> Any:
    """Counts what a tape keeps."""
    names["kept"] = names.get("kept", 0) + 1 if isinstance(names.get("kept", 0), int) else 1
    return x


# -- gradients


class Split(torch.autograd.Function):
    """Two results; the gradient of one may be absent."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        if g is None:
            return h, h
        more = 0 if h is None else h
        return g * y + more, g * x + more if ctx.needs_input_grad[1] else None


class Scaled(torch.autograd.Function):
    """A number beside the tensor; once differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: float) -> Any:
        ctx.k = k
        return x * k

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.k, None


def objects() -> dict[str, Any]:
    """What programs know of these: fresh where they keep something."""
    plain = (Tally, Ladder, Shelf, Tied, Frozen, Basket, Slim, Span, Problem, Guarded, Meter,
             Registry, Lazy, Vector, Countdown, Tagged, Shape, shape_of, kept, Split, Scaled)
    return {**{f.__name__: f for f in plain}, "once": functools.lru_cache(lambda n: n * n),
            "nn": nn, "F": nn.functional, "math": math, "copy": copy, "operator": operator,
            "functools": functools, "dataclasses": dataclasses, "counting": counting}


# -- networks, optimizers, schedulers

NETS = ["nn.Linear(4, 3)", "nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))",
        "Tally(4)", "Ladder(4, 2)", "Tied(4)", "nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))",
        "nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))",
        "nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))"]
OPTIMIZERS = ["SGD(box.net.parameters(), lr=0.1, momentum=0.9, nesterov=True)",
              "Adam(box.net.parameters(), lr=0.1, amsgrad=True)",
              "AdamW(box.net.parameters(), lr=0.1, maximize=True)",
              "SGD([{'params': [p], 'lr': 0.1 / (i + 1)} for i, p in "
              "enumerate(box.net.parameters())], lr=0.2)",
              "AdamW([{'params': list(box.net.parameters())[:1], 'weight_decay': 0.1}, "
              "{'params': list(box.net.parameters())[1:], 'betas': (0.8, 0.9)}], lr=0.1)",
              "RMSprop(box.net.parameters(), lr=0.1, centered=True, momentum=0.5)",
              "Adagrad(box.net.parameters(), lr=0.1, lr_decay=0.1)",
              "NAdam(box.net.parameters(), lr=0.1)", "RAdam(box.net.parameters(), lr=0.1)",
              "Adamax(box.net.parameters())", "Adadelta(box.net.parameters())",
              "Rprop(box.net.parameters(), lr=0.1)", "ASGD(box.net.parameters(), lr=0.1)"]
SCHEDULERS = ["StepLR(box.opt, 2, 0.5)", "ExponentialLR(box.opt, 0.9)",
              "CosineAnnealingLR(box.opt, 5)", "LambdaLR(box.opt, lambda k: 1 / (k + 1))",
              "LinearLR(box.opt, 0.5, total_iters=3)", "OneCycleLR(box.opt, 0.2, total_steps=99)",
              "CosineAnnealingWarmRestarts(box.opt, 3)", "MultiStepLR(box.opt, [1, 3])"]
