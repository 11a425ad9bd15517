"""A mixture of distributions of one family."""

from __future__ import annotations

from typing import Any

from lehr.distributions.discrete import Categorical
from lehr.distributions.distribution import Distribution, F
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class MixtureSameFamily(Distribution):
    """Draws a component from `mixture_distribution`, then a value from that one of
    `component_distribution`, whose last batch dimension counts the components."""

    arg_constraints: Any = {}

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution,
                 validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of "
                             "torch.distributions.Categorical")
        count = component_distribution.batch_shape[-1]
        if mixture_distribution._num_events != count:
            raise ValueError("`mixture_distribution component` "
                             f"({mixture_distribution._num_events}) does not equal "
                             f"`component_distribution.batch_shape[-1]` ({count})")
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(component_distribution.batch_shape[:-1],
                         component_distribution.event_shape, validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return self.component_distribution.support

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape(tuple(probs.shape) + (1,) * self._event_ndims)

    @property
    def _dim(self) -> int:
        return -1 - self._event_ndims

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self.component_distribution.mean).sum(self._dim)

    @property
    def variance(self) -> Tensor:
        inner, weights = self.component_distribution, self._weights()
        gap = inner.mean - self.mean.unsqueeze(self._dim)
        return (weights * (inner.variance + gap.pow(2))).sum(self._dim)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        logs = self.component_distribution.log_prob(value.unsqueeze(self._dim))
        return F.logsumexp(logs + F.log_softmax(self.mixture_distribution.logits, -1), -1)

    def cdf(self, value: Tensor) -> Tensor:
        made = self.component_distribution.cdf(value.unsqueeze(self._dim))
        return (made * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            drawn = self.component_distribution.sample(sample_shape)
            which = self.mixture_distribution.sample(sample_shape)
            index = which.reshape(tuple(which.shape) + (1,) * (self._event_ndims + 1))
            shape = list(drawn.shape)
            shape[self._dim] = 1
            return drawn.gather(drawn.dim() + self._dim, index.expand(shape)).squeeze(self._dim)
