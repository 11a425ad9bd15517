"""Views, in-place writes and gradients: random programs run here and in torch, step by step.

A program is a list of steps drawn from a seed; both libraries run it and have to agree on values,
flags, versions, errors, and on the gradients at the end.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

VIEWS = ("select", "slice", "t", "view", "unsqueeze", "narrow", "diagonal", "permute", "expand",
         "alias", "detach", "flatten", "chunk", "as_strided", "squeeze", "movedim")
WRITES = ("mul_number", "mul_tensor", "add_tensor", "copy", "fill", "zero", "sigmoid", "exp", "set",
          "relu", "square", "clamp", "masked_fill", "set_slice", "iadd", "transpose_")
MAKES = ("mul", "add", "sigmoid", "exp", "sum", "clone", "relu", "matmul", "mean")


class Program:
    """One run of a program in one library."""

    def __init__(self, lib: Any, seed: int, steps: int) -> None:
        self.lib, self.rng, self.steps = lib, random.Random(seed), steps
        self.log: list[Any] = []
        self.leaves: list[Any] = []
        self.pool: list[Any] = []
        data = np.random.default_rng(seed)
        for i in range(3):
            shape = self.rng.choice([(2, 3), (3, 3), (4,), (2, 2, 2), (1, 3)])
            t = lib.tensor(data.uniform(0.5, 1.5, shape))
            if i < 2:
                t.requires_grad_()
            self.leaves.append(t)
            self.pool.append(t)

    def pick(self) -> Any:
        # The later ones more often: deep chains.
        n = len(self.pool)
        return self.pool[max(self.rng.randrange(n), self.rng.randrange(n))]

    def partner(self, x: Any) -> Any:
        """A tensor that broadcasts to the shape of `x`."""
        fits = [t for t in self.pool if t.ndim <= x.ndim and all(
            a in (1, b) for a, b in zip(reversed(t.shape), reversed(x.shape), strict=False))]
        return self.rng.choice(fits) if fits else x.detach().clone()

    def view(self, kind: str, x: Any) -> Any:
        r = self.rng
        if x.ndim == 0:
            return x.view(1) if kind != "detach" else x.detach()
        d = r.randrange(x.ndim)
        n = x.shape[d]
        a, b = r.randrange(max(n, 1)), r.randrange(1, n + 2)
        if kind == "select":
            return x.select(d, a)
        if kind == "slice":
            return x[a:b] if x.ndim == 1 else x[..., : max(1, x.shape[-1] - 1)]
        if kind == "t":
            return x.transpose(0, -1)
        if kind == "view":
            return x.view(-1)
        if kind == "unsqueeze":
            return x.unsqueeze(d)
        if kind == "narrow":
            return x.narrow(d, a, n - a)
        if kind == "diagonal":
            return x.diagonal() if x.ndim > 1 else x[:]
        if kind == "permute":
            return x.permute(*reversed(range(x.ndim)))
        if kind == "expand":
            return x.unsqueeze(0).expand(2, *x.shape)
        if kind == "flatten":
            return x.flatten()
        if kind == "chunk":
            return x.narrow(d, 0, (n + 1) // 2)
        if kind == "as_strided":
            whole = x.numel() > 1 and x.is_contiguous()
            return x.as_strided((2,), (1,)) if whole else x[:]
        if kind == "squeeze":
            return x.squeeze(d)
        if kind == "movedim":
            return x.movedim(0, -1)
        if kind == "alias":
            return x[...]
        return x.detach()

    def write(self, kind: str, x: Any) -> Any:
        r, y = self.rng, self.partner(x)
        if y is not x and y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            y = y.clone()  # torch refuses operands that overlap in part
        k = r.choice([0.5, 1.5, -1.0])
        if kind == "mul_number":
            return x.mul_(k)
        if kind == "mul_tensor":
            return x.mul_(y)
        if kind == "add_tensor":
            return x.add_(y, alpha=k)
        if kind == "copy":
            return x.copy_(y)
        if kind == "fill":
            return x.fill_(k)
        if kind == "zero":
            return x.zero_()
        if kind in ("sigmoid", "exp", "relu", "square"):
            return getattr(x, kind + "_")()
        if kind == "clamp":
            return x.clamp_(-0.7, 0.9)
        if kind == "masked_fill":
            return x.masked_fill_(x.detach() > 0.8, k)
        if kind == "set":
            x[(0,) * x.ndim] = k
            return x
        if kind == "set_slice" and x.ndim:
            x[:1] = y[:1] if y.ndim == x.ndim else k
            return x
        if kind == "transpose_" and x.ndim > 1 and x.is_leaf and not x.requires_grad:
            return x
        x += y
        return x

    def make(self, kind: str, x: Any) -> Any:
        y = self.partner(x)
        if kind == "mul":
            return x * y
        if kind == "add":
            return x + y
        if kind == "matmul":
            return x @ x.transpose(-1, -2) if x.ndim > 1 else x * 2
        if kind == "sum":
            return x.sum(0) if x.ndim else x * 3
        if kind == "mean":
            return x.mean()
        return getattr(x, kind)()

    def step(self) -> None:
        r = self.rng
        roll = r.random()
        x = self.pick()
        if roll < 0.4:
            kind, run = r.choice(VIEWS), self.view
        elif roll < 0.72:
            kind, run = r.choice(WRITES), self.write
        else:
            kind, run = r.choice(MAKES), self.make
        # Views made without gradients are guarded: a test of their own has them.
        off = r.random() < 0.12 and run != self.view
        state = r.getstate()
        try:
            if off:
                with self.lib.no_grad():
                    made = run(kind, x)
            else:
                made = run(kind, x)
        except (RuntimeError, IndexError) as error:
            self.log.append((kind, off, type(error).__name__, words(error)))
            r.setstate(state)
            r.random()
            return
        finally:
            r.seed(r.random())
        self.log.append((kind, off, len(self.pool)))
        if made is not x and made.numel() < 200:
            self.pool.append(made)

    def run(self) -> None:
        for _ in range(self.steps):
            self.step()
            for t in self.pool:
                self.log.append(self.state(t))

    def state(self, t: Any) -> Any:
        try:
            return (tuple(t.shape), t.stride(), t.requires_grad, t.is_leaf, t._version,
                    t.detach().numpy().round(10).tolist())
        except RuntimeError as error:
            return words(error)

    def gradients(self) -> Any:
        try:
            live = [t for t in self.pool if t.requires_grad and t.grad_fn is not None]
        except RuntimeError as error:
            return words(error)
        if not live:
            return None
        try:
            sum(t.sum() * (i + 1) for i, t in enumerate(live)).backward()
        except RuntimeError as error:
            return words(error)
        return [None if t.grad is None else t.grad.numpy().round(8).tolist() for t in self.leaves]


def words(error: Exception) -> str:
    """What kind of refusal it is."""
    text = str(error)
    for mark in ("modified by an inplace operation", "a leaf Variable that requires grad",
                 "a view of a leaf Variable", "A view was created in no_grad mode",
                 "more than one element of the written-to", "view size is not compatible"):
        if mark in text:
            return mark
    return type(error).__name__


def compare(seed: int, steps: int) -> None:
    ours, theirs = Program(lehr, seed, steps), Program(torch, seed, steps)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        ours.run()
        theirs.run()
        for i, (a, b) in enumerate(zip(ours.log, theirs.log, strict=False)):
            done = [e for e in theirs.log[: i + 1] if isinstance(e[0], str) and len(e) in (3, 4)]
            assert same(a, b), f"seed {seed}: after {done[-6:]}: {a} != {b}"
        assert same(ours.gradients(), theirs.gradients()), f"seed {seed}"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-6 * max(1.0, abs(a), abs(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("block", range(12))
def test_random_programs(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        compare(seed, 3 + seed % 12)
