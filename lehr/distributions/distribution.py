"""The base of distributions: shapes, checks of parameters and values, and how tensors meet."""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.distributions import constraint
from lehr.tensor import api, create, index
from lehr.tensor.mode import no_grad
from lehr.tensor.size import Size
from lehr.tensor.tensor import Tensor


class Functions:
    """`F.name`: the public function of a name, of PyTorch's main module or one of `PLACES`."""

    PLACES = ("function", "nn", "linalg", "special")
    where = staticmethod(index.where)

    def __getattr__(self, name: str) -> Any:
        for place in self.PLACES:
            found = api.function(name.removeprefix("linalg_") if place == "linalg" else name, place)
            if found is not None:
                setattr(self, name, found)
                return found
        raise AttributeError(name)


F = Functions()


def tensors(*values: Any) -> list[Tensor]:
    """Numbers and tensors as tensors of one shape. ValueError for anything else."""
    for v in values:
        if not isinstance(v, (Tensor, int, float)):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or "
                             "objects implementing __torch_function__.")
    found = next((v for v in values if isinstance(v, Tensor)), None)
    kind = dt.Default.dtype if found is None else found.dtype
    made = [v if isinstance(v, Tensor) else create.tensor(v, dtype=kind) for v in values]
    return list(F.broadcast_tensors(made)) if len(made) > 1 else made


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1 by the spacing of their dtype."""
    eps = dt_eps(probs)
    return probs.clamp(min=eps, max=1 - eps)


def dt_eps(t: Tensor) -> float:
    """The spacing of a tensor's dtype at one."""
    from lehr.tensor.info import finfo
    return float(finfo(t.dtype).eps)


def from_logits(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: of one event, or of the entries of the last dimension."""
    return F.sigmoid(logits) if is_binary else F.softmax(logits, -1)


def from_probs(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logits of probabilities."""
    kept = clamp_probs(probs)
    return F.log(kept) - F.log1p(-kept) if is_binary else F.log(kept)


class Distribution:
    """A distribution over events of `event_shape`, one for each place of `batch_shape`.

    `arg_constraints` (name -> Constraint) and `support` say which parameters and values are
    checked, with ValueError where they are wrong, unless validate_args is False.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: Any = {}
    support: Any = None

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments when nothing is said."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (),
                 validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        for name, rule in self.arg_constraints.items():
            # Parameters that are computed from the given ones when they are asked for are not.
            if isinstance(rule, constraint._Dependent) or name not in self.__dict__:
                continue
            value = getattr(self, name)
            if not rule.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{rule!r}, but found invalid values:\n{value}")

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded to `batch_shape`."""
        shape = Size(batch_shape)
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        rank = len(self._batch_shape)
        for name, value in list(self.__dict__.items()):
            if isinstance(value, Tensor) and tuple(value.shape[:rank]) == tuple(self._batch_shape):
                made.__dict__[name] = value.expand(shape + value.shape[rank:])
            elif isinstance(value, Distribution):
                inner = value._batch_shape[rank:]
                made.__dict__[name] = value.expand(shape + inner)
        made._batch_shape = shape
        return made

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws through which gradients reach the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability of `value`."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every value, along a new first dimension."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return F.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size(tuple(sample_shape)) + self._batch_shape + self._event_shape

    def _check(self, value: Any) -> None:
        """ValueError where a value has not the shape or lies outside the support."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = len(self._event_shape)
        if value.shape[value.dim() - events:] != self._event_shape:
            raise ValueError("The right-most size of value must match event_shape: "
                             f"{tuple(value.shape)} vs {tuple(self._event_shape)}.")
        wanted = self._batch_shape + self._event_shape
        for have, want in zip(reversed(value.shape), reversed(wanted), strict=False):
            if have != 1 and want != 1 and have != want:
                raise ValueError("Value is not broadcastable with batch_shape+event_shape: "
                                 f"{tuple(value.shape)} vs {tuple(wanted)}.")
        rule = self.support
        if rule is None or isinstance(rule, constraint._Dependent):
            return
        if not rule.check(value).all():
            raise ValueError("Expected value argument "
                             f"({type(value).__name__} of shape {tuple(value.shape)}) to be within "
                             f"the support ({rule!r}) of the distribution {self!r}, but found "
                             f"invalid values:\n{value}")

    _validate_sample = _check

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                text = str(value) if value.numel() == 1 else str(value.size())
                shown.append(f"{name}: {text}")
        return f"{type(self).__name__}({', '.join(shown)})"


class ExponentialFamily(Distribution):
    """A distribution of the exponential family."""
