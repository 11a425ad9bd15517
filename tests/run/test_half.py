"""Products of bfloat16 matrices: every layout, edge and way to compute them, ranges, threads."""

from __future__ import annotations

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

from lehr.compiler.run import library, pool, target, template

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
ROWS = ctypes.CFUNCTYPE(None, ctypes.POINTER(POINTER), I64, I64)
HALF = ml_dtypes.bfloat16
# Flags that leave a compiler the tiles, the dot products, neither.
WAYS = {"tiles": (), "dots": ("-mno-amx-bf16",), "library": ("-mno-avx512bf16", "-mno-amx-bf16")}
NEEDS = {"tiles": {"amx_bf16", "avx512_bf16"}, "dots": {"avx512_bf16"}, "library": set()}


class Record(ctypes.Structure):
    """lehr_half."""

    _fields_ = [
        *((n, I64 * 4) for n in ("batch", "a_step", "b_step", "c_step")),
        *((n, I64) for n in "m n k ta tb lda ldb ldc a_wide b_wide".split()),
        *((n, POINTER) for n in ("a", "b", "c")), ("rows", ROWS), ("p", POINTER), ("many", I64),
        ("lent", I64), ("packed", POINTER), ("ready", POINTER)]


@pytest.fixture(scope="module", params=WAYS)
def multiply(request):
    """C = op(A) @ op(B) in float32; A and B are bfloat16, or float32 to be rounded."""
    if not target.host().features >= NEEDS[request.param]:
        pytest.skip(f"no {request.param} here")
    template.need("half")
    texts = "".join(map(pool.text, ("runtime.h", *template.SOURCES["half"].files)))
    flags = WAYS[request.param] if target.host().arch == "x86_64" else ()
    built = library.build([texts], "half", extra=(*template.FLAGS, *flags))
    function = built.function("lehr_product_half", None, POINTER, POINTER)
    table = ctypes.create_string_buffer(ctypes.string_at(pool.pool().table, 256), 256)
    built.function("lehr_install", None, POINTER)(table)

    length = built.function("lehr_packed", I64, I64, I64)
    pack = built.function("lehr_pack", I64, POINTER, *[I64] * 5, POINTER)

    def run(a, b, ta=0, tb=0, packed=False, rows=None, lent=0, threads=1, ready=False):
        a, b = (np.ascontiguousarray(x.swapaxes(-1, -2) if t else x) for x, t in ((a, ta), (b, tb)))
        m, k, n = a.shape[-1 if ta else -2], a.shape[-2 if ta else -1], b.shape[-2 if tb else -1]
        batch = a.shape[:-2]
        many = int(np.prod(batch, dtype=int))
        c = np.full((many, m, n if lent else n + 3), np.nan, np.float32)
        q = Record(m=m, n=n, k=k, ta=ta, tb=tb, lda=a.shape[-1], ldb=b.shape[-1], ldc=c.shape[-1],
                   a_wide=a.dtype == np.float32, b_wide=b.dtype == np.float32,
                   a=a.ctypes.data, b=b.ctypes.data, c=c.ctypes.data)
        q.batch[:] = 1, 1, 1, many
        for steps, size in ((q.a_step, m * k), (q.b_step, k * n if b.ndim > 2 else 0),
                            (q.c_step, c[0].size)):
            steps[3] = size
        if packed:
            room = np.empty(many * -(-k // 32) * -(-n // 32) * 2048 + 64, np.uint8)
            q.packed = room[-room.ctypes.data % 64:].ctypes.data
        if ready:       # None where B is not packed beforehand
            kept = np.empty(length(n, k) + 64, np.uint8)
            q.ready = kept[-kept.ctypes.data % 64:].ctypes.data
            if not pack(b.ctypes.data, b.shape[-1], q.b_wide, tb, n, k, q.ready):
                return None
        given = (POINTER * 2)(0, c.ctypes.data)
        if rows:
            q.rows, q.p, q.many, q.lent = ROWS(rows), ctypes.addressof(given), 2, 2 * lent
        before = pool.get_num_threads()
        pool.set_num_threads(threads)
        ctypes.memmove(table, pool.pool().table, 32)
        try:
            function(table, ctypes.byref(q))
        finally:
            pool.set_num_threads(before)
        if not lent:
            assert np.isnan(c[..., n:]).all()  # nothing beside the matrix
        return c[..., :n].reshape(*batch, m, n)

    run.way = request.param
    return run


def numbers(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def near(got, a, b):
    """Within what a float32 sum of exact products may differ."""
    a, b = a.astype(HALF).astype(np.float64), b.astype(HALF).astype(np.float64)
    assert (abs(got - a @ b) <= 5e-7 * (abs(a) @ abs(b))).all()


SIZES = [(1, 1, 1), (17, 1, 70), (33, 31, 45), (300, 70, 401), (40, 300, 1100), (2, 3, 0)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_layout(multiply, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a, b = numbers(rng, m, k), numbers(rng, k, n)
    for ta, tb, first, second, packed in itertools.product((0, 1), (0, 1), (HALF, np.float32),
                                                           (HALF, np.float32), (False, True)):
        near(multiply(a.astype(first), b.astype(second), ta, tb, packed), a, b)


@pytest.mark.parametrize("packed", [False, True])
def test_batches_and_repeated_operands(multiply, packed):
    rng = np.random.default_rng(1)
    a, b = numbers(rng, 3, 330, 64), numbers(rng, 3, 64, 40)
    near(multiply(a, b.astype(HALF), packed=packed), a, b)
    near(multiply(a, b[1].astype(HALF), packed=packed), a, b[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_matrix_packed_beforehand_gives_the_same_bits(multiply, threads):
    rng = np.random.default_rng(5)
    for m, n, k in ((3, 300, 1100), (40, 31, 45), (330, 70, 401)):
        a, b = numbers(rng, 2, m, k), numbers(rng, k, n)
        for tb, wide in itertools.product((0, 1), (HALF, np.float32)):
            for left in (a, a[0]):
                got = multiply(left, b.astype(wide), 0, tb, threads=threads, ready=True)
                assert (got is None) == (multiply.way == "library")
                if got is not None:
                    want = multiply(left, b.astype(wide), 0, tb, threads=threads)
                    np.testing.assert_array_equal(got, want)
    b[2, 3] = 1e-40
    assert multiply(a[0], b, ready=True) is None


def test_rounding_is_to_nearest_even_of_every_kind(multiply):
    """Products with 1 alone are the rounded numbers themselves, denormal ones included."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 1 << 32, 4096, np.uint64).astype(np.uint32)
    bits[:1024] &= 0xFFFF8000  # halves between two numbers
    for some in (bits, bits & 0x807FFFFF, bits | 0x00800000):
        x = some.view(np.float32).reshape(64, 64)
        x = np.where(np.isfinite(x), x, np.float32(1))
        want = x.astype(HALF).astype(np.float32)
        one = np.ones((1, 1), HALF)
        for row in x[:8]:
            got = multiply(row[:, None], one)[:, 0]
            np.testing.assert_array_equal(got, row.astype(HALF).astype(np.float32))
        np.testing.assert_array_equal(multiply(one, x.reshape(1, -1))[0], want.reshape(-1))


@pytest.mark.parametrize("kind", [HALF, np.float32])
def test_infinities_and_nan(multiply, kind):
    rng = np.random.default_rng(3)
    a, b = numbers(rng, 40, 70), numbers(rng, 70, 50)
    a[3, 5], a[4, 6], a[5, 7], b[7, 9] = np.inf, -np.inf, np.nan, np.inf
    b[5, 3] = 0
    with np.errstate(invalid="ignore"):
        want = a.astype(HALF).astype(np.float32) @ b.astype(HALF).astype(np.float32)
    got = multiply(a.astype(kind), b.astype(kind))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    assert np.isnan(got[5]).all() and np.isnan(got[3, 3]) and got[4, 2] in (np.inf, -np.inf)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("kind", [HALF, np.float32])
@pytest.mark.parametrize("packed", [False, True])
def test_denormal_numbers_count(multiply, side, kind, packed):
    a, b = np.zeros((400, 40), np.float32), np.zeros((40, 64), np.float32)
    tiny, other = (a, b) if side == 0 else (b.T, a.T)
    other[...] = 2.0**60
    tiny[7, 3] = 3 * 2.0**-130
    got = multiply(a.astype(kind), b.astype(kind), packed=packed)
    np.testing.assert_array_equal(got, a @ b)
    assert got.max() == 3 * 2.0**-70


@pytest.mark.parametrize("shape", [(2, 300, 64), (1, 40, 64), (1, 700, 2000)], ids=str)
@pytest.mark.parametrize("lent", [0, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_find_the_product(multiply, shape, lent, threads):
    many, m, n = shape
    rng = np.random.default_rng(4)
    a, b = numbers(rng, many, m, 48), numbers(rng, 48, n)
    ld = n if lent else n + 3
    out = np.zeros((many * m, n), np.float32)
    seen = np.zeros(many * m, int)

    def rows(p, first, last):
        assert not p[0]
        at = p[1] + first * ld * 4
        block = np.ctypeslib.as_array((ctypes.c_float * ((last - first) * ld)).from_address(at))
        out[first:last] = block.reshape(-1, ld)[:, :n]
        seen[first:last] += 1

    multiply(a, b, packed=m > 288, rows=rows, lent=lent, threads=threads)
    assert (seen == 1).all()
    near(out.reshape(many, m, n), a, b)


def test_same_bits_on_any_number_of_threads(multiply):
    rng = np.random.default_rng(5)
    for shape in ((1, 700, 96), (1, 50, 700), (3, 200, 96)):
        a, b = numbers(rng, *shape[:2], 1030), numbers(rng, 1030, shape[2])
        runs = [multiply(a, b, packed=True, threads=t) for t in (1, 2, 3)]
        assert all((x == runs[0]).all() for x in runs)
