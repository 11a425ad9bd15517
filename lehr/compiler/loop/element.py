"""Elements of graph values: `L`, the interpreter that ops' `lower` and `scatter` bodies run over.

`element(value, idx)` is the scalar expression of one element. Values that have a buffer are loads;
all others are computed from their inputs' elements, so views and elementwise chains cost no memory.
Everything is memoised, and expressions are interned, so asking twice is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.dtype import DType
from lehr.base.proof import prove_le, prove_lt
from lehr.compiler.graph.ir import Location, Node, ScalarType, TensorType, Value
from lehr.compiler.loop import expr
from lehr.compiler.loop.ir import MONOIDS, Axis, Bind, Buffer, Expr, axis, identity, last
from lehr.ops.rule import same


class Unlowered(TypeError):
    """An op that lowering cannot express, with the user's line."""


class Scatter(NamedTuple):
    """What `L.scatter` describes: base (or one element everywhere), then `at(k) (mode)= value(k)`
    for k over `extents`."""

    base: Value | Expr
    extents: tuple[Any, ...]
    at: Callable[[tuple[Any, ...]], Sequence[Any]]
    value: Callable[[tuple[Any, ...]], Expr]
    mode: str


class Elements:
    """`L`. Index entries are `int | Sym`; elements are `Expr`s."""

    def __init__(self) -> None:
        self.buffers: dict[Value, Buffer] = {}
        self.binds: dict[Any, Bind] = {}
        self._memo: dict[Any, Expr] = {}
        self._bound: dict[Any, Any] = {}
        self._specs: dict[Node, Any] = {}
        self._mask: Expr | None = None
        self._level = 0  # how many reductions are open

    # What `lower` bodies call

    def at(self, x: Value, idx: Sequence[Any], mask: Expr | None = None, other: Any = None) -> Expr:
        """Element `idx` of `x`; where `mask` is false, `other` (zero) and nothing is loaded."""
        if mask is not None and mask.kind == "Const" and not mask.fields[0]:
            return other if isinstance(other, Expr) else self.const(other or 0, x.dtype)
        both = expr.both(self._mask, mask)
        e = self.element(x, tuple(idx), both)
        if mask is None or mask.kind == "Const":
            return e
        rest = other if isinstance(other, Expr) else self.const(other or 0, e.dtype)
        if e.kind == "Load" and e.fields[2] is both and rest.dtype is e.dtype:
            return expr.load(e.fields[0], e.fields[1], both, rest)
        return self.select(mask, e, rest)

    def op(self, name: str, *args: Any) -> Expr:
        """A primitive op on elements (and Python numbers), promoted as 0-d tensors are; half
        precision is computed in float32 and not rounded."""
        dtypes = [a.dtype for a in args if isinstance(a, Expr)]
        common = dtypes[0]
        for d in dtypes[1:]:
            common = dt.promote(common, d)
        wide = common.wide
        if name == "where":
            a, b = (expr.cast(x, wide) for x in args[1:])
            return expr.select(args[0], a, b)
        made = [expr.cast(a, wide) if isinstance(a, Expr) else a for a in args]
        return expr.alu(name, *made)

    def const(self, value: Any, dtype: DType) -> Expr:
        """A number: Python's, a size, or one known at run time."""
        if isinstance(value, Value):
            return expr.cast(self.element(value, (), None), dtype)
        return expr.index(value, dtype) if isinstance(value, sym.Sym) else expr.const(value, dtype)

    def cast(self, e: Expr, dtype: DType) -> Expr:
        return expr.cast(e, dtype)

    def select(self, cond: Expr, a: Expr, b: Expr) -> Expr:
        if a.dtype is not b.dtype:
            common = dt.promote(a.dtype, b.dtype)
            a, b = expr.cast(a, common), expr.cast(b, common)
        return expr.select(cond, a, b)

    def inside(self, ranges: Sequence[tuple[Any, Any, Any]]) -> Expr:
        """Whether lo <= index < hi for every (index, lo, hi)."""
        return expr.inside(ranges)

    def iota(self, e: Any, dtype: DType) -> Expr:
        """The value of an index expression."""
        return expr.index(e, dtype)

    def shape(self, x: Value) -> tuple[Any, ...]:
        return tuple(x.shape)

    def index(self, value: Expr, bound: Any, wrap_negative: bool = True) -> Any:
        """An integer element as an index below `bound`, checked when the program runs."""
        if value.kind in ("Const", "Index"):
            at = int(value.fields[0]) if value.kind == "Const" else value.fields[0]
            if prove_le(0, at) and prove_lt(at, bound):
                return at
        key = (value, bound, wrap_negative, self._mask)
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = self.bind(
                Bind(None, value, bound, wrap_negative, self._mask))
        return found

    def bind(self, b: Bind) -> Any:
        """A new variable for a bound index."""
        var = sym.Var(f"g{len(self.binds)}", 0, last(b.bound))
        self.binds[var] = b._replace(var=var)
        return var

    def random(self, key: Any, counter: Any, at: Any) -> Expr:
        """32 random bits, as an int64 element."""
        names = self.const(key, dt.int64), self.const(counter, dt.int64)
        return Expr("Random", dt.int64, *names, at)

    def reduce(self, monoid: str, extents: Sequence[Any],
               body: Callable[[tuple[Any, ...]], Any]) -> Any:
        """A reduction over `extents`; `body(k)` gives the element. Of a monoid with several parts,
        `body(k)` is a tuple and so is the result."""
        axes = self.axes("k", extents, "reduce")
        before, self._level = self._level, self._level + 1
        try:
            args = body(tuple(a.var for a in axes))
        finally:
            self._level = before
        if isinstance(args, tuple):
            return tuple(fold(monoid, axes, args, part) for part in range(MONOIDS[monoid].parts))
        return fold(monoid, axes, (args,))

    def scatter(self, base: Value | Expr, extents: Sequence[Any], at: Callable[..., Any],
                value: Callable[..., Any], mode: str = "set") -> Scatter:
        return Scatter(base, tuple(extents), at, value, mode)

    # How elements come about

    def axes(self, letter: str, extents: Sequence[Any], role: str = "parallel") -> tuple[Axis, ...]:
        """Axes named so that those of nested reductions differ."""
        stem = letter if not self._level else f"{letter}{self._level}_"
        return tuple(axis(f"{stem}{i}", n, role) for i, n in enumerate(extents))

    def element(self, v: Value, idx: tuple[Any, ...], mask: Expr | None = None) -> Expr:
        """The element of a value: a load where it has a buffer."""
        buffer = self.buffers.get(v)
        if buffer is not None:
            return expr.cast(expr.load(buffer, idx, mask), _dtype(v))
        key = (v, idx, mask)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self.computed(v, idx, mask)
        return found

    def computed(self, v: Value, idx: tuple[Any, ...], mask: Expr | None = None) -> Expr:
        """The element of a node's result, computed from its inputs'."""
        node = v.node
        assert node is not None, v
        kept, self._mask = self._mask, mask
        try:
            if node.op.name == "read":
                return expr.load(self.buffers[node.args[0]], idx, mask)
            if node.op.name == "number":
                return expr.cast(self.element(node.args[0], (), mask), _dtype(v))
            if node.op.lower is not None:
                made = node.op.lower(self, idx, *node.args)
                made = made[v.index] if isinstance(made, tuple) else made
            elif node.op.c is not None:
                made = self.pointwise(node, v, idx)
            else:
                raise Unlowered(f"op {node.op.name} has no lowering{place(node.location)}")
            return expr.cast(made, _dtype(v))
        finally:
            self._mask = kept

    def pointwise(self, node: Node, v: Value, idx: tuple[Any, ...]) -> Expr:
        """A primitive elementwise op: operands broadcast and cast to the computing dtype."""
        op, args = node.op, node.args
        spec = self._specs.get(node)
        if spec is None:
            spec = self._specs[node] = op.rule(*args)
        compute = (spec.compute or _dtype(v)).wide
        if op.name == "where":
            cond, a, b = (self.operand(x, v, idx, None) for x in args)
            return expr.select(expr.cast(cond, dt.bool_), expr.cast(a, compute),
                               expr.cast(b, compute))
        made = [self.operand(a, v, idx, compute) if p.is_tensor or "Scalar" in p.types
                else expr.const(a, compute) if isinstance(a, float) else a
                for p, a in zip(op.params, args, strict=True)]
        dtype = expr.result_dtype(op, tuple(a.dtype if isinstance(a, Expr) else a for a in made))
        return expr.primitive(op, dtype, made)

    def operand(self, a: Any, v: Value, idx: tuple[Any, ...], dtype: DType | None) -> Any:
        """The element that an operand contributes to element `idx` of `v`."""
        if a is None or isinstance(a, str):
            return a
        if isinstance(a, Value) and isinstance(a.type, TensorType):
            shape = a.type.shape
            gap = len(idx) - len(shape)
            whole = v.type.shape[gap:]      # type: ignore[union-attr]
            at = tuple(0 if (n == 1 if isinstance(n, int) else not same(n, m)) else idx[gap + d]
                       for d, (n, m) in enumerate(zip(shape, whole, strict=True)))
            e = self.element(a, at, self._mask)
        else:
            assert dtype is not None or isinstance(a, Value), a
            e = self.const(a, dtype or _dtype(a))
        return e if dtype is None else expr.cast(e, dtype)


