import itertools
import random

import numpy as np
import pytest

from lehr.base.index import contiguous, delinearize, linearize, reshape_index
from lehr.base.sym import FloorDiv, Mod, Sym, Var, evaluate, prod, substitute, to_text

b, t, h, d, c = Var("b", 0, 7), Var("t", 0, 127), Var("h", 0, 3), Var("d", 0, 63), Var("c", 0, 255)
B, T, H = Var("B", 1), Var("T", 1), Var("H", 1)
ib, it, ih = Var("ib", 0, B - 1), Var("it", 0, T - 1), Var("ih", 0, H - 1)
bt = Var("bt", 0, B * T - 1)


def texts(index):
    return [to_text(e) for e in index]


def divisions(index):
    found, stack = 0, list(index)
    while stack:
        e = stack.pop()
        if isinstance(e, Sym):
            found += isinstance(e, FloorDiv | Mod)
            stack.extend(e.parts())
    return found


def test_contiguous():
    assert contiguous((2, 3, 4)) == (12, 4, 1)
    assert contiguous(()) == ()
    assert contiguous((B, T, 64)) == (T * 64, 64, 1)


def test_linearize():
    assert linearize((b, t, c), (8, 128, 256)) is b * 32768 + t * 256 + c
    assert linearize((b, t), (8, 128), (0, 3)) is t * 3
    assert linearize((b, t), (1, 128)) is t
    assert linearize((), ()) == 0
    with pytest.raises(ValueError, match="do not fit"):
        linearize((b,), (8, 128))


def test_delinearize():
    flat = b * 32768 + t * 256 + h * 64 + d
    assert delinearize(flat, (8, 128, 4, 64)) == (b, t, h, d)
    assert delinearize(flat, (8, 1, 128, 256)) == (b, 0, t, h * 64 + d)
    assert delinearize(ib * T * 64 + it * 64 + d, (B, T, 64)) == (ib, it, d)
    assert delinearize(0, (3, 0, 2)) == (0, 0, 0)
    assert delinearize(d, (64, 1)) == (d, 0)


def test_split_and_merge_of_heads():
    merged = reshape_index((b, t, h, d), (8, 128, 4, 64), (8, 128, 256))
    assert texts(merged) == ["b", "t", "h*64 + d"]
    split = reshape_index((b, t, c), (8, 128, 256), (8, 128, 4, 64))
    assert texts(split) == ["b", "t", "c//64", "c%64"]
    assert [substitute(e, {c: h * 64 + d}) for e in split] == [b, t, h, d]


def test_symbolic_sizes():
    assert texts(reshape_index((ib, it, h, d), (B, T, 4, 64), (B, T, 256))) == [
        "ib",
        "it",
        "h*64 + d",
    ]
    rows = reshape_index((bt, c), (B * T, 256), (B, T, 4, 64))
    assert texts(rows) == ["bt//T", "bt%T", "c//64", "c%64"]
    assert [substitute(e, {bt: ib * T + it, c: h * 64 + d}) for e in rows] == [ib, it, h, d]
    wide = Var("wide", 0, H * 64 - 1)
    heads = reshape_index((ib, it, wide), (B, T, H * 64), (B, T, H, 64))
    assert texts(heads) == ["ib", "it", "wide//64", "wide%64"]
    assert [substitute(e, {wide: ih * 64 + d}) for e in heads] == [ib, it, ih, d]
    assert texts(reshape_index((ib, it, ih, d), (B, T, H, 64), (B * T, H * 64))) == [
        "T*ib + it",
        "ih*64 + d",
    ]


def test_sizes_of_one_and_zero():
    assert reshape_index((b, 0, t), (8, 1, 128), (8, 128, 1, 1)) == (b, t, 0, 0)
    assert reshape_index((), (), (1, 1)) == (0, 0)
    assert reshape_index((0, 0), (1, 1), ()) == ()
    assert reshape_index((b, t, 0), (8, 0, 3), (24, 0)) == (0, 0)


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"\[8, 16\] to \[8, 17\]"):
        reshape_index((b, t), (8, 17), (8, 16))
    with pytest.raises(ValueError, match="does not fit"):
        reshape_index((b,), (8, 17), (8, 16))
    with pytest.raises(ValueError, match="sizes differ"):
        reshape_index((ib,), (B * 4,), (B * 4 + 1,))


def _factorizations(r, total):
    shape = []
    while total > 1:
        f = r.choice([f for f in range(2, total + 1) if total % f == 0])
        shape.append(f)
        total //= f
    for _ in range(r.choice((0, 0, 1))):
        shape.insert(r.randrange(len(shape) + 1), 1)
    return tuple(shape)


def test_random_reshapes_against_numpy():
    r = random.Random(1)
    for case in range(150):
        total = r.choice((1, 6, 12, 16, 24, 36))
        out, into = _factorizations(r, total), _factorizations(r, total)
        variables = [Var(f"r{case}_{axis}", 0, extent - 1) for axis, extent in enumerate(out)]
        index = reshape_index(variables, out, into)
        table = np.arange(total).reshape(into)
        for point in itertools.product(*map(range, out)):
            at = dict(zip(variables, point, strict=True))
            where = tuple(evaluate(e, at) for e in index)
            assert table[where] == table.reshape(out)[point]
        if out == into:
            assert divisions(index) == 0


def test_there_and_back_again_is_the_identity():
    """Reshaping twice through a refinement of both shapes leaves no division."""
    r = random.Random(2)
    for case in range(100):
        fine = _factorizations(r, 48)
        cut = sorted(r.sample(range(len(fine) + 1), r.randint(0, min(2, len(fine)))))
        ends = [0, *cut, len(fine)]
        coarse = tuple(prod(fine[p:q]) for p, q in itertools.pairwise(ends))
        v = [Var(f"q{case}_{axis}", 0, extent - 1) for axis, extent in enumerate(fine)]
        merged = reshape_index(v, fine, coarse)
        assert divisions(merged) == 0
        back = reshape_index(merged, coarse, fine)
        assert all(p is q or extent == 1 for p, q, extent in zip(back, v, fine, strict=True))
