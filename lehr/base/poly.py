"""Interned integer expressions: the nodes, the intern tables and polynomial arithmetic.

A value is a plain ``int`` or a `Sym`. A `Sym` is immutable and interned: two expressions of the
same structure are the same object, so ``is``, ``==`` and ``hash`` cost nothing. Everything is kept
as a canonical sum of products::

    Sum     const + coeff*factor + ...        factor: an atom or a Product of two or more atoms
    atom    Var | FloorDiv | Mod | Min | Max

Import `lehr.base.sym`, not this file: it also loads the rules for division (`divide`) and for
bounds (`bound`).
"""

from __future__ import annotations

import keyword
import math
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Union

Expr = Union[int, "Sym"]
Term = tuple["Sym", int]

INF = math.inf
# Flags: what occurs at polynomial level (SPLIT: min, max), or anywhere (BOUND: a Var with a
# symbolic upper end).
DIV, MOD, SPLIT, BOUND = 1, 2, 4, 8
MEMO_LIMIT = 1 << 16


class Asker(threading.local):
    """Whom a program that compares sizes as numbers asks, in this thread: `ask(op, a, b)` and
    `settle(e)`; None: comparisons are structural. See `proof.asking`.
    """

    decider: Any = None


ASKER = Asker()


class Rule:
    """An operator: the memo of its results and the function that builds a new one.

    ``build`` is set by the file that owns the operator, so that `Sym` needs none of them.
    """

    __slots__ = ("build", "memo", "name")

    def __init__(self, name: str, build: Callable[[Any, Any], Expr] | None = None) -> None:
        self.name = name
        self.memo: dict[tuple[Expr, Expr], Expr] = {}
        self.build: Any = build

    def __call__(self, a: Expr, b: Expr) -> Expr:
        """Applies the operator to checked operands (`int` or `Sym`)."""
        memo = self.memo
        key = (a, b)
        result = memo.get(key)
        if result is None:
            # The index of an axis of extent 1 is a constant; nothing else can be a Sym with one
            # value.
            if isinstance(a, Var) and a.lo == a.hi:
                a = a.lo
            if isinstance(b, Var) and b.lo == b.hi:
                b = b.lo
            held, ASKER.decider = ASKER.decider, None
            try:
                result = self.build(a, b)
            finally:
                ASKER.decider = held
            if len(memo) >= MEMO_LIMIT:
                memo.clear()
            memo[key] = result
        return result


ADD, SUB, MUL = Rule("+"), Rule("-"), Rule("*")
FLOORDIV, MODULO = Rule("//"), Rule("%")
MINIMUM, MAXIMUM = Rule("min"), Rule("max")
# Slots of which only `build` is used. FOLD rejoins quotients and remainders in a dict of terms and
# returns the new constant; TEXT spells an expression.
FOLD, TEXT = Rule("fold"), Rule("text")


def integer(value: Any) -> Expr | None:
    """The operand as `int` or `Sym` (numpy integers and bools become `int`), or None for any other
    type.
    """
    if value.__class__ is int or isinstance(value, Sym):
        return value  # type: ignore[no-any-return]
    try:
        return int(operator.index(value))
    except TypeError:
        return None


def _binary(rule: Rule, swapped: bool = False) -> Callable[[Sym, Any], Any]:
    def apply(self: Sym, other: Any) -> Any:
        if other.__class__ is not int and not isinstance(other, Sym):
            other = integer(other)
            if other is None:
                return NotImplemented
        return rule(other, self) if swapped else rule(self, other)

    return apply


def _ordered(symbol: str) -> Callable[[Sym, Any], bool]:
    def refuse(self: Sym, other: Any) -> bool:
        if ASKER.decider is not None:
            if isinstance(other, float):
                return bool(_FLOATS[symbol](ASKER.decider.settle(self), other))
            if not isinstance(other, int | Sym):
                return NotImplemented
            return bool(ASKER.decider.ask(symbol, self, other))
        raise TypeError(
            f"'{symbol}' on a symbolic integer has no truth value: use prove_* for what holds for "
            f"all sizes, or decide(a, '{symbol}', b) to choose and record the fact"
        )

    return refuse


