"""Distributions of the random ops, their reproducibility, and that nothing but (key, offset)
decides."""

import math

import ml_dtypes
import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base import philox
from lehr.ops import execute, families, registry

assert families.FAMILIES
N = 200_000


def draw(name, *args, **kwargs):
    op = registry.get(name)
    return execute.run(op, op.signature.bind(args, kwargs))


def test_bits_are_words_by_logical_element():
    want = philox.words(5, 9, 35).view(np.int32)
    assert np.array_equal(draw("random_bits", [5, 7], 5, 9).reshape(-1), want)
    assert np.array_equal(draw("random_bits", [7, 5], 5, 9).reshape(-1), want)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16, dt.bfloat16])
def test_uniform(dtype):
    x = draw("uniform", [N], 0.0, 1.0, 3, 4, dtype=dtype)
    wide = x.astype(np.float64)
    assert x.dtype == dtype.np and wide.min() >= 0 and wide.max() < 1
    grid = {dt.float32: 2.0**-24, dt.float64: 2.0**-53, dt.float16: 2.0**-11,
            dt.bfloat16: 2.0**-8}[dtype]
    assert np.all(wide / grid == np.floor(wide / grid))
    wide += grid / 2
    counts = np.histogram(wide, 16, (0, 1))[0]
    assert ((counts - N / 16) ** 2 / (N / 16)).sum() < 45  # chi-square, 15 degrees: p = 1e-4
    if dtype is dt.float32:  # serial correlation of neighbouring elements and of elements 4 apart
        for lag in (1, 2, 3, 4, 8):
            assert abs(np.corrcoef(wide[:-lag], wide[lag:])[0, 1]) < 5 / N**0.5


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64])
def test_normal(dtype):
    z = draw("normal", [N], 0.0, 1.0, 3, 4, dtype=dtype).astype(np.float64)
    assert abs(z.mean()) < 5 / N**0.5 and abs(z.var() - 1) < 5 * (2 / N) ** 0.5
    assert abs((z**3).mean()) < 5 * (15 / N) ** 0.5 and abs((z**4).mean() - 3) < 5 * (96 / N) ** 0.5
    ordered = np.sort(z)[:: N // 100]
    cdf = np.array([0.5 * math.erfc(-v / 2**0.5) for v in ordered])
    assert np.abs(cdf - np.arange(len(ordered)) * (N // 100) / N).max() < 2 / N**0.5
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 5 / (N / 2) ** 0.5
    assert abs(np.corrcoef(z[::2] ** 2, z[1::2] ** 2)[0, 1]) < 5 / (N / 2) ** 0.5


def test_normal_float32_is_its_formula_within_4_ulp():
    z = draw("normal", [N], 0.0, 1.0, 3, 4, dtype=dt.float32)
    pair = philox.words(3, 4, N).reshape(-1, 2)
    f = np.float32
    u = (pair[:, 0] & 0x7FFFFFFF).astype(f) * f(2.0**-31) + f(2.0**-32)
    radius = np.sqrt(np.log(u.astype(np.float64)) * -2)
    for p in (0, 1):
        turn = (pair[:, 1] >> 9).astype(f) * f(2.0**-23) + f(p / 4)
        angle = (turn * f(2 * math.pi)).astype(np.float64)
        want = radius * np.cos(angle)
        assert (np.abs(z[p::2] - want) / np.spacing(np.abs(want).astype(f))).max() <= 4


def test_exponential_is_positive_and_has_its_mean():
    for dtype in (dt.float32, dt.float64):
        x = draw("exponential", [N], 2.0, 3, 4, dtype=dtype).astype(np.float64)
        assert x.min() > 0
        assert abs(x.mean() - 0.5) < 5 * 0.5 / N**0.5 and abs(x.var() - 0.25) < 5 * 0.7 / N**0.5


@pytest.mark.parametrize(("low", "high"),
                         [(0, 10), (-7, 9), (0, 1 << 31), (0, 3 << 40), (-(1 << 62), 1 << 62)])
def test_randint(low, high):
    x = draw("randint", [N], low, high, 3, 4)
    assert x.dtype == np.int64 and x.min() >= low and x.max() < high
    place = (x.astype(np.float64) - low) / (high - low)
    assert abs(place.mean() - 0.5) < 5 * 0.3 / N**0.5 + 1 / (high - low)
    if high - low <= 16:
        counts = np.bincount(x - low, minlength=high - low)
        assert ((counts - N / len(counts)) ** 2 / (N / len(counts))).sum() < 50


def test_masks():
    for p in (0.0, 0.1, 0.5, 1.0):
        mask = draw("coin", [N], p, 3, 4)
        assert abs(mask.mean() - p) <= 5 * (p * (1 - p) / N) ** 0.5
    probability = np.linspace(0, 1, N, dtype=np.float32)
    assert abs(draw("bernoulli", probability, 3, 4).mean() - 0.5) < 5 * 0.5 / N**0.5


def test_dropout_scales_what_it_keeps_and_its_backward_has_the_same_mask():
    x = np.ones((4, 500), ml_dtypes.bfloat16)
    y = draw("dropout", x, 0.25, 3, 4)
    kept = y.astype(np.float32) != 0
    assert set(np.unique(y.astype(np.float32))) == {0.0, np.float32(ml_dtypes.bfloat16(4 / 3))}
    assert np.array_equal(kept.reshape(-1), draw("coin", [2000], 0.75, 3, 4))
    op = registry.get("dropout")
    bound = tuple(map(execute.wrap, (x, 0.25, 3, 4, False)))
    g = execute.unwrap(op.vjp(execute.FUNCTIONS, execute.wrap(x), None, *bound))
    assert np.array_equal(g.astype(np.float32), y.astype(np.float32))
    channels = draw("dropout", np.ones((8, 16, 3, 3), np.float32), 0.5, 3, 4, True)
    assert np.all(channels == channels[:, :, :1, :1])


def test_permutations():
    places = np.array([draw("randperm", 5, 3, i) for i in range(2000)])
    assert np.array_equal(np.sort(places, 1), np.tile(np.arange(5), (2000, 1)))
    for column in places.T:
        assert np.abs(np.bincount(column) - 400).max() < 5 * 20


def test_multinomial():
    p = np.array([0.0, 1.0, 2.0, 5.0, 0.0])
    x = draw("multinomial", p, N, True, 3, 4)
    assert np.abs(np.bincount(x, minlength=5) / N - p / 8).max() < 5 * 0.5 / N**0.5
    first = np.array([draw("multinomial", p, 3, False, 3, i) for i in range(2000)])
    assert {tuple(sorted(row)) for row in first} == {(1, 2, 3)}
    assert abs((first[:, 0] == 3).mean() - 5 / 8) < 5 * 0.5 / 2000**0.5
    with pytest.raises(RuntimeError, match="not enough"):
        draw("multinomial", p, 4, False, 3, 4)
    with pytest.raises(RuntimeError, match="sum of probabilities"):
        draw("multinomial", p * 0, 1, False, 3, 4)


def test_host_distributions_have_their_means():
    ones = np.ones(N)
    assert abs(draw("poisson", ones * 3, 3, 4).mean() - 3) < 5 * (3 / N) ** 0.5
    assert abs(draw("standard_gamma", ones * 2.5, 3, 4).mean() - 2.5) < 5 * (2.5 / N) ** 0.5
    assert abs(draw("binomial", ones * 10, ones * 0.3, 3, 4).mean() - 3) < 5 * (2.1 / N) ** 0.5
    assert abs(draw("geometric", [N], 0.25, 3, 4).mean() - 4) < 5 * (12 / N) ** 0.5


@pytest.mark.parametrize(("name", "args"),
                         [("uniform", (0.0, 1.0)), ("normal", (0.0, 1.0)), ("exponential", (1.0,)),
                                            ("randint", (0, 1000))])
def test_key_and_offset_decide(name, args):
    def at(key, offset):
        return draw(name, [64], *args, key, offset)
    assert np.array_equal(at(1, 2), at(1, 2))
    assert not np.array_equal(at(1, 2), at(1, 3)) and not np.array_equal(at(1, 2), at(2, 2))
