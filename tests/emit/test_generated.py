"""Random programs: C and the loop interpreter agree on whatever the verifier lets pass."""

import random

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.emit import c
from lehr.compiler.loop import expr, interp
from lehr.compiler.loop.ir import Bind, Buffer, Expr, Kernel, Program, Store, axis
from lehr.compiler.loop.plan import plan
from lehr.compiler.loop.text import print_program, row_major, walk
from lehr.compiler.loop.verify import LoopError, verify
from lehr.compiler.run import executable, library, memory, pool
from tests.emit.harness import host_call, memory_of

EXTENTS = (1, 2, 3, 5, 8, 31, 32, 33, 64, 70)
UNARY = ("neg", "abs", "tanh", "sin", "floor", "sign")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


class Maker:
    """One random program."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.params, self.buffers, self.results, self.steps = [], [], [], []
        self.count = 0
        self.sizes = {sym.Var("s0", 1, 100): 33, sym.Var("s1", 0, 100): 6}
        self.symbols = tuple(self.sizes) if self.rng.random() < 0.3 else ()
        self.ranges = {}  # index param -> below what

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def axis(self, role="parallel"):
        extents = EXTENTS + 3 * self.symbols
        return axis(self.name("a"), self.rng.choice(extents))._replace(role=role)

    # Values

    def load(self, scope):
        """An element of a param over some of the axes in scope, or of an earlier result."""
        rng = self.rng
        earlier = [b for b in self.written if b.dtype is dt.float32]
        if earlier and rng.random() < 0.3:
            b = rng.choice(earlier)
            idx = [self.fitting(n, scope) for n in b.shape]
            if None not in idx:
                return expr.load(b, idx)
        if scope and rng.random() < 0.12:
            return self.gather(scope)
        axes = rng.sample(scope, min(len(scope), rng.randint(0, 3)))
        shape = tuple(a.extent for a in axes)
        idx = tuple(a.extent - 1 - a.var if rng.random() < 0.1 else a.var for a in axes)
        if len(axes) >= 2 and rng.random() < 0.2:  # a reshaped operand
            first, second, *rest = axes
            shape = (first.extent * second.extent, *shape[2:])
            idx = (first.var * second.extent + second.var, *idx[2:])
        kind = rng.choice((dt.float32, dt.float32, dt.float32, dt.bfloat16, dt.int32))
        b = Buffer(self.name("x"), kind, shape, self.strides(shape), "param")
        self.params.append(b)
        if axes and rng.random() < 0.15:  # a margin that is not read
            test = expr.alu("ge", expr.index(axes[0].var), expr.index(rng.randint(0, 3)))
            made = expr.load(b, idx, test, expr.const(7, b.dtype) if rng.random() < 0.5 else None)
        else:
            made = expr.load(b, idx)
        return expr.cast(made, dt.float32)

    def gather(self, scope):
        """A row of a table, picked by data that may depend on one axis."""
        a = self.rng.choice(scope)
        n = self.rng.choice(EXTENTS)
        index = Buffer(self.name("at"), dt.int64, (a.extent,), (1,), "param")
        rest = [x for x in scope if x is not a][:1]
        table = Buffer(self.name("table"), dt.float32, (n, *(x.extent for x in rest)), (), "param")
        table.strides = self.strides(table.shape)
        self.params += [index, table]
        self.ranges[index] = n
        var = sym.Var(self.name("g"), 0, n - 1)
        value = expr.load(index, (a.var,))
        mask = None
        if self.rng.random() < 0.3:
            mask = expr.alu("ge", value, expr.const(0, dt.int64))
        self.binds.append(Bind(var, value, n, True, mask))
        return expr.load(table, (var, *(x.var for x in rest)), mask)

    def strides(self, shape):
        """Row-major, or another order of dimensions."""
        order = list(range(len(shape)))
        if self.rng.random() < 0.3:
            self.rng.shuffle(order)
        strides, step = [0] * len(shape), 1
        for d in reversed(order):
            strides[d], step = step, step * shape[d]
        return tuple(strides)

    def fitting(self, n, scope):
        found = [a for a in scope if a.extent == n]
        if not found:
            return None
        a = self.rng.choice(found)
        return a.extent - 1 - a.var if self.rng.random() < 0.2 else a.var

    def value(self, scope, depth):
        rng = self.rng
        roll = rng.random()
        if depth == 0 or roll < 0.15:
            return self.load(scope) if rng.random() < 0.8 else expr.const(
                rng.choice((0.5, -1.5, 2.0)), dt.float32)
        if roll < 0.35:
            return expr.alu(rng.choice(UNARY), self.value(scope, depth - 1))
        if roll < 0.7:
            return expr.alu(rng.choice(BINARY), self.value(scope, depth - 1),
                            self.value(scope, depth - 1))
        if roll < 0.78:
            test = expr.alu("lt", self.value(scope, 1), self.value(scope, 1))
            return expr.select(test, self.value(scope, depth - 1), self.value(scope, depth - 1))
        if roll < 0.84 and scope:
            return expr.cast(expr.index(rng.choice(scope).var * 3 % 7), dt.float32)
        if roll < 0.86:
            half = rng.choice((dt.bfloat16, dt.float16))
            return expr.cast(expr.cast(self.value(scope, depth - 1), half), dt.float32)
        if roll < 0.97:
            return self.fold(scope, depth)
        return rng.choice(self.known) if self.known else self.load(scope)

    def fold(self, scope, depth):
        axes = tuple(self.axis("reduce") for _ in range(self.rng.choice((1, 1, 2))))
        monoid = self.rng.choice(("sum", "max", "min", "sum", "argmax"))
        inside = self.rng.choice((scope, scope[:1], scope[: len(self.outer)]))
        value = self.value([*inside, *axes], min(depth - 1, 2))
        if monoid == "argmax":
            flat = axes[0].var if len(axes) == 1 else axes[0].var * axes[1].extent + axes[1].var
            # Equal numbers in another order of additions need not be equal: whole numbers are.
            whole = expr.alu("floor", self.load([*inside, *axes]))
            made = Expr("Reduce", dt.int64, "argmax", axes, (whole, expr.index(flat)), 1)
            return expr.cast(made, dt.float32)
        made = Expr("Reduce", dt.float32, monoid, axes, (value,), 0)
        if all(v in {a.var for a in self.outer} for v in made.free):
            self.known.append(made)
        return made

    # Kernels

    def kernel(self):
        rng = self.rng
        self.outer = [self.axis() for _ in range(rng.randint(0, 3))]
        self.known, self.binds = [], []
        inner = [self.axis() for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        stores, own = [], []
        for _ in range(rng.randint(1, 3)):
            axes = inner if rng.random() < 0.7 else []
            scope = [*self.outer, *axes]
            dims = list(scope)
            role = rng.choice(("output", "output", "arena"))
            if axes and rng.random() < 0.2:
                role, dims = "local", list(axes)
            elif rng.random() < 0.4:
                rng.shuffle(dims)
            value = self.value(scope, rng.randint(1, 4))
            if rng.random() < 0.15 and not (role == "local"):  # in place
                b = Buffer(self.name("ref"), dt.float32, tuple(a.extent for a in dims), (), "ref")
                b.strides = self.strides(b.shape)
                idx = tuple(a.var for a in dims)
                self.params.append(b)
                value = expr.alu("add", expr.load(b, idx), value)
                stores.append(Store(b, idx, value, tuple(axes)))
                continue
            if axes and rng.random() < 0.1 and role != "local":
                last = axes[-1]._replace(role="scan")
                axes = [*axes[:-1], last]
                value = Expr("Scan", dt.float32, rng.choice(("sum", "max")), last, (value,), 0)
            b = Buffer(self.name("y"), dt.float32, tuple(a.extent for a in dims), (), role)
            b.strides = self.strides(b.shape) if role == "output" else row_major(b.shape)
            stores.append(Store(b, tuple(a.var for a in dims), value, tuple(axes)))
            own.append(b)
            self.buffers.append(b)
            self.written.append(b)
        self.written = [b for b in self.written if b.role != "local"]
        used = {v for s in stores for e in walk((s.value,)) for v in e.free}
        binds = tuple(b for b in self.binds if b.var in used)
        return Kernel(self.name("kernel"), tuple(self.outer), tuple(stores), binds)

    def program(self, name):
        self.written = []
        for _ in range(self.rng.randint(1, 3)):
            self.steps.append(self.kernel())
        results = tuple(b for b in self.buffers if b.role == "output")
        return Program(name, tuple(self.params), tuple(self.buffers), tuple(self.steps), results,
                       self.symbols)


def programs(seed, count):
    """(program, its maker) pairs that the verifier lets pass."""
    made, tries = [], 0
    while len(made) < count:
        tries += 1
        maker = Maker(seed * 100000 + tries)
        program = maker.program(f"p{len(made)}")
        points = max((work(k, maker.sizes) for k in program.steps), default=0)
        try:
            verify(program)
        except LoopError:
            continue
        if program.results and points < 3e6:
            made.append((program, maker))
    assert tries < 30 * count
    return made


def work(k, sizes):
    """Points of the interpreter's grid."""
    n = 1
    for a in k.axes:
        n *= sym.evaluate(a.extent, sizes)
    worst = 1
    for s in k.stores:
        m = 1
        for a in s.axes:
            m *= sym.evaluate(a.extent, sizes)
        for e in walk((s.value,)):
            if e.kind == "Reduce":
                for a in e.fields[1]:
                    m *= sym.evaluate(a.extent, sizes)
        worst = max(worst, m)
    return n * worst


