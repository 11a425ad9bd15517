"""Exponentials, logarithms, powers and roots."""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.registry import EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Spec

LN2, LN10 = math.log(2), math.log(10)


@op("exp(input: Tensor) -> Tensor")
class exp:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_exp_{t}({input})", "lehr_exp({input})", sample.unary((3, 4), ())

    def eager(np, x):
        return np.exp(x)

    def vjp(F, g, out, x):
        return F.mul(g, out)


@op("exp2(input: Tensor) -> Tensor")
class exp2:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("special.exp2",)
    c, triton, samples = "lehr_exp2_{t}({input})", "lehr_exp2({input})", sample.unary()

    def eager(np, x):
        return np.exp2(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.mul(out, LN2))


@op("expm1(input: Tensor) -> Tensor")
class expm1:
    """exp(input) - 1, accurate near 0."""

    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("special.expm1",)
    c, triton, samples = "lehr_expm1_{t}({input})", "lehr_expm1({input})", sample.unary()

    def eager(np, x):
        return np.expm1(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.add(out, 1))


@op("log(input: Tensor) -> Tensor")
class log:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_log_{t}({input})", "lehr_log({input})", sample.unary(pos=True)

    def eager(np, x):
        return np.log(x)

    def vjp(F, g, out, x):
        return F.div(g, x)


@op("log2(input: Tensor) -> Tensor")
class log2:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_log2_{t}({input})", "lehr_log2({input})", sample.unary(pos=True)

    def eager(np, x):
        return np.log2(x)

    def vjp(F, g, out, x):
        return F.div(g, F.mul(x, LN2))


@op("log10(input: Tensor) -> Tensor")
class log10:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_log10_{t}({input})", "lehr_log10({input})", sample.unary(pos=True)

    def eager(np, x):
        return np.log10(x)

    def vjp(F, g, out, x):
        return F.div(g, F.mul(x, LN10))


@op("log1p(input: Tensor) -> Tensor")
class log1p:
    """log(1 + input), accurate near 0."""

    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("special.log1p",)
    c, triton, samples = "lehr_log1p_{t}({input})", "lehr_log1p({input})", sample.unary(pos=True)

    def eager(np, x):
        return np.log1p(x)

    def vjp(F, g, out, x):
        return F.div(g, F.add(x, 1))


@op("sqrt(input: Tensor) -> Tensor")
class sqrt:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_sqrt_{t}({input})", "lehr_sqrt({input})", sample.unary(pos=True)

    def eager(np, x):
        return np.sqrt(x)

    def vjp(F, g, out, x):
        return F.div(g, F.mul(out, 2))


@op("rsqrt(input: Tensor) -> Tensor")
class rsqrt:
    """1 / sqrt(input)."""

    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    samples = sample.unary(pos=True)

    def eager(np, x):
        return 1 / np.sqrt(x)

    def decomp(F, x):
        return F.div(1, F.sqrt(x))

    def vjp(F, g, out, x):
        return F.mul(F.mul(g, -0.5), F.mul(F.mul(out, out), out))


@op("sigmoid(input: Tensor) -> Tensor")
class sigmoid:
    """1 / (1 + exp(-input))."""

    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("nn.functional.sigmoid", "special.expit")
    samples = sample.unary((3, 4), ())

    def eager(np, x):
        made = np.negative(x, out=np.empty_like(x))
        np.exp(made, out=made)
        made += 1
        return np.reciprocal(made, out=made)

    def decomp(F, x):
        return F.div(1, F.add(F.exp(F.neg(x)), 1))

    def vjp(F, g, out, x):
        return F.mul(F.mul(g, F.rsub(out, 1)), out)


@op("logit(input: Tensor, eps: float | None = None) -> Tensor")
class logit:
    """log(input / (1 - input)), of the input clamped to [eps, 1 - eps] where eps is given."""

    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("special.logit",)

    def decomp(F, x, eps):
        x = x if eps is None else F.clamp(x, eps, 1 - eps)
        return F.log(F.div(x, F.rsub(x, 1)))

    def vjp(F, g, out, x, eps):
        made = F.div(g, F.mul(x, F.rsub(x, 1)))
        low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1 - eps, 0.0)
        return F.where(F.bitwise_and(F.ge(x, low), F.le(x, high)), made, outside)

    def samples(s):
        yield s(s.any(3, 4, domain=(0.05, 0.95)))
        yield s(s.f(3, 4, domain=(-0.5, 1.5)), 0.1)
        if s.dtype in (dt.float32, dt.float64):
            yield s(s.f(4), eps=1e-6)


