"""Normalisations and maxima of windows in C give what numpy's kernels give in double precision."""

import math

import numpy as np
import pytest

import lehr
from lehr.ops import norm, pool, registry
from lehr.tensor import layer, native

F = lehr.nn.functional
RNG = np.random.default_rng(11)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """(kernel, whether C did it) of every call, of any size."""
    made = []
    monkeypatch.setattr(layer, "LEAST", 0)
    run = native.KERNELS.copy()

    def counted(name):
        def kernel(*args):
            result = run[name](*args)
            made.append((name, result is not NotImplemented))
            return result
        return kernel

    monkeypatch.setattr(native, "KERNELS", {name: counted(name) for name in run})
    return made


def close(have, want, tolerance=3e-6):
    want = np.asarray(want)
    np.testing.assert_allclose(have.detach().numpy(), want, tolerance,
                               tolerance * max(1, np.abs(want).max()))


def wide(*tensors):
    return [t if t is None else t.detach().numpy().astype(np.float64) for t in tensors]


# shape, dims, shape of the weight, in which order the dimensions lie in memory
FORMS = {
    "batch": ((5, 3, 7, 9), [0, 2, 3], (1, 3, 1, 1), None),
    "batch of vectors": ((40, 70), [0], (1, 70), None),
    "channels last": ((4, 20, 5, 6), [0, 2, 3], (1, 20, 1, 1), (0, 2, 3, 1)),
    "layer": ((6, 5, 37), [2], (37,), None),
    "layer of two": ((6, 5, 8), [1, 2], (5, 8), None),
    "instance": ((3, 4, 33), [2], (1, 4, 1), None),
    "group": ((3, 2, 4, 20), [2, 3], (1, 2, 4, 1), None),
    "everything": ((3, 50), [0, 1], (1, 1), None),
    "long": ((2, 1000), [1], (1000,), None),
}


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
@pytest.mark.parametrize("name", FORMS)
def test_normalisations(name, affine, center, calls):
    shape, dims, small, order = FORMS[name]
    x = array(*shape) + np.float32(3)
    if order is not None:
        back = np.argsort(order)
        x = np.ascontiguousarray(x.transpose(order)).transpose(back)
    x = lehr.from_numpy(x).requires_grad_()
    w = None if affine == "none" else lehr.from_numpy(array(*small)).requires_grad_()
    b = lehr.from_numpy(array(*small)) if affine == "both" else None
    y, mean, var = lehr.Tensor.F.standardize(x, w, b, dims, 1e-5, center)
    g = lehr.from_numpy(array(*shape))
    grads = lehr.autograd.grad(y, [t for t in (x, w) if t is not None], g)
    done = dict(calls)
    assert done["standardize"] and done["standardize_grad"]
    assert w is None or name in ("group", "instance") or done["standardize_scale"]
    assert y.stride() == x.stride()
    want = norm.standardize.eager(np, *wide(x, w, b), dims, 1e-5, center)
    for have, value in zip((y, mean, var), want, strict=True):
        close(have, value)
    x_, g_, w_ = wide(x, g, w)
    close(grads[0], norm.standardize_grad.eager(np, g_, x_, *want[1:], w_, dims, 1e-5, center),
          1e-5)
    if w is not None:
        close(grads[1], norm.standardize_scale.eager(np, g_, x_, *want[1:], list(small), dims, 1e-5,
                                                     center), 1e-5)


def test_a_variance_of_nearly_nothing_stays_positive():
    x = np.full((4, 64), 1e4, np.float32) + np.float32(0.01) * array(4, 64)
    y, mean, var = lehr.Tensor.F.standardize(lehr.from_numpy(x), None, None, [1], 1e-5)
    want = norm.standardize.eager(np, x.astype(np.float64), None, None, [1], 1e-5, True)
    close(mean, want[1], 1e-7)
    np.testing.assert_allclose(var.numpy(), want[2], 1e-6)