def arguments(program, maker, seed):
    rng = np.random.default_rng(seed)

    def one(b):
        shape = tuple(sym.evaluate(n, maker.sizes) for n in b.shape)
        if b in maker.ranges:
            n = sym.evaluate(maker.ranges[b], maker.sizes)
            return rng.integers(-n, n, shape)
        if b.dtype is dt.int32:
            return rng.integers(-4, 5, shape).astype(np.int32)
        return rng.standard_normal(shape).astype(b.dtype.np)

    return list(map(one, program.params))


def compare(p, code, loaded, args, maker):
    """Elements that differ, of results and of what was written in place."""
    run = executable.Executable(code.record, loaded, host_call)
    held = [memory_of(b, a, maker.sizes) for b, a in zip(p.params, args, strict=True)]
    sizes = [maker.sizes[s] for s in p.symbols]
    buffers = run([raw.ctypes.data for raw, _ in held], sizes)
    have = [a.copy() for a in run.arrays(buffers, sizes)] + [view for _, view in held]
    for b in buffers:
        memory.host.release(b)
    theirs = [a.copy() for a in args]
    want = [*interp.run(p, theirs, maker.sizes), *theirs]
    for h, w in zip(have, want, strict=True):
        # sign and floor turn the last bit of a sum into 1.
        off = ~np.isclose(h.astype(np.float64), w.astype(np.float64), 1e-3, 1e-3, equal_nan=True)
        if off.any():
            yield off


@pytest.mark.parametrize("seed", range(4))
def test_programs(seed):
    made = programs(seed, 12)
    codes = []
    for p, _ in made:
        planned = plan(p)
        codes.append(c.emit(p, c.Layout(planned.offsets, planned.nbytes), pool.header()))
    loaded = library.build([s for code in codes for s in code.sources], "generated",
                           extra=c.FLAGS)
    for (p, maker), code in zip(made, codes, strict=True):
        for off in compare(p, code, loaded, arguments(p, maker, seed), maker):
            assert off.mean() < 0.02 or off.sum() <= 1, print_program(p) + "\n" + "\n".join(
                code.sources)


def test_extents_are_varied():
    """The generator reaches rows, columns, scans, locals and several kernels."""
    seen = set()
    for p, _ in programs(9, 60):
        for k in p.steps:
            seen.update(["bind"] * bool(k.binds), ["sizes"] * bool(p.symbols))
            seen |= {s.buffer.role for s in k.stores} | {a.role for s in k.stores for a in s.axes}
            seen.add(len(k.axes))
    assert {"local", "arena", "output", "ref", "scan", "bind", "sizes", 0, 1, 2, 3} <= seen
