"""Bits and truth values: and, or, xor, not, shifts, common divisors."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.registry import EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Spec


def _bits(name, least=dt.BOOL):
    """`rule.binary` of integers, and of bool where `least` allows."""
    def typed(x, y=None) -> Spec:
        spec = rule.elementwise([v for v in (x, y) if v is not None])
        if not least <= spec.dtype.category <= dt.INT:
            raise NotImplementedError(f'"{name}" not implemented for {rule.label(spec.dtype)}')
        return spec
    return typed


def _truth(x, y=None) -> Spec:
    spec = rule.elementwise([v for v in (x, y) if v is not None])
    return spec._replace(dtype=dt.bool_, compute=dt.bool_)


def _bit_samples(s):
    yield from sample.binary()(s)
    yield s(s.any(3, 4), 3 if s.dtype.category else True)
    yield s.raises(NotImplementedError, s.f(3), s.f(3), match="not implemented")


@op("bitwise_and(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class bitwise_and:
    kind, rule, where, nondiff = POINTWISE, _bits("bitwise_and"), EVERYWHERE, True
    c = triton = "{input} & {other}"
    dtypes, samples = "int bool", _bit_samples

    def eager(np, x, y):
        return np.bitwise_and(x, y)


@op("bitwise_or(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class bitwise_or:
    kind, rule, where, nondiff = POINTWISE, _bits("bitwise_or"), EVERYWHERE, True
    c = triton = "{input} | {other}"
    dtypes, samples = "int bool", _bit_samples

    def eager(np, x, y):
        return np.bitwise_or(x, y)


@op("bitwise_xor(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class bitwise_xor:
    kind, rule, where, nondiff = POINTWISE, _bits("bitwise_xor"), EVERYWHERE, True
    c = triton = "{input} ^ {other}"
    dtypes, samples = "int bool", _bit_samples

    def eager(np, x, y):
        return np.bitwise_xor(x, y)


@op("bitwise_not(input: Tensor) -> Tensor")
class bitwise_not:
    kind, rule, where, nondiff = POINTWISE, _bits("bitwise_not"), EVERYWHERE, True
    c, triton = {dt.BOOL: "!{input}", dt.INT: "~{input}"}, "~{input}"
    dtypes = "int bool"

    def eager(np, x):
        return np.invert(x)

    def samples(s):
        yield s(s.any(3, 4))
        yield s.raises(NotImplementedError, s.f(3), match="bitwise_not")


def _shifts(s):
    yield s(s.any(3, 4), s.any(4, low=0, high=5))
    yield s(s.any(3, 4), 2)
    # A shift by the width or more, or by a negative amount, leaves nothing (or the sign).
    yield s(s.any(8), s.any(8, low=-2 if s.dtype.signed else 0, high=80))
    yield s.raises(NotImplementedError, s.f(3), s.f(3), match="not implemented")


def _amount(np, x, y):
    """(y, whether it is a legal shift, a legal one)."""
    fits = np.greater_equal(y, 0) & np.less(y, 8 * x.dtype.itemsize)
    return fits, np.where(fits, y, 0)


@op("bitwise_left_shift(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class bitwise_left_shift:
    """input * 2**other in wrapping arithmetic; 0 where the shift is negative or at least the
    width."""

    kind, rule, where, nondiff = POINTWISE, _bits("bitwise_left_shift", dt.INT), EVERYWHERE, True
    c, triton = "lehr_shl_{t}({input}, {other})", "lehr_shl({input}, {other})"
    dtypes, samples = "int", _shifts

    def eager(np, x, y):
        x = np.asarray(x)
        fits, amount = _amount(np, x, y)
        return np.where(fits, np.left_shift(x, amount), 0)


@op("bitwise_right_shift(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class bitwise_right_shift:
    """floor(input / 2**other); a negative or too large shift leaves the sign: 0 or -1."""

    kind, rule, where, nondiff = POINTWISE, _bits("bitwise_right_shift", dt.INT), EVERYWHERE, True
    c, triton = "lehr_shr_{t}({input}, {other})", "lehr_shr({input}, {other})"
    dtypes, samples = "int", _shifts

    def eager(np, x, y):
        x = np.asarray(x)
        fits, amount = _amount(np, x, y)
        sign = np.where(np.less(x, 0), -1, 0).astype(x.dtype)
        return np.where(fits, np.right_shift(x, amount), sign)


@op("logical_and(input: Tensor, other: Tensor) -> Tensor")
class logical_and:
    kind, rule, where, nondiff = POINTWISE, _truth, EVERYWHERE, True
    c = triton = "{input} & {other}"
    samples = sample.binary(low=0, high=2)

    def eager(np, x, y):
        return np.logical_and(x, y)


@op("logical_or(input: Tensor, other: Tensor) -> Tensor")
class logical_or:
    kind, rule, where, nondiff = POINTWISE, _truth, EVERYWHERE, True
    c = triton = "{input} | {other}"
    samples = sample.binary(low=0, high=2)

    def eager(np, x, y):
        return np.logical_or(x, y)


@op("logical_xor(input: Tensor, other: Tensor) -> Tensor")
class logical_xor:
    kind, rule, where, nondiff = POINTWISE, _truth, EVERYWHERE, True
    c = triton = "{input} ^ {other}"
    samples = sample.binary(low=0, high=2)

    def eager(np, x, y):
        return np.logical_xor(x, y)


@op("logical_not(input: Tensor) -> Tensor")
class logical_not:
    kind, rule, where, nondiff = POINTWISE, _truth, EVERYWHERE, True
    c, triton = "!{input}", "~{input}"
    samples = sample.unary(low=0, high=2)

    def eager(np, x):
        return np.logical_not(x)


@op("gcd(input: Tensor, other: Tensor) -> Tensor")
class gcd:
    """Greatest common divisor, never negative; gcd(0, 0) = 0."""

    kind, rule, where, nondiff = POINTWISE, _bits("gcd", dt.INT), EVERYWHERE, True
    c, triton = "lehr_gcd_{t}({input}, {other})", "lehr_gcd({input}, {other})"
    dtypes, samples = "int", sample.binary(low=0, high=30)

    def eager(np, x, y):
        return np.gcd(x, y)


@op("lcm(input: Tensor, other: Tensor) -> Tensor")
class lcm:
    """Least common multiple, never negative."""

    kind, rule, where, nondiff = POINTWISE, _bits("lcm", dt.INT), EVERYWHERE, True
    dtypes, samples = "int", sample.binary(low=0, high=10)

    def eager(np, x, y):
        return np.lcm(x, y)

    def decomp(F, x, y):
        divisor = F.gcd(x, y)
        safe = F.where(F.eq(divisor, 0), 1, divisor)
        return F.abs(F.mul(F.trunc_divide(x, safe), y))
