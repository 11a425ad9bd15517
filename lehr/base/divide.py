"""Floor division and remainder of interned expressions, in Python's sense (the remainder has the
divisor's sign).

One identity carries the rules: for integers ``p = g*P + r`` with ``0 <= r < g``,

    p // (g*b) = P // b        p % (g*b) = g*(P % b) + r        (b > 0)

so a part of the numerator that cannot reach the next multiple of g is dropped or split off. `fold`
is the way back: it rejoins ``b*(p // b) + p % b`` to p in every sum that is built.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from lehr.base.bound import nonneg
from lehr.base.poly import (
    BOUND,
    DIV,
    FLOORDIV,
    FOLD,
    INF,
    MOD,
    MODULO,
    Expr,
    Sym,
    Table,
    Term,
    accumulate,
    const_of,
    expand,
    factors_of,
    interval_of,
    negative,
    product,
    settle,
    terms_of,
)


class FloorDiv(Sym):
    """``num // den``, irreducible. `den` is an `int` above 1 or a `Sym`."""

    __slots__ = ("den", "num")
    op = "floordiv"
    num: Expr
    den: Expr

    def parts(self) -> tuple[Expr, ...]:
        return self.num, self.den

    def __reduce__(self) -> Any:
        return operator.floordiv, (self.num, self.den)


class Mod(Sym):
    """``num % den``, irreducible. `den` is an `int` above 1 or a `Sym`."""

    __slots__ = ("den", "num")
    op = "mod"
    num: Expr
    den: Expr

    def parts(self) -> tuple[Expr, ...]:
        return self.num, self.den

    def __reduce__(self) -> Any:
        return operator.mod, (self.num, self.den)


_quotients = Table()
_remainders = Table()


