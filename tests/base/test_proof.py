import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lehr.base.proof import (
    Contradiction,
    Facts,
    Relation,
    Undecided,
    decide,
    deciding,
    prove,
    prove_eq,
    prove_ge,
    prove_gt,
    prove_le,
    prove_lt,
    prove_ne,
)
from lehr.base.sym import Var, evaluate, interval, maximum, minimum, to_text
from tests.base import terms

n, m, s = Var("n", 1), Var("m", 1), Var("s")
x, y, z = Var("x"), Var("y"), Var("z", None)
i, j = Var("i", 0, n - 1), Var("j", 0, m - 1)
low = Var("low", 0, i)
h, d = Var("h", 0, 3), Var("d", 0, 63)
e8 = Var("e8", 8, None, 8)

PROOFS = [
    ("<", h, 4, True),
    ("<", h, 3, None),
    (">=", h, 4, False),
    ("<=", x, x + 3, True),
    ("<", x, x, False),
    ("==", x, x + 1, False),
    ("==", x * 2, y * 4 + 1, False),
    ("!=", e8, 12, True),
    ("==", x, y, None),
    ("<", i, n, True),
    ("<", i, n - 1, None),
    ("<=", i, n - 1, True),
    (">=", i, n, False),
    ("<", low, n, True),
    ("<", j * n + i, n * m, True),
    ("<", j * n * 64 + i * 64 + d, n * m * 64, True),
    ("<=", m, n * m, True),
    ("<", n, n * m, None),
    ("<", x % n, n, True),
    (">=", n, x % n, True),
    ("<=", x // 8 * 8, x, True),
    (">", x // 8 * 8 + 8, x, True),
    ("<=", x // 8, x, True),
    ("<=", (x + 7) // 8 * 8, x + 7, True),
    ("<", (x + 7) // 8 * 8, x, False),
    ("==", x // 8 * 8 + 8 - x, 8 - x % 8, True),
    ("<=", minimum(x, 64), 64, True),
    ("<=", minimum(x + 1, n), n, True),
    ("<", minimum(x, y) + i, minimum(x, y) + n, True),
    ("<=", minimum(x, n) - 1, x, True),
    (">=", maximum(x, n), 1, True),
    ("<=", minimum(x, y), maximum(x, y), True),
    ("<=", maximum(i, h), n + 3, True),
    ("==", y * 7 // 8, y - (y + 7) // 8, True),
    ("<", 3, 5, True),
    ("==", 3, 5, False),
]


@pytest.mark.parametrize(("op", "a", "b", "want"), PROOFS)
def test_prove(op, a, b, want):
    assert prove(op, a, b) is want


def test_named_proofs():
    assert prove_lt(h, 4) is True
    assert prove_le(h, 3) is True
    assert prove_gt(h, 3) is False
    assert prove_ge(h, 0) is True
    assert prove_eq(h, 7) is False
    assert prove_ne(h, 7) is True


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32))
def test_random_proofs_against_brute_force(seed):
    r = random.Random(seed)
    box = terms.variables(r)
    a, b = (terms.build(terms.tree(r, box, 3)) for _ in "ab")
    if a is None or b is None:
        return
    if r.random() < 0.5:
        b = a + r.choice((0, 1, 2)) + r.choice(box)  # close enough for proofs to exist
    op = r.choice(("==", "!=", "<", "<=", ">", ">="))
    answer = prove(op, a, b)
    if answer is None:
        return
    relation = Relation(op, a, b)
    for at in terms.points(box):
        try:
            holds = relation.holds(at)
        except ZeroDivisionError:
            continue
        assert holds is answer, (str(relation), at)


def test_relation():
    r = Relation("<=", n * 4, m + 1)
    assert str(r) == "n*4 <= m + 1"
    assert Relation.parse(str(r), {"n": n, "m": m}) == r
    assert str(r.negated()) == "n*4 > m + 1"
    assert r.free() == {n, m}
    assert r.holds({n: 1, m: 3})
    assert not r.holds({n: 1, m: 2})
    assert eval(str(r), {"n": 1, "m": 3})
    assert len({r, Relation("<=", 4 * n, 1 + m)}) == 1
    assert Relation("<", i, n).prove() is True
    with pytest.raises(ValueError, match="=<"):
        Relation("=<", n, m)
    for text in ("n + 1", "n < m < 3", "n in m", "n <"):
        with pytest.raises(ValueError, match="not a relation"):
            Relation.parse(text, {"n": n, "m": m})


class Hints:
    """A decider as capture will have one: answers from an example, remembers what it assumed."""

    def __init__(self, values):
        self.values = values
        self.recorded = []

    def decide(self, relation):
        holds = relation.holds(self.values)
        self.recorded.append(relation if holds else relation.negated())
        return holds


def test_decide():
    hints = Hints({n: 5, m: 7})
    with deciding(hints):
        assert decide(n, "<", m) is True
        assert decide(n, "==", m) is False
        assert decide(i, "<", n) is True  # proven: nothing to record
        assert decide(2, "<", 1) is False
        with deciding(None), pytest.raises(Undecided):
            decide(n, "<", m)
    assert [str(r) for r in hints.recorded] == ["n < m", "n != m"]


def test_undecided_names_the_relation():
    with pytest.raises(Undecided, match=r"n\*2 == m depends on the symbolic size m, n") as caught:
        decide(n * 2, "==", m)
    assert caught.value.relation == Relation("==", n * 2, m)
    assert isinstance(caught.value, RuntimeError)


def facts(*texts):
    names = {v.name: v for v in (n, m, s, x, y, z, i, j, h, d, e8)}
    return Facts(*(Relation.parse(text, names) for text in texts))


def test_facts_refine_ranges():
    f = facts("n >= 16", "n < 100", "x*2 <= 9", "7 <= y")
    assert f.interval(n) == (16, 99)
    assert f.interval(x) == (0, 4)
    assert f.interval(y) == (7, None)
    assert f.prove(">", n, 15) is True
    assert f.prove("==", n, 3) is False
    assert prove(">", n, 15) is None
    assert interval(n) == (1, None)


def test_facts_divisibility():
    f = facts("n % 8 == 0", "n >= 9", "n % 12 == 0")
    assert f.divisor(n) == 24
    assert f.interval(n) == (24, None)
    assert f.simplify(n // 8 * 8 + x) is n + x
    assert f.simplify(n % 24 + x % 8) is x % 8
    assert f.prove("==", n % 6, 0) is True


def test_facts_equations():
    f = facts("s == n*m", "x == 5")
    assert f.simplify(s // n) is m
    assert f.simplify(x * y) is y * 5
    assert f.prove("==", s, n * m) is True
    assert facts("n == m + 1").simplify(n - m) == 1
    # what was known about a replaced variable stays known about its value
    assert facts("n == x + y").prove(">=", x + y, 1) is True
    assert facts("x <= 9", "x == y").interval(y) == (0, 9)
    assert facts("e8 == x").divisor(x) == 8


def test_facts_inequalities():
    f = facts("x < y", "n != m")
    assert f.prove("<=", x, y) is True
    assert f.prove("<", x - 3, y) is True
    assert f.prove(">=", x, y) is False
    assert f.prove("==", x, y) is False
    assert f.prove("!=", n, m) is True
    assert f.prove("==", m, n) is False
    assert f.prove("<", x, y - 1) is None
    assert facts("x != 0").interval(x) == (1, None)
    assert facts("h != 3").interval(h) == (0, 2)
    assert facts("x <= y", "y <= x").prove("==", x, y) is True
    assert facts("x * y % 8 == 0").prove("==", x * y % 8, 0) is True


def test_facts_reach_symbolic_ends():
    f = facts("n <= 10")
    assert f.interval(i) == (0, 9)
    assert f.prove("<", i, n) is True
    assert f.simplify(i // 16 + i) is i
    g = facts("n <= 10", "i <= 3")
    assert g.interval(i) == (0, 3)
    assert g.prove("<", i, n) is True
    assert facts("n == 4").simplify((x * 4 + i) // 4) is x


def test_contradictions():
    with pytest.raises(Contradiction, match="n == 0"):
        facts("n == 0")
    with pytest.raises(Contradiction, match="n < 8"):
        facts("n >= 8", "n < 8")
    with pytest.raises(Contradiction):
        facts("n % 8 == 0", "n > 8", "n < 16")
    with pytest.raises(Contradiction, match="no value is left for late"):
        Facts(Relation("==", n, 1)).interval(Var("late", 1, n - 1))
    with pytest.raises(Contradiction):
        facts("x < y").assume(Relation(">=", x, y))


def test_facts_are_immutable():
    f = facts("n >= 2")
    g = f.assume(Relation("<=", n, 5))
    assert f.interval(n) == (2, None)
    assert g.interval(n) == (2, 5)
    assert repr(g) == "Facts(n >= 2, n <= 5)"


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_random_facts_against_brute_force(seed):
    r = random.Random(seed)
    box = terms.variables(r)
    relations = []
    for _ in range(r.choice((1, 2, 3))):
        a, b = (terms.build(terms.tree(r, box, 1)) for _ in "ab")
        if r.random() < 0.2:
            a, b = r.choice(box) % r.choice((2, 3, 4)), 0
        if a is not None and b is not None:
            relations.append(Relation(r.choice(("==", "!=", "<", "<=", ">=")), a, b))
    e = terms.build(terms.tree(r, box, 3))
    c = terms.build(terms.tree(r, box, 2))
    if e is None or c is None:
        return
    known = Facts()
    try:
        for relation in relations:
            known = known.assume(relation)
        simple = known.simplify(e)
        lo, hi = known.interval(e)
        answer = known.prove("<=", e, c)
    except ZeroDivisionError:
        return  # a divisor that the facts make zero
    except Contradiction:
        known = None
    for at in terms.points(box):
        try:
            if not all(relation.holds(at) for relation in relations):
                continue
            assert known is not None, f"no contradiction: {relations} at {at}"
            value, other = evaluate(e, at), evaluate(c, at)
        except ZeroDivisionError:
            continue
        assert evaluate(simple, at) == value, (repr(known), to_text(e), to_text(simple), at)
        assert lo is None or lo <= value
        assert hi is None or value <= hi
        assert answer in (None, value <= other)
