"""Random numbers: one primitive, `random_bits`; every distribution that compiles is arithmetic on
its words.

A call is named by `(key, offset)`: the generator's key and the counter that the caller allotted to
it, one a call whatever its size. Word `i` of the call belongs to logical element `i` (elements that
need several words have neighbouring ones), see `base.philox`. Bits, uniform numbers, masks,
integers and permutations are therefore equal bit for bit in every back end; normal and exponential
ones within 4 ulp. Multinomial, Poisson, binomial and gamma variates come from the host, from a
stream of their own that the same pair names. """

from __future__ import annotations

import math
from typing import Any

import numpy

from lehr.base import dtype as dt
from lehr.base import philox
from lehr.base.device import CPU, Device
from lehr.ops import layout as place
from lehr.ops.contract import cast
from lehr.ops.registry import HOST, RANDOM, op
from lehr.ops.rule import Spec, device_of, numel

KEY = (1 << 64) - 1
WORD = 0xFFFFFFFF
BELOW_ONE = 1.0 - 2.0 ** -24


def _made(size, dtype=None, device=None):
    return Spec(tuple(size), dtype or dt.Default.dtype, CPU if device is None else Device(device))


def _floating(size, dtype, device):
    spec = _made(size, dtype, device)
    if spec.dtype.category != dt.FLOAT:
        raise NotImplementedError("expected a floating-point dtype for random numbers, got "
                                  f"{spec.dtype}")
    return spec


def words(size, key, offset):
    """The words of a call as uint32 [*size]."""
    return philox.words(int(key) & KEY, int(offset) & KEY, math.prod(size)).reshape(tuple(size))


@op("random_bits(size: list[int], key: Scalar, offset: Scalar, *, device: device | None = None) "
    "-> Tensor")
class random_bits:
    """Independent 32-bit words, as int32."""

    kind, where, nondiff = RANDOM, "", True

    def rule(size, key, offset, device=None):
        return _made(size, dt.int32, device)

    def eager(np, size, key, offset, device):
        return words(size, key, offset).view(np.int32)

    def lower(L, idx, size, key, offset, device):
        flat = 0
        for i, n in zip(idx, size, strict=True):
            flat = flat * n + i
        return L.cast(L.random(key, offset, flat), dt.int32)

    def samples(s):
        yield s([3, 5], 7, 11)
        yield s([2, 0], 7, 11)
        yield s([], (1 << 63) + 5, 1 << 40)


# Uniform numbers: dtype -> (bits kept of a word, scale); float64 takes 53 bits of two words.
KEPT = {dt.float32: 24, dt.float16: 11, dt.bfloat16: 8}


def _unit(F, size, key, offset, dtype, device):
    """Multiples of 2**-kept in [0, 1), as float32 (float64 for float64): exact in `dtype`."""
    if dtype is dt.float64:
        pair = F.random_bits((*size, 2), key, offset, device=device)
        high = F.bitwise_and(F.bitwise_right_shift(F.select(pair, -1, 0), 5), (1 << 27) - 1)
        low = F.bitwise_and(F.bitwise_right_shift(F.select(pair, -1, 1), 6), (1 << 26) - 1)
        return (F.to_dtype(high, dtype) * 2.0 ** 26 + F.to_dtype(low, dtype)) * 2.0 ** -53
    kept = KEPT[dtype]
    bits = F.bitwise_right_shift(F.random_bits(size, key, offset, device=device), 32 - kept)
    return F.to_dtype(F.bitwise_and(bits, (1 << kept) - 1), dt.float32) * 2.0 ** -kept


def _unit_eager(size, key, offset, dtype):
    if dtype is dt.float64:
        pair = words((*size, 2), key, offset)
        return ((pair[..., 0] >> 5) * 2.0 ** 26 + (pair[..., 1] >> 6)) * 2.0 ** -53
    kept = KEPT[dtype]
    value = (words(size, key, offset) >> numpy.uint32(32 - kept)).astype(numpy.float32)
    value *= numpy.float32(2.0 ** -kept)
    return value


def _positive(F, bits):
    """int32 words as float32 numbers in (0, 1]."""
    return F.to_dtype(F.bitwise_and(bits, 0x7FFFFFFF), dt.float32) * 2.0 ** -31 + 2.0 ** -32


