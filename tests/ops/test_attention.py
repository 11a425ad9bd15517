"""Attention in blocks: whatever the blocks, the results are those of the plain formula."""

import numpy as np
import pytest

from lehr.ops import attention, execute, families, registry

assert families.FAMILIES


def bound(rows, columns, mask, causal, p, dtype=np.float64, seed=0):
    random = np.random.default_rng(seed)
    q, k = (random.standard_normal((2, 3, n, 4)).astype(dtype) for n in (rows, columns))
    v = random.standard_normal((2, 3, columns, 5)).astype(dtype)
    if mask == "bool":
        mask = random.random((3, rows, columns)) < 0.6
        mask[:, 0] = False  # a row with everything masked
    elif mask == "float":
        mask = random.standard_normal((2, 1, rows, columns)).astype(dtype)
    return q, k, v, mask, 0.5, causal, p, 7, 11


def plain(name, args):
    """The decomposition over the reference interpreter: it knows no blocks."""
    op = registry.get(name)
    out = op.decomp(execute.FUNCTIONS, *map(execute.wrap, args))
    return [execute.unwrap(o) for o in out]


@pytest.mark.parametrize("rows, columns", [(7, 7), (7, 12), (12, 7), (1, 9)])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("block", [8, 100, 1 << 17])
def test_blocks(rows, columns, mask, causal, p, block, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", block)
    monkeypatch.setattr(attention, "ROWS", 3)
    args = bound(rows, columns, mask, causal, p)
    with np.errstate(all="ignore"):
        out, lse = attention.forward(np, *args)
        want, want_lse = plain("attention", args)
        np.testing.assert_allclose(out, want, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(lse, want_lse, rtol=1e-11, atol=1e-12)
        g, rise = (np.random.default_rng(1).standard_normal(t.shape) for t in (out, lse))
        rest = (g, *args[:3], out, lse, rise, *args[3:])
        for have, expected in zip(attention.backward(np, *rest), plain("attention_grad", rest),
                                  strict=True):
            np.testing.assert_allclose(have, expected, rtol=1e-10, atol=1e-11)


def test_rows_with_everything_masked_are_zero_and_get_no_gradient():
    args = bound(4, 6, "bool", False, 0.0)
    out, lse = attention.forward(np, *args)
    assert np.all(out[:, :, 0] == 0)
    grads = attention.backward(np, np.ones_like(out), *args[:3], out, lse, None, *args[3:])
    assert np.all(grads[0][:, :, 0] == 0) and all(np.isfinite(g).all() for g in grads)


def test_shared_heads_are_not_copied():
    """Key and value with one head for several of the query: broadcast views reach the products."""
    q, k = np.ones((2, 4, 2, 8, 4)), np.ones((2, 4, 1, 8, 4))
    out, _ = attention.forward(np, q, k, k, None, 0.5, True, 0.0, 0, 0)
    assert out.shape == (2, 4, 2, 8, 4) and np.allclose(out, 1)
