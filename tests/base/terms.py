"""Random integer expressions, kept as nested tuples so that nothing under test simplifies them."""

import random
from itertools import product

from lehr.base.sym import Var, evaluate, maximum, minimum

CONSTANTS = (-7, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 16)
SCALES = (-3, -1, 2, 2, 3, 4, 4, 6, 8, 8, 12, 16)
INFIX = ("+", "+", "-", "*", "//", "%", "min", "max")
SCALED = ("*", "//", "//", "%", "%")

COMPUTE = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
PLAIN = {**COMPUTE, "min": min, "max": max}
SYMBOLIC = {**COMPUTE, "min": minimum, "max": maximum}


def variables(r: random.Random) -> list[Var]:
    """A small box: plain ranges, multiples, negatives, and indices below another variable."""
    n = Var("n", r.choice((0, 1, 1, 2)), r.choice((3, 4)))
    box = [n]
    for name in "xyz":
        kind = r.random()
        if kind < 0.2:
            box.append(Var(name, 0, n - 1))
        elif kind < 0.4:
            box.append(Var(name, r.choice((-4, 0, 0)), r.choice((4, 8)), 4))
        else:
            box.append(Var(name, r.choice((-3, -1, 0, 0, 0, 1)), r.choice((2, 3, 5, 7))))
    return box


def tree(r: random.Random, leaves: list, depth: int, infix=INFIX, scales=SCALES):
    """A random tree: a leaf, an int, or (operator, left, right)."""
    if depth == 0 or r.random() < 0.15:
        return r.choice(leaves) if r.random() < 0.75 else r.choice(CONSTANTS)
    left = tree(r, leaves, depth - 1, infix, scales)
    kind = r.random()
    if kind < 0.4:
        return r.choice(SCALED), left, r.choice(scales)
    if kind < 0.5:  # a value taken apart and put together again
        k = r.choice((2, 3, 4, 8))
        return "+", ("*", ("//", left, k), k), ("%", left, k)
    if kind < 0.56 and "//" in infix:  # a positive divisor that falls with its variables
        v = r.choice(leaves)
        times = r.choice((1, 2))
        den = "-", int(v.hi) * times + r.choice((1, 2, 5)), ("*", v, times)
        return r.choice(("//", "%")), left, den
    return r.choice(infix), left, tree(r, leaves, depth - 1, infix, scales)


def fold(t, leaf, table):
    """The value of a tree, with `leaf` for its leaves and a table of operators."""
    if isinstance(t, tuple):
        return table[t[0]](fold(t[1], leaf, table), fold(t[2], leaf, table))
    return t if isinstance(t, int) else leaf(t)


def build(t):
    """The expression of a tree; None where it divides by zero whatever its variables are."""
    try:
        return fold(t, lambda v: v, SYMBOLIC)
    except ZeroDivisionError:
        return None


def points(box: list[Var]):
    """Every assignment within the ranges, symbolic ends included."""
    for values in product(*(range(int(v.lo), int(v.hi) + 1, v.div) for v in box)):
        at = dict(zip(box, values, strict=True))
        if all(v.bound is None or at[v] <= evaluate(v.bound, at) for v in box):
            yield at


def value(t, at):
    """Python's own value of a tree; None where it divides by zero."""
    try:
        return fold(t, at.__getitem__, PLAIN)
    except ZeroDivisionError:
        return None