def _atom(kind: type[FloorDiv] | type[Mod], num: Expr, den: Expr) -> Expr:
    table = _quotients if kind is FloorDiv else _remainders
    key = (num, den)
    found = table.find(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    lo, hi = (_quotient_range if kind is FloorDiv else _remainder_range)(num, den)
    if lo == hi:
        return lo  # type: ignore[no-any-return]
    self = object.__new__(kind)
    self.num, self.den, self.lo, self.hi = num, den, lo, hi
    self.flags = DIV if kind is FloorDiv else MOD
    for e in key:
        if isinstance(e, Sym):
            self.flags |= e.flags & BOUND
    ndiv = num if isinstance(num, int) else num.div
    if kind is Mod:
        self.div = math.gcd(ndiv, den if isinstance(den, int) else den.div)
    else:
        self.div = ndiv // den if isinstance(den, int) and ndiv % den == 0 else 1
    code = 4 if kind is FloorDiv else 5
    self.order = hash((code, *(e if isinstance(e, int) else e.order for e in key)))
    self.below = None
    return table.enter(key, self)  # type: ignore[no-any-return]


def _ends(e: Expr) -> tuple[Any, Any]:
    return (e, e) if isinstance(e, int) else (e.lo, e.hi)


def _floor(a: Any, b: Any) -> Any:
    """``a // b`` for b > 0 where either may be infinite."""
    if a in (INF, -INF):
        return a
    if b == INF:
        return 0 if a >= 0 else -1
    return a // b


def _quotient_range(num: Expr, den: Expr) -> tuple[Any, Any]:
    lo, hi = _ends(num)
    small, large = _ends(den)
    if small < 0:
        reach = max(abs(lo), abs(hi))
        return -reach, reach
    small = max(small, 1)
    return _floor(lo, large if lo >= 0 else small), _floor(hi, small if hi >= 0 else large)


def _remainder_range(num: Expr, den: Expr) -> tuple[Any, Any]:
    lo, hi = _ends(num)
    if isinstance(den, int):
        return 0, den - math.gcd(den, num if isinstance(num, int) else num.div)
    small, large = _ends(den)
    if small < 0:
        return min(small + 1, 0), max(large - 1, 0)
    return 0, min(large - 1, hi) if lo >= 0 else large - 1


def _same_block(lo: Any, hi: Any, b: int) -> int | None:
    """The k with ``k*b <= lo`` and ``hi < (k+1)*b``, if there is one."""
    if lo == -INF or hi == INF:
        return None
    k = lo // b
    return k if hi // b == k else None  # type: ignore[no-any-return]


def _cut(rest: list[Term], const: int, b: int) -> tuple[int, list[Term], list[Term], int] | None:
    """Splits the terms into multiples of a divisor g of b and a part that stays within one block of
    g.

    Returns g, the multiples, the rest and the block's number k: the whole is ``multiples + k*g``
    plus something in ``[0, g)``. None where no g makes a difference.
    """
    steps = [(math.gcd(c * f.div, b), f, c) for f, c in rest]
    for g in sorted({step for step, _, _ in steps}, reverse=True):
        if g == 1:
            break
        small = [(f, c) for _, f, c in steps if (c * f.div) % g]
        if not small and const % g == 0:
            continue
        k = _same_block(*interval_of(small, const), g)
        if k is not None:
            return g, [(f, c) for _, f, c in steps if (c * f.div) % g == 0], small, k
    return None


def _exact(f: Sym, k: int) -> Expr:
    """``f // k`` for a factor that k divides: the divisible atom of a product carries it."""
    if k == 1:
        return f
    parts = list(factors_of(f))
    for i, atom in enumerate(parts):
        if atom.div % k == 0:
            if len(parts) == 1:
                break
            del parts[i]
            return product(parts) * _exact(atom, k)
    if isinstance(f, FloorDiv) and _positive(f.den):
        return f.num // (f.den * k)
    return _atom(FloorDiv, f, k)


def _positive(den: Expr) -> bool:
    """Whether a divisor, which is never zero, is positive."""
    return den > 0 if isinstance(den, int) else den.lo >= 0


def _floordiv(a: Expr, b: Expr) -> Expr:
    if isinstance(b, int):
        if b == 0:
            raise ZeroDivisionError(f"floor division of a symbolic integer by zero: ({a!r}) // 0")
        if isinstance(a, int):
            return a // b
        if b < 0:
            return FLOORDIV(negative(a), -b)
        return a if b == 1 else _divide(a, b)
    if a is b:
        return 1
    if b.hi < 0:
        return FLOORDIV(negative(a), negative(b))
    return _divide_sym(a, b)


def _divide(a: Sym, b: int) -> Expr:
    """Takes out every multiple of b; what is left goes to `_fraction`."""
    k = _same_block(a.lo, a.hi, b)
    if k is not None:
        return k
    whole: dict[Sym, int] = {}
    rest: list[Term] = []
    total, const = divmod(const_of(a), b)
    for f, c in terms_of(a):
        if c % b == 0:
            total += accumulate(whole, f, c // b)
        elif (c * f.div) % b == 0:
            g = math.gcd(c, b)
            total += accumulate(whole, _exact(f, b // g), c // g)
        else:
            # The remainder keeps the sign of c: it bounds the rest best.
            q = c // b if c > 0 else -(-c // b)
            if q:
                total += accumulate(whole, f, q)
            rest.append((f, c - q * b))
    if rest:
        total += accumulate(whole, _fraction(rest, const, b), 1)
    return settle(whole, total)


def _fraction(rest: list[Term], const: int, b: int) -> Expr:
    """``(rest + const) // b`` for coefficients and a constant below b in magnitude."""
    k = _same_block(*interval_of(rest, const), b)
    if k is not None:
        return k
    cut = _cut(rest, const, b)
    if cut is not None:
        g, rest, _, k = cut
        const = k * g
    g = math.gcd(b, *(c for _, c in rest))
    if cut is not None or g > 1:
        return settle({f: c // g for f, c in rest}, const // g) // (b // g)
    if len(rest) == 1 and rest[0][1] == 1:
        f = rest[0][0]
        if isinstance(f, FloorDiv) and _positive(f.den):
            return (f.num + const * f.den) // (f.den * b)
        if isinstance(f, Mod) and const == 0 and _positive(f.den):
            outer = _multiple(f.den, b)
            if outer is not None:
                return (f.num // b) % outer
    if all(c < 0 for _, c in rest):
        return -(settle({f: -c for f, c in rest}, b - 1 - const) // b)
    return _atom(FloorDiv, settle(dict(rest), const), b)


def _multiple(e: Expr, b: Expr) -> Expr | None:
    """``e / b`` where b divides every coefficient or factor of e visibly, else None."""
    if isinstance(e, int):
        return e // b if isinstance(b, int) and e % b == 0 else None
    if isinstance(b, int):
        if const_of(e) % b or any(c % b for _, c in terms_of(e)):
            return None
        return settle({f: c // b for f, c in terms_of(e)}, const_of(e) // b)
    whole, total, rest, const = _split(e, b)
    return None if rest or const else settle(whole, total)


def _divided(e: Expr, b: Expr) -> Expr:
    """`_multiple` where b is known to be visible."""
    result = _multiple(e, b)
    assert result is not None
    return result


def _modulo(a: Expr, b: Expr) -> Expr:
    if isinstance(b, int):
        if b == 0:
            raise ZeroDivisionError(f"remainder of a symbolic integer by zero: ({a!r}) % 0")
        if isinstance(a, int):
            return a % b
        if b < 0:
            return negative(MODULO(negative(a), -b))
        return 0 if b == 1 else _remainder(a, b)
    if a is b:
        return 0
    if b.hi < 0:
        return negative(MODULO(negative(a), negative(b)))
    return _remainder_sym(a, b)


def _remainder(a: Sym, b: int) -> Expr:
    """Reduces coefficients modulo b, resolves by intervals, splits off what stays below a divisor
    of b.
    """
    k = _same_block(a.lo, a.hi, b)
    if k is not None:
        return a - k * b
    if a.flags & MOD:
        bare = a
        for f, c in terms_of(a):
            if isinstance(f, Mod) and c * (f.den if isinstance(f.den, int) else f.den.div) % b == 0:
                bare = bare + c * (f.num - f)
        if bare is not a:
            return bare % b  # type: ignore[no-any-return]
    kept = [(f, c) for f, c in terms_of(a) if (c * f.div) % b]
    const = const_of(a) % b
    if not kept:
        return const
    canonical = [(f, c % b) for f, c in kept]
    # Three spellings of the same residues: each resolves cases that the others cannot.
    for rest in (
        canonical,
        [(f, c if c <= b // 2 else c - b) for f, c in canonical],
        [(f, c if kept[i][1] > 0 else c - b) for i, (f, c) in enumerate(canonical)],
    ):
        k = _same_block(*interval_of(rest, const), b)
        if k is not None:
            return settle(dict(rest), const - k * b)
        cut = _cut(rest, const, b)
        if cut is not None:
            g, large, small, k = cut
            return settle(dict(large), k * g) % b + settle(dict(small), const - k * g)
    g = math.gcd(b, const, *(c for _, c in canonical))
    if g > 1:
        return (settle({f: c // g for f, c in canonical}, const // g) % (b // g)) * g
    if all(2 * c >= b for _, c in canonical) and any(2 * c > b for _, c in canonical):
        # -1-p and p have complementary remainders: spell it with the smaller coefficients.
        return b - 1 - settle({f: b - c for f, c in canonical}, b - 1 - const) % b
    return _atom(Mod, settle(dict(canonical), const), b)


def _without(f: Sym, g: Sym) -> Expr | None:
    """``f / g`` of two products of atoms, or None."""
    rest = list(factors_of(f))
    for atom in factors_of(g):
        if atom not in rest:
            return None
        rest.remove(atom)
    return product(rest)


def _cofactor(f: Sym, atom: Sym) -> Expr:
    """`_without` where `atom` is known to be a factor."""
    rest = list(factors_of(f))
    rest.remove(atom)
    return product(rest)


def _toward_zero(c: int, k: int) -> int:
    return abs(c) // abs(k) * (1 if (c < 0) == (k < 0) else -1)


def _split(a: Expr, b: Sym) -> tuple[dict[Sym, int], int, dict[Sym, int], int]:
    """``a = b*whole + rest`` as (whole, its constant, rest, its constant), where rest has no
    visible multiple of b.
    """
    whole: dict[Sym, int] = {}
    total = 0
    if isinstance(a, int):
        rest: dict[Sym, int] = {}
        const = a
    else:
        rest, const = dict(terms_of(a)), const_of(a)
    lead, scale = terms_of(b)[0]
    single = const_of(b) == 0 and len(terms_of(b)) == 1
    for f in tuple(rest):
        cofactor = _without(f, lead)
        times = _toward_zero(rest.get(f, 0), scale)
        if cofactor is None or times == 0:
            continue
        if single:
            const += accumulate(rest, f, -times * scale)
        else:
            part = (
                expand(terms_of(b), ((cofactor, 1),))
                if isinstance(cofactor, Sym)
                else dict(terms_of(b))
            )
            extra = 0
            if isinstance(cofactor, int):
                extra = const_of(b)
            elif const_of(b):
                extra += accumulate(part, cofactor, const_of(b))
            times = _contained(rest, const, part, extra, times)
            if times == 0:
                continue
            for g, c in part.items():
                const += accumulate(rest, g, -times * c)
            const -= times * extra
        total += accumulate(whole, cofactor, times)
    return whole, total, rest, const


def _contained(d: dict[Sym, int], const: int, part: dict[Sym, int], extra: int, times: int) -> int:
    """The largest multiple of ``part + extra`` up to `times` that lies in ``d + const``, sign by
    sign.
    """
    sign = 1 if times > 0 else -1
    times = abs(times)
    for have, need in [(d.get(f, 0), c) for f, c in part.items()] + [(const, extra)]:
        if need:
            times = min(times, max(0, _toward_zero(sign * have, need)))
    return sign * times


def _divide_sym(a: Expr, b: Sym) -> Expr:
    """Division by a symbolic divisor: its visible multiples leave, bounds and shared factors do the
    rest.
    """
    whole, total, terms, const = _split(a, b)
    if not terms and const == 0:
        return settle(whole, total)
    rest = settle(terms, const)
    k = _block_sym(rest, b)
    if k is None:
        total += accumulate(whole, _fraction_sym(rest, b), 1)
    return settle(whole, total + (k or 0))


def _block_sym(rest: Expr, b: Sym) -> int | None:
    """0 where ``0 <= rest < b`` is proven, -1 where ``-b <= rest < 0`` is."""
    lo, hi = _ends(rest)
    if hi >= 0 and nonneg(b - 1 - rest) and nonneg(rest):
        return 0
    if lo < 0 and nonneg(-1 - rest) and nonneg(rest + b):
        return -1
    return None


def _shared(rest: Expr, b: Sym) -> tuple[Expr, Expr, Expr, Expr] | None:
    """A factor g of b with ``rest = g*large + small``, ``0 <= small < g``: (g, large, small, b /
    g).
    """
    if isinstance(rest, int):
        terms: tuple[Term, ...] = ()
        const = rest
    else:
        terms, const = terms_of(rest), const_of(rest)
    content = math.gcd(const_of(b), *(c for _, c in terms_of(b)))
    for g in sorted({math.gcd(c, content) for _, c in terms} | {content}, reverse=True):
        if g == 1:
            continue
        small = [(f, c) for f, c in terms if c % g]
        k = _same_block(*interval_of(small, const), g)
        if k is not None:
            large = settle({f: c // g for f, c in terms if c % g == 0}, k)
            return g, large, settle(dict(small), const - k * g), _divided(b, g)
    if const_of(b):
        return None
    first, *others = terms_of(b)
    for atom in dict.fromkeys(factors_of(first[0])):
        if any(atom not in factors_of(f) for f, _ in others):
            continue
        inside = {f: c for f, c in terms if atom in factors_of(f)}
        small_sym = settle({f: c for f, c in terms if f not in inside}, const)
        if (
            small_sym.__class__ is int
            and small_sym == 0
            or (nonneg(small_sym) and nonneg(atom - 1 - small_sym))
        ):
            total = 0
            quotient: dict[Sym, int] = {}
            for f, c in inside.items():
                total += accumulate(quotient, _cofactor(f, atom), c)
            return atom, settle(quotient, total), small_sym, _divided(b, atom)
    return None


def _fraction_sym(rest: Expr, b: Sym) -> Expr:
    shared = _shared(rest, b)
    if shared is not None:
        _, large, small, den = shared
        if (isinstance(small, int) and small == 0) or _positive(den):
            return FLOORDIV(large, den)
    if isinstance(rest, Sym) and _positive(b):
        const, terms = const_of(rest), terms_of(rest)
        if len(terms) == 1 and terms[0][1] == 1:
            f = terms[0][0]
            if isinstance(f, FloorDiv):
                return (f.num + const * f.den) // (f.den * b)
            if isinstance(f, Mod) and const == 0 and _positive(f.den):
                outer = _multiple(f.den, b)
                if outer is not None and _positive(outer):
                    return MODULO(FLOORDIV(f.num, b), outer)
        if all(c < 0 for _, c in terms):
            turned = negative(rest) + b - 1
            if isinstance(turned, int) or any(c > 0 for _, c in terms_of(turned)):
                return negative(FLOORDIV(turned, b))
    return _atom(FloorDiv, rest, b)


def _remainder_sym(a: Expr, b: Sym) -> Expr:
    _, _, terms, const = _split(a, b)
    unwrapped = False
    for f, c in tuple(terms.items()):
        if isinstance(f, Mod) and _multiple(f.den, b) is not None:
            del terms[f]
            const += accumulate(terms, f.num, c)
            unwrapped = True
    if unwrapped:
        return MODULO(settle(terms, const), b)
    rest = settle(terms, const)
    if isinstance(rest, int) and rest == 0:
        return 0
    k = _block_sym(rest, b)
    if k is not None:
        return rest - k * b
    shared = _shared(rest, b)
    if shared is not None:
        g, large, small, den = shared
        if (isinstance(small, int) and small == 0) or (_positive(den) and _positive(g)):
            return MODULO(large, den) * g + small
    return _atom(Mod, rest, b)


FLOORDIV.build, MODULO.build = _floordiv, _modulo


def _fold(terms: dict[Sym, int], const: int) -> int:
    """Rejoins quotients with their remainders until nothing changes."""
    changed = True
    while changed:
        changed = False
        flags = 0
        for f in terms:
            flags |= f.flags
        for f in tuple(terms):
            if f not in terms or not f.flags & (DIV | MOD):
                continue
            for atom in factors_of(f):
                extra = None
                if isinstance(atom, FloorDiv):
                    extra = _rejoin_quotient(terms, f, atom, flags)
                elif isinstance(atom, Mod):
                    extra = _rejoin_remainder(terms, f, atom)
                if extra is not None:
                    const += extra
                    changed = True
                    break
    return const


# The rules below try one atom of one term; they return the constant to add, or None where they do
# not apply.


def _rejoin_quotient(terms: dict[Sym, int], f: Sym, atom: FloorDiv, flags: int) -> int | None:
    num, den = atom.num, atom.den
    others = _cofactor(f, atom)
    if isinstance(den, int):
        if isinstance(num, Sym) and num.div % den == 0:
            return _reduce(terms, f, atom)
    else:
        rest = _without(others, terms_of(den)[0][0]) if isinstance(others, Sym) else None
        if rest is None:
            return None
        others = rest
    if flags & MOD:
        remainder = MODULO(num, den)
        if isinstance(remainder, Sym) and _near(terms, remainder, others):
            extra = _exchange(terms, atom, den, 1, remainder, num, others)
            if extra is not None:
                return extra
    if isinstance(num, Sym) and _near(terms, num, others):
        return _exchange(terms, atom, den, -1, num, MODULO(num, den), others)
    return None


def _rejoin_remainder(terms: dict[Sym, int], f: Sym, atom: Mod) -> int | None:
    others = _cofactor(f, atom)
    quotient = FLOORDIV(atom.num, atom.den)
    if isinstance(quotient, int) or not quotient.flags & DIV:
        return None
    return _exchange(terms, quotient, atom.den, 1, atom, atom.num, others)


def _near(terms: dict[Sym, int], e: Sym, others: Expr) -> bool:
    """Whether every term of ``others * e`` occurs: the cheap test before an exchange."""
    if isinstance(others, int):
        return all(f in terms for f, _ in terms_of(e))
    rest = factors_of(others)
    return all(product(factors_of(f) + rest) in terms for f, _ in terms_of(e))


def _exchange(
    terms: dict[Sym, int], quotient: Expr, den: Expr, sign: int, gone: Sym, new: Expr, others: Expr
) -> int | None:
    """Replaces the multiples of ``others * (sign*den*quotient + gone)`` found in `terms` by
    ``others * new``.
    """
    part: dict[Sym, int] = {}
    extra = _multiply(part, den, quotient, sign)
    extra += accumulate(part, gone, 1)
    if isinstance(others, Sym):
        part = expand(part.items(), ((others, 1),))
    if not part:
        return None
    probe = next(iter(part))
    times = _contained(terms, 0, part, 0, _toward_zero(terms.get(probe, 0), part[probe]))
    if times == 0:
        return None
    const = accumulate(terms, others, -times * extra)
    for g, c in part.items():
        const += accumulate(terms, g, -times * c)
    return const + accumulate(terms, new * others, times)


def _multiply(into: dict[Sym, int], a: Expr, b: Expr, sign: int) -> int:
    """Adds ``sign * a * b`` to a dict of terms, applying no rules; returns the constant's part."""
    m, left = (a, ()) if isinstance(a, int) else (const_of(a), terms_of(a))
    n, right = (b, ()) if isinstance(b, int) else (const_of(b), terms_of(b))
    for f, c in expand(left, right).items():
        accumulate(into, f, sign * c)
    for pairs, k in ((left, n), (right, m)):
        for f, c in pairs:
            if k:
                accumulate(into, f, sign * c * k)
    return sign * m * n


def _reduce(terms: dict[Sym, int], f: Sym, atom: FloorDiv) -> int | None:
    """A multiple of an exact quotient: ``4 * (n // 8)`` is ``n // 2`` where 8 divides n."""
    g = math.gcd(terms[f], atom.den)  # type: ignore[arg-type]
    if g == 1:
        return None
    others = _cofactor(f, atom)
    assert isinstance(atom.den, int)
    times = terms.pop(f) // g
    return accumulate(terms, others * FLOORDIV(atom.num, atom.den // g), times)


FOLD.build = _fold
