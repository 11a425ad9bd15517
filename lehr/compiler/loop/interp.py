"""Runs a program on numpy arrays, slowly and by the letter of `loop.ir`: the reference of every
emitter.

Each store is evaluated over its whole iteration space at once, which is the same as point by point
because no outer point sees another's stores (`verify`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base import philox, sym
from lehr.base.dtype import DType
from lehr.compiler.loop import points
from lehr.compiler.loop.ir import (
    MONOIDS,
    Axis,
    Bind,
    Buffer,
    Expr,
    Extern,
    Group,
    HostCall,
    Input,
    Kernel,
    Operand,
    Program,
    Step,
    Store,
    identity,
)
from lehr.ops import execute
from lehr.ops.execute import Array


def run(program: Program, args: Sequence[Any], sizes: Mapping[Any, int] | None = None,
        plan: Any = None) -> tuple[Array, ...]:
    """The results of a call, one array each (0-d for numbers).

    `args`: one array for each "param" and "ref" (the latter are changed in place), a number for
    each "scalar". `sizes` gives symbols that are no dimension of a parameter. `plan`: temporaries
    share one arena as this memory plan says; without, each has its own memory. IndexError where a
    bound index is out of range.
    """
    machine = Machine(program, args, sizes, plan)
    for step in program.steps:
        machine.step(step)
    for b, a in zip(program.params, args, strict=True):
        if b.role == "ref":
            np.copyto(a, machine.array(b))
    return tuple(machine.array(b).copy() for b in program.results)


class Machine:
    """The memory of one call."""

    def __init__(self, program: Program, args: Sequence[Any],
                 sizes: Mapping[Any, int] | None = None, plan: Any = None) -> None:
        self.sizes = dict(sizes or {})
        self.memory: dict[Buffer, Array] = {}
        self.views: dict[Buffer, Array] = {}
        for b, a in zip(program.params, args, strict=True):
            for want, have in zip(b.shape, getattr(a, "shape", ()), strict=False):
                if isinstance(want, sym.Var):
                    self.sizes.setdefault(want, have)
        self.plan = plan
        if plan is not None:
            self.arena = np.full(max(self.size(plan.nbytes), 1), 0x5B, np.uint8)
        for b, a in zip(program.params, args, strict=True):
            value = np.asarray(a, b.dtype.np) if b.role == "scalar" else a
            if value.dtype != b.dtype.np or value.shape != self.shape(b.shape):
                raise TypeError(f"buffer {b} takes {b.dtype.name}{list(self.shape(b.shape))}, not "
                                f"{value.dtype}{list(value.shape)}")
            self.array(b)[...] = value

    def size(self, e: Any) -> int:
        return sym.evaluate(e, self.sizes)

    def shape(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        return tuple(map(self.size, sizes))

    def array(self, b: Buffer) -> Array:
        """The buffer's memory in its logical shape. Fresh memory holds a pattern, not zeros."""
        found = self.views.get(b)
        if found is None:
            shape, strides = self.shape(b.shape), self.shape(b.strides)
            span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            size = b.dtype.itemsize
            if self.plan is not None and b in self.plan.offsets:
                start = self.size(self.plan.offsets[b])
                raw = self.arena[start:start + max(span, 0) * size]
            else:
                raw = np.full(max(span, 1) * size, 0 if b.dtype is dt.bool_ else 0x5B, np.uint8)
            self.memory[b] = raw.view(b.dtype.np)
            found = self.views[b] = self.strided(b, 0, shape, strides)
            if b.data is not None:
                found[...] = b.data
        return found

    def strided(self, b: Buffer, offset: int, shape: Sequence[int], strides: Sequence[int]
                ) -> Array:
        base = self.memory[b]
        reach = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if 0 not in shape and not 0 <= reach < max(base.size, 1):
            raise AssertionError(f"a rectangle of {b} reaches element {reach} of {base.size}")
        return np.lib.stride_tricks.as_strided(
            base[offset:], shape, [s * base.itemsize for s in strides])

    def operand(self, o: Operand) -> Array:
        self.array(o.buffer)
        return self.strided(o.buffer, self.size(o.offset), self.shape(o.shape),
                            self.shape(o.strides))

    def step(self, step: Step) -> None:
        if isinstance(step, Group):
            for kernel in step.kernels:
                self.step(kernel)
        elif isinstance(step, Kernel):
            self.stores(step.axes, step.stores, step.binds)
        elif isinstance(step, Extern):
            inputs = [self.operand(o).astype(o.dtype.np, copy=False) for o in step.inputs]
            bound = tuple(self.argument(a, inputs) for a in step.attrs)
            result = execute.run(step.op, bound)
            results = result if type(result) is tuple else (result,)
            for o, value in zip((step.output, *step.others), results, strict=True):
                self.operand(o)[...] = value
            self.stores(step.axes, step.epilogue, step.binds)
        else:
            assert isinstance(step, HostCall)
            made = execute.run(step.op, tuple(self.argument(a, ()) for a in step.args))
            made = made if type(made) is tuple else (made,)
            for b, value in zip(step.outputs, made, strict=True):
                self.array(b)[...] = value

    def argument(self, a: Any, inputs: Sequence[Array]) -> Any:
        if isinstance(a, Input):
            return inputs[a.slot]
        if isinstance(a, Operand):
            return self.operand(a).copy()
        if isinstance(a, Buffer):
            return self.array(a).item()
        if isinstance(a, tuple):
            return tuple(self.argument(x, inputs) for x in a)
        return self.size(a) if isinstance(a, sym.Sym) else a

    def stores(self, axes: Sequence[Axis], stores: Sequence[Store], binds: Sequence[Bind]) -> None:
        local: dict[Buffer, Array] = {}
        outer = tuple(self.size(a.extent) for a in axes)
        for s in stores:
            if s.buffer.role == "local" and s.buffer not in local:
                shape = (*outer, *self.shape(s.buffer.shape))
                local[s.buffer] = np.full(shape, 77).astype(s.buffer.dtype.np)
        bound = {b.var: b for b in binds}
        for s in stores:
            if 0 not in outer:
                _Scope(self, (*axes, *s.axes), bound, local, axes).store(s)


