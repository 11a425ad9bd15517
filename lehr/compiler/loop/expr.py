"""Making and rewriting element values: constructors that fold constants, substitution, costs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.dtype import DType
from lehr.base.proof import prove, prove_le, prove_lt
from lehr.compiler.graph.exact import widens
from lehr.compiler.graph.ir import TensorType
from lehr.compiler.loop.ir import Bind, Buffer, Expr
from lehr.ops import execute, registry
from lehr.ops.registry import Op

# Ops on integers that cannot divide by zero.
DIVIDING = ("floor_divide", "trunc_divide", "remainder", "fmod")


def const(value: Any, dtype: DType) -> Expr:
    """A number of `dtype`, converted as Scalars are: integers wrap, floats round."""
    return Expr("Const", dtype, execute.number(value, dtype).item() if dtype.np.kind != "V"
                else float(execute.number(value, dtype)))


def index(e: Any, dtype: DType = dt.int64) -> Expr:
    """The value of an index expression."""
    made = const(e, dt.int64) if isinstance(e, int) else Expr("Index", dt.int64, e)
    return cast(made, dtype)


def load(buffer: Buffer, idx: Sequence[Any], mask: Expr | None = None, other: Expr | None = None
         ) -> Expr:
    if mask is not None and mask.kind == "Const":
        if not mask.fields[0]:
            return const(0, buffer.dtype) if other is None else other
        mask = other = None
    return Expr("Load", buffer.dtype, buffer, tuple(idx), mask, other)


def cast(e: Expr, dtype: DType) -> Expr:
    """A conversion; none where it changes nothing."""
    if e.dtype is dtype:
        return e
    if e.kind == "Const":
        made = execute.cast(np.asarray(e.fields[0], e.dtype.np), dtype)
        return Expr("Const", dtype, float(made) if dtype.category == dt.FLOAT else made.item())
    if e.kind == "Cast" and widens(e.fields[0].dtype, e.dtype):
        return cast(e.fields[0], dtype)
    return Expr("Cast", dtype, e)


def select(cond: Expr, a: Expr, b: Expr) -> Expr:
    """a where cond holds, else b; both of one dtype."""
    if cond.kind == "Const":
        return a if cond.fields[0] else b
    return a if a is b else Expr("Select", a.dtype, cond, a, b)


class Number(NamedTuple):
    """A run-time number, as rules see it."""

    scalar_category: int


@functools.cache
def result_dtype(op: Op, dtypes: tuple[Any, ...]) -> DType:
    """The dtype that the rule gives for elements of these dtypes (other arguments as they are)."""
    kinds = [a if not isinstance(a, DType) else TensorType((), a) if p.is_tensor
             else Number(a.category) for p, a in zip(op.params, dtypes, strict=True)]
    spec = op.rule(*kinds)
    return (spec[0] if type(spec) is tuple else spec).dtype  # type: ignore[no-any-return]


def alu(name: str, *args: Any) -> Expr:
    """A primitive op over elements of one (wide) dtype; its result's dtype is the rule's."""
    op = registry.get(name)
    bound = op.signature.bind(args, {})
    dtypes = tuple(a.dtype if isinstance(a, Expr) else a for a in bound)
    common = next(d for d in dtypes if isinstance(d, DType))
    bound = tuple(const(a, common) if "Scalar" in p.types and not isinstance(a, Expr) else a
                  for p, a in zip(op.params, bound, strict=True))
    dtype = result_dtype(op, tuple(a.dtype if isinstance(a, Expr) else a for a in bound))
    return primitive(op, dtype, bound)


# Arithmetic and comparisons of index values, which are far from the ends of int64.
INDEX_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}
INDEX_TESTS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def primitive(op: Op, dtype: DType, args: Sequence[Any]) -> Expr:
    """An `Alu`, or the index expression or constant that it is."""
    if len(args) >= 2 and all(isinstance(a, Expr) for a in args[:2]):
        if all(a.dtype is dt.int64 and a.kind in ("Index", "Const") for a in args[:2]):
            made = _of_indices(op, args)
            if made is not None:
                return made
    return Expr("Alu", dtype, op, *args)


def _of_indices(op: Op, args: Sequence[Any]) -> Expr | None:
    a, b = (x.fields[0] for x in args[:2])
    rest = args[2:]
    if op.name in INDEX_OPS:
        if any(x is not None and x is not const(1, dt.int64) for x in rest):
            return None
        made = INDEX_OPS[op.name](a, b)
        ends = (made, made) if isinstance(made, int) else sym.interval(made)
        low, high = (x if x is not None else 0 for x in ends)
        return index(made) if -_FAR < low and high < _FAR else None
    if op.name in INDEX_TESTS:
        answer = prove(INDEX_TESTS[op.name], a, b)
        return None if answer is None else const(answer, dt.bool_)
    return None


_FAR = 1 << 60


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction of two masks; None is always true."""
    if a is None or b is None or a is b:
        return a or b
    for x, y in ((a, b), (b, a)):
        if x.kind == "Const":
            return y if x.fields[0] else x
    return alu("bitwise_and", a, b)


def inside(ranges: Iterable[tuple[Any, Any, Any]]) -> Expr:
    """Whether lo <= e < hi for every (e, lo, hi); what is proven is not asked."""
    made: Expr | None = None
    for e, lo, hi in ranges:
        for proven, op, a, b in ((prove_le(lo, e), "ge", e, lo), (prove_lt(e, hi), "lt", e, hi)):
            if proven is None:
                made = both(made, alu(op, index(a), index(b)))
            elif not proven:
                return const(False, dt.bool_)
    return const(True, dt.bool_) if made is None else made