def _positive_eager(word):
    value = (word & numpy.uint32(0x7FFFFFFF)).astype(numpy.float32)
    return value * numpy.float32(2.0 ** -31) + numpy.float32(2.0 ** -32)


def _log(np, x):
    """log rounded from float64: numpy's own float32 logarithm is off by up to 4 ulp."""
    return np.log(x, dtype=np.float64).astype(x.dtype)


@op("uniform(size: list[int], low: float, high: float, key: Scalar, offset: Scalar, *, dtype: "
    "dtype | None = None, device: device | None = None) -> Tensor")
class uniform:
    """low + u * (high - low) with u a multiple of 2**-24 (2**-11, 2**-8, 2**-53) in [0, 1)."""

    kind, where, nondiff = RANDOM, "", True

    def rule(size, low, high, key, offset, dtype=None, device=None):
        if not low <= high:
            raise RuntimeError("uniform_ expects to return a [from, to) range, but found "
                               f"from={low} > to={high}")
        return _floating(size, dtype, device)

    def eager(np, size, low, high, key, offset, dtype, device):
        u = _unit_eager(size, key, offset, dtype or dt.Default.dtype)
        if (low, high) != (0, 1):
            u = u * u.dtype.type(high - low) + u.dtype.type(low)
        return u

    def decomp(F, size, low, high, key, offset, dtype, device):
        made = dtype or dt.Default.dtype
        u = _unit(F, size, key, offset, made, device)
        return cast(F, u if (low, high) == (0, 1) else u * (high - low) + low, made)

    def samples(s):
        s.touched = True
        yield s([3, 50], 0.0, 1.0, 7, 11, dtype=s.floating)
        yield s([7], -2.0, 3.5, 1 << 63, 12, dtype=s.floating)
        yield s([0], 0, 1, 7, 11, dtype=s.floating)
        yield s.raises(RuntimeError, [3], 1.0, 0.0, 7, 11)
        yield s.raises(NotImplementedError, [3], 0, 1, 7, 11, dtype=dt.int64)
    dtypes = "float half"
    tolerance = {"float32": (0, 0), "float64": (0, 0), "float16": (0, 0), "bfloat16": (0, 0)}


NORMAL = {"float32": (5e-7, 1e-37), "float64": (1e-14, 1e-300)}  # 4 ulp


@op("normal(size: list[int], mean: float, std: float, key: Scalar, offset: Scalar, *, dtype: "
    "dtype | None = None, device: device | None = None) -> Tensor")
