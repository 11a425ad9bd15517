"""Phrases of Python for random programs: several lines, with tensors in the places {x} and {y}.

{t}, {u} fresh names; {n} a number; {d} a dimension. A phrase that raises for its operands is left
out. The objects that phrases use are in `OBJECTS`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
# More, of the wider grammar (`--wide`).
CLASSES = [
    "{t} = Cell({x}) + {y}", "{t} = Cell({x})\n{t} += {y}\n{t} = {t}.value",
    "{t} = Cell({x})(n).value", "{t} = [q for q in Cell({x})][:2]", "{t} = Cell({x})[0].value",
    "{t} = len(Cell({x})), bool(Cell({x})), {x} in Cell({x})", "{t} = Cell({x}).twice.value",
    "{u} = Cell({x})\n{u}.other = {y}\n{t} = {u}.other, {u}.log\ndel {u}",
    "{u} = Cell({x})\n{t} = {u}.missing\ndel {u}", "{t} = Child({x}).step({y})",
    "{t} = Child({x}).twice.value, Child.made", "{t} = super(Child, Child({x})).step({y})",
    "{t} = Point({x}, n)\n{t} = {t}._replace(at={t}.at + 1)", "{t} = Point({x}, n).at",
    "{t} = [Kind(i % 2 + 1).name for i in range(n)]", "{t} = Kind.SUM.run({x})",
    "{t} = type(Child({x})).__name__, isinstance(Child({x}), Cell)",
    "{t} = (Cell({x}) == Cell({x})), Cell({x}) is None",
    "if callable(Cell({x})):\n    {t} = getattr(Cell({x}), 'value', None)",
]
CALLS_ = [
    "{t} = partial(torch.add, {x})({y})", "{t} = reduce(lambda p, q: p + q, [{x}, {y}, {x}])",
    "{t} = list(chain([{x}], xs))", "{t} = [*islice(xs, 1, None)]",
    "{t} = [p is q for p, q in product([{x}], xs)]", "{t} = list(accumulate([{x}, {y}]))",
    "{t} = [*zip_longest([{x}], xs)]", "{t} = counted({x}, k=n)",
    "{t} = counted(*[{x}], **{{'k': 2}})",
    "def {t}f(q, /, r, *rest, k=2, **more):\n    return q * k + r.sum(), len(rest), [*more]\n"
    "{t} = {t}f({x}, {y}, 1, k=n, z=3)",
    "def {t}f(q):\n    if q.dim() > 0:\n        return {t}f(q[0]) * 2\n    return q + 1\n"
    "{t} = {t}f({x})",
    "def {t}f(k):\n    return {x} if k <= 0 else {t}f(k - 1) + {x}\n{t} = {t}f(n)",
    "{t} = max([{x}, {y}], key=lambda q: q.dim()), min(q.numel() for q in xs)",
    "{t} = divmod(n, 2), pow(n, 2), round(n / 3, 2), abs(-n), hash(n), n.bit_length()",
    "{t} = sorted({{*range(n)}} | {{7}}), [*{{}}], frozenset([n]) & {{n}}",
    "{t} = ''.join(str(i) for i in range(n)).rjust(5, '.'), '%d-%s' % (n, 'x'), f'{{n:03d}}'",
    "{t} = next((q for q in xs if q.dim() == 9), {x})",
    "{t} = isinstance(n, (int, float)), type(n)",
    "{t} = torch.no_grad()(lambda q: q * 2)({x})", "{t} = all(map(torch.is_tensor, xs))",
    "for {u}, q in zip(range(2), xs):\n    {t} = q * {u}", "{t} = dict(zip('ab', [{x}, {y}]))",
    "xs[len(xs):] = [{x}]\nxs[0], xs[-1] = xs[-1], xs[0]", "{t} = [[q, q] for q in xs][-1][1]",
    "{t} = deque(xs, maxlen=2)\n{t}.appendleft({x})\n{t} = list({t})",
    "{t} = Counter('abca').most_common(1), OrderedDict(a={x})['a']",
    "{t} = defaultdict(list)\n{t}['k'].append({x})\n{t} = dict({t})",
    "while True:\n    n -= 1\n    if n < 2:\n        break\n{t} = {x} * n",
    "try:\n    for {u} in range(3):\n        if {u}:\n            raise StopIteration\n"
    "        xs.append({x})\nexcept StopIteration:\n    {t} = {x} - 1",
    "try:\n    {x}[{x}.dim() * [0] + [0]]\nexcept (IndexError, TypeError) as error:\n"
    "    {t} = str(error)",
    "with suppress(KeyError), nullcontext({x}) as {u}:\n    {t} = {u} * 2\n    names['no']",
    "with ExitStack() as {u}:\n    {u}.enter_context(torch.no_grad())\n    {t} = {x} * 2\ndel {u}",
    "global TOTAL\nTOTAL = TOTAL + 1\n{t} = {x} * TOTAL", "SEEN.append(n)\n{t} = len(SEEN)",
]
TENSORS = [
    "{t} = torch.nn.functional.cross_entropy({x}.float(), torch.zeros({x}.shape[0], "
    "dtype=torch.int64))",
    "{t} = torch.nn.functional.max_pool2d({x}.float()[None, None], 2, 1)",
    "{t} = torch.nn.functional.avg_pool1d({x}.float()[None], 2)",
    "{t} = torch.nn.functional.conv1d({x}.float()[None], torch.ones(2, {x}.shape[0], 2))",
    "{t} = torch.nn.functional.conv2d({x}.float()[None, None], torch.ones(1, 1, 2, 2), padding=1)",
    "{t} = torch.nn.functional.embedding(torch.tensor([0, 1, 0]), {x})",
    "{t} = torch.nn.functional.one_hot(torch.arange(3), 4)",
    "{t} = torch.bucketize({x}, torch.arange(3))",
    "{t} = {x}.scatter_add({d}, torch.zeros_like({x}, dtype=torch.int64), {y})",
    "{t} = {x}.index_put((torch.tensor([0, 0]),), {y}[:1], accumulate=True)",
    "{t} = torch.cummax({x}, {d})", "{t} = torch.logcumsumexp({x}, {d})", "{t} = {x}.median({d})",
    "{t} = {x}.argsort({d})", "{t} = {x}.kthvalue(1, {d})", "{t} = torch.std_mean({x}, {d})",
    "{t} = torch.aminmax({x})", "{t} = torch.frexp({x})", "{t} = {x}.nan_to_num(), {x}.isfinite()",
    "{t} = {x}.unfold(-1, 2, 1)", "{t} = torch.meshgrid({x}.flatten()[:2], {y}.flatten()[:2], "
    "indexing='ij')", "{t} = torch.block_diag({x}, {y})", "{t} = torch.kron({x}, {y})",
    "{t} = torch.tensordot({x}, {y}, 1)", "{t} = torch.cdist({x}, {y})", "{t} = torch.triu({x}, 1)",
    "{t} = torch.nn.functional.scaled_dot_product_attention({x}[None], {x}[None], {y}[None])",
    "{t} = torch.nn.functional.interpolate({x}[None, None], scale_factor=2)",
    "{t} = torch.nn.functional.group_norm({x}[None], 1)", "{t} = torch.rot90({x})",
    "{t} = torch.nn.functional.smooth_l1_loss({x}, {y}), torch.nn.functional.huber_loss({x}, {y})",
    "{t} = torch.nn.functional.normalize({x}, dim={d})", "{t} = torch.nn.functional.glu({x}, {d})",
    "{t} = torch.nn.functional.pad({x}[None], (1, 1), mode='reflect')",
    "{t} = {x}.bitwise_xor({y})",
    "{t} = torch.complex({x}, {y}).abs()", "{t} = torch.view_as_real(torch.complex({x}, {y}))",
    "{t} = torch.fmod({x}, 3), torch.remainder({x}, -3)", "{t} = {x} << 1, {x} >> 1, ~{x}",
    "{t} = torch.float_power({x}, 2)", "{t} = {x}.to(torch.float16).float() - {x}",
    "{t} = {x}[[0, -1]]",
    "{t} = {x}[..., torch.tensor([0])], {x}[None, :, None]", "{t} = {x}[torch.arange(2) > 0]",
    "{t} = {x}[{x}.shape[0] // 2:, ::2]",
    "{t} = torch.hstack([{x}, {y}]), torch.vstack([{x}, {y}])",
    "{t} = torch.linspace(0, 1, n), torch.eye(n), torch.full((n,), 1.5)",
    "{t} = {x}.repeat_interleave(2, {d})",
    "{t} = torch.vmap(lambda q: q.sum())({x})", "{t} = torch._foreach_add([{x}, {y}], 1)",
    "{x}.index_copy_(0, torch.tensor([0]), {y}[:1].clone())",
    "{x}[:, 0], {x}[0] = 1, {x}[-1].clone()",
    "{x}.swapaxes(0, -1)[..., 0].mul_(2)", "{x}.addmm_({y}, {y}.t())", "{x}.lerp_({y}, 0.5)",
    "{x}[{x} < 0] *= -1", "{x}.masked_scatter_({x} > 0, {y}.clone())", "{x}.sort({d})[0].zero_()",
    "{x}.cumsum_({d})", "{x}.clamp_min_({y})", "torch.mul({x}, 2, out={y})",
    "{x}.view(-1)[1:].sub_({x}.view(-1)[:-1])",
    "{x}.T.copy_({y}.T.clone())", "{x}.unbind(0)[0].fill_(n)", "{x}.split(1)[-1].add_({y}[:1])",
    "{t} = {x}.storage_offset(), {x}.is_contiguous(), {x}.element_size(), {x}._version",
    "{t} = {x}.data_ptr() == {y}.data_ptr()", "{t} = [*{x}.shape, *{x}.stride()]",
    "{t} = torch.result_type({x}, {y}), torch.promote_types({x}.dtype, torch.int32)",
    "{t} = torch.broadcast_shapes({x}.shape, {y}.shape), torch.broadcast_tensors({x}, {y})",
    "{t} = torch.get_default_dtype(), torch.finfo(torch.float16).max, torch.is_floating_point({x})",
]
TAPES = [
    "with torch.enable_grad():\n    {u} = {x}.detach().requires_grad_()\n"
    "    {t} = torch.autograd.grad(({u} ** 2).sum(), {u})[0]",
    "{t} = torch.func.vjp(lambda q: q.sin(), {x}.detach())[0]",
    "{t} = torch.func.jvp(lambda q: q * q, ({x}.detach(),), ({x}.detach(),))",
    "{t} = torch.autograd.functional.jacobian(lambda q: q.flatten()[:2] ** 2, {x}.detach())",
    "{t} = ({x} * {y}).requires_grad, {x}.grad_fn is None, {x}.is_leaf, ({x} + 1).is_leaf",
    "{t} = torch.autograd.grad(({x} * 2).sum(), {x}, retain_graph=True)[0] + {x}.grad",
    "{x}.grad.zero_()", "{t} = {x}.grad", "{t} = {x}.clone()\n{t}.retain_grad()\n"
    "({t} ** 2).sum().backward()\n{t} = {t}.grad",
    "{t} = torch.nn.utils.clip_grad_norm_([{x}], 1.0)", "{t} = ({x} * 2).detach_()",
    "{t} = {x} * 2\n{t}[0] = 1\n{t}.sum().backward(retain_graph=True)",
    "with torch.no_grad():\n    {x} -= 0.1 * {x}.grad",
    "{t} = torch.where({x} > 0, {x}, {x} * 0.1).sum()\n"
    "{t}.backward(retain_graph=True)", "{t} = {x}.expand(2, *{x}.shape).sum(0)",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
    "    {t} = torch.nn.functional.linear({x}, {y})",
    "with torch.inference_mode():\n    {t} = {x} * 2", "{t} = torch.is_inference_mode_enabled()",
    "with torch.set_grad_enabled(not flag):\n    {t} = {x} * 3",
]
WIDE = (*EVERY, CLASSES, CALLS_, TENSORS, TENSORS, TAPES)
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


class Cell:
    """Operators, items, iteration, a property, attributes made and looked up by methods."""

    made = 0

    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: Any) -> Cell:
        return type(self)(self.value + other)

    def __iadd__(self, other: Any) -> Cell:
        self.value = self.value + other
        return self

    def __call__(self, k: int) -> Cell:
        return type(self)(self.value * k)

    def __getitem__(self, i: Any) -> Cell:
        return type(self)(self.value[i])

    def __iter__(self) -> Iterator[Any]:
        return iter([self.value, self.value + 1])

    def __len__(self) -> int:
        return int(self.value.dim())

    def __contains__(self, x: Any) -> bool:
        return x is self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name == "missing":
            return self.value - 1
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, "log", [*self.__dict__.get("log", []), name])
        object.__setattr__(self, name, value)

    @property
    def twice(self) -> Cell:
        return type(self)(self.value * 2)

    def step(self, x: Any) -> Any:
        return self.value + x


class Child(Cell):
    """A class over another one; counts its objects."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        type(self).made = type(self).made + 1

    def step(self, x: Any) -> Any:
        return super().step(x) * 2

    @property
    def twice(self) -> Cell:
        return Cell(super().twice.value + 1)


