"""Eager products and attention in C give what double precision gives, for all layouts."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import lehr
from lehr.tensor import attend, native, product

F = lehr.nn.functional
RNG = np.random.default_rng(12)
EPS = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 1e-2}


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Which kernels C did, of any size."""
    made = []
    monkeypatch.setattr(product, "LEAST", 0)
    monkeypatch.setattr(attend, "LEAST", 0)
    product.plan.cache_clear()
    call = native.Library.call

    def counted(self, name, record):
        made.append(name)
        call(self, name, record)

    monkeypatch.setattr(native.Library, "call", counted)
    yield made
    product.plan.cache_clear()


def laid(shape, dtype, how):
    """Numbers in memory as `how` says."""
    if how == "columns":
        made = RNG.standard_normal((*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    elif how == "gaps":
        made = RNG.standard_normal((*shape[:-1], 2 * shape[-1]))[..., ::2]
    elif how == "wide":
        made = RNG.standard_normal((*shape[:-1], shape[-1] + 3))[..., :-3]
    elif how == "repeated":
        made = np.broadcast_to(RNG.standard_normal(shape[-1:]), shape)
    elif how == "backwards":
        made = RNG.standard_normal(shape)[..., ::-1, :]
    else:
        made = RNG.standard_normal(shape)
    t = lehr.from_numpy(np.ascontiguousarray(made)).to(getattr(lehr, dtype))
    base = t._array
    if how == "columns":
        base = np.ascontiguousarray(base.swapaxes(-1, -2)).swapaxes(-1, -2)
    elif how == "gaps":
        base = np.repeat(base, 2, -1)[..., ::2]
    elif how == "wide":
        base = np.concatenate([base, base[..., :1]], -1)[..., :-1]
    elif how == "repeated":
        base = np.broadcast_to(base[(0,) * (base.ndim - 1)], shape)
    elif how == "backwards":
        base = np.ascontiguousarray(base[..., ::-1, :])[..., ::-1, :]
    return base


def exact(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


def close(have, want, dtype):
    assert have.shape == want.shape
    np.testing.assert_allclose(have.astype(np.float64), want, 0,
                               EPS[dtype] * max(1, float(np.abs(want).max(initial=0))) * 4)


LAYOUTS = ("rows", "columns", "gaps", "wide", "repeated", "backwards")
SHAPES = [((5, 7), (7, 3)), ((1, 9), (9, 40)), ((40, 9), (9, 1)), ((300, 33), (33, 70)),
          ((2, 3, 5, 7), (2, 3, 7, 4)), ((3, 5, 7), (7, 4)), ((5, 7), (3, 7, 4)),
          ((2, 1, 5, 7), (1, 3, 7, 4)), ((130, 64), (64, 150))]


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_products_of_all_layouts(dtype, shapes, calls):
    for left, right in itertools.product(LAYOUTS, LAYOUTS):
        a, b = laid(shapes[0], dtype, left), laid(shapes[1], dtype, right)
        before = a.copy(), b.copy()
        have = product.multiply(a, b)
        assert have is not NotImplemented, (left, right)
        assert have.dtype == a.dtype
        close(have, exact(a, b), dtype)
        np.testing.assert_array_equal(a, before[0])
        np.testing.assert_array_equal(b, before[1])
    assert len(calls) == len(LAYOUTS) ** 2


@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)),
                                    ((0, 2, 3), (3, 4)), ((2, 0, 3), (2, 3, 4))])
def test_nothing_to_multiply(shapes):
    a, b = lehr.randn(shapes[0]), lehr.randn(shapes[1])
    np.testing.assert_array_equal((a @ b).numpy(), a.numpy() @ b.numpy())


def test_more_than_four_batch_dimensions_and_other_dtypes():
    a = lehr.randn(1, 2, 1, 2, 1, 3, 4)
    np.testing.assert_allclose((a @ a.mT).numpy(), a.numpy() @ a.mT.numpy(), 1e-5, 1e-6)
    for dtype in (lehr.int32, lehr.float16, lehr.complex64):
        b = lehr.arange(12).reshape(3, 4).to(dtype)
        assert (b @ b.mT).dtype is dtype
        assert (b @ b.mT)[2, 2].item() == 8 * 8 + 9 * 9 + 10 * 10 + 11 * 11