class normal:
    """mean + std * z, z standard normal by Box and Muller (1958).

    float32 (rounded after every step): elements 2j and 2j + 1 share words 2j and 2j + 1. With u =
    (word 2j without its top bit + 1/2) / 2**31 and t = (word 2j + 1) >> 9 as a fraction of 2**23, z
    = sqrt(-2 log u) * cos(2 pi (t + p / 4)) for p = 0, 1. float64: elements take 4 words each, 53
    bits for u (of 1 - u) and for t. Half precision rounds float32. """

    kind, where, nondiff, tolerance = RANDOM, "", True, NORMAL

    def rule(size, mean, std, key, offset, dtype=None, device=None):
        if std < 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
        return _floating(size, dtype, device)

    def eager(np, size, mean, std, key, offset, dtype, device):
        if dtype is dt.float64:
            unit = _unit_eager((*size, 2), key, offset, dtype)
            z = np.sqrt(-2.0 * np.log(1.0 - unit[..., 0])) * np.cos(unit[..., 1] * (2 * math.pi))
            return z if (mean, std) == (0, 1) else z * std + mean
        n, f = math.prod(size), np.float32
        pair = words(((n + 1) // 2, 2), key, offset)
        radius = np.sqrt(_log(np, _positive_eager(pair[:, 0])) * f(-2))
        turn = (pair[:, 1] >> np.uint32(9)).astype(f) * f(2.0 ** -23)
        z = np.empty(pair.shape, f)
        for p in (0, 1):
            np.multiply(np.cos((turn + f(p * 0.25)) * f(2 * math.pi)), radius, out=z[:, p])
        z = z.reshape(-1)[:n].reshape(tuple(size))
        return z if (mean, std) == (0, 1) else z * f(std) + f(mean)

    def decomp(F, size, mean, std, key, offset, dtype, device):
        made = dtype or dt.Default.dtype
        if made is dt.float64:
            unit = _unit(F, (*size, 2), key, offset, made, device)
            z = F.sqrt(F.log(1.0 - F.select(unit, -1, 0)) * -2.0)
            z = z * F.cos(F.select(unit, -1, 1) * (2 * math.pi))
        else:
            n = numel(size)
            half = (n + 1) // 2
            pair = F.random_bits((half, 2), key, offset, device=device)
            radius = F.sqrt(F.log(_positive(F, F.select(pair, 1, 0))) * -2.0)
            turn = F.bitwise_and(F.bitwise_right_shift(F.select(pair, 1, 1), 9), (1 << 23) - 1)
            turn = F.to_dtype(turn, dt.float32) * 2.0 ** -23
            quarter = F.to_dtype(F.arange(2, device=device), dt.float32) * 0.25
            z = F.cos((F.unsqueeze(turn, 1) + quarter) * (2 * math.pi)) * F.unsqueeze(radius, 1)
            z = F.reshape(F.narrow(F.reshape(z, (half * 2,)), 0, 0, n), tuple(size))
        z = z if (mean, std) == (0, 1) else z * std + mean
        return cast(F, z, made)

    def samples(s):
        s.touched = True
        yield s([3, 51], 0.0, 1.0, 7, 11, dtype=s.floating)
        yield s([8], -2.0, 3.5, 1 << 63, 12, dtype=s.floating)
        yield s([0], 0.0, 1.0, 7, 11, dtype=s.floating)
        yield s.raises(RuntimeError, [3], 0.0, -1.0, 7, 11)
    dtypes = "float half"


@op("exponential(size: list[int], lambd: float, key: Scalar, offset: Scalar, *, dtype: dtype | "
    "None = None, device: device | None = None) -> Tensor")
class exponential:
    """-log(u) / lambd, u in (0, 1 - 2**-24]: never 0. float64 takes 53 bits."""

    kind, where, nondiff, tolerance = RANDOM, "", True, NORMAL

    def rule(size, lambd, key, offset, dtype=None, device=None):
        if not lambd > 0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
        return _floating(size, dtype, device)

    def eager(np, size, lambd, key, offset, dtype, device):
        if dtype is dt.float64:
            return np.log(np.minimum(1.0 - _unit_eager(size, key, offset, dtype),
                                     1 - 2.0 ** -53)) / -lambd
        u = np.minimum(_positive_eager(words(size, key, offset)), np.float32(BELOW_ONE))
        return _log(np, u) * np.float32(-1 / lambd)

    def decomp(F, size, lambd, key, offset, dtype, device):
        made = dtype or dt.Default.dtype
        if made is dt.float64:
            u = 1.0 - _unit(F, size, key, offset, made, device)
            return F.log(F.clamp_max(u, 1 - 2.0 ** -53)) / -lambd
        u = _positive(F, F.random_bits(size, key, offset, device=device))
        return cast(F, F.log(F.clamp_max(u, BELOW_ONE)) * (-1 / lambd), made)

    def samples(s):
        s.touched = True
        yield s([3, 50], 1.0, 7, 11, dtype=s.floating)
        yield s([7], 0.25, 1 << 63, 12, dtype=s.floating)
        yield s.raises(RuntimeError, [3], 0.0, 7, 11)
    dtypes = "float half"


@op("cauchy(size: list[int], median: float, sigma: float, key: Scalar, offset: Scalar, *, dtype: "
    "dtype | None = None, device: device | None = None) -> Tensor")
class cauchy:
    """median + sigma * tan(pi (u - 1/2))."""

    where, nondiff = "", True
    tolerance = {"float32": (2e-6, 1e-6), "float64": (1e-13, 1e-13), "float16": (2e-3, 1e-3)}

    def rule(size, median, sigma, key, offset, dtype=None, device=None):
        if not sigma > 0:
            raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
        return _floating(size, dtype, device)

    def decomp(F, size, median, sigma, key, offset, dtype, device):
        made = dtype or dt.Default.dtype
        if made is dt.float64:
            u = _unit(F, size, key, offset, made, device) + 2.0 ** -54
        else:
            u = _positive(F, F.random_bits(size, key, offset, device=device))
        return cast(F, F.tan((u - 0.5) * math.pi) * sigma + median, made)

    def samples(s):
        s.touched = True
        yield s([3, 50], 0.5, 2.0, 7, 11, dtype=s.floating)
        yield s.raises(RuntimeError, [3], 0.0, 0.0, 7, 11)
    dtypes = "float half"


@op("log_normal(size: list[int], mean: float, std: float, key: Scalar, offset: Scalar, *, dtype: "
    "dtype | None = None, device: device | None = None) -> Tensor")
class log_normal:
    """exp of a normal number."""

    where, nondiff = "", True

    def rule(size, mean, std, key, offset, dtype=None, device=None):
        if not std > 0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
        return _floating(size, dtype, device)

    def decomp(F, size, mean, std, key, offset, dtype, device):
        made = dtype or dt.Default.dtype
        return cast(F, F.exp(F.normal(size, mean, std, key, offset, dtype=made.wide,
                                      device=device)), made)

    def samples(s):
        s.touched = True
        yield s([3, 50], 0.5, 2.0, 7, 11, dtype=s.floating)
        yield s.raises(RuntimeError, [3], 0.0, 0.0, 7, 11)
    dtypes = "float half"


@op("geometric(size: list[int], p: float, key: Scalar, offset: Scalar, *, dtype: dtype | None = "
    "None, device: device | None = None) -> Tensor")
class geometric:
    """The number of trials up to the first success: ceil(log(u) / log(1 - p)), at least 1."""

    where, nondiff = "", True

    def rule(size, p, key, offset, dtype=None, device=None):
        if not 0 < p < 1:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
        return _made(size, dtype, device)

    def decomp(F, size, p, key, offset, dtype, device):
        made = dtype or dt.Default.dtype
        u = _positive(F, F.random_bits(size, key, offset, device=device))
        trials = F.ceil(F.log(F.clamp_max(u, BELOW_ONE)) / math.log1p(-p))
        return cast(F, F.clamp_min(trials, 1.0), made)

    def samples(s):
        s.touched = True
        yield s([3, 50], 0.25, 7, 11, dtype=s.dtype)
        yield s.raises(RuntimeError, [3], 1.0, 7, 11)
    dtypes = "float half int"


@op("randint(size: list[int], low: int, high: int, key: Scalar, offset: Scalar, *, dtype: dtype "
    "| None = None, device: device | None = None) -> Tensor")
class randint:
    """Integers in [low, high): the high half of word * (high - low), or a 63-bit number modulo the
    range where that is over 2**31. Some values are likelier by up to range / 2**32 (range /
    2**63)."""

    kind, where, nondiff = RANDOM, "", True

    def rule(size, low, high, key, offset, dtype=None, device=None):
        if not low < high:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} "
                               f">= to={high}")
        if high - low > 1 << 63:
            raise RuntimeError(f"randint: a range of {high - low} values is over 2**63")
        return _made(size, dtype or dt.int64, device)

    def eager(np, size, low, high, key, offset, dtype, device):
        span = high - low
        if span <= 1 << 31:
            return (words(size, key, offset).astype(np.int64) * span >> 32) + low
        pair = words((*size, 2), key, offset).astype(np.int64)
        value = (pair[..., 0] & 0x7FFFFFFF) << 32 | pair[..., 1]
        return (value if span == 1 << 63 else value % span) + low

    def decomp(F, size, low, high, key, offset, dtype, device):
        span, made = high - low, dtype or dt.int64
        if span <= 1 << 31:
            word = F.to_dtype(F.random_bits(size, key, offset, device=device), dt.int64)
            value = F.bitwise_right_shift(F.bitwise_and(word, WORD) * span, 32)
        else:
            pair = F.to_dtype(F.random_bits((*size, 2), key, offset, device=device), dt.int64)
            top = F.bitwise_left_shift(F.bitwise_and(F.select(pair, -1, 0), 0x7FFFFFFF), 32)
            value = F.bitwise_or(top, F.bitwise_and(F.select(pair, -1, 1), WORD))
            value = value if span == 1 << 63 else F.remainder(value, span)
        return cast(F, value + low, made)

    def samples(s):
        s.touched = True
        yield s([3, 50], 0, 10, 7, 11, dtype=s.dtype)
        yield s([50], -5, 100, 7, 11)
        yield s([50], 0, 1 << 40, 7, 11)
        yield s([50], -(1 << 62), 1 << 62, 7, 11)
        yield s.raises(RuntimeError, [3], 4, 4, 7, 11)
    dtypes = "float half int"


