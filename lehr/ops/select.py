"""Choosing between values: where, clamping, elementwise extrema."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import execute, rule, sample
from lehr.ops.registry import EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Spec


def _chosen(condition, x, y) -> Spec:
    if condition.dtype not in (dt.bool_, dt.uint8):
        raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor "
                           "with dtype "
                           f"{rule.LABELS[condition.dtype.name]}")
    made = rule.elementwise((x, y))
    shape = rule.broadcast(tuple(condition.shape), made.shape)
    return Spec(shape, made.dtype, rule.device_of((condition, x, y)))


def _array_type(np, operands):
    """`rule.operands_type` of numpy arrays and numbers."""
    arrays = [a for a in operands if isinstance(a, np.ndarray)]
    return dt.result_type([dt.of_numpy(a.dtype) for a in arrays if a.ndim],
                          [dt.of_numpy(a.dtype) for a in arrays if not a.ndim],
                          [dt.category_of(a) for a in operands if not isinstance(a, np.ndarray)])


def _choose(np, condition, x, y):
    made = _array_type(np, (x, y)).wide
    x, y = (execute.cast(a, made) if isinstance(a, np.ndarray) else execute.number(a, made)
            for a in (x, y))
    if condition.size >= LARGE and made.itemsize <= 8:
        return _by_bits(np, condition, x, y)
    return np.where(condition, x, y)


LARGE = 1 << 12  # numbers from which on a choice by bits is faster


def _by_bits(np, condition, x, y):
    """`np.where` without its branches, which cost five times as much where nobody foresees them."""
    kind = np.dtype(f"i{x.dtype.itemsize}")
    mask = condition.astype(bool, copy=False).astype(kind)
    a, b = x.view(kind), y.view(kind)
    if a.ndim == 0 and a == 0:
        mask -= kind.type(1)
        return (mask & b).view(x.dtype)
    np.negative(mask, out=mask)
    if b.ndim == 0 and b == 0:
        return (mask & a).view(x.dtype)
    made = np.asarray(a ^ b) & mask
    made ^= b
    return made.view(x.dtype)


def _choose_typed(F, condition, x, y):
    made = rule.operands_type((x, y))
    if all(rule.is_tensor(a) and a.dtype is made for a in (x, y)) and condition.dtype is dt.bool_:
        return NotImplemented
    x, y = (F.to_dtype(a, made) if rule.is_tensor(a) else
            F.full((), a, dtype=made, device=condition.device) for a in (x, y))
    return F.where(F.to_dtype(condition, dt.bool_), x, y)


def _choice_samples(s):
    yield s(s.b(3, 4), s.any(3, 4), s.any(3, 4))
    yield s(s.b(3, 1), s.any(4), s.f())
    yield s(s.b(3, 4), s.any(3, 4), 2)
    yield s(s.b(3, 4), 2.5, s.any(4))
    yield s(s.b(3, 4), 2.5, True)
    yield s.raises(RuntimeError, s.f(3), s.f(3), s.f(3), match="boolean")


@op("where(condition: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class where:
    """input where condition holds, else other. Gradients of the side not chosen are zero, never
    NaN."""

    kind, rule, where, exact = POINTWISE, _chosen, "function", True
    c, triton = "{condition} ? {input} : {other}", "tl.where({condition}, {input}, {other})"
    eager, decomp, samples = _choose, _choose_typed, _choice_samples

    def vjp(F, g, out, condition, x, y):
        return None, lambda: F.where(condition, g, 0), lambda: F.where(condition, 0, g)


@op("where_method(input: Tensor, condition: Tensor, other: Tensor | Scalar) -> Tensor")
class where_method:
    """`Tensor.where`: input where condition holds, else other."""

    api, where = "where", "method"

    def rule(x, condition, y):
        return _chosen(condition, x, y)

    def decomp(F, x, condition, y):
        return F.where(condition, x, y)

    def samples(s):
        yield s(s.any(3, 4), s.b(3, 4), s.any(4))
        yield s(s.any(3, 4), s.b(4), 2)


@op("maximum(input: Tensor, other: Tensor) -> Tensor")
class maximum:
    """The larger one; NaN where either is."""

    kind, rule, where, exact = POINTWISE, rule.binary, "function method", True
    c, triton = "lehr_maximum_{t}({input}, {other})", "lehr_maximum({input}, {other})"
    samples = sample.binary()

    def eager(np, x, y):
        return np.maximum(x, y)

    def vjp(F, g, out, x, y):
        return lambda: _share(F, g, x, y, F.lt), lambda: _share(F, g, y, x, F.lt)


@op("minimum(input: Tensor, other: Tensor) -> Tensor")
class minimum:
    """The smaller one; NaN where either is."""

    kind, rule, where, exact = POINTWISE, rule.binary, "function method", True
    c, triton = "lehr_minimum_{t}({input}, {other})", "lehr_minimum({input}, {other})"
    samples = sample.binary()

    def eager(np, x, y):
        return np.minimum(x, y)

    def vjp(F, g, out, x, y):
        return lambda: _share(F, g, x, y, F.gt), lambda: _share(F, g, y, x, F.gt)


def _share(F, g, mine, other, lost):
    """The gradient of the winner; equal operands get half each."""
    return F.where(F.eq(mine, other), F.mul(g, 0.5), F.where(lost(mine, other), 0, g))


def _ignoring_nan(F, x, y, better):
    """x where it wins or y is NaN."""
    return F.where(F.bitwise_or(better(x, y), F.ne(y, y)), x, y)


@op("fmax(input: Tensor, other: Tensor) -> Tensor")
class fmax:
    """The larger one; a NaN loses against a number."""

    kind, rule, where, exact = POINTWISE, rule.binary, "function method", True
    samples = sample.binary()

    def eager(np, x, y):
        return np.fmax(x, y)

    def decomp(F, x, y):
        return _ignoring_nan(F, x, y, F.ge)

    def vjp(F, g, out, x, y):
        mine = F.bitwise_or(F.ge(x, y), F.ne(y, y))
        return lambda: F.where(mine, g, 0), lambda: F.where(mine, 0, g)


@op("fmin(input: Tensor, other: Tensor) -> Tensor")
class fmin:
    """The smaller one; a NaN loses against a number."""

    kind, rule, where, exact = POINTWISE, rule.binary, "function method", True
    samples = sample.binary()

    def eager(np, x, y):
        return np.fmin(x, y)

    def decomp(F, x, y):
        return _ignoring_nan(F, x, y, F.le)

    def vjp(F, g, out, x, y):
        mine = F.bitwise_or(F.le(x, y), F.ne(y, y))
        return lambda: F.where(mine, g, 0), lambda: F.where(mine, 0, g)


def _bounded(x, *bounds) -> Spec:
    given = [b for b in bounds if b is not None]
    if not given:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    spec = rule.elementwise((x, *given))
    if spec.dtype is dt.bool_ and not (len(given) == 1 and rule.is_tensor(given[0])):
        raise NotImplementedError('"clamp" not implemented for \'Bool\'')
    return spec


@op("clamp(input: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None)"
    " -> Tensor")
class clamp:
    """min(max(input, min), max); NaN stays NaN."""

    kind, rule, where, aliases, exact = POINTWISE, _bounded, EVERYWHERE, ("clip",), True
    dtypes = "int float half"

    def eager(np, x, low, high):
        x = x if low is None else np.maximum(x, low)
        return x if high is None else np.minimum(x, high)

    def decomp(F, x, low, high):
        x = x if low is None else F.clamp_min(x, low)
        return x if high is None else F.clamp_max(x, high)

    def vjp(F, g, out, x, low, high):
        if low is None or high is None:
            bound, inside = (high, F.le) if low is None else (low, F.ge)
            mine = F.where(inside(x, bound), g, 0)
            other = None if not rule.is_tensor(bound) else lambda: F.where(inside(x, bound), 0, g)
            return (mine, None, other) if low is None else (mine, other, None)
        above, below = F.ge(x, low), F.le(x, high)
        mine = F.where(F.bitwise_and(above, below), g, 0)
        # Where the bounds cross, the result is `high` whatever x is.
        crossed = F.gt(low, high) if rule.is_tensor(low) else F.lt(high, low) if rule.is_tensor(
            high) else None
        if crossed is None:
            return mine, None, None
        return (mine,
                lambda: F.where(F.bitwise_or(above, crossed), 0, g),
                lambda: F.where(F.bitwise_and(below, F.logical_not(crossed)), 0, g))

    def samples(s):
        yield s(s.any(3, 4), 1, 4)
        yield s(s.any(3, 4), min=-1.5)
        yield s(s.any(3, 4), max=2)
        yield s(s.any(3, 4), s.any(4), s.any(3, 4))
        yield s(s.any(3, 4), max=s.any(3, 1))
        yield s(s.any(3, 4), s.any(3, 4))
        yield s.raises(RuntimeError, s.any(3), match="At least one")


@op("clamp_min(input: Tensor, min: Tensor | Scalar) -> Tensor")
class clamp_min:
    kind, rule, where, exact = POINTWISE, _bounded, EVERYWHERE, True
    c, triton = "lehr_maximum_{t}({input}, {min})", "lehr_maximum({input}, {min})"
    dtypes = "int float half"

    def eager(np, x, low):
        return np.maximum(x, low)

    def vjp(F, g, out, x, low):
        return lambda: F.where(F.ge(x, low), g, 0), lambda: F.where(F.lt(x, low), g, 0)

    def samples(s):
        yield s(s.any(3, 4), 1)
        yield s(s.any(3, 4), -1.5)
        yield s(s.any(3, 4), s.any(4))


@op("clamp_max(input: Tensor, max: Tensor | Scalar) -> Tensor")
class clamp_max:
    kind, rule, where, exact = POINTWISE, _bounded, EVERYWHERE, True
    c, triton = "lehr_minimum_{t}({input}, {max})", "lehr_minimum({input}, {max})"
    dtypes = "int float half"

    def eager(np, x, high):
        return np.minimum(x, high)

    def vjp(F, g, out, x, high):
        return lambda: F.where(F.le(x, high), g, 0), lambda: F.where(F.gt(x, high), g, 0)

    def samples(s):
        yield s(s.any(3, 4), 1)
        yield s(s.any(3, 4), 1.5)
        yield s(s.any(3, 4), s.any(4))


@op("max_other(input: Tensor, other: Tensor) -> Tensor")
class max_other:
    """`max` of two tensors: maximum."""

    api, rule, where = "max", rule.binary, "function method"

    def decomp(F, x, y):
        return F.maximum(x, y)

    samples = sample.binary()


@op("min_other(input: Tensor, other: Tensor) -> Tensor")
class min_other:
    """`min` of two tensors: minimum."""

    api, rule, where = "min", rule.binary, "function method"

    def decomp(F, x, y):
        return F.minimum(x, y)

    samples = sample.binary()