@pytest.mark.parametrize("broken", ["strided", "double", "half"])
def test_what_stays_with_numpy(broken, calls):
    x = {"strided": lehr.from_numpy(array(4, 8, 40)[:, :, ::2]), "double": lehr.randn(4, 8, 20)
         .double(), "half": lehr.randn(4, 8, 20).bfloat16()}[broken]
    lehr.Tensor.F.standardize(x, None, None, [2], 1e-5)
    assert calls == [("standardize", False)]


# image, kernel, stride, padding, dilation, ceil_mode
POOLS = [
    ((3, 4, 14, 14), 2, 2, 0, 1, False), ((2, 3, 28, 30), 2, 2, 0, 1, False),
    ((2, 3, 23, 41), 3, 2, 1, 1, False), ((2, 3, 9, 10), 3, 1, 1, 1, False),
    ((2, 2, 20, 21), (3, 2), (2, 3), (1, 0), (2, 1), False), ((2, 2, 9, 9), 2, 2, 0, 1, True),
    ((2, 3, 50), 5, 3, 2, 1, False), ((1, 2, 6, 7, 8), 2, 2, 1, 1, False),
    ((2, 2, 5, 5), 5, 5, 2, 1, True), ((2, 2, 600), 2, 1, 0, 1, False),
]


@pytest.mark.parametrize("special", ["plain", "equal", "nan", "lowest"])
@pytest.mark.parametrize("geometry", POOLS, ids=str)
def test_maxima(geometry, special, calls):
    shape, kernel, stride, padding, dilation, ceil = geometry
    x = array(*shape)
    if special == "equal":
        x = np.round(x)
    if special == "nan":
        x[RNG.random(shape) < 0.1] = np.nan
    if special == "lowest":
        x[RNG.random(shape) < 0.7] = -np.inf
    n = len(shape) - 2
    t = lehr.from_numpy(x).requires_grad_()
    window = pool._geometry("max_pool", t, n, kernel, stride, padding, dilation, ceil)
    y = lehr.Tensor.F.max_pool(t, *window)
    where = lehr.Tensor.F.max_pool_place(t, *window)
    np.testing.assert_array_equal(y.detach().numpy(), pool.max_pool.eager(np, x, *window))
    np.testing.assert_array_equal(where.numpy(), pool.max_pool_place.eager(np, x, *window))
    g = array(*y.shape)
    (dx,) = lehr.autograd.grad(y, t, lehr.from_numpy(g))
    want = pool.max_pool_grad.eager(np, g.astype(np.float64), where.numpy(), list(shape[2:]),
                                    window[0], *window[2:])
    close(dx, want)
    assert calls and all(done for _, done in calls)


def test_windows_beside_the_image_stay_with_numpy(calls):
    x = lehr.from_numpy(array(1, 1, 3))
    lehr.Tensor.F.max_pool(x, [2], [4], [1], [2], [1])
    assert calls == [("max_pool", False)]


def test_without_a_compiler(monkeypatch, calls):
    monkeypatch.setattr(native, "library", lambda name: None)
    assert F.max_pool1d(lehr.randn(1, 2, 6), 2).shape == (1, 2, 3)
    assert calls == [("max_pool", False)]


def test_threads_make_no_difference():
    x, w = lehr.from_numpy(array(4, 16, 12, 12)), lehr.from_numpy(array(16))
    before = lehr.get_num_threads()
    try:
        made = []
        for threads in (1, 2):
            lehr.set_num_threads(threads)
            made.append((F.batch_norm(x, None, None, w, w, True), F.max_pool2d(x, 3, 2, 1)))
    finally:
        lehr.set_num_threads(before)
    for a, b in zip(*made, strict=True):
        assert lehr.equal(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "complex64", "bfloat16"])