@op("coin(size: list[int], p: float, key: Scalar, offset: Scalar, *, device: device | None = "
    "None) -> Tensor")
class coin:
    """True with probability p: the masks of dropout and Bernoulli numbers."""

    kind, where, nondiff = RANDOM, "", True

    def rule(size, p, key, offset, device=None):
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
        return _made(size, dt.bool_, device)

    def eager(np, size, p, key, offset, device):
        return (words(size, key, offset) >> np.uint32(8)) < np.uint32(math.ceil(p * 2.0 ** 24))

    def decomp(F, size, p, key, offset, device):
        bits = F.bitwise_right_shift(F.random_bits(size, key, offset, device=device), 8)
        return F.lt(F.bitwise_and(bits, (1 << 24) - 1), math.ceil(p * 2.0 ** 24))

    def samples(s):
        for p in (0.0, 0.1, 0.5, 1.0):
            yield s([3, 50], p, 7, 11)
        yield s.raises(RuntimeError, [3], 1.5, 7, 11)


@op("bernoulli(input: Tensor, key: Scalar, offset: Scalar) -> Tensor")
class bernoulli:
    """1 with the probability that the element gives, else 0, in the input's dtype."""

    kind, where, nondiff = RANDOM, "", True

    def rule(p, key, offset):
        if p.dtype.category != dt.FLOAT:
            raise RuntimeError(f"Expected a floating-point tensor of probabilities, got {p.dtype}")
        return Spec(tuple(p.shape), p.dtype, p.device)

    def eager(np, p, key, offset):
        if not ((p >= 0) & (p <= 1)).all():
            raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
        return _unit_eager(p.shape, key, offset, dt.of_numpy(p.dtype)) < p

    def decomp(F, p, key, offset):
        wide = p.dtype.wide
        return F.to_dtype(_unit(F, p.shape, key, offset, wide, p.device) < cast(F, p, wide),
                          p.dtype)

    def samples(s):
        yield s(s.f(3, 50, domain=(0.0, 1.0)), 7, 11)
        yield s(s.f(0), 7, 11)
        yield s.raises(RuntimeError, s.f(3, domain=(2.0, 3.0)), 7, 11)
    dtypes = "float half"


