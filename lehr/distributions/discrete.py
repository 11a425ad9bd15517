"""Distributions over counts and classes."""

from __future__ import annotations

import math
from typing import Any

from lehr.distributions import constraint
from lehr.distributions.distribution import (
    Distribution,
    ExponentialFamily,
    F,
    clamp_probs,
    from_logits,
    from_probs,
    tensors,
)
from lehr.tensor import random
from lehr.tensor.info import finfo
from lehr.tensor.mode import no_grad
from lehr.tensor.size import Size
from lehr.tensor.tensor import Tensor


def _one_of(probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class _Weighted(Distribution):
    """Given by `probs` or `logits`, the other is computed; `binary` says which of two ways."""

    binary = True

    def _take(self, probs: Any, logits: Any) -> Tensor:
        _one_of(probs, logits)
        name, value = ("probs", probs) if logits is None else ("logits", logits)
        self.__dict__[name], = tensors(value)
        self._given = name
        return self.__dict__[name]  # type: ignore[no-any-return]

    @property
    def _param(self) -> Tensor:
        return getattr(self, self._given)

    def __getattr__(self, name: str) -> Any:
        if name == "probs" and "logits" in self.__dict__:
            return from_logits(self.logits, self.binary)
        if name == "logits" and "probs" in self.__dict__:
            return from_probs(self.probs, self.binary)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def param_shape(self) -> Size:
        return self._param.shape


class Bernoulli(_Weighted, ExponentialFamily):
    """1 with probability `probs`, else 0."""

    arg_constraints = {"probs": constraint.unit_interval, "logits": constraint.real}
    support = constraint.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        super().__init__(self._take(probs, logits).shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        p = self.probs
        return F.where(p == 0.5, math.nan, (p >= 0.5).to(p.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return random.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        logits, value = F.broadcast_tensors([self.logits, value])
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = F.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


class Categorical(_Weighted):
    """Indices 0 to n - 1 with the probabilities `probs` [..., n], normalised, or the logits."""

    arg_constraints = {"probs": constraint.simplex, "logits": constraint.real_vector}
    has_enumerate_support = True
    binary = False

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        value = self._take(probs, logits)
        if value.dim() < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        self._num_events = value.shape[-1]
        if self._given == "probs":
            self.probs = value / value.sum(-1, keepdim=True)
        else:
            self.logits = value - value.logsumexp(-1, keepdim=True)
        super().__init__(value.shape[:-1], validate_args=validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraint.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return F.full(tuple(self._batch_shape), math.nan, dtype=self._param.dtype,
                      device=self._param.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(tuple(sample_shape))
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = random.multinomial(rows, shape.numel(), True).T
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        index = value.long().unsqueeze(-1)
        index, logits = F.broadcast_tensors([index, self.logits])
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = F.arange(self._num_events, device=self._param.device)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """`Categorical` with the index as a one-hot vector."""

    arg_constraints = {"probs": constraint.simplex, "logits": constraint.real_vector}
    support = constraint.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:],
                         validate_args)

    @property
    def probs(self) -> Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return F.one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample(sample_shape)
        return F.one_hot(drawn, self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = F.eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view((n, *[1] * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """Its `rsample` lets gradients through to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self.sample(sample_shape)
        return drawn + (self.probs - self.probs.detach())


class Geometric(_Weighted):
    """Failures before the first success of probability `probs`."""

    arg_constraints = {"probs": constraint.unit_interval, "logits": constraint.real}
    support = constraint.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        super().__init__(self._take(probs, logits).shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError("Expected parameter probs of distribution Geometric to be positive, "
                             f"but found invalid values:\n{self.probs}")

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return F.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            probs = self.probs
            u = random.rand(tuple(self._extended_shape(sample_shape)), dtype=probs.dtype)
            return (u.clamp(min=finfo(probs.dtype).tiny).log() / (-probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        value, probs = F.broadcast_tensors([value, self.probs])
        probs = F.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs,
                                                  reduction="none") / self.probs


class Poisson(ExponentialFamily):
    """Counts with the mean `rate`."""

    arg_constraints = {"rate": constraint.nonnegative}
    support = constraint.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self.rate, = tensors(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return random.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        rate, value = F.broadcast_tensors([self.rate, value])
        return F.xlogy(value, rate) - rate - F.lgamma(value + 1)


class Binomial(_Weighted):
    """Successes in `total_count` trials of probability `probs`."""

    arg_constraints = {"total_count": constraint.nonnegative_integer,
                       "probs": constraint.unit_interval, "logits": constraint.real}
    has_enumerate_support = True

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        value = self._take(probs, logits)
        self.total_count, self.__dict__[self._given] = tensors(
            total_count if isinstance(total_count, Tensor) else float(total_count), value)
        self.total_count = self.total_count.type_as(value)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraint.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return random.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        n, logits = self.total_count, self.logits
        choose = F.lgamma(n + 1) - F.lgamma(value + 1) - F.lgamma(n - value + 1)
        # log(1 - p) = -(max(l, 0) + log(1 + exp(-|l|)))
        return value * logits + choose - n * (logits.clamp(min=0)
                                              + F.log1p(F.exp(-logits.abs())))


class Multinomial(Distribution):
    """Counts of the classes in `total_count` draws from `Categorical`."""

    arg_constraints = {"probs": constraint.simplex, "logits": constraint.real_vector}

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:],
                         validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraint.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        counts = F.one_hot(drawn, self._event_shape[0]).sum(0)
        return counts.to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        logits, value = F.broadcast_tensors([self.logits, value])
        logits = F.where((value == 0) & (logits == -math.inf), 0.0, logits)
        return (F.lgamma(value.sum(-1) + 1) - F.lgamma(value + 1).sum(-1)
                + (logits * value).sum(-1))


class RelaxedOneHotCategorical(_Weighted):
    """Softmax of logits with Gumbel noise at a temperature (Maddison et al. 2017)."""

    arg_constraints = {"probs": constraint.simplex, "logits": constraint.real_vector}
    support = constraint.simplex
    has_rsample = True
    binary = False

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        value = self._take(probs, logits)
        self.temperature, = tensors(temperature)
        if self._given == "probs":
            self.probs = value / value.sum(-1, keepdim=True)
        else:
            self.logits = value - value.logsumexp(-1, keepdim=True)
        super().__init__(value.shape[:-1], value.shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        logits = self.logits
        u = clamp_probs(random.rand(tuple(self._extended_shape(sample_shape)), dtype=logits.dtype))
        return F.softmax((logits - (-u.log()).log()) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        k, log = self._event_shape[0], value.log()
        logits, log = F.broadcast_tensors([self.logits, log])
        score = logits - log * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        scale = F.full_like(self.temperature, float(k)).lgamma() + self.temperature.log() * (k - 1)
        return score + scale - log.sum(-1)


class RelaxedBernoulli(_Weighted):
    """Sigmoid of logits with logistic noise at a temperature (Maddison et al. 2017)."""

    arg_constraints = {"probs": constraint.unit_interval, "logits": constraint.real}
    support = constraint.unit_interval
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        value = self._take(probs, logits)
        self.temperature, = tensors(temperature)
        super().__init__(value.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(random.rand(tuple(self._extended_shape(sample_shape)),
                                    dtype=self.logits.dtype))
        return F.sigmoid((u.log() - (-u).log1p() + self.logits) / self.temperature)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        kept = clamp_probs(value)
        logits = kept.log() - (-kept).log1p()
        gap = self.logits - logits * self.temperature
        inner = self.temperature.log() + gap - 2 * gap.exp().log1p()
        # the sigmoid's own change of volume
        return inner + F.softplus(-logits) + F.softplus(logits)


__all__ = [name for name, value in list(globals().items())
           if isinstance(value, type) and issubclass(value, Distribution)
           and not name.startswith("_")]