_FLOATS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Sym:
    """A symbolic integer: `Var` under ``+ - * // % **``, `minimum`, `maximum` and `ceildiv`.

    ``==`` is structural identity and returns a bool. ``<`` and truth raise `TypeError`. Where an
    `ASKER` is in force, all of them, and conversions to `int`, are decided as for numbers. ``lo``
    and ``hi`` (plus or minus infinity where unbounded) hold every value the expression can take;
    ``div`` divides every value. An expression is defined where no divisor in it is zero;
    simplification may widen that domain.
    """

    __slots__ = ("__weakref__", "below", "div", "flags", "hi", "lo", "order")
    __array_ufunc__ = None
    scalar_category: ClassVar[int] = 1  # `dtype.INT`: ops take a size where they take a number
    op: ClassVar[str]
    lo: Any
    hi: Any
    div: int
    order: int
    flags: int
    below: frozenset[Var] | None

    __add__ = __radd__ = _binary(ADD)
    __sub__ = _binary(SUB)
    __rsub__ = _binary(SUB, swapped=True)
    __mul__ = __rmul__ = _binary(MUL)
    __floordiv__ = _binary(FLOORDIV)
    __rfloordiv__ = _binary(FLOORDIV, swapped=True)
    __mod__ = _binary(MODULO)
    __rmod__ = _binary(MODULO, swapped=True)
    __lt__, __le__, __gt__, __ge__ = _ordered("<"), _ordered("<="), _ordered(">"), _ordered(">=")

    def parts(self) -> tuple[Expr, ...]:
        """What the expression is directly made of (nothing, for a variable)."""
        return ()

    def __neg__(self) -> Expr:
        return MUL(self, -1)

    def __pos__(self) -> Expr:
        return self

    def __pow__(self, power: int) -> Expr:
        if power.__class__ is not int or power < 0:
            raise TypeError(
                f"a symbolic integer can be raised to a non-negative int only, not to {power!r}"
            )
        result: Expr = 1
        for _ in range(power):
            result = MUL(result, self)
        return result

    def __eq__(self, other: Any) -> Any:
        if self is other:
            return True
        decider = ASKER.decider
        if decider is None or not isinstance(other, int | Sym):
            return NotImplemented
        return decider.ask("==", self, other)

    __hash__ = object.__hash__

    def settled(self) -> int:
        """The value, where somebody can be asked for it."""
        if ASKER.decider is None:
            raise TypeError("a symbolic integer is not an int: its value is not known")
        return int(ASKER.decider.settle(self))

    __index__ = __int__ = __trunc__ = settled

    def __float__(self) -> float:
        return float(self.settled())

    def __truediv__(self, other: Any) -> Any:
        return self.settled() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.settled()

    def __bool__(self) -> bool:
        if ASKER.decider is not None:
            return bool(ASKER.decider.ask("!=", self, 0))
        raise TypeError(
            "a symbolic integer has no truth value: use prove_* for what holds for all sizes, "
            "or decide(a, '!=', 0) to choose and record the fact"
        )

    def __repr__(self) -> str:
        return TEXT.build(self)  # type: ignore[no-any-return]

    def __copy__(self) -> Sym:
        return self

    def __deepcopy__(self, memo: Any) -> Sym:
        return self


class _Ref(weakref.ref[Any]):
    """A weak reference that knows its key; one per node, so it has no Python-level constructor."""

    __slots__ = ("key",)
    key: Any


class Table:
    """Weak interning: structural key -> the one live node. `built` counts the constructions of all
    tables.
    """

    __slots__ = ("drop", "refs")
    built: ClassVar[int] = 0
    # On the class: references die during interpreter shutdown, when module globals are gone.
    lock: ClassVar[threading.RLock] = threading.RLock()  # type: ignore[valid-type]

    def __init__(self) -> None:
        self.refs: dict[Any, _Ref] = {}
        self.drop: Callable[[Any], None] = self._drop

    def find(self, key: Any) -> Any:
        """The live node of `key`, or None."""
        ref = self.refs.get(key)
        return None if ref is None else ref()

    def enter(self, key: Any, node: Any) -> Any:
        """Enters `node`, or returns the one that another thread entered first."""
        with self.lock:
            present = self.find(key)
            if present is not None:
                return present
            ref = self.refs[key] = _Ref(node, self.drop)
            ref.key = key
            Table.built += 1
        return node

    def _drop(self, ref: _Ref) -> None:
        with self.lock:
            if self.refs.get(ref.key) is ref:
                del self.refs[ref.key]


def _renew_lock() -> None:
    """In a forked child: the thread that held the lock may not exist there."""
    Table.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def built() -> int:
    """The number of expression nodes constructed so far (interned hits are not constructions)."""
    return Table.built


_vars, _sums, _products = Table(), Table(), Table()
_none: frozenset[Any] = frozenset()
_reserved = frozenset(keyword.kwlist) | {"min", "max"}


