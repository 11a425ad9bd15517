"""The reference interpreter against numpy written by hand."""

import ml_dtypes
import numpy as np
import pytest

import lehr.ops.contract  # noqa: F401
from lehr.base import dtype as dt
from lehr.base import philox
from lehr.compiler.loop.interp import fold, run
from lehr.compiler.loop.parse import parse_program

RNG = np.random.default_rng(1)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def program(params, buffers, body, results):
    lines = "\n".join(f"  {line}" for line in buffers.split("; "))
    return parse_program(f"program p({params}) {{\n{lines}\n{body}\n  return {results}\n}}")


def test_rows_staged_and_ref():
    p = program("x: param f32[8,4], w: ref f32[8,4]",
                "m: local f32[]; e: local f32[4]; y: output f32[8,4]", """
  kernel rows(i0: 8; i1: 4, k0: 4) {
    m[] = max.f32[k0](x[i0,k0])
    e[i1] for (i1) = sub.f32(x[i0,i1], m[], f32(1.0))
    y[i0,i1] for (i1) = div.f32(e[i1], sum.f32[k0](e[k0]), None)
    w[i0,i1] for (i1) = add.f32(w[i0,i1], y[i0,3 - i1], f32(1.0))
  }""", "y")
    x, w = f32(8, 4), f32(8, 4)
    e = x - x.max(1, keepdims=True)
    want = e / e.astype(np.float64).sum(1, keepdims=True).astype(np.float32)
    new = w + want[:, ::-1]
    (y,) = run(p, [x, w])
    np.testing.assert_allclose(y, want, rtol=1e-5)
    np.testing.assert_allclose(w, new, rtol=1e-5)


def test_scatter_gather_masks():
    p = program("x: param f32[6], t: param i64[6]", "z: output f32[4]; y: output f32[6]", """
  kernel zero(i0: 4) {
    z[i0] = f32(0.0)
  }
  kernel k(i0: 6) {
    bind g0 below {4} wrap = t[i0] if ne.b1(t[i0], i64(9))
    z[g0] add = x[i0] if ne.b1(t[i0], i64(9))
  }
  kernel back(i0: 6) {
    bind g0 below {4} wrap = t[i0] if ne.b1(t[i0], i64(9))
    y[i0] = load(z[g0], ne.b1(t[i0], i64(9)), f32(-1.0))
  }""", "z, y")
    x, t = f32(6), np.array([0, -1, 2, 9, 0, 3])
    z, y = run(p, [x, t])
    want = np.zeros(4, np.float32)
    np.add.at(want, t[t != 9], x[t != 9])
    np.testing.assert_array_equal(z, want)
    np.testing.assert_array_equal(y, np.where(t == 9, -1, want[np.where(t == 9, 0, t)]))
    with pytest.raises(IndexError, match="index 4 is out of bounds for a dimension of size 4"):
        run(p, [x, np.array([0, 1, 2, 4, 0, 3])])
    with pytest.raises(IndexError, match="index -5 is out"):
        run(p, [x, np.array([0, 1, 2, -5, 0, 3])])


def test_scan_and_random():
    p = program("x: param f32[3,5], key: scalar i64[]", "y: output f32[3,5]; r: output i64[4,3]",
    """
  kernel s(i0: 3; i1: 5) {
    y[i0,i1] for (i1 scan) = scan.sum.f32[i1](x[i0,i1])
  }
  kernel r(i0: 4, i1: 3) {
    r[i0,i1] = random(key[], i64(7), {i0*3 + i1})
  }""", "y, r")
    x = f32(3, 5)
    y, r = run(p, [x, 42])
    np.testing.assert_allclose(y, np.cumsum(x, 1), rtol=1e-6)
    np.testing.assert_array_equal(r.ravel(), philox.words(42, 7, 12))


def test_extern_layouts_and_host():
    p = program("x: param f32[4,3] strides [1,4], w: param f32[2,3]",
                "q: output f32[4,2]; y: output f32[2,4] strides [1,2]; h: output f32[4,3]", """
  extern mm: matmul(in(0), in(1), None) of (view(x, {0}, [4,3], [1,4]), view(w, {0}, [3,2], [1,3]))
  \
-> view(q, {0}, [4,2], [2,1]) with (i0: 4, i1: 2) {
    y[i1,i0] = neg.f32(q[i0,i1])
  }
  host h: sub(view(x, {0}, [4,3], [1,4]), 1.5, 1) -> (h)""", "q, y, h")
    x, w = f32(4, 3), f32(2, 3)
    q, y, h = run(p, [x, w])
    np.testing.assert_allclose(q, x @ w.T, rtol=1e-5)
    np.testing.assert_array_equal(y, -q.T)
    np.testing.assert_array_equal(h, x - np.float32(1.5))


def test_sizes_casts_and_half():
    p = parse_program("""program p<s: 1..9>(x: param bf16[s,2], a: scalar f64[]) {
  y: output bf16[s*2]
  i: output i32[s*2]
  kernel k(i0: s*2) {
    let %0 = cast.f32(x[i0//2,i0%2])
    y[i0] = cast.bf16(mul.f32(%0, cast.f32(a[])))
    i[i0] = cast.i32(index({max(i0, 2)}))
  }
  return y, i
}""")
    x = f32(3, 2).astype(ml_dtypes.bfloat16)
    y, i = run(p, [x, 1.5])
    want = (x.astype(np.float32) * np.float32(1.5)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(y, want.ravel())
    assert i.tolist() == [2, 2, 2, 3, 4, 5] and i.dtype == np.int32


def test_empty_and_zero_size():
    p = parse_program("""program p<s: 0..9>(x: param f32[s,3]) {
  y: output f32[3]
  z: output f32[s]
  kernel k(i0: 3; k0: s) {
    y[i0] = max.f32[k0](x[k0,i0])
  }
  kernel n(i0: s) {
    z[i0] = x[i0,0]
  }
  return y, z
}""")
    y, z = run(p, [np.zeros((0, 3), np.float32)])
    assert (y == -np.inf).all() and z.shape == (0,)


NAN = float("nan")


@pytest.mark.parametrize("name, function", [("argmax", np.argmax), ("argmin", np.argmin)])
def test_argmax_first_and_nan(name, function):
    rows = np.array([[1, 3, 3, 0], [NAN, 1, NAN, 2], [1, 1, 1, 1], [2, 9, NAN, 9.5],
                     [-np.inf] * 4, [np.inf] * 4], np.float32)
    index = np.broadcast_to(np.arange(4), rows.shape)
    value, place = fold(name, [rows.T, index.T], [dt.float32, dt.int64])
    np.testing.assert_array_equal(place, function(rows, 1))  # numpy's NaN comes first too
    np.testing.assert_array_equal(value, rows[np.arange(6), place])


@pytest.mark.parametrize("name, function", [("max", np.max), ("min", np.min), ("prod", np.prod)])
def test_folds_and_nan(name, function):
    rows = np.array([[1, 3, 3, 0, 7], [NAN, 1, 1, 2, 0], [1, 1, 1, NAN, -1]], np.float32)
    (value,) = fold(name, [rows.T], [dt.float32])
    np.testing.assert_array_equal(value, function(rows, 1))
    assert fold("all", [np.ones((0, 2), bool)], [dt.bool_])[0].all()
    assert fold("any", [np.eye(3, dtype=bool)], [dt.bool_])[0].all()
