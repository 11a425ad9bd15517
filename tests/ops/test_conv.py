"""Convolution over random geometries: against torch, and against its own definition."""

import numpy as np
import pytest

from lehr.ops import conv, execute, families, registry
from lehr.ops.patch import out_size
from tests.ops.oracle import torch

assert families.FAMILIES


def geometry(random, n):
    """A random convolution: (size, kernel, stride, padding, dilation, groups, channels in and out).
    """
    while True:
        kernel, stride, dilation = (tuple(int(v) for v in random.integers(1, h, n))
                                    for h in (4, 4, 3))
        padding = tuple(int(v) for v in random.integers(0, 3, n))
        size = tuple(int(v) for v in random.integers(1, 9, n))
        out = [out_size(*v) for v in zip(size, kernel, stride, padding, dilation, strict=True)]
        if min(out) >= 1:
            groups = int(random.integers(1, 4))
            return size, kernel, stride, padding, dilation, groups, groups * int(
                random.integers(1, 3)), groups * int(random.integers(1, 3)), out


def definition(x, w, out, stride, padding, dilation, groups):
    """The sum of products, element by element."""
    n, o = x.shape[0], w.shape[0]
    y = np.zeros((n, o, *out))
    for place in np.ndindex(*out):
        for tap in np.ndindex(*w.shape[2:]):
            at = [p * s + t * d - q for p, s, t, d, q in
                  zip(place, stride, tap, dilation, padding, strict=True)]
            if any(a < 0 or a >= size for a, size in zip(at, x.shape[2:], strict=True)):
                continue
            pixel = x[(slice(None), slice(None), *at)].reshape(n, groups, -1)
            weight = w[(slice(None), slice(None), *tap)].reshape(groups, o // groups, -1)
            y[(slice(None), slice(None), *place)] += np.einsum("ngc,goc->ngo", pixel,
                                                               weight).reshape(n, o)
    return y


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("buffer", [1, 1 << 21])
def test_random_geometries(seed, buffer, monkeypatch):
    """The image, its gradient and the kernel's, one image or all of them at a time."""
    monkeypatch.setattr(conv, "BUFFER", buffer)
    random = np.random.default_rng(seed)
    size, kernel, stride, padding, dilation, groups, c, o, out = geometry(random, 1 + seed % 3)
    x, w = random.standard_normal((3, c, *size)), random.standard_normal((o, c // groups, *kernel))
    shape = (stride, padding, dilation, groups)
    y = conv.correlate(x, w, out, *shape)
    np.testing.assert_allclose(y, definition(x, w, out, *shape), rtol=1e-11, atol=1e-11)
    g = random.standard_normal(y.shape)  # both gradients are adjoints: <g, conv(x, w)> is bilinear
    dx, dw = conv.scatter(g, w, size, *shape), conv.gradient(x, g, kernel, *shape)
    total = (g * y).sum()
    np.testing.assert_allclose([(dx * x).sum(), (dw * w).sum()], [total, total], rtol=1e-9,
                               atol=1e-9)
    other, thicker = random.standard_normal(x.shape), random.standard_normal(w.shape)
    np.testing.assert_allclose((dx * other).sum(),
                               (g * conv.correlate(other, w, out, *shape)).sum(),
                               rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((dw * thicker).sum(),
                               (g * conv.correlate(x, thicker, out, *shape)).sum(),
                               rtol=1e-9, atol=1e-9)


@pytest.mark.parity
@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("seed", range(30))
def test_transposed_against_torch(seed):
    random = np.random.default_rng(100 + seed)
    size, kernel, stride, padding, dilation, groups, c, o, _ = geometry(random, 1 + seed % 3)
    extra = tuple(int(random.integers(0, max(s, d))) for s, d in zip(stride, dilation, strict=True))
    full = [(i - 1) * s - 2 * p + d * (k - 1) + e + 1 for i, s, p, d, k, e in
            zip(size, stride, padding, dilation, kernel, extra, strict=True)]
    if min(full) < 1:
        return
    x, w = random.standard_normal((2, c, *size)), random.standard_normal((c, o // groups, *kernel))
    op = registry.get("convolution")
    have = execute.run(op, (x, w, None, stride, padding, dilation, True, extra, groups, None))
    tx, tw = (torch.from_numpy(t).requires_grad_() for t in (x, w))
    want = torch.convolution(tx, tw, None, stride, padding, dilation, True, extra, groups)
    np.testing.assert_allclose(have, want.detach(), rtol=1e-10, atol=1e-10)
    g = random.standard_normal(have.shape)
    grads = op.vjp(execute.FUNCTIONS, execute.wrap(g), None, *map(execute.wrap, (
        x, w, None, stride, padding, dilation, True, extra, groups, None)))
    for mine, theirs in zip(grads[:2], torch.autograd.grad(want, (tx, tw), torch.from_numpy(g)),
                            strict=True):
        np.testing.assert_allclose(execute.unwrap(mine()), theirs, rtol=1e-10, atol=1e-10)


def test_channels_last_in_channels_last_out():
    op = registry.get("convolution")

    class Image:
        shape, strides = (2, 4, 5, 6), (120, 1, 24, 4)

    class Kernel:
        shape, strides = (3, 4, 1, 1), (4, 1, 1, 1)

    class Spec:
        shape = (2, 3, 5, 6)
    assert op.layout(Spec, Image, Kernel) == (90, 1, 18, 3)
