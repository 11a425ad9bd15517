import copy
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lehr.base import poly, sym
from lehr.base.sym import (
    Var,
    affine,
    built,
    ceildiv,
    cost,
    divisor,
    evaluate,
    free,
    interval,
    maximum,
    minimum,
    parse,
    prod,
    render,
    size,
    substitute,
    to_text,
)
from tests.base import terms

b, t, h, d = Var("b", 0, 7), Var("t", 0, 127), Var("h", 0, 3), Var("d", 0, 63)
x, y, z = Var("x"), Var("y"), Var("z", None)
n, m = Var("n", 1), Var("m", 1)
e8, f4 = Var("e8", 8, None, 8), Var("f4", 0, None, 4)
i, j, k = Var("i", 0, n - 1), Var("j", 0, m - 1), Var("k", 0, None, 1)
one = Var("one", 0, 0)

# Left: built by the operators. Right: the text of what must come out.
RULES = [
    ((h * 64 + d) // 64, "h"),
    ((h * 64 + d) % 64, "d"),
    ((h * 64 + d) // 128, "h//2"),
    ((h * 64 + d) % 128, "h%2*64 + d"),
    ((h * 64 - d + 63) // 64, "h"),
    ((h * 64 - d + 63) % 64, "63 - d"),
    ((b * 32768 + t * 256 + h * 64 + d) // 256, "b*128 + t"),
    ((b * 32768 + t * 256 + h * 64 + d) // 256 % 128, "t"),
    (x // 1, "x"),
    (x % 1, "0"),
    (x * 8 // 8, "x"),
    (x * 8 % 8, "0"),
    ((x * 8 + y) // 8, "x + y//8"),
    ((x * 8 + y) % 8, "y%8"),
    ((x * 6 + 4) // 8, "(x*3 + 2)//4"),
    ((x * 6 + 4) % 8, "6 - (x + 1)%4*2"),
    ((x * 4 + 3) // 8, "x//2"),
    ((x * 4 + 3) % 8, "x%2*4 + 3"),
    (x * 9 // 8, "x + x//8"),
    (x // 8 // 4, "x//32"),
    ((x // 8 + 3) // 4, "(x + 24)//32"),
    (x // n // m, "x//(m*n)"),
    (x % 64 % 8, "x%8"),
    (x % 64 // 8, "x//8%8"),
    ((x % 8 + y) % 8, "(x + y)%8"),
    ((x % 64 * 3 + y) % 8, "(x*3 + y)%8"),
    (x % n % n, "x%n"),
    (x // 8 * 8 + x % 8, "x"),
    ((x - y) // 8 * 8 + (x - y) % 8, "x - y"),
    (x * y * (x // 8) * 8 + x * y * (x % 8), "x*x*y"),
    (x // n * n + x % n, "x"),
    (x // (n * m) * n * m * 3 + x % (n * m) * 3, "x*3"),
    (x // (n + m) * (n + m) + x % (n + m), "x"),
    (x // 64 * 64 + x // 8 % 8 * 8 + x % 8, "x"),
    (x - x // 8 * 8, "x%8"),
    (x - x // n * n, "x%n"),
    (-(-x // 8), "(x + 7)//8"),
    ((-x) % 8, "7 - (x + 7)%8"),
    (x // -8, "-((x + 7)//8)"),
    (e8 // 8 * 8, "e8"),
    (e8 // 8 * 4, "e8//2"),
    (e8 % 8, "0"),
    ((e8 + x) % 8, "x%8"),
    ((e8 + x) // 8, "e8//8 + x//8"),
    ((f4 + 1) // 8, "f4//8"),
    ((f4 + 1) % 8, "f4%8 + 1"),
    (h // 4, "0"),
    ((h + 4) // 4, "1"),
    (h % 4, "h"),
    ((h + 4) % 8, "h + 4"),
    ((h + 8) % 8, "h"),
    (-1 - h // 1, "-h - 1"),
    ((-1 - h) // 4, "-1"),
    ((j * n + i) // n, "j"),
    ((j * n + i) % n, "i"),
    ((j * n * 64 + i * 64 + d) // (n * 64), "j"),
    ((j * n * 64 + i * 64 + d) % (n * 64), "i*64 + d"),
    ((x * n * m + j * n + i) // (n * m), "x"),
    ((x * n * m + j * n + i) // n % m, "j"),
    ((x * n + i) // (n * m), "x//m"),
    ((n * n + n) // (n + 1), "n"),
    ((x * n + x + i) // (n + 1), "x"),
    (i // n, "0"),
    (-h // (9 - h * 2), "(-h)//(9 - h*2)"),
    ((i - n) // n, "-1"),
    (i % n, "i"),
    (n // n, "1"),
    (n * m // n, "m"),
    ((n * m * 6) // (m * 4), "n + n//2"),
    (minimum(h, 5), "h"),
    (maximum(h, 5), "5"),
    (minimum(x, x + 1), "x"),
    (maximum(x, x + 1, x - 3), "x + 1"),
    (minimum(x, y, x), "min(x, y)"),
    (minimum(minimum(x, y), maximum(x, 3)), "min(x, y)"),
    (minimum(i, n), "i"),
    (ceildiv(x, 8), "(x + 7)//8"),
    (ceildiv(n * 8, 8), "n"),
    (ceildiv(x, n), "(x - 1)//n + 1"),
    (ceildiv(n * m, n), "m"),
    (x % (n * m) // n, "x//n%m"),
    (x % (n * 8) // 8, "x//8%n"),
    (+(x + 1), "x + 1"),
    (maximum(x, y) * 2, "max(x, y)*2"),
    ((x + y) * (x - y), "x*x - y*y"),
    ((x + 1) ** 3, "x*x*x + x*x*3 + x*3 + 1"),
    (x - x, "0"),
    (3 - x + 2, "5 - x"),
    (one * 64 + 3, "3"),
    ((h + one) // 2, "h//2"),
]


@pytest.mark.parametrize(
    ("e", "text"), RULES, ids=[f"{k}-{text}" for k, (_, text) in enumerate(RULES)]
)
def test_rule(e, text):
    assert to_text(e) == text


INTERVALS = [
    (h * 64 + d, (0, 255)),
    (h - d, (-63, 3)),
    (-x, (None, 0)),
    (x - y, (None, None)),
    (x * 3 + 2, (2, None)),
    (z, (None, None)),
    ((x + d) // 8, (0, None)),
    ((d - 8) // 8, (-1, 6)),
    (x % 8, (0, 7)),
    (f4 % 8, (0, 4)),
    (x % h, (0, 2)),
    (d // n, (0, 63)),
    ((d - 70) // n, (-70, -1)),
    (h * (d - 5), (-15, 189)),
    (minimum(x, d), (0, 63)),
    (maximum(z, 7), (7, None)),
    (7, (7, 7)),
    (Var("v", 1, 30, 8), (8, 24)),
    (Var("v", 0, h - 1), (0, 2)),
]


@pytest.mark.parametrize(("e", "ends"), INTERVALS, ids=[str(e) for e, _ in INTERVALS])
def test_interval(e, ends):
    assert interval(e) == ends


DIVISORS = [
    (12, 12),
    (-12, 12),
    (0, 0),
    (x, 1),
    (x * 12 + y * 8, 4),
    (x * 12 + 3, 3),
    (e8 * x, 8),
    (e8 * f4, 32),
    (e8 // 4, 2),
    (e8 // 2 + 6, 2),
    (e8 * 3 % 32, 8),
    (minimum(x * 4, e8), 4),
    (x * 4 // 3, 1),
]


@pytest.mark.parametrize(("e", "want"), DIVISORS, ids=[str(e) for e, _ in DIVISORS])
def test_divisor(e, want):
    assert divisor(e) == want


def test_structural_equality_is_identity():
    assert (x * 3 + y) is (y + x * 3)
    assert (x + y) * 2 is (x * 2 + y * 2)
    assert Var("x") is x
    assert Var("x", 1) is not x
    assert (x + 1 == x + 1) is True
    assert (x == 0) is False
    assert {x + 1: "a"}[1 + x] == "a"
    assert type(x - x) is int
    assert type(x * 0) is int


def test_dead_nodes_leave_the_intern_tables():
    rules = (poly.ADD, poly.SUB, poly.MUL, poly.FLOORDIV, poly.MODULO, poly.MINIMUM, poly.MAXIMUM)
    e = Var("dead", 0, 500) * 7 + 3
    watch = weakref.ref(e)
    del e
    for rule in rules:
        rule.memo.clear()  # what the memos hold is bounded, but alive
    assert watch() is None
    assert not [key for key in poly._vars.refs if key[0] == "dead"]


def test_order_and_truth_raise():
    for compare in (
        lambda: x < 3,
        lambda: x <= y,
        lambda: 3 > x,
        lambda: x >= y,
        lambda: max(x, y),
    ):
        with pytest.raises(TypeError, match=r"prove_\*.*decide"):
            compare()
    with pytest.raises(TypeError, match="truth value"):
        bool(x)
    with pytest.raises(TypeError):
        range(x)


def test_foreign_operands():
    assert x + np.int64(3) is x + 3
    assert np.int64(3) * x is x * 3
    assert np.int32(7) - x is 7 - x
    assert x + True is x + 1
    for wrong in (1.0, "a", None, np.float32(2)):
        with pytest.raises(TypeError):
            x + wrong
    with pytest.raises(TypeError, match="expected an int"):
        minimum(x, 1.5)
    with pytest.raises(TypeError):
        x**-1
    with pytest.raises(TypeError):
        x**y


def test_division_by_zero():
    for divide in (lambda: x // 0, lambda: x % 0):
        with pytest.raises(ZeroDivisionError, match="x"):
            divide()
    with pytest.raises(ZeroDivisionError):
        evaluate(5 // (x + y), {x: 0, y: 0})


def test_var_ranges():
    assert interval(Var("v", 0, -1)) == (0, 0)  # the index of a zero-size axis
    assert interval(Var("v", None, 3)) == (None, 3)
    assert (Var("v", 0, one) + 5) == 5
    for wrong in (("v", 3, 1), ("v", 1, 7, 8), ("v", 0, 3, 0), ("3v",), ("min",), ("for",)):
        with pytest.raises(ValueError, match=r"no value|divisor|identifier"):
            Var(*wrong)


@pytest.mark.parametrize("e", [e for e, _ in RULES if not isinstance(e, int)], ids=str)
def test_pickle_and_copy_keep_identity(e):
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.copy(e) is e
    assert copy.deepcopy([e])[0] is e


def test_substitute():
    e = (x + y * 3) // 8 + minimum(x, y) * n
    assert substitute(e, {x: 5, y: 1, n: 2}) == 3
    assert substitute(e, {x: y, y: x}) is (y + x * 3) // 8 + minimum(x, y) * n
    assert substitute(e, {z: 3}) is e
    assert substitute((x // 8, x)[0], {x: h * 8 + 3}) is h
    assert substitute(e, {y: x + 1}) is (x * 4 + 3) // 8 + x * n


def test_substitute_visits_shared_nodes_once():
    e = x
    for _ in range(60):
        e = e // 3 + e % 5  # 2 ** 60 paths, a few nodes a step
    assert size(e) < 400
    assert evaluate(e, {x: 10**6}) == evaluate(substitute(e, {x: y + 1}), {y: 10**6 - 1})


def test_free():
    assert free(x // n + h * 2 - minimum(y, 3)) == {x, n, h, y}
    assert free(7) == frozenset()
    assert free(x) == {x}
    assert free(i) == {i}


def test_evaluate_names_the_missing_variable():
    with pytest.raises(KeyError, match="'y'"):
        evaluate(x + y, {x: 1})


def test_affine():
    assert affine(h * n + d * 4 + x // 2 + 7, (h, d)) == ({h: n, d: 4}, x // 2 + 7)
    assert affine(h * n + h * 3 + 1, (h,)) == ({h: n + 3}, 1)
    assert affine(x + 1, (h,)) == ({}, x + 1)
    assert affine(5, (h,)) == ({}, 5)
    assert affine(h * (x // 3), (h,)) == ({h: x // 3}, 0)
    for e in (h * h, h * d, (x + h) // 3, h * (x + h) // 7, minimum(x, h), x + (h + 1) % 3):
        assert affine(e, (h, d)) is None


def test_prod_cost_size():
    assert prod(()) == 1
    assert prod((2, x, 3)) is x * 6
    assert size(3) == cost(3) == cost(x) == 0
    assert size(x * 2 + y) == 3
    assert cost(x // 8) < cost(x // 7) < cost(x // n)
    assert cost(x + y) < cost(x * 3 + y * 5)


C = {
    "neg": ("-{0}", 1),
    "add": ("{0} + {1}", 1),
    "sub": ("{0} - {1}", 1),
    "mul": ("{0} * {1}", 2),
    "floordiv": ("{0} / {1}", 2),
    "mod": ("{0} % {1}", 2),
    "floordiv_any": ("floor_div({0}, {1})", 3),
    "mod_any": ("floor_mod({0}, {1})", 3),
    "min": ("min({0}, {1})", 3),
    "max": ("max({0}, {1})", 3),
}


@pytest.mark.parametrize(
    ("e", "text"),
    [
        ((x + 3) // 8 * y, "(x + 3) / 8 * y"),
        (y * ((x + 3) % 8), "(x + 3) % 8 * y"),
        ((z + 3) // 8, "floor_div(z + 3, 8)"),
        (z % 8 * 2, "floor_mod(z, 8) * 2"),
        (x // (y // 3), "x / (y / 3)"),
        (x - (y + 1) // 2 - 1, "x - (y + 1) / 2 - 1"),
        (-(x * y) - 3, "-(x * y) - 3"),
        (minimum(x, y, z * 2), "min(min(x, y), z * 2)"),
        (-4, "-4"),
    ],
)
def test_render(e, text):
    assert render(e, C) == text


def test_render_renames():
    assert render(x * 3 + y, C, {x: "size[0]"}) == "size[0] * 3 + y"


def test_parse_refuses():
    names = {"x": x}
    for text, message in [
        ("x + w", "unknown variable 'w' at column 4"),
        ("x / 2", "x / 2"),
        ("x +", "not a symbolic integer"),
        ("x.real", "x.real"),
        ("abs(x)", "abs"),
        ("1.5", "1.5"),
        ("True", "True"),
        ("min()", "min"),
    ]:
        with pytest.raises(
            ValueError,
            match="(?s)" + message.replace("(", r"\(").replace(")", r"\)").replace("+", r"\+"),
        ):
            parse(text, names)


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_random_expressions_against_brute_force(seed, depth):
    r = random.Random(seed)
    box = terms.variables(r)
    tree = terms.tree(r, box, depth)
    e = terms.build(tree)
    if e is None:
        return
    lo, hi = interval(e)
    again = parse(to_text(e), {v.name: v for v in box})
    assert again is e or (type(again) is int and again == e)
    assert free(e) <= set(box)
    for at in terms.points(box):
        want = terms.value(tree, at)
        if want is None:
            continue
        got = evaluate(e, at)
        assert got == want, (to_text(e), {v.name: c for v, c in at.items()})
        assert lo is None or lo <= got
        assert hi is None or got <= hi
        assert got == 0 if divisor(e) == 0 else got % divisor(e) == 0


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32))
def test_random_substitutions_against_brute_force(seed):
    r = random.Random(seed)
    box = terms.variables(r)
    tree = terms.tree(r, box, 3)
    v = r.choice(box)
    values = [w for w in box if w is not v and w.bound is not v]
    replacement = terms.build(terms.tree(r, values, 2))
    e = terms.build(tree)
    if e is None or replacement is None or any(w.bound is not None for w in box):
        return
    try:
        result = substitute(e, {v: replacement})
    except ZeroDivisionError:
        result = None  # then it must divide by zero everywhere
    for at in terms.points(box):
        try:
            inner = evaluate(replacement, at)
            want = terms.value(tree, {**at, v: inner})
        except ZeroDivisionError:
            continue
        # A variable stands for its range: outside it the expression promises nothing.
        if want is None or not v.lo <= inner <= v.hi or inner % v.div:
            continue
        assert result is not None
        assert evaluate(result, at) == want


def test_random_affine_forms_recompose():
    r = random.Random(7)
    found = 0
    for _ in range(300):
        box = [Var("a", 0, 5), Var("c", -2, 9), x, n]
        e = terms.build(terms.tree(r, box, 3, infix=("+", "+", "-", "*"), scales=(2, 3, 4)))
        form = None if e is None else affine(e, box[:2])
        if form is None:
            continue
        coeffs, rest = form
        found += bool(coeffs)
        assert free(rest).isdisjoint(box[:2])
        assert all(free(c).isdisjoint(box[:2]) for c in coeffs.values())
        assert sum((v * c for v, c in coeffs.items()), rest) is e or type(e) is int
    assert found > 50


def test_z3_agrees():
    """The simplified expression equals what was written, for all integers in unbounded ranges."""
    z3 = pytest.importorskip("z3")
    table = {
        **terms.COMPUTE,
        "//": lambda p, q: p / q,  # z3's integer division is floor division for positive divisors
        "min": lambda p, q: z3.If(p <= q, p, q),
        "max": lambda p, q: z3.If(p >= q, p, q),
    }
    box = [Var("p", None), Var("q"), Var("s", 0, 63), Var("w", 0, None, 8), Var("u", -5, 100)]
    infix = ("+", "+", "+", "-", "min", "max")
    r = random.Random(3)
    proven = unknown = 0
    while proven + unknown < 300:
        tree = terms.tree(r, box, 3, infix=infix, scales=(2, 3, 4, 8, 8, 12, 16))
        if not {"//", "%"} & set(re.findall(r"//|%", repr(tree))):
            continue
        e = terms.build(tree)
        names = {v: z3.Int(v.name) for v in box}
        solver = z3.Solver()
        solver.set("timeout", 1500)
        for v, name in names.items():
            lo, hi = interval(v)
            solver.add(*([] if lo is None else [name >= lo]), *([] if hi is None else [name <= hi]))
            solver.add(name % v.div == 0)
        table["leaf"] = lambda p, names=names: names[p] if isinstance(p, Var) else z3.IntVal(p)
        solver.add(_spell(tree, table) != _spell(_tree(e), table))
        verdict = solver.check()
        assert verdict != z3.sat, (tree, to_text(e), solver.model())
        proven += verdict == z3.unsat
        unknown += verdict == z3.unknown
    assert proven >= 270


def _spell(tree, table):
    if not isinstance(tree, tuple):
        return table["leaf"](tree)
    return table[tree[0]](_spell(tree[1], table), _spell(tree[2], table))


def _tree(e):
    """An expression as a tree again."""
    if isinstance(e, int | Var):
        return e
    if isinstance(e, sym.Sum):
        result = e.const
        for f, c in e.terms:
            result = "+", result, ("*", _tree(f), c)
        return result
    if isinstance(e, sym.Product):
        parts, op = e.factors, "*"
    elif isinstance(e, sym.Min | sym.Max):
        parts, op = e.args, e.op
    else:
        return {"floordiv": "//", "mod": "%"}[e.op], _tree(e.num), _tree(e.den)
    result = _tree(parts[0])
    for part in parts[1:]:
        result = op, result, _tree(part)
    return result


def test_cached_expressions_build_nothing():
    def build():
        return [((h * 64 + d) * 3 + b) // 32 + (x * n + y) % 7 - minimum(x, y), (x + y) * (n + 2)]

    first = build()
    before = built()
    assert all(p is q for p, q in zip(first, build(), strict=True))
    assert built() == before


def test_memos_are_bounded(monkeypatch):
    monkeypatch.setattr(poly, "MEMO_LIMIT", 8)
    kept = [(x + c) // 7 for c in range(50)]
    assert all(len(rule.memo) <= 8 for rule in (poly.ADD, poly.FLOORDIV))
    assert all(e is (x + c) // 7 for c, e in enumerate(kept))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_build_while_the_parent_held_the_lock():
    held, release = threading.Event(), threading.Event()

    def hold():
        with poly.Table.lock:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock ends the child with a signal
        os._exit(0 if str(Var("forked") * 3 + 1) == "forked*3 + 1" else 1)
    status = os.waitpid(child, 0)[1]
    release.set()
    holder.join()
    assert status == 0


def test_few_nodes_are_built():
    """Counts, not times: one operation makes about one node."""
    v = [Var(f"v{c}", 0, 99) for c in range(100)]
    before = built()
    keep = [v[c] * (1000 + c) + v[c + 1] for c in range(99)]
    assert built() - before <= 2 * 99
    before = built()
    keep += [e // 8 for e in keep]
    assert built() - before <= 6 * 99
    before = built()
    assert [(e * 64 + v[7] % 64) // 64 is e for e in keep[:99]] == [True] * 99
    assert built() - before <= 2 * 99 + 1


PROGRAM = """
from lehr.base.sym import Var, minimum
for name in {names!r}:
    Var(name) * 3
a, b, c, n = Var("alpha"), Var("beta", 0, 9), Var("c", None), Var("n", 1)
e = (a * b + c * 3 + n * a) // (n * 7) + minimum(a + b, c, n * n) % 12 + (a - c) * (b + n) ** 2
print(e, e.order)
"""


def test_text_is_the_same_in_every_process():
    outputs = set()
    for seed, names in (("1", []), ("2", ["n", "c", "beta", "alpha"]), ("3", ["beta", "n"])):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(names=names)],
            capture_output=True,
            text=True,
            check=True,
            env={**_environment(), "PYTHONHASHSEED": seed},
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_threads_agree_on_identity():
    results = []
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        v = [Var(f"thread{c}", 0, 50) for c in range(40)]
        results.append([(p * 5 + q) // 3 + p * q for p in v for q in v])

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(switch)
    assert len(results) == 4
    for other in results[1:]:
        assert all(p is q for p, q in zip(results[0], other, strict=True))
