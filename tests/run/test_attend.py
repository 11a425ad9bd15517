"""Attention of bfloat16 matrices by its template: every way to compute it against float64."""

from __future__ import annotations

import ctypes
import math

import ml_dtypes
import numpy as np
import pytest

from lehr.compiler.run import library, pool, target, template
from lehr.ops import attention

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
HALF = ml_dtypes.bfloat16
# Flags that leave a compiler the tiles, the dot products, neither.
WAYS = {"tiles": (), "dots": ("-mno-amx-bf16",), "library": ("-mno-avx512bf16", "-mno-amx-bf16")}
NEEDS = {"tiles": {"amx_bf16", "avx512_bf16"}, "dots": {"avx512_bf16"}, "library": set()}
TINY = HALF(1e-39)  # denormal


class Record(ctypes.Structure):
    """lehr_attention."""

    _fields_ = [
        *((n, POINTER) for n in "q k v g mask out dq dk dv rise lse".split()), ("batch", I64 * 4),
        *((n, I64) for n in "l s e ev causal mask_kind".split()),
        *((f"{n}_step", I64 * 5) for n in "q k v g rise".split()), ("mask_step", I64 * 6),
        *((f"{n}_step", I64 * 5) for n in "out lse dq dk dv".split()), ("scale", ctypes.c_float)]


