"""Compiled bfloat16 convolutions and their gradients against float64, by every way to compute them:
tiles, dot products, the library."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import lehr
from lehr.compiler import backend
from lehr.compiler.run import library, pool, target, template

F = lehr.nn.functional
RNG = np.random.default_rng(21)
# Flags that leave a compiler the tiles, the dot products, neither.
WAYS = {"tiles": (), "dots": ("-mno-amx-bf16",), "library": ("-mno-avx512bf16", "-mno-amx-bf16")}
NEEDS = {"tiles": {"amx_bf16", "avx512_bf16"}, "dots": {"avx512_bf16"}, "library": set()}


@pytest.fixture(params=WAYS)
def way(request):
    """The template as built for one way, in the runtime's table."""
    if not target.host().features >= NEEDS[request.param]:
        pytest.skip(f"no {request.param} here")
    usual = template.need("convolution_half")
    flags = WAYS[request.param] if target.host().arch == "x86_64" else ()
    texts = "".join(map(pool.text, ("runtime.h", *template.SOURCES["convolution_half"].files)))
    built = library.build([texts], "convolution_half", extra=(*template.FLAGS, *flags))
    for made in (built, usual):
        made.function("lehr_install", None, ctypes.c_void_p)(pool.pool().table)
        if made is built:
            yield request.param


@pytest.fixture
def programs(monkeypatch):
    """The programs that are compiled."""
    made, start = [], backend.Native.__init__

    def noted(self, *args):
        made.append(self)
        start(self, *args)

    monkeypatch.setattr(backend.Native, "__init__", noted)
    return made


def half(*shape):
    return lehr.from_numpy(RNG.standard_normal(shape).astype(np.float32)).bfloat16()


def both(call, x, w, g=None):
    """(result, gradients) compiled in bfloat16, the same eagerly in float64."""
    def step(x, w, g):
        y = call(x, w)
        (y * g).sum().backward()
        return y.detach()

    g = half(*call(x, w).shape) if g is None else g
    made = []
    for f, kind in ((lehr.compile(step, fullgraph=True), lehr.bfloat16), (step, lehr.float64)):
        a, b = (t.detach().to(kind).clone().requires_grad_() for t in (x, w))
        y = f(a, b, g.to(kind))
        made.append([t.double().numpy() for t in (y, a.grad, b.grad)])
    return made


def sizes(call, x, w, g):
    """Sums of magnitudes, by which errors are measured."""
    return both(call, x.abs(), w.abs(), g.abs())[1]


def near(call, x, w):
    g = half(*call(x, w).shape)
    have, want = both(call, x, w, g)
    for a, b, size in zip(have, want, sizes(call, x, w, g), strict=True):
        # one rounding to bfloat16 (whose least number is 2^-133) of a float32 sum
        assert (abs(a - b) <= 2.0 ** -8 * abs(b) + 1e-6 * size + 2.0 ** -134).all()


