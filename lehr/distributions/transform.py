"""Invertible maps of random variables, and distributions of what they map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lehr.distributions import constraint
from lehr.distributions.distribution import Distribution, F, dt_eps
from lehr.tensor.mode import no_grad
from lehr.tensor.size import Size
from lehr.tensor.tensor import Tensor


class Transform:
    """`t(x)`, its inverse `t.inv(y)`, and log |dt/dx| (`log_abs_det_jacobian(x, y)`).

    cache_size 1 keeps the last pair, so that the inverse of a result is exactly what was given.
    """

    bijective = True
    domain: Any = constraint.real
    codomain: Any = constraint.real
    sign = 1

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._pair: tuple[Any, Any] = (None, None)

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and x is self._pair[0]:
            return self._pair[1]  # type: ignore[no-any-return]
        y = self._call(x)
        self._pair = (x, y) if self._cache_size else (None, None)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size and y is self._pair[1]:
            return self._pair[0]  # type: ignore[no-any-return]
        x = self._inverse(y)
        self._pair = (x, y) if self._cache_size else (None, None)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx| at x, y = t(x)."""
        raise NotImplementedError

    @property
    def inv(self) -> Transform:
        return _Inverse(self)

    @property
    def event_dim(self) -> int:
        return max(self.domain.event_dim, self.codomain.event_dim)

    def forward_shape(self, shape: Any) -> Any:
        """The shape of t(x) for x of a shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for t(x) of a shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    """The inverse of another transform."""

    def __init__(self, base: Transform) -> None:
        super().__init__()
        self.base = base
        self.domain, self.codomain, self.sign = base.codomain, base.domain, base.sign

    def __call__(self, x: Tensor) -> Tensor:
        return self.base._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self.base(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.base.log_abs_det_jacobian(y, x)

    @property
    def inv(self) -> Transform:
        return self.base


class ExpTransform(Transform):
    """exp(x)."""

    codomain = constraint.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    codomain = constraint.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        eps = dt_eps(x)
        return F.sigmoid(x).clamp(min=eps * 1e-30, max=1 - eps)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(Transform):
    """tanh(x)."""

    codomain = constraint.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return F.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class SoftplusTransform(Transform):
    """log(1 + exp(x))."""

    codomain = constraint.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class PowerTransform(Transform):
    """x ** exponent over the positive numbers."""

    domain = codomain = constraint.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class AffineTransform(Transform):
    """loc + scale * x; with event_dim 1 or 2 over vectors or matrices."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraint.independent(constraint.real, event_dim)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            made = self.scale.abs().log().expand(x.shape)
        else:
            made = F.full_like(x, math.log(abs(self.scale)))
        n = self._event_dim
        return made.sum(tuple(range(-n, 0))) if n else made


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    @property
    def event_dim(self) -> int:
        return max((p.event_dim for p in self.parts), default=0)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = 0
        for part in self.parts:
            after = part(x)
            made = part.log_abs_det_jacobian(x, after)
            extra = self.event_dim - part.event_dim
            total = total + (made.sum(tuple(range(-extra, 0))) if extra else made)
            x = after
        return total if self.parts else F.zeros_like(x)  # type: ignore[no-any-return]


identity_transform = ComposeTransform([])


class TransformedDistribution(Distribution):
    """What transforms make of draws from `base_distribution`.

    log p(y) = log p(x) - log |dt/dx|, y = t(x).
    """

    arg_constraints: Any = {}

    def __init__(self, base_distribution: Distribution, transforms: Any,
                 validate_args: bool | None = None) -> None:
        parts = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(p, Transform) for p in parts):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.base_dist, self.transforms = base_distribution, parts
        whole = base_distribution.batch_shape + base_distribution.event_shape
        events = max([len(base_distribution.event_shape), *(p.event_dim for p in parts)])
        cut = len(whole) - events
        super().__init__(whole[:cut], whole[cut:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:  # type: ignore[override]
        if not self.transforms:
            return self.base_dist.support
        rule = self.transforms[-1].codomain
        extra = len(self._event_shape) - rule.event_dim
        return constraint.independent(rule, extra) if extra > 0 else rule

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for part in self.transforms:
                x = part(x)
            return x

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = self.base_dist.rsample(sample_shape)
        for part in self.transforms:
            x = part(x)
        return x

    def _sum(self, value: Tensor, done: int) -> Tensor:
        extra = len(self._event_shape) - done
        return value.sum(tuple(range(-extra, 0))) if extra > 0 else value

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        total: Any = 0.0
        for part in reversed(self.transforms):
            before = part._inv_call(value)
            made = part.log_abs_det_jacobian(before, value)
            total = total - self._sum(made, part.event_dim)
            value = before
        base = self.base_dist.log_prob(value)
        return total + self._sum(base, len(self.base_dist.event_shape))  # type: ignore

    def _signed(self, value: Tensor, sign: int) -> Tensor:
        return sign * (value - 0.5) + 0.5

    def _sign(self) -> int:
        sign = 1
        for part in self.transforms:
            scale = getattr(part, "scale", 1)
            sign *= scale.sign() if isinstance(scale, Tensor) else (1 if scale > 0 else -1)
        return sign

    def cdf(self, value: Tensor) -> Tensor:
        for part in reversed(self.transforms):
            value = part._inv_call(value)
        return self._signed(self.base_dist.cdf(value), self._sign())

    def icdf(self, value: Tensor) -> Tensor:
        value = self.base_dist.icdf(self._signed(value, self._sign()))
        for part in self.transforms:
            value = part(value)
        return value

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same with the batch expanded."""
        extra = len(self._event_shape) - len(self.base_dist.event_shape)
        inner = Size(batch_shape) + (self._event_shape[:extra] if extra > 0 else Size(()))
        return TransformedDistribution(self.base_dist.expand(inner), self.transforms, False)

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.base_dist!r}, {self.transforms!r})"


__all__ = [name for name, value in list(globals().items())
           if isinstance(value, type) and issubclass(value, (Transform, Distribution))
           and not name.startswith("_") and name != "Distribution"] + ["identity_transform"]
