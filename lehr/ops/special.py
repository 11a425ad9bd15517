"""Special functions of probability and analysis (`lehr.special`)."""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.ops import approximation, rule, sample
from lehr.ops.layout import contiguous
from lehr.ops.registry import EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Spec


@op("erf(input: Tensor) -> Tensor")
class erf:
    """2/sqrt(pi) times the integral of exp(-t*t) from 0 to input."""

    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("special.erf",)
    c, triton, samples = "lehr_erf_{t}({input})", "lehr_erf({input})", sample.unary((3, 4), ())

    def eager(np, x):
        return approximation.erf(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.mul(F.exp(F.neg(F.mul(x, x))), 2 / math.sqrt(math.pi)))


@op("erfc(input: Tensor) -> Tensor")
class erfc:
    """1 - erf(input)."""

    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("special.erfc",)
    c, triton, samples = "lehr_erfc_{t}({input})", "lehr_erfc({input})", sample.unary()

    def eager(np, x):
        return approximation.erfc(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.mul(F.exp(F.neg(F.mul(x, x))), -2 / math.sqrt(math.pi)))


@op("erfinv(input: Tensor) -> Tensor")
class erfinv:
    """The inverse of erf on (-1, 1)."""

    kind, rule, where, host = POINTWISE, rule.float_unary, EVERYWHERE, True
    aliases = ("special.erfinv",)
    samples = sample.unary(domain=(-0.95, 0.95), low=0, high=2)

    def eager(np, x):
        return approximation.erfinv(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.mul(F.exp(F.mul(out, out)), math.sqrt(math.pi) / 2))


@op("erfcx(input: Tensor) -> Tensor")
class erfcx:
    """exp(input**2) * erfc(input)."""

    kind, rule, where, host = POINTWISE, rule.float_unary, "special", True
    dtypes, samples = "int float bool", sample.unary()

    def eager(np, x):
        return approximation.erfcx(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.sub(F.mul(F.mul(x, out), 2), 2 / math.sqrt(math.pi)))


@op("lgamma(input: Tensor) -> Tensor")
class lgamma:
    """log |gamma(input)|."""

    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("special.gammaln",)
    c, triton = "lehr_lgamma_{t}({input})", "lehr_lgamma({input})"
    samples = sample.unary((3, 4), away_from_zero=True)

    def eager(np, x):
        return approximation.lgamma(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.digamma(x))


@op("digamma(input: Tensor) -> Tensor")
class digamma:
    """The derivative of lgamma."""

    kind, rule, where, host = POINTWISE, rule.float_unary, EVERYWHERE, True
    aliases = ("special.digamma", "special.psi")
    samples = sample.unary(pos=True)

    def eager(np, x):
        return approximation.digamma(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.polygamma(1, x))


@op("polygamma(n: int, input: Tensor) -> Tensor")
class polygamma:
    """The n-th derivative of digamma."""

    kind, where, host, aliases = POINTWISE, "function", True, ("special.polygamma",)
    dtypes = "int float bool"
    # PyTorch's trigamma is right to nine digits (against scipy and mpmath).
    tolerance = {"float64": (1e-8, 1e-12)}

    def rule(n, x):
        if n < 0:
            raise RuntimeError("polygamma(n, x) does not support negative n.")
        return rule.float_unary(x)

    def eager(np, n, x):
        return approximation.polygamma(n, x)

    def vjp(F, g, out, n, x):
        return F.mul(g, F.polygamma(n + 1, x))

    def samples(s):
        for n in range(4):
            # PyTorch's are finite at poles of the first and NaN at infinity: not compared there.
            yield s(n, s.any(3, 4, pos=True))._replace(derive=n == 0)
        yield s.raises(RuntimeError, -1, s.f(3), match="negative n")