CASES = {
    "3x3": ((2, 64, 9, 10), (70, 64, 3, 3), {"padding": 1}),
    "7x7, stride": ((2, 3, 33, 29), (20, 3, 7, 7), {"stride": 2, "padding": 3}),
    "odd channels, dilation": ((1, 33, 9, 9), (17, 33, 3, 2), {"stride": 2, "dilation": 2}),
    "1x1": ((3, 65, 8, 8), (32, 65, 1, 1), {"stride": 2}),
    "groups": ((2, 64, 5, 7), (48, 32, 3, 3), {"padding": 1, "groups": 2}),
    "one of each": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "many pixels": ((2, 16, 60, 70), (16, 16, 3, 3), {"padding": 1}),
    "many channels, two pixels": ((16, 96, 2, 2), (70, 96, 3, 3), {"padding": 1}),
    "few channels come out, beyond the image": ((2, 40, 2, 3), (5, 40, 7, 7), {"padding": 4}),
    "borders": ((9, 64, 4, 6), (64, 64, 5, 3), {"padding": (2, 1)}),
    "a kernel beyond the image": ((3, 40, 2, 3), (17, 40, 7, 7), {"padding": 4}),
    "few channels, dilation": ((2, 5, 30, 9), (9, 5, 3, 4), {"dilation": (1, 2), "padding": 3}),
    "few channels, beyond the image": ((2, 4, 3, 2), (70, 4, 3, 9), {"padding": (0, 7)}),
    "many taps, few channels": ((1, 15, 12, 40), (20, 15, 1, 20), {"padding": (0, 10)}),
    "many channels come out": ((2, 20, 4, 4), (500, 20, 3, 3), {"padding": 1}),
    "large stride": ((2, 20, 20, 21), (18, 20, 4, 4), {"stride": (4, 5)}),
    "a stride beyond the kernel": ((2, 33, 13, 9), (32, 33, 1, 2), {"stride": (3, 4)}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_and_gradients(case, way, programs):
    x, w, given = case
    near(lambda x, w: F.conv2d(x, w, **given), half(*x), half(*w))
    assert programs[0].run.record["templates"] == ["convolution_half"]


def test_one_and_three_dimensions(way):
    near(lambda x, w: F.conv1d(x, w, stride=2, padding=2), half(2, 20, 31), half(40, 20, 5))
    near(lambda x, w: F.conv3d(x, w, padding=(0, 1, 1)), half(1, 18, 4, 5, 6),
         half(24, 18, 2, 3, 3))


def test_the_adjoint(way):
    near(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
         half(2, 34, 6, 5), half(34, 20, 3, 3))


@pytest.mark.parametrize("stride, padding, more, dilation", [
    (3, 0, 2, 1), (2, 3, 0, 2), (1, 2, 0, 1), ((1, 4), 1, (0, 3), (2, 1))])
@pytest.mark.parametrize("channels", [3, 40])
def test_adjoints_that_put_pixels_apart(stride, padding, more, dilation, channels, way):
    def call(x, w):
        return F.conv_transpose2d(x, w, None, stride, padding, more, 1, dilation)

    near(call, half(3, channels, 6, 5), half(channels, 33, 3, 5))


def test_no_images(way):
    x, w = half(0, 16, 8, 8), half(16, 16, 3, 3).requires_grad_()
    y = lehr.compile(lambda x: F.conv2d(x, w))(x)
    y.sum().backward()
    assert y.shape == (0, 16, 6, 6) and not w.grad.any()


def test_few_channels_of_a_group_stay_with_float32(programs):
    near(lambda x, w: F.conv2d(x, w, padding=1, groups=16), half(2, 16, 6, 6), half(16, 1, 3, 3))
    assert programs[0].run.record["templates"] == ["depthwise"]


def test_layouts_of_the_caller(way):
    x = half(2, 20, 9, 8).to(memory_format=lehr.channels_last)
    w = half(3, 3, 24, 20).permute(2, 3, 0, 1)
    near(lambda x, w: F.conv2d(x, w, padding=1), x, w)


@pytest.mark.parametrize("which", range(2))
def test_denormal_numbers_count(which, way):
    """They are no zeros: large factors make them large again."""
    given = [half(2, 32, 6, 6).sign() * 1e30, half(32, 32, 3, 3).sign() * 1e30]
    given[which] = (given[which] / 1e30 * 1e-39).bfloat16()
    given[1 - which] = given[1 - which].bfloat16()
    assert given[which].abs().max() < 1.2e-38
    near(lambda x, w: F.conv2d(x, w), *given)


def test_infinities_and_nan_meet_only_what_reads_them(way):
    x, w = half(1, 16, 12, 12), half(32, 16, 3, 3)
    x[0, 3, 2, 2], x[0, 4, 9, 9] = float("nan"), float("inf")
    y = lehr.compile(lambda x, w: F.conv2d(x, w))(x, w)[0]
    assert y[:, :3, :3].isnan().all() and y[:, 7:, 7:].isinf().all()
    assert y[:, 3:7, :].isfinite().all()


@pytest.mark.parametrize("channels", [(32, 48), (160, 200)], ids=str)
def test_the_same_bits_on_any_number_of_threads(channels, way):
    x, w = half(4, channels[0], 40, 30), half(channels[1], channels[0], 3, 3)
    g = half(4, channels[1], 38, 28)
    before = lehr.get_num_threads()
    made = []
    try:
        for n in (1, 2):
            lehr.set_num_threads(n)
            made.append(both(lambda x, w: F.conv2d(x, w), x, w, g)[0])
    finally:
        lehr.set_num_threads(before)
    for one, two in zip(*made, strict=True):
        np.testing.assert_array_equal(one, two)