def nothing(monoid: str, dtype: DType, part: int = 0) -> Expr:
    """What a reduction of nothing is."""
    return expr.const(identity(MONOIDS[monoid].identity[part], dtype), dtype)


def begun(monoid: str, e: Expr) -> Expr:
    """`e` combined with the identity: a sum starts at 0, and of -0.0 alone it is 0.0."""
    signed = monoid == "sum" and e.dtype.category >= dt.FLOAT
    return expr.alu("add", e, nothing(monoid, e.dtype)) if signed else e


def _dtype(v: Value) -> DType:
    return v.type.dtype if isinstance(v.type, TensorType | ScalarType) else v.type.tensor.dtype


def place(location: Location | None) -> str:
    return f" ({location})" if location is not None else ""


def fold(monoid: str, axes: tuple[Axis, ...], args: tuple[Expr, ...], part: int = 0) -> Expr:
    """A reduction; half precision is reduced in float32 (and not rounded)."""
    wide = tuple(expr.cast(a, a.dtype.wide) for a in args)
    if any(isinstance(a.extent, int) and a.extent == 0 for a in axes):
        return nothing(monoid, wide[part].dtype, part)
    if not axes and MONOIDS[monoid].arity == 1:
        return begun(monoid, wide[0])
    return Expr("Reduce", wide[part].dtype, monoid, axes, wide, part)