def _power(base, exponent) -> Spec:
    spec = rule.elementwise((base, exponent))
    if spec.compute is dt.bool_:
        raise NotImplementedError('"pow" not implemented for \'Bool\'')
    if spec.dtype.category == dt.INT and isinstance(exponent, int) and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return spec


def _integer_power(np, base, exponent):
    """Wrapping; a negative power is 1/base truncated: 0 unless base is 1 or -1."""
    made = np.power(base, np.maximum(exponent, 0))
    odd = np.bitwise_and(exponent, 1) == 1
    unit = np.where(np.equal(base, 1), 1, np.where(np.equal(base, -1), np.where(odd, -1, 1), 0))
    return np.where(np.less(exponent, 0), unit.astype(made.dtype), made)


# Powers with a shorter way; PyTorch takes it too (so sqrt's NaN of -inf, not pow's inf).
SHORT = {
    2: lambda F, x: F.mul(x, x), 3: lambda F, x: F.mul(F.mul(x, x), x), 0.5: lambda F, x: F.sqrt(x),
    -0.5: lambda F, x: F.rsqrt(x), -1: lambda F, x: F.reciprocal(x),
    -2: lambda F, x: F.reciprocal(F.mul(x, x)),
}


@op("pow(input: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor")
class pow:
    """input ** exponent. Integers wrap, and a negative integer exponent in a tensor truncates."""

    kind, rule, where = POINTWISE, _power, EVERYWHERE
    c, triton = "lehr_pow_{t}({input}, {exponent})", "lehr_pow({input}, {exponent})"
    dtypes = "int float half"

    def eager(np, base, exponent):
        if np.result_type(base, exponent).kind in "iu":
            return _integer_power(np, base, exponent)
        if np.ndim(exponent):
            return np.power(base, exponent)
        special = {0.5: np.sqrt, -0.5: lambda x: 1 / np.sqrt(x), 3: lambda x: x * x * x,
                   -2: lambda x: 1 / (x * x)}.get(np.asarray(exponent).item())
        return np.power(base, exponent) if special is None else special(base)

    def decomp(F, base, exponent):
        short = SHORT.get(exponent) if isinstance(exponent, (int, float)) else None
        return NotImplemented if short is None else short(F, base)

    def vjp(F, g, out, base, exponent):
        return (lambda: _power_of_base(F, g, base, exponent),
                lambda: _power_of_exponent(F, g, base, exponent))

    def samples(s):
        roots = (0.5, -1, -2, -0.5, 2.5) if s.dtype.category == dt.FLOAT else (2.5,)
        for number in (2, 3, 0, 1, 5, *roots):
            yield s(s.any(3, 4, pos=True), number)
        yield s(s.any(3, 4, low=0, high=4, pos=True), s.any(4, low=0, high=4))
        yield s(s.any(3, 4), s.any(3, 4, low=-2 if s.dtype.signed else 0, high=5))
        yield s(2, s.any(4, low=0, high=4))
        yield s(2.5, s.any(4, low=0, high=4))
        yield s.raises(RuntimeError, s.i(3), -1, match="negative integer powers")


def _power_of_base(F, g, base, exponent):
    if isinstance(exponent, (int, float)):
        if exponent == 0:
            return F.zeros_like(g)
        return F.mul(g, F.mul(F.pow(base, exponent - 1), exponent))
    lower = F.sub(exponent, 1) if rule.is_tensor(exponent) else exponent - 1
    made = F.mul(g, F.mul(F.pow(base, lower), exponent))
    return F.where(F.eq(exponent, 0), 0, made) if rule.is_tensor(exponent) else made


def _power_of_exponent(F, g, base, exponent):
    # The power is computed again, not saved: most exponents are numbers and want no gradient.
    if not rule.is_tensor(base):
        base = F.full((), base, dtype=g.dtype, device=g.device)
    # 0 ** e is flat in e wherever it is defined.
    flat = F.bitwise_and(F.eq(base, 0), F.ge(exponent, 0))
    return F.mul(g, F.where(
        flat, 0, F.mul(F.pow(base, exponent), F.log(F.where(flat, 1, base)))))


@op("float_power(input: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor")
class float_power:
    """`pow` in float64."""

    kind, where = POINTWISE, EVERYWHERE

    def rule(base, exponent):
        spec = rule.elementwise((base, exponent))
        made = dt.complex128 if spec.compute.is_complex else dt.float64
        return spec._replace(dtype=made, compute=made)

    def decomp(F, base, exponent):
        return F.pow(base, float(exponent) if isinstance(exponent, (int, bool)) else exponent)

    def samples(s):
        yield s(s.any(3, 4, pos=True), 2)
        yield s(s.any(3, 4, pos=True), s.any(4))
        yield s(2, s.any(4))