# Rewriting


class Rewriter:
    """Copies expressions with axis variables replaced and loads seen to.

    `axes` maps variables to index expressions; `loads(e)`, for a load whose index is rewritten
    already, returns its replacement or None. `binds` knows the bind variables met; those whose
    value changes get new variables, which `made` collects.
    """

    def __init__(self, axes: Mapping[Any, Any], loads: Callable[[Expr], Expr | None] | None,
                 binds: Mapping[Any, Bind], fresh: Callable[[Bind], Any]) -> None:
        self.axes, self.loads, self.binds, self.fresh = dict(axes), loads, binds, fresh
        self.memo: dict[Expr, Expr] = {}
        self.moved: set[Any] = set(axes)

    def index(self, e: Any) -> Any:
        if isinstance(e, int):
            return e
        free = sym.free(e)
        for v in free:
            if v in self.binds and v not in self.axes:
                self.axes[v] = self.bind(v)
        return sym.substitute(e, {v: self.axes[v] for v in free if v in self.axes})

    def bind(self, var: Any) -> Any:
        b = self.binds[var]
        value = self(b.value)
        mask = None if b.mask is None else self(b.mask)
        if value is b.value and mask is b.mask:
            return var
        return self.fresh(Bind(None, value, self.index(b.bound), b.wrap, mask))

    def __call__(self, root: Expr) -> Expr:
        memo = self.memo
        stack = [root]
        while stack:
            e = stack[-1]
            if e in memo:
                stack.pop()
                continue
            waiting = [c for c in e.children if c not in memo]
            if waiting:
                stack += waiting
                continue
            memo[stack.pop()] = self.rebuilt(e)
        return memo[root]

    def rebuilt(self, e: Expr) -> Expr:
        """`e` over its rewritten children."""
        memo, f = self.memo, e.fields
        kind = e.kind
        if kind == "Load":
            buffer, idx, mask, other = f
            idx = tuple(map(self.index, idx))
            mask = memo[mask] if mask is not None else None
            other = memo[other] if other is not None else None
            made = load(buffer, idx, mask, other)
            if self.loads is not None and made.kind == "Load":
                return self.loads(made) or made
            return made
        if kind == "Alu":
            args = [memo[a] if isinstance(a, Expr) else a for a in f[1:]]
            return primitive(f[0], e.dtype, args)
        if kind == "Cast":
            return cast(memo[f[0]], e.dtype)
        if kind == "Select":
            return select(*(memo[a] for a in f))
        if kind == "Index":
            return index(self.index(f[0]))
        if kind == "Reduce":
            return Expr(kind, e.dtype, f[0], f[1], tuple(memo[a] for a in f[2]), f[3])
        if kind == "Scan":
            axis = f[1]._replace(var=self.index(f[1].var))
            return Expr(kind, e.dtype, f[0], axis, tuple(memo[a] for a in f[2]), f[3])
        if kind == "Random":
            return Expr(kind, e.dtype, memo[f[0]], memo[f[1]], self.index(f[2]))
        return e


# Costs: rough instruction counts of one element, transcendental functions heavy.

WEIGHTS = {"div": 4, "sqrt": 5, "rsqrt": 5, "floor_divide": 6, "remainder": 6, "pow": 30,
           "add": 1, "sub": 1, "mul": 1, "neg": 1, "abs": 1}


NODES = {"Const": 0, "Random": 12, "Reduce": 100, "Scan": 100}


@functools.cache
def op_weight(op: Op) -> int:
    """The cost of one application of a pointwise op."""
    found = WEIGHTS.get(op.name)
    if found is not None:
        return found
    text = op.c if isinstance(op.c, str) else next(iter(op.c.values()), "") if op.c else ""
    cheap = ("maximum", "minimum", "clamp", "abs")
    return 10 if "lehr_" in text and not any(c in text for c in cheap) else 1


def sure(b: Bind) -> bool:
    """Whether an index lies below its bound whatever the data: it was clamped."""
    low, high = _ends(b.value)
    return low is not None and low >= 0 and high is not None and prove_lt(high, b.bound) is True


def _ends(e: Expr) -> tuple[Any, Any]:
    """(least, greatest) that an integer may be; None where that is not known."""
    if e.kind == "Const":
        return e.fields[0], e.fields[0]
    if e.kind == "Index":
        return sym.interval(e.fields[0])
    if e.kind == "Cast" and widens(e.fields[0].dtype, e.dtype):
        return _ends(e.fields[0])
    if e.kind == "Alu" and e.fields[0].name in ("maximum", "minimum"):
        lows, highs = zip(*map(_ends, e.fields[1:]), strict=True)
        if e.fields[0].name == "maximum":   # of two is at least each
            return (max((x for x in lows if x is not None), default=None),
                    None if None in highs else max(highs))
        return (None if None in lows else min(lows),
                min((x for x in highs if x is not None), default=None))
    return None, None


def divides(e: Expr) -> bool:
    """Whether the application of an op stops the program where a number is 0."""
    if e.kind != "Alu" or e.fields[0].name not in DIVIDING or e.dtype.category != dt.INT:
        return False
    by = e.fields[2]
    return by.kind != "Const" or by.fields[0] == 0


def weight(e: Expr) -> int:
    """The cost of one node, its children excluded."""
    if e.kind == "Alu":
        return op_weight(e.fields[0])
    return NODES.get(e.kind, 1)
