"""Reductions and running values in C.

A fold along a row has LANES partial results, combined in pairs at the end: compilers vectorise
that, and neither processor nor thread count changes the result. A fold across rows (along the
strip) has one partial result a column. Long float32 sums go to a double every so often.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.compiler.emit import value
from lehr.compiler.emit.body import LANES, Body, Loop
from lehr.compiler.loop.ir import MONOIDS, Expr

BLOCK = 4096  # float32 numbers summed along a row before a double takes over
DEEP = 256  # and along a column


class Fold(NamedTuple):
    """One monoid over one row: `parts` are the Exprs of its results, `state` its C variables of the
    types `kinds`, `total` a double that float sums go to."""

    monoid: str
    args: tuple[Expr, ...]
    parts: tuple[Expr, ...]
    state: tuple[str, ...]
    kinds: tuple[str, ...]
    total: str = ""

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(a.dtype for a in self.args)

    @property
    def identity(self) -> list[str]:
        return [value.limit(i, d)
                for i, d in zip(MONOIDS[self.monoid].identity, self.dtypes, strict=True)]


def gather(b: Body, exprs: Sequence[Expr]) -> list[Fold]:
    """The folds of reductions or running values, each once."""
    found: dict[Any, list[Expr]] = {}
    for e in exprs:
        found.setdefault((e.fields[0], e.fields[1], e.fields[2]), []).append(e)
    return [Fold(monoid, args, tuple(parts), tuple(b.fresh("acc") for _ in args),
                 tuple(value.register(a.dtype) for a in args))
            for (monoid, _, args), parts in found.items()]


# Combining


class _Text(ast.NodeVisitor):
    """A monoid's expression as C over register names; branch-free."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Expression(self, node: ast.Expression) -> str:
        return self.visit(node.body)

    def visit_Name(self, node: ast.Name) -> str:
        return self.names[node.id]

    def visit_IfExp(self, node: ast.IfExp) -> str:
        test, yes, no = map(self.visit, (node.test, node.body, node.orelse))
        return f"{test} ? {yes} : {no}"

    def visit_BoolOp(self, node: ast.BoolOp) -> str:
        sign = " & " if isinstance(node.op, ast.And) else " | "
        return f"({sign.join(map(self.visit, node.values))})"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> str:
        return f"!{self.visit(node.operand)}"

    def visit_Compare(self, node: ast.Compare) -> str:
        sign = {ast.Gt: ">", ast.Lt: "<", ast.NotEq: "!=", ast.Eq: "=="}[type(node.ops[0])]
        return f"({self.visit(node.left)} {sign} {self.visit(node.comparators[0])})"

    def visit_BinOp(self, node: ast.BinOp) -> str:
        sign = {ast.Add: "+", ast.Mult: "*", ast.BitOr: "|", ast.BitAnd: "&"}[type(node.op)]
        return f"{self.visit(node.left)} {sign} {self.visit(node.right)}"


def combine(monoid: str, left: Sequence[str], right: Sequence[str], dtypes: Sequence[DType]
            ) -> list[str]:
    """The components of a combined state; `left` and `right` are names."""
    names = {f"a{i}": n for i, n in enumerate(left)} | {f"b{i}": n for i, n in enumerate(right)}
    made = []
    for text, dtype in zip(MONOIDS[monoid].combine, dtypes, strict=True):
        c = _Text(names).visit(ast.parse(text, mode="eval"))
        made.append(f"({value.register(dtype)})({c})" if dtype.short in ("u8", "i8", "i16") else c)
    return made


def update(b: Body, f: Fold, at: str, values: Sequence[str]) -> None:
    """Adds values to the state; `at` indexes the state, "" where it is no array."""
    state = [name + at for name in f.state]
    if f.monoid in ONCE:
        values = [value.atom(v) for v in values]
    else:
        values = [_let(b, "v", value.register(d), v)
                  for d, v in zip(f.dtypes, values, strict=True)]
    made = combine(f.monoid, state, values, f.dtypes)
    if len(made) > 1:
        made = [_let(b, "n", k, m) for k, m in zip(f.kinds, made, strict=True)]
    b.out.add(*(f"{s} = {m};" for s, m in zip(state, made, strict=True)))


# Monoids that use each operand once.
ONCE = ("sum", "prod", "any", "all")


def _let(b: Body, stem: str, kind: str, text: str) -> str:
    name = b.fresh(stem)
    b.out.add(f"const {kind} {name} = {text};")
    return name


# A way to keep the states of folds: how many there are, and how the one at hand is named.


class Way(NamedTuple):
    size: str  # "": one variable
    at: str  # the index of the state at hand
    each: str  # the head of a loop over all states
    most: int  # float32 additions into one state before a double takes over


SINGLE = Way("", "", "", DEEP)
LANE = Way(str(LANES), "[l]", f"for (int l = 0; l < {LANES}; l++)", BLOCK)


def strip(width: int) -> Way:
    return Way(str(width), "[c]", "for (int64_t c = 0; c < width; c++)", DEEP)


