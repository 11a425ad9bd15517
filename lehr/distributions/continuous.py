"""Distributions over real numbers other than the normal ones."""

from __future__ import annotations

import math
from typing import Any

from lehr.distributions import constraint
from lehr.distributions.distribution import (
    Distribution,
    ExponentialFamily,
    F,
    clamp_probs,
    dt_eps,
    tensors,
)
from lehr.distributions.draw import standard_gamma
from lehr.distributions.normal import noise
from lehr.tensor import random
from lehr.tensor.info import finfo
from lehr.tensor.tensor import Tensor

EULER = 0.57721566490153286060


def uniform(shape: Any, like: Tensor) -> Tensor:
    """Numbers in [0, 1) of the dtype and device of another tensor."""
    return random.rand(tuple(shape), dtype=like.dtype, device=like.device)


def gamma(concentration: Tensor, shape: Any) -> Tensor:
    """Standard gamma numbers, above zero."""
    made = standard_gamma(concentration.expand(tuple(shape)))
    return made.clamp(min=finfo(made.dtype).tiny)


class Uniform(Distribution):
    """From `low` to below `high`, all alike."""

    has_rsample = True

    @property
    def arg_constraints(self) -> Any:  # type: ignore[override]
        """Each lies on its side of the other."""
        return {"low": constraint.less_than(self.high), "high": constraint.greater_than(self.low)}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = tensors(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraint.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.low + uniform(self._extended_shape(sample_shape), self.low) * (
            self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        inside = self.low.le(value).type_as(self.low) * self.high.gt(value).type_as(self.low)
        return F.log(inside) - F.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return F.log(self.high - self.low)


class Exponential(ExponentialFamily):
    """Density rate * exp(-rate * x)."""

    arg_constraints = {"rate": constraint.positive}
    support = constraint.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self.rate, = tensors(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return F.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return -(-uniform(self._extended_shape(sample_shape), self.rate)).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return 1 - F.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -F.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - F.log(self.rate)


class Gamma(ExponentialFamily):
    """Density proportional to x^(concentration - 1) * exp(-rate * x)."""

    arg_constraints = {"concentration": constraint.positive, "rate": constraint.positive}
    support = constraint.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = tensors(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return gamma(self.concentration, self._extended_shape(sample_shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return (F.xlogy(self.concentration, self.rate) + F.xlogy(self.concentration - 1, value)
                - self.rate * value - F.lgamma(self.concentration))

    def entropy(self) -> Tensor:
        c = self.concentration
        return c - F.log(self.rate) + F.lgamma(c) + (1.0 - c) * F.digamma(c)


class Chi2(Gamma):
    """The sum of squares of `df` standard normals."""

    arg_constraints = {"df": constraint.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        half = 0.5 * df
        super().__init__(half, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        return self.concentration * 2


class Dirichlet(ExponentialFamily):
    """Over the simplex, density proportional to prod x_i^(c_i - 1), c = `concentration` [..., n].
    """

    arg_constraints = {"concentration": constraint.independent(constraint.positive, 1)}
    support = constraint.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        top = (self.concentration - 1).clamp(min=0.0)
        made = top / top.sum(-1, True)
        alone = (self.concentration < 1).all(-1, keepdim=True)
        corner = F.one_hot(self.concentration.argmax(-1), self.concentration.shape[-1])
        return F.where(alone, corner.to(made.dtype), made)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return (self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1)))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = gamma(self.concentration, self._extended_shape(sample_shape))
        return drawn / drawn.sum(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        c = self.concentration
        return F.xlogy(c - 1.0, value).sum(-1) + F.lgamma(c.sum(-1)) - F.lgamma(c).sum(-1)

    def entropy(self) -> Tensor:
        c, k = self.concentration, self.concentration.size(-1)
        total = c.sum(-1)
        return (F.lgamma(c).sum(-1) - F.lgamma(total) - (k - total) * F.digamma(total)
                - ((c - 1.0) * F.digamma(c)).sum(-1))


class Beta(ExponentialFamily):
    """Over [0, 1], density proportional to x^(c1 - 1) * (1 - x)^(c0 - 1)."""

    arg_constraints = {"concentration1": constraint.positive,
                       "concentration0": constraint.positive}
    support = constraint.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any,
                 validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = tensors(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _pair(self) -> Tensor:
        return F.stack([self.concentration1, self.concentration0], -1)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return Dirichlet(self._pair, False).mode.select(-1, 0)

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        total = a + b
        return a * b / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return Dirichlet(self._pair, False).rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return Dirichlet(self._pair, False).log_prob(F.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return Dirichlet(self._pair, False).entropy()


class Laplace(Distribution):
    """Density exp(-|x - loc| / scale) / (2 * scale)."""

    arg_constraints = {"loc": constraint.real, "scale": constraint.positive}
    support = constraint.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = dt_eps(self.loc)
        u = uniform(self._extended_shape(sample_shape), self.loc) * (2 - eps) + (eps - 1)
        return self.loc - self.scale * u.sign() * F.log1p(-u.abs().clamp(max=1 - eps))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return -F.log(2 * self.scale) - F.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        gap = value - self.loc
        return 0.5 - 0.5 * gap.sign() * F.expm1(-gap.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * F.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + F.log(2 * self.scale)


class Cauchy(Distribution):
    """Median `loc`, half width at half maximum `scale`."""

    arg_constraints = {"loc": constraint.real, "scale": constraint.positive}
    support = constraint.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return F.full_like(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return F.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(uniform(self._extended_shape(sample_shape), self.loc))
        return self.loc + self.scale * F.tan(math.pi * (u - 0.5))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return (-math.log(math.pi) - self.scale.log()
                - (((value - self.loc) / self.scale) ** 2).log1p())

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return F.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return F.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(Distribution):
    """Density exp(-(z + exp(-z))) / scale, z = (x - loc) / scale."""

    arg_constraints = {"loc": constraint.real, "scale": constraint.positive}
    support = constraint.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(uniform(self._extended_shape(sample_shape), self.loc))
        return self.loc - self.scale * (-u.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class StudentT(Distribution):
    """loc + scale * t, t of Student's distribution with `df` degrees of freedom."""

    arg_constraints = {"df": constraint.positive, "loc": constraint.real,
                       "scale": constraint.positive}
    support = constraint.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0,
                 validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = tensors(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return F.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = self.df
        made = F.where(df > 2, self.scale.pow(2) * df / (df - 2), math.inf)
        return F.where(df > 1, made, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        square = gamma(self.df / 2, shape) * 2
        return self.loc + self.scale * noise(shape, self.loc) * F.rsqrt(square / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        y = (value - self.loc) / self.scale
        z = (self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
             + F.lgamma(0.5 * self.df) - F.lgamma(0.5 * (self.df + 1.0)))
        return -0.5 * (self.df + 1.0) * F.log1p(y ** 2.0 / self.df) - z

    def entropy(self) -> Tensor:
        df = self.df
        beta = F.lgamma(0.5 * df) + math.lgamma(0.5) - F.lgamma(0.5 * (df + 1))
        return (self.scale.log() + 0.5 * (df + 1) * (F.digamma(0.5 * (df + 1))
                                                     - F.digamma(0.5 * df))
                + 0.5 * df.log() + beta)


class Pareto(Distribution):
    """Density alpha * scale^alpha / x^(alpha + 1) from `scale` on."""

    arg_constraints = {"alpha": constraint.positive, "scale": constraint.positive}
    has_rsample = True

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = tensors(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraint.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = uniform(self._extended_shape(sample_shape), self.scale)
        return self.scale * (-F.log1p(-u) / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Weibull(Distribution):
    """scale * e^(1 / concentration), e standard exponential."""

    arg_constraints = {"scale": constraint.positive, "concentration": constraint.positive}
    support = constraint.positive
    has_rsample = True

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = tensors(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * F.exp(F.lgamma(1 + self.concentration.reciprocal()))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return self.scale.pow(2) * (F.exp(F.lgamma(1 + 2 * inverse))
                                    - F.exp(2 * F.lgamma(1 + inverse)))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = uniform(self._extended_shape(sample_shape), self.scale)
        return self.scale * (-F.log1p(-u)) ** self.concentration.reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        k, y = self.concentration, value / self.scale
        return k.log() - self.scale.log() + (k - 1) * y.log() - y ** k

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return EULER * (1 - inverse) + F.log(self.scale * inverse) + 1


__all__ = [name for name, value in list(globals().items())
           if isinstance(value, type) and issubclass(value, Distribution)
           and name not in ("Distribution", "ExponentialFamily")]
