"""The normal distribution and what is made of it."""

from __future__ import annotations

import math
from typing import Any

from lehr.distributions import constraint
from lehr.distributions.distribution import Distribution, ExponentialFamily, F, tensors
from lehr.tensor import random
from lehr.tensor.size import Size
from lehr.tensor.tensor import Tensor

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def noise(shape: Any, like: Tensor) -> Tensor:
    """Standard normal numbers of the dtype and device of another tensor."""
    return random.randn(tuple(shape), dtype=like.dtype, device=like.device)


class Normal(ExponentialFamily):
    """Mean `loc`, standard deviation `scale`."""

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
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """loc + scale * noise."""
        return self.loc + noise(self._extended_shape(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return (-((value - self.loc) ** 2) / (2 * self.scale ** 2) - self.scale.log()
                - HALF_LOG_TWO_PI)

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return 0.5 * (1 + F.erf((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * F.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_TWO_PI + F.log(self.scale)


class HalfNormal(Distribution):
    """The absolute value of a normal with mean 0 and standard deviation `scale`."""

    arg_constraints = {"scale": constraint.positive}
    support = constraint.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self.scale, = tensors(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return F.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return (noise(self._extended_shape(sample_shape), self.scale) * self.scale).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        inside = (-(value ** 2) / (2 * self.scale ** 2) - self.scale.log() - HALF_LOG_TWO_PI
                  + math.log(2))
        return F.where(value >= 0, inside, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return F.erf(value / (self.scale * math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * F.erfinv(value) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_TWO_PI + F.log(self.scale) - math.log(2)


class LogNormal(Distribution):
    """exp of a normal with `loc` and `scale`."""

    arg_constraints = {"loc": constraint.real, "scale": constraint.positive}
    support = constraint.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.base_dist = Normal(loc, scale, validate_args)
        self.loc, self.scale = self.base_dist.loc, self.base_dist.scale
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        log = value.log()
        return self.base_dist.log_prob(log) - log

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return self.base_dist.cdf(value.log())

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf(value).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


def _half_log_det(tril: Tensor) -> Tensor:
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """Mean `loc` [..., n] and one of covariance_matrix, precision_matrix, scale_tril [..., n, n].
    """

    arg_constraints = {"loc": constraint.real_vector,
                       "covariance_matrix": constraint.positive_definite,
                       "precision_matrix": constraint.positive_definite,
                       "scale_tril": constraint.lower_cholesky}
    support = constraint.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None,
                 precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
                 validate_args: bool | None = None) -> None:
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                 "scale_tril": scale_tril}
        named = {k: v for k, v in given.items() if v is not None}
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if len(named) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril "
                             "may be specified.")
        (name, matrix), = named.items()
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading "
                             "batch dimensions")
        batch = F.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        self.__dict__[name] = matrix.expand((*batch, *matrix.shape[-2:]))
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        full = self.__dict__[name]
        if name == "scale_tril":
            self._tril = full
        elif name == "covariance_matrix":
            self._tril = F.linalg_cholesky(full)
        else:
            # P = L' L'^T from the flipped matrix; its inverse transposed is the wanted factor.
            flipped = F.linalg_cholesky(F.flip(full, (-2, -1)))
            turned = F.flip(flipped, (-2, -1)).mT
            eye = F.eye(full.shape[-1], dtype=full.dtype, device=full.device)
            self._tril = F.linalg_solve_triangular(turned, eye, upper=False)

    def __getattr__(self, name: str) -> Any:
        if name == "scale_tril":
            return self._tril
        if name == "covariance_matrix":
            return self._tril @ self._tril.mT
        if name == "precision_matrix":
            return F.cholesky_inverse(self._tril)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = noise(self._extended_shape(sample_shape), self.loc)
        return self.loc + (self._tril @ eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        gap = (value - self.loc).unsqueeze(-1)
        shape = F.broadcast_shapes(tuple(gap.shape[:-2]), tuple(self._tril.shape[:-2]))
        tril = self._tril.expand((*shape, *self._tril.shape[-2:]))
        gap = gap.expand((*shape, *gap.shape[-2:]))
        solved = F.linalg_solve_triangular(tril, gap, upper=False).squeeze(-1)
        n = self._event_shape[0]
        return -solved.pow(2).sum(-1) / 2 - n * HALF_LOG_TWO_PI - _half_log_det(self._tril)

    def entropy(self) -> Tensor:
        made = self._event_shape[0] * (0.5 + HALF_LOG_TWO_PI) + _half_log_det(self._tril)
        return made.expand(self._batch_shape) if self._batch_shape else made


class Independent(Distribution):
    """`base_distribution` with its last batch dimensions seen as dimensions of the event."""

    arg_constraints: Any = {}

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
                 validate_args: bool | None = None) -> None:
        n = reinterpreted_batch_ndims
        batch = base_distribution.batch_shape
        if n > len(batch):
            raise ValueError("Expected reinterpreted_batch_ndims <= "
                             f"len(base_distribution.batch_shape), actual {n} vs {len(batch)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        cut = len(batch) - n
        super().__init__(batch[:cut], Size((*batch[cut:], *base_distribution.event_shape)),
                         validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:  # type: ignore[override]
        base = self.base_dist.support
        return constraint.independent(base, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def _sum(self, value: Tensor) -> Tensor:
        n = self.reinterpreted_batch_ndims
        return value.sum(tuple(range(-n, 0))) if n else value

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._sum(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._sum(self.base_dist.entropy())

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same with the batch expanded."""
        inner = self._event_shape[:self.reinterpreted_batch_ndims]
        return Independent(self.base_dist.expand(Size(batch_shape) + inner),
                           self.reinterpreted_batch_ndims, False)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