def _range(name: str, lo: int | None, hi: Any, divisor: int) -> tuple[Any, Any]:
    """The least and the largest multiple of `divisor` in the range."""
    low: Any = -INF if lo is None else int(lo)
    top = hi.hi if isinstance(hi, Sym) else hi if hi == INF else int(hi)
    if top == low - 1:
        top = low
    if low != -INF:
        low = -(-low // divisor) * divisor
    if top != INF:
        top = top // divisor * divisor
    if isinstance(hi, Sym):
        top = max(top, low)
    if top < low:
        raise ValueError(f"no value for {name!r}: lo={lo}, hi={hi}, divisor={divisor}")
    return low, top


class Var(Sym):
    """A leaf: a size or a loop index, an integer in ``[lo, hi]`` that `divisor` divides.

    ``hi`` is an `int`, None (unbounded) or a `Sym`: the index of a loop over n has ``hi = n - 1``.
    ``lo`` is an `int` or None. The empty range ``hi == lo - 1`` of a zero-size axis is widened to
    ``lo``; a smaller ``hi`` is a `ValueError`.
    """

    __slots__ = ("bound", "depth", "name")
    op = "var"
    name: str
    bound: Sym | None
    depth: int

    def __new__(
        cls, name: str, lo: int | None = 0, hi: Expr | None = None, divisor: int = 1
    ) -> Var:
        if not name.isidentifier() or name in _reserved:
            raise ValueError(f"a Var's name must be an identifier and no keyword, not {name!r}")
        if divisor < 1:
            raise ValueError(f"divisor of {name!r} must be at least 1, not {divisor}")
        if isinstance(hi, Var) and hi.lo == hi.hi:
            hi = int(hi.lo)
        bound = hi if isinstance(hi, Sym) else None
        low, top = _range(name, lo, INF if hi is None else hi, divisor)
        key = (name, low, top, divisor, bound)
        found = _vars.find(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        self = object.__new__(cls)
        self.name, self.lo, self.hi, self.div, self.bound = name, low, top, divisor, bound
        self.depth = 0 if bound is None else 1 + max((v.depth for v in free_of(bound)), default=0)
        self.flags = 0 if bound is None else BOUND
        # Orders must not depend on the run (texts are cache keys): no str hash, and None has none
        # before 3.12.
        code = int.from_bytes(name.encode(), "little")
        tail = 0 if bound is None else bound.order
        self.order = hash((code, hash(low), hash(top), divisor, tail))
        self.below = None
        return _vars.enter(key, self)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        lo = None if self.lo == -INF else self.lo
        hi = self.bound if self.bound is not None else None if self.hi == INF else self.hi
        return Var, (self.name, lo, hi, self.div)


class Sum(Sym):
    """``const + sum(coeff * factor)``; `terms` are (factor, coeff) pairs in structural order."""

    __slots__ = ("const", "terms")
    op = "sum"
    terms: tuple[Term, ...]
    const: int

    # Computed when asked for: most sums are never inside another node.
    @property
    def div(self) -> int:  # type: ignore[override]
        return math.gcd(self.const, *[c * f.div for f, c in self.terms])

    @property
    def order(self) -> int:  # type: ignore[override]
        return hash((self.const, *[c ^ f.order for f, c in self.terms]))

    def parts(self) -> tuple[Expr, ...]:
        return tuple(f for f, _ in self.terms)

    def __reduce__(self) -> Any:
        return rebuild_sum, (self.terms, self.const)


class Product(Sym):
    """Two or more atoms multiplied, in structural order, a power as a repetition."""

    __slots__ = ("factors",)
    op = "mul"
    factors: tuple[Sym, ...]

    def parts(self) -> tuple[Expr, ...]:
        return self.factors

    def __reduce__(self) -> Any:
        return rebuild_product, (self.factors,)


def free_of(e: Expr) -> frozenset[Var]:
    """The variables that occur in `e`."""
    if isinstance(e, int):
        return _none
    if isinstance(e, Var):
        return frozenset((e,))
    if e.below is None:
        result: frozenset[Var] = _none
        for part in e.parts():
            more = free_of(part)
            if not more <= result:
                result = more | result if result else more
        e.below = result
    return e.below


def terms_of(e: Sym) -> tuple[Term, ...]:
    return e.terms if isinstance(e, Sum) else ((e, 1),)


def const_of(e: Sym) -> int:
    return e.const if isinstance(e, Sum) else 0


def factors_of(f: Sym) -> tuple[Sym, ...]:
    return f.factors if isinstance(f, Product) else (f,)


def _order(f: Sym) -> int:
    return f.order


def _term_order(term: Term) -> int:
    return term[0].order


def interval_of(terms: Iterable[Term], const: int) -> tuple[Any, Any]:
    """Bounds of ``const + sum(coeff * factor)``, term by term."""
    lo: Any = const
    hi: Any = const
    for f, c in terms:
        if c > 0:
            lo += c * f.lo
            hi += c * f.hi
        else:
            lo += c * f.hi
            hi += c * f.lo
    return lo, hi


def _sum(terms: tuple[Term, ...], const: int) -> Expr:
    """The interned sum of sorted terms with non-zero coefficients to which no rule applies."""
    if len(terms) <= 1:
        if not terms:
            return const
        if const == 0 and terms[0][1] == 1:
            return terms[0][0]
    key = (terms, const)
    found = _sums.find(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    self = object.__new__(Sum)
    self.terms, self.const = terms, const
    flags = 0
    lo: Any = const
    hi: Any = const
    for f, c in terms:
        flags |= f.flags
        if c > 0:
            lo += c * f.lo
            hi += c * f.hi
        else:
            lo += c * f.hi
            hi += c * f.lo
    self.lo, self.hi, self.flags, self.below = lo, hi, flags, None
    return _sums.enter(key, self)  # type: ignore[no-any-return]


def product(factors: Iterable[Sym]) -> Expr:
    """The interned product of atoms (1 of none)."""
    key = tuple(sorted(factors, key=_order))
    if len(key) <= 1:
        return key[0] if key else 1
    found = _products.find(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    self = object.__new__(Product)
    self.factors = key
    lo, hi, div, flags = key[0].lo, key[0].hi, key[0].div, key[0].flags
    for f in key[1:]:
        lo, hi = _times(lo, hi, f.lo, f.hi)
        div *= f.div
        flags |= f.flags
    self.lo, self.hi, self.div, self.flags = lo, hi, div, flags
    self.order = hash((1, *map(_order, key)))
    self.below = None
    return _products.enter(key, self)  # type: ignore[no-any-return]


def _times(alo: Any, ahi: Any, blo: Any, bhi: Any) -> tuple[Any, Any]:
    ends = [x * y if x and y else 0 for x in (alo, ahi) for y in (blo, bhi)]
    return min(ends), max(ends)


def settle(terms: dict[Sym, int], const: int) -> Expr:
    """The canonical expression of ``const + sum(coeff * factor)``; takes over the dict."""
    flags = 0
    for f in terms:
        flags |= f.flags
    if flags & DIV:
        const = FOLD.build(terms, const)
    if len(terms) > 1:
        return _sum(tuple(sorted(terms.items(), key=_term_order)), const)
    return _sum(tuple(terms.items()), const)


def accumulate(terms: dict[Sym, int], e: Expr, times: int) -> int:
    """Adds ``times * e`` to a dict of terms; returns what to add to its constant."""
    if isinstance(e, int):
        return e * times
    for f, c in terms_of(e):
        c = terms.get(f, 0) + c * times
        if c:
            terms[f] = c
        else:
            terms.pop(f, None)
    return const_of(e) * times


def expand(a: Iterable[Term], b: Iterable[Term]) -> dict[Sym, int]:
    """The terms of a product of two polynomials without constants, to which no rule was applied."""
    result: dict[Sym, int] = {}
    b = tuple(b)
    for f, c in a:
        left = factors_of(f)
        for g, k in b:
            both: Any = product(left + factors_of(g))
            k = result.get(both, 0) + c * k
            if k:
                result[both] = k
            else:
                del result[both]
    return result


def _add(a: Expr, b: Expr) -> Expr:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a + b
    if isinstance(b, int):
        return _sum(terms_of(a), const_of(a) + b) if b else a
    return _combine(a, b, 1)


def _sub(a: Expr, b: Expr) -> Expr:
    return _add(a, -b) if isinstance(b, int) else _combine(a, b, -1)


def _combine(a: Expr, b: Sym, sign: int) -> Expr:
    terms: dict[Sym, int] = {} if isinstance(a, int) else dict(terms_of(a))
    const = a if isinstance(a, int) else const_of(a)
    return settle(terms, const + accumulate(terms, b, sign))


def _mul(a: Expr, b: Expr) -> Expr:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a * b
    if isinstance(b, int):
        return _scale(a, b)
    left, right = terms_of(a), terms_of(b)
    m, n = const_of(a), const_of(b)
    terms = expand(left, right)
    for pairs, k in ((left, n), (right, m)):
        if k:
            for f, c in pairs:
                c = terms.get(f, 0) + c * k
                if c:
                    terms[f] = c
                else:
                    terms.pop(f, None)
    return settle(terms, m * n)


def _scale(a: Sym, k: int) -> Expr:
    if k == 0:
        return 0
    if k == 1:
        return a
    scaled = tuple([(f, c * k) for f, c in terms_of(a)])
    if a.flags & DIV:
        return settle(dict(scaled), const_of(a) * k)
    return _sum(scaled, const_of(a) * k)


ADD.build, SUB.build, MUL.build = _add, _sub, _mul


def negative(e: Expr) -> Expr:
    return -e if isinstance(e, int) else MUL(e, -1)


def rebuild_sum(terms: Iterable[Term], const: int) -> Expr:
    """Unpickling: the same sum, interned here."""
    return settle(dict(terms), const)


def rebuild_product(factors: Iterable[Sym]) -> Expr:
    return product(factors)