class Folding:
    """Folds over a loop nest, beside stores."""

    def __init__(self, b: Body, exprs: Sequence[Expr], order: Sequence[Loop], way: Way) -> None:
        self.b, self.way, self.order = b, way, list(order)
        self.level = self._long()
        self.folds = [self._totalled(f) for f in gather(b, exprs)]

    def _long(self) -> int:
        """The loop each turn of which is summed apart; the last: its blocks are. -1: none."""
        inner, loops = 1, [x for x in self.order if x.kind != "strip"]
        for n in range(len(loops) - 1, -1, -1):
            points = loops[n].points
            if points is None or inner * points > 2 * self.way.most:
                return n
            inner *= points
        return -1

    def _totalled(self, f: Fold) -> Fold:
        long = self.level >= 0 and f.monoid == "sum" and f.dtypes[0] is dt.float32
        return f._replace(total=self.b.fresh("total")) if long else f

    def run(self, exprs: Sequence[Any], stores: Callable[[], None],
            finish: Callable[[], None] | None = None) -> None:
        """Emits all of it; results are known afterwards, or where `finish` puts them."""
        b, way = self.b, self.way
        self.begin()
        needed = [a for f in self.folds for a in f.args]

        def body() -> None:
            for f in self.folds:
                update(b, f, way.at, [b.spell(a) for a in f.args])
            stores()

        order, wide = list(self.order), any(f.total for f in self.folds)
        last = max((n for n, x in enumerate(order) if x.kind != "strip"), default=-1)
        if wide and self.level == last:
            order[last] = order[last]._replace(low="begin", high="end", points=None)
        b.loops(order, [*needed, *exprs], body,
                lambda n: self._around(n, last) if wide else contextlib.nullcontext())
        for fold in self.folds:
            if way is LANE and not fold.total:
                tree(b, fold)
        (finish or self.finish)()

    @contextlib.contextmanager
    def _around(self, n: int, last: int) -> Iterator[None]:
        out, loop = self.b.out, self.order[n]
        if n == last == self.level:
            most = BLOCK if self.way is LANE else DEEP
            head = f"for (int64_t begin = {loop.low}; begin < {loop.high}; begin += {most})"
            with out.block(head):
                out.add(f"const int64_t more = begin + {most};",
                        f"const int64_t end = more < {loop.high} ? more : {loop.high};")
                yield
                self._flush()
        else:
            yield
            if n == self.level + 1 and self.level != last:
                self._flush()

    def begin(self) -> None:
        out, way = self.b.out, self.way
        for f in self.folds:
            for name, kind, first in zip(f.state, f.kinds, f.identity, strict=True):
                out.add(f"{kind} {name}[{way.size}];" if way.size else f"{kind} {name} = {first};")
            if f.total:
                many = way.size and way is not LANE
                out.add(f"double {f.total}[{way.size}];" if many else f"double {f.total} = 0;")
        if way.size:
            with out.block(way.each):
                for f in self.folds:
                    out.add(*(f"{n}{way.at} = {i};"
                              for n, i in zip(f.state, f.identity, strict=True)))
                    if f.total and way is not LANE:
                        out.add(f"{f.total}{way.at} = 0;")

    def _flush(self) -> None:
        """Moves float sums to their doubles."""
        out, way = self.b.out, self.way
        for f in self.folds:
            if not f.total:
                continue
            (name,) = f.state
            if way is LANE:
                tree(self.b, f)
                out.add(f"{f.total} += {name}[0];", f"{way.each} {name}[l] = 0;")
            elif way.size:
                with out.block(way.each):
                    out.add(f"{f.total}[c] += {name}[c];", f"{name}[c] = 0;")
            else:
                out.add(f"{f.total} += {name};", f"{name} = 0;")

    def finish(self) -> None:
        """Names the results."""
        b, way = self.b, self.way
        for f in self.folds:
            if way.size and way is not LANE:
                if f.total:
                    b.out.add(f"{way.each} {f.state[0]}[c] = (float){f.total}[c];")
                for name, kind in zip(f.state, f.kinds, strict=True):
                    b.declare(name, f"const {kind} *{{}}")
                for e in f.parts:
                    b.let(e, f"{f.state[e.fields[3]]}[c]", f.state[e.fields[3]])
                continue
            for e in f.parts:
                name = f.state[e.fields[3]] + ("[0]" if way is LANE else "")
                b.assign(e, f"(float){f.total}" if f.total else name)


def tree(b: Body, f: Fold) -> None:
    """Combines the lanes in pairs, into lane 0."""
    with b.out.block(f"for (int h = {LANES // 2}; h > 0; h /= 2)"), \
            b.out.block("for (int l = 0; l < h; l++)"):
        update(b, f, "[l]", [f"{n}[l + h]" for n in f.state])


class Running:
    """Running values along the last axis of a loop nest."""

    def __init__(self, b: Body, exprs: Sequence[Expr], way: Way) -> None:
        self.b, self.way = b, way
        # A double for float sums: a long row has no halves to add up.
        self.folds = [f._replace(kinds=("double",)) if f.monoid == "sum"
                      and f.dtypes[0] is dt.float32 else f for f in gather(b, exprs)]
        self.of = {e: f for f in self.folds for e in f.parts}

    def begin(self) -> None:
        """Before the loop along the axis."""
        out, way = self.b.out, self.way
        for f in self.folds:
            for name, kind, first in zip(f.state, f.kinds, f.identity, strict=True):
                out.add(f"{kind} {name}[{way.size}];" if way.size else f"{kind} {name} = {first};")
                if way.size:
                    out.add(f"{way.each} {name}{way.at} = {first};")

    def advance(self, e: Expr) -> None:
        """Moves the state of `e` on by a point, and names the values."""
        b, f = self.b, self.of[e]
        if any(b.known(part) is not None for part in f.parts):
            b.assign(e, self._text(f, e))
            return
        update(b, f, self.way.at, [b.spell(a) for a in f.args])
        b.assign(e, self._text(f, e))

    def _text(self, f: Fold, e: Expr) -> str:
        part = e.fields[3]
        cast = f"({value.register(e.dtype)})" if f.kinds[part] != value.register(e.dtype) else ""
        return f"{cast}{f.state[part]}{self.way.at}"
