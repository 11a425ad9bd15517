"""Symbolic integers: tensor sizes in the graph IR and index expressions in the loop IR.

An expression is an `int` or an interned, immutable `Sym`; the operators are Python's, results that
are constant are `int`::

    b, t = Var("b", 0, 7), Var("t", 0, 127)
    flat = b * 128 + t
    flat // 128 is b and flat % 128 is t

What is proven about expressions, and decided about sizes, is in `proof`; index maps between shapes
are in `index`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from lehr.base.bound import Max, Min
from lehr.base.divide import FloorDiv, Mod
from lehr.base.poly import (
    INF,
    MAXIMUM,
    MINIMUM,
    Expr,
    Product,
    Sum,
    Sym,
    Var,
    built,
    const_of,
    factors_of,
    integer,
    product,
    terms_of,
)
from lehr.base.poly import free_of as free
from lehr.base.spell import parse, render, to_text

__all__ = [
    "Expr", "FloorDiv", "Max", "Min", "Mod", "Product", "Sum", "Sym", "Var",
    "affine", "built", "ceildiv", "cost", "divisor", "evaluate", "free", "interval", "maximum",
    "minimum", "parse", "prod", "render", "size", "substitute", "to_text",
]  # fmt: skip


def _operand(value: Any) -> Expr:
    e = integer(value)
    if e is None:
        raise TypeError(f"expected an int or a symbolic integer, not {type(value).__name__}")
    return e


def minimum(a: Expr, *more: Expr) -> Expr:
    """The least of its arguments."""
    result = _operand(a)
    for e in more:
        result = MINIMUM(result, _operand(e))
    return result


def maximum(a: Expr, *more: Expr) -> Expr:
    """The greatest of its arguments."""
    result = _operand(a)
    for e in more:
        result = MAXIMUM(result, _operand(e))
    return result


def ceildiv(a: Expr, b: Expr) -> Expr:
    """``a / b`` rounded up; `b` must not be zero."""
    a, b = _operand(a), _operand(b)
    if isinstance(b, int) and b > 0:
        return (a + (b - 1)) // b
    return -(-a // b)


def prod(sizes: Collection[Expr]) -> Expr:
    """The product of all sizes, 1 of none."""
    result: Expr = 1
    for e in sizes:
        result = result * e
    return result


def interval(e: Expr) -> tuple[int | None, int | None]:
    """Inclusive bounds (lo, hi) that hold for every value; None where there is no bound."""
    if isinstance(e, int):
        return e, e
    return (None if e.lo == -INF else e.lo), (None if e.hi == INF else e.hi)


def divisor(e: Expr) -> int:
    """The largest known integer that divides every value (of 0 it is 0, as in `math.gcd`)."""
    return abs(e) if isinstance(e, int) else e.div


def _walk(e: Expr) -> Iterator[Sym]:
    """Every distinct node once."""
    seen: set[Sym] = set()
    stack: list[Expr] = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, Sym) and node not in seen:
            seen.add(node)
            yield node
            stack.extend(node.parts())


def size(e: Expr) -> int:
    """The number of distinct nodes (0 for an `int`)."""
    return sum(1 for _ in _walk(e))


# Rough instruction weights: a division by a constant is a multiplication and shifts, by a variable
# a real division.
_weights = {"sum": 1, "mul": 1, "floordiv": 4, "mod": 5, "min": 1, "max": 1}


def cost(e: Expr) -> int:
    """A weight for comparing spellings of the same value, each distinct node computed once."""
    total = 0
    for node in _walk(e):
        if isinstance(node, Sum):
            total += (
                len(node.terms) - (node.const == 0) + sum(c not in (1, -1) for _, c in node.terms)
            )
        elif (
            isinstance(node, FloorDiv | Mod)
            and isinstance(node.den, int)
            and node.den & (node.den - 1) == 0
        ):
            total += 1
        elif isinstance(node, FloorDiv | Mod) and not isinstance(node.den, int):
            total += 5 * _weights[node.op]
        elif not isinstance(node, Var):
            total += _weights[node.op] * (len(node.parts()) - 1)
    return total


def _through(
    e: Expr, leaf: Callable[[Var], Any], done: dict[Sym, Any], keep: Callable[[Sym], bool]
) -> Any:
    """Recomputes `e` with `leaf` for the variables, each distinct node once; nodes that `keep`
    accepts stay.
    """
    if isinstance(e, int):
        return e
    if e in done:
        return done[e]
    result: Any
    if isinstance(e, Var):
        result = leaf(e)
    elif keep(e):
        result = e
    elif isinstance(e, Sum):
        result = e.const
        for f, c in e.terms:
            result = result + _through(f, leaf, done, keep) * c
    else:
        parts = [_through(part, leaf, done, keep) for part in e.parts()]
        result = parts[0]
        for part in parts[1:]:
            result = _again[e.op](result, part)
    done[e] = result
    return result


_again: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": MINIMUM,
    "max": MAXIMUM,
}


def substitute(e: Expr, values: Mapping[Var, Expr]) -> Expr:
    """`e` with variables replaced (all at once) and simplified again.

    Symbolic upper ends of variables that stay are not rewritten: such a variable keeps its
    identity. `ZeroDivisionError` where a divisor becomes 0.
    """
    if isinstance(e, int) or free(e).isdisjoint(values):
        return e
    names = frozenset(values)
    return _through(  # type: ignore[no-any-return]
        e, lambda v: values.get(v, v), {}, lambda node: free(node).isdisjoint(names)
    )


def evaluate(e: Expr, values: Mapping[Var, int]) -> int:
    """The value of `e`. `KeyError` names a variable without a value, `ZeroDivisionError` is
    Python's own.
    """

    def leaf(v: Var) -> int:
        if v not in values:
            raise KeyError(f"no value for the variable {v.name!r} of {to_text(e)}")
        return int(values[v])

    return int(_through(e, leaf, {}, lambda node: False))


def affine(e: Expr, variables: Collection[Var]) -> tuple[dict[Var, Expr], Expr] | None:
    """``e = sum(coeffs[v] * v) + rest`` with coefficients and rest free of `variables`, or None.

    The coefficients are listed for the variables that occur.
    """
    wanted = frozenset(variables)
    if isinstance(e, int) or free(e).isdisjoint(wanted):
        return {}, e
    coeffs: dict[Var, Expr] = {}
    rest: Expr = const_of(e)
    for f, c in terms_of(e):
        inside = free(f) & wanted
        if not inside:
            rest = rest + f * c
            continue
        if len(inside) > 1:
            return None
        (v,) = inside
        others = [atom for atom in factors_of(f) if atom is not v]
        if len(others) + 1 != len(factors_of(f)) or any(v in free(atom) for atom in others):
            return None
        coeffs[v] = coeffs.get(v, 0) + product(others) * c
    return coeffs, rest
