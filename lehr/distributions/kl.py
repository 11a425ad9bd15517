"""Kullback-Leibler divergences, KL(p || q) = E_p[log p - log q], as a table of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lehr.distributions.continuous import (
    Beta,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    Laplace,
    Uniform,
)
from lehr.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from lehr.distributions.distribution import Distribution, F
from lehr.distributions.normal import (
    HalfNormal,
    Independent,
    LogNormal,
    MultivariateNormal,
    Normal,
)
from lehr.tensor.tensor import Tensor

RULES: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[..., Any]:
    """Decorates the rule of a pair of classes (and their subclasses)."""
    def add(fn: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        RULES[type_p, type_q] = fn
        return fn
    return add


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q) in nats, of shape batch_shape. NotImplementedError for an unknown pair."""
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            rule = RULES.get((a, b))
            if rule is not None:
                return rule(p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}: add one with torch.distributions.register_kl")


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


register_kl(LogNormal, LogNormal)(_normal)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event "
                         "shapes cannot be computed")
    logs = [d._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) for d in (q, p)]
    solved = F.linalg_solve_triangular(q._tril, p._tril, upper=False)
    gap = F.linalg_solve_triangular(q._tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    n = p.event_shape[0]
    return (logs[0] - logs[1] + 0.5 * (solved.pow(2).sum((-2, -1)) + gap.pow(2).sum((-2, -1)) - n))


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    none = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    one = F.where(q.probs == 0, math.inf, one)
    one = F.where(p.probs == 0, 0.0, one)
    none = F.where(q.probs == 1, math.inf, none)
    none = F.where(p.probs == 1, 0.0, none)
    return one + none


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    made = p.probs * (p.logits - q.logits)
    made = F.where((q.probs == 0).expand_as(made), math.inf, made)
    return F.where((p.probs == 0).expand_as(made), 0.0, made).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented")
    made = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p()
                            - (-q.probs).log1p())
    return F.where(p.total_count > q.total_count, math.inf, made)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - F.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    return (q.concentration * (p.rate / q.rate).log() + F.lgamma(q.concentration)
            - F.lgamma(p.concentration)
            + (p.concentration - q.concentration) * F.digamma(p.concentration)
            + (q.rate - p.rate) * (p.concentration / p.rate))


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    first = total.lgamma() - b.sum(-1).lgamma()
    second = (a.lgamma() - b.lgamma()).sum(-1)
    return first - second + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(Dirichlet(p._pair, False), Dirichlet(q._pair, False))


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    gap = (p.loc - q.loc).abs()
    return -ratio.log() + gap / q.scale + ratio * F.exp(-gap / p.scale) - 1


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    a, b = q.loc / q.scale, p.loc / q.scale
    euler = 0.57721566490153286060
    return (-ratio.log() - a + b + ratio * euler
            + F.exp(a + (1 + ratio).lgamma() - b) - (1 + euler))


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    made = ((q.high - q.low) / (p.high - p.low)).log()
    return F.where((q.low > p.low) | (q.high < p.high), math.inf, made)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    top = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return top.log() - (4 * p.scale * q.scale).log()


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return p._sum(kl_divergence(p.base_dist, q.base_dist))