def _mask_shape(x, features):
    """Whole channels [n, c, 1, ..] where `features`."""
    return (*x.shape[:2], *(1,) * (len(x.shape) - 2)) if features else tuple(x.shape)


def _pointwise(spec, x, *rest):
    return place.pointwise(tuple(spec.shape), [(tuple(x.shape), tuple(x.strides))])


def _probability(p):
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@op("dropout(input: Tensor, p: float, key: Scalar, offset: Scalar, features: bool = False) -> "
    "Tensor")
class dropout:
    """Zeroes elements (whole channels where `features`) with probability p and scales the rest by 1
    / (1 - p) (Srivastava et al., 2014). The backward makes the mask again instead of keeping it."""

    kind, layout, where = RANDOM, _pointwise, ""

    def rule(x, p, key, offset, features=False):
        _probability(p)
        if x.dtype.category != dt.FLOAT:
            raise RuntimeError("result type Float can't be cast to the desired output type "
                               f"{x.dtype}")
        return Spec(tuple(x.shape), x.dtype, x.device)

    def eager(np, x, p, key, offset, features):
        keep = coin.eager(np, _mask_shape(x, features), 1 - p, key, offset, None)
        return x * (keep * x.dtype.type(1 / (1 - p) if p < 1 else 0))

    def decomp(F, x, p, key, offset, features):
        wide = x.dtype.wide
        keep = F.coin(_mask_shape(x, features), 1 - p, key, offset, device=x.device)
        scale = F.to_dtype(keep, wide) * (1 / (1 - p) if p < 1 else 0.0)
        return cast(F, cast(F, x, wide) * scale, x.dtype)

    def vjp(F, g, out, x, p, key, offset, features):
        return F.dropout(g, p, key, offset, features)

    def samples(s):
        yield s(s.f(3, 50), 0.5, 7, 11)
        yield s(s.f(3, 5, 2, 2), 0.1, 7, 11, True)
        yield s(s.f(3, 5), 1.0, 7, 11)
        yield s(s.f(3, 5), 0.0, 7, 11)
        yield s.raises(ValueError, s.f(3), 1.5, 7, 11)
    dtypes = "float half"


