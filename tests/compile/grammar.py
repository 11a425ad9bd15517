"""Random programs: Python control flow around tensor operations, as source text.

A program is a module text with `inputs(v)` (arguments; `v` is 0 or 1 and changes sizes and flags)
and `main(...)`. The writer runs every statement once as it writes it, so that most expressions fit
the shapes and dtypes that they meet; branches not taken are tried on copies.
"""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import lehr
from lehr.tensor.tensor import Tensor
from tests.compile import assigned, handling, idioms, phrases, props

LARGEST = 96  # elements of a tensor that the programs keep
NEWER = 6_000_000   # wide programs from this number on know `idioms` and `handling`, too
NEWEST = 8_000_000  # and from this one on `assigned`

FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int64", "int32", "uint8", "bool")

FLOATING = [
    "torch.exp({x} * 0.25)", "{x}.sin()", "torch.cos({x})", "{x}.tanh()", "torch.sigmoid({x})",
    "torch.relu({x})", "{x}.abs().sqrt()", "torch.log1p({x}.abs())", "torch.erf({x})",
    "{x}.expm1()", "torch.nn.functional.gelu({x})", "torch.nn.functional.silu({x})",
    "{x}.softmax(-1)", "torch.log_softmax({x}, 0)", "{x}.mean()", "{x}.mean(0)",
    "{x}.mean(-1, keepdim=True)", "{x}.var()", "{x}.std(-1)", "{x}.logsumexp(0)",
    "torch.nn.functional.dropout({x}, {p})", "torch.rand_like({x})", "{x}.norm()",
    "{x}.matmul({x}.transpose(-1, -2))", "{x} @ {y}", "torch.nn.functional.linear({x}, {y})",
    "torch.nn.functional.layer_norm({x}, {x}.shape[-1:])", "{x}.lerp({y}, 0.3)",
    "torch.addcmul({x}, {y}, {x}, value=0.5)", "torch.einsum('ij,kj->ik', {x}, {y})",
    "torch.nn.functional.mse_loss({x}, {y})", "torch.outer({x}.flatten(), {y}.flatten())",
]
ANY = [
    "-{x}", "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / {k}", "{x} * {k}", "{x} + {k}",
    "{k} - {x}", "{x} ** 2", "{x}.abs()", "{x}.sign()", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "torch.where({x} > {k}, {x}, {y})", "{x} > {y}", "{x} == {y}",
    "{x} <= {k}", "{x} % 3", "{x} // 2", "{x}.clamp(-1, 1)", "{x}.clamp(min={k})",
    "{x}.sum()", "{x}.sum({d})", "{x}.sum({d}, keepdim=True)", "{x}.amax({d})", "{x}.argmax()",
    "{x}.max()", "{x}.min({d})[0]", "{x}.max({d}).indices", "{x}.prod({d})", "{x}.cumsum({d})",
    "{x}.any()", "({x} > 0).all({d})", "torch.cat([{x}, {y}], {d})", "torch.stack([{x}, {y}])",
    "torch.zeros_like({x})", "torch.ones({x}.shape[0])", "torch.full_like({x}, 2)",
    "torch.arange({x}.numel()).reshape({x}.shape)", "{x}.flip(0)", "{x}.roll(1, {d})",
    "{x}.sort({d}).values", "{x}.topk(1, {d})[0]", "{x}.tril()", "{x}.repeat(2, *[1] * ({x}.dim() "
                                                                 "- 1))",
    "{x}.gather({d}, torch.zeros_like({x}, dtype=torch.int64))", "{x}.index_select(0, "
                                                                 "torch.tensor([0, 0]))",
    "{x}[torch.tensor([0, -1])]", "{x}.masked_fill({x} > {k}, 1)", "{x}.contiguous()",
    "{x}.clone()",
    "{x}.detach()", "{x}.float()", "{x}.double()", "{x}.to(torch.{dtype})", "{x}.int()",
    "{x}.bool()", "{x}.type_as({y})", "{x} * {n}", "{x} + {n} / 2", "{x}[{x}.shape[0] - 1]",
    "{x}.tile(2)", "torch.zeros({x}.shape[-1], {n} + 1)", "{x}.new_ones({x}.shape)",
    "torch.nn.functional.pad({x}, (1, 0))", "{x}.diff()", "{x}.count_nonzero()", "{x} is {y}",
]
VIEWS = [
    "{x}.t()", "{x}.transpose(0, -1)", "{x}.permute(*range({x}.dim() - 1, -1, -1))",
    "{x}.reshape(-1)",
    "{x}.view(-1)", "{x}.view({x}.shape)", "{x}.unsqueeze({d})", "{x}.squeeze()", "{x}[0]",
    "{x}[-1]",
    "{x}[:, 1:]", "{x}[1:]", "{x}[::2]", "{x}[..., 0]", "{x}[..., None]", "{x}.narrow(0, 0, 1)",
    "{x}.flatten()", "{x}.expand(2, *{x}.shape)", "{x}.diagonal()", "{x}.movedim(0, -1)", "{x}[:]",
    "{x}.chunk(2)[0]", "{x}.unbind(0)[0]", "{x}.split(1, {d})[-1]", "{x}.select({d}, 0)", "{x}.mT",
    "{x}.view_as({x})", "{x}.unfold(0, 1, 1)", "{x}.as_strided((2,), (1,))", "{x}.swapaxes(0, -1)",
    "{x}.unflatten(0, (1, -1))", "{x}.broadcast_to({x}.shape)", "{x}.detach()", "{x}.T",
]
WRITES = [
    "{x}.add_({y})", "{x}.mul_({k})", "{x}.sub_({k})", "{x} += {y}", "{x} *= {k}", "{x}[0] = {k}",
    "{x}[..., :1] = {y}[..., :1]", "{x}[{x} > 0] = {k}", "{x}[1:] += {k}", "{x}.copy_({y})",
    "{x}.zero_()", "{x}.fill_({k})", "{x}.t().add_({k})", "{x}[0].mul_({k})", "{x}.clamp_(-1, 1)",
    "{x}.masked_fill_({x} > {k}, 0)", "{x}.neg_()", "{x}.relu_()", "{x}.abs_()", "{x}.view(-1)[0] "
                                                                                 "= {k}",
    "{x}[torch.tensor([0])] = {y}[:1]", "{x}.index_add_(0, torch.tensor([0]), {x}[:1].clone())",
    "{x}.scatter_(0, torch.zeros_like({x}, dtype=torch.int64), {y})", "{x}.copy_({x}.flip(0))",
    "{x}[:-1] = {x}[1:].clone()", "{x}.transpose(0, -1)[0] = {k}", "{x}.addcmul_({y}, {y})",
    "{x}.exp_()", "{x}.unsqueeze_(0)", "{x}.squeeze_()", "{x}.t_()", "torch.add({x}, {y}, out={x})",
    "{x}.detach().mul_({k})", "{x}.data.add_({k})", "{x}.index_fill_(0, torch.tensor([0]), {k})",
    "{x}.diagonal().fill_({k})", "{x}.expand_as({x}).sub_(1)", "{x}.bernoulli_(0.5)",
    "{x}.uniform_()",
    "{x}.requires_grad_()", "{x}.resize_({x}.shape)",
]
NUMBERS = ["{x}.shape[0]", "{x}.numel()", "{x}.dim()", "len({x})", "{x}.size(-1)", "{x}.stride(0)",
           "{n} + 1", "{n} * 2 % 5", "{x}.storage_offset()", "int({x}.is_contiguous())",
           "int({x}.dtype == torch.float32)", "len(xs)", "len(names)", "int({x}.requires_grad)",
           "sum(t.dim() for t in xs)", "max({n}, {x}.dim())"]
