"""Float32 products by bfloat16 tiles: errors beside BLAS's, ranges, parts, edges, threads."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from lehr.base.options import default, set_default
from lehr.compiler.run import pool, target, template

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
PACKING = 4  # its place in lehr_runtime
KIND = ctypes.CFUNCTYPE(ctypes.c_int, *[I64] * 5, *[POINTER, I64] * 4)


@pytest.fixture(scope="module")
def product():
    """C = op(A) @ op(B), or None where the product was left undone."""
    built = template.need("split")
    address = (ctypes.c_void_p * (PACKING + 1)).from_address(pool.pool().table)[PACKING]
    if not address or not target.host().features >= template.TILES:
        pytest.skip("no bfloat16 tiles here")
    call = KIND(address)
    length = built.function("lehr_packed", I64, I64, I64)
    pack = built.function("lehr_pack", I64, POINTER, *[I64] * 5, POINTER)

    def run(a, b, ta=0, tb=0, ready=False):
        a, b = (np.ascontiguousarray(x.T if t else x) for x, t in ((a, ta), (b, tb)))
        (m, k), n = (a.shape[::-1] if ta else a.shape), b.shape[0 if tb else 1]
        c = np.full((m, n + 3), np.nan, np.float32)
        sizes = (x.ctypes.data for x in (a, b, c))
        pairs = [y for x, ld in zip(sizes, (a.shape[1], b.shape[1], n + 3), strict=True)
                 for y in (x, ld)]
        room, kept = None, np.empty(length(n, k) + 64, np.uint8)
        if ready:
            room = kept[-kept.ctypes.data % 64:].ctypes.data
            if not pack(b.ctypes.data, b.shape[1], 1, tb, n, k, room):
                return None
        if not call(ta, tb, m, n, k, *pairs, room, 0):
            return None
        assert np.isnan(c[:, n:]).all()  # nothing beside the matrix
        return c[:, :n]

    return run


def numbers(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def errors(got, a, b):
    """Root mean square and maximum of the errors, as shares of |A| @ |B|."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    share = (got - a @ b) / (abs(a) @ abs(b))
    return np.sqrt(np.mean(share**2)), abs(share).max()


def exact(x):
    """Numbers that bfloat16 has."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("left", [numbers, lambda *a: exact(numbers(*a))])
@pytest.mark.parametrize("right", [numbers, lambda *a: exact(numbers(*a)),
                                   lambda *a: exact(numbers(*a)) * np.float32(1 + 2 ** -9)])
def test_a_matrix_packed_beforehand_gives_the_same_bits(product, trans, left, right):
    rng = np.random.default_rng(5)
    for m, n, k in ((33, 31, 45), (70, 300, 1201)):
        a, b = left(rng, m, k), right(rng, k, n)
        np.testing.assert_array_equal(product(a, b, *trans, ready=True), product(a, b, *trans))


def test_what_is_out_of_range_is_not_packed(product):
    b = np.ones((40, 40), np.float32)
    for bad in (np.inf, np.nan, 1e-40, 2.0**70):
        b[3, 7] = bad
        assert product(b.copy(), b, ready=True) is None


@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (33, 31, 45), (16, 48, 33), (70, 300, 401)])
def test_every_shape_within_float32(product, sizes, trans):
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a, b = numbers(rng, m, k), numbers(rng, k, n)
    _, worst = errors(product(a, b, *trans), a, b)
    assert worst < 3e-7


@pytest.mark.parametrize("k", [64, 512, 3000])
@pytest.mark.parametrize("spread", [0, 12], ids=["normal", "many magnitudes"])
def test_errors_are_no_larger_than_those_of_float32(product, k, spread):
    rng = np.random.default_rng(k)
    a, b = (numbers(rng, *s) * np.exp2(rng.uniform(-spread, spread, s)).astype(np.float32)
            for s in ((128, k), (k, 160)))
    mean, worst = errors(product(a, b), a, b)
    total = np.zeros((128, 160), np.float32)  # one float32 sum, term after term
    for n in range(k):
        total += a[:, n : n + 1] * b[n]
    plain, far = errors(total, a, b)
    assert mean <= plain and worst <= far


def test_single_products_are_within_a_step_of_float32(product):
    rng = np.random.default_rng(0)
    a, b = numbers(rng, 300, 1), numbers(rng, 1, 300)
    got, want = product(a, b), a * b
    assert (abs(got.view(np.int32) - want.view(np.int32)) <= 1).all()
    assert (got == want).mean() > 0.9


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e30, -1e19, 1e-33, -1e-40])
def test_numbers_out_of_range_are_left_undone(product, bad):
    rng = np.random.default_rng(1)
    a, b = numbers(rng, 40, 450), numbers(rng, 450, 40)
    at = rng.integers(0, 40), rng.integers(0, 450)
    assert product(a, b) is not None
    for x, y in ((a, b), (b.T, a.T)):
        broken = x.copy()
        broken[at] = bad
        assert product(broken, y) is None


@pytest.mark.parametrize("edge", [9.2e18, 1e-31, 0.0, -0.0])
def test_numbers_at_the_edge_of_the_range(product, edge):
    rng = np.random.default_rng(2)
    a, b = numbers(rng, 40, 64), numbers(rng, 64, 40)
    a[3], a[4, ::2] = edge, edge
    got, want = product(a, b), a.astype(np.float64) @ b
    size = abs(a).astype(np.float64) @ abs(b)
    assert (abs(got - want) <= 2e-7 * size).all()


def test_fewer_parts_give_the_same_bits(product):
    """bfloat16 and 16-bit numbers skip products that are 0; a larger matrix beside them does not
    change what comes out."""
    rng = np.random.default_rng(3)
    whole = rng.integers(-128, 128, (2, 64, 96)).astype(np.float32)
    a, b = whole[0], whole[1].T.copy()
    np.testing.assert_array_equal(product(a, b), a @ b)  # whole numbers: no rounding at all
    wide = np.vstack([a * 257 + 1, a])
    np.testing.assert_array_equal(product(wide, b)[64:], a @ b)
    full = np.vstack([numbers(rng, 64, 96), a])
    np.testing.assert_array_equal(product(full, b)[64:], a @ b)
    short = (numbers(rng, 64, 96).view(np.uint32) & 0xFFFF0000).view(np.float32)
    right = (numbers(rng, 96, 64).view(np.uint32) & 0xFFFF0000).view(np.float32)
    halves = numbers(rng, 64, 96).astype(np.float16).astype(np.float32)  # two parts
    np.testing.assert_array_equal(product(halves, b),
                                  product(np.vstack([full[:64], halves]), b)[64:])
    alone = product(short, right)
    beside = product(np.vstack([full[:64], short]), right)[64:]
    np.testing.assert_array_equal(alone, beside)


def test_rows_and_columns_do_not_depend_on_how_many_there_are(product):
    rng = np.random.default_rng(4)
    a, b = numbers(rng, 2100, 40), numbers(rng, 40, 300)
    whole = product(a, b)
    np.testing.assert_array_equal(product(a[992:1040], b), whole[992:1040])
    np.testing.assert_array_equal(product(a, b[:, 256:]), whole[:, 256:])


def test_it_can_be_switched_off():
    kept = default()
    set_default(kept.replace(split=False))
    try:
        assert template.need.__wrapped__("split") is template.need("panels")
    finally:
        set_default(kept)
