"""Compiled convolutions: every geometry against numpy, layouts, dtypes, threads, what follows."""

import numpy as np
import pytest

import lehr
from lehr import nn
from lehr.compiler import backend
from lehr.compiler.run import pool
from lehr.ops import conv

F = nn.functional
RNG = np.random.default_rng(5)

# (images, channels, outputs, groups, size, kernel, stride, padding, dilation)
PLAIN = [
    (2, 4, 6, 2, (5, 6), (3, 2), (2, 1), (1, 0), (1, 2)),
    (3, 70, 130, 1, (7, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 3, 20, 1, (20, 21), (7, 7), (2, 2), (3, 3), (1, 1)),
    (9, 33, 17, 1, (2, 2), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 8, 24, 4, (9, 9), (4, 3), (3, 2), (2, 1), (1, 2)),
    (2, 6, 6, 6, (6, 5), (3, 3), (1, 2), (2, 0), (2, 1)),
    (2, 6, 4, 2, (9,), (3,), (2,), (1,), (1,)),
    (2, 3, 5, 1, (4, 5, 6), (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2)),
    (1, 1, 1, 1, (3, 3), (3, 3), (1, 1), (3, 3), (1, 1)),  # results that meet no element
    # groups of few channels: whole vectors of them, some left over, too few for one
    (2, 32, 32, 32, (9, 21), (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, 19, 19, 19, (8, 7), (3, 4), (2, 1), (1, 2), (1, 2)),
    (2, 3, 3, 3, (11, 12), (5, 5), (1, 1), (2, 2), (1, 1)),
    (2, 20, 20, 10, (7, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    (2, 24, 24, 6, (33,), (4,), (1,), (3,), (1,)),
    (2, 24, 24, 3, (5, 4, 6), (2, 3, 3), (1, 2, 1), (1, 1, 0), (1, 1, 2)),
    (2, 48, 48, 3, (7, 20), (3, 2), (1, 2), (1, 1), (1, 1)),
    (2, 12, 12, 4, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1)),  # of three channels
    (2, 6, 18, 6, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1)),  # more come out
    (1, 32, 32, 32, (3, 3), (3, 3), (1, 1), (3, 3), (1, 1)),
    # more edges than rows, rows of more than one strip, several images
    (2, 40, 40, 40, (12, 33), (7, 7), (1, 1), (3, 3), (1, 1)),
    (3, 32, 32, 2, (6, 31), (3, 5), (1, 1), (1, 2), (1, 1)),
    (2, 36, 36, 9, (5, 6, 17), (2, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 2)),
]


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def close(have, want, least=2e-6):
    np.testing.assert_allclose(have, want, least, least * max(np.abs(want).max(initial=0), 1e-30))


def gradients(f, *arrays):
    """The result of f and the gradients of its square's sum, compiled without a host call."""
    lehr.compiler.reset()
    before = lehr.compiler.stats()["host_calls"]
    given = [lehr.from_numpy(a.copy()).requires_grad_() for a in arrays]

    def step(*given):
        y = f(*given)
        (y.float() * y.float()).sum().backward()
        return y.detach()

    y = lehr.compile(step, fullgraph=True)(*given)
    assert lehr.compiler.stats()["host_calls"] == before
    return [t.float().numpy() for t in (y, *(t.grad for t in given))]


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_plain(case):
    n, c, o, groups, size, kernel, s, p, d = case
    x, w = array(n, c, *size), array(o, c // groups, *kernel)
    f = getattr(F, f"conv{len(size)}d")
    y, dx, dw = gradients(lambda x, w: f(x, w, None, s, p, d, groups), x, w)
    wide = x.astype(np.float64), w.astype(np.float64)
    want = conv.correlate(*wide, y.shape[2:], s, p, d, groups)
    close(y, want)
    close(dx, conv.scatter(2 * want, wide[1], size, s, p, d, groups))
    close(dw, conv.gradient(wide[0], 2 * want, kernel, s, p, d, groups))


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_transposed(case):
    n, c, o, groups, size, kernel, s, _, d = case
    x, w = array(n, c, *size), array(c, o // groups, *kernel)
    f = getattr(F, f"conv_transpose{len(size)}d")
    y, dx, dw = gradients(lambda x, w: f(x, w, None, s, 1, 0, groups, d), x, w)
    p = (1,) * len(size)
    wide = x.astype(np.float64), w.astype(np.float64)
    want = conv.scatter(*wide, y.shape[2:], s, p, d, groups)
    close(y, want)
    close(dx, conv.correlate(2 * want, wide[1], size, s, p, d, groups))
    close(dw, conv.gradient(2 * want, wide[0], kernel, s, p, d, groups))


# (images, channels, outputs, groups, size) of kernels of one pixel
PIXELS = [
    (3, 16, 24, 1, (9, 8)), (1, 40, 8, 1, (9, 8)), (4, 8, 12, 4, (5, 6)), (2, 1, 5, 1, (9, 8)),
    (2, 6, 1, 1, (9, 8)), (2, 64, 96, 2, (40,)), (2, 7, 9, 1, (3, 4, 5)),
]


@pytest.mark.parametrize("last", [False, True], ids=["plain", "last"])
@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("case", PIXELS, ids=str)
def test_kernels_of_one_pixel_are_products(case, transposed, last, monkeypatch):
    from lehr.compiler.emit import c

    codes, emit = [], c.emit
    monkeypatch.setattr(c, "emit", lambda *a, **k: codes.append(emit(*a, **k)) or codes[-1])
    n, channels, o, groups, size = case
    if last and len(size) != 2:
        pytest.skip("no such layout")
    x, b = array(n, channels, *size), array(o)
    shape = (channels, o // groups) if transposed else (o, channels // groups)
    w = array(*shape, *(1,) * len(size))
    f = getattr(F, f"conv{'_transpose' * transposed}{len(size)}d")

    def layer(x, w, b):
        x = x.contiguous(memory_format=lehr.channels_last) if last else x
        return f(x, w, b, groups=groups) * 2

    y, dx, dw, db = gradients(layer, x, w, b)
    alone = groups > 1 and last  # what follows it is not in the order of the product's rows
    assert alone or not any("convolution" in code.record["templates"] for code in codes)
    one, none = (1,) * len(size), (0,) * len(size)
    wide = x.astype(np.float64), w.astype(np.float64)
    forward, back = (conv.scatter, conv.correlate) if transposed else (conv.correlate, conv.scatter)
    geometry = one, none, one, groups
    want = 2 * (forward(*wide, size, *geometry) + b[:, *(None,) * len(size)])
    close(y, want, 3e-6)
    g = 4 * want
    close(dx, back(g, wide[1], size, *geometry), 3e-6)
    pair = (g, wide[0]) if transposed else (wide[0], g)
    close(dw, conv.gradient(*pair, one, *geometry), 3e-6)
    close(db, g.sum((0, *range(2, g.ndim))), 3e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_rounded_once(dtype):
    kind = getattr(lehr, dtype)
    x, w, b = (lehr.from_numpy(array(*s)).to(kind) for s in ((2, 5, 6, 7), (4, 5, 3, 3), (4,)))
    made = lehr.compile(F.conv2d)(x, w, b)
    want = F.conv2d(x.double(), w.double(), b.double()).to(kind)
    assert made.dtype is kind
    unequal = (made != want).float().mean().item()
    assert unequal < 0.01  # sums that lie at the middle between two numbers


def test_layouts_of_arguments_and_results():
    x, w = lehr.from_numpy(array(2, 6, 8, 10)), lehr.from_numpy(array(4, 6, 3, 3))
    want = F.conv2d(x, w).numpy()
    last = x.contiguous(memory_format=lehr.channels_last)
    made = lehr.compile(F.conv2d)(last, w)
    assert made.stride() == F.conv2d(last, w).stride()
    close(made.numpy(), want)
    for view in (lehr.from_numpy(array(2, 8, 10, 6)).permute(0, 3, 1, 2),
                 lehr.from_numpy(array(2, 12, 8, 20))[:, ::2, :, 3:13],
                 lehr.from_numpy(array(1, 6, 8, 10)).expand(2, 6, 8, 10)):
        close(lehr.compile(F.conv2d)(view, w).numpy(), F.conv2d(view, w).numpy())


def test_what_follows_a_convolution():
    x, w, b, r = (array(*s) for s in ((2, 3, 9, 8), (5, 3, 3, 3), (5,), (2, 5, 9, 8)))

    def f(x, w, b, r):
        return F.relu(F.conv2d(x, w, b, padding=1) + r) * 2

    given = [lehr.from_numpy(a) for a in (x, w, b, r)]
    close(lehr.compile(f)(*given).numpy(), f(*given).numpy())


def test_a_small_network_learns_as_in_eager_mode():
    def model():
        lehr.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.GELU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 5))

    x, labels = lehr.from_numpy(array(6, 3, 17, 15)), lehr.tensor([0, 1, 2, 3, 4, 0])
    losses = []
    for wrap in (lambda f: f, lehr.compile):
        net = model()
        optimizer = lehr.optim.SGD(net.parameters(), 0.05, momentum=0.9)

        def step(net=net, optimizer=optimizer):
            loss = F.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run = wrap(step)
        losses.append([run().item() for _ in range(4)])
    np.testing.assert_allclose(losses[1], losses[0], 1e-4)


@pytest.mark.parametrize("c, o, groups", [(40, 100, 1), (72, 72, 72), (64, 64, 16), (64, 64, 4),
                                          (16, 16, 16), (32, 32, 2)])
def test_any_number_of_threads_gives_the_same_bits(c, o, groups):
    x = lehr.from_numpy(array(4, c, 32, 33))
    w, g = lehr.from_numpy(array(o, c // groups, 3, 3)), lehr.from_numpy(array(4, o, 32, 33))
    before = pool.get_num_threads()

    def f(x, w, g):
        y = F.conv2d(x, w, padding=1, groups=groups)
        return y, *lehr.autograd.grad(y, (x, w), g)

    made = []
    try:
        for threads in (1, 2, 3):
            lehr.set_num_threads(threads)
            assert pool.pool().threads == threads
            x.requires_grad_(), w.requires_grad_()
            made.append([t.detach().numpy() for t in lehr.compile(f)(x, w, g)])
    finally:
        lehr.set_num_threads(before)
    for other in made[1:]:
        for a, b in zip(made[0], other, strict=True):
            assert np.array_equal(a, b)


def noted(monkeypatch):
    """The programs that are made from now on."""
    made, start = [], backend.Native.__init__

    def noted(self, *args):
        made.append(self)
        start(self, *args)

    monkeypatch.setattr(backend.Native, "__init__", noted)
    return made


def test_the_images_in_between_are_channels_last(monkeypatch):
    made = noted(monkeypatch)

    def f(x, w):
        return F.conv2d(F.relu(F.conv2d(x, w, padding=1)), w, padding=1)

    lehr.compile(f)(lehr.from_numpy(array(1, 4, 6, 6)), lehr.from_numpy(array(4, 4, 3, 3)))
    _, program, _, code = made[0].lowered()
    between = [b for b in program.buffers if b.role == "arena" and len(b.shape) == 4]
    assert between and all(b.strides[1] == 1 for b in between)
    assert code.record["templates"] == ["convolution"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_images_kept_for_backward_are_channels_last(dynamic, monkeypatch):
    """Else forward stores them by strides, and backward reads them so: four times as slow."""
    lehr.manual_seed(3)
    f = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
                      nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                      nn.MaxPool2d(2),
                      nn.Conv2d(16, 16, 3, groups=16, padding=1), nn.SiLU(), nn.Conv2d(16, 4, 3))
    given = [lehr.from_numpy(array(n, 3, 12, 12)).requires_grad_() for n in (2, 4)]
    g, programs = lehr.compile(f, dynamic=dynamic), noted(monkeypatch)
    for x in given[:1 + dynamic]:
        leaves = [x, *f.parameters()]
        want = lehr.autograd.grad((f(x) ** 2).sum(), leaves)
        for have, w in zip(lehr.autograd.grad((g(x) ** 2).sum(), leaves), want, strict=True):
            np.testing.assert_allclose(have.numpy(), w.numpy(), 1e-3,
                                       1e-4 * np.abs(w.numpy()).max())
    if dynamic:     # sizes are decided upon where a program is made alone
        return
    forward, backward = (p.lowered()[1] for p in programs)
    passed = [[b for b in some if len(b.shape) == 4 and b.shape[1] > 3 and b.shape[2] != 1]
              for some in (forward.results[1:], backward.params)]
    images = [[b for b in some if b.name.startswith(("out", "kept"))
               and "parameters" not in b.name] for some in passed]
    assert len(images[0]) == len(images[1]) >= 4
    assert all(b.strides[1] == 1 for some in images for b in some)
    temporary = [b for p in (forward, backward) for b in p.buffers
                 if b.role == "arena" and len(b.shape) == 4 and b.shape[2] != 1]
    assert [b for b in temporary if b.strides[1] != 1] == []


@pytest.mark.parametrize("groups", [1, 20])
def test_a_bias_is_added_where_images_are_turned(groups, monkeypatch):
    """No kernel behind the call; but where the result without a bias is used, too, or something
    else follows."""
    x, w = array(2, 20, 7, 9), array(20, 20 // groups, 3, 3)
    given, programs = [lehr.from_numpy(a) for a in (x, w, array(20))], noted(monkeypatch)

    def biased(x, w, b):
        return F.conv2d(x, w, b, padding=1, groups=groups)

    def both(x, w, b):
        y = F.conv2d(x, w, padding=1, groups=groups)
        return y + b.reshape(20, 1, 1), y.exp()

    def more(x, w, b):
        return F.relu(F.conv2d(x, w, b, padding=1, groups=groups))

    for f, kernels in ((biased, 0), (both, 1), (more, 1)):
        have, want = (g(*given) for g in (lehr.compile(f), f))
        for a, b in zip(*((r if f is both else (r,)) for r in (have, want)), strict=True):
            assert a.is_contiguous()
            close(a.numpy(), b.numpy(), 1e-5)
        source = "".join(programs[-1].lowered()[3].sources)
        assert source.count("lehr_spread(rt, ") == kernels
        assert (".y_bias" in source) == (kernels == 0)


def test_images_of_the_caller_stay_as_they_are():
    """What is returned and kept, too; a gradient that only some of the results have."""
    w = lehr.from_numpy(array(4, 4, 3, 3)).requires_grad_()

    def f(x, w):
        y = F.relu(F.conv2d(x, w, padding=1))
        return y, F.conv2d(y, w, padding=1).exp()

    g = lehr.compile(f, options={"check": "stages"})
    for n in range(2):
        x = lehr.from_numpy(array(2, 4, 6, 6) / 8).requires_grad_()
        have, want = g(x, w), f(x, w)
        assert [y.stride() for y in have] == [y.stride() for y in want]
        for a, b in zip(lehr.autograd.grad(have[n].sum(), (x, w)),
                        lehr.autograd.grad(want[n].sum(), (x, w)), strict=True):
            close(a.numpy(), b.numpy(), 1e-5)


def test_statistics_of_images_are_taken_in_place():
    """Row values that wait for memory to be read before it is written over."""
    def f(x, w, g):
        y = F.conv2d(x, w)
        mean = (y * g).mean((0, 2, 3), keepdim=True)
        z = y - mean
        return z * (z * g).sum((0, 2, 3), keepdim=True), y.amax((0, 2, 3))

    given = [lehr.from_numpy(array(*s)) for s in ((3, 4, 9, 9), (40, 4, 3, 3), (3, 40, 7, 7))]
    for have, want in zip(lehr.compile(f)(*given), f(*given), strict=True):
        close(have.numpy(), want.numpy(), 1e-5)


def test_maxima_of_windows():
    x = array(2, 20, 9, 8)
    x[0, 0, :3] = np.nan
    x[1, :, 4:] = -np.inf
    x = lehr.from_numpy(x).contiguous(memory_format=lehr.channels_last).requires_grad_()
    w = lehr.eye(20).reshape(20, 20, 1, 1)

    def f(x, clean):
        y = F.conv2d(clean, w)
        best, place = F.max_pool2d(y, 3, 2, 1, return_indices=True)
        return best, place, F.max_pool2d(x, (2, 3), (1, 2), (1, 0), (2, 1), return_indices=True)[1]

    clean = lehr.from_numpy(array(2, 20, 9, 8))
    for have, want in zip(lehr.compile(f)(x, clean), f(x, clean), strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())
