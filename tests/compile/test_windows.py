"""Gradients of windows: each element of an image looks at the windows that hold it alone."""

import itertools

import numpy as np
import pytest

import lehr as torch
from lehr.nn import functional as F

WINDOWS = [(k, s, p, d) for k, s, p, d in itertools.product((2, 3, 5), (1, 2, 3), (0, 1), (1, 2))
           if 2 * p <= k]


def _both(f, x):
    found = []
    for g in (f, torch.compile(f)):
        a = x.clone().requires_grad_()
        y = g(a)
        weights = torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape) % 7 - 3
        (grad,) = torch.autograd.grad(y, a, weights)
        found.append((y.detach().numpy(), grad.numpy()))
    return found


def _same(f, x, exact):
    (y, g), (made, grad) = _both(f, x)
    compare = np.testing.assert_array_equal if exact else (
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5))
    compare(made, y)
    compare(grad, g)


@pytest.mark.parametrize("k, s, p, d", WINDOWS)
def test_windows(k, s, p, d):
    x = torch.randn(2, 3, 12, 13)
    _same(lambda x: F.max_pool2d(x, k, s, p, d), x, True)
    _same(lambda x: F.unfold(x, k, d, p, s), x, False)
    if d == 1:
        _same(lambda x: F.avg_pool2d(x, k, s, p), x, False)


@pytest.mark.parametrize("k", [3, 5])
def test_which_maximum(k):
    """Of equals the first; padding is none, were it as low; a NaN is above all."""
    x = torch.zeros(1, 4, 9, 10)
    x[0, 1] = -float("inf")
    x[0, 2, 3:5, 4:6] = float("nan")
    x[0, 3, 4, 4] = x[0, 3, 0, 0] = -float("inf")
    _same(lambda x: F.max_pool2d(x, k, 2, 1), x, True)
    _same(lambda x: F.max_pool2d(x, 2, 2), x, True)


def test_places_are_kept():
    """They are found once, where vectors run, not once more within the loop that adds."""
    from lehr.compiler.loop import realise
    from lehr.ops import registry

    assert realise._nature(registry.get("max_pool_place")) == "fold"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_windows_without_an_element(n):
    """Dilated ones may lie about a small image; their places are of another element, or none."""
    x = torch.arange(2.0 * n).reshape(1, 2, n)
    _same(lambda x: F.max_pool1d(x, 2, 1, 1, 2), x, True)
    _same(lambda x: F.max_pool2d(x[..., None], 2, 1, 1, 2), x, True)