@op("ldexp(input: Tensor, other: Tensor) -> Tensor")
class ldexp:
    """input * 2 ** other."""

    kind, rule, where = POINTWISE, rule.float_binary, EVERYWHERE

    def decomp(F, x, exponent):
        return F.mul(x, F.exp2(exponent))

    def samples(s):
        yield s(s.any(3, 4), s.i(4, low=-3, high=9))


def _softplus_of_gap(F, x, y, scale, exponential, logarithm):
    """max + log(1 + exp(-gap)), which neither overflows nor turns equal infinities into NaN."""
    high = F.maximum(x, y)
    gap = F.neg(F.abs(F.sub(x, y)))
    made = F.add(high, logarithm(exponential(gap)))
    return F.where(F.bitwise_and(F.eq(x, y), F.isinf(x)), x, made)


@op("logaddexp(input: Tensor, other: Tensor) -> Tensor")
class logaddexp:
    """log(exp(input) + exp(other))."""

    kind, rule, where = POINTWISE, rule.numeric("logaddexp", dt.FLOAT), "function method"
    dtypes, samples = "float half", sample.binary()

    def eager(np, x, y):
        return np.logaddexp(x, y)

    def decomp(F, x, y):
        return _softplus_of_gap(F, x, y, 1, F.exp, F.log1p)

    def vjp(F, g, out, x, y):
        return (lambda: F.mul(g, F.sigmoid(F.sub(x, y))), lambda: F.mul(g, F.sigmoid(F.sub(y, x))))


@op("logaddexp2(input: Tensor, other: Tensor) -> Tensor")
class logaddexp2:
    """log2(2 ** input + 2 ** other)."""

    kind, rule, where = POINTWISE, rule.numeric("logaddexp2", dt.FLOAT), "function method"
    dtypes, samples = "float half", sample.binary()

    def eager(np, x, y):
        return np.logaddexp2(x, y)

    def decomp(F, x, y):
        return _softplus_of_gap(F, x, y, LN2, F.exp2, lambda v: F.div(F.log1p(v), LN2))

    def vjp(F, g, out, x, y):
        return (lambda: F.mul(g, F.sigmoid(F.mul(F.sub(x, y), LN2))),
                lambda: F.mul(g, F.sigmoid(F.mul(F.sub(y, x), LN2))))


def _times_log(F, x, y, logarithm):
    return F.where(F.ne(y, y), y, F.where(F.eq(x, 0), 0, F.mul(x, logarithm(y))))


def _typed(F, x, like):
    """A number as a 0-d tensor beside a tensor."""
    return x if rule.is_tensor(x) else F.full((), x, dtype=like.dtype, device=like.device)


def _logarithmic(s):
    yield s(s.any(3, 4), s.any(3, 4, pos=True))
    yield s(s.any(3, 4, low=0, high=2), s.any(4, pos=True))
    yield s(s.any(4), 2.5)
    yield s(0, s.any(4))


@op("xlogy(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class xlogy:
    """input * log(other): 0 where input is 0, NaN where other is NaN."""

    kind, rule, where, aliases = POINTWISE, rule.float_binary, EVERYWHERE, ("special.xlogy",)
    samples = _logarithmic

    def eager(np, x, y):
        return np.where(np.isnan(y), y, np.where(np.equal(x, 0), 0, x * np.log(y)))

    def decomp(F, x, y):
        like = x if rule.is_tensor(x) else y
        return _times_log(F, _typed(F, x, like), _typed(F, y, like), F.log)

    def vjp(F, g, out, x, y):
        flat = F.bitwise_and(F.eq(_typed(F, x, g), 0), F.le(_typed(F, y, g), 0))
        return (lambda: F.mul(g, F.where(flat, 0, F.log(_typed(F, y, g)))),
                lambda: F.div(F.mul(g, x), y))


@op("xlog1py(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class xlog1py:
    """input * log(1 + other): 0 where input is 0, NaN where other is NaN."""

    kind, rule, where, samples = POINTWISE, rule.float_binary, "special", _logarithmic

    def decomp(F, x, y):
        like = x if rule.is_tensor(x) else y
        return _times_log(F, _typed(F, x, like), _typed(F, y, like), F.log1p)

    def vjp(F, g, out, x, y):
        flat = F.bitwise_and(F.eq(_typed(F, x, g), 0), F.le(_typed(F, y, g), -1))
        return (lambda: F.mul(g, F.where(flat, 0, F.log1p(_typed(F, y, g)))),
                lambda: F.div(F.mul(g, x), F.add(_typed(F, y, g), 1)))