NEEDS_DATA = ["{x}.sum().item()", "int({x}.max())", "float({x}.mean())",
              "{x}.flatten().tolist()[0]",
              "bool({x}.any())", "{x}.nonzero().shape[0]", "len({x}.unique())",
              "{x}.detach().numpy().size"]
TESTS = ["{x}.shape[0] > 2", "flag", "not flag", "{n} > 2", "{x}.dim() == 2",
         "{x}.dtype.is_floating_point",
         "{x}.is_contiguous()", "len(xs) > 2", "'w' in names", "{x} is {y}", "{x}.requires_grad",
         "{x}.numel() % 2 == 0 and flag", "{x}.shape == {y}.shape", "isinstance({x}, torch.Tensor)",
         "box.count > 1", "torch.is_grad_enabled()", "not xs"]
DATA_TESTS = ["{x}.sum() > 0", "({x} > 0).any()", "torch.equal({x}, {y})", "{x}.flatten()[0] < {k}"]
ERRORS = ["torch.cat([{x}, {x}[None, None, None]])", "{x}.view(7, 13)", "{x} @ torch.ones(17)",
          "{x}[100]", "{x} + torch.ones(5, 7, 11)", "names['missing']", "xs[50]", "{x}.nothing",
          "1 // (len(xs) - len(xs))", "{x}.sum(9)", "torch.zeros(-1)", "int('x')"]


