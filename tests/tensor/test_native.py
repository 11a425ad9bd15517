"""Eager kernels in C give what numpy's give."""

import numpy as np
import pytest

import lehr
from lehr.ops import conv
from lehr.tensor import native, pointwise

F = lehr.nn.functional
RNG = np.random.default_rng(7)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def worth(monkeypatch):
    """Calls of any size, all of which have to reach C."""
    calls = []
    monkeypatch.setattr(native, "LEAST", 0)
    run = native.KERNELS.copy()

    def counted(name):
        def kernel(*args):
            made = run[name](*args)
            calls.append((name, made is not NotImplemented))
            return made
        return kernel

    monkeypatch.setattr(native, "KERNELS", {name: counted(name) for name in run})
    return calls


def close(have, want):
    np.testing.assert_allclose(have, want, 2e-6, 2e-6 * np.abs(want).max())


@pytest.mark.parametrize("form", ["plain", "channels_last", "sliced", "permuted", "single"])
@pytest.mark.parametrize("transposed", [False, True])
def test_layouts(form, transposed, worth):
    x = {"plain": lambda: lehr.from_numpy(array(2, 20, 9, 8)),
         "channels_last": lambda: lehr.from_numpy(array(2, 20, 9, 8)).contiguous(
             memory_format=lehr.channels_last),
         "sliced": lambda: lehr.from_numpy(array(2, 40, 9, 18))[:, ::2, :, 2:18:2],
         "permuted": lambda: lehr.from_numpy(array(9, 2, 20, 8)).permute(1, 2, 0, 3),
         "single": lambda: lehr.from_numpy(array(1, 20, 9, 8))}[form]()
    w, b = lehr.from_numpy(array(*((20, 12) if transposed else (24, 10)), 3, 2)), array(24)
    x, w, b = x.requires_grad_(), w.requires_grad_(), lehr.from_numpy(b).requires_grad_()
    f = F.conv_transpose2d if transposed else F.conv2d
    y = f(x, w, b, stride=(2, 1), padding=(1, 0), groups=2)
    g = lehr.from_numpy(array(*y.shape))
    dx, dw, db = lehr.autograd.grad(y, (x, w, b), g)
    assert len(worth) == 3 and all(done for _, done in worth)
    s, p, d = (2, 1), (1, 0), (1, 1)
    x_, w_, g_ = (t.detach().numpy().astype(np.float64) for t in (x, w, g))
    forward, back = (conv.scatter, conv.correlate) if transposed else (conv.correlate, conv.scatter)
    close(y.detach().numpy() - b.detach().numpy()[:, None, None],
          forward(x_, w_, y.shape[2:], s, p, d, 2))
    close(dx.numpy(), back(g_, w_, x.shape[2:], s, p, d, 2))
    close(dw.numpy(), conv.gradient(*((g_, x_) if transposed else (x_, g_)), (3, 2), s, p, d, 2))
    meta = f(x.detach().to("meta"), w.detach().to("meta"), b.detach().to("meta"), stride=s,
             padding=p, groups=2)
    assert y.stride() == meta.stride()


@pytest.mark.parametrize("groups, per", [(20, 1), (3, 1), (6, 4)])
def test_groups_of_few_channels(groups, per, worth):
    x = lehr.from_numpy(array(2, groups * per, 9, 8)).requires_grad_()
    w = lehr.from_numpy(array(groups * per, per, 3, 3)).requires_grad_()
    y = F.conv2d(x, w, padding=1, groups=groups)
    g = lehr.from_numpy(array(*y.shape))
    dx, dw = lehr.autograd.grad(y, (x, w), g)
    assert len(worth) == 3 and all(done for _, done in worth)
    geometry = (1, 1), (1, 1), (1, 1), groups
    x_, w_, g_ = (t.detach().numpy().astype(np.float64) for t in (x, w, g))
    close(y.detach().numpy(), conv.correlate(x_, w_, (9, 8), *geometry))
    close(dx.numpy(), conv.scatter(g_, w_, (9, 8), *geometry))
    close(dw.numpy(), conv.gradient(x_, g_, (3, 3), *geometry))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_kernels_of_one_pixel_are_products(groups, transposed, last, monkeypatch):
    products, run = [], pointwise.multiply
    monkeypatch.setattr(pointwise, "multiply", lambda *a: products.append(run(*a)) or products[-1])
    x = lehr.from_numpy(array(3, 256, 20, 20))
    x = x.contiguous(memory_format=lehr.channels_last) if last else x
    w = array(*((256, 128 // groups) if transposed else (128, 256 // groups)), 1, 1)
    w, b = lehr.from_numpy(w), lehr.from_numpy(array(128))
    leaves = [t.requires_grad_() for t in (x, w, b)]
    y = (F.conv_transpose2d if transposed else F.conv2d)(*leaves, groups=groups)
    g = lehr.from_numpy(array(*y.shape))
    g = g.contiguous(memory_format=lehr.channels_last) if last else g
    dx, dw, db = lehr.autograd.grad(y, leaves, g)
    done = [made is not NotImplemented for made in products]
    assert done == ([True] if last and groups > 1 else [True] * 3)
    assert y.is_contiguous(memory_format=lehr.channels_last) is last
    geometry = (1, 1), (0, 0), (1, 1), groups
    x_, w_, g_ = (t.detach().numpy().astype(np.float64) for t in (x, w, g))
    forward, back = (conv.scatter, conv.correlate) if transposed else (conv.correlate, conv.scatter)
    close(y.detach().numpy() - b.detach().numpy()[:, None, None],
          forward(x_, w_, (20, 20), *geometry))
    close(dx.numpy(), back(g_, w_, (20, 20), *geometry))
    close(dw.numpy(), conv.gradient(*((g_, x_) if transposed else (x_, g_)), (1, 1), *geometry))
    close(db.numpy(), g_.sum((0, 2, 3)))


def test_other_dtypes_stay_with_numpy(worth):
    x, w = lehr.from_numpy(array(1, 2, 6, 5, 4)), lehr.from_numpy(array(3, 2, 2, 2, 2))
    close(F.conv3d(x, w).numpy(), F.conv3d(x.double(), w.double()).numpy())
    assert worth == [("convolution", True), ("convolution", False)]


def test_without_a_compiler(monkeypatch, worth):
    monkeypatch.setattr(native, "library", lambda name: None)
    x, w = lehr.from_numpy(array(2, 3, 6)), lehr.from_numpy(array(4, 3, 3))
    assert F.conv1d(x, w).shape == (2, 4, 4)
    assert worth == [("convolution", False)]