class Point(NamedTuple):
    at: Any
    number: int = 0


class Kind(enum.Enum):
    """Names for what to do."""

    SUM = 1
    MEAN = 2

    def run(self, x: Any) -> Any:
        return x.sum() if self is Kind.SUM else x.float().mean()


def counting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that keeps a count in the function that it makes."""
    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        made.calls += 1  # type: ignore[attr-defined]
        return function(*args, **kwargs) * made.calls  # type: ignore[attr-defined]
    made.calls = 0  # type: ignore[attr-defined]
    return made


# What the wider grammar takes from the library.
LIBRARY = {f.__name__: f for f in (
    functools.partial, functools.reduce, itertools.chain, itertools.islice, itertools.product,
    itertools.accumulate, itertools.zip_longest, contextlib.suppress, contextlib.nullcontext,
    contextlib.ExitStack, collections.deque, collections.Counter, collections.OrderedDict,
    collections.defaultdict)}


def objects() -> dict[str, Any]:
    """What programs know besides `torch`: fresh, since they write to it."""
    pair = dataclasses.dataclass(type("Pair", (Pair,), {"made": 0, "__annotations__": {}}))
    return {"Pair": pair, "replace": dataclasses.replace, "held": held, "Twice": Twice,
            "Clip": Clip, "Cell": Cell, "Child": type("Child", (Child,), {}), "Point": Point,
            "Kind": Kind, "counted": counting(lambda x, k=1: x * k), "TOTAL": 0, "SEEN": [],
            **LIBRARY}
