"""Running reductions along one dimension, and differences."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.base.sym import maximum
from lehr.ops import rule
from lehr.ops.registry import HOST, SCAN, op
from lehr.ops.rule import Spec

METHOD = "function method"


def _running(x, dim, dtype=None) -> Spec:
    rule.dim_of(dim, len(x.shape))
    made = dtype or (dt.int64 if x.dtype.is_integer else x.dtype)
    return Spec(tuple(x.shape), made, x.device, made)


def _along(np, accumulate, x, dim):
    return accumulate(x, axis=dim) if x.ndim else x


def _backward(F, x, dim):
    """The running sum from the end."""
    if x.ndim == 0:
        return x
    return F.flip(F.cumsum(F.flip(x, [dim]), dim), [dim])


def _scans(s):
    yield s(s.any(3, 4), 1)
    yield s(s.any(2, 3, 4), -2)
    yield s(s.any(), 0)
    yield s(s.any(3, 0), 1)
    yield s(s.any(3, 4), dim=0, dtype=dt.float64)
    yield s.raises(IndexError, s.any(3, 4), 2, match="out of range")


@op("cumsum(input: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor")
class cumsum:
    """The running sum along `dim`; integers and bool add up in int64."""

    kind, rule, where, monoid = SCAN, _running, "function method inplace", "sum"
    samples = _scans

    def eager(np, x, dim, dtype):
        made = _along(np, np.add.accumulate, x, dim)
        # A sum starts at 0: of -0.0 alone it is 0.0.
        return made if made.dtype.kind in "bui" else made + made.dtype.type(0)

    def vjp(F, g, out, x, dim, dtype):
        return _backward(F, g, dim)


@op("cumprod(input: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor")
class cumprod:
    """The running product along `dim`; integers and bool multiply in int64."""

    kind, rule, where, monoid = SCAN, _running, "function method inplace", "prod"

    def eager(np, x, dim, dtype):
        return _along(np, np.multiply.accumulate, x, dim)

    def vjp(F, g, out, x, dim, dtype):
        # Before the first zero of a row the products divide; at it, they are those of the row with
        # that zero taken as 1; behind it nothing changes them.
        zeros = F.cumsum(F.eq(x, 0), dim)
        first = F.bitwise_and(F.eq(x, 0), F.eq(zeros, 1))
        whole = F.where(first, 1, x)
        at = _backward(F, F.mul(g, F.cumprod(whole, dim)), dim)
        safe = F.where(F.eq(whole, 0), 1, whole)
        before = F.div(_backward(F, F.mul(g, out), dim), safe)
        return F.where(first, at, F.where(F.eq(zeros, 0), before, 0))

    def samples(s):
        yield from _scans(s)
        if s.dtype.category == dt.FLOAT:
            x = s.f(4, 5)
            x[0, 2] = x[1, 1] = x[1, 3] = x[2, 0] = 0
            yield s(x, 1)


def _extremes(x, dim) -> tuple[Spec, Spec]:
    rule.dim_of(dim, len(x.shape))
    shape = tuple(x.shape)
    return Spec(shape, x.dtype, x.device, x.dtype), Spec(shape, dt.int64, x.device)


def _typed(x, dim) -> Spec:
    return _extremes(x, dim)[0]


def _extreme_samples(s):
    yield s(s.any(3, 4), 1)
    yield s(s.any(2, 9, low=0, high=2), -1)
    yield s(s.any(), 0)
    yield s(s.any(3, 0), 1)
    if s.dtype.category == dt.FLOAT:
        yield s(s.f(4, 9, nonfinite=True), 1)
    yield s.raises(IndexError, s.any(3, 4), 2, match="out of range")


def _places(F, x, found, dim):
    """At each place the latest index up to there where the running extremum was attained (a NaN
    attains)."""
    if x.ndim == 0:
        return F.full((), 0, dtype=dt.int64, device=x.device)
    n = x.shape[dim]
    d = rule.dim_of(dim, x.ndim)
    index = F.view(F.arange(n, device=x.device), tuple(n if i == d else 1 for i in range(x.ndim)))
    hit = F.bitwise_or(F.eq(x, found), F.ne(x, x))
    return F.scan_max(F.where(hit, index, 0), dim)


def _to_place(F, g, out, x, dim):
    if g[0] is None:
        return None
    if len(x.shape) == 0:
        return g[0]
    base = F.full(x.shape, 0, dtype=g[0].dtype, device=g[0].device)
    return F.scatter_add(base, dim, out[1], g[0])


@op("scan_max(input: Tensor, dim: int) -> Tensor")
class scan_max:
    """The running maximum along `dim`; from a NaN on, NaN."""

    kind, rule, where, monoid, nondiff = SCAN, _typed, "", "max", True
    samples = _extreme_samples

    def eager(np, x, dim):
        return _along(np, np.maximum.accumulate, x, dim)


@op("scan_min(input: Tensor, dim: int) -> Tensor")
class scan_min:
    """The running minimum along `dim`; from a NaN on, NaN."""

    kind, rule, where, monoid, nondiff = SCAN, _typed, "", "min", True
    samples = _extreme_samples

    def eager(np, x, dim):
        return _along(np, np.minimum.accumulate, x, dim)


@op("cummax(input: Tensor, dim: int) -> named(values=Tensor, indices=Tensor)")
class cummax:
    """The running maximum along `dim` and the latest place where it was attained."""

    rule, where, nondiff, vjp, samples = _extremes, METHOD, (1,), _to_place, _extreme_samples

    def decomp(F, x, dim):
        found = F.scan_max(x, dim)
        return found, _places(F, x, found, dim)


@op("cummin(input: Tensor, dim: int) -> named(values=Tensor, indices=Tensor)")
class cummin:
    """The running minimum along `dim` and the latest place where it was attained."""

    rule, where, nondiff, vjp, samples = _extremes, METHOD, (1,), _to_place, _extreme_samples

    def decomp(F, x, dim):
        found = F.scan_min(x, dim)
        return found, _places(F, x, found, dim)


def _running_float(x, dim) -> Spec:
    rule.dim_of(dim, len(x.shape))
    if x.dtype.is_integer:
        raise NotImplementedError(f'"logcumsumexp" not implemented for {rule.label(x.dtype)}')
    return Spec(tuple(x.shape), x.dtype, x.device, x.dtype)


@op("logcumsumexp(input: Tensor, dim: int) -> Tensor")
class logcumsumexp:
    """The logarithm of the running sum of exp(input) along `dim`, without overflow."""

    kind, rule, where, host = HOST, _running_float, METHOD, True
    dtypes = "float half"

    def eager(np, x, dim):
        return _along(np, np.logaddexp.accumulate, x, dim)

    def vjp(F, g, out, x, dim):
        # sum over k >= i of g[k] exp(x[i] - out[k]), in logarithms, for each sign of g apart.
        def part(side):
            # Masked before log, so that neither -inf nor its slope reaches the second derivative.
            there = F.bitwise_and(F.gt(side, 0), F.isfinite(out))
            weight = F.sub(F.log(F.where(there, side, 1)), F.where(there, out, 0))
            weight = F.where(there, weight, float("-inf"))
            return F.exp(F.add(F.flip(F.logcumsumexp(F.flip(weight, [dim]), dim), [dim]), x))
        if x.ndim == 0:
            return g
        return F.sub(part(g), part(F.neg(g)))

    def samples(s):
        yield s(s.f(3, 4), 1)
        yield s(s.f(2, 3, 4), -2)
        yield s(s.f(), 0)
        yield s(s.f(3, 4, domain=(90.0, 120.0)), 0)


def _difference_shape(shape, n, dim, prepend, append):
    size = shape[dim]
    for more in (prepend, append):
        if more is not None:
            size = size + (more.shape[dim] if len(more.shape) == len(shape) else 1)
    return (*shape[:dim], maximum(size - n, 0), *shape[dim + 1:])


@op("diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,"
    " append: Tensor | None = None) -> Tensor")
class diff:
    """The n-th difference of neighbours along `dim`, of the input with `prepend` and `append`
    joined on; of bool, where neighbours differ."""

    where = METHOD

    def rule(x, n=1, dim=-1, prepend=None, append=None):
        if not x.shape:
            raise RuntimeError("diff expects input to be at least one-dimensional")
        if n < 0:
            raise RuntimeError(f"order must be non-negative but got {n}")
        d = rule.dim_of(dim, len(x.shape))
        return Spec(_difference_shape(tuple(x.shape), n, d, prepend, append), x.dtype, x.device)

    def decomp(F, x, n, dim, prepend, append):
        parts = [p for p in (prepend, x, append) if p is not None]
        if len(parts) > 1:
            d = rule.dim_of(dim, x.ndim)
            shape = (*x.shape[:d], 1, *x.shape[d + 1:])
            x = F.cat([p if p.ndim == x.ndim else F.expand(p, shape) for p in parts], dim)
        for _ in range(n):
            size = x.shape[dim]
            if rule.same(size, 0):
                break
            right, left = F.narrow(x, dim, 1, size - 1), F.narrow(x, dim, 0, size - 1)
            x = F.bitwise_xor(right, left) if x.dtype is dt.bool_ else F.sub(right, left)
        return x if n else F.clone(x)

    def samples(s):
        yield s(s.any(5))
        yield s(s.any(3, 4), 2, 1)
        yield s(s.any(3, 4), dim=0, prepend=s.any(1, 4), append=s.any(2, 4))
        yield s(s.any(2), 3)
        yield s.raises(RuntimeError, s.any(), match="at least one-dimensional")
        yield s.raises(RuntimeError, s.any(3), -1, match="non-negative")


def _segments(F, y, x, dx, dim):
    """The areas of the trapezoids between neighbours along `dim`."""
    n = y.shape[dim]
    if isinstance(n, int) and n == 0:
        return F.mul(y, 0)
    pair = F.add(F.narrow(y, dim, 1, n - 1), F.narrow(y, dim, 0, n - 1))
    if x is None:
        return F.mul(pair, dx / 2) if isinstance(dx, (int, float)) else F.mul(F.mul(pair, dx), 0.5)
    if x.ndim == 1 and y.ndim > 1:
        d = rule.dim_of(dim, y.ndim)
        x = F.view(x, (x.shape[0], *(1,) * (y.ndim - 1 - d)))
        dim = d - y.ndim
    m = x.shape[dim]
    return F.mul(F.mul(F.sub(F.narrow(x, dim, 1, m - 1), F.narrow(x, dim, 0, m - 1)), pair), 0.5)


def _trapezoids(drop):
    def typed(y, x=None, dx=1, dim=-1) -> Spec:
        d = rule.dim_of(dim, len(y.shape))
        if x is not None and len(x.shape) == 1 and not rule.same(x.shape[0], y.shape[d]):
            raise RuntimeError("trapezoid: There must be one `x` value for each sample point")
        made = rule.as_float(rule.operands_type([v for v in (y, x) if v is not None]))
        shape = tuple(y.shape)
        if x is not None and len(x.shape) > 1:
            shape = rule.broadcast(shape, tuple(x.shape))
        size = shape[d]
        left = () if drop else (size - 1 if not isinstance(size, int) or size else 0,)
        return Spec((*shape[:d], *left, *shape[d + 1:]), made, y.device, made)
    return typed


def _curves(s):
    yield s(s.f(5))
    yield s(s.f(3, 4), dx=0.5, dim=0)
    yield s(s.f(3, 4), s.f(4))
    yield s(s.f(3, 4), s.f(3, 4), dim=0)
    yield s(s.f(3, 4, 2), s.f(4), dim=1)
    yield s.raises(RuntimeError, s.f(3, 4), s.f(3), match="one `x` value")


CURVE = "y: Tensor, x: Tensor | None = None, *, dx: Scalar = 1, dim: int = -1"


@op(f"trapezoid({CURVE}) -> Tensor")
class trapezoid:
    """The integral of y along `dim` by the trapezoidal rule, over the places x or steps of dx."""

    rule, where, dtypes, samples = _trapezoids(True), "function", "float half", _curves
    aliases = ("trapz",)

    def decomp(F, y, x, dx, dim):
        return F.sum(_segments(F, y, x, dx, dim), dim)


@op(f"cumulative_trapezoid({CURVE}) -> Tensor")
class cumulative_trapezoid:
    """The running integral of y along `dim` by the trapezoidal rule."""

    rule, where, dtypes, samples = _trapezoids(False), "function", "float half", _curves

    def decomp(F, y, x, dx, dim):
        return F.cumsum(_segments(F, y, x, dx, dim), dim)