@op("alpha_dropout(input: Tensor, p: float, key: Scalar, offset: Scalar, features: bool = False) "
    "-> Tensor")
class alpha_dropout:
    """Dropout that keeps the mean and variance of self-normalising networks (Klambauer et al.,
    2017)."""

    kind, where = RANDOM, ""

    def rule(x, p, key, offset, features=False):
        _probability(p)
        return Spec(tuple(x.shape), x.dtype, x.device, x.dtype)

    def decomp(F, x, p, key, offset, features):
        if p == 1:
            return x * 0.0
        alpha = 1.7580993408473766  # SELU's scale times its alpha
        a = 1 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
        keep = F.coin(_mask_shape(x, features), 1 - p, key, offset, device=x.device)
        keep = F.to_dtype(keep, x.dtype)
        shift = (keep - 1) * (alpha * a) + alpha * a * p
        return x * (keep * a) + shift

    def samples(s):
        yield s(s.f(3, 50), 0.5, 7, 11)
        yield s(s.f(3, 5, 2, 2), 0.1, 7, 11, True)
        yield s(s.f(3, 5), 1.0, 7, 11)
        yield s.raises(ValueError, s.f(3), -0.5, 7, 11)
    dtypes = "float half"


@op("rrelu_train(input: Tensor, lower: float, upper: float, key: Scalar, offset: Scalar) -> Tensor")
class rrelu_train:
    """x, or x times a uniform number of [lower, upper) where x <= 0 (Xu et al., 2015)."""

    kind, where = RANDOM, ""

    def rule(x, lower, upper, key, offset):
        return Spec(tuple(x.shape), x.dtype, x.device)

    def decomp(F, x, lower, upper, key, offset):
        slope = F.uniform(tuple(x.shape), lower, upper, key, offset, dtype=x.dtype, device=x.device)
        return F.where(x <= 0, x * slope, x)

    def samples(s):
        yield s(s.f(3, 50), 0.125, 0.25, 7, 11)
    dtypes = "float half"


@op("randperm(n: int, key: Scalar, offset: Scalar, *, dtype: dtype | None = None, device: device "
    "| None = None) -> Tensor")
class randperm:
    """A permutation of 0 .. n - 1: the stable order of n 64-bit words."""

    where, nondiff = "", True

    def rule(n, key, offset, dtype=None, device=None):
        if isinstance(n, int) and n < 0:
            raise RuntimeError(f"n must be non-negative, got {n}")
        return _made((n,), dtype or dt.int64, device)

    def eager(np, n, key, offset, dtype, device):
        pair = words((n, 2), key, offset).astype(np.int64)
        return np.argsort(pair[:, 0] << 32 | pair[:, 1], kind="stable")

    def decomp(F, n, key, offset, dtype, device):
        pair = F.to_dtype(F.random_bits((n, 2), key, offset, device=device), dt.int64)
        high = F.bitwise_left_shift(F.select(pair, 1, 0), 32)
        order = F.bitwise_or(high, F.bitwise_and(F.select(pair, 1, 1), WORD))
        return cast(F, F.argsort(order, stable=True), dtype or dt.int64)

    def samples(s):
        s.touched = True
        yield s(10, 7, 11, dtype=s.dtype)
        yield s(0, 7, 11)
        yield s(100, 8, 11)
        yield s.raises(RuntimeError, -1, 7, 11)
    dtypes = "int"


# From the host


def stream(key: int, offset: int) -> numpy.random.Generator:
    """numpy's generator for one call of a distribution that has no fixed number of words."""
    return numpy.random.Generator(numpy.random.Philox(key=int(key) & KEY,
                                                      counter=int(offset) & KEY))


def _like(p, *rest: Any) -> Spec:
    return Spec(tuple(p.shape), p.dtype, p.device)


@op("multinomial(input: Tensor, num_samples: int, replacement: bool, key: Scalar, offset: "
    "Scalar) -> Tensor")
