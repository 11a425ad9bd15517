"""Sets of values that parameters and samples of distributions lie in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.tensor import api
from lehr.tensor.tensor import Tensor


class Constraint:
    """A set. `check(value)` says of each event whether it lies in it.

    is_discrete  whether its members are isolated points
    event_dim    how many trailing dimensions make up one event
    """

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__[1:] + "()"


class _Rule(Constraint):
    """A set given by a test of each element."""

    def __init__(self, name: str, test: Callable[[Tensor], Tensor], discrete: bool = False,
                 event: int = 0) -> None:
        self.name, self.test, self.is_discrete, self.event_dim = name, test, discrete, event

    def check(self, value: Tensor) -> Tensor:
        """Of each event, whether it lies in the set."""
        return self.test(value)

    def __repr__(self) -> str:
        return self.name


class _Dependent(Constraint):
    """A set that depends on the distribution's parameters: nothing is checked."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _Independent(Constraint):
    """Events of `count` more dimensions, each element of which lies in the base set."""

    def __init__(self, base: Constraint, count: int) -> None:
        self.base, self.count = base, count
        self.is_discrete, self.event_dim = base.is_discrete, base.event_dim + count

    def check(self, value: Tensor) -> Tensor:
        """Of each event, whether all its elements lie in the base set."""
        made = self.base.check(value)
        if made.dim() < self.count:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return made.flatten(made.dim() - self.count).all(-1) if self.count else made

    def __repr__(self) -> str:
        return f"Independent({self.base!r}, {self.count})"


def _binary(v: Tensor) -> Tensor:
    return v.eq(0) | v.eq(1)


def _whole(v: Tensor) -> Tensor:
    return (v % 1).eq(0)


def _simplex(v: Tensor) -> Tensor:
    return (v >= 0).all(-1) & ((v.sum(-1) - 1).abs() < 1e-6)


def _lower(v: Tensor) -> Tensor:
    return v.tril().eq(v).flatten(-2).min(-1)[0]


def _lower_cholesky(v: Tensor) -> Tensor:
    return _lower(v) & (v.diagonal(dim1=-2, dim2=-1) > 0).min(-1)[0]


def _positive_definite(v: Tensor) -> Tensor:
    symmetric = v.isclose(v.mT, atol=1e-6).flatten(-2).all(-1)
    return symmetric & api.function("cholesky_ex", "linalg")(v)[1].eq(0)  # type: ignore[misc]


real: Constraint = _Rule("Real()", lambda v: v.eq(v))
boolean: Constraint = _Rule("Boolean()", _binary, True)
positive: Constraint = _Rule("GreaterThan(lower_bound=0.0)", lambda v: v > 0)
nonnegative: Constraint = _Rule("GreaterThanEq(lower_bound=0.0)", lambda v: v >= 0)
unit_interval: Constraint = _Rule("Interval(lower_bound=0.0, upper_bound=1.0)",
                                  lambda v: (v >= 0) & (v <= 1))
nonnegative_integer: Constraint = _Rule("IntegerGreaterThan(lower_bound=0)",
                                        lambda v: _whole(v) & (v >= 0), True)
positive_integer: Constraint = _Rule("IntegerGreaterThan(lower_bound=1)",
                                     lambda v: _whole(v) & (v >= 1), True)
simplex: Constraint = _Rule("Simplex()", _simplex, event=1)
one_hot: Constraint = _Rule(
    "OneHot()", lambda v: _binary(v).all(-1) & v.sum(-1).eq(1), True, 1)
lower_triangular: Constraint = _Rule("LowerTriangular()", _lower, event=2)
lower_cholesky: Constraint = _Rule("LowerCholesky()", _lower_cholesky, event=2)
positive_definite: Constraint = _Rule("PositiveDefinite()", _positive_definite, event=2)
dependent: Constraint = _Dependent()


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Events of so many more dimensions, each element of which lies in the base set."""
    return _Independent(base, reinterpreted_batch_ndims)


real_vector: Constraint = independent(real, 1)


def greater_than(lower: Any) -> Constraint:
    """Numbers above `lower`."""
    return _Rule(f"GreaterThan(lower_bound={lower})", lambda v: v > lower)


def greater_than_eq(lower: Any) -> Constraint:
    """Numbers from `lower` on."""
    return _Rule(f"GreaterThanEq(lower_bound={lower})", lambda v: v >= lower)


def less_than(upper: Any) -> Constraint:
    """Numbers below `upper`."""
    return _Rule(f"LessThan(upper_bound={upper})", lambda v: v < upper)


def interval(lower: Any, upper: Any) -> Constraint:
    """Numbers from `lower` to `upper`."""
    return _Rule(f"Interval(lower_bound={lower}, upper_bound={upper})",
                 lambda v: (v >= lower) & (v <= upper))


def half_open_interval(lower: Any, upper: Any) -> Constraint:
    """Numbers from `lower` to below `upper`."""
    return _Rule(f"HalfOpenInterval(lower_bound={lower}, upper_bound={upper})",
                 lambda v: (v >= lower) & (v < upper))


def integer_interval(lower: Any, upper: Any) -> Constraint:
    """Whole numbers from `lower` to `upper`."""
    return _Rule(f"IntegerInterval(lower_bound={lower}, upper_bound={upper})",
                 lambda v: _whole(v) & (v >= lower) & (v <= upper), True)


def multinomial(upper: Any) -> Constraint:
    """Vectors of counts with the sum `upper`."""
    return _Rule("Multinomial()", lambda v: (_whole(v) & (v >= 0)).all(-1) & (v.sum(-1) <= upper),
                 True, 1)
