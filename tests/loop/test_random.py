"""Random graphs: passes, lowering, fusion and plan against the graph interpreter."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base import proof
from lehr.base.sym import Var, evaluate
from lehr.compiler.graph import interp as graph_interp
from lehr.compiler.graph.ir import Builder, RefType, ScalarType, TensorType
from lehr.compiler.loop import interp
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.plan import plan
from lehr.compiler.loop.text import print_program
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from lehr.ops import families

assert families.FAMILIES
UNARY = ("neg", "exp", "tanh", "sigmoid", "abs", "relu", "sin", "square", "clone")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
REDUCE = ("sum", "amax", "mean", "amin")


class Hints:
    """Answers about sizes from the sizes of the run."""

    def __init__(self, sizes):
        self.sizes = sizes

    def decide(self, relation):
        return relation.holds(self.sizes)


class Maker:
    def __init__(self, seed, sizes):
        self.r = random.Random(seed)
        self.b = Builder(f"g{seed}")
        self.F = self.b.F
        self.sizes = sizes
        for v in sizes:
            self.b.symbol(v)
        self.dims = [*(sizes or (3, 4)), 5, 1, 2]
        self.values = []
        self.refs = []

    def shape(self):
        return tuple(self.r.choice(self.dims) for _ in range(self.r.choice((1, 2, 2, 3))))

    def make(self, steps):
        r = self.r
        for i in range(r.randint(2, 4)):
            shape = tuple(self.sizes) if i == 0 and self.sizes else self.shape()
            self.values.append(self.b.param(f"x{i}", TensorType(shape, dt.float32)))
        for i in range(r.randint(0, 2)):
            shape = self.shape()
            strides = None
            if r.random() < 0.4 and len(shape) == 2:
                strides = (1, shape[0])
            ref = self.b.param(f"w{i}", RefType(TensorType(shape, dt.float32), strides))
            self.refs.append(ref)
            self.values.append(self.F.read(ref))
        self.scalar = self.b.param("s", ScalarType(dt.FLOAT))
        for _ in range(steps):
            with contextlib.suppress(_Skip):
                self.step()
        floats = [v for v in self.values if v.dtype is dt.float32]
        for ref in self.refs:
            fits = [v for v in floats if tuple(v.shape) == tuple(ref.type.tensor.shape)]
            if fits and r.random() < 0.9:
                self.F.write(ref, r.choice(fits))
                if r.random() < 0.5:
                    self.values.append(self.F.exp(self.F.read(ref)))
        outputs = [r.choice(self.values) for _ in range(r.randint(1, 4))]
        return self.b.finish({"outputs": [*outputs, self.values[-1]]})

    def step(self):
        r = self.r
        kind = r.choice(STEPS)
        made = kind(self, r.choice(self.values[-6:]))
        if made is not None:
            self.values.append(made)


class _Skip(Exception):
    pass


def _unary(m, x):
    return getattr(m.F, m.r.choice(UNARY))(x)


def _binary(m, x):
    fits = [v for v in m.values if v is not x and _broadcasts(v.shape, x.shape)]
    if fits and m.r.random() < 0.8:
        return getattr(m.F, m.r.choice(BINARY))(x, m.r.choice(fits))
    return getattr(m.F, m.r.choice(BINARY[:3]))(x, m.r.choice((m.scalar, 2, 0.5, 1)))


def _broadcasts(a, b):
    return all(m is n or m == n or m == 1 or n == 1
               for m, n in zip(a[::-1], b[::-1], strict=False))


def _dim(m, x):
    if not x.shape:
        raise _Skip
    return m.r.randrange(len(x.shape))


def _reduce(m, x):
    return getattr(m.F, m.r.choice(REDUCE))(x, _dim(m, x), m.r.random() < 0.6)


def _row(m, x):
    d = _dim(m, x)
    kind = m.r.choice(("softmax", "log_softmax", "center", "cumsum"))
    if kind == "center":
        return m.F.sub(x, m.F.mean(x, d, True))
    return m.F.cumsum(x, d) if kind == "cumsum" else getattr(m.F, kind)(x, d)


def _permute(m, x):
    order = list(range(len(x.shape)))
    m.r.shuffle(order)
    return m.F.permute(x, order) if order else None


def _reshape(m, x):
    if len(x.shape) < 2:
        return m.F.view(x, (*x.shape, 1))
    d = m.r.randrange(len(x.shape) - 1)
    return m.F.view(x, (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2:]))


def _slice(m, x):
    d = _dim(m, x)
    if not isinstance(x.shape[d], int) or x.shape[d] < 2:
        raise _Skip
    return m.F.slice(x, d, m.r.choice((0, 1)), None, m.r.choice((1, 1, 2)))


def _expand(m, x):
    return m.F.expand(x, (m.r.choice((1, 2)), *x.shape)) if len(x.shape) < 4 else None


def _matmul(m, x):
    fits = [v for v in m.values if len(v.shape) >= 2 and len(x.shape) >= 2
            and v.shape[-2] == x.shape[-1] and _broadcasts(v.shape[:-2], x.shape[:-2])]
    return m.F.matmul(x, m.r.choice(fits)) if fits else _gram(m, x)


def _gram(m, x):
    return m.F.matmul(x, m.F.transpose(x, -1, -2)) if len(x.shape) >= 2 else None


def _where(m, x):
    return m.F.where(m.F.gt(x, m.r.choice((0, 0.3))), x, m.r.choice((0.0, float("-inf"), 2)))


def _cat(m, x):
    fits = [v for v in m.values if tuple(v.shape) == tuple(x.shape)]
    d = _dim(m, x)
    return m.F.cat([x, m.r.choice(fits)], d)


def _half(m, x):
    return m.F.to_dtype(m.F.to_dtype(x, dt.bfloat16), dt.float32)


def _gather(m, x):
    d = _dim(m, x)
    places = m.F.argmax(x, m.r.randrange(len(x.shape)), True)
    if any(i != d and p != n for i, (p, n) in enumerate(zip(places.shape, x.shape, strict=True))):
        raise _Skip
    return m.F.gather(x, d, m.F.mul(places, 0) if m.r.random() < 0.5 else m.F.clamp(places, 0, 0))


def _flip(m, x):
    return m.F.flip(x, [_dim(m, x)])


STEPS = (_unary, _unary, _binary, _binary, _binary, _reduce, _reduce, _row, _row, _permute,
         _reshape, _slice, _expand, _matmul, _where, _cat, _half, _gather, _flip)


def arrays(graph, sizes, seed):
    rng = np.random.default_rng(seed)
    made = []
    for p in graph.params:
        if isinstance(p.type, ScalarType):
            made.append(0.75)
            continue
        t = p.type.tensor if isinstance(p.type, RefType) else p.type
        shape = tuple(evaluate(n, sizes) for n in t.shape)
        made.append((rng.standard_normal(shape) * 0.5).astype(np.float32))
    return made


def agree(a, b):
    a, b = (x.astype(np.float64) for x in (a, b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * scale)


def check(seed, symbolic):
    sizes = {Var("m", 2, 64): 3, Var("n", 2, 64): 4} if symbolic else {}
    with proof.deciding(Hints(sizes) if symbolic else None):
        graph = Maker(seed, sizes).make(random.Random(seed).randint(4, 24))
        args = arrays(graph, sizes, seed)
        with np.errstate(all="ignore"):
            want_args = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
            want = graph_interp.run(graph, want_args, sizes)["outputs"]
            made = pipeline.run(graph)
            plain = verify(lower(made))
            fused = verify(fuse(plain))
            text = print_program(fused)
            assert print_program(parse_program(text)) == text
            for program, place in ((plain, None), (fused, plan(fused))):
                have_args = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
                have = interp.run(program, have_args, sizes, place)
                for a, b in zip([*have, *have_args[:-1]], [*want, *want_args[:-1]], strict=True):
                    agree(a, b)


@pytest.mark.parametrize("block", range(8))
def test_static(block):
    for seed in range(block * 15, block * 15 + 15):
        try:
            check(seed, False)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("block", range(4))
def test_symbolic(block):
    for seed in range(1000 + block * 12, 1000 + block * 12 + 12):
        try:
            check(seed, True)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