# How duplicates combine.
_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class _Scope:
    """Values over a grid. Each axis in scope has one dimension, the latest one leftmost, so values
    of outer scopes broadcast as they are."""

    def __init__(self, machine: Machine, axes: Sequence[Axis], binds: Mapping[Any, Bind],
                 local: Mapping[Buffer, Array], outer: Sequence[Axis],
                 parent: _Scope | None = None) -> None:
        self.machine, self.binds, self.local, self.outer = machine, binds, local, outer
        self.parent = parent
        self.own = frozenset(a.var for a in axes)
        self.grid: tuple[int, ...] = parent.grid if parent else ()
        self.env: dict[Any, Array] = dict(parent.env) if parent else {}
        self.place: dict[Any, int] = dict(parent.place) if parent else {}
        for a in axes:
            n = machine.size(a.extent)
            self.env[a.var] = np.arange(n).reshape((n,) + (1,) * len(self.grid))
            self.place[a.var] = len(self.grid)
            self.grid = (n, *self.grid)
        self.memo: dict[Expr, Array] = {}

    def store(self, s: Store) -> None:
        if 0 in self.grid:
            return
        value = self.full(self.value(s.value))
        array, idx = self.place_of(s.buffer, s.idx)
        if not idx:
            array, idx = array.reshape(1), (np.zeros((), np.int64),)
        idx = tuple(map(self.full, idx))
        if s.mask is not None:
            here = self.full(self.value(s.mask))
            value, idx = value[here], tuple(i[here] for i in idx)
        self.check(s.buffer, array, idx, None)
        if s.mode == "set":
            array[idx] = value
        elif array.dtype.kind == "V":  # bfloat16 has no unbuffered ufuncs
            wide = array.astype(np.float32)
            _COMBINE[s.mode].at(wide, idx, value.astype(np.float32))
            array[...] = wide.astype(array.dtype)
        else:
            _COMBINE[s.mode].at(array, idx, value)

    def full(self, a: Any) -> Array:
        return np.broadcast_to(a, self.grid)

    def index(self, e: Any) -> Array:
        return points.values(e, self.variable)

    def variable(self, var: Any) -> Any:
        if var in self.env:
            return self.env[var]
        if var in self.binds:
            made = self.env[var] = self.bound(self.binds[var])
            return made
        return self.machine.size(var)

    def bound(self, b: Bind) -> Array:
        value = self.value(b.value).astype(np.int64)
        size = self.index(b.bound)
        index = np.where(value < 0, value + size, value) if b.wrap else value
        wrong = (index < 0) | (index >= size)
        if b.mask is not None:
            wrong = wrong & self.value(b.mask)
        if wrong.any():
            first = np.broadcast_to(value, wrong.shape)[wrong][0]
            raise IndexError(f"index {first} is out of bounds for a dimension of size {size.max()}")
        return np.clip(index, 0, np.maximum(size - 1, 0))

    def place_of(self, b: Buffer, idx: Sequence[Any]) -> tuple[Array, tuple[Array, ...]]:
        """The array to index and the index, with the outer point in front for a local buffer."""
        indices = tuple(map(self.index, idx))
        if b in self.local:
            return self.local[b], (*(self.env[a.var] for a in self.outer), *indices)
        return self.machine.array(b), indices

    def check(self, b: Buffer, array: Array, idx: tuple[Array, ...], mask: Any) -> None:
        for d, (i, n) in enumerate(zip(idx, array.shape, strict=True)):
            wrong = (i < 0) | (i >= n)
            wrong = wrong if mask is None else wrong & mask
            if wrong.any():
                raise AssertionError(f"{b}: index {i.min()}..{i.max()} of dimension {d}, size {n}")

    def value(self, e: Expr) -> Array:
        found = self.memo.get(e)
        if found is None:
            outside = self.parent is not None and self._free(e).isdisjoint(self.own)
            if outside:
                assert self.parent is not None
                found = self.parent.value(e)
            else:
                with np.errstate(all="ignore"):
                    found = np.asarray(_VALUES[e.kind](self, e, *e.fields))
            if found.dtype != e.dtype.np:
                raise AssertionError(f"{e.kind} made {found.dtype}, not {e.dtype.name}")
            self.memo[e] = found
        return found

    def _free(self, e: Expr) -> set[Any]:
        """With what bind variables stand for."""
        found: set[Any] = set()
        stack = list(e.free)
        while stack:
            var = stack.pop()
            if var in self.binds and var not in found:
                b = self.binds[var]
                stack += [*b.value.free, *(b.mask.free if b.mask else ())]
            found.add(var)
        return found