def test_infinity_and_nan_reach_their_rows_and_columns_alone():
    for dtype in (lehr.float32, lehr.float64, lehr.bfloat16):
        a, b = lehr.ones(64, 64, dtype=dtype), lehr.ones(64, 64, dtype=dtype)
        a[3, 5], b[7, 9] = float("inf"), float("nan")
        c = (a @ b).float()
        assert c[3, :9].isinf().all() and c[:, 9].isnan().all()
        assert c[:3, :9].eq(64).all() and c[4:, 10:].eq(64).all()


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(dtype, bias, calls):
    for shape in ((6, 33), (2, 3, 33), (33,)):
        x, w = (laid(s, dtype, "rows") for s in (shape, (40, 33)))
        b = laid((1, 40), dtype, "rows")[0] if bias else None
        have = F.linear(*(None if v is None else lehr.from_numpy(
            v.astype(np.float64)).to(getattr(lehr, dtype)) for v in (x, w, b)))
        close(have._array, exact(x, w.T) + (0 if b is None else b.astype(np.float64)), dtype)
    assert calls


def test_bfloat16_with_a_wide_result_is_not_rounded():
    a = laid((40, 50), "bfloat16", "rows")
    have = product.matmul(a, a.T, lehr.float32)
    assert have.dtype == np.float32
    close(have, exact(a, a.T), "float32")
    assert product.matmul(a, a.T, None).dtype == ml_dtypes.bfloat16


MASKS = {"none": None, "bool": (12, 20), "bool of heads": (3, 1, 20), "added": (2, 1, 12, 20),
         "one row": (1, 20)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask, causal, calls):
    if causal and mask != "none":
        pytest.skip("not both")
    shape, rows = MASKS[mask], (2, 3)
    q = lehr.from_numpy(laid((*rows, 12, 16), "float32", "wide"))
    k = lehr.from_numpy(laid((2, 1, 20, 16), "float32", "columns"))
    v = lehr.from_numpy(laid((*rows, 20, 32), "float32", "rows"))
    m = None
    if shape is not None:
        m = lehr.randn(shape) if mask == "added" else lehr.randn(shape) > -1
    found = []
    for wide in (False, True):
        inputs = [(t.double() if wide else t.clone()).requires_grad_() for t in (q, k, v)]
        a = inputs[0], inputs[1].expand(2, 3, 20, 16), inputs[2]
        y = F.scaled_dot_product_attention(*a, attn_mask=m.double() if wide and mask == "added"
                                           else m, is_causal=causal)
        y.sin().sum().backward()
        found.append([y, *(t.grad for t in inputs)])
    for have, want in zip(*found, strict=True):
        close(have.detach().numpy(), want.detach().numpy(), "float32")
    assert {"lehr_attend", "lehr_attend_back"} <= set(calls)


def test_rows_that_see_nothing_are_zeros():
    q = lehr.randn(1, 1, 16, 16)
    hidden = lehr.zeros(16, 16, dtype=lehr.bool)
    hidden[3:] = True
    y = F.scaled_dot_product_attention(q, q, q, attn_mask=hidden)
    assert y[0, 0, :3].eq(0).all() and y[0, 0, 3:].abs().sum() > 0


@pytest.mark.parametrize("shape", [(300, 64, 96), (1000, 100, 33), (2, 400, 512, 300)])
def test_where_a_packed_operand_begins(shape, monkeypatch):
    """Panels are read as whole lines of the cache, and numpy's memory begins anywhere."""
    if native.library("half") is None:
        pytest.skip("no compiler")
    seen, call = [], native.Library.call

    def told(library, name, record):
        seen.append(record.packed)
        return call(library, name, record)

    monkeypatch.setattr(native.Library, "call", told)
    *batch, m, k, n = shape
    a, b = laid((*batch, m, k), "bfloat16", "rows"), laid((*batch, k, n), "bfloat16", "rows")
    have = product.multiply(a, b, np.float32)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(have - want).max() <= 1e-5 * k
    assert [at % 64 for at in seen] == [0]