class multinomial:
    """Indices [.., num_samples] drawn with the (unnormalised) probabilities of the rows [.., n].
    Without replacement: the largest of p / exponential, so that earlier draws are likelier ones."""

    kind, host, where, nondiff = HOST, True, "", True

    def rule(p, n, replacement, key, offset):
        if len(p.shape) not in (1, 2):
            raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {len(p.shape)}")
        if p.dtype.category != dt.FLOAT:
            raise RuntimeError("multinomial only supports floating-point dtypes for input, got: "
                               f"{p.dtype}")
        if n <= 0:
            raise RuntimeError("cannot sample n_sample <= 0 samples")
        if not replacement and isinstance(p.shape[-1], int) and n > p.shape[-1]:
            raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without "
                               "replacement")
        return Spec((*p.shape[:-1], n), dt.int64, device_of((p,)))

    def eager(np, p, n, replacement, key, offset):
        p = p.astype(np.float64)
        if not (np.isfinite(p) & (p >= 0)).all():
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if p.size and not (p.sum(-1) > 0).all():
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if not replacement or n == 1:
            if p.size and ((p > 0).sum(-1) < n).any():
                raise RuntimeError("invalid multinomial distribution (with replacement=False, "
                                   "not enough non-negative category to sample)")
            race = exponential.eager(np, p.shape, 1.0, key, offset, dt.float64, None)
            return np.argsort(-(p / race), -1, kind="stable")[..., :n]
        total = np.cumsum(p, -1).reshape(-1, p.shape[-1])
        u = _unit_eager((len(total), n), key, offset, dt.float64) * total[:, -1:]
        made = [np.searchsorted(row, draw, "right") for row, draw in zip(total, u, strict=True)]
        last = p.shape[-1] - 1 - np.argmax(p.reshape(-1, p.shape[-1])[:, ::-1] > 0, 1)
        made = np.minimum(np.reshape(made, (len(total), n)), last[:, None])
        return made.reshape(*p.shape[:-1], n)

    def samples(s):
        yield s(s.f(2, 9, pos=True), 4, False, 7, 11)
        yield s(s.f(9, pos=True), 20, True, 7, 11)
        yield s(s.f(3, 9, pos=True), 1, True, 7, 11)
        yield s.raises(RuntimeError, s.f(4, domain=(-2.0, -1.0)), 2, False, 7, 11)
        yield s.raises(RuntimeError, s.f(4, pos=True), 5, False, 7, 11)
    dtypes = "float half"


@op("poisson(input: Tensor, key: Scalar, offset: Scalar) -> Tensor")
class poisson:
    """Poisson counts with the element's rate, in the input's dtype."""

    kind, host, where, nondiff, rule = HOST, True, "", True, _like

    def eager(np, rate, key, offset):
        if not (rate >= 0).all():
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        return stream(key, offset).poisson(rate).astype(rate.dtype)

    def samples(s):
        yield s(s.f(3, 5, pos=True), 7, 11)
        yield s.raises(RuntimeError, s.f(3, domain=(-2.0, -1.0)), 7, 11)
    dtypes = "float half"


@op("binomial(count: Tensor, prob: Tensor, key: Scalar, offset: Scalar) -> Tensor")
class binomial:
    """Successes among `count` trials of probability `prob`, in count's dtype."""

    kind, host, where, nondiff, rule = HOST, True, "", True, _like

    def eager(np, count, prob, key, offset):
        if not ((prob >= 0) & (prob <= 1) & (count >= 0)).all():
            raise RuntimeError("binomial expects counts >= 0 and probabilities in [0, 1]")
        return stream(key, offset).binomial(count.astype(np.int64), prob).astype(count.dtype)

    def samples(s):
        yield s(numpy.floor(s.f(3, 5, pos=True)), s.f(3, 5, domain=(0.0, 1.0)), 7, 11)
        yield s.raises(RuntimeError, s.f(3, pos=True), s.f(3, domain=(1.5, 2.0)), 7, 11)
    dtypes = "float"


@op("standard_gamma(input: Tensor, key: Scalar, offset: Scalar) -> Tensor")
class standard_gamma:
    """Gamma numbers with the element's shape parameter and rate 1."""

    kind, host, where, nondiff, rule = HOST, True, "", True, _like

    def eager(np, alpha, key, offset):
        made = stream(key, offset).standard_gamma(alpha)
        return np.maximum(made, np.finfo(alpha.dtype).tiny).astype(alpha.dtype)

    def samples(s):
        yield s(s.f(3, 5, pos=True), 7, 11)
    dtypes = "float half"