def _load(s: _Scope, e: Expr, buffer: Buffer, idx: Any, mask: Any, other: Any) -> Any:
    array, indices = s.place_of(buffer, idx)
    if mask is None:
        s.check(buffer, array, indices, None)
        return array[indices]
    here = s.value(mask)
    s.check(buffer, array, indices, here)
    if array.size == 0:
        picked: Any = np.zeros((), e.dtype.np)
    else:
        picked = array[tuple(np.where(here, i, 0) for i in indices)]
    return np.where(here, picked, np.zeros((), e.dtype.np) if other is None else s.value(other))


def _alu(s: _Scope, e: Expr, op: Any, *args: Any) -> Any:
    values = [s.value(a) if isinstance(a, Expr) else a for a in args]
    return execute.cast(np.asarray(op.eager(np, *values)), e.dtype)


def _reduce(s: _Scope, e: Expr, monoid: str, axes: Any, args: Any, part: int) -> Any:
    inner = _Scope(s.machine, axes, s.binds, s.local, s.outer, s)
    n = int(np.prod([s.machine.size(a.extent) for a in axes]))
    if n:
        values = [inner.full(inner.value(a)) for a in args]
    else:
        values = [np.zeros((0, *s.grid), a.dtype.np) for a in args]
    return fold(monoid, [v.reshape(n, *s.grid) for v in values], [a.dtype for a in args])[part]


