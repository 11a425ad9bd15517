"""Float32 products of few rows, columns or terms: values, edges, threads, the choice by sizes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import lehr
from lehr.compiler.run import pool, template
from tests.run.products import same_bits

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
THIN = 6  # its place in lehr_runtime
KIND = ctypes.CFUNCTYPE(None, *[I64] * 6, *[POINTER, I64] * 3)
ALONG, TURNED = 1, 2


@pytest.fixture(scope="module")
def product():
    template.need("thin")
    call = KIND((POINTER * (THIN + 1)).from_address(pool.pool().table)[THIN])

    def run(way, a, b, ta, tb):
        (m, k), n = a.shape, b.shape[1]
        # What lies behind the rows of operands is never read, behind those of C never written.
        wide = [np.full((x.shape[0], x.shape[1] + 5), np.nan, np.float32)
                for x in (a.T if ta else a, b.T if tb else b)]
        for room, x, t in zip(wide, (a, b), (ta, tb), strict=True):
            room[:, :-5] = x.T if t else x
        c = np.full((m, n + 3), np.nan, np.float32)
        pairs = [y for x in (*wide, c) for y in (x.ctypes.data, x.shape[1])]
        call(way, ta, tb, m, n, k, *pairs)
        assert np.isnan(c[:, n:]).all()
        return c[:, :n]

    return run


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


SIZES = [(1, 1, 1), (1, 130, 37), (4, 33, 64), (5, 17, 1100), (12, 70, 9), (24, 3, 40),
         (90, 200, 7), (3, 64, 600)]


@pytest.mark.parametrize("way", [0, ALONG, TURNED, ALONG | TURNED])
@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_values(product, way, trans):
    ta, tb = trans
    if way & ALONG and not (tb if not way & TURNED else not ta):
        pytest.skip("terms do not lie together")
    for m, n, k in SIZES:
        for (rows, columns) in ((m, n), (n, m)):
            a, b = numbers(rows, k), numbers(k, columns)
            want = a.astype(np.float64) @ b.astype(np.float64)
            bound = (abs(a) @ abs(b)) * 3e-7 * max(1, min(k, 512) ** 0.5)
            assert (abs(product(way, a, b, ta, tb) - want) <= bound).all(), (rows, columns, k)


@pytest.mark.parametrize("way", [0, ALONG])
def test_an_element_depends_on_its_row_and_column_alone(product, way):
    a, b = numbers(23, 700), numbers(700, 150)
    whole = product(way, a, b, 0, 1)
    np.testing.assert_array_equal(product(way, a[3:8], b[:, 17:90], 0, 1), whole[3:8, 17:90])
    np.testing.assert_array_equal(product(way, a[7:8], b[:, 149:], 0, 1), whole[7:8, 149:])
    # Infinities stay where they are.
    a[2, 5] = np.inf
    other = product(way, a, b, 0, 1)
    assert not np.isfinite(other[2]).any()
    np.testing.assert_array_equal(np.delete(other, 2, 0), np.delete(whole, 2, 0))


@pytest.mark.parametrize("sizes", [(4, 900, 300), (900, 4, 300), (400, 500, 4), (20, 700, 200)])
@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0)])
def test_programs_and_eager_calls_have_the_same_bits_on_any_number_of_threads(sizes, trans):
    m, n, k = sizes
    a, b = numbers(*((k, m) if trans[0] else (m, k))), numbers(*((n, k) if trans[1] else (k, n)))
    same_bits(a, b, trans)


def test_no_terms_give_zeros():
    y = lehr.compile(lambda a, b: a @ b)(lehr.zeros(3, 0), lehr.zeros(0, 5))
    assert y.tolist() == [[0.0] * 5] * 3