@op("mvlgamma(input: Tensor, p: int) -> Tensor")
class mvlgamma:
    """The logarithm of the multivariate gamma function of dimension p."""

    kind, where, aliases = POINTWISE, EVERYWHERE, ("special.multigammaln",)
    dtypes = "int float half"

    def layout(spec, x, p):
        return contiguous(spec.shape)

    def rule(x, p):
        if p < 1:
            raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
        return rule.float_unary(x)

    def decomp(F, x, p):
        out = F.add(F.lgamma(x), p * (p - 1) / 4 * math.log(math.pi))
        for i in range(1, p):
            out = F.add(out, F.lgamma(F.sub(x, i / 2)))
        return out

    def samples(s):
        yield s(s.f(3, 4, domain=(2.0, 6.0)), 3)
        yield s(s.any(4, pos=True), 1)
        yield s.raises(RuntimeError, s.f(3), 0, match="greater than or equal to 1")


@op("zeta(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class zeta:
    """Hurwitz' zeta function: the sum of (other + k) ** -input over k >= 0."""

    kind, rule, where, nondiff, host = POINTWISE, rule.float_binary, "special", True, True
    dtypes = "int float bool"

    def eager(np, s, q):
        return approximation.zeta(s, q)

    def samples(s):
        # Where both arguments are infinite or NaN, PyTorch's answers follow no rule.
        yield s(s.f(3, 4, domain=(1.1, 8.0)), s.f(4, pos=True))._replace(derive=False)
        yield s(3, s.any(4, pos=True))._replace(derive=False)


@op("ndtr(input: Tensor) -> Tensor")
class ndtr:
    """The distribution function of the standard normal: erfc(-input / sqrt(2)) / 2."""

    kind, rule, where, samples = POINTWISE, rule.float_unary, "special", sample.unary()

    def decomp(F, x):
        return F.mul(F.erfc(F.mul(x, -math.sqrt(0.5))), 0.5)

    def vjp(F, g, out, x):
        return F.mul(g, F.mul(F.exp(F.mul(F.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi)))


@op("ndtri(input: Tensor) -> Tensor")
class ndtri:
    """The inverse of ndtr on (0, 1)."""

    kind, rule, where, host = POINTWISE, rule.float_unary, "special", True
    dtypes, samples = "float", sample.unary(domain=(0.01, 0.99))

    def eager(np, p):
        return approximation.ndtri(p)

    def vjp(F, g, out, p):
        return F.mul(g, F.mul(F.exp(F.mul(F.mul(out, out), 0.5)), math.sqrt(2 * math.pi)))


@op("log_ndtr(input: Tensor) -> Tensor")
class log_ndtr:
    """log(ndtr(input)), accurate in the lower tail."""

    kind, rule, where, host = POINTWISE, rule.float_unary, "special", True
    dtypes, samples = "int float bool", sample.unary(domain=(-30.0, 6.0))

    def eager(np, x):
        z = np.minimum(x, 0) * np.sqrt(x.dtype.type(0.5))
        low = np.log(approximation.erfcx(-z) / 2) - z * z
        high = np.log1p(-approximation.erfc(x * x.dtype.type(0.5 ** 0.5)) / 2)
        return np.where(x < -1, low, high)

    def vjp(F, g, out, x):
        density = F.sub(F.mul(F.mul(x, x), -0.5), 0.5 * math.log(2 * math.pi))
        return F.mul(g, F.exp(F.sub(density, out)))


@op("entr(input: Tensor) -> Tensor")
class entr:
    """-input * log(input): 0 at 0, -inf below."""

    kind, rule, where = POINTWISE, rule.float_unary, "special"
    samples = sample.unary((3, 4), nonfinite=True)

    def decomp(F, x):
        positive = F.mul(F.neg(x), F.log(x))
        rest = F.where(F.eq(x, 0), 0.0, float("-inf"))
        return F.where(F.ne(x, x), x, F.where(F.gt(x, 0), positive, F.to_dtype(rest, x.dtype)))

    def vjp(F, g, out, x):
        return F.mul(g, F.sub(F.neg(F.log(x)), 1))


@op("i0(input: Tensor) -> Tensor")
class i0:
    """The modified Bessel function of the first kind of order 0."""

    kind, rule, where, host = POINTWISE, rule.float_unary, EVERYWHERE, True
    aliases, samples = ("special.i0", "special.modified_bessel_i0"), sample.unary()

    def eager(np, x):
        return approximation.i0(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.i1(x))


@op("i1(input: Tensor) -> Tensor")
class i1:
    """The modified Bessel function of the first kind of order 1."""

    kind, rule, where, host = POINTWISE, rule.float_unary, "special", True
    aliases = ("special.modified_bessel_i1",)
    dtypes, samples = "int float bool", sample.unary()

    def eager(np, x):
        return approximation.i1(x)

    def vjp(F, g, out, x):
        ratio = F.where(F.eq(x, 0), 0.5, F.div(out, F.where(F.eq(x, 0), 1, x)))
        return F.mul(g, F.sub(F.i0(x), ratio))


@op("i0e(input: Tensor) -> Tensor")
class i0e:
    """exp(-|input|) * i0(input)."""

    kind, rule, where, host = POINTWISE, rule.float_unary, "special", True
    dtypes, samples = "int float bool", sample.unary(domain=(-20.0, 20.0))

    def eager(np, x):
        return approximation.i0e(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.sub(F.i1e(x), F.mul(F.sgn(x), out)))


@op("i1e(input: Tensor) -> Tensor")
class i1e:
    """exp(-|input|) * i1(input)."""

    kind, rule, where, host = POINTWISE, rule.float_unary, "special", True
    dtypes, samples = "int float bool", sample.unary(domain=(-20.0, 20.0))

    def eager(np, x):
        return approximation.i1e(x)

    def vjp(F, g, out, x):
        zero = F.eq(x, 0)
        ratio = F.where(zero, 0.5, F.div(out, F.where(zero, 1, x)))
        return F.mul(g, F.sub(F.i0e(x), F.add(ratio, F.mul(F.sgn(x), out))))


def _gamma_pair(a, x) -> Spec:
    spec = rule.binary(a, x)
    if spec.dtype.is_integer:
        raise NotImplementedError(f'"igamma" not implemented for {rule.label(spec.dtype)}')
    return spec


@op("igamma(input: Tensor, other: Tensor) -> Tensor")
class igamma:
    """The regularised lower incomplete gamma function P(input, other)."""

    kind, rule, where, host, nondiff = POINTWISE, _gamma_pair, EVERYWHERE, True, True
    aliases, dtypes, samples = ("special.gammainc",), "float", sample.binary(pos=True)

    def eager(np, a, x):
        return approximation.incomplete_gamma(a, x)[0]


@op("igammac(input: Tensor, other: Tensor) -> Tensor")
class igammac:
    """The regularised upper incomplete gamma function 1 - P(input, other)."""

    kind, rule, where, host, nondiff = POINTWISE, _gamma_pair, EVERYWHERE, True, True
    aliases, dtypes, samples = ("special.gammaincc",), "float", sample.binary(pos=True)

    def eager(np, a, x):
        return approximation.incomplete_gamma(a, x)[1]


@op("spherical_bessel_j0(x: Tensor) -> Tensor")
class spherical_bessel_j0:
    """sin(x) / x, 1 at 0 and 0 at infinity."""

    kind, rule, where = POINTWISE, rule.float_unary, "special"
    dtypes, samples = "int float bool", sample.unary(nonfinite=True)

    def decomp(F, x):
        return F.where(F.eq(x, 0), 1, F.where(F.isinf(x), 0, F.div(F.sin(x), x)))


# Harmonic numbers and factorials: the terms of the series at 0 as far as x <= 2 needs them.
EULER = 0.5772156649015329     # Euler's constant
TERMS = [(sum(1 / n for n in range(1, k + 1)), math.factorial(k)) for k in range(14)]


def _modified_k(F, x, order: int, scaled: bool):
    """The modified Bessel function of the second kind of order 0 or 1; `scaled`: times exp(x).

    Up to 2 its series at 0 (DLMF 10.31.1 and 10.31.2); from there on the integral of
    exp(-x cosh t) cosh(order t) over t >= 0 (DLMF 10.32.9) by the trapezoidal rule in steps of
    0.35 / sqrt(x), whose error is below 1e-16.
    """
    wide = F.to_dtype(x, dt.float64)
    near, far = F.clamp(wide, None, 2.0), F.clamp(wide, 2.0, None)
    q, log = F.mul(F.mul(near, near), 0.25), F.add(F.log(F.mul(near, 0.5)), EULER)
    series = None
    for (h, over), (h_next, over_next) in reversed(list(zip(TERMS, TERMS[1:], strict=False))):
        if order:
            term = F.div(F.sub(F.mul(log, 2), h + h_next), 2.0 * over * over_next)
        else:
            term = F.div(F.sub(h, log), float(over * over))
        series = term if series is None else F.add(F.mul(series, q), term)
    if order:
        series = F.add(F.mul(F.mul(series, near), 0.5), F.reciprocal(near))
    small = F.mul(series, F.exp(near)) if scaled else series
    small = F.where(F.eq(near, 0), math.inf, small)
    root = F.sqrt(far)
    total = 0.5
    for k in range(1, 26):
        half = F.sinh(F.div(0.175 * k, root))       # cosh t = 1 + 2 sinh(t / 2) ** 2
        square = F.mul(F.mul(half, half), 2.0)
        term = F.exp(F.neg(F.mul(far, square)))
        total = F.add(F.mul(term, F.add(square, 1.0)) if order else term, total)
    large = F.where(F.isinf(far), 0.0, F.div(F.mul(total, 0.35), root))
    if not scaled:
        large = F.mul(large, F.exp(F.neg(far)))
    return F.to_dtype(F.where(F.le(wide, 2.0), small, large), rule.float_unary(x).dtype)


@op("modified_bessel_k0(input: Tensor) -> Tensor")
class modified_bessel_k0:
    """The modified Bessel function of the second kind of order 0; infinite at 0, NaN below."""

    kind, rule, where = POINTWISE, rule.float_unary, "special"
    dtypes, samples = "int float bool", sample.unary(domain=(0.1, 9.0), nonfinite=True)

    def decomp(F, x):
        return _modified_k(F, x, 0, False)

    def vjp(F, g, out, x):
        return F.neg(F.mul(g, F.modified_bessel_k1(x)))


@op("modified_bessel_k1(input: Tensor) -> Tensor")
class modified_bessel_k1:
    """The modified Bessel function of the second kind of order 1; infinite at 0, NaN below."""

    kind, rule, where = POINTWISE, rule.float_unary, "special"
    dtypes, samples = "int float bool", sample.unary(domain=(0.1, 9.0), nonfinite=True)

    def decomp(F, x):
        return _modified_k(F, x, 1, False)

    def vjp(F, g, out, x):
        return F.neg(F.mul(g, F.add(F.modified_bessel_k0(x), F.div(out, x))))


@op("scaled_modified_bessel_k0(x: Tensor) -> Tensor")
class scaled_modified_bessel_k0:
    """exp(x) times the modified Bessel function of the second kind of order 0."""

    kind, rule, where = POINTWISE, rule.float_unary, "special"
    dtypes, samples = "int float bool", sample.unary(domain=(0.1, 30.0), nonfinite=True)

    def decomp(F, x):
        return _modified_k(F, x, 0, True)

    def vjp(F, g, out, x):
        return F.mul(g, F.sub(out, F.scaled_modified_bessel_k1(x)))


@op("scaled_modified_bessel_k1(x: Tensor) -> Tensor")
class scaled_modified_bessel_k1:
    """exp(x) times the modified Bessel function of the second kind of order 1."""

    kind, rule, where = POINTWISE, rule.float_unary, "special"
    dtypes, samples = "int float bool", sample.unary(domain=(0.1, 30.0), nonfinite=True)

    def decomp(F, x):
        return _modified_k(F, x, 1, True)

    def vjp(F, g, out, x):
        rest = F.add(F.scaled_modified_bessel_k0(x), F.div(out, x))
        return F.mul(g, F.sub(out, rest))