class Rejected(Exception):
    """Nothing that fits was found."""


class Box:
    """An object with state."""

    def __init__(self, count: int, value: Any) -> None:
        self.count, self.value = count, value

    def step(self, x: Any) -> Any:
        self.count += 1
        self.value = x
        return x * self.count


def make(shape: tuple[int, ...], dtype: str, k: int) -> Tensor:
    """A tensor of small exact numbers."""
    n = int(np.prod(shape, dtype=int))
    steps = (np.arange(n) * 7 + k * 3) % 11
    if dtype == "bool":
        return lehr.tensor(steps % 3 > 0).reshape(shape).clone()
    values = steps % 7 if dtype == "uint8" else steps - 5
    whole = dtype in INTS
    made = lehr.tensor((values if whole else values / 4).tolist(), dtype=getattr(lehr, dtype))
    return made.reshape(shape).clone()


def filled(r: random.Random, shape: tuple[int, ...], dtypes: Sequence[str], k: int) -> str:
    """The text of a call of `make`."""
    return f"make({shape}, {r.choice(dtypes)!r}, {k})"


def space() -> dict[str, Any]:
    """The globals of programs."""
    return {"torch": lehr, "make": make, "Box": Box, **phrases.objects(), **props.objects()}


class Writer:
    """Writes one program. `self.env` holds the locals of `main` as they are at the last line."""

    def __init__(self, seed: int, data: bool = True, wide: bool = False,
                 newer: bool = False) -> None:
        self.r = random.Random(seed)
        self.wide, self.newer = wide, newer
        self.phrases: Any = phrases.WIDE if wide else phrases.EVERY
        training = (phrases.TRAINING,) * 3
        if newer:
            self.phrases += idioms.IDIOMS + handling.HANDLING
            self.phrases += assigned.ASSIGNED * 2 if seed >= 64 * NEWEST else ()
            training += (handling.STEPS,) * 6
        self.data = data                    # whether Python may ask for data (graph breaks)
        self.space = space()
        self.env: dict[str, Any] = {}
        self.lines: list[str] = []
        self.fresh = 0
        self.inner: list[str] = []          # nested functions of one tensor
        self.nested = 0
        self.loop = 0
        self.grad = self.r.random() < 0.5
        self.trains = self.r.random() < 0.2     # whether the box has a network and an optimizer
        self.phrases += training * self.trains

    # -- inputs

    def inputs(self) -> list[str]:
        """The lines of `inputs(v)`, which defines a, b, c, xs, names, box, flag, n."""
        r = self.r
        lines = []
        for i, name in enumerate("abc"):
            lines.append(f"{name} = {self.tensor(i)}")
        roll = r.random()
        if roll < 0.12:
            lines.append("b = a")
        elif roll < 0.3:
            lines.append(f"b = {r.choice(['a.t()', 'a[1:]', 'a[0]', 'a.view(-1)', 'a[..., :1]'])}")
        elif roll < 0.4:
            lines.append("whole = make((9,), 'float32', 1)\na, b = whole[:6].view(2, 3), whole[3:]")
        if self.grad:
            for name in r.sample("abc", 2):
                lines.append(f"{name} = {name}.requires_grad_() if {name}.dtype.is_floating_point "
                             f"and {name}.is_leaf else {name}")
        xs = [r.choice(["a", "c", filled(r, (2, 3), FLOATS, 4)]) for _ in range(r.randrange(1, 4))]
        lines.append(f"xs = [{', '.join(xs)}]")
        lines.append(f"names = {{'w': "
                     f"{r.choice(['c', 'a * 1', filled(r, (3,), FLOATS, 2)])}}}")
        lines.append(f"box = Box({r.randrange(3)}, "
                     f"{r.choice(['a', 'None', filled(r, (2,), INTS, 5)])})")
        if self.trains:
            net = r.choice(props.NETS if self.newer else phrases.NETS)
            for name in () if self.newer else ("Sequential", "Linear", "ReLU", "LayerNorm",
                                               "BatchNorm1d", "Dropout", "GELU"):
                net = net.replace(name + "(", f"torch.nn.{name}(")
            optimizers = props.OPTIMIZERS if self.newer else phrases.OPTIMIZERS
            lines += ["torch.manual_seed(3)", f"box.net = {net}",
                      f"box.opt = torch.optim.{r.choice(optimizers)}",
                      "box.data = make((3 + v, 4), 'float32', 3)"]
            if self.newer:
                lines.append(f"box.sched = torch.optim.lr_scheduler.{r.choice(props.SCHEDULERS)}")
        lines.append(f"flag, n = v == {r.randrange(2)}, {r.randrange(1, 4)} + v")
        lines.append("return a, b, c, xs, names, box, flag, n")
        return "\n".join(lines).split("\n")

    def tensor(self, k: int) -> str:
        """Text of an input tensor."""
        r = self.r
        dtype = r.choice(FLOATS) if r.random() < 0.75 else r.choice(INTS)
        d = r.choice(["2", "3", "2 + v", "3 + v", "1", "1 + v"])
        e = r.choice(["3", "4", "2"])
        return r.choice([
            "make(({d}, {e}), {t!r}, {k})", "make(({d}, {e}), {t!r}, {k})", "make(({e},), {t!r}, "
                                                                            "{k})",
            "make(({e}, {d}), {t!r}, {k}).t()", "make(({d}, 2 * {e}), {t!r}, {k})[:, ::2]",
            "make((2, {d}, {e}), {t!r}, {k})", "make((2, {d}, {e}), {t!r}, {k}).permute(2, 0, 1)",
            "make((), {t!r}, {k})", "make(({d}, 1), {t!r}, {k}).expand({d}, {e})",
            "make((12,), {t!r}, {k})[2:8].view(2, 3)", "make((0, {e}), {t!r}, {k})",
            "make(({d}, {d}), {t!r}, {k})", "make((1, {e}), {t!r}, {k})",
            "make(({d}, {e}), {t!r}, {k}) * 1",
        ]).format(d=d, e=e, t=dtype, k=k)

    # -- text

    def program(self, size: int, phrase: str = "") -> str:
        """Of that many statements, or of one phrase (Rejected where it does not fit)."""
        inputs = self.inputs()
        text = "def inputs(v):\n" + textwrap.indent("\n".join(inputs), "    ") + "\n\n"
        try:
            exec(text, self.space)
            self.space["inputs"](1)
            values = self.space["inputs"](0)
        except Exception as error:
            raise Rejected(text) from error
        names = "a, b, c, xs, names, box, flag, n".split(", ")
        self.env = dict(zip(names, values, strict=True))
        for _ in range(size):
            self.statement()
        if phrase:
            self.phrases = ((phrase,),)
            self.phrase()
        self.line(f"return {self.result()}")
        return text + f"def main({', '.join(names)}):\n" + textwrap.indent(
            "\n".join(self.lines), "    ") + "\n"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.nested + text)

    def run(self, text: str) -> None:
        """Executes a simple statement on the writer's own values; Rejected where it raises."""
        try:
            with np.errstate(all="ignore"):
                exec(text, self.space, self.env)
        except Exception as error:
            raise Rejected(text) from error

    def tensors(self) -> list[str]:
        return [k for k, v in self.env.items() if isinstance(v, Tensor) and v.numel() <= LARGEST]

    def fill(self, template: str) -> str:
        """The template with operands."""
        r, names = self.r, self.tensors()
        x = r.choice(names[-6:] if r.random() < 0.6 else names)
        kind = self.env[x]
        near = [n for n in names if self.env[n].shape == kind.shape]
        y = r.choice(near) if r.random() < 0.7 else r.choice(names)
        ints = [k for k, v in self.env.items() if type(v) is int]
        return template.format(
            x=x, y=y, k=r.choice(["2", "0.5", "-1", "1", "1.5", "0"]), d=r.choice(["0", "-1"]),
            p=r.choice(["0.5", "0.0"]), dtype=r.choice(FLOATS + INTS), n=r.choice(ints))

    def expr(self, templates: list[str] | None = None) -> tuple[str, Any]:
        """(text, value) of an expression that fits."""
        r = self.r
        for _ in range(12):
            kinds = templates or r.choice([FLOATING, ANY, ANY, VIEWS])
            text = self.fill(r.choice(kinds))
            if templates is None and r.random() < 0.12:
                wrapped = [f for f in self.inner if f in self.env]
                text = f"{r.choice(wrapped)}({text})" if wrapped else text
            try:
                with np.errstate(all="ignore"):
                    value = eval(text, self.space, self.env)
            except Exception:
                continue
            if isinstance(value, Tensor) and value.numel() > LARGEST:
                continue
            return text, value
        raise Rejected("no expression")

    def name(self, prefix: str = "t") -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    # -- statements

    def statement(self) -> None:
        """One statement, or nothing."""
        kinds = [(self.assign, 30), (self.write, 14), (self.container, 8), (self.number, 6)]
        if self.nested < 3:
            kinds += [(self.branch, 7), (self.loop_over, 6), (self.attempt, 4), (self.context, 3),
                      (self.function, 3)]
        kinds.append((self.phrase, 60 if self.newer else 36 if self.wide else 12))
        kinds += [(self.early, 1), (self.backward, 2 if self.grad else 0), (self.object, 3),
                  (self.needs_data, 2 if self.data else 0), (self.say, 1 if self.data else 0)]
        kind = self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        mark = len(self.lines), self.nested, self.loop
        try:
            kind()
        except Rejected:
            del self.lines[mark[0]:]
            self.nested, self.loop = mark[1:]

    def simple(self, text: str) -> None:
        self.run(text)
        self.line(text)

    def assign(self) -> None:
        r = self.r
        text, value = self.expr()
        old = [n for n in self.tensors() if n.startswith("t")]
        if self.loop and isinstance(value, Tensor):
            # A name that keeps its shape can go round.
            same = [n for n in old if self.env[n].shape == value.shape]
            name = r.choice(same) if same and r.random() < 0.7 else self.name()
        else:
            name = r.choice(old) if old and r.random() < 0.2 else self.name()
        if r.random() < 0.1:
            second, _ = self.expr()
            self.simple(f"{name}, {self.name()} = {text}, {second}")
        elif r.random() < 0.06:
            self.simple(f"{name} = (lambda q: "
                        f"{self.fill(r.choice(ANY)).replace('{x}', 'q')})({text})")
        else:
            self.simple(f"{name} = {text}")

    def write(self) -> None:
        self.simple(self.fill(self.r.choice(WRITES)))

    def number(self) -> None:
        text, value = self.expr(NUMBERS)
        if type(value) is not int or abs(value) > 50:
            raise Rejected(text)
        self.simple(f"{self.r.choice(['n', 'm'])} = {text}")

    def phrase(self) -> None:
        """Several lines, tried as a whole; names of functions in it are global for the writer."""
        kind = self.r.choice(self.phrases)
        t = self.name()
        template = self.r.choice(kind)
        text = self.fill(template.replace("{t}", t).replace("{u}", self.name("u")))
        shared = {**self.space, **self.env}
        try:
            with np.errstate(all="ignore"):
                exec(text, shared)
        except Exception as error:
            raise Rejected(text) from error
        self.env = {k: v for k, v in shared.items() if k not in self.space and k[:2] != "__"}
        for line in text.split("\n"):
            self.line(line)

    def needs_data(self) -> None:
        text, _ = self.expr(NEEDS_DATA)
        self.simple(f"{self.name('s')} = {text}")

    def say(self) -> None:
        text, _ = self.expr(NUMBERS)
        self.line(f"print('at', {text})")

    def container(self) -> None:
        text, _ = self.expr()
        x = self.r.choice(self.tensors())
        self.simple(self.r.choice([
            f"xs.append({text})", f"names[{self.r.choice(['w', 'u', 'z'])!r}] = {text}",
            f"{self.name()} = xs[{self.r.choice([0, -1])}]", f"{self.name()} = [q * 2 for q in xs]",
            f"{self.name()} = names['w']", f"xs[0] = {text}", f"xs = [*xs, {x}]",
            f"{self.name()} = sum(q.sum() for q in xs)", "xs.pop()", f"xs.insert(0, {x})",
            f"{self.name()} = torch.stack([q.float().mean() for q in xs])", "xs.reverse()",
            f"{self.name('p')} = {{k: q + 1 for k, q in names.items()}}", f"names.update(v={x})",
            f"{self.name('p')} = [(i, q.shape) for i, q in enumerate(xs) if q.dim()]",
            f"{self.name()} = names.get('u', {x})", f"names.setdefault('z', []).append({x})",
            f"{self.name('p')} = list(zip(xs, range(9)))", f"{self.name('p')} = ({x}, *xs[:2])",
            f"xs += [{x}]", "xs, names = list(xs), dict(names)",
            f"{self.name()} = max(xs, key=len)",
        ]))

    def object(self) -> None:
        x = self.r.choice(self.tensors())
        self.simple(self.r.choice([
            f"box.value = {x}", "box.count += 1", f"{self.name()} = box.step({x})",
            f"{self.name()} = box.value", f"box.extra = [{x}]", "setattr(box, 'count', n)",
            f"{self.name()} = getattr(box, 'missing', {x})", f"{self.name()} = Box(n, "
                                                             f"{x}).step({x})",
        ]))

    def block(self, size: int, copied: bool = False) -> None:
        """Statements one level further in; `copied`: they are tried on copies."""
        held = self.env
        if copied:
            self.env = {k: v.detach().clone() if isinstance(v, Tensor) else
                        list(v) if type(v) is list else dict(v) if type(v) is dict else v
                        for k, v in held.items()}
        self.nested += 1
        before = len(self.lines)
        for _ in range(size):
            self.statement()
        if len(self.lines) == before:
            self.line("pass")
        self.nested -= 1
        if copied:
            self.env = held

    def branch(self) -> None:
        r = self.r
        tests = TESTS + (DATA_TESTS if self.data and r.random() < 0.15 else [])
        text, value = self.expr(tests)
        self.line(f"if {text}:")
        self.block(r.randrange(1, 4), copied=not value)
        if r.random() < 0.5:
            self.line("else:")
            self.block(r.randrange(1, 3), copied=bool(value))

    def loop_over(self) -> None:
        r = self.r
        i = self.name("i")
        kind = r.randrange(5)
        if kind == 0:
            counter = self.name("w")
            self.simple(f"{counter} = {r.randrange(1, 4)}")
            self.line(f"while {counter} > 0:")
            self.nested += 1
            self.simple(f"{counter} -= 1")
            self.nested -= 1
        elif kind == 1 and self.env["xs"]:
            self.env[i] = self.env["xs"][0]
            self.line(f"for {i} in list(xs):")
        elif kind == 2 and self.env["names"]:
            key, self.env[i] = next(iter(self.env["names"].items()))
            self.line(f"for key, {i} in list(names.items()):")
        elif kind == 3 and self.env["xs"]:
            self.env[i], self.env[i + "x"] = 0, self.env["xs"][0]
            self.line(f"for {i}, {i}x in enumerate(xs[:3]):")
        else:
            self.env[i] = 0
            self.line(f"for {i} in range({r.choice(['2', '3', 'n', 'a.dim()'])}):")
        self.loop += 1
        self.block(r.randrange(1, 4))
        if r.random() < 0.2:
            self.nested += 1
            self.line(f"if {r.choice(['flag', 'n > 2', 'len(xs) > 4'])}:")
            self.line(f"    {r.choice(['break', 'continue'])}")
            self.nested -= 1
        self.loop -= 1
        if r.random() < 0.15:
            self.line("else:")
            self.block(1)

    def attempt(self) -> None:
        r = self.r
        self.line("try:")
        self.block(r.randrange(1, 3))
        self.nested += 1
        self.line(self.fill(r.choice(ERRORS)) if r.random() < 0.8 else "pass")
        if r.random() < 0.3:
            self.line("box.count += 10")
        self.nested -= 1
        kinds = ["RuntimeError", "Exception", "(IndexError, KeyError)", "ValueError", "Exception "
                                                                                      "as e"]
        kind = r.choice(kinds)
        self.line(f"except {kind}:")
        self.block(1)
        if kind.endswith("as e"):
            self.nested += 1
            seen = r.choice(["type(e).__name__", "len(e.args)", "isinstance(e, ValueError)"])
            self.line(f"names['error'] = {seen}")
            self.nested -= 1
        if r.random() < 0.25:
            self.line(r.choice(["finally:", "else:"]))
            self.block(1)

    def context(self) -> None:
        modes = ["torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(flag)",
                 "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.inference_mode(False)"]
        self.line(f"with {self.r.choice(modes)}:")
        held = lehr.is_grad_enabled()
        lehr.set_grad_enabled("no_grad" not in self.lines[-1])
        try:
            self.block(self.r.randrange(1, 4))
        finally:
            lehr.set_grad_enabled(held)

    def function(self) -> None:
        r = self.r
        f = self.name("f")
        body = []
        free = r.choice(self.tensors())
        templates = ["return q * 2", f"return q + {free}", "return [q, q][0]", "return q.sum() + n",
                     "return q if flag else q * 1", "return torch.relu(q)",
                     "q = q * 1\nq.add_(1)\nreturn q",
                     "return (lambda z: z - 1)(q)",
                     "n2 = n\ndef deep(z):\n    return z * n2\nreturn deep(q)",
                     "for _ in range(2):\n    q = q + 1\nreturn q", "return sum((q, q), q)",
                     "if q.dim() > 1:\n    return q[0]\nreturn q", "xs.append(q)\nreturn q",
                     "nonlocal n\nn += 1\nreturn q * n", "q.mul_(2)\nreturn q", "return q.detach()"]
        body = r.choice(templates).split("\n")
        if "nonlocal n" in body[0]:
            # `exec` has no enclosing function, so the writer tries a version without.
            trial = [f"def {f}(q{r.choice(['', ', k=1'])}):", "    return q * (n + 1)"]
        else:
            trial = [f"def {f}(q{r.choice(['', ', k=1'])}):", *("    " + b for b in body)]
        shared = {**self.space, **self.env}
        exec("\n".join(trial), shared)
        self.env[f] = shared[f]
        for text in [trial[0], *("    " + b for b in body)]:
            self.line(text)
        self.inner.append(f)

    def early(self) -> None:
        test = self.r.choice(["n > 3", "not flag and n > 1", "len(xs) > 5", "box.count > 4"])
        self.line(f"if {test}:")
        self.line(f"    return {self.result()}")

    def backward(self) -> None:
        r = self.r
        live = [n for n in self.tensors() if self.env[n].requires_grad]
        if not live or self.nested and self.loop:
            raise Rejected("no gradient")
        x = r.choice(live)
        self.simple(r.choice([
            f"{x}.sum().backward(retain_graph=True)", f"({x} * {x}).sum().backward()",
            f"{self.name()} = torch.autograd.grad({x}.float().sum(), {x})[0]",
            f"{self.name()} = torch.autograd.grad(({x} ** 2).sum(), {r.choice(live)}, "
            f"allow_unused=True)[0]",
            f"{x}.grad = None", f"{self.name()} = {x}.detach().requires_grad_()",
            f"{x}.retain_grad()",
        ]))

    def result(self) -> str:
        r = self.r
        names = self.tensors()
        picked = r.sample(names, min(len(names), r.randrange(1, 5)))
        newest = [n for n in names if n.startswith("t")][-2:]
        names = list(dict.fromkeys(picked + newest))
        if self.wide:    # whatever else there is, too
            names += [k for k, v in self.env.items() if k[0] == "t" and k[1:].isdigit()
                      and isinstance(v, (tuple, list, dict, str, int, float, set, frozenset))]
        kind = r.randrange(6)
        if kind == 0:
            return names[-1]
        if kind == 1:
            return "{" + ", ".join(f"'{n}': {n}" for n in names) + "}"
        if kind == 2:
            return f"[{', '.join(names)}, xs]"
        if kind == 3:
            return f"({', '.join(names)}, n, names, box)"
        return f"({', '.join(names)},)"


def alone(phrase: str, seed: int) -> str:
    """The text of a program of one phrase; Rejected where it does not fit those arguments."""
    lehr.manual_seed(seed)
    lehr.set_grad_enabled(True)
    writer = Writer(seed, True, True, True)
    writer.trains = "box." in phrase
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return writer.program(0, phrase)


def write(seed: int, data: bool = True, wide: bool = False) -> str:
    """The text of program number `seed`; `wide`: of the wider grammar."""
    size = random.Random(seed ^ 0x5EED).randrange(3, 18)
    for attempt in range(50):
        lehr.manual_seed(seed)
        lehr.set_grad_enabled(True)
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Writer(64 * seed + attempt, data, wide, wide and seed >= NEWER).program(size)
        except Rejected:
            continue  # its arguments cannot be made
    raise AssertionError(f"no program for seed {seed}")