@pytest.fixture(scope="module", params=WAYS)
def attend(request):
    """(out, lse) of bfloat16 q [b, l, e], k [b, s, e], v [b, s, ev] and a mask [l, s]."""
    if not target.host().features >= NEEDS[request.param]:
        pytest.skip(f"no {request.param} here")
    source = template.SOURCES["attention_half"]
    flags = WAYS[request.param] if target.host().arch == "x86_64" else ()
    texts = "".join(map(pool.text, ("runtime.h", *source.files)))
    built = library.build([texts], "attend", extra=(*template.FLAGS, *flags))
    function = built.function("lehr_attend_half", None, POINTER, POINTER)
    table = ctypes.create_string_buffer(ctypes.string_at(pool.pool().table, 256), 256)
    built.function("lehr_install", None, POINTER)(table)

    def run(q, k, v, mask=None, scale=None, causal=False, threads=1, gap=3):
        (b, rows, e), (_, columns, ev) = q.shape, v.shape
        out = np.full((b, rows, ev + gap), 7, HALF)
        lse = np.full((b, rows), np.nan, np.float32)
        r = Record(l=rows, s=columns, e=e, ev=ev, causal=causal, scale=scale or 1 / math.sqrt(e))
        r.batch[:] = 1, 1, 1, b
        for name, x in (("q", q), ("k", k), ("v", v), ("out", out), ("lse", lse)):
            setattr(r, name, x.ctypes.data)
            step = getattr(r, f"{name}_step")
            step[3] = x.strides[0] // x.itemsize if len(x) > 1 or b == 1 else 0
            step[4] = x.strides[1] // x.itemsize
        if mask is not None:
            r.mask, r.mask_kind = mask.ctypes.data, 1 if mask.dtype == bool else 2
            r.mask_step[4], r.mask_step[5] = (n // mask.itemsize for n in mask.strides)
        before = pool.get_num_threads()
        pool.set_num_threads(threads)
        ctypes.memmove(table, pool.pool().table, 32)
        try:
            function(table, ctypes.byref(r))
        finally:
            pool.set_num_threads(before)
        assert (out[..., ev:] == 7).all()  # nothing beside the rows
        return out[..., :ev].astype(np.float64), lse

    return run


def numbers(rng, *shape):
    return rng.standard_normal(shape).astype(HALF)


def reference(q, k, v, mask=None, scale=None, causal=False):
    """The same in float64, and the sums of magnitudes that its errors are measured by."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    rest = mask, scale or 1 / math.sqrt(q.shape[-1]), causal, 0.0, 0, 0
    out, lse = attention.forward(np, q, k, v, *rest)
    return out, lse, attention.forward(np, q, k, abs(v), *rest)[0]


def near(got, want):
    """One rounding to bfloat16, and what 16 bits of probabilities and float32 sums may add."""
    (out, lse), (right, right_lse, size) = got, want
    assert (abs(out - right) <= 2.0 ** -8 * abs(right) + 3e-5 * size).all()
    np.testing.assert_allclose(lse, right_lse, 1e-5, 1e-5)


# batch, rows, columns, e, ev, causal, mask
CASES = [
    (3, 197, 197, 64, 64, False, None), (2, 130, 130, 80, 33, True, None),
    (1, 33, 600, 33, 80, False, "bool"), (1, 600, 1100, 16, 16, True, None),
    (2, 1, 70, 64, 1, False, "added"), (1, 40, 1, 1, 5, False, None), (1, 70, 9, 7, 7, True, None),
    (1, 96, 1025, 64, 64, False, "columns"), (1, 100, 70, 32, 32, True, "bool"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_against_float64(attend, case, threads):
    b, rows, columns, e, ev, causal, kind = case
    rng = np.random.default_rng(rows)
    q, k, v = numbers(rng, b, rows, e), numbers(rng, b, columns, e), numbers(rng, b, columns, ev)
    mask = {None: None, "bool": rng.random((rows, columns)) > 0.3,
            "added": rng.standard_normal((rows, columns)).astype(np.float32),
            "columns": np.ascontiguousarray(rng.random((columns, rows)) > 0.5).T}[kind]
    if kind == "bool":
        mask[3] = False
    got, want = attend(q, k, v, mask, causal=causal, threads=threads), reference(
        q, k, v, mask, causal=causal)
    near(got, want)
    if kind == "bool":  # nothing takes part: zeros
        assert not got[0][:, 3].any() and np.isposinf(got[1][:, 3]).all()


def test_rows_of_a_longer_memory_and_shared_keys(attend):
    rng = np.random.default_rng(5)
    joined = numbers(rng, 2, 50, 3 * 40)
    q, k, v = joined[..., :40], joined[:1, :, 40:80], joined[:1, :, 80:]
    near(attend(q, k, v), reference(q, k, v))


def test_large_scores_and_scales(attend):
    rng = np.random.default_rng(6)
    q, k, v = numbers(rng, 1, 40, 32), numbers(rng, 1, 50, 32), numbers(rng, 1, 50, 16)
    near(attend(q, k, v, scale=-0.7), reference(q, k, v, scale=-0.7))
    out, _ = attend((q * HALF(1000)).astype(HALF), k, v)  # one column takes all
    best = (q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2)).argmax(-1)[0]
    assert (out[0] == v[0][best].astype(np.float64)).mean() > 0.9


@pytest.mark.parametrize("which", range(3))
def test_denormal_numbers_count(attend, which):
    """They are small, but no zeros: large factors make them large again."""
    rng = np.random.default_rng(7)
    given = [numbers(rng, 1, 20, 32), numbers(rng, 1, 20, 32), numbers(rng, 1, 20, 32)]
    given[which][:] = TINY
    if which < 2:
        given[1 - which][:] = (rng.choice([-1, 1], (1, 20, 32)) * 1e38).astype(HALF)
        near(attend(*given, scale=5.0), reference(*given, scale=5.0))
    else:
        assert (attend(*given)[0] == float(TINY)).all()


def test_infinities_and_nan_stay_in_their_rows(attend):
    rng = np.random.default_rng(8)
    q, k, v = numbers(rng, 1, 70, 33), numbers(rng, 1, 40, 33), numbers(rng, 1, 40, 33)
    q[0, 4] = np.nan
    q[0, 5] = np.inf
    v[0, 7, 2] = np.inf
    v[0, 8, 3] = np.nan
    out, _ = attend(q, k, v)
    assert np.isnan(out[0, 4]).all() and np.isnan(out[0, 5]).all()
    rest = np.delete(out[0], [4, 5], 0)
    assert np.isposinf(rest[:, 2]).all() and np.isnan(rest[:, 3]).all()
    assert np.isfinite(np.delete(rest, [2, 3], 1)).all()


def test_the_same_bits_on_any_number_of_threads(attend):
    rng = np.random.default_rng(9)
    q, k, v = numbers(rng, 1, 500, 48), numbers(rng, 1, 500, 48), numbers(rng, 1, 500, 48)
    for causal in (False, True):
        one, two = (attend(q, k, v, causal=causal, threads=n)[0] for n in (1, 2))
        np.testing.assert_array_equal(one, two)
