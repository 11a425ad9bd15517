"""Float32 products from packed panels: values, edges, layouts, what is never read or written, and
that an element depends on its row and its column alone."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from lehr.base.options import default
from lehr.compiler.run import library, target, template
from tests.run.products import same_bits

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
KIND = ctypes.CFUNCTYPE(ctypes.c_int, *[I64] * 5, *[POINTER, I64] * 4)
PACKING = 4     # its place in lehr_runtime


class Table(ctypes.Structure):
    _fields_ = [("slots", POINTER * 32)]


class Panels:
    """The template as it is compiled for some instructions, beside the one in use."""

    def __init__(self, simd):
        options = default().replace(simd=simd, optimize=2)
        self.built = library.build([template.text_of("panels")], "panels", options, template.FLAGS)
        table = Table()
        self.built.function("lehr_install", None, POINTER)(ctypes.byref(table))
        address = table.slots[PACKING]
        self.call = address and KIND(address)
        self.length = self.built.function("lehr_packed", I64, I64, I64)
        self.pack = self.built.function("lehr_pack", I64, POINTER, *[I64] * 5, POINTER)

    def ready(self, b, tb):
        """A packed matrix, with NaN behind it."""
        k, n = b.shape
        size = self.length(n, k)
        room = np.full(size // 4 + 32, np.nan, np.float32)
        room = room[-room.ctypes.data % 64 // 4:]
        wide = surrounded(b, tb)
        assert self.pack(wide.ctypes.data, wide.shape[1], 1, tb, n, k, room.ctypes.data) == 1
        assert np.isnan(room[size // 4:]).all()
        return room

    def __call__(self, a, b, ta=0, tb=0, ready=None, at=0):
        (m, k), n = a.shape, b.shape[1]
        wide = [surrounded(a, ta), surrounded(b, tb)]
        c = np.full((m, n + 3), np.nan, np.float32)
        pairs = [y for x in (*wide, c) for y in (x.ctypes.data, x.shape[1])]
        room = None if ready is None else ready.ctypes.data
        if ready is not None:
            pairs[2] = None         # B itself is not read
        assert self.call(ta, tb, m, n, k, *pairs, room, at) == 1
        assert np.isnan(c[:, n:]).all()
        return c[:, :n]


def surrounded(x, turned):
    """A matrix in memory whose rows end in what must not be read."""
    x = x.T if turned else x
    room = np.full((x.shape[0], x.shape[1] + 5), np.nan, np.float32)
    room[:, :-5] = x
    return room


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@pytest.fixture(scope="module", params=["native", "avx512"])
def panels(request):
    if not target.host().features >= template.SOURCES["panels"].features:
        pytest.skip("no vectors that panels are made for")
    return Panels(request.param)


SIZES = [(1, 1, 1), (3, 31, 5), (7, 32, 16), (14, 33, 17), (15, 64, 40), (29, 95, 33),
         (130, 257, 100), (40, 140, 769), (1030, 40, 50)]


@pytest.mark.parametrize("trans", list(itertools.product((0, 1), (0, 1))))
@pytest.mark.parametrize("sizes", SIZES)
def test_values(panels, sizes, trans):
    m, n, k = sizes
    a, b = numbers(m, k), numbers(k, n)
    want = a.astype(np.float64) @ b.astype(np.float64)
    bound = (abs(a) @ abs(b)) * 6e-8 * (4 + k ** 0.5)
    got = panels(a, b, *trans)
    assert (abs(got - want) <= bound).all()
    packed = panels.ready(b, trans[1])
    np.testing.assert_array_equal(panels(a, b, *trans, packed), got)


def test_every_height_and_width(panels):
    a, b = numbers(45, 37), numbers(37, 99)
    whole = panels(a, b)
    for m in range(1, 46):
        np.testing.assert_array_equal(panels(a[:m], b), whole[:m])
    for n in range(1, 100):
        np.testing.assert_array_equal(panels(a[:20], b[:, :n], 1, 1), whole[:20, :n])


def test_an_element_depends_on_its_row_and_column_alone(panels):
    a, b = numbers(1100, 1600), numbers(1600, 200)
    whole, packed = panels(a, b), panels.ready(b, 0)
    np.testing.assert_array_equal(panels(a[990:1040], b[:, 17:90]), whole[990:1040, 17:90])
    np.testing.assert_array_equal(panels(a[:33], b[:, 96:200], ready=packed, at=96),
                                  whole[:33, 96:])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e-40, 3e38])
def test_numbers_that_are_not_finite_or_denormal(panels, bad):
    """They reach the elements of their row or column as IEEE says, and no other."""
    a, b = numbers(40, 70), numbers(70, 45)
    plain = panels(a, b)
    for where in ("row", "column"):
        x, y = a.copy(), b.copy()
        if where == "row":
            x[39, 69] = bad
        else:
            y[69, 44] = bad
        with np.errstate(invalid="ignore", over="ignore"):
            want = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
        for got in (panels(x, y), panels(x, y, 1, 1), panels(x, y, ready=panels.ready(y, 0))):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)
            rest = got[:39] if where == "row" else got[:, :44]
            np.testing.assert_array_equal(rest, plain[:39] if where == "row" else plain[:, :44])


def test_no_terms_are_left_undone(panels):
    c = np.ones((4, 4), np.float32)
    pairs = [c.ctypes.data, 4] * 3
    assert panels.call(0, 0, 4, 4, 0, *pairs, None, 0) == 0


def test_portable_code_has_none():
    made = Panels("portable")
    assert not made.call and made.length(64, 64) == 0


def test_the_choice_hangs_on_sizes_alone():
    worth = Panels("portable").built.function("lehr_worth", *[I64] * 4)
    assert worth(128, 256, 256) and worth(1024, 128, 128) and worth(16, 1024, 512)
    assert not worth(15, 1024, 1024) and not worth(24, 512, 512)    # thin
    assert not worth(128, 257, 256)     # most of a panel would be missing
    assert not worth(512, 120, 512) and not worth(512, 512, 31) and not worth(32, 128, 128)
    assert not worth(1576, 768, 768) and worth(512, 4096, 4096)     # as fast by BLAS
    rule, pick = template.SOURCES["panels"].worth, np.random.default_rng(3)
    for m, n, k in pick.integers(1, 3000, (500, 3)).tolist():
        assert template.holds(rule, m, n, k) == bool(worth(m, n, k))


def test_a_program_without_such_products_does_not_wait_for_the_template(monkeypatch):
    asked = []
    monkeypatch.setattr(template, "need", asked.append)
    monkeypatch.setattr(template, "chosen", lambda name: {"split": "panels"}.get(name, name))
    for products in ([], [[8, 8, 8]], [[1576, 768, 768]]):
        template.load({"templates": ["attention", "split"], "products": products})
        assert asked == ["attention"]
        asked.clear()
    for products in ([[128, 256, 256]], [[0, 256, 256]], [[8, 8, 8], [512, 512, 512]]):
        template.load({"templates": ["split"], "products": products})
        assert asked == ["panels"]
        asked.clear()


def test_it_stands_in_for_products_by_tiles(monkeypatch):
    source = template.SOURCES["split"]
    assert source.instead == "panels"
    if not target.host().features >= source.features:
        assert template.need("split") is template.need("panels")
        monkeypatch.setattr(target, "host", lambda: target.Target("x86_64", frozenset(), ""))
        assert template.need.__wrapped__("panels") is None


@pytest.mark.parametrize("sizes", [(64, 256, 300), (300, 64, 256), (200, 288, 800),
                                   (18, 512, 1000)])
@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0)])
def test_programs_and_eager_calls_have_the_same_bits_on_any_number_of_threads(sizes, trans):
    m, n, k = sizes
    a, b = numbers(*((k, m) if trans[0] else (m, k))), numbers(*((n, k) if trans[1] else (k, n)))
    same_bits(a, b, trans)