def test_choices_by_bits(dtype):
    made = getattr(lehr, dtype)
    x, y = (lehr.from_numpy(array(80, 90) * 50).to(made) for _ in range(2))
    if made.is_floating_point:
        x[0, :3] = lehr.tensor([float("nan"), float("-inf"), -0.0])
    c = lehr.from_numpy(RNG.random((80, 90)) < 0.5)
    for a, b in ((x, y), (x, y[0]), (x[:, :1], y), (x, 0), (0, y), (x, 3), (2, y)):
        have = lehr.where(c, a, b)
        sides = [t.to(have.dtype).expand(80, 90).contiguous() if isinstance(t, lehr.Tensor)
                 else lehr.full((80, 90), t, dtype=have.dtype) for t in (a, b)]
        raw = [t.view(lehr.uint8).reshape(80, 90, -1).numpy() for t in (*sides, have)]
        np.testing.assert_array_equal(raw[2], np.where(c.numpy()[..., None], *raw[:2]))
    assert lehr.where(c, x.t().contiguous().t(), y).shape == (80, 90)
    assert lehr.where(c[:, :1], x[:1], y[:1]).shape == (80, 90)


def exact(name, x, g):
    """gelu and erf, and their gradients, in double precision."""
    if name == "erf":
        return np.array([math.erf(v) for v in x])
    if name.endswith("tanh"):
        u = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
        s, slope = 1 / (1 + np.exp(-2 * u)), math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        rise = 2 * s / (1 + np.exp(2 * u)) * slope
    else:
        s = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x])
        rise = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return g * (s + x * rise) if name.startswith("gelu_grad") else x * s


@pytest.mark.parametrize("name", ["erf", "gelu none", "gelu tanh", "gelu_grad none",
                                  "gelu_grad tanh"])
def test_gelu_is_as_exact_as_numpys(name, calls):
    op, _, mode = name.partition(" ")
    x, g = np.linspace(-8, 8, 20011).astype(np.float32), array(20011)
    args = [lehr.from_numpy(a) for a in ((g, x) if op == "gelu_grad"
                                         else (x,))] + [mode] * bool(mode)
    have = getattr(lehr.Tensor.F, op)(*args) if op != "gelu" else F.gelu(args[0], approximate=mode)
    assert calls == [(op, True)]
    want = exact(name, x.astype(np.float64), g.astype(np.float64))
    wide = [a.numpy() if isinstance(a, lehr.Tensor) else a for a in args]
    theirs = registry.get(op).eager(np, *wide)
    worst = np.abs(have.numpy() - want).max()
    assert worst <= 1.15 * np.abs(theirs - want).max() and worst < 3e-6


def test_gelu_of_numbers_at_the_ends(calls):
    x = lehr.tensor([float("nan"), float("inf"), 1e30, 88.0, 1e-30, 0.0, -0.0, -1e-30, -88.0,
                     -1e30])
    for mode in ("none", "tanh"):
        y = F.gelu(x, approximate=mode).tolist()
        assert math.isnan(y[0]) and y[1] == float("inf") and y[2] == np.float32(1e30)
        assert y[3:] == [88, *(np.float32(v) for v in (5e-31, 0, 0, -5e-31)), 0, 0]
        leaf = x[3:-1].detach().requires_grad_()
        (d,) = lehr.autograd.grad(F.gelu(leaf, approximate=mode).sum(), leaf)
        assert d.tolist() == [1, .5, .5, .5, .5, 0]
    assert all(done for _, done in calls)


def test_gelu_keeps_layouts_and_differentiates_twice(calls):
    x = lehr.from_numpy(array(6, 7, 5)).permute(2, 0, 1).requires_grad_()
    y = F.gelu(x)
    assert y.stride() == x.stride() and calls == [("gelu", True)]
    assert F.gelu(lehr.from_numpy(array(6, 7))[:, ::2]).shape == (6, 4)
    assert calls[-1] == ("gelu", False)
    (d,) = lehr.autograd.grad(y.sum(), x, create_graph=True)
    (dd,) = lehr.autograd.grad(d.sum(), x)
    v = x.detach().numpy().astype(np.float64)
    close(dd, np.exp(-v * v / 2) / math.sqrt(2 * math.pi) * (2 - v * v), 1e-5)
