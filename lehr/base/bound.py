"""Bounds of interned expressions: what is proven non-negative, and min and max, which follow from
it.

Variables with a symbolic upper end (a loop index below a symbolic extent) make plain intervals
useless: ``j < n`` is lost when n is unbounded. `nonneg` therefore replaces variables by the end of
their range that makes the expression smallest, one by one and exactly, so that what depends on the
same size cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lehr.base.poly import (
    BOUND,
    DIV,
    INF,
    MAXIMUM,
    MINIMUM,
    MODULO,
    SPLIT,
    Expr,
    Sym,
    Table,
    Var,
    accumulate,
    factors_of,
    free_of,
    product,
    settle,
    terms_of,
)

# Eliminations tried per question: index expressions have few variables, and a question must stay
# cheap.
STEPS = 12
# Polynomials of more terms are left alone: multiplying out symbolic divisors squares them.
WIDTH = 32
# How many nested min/max a proof may split into cases.
CASES = 3


class Min(Sym):
    """The least of two or more expressions, in structural order."""

    __slots__ = ("args",)
    op = "min"
    args: tuple[Expr, ...]

    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def __reduce__(self) -> Any:
        return rebuild, (False, self.args)


class Max(Sym):
    """The greatest of two or more expressions, in structural order."""

    __slots__ = ("args",)
    op = "max"
    args: tuple[Expr, ...]

    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def __reduce__(self) -> Any:
        return rebuild, (True, self.args)


def rebuild(greatest: bool, args: Iterable[Expr]) -> Expr:
    """Unpickling: the same minimum or maximum, interned here."""
    first, *rest = args
    for arg in rest:
        first = (MAXIMUM if greatest else MINIMUM)(first, arg)
    return first


def nonneg(d: Expr, cases: int = CASES) -> bool:
    """Whether ``d >= 0`` is proven for every value of its variables."""
    if isinstance(d, int):
        return d >= 0
    if d.lo >= 0:
        return True
    if d.hi < 0:
        return False
    lowest = _sink(d)
    if _settled(lowest):
        return True
    if d.flags & DIV:
        scaled = without_quotients(d)
        if _settled(scaled) or (isinstance(scaled, Sym) and _settled(_sink(scaled))):
            return True
    if cases == 0:
        return False
    split = d if d.flags & SPLIT else lowest
    return isinstance(split, Sym) and bool(split.flags & SPLIT) and _by_cases(split, cases)


def _settled(d: Expr) -> bool:
    return d >= 0 if isinstance(d, int) else bool(d.lo >= 0)


def _sink(d: Sym) -> Expr:
    """A lower bound of `d`: atoms replaced by the end of their range at which `d` is least.

    Stops as soon as the interval of the result decides, and where a symbolic end brings in a min or
    max, which is to be split before more is replaced.
    """
    tried: set[Sym] = set()
    for _ in range(STEPS):
        atom = _deepest(d, tried)
        if atom is None:
            break
        tried.add(atom)
        slope = _slope(d, atom)
        end = None if slope is None else _lower_end(atom, slope)
        if slope is None or end is None:
            continue
        smaller = d + slope * (end - atom)
        if isinstance(smaller, int) or smaller.lo >= 0 or smaller.flags & ~d.flags & SPLIT:
            return smaller
        d = smaller
    return d


def _rising(slope: Expr) -> bool | None:
    """Whether something with this slope never falls (True) or never rises (False)."""
    lo, hi = (slope, slope) if isinstance(slope, int) else (slope.lo, slope.hi)
    return True if lo >= 0 else False if hi <= 0 else None


def _lower_end(atom: Sym, slope: Expr) -> Expr | None:
    """The end of an atom's range where ``slope * atom`` is least, if it is known."""
    rising = _rising(slope)
    if rising is None:
        return None
    return low_end(atom) if rising else high_end(atom)


def _deepest(d: Sym, tried: set[Sym]) -> Sym | None:
    """The untried atom whose range depends on the most other variables."""
    best: Sym | None = None
    rank = (-1, 0)
    for f, _ in terms_of(d):
        for atom in factors_of(f):
            if atom in tried:
                continue
            depth = atom.depth if isinstance(atom, Var) else 1 if atom.flags & BOUND else 0
            if atom.op == "mod" and not isinstance(atom.den, int):  # type: ignore[attr-defined]
                depth += 1 + max((v.depth for v in free_of(atom.den)), default=0)  # type: ignore
            if (depth, atom.order) > rank or best is None:
                best, rank = atom, (depth, atom.order)
    return best


def _slope(d: Sym, atom: Sym) -> Expr | None:
    """The factor of `atom` in `d`, or None where `atom` occurs in a power."""
    terms: dict[Sym, int] = {}
    const = 0
    for f, c in terms_of(d):
        if f is atom:
            const += c
        elif f.op == "mul":
            rest = list(factors_of(f))
            if atom in rest:
                rest.remove(atom)
                if atom in rest:
                    return None
                const += accumulate(terms, product(rest), c)
    return settle(terms, const)


