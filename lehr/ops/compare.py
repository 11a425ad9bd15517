"""Comparisons and tests of numbers: results are bool and carry no gradient."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.registry import COMPOSITE, EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Number, Spec


def _comparison(s):
    yield from sample.operands(low=0, high=4)(s)
    yield s(s.any(3, 4), s.any())
    yield s(s.any(3, 4), -1)


@op("eq(input: Tensor, other: Tensor | Scalar) -> Tensor")
class eq:
    kind, rule, where, nondiff = POINTWISE, rule.compare, EVERYWHERE, True
    c = triton = "{input} == {other}"
    samples = _comparison

    def eager(np, x, y):
        return np.equal(x, y)


@op("ne(input: Tensor, other: Tensor | Scalar) -> Tensor")
class ne:
    kind, rule, where, nondiff = POINTWISE, rule.compare, EVERYWHERE, True
    aliases = ("not_equal",)
    c = triton = "{input} != {other}"
    samples = _comparison

    def eager(np, x, y):
        return np.not_equal(x, y)


@op("lt(input: Tensor, other: Tensor | Scalar) -> Tensor")
class lt:
    kind, rule, where, nondiff, aliases = POINTWISE, rule.compare, EVERYWHERE, True, ("less",)
    c = triton = "{input} < {other}"
    samples = _comparison

    def eager(np, x, y):
        return np.less(x, y)


@op("le(input: Tensor, other: Tensor | Scalar) -> Tensor")
class le:
    kind, rule, where, nondiff, aliases = POINTWISE, rule.compare, EVERYWHERE, True, ("less_equal",)
    c = triton = "{input} <= {other}"
    samples = _comparison

    def eager(np, x, y):
        return np.less_equal(x, y)


@op("gt(input: Tensor, other: Tensor | Scalar) -> Tensor")
class gt:
    kind, rule, where, nondiff, aliases = POINTWISE, rule.compare, EVERYWHERE, True, ("greater",)
    c = triton = "{input} > {other}"
    samples = _comparison

    def eager(np, x, y):
        return np.greater(x, y)


@op("ge(input: Tensor, other: Tensor | Scalar) -> Tensor")
class ge:
    kind, rule, where, nondiff = POINTWISE, rule.compare, EVERYWHERE, True
    aliases = ("greater_equal",)
    c = triton = "{input} >= {other}"
    samples = _comparison

    def eager(np, x, y):
        return np.greater_equal(x, y)


def _is_float(x):
    return x.dtype.category >= dt.FLOAT


@op("isnan(input: Tensor) -> Tensor")
class isnan:
    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    samples = sample.unary((12,), nonfinite=True)

    def eager(np, x):
        return np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)

    def decomp(F, x):
        return F.ne(x, x)


@op("isinf(input: Tensor) -> Tensor")
class isinf:
    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    samples = sample.unary((12,), nonfinite=True)

    def eager(np, x):
        return np.isinf(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)

    def decomp(F, x):
        return F.eq(F.abs(x), float("inf")) if _is_float(x) else F.ne(x, x)


@op("isfinite(input: Tensor) -> Tensor")
class isfinite:
    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    samples = sample.unary((12,), nonfinite=True)

    def eager(np, x):
        return np.isfinite(x) if x.dtype.kind in "fc" else np.ones(x.shape, bool)

    def decomp(F, x):
        return F.lt(F.abs(x), float("inf")) if _is_float(x) else F.eq(x, x)


@op("isposinf(input: Tensor) -> Tensor")
class isposinf:
    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    samples = sample.unary((12,), nonfinite=True)

    def decomp(F, x):
        return F.eq(x, float("inf")) if _is_float(x) else F.ne(x, x)


@op("isneginf(input: Tensor) -> Tensor")
class isneginf:
    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    samples = sample.unary((12,), nonfinite=True)

    def decomp(F, x):
        return F.eq(x, float("-inf")) if _is_float(x) else F.ne(x, x)


@op("isreal(input: Tensor) -> Tensor")
class isreal:
    """True at every element of a real tensor."""

    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    samples = sample.unary()

    def eager(np, x):
        return np.isreal(x)

    def decomp(F, x):
        return F.full(x.shape, True, dtype=dt.bool_, device=x.device)


@op("signbit(input: Tensor) -> Tensor")
class signbit:
    """True below zero, for -0.0 too."""

    kind, rule, where, nondiff = POINTWISE, rule.bool_unary, "function method", True
    c = {dt.BOOL: "0", dt.INT: "{input} < 0", dt.FLOAT: "lehr_signbit_{t}({input})"}
    triton = {dt.BOOL: "({input} < {input})", dt.INT: "{input} < 0",
              dt.FLOAT: "lehr_signbit({input})"}
    samples = sample.unary((12,), nonfinite=True)

    def eager(np, x):
        return np.signbit(x) if x.dtype.kind == "f" else np.less(x, 0)


def _closeness(x, y, *rest) -> Spec:
    if x.dtype is not y.dtype:
        raise RuntimeError(f"{rule.LABELS[x.dtype.name]} did not match {rule.LABELS[y.dtype.name]}")
    return rule.compare(x, y)


@op("isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08,"
    " equal_nan: bool = False) -> Tensor")
class isclose:
    """abs(input - other) <= atol + rtol * abs(other), or equal; infinities only equal
    themselves."""

    kind, rule, where, nondiff = POINTWISE, _closeness, "function method", True

    def decomp(F, x, y, rtol, atol, equal_nan):
        if rtol < 0 or atol < 0:
            raise RuntimeError(f"rtol and atol must be greater than or equal to zero, but got "
                               f"{rtol} "
                               f"and {atol}")
        close = F.eq(x, y)
        if equal_nan and _is_float(x):
            close = F.bitwise_or(close, F.bitwise_and(F.ne(x, x), F.ne(y, y)))
        if rtol == 0 and atol == 0:
            return close
        if not _is_float(x):
            x, y = F.to_dtype(x, dt.Default.dtype), F.to_dtype(y, dt.Default.dtype)
        gap = F.abs(F.sub(x, y))
        near = F.le(gap, F.add(F.abs(F.mul(y, rtol)), atol))
        return F.bitwise_or(close, F.bitwise_and(F.isfinite(gap), near))

    def samples(s):
        yield s(s.any(5), s.any(5), rtol=0.4)
        yield s(s.any(5, nonfinite=True), s.any(5, nonfinite=True), 0.1, 0.5, equal_nan=True)
        yield s(s.any(4), s.any(4), 0.0, 0.0)
        yield s.raises(RuntimeError, s.f(3), s.i(3), match="did not match")
        yield s.raises(RuntimeError, s.f(3), s.f(3), rtol=-1.0, match="greater than")


@op("allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08,"
    " equal_nan: bool = False) -> bool")
class allclose:
    """Whether `isclose` holds everywhere, as a Python bool."""

    kind, where, nondiff, breaks = COMPOSITE, "function method", True, "data-dependent"

    def rule(x, y, *rest):
        _closeness(x, y)
        return Number(dt.BOOL)

    def eager(np, x, y, rtol, atol, equal_nan):
        gap = np.abs(x - y) if x.dtype.kind == "f" else np.abs(x.astype(np.float64) - y)
        close = (x == y) | (np.isfinite(gap) & (gap <= atol + np.abs(rtol * y)))
        return bool(np.all(close | (np.isnan(x) & np.isnan(y)) if equal_nan else close))

    def samples(s):
        x = s.any(5)
        yield s(x, x)
        yield s(x, s.any(5), rtol=0.01)
        yield s(s.f(9, nonfinite=True), s.f(9, nonfinite=True), equal_nan=True)
        yield s.raises(RuntimeError, s.f(3), s.i(3), match="did not match")


@op("equal(input: Tensor, other: Tensor) -> bool")
class equal:
    """Whether two tensors have the same shape and elements, as a Python bool."""

    kind, where, nondiff, breaks = COMPOSITE, "function method", True, "data-dependent"

    def rule(x, y):
        return Number(dt.BOOL)

    def eager(np, x, y):
        return bool(np.array_equal(x, y))

    def samples(s):
        x = s.any(5)
        yield s(x, x.copy())
        yield s(x, s.any(5))
        yield s(x, s.any(1))