def fold(monoid: str, values: Sequence[Array], dtypes: Sequence[DType]) -> list[Array]:
    """Combines along the first dimension in pairs, neighbours in order."""
    m = MONOIDS[monoid]
    n, *rest = values[0].shape
    if n == 0:
        return [np.full(rest, identity(i, d), d.np)
                for i, d in zip(m.identity, dtypes, strict=True)]
    state = list(values)
    while n > 1:
        joined = _combine(m.combine, [v[0:n - 1:2] for v in state], [v[1:n:2] for v in state],
                          dtypes)
        if n % 2:
            joined = [np.concatenate([j, v[n - 1:n]]) for j, v in zip(joined, state, strict=True)]
        state, n = joined, (n + 1) // 2
    return [v[0] for v in state]


class _Vector(ast.NodeTransformer):
    """Python's conditional and logical operators as functions of arrays."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._call("where", node.test, node.body, node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        return self._call("every" if isinstance(node.op, ast.And) else "some", *node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        return self._call("negate", node.operand) if isinstance(node.op, ast.Not) else node

    def _call(self, name: str, *args: ast.expr) -> ast.AST:
        made = [self.visit(a) for a in args]
        return ast.Call(ast.Name(name, ast.Load()), made, [])


_NAMES = {"where": np.where, "negate": np.logical_not,
          "every": lambda *a: np.logical_and.reduce(np.broadcast_arrays(*a)),
          "some": lambda *a: np.logical_or.reduce(np.broadcast_arrays(*a))}


def _combine(texts: Sequence[str], left: Sequence[Array], right: Sequence[Array],
             dtypes: Sequence[DType]) -> list[Array]:
    space = {f"a{i}": v for i, v in enumerate(left)} | {f"b{i}": v for i, v in enumerate(right)}
    made = []
    for text, dtype in zip(texts, dtypes, strict=True):
        tree = ast.fix_missing_locations(_Vector().visit(ast.parse(text, mode="eval")))
        made.append(np.asarray(eval(compile(tree, text, "eval"), _NAMES, space)).astype(dtype.np))
    return made


def _scan(s: _Scope, e: Expr, monoid: str, axis: Axis, args: Any, part: int) -> Any:
    place = len(s.grid) - 1 - s.place[axis.var]
    values = [np.moveaxis(s.full(s.value(a)), place, 0) for a in args]
    dtypes = [a.dtype for a in args]
    rows = [[v[0:1] for v in values]] if len(values[0]) else []
    for i in range(1, len(values[0])):
        step = [v[i:i + 1] for v in values]
        rows.append(_combine(MONOIDS[monoid].combine, rows[-1], step, dtypes))
    return np.moveaxis(np.concatenate([row[part] for row in rows]), 0, place)


def _random(s: _Scope, e: Expr, key: Expr, counter: Expr, index: Any) -> Any:
    at = s.index(index)
    k, c = (int(s.value(v).reshape(-1)[0]) & (1 << 64) - 1 for v in (key, counter))
    words = philox.words(k, c, int(at.max()) + 1 if at.size else 0)
    return words[at].astype(np.int64)


_VALUES: dict[str, Callable[..., Any]] = {
    "Const": lambda s, e, v: execute.number(v, e.dtype),
    "Index": lambda s, e, i: s.index(i).astype(np.int64),
    "Load": _load,
    "Alu": _alu,
    "Cast": lambda s, e, a: execute.cast(s.value(a), e.dtype),
    "Select": lambda s, e, c, a, b: np.where(s.value(c), s.value(a), s.value(b)),
    "Reduce": _reduce,
    "Scan": _scan,
    "Random": _random,
}