def low_end(atom: Sym) -> Expr | None:
    """A lower bound that is exact for a variable; None where there is none."""
    return None if atom.lo == -INF else atom.lo  # type: ignore[no-any-return]


def high_end(atom: Sym) -> Expr | None:
    """An upper bound, symbolic where the range of `atom` is; None where there is none."""
    if isinstance(atom, Var) and atom.bound is not None:
        return atom.bound
    if atom.op == "mod" and isinstance(atom.den, Sym) and atom.den.lo >= 0:  # type: ignore
        return atom.den - 1  # type: ignore[attr-defined, no-any-return]
    return None if atom.hi == INF else atom.hi  # type: ignore[no-any-return]


def without_quotients(d: Expr) -> Expr:
    """`d` times a positive factor, with ``q // b`` rewritten as ``(q - q % b) / b`` where b is
    positive.
    """
    for _ in range(STEPS):
        found = None if isinstance(d, int) or len(terms_of(d)) > WIDTH else _quotient(d)
        if found is None:
            return d
        term, coeff, atom = found
        rest = list(factors_of(term))
        rest.remove(atom)
        den: Expr = atom.den  # type: ignore[attr-defined]
        if isinstance(den, int):
            shared = math.gcd(den, coeff)
            den, coeff = den // shared, coeff // shared
        others = d - term * found[1]
        exact = atom.num - MODULO(atom.num, atom.den)  # type: ignore[attr-defined]
        d = others * den + coeff * (product(rest) * exact)
    return d


def _quotient(d: Sym) -> tuple[Sym, int, Sym] | None:
    if not d.flags & DIV:
        return None
    for f, c in terms_of(d):
        for atom in factors_of(f):
            if atom.op == "floordiv":
                den = atom.den  # type: ignore[attr-defined]
                if isinstance(den, int) or den.lo >= 0:
                    return f, c, atom
    return None


def _by_cases(d: Sym, cases: int) -> bool:
    """Splits on one min or max: it equals one of its arguments, and one side of it is enough for
    one sign.
    """
    for f, _ in terms_of(d):
        for atom in factors_of(f):
            if atom.op not in ("min", "max"):
                continue
            slope = _slope(d, atom)
            if slope is None:
                continue
            easy = _rising(slope)
            if atom.op == "min" and easy is not None:
                easy = not easy
            check: Callable[[Iterable[bool]], bool] = any if easy else all
            args = atom.args  # type: ignore[attr-defined]
            return check(nonneg(d + slope * (arg - atom), cases - 1) for arg in args)
    return False


_mins = Table()
_maxs = Table()


def _extremum(kind: type[Min] | type[Max], a: Expr, b: Expr) -> Expr:
    args: list[Expr] = []
    for e in (a, b):
        for arg in e.args if isinstance(e, kind) else (e,):
            _include(kind, args, arg)
    if len(args) == 1:
        return args[0]
    args.sort(key=lambda e: (0, e) if isinstance(e, int) else (1, e.order))
    key = tuple(args)
    table = _mins if kind is Min else _maxs
    found = table.find(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    self = object.__new__(kind)
    self.args = key
    ends = [(e, e) if isinstance(e, int) else (e.lo, e.hi) for e in key]
    pick = min if kind is Min else max
    self.lo, self.hi = pick(lo for lo, _ in ends), pick(hi for _, hi in ends)
    self.div = math.gcd(*(e if isinstance(e, int) else e.div for e in key))
    self.flags = SPLIT
    for e in key:
        self.flags |= 0 if isinstance(e, int) else e.flags & BOUND
    code = 2 if kind is Min else 3
    self.order = hash((code, *(e if isinstance(e, int) else e.order for e in key)))
    self.below = None
    return table.enter(key, self)  # type: ignore[no-any-return]


def _include(kind: type[Min] | type[Max], args: list[Expr], new: Expr) -> None:
    """Adds an argument unless another one makes it superfluous, and drops those that it makes
    superfluous.
    """
    kept: list[Expr] = []
    for i, old in enumerate(args):
        if old is new or _within(kind, old, new):
            return
        if not _within(kind, new, old):
            kept.append(args[i])
    kept.append(new)
    args[:] = kept


def _within(kind: type[Min] | type[Max], a: Expr, b: Expr) -> bool:
    """Whether `a` decides against `b`: always at most (Min) or at least (Max) as large."""
    low, high = (a, b) if kind is Min else (b, a)
    if isinstance(high, Max) and low in high.args or isinstance(low, Min) and high in low.args:
        return True
    difference = high - low
    if isinstance(difference, int):
        return difference >= 0
    if difference.lo >= 0:
        return True
    return bool(difference.flags & BOUND) and nonneg(difference, 0)


def _minimum(a: Expr, b: Expr) -> Expr:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _extremum(Min, a, b)


def _maximum(a: Expr, b: Expr) -> Expr:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _extremum(Max, a, b)


MINIMUM.build, MAXIMUM.build = _minimum, _maximum
