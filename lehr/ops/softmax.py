"""Softmax and its relatives: one row at a time, shifted by the row's maximum."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule
from lehr.ops.registry import REDUCE, op
from lehr.ops.rule import Spec


def _rows(x, dim, dtype=None) -> Spec:
    made = dtype or x.dtype
    rule.dim_of(dim, len(x.shape))
    if made.is_integer:
        raise NotImplementedError(f'"softmax" not implemented for {rule.label(made)}')
    return Spec(tuple(x.shape), made, x.device, made)


def implicit(dim: int | None, ndim: int) -> int:
    """The dimension PyTorch picks where none is given."""
    return (0 if ndim in (0, 1, 3) else 1) if dim is None else dim


def _row_samples(s):
    yield s(s.any(3, 4), 1)
    yield s(s.any(2, 3, 4), 1)
    yield s(s.any(), 0)
    yield s(s.any(3, 0), 1)
    yield s(s.any(0, 3), -1)
    yield s(s.any(3, 4), -1, dtype=dt.float64)
    yield s(s.f(3, 9, nonfinite=True), 1)
    yield s(s.f(2, 4, domain=(80.0, 120.0)), 1)
    yield s.raises(IndexError, s.any(3, 4), 2, match="out of range")


def _shifted(F, x, dim):
    # A row of nothing has no maximum and needs none.
    return x if rule.numel(x.shape) == 0 else F.sub(x, F.amax(x, dim, True))


def _axis(x, dim):
    """numpy's axis: a 0-d array is reduced over none."""
    return dim if x.ndim else ()


@op("softmax(input: Tensor, dim: int, dtype: dtype | None = None) -> Tensor")
class softmax:
    """exp(input) over its sum along `dim`."""

    kind, rule, where = REDUCE, _rows, "function method"
    aliases, dtypes, samples = ("special.softmax",), "float half", _row_samples

    def eager(np, x, dim, dtype):
        axis = _axis(x, dim)
        if x.size == 0:
            return x
        out = np.subtract(x, np.max(x, axis=axis, keepdims=True), out=np.empty_like(x))
        np.exp(out, out=out)
        out /= np.sum(out, axis=axis, keepdims=True)
        return out

    def decomp(F, x, dim, dtype):
        weight = F.exp(_shifted(F, x, dim))
        return F.div(weight, F.sum(weight, dim, True))

    def vjp(F, g, out, x, dim, dtype):
        weighted = F.mul(g, out)
        return F.sub(weighted, F.mul(out, F.sum(weighted, dim, True)))


@op("log_softmax(input: Tensor, dim: int, dtype: dtype | None = None) -> Tensor")
class log_softmax:
    """input minus the logarithm of the sum of exp(input) along `dim`."""

    kind, rule, where = REDUCE, _rows, "function method"
    aliases, dtypes, samples = ("special.log_softmax",), "float half", _row_samples

    def eager(np, x, dim, dtype):
        axis = _axis(x, dim)
        if x.size == 0:
            return x
        out = np.subtract(x, np.max(x, axis=axis, keepdims=True), out=np.empty_like(x))
        out -= np.log(np.sum(np.exp(out), axis=axis, keepdims=True))
        return out

    def decomp(F, x, dim, dtype):
        shifted = _shifted(F, x, dim)
        return F.sub(shifted, F.log(F.sum(F.exp(shifted), dim, True)))

    def vjp(F, g, out, x, dim, dtype):
        return F.sub(g, F.mul(F.exp(out), F.sum(g, dim, True)))


def _implicit_rule(x, dim=None, _stacklevel=3, dtype=None) -> Spec:
    return _rows(x, implicit(dim, len(x.shape)), dtype)


def _implicit_samples(s):
    yield s(s.any(3, 4), 1)
    yield s(s.any(3, 4), dim=-1, dtype=dt.float64)
    yield s(s.any(2, 3, 4), -2)
    yield s(s.any(4))


FUNCTIONAL = ("input: Tensor, dim: int | None = None, _stacklevel: int = 3,"
              " dtype: dtype | None = None")


@op(f"nn_softmax({FUNCTIONAL}) -> Tensor")
class nn_softmax:
    """`softmax`; without `dim` along dimension 0 of 0-d, 1-d and 3-d inputs, 1 of others."""

    kind, api, rule, where = REDUCE, "softmax", _implicit_rule, "nn"
    dtypes, samples = "float half", _implicit_samples

    def decomp(F, x, dim, stacklevel, dtype):
        return F.softmax(x, implicit(dim, x.ndim))


@op(f"nn_log_softmax({FUNCTIONAL}) -> Tensor")
class nn_log_softmax:
    """`log_softmax`; without `dim` along dimension 0 of 0-d, 1-d and 3-d inputs, 1 of others."""

    kind, api, rule, where = REDUCE, "log_softmax", _implicit_rule, "nn"
    dtypes, samples = "float half", _implicit_samples

    def decomp(F, x, dim, stacklevel, dtype):
        return F.log_softmax(x, implicit(dim, x.ndim))


@op(f"softmin({FUNCTIONAL}) -> Tensor")
class softmin:
    """`softmax` of the negated input."""

    kind, rule, where = REDUCE, _implicit_rule, "nn"
    dtypes, samples = "float half", _implicit_samples

    def decomp(F, x, dim, stacklevel, dtype):
        return F.softmax(F.neg(x), implicit(dim, x.ndim))
