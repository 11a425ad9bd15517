"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.registry import EVERYWHERE, POINTWISE, op

UNIT = {"low": 0, "high": 2, "domain": (-0.95, 0.95)}


@op("sin(input: Tensor) -> Tensor")
class sin:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_sin_{t}({input})", "lehr_sin({input})", sample.unary()

    def eager(np, x):
        return np.sin(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.cos(x))


@op("cos(input: Tensor) -> Tensor")
class cos:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_cos_{t}({input})", "lehr_cos({input})", sample.unary()

    def eager(np, x):
        return np.cos(x)

    def vjp(F, g, out, x):
        return F.mul(F.neg(g), F.sin(x))


@op("tan(input: Tensor) -> Tensor")
class tan:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton = "lehr_tan_{t}({input})", "lehr_tan({input})"
    samples = sample.unary(domain=(-1.3, 1.3))

    def eager(np, x):
        return np.tan(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.add(F.mul(out, out), 1))


@op("asin(input: Tensor) -> Tensor")
class asin:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("arcsin",)
    c, triton, samples = "lehr_asin_{t}({input})", "lehr_asin({input})", sample.unary(**UNIT)

    def eager(np, x):
        return np.arcsin(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.rsqrt(F.rsub(F.mul(x, x), 1)))


@op("acos(input: Tensor) -> Tensor")
class acos:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("arccos",)
    c, triton, samples = "lehr_acos_{t}({input})", "lehr_acos({input})", sample.unary(**UNIT)

    def eager(np, x):
        return np.arccos(x)

    def vjp(F, g, out, x):
        return F.mul(F.neg(g), F.rsqrt(F.rsub(F.mul(x, x), 1)))


@op("atan(input: Tensor) -> Tensor")
class atan:
    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("arctan",)
    c, triton, samples = "lehr_atan_{t}({input})", "lehr_atan({input})", sample.unary()

    def eager(np, x):
        return np.arctan(x)

    def vjp(F, g, out, x):
        return F.div(g, F.add(F.mul(x, x), 1))


@op("sinh(input: Tensor) -> Tensor")
class sinh:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_sinh_{t}({input})", "lehr_sinh({input})", sample.unary()

    def eager(np, x):
        return np.sinh(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.cosh(x))


@op("cosh(input: Tensor) -> Tensor")
class cosh:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    c, triton, samples = "lehr_cosh_{t}({input})", "lehr_cosh({input})", sample.unary()

    def eager(np, x):
        return np.cosh(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.sinh(x))


@op("tanh(input: Tensor) -> Tensor")
class tanh:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    aliases = ("nn.functional.tanh",)
    c, triton, samples = "lehr_tanh_{t}({input})", "lehr_tanh({input})", sample.unary((3, 4), ())

    def eager(np, x):
        return np.tanh(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.rsub(F.mul(out, out), 1))


@op("asinh(input: Tensor) -> Tensor")
class asinh:
    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("arcsinh",)
    c, triton, samples = "lehr_asinh_{t}({input})", "lehr_asinh({input})", sample.unary()

    def eager(np, x):
        return np.arcsinh(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.rsqrt(F.add(F.mul(x, x), 1)))


@op("acosh(input: Tensor) -> Tensor")
class acosh:
    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("arccosh",)
    c, triton = "lehr_acosh_{t}({input})", "lehr_acosh({input})"
    samples = sample.unary(pos=True, domain=(1.1, 5.0))

    def eager(np, x):
        return np.arccosh(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.rsqrt(F.sub(F.mul(x, x), 1)))


@op("atanh(input: Tensor) -> Tensor")
class atanh:
    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("arctanh",)
    c, triton, samples = "lehr_atanh_{t}({input})", "lehr_atanh({input})", sample.unary(**UNIT)

    def eager(np, x):
        return np.arctanh(x)

    def vjp(F, g, out, x):
        return F.div(g, F.rsub(F.mul(x, x), 1))


@op("atan2(input: Tensor, other: Tensor) -> Tensor")
class atan2:
    """The angle of the point (other, input), in (-pi, pi]."""

    kind, rule, where = POINTWISE, rule.float_binary, EVERYWHERE
    aliases = ("arctan2",)
    c, triton = "lehr_atan2_{t}({input}, {other})", "lehr_atan2({input}, {other})"
    samples = sample.binary(away_from_zero=True)

    def eager(np, y, x):
        return np.arctan2(y, x)

    def vjp(F, g, out, y, x):
        # The gradient at the origin is taken to be 0.
        square = F.add(F.mul(y, y), F.mul(x, x))
        scale = F.where(F.eq(square, 0), 0, F.reciprocal(square))
        return lambda: F.mul(g, F.mul(x, scale)), lambda: F.mul(F.neg(g), F.mul(y, scale))


@op("hypot(input: Tensor, other: Tensor) -> Tensor")
class hypot:
    """sqrt(input**2 + other**2), without overflow on the way."""

    kind, rule, where = POINTWISE, rule.numeric("hypot", dt.FLOAT), EVERYWHERE
    c, triton = "lehr_hypot_{t}({input}, {other})", "lehr_hypot({input}, {other})"
    dtypes, samples = "float half", sample.binary()

    def eager(np, x, y):
        return np.hypot(x, y)

    def vjp(F, g, out, x, y):
        return lambda: F.mul(g, F.div(x, out)), lambda: F.mul(g, F.div(y, out))


@op("sinc(input: Tensor) -> Tensor")
class sinc:
    """sin(pi x) / (pi x), 1 at 0."""

    kind, rule, where, aliases = POINTWISE, rule.float_unary, EVERYWHERE, ("special.sinc",)
    samples = sample.unary()

    def decomp(F, x):
        angle = F.mul(x, math.pi)
        return F.where(F.eq(x, 0), 1, F.div(F.sin(angle), angle))

    def vjp(F, g, out, x):
        angle = F.mul(x, math.pi)
        slope = F.div(F.sub(F.mul(angle, F.cos(angle)), F.sin(angle)), F.mul(angle, x))
        return F.mul(g, F.where(F.eq(x, 0), 0, slope))


@op("deg2rad(input: Tensor) -> Tensor")
class deg2rad:
    kind, rule, where, samples = POINTWISE, rule.float_unary, EVERYWHERE, sample.unary()

    def decomp(F, x):
        return F.mul(x, math.pi / 180)


@op("rad2deg(input: Tensor) -> Tensor")
class rad2deg:
    kind, rule, where, samples = POINTWISE, rule.float_unary, EVERYWHERE, sample.unary()

    def decomp(F, x):
        return F.mul(x, 180 / math.pi)
